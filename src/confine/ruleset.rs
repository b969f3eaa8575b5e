//! The Landlock ruleset of an access class: one, with every right that this kernel and this build know.
//!
//! Never a second ruleset: one that grants no REFER makes every rename across folders fail.

use super::Options;
use crate::envelope::{Fault, FaultCode};
use crate::policy::{Access, Charter, Net, Rights, Unix};
use crate::sys;
use crate::workspace::base_dir::open_beneath;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstat};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The newest Landlock ABI that this build knows.
pub(super) const ABI_KNOWN: u32 = 10;

/// A ruleset that is ready to be laid on a process, and what it holds.
#[derive(Debug)]
pub(super) struct Rules {
    created: RulesetCreated,
    /// The ABI in use: the kernel's, this build's or the ceiling of a test, whichever is lowest.
    pub(super) abi: u32,
    /// The rights that are handled: refused unless granted.
    pub(super) handled: Vec<String>,
    /// Grants that could not be granted.
    pub(super) skipped: Vec<Skipped>,
}

/// A grant that was left out, because its path is not there or cannot be opened. Less is permitted, so nothing is lost but comfort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The grant's path.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Asks the kernel for its Landlock ABI by calling it.
///
/// # Errors
/// `cannot_confine`, with what to do about it.
pub(super) fn kernel_abi() -> Result<u32, Fault> {
    sys::landlock_abi().map_err(missing)
}

/// One sentence that says what to do.
pub(super) fn missing(errno: Errno) -> Fault {
    let sentence = match errno {
        Errno::ENOSYS => "this kernel has no Landlock: it needs Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK=y \
             (inside a container: a seccomp profile that lets the landlock system calls through)"
            .to_string(),
        Errno::EOPNOTSUPP => {
            "Landlock is built into this kernel but not switched on: add `landlock` to the `lsm=` boot parameter".to_string()
        }
        errno => format!("the kernel refuses to say whether it has Landlock: {}", errno.desc()),
    };
    Fault::new(FaultCode::CannotConfine, sentence).with("protection", "fs.write").with("errno", errno as i32)
}

/// Builds the ruleset of a class.
pub(super) fn build(charter: &Charter, access: Access, base: BorrowedFd<'_>, options: &Options) -> Result<Rules, Fault> {
    let grants = charter
        .grants(access)
        .ok_or_else(|| Fault::new(FaultCode::CannotConfine, format!("the policy {} permits no {access:?} jail", charter.policy)))?;
    let abi_number = kernel_abi()?.min(ABI_KNOWN).min(options.abi_ceiling.unwrap_or(ABI_KNOWN));
    let abi = ABI::from(i32::try_from(abi_number).unwrap_or(0));
    let broken = |error: &dyn std::fmt::Display| Fault::new(FaultCode::CannotConfine, format!("the Landlock ruleset: {error}"));

    let mut files = AccessFs::from_all(abi);
    if charter.unix == Unix::Any && matches!(access, Access::Execute) {
        files.remove(AccessFs::ResolveUnix);
    }
    let net = if host_network_is_closed(charter, access, options) { AccessNet::from_all(abi) } else { BitFlags::EMPTY };
    let scopes = Scope::from_all(abi);

    let mut ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset = ruleset.handle_access(files).map_err(|e| broken(&e))?;
    if !net.is_empty() {
        ruleset = ruleset.handle_access(net).map_err(|e| broken(&e))?;
    }
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes).map_err(|e| broken(&e))?;
    }
    let mut created = ruleset.create().map_err(|e| broken(&e))?;

    let mut skipped = Vec::new();
    let mut of_base = base_rights(access);
    for grant in &grants.0 {
        if grant.path == charter.base {
            if access == Access::Execute {
                of_base = union(of_base, grant.rights);
            }
            continue;
        }
        match open_grant(&grant.path, charter, base) {
            Ok(node) => {
                if let Err(error) = add(&mut created, node.as_fd(), grant.rights, abi) {
                    skipped.push(Skipped { path: grant.path.clone(), why: error.to_string() });
                }
            }
            Err(errno) => skipped.push(Skipped { path: grant.path.clone(), why: errno.desc().to_string() }),
        }
    }
    // The base by its descriptor, never by its path: it is the folder that was opened, whatever stands at that path now.
    add(&mut created, base, of_base, abi).map_err(|e| broken(&e))?;

    let handled = files
        .iter()
        .map(|right| format!("{right:?}"))
        .chain(net.iter().map(|right| format!("{right:?}")))
        .chain(scopes.iter().map(|scope| format!("Scope{scope:?}")))
        .collect();
    Ok(Rules { created, abi: abi_number, handled, skipped })
}

