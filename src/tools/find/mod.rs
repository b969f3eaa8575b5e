//! `find`: entries by name, path, type, size and age. Entries are looked at, never followed or opened.

mod filter;

use super::args::OneOrMany;
use super::glob::Globs;
use super::ls::newest_first;
use super::page::{self, Smallest, Truncation, counted};
use super::walk::{self, Entry, Options, Root, Skipped, Visit, Want, os};
use super::{Access, Bench, Render, Spec, Tool, clock};
use crate::envelope::{Data, Fault, FaultCode};
use crate::workspace::dir::Kind;
use crate::workspace::{BaseDir, RelPath, escape};
use filter::{Filter, Size, Type};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::time::Instant;

/// The tool.
pub struct Find;

/// The arguments of `find`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// A glob, or a list of them: without a slash matched on the name at any depth, with one on the path from `path`
    #[serde(default)]
    pattern: OneOrMany,
    /// Where to begin, relative to the workspace
    #[serde(default)]
    path: Option<String>,
    /// Only entries of this type
    #[serde(default, rename = "type")]
    kind: Option<Type>,
    /// How many levels deep; 1 is the folder itself
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_depth: Option<usize>,
    /// Only files of at least this size: bytes, or with a suffix (10k, 2M, 1G)
    #[serde(default)]
    min_size: Option<Size>,
    /// Only files of at most this size
    #[serde(default)]
    max_size: Option<Size>,
    /// Only entries changed within a duration (2h, 3d), since a time (2024-01-31, UTC) or after a file of the workspace
    #[serde(default)]
    newer_than: Option<String>,
    /// Globs of what to leave out, folders with all that is in them
    #[serde(default)]
    exclude: OneOrMany,
    /// Visit names that begin with a dot (never .git); true unless given
    #[serde(default)]
    hidden: Option<bool>,
    /// Visit what ignore files leave out
    #[serde(default)]
    no_ignore: bool,
    /// Match names without regard to case
    #[serde(default)]
    ignore_case: bool,
    /// path; name; size: largest first; mtime: newest first
    #[serde(default)]
    sort: Sort,
    /// The most entries to show; 1000 unless given
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<usize>,
    /// How many entries to leave out at the beginning
    #[serde(default)]
    offset: usize,
}

/// How many entries are shown when the call does not say.
const LIMIT: usize = 1000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Path,
    Name,
    Size,
    #[serde(alias = "time")]
    Mtime,
}

/// What `find` found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Found {
    entries: Vec<Item>,
    total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    /// How many entries ignore files left out; what is in an ignored folder is not counted.
    ignored: u64,
    /// Folders that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct Item {
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtime: Option<String>,
}

impl Spec for Find {
    type Args = Args;
    type Data = Found;
    const NAME: &'static str = "find";
    const ALIASES: &'static [&'static str] = &["sandbox_find", "glob", "find_files"];
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Finds files and folders by name: \"*.rs\", \"src/**/*.ts\", a list of patterns.\n\
        Without a slash the pattern is matched on the name at any depth. Hidden entries are found, ignored ones only with no_ignore or when the \
        pattern is their exact path. Also by type, size and age.";
    const EXAMPLE: &'static str = r#"{"pattern":"*.rs","path":"src"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("patterns", "pattern"),
        ("glob", "pattern"),
        ("glob_pattern", "pattern"),
        ("name", "pattern"),
        ("query", "pattern"),
        ("dir", "path"),
        ("directory", "path"),
        ("dir_path", "path"),
        ("file_type", "type"),
        ("depth", "max_depth"),
        ("maxDepth", "max_depth"),
        ("ignore", "exclude"),
        ("case_insensitive", "ignore_case"),
        ("max_results", "limit"),
        ("sort_by", "sort"),
    ];

    fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
        let Some(sensitive) = args.shift_remove("case_sensitive") else { return Ok(Vec::new()) };
        let insensitive = sensitive == serde_json::Value::Bool(false);
        args.entry("ignore_case").or_insert_with(|| insensitive.into());
        Ok(vec![format!("case_sensitive was read as ignore_case: {insensitive}")])
    }
}

impl Tool for Find {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Found, Fault> {
        find(bench.base(), &args, walk::until(bench.deadline()))
    }
}

