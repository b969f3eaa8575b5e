use super::*;
use crate::policy::{Protection, shelf};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A machine in a folder: a system with secrets in `/etc`, a home folder with toolchains and keys, a project, a place for sessions.
pub(crate) struct Machine {
    _dir: tempfile::TempDir,
    pub(crate) here: Surroundings,
    pub(crate) base: PathBuf,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).unwrap();
        let files = [
            ("usr/bin/env", 0o755),
            ("usr/lib/libc.so", 0o644),
            ("usr/local/bin/x", 0o755),
            ("etc/passwd", 0o644),
            ("etc/shadow", 0o640),
            ("etc/sudoers.d/x", 0o440),
            ("etc/ssh/ssh_config", 0o644),
            ("etc/ssh/ssh_host_key", 0o600),
            ("etc/ssl/private/k", 0o644),
            ("run/systemd/resolve/stub-resolv.conf", 0o644),
            ("run/systemd/resolve/secret", 0o600),
            ("opt/tool/bin/t", 0o755),
            ("opt/private/key", 0o644),
            ("dev/null", 0o666),
            ("dev/pts/ptmx", 0o666),
            ("dev/shm/x", 0o666),
            ("proc/x", 0o444),
            ("tmp/other", 0o644),
            ("var/tmp/x", 0o644),
            ("home/p/.ssh/id_ed25519", 0o600),
            ("home/p/.gitconfig", 0o644),
            ("home/p/.cargo/bin/cargo", 0o755),
            ("home/p/.cargo/credentials.toml", 0o600),
            ("home/p/.cargo/registry/cache/i/c.crate", 0o644),
            ("home/p/.cargo/registry/index/i/x", 0o644),
            ("home/p/.rustup/settings.toml", 0o644),
            ("home/p/.rustup/toolchains/stable/bin/cargo", 0o755),
            ("home/p/.nvm/versions/node/v22/bin/node", 0o755),
            ("home/p/bin/mine", 0o755),
            ("home/p/code/x/README", 0o644),
            ("home/p/code/x/bin/evil", 0o755),
            ("home/p/code/other/secret", 0o644),
        ];
        for (file, mode) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0::/root:/bin/sh\nperson:x:1234:1234::/home/p:/bin/sh\n").unwrap();
        fs::write(root.join("home/p/.gitconfig"), "[user]\n\tname = Person\n\temail = p@example\n[credential]\n\thelper = store\n")
            .unwrap();
        fs::write(root.join("home/p/.rustup/settings.toml"), "default_toolchain = \"stable\"\n").unwrap();
        for closed in ["etc/ssl/private", "opt/private", "home/p/.ssh"] {
            fs::set_permissions(root.join(closed), fs::Permissions::from_mode(0o700)).unwrap();
        }
        symlink("usr/bin", root.join("bin")).unwrap();
        symlink("../run/systemd/resolve/stub-resolv.conf", root.join("etc/resolv.conf")).unwrap();
        let home = root.join("home/p");
        let path = ["home/p/.cargo/bin", "home/p/.nvm/versions/node/v22/bin", "home/p/bin", "usr/local/bin", "bin"];
        let path = std::env::join_paths(path.iter().map(|entry| root.join(entry))).unwrap();
        let env = vec![("HOME".into(), home.clone().into()), ("PATH".into(), path), ("SECRET_TOKEN".into(), "t".into())];
        let mut here = Surroundings::new(env, nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        here.root.clone_from(&root);
        here.session_parents = vec![root.join("tmp")];
        Self { _dir: dir, here, base: home.join("code/x") }
    }

    pub(crate) fn resolve(&self, policy: &str) -> Result<Resolved, Fault> {
        let policy = shelf::policy(policy)?;
        let image = shelf::image(policy.image.as_deref().unwrap())?;
        resolve(&policy, &image, &self.base, &self.here)
    }

    fn with(&self, text: &str) -> Result<Resolved, Fault> {
        let policy = Policy::parse(text, "mine")?.over(shelf::policy("build")?);
        resolve(&policy, &shelf::image("host")?, &self.base, &self.here)
    }

    fn may(&self, resolved: &Resolved, path: &str, rights: Rights) -> bool {
        resolved.charter.execute.as_ref().is_some_and(|grants| covered(&grants.0, &self.here.root.join(path), rights))
    }
}

