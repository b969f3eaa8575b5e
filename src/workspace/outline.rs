//! A coarse picture of the lines of a content, small enough to be remembered, by which it can be said *where* another content differs.
//!
//! Never decides *whether* two contents differ: that is the hash's to say.

use super::decode;
use serde::{Deserialize, Serialize};

/// How many sums are kept; a longer content has one sum for two, four, eight … lines.
const MOST: usize = 1024;

/// The sums of the lines of a content, each of a block of `block` lines; the last block may be shorter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    lines: u64,
    block: u64,
    sums: Vec<u32>,
}

/// Where a content differs from an older one. A range whose last line is before its first one is empty: there the lines
/// are only gone, or only new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first line that differs, from 1; the same in both contents.
    pub first_line: u64,
    /// The last line that differs, in the content as it is now.
    pub last_line: u64,
    /// The last line that differs, in the older content.
    pub was_last_line: u64,
}

impl Outline {
    /// The outline of a whole content.
    pub fn of(bytes: &[u8]) -> Self {
        let encoding = decode::detect_whole(bytes);
        let plain = decode::to_plain(bytes.strip_prefix(encoding.bom()).unwrap_or(bytes), encoding);
        let mut outliner = Outliner::default();
        for line in decode::lines(&plain) {
            outliner.whole_line(line.whole(&plain));
        }
        outliner.finish()
    }

    /// Where `now` differs from this, to a block exactly. `None`: the lines are the same, and what differs is none of them (a byte
    /// order mark, the encoding).
    pub fn change(&self, now: &Self) -> Option<Change> {
        let (mut was, mut now) = (self.clone(), now.clone());
        while was.block != now.block {
            if was.block < now.block { was.halve() } else { now.halve() }
        }
        let same = was.sums.iter().zip(&now.sums).take_while(|(one, other)| one == other).count();
        if same == was.sums.len() && same == now.sums.len() && was.lines == now.lines {
            return None;
        }
        // Blocks of several lines stand at the same lines from the end only where nothing was put in or taken out.
        let aligned = was.block == 1 || was.lines == now.lines;
        let shorter = was.sums.len().min(now.sums.len());
        let ends = was.sums.iter().rev().zip(now.sums.iter().rev()).take(shorter - same);
        let tail = if aligned { ends.take_while(|(one, other)| one == other).count() } else { 0 };
        let last = |outline: &Self| ((outline.sums.len() - tail) as u64).saturating_mul(outline.block).min(outline.lines);
        Some(Change {
            first_line: (same as u64).saturating_mul(was.block).saturating_add(1),
            last_line: last(&now),
            was_last_line: last(&was),
        })
    }

    fn halve(&mut self) {
        self.sums = self.sums.chunks(2).map(|pair| if let [one, other] = pair { join(*one, *other) } else { pair[0] }).collect();
        self.block = self.block.saturating_mul(2);
    }
}

impl Change {
    /// The change as part of a sentence: `lines 3 to 5 differ`.
    pub fn in_words(&self) -> String {
        let lines = |last: u64| {
            if last == self.first_line { format!("line {last}") } else { format!("lines {} to {last}", self.first_line) }
        };
        let (is, was) = (self.last_line, self.was_last_line);
        if is < self.first_line {
            let place = if self.first_line == 1 { "at the beginning".into() } else { format!("after line {}", self.first_line - 1) };
            let gone = was.saturating_sub(self.first_line - 1);
            return format!("{gone} line{} {place} {} gone", if gone == 1 { "" } else { "s" }, if gone == 1 { "is" } else { "are" });
        }
        let (one, verb) = (is == self.first_line, if was < self.first_line { "new" } else { "differ" });
        match (verb, one) {
            ("new", true) => format!("{} is new", lines(is)),
            ("new", false) => format!("{} are new", lines(is)),
            (_, one) => {
                let verb = if one { "differs" } else { "differ" };
                let before = if is == was { String::new() } else { format!(" ({} before)", lines(was)) };
                format!("{} {verb}{before}", lines(is))
            }
        }
    }
}

/// Two sums as one.
fn join(one: u32, other: u32) -> u32 {
    (one.rotate_left(5) ^ other).wrapping_mul(0x9e37_79b1)
}

