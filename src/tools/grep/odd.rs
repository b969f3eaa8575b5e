//! Text that is not UTF-8, as a matcher sees it: never its raw bytes, which the engines count as no character at all.
//!
//! Such text is matched in two forms. In one, each byte that belongs to no character is one character of its own, so that `.` and
//! `[^a]` take it; in the other it is the escape that `read` shows and `edit` takes. The earlier match counts. Offsets are always those of the raw
//! bytes. A match of the second form never begins or ends within an escape: no edit could change it.

use crate::workspace::decode;
use grep_matcher::{Match, Matcher, NoCaptures};

/// How often a match that cuts an escape is passed over, for one search.
const PASSED_OVER: usize = 1000;

/// A matcher of text that may hold bytes of no character.
pub(super) struct Odd<'a, M> {
    inner: &'a M,
    /// The whole text, where matches may go across lines; else each line is looked at by itself.
    whole: Option<(&'a [u8], Forms)>,
}

impl<'a, M: Matcher> Odd<'a, M> {
    /// For one text, or with `None` for lines of any.
    pub(super) fn new(inner: &'a M, whole: Option<&'a [u8]>) -> Self {
        Self { inner, whole: whole.map(|text| (text, Forms::of(text))) }
    }
}

impl<M: Matcher> Matcher for Odd<'_, M> {
    type Captures = NoCaptures;
    type Error = M::Error;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, M::Error> {
        if let Some((text, forms)) = &self.whole {
            // The searcher gives parts of the text that it was given.
            let start = haystack.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
            if start <= text.len() && haystack.len() <= text.len() - start {
                return forms.find(self.inner, start, start + haystack.len(), at);
            }
        }
        let line = if self.whole.is_none() { trim(haystack) } else { haystack };
        let at = at.min(line.len());
        if std::str::from_utf8(line).is_ok() {
            return self.inner.find_at(line, at);
        }
        Forms::of(line).find(self.inner, 0, line.len(), at)
    }

    fn new_captures(&self) -> Result<NoCaptures, M::Error> {
        Ok(NoCaptures::new())
    }
}

/// Whether text holds bytes of no character. `head` is how many of its first bytes are known to hold none, but for a character that the
/// end of them cuts.
pub(super) fn is_odd(text: &[u8], head: usize) -> bool {
    let mut from = head.min(text.len()).saturating_sub(4);
    while from > 0 && text.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
        from -= 1;
    }
    std::str::from_utf8(&text[from..]).is_err()
}

/// A line without its line end.
pub(super) fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Text as characters in both forms.
struct Forms {
    /// One character for each byte of no character.
    single: Form,
    /// As it is shown.
    shown: Form,
}

impl Forms {
    fn of(text: &[u8]) -> Self {
        let mut single = Form::default();
        let mut at = 0;
        for chunk in text.utf8_chunks() {
            single.text.extend_from_slice(chunk.valid().as_bytes());
            at += chunk.valid().len();
            for &byte in chunk.invalid() {
                single.text.extend_from_slice(decode::stand_in(byte).encode_utf8(&mut [0; 4]).as_bytes());
                at += 1;
                single.marks.push(Mark { raw: at, shown: single.text.len(), inside: 3 });
            }
        }
        let mut shown = Form::default();
        let text = decode::escape_text_with(text, |raw, at, is_byte| {
            shown.marks.push(Mark { raw, shown: at, inside: if is_byte { 3 } else { 0 } });
        });
        shown.text = text.into_bytes();
        Self { single, shown }
    }

    fn find<M: Matcher>(&self, inner: &M, from: usize, to: usize, at: usize) -> Result<Option<Match>, M::Error> {
        let single = self.single.find(inner, from, to, at)?;
        let shown = self.shown.find(inner, from, to, at)?;
        Ok(match (single, shown) {
            (Some(single), Some(shown)) if shown.start() < single.start() => Some(shown),
            (None, shown) => shown,
            (single, _) => single,
        })
    }
}

/// Text in one form, and where it stands in the raw bytes.
#[derive(Default)]
struct Form {
    text: Vec<u8>,
    marks: Vec<Mark>,
}

/// A place behind something that is longer in the form than in the raw bytes.
struct Mark {
    raw: usize,
    shown: usize,
    /// How many of the bytes before it are within something that is no part by itself.
    inside: usize,
}

impl Form {
    fn of_raw(&self, raw: usize) -> usize {
        let next = self.marks.partition_point(|mark| mark.raw <= raw);
        let (base, shown) = next.checked_sub(1).map_or((0, 0), |at| (self.marks[at].raw, self.marks[at].shown));
        shown + (raw - base)
    }

    /// The raw place, and whether it is within an escape.
    fn to_raw(&self, shown: usize) -> (usize, bool) {
        let next = self.marks.partition_point(|mark| mark.shown <= shown);
        let (base, begun) = next.checked_sub(1).map_or((0, 0), |at| (self.marks[at].raw, self.marks[at].shown));
        let raw = base + (shown - begun);
        match self.marks.get(next) {
            Some(mark) => (raw.min(mark.raw), shown + mark.inside >= mark.shown),
            None => (raw, false),
        }
    }

    fn find<M: Matcher>(&self, inner: &M, from: usize, to: usize, at: usize) -> Result<Option<Match>, M::Error> {
        let first = self.of_raw(from);
        let text = &self.text[first..self.of_raw(to)];
        let mut at = self.of_raw(from + at) - first;
        for _ in 0..PASSED_OVER {
            let Some(found) = inner.find_at(text, at)? else { return Ok(None) };
            let (start, cut_start) = self.to_raw(first + found.start());
            let (end, cut_end) = self.to_raw(first + found.end());
            if !cut_start && !cut_end {
                return Ok(Some(Match::new(start - from, end.max(start) - from)));
            }
            at = found.start() + 1;
            while text.get(at).is_some_and(|byte| byte & 0xc0 == 0x80) {
                at += 1;
            }
            if at > text.len() {
                return Ok(None);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grep_regex::RegexMatcher;

    #[test]
    fn offsets_are_those_of_the_raw_bytes() {
        let text: &[u8] = b"a\xe9 \\\xff b\\xe9 needle";
        for (pattern, found) in [
            ("a.", 0..2),
            (r"a\\xe9", 0..2),
            (" .", 2..4),
            (r"\\\\\\xff b", 3..7),
            ("needle", 12..18),
            (r"\\\\xe9 n", 7..13),
            ("b.xe9", 6..11),
        ] {
            let inner = RegexMatcher::new(pattern).unwrap();
            for whole in [None, Some(text)] {
                let got = Odd::new(&inner, whole).find(text).unwrap();
                assert_eq!(got.map(|m| m.start()..m.end()), Some(found.clone()), "{pattern}");
            }
        }
        let inner = RegexMatcher::new("xf|9$|e9 ").unwrap();
        assert_eq!(Odd::new(&inner, None).find(b"\xff \xe9 \xe9").unwrap(), None);
    }

    #[test]
    fn odd_text_is_found_behind_a_good_head() {
        let good = "日".repeat(10);
        for head in 0..=good.len() {
            assert!(!is_odd(good.as_bytes(), head), "{head}");
            assert!(is_odd(&[good.as_bytes(), b"\xff"].concat(), head), "{head}");
            assert!(is_odd(&good.as_bytes()[..good.len() - 1], head), "{head}");
        }
    }
}
