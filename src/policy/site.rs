//! Where a session happens: which folder can be a workspace, who the jails are, and where the session's own folder will be.
//!
//! Never makes anything on disk.

use super::Identity;
use super::image::reach;
use super::surroundings::Surroundings;
use crate::envelope::{Fault, FaultCode};
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// System folders: neither they nor anything beneath them can be a workspace.
const CLOSED: &[&str] = &[
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr",
    "/etc",
    "/boot",
    "/dev",
    "/proc",
    "/sys",
    "/nix",
    "/gnu",
    "/snap",
    "/lost+found",
];
/// Exceptions from [`CLOSED`]: sources lie beneath them, and many containers have their project there.
const OPEN: &[&str] = &["/usr/src", "/usr/local/src", "/dev/shm"];
/// Folders that are shared: what is beneath them can be a workspace, they themselves cannot.
const SHARED: &[&str] = &[
    "/home",
    "/root",
    "/opt",
    "/srv",
    "/mnt",
    "/media",
    "/tmp",
    "/var",
    "/var/tmp",
    "/var/lib",
    "/var/log",
    "/var/cache",
    "/var/spool",
    "/var/run",
    "/var/www",
    "/run",
    "/run/user",
    "/usr/src",
    "/usr/local/src",
    "/dev/shm",
];

/// The base directory of a workspace: links resolved, and judged.
///
/// # Errors
/// `invalid_workspace` with what to do.
pub fn base(workspace: &Path, here: &Surroundings) -> Result<PathBuf, Fault> {
    let wrong = |says: String| {
        Fault::new(FaultCode::InvalidWorkspace, says)
            .hint("name the folder of one project: --workspace DIR")
            .with("workspace", workspace.display().to_string())
    };
    let base = workspace.canonicalize().map_err(|error| wrong(format!("{}: {error}", workspace.display())))?;
    let at = match base == workspace {
        true => workspace.display().to_string(),
        false => format!("{} (that is {})", workspace.display(), base.display()),
    };
    if !base.is_dir() {
        return Err(wrong(format!("{at} is not a folder")));
    }
    if base == Path::new("/") || base == here.root {
        return Err(wrong(format!("{at} is the root of the machine: everything would be in reach")));
    }
    // The home folder is compared as written and as resolved: it can be a link.
    for home in here.home.iter().flat_map(|home| [Some(home.clone()), here.links.canonical(home).ok()]).flatten() {
        if home == base {
            return Err(wrong(format!("{at} is the home folder: keys and settings lie in it")));
        }
        if home.starts_with(&base) {
            return Err(wrong(format!("{at} contains the home folder: keys and settings lie in it")));
        }
    }
    let listed = |list: &[&str]| list.iter().map(|path| here.system(Path::new(path))).collect::<Vec<_>>();
    let resolved = |path: &PathBuf| here.links.canonical(path).ok();
    if listed(SHARED).iter().any(|shared| *shared == base || resolved(shared).is_some_and(|shared| shared == base)) {
        return Err(wrong(format!("{at} is shared by many programs")));
    }
    let beneath = |list: &[&str]| {
        listed(list).into_iter().find(|folder| base.starts_with(folder) || resolved(folder).is_some_and(|folder| base.starts_with(folder)))
    };
    if let Some(folder) = beneath(CLOSED).filter(|_| beneath(OPEN).is_none()) {
        return Err(wrong(format!("{at} is, or lies in, the system folder {}", folder.display())));
    }
    Ok(base)
}

/// Who the jails are: the host itself, or, started as root, the owner of the base. Root only when the base is root's.
///
/// # Errors
/// `invalid_workspace` when the base cannot be looked at.
pub fn identity(base: &Path, here: &Surroundings) -> Result<Identity, Fault> {
    if here.uid != 0 {
        return Ok(Identity { uid: here.uid, gid: here.gid });
    }
    let meta = fs::metadata(base).map_err(|error| Fault::new(FaultCode::InvalidWorkspace, format!("{}: {error}", base.display())))?;
    Ok(match (meta.uid(), meta.gid()) {
        (0, _) => Identity { uid: 0, gid: here.gid },
        // Group 0 would open what is kept for root's group; 65534 is nobody's on every Linux.
        (uid, 0) => Identity { uid, gid: 65_534 },
        (uid, gid) => Identity { uid, gid },
    })
}

