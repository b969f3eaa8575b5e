//! A window of lines out of a file that may be of any size: memory is the window and one piece of the file.

use super::HEAD;
use super::splitter::{RawLine, Splitter, Window};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::Hash;
use crate::workspace::decode::{self, Encoding, EolCount};
use crate::workspace::outline::{Outline, Outliner};
use crate::workspace::recent::{self, Recent};
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::time::Instant;

/// A file of at most this many bytes is read to its end: total, hash and encoding are then exact.
pub(super) const SCANNED: u64 = 64 << 20;

/// How much is read at a time.
const PIECE: usize = 128 * 1024;

/// What a scan saw.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) lines: Vec<RawLine>,
    /// What is shown of all lines, with their line ends.
    pub(super) text: Vec<u8>,
    /// All lines that were seen.
    pub(super) total: u64,
    /// Whether the file was seen to its end.
    pub(super) whole: bool,
    pub(super) eols: EolCount,
    /// Whether the last line that was seen has a line end.
    pub(super) ended: bool,
    pub(super) encoding: Encoding,
    pub(super) hash: Option<Hash>,
    /// Of all lines, where they were all seen from the first one on.
    pub(super) outline: Option<Outline>,
    /// The window was closed because its text was long.
    pub(super) full: bool,
}

/// Reads a window from the beginning of a file on. `encoding` is by its first bytes. `head`: the first bytes, which have just been read:
/// all of them where there are fewer than [`HEAD`].
///
/// # Errors
/// `deadline_exceeded` when the window is not reached in time, `io_error`.
pub(super) fn scan(
    file: &mut File,
    head: Option<&[u8]>,
    size: u64,
    encoding: Encoding,
    window: Window,
    until: Instant,
) -> Result<Scan, Fault> {
    let to_end = size <= SCANNED;
    let (mut beginning, mut all) = (head.unwrap_or_default(), head.is_some_and(|head| head.len() < HEAD));
    let mut kept = Kept::take();
    if head.is_none() {
        file.seek(SeekFrom::Start(0)).map_err(|error| io_fault(&error))?;
    }
    if !all && size <= recent::MOST as u64 {
        // One byte of room more than there are tells the end: a file may have become longer.
        let (there, most) = (beginning.len(), usize::try_from(size).unwrap_or(usize::MAX).max(beginning.len()).saturating_add(1));
        let bytes = kept.room(most);
        bytes[..there].copy_from_slice(beginning);
        let length = there + fill(file, &mut bytes[there..])?;
        beginning = &bytes[..length];
        all = length < most;
    }
    if all && let Some(known) = RECENT.with(|recent| recent.find(beginning, |known| (known.looked_like == encoding).then(|| known.clone())))
    {
        return Ok(known.window(beginning, window));
    }
    let mut splitter = Splitter::new(window);
    splitter.outline = to_end.then(Outliner::default);
    let mut units = Units::new(encoding);
    let mut utf8 = Utf8::default();
    let mut digest = to_end.then(Sha256::new);
    let mut piece = Vec::new();
    let mut whole = true;
    let mut first = true;
    let mut at_end = false;
    while !at_end {
        let bytes = if first && !beginning.is_empty() {
            at_end = all;
            beginning
        } else {
            piece.resize(PIECE, 0);
            let length = read_some(file, &mut piece).map_err(|error| io_fault(&error))?;
            &piece[..length]
        };
        if bytes.is_empty() {
            break;
        }
        if let Some(digest) = &mut digest {
            digest.update(bytes);
            utf8.feed(bytes);
        }
        let text = if first { bytes.strip_prefix(encoding.bom()).unwrap_or(bytes) } else { bytes };
        first = false;
        splitter.feed(&units.plain(text));
        if !to_end && !encoding.is_utf16() && is_zeros(bytes) {
            splitter.feed_zeros(skip_hole(file, size).map_err(|error| io_fault(&error))?);
        }
        if !to_end && splitter.done() {
            whole = false;
            break;
        }
        if Instant::now() >= until {
            if splitter.done() {
                whole = false;
                digest = None;
                break;
            }
            return Err(Fault::new(FaultCode::DeadlineExceeded, format!("line {} was not reached in time", window.first))
                .hint("a negative offset counts from the end and is quick")
                .with("lines_seen", splitter.count()));
        }
    }
    if whole {
        splitter.feed(&units.rest());
        splitter.end();
    }
    let mut found = encoding;
    if digest.is_some() && !encoding.is_utf16() && encoding != Encoding::Bytes && !utf8.finish() {
        give_back_mark(&mut splitter, encoding);
        found = Encoding::Bytes;
    }
    let scan = Scan {
        total: splitter.count(),
        lines: splitter.lines,
        text: splitter.text,
        whole,
        eols: splitter.eols,
        ended: splitter.ended,
        encoding: found,
        outline: digest.as_ref().and_then(|_| splitter.outline.take()).map(Outliner::finish),
        hash: digest.map(Hash::from_digest),
        full: splitter.full,
    };
    if all && scan.whole {
        RECENT.with(|recent| recent.keep(beginning, Known::of(encoding, &scan)));
    }
    Ok(scan)
}

