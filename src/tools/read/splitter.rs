//! Pieces of text into lines, of which only those of a window are kept.

use crate::workspace::decode::EolCount;
use crate::workspace::outline::Outliner;
use std::ops::Range;

/// Characters of a line that are shown.
pub(super) const LINE: u64 = 2000;

/// Which lines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// The first line, from 1.
    pub(super) first: u64,
    /// How many lines at most.
    pub(super) lines: u64,
    /// How many characters of each line to leave out at its beginning.
    pub(super) column: u64,
    /// How many bytes of text at most.
    pub(super) bytes: usize,
}

/// A line of the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawLine {
    /// Where what is shown of it is in the text of all, without its line end.
    pub(super) place: Range<usize>,
    /// Bytes before what is shown.
    pub(super) before: u64,
    /// Bytes after what is shown.
    pub(super) after: u64,
    /// Its line end.
    pub(super) eol: &'static [u8],
}

/// Splits pieces into lines and keeps those of the window.
pub(super) struct Splitter {
    pub(super) window: Window,
    /// Lines that have ended.
    ended_lines: u64,
    pub(super) lines: Vec<RawLine>,
    /// What is shown of all lines, as [`decode::to_plain`](crate::workspace::decode::to_plain) gives it, with their line ends.
    pub(super) text: Vec<u8>,
    spent: usize,
    /// The window was closed because its text was long.
    pub(super) full: bool,
    pub(super) eols: EolCount,
    /// Whether the last line has a line end.
    pub(super) ended: bool,
    /// The last byte was a CR, whose line ends here or with a LF.
    pending_cr: bool,
    current: RawLine,
    /// Bytes and characters of the current line so far.
    length: u64,
    characters: u64,
    /// What is remembered of all lines, where that is wanted.
    pub(super) outline: Option<Outliner>,
}

