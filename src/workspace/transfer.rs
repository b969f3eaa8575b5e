//! Folders made and names changed.
//!
//! Never follows a link out of the base: a link is renamed itself. Never overwrites what was not to be overwritten, in a race neither:
//! the kernel decides (`RENAME_NOREPLACE`).

use super::base_dir::{BaseDir, fault, identity, io_fault, kind};
use super::locate::{LastLink, Parents, Place, flush_dir, open_folder};
use super::replace::{change_fault, look};
use super::{RelPath, staged};
use crate::envelope::{Fault, FaultCode};
use crate::sys;
use nix::errno::Errno;
use nix::fcntl::renameat;
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What is done when the new name is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// `already_exists`.
    Refuse,
    /// A file is replaced; a folder that is copied onto is filled up; a folder that is renamed onto has to be empty.
    Overwrite,
}

/// What a renaming did.
#[derive(Debug)]
pub struct Renamed {
    /// The old path beneath the base, links in its folders resolved.
    pub from: RelPath,
    /// The new one.
    pub to: RelPath,
    /// Something was replaced.
    pub replaced: bool,
    /// What was renamed, in words: `a file`, `a folder`, `a link`.
    pub kind: &'static str,
}

impl BaseDir {
    /// Makes a folder and its missing parents. Returns its canonical path, and whether it was made.
    ///
    /// # Errors
    /// `already_exists` when something else has the name, `outside_workspace`, and as [`fault`] says.
    pub fn make_dir(&self, path: &RelPath) -> Result<(RelPath, bool), Fault> {
        let mut made = Vec::new();
        let result = self.make_folders(path, path, &mut made).and_then(|dir| {
            made.iter().try_for_each(|(parent, _)| flush_dir(parent.as_fd())).map_err(|errno| change_fault(errno, path))?;
            let canonical = self.canonical(dir.as_fd(), path);
            if !made.is_empty() {
                self.refuse_protected(&canonical)?;
            }
            Ok(canonical)
        });
        match result {
            Ok(canonical) => Ok((canonical, !made.is_empty())),
            Err(fault) => {
                for (parent, name) in made.iter().rev() {
                    let _ = unlinkat(parent, name.as_os_str(), UnlinkatFlags::RemoveDir);
                }
                // Either about a path that is there means that its name is taken: by a file, or by a link that leads nowhere.
                match self.lstat(path) {
                    Ok(meta) if matches!(fault.code(), FaultCode::NotDirectory | FaultCode::NotFound) => {
                        Err(Fault::new(FaultCode::AlreadyExists, format!("{path} exists already and is {}", kind(&meta))))
                    }
                    _ => Err(fault),
                }
            }
        }
    }

    /// Gives a file, a folder or a link another name. A link is renamed itself.
    ///
    /// # Errors
    /// `already_exists`, `directory_not_empty`, `is_directory`, `not_directory`, `no_change` for twice the same name,
    /// `invalid_arguments` for a folder into itself, and as [`fault`] says.
    pub fn rename(&self, from: &RelPath, to: &RelPath, existing: Existing) -> Result<Renamed, Fault> {
        let (from, to) = (&self.folder_name(from)?, &self.folder_name(to)?);
        let source = self.locate(from, LastLink::Keep, Parents::Expect)?;
        let Some(meta) = look(&source, from)? else { return Err(fault(Errno::ENOENT, from)) };
        self.refuse_protected(&source.canonical)?;
        let target = self.locate(to, LastLink::Keep, Parents::Make)?;
        match self.refuse_protected(&target.canonical).and_then(|()| rename_at(&source, from, &meta, &target, to, existing)) {
            Ok(replaced) => Ok(Renamed { from: source.canonical, to: target.canonical, replaced, kind: kind(&meta) }),
            Err(fault) => {
                target.undo();
                Err(fault)
            }
        }
    }

    /// Removes a temporary file that a killed writer left in a folder. Returns how many there were.
    ///
    /// # Errors
    /// As [`fault`] says, when the folder cannot be opened.
    pub fn sweep_temporaries(&self, folder: &RelPath) -> Result<usize, Fault> {
        let dir = open_folder(self.as_fd(), folder.as_path()).map_err(|errno| fault(errno, folder))?;
        Ok(staged::sweep(dir.as_fd()))
    }

