//! The bytes that go into the file for a new text: lines that the edit does not change keep the file's own bytes, the others take the
//! line ends of the lines that they replace.

use super::document::Document;
use super::ladder::{Found, Place, Rung};
use super::normal::{Form, Normal, indent, trimmed};
use crate::workspace::decode::{Line, lines};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use std::ops::Range;

/// How many pairs of lines are compared at most; larger edits are taken as one replaced block between their common ends.
const DIFF_WORK: usize = 4_000_000;

/// The new bytes for one place. `None`: the new text cannot be indented as the place asks.
pub(super) fn splice(document: &Document<'_>, found: &Found, place: &Place) -> Option<Vec<u8>> {
    let (old, new) = (&found.wording.old[..], &found.wording.new[..]);
    if found.rung == Rung::Exact && with_lf(old) == with_lf(new) {
        // What the edit changes is the line ends themselves.
        return Some(new.to_vec());
    }
    let file = &document.plain()[place.span.clone()];
    let old_lines: Vec<Line> = lines(old).collect();
    let file_lines: Vec<Line> = lines(file).collect();
    let new_lines = new_lines(document, new);
    if old_lines.len() != file_lines.len() {
        return None;
    }
    let after = eol_after(document, place.span.end);
    let mut out = Vec::with_capacity(new.len() + new.len() / 8);
    for op in diff(&lines_text(old, &old_lines), &lines_text(new, &new_lines)) {
        let (olds, news) = (op.old_range(), op.new_range());
        for (nth, index) in news.enumerate() {
            let line = new_lines[index];
            let paired = (nth < olds.len()).then(|| olds.start + nth);
            match (op, paired) {
                (DiffOp::Equal { .. }, Some(at)) => out.extend_from_slice(file_lines[at].text(file)),
                (_, paired) => {
                    let text = line.text(new);
                    let kept = paired.filter(|_| found.by == Rung::Unicode).map(|at| (old_lines[at].text(old), file_lines[at].text(file)));
                    match (kept, &place.shift) {
                        (Some((old, file)), _) => out.extend_from_slice(&keep_ends(old, file, text)),
                        (None, Some(_)) if trimmed(text).is_empty() => out.extend_from_slice(text),
                        (None, Some(shift)) => {
                            out.extend_from_slice(&shift.apply(indent(text))?);
                            out.extend_from_slice(&text[indent(text).len()..]);
                        }
                        (None, None) => out.extend_from_slice(text),
                    }
                }
            }
            if line.end == line.text_end {
                continue;
            }
            // The line that is replaced, else the one before it, else the one after.
            let model = paired.unwrap_or_else(|| olds.end.saturating_sub(1));
            let last = index + 1 == new_lines.len();
            match file_lines.get(model) {
                Some(line) if line.end > line.text_end => out.extend_from_slice(line.eol_bytes(file)),
                // The file ends here without a line end, which the text had: it keeps none.
                Some(_) if last && old_lines[model].end > old_lines[model].text_end => {}
                _ => out.extend_from_slice(after),
            }
        }
    }
    Some(out)
}

/// Lines to be put in before an offset that begins a line (or the end of the file), each with a line end of the file.
pub(super) fn insertion(document: &Document<'_>, at: usize, new: &[u8]) -> Vec<u8> {
    let eol = eol_after(document, at.saturating_sub(1));
    let unfinished = at > 0 && at == document.plain().len() && document.lines().last().is_some_and(|line| line.end == line.text_end);
    let mut out = Vec::with_capacity(new.len() + 2);
    for line in new_lines(document, new) {
        if unfinished {
            out.extend_from_slice(eol);
        }
        out.extend_from_slice(line.text(new));
        if !unfinished {
            out.extend_from_slice(eol);
        }
    }
    out
}

/// The lines of a new text. A CR alone is a line end only for a file that has such line ends; in another it is text.
fn new_lines(document: &Document<'_>, new: &[u8]) -> Vec<Line> {
    if document.eols().cr > 0 {
        return lines(new).collect();
    }
    let mut found: Vec<Line> = Vec::new();
    let mut start = 0;
    for line in lines(new) {
        if line.eol_bytes(new) == b"\r" && line.end < new.len() {
            continue;
        }
        let cr = line.eol_bytes(new) == b"\r";
        found.push(Line { start, text_end: if cr { line.end } else { line.text_end }, end: line.end });
        start = line.end;
    }
    found
}

/// The line end of the line that holds this offset; of the one before it, of most lines, or LF.
fn eol_after<'a>(document: &'a Document<'_>, at: usize) -> &'a [u8] {
    let here = document.line_number(at).min(document.lines().len());
    document.lines()[here.saturating_sub(2)..here]
        .iter()
        .rev()
        .map(|line| line.eol_bytes(document.plain()))
        .find(|eol| !eol.is_empty())
        .unwrap_or_else(|| document.eols().dominant())
}

fn lines_text<'a>(text: &'a [u8], lines: &[Line]) -> Vec<&'a [u8]> {
    lines.iter().map(|line| line.text(text)).collect()
}

/// A line diff whose work is bounded.
fn diff(old: &[&[u8]], new: &[&[u8]]) -> Vec<DiffOp> {
    if old.len().saturating_mul(new.len()) <= DIFF_WORK {
        return capture_diff_slices(Algorithm::Myers, old, new);
    }
    let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let most = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count().min(most);
    vec![
        DiffOp::Equal { old_index: 0, new_index: 0, len: head },
        DiffOp::Replace { old_index: head, old_len: old.len() - head - tail, new_index: head, new_len: new.len() - head - tail },
        DiffOp::Equal { old_index: old.len() - tail, new_index: new.len() - tail, len: tail },
    ]
}

/// A changed line whose unchanged beginning and end keep the file's characters (its quotes, say).
fn keep_ends(old: &[u8], file: &[u8], new: &[u8]) -> Vec<u8> {
    let (Ok(old), Ok(new_text)) = (std::str::from_utf8(old), std::str::from_utf8(new)) else { return new.to_vec() };
    let same = |(a, b): &(char, char)| a == b;
    let head: usize = old.chars().zip(new_text.chars()).take_while(same).map(|(c, _)| c.len_utf8()).sum();
    let most = old.len().min(new_text.len()) - head;
    let mut tail = 0;
    for (character, _) in old.chars().rev().zip(new_text.chars().rev()).take_while(same) {
        if tail + character.len_utf8() > most {
            break;
        }
        tail += character.len_utf8();
    }
    let fold = |range: Range<usize>| Normal::of_pattern(&old.as_bytes()[range], Form::Unicode).text.len();
    let folded = Normal::of_pattern(file, Form::Unicode);
    let whole = fold(0..old.len());
    let head_in_file = if head == 0 { Some(0) } else { folded.origin_of_end(fold(0..head)) };
    let tail_in_file = if tail == 0 { Some(file.len()) } else { folded.origin_of_start(whole - fold(old.len() - tail..old.len())) };
    match (head_in_file, tail_in_file) {
        (Some(a), Some(b)) if a <= b && folded.text.len() == whole => [&file[..a], &new[head..new.len() - tail], &file[b..]].concat(),
        _ => new.to_vec(),
    }
}

/// A text with LF for every line end.
pub(super) fn with_lf(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for line in lines(text) {
        out.extend_from_slice(line.text(text));
        if line.end > line.text_end {
            out.push(b'\n');
        }
    }
    out
}
