//! Whole runs of the real binary: how they end, what they leave, how they go on.

mod afterwards;
mod deadlines;
mod patches;
mod shown;
mod signals;
mod starting;
mod waiting;

use crate::space::{Space, has, is_root};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A workspace that is a repository with one commit, a script and a place for what a run leaves.
pub(crate) struct Place {
    pub(crate) space: Space,
}

impl Place {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let mut space = Space::new();
        for (path, content) in files {
            space = space.file(path, content);
        }
        let place = Self { space };
        place.git(&["init", "-q", "-b", "main"]);
        place.git(&["add", "-A"]);
        place.git(&["commit", "-q", "--allow-empty", "-m", "start"]);
        place
    }

    pub(crate) fn git(&self, args: &[&str]) -> Vec<u8> {
        git(&self.space.ws(), args)
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.space.path("out")
    }

    pub(crate) fn script(&self, lines: &[Value]) -> String {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.space.path("script.jsonl"), text).unwrap();
        format!("script:{}", self.space.path("script.jsonl").display())
    }

    /// `run` with a script, ready to be started.
    pub(crate) fn command(&self, lines: &[Value], more: &[&str]) -> Command {
        let model = self.script(lines);
        let mut args = vec!["run", "-m", &model, "--quiet"];
        args.extend(more);
        if !more.contains(&"--resume") {
            args.push("Make it two.");
        }
        let out = self.out().display().to_string();
        if !more.contains(&"--resume") {
            args.extend(["--out", &out]);
        }
        self.space.command(args)
    }

    pub(crate) fn run(&self, lines: &[Value], more: &[&str]) -> Output {
        self.command(lines, more).output().unwrap()
    }

    pub(crate) fn result(&self) -> Value {
        let text = fs::read(self.out().join("result.json")).expect("every way out leaves a result");
        serde_json::from_slice(&text).unwrap()
    }

    pub(crate) fn patch(&self) -> Vec<u8> {
        fs::read(self.out().join("changes.patch")).unwrap()
    }

    pub(crate) fn transcript(&self) -> PathBuf {
        self.out().join("transcript.jsonl")
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.transcript()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

pub(crate) fn git(at: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .current_dir(at)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "-c", "safe.directory=*"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub(crate) fn calls(list: &[(&str, Value)]) -> Value {
    json!({"calls": list.iter().map(|(name, args)| json!({"name": name, "arguments": args})).collect::<Vec<_>>()})
}

pub(crate) fn bash(command: &str) -> (&'static str, Value) {
    ("sandbox_bash", json!({ "command": command }))
}

fn says(text: &str) -> Value {
    json!({ "text": text })
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The code with which a process ended, as a shell has it.
fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap())
}

/// Processes that bear a word in their command line, and have not ended.
fn left(word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(word) {
            found.push(line);
        }
    }
    found
}

/// Waits until something holds, boundedly.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < end, "it never came to pass: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What holds of what a run left, whatever its end: a transcript that is whole and tells the same as the result.
#[track_caller]
fn check(place: &Place, exit: i32) -> Value {
    let (result, events) = (place.result(), place.events());
    assert_eq!(result["exit_code"], exit, "{result}");
    assert_eq!(result["status"] == "success", exit == 0);
    for (index, event) in events.iter().enumerate() {
        assert_eq!((&event["v"], &event["seq"]), (&json!(1), &json!(index)), "{event}");
    }
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["result"]), (&json!("run_ended"), &result));
    let ids = |kind: &str, key: &str| -> Vec<Value> {
        let of = events.iter().filter(|event| event["type"] == kind);
        of.map(|event| event[key].clone()).collect()
    };
    let asked: Vec<Value> =
        ids("replied", "calls").iter().flat_map(|calls| calls.as_array().unwrap().clone()).map(|call| call["id"].clone()).collect();
    let mut answered = ids("call_ended", "id");
    answered.sort_by_key(Value::to_string);
    let mut sorted = asked.clone();
    sorted.sort_by_key(Value::to_string);
    assert_eq!(sorted, answered, "each call has one answer");
    // Nothing of ours lies about.
    let names = fs::read_dir(place.space.path(".")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.filter(|name| name.starts_with("bailiwick-")).count() == 0);
    result
}

