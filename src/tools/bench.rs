//! What a tool works at: the open base directory, the session's memory, the spool, a deadline.
//!
//! A [`Bench`] is built from a [`Confined`] token, which only `confine::apply` makes: running a tool in a process that is not
//! confined does not compile.

use crate::confine::Confined;
use crate::workspace::{BaseDir, Hash, RelPath};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What a tool works at, for one call.
pub struct Bench<'a> {
    base: &'a BaseDir,
    memory: &'a Memory,
    spool: Option<&'a OwnedFd>,
    deadline: Instant,
}

impl<'a> Bench<'a> {
    /// A bench in a confined process.
    pub fn new(_confined: &Confined, base: &'a BaseDir, memory: &'a Memory, spool: Option<&'a OwnedFd>, time: Duration) -> Self {
        Self { base, memory, spool, deadline: Instant::now() + time }
    }

    /// The workspace.
    pub fn base(&self) -> &'a BaseDir {
        self.base
    }

    /// What the session remembers of files.
    pub fn memory(&self) -> &'a Memory {
        self.memory
    }

    /// The folder of the session's spool, open; `Look` jails have it. A spool file is named `spool:NAME` in calls.
    pub fn spool(&self) -> Option<&'a OwnedFd> {
        self.spool
    }

    /// When the call has to be over. Long work looks at it and returns what it has, saying so.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// One thing that the session learnt about a file: its content had this hash when it was last read or written by a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The canonical path beneath the base, escaped.
    pub path: String,
    /// The hash; `None`: the file was removed or renamed away by a tool.
    pub hash: Option<Hash>,
}

/// What the session remembers of files, for the stale check. Each jail holds a copy; what is new goes back with each answer.
#[derive(Debug, Default)]
pub struct Memory {
    known: RefCell<HashMap<String, Hash>>,
    news: RefCell<Vec<Seen>>,
}

impl Memory {
    /// The hash that a tool last saw at this path. `path` is the canonical one.
    pub fn known(&self, path: &RelPath) -> Option<Hash> {
        self.known.borrow().get(&path.to_string()).copied()
    }

    /// Remembers what a file holds now (or that it is gone).
    pub fn note(&self, path: &RelPath, hash: Option<Hash>) {
        self.note_shown(path.to_string(), hash);
    }

    fn note_shown(&self, path: String, hash: Option<Hash>) {
        let seen = Seen { path, hash };
        self.learn(std::slice::from_ref(&seen));
        self.news.borrow_mut().push(seen);
    }

    /// Carries what is known of a file, or of all files of a folder, over to its new path.
    pub fn moved(&self, from: &RelPath, to: &RelPath) {
        let known = self.beneath(from);
        self.forget(from);
        self.forget(to);
        for (rest, hash) in known {
            self.note_shown(format!("{to}{rest}"), Some(hash));
        }
    }

    /// Forgets a file, or all files of a folder.
    pub fn forget(&self, path: &RelPath) {
        for (rest, _) in self.beneath(path) {
            self.note_shown(format!("{path}{rest}"), None);
        }
    }

    /// What is known of a path and of those beneath it, each by the rest of its path.
    fn beneath(&self, path: &RelPath) -> Vec<(String, Hash)> {
        let path = path.to_string();
        let known = self.known.borrow();
        let rests = known.iter().filter_map(|(known, hash)| Some((known.strip_prefix(&path)?, *hash)));
        let mut found: Vec<_> =
            rests.filter(|(rest, _)| rest.is_empty() || rest.starts_with('/')).map(|(rest, hash)| (rest.to_string(), hash)).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Takes over what another jail learnt.
    pub fn learn(&self, seen: &[Seen]) {
        let mut known = self.known.borrow_mut();
        for Seen { path, hash } in seen {
            match hash {
                Some(hash) => known.insert(path.clone(), *hash),
                None => known.remove(path),
            };
        }
    }

    /// What was noted since the last call of this.
    pub fn take_news(&self) -> Vec<Seen> {
        self.news.borrow_mut().split_off(0)
    }
}
