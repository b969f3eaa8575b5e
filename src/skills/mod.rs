//! Skills: folders with a `SKILL.md` that says, for a model, how some kind of task is done.
//!
//! [`front_matter`] reads the text of a `SKILL.md`: lenient on form, and each leniency is noted. [`folder`] finds skills and opens what is
//! in them: strict on paths, for each skill's folder is a base directory of its own, which nothing in it can lead out of.
//!
//! Nothing here runs a script, follows an instruction, or opens anything but through [`crate::workspace`]. It is meant for a `Look` jail: what
//! it reads is hostile until somebody has said otherwise.

pub mod folder;
pub mod front_matter;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub use crate::policy::skill_homes::FOLDERS;

/// The most skills that a session has.
pub const MOST: usize = 100;

/// What the front matter of a `SKILL.md` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Skill {
    /// Its name: 1 to 64 lower-case letters, digits and single hyphens between them.
    pub name: String,
    /// When it is to be used: one line, at most 1,024 characters.
    pub description: String,
    /// Under which terms it may be used.
    pub license: Option<String>,
    /// What it needs of the machine.
    pub compatibility: Option<String>,
    /// What else its maker says, by key.
    pub metadata: Vec<(String, String)>,
    /// The tools that its maker would allow beforehand. Never obeyed: what is permitted is the policy's to say.
    pub allowed_tools: Option<String>,
    /// What was read otherwise than it is written, one sentence each; empty for a skill to the letter of the specification.
    pub notes: Vec<String>,
}

/// Where a skill's folder is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In the workspace: relative to the base, escaped.
    Project(String),
    /// Elsewhere: an absolute path, resolved, to which the policy grants reading.
    Home(PathBuf),
}

/// A folder that looked like a skill, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Found {
    /// Where it is.
    pub place: Place,
    /// The path of its `SKILL.md`, as a model may be told of it.
    pub location: String,
    /// The skill, or why it is none.
    pub outcome: Result<Skill, String>,
}
