//! Ending a process tree that does not want to end, without a process namespace or a cgroup.
//!
//! The caller is the subreaper of the tree, so whatever a program detaches (double fork, a new session, an ignored SIGTERM, a
//! stopped process) stays below it. The sweep stops everything that it finds, looks again until a look finds nothing new (what is
//! stopped cannot fork), then kills and reaps. It stops whole process groups: a fork bomb that shares the processor with its collector
//! forks faster than it can be read, but a group is stopped by one call, and so is what a member of it is about to fork. A program
//! begins in a session of its own, so that every group of a descendant holds descendants only.

use crate::sys;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpgrp, getpid};
use std::collections::{HashMap, HashSet};

/// How many looks a sweep takes at the most before it kills what it has and starts again.
const LOOKS: usize = 64;

/// The most command lines that are reported, and the most characters of each.
const MOST_NAMED: usize = 20;
const MOST_NAME: usize = 200;

/// Ends every descendant of this process but those in `spare` (and what is below those), and reaps. Returns the command lines
/// of what it ended. `leader`: the program itself, which is not named, and whose group is stopped first.
pub fn end_descendants(spare: &HashSet<Pid>, leader: Option<Pid>) -> Vec<String> {
    if let Some(leader) = leader {
        let _ = killpg(leader, Signal::SIGSTOP);
    }
    let own_group = getpgrp();
    let mut named = Vec::new();
    let mut seen_ever: HashSet<Pid> = HashSet::new();
    loop {
        let mut stopped: HashSet<Pid> = HashSet::new();
        let mut groups: HashSet<Pid> = HashSet::new();
        for _ in 0..LOOKS {
            let fresh: Vec<Process> = below(spare).into_iter().filter(|process| !stopped.contains(&process.pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for Process { pid, group, .. } in fresh {
                if group != own_group && groups.insert(group) {
                    let _ = killpg(group, Signal::SIGSTOP);
                }
                let _ = kill(pid, Signal::SIGSTOP);
                stopped.insert(pid);
                if seen_ever.insert(pid) && named.len() < MOST_NAMED && Some(pid) != leader {
                    named.extend(command_line(pid));
                }
            }
        }
        for group in &groups {
            let _ = killpg(*group, Signal::SIGKILL);
        }
        for pid in &stopped {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if !reap(spare) && descendants(spare).is_empty() {
            return named;
        }
    }
}

/// Reaps what has ended. True where nothing is left: whatever a descendant detaches stays below this process, so without a child there is
/// no descendant, and nothing has to be looked for.
pub fn is_over() -> bool {
    loop {
        match sys::reap_any() {
            Err(Errno::ECHILD) => return true,
            Err(Errno::EINTR) | Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
    }
}

/// Reaps what has ended; waits for what was killed. True while there may be more.
fn reap(spare: &HashSet<Pid>) -> bool {
    let mut more = false;
    for pid in children() {
        if spare.contains(&pid) {
            continue;
        }
        while let Err(Errno::EINTR) | Ok(WaitStatus::Stopped(..) | WaitStatus::Continued(..)) = waitpid(pid, Some(WaitPidFlag::__WALL)) {}
        more = true;
    }
    more
}

/// All processes below this one, except the spared and what is below them. Zombies are not counted.
pub(super) fn descendants(spare: &HashSet<Pid>) -> Vec<Pid> {
    below(spare).into_iter().map(|process| process.pid).collect()
}

fn below(spare: &HashSet<Pid>) -> Vec<Process> {
    let mut below: HashMap<Pid, Vec<Process>> = HashMap::new();
    // A zombie's children have moved to the subreaper already.
    for process in processes().into_iter().filter(|process| !process.zombie) {
        below.entry(process.parent).or_default().push(process);
    }
    let mut found = Vec::new();
    let mut open = vec![getpid()];
    while let Some(pid) = open.pop() {
        for child in below.remove(&pid).unwrap_or_default() {
            if !spare.contains(&child.pid) {
                open.push(child.pid);
                found.push(child);
            }
        }
    }
    found
}

/// The direct children of this process, zombies included.
fn children() -> Vec<Pid> {
    let me = getpid();
    processes().into_iter().filter(|process| process.parent == me).map(|process| process.pid).collect()
}

/// A process, as `/proc` tells of it.
struct Process {
    pid: Pid,
    parent: Pid,
    group: Pid,
    zombie: bool,
}

/// Every process.
fn processes() -> Vec<Process> {
    let Ok(proc) = std::fs::read_dir("/proc") else { return Vec::new() };
    proc.flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may hold anything, a closing parenthesis too: the fields begin behind the last one.
            let fields = std::str::from_utf8(stat.get(stat.iter().rposition(|byte| *byte == b')')? + 2..)?).ok()?;
            let mut fields = fields.split(' ');
            let state = fields.next()?;
            let mut number = || Some(Pid::from_raw(fields.next()?.parse().ok()?));
            let (parent, group) = (number()?, number()?);
            Some(Process { pid: Pid::from_raw(pid), parent, group, zombie: matches!(state, "Z" | "X") })
        })
        .collect()
}

/// The command line of a process, for a person; `None` when it is gone.
fn command_line(pid: Pid) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(crate::workspace::escape::escape).collect();
    let mut line = words.join(" ");
    if line.is_empty() {
        let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
        line = crate::workspace::escape::escape(name.trim_ascii_end());
    }
    if line.chars().count() > MOST_NAME {
        line = line.chars().take(MOST_NAME).chain(['…']).collect();
    }
    Some(line)
}
