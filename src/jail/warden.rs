//! The hidden role of this executable: the warden.
//!
//! It is started before any runtime exists, with an environment from nothing and one descriptor. It takes the charter, gives up
//! every privilege, prepares what each class of jail needs, has the walls tried, and then only forks, waits and kills. It reads no
//! file of the workspace, holds no secret and talks to nobody but the host.

use super::watch::Disk;
use super::wire::{self, FromWarden, ToWarden};
use super::{enter, keeper, recover, tree};
use crate::confine::cgroups::{self, Cgroup};
use crate::confine::rooms::{self, Entered, Vantage};
use crate::confine::{self, Left, Options, Prepared, Report, Surroundings, Trial};
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter, Rights};
use crate::sys::{self, Ending, Forked};
use crate::tools::AnyTool;
use crate::workspace::{BaseDir, RelPath, base_dir};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, setsid};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long keepers may take to end what they keep, before the warden looks for what is left.
const KEEPERS: Duration = Duration::from_millis(500);

/// The name of the hidden role, as the only argument. It takes its orders from [`WIRE`] alone.
pub const ROLE: &str = "--as-warden";

/// The descriptor on which the host talks.
pub const WIRE: i32 = 3;

/// Whether these arguments ask for the hidden role.
pub fn is_asked(args: &[std::ffi::OsString]) -> bool {
    matches!(args, [_, role] if role == OsStr::new(ROLE))
}

/// Runs the role until the host is gone. Returns the exit code of the process.
pub fn run(registry: &[&dyn AnyTool]) -> i32 {
    let Ok(wire) = open_wire() else { return 2 };
    crate::sys::keep_memory();
    let (hello, fds) = match wire::receive::<ToWarden>(wire.as_fd()) {
        Ok(Some(message)) => message,
        _ => return 2,
    };
    let mut fds = fds.into_iter();
    let (ToWarden::Hello { charter, classes }, Some(base)) = (hello, fds.next()) else { return 2 };
    let base = BaseDir::from_fd(base, charter.base.clone());
    reign(*charter, &classes, base, fds.next(), wire, registry)
}