/// Makes an [`Outline`] of text that comes in pieces; where they are cut does not matter.
#[derive(Clone, Debug, Default)]
pub struct Outliner {
    lines: u64,
    sums: Vec<u32>,
    /// The sums of the block that is not yet full, joined in pairs: each stands for twice as many lines as the next.
    open: Vec<(u64, u32)>,
    /// Lines a block, less one, so that a new one has one.
    more: u64,
    sum: Sum,
}

impl Outliner {
    /// More of the current line.
    pub fn feed(&mut self, text: &[u8]) {
        self.sum.feed(text);
    }

    /// The line ends so.
    pub fn end_line(&mut self, eol: &[u8]) {
        self.sum.feed(eol);
        let sum = std::mem::take(&mut self.sum).finish();
        self.add(sum);
    }

    /// A whole line with its end: the same as feeding it and ending it, and faster. The line before has ended.
    pub fn whole_line(&mut self, line: &[u8]) {
        self.add(Sum::of(line));
    }

    fn add(&mut self, mut sum: u32) {
        self.lines += 1;
        let mut size = 1;
        while let Some((_, before)) = self.open.pop_if(|(lines, _)| *lines == size) {
            sum = join(before, sum);
            size *= 2;
        }
        if size <= self.more {
            self.open.push((size, sum));
            return;
        }
        self.sums.push(sum);
        if self.sums.len() > MOST {
            // One more than is kept: an odd one, which begins the next block.
            let odd = self.sums.pop();
            self.sums = self.sums.chunks(2).map(|pair| if let [one, other] = pair { join(*one, *other) } else { pair[0] }).collect();
            self.open.extend(odd.map(|sum| (size, sum)));
            self.more = size * 2 - 1;
        }
    }

    /// The outline of all that was fed.
    pub fn finish(mut self) -> Outline {
        // What is left of a block is joined as a longer one would be, an odd sum standing for itself.
        let rest = self.open.into_iter().rev().map(|(_, sum)| sum).reduce(|later, before| join(before, later));
        self.sums.extend(rest);
        Outline { lines: self.lines, block: self.more + 1, sums: self.sums }
    }
}

/// A running sum of bytes, eight at a time.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    state: u64,
    rest: u64,
    filled: u32,
    length: u64,
}

impl Sum {
    /// The sum of bytes that are all there.
    fn of(bytes: &[u8]) -> u32 {
        let mut sum = Self { length: bytes.len() as u64, ..Self::default() };
        let (words, tail) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| sum.mix(u64::from_le_bytes(*word)));
        for (at, byte) in tail.iter().enumerate() {
            sum.rest |= u64::from(*byte) << (8 * at);
        }
        sum.finish()
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        while self.filled > 0 || bytes.len() < 8 {
            let [byte, more @ ..] = bytes else { return };
            self.rest |= u64::from(*byte) << (8 * self.filled);
            bytes = more;
            self.filled += 1;
            if self.filled == 8 {
                self.mix(self.rest);
                (self.rest, self.filled) = (0, 0);
            }
        }
        let (words, tail) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        for byte in tail {
            self.rest |= u64::from(*byte) << (8 * self.filled);
            self.filled += 1;
        }
    }

    fn mix(&mut self, word: u64) {
        self.state = (self.state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.state ^= self.state >> 29;
    }

    fn finish(mut self) -> u32 {
        self.mix(self.rest);
        self.mix(self.length);
        (self.state >> 32) as u32
    }
}

