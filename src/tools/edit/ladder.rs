//! The match ladder: where a text is in a file, by rungs of tolerance. There are no similarity scores on it; each rung forgives one
//! kind of difference that says nothing about what is meant, and takes time linear in the file.

use super::document::{Document, Wording, core, line_hash};
use super::indent::Shift;
use super::normal::{Form, Normal, indent, occurrences, occurrences_of_bytes, trimmed};
use crate::tools::number_column;
use crate::workspace::decode::lines;
use serde::Serialize;
use std::ops::Range;

/// What had to be forgiven for a text to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rung {
    /// Nothing: the same bytes.
    Exact,
    /// LF, CRLF and CR are the same.
    LineEnds,
    /// Blanks at the ends of lines.
    TrailingBlanks,
    /// All lines are further in or out by the same, or in tabs for blanks.
    Indentation,
    /// Typographic quotes, dashes and spaces, composed and decomposed characters.
    Unicode,
    /// The text carried the number column that `read` shows.
    NumberColumn,
}

impl Rung {
    /// What was forgiven, in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::LineEnds => "other line ends",
            Self::TrailingBlanks => "other blanks at line ends",
            Self::Indentation => "other indentation",
            Self::Unicode => "other quotes, dashes, spaces or composition",
            Self::NumberColumn => "number column removed",
        }
    }
}

/// A place in the file.
#[derive(Debug)]
pub(super) struct Place {
    /// Its bytes.
    pub(super) span: Range<usize>,
    /// How the new text is to be indented there.
    pub(super) shift: Option<Shift>,
}

/// All places of a text on the first rung on which it has any.
#[derive(Debug)]
pub(super) struct Found {
    /// The rung that is reported.
    pub(super) rung: Rung,
    /// The rung on which lines correspond; differs below a number column.
    pub(super) by: Rung,
    /// The texts as they were matched.
    pub(super) wording: Wording,
    /// Where, in order; never empty.
    pub(super) places: Vec<Place>,
}

/// How many lines the indentation rung compares at most before it gives up: a bound for hostile files.
const SHIFT_WORK: usize = 4_000_000;

/// Climbs the ladder up to `top` and stops at the first rung that matches anywhere.
pub(super) fn climb(document: &Document<'_>, old: &str, new: &str, top: Rung) -> Option<Found> {
    climb_where(document, old, new, top, &|_| true)
}

/// The same, where only some places count.
pub(super) fn climb_where(document: &Document<'_>, old: &str, new: &str, top: Rung, fits: &dyn Fn(&Range<usize>) -> bool) -> Option<Found> {
    if let Some(found) = steps(document, document.wordings(old, new), top, fits) {
        return Some(found);
    }
    if top < Rung::NumberColumn {
        return None;
    }
    let (old, new) = (strip_column(old, true)?, strip_column(new, false)?);
    steps(document, document.wordings(&old, &new), Rung::Unicode, fits).map(|found| Found { rung: Rung::NumberColumn, ..found })
}

fn steps(document: &Document<'_>, wordings: Vec<Wording>, top: Rung, fits: &dyn Fn(&Range<usize>) -> bool) -> Option<Found> {
    for rung in [Rung::Exact, Rung::LineEnds, Rung::TrailingBlanks, Rung::Indentation, Rung::Unicode] {
        if rung > top {
            break;
        }
        for wording in &wordings {
            let mut places = match rung {
                Rung::Exact => exact(document, &wording.old),
                Rung::LineEnds => normal(document, &wording.old, Form::LineEnds),
                Rung::TrailingBlanks => normal(document, &wording.old, Form::TrailingBlanks),
                Rung::Indentation => shifted(document, wording),
                _ => normal(document, &wording.old, Form::Unicode),
            };
            places.retain(|place| fits(&place.span));
            if !places.is_empty() {
                return Some(Found { rung, by: rung, wording: wording.clone(), places });
            }
        }
    }
    None
}

