//! `grep`: lines that match a regular expression, in files and folders of the workspace and in kept output.

mod engine;
mod hits;
mod line;
mod odd;
mod render;
mod search;
mod shape;

use super::args::OneOrMany;
use super::glob::Globs;
use super::page::{self, Truncation};
use super::source;
use super::walk::{self, Options, Root, Skipped, os};
use super::{Access, Bench, Spec, Tool};
use crate::envelope::{Data, Fault, FaultCode};
use crate::workspace::dir::Kind;
use crate::workspace::{BaseDir, RelPath, escape};
use engine::{Engine, Style};
use grep_matcher::Matcher;
use hits::{Kept, Tally};
use ignore::types::{Types, TypesBuilder};
use line::Line;
use schemars::JsonSchema;
use search::{Counts, Search, Worker};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// The tool.
pub struct Grep;

/// The arguments of `grep`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Args {
    /// A regular expression (look-around and back-references too), or plain text with `literal`
    pattern: String,
    /// A file or folder, or a list of them; `spool:NAME` is kept output. The workspace unless given
    #[serde(default)]
    path: OneOrMany,
    /// Only files that match one of these globs: "*.rs", "src/**/*.ts"
    #[serde(default)]
    glob: OneOrMany,
    /// Not what matches one of these globs
    #[serde(default)]
    exclude: OneOrMany,
    /// Only files of these types: rust, py, js, …
    #[serde(default, rename = "type")]
    kind: OneOrMany,
    /// Without regard to case
    #[serde(default)]
    ignore_case: bool,
    /// The pattern is plain text
    #[serde(default)]
    literal: bool,
    /// Only whole words
    #[serde(default)]
    word: bool,
    /// The pattern may match across lines
    #[serde(default)]
    multiline: bool,
    /// Lines that do not match
    #[serde(default)]
    invert: bool,
    /// Lines to show before and after each match
    #[serde(default)]
    context: Option<u64>,
    /// Lines to show before each match
    #[serde(default)]
    before: Option<u64>,
    /// Lines to show after each match
    #[serde(default)]
    after: Option<u64>,
    /// content: the lines; files: only which files; count: how many lines of each file
    #[serde(default)]
    output_mode: Mode,
    /// The most matching lines (or files) to show; 100 unless given
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
    /// How many of them to leave out at the beginning
    #[serde(default)]
    offset: u64,
    /// The most matching lines to show of one file
    #[serde(default)]
    #[schemars(range(min = 1))]
    max_per_file: Option<u64>,
    /// Search names that begin with a dot (never .git); true unless given
    #[serde(default)]
    hidden: Option<bool>,
    /// Search what ignore files leave out
    #[serde(default)]
    no_ignore: bool,
    /// path; mtime: newest file first
    #[serde(default)]
    sort: Sort,
}

/// How many are shown when the call does not say.
const LIMIT: u64 = 100;

/// More lines of context than this are not given.
const MOST_CONTEXT: u64 = 100;

/// How long ignored files are searched to say what they hold.
const IGNORED_TIME: Duration = Duration::from_millis(300);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    #[default]
    #[serde(alias = "lines", alias = "matches")]
    Content,
    #[serde(alias = "files_with_matches", alias = "file", alias = "paths")]
    Files,
    #[serde(alias = "counts")]
    Count,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Sort {
    #[default]
    Path,
    #[serde(alias = "modified", alias = "time")]
    Mtime,
}

/// What `grep` found.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Found {
    output_mode: Mode,
    /// `linear`, or `bounded` for look-around and back-references.
    engine: &'static str,
    files: Vec<FileFound>,
    /// Matching lines, or files, in all.
    total: u64,
    /// The total is only a lower bound.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
    /// Files with a match in all.
    files_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    counts: Counts,
    /// What ignored files hold, when nothing else holds anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored_hits: Option<IgnoredHits>,
    /// Folders that could not be read, and files in which the search broke off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skipped: Vec<Skipped>,
    /// What a reader should know about how the search was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Debug, Serialize, schemars::JsonSchema)]
