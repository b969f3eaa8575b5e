//! One worker of a search: which files, and what is in them. Files are read, never mapped: a mapped file that shrinks kills.

use super::hits::{FileHits, Kept, Key};
use super::line::{Line, Role};
use super::odd::{self, Odd, trim};
use crate::tools::glob::Globs;
use crate::tools::ls::newest_first;
use crate::tools::source::HEAD;
use crate::tools::walk::{Entry, Skipped, Visit, Want, os};
use crate::workspace::decode::{self, Encoding};
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::escape;
use grep_matcher::{LineTerminator, Matcher};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch};
use ignore::types::Types;
use nix::errno::Errno;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

/// A file of at most this many bytes is read whole; a larger one is streamed.
const WHOLE: u64 = 16 << 20;

/// A larger file is not searched where it cannot be streamed (across lines, in UTF-16), nor is a longer line anywhere.
const LARGEST: u64 = 64 << 20;

/// At most this many lines of one match across lines are shown.
const MATCH_LINES: usize = 50;

/// What files hold the answer to, and how much of it is kept.
pub(super) struct Search<'a> {
    pub(super) kept: &'a Kept,
    /// Keep lines; else only count them.
    pub(super) lines: bool,
    /// One match is enough to know.
    pub(super) first_only: bool,
    /// Files are the units of the list, not matching lines.
    pub(super) units_are_files: bool,
    pub(super) newest_first: bool,
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) max_per_file: u64,
    /// Lines that are kept of one file.
    pub(super) keep: u64,
    pub(super) invert: bool,
    pub(super) multiline: bool,
    pub(super) glob: &'a Globs,
    pub(super) exclude: &'a Globs,
    pub(super) types: Option<&'a Types>,
    pub(super) until: Instant,
}

/// What became of the files that were looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub(super) struct Counts {
    /// Files that were searched.
    pub(super) searched: u64,
    /// Entries that ignore rules left out; what is in an ignored folder is not counted.
    pub(super) ignored: u64,
    /// Files that are no text.
    pub(super) binary: u64,
    /// Files, or lines of them, that are too large.
    pub(super) too_large: u64,
    /// Files that could not be opened or read.
    pub(super) unreadable: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: Self) {
        self.searched += other.searched;
        self.ignored += other.ignored;
        self.binary += other.binary;
        self.too_large += other.too_large;
        self.unreadable += other.unreadable;
    }
}

/// One worker.
pub(super) struct Worker<'a, M> {
    search: &'a Search<'a>,
    matcher: M,
    searcher: Searcher,
    buffer: Vec<u8>,
    pub(super) counts: Counts,
    /// Files in whose search something went wrong.
    pub(super) skipped: Vec<Skipped>,
}

impl<'a, M: Matcher> Worker<'a, M> {
    pub(super) fn new(search: &'a Search<'a>, matcher: M) -> Self {
        let searcher = searcher(search);
        Self { search, matcher, searcher, buffer: Vec::new(), counts: Counts::default(), skipped: Vec::new() }
    }

    /// Searches an open file; `path` is from the base.
    pub(super) fn search_file(&mut self, mut file: File, path: &[u8]) {
        // A fault of ours in one file loses that file and says so; it never loses the others.
        let Ok(searched) = catch_unwind(AssertUnwindSafe(|| self.try_file(&mut file, path))) else {
            self.searcher = searcher(self.search);
            self.counts.unreadable += 1;
            self.search.kept.cut_short();
            self.skipped.push(Skipped { path: escape::escape(path), reason: "a bug in grep: the search of this file broke off".into() });
            return;
        };
        match searched {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::TimedOut => self.search.kept.cut_short(),
            Err(error) if error.get_ref().is_some() => self.counts.too_large += 1,
            Err(_) => self.counts.unreadable += 1,
        }
    }

