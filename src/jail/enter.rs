//! Inside a jail.
//!
//! A `Look` or `Change` jail narrows itself and answers calls while frames arrive. A leader narrows itself, waits for its
//! program, and becomes it. Neither ever widens anything, and neither returns.

use super::recover;
use super::wire::{self, FromJail, FromLeader, NotStarted, ToJail, ToLeader};
use crate::confine::{Confined, Prepared};
use crate::envelope::{Fault, FaultCode};
use crate::policy::Charter;
use crate::sys;
use crate::tools::bench::Memory;
use crate::tools::{self, Answer, AnyTool, Bench, Work, guard};
use crate::workspace::BaseDir;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::{Pid, execve, fchdir, getppid, setsid};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// The shell's exit codes for a program that is not there, and for one that cannot be executed.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// The base, and what a class has besides: the spool to look at, the journal to change.
pub type Folders<'a> = (&'a BaseDir, Option<&'a OwnedFd>, Option<&'a OwnedFd>);

/// Narrows this process and answers calls until the wire ends.
pub fn answer_calls(parent: Pid, prepared: &Prepared, registry: &[&dyn AnyTool], folders: Folders<'_>, wire: [OwnedFd; 2]) -> ! {
    let Ok((confined, base, [from, to], spool)) = narrow(parent, prepared, folders, wire) else { sys::exit_now(1) };
    // A jail that was ended in the middle of a write in place left its record to the next one. What cannot be undone now is tried
    // again, at the latest when the next session starts.
    let _ = base.recover_journal();
    // Most calls are one read.
    let (mut from, mut to) = (BufReader::new(File::from(from)), File::from(to));
    let memory = Memory::default();
    while let Ok(Some(frame)) = wire::read_frame(&mut from) {
        let Ok(call) = wire::parse::<ToJail>(&frame) else { break };
        let reply = answer(&confined, registry, &base, &memory, spool.as_ref(), call);
        let written = match reply.write(&mut to) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                let fault = Fault::new(FaultCode::ReplyTooLarge, "the answer is larger than the wire takes")
                    .hint("ask for less: limit, offset, max_per_file");
                FromJail { answer: Answer::failed(fault), seen: reply.seen }.write(&mut to)
            }
            other => other,
        };
        if written.is_err() {
            break;
        }
    }
    sys::exit_now(0)
}

type Narrow = (Confined, BaseDir, [OwnedFd; 2], Option<OwnedFd>);

/// Narrows this process and undoes what the journal holds; the exit code says how much.
pub fn undo(parent: Pid, prepared: &Prepared, base: &BaseDir, journal: &OwnedFd) -> ! {
    let undo = || -> Result<usize, Fault> {
        let _confined = confine_here(parent, prepared, base)?;
        let again = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|error| Fault::new(FaultCode::Internal, error.to_string()));
        let base = BaseDir::from_fd(again(base.as_fd())?, base.path().to_path_buf()).with_journal(again(journal.as_fd())?);
        Ok(base.recover_journal()?.restored.len())
    };
    sys::exit_now(undo().map_or(recover::FAILED, recover::restored))
}

fn confine_here(parent: Pid, prepared: &Prepared, base: &BaseDir) -> Result<Confined, Fault> {
    let broken = |errno: Errno| Fault::new(FaultCode::Internal, errno.desc());
    end_with(parent).map_err(broken)?;
    sys::reset_signals().map_err(broken)?;
    fchdir(base.as_fd()).map_err(broken)?;
    prepared.apply()
}

fn narrow(parent: Pid, prepared: &Prepared, (base, spool, journal): Folders<'_>, wire: [OwnedFd; 2]) -> Result<Narrow, Fault> {
    let broken = |errno: Errno| Fault::new(FaultCode::Internal, errno.desc());
    let confined = confine_here(parent, prepared, base)?;
    let mut keep = vec![base.as_fd(), wire[0].as_fd(), wire[1].as_fd()];
    keep.extend(journal.map(AsFd::as_fd));
    keep.extend(spool.map(AsFd::as_fd));
    let mut kept = sys::keep_only(&keep).map_err(broken)?.into_iter();
    // What these variables named has been closed with everything else; their numbers are not ours any more.
    let _ = std::mem::ManuallyDrop::new(wire);
    match (kept.next(), kept.next(), kept.next()) {
        (Some(fd), Some(from), Some(to)) => {
            let mut base = BaseDir::from_fd(fd, base.path().to_path_buf()).with_protected(base.protected().to_vec());
            if journal.is_some() {
                base = base.with_journal(kept.next().ok_or_else(|| broken(Errno::EBADF))?);
            }
            Ok((confined, base, [from, to], kept.next()))
        }
        _ => Err(broken(Errno::EBADF)),
    }
}

