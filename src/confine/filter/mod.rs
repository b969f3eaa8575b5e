//! The seccomp filter of an access class: an allow-list ([`calls`]), narrowed by arguments ([`rules`]), assembled as a balanced
//! tree ([`assemble`]).
//!
//! Known and refused calls answer `EPERM`; calls that this build does not know answer `ENOSYS`, as on an older kernel. Never a
//! deny-list, and never a refusal at the use of a socket that exists: programs hang on that.

mod assemble;
mod calls;
mod numbers;
mod rules;
#[cfg(test)]
mod tests;

use crate::envelope::{Fault, FaultCode};
use crate::policy::Access;
use seccompiler::BpfProgram;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a call is answered with. A supervisor on user notification would be one more: "ask".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allow,
    Errno(u16),
    Kill,
}

/// Compares the low half of an argument, masked, with a list of values.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Test {
    arg: u8,
    mask: u32,
    any_of: &'static [u32],
}

/// All tests hold: the verdict. The first clause of a decision that holds counts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    tests: Vec<Test>,
    verdict: Verdict,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    Always(Verdict),
    ByArguments { clauses: Vec<Clause>, otherwise: Verdict },
}

/// Internet sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    None,
    Inet,
}

/// What a filter depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Profile {
    pub(super) access: Access,
    /// Landlock judges truncation (ABI 3).
    pub(super) truncate_is_judged: bool,
    /// Unix sockets of any kind: Landlock judges their paths (ABI 9), or the policy gave the protection up.
    pub(super) unix_any: bool,
    pub(super) sockets: Sockets,
}

/// The machine that a filter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    #[cfg_attr(not(any(test, target_arch = "x86_64")), allow(dead_code))]
    X86_64,
    #[cfg_attr(not(any(test, target_arch = "aarch64")), allow(dead_code))]
    Aarch64,
}

#[cfg(target_arch = "x86_64")]
const HERE: Machine = Machine::X86_64;
#[cfg(target_arch = "aarch64")]
const HERE: Machine = Machine::Aarch64;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the system call tables know x86_64 and aarch64 only");

/// A filter, ready to be installed.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    program: BpfProgram,
    /// The most instructions that one call can cost.
    pub(super) depth: usize,
}

/// Makes the filter of a profile for this machine.
pub(super) fn build(profile: &Profile) -> Result<Filter, Fault> {
    let program = assemble::assemble(HERE, &decisions(HERE, profile))?;
    let depth = assemble::depth(&program);
    Ok(Filter { program, depth })
}

/// What is laid on a program last, on top of the rest: `openat2` carries its flags in memory, where no filter sees the access mode that asks
/// for no right and is judged by nobody, nor a truncation that older kernels do not judge. Programs get the older call, and are told that
/// this one does not exist. Until then this process needs it, to look at names of the workspace.
pub(super) fn last(profile: &Profile) -> Option<Filter> {
    let number = numbers::CALLS.iter().find(|(name, ..)| *name == "openat2").map(
        |(_, x86_64, aarch64)| {
            if HERE == Machine::X86_64 { *x86_64 } else { *aarch64 }
        },
    );
    let runs = matches!(profile.access, Access::Execute | Access::Own);
    let number = number.and_then(|number| u32::try_from(number).ok()).filter(|_| runs)?;
    Some(Filter { program: assemble::absent(number), depth: 3 })
}

impl Filter {
    /// A filter that refuses nothing, to find out whether one can be installed.
    pub(super) fn allow_all() -> Self {
        Self { program: assemble::allow_all(), depth: 1 }
    }

    /// Installs the filter on this process, for good.
    pub(super) fn apply(&self) -> Result<(), Fault> {
        seccompiler::apply_filter(&self.program)
            .map_err(|error| Fault::new(FaultCode::CannotConfine, format!("the seccomp filter cannot be installed: {error}")))
    }

    /// Instructions of the program.
    pub(super) fn instructions(&self) -> usize {
        self.program.len()
    }

    /// The SHA-256 of the program as the kernel gets it, in hexadecimal.
    pub(super) fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for step in &self.program {
            hash.update(step.code.to_le_bytes());
            hash.update([step.jt, step.jf]);
            hash.update(step.k.to_le_bytes());
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The allow-list of a profile in words: for each group of calls the answer (`allowed`, or the error), the reason and the names.
pub(super) fn listing(profile: &Profile) -> Vec<(String, &'static str, &'static [&'static str])> {
    let class = class(profile.access);
    let answer = |group: &calls::Group| match (group.allowed & class, group.otherwise) {
        (0, Verdict::Errno(errno)) => nix::errno::Errno::from_raw(errno.into()).to_string(),
        (0, Verdict::Kill) => "killed".into(),
        _ => "allowed".into(),
    };
    calls::GROUPS.iter().map(|group| (answer(group), group.reason, group.names)).collect()
}

fn class(access: Access) -> u8 {
    match access {
        Access::Look => calls::LOOK,
        Access::Change => calls::CHANGE,
        Access::Execute | Access::Own => calls::RUN,
    }
}

/// What becomes of each call that is known, by its number.
fn decisions(machine: Machine, profile: &Profile) -> BTreeMap<u32, Decision> {
    let class = class(profile.access);
    let numbers: BTreeMap<&str, u32> = numbers::CALLS
        .iter()
        .filter_map(|(name, x86_64, aarch64)| {
            let number = if machine == Machine::X86_64 { x86_64 } else { aarch64 };
            Some((*name, u32::try_from(*number).ok()?))
        })
        .collect();
    let mut decisions = BTreeMap::new();
    for group in calls::GROUPS {
        for name in group.names {
            let Some(number) = numbers.get(name) else { continue };
            let decision = if group.allowed & class == 0 {
                Decision::Always(group.otherwise)
            } else {
                rules::narrowed(name, profile).unwrap_or(Decision::Always(Verdict::Allow))
            };
            decisions.insert(*number, decision);
        }
    }
    decisions
}
