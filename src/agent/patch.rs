//! The patch: what changed on disk since the start, whatever made the change.
//!
//! It is made from disk truth at both ends, never from tool calls, and so holds what was staged, unstaged, committed, left
//! untracked or deleted, modes, links and binaries. Ignored files count only where a file tool touched them. The index, the
//! objects and the configuration of the workspace's repository are not changed and none of its programs is run.

use super::Doorway;
use super::private_git::{EMPTY_BLOB, Entries, Entry, PrivateGit, is_indexable, split};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::escape;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Up to this many files the state at the start is copied whole out of the reach of commands. Above, unchanged files are
/// looked up in the workspace's own object store, which a command could destroy; then the patch cannot be made, and says so.
const MOST_KEPT: usize = 20_000;

/// The state of the workspace at the start.
#[derive(Debug)]
pub struct Baseline {
    git: PrivateGit,
    entries: Entries,
    ignored: Vec<Vec<u8>>,
    /// Ignored files as they were before a file tool first touched them; `None`: absent.
    touched_before: BTreeMap<Vec<u8>, Option<Entry>>,
    /// The tree of `entries`.
    tree: String,
    notes: Vec<String>,
}

/// What has to be known of a baseline besides its private repository, to make the patch in another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The name of the repository's folder, in the session's own.
    pub git: String,
    tree: String,
    ignored: Vec<String>,
    touched_before: Vec<(String, Option<(u32, String)>)>,
}

/// What is written down at the start of a run, so that the patch of a killed process can still be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The version of this format: 1.
    pub v: u32,
    /// The base directory that the run works in.
    pub base: PathBuf,
    /// The folder for transcript, result and patch.
    pub out: PathBuf,
    /// Whether the base directory is a disposable copy.
    pub disposable: bool,
    /// The state at the start; `None` while it is not taken.
    pub baseline: Option<Kept>,
}

impl Record {
    /// Writes it, whole or not at all.
    ///
    /// # Errors
    /// `io_error`.
    pub fn write(&self, file: &Path) -> Result<(), Fault> {
        let broken = |error: std::io::Error| Fault::new(FaultCode::IoError, format!("{}: {error}", file.display()));
        let text = serde_json::to_vec(self).map_err(|error| broken(error.into()))?;
        super::finish::replace(file, &text).map_err(broken)
    }
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Patch {
    /// The text for `git apply`; empty when nothing changed.
    pub text: Vec<u8>,
    /// One entry a changed path, in the order of the text.
    pub files: Vec<Changed>,
    /// What could not be looked at.
    pub notes: Vec<String>,
}

/// One changed path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// Relative to the base, escaped as in every answer.
    pub path: String,
    /// How.
    pub status: Status,
    /// Lines added; `None` for a binary.
    pub added: Option<u64>,
    /// Lines removed; `None` for a binary.
    pub removed: Option<u64>,
}

/// How a path changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is new.
    Added,
    /// It is gone.
    Deleted,
    /// Its content changed, and perhaps its mode.
    Modified,
    /// Only its mode changed.
    Mode,
    /// A file became a link, or a link a file.
    Type,
}

impl Baseline {
    /// Looks at the workspace as it is now.
    ///
    /// # Errors
    /// `command_not_started` when the userland has no git; `internal` or `io_error`, with what git said.
    pub async fn take(doorway: &impl Doorway) -> Result<Self, Fault> {
        let git = PrivateGit::create(doorway).await?;
        let scan = git.scan(doorway, &Entries::new(), true).await?;
        let tree = git.tree(doorway, &scan.entries).await?;
        if scan.entries.len() <= MOST_KEPT {
            git.keep(doorway, &tree).await?;
        }
        Ok(Self { git, entries: scan.entries, ignored: scan.ignored, touched_before: BTreeMap::new(), tree, notes: scan.notes })
    }

    /// What [`Self::restore`] needs.
    pub fn kept(&self) -> Kept {
        let show = |path: &[u8]| escape::show(OsStr::from_bytes(path));
        let before = self.touched_before.iter();
        Kept {
            git: self.git.name(),
            tree: self.tree.clone(),
            ignored: self.ignored.iter().map(|path| show(path)).collect(),
            touched_before: before.map(|(path, entry)| (show(path), entry.as_ref().map(|entry| (entry.mode, entry.oid.clone())))).collect(),
        }
    }

