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

/// The folders of a session. Commands write to the first three; `spool` and `own` are ours, and in `bait` canaries are tried.
const FOLDERS: &[&str] = &["home", "tmp", "cache", "spool", "own", "bait"];

/// Links from a session's folder to a cache of the person's: session folder, manager, part of it.
const LINKS: &[(&str, &str, &str)] = &[
    ("cache/cargo/registry/cache", "cargo", "registry/cache"),
    ("cache/cargo/registry/index", "cargo", "registry/index"),
    ("cache/cargo/git/db", "cargo", "git/db"),
    ("cache/npm/_cacache/content-v2", "npm", "_cacache/content-v2"),
    ("cache/gradle/wrapper/dists", "gradle", "wrapper/dists"),
];

/// What a session's folder is made of, each path after those above it.
#[derive(Debug, PartialEq)]
struct Plan(Vec<(PathBuf, Piece)>);

#[derive(Debug, PartialEq)]
enum Piece {
    Folder,
    Link(PathBuf),
    File(Vec<u8>),
}

impl Plan {
    fn of(resolved: &Resolved, here: &Surroundings) -> Self {
        let mut plan = Self(FOLDERS.iter().map(|name| (PathBuf::from(name), Piece::Folder)).collect());
        for (link, manager, part) in LINKS {
            let Some(found) = resolved.present.toolchains.iter().find(|found| found.name == *manager) else { continue };
            // Only what is granted: else the link would lead to a refusal where nothing would lead to an empty cache.
            let Ok(target) = here.links.canonical(&found.root.join(part)) else { continue };
            if resolved.present.grants.iter().any(|grant| target.starts_with(&grant.path)) {
                plan.put(Path::new(link), Piece::Link(target));
            }
        }
        let git = gitconfig::private(here, &resolved.charter.base);
        plan.put(Path::new("home/.gitconfig"), Piece::File(git.into_bytes()));
        let host = resolved.present.toolchains.iter().find(|found| found.name == "cargo");
        if let Some(config) = host.and_then(|found| cargo::private_config(&found.root)) {
            plan.put(Path::new("cache/cargo/config.toml"), Piece::File(config.into_bytes()));
        }
        plan
    }

    fn put(&mut self, path: &Path, piece: Piece) {
        let above: Vec<&Path> = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()).collect();
        for above in above.into_iter().rev() {
            if !self.0.iter().any(|(known, _)| known == above) {
                self.0.push((above.to_path_buf(), Piece::Folder));
            }
        }
        self.0.push((path.to_path_buf(), piece));
    }

    fn make(&self, session: &Path) -> Step {
        for (path, piece) in &self.0 {
            let path = session.join(path);
            match piece {
                Piece::Folder => folder(&path).map_err(|error| (path.clone(), error))?,
                Piece::Link(target) => symlink(target, &path).map_err(|error| (path.clone(), error))?,
                Piece::File(bytes) => write(&path, bytes)?,
            }
        }
        Ok(())
    }

    /// Whether a session's folder is as it was made, but for the content of its files: nothing more in it, nothing less, nobody else's.
    fn holds(&self, session: &Path, uid: u32) -> bool {
        let folders =
            std::iter::once(Path::new("")).chain(self.0.iter().filter(|(_, piece)| *piece == Piece::Folder).map(|(path, _)| &**path));
        for inner in folders {
            let planned = self.0.iter().filter(|(path, _)| path.parent() == Some(inner)).count();
            let lock = usize::from(inner.as_os_str().is_empty());
            if fs::read_dir(session.join(inner)).map_or(usize::MAX, Iterator::count) != planned + lock {
                return false;
            }
        }
        self.0.iter().all(|(path, piece)| {
            let path = session.join(path);
            path.symlink_metadata().is_ok_and(|meta| {
                let mode = meta.mode() & 0o7777;
                meta.uid() == uid
                    && match piece {
                        Piece::Folder => meta.is_dir() && mode == 0o700,
                        Piece::Link(target) => fs::read_link(&path).is_ok_and(|there| there == *target),
                        // Of several names one could be in a workspace: it is not written again.
                        Piece::File(_) => meta.is_file() && mode == 0o600 && meta.nlink() == 1,
                    }
            })
        })
    }

    /// Gives the files of a folder that [`Plan::holds`] their content again.
    fn renew(&self, session: &Path) -> io::Result<()> {
        for (path, piece) in &self.0 {
            let Piece::File(bytes) = piece else { continue };
            let path = session.join(path);
            if fs::read(&path)? != *bytes {
                let mut file = fs::OpenOptions::new().write(true).truncate(true).custom_flags(libc::O_NOFOLLOW).open(&path)?;
                io::Write::write_all(&mut file, bytes)?;
            }
        }
        Ok(())
    }
}

/// A session's folder, held: while this lives (a kill lets go of it), no other session takes it for dead. When it is dropped, the folder is
/// removed with all that commands left in it; one in which they left nothing stays for the next session, for making it anew costs more
/// than a command.
#[derive(Debug)]
pub struct Held {
    _lock: Flock<File>,
    session: PathBuf,
    plan: Plan,
    uid: u32,
    once: bool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.once || !self.plan.holds(&self.session, self.uid) {
            // What cannot be removed stays in a folder that only its owner may enter; there is nobody left to tell.
            let _ = remove(&self.session);
        }
    }
}

