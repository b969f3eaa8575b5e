//! Programs: started in an `Execute` or `Own` jail, their output collected here, outside of the program's domain.

use super::primed::{Primed, Shell};
use super::spool::Spool;
use super::{Session, limit};
use crate::clip::capture::Collector;
use crate::envelope::{Fault, FaultCode};
use crate::jail::spawn::{Waiting, Warden};
use crate::jail::wire::{self, Ended, FromLeader, NotStarted, ToKeeper, ToLeader};
use crate::policy::Access;
use crate::tools::guard::Reply;
use crate::tools::shell_state::{self, Begin, MAX_STATE, PRELUDE_FD, STATE_IN_FD, STATE_OUT_FD, State};
use crate::tools::{Launch, Outcome, Stream};
use crate::workspace::escape;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{AccessFlags, pipe2};
use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;

/// Where bash finds the script: beside what [`shell_state`] uses.
pub(super) const SCRIPT_FD: i32 = 6;

/// How long a keeper may take to end a tree after it has been told to.
pub(super) const END: Duration = Duration::from_secs(3);

/// A program that takes longer is watched by its keeper.
pub const SHORT: Duration = Duration::from_millis(50);

/// How many times the spool's bound a program may write before it is ended.
const FLOOD: u64 = 16;

/// What the shell keeps from command to command.
#[derive(Debug, Default)]
pub(super) struct ShellState {
    /// Folder, exported variables and functions; opaque, and only ever used inside the jail.
    left: Option<State>,
    /// A shell that waits for the next command.
    pub(super) spare: Option<Primed>,
    /// What bash runs before each script, sealed: by whether there is state to read, and whether some is to be left; and where it waits first.
    preludes: [Option<OwnedFd>; 4],
    pub(super) waiting_prelude: Option<OwnedFd>,
    /// Where bash was found.
    bash: Option<PathBuf>,
}

/// The descriptors of a program: what, and at which number.
#[derive(Debug, Default)]
pub struct Streams(pub Vec<(OwnedFd, i32)>);

/// A program in its jail. Dropping it ends the program and everything that it started.
#[derive(Debug)]
pub struct Process<'a> {
    warden: &'a Warden,
    id: u64,
    launch: OwnedFd,
    control: UnixStream,
    watched: Cell<bool>,
}

/// A program that outlives calls. While one runs, what changes of protected names is counted as a command's.
#[derive(Debug)]
pub struct Lasting<'a> {
    /// The program.
    pub process: Process<'a>,
    lasting: &'a Cell<usize>,
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        self.lasting.set(self.lasting.get().saturating_sub(1));
    }
}

/// What one of our own programs wrote.
#[derive(Debug)]
pub struct OwnOutput {
    /// Exit code, or 128 and the signal.
    pub status: i32,
    /// Standard output, whole.
    pub stdout: Vec<u8>,
    /// Standard error, whole.
    pub stderr: Vec<u8>,
}

impl Process<'_> {
    /// Waits until the program has ended, and with it all that it started.
    ///
    /// # Errors
    /// `jail_died`, `malformed_reply`.
    pub async fn wait(&self) -> Result<Ended, Fault> {
        loop {
            if self.watched.get() {
                self.control.readable().await.map_err(broken)?;
            } else if let Ok(readable) = tokio::time::timeout(SHORT, self.control.readable()).await {
                readable.map_err(broken)?;
            } else {
                self.watched.set(true);
                let _ = wire::send(self.control.as_fd(), &ToKeeper::Watch, &[]);
                continue;
            }
            let report = self.control.try_io(Interest::READABLE, || wire::receive::<Ended>(self.control.as_fd()));
            match report {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(Some((ended, _))) => return Ok(ended),
                Ok(None) => return Err(self.warden.fate(self.id)),
                Err(error) => return Err(Fault::new(FaultCode::MalformedReply, format!("the keeper's report was not one: {error}"))),
            }
        }
    }

    /// Ends the program and everything that it started; `wait` then says how that went.
    pub fn kill(&self) {
        let _ = wire::send(self.control.as_fd(), &ToKeeper::Kill, &[]);
    }

    /// Passes a signal to the program's process group.
    pub fn signal(&self, number: i32) {
        let _ = wire::send(self.control.as_fd(), &ToKeeper::Signal(number), &[]);
    }

    /// What the leader said instead of starting the program, if it did not start it. Only asked after its end.
    pub fn not_started(&self) -> Option<FromLeader> {
        if !wire::wait_readable(&self.launch, 0).ok()? {
            return None;
        }
        wire::receive::<FromLeader>(self.launch.as_fd()).ok().flatten().map(|(said, _)| said)
    }
}

