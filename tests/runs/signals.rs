//! Signals at any moment, and a kill.

use super::*;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// Starts a run whose script takes its time, and waits for a moment.
fn started(place: &Place, word: &str, wait: Duration) -> Child {
    let mut lines = vec![calls(&[("write", json!({"path": "a", "content": "two\n"}))])];
    for n in 0..4 {
        lines.push(calls(&[
            ("read", json!({"path": "a"})),
            bash(&format!("echo {n} >> b; (sleep 30.{word}; echo late >> b) & sleep 0.05")),
        ]));
    }
    lines.push(calls(&[bash(&format!("sleep 60.{word}"))]));
    let mut command = place.command(&lines, &[]);
    // A group of its own: the signal goes to all of it, as a terminal's does.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(wait);
    child
}

#[test]
fn a_signal_at_any_moment_leaves_everything_whole_and_no_process() {
    let rounds: u64 = std::env::var("BAILIWICK_TEST_SIGNALS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    // How long a run takes until its last call, here and now.
    let place = Place::new(&[("a", "one\n")]);
    let word = format!("{}1", std::process::id());
    let began = Instant::now();
    let mut child = started(&place, &word, Duration::ZERO);
    until("the last call", || fs::read_to_string(place.transcript()).unwrap_or_default().contains(&format!("sleep 60.{word}\"}}")));
    let whole = began.elapsed() + Duration::from_millis(100);
    killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    assert_eq!(code(child.wait().unwrap()), 143);
    check(&place, 143);
    let (mut before, mut in_the_middle) = (0, 0);
    for round in 0..rounds {
        let place = Place::new(&[("a", "one\n")]);
        let word = format!("{}{}", std::process::id(), round + 100);
        let (signal, exit) = if round % 2 == 0 { (Signal::SIGINT, 130) } else { (Signal::SIGTERM, 143) };
        // Spread over the whole run, never twice the same.
        let moment = whole.mul_f64((f64::from(u32::try_from(round).unwrap()) + 0.37) / f64::from(u32::try_from(rounds).unwrap()));
        let child = started(&place, &word, moment);
        killpg(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(output.status), exit, "{round}: {}", stderr(&output));
        if place.transcript().exists() {
            let result = check(&place, exit);
            assert_eq!(result["stop_reason"], "signal");
            assert!(result["patch_error"].is_null(), "{result}");
            applies(&place, &[]);
            in_the_middle += 1;
        } else {
            // Before there was a run, there is nothing to leave.
            assert!(tree(&place.space.ws()).len() == 1);
            before += 1;
        }
        until("every process of the run is gone", || left(&format!("0.{word}")).is_empty());
    }
    println!("{in_the_middle} signals met a run, {before} came before it; a whole run took {whole:?}");
    assert!(in_the_middle * 2 > rounds, "{in_the_middle} of {rounds}");
}

#[test]
fn two_signals_at_once_are_one_and_a_hang_up_is_one_too() {
    for (signals, exit) in [(vec![Signal::SIGHUP], 129), (vec![Signal::SIGQUIT], 131), (vec![Signal::SIGINT, Signal::SIGTERM], 130)] {
        let place = Place::new(&[("a", "one\n")]);
        let word = format!("{}7", std::process::id());
        let child = started(&place, &word, Duration::ZERO);
        until("the last call", || fs::read_to_string(place.transcript()).unwrap_or_default().contains(&format!("sleep 60.{word}\"}}")));
        for signal in signals {
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(output.status), exit, "{}", stderr(&output));
        assert!(check(&place, exit)["patch_error"].is_null());
        applies(&place, &[]);
    }
}

#[test]
fn a_signal_while_a_run_ends_takes_nothing_away() {
    for round in 0..6_u64 {
        let place = Place::new(&[("a", "one\n")]);
        let child = place
            .command(&[calls(&[bash("echo two > a")]), says("Done and done.")], &[])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        until("the model is done", || fs::read_to_string(place.transcript()).unwrap_or_default().contains("Done and done."));
        std::thread::sleep(Duration::from_millis(round * 15));
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        let output = child.wait_with_output().unwrap();
        let exit = code(output.status);
        assert!(exit == 0 || exit == 143, "{exit}: {}", stderr(&output));
        // Where the process was through with its work, it may have ended by the signal itself: what it left is the same.
        let result = place.result();
        assert!(result["patch_error"].is_null() && result["changed_files"][0]["path"] == "a", "{result}");
        assert!(result["exit_code"] == exit || result["exit_code"] == 0, "{exit}: {result}");
        applies(&place, &[]);
    }
}

#[test]
fn what_was_at_work_writes_no_more_when_the_patch_is_made() {
    for round in 0..4 {
        let place = Place::new(&[("a", "one\n")]);
        let busy = "for k in 1 2 3; do (i=0; while :; do i=$((i+1)); echo $i > f$k-$((i%40)); done) & done; setsid bash -c 'while :; do date +%N > g; done' & wait";
        let lines = [calls(&[("process_start", json!({"command": "while :; do date +%N > h; sleep 0.01; done"}))]), calls(&[bash(busy)])];
        let more: &[&str] = if round == 3 { &["--time-limit", "10"] } else { &[] };
        let child = place.command(&lines, more).stderr(Stdio::piped()).spawn().unwrap();
        until("it is busy", || place.space.ws().join("g").exists() && place.space.ws().join("f3-30").exists());
        let exit = if round == 3 {
            5
        } else {
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
            143
        };
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(output.status), exit, "{}", stderr(&output));
        check(&place, exit);
        applies(&place, &[]);
    }
}

