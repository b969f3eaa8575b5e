//! The runtime of a verb that runs a model, and what ends it, or any verb: a signal, or the end of its time. Made before a run has anything that
//! it could leave: from then on whatever takes time is driven here, or asks here, so that either ends the run in each of its phases.

use crate::agent::budget::Kind;
use crate::agent::outcome::Outcome;
use crate::envelope::{Fault, FaultCode};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A runtime of one thread.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) runtime: Runtime,
    pub(super) signals: Signals,
    pub(super) time: Time,
}

/// The time that a run has, from the start of its process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time {
    /// When it began.
    pub(super) began: Instant,
    /// When it is over; `None`: never.
    end: Option<Instant>,
}

impl Time {
    /// Gives it at most so much from its beginning.
    pub(super) fn limit(&mut self, wall: Option<Duration>) {
        let end = wall.and_then(|wall| self.began.checked_add(wall));
        self.end = [self.end, end].into_iter().flatten().min();
    }

    /// Comes when it is over.
    pub(super) async fn over(self) -> Outcome {
        match self.end {
            Some(end) => tokio::time::sleep_until(end.into()).await,
            None => std::future::pending().await,
        }
        Outcome::Budget(Kind::Wall)
    }
}

impl Engine {
    /// Takes the signals over from here on, and lets the time begin.
    pub(super) fn start() -> Result<Self, Fault> {
        let time = Time { began: Instant::now(), end: None };
        let broken = |error: std::io::Error| Fault::new(FaultCode::Internal, error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let entered = runtime.enter();
        let signals = Signals::take()?;
        drop(entered);
        Ok(Self { runtime, signals, time })
    }

    /// The number of a signal that has come already. Nothing drives the runtime between two calls: it is given the turn in which it hears
    /// of signals.
    pub(super) fn came(&mut self) -> Option<u8> {
        let Self { runtime, signals, .. } = self;
        runtime.block_on(async {
            tokio::task::yield_now().await;
            signals.came()
        })
    }

    /// Drives something to its end.
    ///
    /// # Errors
    /// The signal or the end of the time that came first; what was driven is dropped then.
    pub(super) fn drive<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Outcome> {
        let Self { runtime, signals, time } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                signal = signals.next() => Err(Outcome::Signal(signal)),
                outcome = time.over() => Err(outcome),
                done = work => Ok(done),
            }
        })
    }

    /// Does something that may wait for somebody, as the reading of a named pipe does.
    ///
    /// # Errors
    /// The signal or the end of the time that came first; what waits then is left alone, and ends with the process.
    pub(super) fn aside<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Outcome> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let started = std::thread::Builder::new().spawn(move || sender.send(work()).map_err(drop));
        started.map_err(|error| Fault::new(FaultCode::Internal, format!("a thread: {error}")))?;
        let done = self.drive(receiver)?;
        done.map_err(|_| Fault::new(FaultCode::Internal, "what was to be read could not be read").into())
    }

    /// Reads a file that a person names, at most so many bytes and one. It may be a pipe, as `<(command)` is one: then it is waited for.
    ///
    /// # Errors
    /// The outer: as [`Engine::aside`]. The inner: the kernel's own.
    pub(super) fn read(&mut self, file: &Path, most: u64) -> Result<std::io::Result<Vec<u8>>, Outcome> {
        let file = file.to_path_buf();
        self.aside(move || bytes_of(&file, most))
    }

    /// Everything is left as it shall be: from here on a signal ends the process at once, also where it waits for a reader.
    pub(super) fn done(self) {
        let Self { runtime, mut signals, .. } = self;
        // Where no thread starts, a signal goes unheard as before.
        let _ = std::thread::Builder::new().spawn(move || {
            let signal = runtime.block_on(signals.next());
            std::process::exit(128 + i32::from(signal));
        });
    }
}

/// What is in a file, at most so many bytes and one. A pipe is waited for.
///
/// # Errors
/// The kernel's own.
pub(super) fn bytes_of(file: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The same of a regular file of ours, which nothing waits for.
///
/// # Errors
/// The kernel's own; `InvalidInput` for what is no regular file.
pub(super) fn bytes_of_regular(file: &Path) -> std::io::Result<Vec<u8>> {
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "this is no regular file"));
    }
    let mut bytes = Vec::new();
    { file }.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The signals by which a person or the system ends a run: SIGINT, SIGTERM, SIGHUP, SIGQUIT.
#[derive(Debug)]
pub(super) struct Signals {
    each: [(Signal, u8); 4],
}

impl Signals {
    /// Takes them over. To be called in a runtime.
    ///
    /// # Errors
    /// `internal`.
    pub(super) fn take() -> Result<Self, Fault> {
        let one = |kind| signal(kind).map_err(|error| Fault::new(FaultCode::Internal, format!("signals cannot be heard: {error}")));
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
        let [interrupt, terminate, hangup, quit] = kinds.map(one);
        Ok(Self { each: [(interrupt?, 2), (terminate?, 15), (hangup?, 1), (quit?, 3)] })
    }

    /// Comes with the next signal's number.
    pub(super) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The number of a signal that has come already. To be called in the runtime.
    fn came(&mut self) -> Option<u8> {
        match self.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(number) => Some(number),
            Poll::Pending => None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<u8> {
        for (signal, number) in &mut self.each {
            if let Poll::Ready(Some(())) = signal.poll_recv(context) {
                return Poll::Ready(*number);
            }
        }
        Poll::Pending
    }
}
