//! Mounts by descriptor, and the loopback of a network namespace.

use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

const OPEN_TREE_CLONE: u32 = 1;
const OPEN_TREE_CLOEXEC: u32 = libc::O_CLOEXEC as u32;
const AT_RECURSIVE: u32 = 0x8000;
const AT_EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

/// The mount is read-only.
pub const MOUNT_ATTR_RDONLY: u64 = 1;
/// Set-user-id bits have no effect.
pub const MOUNT_ATTR_NOSUID: u64 = 2;
/// Nothing on it is executed.
pub const MOUNT_ATTR_NOEXEC: u64 = 8;

/// `struct mount_attr`.
#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A private copy of the mounts at a path, attached nowhere yet.
///
/// # Errors
/// The kernel's own.
pub fn clone_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE;
    // SAFETY: the path is a NUL-terminated string that outlives the call; the kernel writes nothing.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = RawFd::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets attributes of a mount and of all below it: one that was cloned, or (`None`) the one at `path`.
///
/// # Errors
/// The kernel's own.
pub fn set_mount_attributes(tree: Option<BorrowedFd<'_>>, path: &CStr, set: u64) -> Result<(), Errno> {
    let attributes = MountAttr { set, clear: 0, propagation: 0, userns: 0 };
    let (fd, flags) = tree.map_or((libc::AT_FDCWD, AT_RECURSIVE), |fd| (fd.as_raw_fd(), AT_RECURSIVE | AT_EMPTY_PATH));
    let size = std::mem::size_of::<MountAttr>();
    // SAFETY: the path is a NUL-terminated string and the structure has the layout and the size that the kernel is told; both
    // outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_mount_setattr, fd, path.as_ptr(), flags, &raw const attributes, size) };
    Errno::result(done).map(drop)
}

/// Attaches a cloned tree at a path.
///
/// # Errors
/// The kernel's own.
pub fn attach_tree(tree: BorrowedFd<'_>, path: &CStr) -> Result<(), Errno> {
    // SAFETY: both strings are NUL-terminated and outlive the call.
    let done = unsafe {
        libc::syscall(libc::SYS_move_mount, tree.as_raw_fd(), c"".as_ptr(), libc::AT_FDCWD, path.as_ptr(), MOVE_MOUNT_F_EMPTY_PATH)
    };
    Errno::result(done).map(drop)
}

/// Brings the loopback interface of this network namespace up.
///
/// # Errors
/// The kernel's own.
pub fn loopback_up() -> Result<(), Errno> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: an all-zero ifreq is a valid value of that plain structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) };
    Errno::result(done).map(drop)
}
