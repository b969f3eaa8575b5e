//! The watch over protected names. Not offered to models.
//!
//! It is kept what the names are before a command, in a jail; a program's keeper compares afterwards by stamps, which open no file;
//! and what has changed is undone in a `Change` jail. What a mount cannot prevent (a name that does not exist yet, a repository made in the session, all of it where no mounts are) is
//! found after the command, undone, and said. Never makes a placeholder, never runs git, never undoes what it has not kept.

pub mod config;

use super::{Access, Bench, InJail, Render, Spec, Tool};
use crate::envelope::{Fault, FaultCode};
use crate::policy::gitconfig;
use crate::workspace::dir::Kind;
use crate::workspace::watch::{self, Counts, Known, State};
use crate::workspace::{BaseDir, escape};
use config::Verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// The entry.
pub static GUARD: InJail<Guard> = InJail::NEW;

/// The most names that settings of repositories in the workspace add.
const MOST_NAMED: usize = 1024;

/// How long the workspace is searched for repositories.
const SWEEP: Duration = Duration::from_secs(3);

/// How a name is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// It stays as it is.
    Exact,
    /// A folder of git's hooks: samples, which git never runs, may come and go.
    Hooks,
    /// A repository's settings, judged by key.
    Config,
    /// What git follows to a repository elsewhere: one that a command makes leads to what is in the workspace, or goes.
    Pointer,
}

/// A watched name, and what it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// Relative to the base, escaped.
    pub name: String,
    /// How it is judged.
    pub rule: Rule,
    /// What it was, cheap to compare; `None`: it cannot be compared, or could not be put back, and counts as changed.
    pub stamp: Option<String>,
    /// What it was, whole.
    pub state: State,
}

/// A folder that cannot be listed, and what tells whether it has been opened since; `None`: nothing does.
pub type Closed = (String, Option<String>);

/// A name, how it is judged, and its stamp when it was kept.
pub type Stamped = (String, Rule, Option<String>);

/// What the session asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Keep what these names are now, and what the repositories found in the workspace hold.
    Keep {
        /// Relative to the base, escaped.
        names: Vec<String>,
    },
    /// Which have changed?
    Check {
        /// Name, rule, stamp.
        stamps: Vec<Stamped>,
        /// Search the workspace for repositories too.
        sweep: bool,
    },
    /// Keep anew what these names are.
    Renew {
        /// Name and rule.
        names: Vec<(String, Rule)>,
    },
    /// Undo the changes.
    Undo {
        /// What changed, as it was.
        kept: Vec<Kept>,
        /// Repositories that were not there before.
        fresh: Vec<String>,
    },
}

/// What it answers: as much as the request asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Reply {
    /// What is kept from now on.
    pub kept: Vec<Kept>,
    /// The names that changed.
    pub changed: Vec<String>,
    /// The repositories of the workspace, by their git folder, where it was searched.
    pub git_dirs: Option<Vec<String>>,
    /// Milliseconds of the search.
    pub sweep_ms: u64,
    /// The search ended before it had seen everything.
    pub cut: bool,
    /// Folders that could not be listed.
    pub closed: Vec<Closed>,
    /// Such folders that have been opened, searched and closed again.
    pub searched: Vec<Closed>,
    /// What git follows to a repository elsewhere, where the workspace was searched.
    pub pointers: Vec<String>,
    /// What was undone, one sentence each.
    pub undone: Vec<String>,
}

impl Render for Reply {
    fn render(&self) -> String {
        self.undone.join("\n")
    }
}

/// The tool.
pub struct Guard;

/// The arguments: one [`Request`].
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    request: Value,
}

impl Spec for Guard {
    type Args = Args;
    type Data = Reply;
    const NAME: &'static str = "_guard";
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "internal";
    const SUMMARY: &'static str = "Compares protected names.";
    const EXAMPLE: &'static str = r#"{"request": {"keep": {"names": [".mcp.json"]}}}"#;
}