struct FileFound {
    path: String,
    /// Matching lines of the file in all; not known in the mode `files`.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
struct IgnoredHits {
    matches: u64,
    files: u64,
    /// Time was up before all of them were searched.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    at_least: bool,
}

impl Spec for Grep {
    type Args = Args;
    type Data = Found;
    const NAME: &'static str = "grep";
    const ALIASES: &'static [&'static str] = &["sandbox_grep", "search", "rg", "ripgrep", "search_files"];
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Searches file contents with a regular expression.\n\
        Hidden files are searched; .git and what ignore files name are not, unless named in path. output_mode files or count for an overview; \
        literal for plain text; context for the lines around.";
    const EXAMPLE: &'static str = r#"{"pattern":"fn main","path":"src","glob":"*.rs"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("regex", "pattern"),
        ("query", "pattern"),
        ("regexp", "pattern"),
        ("search_term", "pattern"),
        ("paths", "path"),
        ("dir", "path"),
        ("directory", "path"),
        ("dir_path", "path"),
        ("file_path", "path"),
        ("filePath", "path"),
        ("include", "glob"),
        ("include_pattern", "glob"),
        ("file_pattern", "glob"),
        ("globs", "glob"),
        ("exclude_pattern", "exclude"),
        ("file_type", "type"),
        ("case_insensitive", "ignore_case"),
        ("-i", "ignore_case"),
        ("fixed_strings", "literal"),
        ("-F", "literal"),
        ("whole_word", "word"),
        ("-w", "word"),
        ("-U", "multiline"),
        ("invert_match", "invert"),
        ("-v", "invert"),
        ("-C", "context"),
        ("context_lines", "context"),
        ("-B", "before"),
        ("before_context", "before"),
        ("-A", "after"),
        ("after_context", "after"),
        ("mode", "output_mode"),
        ("head_limit", "limit"),
        ("max_results", "limit"),
        ("max_count", "max_per_file"),
        ("include_hidden", "hidden"),
        ("sort_by", "sort"),
    ];

    fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
        let mut warnings = Vec::new();
        for (theirs, ours) in [("case_sensitive", "ignore_case"), ("is_regex", "literal"), ("is_regexp", "literal")] {
            if let Some(Value::Bool(value)) = args.get(theirs).cloned() {
                args.shift_remove(theirs);
                args.entry(ours).or_insert_with(|| (!value).into());
                warnings.push(format!("{theirs} was read as {ours}: {}", !value));
            }
        }
        // Lines are always numbered.
        args.shift_remove("-n");
        Ok(warnings)
    }
}

impl Tool for Grep {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Found, Fault> {
        grep(bench.base(), bench.spool(), &args, walk::until(bench.deadline()))
    }
}

/// Searches; stops at `until` and says so.
fn grep(base: &BaseDir, spool: Option<&OwnedFd>, args: &Args, until: Instant) -> Result<Found, Fault> {
    if args.limit == Some(0) || args.max_per_file == Some(0) {
        let what = if args.limit == Some(0) { "limit" } else { "max_per_file" };
        return Err(Fault::new(FaultCode::InvalidArguments, format!("{what} is at least 1")));
    }
    let style = Style { ignore_case: args.ignore_case, literal: args.literal, word: args.word, multiline: args.multiline };
    let (engine, multiline) = engine::compile(&args.pattern, style, until)?;
    let mut notes = Vec::new();
    if multiline && !args.multiline {
        notes.push("the pattern holds a line end, so it was searched across lines".to_owned());
    }
    let call = Call { base, spool, args, multiline, until };
    let (tally, ending, name) = match &engine {
        Engine::Linear(matcher) => call.search(matcher, &mut notes).map(|(tally, ending)| (tally, ending, "linear"))?,
        Engine::Bounded(matcher) => call.search(matcher, &mut notes).map(|(tally, ending)| (tally, ending, "bounded"))?,
    };
    let mut partial = tally.partial || !ending.finished;
    if let Engine::Bounded(matcher) = &engine {
        notes.push("look-around and back-references run on a second engine with a bounded number of steps".into());
        if matcher.gave_up() > 0 {
            partial = true;
            notes.push(format!("{} took too many steps and may hold more", page::counted(matcher.gave_up(), "line", "lines")));
        }
    }
    Ok(shape::shape(args, tally, ending, partial, name, notes))
}

