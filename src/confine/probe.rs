//! What this kernel can enforce, found out by doing it, in children that are thrown away. Never by a version, a file that says
//! so, or the words of an error.

use super::{errand, ruleset};
use crate::sys;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{getegid, geteuid};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// How long one probe may take.
const PROBE: Duration = Duration::from_secs(5);

/// What the kernel can do here, for this user, in this container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// Its release, as `uname` says it. For people only: nothing is decided by it.
    pub release: String,
    /// The machine.
    pub machine: String,
    /// Landlock.
    pub landlock: Landlock,
    /// Whether a seccomp filter can be installed.
    pub seccomp: Support,
    /// `openat2` with `RESOLVE_BENEATH`.
    pub openat2: Support,
    /// `pidfd_open`.
    pub pidfd: Support,
    /// Namespaces, each really made; `None`: not tried.
    pub namespaces: Option<NamespaceSupport>,
    /// A cgroup of version 2 in which folders can be made.
    pub cgroup: Support,
}

/// What the kernel says about Landlock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Landlock {
    /// It works; the newest version that the kernel knows.
    Available {
        /// The kernel's ABI version.
        abi: u32,
    },
    /// It cannot be used; what to do about it.
    Missing {
        /// The errno of the call: `ENOSYS` (not built in) or `EOPNOTSUPP` (off at boot).
        errno: i32,
        /// What to do.
        remedy: String,
    },
}

/// Whether something works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Support {
    /// It was done.
    Works,
    /// It was tried and failed.
    Fails {
        /// At which step and with which error.
        why: String,
    },
}

/// Which namespaces really start. All but `user` are tried inside a new user namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceSupport {
    /// With an identity map.
    pub user: Support,
    /// With its own propagation.
    pub mount: Support,
    /// With a first process.
    pub pid: Support,
    /// With nothing in it.
    pub net: Support,
    /// System V IPC and message queues.
    pub ipc: Support,
}

/// Asks the kernel, by doing.
pub fn probe() -> Kernel {
    let mut kernel = glance();
    let tried = |steps: fn() -> Result<(), String>| support(steps);
    kernel.seccomp = tried(|| super::filter::Filter::allow_all().apply().map_err(|fault| fault.message().to_string()));
    kernel.namespaces = Some(NamespaceSupport {
        user: tried(user_namespace),
        mount: tried(|| {
            user_namespace()?;
            step("make a mount namespace", unshare(CloneFlags::CLONE_NEWNS))?;
            let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            step("make the mounts private", mount(None::<&str>, "/", None::<&str>, private, None::<&str>))
        }),
        pid: tried(|| {
            user_namespace()?;
            step("make a pid namespace", unshare(CloneFlags::CLONE_NEWPID))?;
            match sys::fork_errand().map_err(|error| format!("start its first process: {error}"))? {
                None => sys::exit_now(if nix::unistd::getpid().as_raw() == 1 { 0 } else { 1 }),
                Some(child) => match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                    _ => Err("its first process is not number 1".into()),
                },
            }
        }),
        net: tried(|| {
            user_namespace()?;
            step("make a network namespace", unshare(CloneFlags::CLONE_NEWNET))
        }),
        ipc: tried(|| {
            user_namespace()?;
            step("make an ipc namespace", unshare(CloneFlags::CLONE_NEWIPC))
        }),
    });
    kernel.cgroup = cgroup();
    kernel
}

/// What can be asked without a child: for the start of a session, which tries its walls anyway.
pub(super) fn glance() -> Kernel {
    let (release, machine) = nix::sys::utsname::uname().map_or_else(
        |errno| (errno.desc().to_string(), String::new()),
        |names| (names.release().to_string_lossy().into_owned(), names.machine().to_string_lossy().into_owned()),
    );
    let landlock = match sys::landlock_abi() {
        Ok(abi) => Landlock::Available { abi },
        Err(errno) => Landlock::Missing { errno: errno as i32, remedy: ruleset::missing(errno).message().to_string() },
    };
    let not_tried = Support::Fails { why: "not tried".into() };
    Kernel {
        release,
        machine,
        landlock,
        seccomp: not_tried.clone(),
        openat2: of(openat2()),
        pidfd: of(step("open a pidfd of oneself", sys::pidfd(nix::unistd::Pid::this()))),
        namespaces: None,
        cgroup: not_tried,
    }
}

impl Kernel {
    /// The Landlock ABI; zero where there is none.
    pub fn landlock_abi(&self) -> u32 {
        match self.landlock {
            Landlock::Available { abi } => abi,
            Landlock::Missing { .. } => 0,
        }
    }
}

impl Support {
    /// Whether it works.
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}

/// Runs steps in a child that is thrown away.
fn support(steps: fn() -> Result<(), String>) -> Support {
    match errand::run(PROBE, steps) {
        Ok(done) => of(done),
        Err(fault) => Support::Fails { why: fault.message().to_string() },
    }
}

fn of(done: Result<(), String>) -> Support {
    done.map_or_else(|why| Support::Fails { why }, |()| Support::Works)
}

fn step<T>(what: &str, done: Result<T, Errno>) -> Result<(), String> {
    done.map(drop).map_err(|errno| format!("cannot {what}: {}", errno.desc()))
}

fn user_namespace() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    // A process that is not dumpable does not own its files in /proc.
    step("be dumpable", nix::sys::prctl::set_dumpable(true))?;
    step("make a user namespace", unshare(CloneFlags::CLONE_NEWUSER))?;
    let write =
        |file: &str, text: String| fs::write(format!("/proc/self/{file}"), text).map_err(|error| format!("cannot write {file}: {error}"));
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))
}

fn openat2() -> Result<(), String> {
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    let root = open("/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty());
    let root = root.map_err(|errno| format!("cannot open /: {}", errno.desc()))?;
    let here = std::path::Path::new(".");
    step(
        "open beneath a folder",
        crate::workspace::base_dir::open_beneath(std::os::fd::AsFd::as_fd(&root), here, OFlag::O_PATH, Mode::empty()),
    )
}

/// Tries to make a folder in our own cgroup.
fn cgroup() -> Support {
    let folder = || -> Result<PathBuf, String> {
        let text = fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("cannot read /proc/self/cgroup: {error}"))?;
        let ours = text.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("there is no cgroup of version 2")?;
        Ok(PathBuf::from("/sys/fs/cgroup").join(ours))
    };
    of(folder().and_then(|folder| {
        let child = folder.join(format!("bailiwick-probe-{}", std::process::id()));
        fs::create_dir(&child).map_err(|error| format!("cannot make a folder in {}: {error}", folder.display()))?;
        fs::remove_dir(&child).map_err(|error| format!("cannot remove {}: {error}", child.display()))
    }))
}
