//! The host's side: starts the warden and asks it for jails.

use super::warden::{ROLE, WIRE};
use super::wire::{self, Ends, FromWarden, ToWarden};
use crate::confine::Report;
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter};
use crate::sys::Forked;
use crate::workspace::BaseDir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, posix_spawn};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the warden may take to raise and try its walls.
const RAISE: Duration = Duration::from_secs(20);

/// How long the last words of a warden that hears nothing any more are waited for; they, or the end of its wire, are there by then.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long the warden may take to end everything once its wire is closed.
const LOWER_MS: i32 = 5000;

/// A warden that has raised its walls. Dropping it ends the session's processes.
#[derive(Debug)]
pub struct Warden {
    wire: Option<OwnedFd>,
    pid: Pid,
    next: AtomicU64,
}

/// A narrowed process that waits for its program, and the way to end it.
#[derive(Debug)]
pub struct Waiting {
    /// The warden's number of it.
    pub id: u64,
    /// Takes one [`wire::ToLeader`]; closed by a successful exec, else answers [`wire::NotStarted`].
    pub launch: OwnedFd,
    /// Takes [`wire::ToKeeper`], answers one [`wire::Ended`]. Closing it ends the program.
    pub control: OwnedFd,
}

/// Opened by the host, so that it can be written wherever the mounts of the session put it: it lies outside of them.
fn open_journal(path: &Path) -> Result<OwnedFd, Fault> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    nix::fcntl::open(path, flags, Mode::empty())
        .map_err(|errno| Fault::new(FaultCode::IoError, format!("the journal {}: {}", path.display(), errno.desc())))
}

/// Gives back what of the program is in memory for a piece of work that is done and does not come again.
pub fn forget_start() {
    crate::sys::forget_code();
}

impl Warden {
    /// Starts the warden, and does not wait for it: jails may be asked for at once, and are made when the walls stand. `exe` is an
    /// executable that hands its hidden role to [`super::warden::run`] (this one, say).
    ///
    /// # Errors
    /// `internal`: why it did not start.
    pub fn begin(exe: &Path, charter: &Charter, classes: &[Access], base: &BaseDir) -> Result<Self, Fault> {
        crate::sys::keep_memory();
        let internal = |what: &str, errno: Errno| Fault::new(FaultCode::Internal, format!("the warden {what}: {}", errno.desc()));
        let (ours, theirs) = wire::packet_pair().map_err(|errno| internal("has no wire", errno))?;
        let pid = start_process(exe, &theirs).map_err(|errno| internal("could not be started", errno))?;
        drop(theirs);
        let warden = Self { wire: Some(ours), pid, next: AtomicU64::new(1) };
        let hello = ToWarden::Hello { charter: Box::new(charter.clone()), classes: classes.to_vec() };
        let journal = charter.journal.as_deref().map(open_journal).transpose()?;
        let fds: Vec<_> = std::iter::once(base.as_fd()).chain(journal.iter().map(AsFd::as_fd)).collect();
        warden.send(&hello, &fds)?;
        // What has led to the charter is not run again, and the warden is at work for a while.
        forget_start();
        Ok(warden)
    }

    /// Starts the warden as a fork of this process, which costs a tenth of starting the executable again. Only for a host of one thread that
    /// holds no secret: it never had a key, and has scrubbed what it had copied of its environment. The fork scrubs the environment itself.
    ///
    /// # Errors
    /// `internal`: why it did not start.
    pub fn fork(charter: &Charter, classes: &[Access], base: &BaseDir) -> Result<Self, Fault> {
        let internal = |what: &str, errno: Errno| Fault::new(FaultCode::Internal, format!("the warden {what}: {}", errno.desc()));
        let (ours, theirs) = wire::packet_pair().map_err(|errno| internal("has no wire", errno))?;
        let journal = charter.journal.as_deref().map(open_journal).transpose()?;
        let pid = match crate::sys::fork_single_threaded().map_err(|errno| internal("could not be started", errno))? {
            Forked::Child => {
                let fds: Vec<_> = [theirs.as_fd(), base.as_fd()].into_iter().chain(journal.iter().map(AsFd::as_fd)).collect();
                super::warden::run_forked(charter, classes, &fds)
            }
            Forked::Parent(pid) => pid,
        };
        Ok(Self { wire: Some(ours), pid, next: AtomicU64::new(1) })
    }

    /// Waits until the walls stand and have been tried. Returns the report of what is enforced.
    ///
    /// # Errors
    /// What the warden found missing (`cannot_confine`, `canary_failed`), or that it ended.
    pub fn ready(&self) -> Result<Report, Fault> {
        match self.hear(Instant::now() + RAISE)? {
            FromWarden::Ready { report } => Ok(*report),
            FromWarden::Failed { fault } => Err(fault),
            _ => Err(Fault::new(FaultCode::MalformedReply, "the warden spoke out of turn")),
        }
    }

