//! The only unsafe code: system calls that nix has no safe form for. Each function is safe to call with any arguments; what
//! makes it so is said at each block. Open to `workspace`, `confine` and `jail`.
#![allow(unsafe_code)]

mod file;
mod memory;
mod mount;
mod privilege;

pub use file::*;
pub use memory::*;
pub use mount::*;
pub use privilege::*;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use nix::unistd::Pid;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

// ---- processes ----

/// Which side of a fork this is.
#[derive(Debug, PartialEq)]
pub enum Forked {
    /// The process that called; the child's id.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks a process that has one thread.
///
/// # Errors
/// `EBUSY` when this process has more than one thread (a lock could be held for ever in the child); the kernel's own.
pub fn fork_single_threaded() -> Result<Forked, Errno> {
    if thread_count() != Some(1) {
        return Err(Errno::EBUSY);
    }
    // SAFETY: the process has exactly one thread (read from the kernel just above), so the child is a whole copy and every
    // lock in it is in the state in which this thread left it.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Parent { child } => Ok(Forked::Parent(child)),
        nix::unistd::ForkResult::Child => Ok(Forked::Child),
    }
}

/// Forks a process that has one thread into new namespaces, and into a cgroup where one is given: a process that is moved there later waits
/// for it ten milliseconds.
///
/// # Errors
/// `EBUSY` when this process has more than one thread; the kernel's own (`ENOSYS` and `EPERM` also from what is around a container).
pub fn fork_into(namespaces: nix::sched::CloneFlags, cgroup: Option<BorrowedFd<'_>>) -> Result<Forked, Errno> {
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    if thread_count() != Some(1) {
        return Err(Errno::EBUSY);
    }
    let flags = u64::from(namespaces.bits().cast_unsigned());
    let number = |fd: BorrowedFd<'_>| u64::from(fd.as_raw_fd().cast_unsigned());
    let pid = match cgroup.map(number) {
        Some(cgroup) => {
            let how: [u64; 11] = [flags | CLONE_INTO_CGROUP, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0, 0, 0, cgroup];
            // SAFETY: `how` is the structure that the call reads, of the size that is said; without CLONE_VM and without a stack the child
            // is a whole copy that goes on here, and the one thread (asked just above) left every lock as it is.
            unsafe { libc::syscall(libc::SYS_clone3, how.as_ptr(), size_of_val(&how)) }
        }
        None => {
            let none: libc::c_ulong = 0;
            // SAFETY: as above; all pointers are null.
            unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD as u64, none, none, none, none) }
        }
    };
    match Errno::result(pid)? {
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(i32::try_from(pid).map_err(|_| Errno::ERANGE)?))),
    }
}

/// The number of threads of this process, as the kernel counts them: the link count of `/proc/self/task`, less `.` and `..`.
/// `None` where `/proc` is not there.
fn thread_count() -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/task").ok().map(|meta| meta.nlink().saturating_sub(2))
}

/// Overwrites the environment of this process, where the kernel shows it (`/proc/PID/environ`) and where the C library finds it. For a process
/// of one thread, before it does anything else.
pub fn forget_environment() {
    unsafe extern "C" {
        static mut environ: *mut *mut libc::c_char;
    }
    // SAFETY: the pointer is the C library's own; no other thread reads or changes it.
    let list = unsafe { environ };
    if list.is_null() {
        return;
    }
    for place in 0.. {
        // SAFETY: the list ends with a null pointer, and no place behind it is looked at.
        let at = unsafe { list.add(place) };
        // SAFETY: as above; the C library keeps the list aligned.
        let entry = unsafe { *at };
        if entry.is_null() {
            break;
        }
        // SAFETY: each entry is a C string that the kernel or the C library has put there.
        let length = unsafe { libc::strlen(entry) };
        // SAFETY: the string is writable (the kernel puts it on the stack, the C library on the heap), and nobody else reads it.
        unsafe { libc::explicit_bzero(entry.cast(), length) };
    }
    // SAFETY: `clearenv` only makes the list empty; one thread, as above.
    unsafe { libc::clearenv() };
}

/// Ends this process at once: no destructor, no exit handler, nothing flushed twice after a fork.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no precondition and does not return.
    unsafe { libc::_exit(code) }
}

