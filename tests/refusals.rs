//! Refusals explained: what the sandbox refused is in `denials` with its line of the policy; what would have failed anyway is not.

use crate::space::{Space, has};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What a row needs, the script, and of the denial: act and protection.
type Refused = (&'static str, &'static str, &'static str, &'static str);

/// The sandbox's. `{OUT}` is a folder outside that holds `secret`, `dir` and an executable `run`.
const SANDBOX: &[Refused] = &[
    ("", "cat {OUT}/secret", "read", "fs.read"),
    ("", "cat ../outside/secret", "read", "fs.read"),
    ("", "head -1 {OUT}/secret; true", "read", "fs.read"),
    ("", "cp {OUT}/secret .", "read", "fs.read"),
    ("", "grep x {OUT}/secret", "read", "fs.read"),
    ("", "ls {OUT}", "read", "fs.read"),
    ("", "ls -l {OUT}/dir", "read", "fs.read"),
    ("", "read -r x < {OUT}/secret", "read", "fs.read"),
    ("", ". {OUT}/secret", "read", "fs.read"),
    ("", "wc -l {OUT}/secret", "read", "fs.read"),
    ("", "sort {OUT}/secret", "read", "fs.read"),
    ("", "ln -s {OUT}/secret l; cat {OUT}/secret l", "read", "fs.read"),
    ("python3", "python3 -c 'open(\"{OUT}/secret\")'", "read", "fs.read"),
    ("node", "node -e 'require(\"fs\").readFileSync(\"{OUT}/secret\")'", "read", "fs.read"),
    ("perl", "perl -e 'open(F, \"<\", \"{OUT}/secret\") or die \"{OUT}/secret: $!\"'", "read", "fs.read"),
    ("", "echo x > {OUT}/new", "create", "fs.write"),
    ("", "echo x >> {OUT}/secret", "write", "fs.write"),
    ("", "touch {OUT}/new", "create", "fs.write"),
    ("", "mkdir {OUT}/new", "create", "fs.write"),
    ("", "cp /etc/hostname {OUT}/new", "create", "fs.write"),
    ("", "echo x | tee {OUT}/new", "create", "fs.write"),
    ("", "dd if=/dev/zero of={OUT}/new count=1", "create", "fs.write"),
    ("python3", "python3 -c 'open(\"{OUT}/new\", \"w\")'", "create", "fs.write"),
    ("curl", "curl -sS https://nohost.example.com/", "connect", "net.tcp"),
    ("git", "git ls-remote https://nohost.example.com/x", "connect", "net.tcp"),
    ("python3", "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\", 80), 5)'", "connect", "net.tcp"),
    ("python3", "python3 -c 'import urllib.request as u; u.urlopen(\"http://nohost.example.com/\")'", "connect", "net.tcp"),
    ("node", "node -e 'require(\"dns\").lookup(\"nohost.example.com\", e => { throw e })'", "connect", "net.tcp"),
    ("unshare", "unshare -U true", "make a namespace", "kernel"),
    ("unshare", "unshare -n true", "make a namespace", "kernel"),
];

/// Not the sandbox's.
const ORDINARY: &[(&str, &str)] = &[
    ("", "touch f; chmod 000 f; cat f"),
    ("", "touch f; chmod 444 f; echo x > f"),
    ("", "mkdir d; chmod 000 d; ls d"),
    ("", "mkdir d; chmod 555 d; touch d/x"),
    ("", "mkdir d; touch d/f; chmod 000 d; cat d/f"),
    ("", "touch x; ./x"),
    ("", "mkdir d; ./d"),
    ("", "cat nofile"),
    ("", "cat no/such/file"),
    ("", "ls /usr/nothing"),
    ("", "cat /usr/share/nothing/x"),
    ("", "./nothing"),
    ("", "/usr/bin/nothing"),
    ("", "nothing-of-that-name"),
    ("", "cd nowhere"),
    ("", "cp a b"),
    ("", "mv a b"),
    ("", "rm a"),
    ("", "rmdir a"),
    ("", "mkdir a/b/c"),
    ("", "echo x > no/such/folder"),
    ("", "echo x > ."),
    ("", "cat ."),
    ("", "touch f; cat f/x"),
    ("", "ln -s loop loop; cat loop"),
    ("", "kill -9 1; true"),
    ("", "exit 13"),
    ("", "echo 'cat: {OUT}/none: Permission denied' >&2; false"),
    ("", "echo 'ls: cannot open /usr/bin: Permission denied' >&2; false"),
    ("", "echo the workspace is /usr/share, Permission denied; false"),
    ("python3", "python3 -c 'open(\"none\")'"),
    ("python3", "python3 -c 'raise PermissionError(13, \"Permission denied\", \"mine\")'"),
    ("node", "node -e 'require(\"fs\").readFileSync(\"none\")'"),
    ("git", "git status"),
    ("make", "make"),
];

