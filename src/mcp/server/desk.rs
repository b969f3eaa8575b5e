//! Where the calls of all peers come together: one task owns the session, because a session belongs to one thread.
//!
//! Never answers a call that its peer has given up: a call whose reply nobody waits for is dropped, and dropping a call ends its process
//! tree.

use crate::envelope::{Fault, FaultCode};
use crate::session::{Call, Session};
use crate::tools::Answer;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

/// A call on its way to the session.
#[derive(Debug)]
pub(super) struct Job {
    call: Call,
    reply: oneshot::Sender<Answer>,
}

/// Hands calls to the session. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Window {
    jobs: mpsc::UnboundedSender<Job>,
}

impl Window {
    /// Runs one call. Dropping the returned future ends what the call has started.
    pub(super) async fn call(&self, call: Call) -> Answer {
        let (reply, answer) = oneshot::channel();
        let closed = || Answer::failed(Fault::new(FaultCode::SessionClosed, "the session has ended"));
        if self.jobs.send(Job { call, reply }).is_err() {
            return closed();
        }
        answer.await.unwrap_or_else(|_| closed())
    }
}

/// The session's side.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) jobs: mpsc::UnboundedReceiver<Job>,
}

/// A desk and the window in front of it.
pub(super) fn open() -> (Window, Desk) {
    let (sender, jobs) = mpsc::unbounded_channel();
    (Window { jobs: sender }, Desk { jobs })
}

impl Desk {
    /// Serves calls until `end`; what is still running then is dropped, and so ended.
    pub(super) async fn serve(mut self, session: &Session, end: impl Future<Output = ()>) {
        let mut running = FuturesUnordered::new();
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                job = self.jobs.recv() => match job {
                    Some(job) => running.push(answer(session, job)),
                    None => return,
                },
                Some(()) = running.next() => {}
            }
        }
    }
}

pub(super) async fn answer(session: &Session, job: Job) {
    let Job { call, mut reply } = job;
    let answer = tokio::select! {
        answer = session.call(call) => answer,
        () = reply.closed() => return,
    };
    // Who does not wait any more gets nothing.
    let _ = reply.send(answer);
}
