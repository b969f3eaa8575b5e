//! The transcript: append-only events, one line of JSON each, on the disk before what they announce happens.
//!
//! The messages for the model are derived from it (`messages`), so a resumed run sees what the interrupted one saw. A
//! transcript never holds the value of a known secret, is never rewritten, and lies outside the workspace.

use super::mask::Mask;
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::session::Call;
use crate::tools::Answer;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The version of the format, in every event.
pub const VERSION: u32 = 1;

/// One line of the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The version of the format.
    pub v: u32,
    /// Position, from 0; grows by one, also over a resume.
    pub seq: u64,
    /// Milliseconds since 1970.
    pub ts: u64,
    /// The run; a resumed run keeps its id.
    pub run_id: String,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum What {
    /// The run began.
    RunStarted {
        /// The task, verbatim.
        task: String,
        /// The model, as it was named.
        model: String,
        /// `native` or `text`.
        dialect: String,
        /// The names of the tools.
        tools: Vec<String>,
        /// The system text, whole.
        system: String,
        /// What the sandbox enforces.
        enforcement: Value,
        /// The base directory.
        #[serde(default)]
        workspace: String,
    },
    /// The run goes on after an interruption.
    RunResumed {
        /// Bytes of a torn last line that were cut off.
        cut_bytes: u64,
        /// Lines that could not be read and were passed over.
        unreadable: u64,
    },
    /// A text for the model: the task, a note of ours, the answers of text calls.
    User {
        /// The text.
        text: String,
    },
    /// A request to the model begins.
    TurnStarted {
        /// From 1.
        turn: u32,
    },
    /// The model replied.
    Replied {
        /// The reply as the provider has it, to be sent back unchanged.
        reply: Value,
        /// What it says, for people.
        text: String,
        /// The calls that it holds, by whatever dialect.
        calls: Vec<Call>,
        /// Whether the calls are native ones, and so their results too.
        native: bool,
        /// Tokens read.
        input_tokens: u64,
        /// Tokens written.
        output_tokens: u64,
    },
    /// A call is about to run.
    CallStarted {
        /// The call.
        call: Call,
    },
    /// A call was answered, or refused before it ran.
    CallEnded {
        /// Which.
        id: String,
        /// Its tool.
        tool: String,
        /// The answer.
        envelope: Envelope,
        /// The answer as the model reads it.
        text: String,
        /// Wall time in milliseconds.
        duration_ms: u64,
    },
    /// The model is spoken to in another dialect from here on.
    DialectChanged {
        /// `text`.
        to: String,
        /// Why.
        reason: String,
        /// The system text from here on.
        system: String,
    },
    /// Old results that are no longer shown to the model whole.
    ResultsStubbed {
        /// The ids of their calls.
        ids: Vec<String>,
    },
    /// The beginning of the conversation is shown to the model as a summary from here on; the task is kept verbatim.
    Summarized {
        /// The summary.
        text: String,
        /// The position of the first event that is still shown.
        upto: u64,
        /// Tokens read for it.
        input_tokens: u64,
        /// Tokens written for it.
        output_tokens: u64,
    },
    /// Something that a person should know and the model need not.
    Noted {
        /// What.
        text: String,
    },
    /// The run is over.
    RunEnded {
        /// The content of `result.json`.
        result: Value,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

/// An open transcript. One process writes it at a time.
#[derive(Debug)]
pub struct Transcript {
    file: Flock<File>,
    run_id: String,
    events: Vec<Event>,
    mask: Mask,
}

/// What had to be repaired when a transcript was opened again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Bytes of a torn last line that were cut off.
    pub cut_bytes: u64,
    /// Lines that could not be read and were passed over; they stay in the file.
    pub unreadable: u64,
}

impl Transcript {
    /// Begins a transcript in a new file, or in one that a start left from which no run came.
    ///
    /// # Errors
    /// `already_exists` when there is another such file, or somebody is about to write it; `io_error`.
    pub fn create(path: &Path, run_id: &str, mask: Mask) -> Result<Self, Fault> {
        let file = match options().create_new(true).open(path) {
            Ok(file) => lock(path, file)?,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Self::unused(path)?,
            Err(error) => return Err(broken(path, &error)),
        };
        Ok(Self { file, run_id: run_id.to_owned(), events: Vec::new(), mask })
    }

    /// The file of a start from which no run came, emptied.
    fn unused(path: &Path) -> Result<Flock<File>, Fault> {
        let opened = existing(path)?;
        let mut file = lock(path, opened).map_err(|fault| match fault.code() {
            FaultCode::Busy => Fault::new(FaultCode::AlreadyExists, fault.message()),
            _ => fault,
        })?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| broken(path, &error))?;
        let (events, whole, unreadable) = read(&bytes);
        let only_ended = !events.is_empty() && events.iter().all(|event| matches!(event.what, What::RunEnded { .. }));
        if !bytes.is_empty() && (!only_ended || whole < bytes.len() || unreadable > 0) {
            return Err(Fault::new(FaultCode::AlreadyExists, format!("there is a transcript already at {}", path.display()))
                .hint("resume it, or name another file"));
        }
        file.set_len(0).and_then(|()| file.seek(SeekFrom::Start(0))).map_err(|error| broken(path, &error))?;
        Ok(file)
    }

    /// Opens a transcript to go on with it: cuts a torn last line off and closes calls that were never answered. Both are
    /// said, in the returned value and as events.
    ///
    /// # Errors
    /// `not_found`, `busy` when another process writes it, `io_error`, `invalid_arguments` when it holds no event at all.
    pub fn resume(path: &Path, mask: Mask) -> Result<(Self, Repair), Fault> {
        let mut file = lock(path, existing(path)?)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| broken(path, &error))?;
        let (events, whole, unreadable) = read(&bytes);
        let Some(last) = events.last() else {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{} holds no event of a run", path.display())));
        };
        let repair = Repair { cut_bytes: (bytes.len() - whole) as u64, unreadable };
        let ends_open = whole > 0 && bytes[whole - 1] != b'\n';
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(|error| broken(path, &error))?;
        if ends_open {
            // The record is whole and only its line end was lost.
            file.write_all(b"\n").map_err(|error| broken(path, &error))?;
        }
        let mut transcript = Self { file, run_id: last.run_id.clone(), events, mask };
        transcript.append(What::RunResumed { cut_bytes: repair.cut_bytes, unreadable })?;
        transcript.close_dangling()?;
        Ok((transcript, repair))
    }

    /// Appends an event. When this returns, the line is out of the process, whatever happens to it.
    ///
    /// # Errors
    /// `io_error`, `disk_full`: then the event has not happened and its effect must not.
    pub fn append(&mut self, what: What) -> Result<&Event, Fault> {
        let event = Event { v: VERSION, seq: self.next_seq(), ts: now(), run_id: self.run_id.clone(), what };
        let internal = |error: serde_json::Error| Fault::new(FaultCode::Internal, format!("an event cannot be written: {error}"));
        let value = self.mask.value(serde_json::to_value(event).map_err(internal)?);
        let mut line = serde_json::to_vec(&value).map_err(internal)?;
        line.push(b'\n');
        let event: Event = serde_json::from_value(value).map_err(internal)?;
        let before = self.file.stream_position().map_err(|error| broken(Path::new("the transcript"), &error))?;
        if let Err(error) = self.file.write_all(&line) {
            // Half a line would be glued to the next one.
            let _ = self.file.set_len(before);
            let _ = self.file.seek(SeekFrom::Start(before));
            return Err(broken(Path::new("the transcript"), &error));
        }
        self.events.push(event);
        Ok(&self.events[self.events.len() - 1])
    }

    /// All events so far, masked as on disk.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The id of the run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Hides these values too, from here on.
    pub fn hide(&mut self, secrets: Vec<String>) {
        self.mask.hide(secrets);
    }

    /// The mask, for whatever else is shown.
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// Answers every call that has no answer as `interrupted`, so that each call of a reply has its result. Returns how many.
    ///
    /// # Errors
    /// As [`Self::append`].
    pub fn close_dangling(&mut self) -> Result<usize, Fault> {
        let dangling = dangling(&self.events);
        for (call, started) in &dangling {
            let state = if *started { "it had begun; what it did is not known" } else { "it was not run" };
            let answer =
                Answer::failed(Fault::new(FaultCode::Interrupted, format!("the run ended before this call was answered: {state}")));
            self.append(What::CallEnded {
                id: call.id.clone(),
                tool: call.tool.clone(),
                envelope: answer.envelope,
                text: answer.text,
                duration_ms: 0,
            })?;
        }
        Ok(dangling.len())
    }

    fn next_seq(&self) -> u64 {
        self.events.last().map_or(0, |event| event.seq + 1)
    }
}

