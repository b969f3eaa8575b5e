//! Namespaces of our own, made where they really start: no step that needs root, no other program.
//!
//! [`enter`] is called by the warden before it has jails, threads or secrets. It forks once into all that starts here, and lays out the mounts
//! there: everything but the grants read-only, a private `/tmp`, `/dev/shm`,
//! `/dev/pts` and `/proc`, `/proc/sys` never writable, protected names covered. Where something does not start, or does not
//! get as far as that, the parent, which is as it was, says why and goes on with less, which the report tells: the Landlock ruleset and the filter stand in any case.
//!
//! It never removes a mount, never writes outside of the session's folder, and never makes a placeholder in the workspace.

use super::Namespaces;
use super::cgroups::{self, Cgroup};
use crate::envelope::{Fault, FaultCode};
use crate::policy::charter::{Own, OwnTree};
use crate::policy::{Charter, Grant, Net, Rights};
use crate::sys::{self, Forked};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use nix::sys::stat::stat;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Gid, Pid, Uid, getegid, geteuid, pipe2};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The size of the private `/dev/shm`.
const SHM_SIZE: &str = "mode=1777,size=1g";

/// What came of the attempt.
#[derive(Debug, Default)]
pub struct Entered {
    /// What is the session's own now.
    pub namespaces: Namespaces,
    /// Which folders are the session's own.
    pub own: Own,
    /// The kernel bounds how many processes there are in the process namespace.
    pub processes_bounded: bool,
    /// This process is in the session's cgroup.
    pub cgroup: bool,
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

/// Makes the namespaces that start here and lays out the mounts; takes its place in the session's cgroup, where there is one. Forks: the caller
/// goes on in the child, as process 1; the parent stays behind, waits for it and ends as it does. Where no namespaces start, or none can be
/// furnished, the caller goes on as it was.
///
/// # Errors
/// `cannot_confine` where the kernel says what is not so.
pub fn enter(charter: &Charter, cgroup: Option<&Cgroup>) -> Result<Entered, Fault> {
    try_enter(charter, cgroup).map_err(|says| Fault::new(FaultCode::CannotConfine, format!("the namespaces: {says}")))
}

fn try_enter(charter: &Charter, cgroup: Option<&Cgroup>) -> Result<Entered, String> {
    let mut all = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS;
    if charter.net != Net::Full {
        all |= CloneFlags::CLONE_NEWNET;
    }
    let mut reasons = Vec::new();
    // A process namespace is of use with a /proc of its own only, which a container that masks parts of its /proc does not permit.
    for flags in [all, all.difference(CloneFlags::CLONE_NEWPID)] {
        if !charter.namespaces {
            break;
        }
        let ears = if flags.contains(CloneFlags::CLONE_NEWNET) { Ears::open().ok() } else { None };
        let inside = match begin(flags, cgroup)? {
            Begun::Inside(inside) => inside,
            Begun::Outside(why) => {
                reasons.push(why);
                continue;
            }
        };
        match furnish_rooms(charter, inside.user, flags, ears) {
            Ok(mut entered) => {
                entered.cgroup = inside.cgroup;
                entered.notes.extend(reasons.iter().map(|why| format!("no process namespace of the session's own: {why}")));
                // The parent learns by the end of the pipe that this process goes on.
                return Ok(entered);
            }
            Err(why) => {
                let _ = File::from(inside.tell).write_all(why.as_bytes());
                sys::exit_now(1)
            }
        }
    }
    let mut notes = Vec::new();
    if charter.namespaces {
        reasons.dedup();
        let why = reasons.join("; ");
        notes.push(format!("no namespaces start here ({why}): the sandbox stands on Landlock and seccomp alone"));
    }
    let in_cgroup = cgroup.is_some() && matches!(begin(CloneFlags::empty(), cgroup)?, Begun::Inside(Inside { cgroup: true, .. }));
    Ok(Entered { notes, cgroup: in_cgroup, ..Entered::default() })
}

/// Which side of the fork into namespaces this is.
enum Begun {
    /// In them.
    Inside(Inside),
    /// They are of no use here: this process is as it was.
    Outside(String),
}

/// The side that goes on in what is new.
struct Inside {
    /// There is a user namespace.
    user: bool,
    /// It is in the session's cgroup.
    cgroup: bool,
    /// What is written here is why all that is of no use; it is closed where it is.
    tell: OwnedFd,
}

/// Forks into new namespaces: as root directly, else with a user namespace that maps nobody but the caller; and into the session's cgroup.
/// Goes on in the child; the parent waits for it and ends as it does. Where the child cannot go on (a machine that permits the namespaces,
/// but no mounts in them), the parent does, outside.
fn begin(flags: CloneFlags, cgroup: Option<&Cgroup>) -> Result<Begun, String> {
    let (ours, tell) = pipe2(OFlag::O_CLOEXEC).map_err(|errno| errno.desc().to_string())?;
    let before = mount_namespace()?;
    let (uid, gid) = (geteuid(), getegid());
    let with_user = flags | CloneFlags::CLONE_NEWUSER;
    let mut tries = vec![];
    for cgroup in cgroup.map(Some).into_iter().chain([None]) {
        match (flags.is_empty(), uid.is_root()) {
            // Without a cgroup there is nothing to fork into.
            (true, _) => tries.extend(cgroup.map(|cgroup| (flags, Some(cgroup)))),
            (_, true) => tries.extend([(flags, cgroup), (with_user, cgroup)]),
            (_, false) => tries.push((with_user, cgroup)),
        }
    }
    let mut why = Errno::ENOSYS;
    for (flags, cgroup) in tries {
        match sys::fork_into(flags, cgroup.map(Cgroup::ours)) {
            Ok(Forked::Child) => {
                drop(ours);
                // The parent is outside: its end is the end of everything here.
                sys::set_parent_death_signal(libc::SIGKILL).map_err(|errno| errno.desc().to_string())?;
                if flags.contains(CloneFlags::CLONE_NEWNS) && mount_namespace()? == before {
                    // Mounts would be made in the host's.
                    return Err("the kernel said that it made namespaces, and made none".into());
                }
                let user = flags.contains(CloneFlags::CLONE_NEWUSER);
                if user && let Err(error) = map_caller(uid, gid) {
                    let _ = File::from(tell).write_all(format!("the user cannot be mapped: {error}").as_bytes());
                    sys::exit_now(1);
                }
                return Ok(Begun::Inside(Inside { user, cgroup: cgroup.is_some(), tell }));
            }
            Ok(Forked::Parent(child)) => {
                drop(tell);
                let mut why = String::new();
                File::from(ours).read_to_string(&mut why).map_err(|error| error.to_string())?;
                if why.is_empty() {
                    // Nothing may be held open here that the host waits to see closed.
                    let _ = sys::close_from(0);
                    end_as(child, cgroup)
                }
                while waitpid(child, None) == Err(Errno::EINTR) {}
                return Ok(Begun::Outside(why));
            }
            Err(errno) => why = errno,
        }
    }
    Ok(Begun::Outside(why.desc().into()))
}

/// What tells one mount namespace from another.
fn mount_namespace() -> Result<(u64, u64), String> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self/ns/mnt").map(|meta| (meta.dev(), meta.ino())).map_err(|error| format!("/proc/self/ns/mnt: {error}"))
}

