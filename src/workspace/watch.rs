//! Names that are watched: what they are now, as a stamp and whole, and how they are put back.
//!
//! Nothing here follows a link, neither as the last part of a name nor on the way: a name behind a link is another name. Never makes
//! anything that was not there when it was kept.

use super::BaseDir;
use super::dir::Kind;
use super::{Hash, escape};
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat, renameat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, fchmod, fchmodat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Instant;

/// The most entries of a watched folder that are looked at, whole tree.
const ENTRIES: usize = 4096;
/// How deep a watched folder is looked into.
const DEPTH: usize = 12;
/// The most bytes that are kept of one name, whole tree.
const BYTES: u64 = 4 << 20;

/// What is at a name, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing, or a folder above it is not there.
    Absent,
    /// A folder above it is a link or no folder.
    Blocked,
    /// A regular file.
    File {
        /// Permission bits.
        mode: u32,
        /// Its bytes, escaped (see [`escape`]).
        content: String,
    },
    /// A link.
    Link {
        /// Its text, escaped.
        target: String,
    },
    /// A folder.
    Folder {
        /// Permission bits.
        mode: u32,
        /// Its entries, names escaped, sorted.
        entries: Vec<(String, State)>,
    },
    /// A FIFO, a socket or a device; or more than is kept.
    Unkept,
}

/// Which entries of a watched folder count; others are as if they were not there.
pub type Counts = fn(&OsStr, Kind) -> bool;

/// The folder that holds a name.
enum Parent {
    Open(OwnedFd),
    Absent,
    Blocked,
}

fn open_at(dir: BorrowedFd<'_>, path: &Path, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS | ResolveFlag::RESOLVE_NO_SYMLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(mode).resolve(resolve);
    for _ in 0..64 {
        match openat2(dir, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return other,
        }
    }
    Err(Errno::EAGAIN)
}

fn open_folder(dir: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    open_at(dir, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY, Mode::empty())
}

fn parent(base: &BaseDir, name: &Path) -> Parent {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match open_folder(base.as_fd(), folder) {
        Ok(fd) => Parent::Open(fd),
        Err(Errno::ENOENT) => Parent::Absent,
        Err(_) => Parent::Blocked,
    }
}

fn lstat(dir: BorrowedFd<'_>, name: &OsStr) -> Result<FileStat, Errno> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// The entries of a folder, sorted.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    // A descriptor of its own: reading a folder moves its place.
    for entry in Dir::from_fd(open_folder(dir, Path::new("."))?)?.iter() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// What tells one state of a name from another without reading any content: kinds, modes, sizes, times and inodes. The kernel's change
/// time is in it, which no program can set.
pub fn stamp(base: &BaseDir, name: &Path, counts: Counts) -> String {
    let mut text = String::new();
    match (parent(base, name), name.file_name()) {
        (Parent::Open(dir), Some(last)) => {
            let mut left = ENTRIES;
            stamp_one(dir.as_fd(), last, counts, 0, &mut left, &mut text);
        }
        (Parent::Absent, _) => text.push('-'),
        _ => text.push('!'),
    }
    if text.len() > 80 { Hash::of(text.as_bytes()).to_string() } else { text }
}

fn stamp_one(dir: BorrowedFd<'_>, name: &OsStr, counts: Counts, depth: usize, left: &mut usize, text: &mut String) {
    let stat = match lstat(dir, name) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return text.push('-'),
        Err(_) => return text.push('!'),
    };
    let kind = Kind::of_mode(stat.st_mode);
    if depth > 0 && !counts(name, kind) {
        return;
    }
    if kind != Kind::Folder {
        let (mtime, ctime) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
        let _ = write!(text, "{:o}:{:x}:{:x}:{mtime:?}:{ctime:?}", stat.st_mode, stat.st_ino, stat.st_size);
        return;
    }
    // A folder's own times change with what does not count.
    let _ = write!(text, "d{:o}:{:x}", stat.st_mode, stat.st_ino);
    let inner = if depth < DEPTH { open_folder(dir, Path::new(name)).ok() } else { None };
    let Some(inner) = inner else { return text.push('?') };
    for entry in names(inner.as_fd()).unwrap_or_default() {
        if *left == 0 {
            return text.push('?');
        }
        *left -= 1;
        let _ = write!(text, "/{}", escape::show(&entry));
        stamp_one(inner.as_fd(), &entry, counts, depth + 1, left, text);
    }
}

