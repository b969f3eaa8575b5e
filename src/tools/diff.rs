//! What a change did to a file, by lines: counts and a capped unified diff.
//!
//! Works on bytes, in a bounded time that does not depend on the machine: the same two contents give the same diff.

use crate::workspace::escape;
use serde::Serialize;
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};
use std::fmt::Write as _;

/// Lines of a diff that are shown.
const LINES: usize = 120;

/// Bytes of one line that are shown.
const WIDTH: usize = 400;

/// Lines on both sides together, beyond which the changed middle is taken as replaced whole.
const COMPARED: usize = 20_000;

/// Lines that are shown before and after a change.
const CONTEXT: usize = 3;

/// The difference of two contents.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Diff {
    /// Lines that only the new content has.
    pub added: u64,
    /// Lines that only the old content has.
    pub removed: u64,
    /// Unified hunks with three lines of context, at most [`LINES`] lines; empty when nothing changed.
    pub text: String,
    /// What of it is not shown.
    pub truncation: Option<DiffTruncation>,
}

/// What of a diff is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct DiffTruncation {
    /// Lines shown.
    pub shown_lines: usize,
    /// Lines of the whole diff.
    pub total_lines: usize,
}

/// The lines of a content, each with its line feed.
pub fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut start = 0;
    for at in memchr::memchr_iter(b'\n', bytes) {
        found.push(&bytes[start..=at]);
        start = at + 1;
    }
    if start < bytes.len() {
        found.push(&bytes[start..]);
    }
    found
}

/// How many bytes two contents have in common from the beginning on.
fn same_beginning(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 256;
    let steps = one.chunks_exact(STEP).zip(other.chunks_exact(STEP)).take_while(|(one, other)| one == other).count();
    let same = steps * STEP;
    same + one[same..].iter().zip(&other[same..]).take_while(|(one, other)| one == other).count()
}

/// The same from the end on.
fn same_end(one: &[u8], other: &[u8]) -> usize {
    const STEP: usize = 256;
    let steps = one.rchunks_exact(STEP).zip(other.rchunks_exact(STEP)).take_while(|(one, other)| one == other).count();
    let same = steps * STEP;
    let (one, other) = (&one[..one.len() - same], &other[..other.len() - same]);
    same + one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count()
}

/// Compares two contents by lines.
pub fn unified(old: &[u8], new: &[u8]) -> Diff {
    // What is the same at both ends is not taken apart, but for the lines that are shown round the change.
    let same = &old[..same_beginning(old, new)];
    let begins = memchr::memrchr(b'\n', same).map_or(0, |at| at + 1);
    let head = memchr::memrchr_iter(b'\n', &same[..begins]).nth(CONTEXT + 1).map_or(0, |at| at + 1);
    let same = &old[old.len() - same_end(&old[begins..], &new[begins..])..];
    let tail = memchr::memchr_iter(b'\n', same).nth(CONTEXT + 1).map_or(0, |at| same.len() - at - 1);
    compare(&old[head..old.len() - tail], &new[head..new.len() - tail], memchr::memchr_iter(b'\n', &old[..head]).count())
}

