//! The text of what `read` read.

use super::{Content, Format, Picture, Text};
use crate::tools::page::counted;
use crate::tools::{Render, number_column};
use std::fmt::Write as _;

impl Render for Content {
    fn render(&self) -> String {
        match self {
            Self::Text(text) => text.render(),
            Self::Picture(picture) => picture.render(),
        }
    }
}

impl Render for Picture {
    fn render(&self) -> String {
        format!("{}: {}, {} × {} pixels, {} bytes", self.path, self.media_type, self.width, self.height, self.total_bytes)
    }
}

impl Render for Text {
    fn render(&self) -> String {
        let mut out = String::with_capacity(self.text.len() + 8 * self.rows.len() + 100);
        let total = if self.at_least { format!("at least {} lines", self.total_lines) } else { counted(self.total_lines, "line", "lines") };
        if self.rows.is_empty() {
            return if self.total_bytes == 0 {
                format!("{} is empty", self.path)
            } else {
                format!("[nothing there: {} has {total}, {} bytes]", self.path, self.total_bytes)
            };
        }
        let numbered = self.format == Format::Numbered;
        let width = self.first_line.to_string().len().max(self.last_line.to_string().len());
        for (index, row) in self.rows.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            let number = self.first_line.saturating_add_unsigned(index as u64);
            let long = self.long_lines.iter().find(|long| long.line == number);
            match u64::try_from(number) {
                Ok(number) if numbered => number_column::push(&mut out, number, width),
                _ if numbered => {
                    let _ = write!(out, "{number:>width$}{}", number_column::SEPARATOR);
                }
                _ => {}
            }
            if let Some(long) = long.filter(|long| long.bytes_before > 0) {
                let _ = write!(out, "[{} bytes before]…", long.bytes_before);
            }
            out.push_str(&self.text[row.clone()]);
            if let Some((long, next)) = long.and_then(|long| Some((long, long.next_column_offset?))) {
                let _ = write!(out, "…[+{} bytes; column_offset {next} shows more]", long.bytes_after);
            }
        }
        if self.format == Format::Raw && self.final_newline == Some(true) && self.truncation.is_none() {
            out.push('\n');
        }
        self.render_notes(&mut out, &total);
        out
    }
}

impl Text {
    fn render_notes(&self, out: &mut String, total: &str) {
        let mut notes = Vec::new();
        if let Some(cut) = self.truncation.as_ref().filter(|cut| cut.by != "line_length") {
            let why = if cut.by == "bytes" { " (the text was long)" } else { "" };
            let next = cut.next_offset.map(|next| format!("; offset {next} shows more")).unwrap_or_default();
            notes.push(format!("lines {} to {} of {total}{why}{next}", self.first_line, self.last_line));
        }
        // What is usual is not said.
        if self.format == Format::Numbered {
            let mut form = Vec::new();
            if self.encoding.as_str() != "utf-8" {
                form.push(format!("encoding {}", self.encoding));
            }
            match self.eol {
                crate::workspace::decode::Eol::Crlf => form.push("line ends CRLF".into()),
                crate::workspace::decode::Eol::Cr => form.push("line ends CR".into()),
                crate::workspace::decode::Eol::Mixed => form.push("mixed line ends".into()),
                _ => {}
            }
            if self.final_newline == Some(false) && self.truncation.as_ref().is_none_or(|cut| cut.next_offset.is_none()) {
                form.push("no line end at the end".into());
            }
            if !form.is_empty() {
                notes.push(form.join(", "));
            }
        }
        for note in notes {
            if !out.ends_with('\n') {
                out.push('\n');
            }
            let _ = write!(out, "[{note}]");
        }
    }
}
