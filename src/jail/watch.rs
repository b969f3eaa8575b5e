//! How much a program and all that it starts use, counted from outside while they run: the bounds that no rlimit knows.
//!
//! The host says when to begin, so that a short command costs nothing; then the keeper looks so seldom that looking takes at the most
//! a tenth of the time. It reads the kernel's numbers only, never a file's content, and decides by nothing that the program says.
//! Between two looks a bound can be exceeded: where the kernel bounds as well (`pid_max`, `RLIMIT_NPROC`), that holds at once.

use super::tree;
use super::wire::Bound;
use crate::policy::Limits;
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::{BaseDir, RelPath};
use nix::sys::signal::{Signal, killpg};
use nix::sys::statvfs::fstatvfs;
use nix::sys::sysinfo::sysinfo;
use nix::unistd::{Pid, SysconfVar, getpid, sysconf};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The least time between two looks.
const OFTEN: Duration = Duration::from_millis(50);
/// The time between two glances at how many threads the machine has.
const GLANCE: Duration = Duration::from_millis(5);
/// The most time between two looks.
const SELDOM: Duration = Duration::from_millis(500);
/// How much longer than a look the pause after it is.
const PAUSE: u32 = 10;
/// The least time between two looks at the disk, and between two walks over the session's files.
const DISK: Duration = Duration::from_millis(200);
const WALK: Duration = Duration::from_secs(2);
/// The most time between two such walks: what others free meanwhile hides what is added.
const SURE: Duration = Duration::from_secs(5);
/// The bounds of one such walk.
const WALK_TIME: Duration = Duration::from_millis(150);
const WALK_ENTRIES: usize = 50_000;

/// The disk as it was when the session began.
#[derive(Debug)]
pub struct Disk {
    began: i64,
    /// Folders to which the session may add, and what was free where they lie, in bytes.
    folders: Vec<(BaseDir, u64)>,
}

impl Disk {
    /// Looks at the file systems of the workspace and of the session's own folder. A folder that cannot be opened is not watched.
    pub fn now(base: &Path, session_dir: &Path) -> Self {
        let open = |path: &Path| {
            let folder = BaseDir::open(path).ok()?;
            let free = free(&folder)?;
            Some((folder, free))
        };
        let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { began: i64::try_from(began).unwrap_or(i64::MAX), folders: [base, session_dir].into_iter().filter_map(open).collect() }
    }

    /// Whether more than this was taken of a file system since the session began, by whomever.
    fn is_suspect(&self, most: u64) -> bool {
        self.folders.iter().any(|(folder, before)| free(folder).is_some_and(|now| before.saturating_sub(now) > most))
    }

    /// Whether files that changed since the session began hold more than this. Bounded: what a bounded walk does not find is not seen.
    fn is_exceeded(&self, most: u64) -> bool {
        let until = Instant::now() + WALK_TIME;
        let mut entries = 0;
        let mut bytes = 0;
        for (base, _) in &self.folders {
            let Ok(top) = OpenDir::open(base, &RelPath::base()) else { continue };
            let mut open = vec![PathBuf::from(".")];
            while let Some(path) = open.pop() {
                let Ok(folder) = top.enter(&path) else { continue };
                let _ = folder.entries(|name, kind| {
                    entries += 1;
                    let name = OsStr::from_bytes(name);
                    match kind {
                        Kind::Folder if entries < WALK_ENTRIES => open.push(path.join(name)),
                        Kind::File => {
                            if let Ok(stat) = folder.lstat(name)
                                && stat.st_ctime >= self.began
                            {
                                bytes += u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
                            }
                        }
                        _ => {}
                    }
                });
                if bytes > most {
                    return true;
                }
                if entries >= WALK_ENTRIES || Instant::now() > until {
                    return false;
                }
            }
        }
        false
    }
}

fn free(folder: &BaseDir) -> Option<u64> {
    let stat = fstatvfs(folder.as_fd()).ok()?;
    Some(stat.blocks_free().saturating_mul(stat.fragment_size()))
}

/// The watch over one program.
#[derive(Debug)]
pub struct Watch<'a> {
    limits: Limits,
    disk: &'a Disk,
    leader: Pid,
    /// Threads of the whole machine, as they were when nothing was wrong.
    threads: u16,
    due: Option<Instant>,
    disk_due: Instant,
    walk_due: Instant,
}

impl<'a> Watch<'a> {
    /// Begins now, with a first look that is due. `leader` leads the program's first process group.
    pub fn new(limits: Limits, disk: &'a Disk, leader: Pid) -> Self {
        let now = Instant::now();
        let nothing = limits.memory == 0 && limits.processes == 0 && limits.disk == 0;
        Self { limits, disk, leader, threads: threads(), due: (!nothing).then_some(now), disk_due: now, walk_due: now }
    }