/// Reads the events of a transcript; a torn last line and unreadable lines are passed over.
///
/// # Errors
/// `not_found`, `io_error`.
pub fn load(path: &Path) -> Result<Vec<Event>, Fault> {
    let bytes = std::fs::read(path).map_err(|error| broken(path, &error))?;
    Ok(read(&bytes).0)
}

/// The calls without an answer, in order, and whether each had begun.
pub fn dangling(events: &[Event]) -> Vec<(Call, bool)> {
    let mut open: Vec<(Call, bool)> = Vec::new();
    for event in events {
        match &event.what {
            What::Replied { calls, .. } => open.extend(calls.iter().map(|call| (call.clone(), false))),
            What::CallStarted { call } => open.iter_mut().filter(|(other, _)| other.id == call.id).for_each(|(_, started)| *started = true),
            What::CallEnded { id, .. } => open.retain(|(call, _)| call.id != *id),
            _ => {}
        }
    }
    open
}

/// Every call id that was ever used; ids are unique over a run.
pub fn used_ids(events: &[Event]) -> HashSet<&str> {
    events
        .iter()
        .filter_map(|event| match &event.what {
            What::Replied { calls, .. } => Some(calls),
            _ => None,
        })
        .flatten()
        .map(|call| call.id.as_str())
        .collect()
}

