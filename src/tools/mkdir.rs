//! `mkdir`: a folder, with its missing parents.

use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool.
pub struct Mkdir;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    /// The folder, relative to the workspace. Missing parents are made.
    path: String,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Made {
    /// The folder, links resolved.
    path: String,
    /// Whether it was made now; false: it was there already.
    created: bool,
}

impl Render for Made {
    fn render(&self) -> String {
        format!("{} {}/", if self.created { "created" } else { "exists already:" }, self.path)
    }
}

impl Spec for Mkdir {
    type Args = Args;
    type Data = Made;
    const NAME: &'static str = "mkdir";
    const ALIASES: &'static [&'static str] = &["sandbox_mkdir", "create_directory"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Make a folder and its missing parents.\nA folder that is there already is fine.";
    const EXAMPLE: &'static str = r#"{"path": "src/util"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] =
        &[("dir", "path"), ("directory", "path"), ("dir_path", "path"), ("folder", "path"), ("file_path", "path"), ("filePath", "path")];
}

impl Tool for Mkdir {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Made, Fault> {
        let (path, created) = bench.base().make_dir(&bench.base().rel(&args.path)?)?;
        Ok(Made { path: path.to_string(), created })
    }
}