/// As text: lines, lines a block, and the sums in hex.
impl Serialize for Outline {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = format!("{} {} ", self.lines, self.block);
        text.reserve(self.sums.len() * 8);
        for sum in &self.sums {
            text.extend((0..8).rev().map(|digit| char::from(b"0123456789abcdef"[(sum >> (4 * digit)) as usize & 15])));
        }
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for Outline {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let read = || {
            let mut parts = text.split(' ');
            let (lines, block, sums) = (parts.next()?.parse().ok()?, parts.next()?.parse::<u64>().ok()?, parts.next()?.as_bytes());
            let whole = sums.len().is_multiple_of(8) && sums.len() / 8 <= MOST + 1;
            if parts.next().is_some() || !block.is_power_of_two() || !whole {
                return None;
            }
            let sum = |hex: &[u8]| u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok();
            let sums: Vec<u32> = sums.chunks(8).map(sum).collect::<Option<_>>()?;
            // As many as the lines need, so that nothing that is counted from them is out of bounds.
            (u64::try_from(sums.len()).ok()? == u64::div_ceil(lines, block)).then_some(Self { lines, block, sums })
        };
        read().ok_or_else(|| serde::de::Error::custom("not an outline"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn change(was: &str, now: &str) -> Option<Change> {
        Outline::of(was.as_bytes()).change(&Outline::of(now.as_bytes()))
    }

    #[test]
    fn the_lines_that_differ_are_named() {
        let words = |was: &str, now: &str| change(was, now).unwrap().in_words();
        assert_eq!(words("a\nb\nc\n", "a\nB\nc\n"), "line 2 differs");
        assert_eq!(words("a\nb\nc\nd\n", "a\nB\nC\nX\nd\n"), "lines 2 to 4 differ (lines 2 to 3 before)");
        assert_eq!(words("a\nc\n", "a\nb\nc\n"), "line 2 is new");
        assert_eq!(words("a\n", "x\ny\na\n"), "lines 1 to 2 are new");
        assert_eq!(words("a\nb\nc\n", "a\nc\n"), "1 line after line 1 is gone");
        assert_eq!(words("a\nb\nc\n", "c\n"), "2 lines at the beginning are gone");
        assert_eq!(words("a\nb", "a\nb\n"), "line 2 differs");
        assert_eq!(words("", "a\n"), "line 1 is new");
        assert_eq!(words("a\na\n", "a\na\na\n"), "line 3 is new");
        assert_eq!(change("a\n", "\u{feff}a\n"), None);
    }

    #[test]
    fn a_long_content_has_coarser_sums() {
        let text = |changed: usize, lines: usize| -> String {
            (0..lines).map(|line| if line == changed { "changed\n".into() } else { format!("line {line}\n") }).collect()
        };
        for lines in [MOST - 1, MOST, MOST + 1, 3 * MOST, 12_345, 100_000] {
            let was = Outline::of(text(usize::MAX, lines).as_bytes());
            assert!(was.sums.len() <= MOST + 1 && was.lines == lines as u64);
            let found = was.change(&Outline::of(text(lines / 2, lines).as_bytes())).unwrap();
            let line = lines as u64 / 2 + 1;
            assert!(found.first_line <= line && line <= found.last_line, "{lines}: {found:?}");
            assert!(found.last_line - found.first_line < was.block, "{lines}: {found:?}");
            let sent: Outline = serde_json::from_str(&serde_json::to_string(&was).unwrap()).unwrap();
            assert_eq!(sent, was);
        }
        // One has coarser sums than the other.
        let found = Outline::of(text(5, 100).as_bytes()).change(&Outline::of(text(usize::MAX, 50_000).as_bytes())).unwrap();
        assert!(found.first_line <= 6 && found.last_line == 50_000 && found.was_last_line == 100, "{found:?}");
        for text in ["\"3 3 \"", "\"1 1 zzzzzzzz\"", "\"9 1 00000000\"", "\"\"", "\"1 0 \""] {
            assert!(serde_json::from_str::<Outline>(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn pieces_do_not_matter(text in "[ab]{0,40}", cuts in prop::collection::vec(0usize..40, 0..4)) {
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let mut outliner = Outliner::default();
            cuts.windows(2).for_each(|pair| outliner.feed(&text.as_bytes()[pair[0]..pair[1]]));
            outliner.end_line(b"\n");
            prop_assert_eq!(outliner.finish(), Outline::of(format!("{text}\n").as_bytes()));
        }

        /// What is outside of the range that is named is the same in both.
        #[test]
        fn only_what_is_named_differs(was in prop::collection::vec("[ab]{0,2}", 0..12), now in prop::collection::vec("[ab]{0,2}", 0..12)) {
            let text = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            match change(&text(&was), &text(&now)) {
                None => prop_assert_eq!(was, now),
                Some(Change { first_line, last_line, was_last_line }) => {
                    prop_assert_ne!(&was, &now);
                    let first = usize::try_from(first_line).unwrap() - 1;
                    prop_assert_eq!(&was[..first], &now[..first]);
                    prop_assert_eq!(&was[usize::try_from(was_last_line).unwrap()..], &now[usize::try_from(last_line).unwrap()..]);
                }
            }
        }
    }
}
