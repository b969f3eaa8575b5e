//! Escapes, as rows. Each is first shown open without us, then shut with us: through `sandbox_bash` and through `exec`, with
//! namespaces where they start and with Landlock and seccomp alone. A row that does
//! not work unconfined on this machine is skipped, and says so; a run in which most are skipped fails.

use crate::skip;
use crate::space::{Space, bailiwick, is_root};
use crate::stage::{KEY, SECRET, Stage, attack_program};
use serde_json::json;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};

/// How it is judged whether an attack got through.
#[derive(Clone, Copy, PartialEq)]
enum Judge {
    /// The outside secret, or the key, is in what was printed.
    Told,
    /// The outside is not as it was.
    Touched,
    /// A listener heard something.
    Heard,
    /// The victim is ended or stopped.
    Hurt,
    /// The act itself says that it was done (a system call with no effect to look at).
    Done,
    /// The victim's limits or scheduling are not as they were.
    Bent,
}

use Judge::{Bent, Done, Heard, Hurt, Told, Touched};

/// Boundary, name, judge, script. `{OUT}` and the like are filled in; the current folder is the workspace and holds `attack`.
const ROWS: &[(&str, &str, Judge, &str)] = &[
    // Reading.
    ("home secrets", "a key under the real home", Told, "cat {KEY_FILE}"),
    ("home secrets", "by .. from the workspace", Told, "cat ../outside/secret"),
    ("home secrets", "absolute", Told, "cat {OUT}/secret"),
    ("home secrets", "through a link made inside", Told, "ln -s {OUT} l && cat l/secret"),
    ("home secrets", "through a link planted before", Told, "cat planted/secret"),
    ("home secrets", "through /proc/self/root", Told, "cat /proc/self/root{OUT}/secret"),
    ("home secrets", "through /proc/PID/root of the victim", Told, "cat /proc/{VICTIM}/root{OUT}/secret"),
    ("home secrets", "through /proc/PID/cwd of the victim", Told, "cat /proc/{VICTIM}/cwd/../../../../../../../..{OUT}/secret"),
    ("home secrets", "by a copy", Told, "cp {OUT}/secret s && cat s"),
    ("home secrets", "by a hard link made inside", Told, "ln {OUT}/secret h && cat h"),
    ("home secrets", "by moving it in", Touched, "mv {OUT}/secret s"),
    ("home secrets", "by listing the folder", Told, "ls {OUT} | grep -q secret && echo the outside secret"),
    ("home secrets", "by tar", Told, "tar cf - {OUT} 2>/dev/null | tar xOf - 2>/dev/null"),
    ("home secrets", "by a shell redirect", Told, "read -r x < {OUT}/secret && echo $x"),
    ("system secrets", "/etc/shadow", Done, "head -c1 /etc/shadow | grep -q ."),
    // The host's process and its key.
    ("API key", "env", Told, "env"),
    ("API key", "every environ", Told, "cat /proc/[0-9]*/environ | tr '\\0' '\\n'"),
    ("API key", "the parent's environ", Told, "cat /proc/$PPID/environ; p=$(cut -d' ' -f4 /proc/$PPID/stat); cat /proc/$p/environ"),
    ("API key", "every task's environ", Told, "cat /proc/[0-9]*/task/*/environ | tr '\\0' '\\n'"),
    ("host process", "the victim's environ", Told, "cat /proc/{VICTIM}/environ"),
    ("host process", "the victim's maps", Done, "grep -q stack /proc/{VICTIM}/maps"),
    (
        "host process",
        "the victim's memory",
        Done,
        "dd if=/proc/{VICTIM}/mem bs=1 count=1 skip=$((0x{STACK})) 2>/dev/null | wc -c | grep -q 1",
    ),
    ("host process", "where the victim's descriptors lead", Done, "readlink /proc/{VICTIM}/fd/0"),
    ("host process", "the victim's descriptors, opened", Done, "cat /proc/{VICTIM}/fd/0"),
    ("host process", "the victim's syscall", Done, "cat /proc/{VICTIM}/stack /proc/{VICTIM}/syscall | grep -q ."),
    ("host process", "ptrace attach", Done, "./attack ptrace {VICTIM}"),
    ("host process", "ptrace seize", Done, "./attack seize {VICTIM}"),
    ("host process", "process_vm_readv", Done, "./attack vm-read {VICTIM} {STACK}"),
    ("host process", "kill", Hurt, "kill -9 {VICTIM}"),
    ("host process", "SIGSTOP", Hurt, "kill -STOP {VICTIM}; sleep 0.1"),
    ("host process", "tgkill", Hurt, "./attack tgkill {VICTIM} 9; sleep 0.1"),
    ("host process", "sigqueue", Hurt, "./attack sigqueue {VICTIM} 9; sleep 0.1"),
    ("host process", "a signal by pidfd", Hurt, "./attack pidfd-kill {VICTIM} 9; sleep 0.1"),
    ("host process", "a descriptor by pidfd", Done, "./attack pidfd-getfd {VICTIM}"),
    ("host process", "prlimit", Bent, "./attack prlimit {VICTIM}"),
    ("host process", "setpriority", Bent, "./attack setpriority {VICTIM}"),
    ("host process", "affinity", Bent, "./attack affinity {VICTIM}"),
    // Writing.
    ("outside write", "absolute", Touched, "echo x > {OUT}/new"),
    ("outside write", "append", Touched, "echo x >> {OUT}/secret"),
    ("outside write", "by ..", Touched, "echo x > ../outside/new"),
    ("outside write", "through a link", Touched, "ln -s {OUT}/secret l && echo x > l"),
    ("outside write", "through a dangling link", Touched, "ln -s {OUT}/new l && echo x > l"),
    ("outside write", "through a linked parent", Touched, "echo x > planted/new"),
    ("outside write", "through a hard link made inside", Touched, "ln {OUT}/secret h && echo x > h"),
    ("outside write", "rename over", Touched, "echo x > n && mv n {OUT}/secret"),
    ("outside write", "rename out", Touched, "echo x > n && mv n {OUT}/new"),
    ("outside write", "exchange", Touched, "echo x > n && ./attack exchange n {OUT}/secret"),
    ("outside write", "link out", Touched, "echo x > n && ln n {OUT}/new"),
    ("outside write", "link out by linkat", Touched, "echo x > n && ./attack link n {OUT}/new"),
    ("outside write", "a descriptor that asks for no right", Done, "./attack open-for-nothing {OUT}/secret"),
    ("outside write", "truncate", Touched, "./attack truncate {OUT}/secret"),
    ("outside write", "truncate by a read-only open", Touched, "./attack trunc-read {OUT}/secret"),
    ("outside write", "creat", Touched, "./attack creat {OUT}/new"),
    ("outside write", "O_TMPFILE there", Touched, "./attack tmpfile {OUT} {OUT}/new"),
    ("outside write", "O_TMPFILE here, linked there", Touched, "./attack tmpfile-here {OUT}/new"),
    ("outside write", "remove", Touched, "rm {OUT}/secret"),
    ("outside write", "make a folder", Touched, "mkdir {OUT}/new"),
    ("outside write", "make a link", Touched, "ln -s x {OUT}/new"),
    ("outside write", "make a FIFO", Touched, "./attack mknod {OUT}/new"),
    ("outside write", "through /proc/self/root", Touched, "echo x > /proc/self/root{OUT}/new"),
    ("outside write", "through /proc/PID/root", Touched, "echo x > /proc/{VICTIM}/root{OUT}/new"),
    ("outside write", "sed in place", Touched, "sed -i s/outside/inside/ {OUT}/secret"),
    ("outside write", "dd", Touched, "dd if=/dev/zero of={OUT}/secret bs=1 count=1 conv=notrunc 2>/dev/null"),
    // Sockets and network.
    ("sockets", "abstract", Heard, "./attack abstract {ABSTRACT}"),
    ("sockets", "abstract datagram", Heard, "./attack abstract-datagram {ABSTRACT}-d"),
    ("sockets", "a stand-in docker.sock", Heard, "./attack unix {OUT}/docker.sock"),
    ("network", "TCP", Heard, "./attack tcp {TCP} 4"),
    ("network", "TCP, v6", Heard, "./attack tcp {TCP6} 6"),
    ("network", "TCP by bash", Heard, "exec 5<>/dev/tcp/127.0.0.1/{TCP}"),
    ("network", "MPTCP", Heard, "./attack mptcp {TCP} 4"),
    ("network", "TCP fast open", Heard, "./attack fastopen {TCP} 4"),
    ("network", "UDP", Heard, "./attack udp {UDP} 4"),
    ("network", "UDP by sendto", Heard, "./attack udp-sendto {UDP} 4"),
    ("network", "UDP by sendmsg", Heard, "./attack udp-sendmsg {UDP} 4"),
    ("network", "UDP by bash", Heard, "echo x > /dev/udp/127.0.0.1/{UDP}"),
    ("network", "a raw socket", Done, "./attack raw"),
    ("network", "a ping socket", Done, "./attack ping"),
    ("network", "a packet socket", Done, "./attack packet"),
    ("network", "netlink netfilter", Done, "./attack netlink-netfilter"),
    ("network", "vsock", Done, "./attack vsock"),
    ("network", "alg", Done, "./attack alg"),
    // The kernel.
    ("kernel", "a user namespace", Done, "./attack userns"),
    ("kernel", "a user namespace by clone", Done, "./attack clone-userns"),
    ("kernel", "a user namespace by clone3", Done, "./attack clone3-userns"),
    ("kernel", "a user namespace by the program", Done, "unshare -U true"),
    ("kernel", "a mount namespace", Done, "./attack mountns"),
    ("kernel", "io_uring", Done, "./attack io-uring"),
    ("kernel", "bpf", Done, "./attack bpf"),
    ("kernel", "perf", Done, "./attack perf"),
    ("kernel", "userfaultfd", Done, "./attack userfaultfd"),
    ("kernel", "mount", Done, "mkdir -p m && ./attack mount m && umount m"),
    ("kernel", "bind", Done, "mkdir -p m && ./attack bind {OUT} m && umount m"),
    ("kernel", "open_tree", Done, "./attack open-tree"),
    ("kernel", "fsopen", Done, "./attack fsopen"),
    ("kernel", "chroot", Done, "./attack chroot ."),
    ("kernel", "keyctl", Done, "./attack keyctl"),
    ("kernel", "add_key", Done, "./attack add-key"),
    ("kernel", "System V memory", Done, "./attack shmget && ipcrm -M 0x6277"),
    ("kernel", "System V messages", Done, "./attack msgget && ipcrm -Q 0x6277"),
    ("kernel", "System V semaphores", Done, "./attack semget && ipcrm -S 0x6277"),
    ("kernel", "open by handle", Done, "./attack handle {OUT}/secret"),
    ("kernel", "32-bit entry", Done, "./attack int80"),
    ("kernel", "x32 numbers", Done, "./attack x32"),
    ("outside metadata", "an attribute by path", Done, "./attack setxattr {OUT}/secret"),
    ("outside metadata", "an attribute by a descriptor that is not open", Done, "./attack fsetxattr {OUT}/secret"),
    ("outside metadata", "a lease, for which others wait", Done, "./attack lease /etc/hostname"),
    ("host process", "its input and output priority", Done, "./attack call 251 1 {VICTIM} 16391"),
    ("host process", "its namespaces", Done, "./attack setns {VICTIM}"),
    ("host process", "whether it shares what another has", Done, "./attack call 312 {VICTIM} {VICTIM} 0 0 0"),
    ("host process", "where its pages are", Done, "./attack call 279 {VICTIM} 0 0 0 0 0"),
    ("host process", "its pages moved to other memory", Done, "./attack call 256 {VICTIM} 0 0 0"),
    ("kernel", "fanotify", Done, "./attack call 300 0x200 0"),
    ("kernel", "the log", Done, "./attack call 103 10 0 0"),
    ("kernel", "secret memory", Done, "./attack call 447 0"),
    ("kernel", "ports", Done, "./attack call 172 0"),
    ("kernel", "a message queue", Done, "./attack mq && rm -f /dev/mqueue/bailiwick-test"),
    ("kernel", "a device node", Done, "./attack mknod-device d 2048 && rm d"),
];

