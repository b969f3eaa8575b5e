//! Honest truncation: what was cut is always said, with exact counts.
//!
//! Nothing here ever cuts inside a character, drops bytes without counting them, or allocates in proportion to what it drops.
//! [`capture`] bounds the output of a program while it arrives, [`failure`] judges which lines look like failures,
//! [`ansi`] removes terminal control from text.

pub mod ansi;
pub mod capture;
pub mod failure;
mod middle;

use std::ops::Range;

/// The largest character boundary of `text` that is not beyond `at`.
pub fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The smallest character boundary of `text` that is not before `at`.
pub fn ceil_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// How many bytes at the end of `bytes` are the beginning of a UTF-8 character that the next bytes may complete: 0 to 3.
pub fn unfinished_char(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let at = bytes.len() - back;
        let lead = bytes[at];
        if lead & 0xc0 == 0x80 {
            continue;
        }
        return match std::str::from_utf8(&bytes[at..]) {
            Err(error) if error.error_len().is_none() => back,
            _ => 0,
        };
    }
    0
}

/// A piece of a text, and how much stands on either side of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window<'a> {
    /// The piece.
    pub text: &'a str,
    /// Bytes before it that are not shown.
    pub before: usize,
    /// Bytes after it that are not shown.
    pub after: usize,
}

impl Window<'_> {
    /// Whether anything was cut.
    pub fn cut(&self) -> bool {
        self.before + self.after > 0
    }
}

/// The first `max` bytes, less the part of a character that would be split.
pub fn head(text: &str, max: usize) -> Window<'_> {
    let end = floor_char(text, max);
    Window { text: &text[..end], before: 0, after: text.len() - end }
}

/// The last `max` bytes, less the part of a character that would be split.
pub fn tail(text: &str, max: usize) -> Window<'_> {
    let start = ceil_char(text, text.len().saturating_sub(max));
    Window { text: &text[start..], before: start, after: 0 }
}

/// At most `max` bytes that hold `around`, with as much on either side of it as there is room for.
///
/// Where `around` itself is longer than `max`, its beginning is shown. `around` is clamped to the text.
pub fn window(text: &str, around: Range<usize>, max: usize) -> Window<'_> {
    let from = floor_char(text, around.start);
    let to = around.end.clamp(from, text.len());
    let room = max.saturating_sub(to - from);
    let end = (from.saturating_sub(room / 2) + max).min(text.len());
    let start = ceil_char(text, end.saturating_sub(max).min(from));
    let end = floor_char(text, (start + max).min(text.len()));
    Window { text: &text[start..end], before: start, after: text.len() - end }
}

/// Head and tail of a text with the number of bytes left out between them; `None` when all of it fits into `max` bytes.
pub fn head_and_tail(text: &str, max: usize) -> Option<(&str, usize, &str)> {
    if text.len() <= max {
        return None;
    }
    let first = head(text, max / 2).text;
    let last = tail(&text[first.len()..], max - max / 2).text;
    Some((first, text.len() - first.len() - last.len(), last))
}

/// The first lines of a text that fit into `max_lines` lines and `max_bytes` bytes: `(shown, lines shown, lines left, bytes left)`.
///
/// Only whole lines are shown. A text that fits exactly has nothing left.
pub fn head_lines(text: &str, max_lines: usize, max_bytes: usize) -> (&str, usize, usize, usize) {
    let mut end = 0;
    let mut shown = 0;
    for line in text.split_inclusive('\n').take(max_lines) {
        if end + line.len() > max_bytes {
            break;
        }
        end += line.len();
        shown += 1;
    }
    (&text[..end], shown, count_lines(&text[end..]), text.len() - end)
}

/// The lines of a text; a last line without a line end is one.
pub fn count_lines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count() + usize::from(!text.is_empty() && !text.ends_with('\n'))
}

/// A count with a thin separator at thousands, and the word for it: `1,234 lines`, `1 line`.
pub fn counted(number: u64, one: &str) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + one.len() + 4);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out.push(' ');
    out.push_str(one);
    if number != 1 {
        out.push('s');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_that_fits_is_whole() {
        assert_eq!(head("añb", 4), Window { text: "añb", before: 0, after: 0 });
        assert_eq!(head_and_tail("abc", 3), None);
        assert_eq!(head_lines("a\nb\n", 2, 4), ("a\nb\n", 2, 0, 0));
        assert_eq!(head_lines("a\nb\nc", 2, 99), ("a\nb\n", 2, 1, 1));
    }

    #[test]
    fn counts_read_well() {
        assert_eq!(counted(1, "line"), "1 line");
        assert_eq!(counted(0, "byte"), "0 bytes");
        assert_eq!(counted(1_234_567, "byte"), "1,234,567 bytes");
    }

    #[test]
    fn an_unfinished_character_is_seen() {
        let euro = "€".as_bytes();
        assert_eq!(unfinished_char(&euro[..1]), 1);
        assert_eq!(unfinished_char(&euro[..2]), 2);
        assert_eq!(unfinished_char(euro), 0);
        assert_eq!(unfinished_char(b"a\xff"), 0);
        assert_eq!(unfinished_char(b"a\x80\x80"), 0);
        assert_eq!(unfinished_char(&"😀".as_bytes()[..3]), 3);
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn nothing_is_lost_without_being_counted(text in "[a-zé€😀\n]{0,60}", max in 0usize..40, from in 0usize..80, len in 0usize..20) {
            let w = window(&text, from..from + len, max);
            prop_assert!(w.text.len() <= max);
            prop_assert_eq!(w.before + w.text.len() + w.after, text.len());
            let h = head(&text, max);
            prop_assert_eq!(h.text.len() + h.after, text.len());
            if let Some((a, cut, b)) = head_and_tail(&text, max) {
                prop_assert!(a.len() + b.len() <= max);
                prop_assert_eq!(a.len() + cut + b.len(), text.len());
            }
            let (shown, n, lines, bytes) = head_lines(&text, 3, max);
            prop_assert_eq!(shown.len() + bytes, text.len());
            prop_assert_eq!(n + lines, count_lines(&text));
        }

        #[test]
        fn a_window_holds_what_it_is_put_round(text in "[a-z]{30,60}", from in 0usize..20, len in 0usize..10) {
            let w = window(&text, from..from + len, 12);
            prop_assert!(w.before <= from && w.before + w.text.len() >= from + len);
            prop_assert_eq!(w.text.len(), 12);
        }
    }
}
