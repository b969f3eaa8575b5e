//! The one way in which a file's content changes: the old bytes or the new ones, never anything between.
//!
//! The new content is written whole to a file of its own in the same folder, flushed, and put in place by one `rename` (or one `link`,
//! when nothing was there); a kill, a full disk or a reader in between sees the old file. Never opens outside the base: all steps hang off
//! the folder that was opened beneath it. Never splits a hard link (see [`in_place`]), and never replaces a link by a file.

use super::base_dir::{BaseDir, Expect, ReplaceOptions, Replaced, fault, identity, io_fault, kind};
use super::in_place;
use super::keep;
use super::locate::{LastLink, Parents, Place, open_name};
use super::staged::{Naming, Staged, sweep};
use super::{Hash, RelPath};
use crate::envelope::{Fault, FaultCode};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{AccessFlags, faccessat};
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

/// How often a replacement starts again because the file was exchanged while it was under way.
const ATTEMPTS: usize = 64;

/// How long another writer's lock on the file is waited for, in milliseconds.
const LOCK_WAIT_MS: u64 = 10_000;

impl BaseDir {
    /// Replaces the content of a file, or makes it. A link as the last part is followed while it stays beneath the base, and stays
    /// a link. Mode, owner, ACL and extended attributes are kept. When this returns, content and name have been flushed to the disk.
    ///
    /// # Errors
    /// As [`Expect`] says: `already_exists`, `stale_file`. `hard_linked` for a file with names outside (see [`in_place`]); `is_directory`,
    /// `not_regular_file`; `permission_denied` also for a file whose own mode forbids writing; `disk_full`; `busy`; and as [`fault`] says.
    /// The old file is untouched after every one of them.
    pub fn replace(&self, path: &RelPath, new: &[u8], options: &ReplaceOptions) -> Result<Replaced, Fault> {
        self.replace_known(path, None, new, options)
    }

    /// The same for one who has the content that is expected at hand: comparing with it costs less than a hash.
    ///
    /// # Errors
    /// As [`BaseDir::replace`].
    pub fn replace_known(&self, path: &RelPath, old: Option<&[u8]>, new: &[u8], options: &ReplaceOptions) -> Result<Replaced, Fault> {
        let parents = if options.create_dirs { Parents::Make } else { Parents::Expect };
        for _ in 0..ATTEMPTS {
            let place = self.locate(path, LastLink::Follow, parents)?;
            match self.refuse_protected(&place.canonical).and_then(|()| replace_at(self, &place, path, (old, new), options)) {
                Ok(Some(done)) => return Ok(done),
                Ok(None) => {}
                Err(fault) => {
                    place.undo();
                    return Err(fault);
                }
            }
        }
        Err(fault(Errno::EAGAIN, path))
    }

    /// What [`BaseDir::replace`] would do, without doing it: whether it would make the file, and where.
    ///
    /// # Errors
    /// Those that can be foreseen, as [`BaseDir::replace`].
    pub fn rehearse(&self, path: &RelPath, options: &ReplaceOptions) -> Result<Rehearsed, Fault> {
        let place = match self.locate(path, LastLink::Follow, Parents::Expect) {
            Err(fault) if fault.code() == FaultCode::NotFound && options.create_dirs => {
                return match options.expect {
                    Expect::Content(expected) => Err(stale(path, expected, None)),
                    _ => Ok(Rehearsed { creates: true, canonical: path.clone() }),
                };
            }
            other => other?,
        };
        self.refuse_protected(&place.canonical)?;
        let Some(meta) = look(&place, path)? else {
            return match options.expect {
                Expect::Content(expected) => Err(stale(path, expected, None)),
                _ => Ok(Rehearsed { creates: true, canonical: place.canonical }),
            };
        };
        if options.expect == Expect::Absent {
            return Err(fault(Errno::EEXIST, path).with("kind", kind(&meta)));
        }
        check_writable(&place, path, &meta)?;
        if let Expect::Content(expected) = options.expect {
            let opened = self.open_file(path)?;
            let found = Hash::of_reader(&opened.file).map_err(|error| io_fault(&error, path))?;
            if found != expected {
                return Err(stale(path, expected, Some((found, &opened.meta))));
            }
        }
        if meta.nlink() > 1 {
            in_place::names(self, path, &meta)?;
        }
        Ok(Rehearsed { creates: false, canonical: place.canonical })
    }
}

/// What a replacement would do.
#[derive(Debug)]
pub struct Rehearsed {
    /// Nothing is there yet.
    pub creates: bool,
    /// The path beneath the base that would be written, links resolved as far as they exist.
    pub canonical: RelPath,
}

