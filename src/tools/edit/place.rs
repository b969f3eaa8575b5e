//! One edit: where it is in the file, and what it puts there.

use super::document::{Document, Wording, core};
use super::ladder::{Found, Place, Rung, climb_where, exact, within_indentation};
use super::nearest::miss;
use super::normal::trimmed;
use super::plan::{LISTED, Options, Placed, Replacement};
use super::splice::{insertion, splice};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::decode::lines;
use std::ops::Range;

/// Finds what one edit would put where.
pub(super) fn place(document: &Document<'_>, edit: &Replacement, options: Options) -> Result<Placed, Fault> {
    if let Some(line) = edit.insert_line {
        return insert(document, edit, line);
    }
    let anchor = anchor(document, &edit.after)?;
    if edit.old.is_empty() && (anchor.is_some() || edit.at_end) {
        return insert(document, edit, anchor.filter(|_| !edit.at_end).unwrap_or(document.lines().len()) as u64);
    }
    if edit.old.is_empty() {
        if document.plain().is_empty() && !edit.new.is_empty() {
            let wording = first_wording(document, edit)?;
            document.check_encodable(&wording.new)?;
            return Ok(Placed { rung: None, spans: vec![(0..0, wording.new)], note: None });
        }
        return Err(Fault::new(FaultCode::InvalidArguments, "old_string is empty, and the file is not")
            .hint("insert_line puts text in without replacing any; write replaces the whole file"));
    }
    if edit.old == edit.new {
        return Err(Fault::new(FaultCode::NoChange, "old_string and new_string are the same"));
    }
    let top = match edit {
        _ if options.strict => Rung::Exact,
        Replacement { replace_all: true, .. } => Rung::LineEnds,
        _ => Rung::NumberColumn,
    };
    let fits = |span: &Range<usize>| {
        !edit.whole_lines || (document.begins_line(span.start) && (document.begins_line(span.end) || span.end == document.plain().len()))
    };
    let Some(mut found) = climb_where(document, &edit.old, &edit.new, top, &fits) else {
        return Err(miss(document, edit, top));
    };
    if let Some(line) = anchor {
        let start = document.lines()[line - 1].start;
        found.places.retain(|place| place.span.start >= start);
        found.places.truncate(1);
    }
    if edit.at_end {
        found.places.retain(|place| place.span.end == document.plain().len());
    }
    if found.places.is_empty() {
        return Err(Fault::new(FaultCode::NoMatch, "the text of the hunk is in the file, but not where the hunk says it is")
            .hint("it has to be behind the line after @@, or at the end of the file with *** End of File"));
    }
    if top > Rung::Indentation
        && let Some(whole) = within_indentation(document, &found)
    {
        found = whole;
    }
    let chosen: Vec<&Place> =
        if edit.replace_all { found.places.iter().collect() } else { vec![single(document, &found, edit.near_line)?] };
    document.check_encodable(&found.wording.new)?;
    if let [only] = chosen[..]
        && found.rung != Rung::Exact
        && let Some(fault) = is_there(document, &found, only)
    {
        return Err(fault);
    }
    let mut spans = Vec::with_capacity(chosen.len());
    for place in chosen {
        let new = splice(document, &found, place).ok_or_else(|| {
            Fault::new(
                FaultCode::NoMatch,
                format!(
                    "the text is at line {} with other indentation, but the new text begins further to the left than the file allows for",
                    document.line_number(place.span.start)
                ),
            )
            .hint("give old_string with the file's own indentation")
        })?;
        spans.push(if edit.whole_lines { without_context(document, &place.span, &new) } else { (place.span.clone(), new) });
    }
    let note = note(document, edit, &found);
    Ok(Placed { rung: Some(found.rung), spans, note })
}

/// The 1-based line of the last anchor.
fn anchor(document: &Document<'_>, after: &[String]) -> Result<Option<usize>, Fault> {
    let mut from = 0;
    for anchor in after {
        let wanted = core(anchor.as_bytes());
        let text = |index: &usize| core(document.lines()[*index].text(document.plain()));
        let candidates = from..document.lines().len();
        let mut lines: Vec<usize> = candidates.clone().filter(|index| text(index) == wanted).collect();
        if lines.is_empty() {
            lines = candidates.filter(|index| text(index).starts_with(wanted)).collect();
        }
        from = match lines[..] {
            [only] => only + 1,
            [] => {
                return Err(Fault::new(FaultCode::NoMatch, format!("no line of the file is {anchor:?}, which a hunk is to stand behind")));
            }
            _ => {
                let lines: Vec<usize> = lines.iter().take(LISTED).map(|line| line + 1).collect();
                return Err(Fault::new(
                    FaultCode::Ambiguous,
                    format!("{} lines of the file are {anchor:?}, which a hunk is to stand behind", lines.len()),
                )
                .hint("put a line that stands only once before it, with a @@ of its own")
                .with("lines", lines));
            }
        };
    }
    Ok((from > 0).then_some(from))
}

