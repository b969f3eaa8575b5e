//! The kernel's own bounds on memory and processes of each program, where a cgroup of version 2 is delegated to us.
//!
//! A folder of the session's own is made below the cgroup of this process, or beside it, where memory and processes are handed down already:
//! found out by doing. In it the warden has one folder and each program another, which is removed after it. Nothing that was there
//! before is changed: no process of others moved, no limit of theirs touched, no controller switched on for them. No process is moved at
//! all, for that takes ten milliseconds: each is forked into its place.

use crate::policy::{Identity, Limits};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::{Gid, Pid, Uid, UnlinkatFlags, chown, geteuid, unlinkat};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where cgroups of version 2 are mounted.
const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// What the folder of a session is called, before what makes it unique.
const NAME: &str = "bailiwick-";

/// The folder of the warden and all that is no program.
const OURS: &str = "ours";

/// A folder of this age without processes was left by a session that was killed.
const STALE: Duration = Duration::from_secs(60);

/// The cgroup of a session.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    folder: OwnedFd,
    ours: OwnedFd,
}

/// The cgroup of one program and all that it starts.
#[derive(Debug)]
pub struct Program<'a> {
    session: &'a Cgroup,
    name: String,
    folder: OwnedFd,
    events: [File; 2],
}

/// The bound that a program met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Met {
    /// Of memory; the kernel has ended all its processes.
    Memory,
    /// Of processes; the kernel has refused one.
    Processes,
}

/// Makes the cgroup of a session, for a warden that will become `identity`. `Err`: why there is none.
pub fn begin(identity: &Identity) -> Result<Cgroup, String> {
    let mut why = "there is no cgroup of version 2".to_string();
    for parent in places()? {
        clear_stale(&parent);
        match make(&parent, identity) {
            Ok(cgroup) => return Ok(cgroup),
            Err(error) => why = format!("{}: {error}", parent.display()),
        }
    }
    Err(why)
}

/// Where a folder could be made: below the cgroup of this process, and beside it.
fn places() -> Result<Vec<PathBuf>, String> {
    let is_cgroup = |path: &&Path| statfs(*path).is_ok_and(|stat| stat.filesystem_type() == CGROUP2_SUPER_MAGIC);
    let Some(top) = MOUNTS.map(Path::new).into_iter().find(is_cgroup) else { return Ok(Vec::new()) };
    let text = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Ok(Vec::new()) };
    // Outside of what is mounted here.
    if own.split('/').any(|part| part == "..") {
        return Ok(Vec::new());
    }
    let own = top.join(own);
    let beside = own.parent().filter(|parent| parent.starts_with(top)).map(Path::to_path_buf);
    Ok(std::iter::once(own).chain(beside).collect())
}

fn make(parent: &Path, identity: &Identity) -> Result<Cgroup, String> {
    let handed = fs::read_to_string(parent.join("cgroup.subtree_control")).map_err(|error| error.to_string())?;
    if ["memory", "pids"].iter().any(|wanted| !handed.split_whitespace().any(|name| name == *wanted)) {
        return Err("memory and processes are not handed down".into());
    }
    let mut unique = [0; 8];
    File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut unique)).map_err(|error| error.to_string())?;
    let path = parent.join(format!("{NAME}{:016x}", u64::from_ne_bytes(unique)));
    fs::create_dir(&path).map_err(|error| error.to_string())?;
    let furnish = || -> Result<(OwnedFd, OwnedFd), Errno> {
        let folder = open(&path, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        if identity.uid != geteuid().as_raw() {
            let (uid, gid) = (Some(Uid::from_raw(identity.uid)), Some(Gid::from_raw(identity.gid)));
            for name in ["", "cgroup.procs", "cgroup.subtree_control"] {
                chown(&path.join(name), uid, gid)?;
            }
        }
        set(folder.as_fd(), "cgroup.subtree_control", "+memory +pids")?;
        mkdirat(&folder, OURS, Mode::from_bits_truncate(0o755))?;
        let ours = openat(&folder, OURS, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
        Ok((folder, ours))
    };
    match furnish() {
        Ok((folder, ours)) => Ok(Cgroup { path, folder, ours }),
        Err(errno) => {
            remove(&path);
            Err(errno.desc().into())
        }
    }
}

/// Removes what killed sessions left: only what holds no process can be removed.
fn clear_stale(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let old = || entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|made| made.elapsed().is_ok_and(|age| age > STALE));
        if entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes()) && old() {
            remove(&entry.path());
        }
    }
}

/// Removes the folder of a session whose last process has ended.
pub(super) fn remove(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

fn set(folder: BorrowedFd<'_>, name: &str, value: &str) -> Result<(), Errno> {
    let file = openat(folder, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    File::from(file).write_all(value.as_bytes()).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

impl Cgroup {
    /// The place of the warden and of all that it forks but programs.
    pub fn ours(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// By which name it is removed, once nothing is left in it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it unused.
    pub fn discard(self) {
        remove(&self.path);
    }

    /// A place for a program, with its bounds. Zero is none.
    ///
    /// # Errors
    /// The kernel's own; nothing is left then.
    pub fn program(&self, limits: &Limits) -> Result<Program<'_>, Errno> {
        let name = format!("program-{}", Pid::this());
        mkdirat(&self.folder, name.as_str(), Mode::from_bits_truncate(0o755))?;
        let furnish = || {
            let folder = openat(&self.folder, name.as_str(), OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
            if limits.memory > 0 {
                set(folder.as_fd(), "memory.max", &limits.memory.to_string())?;
                match set(folder.as_fd(), "memory.swap.max", "0") {
                    // A kernel that does not account for swap.
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(errno) => return Err(errno),
                }
                set(folder.as_fd(), "memory.oom.group", "1")?;
            }
            if limits.processes > 0 {
                set(folder.as_fd(), "pids.max", &limits.processes.to_string())?;
            }
            let events = |name| openat(&folder, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map(File::from);
            let events = [events("memory.events")?, events("pids.events")?];
            Ok((folder, events))
        };
        match furnish() {
            Ok((folder, events)) => Ok(Program { session: self, name, folder, events }),
            Err(errno) => {
                let _ = unlinkat(&self.folder, name.as_str(), UnlinkatFlags::RemoveDir);
                Err(errno)
            }
        }
    }
}

impl Program<'_> {
    /// Where its first process is forked into.
    pub fn place(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// What to wait on (`POLLPRI`) for a bound that is met.
    pub fn events(&self) -> [BorrowedFd<'_>; 2] {
        [self.events[0].as_fd(), self.events[1].as_fd()]
    }

    /// The bound that was met, if one was.
    pub fn met(&self) -> Option<Met> {
        let [memory, processes] = &self.events;
        if count(memory, "oom_kill") > 0 {
            return Some(Met::Memory);
        }
        (count(processes, "max") > 0).then_some(Met::Processes)
    }
}

impl Drop for Program<'_> {
    /// Ends what may be left in it, and removes it: at once where nothing is, else when the session ends.
    fn drop(&mut self) {
        let _ = set(self.folder.as_fd(), "cgroup.kill", "1");
        let _ = unlinkat(&self.session.folder, self.name.as_str(), UnlinkatFlags::RemoveDir);
    }
}

/// How often the kernel counted an event.
fn count(file: &File, name: &str) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 512];
    let len = file.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default());
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0)
}
