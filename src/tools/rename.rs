//! `rename`: another name for a file, a folder or a link.

use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::Fault;
use crate::workspace::transfer::Existing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool.
pub struct Rename;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    /// What is there now, relative to the workspace.
    source: String,
    /// Its new path in full, relative to the workspace.
    destination: String,
    /// Replace a file (or an empty folder) that has the new name (default false).
    #[serde(default)]
    overwrite: bool,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Renamed {
    /// The old path, links in its folders resolved.
    source: String,
    /// The new path.
    destination: String,
    /// What it is: `a file`, `a folder`, `a link`.
    kind: &'static str,
    /// Whether something was replaced.
    replaced: bool,
}

impl Render for Renamed {
    fn render(&self) -> String {
        let replaced = if self.replaced { ", which was replaced" } else { "" };
        format!("renamed {} to {}{replaced}", self.source, self.destination)
    }
}

impl Spec for Rename {
    type Args = Args;
    type Data = Renamed;
    const NAME: &'static str = "rename";
    const ALIASES: &'static [&'static str] = &["sandbox_rename", "move", "mv", "move_file"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Rename or move a file, a folder or a link.\nThe new path is given in full; overwrite replaces a file.";
    const EXAMPLE: &'static str = r#"{"source": "src/old.rs", "destination": "src/new.rs"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = super::copy::BOTH_ENDS;
}

impl Tool for Rename {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Renamed, Fault> {
        let (source, destination) = (bench.base().rel(&args.source)?, bench.base().rel(&args.destination)?);
        let existing = if args.overwrite { Existing::Overwrite } else { Existing::Refuse };
        let done = bench.base().rename(&source, &destination, existing)?;
        bench.memory().moved(&done.from, &done.to);
        Ok(Renamed { source: done.from.to_string(), destination: done.to.to_string(), kind: done.kind, replaced: done.replaced })
    }
}
