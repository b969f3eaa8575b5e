//! `read`: a window of lines of a text file, the size of a picture, or bytes in hex. A file of any size, in bounded memory.

mod bytes;
mod names;
mod near;
mod picture;
mod render;
mod splitter;
mod stream;

use super::page;
use super::source::{self, HEAD, Source};
use super::{Access, Bench, Spec, Tool, clock, walk};
use crate::envelope::{Data, Fault, FaultCode};
use crate::workspace::Hash;
use crate::workspace::decode::{self, Encoding, Eol};
use crate::workspace::outline::Outline;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use splitter::{RawLine, Window};
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;
use stream::Scan;

/// The tool.
pub struct Read;

/// The arguments of `read`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The file, relative to the workspace; `spool:NAME` is kept output of a command
    path: String,
    /// The first line, from 1; a negative number counts from the end
    #[serde(default)]
    offset: Option<i64>,
    /// How many lines; 2000 unless given
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// How many characters of each line to leave out at its beginning
    #[serde(default)]
    column_offset: u64,
    /// numbered: with line numbers; raw: without; hex: 16 bytes a line, also of binary files
    #[serde(default)]
    format: Format,
    /// Give the content of a picture, as base64
    #[serde(default)]
    image: bool,
}

/// How many lines are shown when the call does not say.
const LIMIT: u64 = 2000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Format {
    #[default]
    Numbered,
    Raw,
    Hex,
}

/// What `read` read.
#[derive(Debug, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Content {
    /// Lines.
    Text(Box<Text>),
    /// A picture.
    Picture(Picture),
}

/// A window of lines.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Text {
    path: String,
    /// The lines with their line ends, as they are in the file; what is no character is escaped.
    text: String,
    /// The number of the first line of `text`; counted from the end (negative) where the total is not known; 0: there is none.
    first_line: i64,
    last_line: i64,
    total_lines: u64,
    /// The total is only a lower bound: the file is large and was not read to its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    total_bytes: u64,
    #[schemars(with = "String")]
    eol: Eol,
    bom: bool,
    final_newline: Option<bool>,
    #[schemars(with = "String")]
    encoding: Encoding,
    format: Format,
    mode: String,
    mtime: String,
    /// Of the whole content; null for large files.
    #[schemars(with = "Option<String>")]
    hash: Option<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    long_lines: Vec<LongLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    /// Where in `text` each line is, without its line end, for the rendering.
    #[serde(skip)]
    rows: Vec<Range<usize>>,
    /// What is remembered of all lines of the file.
    #[serde(skip)]
    outline: Option<Outline>,
}

/// A line that is not shown whole.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
struct LongLine {
    line: i64,
    /// Bytes before what is shown.
    bytes_before: u64,
    /// Bytes after what is shown.
    bytes_after: u64,
    /// The `column_offset` that shows what follows; absent when nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_column_offset: Option<u64>,
}

/// What was cut, and how to get the rest.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
struct Truncation {
    shown_lines: u64,
    total_lines: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    /// `lines`, `bytes` or `line_length`.
    by: &'static str,
    /// The `offset` with which the next call goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<i64>,
}

/// A picture.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Picture {
    path: String,
    #[serde(rename = "type")]
    media_type: &'static str,
    width: u64,
    height: u64,
    total_bytes: u64,
    mode: String,
    mtime: String,
    #[schemars(with = "Option<String>")]
    hash: Option<Hash>,
    /// The content, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

impl Spec for Read {
    type Args = Args;
    type Data = Content;
    const NAME: &'static str = "read";
    const ALIASES: &'static [&'static str] = &["sandbox_read", "read_file", "view", "cat"];
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Reads a text file: up to 2000 lines, each with its number and a │ that are not part of the file.\n\
        offset and limit choose lines, a negative offset counts from the end. format raw leaves the numbers out, hex shows bytes. \
        Pictures give their size.";
    const EXAMPLE: &'static str = r#"{"path":"src/main.rs","offset":1,"limit":200}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("file_path", "path"),
        ("filePath", "path"),
        ("filepath", "path"),
        ("file", "path"),
        ("filename", "path"),
        ("absolute_path", "path"),
        ("target_file", "path"),
        ("max_lines", "limit"),
        ("columnOffset", "column_offset"),
    ];

    fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
        names::prepare(args)
    }
}

impl Tool for Read {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Content, Fault> {
        let until = walk::until(bench.deadline());
        let source =
            source::open(bench.base(), bench.spool(), &args.path).map_err(|fault| match (fault.code(), bench.base().rel(&args.path)) {
                (FaultCode::NotFound, Ok(path)) if source::spool_name(&args.path).is_none() && bench.base().lstat(&path).is_err() => {
                    with_near(fault, near::near(bench.base(), &path, until))
                }
                _ => fault,
            })?;
        let canonical = source.canonical.clone();
        let mut content = read(source, &args, until)?;
        let (hash, outline) = match &mut content {
            Content::Text(text) => (text.hash, text.outline.take()),
            Content::Picture(picture) => (picture.hash, None),
        };
        if let (Some(canonical), Some(hash)) = (canonical, hash) {
            bench.memory().note_lines(&canonical, hash, outline);
        }
        Ok(content)
    }
}

fn with_near(fault: Fault, near: Vec<String>) -> Fault {
    if near.is_empty() {
        return fault.hint("ls and find show what is there");
    }
    let hint = format!("did you mean {}?", near.join(" or "));
    fault.hint(hint).with("near", near)
}

