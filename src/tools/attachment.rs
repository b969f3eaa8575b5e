//! `read_file` and `search_file_content`: files that a person attached to the task, by their key.
//!
//! An attachment is a copy in the session's spool, made by the host before the first request; these tools open nothing of the
//! workspace. They are in no registry: a session has them when something is attached to it.

use super::source::{self, Source};
use super::{Access, AnyTool, Bench, InJail, Render, Spec, Tool};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::decode::{decode, detect_whole, lines, to_plain};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read;

/// The tools of a session that has attachments.
pub static ATTACHED: &[&dyn AnyTool] = &[&InJail::<ReadFile>::NEW, &InJail::<SearchFileContent>::NEW];

/// The most bytes of an attachment.
pub const MOST_BYTES: u64 = 32 << 20;
/// The most characters of a line that are shown, [`CUT`] included.
pub const LINE: usize = 2000;
/// What a line ends with that was cut.
pub const CUT: &str = "...";
/// Lines of one call, unless asked otherwise and at the most.
const LINES: (u64, u64) = (200, 500);
/// Hits of one call, unless asked otherwise and at the most.
const HITS: (u64, u64) = (10, 100);
/// The most lines around a hit, on each side.
const CONTEXT: u64 = 20;
/// The most bytes of hits and what is around them.
const MOST_SHOWN: usize = 200_000;

/// The name of an attachment's copy in the spool.
pub fn spool_name(key: &str) -> Option<String> {
    let plain = !key.is_empty() && key.len() <= 64 && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    plain.then(|| format!("attached-{key}"))
}

/// Text as lines, each cut to [`LINE`] characters. A byte that is no text is shown as an escape.
pub fn shown_lines(bytes: &[u8]) -> Vec<String> {
    let encoding = detect_whole(bytes);
    let bytes = bytes.strip_prefix(encoding.bom()).unwrap_or(bytes);
    let text = if encoding.is_utf16() {
        String::from_utf8_lossy(&to_plain(bytes, encoding)).into_owned()
    } else {
        decode(bytes, encoding).into_owned()
    };
    lines(text.as_bytes()).map(|line| cut(&String::from_utf8_lossy(line.text(text.as_bytes())))).collect()
}

fn cut(line: &str) -> String {
    // Most lines are short, and bytes are counted faster than characters.
    if line.len() <= LINE || line.chars().count() <= LINE {
        return line.to_owned();
    }
    line.chars().take(LINE - CUT.len()).chain(CUT.chars()).collect()
}

/// A line as it is shown: its number from 1 in six columns, a tab, the text.
pub fn numbered(index: usize, line: &str) -> String {
    format!("{:>6}\t{line}\n", index + 1)
}

fn load(bench: &Bench<'_>, key: &str) -> Result<Vec<String>, Fault> {
    let missing = || {
        Fault::new(FaultCode::NotFound, format!("nothing is attached under the key {:?}", key.chars().take(64).collect::<String>()))
            .hint("the keys stand in the attachments of the task")
    };
    let name = spool_name(key).ok_or_else(missing)?;
    let Source { file, .. } = source::open(bench.base(), bench.spool(), &format!("spool:{name}"))
        .map_err(|fault| if fault.code() == FaultCode::NotFound { missing() } else { fault })?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Fault::new(FaultCode::IoError, format!("the attachment {key}: {error}")))?;
    Ok(shown_lines(&bytes))
}

/// Reads a part of an attachment.
pub struct ReadFile;

/// The arguments of `read_file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadArgs {
    /// The key of the attachment.
    key: String,
    /// The first line, from 0.
    #[serde(default)]
    line_offset: Option<u64>,
    /// Lines at the most: 200 unless given, no more than 500.
    #[serde(default)]
    max_lines: Option<u64>,
}

/// What `read_file` read.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Page {
    key: String,
    /// The first line shown, from 0.
    line_offset: u64,
    /// Lines shown.
    lines: u64,
    /// Lines of the whole attachment.
    total_lines: u64,
    /// Where to go on, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
    /// The lines, each with its number from 1 in six columns and a tab.
    text: String,
}

impl Render for Page {
    fn render(&self) -> String {
        let more = match self.next_offset {
            Some(next) => format!("[{} lines in all; lineOffset {next} goes on]", self.total_lines),
            None => format!("[the end; {} lines in all]", self.total_lines),
        };
        format!("{}{more}", self.text)
    }
}

