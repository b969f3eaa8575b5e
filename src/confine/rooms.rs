//! Namespaces of our own, made where they really start: no step that needs root, no other program.
//!
//! [`enter`] is called by the warden before it has jails, threads or secrets. It unshares what starts here, forks once (a process
//! namespace is only entered by a child), and lays out the mounts: everything but the grants read-only, a private `/tmp`, `/dev/shm`,
//! `/dev/pts` and `/proc`, `/proc/sys` never writable, protected names covered. Where something does not start, it says why
//! and the session goes on with less, which the report tells: the Landlock ruleset and the filter stand in any case.
//!
//! It never removes a mount, never writes outside of the session's folder, and never makes a placeholder in the workspace.

use super::Namespaces;
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Charter, Grant, Net, Rights};
use crate::sys::{self, Forked};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{getegid, geteuid};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The size of the private `/dev/shm`.
const SHM_SIZE: &str = "mode=1777,size=1g";

/// What came of the attempt.
#[derive(Debug, Default)]
pub struct Entered {
    /// What is the session's own now.
    pub namespaces: Namespaces,
    /// `/tmp` is the session's own.
    pub tmp: bool,
    /// The kernel bounds how many processes there are in the process namespace.
    pub processes_bounded: bool,
    /// From where the canaries judge.
    pub vantage: Vantage,
    /// What did not start, and why, for the report.
    pub notes: Vec<String>,
}

/// What stays outside of the namespaces, held by the warden alone: from there it is judged what a canary reached.
#[derive(Debug, Default)]
pub struct Vantage {
    pub(super) ears: Option<Ears>,
    /// The session's folder as it was before everything became read-only, attached nowhere.
    pub(super) hand: Option<OwnedFd>,
}

/// Listeners in the network of the host that were heard before it was left: whoever reaches them from inside got out.
#[derive(Debug)]
pub struct Ears {
    pub(super) tcp: TcpListener,
    pub(super) udp: UdpSocket,
}

impl Ears {
    /// Opens them, and shows that they hear.
    fn open() -> std::io::Result<Self> {
        let ears = Self { tcp: TcpListener::bind(("127.0.0.1", 0))?, udp: UdpSocket::bind(("127.0.0.1", 0))? };
        drop(TcpStream::connect(ears.tcp.local_addr()?)?);
        UdpSocket::bind(("127.0.0.1", 0))?.send_to(b"canary", ears.udp.local_addr()?)?;
        ears.tcp.accept()?;
        ears.udp.recv(&mut [0; 8])?;
        Ok(ears)
    }
}

/// Makes the namespaces that start here and lays out the mounts. Forks: the caller goes on in the child, as process 1 where there
/// is a process namespace; the parent stays behind, waits for it and ends as it does.
///
/// # Errors
/// Only what leaves the process in a state in which it must not go on (half-done mounts).
pub fn enter(charter: &Charter) -> Result<Entered, Fault> {
    try_enter(charter).map_err(|says| Fault::new(FaultCode::CannotConfine, format!("the namespaces are half made: {says}")))
}

fn try_enter(charter: &Charter) -> Result<Entered, String> {
    let mut flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    if charter.net != Net::Full {
        flags |= CloneFlags::CLONE_NEWNET;
    }
    let ears = if flags.contains(CloneFlags::CLONE_NEWNET) { Ears::open().ok() } else { None };
    let user = match unshare_all(flags) {
        Ok(user) => user,
        Err(errno) => {
            return Ok(Entered {
                notes: vec![format!("no namespaces start here ({}): the sandbox stands on Landlock and seccomp alone", errno.desc())],
                ..Entered::default()
            });
        }
    };
    fork_into()?;
    let mut notes = Vec::new();
    let tmp = own_tmp(charter, &mut notes);
    // Nothing of what follows may be seen outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|errno| format!("the mounts cannot be made private: {}", errno.desc()))?;
    let hand = bait(charter)?;
    let (pts, processes_bounded) = lay_out(charter, tmp, &mut notes)?;
    let net = charter.net != Net::Full;
    if net && let Err(errno) = sys::loopback_up() {
        notes.push(format!("the loopback of the session could not be brought up: {}", errno.desc()));
    }
    let pid = std::fs::read_link("/proc/self").is_ok_and(|me| me.as_os_str() == "1");
    Ok(Entered {
        namespaces: Namespaces { user, mount: true, pid, net, ipc: true, pts },
        tmp,
        processes_bounded,
        vantage: Vantage { ears, hand: Some(hand) },
        notes,
    })
}

