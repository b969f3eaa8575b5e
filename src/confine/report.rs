//! What is enforced here, protection by protection, and by what; decided from what the kernel has, what was prepared and what
//! surrounds the session, and held against the canaries.

use super::canary::{self, Canary, Outcome};
use super::probe::{Kernel, Landlock};
use super::{Namespaces, Prepared, Skipped, identity, ruleset};
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter, Identity, Net, Protection, Unix};
use crate::sys;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What the session does beyond Landlock, seccomp and rlimits. The default: nothing of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Surroundings {
    /// The namespaces of the session's own.
    pub namespaces: Namespaces,
    /// The environment is built from nothing before the first exec.
    pub environment_from_nothing: bool,
    /// Every descriptor above the wire is closed.
    pub descriptors_closed: bool,
    /// Commands run in a session (`setsid`) without a controlling terminal.
    pub own_session: bool,
    /// A subreaper collects and ends whatever commands leave behind.
    pub subreaper: bool,
    /// Memory and processes of the tree are counted, and bounded by that.
    pub tree_counted: bool,
    /// The kernel bounds the processes of the session (`pid_max` of its process namespace).
    pub processes_bounded: bool,
    /// A cgroup of the session's own bounds memory and processes.
    pub cgroup: bool,
    /// Changes to protected paths are looked for after each command, undone and reported.
    pub protected_watched: bool,
}

/// The state of a protection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum State {
    /// It holds.
    Enforced {
        /// By which mechanism.
        by: String,
    },
    /// It holds but for what is said.
    Partly {
        /// By which mechanism.
        by: String,
        /// What is open.
        open: String,
    },
    /// It does not hold.
    Missing {
        /// Why, and what would change it.
        why: String,
    },
}

/// A protection and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The protection.
    pub protection: Protection,
    /// Its state.
    #[serde(flatten)]
    pub state: State,
}

/// What was prepared for an access class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassReport {
    /// The class.
    pub access: Access,
    /// The Landlock ABI in use.
    pub landlock_abi: u32,
    /// The Landlock rights that are refused unless granted.
    pub rights: Vec<String>,
    /// The SHA-256 of the seccomp program.
    pub filter_hash: String,
    /// Instructions of the seccomp program.
    pub filter_instructions: usize,
    /// The most instructions that one system call costs.
    pub filter_depth: usize,
    /// Grants that were left out.
    pub skipped: Vec<Skipped>,
}

/// The capabilities of the process that confines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// A bit each, in hexadecimal.
    pub effective: String,
    /// A bit each, in hexadecimal.
    pub permitted: String,
    /// A bit each, in hexadecimal.
    pub inheritable: String,
    /// Whether the bounding set is empty. Where it is not, `no_new_privs` keeps anything in it out of reach.
    pub bounding_empty: bool,
}

/// What is enforced, by what, and what was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The kernel, as it showed itself.
    pub kernel: Kernel,
    /// The Landlock ABI in use: the kernel's or this build's, whichever is lower.
    pub landlock_abi: u32,
    /// What this ABI lacks.
    pub landlock_lacks: Vec<String>,
    /// What was prepared, class by class; empty where nothing was.
    pub classes: Vec<ClassReport>,
    /// What surrounds the session.
    pub surroundings: Surroundings,
    /// Who the jails are.
    pub identity: Identity,
    /// The capabilities of the process that made the report.
    pub capabilities: Capabilities,
    /// Every protection.
    pub protections: Vec<Row>,
    /// What the policy asks for and this machine does otherwise.
    pub notes: Vec<String>,
    /// What was tried; empty where nothing was.
    pub canaries: Vec<Canary>,
}

/// What each Landlock ABI brought.
const BROUGHT: &[(u32, &str)] = &[
    (2, "renames and links across folders (until then always refused)"),
    (3, "truncation"),
    (4, "TCP"),
    (5, "control requests to devices"),
    (6, "signals and abstract unix sockets out of the domain"),
    (9, "unix sockets by path"),
    (10, "UDP"),
];

/// Decides what is enforced here for a charter.
pub fn assess(charter: &Charter, kernel: &Kernel, surroundings: &Surroundings) -> Report {
    assess_with(charter, kernel, surroundings, kernel.landlock_abi().min(ruleset::ABI_KNOWN))
}

