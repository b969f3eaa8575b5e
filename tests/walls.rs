//! The walls with one stone missing: the real program, in a kernel that lacks a mechanism or only says that it has it. A program of the test
//! answers the system calls in question (`attack answer`, `attack abi`) and becomes bailiwick. Judged by what starts, what the report
//! says, and what a command then reaches.

use crate::processes::within;
use crate::skip;
use crate::space::{Space, bailiwick, is_root};
use crate::stage::attack_program;
use libc::{
    SYS_capset, SYS_clone, SYS_clone3, SYS_close_range, SYS_landlock_create_ruleset, SYS_landlock_restrict_self, SYS_mount,
    SYS_mount_setattr, SYS_move_mount, SYS_open_tree, SYS_openat2, SYS_pidfd_open, SYS_prctl, SYS_prlimit64, SYS_seccomp, SYS_unshare,
};
use serde_json::Value;
use std::process::Output;
use std::time::Duration;

/// What comes of a kernel that has less.
enum Then {
    /// Nothing starts, and the one line says this.
    Nothing(&'static str),
    /// A session starts without namespaces, and the report says so.
    Alone,
    /// All is as ever: there is another way.
    Same,
}

use Then::{Alone, Nothing, Same};

const CLONE_NEW: &str = "0x7e020000";

fn rows() -> Vec<(&'static str, String, Then)> {
    let no = |call: i64, errno: i32| format!("{call}={errno}");
    // "Done", and nothing was.
    let lies = |call: i64| format!("{call}=0");
    let mut rows = vec![
        ("Landlock is not built in", no(SYS_landlock_create_ruleset, libc::ENOSYS), Nothing("CONFIG_SECURITY_LANDLOCK")),
        ("Landlock is off at boot", no(SYS_landlock_create_ruleset, libc::EOPNOTSUPP), Nothing("`lsm=` boot parameter")),
        ("Landlock is refused", no(SYS_landlock_create_ruleset, libc::EPERM), Nothing("Landlock")),
        ("Landlock is not laid on", no(SYS_landlock_restrict_self, libc::EPERM), Nothing("Landlock")),
        ("Landlock is said to be laid on", lies(SYS_landlock_restrict_self), Nothing("canary_failed: fs.")),
        (
            "seccomp is not built in",
            format!("{SYS_seccomp}={},{SYS_prctl}:{}={}", libc::ENOSYS, libc::PR_SET_SECCOMP, libc::EINVAL),
            Nothing("seccomp"),
        ),
        ("seccomp is refused", no(SYS_seccomp, libc::EPERM), Nothing("seccomp")),
        ("seccomp is said to be installed", lies(SYS_seccomp), Nothing("canary_failed: ")),
        ("limits are refused", no(SYS_prlimit64, libc::EPERM), Nothing("cannot be set")),
        // Asking for one is answered.
        ("limits are said to be set", format!("{SYS_prlimit64}@2&0xffffffff=0"), Nothing("canary_failed: limits")),
        ("no_new_privs is refused", format!("{SYS_prctl}:{}={}", libc::PR_SET_NO_NEW_PRIVS, libc::EINVAL), Nothing("no_new_privs")),
        ("openat2 is unknown", no(SYS_openat2, libc::ENOSYS), Nothing("openat2")),
        ("namespaces are refused", format!("{SYS_unshare}=1,{SYS_clone}&{CLONE_NEW}=1"), Alone),
        ("mounts are refused", no(SYS_mount, libc::EPERM), Alone),
        ("trees of mounts are unknown", no(SYS_open_tree, libc::ENOSYS), Alone),
        ("trees of mounts are not attached", no(SYS_move_mount, libc::EPERM), Alone),
        ("mounts are not changed", no(SYS_mount_setattr, libc::ENOSYS), Alone),
        ("a new process is not made by clone3", no(SYS_clone3, libc::ENOSYS), Same),
        ("ranges of descriptors are unknown", no(SYS_close_range, libc::ENOSYS), Same),
        ("a process has no descriptor", no(SYS_pidfd_open, libc::ENOSYS), Same),
    ];
    if is_root() {
        rows.push(("capabilities are said to be dropped", lies(SYS_capset), Nothing("capabilities are left")));
    }
    rows
}

/// Runs the program in a kernel that answers calls so.
fn run(space: &Space, how: &[&str], args: &[&str]) -> Output {
    let inner = space.command([""; 0]);
    let mut command = std::process::Command::new(attack_program().unwrap());
    command.args(how).arg(bailiwick()).args(args).current_dir(space.ws()).env_clear().stdin(std::process::Stdio::null());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `doctor --json` says of the live sandbox.
fn report(output: &Output) -> Value {
    let findings: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    findings["report"].clone()
}

fn state<'a>(report: &'a Value, protection: &str) -> &'a str {
    let rows = report["protections"].as_array().unwrap();
    rows.iter().find(|row| row["protection"] == protection).unwrap()["state"].as_str().unwrap()
}

