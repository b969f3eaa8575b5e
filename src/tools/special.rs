//! Finds what is neither file nor folder in the workspace, before a program of ours that would open it looks at the tree: git waits for ever
//! on a FIFO that bears the name of one of its files. And files that are too large for it to take in. Runs in a `Look` jail; not offered to
//! models.
//!
//! Never opens what it finds, and never follows a link out of the workspace.

use super::walk::{self, Entry, Options, Root, Visit, Want};
use super::{Access, Bench, InJail, Render, Spec, Tool};
use crate::envelope::Fault;
use crate::workspace::dir::Kind;
use crate::workspace::{BaseDir, RelPath, escape};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

/// The entry.
pub static SPECIAL_FILES: InJail<SpecialFiles> = InJail::NEW;

/// Paths that are told; of more it is only said that there are more.
const MOST: usize = 10_000;

/// Large files that are told.
const MOST_LARGE: usize = 200;

/// A file of more bytes is large.
pub const LARGE: u64 = 128 << 20;

/// What is opened by nobody who does not want to wait: FIFOs and devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Special {
    /// From the base, escaped; a link that leads to one counts as one where it lies in a repository's own folder.
    pub paths: Vec<String>,
    /// There are more.
    pub more: bool,
    /// Files of more than [`LARGE`] bytes, from the base, escaped; none of a repository's own.
    pub large: Vec<String>,
}

impl Render for Special {
    fn render(&self) -> String {
        String::new()
    }
}

/// The tool.
pub struct SpecialFiles;

/// It takes no arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {}

impl Spec for SpecialFiles {
    type Args = Args;
    type Data = Special;
    const NAME: &'static str = "_special_files";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "internal";
    const SUMMARY: &'static str = "Finds FIFOs and devices.";
    const EXAMPLE: &'static str = "{}";
}

impl Tool for SpecialFiles {
    fn run(bench: &Bench<'_>, _args: Args) -> Result<Special, Fault> {
        find(bench.base(), bench.deadline())
    }
}

/// Looks at the whole workspace, repositories' own folders included.
///
/// # Errors
/// As the opening of the base.
pub fn find(base: &BaseDir, until: Instant) -> Result<Special, Fault> {
    let root = Root::open(base, &RelPath::base())?;
    let options = Options { hidden: true, ignore_rules: false, enter_git: true, show_git: true, max_depth: None, until };
    let walked = walk::walk(&root, &options, Found::default)?;
    let (mut paths, mut links, mut large) = (Vec::new(), Vec::new(), Vec::new());
    for found in walked.visitors {
        paths.extend(found.paths);
        links.extend(found.links);
        large.extend(found.large);
    }
    paths.extend(links.into_iter().filter(|path| leads_to_one(base, path)));
    paths.sort();
    let more = paths.len() > MOST;
    paths.truncate(MOST);
    large.sort();
    large.truncate(MOST_LARGE);
    let shown = |paths: &[Vec<u8>]| paths.iter().map(|path| escape::show(OsStr::from_bytes(path))).collect();
    Ok(Special { paths: shown(&paths), more, large: shown(&large) })
}

fn leads_to_one(base: &BaseDir, path: &[u8]) -> bool {
    let path = RelPath::from_relative(Path::new(OsStr::from_bytes(path)));
    base.stat(&path).is_ok_and(|meta| is_special(Kind::of_mode(meta.mode())))
}

fn is_special(kind: Kind) -> bool {
    matches!(kind, Kind::Fifo | Kind::Device)
}

#[derive(Default)]
struct Found {
    paths: Vec<Vec<u8>>,
    links: Vec<Vec<u8>>,
    large: Vec<Vec<u8>>,
}

impl Visit for Found {
    fn entry(&mut self, entry: &Entry<'_>) -> Want {
        if is_special(entry.kind) {
            if self.paths.len() <= MOST {
                self.paths.push(entry.path.to_vec());
            }
            return Want::Nothing;
        }
        let in_git = || entry.path.split(|b| *b == b'/').any(|part| part == b".git");
        if entry.kind == Kind::Link && self.links.len() <= MOST && in_git() {
            self.links.push(entry.path.to_vec());
        }
        if entry.kind == Kind::File
            && self.large.len() < MOST_LARGE
            && !in_git()
            && entry.dir.lstat(OsStr::from_bytes(entry.name)).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size > LARGE))
        {
            self.large.push(entry.path.to_vec());
        }
        Want::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    #[test]
    fn fifos_are_found_at_any_depth_and_files_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("a/.git/info")).unwrap();
        std::fs::write(at("a/.gitignore"), "x").unwrap();
        for path in [".gitignore", "a/.git/info/exclude", "a/pipe\n"] {
            mkfifo(&at(path), Mode::S_IRWXU).unwrap();
        }
        symlink("../../.gitignore", at("a/.git/index")).unwrap();
        symlink("../info", at("a/.git/objects")).unwrap();
        symlink("/dev/null", at("a/.git/HEAD")).unwrap();
        symlink(".gitignore", at("link")).unwrap();
        let base = BaseDir::open(folder.path()).unwrap();
        let found = find(&base, Instant::now() + Duration::from_secs(10)).unwrap();
        assert_eq!(found.paths, [".gitignore", "a/.git/index", "a/.git/info/exclude", "a/pipe\\x0a"]);
        assert!(!found.more && found.large.is_empty());
        for (path, size) in [("a/huge", LARGE + 1), ("a/.git/pack", LARGE + 1), ("a/less", LARGE)] {
            std::fs::File::create(at(path)).unwrap().set_len(size).unwrap();
        }
        assert_eq!(find(&base, Instant::now() + Duration::from_secs(10)).unwrap().large, ["a/huge"]);
    }
}