    /// Milliseconds until the next look; `None`: there is nothing to watch.
    pub fn pause_ms(&self) -> Option<u16> {
        let mut left = self.due?.saturating_duration_since(Instant::now());
        if self.limits.processes > 0 {
            left = left.min(GLANCE);
        }
        // Rounded up: a poll that ends too early would only be repeated.
        Some(u16::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u16::MAX))
    }

    /// Looks, if it is time to; the bound that is exceeded.
    pub fn look(&mut self) -> Option<Bound> {
        let began = Instant::now();
        let alarmed = self.is_alarmed();
        if self.due? > began && !alarmed {
            return None;
        }
        if alarmed {
            // A fork bomb leaves its watch no processor to count with: first it is stopped.
            let _ = killpg(self.leader, Signal::SIGSTOP);
        }
        let exceeded = self.measure(began);
        if alarmed && exceeded.is_none() {
            let _ = killpg(self.leader, Signal::SIGCONT);
            self.threads = threads();
        }
        let cost = began.elapsed();
        self.due = Some(began + cost + (cost * PAUSE).clamp(OFTEN, SELDOM));
        exceeded
    }

    /// Whether the machine has got more new threads than the program may have. Costs one call.
    fn is_alarmed(&self) -> bool {
        let grown = i64::from(threads().wrapping_sub(self.threads).cast_signed());
        self.limits.processes > 0 && i64::try_from(self.limits.processes).is_ok_and(|most| grown > most)
    }

    fn measure(&mut self, now: Instant) -> Option<Bound> {
        let Limits { memory, processes, disk, .. } = self.limits;
        let most_tasks = if processes == 0 { u64::MAX } else { processes };
        let usage = Usage::of_tree(most_tasks);
        if usage.tasks > most_tasks {
            return Some(Bound::Processes);
        }
        // Pages that several processes share are counted in each: an upper bound that is cheap, and exact only where it matters.
        if memory > 0 && usage.resident > memory && usage.proportional() > memory {
            return Some(Bound::Memory);
        }
        if disk > 0 && now >= self.disk_due {
            self.disk_due = now + DISK;
            if now >= self.walk_due && (now >= self.walk_due + SURE || self.disk.is_suspect(disk)) {
                if self.disk.is_exceeded(disk) {
                    return Some(Bound::Disk);
                }
                self.walk_due = now + WALK;
            }
        }
        None
    }
}

/// Threads of the machine, modulo 65,536.
fn threads() -> u16 {
    sysinfo().map_or(0, |info| info.process_count())
}

/// What a tree uses.
#[derive(Debug, Default)]
struct Usage {
    /// Processes and threads.
    tasks: u64,
    /// Bytes of resident memory, shared pages counted in each process.
    resident: u64,
    pids: Vec<Pid>,
}

impl Usage {
    /// Of all that is below this process. Ends early with more than `most` tasks.
    fn of_tree(most: u64) -> Self {
        let mut usage = Self::default();
        let me = getpid();
        let mut open = vec![me];
        if std::fs::metadata(format!("/proc/{me}/task/{me}/children")).is_err() {
            // A kernel without these lists: all of /proc is read.
            open = tree::descendants(&std::collections::HashSet::new());
        }
        while let Some(pid) = open.pop() {
            let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                usage.tasks += u64::from(pid != me);
                let below = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
                open.extend(below.split_ascii_whitespace().filter_map(|child| child.parse().ok()).map(Pid::from_raw));
            }
            if usage.tasks > most {
                break;
            }
            if pid != me {
                usage.resident += resident(pid);
                usage.pids.push(pid);
            }
        }
        usage
    }

    /// Bytes of memory with shared pages counted once, swapped ones included; of a process that does not say, its resident ones.
    fn proportional(&self) -> u64 {
        self.pids.iter().map(|pid| proportional(*pid).unwrap_or_else(|| resident(*pid))).sum()
    }
}

fn resident(pid: Pid) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| u64::try_from(size).ok()).unwrap_or(4096);
    pages.saturating_mul(size)
}

fn proportional(pid: Pid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let kib =
        |name: &str| -> Option<u64> { text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok()) };
    Some((kib("Pss:")? + kib("SwapPss:").unwrap_or(0)).saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_tree_is_counted_with_its_memory() {
        let before = Usage::of_tree(u64::MAX);
        let script = "x=$(head -c 30000000 /dev/zero | tr '\\0' x); sleep 60 & sleep 60 & echo ready; wait";
        let mut child = Command::new("bash").args(["-c", script]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 5];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let usage = Usage::of_tree(u64::MAX);
        // Other tests of this program start processes too.
        assert!(usage.tasks >= 3, "{usage:?} {before:?}");
        assert!(usage.resident >= 30_000_000, "{usage:?}");
        // Until both have become `sleep` they share the memory of the shell, and each has a part of it.
        let until = Instant::now() + Duration::from_secs(20);
        let own = || proportional(Pid::from_raw(child.id() as i32)).unwrap();
        while own() < 30_000_000 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(own() >= 30_000_000);
        assert!(Usage::of_tree(1).tasks > 1);
        for pid in usage.pids.iter().filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n"))
        {
            let parent = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            if parent.contains(&format!(" S {} ", child.id())) {
                let _ = nix::sys::signal::kill(*pid, nix::sys::signal::Signal::SIGKILL);
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn the_disk_counts_what_was_added_and_nothing_that_was_there() {
        let (base, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(base.path().join("old"), vec![1; 1 << 20]).unwrap();
        let mut disk = Disk::now(base.path(), other.path());
        disk.began += 1;
        assert!(!disk.is_exceeded(1 << 19));
        disk.began -= 1;
        std::fs::create_dir(base.path().join("sub")).unwrap();
        std::fs::write(base.path().join("sub/new"), vec![1; 1 << 20]).unwrap();
        assert!(disk.is_exceeded(1 << 19) && !disk.is_exceeded(1 << 23));
    }

    #[test]
    fn without_bounds_there_is_nothing_to_watch() {
        let limits = Limits { wall_ms: 1, cpu_s: 1, memory: 0, processes: 0, file_size: 1, open_files: 1, output: 1, disk: 0 };
        let disk = Disk { began: 0, folders: Vec::new() };
        assert_eq!(Watch::new(limits, &disk, getpid()).pause_ms(), None);
        let mut watch = Watch::new(Limits { memory: 1 << 40, ..limits }, &disk, getpid());
        watch.look();
        assert!(watch.pause_ms().is_some_and(|ms| ms > 0 && ms <= 501));
        assert_eq!(watch.look(), None);
    }
}