impl Splitter {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            ended_lines: 0,
            lines: Vec::new(),
            text: Vec::new(),
            spent: 0,
            full: false,
            eols: EolCount::default(),
            ended: true,
            pending_cr: false,
            current: RawLine::default(),
            length: 0,
            characters: 0,
            outline: None,
        }
    }

    /// All lines so far.
    pub(super) fn count(&self) -> u64 {
        self.ended_lines
    }

    /// Whether the window has all its lines.
    pub(super) fn done(&self) -> bool {
        self.full || self.ended_lines + 1 >= self.window.first.saturating_add(self.window.lines)
    }

    pub(super) fn feed(&mut self, mut text: &[u8]) {
        if text.is_empty() {
            return;
        }
        if self.in_window() {
            self.text.reserve(text.len().min(self.window.bytes));
        }
        if self.pending_cr {
            self.pending_cr = false;
            if let [b'\n', rest @ ..] = text {
                self.finish(b"\r\n");
                text = rest;
            } else {
                self.finish(b"\r");
            }
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', text) {
            let eol: &'static [u8] = match &text[at..] {
                [b'\n', ..] => b"\n",
                [_, b'\n', ..] => b"\r\n",
                [_] => {
                    self.append(&text[..at]);
                    self.pending_cr = true;
                    return;
                }
                _ => b"\r",
            };
            let (line, rest) = text.split_at(at + eol.len());
            if self.length == 0 {
                if let Some(outline) = &mut self.outline {
                    outline.whole_line(line);
                }
                self.show(&line[..at]);
                self.close(eol);
            } else {
                self.append(&line[..at]);
                self.finish(eol);
            }
            text = rest;
        }
        self.append(text);
    }

    /// So many zeros, as if they were fed.
    pub(super) fn feed_zeros(&mut self, mut count: u64) {
        if count == 0 {
            return;
        }
        if self.pending_cr {
            self.pending_cr = false;
            self.finish(b"\r");
        }
        // What is remembered of the lines is that of smaller files, which have no zeros to leave out.
        self.outline = None;
        self.length += count;
        if !self.in_window() {
            return;
        }
        let end = self.window.column.saturating_add(LINE);
        let before = count.min(self.window.column.saturating_sub(self.characters));
        self.current.before += before;
        self.characters += before;
        count -= before;
        let shown = count.min(end.saturating_sub(self.characters)).min(LINE);
        self.text.resize(self.text.len() + usize::try_from(shown).unwrap_or(0), 0);
        self.characters += shown;
        count -= shown;
        if count > 0 {
            self.current.after += count;
            self.characters = end.saturating_add(1);
        }
    }

    pub(super) fn end(&mut self) {
        if self.pending_cr {
            self.pending_cr = false;
            self.finish(b"\r");
        } else if self.length > 0 {
            self.finish(b"");
        }
    }

    /// How much of the current line is shown so far.
    fn shown(&self) -> usize {
        self.text.len() - self.current.place.start
    }

    fn in_window(&self) -> bool {
        !self.full && self.ended_lines + 1 >= self.window.first && !self.done()
    }

    fn append(&mut self, text: &[u8]) {
        self.length += text.len() as u64;
        if let Some(outline) = &mut self.outline {
            outline.feed(text);
        }
        self.show(text);
    }

    /// Keeps what is shown of a piece of the current line.
    fn show(&mut self, text: &[u8]) {
        if !self.in_window() {
            return;
        }
        let end = self.window.column.saturating_add(LINE);
        // Most lines are short and plain: each byte is a character, and all of them are shown.
        let length = text.len() as u64;
        // A line whose bytes are no characters is bounded as well.
        let most = 4 * usize::try_from(LINE).unwrap_or(usize::MAX);
        let shown = self.characters >= self.window.column && self.characters.saturating_add(length) <= end;
        if shown && self.shown() + text.len() <= most && text.is_ascii() {
            self.characters += length;
            self.text.extend_from_slice(text);
            return;
        }
        for (at, byte) in text.iter().enumerate() {
            if byte & 0xc0 != 0x80 {
                self.characters += 1;
            }
            if self.characters <= self.window.column {
                self.current.before += 1;
            } else if self.characters <= end && self.shown() < most {
                self.text.push(*byte);
            } else {
                self.current.after += (text.len() - at) as u64;
                self.characters = end.saturating_add(1);
                return;
            }
        }
    }

    fn finish(&mut self, eol: &'static [u8]) {
        if let Some(outline) = &mut self.outline {
            outline.end_line(eol);
        }
        self.close(eol);
    }

    fn close(&mut self, eol: &'static [u8]) {
        self.eols.add(eol);
        self.ended = !eol.is_empty();
        if self.in_window() {
            let mut line = std::mem::take(&mut self.current);
            line.place.end = self.text.len();
            line.eol = eol;
            let cost = line.place.len() + 1;
            if self.spent + cost > self.window.bytes && !self.lines.is_empty() {
                self.full = true;
                self.text.truncate(line.place.start);
            } else {
                self.spent += cost;
                self.text.extend_from_slice(eol);
                self.lines.push(line);
            }
        }
        self.current = RawLine { place: self.text.len()..0, ..RawLine::default() };
        self.ended_lines += 1;
        self.length = 0;
        self.characters = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::decode;
    use proptest::prelude::*;

    const ALL: Window = Window { first: 1, lines: 1_000_000, column: 0, bytes: 1 << 20 };

    fn split(pieces: &[&[u8]], window: Window) -> Splitter {
        let mut splitter = Splitter::new(window);
        pieces.iter().for_each(|piece| splitter.feed(piece));
        splitter.end();
        splitter
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        /// However it is cut into pieces, a text has the lines that the decoder says it has.
        #[test]
        fn pieces_do_not_matter(text in "[ab\r\n日]{0,60}", cut in 0usize..60, first in 1u64..8, count in 1u64..8) {
            let bytes = text.as_bytes();
            let cut = cut.min(bytes.len());
            let window = Window { first, lines: count, column: 0, bytes: 1 << 20 };
            let split = split(&[&bytes[..cut], &bytes[cut..]], window);
            let all: Vec<decode::Line> = decode::lines(bytes).collect();
            prop_assert_eq!(split.count(), all.len() as u64);
            prop_assert_eq!(split.eols, EolCount::of(bytes));
            let want: Vec<(&[u8], &[u8])> =
                all.iter().skip(first as usize - 1).take(count as usize).map(|line| (line.text(bytes), line.eol_bytes(bytes))).collect();
            let got: Vec<(&[u8], &[u8])> = split.lines.iter().map(|line| (&split.text[line.place.clone()], line.eol)).collect();
            prop_assert_eq!(&split.text, &got.iter().flat_map(|(line, eol)| [*line, *eol]).collect::<Vec<_>>().concat());
            prop_assert_eq!(got, want);
        }

        /// Zeros that are counted are as zeros that are there.
        #[test]
        fn zeros_need_not_be_there(text in "[ab\r\n日]{0,20}", zeros in 1usize..2100, more in "[ab\r\n]{0,20}", first in 1u64..5, column in 0u64..2100) {
            let window = Window { first, lines: 3, column, bytes: 1 << 20 };
            let fed = split(&[text.as_bytes(), &vec![0; zeros], more.as_bytes()], window);
            let mut counted = Splitter::new(window);
            counted.feed(text.as_bytes());
            counted.feed_zeros(zeros as u64);
            counted.feed(more.as_bytes());
            counted.end();
            prop_assert_eq!((counted.count(), counted.lines, counted.text), (fed.count(), fed.lines, fed.text));
        }

        #[test]
        fn columns_count_every_byte_once(text in "[a日é]{0,50}", column in 0u64..60) {
            let split = split(&[text.as_bytes()], Window { column, ..ALL });
            for line in &split.lines {
                prop_assert_eq!(line.before + line.after + line.place.len() as u64, text.len() as u64);
                let want: String = text.chars().skip(usize::try_from(column).unwrap()).collect();
                prop_assert_eq!(std::str::from_utf8(&split.text[line.place.clone()]).unwrap(), want);
            }
        }
    }
}
