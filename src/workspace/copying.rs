//! Files and trees copied.
//!
//! Never follows a link on the way: a link is copied as a link, with its text. Never overwrites what was not to be overwritten, in a
//! race neither: the kernel decides (`link`, `O_EXCL`). Each file is written whole before it gets its name.

use super::RelPath;
use super::base_dir::{BaseDir, fault, identity, io_fault, kind};
use super::entries::Entries;
use super::locate::{LastLink, Parents, Place, flush_dir, open_name};
use super::replace::{Publish, change_fault, look, with_staged};
use super::transfer::{Existing, clone, into_itself, taken};
use crate::envelope::{Fault, FaultCode};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{UnlinkatFlags, Whence, ftruncate, lseek, symlinkat, unlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// How deep a tree may be that is copied; each level holds two descriptors.
const DEPTH: usize = 200;

/// What a copy did.
#[derive(Debug, Default)]
pub struct Copied {
    /// The new path beneath the base, links resolved.
    pub canonical: Option<RelPath>,
    /// Regular files copied.
    pub files: u64,
    /// Folders made.
    pub folders: u64,
    /// Links copied, as links.
    pub links: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Files whose blocks are shared with the original.
    pub reflinked: u64,
    /// Paths that were left out, each with the reason.
    pub skipped: Vec<String>,
}

impl BaseDir {
    /// Copies a file, a link (as a link) or a whole folder. Modes are kept, blocks are shared where the file system can.
    /// A file is copied whole or not at all; a folder file by file, and a failure says how far it came.
    ///
    /// # Errors
    /// `already_exists`, `not_regular_file`, `invalid_arguments` for a folder into itself, `hard_linked` for a file with several names that
    /// would be overwritten, `deadline_exceeded`, `disk_full`, and as [`fault`] says.
    pub fn copy(&self, from: &RelPath, to: &RelPath, existing: Existing, deadline: Instant) -> Result<Copied, Fault> {
        let (from, to) = (&self.folder_name(from)?, &self.folder_name(to)?);
        let mut copied = Copied::default();
        if from.is_base() {
            return Err(into_itself(from));
        }
        let source = self.locate(from, LastLink::Keep, Parents::Expect)?;
        let Some(meta) = look(&source, from)? else { return Err(fault(Errno::ENOENT, from)) };
        // A file goes through a link to the file behind it, as in `write`; anything else has to have the name for itself.
        // A name that must be free is taken by a link, too, wherever that leads.
        let last = if meta.is_file() && existing == Existing::Overwrite { LastLink::Follow } else { LastLink::Keep };
        let target = self.locate(to, last, Parents::Make)?;
        let mut copier = Copier { existing, deadline, copied: &mut copied, target: None };
        let result = self.refuse_protected(&target.canonical).and_then(|()| copier.entry(&source, from, &meta, &target, to, 0));
        match result {
            Ok(()) => {
                target.flush().map_err(|errno| change_fault(errno, to))?;
                copied.canonical = Some(target.canonical);
                Ok(copied)
            }
            Err(fault) => {
                target.undo();
                if copied.folders + copied.files + copied.links == 0 {
                    return Err(fault);
                }
                let fault = match fault.hint_text() {
                    Some(_) => fault,
                    None => fault.hint(format!("what was copied until then is left in {to}; \"overwrite\": true goes on over it")),
                };
                Err(fault
                    .with("incomplete", to.to_string())
                    .with("files_copied", copied.files)
                    .with("folders_made", copied.folders)
                    .with("bytes_copied", copied.bytes))
            }
        }
    }
}

struct Copier<'a> {
    existing: Existing,
    deadline: Instant,
    copied: &'a mut Copied,
    /// The folder that is copied to, so that it is not copied into itself.
    target: Option<(u64, u64)>,
}

