//! The process beside a program.
//!
//! A keeper forks the leader (which narrows itself and then becomes the program), waits for it, and ends everything that the
//! program left running. It is the subreaper of all that the program starts, and stays outside of the program's Landlock domain:
//! the program cannot signal or trace its own keeper. Of what the program writes it reads protected files alone, to compare them. Once the host says that the program takes
//! longer than a moment, it also watches how much the whole tree uses.

use super::watch::{Disk, Watch};
use super::wire::{self, Bound, Ended, Orders, ToKeeper};
use super::{enter, tree};
use crate::confine::Prepared;
use crate::confine::cgroups::{Cgroup, Met, Program};
use crate::policy::{Charter, Limits};
use crate::sys::{self, Ending, Forked};
use crate::tools::guard::{self, Reply};
use crate::workspace::BaseDir;
use crate::workspace::watch::Known;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::CloneFlags;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a promised word of the host is waited for.
const WORD: Duration = Duration::from_secs(2);

/// How long a keeper that waits for its program lists the workspace ahead. Larger ones are not searched after each command.
const LISTING: Duration = Duration::from_millis(20);

/// What bounds programs beside their rlimits.
#[derive(Debug)]
pub struct Bounds<'a> {
    /// What the session may add to disks.
    pub disk: &'a Disk,
    /// Where the kernel bounds memory and processes; else they are counted.
    pub cgroup: Option<&'a Cgroup>,
}

/// Forks the leader, keeps it, reports, and leaves no process behind. Runs in a fork of the warden and does not return. `ahead`: the program
/// comes later.
pub fn keep(
    prepared: &Prepared,
    charter: &Charter,
    base: &BaseDir,
    bounds: &Bounds<'_>,
    (launch, control): (OwnedFd, OwnedFd),
    ahead: bool,
) -> ! {
    let code = match try_keep(prepared, charter, base, bounds, (launch, &control), ahead) {
        Ok(()) => 0,
        Err(_) => {
            tree::end_descendants(&HashSet::new(), None);
            1
        }
    };
    sys::exit_now(code)
}

fn try_keep(
    prepared: &Prepared,
    charter: &Charter,
    base: &BaseDir,
    bounds: &Bounds<'_>,
    (launch, control): (OwnedFd, &OwnedFd),
    ahead: bool,
) -> Result<(), Errno> {
    nix::sys::prctl::set_child_subreaper(true)?;
    // Blocked before the fork, so that no end can be missed.
    let mut chld = SigSet::empty();
    chld.add(Signal::SIGCHLD);
    chld.thread_block()?;
    let me = Pid::this();
    let mut cgroup = bounds.cgroup.and_then(|cgroup| cgroup.program(&charter.limits).ok());
    let placed = cgroup.as_ref().map(|program| sys::fork_into(CloneFlags::empty(), Some(program.place())));
    let forked = match placed {
        Some(Ok(forked)) => forked,
        _ => {
            cgroup = None;
            sys::fork_single_threaded()?
        }
    };
    let leader = match forked {
        Forked::Child => enter::lead(me, prepared, charter, base, launch),
        Forked::Parent(pid) => pid,
    };
    drop(launch);
    // What the kernel bounds needs no counting.
    let counted = if cgroup.is_some() { Limits { memory: 0, processes: 0, ..charter.limits } } else { charter.limits };
    let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let known = if ahead {
        guard::rehearse(base, &charter.protect);
        Known::by_listing(base, Instant::now() + LISTING)
    } else {
        Known::default()
    };
    let mut status = None;
    let mut heard = true;
    let mut killed = Vec::new();
    let mut exceeded = None;
    let mut watch: Option<Watch<'_>> = None;
    let mut comparison = Comparison::None;
    let mut gone_on = None;
    while status.is_none() {
        let mut ready = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN), PollFd::new(control.as_fd(), PollFlags::POLLIN)];
        ready.extend(cgroup.iter().flat_map(|program| program.events()).map(|events| PollFd::new(events, PollFlags::POLLPRI)));
        let pause = watch.as_ref().and_then(Watch::pause_ms).map_or(PollTimeout::NONE, PollTimeout::from);
        match poll(&mut ready, pause) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let (child, host) = (happened(&ready[0]), happened(&ready[1]));
        if child {
            while let Ok(Some(_)) = signals.read_signal() {}
            status = reap(leader);
        }
        if host && status.is_none() {
            match wire::receive::<ToKeeper>(control.as_fd()) {
                Ok(Some((ToKeeper::Go(byte), mut fds))) => {
                    let go = fds.pop().filter(|_| !comparison.finds_change(base));
                    gone_on = Some(go.is_some_and(|go| nix::unistd::write(&go, &[byte]) == Ok(1)));
                    if gone_on == Some(false) {
                        tree::end_descendants(&HashSet::new(), Some(leader));
                        status = Some(Ending::Signaled(libc::SIGKILL));
                    }
                }
                Ok(Some((ToKeeper::Signal(number), _))) => {
                    if let Ok(signal) = Signal::try_from(number) {
                        let _ = nix::sys::signal::killpg(leader, signal).or_else(|_| kill(leader, signal));
                    }
                }
                Ok(Some((ToKeeper::Watch, _))) => watch = Some(Watch::new(counted, bounds.disk, leader)),
                Ok(Some((ToKeeper::Kill, _))) => {
                    killed = tree::end_descendants(&HashSet::new(), Some(leader));
                    status = Some(Ending::Signaled(libc::SIGKILL));
                }
                Ok(Some((ToKeeper::CompareLater, _))) => comparison = Comparison::Awaited,
                Ok(Some((ToKeeper::Compare(orders), _))) => comparison = Comparison::With(orders),
                // The host is gone, or talks nonsense.
                Ok(None) | Err(_) => {
                    heard = false;
                    tree::end_descendants(&HashSet::new(), Some(leader));
                    status = Some(Ending::Signaled(libc::SIGKILL));
                }
            }
        }
        if status.is_none() {
            exceeded = cgroup.as_ref().and_then(met).or_else(|| watch.as_mut().and_then(Watch::look));
            if exceeded.is_some() {
                killed = tree::end_descendants(&HashSet::new(), Some(leader));
                status = Some(Ending::Signaled(libc::SIGKILL));
            }
        }
    }
    exceeded = exceeded.or_else(|| cgroup.as_ref().and_then(met));
    // Nothing left is the common case, and costs one system call.
    if !tree::is_over() {
        killed.extend(tree::end_descendants(&HashSet::new(), Some(leader)));
    }
    drop(cgroup);
    if heard {
        let mut ended = ended(status, killed, exceeded);
        ended.gone_on = gone_on;
        ended.compared = comparison.make(base, control, &known);
        wire::send(control.as_fd(), &ended, &[])?;
    }
    Ok(())
}

