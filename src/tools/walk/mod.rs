//! The walker under find, grep and ls: in parallel, relative to an open folder, never through a link.
//!
//! Folders are opened beneath the folder where the walk began, with no link on the way, so a folder that is swapped for a
//! link in mid-walk fails in the kernel. The walker never reads content but that of ignore files, and never looks above the base.

mod root;
mod rules;

use crate::envelope::{Fault, FaultCode};
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::escape;
use nix::errno::Errno;
use rules::{Files, Rules};
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

pub(crate) use root::{Root, is_left_out, shown};

/// Files are handed to workers in groups of this many, so that one large folder is shared among them.
const BATCH: usize = 64;

/// How many ignored entries and how many unreadable folders are remembered by name.
const REMEMBERED: usize = 10_000;

/// What is walked.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Visit names that begin with a dot.
    pub(crate) hidden: bool,
    /// Leave out what ignore files name.
    pub(crate) ignore_rules: bool,
    /// Enter `.git`; it is entered anyway when the walk begins in it.
    pub(crate) enter_git: bool,
    /// Visit `.git` where it is not entered.
    pub(crate) show_git: bool,
    /// How deep: 1 is the entries of the folder itself. `None`: all.
    pub(crate) max_depth: Option<usize>,
    /// When the walk stops, finished or not.
    pub(crate) until: Instant,
}

/// An entry that is visited.
pub(crate) struct Entry<'a> {
    /// The path from the base, as it would be named in a call.
    pub(crate) path: &'a [u8],
    /// The path from where the walk began.
    pub(crate) below: &'a [u8],
    /// The last name.
    pub(crate) name: &'a [u8],
    /// What it is.
    pub(crate) kind: Kind,
    /// The folder that holds it.
    pub(crate) dir: &'a OpenDir,
}

/// What a visitor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// Nothing more.
    Nothing,
    /// A call of [`Visit::file`], on any worker.
    Content,
    /// Not to go into this folder.
    Prune,
}

/// One worker's visitor.
pub(crate) trait Visit: Send {
    /// Visits an entry. The order is not defined.
    fn entry(&mut self, entry: &Entry<'_>) -> Want;

    /// Visits a file that [`Visit::entry`] wanted: `name` in `dir`, at `path` from the base.
    fn file(&mut self, _dir: &OpenDir, _name: &OsStr, _path: &[u8]) {}
}

/// A folder that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub(crate) struct Skipped {
    /// The path from the base, escaped.
    pub(crate) path: String,
    /// Why.
    pub(crate) reason: String,
}

/// What came of a walk.
pub(crate) struct Walked<V> {
    /// The visitors, one a worker.
    pub(crate) visitors: Vec<V>,
    /// How many entries the ignore rules left out; what is in an ignored folder is not counted.
    pub(crate) ignored: u64,
    /// The first of them, by path from where the walk began; sorted.
    pub(crate) ignored_entries: Vec<(Vec<u8>, Kind)>,
    /// Folders that could not be read; sorted.
    pub(crate) skipped: Vec<Skipped>,
    /// Whether everything was visited.
    pub(crate) finished: bool,
}

enum Job {
    Folder { below: Vec<u8>, depth: usize, rules: Option<Arc<Rules>> },
    Files { dir: Arc<OpenDir>, below: Arc<Vec<u8>>, names: Vec<u8> },
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    busy: usize,
}

struct Shared<'a> {
    root: &'a Root,
    options: &'a Options,
    queue: Mutex<Queue>,
    wake: Condvar,
    stop: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    ignored: u64,
    ignored_entries: Vec<(Vec<u8>, Kind)>,
    skipped: Vec<Skipped>,
}

