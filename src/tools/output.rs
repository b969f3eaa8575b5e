//! The output of a program, as a model sees it.
//!
//! All of it while it fits; else head, tail and the lines that look like failures, in their order, with one line for each gap
//! that counts what is left out. Escape sequences and redraws are gone, bytes that are not text are escaped. It never drops anything
//! without counting it, and never holds more than a small multiple of what was captured.

use crate::clip::capture::{Captured, Extent, Stream};
use crate::clip::{self, ansi, counted, failure};
use crate::workspace::escape::escape;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Output as text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The text. Ends without a line end where the output does.
    pub text: String,
    /// What was left out; `None`: nothing.
    pub cut: Option<Cut>,
    /// Some bytes were not text, so that all of it is in the reversible escape of [`crate::workspace::escape`].
    pub escaped: bool,
}

/// How much of an output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cut {
    /// Lines of which the end is shown.
    pub shown_lines: u64,
    /// All lines.
    pub total_lines: u64,
    /// Bytes of the output that are shown. Escape sequences and overwritten redraws count as shown.
    pub shown_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
    /// Lines that look like failures and are not shown, as far as they were kept.
    pub hidden_failures: u64,
}

/// Shows the output of one stream, or of both in order of arrival, in at most `max_bytes` bytes of text.
pub fn show(captured: &Captured, stream: Option<Stream>, max_bytes: usize) -> Shown {
    let page = Page::new(captured, stream, max_bytes);
    let whole = page.gaps.is_empty() && page.lines.iter().map(|line| line.cost()).sum::<usize>() <= max_bytes.saturating_add(1);
    let mut chosen = vec![whole; page.lines.len()];
    let mut hidden_failures = 0;
    if !whole {
        hidden_failures = page.choose(&mut chosen, max_bytes);
    }
    page.render(&chosen, whole, hidden_failures)
}

/// A line of the output, in `Page::bytes`.
#[derive(Clone, Copy)]
struct Line {
    start: u32,
    end: u32,
    /// Bytes of its text when shown whole.
    len: u32,
    ended: bool,
}

impl Line {
    fn cost(&self) -> usize {
        self.len as usize + 1
    }
}

struct Page {
    bytes: Vec<u8>,
    lines: Vec<Line>,
    /// What was dropped before the line of this index, in order.
    gaps: Vec<(usize, Extent)>,
    total: Extent,
    escaped: bool,
    /// Longer lines are shown in part when not everything fits.
    longest: usize,
}

/// What a gap's own line takes, about.
const MARKER: usize = 56;
/// The longest line that is shown whole when not everything fits.
const LINE: usize = 2000;

