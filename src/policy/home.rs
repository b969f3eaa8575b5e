//! The session's own folder: a private home, temporary files and caches for commands, seeded from the person's caches by links.
//!
//! Never copies a credential, never writes to the person's caches, and makes nothing in the workspace.

use super::charter::Charter;
use super::resolve::Resolved;
use super::surroundings::Surroundings;
use super::{cargo, gitconfig};
use crate::envelope::{Fault, FaultCode};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folders of a session. Commands write to the first three; `spool` and `own` are ours.
const FOLDERS: &[&str] = &["home", "home/.config", "home/.local", "home/.local/share", "home/.local/state", "tmp", "cache", "spool", "own"];

/// Links from a session's folder to a cache of the person's: session folder, manager, part of it.
const LINKS: &[(&str, &str, &str)] = &[
    ("cache/cargo/registry/cache", "cargo", "registry/cache"),
    ("cache/cargo/registry/index", "cargo", "registry/index"),
    ("cache/cargo/git/db", "cargo", "git/db"),
    ("cache/npm/_cacache/content-v2", "npm", "_cacache/content-v2"),
    ("cache/gradle/wrapper/dists", "gradle", "wrapper/dists"),
];

/// Makes the session's folder and seeds it. The folder must not exist; only its owner may enter it.
///
/// # Errors
/// `io_error` with the path; what was made until then is removed again.
pub fn furnish(resolved: &Resolved, here: &Surroundings) -> Result<(), Fault> {
    let charter = &resolved.charter;
    let session = &charter.session_dir;
    // The name is new and the mode is set as it is made: whoever could have made it first gets an error, not our files.
    folder(session).map_err(|error| fault(session, &error))?;
    fill(resolved, here, session).and_then(|()| hand_over(charter, here)).map_err(|(path, error)| {
        let _ = fs::remove_dir_all(session);
        fault(&path, &error)
    })
}

type Step = Result<(), (PathBuf, io::Error)>;

fn fill(resolved: &Resolved, here: &Surroundings, session: &Path) -> Step {
    for name in FOLDERS {
        make(&session.join(name))?;
    }
    for (link, manager, part) in LINKS {
        let Some(found) = resolved.present.toolchains.iter().find(|found| found.name == *manager) else { continue };
        // Only what is granted: else the link would lead to a refusal where nothing would lead to an empty cache.
        let Ok(target) = found.root.join(part).canonicalize() else { continue };
        if !resolved.present.grants.iter().any(|grant| target.starts_with(&grant.path)) {
            continue;
        }
        let link = session.join(link);
        if let Some(parent) = link.parent() {
            make(parent)?;
        }
        symlink(&target, &link).map_err(|error| (link.clone(), error))?;
    }
    npm_index(resolved, session)?;
    let git = gitconfig::private(here, &resolved.charter.base);
    write(&session.join("home/.gitconfig"), git.as_bytes())?;
    let host = resolved.present.toolchains.iter().find(|found| found.name == "cargo");
    if let Some(config) = host.and_then(|found| cargo::private_config(&found.root)) {
        make(&session.join("cache/cargo"))?;
        write(&session.join("cache/cargo/config.toml"), config.as_bytes())?;
    }
    Ok(())
}

/// Most entries of npm's index that are copied: some 100 ms for seven hundred, which only such a project pays.
const MOST_ENTRIES: usize = 20_000;

/// Copies the index of npm's cache, for a project of Node: npm rewrites an entry when it reads it, and takes one that it cannot rewrite for
/// missing. What the entries lead to is linked.
fn npm_index(resolved: &Resolved, session: &Path) -> Step {
    let node = ["package.json", "package-lock.json", "node_modules"]
        .iter()
        .any(|name| resolved.charter.base.join(name).symlink_metadata().is_ok());
    let Some(found) =
        resolved.present.toolchains.iter().find(|found| found.name == "npm").filter(|_| node && resolved.charter.execute.is_some())
    else {
        return Ok(());
    };
    let from = found.root.join("_cacache/index-v5");
    let mut left = MOST_ENTRIES;
    match from.is_dir() {
        true => copy(&from, &session.join("cache/npm/_cacache/index-v5"), 0, &mut left),
        false => Ok(()),
    }
}