/// Walks; `make` makes one visitor a worker.
///
/// # Errors
/// `internal` when a worker panicked. What cannot be read is no error but in [`Walked::skipped`].
pub(crate) fn walk<V: Visit>(root: &Root, options: &Options, make: impl Fn() -> V + Sync) -> Result<Walked<V>, Fault> {
    let first = Job::Folder { below: Vec::new(), depth: 0, rules: root.rules.clone().filter(|_| options.ignore_rules) };
    let shared = Shared {
        root,
        options,
        queue: Mutex::new(Queue { jobs: vec![first], busy: 0 }),
        wake: Condvar::new(),
        stop: AtomicBool::new(false),
        notes: Mutex::new(Notes::default()),
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(12);
    let threads = if options.max_depth == Some(1) { 1 } else { threads };
    let visitors = std::thread::scope(|scope| {
        let spawn = || std::thread::Builder::new().spawn_scoped(scope, || work(&shared, make()));
        // Where no thread can be started, the walk still runs, on this one.
        let others: Vec<_> = (1..threads).map_while(|_| spawn().ok()).collect();
        let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&shared, make())));
        let mut visitors = vec![own.ok()];
        visitors.extend(others.into_iter().map(|other| other.join().ok()));
        visitors.into_iter().collect::<Option<Vec<V>>>()
    });
    let Some(visitors) = visitors else { return Err(Fault::new(FaultCode::Internal, "a worker of the walk panicked")) };
    let mut notes = shared.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
    notes.ignored_entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    notes.skipped.sort_unstable();
    Ok(Walked {
        visitors,
        ignored: notes.ignored,
        ignored_entries: notes.ignored_entries,
        skipped: notes.skipped,
        finished: !shared.stop.load(Ordering::Relaxed),
    })
}

fn work<V: Visit>(shared: &Shared<'_>, mut visitor: V) -> V {
    // A worker that panics takes no further job and lets the others end.
    struct Leave<'a, 'b>(&'a Shared<'b>);
    impl Drop for Leave<'_, '_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                let _queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
                self.0.stop.store(true, Ordering::Relaxed);
                self.0.wake.notify_all();
            }
        }
    }
    let _leave = Leave(shared);
    let mut space = Space::default();
    while let Some(job) = take(shared) {
        let more = match job {
            Job::Folder { below, depth, rules } => folder(shared, &mut visitor, &mut space, &below, depth, rules),
            Job::Files { dir, below, names } => {
                files(shared, &mut visitor, &mut space, &dir, &below, &names);
                Vec::new()
            }
        };
        let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.busy -= 1;
        let woken = more.len();
        queue.jobs.extend(more);
        if woken > 0 || queue.busy == 0 {
            shared.wake.notify_all();
        }
    }
    visitor
}