/// What is at a name, whole.
pub fn state(base: &BaseDir, name: &Path, counts: Counts) -> State {
    match (parent(base, name), name.file_name()) {
        (Parent::Open(dir), Some(last)) => {
            let (mut left, mut bytes) = (ENTRIES, BYTES);
            state_one(dir.as_fd(), last, counts, 0, &mut left, &mut bytes).unwrap_or(State::Unkept)
        }
        (Parent::Absent, _) => State::Absent,
        _ => State::Blocked,
    }
}

/// `None`: more than is kept, so the whole is not.
fn state_one(dir: BorrowedFd<'_>, name: &OsStr, counts: Counts, depth: usize, left: &mut usize, bytes: &mut u64) -> Option<State> {
    let stat = match lstat(dir, name) {
        Ok(stat) => stat,
        Err(Errno::ENOENT) => return Some(State::Absent),
        Err(_) => return None,
    };
    let mode = stat.st_mode & 0o7777;
    match Kind::of_mode(stat.st_mode) {
        Kind::Link => Some(State::Link { target: escape::escape(readlinkat(dir, name).ok()?.as_bytes()) }),
        Kind::File => {
            let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
            let file = File::from(open_at(dir, Path::new(name), flags, Mode::empty()).ok()?);
            let mut content = Vec::new();
            file.take(*bytes + 1).read_to_end(&mut content).ok()?;
            *bytes = bytes.checked_sub(content.len() as u64)?;
            Some(State::File { mode, content: escape::escape(&content) })
        }
        Kind::Folder if depth < DEPTH => {
            let inner = open_folder(dir, Path::new(name)).ok()?;
            let mut entries = Vec::new();
            for entry in names(inner.as_fd()).ok()? {
                let kind = Kind::of_mode(lstat(inner.as_fd(), &entry).ok()?.st_mode);
                if counts(&entry, kind) {
                    *left = left.checked_sub(1)?;
                    entries.push((escape::show(&entry), state_one(inner.as_fd(), &entry, counts, depth + 1, left, bytes)?));
                }
            }
            Some(State::Folder { mode, entries })
        }
        _ => None,
    }
}

/// Makes a name what it was. What does not count stays.
///
/// # Errors
/// A few words: why it could not be put back.
pub fn restore(base: &BaseDir, name: &Path, kept: &State, counts: Counts) -> Result<(), String> {
    let failed = |errno: Errno| errno.desc().to_owned();
    if matches!(kept, State::Unkept | State::Blocked) {
        return Err("it was too large to be kept, or behind a link".into());
    }
    if matches!(parent(base, name), Parent::Blocked) {
        remove_blocking(base, name).map_err(failed)?;
    }
    // What held it is gone: it is not made again, for a part of a repository is worse than none.
    let Parent::Open(dir) = parent(base, name) else { return Ok(()) };
    let Some(last) = name.file_name() else { return Err(failed(Errno::EINVAL)) };
    put(dir.as_fd(), last, kept, counts).map_err(failed)
}

/// Removes the link, or the file, that stands where a folder above a name has to be.
fn remove_blocking(base: &BaseDir, name: &Path) -> Result<(), Errno> {
    let mut dir = open_folder(base.as_fd(), Path::new("."))?;
    for part in name.parent().into_iter().flat_map(Path::components) {
        let part = part.as_os_str();
        match open_folder(dir.as_fd(), Path::new(part)) {
            Ok(inner) => dir = inner,
            Err(Errno::ENOENT) => return Ok(()),
            Err(_) => return remove(dir.as_fd(), part),
        }
    }
    Ok(())
}

