//! The one text decoder, for read, edit and grep: what grep finds, read shows and edit changes.
//!
//! Text is UTF-8, UTF-8 or UTF-16 behind a byte order mark, or else bytes. Decoding loses nothing: what is no character in the
//! encoding is shown by an escape that [`encode`] takes back. [`decode`] and [`encode`] never see the byte order mark;
//! [`Encoding::bom`] says how long it is. A character that the edge of a buffer cuts does not turn text into bytes.

use crate::envelope::{Fault, FaultCode};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;

/// How the text of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Encoding {
    /// UTF-8 without a byte order mark.
    #[serde(rename = "utf-8")]
    Utf8,
    /// UTF-8 behind a byte order mark.
    #[serde(rename = "utf-8-bom")]
    Utf8Bom,
    /// UTF-16, low byte first, behind a byte order mark.
    #[serde(rename = "utf-16le")]
    Utf16Le,
    /// UTF-16, high byte first, behind a byte order mark.
    #[serde(rename = "utf-16be")]
    Utf16Be,
    /// None of these (latin-1, say): ASCII and UTF-8 characters as they are, every other byte as `\xNN`.
    #[serde(rename = "bytes")]
    Bytes,
}

impl Encoding {
    /// The byte order mark that stands before the text, empty where there is none.
    pub fn bom(self) -> &'static [u8] {
        match self {
            Self::Utf8 | Self::Bytes => b"",
            Self::Utf8Bom => b"\xef\xbb\xbf",
            Self::Utf16Le => b"\xff\xfe",
            Self::Utf16Be => b"\xfe\xff",
        }
    }

    /// Whether a character is made of units of two bytes.
    pub fn is_utf16(self) -> bool {
        matches!(self, Self::Utf16Le | Self::Utf16Be)
    }

    /// The stable name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf8Bom => "utf-8-bom",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Bytes => "bytes",
        }
    }

    fn unit(self, pair: [u8; 2]) -> u16 {
        if self == Self::Utf16Be { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
    }

    fn put_unit(self, unit: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&if self == Self::Utf16Be { unit.to_be_bytes() } else { unit.to_le_bytes() });
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The encoding of a file by its first bytes (some KiB, or all of it). A character cut by the end of `head` is a character; who has
/// the whole file asks [`detect_whole`].
pub fn detect(head: &[u8]) -> Encoding {
    if head.starts_with(b"\xef\xbb\xbf") {
        return if is_utf8_prefix(head) { Encoding::Utf8Bom } else { Encoding::Bytes };
    }
    // UTF-32 begins with the mark of UTF-16 and a NUL character; it is none of ours.
    if head.starts_with(b"\xff\xfe") && !head.starts_with(b"\xff\xfe\0\0") {
        return Encoding::Utf16Le;
    }
    if head.starts_with(b"\xfe\xff") {
        return Encoding::Utf16Be;
    }
    if is_utf8_prefix(head) { Encoding::Utf8 } else { Encoding::Bytes }
}

/// The encoding of a file of which these are all the bytes.
pub fn detect_whole(bytes: &[u8]) -> Encoding {
    match detect(bytes) {
        Encoding::Utf8 | Encoding::Utf8Bom if std::str::from_utf8(bytes).is_err() => Encoding::Bytes,
        encoding => encoding,
    }
}

fn is_utf8_prefix(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

/// Beginnings of formats that may show no NUL in their first bytes.
const MAGIC: &[&[u8]] = &[
    b"\x7fELF",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"GIF87a",
    b"GIF89a",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"\x1f\x8b\x08",
    b"BZh91AY&SY",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c",
    b"%PDF-",
    b"\0asm",
    b"\xca\xfe\xba\xbe",
    b"\xfe\xed\xfa",
    b"\xcf\xfa\xed\xfe",
    b"SQLite format 3\0",
    b"OggS\0",
    b"Rar!\x1a\x07",
    b"wOFF",
    b"wOF2",
    b"!<arch>\n",
];

/// Whether a file is no text, by its first bytes: a NUL that is no half of a UTF-16 character, or the mark of a binary format.
pub fn is_binary(head: &[u8]) -> bool {
    if MAGIC.iter().any(|magic| head.starts_with(magic)) {
        return true;
    }
    !detect(head).is_utf16() && head.contains(&0)
}

/// Shows bytes (without the byte order mark) as text; [`encode`] gives the same bytes back.
///
/// In UTF-8 that holds nothing else, the text is the bytes. Elsewhere what belongs to no character is shown as [`escape_text`] says.
pub fn decode(bytes: &[u8], encoding: Encoding) -> Cow<'_, str> {
    match encoding {
        Encoding::Utf8 | Encoding::Utf8Bom => match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => Cow::Owned(escape_text(bytes)),
        },
        _ => Cow::Owned(escape_text(&to_plain(bytes, encoding))),
    }
}

