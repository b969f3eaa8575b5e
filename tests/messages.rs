//! What is said when something is wrong: what it is, and what to do; in words of a person's, not of a library's.

use crate::runs::Place;
use crate::space::Space;
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

/// Words that a library has for what is wrong, and a person has not.
const JARGON: [&str; 9] = ["invalid digit", "float literal", "relative URL", "u64", "u32", "i32", "os error 2", "socket address", "unwrap"];

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn mistakes_on_the_command_line_are_told_with_the_way_out() {
    let place = Place::new(&[("a", "one\n")]);
    let script = place.script(&[json!({"text": "Done."})]);
    let (space, file) = (&place.space, |name: &str| place.space.path(name).display().to_string());
    fs::write(space.path("no.toml"), "root:x:0:0\n").unwrap();
    fs::write(space.path("short"), "abc\n").unwrap();
    fs::set_permissions(space.path("short"), fs::Permissions::from_mode(0o600)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    fs::write(space.path("unknown.toml"), "name = \"u\"\ndescription = \"\"\nextends = \"build\"\ntools.deny = [\"raed\"]\n").unwrap();
    let (no, short, unknown) = (file("no.toml"), file("short"), file("unknown.toml"));
    let run = |more: &[&str]| [&["run", "x", "-m", &script], more].concat().iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    let verb = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
    /// The arguments, and words that the message holds.
    type Row<'a> = (Vec<String>, &'a [&'a str]);
    let rows: Vec<Row> = vec![
        (run(&["--max-turns", "0"]), &["--max-turns", "a whole number is wanted, 1 or more"]),
        (run(&["--max-turns", "abc"]), &["a whole number is wanted"]),
        (run(&["--max-turns", "-1"]), &["--max-turns", "a whole number is wanted, 1 or more"]),
        (run(&["--max-cost", "-1"]), &["a sum of US dollars is wanted"]),
        (run(&["--retries", "-1"]), &["a whole number from 0 to 20 is wanted"]),
        (run(&["--time-limit=-1"]), &["--time-limit", "a whole number is wanted"]),
        (run(&["--max-tokens", "1.5"]), &["a whole number is wanted"]),
        (run(&["--max-cost", "abc"]), &["a sum of US dollars is wanted, for example 2.50"]),
        (run(&["--price", "1"]), &["two numbers", "--price 3,15"]),
        (run(&["--retries", "99"]), &["a whole number from 0 to 20 is wanted"]),
        (run(&["--silence", "0"]), &["a whole number from 1 to 3600 is wanted"]),
        (run(&["--api-key-fd", "x"]), &["a whole number"]),
        (run(&["--api-key-fd", "77"]), &["not open", "3< FILE"]),
        (run(&["--api-key-file", "/nx"]), &["--api-key-file /nx", "the key alone"]),
        (run(&["--trust", "me"]), &["own, fork, auto"]),
        (run(&["--workspace-mode", "cp"]), &["in-place, copy"]),
        (run(&["--allow", "raed"]), &["--allow raed", "did you mean read?"]),
        (run(&["--models", "/nx"]), &["--models /nx", "[[model]]", "models list"]),
        (run(&["--models", &no]), &["no.toml:1", "[[model]]"]),
        (run(&["--mcp-config", "/nx"]), &["--mcp-config /nx", "mcpServers"]),
        (run(&["--mcp-config", &no]), &["no.toml"]),
        (run(&["--attach", "/nx"]), &["--attach /nx", "text file"]),
        (run(&["--attach", "/dev/zero"]), &["no regular file and no pipe"]),
        (run(&["--policy", "biuld"]), &["no policy is called", "build"]),
        (run(&["--policy", &no]), &["no.toml, line 1", "policy show build --source"]),
        (run(&["--verify", " "]), &["--verify", "cargo test"]),
        (run(&["--verify", "true", "--policy", "edit"]), &["--verify runs a command", "edit permits none", "--policy build"]),
        (run(&["--policy", &unknown]), &["tools.deny: raed", "did you mean read?"]),
        (verb(&["tool", "ls", "--policy", &unknown]), &["tools.deny: raed", "did you mean read?"]),
        (verb(&["mcp", "--policy", &unknown]), &["tools.deny: raed", "did you mean read?"]),
        (verb(&["run", "x", "-m", "gpt-5"]), &["no such provider", "openai:NAME"]),
        (verb(&["run", "x", "-m", "openai:"]), &["no model", "openai:NAME"]),
        (verb(&["apply", &short]), &["short: this is no patch", "the folder of a run"]),
        (verb(&["run", "x", "-m", "script:/nx"]), &["/nx: the script cannot be read", "one reply a line"]),
        (verb(&["run", "", "-m", &script]), &["the task is empty", "bailiwick run"]),
        (verb(&["run", "x", "-m", "openai:m", "--base-url", "127.0.0.1:1"]), &["begin with http:// or https://", "--base-url http://HOST"]),
        (verb(&["run", "x", "-m", "openai:m", "--base-url", "localhost:1"]), &["begin with http:// or https://"]),
        (verb(&["run", "x", "-m", "openai:m", "--base-url", "http://me:pa55word@h"]), &["before an @", "--api-key-file"]),
        (verb(&["run", "x", "-m", "openai:m", "--base-url", "http://pa55word@h"]), &["before an @", "--api-key-file"]),
        (verb(&["mcp", "--http", "foo"]), &["no HOST:PORT", "127.0.0.1:8000"]),
        (verb(&["mcp", "--http", &taken]), &["another program listens", "0 for one that is free"]),
        (verb(&["mcp", "--http", "192.0.2.1:0"]), &["no such address"]),
        (verb(&["mcp", "--http", "0.0.0.0:0"]), &["can be reached from elsewhere", "--token-file"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--token-file", "/nx"]), &["--token-file /nx", "umask 077"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--token-file", &short]), &["fewer than 16", "umask 077"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--allow-host", "http://x"]), &["no name of a host", "NAME:PORT"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--allow-host", "a b"]), &["no name of a host"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--allow-host", "x:99999"]), &["no name of a host"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--allow-origin", "x.example"]), &["no origin of a page", "https://"]),
        (verb(&["mcp", "--http", "127.0.0.1:0", "--allow-origin", "https://x/"]), &["no origin of a page", "slash"]),
        (verb(&["models", "explain", ""]), &["no model is named", "openai:"]),
        (verb(&["apply", "/nx"]), &["/nx", "folder of a run"]),
        (verb(&["replay", "/nx"]), &["/nx", "folder of a run"]),
        (verb(&["report", &no]), &["no event of a run", "folder of a run"]),
        (verb(&["tools", "--format", "xml"]), &["text, openai, anthropic, mcp"]),
        (verb(&["rum"]), &["similar", "run"]),
        (verb(&["policy", "explain", "example.com:99999"]), &["no host and port", "65535"]),
        (verb(&["policy", "explain", "http://"]), &["no host and port"]),
        (verb(&["policy", "show", "."]), &["this is a folder"]),
        (verb(&["mcp", "--print-config", "codex", "--policy", "nope"]), &["no policy is called", "build"]),
    ];
    for (args, words) in rows {
        let output = space.command(&args).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?} does not say {word:?}: {said}");
        }
        for word in JARGON.iter().chain(&["pa55word"]) {
            assert!(!said.contains(word), "{args:?} says {word:?}: {said}");
        }
    }
}

#[test]
fn a_server_that_cannot_be_reached_is_told_apart() {
    let space = Space::new().file("a", "one\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // It answers in plain text, whatever it is asked.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    for (url, word) in [
        ("http://127.0.0.1:1".to_owned(), "nothing listens there"),
        ("http://no-such-host.invalid".into(), "the name of the host is not known"),
        (format!("https://127.0.0.1:{port}"), "http:// rather than https://"),
    ] {
        let out = space.path("out").display().to_string();
        let _ = fs::remove_dir_all(&out);
        let output = space.run(["run", "x", "-m", "openai:m", "--base-url", &url, "--retries", "0", "--out", &out]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(6), "{url}: {said}");
        assert!(said.contains(word), "{url}: {said}");
        assert_eq!(said.matches("no model server can be reached").count(), 1, "{url}: {said}");
    }
}

#[test]
fn names_of_tools_in_a_policy_are_checked() {
    let space = Space::new();
    let policy = space.path("p.toml").display().to_string();
    let check = |list: &str| {
        fs::write(&policy, format!("name = \"p\"\ndescription = \"p\"\nextends = \"build\"\n[tools]\n{list}\n")).unwrap();
        let output = space.run(["policy", "check", &policy]);
        (output.status.code(), said(&output))
    };
    for (list, word) in [
        ("deny = [\"raed\"]", "tools.deny: raed\n  no tool and no category has this name; did you mean read?"),
        ("allow = [\"fil\"]", "did you mean file?"),
        ("deny = [\"bash\"]", "did you mean sandbox_bash?"),
        ("deny = [\"xyzzy\"]", "`bailiwick tools` lists them"),
    ] {
        let (code, said) = check(list);
        assert!(code == Some(1) && said.contains(word), "{list}: {said}");
    }
    let (code, said) = check("allow = [\"file\", \"process_*\", \"load_skill\", \"mcp__x__y\"]\ndeny = [\"write\", \"web\"]");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn wrong_arguments_of_a_tool_are_told_in_words() {
    let space = Space::new().file("a", "one\n");
    for (tool, args, word) in [
        ("read", json!({"pth": "a"}), "read needs path, and does not take \"pth\""),
        ("read", json!({"path": "a", "limit": -1}), "limit is -1, and should be a whole number from 1 on"),
        ("read", json!({"path": "a", "limit": "many"}), "limit is a string, and should be integer"),
        ("grep", json!({"pattern": "x", "context": -1}), "-1"),
        ("write", json!({"path": "a"}), "write needs content"),
    ] {
        let called = space.tool(tool, args.clone());
        assert_eq!(called.fault(), "invalid_arguments", "{tool} {args}");
        assert!(called.envelope["error"].as_str().unwrap().contains(word), "{tool} {args}: {}", called.line);
        assert!(called.envelope["data"]["hint"].as_str().unwrap().contains(tool), "{}", called.line);
        assert!(!JARGON.iter().any(|word| called.line.contains(word)), "{}", called.line);
    }
}

#[test]
fn apply_says_what_it_did_and_an_unreadable_file_is_noted_once() {
    let place = Place::new(&[("a", "one\n"), ("b", "one\n"), ("closed", "x\n")]);
    let closed = place.space.ws().join("closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o0)).unwrap();
    let lines = [
        json!({"calls": [{"name": "write", "arguments": {"path": "a", "content": "two\n"}}, {"name": "write", "arguments": {"path": "b", "content": "two\n"}}]}),
        json!({"text": "Done."}),
    ];
    let output = place.run(&lines, &["--workspace-mode", "copy"]);
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let notes: Vec<Value> = place.result()["notes"].as_array().unwrap().clone();
    let mut once = notes.clone();
    once.dedup();
    assert_eq!(notes, once);
    for line in text.lines().filter(|line| line.contains("closed")) {
        assert_eq!(text.matches(line).count(), 1, "said twice: {text}");
    }
    let out = place.out().display().to_string();
    let output = place.space.run(["apply", &out]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_eq!(text, format!("applied: 2 files changed in {}\n", place.space.ws().canonicalize().unwrap().display()));
    let output = place.space.run(["apply", "--quiet", "--reverse", &out]);
    assert!(output.status.success() && output.stderr.is_empty() && output.stdout.is_empty(), "{}", said(&output));
    let output = place.space.run(["apply", &out, "-q"]);
    assert!(output.status.success());
    let output = place.space.run(["apply", "-R", &out]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("taken back: 2 files changed in "));
    // As diff writes it, with a line taken out that looks like the beginning of a file.
    fs::write(place.space.path("plain"), "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-one\n+-- one\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two\n")
        .unwrap();
    let plain = place.space.path("plain").display().to_string();
    let output = place.space.run(["apply", &plain]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("applied: 2 files changed in "), "{}", said(&output));
    assert_eq!(fs::read_to_string(place.space.ws().join("a")).unwrap(), "-- one\n");
    fs::write(place.space.path("plain"), "--- a/a\n+++ b/a\n@@ -1 +1 @@\n--- one\n+one\n").unwrap();
    let output = place.space.run(["apply", &plain]);
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("applied: 1 file changed in "), "{}", said(&output));
}

/// A page takes no place but that of a page: what a link names keeps its place, and the link stays one.
#[test]
fn a_report_replaces_no_link_and_nothing_else() {
    let place = Place::new(&[("a", "one\n")]);
    let script = place.script(&[json!({"text": "Done."})]);
    let space = &place.space;
    let out = space.path("run");
    assert_eq!(space.run(["run", "x", "-m", &script, "--out", out.to_str().unwrap()]).status.code(), Some(0));
    let report = |name: &str| space.run(["report", out.to_str().unwrap(), "-o", space.path(name).to_str().unwrap()]);
    fs::write(space.path("empty"), "").unwrap();
    fs::write(space.path("text"), "mine\n").unwrap();
    for (link, to) in [("to-empty", "empty"), ("to-nothing", "nothing"), ("to-null", "/dev/null"), ("to-text", "text")] {
        std::os::unix::fs::symlink(to, space.path(link)).unwrap();
    }
    assert_eq!(report("to-empty").status.code(), Some(0));
    assert!(fs::read_to_string(space.path("empty")).unwrap().contains("<title>"));
    for (link, says) in [("to-nothing", "link to what is no file"), ("to-null", "no regular file"), ("to-text", "no report")] {
        let output = report(link);
        assert!(output.status.code() == Some(2) && said(&output).contains(says), "{link}: {}", said(&output));
    }
    for link in ["to-empty", "to-nothing", "to-null", "to-text"] {
        assert!(space.path(link).symlink_metadata().unwrap().is_symlink(), "{link}");
    }
    assert!(!space.path("nothing").exists() && fs::read_to_string(space.path("text")).unwrap() == "mine\n");
    let output = report("text/x");
    assert!(output.status.code() == Some(2) && said(&output).contains("Not a directory"), "{}", said(&output));
}

/// Where there is no home folder, what a run leaves lies among everybody's, in a folder that is this user's alone or nowhere.
#[test]
fn nobody_else_prepares_the_place_of_what_a_run_leaves() {
    let place = Place::new(&[("a", "one\n")]);
    let script = place.script(&[json!({"text": "Done."})]);
    let space = &place.space;
    let shared = space.path("shared");
    let own = shared.join(format!("bailiwick-{}", nix::unistd::geteuid()));
    let run = || space.command(["run", "x", "-m", &script]).env_remove("HOME").env("TMPDIR", &shared).output().unwrap();
    let there = fs::read_dir(space.outside()).unwrap().count();
    for how in ["a link", "open to all", "a file"] {
        fs::create_dir(&shared).unwrap();
        match how {
            "a link" => std::os::unix::fs::symlink(space.outside(), &own).unwrap(),
            "a file" => fs::write(&own, "").unwrap(),
            _ => {
                fs::create_dir(&own).unwrap();
                fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
            }
        }
        let output = run();
        assert!(output.status.code() == Some(1) && said(&output).contains("--out DIR"), "{how}: {}", said(&output));
        assert_eq!(fs::read_dir(space.outside()).unwrap().count(), there, "{how}");
        fs::remove_dir_all(&shared).unwrap();
    }
    fs::create_dir(&shared).unwrap();
    let output = run();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(fs::read_dir(own.join("runs")).unwrap().count(), 1);
}

/// What cannot be printed is a failure of every verb; that the reader went away is none.
#[test]
fn a_full_place_behind_standard_output_is_said() {
    let place = Place::new(&[("a", "one\n")]);
    let edit = json!({"calls": [{"name": "write", "arguments": {"path": "b", "content": "two\n"}}]});
    let script = place.script(&[edit, json!({"text": "Done."})]);
    let space = &place.space;
    let verbs: [&[&str]; 6] =
        [&["run", "x", "-m", &script], &["run", "x", "--json", "-m", &script], &["--help"], &["--version"], &["tool", "ls"], &["tools"]];
    for args in verbs {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = space.command(args).stdout(full).output().unwrap();
        assert!(output.status.code() == Some(1) && said(&output).contains("No space left"), "{args:?}: {}", said(&output));
        let _ = fs::remove_file(space.ws().join("b"));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = space.command(args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", said(&output));
        let _ = fs::remove_file(space.ws().join("b"));
    }
}

#[test]
fn exec_tells_a_flag_from_a_program() {
    let space = Space::new();
    let rows: [(&[&str], &str); 3] = [
        (&["exec", "--polcy", "ci", "true"], "did you mean --policy?"),
        (&["exec", "--polcy", "ci", "--", "true"], "did you mean --policy?"),
        (&["exec", "--zzz=1", "x", "true"], "--help"),
    ];
    for (args, says) in rows {
        let output = space.run(args);
        assert!(output.status.code() == Some(125) && said(&output).contains(says), "{args:?}: {}", said(&output));
    }
    // After -- it is a program.
    let output = space.run(["exec", "--", "--polcy"]);
    assert_eq!(output.status.code(), Some(127), "{}", said(&output));
}

#[test]
fn a_server_of_tools_that_nobody_serves_is_told_without_a_library() {
    let place = Place::new(&[("a", "one\n")]);
    let script = place.script(&[json!({"text": "Done."})]);
    let config = place.space.path("mcp.json");
    fs::write(&config, json!({"mcpServers": {"far": {"url": "http://127.0.0.1:1/mcp", "required": true}}}).to_string()).unwrap();
    let output = place.space.run(["run", "x", "-m", &script, "--mcp-config", config.to_str().unwrap()]);
    let said = said(&output);
    assert!(output.status.code() != Some(0) && said.contains("the MCP server far: it cannot be reached: "), "{said}");
    assert!(!said.contains("Transport") && !said.contains("Worker"), "{said}");
}
