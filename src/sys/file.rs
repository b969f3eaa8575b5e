//! Files: extended attributes, clones, renames, locks.

use nix::errno::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;

/// The names of all extended attributes of an open file (not `O_PATH`), ACLs included.
///
/// # Errors
/// The kernel's own; `ENOTSUP` where the file system has none.
pub fn list_xattrs(file: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    // The list may grow between the two calls; ERANGE then starts again.
    for _ in 0..8 {
        // SAFETY: with a size of zero the kernel writes nothing and returns the size that it needs.
        let size = unsafe { libc::flistxattr(file.as_raw_fd(), std::ptr::null_mut(), 0) };
        let mut names = vec![0_u8; usize::try_from(Errno::result(size)?).unwrap_or(0)];
        if names.is_empty() {
            return Ok(Vec::new());
        }
        // SAFETY: the pointer and the length are those of one live vector, which the kernel fills no further.
        let size = unsafe { libc::flistxattr(file.as_raw_fd(), names.as_mut_ptr().cast(), names.len()) };
        match Errno::result(size) {
            Ok(size) => {
                names.truncate(usize::try_from(size).unwrap_or(0));
                return Ok(names
                    .split(|byte| *byte == 0)
                    .filter(|name| !name.is_empty())
                    .filter_map(|name| CString::new(name).ok())
                    .collect());
            }
            Err(Errno::ERANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ERANGE)
}

/// The value of an extended attribute.
///
/// # Errors
/// The kernel's own.
pub fn get_xattr(file: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Errno> {
    for _ in 0..8 {
        // SAFETY: `name` ends in NUL; with a size of zero the kernel writes nothing.
        let size = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), std::ptr::null_mut(), 0) };
        let mut value = vec![0_u8; usize::try_from(Errno::result(size)?).unwrap_or(0)];
        if value.is_empty() {
            return Ok(value);
        }
        // SAFETY: `name` ends in NUL; pointer and length are those of one live vector.
        let size = unsafe { libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        match Errno::result(size) {
            Ok(size) => {
                value.truncate(usize::try_from(size).unwrap_or(0));
                return Ok(value);
            }
            Err(Errno::ERANGE) => {}
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::ERANGE)
}

/// Sets an extended attribute, whether it is there or not.
///
/// # Errors
/// The kernel's own.
pub fn set_xattr(file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> Result<(), Errno> {
    // SAFETY: `name` ends in NUL; pointer and length are those of one live slice, which the kernel only reads.
    let result = unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    Errno::result(result).map(drop)
}

/// Removes an extended attribute.
///
/// # Errors
/// The kernel's own.
pub fn remove_xattr(file: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // SAFETY: `name` ends in NUL.
    let result = unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) };
    Errno::result(result).map(drop)
}

/// Lets `to` share the blocks of `from`, whole, where the file system can.
///
/// # Errors
/// `EOPNOTSUPP`, `EXDEV`, `EINVAL`, `ENOTTY` where it cannot; nothing was written then.
pub fn clone_file(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: FICLONE takes a descriptor number as its argument, no pointer.
    let result = unsafe { libc::ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd()) };
    Errno::result(result).map(drop)
}

/// `renameat2` with `RENAME_NOREPLACE`. (nix has it for glibc only.)
///
/// # Errors
/// `EEXIST` when something has the new name; `EINVAL` where the file system cannot promise it.
pub fn rename_noreplace(old_dir: BorrowedFd<'_>, old: &OsStr, new_dir: BorrowedFd<'_>, new: &OsStr) -> Result<(), Errno> {
    let old = CString::new(old.as_bytes()).map_err(|_| Errno::EINVAL)?;
    let new = CString::new(new.as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: both names end in NUL and live through the call.
    let result = unsafe {
        libc::syscall(libc::SYS_renameat2, old_dir.as_raw_fd(), old.as_ptr(), new_dir.as_raw_fd(), new.as_ptr(), libc::RENAME_NOREPLACE)
    };
    Errno::result(result).map(drop)
}

/// Takes the advisory lock (`flock`, exclusive) of an open file without waiting. It ends with the last descriptor of this open.
///
/// # Errors
/// `EWOULDBLOCK` when another open of the file has it; `ENOLCK`, `EOPNOTSUPP`, `EBADF` where the file system has none.
pub fn try_lock(file: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: flock takes a descriptor number and a flag, no pointer.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    Errno::result(result).map(drop)
}

/// Copies up to `len` bytes between two files inside the kernel; both offsets are moved on. Returns the bytes copied, 0 at the end.
///
/// # Errors
/// `EXDEV`, `EINVAL`, `EOPNOTSUPP`, `ENOSYS` where the kernel cannot for these two; else its own.
pub fn copy_range(from: BorrowedFd<'_>, read_at: &mut i64, to: BorrowedFd<'_>, write_at: &mut i64, len: usize) -> Result<usize, Errno> {
    // SAFETY: both offsets are live, exclusive references to 64-bit integers, which is what the kernel reads and writes there.
    let result = unsafe {
        libc::syscall(
            libc::SYS_copy_file_range,
            from.as_raw_fd(),
            std::ptr::from_mut(read_at),
            to.as_raw_fd(),
            std::ptr::from_mut(write_at),
            len,
            0,
        )
    };
    Errno::result(result).map(|copied| usize::try_from(copied).unwrap_or(0))
}

/// The next entries of an open folder, in the kernel's own layout (`struct linux_dirent64`). Returns how many bytes there are; 0: no more.
///
/// # Errors
/// The kernel's own; `EINVAL` where the next entry is longer than the buffer.
pub fn folder_entries(folder: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the pointer and the length are those of one live slice, which the kernel fills no further.
    let count = unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    usize::try_from(Errno::result(count)?).map_err(|_| Errno::EIO)
}
