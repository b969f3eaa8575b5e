//! The limits that a process carries itself (rlimits). Wall time, memory, processes, output and disk of the whole tree are the
//! warden's.

use super::Options;
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter};
use crate::sys;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// How many processes the kernel permits beyond the limit: our own, and what the keeper's count needs to see that the limit is met.
pub(super) const SPARE_PROCESSES: u64 = 128;

/// One limit, soft and hard, so that nothing raises it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    resource: Resource,
    most: u64,
}

/// The limits of a class.
pub(super) fn of(charter: &Charter, access: Access, options: &Options) -> Vec<Limit> {
    let limits = &charter.limits;
    let mut list = vec![Limit { resource: Resource::RLIMIT_CORE, most: 0 }];
    let mut add = |resource, most| {
        if most > 0 {
            list.push(Limit { resource, most });
        }
    };
    add(Resource::RLIMIT_NOFILE, limits.open_files);
    add(Resource::RLIMIT_FSIZE, limits.file_size);
    if matches!(access, Access::Execute | Access::Own) {
        // The jails of the file tools stay warm: what they used in earlier calls would count.
        add(Resource::RLIMIT_CPU, limits.cpu_s);
        if options.namespaces.user {
            // Elsewhere it counts the person's other processes, and does nothing to the host's uid 0. With the spare ones the keeper's
            // count comes first, which says why the program ended.
            add(Resource::RLIMIT_NPROC, if limits.processes == 0 { 0 } else { limits.processes.saturating_add(SPARE_PROCESSES) });
        }
    }
    list
}

/// Sets the limits on this process. A hard limit that is lower already stays.
pub(super) fn apply(list: &[Limit], access: Access) -> Result<(), Fault> {
    for limit in list {
        let fault = |errno: nix::errno::Errno| {
            Fault::new(FaultCode::CannotConfine, format!("the limit {:?} cannot be set: {}", limit.resource, errno.desc()))
        };
        let (_, hard) = getrlimit(limit.resource).map_err(fault)?;
        let most = limit.most.min(hard);
        // Processor time: the soft limit ends a program by SIGXCPU, which says why; the hard one by SIGKILL, a second later.
        let last = if limit.resource == Resource::RLIMIT_CPU { most.saturating_add(1).min(hard) } else { most };
        setrlimit(limit.resource, most, last).map_err(fault)?;
    }
    if access == Access::Change {
        // Never inherited by a program: this class does not exec.
        sys::ignore_file_size_signal()
            .map_err(|errno| Fault::new(FaultCode::CannotConfine, format!("SIGXFSZ cannot be ignored: {}", errno.desc())))?;
    }
    Ok(())
}
