//! Ordinary user and root both matter: started as root, the suite runs again as a user that owns nothing, from a folder that this user may
//! enter. The same binary is started again; nothing is compiled twice.

use crate::space::{bailiwick, is_root};
use crate::{skip, stage};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// A user id that no account has.
const UID: u32 = 54_321;

/// Tests that need what only the one who compiled has: the sources, caches in the home folder; and a browser, which knows no other user's page.
const NOT_FOR_OTHERS: [&str; 7] = ["as_user::", "browser::", "ci::", "house_rules::", "mcp_everything::", "real_input::", "new_tool::"];

#[test]
fn the_suite_holds_for_an_ordinary_user() {
    if !is_root() {
        skip!("not root: this run is that of an ordinary user already");
    }
    let dir = tempfile::Builder::new().prefix("bw-user-").tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let put = |from: &Path, name: &str| {
        let to = dir.path().join(name);
        fs::copy(from, &to).unwrap();
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
        to
    };
    let suite = put(&std::env::current_exe().unwrap(), "suite");
    let exe = put(&bailiwick(), "bailiwick");
    let attack = stage::attack_program().map(|program| put(program, "attack"));
    for name in ["home", "tmp"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        chown(dir.path().join(name), Some(UID), Some(UID)).unwrap();
    }
    let mut command = Command::new(suite);
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", dir.path().join("home"))
        .env("TMPDIR", dir.path().join("tmp"));
    command.env("BAILIWICK_TEST_EXE", exe).current_dir(dir.path()).uid(UID).gid(UID);
    if let Some(attack) = attack {
        command.env("BAILIWICK_TEST_ATTACK", attack);
    }
    for name in NOT_FOR_OTHERS {
        command.args(["--skip", name]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in said.lines().filter(|line| line.starts_with("SKIP") || line.starts_with("test result")) {
        println!("as user {UID}: {line}");
    }
    assert!(output.status.success(), "as user {UID}:\n{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed >= 5), "too few tests ran: {said}");
}