/// Whether walls stand here at all: on a kernel without Landlock nothing can be removed.
fn walls_stand() -> Option<Value> {
    let output = Space::new().run(["doctor", "--json"]);
    (output.status.code() == Some(0)).then(|| report(&output))
}

/// Nothing starts: exit 3 (125 of `exec`), one line, no program.
fn check_nothing(name: &str, space: &Space, how: &[&str], says: &str) {
    let output = run(space, how, &["exec", "--", "touch", "started"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{name}: {said}");
    assert!(said.lines().count() == 1 && said.contains(says), "{name}: {said}");
    let output = run(space, how, &["tool", "sandbox_bash", r#"{"command":"touch started"}"#]);
    let line = text(&output.stdout);
    let envelope: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{name}: {error}: {line:?}"));
    assert_eq!((output.status.code(), &envelope["success"]), (Some(3), &Value::Bool(false)), "{name}: {line}");
    assert!(line.lines().count() == 1 && envelope["error"].as_str().unwrap().contains(says), "{name}: {line}");
    assert!(!space.ws().join("started").exists(), "{name}: the program was started");
}

/// A command works inside, and reaches nothing outside.
fn check_walls(name: &str, space: &Space, how: &[&str]) {
    let secret = space.outside().join("secret").display().to_string();
    let script = format!("echo here > f && cat f && ! cat {secret} && ! touch {}/new && echo shut", space.outside().display());
    let output = run(space, how, &["exec", "--", "bash", "-c", &script]);
    assert_eq!(text(&output.stdout), "here\nshut\n", "{name}: {}", text(&output.stderr));
    assert!(!space.outside().join("new").exists(), "{name}");
    std::fs::create_dir_all(space.ws().join("sub")).unwrap();
    let call = r#"{"command":"echo in $PWD; echo x > g","workdir":"sub"}"#;
    let output = run(space, how, &["--without-namespaces", "tool", "sandbox_bash", call]);
    assert!(text(&output.stdout).contains("/ws/sub\\n"), "{name}: {}", text(&output.stdout));
    assert!(space.ws().join("sub/g").exists(), "{name}");
}

#[test]
fn each_mechanism_that_is_missing_is_noticed_and_said() {
    if attack_program().is_none() {
        skip!("no C compiler");
    }
    let Some(here) = walls_stand() else { skip!("no walls stand on this kernel") };
    for (name, calls, then) in rows() {
        let space = Space::new();
        let how = ["answer", &calls];
        match then {
            Nothing(says) => check_nothing(name, &space, &how, says),
            Alone => {
                check_walls(name, &space, &how);
                let report = report(&run(&space, &how, &["doctor", "--json"]));
                for namespace in ["mount", "pid", "net"] {
                    assert_eq!(report["surroundings"]["namespaces"][namespace], false, "{name}: {report}");
                }
                assert_ne!(state(&report, "fs.metadata"), "enforced", "{name}: {report}");
                assert_ne!(state(&report, "proc"), "enforced", "{name}: {report}");
                if here["surroundings"]["namespaces"]["mount"] == true {
                    assert!(report["notes"].to_string().contains("no namespaces start here ("), "{name}: {}", report["notes"]);
                }
            }
            Same => {
                check_walls(name, &space, &how);
                let report = report(&run(&space, &how, &["doctor", "--json"]));
                assert_eq!(report["surroundings"]["namespaces"], here["surroundings"]["namespaces"], "{name}");
            }
        }
    }
}

#[test]
fn mounts_that_are_said_to_be_read_only_are_tried() {
    if attack_program().is_none() {
        skip!("no C compiler");
    }
    let here = walls_stand();
    if here.is_none_or(|here| here["surroundings"]["namespaces"]["mount"] != true) {
        skip!("no mount namespace starts here");
    }
    check_nothing("mounts are said to be read-only", &Space::new(), &["answer", &format!("{SYS_mount_setattr}=0")], "canary_failed: fs.");
}

/// Users and groups are the same numbers on both sides, whoever owns the workspace.
#[test]
fn who_a_command_is_and_what_it_owns_is_the_same_inside_and_outside() {
    use std::os::unix::fs::{MetadataExt, chown};
    if walls_stand().is_none() {
        skip!("no walls stand on this kernel");
    }
    let mut owners = vec![(nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw())];
    if is_root() {
        owners.push((65_533, 65_532));
    }
    for (uid, gid) in owners {
        for rung in [&[][..], &["--without-namespaces"]] {
            let space = Space::new().file("given", "x");
            for path in [space.ws(), space.ws().join("given")] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
            let script = "touch made; id -u; id -g; stat -c '%u %g' . given made";
            let output = space.run(rung.iter().chain(&["exec", "--", "bash", "-c", script]));
            let expected = format!("{uid}\n{gid}\n") + &format!("{uid} {gid}\n").repeat(3);
            assert_eq!(text(&output.stdout), expected, "{rung:?}: {}", text(&output.stderr));
            let made = std::fs::metadata(space.ws().join("made")).unwrap();
            assert_eq!((made.uid(), made.gid()), (uid, gid), "{rung:?}");
        }
    }
}

/// As containers do (from a namespace above, else the mask could be lifted): a whole /proc cannot be mounted then, and a process namespace without one would count and end the wrong processes.
#[test]
fn where_parts_of_proc_are_masked_all_but_the_process_namespace_is_there() {
    let space = Space::new();
    let masked = |args: &[&str]| {
        let script = "mount -t tmpfs none /proc/fs && exec unshare -Urm \"$@\"";
        let mut command = std::process::Command::new("unshare");
        command.args(["-Urm", "bash", "-c", script, "-"]).arg(bailiwick()).args(args).current_dir(space.ws());
        command.env("HOME", space.path("home")).stdin(std::process::Stdio::null());
        command.output()
    };
    if !masked(&["--version"]).is_ok_and(|output| output.status.success()) || walls_stand().is_none() {
        skip!("no namespace in which /proc could be masked, or no walls");
    }
    let report = report(&masked(&["doctor", "--json"]).unwrap());
    let namespaces = &report["surroundings"]["namespaces"];
    assert_eq!((&namespaces["mount"], &namespaces["net"], &namespaces["pid"]), (&true.into(), &true.into(), &false.into()), "{report}");
    assert!(report["notes"].to_string().contains("no process namespace of the session's own: "), "{}", report["notes"]);
    assert_ne!(state(&report, "proc"), "enforced");
    let mark = crate::processes::mark();
    let output = masked(&["exec", "--", "bash", "-c", &format!("setsid sleep {mark} & echo started")]).unwrap();
    assert_eq!(text(&output.stdout), "started\n", "{}", text(&output.stderr));
    assert!(crate::processes::alive(&mark).is_empty());
}

/// On each ABI up to the kernel's own: what the report says, and that canaries found it so.
#[test]
fn an_older_landlock_is_said_and_a_policy_that_requires_more_does_not_start() {
    if attack_program().is_none() {
        skip!("no C compiler");
    }
    let Some(here) = walls_stand() else { skip!("no walls stand on this kernel") };
    let newest = here["landlock_abi"].as_u64().unwrap();
    for abi in 1..=newest {
        let space = Space::new();
        let version = abi.to_string();
        let how = ["abi", version.as_str()];
        let report = report(&run(&space, &how, &["--without-namespaces", "doctor", "--json"]));
        assert_eq!(report["landlock_abi"], abi, "{report}");
        let is = |protection, word| assert_eq!(state(&report, protection), word, "ABI {abi}: {protection}");
        is("signals", if abi < 6 { "missing" } else { "enforced" });
        is("fs.truncate", if abi < 3 { "partly" } else { "enforced" });
        is("fs.special", if abi < 5 { "partly" } else { "enforced" });
        let by = |protection: &str| {
            let rows = report["protections"].as_array().unwrap();
            rows.iter().find(|row| row["protection"] == protection).unwrap()["by"].as_str().unwrap_or_default().contains("Landlock")
        };
        assert_eq!((by("net.tcp"), by("unix.path")), (abi >= 4, abi >= 9), "ABI {abi}: {report}");
        let canaries = report["canaries"].as_array().unwrap();
        let signalled = canaries.iter().any(|canary| canary["act"] == "signal another process" && canary["outcome"]["outcome"] == "done");
        assert_eq!(signalled, abi < 6, "ABI {abi}: the canary");

        let policy = space.path("strict.toml");
        std::fs::write(&policy, "name = \"strict\"\ndescription = \"\"\nextends = \"build\"\nrequire = [\"signals\"]\n").unwrap();
        let strict = ["--without-namespaces", "--policy", policy.to_str().unwrap()];
        let program = ["exec", "--", "touch", "started"];
        let call = ["tool", "sandbox_bash", r#"{"command":"touch started"}"#];
        let required = run(&space, &how, &[&strict[..], &program[..]].concat());
        let said = text(&required.stderr);
        if abi >= 6 {
            assert_eq!(required.status.code(), Some(0), "ABI {abi}: {said}");
            continue;
        }
        assert_eq!(required.status.code(), Some(125), "ABI {abi}: {said}");
        assert!(said.lines().count() == 1 && said.contains("requires signals") && said.contains("--allow-degraded signals"), "{said}");
        let required = run(&space, &how, &[&strict[..], &call[..]].concat());
        assert_eq!(required.status.code(), Some(3), "ABI {abi}: {}", text(&required.stdout));
        assert!(!space.ws().join("started").exists(), "ABI {abi}");
        assert!(state(&report, "kernel") == "enforced", "ABI {abi}");
        let given_up = run(&space, &how, &[&strict[..], &["--allow-degraded", "signals"], &program[..]].concat());
        assert_eq!(given_up.status.code(), Some(0), "ABI {abi}: {}", text(&given_up.stderr));
        check_walls("an older Landlock", &space, &how);
    }
}

/// Folders of sessions below a cgroup.
fn left_in_cgroups(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.file_type().unwrap().is_dir()) {
        if entry.file_name().to_string_lossy().starts_with("bailiwick-") {
            left.push(entry.path());
        }
        left.extend(left_in_cgroups(&entry.path()));
    }
    left
}

/// Where a cgroup is delegated, the kernel bounds memory and processes of each program: the envelope names the bound, nothing is left.
#[test]
fn a_cgroup_bounds_memory_and_processes() {
    let small = "name = \"small\"\ndescription = \"\"\nextends = \"build\"\n[limits]\nmemory = \"64MiB\"\nprocesses = 60\n";
    for rung in [&[][..], &["--without-namespaces"]] {
        let space = Space::new();
        let report = report(&space.run(rung.iter().chain(&["doctor", "--json"])));
        if report["surroundings"]["cgroup"] != true {
            skip!("no cgroup is delegated here");
        }
        let policy = space.path("small.toml");
        std::fs::write(&policy, small).unwrap();
        // Bounded by themselves, too: 150 MB, 100 processes.
        for (script, limit) in [
            ("x=$(head -c 150000000 /dev/zero | tr '\\0' x); echo ${#x}", "memory (64 MiB"),
            ("for i in $(seq 100); do sleep 300 & done; wait", "processes (60"),
            ("for i in $(seq 100); do setsid sleep 300 & done; sleep 300", "processes (60"),
        ] {
            let args = serde_json::json!({"command": script, "timeout_ms": 120_000}).to_string();
            let flags = rung.iter().copied().chain(["--policy", policy.to_str().unwrap(), "tool", "sandbox_bash", &args]);
            let output = space.run(flags);
            let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(envelope["data"]["code"], "limit_exceeded", "{rung:?} {script}: {envelope}");
            assert!(envelope["error"].as_str().unwrap().contains(limit), "{rung:?} {script}: {envelope}");
        }
        let output = space.run(rung.iter().copied().chain(["exec", "--", "bash", "-c", "exit 7"]));
        assert_eq!(output.status.code(), Some(7));
    }
    // Other tests have sessions at the same time, which are gone soon.
    let left = left_in_cgroups(std::path::Path::new("/sys/fs/cgroup"));
    let empty =
        |path: &&std::path::PathBuf| std::fs::read_to_string(path.join("cgroup.events")).is_ok_and(|events| events.contains("populated 0"));
    assert!(within(Duration::from_secs(20), || left.iter().filter(empty).count() == 0), "{left:?}");
}