/// The same in a fork of the host, for a host that holds nothing that is worth keeping from the warden: it has scrubbed what it had copied of
/// its environment. `fds`: the wire, the base, the journal.
pub fn run_forked(charter: &Charter, classes: &[Access], fds: &[std::os::fd::BorrowedFd<'_>]) -> ! {
    sys::forget_environment();
    let Ok(fds) = sys::keep_only(fds) else { sys::exit_now(2) };
    let mut fds = fds.into_iter();
    let (Some(wire), Some(base)) = (fds.next(), fds.next()) else { sys::exit_now(2) };
    if stand_alone().is_err() {
        sys::exit_now(2);
    }
    let base = BaseDir::from_fd(base, charter.base.clone());
    sys::exit_now(reign(charter.clone(), classes, base, fds.next(), wire, &[]))
}

/// Raises the walls, serves until the host is gone, and ends everything.
fn reign(charter: Charter, classes: &[Access], base: BaseDir, journal: Option<OwnedFd>, wire: OwnedFd, registry: &[&dyn AnyTool]) -> i32 {
    match Warden::raise(charter, classes, base, journal, wire) {
        Ok((mut warden, report)) => {
            if warden.say(&FromWarden::Ready { report: Box::new(report) }).is_ok() {
                // One that was forked lives as long as one program.
                if !registry.is_empty() {
                    sys::forget_code();
                }
                let _ = warden.serve(registry);
            }
            // Whatever happened: nothing of the session stays.
            warden.lower();
            0
        }
        Err((wire, fault)) => {
            let _ = wire::send(wire.as_fd(), &FromWarden::Failed { fault }, &[]);
            tree::end_descendants(&HashSet::new(), None);
            3
        }
    }
}

/// Takes the wire and closes all else.
fn open_wire() -> Result<OwnedFd, Errno> {
    let wire = sys::take_fd(WIRE)?;
    sys::close_from(4)?;
    stand_alone()?;
    Ok(wire)
}

/// Gives up the host's streams, terminal and signals.
fn stand_alone() -> Result<(), Errno> {
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for number in 0..3 {
        sys::place_fd(null.as_fd(), number)?;
    }
    setsid().or_else(|errno| if errno == Errno::EPERM { Ok(Pid::this()) } else { Err(errno) })?;
    sys::reset_signals()
}

/// What this role does beyond the confinement of each jail.
fn surroundings() -> Surroundings {
    Surroundings {
        environment_from_nothing: true,
        descriptors_closed: true,
        own_session: true,
        subreaper: true,
        tree_counted: true,
        ..Surroundings::default()
    }
}

/// The base directory as it is after the mounts, if it is the same one.
fn reopened(before: &BaseDir) -> Result<BaseDir, Fault> {
    let after = BaseDir::open(before.path())?;
    let identity = |base: &BaseDir| base.stat(&RelPath::base()).map(|meta| base_dir::identity(&meta));
    if identity(before)? == identity(&after)? {
        Ok(after)
    } else {
        Err(Fault::new(FaultCode::CannotConfine, format!("{} is another folder after the mounts", before.path().display()))
            .hint("the workspace was moved or replaced while the session started: start it again"))
    }
}

/// Prepares classes.
fn prepare(
    charter: &Charter,
    classes: &[Access],
    base: &BaseDir,
    journal: Option<&OwnedFd>,
    options: &Options,
) -> Result<HashMap<Access, Prepared>, Fault> {
    let mut all = HashMap::new();
    for access in classes {
        let mut prepared = confine::prepare_with(charter, *access, base.as_fd(), options)?;
        if let (Access::Change, Some(journal)) = (access, journal) {
            prepared.grant(journal.as_fd(), Rights::CHANGE)?;
        }
        all.insert(*access, prepared);
    }
    Ok(all)
}

struct Warden {
    charter: Charter,
    base: BaseDir,
    spool: Option<OwnedFd>,
    journal: Option<OwnedFd>,
    prepared: HashMap<Access, Prepared>,
    options: Options,
    surroundings: Surroundings,
    /// The bait of the canaries, removed when there is nothing else to do.
    left: Option<Left>,
    vantage: Option<Vantage>,
    disk: Disk,
    cgroup: Option<Cgroup>,
    /// `None` only in a forked child, which has no business with the host's wire.
    wire: Option<OwnedFd>,
    jails: HashMap<Pid, (u64, Access)>,
    signals: SignalFd,
}

impl Warden {
    /// Gives up privileges, prepares the classes, has the walls tried.
    fn raise(
        mut charter: Charter,
        classes: &[Access],
        mut base: BaseDir,
        journal: Option<OwnedFd>,
        wire: OwnedFd,
    ) -> Result<(Self, Report), (OwnedFd, Fault)> {
        let internal = |errno: Errno| Fault::new(FaultCode::Internal, format!("the warden could not start: {}", errno.desc()));
        let raise = |charter: &mut Charter, base: &mut BaseDir| -> Result<_, Fault> {
            let cgroup = cgroups::begin(&charter.identity);
            let entered = match &cgroup {
                Err(_) if !charter.namespaces => Entered::default(),
                cgroup => rooms::enter(charter, cgroup.as_ref().ok())?,
            };
            let cgroup = match cgroup {
                Ok(cgroup) if entered.cgroup => Some(cgroup),
                unused => {
                    unused.into_iter().for_each(Cgroup::discard);
                    None
                }
            };
            if entered.namespaces.mount {
                // A descriptor from before the mounts writes through a read-only cover.
                *base = reopened(base)?;
                rooms::furnish(charter, &entered);
            }
            let options = Options { namespaces: entered.namespaces, ..Options::default() };
            nix::sys::prctl::set_child_subreaper(true).map_err(internal)?;
            let mut chld = SigSet::empty();
            chld.add(Signal::SIGCHLD);
            chld.thread_block().map_err(internal)?;
            let signals = SignalFd::with_flags(&chld, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(internal)?;
            confine::drop_identity(&charter.identity)?;
            if entered.namespaces.pid || entered.cgroup {
                // Becoming somebody else has cleared it.
                sys::set_parent_death_signal(libc::SIGKILL).map_err(internal)?;
            }
            // While the unconfined child is at work, the classes are prepared.
            let trial = Trial::begin(base.as_fd(), charter, entered.vantage, classes)?;
            let prepared = prepare(charter, classes, base, journal.as_ref(), &options)?;
            let surroundings = Surroundings {
                namespaces: entered.namespaces,
                processes_bounded: entered.processes_bounded,
                cgroup: cgroup.is_some(),
                // The host compares by calls of this class, after each command.
                protected_watched: charter.change.is_some() && charter.execute.is_some(),
                ..surroundings()
            };
            let (mut report, left) = confine::prove(charter, &prepared, &surroundings, trial)?.finish(charter)?;
            report.notes.extend(entered.notes);
            if let (Some(change), Some(journal)) = (prepared.get(&Access::Change), &journal) {
                report.notes.extend(recover::recover(change, base, journal));
            }
            let spool = open(&charter.session_dir.join("spool"), OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok();
            Ok((signals, prepared, (options, surroundings, left, cgroup), spool, report))
        };
        match raise(&mut charter, &mut base) {
            Ok((signals, prepared, (options, surroundings, left, cgroup), spool, report)) => {
                let base = base.with_protected(charter.protect.clone());
                let disk = Disk::now(&charter.base, &charter.session_dir);
                let warden = Self {
                    charter,
                    base,
                    spool,
                    journal,
                    prepared,
                    options,
                    surroundings,
                    left: Some(left),
                    vantage: None,
                    disk,
                    cgroup,
                    wire: Some(wire),
                    jails: HashMap::new(),
                    signals,
                };
                Ok((warden, report))
            }
            Err(fault) => Err((wire, fault)),
        }
    }

    fn say(&self, message: &FromWarden) -> Result<(), Errno> {
        self.wire.as_ref().map_or(Err(Errno::EPIPE), |wire| wire::send(wire.as_fd(), message, &[]))
    }

    /// Forks, waits and kills until the host is gone.
    fn serve(&mut self, registry: &[&dyn AnyTool]) -> Result<(), Errno> {
        loop {
            if self.left.is_some() && self.wire.as_ref().is_some_and(|wire| !wire::wait_readable(wire, 0).unwrap_or(false)) {
                self.tidy();
            }
            let Some(wire) = &self.wire else { return Ok(()) };
            let mut ready = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(wire.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let happened = |fd: &PollFd<'_>| fd.revents().is_some_and(|events| !events.is_empty());
            let (child, host) = (happened(&ready[0]), happened(&ready[1]));
            let order = if host { Some(wire::receive::<ToWarden>(wire.as_fd())) } else { None };
            if child {
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.reap()?;
            }
            match order {
                None => {}
                Some(Ok(Some((ToWarden::Open { id, access, ahead }, fds)))) => self.open(registry, (id, access, ahead), fds)?,
                Some(Ok(Some((ToWarden::Kill { id }, _)))) => self.kill(id),
                // The host is gone, or talks nonsense.
                Some(Ok(Some((ToWarden::Hello { .. }, _)) | None) | Err(_)) => return Ok(()),
            }
        }
    }

    /// Reaps what has ended and tells the host of jails. A keeper that died in an unforeseen way leaves orphans, which are now ours.
    fn reap(&mut self) -> Result<(), Errno> {
        let mut orphans = false;
        loop {
            let (pid, how, clean) = match sys::reap_any() {
                Ok(Some((pid, Ending::Exited(code)))) => (pid, format!("it ended with exit code {code}"), code == 0),
                Ok(Some((pid, Ending::Signaled(number)))) => {
                    let name = Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned());
                    (pid, format!("it was ended by {name}"), false)
                }
                Err(Errno::EINTR) => continue,
                Ok(None) | Err(_) => break,
            };
            match self.jails.remove(&pid) {
                Some((id, Access::Look | Access::Change)) => self.say(&FromWarden::Ended { id, how })?,
                Some(_) => orphans |= !clean,
                None => orphans = true,
            }
        }
        if orphans {
            tree::end_descendants(&self.jails.keys().copied().collect(), None);
        }
        Ok(())
    }

    /// Prepares a class that was not asked for at the start, and has its walls tried like those of the others.
    fn prepare_late(&mut self, access: Access) -> Result<(), Fault> {
        if self.charter.grants(access).is_none() {
            return Err(Fault::new(FaultCode::ToolDenied, "the policy permits no such calls"));
        }
        self.tidy();
        let vantage = self.vantage.take().unwrap_or_default();
        let trial = Trial::begin(self.base.as_fd(), &self.charter, vantage, &[access])?;
        let mut prepared = prepare(&self.charter, &[access], &self.base, self.journal.as_ref(), &self.options)?;
        let (_, left) = confine::prove(&self.charter, &prepared, &self.surroundings, trial)?.finish(&self.charter)?;
        self.left = Some(left);
        if let Some(class) = prepared.remove(&access) {
            self.prepared.insert(access, class);
        }
        Ok(())
    }

    /// Removes the bait.
    fn tidy(&mut self) {
        if let Some(left) = self.left.take() {
            self.vantage = Some(left.clear());
        }
    }

    /// Ends everything of the session.
    fn lower(&mut self) {
        self.tidy();
        for (pid, (_, access)) in &self.jails {
            if matches!(access, Access::Look | Access::Change) {
                let _ = kill(*pid, Signal::SIGKILL);
            }
        }
        // A keeper ends its own tree when the host's end of its wire is closed, and most have ended already.
        let until = Instant::now() + KEEPERS;
        while !tree::is_over() {
            let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::ZERO);
            match poll(&mut [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)], left) {
                Err(Errno::EINTR) => {}
                Ok(0) | Err(_) => {
                    tree::end_descendants(&HashSet::new(), None);
                    return;
                }
                Ok(_) => while let Ok(Some(_)) = self.signals.read_signal() {},
            }
        }
    }

    fn open(&mut self, registry: &[&dyn AnyTool], (id, access, ahead): (u64, Access, bool), fds: Vec<OwnedFd>) -> Result<(), Errno> {
        let refused = |code, message: &str| FromWarden::NotOpened { id, fault: Fault::new(code, message) };
        let mut fds = fds.into_iter();
        let (Some(first), Some(second)) = (fds.next(), fds.next()) else {
            return self.say(&refused(FaultCode::Internal, "the jail came without its wire"));
        };
        if !self.prepared.contains_key(&access)
            && let Err(fault) = self.prepare_late(access)
        {
            return self.say(&FromWarden::NotOpened { id, fault });
        }
        let me = Pid::this();
        let pid = match sys::fork_single_threaded() {
            Ok(Forked::Parent(pid)) => pid,
            Ok(Forked::Child) => {
                self.wire = None;
                match (self.prepared.get(&access), access) {
                    (Some(prepared), Access::Look | Access::Change) => {
                        let spool = self.spool.as_ref().filter(|_| access == Access::Look);
                        let journal = self.journal.as_ref().filter(|_| access == Access::Change);
                        enter::answer_calls(me, prepared, registry, (&self.base, spool, journal), [first, second])
                    }
                    (Some(prepared), _) => {
                        let bounds = keeper::Bounds { disk: &self.disk, cgroup: self.cgroup.as_ref() };
                        keeper::keep(prepared, &self.charter, &self.base, &bounds, (first, second), ahead)
                    }
                    _ => sys::exit_now(2),
                }
            }
            Err(errno) => {
                let fault = Fault::new(FaultCode::Internal, format!("no process for the jail: {}", errno.desc()));
                return self.say(&FromWarden::NotOpened { id, fault });
            }
        };
        self.jails.insert(pid, (id, access));
        Ok(())
    }

    fn kill(&mut self, id: u64) {
        if let Some((pid, _)) = self.jails.iter().find(|(_, (jail, _))| *jail == id) {
            // The jail's own children, if any, become ours and are swept when this one is reaped.
            let _ = kill(*pid, Signal::SIGKILL);
        }
    }
}
