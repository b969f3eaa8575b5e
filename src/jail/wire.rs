//! Everything that crosses a process boundary, and how it is framed.
//!
//! Three kinds of wire:
//! * host ↔ warden, and host ↔ keeper, host ↔ leader: a `SOCK_SEQPACKET` pair, one message one JSON value, descriptors beside
//!   it. A value of more than [`INLINE`] bytes travels in a memfd, which is then the last descriptor.
//! * host ↔ a `Look` or `Change` jail: a stream pair, frames of a `u32` length (little-endian) and as many bytes of JSON;
//!   in an answer, the length of one JSON value, that value, and the facts, another one.
//!
//! The host treats all that comes from a jail as hostile: bounded before it is read, checked in shape before it is used.

use crate::confine::Report;
use crate::envelope::{Envelope, Fault};
use crate::policy::{Access, Charter};
use crate::sys;
use crate::tools::Answer;
use crate::tools::bench::Seen;
use crate::tools::guard::{Closed, Reply, Stamped};
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

/// The most bytes of a message that travel inside it; larger ones go by memfd.
const INLINE: usize = 32 * 1024;

/// How many bytes of an answer the kernel is asked to hold: those of a file of 187 KB, with what its lines are shown with.
const ANSWER: i32 = 256 * 1024;

/// The most bytes of any message or frame. A file of 8 MiB still fits when every byte of it has to be escaped.
pub const MOST: usize = 64 * 1024 * 1024;

/// From the host to the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToWarden {
    /// First of all. Descriptors: the base directory, opened by the host; the journal, where the charter names one.
    Hello {
        /// What is permitted.
        charter: Box<Charter>,
        /// The classes that this session will use; others are not prepared.
        classes: Vec<Access>,
    },
    /// Make a jail. Descriptors: for `Look` and `Change` its ends of the call wire, to read and to write; for `Execute` and `Own` the leader's end
    /// of the launch wire and the keeper's end of the control wire.
    Open {
        /// The host's number of the jail.
        id: u64,
        /// Its class.
        access: Access,
        /// Its program comes later: it may make itself ready meanwhile.
        ahead: bool,
    },
    /// End a jail and all that is in it.
    Kill {
        /// Which.
        id: u64,
    },
}

/// From the warden to the host.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromWarden {
    /// The walls stand and have been tried.
    Ready {
        /// What is enforced.
        report: Box<Report>,
    },
    /// They do not; the warden ends.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// A jail could not be made.
    NotOpened {
        /// Which.
        id: u64,
        /// Why.
        fault: Fault,
    },
    /// A `Look` or `Change` jail has ended.
    Ended {
        /// Which.
        id: u64,
        /// How, in words.
        how: String,
    },
}

/// A call, for a `Look` or `Change` jail.
#[derive(Debug, Serialize, Deserialize)]
pub struct ToJail {
    /// The tool's own name.
    pub tool: String,
    /// Its arguments, read.
    pub args: Value,
    /// What other jails learnt since the last call of this one.
    pub seen: Vec<Seen>,
    /// Milliseconds that the tool may take; it returns what it has before they are over.
    pub time_ms: u64,
    /// Somebody wants the text of a success beside its facts.
    pub shown: bool,
}

/// The answer.
#[derive(Debug)]
pub struct FromJail {
    /// Envelope and text.
    pub answer: Answer,
    /// What this call learnt about files.
    pub seen: Vec<Seen>,
}

/// All of a [`FromJail`] but its facts, which follow as they are.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head<'a> {
    success: bool,
    error: Option<Cow<'a, str>>,
    text: Cow<'a, str>,
    seen: Cow<'a, [Seen]>,
}