#[test]
fn build_gives_commands_the_userland_and_no_secret() {
    let machine = Machine::new();
    let resolved = machine.resolve("build").unwrap();
    for path in [
        "usr/bin/env",
        "usr/lib/libc.so",
        "home/p/.cargo/bin/cargo",
        "home/p/.rustup/toolchains/stable/bin/cargo",
        "home/p/bin/mine",
        "opt/tool/bin/t",
    ] {
        assert!(machine.may(&resolved, path, Rights::RUN), "{path}");
        assert!(!machine.may(&resolved, path, Rights { write: true, ..Rights::default() }), "{path}");
    }
    for path in
        ["etc/passwd", "etc/ssh/ssh_config", "run/systemd/resolve/stub-resolv.conf", "proc/x", "home/p/.cargo/registry/cache/i/c.crate"]
    {
        assert!(machine.may(&resolved, path, Rights::READ), "{path}");
    }
    for path in [
        "etc/shadow",
        "etc/sudoers.d/x",
        "etc/ssh/ssh_host_key",
        "etc/ssl/private/k",
        "run/systemd/resolve/secret",
        "opt/private/key",
        "home/p",
        "home/p/.ssh/id_ed25519",
        "home/p/.gitconfig",
        "home/p/.cargo/credentials.toml",
        "home/p/code/other/secret",
        "home/p/code",
        "tmp/other",
        "tmp",
        "dev/shm/x",
        "dev",
        "",
        "etc",
    ] {
        assert!(!machine.may(&resolved, path, Rights::READ), "{path}");
    }
    assert!(machine.may(&resolved, "dev/null", Rights::DEVICE) && machine.may(&resolved, "home/p/code/x/README", Rights::CHANGE));
    for grant in &resolved.charter.execute.as_ref().unwrap().0 {
        assert!(grant.path.is_absolute() && !grant.reason.is_empty() && !grant.origin.is_empty(), "{grant:?}");
    }
}

#[test]
fn the_classes_get_what_the_policy_says() {
    let machine = Machine::new();
    let observe = machine.resolve("observe").unwrap().charter;
    assert!(observe.change.is_none() && observe.execute.is_none());
    let edit = machine.resolve("edit").unwrap().charter;
    assert!(edit.change.is_some() && edit.execute.is_none());
    let charter = machine.resolve("build").unwrap().charter;
    let rights = |access| -> Vec<_> { charter.grants(access).unwrap().0.iter().map(|grant| (grant.path.clone(), grant.rights)).collect() };
    assert_eq!(rights(Access::Look), [(machine.base.clone(), Rights::READ), (charter.session_dir.join("spool"), Rights::READ)]);
    assert_eq!(rights(Access::Change), [(machine.base.clone(), Rights::CHANGE)]);
    assert!(rights(Access::Own).contains(&(machine.base.clone(), Rights::READ)));
    assert!(!covered(&charter.own.0, &machine.base, Rights { write: true, ..Rights::default() }));
    assert!(!covered(&charter.execute.as_ref().unwrap().0, &charter.session_dir.join("own"), Rights::READ));
}

#[test]
fn the_policies_differ_where_they_should() {
    let machine = Machine::new();
    assert_eq!(machine.resolve("observe").unwrap().charter.net, Net::None);
    assert_eq!(machine.resolve("build").unwrap().charter.net, Net::Loopback);
    let ci = machine.resolve("ci").unwrap();
    assert_eq!(ci.charter.require, Protection::ALL);
    let fork = machine.resolve("fork-pr").unwrap();
    assert_eq!((fork.trust(), fork.charter.net), (Trust::Fork, Net::None));
    for path in [".github/workflows", "Cargo.lock", ".git/hooks"] {
        assert!(fork.charter.protect.contains(&path.into()), "{path}");
    }
    assert_eq!(fork.charter.policy, "fork-pr");
}

