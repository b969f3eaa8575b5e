//! Who a jail is, and what it may not become again.

use crate::envelope::{Fault, FaultCode};
use crate::policy::Identity;
use crate::sys::{self, ProcessControl};
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, getresgid, getresuid, setgroups, setresgid, setresuid};

/// `CAP_SETGID`, `CAP_SETPCAP` of linux/capability.h.
const CAP_SETGID: u32 = 6;
const CAP_SETPCAP: u32 = 8;
/// More than any kernel knows; the loop ends at the kernel's `EINVAL`.
const CAPABILITIES_MOST: u32 = 64;
/// `SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE | …_LOCKED` of linux/securebits.h: uid 0 is a number like
/// any other.
const SECUREBITS: u32 = 1 | 1 << 1 | 1 << 6 | 1 << 7;

/// Becomes the identity for good: groups emptied, gid, uid, then every capability dropped (effective, permitted, inheritable,
/// ambient and bounding), no new privileges, not dumpable.
///
/// An ordinary user cannot empty its groups nor its bounding set; without privileges to gain neither is a way out, and what
/// is left is the user's own.
///
/// # Errors
/// `cannot_confine` where the process is not, afterwards, who it should be or still holds a capability.
pub fn drop_identity(identity: &Identity) -> Result<(), Fault> {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let held = sys::capabilities().map_err(|errno| fault("the capabilities cannot be read", errno))?;
    // The bounding set goes first: leaving uid 0 empties the effective set, and with it the right to do so.
    drop_bounding(held[0])?;
    if held[0] & 1 << CAP_SETGID != 0 {
        // EPERM with the capability: a user namespace whose setgroups file says "deny"; there are no groups to gain there.
        match setgroups(&[]) {
            Ok(()) | Err(Errno::EPERM) => {}
            Err(errno) => return Err(fault("the groups cannot be emptied", errno)),
        }
    }
    setresgid(gid, gid, gid).map_err(|errno| fault(&format!("cannot become group {gid}"), errno))?;
    setresuid(uid, uid, uid).map_err(|errno| fault(&format!("cannot become user {uid}"), errno))?;
    drop_capabilities()?;
    nix::sys::prctl::set_dumpable(false).map_err(|errno| fault("the process stays dumpable", errno))?;
    let users = getresuid().map_err(|errno| fault("the user cannot be read", errno))?;
    let groups = getresgid().map_err(|errno| fault("the group cannot be read", errno))?;
    if [users.real, users.effective, users.saved] != [uid; 3] || [groups.real, groups.effective, groups.saved] != [gid; 3] {
        return Err(Fault::new(FaultCode::CannotConfine, format!("the process did not become {uid}:{gid}")));
    }
    Ok(())
}

/// No new privileges, and every capability dropped from all five sets.
///
/// # Errors
/// `cannot_confine` where one is left.
pub(super) fn drop_capabilities() -> Result<(), Fault> {
    nix::sys::prctl::set_no_new_privs().map_err(|errno| fault("no_new_privs cannot be set", errno))?;
    let held = sys::capabilities().map_err(|errno| fault("the capabilities cannot be read", errno))?;
    drop_bounding(held[0])?;
    match sys::process_control(ProcessControl::ClearAmbient) {
        // EINVAL: a kernel older than ambient capabilities has none.
        Ok(_) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(fault("the ambient capabilities cannot be dropped", errno)),
    }
    if held != [0; 3] {
        sys::clear_capabilities().map_err(|errno| fault("the capabilities cannot be dropped", errno))?;
        let left = sys::capabilities().map_err(|errno| fault("the capabilities cannot be read", errno))?;
        if left != [0; 3] {
            return Err(Fault::new(FaultCode::CannotConfine, "capabilities are left after they were dropped"));
        }
    }
    Ok(())
}

/// Whether the bounding set is empty.
pub(super) fn bounding_is_empty() -> bool {
    (0..CAPABILITIES_MOST).all(|capability| !matches!(sys::process_control(ProcessControl::ReadBounding(capability)), Ok(1)))
}

fn drop_bounding(effective: u64) -> Result<(), Fault> {
    if effective & 1 << CAP_SETPCAP == 0 {
        return Ok(());
    }
    for capability in 0..CAPABILITIES_MOST {
        match sys::process_control(ProcessControl::DropBounding(capability)) {
            Ok(_) => {}
            Err(Errno::EINVAL) => break,
            Err(errno) => return Err(fault("the bounding set cannot be dropped", errno)),
        }
    }
    match sys::process_control(ProcessControl::SetSecurebits(SECUREBITS)) {
        // EPERM: locked already, by whoever started us; no_new_privs and the empty sets do the same.
        Ok(_) | Err(Errno::EPERM) => Ok(()),
        Err(errno) => Err(fault("the securebits cannot be set", errno)),
    }
}

fn fault(what: &str, errno: Errno) -> Fault {
    Fault::new(FaultCode::CannotConfine, format!("{what}: {}", errno.desc()))
}
