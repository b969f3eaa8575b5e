//! What comes after a run: it goes on, is replayed, applied; and what a copy costs.

use super::*;

#[test]
fn a_copy_never_takes_what_is_there_for_its_own() {
    // The folder for what a run leaves is the one that holds the workspace.
    let place = Place::new(&[("a", "one\n")]);
    fs::rename(place.space.ws(), place.space.path("workspace")).unwrap();
    let model = place.script(&[calls(&[("write", json!({"path": "a", "content": "two\n"}))]), says("Done.")]);
    let (base, out) = (place.space.path("workspace").display().to_string(), place.space.path(".").display().to_string());
    let mut command = place.space.command(["run", "x", "-m", &model, "-w", &base, "--workspace-mode", "copy", "--out", &out]);
    let output = command.current_dir("/").output().unwrap();
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert_eq!(fs::read_to_string(place.space.path("workspace/a")).unwrap(), "one\n");
    assert!(fs::read_to_string(place.space.path("changes.patch")).unwrap().contains("+two"));
}

#[test]
fn a_transcript_cut_anywhere_in_its_last_record_is_resumed() {
    let place = Place::new(&[("a", "one\n")]);
    let output = place.run(&[calls(&[bash("echo two > a; printf 'x\\342\\200\\250y\\0z'")]), json!({"fail": "server"})], &[]);
    assert_eq!(code(output.status), 6, "{}", stderr(&output));
    let whole = fs::read(place.transcript()).unwrap();
    assert!(String::from_utf8_lossy(&whole).contains('\u{2028}'), "the record holds U+2028");
    // The last record is the end of the run; before it, one that is cut is the answer of the call.
    let ends: Vec<usize> = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let answer = ends.iter().position(|end| String::from_utf8_lossy(&whole[..*end]).contains("call_ended")).unwrap();
    let mut cuts: Vec<usize> = Vec::new();
    for (from, to) in [(ends[answer - 1], ends[answer]), (ends[ends.len() - 2], ends[ends.len() - 1])] {
        let step = ((to - from) / 4).max(1);
        cuts.extend((from..=to).step_by(step).chain([to - 1, to]));
    }
    cuts.dedup();
    let first_patch = place.patch();
    for (round, cut) in cuts.iter().enumerate() {
        let mut bytes = whole[..*cut].to_vec();
        // A machine that went down leaves blocks that were never written.
        bytes.extend_from_slice(if round % 3 == 0 { b"\0\0\0\0" } else { b"" });
        fs::write(place.transcript(), bytes).unwrap();
        fs::write(place.out().join("changes.patch"), &first_patch).unwrap();
        let resume = place.out().display().to_string();
        let output = place.run(&[json!({"expect_contains": ["goes on now"], "text": "Done."})], &["--resume", &resume]);
        assert_eq!(code(output.status), 0, "cut at {cut}: {}", stderr(&output));
        let text = fs::read(place.transcript()).unwrap();
        let events: Vec<Value> = text
            .split(|byte| *byte == b'\n')
            .map(|line| line.iter().copied().skip_while(|byte| *byte == 0).collect::<Vec<u8>>())
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(&line).unwrap())
            .collect();
        let result = place.result();
        assert_eq!((&events.last().unwrap()["result"], &result["exit_code"]), (&result, &json!(0)));
        assert!(events.iter().any(|event| event["type"] == "run_resumed"));
        let answers = events.iter().filter(|event| event["type"] == "call_ended").count();
        assert_eq!(answers, 1, "cut at {cut}");
        // The patch is that of the whole run, what came before the interruption included.
        assert_eq!(place.patch(), first_patch, "cut at {cut}: {result}");
    }
    applies(&place, &[]);
}

