//! The watch over protected names: what is kept of them between commands, and when it is compared.
//!
//! Never looks at the workspace itself. What the names are is kept by a jail; a command's leader finds out whether that still holds
//! before it becomes the program, its keeper compares by stamps when all has ended, and only what has changed costs a call to the
//! guard in its jail.

use super::{Session, TOOL_TIME};
use crate::envelope::{Fault, FaultCode};
use crate::jail::spawn::Warden;
use crate::jail::wire::{self, Ends, FromJail, Orders, ToJail, ToKeeper};
use crate::policy::{Access, Charter};
use crate::tools::guard::{GUARD, Kept, Reply, Request, Rule, Stamped};
use crate::tools::{Answer, AnyTool};
use crate::workspace::escape;
use crate::workspace::watch::State;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;

/// The workspace is searched for new repositories after each command while a search takes no longer, in milliseconds; else at the
/// end of the session.
const QUICK_SWEEP: u64 = 20;

/// More repositories than this are not watched one by one.
const MOST_REPOSITORIES: usize = 16_384;

/// What the session knows of the protected names.
#[derive(Debug, Default)]
pub(super) struct Guard {
    /// `None`: nothing has been kept yet, for no command has run.
    kept: Option<Vec<Kept>>,
    git_dirs: BTreeSet<String>,
    /// Pointers that commands made: each is judged again, for a folder on its way may have become a link.
    pointers: BTreeSet<String>,
    /// Folders that cannot be listed: before the first command, or said to be so since.
    closed: BTreeMap<String, Option<String>>,
    sweep_each: bool,
    /// A command has begun and has not been judged: it was cancelled, or it still runs.
    open: bool,
}

impl Guard {
    /// The first request: keep what the protected names are now. An absolute name is one of a repository outside of the base; no file tool
    /// reaches it, nor does the guard.
    pub(crate) fn begin(charter: &Charter) -> Request {
        let names = charter.protect.iter().filter(|name| name.is_relative()).map(|name| escape::show(name.as_os_str())).collect();
        Request::Keep { names }
    }

    /// Takes over the answer to [`Guard::begin`].
    pub(crate) fn begun(&mut self, reply: Reply) {
        self.sweep_each = !reply.cut && reply.sweep_ms <= QUICK_SWEEP;
        self.git_dirs = reply.git_dirs.unwrap_or_default().into_iter().collect();
        self.closed = reply.closed.into_iter().collect();
        self.kept = Some(reply.kept);
    }

    /// What the names were when they were last kept.
    pub(crate) fn stamps(&self) -> Vec<Stamped> {
        self.kept.iter().flatten().map(|kept| (kept.name.clone(), kept.rule, kept.stamp.clone())).collect()
    }

    /// What a keeper has to compare.
    pub(crate) fn orders(&self, sweep: bool) -> Orders {
        Orders { stamps: self.stamps(), sweep, closed: self.closed.iter().map(|(folder, stamp)| (folder.clone(), stamp.clone())).collect() }
    }

    /// The question what has changed.
    pub(crate) fn check(&self, sweep: bool) -> Request {
        Request::Check { stamps: self.stamps(), sweep }
    }

    /// What is to be undone, after the answer to [`Guard::check`], and what is to be said in any case.
    pub(crate) fn judge(&mut self, found: Reply) -> (Option<Request>, Vec<String>) {
        let all = found.git_dirs.unwrap_or_default().into_iter().filter(|dir| !self.git_dirs.contains(dir));
        let all: Vec<String> = all.collect();
        let fresh: Vec<String> = all.iter().take(MOST_REPOSITORIES).cloned().collect();
        let mut notices = Vec::new();
        let closed: Vec<&str> =
            found.closed.iter().map(|(folder, _)| folder.as_str()).filter(|folder| !self.closed.contains_key(*folder)).collect();
        if !closed.is_empty() {
            notices.push(format!("not searched for repositories, for they cannot be opened: {}", closed.join(", ")));
        }
        self.closed.extend(found.closed);
        self.closed.extend(found.searched);
        if found.cut || all.len() > fresh.len() {
            notices.push("the workspace is too large to be searched whole for repositories that the command made".into());
        }
        let mut kept: Vec<Kept> = self.kept.iter().flatten().filter(|kept| found.changed.contains(&kept.name)).cloned().collect();
        // What was there before is kept as it was.
        let known: HashSet<&str> = self.kept.iter().flatten().map(|kept| kept.name.as_str()).collect();
        self.pointers.extend(found.pointers.iter().filter(|name| !known.contains(name.as_str())).cloned());
        let made = found.pointers.into_iter().filter(|name| self.pointers.contains(name));
        kept.extend(made.map(|name| Kept { name, rule: Rule::Pointer, stamp: None, state: State::Absent }));
        ((!kept.is_empty() || !fresh.is_empty()).then_some(Request::Undo { kept, fresh }), notices)
    }