/// Where canaries are tried: a small file system in memory, which goes with the mounts, on a folder of the session's; else that folder as it
/// is. Returned as it is before everything becomes read-only.
fn bait(charter: &Charter) -> Result<OwnedFd, String> {
    let folder = charter.session_dir.join("bait");
    let named = |errno: Errno| format!("{}: {}", folder.display(), errno.desc());
    let options = format!("mode=0700,uid={},gid={},size=1m", charter.identity.uid, charter.identity.gid);
    let _ = mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(&*options));
    sys::clone_tree(&c_path(&folder)?).map_err(named)
}

/// Adds to the charter what the mounts of the session's own permit: private places need no protection from the host's.
pub fn furnish(charter: &mut Charter, entered: &Entered) {
    let namespaces = &entered.namespaces;
    let place = |path: &str, rights, reason: &str| Grant { path: path.into(), rights, reason: reason.into(), origin: "session".into() };
    let mut more = vec![
        place("/tmp", Rights::ALL, "temporary files, the session's own"),
        place("/dev/shm", Rights::CHANGE, "shared memory, the session's own"),
    ];
    if namespaces.pts {
        more.push(place("/dev/pts", Rights::DEVICE, "pseudo terminals, the session's own"));
        more.push(place("/dev/ptmx", Rights::DEVICE, "pseudo terminals, the session's own"));
    }
    for grants in [charter.execute.as_mut(), Some(&mut charter.own)].into_iter().flatten() {
        grants.0.extend(more.iter().cloned());
    }
    if !entered.tmp {
        return;
    }
    // One place by one name: a rename between two mounts of the same folder is refused.
    let private = charter.session_dir.join("tmp");
    for (_, value) in &mut charter.env {
        if Path::new(value) == private {
            *value = "/tmp".into();
        }
    }
}

/// Unshares, as root directly, else within a user namespace that maps nobody but the caller. Says whether there is a user namespace.
fn unshare_all(flags: CloneFlags) -> Result<bool, Errno> {
    let (uid, gid) = (geteuid(), getegid());
    if uid.is_root() && unshare(flags).is_ok() {
        return Ok(false);
    }
    unshare(flags | CloneFlags::CLONE_NEWUSER)?;
    let write = |name: &str, text: String| {
        std::fs::write(format!("/proc/self/{name}"), text).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    };
    // Without this a user could give up a group that is meant to keep it out of something.
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))?;
    Ok(true)
}

/// Goes on in a child; the parent only waits.
fn fork_into() -> Result<(), String> {
    match sys::fork_single_threaded() {
        Ok(Forked::Child) => {
            // The parent is outside of the namespace: its end is the end of everything here.
            sys::set_parent_death_signal(libc::SIGKILL).map_err(|errno| errno.desc().to_string())
        }
        Ok(Forked::Parent(child)) => {
            // Nothing may be held open here that the host waits to see closed.
            let _ = sys::close_from(0);
            loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, code)) => sys::exit_now(code),
                    Ok(WaitStatus::Signaled(_, signal, _)) => sys::exit_now(128 + signal as i32),
                    Err(Errno::EINTR) | Ok(_) => {}
                    Err(_) => sys::exit_now(1),
                }
            }
        }
        Err(errno) => Err(errno.desc().to_string()),
    }
}

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| format!("{}: a NUL in a path", path.display()))
}

/// A tree that is put back where it was, writable, after everything has become read-only.
struct Kept {
    path: PathBuf,
    tree: OwnedFd,
}

