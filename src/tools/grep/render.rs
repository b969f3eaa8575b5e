//! The text of what `grep` found.

use super::line::Role;
use super::{Found, Mode};
use crate::tools::number_column;
use crate::tools::page::counted;
use crate::tools::{Render, walk};
use std::fmt::Write as _;

/// Stands where the separator of the number column stands, for a line that does not match.
const CONTEXT: char = '┆';

impl Render for Found {
    fn render(&self) -> String {
        let mut out = String::new();
        for (index, file) in self.files.iter().enumerate() {
            match self.output_mode {
                Mode::Files => out.push_str(&file.path),
                Mode::Count => {
                    let _ = write!(out, "{}: {}", file.path, file.count.unwrap_or(0));
                }
                Mode::Content => {
                    if index > 0 {
                        out.push('\n');
                    }
                    out.push_str(&file.path);
                    self.render_lines(&mut out, file);
                }
            }
            out.push('\n');
        }
        self.render_end(&mut out);
        out
    }
}

impl Found {
    fn render_lines(&self, out: &mut String, file: &super::FileFound) {
        let width = file.lines.last().map_or(1, |line| line.line.to_string().len());
        let context = file.lines.iter().any(|line| line.role == Role::Context);
        let mut previous = None;
        for line in &file.lines {
            if context && previous.is_some_and(|previous| previous + 1 != line.line) {
                out.push_str("\n--");
            }
            previous = Some(line.line);
            let mut text = String::new();
            if line.cut_before > 0 {
                let _ = write!(text, "[{} bytes before]…", line.cut_before);
            }
            text.push_str(&line.text);
            if line.cut_after > 0 {
                let _ = write!(text, "…[{} bytes after]", line.cut_after);
            }
            if let Some(column) = line.column.filter(|_| line.cut_before + line.cut_after > 0) {
                let _ = write!(text, " [column {column}]");
            }
            out.push('\n');
            if line.role == Role::Context {
                let _ = write!(out, "{:>width$}{CONTEXT}{text}", line.line);
            } else {
                out.push_str(&number_column::show(line.line, width, &text));
            }
        }
        let shown = file.lines.iter().filter(|line| line.role == Role::Match).count() as u64;
        if let Some(count) =
            file.count.filter(|count| *count > shown && self.truncation.as_ref().is_none_or(|cut| cut.by == "max_per_file"))
        {
            let _ = write!(out, "\n[{} more in this file]", count - shown);
        }
    }

    fn render_end(&self, out: &mut String) {
        let what = if self.output_mode == Mode::Content { "matching lines" } else { "files" };
        let counts = self.counts;
        match &self.truncation {
            Some(cut) => out.push_str(&cut.line(what)),
            None if self.total > 0 && self.output_mode == Mode::Content => {
                let lines = counted(self.total, "matching line", "matching lines");
                let _ = write!(out, "[{lines} in {}]", counted(self.files_total, "file", "files"));
            }
            None if self.total > 0 => {
                let _ = write!(out, "[{}]", counted(self.total, "file", "files"));
            }
            None => out.push_str("nothing found"),
        }
        if self.total == 0 {
            let _ = write!(out, "\n[searched {}", counted(counts.searched, "file", "files"));
            for (number, what) in [
                (counts.binary, "binary"),
                (counts.too_large, "too large"),
                (counts.unreadable, "unreadable"),
                (counts.ignored, "left out by ignore rules"),
            ] {
                if number > 0 {
                    let _ = write!(out, ", {number} {what}");
                }
            }
            out.push(']');
        } else if counts.unreadable + counts.too_large > 0 {
            let _ = write!(out, "\n[{} unreadable and {} too large were not searched]", counts.unreadable, counts.too_large);
        }
        if let Some(ignored) = self.ignored_hits.filter(|ignored| ignored.matches > 0 || ignored.at_least) {
            let least = if ignored.at_least { "at least " } else { "" };
            let hits = counted(ignored.matches, "matching line", "matching lines");
            let files = counted(ignored.files, "ignored file", "ignored files");
            let _ = write!(out, "\n[{least}{hits} in {files}: no_ignore: true shows them]");
        }
        for note in &self.notes {
            let _ = write!(out, "\n[note: {note}]");
        }
        walk::render_skipped(out, &self.skipped);
    }
}
