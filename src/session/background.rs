//! Background processes: they live as long as the session, each with its own keeper.
//!
//! Their output is taken off their pipes while the runtime runs, whether somebody asks for it or not: the last of it is kept in a bounded
//! ring, all of it in the spool up to the policy's bound. Nothing a process writes is ever waited for by the session.

use super::command::{END, input, pipe, read_some};
use super::{Session, limit};
use crate::envelope::{Fault, FaultCode};
use crate::jail::wire::{self, Ended, FromLeader, NotStarted, ToKeeper, ToLeader};
use crate::policy::{Access, Net};
use crate::tools::process::{Op, Ready, Reply, Status};
use crate::tools::{Captured, Chunk, Launch, Stream};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Notify;

/// Bytes of output of a process that are at hand; older ones are in the spool.
const RING: usize = 1 << 20;
/// Bytes to which small pieces of output are joined.
const PIECE: usize = 4096;
/// The most processes that run at the same time, and the most that are remembered.
const MOST_RUNNING: usize = 16;
const MOST: usize = 64;
/// How long a start waits for a process that ends at once.
const AT_ONCE: Duration = Duration::from_millis(150);
/// How long a process that is asked to end may take, and how long one may take to read its input.
const ASKED: Duration = Duration::from_secs(2);
/// Characters of the script in a listing.
const SHOWN: usize = 200;

/// A background process.
pub(super) struct Background {
    id: String,
    command: String,
    began: Instant,
    control: Arc<UnixStream>,
    stdin: Option<Sender>,
    shared: Arc<Shared>,
    spool: Option<String>,
    taken: Cell<u64>,
    follower: tokio::task::JoinHandle<()>,
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = wire::send(self.control.as_fd(), &ToKeeper::Kill, &[]);
        self.follower.abort();
    }
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    news: Notify,
}

#[derive(Default)]
struct Progress {
    ring: VecDeque<(Stream, Vec<u8>)>,
    kept: usize,
    total: u64,
    spool: Option<File>,
    room: u64,
    ended: Option<(Ended, Instant)>,
}

impl Progress {
    fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        let fits = bytes.len().min(usize::try_from(self.room).unwrap_or(usize::MAX));
        if let Some(file) = &mut self.spool
            && file.write_all(&bytes[..fits]).is_err()
        {
            // The disk is full: the ring does not depend on it.
            self.spool = None;
        }
        self.room -= fits as u64;
        self.total += bytes.len() as u64;
        self.kept += bytes.len();
        match self.ring.back_mut() {
            // Small pieces are joined: each read brings a buffer of its own.
            Some((last, joined)) if *last == stream && joined.len() + bytes.len() <= PIECE => joined.extend_from_slice(&bytes),
            _ => self.ring.push_back((stream, bytes.into_boxed_slice().into_vec())),
        }
        while self.kept > RING
            && let Some((_, oldest)) = self.ring.pop_front()
        {
            self.kept -= oldest.len();
        }
    }

    /// What was written from a byte on, and how much of that is not kept.
    fn since(&self, since: u64) -> (Captured, u64) {
        let mut at = self.total - self.kept as u64;
        let skipped = at.saturating_sub(since);
        let mut captured = Captured::default();
        for (stream, bytes) in &self.ring {
            let from = usize::try_from(since.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
            at += bytes.len() as u64;
            if from < bytes.len() {
                let bytes = bytes[from..].to_vec();
                match stream {
                    Stream::Stdout => captured.stdout_bytes += bytes.len() as u64,
                    Stream::Stderr => captured.stderr_bytes += bytes.len() as u64,
                }
                captured.chunks.push(Chunk { stream: *stream, bytes, dropped_before: crate::clip::capture::Amount::default() });
            }
        }
        (captured, skipped)
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this holds, at the most so long.
    async fn until(&self, time: Duration, mut holds: impl FnMut(&Progress) -> bool) -> bool {
        let wait = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if holds(&self.progress()) {
                    return;
                }
                news.await;
            }
        };
        tokio::time::timeout(time, wait).await.is_ok()
    }
}