    fn try_file(&mut self, file: &mut File, path: &[u8]) -> io::Result<()> {
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(());
        }
        // One byte more than the file has: the end is then seen without another read.
        let first = usize::try_from(meta.len().min(HEAD as u64 * 8)).unwrap_or(HEAD) + 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut filled = fill(file, &mut buffer, 0, first)?;
        let head = &buffer[..filled.min(HEAD)];
        if decode::is_binary(head) {
            self.counts.binary += 1;
            self.buffer = buffer;
            return Ok(());
        }
        let encoding = decode::detect(head);
        let rank = if self.search.newest_first { newest_first(nix::sys::stat::fstat(&*file).ok()) } else { 0 };
        let whole = meta.len() <= WHOLE || ((self.search.multiline || encoding.is_utf16()) && meta.len() <= LARGEST);
        let result = if whole {
            if filled == first {
                let most = usize::try_from(LARGEST).unwrap_or(usize::MAX);
                let want = usize::try_from(meta.len()).unwrap_or(most).min(most) + 1;
                filled = fill(file, &mut buffer, filled, want)?;
            }
            self.counts.searched += 1;
            self.slice(&buffer[..filled], encoding, rank, path)
        } else if self.search.multiline || encoding.is_utf16() {
            self.counts.too_large += 1;
            Ok(())
        } else {
            self.counts.searched += 1;
            self.stream(&buffer[encoding.bom().len()..filled], file, encoding, rank, path)
        };
        self.buffer = buffer;
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        result
    }

    fn slice(&mut self, bytes: &[u8], encoding: Encoding, rank: u128, path: &[u8]) -> io::Result<()> {
        let text = bytes.strip_prefix(encoding.bom()).unwrap_or(bytes);
        let plain = decode::to_plain(text, encoding);
        let whole = (!encoding.is_utf16()).then_some(bytes);
        let place = Place { rank, path, encoding, whole };
        let is_odd = odd::is_odd(&plain, if encoding == Encoding::Utf8 || encoding == Encoding::Utf8Bom { HEAD - 8 } else { 0 });
        if is_odd && self.search.multiline && plain.len() as u64 > WHOLE {
            self.counts.searched -= 1;
            self.counts.too_large += 1;
            return Ok(());
        }
        let mut hits = self.run(&place, &plain, is_odd)?;
        if (hits.count > 0 || self.search.multiline) && has_lone_cr(&plain) {
            // Lines that end in CR alone are lines to read and edit, so they are here; of the same length, nothing moves.
            let by_line = self.run(&place, &cr_to_lf(&plain), is_odd)?;
            if by_line.count > 0 || !self.search.multiline {
                hits = by_line;
            }
        }
        self.search.take(rank, path, hits);
        Ok(())
    }

    fn stream(&mut self, head: &[u8], file: &mut File, encoding: Encoding, rank: u128, path: &[u8]) -> io::Result<()> {
        let mut place = Place { rank, path, encoding, whole: None };
        let start = file.stream_position()?;
        // Without line ends of its own the matcher is the one that takes only text.
        let mut is_odd = encoding == Encoding::Bytes || self.matcher.line_terminator().is_none();
        loop {
            let mut reader = Timed { inner: head.chain(&mut *file), until: self.search.until, utf8: (!is_odd).then(Utf8::default) };
            let (mut hits, result) = if is_odd {
                let matcher = Odd::new(&self.matcher, None);
                let mut sink = Collect::new(&matcher, self.search, &place);
                let result = self.searcher.search_reader(&matcher, &mut reader, &mut sink);
                (sink.hits, result)
            } else {
                let mut sink = Collect::new(&self.matcher, self.search, &place);
                let result = self.searcher.search_reader(&self.matcher, &mut reader, &mut sink);
                (sink.hits, result)
            };
            // Bytes of no character came up where the head had none: once more, as such.
            if reader.utf8.is_some_and(|utf8| utf8.is_broken()) {
                is_odd = true;
                place.encoding = Encoding::Bytes;
                file.seek(SeekFrom::Start(start))?;
                continue;
            }
            hits.partial = result.is_err();
            self.search.take(rank, path, hits);
            return result;
        }
    }

    fn run(&mut self, place: &Place<'_>, plain: &[u8], is_odd: bool) -> io::Result<FileHits> {
        if !is_odd {
            return run(&mut self.searcher, &self.matcher, self.search, place, plain);
        }
        let matcher = Odd::new(&self.matcher, self.search.multiline.then_some(plain));
        run(&mut self.searcher, &matcher, self.search, place, plain)
    }
}