/// Lays out the mounts. Says whether the pseudo terminals are the session's own, and whether the processes are bounded.
fn lay_out(charter: &Charter, tmp: bool, notes: &mut Vec<String>) -> Result<(bool, bool), String> {
    let mut kept = Vec::new();
    for path in writable(charter) {
        if !path.exists() {
            continue;
        }
        let tree =
            sys::clone_tree(&c_path(&path)?).map_err(|errno| format!("{}: cannot be kept writable: {}", path.display(), errno.desc()))?;
        kept.push(Kept { path, tree });
    }
    // Grants for reading that lie below the host's /tmp would be gone with it.
    if tmp {
        for path in readable_in_tmp(charter) {
            let tree = sys::clone_tree(&c_path(&path)?).map_err(|errno| format!("{}: {}", path.display(), errno.desc()))?;
            sys::set_mount_attributes(Some(tree.as_fd()), c"", sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID)
                .map_err(|errno| format!("{}: {}", path.display(), errno.desc()))?;
            kept.push(Kept { path, tree });
        }
    }
    let private =
        sys::clone_tree(&c_path(&charter.session_dir.join("tmp"))?).map_err(|errno| format!("the private /tmp: {}", errno.desc()))?;
    sys::set_mount_attributes(None, c"/", sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID)
        .map_err(|errno| format!("the mounts cannot be made read-only: {}", errno.desc()))?;
    if tmp {
        sys::attach_tree(private.as_fd(), c"/tmp").map_err(|errno| format!("the private /tmp: {}", errno.desc()))?;
    }
    // Sorted by name, so a folder comes before what is in it.
    kept.sort_by(|one, other| one.path.cmp(&other.path));
    for Kept { path, tree } in &kept {
        if tmp && path.starts_with("/tmp") {
            make_room(path)?;
        }
        sys::attach_tree(tree.as_fd(), &c_path(path)?).map_err(|errno| format!("{}: {}", path.display(), errno.desc()))?;
    }
    cover_protected(charter, notes)?;

    let shm = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if Path::new("/dev/shm").is_dir()
        && let Err(errno) = mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), shm, Some(SHM_SIZE))
    {
        notes.push(format!("no private /dev/shm: {}", errno.desc()));
    }
    let pts = own_terminals(notes);
    let bounded = fresh_proc(charter.limits.processes, notes)?;
    Ok((pts, bounded))
}

/// What stays writable: what is granted for writing to anybody.
fn writable(charter: &Charter) -> BTreeSet<PathBuf> {
    let all = [charter.change.as_ref(), charter.execute.as_ref(), Some(&charter.own)];
    all.into_iter().flatten().flat_map(|grants| &grants.0).filter(|grant| grant.rights.write).map(|grant| grant.path.clone()).collect()
}

/// Whether `/tmp` can be the session's own. A Landlock rule for it holds for all that is mounted below it, so nothing may be there that
/// commands must not write: neither the session's folder, nor a workspace that is not theirs to change.
fn own_tmp(charter: &Charter, notes: &mut Vec<String>) -> bool {
    let theirs =
        |path: &Path| charter.execute.iter().flat_map(|grants| &grants.0).any(|grant| grant.rights.write && path.starts_with(&grant.path));
    let written = |path: &PathBuf| path.starts_with("/tmp") && !theirs(path) && !path.starts_with(&charter.session_dir);
    let says = if !Path::new("/tmp").is_dir() {
        "there is no /tmp here"
    } else if charter.session_dir.starts_with("/tmp") {
        "the session's folder is below it: set TMPDIR to a folder elsewhere"
    } else if writable(charter).iter().any(written) {
        "commands may not write everything that is granted below it"
    } else {
        return true;
    };
    notes.push(format!("no /tmp of the session's own: {says}; TMPDIR is private"));
    false
}

/// Grants for reading that lie below `/tmp`, and would be gone with it.
fn readable_in_tmp(charter: &Charter) -> Vec<PathBuf> {
    let written = writable(charter);
    let mut paths: BTreeSet<PathBuf> = BTreeSet::new();
    for grants in [Some(&charter.look), charter.execute.as_ref(), Some(&charter.own)].into_iter().flatten() {
        paths.extend(grants.0.iter().filter(|grant| !grant.rights.write && grant.path.starts_with("/tmp")).map(|grant| grant.path.clone()));
    }
    paths.into_iter().filter(|path| !written.contains(path) && path.exists()).collect()
}

