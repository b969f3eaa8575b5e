//! `bailiwick exec -- CMD…`: any program, confined. Streams and exit code pass through.

use super::{Common, say_fault, setup};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::jail::spawn::Warden;
use crate::jail::wire::{self, Ended, NotStarted, ToKeeper, ToLeader};
use crate::policy::Access;
use crate::session::Once;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::ffi::OsString;
use std::os::fd::AsFd;

/// Signals that are passed on to the program.
const PASSED: [Signal; 6] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];

#[derive(Debug, clap::Args)]
pub(super) struct Exec {
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Exec {
    /// The program's exit code; 128 and the signal; 127 not found, 126 not executable; 125 when we fail.
    pub(super) fn run(self, common: &Common) -> i32 {
        match self.try_run(common) {
            Ok(code) => code,
            Err(fault) => {
                say_fault(&fault);
                i32::from(ExitCode::ExecFailed.code())
            }
        }
    }

    fn try_run(self, common: &Common) -> Result<i32, Fault> {
        let setup = setup::Setup::new(common)?;
        if setup.charter().execute.is_none() {
            return Err(Fault::new(FaultCode::ToolDenied, format!("the policy {} permits no programs", setup.charter().policy))
                .hint("--policy build does"));
        }
        let internal = |errno: Errno| Fault::new(FaultCode::Internal, errno.desc());
        let mut passed = SigSet::empty();
        PASSED.into_iter().for_each(|signal| passed.add(signal));
        passed.thread_block().map_err(internal)?;
        let signals = SignalFd::with_flags(&passed, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(internal)?;

        // The class of the guard, where commands could change what is protected.
        let guarded = setup.charter().change.is_some();
        let classes: &[Access] = if guarded { &[Access::Change, Access::Execute] } else { &[Access::Execute] };
        let warden = Warden::begin(&crate::session::this_exe(), setup.charter(), classes, setup.base())?;
        let waiting = warden.open_program(Access::Execute)?;
        let program = ToLeader { argv: self.command, env: Vec::new(), workdir: setup.current_folder(), places: vec![0, 1, 2] };
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        // The program waits until what is protected has been looked at.
        warden.ready()?;
        let guard = Once::begin(&warden, setup.charter())?;
        let sent = wire::send(waiting.launch.as_fd(), &program, &[input.as_fd(), output.as_fd(), error.as_fd()]);
        sent.map_err(internal)?;

        let mut watched = false;
        let ended = loop {
            let mut ready = [PollFd::new(waiting.control.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            let short = PollTimeout::try_from(crate::session::SHORT).unwrap_or(PollTimeout::MAX);
            match poll(&mut ready, if watched { PollTimeout::NONE } else { short }) {
                Err(Errno::EINTR) => continue,
                Ok(0) => {
                    watched = true;
                    let _ = wire::send(waiting.control.as_fd(), &ToKeeper::Watch, &[]);
                    continue;
                }
                other => other.map_err(internal)?,
            };
            while let Ok(Some(signal)) = signals.read_signal() {
                let number = i32::try_from(signal.ssi_signo).unwrap_or(libc::SIGTERM);
                let _ = wire::send(waiting.control.as_fd(), &ToKeeper::Signal(number), &[]);
            }
            if ready[0].revents().is_some_and(|events| !events.is_empty()) {
                break match wire::receive::<Ended>(waiting.control.as_fd()) {
                    Ok(Some((ended, _))) => ended,
                    _ => return Err(warden.fate(waiting.id)),
                };
            }
        };
        for undone in guard.map(Once::end).transpose()?.into_iter().flatten() {
            say!("bailiwick: {undone}");
        }
        if wire::wait_readable(&waiting.launch, 0) == Ok(true)
            && let Ok(Some((why, _))) = wire::receive::<NotStarted>(waiting.launch.as_fd())
        {
            say_fault(&why.fault);
            return Ok(if why.errno.is_some() {
                ended.exit_code.unwrap_or(i32::from(ExitCode::ExecFailed.code()))
            } else {
                i32::from(ExitCode::ExecFailed.code())
            });
        }
        if let Some(limit) = crate::session::limit_met(&ended, &setup.charter().limits) {
            say!("bailiwick: the program met its limit of {limit}");
        }
        if !ended.killed.is_empty() {
            say!("bailiwick: ended what the program left running: {}", ended.killed.join("; "));
        }
        Ok(ended.exit_code.unwrap_or_else(|| 128 + ended.signal.unwrap_or(0)))
    }
}