/// Rows that get through where the report says that their protection is missing here: on kernels without scopes, where no process namespace
/// starts. Nothing else may, anywhere.
const OPEN_WHERE_SAID: &[(&str, &str)] =
    &[("kill", "signals"), ("SIGSTOP", "signals"), ("tgkill", "signals"), ("sigqueue", "signals"), ("a signal by pidfd", "signals")];

/// With the namespaces that start here, and without any; by `sandbox_bash` and by `exec`.
const MODES: [&str; 4] = ["tool", "exec", "tool alone", "exec alone"];

/// The protections of which the report says that they are missing, on the rung of a mode.
fn missing(mode: &str) -> Vec<String> {
    let space = Space::new();
    let flags: &[&str] = if mode.ends_with("alone") { &["--without-namespaces"] } else { &[] };
    let output = space.run(flags.iter().chain(&["doctor", "--json"]));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = findings["report"]["protections"].as_array().unwrap_or_else(|| panic!("no walls stand here: {findings}"));
    let missing = rows.iter().filter(|row| row["state"] == "missing");
    missing.map(|row| row["protection"].as_str().unwrap().to_owned()).collect()
}

/// Rows that must work unconfined on any Linux with a C compiler, so that the table cannot become a table of skips.
const AT_LEAST_OPEN: usize = 66;

