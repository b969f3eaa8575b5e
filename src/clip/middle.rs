//! What is kept between head and tail: lines that look like failures, with their context.
//!
//! Half of the room is for the first ones, since the first error is usually the cause, half for the latest ones. A line that
//! differs from earlier ones only in numbers is kept twice.

use super::ansi::plain;
use super::capture::{Amount, Chunk, Extent, Stream};
use super::failure::{Grade, grade, hints, shape};
use std::collections::{HashMap, VecDeque};

/// The longest line that is judged and kept.
const LINE: usize = 8 << 10;
/// Bytes before a failure that are at hand as its context.
const BEHIND: usize = 1 << 10;
/// How many shapes of lines are told apart.
const SHAPES: usize = 4096;
/// How often a shape is kept.
const REPEATS: u8 = 2;

#[derive(Clone, Debug)]
pub(super) struct Middle {
    room: usize,
    first: Vec<Chunk>,
    first_len: usize,
    last: VecDeque<Chunk>,
    last_len: usize,
    /// What was dropped since the last piece kept.
    dropped: Amount,
    /// Bytes of `stream` that are neither kept nor dropped yet: a few judged lines, and a line that has not ended.
    behind: Vec<u8>,
    judged: usize,
    stream: Option<Stream>,
    /// Lines that follow a failure and belong to it.
    owed: usize,
    /// The rest of this line is dropped unseen: it is longer than is looked at.
    in_long_line: bool,
    shapes: HashMap<u64, u8>,
}

impl Middle {
    pub(super) fn new(room: usize) -> Self {
        Self {
            room,
            first: Vec::new(),
            first_len: 0,
            last: VecDeque::new(),
            last_len: 0,
            dropped: Amount::default(),
            behind: Vec::new(),
            judged: 0,
            stream: None,
            owed: 0,
            in_long_line: false,
            shapes: HashMap::new(),
        }
    }

