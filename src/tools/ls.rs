//! `ls`: what is in a folder. Entries are looked at, never followed or opened.

use super::args::OneOrMany;
use super::glob::Globs;
use super::page::{self, Smallest, Truncation, counted};
use super::walk::{self, Entry, Options, Root, Skipped, Visit, Want, os};
use super::{Access, Bench, Render, Spec, Tool, clock};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::dir::Kind;
use crate::workspace::{BaseDir, RelPath, base_dir, escape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// The tool.
pub struct Ls;

/// The arguments of `ls`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// The folder, relative to the workspace; a file gives that one entry
    #[serde(default = "here")]
    path: String,
    /// How many levels of folders to show
    #[serde(default = "one")]
    #[schemars(range(min = 1))]
    depth: usize,
    /// Show names that begin with a dot
    #[serde(default = "yes")]
    all: bool,
    /// Show mode, size and time of change (UTC)
    #[serde(default)]
    long: bool,
    /// name: folders first, then by name; size: largest first; mtime: newest first
    #[serde(default)]
    sort: Sort,
    /// The most entries to show
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// How many entries to leave out at the beginning
    #[serde(default)]
    offset: usize,
    /// Globs of names to leave out
    #[serde(default)]
    ignore: OneOrMany,
}

fn here() -> String {
    ".".into()
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

/// How many entries are shown when the call does not say.
const LIMIT: usize = 500;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    #[serde(alias = "path")]
    Name,
    Size,
    #[serde(alias = "time")]
    Mtime,
}

/// What `ls` found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Listing {
    path: String,
    entries: Vec<Item>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    /// Folders that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Item {
    /// The path from the folder that is listed.
    name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
    /// The text of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// Where a link leads, when not to something in the workspace: `broken` or `outside`.
    #[serde(skip_serializing_if = "Option::is_none")]
    leads: Option<&'static str>,
}

impl Spec for Ls {
    type Args = Args;
    type Data = Listing;
    const NAME: &'static str = "ls";
    const ALIASES: &'static [&'static str] = &["sandbox_ls", "list", "list_dir", "list_directory"];
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Lists a folder: folders first, then by name.\n\
        Shows everything, hidden and ignored files too; links with their targets. depth shows folders within, long adds mode, size and time.";
    const EXAMPLE: &'static str = r#"{"path":"src"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("dir", "path"),
        ("directory", "path"),
        ("dir_path", "path"),
        ("folder", "path"),
        ("file_path", "path"),
        ("filePath", "path"),
        ("target_directory", "path"),
        ("hidden", "all"),
        ("show_hidden", "all"),
        ("max_depth", "depth"),
        ("sort_by", "sort"),
        ("exclude", "ignore"),
    ];
}

impl Tool for Ls {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Listing, Fault> {
        list(bench.base(), &args, super::walk::until(bench.deadline()))
    }
}

/// Lists; stops at `until` and says so.
fn list(base: &BaseDir, args: &Args, until: Instant) -> Result<Listing, Fault> {
    let path = base.rel(&args.path)?;
    let shown = walk::shown(&path);
    let ignore = Globs::strict(&args.ignore.0, base.path(), false)?;
    let meta = base.lstat(&path)?;
    let folder = match Kind::of_mode(meta.mode()) {
        Kind::Folder => true,
        // A link is what it leads to, when that is a folder that can be listed.
        Kind::Link => base.stat(&path).is_ok_and(|meta| meta.is_dir()),
        _ => false,
    };
    if !folder {
        let item = item(base, &path, shown.clone(), args.long)?;
        return Ok(Listing { path: shown, entries: vec![item], total: 1, truncation: None, skipped: Vec::new() });
    }
    let limit = args.limit.unwrap_or(LIMIT);
    if args.depth == 0 || limit == 0 {
        let what = if limit == 0 { "limit" } else { "depth" };
        return Err(Fault::new(FaultCode::InvalidArguments, format!("{what} is at least 1")));
    }
    let root = Root::open(base, &path)?;
    let options = Options { hidden: args.all, ignore_rules: false, enter_git: false, show_git: true, max_depth: Some(args.depth), until };
    let keep = args.offset.saturating_add(limit);
    let walked = walk::walk(&root, &options, || Lister { sort: args.sort, ignore: &ignore, found: Smallest::new(keep) })?;
    // The folder itself could not be listed: that is no empty folder.
    if let Some(unreadable) = walked.skipped.iter().find(|skipped| skipped.path == shown) {
        return Err(Fault::new(FaultCode::PermissionDenied, format!("{shown} cannot be listed: {}", unreadable.reason)));
    }
    let mut found = Smallest::new(keep);
    walked.visitors.into_iter().for_each(|lister| found.merge(lister.found));
    let (sorted, total) = found.into_sorted();
    let budget = if args.limit.is_some() { page::LARGE_BUDGET } else { page::BUDGET };
    let (shown_entries, truncation) =
        page::page(sorted, (args.offset, limit), budget, (total, walked.finished), |found| found.below.len() + 16);
    let entries = shown_entries
        .into_iter()
        .map(|found| {
            let path = RelPath::from_relative(Path::new(os(&root.path_of(&found.below))));
            // Gone since it was listed: it was there, and that is all that is known.
            item(base, &path, escape::escape(&found.below), args.long || args.sort != Sort::Name).unwrap_or_else(|_| Item {
                name: escape::escape(&found.below),
                kind: found.kind.as_str(),
                mode: None,
                size: None,
                mtime: None,
                target: None,
                leads: None,
            })
        })
        .collect();
    Ok(Listing { path: shown, entries, total, truncation, skipped: walked.skipped })
}