/// Makes the session's folder and seeds it, or takes over one that an earlier session left as it was made. The folder must not exist; only
/// its owner may enter it. Removes what killed sessions of the same user left beside it.
///
/// # Errors
/// `io_error` with the path; what was made until then is removed again.
pub fn furnish(resolved: &Resolved, here: &Surroundings) -> Result<Held, Fault> {
    let charter = &resolved.charter;
    let session = &charter.session_dir;
    let plan = Plan::of(resolved, here);
    let node = needs_npm_index(resolved);
    let uid = charter.identity.uid;
    // Of a folder that belongs to somebody else, what has been checked may be swapped before it is used: it is made anew each time.
    let once = node.is_some() || uid != here.uid;
    let mut lock = sweep(charter, here.uid, (!once).then_some((&plan, uid)));
    if lock.is_none() {
        // The name is new and the mode is set as it is made: whoever could have made it first gets an error, not our files.
        folder(session).map_err(|error| fault(session, &error))?;
        let filled = plan.make(session).and_then(|()| node.as_ref().map_or(Ok(()), |from| npm_index(from, session)));
        filled.and_then(|()| hand_over(charter, here)).map_err(|(path, error)| {
            let _ = fs::remove_dir_all(session);
            fault(&path, &error)
        })?;
        lock = Some(hold(charter)?);
    }
    let lock = lock.ok_or_else(|| Fault::new(FaultCode::Internal, "a session without its lock"))?;
    Ok(Held { _lock: lock, session: session.clone(), plan, uid, once })
}

type Step = Result<(), (PathBuf, io::Error)>;

/// Most entries of npm's index that are copied: some 100 ms for seven hundred, which only such a project pays.
const MOST_ENTRIES: usize = 20_000;

/// The index of npm's cache, where it has to be copied: for a project of Node. npm rewrites an entry when it reads it, and takes one that it
/// cannot rewrite for missing. What the entries lead to is linked.
fn needs_npm_index(resolved: &Resolved) -> Option<PathBuf> {
    let node = ["package.json", "package-lock.json", "node_modules"]
        .iter()
        .any(|name| resolved.charter.base.join(name).symlink_metadata().is_ok());
    let npm =
        resolved.present.toolchains.iter().find(|found| found.name == "npm").filter(|_| node && resolved.charter.execute.is_some())?;
    Some(npm.root.join("_cacache/index-v5")).filter(|from| from.is_dir())
}

fn npm_index(from: &Path, session: &Path) -> Step {
    let mut left = MOST_ENTRIES;
    let to = session.join("cache/npm/_cacache/index-v5");
    if let Some(above) = to.parent() {
        make(above)?;
    }
    copy(from, &to, 0, &mut left)
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

/// Holds a session's folder that has just been made.
fn hold(charter: &Charter) -> Result<Flock<File>, Fault> {
    // It gets its name when it is locked: whoever finds it by its name and can lock it knows that its session is dead.
    let (fresh, path) = (charter.session_dir.join("lock.new"), charter.session_dir.join(LOCK));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).map_err(|error| fault(&fresh, &error))?;
    let held = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| fault(&fresh, &errno.into()))?;
    fs::rename(&fresh, &path).map_err(|error| fault(&path, &error))?;
    Ok(held)
}

/// Removes what killed sessions of the same user left beside a session's folder, but those of runs whose patch is not made yet. What cannot be
/// removed is left. The first that is as it was made, if a plan is given, becomes the session's folder instead.
fn sweep(charter: &Charter, uid: u32, wanted: Option<(&Plan, u32)>) -> Option<Flock<File>> {
    let mut adopted = None;
    for dead in dead(charter, uid) {
        if dead.may_be_salvaged() {
            continue;
        }
        let fits = |(plan, owner): (&Plan, u32)| {
            dead.folder.symlink_metadata().is_ok_and(|meta| meta.uid() == owner && meta.mode() & 0o7777 == 0o700)
                && plan.holds(&dead.folder, owner)
                && plan.renew(&dead.folder).is_ok()
                // Whoever knew the old name does not know the new one.
                && fs::rename(&dead.folder, &charter.session_dir).is_ok()
        };
        if adopted.is_none() && wanted.is_some_and(fits) {
            adopted = Some(dead.lock);
        } else {
            dead.remove();
        }
    }
    adopted
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
            found.push(Dead { folder: entry.path(), lock: dead });
        }
    }
    found
}

/// The folder of a session whose process was killed. Nobody else takes it while this lives.
#[derive(Debug)]
pub struct Dead {
    /// The folder.
    pub folder: PathBuf,
    lock: Flock<File>,
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
    if nix::unistd::geteuid().is_root() {
        // Modes bar nobody from removing who is root, and a path of somebody else's may be swapped under the change of its mode.
        return;
    }
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
    match folder(path) {
        // The common case: what is above it is there.
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => fs::DirBuilder::new().mode(0o700).recursive(true).create(path).map_err(|error| (path.to_path_buf(), error)),
    }
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
