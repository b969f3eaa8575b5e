//! A file with several names, written in place.
//!
//! A rename would split the names; a write in place reaches all of them. So it is done only when a walk finds every name beneath the
//! base, and only with a journal: old and new content are put outside the workspace first, and a write that was cut off by a kill is
//! undone from there by [`BaseDir::recover_journal`]. Unlike a replacement, a reader can see such a write half done.

use super::base_dir::{BaseDir, fault, identity, io_fault, open_beneath};
use super::locate::{Place, flush_dir, open_folder, open_name};
use super::replace::{change_fault, write_fault};
use super::staged::{Naming, Staged};
use super::{Hash, RelPath, escape};
use crate::envelope::{Fault, FaultCode};
use crate::sys;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, ftruncate, unlinkat};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the names of a file are looked for.
const WALK: Duration = Duration::from_millis(50);

/// The largest content, old or new, that is written in place.
const MOST: u64 = 64 << 20;

/// How the name of a record ends.
const SUFFIX: &str = ".undo";

/// The first line of a record; the old content and the new one follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// All names of the file, relative to the base, escaped.
    names: Vec<String>,
    dev: u64,
    ino: u64,
    old_size: usize,
    new_size: usize,
    /// Of old and new content together.
    hash: Hash,
}

/// What [`BaseDir::recover_journal`] did.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Files that hold their old content again.
    pub restored: Vec<RelPath>,
    /// Files that somebody else has changed since, or that are not found any more; they are left as they are.
    pub left: Vec<RelPath>,
}

/// Every name of a file, when all of them are beneath the base.
///
/// # Errors
/// `hard_linked` when one is not, when the walk took too long, or when there is no journal.
pub(super) fn names(base: &BaseDir, path: &RelPath, meta: &Metadata) -> Result<Vec<PathBuf>, Fault> {
    let refuse = |why: &str| {
        Fault::new(FaultCode::HardLinked, format!("{path} is one of {} names of the same file, {why}; it was not changed", meta.nlink()))
            .hint("copy it to a new name and rename the copy over it, if the names may part")
            .with("links", meta.nlink())
    };
    if base.journal().is_none() {
        return Err(refuse("and there is no journal for a write in place"));
    }
    match walk(base, identity(meta), Instant::now() + WALK) {
        Some(names) if names.len() as u64 == meta.nlink() => Ok(names),
        Some(_) => Err(refuse("some of them outside the workspace")),
        None => Err(refuse("and the workspace is too large to find them all")),
    }
}

/// The names of a file beneath the base. `None`: not done in time, or not everything could be read.
fn walk(base: &BaseDir, wanted: (u64, u64), deadline: Instant) -> Option<Vec<PathBuf>> {
    let mut folders = vec![PathBuf::from(".")];
    let mut found = Vec::new();
    // A folder that is mounted at two places is one folder.
    let mut seen = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
        let Ok(dir) = open_beneath(base.as_fd(), &folder, flags, Mode::empty()) else { continue };
        let meta = File::from(dir.try_clone().ok()?).metadata().ok()?;
        if meta.dev() != wanted.0 || !seen.insert(meta.ino()) {
            continue;
        }
        for entry in Dir::from_fd(dir).ok()? {
            if Instant::now() >= deadline {
                return None;
            }
            let entry = entry.ok()?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let path = if folder == Path::new(".") { PathBuf::from(OsStr::from_bytes(name)) } else { folder.join(OsStr::from_bytes(name)) };
            match entry.file_type() {
                // Some file systems do not say; what is no folder does not open as one.
                Some(Type::Directory) | None => folders.push(path.clone()),
                Some(_) => {}
            }
            if entry.ino() == wanted.1 {
                found.push(path);
            }
        }
    }
    Some(found)
}