/// Every path beneath a folder, `.git` aside, with what a patch can say of it.
fn tree(at: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![at.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if path.file_name().unwrap() == ".git" {
            } else if meta.is_dir() {
                folders.push(path);
            } else if meta.is_symlink() {
                let text = fs::read_link(&path).unwrap().into_os_string().into_vec();
                found.insert(path.strip_prefix(at).unwrap().to_path_buf(), ("link".into(), text));
            } else if meta.is_file() {
                let content = (format!("{}", meta.permissions().mode() & 0o100 != 0), fs::read(&path).unwrap());
                found.insert(path.strip_prefix(at).unwrap().to_path_buf(), content);
            }
        }
    }
    found
}

/// Applies a patch to a clean clone of the first commit; the trees are the same then.
#[track_caller]
fn applies(place: &Place, ignored: &[&str]) {
    let clone = place.space.path("clone");
    let _ = fs::remove_dir_all(&clone);
    let first = String::from_utf8(place.git(&["rev-list", "--max-parents=0", "main"])).unwrap();
    git(&place.space.path("."), &["clone", "-q", "--no-checkout", &place.space.ws().display().to_string(), &clone.display().to_string()]);
    git(&clone, &["-c", "advice.detachedHead=false", "checkout", "-q", first.trim()]);
    let patch = place.out().join("changes.patch");
    if !place.patch().is_empty() {
        git(&clone, &["apply", "--check", &patch.display().to_string()]);
        git(&clone, &["apply", "--whitespace=nowarn", &patch.display().to_string()]);
    }
    let mut there = tree(&place.space.ws());
    there.retain(|path, _| !ignored.iter().any(|name| path.starts_with(name)));
    assert_eq!(tree(&clone), there);
}

