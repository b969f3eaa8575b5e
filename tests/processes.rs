//! The contract of commands as processes: when a call returns, what it says, and that nothing of it is left. Judged from outside:
//! marked command lines are looked for in the host's `/proc`.

use crate::space::{Called, Space};
use serde_json::{Value, json};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// With the namespaces that start here, and without any.
const RUNGS: [&[&str]; 2] = [&[], &["--without-namespaces"]];

/// How long after its limit a call may return, on a machine with other things to do.
const LATE: Duration = Duration::from_millis(2500);

/// A number of seconds to sleep that no other process sleeps.
pub(crate) fn mark() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("777.{}{:04}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Processes that have this word among their arguments.
pub(crate) fn alive(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if words.split(|byte| *byte == 0).any(|candidate| candidate == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits until the condition holds; says whether it came to that.
pub(crate) fn within(time: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + time;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn call(space: &Space, flags: &[&str], args: &Value) -> Called {
    let args = args.to_string();
    let output = space.command(flags.iter().copied().chain(["tool", "sandbox_bash", &args])).output().unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let envelope = serde_json::from_str(&line)
        .unwrap_or_else(|error| panic!("{args}: no envelope ({error}): {line:?}, {}", String::from_utf8_lossy(&output.stderr)));
    Called { envelope, line, code: output.status.code() }
}

/// What the answer to a row must be.
enum Is {
    /// A success with this exit code and this standard output.
    Done(i64, &'static str),
    /// A success in whose facts this stands.
    Says(&'static str),
    /// A failure with this code, and its error or its facts say this.
    Fault(&'static str, &'static str),
}

/// Cases, by their number in the lists: the script (`MARK` is a marked number of seconds), its time limit, the answer. Nothing marked may be
/// left when the call has returned.
const ROWS: &[(&str, &str, u64, Is)] = &[
    ("S82 a background child holds the pipe", "sleep MARK & echo done", 20_000, Is::Done(0, "done\n")),
    ("S82 in a session of its own", "setsid sleep MARK & echo done", 20_000, Is::Done(0, "done\n")),
    ("S82 a double fork", "(setsid bash -c 'sleep MARK & disown; exit' &) ; sleep 0.1; echo done", 20_000, Is::Done(0, "done\n")),
    ("S82 the survivor is named", "sleep MARK & sleep 0.2; echo done", 20_000, Is::Says("sleep 777.")),
    (
        "S83 a pipeline",
        "mkfifo p; (while :; do echo c; sleep 0.2; done) > p & sleep MARK & cat p",
        1000,
        Is::Fault("timed_out", "c\\nc\\n"),
    ),
    ("S84 SIGSEGV", "kill -SEGV $$", 20_000, Is::Fault("killed_by_signal", "SIGSEGV")),
    ("S84 SIGKILL", "kill -9 $$", 20_000, Is::Fault("killed_by_signal", "SIGKILL")),
    ("S84 a child's death", "sleep MARK & kill -SEGV $!; wait $!", 20_000, Is::Done(139, "")),
    ("S84 a signal that has no name", "kill -40 $$", 20_000, Is::Fault("killed_by_signal", "signal 40")),
    ("S84 a child's, by such a one", "sleep MARK & kill -40 $!; wait $!", 20_000, Is::Done(168, "")),
    (
        "S84 one that the C library keeps for itself",
        "bash -c 'kill -33 $$'; echo $?; grep SigIgn /proc/self/status",
        20_000,
        Is::Done(0, "161\nSigIgn:\t0000000000000000\n"),
    ),
    ("S91 a limit of the script's own", "ulimit -f 1; echo hi", 20_000, Is::Done(0, "hi\n")),
    (
        "S84 the death of children that have not begun",
        "for n in {1..300}; do sleep MARK & for ((i = 0; i < n % 100; i++)); do :; done; kill $!; wait $!; done 2>&-; echo $?",
        20_000,
        Is::Done(0, "143\n"),
    ),
    ("S86 a job and its tree", "setsid sleep MARK & sleep MARK & wait", 700, Is::Fault("timed_out", "777.")),
    (
        "S87 a plain & is ended and said",
        "setsid nohup sleep MARK >/dev/null 2>&1 & sleep 0.2",
        20_000,
        Is::Says("\"killed_children\":[\"sleep 777."),
    ),
    ("S88 cat", "cat", 20_000, Is::Done(0, "")),
    ("S88 read", "read a; echo \"$?[$a]\"", 20_000, Is::Done(0, "1[]\n")),
    ("S88 the terminal", "read a </dev/tty; echo $?", 20_000, Is::Done(0, "1\n")),
    ("S88 tty", "tty; [ -t 0 ] || [ -t 1 ] || echo none", 20_000, Is::Done(0, "not a tty\nnone\n")),
    ("S89 the end of a flood", "seq 1 200000; echo FATAL >&2; exit 3", 60_000, Is::Says("FATAL")),
    ("S89 its exit code", "seq 1 200000; exit 3", 60_000, Is::Says("\"exit_code\":3")),
    ("S89 one long line", "head -c 50000000 /dev/zero | tr '\\0' x; echo; echo end", 60_000, Is::Says("end\\n")),
    ("S89 not UTF-8", "printf 'a\\377b'", 20_000, Is::Done(0, "a\\xffb")),
    ("S89 NUL", "printf 'a\\0b'", 20_000, Is::Done(0, "a\\x00b")),
    ("T63 a pipe to cat", "bash -c 'sleep MARK; :' | cat", 700, Is::Fault("timed_out", "")),
    ("T65 a busy loop in a session of its own", "setsid bash -c 'while :; do :; done' MARK & sleep MARK", 700, Is::Fault("timed_out", "")),
    ("T65 SIGTERM ignored", "trap '' TERM HUP INT; setsid sleep MARK & while :; do sleep MARK; done", 700, Is::Fault("timed_out", "")),
    ("T65 stopped", "sleep MARK & kill -STOP $!; setsid bash -c 'kill -STOP $$; :' MARK & sleep MARK", 700, Is::Fault("timed_out", "")),
    ("T65 a double fork", "(setsid bash -c 'setsid sleep MARK & exit' &); sleep MARK", 700, Is::Fault("timed_out", "")),
    (
        "T65 it forks while it is ended",
        "f() { while :; do sleep MARK & setsid sleep MARK & sleep 0.01; done; }; f & f & sleep MARK",
        700,
        Is::Fault("timed_out", ""),
    ),
    ("T66 a noisy one", "(while :; do echo x; sleep MARK & sleep 0.02; done) & echo done", 20_000, Is::Says("done")),
    (
        "T70 an editor",
        "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty; echo $?",
        20_000,
        Is::Says("\"exit_code\":0"),
    ),
    ("T70 a prompt", "git clone https://nohost.invalid/x 2>&1 | tail -1; echo done", 20_000, Is::Says("done")),
    ("T72 the failure of a flood", "seq 100000; echo REAL-ERROR >&2; exit 3", 60_000, Is::Says("REAL-ERROR")),
    ("T74 a cut is said", "seq 5000", 20_000, Is::Says("\"total_lines\":5000")),
    ("T77 colours", "printf '\\033[31mred\\033[0m'", 20_000, Is::Done(0, "red")),
    ("T77 redraws", "for i in 1 2 3; do printf \"\\r$i%%\"; done; echo", 20_000, Is::Done(0, "3%\n")),
    ("T78 a here-document", "cat <<EOF\nhello\nEOF", 20_000, Is::Done(0, "hello\n")),
    ("T78 a backslash", "echo a \\", 20_000, Is::Done(0, "a\n")),
    ("T78 a comment", "echo a # b", 20_000, Is::Done(0, "a\n")),
    ("T78 a brace", "echo a\n}", 20_000, Is::Says("syntax error")),
    ("T81 grep finds nothing", "grep -q zzz /dev/null", 20_000, Is::Done(1, "")),
    ("T85 substitution", "echo $(echo `echo x`)", 20_000, Is::Done(0, "x\n")),
    ("T87 outside", "echo x > ../outside/x; echo $?", 20_000, Is::Done(0, "1\n")),
];

/// Runs every row on this rung; what is wrong, in words.
fn try_rows(flags: &[&str]) -> Vec<String> {
    let rows = std::sync::Mutex::new(ROWS.iter());
    let wrong = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = rows.lock().unwrap().next();
                    let Some((name, script, timeout_ms, is)) = next else { return };
                    let (space, mark) = (Space::new(), mark());
                    let began = Instant::now();
                    let called = call(&space, flags, &json!({"command": script.replace("MARK", &mark), "timeout_ms": timeout_ms}));
                    let took = began.elapsed();
                    let data = &called.envelope["data"];
                    let right = match is {
                        Is::Done(code, out) => called.envelope["success"] == true && data["exit_code"] == *code && data["stdout"] == *out,
                        Is::Says(word) => called.envelope["success"] == true && data.to_string().contains(word),
                        Is::Fault(code, word) => data["code"] == *code && called.line.contains(word),
                    };
                    let left = alive(&mark);
                    if !right || !left.is_empty() || took > Duration::from_millis(*timeout_ms) + LATE {
                        let mut line = called.line.clone();
                        line.truncate(1500);
                        wrong.lock().unwrap().push(format!("{name} {flags:?}: {took:?}, left {left:?}: {line}"));
                    }
                }
            });
        }
    });
    wrong.into_inner().unwrap()
}