/// Text as bytes (without a byte order mark). The inverse of [`decode`] for [`Encoding::Bytes`] and UTF-16, and for UTF-8 that was
/// valid; in UTF-8 nothing is an escape.
///
/// # Errors
/// `not_encodable`: the escape of a single byte inside of UTF-16 text.
pub fn encode(text: &str, encoding: Encoding) -> Result<Vec<u8>, Fault> {
    match encoding {
        Encoding::Utf8 | Encoding::Utf8Bom => Ok(text.as_bytes().to_vec()),
        _ => from_plain(&unescape_text(text), encoding),
    }
}

/// Shows content as text: line ends, tabs and all characters as they are, a byte of no character as `\xNN`.
///
/// A run of backslashes is doubled where an escape, or what looks like one, follows it; elsewhere it is as it is, so that `\\` and
/// `\n` in a program look as they do in any other file.
pub fn escape_text(bytes: &[u8]) -> String {
    escape_text_with(bytes, |_, _, _| {})
}

/// The same, and says where the two differ: behind each escape, and each run of backslashes that was doubled, `mark` gets the place in
/// `bytes`, the place in the text, and whether it is behind an escape.
pub(crate) fn escape_text_with(bytes: &[u8], mut mark: impl FnMut(usize, usize, bool)) -> String {
    let mut out = String::with_capacity(bytes.len() + bytes.len() / 8);
    let mut backslashes = 0;
    let mut rest = bytes;
    for chunk in bytes.utf8_chunks() {
        let (valid, bad) = (chunk.valid(), chunk.invalid());
        for (at, character) in valid.char_indices() {
            if character == 'x' && backslashes > 0 && is_escape(&rest[at..]) {
                out.extend(std::iter::repeat_n('\\', backslashes));
                mark(bytes.len() - rest.len() + at, out.len(), false);
            }
            backslashes = if character == '\\' { backslashes + 1 } else { 0 };
            out.push(character);
        }
        for (index, byte) in bad.iter().enumerate() {
            let at = bytes.len() - rest.len() + valid.len() + index;
            if backslashes > 0 {
                out.extend(std::iter::repeat_n('\\', backslashes));
                mark(at, out.len(), false);
            }
            backslashes = 0;
            let _ = write!(out, "\\x{byte:02x}");
            mark(at + 1, out.len(), true);
        }
        rest = &rest[valid.len() + bad.len()..];
    }
    out
}

/// The character that stands for a byte of no character where a matcher counts characters: a private one, of no other use.
pub fn stand_in(byte: u8) -> char {
    const FIRST: u32 = 0x10_ff00;
    char::from_u32(FIRST + u32::from(byte)).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The bytes that [`escape_text`] showed.
pub fn unescape_text(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|byte| **byte == b'\\').count();
        at += run;
        if run > 0 && is_escape(&bytes[at..]) {
            out.extend(std::iter::repeat_n(b'\\', run / 2));
            if run % 2 == 1 {
                out.push(hex(bytes[at + 1]) << 4 | hex(bytes[at + 2]));
                at += 3;
            }
            continue;
        }
        out.extend(std::iter::repeat_n(b'\\', run));
        if let Some(byte) = bytes.get(at) {
            out.push(*byte);
            at += 1;
        }
    }
    out
}

