//! Reads skills for the session, in a `Look` jail: what they hold is hostile until somebody has said otherwise. Not offered to models.
//!
//! Never runs a script and never opens what is not granted; the folders outside of the workspace are those of the charter.

use super::{Access, Bench, InJail, Render, Spec, Tool};
use crate::envelope::{Fault, FaultCode};
use crate::policy::skill_homes::Home;
use crate::skills::folder::{self, Opened, Script};
use crate::skills::{Found, Place};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The entry.
pub static SKILL_READER: InJail<SkillReader> = InJail::NEW;

/// What the session asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Which skills are there?
    Find {
        /// Look in the workspace too: it is the person's own.
        project: bool,
        /// Folders outside of it that may hold a skill.
        homes: Vec<Home>,
    },
    /// The instructions of one, and its files.
    Load {
        /// Which.
        place: Place,
    },
    /// One file of one.
    Read {
        /// Which.
        place: Place,
        /// The file, from the skill's folder.
        path: String,
    },
    /// A file of one that is to be run.
    Script {
        /// Which.
        place: Place,
        /// The file, from the skill's folder.
        path: String,
    },
}

/// What it answers: as much as the request asks for.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reply {
    /// To [`Request::Find`].
    pub found: Vec<Found>,
    /// To [`Request::Load`].
    pub opened: Option<Opened>,
    /// To [`Request::Read`].
    pub text: Option<String>,
    /// To [`Request::Script`].
    pub script: Option<Script>,
}

impl Render for Reply {
    fn render(&self) -> String {
        String::new()
    }
}

/// The tool.
pub struct SkillReader;

/// The arguments: one [`Request`].
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    request: Value,
}

impl Spec for SkillReader {
    type Args = Args;
    type Data = Reply;
    const NAME: &'static str = "_skill_reader";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "internal";
    const SUMMARY: &'static str = "Reads skills.";
    const EXAMPLE: &'static str = r#"{"request": {"find": {"project": true, "homes": []}}}"#;
}

impl Tool for SkillReader {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Reply, Fault> {
        let request = serde_json::from_value(args.request).map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let base = bench.base();
        let mut reply = Reply::default();
        match request {
            Request::Find { project, homes } => {
                if project {
                    reply.found = folder::find(base, bench.deadline());
                }
                reply
                    .found
                    .extend(homes.iter().filter_map(|home| folder::examine(base, &Place::Home(home.path.clone()), home.name.as_ref())));
            }
            Request::Load { place } => reply.opened = Some(folder::load(base, &place)?),
            Request::Read { place, path } => reply.text = Some(folder::read(base, &place, &path)?),
            Request::Script { place, path } => reply.script = Some(folder::script(base, &place, &path)?),
        }
        Ok(reply)
    }
}
