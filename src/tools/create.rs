//! `create`: a new file, and never anything else.

use super::write::count_lines;
use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::Fault;
use crate::workspace::base_dir::{Expect, ReplaceOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool.
pub struct Create;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    /// The new file, relative to the workspace.
    path: String,
    /// The content, written exactly as it is; empty by default.
    #[serde(default)]
    content: String,
    /// Make missing parent folders (default true).
    #[serde(default = "yes")]
    create_dirs: bool,
    /// Make it executable.
    #[serde(default)]
    executable: bool,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Created {
    /// Where it was made, links resolved.
    path: String,
    /// Bytes of the file.
    bytes: u64,
    /// Lines of the file; an unterminated last one counts.
    lines: u64,
    /// The hash of the file.
    hash: String,
}

impl Render for Created {
    fn render(&self) -> String {
        format!("created {} ({} bytes, {} lines)", self.path, self.bytes, self.lines)
    }
}

impl Spec for Create {
    type Args = Args;
    type Data = Created;
    const NAME: &'static str = "create";
    const ALIASES: &'static [&'static str] = &["sandbox_create", "create_file"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Make a new file; refuses to overwrite.\nTo replace a file use `write`. To change it use `edit`.";
    const EXAMPLE: &'static str = r#"{"path": "docs/notes.md", "content": "Notes\n"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = super::write::SYNONYMS;
    const TAKES_REST: bool = true;
}

impl Tool for Create {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Created, Fault> {
        let path = bench.base().rel(&args.path)?;
        let content = args.content.as_bytes();
        let options = ReplaceOptions { expect: Expect::Absent, create_dirs: args.create_dirs, executable: args.executable.then_some(true) };
        let done = bench.base().replace(&path, content, &options).map_err(|fault| match fault.code() {
            crate::envelope::FaultCode::AlreadyExists => fault.hint("write replaces it, edit changes it"),
            _ => fault,
        })?;
        bench.memory().note_written(&done, content);
        Ok(Created {
            path: done.canonical.to_string(),
            bytes: content.len() as u64,
            lines: count_lines(content),
            hash: done.hash.to_string(),
        })
    }
}

fn yes() -> bool {
    true
}
