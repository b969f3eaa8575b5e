//! What a new file takes over from the file whose place it takes: owner, group, ACL and other extended attributes, mode.
//!
//! Never widens: what could not be kept is made narrower, and said.

use crate::sys;
use nix::errno::Errno;
use nix::sys::stat::{Mode, fchmod};
use nix::unistd::{Gid, Uid, fchown};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

/// Gives `new` the owner, the extended attributes and the mode of `old`. Returns what could not be kept, one sentence each.
///
/// `new` must not be reachable by a name whose mode is wider than the old one while this runs.
///
/// # Errors
/// The kernel's own, where going on would give the file away.
pub(super) fn take_over(new: &File, old: &File, meta: &Metadata, mode: u32) -> Result<Vec<String>, Errno> {
    let mut notices = Vec::new();
    let mut mode = mode;
    let made = new.metadata().map_err(|error| errno(&error))?;
    let (uid, gid) = ((made.uid() != meta.uid()).then_some(meta.uid()), (made.gid() != meta.gid()).then_some(meta.gid()));
    if uid.is_some() || gid.is_some() {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match fchown(new, uid, gid) {
            Ok(()) => {}
            Err(Errno::EPERM | Errno::EINVAL) => {
                // Only root gives files away; the group can still be one of our own.
                let group_kept = gid.is_none() || fchown(new, None, gid).is_ok();
                if uid.is_some() {
                    notices.push("the owner of the file could not be kept".into());
                }
                if !group_kept {
                    notices.push("the group of the file could not be kept, so its group has no more rights than everybody".into());
                    mode &= !0o070 | ((mode & 0o007) << 3);
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    take_over_xattrs(new, old, &mut notices)?;
    fchmod(new, Mode::from_bits_truncate(mode))?;
    Ok(notices)
}

/// The mode of the new file: the old one without setuid and setgid, which a change of content ends, as in the kernel.
pub(super) fn kept_mode(meta: &Metadata, executable: Option<bool>) -> u32 {
    let mode = meta.mode() & 0o1777;
    match executable {
        None => mode,
        // Whoever may read it may execute it.
        Some(true) => mode | ((mode & 0o444) >> 2),
        Some(false) => mode & !0o111,
    }
}

fn take_over_xattrs(new: &File, old: &File, notices: &mut Vec<String>) -> Result<(), Errno> {
    let of_old = match sys::list_xattrs(old.as_fd()) {
        Ok(names) => names,
        Err(Errno::ENOTSUP | Errno::ENOSYS) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let ours: BTreeSet<CString> = of_old.into_iter().filter(is_kept).collect();
    // A folder's default ACL came to the new file by itself, where the old one may have none.
    for name in sys::list_xattrs(new.as_fd())?.iter().filter(|name| is_kept(name) && !ours.contains(*name)) {
        sys::remove_xattr(new.as_fd(), name)?;
    }
    for name in &ours {
        let value = match sys::get_xattr(old.as_fd(), name) {
            Ok(value) => value,
            Err(Errno::ENODATA) => continue,
            Err(errno) => return Err(errno),
        };
        match sys::set_xattr(new.as_fd(), name, &value) {
            Ok(()) => {}
            Err(Errno::EPERM | Errno::EACCES | Errno::ENOTSUP) => {
                if sys::get_xattr(new.as_fd(), name).as_ref() != Ok(&value) {
                    notices.push(format!("the extended attribute {} could not be kept", name.to_string_lossy()));
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// File capabilities and integrity signatures belong to the old content and end with it.
fn is_kept(name: &CString) -> bool {
    !matches!(name.to_bytes(), b"security.capability" | b"security.ima" | b"security.evm")
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
}