/// `xNN` for a byte from 80 to ff: only such bytes are ever escaped, so that `\x1b` in a program stays what it is.
fn is_escape(text: &[u8]) -> bool {
    matches!(text, [b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() && hex(*a) >= 8)
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// The text of a file (without the byte order mark) as bytes in which ASCII is ASCII and a character is its UTF-8: the file's own bytes,
/// or UTF-16 transcoded. Half a UTF-16 pair becomes the three bytes that UTF-8 forbids for it, an odd last byte three others that
/// UTF-8 never has. [`from_plain`] is the inverse.
pub fn to_plain(bytes: &[u8], encoding: Encoding) -> Cow<'_, [u8]> {
    if !encoding.is_utf16() {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len() / 2 + bytes.len() / 8);
    let pairs = bytes.chunks_exact(2);
    let tail = pairs.remainder();
    for unit in char::decode_utf16(pairs.map(|pair| encoding.unit([pair[0], pair[1]]))) {
        match unit {
            Ok(character) => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(error) => {
                let [high, low] = error.unpaired_surrogate().to_be_bytes();
                out.extend_from_slice(&[0xed, 0x80 | (high & 0xf) << 2 | low >> 6, 0x80 | low & 0x3f]);
            }
        }
    }
    for byte in tail {
        out.extend_from_slice(&[0xff, 0xf0 | byte >> 4, 0xf0 | byte & 0xf]);
    }
    Cow::Owned(out)
}

/// The bytes of a file for what [`to_plain`] gave.
///
/// # Errors
/// `not_encodable`: bytes that are no UTF-16, in a UTF-16 file.
pub fn from_plain(plain: &[u8], encoding: Encoding) -> Result<Vec<u8>, Fault> {
    if !encoding.is_utf16() {
        return Ok(plain.to_vec());
    }
    let mut out = Vec::with_capacity(plain.len() * 2);
    let mut rest = plain;
    while !rest.is_empty() {
        let valid = match std::str::from_utf8(rest) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&rest[..error.valid_up_to()]).unwrap_or_default(),
        };
        valid.encode_utf16().for_each(|unit| encoding.put_unit(unit, &mut out));
        rest = match &rest[valid.len()..] {
            [] => break,
            [0xed, b @ 0xa0..=0xbf, c @ 0x80..=0xbf, rest @ ..] => {
                encoding.put_unit(0xd000 | u16::from(b & 0x3f) << 6 | u16::from(c & 0x3f), &mut out);
                rest
            }
            [0xff, b @ 0xf0..=0xff, c @ 0xf0..=0xff] => {
                out.push(b << 4 | c & 0xf);
                break;
            }
            [byte, ..] => {
                return Err(Fault::new(
                    FaultCode::NotEncodable,
                    format!("the file is {encoding}, which has no place for the byte \\x{byte:02x}"),
                )
                .hint("write the character itself instead of an escape"));
            }
        };
    }
    Ok(out)
}

/// What ends the lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Eol {
    /// `\n`
    Lf,
    /// `\r\n`
    Crlf,
    /// `\r` alone
    Cr,
    /// More than one of them.
    Mixed,
    /// There is no line end.
    None,
}

/// What ends the lines of a text.
pub fn eol(text: &str) -> Eol {
    EolCount::of(text.as_bytes()).eol()
}

/// How many lines end in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EolCount {
    /// Lines that end in `\n` alone.
    pub lf: u64,
    /// Lines that end in `\r\n`.
    pub crlf: u64,
    /// Lines that end in `\r` alone.
    pub cr: u64,
}

impl EolCount {
    /// Counts in bytes of UTF-8 (or of [`to_plain`]).
    pub fn of(plain: &[u8]) -> Self {
        Self::of_lines(plain, lines(plain))
    }

    /// The same, where the lines are known.
    pub fn of_lines(plain: &[u8], lines: impl IntoIterator<Item = Line>) -> Self {
        let mut count = Self::default();
        lines.into_iter().for_each(|line| count.add(line.eol_bytes(plain)));
        count
    }