impl Spec for ReadFile {
    type Args = ReadArgs;
    type Data = Page;
    const NAME: &'static str = "read_file";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "attachment";
    const SUMMARY: &'static str = "Reads a part of an attached file, with line numbers.\n\
        Only for attachments, by their key, and only for those that are shown in part: what is shown whole needs no call. Lines are cut to 2000 \
        characters. `search_file_content` finds the line.";
    const EXAMPLE: &'static str = r#"{"key":"a1","lineOffset":100,"maxLines":200}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] =
        &[("line_offset", "lineOffset"), ("offset", "lineOffset"), ("max_lines", "maxLines"), ("limit", "maxLines")];
}

impl Tool for ReadFile {
    fn run(bench: &Bench<'_>, args: ReadArgs) -> Result<Page, Fault> {
        let lines = load(bench, &args.key)?;
        page(&lines, args)
    }
}

fn page(lines: &[String], args: ReadArgs) -> Result<Page, Fault> {
    let total = lines.len() as u64;
    let offset = args.line_offset.unwrap_or(0);
    if offset > 0 && offset >= total {
        return Err(Fault::new(FaultCode::InvalidArguments, format!("lineOffset {offset} is behind the end: there are {total} lines"))
            .hint("lineOffset counts from 0")
            .with("total_lines", total));
    }
    let most = args.max_lines.unwrap_or(LINES.0).clamp(1, LINES.1);
    let shown =
        lines.iter().enumerate().skip(usize::try_from(offset).unwrap_or(usize::MAX)).take(usize::try_from(most).unwrap_or(usize::MAX));
    let texts: Vec<String> = shown.map(|(index, line)| numbered(index, line)).collect();
    let count = texts.len() as u64;
    let next = offset + count;
    Ok(Page {
        key: args.key,
        line_offset: offset,
        lines: count,
        total_lines: total,
        next_offset: (next < total).then_some(next),
        text: texts.concat(),
    })
}

/// Searches an attachment for a text.
pub struct SearchFileContent;

/// The arguments of `search_file_content`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SearchArgs {
    /// The key of the attachment.
    key: String,
    /// The text to look for, literally.
    query: String,
    /// Hits at the most: 10 unless given, no more than 100.
    #[serde(default)]
    max_results: Option<u64>,
    /// Lines around each hit: none unless given.
    #[serde(default)]
    context_lines: Option<u64>,
}

/// What `search_file_content` found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Hits {
    key: String,
    query: String,
    /// All lines that hold the text, also those that are not shown.
    total: u64,
    /// Hits shown.
    shown: u64,
    /// The lines, each with its number from 1 in six columns and a tab; `--` stands between places that are apart.
    text: String,
}

impl Render for Hits {
    fn render(&self) -> String {
        if self.total == 0 {
            return format!("no line holds {:?}", self.query);
        }
        format!("{}[{} of {} lines that hold it]", self.text, self.shown, self.total)
    }
}

impl Spec for SearchFileContent {
    type Args = SearchArgs;
    type Data = Hits;
    const NAME: &'static str = "search_file_content";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "attachment";
    const SUMMARY: &'static str = "Searches an attached file for a text, literally, and shows the lines with their numbers.\n\
        Only for attachments, by their key. The total counts all lines that hold the text. `read_file` shows what is around them.";
    const EXAMPLE: &'static str = r#"{"key":"a1","query":"ERROR","maxResults":10,"contextLines":2}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("pattern", "query"),
        ("text", "query"),
        ("max_results", "maxResults"),
        ("limit", "maxResults"),
        ("context_lines", "contextLines"),
        ("context", "contextLines"),
    ];
}

impl Tool for SearchFileContent {
    fn run(bench: &Bench<'_>, args: SearchArgs) -> Result<Hits, Fault> {
        let lines = load(bench, &args.key)?;
        search(&lines, args)
    }
}