pub(super) fn assess_with(charter: &Charter, kernel: &Kernel, surroundings: &Surroundings, abi: u32) -> Report {
    let held = sys::capabilities().unwrap_or([u64::MAX; 3]);
    let mut notes = Vec::new();
    if charter.net == Net::Loopback && !surroundings.namespaces.net {
        notes.push("net = loopback is none here: without a network namespace the host's loopback would be open".to_string());
    }
    if charter.net == Net::Full {
        notes.push("net = full: commands reach the host's network".to_string());
    }
    Report {
        kernel: kernel.clone(),
        landlock_abi: abi,
        landlock_lacks: BROUGHT.iter().filter(|(since, _)| abi < *since).map(|(since, what)| format!("{what} (ABI {since})")).collect(),
        classes: Vec::new(),
        surroundings: surroundings.clone(),
        identity: charter.identity,
        capabilities: Capabilities {
            effective: format!("{:x}", held[0]),
            permitted: format!("{:x}", held[1]),
            inheritable: format!("{:x}", held[2]),
            bounding_empty: identity::bounding_is_empty(),
        },
        protections: Protection::ALL
            .iter()
            .map(|protection| Row { protection: *protection, state: state(*protection, charter, kernel, surroundings, abi) })
            .collect(),
        notes,
        canaries: Vec::new(),
    }
}

fn state(protection: Protection, charter: &Charter, kernel: &Kernel, around: &Surroundings, abi: u32) -> State {
    let enforced = |by: &str| State::Enforced { by: by.into() };
    let partly = |by: &str, open: &str| State::Partly { by: by.into(), open: open.into() };
    let missing = |why: &str| State::Missing { why: why.into() };
    if let (0, Landlock::Missing { remedy, .. }) = (abi, &kernel.landlock) {
        // Nothing runs without it, so that nothing of the rest is a promise.
        return missing(remedy);
    }
    let own = around.namespaces;
    let unix_any = charter.execute.is_some() && charter.unix == Unix::Any;
    let net_full = charter.execute.is_some() && charter.net == Net::Full;
    let net_own = charter.net == Net::Loopback && own.net;
    let full = || missing("the policy opens the host's network (net = full)");
    match protection {
        Protection::FsRead | Protection::FsWrite => match shared_folders(charter) {
            Some(folders) if !own.mount => {
                State::Partly { by: "Landlock".into(), open: format!("{folders}: the host's own, shared with its programs") }
            }
            _ => enforced("Landlock"),
        },
        Protection::FsTruncate if abi >= 3 => enforced("Landlock"),
        Protection::FsTruncate => partly(
            "seccomp",
            "a jail of the file tools that has been taken over can empty a file outside the grants that its user may write \
             (openat2 carries its flags in memory); Linux 6.2 closes it",
        ),
        Protection::FsMetadata if own.mount => enforced("mount namespace: everything but the grants is read-only"),
        Protection::FsMetadata if charter.identity.uid == 0 => missing(
            "commands run as user 0 and can change mode, owner and times of every file that user 0 owns; Landlock does not judge that",
        ),
        Protection::FsMetadata => State::Partly {
            by: "ownership, seccomp".into(),
            open: format!(
                "commands can change mode and times of files that user {} owns, outside the grants too; Landlock does not judge that",
                charter.identity.uid
            ),
        },
        Protection::FsSpecial if abi >= 5 => enforced("Landlock"),
        Protection::FsSpecial => partly("Landlock", "control requests to devices that are granted for reading; Linux 6.10 closes it"),
        Protection::FsProtected => protected(charter, around),
        Protection::Exec => partly("Landlock", "a program that can be read runs through the loader (ld.so FILE) or from memory (memfd)"),
        Protection::Env if around.environment_from_nothing => enforced("an environment built from nothing"),
        Protection::Env => missing("the environment is inherited"),
        Protection::Proc if own.pid => enforced("pid namespace"),
        Protection::Proc if !grants_proc(charter) => enforced("Landlock"),
        Protection::Proc => {
            partly("Landlock, no capabilities, not dumpable", "names and command lines of other processes can be read in /proc")
        }
        Protection::Ptrace => enforced("Landlock"),
        Protection::Signals if abi >= 6 => enforced(if own.pid { "pid namespace, Landlock, seccomp" } else { "Landlock, seccomp" }),
        Protection::Signals if own.pid => {
            partly("pid namespace", "commands can signal other processes of their session, never the host's; Linux 6.12 closes it")
        }
        Protection::Signals => missing("commands can signal other processes of their user; Linux 6.12 or a pid namespace closes it"),
        Protection::Ipc => enforced("seccomp"),
        Protection::UnixPath if unix_any => missing("the policy opens unix sockets (unix = any)"),
        Protection::UnixPath if abi >= 9 => enforced("Landlock"),
        Protection::UnixPath => enforced("seccomp: only connected pairs"),
        Protection::UnixAbstract if own.net => enforced("network namespace"),
        Protection::UnixAbstract if !unix_any && abi < 9 => enforced("seccomp: only connected pairs"),
        Protection::UnixAbstract if abi >= 6 => enforced("Landlock"),
        Protection::UnixAbstract => {
            missing("the policy opens unix sockets (unix = any), and this Landlock knows no scopes; Linux 6.12 does")
        }
        Protection::NetTcp | Protection::NetUdp if net_full => full(),
        Protection::NetTcp | Protection::NetUdp if net_own => enforced("network namespace"),
        Protection::NetTcp if abi >= 4 => enforced("seccomp, Landlock"),
        Protection::NetTcp | Protection::NetUdp => enforced("seccomp"),
        Protection::NetOther => enforced("seccomp"),
        Protection::Tty if own.pts || !grants_terminals(charter) => enforced("seccomp, Landlock"),
        Protection::Tty => partly("seccomp", "terminals of the same user in /dev/pts can be written to"),
        Protection::Fds if around.descriptors_closed => enforced("closed before the first fork"),
        Protection::Fds => missing("descriptors are inherited"),
        Protection::Kernel => enforced("seccomp"),
        Protection::Orphans if own.pid => enforced("pid namespace"),
        Protection::Orphans if around.subreaper => enforced("subreaper, stop and sweep"),
        Protection::Orphans => missing("nothing collects what a command leaves behind"),
        Protection::Limits if around.cgroup => partly(
            "cgroup (memory, processes), rlimits, the keeper's count",
            "between two counts the disk that a command takes can exceed the limit",
        ),
        Protection::Limits if around.tree_counted && (around.processes_bounded || own.user) => partly(
            if around.processes_bounded { "pid_max, rlimits, the keeper's count" } else { "rlimits, the keeper's count" },
            "between two counts memory and disk of a command can exceed the limit",
        ),
        Protection::Limits if around.tree_counted => {
            partly("rlimits, the keeper's count", "between two counts memory, processes and disk of a command can exceed the limit")
        }
        Protection::Limits => partly("rlimits", "memory, processes and disk of a whole command are not bounded"),
    }
}