    /// Takes over what came of undoing. Returns what is to be said.
    pub(crate) fn undone(&mut self, reply: Reply) -> Vec<String> {
        self.git_dirs.extend(reply.git_dirs.unwrap_or_default());
        self.renewed(reply.kept);
        reply.undone
    }

    /// Takes over what is kept from now on.
    pub(crate) fn renewed(&mut self, news: Vec<Kept>) {
        let all = self.kept.get_or_insert_with(Vec::new);
        for new in news {
            match all.iter_mut().find(|kept| kept.name == new.name) {
                Some(kept) => *kept = new,
                None => all.push(new),
            }
        }
    }

    /// Something that may change protected names goes on running.
    pub(super) fn keep_open(&mut self) {
        self.open = true;
    }
}

impl Session {
    /// Whether commands are followed by a comparison.
    pub(super) fn is_guarded(&self) -> bool {
        self.charter.change.is_some() && self.charter.execute.is_some()
    }

    /// Before a command: makes sure that it is kept what the protected names are. `trusting`: what was kept is taken to hold still, for the
    /// command's leader tells if it does not.
    pub(super) async fn guard_before(&self, trusting: bool) -> Result<(), Fault> {
        if !self.is_guarded() {
            return Ok(());
        }
        let open = self.guard.borrow().open;
        if !open && trusting && self.guard.borrow().kept.is_some() {
            self.guard.borrow_mut().open = true;
            return Ok(());
        }
        if open {
            // What the last command did is still to be judged; its sentences go with this one's.
            let notices = self.compare(false).await?;
            self.guard_notices.borrow_mut().extend(notices);
        } else if self.guard.borrow().kept.is_some() {
            // What somebody else changed since the last command is theirs to change.
            let changed = self.changed(false).await?.changed;
            self.renew(&changed).await?;
        } else {
            let reply = self.ask(&Guard::begin(&self.charter)).await?;
            self.guard.borrow_mut().begun(reply);
        }
        self.guard.borrow_mut().open = true;
        Ok(())
    }

    /// A command was not started because protected names are not what was kept of them: nothing is to be judged.
    pub(super) fn guard_stale(&self) {
        // What runs on may have changed them: then it is judged, and not taken for somebody else's.
        self.guard.borrow_mut().open = !self.running_processes().is_empty() || self.lasting.get() > 0;
    }

    /// What a command's keeper has to compare when all has ended; `None`: nothing.
    pub(super) fn guard_orders(&self) -> Option<Orders> {
        let guard = self.guard.borrow();
        (guard.open && guard.kept.is_some()).then(|| guard.orders(guard.sweep_each))
    }

    /// After a command: undoes what it did to protected names. `found`: what its keeper found; `None`: it could not look. Returns what was
    /// undone, one sentence each.
    pub(super) async fn guard_after(&self, found: Option<Reply>) -> Vec<String> {
        if !self.guard.borrow().open {
            return Vec::new();
        }
        let sweep = self.guard.borrow().sweep_each;
        let mut notices = self.guard_notices.take();
        let done = match found {
            Some(found) => self.settle(found).await,
            None => self.compare(sweep).await,
        };
        match done {
            Ok(undone) => {
                self.guard.borrow_mut().open = false;
                notices.extend(undone);
            }
            // It stays open: the next call compares again.
            Err(fault) => notices.push(format!("protected names could not be compared after this command: {}", fault.message())),
        }
        notices
    }

    /// At the end of the session: searches the whole workspace for repositories that commands have made, once more. Returns what was undone.
    pub async fn finish(&self) -> Vec<String> {
        self.end_background().await;
        if self.guard.borrow().kept.is_none() || (self.guard.borrow().sweep_each && !self.guard.borrow().open) {
            return Vec::new();
        }
        match self.compare(true).await {
            Ok(notices) => notices,
            Err(fault) => vec![format!("protected names could not be compared at the end: {}", fault.message())],
        }
    }

    async fn changed(&self, sweep: bool) -> Result<Reply, Fault> {
        let request = self.guard.borrow().check(sweep);
        self.ask(&request).await
    }

    async fn compare(&self, sweep: bool) -> Result<Vec<String>, Fault> {
        // Where there is no keeper to be had, a jail looks, which cannot open what a command has closed.
        let found = match self.compare_beside(sweep).await {
            Some(found) => found,
            None => self.changed(sweep).await?,
        };
        self.settle(found).await
    }

