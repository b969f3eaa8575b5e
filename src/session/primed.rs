//! A shell that is started before there is a command for it: narrowed, become bash, at the point where the script begins. A command then
//! costs no start of a process.
//!
//! Never runs anything by itself: it waits for one byte, which its keeper gives it when the protected names are what they were, and ends
//! where none comes. What a command needs beside a script and the state of the last one (another folder, an input) starts a shell of its own.

use super::Session;
use super::command::{Process, SCRIPT_FD, Streams, broken, input, internal, pipe};
use crate::envelope::Fault;
use crate::jail::spawn::Waiting;
use crate::jail::wire::{self, FromLeader, ToKeeper, ToLeader};
use crate::policy::Access;
use crate::tools::Launch;
use crate::tools::shell_state::{self, GO_FD, GO_ON, GO_READ, MAX_STATE, PRELUDE_FD, STATE_IN_FD, STATE_OUT_FD};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use tokio::net::unix::pipe::Receiver;

/// A shell that waits.
#[derive(Debug)]
pub(super) struct Primed {
    waiting: Waiting,
    out: Receiver,
    err: Receiver,
    /// Where it leaves its state.
    state: OwnedFd,
    /// What it reads before the script, and the script: both are empty yet.
    begin: File,
    script: File,
    go: OwnedFd,
}

/// A shell with its script.
#[derive(Debug)]
pub(super) struct Shell<'a> {
    pub(super) process: Process<'a>,
    pub(super) out: Receiver,
    pub(super) err: Receiver,
    pub(super) state: OwnedFd,
    /// It waited for the script: whether it was let go on, its keeper says.
    pub(super) waited: bool,
}

impl Session {
    /// Has the next command's shell made ahead of time.
    pub(super) fn open_spare(&self) {
        let missing = self.shell.borrow().spare.is_none();
        if missing {
            let primed = self.prime().ok();
            self.shell.borrow_mut().spare = primed;
        }
    }

    fn prime(&self) -> Result<Primed, Fault> {
        let (out, out_end) = pipe()?;
        let (err, err_end) = pipe()?;
        let (wait, go) = pipe2(OFlag::O_CLOEXEC).map_err(internal)?;
        let state = wire::sized_memfd(MAX_STATE as u64).map_err(internal)?;
        let empty = || wire::memfd(&[]).map(File::from).map_err(internal);
        let (begin, script) = (empty()?, empty()?);
        let again = |file: &File| file.try_clone().map(OwnedFd::from).map_err(broken);
        let streams = Streams(vec![
            (input(None)?, 0),
            (out_end, 1),
            (err_end, 2),
            (wait, GO_FD),
            (self.prelude(|shell| &mut shell.waiting_prelude, shell_state::waiting_prelude)?, PRELUDE_FD),
            (again(&script)?, SCRIPT_FD),
            (again(&begin)?, STATE_IN_FD),
            (state.try_clone().map_err(broken)?, STATE_OUT_FD),
        ]);
        let waiting = self.warden.open_ahead(Access::Execute)?;
        let program = ToLeader { places: streams.0.iter().map(|(_, place)| *place).collect(), ..self.shell_program(None) };
        let fds: Vec<_> = streams.0.iter().map(|(fd, _)| fd.as_fd()).collect();
        wire::send(waiting.launch.as_fd(), &program, &fds).map_err(internal)?;
        Ok(Primed { waiting, out, err, state, begin, script, go })
    }

    /// Gives the shell that waits its script, if one is there for which that is enough.
    pub(super) fn go_on(&self, launch: &Launch) -> Option<Shell<'_>> {
        if launch.workdir.is_some() || launch.stdin.is_some() {
            return None;
        }
        let Primed { waiting, out, err, state, mut begin, mut script, go } = self.shell.borrow_mut().spare.take()?;
        // One that was never started, or that somebody has ended meanwhile, is no reason to fail a call.
        let said = || wire::receive::<FromLeader>(waiting.launch.as_fd()).map(|said| said.is_none());
        let started = !wire::wait_readable(&waiting.launch, 0).ok()? || said().ok()?;
        if !started || wire::wait_readable(&waiting.control, 0).ok()? {
            return None;
        }
        let before = self.shell_begin(launch);
        begin.write_all(&before).and_then(|()| script.write_all(launch.script.as_bytes())).ok()?;
        if let Some(orders) = self.guard_orders() {
            // Before the program can end.
            wire::send(waiting.control.as_fd(), &ToKeeper::Compare(orders), &[]).ok()?;
        }
        let byte = if before.is_empty() { GO_ON } else { GO_READ };
        wire::send(waiting.control.as_fd(), &ToKeeper::Go(byte), &[go.as_fd()]).ok()?;
        let process = self.process_of(waiting).ok()?;
        Some(Shell { process, out, err, state, waited: true })
    }
}
