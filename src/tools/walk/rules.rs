//! Ignore rules: `.gitignore`, `.ignore` and the repository's own exclude file, one link of a chain per folder that has any.
//!
//! Rules come from within the workspace only: nothing above the base and nothing of the person's own configuration is read.

use crate::workspace::dir::OpenDir;
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::os;

/// No more of an ignore file is read than this many bytes.
const LARGEST: u64 = 1 << 20;

/// The rules of one folder and, by its parent, of those above it.
#[derive(Debug)]
pub(super) struct Rules {
    parent: Option<Arc<Rules>>,
    git: Gitignore,
    plain: Gitignore,
    /// A repository begins here: git rules from above end.
    repository: bool,
    /// The way from this folder down to where the walk began, with a slash behind it; empty within the walk.
    above: Vec<u8>,
    /// How many bytes of a path of the walk lead to this folder, its slash included.
    skip: usize,
}

impl Rules {
    /// The rules that hold in a folder: its own, if it has any, chained to `parent`. `has` says which names the folder holds.
    pub(super) fn of(dir: &OpenDir, has: Files, parent: Option<Arc<Self>>, above: Vec<u8>, skip: usize) -> Option<Arc<Self>> {
        if !(has.gitignore || has.ignore || has.repository) {
            return parent;
        }
        let mut git = GitignoreBuilder::new("");
        if has.repository {
            add(&mut git, dir, ".git/info/exclude");
        }
        if has.gitignore {
            add(&mut git, dir, ".gitignore");
        }
        let mut plain = GitignoreBuilder::new("");
        if has.ignore {
            add(&mut plain, dir, ".ignore");
        }
        let build = |builder: GitignoreBuilder| builder.build().unwrap_or_else(|_| Gitignore::empty());
        Some(Arc::new(Self { parent, git: build(git), plain: build(plain), repository: has.repository, above, skip }))
    }

    /// Whether a folder on the way down to where the walk began is ignored: the one behind which `rest` bytes of the way remain.
    pub(super) fn ignores_way(&self, rest: usize, scratch: &mut Vec<u8>) -> bool {
        // The chain is asked as for an entry whose path ends early.
        self.ask(b"", true, rest + 1, scratch)
    }

    /// Whether an entry is ignored. `below` is its path from where the walk began; `scratch` is only memory.
    pub(super) fn ignored(&self, below: &[u8], is_dir: bool, scratch: &mut Vec<u8>) -> bool {
        self.ask(below, is_dir, 0, scratch)
    }

    /// Whether all that is in a folder is ignored, as by `folder/*`: a name that nobody has would be. `below` is the folder's path from
    /// where the walk began, with a slash behind it unless it is empty.
    pub(super) fn ignores_all_in(&self, below: &[u8], scratch: &mut Vec<u8>) -> bool {
        let any = [below, b"\x7f any name \x7f"].concat();
        self.ignored(&any, false, scratch) && self.ignored(&any, true, scratch)
    }

    fn ask(&self, below: &[u8], is_dir: bool, cut: usize, scratch: &mut Vec<u8>) -> bool {
        let mut git = None;
        let mut git_ended = false;
        let mut next = Some(self);
        while let Some(rules) = next {
            let own = below.get(rules.skip..).unwrap_or(below);
            let path = if rules.above.is_empty() {
                own
            } else {
                scratch.clear();
                scratch.extend_from_slice(&rules.above);
                scratch.extend_from_slice(own);
                scratch.truncate(scratch.len().saturating_sub(cut));
                scratch.as_slice()
            };
            let path = Path::new(os(path));
            if let Some(ignored) = verdict(&rules.plain.matched(path, is_dir)) {
                return ignored;
            }
            if git.is_none() && !git_ended {
                git = verdict(&rules.git.matched(path, is_dir));
            }
            git_ended |= rules.repository;
            next = rules.parent.as_deref();
        }
        git.unwrap_or(false)
    }
}

/// Which files with a say in ignoring a folder holds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Files {
    pub(super) gitignore: bool,
    pub(super) ignore: bool,
    pub(super) repository: bool,
}

impl Files {
    pub(super) fn note(&mut self, name: &[u8]) {
        match name {
            b".gitignore" => self.gitignore = true,
            b".ignore" => self.ignore = true,
            b".git" => self.repository = true,
            _ => {}
        }
    }

    /// For a folder that is not listed: whether the files are there.
    pub(super) fn probe(dir: &OpenDir) -> Self {
        let there = |name: &str| dir.lstat(name.as_ref()).is_ok();
        Self { gitignore: there(".gitignore"), ignore: there(".ignore"), repository: there(".git") }
    }
}

fn verdict<T>(found: &Match<T>) -> Option<bool> {
    match found {
        Match::None => None,
        Match::Ignore(_) => Some(true),
        Match::Whitelist(_) => Some(false),
    }
}

/// Adds the rules of a file. A rule that does not parse is left out, as git does; a file that is no file has none.
fn add(builder: &mut GitignoreBuilder, dir: &OpenDir, name: &str) {
    let Ok(file) = dir.file(Path::new(name)) else { return };
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return;
    }
    let mut bytes = Vec::new();
    if file.take(LARGEST).read_to_end(&mut bytes).is_err() {
        return;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    for line in bytes.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Ok(line) = std::str::from_utf8(line) {
            let _ = builder.add_line(None, line);
        }
    }
}