#[test]
fn a_run_that_was_killed_is_salvaged_at_the_next_start() {
    for disposable in [false, true] {
        let place = Place::new(&[("a", "one\n"), ("gone", "x\n"), (".gitignore", "*.log\n"), ("k.log", "1\n")]);
        // Sessions of its own: what others on this machine sweep away, they sweep elsewhere.
        let apart = tempfile::Builder::new().prefix("bw-sessions-").tempdir_in("/var/tmp").unwrap();
        let place = Place { space: place.space.env("TMPDIR", apart.path().to_str().unwrap()) };
        let word = format!("{}{}", std::process::id(), if disposable { "81" } else { "80" });
        let mode: &[&str] = if disposable { &["--workspace-mode", "copy"] } else { &[] };
        let lines = [
            calls(&[
                ("write", json!({"path": "k.log", "content": "2\n"})),
                bash("echo two > a; rm gone; echo new > new; git add -A; git -c user.name=x -c user.email=x@y commit -qm x"),
            ]),
            calls(&[bash(&format!("sleep 60.{word}"))]),
        ];
        let mut child = place.command(&lines, mode).stderr(Stdio::null()).spawn().unwrap();
        until("the last call", || fs::read_to_string(place.transcript()).unwrap_or_default().contains(&format!("sleep 60.{word}\"}}")));
        child.kill().unwrap();
        assert_eq!(code(child.wait().unwrap()), 137);
        until("its processes are gone with it", || left(&format!("sleep 60.{word}")).is_empty());
        assert!(!place.out().join("result.json").exists() && !place.out().join("changes.patch").exists());
        // Another verb does not take away what is needed for it.
        place.space.bash("true").data();

        let model = place.script(&[says("Nothing to do.")]);
        let mut times = 0;
        // Another test's run may be at it, and may be ended by its own signal.
        until("the result of the killed run", || {
            times += 1;
            let other = place.space.path(&format!("other-{times}")).display().to_string();
            let output = place.space.run(["run", "x", "-m", &model, "--out", &other]);
            assert_eq!(code(output.status), 0, "{}", stderr(&output));
            place.out().join("result.json").exists()
        });
        let result = check(&place, 137);
        let mut files: Vec<&str> = result["changed_files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
        files.sort_unstable();
        assert_eq!(files, ["a", "gone", "k.log", "new"], "{result}");
        if disposable {
            let left: Vec<_> = fs::read_dir(place.out()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("workspace")), "the copy is gone: {left:?}");
            assert_eq!(fs::read_to_string(place.space.ws().join("a")).unwrap(), "one\n");
            let output = place.space.run(["apply", &place.out().display().to_string()]);
            assert_eq!(code(output.status), 0, "{}", stderr(&output));
            assert_eq!(fs::read_to_string(place.space.ws().join("a")).unwrap(), "two\n");
            assert!(!place.space.ws().join("gone").exists());
        }
        let written = fs::metadata(place.out().join("result.json")).unwrap().modified().unwrap();
        place.space.run(["run", "x", "-m", &model, "--out", &place.space.path("third").display().to_string()]);
        assert_eq!(fs::metadata(place.out().join("result.json")).unwrap().modified().unwrap(), written, "once only");
    }
}

