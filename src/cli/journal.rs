//! The journal's place: a folder of the person's own, found again by the next session of the same workspace.
//!
//! `XDG_STATE_HOME` or `~/.local/state`, then `bailiwick/journal/` and the beginning of the hash of the workspace's path. It is never where
//! commands may write: a record that they could forge would be written by us. It goes with the last session when it is empty.

use crate::policy::Charter;
use crate::policy::surroundings::Surroundings;
use crate::workspace::Hash;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

/// How often a folder that a session before this one just removed is made again.
const ATTEMPTS: usize = 16;

/// Letters of the hash in the folder's name.
const LETTERS: usize = 32;

/// The journal of a session. Held open with a shared lock, so that no other session removes it meanwhile.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// `None` only while this is dropped.
    lock: Option<Flock<File>>,
}

impl Journal {
    /// Makes the folder, or finds it.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub(super) fn open(charter: &Charter, here: &Surroundings) -> Result<Self, String> {
        let state = here
            .folder("XDG_STATE_HOME")
            .or_else(|| here.in_home(".local/state"))
            .ok_or("there is no home folder and no XDG_STATE_HOME")?;
        let parent = state.join("bailiwick/journal");
        let failed = |error: io::Error| format!("{}: {error}", parent.display());
        DirBuilder::new().mode(0o700).recursive(true).create(&parent).map_err(failed)?;
        let parent = parent.canonicalize().map_err(failed)?;
        if let Some(why) = reachable(charter, &parent) {
            return Err(format!("{}: {why}", parent.display()));
        }
        let name: String = Hash::of(charter.base.as_os_str().as_bytes()).to_string();
        let name: String = name.chars().skip_while(|c| *c != ':').skip(1).take(LETTERS).collect();
        let path = parent.join(name);
        for _ in 0..ATTEMPTS {
            if let Some(lock) = attempt(&path, charter, here).map_err(failed)? {
                return Ok(Self { path, lock: Some(lock) });
            }
        }
        Err(format!("{}: it keeps being removed", path.display()))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Nobody else has it: it goes if it is empty. With records in it, it cannot be removed, and the next session finds them.
        if let Some(lock) = self.lock.take()
            && lock.relock(FlockArg::LockExclusiveNonblock).is_ok()
        {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

/// One attempt; `None`: it was removed between the making and the lock.
fn attempt(path: &Path, charter: &Charter, here: &Surroundings) -> io::Result<Option<Flock<File>>> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) if here.uid == 0 && charter.identity.uid != 0 => lchown(path, Some(charter.identity.uid), Some(charter.identity.gid))?,
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let meta = file.metadata()?;
    if meta.uid() != charter.identity.uid || meta.mode() & 0o077 != 0 {
        return Err(io::Error::other("the folder is not the user's alone"));
    }
    let lock = Flock::lock(file, FlockArg::LockShared).map_err(|(_, errno)| io::Error::from(errno))?;
    let there = fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == (meta.dev(), meta.ino()));
    Ok(there.then_some(lock))
}

/// Why a journal there would be in reach of commands.
fn reachable(charter: &Charter, parent: &Path) -> Option<&'static str> {
    let theirs = charter.execute.iter().flat_map(|grants| &grants.0).any(|grant| grant.rights.write && parent.starts_with(&grant.path));
    if parent.starts_with(&charter.base) {
        Some("it lies in the workspace")
    } else if theirs {
        Some("commands may write there")
    } else {
        None
    }
}
