//! A whole workspace copied into a folder of our own: for a run whose only product is the patch.
//!
//! Never follows a link, never opens a device or waits for a FIFO, never writes where something is already, and never changes what
//! it copies. Blocks are shared where the file system can.

use super::RelPath;
use super::base_dir::{BaseDir, fault, io_fault};
use super::copying::{content, names};
use super::dir::Kind;
use super::locate::open_name;
use crate::envelope::{Fault, FaultCode};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, UtimensatFlags, fchmod, fstatat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, getegid, geteuid, symlinkat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Files up to this many bytes are read and written; larger ones are cloned where that works.
const SMALL: u64 = 16 * 1024;
/// How deep a tree may be; each level holds two descriptors.
const DEPTH: usize = 200;
/// Paths that are named when they were left out; more are counted.
const MOST_NAMED: usize = 20;

/// What was copied so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicated {
    /// Regular files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Links, as links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Files whose blocks are shared with the original.
    pub reflinked: u64,
    /// How many paths were left out.
    pub left_out: u64,
    /// Some of those, each with the reason.
    pub skipped: Vec<String>,
}

impl Duplicated {
    fn skip(&mut self, path: &RelPath, why: &str) {
        self.left_out += 1;
        if self.skipped.len() < MOST_NAMED {
            self.skipped.push(format!("{path}: {why}"));
        }
    }
}

/// Copies a workspace into an existing, empty folder. Modes (without setuid and setgid) and times are kept, and owners where that is
/// permitted. What cannot be read is left out, and said. A linked worktree's `.git` is left out: it leads to the repository of the
/// original. `go_on` is asked after each entry, and within a large file, with what was copied so far.
///
/// # Errors
/// `interrupted` when `go_on` says no, `disk_full`, `too_large` for a tree that is too deep, and whatever keeps the copy from being written.
pub fn duplicate(base: &BaseDir, to: &Path, go_on: &mut dyn FnMut(&Duplicated) -> bool) -> Result<Duplicated, Fault> {
    let top = RelPath::base();
    let from = base.open_dir(&top)?;
    let target = BaseDir::open(to)?.open_dir(&top)?;
    let (uid, gid) = (geteuid(), getegid());
    let owner = (uid.as_raw(), gid.as_raw());
    let mut work = Work { done: Duplicated::default(), go_on, keep_owner: uid.is_root(), owner };
    work.folder(from.as_fd(), target.as_fd(), &top, 0)?;
    let meta = nix::sys::stat::fstat(&from).map_err(|errno| fault(errno, &top))?;
    work.dress(&target, &meta, &top)?;
    Ok(work.done)
}

struct Work<'a> {
    done: Duplicated,
    go_on: &'a mut dyn FnMut(&Duplicated) -> bool,
    keep_owner: bool,
    /// Who owns what we make.
    owner: (u32, u32),
}