struct Verdict {
    open: Option<String>,
    leaks: Vec<String>,
}

fn judge(judge: Judge, stage: &mut Stage, output: &[u8], code: Option<i32>, before: &str) -> bool {
    let text = String::from_utf8_lossy(output);
    match judge {
        Told => text.contains(SECRET) || text.contains(KEY),
        Touched => stage.outside_touched(),
        Heard => stage.knocked(),
        Hurt => stage.victim_hurt(),
        Done => code == Some(0),
        Bent => standing(stage) != before,
    }
}

/// Limits and scheduling of the victim.
fn standing(stage: &Stage) -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", stage.victim.id())).unwrap_or_default();
    let nice = read("stat").rsplit(") ").next().unwrap_or_default().split(' ').nth(16).unwrap_or_default().to_owned();
    let affinity = read("status").lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap_or_default().to_owned();
    format!("{} {nice} {affinity}", read("limits"))
}

fn stage() -> Stage {
    let stage = Stage::new();
    symlink(stage.space.outside(), stage.space.ws().join("planted")).unwrap();
    std::fs::create_dir(stage.space.path("home/.ssh")).unwrap();
    std::fs::write(stage.space.path("home/.ssh/id_test"), format!("{SECRET}\n")).unwrap();
    stage
}

fn try_row(how: Judge, script: &str, modes: &[&str]) -> Verdict {
    let run = |mode: &str| {
        let mut stage = stage();
        let script = stage.fill(script);
        let before = standing(&stage);
        let mut command = match mode {
            "bare" => {
                let mut command = Command::new("bash");
                command.args(["-c", &script]).current_dir(stage.space.ws()).stdin(Stdio::null()).env("OPENAI_API_KEY", KEY);
                command
            }
            "exec" => stage.space.command(["exec", "--", "bash", "-c", &script]),
            "exec alone" => stage.space.command(["--without-namespaces", "exec", "--", "bash", "-c", &script]),
            "tool" => stage.space.command(["tool", "sandbox_bash", &json!({ "command": script }).to_string()]),
            _ => stage.space.command(["--without-namespaces", "tool", "sandbox_bash", &json!({ "command": script }).to_string()]),
        };
        let output = command.output().unwrap();
        let mut said = output.stdout.clone();
        let mut code = output.status.code();
        if mode.starts_with("tool") {
            let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            code = envelope["data"]["exit_code"].as_i64().map(|code| i32::try_from(code).unwrap());
            assert!(code.is_some() || envelope["success"] == false, "{envelope}");
            said = envelope["data"].to_string().into_bytes();
            // The script itself may be quoted in the answer; it never holds the secret.
        } else if mode.starts_with("exec") {
            assert_ne!(code, Some(125), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        }
        let through = judge(how, &mut stage, &said, code, &before);
        (through, format!("{mode}: {code:?} {} {}", String::from_utf8_lossy(&said), String::from_utf8_lossy(&output.stderr)))
    };
    let (open, said) = run("bare");
    if !open {
        return Verdict { open: Some(said), leaks: Vec::new() };
    }
    let leaks = modes.iter().filter_map(|mode| Some(run(mode)).filter(|(through, _)| *through).map(|(_, said)| said)).collect();
    Verdict { open: None, leaks }
}

#[test]
fn every_row_is_open_without_us_and_shut_with_us() {
    if attack_program().is_none() {
        skip!("no C compiler");
    }
    let mut leaks = Vec::new();
    let mut open = 0;
    let said: Vec<(&str, Vec<String>)> = MODES.into_iter().map(|mode| (mode, missing(mode))).collect();
    // Where the report itself says that a row gets through, the row is not tried: what it does to the victim is no news.
    let modes = |name: &str| -> Vec<&str> {
        let protection = OPEN_WHERE_SAID.iter().find(|(row, _)| *row == name).map(|(_, protection)| *protection);
        let admitted = |missing: &[String]| protection.is_some_and(|protection| missing.iter().any(|said| said == protection));
        said.iter().filter(|(_, missing)| !admitted(missing)).map(|(mode, _)| *mode).collect()
    };
    let rows = std::sync::Mutex::new(ROWS.iter());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut found = Vec::new();
                    loop {
                        let next = rows.lock().unwrap().next();
                        let Some((boundary, name, how, script)) = next else { return found };
                        found.push((boundary, name, try_row(*how, script, &modes(name))));
                    }
                })
            })
            .collect();
        for worker in workers {
            for (boundary, name, verdict) in worker.join().unwrap() {
                match verdict.open {
                    Some(said) => {
                        println!("SKIP {boundary}: {name}: not open without us here ({})", said.lines().next().unwrap_or_default())
                    }
                    None => open += 1,
                }
                leaks.extend(verdict.leaks.into_iter().map(|leak| format!("{boundary}: {name}: {leak}")));
            }
        }
    });
    println!("{open} of {} rows are open without us", ROWS.len());
    assert!(leaks.is_empty(), "got through:\n{}", leaks.join("\n"));
    assert!(open >= AT_LEAST_OPEN, "only {open} rows are open without us: nothing was shown");
}