fn put(dir: BorrowedFd<'_>, name: &OsStr, kept: &State, counts: Counts) -> Result<(), Errno> {
    let there = match lstat(dir, name) {
        Ok(stat) => Some(Kind::of_mode(stat.st_mode)),
        Err(Errno::ENOENT) => None,
        Err(errno) => return Err(errno),
    };
    let empty = State::Folder { mode: 0o755, entries: Vec::new() };
    let kept = match kept {
        // A folder that must go, but holds what does not count, stays with that.
        State::Absent if there == Some(Kind::Folder) && holds_uncounted(dir, name, counts) => &empty,
        kept => kept,
    };
    if there.is_some() && !(there == Some(Kind::Folder) && matches!(kept, State::Folder { .. })) {
        remove(dir, name)?;
    }
    match kept {
        State::Absent | State::Blocked | State::Unkept => Ok(()),
        State::Link { target } => symlinkat(OsStr::from_bytes(&escape::unescape(target)), dir, name),
        State::File { mode, content } => write(dir, name, Mode::from_bits_truncate(*mode), &escape::unescape(content)),
        State::Folder { mode, entries } => {
            if there != Some(Kind::Folder) {
                mkdirat(dir, name, Mode::from_bits_truncate(0o700))?;
            }
            let inner = open_folder(dir, Path::new(name))?;
            for entry in names(inner.as_fd())? {
                let kind = Kind::of_mode(lstat(inner.as_fd(), &entry)?.st_mode);
                let shown = escape::show(&entry);
                if counts(&entry, kind) && !entries.iter().any(|(known, _)| *known == shown) {
                    remove(inner.as_fd(), &entry)?;
                }
            }
            for (entry, kept) in entries {
                put(inner.as_fd(), &escape::name(entry), kept, counts)?;
            }
            fchmod(&inner, Mode::from_bits_truncate(*mode))
        }
    }
}

fn holds_uncounted(dir: BorrowedFd<'_>, name: &OsStr, counts: Counts) -> bool {
    let Ok(inner) = open_folder(dir, Path::new(name)) else { return false };
    let uncounted = |entry: &OsString| lstat(inner.as_fd(), entry).is_ok_and(|stat| !counts(entry, Kind::of_mode(stat.st_mode)));
    names(inner.as_fd()).unwrap_or_default().iter().any(uncounted)
}

/// Writes a new file.
fn write(dir: BorrowedFd<'_>, name: &OsStr, mode: Mode, content: &[u8]) -> Result<(), Errno> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mut file = File::from(open_at(dir, Path::new(name), flags, Mode::from_bits_truncate(0o600))?);
    file.write_all(content).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))?;
    fchmod(&file, mode)
}

/// Replaces the content of a regular file by a new file of the same mode, in one step.
///
/// # Errors
/// The kernel's own.
pub fn rewrite(base: &BaseDir, name: &Path, content: &[u8]) -> Result<(), Errno> {
    let (Parent::Open(dir), Some(last)) = (parent(base, name), name.file_name()) else { return Err(Errno::ENOENT) };
    let mode = Mode::from_bits_truncate(lstat(dir.as_fd(), last)?.st_mode & 0o777);
    let temporary = OsString::from(format!("{}watch", super::locate::TEMPORARY_PREFIX));
    match remove(dir.as_fd(), &temporary) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(errno) => return Err(errno),
    }
    write(dir.as_fd(), &temporary, mode, content)?;
    renameat(&dir, temporary.as_os_str(), &dir, last).inspect_err(|_| {
        let _ = unlinkat(&dir, temporary.as_os_str(), UnlinkatFlags::NoRemoveDir);
    })
}

/// Removes what has a name, with all that is in it. A link is removed itself.
fn remove(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(dir, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        other => return other,
    }
    let inner = match open_folder(dir, Path::new(name)) {
        // It is ours and not for us to read: a folder, as `unlinkat` has just said, and no link is followed.
        Err(Errno::EACCES) => {
            fchmodat(dir, name, Mode::from_bits_truncate(0o700), FchmodatFlags::NoFollowSymlink)?;
            open_folder(dir, Path::new(name))?
        }
        other => other?,
    };
    // A folder without write permission of its own keeps what is in it.
    let _ = fchmod(&inner, Mode::from_bits_truncate(0o700));
    for entry in names(inner.as_fd())? {
        remove(inner.as_fd(), &entry)?;
    }
    unlinkat(dir, name, UnlinkatFlags::RemoveDir)
}

/// What a walk over the folders of a workspace found.
#[derive(Debug, Default)]
pub struct Swept {
    /// Folders that git takes for repositories, relative to the base; empty: the base itself.
    pub git_dirs: Vec<OsString>,
    /// Folders that could not be listed, relative to the base.
    pub unseen: Vec<OsString>,
    /// The walk ended before it had seen everything.
    pub cut: bool,
}

