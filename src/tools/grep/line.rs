//! A line as it is shown: whole when it is short, else a window round the match.

use crate::workspace::decode::{self, Encoding};
use serde::Serialize;
use std::ops::Range;

/// A line of at most this many bytes is shown whole.
const WHOLE: usize = 500;

/// How much of a longer line is shown before the match.
const BEFORE: usize = 150;

/// What a line is in a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// It matches, or a match begins in it.
    Match,
    /// A match that began earlier goes on in it.
    More,
    /// It stands near a match.
    Context,
}

/// A line of a result.
#[derive(Clone, Debug, Serialize, schemars::JsonSchema)]
pub(super) struct Line {
    /// Its number, from 1.
    pub(super) line: u64,
    /// The character of the line at which the match begins, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) column: Option<u64>,
    /// What is shown of it.
    pub(super) text: String,
    /// Left out of JSON for the usual case, a match.
    #[serde(skip_serializing_if = "is_match")]
    pub(super) role: Role,
    /// Bytes of the line before what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) cut_before: u64,
    /// Bytes of the line after what is shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) cut_after: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
fn is_match(role: &Role) -> bool {
    *role == Role::Match
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Line {
    /// Shows a line, which has no line end any more. `found` is where the match stands in it.
    pub(super) fn new(number: u64, bytes: &[u8], role: Role, found: Option<Range<usize>>, encoding: Encoding) -> Self {
        let window = window(bytes, found.as_ref());
        let column = found.map(|found| {
            let before = &bytes[..found.start.min(bytes.len())];
            show(before, encoding).chars().count() as u64 + 1
        });
        Self {
            line: number,
            column,
            text: show(&bytes[window.clone()], encoding).into_owned(),
            role,
            cut_before: window.start as u64,
            cut_after: (bytes.len() - window.end) as u64,
        }
    }
}

/// UTF-16 was transcoded before it was searched.
fn show(bytes: &[u8], encoding: Encoding) -> std::borrow::Cow<'_, str> {
    let encoding = if encoding.is_utf16() { Encoding::Utf8 } else { encoding };
    decode::decode(bytes, encoding)
}

/// The part of a line to show. Its edges do not cut a character.
fn window(bytes: &[u8], found: Option<&Range<usize>>) -> Range<usize> {
    if bytes.len() <= WHOLE {
        return 0..bytes.len();
    }
    let wanted = found.map_or(0, |found| found.start.saturating_sub(BEFORE));
    let start = edge(bytes, wanted.min(bytes.len() - WHOLE));
    start..edge(bytes, start + WHOLE)
}

/// The beginning of the character that a position is in; bytes that are no character are each for themselves.
fn edge(bytes: &[u8], at: usize) -> usize {
    if at >= bytes.len() {
        return bytes.len();
    }
    (0..4)
        .filter_map(|back| at.checked_sub(back))
        .find(|&start| bytes[start] & 0xc0 != 0x80)
        .filter(|&start| {
            start == at
                || std::str::from_utf8(&bytes[start..(start + 4).min(bytes.len())]).map_or_else(|error| error.valid_up_to() > 0, |_| true)
        })
        .unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_shown_round_the_match() {
        let text = format!("{}NEEDLE{}", "a".repeat(3000), "b".repeat(3000));
        let line = Line::new(1, text.as_bytes(), Role::Match, Some(3000..3006), Encoding::Utf8);
        assert!(line.text.contains("NEEDLE"));
        assert_eq!((line.column, line.cut_before, line.cut_after, line.text.len()), (Some(3001), 2850, 2656, 500));
        let line = Line::new(1, text.as_bytes(), Role::Context, None, Encoding::Utf8);
        assert_eq!((line.column, line.cut_before, line.text.len()), (None, 0, 500));
    }

    #[test]
    fn characters_are_not_cut() {
        let text = "日".repeat(1000);
        for at in [600, 601, 602, 2999] {
            let line = Line::new(1, text.as_bytes(), Role::Match, Some(at..at + 1), Encoding::Utf8);
            assert!(line.text.chars().all(|c| c == '日'), "{at} {}", line.text);
        }
        let line = Line::new(1, b"caf\xe9 x", Role::Match, Some(5..6), Encoding::Bytes);
        assert_eq!((line.text.as_str(), line.column), ("caf\\xe9 x", Some(9)));
    }
}