    /// What the keeper of no program finds.
    async fn compare_beside(&self, sweep: bool) -> Option<Reply> {
        let orders = self.guard.borrow().orders(sweep);
        self.keep_nothing(&ToKeeper::Compare(orders)).await.ok()?.compared
    }

    async fn settle(&self, found: Reply) -> Result<Vec<String>, Fault> {
        let (undo, mut notices) = self.guard.borrow_mut().judge(found);
        if let Some(undo) = undo {
            let reply = self.ask(&undo).await?;
            notices.extend(self.guard.borrow_mut().undone(reply));
        }
        Ok(notices)
    }

    async fn renew(&self, changed: &[String]) -> Result<(), Fault> {
        if changed.is_empty() {
            return Ok(());
        }
        let names: Vec<(String, Rule)> = match &self.guard.borrow().kept {
            // What could not be put back is not taken for somebody else's.
            Some(kept) => kept
                .iter()
                .filter(|kept| kept.stamp.is_some() && changed.contains(&kept.name))
                .map(|kept| (kept.name.clone(), kept.rule))
                .collect(),
            None => Vec::new(),
        };
        let reply = self.ask(&Request::Renew { names }).await?;
        self.guard.borrow_mut().renewed(reply.kept);
        Ok(())
    }

    async fn ask(&self, request: &Request) -> Result<Reply, Fault> {
        let answer = self.call_jail(&GUARD, json!({ "request": request })).await?;
        read_reply(&answer)
    }

    /// The class that a guarded session needs beyond those of its tools.
    pub(super) fn guard_classes(charter: &Charter) -> Option<Access> {
        (charter.change.is_some() && charter.execute.is_some()).then_some(Access::Change)
    }
}

/// What the guard answered: from a jail, so checked in shape.
fn read_reply(answer: &Answer) -> Result<Reply, Fault> {
    let broken = |says: String| Fault::new(FaultCode::MalformedReply, says);
    match answer.envelope.error() {
        None => serde_json::from_value(answer.envelope.data().clone()).map_err(|error| broken(error.to_string())),
        Some(error) => Err(broken(error.to_owned())),
    }
}

/// The watch over one program whose streams somebody else handles (`exec`). The program's own leader keeps what the names are.
#[derive(Debug, Default)]
pub struct Once {
    guard: Guard,
}

impl Once {
    /// For a program under this charter; `None`: the policy permits no changes, so nothing can change the names.
    pub fn new(charter: &Charter) -> Option<Self> {
        Session::guard_classes(charter).map(|_| Self::default())
    }

    /// The names that the leader has to keep.
    pub fn names(&self, charter: &Charter) -> Vec<String> {
        match Guard::begin(charter) {
            Request::Keep { names } => names,
            _ => Vec::new(),
        }
    }

    /// Takes over what the leader kept. Returns what the keeper has to be told.
    pub fn kept(&mut self, reply: Reply) -> ToKeeper {
        self.guard.begun(reply);
        ToKeeper::Compare(self.guard.orders(true))
    }

    /// Judges what the keeper found, undoes, and says what was undone, one sentence each. Blocks only where there is something to undo, or
    /// the keeper could not look.
    ///
    /// # Errors
    /// `session_closed`, `internal`, `malformed_reply`.
    pub fn end(mut self, warden: &Warden, found: Option<Reply>) -> Result<Vec<String>, Fault> {
        if self.guard.kept.is_none() {
            // The program was never started.
            return Ok(Vec::new());
        }
        let mut wire = None;
        let found = match found {
            Some(found) => found,
            None => ask(warden, &mut wire, &self.guard.check(true))?,
        };
        let (undo, mut notices) = self.guard.judge(found);
        if let Some(undo) = undo {
            let reply = ask(warden, &mut wire, &undo)?;
            notices.extend(self.guard.undone(reply));
        }
        Ok(notices)
    }
}

/// Asks the guard in its jail, which is opened the first time.
fn ask(warden: &Warden, wire: &mut Option<Ends>, request: &Request) -> Result<Reply, Fault> {
    let broken = |error: std::io::Error| Fault::new(FaultCode::JailDied, format!("protected names could not be compared: {error}"));
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(warden.open_calls(Access::Change)?.1),
    };
    let time_ms = u64::try_from(TOOL_TIME.as_millis()).unwrap_or(u64::MAX);
    let call = ToJail { tool: GUARD.name().into(), args: json!({ "request": request }), seen: Vec::new(), time_ms, shown: false };
    wire.to.write_all(&wire::frame(&call).map_err(broken)?).map_err(broken)?;
    let frame = wire::read_frame(&mut wire.from).map_err(broken)?.ok_or_else(|| broken(std::io::ErrorKind::UnexpectedEof.into()))?;
    read_reply(&FromJail::parse(frame, 0).map_err(broken)?.answer)
}
