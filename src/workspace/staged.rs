//! A file that is written whole before it gets its name.
//!
//! Where the file system can, it has no name at all until then (`O_TMPFILE`), so a kill while it is written leaves nothing. A new
//! file is linked straight to its name. To stand in place of an old file it needs a temporary name for one instant, since
//! `link` cannot replace and `rename` needs a source; that name is one of a few fixed ones, so that a stale one is found by looking
//! at a few names and not through a whole folder. The writer holds a lock on the file: a temporary name that can be locked is stale.

use super::locate::{TEMPORARY_PREFIX, open_name};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, geteuid, linkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How many temporary names there are in one folder, and so how many replacements in it can be at the point of their rename at once.
const NAMES: usize = 8;

/// How often a temporary name is looked for while all are taken by live writers, with a millisecond between.
const ATTEMPTS: usize = 2_000;

/// Whether the temporary file can do without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Naming {
    /// It has none until it is published.
    Unnamed,
    /// It has a temporary name from the beginning.
    Named,
}

/// A file that is not yet at its name. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Staged<'a> {
    dir: BorrowedFd<'a>,
    file: File,
    temporary: Option<OsString>,
}

impl<'a> Staged<'a> {
    /// Makes an empty file in a folder. Other than by `umask` its mode is `mode`, and never wider.
    ///
    /// # Errors
    /// The kernel's own; `EOPNOTSUPP` when the file system has no unnamed files.
    pub(super) fn new(dir: BorrowedFd<'a>, mode: Mode, naming: Naming) -> Result<Self, Errno> {
        match naming {
            Naming::Unnamed => {
                let flags = OFlag::O_TMPFILE | OFlag::O_RDWR | OFlag::O_CLOEXEC;
                let fd = match create(dir, OsStr::new("."), flags, mode) {
                    // EISDIR: a kernel or file system that does not know the flag.
                    Err(Errno::EISDIR | Errno::ENOENT | Errno::EINVAL) => return Err(Errno::EOPNOTSUPP),
                    other => other?,
                };
                Ok(Self { dir, file: lock(fd)?, temporary: None })
            }
            Naming::Named => {
                let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_RDWR | OFlag::O_CLOEXEC;
                let (file, temporary) = with_free_name(dir, |name| {
                    // Between its making and its lock it is fair game for another writer's sweep; then the next name is tried.
                    match lock(create(dir, name, flags, mode)?) {
                        Ok(file) if file.metadata().is_ok_and(|meta| meta.nlink() > 0) => Ok(file),
                        Ok(_) => Err(Errno::EEXIST),
                        Err(errno) => {
                            let _ = unlinkat(dir, name, UnlinkatFlags::NoRemoveDir);
                            Err(if errno == Errno::EWOULDBLOCK { Errno::EEXIST } else { errno })
                        }
                    }
                })?;
                Ok(Self { dir, file, temporary: Some(temporary) })
            }
        }
    }