fn searcher(search: &Search<'_>) -> Searcher {
    let context = |lines: u64| usize::try_from(lines).unwrap_or(usize::MAX);
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .invert_match(search.invert)
        .line_number(search.lines)
        .multi_line(search.multiline)
        .before_context(context(if search.lines { search.before } else { 0 }))
        .after_context(context(if search.lines { search.after } else { 0 }))
        .heap_limit(usize::try_from(LARGEST).ok())
        .binary_detection(BinaryDetection::none())
        .bom_sniffing(false)
        .build()
}

fn run<M: Matcher>(searcher: &mut Searcher, matcher: &M, search: &Search<'_>, place: &Place<'_>, plain: &[u8]) -> io::Result<FileHits> {
    let mut sink = Collect::new(matcher, search, place);
    searcher.search_slice(matcher, plain, &mut sink)?;
    Ok(sink.hits)
}

impl Search<'_> {
    fn take(&self, rank: u128, path: &[u8], mut hits: FileHits) {
        if hits.count == 0 {
            return;
        }
        hits.units = if self.units_are_files { 1 } else { hits.count.min(self.max_per_file) };
        self.kept.add(Key { rank, path: path.to_vec() }, hits);
    }

    /// Whether a file is among those to be searched.
    pub(super) fn accepts(&self, path: &[u8], below: &[u8], name: &[u8]) -> bool {
        self.types.is_none_or(|types| !types.matched(Path::new(os(name)), false).is_ignore())
            && (self.glob.is_empty() || self.glob.matches_either(path, below, name, false))
    }
}

impl<M: Matcher + Send> Visit for Worker<'_, M> {
    fn entry(&mut self, entry: &Entry<'_>) -> Want {
        let is_folder = entry.kind == Kind::Folder;
        if !self.search.exclude.is_empty() && self.search.exclude.matches_either(entry.path, entry.below, entry.name, is_folder) {
            return Want::Prune;
        }
        if entry.kind == Kind::File && self.search.accepts(entry.path, entry.below, entry.name) { Want::Content } else { Want::Nothing }
    }

    fn file(&mut self, dir: &OpenDir, name: &OsStr, path: &[u8]) {
        match dir.file(Path::new(name)) {
            Ok(file) => self.search_file(file, path),
            // Gone, or swapped for a link, since it was listed.
            Err(Errno::ENOENT | Errno::ELOOP) => {}
            Err(_) => self.counts.unreadable += 1,
        }
    }
}

/// A file in a search.
struct Place<'a> {
    rank: u128,
    path: &'a [u8],
    encoding: Encoding,
    /// All its bytes, where they are at hand and not UTF-16.
    whole: Option<&'a [u8]>,
}

struct Collect<'a, M> {
    matcher: &'a M,
    search: &'a Search<'a>,
    place: &'a Place<'a>,
    encoding: Encoding,
    /// Whether lines are kept, once there is one.
    keep: Option<bool>,
    hits: FileHits,
    /// Matching lines that are kept.
    stored: u64,
    /// The number of the last line that is kept.
    last: u64,
}

impl<'a, M: Matcher> Collect<'a, M> {
    fn new(matcher: &'a M, search: &'a Search<'a>, place: &'a Place<'a>) -> Self {
        let hits = FileHits::default();
        Self { matcher, search, place, encoding: place.encoding, keep: None, hits, stored: 0, last: 0 }
    }

    /// Whether lines are kept. What it takes to know is only looked up for files in which something is found.
    fn keeps(&mut self) -> bool {
        if let Some(keep) = self.keep {
            return keep;
        }
        let keep = self.search.lines && self.search.kept.wants(&Key { rank: self.place.rank, path: self.place.path.to_vec() });
        if keep && let Some(whole) = self.place.whole {
            self.encoding = decode::detect_whole(whole);
        }
        self.keep = Some(keep);
        keep
    }

    fn push(&mut self, number: u64, line: &[u8], role: Role, found: Option<std::ops::Range<usize>>) {
        self.hits.lines.push(Line::new(number, line, role, found, self.encoding));
        self.last = number;
    }
}

