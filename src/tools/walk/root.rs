//! Where a walk begins, and what the ignore rules above it say.

use super::os;
use super::rules::{Files, Rules};
use crate::envelope::Fault;
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::{BaseDir, RelPath, escape};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

/// Where a walk begins: a folder, opened once.
pub(crate) struct Root {
    pub(super) dir: OpenDir,
    /// The path as it was named, with a slash behind it; nothing for the base.
    pub(super) prefix: Vec<u8>,
    pub(super) rules: Option<Arc<Rules>>,
    /// The folder is `.git` or within it.
    pub(super) in_git: bool,
}

impl Root {
    /// Opens the folder at which a walk begins, and reads the ignore rules above it. A folder that those rules ignore, itself or with
    /// all that is in it, was named all the same: they then no longer hold.
    ///
    /// # Errors
    /// As [`BaseDir::open_dir`].
    pub(crate) fn open(base: &BaseDir, path: &RelPath) -> Result<Self, Fault> {
        let dir = OpenDir::open(base, path)?;
        let real = base.canonical(dir.as_fd(), path);
        let names: Vec<&OsStr> =
            real.as_path().components().filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None }).collect();
        let in_git = names.iter().any(|name| *name == ".git");
        let rules = if names.is_empty() { None } else { rules_above(base, &names) };
        Ok(Self { dir, prefix: prefix(path), rules, in_git })
    }

    /// The path of something below, as it would be named in a call.
    pub(crate) fn path_of(&self, below: &[u8]) -> Vec<u8> {
        [self.prefix.as_slice(), below].concat()
    }
}

/// The path of the root as it was named, with a slash behind it; nothing for the base. Only `.` and doubled slashes are left out.
fn prefix(path: &RelPath) -> Vec<u8> {
    let mut prefix = Vec::new();
    for part in path.as_path().components() {
        if part != Component::CurDir {
            prefix.extend_from_slice(part.as_os_str().as_bytes());
            prefix.push(b'/');
        }
    }
    prefix
}

/// Whether a walk from `outer` would leave out `inner`, which is beneath it by name.
pub(crate) fn is_left_out(base: &BaseDir, outer: &RelPath, inner: &RelPath, hidden: bool, ignore_rules: bool) -> bool {
    let names = |path: &RelPath| -> Vec<Vec<u8>> {
        let parts = path.as_path().components();
        parts.filter_map(|part| if let Component::Normal(name) = part { Some(name.as_bytes().to_vec()) } else { None }).collect()
    };
    let (outer_names, inner_names) = (names(outer), names(inner));
    let Some(below) = inner_names.strip_prefix(outer_names.as_slice()) else { return true };
    if below.iter().any(|name| (!hidden && name.starts_with(b".")) || name == b".git") {
        return true;
    }
    let Ok(root) = Root::open(base, outer) else { return true };
    let mut rules = root.rules.clone();
    let mut scratch = Vec::new();
    let mut path = Vec::new();
    for (depth, name) in below.iter().enumerate() {
        let here = if depth == 0 { root.dir.enter(Path::new(".")) } else { root.dir.enter(Path::new(os(&path))) };
        // A link on the way: the walk does not follow it.
        let Ok(here) = here else { return true };
        let skip = if path.is_empty() { 0 } else { path.len() + 1 };
        rules = if ignore_rules { Rules::of(&here, Files::probe(&here), rules, Vec::new(), skip) } else { None };
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let stat = here.lstat(os(name));
        let is_folder = stat.as_ref().is_ok_and(|stat| Kind::of_mode(stat.st_mode) == Kind::Folder);
        let is_link = stat.is_ok_and(|stat| Kind::of_mode(stat.st_mode) == Kind::Link);
        if is_link || rules.as_ref().is_some_and(|rules| rules.ignored(&path, is_folder, &mut scratch)) {
            return true;
        }
    }
    path.push(b'/');
    rules.is_some_and(|rules| rules.ignores_all_in(&path, &mut scratch))
}

fn rules_above(base: &BaseDir, names: &[&OsStr]) -> Option<Arc<Rules>> {
    let top = OpenDir::open(base, &RelPath::base()).ok()?;
    let mut rules = None;
    let mut scratch = Vec::new();
    for depth in 0..names.len() {
        let here = if depth == 0 { Some(&top) } else { None };
        let opened;
        let here = match here {
            Some(dir) => dir,
            None => {
                opened = top.enter(&names[..depth].iter().collect::<std::path::PathBuf>()).ok()?;
                &opened
            }
        };
        let mut above = names[depth..].join(OsStr::new("/")).as_bytes().to_vec();
        above.push(b'/');
        rules = Rules::of(here, Files::probe(here), rules, above, 0);
        // Is the next folder on the way ignored? Its path, for the rules above, ends where the way below it begins.
        if let Some(known) = &rules {
            let rest: usize = names[depth + 1..].iter().map(|name| name.len() + 1).sum();
            if known.ignores_way(rest, &mut scratch) {
                rules = None;
            }
        }
    }
    rules.filter(|rules| !rules.ignores_all_in(b"", &mut scratch))
}

/// A path as it is shown: as it was named, but for `.` and doubled slashes; escaped.
pub(crate) fn shown(path: &RelPath) -> String {
    let prefix = prefix(path);
    match prefix.strip_suffix(b"/") {
        Some(path) => escape::escape(path),
        None => ".".into(),
    }
}