/// One call, with what it works on.
struct Call<'a> {
    base: &'a BaseDir,
    spool: Option<&'a OwnedFd>,
    args: &'a Args,
    multiline: bool,
    until: Instant,
}

/// How a search ended.
#[derive(Default)]
struct Ending {
    counts: Counts,
    skipped: Vec<Skipped>,
    ignored_hits: Option<IgnoredHits>,
    finished: bool,
}

impl Call<'_> {
    fn search<M: Matcher + Clone + Send + Sync>(&self, matcher: &M, notes: &mut Vec<String>) -> Result<(Tally, Ending), Fault> {
        let args = self.args;
        let most = args.offset.saturating_add(args.limit.unwrap_or(LIMIT));
        let kept = Kept::new(most);
        let glob = Globs::strict(&args.glob.0, self.base.path(), false)?;
        let exclude = Globs::strict(&args.exclude.0, self.base.path(), false)?;
        let types = types(&args.kind.0, notes)?;
        let context = |own: Option<u64>| own.or(args.context).unwrap_or(0).min(MOST_CONTEXT);
        let search = Search {
            kept: &kept,
            lines: args.output_mode == Mode::Content,
            first_only: args.output_mode == Mode::Files,
            units_are_files: args.output_mode != Mode::Content,
            newest_first: args.sort == Sort::Mtime,
            before: context(args.before),
            after: context(args.after),
            max_per_file: args.max_per_file.unwrap_or(u64::MAX),
            keep: most,
            invert: args.invert,
            multiline: self.multiline,
            glob: &glob,
            exclude: &exclude,
            types: types.as_ref(),
            until: self.until,
        };
        let mut ending = Ending { finished: true, ..Ending::default() };
        let mut ignored = Vec::new();
        for path in self.roots()? {
            self.one(&path, &search, matcher, &mut ending, &mut ignored).map_err(|fault| {
                let missing = fault.code() == FaultCode::NotFound && fault.hint_text().is_none();
                if missing { fault.hint("paths are relative to the workspace; find shows what is there") } else { fault }
            })?;
        }
        let tally = kept.take_tally();
        if tally.matches == 0 && !ignored.is_empty() {
            ending.ignored_hits = self.in_ignored(&search, &ignored, matcher);
        }
        Ok((tally, ending))
    }

    /// The paths to search, none of them within another.
    fn roots(&self) -> Result<Vec<String>, Fault> {
        let given = &self.args.path.0;
        if given.is_empty() {
            return Ok(vec![".".into()]);
        }
        let mut roots: Vec<(String, String)> = Vec::new();
        for path in given {
            let shown = if source::spool_name(path).is_some() { path.clone() } else { walk::shown(&self.base.rel(path)?) };
            let within = |outer: &str, inner: &str| {
                (outer == "." && source::spool_name(inner).is_none())
                    || inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if roots.iter().any(|(outer, _)| within(outer, &shown) && !self.ignored_within(outer, &shown)) {
                continue;
            }
            roots.retain(|(inner, _)| !within(&shown, inner) || self.ignored_within(&shown, inner));
            roots.push((shown, path.clone()));
        }
        Ok(roots.into_iter().map(|(_, path)| path).collect())
    }

    /// Whether a named path within another named folder might be left out by the walk of that folder: it is then searched by
    /// itself. Hits are kept by path, so a file that is met twice is shown once.
    fn ignored_within(&self, outer: &str, inner: &str) -> bool {
        if outer == inner {
            return false;
        }
        let (Ok(outer), Ok(inner)) = (self.base.rel(outer), self.base.rel(inner)) else { return false };
        walk::is_left_out(self.base, &outer, &inner, self.args.hidden.unwrap_or(true), !self.args.no_ignore)
    }

    fn one<M: Matcher + Clone + Send + Sync>(
        &self,
        path: &str,
        search: &Search<'_>,
        matcher: &M,
        ending: &mut Ending,
        ignored: &mut Vec<(RelPath, Kind)>,
    ) -> Result<(), Fault> {
        let folder = source::spool_name(path).is_none() && self.base.rel(path).and_then(|rel| self.base.stat(&rel))?.is_dir();
        if !folder {
            // A file that is named is searched, whatever the globs say.
            let source = source::open(self.base, self.spool, path)?;
            let mut worker = Worker::new(search, matcher.clone());
            worker.search_file(source.file, &escape::unescape(&source.shown));
            ending.counts.add(worker.counts);
            ending.skipped.append(&mut worker.skipped);
            return Ok(());
        }
        let root = Root::open(self.base, &self.base.rel(path)?)?;
        let walked = walk::walk(&root, &self.options(!self.args.no_ignore, self.until), || Worker::new(search, matcher.clone()))?;
        for mut worker in walked.visitors {
            ending.counts.add(worker.counts);
            ending.skipped.append(&mut worker.skipped);
        }
        ending.skipped.sort_unstable();
        ending.counts.ignored += walked.ignored;
        ending.skipped.extend(walked.skipped);
        ending.finished &= walked.finished;
        ignored.extend(
            walked.ignored_entries.into_iter().map(|(below, kind)| (RelPath::from_relative(Path::new(os(&root.path_of(&below)))), kind)),
        );
        Ok(())
    }

    fn options(&self, ignore_rules: bool, until: Instant) -> Options {
        Options { hidden: self.args.hidden.unwrap_or(true), ignore_rules, enter_git: false, show_git: false, max_depth: None, until }
    }

    /// How many hits the ignored files hold, as far as a short time allows.
    fn in_ignored<M: Matcher + Clone + Send + Sync>(
        &self,
        search: &Search<'_>,
        ignored: &[(RelPath, Kind)],
        matcher: &M,
    ) -> Option<IgnoredHits> {
        let until = self.until.min(Instant::now() + IGNORED_TIME);
        let kept = Kept::new(0);
        let search = Search { kept: &kept, lines: false, first_only: false, units_are_files: true, until, ..*search };
        let mut worker = Worker::new(&search, matcher.clone());
        let mut finished = true;
        for (path, kind) in ignored {
            if Instant::now() >= until {
                finished = false;
                break;
            }
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_path().as_os_str());
            let name = bytes.rsplit(|&byte| byte == b'/').next().unwrap_or(bytes);
            match kind {
                Kind::File if search.accepts(bytes, bytes, name) => {
                    if let Ok(opened) = self.base.open_file(path) {
                        worker.search_file(opened.file, bytes);
                    }
                }
                Kind::Folder => {
                    let Ok(root) = Root::open(self.base, path) else { continue };
                    let walked = walk::walk(&root, &self.options(false, until), || Worker::new(&search, matcher.clone())).ok()?;
                    finished &= walked.finished;
                }
                _ => {}
            }
        }
        drop(worker);
        let tally = kept.take_tally();
        Some(IgnoredHits { matches: tally.matches, files: tally.files_total, at_least: !finished || tally.partial })
    }
}

/// The file types of a call. A type that is not known is taken for the ending of file names.
fn types(names: &[String], notes: &mut Vec<String>) -> Result<Option<Types>, Fault> {
    if names.is_empty() {
        return Ok(None);
    }
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    for name in names {
        let name = name.trim().trim_start_matches(['.', '*']);
        let known = builder.definitions();
        if !known.iter().any(|kind| kind.name() == name) {
            let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !plain || builder.add(name, &format!("*.{name}")).is_err() {
                return Err(Fault::new(FaultCode::InvalidArguments, format!("{name:?} is no file type"))
                    .hint("types are names such as rust, py, js, ts, go, java, c, cpp, md; glob takes patterns"));
            }
            notes.push(format!("{name} is no known file type and was read as *.{name}"));
        }
        builder.select(name);
    }
    let invalid = |error: ignore::Error| Fault::new(FaultCode::InvalidArguments, format!("type: {error}"));
    builder.build().map(Some).map_err(invalid)
}

#[cfg(test)]
mod tests;
