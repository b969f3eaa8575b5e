//! The runtime of a verb that runs a model, and the signals that end it. Made before anything else of such a verb: a signal that comes
//! while the session is still being started ends the run like any other.

use crate::envelope::{Fault, FaultCode};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A runtime of one thread.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) runtime: Runtime,
    pub(super) signals: Signals,
}

impl Engine {
    /// Takes the signals over from here on.
    pub(super) fn start() -> Result<Self, Fault> {
        let broken = |error: std::io::Error| Fault::new(FaultCode::Internal, error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(broken)?;
        let entered = runtime.enter();
        let signals = Signals {
            each: [
                (signal(SignalKind::interrupt()).map_err(broken)?, 2),
                (signal(SignalKind::terminate()).map_err(broken)?, 15),
                (signal(SignalKind::hangup()).map_err(broken)?, 1),
            ],
        };
        drop(entered);
        Ok(Self { runtime, signals })
    }
}

/// The signals by which a person or the system ends a run: SIGINT, SIGTERM, SIGHUP.
#[derive(Debug)]
pub(super) struct Signals {
    each: [(Signal, u8); 3],
}

impl Signals {
    /// Comes with the next signal's number.
    pub(super) async fn next(&mut self) -> u8 {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    /// The number of a signal that has come already. To be called in the runtime.
    pub(super) fn came(&mut self) -> Option<u8> {
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
