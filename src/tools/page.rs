//! Pages of long results: the first of many without holding the many, and what was cut, said exactly.

use serde::Serialize;
use std::collections::BinaryHeap;

/// The text of one result, in bytes, when the call does not say how much it wants.
pub(crate) const BUDGET: usize = 50 * 1024;

/// The same when the call gives its own limit: the person or the model asked for that much.
pub(crate) const LARGE_BUDGET: usize = 512 * 1024;

/// What was cut from a list, and how to get the rest. Absent when nothing was cut.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub(crate) struct Truncation {
    /// How many are in this answer.
    pub(crate) shown: u64,
    /// How many there are.
    pub(crate) total: u64,
    /// Whether `total` is only a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
    /// Why: `limit`, `bytes`, `time` or `max_per_file`.
    pub(crate) by: &'static str,
    /// The `offset` with which the next call goes on; absent when there is nothing to go on to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_offset: Option<u64>,
}

impl Truncation {
    /// The line under a list: `[shown 100 of 340 files; offset 100 shows more]`.
    pub(crate) fn line(&self, what: &str) -> String {
        let total = if self.at_least { format!("at least {}", self.total) } else { self.total.to_string() };
        let why = match self.by {
            "time" => "; time was up before everything was seen",
            "bytes" => "; the text was long",
            "max_per_file" => "; max_per_file left out the rest, a larger one or none shows it",
            _ => "",
        };
        let more = self.next_offset.map(|offset| format!("; offset {offset} shows more")).unwrap_or_default();
        format!("[shown {} of {total} {what}{why}{more}]", self.shown)
    }
}

/// The smallest items of many, in order, and how many there were. Holds at most `most`.
#[derive(Debug)]
pub(crate) struct Smallest<T> {
    most: usize,
    heap: BinaryHeap<T>,
    total: u64,
}

impl<T: Ord> Smallest<T> {
    /// Keeps at most `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, heap: BinaryHeap::new(), total: 0 }
    }

    /// Counts an item without offering it.
    pub(crate) fn count(&mut self) {
        self.total += 1;
    }

    /// The largest item that is kept, when there is no room for more: what is not smaller need not be made.
    pub(crate) fn bound(&self) -> Option<&T> {
        if self.heap.len() < self.most { None } else { self.heap.peek() }
    }

    /// Counts and offers an item.
    pub(crate) fn push(&mut self, item: T) {
        self.total += 1;
        self.keep(item);
    }

    fn keep(&mut self, item: T) {
        if self.heap.len() < self.most {
            self.heap.push(item);
        } else if let Some(mut top) = self.heap.peek_mut()
            && item < *top
        {
            *top = item;
        }
    }

    /// Takes over what another one holds.
    pub(crate) fn merge(&mut self, other: Self) {
        self.total += other.total;
        other.heap.into_iter().for_each(|item| self.keep(item));
    }

    /// What is kept, smallest first, and how many there were.
    pub(crate) fn into_sorted(self) -> (Vec<T>, u64) {
        (self.heap.into_sorted_vec(), self.total)
    }
}

/// Cuts a page out of the sorted head of a list: what stands at `offset`, at most `limit`, within `budget` bytes as `cost`
/// counts them. At least one item is shown. `total` and `finished` are of the whole list.
pub(crate) fn page<T>(
    sorted: Vec<T>,
    (offset, limit): (usize, usize),
    budget: usize,
    (total, finished): (u64, bool),
    cost: impl Fn(&T) -> usize,
) -> (Vec<T>, Option<Truncation>) {
    let mut spent = 0;
    let mut by = "limit";
    let mut shown = Vec::new();
    for item in sorted.into_iter().skip(offset).take(limit) {
        spent += cost(&item);
        if spent > budget && !shown.is_empty() {
            by = "bytes";
            break;
        }
        shown.push(item);
    }
    let end = (offset as u64).saturating_add(shown.len() as u64);
    let truncation = (end < total || offset > 0 || !finished).then(|| Truncation {
        shown: shown.len() as u64,
        total,
        at_least: !finished,
        by: if end >= total && !finished { "time" } else { by },
        next_offset: (end < total && !shown.is_empty()).then_some(end),
    });
    (shown, truncation)
}

/// A number and its noun: `1 file`, `2 files`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_are_kept_and_all_are_counted() {
        let mut a = Smallest::new(3);
        let mut b = Smallest::new(3);
        for n in [9, 2, 7, 4] {
            a.push(n);
        }
        for n in [1, 8, 3] {
            b.push(n);
        }
        assert_eq!(a.bound(), Some(&7));
        a.merge(b);
        assert_eq!(a.into_sorted(), (vec![1, 2, 3], 7));
    }

    #[test]
    fn nothing_is_called_cut_at_the_exact_limit() {
        let (shown, cut) = page(vec![1, 2, 3], (0, 3), 100, (3, true), |_| 1);
        assert_eq!((shown.len(), cut), (3, None));
        let (shown, cut) = page(vec![1, 2, 3], (0, 3), 100, (4, true), |_| 1);
        let cut = cut.unwrap();
        assert_eq!((shown.len(), cut.next_offset, cut.line("files")), (3, Some(3), "[shown 3 of 4 files; offset 3 shows more]".into()));
        let (shown, cut) = page(vec![1, 2, 3], (0, 3), 2, (3, true), |_| 1);
        assert_eq!((shown.len(), cut.unwrap().by), (2, "bytes"));
        let (_, cut) = page(vec![1], (0, 3), 2, (1, false), |_| 1);
        let cut = cut.unwrap();
        assert_eq!((cut.by, cut.at_least, cut.next_offset), ("time", true, None));
    }
}