/// One entry, with as much detail as is asked for. Short entries of plain kinds need no look at all but for the kind.
fn item(base: &BaseDir, path: &RelPath, name: String, long: bool) -> Result<Item, Fault> {
    let meta = base.lstat(path)?;
    let kind = Kind::of_mode(meta.mode());
    let mut item = Item { name, kind: kind.as_str(), mode: None, size: None, mtime: None, target: None, leads: None };
    if long {
        item.mode = Some(mode_text(kind, meta.mode()));
        item.size = (kind == Kind::File).then_some(meta.len());
        item.mtime = Some(clock::show(meta.mtime()));
    }
    if kind == Kind::Link {
        item.target = Some(base_dir::shown(&base.read_link(path)?));
        item.leads = match base.stat(path) {
            Ok(_) => None,
            Err(fault) if fault.code() == FaultCode::OutsideWorkspace => Some("outside"),
            Err(fault) if matches!(fault.code(), FaultCode::NotFound | FaultCode::NotDirectory) => Some("broken"),
            Err(_) => None,
        };
    }
    Ok(item)
}

/// A mode as `-rw-r--r--`.
pub(super) fn mode_text(kind: Kind, mode: u32) -> String {
    let mut text = String::from(kind.letter());
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

struct Lister<'a> {
    sort: Sort,
    ignore: &'a Globs,
    found: Smallest<Found>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    rank: u128,
    key: Vec<u8>,
    below: Vec<u8>,
    kind: Kind,
}

impl Visit for Lister<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Want {
        if !self.ignore.is_empty() && self.ignore.matches(entry.path, entry.below, entry.name, entry.kind == Kind::Folder) {
            return Want::Prune;
        }
        let rank = match self.sort {
            Sort::Name => 0,
            Sort::Size => u128::MAX - entry.dir.lstat(os(entry.name)).map_or(0, |stat| u128::from(stat.st_size.unsigned_abs())),
            Sort::Mtime => newest_first(entry.dir.lstat(os(entry.name)).ok()),
        };
        let key = tree_key(entry.below, entry.kind == Kind::Folder);
        let worse = self.found.bound().is_some_and(|bound| (bound.rank, &bound.key) < (rank, &key));
        if worse {
            self.found.count();
        } else {
            self.found.push(Found { rank, key, below: entry.below.to_vec(), kind: entry.kind });
        }
        Want::Nothing
    }
}

/// A rank by which newer files come first.
pub(super) fn newest_first(stat: Option<nix::sys::stat::FileStat>) -> u128 {
    let nanos = stat.map_or(i128::MIN / 2, |stat| i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec));
    nanos.wrapping_neg().cast_unsigned() ^ (1 << 127)
}

/// A key by which folders come first on each level and a folder's entries follow it.
fn tree_key(below: &[u8], is_folder: bool) -> Vec<u8> {
    let mut key = Vec::with_capacity(below.len() + 8);
    let mut parts = below.split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        key.push(if is_folder || parts.peek().is_some() { 1 } else { 2 });
        key.extend_from_slice(part);
        // Below every byte of a name, so that `a` comes before `ab`.
        key.push(0);
    }
    key
}

impl Render for Listing {
    fn render(&self) -> String {
        let mut out = String::new();
        if self.entries.is_empty() && self.total == 0 {
            let _ = write!(out, "{} is empty", self.path);
        }
        let width = self.entries.iter().filter_map(|item| item.size).max().map_or(1, |most| most.to_string().len());
        for item in &self.entries {
            if let (Some(mode), Some(mtime)) = (&item.mode, &item.mtime) {
                let size = item.size.map_or_else(|| "-".into(), |size| size.to_string());
                let _ = write!(out, "{mode} {size:>width$} {mtime} ");
            }
            out.push_str(&item.name);
            match item.kind {
                "folder" if !item.name.ends_with('/') => out.push('/'),
                "file" | "link" | "folder" => {}
                kind => {
                    let _ = write!(out, " ({kind})");
                }
            }
            if let Some(target) = &item.target {
                let _ = write!(out, " -> {target}");
            }
            match item.leads {
                Some("outside") => out.push_str(" (outside the workspace)"),
                Some(leads) => {
                    let _ = write!(out, " ({leads})");
                }
                None => {}
            }
            out.push('\n');
        }
        match &self.truncation {
            Some(cut) => out.push_str(&cut.line("entries")),
            None if self.total > 0 => {
                let _ = write!(out, "[{}]", counted(self.total, "entry", "entries"));
            }
            None => {}
        }
        walk::render_skipped(&mut out, &self.skipped);
        out
    }
}

#[cfg(test)]
mod tests;