#[test]
fn inherited_descriptors_are_not_there() {
    let space = Space::new();
    std::fs::copy(attack_program().unwrap(), space.ws().join("attack")).unwrap();
    let run = |program: &str| {
        let script = format!("exec 3<{0}/secret 4<{0}; exec {program}", space.outside().display());
        let mut command = Command::new("bash");
        command.args(["-c", &script]).current_dir(space.ws()).stdin(Stdio::null());
        let output = command.output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let inner = "bash -c './attack fd-read 3; ./attack fd-openat 4; ls -l /proc/self/fd'";
    let bare = run(inner);
    assert!(bare.contains("read: done") && bare.contains("openat: done"), "{bare}");
    // The folder of this clone may have a blank in its name.
    let exe = format!("'{}'", bailiwick().display());
    let confined = run(&format!("{exe} exec -- {inner}"));
    assert!(!confined.contains("done"), "{confined}");
    let tool = run(&format!("{exe} tool sandbox_bash '{{\"command\":\"./attack fd-read 3; ./attack fd-openat 4\"}}'"));
    assert!(tool.contains("\"success\":true") && !tool.contains("done"), "{tool}");
}

#[test]
fn file_tools_do_not_write_through_a_hard_link_planted_before() {
    let space = Space::new();
    std::fs::hard_link(space.outside().join("secret"), space.ws().join("h")).unwrap();
    for (tool, args) in [
        ("write", json!({"path": "h", "content": "x"})),
        ("edit", json!({"path": "h", "old_string": "outside", "new_string": "inside"})),
        ("write", json!({"path": "h", "content": "x", "mode": "append"})),
    ] {
        let called = space.tool(tool, args);
        assert_eq!(called.fault(), "hard_linked", "{}", called.line);
        assert_eq!(std::fs::read_to_string(space.outside().join("secret")).unwrap(), format!("{SECRET}\n"));
    }
    assert_eq!(std::fs::metadata(space.ws().join("h")).unwrap().nlink(), 2);
}

#[test]
fn a_jail_has_no_capability_and_no_way_to_one() {
    let space = Space::new();
    let called = space.bash("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
    let said = called.data()["stdout"].as_str().unwrap().to_owned();
    for line in [
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "CapAmb:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    if is_root() {
        // As root the command must not be the host's root for files that only root may read.
        let called = space.bash("cat /etc/shadow /proc/1/environ");
        assert!(!called.data()["stdout"].as_str().unwrap().contains("root:"), "{}", called.line);
    }
}