impl Copier<'_> {
    fn entry(&mut self, source: &Place, from: &RelPath, meta: &Metadata, target: &Place, to: &RelPath, depth: usize) -> Result<(), Fault> {
        if Instant::now() >= self.deadline {
            return Err(Fault::new(FaultCode::DeadlineExceeded, format!("the copy was not done in time; it came as far as {from}")));
        }
        if meta.is_file() {
            self.file(source, from, meta, target, to, depth)
        } else if meta.is_symlink() {
            self.link(source, from, target, to)
        } else if meta.is_dir() {
            self.folder(source, from, meta, target, to, depth)
        } else if depth == 0 {
            Err(Fault::new(FaultCode::NotRegularFile, format!("{from} is {}, not a file", kind(meta))))
        } else {
            self.copied.skipped.push(format!("{from}: {}", kind(meta)));
            Ok(())
        }
    }

    fn file(&mut self, source: &Place, from: &RelPath, meta: &Metadata, target: &Place, to: &RelPath, depth: usize) -> Result<(), Fault> {
        let there = look(target, to)?;
        if let Some(there) = &there {
            if identity(there) == identity(meta) {
                return Err(Fault::new(FaultCode::NoChange, format!("{from} and {to} are the same file")));
            }
            if there.is_dir() || self.existing == Existing::Refuse {
                return Err(taken(to, there));
            }
            if there.is_file() && there.nlink() > 1 {
                return Err(Fault::new(FaultCode::HardLinked, format!("{to} is one of {} names of the same file", there.nlink())));
            }
        }
        let opened = open_name(source.parent.as_fd(), &source.name, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .map_err(|errno| fault(errno, from))?;
        let opened = File::from(opened);
        let now = opened.metadata().map_err(|error| io_fault(&error, from))?;
        if identity(&now) != identity(meta) {
            return Err(fault(Errno::EAGAIN, from));
        }
        // setuid and setgid are not copied: the copy may have another owner.
        let mode = Mode::from_bits_truncate(now.mode() & 0o777);
        let (bytes, shared) = with_staged(target, to, mode & Mode::S_IRWXU, |staged| {
            let done = content(&opened, staged.file(), &mut || Instant::now() < self.deadline).map_err(|errno| match errno {
                Errno::ETIME => Fault::new(FaultCode::DeadlineExceeded, format!("{from} could not be copied in time")),
                errno => change_fault(errno, to),
            })?;
            fchmod(staged.file(), mode).map_err(|errno| change_fault(errno, to))?;
            // A file of its own, and one that takes another's place, lasts when the call returns; the files of a fresh tree need not.
            if depth == 0 || there.is_some() {
                staged.file().sync_all().map_err(|error| io_fault(&error, to))?;
            }
            Ok((done, if there.is_some() { Publish::Over } else { Publish::New }))
        })?;
        self.copied.files += 1;
        self.copied.bytes += bytes;
        self.copied.reflinked += u64::from(shared);
        Ok(())
    }

    fn link(&mut self, source: &Place, from: &RelPath, target: &Place, to: &RelPath) -> Result<(), Fault> {
        let text = readlinkat(&source.parent, source.name.as_os_str()).map_err(|errno| fault(errno, from))?;
        if let Some(there) = look(target, to)? {
            if there.is_dir() || self.existing == Existing::Refuse {
                return Err(taken(to, &there));
            }
            if there.is_symlink() && readlinkat(&target.parent, target.name.as_os_str()).is_ok_and(|old| old == text) {
                return Ok(());
            }
            unlinkat(&target.parent, target.name.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(|errno| change_fault(errno, to))?;
        }
        symlinkat(text.as_os_str(), &target.parent, target.name.as_os_str()).map_err(|errno| change_fault(errno, to))?;
        self.copied.links += 1;
        Ok(())
    }

    fn folder(&mut self, source: &Place, from: &RelPath, meta: &Metadata, target: &Place, to: &RelPath, depth: usize) -> Result<(), Fault> {
        if depth >= DEPTH {
            return Err(Fault::new(FaultCode::TooLarge, format!("{from} is more than {DEPTH} folders deep")));
        }
        if self.target == Some(identity(meta)) {
            return Err(into_itself(from));
        }
        if depth == 0 && target.canonical.as_path().starts_with(source.canonical.as_path()) {
            return Err(into_itself(from));
        }
        let from_dir = open_name(source.parent.as_fd(), &source.name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|e| fault(e, from))?;
        // Writable while it is filled; its own mode comes last.
        let made = match mkdirat(&target.parent, target.name.as_os_str(), Mode::S_IRWXU) {
            Ok(()) => {
                self.copied.folders += 1;
                true
            }
            Err(Errno::EEXIST) => match look(target, to)? {
                Some(there) if there.is_dir() && self.existing == Existing::Overwrite => false,
                Some(there) => return Err(taken(to, &there)),
                None => return Err(fault(Errno::EAGAIN, to)),
            },
            Err(errno) => return Err(change_fault(errno, to)),
        };
        let to_dir = open_name(target.parent.as_fd(), &target.name, OFlag::O_RDONLY | OFlag::O_DIRECTORY).map_err(|e| fault(e, to))?;
        if depth == 0 {
            let meta = File::from(clone(&to_dir, to)?).metadata().map_err(|error| io_fault(&error, to))?;
            self.target = Some(identity(&meta));
        }
        let (source, mut target) =
            (Place::within(from_dir, source.canonical.join(&source.name)), Place::within(to_dir, target.canonical.join(&target.name)));
        let mut source = source;
        for name in names(&source.parent, from)? {
            source.name.clone_from(&name);
            target.name = name;
            let (from, to) = (from.join(&source.name), to.join(&target.name));
            // Gone since it was listed: then there is nothing to copy.
            let Some(meta) = look(&source, &from)? else { continue };
            self.entry(&source, &from, &meta, &target, &to, depth + 1)?;
        }
        if made {
            fchmod(&target.parent, Mode::from_bits_truncate(meta.mode() & 0o1777)).map_err(|errno| change_fault(errno, to))?;
        }
        flush_dir(target.parent.as_fd()).map_err(|errno| change_fault(errno, to))
    }
}

/// Copies content: shared blocks, else inside the kernel, else through a buffer; holes stay holes. Returns the bytes, and whether the
/// blocks are shared. `go_on` is asked before each piece of some megabytes; `ETIME` when it says no.
pub(super) fn content(from: &File, to: &File, go_on: &mut dyn FnMut() -> bool) -> Result<(u64, bool), Errno> {
    let size = from.metadata().map_err(|error| errno(&error))?.len();
    if sys::clone_file(from.as_fd(), to.as_fd()).is_ok() {
        return Ok((size, true));
    }
    let mut at: i64 = 0;
    loop {
        let data = match lseek(from, at, Whence::SeekData) {
            Ok(data) => data,
            Err(Errno::ENXIO) => break,
            Err(Errno::EINVAL | Errno::EOPNOTSUPP) => at,
            Err(errno) => return Err(errno),
        };
        let hole = match lseek(from, data, Whence::SeekHole) {
            Ok(hole) => hole,
            Err(Errno::ENXIO) => break,
            Err(_) => i64::try_from(size).unwrap_or(i64::MAX),
        };
        if hole <= data {
            break;
        }
        at = range(from, to, data, hole, go_on)?;
        if at < hole {
            // Cut off by somebody else while it was read.
            break;
        }
    }
    let size = from.metadata().map_err(|error| errno(&error))?.len();
    ftruncate(to, i64::try_from(size).map_err(|_| Errno::EFBIG)?)?;
    Ok((size, false))
}

/// Copies one range; returns where it ended.
fn range(mut from: &File, mut to: &File, start: i64, end: i64, go_on: &mut dyn FnMut() -> bool) -> Result<i64, Errno> {
    const STEP: i64 = 8 << 20;
    let (mut read_at, mut write_at) = (start, start);
    while read_at < end {
        if !go_on() {
            return Err(Errno::ETIME);
        }
        let step = usize::try_from((end - read_at).min(STEP)).unwrap_or(0);
        match sys::copy_range(from.as_fd(), &mut read_at, to.as_fd(), &mut write_at, step) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::EINTR) => {}
            Err(Errno::EXDEV | Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EPERM) => {
                lseek(from, read_at, Whence::SeekSet)?;
                lseek(to, write_at, Whence::SeekSet)?;
                let mut buffer = vec![0; step.min(256 << 10)];
                let read = from.read(&mut buffer).map_err(|error| errno(&error))?;
                if read == 0 {
                    break;
                }
                to.write_all(&buffer[..read]).map_err(|error| errno(&error))?;
                let read = i64::try_from(read).unwrap_or(0);
                (read_at, write_at) = (read_at + read, write_at + read);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(read_at)
}

/// The names in an open folder, sorted; temporary ones are left out.
pub(super) fn names(dir: &impl AsFd, path: &RelPath) -> Result<Vec<OsString>, Fault> {
    let mut names = Vec::new();
    let listed = Entries::new().each(dir.as_fd(), |name, _| {
        if !name.starts_with(super::locate::TEMPORARY_PREFIX.as_bytes()) {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    });
    listed.map_err(|errno| fault(errno, path))?;
    names.sort();
    Ok(names)
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
