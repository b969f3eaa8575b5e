//! Text in a form in which differences of a kind are gone, with the way back to the bytes it came from.
//!
//! Each form is made in one pass and keeps line structure: a line end stays a line end, blanks never cross one, and the number of
//! blank lines is what it was.

use crate::workspace::decode::lines;
use std::ops::Range;
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::canonical_combining_class;

/// Which differences are gone; each form includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Form {
    /// Every line end is `\n`.
    LineEnds,
    /// No blanks before a line end.
    TrailingBlanks,
    /// Quotes, dashes and spaces are those of ASCII, characters are decomposed.
    Unicode,
}

/// A text in a [`Form`].
#[derive(Debug, Default)]
pub(super) struct Normal {
    /// The text.
    pub(super) text: Vec<u8>,
    pieces: Vec<Piece>,
}

/// A stretch of the text and where it came from. In an atom only the ends correspond; in other pieces every byte does.
#[derive(Debug)]
struct Piece {
    at: usize,
    from: Range<usize>,
    atom: bool,
}

impl Normal {
    /// A file in this form. A last line without a line end gets one that stands for no bytes, so that a text that ends in a line end
    /// matches it.
    pub(super) fn of_file(plain: &[u8], form: Form) -> Self {
        let mut normal = Self::default();
        for line in lines(plain) {
            let text_end = if form >= Form::TrailingBlanks { line.start + trimmed(line.text(plain)).len() } else { line.text_end };
            normal.push_text(plain, line.start..text_end, form);
            normal.push_eol(line.text_end..line.end);
        }
        normal
    }

    /// A text that is searched for, in this form. Blanks at the end of a single line without a line end are text; they could go on.
    pub(super) fn of_pattern(plain: &[u8], form: Form) -> Self {
        let mut normal = Self::default();
        for line in lines(plain) {
            let text = line.text(plain);
            let kept = trimmed(text);
            let ended = line.end > line.text_end;
            let trim = form >= Form::TrailingBlanks && (ended || (line.start > 0 && !kept.is_empty()));
            normal.push_text(plain, line.start..line.start + if trim { kept.len() } else { text.len() }, form);
            if ended {
                normal.push_eol(line.text_end..line.end);
            }
        }
        normal
    }

    /// The bytes that a stretch of the text came from. `None` when an end of it lies within an atom, or it came from nothing.
    pub(super) fn origin(&self, range: Range<usize>) -> Option<Range<usize>> {
        let origin = self.origin_of_start(range.start)?..self.origin_of_end(range.end)?;
        (origin.start < origin.end).then_some(origin)
    }

    /// Where the byte at this offset came from.
    pub(super) fn origin_of_start(&self, at: usize) -> Option<usize> {
        let index = self.pieces.partition_point(|piece| piece.at <= at).checked_sub(1)?;
        let piece = &self.pieces[index];
        match at - piece.at {
            0 => Some(piece.from.start),
            _ if piece.atom => None,
            into => Some(piece.from.start + into).filter(|at| *at < piece.from.end),
        }
    }

    /// Where the byte before this offset ended.
    pub(super) fn origin_of_end(&self, at: usize) -> Option<usize> {
        let index = self.pieces.partition_point(|piece| piece.at < at).checked_sub(1)?;
        let piece = &self.pieces[index];
        let piece_end = self.pieces.get(index + 1).map_or(self.text.len(), |next| next.at);
        match at {
            at if at == piece_end => Some(piece.from.end),
            _ if piece.atom => None,
            at => Some(piece.from.start + (at - piece.at)),
        }
    }

    fn push_eol(&mut self, from: Range<usize>) {
        self.pieces.push(Piece { at: self.text.len(), from, atom: true });
        self.text.push(b'\n');
    }

    fn push_copy(&mut self, plain: &[u8], from: Range<usize>) {
        if from.is_empty() {
            return;
        }
        self.text.extend_from_slice(&plain[from.clone()]);
        match self.pieces.last_mut() {
            Some(last) if !last.atom && last.from.end == from.start => last.from.end = from.end,
            _ => self.pieces.push(Piece { at: self.text.len() - from.len(), from, atom: false }),
        }
    }

    fn push_text(&mut self, plain: &[u8], from: Range<usize>, form: Form) {
        let bytes = &plain[from.clone()];
        if form < Form::Unicode || bytes.is_ascii() {
            return self.push_copy(plain, from);
        }
        let mut at = from.start;
        for chunk in bytes.utf8_chunks() {
            self.push_folded(plain, at, chunk.valid());
            at += chunk.valid().len();
            self.push_copy(plain, at..at + chunk.invalid().len());
            at += chunk.invalid().len();
        }
    }