/// Whether each line of a text stands in one and the same text that the model was shown: a result, or what it was told.
pub fn was_shown(events: &[Event], text: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    events.iter().any(|event| match &event.what {
        What::CallEnded { text, .. } | What::User { text } | What::RunStarted { task: text, .. } => {
            lines.iter().all(|line| text.contains(line))
        }
        _ => false,
    })
}

/// The events, how many bytes at the beginning are whole lines (or a whole last record), and how many lines are unreadable.
fn read(bytes: &[u8]) -> (Vec<Event>, usize, u64) {
    let mut events = Vec::new();
    let mut unreadable = 0;
    let mut at = 0;
    while at < bytes.len() {
        // Only a line feed ends a line: U+2028 may stand in a string.
        let end = bytes[at..].iter().position(|b| *b == b'\n').map(|length| at + length);
        let line = &bytes[at..end.unwrap_or(bytes.len())];
        // A crash of the machine can leave NULs where a block was never written.
        let text: &[u8] = match line.iter().position(|b| *b != 0) {
            Some(first) => &line[first..],
            None => &[],
        };
        match serde_json::from_slice::<Event>(text) {
            Ok(event) => events.push(event),
            Err(_) if end.is_none() => return (events, at, unreadable),
            Err(_) if text.is_empty() => {}
            Err(_) => unreadable += 1,
        }
        at = end.map_or(bytes.len(), |end| end + 1);
    }
    (events, at, unreadable)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    options
}

/// Opens a transcript that is there. Of a FIFO nothing would ever come.
fn existing(path: &Path) -> Result<File, Fault> {
    let broken = |error: std::io::Error| broken(path, &error);
    let file = options().custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK).open(path).map_err(broken)?;
    if file.metadata().map_err(broken)?.is_file() {
        return Ok(file);
    }
    Err(Fault::new(FaultCode::InvalidArguments, format!("{} is no regular file: no transcript can be there", path.display())))
}

fn lock(path: &Path, file: File) -> Result<Flock<File>, Fault> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => {
            Fault::new(FaultCode::Busy, format!("another process is writing the transcript {}", path.display()))
        }
        errno => broken(path, &errno.into()),
    })
}

fn broken(path: &Path, error: &std::io::Error) -> Fault {
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => FaultCode::NotFound,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => FaultCode::DiskFull,
        _ => FaultCode::IoError,
    };
    Fault::new(code, format!("{}: {error}", path.display()))
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