impl Page {
    fn new(captured: &Captured, stream: Option<Stream>, max_bytes: usize) -> Self {
        let mut page =
            Self { bytes: Vec::new(), lines: Vec::new(), gaps: Vec::new(), total: Extent::default(), escaped: false, longest: 0 };
        let mut start = 0;
        for chunk in &captured.chunks {
            let dropped = stream.map_or_else(|| chunk.dropped_before.both(), |stream| chunk.dropped_before.of(stream));
            if !dropped.is_empty() {
                start = page.end_line(start, false);
                match page.gaps.last_mut() {
                    Some((at, extent)) if *at == page.lines.len() => *extent += dropped,
                    _ => page.gaps.push((page.lines.len(), dropped)),
                }
                page.total += dropped;
            }
            if stream.is_some_and(|stream| stream != chunk.stream) {
                continue;
            }
            page.total += Extent::of(&chunk.bytes);
            for piece in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
                page.bytes.extend_from_slice(piece);
                if piece.ends_with(b"\n") {
                    start = page.end_line(start, true);
                }
            }
        }
        page.end_line(start, false);
        page.escaped = page.lines.iter().any(|line| !is_text(&ansi::plain(page.raw(line))));
        for index in 0..page.lines.len() {
            page.lines[index].len = u32::try_from(page.text(index).len()).unwrap_or(u32::MAX);
        }
        page.longest = (max_bytes / 8).min(LINE).max((max_bytes / page.lines.len().max(1)).saturating_sub(4 * MARKER));
        page
    }

    fn end_line(&mut self, start: usize, ended: bool) -> usize {
        let end = self.bytes.len() - usize::from(ended);
        if ended || end > start {
            // The capture is bounded far below 4 GiB.
            let at = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            self.lines.push(Line { start: at(start), end: at(end), len: 0, ended });
        }
        self.bytes.len()
    }

    fn raw(&self, line: &Line) -> &[u8] {
        &self.bytes[line.start as usize..line.end as usize]
    }

    /// The text of a line, whole.
    fn text(&self, index: usize) -> String {
        let plain = ansi::plain(self.raw(&self.lines[index]));
        if self.escaped {
            let parts: Vec<String> = plain.split(|byte| *byte == b'\t').map(escape).collect();
            return parts.join("\t");
        }
        String::from_utf8_lossy(&plain).into_owned()
    }

    /// What a line takes when it is shown, in part if it is long.
    fn cost(&self, index: usize) -> usize {
        self.lines[index].cost().min(self.longest + MARKER)
    }

    /// Chooses the lines to show; returns how many lines that look like failures are left out.
    fn choose(&self, chosen: &mut [bool], max_bytes: usize) -> u64 {
        let room = max_bytes.saturating_sub(2 * MARKER);
        let mut used = self.fill(chosen, 0..chosen.len(), room / 5);
        used += self.fill(chosen, (0..chosen.len()).rev(), room * 3 / 10);
        let failures = self.failures();
        for &(index, grade, _) in &failures {
            if used >= room {
                break;
            }
            used += self.add(chosen, index, grade, room - used);
        }
        // What is left shows more of the end, and then of the beginning.
        used += self.fill(chosen, (0..chosen.len()).rev(), (room - used.min(room)) * 2 / 3);
        self.fill(chosen, 0..chosen.len(), room - used.min(room));
        self.close_small_gaps(chosen);
        failures.iter().filter(|(index, _, _)| !chosen[*index]).count() as u64
    }

    /// Chooses lines in this order until the room is used up; returns what was used.
    fn fill(&self, chosen: &mut [bool], order: impl Iterator<Item = usize>, room: usize) -> usize {
        let mut used = 0;
        for index in order {
            if chosen[index] {
                continue;
            }
            let cost = self.cost(index);
            if used + cost > room {
                break;
            }
            used += cost;
            chosen[index] = true;
        }
        used
    }

    /// Chooses a line that looks like a failure with what belongs to it, or alone where there is no room for that; returns what was used.
    fn add(&self, chosen: &mut [bool], index: usize, grade: failure::Grade, room: usize) -> usize {
        let after = (index + 1..self.lines.len()).take(grade.after).take_while(|at| !self.is_gap(*at) && self.lines[*at].len > 0);
        let before = (0..index).rev().take(grade.before).take_while(|at| !self.is_gap(at + 1) && self.lines[*at].len > 0);
        let block: Vec<usize> = std::iter::once(index).chain(after).chain(before).collect();
        for block in [&block[..], &block[..1]] {
            let cost: usize = block.iter().filter(|at| !chosen[**at]).map(|at| self.cost(*at)).sum();
            if cost == 0 {
                return 0;
            }
            if cost + MARKER <= room {
                for at in block {
                    chosen[*at] = true;
                }
                return cost + MARKER;
            }
        }
        0
    }

    fn is_gap(&self, index: usize) -> bool {
        self.gaps.binary_search_by_key(&index, |(at, _)| *at).is_ok()
    }

    /// All lines that look like failures, the ones to show first first: by weight, and of one weight the first before the last
    /// before the others; a shape that was there before comes after all others.
    fn failures(&self) -> Vec<(usize, failure::Grade, u8)> {
        let mut found = Vec::new();
        let mut shapes: HashMap<u64, u8> = HashMap::new();
        let mut at = 0;
        for hint in failure::hints(&self.bytes) {
            let hint = u32::try_from(hint).unwrap_or(u32::MAX);
            at += self.lines[at..].partition_point(|line| line.end < hint || (line.end == hint && line.ended && line.start < line.end));
            let Some(line) = self.lines.get(at) else { break };
            if line.start > hint {
                continue;
            }
            let plain = ansi::plain(self.raw(line));
            if let Some(grade) = failure::grade(&plain) {
                let seen = shapes.entry(failure::shape(&plain)).or_default();
                found.push((at, grade, *seen));
                *seen = seen.saturating_add(1);
            }
            at += 1;
        }
        let mut last_of_weight = [usize::MAX; 16];
        let mut rank_of_weight = [0usize; 16];
        for (order, (_, grade, seen)) in found.iter().enumerate() {
            if *seen == 0 {
                last_of_weight[usize::from(grade.weight & 15)] = order;
            }
        }
        let mut ranked: Vec<_> = found
            .iter()
            .enumerate()
            .map(|(order, entry)| {
                let weight = usize::from(entry.1.weight & 15);
                let mut rank = rank_of_weight[weight];
                rank_of_weight[weight] += 1;
                if rank > 0 && last_of_weight[weight] == order {
                    rank = 1;
                } else if rank > 0 {
                    rank += 1;
                }
                ((entry.2.min(3), Reverse(entry.1.weight), rank), *entry)
            })
            .collect();
        ranked.sort_by_key(|(key, _)| *key);
        ranked.into_iter().map(|(_, entry)| entry).collect()
    }

    /// A gap whose own line would be as long as what it hides is none.
    fn close_small_gaps(&self, chosen: &mut [bool]) {
        let mut at = 0;
        while at < chosen.len() {
            if chosen[at] {
                at += 1;
                continue;
            }
            let end = (at..chosen.len()).find(|index| chosen[*index]).unwrap_or(chosen.len());
            let cost: usize = self.lines[at..end].iter().map(Line::cost).take(MARKER + 1).sum();
            if cost <= MARKER / 2 && !(at..=end).any(|index| self.is_gap(index)) {
                chosen[at..end].fill(true);
            }
            at = end;
        }
    }

    fn render(&self, chosen: &[bool], whole: bool, hidden_failures: u64) -> Shown {
        let mut text = String::new();
        let mut hidden = Extent::default();
        let mut gap = Extent::default();
        let mut gaps = self.gaps.iter().peekable();
        let mut shown_lines = 0;
        for (index, (line, chosen)) in self.lines.iter().zip(chosen).enumerate() {
            while let Some((_, dropped)) = gaps.next_if(|(at, _)| *at == index) {
                gap += *dropped;
            }
            if !chosen {
                gap += Extent { bytes: u64::from(line.end - line.start) + u64::from(line.ended), lines: u64::from(line.ended) };
                continue;
            }
            mark(&mut text, &mut gap, &mut hidden);
            let last_open = !line.ended && index + 1 == self.lines.len();
            shown_lines += u64::from(line.ended || last_open);
            let line_text = self.text(index);
            if whole || line_text.len() <= self.longest + MARKER {
                text.push_str(&line_text);
            } else {
                hidden.bytes += self.push_long(&mut text, &line_text);
            }
            if line.ended {
                text.push('\n');
            }
        }
        for (_, dropped) in gaps {
            gap += *dropped;
        }
        mark(&mut text, &mut gap, &mut hidden);
        let last_open = self.lines.last().is_some_and(|line| !line.ended);
        let total_lines = self.total.lines + u64::from(last_open);
        let cut = (!hidden.is_empty()).then_some(Cut {
            shown_lines,
            total_lines,
            shown_bytes: self.total.bytes.saturating_sub(hidden.bytes),
            total_bytes: self.total.bytes,
            hidden_failures,
        });
        Shown { text, cut, escaped: self.escaped }
    }

    /// Shows a part of a long line: round what looks like a failure, else its two ends. Returns the bytes left out.
    fn push_long(&self, text: &mut String, line: &str) -> u64 {
        let hint = failure::hints(line.as_bytes()).next();
        if let Some(hint) = hint.filter(|hint| *hint > self.longest / 2 && *hint < line.len() - self.longest / 4) {
            let window = clip::window(line, hint..hint, self.longest);
            push_cut(text, window.before);
            text.push_str(window.text);
            push_cut(text, window.after);
            return (window.before + window.after) as u64;
        }
        match clip::head_and_tail(line, self.longest) {
            Some((head, cut, tail)) => {
                text.push_str(head);
                push_cut(text, cut);
                text.push_str(tail);
                cut as u64
            }
            None => {
                text.push_str(line);
                0
            }
        }
    }
}