impl FromJail {
    /// Writes a frame to a stream: its length, the length of all but the facts, that, and the facts.
    ///
    /// # Errors
    /// `InvalidData` above [`MOST`], before anything is written; the kernel's own.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let Answer { envelope, text } = &self.answer;
        let facts = envelope.facts();
        let head = Head {
            success: envelope.success(),
            error: envelope.error().map(Cow::Borrowed),
            text: Cow::Borrowed(text),
            seen: Cow::Borrowed(&self.seen),
        };
        let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 512);
        out.resize(8, 0);
        serde_json::to_writer(&mut out, &head).map_err(invalid)?;
        let head = out.len() - 8;
        let length = out.len() - 4 + facts.len();
        if length > MOST {
            return Err(too_large());
        }
        let number = |length: usize| u32::try_from(length).map(u32::to_le_bytes).map_err(invalid);
        out[..4].copy_from_slice(&number(length)?);
        out[4..8].copy_from_slice(&number(head)?);
        // Together, so that who waits for it wakes once; the facts are not copied for that.
        let mut parts = [IoSlice::new(&out), IoSlice::new(facts.as_bytes())];
        let mut parts = &mut parts[..];
        while !parts.is_empty() {
            match stream.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut parts, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what a frame holds, which begins at `start`: the facts stay text, and are checked to be one line that can be read.
    ///
    /// # Errors
    /// `InvalidData`: it is none.
    pub fn parse(mut bytes: Vec<u8>, start: usize) -> io::Result<Self> {
        if bytes.len() > MOST {
            return Err(too_large());
        }
        let (length, rest) = bytes.get(start..).and_then(|frame| frame.split_first_chunk::<4>()).ok_or_else(|| invalid("no length"))?;
        let length = u32::from_le_bytes(*length) as usize;
        let head = rest.get(..length).ok_or_else(|| invalid("a wrong length"))?;
        let Head { success, error, text, seen } = serde_json::from_slice(head).map_err(invalid)?;
        let (error, text, seen) = (error.map(Cow::into_owned), text.into_owned(), seen.into_owned());
        // The facts stay where they are: most of an answer is they.
        bytes.drain(..start + 4 + length);
        let facts = String::from_utf8(bytes).map_err(invalid)?;
        let envelope = Envelope::received(success, facts, error).map_err(invalid)?;
        Ok(Self { answer: Answer { envelope, text }, seen })
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn too_large() -> io::Error {
    invalid("larger than the wire takes")
}

/// A program, for a leader. Descriptors: as many as `places`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ToLeader {
    /// The program and its arguments; a name without a slash is looked up in PATH.
    pub argv: Vec<OsString>,
    /// Where the program will be found, as far as the host can tell. Tried first, and then it is also the program's name.
    pub found_at: Option<PathBuf>,
    /// Variables on top of the charter's; an empty value removes none.
    pub env: Vec<(OsString, OsString)>,
    /// The folder to start in, as the call names it, relative to the base.
    pub workdir: Option<String>,
    /// At which number each descriptor of the message is put.
    pub places: Vec<i32>,
    /// Protected names, relative to the base: keep what they are, answer [`FromLeader::Kept`], then start.
    pub keep: Option<Vec<String>>,
    /// Protected names as they were when they were last kept: if one is another by now, answer [`FromLeader::Stale`] and do not start.
    pub unless_changed: Vec<Stamped>,
}

/// From the leader, before the program is started or instead.
#[derive(Debug, Serialize, Deserialize)]
pub enum FromLeader {
    /// What protected names were before the program.
    Kept(Box<Reply>),
    /// Protected names are not what they were when they were kept; the program was not started.
    Stale,
    /// The program could not be started.
    NotStarted(NotStarted),
}

/// Why a program could not be started.
#[derive(Debug, Serialize, Deserialize)]
pub struct NotStarted {
    /// The kernel's error number, when it was the exec that failed.
    pub errno: Option<i32>,
    /// Why.
    pub fault: Fault,
}

/// From the host to a keeper.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToKeeper {
    /// End everything now.
    Kill,
    /// Watch from now on how much the tree uses: the program is no short one.
    Watch,
    /// Pass a signal to the program's process group.
    Signal(i32),
    /// The program waits for a byte on the descriptor beside this: let it have this one, unless a name of the [`ToKeeper::Compare`] before
    /// this is not as it was.
    Go(u8),
    /// A [`ToKeeper::Compare`] follows: wait for it before reporting.
    CompareLater,
    /// When everything has ended, compare protected names with what they were.
    Compare(Orders),
}

/// What a keeper has to compare.
#[derive(Debug, Serialize, Deserialize)]
pub struct Orders {
    /// What the protected names were.
    pub stamps: Vec<Stamped>,
    /// Search the workspace for repositories too.
    pub sweep: bool,
    /// Folders that could not be listed before: they stay as they are.
    pub closed: Vec<Closed>,
}

impl Orders {
    /// The names whose stamps are known. What cannot be compared is no reason not to start a program.
    pub fn known(&self) -> Vec<Stamped> {
        self.stamps.iter().filter(|(_, _, stamp)| stamp.is_some()).cloned().collect()
    }
}