fn space() -> Space {
    let space = Space::new();
    fs::create_dir(space.outside().join("dir")).unwrap();
    fs::write(space.outside().join("run"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(space.outside().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    // The toolchains stay where they are, and a home that is not theirs has to say so.
    match std::env::var("PYENV_ROOT") {
        Ok(root) => space.env("PYENV_ROOT", &root),
        Err(_) => space,
    }
}

fn denials(script: &str, alone: bool) -> (Vec<Value>, String) {
    let space = space();
    let script = script.replace("{OUT}", space.outside().to_str().unwrap());
    let call = json!({ "command": script }).to_string();
    let mut args = if alone { vec!["--without-namespaces"] } else { Vec::new() };
    args.extend(["tool", "sandbox_bash", &call]);
    let line = String::from_utf8(space.run(args).stdout).unwrap();
    // So that the folder can be removed again.
    let _ = std::process::Command::new("chmod").args(["-R", "u+rwx"]).arg(space.ws()).output();
    let envelope: Value = serde_json::from_str(&line).unwrap();
    (envelope["data"]["denials"].as_array().cloned().unwrap_or_default(), line)
}

fn wrong_of(needs: &str, script: &str, expected: Option<(&str, &str)>) -> Vec<String> {
    if !needs.is_empty() && !has(needs) {
        println!("SKIP {script}: no {needs} here");
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for alone in [false, true] {
        let (denials, line) = denials(script, alone);
        let right = match expected {
            None => denials.is_empty(),
            Some((act, protection)) => denials.iter().any(|denial| {
                let whole = ["policy", "allowed"].iter().all(|key| denial[*key].as_str().is_some_and(|says| !says.is_empty()));
                denial["act"] == act && denial["protection"] == protection && whole
            }),
        };
        if !right {
            wrong.push(format!("{script} (alone {alone}): wanted {expected:?}: {line}"));
        }
    }
    wrong
}

#[test]
fn each_failure_is_blamed_on_who_made_it() {
    let sandbox = SANDBOX.iter().map(|(needs, script, act, protection)| (*needs, *script, Some((*act, *protection))));
    let ordinary = ORDINARY.iter().map(|(needs, script)| (*needs, *script, None));
    let rows: Vec<_> = sandbox.chain(ordinary).collect();
    let rows = std::sync::Mutex::new(rows.into_iter());
    let work = || {
        let mut wrong = Vec::new();
        loop {
            let next = rows.lock().unwrap().next();
            let Some((needs, script, expected)) = next else { return wrong };
            wrong.extend(wrong_of(needs, script, expected));
        }
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// What a mount refuses of git says how to go on.
#[test]
fn a_refused_setting_of_git_names_the_rule_and_a_way() {
    let space = Space::new();
    if !has("git") || !std::process::Command::new("git").args(["init", "-q"]).current_dir(space.ws()).status().unwrap().success() {
        crate::skip!("no git");
    }
    let called = space.bash("git config user.name x");
    let data = called.data();
    if data["exit_code"] == 0 {
        crate::skip!("no mounts here: settings are judged by key");
    }
    let denial = &data["denials"][0];
    assert_eq!(
        (&denial["act"], &denial["path"], &denial["protection"]),
        (&json!("write"), &json!(".git/config"), &json!("fs.protected")),
        "{data}"
    );
    assert!(denial["allowed"].as_str().unwrap().contains("git -c"), "{data}");
}

/// Messages of the shell name the shell, not the descriptor that the script came by.
#[test]
fn the_shell_speaks_as_the_shell() {
    let called = Space::new().bash("nothing-of-that-name");
    assert_eq!(called.data()["stderr"], "bash: line 1: nothing-of-that-name: command not found\n");
}