/// The bound that the kernel has held a program to.
fn met(program: &Program<'_>) -> Option<Bound> {
    program.met().map(|met| match met {
        Met::Memory => Bound::Memory,
        Met::Processes => Bound::Processes,
    })
}

/// The comparison of protected names, as far as the host has asked for it.
enum Comparison {
    None,
    Awaited,
    With(Orders),
}

impl Comparison {
    /// Whether a name is not as it was by now.
    fn finds_change(&self, base: &BaseDir) -> bool {
        matches!(self, Self::With(orders) if !guard::changed(base, &orders.known()).is_empty())
    }

    /// Compares. `None` where there is nothing to compare with: the host then asks a jail.
    fn make(mut self, base: &BaseDir, control: &OwnedFd, known: &Known) -> Option<Reply> {
        let until = Instant::now() + WORD;
        // Sent before the program was started, or just after: it may lie in the wire, unread.
        loop {
            let patience = if matches!(self, Self::Awaited) { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
            if matches!(self, Self::With(..)) || !wire::wait_readable(control, patience).unwrap_or(false) {
                break;
            }
            match wire::receive::<ToKeeper>(control.as_fd()) {
                Ok(Some((ToKeeper::Compare(orders), _))) => self = Self::With(orders),
                Ok(Some((ToKeeper::CompareLater, _))) => self = Self::Awaited,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        match self {
            Self::With(orders) => Some(guard::compare_and_open(base, &orders.stamps, orders.sweep, &orders.closed, known)),
            Self::None | Self::Awaited => None,
        }
    }
}

fn happened(fd: &PollFd<'_>) -> bool {
    fd.revents().is_some_and(|events| !events.is_empty())
}

/// Reaps all that has ended; the leader's status when it is among it.
fn reap(leader: Pid) -> Option<Ending> {
    let mut found = None;
    loop {
        match sys::reap_any() {
            Ok(Some((pid, ending))) if pid == leader => found = Some(ending),
            Err(Errno::EINTR) | Ok(Some(_)) => {}
            Ok(None) | Err(_) => return found,
        }
    }
}

fn ended(status: Option<Ending>, killed: Vec<String>, exceeded: Option<Bound>) -> Ended {
    let (exit_code, signal) = match status {
        Some(Ending::Exited(code)) => (Some(code), None),
        Some(Ending::Signaled(signal)) => (None, Some(signal)),
        None => (None, None),
    };
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let milliseconds = |time: nix::sys::time::TimeVal| u64::try_from(time.tv_sec() * 1000 + time.tv_usec() / 1000).unwrap_or(0);
    Ended {
        exit_code,
        signal,
        cpu_ms: usage.as_ref().map_or(0, |usage| milliseconds(usage.user_time()) + milliseconds(usage.system_time())),
        max_rss_kib: usage.as_ref().map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0)),
        killed,
        exceeded,
        compared: None,
        gone_on: None,
    }
}
