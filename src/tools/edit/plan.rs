//! The engine: from a file's bytes and a list of edits to its new bytes, or to the reasons why not. It opens and writes nothing.
//!
//! All edits are matched against the original, checked for overlap, and applied together or not at all.

use super::document::Document;
use super::ladder::Rung;
use super::place::place;
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::workspace::decode::{Encoding, lines};
use serde::Serialize;
use serde_json::{Value, json};
use std::ops::Range;

/// How many line numbers a fault lists at most; how many there are is always said.
pub(super) const LISTED: usize = 500;

/// One edit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replacement {
    /// The text to replace; empty only for an insertion, or in an empty file.
    pub old: String,
    /// The text to put there.
    pub new: String,
    /// Replace every occurrence.
    pub replace_all: bool,
    /// Of several occurrences, take the one nearest to this 1-based line.
    pub near_line: Option<u64>,
    /// Put the new text in after this line; 0: at the beginning.
    pub insert_line: Option<u64>,
    /// A hunk of a patch: only whole lines match.
    pub whole_lines: bool,
    /// Lines of the file, one after the other, behind which the place is (the nearest one). Without an old text, the new one goes
    /// directly behind the last of them.
    pub after: Vec<String>,
    /// The place is at the end of the file.
    pub at_end: bool,
}

/// How tolerant the engine is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Only the exact text matches.
    pub strict: bool,
}

/// What an edit came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Which edit, from 1.
    pub edit: usize,
    /// What was forgiven; `None` for an insertion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung: Option<Rung>,
    /// How many places were replaced.
    pub replaced: usize,
    /// First and last line of each place in the new file (at most 500 places).
    pub lines: Vec<[usize; 2]>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A place of the file that changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Which edit, from 0.
    pub edit: usize,
    /// Its bytes in the old file.
    pub old: Range<usize>,
    /// Its bytes in the new file.
    pub new: Range<usize>,
}

/// A new file, not yet written.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What changed, in order. Everything else is identical.
    pub spans: Vec<Span>,
    /// One for each edit.
    pub verdicts: Vec<Verdict>,
    /// How both files are stored.
    pub encoding: Encoding,
}

/// What one edit would put where.
pub(super) struct Placed {
    pub(super) rung: Option<Rung>,
    pub(super) spans: Vec<(Range<usize>, Vec<u8>)>,
    pub(super) note: Option<String>,
}

/// Plans the edits of one file.
///
/// # Errors
/// `no_match`, `ambiguous`, `already_applied`, `no_change`, `overlapping_edits`, `not_encodable`, `invalid_arguments`; with several
/// edits `data.edits` says what each of them came to.
pub fn plan(original: &[u8], edits: &[Replacement], options: Options) -> Result<Plan, Fault> {
    let document = Document::new(original);
    let results: Vec<Result<Placed, Fault>> = edits.iter().map(|edit| place(&document, edit, options)).collect();
    let placed = all_or_nothing(&document, edits, results)?;

    let mut spans: Vec<(usize, &Range<usize>, &[u8])> =
        placed.iter().enumerate().flat_map(|(edit, placed)| placed.spans.iter().map(move |(span, new)| (edit, span, &new[..]))).collect();
    spans.sort_by_key(|(edit, span, _)| (span.start, span.end, *edit));
    for pair in spans.windows(2) {
        let ((a, before, _), (b, after, _)) = (&pair[0], &pair[1]);
        if before.end > after.start {
            let line = document.line_number(after.start);
            return Err(if a == b {
                Fault::new(FaultCode::Ambiguous, format!("the occurrences of the text overlap, at line {line}"))
                    .hint("replace_all takes occurrences that stand apart; give the whole region as old_string")
            } else {
                let (a, b) = (a.min(b) + 1, a.max(b) + 1);
                Fault::new(
                    FaultCode::OverlappingEdits,
                    format!("edits {a} and {b} touch the same text, at line {line}; nothing was written"),
                )
                .hint("all edits are matched against the file as it is; make one edit of the two")
                .with("overlap", vec![a, b])
            });
        }
    }
    let pieces: Vec<(Range<usize>, &[u8])> = spans.iter().map(|(_, span, new)| ((*span).clone(), *new)).collect();
    let (bytes, places) = document.compose(&pieces)?;
    let spans: Vec<Span> = spans.iter().zip(places).map(|((edit, _, _), (old, new))| Span { edit: *edit, old, new }).collect();
    verify(original, &bytes, &spans)?;
    if bytes == original {
        return Err(Fault::new(FaultCode::NoChange, "the edits leave the file as it is"));
    }
    let verdicts = verdicts(&bytes, document.encoding(), &spans, placed);
    Ok(Plan { bytes, spans, verdicts, encoding: document.encoding() })
}