    /// Counts one more line end, given as its bytes; nothing for the empty one of a last line.
    pub fn add(&mut self, eol: &[u8]) {
        match eol {
            b"\n" => self.lf += 1,
            b"\r\n" => self.crlf += 1,
            b"\r" => self.cr += 1,
            _ => {}
        }
    }

    /// The summary.
    pub fn eol(&self) -> Eol {
        match (self.lf, self.crlf, self.cr) {
            (0, 0, 0) => Eol::None,
            (_, 0, 0) => Eol::Lf,
            (0, _, 0) => Eol::Crlf,
            (0, 0, _) => Eol::Cr,
            _ => Eol::Mixed,
        }
    }

    /// The line end that most lines have; `\n` where there is none.
    pub fn dominant(&self) -> &'static [u8] {
        if self.crlf > self.lf && self.crlf >= self.cr {
            b"\r\n"
        } else if self.cr > self.lf {
            b"\r"
        } else {
            b"\n"
        }
    }
}

/// Where a line is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Where it begins.
    pub start: usize,
    /// Where its text ends and its line end begins.
    pub text_end: usize,
    /// Where its line end ends; equal to `text_end` for a last line without one.
    pub end: usize,
}

impl Line {
    /// The line without its line end.
    pub fn text<'a>(&self, plain: &'a [u8]) -> &'a [u8] {
        &plain[self.start..self.text_end]
    }

    /// The line with its line end.
    pub fn whole<'a>(&self, plain: &'a [u8]) -> &'a [u8] {
        &plain[self.start..self.end]
    }

    /// Its line end.
    pub fn eol_bytes<'a>(&self, plain: &'a [u8]) -> &'a [u8] {
        &plain[self.text_end..self.end]
    }
}

/// The lines of UTF-8 (or of [`to_plain`]), ended by LF, CRLF or CR alone. Empty text has no line, and a line end at the very end
/// begins no further one.
pub fn lines(plain: &[u8]) -> Lines<'_> {
    Lines { plain, at: 0 }
}

