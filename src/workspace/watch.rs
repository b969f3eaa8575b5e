//! Names that are watched: what they are now, as a stamp and whole, and how they are put back.
//!
//! Nothing here follows a link, neither as the last part of a name nor on the way: a name behind a link is another name. Never makes
//! anything that was not there when it was kept.

mod repositories;

pub use repositories::{Known, Swept, git_dirs, git_dirs_again, git_dirs_behind};

use super::BaseDir;
use super::dir::Kind;
use super::entries::Entries;
use super::{Hash, escape};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, symlinkat, unlinkat};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The most entries of a watched folder that are kept, whole tree.
const ENTRIES: usize = 4096;
/// The most entries that a stamp tells from others. A folder with more has none, and counts as changed each time.
const STAMPED: usize = 1 << 18;
/// The most folders that are held open while names are stamped.
const HELD: usize = 64;
/// How deep a watched folder is looked into.
const DEPTH: usize = 12;
/// The most bytes that are kept of one name, whole tree.
const BYTES: u64 = 4 << 20;

/// What is at a name, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing, or a folder above it is not there, or is a file.
    Absent,
    /// A folder above it is a link, or closed.
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
    /// A FIFO.
    Fifo {
        /// Permission bits.
        mode: u32,
    },
    /// A file that cannot be read or is larger than what is kept, a socket, a device: what tells it from another. It cannot be put back.
    Seen {
        /// Kind, inode, size and change time.
        stamp: String,
    },
    /// More than is kept.
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

/// Opens a folder that its owner has closed to itself, by opening its mode; it stays so. No link is followed. In a jail, which may not
/// change modes by name, that is refused.
fn open_up(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match open_folder(dir, Path::new(name)) {
        Err(Errno::EACCES) => {
            // What is changed is what was opened: a name could lead elsewhere by then.
            let held = open_at(dir, Path::new(name), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
            set_mode(held.as_fd(), fstat(&held)?.st_mode & 0o7777 | 0o700)?;
            open_folder(dir, Path::new(name))
        }
        other => other,
    }
}

/// Changes the mode of what is held without being open, for which `fchmod` has no way.
fn set_mode(held: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
}

/// What tells whether a folder that could not be listed has been opened since, or anything in it made or removed: its change time, which no
/// program can set. `None`: it may be entered without being listed, so what is beneath it can change without a trace.
pub fn closed_stamp(base: &BaseDir, folder: &Path) -> Option<String> {
    let held = open_at(base.as_fd(), folder, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).ok()?;
    let stat = fstat(&held).ok()?;
    (stat.st_mode & 0o111 == 0).then(|| format!("{:o}:{:x}:{:?}", stat.st_mode, stat.st_ino, (stat.st_ctime, stat.st_ctime_nsec)))
}

fn parent(base: &BaseDir, name: &Path) -> Parent {
    let folder = name.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match open_folder(base.as_fd(), folder) {
        Ok(fd) => Parent::Open(fd),
        // A file in the way holds nothing; what is in the place of a link may lead anywhere.
        Err(Errno::ENOENT | Errno::ENOTDIR) => Parent::Absent,
        Err(_) => Parent::Blocked,
    }
}

fn lstat(dir: BorrowedFd<'_>, name: &OsStr) -> Result<FileStat, Errno> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW)
}

/// The entries of a folder, sorted.
fn names(dir: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut names = Vec::new();
    Entries::new().each(dir, |name, _| names.push(OsStr::from_bytes(name).to_owned()))?;
    names.sort();
    Ok(names)
}

/// What tells one state of a name from another: kinds, modes, sizes, times and inodes, and contents as far as they are kept. The kernel's
/// change time is in it, which no program can set. `None`: there is too much to tell.
pub fn stamp(base: &BaseDir, name: &Path, counts: Counts) -> Option<String> {
    stamp_of(&parent(base, name), name, counts, STAMPED)
}

/// The stamps of many names. Folders that hold several are opened once: names are stamped before and after every command.
pub fn stamps<'a>(base: &BaseDir, names: &'a [(PathBuf, Counts)]) -> Vec<Option<String>> {
    let mut parents: HashMap<Option<&Path>, Parent> = HashMap::new();
    let one = |(name, counts): &'a (PathBuf, Counts)| {
        if parents.len() >= HELD {
            parents.clear();
        }
        let parent = parents.entry(name.parent()).or_insert_with(|| parent(base, name));
        stamp_of(parent, name, *counts, STAMPED)
    };
    names.iter().map(one).collect()
}