impl Tool for Guard {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Reply, Fault> {
        let request = serde_json::from_value(args.request).map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let mut reply = Reply::default();
        match request {
            Request::Keep { names } => reply = keep_all(bench.base(), names),
            Request::Check { stamps, sweep } => reply = compare(bench.base(), &stamps, sweep),
            Request::Renew { names } => reply.kept = names.into_iter().map(|(name, rule)| keep(bench.base(), name, rule)).collect(),
            Request::Undo { kept, fresh } => {
                reply.git_dirs = Some(fresh.clone());
                for kept in kept {
                    reply.undone.extend(undo(bench.base(), &kept));
                    if kept.rule == Rule::Pointer {
                        // One that stays is to stay as it is.
                        reply.kept.push(keep(bench.base(), kept.name, Rule::Exact));
                        continue;
                    }
                    let mut now = keep(bench.base(), kept.name, kept.rule);
                    // What was kept whole is not given up for what could not be put back.
                    if kept.rule != Rule::Config && !same(kept.rule, &kept.state, &now.state) {
                        now.state = kept.state;
                        // It is compared as changed until it could be put back.
                        now.stamp = None;
                    }
                    reply.kept.push(now);
                }
                for git_dir in fresh {
                    for (name, rule) in of_git_dir(&git_dir) {
                        let kept = Kept { name, rule, stamp: None, state: State::Absent };
                        // A clone may share objects, and a worktree has to say where it belongs: neither runs anything.
                        if rule != Rule::Exact || kept.name.ends_with("info/attributes") {
                            reply.undone.extend(undo(bench.base(), &kept));
                        }
                        reply.kept.push(keep(bench.base(), kept.name, kept.rule));
                    }
                }
            }
        }
        Ok(reply)
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(escape::name(name))
}

fn counts(rule: Rule) -> Counts {
    match rule {
        Rule::Hooks => |name, kind| !(kind == Kind::File && name.as_bytes().ends_with(b".sample")),
        Rule::Exact | Rule::Config | Rule::Pointer => |_, _| true,
    }
}

/// How a name of the charter is judged: in a git folder by what it is there.
fn rule_of(name: &str) -> Rule {
    let path = path(name);
    let in_git = path.parent().is_none_or(|parent| parent.as_os_str().is_empty() || parent.ends_with(".git"));
    match path.file_name().and_then(OsStr::to_str) {
        Some("hooks") if in_git => Rule::Hooks,
        Some("config" | "config.worktree") if in_git => Rule::Config,
        _ => Rule::Exact,
    }
}

/// What is watched of a git folder, besides what says where it belongs.
fn of_git_dir(git_dir: &str) -> Vec<(String, Rule)> {
    let rows = [
        ("hooks", Rule::Hooks),
        ("config", Rule::Config),
        ("config.worktree", Rule::Config),
        ("info/attributes", Rule::Exact),
        ("commondir", Rule::Exact),
        ("gitdir", Rule::Exact),
    ];
    rows.into_iter().map(|(name, rule)| (escape::show(path(git_dir).join(name).as_os_str()), rule)).collect()
}

/// Keeps what these names are now, and what the repositories found in the workspace hold.
pub fn keep_all(base: &BaseDir, names: Vec<String>) -> Reply {
    let mut reply = Reply::default();
    let git_dirs = sweep(base, &mut reply, &Known::default());
    let mut watched: Vec<(String, Rule)> = names.into_iter().map(|name| (name.clone(), rule_of(&name))).collect();
    let pointers = std::mem::take(&mut reply.pointers).into_iter().map(|pointer| (pointer, Rule::Exact));
    for name in git_dirs.iter().flat_map(|git_dir| of_git_dir(git_dir)).chain(pointers) {
        if !watched.iter().any(|(known, _)| *known == name.0) {
            watched.push(name);
        }
    }
    reply.kept = watched.into_iter().map(|(name, rule)| keep(base, name, rule)).collect();
    let named = named_by_settings(base, &reply.kept);
    reply.kept.extend(named.into_iter().map(|name| keep(base, name, Rule::Exact)));
    reply
}

/// What the settings of the repositories in the workspace have git read or run, beyond what is watched already.
fn named_by_settings(base: &BaseDir, kept: &[Kept]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for Kept { name, rule, state, .. } in kept {
        let (Rule::Config, State::File { content, .. }) = (rule, state) else { continue };
        let text = String::from_utf8_lossy(&escape::unescape(content)).into_owned();
        let Some(git_dir) = path(name).parent().map(|folder| base.path().join(folder)) else { continue };
        for (named, _) in gitconfig::named_in_workspace(&text, &git_dir, base.path()) {
            let name = escape::show(named.as_os_str());
            let is_watched = |known: &Path| named.starts_with(known);
            if names.len() < MOST_NAMED
                && !names.iter().any(|known| is_watched(&path(known)))
                && !kept.iter().any(|kept| is_watched(&path(&kept.name)))
            {
                names.push(name);
            }
        }
    }
    names
}

/// Which of these names have changed, and where the repositories are if they are searched for.
pub fn compare(base: &BaseDir, stamps: &[Stamped], search: bool) -> Reply {
    compare_knowing(base, stamps, search, &Known::default())
}

fn compare_knowing(base: &BaseDir, stamps: &[Stamped], search: bool, known: &Known) -> Reply {
    let mut reply = Reply { changed: changed(base, stamps), ..Reply::default() };
    if search {
        sweep(base, &mut reply, known);
    }
    reply
}

/// Which of these names have changed.
pub fn changed(base: &BaseDir, stamps: &[Stamped]) -> Vec<String> {
    let names: Vec<_> = stamps.iter().map(|(name, rule, _)| (path(name), counts(*rule))).collect();
    let all = stamps.iter().zip(watch::stamps(base, &names));
    all.filter(|((_, _, before), now)| now.is_none() || now != before).map(|((name, ..), _)| name.clone()).collect()
}

/// Does once what a comparison does, for nothing: a process that was just forked finds each page of the program, and of its memory, for the
/// first time, which costs more than the comparison. Whoever waits anyway does that before it counts.
pub fn rehearse(base: &BaseDir, names: &[PathBuf]) {
    let names: Vec<String> = names.iter().filter(|name| name.is_relative()).map(|name| escape::show(name.as_os_str())).collect();
    let stamps: Vec<Stamped> = names.into_iter().map(|name| (name.clone(), rule_of(&name), None)).collect();
    std::hint::black_box(changed(base, &stamps));
}

fn sweep(base: &BaseDir, reply: &mut Reply, known: &Known) -> Vec<String> {
    let begun = Instant::now();
    let swept = watch::git_dirs_again(base, begun + SWEEP, known);
    let git_dirs: Vec<String> = swept.git_dirs.iter().map(|path| escape::show(path)).collect();
    reply.sweep_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    reply.cut = swept.cut;
    reply.pointers = swept.pointers.iter().map(|path| escape::show(path)).collect();
    reply.closed = swept.closed.iter().map(|path| closed(base, path)).collect();
    reply.git_dirs = Some(git_dirs.clone());
    git_dirs
}

fn closed(base: &BaseDir, folder: &OsStr) -> Closed {
    (escape::show(folder), watch::closed_stamp(base, Path::new(folder)))
}

/// The same, for whoever may change modes: folders that a command has closed are opened and searched, and what has changed can be reached
/// to be undone. `before`: what could not be listed before. What cannot be opened, which is somebody else's, stays in the reply.
pub fn compare_and_open(base: &BaseDir, stamps: &[Stamped], search: bool, before: &[Closed], known: &Known) -> Reply {
    let mut reply = compare_knowing(base, stamps, search, known);
    let until = Instant::now() + SWEEP;
    // What was closed before and has not been opened since holds what it held.
    let (same, fresh): (Vec<_>, Vec<_>) =
        std::mem::take(&mut reply.closed).into_iter().partition(|folder| folder.1.is_some() && before.contains(folder));
    reply.closed = same;
    let changed: Vec<PathBuf> = reply.changed.iter().map(|name| path(name)).collect();
    for folder in fresh.iter().map(|(folder, _)| path(folder)).chain(changed.iter().cloned()) {
        let is_watched = changed.iter().any(|name| name.starts_with(&folder) || folder.starts_with(name));
        let swept = watch::git_dirs_behind(base, &folder, is_watched, until);
        reply.cut |= swept.cut;
        reply.closed.extend(swept.closed.iter().map(|path| closed(base, path)));
        reply.searched.push(closed(base, folder.as_os_str()));
        if search {
            reply.git_dirs.get_or_insert_default().extend(swept.git_dirs.iter().map(|path| escape::show(path)));
        }
    }
    if let Some(git_dirs) = &mut reply.git_dirs {
        git_dirs.sort();
        git_dirs.dedup();
    }
    reply
}

fn keep(base: &BaseDir, name: String, rule: Rule) -> Kept {
    let at = path(&name);
    // The stamp first: what changes in between shows at the next comparison.
    let stamp = watch::stamp(base, &at, counts(rule));
    Kept { stamp, state: watch::state(base, &at, counts(rule)), name, rule }
}

/// Puts a name back as far as its rule asks for. Says what was done.
fn undo(base: &BaseDir, kept: &Kept) -> Option<String> {
    let Kept { name, rule, state: before, .. } = kept;
    let at = path(name);
    let now = watch::state(base, &at, counts(*rule));
    if same(*rule, before, &now) || *rule == Rule::Pointer && leads_inside(base, &at, &now) {
        return None;
    }
    if *rule == Rule::Config {
        match (&now, before) {
            // Settings that are gone run nothing.
            (State::Absent, _) => return None,
            (State::File { content, .. }, before) => {
                let old = if let State::File { content, .. } = before { Some(escape::unescape(content)) } else { None };
                let inside = |value: &str| stays_inside(&at, value);
                match config::judge(&escape::unescape(content), old.as_deref(), &inside) {
                    Verdict::Fine => return None,
                    Verdict::Without(text, keys) => {
                        let done = watch::rewrite(base, &at, &text);
                        let keys = keys.join(", ");
                        return Some(match done {
                            Ok(()) => format!("{name} is protected: {keys} may name a program that git runs, and was taken out again"),
                            Err(errno) => format!("{name} is protected, and {keys} could not be taken out again: {}", errno.desc()),
                        });
                    }
                    Verdict::Back => {}
                }
            }
            _ => {}
        }
    }
    let act = match (before, &now) {
        (State::Absent, _) => "it was made, and has been removed again",
        (_, State::Absent) => "it was removed, and has been put back",
        _ => "it was changed, and has been put back",
    };
    Some(match watch::restore(base, &at, before, counts(*rule)) {
        Ok(()) if same(*rule, before, &watch::state(base, &at, counts(*rule))) => format!("{name} is protected: {act}"),
        Ok(()) => format!("{name} is protected, and was removed or replaced with what held it; that has not been undone"),
        Err(why) => format!("{name} is protected, and a change to it could not be undone: {why}"),
    })
}

/// Whether a pointer leads to a folder of the workspace, through no link, or into the git folder that the workspace itself belongs to.
fn leads_inside(base: &BaseDir, at: &Path, now: &State) -> bool {
    let text = match now {
        State::File { content, .. } => escape::unescape(content),
        State::Link { target } => [&b"gitdir: "[..], &escape::unescape(target)].concat(),
        // A folder is a repository, which is judged as one.
        State::Absent | State::Folder { .. } => return true,
        _ => return false,
    };
    // Anything else git does not follow.
    let Some(target) = pointed(&text, &base.path().join(at.parent().unwrap_or(Path::new("")))) else { return true };
    match target.strip_prefix(base.path()) {
        Ok(within) => watch::is_folder(base, within),
        Err(_) => own_git_dir(base).is_some_and(|own| target.starts_with(own)),
    }
}

/// The absolute path to which the text of a `.git` file leads. `folder`: where it lies.
fn pointed(text: &[u8], folder: &Path) -> Option<PathBuf> {
    let target = text.strip_prefix(b"gitdir: ")?;
    let target = &target[..target.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |last| last + 1)];
    let mut path = PathBuf::new();
    for part in folder.join(OsStr::from_bytes(target)).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    Some(path)
}