#[test]
fn path_has_only_what_can_and_should_be_used() {
    let mut machine = Machine::new();
    let root = machine.here.root.clone();
    fs::create_dir_all(root.join("open")).unwrap();
    fs::set_permissions(root.join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    symlink(machine.base.join("bin"), root.join("link")).unwrap();
    let entries = [
        root.join("home/p/.cargo/bin"),
        root.join("absent"),
        PathBuf::from("bin"),
        PathBuf::new(),
        machine.base.join("bin"),
        root.join("link"),
        root.join("open"),
        root.join("home/p"),
        root.join("home/p/code"),
        root.join("usr/bin/env"),
        root.join("bin"),
        root.join("usr/bin"),
        root.join("home/p/bin"),
    ];
    let path = std::env::join_paths(entries).unwrap();
    machine.here.env.push(("PATH".into(), path));
    let resolved = machine.resolve("build").unwrap();
    let shown: Vec<_> = resolved.present.path.iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect();
    assert_eq!(shown[..3], ["home/p/.cargo/bin", "usr/bin", "home/p/bin"]);
    assert!(shown.contains(&"home/p/.rustup/toolchains/stable/bin".to_owned()) && shown.contains(&"usr/local/bin".to_owned()));
    for (what, why) in [
        ("absent", "not there"),
        ("\"bin\"", "relative"),
        ("code/x/bin", "in the workspace"),
        ("link", "in the workspace"),
        ("open", "everybody may write"),
        ("home/p", "contains the home folder"),
        ("home/p/code", "contains the workspace"),
        ("usr/bin/env", "not a folder"),
    ] {
        assert!(
            resolved.dropped.iter().any(|one| one.what.starts_with("PATH") && one.what.ends_with(what) && one.why.contains(why)),
            "{what}"
        );
    }
    let env = resolved.charter.env.iter().find(|(name, _)| name == "PATH").unwrap();
    assert_eq!(std::env::split_paths(&env.1).collect::<Vec<_>>(), resolved.present.path);
}

#[test]
fn what_the_policy_lets_commands_write_is_not_on_path() {
    let machine = Machine::new();
    let resolved = machine.with("[fs]\nwrite = [\"$HOME/.cargo\"]").unwrap();
    assert!(!resolved.present.path.contains(&machine.here.root.join("home/p/.cargo/bin")));
    assert!(resolved.dropped.iter().any(|one| one.why.contains("lets commands write")));
}

#[test]
fn grants_of_a_policy_that_are_refused() {
    let machine = Machine::new();
    symlink("../other", machine.base.join("out")).unwrap();
    for (text, says) in [
        ("read = [\"/\"]", "whole machine"),
        ("write = [\"$HOME\"]", "contains the home folder"),
        ("read = [\"/home\"]", "contains the home folder"),
        ("read = [\"$WORKSPACE/out\"]", "link that leads out of the workspace"),
        ("write = [\"/tmp\"]", "contains the session's folder"),
        ("write = [\"$SESSION\"]", "home, tmp and cache"),
        ("write = [\"$SESSION/spool\"]", "home, tmp and cache"),
        ("read = [\"$SESSION/own\"]", "home, tmp and cache"),
    ] {
        let fault = machine.with(&format!("[fs]\n{text}")).unwrap_err();
        assert_eq!(fault.code(), FaultCode::InvalidPolicy);
        assert!(fault.message().contains(says), "{text}: {fault}");
    }
    let missing = machine.with("[fs]\nread = [\"/opt/absent\"]").unwrap();
    assert!(missing.dropped.iter().any(|one| one.what == "/opt/absent"));
}

#[test]
fn weakenings_are_loud() {
    let machine = Machine::new();
    assert!(machine.resolve("build").unwrap().loud.is_empty());
    let loud =
        machine.with("net = \"full\"\nunix = \"any\"\n[env]\npass = [\"SECRET_TOKEN\"]\n[fs]\nwrite = [\"$HOME/code\"]").unwrap().loud;
    assert_eq!(loud.len(), 4, "{loud:?}");
}

#[test]
fn nothing_is_made_and_the_secret_stays_out() {
    let machine = Machine::new();
    let resolved = machine.resolve("build").unwrap();
    assert!(!resolved.charter.session_dir.exists());
    assert!(!resolved.charter.session_dir.starts_with(&machine.base));
    assert!(resolved.charter.env.iter().all(|(name, _)| name != "SECRET_TOKEN"));
}

#[test]
fn a_linked_worktree_may_be_committed_in_and_its_pointers_are_protected() {
    let mut machine = Machine::new();
    let main = machine.here.root.join("home/p/code/main/.git");
    let own = main.join("worktrees/x");
    for folder in [&own, &main.join("objects"), &main.join("refs"), &main.join("hooks")] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(own.join("commondir"), "../..").unwrap();
    fs::write(own.join("gitdir"), machine.base.join(".git").display().to_string()).unwrap();
    machine.here.dot_git = Some(format!("gitdir: {}\n", own.display()).into_bytes());
    let resolved = machine.resolve("build").unwrap();
    assert!(machine.may(&resolved, "home/p/code/main/.git/worktrees/x/index", Rights::CHANGE));
    assert!(machine.may(&resolved, "home/p/code/main/.git/config", Rights::READ));
    assert!(!machine.may(&resolved, "home/p/code/main/.git/config", Rights::CHANGE));
    for path in [own.join("commondir"), own.join("gitdir"), main.join("hooks"), ".git".into()] {
        assert!(resolved.charter.protect.contains(&path), "{}", path.display());
    }
    // A pointer that nothing points back from is not followed, and said so.
    machine.here.dot_git = Some(format!("gitdir: {}\n", machine.here.root.join("home/p/.ssh").display()).into_bytes());
    let resolved = machine.resolve("build").unwrap();
    assert!(!machine.may(&resolved, "home/p/.ssh/id_ed25519", Rights::READ));
    assert!(resolved.dropped.iter().any(|one| one.why.contains("cannot commit here")));
}

#[test]
fn a_settings_file_of_cargo_above_the_workspace_is_readable_unless_it_holds_a_secret() {
    let machine = Machine::new();
    fs::write(machine.here.root.join("home/p/.cargo/config.toml"), "[build]\njobs = 2").unwrap();
    assert!(machine.may(&machine.resolve("build").unwrap(), "home/p/.cargo/config.toml", Rights::READ));
    fs::write(machine.here.root.join("home/p/.cargo/config.toml"), "[registry]\ntoken = \"x\"").unwrap();
    let resolved = machine.resolve("build").unwrap();
    assert!(!machine.may(&resolved, "home/p/.cargo/config.toml", Rights::READ));
    assert!(resolved.dropped.iter().any(|one| one.why.contains("credentials.toml")));
}

#[test]
fn others_terminals_are_not_granted() {
    let machine = Machine::new();
    assert!(machine.may(&machine.resolve("build").unwrap(), "dev/pts/0", Rights::DEVICE));
    fs::write(machine.here.root.join("dev/pts/0"), "").unwrap();
    assert!(!machine.may(&machine.resolve("build").unwrap(), "dev/pts/0", Rights::DEVICE));
}

#[test]
fn started_as_root_the_jails_are_the_owner_of_the_base() {
    if nix::unistd::geteuid().is_root() {
        let machine = Machine::new();
        assert_eq!(machine.resolve("build").unwrap().charter.identity.uid, 0);
        std::os::unix::fs::chown(&machine.base, Some(1234), Some(0)).unwrap();
        let resolved = machine.resolve("build").unwrap();
        assert_eq!((resolved.charter.identity.uid, resolved.charter.identity.gid), (1234, 65_534));
        assert!(resolved.charter.env.contains(&("USER".into(), "person".into())));
        // A home folder that is closed to the owner of the base: its toolchains are listed, not promised.
        fs::set_permissions(machine.here.root.join("home/p"), fs::Permissions::from_mode(0o700)).unwrap();
        let resolved = machine.resolve("build").unwrap();
        assert!(resolved.present.toolchains.is_empty());
        assert!(resolved.dropped.iter().any(|one| one.why.contains("user 1234")));
    } else {
        let charter = Machine::new().resolve("build").unwrap().charter;
        assert_eq!(charter.identity.uid, nix::unistd::geteuid().as_raw());
    }
}

#[test]
fn images_that_ask_for_less_give_less() {
    let machine = Machine::new();
    let with =
        |image: &str| resolve(&shelf::policy("build").unwrap(), &shelf::image(image).unwrap(), &machine.base, &machine.here).unwrap();
    let minimal = with("minimal");
    assert!(minimal.present.toolchains.is_empty() && !machine.may(&minimal, "home/p/.cargo/bin/cargo", Rights::RUN));
    let rust = with("rust");
    assert!(machine.may(&rust, "home/p/.cargo/bin/cargo", Rights::RUN) && !machine.may(&rust, "home/p/.nvm/versions", Rights::READ));
    assert!(rust.present.path.contains(&machine.here.root.join("home/p/.cargo/bin")));
}
