//! An open folder, for walkers: its names, and opens of one name or of a path beneath it.
//!
//! Nothing here follows a link: a name that is swapped for a link between the listing and the open fails in the kernel. Paths
//! never leave the folder.

use super::BaseDir;
use super::RelPath;
use super::base_dir::open_beneath;
use super::entries::Entries;
use crate::envelope::Fault;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{FileStat, Mode, fstatat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What an entry of a folder is; a link is itself, not what it points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A block or character device.
    Device,
}

impl Kind {
    /// From the type bits of a mode.
    pub fn of_mode(mode: u32) -> Self {
        match mode & libc::S_IFMT {
            libc::S_IFREG => Self::File,
            libc::S_IFDIR => Self::Folder,
            libc::S_IFLNK => Self::Link,
            libc::S_IFIFO => Self::Fifo,
            libc::S_IFSOCK => Self::Socket,
            _ => Self::Device,
        }
    }

    /// The word that stands for it in results.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
            Self::Link => "link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Device => "device",
        }
    }

    /// The letter that stands for it in a long listing.
    pub fn letter(self) -> char {
        match self {
            Self::File => '-',
            Self::Folder => 'd',
            Self::Link => 'l',
            Self::Fifo => 'p',
            Self::Socket => 's',
            Self::Device => 'c',
        }
    }
}

/// An open folder.
#[derive(Debug)]
pub struct OpenDir {
    fd: OwnedFd,
}

impl OpenDir {
    /// Opens a folder of the workspace; links on the way that stay beneath the base are followed.
    ///
    /// # Errors
    /// As [`BaseDir::open_dir`].
    pub fn open(base: &BaseDir, path: &RelPath) -> Result<Self, Fault> {
        Ok(Self { fd: base.open_dir(path)? })
    }

    /// Opens a folder beneath this one. No part of the path may be a link.
    ///
    /// # Errors
    /// The kernel's own; `ELOOP` for a link.
    pub fn enter(&self, path: &Path) -> Result<Self, Errno> {
        let fd = self.open_plain(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        Ok(Self { fd })
    }

    /// Opens a file beneath this folder for reading. No part of the path may be a link. The caller looks at what was opened
    /// before it reads: a FIFO opens without blocking.
    ///
    /// # Errors
    /// The kernel's own; `ELOOP` for a link, `ENXIO` for a socket.
    pub fn file(&self, path: &Path) -> Result<File, Errno> {
        self.open_plain(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).map(File::from)
    }

    fn open_plain(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_SYMLINKS;
        let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
        for _ in 0..64 {
            match openat2(&self.fd, path, how) {
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                other => return other,
            }
        }
        Err(Errno::EAGAIN)
    }

    /// What one entry is, a link not followed. `name` is one name.
    ///
    /// # Errors
    /// The kernel's own; `EINVAL` when `name` is no plain name.
    pub fn lstat(&self, name: &OsStr) -> Result<FileStat, Errno> {
        if name.as_bytes().contains(&b'/') || name == ".." {
            return Err(Errno::EINVAL);
        }
        fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW)
    }

    /// The text of a link. `name` is one name.
    ///
    /// # Errors
    /// The kernel's own; `EINVAL` when it is no link.
    pub fn read_link(&self, name: &OsStr) -> Result<OsString, Errno> {
        let fd = open_beneath(self.fd.as_fd(), Path::new(name), OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty())?;
        nix::fcntl::readlinkat(&fd, "")
    }

    /// Visits every entry but `.` and `..`, in the order of the file system.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn entries(&self, mut visit: impl FnMut(&[u8], Kind)) -> Result<(), Errno> {
        Entries::new().each(self.fd.as_fd(), |name, kind| {
            // Where the file system does not say: an entry that vanished is no file and is not opened.
            let look = || self.lstat(OsStr::from_bytes(name)).map_or(Kind::Device, |stat| Kind::of_mode(stat.st_mode));
            visit(name, kind.unwrap_or_else(look));
        })
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