/// Writes a locked file in place, under a journal; says all its names.
pub(super) fn write(base: &BaseDir, place: &Place, path: &RelPath, meta: &Metadata, new: &[u8]) -> Result<Vec<PathBuf>, Fault> {
    let names = names(base, path, meta)?;
    let Some(journal) = base.journal() else { return Err(fault(Errno::ENOTSUP, path)) };
    if meta.len() > MOST || new.len() as u64 > MOST {
        return Err(Fault::new(FaultCode::TooLarge, format!("{path} has several names, and is too large to be written in place"))
            .with("size", meta.len().max(new.len() as u64))
            .with("limit", MOST));
    }
    let file = open_name(place.parent.as_fd(), &place.name, OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
        .map_err(|errno| fault(errno, path))?;
    let file = File::from(file);
    let here = file.metadata().map_err(|error| io_fault(&error, path))?;
    if identity(&here) != identity(meta) {
        return Err(fault(Errno::EAGAIN, path));
    }
    let record = record_name(meta);
    // A record of this file is one of a writer that died: the lock on the file is ours.
    if let Ok(stale) = open_name(journal, &record, OFlag::O_RDONLY) {
        undo(base, &mut File::from(stale), Some(&file)).map_err(|error| io_fault(&error, path))?;
        unlinkat(journal, record.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(|errno| change_fault(errno, path))?;
    }
    let mut old = Vec::new();
    (&file).take(MOST + 1).read_to_end(&mut old).map_err(|error| io_fault(&error, path))?;
    // The room is taken before the first byte is overwritten, so that a full disk is met while nothing has happened.
    let length = i64::try_from(new.len()).unwrap_or(i64::MAX);
    if new.len() > old.len() {
        match fallocate(&file, FallocateFlags::FALLOC_FL_KEEP_SIZE, 0, length) {
            Ok(()) | Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {}
            Err(errno) => return Err(change_fault(errno, path)),
        }
    }
    put_record(journal, &record, &names, meta, &old, new).map_err(|error| write_fault(&error, path))?;
    let written = overwrite(&file, new).or_else(|error| overwrite(&file, &old).and(Err(error)));
    match written {
        Ok(()) => {}
        // The old content could be put back, or the record stays for the next start to do it.
        Err(error) if holds(&file, &old) => {
            let _ = unlinkat(journal, record.as_os_str(), UnlinkatFlags::NoRemoveDir);
            return Err(write_fault(&error, path));
        }
        Err(error) => return Err(write_fault(&error, path).hint("the old content is in the journal and comes back at the next start")),
    }
    unlinkat(journal, record.as_os_str(), UnlinkatFlags::NoRemoveDir)
        .and_then(|()| flush_dir(journal))
        .map_err(|errno| fault(errno, path))?;
    Ok(names)
}

fn overwrite(file: &File, content: &[u8]) -> std::io::Result<()> {
    file.write_all_at(content, 0)?;
    ftruncate(file, i64::try_from(content.len()).unwrap_or(i64::MAX))?;
    file.sync_all()
}

fn holds(file: &File, content: &[u8]) -> bool {
    read_all(file).is_ok_and(|bytes| bytes == content)
}

fn read_all(file: &File) -> std::io::Result<Vec<u8>> {
    let length = usize::try_from(file.metadata()?.len().min(MOST)).unwrap_or(0);
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn record_name(meta: &Metadata) -> OsString {
    OsString::from(format!("{:x}-{:x}{SUFFIX}", meta.dev(), meta.ino()))
}

/// Puts a record into the journal: it is there whole, or not at all.
fn put_record(journal: BorrowedFd<'_>, name: &OsStr, names: &[PathBuf], meta: &Metadata, old: &[u8], new: &[u8]) -> std::io::Result<()> {
    let header = Header {
        names: names.iter().map(|name| escape::show(name.as_os_str())).collect(),
        dev: meta.dev(),
        ino: meta.ino(),
        old_size: old.len(),
        new_size: new.len(),
        hash: Hash::of(&[old, new].concat()),
    };
    let attempt = |naming| -> Result<(), std::io::Error> {
        let staged = Staged::new(journal, Mode::S_IRUSR | Mode::S_IWUSR, naming)?;
        let mut file = staged.file();
        serde_json::to_writer(&mut file, &header)?;
        file.write_all(b"\n")?;
        file.write_all(old)?;
        file.write_all(new)?;
        file.sync_all()?;
        staged.publish_new(name)?;
        Ok(flush_dir(journal)?)
    };
    match attempt(Naming::Unnamed) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => attempt(Naming::Named),
        other => other,
    }
}

impl BaseDir {
    /// Undoes writes in place that a kill cut off. To be called when a `Change` jail starts, with the journal given.
    ///
    /// # Errors
    /// As [`fault`] says, when the journal cannot be read.
    pub fn recover_journal(&self) -> Result<Recovered, Fault> {
        let mut recovered = Recovered::default();
        let Some(journal) = self.journal() else { return Ok(recovered) };
        let shown = RelPath::from_relative("(journal)");
        let listing = open_folder(journal, Path::new(".")).map_err(|errno| fault(errno, &shown))?;
        let mut records = Vec::new();
        for entry in Dir::from_fd(listing).map_err(|errno| fault(errno, &shown))? {
            let name = entry.map_err(|errno| fault(errno, &shown))?.file_name().to_bytes().to_vec();
            if name.ends_with(SUFFIX.as_bytes()) {
                records.push(OsString::from_vec(name));
            }
        }
        records.sort();
        for record in records {
            let Ok(file) = open_name(journal, &record, OFlag::O_RDONLY) else { continue };
            match undo(self, &mut File::from(file), None).map_err(|error| io_fault(&error, &shown))? {
                Undone::Busy => continue,
                Undone::Restored(path) => recovered.restored.push(path),
                Undone::Left(path) => recovered.left.push(path),
                Undone::NoRecord => {}
            }
            unlinkat(journal, record.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(|errno| fault(errno, &shown))?;
        }
        Ok(recovered)
    }
}

/// What came of one record.
enum Undone {
    /// The file holds its old content again.
    Restored(RelPath),
    /// The file is not what the write in place left: it is not touched.
    Left(RelPath),
    /// A live writer has the file.
    Busy,
    /// The record is none.
    NoRecord,
}

/// Undoes one write. `held`: the file, when the caller has its lock.
fn undo(base: &BaseDir, record: &mut File, held: Option<&File>) -> std::io::Result<Undone> {
    let mut bytes = Vec::new();
    record.read_to_end(&mut bytes)?;
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return Ok(Undone::NoRecord) };
    let (Ok(header), content) = (serde_json::from_slice::<Header>(&bytes[..end]), &bytes[end + 1..]) else {
        return Ok(Undone::NoRecord);
    };
    if header.old_size.checked_add(header.new_size) != Some(content.len()) || Hash::of(content) != header.hash {
        return Ok(Undone::NoRecord);
    }
    let (old, new) = content.split_at(header.old_size);
    let mut shown = RelPath::base();
    for name in &header.names {
        let name = PathBuf::from(escape::name(name));
        if name.is_absolute() {
            continue;
        }
        let path = RelPath::from_relative(name);
        shown = path.clone();
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW;
        let Ok(file) = open_beneath(base.as_fd(), path.as_path(), flags, Mode::empty()) else { continue };
        let file = File::from(file);
        if identity(&file.metadata()?) != (header.dev, header.ino) {
            continue;
        }
        if held.is_none() && sys::try_lock(file.as_fd()) == Err(Errno::EWOULDBLOCK) {
            return Ok(Undone::Busy);
        }
        if !is_between(&read_all(&file)?, old, new) {
            return Ok(Undone::Left(path));
        }
        overwrite(&file, old)?;
        return Ok(Undone::Restored(path));
    }
    Ok(Undone::Left(shown))
}

/// Whether a content is what a cut-off write of `new` over `old` leaves: at each place a byte of the one or of the other.
fn is_between(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    let within = found.len() >= old.len().min(new.len()) && found.len() <= old.len().max(new.len());
    within && found.iter().enumerate().all(|(at, byte)| old.get(at) == Some(byte) || new.get(at) == Some(byte))
}