/// Finds; stops at `until` and says so.
fn find(base: &BaseDir, args: &Args, until: Instant) -> Result<Found, Fault> {
    let limit = args.limit.unwrap_or(LIMIT);
    if limit == 0 || args.max_depth == Some(0) {
        let what = if limit == 0 { "limit" } else { "max_depth" };
        return Err(Fault::new(FaultCode::InvalidArguments, format!("{what} is at least 1")));
    }
    let path = base.rel(args.path.as_deref().unwrap_or("."))?;
    let globs = Globs::read(&args.pattern.0, base.path(), args.ignore_case)?;
    let exclude = Globs::strict(&args.exclude.0, base.path(), args.ignore_case)?;
    let filter = Filter::new(base, args.kind, args.min_size, args.max_size, args.newer_than.as_deref())?;
    let root = match Root::open(base, &path) {
        Ok(root) => root,
        Err(fault) if fault.code() == FaultCode::NotDirectory && base.lstat(&path).is_ok() => {
            return just_one(base, &path, &globs, &filter);
        }
        Err(fault) => return Err(fault),
    };
    let needs_stat = filter.needs_stat() || matches!(args.sort, Sort::Size | Sort::Mtime);
    let keep = args.offset.saturating_add(limit);
    let mut found = Smallest::new(keep);
    let named = named(base, &root, &globs, &exclude, &filter, args.sort);
    let named_paths: Vec<Vec<u8>> = named.iter().map(|hit| hit.path.clone()).collect();
    named.into_iter().for_each(|hit| found.push(hit));
    // What does not parse and is no name either is a mistake.
    if let Some(fault) = globs.fault()
        && named_paths.is_empty()
    {
        return Err(fault);
    }
    let options = Options {
        hidden: args.hidden.unwrap_or(true),
        ignore_rules: !args.no_ignore,
        enter_git: globs.patterns().iter().any(|pattern| pattern.begins_in(".git")),
        show_git: false,
        max_depth: args.max_depth,
        until,
    };
    let walked = walk::walk(&root, &options, || Finder {
        globs: &globs,
        exclude: &exclude,
        filter: &filter,
        named: &named_paths,
        needs_stat,
        sort: args.sort,
        found: Smallest::new(keep),
    })?;
    walked.visitors.into_iter().for_each(|finder| found.merge(finder.found));
    let (sorted, total) = found.into_sorted();
    let budget = if args.limit.is_some() { page::LARGE_BUDGET } else { page::BUDGET };
    let (shown, truncation) = page::page(sorted, (args.offset, limit), budget, (total, walked.finished), |hit| hit.path.len() + 2);
    let entries = shown.into_iter().map(Hit::into_item).collect();
    Ok(Found { entries, total, truncation, ignored: walked.ignored, skipped: walked.skipped })
}

/// `path` is no folder: that entry, if it matches.
fn just_one(base: &BaseDir, path: &RelPath, globs: &Globs, filter: &Filter) -> Result<Found, Fault> {
    let meta = base.lstat(path)?;
    let shown = path.as_path().as_os_str().as_bytes();
    let name = path.as_path().file_name().map_or(shown, OsStrExt::as_bytes);
    let kind = Kind::of_mode(meta.mode());
    let stat = Facts { size: meta.len(), mtime: (meta.mtime(), meta.mtime_nsec()), rank: 0 };
    let fits = filter.accepts(kind, Some(&stat)) && (globs.is_empty() || globs.matches(shown, name, name, false));
    let entries: Vec<Item> =
        fits.then(|| Item { path: walk::shown(path), kind: kind.as_str(), size: None, mtime: None }).into_iter().collect();
    Ok(Found { total: entries.len() as u64, entries, truncation: None, ignored: 0, skipped: Vec::new() })
}

/// Entries that a pattern names literally: found even when hidden or ignored.
fn named(base: &BaseDir, root: &Root, globs: &Globs, exclude: &Globs, filter: &Filter, sort: Sort) -> Vec<Hit> {
    let mut hits: Vec<Hit> = Vec::new();
    for pattern in globs.patterns() {
        let parts = Path::new(os(&pattern.literal)).components();
        let literal: std::path::PathBuf = parts.filter(|part| matches!(part, Component::Normal(_))).collect();
        let literal = literal.as_os_str().as_bytes();
        if literal.is_empty() {
            continue;
        }
        let path = if pattern.from_base { literal.to_vec() } else { root.path_of(literal) };
        let Ok(meta) = base.lstat(&RelPath::from_relative(Path::new(os(&path)))) else { continue };
        let kind = Kind::of_mode(meta.mode());
        let name = Path::new(os(literal)).file_name().map_or(literal, OsStrExt::as_bytes);
        let facts = Facts { size: meta.len(), mtime: (meta.mtime(), meta.mtime_nsec()), rank: 0 };
        let wanted = filter.accepts(kind, Some(&facts))
            && (!pattern.folders_only || kind == Kind::Folder)
            && !exclude.matches_either(&path, literal, name, kind == Kind::Folder);
        // The folder that is searched has to hold it; a pattern from the base may name something beside it.
        let beneath = !pattern.from_base || path.starts_with(&root.path_of(b""));
        if wanted && beneath && !hits.iter().any(|hit| hit.path == path) {
            let nanos = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            let facts = Facts { rank: nanos.wrapping_neg().cast_unsigned() ^ (1 << 127), ..facts };
            let shows = filter.needs_stat() || matches!(sort, Sort::Size | Sort::Mtime);
            hits.push(Hit::new(sort, &path, name, kind, shows.then_some(facts)));
        }
    }
    hits
}