/// See [`lines`].
#[derive(Clone, Debug)]
pub struct Lines<'a> {
    plain: &'a [u8],
    at: usize,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let start = self.at;
        if start >= self.plain.len() {
            return None;
        }
        let length = memchr::memchr2(b'\n', b'\r', &self.plain[start..]);
        let text_end = length.map_or(self.plain.len(), |length| start + length);
        self.at = match &self.plain[text_end..] {
            [b'\r', b'\n', ..] => text_end + 2,
            [_, ..] => text_end + 1,
            [] => text_end,
        };
        Some(Line { start, text_end, end: self.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodings_are_told_by_their_first_bytes() {
        for (bytes, encoding) in [
            (&b""[..], Encoding::Utf8),
            (b"plain\r\n", Encoding::Utf8),
            ("na\u{ef}ve \u{65e5}".as_bytes(), Encoding::Utf8),
            (b"cut \xe6\x97", Encoding::Utf8),
            (b"\xef\xbb\xbfhello\n", Encoding::Utf8Bom),
            (b"\xff\xfeh\0i\0\n\0", Encoding::Utf16Le),
            (b"\xfe\xff\0h\0i\0\n", Encoding::Utf16Be),
            (b"\xff\xfe\0\0h\0\0\0", Encoding::Bytes),
            (b"caf\xe9 and more", Encoding::Bytes),
            (b"\xef\xbb\xbfcaf\xe9 and more", Encoding::Bytes),
        ] {
            assert_eq!(detect(bytes), encoding, "{bytes:?}");
        }
        assert_eq!(detect_whole(b"cut \xe6\x97"), Encoding::Bytes);
        assert_eq!(serde_json::to_string(&Encoding::Utf16Le).unwrap(), "\"utf-16le\"");
    }

    #[test]
    fn binary_is_a_nul_outside_of_utf16_or_a_magic_number() {
        for binary in [&b"\x7fELF\x00\x01\xff\n"[..], b"text\0text", b"\x89PNG\r\n\x1a\n", b"%PDF-1.7\n", b"\x1f\x8b\x08"] {
            assert!(is_binary(binary), "{binary:?}");
        }
        for text in [&b""[..], b"text", b"caf\xe9\n", b"\xff\xfeh\0i\0", b"\xef\xbb\xbfx"] {
            assert!(!is_binary(text), "{text:?}");
        }
    }

    #[test]
    fn only_what_is_no_character_is_escaped() {
        for (bytes, text) in [
            (&b"caf\xe9"[..], "caf\\xe9"),
            (b"\xe9 a\\\\b \\x1b \\d\n", "\\xe9 a\\\\b \\x1b \\d\n"),
            (b"\xe9 \\xe9", "\\xe9 \\\\xe9"),
            (b"\\\xe9", "\\\\\\xe9"),
        ] {
            assert_eq!(decode(bytes, Encoding::Bytes), text);
            assert_eq!(encode(text, Encoding::Bytes).unwrap(), bytes);
        }
        assert_eq!(decode(b"\\xe9 \n", Encoding::Utf8), "\\xe9 \n");
    }

    #[test]
    fn a_byte_inside_of_utf16_is_refused() {
        let fault = encode("a\\xe9b", Encoding::Utf16Le).unwrap_err();
        assert_eq!(fault.code(), FaultCode::NotEncodable);
        assert_eq!(encode("h\u{1f600}", Encoding::Utf16Be).unwrap(), b"\0h\xd8\x3d\xde\0");
    }

    #[test]
    fn lines_end_in_lf_crlf_or_cr() {
        let text = b"a\nb\r\nc\rd\r\r\n\ne";
        let found: Vec<(&[u8], &[u8])> = lines(text).map(|line| (line.text(text), line.eol_bytes(text))).collect();
        let expected: Vec<(&[u8], &[u8])> =
            vec![(b"a", b"\n"), (b"b", b"\r\n"), (b"c", b"\r"), (b"d", b"\r"), (b"", b"\r\n"), (b"", b"\n"), (b"e", b"")];
        assert_eq!(found, expected);
        for (text, summary) in
            [("", Eol::None), ("a", Eol::None), ("a\n", Eol::Lf), ("a\r\n", Eol::Crlf), ("a\r", Eol::Cr), ("a\r\n\n", Eol::Mixed)]
        {
            assert_eq!(eol(text), summary, "{text:?}");
        }
    }

    fn hostile() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'e'), Just(b'9'), Just(0xd8), Just(0), Just(b'\n'), Just(b'\r')];
        prop::collection::vec(byte, 0..60)
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn decoding_loses_nothing(bytes in hostile()) {
            for encoding in [Encoding::Bytes, Encoding::Utf16Le, Encoding::Utf16Be] {
                let text = decode(&bytes, encoding);
                prop_assert_eq!(encode(&text, encoding).unwrap(), &bytes[..], "{} {:?}", encoding, text);
                prop_assert_eq!(from_plain(&to_plain(&bytes, encoding), encoding).unwrap(), &bytes[..]);
            }
            prop_assert_eq!(unescape_text(&escape_text(&bytes)), &bytes[..]);
        }

        #[test]
        fn text_is_itself_in_utf8(text in ".*") {
            prop_assert_eq!(decode(text.as_bytes(), Encoding::Utf8), &text[..]);
            prop_assert_eq!(encode(&text, Encoding::Utf8).unwrap(), text.as_bytes());
        }

        #[test]
        fn lines_cover_every_byte_once(bytes in hostile()) {
            let mut at = 0;
            for line in lines(&bytes) {
                prop_assert_eq!(line.start, at);
                prop_assert!(line.end > line.start);
                at = line.end;
            }
            prop_assert_eq!(at, bytes.len());
        }

        #[test]
        fn a_cut_character_is_still_a_character(text in "\\PC{1,20}", cut in 0usize..80) {
            prop_assert_eq!(detect(&text.as_bytes()[..cut.min(text.len())]), Encoding::Utf8);
        }
    }
}
