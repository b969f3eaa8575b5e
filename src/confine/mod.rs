//! Confinement: the only module that names Landlock or seccomp.
//!
//! [`prepare`] makes, once in the warden, what each fork of an access class lays on itself with [`Prepared::apply`]. Nothing
//! here opens a file for content, prints, reads an environment variable or retries with less than was asked: what cannot be
//! enforced is a fault or stands in the report.

pub mod canary;
pub mod cgroups;
mod errand;
mod filter;
mod identity;
mod limits;
pub mod namespaces;
pub mod probe;
pub mod report;
pub mod rooms;
mod ruleset;

#[cfg(test)]
use canary::canaries;
pub use canary::{Canary, Left, Outcome, Trial};
pub use identity::drop_identity;
pub use namespaces::Namespaces;
pub use probe::{Kernel, probe};
pub use report::{ClassReport, Report, State, Surroundings, assess};
pub use ruleset::Skipped;

use crate::envelope::Fault;
use crate::policy::{Access, Charter, Rights, Unix};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;

/// Landlock judges truncation from this ABI on.
const ABI_TRUNCATE: u32 = 3;
/// Landlock judges connections to unix sockets by path from this ABI on.
const ABI_RESOLVE_UNIX: u32 = 9;

/// Proof that this process has been confined. Only [`Prepared::apply`] makes one.
#[derive(Debug)]
pub struct Confined(());

/// What the preparation has to know beyond the charter. The default is the first rung: no namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The namespaces that the session has made for itself.
    pub namespaces: Namespaces,
    /// Uses no Landlock ABI above this one. Only ever less than what the kernel has: for tests of older kernels' reports.
    #[doc(hidden)]
    pub abi_ceiling: Option<u32>,
}

/// The confinement of one access class, ready for every fork of it.
#[derive(Debug)]
pub struct Prepared {
    access: Access,
    rules: ruleset::Rules,
    profile: filter::Profile,
    filter: filter::Filter,
    last: Option<filter::Filter>,
    limits: Vec<limits::Limit>,
}

/// Prepares the confinement of a class. `base` is the base directory, opened after all mounts.
///
/// # Errors
/// `cannot_confine` where the kernel lacks Landlock (the sentence says what to do) or the policy does not permit the class.
pub fn prepare(charter: &Charter, access: Access, base: BorrowedFd<'_>) -> Result<Prepared, Fault> {
    prepare_with(charter, access, base, &Options::default())
}

/// The same, with what the session has made for itself.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_with(charter: &Charter, access: Access, base: BorrowedFd<'_>, options: &Options) -> Result<Prepared, Fault> {
    let rules = ruleset::build(charter, access, base, options)?;
    let profile = filter::Profile {
        access,
        truncate_is_judged: rules.abi >= ABI_TRUNCATE,
        unix_any: access == Access::Execute && charter.unix == Unix::Any || rules.abi >= ABI_RESOLVE_UNIX,
        sockets: if ruleset::host_network_is_closed(charter, access, options) { filter::Sockets::None } else { filter::Sockets::Inet },
    };
    Ok(Prepared {
        access,
        rules,
        filter: filter::build(&profile)?,
        last: filter::last(&profile),
        profile,
        limits: limits::of(charter, access, options),
    })
}

/// Holds what was prepared against what the policy requires, and sends the canaries of every class that was prepared.
/// `charter.session_dir` is where the bait lies: it is itself outside all grants.
///
/// # Errors
/// `cannot_confine` where the policy requires what is missing.
pub fn prove<'a>(
    charter: &Charter,
    prepared: &HashMap<Access, Prepared>,
    surroundings: &Surroundings,
    trial: Trial<'a>,
) -> Result<Proof<'a>, Fault> {
    let mut classes: Vec<&Prepared> = prepared.values().collect();
    classes.sort_by_key(|class| class.access);
    let launched = trial.launch(&classes)?;
    let kernel = probe::glance();
    let abi = classes.iter().map(|class| class.rules.abi).min().unwrap_or_default();
    let report = report::assess_with(charter, &kernel, surroundings, abi).with_classes(&classes);
    report.check(charter)?;
    Ok(Proof { report, launched })
}

/// The canaries are under way.
pub struct Proof<'a> {
    report: Report,
    launched: canary::Launched<'a>,
}

impl Proof<'_> {
    /// Waits for the canaries, and says what holds.
    ///
    /// # Errors
    /// `canary_failed` where something got through that should not.
    pub fn finish(self, charter: &Charter) -> Result<(Report, Left), Fault> {
        let (canaries, left) = self.launched.judge(charter)?;
        Ok((self.report.with_canaries(canaries)?, left))
    }
}

impl Prepared {
    /// Grants one folder more, by its descriptor, to every fork that is confined from now on.
    ///
    /// # Errors
    /// `cannot_confine` when the kernel does not take the rule.
    pub fn grant(&mut self, folder: BorrowedFd<'_>, rights: Rights) -> Result<(), Fault> {
        self.rules.grant(folder, rights)
    }

    /// Confines this process, for good. Called in a fork that has one thread.
    ///
    /// # Errors
    /// `cannot_confine`; the process must then end without having run anything.
    pub fn apply(&self) -> Result<Confined, Fault> {
        let confined = self.apply_but_last()?;
        self.apply_last()?;
        Ok(confined)
    }

    /// The same but for what this program itself needs until it becomes another one.
    ///
    /// # Errors
    /// As [`Prepared::apply`].
    pub fn apply_but_last(&self) -> Result<Confined, Fault> {
        identity::drop_capabilities()?;
        limits::apply(&self.limits, self.access)?;
        self.rules.apply()?;
        // Last: it refuses what the steps before it need.
        self.filter.apply()?;
        Ok(Confined(()))
    }

    /// What [`Prepared::apply_but_last`] has left out. Called before a program is executed.
    ///
    /// # Errors
    /// As [`Prepared::apply`].
    pub fn apply_last(&self) -> Result<(), Fault> {
        self.last.as_ref().map_or(Ok(()), filter::Filter::apply)
    }

    /// What was prepared.
    pub fn report(&self) -> ClassReport {
        ClassReport {
            access: self.access,
            landlock_abi: self.rules.abi,
            rights: self.rules.handled.clone(),
            filter_hash: self.filter.hash(),
            filter_instructions: self.filter.instructions(),
            filter_depth: self.filter.depth,
            skipped: self.rules.skipped.clone(),
        }
    }

    /// The system calls of this class in words: the answer (`allowed`, or the error's name), the reason, the names.
    pub fn calls(&self) -> Vec<(String, &'static str, &'static [&'static str])> {
        filter::listing(&self.profile)
    }

    /// The class.
    pub fn access(&self) -> Access {
        self.access
    }
}

#[cfg(test)]
mod tests;
