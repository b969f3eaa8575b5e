//! What a tool works at: the open base directory, the session's memory, the spool, a deadline.
//!
//! A [`Bench`] is built from a [`Confined`] token, which only `confine::apply` makes: running a tool in a process that is not
//! confined does not compile.

use crate::confine::Confined;
use crate::workspace::base_dir::Replaced;
use crate::workspace::outline::{Change, Outline};
use crate::workspace::{BaseDir, Hash, RelPath};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// What a tool works at, for one call.
pub struct Bench<'a> {
    base: &'a BaseDir,
    memory: &'a Memory,
    spool: Option<&'a OwnedFd>,
    deadline: Instant,
    shows: bool,
}

impl<'a> Bench<'a> {
    /// A bench in a confined process.
    pub fn new(_confined: &Confined, base: &'a BaseDir, memory: &'a Memory, spool: Option<&'a OwnedFd>, time: Duration) -> Self {
        Self { base, memory, spool, deadline: Instant::now() + time, shows: true }
    }

    /// Whether somebody wants the text of a success beside its facts.
    #[must_use]
    pub fn showing(self, shows: bool) -> Self {
        Self { shows, ..self }
    }

    /// See [`Bench::showing`].
    pub fn shows(&self) -> bool {
        self.shows
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
    /// Its lines, where they are known; they say what of a stale file has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outline: Option<Outline>,
}

/// How many files are remembered, and of how many the lines; those that were seen last.
const MOST_FILES: usize = 50_000;
const MOST_OUTLINES: usize = 512;

/// The longest path there is, in bytes, with each of them escaped.
const LONGEST: usize = 4 * 4096;

/// What was learnt, the latest of each file, in the order in which it was learnt. Bounded.
#[derive(Debug, Default)]
pub struct Ledger {
    version: u64,
    latest: BTreeMap<u64, Seen>,
    places: HashMap<String, u64>,
    outlined: BTreeSet<u64>,
}

impl Ledger {
    /// A number that grows with all that is learnt.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What was learnt after this version.
    pub fn since(&self, version: u64) -> Vec<Seen> {
        self.latest.range(version + 1..).map(|(_, seen)| seen.clone()).collect()
    }

    /// Learns. What no path can be is not learnt: it comes from a jail.
    pub fn add(&mut self, seen: Seen) {
        if seen.path.len() > LONGEST {
            return;
        }
        self.version += 1;
        if let Some(old) = self.places.insert(seen.path.clone(), self.version) {
            self.latest.remove(&old);
            self.outlined.remove(&old);
        }
        if seen.outline.is_some() {
            self.outlined.insert(self.version);
        }
        self.latest.insert(self.version, seen);
        while self.outlined.len() > MOST_OUTLINES
            && let Some(version) = self.outlined.pop_first()
            && let Some(seen) = self.latest.get_mut(&version)
        {
            seen.outline = None;
        }
        while self.latest.len() > MOST_FILES
            && let Some((version, seen)) = self.latest.pop_first()
        {
            self.places.remove(&seen.path);
            self.outlined.remove(&version);
        }
    }

    fn get(&self, path: &str) -> Option<&Seen> {
        self.latest.get(self.places.get(path)?).filter(|seen| seen.hash.is_some())
    }
}

/// What the session remembers of files, for the stale check. Each jail holds a copy; what is new goes back with each answer.
#[derive(Debug, Default)]
pub struct Memory {
    known: RefCell<Ledger>,
    news: RefCell<Vec<Seen>>,
}

impl Memory {
    /// The hash that a tool last saw at this path. `path` is the canonical one.
    pub fn known(&self, path: &RelPath) -> Option<Hash> {
        self.known.borrow().get(&path.to_string()).and_then(|seen| seen.hash)
    }

    /// Where this content differs from the one that a tool last saw at this path, when the lines of that are still known.
    pub fn change(&self, path: &RelPath, now: &[u8]) -> Option<Change> {
        let known = self.known.borrow();
        let seen = known.get(&path.to_string())?;
        match &seen.outline {
            Some(outline) => outline.change(&Outline::of(now)),
            None => seen.hash?.ask_content(Outline::of)?.change(&Outline::of(now)),
        }
    }