/// One attempt. `None`: what is at the place changed meanwhile, start again.
fn replace_at(
    base: &BaseDir,
    place: &Place,
    path: &RelPath,
    (known, new): (Option<&[u8]>, &[u8]),
    options: &ReplaceOptions,
) -> Result<Option<Replaced>, Fault> {
    sweep(place.parent.as_fd());
    let Some(meta) = look(place, path)? else { return create(place, path, new, options) };
    if options.expect == Expect::Absent {
        return Err(fault(Errno::EEXIST, path).with("kind", kind(&meta)));
    }
    if meta.is_symlink() {
        return Ok(None);
    }
    check_writable(place, path, &meta)?;
    let Some(old) = open_locked(place, path, &meta)? else { return Ok(None) };
    if let Expect::Content(expected) = options.expect
        && !known.is_some_and(|known| holds(&old.file, &old.meta, known))
    {
        let found = Hash::of_reader(&old.file).map_err(|error| io_fault(&error, path))?;
        if found != expected {
            return Err(stale(path, expected, Some((found, &old.meta))));
        }
    }
    let mode = keep::kept_mode(&old.meta, options.executable);
    if old.meta.nlink() > 1 {
        let names = in_place::write(base, place, path, &old.meta, new)?;
        let mut notices = Vec::new();
        if mode != old.meta.mode() & 0o1777 && fchmod(&old.file, Mode::from_bits_truncate(mode)).is_err() {
            notices.push("the executable bits could not be changed: the file has another owner".into());
        }
        let names = names.into_iter().map(RelPath::from_relative).collect();
        return Ok(Some(Replaced { created: false, hash: Hash::of_content(new), canonical: place.canonical.clone(), names, notices }));
    }
    let notices = with_staged(place, path, Mode::from_bits_truncate(mode & 0o600), |staged| {
        fill(staged.file(), new, path)?;
        let notices = keep::take_over(staged.file(), &old.file, &old.meta, mode).map_err(|errno| change_fault(errno, path))?;
        flush(staged.file(), new, path)?;
        Ok((notices, Publish::Over))
    })?;
    place.flush().map_err(|errno| change_fault(errno, path))?;
    Ok(Some(Replaced { created: false, hash: Hash::of_content(new), canonical: place.canonical.clone(), names: Vec::new(), notices }))
}

/// Makes a file where nothing is.
fn create(place: &Place, path: &RelPath, new: &[u8], options: &ReplaceOptions) -> Result<Option<Replaced>, Fault> {
    if let Expect::Content(expected) = options.expect {
        return Err(stale(path, expected, None));
    }
    // The kernel takes off what the umask, or the folder's default ACL, takes off.
    let mode = Mode::from_bits_truncate(if options.executable == Some(true) { 0o777 } else { 0o666 });
    let made = with_staged(place, path, mode, |staged| {
        fill(staged.file(), new, path)?;
        flush(staged.file(), new, path)?;
        Ok(((), Publish::New))
    });
    match made {
        Ok(()) => {}
        Err(fault) if fault.code() == FaultCode::AlreadyExists && options.expect != Expect::Absent => return Ok(None),
        Err(fault) => return Err(fault),
    }
    place.flush().map_err(|errno| change_fault(errno, path))?;
    Ok(Some(Replaced {
        created: true,
        hash: Hash::of_content(new),
        canonical: place.canonical.clone(),
        names: Vec::new(),
        notices: Vec::new(),
    }))
}

/// How a staged file gets its name.
pub(super) enum Publish {
    /// Only if nothing has the name.
    New,
    /// In place of the file that has it.
    Over,
}

