//! What a person should know about a policy on this machine before relying on it: `policy check`.
//!
//! Never opens a file and never looks into the workspace; names and kinds only nominate, a person decides.

use super::charter::Grant;
use super::resolve::Resolved;
use super::surroundings::Surroundings;
use super::{Net, Unix};
use nix::sys::statfs::{FsType, statfs};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weight {
    /// Good to know.
    Note,
    /// Probably not what was meant.
    Warning,
    /// A rule that does not do what it says.
    Error,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it weighs.
    pub weight: Weight,
    /// A stable name: `credential`, `socket`, `setuid`, `9p`, `path`, `missing`, `wide`, `weakened`.
    pub kind: &'static str,
    /// The path or rule.
    pub what: String,
    /// What it means, and what to do.
    pub says: String,
}

/// Files and folders that hold credentials, by name or by the end of their path.
const CREDENTIALS: &[&str] = &[
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".vault-token",
    ".env",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "credentials",
    "credentials.toml",
    "credentials.json",
    "credentials.db",
    "secrets.toml",
    "secrets.yaml",
    "auth.json",
    "gcloud",
    "keyrings",
    "Login Data",
    "cookies.sqlite",
    "logins.json",
    "key4.db",
    ".docker/config.json",
    "gh/hosts.yml",
    "hub",
    "sops",
    "age/keys.txt",
    "gradle.properties",
    ".m2/settings.xml",
    "shadow",
    "gshadow",
];

/// The file system of shares from a virtual machine's host, on which Landlock's rules have no effect.
const V9FS: FsType = FsType(0x0102_1997);

/// Most directory entries that are looked at in one grant, and how deep.
const ENTRIES: usize = 20_000;
const DEEPEST: usize = 4;

/// Looks at a resolved policy.
pub fn check(resolved: &Resolved, here: &Surroundings) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |weight, kind, what: String, says: String| {
        let finding = Finding { weight, kind, what, says };
        if !found.contains(&finding) {
            found.push(finding);
        }
    };
    let charter = &resolved.charter;
    for says in &resolved.loud {
        add(Weight::Warning, "weakened", format!("policy {}", charter.policy), says.clone());
    }
    if charter.net == Net::Full && charter.unix == Unix::Any {
        add(Weight::Warning, "weakened", "net and unix".into(), "with both open a command can send out whatever it can read".into());
    }
    for one in &resolved.dropped {
        let kind = if one.what.starts_with("PATH") { "path" } else { "missing" };
        let weight = if one.why.contains("workspace") && kind == "path" { Weight::Warning } else { Weight::Note };
        add(weight, kind, one.what.clone(), one.why.clone());
    }
    let grants: Vec<&Grant> =
        charter.execute.iter().flat_map(|grants| &grants.0).filter(|grant| !grant.path.starts_with(&charter.session_dir)).collect();
    for grant in &grants {
        if statfs(&grant.path).is_ok_and(|fs| fs.filesystem_type() == V9FS) {
            let says = "on a 9p file system, where Landlock's rules have no effect: only mounts protect it; move it to a local disk";
            add(Weight::Error, "9p", grant.path.display().to_string(), says.into());
        }
        if grant.rights.write && grant.origin.starts_with("policy") && is_system(&grant.path, here) {
            let says = "commands may write to a system folder, and what is planted there runs outside of the sandbox: grant a folder of the project";
            add(Weight::Error, "wide", grant.path.display().to_string(), says.into());
        }
    }
    // What a policy or the host's PATH added is looked into; the system's own folders are not, nor is the workspace.
    for grant in grants.iter().filter(|grant| !grant.path.starts_with(&charter.base) && !charter.base.starts_with(&grant.path)) {
        let named = grant.origin.starts_with("policy") || grant.reason.contains("PATH");
        if named {
            Look { left: ENTRIES, grant, add: &mut add }.at(&grant.path, 0);
        }
    }
    found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
    found
}

struct Look<'a, F: FnMut(Weight, &'static str, String, String)> {
    left: usize,
    grant: &'a Grant,
    add: &'a mut F,
}

