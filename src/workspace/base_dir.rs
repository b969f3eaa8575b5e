//! The base directory: the one place in the program that opens by name inside the workspace.
//!
//! A [`BaseDir`] holds an open directory, not a path. Every open goes through `openat2` with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_MAGICLINKS`: `..` above the base, a link that leaves it at any depth, an absolute link and a folder that is
//! swapped for a link in mid-call all fail in the kernel. [`fault`] is the one place that turns the kernel's "you left" (`EXDEV`)
//! into our word for it.

use super::{Hash, RelPath, escape};
use crate::envelope::{Fault, FaultCode};
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::Mode;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How often an open that the kernel could not finish because of a concurrent rename (`EAGAIN`) is tried again.
const RETRIES: usize = 64;

/// The open base directory of a workspace.
#[derive(Debug)]
pub struct BaseDir {
    fd: OwnedFd,
    path: PathBuf,
    journal: Option<OwnedFd>,
    protected: Vec<PathBuf>,
}

/// A regular file with its content, read whole.
#[derive(Debug)]
pub struct Loaded {
    /// The content.
    pub bytes: Vec<u8>,
    /// Its hash.
    pub hash: Hash,
    /// What `fstat` said of it.
    pub meta: Metadata,
    /// The path beneath the base at which it really is, links resolved.
    pub canonical: RelPath,
}

/// What has to be at a path for a replacement to go ahead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expect {
    /// Whatever is there.
    Anything,
    /// Nothing.
    Absent,
    /// A file with this content; else `stale_file`.
    Content(Hash),
}

/// How a file is replaced.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceOptions {
    /// What has to be there before.
    pub expect: Expect,
    /// Make missing parent folders.
    pub create_dirs: bool,
    /// Set or clear the executable bits; `None`: as before.
    pub executable: Option<bool>,
}

/// What a replacement did.
#[derive(Debug)]
pub struct Replaced {
    /// Nothing was there before.
    pub created: bool,
    /// The hash of the new content.
    pub hash: Hash,
    /// The path beneath the base that was written, links resolved.
    pub canonical: RelPath,
    /// All names of a file that was written in place; else none.
    pub names: Vec<RelPath>,
    /// What of the old file could not be kept (its owner, say), one sentence each.
    pub notices: Vec<String>,
}

/// A regular file, open for reading.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    /// What `fstat` said of it.
    pub meta: Metadata,
    /// The path beneath the base at which it really is, links resolved.
    pub canonical: RelPath,
}

