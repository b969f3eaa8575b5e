//! What a person names may be a pipe: it is read, and while nothing comes a signal and the end of the time are heard. What a tree holds in the
//! place of a file of its own is never waited for.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, mkfifo};

fn pipe(at: &Path) {
    mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// A FIFO to which nobody writes, in the place of each file that a person can name.
#[test]
fn a_signal_and_the_end_of_the_time_are_heard_while_a_pipe_is_waited_for() {
    let place = Place::new(&[("a", "one\n")]);
    let fifo = place.space.path("pipe").display().to_string();
    pipe(Path::new(&fifo));
    let script = place.script(&[says("Done.")]);
    let (piped, out) = (format!("script:{fifo}"), place.out().display().to_string());
    let with = |more: &[&str]| {
        let model: &[&str] = if more.contains(&"-m") { &[] } else { &["-m", &script] };
        let task = if more.contains(&"-") { &[][..] } else { &["x"] };
        [&["run", "--out", &out], model, task, more].concat().iter().map(|arg| (*arg).to_owned()).collect::<Vec<String>>()
    };
    let rows = [
        vec!["--models", &fifo],
        vec!["--mcp-config", &fifo],
        vec!["--attach", &fifo],
        vec!["--api-key-file", &fifo, "-m", "openai:x"],
        vec!["-m", &piped],
        vec!["-"],
    ];
    for row in &rows {
        for (limit, exit) in [(None, 130), (None, 143), (Some("1"), 5)] {
            let _ = fs::remove_dir_all(place.out());
            let mut args = with(row);
            args.extend(limit.iter().flat_map(|limit| ["--time-limit".to_owned(), (*limit).to_owned()]));
            let mut child = place.space.command(&args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            let held = child.stdin.take();
            if limit.is_none() {
                until("it has its folder", || place.transcript().exists());
                std::thread::sleep(Duration::from_millis(400));
                assert!(child.try_wait().unwrap().is_none(), "{row:?} does not wait");
                let signal = if exit == 130 { Signal::SIGINT } else { Signal::SIGTERM };
                kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
            }
            let began = Instant::now();
            let output = child.wait_with_output().unwrap();
            drop(held);
            assert_eq!(code(output.status), exit, "{row:?}: {}", stderr(&output));
            assert!(began.elapsed() < Duration::from_secs(25), "{row:?} took {:?}", began.elapsed());
            check(&place, exit);
        }
    }
}

#[test]
fn pipes_are_read_where_files_are_named() {
    let place = Place::new(&[("a", "one\n")]);
    let reply = json!({"expect_contains": ["from the pipe"], "text": "Done."});
    fs::write(place.space.path("s"), format!("{reply}\n")).unwrap();
    // Paths are handed over apart: a folder's name may hold a blank.
    let line = r#""$1" run - --out "$2" -m script:<(cat "$3") --models <(echo '# none') --mcp-config <(echo '{"mcpServers":{}}') \
        --attach <(echo from the pipe) < <(echo the task)"#;
    let mut command = Command::new("bash");
    command.args(["-c", line, "bash"]).args([crate::space::bailiwick(), place.out(), place.space.path("s")]);
    command.current_dir(place.space.ws()).env_clear().env("HOME", place.space.path("home"));
    command.env("PATH", crate::space::path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    check(&place, 0);
    assert!(place.events()[0]["task"] == "the task\n");
}

/// What a stranger's tree may hold in the place of a file that we or git read.
#[test]
fn a_fifo_in_the_tree_is_never_waited_for() {
    let change = || calls(&[("write", json!({"path": "a", "content": "two\n"}))]);
    /// The FIFO; the exit code; whether there is a patch.
    const ROWS: [(&str, i32, bool); 14] = [
        (".gitignore", 0, true),
        ("dir/deep/.gitignore", 0, true),
        (".gitattributes", 0, true),
        (".git/index", 0, true),
        (".git/config", 0, true),
        (".git/HEAD", 0, true),
        (".git/packed-refs", 0, true),
        (".git/info/exclude", 0, true),
        (".git/objects/info/alternates", 0, true),
        ("nested/.git/HEAD", 0, false),
        ("AGENTS.md", 0, true),
        (".agents/skills/one/SKILL.md", 0, true),
        (".mcp.json", 2, true),
        (".bailiwick.toml", 2, false),
    ];
    for (path, exit, patch) in ROWS {
        let place = Place::new(&[("a", "one\n"), ("dir/deep/b", "one\n")]);
        let at = place.space.ws().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        if path.starts_with("nested") {
            place.git(&["init", "-q", "nested"]);
        }
        let _ = fs::remove_file(&at);
        pipe(&at);
        let began = Instant::now();
        let output = place.run(&[change(), says("Done.")], &[]);
        assert_eq!(code(output.status), exit, "{path}: {}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(20), "{path} took {:?}", began.elapsed());
        if path == ".bailiwick.toml" {
            assert!(stderr(&output).contains("FIFO"), "{}", stderr(&output));
            continue;
        }
        let result = check(&place, exit);
        assert_eq!(result["patch"].is_string(), patch, "{path}: {result}");
        if exit == 0 && patch {
            assert_eq!(result["changed_files"][0]["path"], "a", "{path}: {result}");
        } else {
            assert!(result.to_string().contains(path.strip_suffix("/HEAD").unwrap_or(path)), "{path}: {result}");
        }
    }
}

/// The model's own command makes one in mid-run: the work that was done is in the patch all the same.
#[test]
fn a_fifo_that_a_command_makes_costs_no_work() {
    for path in [".gitignore", "dir/.gitignore", "dir/.gitattributes", ".git/objects/info/alternates", "store/HEAD"] {
        let place = Place::new(&[("a", "one\n"), ("dir/b", "one\n")]);
        let make = format!("mkdir -p $(dirname {path}); rm -f {path}; mkfifo {path}; echo two > a");
        let began = Instant::now();
        let output = place.run(&[calls(&[bash(&make)]), says("Done.")], &[]);
        assert_eq!(code(output.status), 0, "{path}: {}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(20), "{path} took {:?}", began.elapsed());
        let result = check(&place, 0);
        assert_eq!(result["changed_files"][0]["path"], "a", "{path}: {result}");
        assert!(String::from_utf8_lossy(&place.patch()).contains("+two"), "{path}");
    }
}

#[test]
fn a_fifo_in_the_folder_of_a_run_is_no_transcript() {
    let place = Place::new(&[("a", "one\n")]);
    let output = place.run(&[says("Done.")], &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let (out, model) = (place.out().display().to_string(), place.script(&[says("Done.")]));
    fs::remove_file(place.out().join("changes.patch")).unwrap();
    pipe(&place.out().join("changes.patch"));
    let output = place.space.run(["run", "-m", &model, "--resume", &out]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    fs::remove_file(place.transcript()).unwrap();
    pipe(&place.transcript());
    for args in [["run", "-m", &model, "--resume", &out].to_vec(), ["run", "x", "-m", &model, "--out", &out].to_vec()] {
        let output = place.space.run(&args);
        assert_eq!(code(output.status), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("no regular file"), "{}", stderr(&output));
    }
}

#[test]
fn apply_waits_for_no_fifo() {
    let place = Place::new(&[("a", "one\n"), ("dir/b", "one\n")]);
    let output = place.run(&[calls(&[("write", json!({"path": "a", "content": "two\n"}))]), says("Done.")], &["--workspace-mode", "copy"]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let out = place.out().display().to_string();
    for (path, exit) in [("dir/.gitattributes", 1), (".gitattributes", 1), (".gitignore", 0)] {
        let at = place.space.ws().join(path);
        pipe(&at);
        let began = Instant::now();
        let output = place.space.run(["apply", &out]);
        assert_eq!(code(output.status), exit, "{path}: {}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(15), "{path} took {:?}", began.elapsed());
        assert!(exit == 0 || stderr(&output).contains(&format!("{path} is a FIFO")), "{}", stderr(&output));
        fs::remove_file(at).unwrap();
    }
}

/// What will be where is found out before anything is made.
#[test]
fn a_folder_that_is_refused_leaves_nothing() {
    let place = Place::new(&[("a", "one\n")]);
    let model = place.script(&[says("Done.")]);
    let before = fs::read_dir(place.space.path(".")).unwrap().count();
    let top = place.space.path(".").canonicalize().unwrap();
    for out in ["nx/../ws/zz", "ws/nx/zz", "nx/mx/../../ws/./q/../r", "outside/../ws/new"] {
        let output = place.space.command(["run", "x", "-w", "ws", "-m", &model, "--out", out]).current_dir(&top).output().unwrap();
        assert_eq!(code(output.status), 2, "{out}: {}", stderr(&output));
        assert!(stderr(&output).contains("inside the workspace"), "{out}: {}", stderr(&output));
        assert_eq!(fs::read_dir(&top).unwrap().count(), before, "{out} left something");
        assert_eq!(fs::read_dir(place.space.ws()).unwrap().count(), 2, "{out} left something");
    }
    let output = place.space.command(["run", "x", "-w", "ws", "-m", &model, "--out", "nx/../mx/out"]).current_dir(&top).output().unwrap();
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert!(top.join("mx/out/result.json").exists() && !top.join("nx").exists());
}

/// No room where the run is to leave what it leaves: it is said once, and nothing empty lies about.
#[test]
fn a_full_disk_for_what_a_run_leaves_is_told_once() {
    let place = Place::new(&[("a", "one\n")]);
    let small = place.space.path("small");
    fs::create_dir(&small).unwrap();
    let Ok(_mounted) = crate::space::Mounted::over(&small, 64) else {
        crate::skip!("only root mounts a small file system");
    };
    let model = place.script(&[calls(&[("write", json!({"path": "a", "content": "two\n"}))]), says("Done.")]);
    for filled in [64, 60, 56, 44] {
        let _ = fs::remove_file(small.join("filler"));
        let _ = fs::remove_dir_all(small.join("out"));
        let _ = fs::write(small.join("filler"), vec![1; filled * 1024]);
        fs::write(place.space.ws().join("a"), "one\n").unwrap();
        let out = small.join("out");
        let output = place.space.run(["run", "x", "-q", "-m", &model, "--out", &out.display().to_string()]);
        let said = stderr(&output);
        println!("{filled}: {} {said}", code(output.status));
        assert_ne!(code(output.status), 0, "{said}");
        assert_eq!(said.matches("disk_full").count(), 1, "{filled}: {said}");
        for entry in fs::read_dir(&out).into_iter().flatten() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().len() > 0, "{filled}: {:?} is empty", entry.path());
        }
    }
}