    /// The file, to be written.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file a name that nothing has yet.
    ///
    /// # Errors
    /// `EEXIST` when something has it; `EOPNOTSUPP` when an unnamed file cannot be linked here; the kernel's own.
    pub(super) fn publish_new(mut self, name: &OsStr) -> Result<(), Errno> {
        match self.temporary.take() {
            None => link_unnamed(self.file.as_fd(), self.dir, name)?,
            Some(temporary) => {
                let renamed = match sys::rename_noreplace(self.dir, &temporary, self.dir, name) {
                    // No such promise by this file system: link and unlink keep it.
                    Err(Errno::EINVAL | Errno::ENOSYS) => linkat(self.dir, temporary.as_os_str(), self.dir, name, AtFlags::empty())
                        .and_then(|()| unlinkat(self.dir, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir)),
                    other => other,
                };
                if let Err(errno) = renamed {
                    self.temporary = Some(temporary);
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Puts the file in place of whatever file has the name.
    ///
    /// # Errors
    /// `EOPNOTSUPP` when an unnamed file cannot be linked here; the kernel's own.
    pub(super) fn publish_over(mut self, name: &OsStr) -> Result<(), Errno> {
        if self.temporary.is_none() {
            let (file, dir) = (self.file.as_fd(), self.dir);
            let ((), temporary) = with_free_name(dir, |temporary| link_unnamed(file, dir, temporary))?;
            self.temporary = Some(temporary);
        }
        if let Some(temporary) = self.temporary.take()
            && let Err(errno) = renameat(self.dir, temporary.as_os_str(), self.dir, name)
        {
            self.temporary = Some(temporary);
            return Err(errno);
        }
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = unlinkat(self.dir, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Removes temporary files in this folder that no live writer holds.
pub(super) fn sweep(dir: BorrowedFd<'_>) -> usize {
    (0..NAMES).filter(|index| remove_stale(dir, &temporary_name(*index))).count()
}

fn temporary_name(index: usize) -> OsString {
    OsString::from(format!("{TEMPORARY_PREFIX}{index}"))
}

/// Removes one temporary file if it is one: regular, ours, and locked by nobody.
fn remove_stale(dir: BorrowedFd<'_>, name: &OsStr) -> bool {
    // O_PATH first: whatever has the name is not opened before it is known to be a regular file.
    let Ok(found) = open_name(dir, name, OFlag::O_PATH) else { return false };
    let Ok(meta) = File::from(found).metadata() else { return false };
    if !meta.is_file() {
        return false;
    }
    let access = [OFlag::O_RDONLY, OFlag::O_WRONLY];
    let Some(file) = access.iter().find_map(|access| open_name(dir, name, *access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).ok()) else {
        // A mode that lets nobody in. It cannot be told whether its writer lives; the name is avoided and the file left.
        return false;
    };
    let file = File::from(file);
    let (Ok(meta), true) = (file.metadata(), meta.uid() == geteuid().as_raw() || geteuid().is_root()) else { return false };
    if !meta.is_file() {
        return false;
    }
    // The lock is held until the name is gone, so that its maker cannot have taken it in between.
    sys::try_lock(file.as_fd()).is_ok() && unlinkat(dir, name, UnlinkatFlags::NoRemoveDir).is_ok()
}

/// Tries the temporary names until `make` does not say `EEXIST`; stale ones are removed on the way.
fn with_free_name<T>(dir: BorrowedFd<'_>, mut make: impl FnMut(&OsStr) -> Result<T, Errno>) -> Result<(T, OsString), Errno> {
    for _ in 0..ATTEMPTS {
        for name in (0..NAMES).map(temporary_name) {
            match make(&name) {
                Err(Errno::EEXIST) => {
                    remove_stale(dir, &name);
                }
                other => return other.map(|made| (made, name)),
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Errno::EAGAIN)
}

/// Links an unnamed file to a name that nothing has.
fn link_unnamed(file: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match linkat(file, "", dir, name, AtFlags::AT_EMPTY_PATH) {
        // Older kernels want a capability for this form, and answer ENOENT without it.
        Err(Errno::ENOENT | Errno::EINVAL | Errno::EPERM) => {}
        other => return other,
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(AT_FDCWD, path.as_str(), dir, name, AtFlags::AT_SYMLINK_FOLLOW) {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::EINVAL | Errno::EXDEV | Errno::EPERM) => Err(Errno::EOPNOTSUPP),
        other => other,
    }
}

fn create(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new().flags(flags).mode(mode).resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
    for _ in 0..64 {
        match openat2(dir, Path::new(name), how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// Locks a file of our own making, so that no sweep takes it for stale.
fn lock(fd: OwnedFd) -> Result<File, Errno> {
    match sys::try_lock(fd.as_fd()) {
        // Without locks a sweep removes nothing either.
        Ok(()) | Err(Errno::ENOLCK | Errno::EOPNOTSUPP | Errno::EBADF | Errno::ENOSYS) => Ok(File::from(fd)),
        Err(errno) => Err(errno),
    }
}