    /// The baseline of a session that is no more. `git`: where its repository is now, in this session's own folder.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub async fn restore(doorway: &impl Doorway, git: PathBuf, kept: &Kept) -> Result<Self, Fault> {
        if kept.tree.len() != EMPTY_BLOB.len() || !kept.tree.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Fault::new(FaultCode::Internal, "the record of the start names no tree"));
        }
        let git = PrivateGit::reopen(git);
        let entries = git.entries_of(doorway, &kept.tree).await?;
        let bytes = |path: &String| escape::name(path).into_vec();
        let touched = kept.touched_before.iter();
        let touched_before =
            touched.map(|(path, entry)| (bytes(path), entry.clone().map(|(mode, oid)| Entry { mode, oid }))).collect::<BTreeMap<_, _>>();
        let ignored = kept.ignored.iter().map(bytes).collect();
        Ok(Self { git, entries, ignored, touched_before, tree: kept.tree.clone(), notes: Vec::new() })
    }

    /// Moves the start back to before an earlier patch, which led to the state that was taken. `touched`: as in [`Self::patch`].
    ///
    /// # Errors
    /// `internal` when the patch did not lead there; the start is then as it was.
    pub async fn rewind(&mut self, doorway: &impl Doorway, patch: &[u8], touched: &[String]) -> Result<(), Fault> {
        if patch.is_empty() {
            return Ok(());
        }
        let mut seeds = self.entries.clone();
        self.seed(doorway, &mut seeds, touched);
        let now = self.git.scan(doorway, &seeds, false).await?.entries;
        let entries = self.git.without(doorway, &now, patch).await?;
        let tree = self.git.tree(doorway, &entries).await?;
        // Of an ignored file the state before the first change counts, not that of now.
        let base = doorway.base().as_os_str().as_bytes().to_vec();
        let ignored = touched.iter().filter_map(|path| clean(path, &base)).filter(|path| self.was_ignored(path));
        let before: Vec<_> = ignored.map(|path| (path.clone(), entries.get(&path).cloned())).collect();
        self.touched_before.extend(before);
        (self.entries, self.tree) = (entries, tree);
        if self.entries.len() <= MOST_KEPT {
            self.git.keep(doorway, &self.tree).await?;
        }
        Ok(())
    }

    /// Adds what tools touched to what is looked at, ignored or not.
    fn seed(&self, doorway: &impl Doorway, seeds: &mut Entries, touched: &[String]) -> Vec<Vec<u8>> {
        let base = doorway.base().as_os_str().as_bytes().to_vec();
        let touched: Vec<Vec<u8>> = touched.iter().filter_map(|path| clean(path, &base)).collect();
        for path in &touched {
            seeds.entry(path.clone()).or_insert_with(|| Entry { mode: 0o100_644, oid: EMPTY_BLOB.into() });
        }
        touched
    }

    /// To be called before a file tool changes `paths` (as the call names them): ignored files among them are stored as
    /// they are, the first time. Costs nothing for a path that is not ignored.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub async fn before_change(&mut self, doorway: &impl Doorway, paths: &[String]) -> Result<(), Fault> {
        let base = doorway.base().as_os_str().as_bytes().to_vec();
        let news: Vec<Vec<u8>> = paths
            .iter()
            .filter_map(|path| clean(path, &base))
            .filter(|path| self.was_ignored(path) && !self.touched_before.contains_key(path))
            .collect();
        if news.is_empty() {
            return Ok(());
        }
        self.git.look_out(doorway).await?;
        let index = self.git.index();
        let unknown = Entry { mode: 0o100_644, oid: EMPTY_BLOB.into() };
        self.git.fill(doorway, b"", &index, &news.iter().map(|path| (path.clone(), unknown.clone())).collect()).await?;
        self.git.run(doorway, b"", &index, &["add", "-u"], None).await?;
        let mut found = self.git.list(doorway, b"", &index).await?;
        for path in news {
            let entry = found.remove(&path);
            self.touched_before.insert(path, entry);
        }
        Ok(())
    }

    /// What changed between the start and now. `touched` are paths that file tools changed: they count even when ignored.
    /// May be called any number of times.
    ///
    /// # Errors
    /// As [`Self::take`].
    pub async fn patch(&self, doorway: &impl Doorway, touched: &[String]) -> Result<Patch, Fault> {
        let mut before = self.entries.clone();
        let mut seeds = self.entries.clone();
        let touched = self.seed(doorway, &mut seeds, touched);
        for path in &touched {
            if let Some(Some(entry)) = self.touched_before.get(path) {
                before.entry(path.clone()).or_insert_with(|| entry.clone());
            }
        }
        self.git.look_out(doorway).await?;
        let scan = self.git.scan(doorway, &seeds, false).await?;
        let mut after = scan.entries;
        // What was there at the start, ignored, is not new because somebody changed the rules.
        after.retain(|path, _| before.contains_key(path) || touched.contains(path) || !self.was_ignored(path));

        let old = self.git.tree(doorway, &before).await?;
        let new = self.git.tree(doorway, &after).await?;
        let index = self.git.index();
        let diff = ["diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative"];
        let with = |more: &[&'static str]| [&diff[..], more].concat();
        let mut args = with(&["-p", "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/"]);
        args.extend([old.as_str(), new.as_str()]);
        let text = self.git.run(doorway, b"", &index, &args, None).await?;
        let mut args = with(&["--raw", "--no-abbrev", "-z"]);
        args.extend([old.as_str(), new.as_str()]);
        let raw = self.git.run(doorway, b"", &index, &args, None).await?;
        let mut args = with(&["--numstat", "-z"]);
        args.extend([old.as_str(), new.as_str()]);
        let numbers = self.git.run(doorway, b"", &index, &args, None).await?;
        let mut notes = self.notes.clone();
        // What could not be looked at at the start cannot be now.
        for note in scan.notes {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        Ok(Patch { text, files: changed(&raw, &numbers), notes })
    }

    fn was_ignored(&self, path: &[u8]) -> bool {
        self.ignored.iter().any(|rule| if rule.ends_with(b"/") { path.starts_with(rule) } else { path == rule })
    }
}

/// A path of a call as git names it: relative to the base, without `./`. `None` for what git has no name for.
fn clean(path: &str, base: &[u8]) -> Option<Vec<u8>> {
    let path = escape::name(path).into_vec();
    let path = path.strip_prefix(base).and_then(|rest| rest.strip_prefix(b"/")).unwrap_or(&path);
    let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    let path = parts.join(&b'/');
    (!path.is_empty() && is_indexable(&path)).then_some(path)
}

/// Reads `--raw -z` and `--numstat -z` of the same two trees.
fn changed(raw: &[u8], numbers: &[u8]) -> Vec<Changed> {
    let mut lines: BTreeMap<&[u8], (Option<u64>, Option<u64>)> = BTreeMap::new();
    for record in split(numbers) {
        let mut fields = record.splitn(3, |b| *b == b'\t');
        let mut number = || fields.next().and_then(|field| std::str::from_utf8(field).ok()?.parse().ok());
        let counts = (number(), number());
        if let Some(path) = fields.next() {
            lines.insert(path, counts);
        }
    }
    let mut records = split(raw);
    let mut files = Vec::new();
    while let (Some(head), Some(path)) = (records.next(), records.next()) {
        let head = String::from_utf8_lossy(head);
        let mut fields = head.trim_start_matches(':').split(' ').skip(2);
        let (old, new, letter) = (fields.next(), fields.next(), fields.next().unwrap_or_default());
        let status = match letter.as_bytes().first() {
            Some(b'A') => Status::Added,
            Some(b'D') => Status::Deleted,
            Some(b'T') => Status::Type,
            _ if old == new => Status::Mode,
            _ => Status::Modified,
        };
        let (added, removed) = lines.get(path).copied().unwrap_or_default();
        files.push(Changed { path: escape::show(OsStr::from_bytes(path)), status, added, removed });
    }
    files
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
