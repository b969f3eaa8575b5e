//! `bailiwick exec -- CMD…`: any program, confined. Streams and exit code pass through.

use super::{Common, say_fault, setup};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::jail::spawn::Warden;
use crate::jail::wire::{self, Ended, FromLeader, ToKeeper, ToLeader};
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
        let first = self.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        let typed = first.split('=').next().unwrap_or_default();
        let words: Vec<OsString> = std::env::args_os().collect();
        // What stands directly before the program's name.
        let before = words.len().checked_sub(self.command.len() + 1).and_then(|at| words.get(at));
        if typed.starts_with("--") && before.is_none_or(|word| word != "--") {
            let flags = super::flags();
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let fault = Fault::new(FaultCode::InvalidArguments, format!("exec has no flag {typed}"));
            return Err(match crate::tools::args::nearest(typed, &flags) {
                Some(near) => fault.hint(format!("did you mean {near}? a program of this name comes after --")),
                None => fault.hint("`bailiwick exec --help` lists the flags; a program of this name comes after --"),
            });
        }
        let mut setup = setup::Setup::for_program(common)?;
        if setup.charter().execute.is_none() {
            return Err(Fault::new(FaultCode::ToolDenied, format!("the policy {} permits no programs", setup.charter().policy))
                .hint("--policy build does"));
        }
        let internal = |errno: Errno| Fault::new(FaultCode::Internal, errno.desc());
        let mut passed = SigSet::empty();
        PASSED.into_iter().for_each(|signal| passed.add(signal));
        passed.thread_block().map_err(internal)?;
        let signals = SignalFd::with_flags(&passed, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(internal)?;

        // It was all that this host held of its environment.
        setup.forget_environment();
        let warden = Warden::fork(setup.charter(), &[Access::Execute], setup.base())?;
        let waiting = warden.open_program(Access::Execute)?;
        let mut guard = Once::new(setup.charter());
        let keep = guard.as_ref().map(|guard| guard.names(setup.charter()));
        let program = ToLeader { argv: self.command, workdir: setup.current_folder(), places: vec![0, 1, 2], keep, ..ToLeader::default() };
        let (input, output, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
        warden.ready()?;
        if guard.is_some() {
            wire::send(waiting.control.as_fd(), &ToKeeper::CompareLater, &[]).map_err(|_| warden.fate(waiting.id))?;
        }
        let sent = wire::send(waiting.launch.as_fd(), &program, &[input.as_fd(), output.as_fd(), error.as_fd()]);
        sent.map_err(|_| warden.fate(waiting.id))?;
        let mut not_started = None;

        let (mut watched, mut launched) = (false, false);
        let mut ended = loop {
            let mut ready = vec![PollFd::new(waiting.control.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            if !launched {
                // Its other end is closed when the program has been started: asked again it would say so without end.
                ready.push(PollFd::new(waiting.launch.as_fd(), PollFlags::POLLIN));
            }
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
            let happened = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
            let (ends, speaks) = (happened(&ready[0]), ready.get(2).is_some_and(happened));
            if speaks {
                match wire::receive::<FromLeader>(waiting.launch.as_fd()) {
                    Ok(Some((FromLeader::Kept(kept), _))) => {
                        if let Some(guard) = &mut guard {
                            let _ = wire::send(waiting.control.as_fd(), &guard.kept(*kept), &[]);
                        }
                    }
                    Ok(Some((FromLeader::NotStarted(why), _))) => not_started = Some(why),
                    Ok(Some((FromLeader::Stale, _)) | None) | Err(_) => launched = true,
                }
            }
            while let Ok(Some(signal)) = signals.read_signal() {
                let number = i32::try_from(signal.ssi_signo).unwrap_or(libc::SIGTERM);
                let _ = wire::send(waiting.control.as_fd(), &ToKeeper::Signal(number), &[]);
            }
            if ends && !speaks {
                break match wire::receive::<Ended>(waiting.control.as_fd()) {
                    Ok(Some((ended, _))) => ended,
                    _ => return Err(warden.fate(waiting.id)),
                };
            }
        };
        for undone in guard.map(|guard| guard.end(&warden, ended.compared.take())).transpose()?.into_iter().flatten() {
            say!("bailiwick: {undone}");
        }
        if let Some(why) = not_started {
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