/// Runs one call. A panic in a tool is an envelope.
fn answer(
    confined: &Confined,
    registry: &[&dyn AnyTool],
    base: &BaseDir,
    memory: &Memory,
    spool: Option<&OwnedFd>,
    call: ToJail,
) -> FromJail {
    memory.learn(&call.seen);
    let bench = Bench::new(confined, base, memory, spool, Duration::from_millis(call.time_ms)).showing(call.shown);
    // The host names a tool by its own name. Of two lists, one may have for an alias what is a name in the other.
    let mut all = registry.iter().chain(tools::INTERNAL).chain(tools::attachment::ATTACHED);
    let run = || match all.find(|tool| tool.name() == call.tool).map(|tool| tool.work()) {
        Some(Work::Jail(run)) => run(&bench, call.args),
        _ => Answer::failed(Fault::new(FaultCode::Internal, format!("{} does not run in a jail", call.tool))),
    };
    let answer = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Answer::failed(
            Fault::new(FaultCode::Internal, format!("a bug in {}: {}", call.tool, said.unwrap_or_default()))
                .hint("nothing is half done on disk; please report it with the call"),
        )
    });
    FromJail { answer, seen: memory.take_news() }
}

/// Narrows this process, waits for a program on `launch`, and becomes it.
pub fn lead(parent: Pid, prepared: &Prepared, charter: &Charter, base: &BaseDir, launch: OwnedFd) -> ! {
    let failed = |fault: Fault, errno: Option<Errno>, code: i32| -> ! {
        let why = NotStarted { errno: errno.map(|errno| errno as i32), fault };
        let _ = wire::send(launch.as_fd(), &FromLeader::NotStarted(why), &[]);
        sys::exit_now(code)
    };
    let internal = |errno: Errno| Fault::new(FaultCode::Internal, errno.desc());
    let prepare = || -> Result<Confined, Fault> {
        end_with(parent).map_err(internal)?;
        setsid().map_err(internal)?;
        sys::reset_signals().map_err(internal)?;
        // Everything: what the program may have is placed below.
        sys::cloexec_from(3).map_err(internal)?;
        prepared.apply_but_last()
    };
    if let Err(fault) = prepare() {
        failed(fault, None, NOT_EXECUTABLE);
    }
    let (program, fds) = match wire::receive::<ToLeader>(launch.as_fd()) {
        Ok(Some(message)) => message,
        // The host changed its mind.
        Ok(None) => sys::exit_now(0),
        Err(error) => failed(Fault::new(FaultCode::Internal, error.to_string()), None, NOT_EXECUTABLE),
    };
    // Before the program, this process is confined like it, and still ours.
    if !guard::changed(base, &program.unless_changed).is_empty() {
        let _ = wire::send(launch.as_fd(), &FromLeader::Stale, &[]);
        sys::exit_now(0);
    }
    if let Some(names) = program.keep {
        let kept = Box::new(guard::keep_all(base, names));
        if let Err(errno) = wire::send(launch.as_fd(), &FromLeader::Kept(kept), &[]) {
            failed(internal(errno), None, NOT_EXECUTABLE);
        }
    }
    if let Err(fault) = start_in(base, program.workdir.as_deref()) {
        failed(fault, None, NOT_EXECUTABLE);
    }
    if let Err(errno) = place(&fds, &program.places) {
        failed(internal(errno), None, NOT_EXECUTABLE);
    }
    let env = environment(charter, &program.env);
    if let Err(fault) = prepared.apply_last() {
        failed(fault, None, NOT_EXECUTABLE);
    }
    if let (Some(found), [_, rest @ ..]) = (program.found_at, program.argv.as_slice()) {
        exec(&[&[found.into_os_string()], rest].concat(), &env);
    }
    let errno = exec(&program.argv, &env);
    let name = program.argv.first().map(|name| crate::workspace::escape::show(name)).unwrap_or_default();
    let code = if errno == Errno::ENOENT { NOT_FOUND } else { NOT_EXECUTABLE };
    failed(not_started(program.argv.first().map(OsString::as_os_str).unwrap_or_default(), &name, errno), Some(errno), code)
}

