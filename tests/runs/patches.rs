//! The patch, whatever a run did, in whatever repository.

use super::*;

#[test]
fn what_the_last_comparison_undoes_is_not_in_the_patch() {
    let place = Place::new(&[("a", "one\n"), (".envrc", "kept\n")]);
    // A process that goes on writes a protected name after the command has been judged.
    let lines = [
        calls(&[(
            "process_start",
            json!({"command": "sleep 0.2; mkdir -p sub; cd sub; git init -q .; echo '#!/bin/sh' > .git/hooks/pre-commit; echo x > plain; touch ../ready; sleep 60"}),
        )]),
        calls(&[bash("until [ -e ready ]; do sleep 0.05; done")]),
        says("Done."),
    ];
    let output = place.run(&lines, &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let result = check(&place, 0);
    let files: Vec<&str> = result["changed_files"].as_array().unwrap().iter().filter_map(|file| file["path"].as_str()).collect();
    assert!(files.contains(&"sub/plain") && files.contains(&"ready"), "{result}");
    assert!(!place.space.ws().join("sub/.git/hooks/pre-commit").exists(), "a hook that a command made stays: {result}");
    assert!(left("touch ../ready").is_empty());
    applies(&place, &[]);
}

#[test]
fn a_patch_takes_no_protected_name_over() {
    let place = Place::new(&[("a", "one\n")]);
    let patch = "diff --git a/.git/hooks/pre-commit b/.git/hooks/pre-commit\nnew file mode 100755\n--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+evil\n";
    let outside = patch.replace(".git/hooks/pre-commit", "../outside/evil");
    fs::write(place.space.path("x.patch"), patch).unwrap();
    fs::write(place.space.path("y.patch"), outside).unwrap();
    for name in ["x.patch", "y.patch"] {
        let output = place.space.run(["apply", &place.space.path(name).display().to_string()]);
        assert_eq!(code(output.status), 1, "{}", stderr(&output));
    }
    assert!(!place.space.ws().join(".git/hooks/pre-commit").exists() && !place.space.outside().join("evil").exists());
}

#[test]
fn the_state_at_the_start_survives_who_owns_what() {
    if !is_root() {
        crate::skip!("only root can give files away");
    }
    let place = Place::new(&[("a", "one\n")]);
    for name in ["", "a"] {
        std::os::unix::fs::chown(place.space.ws().join(name), Some(1234), Some(1234)).unwrap();
    }
    let output = place.run(&[calls(&[bash("echo two > a")]), says("Done.")], &["--workspace-mode", "copy"]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    assert_eq!(check(&place, 0)["changed_files"][0]["path"], "a");
    assert_eq!(fs::metadata(place.space.ws().join("a")).unwrap().uid(), 1234);
}

/// Numbers that repeat for a seed. (Marsaglia's xorshift.)
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most as u64).unwrap()
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.below(list.len())]
    }
}

const NAMES: &[&str] = &["a", "b", "d/a", "d/e/f", "x y", "\u{fc}.txt", "-n", "run.sh", "bin", "k.log", "build/o", "new"];

const TEXTS: &[&str] = &["one\n", "one\ntwo\n", "no newline", "a\r\nb\r\n", "", "\u{2028}x\n", " lead\n\ttab \n"];

/// One change, by a file tool or by a command.
fn change(dice: &mut Dice) -> (&'static str, Value) {
    let (one, other, text) = (dice.of(NAMES), dice.of(NAMES), dice.of(TEXTS));
    let quoted = |name: &str| format!("'./{name}'");
    match dice.below(14) {
        0 | 1 => ("write", json!({"path": format!("./{one}"), "content": text})),
        2 => ("edit", json!({"path": format!("./{one}"), "old_string": "one", "new_string": "three"})),
        3 => ("rename", json!({"from": format!("./{one}"), "to": format!("./{other}")})),
        4 => ("copy", json!({"from": format!("./{one}"), "to": format!("./{other}")})),
        5 => bash(&format!("mkdir -p \"$(dirname {0})\"; printf %s {1} >> {0}", quoted(one), quoted(text).replace("./", ""))),
        6 => bash(&format!("rm -rf {}", quoted(one))),
        7 => bash(&format!("mv {} {}", quoted(one), quoted(other))),
        8 => bash(&format!("chmod {} {}", if dice.below(2) == 0 { "+x" } else { "-x" }, quoted(one))),
        9 => bash(&format!("rm -rf {0}; mkdir -p \"$(dirname {0})\"; ln -s {1} {0}", quoted(one), quoted(other))),
        10 => bash(&format!("mkdir -p \"$(dirname {0})\"; head -c 300 /dev/urandom > {0}", quoted(one))),
        11 => bash("git add -A"),
        12 => bash("git add -A; git -c user.name=x -c user.email=x@y commit -qm x --allow-empty"),
        _ => bash("git stash -q -u; git stash pop -q || git checkout -q -f stash@{0} -- . || true"),
    }
}