    /// Folds text that stands at `start`, one character with its combining marks at a time.
    fn push_folded(&mut self, plain: &[u8], start: usize, text: &str) {
        let mut characters = text.char_indices().peekable();
        while let Some((at, first)) = characters.next() {
            let mut end = at + first.len_utf8();
            let mut plain_ascii = first.is_ascii();
            while let Some((next, mark)) = characters.next_if(|(_, mark)| !mark.is_ascii() && canonical_combining_class(*mark) != 0) {
                end = next + mark.len_utf8();
                plain_ascii = false;
            }
            let from = start + at..start + end;
            if plain_ascii {
                self.push_copy(plain, from);
                continue;
            }
            self.pieces.push(Piece { at: self.text.len(), from, atom: true });
            let mut buffer = [0; 4];
            for character in text[at..end].nfd() {
                self.text.extend_from_slice(fold(character).encode_utf8(&mut buffer).as_bytes());
            }
        }
    }
}

/// The ASCII character for a typographic quote, dash or space; any other character is itself.
fn fold(character: char) -> char {
    match character {
        '\u{2018}'..='\u{201b}' | '\u{2032}' | '\u{2bc}' => '\'',
        '\u{201c}'..='\u{201f}' | '\u{2033}' => '"',
        '\u{2010}'..='\u{2015}' | '\u{2212}' => '-',
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => ' ',
        other => other,
    }
}

/// A line without the blanks at its end.
pub(super) fn trimmed(line: &[u8]) -> &[u8] {
    let kept = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    &line[..kept]
}

/// A line's blanks at its beginning.
pub(super) fn indent(line: &[u8]) -> &[u8] {
    let length = line.iter().position(|byte| !matches!(byte, b' ' | b'\t')).unwrap_or(line.len());
    &line[..length]
}

/// [`occurrences`] of bytes. Most texts occur once, and a search that may leave out parts of the file finds that much sooner.
pub(super) fn occurrences_of_bytes(text: &[u8], pattern: &[u8]) -> Vec<usize> {
    if pattern.is_empty() {
        return Vec::new();
    }
    let finder = memchr::memmem::Finder::new(pattern);
    let Some(first) = finder.find(text) else { return Vec::new() };
    if finder.find(&text[first + 1..]).is_none() {
        return vec![first];
    }
    occurrences(&text[first..], pattern).into_iter().map(|at| first + at).collect()
}

/// Every offset at which the pattern occurs, overlapping ones included, in time linear in both (Knuth, Morris and Pratt).
pub(super) fn occurrences<T: PartialEq>(text: &[T], pattern: &[T]) -> Vec<usize> {
    let mut found = Vec::new();
    if pattern.is_empty() || pattern.len() > text.len() {
        return found;
    }
    // borders[i]: the length of the longest proper prefix of pattern[..=i] that is also its suffix.
    let mut borders = vec![0; pattern.len()];
    let mut matched = 0;
    for at in 1..pattern.len() {
        while matched > 0 && pattern[at] != pattern[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(pattern[at] == pattern[matched]);
        borders[at] = matched;
    }
    matched = 0;
    for (at, item) in text.iter().enumerate() {
        while matched > 0 && *item != pattern[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(*item == pattern[matched]);
        if matched == pattern.len() {
            found.push(at + 1 - matched);
            matched = borders[matched - 1];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_way_back_leads_to_the_bytes() {
        let plain = "a \r\nsay \u{201c}hi\u{201d} e\u{301}\t\nend".as_bytes();
        let normal = Normal::of_file(plain, Form::Unicode);
        assert_eq!(normal.text, "a\nsay \"hi\" e\u{301}\nend\n".as_bytes());
        let back = |needle: &str| {
            let at = occurrences(&normal.text, needle.as_bytes())[0];
            normal.origin(at..at + needle.len()).map(|range| std::str::from_utf8(&plain[range]).unwrap())
        };
        assert_eq!(back("say \"hi\""), Some("say \u{201c}hi\u{201d}"));
        assert_eq!(back("a\nsay"), Some("a \r\nsay"));
        assert_eq!(back("\nsay"), Some("\r\nsay"));
        assert_eq!(back("end\n"), Some("end"));
        assert_eq!(back("hi\" e"), None);
        assert_eq!(back("hi\" e\u{301}\n"), Some("hi\u{201d} e\u{301}\t\n"));
    }

    #[test]
    fn occurrences_overlap() {
        assert_eq!(occurrences(b"aXaXaXa", b"aXa"), [0, 2, 4]);
        assert_eq!(occurrences(b"abc", b""), [0usize; 0]);
        assert_eq!(occurrences_of_bytes(b"abc", b""), [0usize; 0]);
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn occurrences_are_what_a_plain_search_finds(text in "[ab]{0,40}", pattern in "[ab]{1,4}") {
            let plain: Vec<usize> = (0..text.len()).filter(|at| text[*at..].starts_with(&pattern)).collect();
            prop_assert_eq!(&occurrences(text.as_bytes(), pattern.as_bytes()), &plain);
            prop_assert_eq!(&occurrences_of_bytes(text.as_bytes(), pattern.as_bytes()), &plain);
        }

        #[test]
        fn a_whole_text_comes_from_its_whole(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(b' ')], 1..40)) {
            let normal = Normal::of_file(&bytes, Form::LineEnds);
            prop_assert_eq!(normal.origin(0..normal.text.len()), Some(0..bytes.len()));
        }
    }
}
