//! Where a name really is: the folder that holds it, open, and the name in it.
//!
//! Never joins a path by text without asking the kernel: a link is read one at a time, its text is put behind the path of the folder
//! it stands in, unsimplified, and the kernel judges the whole beneath the base again.

use super::BaseDir;
use super::base_dir::{fault, open_beneath};
use super::rel_path::RelPath;
use crate::envelope::{Fault, FaultCode};
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, fsync, unlinkat};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// How many links are followed before it is a loop; the kernel's own number.
const LINKS: usize = 40;

/// How every temporary name begins. Names like this are ours: they are not written to by name, and are cleared when stale.
pub(super) const TEMPORARY_PREFIX: &str = ".bailiwick-tmp-";

/// What is done with a link as the last part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLink {
    /// It is followed, while it stays beneath the base.
    Follow,
    /// It is the thing that is meant.
    Keep,
}

/// What is done about missing parent folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    /// They have to be there.
    Expect,
    /// They are made.
    Make,
}

/// A name in an open folder beneath the base. The name need not exist.
#[derive(Debug)]
pub(super) struct Place {
    /// The folder; open for reading where its mode lets us, else only for lookups.
    pub(super) parent: OwnedFd,
    /// One name: no slash, never `..`.
    pub(super) name: OsString,
    /// The path beneath the base, links resolved, when the folder was opened.
    pub(super) canonical: RelPath,
    /// Folders that were made on the way, outermost first.
    made: Vec<(OwnedFd, OsString)>,
}

impl Place {
    /// A place in a folder that is open; the name is to be set.
    pub(super) fn within(parent: OwnedFd, canonical: RelPath) -> Self {
        Self { parent, name: OsString::new(), canonical, made: Vec::new() }
    }

    /// Removes the folders that were made on the way, for a change that did not come about.
    pub(super) fn undo(self) {
        for (parent, name) in self.made.iter().rev() {
            // What is not empty is in use by somebody else, and stays.
            if unlinkat(parent, name.as_os_str(), UnlinkatFlags::RemoveDir).is_err() {
                break;
            }
        }
    }

    /// Flushes the folder, and those that were made on the way, so that the names last.
    pub(super) fn flush(&self) -> Result<(), Errno> {
        flush_dir(self.parent.as_fd())?;
        self.made.iter().try_for_each(|(parent, _)| flush_dir(parent.as_fd()))
    }
}

/// Flushes a folder. One that could only be opened for lookups, and a file system that has no such flush, are left alone.
pub(super) fn flush_dir(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    match fsync(dir) {
        Err(Errno::EBADF | Errno::EINVAL | Errno::EROFS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno),
    }
}

impl BaseDir {
    /// Finds the folder and the name at which a path really is.
    ///
    /// # Errors
    /// `outside_workspace` for whatever leads out, `is_directory` and `not_found` for a path that names a folder (`a/`, `..`),
    /// `invalid_arguments` for a name of ours, and as [`fault`] says.
    pub(super) fn locate(&self, path: &RelPath, last: LastLink, parents: Parents) -> Result<Place, Fault> {
        let mut made = Vec::new();
        let mut at = path.clone();
        for _ in 0..=LINKS {
            let Some((folder, name)) = at.split() else { return Err(self.names_a_folder(&at, path)) };
            if name.as_bytes().starts_with(TEMPORARY_PREFIX.as_bytes()) {
                return Err(Fault::new(
                    FaultCode::InvalidArguments,
                    format!("{path} is a name that bailiwick keeps for its temporary files"),
                ));
            }
            // For a link's target the path asked for is named, not where the link leads.
            let blame = if at == *path { &folder } else { path };
            let parent = match parents {
                Parents::Expect => open_folder(self.as_fd(), folder.as_path()).map_err(|errno| fault(errno, blame))?,
                Parents::Make => self.make_folders(&folder, blame, &mut made)?,
            };
            let text = match (last, readlinkat(&parent, name)) {
                (LastLink::Follow, Ok(text)) => PathBuf::from(text),
                // EINVAL: there, and no link. ENOENT: not there (yet).
                (_, Ok(_) | Err(Errno::EINVAL | Errno::ENOENT)) => {
                    let canonical = self.canonical(parent.as_fd(), &folder).join(name);
                    return Ok(Place { parent, name: name.to_owned(), canonical, made });
                }
                (_, Err(errno)) => return Err(fault(errno, path)),
            };
            if text.is_absolute() {
                return Err(fault(Errno::EXDEV, path));
            }
            at = folder.join(text);
        }
        Err(fault(Errno::ELOOP, path))
    }

    /// The fault for a path that cannot name a file, because it ends in `/`, `.` or `..`.
    fn names_a_folder(&self, at: &RelPath, asked: &RelPath) -> Fault {
        match open_beneath(self.as_fd(), at.as_path(), OFlag::O_PATH, Mode::empty()) {
            Ok(_) => fault(Errno::EISDIR, asked),
            Err(errno) => fault(errno, asked),
        }
    }

    /// Opens a folder, making what is missing of it step by step. Each step is judged by the kernel from the base on.
    pub(super) fn make_folders(&self, folder: &RelPath, blame: &RelPath, made: &mut Vec<(OwnedFd, OsString)>) -> Result<OwnedFd, Fault> {
        match open_folder(self.as_fd(), folder.as_path()) {
            Err(Errno::ENOENT) => {}
            other => return other.map_err(|errno| fault(errno, blame)),
        }
        let mut here = open_folder(self.as_fd(), Path::new(".")).map_err(|errno| fault(errno, blame))?;
        let mut walked = PathBuf::new();
        for part in folder.as_path().components() {
            walked.push(part);
            let mut next = open_folder(self.as_fd(), &walked);
            if let (Err(Errno::ENOENT), Component::Normal(name)) = (&next, part) {
                match mkdirat(&here, name, Mode::from_bits_truncate(0o777)) {
                    Ok(()) => made.push((here.try_clone().map_err(|error| super::base_dir::io_fault(&error, blame))?, name.to_owned())),
                    // Made by somebody else meanwhile, or a link that leads nowhere: the next open tells.
                    Err(Errno::EEXIST) => {}
                    Err(errno) => return Err(fault(errno, blame)),
                }
                next = open_folder(self.as_fd(), &walked);
            }
            here = next.map_err(|errno| fault(errno, blame))?;
        }
        Ok(here)
    }
}

/// Opens a folder for lookups, and for reading and flushing where its mode lets us.
pub(super) fn open_folder(base: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    match open_beneath(base, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty()) {
        Err(Errno::EACCES) => open_beneath(base, path, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()),
        other => other,
    }
}

/// Opens one name in an open folder, never following a link.
pub(super) fn open_name(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    open_beneath(dir, Path::new(name), flags | OFlag::O_NOFOLLOW, Mode::empty())
}