    /// Takes the next bytes of the middle.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8]) {
        if self.stream != Some(stream) {
            self.settle();
            self.stream = Some(stream);
        }
        let mut block = std::mem::take(&mut self.behind);
        block.extend_from_slice(bytes);
        let judged = std::mem::take(&mut self.judged);
        let start = if self.in_long_line {
            match memchr::memchr(b'\n', &block[judged..]) {
                Some(at) => judged + at + 1,
                None => return self.drop_bytes(&block),
            }
        } else {
            judged
        };
        self.in_long_line = false;
        let end = memchr::memrchr(b'\n', &block[start..]).map_or(start, |at| start + at + 1);
        let done = self.judge(&block, start, end);
        // Keep a little behind as context of what comes.
        let mut context = end.saturating_sub(BEHIND).max(done);
        if context > done {
            context = memchr::memchr(b'\n', &block[context..end]).map_or(end, |at| context + at + 1);
        }
        self.drop_bytes(&block[done..context]);
        if block.len() - end > LINE {
            self.drop_bytes(&block[context..]);
            self.in_long_line = true;
            self.owed = 0;
        } else {
            self.judged = end - context;
            block.drain(..context);
            self.behind = block;
        }
    }

    /// The pieces kept, and what was dropped after the last of them.
    pub(super) fn finish(mut self) -> (Vec<Chunk>, Amount) {
        self.settle();
        let mut kept = self.first;
        kept.extend(self.last);
        (kept, self.dropped)
    }

    /// Ends the line that has not ended: the other stream goes on, or nothing does.
    fn settle(&mut self) {
        let block = std::mem::take(&mut self.behind);
        let judged = std::mem::take(&mut self.judged);
        let done = if self.in_long_line { 0 } else { self.judge(&block, judged, block.len()) };
        self.drop_bytes(&block[done..]);
        self.in_long_line = false;
        self.owed = 0;
    }

    /// Judges the lines in `start..end` of a block; everything before the returned position is kept or dropped, for good.
    fn judge(&mut self, block: &[u8], start: usize, end: usize) -> usize {
        let mut done = 0;
        let mut at = start;
        while self.owed > 0 && at < end {
            let next = line_end(block, at, end);
            let line = plain(trimmed(&block[at..next]));
            // A traceback's own end, or an empty line, ends what belongs to the failure.
            self.owed = if line.is_empty() { 0 } else { self.owed - 1 };
            if let Some(grade) = grade(&line) {
                self.owed = self.owed.max(grade.after);
            }
            self.drop_bytes(&block[done..at]);
            self.keep(&block[at..next]);
            (done, at) = (next, next);
        }
        let from = at;
        for hint in hints(&block[from..end]).map(|hint| from + hint) {
            if hint < at {
                continue;
            }
            let line_start = memchr::memrchr(b'\n', &block[at..hint]).map_or(at, |newline| at + newline + 1);
            let mut next = line_end(block, line_start, end);
            let line = plain(trimmed(&block[line_start..next]));
            at = next;
            let Some(grade) = self.news(&line) else { continue };
            let mut context = line_start;
            for _ in 0..grade.before {
                if context > done {
                    context = memchr::memrchr(b'\n', &block[done..context - 1]).map_or(done, |newline| done + newline + 1);
                }
            }
            if line_start - context > BEHIND {
                context = line_start;
            }
            self.owed = grade.after;
            while self.owed > 0 && next < end {
                let following = line_end(block, next, end);
                let line = plain(trimmed(&block[next..following]));
                if line.is_empty() {
                    self.owed = 0;
                    break;
                }
                self.owed -= 1;
                next = following;
            }
            self.drop_bytes(&block[done..context]);
            self.keep(&block[context..next]);
            (done, at) = (next, next);
        }
        done
    }

    /// The grade of a line, unless its shape has been there often enough. Judging costs more than telling shapes apart, so a shape
    /// that has no grade is remembered as well.
    fn news(&mut self, line: &[u8]) -> Option<Grade> {
        let shape = shape(line);
        let known = self.shapes.get(&shape).copied();
        if known.is_some_and(|seen| seen >= REPEATS) {
            return None;
        }
        let grade = grade(line);
        if known.is_some() || self.shapes.len() < SHAPES {
            self.shapes.insert(shape, if grade.is_some() { known.unwrap_or(0) + 1 } else { REPEATS });
        }
        grade
    }

    fn drop_bytes(&mut self, bytes: &[u8]) {
        if let (Some(stream), false) = (self.stream, bytes.is_empty()) {
            self.dropped.add(stream, Extent::of(bytes));
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some(stream) = self.stream else { return };
        if bytes.len() > self.room / 4 || bytes.len() > 2 * LINE {
            return self.drop_bytes(bytes);
        }
        let dropped_before = std::mem::take(&mut self.dropped);
        let chunk = Chunk { stream, bytes: bytes.to_vec(), dropped_before };
        let cost = bytes.len() + std::mem::size_of::<Chunk>();
        if self.last.is_empty() && self.first_len + cost <= self.room / 2 {
            self.first_len += cost;
            self.first.push(chunk);
            return;
        }
        self.last_len += cost;
        self.last.push_back(chunk);
        while self.last_len > self.room / 2 {
            let Some(oldest) = self.last.pop_front() else { break };
            self.last_len -= oldest.bytes.len() + std::mem::size_of::<Chunk>();
            let mut gone = oldest.dropped_before;
            gone.add(oldest.stream, Extent::of(&oldest.bytes));
            match self.last.front_mut() {
                Some(next) => {
                    gone += next.dropped_before;
                    next.dropped_before = gone;
                }
                None => {
                    gone += self.dropped;
                    self.dropped = gone;
                }
            }
        }
    }
}

fn line_end(block: &[u8], at: usize, end: usize) -> usize {
    memchr::memchr(b'\n', &block[at..end]).map_or(end, |newline| at + newline + 1)
}

fn trimmed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}