/// Takes the output off the pipes until the process has ended.
async fn follow(control: Arc<UnixStream>, out: Receiver, err: Receiver, shared: Arc<Shared>) {
    let take = |stream, pipe: Receiver| {
        let shared = shared.clone();
        async move {
            while let Ok(bytes) = read_some(&pipe).await {
                if bytes.is_empty() {
                    break;
                }
                shared.progress().push(stream, bytes);
                shared.news.notify_waiters();
            }
        }
    };
    let read = async { tokio::join!(take(Stream::Stdout, out), take(Stream::Stderr, err)) };
    let wait = async {
        loop {
            if control.readable().await.is_err() {
                return Ended::default();
            }
            match control.try_io(Interest::READABLE, || wire::receive::<Ended>(control.as_fd())) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(Some((ended, _))) => return ended,
                // Its keeper is gone, and with it the process.
                Ok(None) | Err(_) => return Ended { signal: Some(libc::SIGKILL), ..Ended::default() },
            }
        }
    };
    tokio::pin!(read, wait);
    let mut all = false;
    let ended = loop {
        tokio::select! {
            biased;
            _ = &mut read, if !all => all = true,
            ended = &mut wait => break ended,
        }
    };
    if !all {
        let _ = tokio::time::timeout(END, read).await;
    }
    shared.progress().ended = Some((ended, Instant::now()));
    shared.news.notify_waiters();
}

impl Session {
    /// Does what a tool asks to be done with background processes.
    pub(super) async fn process(&self, op: Op) -> Result<Reply, Fault> {
        match op {
            Op::Start { launch, ready } => self.start_background(launch, ready).await,
            Op::List => {
                let ids: Vec<String> = self.background.borrow().iter().map(|process| process.id.clone()).collect();
                let processes = ids.iter().map(|id| self.status(id)).collect::<Result<_, _>>()?;
                Ok(Reply { processes, ..Reply::default() })
            }
            Op::Output { id, since, wait_ms } => {
                let shared = self.shared(&id)?;
                let since = since.map_or_else(|| self.with(&id, |process| process.taken.get()), Ok)?;
                shared.until(Duration::from_millis(wait_ms), |progress| progress.total > since || progress.ended.is_some()).await;
                self.reply(&id, since)
            }
            Op::Input { id, text, eof } => self.give(&id, text.as_bytes(), eof).await,
            Op::Stop { id } => {
                let shared = self.shared(&id)?;
                let control = self.with(&id, |process| process.control.clone())?;
                let tell = |order: ToKeeper| {
                    let _ = wire::send(control.as_fd(), &order, &[]);
                };
                let has_ended = |progress: &Progress| progress.ended.is_some();
                if !has_ended(&shared.progress()) {
                    tell(ToKeeper::Signal(libc::SIGTERM));
                    if !shared.until(ASKED, has_ended).await {
                        tell(ToKeeper::Kill);
                        shared.until(END, has_ended).await;
                    }
                }
                let since = self.with(&id, |process| process.taken.get())?;
                self.reply(&id, since)
            }
        }
    }

