//! The hits that are kept: the first in order, however many there are, and all of them counted.

use super::line::{Line, Role};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Where a file stands in the order of results.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// 0, or newest first.
    pub(super) rank: u128,
    /// The path from the base.
    pub(super) path: Vec<u8>,
}

/// What was found in one file.
#[derive(Debug, Default)]
pub(super) struct FileHits {
    /// The lines that are kept, in order.
    pub(super) lines: Vec<Line>,
    /// How many units (matching lines, or 1 for the file) it adds to the list.
    pub(super) units: u64,
    /// Matching lines in all.
    pub(super) count: u64,
    /// The count may be too small: the file was not searched to its end.
    pub(super) partial: bool,
}

/// The hits of all workers.
#[derive(Debug)]
pub(super) struct Kept {
    most: u64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    files: BTreeMap<Key, FileHits>,
    units: u64,
    total: u64,
    matches: u64,
    files_total: u64,
    partial: bool,
}

/// All that was found.
#[derive(Debug)]
pub(super) struct Tally {
    /// The first files, in order.
    pub(super) files: Vec<(Key, FileHits)>,
    /// Units in all.
    pub(super) total: u64,
    /// Matching lines in all.
    pub(super) matches: u64,
    /// Files with a match in all.
    pub(super) files_total: u64,
    /// The numbers may be too small.
    pub(super) partial: bool,
}

impl Kept {
    /// Keeps the first `most` units.
    pub(super) fn new(most: u64) -> Self {
        Self { most, inner: Mutex::default() }
    }

    /// Whether what a file holds could still be among the first.
    pub(super) fn wants(&self, key: &Key) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.units < self.most || inner.files.last_key_value().is_none_or(|(last, _)| key < last)
    }

    /// Takes the hits of a file.
    pub(super) fn add(&self, key: Key, hits: FileHits) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.total += hits.units;
        inner.matches += hits.count;
        inner.files_total += 1;
        inner.partial |= hits.partial;
        inner.units += hits.units;
        inner.files.insert(key, hits);
        while let Some(last) = inner.files.last_entry() {
            let units = last.get().units;
            let rest = inner.units - units;
            if rest < self.most {
                break;
            }
            inner.files.pop_last();
            inner.units = rest;
        }
    }

    /// Notes that something was not searched to its end.
    pub(super) fn cut_short(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).partial = true;
    }

    /// Takes all that was found.
    pub(super) fn take_tally(&self) -> Tally {
        let inner = std::mem::take(&mut *self.inner.lock().unwrap_or_else(PoisonError::into_inner));
        Tally {
            files: inner.files.into_iter().collect(),
            total: inner.total,
            matches: inner.matches,
            files_total: inner.files_total,
            partial: inner.partial,
        }
    }
}

/// The lines of matches `from..to` (counted within the file), with the context that is theirs.
pub(super) fn slice(lines: Vec<Line>, from: u64, to: u64, before: u64, after: u64) -> Vec<Line> {
    let mut numbers = Vec::new();
    let mut seen = 0;
    let mut keep = vec![false; lines.len()];
    for (index, line) in lines.iter().enumerate() {
        if line.role == Role::Match {
            seen += 1;
        }
        if line.role != Role::Context && (from + 1..=to).contains(&seen) {
            keep[index] = true;
            numbers.push(line.line);
        }
    }
    let near = |line: u64| {
        let at = numbers.partition_point(|&number| number < line);
        numbers.get(at).is_some_and(|&next| next - line <= before) || (at > 0 && line - numbers[at - 1] <= after)
    };
    // A match of another page that stands in the context of one of this page is context here.
    lines
        .into_iter()
        .zip(keep)
        .filter_map(|(line, keep)| {
            if keep {
                Some(line)
            } else if near(line.line) {
                Some(Line { role: Role::Context, column: None, ..line })
            } else {
                None
            }
        })
        .collect()
}

/// What a line costs of a budget of bytes.
pub(super) fn cost(line: &Line) -> usize {
    line.text.len() + 12
}

/// Cuts lines to a budget; says how many matches are left when something was cut. With `first`, one match is always left.
pub(super) fn fitting(lines: &mut Vec<Line>, budget: usize, first: bool) -> Option<u64> {
    let mut spent = 0;
    let mut matches = 0;
    for (index, line) in lines.iter().enumerate() {
        spent += cost(line);
        if spent > budget && !(first && matches == 0) {
            // The match that does not fit goes with the context before it.
            lines.truncate(index);
            return Some(matches);
        }
        matches += u64::from(line.role == Role::Match);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::decode::Encoding;

    fn hits(count: u64) -> FileHits {
        FileHits { units: count, count, ..FileHits::default() }
    }

    #[test]
    fn the_first_are_kept_in_whatever_order_they_come() {
        let key = |path: &str| Key { rank: 0, path: path.into() };
        let kept = Kept::new(5);
        for (path, count) in [("c", 3), ("a", 2), ("d", 9), ("b", 1)] {
            if kept.wants(&key(path)) {
                kept.add(key(path), hits(count));
            }
        }
        let tally = kept.take_tally();
        let paths: Vec<Vec<u8>> = tally.files.into_iter().map(|(key, _)| key.path).collect();
        assert_eq!(paths, [b"a", b"b", b"c"]);
    }

    #[test]
    fn a_slice_has_its_own_context() {
        let line = |number, role| Line::new(number, b"x", role, None, Encoding::Utf8);
        let lines = vec![line(1, Role::Context), line(2, Role::Match), line(3, Role::Match), line(4, Role::Context), line(9, Role::Match)];
        let shown = slice(lines, 0, 1, 1, 1);
        assert_eq!(
            shown.iter().map(|line| (line.line, line.role)).collect::<Vec<_>>(),
            [(1, Role::Context), (2, Role::Match), (3, Role::Context)]
        );
    }
}