/// Looks for git folders in the whole workspace: by what is in them, for a name is no evidence.
pub fn git_dirs(base: &BaseDir, until: Instant) -> Swept {
    let mut swept = Swept::default();
    let mut left = vec![OsString::new()];
    while let Some(path) = left.pop() {
        if Instant::now() >= until {
            swept.cut = true;
            break;
        }
        let here = if path.is_empty() { Path::new(".") } else { Path::new(&path) };
        let dir = match open_folder(base.as_fd(), here).and_then(Dir::from_fd) {
            Ok(dir) => dir,
            // It has gone meanwhile, or is a link by now, which leads to what is found elsewhere.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
            Err(_) => {
                swept.unseen.push(path);
                continue;
            }
        };
        let (mut head, mut objects, mut refs, mut common) = (false, false, false, false);
        let mut inner = Vec::new();
        for entry in dir.into_iter().flatten() {
            match entry.file_name().to_bytes() {
                b"." | b".." => continue,
                b"HEAD" => head = true,
                b"objects" => objects = true,
                b"refs" => refs = true,
                b"commondir" => common = true,
                _ => {}
            }
            if matches!(entry.file_type(), Some(Type::Directory) | None) {
                inner.push(OsStr::from_bytes(entry.file_name().to_bytes()).to_owned());
            }
        }
        let is_git = head && (objects && refs || common);
        // In a repository's own folders too: somebody may have put one there.
        left.extend(inner.into_iter().map(|name| if path.is_empty() { name } else { Path::new(&path).join(name).into_os_string() }));
        if is_git {
            swept.git_dirs.push(path);
        }
    }
    swept.git_dirs.sort();
    swept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    fn all(_: &OsStr, _: Kind) -> bool {
        true
    }

    #[test]
    fn every_kind_of_change_shows_and_goes() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("d/e")).unwrap();
        fs::write(path("d/e/f"), b"one\xff").unwrap();
        symlink("f", path("d/e/l")).unwrap();
        let name = Path::new("d");
        let (stamp_before, kept) = (stamp(&base, name, all), state(&base, name, all));
        assert_eq!(stamp(&base, name, all), stamp_before);
        let attacks: &[&dyn Fn()] = &[
            &|| fs::write(path("d/e/f"), "two").unwrap(),
            &|| fs::write(path("d/new"), "x").unwrap(),
            &|| fs::remove_file(path("d/e/f")).unwrap(),
            &|| fs::remove_dir_all(path("d")).unwrap(),
            &|| {
                fs::rename(path("d"), path("g")).unwrap();
                fs::create_dir(path("d")).unwrap();
            },
            &|| {
                fs::remove_dir_all(path("d")).unwrap();
                symlink("g", path("d")).unwrap();
            },
            &|| {
                fs::remove_file(path("d/e/l")).unwrap();
                fs::hard_link(path("d/e/f"), path("d/e/l")).unwrap();
            },
        ];
        let mut known = stamp_before;
        for (number, attack) in attacks.iter().enumerate() {
            attack();
            assert_ne!(stamp(&base, name, all), known, "{number}");
            restore(&base, name, &kept, all).unwrap();
            assert_eq!(state(&base, name, all), kept, "{number}");
            known = stamp(&base, name, all);
        }
        assert_eq!(fs::read(path("d/e/f")).unwrap(), b"one\xff");
    }

    #[test]
    fn nothing_is_made_where_nothing_was_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("hooks"), "theirs").unwrap();
        let name = Path::new("g/hooks");
        assert_eq!(state(&base, name, all), State::Absent);
        restore(&base, name, &State::Absent, all).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        symlink(outside.path(), dir.path().join("g")).unwrap();
        assert_eq!(state(&base, name, all), State::Blocked);
        restore(&base, name, &State::Absent, all).unwrap();
        assert_eq!(fs::read(outside.path().join("hooks")).unwrap(), b"theirs");
        assert!(dir.path().join("g").symlink_metadata().is_err());
    }

    #[test]
    fn repositories_are_found_by_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        for folder in ["a/.git/objects", "a/.git/refs", "b/objects", "b/refs", "c/.git"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("a/.git/HEAD"), "x").unwrap();
        fs::write(dir.path().join("c/.git/HEAD"), "x").unwrap();
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git"]);
        fs::write(dir.path().join("c/.git/commondir"), "../../b").unwrap();
        fs::write(dir.path().join("b/HEAD"), "x").unwrap();
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git", "b", "c/.git"]);
        // One in the folders of another is one.
        fs::create_dir_all(dir.path().join("a/.git/objects/ev/objects")).unwrap();
        fs::create_dir_all(dir.path().join("a/.git/objects/ev/refs")).unwrap();
        fs::write(dir.path().join("a/.git/objects/ev/HEAD"), "x").unwrap();
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git", "a/.git/objects/ev", "b", "c/.git"]);
        assert!(git_dirs(&base, Instant::now()).cut);
    }
}
