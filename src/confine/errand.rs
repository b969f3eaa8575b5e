//! A short piece of work in a forked child, whose answer comes over a pipe: for probes and canaries, which change or confine
//! the process that runs them.

use crate::envelope::{Fault, FaultCode};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io::{Read, Write};
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The longest answer, in bytes.
const ANSWER_MOST: usize = 256 * 1024;

/// A piece of work that is under way in a child.
pub(super) struct Errand<T> {
    child: Pid,
    answer: File,
    until: Instant,
    kind: PhantomData<T>,
}

/// Forks and runs `work` in the child, which ends in any case, at the latest after `limit`.
///
/// # Errors
/// `internal` where there is no process to be had.
pub(super) fn begin<T: Serialize + DeserializeOwned>(limit: Duration, work: impl FnOnce() -> T) -> Result<Errand<T>, Fault> {
    let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| broken(errno.desc()))?;
    let Some(child) = sys::fork_errand().map_err(|error| broken(&error.to_string()))? else {
        drop(ours);
        // A panic must not unwind into the copy of our caller.
        let sent = catch_unwind(AssertUnwindSafe(|| {
            let answer = serde_json::to_vec(&work()).unwrap_or_default();
            File::from(theirs).write_all(&answer).is_ok()
        }));
        sys::exit_now(if sent.unwrap_or(false) { 0 } else { 1 })
    };
    Ok(Errand { child, answer: File::from(ours), until: Instant::now() + limit, kind: PhantomData })
}

impl<T: DeserializeOwned> Errand<T> {
    /// What the child answered.
    ///
    /// # Errors
    /// `internal` where it died, was too slow or answered nonsense.
    pub(super) fn finish(self) -> Result<T, Fault> {
        let answer = collect(&self.answer, self.until).map_err(|errno| broken(errno.desc()))?;
        serde_json::from_slice(&answer).map_err(|_| broken("the child ended without an answer"))
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        end(self.child);
    }
}

fn broken(what: &str) -> Fault {
    Fault::new(FaultCode::Internal, format!("an errand of the confinement: {what}"))
}

/// Forks, runs `work` in the child and returns what it answered. The child ends in any case, at the latest after `limit`.
///
/// # Errors
/// `internal` where there is no process to be had, the child died, was too slow or answered nonsense.
pub(super) fn run<T: Serialize + DeserializeOwned>(limit: Duration, work: impl FnOnce() -> T) -> Result<T, Fault> {
    begin(limit, work)?.finish()
}

/// Ends a child for certain and reaps it.
pub(super) fn end(child: Pid) {
    let _ = kill(child, Signal::SIGKILL);
    while waitpid(child, None) == Err(Errno::EINTR) {}
}

fn collect(mut pipe: &File, deadline: Instant) -> Result<Vec<u8>, Errno> {
    let mut answer = Vec::new();
    let mut piece = [0; 8192];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno),
        }
        match pipe.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(count) if answer.len() + count > ANSWER_MOST => return Err(Errno::EMSGSIZE),
            Ok(count) => answer.extend(piece.iter().take(count)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))),
        }
    }
}