fn push_cut(text: &mut String, bytes: usize) {
    if bytes > 0 {
        text.push_str(&format!("[… {} of this line …]", counted(bytes as u64, "byte")));
    }
}

/// Writes a gap's line, if there is a gap.
fn mark(text: &mut String, gap: &mut Extent, hidden: &mut Extent) {
    if gap.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let bytes = counted(gap.bytes, "byte");
    if gap.lines > 0 {
        text.push_str(&format!("[… {}, {bytes} not shown …]\n", counted(gap.lines, "line")));
    } else {
        text.push_str(&format!("[… {bytes} not shown …]\n"));
    }
    *hidden += *gap;
    *gap = Extent::default();
}

/// Whether bytes can be shown as they are: UTF-8 without control characters but tabs.
fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| !text.chars().any(|c| c.is_control() && c != '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clip::capture::{Collector, Keep};
    use crate::workspace::escape::unescape;
    use proptest::prelude::*;

    fn captured(pieces: &[(Stream, &[u8])]) -> Captured {
        let mut collector = Collector::default();
        for (stream, bytes) in pieces {
            collector.push(*stream, bytes);
        }
        collector.finish()
    }

    fn of(bytes: &[u8]) -> Captured {
        captured(&[(Stream::Stdout, bytes)])
    }

    #[test]
    fn what_fits_is_whole_and_says_nothing() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"a\n", "a\n"),
            (b"a\n\nb", "a\n\nb"),
            (b"\x1b[31mred\x1b[0m", "red"),
            (b"\r1%\r2%\r3%\n", "3%\n"),
            (b"dos\r\nlines\r\n", "dos\nlines\n"),
            (b"a\tb \\n \\\\d\n", "a\tb \\n \\\\d\n"),
            (b"caf\xe9\n\\x41\tz\n", "caf\\xe9\n\\\\x41\tz\n"),
            (b"nul\0\x07\n", "nul\\x00\\x07\n"),
        ] {
            let shown = show(&of(bytes), None, 10_000);
            assert_eq!((shown.text.as_str(), shown.cut), (text, None));
        }
        let exact = "x".repeat(99) + "\n";
        assert_eq!(show(&of(exact.as_bytes()), None, 99).cut, None);
        assert_eq!(show(&of(exact.as_bytes()), None, 100).cut, None);
        assert!(show(&of(exact.as_bytes()), None, 98).cut.is_some());
    }

    #[test]
    fn streams_are_kept_apart_and_together() {
        let captured = captured(&[(Stream::Stdout, b"a"), (Stream::Stderr, b"b"), (Stream::Stdout, b"c\n"), (Stream::Stderr, b"d\n")]);
        assert_eq!(show(&captured, None, 1000).text, "abc\nd\n");
        assert_eq!(show(&captured, Some(Stream::Stdout), 1000).text, "ac\n");
        assert_eq!(show(&captured, Some(Stream::Stderr), 1000).text, "bd\n");
    }

    #[test]
    fn the_failure_at_the_end_of_a_long_output_is_seen() {
        let mut text: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
        text.push_str("REAL-ERROR\n");
        let shown = show(&of(text.as_bytes()), None, 4096);
        assert!(shown.text.starts_with("1\n2\n") && shown.text.ends_with("\n100000\nREAL-ERROR\n"), "{}", shown.text);
        assert!(shown.text.len() <= 4096);
        let cut = shown.cut.unwrap();
        assert_eq!((cut.total_lines, cut.total_bytes), (100_001, text.len() as u64));
        assert_eq!(cut.shown_lines as usize, shown.text.lines().filter(|line| !line.starts_with("[…")).count());
        assert_eq!(shown.text.lines().filter(|line| line.starts_with("[…")).count(), 1);
        let rest = format!(
            "[… {}, {} not shown …]",
            counted(cut.total_lines - cut.shown_lines, "line"),
            counted(cut.total_bytes - cut.shown_bytes, "byte")
        );
        assert!(shown.text.contains(&rest), "{rest}");
    }

    #[test]
    fn the_failure_in_the_middle_is_seen_with_its_place() {
        let mut lines: Vec<String> = (0..3000).map(|n| format!("   Compiling crate-{n} v0.1.0")).collect();
        lines.insert(
            1500,
            "error[E0308]: mismatched types\n  --> src/a.rs:3:5\n   |\n3  |     1\n   |     ^ expected `bool`, found integer\n".into(),
        );
        let shown = show(&of(lines.join("\n").as_bytes()), None, 2000);
        assert!(shown.text.contains("error[E0308]: mismatched types\n  --> src/a.rs:3:5\n"), "{}", shown.text);
        assert!(shown.text.contains("expected `bool`"));
        assert_eq!(shown.text.matches("not shown …]").count(), 2);
    }

    #[test]
    fn one_error_among_many_repeats_is_seen() {
        let mut text = String::new();
        for n in 0..4000 {
            text.push_str(&format!("error: retry {n} failed\n"));
            if n == 2000 {
                text.push_str("fatal: could not read Username for 'https://x'\n");
            }
        }
        let shown = show(&of(text.as_bytes()), None, 2000);
        assert!(shown.text.contains("fatal: could not read"), "{}", shown.text);
        assert!(shown.cut.unwrap().hidden_failures > 3000);
    }

    #[test]
    fn a_long_line_is_windowed() {
        let mut line = vec![b'a'; 300_000];
        let shown = show(&of(&line), None, 8000);
        assert!(shown.text.len() <= 8000 && shown.text.len() > 7000, "{}", shown.text.len());
        line.splice(150_000..150_000, *b" fatal error here ");
        let shown = show(&of(&line), None, 8000);
        assert!(shown.text.contains("fatal error here"));
        assert!(shown.text.contains("bytes of this line …]"));
        let mut collector = Collector::default();
        for _ in 0..50 {
            collector.push(Stream::Stdout, &vec![b'a'; 1 << 20]);
        }
        let shown = show(&collector.finish(), None, 8000);
        let cut = shown.cut.unwrap();
        assert!(shown.text.len() <= 8000);
        assert_eq!((cut.total_bytes, cut.total_lines), (50 << 20, 1));
    }

    #[test]
    fn a_flood_is_shown_in_bounded_text() {
        let mut collector = Collector::new(Keep::default());
        for _ in 0..200 {
            collector.push(Stream::Stdout, &b"y\n".repeat(32 << 10));
        }
        let shown = show(&collector.finish(), None, 8000);
        assert!(shown.text.len() <= 8000);
        assert_eq!(shown.cut.unwrap().total_lines, 200 * (32 << 10));
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn any_bytes_are_shown_within_the_budget_and_counted(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(0x1b), Just(b'e')], 0..3000),
            max in 200usize..2500,
        ) {
            let captured = of(&bytes);
            let shown = show(&captured, None, max);
            prop_assert!(shown.text.len() <= max + 1, "{} > {max}", shown.text.len());
            prop_assert!(!shown.text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
            if let Some(cut) = shown.cut {
                prop_assert_eq!(cut.total_bytes, bytes.len() as u64);
                prop_assert!(cut.shown_lines <= cut.total_lines);
            }
        }

        #[test]
        fn what_is_escaped_comes_back(lines in prop::collection::vec(prop::collection::vec(prop_oneof![Just(b'\\'), Just(b'x'), Just(b'4'), Just(b'1'), Just(b'\t'), Just(0xffu8), Just(0x01), Just(b'a')], 1..12), 1..6)) {
            let bytes = lines.join(&b'\n');
            let shown = show(&of(&bytes), None, 100_000);
            let back = if shown.escaped { unescape(&shown.text) } else { shown.text.into_bytes() };
            prop_assert_eq!(back, bytes);
        }
    }
}