/// Runs `write` on a staged file and publishes it: one without a name where the file system can, else one with a temporary name.
pub(super) fn with_staged<T>(
    place: &Place,
    path: &RelPath,
    mode: Mode,
    mut write: impl FnMut(&Staged<'_>) -> Result<(T, Publish), Fault>,
) -> Result<T, Fault> {
    let mut attempt = |naming| {
        let staged = match Staged::new(place.parent.as_fd(), mode, naming) {
            Err(Errno::EOPNOTSUPP) if naming == Naming::Unnamed => return Ok(None),
            other => other.map_err(|errno| change_fault(errno, path))?,
        };
        let (done, publish) = write(&staged)?;
        let published = match publish {
            Publish::New => staged.publish_new(&place.name),
            Publish::Over => staged.publish_over(&place.name),
        };
        match published {
            Ok(()) => Ok(Some(done)),
            Err(Errno::EOPNOTSUPP) if naming == Naming::Unnamed => Ok(None),
            Err(errno) => Err(change_fault(errno, path)),
        }
    };
    match attempt(Naming::Unnamed)? {
        Some(done) => Ok(done),
        None => attempt(Naming::Named)?.ok_or_else(|| change_fault(Errno::EOPNOTSUPP, path)),
    }
}

/// A file that is there, open and locked.
struct Old {
    file: File,
    meta: Metadata,
}

/// What has the name, if anything; a link is not followed and nothing is opened for content.
pub(super) fn look(place: &Place, path: &RelPath) -> Result<Option<Metadata>, Fault> {
    match open_name(place.parent.as_fd(), &place.name, OFlag::O_PATH) {
        Ok(fd) => File::from(fd).metadata().map(Some).map_err(|error| io_fault(&error, path)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(fault(errno, path)),
    }
}

/// Refuses what is no regular file, and a file that says it is not to be written.
fn check_writable(place: &Place, path: &RelPath, meta: &Metadata) -> Result<(), Fault> {
    if meta.is_dir() {
        return Err(fault(Errno::EISDIR, path));
    }
    if !meta.is_file() {
        return Err(Fault::new(FaultCode::NotRegularFile, format!("{path} is {}, not a file", kind(meta))));
    }
    // A rename needs no right on the file itself, so its mode has to be asked.
    let flags = AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW;
    match faccessat(&place.parent, place.name.as_os_str(), AccessFlags::W_OK, flags) {
        Err(errno @ (Errno::EACCES | Errno::EROFS | Errno::EPERM)) => {
            Err(fault(errno, path).with("mode", format!("{:04o}", meta.mode() & 0o7777)))
        }
        _ => Ok(()),
    }
}

/// Opens and locks the file that was looked at. `None`: another one has its name by now.
fn open_locked(place: &Place, path: &RelPath, meta: &Metadata) -> Result<Option<Old>, Fault> {
    let open = |access| open_name(place.parent.as_fd(), &place.name, access | OFlag::O_NONBLOCK | OFlag::O_NOCTTY);
    let opened = match open(OFlag::O_RDONLY) {
        // A file that may only be written has attributes to keep all the same.
        Err(Errno::EACCES) => open(OFlag::O_WRONLY),
        other => other,
    };
    let file = match opened {
        Ok(fd) => File::from(fd),
        Err(Errno::ENOENT | Errno::ELOOP | Errno::ENXIO) => return Ok(None),
        Err(errno) => return Err(fault(errno, path)),
    };
    let mut waited = 0;
    loop {
        match sys::try_lock(file.as_fd()) {
            Err(Errno::EWOULDBLOCK | Errno::EINTR) if waited < LOCK_WAIT_MS => {
                std::thread::sleep(Duration::from_millis(1));
                waited += 1;
            }
            Err(Errno::EWOULDBLOCK) => {
                return Err(Fault::new(FaultCode::Busy, format!("{path} is locked by another process")).hint("try again"));
            }
            // A file system without locks: what remains is the check before the rename.
            _ => break,
        }
    }
    // Whoever had the lock may have put another file in place.
    let here = file.metadata().map_err(|error| io_fault(&error, path))?;
    match look(place, path)? {
        Some(now) if identity(&now) == identity(&here) && identity(&here) == identity(meta) => Ok(Some(Old { file, meta: here })),
        _ => Ok(None),
    }
}

/// Whether a file holds exactly this content. A file that cannot be read does not, as far as is known; the hash then says so.
fn holds(file: &File, meta: &Metadata, content: &[u8]) -> bool {
    if meta.len() != content.len() as u64 {
        return false;
    }
    let mut piece = vec![0; 64 * 1024];
    let mut at = 0;
    loop {
        match file.read_at(&mut piece, at as u64) {
            Ok(0) => return at == content.len(),
            Ok(length) if content.get(at..at + length) == Some(&piece[..length]) => at += length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
}

/// Writes everything.
fn fill(mut file: &File, new: &[u8], path: &RelPath) -> Result<(), Fault> {
    file.write_all(new).map_err(|error| write_fault(&error, path))
}

/// Flushes, and makes sure that the file is as long as it should be.
fn flush(file: &File, new: &[u8], path: &RelPath) -> Result<(), Fault> {
    file.sync_all().map_err(|error| write_fault(&error, path))?;
    let length = file.metadata().map_err(|error| io_fault(&error, path))?.len();
    if length != new.len() as u64 {
        return Err(Fault::new(FaultCode::IoError, format!("{path}: {length} of {} bytes were written", new.len())));
    }
    Ok(())
}

/// The fault of a system call that changes something. Here `EXDEV` is about two file systems, not about the base.
pub(super) fn change_fault(errno: Errno, path: &RelPath) -> Fault {
    match errno {
        Errno::EXDEV => Fault::new(FaultCode::IoError, format!("{path}: the two names are on different file systems")),
        Errno::EFBIG => Fault::new(FaultCode::TooLarge, format!("{path} would be larger than a file may be here")),
        errno => fault(errno, path),
    }
}

pub(super) fn write_fault(error: &std::io::Error, path: &RelPath) -> Fault {
    match error.raw_os_error() {
        Some(code) => change_fault(Errno::from_raw(code), path),
        None => io_fault(error, path),
    }
}

fn stale(path: &RelPath, expected: Hash, found: Option<(Hash, &Metadata)>) -> Fault {
    let fault = match found {
        None => Fault::new(FaultCode::StaleFile, format!("{path} is gone; it was there when it was read")),
        Some((found, meta)) => Fault::new(FaultCode::StaleFile, format!("{path} has changed since it was read"))
            .with("hash", found.to_string())
            .with("size", meta.len())
            .with("mtime", meta.mtime()),
    };
    fault.with("expected_hash", expected.to_string()).hint("read it again; nothing was written")
}

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;