    /// The path of a folder without its trailing slashes, so that its last part is a name. Anything but a folder with a slash behind
    /// it is left to fail.
    pub(super) fn folder_name(&self, path: &RelPath) -> Result<RelPath, Fault> {
        let bytes = path.as_path().as_os_str().as_bytes();
        let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        if end == bytes.len() || end == 0 {
            return Ok(path.clone());
        }
        let bare = RelPath::from_relative(OsString::from_vec(bytes[..end].to_vec()));
        match self.lstat(&bare) {
            Ok(meta) if !meta.is_dir() => Err(fault(Errno::ENOTDIR, path)),
            _ => Ok(bare),
        }
    }
}

fn rename_at(source: &Place, from: &RelPath, meta: &Metadata, target: &Place, to: &RelPath, existing: Existing) -> Result<bool, Fault> {
    let there = look(target, to)?;
    let same = there.as_ref().is_some_and(|there| identity(there) == identity(meta));
    let same_folder = folder_identity(source, from)? == folder_identity(target, to)?;
    if same && same_folder && source.name == target.name {
        return Err(Fault::new(FaultCode::NoChange, format!("{from} and {to} are the same name")));
    }
    if let Some(there) = &there
        && existing == Existing::Refuse
    {
        return Err(taken(to, there));
    }
    let renamed = match existing {
        Existing::Refuse => rename_new(source, target, meta),
        Existing::Overwrite => renameat(&source.parent, source.name.as_os_str(), &target.parent, target.name.as_os_str()),
    };
    match renamed {
        Ok(()) => {}
        Err(Errno::EEXIST) if existing == Existing::Refuse => return Err(fault(Errno::EEXIST, to)),
        Err(Errno::EINVAL) => return Err(into_itself(from)),
        Err(Errno::EEXIST | Errno::ENOTEMPTY) => return Err(fault(Errno::ENOTEMPTY, to)),
        Err(errno @ (Errno::EISDIR | Errno::ENOTDIR)) => return Err(fault(errno, to)),
        Err(errno) => return Err(change_fault(errno, from)),
    }
    if same {
        // Two names of one file: the kernel leaves both. What was asked for is that the old one goes.
        unlinkat(&source.parent, source.name.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(|errno| change_fault(errno, from))?;
    }
    target.flush().and_then(|()| source.flush()).map_err(|errno| change_fault(errno, to))?;
    Ok(there.is_some())
}

/// Renames to a name that nothing has.
fn rename_new(source: &Place, target: &Place, meta: &Metadata) -> Result<(), Errno> {
    match sys::rename_noreplace(source.parent.as_fd(), &source.name, target.parent.as_fd(), &target.name) {
        // EINVAL is either a folder into itself or a file system that cannot promise it.
        Err(Errno::EINVAL | Errno::ENOSYS) if meta.is_dir() => {
            // A folder takes the place of an empty folder only, so one that is made here holds the name.
            mkdirat(&target.parent, target.name.as_os_str(), Mode::from_bits_truncate(0o700))?;
            let renamed = renameat(&source.parent, source.name.as_os_str(), &target.parent, target.name.as_os_str());
            if renamed.is_err() {
                let _ = unlinkat(&target.parent, target.name.as_os_str(), UnlinkatFlags::RemoveDir);
            }
            renamed
        }
        Err(Errno::EINVAL | Errno::ENOSYS) => {
            nix::unistd::linkat(
                &source.parent,
                source.name.as_os_str(),
                &target.parent,
                target.name.as_os_str(),
                nix::fcntl::AtFlags::empty(),
            )?;
            unlinkat(&source.parent, source.name.as_os_str(), UnlinkatFlags::NoRemoveDir)
        }
        other => other,
    }
}

pub(super) fn clone(fd: &OwnedFd, path: &RelPath) -> Result<OwnedFd, Fault> {
    fd.try_clone().map_err(|error| io_fault(&error, path))
}

fn folder_identity(place: &Place, path: &RelPath) -> Result<(u64, u64), Fault> {
    let meta = File::from(clone(&place.parent, path)?).metadata().map_err(|error| io_fault(&error, path))?;
    Ok(identity(&meta))
}

pub(super) fn taken(path: &RelPath, there: &Metadata) -> Fault {
    let fault = Fault::new(FaultCode::AlreadyExists, format!("{path} exists already and is {}", kind(there))).with("kind", kind(there));
    if there.is_dir() {
        fault.hint(format!("name the new path in full: {:?} is a folder", path.to_string()))
    } else {
        fault.hint("\"overwrite\": true replaces it")
    }
}

pub(super) fn into_itself(path: &RelPath) -> Fault {
    Fault::new(FaultCode::InvalidArguments, format!("{path} cannot be put inside itself"))
}