/// Memory that is kept from call to call: what is taken anew has to be cleared.
pub(super) struct Kept(Vec<u8>);

thread_local! {
    static KEPT: std::cell::Cell<Vec<u8>> = const { std::cell::Cell::new(Vec::new()) };
}

impl Kept {
    fn take() -> Self {
        Self(KEPT.take())
    }

    fn room(&mut self, length: usize) -> &mut [u8] {
        if self.0.len() < length {
            self.0.resize(length, 0);
        }
        &mut self.0[..length]
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.set(std::mem::take(&mut self.0));
    }
}

/// Of a text that is not what its mark says: the mark is no mark then, but text as any other.
fn give_back_mark(splitter: &mut Splitter, mark: Encoding) {
    let window = splitter.window;
    if window.first == 1
        && window.column == 0
        && let Some((first, others)) = splitter.lines.split_first_mut()
    {
        let mark = mark.bom();
        splitter.text.splice(0..0, mark.iter().copied());
        first.place.end += mark.len();
        for line in others {
            line.place = line.place.start + mark.len()..line.place.end + mark.len();
        }
    }
}

/// Where the last `lines` lines of a large file begin, looked for from its end.
///
/// # Errors
/// `deadline_exceeded`, `io_error`.
pub(super) fn seek_last(file: &mut File, size: u64, lines: u64, until: Instant) -> Result<u64, Fault> {
    let mut piece = vec![0; PIECE];
    let mut end = size;
    let mut found = 0;
    // The byte after the one that is looked at; the line end of the last line begins no further line.
    let mut next: Option<u8> = None;
    let mut data: Option<Vec<Range<u64>>> = None;
    while end > 0 {
        let start = end.saturating_sub(PIECE as u64);
        let length = usize::try_from(end - start).unwrap_or(PIECE);
        file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut piece[..length])).map_err(|error| io_fault(&error))?;
        for at in (0..length).rev() {
            let byte = piece[at];
            let ends = byte == b'\n' || (byte == b'\r' && next != Some(b'\n'));
            let position = start + at as u64 + 1;
            if ends && position < size {
                found += 1;
                if found == lines {
                    return Ok(position);
                }
            }
            next = Some(byte);
        }
        end = start;
        if is_zeros(&piece[..length]) {
            // In a hole there is no line end: on to where the data before it ends.
            let data = data.get_or_insert_with(|| extents(file, size));
            let before = data.iter().rev().find(|range| range.start < end).map_or(0, |range| range.end);
            end = end.min(before);
        }
        if Instant::now() >= until {
            return Err(Fault::new(FaultCode::DeadlineExceeded, format!("the last {lines} lines were not found in time")));
        }
    }
    Ok(0)
}