#[test]
fn the_patch_of_any_run_gives_the_same_tree_and_the_index_is_left_alone() {
    let cases: u64 = std::env::var("BAILIWICK_TEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    for case in 0..cases {
        let seed = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(case + 1);
        let mut dice = Dice(seed);
        let place = Place::new(&[
            ("a", "one\n"),
            ("d/a", "one\r\ntwo\r\n"),
            ("x y", "no newline"),
            ("run.sh", "#!/bin/sh\n"),
            (".gitignore", "*.log\nbuild/\n"),
        ]);
        let script: Vec<Value> = (0..4).map(|_| calls(&(0..3).map(|_| change(&mut dice)).collect::<Vec<_>>())).collect();
        // At the end the index is as a command left it.
        let last = calls(&[bash("sha256sum < .git/index")]);
        let output = place.run(&[script.clone(), vec![last, says("Done.")]].concat(), &["--max-tool-errors", "100"]);
        let why = || format!("case {case}: {}\n{script:?}", stderr(&output));
        assert_eq!(code(output.status), 0, "{}", why());
        let result = check(&place, 0);
        assert!(result["patch_error"].is_null() && result["notes"].as_array().unwrap().is_empty(), "{}: {result}", why());
        let events = place.events();
        let before =
            events.iter().rev().find(|event| event["type"] == "call_ended").unwrap()["envelope"]["data"]["stdout"].as_str().unwrap();
        let now = Command::new("sha256sum").stdin(fs::File::open(place.space.ws().join(".git/index")).unwrap()).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&now.stdout), before, "{}: the index was touched", why());
        // Ignored files count where a file tool touched them, and only there.
        let touched = format!(
            "{:?}",
            events.iter().filter(|event| event["type"] == "call_started" && event["call"]["tool"] != "sandbox_bash").collect::<Vec<_>>()
        );
        let ignored: Vec<&str> = ["k.log", "build/o"].into_iter().filter(|name| !touched.contains(name)).collect();
        applies(&place, &ignored);
    }
}

#[test]
fn nothing_that_the_repository_configures_runs_through_us() {
    let place = Place::new(&[("a.txt", "one\r\n"), (".gitattributes", "*.txt filter=trap diff=trap text eol=lf ident\n")]);
    let ran = place.space.path("ran");
    let trap = format!("touch {}; cat", ran.display());
    let keys =
        ["filter.trap.clean", "filter.trap.smudge", "filter.trap.process", "diff.trap.command", "diff.trap.textconv", "diff.external"];
    for key in keys.into_iter().chain(["core.fsmonitor", "core.pager", "core.editor", "core.sshCommand", "uploadpack.packObjectsHook"]) {
        place.git(&["config", key, &trap]);
    }
    for hook in ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman", "pre-applypatch"] {
        let hook = place.space.ws().join(".git/hooks").join(hook);
        fs::create_dir_all(hook.parent().unwrap()).unwrap();
        fs::write(&hook, format!("#!/bin/sh\n{trap}\n")).unwrap();
        fs::set_permissions(hook, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(place.space.ws().join("a.txt"), "three\r\n").unwrap();
    let _ = Command::new("git").args(["-c", "safe.directory=*", "status"]).current_dir(place.space.ws()).output();
    fs::remove_file(&ran).expect("the traps spring for an ordinary git");
    let lines = [calls(&[("write", json!({"path": "a.txt", "content": "two\r\n"}))]), says("Done.")];
    for mode in [vec![], vec!["--workspace-mode", "copy"]] {
        let _ = fs::remove_dir_all(place.out());
        let output = place.run(&lines, &mode);
        assert_eq!(code(output.status), 0, "{}", stderr(&output));
        assert!(!ran.exists(), "a program of the repository ran");
    }
    let output = place.space.run(["replay", &place.out().display().to_string()]);
    assert!(!ran.exists(), "{}", stderr(&output));
}

#[test]
fn a_tree_without_git_has_a_patch_too() {
    let place = Place::new(&[("a", "one\n"), ("d/b", "x\n")]);
    fs::remove_dir_all(place.space.ws().join(".git")).unwrap();
    let kept = place.space.path("kept");
    let copied = Command::new("cp").args(["-a", &place.space.ws().display().to_string(), &kept.display().to_string()]).status().unwrap();
    assert!(copied.success());
    let output = place.run(&[calls(&[bash("echo two > a; rm d/b; printf new > 'n w'; chmod +x 'n w'; ln -s a l")]), says("Done.")], &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    check(&place, 0);
    assert!(!place.space.ws().join(".git").exists());
    git(&kept, &["apply", "--whitespace=nowarn", &place.out().join("changes.patch").display().to_string()]);
    assert_eq!(tree(&kept), tree(&place.space.ws()));
}

/// A path that no file can have says nothing about one that is there.
#[test]
fn a_path_with_a_nul_takes_no_part_in_the_patch() {
    let place = Place::new(&[("a", "one\n"), ("b/keep", "kept\n"), (".gitignore", "b/\n")]);
    place.git(&["add", "-f", "b/keep"]);
    place.git(&["-c", "user.name=T", "-c", "user.email=t@e", "commit", "-qm", "keep"]);
    let zeros = "0".repeat(40);
    let hostile = format!("zz\u{0}000 {zeros} 0\tb/keep");
    let script = [
        calls(&[
            ("write", json!({"path": "zz\u{0}x", "content": "x"})),
            ("write", json!({"path": hostile, "content": "x"})),
            ("write", json!({"path": "a", "content": "two\n"})),
        ]),
        says("Done."),
    ];
    let output = place.run(&script, &[]);
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let patch = String::from_utf8(place.patch()).unwrap();
    assert!(patch.contains("+two") && !patch.contains("keep"), "{patch}");
    assert_eq!(place.result()["changed_files"].as_array().unwrap().len(), 1, "{}", place.result());
}