/// The descriptors from `first` on, where the call for a whole range is not to be had: before Linux 5.9, and where a container's filter does not
/// know it.
fn open_from(first: u32) -> Vec<RawFd> {
    /// More than any process here has ever had at once.
    const MOST: RawFd = 1 << 16;
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse::<RawFd>().ok();
    match std::fs::read_dir("/proc/self/fd") {
        Ok(list) => list.flatten().filter_map(number).filter(|number| number.cast_unsigned() >= first).collect(),
        // A jail is not granted the list: all numbers, then.
        Err(_) => (RawFd::try_from(first).unwrap_or(MOST)..MOST).collect(),
    }
}

/// Closes every descriptor from `first` on.
///
/// # Errors
/// The kernel's own.
pub fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: closing descriptors touches no memory. Callers do this before they own descriptors in that range (the warden at
    // its start), or just before an exec or `_exit`, so no owned descriptor is closed behind its owner's back.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    match Errno::result(done) {
        Err(Errno::ENOSYS | Errno::EPERM) => {}
        done => return done.map(drop),
    }
    for number in open_from(first) {
        // SAFETY: as above. Some are not open, the list itself among them.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// Marks every descriptor from `first` on to be closed by the next exec.
///
/// # Errors
/// The kernel's own.
pub fn cloexec_from(first: u32) -> Result<(), Errno> {
    const CLOSE_RANGE_CLOEXEC: u32 = 4;
    // SAFETY: this sets a flag on descriptors and touches no memory.
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, CLOSE_RANGE_CLOEXEC) };
    match Errno::result(done) {
        // EINVAL: before Linux 5.11.
        Err(Errno::ENOSYS | Errno::EPERM | Errno::EINVAL) => {}
        done => return done.map(drop),
    }
    for number in open_from(first) {
        // SAFETY: F_SETFD changes a flag of a descriptor.
        let done = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        match Errno::result(done) {
            // Not open, as the list itself by now.
            Err(Errno::EBADF) | Ok(_) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Takes an inherited descriptor by number.
///
/// # Errors
/// `EBADF` when nothing is open there.
pub fn take_fd(number: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: F_GETFD only asks the kernel whether the number is open.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    Errno::result(flags)?;
    // SAFETY: the descriptor is open (asked just above), and the callers (the hidden warden role, before anything else runs) are
    // the only owners of the numbers that they take.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Puts a descriptor at a number, without close-on-exec, replacing what is there. For a process that is about to exec.
///
/// # Errors
/// The kernel's own.
pub fn place_fd(fd: BorrowedFd<'_>, number: RawFd) -> Result<(), Errno> {
    if fd.as_raw_fd() == number {
        // SAFETY: F_SETFD changes a flag of an open descriptor.
        let done = unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
        return Errno::result(done).map(drop);
    }
    // SAFETY: dup2 touches no memory; what was at `number` is replaced in a process whose next act is an exec.
    let done = unsafe { libc::dup2(fd.as_raw_fd(), number) };
    Errno::result(done).map(drop)
}

/// A descriptor that becomes readable when a child of this process ends.
///
/// # Errors
/// The kernel's own (`ENOSYS` before Linux 5.3).
pub fn pidfd(child: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two numbers and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.as_raw(), 0) };
    let fd = RawFd::try_from(Errno::result(fd)?).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The parent-death signal of this process.
///
/// # Errors
/// The kernel's own.
pub fn set_parent_death_signal(signal: i32) -> Result<(), Errno> {
    // SAFETY: this option takes a number and no pointer.
    let done = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) };
    Errno::result(done).map(drop)
}

/// The kernel's own `sigaction`, whatever the architecture: handler, flags, where there is one a restorer, mask.
const DEFAULT_ACTION: [u64; 4] = [0; 4];