fn stamp_of(parent: &Parent, name: &Path, counts: Counts, most: usize) -> Option<String> {
    let mut text = String::new();
    match (parent, name.file_name()) {
        (Parent::Open(dir), Some(last)) => {
            let (mut left, mut bytes) = (most, BYTES);
            stamp_one(dir.as_fd(), last, counts, 0, (&mut left, &mut bytes), &mut text)?;
        }
        (Parent::Absent, _) => text.push('-'),
        _ => text.push('!'),
    }
    Some(if text.len() > 80 { Hash::of(text.as_bytes()).to_string() } else { text })
}

fn stamp_one(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    counts: Counts,
    depth: usize,
    (left, bytes): (&mut usize, &mut u64),
    text: &mut String,
) -> Option<()> {
    *left = left.checked_sub(1)?;
    let stat = match lstat(dir, name) {
        Ok(stat) => stat,
        Err(errno) => {
            text.push(if errno == Errno::ENOENT { '-' } else { '!' });
            return Some(());
        }
    };
    let kind = Kind::of_mode(stat.st_mode);
    if depth > 0 && !counts(name, kind) {
        return Some(());
    }
    if depth > 0 {
        let _ = write!(text, "/{}", escape::show(name));
    }
    if kind != Kind::Folder {
        let (mtime, ctime) = ((stat.st_mtime, stat.st_mtime_nsec), (stat.st_ctime, stat.st_ctime_nsec));
        let _ = write!(text, "{:o}:{:x}:{:x}:{mtime:?}:{ctime:?}", stat.st_mode, stat.st_ino, stat.st_size);
        // What is written through a mapping that was writable before moves no time; on tmpfs never.
        if kind == Kind::File
            && u64::try_from(stat.st_size).is_ok_and(|size| (1..=*bytes).contains(&size))
            && let Some(content) = content(dir, name, *bytes)
        {
            *bytes = bytes.saturating_sub(content.len() as u64);
            let _ = write!(text, ":{}", Hash::of(&content));
        }
        return Some(());
    }
    // A folder's own times change with what does not count.
    let _ = write!(text, "d{:o}:{:x}", stat.st_mode, stat.st_ino);
    let inner = if depth < DEPTH { open_folder(dir, Path::new(name)).ok() } else { None };
    let Some(inner) = inner else {
        // Deeper than is looked, there is nothing to tell; what is closed is told by its mode.
        text.push('?');
        return (depth < DEPTH).then_some(());
    };
    for entry in names(inner.as_fd()).unwrap_or_default() {
        stamp_one(inner.as_fd(), &entry, counts, depth + 1, (left, bytes), text)?;
    }
    Some(())
}

/// Whether a folder is there, and no link on the way to it.
pub fn is_folder(base: &BaseDir, path: &Path) -> bool {
    open_folder(base.as_fd(), if path.as_os_str().is_empty() { Path::new(".") } else { path }).is_ok()
}

/// The content of a file; `None`: there is none, or more than is kept.
pub fn file(base: &BaseDir, name: &Path) -> Option<Vec<u8>> {
    match (parent(base, name), name.file_name()) {
        (Parent::Open(dir), Some(last)) if Kind::of_mode(lstat(dir.as_fd(), last).ok()?.st_mode) == Kind::File => {
            content(dir.as_fd(), last, BYTES)
        }
        _ => None,
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
            let Some(content) = content(dir, name, *bytes) else { return Some(State::Seen { stamp: seen(&stat) }) };
            *bytes = bytes.saturating_sub(content.len() as u64);
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
        Kind::Folder => None,
        _ if stat.st_mode & libc::S_IFMT == libc::S_IFIFO => Some(State::Fifo { mode }),
        _ => Some(State::Seen { stamp: seen(&stat) }),
    }
}

/// The bytes of a file; `None`: it cannot be read, or is longer than `most`.
fn content(dir: BorrowedFd<'_>, name: &OsStr, most: u64) -> Option<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file = File::from(open_at(dir, Path::new(name), flags, Mode::empty()).ok()?);
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= most).then_some(content)
}