impl BaseDir {
    /// Opens a directory by its path. Only the host and the warden do this, once.
    ///
    /// # Errors
    /// `invalid_workspace` when it is not a directory that can be opened.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())
            .map_err(|errno| Fault::new(FaultCode::InvalidWorkspace, format!("{}: {}", path.display(), errno.desc())))?;
        Ok(Self { fd, path: path.to_path_buf(), journal: None, protected: Vec::new() })
    }

    /// Takes a directory that is already open. `path` is only used to rebase absolute paths and to show them.
    pub fn from_fd(fd: OwnedFd, path: PathBuf) -> Self {
        Self { fd, path, journal: None, protected: Vec::new() }
    }

    /// Gives it the names that nothing may change, relative to the base. Changes to them, and to any repository's own folder, are refused.
    #[must_use]
    pub fn with_protected(mut self, names: Vec<PathBuf>) -> Self {
        self.protected = names;
        self
    }

    /// The names that nothing may change.
    pub fn protected(&self) -> &[PathBuf] {
        &self.protected
    }

    /// Refuses a change to a protected name, to what is beneath one, or to a folder that holds one. `canonical`: links resolved.
    ///
    /// # Errors
    /// `sandbox_denied`.
    pub(super) fn refuse_protected(&self, canonical: &RelPath) -> Result<(), Fault> {
        if self.protected.is_empty() {
            return Ok(());
        }
        let path = canonical.as_path();
        let refused = |what: String, hint: &str| {
            let fault = Fault::new(FaultCode::SandboxDenied, format!("{canonical} {what}, which is protected: nothing may change it"));
            Err(fault.hint(hint).with("path", canonical.to_string()).with("protection", "fs.protected"))
        };
        // At any depth: a repository may lie anywhere in the workspace, and some file systems do not tell the case.
        if path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
            return refused("is in a repository's own folder".into(), "git itself works in the sandbox: add, commit, branch, stash");
        }
        match self.protected.iter().find(|name| name.is_relative() && (path.starts_with(name) || name.starts_with(path))) {
            Some(name) if path == name => refused("is a protected name".into(), "ask the person to change it"),
            Some(name) => refused(format!("is, or holds, a part of {}", shown(name)), "ask the person to change it"),
            None => Ok(()),
        }
    }

    /// Gives it a journal: an open folder outside the workspace, where a file with several names is kept while it is written in place.
    /// Without one such files are not written.
    #[must_use]
    pub fn with_journal(mut self, folder: OwnedFd) -> Self {
        self.journal = Some(folder);
        self
    }

    /// The journal's folder.
    pub(super) fn journal(&self) -> Option<BorrowedFd<'_>> {
        self.journal.as_ref().map(AsFd::as_fd)
    }

    /// Where the base is, for showing.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a path as a call names it; see [`RelPath::parse`].
    ///
    /// # Errors
    /// As [`RelPath::parse`].
    pub fn rel(&self, text: &str) -> Result<RelPath, Fault> {
        RelPath::parse(text, &self.path)
    }

    /// Opens by name, beneath the base, following links that stay beneath it (`O_NOFOLLOW` in `flags` refuses the last one).
    ///
    /// # Errors
    /// As [`fault`] says, for the whole path.
    pub fn open_at(&self, path: &RelPath, flags: OFlag, mode: Mode) -> Result<OwnedFd, Fault> {
        open_beneath(self.fd.as_fd(), path.as_path(), flags, mode).map_err(|errno| fault(errno, path))
    }

    /// The same for an existing file, refusing links of all kinds on the way.
    fn open_without_links(&self, path: &RelPath, flags: OFlag) -> Result<OwnedFd, Errno> {
        open_resolving(self.fd.as_fd(), path.as_path(), flags, Mode::empty(), ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    /// Opens a regular file for reading. A FIFO, socket or device is never opened for content.
    ///
    /// # Errors
    /// `not_regular_file`, `is_directory`, and as [`fault`] says.
    pub fn open_file(&self, path: &RelPath) -> Result<Opened, Fault> {
        // O_NONBLOCK: the open of a FIFO returns at once. The check is on what was opened, so nothing can be swapped in.
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        // Most paths go through no link, and are the file's own then; who it is need not be asked.
        let own = if path.is_plain() { self.open_without_links(path, flags).ok() } else { None };
        let is_own = own.is_some();
        let fd = own.map_or_else(|| self.open_at(path, flags, Mode::empty()), Ok);
        let fd = match fd {
            // A socket or a device without a driver answers ENXIO; say what it is.
            Err(fault) => match (self.stat(path), self.lstat(path)) {
                (Ok(meta), _) if !meta.is_file() && !meta.is_dir() => return Err(not_regular(path, &meta)),
                (Err(_), Ok(meta)) if meta.is_symlink() && fault.code() == FaultCode::NotFound => {
                    return Err(Fault::new(FaultCode::NotFound, format!("{path} is a link to what does not exist")));
                }
                _ => return Err(fault),
            },
            Ok(fd) => fd,
        };
        let canonical = if is_own { path.clone() } else { self.canonical(fd.as_fd(), path) };
        let file = File::from(fd);
        let meta = file.metadata().map_err(|error| io_fault(&error, path))?;
        if meta.is_dir() {
            return Err(Fault::new(FaultCode::IsDirectory, format!("{path} is a folder"))
                .hint(format!("ls({:?}) shows what is in it", path.to_string())));
        }
        if !meta.is_file() {
            return Err(not_regular(path, &meta));
        }
        Ok(Opened { file, meta, canonical })
    }

    /// Reads a regular file whole.
    ///
    /// # Errors
    /// `too_large` above `most` bytes, and as [`BaseDir::open_file`].
    pub fn load(&self, path: &RelPath, most: u64) -> Result<Loaded, Fault> {
        let Opened { file, meta, canonical } = self.open_file(path)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(&file, most.saturating_add(1)), &mut bytes)
            .map_err(|error| io_fault(&error, path))?;
        if bytes.len() as u64 > most {
            return Err(Fault::new(FaultCode::TooLarge, format!("{path} is larger than {most} bytes"))
                .with("size", meta.len())
                .with("limit", most));
        }
        Ok(Loaded { hash: Hash::of_content(&bytes), bytes, meta, canonical })
    }

    /// Opens a directory for listing and for `*at` calls.
    ///
    /// # Errors
    /// `not_directory` and as [`fault`] says.
    pub fn open_dir(&self, path: &RelPath) -> Result<OwnedFd, Fault> {
        self.open_at(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
    }

    /// What is at a path, the last link followed. Works without read permission on the file.
    ///
    /// # Errors
    /// As [`fault`] says.
    pub fn stat(&self, path: &RelPath) -> Result<Metadata, Fault> {
        let fd = self.open_at(path, OFlag::O_PATH, Mode::empty())?;
        File::from(fd).metadata().map_err(|error| io_fault(&error, path))
    }

    /// What is at a path, the last link not followed.
    ///
    /// # Errors
    /// As [`fault`] says.
    pub fn lstat(&self, path: &RelPath) -> Result<Metadata, Fault> {
        let fd = self.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty())?;
        File::from(fd).metadata().map_err(|error| io_fault(&error, path))
    }

    /// The text of a link.
    ///
    /// # Errors
    /// As [`fault`] says; `invalid_arguments` when it is no link.
    pub fn read_link(&self, path: &RelPath) -> Result<PathBuf, Fault> {
        let fd = self.open_at(path, OFlag::O_PATH | OFlag::O_NOFOLLOW, Mode::empty())?;
        nix::fcntl::readlinkat(&fd, "").map(PathBuf::from).map_err(|errno| fault(errno, path))
    }

    /// The path beneath the base at which an open file really is. Falls back to the path asked for when the kernel
    /// does not say (a deleted file, a base that was moved).
    pub fn canonical(&self, fd: BorrowedFd<'_>, asked: &RelPath) -> RelPath {
        let real = |fd: BorrowedFd<'_>| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        match (real(self.fd.as_fd()), real(fd)) {
            (Ok(base), Ok(file)) => match file.strip_prefix(&base) {
                Ok(rest) => RelPath::from_relative(PathBuf::from(std::ffi::OsString::from_vec(rest.as_os_str().to_owned().into_vec()))),
                Err(_) => asked.clone(),
            },
            _ => asked.clone(),
        }
    }
}