impl<F: FnMut(Weight, &'static str, String, String)> Look<'_, F> {
    fn at(&mut self, path: &Path, depth: usize) {
        if self.left == 0 || depth > DEEPEST {
            return;
        }
        self.left -= 1;
        let Ok(meta) = fs::symlink_metadata(path) else { return };
        let shown = path.display().to_string();
        let granted = format!("granted by {} ({})", self.grant.path.display(), self.grant.origin);
        if is_credential(path) {
            (self.add)(
                Weight::Error,
                "credential",
                shown.clone(),
                format!("holds credentials, by its name, and is {granted}: grant what lies beside it"),
            );
        }
        if meta.file_type().is_socket() {
            let says =
                format!("a socket, {granted}: a grant of files does not open it; `unix` governs sockets, and \"any\" would open every one");
            (self.add)(Weight::Warning, "socket", shown.clone(), says);
        }
        if meta.is_file() && meta.mode() & 0o6000 != 0 && meta.mode() & 0o111 != 0 {
            let write = if self.grant.rights.write { Weight::Error } else { Weight::Note };
            (self.add)(write, "setuid", shown, format!("runs as its owner, and is {granted}: in the sandbox it does not, and will fail"));
        }
        if meta.is_dir() {
            let Ok(entries) = fs::read_dir(path) else { return };
            for entry in entries.flatten() {
                self.at(&entry.path(), depth + 1);
            }
        }
    }
}

/// Whether the end of a path is a name under which credentials are kept.
pub fn is_credential(path: &Path) -> bool {
    CREDENTIALS.iter().any(|name| path.ends_with(name))
}

fn is_system(path: &Path, here: &Surroundings) -> bool {
    const SYSTEM: &[&str] =
        &["/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/var/lib", "/var/spool", "/opt", "/proc", "/sys", "/dev"];
    let folders = SYSTEM.iter().map(|folder| here.system(Path::new(folder)));
    folders.flat_map(|folder: PathBuf| [folder.canonicalize().ok(), Some(folder)]).flatten().any(|folder| path.starts_with(folder))
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::Machine;
    use super::*;
    use crate::policy::{Policy, resolve, shelf};
    use std::os::unix::fs::PermissionsExt;

    fn findings(machine: &Machine, text: &str) -> Vec<Finding> {
        let policy = Policy::parse(text, "mine").unwrap().over(shelf::policy("build").unwrap());
        check(&resolve(&policy, &shelf::image("host").unwrap(), &machine.base, &machine.here).unwrap(), &machine.here)
    }

    #[test]
    fn the_default_policy_has_nothing_worse_than_notes() {
        let machine = Machine::new();
        let found = findings(&machine, "");
        assert!(found.iter().all(|finding| finding.weight == Weight::Note), "{found:?}");
    }

    #[test]
    fn what_a_grant_holds_is_said() {
        let machine = Machine::new();
        let folder = machine.here.root.join("home/p/stuff");
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/.npmrc"), "").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.join("docker.sock")).unwrap();
        fs::write(folder.join("su"), "").unwrap();
        fs::set_permissions(folder.join("su"), fs::Permissions::from_mode(0o4755)).unwrap();
        let found =
            findings(&machine, "net = \"full\"\n[fs]\nread = [\"$HOME/stuff\", \"$HOME/.ssh\", \"/opt/absent\"]\nwrite = [\"/usr/lib\"]");
        for (kind, what, weight) in [
            ("credential", "deep/.npmrc", Weight::Error),
            ("credential", "p/.ssh", Weight::Error),
            ("socket", "docker.sock", Weight::Warning),
            ("setuid", "su", Weight::Note),
            ("missing", "/opt/absent", Weight::Note),
            ("wide", "usr/lib", Weight::Error),
            ("weakened", "policy build", Weight::Warning),
        ] {
            assert!(
                found.iter().any(|one| one.kind == kind && one.what.ends_with(what) && one.weight == weight),
                "{kind} {what}: {found:?}"
            );
        }
        let socket = found.iter().find(|one| one.kind == "socket").unwrap();
        assert!(socket.says.contains("`unix` governs sockets"));
        assert!(found.windows(2).all(|pair| pair[0].weight >= pair[1].weight));
    }

    #[test]
    fn the_workspace_on_path_is_a_warning() {
        let mut machine = Machine::new();
        machine.here.env.push(("PATH".into(), machine.base.join("bin").into()));
        assert!(findings(&machine, "").iter().any(|one| one.kind == "path" && one.weight == Weight::Warning));
    }
}