/// Whoever throws a killed run away and begins another in its place is told of nothing.
#[test]
fn a_killed_run_whose_place_is_anothers_is_let_go_of() {
    let place = Place::new(&[("a", "one\n")]);
    let apart = tempfile::Builder::new().prefix("bw-sessions-").tempdir_in("/var/tmp").unwrap();
    let place = Place { space: place.space.env("TMPDIR", apart.path().to_str().unwrap()) };
    let word = format!("{}70", std::process::id());
    let lines = [calls(&[bash("echo two > a")]), calls(&[bash(&format!("sleep 60.{word}"))])];
    let mut child = place.command(&lines, &[]).stderr(Stdio::null()).spawn().unwrap();
    until("the last call", || fs::read_to_string(place.transcript()).unwrap_or_default().contains(&format!("sleep 60.{word}\"}}")));
    child.kill().unwrap();
    child.wait().unwrap();
    until("its processes are gone with it", || left(&format!("sleep 60.{word}")).is_empty());
    let model = place.script(&[says("Nothing to do.")]);
    fs::remove_dir_all(place.out()).unwrap();
    let again = || place.space.run(["run", "x", "-m", &model, "--out", &place.out().display().to_string()]);
    let output = again();
    assert!(code(output.status) == 0 && !stderr(&output).contains("killed"), "{}", stderr(&output));
    // And so is the next one, for nothing of it is kept.
    fs::remove_dir_all(place.out()).unwrap();
    let output = again();
    assert!(code(output.status) == 0 && !stderr(&output).contains("killed"), "{}", stderr(&output));
}

/// A run is salvaged at the start of another one; that one is ended in the middle of it, by what asks and by what does not. Nothing is lost:
/// the next start salvages again.
#[test]
fn a_start_that_is_ended_while_it_salvages_leaves_that_to_the_next_one() {
    for disposable in [false, true] {
        let place = Place::new(&[("a", "one\n"), ("gone", "x\n")]);
        // Enough to look at for a salvage to be met.
        for n in 0..2_000 {
            let folder = place.space.ws().join(format!("d{}", n / 250));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("f{n}")), format!("{n}\n")).unwrap();
        }
        place.git(&["add", "-A"]);
        place.git(&["commit", "-q", "-m", "many"]);
        let apart = tempfile::Builder::new().prefix("bw-sessions-").tempdir_in("/var/tmp").unwrap();
        let place = Place { space: place.space.env("TMPDIR", apart.path().to_str().unwrap()) };
        let word = format!("{}{}", std::process::id(), if disposable { "91" } else { "90" });
        let mode: &[&str] = if disposable { &["--workspace-mode", "copy"] } else { &[] };
        let lines = [calls(&[bash("echo two > a; rm gone; echo new > new")]), calls(&[bash(&format!("sleep 60.{word}"))])];
        let mut child = place.command(&lines, mode).stderr(Stdio::null()).spawn().unwrap();
        until("the last call", || fs::read_to_string(place.transcript()).unwrap_or_default().contains(&format!("sleep 60.{word}\"}}")));
        child.kill().unwrap();
        child.wait().unwrap();
        until("its processes are gone with it", || left(&format!("sleep 60.{word}")).is_empty());

        let model = place.script(&[says("Nothing to do.")]);
        let result = place.out().join("result.json");
        let (mut met, mut ended) = (0, 0);
        for round in 0..12_u64 {
            if result.exists() {
                break;
            }
            let other = place.space.path(&format!("other-{round}"));
            let mut child = place
                .space
                .command(["run", "x", "-m", &model, "--out", &other.display().to_string()])
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            until("it has begun", || other.join("transcript.jsonl").exists() || child.try_wait().unwrap().is_some());
            std::thread::sleep(Duration::from_millis(round * 12));
            let signal = [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGINT][usize::try_from(round).unwrap() % 3];
            let _ = kill(Pid::from_raw(child.id().cast_signed()), signal);
            let output = child.wait_with_output().unwrap();
            let exit = code(output.status);
            assert!(exit == 128 + signal as i32 || exit == 0, "{exit}: {}", stderr(&output));
            met += u32::from(!result.exists());
            if signal != Signal::SIGKILL && exit != 0 {
                ended += 1;
                let text = fs::read(other.join("result.json")).expect("the start that was ended leaves its own result");
                assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["exit_code"], exit);
            }
        }
        assert!(met > 0 && ended > 0, "no start was ended while it salvaged ({met}, {ended})");
        println!("{met} starts ended before the salvage was done, {ended} of them by a signal that is heard");
        let mut times = 0;
        until("the result of the killed run", || {
            times += 1;
            let other = place.space.path(&format!("last-{times}")).display().to_string();
            let output = place.space.run(["run", "x", "-m", &model, "--out", &other]);
            assert_eq!(code(output.status), 0, "{}", stderr(&output));
            result.exists()
        });
        let found = check(&place, 137);
        let mut files: Vec<&str> = found["changed_files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
        files.sort_unstable();
        assert_eq!(files, ["a", "gone", "new"], "{found}");
        let patch = String::from_utf8(place.patch()).unwrap();
        assert!(patch.contains("+two") && patch.contains("+new") && patch.contains("deleted file"), "{patch}");
        if disposable {
            let left: Vec<_> = fs::read_dir(place.out()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("workspace")), "the copy is gone: {left:?}");
        }
    }
}
