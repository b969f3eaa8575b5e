//! Warm jails: a `Look` or `Change` jail serves call after call and is replaced after any fault.

use super::{Session, TOOL_TIME};
use crate::envelope::{Fault, FaultCode};
use crate::jail::spawn::Warden;
use crate::jail::wire::{self, Ends, FromJail, MOST, ToJail};
use crate::policy::Access;
use crate::tools::{Answer, AnyTool};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::Value;
use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::Semaphore;

/// How many calls that only look run at the same time.
const LOOKS: usize = 4;

/// How much longer than its own deadline a tool is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// How long an answer is waited for by this thread, which is idle meanwhile, before the runtime waits for it: most are there by then, and a
/// thread that goes to sleep at once leaves its core to who works for it.
const SOON_MS: i32 = 1;

/// How much of an answer is read before its length is known.
const BUFFER: usize = 8 * 1024;

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
    wire: Ends,
    /// How much of the session's memory it has been told.
    told: u64,
}

impl Warm {
    /// Whether it is there and silent, as it is between calls. One that somebody has ended meanwhile is no reason to fail a call.
    fn waits(&self) -> bool {
        let mut ready = [PollFd::new(self.wire.from.as_fd(), PollFlags::POLLIN)];
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
        let mut exchange = Exchange { wire: &jail.wire, frame: &frame, sent: 0, reply: Vec::new() };
        let whole = match exchange.soon() {
            Ok(false) => tokio::time::timeout(TOOL_TIME + GRACE, exchange.later()).await,
            soon => Ok(soon.map(drop)),
        };
        let reply = match whole.map(|whole| whole.and_then(|()| FromJail::parse(std::mem::take(&mut exchange.reply), HEAD))) {
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
        let (id, wire) = self.warden.open_calls(access)?;
        wire.never_block().map_err(|errno| Fault::new(FaultCode::Internal, format!("no wire for a jail: {}", errno.desc())))?;
        Ok(Warm { id, wire, told: 0 })
    }
}

/// How many bytes of a frame say how long it is.
const HEAD: usize = 4;

/// A frame on its way, and the one that answers it: bounded before it is read and checked after.
struct Exchange<'a> {
    wire: &'a Ends,
    frame: &'a [u8],
    sent: usize,
    /// What has come of the answer, its head included.
    reply: Vec<u8>,
}

impl Exchange<'_> {
    /// Whether the whole answer came in a moment.
    fn soon(&mut self) -> io::Result<bool> {
        while self.sent < self.frame.len() {
            match self.send() {
                Ok(()) => {}
                Err(error) if may_wait(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        while wire::wait_readable(&self.wire.from, SOON_MS)? {
            match self.read() {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) if may_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Waits until the answer is whole.
    async fn later(&mut self) -> io::Result<()> {
        if self.sent < self.frame.len() {
            let mut to = Sender::from_file(self.wire.to.try_clone()?)?;
            to.write_all(&self.frame[self.sent..]).await?;
        }
        let mut from = Receiver::from_file(self.wire.from.try_clone()?)?;
        loop {
            let most = match self.missing()? {
                Some(0) => return Ok(()),
                missing => missing.unwrap_or(BUFFER).min(1 << 20),
            };
            self.reply.reserve(most);
            if (&mut from).take(most as u64).read_buf(&mut self.reply).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let mut wire = &self.wire.to;
        match wire.write(&self.frame[self.sent..])? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => {
                self.sent += count;
                Ok(())
            }
        }
    }

    /// Reads what has come. Returns whether the answer is whole.
    fn read(&mut self) -> io::Result<bool> {
        let mut wire = &self.wire.from;
        let there = self.reply.len();
        match self.missing()? {
            Some(0) => return Ok(true),
            // Room for all of it at once, unless it claims to be very long.
            Some(missing) => {
                let most = missing.min(1 << 20);
                self.reply.reserve(most);
                match wire.take(most as u64).read_to_end(&mut self.reply) {
                    Err(error) if self.reply.len() == there => return Err(error),
                    _ => {}
                }
            }
            None => {
                let mut beginning = [0; BUFFER];
                let count = wire.read(&mut beginning)?;
                self.reply.extend_from_slice(&beginning[..count]);
            }
        }
        if self.reply.len() == there {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.missing()? == Some(0))
    }

    /// How many bytes the answer still has, once that is known.
    fn missing(&self) -> io::Result<Option<usize>> {
        let Some(head) = self.reply.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > MOST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than the wire takes"));
        }
        match length.checked_sub(self.reply.len() - HEAD) {
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "more than its length")),
            missing => Ok(missing),
        }
    }
}

fn may_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