/// Where the session's own folder will be: a name that cannot be guessed, in the first parent that can be used.
///
/// # Errors
/// `invalid_policy` when no parent can be used.
pub fn session_dir(base: &Path, identity: Identity, here: &Surroundings) -> Result<PathBuf, Fault> {
    let mut tried = Vec::new();
    for parent in &here.session_parents {
        let shown = parent.display();
        match here.links.canonical(parent) {
            Err(error) => tried.push(format!("{shown}: {error}")),
            Ok(parent) if !parent.is_dir() => tried.push(format!("{shown}: not a folder")),
            Ok(parent) if parent.starts_with(base) => tried.push(format!("{shown}: in the workspace, where commands write")),
            Ok(parent) if identity.uid != here.uid && !reach(&parent, identity) => {
                tried.push(format!("{shown}: user {} cannot enter it", identity.uid));
            }
            Ok(parent) if !writable(&parent, here) => tried.push(format!("{shown}: not ours to write in")),
            Ok(parent) => return Ok(parent.join(format!("bailiwick-{}", unguessable()?))),
        }
    }
    Err(Fault::new(FaultCode::InvalidPolicy, format!("no folder for the session's own files: {}", tried.join("; ")))
        .hint("set TMPDIR to a folder outside of the workspace in which you may write"))
}

/// Asks the kernel whether we may make something in a folder.
fn writable(folder: &Path, here: &Surroundings) -> bool {
    use nix::unistd::{AccessFlags, access};
    here.uid == 0 || access(folder, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
}

/// 128 random bits, in hexadecimal.
fn unguessable() -> Result<String, Fault> {
    let mut bytes = [0u8; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Fault::new(FaultCode::Internal, format!("/dev/urandom: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A machine in a folder: `usr`, `etc`, `home/p/code/x`, a link to each kind of place.
    fn machine() -> (tempfile::TempDir, Surroundings) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["usr/lib", "usr/src/app", "etc", "var/lib/jenkins/w", "home/p/code/x", "tmp/x", "proc/1", "srv"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("../../..", root.join("home/p/up")).unwrap();
        symlink("../../../etc", root.join("home/p/code/conf")).unwrap();
        symlink("..", root.join("home/p/code/home")).unwrap();
        symlink("home/p/code/x", root.join("work")).unwrap();
        let mut here = Surroundings::new(Vec::new(), 1000, 1000);
        here.root.clone_from(&root);
        here.home = Some(root.join("home/p"));
        (dir, here)
    }

    #[test]
    fn places_that_are_no_workspace() {
        let (_dir, here) = machine();
        for wrong in [
            "",
            "usr",
            "usr/lib",
            "lib",
            "etc",
            "proc",
            "proc/1",
            "home",
            "home/p",
            "tmp",
            "srv",
            "var",
            "var/lib",
            "usr/src",
            "home/p/up",
            "home/p/code/conf",
            "home/p/code/home",
            "absent",
        ] {
            let fault = base(&here.root.join(wrong), &here).unwrap_err();
            assert_eq!(fault.code(), FaultCode::InvalidWorkspace, "{wrong}");
            assert!(fault.hint_text().unwrap().contains("--workspace"));
        }
        for right in ["home/p/code/x", "home/p/code", "tmp/x", "usr/src/app", "var/lib/jenkins/w", "work"] {
            base(&here.root.join(right), &here).unwrap();
        }
        assert_eq!(base(&here.root.join("work"), &here).unwrap(), here.root.join("home/p/code/x"));
        assert!(base(Path::new("/"), &here).unwrap_err().message().contains("root of the machine"));
    }

    #[test]
    fn a_home_that_is_a_link_is_still_the_home() {
        let (_dir, mut here) = machine();
        symlink("home/p", here.root.join("me")).unwrap();
        here.home = Some(here.root.join("me"));
        for wrong in ["me", "home/p", "home"] {
            assert!(base(&here.root.join(wrong), &here).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_session_is_never_in_the_workspace() {
        let (_dir, mut here) = machine();
        let base = here.root.join("home/p/code");
        let identity = Identity { uid: 1000, gid: 1000 };
        here.uid = nix::unistd::geteuid().as_raw();
        let identity = Identity { uid: here.uid, ..identity };
        here.session_parents = vec![base.clone(), base.join("x"), here.root.join("absent"), here.root.join("work")];
        let fault = session_dir(&base, identity, &here).unwrap_err();
        assert!(fault.message().contains("in the workspace") && fault.hint_text().unwrap().contains("TMPDIR"));
        here.session_parents.push(here.root.join("tmp"));
        let one = session_dir(&base, identity, &here).unwrap();
        assert_eq!(one.parent(), Some(here.root.join("tmp").as_path()));
        assert_ne!(one, session_dir(&base, identity, &here).unwrap());
        assert!(!one.exists());
    }
}
