//! `copy`: a file, a link or a whole folder, once more.

use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::Fault;
use crate::workspace::transfer::Existing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool.
pub struct Copy;

/// Other agents' names for the two paths, for `copy` and `rename`.
pub(super) const BOTH_ENDS: &[(&str, &str)] = &[
    ("from", "source"),
    ("src", "source"),
    ("old_path", "source"),
    ("oldPath", "source"),
    ("source_path", "source"),
    ("to", "destination"),
    ("dst", "destination"),
    ("dest", "destination"),
    ("new_path", "destination"),
    ("newPath", "destination"),
    ("destination_path", "destination"),
];

/// Skipped entries that are named.
const NAMED: usize = 20;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    /// What is copied, relative to the workspace.
    source: String,
    /// The path of the copy in full, relative to the workspace.
    destination: String,
    /// Replace files that are there already (default false).
    #[serde(default)]
    overwrite: bool,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Copied {
    /// What was copied.
    source: String,
    /// Where the copy is, links resolved.
    destination: String,
    /// Regular files.
    files: u64,
    /// Folders made.
    folders: u64,
    /// Links, copied as links.
    links: u64,
    /// Bytes of the files.
    bytes: u64,
    /// Files whose blocks are shared with the original.
    reflinked: u64,
    /// Entries that were left out (FIFOs, sockets, devices), at most twenty of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<String>,
    /// How many were left out.
    #[serde(skip_serializing_if = "is_zero")]
    skipped_total: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Render for Copied {
    fn render(&self) -> String {
        let mut text = format!("copied {} to {} ({} files, {} bytes", self.source, self.destination, self.files, self.bytes);
        if self.folders > 0 {
            text.push_str(&format!(", {} folders", self.folders));
        }
        if self.links > 0 {
            text.push_str(&format!(", {} links", self.links));
        }
        text.push(')');
        for skipped in &self.skipped {
            text.push_str(&format!("\nskipped {skipped}"));
        }
        if self.skipped_total > self.skipped.len() {
            text.push_str(&format!("\nskipped {} more", self.skipped_total - self.skipped.len()));
        }
        text
    }
}

impl Spec for Copy {
    type Args = Args;
    type Data = Copied;
    const NAME: &'static str = "copy";
    const ALIASES: &'static [&'static str] = &["sandbox_copy", "cp", "copy_file"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Copy a file or a whole folder.\nModes are kept and links are copied as links. \
        The new path is given in full; overwrite replaces files.";
    const EXAMPLE: &'static str = r#"{"source": "config.toml", "destination": "config.old.toml"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = BOTH_ENDS;
}

impl Tool for Copy {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Copied, Fault> {
        let (source, destination) = (bench.base().rel(&args.source)?, bench.base().rel(&args.destination)?);
        let existing = if args.overwrite { Existing::Overwrite } else { Existing::Refuse };
        let mut done = bench.base().copy(&source, &destination, existing, bench.deadline())?;
        let skipped_total = done.skipped.len();
        done.skipped.truncate(NAMED);
        let destination = done.canonical.unwrap_or(destination);
        // What a copy put there is what the source holds, which may be newer than what was read of it: nothing is known of the copy.
        bench.memory().forget(&destination);
        Ok(Copied {
            source: source.to_string(),
            destination: destination.to_string(),
            files: done.files,
            folders: done.folders,
            links: done.links,
            bytes: done.bytes,
            reflinked: done.reflinked,
            skipped: done.skipped,
            skipped_total,
        })
    }
}