fn search(lines: &[String], args: SearchArgs) -> Result<Hits, Fault> {
    if args.query.is_empty() {
        return Err(Fault::new(FaultCode::InvalidArguments, "the query is empty"));
    }
    let most = usize::try_from(args.max_results.unwrap_or(HITS.0).clamp(1, HITS.1)).unwrap_or(usize::MAX);
    let context = usize::try_from(args.context_lines.unwrap_or(0).min(CONTEXT)).unwrap_or(0);
    let found: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].contains(&args.query)).collect();
    let (mut text, mut next, mut shown) = (String::new(), 0, 0);
    for index in found.iter().take(most) {
        let from = index.saturating_sub(context).max(next);
        let to = (index + context + 1).min(lines.len());
        let piece: String = (from..to.max(from)).map(|at| numbered(at, &lines[at])).collect();
        if shown > 0 && text.len() + piece.len() > MOST_SHOWN {
            break;
        }
        if shown > 0 && from > next && context > 0 {
            text.push_str("--\n");
        }
        text.push_str(&piece);
        next = next.max(to);
        shown += 1;
    }
    Ok(Hits { key: args.key, query: args.query, total: found.len() as u64, shown, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[String], offset: Option<u64>, most: Option<u64>) -> Result<Page, Fault> {
        page(lines, ReadArgs { key: "a1".into(), line_offset: offset, max_lines: most })
    }

    fn seek(lines: &[String], query: &str, most: Option<u64>, context: Option<u64>) -> Hits {
        search(lines, SearchArgs { key: "a1".into(), query: query.into(), max_results: most, context_lines: context }).unwrap()
    }

    fn counted(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("line {index}")).collect()
    }

    #[test]
    fn pages_have_the_numbers_of_the_contract() {
        let lines = counted(1200);
        for (offset, most, first, count, next) in [
            (None, None, 0, 200, Some(200)),
            (Some(100), Some(50), 100, 50, Some(150)),
            (Some(0), Some(501), 0, 500, Some(500)),
            (Some(1100), Some(500), 1100, 100, None),
            (Some(1199), None, 1199, 1, None),
            (Some(5), Some(0), 5, 1, Some(6)),
        ] {
            let page = read(&lines, offset, most).unwrap();
            assert_eq!((page.line_offset, page.lines, page.next_offset, page.total_lines), (first, count, next, 1200));
            assert!(page.text.starts_with(&format!("{:>6}\tline {first}\n", first + 1)), "{}", &page.text[..20]);
        }
        assert_eq!(read(&lines, Some(1200), None).unwrap_err().code(), FaultCode::InvalidArguments);
        assert_eq!(read(&[], None, None).unwrap().total_lines, 0);
        // The gutter of six and a tab; a number of seven digits pushes it.
        assert_eq!((numbered(0, "x").as_str(), numbered(1_000_000, "x").as_str()), ("     1\tx\n", "1000001\tx\n"));
    }

    #[test]
    fn lines_are_cut_to_two_thousand_characters() {
        for (text, length, end) in [
            ("a".repeat(2000), 2000, "a"),
            ("a".repeat(2001), 2000, "..."),
            ("é".repeat(3000), 2000, "é..."),
            ("é".repeat(2000), 2000, "éé"),
        ] {
            let lines = shown_lines(text.as_bytes());
            assert_eq!((lines.len(), lines[0].chars().count()), (1, length));
            assert!(lines[0].ends_with(end));
        }
    }

    #[test]
    fn any_bytes_become_lines() {
        assert_eq!(shown_lines(b"a\r\nb\rc\n"), ["a", "b", "c"]);
        assert_eq!(shown_lines(b"\xef\xbb\xbfa"), ["a"]);
        assert_eq!(shown_lines(b"a\xff\nb"), ["a\\xff", "b"]);
        assert_eq!(shown_lines(b"\xff\xfea\0\n\0b\0"), ["a", "b"]);
        assert!(shown_lines(b"").is_empty());
    }

    #[test]
    fn a_search_is_literal_and_tells_the_true_total() {
        let lines: Vec<String> = (0..300).map(|index| if index % 2 == 0 { format!("hit [{index}].*") } else { "miss".into() }).collect();
        for (most, shown) in [(None, 10), (Some(3), 3), (Some(1000), 100), (Some(0), 1)] {
            let hits = seek(&lines, "].*", most, None);
            assert_eq!((hits.shown, hits.total, hits.text.lines().count() as u64), (shown, 150, shown));
        }
        assert_eq!(seek(&lines, "hit .*", None, None).total, 0);
        let hits = seek(&lines, "[4]", None, Some(1));
        assert_eq!(hits.text, "     4\tmiss\n     5\thit [4].*\n     6\tmiss\n");
        // Places that touch are shown once; those apart have a mark between them.
        let lines = counted(100);
        let hits = seek(&lines, "line 1", Some(100), Some(1));
        assert_eq!(hits.text.matches("line 15\n").count(), 1);
        assert_eq!(hits.text.matches("--\n").count(), 1);
        assert_eq!(hits.total, 11);
        assert!(search(&lines, SearchArgs { key: "a1".into(), query: String::new(), max_results: None, context_lines: None }).is_err());
    }

    #[test]
    fn a_key_is_no_path() {
        assert_eq!(spool_name("a1").as_deref(), Some("attached-a1"));
        for key in ["", "../1.log", "a/b", "a.b", "a\0", &"a".repeat(65)] {
            assert_eq!(spool_name(key), None, "{key}");
        }
    }
}
