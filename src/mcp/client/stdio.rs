//! A server that is a program: in an `Execute` jail like any command, spoken to by its standard input and output.
//!
//! It is never started on the host. What it writes is counted: a program that floods is ended, and one that talks nonsense is not answered.

use crate::envelope::{Fault, FaultCode};
use crate::jail::wire::ToLeader;
use crate::session::{Lasting, Session, Streams};
use nix::fcntl::OFlag;
use nix::unistd::pipe2;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::unix::pipe::{Receiver, Sender};

/// The most bytes that a program may write for one call.
const MOST: u64 = 16 << 20;
/// Bytes of its standard error that are kept: the last ones.
const TAIL: usize = 4096;

/// A program that serves. Dropping it ends it and all that it started.
pub(super) struct Program<'a> {
    pub(super) lasting: Lasting<'a>,
    pub(super) gauge: Arc<Gauge>,
    pub(super) said: Arc<Mutex<Vec<u8>>>,
    listener: tokio::task::JoinHandle<()>,
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// Our ends of its standard output and input.
pub(super) type Ends = (Metered, Sender);

/// What a program has written since the last call.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    bytes: AtomicU64,
    flooded: AtomicBool,
}

impl Gauge {
    pub(super) fn reset(&self) {
        self.bytes.store(0, Ordering::Relaxed);
    }

    pub(super) fn flooded(&self) -> bool {
        self.flooded.load(Ordering::Relaxed)
    }
}

/// A program's standard output, which ends when it floods.
pub(super) struct Metered {
    inner: Receiver,
    gauge: Arc<Gauge>,
}

impl AsyncRead for Metered {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.gauge.flooded() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let read = (buffer.filled().len() - before) as u64;
        if self.gauge.bytes.fetch_add(read, Ordering::Relaxed) + read > MOST {
            self.gauge.flooded.store(true, Ordering::Relaxed);
        }
        polled
    }
}

/// Starts a program in the sandbox.
pub(super) async fn start<'a>(
    session: &'a Session,
    argv: &[String],
    env: &[(String, String)],
    workdir: Option<&str>,
) -> Result<(Program<'a>, Ends), Fault> {
    let broken = |error: io::Error| Fault::new(FaultCode::Internal, error.to_string());
    let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|errno| broken(errno.into()));
    let (input, output, errors) = (pipe()?, pipe()?, pipe()?);
    let stdin = Sender::from_owned_fd(input.1).map_err(broken)?;
    let stdout = Receiver::from_owned_fd(output.0).map_err(broken)?;
    let mut stderr = Receiver::from_owned_fd(errors.0).map_err(broken)?;
    let program = ToLeader {
        argv: argv.iter().map(Into::into).collect(),
        env: env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        workdir: workdir.map(Into::into),
        ..ToLeader::default()
    };
    let lasting = session.start_lasting(program, Streams(vec![(input.0, 0), (output.1, 1), (errors.1, 2)])).await?;
    let said = Arc::new(Mutex::new(Vec::new()));
    let heard = said.clone();
    let listener = tokio::spawn(async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let mut tail = heard.lock().unwrap_or_else(PoisonError::into_inner);
            tail.extend_from_slice(&buffer[..count]);
            let over = tail.len().saturating_sub(TAIL);
            tail.drain(..over);
        }
    });
    let gauge = Arc::new(Gauge::default());
    let ends = (Metered { inner: stdout, gauge: gauge.clone() }, stdin);
    Ok((Program { lasting, gauge, said, listener }, ends))
}
