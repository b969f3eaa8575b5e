//! `edit`: replaces text in files.
//!
//! [`plan`] is the engine: pure, from bytes to bytes. The tool loads, asks it, and writes old or new, never anything between.

mod apply;
mod call;
mod document;
mod indent;
mod ladder;
mod nearest;
mod normal;
mod patch;
mod place;
mod plan;
mod splice;

pub use call::{Args, Item};
pub use ladder::Rung;
pub use nearest::Near;
pub use plan::{Options, Plan, Replacement, Span, Verdict, plan};

use super::diff::DiffTruncation;
use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::{Data, Fault};
use crate::workspace::Hash;
use crate::workspace::decode::Encoding;
use serde::Serialize;
use std::fmt::Write as _;

/// The tool.
pub struct Edit;

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Text in it was replaced.
    Edited,
    /// It is new.
    Created,
    /// It is gone.
    Deleted,
    /// It has another name; its text may have changed, too.
    Moved,
}

/// What was done to one file.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct FileDone {
    /// The file, links resolved.
    path: String,
    /// What became of it.
    action: Action,
    /// Its name before it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    moved_from: Option<String>,
    /// One for each edit, or for each hunk of a patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edits: Vec<Verdict>,
    /// Bytes of the file now.
    bytes: u64,
    /// The hash of the file now; absent when it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    hash: Option<Hash>,
    /// How it is stored.
    #[schemars(with = "String")]
    encoding: Encoding,
    /// Lines that are new.
    added_lines: u64,
    /// Lines that are gone.
    removed_lines: u64,
    /// Unified hunks, capped.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// What of the diff is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff_truncation: Option<DiffTruncation>,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Edited {
    /// What was done to the file of `path`.
    #[serde(flatten)]
    file: Option<FileDone>,
    /// What was done to the files of a patch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<FileDone>,
    /// Nothing was written.
    dry_run: bool,
    /// What should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Render for Edited {
    fn render(&self) -> String {
        let mut text: Vec<String> = self.file.iter().chain(&self.files).map(|file| file.render(self.dry_run)).collect();
        text.extend(self.warnings.iter().map(|warning| format!("[note: {warning}]")));
        text.join("\n")
    }
}

impl FileDone {
    fn render(&self, dry_run: bool) -> String {
        let verb = match (self.action, dry_run) {
            (Action::Edited, false) => "edited",
            (Action::Edited, true) => "would edit",
            (Action::Created, false) => "created",
            (Action::Created, true) => "would create",
            (Action::Deleted, false) => "deleted",
            (Action::Deleted, true) => "would delete",
            (Action::Moved, false) => "moved",
            (Action::Moved, true) => "would move",
        };
        let mut text = match &self.moved_from {
            Some(from) => format!("{verb} {from} to {}", self.path),
            None => format!("{verb} {}", self.path),
        };
        let _ = write!(text, " (+{} -{})", self.added_lines, self.removed_lines);
        for verdict in &self.edits {
            let several = self.edits.len() > 1;
            let forgiven = verdict.rung.filter(|rung| *rung != Rung::Exact);
            if !several && forgiven.is_none() && verdict.replaced == 1 && verdict.note.is_none() {
                continue;
            }
            let _ = write!(text, "\nedit {}: ", verdict.edit);
            if verdict.replaced > 1 {
                let _ = write!(text, "{} places, ", verdict.replaced);
            }
            let shown: Vec<String> = verdict
                .lines
                .iter()
                .take(20)
                .map(|[first, last]| if first == last { first.to_string() } else { format!("{first}-{last}") })
                .collect();
            let _ = write!(text, "line {}{}", shown.join(", "), if verdict.lines.len() > 20 { ", …" } else { "" });
            if let Some(rung) = forgiven {
                let _ = write!(text, "; matched with {}", rung.describe());
            }
            if let Some(note) = &verdict.note {
                let _ = write!(text, "; {note}");
            }
        }
        if let Some(diff) = &self.diff {
            text.push('\n');
            text.push_str(diff);
        }
        if let Some(cut) = &self.diff_truncation {
            let _ = write!(text, "\n[{} of {} lines of the diff are shown]", cut.shown_lines, cut.total_lines);
        }
        text
    }
}

impl Spec for Edit {
    type Args = Args;
    type Data = Edited;
    const NAME: &'static str = "edit";
    const ALIASES: &'static [&'static str] = &["sandbox_edit", "edit_file", "str_replace", "multi_edit", "apply_patch"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Replace text in a file.\n\
        old_string has to be in the file exactly once (or give replace_all, or near_line). Line ends, encoding and everything outside of the \
        replaced text stay as they are. Several edits of a file go into edits: all are made or none. patch takes an apply_patch block, \
        SEARCH/REPLACE blocks or a unified diff, over one file or several.";
    const EXAMPLE: &'static str = r#"{"path": "src/greet.py", "old_string": "print('hi')", "new_string": "print('hello')"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = call::SYNONYMS;

    fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
        call::prepare(args)
    }
}

impl Tool for Edit {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Edited, Fault> {
        apply::run(bench, args)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tool_tests;