/// What is known of an entry beyond its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Facts {
    size: u64,
    mtime: (i64, i64),
    /// A rank by which newer entries come first.
    rank: u128,
}

/// A match, ordered as it is shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hit {
    rank: u128,
    name: Vec<u8>,
    path: Vec<u8>,
    kind: Kind,
    facts: Option<Facts>,
}

impl Hit {
    fn new(sort: Sort, path: &[u8], name: &[u8], kind: Kind, facts: Option<Facts>) -> Self {
        let rank = match (sort, &facts) {
            (Sort::Size, Some(facts)) => u128::from(u64::MAX - facts.size),
            (Sort::Mtime, Some(facts)) => facts.rank,
            _ => 0,
        };
        let name = if sort == Sort::Name { name.to_vec() } else { Vec::new() };
        Self { rank, name, path: path.to_vec(), kind, facts }
    }

    fn into_item(self) -> Item {
        Item {
            path: escape::escape(&self.path),
            kind: self.kind.as_str(),
            size: self.facts.filter(|_| self.kind == Kind::File).map(|facts| facts.size),
            mtime: self.facts.map(|facts| clock::show(facts.mtime.0)),
        }
    }
}

struct Finder<'a> {
    globs: &'a Globs,
    exclude: &'a Globs,
    filter: &'a Filter,
    named: &'a [Vec<u8>],
    needs_stat: bool,
    sort: Sort,
    found: Smallest<Hit>,
}

impl Visit for Finder<'_> {
    fn entry(&mut self, entry: &Entry<'_>) -> Want {
        let is_folder = entry.kind == Kind::Folder;
        if !self.exclude.is_empty() && self.exclude.matches_either(entry.path, entry.below, entry.name, is_folder) {
            return Want::Prune;
        }
        if !self.filter.accepts_kind(entry.kind)
            || !(self.globs.is_empty() || self.globs.matches(entry.path, entry.below, entry.name, is_folder))
            || self.named.iter().any(|path| path == entry.path)
        {
            return Want::Nothing;
        }
        let mut facts = None;
        if self.needs_stat {
            // Gone since it was listed.
            let Ok(stat) = entry.dir.lstat(os(entry.name)) else { return Want::Nothing };
            let known =
                Facts { size: stat.st_size.unsigned_abs(), mtime: (stat.st_mtime, stat.st_mtime_nsec), rank: newest_first(Some(stat)) };
            if !self.filter.accepts(entry.kind, Some(&known)) {
                return Want::Nothing;
            }
            facts = Some(known);
        }
        // Most matches of a large tree are beyond the page: they are counted, not kept.
        if self.sort == Sort::Path && self.found.bound().is_some_and(|bound| bound.path.as_slice() < entry.path) {
            self.found.count();
        } else {
            self.found.push(Hit::new(self.sort, entry.path, entry.name, entry.kind, facts));
        }
        Want::Nothing
    }
}

impl Render for Found {
    fn render(&self) -> String {
        let mut out = String::new();
        for item in &self.entries {
            out.push_str(&item.path);
            match item.kind {
                "folder" => out.push('/'),
                "file" => {}
                kind => {
                    let _ = write!(out, " ({kind})");
                }
            }
            if let Some(size) = item.size {
                let _ = write!(out, "  {size}");
            }
            if let Some(mtime) = &item.mtime {
                let _ = write!(out, "  {mtime}");
            }
            out.push('\n');
        }
        match &self.truncation {
            Some(cut) => out.push_str(&cut.line("entries")),
            None if self.total == 0 => out.push_str("nothing found"),
            None => {
                let _ = write!(out, "[{}]", counted(self.total, "entry", "entries"));
            }
        }
        if self.total == 0 && self.ignored > 0 {
            let ignored = counted(self.ignored, "entry is", "entries are");
            let _ = write!(out, "\n[{ignored} left out by ignore rules; no_ignore: true searches there too]");
        }
        walk::render_skipped(&mut out, &self.skipped);
        out
    }
}

#[cfg(test)]
mod tests;
