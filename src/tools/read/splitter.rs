//! Pieces of text into lines, of which only those of a window are kept.

use crate::workspace::decode::EolCount;
use crate::workspace::outline::Outliner;

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
    /// What is shown of it, as [`decode::to_plain`] gives it, without its line end.
    pub(super) bytes: Vec<u8>,
    /// Bytes before what is shown.
    pub(super) before: u64,
    /// Bytes after what is shown.
    pub(super) after: u64,
    /// Its line end.
    pub(super) eol: &'static [u8],
}

/// Splits pieces into lines and keeps those of the window.
pub(super) struct Splitter {
    window: Window,
    /// Lines that have ended.
    ended_lines: u64,
    pub(super) lines: Vec<RawLine>,
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
        self.current.bytes.resize(self.current.bytes.len() + usize::try_from(shown).unwrap_or(0), 0);
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
        if shown && self.current.bytes.len() + text.len() <= most && text.is_ascii() {
            self.characters += length;
            self.current.bytes.extend_from_slice(text);
            return;
        }
        for (at, byte) in text.iter().enumerate() {
            if byte & 0xc0 != 0x80 {
                self.characters += 1;
            }
            if self.characters <= self.window.column {
                self.current.before += 1;
            } else if self.characters <= end && self.current.bytes.len() < most {
                self.current.bytes.push(*byte);
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
            line.eol = eol;
            let cost = line.bytes.len() + 1;
            if self.spent + cost > self.window.bytes && !self.lines.is_empty() {
                self.full = true;
            } else {
                self.spent += cost;
                self.lines.push(line);
            }
        }
        self.current = RawLine::default();
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
            let got: Vec<(&[u8], &[u8])> = split.lines.iter().map(|line| (line.bytes.as_slice(), line.eol)).collect();
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
            prop_assert_eq!((counted.count(), counted.lines), (fed.count(), fed.lines));
        }

        #[test]
        fn columns_count_every_byte_once(text in "[a日é]{0,50}", column in 0u64..60) {
            let split = split(&[text.as_bytes()], Window { column, ..ALL });
            for line in &split.lines {
                prop_assert_eq!(line.before + line.after + line.bytes.len() as u64, text.len() as u64);
                let want: String = text.chars().skip(usize::try_from(column).unwrap()).collect();
                prop_assert_eq!(std::str::from_utf8(&line.bytes).unwrap(), want);
            }
        }
    }
}