/// The git folder outside of the workspace to which the workspace's own pointer leads, whole: with all of its worktrees and submodules.
fn own_git_dir(base: &BaseDir) -> Option<PathBuf> {
    let own = pointed(&watch::file(base, Path::new(".git"))?, base.path())?;
    let parts: Vec<Component<'_>> = own.components().collect();
    let at = parts.iter().position(|part| matches!(part.as_os_str().to_str(), Some("worktrees" | "modules"))).unwrap_or(parts.len());
    Some(parts[..at].iter().collect())
}

/// Whether two states are one for the rule.
fn same(rule: Rule, before: &State, now: &State) -> bool {
    let empty = |state: &State| match state {
        State::Folder { entries, .. } => entries.is_empty(),
        state => *state == State::Absent,
    };
    match (rule, before, now) {
        (Rule::Hooks, before, now) if empty(before) && empty(now) => true,
        (Rule::Hooks, State::Folder { entries: before, .. }, State::Folder { entries: now, .. }) => before == now,
        (_, before, now) => before == now && *now != State::Unkept,
    }
}

/// Whether a relative path from a file's folder stays within the workspace, by its text. For git's `core.worktree` of a submodule.
fn stays_inside(file: &Path, value: &str) -> bool {
    let Some(folder) = file.parent() else { return false };
    let mut depth = folder.components().count();
    for part in Path::new(value).components() {
        match part {
            Component::CurDir => {}
            Component::Normal(_) => depth += 1,
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    // A quote or a variable is not read here.
    !value.contains(['"', '$', '~', '#', ';'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_by_where_they_are() {
        for (name, rule) in [
            (".git/hooks", Rule::Hooks),
            (".git/config", Rule::Config),
            (".git/config.worktree", Rule::Config),
            ("sub/.git/config", Rule::Config),
            ("hooks", Rule::Hooks),
            ("app/config", Rule::Exact),
            (".mcp.json", Rule::Exact),
            (".git/info/attributes", Rule::Exact),
        ] {
            assert_eq!(rule_of(name), rule, "{name}");
        }
    }

    #[test]
    fn a_submodule_has_its_tree_in_the_workspace() {
        let config = Path::new(".git/modules/sub/config");
        for (value, inside) in
            [("../../../sub", true), ("../../../../sub", false), ("/", false), ("../../../a/../../b", false), ("~/x", false)]
        {
            assert_eq!(stays_inside(config, value), inside, "{value}");
        }
    }
}