impl Work<'_> {
    fn folder(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, at: &RelPath, depth: usize) -> Result<(), Fault> {
        if depth > DEPTH {
            return Err(Fault::new(FaultCode::TooLarge, format!("{at} is more than {DEPTH} folders deep")));
        }
        for name in names(&from, at)? {
            let path = at.join(&name);
            // Gone since it was listed: then there is nothing to copy.
            let Ok(meta) = fstatat(from, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            let kind = Kind::of_mode(meta.st_mode);
            match kind {
                Kind::File if depth == 0 && name == ".git" => self.done.skip(&path, "a linked worktree: the copy has no repository"),
                Kind::File => self.file(from, to, &name, &path)?,
                Kind::Folder => self.deeper(from, to, &name, &path, depth)?,
                Kind::Link => self.link(from, to, &name, &path, &meta)?,
                other => self.done.skip(&path, other.as_str()),
            }
            if !(self.go_on)(&self.done) {
                return Err(unfinished());
            }
        }
        Ok(())
    }

    fn deeper(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, path: &RelPath, depth: usize) -> Result<(), Fault> {
        let source = match open_name(from, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY) {
            Ok(source) => source,
            Err(errno) => return self.unopened(path, errno),
        };
        // Writable while it is filled; its own mode and times come last.
        mkdirat(to, name, Mode::S_IRWXU).map_err(|errno| fault(errno, path))?;
        let target = open_name(to, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|errno| fault(errno, path))?;
        self.folder(source.as_fd(), target.as_fd(), path, depth + 1)?;
        let meta = nix::sys::stat::fstat(&source).map_err(|errno| fault(errno, path))?;
        self.dress(&target, &meta, path)?;
        self.done.folders += 1;
        Ok(())
    }

    fn file(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, path: &RelPath) -> Result<(), Fault> {
        let source = match open_name(from, name, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY) {
            Ok(source) => File::from(source),
            Err(errno) => return self.unopened(path, errno),
        };
        let meta = nix::sys::stat::fstat(&source).map_err(|errno| fault(errno, path))?;
        if Kind::of_mode(meta.st_mode) != Kind::File {
            self.done.skip(path, "it was swapped while it was copied");
            return Ok(());
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let how = OpenHow::new().flags(flags).mode(Mode::S_IRUSR | Mode::S_IWUSR).resolve(ResolveFlag::RESOLVE_BENEATH);
        let target = File::from(openat2(to, name, how).map_err(|errno| fault(errno, path))?);
        let (bytes, shared) = match u64::try_from(meta.st_size) {
            Ok(size) if size <= SMALL => (small(&source, &target).map_err(|error| io_fault(&error, path))?, false),
            _ => {
                let Self { done, go_on, .. } = self;
                content(&source, &target, &mut || go_on(done)).map_err(|errno| match errno {
                    Errno::ETIME => unfinished(),
                    errno => fault(errno, path),
                })?
            }
        };
        self.dress(&target, &meta, path)?;
        self.done.files += 1;
        self.done.bytes += bytes;
        self.done.reflinked += u64::from(shared);
        Ok(())
    }

    /// Something that cannot be opened is left out; something that is gone by now need not be said.
    fn unopened(&mut self, path: &RelPath, errno: Errno) -> Result<(), Fault> {
        if errno != Errno::ENOENT {
            self.done.skip(path, errno.desc());
        }
        Ok(())
    }

    fn link(&mut self, from: BorrowedFd<'_>, to: BorrowedFd<'_>, name: &OsStr, path: &RelPath, meta: &FileStat) -> Result<(), Fault> {
        let Ok(text) = readlinkat(from, name) else {
            self.done.skip(path, "the link could not be read");
            return Ok(());
        };
        symlinkat(text.as_os_str(), to, name).map_err(|errno| fault(errno, path))?;
        if self.keep_owner {
            let (uid, gid) = (Uid::from_raw(meta.st_uid), Gid::from_raw(meta.st_gid));
            fchownat(to, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW).map_err(|errno| fault(errno, path))?;
        }
        // A link whose time is another is the same link.
        let _ = utimensat(to, name, &accessed(meta), &modified(meta), UtimensatFlags::NoFollowSymlink);
        self.done.links += 1;
        Ok(())
    }

    /// Owner, mode and times, in the order in which none undoes another.
    fn dress(&self, target: impl AsFd, meta: &FileStat, path: &RelPath) -> Result<(), Fault> {
        let target = target.as_fd();
        if self.keep_owner && (meta.st_uid, meta.st_gid) != self.owner {
            fchown(target, Some(Uid::from_raw(meta.st_uid)), Some(Gid::from_raw(meta.st_gid))).map_err(|errno| fault(errno, path))?;
        }
        fchmod(target, Mode::from_bits_truncate(meta.st_mode & 0o777)).map_err(|errno| fault(errno, path))?;
        futimens(target, &accessed(meta), &modified(meta))
            .or_else(|errno| if errno == Errno::EPERM { Ok(()) } else { Err(fault(errno, path)) })
    }
}

fn unfinished() -> Fault {
    Fault::new(FaultCode::Interrupted, "the copy of the workspace was not finished")
}

/// Copies a file that is hardly worth a look at its holes, or blocks to be shared. Returns its size.
fn small(mut source: &File, mut target: &File) -> std::io::Result<u64> {
    let mut buffer = [0; 16 * 1024];
    let mut size = 0;
    loop {
        let read = match source.read(&mut buffer) {
            Ok(0) => return Ok(size),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        target.write_all(&buffer[..read])?;
        size += read as u64;
    }
}

fn accessed(meta: &FileStat) -> TimeSpec {
    TimeSpec::new(meta.st_atime, meta.st_atime_nsec)
}

fn modified(meta: &FileStat) -> TimeSpec {
    TimeSpec::new(meta.st_mtime, meta.st_mtime_nsec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::time::Duration;

    fn pair() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::create_dir(&to).unwrap();
        (folder, from, to)
    }

    #[test]
    fn a_copy_has_what_the_original_has_and_follows_no_link() {
        let (folder, from, to) = pair();
        fs::write(folder.path().join("secret"), "outside").unwrap();
        fs::create_dir_all(from.join("d/e")).unwrap();
        fs::write(from.join("d/e/run.sh"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(from.join("d/e/run.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::write(from.join("sparse"), "").unwrap();
        fs::File::options().write(true).open(from.join("sparse")).unwrap().set_len(1 << 20).unwrap();
        symlink("../secret", from.join("out")).unwrap();
        symlink("..", from.join("d/up")).unwrap();
        nix::unistd::mkfifo(&from.join("fifo"), Mode::S_IRWXU).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        fs::File::open(from.join("d/e/run.sh")).unwrap().set_modified(old).unwrap();
        fs::File::open(from.join("d")).unwrap().set_modified(old).unwrap();
        fs::set_permissions(from.join("d/e"), fs::Permissions::from_mode(0o555)).unwrap();
        let mut asked = 0;
        let done = duplicate(&BaseDir::open(&from).unwrap(), &to, &mut |_| {
            asked += 1;
            true
        })
        .unwrap();
        assert_eq!((done.files, done.folders, done.links, done.left_out), (2, 2, 2, 1));
        assert_eq!((done.skipped.as_slice(), asked), (["fifo: fifo".to_owned()].as_slice(), 7));
        assert_eq!(fs::read_to_string(to.join("d/e/run.sh")).unwrap(), "#!/bin/sh\n");
        let meta = fs::metadata(to.join("d/e/run.sh")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.modified().unwrap()), (0o755, old));
        assert_eq!(fs::metadata(to.join("d")).unwrap().modified().unwrap(), old);
        assert_eq!(fs::metadata(to.join("d/e")).unwrap().mode() & 0o777, 0o555);
        assert_eq!(fs::read_link(to.join("out")).unwrap(), Path::new("../secret"));
        let sparse = fs::metadata(to.join("sparse")).unwrap();
        assert!(sparse.len() == 1 << 20 && sparse.blocks() < 64);
        for at in [&from, &to] {
            fs::set_permissions(at.join("d/e"), fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn the_pointer_of_a_linked_worktree_is_left_out_and_a_copy_can_be_ended() {
        let (_folder, from, to) = pair();
        fs::write(from.join(".git"), "gitdir: /elsewhere\n").unwrap();
        fs::create_dir(from.join("sub")).unwrap();
        fs::write(from.join("sub/.git"), "kept\n").unwrap();
        let done = duplicate(&BaseDir::open(&from).unwrap(), &to, &mut |_| true).unwrap();
        assert!(!to.join(".git").exists() && to.join("sub/.git").exists());
        assert!(done.skipped[0].starts_with(".git: a linked worktree"));
        let (_folder, from, to) = pair();
        (0..9).for_each(|n| fs::write(from.join(n.to_string()), "x").unwrap());
        let fault = duplicate(&BaseDir::open(&from).unwrap(), &to, &mut |done| done.files < 3).unwrap_err();
        assert_eq!((fault.code(), fs::read_dir(&to).unwrap().count()), (FaultCode::Interrupted, 3));
    }
}
