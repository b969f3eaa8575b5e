//! Cases of other sandboxes that have no place among the tables: each by its number in the list, and of attacks on us that no list has, on
//! both rungs.

use crate::skip;
use crate::space::{Space, bailiwick, has, python};
use crate::stage::{SECRET, attack_program};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::process::Output;
use std::time::{Duration, Instant};

const RUNGS: [&[&str]; 2] = [&[], &["--without-namespaces"]];

/// Whether walls stand here at all.
fn walls_stand() -> bool {
    Space::new().run(["doctor", "--json"]).status.code() == Some(0)
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// S20, S22: rules are not expanded to arguments or mounts of names that are not there.
#[test]
fn ten_thousand_rules_and_a_protected_folder_of_many_files() {
    if !walls_stand() {
        skip!("no walls stand on this kernel");
    }
    let space = Space::new();
    fs::create_dir(space.ws().join("data")).unwrap();
    for number in 0..2000 {
        fs::write(space.ws().join(format!("data/{number}")), "").unwrap();
    }
    let mut policy = String::from("name = \"many\"\nextends = \"build\"\n[fs]\nprotect = [\"data\"");
    for number in 0..10_000 {
        write!(policy, ", \"secrets/{number}/key\"").unwrap();
    }
    policy.push_str("]\n");
    let file = space.path("many.toml");
    fs::write(&file, policy).unwrap();
    for rung in RUNGS {
        let script = "echo hi; rm -f data/7; mkdir -p secrets/9 && echo x > secrets/9/key; echo done";
        let output = space.run(rung.iter().copied().chain(["-p", file.to_str().unwrap(), "exec", "--", "bash", "-c", script]));
        let said = text(&output);
        assert!(said.contains("hi\n") && said.contains("done\n"), "{rung:?}: {said}");
        assert!(space.ws().join("data/7").exists() && !space.ws().join("secrets/9/key").exists(), "{rung:?}: {said}");
    }
}

/// S27: nothing is typed into the terminal that a program was started on.
#[test]
fn nothing_is_typed_into_the_terminal() {
    let Some(attack) = attack_program() else { skip!("no C compiler") };
    if !walls_stand() {
        skip!("no walls stand on this kernel");
    }
    for rung in RUNGS {
        let space = Space::new();
        fs::copy(attack, space.ws().join("attack")).unwrap();
        let terminal = nix::pty::openpty(None, None).unwrap();
        let script = "./attack tiocsti 0; ./attack tiocsti-high 0; exec 3<>/dev/tty; true";
        let mut command = space.command(rung.iter().chain(&["exec", "--", "bash", "-c", script]));
        let output = command.stdin(terminal.slave.try_clone().unwrap()).output().unwrap();
        let said = text(&output);
        assert!(!said.contains("done") && said.contains("ioctl: "), "{rung:?}: {said}");
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&terminal.slave, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
        let typed = fs::File::from(terminal.slave).read(&mut [0; 8]).unwrap_or(0);
        assert_eq!(typed, 0, "{rung:?}: something was typed");
    }
}

/// S37: a grant of one file holds for the file that has the name when a session starts.
#[test]
fn a_granted_file_that_was_replaced_is_the_new_one() {
    if !walls_stand() {
        skip!("no walls stand on this kernel");
    }
    let space = Space::new();
    let file = space.path("one.toml");
    let granted = space.outside().join("f");
    fs::write(&granted, "old\n").unwrap();
    fs::write(&file, format!("name = \"one\"\nextends = \"build\"\n[fs]\nread = [\"{}\"]\n", granted.display())).unwrap();
    for rung in RUNGS {
        for content in ["first\n", "second\n"] {
            fs::write(space.outside().join("f.new"), content).unwrap();
            fs::rename(space.outside().join("f.new"), &granted).unwrap();
            let script = "cat ../outside/f; cat ../outside/secret; true";
            let output = space.run(rung.iter().copied().chain(["-p", file.to_str().unwrap(), "exec", "--", "bash", "-c", script]));
            assert_eq!(String::from_utf8_lossy(&output.stdout), content, "{rung:?}: {}", text(&output));
        }
    }
}

/// S17: another sandbox in this one ends at once, with a word.
#[test]
fn a_sandbox_in_the_sandbox_ends_at_once() {
    if !walls_stand() {
        skip!("no walls stand on this kernel");
    }
    for rung in RUNGS {
        let space = Space::new();
        fs::copy(bailiwick(), space.ws().join("inner")).unwrap();
        let begun = Instant::now();
        let output = space.run(rung.iter().chain(&["exec", "--", "./inner", "exec", "--", "cat", "../outside/secret"]));
        assert!(begun.elapsed() < Duration::from_secs(30), "{rung:?}");
        let said = text(&output);
        assert!(!said.contains(SECRET) && !said.trim().is_empty() && output.status.code() != Some(0), "{rung:?}: {said}");
        if has("bwrap") {
            let output = space.run(rung.iter().chain(&["exec", "--", "bwrap", "--ro-bind", "/", "/", "cat", "../outside/secret"]));
            let said = text(&output);
            assert!(!said.contains(SECRET) && output.status.code() != Some(0) && said.lines().count() < 4, "{rung:?}: {said}");
        }
    }
}

/// S55: what CI runs is not changed by a stranger's tree.
#[test]
fn a_strangers_tree_changes_no_workflow() {
    let space = Space::new();
    for rung in RUNGS {
        let call = json!({ "command": "mkdir -p .github/workflows && echo 'on: push' > .github/workflows/p.yml; true" }).to_string();
        let output = space.run(rung.iter().copied().chain(["-p", "fork-pr", "tool", "sandbox_bash", &call]));
        if output.status.code() == Some(3) {
            println!("SKIP {rung:?}: fork-pr cannot be honoured here: {}", text(&output).lines().next().unwrap_or_default());
            continue;
        }
        assert!(!space.ws().join(".github/workflows/p.yml").exists(), "{rung:?}: {}", text(&output));
    }
}

/// S104: nothing that a call says widens the policy.
#[test]
fn no_argument_of_a_call_widens_the_policy() {
    if !walls_stand() {
        skip!("no walls stand on this kernel");
    }
    for rung in RUNGS {
        for (key, value) in [
            ("sandbox", json!(false)),
            ("policy", json!("online")),
            ("dangerously_disable_sandbox", json!(true)),
            ("with_escalated_permissions", json!(true)),
            ("without_namespaces", json!(false)),
            ("allow_degraded", json!(["fs.read"])),
            ("env", json!({ "BAILIWICK_POLICY": "/dev/null" })),
            ("workdir", json!("../outside")),
            ("workspace", json!("/")),
        ] {
            let space = Space::new();
            let mut call = json!({ "command": "cat ../outside/secret secret; echo x > ../outside/new" });
            call[key] = value;
            let call = call.to_string();
            let output = space.run(rung.iter().copied().chain(["tool", "sandbox_bash", &call]));
            assert!(!text(&output).contains(SECRET) && !space.outside().join("new").exists(), "{rung:?} {key}: {}", text(&output));
        }
    }
}

/// A program that everybody may start as its owner would outlive the session.
#[test]
fn no_command_makes_a_program_that_starts_as_its_owner() {
    let Some(python) = python() else { skip!("no python3") };
    let make = r#"
import os, stat
def attempt(act):
    try: act()
    except OSError: pass
for name in "abc": open(name, "w").close()
attempt(lambda: os.chmod("a", 0o4755))
attempt(lambda: os.fchmod(os.open("b", os.O_RDWR), 0o6755))
folder = os.open(".", os.O_RDONLY)
attempt(lambda: os.chmod("c", 0o4711, dir_fd=folder))
attempt(lambda: os.open("d", os.O_CREAT | os.O_WRONLY, 0o4755))
attempt(lambda: os.mknod("e", stat.S_IFREG | 0o4755))
attempt(lambda: os.mknod("f", 0o4755))
def unnamed():
    file = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755)
    os.link(f"/proc/self/fd/{file}", "g", dst_dir_fd=folder, follow_symlinks=True)
attempt(unnamed)
os.chmod("a", 0o755); os.mkfifo("fifo"); os.mkdir("shared", 0o2775); os.chmod("shared", 0o2775)
"#;
    let made = |space: &Space| {
        let entries = std::fs::read_dir(space.ws()).unwrap().map(|entry| entry.unwrap());
        entries.filter(|entry| entry.metadata().unwrap().mode() & 0o4000 != 0).count()
    };
    let open = Space::new().file("make.py", make.replace("os.chmod(\"a\", 0o755); ", ""));
    assert!(std::process::Command::new(python).arg("make.py").current_dir(open.ws()).status().unwrap().success());
    assert!(made(&open) >= 6, "{}", made(&open));
    for rung in [&[][..], &["--without-namespaces"]] {
        let space = Space::new().file("make.py", make);
        let output = space.run(rung.iter().copied().chain(["exec", "--", python, "make.py"]));
        assert!(output.status.success(), "{rung:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(made(&space), 0, "{rung:?}");
        assert!(space.ws().join("fifo").exists() && space.ws().join("shared").is_dir());
    }
}