/// What tells a file from another of the same name, and one content from another.
fn seen(stat: &FileStat) -> String {
    format!("{:o}:{:x}:{:x}:{:?}", stat.st_mode, stat.st_ino, stat.st_size, (stat.st_ctime, stat.st_ctime_nsec))
}

/// Makes a name what it was. What does not count stays.
///
/// # Errors
/// A few words: why it could not be put back.
pub fn restore(base: &BaseDir, name: &Path, kept: &State, counts: Counts) -> Result<(), String> {
    let failed = |errno: Errno| match errno {
        Errno::EFBIG => "what was there was too large to be kept, or no file".to_owned(),
        errno => errno.desc().to_owned(),
    };
    if matches!(kept, State::Unkept | State::Blocked) {
        return Err("it was too large to be kept, or behind a link".into());
    }
    if matches!(parent(base, name), Parent::Blocked) {
        clear_way(base, name).map_err(failed)?;
    }
    // What held it is gone: it is not made again, for a part of a repository is worse than none.
    let Parent::Open(dir) = parent(base, name) else { return Ok(()) };
    let Some(last) = name.file_name() else { return Err(failed(Errno::EINVAL)) };
    put(dir.as_fd(), last, kept, counts).map_err(failed)
}

/// Removes the link, or the file, that stands where a folder above a name has to be; opens a folder that is closed.
fn clear_way(base: &BaseDir, name: &Path) -> Result<(), Errno> {
    let mut dir = open_folder(base.as_fd(), Path::new("."))?;
    for part in name.parent().into_iter().flat_map(Path::components) {
        let part = part.as_os_str();
        match open_up(dir.as_fd(), part) {
            Ok(inner) => dir = inner,
            Err(Errno::ENOENT) => return Ok(()),
            // Only what is no folder: a repository that cannot be entered is not removed for that.
            Err(Errno::ELOOP | Errno::ENOTDIR) => return unlinkat(dir.as_fd(), part, UnlinkatFlags::NoRemoveDir),
            Err(errno) => return Err(errno),
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
    if let State::Seen { stamp } = kept {
        // What takes its place now may be all that there is of it.
        return if lstat(dir, name).is_ok_and(|stat| seen(&stat) == *stamp) { Ok(()) } else { Err(Errno::EFBIG) };
    }
    let kept = match kept {
        // A folder that must go, but holds what does not count, stays with that.
        State::Absent if there == Some(Kind::Folder) && holds_uncounted(dir, name, counts) => &empty,
        kept => kept,
    };
    if there.is_some() && !(there == Some(Kind::Folder) && matches!(kept, State::Folder { .. })) {
        remove(dir, name)?;
    }
    match kept {
        State::Absent | State::Blocked | State::Unkept | State::Seen { .. } => Ok(()),
        State::Fifo { mode } => {
            mkfifoat(dir, name, Mode::from_bits_truncate(0o600))?;
            // What is opened for reading and writing waits for nobody.
            let made = open_at(dir, Path::new(name), OFlag::O_RDWR | OFlag::O_NONBLOCK, Mode::empty())?;
            fchmod(&made, Mode::from_bits_truncate(*mode))
        }
        State::Link { target } => symlinkat(OsStr::from_bytes(&escape::unescape(target)), dir, name),
        State::File { mode, content } => write(dir, name, Mode::from_bits_truncate(*mode), &escape::unescape(content)),
        State::Folder { mode, entries } => {
            if there != Some(Kind::Folder) {
                mkdirat(dir, name, Mode::from_bits_truncate(0o700))?;
            }
            let inner = open_up(dir, name)?;
            // One that cannot be put back keeps no other from it.
            let mut failed = Ok(());
            for entry in names(inner.as_fd())? {
                let kind = Kind::of_mode(lstat(inner.as_fd(), &entry)?.st_mode);
                let shown = escape::show(&entry);
                if counts(&entry, kind) && !entries.iter().any(|(known, _)| *known == shown) {
                    failed = remove(inner.as_fd(), &entry).and(failed);
                }
            }
            for (entry, kept) in entries {
                failed = put(inner.as_fd(), &escape::name(entry), kept, counts).and(failed);
            }
            fchmod(&inner, Mode::from_bits_truncate(*mode)).and(failed)
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
    let inner = open_up(dir, name)?;
    // A folder without write permission of its own keeps what is in it.
    let _ = fchmod(&inner, Mode::from_bits_truncate(0o700));
    for entry in names(inner.as_fd())? {
        remove(inner.as_fd(), &entry)?;
    }
    unlinkat(dir, name, UnlinkatFlags::RemoveDir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

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

    /// What cannot be kept whole keeps nothing else from being put back.
    #[test]
    fn one_that_cannot_be_kept_is_no_way_to_change_others() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("d")).unwrap();
        fs::write(path("d/small"), "one").unwrap();
        nix::unistd::mkfifo(&path("d/fifo"), Mode::from_bits_truncate(0o640)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path("d/socket")).unwrap();
        fs::File::create(path("d/large")).unwrap().set_len(BYTES + 1).unwrap();
        let name = Path::new("d");
        let kept = state(&base, name, all);
        fs::write(path("d/small"), "evil").unwrap();
        fs::write(path("d/new"), "evil").unwrap();
        fs::remove_file(path("d/fifo")).unwrap();
        assert_eq!(restore(&base, name, &kept, all), Ok(()));
        assert_eq!(state(&base, name, all), kept);
        fs::remove_file(path("d/large")).unwrap();
        fs::write(path("d/large"), "evil").unwrap();
        fs::write(path("d/small"), "evil").unwrap();
        assert!(restore(&base, name, &kept, all).unwrap_err().contains("too large"));
        assert_eq!(fs::read(path("d/small")).unwrap(), b"one");
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
    fn a_folder_with_more_than_can_be_told_has_no_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        for number in 0..9 {
            fs::write(dir.path().join(format!("d/{number}.sample")), "").unwrap();
        }
        // What does not count is no way to hide what does.
        let counted: Counts = |name, _| !name.as_bytes().ends_with(b".sample");
        assert!(stamp_of(&parent(&base, Path::new("d")), Path::new("d"), counted, 10).is_some());
        fs::write(dir.path().join("d/a.sample"), "").unwrap();
        assert_eq!(stamp_of(&parent(&base, Path::new("d")), Path::new("d"), counted, 10), None);
        let mut deep = PathBuf::from("d");
        deep.extend(["e"; DEPTH + 2]);
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        assert_eq!(stamp(&base, Path::new("d"), counted), None);
    }

    #[test]
    fn a_closed_repository_is_opened_and_not_removed() {
        if nix::unistd::geteuid().is_root() {
            // Nothing is closed to root: the integration tests show it for a jail of root's, which has no capability.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        let close = |name: &str, mode| fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
        fs::create_dir_all(dir.path().join("a/.git/objects")).unwrap();
        fs::create_dir_all(dir.path().join("a/.git/refs")).unwrap();
        for file in ["HEAD", "config"] {
            fs::write(dir.path().join("a/.git").join(file), "x").unwrap();
        }
        let name = Path::new("a/.git/config");
        let kept = state(&base, name, all);
        for mode in [0o311, 0o000] {
            fs::write(dir.path().join(name), "evil").unwrap();
            close("a/.git", mode);
            restore(&base, name, &kept, all).unwrap();
            assert_eq!(state(&base, name, all), kept);
            assert!(dir.path().join("a/.git/HEAD").exists() && dir.path().join("a/.git/objects").exists());
        }
        close("a", 0o311);
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(git_dirs(&base, far).closed, ["a"]);
        assert_eq!(git_dirs_behind(&base, Path::new("a"), false, far).git_dirs, ["a/.git"]);
        // What is closed and holds no repository stays closed.
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        close("b/c", 0o000);
        close("b", 0o311);
        assert!(git_dirs_behind(&base, Path::new("b"), false, far).git_dirs.is_empty());
        assert_eq!(fs::metadata(dir.path().join("b/c")).unwrap().permissions().mode() & 0o777, 0o000);
        assert_eq!(git_dirs(&base, far).closed, ["b"]);
        assert_eq!(git_dirs_behind(&base, Path::new("b"), true, far).closed, [""; 0]);
        assert!(git_dirs(&base, far).closed.is_empty());
    }
}
