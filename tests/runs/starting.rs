//! Signals while a run is still starting: the copy of the workspace, a server of tools or of models that says nothing, a key that is waited for, a
//! run that goes on, one that was killed. Whichever phase is met: the code, a transcript that is whole, the result, the patch, no process.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::net::TcpListener;

/// How a run is started, and for how long its start can be met.
struct Phase {
    name: &'static str,
    place: Place,
    flags: Vec<String>,
    env: Vec<(&'static str, String)>,
    /// Held open: a pipe that nobody writes to, a listener that never answers.
    _held: Vec<Box<dyn std::any::Any>>,
    resumed: bool,
}

impl Phase {
    fn new(name: &'static str, flags: &[&str]) -> Self {
        let place = Place::new(&[("a", "one\n")]);
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self { name, place, flags, env: Vec::new(), _held: Vec::new(), resumed: false }
    }

    /// Starts it, with a word in the command line of what it may start.
    fn started(&self) -> Child {
        let script = self.place.script(&[says("Done.")]);
        let mut args: Vec<String> = vec!["run".into()];
        if self.resumed {
            args.extend(["--resume".into(), self.place.out().display().to_string()]);
        } else {
            args.extend(["Make it two.".into(), "--out".into(), self.place.out().display().to_string()]);
        }
        if !self.flags.iter().any(|flag| flag == "--api-key-file") && !self.env.iter().any(|(name, _)| *name == "OLLAMA_HOST") {
            args.extend(["-m".into(), script]);
        }
        args.extend(self.flags.clone());
        let mut command = self.place.space.command(args);
        command.envs(self.env.iter().map(|(name, value)| (*name, value.as_str())));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

fn phases(word: &str) -> Vec<Phase> {
    // Many small files, and one that alone takes a while.
    let copy = Phase::new("the copy of many files", &["--workspace-mode", "copy"]);
    for n in 0..2_000 {
        let folder = copy.place.space.ws().join(format!("d{}", n / 250));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("f{n}")), "x").unwrap();
    }
    let server = Phase::new("a server of tools that says nothing", &[]);
    fs::write(
        server.place.space.ws().join(".mcp.json"),
        json!({"mcpServers": {"dumb": {"command": "bash", "args": ["-c", format!("sleep 60.{word} & wait")], "required": true}}})
            .to_string(),
    )
    .unwrap();
    let mut model = Phase::new("a server of models that says nothing", &[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    model.env.push(("OLLAMA_HOST", listener.local_addr().unwrap().to_string()));
    model._held.push(Box::new(listener));
    let mut key = Phase::new("a key that is waited for", &[]);
    let pipe = key.place.space.path("key");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    key.flags.extend(["--api-key-file".into(), pipe.display().to_string(), "-m".into(), "openai:x".into()]);
    let log: String = (0..200_000).map(|n| format!("line {n} of a file that is shown along\n")).collect();
    let mut attached = Phase::new("attachments", &[]);
    fs::write(attached.place.space.path("long.log"), log).unwrap();
    for _ in 0..4 {
        attached.flags.extend(["--attach".into(), attached.place.space.path("long.log").display().to_string()]);
    }
    let mut resumed = Phase::new("a run that goes on, in a copy", &["--workspace-mode", "copy"]);
    let output = resumed.place.run(&[calls(&[bash("echo two > a")]), json!({"fail": "server"})], &["--workspace-mode", "copy"]);
    assert_eq!(code(output.status), 6, "{}", stderr(&output));
    resumed.resumed = true;
    vec![copy, server, model, key, attached, resumed]
}

#[test]
fn a_signal_in_each_phase_of_the_start_leaves_everything_whole() {
    let rounds = u32::try_from(crate::space::rounds(8)).unwrap();
    let word = format!("{}2", std::process::id());
    for phase in phases(&word) {
        let place = &phase.place;
        let before = tree(&place.space.ws());
        let earlier = phase.resumed.then(|| (fs::read(place.transcript()).unwrap(), place.patch()));
        // How long a start takes that nothing interrupts; where it waits for somebody, as long as it is worth looking.
        let began = Instant::now();
        let mut child = phase.started();
        let end = began + Duration::from_millis(1_500);
        while child.try_wait().unwrap().is_none() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(2));
        }
        let whole = began.elapsed();
        // It may be over by itself.
        let _ = kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM);
        child.wait().unwrap();
        let (mut met, mut over) = (0, 0);
        for round in 0..rounds {
            if let Some((transcript, patch)) = &earlier {
                fs::write(place.transcript(), transcript).unwrap();
                fs::write(place.out().join("changes.patch"), patch).unwrap();
            } else {
                let _ = fs::remove_dir_all(place.out());
            }
            let (signal, exit) = if round % 2 == 0 { (Signal::SIGINT, 130) } else { (Signal::SIGTERM, 143) };
            let child = phase.started();
            std::thread::sleep(whole.mul_f64((f64::from(round) + 0.41) / f64::from(rounds)));
            kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
            let sent = Instant::now();
            let output = child.wait_with_output().unwrap();
            let said = format!("{}, round {round} of {whole:?}: {}", phase.name, stderr(&output));
            assert!(sent.elapsed() < Duration::from_secs(20), "it takes its time: {:?}: {said}", sent.elapsed());
            let ended = code(output.status);
            assert!(ended == exit || ended == 0, "{ended}: {said}");
            assert_eq!(tree(&place.space.ws()), before, "{said}");
            if place.transcript().exists() && place.out().join("result.json").exists() {
                let result = check(place, if ended == exit && place.result()["exit_code"] == 0 { 0 } else { ended });
                assert!(result["patch_error"].is_null(), "{result}: {said}");
                let mut names: Vec<OsString> = fs::read_dir(place.out()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                assert_eq!(names, ["changes.patch", "result.json", "transcript.jsonl"], "{said}");
                match &earlier {
                    Some((_, patch)) => assert_eq!(place.patch(), *patch, "{said}"),
                    None => assert!(place.patch().is_empty(), "{said}"),
                }
                if ended == exit { met += 1 } else { over += 1 }
            } else {
                // Nothing had begun: then there is no trace of it either.
                assert_eq!(ended, exit, "{said}");
                match &earlier {
                    Some((transcript, _)) => assert_eq!(fs::read(place.transcript()).unwrap(), *transcript, "{said}"),
                    None => assert!(!place.out().exists(), "{said}"),
                }
            }
            until("every process is gone", || left(&format!("sleep 60.{word}")).is_empty());
        }
        println!("{}: {met} of {rounds} signals met the start, {over} came too late; {whole:?}", phase.name);
        // Where it waits for somebody, each signal meets it.
        let endless = phase.flags.iter().any(|flag| flag == "--api-key-file") || phase.env.len() == 1;
        assert!(met >= if endless { rounds } else { 1 }, "{}: {met} of {rounds} in {whole:?}", phase.name);
    }
}

#[test]
fn a_mistake_of_the_persons_leaves_a_result_where_they_said_and_nothing_elsewhere() {
    let place = Place::new(&[("a", "one\n")]);
    let state = place.space.path("home/.local/state/bailiwick/runs");
    let runs = || fs::read_dir(&state).map_or(0, std::iter::Iterator::count);
    let model = place.script(&[says("Done.")]);
    let wrong = ["run", "x", "-m", &model, "--attach", "/dev/null"];
    let output = place.space.run(wrong);
    assert_eq!((code(output.status), runs()), (2, 0), "{}", stderr(&output));
    let out = place.out().display().to_string();
    let output = place.space.run(wrong.into_iter().chain(["--out", &out]));
    assert_eq!(code(output.status), 2, "{}", stderr(&output));
    let result = check(&place, 2);
    assert!(result["message"].as_str().unwrap().contains("no regular file"), "{result}");

    // Mended, it may be tried again at the same place: no run came of it. Nothing of a run is overwritten, or spoiled by a mistake when it is
    // to go on.
    assert_eq!(code(place.run(&[calls(&[bash("echo two > a")]), says("Done.")], &[]).status), 0);
    check(&place, 0);
    let kept = || (fs::read(place.transcript()).unwrap(), place.result(), place.patch());
    let before = kept();
    let output = place.space.run(["run", "x", "-m", &model, "--out", &out]);
    assert!(code(output.status) == 2 && stderr(&output).contains("--resume"), "{}", stderr(&output));
    assert_eq!(kept(), before);
    let output = place.space.run(["run", "--resume", &out, "-m", &model, "--price", "abc"]);
    assert_eq!(code(output.status), 2, "{}", stderr(&output));
    assert_eq!(kept(), before);

    // A folder in the workspace is refused before anything is made there.
    let output = place.space.run(["run", "x", "-m", &model, "--out", "new/folder"]);
    assert!(code(output.status) == 2 && !place.space.ws().join("new").exists(), "{}", stderr(&output));
}
