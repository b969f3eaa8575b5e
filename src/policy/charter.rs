//! The charter: a policy and an image, resolved for this machine and this workspace, as plain data.
//!
//! The charter is what the warden is given. It holds absolute paths and numbers, no variables, no patterns and no names that
//! would have to be looked up again.

use super::{Access, Protection};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What is permitted in this session, per access class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charter {
    /// The name of the policy, or the path of its file.
    pub policy: String,
    /// The base directory, resolved.
    pub base: PathBuf,
    /// Who the jails are.
    pub identity: Identity,
    /// What `Look` jails may open; the base itself is always among it, read-only.
    pub look: Grants,
    /// What `Change` jails may open; `None`: the policy permits no changes.
    pub change: Option<Grants>,
    /// What commands may open; `None`: the policy permits no commands.
    pub execute: Option<Grants>,
    /// What our own programs may open (git, for the patch): the workspace read-only, the userland, the session's folder.
    pub own: Grants,
    /// The environment of commands, whole: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The network of commands.
    pub net: Net,
    /// Unix sockets of commands.
    pub unix: Unix,
    /// Paths that nothing may change, whether they exist or not: relative to the base, or absolute where the repository of a linked
    /// worktree lies outside of it.
    pub protect: Vec<PathBuf>,
    /// Limits of one command.
    pub limits: Limits,
    /// Make the namespaces that start here; `false`: Landlock and seccomp alone, as on a machine where none starts.
    pub namespaces: bool,
    /// Protections without which the session does not start.
    pub require: Vec<Protection>,
    /// Required protections that the person has given up by name.
    pub allow_degraded: Vec<Protection>,
    /// The session's own folder outside the workspace: `home`, `tmp`, `cache` (writable by commands) and `spool`.
    pub session_dir: PathBuf,
    /// A folder of the person's outside the workspace, for `Change` jails alone: a file with several names is written in place, and what
    /// a kill cuts off is undone from there by the next session. `None`: such files are not written.
    pub journal: Option<PathBuf>,
    /// Names, categories or globs of tools that are on; empty: all that the access classes permit.
    pub tools_allow: Vec<String>,
    /// Names, categories or globs of tools that are off.
    pub tools_deny: Vec<String>,
}

impl Charter {
    /// The grants of an access class, if the policy permits the class.
    pub fn grants(&self, access: Access) -> Option<&Grants> {
        match access {
            Access::Look => Some(&self.look),
            Access::Change => self.change.as_ref(),
            Access::Execute => self.execute.as_ref(),
            Access::Own => Some(&self.own),
        }
    }

    /// The grants of all classes.
    pub fn all_grants(&self) -> impl Iterator<Item = &Grant> {
        let all = [Some(&self.look), self.change.as_ref(), self.execute.as_ref(), Some(&self.own)];
        all.into_iter().flatten().flat_map(|grants| &grants.0)
    }

    /// What mounts keep writable: what is granted for writing to anybody, but not what lies beneath another such folder, for nothing can be
    /// renamed from one mount to the next.
    pub fn writable(&self) -> BTreeSet<PathBuf> {
        let all: BTreeSet<&PathBuf> = self.all_grants().filter(|grant| grant.rights.write).map(|grant| &grant.path).collect();
        // Sorted, so what is above comes first.
        let mut tops = BTreeSet::new();
        for path in all {
            if !path.ancestors().any(|above| tops.contains(above)) {
                tops.insert(path.clone());
            }
        }
        tops
    }

    /// What is granted below folders of the session's own, and has to be mounted there: what lies in a writable folder comes with it.
    pub fn granted_in(&self, own: Own) -> Vec<OwnTree> {
        let written = self.writable();
        let paths: BTreeSet<&PathBuf> = self.all_grants().map(|grant| &grant.path).filter(|path| own.holds(path)).collect();
        let above = |path: &Path| path.ancestors().skip(1).any(|above| written.contains(above));
        let tree = |path: &PathBuf| {
            let writable = written.contains(path);
            let runs = |grant: &Grant| grant.rights.exec && (path.starts_with(&grant.path) || writable && grant.path.starts_with(path));
            OwnTree { path: path.clone(), writable, exec: self.all_grants().any(runs) }
        };
        paths.into_iter().filter(|path| !above(path)).map(tree).collect()
    }

    /// The protected names that mounts can cover, each with the folders above it within the base, which must keep their names too. A link, and
    /// what lies behind one, is not covered: where it leads is protected by the name that it has there.
    pub fn covered(&self) -> Vec<(PathBuf, Vec<PathBuf>)> {
        let mut all = Vec::new();
        for name in &self.protect {
            let path = self.base.join(name);
            let pins: Vec<PathBuf> = path
                .ancestors()
                .skip(1)
                .take_while(|above| *above != self.base && above.starts_with(&self.base))
                .map(Path::to_path_buf)
                .collect();
            let is_link = |path: &Path| path.symlink_metadata().map_or(true, |meta| meta.file_type().is_symlink());
            if !is_link(&path) && !pins.iter().any(|pin| is_link(pin)) {
                all.push((path, pins));
            }
        }
        all
    }