impl Rules {
    /// One folder more, by its descriptor.
    pub(super) fn grant(&mut self, folder: BorrowedFd<'_>, rights: Rights) -> Result<(), Fault> {
        let abi = ABI::from(i32::try_from(self.abi).unwrap_or(0));
        add(&mut self.created, folder, rights, abi)
            .map_err(|error| Fault::new(FaultCode::CannotConfine, format!("the Landlock ruleset: {error}")))
    }

    /// Lays the ruleset on this process, for good. The ruleset is kept, for the next one.
    pub(super) fn apply(&self) -> Result<(), Fault> {
        let broken = |error: &dyn std::fmt::Display| Fault::new(FaultCode::CannotConfine, format!("the Landlock ruleset: {error}"));
        let copy = self.created.try_clone().map_err(|e| broken(&e))?;
        let status = copy.restrict_self().map_err(|e| broken(&e))?;
        if status.ruleset != RulesetStatus::FullyEnforced {
            return Err(Fault::new(FaultCode::CannotConfine, "the kernel took the Landlock ruleset and enforces less than it says"));
        }
        Ok(())
    }
}

/// Whether this class must reach no network of the host, so that Landlock and the filter close it.
pub(super) fn host_network_is_closed(charter: &Charter, access: Access, options: &Options) -> bool {
    match (access, charter.net) {
        (Access::Execute, Net::Full) => false,
        // In a network namespace of its own, a loopback is all there is.
        (Access::Execute, Net::Loopback) => !options.namespaces.net,
        _ => true,
    }
}

fn base_rights(access: Access) -> Rights {
    match access {
        Access::Look | Access::Own => Rights::READ,
        Access::Change => Rights::CHANGE,
        Access::Execute => Rights::default(),
    }
}

fn union(a: Rights, b: Rights) -> Rights {
    Rights { read: a.read | b.read, exec: a.exec | b.exec, write: a.write | b.write, device: a.device | b.device }
}

/// Opens what is granted, without reading it. Inside the workspace no link is followed: its content is not ours.
fn open_grant(path: &Path, charter: &Charter, base: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let Ok(beneath) = path.strip_prefix(&charter.base) else {
        return open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty());
    };
    let mut node: Option<OwnedFd> = None;
    let mut names = beneath.iter().peekable();
    while let Some(name) = names.next() {
        let mut flags = OFlag::O_PATH | OFlag::O_NOFOLLOW;
        flags.set(OFlag::O_DIRECTORY, names.peek().is_some());
        let at = node.as_ref().map_or(base, OwnedFd::as_fd);
        node = Some(open_beneath(at, Path::new(name), flags, Mode::empty())?);
    }
    let node = node.ok_or(Errno::ENOENT)?;
    if file_type(node.as_fd())? == SFlag::S_IFLNK {
        return Err(Errno::ELOOP);
    }
    Ok(node)
}

fn file_type(node: BorrowedFd<'_>) -> Result<SFlag, Errno> {
    Ok(SFlag::from_bits_truncate(fstat(node)?.st_mode & SFlag::S_IFMT.bits()))
}

fn add(created: &mut RulesetCreated, node: BorrowedFd<'_>, rights: Rights, abi: ABI) -> Result<(), landlock::RulesetError> {
    let folder = file_type(node) == Ok(SFlag::S_IFDIR);
    let mut access = access_rights(rights) & AccessFs::from_all(abi);
    if !folder {
        access &= AccessFs::from_file(abi);
    }
    if !access.is_empty() {
        created.add_rule(PathBeneath::new(node, access))?;
    }
    Ok(())
}

/// What our rights are in Landlock's words. Devices are never made: no right of ours holds `MakeChar` or `MakeBlock`.
fn access_rights(rights: Rights) -> BitFlags<AccessFs> {
    let mut access = BitFlags::EMPTY;
    if rights.read {
        access |= make_bitflags!(AccessFs::{ReadFile | ReadDir});
    }
    if rights.exec {
        access |= AccessFs::Execute;
    }
    if rights.write {
        access |= make_bitflags!(AccessFs::{
            WriteFile | Truncate | Refer | RemoveFile | RemoveDir | MakeReg | MakeDir | MakeSym | MakeFifo | MakeSock
        });
    }
    if rights.device {
        access |= make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    }
    access
}