    /// Starts a process that lives as long as the session.
    pub(super) async fn start_background(&self, launch: Launch, ready: Option<Ready>) -> Result<Reply, Fault> {
        if self.running_processes().len() >= MOST_RUNNING {
            return Err(Fault::new(FaultCode::LimitExceeded, format!("{MOST_RUNNING} background processes run already"))
                .hint("process_stop ends one; process_list shows them"));
        }
        let no_loopback = self.why_no_loopback();
        if ready.as_ref().is_some_and(|ready| ready.port.is_some())
            && let Some(why) = &no_loopback
        {
            return Err(Fault::new(FaultCode::SandboxDenied, format!("no port can be waited for: {why}"))
                .hint("ready: {regex} waits for a line of its output"));
        }
        let (out, out_end) = pipe()?;
        let (err, err_end) = pipe()?;
        let (stdin_end, stdin) = match &launch.stdin {
            Some(bytes) => (input(Some(bytes))?, None),
            None => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(super::command::internal)?;
                (read, Some(Sender::from_owned_fd(write).map_err(super::command::broken)?))
            }
        };
        let streams = self.shell_streams(&launch, stdin_end, out_end, err_end, None)?;
        // While it runs, and until the next comparison, protected names are not known to be as they were.
        self.guard_before(false).await?;
        let (launched, control) = self.start_shell(&launch, streams)?;
        let notices: Vec<String> = no_loopback.into_iter().map(|why| format!("nobody can connect to it: {why}")).collect();
        if let Some(why) = refusal(&launched) {
            return Err(why.fault);
        }
        let number = self.started.get() + 1;
        self.started.set(number);
        let id = format!("p{number}");
        let (spool, file) = self.open_spool().map_or((None, None), |(name, file)| (Some(name), Some(file)));
        let room = if self.charter.limits.output == 0 { u64::MAX } else { self.charter.limits.output };
        let shared = Arc::new(Shared { progress: Mutex::new(Progress { spool: file, room, ..Progress::default() }), news: Notify::new() });
        let control = Arc::new(control);
        let _ = wire::send(control.as_fd(), &ToKeeper::Watch, &[]);
        let follower = tokio::spawn(follow(control.clone(), out, err, shared.clone()));
        let command: String = launch.script.chars().take(SHOWN).collect();
        let process =
            Background { id: id.clone(), command, began: Instant::now(), control, stdin, shared, spool, taken: Cell::new(0), follower };
        self.remember(process);
        let ready = match ready {
            None => {
                self.shared(&id)?.until(AT_ONCE, |progress| progress.ended.is_some()).await;
                None
            }
            Some(ready) => Some(self.is_ready(&id, &ready).await?),
        };
        Ok(Reply { ready, notices, ..self.reply(&id, 0)? })
    }

    /// Ends all background processes.
    pub(super) async fn end_background(&self) {
        let all: Vec<_> = self.background.borrow().iter().map(|process| (process.control.clone(), process.shared.clone())).collect();
        for (control, _) in &all {
            let _ = wire::send(control.as_fd(), &ToKeeper::Kill, &[]);
        }
        for (_, shared) in &all {
            shared.until(END, |progress| progress.ended.is_some()).await;
        }
    }

    /// Ids of the background processes that run.
    pub fn running_processes(&self) -> Vec<String> {
        let running = |process: &&Background| process.shared.progress().ended.is_none();
        self.background.borrow().iter().filter(running).map(|process| process.id.clone()).collect()
    }

    /// Why nothing of the session can connect to anything else of it; `None` where it can.
    pub(super) fn why_no_loopback(&self) -> Option<String> {
        match self.charter.net {
            Net::Loopback if !self.report.surroundings.namespaces.net => {
                Some("net = loopback is none here, since no network namespace starts and the host's loopback is not given".into())
            }
            Net::None => Some(format!("the policy {} says net = none", self.charter.policy)),
            _ => None,
        }
    }

    fn remember(&self, process: Background) {
        let mut all = self.background.borrow_mut();
        if all.len() >= MOST
            && let Some(oldest) = all.iter().position(|process| process.shared.progress().ended.is_some())
        {
            all.remove(oldest);
        }
        all.push(process);
    }

    async fn is_ready(&self, id: &str, ready: &Ready) -> Result<bool, Fault> {
        let shared = self.shared(id)?;
        let time = Duration::from_millis(ready.timeout_ms);
        if let Some(pattern) = &ready.regex {
            let regex = regex::bytes::Regex::new(pattern).map_err(|error| Fault::new(FaultCode::InvalidPattern, error.to_string()))?;
            let mut found = false;
            shared
                .until(time, |progress| {
                    let bytes: Vec<u8> = progress.ring.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect();
                    found = regex.is_match(&bytes);
                    found || progress.ended.is_some()
                })
                .await;
            return Ok(found);
        }
        let Some(port) = ready.port else { return Ok(true) };
        // Asked from inside, where the port is: whoever connects there has nothing but what commands have.
        let script = "until { : <>/dev/tcp/127.0.0.1/$1 || : <>/dev/tcp/::1/$1; } 2>/dev/null; do sleep 0.05; done";
        let argv = ["bash", "-c", script, "bash", &port.to_string()].map(Into::into).to_vec();
        let probe = self.spawn(Access::Execute, ToLeader { argv, ..ToLeader::default() }, self.silent_streams()?)?;
        tokio::select! {
            ended = probe.wait() => Ok(ended?.exit_code == Some(0)),
            _ = shared.until(time, |progress| progress.ended.is_some()) => Ok(false),
        }
    }

    async fn give(&self, id: &str, bytes: &[u8], eof: bool) -> Result<Reply, Fault> {
        // Taken out, so that nothing is borrowed while it waits.
        let taken = self.with_mut(id, |process| process.stdin.take())?;
        let Some(stdin) = taken else {
            return Err(Fault::new(FaultCode::NotFound, format!("the standard input of {id} is closed")));
        };
        let mut written = 0;
        let mut gone = false;
        let write = async {
            while written < bytes.len() && stdin.writable().await.is_ok() {
                match stdin.try_write(&bytes[written..]) {
                    Ok(count) => written += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => {
                        gone = true;
                        break;
                    }
                }
            }
        };
        let in_time = tokio::time::timeout(ASKED, write).await.is_ok();
        if !eof && !gone {
            self.with_mut(id, |process| process.stdin = Some(stdin))?;
        }
        let since = self.with(id, |process| process.taken.get())?;
        self.shared(id)?.until(AT_ONCE, |progress| progress.total > since || progress.ended.is_some()).await;
        let mut reply = self.reply(id, since)?;
        reply.written = Some(written as u64);
        if gone {
            reply.notices.push("it does not read its standard input any more".into());
        } else if !in_time {
            reply.notices.push(format!("it reads slowly: {} of {} bytes were taken", written, bytes.len()));
        }
        Ok(reply)
    }

    fn with<R>(&self, id: &str, use_it: impl FnOnce(&Background) -> R) -> Result<R, Fault> {
        let all = self.background.borrow();
        all.iter().find(|process| process.id == id).map(use_it).ok_or_else(|| self.unknown(id, &all))
    }

    fn with_mut<R>(&self, id: &str, use_it: impl FnOnce(&mut Background) -> R) -> Result<R, Fault> {
        let mut all = self.background.borrow_mut();
        match all.iter().position(|process| process.id == id) {
            Some(at) => Ok(use_it(&mut all[at])),
            None => Err(self.unknown(id, &all)),
        }
    }

    fn unknown(&self, id: &str, all: &[Background]) -> Fault {
        let ids: Vec<&str> = all.iter().map(|process| process.id.as_str()).collect();
        let fault = Fault::new(FaultCode::UnknownProcess, format!("no background process of this session is named {id:?}"));
        fault.hint(if ids.is_empty() { "process_start starts one".into() } else { format!("there are {}", ids.join(", ")) })
    }

    fn shared(&self, id: &str) -> Result<Arc<Shared>, Fault> {
        self.with(id, |process| process.shared.clone())
    }

    fn status(&self, id: &str) -> Result<Status, Fault> {
        self.with(id, |process| {
            let progress = process.shared.progress();
            let ended = progress.ended.as_ref();
            let age = ended.map_or_else(Instant::now, |(_, at)| *at).saturating_duration_since(process.began);
            Status {
                id: process.id.clone(),
                command: process.command.clone(),
                running: ended.is_none(),
                exit_code: ended.and_then(|(ended, _)| ended.exit_code),
                signal: ended.and_then(|(ended, _)| ended.signal),
                limit: ended.and_then(|(ended, _)| limit::met(ended, None, &self.charter.limits)),
                age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
                output_bytes: progress.total,
                spool: process.spool.clone(),
            }
        })
    }

    fn reply(&self, id: &str, since: u64) -> Result<Reply, Fault> {
        let status = self.status(id)?;
        self.with(id, |process| {
            let progress = process.shared.progress();
            let (output, skipped) = progress.since(since);
            process.taken.set(progress.total);
            Reply { processes: vec![status], output, skipped, next: progress.total, ..Reply::default() }
        })
    }
}

/// Why a program was not started. Waits until it was or was not: the wire is closed by the exec.
fn refusal(launch: &OwnedFd) -> Option<NotStarted> {
    let heard = wire::wait_readable(launch, 5000).unwrap_or(false);
    match heard.then(|| wire::receive::<FromLeader>(launch.as_fd()).ok().flatten()).flatten() {
        Some((FromLeader::NotStarted(why), _)) => Some(why),
        _ => None,
    }
}