    /// Remembers what a file holds now (or that it is gone).
    pub fn note(&self, path: &RelPath, hash: Option<Hash>) {
        self.note_seen(Seen { path: path.to_string(), hash, outline: None });
    }

    /// Remembers the hash and the lines of what a file holds now.
    pub fn note_lines(&self, path: &RelPath, hash: Hash, outline: Option<Outline>) {
        self.note_seen(Seen { path: path.to_string(), hash: Some(hash), outline });
    }

    /// Remembers a content that a tool has just written, under the path it was written by and under the file's other names, as far as
    /// anything is known of them.
    pub fn note_written(&self, done: &Replaced, content: &[u8]) {
        // A content that is itself remembered is asked for its lines when they are needed, which is hardly ever.
        let outline = done.hash.ask_content(|_| ()).is_none().then(|| Outline::of(content));
        for name in done.names.iter().filter(|name| **name != done.canonical && self.known(name).is_some()) {
            self.note_lines(name, done.hash, outline.clone());
        }
        self.note_lines(&done.canonical, done.hash, outline);
    }

    fn note_seen(&self, seen: Seen) {
        // What is known already is no news.
        if self.known.borrow().get(&seen.path) != Some(&seen) {
            self.learn(std::slice::from_ref(&seen));
            self.news.borrow_mut().push(seen);
        }
    }

    /// Carries what is known of a file, or of all files of a folder, over to its new path.
    pub fn moved(&self, from: &RelPath, to: &RelPath) {
        let known = self.beneath(from);
        self.forget(from);
        self.forget(to);
        for (rest, seen) in known {
            self.note_seen(Seen { path: format!("{to}{rest}"), ..seen });
        }
    }

    /// Forgets a file, or all files of a folder.
    pub fn forget(&self, path: &RelPath) {
        for (_, seen) in self.beneath(path) {
            self.note_seen(Seen { hash: None, outline: None, ..seen });
        }
    }

    /// What is known of a path and of those beneath it, each with the rest of its path; sorted.
    fn beneath(&self, path: &RelPath) -> Vec<(String, Seen)> {
        let path = path.to_string();
        let known = self.known.borrow();
        let rests =
            known.latest.values().filter(|seen| seen.hash.is_some()).filter_map(|seen| Some((seen.path.strip_prefix(&path)?, seen)));
        let mut found: Vec<_> = rests
            .filter(|(rest, _)| rest.is_empty() || rest.starts_with('/'))
            .map(|(rest, seen)| (rest.to_string(), seen.clone()))
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Takes over what another jail learnt.
    pub fn learn(&self, seen: &[Seen]) {
        let mut known = self.known.borrow_mut();
        seen.iter().for_each(|seen| known.add(seen.clone()));
    }

    /// What was noted since the last call of this.
    pub fn take_news(&self) -> Vec<Seen> {
        self.news.borrow_mut().split_off(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(path: &str, content: &[u8]) -> Seen {
        Seen { path: path.into(), hash: Some(Hash::of(content)), outline: Some(Outline::of(content)) }
    }

    #[test]
    fn the_ledger_keeps_the_latest_of_each_file_and_is_bounded() {
        let mut ledger = Ledger::default();
        ledger.add(seen("a", b"1"));
        ledger.add(seen("b", b"1"));
        let told = ledger.version();
        ledger.add(seen("a", b"2"));
        assert_eq!(ledger.since(told), [seen("a", b"2")]);
        assert_eq!(ledger.since(0), [seen("b", b"1"), seen("a", b"2")]);
        for number in 0..MOST_FILES {
            ledger.add(seen(&format!("f{number}"), b"x"));
        }
        let all = ledger.since(0);
        assert_eq!((all.len(), all.iter().filter(|seen| seen.outline.is_some()).count()), (MOST_FILES, MOST_OUTLINES));
        assert!(ledger.get("a").is_none() && ledger.get("f0").is_some());
        assert_eq!(ledger.places.len(), MOST_FILES);
    }
}