#[test]
fn every_end_has_its_code_and_leaves_transcript_result_and_patch() {
    let change = || calls(&[("write", json!({"path": "a", "content": "two\n"}))]);
    let usage = |mut line: Value| {
        line["usage"] = json!({"input": 900_000, "output": 100_000});
        line
    };
    let look = |n: usize| calls(&[("read", json!({"path": format!("none-{n}")}))]);
    let same = || calls(&[("read", json!({"path": "a"}))]);
    let pair = [same(), calls(&[bash("true")])];
    /// A name, the script, further flags, the exit code and the reason.
    type Row = (&'static str, Vec<Value>, Vec<&'static str>, i32, &'static str);
    let rows: Vec<Row> = vec![
        ("done", vec![change(), says("Done.")], vec![], 0, "done"),
        ("gave up", vec![change(), says("GAVE UP: no")], vec![], 1, "gave_up"),
        ("turns", vec![change(), says("So far.")], vec!["--max-turns", "2"], 4, "turns_spent"),
        ("tokens", vec![usage(change()), says("x")], vec!["--max-tokens", "1000000"], 4, "tokens_spent"),
        ("money", vec![usage(change()), says("x")], vec!["--price", "1,1", "--max-cost", "0.99"], 4, "cost_spent"),
        ("errors", [vec![change()], (0..9).map(look).collect()].concat(), vec!["--max-tool-errors", "3"], 4, "too_many_tool_errors"),
        ("time", vec![change(), calls(&[bash("sleep 50")])], vec!["--time-limit", "8"], 5, "wall_clock"),
        ("provider", vec![change(), json!({"fail": "server"})], vec![], 6, "provider_error"),
        ("circle", [vec![change()], vec![same(); 9]].concat(), vec![], 7, "doom_loop"),
        ("a-b-a-b", [vec![change()], pair.iter().cycle().take(12).cloned().collect()].concat(), vec![], 7, "doom_loop"),
        ("verification", [vec![change()], vec![says("Done."); 3]].concat(), vec!["--verify", "exit 7"], 9, "verification_failed"),
    ];
    for (name, lines, more, exit, reason) in rows {
        let place = Place::new(&[("a", "one\n")]);
        let output = place.run(&lines, &more);
        assert_eq!(code(output.status), exit, "{name}: {}", stderr(&output));
        let result = check(&place, exit);
        assert_eq!((&result["stop_reason"], &result["changed_files"][0]["path"]), (&json!(reason), &json!("a")), "{name}: {result}");
        applies(&place, &[]);
        assert!(result["enforcement"].is_object());
    }
}

#[test]
fn what_is_said_to_the_model_at_four_fifths_and_at_three_times() {
    let place = Place::new(&[("a", "one\n")]);
    let read = || calls(&[("read", json!({"path": "a"}))]);
    let with = |mut line: Value, expect: &str| {
        line["expect_contains"] = json!([expect]);
        line
    };
    let lines = [
        read(),
        read(),
        read(),
        with(calls(&[("ls", json!({"path": "."}))]), "3 times in a row"),
        with(says("What was done: nothing."), "tools are off"),
    ];
    let output = place.run(&lines, &["--max-turns", "5"]);
    assert_eq!(code(output.status), 4, "{}", stderr(&output));
    let told = place.events().iter().filter(|event| event["type"] == "user").map(|event| event["text"].to_string()).collect::<String>();
    assert!(told.contains("Four fifths of the budget for turns are used (4 of 5)"), "{told}");
    assert_eq!(check(&place, 4)["answer"], "What was done: nothing.");
}

#[test]
fn malformed_and_cut_off_calls_never_run_and_are_answered() {
    let place = Place::new(&[("a", "one\n")]);
    let lines = [
        json!({"calls": [{"name": "write", "arguments": "{\"path\": \"a\", \"content\": oops}"}]}),
        json!({"stop": "length", "calls": [{"name": "read", "arguments": {"path": "a"}}, {"name": "write", "arguments": {"path": "a", "content": "tw"}}], "expect_contains": ["column"]}),
        json!({"text": "Done.", "expect_contains": ["cut off"]}),
    ];
    let output = place.run(&lines, &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let result = check(&place, 0);
    assert_eq!((place.patch(), result["failed_calls"].as_array().unwrap().len()), (Vec::new(), 2));
}

#[test]
fn looks_run_together_and_what_changes_keeps_its_order() {
    let place = Place::new(&[("a", "0\n")]);
    let add = |n: u32| bash(&format!("echo {n} >> a"));
    let mut list = vec![("read", json!({"path": "a"})), ("grep", json!({"pattern": "0"})), ("ls", json!({"path": "."}))];
    for n in 1..6 {
        list.extend([add(n), ("read", json!({"path": "a"}))]);
    }
    let output = place.run(&[calls(&list), says("Done.")], &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    check(&place, 0);
    let events = place.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    let first = kinds.iter().position(|kind| *kind == "call_started").unwrap();
    assert_eq!(kinds[first..first + 6], ["call_started", "call_started", "call_started", "call_ended", "call_ended", "call_ended"]);
    let reads: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "call_ended" && event["tool"] == "read")
        .filter_map(|e| e["envelope"]["data"]["text"].as_str())
        .collect();
    assert_eq!(reads.last().unwrap().replace('\n', ""), "012345");
    assert!(reads.windows(2).all(|pair| pair[0].len() < pair[1].len() && pair[1].starts_with(pair[0])), "{reads:?}");
}

/// Runs a program for which `landlock_create_ruleset` (444) does not exist.
pub(crate) const WITHOUT_LANDLOCK: &str = r"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 95), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack('HP', len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
";

#[test]
fn what_cannot_start_leaves_a_result_and_its_own_code() {
    let place = Place::new(&[("a", "one\n")]);
    let output = place.run(&[says("Done.")], &["--deny", "no_such_tool"]);
    assert_eq!(code(output.status), 2, "{}", stderr(&output));
    assert_eq!(place.result()["message"].as_str().unwrap().split(':').next(), Some("invalid_policy"));
    assert_eq!(place.events().last().unwrap()["result"], place.result());

    // A kernel without Landlock, as this process sees it: the call is answered with EOPNOTSUPP.
    if has("python3") {
        fs::remove_dir_all(place.out()).unwrap();
        let command = place.command(&[says("Done.")], &[]);
        let mut blind = Command::new("python3");
        blind.arg("-c").arg(WITHOUT_LANDLOCK).arg(command.get_program()).args(command.get_args()).current_dir(place.space.ws());
        blind.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = blind.output().unwrap();
        assert_eq!(code(output.status), 3, "{}", stderr(&output));
        assert_eq!((&place.result()["exit_code"], &place.result()["turns"]), (&json!(3), &json!(0)));
        assert_eq!(place.events().last().unwrap()["result"], place.result());
    }
    let place = Place::new(&[("a", "one\n")]);
    let inside = place.space.ws().join("out").display().to_string();
    let model = place.script(&[says("x")]);
    assert_eq!(code(place.space.run(["run", "x", "-m", &model, "--out", &inside]).status), 2);
    assert_eq!(code(place.space.run(["run", "x", "-m", "nothing:x"]).status), 2);
    assert_eq!(code(place.space.run(["run", "-m", &model]).status), 2);
    let unknown = ["run", "x", "-m", "openai:of-unknown-price", "--base-url", "http://127.0.0.1:9/v1", "--max-cost", "1"];
    assert_eq!(code(place.space.run(unknown).status), 2);
    assert_eq!(code(place.space.run(["run", "--resume", &inside]).status), 2, "there is nothing to resume");
}