#[test]
fn a_run_that_ended_goes_on_with_a_new_word_and_its_patch_grows() {
    let place = Place::new(&[("a", "one\n"), ("b", "one\n"), (".gitignore", "*.log\n"), ("k.log", "1\n")]);
    let first = [
        calls(&[("write", json!({"path": "a", "content": "two\n"})), ("write", json!({"path": "k.log", "content": "2\n"}))]),
        says("Done."),
    ];
    assert_eq!(code(place.run(&first, &[]).status), 0);
    let resume = place.transcript().display().to_string();
    let more = [
        json!({"expect_contains": ["And b."], "calls": [{"name": "write", "arguments": {"path": "b", "content": "two\n"}}, {"name": "write", "arguments": {"path": "k.log", "content": "3\n"}}]}),
        says("Done too."),
    ];
    let output = place.run(&more, &["--resume", &resume, "And b."]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let result = check(&place, 0);
    let files: Vec<&str> = result["changed_files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert_eq!((files, &result["turns"]), (vec!["a", "b", "k.log"], &json!(4)), "{result}");
    let patch = String::from_utf8(place.patch()).unwrap();
    assert!(patch.contains("-1\n+3\n") && patch.contains("diff --git a/a b/a"), "{patch}");

    // Somebody else changed what the patch had changed: it is said, and the patch is that of the rest.
    fs::write(place.space.ws().join("a"), "mine\n").unwrap();
    let output = place.run(&[calls(&[("write", json!({"path": "b", "content": "three\n"}))]), says("Done.")], &["--resume", &resume]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let result = check(&place, 0);
    assert!(result["notes"].to_string().contains("changed since the run was resumed"), "{result}");
    assert_eq!(result["changed_files"].as_array().unwrap().len(), 1);
}

#[test]
fn replay_gives_the_same_envelopes_and_changes_nothing() {
    let place = Place::new(&[("a", "one\n"), ("dir/b", "x y z\n"), (".gitignore", "*.log\n")]);
    let lines = [
        calls(&[
            ("read", json!({"path": "a"})),
            ("grep", json!({"pattern": "y"})),
            ("ls", json!({"path": "."})),
            ("read", json!({"path": "../x"})),
        ]),
        calls(&[
            ("edit", json!({"path": "a", "old_string": "one", "new_string": "two"})),
            bash("cat a dir/b; pwd; ls; echo x > new; exit 3"),
            ("rename", json!({"from": "dir/b", "to": "dir/c"})),
            ("read", json!({"path": "dir/c"})),
            ("find", json!({"pattern": "**"})),
        ]),
        json!({"calls": [{"name": "write", "arguments": "{broken"}]}),
        says("Done."),
    ];
    let output = place.run(&lines, &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let before = tree(&place.space.ws());
    let out = place.out().display().to_string();
    let output = place.space.run(["replay", &out]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("9 calls answered as they did"), "{}", stderr(&output));
    assert_eq!(tree(&place.space.ws()), before);

    // A workspace that is another one answers otherwise, and that is said.
    fs::write(place.space.ws().join("a"), "three\n").unwrap();
    let output = place.space.run(["replay", &out, "--json"]);
    assert_eq!(code(output.status), 1, "{}", stderr(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.len() == 9 && rows[0]["same"] == false && rows[3]["same"] == true, "{lines}");
}

#[test]
fn a_bulky_result_goes_to_the_spool_and_can_be_looked_up_there() {
    let big: String = (0..4000).map(|n| format!("line {n} of a file that is long\n")).collect();
    let place = Place::new(&[("big", &big)]);
    let lines = [
        calls(&[("read", json!({"path": "big", "limit": 2000}))]),
        json!({"expect_contains": ["the whole is kept as spool:"], "calls": [{"name": "grep", "arguments": {"pattern": "line 1500 ", "path": "spool:1.log"}}]}),
        json!({"expect_contains": ["line 1500 of a file"], "text": "Done."}),
    ];
    let output = place.run(&lines, &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let events = place.events();
    let ended = events.iter().find(|event| event["type"] == "call_ended").unwrap();
    let (text, whole) = (ended["text"].as_str().unwrap(), ended["envelope"]["data"].to_string());
    assert!(text.chars().count() < 2_000 && whole.len() > 30_000, "{} and {}", text.len(), whole.len());
}

#[test]
fn a_copy_leaves_the_workspace_alone_and_its_patch_can_be_taken_over() {
    let place = Place::new(&[("a", "one\n"), ("run.sh", "#!/bin/sh\n"), (".gitignore", "*.log\n"), ("k.log", "1\n")]);
    fs::set_permissions(place.space.ws().join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let before = tree(&place.space.ws());
    let head = place.git(&["rev-parse", "HEAD"]);
    let lines = [
        calls(&[
            ("write", json!({"path": "a", "content": "two\r\n"})),
            bash(
                "printf 'no newline' > b; chmod -x run.sh; ln -s a l; printf '\\0\\1' > bin; cat k.log; git add -A; git -c user.name=x -c user.email=x@y commit -qm x",
            ),
        ]),
        says("Done."),
    ];
    let output = place.run(&lines, &["--workspace-mode", "copy"]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    check(&place, 0);
    assert_eq!((tree(&place.space.ws()), place.git(&["rev-parse", "HEAD"])), (before.clone(), head));
    let mut names: Vec<OsString> = fs::read_dir(place.out()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["changes.patch", "result.json", "transcript.jsonl"], "the patch is all that is left");

    // What the tree's own configuration would run does not run, and `apply` takes all or nothing.
    let ran = place.space.path("ran");
    let trap = format!("touch {}; cat", ran.display());
    for (key, value) in
        [("filter.trap.smudge", trap.as_str()), ("filter.trap.clean", &trap), ("core.fsmonitor", &trap), ("core.autocrlf", "true")]
    {
        place.git(&["config", key, value]);
    }
    fs::write(place.space.ws().join(".gitattributes"), "* filter=trap text=auto eol=crlf\n").unwrap();
    let index = fs::read(place.space.ws().join(".git/index")).unwrap();
    let out = place.out().display().to_string();
    let output = place.space.run(["apply", &out]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert!(!ran.exists() && fs::read(place.space.ws().join(".git/index")).unwrap() == index);
    let after = tree(&place.space.ws());
    assert_eq!(after[Path::new("a")].1, b"two\r\n");
    assert_eq!((after[Path::new("run.sh")].0.as_str(), after[Path::new("bin")].1.as_slice()), ("false", [0, 1].as_slice()));
    assert_eq!(after[Path::new("l")], ("link".to_owned(), b"a".to_vec()));
    let output = place.space.run(["apply", &out]);
    assert_eq!(code(output.status), 1, "it does not apply twice");
    assert_eq!(tree(&place.space.ws()), after);
    let output = place.space.run(["apply", "--reverse", &out]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let mut back = tree(&place.space.ws());
    back.remove(Path::new(".gitattributes"));
    assert_eq!(back, before);
}

#[test]
fn the_work_of_a_copy_is_told_as_it_grows() {
    let count = std::env::var("BAILIWICK_TEST_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000_usize);
    let place = Place::new(&[("a", "one\n")]);
    for n in 0..count {
        let folder = place.space.ws().join(format!("d{}", n / 500));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("f{n}")), format!("content {n}\n")).unwrap();
    }
    let times: Vec<Duration> = [vec![], vec!["--workspace-mode", "copy"]]
        .into_iter()
        .map(|mode| {
            let _ = fs::remove_dir_all(place.out());
            let began = Instant::now();
            let output = place.run(&[says("Done.")], &mode);
            assert_eq!(code(output.status), 0, "{}", stderr(&output));
            began.elapsed()
        })
        .collect();
    let _ = fs::remove_dir_all(place.out());
    let model = place.script(&[says("Done.")]);
    let output = place.space.run(["run", "x", "-m", &model, "--workspace-mode", "copy", "--out", &place.out().display().to_string()]);
    let said = stderr(&output);
    let line = said.lines().find(|line| line.contains("copied")).unwrap_or_else(|| panic!("{said}"));
    println!("{count} files: a run in place {:?}, in a copy {:?}; {line}", times[0], times[1]);
    assert_eq!(fs::read_dir(place.out()).unwrap().count(), 3);
}

/// Mistakes that would cost something: nothing is lost, and what to do is said.
#[test]
fn a_mistake_afterwards_takes_nothing_away() {
    let place = Place::new(&[("a", "one\n"), ("notes.txt", "mine\n")]);
    let output = place.run(&[calls(&[("write", json!({"path": "a", "content": "two\n"}))]), says("Done.")], &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let (out, patch, transcript) = (place.out().display().to_string(), place.patch(), fs::read(place.transcript()).unwrap());

    // A run goes on where it began, and in the way it began.
    let elsewhere = place.space.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    git(&elsewhere, &["init", "-q", "."]);
    let model = place.script(&[says("Done.")]);
    for (more, says) in
        [(vec!["-w", elsewhere.to_str().unwrap()], "--workspace "), (vec!["--workspace-mode", "copy"], "leave --workspace-mode copy out")]
    {
        let args = ["run", "-m", &model, "--resume", &out].into_iter().chain(more.iter().copied());
        let output = place.space.command(args).output().unwrap();
        assert_eq!(code(output.status), 2, "{more:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{more:?}: {}", stderr(&output));
        assert_eq!((place.patch(), fs::read(place.transcript()).unwrap()), (patch.clone(), transcript.clone()), "{more:?}");
    }

    // A report takes the place of a report, and of nothing else.
    let report = |to: &str| place.space.run(["report", &out, "-o", to]);
    for to in [format!("{out}/transcript.jsonl"), format!("{out}/changes.patch"), place.space.ws().join("notes.txt").display().to_string()]
    {
        let before = fs::read(&to).unwrap();
        let output = report(&to);
        assert_eq!(code(output.status), 2, "{to}");
        assert!(stderr(&output).contains("is no report") && stderr(&output).contains("--output FILE"), "{}", stderr(&output));
        assert_eq!(fs::read(&to).unwrap(), before, "{to}");
    }
    for _ in 0..2 {
        assert_eq!(code(report(&format!("{out}/page.html")).status), 0);
    }

    // A patch that was applied already does not apply, and that is said.
    let output = place.space.run(["apply", &out]);
    assert_eq!(code(output.status), 1);
    assert!(stderr(&output).contains("applied already"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(place.space.ws().join("a")).unwrap(), "two\n");
}