impl<M: Matcher> Sink for Collect<'_, M> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.hits.count += 1;
        if self.search.first_only {
            return Ok(false);
        }
        let most = self.search.keep.min(self.search.max_per_file);
        if self.stored >= most || !self.keeps() {
            return Ok(true);
        }
        self.stored += 1;
        let number = found.line_number().unwrap_or(0);
        let range = found.bytes_range_in_buffer();
        let position = if self.search.invert {
            None
        } else if self.search.multiline {
            // What stands before the lines of the match may be what it looks behind at.
            let text = found.buffer().get(..range.end).unwrap_or(found.bytes());
            self.matcher
                .find_at(text, range.start)
                .ok()
                .flatten()
                .map(|found| found.start().saturating_sub(range.start)..found.end() - range.start)
        } else {
            self.matcher.find(trim(found.bytes())).ok().flatten().map(|found| found.start()..found.end())
        };
        let mut start = 0;
        let mut begun = position.is_none();
        for (index, line) in found.lines().take(MATCH_LINES).enumerate() {
            let end = start + line.len();
            let here = position.as_ref().filter(|position| !begun && position.start < end.max(start + 1));
            let within = here.map(|position| position.start - start..position.end.min(end).max(position.start) - start);
            begun |= within.is_some();
            let role = if index == 0 { Role::Match } else { Role::More };
            self.push(number + index as u64, trim(line), role, within);
            start = end;
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, io::Error> {
        let number = context.line_number().unwrap_or(0);
        let full = self.stored >= self.search.keep.min(self.search.max_per_file);
        let belongs = !full || (*context.kind() == SinkContextKind::After && number <= self.last + self.search.after);
        if belongs && self.keeps() {
            self.push(number, trim(context.bytes()), Role::Context, None);
        }
        Ok(true)
    }
}

fn has_lone_cr(plain: &[u8]) -> bool {
    plain.contains(&b'\r') && plain.windows(2).any(|pair| pair[0] == b'\r' && pair[1] != b'\n') || plain.ends_with(b"\r")
}

fn cr_to_lf(plain: &[u8]) -> Vec<u8> {
    let mut lines = plain.to_vec();
    for at in 0..lines.len() {
        if lines[at] == b'\r' && lines.get(at + 1) != Some(&b'\n') {
            lines[at] = b'\n';
        }
    }
    lines
}

/// Reads until the buffer holds `want` bytes, from `filled` on, or the file ends; says how many it holds.
fn fill(file: &mut File, buffer: &mut Vec<u8>, mut filled: usize, want: usize) -> io::Result<usize> {
    if buffer.len() < want {
        buffer.resize(want, 0);
    }
    while filled < want {
        match file.read(&mut buffer[filled..want]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // A regular file gives all it has, or what was asked for.
        if filled + 1 == want {
            break;
        }
    }
    Ok(filled)
}

/// A reader that stops when time is up.
struct Timed<R> {
    inner: R,
    until: Instant,
    /// Whether what came so far is UTF-8, where that is to be known.
    utf8: Option<Utf8>,
}

/// Tells whether text that comes in pieces is UTF-8.
#[derive(Clone, Copy, Default)]
struct Utf8 {
    /// A character that the end of the last piece cut.
    cut: [u8; 4],
    len: usize,
    broken: bool,
}

impl Utf8 {
    fn see(&mut self, mut piece: &[u8]) {
        while self.len > 0 && !self.broken {
            let Some((&byte, rest)) = piece.split_first() else { return };
            self.cut[self.len] = byte;
            self.len += 1;
            piece = rest;
            match std::str::from_utf8(&self.cut[..self.len]) {
                Ok(_) => self.len = 0,
                Err(error) => self.broken = error.error_len().is_some(),
            }
        }
        if !self.broken
            && let Err(error) = std::str::from_utf8(piece)
        {
            self.broken = error.error_len().is_some();
            let cut = &piece[error.valid_up_to()..];
            if !self.broken {
                self.cut[..cut.len()].copy_from_slice(cut);
                self.len = cut.len();
            }
        }
    }

    /// Also when the text ends within a character.
    fn is_broken(self) -> bool {
        self.broken || self.len > 0
    }
}

impl<R: Read> Read for Timed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = self.inner.read(buffer)?;
        if let Some(utf8) = &mut self.utf8 {
            utf8.see(&buffer[..read]);
        }
        Ok(read)
    }
}