/// A hunk without the lines at its ends that it leaves as they are, so that the context of two hunks may overlap.
fn without_context(document: &Document<'_>, span: &Range<usize>, new: &[u8]) -> (Range<usize>, Vec<u8>) {
    let old = &document.plain()[span.clone()];
    let head =
        lines(old).zip(lines(new)).take_while(|(a, b)| old[a.start..a.end] == new[b.start..b.end]).last().map_or(0, |(line, _)| line.end);
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let olds: Vec<&[u8]> = lines(old_rest).map(|line| &old_rest[line.start..line.end]).collect();
    let news: Vec<&[u8]> = lines(new_rest).map(|line| &new_rest[line.start..line.end]).collect();
    let tail: usize = olds.iter().rev().zip(news.iter().rev()).take_while(|(a, b)| a == b).map(|(line, _)| line.len()).sum();
    (span.start + head..span.end - tail, new[head..new.len() - tail].to_vec())
}

fn first_wording(document: &Document<'_>, edit: &Replacement) -> Result<Wording, Fault> {
    document.wordings(&edit.old, &edit.new).into_iter().next().ok_or_else(|| Fault::new(FaultCode::Internal, "a text has no wording"))
}

/// What is worth saying about an edit that applies.
fn note(document: &Document<'_>, edit: &Replacement, found: &Found) -> Option<String> {
    if found.wording.new.len() < edit.new.len() && found.rung != Rung::NumberColumn {
        return Some(format!("the file's encoding is {}: \\xNN in the new text was written as that byte", document.encoding()));
    }
    let new = String::from_utf8_lossy(&found.wording.new);
    let fresh = !trimmed(&found.wording.new).is_empty() && found.wording.new.len() > found.wording.old.len();
    let [place] = &found.places[..] else { return None };
    let around = exact(document, new.as_bytes());
    let again = fresh && around.iter().any(|there| there.span.start <= place.span.start && place.span.end <= there.span.end);
    again.then(|| "the whole new text was there already, around the old text; it may be there twice now".to_owned())
}

fn insert(document: &Document<'_>, edit: &Replacement, line: u64) -> Result<Placed, Fault> {
    if !edit.old.is_empty() {
        return Err(Fault::new(FaultCode::InvalidArguments, "insert_line replaces nothing, so old_string has to be left out")
            .hint("near_line chooses between several occurrences of old_string"));
    }
    if edit.new.is_empty() {
        return Err(Fault::new(FaultCode::NoChange, "there is nothing to insert: new_string is empty"));
    }
    let total = document.lines().len();
    let at = match usize::try_from(line) {
        Ok(0) => 0,
        Ok(line) if line <= total => document.lines()[line - 1].end,
        _ => {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("insert_line is {line}, and the file has {total} lines"))
                .hint(format!("0 is the beginning, {total} the end"))
                .with("total_lines", total));
        }
    };
    let wording = first_wording(document, edit)?;
    document.check_encodable(&wording.new)?;
    Ok(Placed { rung: None, spans: vec![(at..at, insertion(document, at, &wording.new))], note: None })
}

/// The only place, or the one that `near_line` chooses.
fn single<'a>(document: &Document<'_>, found: &'a Found, near: Option<u64>) -> Result<&'a Place, Fault> {
    if let [only] = &found.places[..] {
        return Ok(only);
    }
    let lines: Vec<usize> = found.places.iter().map(|place| document.line_number(place.span.start)).collect();
    if let Some(near) = near {
        let distance = |line: &usize| (*line as u64).abs_diff(near);
        let least = lines.iter().map(distance).min();
        let mut nearest = lines.iter().enumerate().filter(|(_, line)| Some(distance(line)) == least);
        if let (Some((index, _)), None) = (nearest.next(), nearest.next()) {
            return Ok(&found.places[index]);
        }
    }
    let listed: Vec<usize> = lines.iter().copied().take(LISTED).collect();
    let shown = listed.iter().take(20).map(usize::to_string).collect::<Vec<_>>().join(", ");
    let more = if lines.len() > 20 { ", …" } else { "" };
    let how = if found.rung == Rung::Exact { String::new() } else { format!(" ({})", found.rung.describe()) };
    Err(Fault::new(
        FaultCode::Ambiguous,
        format!("the text is there {} times{how}, at lines {shown}{more}; nothing was written", lines.len()),
    )
    .hint("add lines around it to old_string until it is the only one, or give near_line, or replace_all for every one")
    .with("count", lines.len())
    .with("lines", listed))
}

/// Whether the new text stands where the old one was recognised only by forgiving a difference.
fn is_there(document: &Document<'_>, found: &Found, place: &Place) -> Option<Fault> {
    let line = document.line_number(place.span.start);
    let there = |at: &Place| at.span.start <= place.span.start && place.span.end <= at.span.end;
    exact(document, &found.wording.new).iter().any(there).then(|| {
        Fault::new(
            FaultCode::AlreadyApplied,
            format!("the new text is there already, at line {line}, and the old text only with a difference ({})", found.rung.describe()),
        )
        .with("lines", vec![line])
    })
}