fn take(shared: &Shared<'_>) -> Option<Job> {
    let mut queue = shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if shared.stop.load(Ordering::Relaxed) {
            return None;
        }
        if let Some(job) = queue.jobs.pop() {
            queue.busy += 1;
            return Some(job);
        }
        if queue.busy == 0 {
            return None;
        }
        queue = shared.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A worker's memory, used again for each folder.
#[derive(Default)]
struct Space {
    names: Vec<u8>,
    entries: Vec<(usize, usize, Kind)>,
    path: Vec<u8>,
    scratch: Vec<u8>,
}

/// Whether time is up; says so to all.
fn late(shared: &Shared<'_>) -> bool {
    if Instant::now() >= shared.options.until {
        shared.stop.store(true, Ordering::Relaxed);
        shared.wake.notify_all();
    }
    shared.stop.load(Ordering::Relaxed)
}

fn folder<V: Visit>(
    shared: &Shared<'_>,
    visitor: &mut V,
    space: &mut Space,
    below: &[u8],
    depth: usize,
    rules: Option<Arc<Rules>>,
) -> Vec<Job> {
    if late(shared) {
        return Vec::new();
    }
    let Space { names, entries, path, scratch } = space;
    let options = shared.options;
    let opened;
    let dir = if depth == 0 {
        &shared.root.dir
    } else {
        match shared.root.dir.enter(Path::new(os(below))) {
            Ok(dir) => {
                opened = dir;
                &opened
            }
            Err(errno) => {
                skip(shared, below, errno);
                return Vec::new();
            }
        }
    };
    names.clear();
    entries.clear();
    let mut files = Files::default();
    let listed = dir.entries(|name, kind| {
        files.note(name);
        entries.push((names.len(), name.len(), kind));
        names.extend_from_slice(name);
    });
    if let Err(errno) = listed {
        skip(shared, below, errno);
    }
    path.clear();
    path.extend_from_slice(&shared.root.prefix);
    let root_len = path.len();
    path.extend_from_slice(below);
    if !below.is_empty() {
        path.push(b'/');
    }
    let dir_len = path.len();
    let rules = if options.ignore_rules { Rules::of(dir, files, rules, Vec::new(), dir_len - root_len) } else { None };

    let mut jobs = Vec::new();
    let mut wanted = Vec::new();
    let mut ignored = Vec::new();
    let mut ignored_count = 0;
    for (index, &(start, len, kind)) in entries.iter().enumerate() {
        if index % 1024 == 1023 && late(shared) {
            break;
        }
        let name = &names[start..start + len];
        if !options.hidden && name.first() == Some(&b'.') {
            continue;
        }
        // Before the rules are asked: it is left out by itself, not by them.
        let git = name == b".git" && !options.enter_git && !shared.root.in_git;
        if git && !options.show_git {
            continue;
        }
        path.truncate(dir_len);
        path.extend_from_slice(name);
        let is_folder = kind == Kind::Folder;
        if let Some(rules) = &rules
            && rules.ignored(&path[root_len..], is_folder, scratch)
        {
            ignored_count += 1;
            if ignored.len() < REMEMBERED {
                ignored.push((path[root_len..].to_vec(), kind));
            }
            continue;
        }
        let want = visitor.entry(&Entry { path, below: &path[root_len..], name, kind, dir });
        if want == Want::Content {
            wanted.push((start, len));
        }
        if is_folder && !git && want != Want::Prune && options.max_depth.is_none_or(|most| depth + 1 < most) {
            jobs.push(Job::Folder { below: path[root_len..].to_vec(), depth: depth + 1, rules: rules.clone() });
        }
    }
    if ignored_count > 0 {
        let mut notes = shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.ignored += ignored_count;
        let room = REMEMBERED.saturating_sub(notes.ignored_entries.len());
        notes.ignored_entries.extend(ignored.into_iter().take(room));
    }
    if wanted.is_empty() {
        return jobs;
    }
    // All groups but the last are for whoever has time, where the folder can be opened once more for them.
    let (here, elsewhere) = wanted.split_at(wanted.len().min(BATCH));
    let shared_dir = if elsewhere.is_empty() { None } else { dir.enter(Path::new(".")).ok().map(Arc::new) };
    let here = if shared_dir.is_some() || elsewhere.is_empty() { here } else { &wanted };
    if let Some(copy) = shared_dir {
        let below = Arc::new(path[root_len..dir_len].to_vec());
        for group in elsewhere.chunks(BATCH) {
            let mut list = Vec::new();
            for &(start, len) in group {
                list.extend_from_slice(&names[start..start + len]);
                list.push(0);
            }
            jobs.push(Job::Files { dir: Arc::clone(&copy), below: Arc::clone(&below), names: list });
        }
        // Let the others begin before this worker is busy with its own group.
        shared.queue.lock().unwrap_or_else(PoisonError::into_inner).jobs.append(&mut jobs);
        shared.wake.notify_all();
    }
    for &(start, len) in here {
        if late(shared) {
            break;
        }
        path.truncate(dir_len);
        path.extend_from_slice(&names[start..start + len]);
        visitor.file(dir, os(&names[start..start + len]), path);
    }
    jobs
}

fn files<V: Visit>(shared: &Shared<'_>, visitor: &mut V, space: &mut Space, dir: &OpenDir, below: &[u8], names: &[u8]) {
    let path = &mut space.path;
    path.clear();
    path.extend_from_slice(&shared.root.prefix);
    path.extend_from_slice(below);
    let dir_len = path.len();
    for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        if late(shared) {
            return;
        }
        path.truncate(dir_len);
        path.extend_from_slice(name);
        visitor.file(dir, os(name), path);
    }
}

fn skip(shared: &Shared<'_>, below: &[u8], errno: Errno) {
    // Removed since it was listed: it is simply no longer there.
    if errno == Errno::ENOENT {
        return;
    }
    let mut notes = shared.notes.lock().unwrap_or_else(PoisonError::into_inner);
    if notes.skipped.len() < REMEMBERED {
        let path = if below.is_empty() { shared.root.path_of(b".") } else { shared.root.path_of(below) };
        notes.skipped.push(Skipped { path: escape::escape(&path), reason: errno.desc().into() });
    }
}

/// When a walk ends that belongs to a call with this deadline: early enough to answer.
pub(crate) fn until(deadline: Instant) -> Instant {
    let now = Instant::now();
    now + deadline.saturating_duration_since(now).mul_f64(0.85)
}

/// The lines about folders that could not be read, below a result.
pub(crate) fn render_skipped(out: &mut String, skipped: &[Skipped]) {
    const SHOWN: usize = 10;
    for Skipped { path, reason } in skipped.iter().take(SHOWN) {
        let _ = write!(out, "\n[skipped {path}: {reason}]");
    }
    if skipped.len() > SHOWN {
        let _ = write!(out, "\n[skipped {} more folders]", skipped.len() - SHOWN);
    }
}

/// Bytes as a name.
pub(crate) fn os(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

#[cfg(test)]
mod tests;