/// Gives every signal its default action and an empty mask, as a new program expects them (the Rust runtime ignores SIGPIPE).
///
/// # Errors
/// The kernel's own.
pub fn reset_signals() -> Result<(), Errno> {
    for signal in 1..=libc::SIGRTMAX() {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // The C library would refuse the two numbers that it keeps for itself, and its `posix_spawn` has them ignored.
        // SAFETY: the kernel reads a `sigaction` of at most 32 bytes with a mask of 8; all zeros are the default action, which is
        // valid for every signal but the two left out.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, DEFAULT_ACTION.as_ptr(), std::ptr::null::<u64>(), 8_usize) };
    }
    nix::sys::signal::sigprocmask(nix::sys::signal::SigmaskHow::SIG_SETMASK, Some(&nix::sys::signal::SigSet::empty()), None)
}

/// How a child ended: its exit code, or the number of the signal that ended it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ended with this code.
    Exited(i32),
    /// This signal ended it.
    Signaled(i32),
}

/// Reaps one child that has ended, whichever; `None` where none has. Real-time signals too, which nix has no names for: it reaps the child
/// and then says `EINVAL`, so that nobody hears how it ended.
///
/// # Errors
/// `ECHILD` without a child, `EINTR`.
pub fn reap_any() -> Result<Option<(Pid, Ending)>, Errno> {
    let mut status = 0;
    // SAFETY: `status` is a place to write to that lives as long as the call.
    let pid = Errno::result(unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::__WALL) })?;
    let ending = if libc::WIFEXITED(status) { Ending::Exited(libc::WEXITSTATUS(status)) } else { Ending::Signaled(libc::WTERMSIG(status)) };
    Ok((pid > 0).then_some((Pid::from_raw(pid), ending)))
}

// ---- descriptors over sockets ----

/// The most descriptors that travel with one message.
pub const MOST_FDS: usize = 12;

/// Sends one message with descriptors over a unix socket.
///
/// # Errors
/// The kernel's own.
pub fn send_with_fds(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> Result<usize, Errno> {
    let iov = [IoSlice::new(bytes)];
    let rights = [ControlMessage::ScmRights(fds)];
    let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
    loop {
        match sendmsg::<()>(socket.as_raw_fd(), &iov, control, MsgFlags::MSG_NOSIGNAL, None) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Receives one message and the descriptors with it, all close-on-exec. Zero bytes: the other end is closed.
///
/// # Errors
/// The kernel's own; `EMSGSIZE` when the message or its descriptors did not fit.
pub fn receive_with_fds(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = nix::cmsg_space!([RawFd; MOST_FDS]);
    let mut iov = [IoSliceMut::new(buffer)];
    let message = loop {
        match recvmsg::<()>(socket.as_raw_fd(), &mut iov, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            for fd in raw {
                // SAFETY: the kernel has just installed this descriptor for us with the message, so we are its only owner.
                fds.push(unsafe { OwnedFd::from_raw_fd(fd) });
            }
        }
    }
    if message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC) {
        return Err(Errno::EMSGSIZE);
    }
    Ok((message.bytes, fds))
}

/// Arranges descriptors for a process that goes on without anything else: `fds[i]` becomes number `3 + i`, close-on-exec, and
/// every other descriptor above standard error is closed.
///
/// # Errors
/// The kernel's own.
pub fn keep_only(fds: &[BorrowedFd<'_>]) -> Result<Vec<OwnedFd>, Errno> {
    let first_free = 3 + i32::try_from(fds.len()).map_err(|_| Errno::EINVAL)?;
    let mut high = Vec::new();
    for fd in fds {
        high.push(duplicate_above(*fd, first_free + i32::try_from(fds.len()).map_err(|_| Errno::EINVAL)?)?);
    }
    for (number, fd) in (3..).zip(&high) {
        // SAFETY: dup3 touches no memory; this process goes on with nothing but these descriptors.
        let done = unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) };
        Errno::result(done)?;
    }
    // The copies lie in the range that is closed now: give them up first.
    for fd in high {
        std::mem::drop(fd);
    }
    close_from(u32::try_from(first_free).map_err(|_| Errno::EINVAL)?)?;
    (3..first_free).map(take_fd).collect()
}

/// A copy of a descriptor at the lowest free number from `least` on, close-on-exec.
///
/// # Errors
/// The kernel's own.
pub fn duplicate_above(fd: BorrowedFd<'_>, least: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: F_DUPFD_CLOEXEC makes a new descriptor and touches no memory.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    let number = Errno::result(number)?;
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