/// Reads the lines from a position on; the file is known to be large, and neither total nor hash are.
///
/// # Errors
/// `io_error`, `deadline_exceeded`.
pub(super) fn scan_from(file: &mut File, position: u64, encoding: Encoding, window: Window, until: Instant) -> Result<Scan, Fault> {
    let size = file.metadata().map_err(|error| io_fault(&error))?.len();
    let mut splitter = Splitter::new(Window { first: 1, ..window });
    let mut piece = vec![0; PIECE];
    file.seek(SeekFrom::Start(position)).map_err(|error| io_fault(&error))?;
    let mut whole = true;
    let mut first = position == 0;
    loop {
        let length = read_some(file, &mut piece).map_err(|error| io_fault(&error))?;
        if length == 0 {
            break;
        }
        let bytes = &piece[..length];
        splitter.feed(if first { bytes.strip_prefix(encoding.bom()).unwrap_or(bytes) } else { bytes });
        first = false;
        if is_zeros(bytes) {
            splitter.feed_zeros(skip_hole(file, size).map_err(|error| io_fault(&error))?);
        }
        if splitter.done() || Instant::now() >= until {
            whole = false;
            break;
        }
    }
    if whole {
        splitter.end();
    }
    Ok(Scan {
        total: splitter.count(),
        lines: splitter.lines,
        text: splitter.text,
        whole,
        eols: splitter.eols,
        ended: splitter.ended,
        encoding,
        hash: None,
        outline: None,
        full: splitter.full,
    })
}

/// Whether there is nothing but zeros, as in a hole.
fn is_zeros(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0)
}

/// Goes on from here to where the next data is, and says how many zeros were left out. A file system that does not say has no holes.
fn skip_hole(file: &mut File, size: u64) -> io::Result<u64> {
    let here = file.stream_position()?;
    let data = match lseek(&*file, here.cast_signed(), Whence::SeekData) {
        Ok(data) => data.cast_unsigned(),
        // No data up to the end.
        Err(Errno::ENXIO) => size.max(here),
        Err(_) => here,
    };
    file.seek(SeekFrom::Start(data))?;
    Ok(data.saturating_sub(here))
}

/// Where a file has data. Of a file that is more torn than this remembers, the first part is one range.
fn extents(file: &File, size: u64) -> Vec<Range<u64>> {
    const MOST: usize = 100_000;
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let seek = |from: u64, whence| lseek(file, from.cast_signed(), whence).map(i64::cast_unsigned);
        let start = match seek(at, Whence::SeekData) {
            Ok(start) => start,
            Err(Errno::ENXIO) => break,
            Err(_) => at,
        };
        at = seek(start, Whence::SeekHole).unwrap_or(size).max(start + 1);
        found.push(start..at);
        if found.len() > MOST {
            found.clear();
            found.push(0..size);
            break;
        }
    }
    found
}

fn read_some(file: &mut File, piece: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

pub(super) fn io_fault(error: &io::Error) -> Fault {
    Fault::new(FaultCode::IoError, format!("the file cannot be read: {error}"))
}

/// How much of a known content is looked at between two looks whether the window is full.
const STEP: usize = 16 * 1024;

thread_local! {
    static RECENT: Recent<Known> = const { Recent::new() };
}

/// What a content was found to be: reading on in a file, or reading it again, costs its window. The content itself is read each time.
#[derive(Clone)]
struct Known {
    /// By its first bytes.
    looked_like: Encoding,
    total: u64,
    eols: EolCount,
    ended: bool,
    encoding: Encoding,
    hash: Option<Hash>,
    outline: Option<Outline>,
}

impl Known {
    fn of(looked_like: Encoding, scan: &Scan) -> Self {
        let Scan { total, eols, ended, encoding, hash, .. } = *scan;
        Self { looked_like, total, eols, ended, encoding, hash, outline: scan.outline.clone() }
    }

    /// A window of the content that this is known of.
    fn window(self, bytes: &[u8], window: Window) -> Scan {
        let mut splitter = Splitter::new(window);
        let mut units = Units::new(self.looked_like);
        let mut rest = bytes.strip_prefix(self.looked_like.bom()).unwrap_or(bytes);
        while !rest.is_empty() && !splitter.done() {
            let (step, more) = rest.split_at(rest.len().min(STEP));
            splitter.feed(&units.plain(step));
            rest = more;
        }
        if rest.is_empty() {
            splitter.feed(&units.rest());
            splitter.end();
        }
        if self.encoding != self.looked_like {
            give_back_mark(&mut splitter, self.looked_like);
        }
        Scan {
            total: self.total,
            lines: splitter.lines,
            text: splitter.text,
            whole: true,
            eols: self.eols,
            ended: self.ended,
            encoding: self.encoding,
            hash: self.hash,
            outline: self.outline,
            full: splitter.full,
        }
    }
}

/// Reads the beginning of a file of this size. Returns how much was read; where that is the whole size, the end is not asked for once more.
///
/// # Errors
/// `io_error`.
pub(super) fn fill_beginning(file: &mut File, size: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
    let known = usize::try_from(size).unwrap_or(usize::MAX).min(buffer.len());
    let filled = fill(file, &mut buffer[..known])?;
    Ok(if filled == known && known > 0 { filled } else { filled + fill(file, &mut buffer[filled..])? })
}

/// Reads until the buffer is full, or to the end. Returns how much was read.
///
/// # Errors
/// `io_error`.
pub(super) fn fill(file: &mut File, buffer: &mut [u8]) -> Result<usize, Fault> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read_some(file, &mut buffer[filled..]).map_err(|error| io_fault(&error))? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(filled)
}