#[test]
fn rows_with_namespaces() {
    let wrong = try_rows(RUNGS[0]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn rows_without_namespaces() {
    let wrong = try_rows(RUNGS[1]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The library that waits for children has no names for real-time signals.
#[test]
fn a_program_that_a_nameless_signal_ends_ends_exec() {
    for flags in RUNGS {
        let space = Space::new();
        let args = flags.iter().copied().chain(["exec", "--", "bash", "-c", "kill -40 $$"]);
        let mut runner = space.command(args).spawn().unwrap();
        let ended = within(Duration::from_secs(20), || runner.try_wait().unwrap().is_some());
        runner.kill().unwrap();
        assert!(ended, "{flags:?}: it waits for ever");
        assert_eq!(runner.wait().unwrap().code(), Some(128 + 40), "{flags:?}");
    }
}

#[test]
fn a_second_after_the_runner_is_killed_nothing_is_left() {
    for flags in RUNGS {
        for script in
            ["sleep MARK", "setsid sleep MARK & trap '' TERM; sleep MARK; sleep MARK", "setsid bash -c 'while :; do sleep MARK; done' MARK"]
        {
            let (space, mark) = (Space::new(), mark());
            let args = json!({ "command": script.replace("MARK", &mark) }).to_string();
            let mut runner =
                space.command(flags.iter().copied().chain(["tool", "sandbox_bash", &args])).stdout(Stdio::null()).spawn().unwrap();
            assert!(within(Duration::from_secs(20), || !alive(&mark).is_empty()), "{flags:?} {script}: it did not start");
            let session = children(i32::try_from(runner.id()).unwrap());
            assert!(!session.is_empty());
            runner.kill().unwrap();
            runner.wait().unwrap();
            assert!(within(Duration::from_secs(1), || alive(&mark).is_empty()), "{flags:?} {script}: left {:?}", alive(&mark));
            let gone = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "bailiwick");
            assert!(within(Duration::from_secs(1), || !session.iter().any(gone)), "{flags:?} {script}: the warden is left");
        }
    }
}

/// All processes below one.
fn children(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        let below = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in below.split_whitespace().filter_map(|child| child.parse().ok()) {
            found.push(child);
            open.push(child);
        }
    }
    found
}

#[test]
fn the_script_may_be_longer_than_the_kernel_takes_as_an_argument() {
    let space = Space::new();
    let args = json!({ "command": format!("echo {} | wc -c", "a".repeat(2_000_000)) }).to_string();
    let mut child = space.command(["tool", "sandbox_bash", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), args.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["data"]["stdout"], "2000001\n");
}

#[test]
fn standard_input_that_nobody_closes_is_not_waited_for() {
    let space = Space::new();
    let mut child =
        space.command(["tool", "sandbox_bash", r#"{"command":"cat"}"#]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let open = child.stdin.take();
    assert!(within(Duration::from_secs(20), || child.try_wait().unwrap().is_some()), "it waits");
    drop(open);
}

/// A policy with bounds that a test can meet.
const SMALL: &str = r#"
name = "small"
description = "as build, with small limits"
extends = "build"

[limits]
cpu = "2s"
memory = "200MiB"
processes = 150
file_size = "8MiB"
output = "1MiB"
disk = "48MiB"
"#;

/// Limits: the script, and what the envelope names.
const LIMITS: &[(&str, &str)] = &[
    ("x=$(head -c 500000000 /dev/zero | tr '\\0' x); sleep MARK", "memory (200 MiB"),
    ("for i in 1 2 3 4 5 6; do (x=$(head -c 60000000 /dev/zero | tr '\\0' x); sleep MARK) & done; wait", "memory (200 MiB"),
    ("for i in $(seq 250); do sleep MARK & done; wait", "processes (150"),
    ("for i in $(seq 250); do setsid sleep MARK & done; sleep MARK", "processes (150"),
    ("while :; do :; done", "processor time (2 s"),
    ("bash -c 'while :; do :; done'", "processor time (2 s"),
    ("trap '' XCPU; while :; do :; done", "processor time (2 s"),
    ("head -c 100000000 /dev/zero > f", "file size (8 MiB"),
    ("fallocate -l 100G f", "file size (8 MiB"),
    ("for i in $(seq 40); do head -c 4000000 /dev/zero > f$i; sleep 0.05; done; sleep MARK", "disk (48 MiB"),
    ("cd; for i in $(seq 40); do head -c 4000000 /dev/zero > f$i; sleep 0.05; done; sleep MARK", "disk (48 MiB"),
    ("yes", "output (16 MiB"),
];

#[test]
#[ignore = "fills memory, disk and the process table, so it minds what runs beside it: scripts/check runs it alone"]
fn a_limit_ends_in_an_envelope_that_names_it() {
    for flags in RUNGS {
        for (script, limit) in LIMITS {
            let (space, mark) = (Space::new(), mark());
            let policy = space.path("small.toml");
            std::fs::write(&policy, SMALL).unwrap();
            let flags: Vec<&str> = flags.iter().copied().chain(["--policy", policy.to_str().unwrap()]).collect();
            let began = Instant::now();
            let called = call(&space, &flags, &json!({"command": script.replace("MARK", &mark), "timeout_ms": 30_000}));
            assert_eq!(called.fault(), "limit_exceeded", "{flags:?} {script}: {}", called.line);
            assert!(called.envelope["error"].as_str().unwrap().contains(limit), "{flags:?} {script}: {}", called.line);
            assert!(began.elapsed() < Duration::from_secs(25), "{flags:?} {script}");
            assert_eq!(alive(&mark), [0; 0], "{flags:?} {script}");
        }
    }
}

#[test]
#[ignore = "fills memory, disk and the process table, so it minds what runs beside it: scripts/check runs it alone"]
fn a_fork_bomb_is_bounded_and_named() {
    for flags in RUNGS {
        let space = Space::new();
        // Doubles as fast as it can, but ends at 4,096 by itself: a test must not take the machine.
        let bomb = "f() { local d=$1; ((d > 0)) && { f $((d - 1)) & f $((d - 1)) & }; sleep 20; }; f 11; sleep 20";
        let args = json!({"command": bomb, "timeout_ms": 30_000}).to_string();
        let mut runner =
            space.command(flags.iter().copied().chain(["tool", "sandbox_bash", &args])).stdout(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        // Only what is below the runner: other tests start processes at the same time.
        let pid = i32::try_from(runner.id()).unwrap();
        let mut most = 0;
        while runner.try_wait().unwrap().is_none() {
            most = most.max(children(pid).len());
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = runner.wait_with_output().unwrap();
        let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(envelope["error"].as_str().unwrap().contains("processes (1,024"), "{flags:?}: {envelope}");
        println!("fork bomb {flags:?}: at most {most} processes, ended after {:?}", began.elapsed());
        assert!(most > 500 && most < 1600, "{flags:?}: {most} processes");
        assert!(began.elapsed() < Duration::from_secs(15), "{flags:?}: {:?}", began.elapsed());
    }
}

#[test]
fn a_flood_leaves_the_runner_small_and_is_said() {
    let space = Space::new();
    let args = json!({"command": "timeout 3 yes; echo $?", "timeout_ms": 30_000}).to_string();
    let mut runner = space.command(["tool", "sandbox_bash", &args]).stdout(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    while runner.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", runner.id())).unwrap_or_default();
        let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(10));
    }
    let envelope: Value = serde_json::from_slice(&runner.wait_with_output().unwrap().stdout).unwrap();
    let data = &envelope["data"];
    println!("flood: {} shown of {}, the runner took {most} KiB", data["truncation"]["shown_bytes"], data["truncation"]["total_bytes"]);
    assert!(data["truncation"]["total_bytes"].as_u64().unwrap() > 10_000_000, "{envelope}");
    assert!(most > 0 && most < 120_000, "{most} KiB");
}

#[test]
fn what_is_not_kept_is_said() {
    let space = Space::new();
    let policy = space.path("small.toml");
    std::fs::write(&policy, SMALL).unwrap();
    let called = call(&space, &["--policy", policy.to_str().unwrap()], &json!({"command": "seq 300000"}));
    assert!(called.data()["notices"].to_string().contains("only the first 1 MiB are kept; 940,319 bytes more"), "{}", called.line);
    assert_eq!(called.data()["truncation"]["total_lines"], 300_000);
}

/// Everything that a process holds in memory that can be written, as far as root may read it.
fn writable_memory(pid: i32) -> Vec<u8> {
    use std::io::{Read, Seek, SeekFrom};
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let Ok(mut memory) = std::fs::File::open(format!("/proc/{pid}/mem")) else { return Vec::new() };
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains("rw-p")) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let (from, to) = (u64::from_str_radix(from, 16).unwrap(), u64::from_str_radix(to, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        if memory.seek(SeekFrom::Start(from)).is_ok() && memory.read_exact(&mut bytes).is_ok() {
            all.extend_from_slice(&bytes);
        }
    }
    all
}

/// `exec` forks its warden: what the host's environment held must not come along, neither where the kernel shows it nor in memory.
#[test]
fn the_warden_of_a_program_holds_nothing_of_the_environment() {
    if !nix::unistd::geteuid().is_root() {
        println!("only root can look into another process's memory");
        return;
    }
    for flags in RUNGS {
        let (space, mark) = (Space::new().env("BW_SECRET_NAME", "canary-of-the-environment"), mark());
        let args = flags.iter().copied().chain(["exec", "--", "sleep", &mark]);
        let mut runner = space.command(args).stdout(Stdio::null()).stdin(Stdio::null()).spawn().unwrap();
        let host = i32::try_from(runner.id()).unwrap();
        let is_program = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sleep");
        let started = within(Duration::from_secs(20), || children(host).iter().any(is_program));
        let holds = |pid: i32| {
            let memory = writable_memory(pid);
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            [memory, environ].iter().any(|bytes| bytes.windows(25).any(|part| part == b"canary-of-the-environment"))
        };
        let below = children(host);
        let found: Vec<(i32, bool, bool)> = below.iter().map(|pid| (*pid, writable_memory(*pid).is_empty(), holds(*pid))).collect();
        let shows = holds(host);
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert!(started && shows, "{flags:?}: the host has it, else this shows nothing");
        assert!(found.len() >= 3 && found.iter().all(|(_, unread, holds)| !unread && !holds), "{flags:?}: {found:?}");
        assert!(within(Duration::from_secs(1), || alive(&mark).is_empty()), "{flags:?}");
    }
}