fn protected(charter: &Charter, around: &Surroundings) -> State {
    let writable = |access| charter.grants(access).is_some_and(|grants| access == Access::Change || writes_in_base(&grants.0, charter));
    if charter.protect.is_empty() {
        State::Enforced { by: "nothing is to be protected".into() }
    } else if !writable(Access::Change) && !writable(Access::Execute) {
        State::Enforced { by: "Landlock: the workspace is read-only".into() }
    } else if around.namespaces.mount && around.protected_watched {
        State::Partly {
            by: "mount namespace, comparison after each command".into(),
            open: "what does not exist at the start is not prevented: it is undone and reported after the command".into(),
        }
    } else if around.namespaces.mount {
        State::Partly { by: "mount namespace".into(), open: "names that do not exist at the start can be made".into() }
    } else if around.protected_watched {
        State::Partly {
            by: "comparison after each command".into(),
            open: "a change is undone and reported after the command, not prevented; what reads the file in between sees it".into(),
        }
    } else {
        State::Missing { why: "Landlock cannot take a path out of a writable tree; a mount namespace can".into() }
    }
}

fn writes_in_base(grants: &[crate::policy::Grant], charter: &Charter) -> bool {
    grants.iter().any(|grant| grant.rights.write && (grant.path.starts_with(&charter.base) || charter.base.starts_with(&grant.path)))
}

/// The host's folders for temporary files that commands are granted for writing, if any.
fn shared_folders(charter: &Charter) -> Option<String> {
    let writes = |folder: &&str| {
        let holds = |grant: &crate::policy::Grant| grant.rights.write && std::path::Path::new(folder).starts_with(&grant.path);
        charter.execute.as_ref().is_some_and(|grants| grants.0.iter().any(holds))
    };
    let shared: Vec<&str> = ["/tmp", "/var/tmp", "/dev/shm"].into_iter().filter(|folder| writes(folder)).collect();
    if shared.is_empty() { None } else { Some(shared.join(", ")) }
}

fn grants_proc(charter: &Charter) -> bool {
    let holds = |grant: &crate::policy::Grant| grant.rights.read && std::path::Path::new("/proc").starts_with(&grant.path);
    [Access::Execute, Access::Own].iter().filter_map(|access| charter.grants(*access)).any(|grants| grants.0.iter().any(holds))
}

fn grants_terminals(charter: &Charter) -> bool {
    let holds = |grant: &crate::policy::Grant| {
        let rights = grant.rights.write || grant.rights.device;
        rights && (std::path::Path::new("/dev/pts").starts_with(&grant.path) || grant.path.starts_with("/dev/pts"))
    };
    [Access::Execute, Access::Own].iter().filter_map(|access| charter.grants(*access)).any(|grants| grants.0.iter().any(holds))
}

