//! Why a text is not in a file: the region that is nearest to it, its first line that differs, and the kind of difference in words.
//! The search is bounded by work, not by time, so that the same call gives the same answer.

use super::document::{Document, core, line_hash};
use super::ladder::{Rung, climb};
use super::normal::{Form, Normal, indent, trimmed};
use super::plan::{LISTED, Replacement};
use super::splice::with_lf;
use crate::envelope::{Fault, FaultCode};
use crate::workspace::decode::lines;
use serde::Serialize;
use serde_json::json;
use std::collections::{HashMap, HashSet};

/// Bytes of the file that are compared by likeness when no line of the text is in the file.
const LIKENESS_WORK: usize = 3_000_000;
/// Lines of the nearest region that are shown.
const SHOWN_LINES: usize = 12;
/// Characters of a line that are shown.
const SHOWN_CHARS: usize = 240;

/// The nearest region.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Near {
    /// Its first line, 1-based.
    pub first_line: usize,
    /// Its last line.
    pub last_line: usize,
    /// Its text; long lines and long regions are cut with a `…`.
    pub text: String,
    /// The 1-based line of the file that differs first.
    pub line: usize,
    /// What the file has there; `None` past its end.
    pub file: Option<String>,
    /// What the text of the call has there.
    pub yours: String,
    /// The kind of difference, in words.
    pub difference: String,
}

/// Why the text was not found.
pub(super) fn miss(document: &Document<'_>, edit: &Replacement, top: Rung) -> Fault {
    if let Some(lines) = applied(document, edit, top) {
        let at = lines.iter().take(20).map(usize::to_string).collect::<Vec<_>>().join(", ");
        return Fault::new(FaultCode::AlreadyApplied, format!("the new text is there, at line {at}, and the old text is not"))
            .hint("nothing is left to do if this is the edit that you made before")
            .with("lines", lines);
    }
    if top < Rung::NumberColumn
        && let Some(found) = climb(document, &edit.old, &edit.new, Rung::NumberColumn)
    {
        let line = document.line_number(found.places[0].span.start);
        let why = if top == Rung::Exact { "strict takes only the exact text" } else { "replace_all forgives line ends only" };
        return Fault::new(
            FaultCode::NoMatch,
            format!("the text is there only with a difference ({}), at line {line}", found.rung.describe()),
        )
        .hint(why)
        .with("line", line)
        .with("rung", json!(found.rung));
    }
    let wording = document.wordings(&edit.old, "").into_iter().next().map_or_else(Vec::new, |wording| wording.old);
    match nearest(document, &with_lf(&wording)) {
        Some(near) => Fault::new(
            FaultCode::NoMatch,
            format!(
                "the text is not in the file; nearest is line {}, where line {} differs: {}",
                near.first_line, near.line, near.difference
            ),
        )
        .hint("copy the lines as the file has them, or read the file again")
        .with("nearest", json!(near)),
        None => Fault::new(FaultCode::NoMatch, "the text is not in the file, nor anything like it")
            .hint("read the file again; grep finds where a text is"),
    }
}

/// Where the new text is, if the file looks as if the edit had been made: the new text stands by itself, not within a word, and
/// most of the lines that the edit would remove are gone.
fn applied(document: &Document<'_>, edit: &Replacement, top: Rung) -> Option<Vec<usize>> {
    if edit.new.trim().is_empty() {
        return None;
    }
    let mut found = climb(document, &edit.new, "", top.min(Rung::LineEnds))?;
    let plain = document.plain();
    let word = |at: usize| plain.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii());
    let within_word = |at: usize| at > 0 && word(at - 1) && word(at);
    found.places.retain(|place| !within_word(place.span.start) && !within_word(place.span.end));
    let hashes = |text: &str| text.lines().map(|line| line_hash(line.as_bytes())).collect::<HashSet<u64>>();
    let (old, new) = (hashes(&edit.old), hashes(&edit.new));
    let removed: HashSet<u64> = old.difference(&new).copied().collect();
    let there = document.line_hashes().iter().filter(|line| removed.contains(line)).collect::<HashSet<_>>().len();
    if found.places.is_empty() || (there > 0 && there * 2 >= removed.len()) {
        return None;
    }
    Some(found.places.iter().take(LISTED).map(|place| document.line_number(place.span.start)).collect())
}

/// Finds the nearest region. `None` when nothing in the file is like the text.
fn nearest(document: &Document<'_>, old: &[u8]) -> Option<Near> {
    let ours: Vec<&[u8]> = lines(old).map(|line| line.text(old)).collect();
    let start = by_votes(document, &ours).or_else(|| by_likeness(document, &ours))?;
    let plain = document.plain();
    let file = |index: usize| document.lines().get(index).map(|line| line.text(plain));
    let differs = (0..ours.len()).find(|index| {
        let Some(theirs) = file(start + index) else { return true };
        let partial = (*index == 0 && theirs.ends_with(ours[0])) || (index + 1 == ours.len() && theirs.starts_with(ours[*index]));
        theirs != ours[*index] && !partial
    });
    let at = differs.unwrap_or(0);
    let difference = match (differs, file(start + at)) {
        (None, _) => "the line ends, or where the first or the last line begins".to_owned(),
        (Some(_), None) => "the file ends before this line".to_owned(),
        (Some(_), Some(theirs)) => {
            let next_theirs = file(start + at + 1).is_some_and(|next| core(next) == core(ours[at]) && !core(next).is_empty());
            let next_ours = ours.get(at + 1).is_some_and(|next| core(next) == core(theirs) && !core(next).is_empty());
            if next_theirs {
                "the file has a further line here, which your text leaves out".to_owned()
            } else if next_ours {
                "your text has a line here that the file has not".to_owned()
            } else {
                kind(document, ours[at], theirs)
            }
        }
    };
    let last = (start + ours.len()).min(document.lines().len());
    let mut text: Vec<String> = (start..last.min(start + SHOWN_LINES)).filter_map(file).map(|line| cut(&document.show(line))).collect();
    if last > start + SHOWN_LINES {
        text.push("…".into());
    }
    Some(Near {
        first_line: start + 1,
        last_line: last,
        text: text.join("\n"),
        line: start + at + 1,
        file: file(start + at).map(|line| cut(&document.show(line))),
        yours: cut(&document.show(ours[at])),
        difference,
    })
}