/// Makes the folders in the private `/tmp` on which something is mounted. They are the session's own, and go with it.
fn make_room(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Covers protected names that exist with themselves, read-only, and pins the folders above them within the base: a mount point cannot be
/// renamed or removed.
fn cover_protected(charter: &Charter, notes: &mut Vec<String>) -> Result<(), String> {
    let mut pins: BTreeSet<PathBuf> = BTreeSet::new();
    let mut covers: BTreeSet<PathBuf> = BTreeSet::new();
    for name in &charter.protect {
        let path = charter.base.join(name);
        // A link is judged by where it leads when it is opened; covering it would cover something else.
        if path.symlink_metadata().map_or(true, |meta| meta.file_type().is_symlink()) {
            continue;
        }
        covers.insert(path.clone());
        pins.extend(
            path.ancestors().skip(1).take_while(|above| *above != charter.base && above.starts_with(&charter.base)).map(Path::to_path_buf),
        );
    }
    for (paths, attributes) in [(pins, 0), (covers, sys::MOUNT_ATTR_RDONLY)] {
        for path in paths {
            let attach = || -> Result<(), Errno> {
                let name = c_path(&path).map_err(|_| Errno::EINVAL)?;
                let tree = sys::clone_tree(&name)?;
                if attributes != 0 {
                    sys::set_mount_attributes(Some(tree.as_fd()), c"", attributes)?;
                }
                sys::attach_tree(tree.as_fd(), &name)
            };
            if let Err(errno) = attach() {
                notes.push(format!("{} could not be covered: {}", path.display(), errno.desc()));
            }
        }
    }
    Ok(())
}

/// Pseudo terminals of the session's own.
fn own_terminals(notes: &mut Vec<String>) -> bool {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
    let own = mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=0620"))
        .and_then(|()| mount(Some("/dev/pts/ptmx"), "/dev/ptmx", None::<&str>, MsFlags::MS_BIND, None::<&str>));
    match own {
        Ok(()) => true,
        Err(errno) => {
            notes.push(format!("no pseudo terminals of the session's own: {}", errno.desc()));
            false
        }
    }
}

/// A `/proc` that shows only the session's processes, with `/proc/sys` and its like read-only. Says whether the number of processes is
/// bounded.
fn fresh_proc(processes: u64, notes: &mut Vec<String>) -> Result<bool, String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if let Err(errno) = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>) {
        // A container that masks parts of /proc does not permit a whole one within it.
        notes.push(format!("no /proc of the session's own: {}", errno.desc()));
        return Ok(false);
    }
    let bounded = processes > 0 && bound_processes(processes);
    for name in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"] {
        let path = Path::new(name);
        if !path.exists() {
            continue;
        }
        let name = c_path(path)?;
        let cover = sys::clone_tree(&name).and_then(|tree| {
            sys::set_mount_attributes(Some(tree.as_fd()), c"", sys::MOUNT_ATTR_RDONLY)?;
            sys::attach_tree(tree.as_fd(), &name)
        });
        cover.map_err(|errno| format!("{}: stays writable: {}", path.display(), errno.desc()))?;
    }
    Ok(bounded)
}

/// Bounds the process ids of this process namespace, and with them the number of processes and threads in it. Kernels before 6.14 have one
/// `pid_max` for the whole machine, which must not be touched: it is theirs who are the machine's user 0, while the one of a namespace
/// is theirs who have the capability in it. So it is written as another user who kept the capabilities: on an older kernel that is refused.
fn bound_processes(processes: u64) -> bool {
    const PID_MAX: &str = "/proc/sys/kernel/pid_max";
    /// Ids below this one are not given again once all have been given (`RESERVED_PIDS` of kernel/pid.c).
    const RESERVED: u64 = 300;
    /// `SECBIT_NO_SETUID_FIXUP` of linux/securebits.h: another user id leaves the capabilities alone.
    const KEEP_CAPABILITIES: u32 = 1 << 2;
    const NOBODY: u32 = 65_534;
    let most = processes.saturating_add(RESERVED + super::limits::SPARE_PROCESSES).min(1 << 22).to_string();
    let done = if geteuid().is_root() {
        let in_child = || -> bool {
            sys::process_control(sys::ProcessControl::SetSecurebits(KEEP_CAPABILITIES)).is_ok()
                && nix::unistd::seteuid(NOBODY.into()).is_ok()
                && std::fs::write(PID_MAX, &most).is_ok()
        };
        match sys::fork_single_threaded() {
            Ok(Forked::Child) => sys::exit_now(i32::from(!in_child())),
            Ok(Forked::Parent(child)) => loop {
                match waitpid(child, None) {
                    Err(Errno::EINTR) => {}
                    other => break matches!(other, Ok(WaitStatus::Exited(_, 0))),
                }
            },
            Err(_) => false,
        }
    } else {
        std::fs::write(PID_MAX, &most).is_ok()
    };
    done && std::fs::read_to_string(PID_MAX).is_ok_and(|now| now.trim() == most)
}
