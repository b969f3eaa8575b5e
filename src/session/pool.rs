//! Warm jails: a `Look` or `Change` jail serves call after call and is replaced after any fault.

use super::{Session, TOOL_TIME};
use crate::envelope::{Fault, FaultCode};
use crate::jail::spawn::Warden;
use crate::jail::wire::{self, FromJail, MOST, ToJail};
use crate::policy::Access;
use crate::tools::{Answer, AnyTool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::cell::RefCell;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// How many calls that only look run at the same time.
const LOOKS: usize = 4;

/// How much longer than its own deadline a tool is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// How much of an answer is read before its length is known.
const BUFFER: usize = 16 * 1024;

pub(super) struct Pool {
    looks: RefCell<Vec<Warm>>,
    changes: RefCell<Vec<Warm>>,
    look_places: Semaphore,
    /// One: changes keep their order.
    change_places: Semaphore,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            looks: RefCell::default(),
            changes: RefCell::default(),
            look_places: Semaphore::new(LOOKS),
            change_places: Semaphore::new(1),
        }
    }
}

struct Warm {
    id: u64,
    /// Most answers are one read.
    wire: BufReader<UnixStream>,
    /// How much of the session's memory it has been told.
    told: u64,
}

impl Warm {
    /// Whether it is there and silent, as it is between calls. One that somebody has ended meanwhile is no reason to fail a call.
    fn waits(&self) -> bool {
        let mut ready = [PollFd::new(self.wire.get_ref().as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut ready, PollTimeout::ZERO), Ok(0))
    }
}

/// A jail at work. Dropped before its answer is whole, it is ended: cancel is kill.
struct AtWork<'a> {
    warden: &'a Warden,
    jail: Option<Warm>,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if let Some(jail) = &self.jail {
            self.warden.kill(jail.id);
        }
    }
}

impl Session {
    /// Runs a call in a jail of its class.
    pub(super) async fn call_jail(&self, tool: &dyn AnyTool, args: Value) -> Result<Answer, Fault> {
        let access = tool.access();
        let (places, warm) = match access {
            Access::Look => (&self.pool.look_places, &self.pool.looks),
            _ => (&self.pool.change_places, &self.pool.changes),
        };
        let _place = places.acquire().await.map_err(|_| Fault::new(FaultCode::SessionClosed, "the session has ended"))?;
        let ready = loop {
            match warm.borrow_mut().pop() {
                Some(jail) if !jail.waits() => self.warden.kill(jail.id),
                other => break other,
            }
        };
        let jail = match ready {
            Some(jail) => jail,
            None => self.open_jail(access)?,
        };
        let told = jail.told;
        let mut at_work = AtWork { warden: &self.warden, jail: Some(jail) };
        let Some(jail) = &mut at_work.jail else { return Err(Fault::new(FaultCode::Internal, "no jail")) };
        let seen = self.seen.borrow().since(told);
        jail.told = self.seen.borrow().version();
        let time_ms = u64::try_from(TOOL_TIME.as_millis()).unwrap_or(u64::MAX);
        let call = ToJail { tool: tool.name().into(), args, seen, time_ms, shown: !self.facts_alone };
        let frame =
            wire::frame(&call).map_err(|_| Fault::new(FaultCode::TooLarge, format!("the arguments are larger than {MOST} bytes")))?;
        let exchange = async {
            jail.wire.get_mut().write_all(&frame).await?;
            read_reply(&mut jail.wire).await
        };
        let reply = match tokio::time::timeout(TOOL_TIME + GRACE, exchange).await {
            Err(_) => {
                return Err(Fault::new(
                    FaultCode::DeadlineExceeded,
                    format!("{} was still at work after {} s and was ended", tool.name(), TOOL_TIME.as_secs()),
                )
                .hint("ask for less: a narrower path, a smaller limit"));
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(Fault::new(FaultCode::MalformedReply, format!("the jail's answer was not one: {error}")));
            }
            Ok(Err(_)) => {
                let id = jail.id;
                return Err(self.warden.fate(id));
            }
            Ok(Ok(reply)) => reply,
        };
        reply
            .answer
            .envelope
            .check()
            .map_err(|broken| Fault::new(FaultCode::MalformedReply, format!("the jail's answer was not one: {broken}")))?;
        if let Some(mut jail) = at_work.jail.take() {
            let mut seen = self.seen.borrow_mut();
            // What it told us it knows itself, if nothing else was learnt meanwhile.
            let alone = jail.told == seen.version();
            reply.seen.into_iter().for_each(|one| seen.add(one));
            if alone {
                jail.told = seen.version();
            }
            warm.borrow_mut().push(jail);
        }
        Ok(reply.answer)
    }

    fn open_jail(&self, access: Access) -> Result<Warm, Fault> {
        let (id, fd) = self.warden.open_calls(access)?;
        let broken = |error: io::Error| Fault::new(FaultCode::Internal, format!("no wire for a jail: {error}"));
        let stream = std::os::unix::net::UnixStream::from(fd);
        stream.set_nonblocking(true).map_err(broken)?;
        Ok(Warm { id, wire: BufReader::with_capacity(BUFFER, UnixStream::from_std(stream).map_err(broken)?), told: 0 })
    }
}

/// One frame, bounded before it is read and checked after.
async fn read_reply(wire: &mut BufReader<UnixStream>) -> io::Result<FromJail> {
    let mut head = [0; 4];
    wire.read_exact(&mut head).await?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MOST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than the wire takes"));
    }
    // Room for all of it at once, unless it claims to be very long.
    let mut bytes = Vec::with_capacity(length.min(1 << 20));
    wire.take(length as u64).read_to_end(&mut bytes).await?;
    if bytes.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    FromJail::parse(&bytes)
}