/// From a keeper: the program has ended, and so has everything that it started.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Milliseconds of processor time of all reaped processes.
    pub cpu_ms: u64,
    /// The largest resident set of one of them, in KiB.
    pub max_rss_kib: u64,
    /// Command lines of what it left running.
    pub killed: Vec<String>,
    /// The bound for which it was ended.
    pub exceeded: Option<Bound>,
    /// What came of the comparison of protected names, where one was asked for.
    pub compared: Option<Reply>,
    /// What came of a [`ToKeeper::Go`]; `None`: there was none before the end.
    pub gone_on: Option<bool>,
}

/// A bound of a whole tree, which the keeper watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bound {
    /// Memory of all processes.
    Memory,
    /// Processes and threads.
    Processes,
    /// What the session adds to the disk.
    Disk,
}

/// Sends one value, with descriptors.
///
/// # Errors
/// The kernel's own; `EMSGSIZE` above [`MOST`].
pub fn send(socket: BorrowedFd<'_>, value: &impl Serialize, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(value).map_err(|_| Errno::EINVAL)?;
    if bytes.len() > MOST {
        return Err(Errno::EMSGSIZE);
    }
    let mut raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    if bytes.len() <= INLINE {
        return sys::send_with_fds(socket, &bytes, &raw).map(drop);
    }
    let memory = memfd(&bytes)?;
    raw.push(memory.as_raw_fd());
    // A JSON value never begins with this byte.
    sys::send_with_fds(socket, b"@", &raw).map(drop)
}

/// Receives one value and its descriptors; `None` when the other end is closed.
///
/// # Errors
/// The kernel's own; `InvalidData` for what is not such a value.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut buffer = vec![0; INLINE];
    let mut received = sys::receive_with_fds(socket, &mut buffer);
    if received.as_ref().err() == Some(&Errno::ECONNRESET) {
        // The other end was closed with something of ours unread, which is told first; its last words are still to come.
        received = sys::receive_with_fds(socket, &mut buffer);
    }
    let (length, mut fds) = match received {
        Err(Errno::ECONNRESET) => return Ok(None),
        other => other?,
    };
    if length == 0 {
        return Ok(None);
    }
    let value = if buffer[..length] == *b"@" {
        let memory = fds.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the memory is missing"))?;
        let mut bytes = Vec::new();
        let mut file = File::from(memory);
        file.seek(SeekFrom::Start(0))?;
        file.take(MOST as u64 + 1).read_to_end(&mut bytes)?;
        parse(&bytes)?
    } else {
        parse(&buffer[..length])?
    };
    Ok(Some((value, fds)))
}

/// A memfd with this content, at its beginning.
///
/// # Errors
/// The kernel's own.
pub fn memfd(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    let fd = memfd_create("bailiwick", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(fd);
    let write = |file: &mut File| -> io::Result<()> {
        file.write_all(bytes)?;
        file.seek(SeekFrom::Start(0)).map(drop)
    };
    write(&mut file).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    Ok(file.into())
}

/// A memfd with these bytes, which nobody can change any more.
///
/// # Errors
/// The kernel's own.
pub fn sealed_memfd(bytes: &[u8]) -> Result<OwnedFd, Errno> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    let mut file = File::from(memfd_create("bailiwick", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
    file.write_all(bytes).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL))?;
    Ok(file.into())
}

/// A memfd of a fixed size, full of zeros, that nobody can make larger: whoever writes to it needs no reader and blocks nobody.
///
/// # Errors
/// The kernel's own.
pub fn sized_memfd(size: u64) -> Result<OwnedFd, Errno> {
    use nix::fcntl::{FcntlArg, SealFlag, fcntl};
    let fd = memfd_create("bailiwick", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
    nix::unistd::ftruncate(&fd, i64::try_from(size).map_err(|_| Errno::EFBIG)?)?;
    fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL))?;
    Ok(fd)
}

/// What was written to a memfd, as far as somebody wrote: at most `most` bytes.
///
/// # Errors
/// The kernel's own.
pub fn content(memory: OwnedFd, most: u64) -> io::Result<Vec<u8>> {
    let mut file = File::from(memory);
    // The offset is shared with the writer, so it says how far it came.
    let written = file.stream_position()?.min(most);
    file.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    file.take(written).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// One JSON value, bounded, and nothing behind it.
///
/// # Errors
/// `InvalidData`.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    if bytes.len() > MOST {
        return Err(too_large());
    }
    serde_json::from_slice(bytes).map_err(invalid)
}

