//! The output of a program, bounded while it arrives: everything while it is small, else its head, its tail and what looked
//! like failures between them, with an exact count of what was dropped at each place.
//!
//! Memory is bounded by [`Keep`], whatever is written and for however long.

use super::middle::Middle;
use super::unfinished_char;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// An amount of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    /// Bytes.
    pub bytes: u64,
    /// Line ends.
    pub lines: u64,
}

impl Extent {
    /// What these bytes amount to.
    pub fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, lines: memchr::memchr_iter(b'\n', bytes).count() as u64 }
    }

    /// Nothing at all.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl std::ops::AddAssign for Extent {
    fn add_assign(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.lines += other.lines;
    }
}

/// An amount of output, by stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Of standard output.
    pub stdout: Extent,
    /// Of standard error.
    pub stderr: Extent,
}

impl Amount {
    /// The amount of one stream.
    pub fn of(&self, stream: Stream) -> Extent {
        match stream {
            Stream::Stdout => self.stdout,
            Stream::Stderr => self.stderr,
        }
    }

    /// The amount of both streams.
    pub fn both(&self) -> Extent {
        let mut sum = self.stdout;
        sum += self.stderr;
        sum
    }

    /// Counts more of one stream.
    pub fn add(&mut self, stream: Stream, extent: Extent) {
        match stream {
            Stream::Stdout => self.stdout += extent,
            Stream::Stderr => self.stderr += extent,
        }
    }
}

impl std::ops::AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        self.stdout += other.stdout;
        self.stderr += other.stderr;
    }
}

/// What was kept of a program's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Captured {
    /// The pieces kept, in order of arrival. Of two streams that write lines at the same time, a line stays together where
    /// the writer buffers its output in blocks.
    pub chunks: Vec<Chunk>,
    /// All bytes that were written to standard output, the dropped ones included.
    pub stdout_bytes: u64,
    /// All bytes that were written to standard error, the dropped ones included.
    pub stderr_bytes: u64,
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    /// Which stream.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// What was dropped just before this piece.
    pub dropped_before: Amount,
}

/// How much is kept, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// From the beginning.
    pub head: usize,
    /// From the end.
    pub tail: usize,
    /// Of what looked like failures between the two.
    pub failures: usize,
}

impl Default for Keep {
    fn default() -> Self {
        Self { head: 256 << 10, tail: 256 << 10, failures: 128 << 10 }
    }
}

/// Reads of at least this size come from a writer that buffers in blocks (stdio's buffer has this size): where such a read
/// ends within a line, that is no moment at which the program meant to be seen.
const BLOCK: usize = 4096;
/// The longest part of a line that is held back until the rest of it arrives.
const HELD: usize = 64 << 10;
/// The largest piece of the tail's ring. Smaller writes are joined, so that a program that writes single bytes does not cost a
/// piece for each; larger ones are cut, so that what leaves the ring is small against it.
const JOINED: usize = 16 << 10;
/// What a piece costs beside its bytes.
const PIECE: usize = 128;

/// Takes bytes as they arrive from two pipes and keeps a bounded part of them.
#[derive(Clone, Debug)]
pub struct Collector {
    keep: Keep,
    head: Vec<(Stream, Vec<u8>)>,
    head_len: usize,
    head_closed: bool,
    tail: VecDeque<(Stream, Vec<u8>)>,
    tail_cost: usize,
    middle: Middle,
    held: [Vec<u8>; 2],
    stdout_bytes: u64,
    stderr_bytes: u64,
}

impl Default for Collector {
    fn default() -> Self {
        Self::new(Keep::default())
    }
}

impl Collector {
    /// A collector with these bounds.
    pub fn new(keep: Keep) -> Self {
        Self {
            keep,
            head: Vec::new(),
            head_len: 0,
            head_closed: false,
            tail: VecDeque::new(),
            tail_cost: 0,
            middle: Middle::new(keep.failures),
            held: [Vec::new(), Vec::new()],
            stdout_bytes: 0,
            stderr_bytes: 0,
        }
    }

    /// All bytes so far, of both streams.
    pub fn total_bytes(&self) -> u64 {
        self.stdout_bytes + self.stderr_bytes
    }

