//! A file as the engine sees it: bytes in which ASCII is ASCII, their lines, and the forms that the ladder compares in.

use super::normal::{Form, Normal, indent, trimmed};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::decode::{Encoding, EolCount, Line, detect_whole, escape_text, from_plain, lines, to_plain, unescape_text};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Range;

/// A file, read-only.
pub(super) struct Document<'a> {
    original: &'a [u8],
    encoding: Encoding,
    plain: Cow<'a, [u8]>,
    escaped: bool,
    lines: Vec<Line>,
    eols: EolCount,
    forms: [OnceCell<Normal>; 3],
    line_hashes: OnceCell<Vec<u64>>,
}

/// Where a span is in the old and in the new file.
pub(super) type Moved = (Range<usize>, Range<usize>);

/// A text of the call, in the document's bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wording {
    /// The text to find.
    pub(super) old: Vec<u8>,
    /// The text to put there.
    pub(super) new: Vec<u8>,
}

impl<'a> Document<'a> {
    pub(super) fn new(original: &'a [u8]) -> Self {
        let encoding = detect_whole(original);
        let plain = to_plain(&original[encoding.bom().len()..], encoding);
        let lines: Vec<Line> = lines(&plain).collect();
        let known = matches!(encoding, Encoding::Utf8 | Encoding::Utf8Bom);
        Self {
            original,
            encoding,
            escaped: !known && std::str::from_utf8(&plain).is_err(),
            eols: EolCount::of_lines(&plain, lines.iter().copied()),
            lines,
            forms: Default::default(),
            line_hashes: OnceCell::new(),
            plain,
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(super) fn plain(&self) -> &[u8] {
        &self.plain
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(super) fn eols(&self) -> EolCount {
        self.eols
    }

    pub(super) fn form(&self, form: Form) -> &Normal {
        self.forms[form as usize].get_or_init(|| Normal::of_file(&self.plain, form))
    }

    /// A hash of each line without the blanks at its ends.
    pub(super) fn line_hashes(&self) -> &[u64] {
        self.line_hashes.get_or_init(|| self.lines.iter().map(|line| line_hash(line.text(&self.plain))).collect())
    }

    /// The 1-based number of the line that holds this offset; past the end, that of the last line.
    pub(super) fn line_number(&self, offset: usize) -> usize {
        self.lines.partition_point(|line| line.start <= offset).max(1)
    }

    /// Whether a line begins at this offset.
    pub(super) fn begins_line(&self, offset: usize) -> bool {
        offset == 0 || self.lines.binary_search_by_key(&offset, |line| line.start).is_ok()
    }

    /// The ways to take a call's texts. Where the file holds bytes that are shown by escapes, the texts are taken back from them;
    /// if such a text is not in the file, it may have been meant as it stands.
    pub(super) fn wordings(&self, old: &str, new: &str) -> Vec<Wording> {
        let literal = Wording { old: old.into(), new: new.into() };
        if !self.escaped {
            return vec![literal];
        }
        let taken_back = Wording { old: unescape_text(old), new: unescape_text(new) };
        if taken_back.old == literal.old { vec![taken_back] } else { vec![taken_back, literal] }
    }

    /// Refuses new text whose characters have no certain bytes in this file.
    pub(super) fn check_encodable(&self, new: &[u8]) -> Result<(), Fault> {
        if self.encoding != Encoding::Bytes || new.is_ascii() {
            return from_plain(new, self.encoding).map(drop);
        }
        let wide = |bytes: &[u8]| bytes.utf8_chunks().any(|chunk| !chunk.valid().is_ascii());
        if wide(new) && !wide(&self.plain) {
            return Err(Fault::new(
                FaultCode::NotEncodable,
                "the file is in an encoding of one byte a character that is not known, and the new text holds characters outside of ASCII",
            )
            .hint("write such a character as its byte in the file's encoding, \\xNN, as read shows it"));
        }
        Ok(())
    }

    /// Whether an edit may begin or end here: not within a character, nor between the two bytes of CRLF.
    pub(super) fn is_boundary(&self, at: usize) -> bool {
        if at == 0 || at >= self.plain.len() {
            return true;
        }
        if self.plain[at] == b'\n' && self.plain[at - 1] == b'\r' {
            return false;
        }
        !(1..=3.min(at)).any(|back| character_length(&self.plain[at - back..], self.encoding) > back)
    }

    /// Puts the new texts in the places of the old ones. Returns the new file and, for each span, where it is in the old and the new file.
    ///
    /// # Errors
    /// `not_encodable`.
    pub(super) fn compose(&self, spans: &[(Range<usize>, &[u8])]) -> Result<(Vec<u8>, Vec<Moved>), Fault> {
        let mut bytes = self.encoding.bom().to_vec();
        let mut places = Vec::with_capacity(spans.len());
        // `plain_at` and `at` are the same place, in the plain bytes and in the file.
        let (mut plain_at, mut at) = (0, bytes.len());
        let mut advance = |to: usize| -> Result<Range<usize>, Fault> {
            let length = if self.encoding.is_utf16() { from_plain(&self.plain[plain_at..to], self.encoding)?.len() } else { to - plain_at };
            let from = at;
            (plain_at, at) = (to, at + length);
            Ok(from..at)
        };
        for (span, new) in spans {
            bytes.extend_from_slice(&self.original[advance(span.start)?]);
            let old = advance(span.end)?;
            let begin = bytes.len();
            bytes.extend_from_slice(&from_plain(new, self.encoding)?);
            places.push((old, begin..bytes.len()));
        }
        bytes.extend_from_slice(&self.original[advance(self.plain.len())?]);
        Ok((bytes, places))
    }

    /// Bytes of the document as text for people.
    pub(super) fn show<'b>(&self, plain: &'b [u8]) -> Cow<'b, str> {
        match std::str::from_utf8(plain) {
            Ok(text) if !self.escaped => Cow::Borrowed(text),
            _ => Cow::Owned(escape_text(plain)),
        }
    }
}

/// A hash of a line without the blanks at its ends; the same in every run.
pub(super) fn line_hash(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(core(line));
    hasher.finish()
}

/// A line without the blanks at its ends.
pub(super) fn core(line: &[u8]) -> &[u8] {
    let line = trimmed(line);
    &line[indent(line).len()..]
}

/// How many bytes the character takes that begins here; 1 for a byte that begins none.
fn character_length(bytes: &[u8], encoding: Encoding) -> usize {
    match bytes {
        [0xed, 0xa0..=0xbf, 0x80..=0xbf, ..] | [0xff, 0xf0..=0xff, 0xf0..=0xff, ..] if encoding.is_utf16() => 3,
        _ => match bytes[..bytes.len().min(4)].utf8_chunks().next() {
            Some(chunk) => chunk.valid().chars().next().map_or(1, char::len_utf8),
            None => 1,
        },
    }
}