impl Session {
    /// Starts a program; its streams are the caller's business. `program.places` is filled in here.
    ///
    /// # Errors
    /// `session_closed`, `internal`.
    pub fn spawn(&self, access: Access, program: ToLeader, streams: Streams) -> Result<Process<'_>, Fault> {
        let waiting = self.warden.open_program(access)?;
        self.hand_over(waiting, program, streams)
    }

    /// Starts a program of the policy's userland that outlives calls (a server), watched from its first moment on.
    ///
    /// # Errors
    /// As [`Session::spawn`]; what keeps protected names from being looked at.
    pub async fn start_lasting(&self, program: ToLeader, streams: Streams) -> Result<Lasting<'_>, Fault> {
        self.guard_before(false).await?;
        let process = self.spawn(Access::Execute, program, streams)?;
        process.watched.set(true);
        let _ = wire::send(process.control.as_fd(), &ToKeeper::Watch, &[]);
        self.lasting.set(self.lasting.get() + 1);
        Ok(Lasting { process, lasting: &self.lasting })
    }

    /// Has a keeper do something for which it needs no program: what it is handed cannot be started.
    ///
    /// # Errors
    /// As [`Session::spawn`] and [`Process::wait`].
    pub(super) async fn keep_nothing(&self, order: &ToKeeper) -> Result<Ended, Fault> {
        let waiting = self.warden.open_program(Access::Execute)?;
        wire::send(waiting.control.as_fd(), order, &[]).map_err(|_| self.warden.fate(waiting.id))?;
        self.hand_over(waiting, ToLeader::default(), Streams(Vec::new()))?.wait().await
    }

    fn hand_over(&self, waiting: Waiting, mut program: ToLeader, streams: Streams) -> Result<Process<'_>, Fault> {
        let Waiting { id, launch, control } = waiting;
        program.places = streams.0.iter().map(|(_, place)| *place).collect();
        let fds: Vec<_> = streams.0.iter().map(|(fd, _)| fd.as_fd()).collect();
        wire::send(launch.as_fd(), &program, &fds).map_err(|errno| match errno {
            Errno::EPIPE | Errno::ECONNRESET => self.warden.fate(id),
            errno => Fault::new(FaultCode::Internal, format!("the program could not be handed over: {}", errno.desc())),
        })?;
        self.process_of(Waiting { id, launch, control })
    }

    pub(super) fn process_of(&self, Waiting { id, launch, control }: Waiting) -> Result<Process<'_>, Fault> {
        let control = StdUnixStream::from(control);
        control.set_nonblocking(true).map_err(broken)?;
        let control = UnixStream::from_std(control).map_err(broken)?;
        Ok(Process { warden: &self.warden, id, launch, control, watched: Cell::new(false) })
    }

    /// Runs one of our own programs (git, for the patch): the workspace read-only, writes only in the session's folder.
    ///
    /// # Errors
    /// As [`Session::spawn`] and [`Process::wait`].
    pub async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault> {
        self.program(Access::Own, argv, env, stdin).await
    }

    /// Runs a program of the person's as a command may run, between two looks at the protected names, and collects what it writes.
    /// Returns also what of it was undone.
    ///
    /// # Errors
    /// As [`Session::own`].
    pub async fn execute(
        &self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        stdin: Option<Vec<u8>>,
    ) -> Result<(OwnOutput, Vec<String>), Fault> {
        self.guard_before(false).await?;
        let output = self.program(Access::Execute, argv, env, stdin).await;
        let undone = self.guard_after(None).await;
        Ok((output?, undone))
    }

    async fn program(
        &self,
        access: Access,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        stdin: Option<Vec<u8>>,
    ) -> Result<OwnOutput, Fault> {
        let (out, out_end) = pipe()?;
        let (err, err_end) = pipe()?;
        let streams = Streams(vec![(input(stdin.as_deref())?, 0), (out_end, 1), (err_end, 2)]);
        let process = self.spawn(access, ToLeader { argv, env, ..ToLeader::default() }, streams)?;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (ended, first, second) = tokio::join!(process.wait(), read_all(&out, &mut stdout), read_all(&err, &mut stderr));
        first.and(second).map_err(broken)?;
        let ended = ended?;
        if let Some(FromLeader::NotStarted(why)) = process.not_started() {
            return Err(why.fault);
        }
        let status = ended.exit_code.unwrap_or_else(|| 128 + ended.signal.unwrap_or(0));
        Ok(OwnOutput { status, stdout, stderr })
    }

    /// Runs a script in an `Execute` jail and collects what it writes. Returns also what its keeper found of protected names; `None`: it was
    /// not started, because they are not what was kept of them.
    pub(super) async fn run_command(&self, launch: &Launch) -> Result<Option<(Outcome, Option<Reply>)>, Fault> {
        let started = Instant::now();
        let Shell { process, out, err, state, waited } = match self.go_on(launch) {
            Some(shell) => shell,
            None => self.new_shell(launch)?,
        };

        let limit = Duration::from_millis(launch.timeout_ms.min(self.charter.limits.wall_ms));
        let mut collector = Collector::default();
        let mut spool = Spool::new(self);
        let mut timed_out = false;
        let flooded = Cell::new(false);
        let most_output = match self.charter.limits.output {
            0 => u64::MAX,
            kept => kept.saturating_mul(FLOOD),
        };
        let mut ended = {
            let collect = async {
                let (first, second) = (read_some(&out), read_some(&err));
                tokio::pin!(first, second);
                let (mut first_open, mut second_open) = (true, true);
                while first_open || second_open {
                    let (stream, bytes) = tokio::select! {
                        bytes = &mut first, if first_open => (Stream::Stdout, bytes),
                        bytes = &mut second, if second_open => (Stream::Stderr, bytes),
                    };
                    let bytes = bytes.unwrap_or_default();
                    match stream {
                        Stream::Stdout => first.set(read_some(&out)),
                        Stream::Stderr => second.set(read_some(&err)),
                    }
                    if bytes.is_empty() {
                        *(if stream == Stream::Stdout { &mut first_open } else { &mut second_open }) = false;
                    }
                    spool.push(&bytes);
                    collector.push(stream, &bytes);
                    if !flooded.get() && collector.total_bytes() > most_output {
                        flooded.set(true);
                        process.kill();
                    }
                }
            };
            let wait = async {
                tokio::select! {
                    ended = process.wait() => ended,
                    () = tokio::time::sleep(limit) => {
                        timed_out = true;
                        process.kill();
                        match tokio::time::timeout(END, process.wait()).await {
                            Ok(ended) => ended,
                            Err(_) => {
                                self.warden.kill(process.id);
                                Ok(Ended { signal: Some(libc::SIGKILL), ..Ended::default() })
                            }
                        }
                    }
                }
            };
            // The keeper reports when every process of the tree is gone, so the pipes are at their end by then. A descriptor
            // that was passed out of the tree could hold one open: that is not waited for.
            tokio::pin!(collect, wait);
            let mut read = false;
            let ended = loop {
                tokio::select! {
                    biased;
                    () = &mut collect, if !read => read = true,
                    ended = &mut wait => break ended,
                }
            };
            if !read {
                let _ = tokio::time::timeout(END, collect).await;
            }
            ended?
        };
        if waited && ended.gone_on != Some(true) {
            // It was ended before it could begin, or protected names are not what was kept of them.
            return Ok(None);
        }
        let compared = ended.compared.take();
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let not_started = match process.not_started() {
            Some(FromLeader::Stale) => return Ok(None),
            Some(FromLeader::NotStarted(NotStarted { errno: None, fault })) => return Err(fault),
            Some(FromLeader::NotStarted(why)) => Some(why),
            Some(FromLeader::Kept(_)) | None => None,
        };
        self.open_spare();
        let mut left = shell_state::parse_state(&wire::content(state, MAX_STATE as u64).map_err(broken)?);
        let pipestatus = left.pipestatus.take();
        let mut notices = std::mem::take(&mut left.notices);
        notices.extend(spool.says());
        let limits = &self.charter.limits;
        let limit = if flooded.get() {
            Some(limit::output(most_output))
        } else {
            limit::met(&ended, pipestatus.as_deref(), limits).filter(|_| !timed_out || ended.exceeded.is_some())
        };
        let cwd = left.cwd.as_deref().map(|cwd| self.relative(Path::new(OsStr::from_bytes(cwd))));
        let older = self.shell.borrow_mut().left.take().unwrap_or_default();
        self.shell.borrow_mut().left = Some(left.or(older));
        let outcome = Outcome {
            exit_code: ended.exit_code.filter(|_| !timed_out),
            signal: ended.signal.filter(|_| !timed_out),
            timed_out,
            not_started: not_started.map(|why| why.fault.message().to_owned()),
            output: collector.finish(),
            duration_ms,
            cpu_ms: ended.cpu_ms,
            max_rss_kib: ended.max_rss_kib,
            pipestatus,
            killed_children: ended.killed,
            cwd,
            notices,
            spool: spool.finish(),
            limit,
            ..Outcome::default()
        };
        Ok(Some((outcome, compared)))
    }

    /// What a shell is given: its streams, the script, the state that the last command left, and `state`, where it leaves its own.
    pub(super) fn shell_streams(
        &self,
        launch: &Launch,
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
        state: Option<OwnedFd>,
    ) -> Result<Streams, Fault> {
        let begin = self.shell_begin(launch);
        let memory = |bytes: &[u8]| wire::memfd(bytes).map_err(internal);
        let mut streams = vec![
            (stdin, 0),
            (stdout, 1),
            (stderr, 2),
            (
                {
                    let (reads, leaves) = (!begin.is_empty(), state.is_some());
                    let place = usize::from(reads) + 2 * usize::from(leaves);
                    self.prelude(|shell| &mut shell.preludes[place], || shell_state::prelude(reads, leaves))?
                },
                PRELUDE_FD,
            ),
            (memory(launch.script.as_bytes())?, SCRIPT_FD),
        ];
        if !begin.is_empty() {
            streams.push((memory(&begin)?, STATE_IN_FD));
        }
        streams.extend(state.map(|state| (state, STATE_OUT_FD)));
        Ok(Streams(streams))
    }

    /// What a shell reads before its script; empty where there is nothing.
    pub(super) fn shell_begin(&self, launch: &Launch) -> Vec<u8> {
        let given = self.charter.env.iter().filter_map(|(name, value)| Some((name.to_str()?, value.as_bytes())));
        let given: Vec<(&str, &[u8])> = given.collect();
        shell_state::compose(&Begin {
            state: self.shell.borrow().left.as_ref(),
            given: &given,
            follow_cwd: launch.workdir.is_none(),
            start: self.charter.base.as_os_str().as_bytes(),
            env: &launch.env,
        })
    }

    /// What bash runs before each script: made once, and nobody can change it.
    pub(super) fn prelude(
        &self,
        place: impl FnOnce(&mut ShellState) -> &mut Option<OwnedFd>,
        text: impl FnOnce() -> String,
    ) -> Result<OwnedFd, Fault> {
        let mut shell = self.shell.borrow_mut();
        let kept = place(&mut shell);
        let prelude = match kept {
            Some(prelude) => prelude,
            None => kept.insert(wire::sealed_memfd(text().as_bytes()).map_err(internal)?),
        };
        prelude.try_clone().map_err(broken)
    }

    /// Where bash will probably be found: searched once, and not by the leader and by bash itself for each command.
    fn bash(&self) -> Option<PathBuf> {
        let mut shell = self.shell.borrow_mut();
        if shell.bash.is_none() {
            let path = self.charter.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_bytes()).unwrap_or_default();
            let folders = path.split(|byte| *byte == b':').filter(|folder| folder.starts_with(b"/"));
            let mut candidates = folders.map(|folder| Path::new(OsStr::from_bytes(folder)).join("bash"));
            shell.bash = candidates.find(|candidate| nix::unistd::access(candidate, AccessFlags::X_OK).is_ok());
        }
        shell.bash.clone()
    }

    /// A shell as a program, without its streams.
    pub(super) fn shell_program(&self, workdir: Option<String>) -> ToLeader {
        let env = vec![("BASH_ENV".into(), format!("/dev/fd/{PRELUDE_FD}").into())];
        let argv = ["bash", &format!("/dev/fd/{SCRIPT_FD}")].map(OsString::from).to_vec();
        ToLeader { argv, env, workdir, found_at: self.bash(), ..ToLeader::default() }
    }

    /// Starts a shell for this command alone.
    fn new_shell(&self, launch: &Launch) -> Result<Shell<'_>, Fault> {
        let (out, out_end) = pipe()?;
        let (err, err_end) = pipe()?;
        let state = wire::sized_memfd(MAX_STATE as u64).map_err(internal)?;
        let kept = state.try_clone().map_err(broken)?;
        let streams = self.shell_streams(launch, input(launch.stdin.as_deref())?, out_end, err_end, Some(kept))?;
        Ok(Shell { process: self.hand_over_shell(launch, streams)?, out, err, state, waited: false })
    }

    /// Starts a shell with these streams.
    fn hand_over_shell(&self, launch: &Launch, streams: Streams) -> Result<Process<'_>, Fault> {
        let waiting = self.warden.open_program(Access::Execute)?;
        let mut unless_changed = Vec::new();
        if let Some(orders) = self.guard_orders() {
            unless_changed = orders.known();
            // Before the program can end.
            wire::send(waiting.control.as_fd(), &ToKeeper::Compare(orders), &[]).map_err(|_| self.warden.fate(waiting.id))?;
        }
        self.hand_over(waiting, ToLeader { unless_changed, ..self.shell_program(launch.workdir.clone()) }, streams)
    }

    /// Starts a shell that outlives this call. Returns the wires to its leader and to its keeper: the end of the second is its end.
    pub(super) fn start_shell(&self, launch: &Launch, streams: Streams) -> Result<(OwnedFd, UnixStream), Fault> {
        let Process { launch, control, .. } = self.hand_over_shell(launch, streams)?;
        self.open_spare();
        Ok((launch, control))
    }

    /// Streams for a program of which nothing is heard.
    pub(super) fn silent_streams(&self) -> Result<Streams, Fault> {
        let null = || open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty()).map_err(internal);
        Ok(Streams(vec![(null()?, 0), (null()?, 1), (null()?, 2)]))
    }

    /// A folder as the shell names it, relative to the base where it is beneath it.
    fn relative(&self, cwd: &Path) -> String {
        match cwd.strip_prefix(&self.charter.base) {
            Ok(rest) if rest.as_os_str().is_empty() => ".".into(),
            Ok(rest) => escape::show(rest.as_os_str()),
            Err(_) => escape::show(cwd.as_os_str()),
        }
    }
}

pub(super) fn broken(error: io::Error) -> Fault {
    Fault::new(FaultCode::Internal, error.to_string())
}

pub(super) fn internal(errno: Errno) -> Fault {
    Fault::new(FaultCode::Internal, errno.desc())
}

/// A pipe: our non-blocking end to read, the program's blocking end to write.
pub(super) fn pipe() -> Result<(Receiver, OwnedFd), Fault> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(internal)?;
    Ok((Receiver::from_owned_fd(read).map_err(broken)?, write))
}

/// What a program reads: a memfd, or end of file at once.
pub(super) fn input(bytes: Option<&[u8]>) -> Result<OwnedFd, Fault> {
    match bytes {
        Some(bytes) => wire::memfd(bytes).map_err(internal),
        None => open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(internal),
    }
}

/// The next bytes of a pipe; none at its end.
pub(super) async fn read_some(pipe: &Receiver) -> io::Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        pipe.readable().await?;
        match pipe.try_read_buf(&mut buffer) {
            Ok(_) => return Ok(buffer),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Reads to the end.
pub(super) async fn read_all(pipe: &Receiver, into: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let bytes = read_some(pipe).await?;
        if bytes.is_empty() {
            return Ok(());
        }
        into.extend_from_slice(&bytes);
    }
}