/// Reads from an open file.
fn read(mut source: Source, args: &Args, until: Instant) -> Result<Content, Fault> {
    if args.limit == Some(0) {
        return Err(Fault::new(FaultCode::InvalidArguments, "limit is at least 1"));
    }
    let mut head = [0; HEAD];
    let length = stream::fill_beginning(&mut source.file, source.meta.len(), &mut head)?;
    let head = &head[..length];
    if args.format == Format::Hex {
        return bytes::hex(source, args).map(|text| Content::Text(Box::new(text)));
    }
    if decode::is_binary(head) {
        return bytes::binary(source, head, args);
    }
    let encoding = if length < HEAD { decode::detect_whole(head) } else { decode::detect(head) };
    text(source, head, encoding, args, until).map(|text| Content::Text(Box::new(text)))
}

fn text(mut source: Source, head: &[u8], encoding: Encoding, args: &Args, until: Instant) -> Result<Text, Fault> {
    let size = source.meta.len();
    let limit = args.limit.unwrap_or(LIMIT);
    let column = args.column_offset;
    let window = |first: u64, lines: u64| Window { first, lines, column, bytes: page::BUDGET };
    let offset = args.offset.unwrap_or(1);
    let file = &mut source.file;
    let (scan, first_line) = if offset >= 0 {
        let first = offset.unsigned_abs().max(1);
        (stream::scan(file, Some(head), size, encoding, window(first, limit), until)?, first.cast_signed())
    } else if size <= stream::SCANNED {
        // How many lines there are is only known at the end: one pass counts, one reads.
        let total = stream::scan(file, Some(head), size, encoding, window(1, 0), until)?.total;
        let first = total.saturating_sub(offset.unsigned_abs()) + 1;
        (stream::scan(file, None, size, encoding, window(first, limit), until)?, first.cast_signed())
    } else if encoding.is_utf16() {
        return Err(Fault::new(FaultCode::TooLarge, format!("{} is too large to count UTF-16 lines from its end", source.shown))
            .hint("a positive offset works")
            .with("size", size));
    } else {
        let back = offset.unsigned_abs();
        let position = stream::seek_last(file, size, back, until)?;
        (stream::scan_from(file, position, encoding, window(1, limit.min(back)), until)?, offset)
    };
    Ok(shape(&source, args, scan, first_line))
}

fn shape(source: &Source, args: &Args, scan: Scan, first_line: i64) -> Text {
    let Scan { lines, text, total, whole, eols, ended, encoding, hash, outline, full } = scan;
    let shown_as = if encoding.is_utf16() { Encoding::Utf8 } else { encoding };
    let mut long_lines = Vec::new();
    for (index, RawLine { before, after, .. }) in lines.iter().enumerate() {
        if *after > 0 || *before > 0 {
            long_lines.push(LongLine {
                line: first_line.saturating_add_unsigned(index as u64),
                bytes_before: *before,
                bytes_after: *after,
                next_column_offset: (*after > 0).then_some(args.column_offset.saturating_add(splitter::LINE)),
            });
        }
    }
    let (text, rows) = decoded(text, lines, shown_as);
    let shown = rows.len() as u64;
    let last_line = first_line.saturating_add_unsigned(shown) - 1;
    let empty = shown == 0;
    let from_end = first_line < 0;
    let cut_lines = if from_end { shown < first_line.unsigned_abs() || !whole } else { shown < total || !whole };
    let cut = (cut_lines && (!empty || total > 0)) || long_lines.iter().any(|line| line.bytes_after > 0);
    // Counted from the end, the next line is one nearer to it; after the last one there is none.
    let next = last_line.saturating_add(1);
    let more = if from_end { next < 0 } else { !whole || last_line.unsigned_abs() < total };
    let truncation = (cut && !empty).then(|| Truncation {
        shown_lines: shown,
        total_lines: total,
        at_least: !whole || from_end,
        by: if full {
            "bytes"
        } else if cut_lines {
            "lines"
        } else {
            "line_length"
        },
        next_offset: more.then_some(next),
    });
    Text {
        path: source.shown.clone(),
        text,
        first_line: if empty { 0 } else { first_line },
        last_line: if empty { 0 } else { last_line },
        total_lines: total,
        at_least: !whole || from_end,
        total_bytes: source.meta.len(),
        eol: eols.eol(),
        bom: !encoding.bom().is_empty(),
        final_newline: (whole && total > 0).then_some(ended),
        encoding,
        format: args.format,
        mode: mode(source),
        mtime: clock::show(source.meta.mtime()),
        hash,
        long_lines,
        truncation,
        rows,
        outline,
    }
}

/// Lines as text, and where in it each is. Where the bytes are text, it is they.
fn decoded(bytes: Vec<u8>, lines: Vec<RawLine>, encoding: Encoding) -> (String, Vec<Range<usize>>) {
    let bytes = match encoding {
        Encoding::Utf8 | Encoding::Utf8Bom => match String::from_utf8(bytes) {
            Ok(text) => return (text, lines.into_iter().map(|line| line.place).collect()),
            Err(error) => error.into_bytes(),
        },
        _ => bytes,
    };
    let (mut text, mut rows) = (String::with_capacity(bytes.len()), Vec::with_capacity(lines.len()));
    for RawLine { place, eol, .. } in lines {
        let begins = text.len();
        text.push_str(&decode::decode(&bytes[place], encoding));
        rows.push(begins..text.len());
        text.push_str(std::str::from_utf8(eol).unwrap_or_default());
    }
    (text, rows)
}

fn mode(source: &Source) -> String {
    format!("{:04o}", source.meta.mode() & 0o7777)
}

#[cfg(test)]
mod tests;