/// Brings UTF-16 into the form that lines are split in, whole characters at a time.
struct Units {
    encoding: Encoding,
    carry: Vec<u8>,
}

impl Units {
    fn new(encoding: Encoding) -> Self {
        Self { encoding, carry: Vec::new() }
    }

    fn plain<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.encoding.is_utf16() {
            return Cow::Borrowed(bytes);
        }
        self.carry.extend_from_slice(bytes);
        let mut whole = self.carry.len() / 2 * 2;
        if let Some([a, b]) = whole.checked_sub(2).map(|at| [self.carry[at], self.carry[at + 1]]) {
            let high = if self.encoding == Encoding::Utf16Be { a } else { b };
            // The first half of a pair waits for the second.
            if (0xd8..0xdc).contains(&high) {
                whole -= 2;
            }
        }
        let plain = decode::to_plain(&self.carry[..whole], self.encoding).into_owned();
        self.carry.drain(..whole);
        Cow::Owned(plain)
    }

    fn rest(&mut self) -> Vec<u8> {
        decode::to_plain(&std::mem::take(&mut self.carry), self.encoding).into_owned()
    }
}

/// Whether pieces are UTF-8 together.
#[derive(Default)]
struct Utf8 {
    carry: Vec<u8>,
    broken: bool,
}

impl Utf8 {
    fn feed(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        let joined;
        let bytes = if self.carry.is_empty() {
            bytes
        } else {
            joined = [self.carry.as_slice(), bytes].concat();
            &joined
        };
        let carry = match std::str::from_utf8(bytes) {
            Ok(_) => Vec::new(),
            Err(error) if error.error_len().is_none() => bytes[error.valid_up_to()..].to_vec(),
            Err(_) => {
                self.broken = true;
                Vec::new()
            }
        };
        self.carry = carry;
    }

    fn finish(&self) -> bool {
        !self.broken && self.carry.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testbed::{Bed, soon};

    const ALL: Window = Window { first: 1, lines: 1_000_000, column: 0, bytes: 1 << 20 };

    fn open(content: &[u8]) -> (Bed, File) {
        let bed = Bed::new(&[]);
        bed.file("f", content);
        let file = File::open(bed.root.join("f")).unwrap();
        (bed, file)
    }

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let (_bed, mut file) = open(b"a\nb\r\nc\rd\n");
        for (lines, at) in [(1, 7), (2, 5), (3, 2), (4, 0), (9, 0)] {
            assert_eq!(seek_last(&mut file, 9, lines, soon()).unwrap(), at, "{lines}");
        }
    }