impl AsFd for BaseDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// `openat2` beneath a directory, with no magic links, tried again a bounded number of times while a rename races with it.
///
/// # Errors
/// The kernel's own; `EAGAIN` when the race did not end.
pub fn open_beneath(dir: BorrowedFd<'_>, path: &Path, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    open_resolving(dir, path, flags, mode, ResolveFlag::empty())
}

fn open_resolving(dir: BorrowedFd<'_>, path: &Path, flags: OFlag, mode: Mode, resolve: ResolveFlag) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | resolve;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(mode).resolve(resolve);
    for _ in 0..RETRIES {
        match openat2(dir, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

/// The kernel's error for a path, in our words. The only place that knows what `EXDEV` from `openat2` means.
pub fn fault(errno: Errno, path: &RelPath) -> Fault {
    let shown = path.to_string();
    match errno {
        Errno::EXDEV => Fault::new(FaultCode::OutsideWorkspace, format!("{shown} leads out of the workspace"))
            .hint("paths are relative to the workspace, and a link may only point to something beneath it by a relative path"),
        Errno::ELOOP => Fault::new(
            FaultCode::NotFound,
            format!("{shown} is, or passes through, a link that leads nowhere (a loop of links, or a link where none may be)"),
        ),
        Errno::ENOENT => Fault::new(FaultCode::NotFound, format!("{shown} does not exist")),
        Errno::ENOTDIR => Fault::new(FaultCode::NotDirectory, format!("a part of {shown} is not a folder")),
        Errno::EISDIR => Fault::new(FaultCode::IsDirectory, format!("{shown} is a folder")),
        Errno::EEXIST => Fault::new(FaultCode::AlreadyExists, format!("{shown} exists already")),
        Errno::ENOTEMPTY => Fault::new(FaultCode::DirectoryNotEmpty, format!("{shown} is a folder that is not empty")),
        Errno::EACCES | Errno::EPERM => Fault::new(FaultCode::PermissionDenied, format!("no permission for {shown}: {}", errno.desc()))
            .hint("its mode and owner, or those of a folder on the way, do not let this user in; ls with long shows them"),
        Errno::ENAMETOOLONG => Fault::new(FaultCode::NameTooLong, format!("{shown} is longer than the file system takes")),
        Errno::ENOSPC | Errno::EDQUOT => Fault::new(FaultCode::DiskFull, format!("no room for {shown}: {}", errno.desc())),
        Errno::EROFS => Fault::new(FaultCode::ReadOnly, format!("{shown} is on a file system that is mounted read-only")),
        Errno::EAGAIN => Fault::new(FaultCode::Busy, format!("{shown} kept changing while it was opened")).hint("try again"),
        Errno::ENXIO => Fault::new(FaultCode::NotRegularFile, format!("{shown} is a socket, a FIFO or a device, not a file")),
        Errno::ENOSYS => Fault::new(
            FaultCode::CannotConfine,
            "the kernel does not answer to openat2, without which it cannot judge paths: it needs Linux 5.6 or newer (inside a container: a \
             seccomp profile that lets the call through)",
        ),
        errno => Fault::new(FaultCode::IoError, format!("{shown}: {}", errno.desc())),
    }
}

/// The same for a standard library error.
pub fn io_fault(error: &std::io::Error, path: &RelPath) -> Fault {
    match error.raw_os_error() {
        Some(code) => fault(Errno::from_raw(code), path),
        None => Fault::new(FaultCode::IoError, format!("{path}: {error}")),
    }
}

fn not_regular(path: &RelPath, meta: &Metadata) -> Fault {
    Fault::new(FaultCode::NotRegularFile, format!("{path} is {}, not a file", kind(meta)))
}

/// What a directory entry is, in words.
pub fn kind(meta: &Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_file() {
        "a file"
    } else if kind.is_dir() {
        "a folder"
    } else if kind.is_symlink() {
        "a link"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// What identifies a file on this machine: device and inode.
pub fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// A name as the escape shows it.
pub fn shown(path: &Path) -> String {
    escape::show(path.as_os_str())
}