/// A frame for a stream: its length and its bytes, in one buffer.
///
/// # Errors
/// `InvalidData` above [`MOST`].
pub fn frame(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut out = vec![0; 4];
    serde_json::to_writer(&mut out, value).map_err(invalid)?;
    let length = out.len() - 4;
    if length > MOST {
        return Err(too_large());
    }
    let length = u32::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    out[..4].copy_from_slice(&length.to_le_bytes());
    Ok(out)
}

/// Reads one frame from a blocking stream; `None` at a clean end.
///
/// # Errors
/// The kernel's own; `InvalidData` for a length above [`MOST`]; `UnexpectedEof` within a frame.
pub fn read_frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; 4];
    let first = loop {
        match stream.read(&mut head) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    stream.read_exact(&mut head[first..])?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a frame larger than the wire takes"));
    }
    // Room for all of it at once, unless it claims to be very long.
    let mut bytes = Vec::with_capacity(length.min(1 << 20));
    stream.take(length as u64).read_to_end(&mut bytes)?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(bytes))
}

/// A connected pair for the wires that carry descriptors.
///
/// # Errors
/// The kernel's own.
pub fn packet_pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// One end of the wire for calls, which carries no descriptors: two pipes, since to write to one and to be woken by it costs two thirds
/// of what a socket does.
#[derive(Debug)]
pub struct Ends {
    /// What comes from the other side.
    pub from: File,
    /// What goes there.
    pub to: File,
}

impl Ends {
    /// From now on nothing waits here: what would have to is `WouldBlock`.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn never_block(&self) -> Result<(), Errno> {
        use nix::fcntl::{FcntlArg, OFlag, fcntl};
        for end in [&self.from, &self.to] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        Ok(())
    }
}

/// A wire for calls: our ends and theirs.
///
/// # Errors
/// The kernel's own.
pub fn call_wire() -> Result<(Ends, Ends), Errno> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use nix::unistd::pipe2;
    let (their_from, to) = pipe2(OFlag::O_CLOEXEC)?;
    let (from, their_to) = pipe2(OFlag::O_CLOEXEC)?;
    // A longer answer comes in one piece. Where somebody has used up what a user may have of this, it comes in several.
    let _ = fcntl(&from, FcntlArg::F_SETPIPE_SZ(ANSWER));
    Ok((Ends { from: from.into(), to: to.into() }, Ends { from: their_from.into(), to: their_to.into() }))
}

/// Whether a descriptor has something to read, or its other end is closed, within `timeout_ms` (-1: for ever).
///
/// # Errors
/// The kernel's own.
pub fn wait_readable(fd: &impl AsFd, timeout_ms: i32) -> Result<bool, Errno> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let timeout = PollTimeout::try_from(timeout_ms).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout) {
            Err(Errno::EINTR) => {}
            other => return other.map(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn written(reply: &FromJail) -> Vec<u8> {
        let mut frame = Vec::new();
        reply.write(&mut frame).unwrap();
        let (length, rest) = frame.split_first_chunk::<4>().unwrap();
        assert_eq!(u32::from_le_bytes(*length) as usize, rest.len());
        frame
    }

    #[test]
    fn an_answer_crosses_the_wire_as_it_was() {
        let data = json!({"text": "a\n\"b\"", "n": 1}).as_object().cloned().unwrap();
        let fault = Fault::new(crate::envelope::FaultCode::NotFound, "no \"a\"").hint("\u{1}");
        for envelope in [Envelope::from(Ok(data)), Envelope::from(Err(fault))] {
            let reply = FromJail { answer: Answer { envelope, text: "for\nthe model".into() }, seen: Vec::new() };
            let frame = written(&reply);
            assert_eq!(FromJail::parse(frame.clone(), 4).unwrap().answer, reply.answer);
            assert_eq!(FromJail::parse(frame[4..].to_vec(), 0).unwrap().answer, reply.answer);
            // Nothing less is an answer.
            for end in 0..frame.len() {
                assert!(FromJail::parse(frame[..end].to_vec(), 4).is_err(), "{end}");
            }
        }
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        /// A jail may send what it likes.
        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..80), start in 0_usize..6) {
            let _ = FromJail::parse(bytes, start);
        }
    }
}