fn map_caller(uid: Uid, gid: Gid) -> std::io::Result<()> {
    // Without this a user could give up a group that is meant to keep it out of something.
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Waits for a child, removes the session's cgroup, and ends as the child did.
fn end_as(child: Pid, cgroup: Option<&Cgroup>) -> ! {
    let code = loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => break code,
            Ok(WaitStatus::Signaled(_, signal, _)) => break 128 + signal as i32,
            Err(Errno::EINTR) | Ok(_) => {}
            Err(_) => break 1,
        }
    };
    if let Some(cgroup) = cgroup {
        cgroups::remove(cgroup.path());
    }
    sys::exit_now(code)
}

/// Lays out the mounts and brings up the loopback, in namespaces that are new.
fn furnish_rooms(charter: &Charter, user: bool, flags: CloneFlags, ears: Option<Ears>) -> Result<Entered, String> {
    let mut notes = Vec::new();
    let mut own = Own {
        tmp: can_be_own(charter, "/tmp", "TMPDIR is private", &mut notes),
        shm: can_be_own(charter, "/dev/shm", "shared memory by name is not to be had", &mut notes),
    };
    // Nothing of what follows may be seen outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .map_err(|errno| format!("the mounts cannot be made private: {}", errno.desc()))?;
    let hand = bait(charter)?;
    let pid = flags.contains(CloneFlags::CLONE_NEWPID);
    let (pts, processes_bounded) = lay_out(charter, &mut own, pid, &mut notes)?;
    let net = flags.contains(CloneFlags::CLONE_NEWNET);
    if net && let Err(errno) = sys::loopback_up() {
        notes.push(format!("the loopback of the session could not be brought up: {}", errno.desc()));
    }
    if pid && !std::fs::read_link("/proc/self").is_ok_and(|me| me.as_os_str() == "1") {
        return Err("/proc is not the session's own".into());
    }
    Ok(Entered {
        namespaces: Namespaces { user, mount: true, pid, net, ipc: true, pts },
        own,
        processes_bounded,
        cgroup: false,
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
    let mut more = Vec::new();
    if entered.own.tmp {
        more.push(place("/tmp", Rights::ALL, "temporary files, the session's own"));
    }
    if entered.own.shm {
        more.push(place("/dev/shm", Rights::CHANGE, "shared memory, the session's own"));
    }
    if namespaces.pts {
        more.push(place("/dev/pts", Rights::DEVICE, "pseudo terminals, the session's own"));
        more.push(place("/dev/ptmx", Rights::DEVICE, "pseudo terminals, the session's own"));
    }
    for grants in [charter.execute.as_mut(), Some(&mut charter.own)].into_iter().flatten() {
        grants.0.extend(more.iter().cloned());
    }
    if !entered.own.tmp {
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

fn c_path(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| format!("{}: a NUL in a path", path.display()))
}

/// A tree that is put back where it was, writable, after everything has become read-only.
struct Kept {
    path: PathBuf,
    tree: OwnedFd,
}

/// Lays out the mounts. Says whether the pseudo terminals are the session's own, and whether the processes are bounded.
fn lay_out(charter: &Charter, own: &mut Own, pid: bool, notes: &mut Vec<String>) -> Result<(bool, bool), String> {
    let mut kept = Vec::new();
    for path in charter.writable() {
        if !path.exists() {
            continue;
        }
        let tree =
            sys::clone_tree(&c_path(&path)?).map_err(|errno| format!("{}: cannot be kept writable: {}", path.display(), errno.desc()))?;
        kept.push(Kept { path, tree });
    }
    // What is granted below the host's folder would be gone with it. What it is granted for is up to the mounts: the rule for /tmp grants all.
    for OwnTree { path, writable, exec } in charter.granted_in(*own) {
        if !path.exists() {
            continue;
        }
        let failed = |errno: Errno| format!("{}: {}", path.display(), errno.desc());
        let mut attributes = if writable { 0 } else { sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID };
        attributes |= if exec { 0 } else { sys::MOUNT_ATTR_NOEXEC };
        let tree = match kept.iter().position(|kept| kept.path == path) {
            Some(place) => kept.swap_remove(place).tree,
            None => sys::clone_tree(&c_path(&path)?).map_err(failed)?,
        };
        if attributes != 0 {
            sys::set_mount_attributes(Some(tree.as_fd()), c"", attributes).map_err(failed)?;
        }
        kept.push(Kept { path, tree });
    }
    let private =
        sys::clone_tree(&c_path(&charter.session_dir.join("tmp"))?).map_err(|errno| format!("the private /tmp: {}", errno.desc()))?;
    sys::set_mount_attributes(None, c"/", sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID)
        .map_err(|errno| format!("the mounts cannot be made read-only: {}", errno.desc()))?;
    if own.tmp {
        sys::attach_tree(private.as_fd(), c"/tmp").map_err(|errno| format!("the private /tmp: {}", errno.desc()))?;
    }
    let shm = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    if own.shm
        && let Err(errno) = mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), shm, Some(SHM_SIZE))
    {
        notes.push(format!("no /dev/shm of the session's own: {}", errno.desc()));
        own.shm = false;
    }
    // Sorted by name, so a folder comes before what is in it.
    kept.sort_by(|one, other| one.path.cmp(&other.path));
    for Kept { path, tree } in &kept {
        if own.holds(path) {
            make_room(path, tree.as_fd())?;
        }
        sys::attach_tree(tree.as_fd(), &c_path(path)?).map_err(|errno| format!("{}: {}", path.display(), errno.desc()))?;
    }
    cover_protected(charter, notes)?;
    let pts = own_terminals(notes);
    let bounded = pid && fresh_proc(charter.limits.processes)?;
    Ok((pts, bounded))
}

/// Whether a shared folder can be the session's own. `without`: how it is else.
fn can_be_own(charter: &Charter, folder: &str, without: &str, notes: &mut Vec<String>) -> bool {
    let shared = charter.shared(folder);
    notes.extend(shared.map(|says| format!("no {folder} of the session's own: {says}; {without}")));
    shared.is_none()
}

/// Makes what something is mounted on in a private `/tmp` or `/dev/shm`: folders, and a file for a file. They are the session's own, and go with it.
fn make_room(path: &Path, tree: BorrowedFd<'_>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if nix::sys::stat::fstat(tree).map_err(|errno| failed(errno.into()))?.st_mode & libc::S_IFMT == libc::S_IFDIR {
        return std::fs::create_dir_all(path).map_err(failed);
    }
    std::fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    match File::create_new(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Covers protected names that exist with themselves, read-only, and pins the folders above them within the base: a mount point cannot be
/// renamed or removed.
fn cover_protected(charter: &Charter, notes: &mut Vec<String>) -> Result<(), String> {
    let (mut pins, mut covers) = (BTreeSet::new(), BTreeSet::new());
    for (cover, above) in charter.covered() {
        covers.insert(cover);
        pins.extend(above);
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
    // Commands are granted what is there now, so it is looked at whether it is another one.
    let device = || stat("/dev/pts").map(|stat| stat.st_dev);
    let before = device();
    let own = mount(Some("devpts"), "/dev/pts", Some("devpts"), flags, Some("newinstance,ptmxmode=0666,mode=0620"))
        .and_then(|()| if device() == before { Err(Errno::EBUSY) } else { Ok(()) })
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
fn fresh_proc(processes: u64) -> Result<bool, String> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>).map_err(|errno| format!("no /proc of its own: {}", errno.desc()))?;
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