/// The same, of contents that have so many lines in common before them.
fn compare(old: &[u8], new: &[u8], skipped: usize) -> Diff {
    let (old, new) = (lines(old), lines(new));
    let head = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let tail = old[head..].iter().rev().zip(new[head..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (old_middle, new_middle) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
    let middle = if old_middle.is_empty() && new_middle.is_empty() {
        Vec::new()
    } else if old_middle.len() + new_middle.len() > COMPARED {
        vec![DiffOp::Replace { old_index: 0, old_len: old_middle.len(), new_index: 0, new_len: new_middle.len() }]
    } else {
        // The heuristic variant: its work is bounded.
        capture_diff_slices(Algorithm::Myers, old_middle, new_middle)
    };
    if middle.is_empty() {
        return Diff::default();
    }
    let mut ops = vec![DiffOp::Equal { old_index: 0, new_index: 0, len: head }];
    ops.extend(middle.into_iter().map(|op| moved(op, head)));
    ops.push(DiffOp::Equal { old_index: old.len() - tail, new_index: new.len() - tail, len: tail });
    ops.retain(|op| !op.old_range().is_empty() || !op.new_range().is_empty());

    let mut diff = Diff::default();
    let mut out = Vec::new();
    for hunk in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let span = |start: usize, end: usize| match end - start {
            0 => format!("{},0", skipped + start),
            1 => format!("{}", skipped + start + 1),
            len => format!("{},{len}", skipped + start + 1),
        };
        out.push(format!(
            "@@ -{} +{} @@",
            span(first.old_range().start, last.old_range().end),
            span(first.new_range().start, last.new_range().end)
        ));
        for op in &hunk {
            if let DiffOp::Equal { .. } = op {
                old[op.old_range()].iter().for_each(|line| show(&mut out, ' ', line));
                continue;
            }
            old[op.old_range()].iter().for_each(|line| show(&mut out, '-', line));
            new[op.new_range()].iter().for_each(|line| show(&mut out, '+', line));
            diff.removed += op.old_range().len() as u64;
            diff.added += op.new_range().len() as u64;
        }
    }
    if out.len() > LINES {
        diff.truncation = Some(DiffTruncation { shown_lines: LINES, total_lines: out.len() });
        out.truncate(LINES);
    }
    diff.text = out.join("\n");
    diff
}

fn moved(op: DiffOp, by: usize) -> DiffOp {
    match op {
        DiffOp::Equal { old_index, new_index, len } => DiffOp::Equal { old_index: old_index + by, new_index: new_index + by, len },
        DiffOp::Delete { old_index, old_len, new_index } => {
            DiffOp::Delete { old_index: old_index + by, old_len, new_index: new_index + by }
        }
        DiffOp::Insert { old_index, new_index, new_len } => {
            DiffOp::Insert { old_index: old_index + by, new_index: new_index + by, new_len }
        }
        DiffOp::Replace { old_index, old_len, new_index, new_len } => {
            DiffOp::Replace { old_index: old_index + by, old_len, new_index: new_index + by, new_len }
        }
    }
}

fn show(out: &mut Vec<String>, sign: char, line: &[u8]) {
    let (line, ended) = line.strip_suffix(b"\n").map_or((line, false), |line| (line, true));
    let mut text = String::from(sign);
    let cut = line.len() > WIDTH;
    // A tab is content, and stays one.
    let shown = line[..line.len().min(WIDTH)].split(|byte| *byte == b'\t').map(escape::escape).collect::<Vec<_>>().join("\t");
    text.push_str(&shown);
    if cut {
        let _ = write!(text, " …(+{} bytes)", line.len() - WIDTH);
    }
    out.push(text);
    if !ended {
        out.push("\\ No newline at end of file".into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        /// What is left out at both ends is in no diff.
        #[test]
        fn the_ends_that_are_the_same_change_nothing(head in "[ab\n]{0,600}", one in "[ab\n]{0,12}", other in "[ab\n]{0,12}", tail in "[ab\n]{0,600}") {
            let (old, new) = (format!("{head}{one}{tail}"), format!("{head}{other}{tail}"));
            prop_assert_eq!(unified(old.as_bytes(), new.as_bytes()), compare(old.as_bytes(), new.as_bytes(), 0));
        }
    }

    #[test]
    fn hunks_have_the_right_numbers() {
        let old = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let new = b"1\n2\n3\n4\nfive\n6\n7\n8\n9\nten";
        let diff = unified(old, new);
        assert_eq!((diff.added, diff.removed), (2, 1));
        assert_eq!(diff.text, "@@ -2,8 +2,9 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n+ten\n\\ No newline at end of file");
        assert_eq!(unified(b"", b"a\n").text, "@@ -0,0 +1 @@\n+a");
        assert_eq!(unified(b"a\n", b"").text, "@@ -1 +0,0 @@\n-a");
        assert_eq!(unified(old, old), Diff::default());
    }

    #[test]
    fn a_long_diff_says_how_long_it_is() {
        let new: Vec<u8> = (0..500).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let diff = unified(b"", &new);
        assert_eq!(diff.added, 500);
        assert_eq!(diff.truncation, Some(DiffTruncation { shown_lines: LINES, total_lines: 501 }));
        assert_eq!(diff.text.lines().count(), LINES);
    }

    #[test]
    fn the_worst_case_is_bounded() {
        let old: Vec<u8> = (0..9_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let new: Vec<u8> = (0..9_000).rev().flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let start = std::time::Instant::now();
        let diff = unified(&old, &new);
        assert!(diff.added > 0);
        assert!(start.elapsed() < std::time::Duration::from_secs(2), "{:?}", start.elapsed());
    }
}