    /// Why a shared folder cannot be the session's own; `None`: it can. A Landlock rule for it holds for all that is mounted below it, so
    /// nothing may be there that commands must not write: neither the session's folder, nor a workspace that is not theirs to change.
    pub fn shared(&self, folder: &str) -> Option<&'static str> {
        let theirs =
            |path: &Path| self.execute.iter().flat_map(|grants| &grants.0).any(|grant| grant.rights.write && path.starts_with(&grant.path));
        let written = |path: &PathBuf| path.starts_with(folder) && !theirs(path) && !path.starts_with(&self.session_dir);
        if !Path::new(folder).is_dir() {
            Some("there is none here")
        } else if self.session_dir.starts_with(folder) {
            Some("the session's folder is below it: set TMPDIR to a folder elsewhere")
        } else if self.writable().iter().any(written) {
            Some("commands may not write everything that is granted below it")
        } else {
            None
        }
    }
}

/// Folders that everybody shares, of which the session may have its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Own {
    /// `/tmp`, which is the session's `tmp`.
    pub tmp: bool,
    /// `/dev/shm`.
    pub shm: bool,
}

impl Own {
    /// Whether a path lies in one of them.
    pub fn holds(self, path: &Path) -> bool {
        self.tmp && path.starts_with("/tmp") || self.shm && path.starts_with("/dev/shm")
    }
}

/// A list of grants, each with its reason; everything that is not granted is refused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grants(pub Vec<Grant>);

/// One path and what may be done beneath it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// An absolute path: a folder with all that is beneath it, or a single file.
    pub path: PathBuf,
    /// What may be done.
    pub rights: Rights,
    /// Why, for a person.
    pub reason: String,
    /// Where it is written: `policy build`, `image host`, `workspace`, `session`.
    pub origin: String,
}

/// What may be done beneath a granted path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rights {
    /// Read files and list folders.
    #[serde(default)]
    pub read: bool,
    /// Execute files.
    #[serde(default)]
    pub exec: bool,
    /// Write, truncate, create, remove, rename and link; never devices.
    #[serde(default)]
    pub write: bool,
    /// Write and truncate existing files only (for device nodes such as `/dev/null`), and their ioctls.
    #[serde(default)]
    pub device: bool,
}

impl Rights {
    /// Read only.
    pub const READ: Self = Self { read: true, exec: false, write: false, device: false };
    /// Read and execute.
    pub const RUN: Self = Self { read: true, exec: true, write: false, device: false };
    /// Read and write.
    pub const CHANGE: Self = Self { read: true, exec: false, write: true, device: false };
    /// Read, write and execute.
    pub const ALL: Self = Self { read: true, exec: true, write: true, device: false };
    /// A device node.
    pub const DEVICE: Self = Self { read: true, exec: false, write: false, device: true };

    /// What either permits.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            read: self.read | other.read,
            exec: self.exec | other.exec,
            write: self.write | other.write,
            device: self.device | other.device,
        }
    }
}

/// A tree that is mounted in a folder of the session's own. The rule for `/tmp` gives commands every right on it, and the mount takes some of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTree {
    /// Where it is.
    pub path: PathBuf,
    /// It can be written to.
    pub writable: bool,
    /// What is in it can be executed: a grant for that covers it or, of a writable tree, lies in it.
    pub exec: bool,
}

/// Who the jails are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The network of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// No sockets but unix ones.
    None,
    /// A loopback of the session's own; without namespaces the same as `None`, and said so.
    Loopback,
    /// The host's network. Loud.
    Full,
}

/// Unix sockets of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unix {
    /// Only connected pairs (`socketpair`), unless the kernel can confine pathname sockets.
    Pair,
    /// Any: `unix.path` is then missing, and said so.
    Any,
}

/// Limits of one command. Zero: no limit of that kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Wall time in milliseconds, the most that a call may ask for.
    pub wall_ms: u64,
    /// Processor seconds of one process.
    pub cpu_s: u64,
    /// Bytes of memory of the whole tree.
    pub memory: u64,
    /// Processes of the whole tree.
    pub processes: u64,
    /// Bytes of one file.
    pub file_size: u64,
    /// Open descriptors of one process.
    pub open_files: u64,
    /// Bytes of output that are kept in the spool.
    pub output: u64,
    /// Bytes that the session may add to the disk.
    pub disk: u64,
}