/// Why a program was not started, and what to do about it.
fn not_started(word: &OsStr, name: &str, errno: Errno) -> Fault {
    let path = Path::new(word);
    let fault = |says: &str| Fault::new(FaultCode::CommandNotStarted, format!("{name}: {says}"));
    match errno {
        Errno::ENOENT if word.is_empty() => fault("no program is named"),
        Errno::ENOENT if path.components().count() > 1 && path.is_file() => fault("the interpreter that it names is not there")
            .hint("the first line of a script says what runs it; a program may need a loader that is missing"),
        Errno::ENOENT if word.as_bytes().contains(&b' ') => fault(errno.desc()).hint("a line of a shell needs one: bash -c 'echo hi'"),
        Errno::EACCES if path.is_dir() => fault("this is a folder"),
        Errno::EACCES => {
            fault(errno.desc()).hint("chmod +x makes a file executable; what the policy permits to be run, `bailiwick policy show` says")
        }
        _ => fault(errno.desc()),
    }
}

/// This process ends when the one that forked it ends.
fn end_with(parent: Pid) -> Result<(), Errno> {
    sys::set_parent_death_signal(libc::SIGKILL)?;
    // It may have ended before the line above: then somebody else is our parent already.
    if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH) }
}

/// Makes a folder of the workspace the current one; the kernel judges the name.
fn start_in(base: &BaseDir, workdir: Option<&str>) -> Result<(), Fault> {
    let Some(workdir) = workdir else {
        return fchdir(base.as_fd()).map_err(|errno| Fault::new(FaultCode::Internal, errno.desc()));
    };
    let path = base.rel(workdir)?;
    let folder = base.open_at(&path, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
    fchdir(&folder).map_err(|errno| crate::workspace::base_dir::fault(errno, &path))
}

/// Puts the received descriptors where the program expects them.
fn place(fds: &[OwnedFd], places: &[i32]) -> Result<(), Errno> {
    if fds.len() != places.len() {
        return Err(Errno::EBADMSG);
    }
    // First out of the way of the places, so that no placing overwrites one that is still to be placed.
    let least = places.iter().copied().max().unwrap_or(2).max(2) + 1;
    let high = fds.iter().map(|fd| sys::duplicate_above(fd.as_fd(), least)).collect::<Result<Vec<_>, _>>()?;
    for (fd, number) in high.iter().zip(places) {
        sys::place_fd(fd.as_fd(), *number)?;
    }
    Ok(())
}

/// The charter's variables and, on top, the call's. A later one replaces an earlier one of the same name.
fn environment(charter: &Charter, more: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let mut env: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in charter.env.iter().chain(more) {
        match env.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1.clone_from(value),
            None => env.push((name.clone(), value.clone())),
        }
    }
    env
}

/// Becomes the program; returns only the reason why not.
fn exec(argv: &[OsString], env: &[(OsString, OsString)]) -> Errno {
    let c_string = |text: &OsStr| CString::new(text.as_bytes()).map_err(|_| Errno::EINVAL);
    let pair = |(name, value): &(OsString, OsString)| {
        let mut text = name.clone().into_vec();
        text.push(b'=');
        text.extend_from_slice(value.as_bytes());
        CString::new(text).map_err(|_| Errno::EINVAL)
    };
    let converted = || -> Result<(Vec<CString>, Vec<CString>), Errno> {
        Ok((argv.iter().map(|word| c_string(word)).collect::<Result<_, _>>()?, env.iter().map(pair).collect::<Result<_, _>>()?))
    };
    let (args, vars) = match converted() {
        Ok(both) => both,
        Err(errno) => return errno,
    };
    let Some(name) = args.first() else { return Errno::EINVAL };
    if name.is_empty() {
        // Joined to a folder of PATH it would be that folder.
        return Errno::ENOENT;
    }
    if name.as_bytes().contains(&b'/') {
        let Err(errno) = execve(name, &args, &vars);
        return errno;
    }
    let path = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_bytes()).unwrap_or_default();
    let mut reason = Errno::ENOENT;
    for folder in path.split(|byte| *byte == b':').filter(|folder| !folder.is_empty()) {
        let Ok(candidate) = CString::new([folder, b"/", name.as_bytes()].concat()) else { continue };
        let Err(errno) = execve(&candidate, &args, &vars);
        // As shells do: a candidate that is there but cannot be executed is remembered, and the search goes on.
        if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR) {
            reason = errno;
        }
    }
    reason
}