    fn send(&self, message: &ToWarden, fds: &[std::os::fd::BorrowedFd<'_>]) -> Result<(), Fault> {
        let wire = self.wire.as_ref().ok_or_else(closed)?;
        wire::send(wire.as_fd(), message, fds).map_err(|_| self.last_words())
    }

    /// Why nothing can be sent to it any more: what it said before it ended, which may lie unread when it failed while it was asked already.
    fn last_words(&self) -> Fault {
        let until = Instant::now() + LAST_WORDS;
        loop {
            match self.hear(until) {
                Ok(FromWarden::Failed { fault }) => return fault,
                Ok(_) => {}
                Err(_) => return closed(),
            }
        }
    }

    fn hear(&self, until: Instant) -> Result<FromWarden, Fault> {
        let wire = self.wire.as_ref().ok_or_else(closed)?;
        let left = i32::try_from(until.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(i32::MAX);
        if !wire::wait_readable(wire, left).map_err(|_| closed())? {
            return Err(Fault::new(FaultCode::DeadlineExceeded, "the warden did not answer in time"));
        }
        match wire::receive::<FromWarden>(wire.as_fd()) {
            Ok(Some((message, _))) => Ok(message),
            Ok(None) => Err(Fault::new(FaultCode::JailDied, "the warden ended before it answered")),
            Err(error) => Err(Fault::new(FaultCode::MalformedReply, format!("the warden's answer was not one: {error}"))),
        }
    }

    /// Asks for a `Look` or `Change` jail. Returns its number and our end of the call wire.
    ///
    /// # Errors
    /// `session_closed`, `internal`.
    pub fn open_calls(&self, access: Access) -> Result<(u64, Ends), Fault> {
        let (ours, theirs) = wire::call_wire().map_err(no_wire)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&ToWarden::Open { id, access, ahead: false }, &[theirs.from.as_fd(), theirs.to.as_fd()])?;
        Ok((id, ours))
    }

    /// Asks for an `Execute` or `Own` jail.
    ///
    /// # Errors
    /// `session_closed`, `internal`.
    pub fn open_program(&self, access: Access) -> Result<Waiting, Fault> {
        self.open_for_program(access, false)
    }

    /// The same for a program that is not known yet: until then it makes itself ready.
    ///
    /// # Errors
    /// As [`Warden::open_program`].
    pub fn open_ahead(&self, access: Access) -> Result<Waiting, Fault> {
        self.open_for_program(access, true)
    }

    fn open_for_program(&self, access: Access, ahead: bool) -> Result<Waiting, Fault> {
        let (launch, leader) = wire::packet_pair().map_err(no_wire)?;
        let (control, keeper) = wire::packet_pair().map_err(no_wire)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.send(&ToWarden::Open { id, access, ahead }, &[leader.as_fd(), keeper.as_fd()])?;
        Ok(Waiting { id, launch, control })
    }

    /// Ends a jail. Nothing happens when it has ended already.
    pub fn kill(&self, id: u64) {
        let _ = self.send(&ToWarden::Kill { id }, &[]);
    }

    /// Why a jail is not there any more, as far as the warden has said by now.
    pub fn fate(&self, jail: u64) -> Fault {
        let until = Instant::now() + Duration::from_millis(200);
        loop {
            match self.hear(until) {
                Ok(FromWarden::NotOpened { id, fault }) if id == jail => return fault,
                Ok(FromWarden::Ended { id, how }) if id == jail => {
                    return Fault::new(FaultCode::JailDied, format!("the process that did the work is gone: {how}"))
                        .hint("nothing is half done on disk; the next call gets a fresh one");
                }
                Ok(_) => {}
                Err(_) => {
                    return Fault::new(FaultCode::JailDied, "the process that did the work is gone").hint("the next call gets a fresh one");
                }
            }
        }
    }
}

impl Drop for Warden {
    fn drop(&mut self) {
        // The end of the wire is the order to end everything.
        self.wire = None;
        let in_time = crate::sys::pidfd(self.pid).and_then(|pidfd| wire::wait_readable(&pidfd, LOWER_MS));
        if !matches!(in_time, Ok(true)) {
            let _ = nix::sys::signal::kill(self.pid, nix::sys::signal::Signal::SIGKILL);
        }
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

fn closed() -> Fault {
    Fault::new(FaultCode::SessionClosed, "the session's warden is gone").hint("start a new session; what is on disk is whole")
}

fn no_wire(errno: Errno) -> Fault {
    Fault::new(FaultCode::Internal, format!("no wire for a jail: {}", errno.desc()))
}

/// Starts the executable again in its hidden role: the wire at its place, an environment from nothing.
fn start_process(exe: &Path, wire: &OwnedFd) -> Result<Pid, Errno> {
    let exe = CString::new(exe.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    let name = CString::new("bailiwick").map_err(|_| Errno::EINVAL)?;
    let role = CString::new(ROLE).map_err(|_| Errno::EINVAL)?;
    // dup2 onto itself would keep close-on-exec: make sure that the number differs.
    let source = crate::sys::duplicate_above(wire.as_fd(), WIRE + 1)?;
    let mut actions = PosixSpawnFileActions::init()?;
    actions.add_dup2(source.as_raw_fd(), WIRE)?;
    let attributes = PosixSpawnAttr::init()?;
    posix_spawn(exe.as_c_str(), &actions, &attributes, &[name, role], &[] as &[CString])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warden_that_failed_while_it_was_asked_is_heard_all_the_same() {
        // Waited for by the warden's end.
        #[expect(clippy::zombie_processes)]
        let child = std::process::Command::new("true").spawn().unwrap();
        let (ours, theirs) = wire::packet_pair().unwrap();
        let warden = Warden { wire: Some(ours), pid: Pid::from_raw(i32::try_from(child.id()).unwrap()), next: AtomicU64::new(1) };
        let fault = Fault::new(FaultCode::CannotConfine, "signals are missing");
        wire::send(theirs.as_fd(), &FromWarden::Failed { fault: fault.clone() }, &[]).unwrap();
        drop(theirs);
        let asked = [warden.open_program(Access::Execute).map(drop), warden.open_calls(Access::Look).map(drop)];
        assert_eq!(asked.map(|asked| asked.unwrap_err().code()), [FaultCode::CannotConfine, FaultCode::SessionClosed]);
    }
}