/// Copies folders and plain files, no links, three levels deep as npm makes them. What cannot be read is left out: it is a cache.
fn copy(from: &Path, to: &Path, depth: usize, left: &mut usize) -> Step {
    make(to)?;
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten() {
        if *left == 0 {
            return Ok(());
        }
        *left -= 1;
        let to = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth < 2 => copy(&entry.path(), &to, depth + 1, left)?,
            Ok(kind) if kind.is_file() => {
                if let Ok(bytes) = fs::read(entry.path()) {
                    write(&to, &bytes)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Gives the folder to who the jails are, from the inside out, so that the last step opens it.
fn hand_over(charter: &Charter, here: &Surroundings) -> Step {
    let identity = charter.identity;
    if here.uid != 0 || identity.uid == here.uid {
        return Ok(());
    }
    fn walk(path: &Path, uid: u32, gid: u32) -> Step {
        let failed = |error| (path.to_path_buf(), error);
        let meta = fs::symlink_metadata(path).map_err(failed)?;
        if meta.is_dir() {
            for entry in fs::read_dir(path).map_err(failed)? {
                walk(&entry.map_err(failed)?.path(), uid, gid)?;
            }
        }
        std::os::unix::fs::lchown(path, Some(uid), Some(gid)).map_err(failed)
    }
    walk(&charter.session_dir, identity.uid, identity.gid)
}

/// The name of the file whose lock says that a session is alive.
const LOCK: &str = "lock";

/// The name of the file that says which run a session is of. A dead session with one is left for [`dead`], for a while.
pub const RECORD: &str = "run.json";

/// How long the session of a killed run is kept for its patch.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Holds a session's folder: while the returned lock is held (a kill lets go of it), [`sweep`] leaves the folder alone.
///
/// # Errors
/// `io_error`.
pub fn hold(charter: &Charter) -> Result<Flock<File>, Fault> {
    // It gets its name when it is locked: whoever finds it by its name and can lock it knows that its session is dead.
    let (fresh, path) = (charter.session_dir.join("lock.new"), charter.session_dir.join(LOCK));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(|error| fault(&fresh, &error))?;
    let held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| fault(&fresh, &errno.into()))?;
    fs::rename(&fresh, &path).map_err(|error| fault(&path, &error))?;
    Ok(held)
}

/// Removes what killed sessions of the same user left beside a session's folder, but those of runs whose patch is not made yet.
/// What cannot be removed is left.
pub fn sweep(charter: &Charter, uid: u32) {
    dead(charter, uid).into_iter().filter(|dead| !dead.may_be_salvaged()).for_each(Dead::remove);
}

fn dead(charter: &Charter, uid: u32) -> Vec<Dead> {
    let mut found = Vec::new();
    let Some(entries) = charter.session_dir.parent().and_then(|parent| fs::read_dir(parent).ok()) else { return found };
    for entry in entries.flatten() {
        let named = entry.file_name().to_str().is_some_and(|name| {
            name.strip_prefix("bailiwick-").is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        });
        let ours = || entry.metadata().is_ok_and(|meta| meta.is_dir() && (meta.uid() == uid || uid == 0));
        if !named || !ours() {
            continue;
        }
        // No lock file yet: it is being furnished, or the furnishing was killed; the next boot clears that.
        let lock = fs::OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(entry.path().join(LOCK));
        if let Ok(Ok(dead)) = lock.map(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock)) {
            found.push(Dead { folder: entry.path(), _lock: dead });
        }
    }
    found
}

/// The folder of a session whose process was killed. Nobody else takes it while this lives.
#[derive(Debug)]
pub struct Dead {
    /// The folder.
    pub folder: PathBuf,
    _lock: Flock<File>,
}

impl Dead {
    /// Removes the folder. What cannot be removed is left.
    pub fn remove(self) {
        let _ = remove(&self.folder);
    }

    fn may_be_salvaged(&self) -> bool {
        let meta = fs::symlink_metadata(self.folder.join(RECORD));
        meta.is_ok_and(|meta| meta.modified().is_ok_and(|then| then.elapsed().is_ok_and(|age| age < KEPT)))
    }
}

/// The killed sessions that were runs, of the same user, beside a session's folder.
pub fn dead_runs(charter: &Charter, uid: u32) -> Vec<Dead> {
    dead(charter, uid).into_iter().filter(|dead| dead.folder.join(RECORD).symlink_metadata().is_ok()).collect()
}

/// Removes a tree of ours that commands may have written in, folders that they made read-only included.
///
/// # Errors
/// `io_error` when something could not be removed.
pub fn remove_tree(folder: &Path) -> Result<(), Fault> {
    remove(folder)
}

/// Removes a session's folder with all that commands left in it, folders that they made read-only included.
///
/// # Errors
/// `io_error` when something could not be removed.
pub fn clear(charter: &Charter) -> Result<(), Fault> {
    remove(&charter.session_dir)
}

fn remove(session: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(session) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => reopen(session, 0),
    }
    fs::remove_dir_all(session).map_err(|error| fault(session, &error))
}

/// Makes folders writable for their owner again. Follows no link.
fn reopen(folder: &Path, depth: usize) {
    const DEEPEST: usize = 200;
    let Ok(meta) = fs::symlink_metadata(folder) else { return };
    if !meta.is_dir() || depth > DEEPEST {
        return;
    }
    let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        reopen(&entry.path(), depth + 1);
    }
}

fn folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Makes a folder and those above it; all lie in the session's folder.
fn make(path: &Path) -> Step {
    fs::DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(|error| (path.to_path_buf(), error))
}

fn write(path: &Path, bytes: &[u8]) -> Step {
    let failed = |error| (path.to_path_buf(), error);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    io::Write::write_all(&mut file, bytes).map_err(failed)
}

fn fault(path: &Path, error: &io::Error) -> Fault {
    Fault::new(FaultCode::IoError, format!("{}: {error}", path.display()))
        .hint("the session's folder is made in XDG_RUNTIME_DIR, TMPDIR or /tmp: check its space and owner")
}

#[cfg(test)]
mod tests;