/// Where exactly these bytes are, overlapping ones included.
pub(super) fn exact(document: &Document<'_>, old: &[u8]) -> Vec<Place> {
    occurrences_of_bytes(document.plain(), old)
        .into_iter()
        .map(|at| at..at + old.len())
        .filter(|span| document.is_boundary(span.start) && document.is_boundary(span.end))
        .map(|span| Place { span, shift: None })
        .collect()
}

fn normal(document: &Document<'_>, old: &[u8], form: Form) -> Vec<Place> {
    let file = document.form(form);
    let pattern = Normal::of_pattern(old, form).text;
    occurrences_of_bytes(&file.text, &pattern)
        .into_iter()
        .filter_map(|at| file.origin(at..at + pattern.len()))
        .filter(|span| document.is_boundary(span.start) && document.is_boundary(span.end))
        .map(|span| Place { span, shift: None })
        .collect()
}

/// Whole lines that are the same but for one shift of their indentation.
fn shifted(document: &Document<'_>, wording: &Wording) -> Vec<Place> {
    let plain = document.plain();
    let old: Vec<&[u8]> = lines(&wording.old).map(|line| trimmed(line.text(&wording.old))).collect();
    let new: Vec<&[u8]> =
        lines(&wording.new).map(|line| trimmed(line.text(&wording.new))).filter(|line| !line.is_empty()).map(indent).collect();
    let ended = lines(&wording.old).last().is_some_and(|line| line.end > line.text_end);
    // Blanks at the end of a single line without a line end are text; they could go on.
    let open = !ended && old.len() == 1 && old[0].len() < wording.old.len();
    if open || old.iter().all(|line| line.is_empty()) {
        return Vec::new();
    }
    let hashes: Vec<u64> = old.iter().map(|line| line_hash(line)).collect();
    let mut work = SHIFT_WORK;
    let mut places = Vec::new();
    for first in occurrences(document.line_hashes(), &hashes) {
        let file = &document.lines()[first..first + old.len()];
        let mut pairs = Vec::new();
        for (ours, line) in old.iter().zip(file) {
            let theirs = trimmed(line.text(plain));
            if core(ours) != core(theirs) {
                break;
            }
            if !ours.is_empty() {
                pairs.push((indent(ours), indent(theirs)));
            }
        }
        match work.checked_sub(old.len()) {
            Some(left) => work = left,
            None => return Vec::new(),
        }
        if pairs.len() != old.iter().filter(|line| !line.is_empty()).count() {
            continue;
        }
        let Some(shift) = Shift::find(&pairs, &new) else { continue };
        let (head, tail) = (file[0], file[file.len() - 1]);
        let end = if ended { tail.end } else { tail.start + trimmed(tail.text(plain)).len() };
        places.push(Place { span: head.start..end, shift: Some(shift) });
    }
    places
}

/// A line that was found exactly, but with a part of its indentation only, as the whole line: further lines of the new text are then
/// indented as it is.
pub(super) fn within_indentation(document: &Document<'_>, found: &Found) -> Option<Found> {
    let [Place { span, shift: None }] = &found.places[..] else { return None };
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let before = &document.plain()[document.lines().get(document.line_number(span.start) - 1)?.start..span.start];
    let partial = !before.is_empty() && before.iter().all(blank) && found.wording.old.first().is_some_and(blank);
    if found.rung != Rung::Exact || !partial || lines(&found.wording.old).count() != 1 {
        return None;
    }
    let places = shifted(document, &found.wording);
    matches!(&places[..], [whole] if whole.span.end == span.end).then(|| Found {
        rung: Rung::Indentation,
        by: Rung::Indentation,
        wording: found.wording.clone(),
        places,
    })
}

/// A text without its number column. With `all`, every line has to carry one and the numbers have to go up by one; else it is taken
/// off where it stands.
fn strip_column(text: &str, all: bool) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut before: Option<u64> = None;
    for line in text.split_inclusive('\n') {
        match number_column::strip(line) {
            Some((number, rest)) => {
                if all && before.is_some_and(|before| before.checked_add(1) != Some(number)) {
                    return None;
                }
                before = Some(number);
                out.push_str(rest);
            }
            None if all => return None,
            None => out.push_str(line),
        }
    }
    Some(out)
}