/// The start on which most lines agree, as a 0-based line.
fn by_votes(document: &Document<'_>, ours: &[&[u8]]) -> Option<usize> {
    let mut wanted: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, line) in ours.iter().enumerate() {
        // A brace or a blank line says nothing about the place.
        if core(line).iter().filter(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii()).count() > 2 {
            let places = wanted.entry(line_hash(line)).or_default();
            if places.len() < 8 {
                places.push(index);
            }
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let mut votes: HashMap<usize, usize> = HashMap::new();
    for (at, hash) in document.line_hashes().iter().enumerate() {
        for index in wanted.get(hash).into_iter().flatten() {
            if let Some(start) = at.checked_sub(*index) {
                *votes.entry(start).or_default() += 1;
            }
        }
    }
    votes.into_iter().max_by_key(|(start, votes)| (*votes, std::cmp::Reverse(*start))).map(|(start, _)| start)
}

/// The start at which the longest of our lines is most like a line of the file.
fn by_likeness(document: &Document<'_>, ours: &[&[u8]]) -> Option<usize> {
    let (index, line) = ours.iter().enumerate().max_by_key(|(index, line)| (core(line).len(), std::cmp::Reverse(*index)))?;
    let wanted = Pairs::of(core(line));
    let mut work = LIKENESS_WORK;
    let mut best: Option<(u32, usize)> = None;
    for (at, file) in document.lines().iter().enumerate() {
        let theirs = core(file.text(document.plain()));
        let theirs = &theirs[..theirs.len().min(4096)];
        work = match work.checked_sub(theirs.len() + 16) {
            Some(left) => left,
            None => break,
        };
        let likeness = wanted.likeness(&Pairs::of(theirs));
        if likeness >= 50 && at >= index && best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, at - index));
        }
    }
    best.map(|(_, start)| start)
}

/// The set of a line's pairs of bytes, hashed to 512 bits; blanks and letter case do not count.
struct Pairs([u64; 8]);

impl Pairs {
    fn of(line: &[u8]) -> Self {
        let mut bits = [0; 8];
        let mut before = 0;
        for byte in line.iter().filter(|byte| !matches!(byte, b' ' | b'\t')).map(u8::to_ascii_lowercase) {
            let hash = (u32::from(before) << 8 | u32::from(byte)).wrapping_mul(0x9e37_79b1) >> 23;
            bits[(hash / 64) as usize] |= 1u64 << (hash % 64);
            before = byte;
        }
        Self(bits)
    }

    /// 0 to 100.
    fn likeness(&self, other: &Self) -> u32 {
        let count = |bits: &[u64; 8]| bits.iter().map(|word| word.count_ones()).sum::<u32>();
        let both: u32 = self.0.iter().zip(&other.0).map(|(a, b)| (a & b).count_ones()).sum();
        (200 * both).checked_div(count(&self.0) + count(&other.0)).unwrap_or(0)
    }
}

/// What kind of difference there is between a line of the call and one of the file.
fn kind(document: &Document<'_>, ours: &[u8], theirs: &[u8]) -> String {
    let has = |line: &[u8], byte: u8| indent(line).contains(&byte);
    let squeezed = |line: &[u8]| line.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t')).collect::<Vec<u8>>();
    let folded = |line: &[u8]| Normal::of_pattern(line, Form::Unicode).text;
    if core(theirs).is_empty() {
        return "the file has a blank line here".into();
    }
    if core(ours).is_empty() {
        return "your text has a blank line here, the file has not".into();
    }
    if core(ours) == core(theirs) {
        return match () {
            () if indent(ours) == indent(theirs) => "the blanks at the end of the line".into(),
            () if has(theirs, b'\t') && !has(ours, b'\t') && has(ours, b' ') => {
                "indentation: the file uses tabs, your text uses spaces".into()
            }
            () if has(ours, b'\t') && !has(theirs, b'\t') && has(theirs, b' ') => {
                "indentation: the file uses spaces, your text uses tabs".into()
            }
            () => format!(
                "indentation: {} blanks in the file, {} in your text, and the lines of the block do not differ alike",
                indent(theirs).len(),
                indent(ours).len()
            ),
        };
    }
    if squeezed(ours) == squeezed(theirs) {
        return "the blanks within the line: how many there are, or whether they are tabs or spaces".into();
    }
    if trimmed(&folded(ours)) == trimmed(&folded(theirs)) {
        return "typographic quotes, dashes, spaces or composed characters".into();
    }
    if ours.eq_ignore_ascii_case(theirs) {
        return "upper and lower case".into();
    }
    if std::str::from_utf8(theirs).is_err() && std::str::from_utf8(ours).is_ok_and(|text| !text.is_ascii()) {
        return format!("the file is no UTF-8 ({}): its bytes outside of ASCII are written \\xNN, as read shows them", document.encoding());
    }
    let same = ours.iter().zip(theirs).take_while(|(a, b)| a == b).count();
    let column = String::from_utf8_lossy(&ours[..same]).trim_end_matches('\u{fffd}').chars().count() + 1;
    format!("the text of the line, from column {column} on")
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(SHOWN_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}