impl Report {
    /// Takes what was prepared.
    pub(super) fn with_classes(mut self, prepared: &[&Prepared]) -> Self {
        self.classes = prepared.iter().map(|class| class.report()).collect();
        self
    }

    /// Takes what was tried, and holds it against what is said.
    ///
    /// # Errors
    /// `canary_failed` where an act got through that the report says is refused; `cannot_confine` where an act that must work
    /// does not.
    pub fn with_canaries(mut self, canaries: Vec<Canary>) -> Result<Self, Fault> {
        for canary in &canaries {
            let Some(protection) = canary.protection else {
                if let Outcome::Refused { error } = &canary.outcome {
                    let sentence = format!("the {:?} jail refuses what it must allow: {}: {error}", canary.access, canary.act);
                    return Err(Fault::new(FaultCode::CannotConfine, sentence));
                }
                continue;
            };
            if canary.outcome == Outcome::Done && !self.admits(protection, &canary.act) {
                let sentence = format!("{protection} is not enforced: the {:?} jail could {}", canary.access, canary.act);
                return Err(Fault::new(FaultCode::CanaryFailed, sentence).with("protection", protection.as_str()));
            }
        }
        self.canaries = canaries;
        Ok(self)
    }

    /// The state of a protection.
    pub fn state(&self, protection: Protection) -> Option<&State> {
        self.protections.iter().find(|row| row.protection == protection).map(|row| &row.state)
    }

    /// Holds the report against what the policy requires.
    ///
    /// # Errors
    /// `cannot_confine`, naming the first required protection that is missing and what would change it.
    pub fn check(&self, charter: &Charter) -> Result<(), Fault> {
        for protection in charter.require.iter().filter(|protection| !charter.allow_degraded.contains(protection)) {
            if let Some(State::Missing { why }) = self.state(*protection) {
                let sentence = format!(
                    "the policy {} requires {protection}, which is missing here: {why}; change the policy, or give it up by name with \
                     --allow-degraded {protection}",
                    charter.policy
                );
                return Err(Fault::new(FaultCode::CannotConfine, sentence).with("protection", protection.as_str()));
            }
        }
        Ok(())
    }

    /// Whether the report says that an act against the protection gets through. Of the protections that hold partly, `fs.metadata` leaves
    /// open what the canary tries, and `signals` signals to a process of the session, as which the canary's victim counts.
    fn admits(&self, protection: Protection, act: &str) -> bool {
        match self.state(protection) {
            Some(State::Enforced { .. }) | None => false,
            Some(State::Partly { .. }) => {
                protection == Protection::FsMetadata || protection == Protection::Signals && act == canary::SIGNAL
            }
            Some(State::Missing { .. }) => true,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Linux {} ({}), Landlock ABI {}", self.kernel.release, self.kernel.machine, self.landlock_abi)?;
        for lacks in &self.landlock_lacks {
            writeln!(f, "  Landlock here lacks: {lacks}")?;
        }
        writeln!(f, "jails are user {}, group {}", self.identity.uid, self.identity.gid)?;
        for row in &self.protections {
            let (state, words) = match &row.state {
                State::Enforced { by } => ("enforced", by.clone()),
                State::Partly { by, open } => ("partly", format!("{by}; open: {open}")),
                State::Missing { why } => ("missing", why.clone()),
            };
            writeln!(f, "  {:<14} {state:<9} {words}", row.protection.as_str())?;
        }
        for class in &self.classes {
            writeln!(
                f,
                "{:?}: {} Landlock rights, filter {} ({} instructions, at most {} a call)",
                class.access,
                class.rights.len(),
                class.filter_hash.get(..12).unwrap_or_default(),
                class.filter_instructions,
                class.filter_depth
            )?;
            for skipped in &class.skipped {
                writeln!(f, "  not granted: {}: {}", skipped.path.display(), skipped.why)?;
            }
        }
        if !self.canaries.is_empty() {
            let count = |wanted: fn(&Outcome) -> bool| self.canaries.iter().filter(|canary| wanted(&canary.outcome)).count();
            writeln!(
                f,
                "canaries: {} refused, {} done, {} inconclusive",
                count(|outcome| matches!(outcome, Outcome::Refused { .. })),
                count(|outcome| matches!(outcome, Outcome::Done)),
                count(|outcome| matches!(outcome, Outcome::Inconclusive { .. }))
            )?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        Ok(())
    }
}