    #[test]
    fn holes_are_not_read() {
        use std::os::unix::fs::FileExt;
        let (_bed, mut file) = open(b"");
        let file_to_write = std::fs::File::options().write(true).open(_bed.root.join("f")).unwrap();
        let size = 8 << 30;
        file_to_write.set_len(size).unwrap();
        file_to_write.write_all_at(&b"text\n".repeat(100), 0).unwrap();
        file_to_write.write_all_at(b"\nmiddle\r\n", 3 << 30).unwrap();
        let window = |first| Window { first, lines: 2, column: 0, bytes: 1 << 20 };
        let started = Instant::now();
        let seen = scan(&mut file, None, size, Encoding::Utf8, window(102), soon()).unwrap();
        assert_eq!((&seen.text[seen.lines[0].place.clone()], seen.lines.len(), seen.total, seen.whole), (&b"middle"[..], 2, 103, true));
        assert_eq!(seen.lines[1].after, size - (3 << 30) - 9 - 2000);
        let seen = scan(&mut file, None, size, Encoding::Utf8, window(1000), soon()).unwrap();
        assert_eq!((seen.total, seen.lines.len()), (103, 0));
        for (lines, at) in [(1, (3 << 30) + 9), (2, (3 << 30) + 1), (3, 500), (4, 495), (103, 0)] {
            assert_eq!(seek_last(&mut file, size, lines, soon()).unwrap(), at, "{lines}");
        }
        let seen = scan_from(&mut file, 500, Encoding::Utf8, window(1), soon()).unwrap();
        assert_eq!((seen.lines[0].after, &seen.text[seen.lines[1].place.clone()]), ((3 << 30) - 500 - 2000, &b"middle"[..]));
        assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());
    }

    /// Whatever was read before: a window of a content that is known is the window of one that is not.
    #[test]
    fn what_is_remembered_changes_no_answer() {
        let line = |number: usize| format!("line {number} é {}", "x".repeat(number % 90));
        let joined = |end: &str| (0..900).map(line).collect::<Vec<_>>().join(end);
        let mut broken = joined("\n").into_bytes();
        broken.splice(0..0, *b"\xef\xbb\xbf");
        broken.push(0xff);
        let utf16 = |text: &str| [&b"\xff\xfe"[..], &text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>()].concat();
        let contents = [
            joined("\n").into_bytes(),
            joined("\r\n").into_bytes(),
            joined("\r").into_bytes(),
            broken,
            utf16(&joined("\n")),
            b"y".repeat(40_000),
        ];
        for content in contents {
            let (_bed, mut file) = open(&content);
            let size = content.len() as u64;
            let encoding = decode::detect(&content[..HEAD]);
            for window in [
                ALL,
                Window { first: 3, lines: 2, ..ALL },
                Window { lines: 0, ..ALL },
                Window { first: 2000, ..ALL },
                Window { bytes: 500, ..ALL },
            ] {
                let mut once = |head: Option<&[u8]>| {
                    file.seek(SeekFrom::Start(head.map_or(0, <[u8]>::len) as u64)).unwrap();
                    format!("{:?}", scan(&mut file, head, size, encoding, window, soon()).unwrap())
                };
                let known = once(Some(&content[..HEAD]));
                assert_eq!(once(None), known);
                // On another thread nothing is remembered.
                let fresh = std::thread::scope(|scope| scope.spawn(|| once(None)).join().unwrap());
                assert_eq!(fresh, known, "{encoding:?} {window:?}");
            }
        }
    }

    #[test]
    fn utf16_and_broken_utf8() {
        let (_bed, mut file) = open(b"\xff\xfea\0\n\0\x3d\xd8\0\xdeb\0");
        let seen = scan(&mut file, None, 12, Encoding::Utf16Le, ALL, soon()).unwrap();
        let lines: Vec<_> = seen.lines.iter().map(|line| &seen.text[line.place.clone()]).collect();
        assert_eq!(lines, [&b"a"[..], "😀b".as_bytes()]);
        let mut content = vec![b'a'; 9000];
        content.push(0xe9);
        let (_bed, mut file) = open(&content);
        assert_eq!(scan(&mut file, None, 9001, Encoding::Utf8, ALL, soon()).unwrap().encoding, Encoding::Bytes);
    }
}
