//! What the README says, done: the example as it is pasted, the form of a script, the exit codes of every verb.

use crate::runs::{Place, WITHOUT_LANDLOCK, calls};
use crate::space::{Space, bailiwick, has};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

const README: &str = include_str!("../README.md");

/// The first block of a shell's lines in a part of the README.
fn block(part: &str) -> String {
    let from = README.split(part).nth(1).unwrap_or_else(|| panic!("the README has no {part:?}"));
    from.split("```sh\n").nth(1).unwrap().split("```").next().unwrap().to_owned()
}

#[test]
fn the_example_of_a_run_works_as_it_is_pasted() {
    let space = Space::new();
    fs::create_dir(space.path("bin")).unwrap();
    symlink(bailiwick(), space.path("bin/bailiwick")).unwrap();
    let path = format!("{}:{}", space.path("bin").display(), crate::space::path());
    let output = Command::new("bash")
        .args(["-e", "-c", &block("### A run without a model")])
        .current_dir(space.outside())
        .env_clear()
        .env("HOME", space.path("home"))
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert_eq!(fs::read_to_string(space.outside().join("words/greeting.txt")).unwrap(), "hello world\n");
    assert!(String::from_utf8_lossy(&output.stdout).contains("+hello world"));
    for line in ["The typo is mended.", "done: 4 turns, 1 files changed", "taken back: 1 file changed", "applied: 1 file changed"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let run = space.outside().join("run");
    assert!(["changes.patch", "result.json", "transcript.jsonl", "report.html"].iter().all(|name| run.join(name).exists()));
}

#[test]
fn the_form_of_a_script_is_as_it_is_told() {
    let part = README.split("### A run without a model").nth(1).unwrap().split("```sh").next().unwrap();
    for fail in ["auth", "rate_limited", "server", "bad_request", "unreachable", "silent", "cut_stream", "malformed_chunk"] {
        assert!(part.contains(&format!("`{fail}`")), "{fail} is not told");
        let place = Place::new(&[("a", "one\n")]);
        assert_eq!(place.run(&[json!({ "fail": fail })], &[]).status.code(), Some(6), "{fail}");
    }
    for stop in ["done", "tool_calls", "length", "refusal", "other"] {
        assert!(part.contains(&format!("`{stop}`")), "{stop} is not told");
    }
    let place = Place::new(&[("a", "one\n")]);
    for (name, content) in [
        (
            "s.jsonl",
            "# a comment\n\n{\"text\": \"Done.\", \"thinking\": [\"x\"], \"stop\": \"done\", \"usage\": {\"input\": 100, \"output\": 20}}\n",
        ),
        ("s.json", "[{\"text\": \"Done.\"}]"),
        ("s.toml", "[[reply]]\ntext = \"Done.\"\n"),
    ] {
        let file = place.space.path(name);
        fs::write(&file, content).unwrap();
        let output = place.space.run(["run", "x", "-m", &format!("script:{}", file.display())]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let ended = place.run(&[calls(&[("read", json!({"path": "a"}))])], &[]);
    assert_eq!(ended.status.code(), Some(6), "it goes on after the last reply");
    fs::remove_dir_all(place.out()).unwrap();
    let strayed = place.run(&[json!({"expect_contains": "not said", "text": "Done."})], &[]);
    assert_eq!(strayed.status.code(), Some(6), "what is expected was not said");
}

#[test]
fn each_verb_ends_with_the_codes_that_are_told() {
    let place = Place::new(&[("a", "one\n")]);
    let lines = [calls(&[("write", json!({"path": "a", "content": "two\n"}))]), json!({"text": "Done."})];
    assert_eq!(place.run(&lines, &["--workspace-mode", "copy"]).status.code(), Some(0));
    let (out, space) = (place.out().display().to_string(), &place.space);
    let file = |name: &str| space.path(name).display().to_string();
    fs::write(space.path("typo.toml"), "name = \"p\"\ndescription = \"p\"\nextends = \"build\"\n[tools]\ndeny = [\"raed\"]\n").unwrap();
    fs::write(space.path("other.jsonl"), fs::read_to_string(place.transcript()).unwrap().replace("\"path\":\"a\"", "\"path\":\"none\""))
        .unwrap();
    fs::write(space.path("bad.patch"), "diff --git a/none b/none\n--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n").unwrap();
    let typo = file("typo.toml");
    let rows: Vec<(Vec<&str>, i32)> = vec![
        (vec!["demo", "--workspace", "."], 2),
        (vec!["apply", &out], 0),
        (vec!["apply", &out], 1),
        (vec!["apply", "--reverse", &out], 0),
        (vec!["apply", "/nx"], 2),
        (vec!["replay", &out], 0),
        (vec!["replay", "/nx"], 2),
        (vec!["report", &out], 0),
        (vec!["report", &out, "-o", "/nx/page.html"], 1),
        (vec!["report", "/nx"], 2),
        (vec!["tools"], 0),
        (vec!["tools", "--with-extras"], 0),
        (vec!["tools", "--policy", "none"], 2),
        (vec!["tools", "--skill", "none"], 8),
        (vec!["mcp"], 0),
        (vec!["mcp", "--http", "none"], 2),
        (vec!["models", "list"], 0),
        (vec!["models", "explain", "openai:x"], 0),
        (vec!["models", "list", "--models", "/nx"], 2),
        (vec!["completions", "bash"], 0),
        (vec!["completions", "none"], 2),
        (vec!["man"], 0),
        (vec!["policy", "list"], 0),
        (vec!["policy", "show", "build"], 0),
        (vec!["policy", "check", "build"], 0),
        (vec!["policy", "check", &typo], 1),
        (vec!["policy", "explain", "/etc"], 0),
        (vec!["policy", "show", "none"], 2),
        (vec!["doctor"], 0),
        (vec!["doctor", "--policy", "none"], 2),
        (vec!["tool", "read", "{\"path\": \"a\"}"], 0),
        (vec!["tool", "read", "{\"path\": \"none\"}"], 1),
        (vec!["tool", "read", "{}", "--policy", "none"], 2),
        (vec!["exec", "--", "bash", "-c", "exit 7"], 7),
        (vec!["exec", "--policy", "none", "--", "true"], 125),
        (vec!["exec", "--", "/etc"], 126),
        (vec!["exec", "--", "no-such-program"], 127),
        (vec!["exec", "--", "bash", "-c", "kill -TERM $$"], 143),
    ];
    for (args, code) in rows {
        let output = space.run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Printing to a device without room.
    for args in [vec!["man"], vec!["models", "list"], vec!["policy", "list"], vec!["tools"], vec!["completions", "bash"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = space.command(&args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
    if !has("python3") {
        crate::skip!("python3 makes a kernel without Landlock: install it");
    }
    let model = place.script(&[json!({"text": "Done."})]);
    for (args, code) in [
        (vec!["demo"], 3),
        (vec!["run", "x", "-m", &model], 3),
        (vec!["apply", &out], 3),
        (vec!["replay", &out], 3),
        (vec!["tools", "--with-extras"], 3),
        (vec!["mcp"], 3),
        (vec!["doctor"], 3),
        (vec!["tool", "read", "{\"path\": \"a\"}"], 3),
        (vec!["exec", "--", "true"], 125),
    ] {
        let command = space.command(&args);
        let mut blind = Command::new("python3");
        blind.arg("-c").arg(WITHOUT_LANDLOCK).arg(command.get_program()).args(command.get_args()).current_dir(space.ws());
        blind.env_clear().env("HOME", space.path("home")).env("PATH", crate::space::path()).stdin(Stdio::null());
        let output = blind.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