    /// Takes what one read of one pipe gave.
    pub fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout_bytes += bytes.len() as u64,
            Stream::Stderr => self.stderr_bytes += bytes.len() as u64,
        }
        let in_block = bytes.len() >= BLOCK;
        let held = &mut self.held[stream as usize];
        let joined;
        let bytes = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            joined = std::mem::take(held);
            &joined
        };
        let mut split = bytes.len() - unfinished_char(bytes);
        if in_block {
            let line = memchr::memrchr(b'\n', bytes).map_or(0, |at| at + 1);
            if bytes.len() - line <= HELD {
                split = line;
            }
        }
        self.held[stream as usize] = bytes[split..].to_vec();
        self.take(stream, &bytes[..split]);
    }

    /// What is kept.
    pub fn finish(mut self) -> Captured {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let held = std::mem::take(&mut self.held[stream as usize]);
            self.take(stream, &held);
        }
        let (kept, mut dropped) = self.middle.finish();
        if !dropped.both().is_empty() || !kept.is_empty() {
            // Something was dropped, so the tail begins wherever the ring happened to be cut: let it begin with a line.
            if let Some((stream, piece)) = self.tail.front_mut() {
                let near = &piece[..piece.len().min(BLOCK)];
                let start = memchr::memchr(b'\n', near).map_or(0, |at| at + 1);
                dropped.add(*stream, Extent::of(&piece[..start]));
                piece.drain(..start);
            }
        }
        let whole = Amount::default();
        let mut chunks: Vec<Chunk> = self.head.into_iter().map(|(stream, bytes)| Chunk { stream, bytes, dropped_before: whole }).collect();
        chunks.extend(kept);
        for (stream, bytes) in self.tail {
            if !bytes.is_empty() {
                chunks.push(Chunk { stream, bytes, dropped_before: std::mem::take(&mut dropped) });
            }
        }
        if !dropped.both().is_empty() {
            chunks.push(Chunk { stream: Stream::Stdout, bytes: Vec::new(), dropped_before: dropped });
        }
        Captured { chunks, stdout_bytes: self.stdout_bytes, stderr_bytes: self.stderr_bytes }
    }

    fn take(&mut self, stream: Stream, mut bytes: &[u8]) {
        if !self.head_closed {
            let room = self.keep.head.saturating_sub(self.head_len);
            let mut split = bytes.len();
            if split > room {
                self.head_closed = true;
                split = match memchr::memrchr(b'\n', &bytes[..room]) {
                    Some(at) if room - at < BLOCK => at + 1,
                    None if room < BLOCK && self.head.last().is_none_or(|(_, piece)| piece.ends_with(b"\n")) => 0,
                    _ => room - unfinished_char(&bytes[..room]),
                };
            }
            if split > 0 {
                match self.head.last_mut() {
                    Some((last, piece)) if *last == stream => piece.extend_from_slice(&bytes[..split]),
                    _ => {
                        self.head.push((stream, bytes[..split].to_vec()));
                        self.head_len += PIECE;
                    }
                }
                self.head_len += split;
                bytes = &bytes[split..];
            }
        }
        let piece_size = JOINED.min(self.keep.tail / 8).max(64);
        while !bytes.is_empty() {
            let mut split = bytes.len().min(piece_size);
            if split < bytes.len() {
                split -= unfinished_char(&bytes[..split]);
            }
            let (piece, rest) = bytes.split_at(split);
            bytes = rest;
            match self.tail.back_mut() {
                Some((last, joined)) if *last == stream && joined.len() + piece.len() <= piece_size => joined.extend_from_slice(piece),
                _ => {
                    self.tail.push_back((stream, piece.to_vec()));
                    self.tail_cost += PIECE;
                }
            }
            self.tail_cost += piece.len();
            while let Some((_, front)) = self.tail.front()
                && self.tail_cost - front.len() - PIECE >= self.keep.tail
            {
                self.tail_cost -= front.len() + PIECE;
                if let Some((stream, front)) = self.tail.pop_front() {
                    self.middle.take(stream, &front);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SMALL: Keep = Keep { head: 3000, tail: 3000, failures: 2000 };

    fn text(captured: &Captured) -> String {
        captured.chunks.iter().map(|chunk| String::from_utf8_lossy(&chunk.bytes).into_owned()).collect()
    }

    fn accounted(captured: &Captured) -> u64 {
        captured.chunks.iter().map(|chunk| chunk.bytes.len() as u64 + chunk.dropped_before.both().bytes).sum()
    }

    #[test]
    fn small_output_is_whole_and_in_order() {
        let mut collector = Collector::default();
        collector.push(Stream::Stdout, b"one\n");
        collector.push(Stream::Stderr, b"two\n");
        collector.push(Stream::Stdout, b"three");
        let captured = collector.finish();
        assert_eq!(text(&captured), "one\ntwo\nthree");
        assert_eq!(captured.chunks.len(), 3);
        assert_eq!((captured.stdout_bytes, captured.stderr_bytes), (9, 4));
        assert!(captured.chunks.iter().all(|chunk| chunk.dropped_before == Amount::default()));
    }

    #[test]
    fn a_block_that_ends_within_a_line_does_not_tear_it() {
        let mut collector = Collector::default();
        let mut block = "x\n".repeat(2047);
        block.push_str("ab");
        collector.push(Stream::Stdout, block.as_bytes());
        collector.push(Stream::Stderr, b"warning\n");
        collector.push(Stream::Stdout, b"cd\n");
        assert!(text(&collector.finish()).ends_with("x\nwarning\nabcd\n"));
    }

    #[test]
    fn a_split_character_waits_for_its_rest() {
        let mut collector = Collector::default();
        let euro = "€".as_bytes();
        collector.push(Stream::Stdout, &euro[..2]);
        collector.push(Stream::Stderr, b"e\n");
        collector.push(Stream::Stdout, &euro[2..]);
        assert_eq!(text(&collector.finish()), "e\n€");
    }

    #[test]
    fn failures_in_the_middle_are_kept_with_exact_gaps() {
        let mut collector = Collector::new(SMALL);
        let mut written = Amount::default();
        for number in 0..20_000 {
            let line = if number == 9_000 { "src/a.c:3:5: error: expected ';'\n".into() } else { format!("line {number}\n") };
            written.add(Stream::Stdout, Extent::of(line.as_bytes()));
            collector.push(Stream::Stdout, line.as_bytes());
        }
        let captured = collector.finish();
        let shown = text(&captured);
        assert!(shown.starts_with("line 0\n") && shown.ends_with("line 19999\n"));
        assert!(shown.contains("line 8999\nsrc/a.c:3:5: error: expected ';'\nline 9001\n"));
        let mut sum = Amount::default();
        let mut line_ended = true;
        for chunk in &captured.chunks {
            assert!(line_ended || chunk.dropped_before.both().is_empty());
            line_ended = chunk.bytes.ends_with(b"\n");
            sum += chunk.dropped_before;
            sum.add(chunk.stream, Extent::of(&chunk.bytes));
        }
        assert_eq!(sum, written);
        assert_eq!(captured.chunks.iter().filter(|chunk| !chunk.dropped_before.both().is_empty()).count(), 2);
    }

    #[test]
    fn a_flood_of_failures_stays_bounded_and_keeps_the_first_and_the_last() {
        let mut collector = Collector::new(SMALL);
        let word = |number: u32| number.to_string().bytes().map(|digit| char::from(digit + 49)).collect::<String>();
        for number in 0..50_000 {
            collector.push(Stream::Stderr, format!("error: cannot open file {}\n", word(number)).as_bytes());
        }
        let captured = collector.finish();
        let kept: usize = captured.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(kept < 12_000, "{kept}");
        assert_eq!(accounted(&captured), captured.stderr_bytes);
    }

    #[test]
    fn a_line_of_fifty_megabytes_is_bounded() {
        let mut collector = Collector::default();
        let block = vec![b'a'; 1 << 20];
        for _ in 0..50 {
            collector.push(Stream::Stdout, &block);
        }
        let captured = collector.finish();
        let kept: usize = captured.chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        assert!(kept <= 600 << 10);
        assert_eq!(accounted(&captured), 50 << 20);
    }

    #[test]
    fn single_bytes_of_two_streams_in_turn_stay_bounded() {
        let mut collector = Collector::new(SMALL);
        for _ in 0..100_000 {
            collector.push(Stream::Stdout, b"o");
            collector.push(Stream::Stderr, b"e");
        }
        let captured = collector.finish();
        assert!(captured.chunks.len() < 200);
        assert_eq!(accounted(&captured), 200_000);
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(256))]

        #[test]
        fn every_byte_is_shown_or_counted(pieces in prop::collection::vec((any::<bool>(), prop_oneof![
            "[a-z €\n]{0,300}".prop_map(String::into_bytes),
            Just(b"error: bad thing\n".to_vec()),
            Just(b"Traceback (most recent call last):\n  File x\nValueError: y\n".to_vec()),
            prop::collection::vec(any::<u8>(), 0..200),
            (1usize..6000).prop_map(|n| vec![b'y'; n]),
        ]), 0..80)) {
            let mut collector = Collector::new(Keep { head: 500, tail: 500, failures: 400 });
            let mut written = Amount::default();
            for (err, bytes) in &pieces {
                let stream = if *err { Stream::Stderr } else { Stream::Stdout };
                written.add(stream, Extent::of(bytes));
                collector.push(stream, bytes);
            }
            let captured = collector.finish();
            let mut sum = Amount::default();
            for chunk in &captured.chunks {
                sum += chunk.dropped_before;
                sum.add(chunk.stream, Extent::of(&chunk.bytes));
            }
            prop_assert_eq!(sum, written);
        }
    }
}
