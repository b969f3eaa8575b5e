//! Identity, capabilities and what the kernel says of itself.

use nix::errno::Errno;
use std::io;

/// What the kernel says about its Landlock: the ABI version, or `ENOSYS` (not built in) or `EOPNOTSUPP` (off at boot).
///
/// # Errors
/// The kernel's own.
pub fn landlock_abi() -> Result<u32, Errno> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the kernel reads no memory: the pointer must be null and the size zero.
    let abi = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0usize, LANDLOCK_CREATE_RULESET_VERSION)
    };
    Errno::result(abi).map(|abi| u32::try_from(abi).unwrap_or(u32::MAX))
}

/// The header of `capget` and `capset`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// Half of the three capability sets, as `capget` and `capset` carry them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: two halves of 32 bits.
const CAP_VERSION_3: u32 = 0x2008_0522;

/// This thread's effective, permitted and inheritable capabilities, a bit each.
///
/// # Errors
/// The kernel's own.
pub fn capabilities() -> Result<[u64; 3], Errno> {
    let mut header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData::default(); 2];
    // SAFETY: version 3 makes the kernel write exactly two halves, which is what `data` holds.
    Errno::result(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) })?;
    let join = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let [low, high] = data;
    Ok([join(low.effective, high.effective), join(low.permitted, high.permitted), join(low.inheritable, high.inheritable)])
}

/// Empties this thread's effective, permitted and inheritable capabilities.
///
/// # Errors
/// The kernel's own.
pub fn clear_capabilities() -> Result<(), Errno> {
    let mut header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let data = [CapData::default(); 2];
    // SAFETY: version 3 makes the kernel read exactly two halves, which is what `data` holds.
    Errno::result(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) }).map(drop)
}

/// The options of `prctl` that take numbers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessControl {
    /// Removes a capability, by number, from the bounding set. Needs `CAP_SETPCAP`; `EINVAL` past the last one.
    DropBounding(u32),
    /// Whether a capability is in the bounding set; `EINVAL` past the last one.
    ReadBounding(u32),
    /// Empties the ambient set.
    ClearAmbient,
    /// Sets the securebits. Needs `CAP_SETPCAP`.
    SetSecurebits(u32),
}

/// Calls `prctl` with an option that takes numbers only.
///
/// # Errors
/// The kernel's own.
pub fn process_control(option: ProcessControl) -> Result<i32, Errno> {
    let (option, argument) = match option {
        ProcessControl::DropBounding(capability) => (libc::PR_CAPBSET_DROP, capability),
        ProcessControl::ReadBounding(capability) => (libc::PR_CAPBSET_READ, capability),
        ProcessControl::ClearAmbient => (libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL as u32),
        ProcessControl::SetSecurebits(bits) => (libc::PR_SET_SECUREBITS, bits),
    };
    let zero: libc::c_ulong = 0;
    // SAFETY: none of these options takes a pointer.
    Errno::result(unsafe { libc::prctl(option, libc::c_ulong::from(argument), zero, zero, zero) })
}

/// Forks this process for a short errand (a probe, a canary): `None` in the child.
///
/// # Errors
/// The kernel's own.
pub fn fork_errand() -> io::Result<Option<nix::unistd::Pid>> {
    // SAFETY: the C library keeps its allocator usable in the child of a process with threads; the errand takes no other lock.
    match unsafe { nix::unistd::fork() }? {
        nix::unistd::ForkResult::Child => Ok(None),
        nix::unistd::ForkResult::Parent { child } => Ok(Some(child)),
    }
}

/// Sets whether `SIGXFSZ` is ignored, so that a write past the file size limit fails with `EFBIG` instead of ending the process.
///
/// # Errors
/// The kernel's own.
pub fn ignore_file_size_signal() -> Result<(), Errno> {
    // SAFETY: no handler of ours is installed; "ignore" runs no code.
    unsafe { nix::sys::signal::signal(nix::sys::signal::Signal::SIGXFSZ, nix::sys::signal::SigHandler::SigIgn) }.map(drop)
}

/// Calls that do nothing when the kernel takes them, because their arguments are not valid; what they answer tells whether a
/// filter stands before the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidCall {
    /// `io_uring_setup` without parameters.
    IoUringSetup,
    /// `bpf` with a command that does not exist.
    Bpf,
    /// `perf_event_open` without attributes.
    PerfEventOpen,
    /// `userfaultfd` with flags that do not exist.
    Userfaultfd,
    /// `unshare` with flags that do not exist.
    Unshare,
    /// `mount` without a target.
    Mount,
    /// `shmget` of a private segment of no bytes.
    Shmget,
    /// `mq_open` without a name.
    MqOpen,
    /// `keyctl` with an operation that does not exist.
    Keyctl,
    /// `process_vm_readv` with flags that do not exist.
    ProcessVmReadv,
    /// `TIOCSTI` on no descriptor.
    TypeIntoTerminal,
    /// `setxattr` without a path.
    Setxattr,
    /// A call that no kernel has yet.
    Unknown,
    /// A number of the x32 table.
    X32,
}

/// Makes a call that cannot succeed, and returns what the kernel, or a filter before it, answered.
pub fn invalid_call(call: InvalidCall) -> Result<(), Errno> {
    let (number, arguments): (libc::c_long, [usize; 5]) = match call {
        InvalidCall::IoUringSetup => (libc::SYS_io_uring_setup, [1, 0, 0, 0, 0]),
        InvalidCall::Bpf => (libc::SYS_bpf, [usize::MAX, 0, 0, 0, 0]),
        InvalidCall::PerfEventOpen => (libc::SYS_perf_event_open, [0; 5]),
        InvalidCall::Userfaultfd => (libc::SYS_userfaultfd, [usize::MAX, 0, 0, 0, 0]),
        InvalidCall::Unshare => (libc::SYS_unshare, [usize::MAX, 0, 0, 0, 0]),
        InvalidCall::Mount => (libc::SYS_mount, [0; 5]),
        InvalidCall::Shmget => (libc::SYS_shmget, [0; 5]),
        InvalidCall::MqOpen => (libc::SYS_mq_open, [0; 5]),
        InvalidCall::Keyctl => (libc::SYS_keyctl, [usize::MAX, 0, 0, 0, 0]),
        InvalidCall::ProcessVmReadv => (libc::SYS_process_vm_readv, [0; 5]),
        InvalidCall::TypeIntoTerminal => (libc::SYS_ioctl, [usize::MAX, 0x5412, 0, 0, 0]),
        InvalidCall::Setxattr => (libc::SYS_setxattr, [0; 5]),
        InvalidCall::Unknown => (1000, [0; 5]),
        // getpid of the x32 table: on a kernel that has the table it succeeds, and does nothing.
        InvalidCall::X32 => (0x4000_0000 | 39, [0; 5]),
    };
    let [a, b, c, d, e] = arguments;
    // SAFETY: every pointer among the arguments is null and every other argument is not valid, so that the kernel neither
    // reads nor writes memory of this process and changes nothing.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e) }).map(drop)
}

/// Opens a socket of any family, by numbers.
///
/// # Errors
/// The kernel's own.
pub fn open_socket(domain: i32, kind: i32, protocol: i32) -> Result<std::os::fd::OwnedFd, Errno> {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes numbers only.
    let fd = Errno::result(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
    // SAFETY: the kernel has just made this descriptor for us; nothing else owns it.
    Ok(unsafe { std::os::fd::OwnedFd::from_raw_fd(fd) })
}