/// Proves that every byte outside of the spans is where it was.
fn verify(old: &[u8], new: &[u8], spans: &[Span]) -> Result<(), Fault> {
    let (mut old_at, mut new_at) = (0, 0);
    let end = Span { edit: 0, old: old.len()..old.len(), new: new.len()..new.len() };
    for span in spans.iter().chain([&end]) {
        let same = old.get(old_at..span.old.start).is_some_and(|kept| new.get(new_at..span.new.start) == Some(kept));
        if !same {
            return Err(Fault::new(FaultCode::Internal, "the edit would change bytes outside of its spans; nothing was written"));
        }
        (old_at, new_at) = (span.old.end, span.new.end);
    }
    Ok(())
}

/// Either what every edit came to, or the fault of the first that failed, with what each came to.
fn all_or_nothing(document: &Document<'_>, edits: &[Replacement], results: Vec<Result<Placed, Fault>>) -> Result<Vec<Placed>, Fault> {
    let Some((failed, fault)) = results.iter().enumerate().find_map(|(index, result)| Some((index, result.as_ref().err()?.clone()))) else {
        return Ok(results.into_iter().flatten().collect());
    };
    if edits.len() == 1 {
        return Err(fault);
    }
    let told: Vec<Value> = results
        .iter()
        .enumerate()
        .map(|(index, result)| match result {
            Ok(placed) => {
                let lines: Vec<usize> = placed.spans.iter().take(LISTED).map(|(span, _)| document.line_number(span.start)).collect();
                json!({"edit": index + 1, "verdict": "would_apply", "lines": lines})
            }
            Err(fault) => json!({"edit": index + 1, "verdict": fault.code(), "why": fault.message()}),
        })
        .collect();
    let message = format!("edit {} of {}: {}; nothing was written", failed + 1, edits.len(), fault.message());
    let facts = Envelope::from(Err(fault.clone()));
    let mut whole = Fault::new(fault.code(), message);
    for (key, value) in facts.data().as_object().into_iter().flatten() {
        whole = whole.with(key, value.clone());
    }
    let within = |text: &str| !edits[failed].old.is_empty() && text.contains(&edits[failed].old);
    let earlier = edits.iter().take(failed).position(|edit| within(&edit.new));
    if let (FaultCode::NoMatch, Some(earlier)) = (fault.code(), earlier) {
        whole = whole.hint(format!(
            "all edits are matched against the file as it is, and this text comes only with edit {}: make one edit of the two",
            earlier + 1
        ));
    } else if let Some(hint) = fault.hint_text() {
        whole = whole.hint(hint);
    }
    Err(whole.with("edits", told))
}

/// What the edits came to, with lines of the new file.
fn verdicts(bytes: &[u8], encoding: Encoding, spans: &[Span], placed: Vec<Placed>) -> Vec<Verdict> {
    let bom = encoding.bom().len();
    let unit = if encoding.is_utf16() { 2 } else { 1 };
    let starts: Vec<usize> = if unit == 1 {
        // A mark that the edit itself has taken off is no longer there to be left out.
        lines(bytes.get(bom..).unwrap_or_default()).map(|line| line.start + bom).collect()
    } else {
        utf16_starts(bytes, encoding)
    };
    let number = |at: usize| starts.partition_point(|start| *start <= at).max(1);
    let mut verdicts: Vec<Verdict> = placed
        .into_iter()
        .enumerate()
        .map(|(index, placed)| Verdict {
            edit: index + 1,
            rung: placed.rung,
            replaced: placed.spans.len(),
            lines: Vec::new(),
            note: placed.note,
        })
        .collect();
    for span in spans {
        let lines = &mut verdicts[span.edit].lines;
        if lines.len() < LISTED {
            lines.push([number(span.new.start), number(span.new.end.saturating_sub(unit).max(span.new.start))]);
        }
    }
    verdicts
}

/// Where the lines of a UTF-16 file begin.
fn utf16_starts(bytes: &[u8], encoding: Encoding) -> Vec<usize> {
    let big = encoding == Encoding::Utf16Be;
    let unit = |at: usize| {
        bytes.get(at..at + 2).map(|pair| if big { u16::from_be_bytes([pair[0], pair[1]]) } else { u16::from_le_bytes([pair[0], pair[1]]) })
    };
    let mut starts = vec![2];
    for at in (2..bytes.len()).step_by(2) {
        let ends = match unit(at) {
            Some(0x0a) => true,
            Some(0x0d) => unit(at + 2) != Some(0x0a),
            _ => false,
        };
        if ends && at + 2 < bytes.len() {
            starts.push(at + 2);
        }
    }
    starts
}
