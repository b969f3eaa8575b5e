//! At the start of a session: writes in place that a kill cut off are undone, before anybody reads half of one.
//!
//! The warden itself opens nothing in the workspace: this is done in a `Change` jail of its own.

use super::enter;
use crate::confine::Prepared;
use crate::sys::{self, Forked};
use crate::workspace::BaseDir;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use std::os::fd::OwnedFd;

/// The exit code of the jail when the journal could not be read.
pub(super) const FAILED: i32 = 101;

/// The exit code for a number of files that hold their old content again.
pub(super) fn restored(files: usize) -> i32 {
    i32::try_from(files).unwrap_or(i32::MAX).min(FAILED - 1)
}

/// Undoes what the journal holds. Returns what the report should say of it; nothing for an empty journal.
pub(super) fn recover(change: &Prepared, base: &BaseDir, journal: &OwnedFd) -> Option<String> {
    if is_empty(journal) {
        return None;
    }
    let me = Pid::this();
    let failed = |why: &str| Some(format!("writes that were cut off could not be undone: {why}"));
    match sys::fork_single_threaded() {
        Ok(Forked::Child) => enter::undo(me, change, base, journal),
        Ok(Forked::Parent(pid)) => loop {
            return match waitpid(pid, None) {
                Err(Errno::EINTR) => continue,
                Ok(WaitStatus::Exited(_, 0)) => None,
                Ok(WaitStatus::Exited(_, files)) if files < FAILED => Some(format!(
                    "{files} {} in place had been cut off and {} undone",
                    plural(files, "write"),
                    if files == 1 { "was" } else { "were" }
                )),
                _ => failed("the journal could not be read"),
            };
        },
        Err(errno) => failed(errno.desc()),
    }
}

fn plural(number: i32, what: &str) -> String {
    if number == 1 { what.into() } else { format!("{what}s") }
}

fn is_empty(journal: &OwnedFd) -> bool {
    let Ok(listing) = Dir::openat(journal, ".", OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()) else {
        return true;
    };
    !listing.into_iter().flatten().any(|entry| !matches!(entry.file_name().to_bytes(), b"." | b".."))
}
