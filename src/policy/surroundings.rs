//! What a policy is resolved against: the machine and the person, as the command line found them. Nothing here reads a variable.

use super::links::Links;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The machine and the person.
#[derive(Clone, Debug, PartialEq)]
pub struct Surroundings {
    /// The environment of the host.
    pub env: Vec<(OsString, OsString)>,
    /// The effective user id of the host.
    pub uid: u32,
    /// The effective group id of the host.
    pub gid: u32,
    /// The home folder of the person; `None`: nobody's.
    pub home: Option<PathBuf>,
    /// Folders in which the session's folder may be made, best first. The first that can be used is.
    pub session_parents: Vec<PathBuf>,
    /// Where system folders are looked up: `/`, or a tree made by a test.
    pub root: PathBuf,
    /// The content of the workspace's `.git` where that is a file (a linked worktree, a submodule), read by the caller beneath its
    /// base directory; `None`: it is a folder, or nothing.
    pub dot_git: Option<Vec<u8>>,
    /// The content of the settings of the workspace's repository (`.git/config`, `config` of a bare one), read likewise; `None`: there are none.
    pub git_config: Option<Vec<u8>>,
    /// What is known of links while this is in use. Make a new one for another time: folders become links.
    pub links: Links,
}

impl Surroundings {
    /// From an environment: home and session parents follow from `HOME`, `TMPDIR` and `XDG_RUNTIME_DIR`.
    pub fn new(env: Vec<(OsString, OsString)>, uid: u32, gid: u32) -> Self {
        let mut here = Self {
            env,
            uid,
            gid,
            home: None,
            session_parents: Vec::new(),
            root: PathBuf::from("/"),
            dot_git: None,
            git_config: None,
            links: Links::default(),
        };
        here.home = here.folder("HOME");
        // Not below /tmp where there is a choice: commands get a /tmp of their own, and what lies below the host's cannot be left out
        // of what they may do there. Not first in the runtime folder, which is memory: caches and spools grow.
        let chosen = here.folder("TMPDIR");
        here.session_parents.extend(chosen.clone().filter(|folder| !folder.starts_with("/tmp")));
        here.session_parents.push(PathBuf::from("/var/tmp"));
        here.session_parents.extend(here.folder("XDG_RUNTIME_DIR"));
        here.session_parents.extend(chosen);
        here.session_parents.push(PathBuf::from("/tmp"));
        here
    }

    /// A variable, if it is set to something. The last one counts, as in the shell.
    pub fn var(&self, name: &str) -> Option<&OsStr> {
        self.env.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str()).filter(|value| !value.is_empty())
    }

    /// A variable that holds an absolute path.
    pub fn folder(&self, name: &str) -> Option<PathBuf> {
        self.var(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A path of the system, beneath [`Surroundings::root`].
    pub fn system(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A folder of the home folder.
    pub fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }
}
