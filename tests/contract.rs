//! The contract of `bailiwick tool`: one envelope on stdout, exit 0 exactly when it is a success.

use crate::skip;
use crate::space::Space;
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::Path;

#[test]
fn a_read_is_one_line_with_three_keys() {
    let space = Space::new().file("a.txt", "hello\n");
    let called = space.tool_text("read", r#"{"path":"a.txt"}"#);
    assert!(called.line.starts_with(r#"{"success":true,"data":{"#), "{}", called.line);
    assert!(called.line.ends_with("},\"error\":null}\n"), "{}", called.line);
    assert_eq!(called.line.lines().count(), 1);
    assert_eq!(called.data()["text"], "hello\n");
    assert_eq!(called.code, Some(0));
}

#[test]
fn failures_are_envelopes_with_their_code() {
    let space = Space::new().file("a.txt", "hello\n");
    symlink(space.outside(), space.ws().join("linked")).unwrap();
    symlink("..", space.ws().join("up")).unwrap();
    let outside = space.outside().join("secret");
    for (tool, args, code) in [
        ("read", json!({"path": "missing.txt"}), "not_found"),
        ("read", json!({"path": "../outside/secret"}), "outside_workspace"),
        ("read", json!({"path": "/etc/passwd"}), "outside_workspace"),
        ("read", json!({"path": outside}), "outside_workspace"),
        ("read", json!({"path": "linked/secret"}), "outside_workspace"),
        ("read", json!({"path": "up/outside/secret"}), "outside_workspace"),
        ("write", json!({"path": "linked/new", "content": "x"}), "outside_workspace"),
        ("write", json!({"path": "up/new", "content": "x"}), "outside_workspace"),
        ("edit", json!({"path": "linked/secret", "old_string": "outside", "new_string": "inside"}), "outside_workspace"),
        ("ls", json!({"path": "linked/."}), "outside_workspace"),
        ("grep", json!({"pattern": "secret", "path": "linked"}), "outside_workspace"),
        ("find", json!({"pattern": "*", "path": "linked"}), "outside_workspace"),
        ("sandbox_bash", json!({"command": "true", "workdir": "linked"}), "outside_workspace"),
        ("no_such_tool", json!({}), "unknown_tool"),
        ("read", json!({}), "invalid_arguments"),
    ] {
        let called = space.tool(tool, args.clone());
        assert_eq!(called.fault(), code, "{tool} {args}: {}", called.line);
        assert!(called.envelope["error"].as_str().unwrap().starts_with(&format!("{code}: ")), "{}", called.line);
        assert_eq!(called.code, Some(1), "{tool} {args}");
    }
    assert_eq!(std::fs::read_to_string(outside).unwrap(), "the outside secret\n");
    assert_eq!(std::fs::read_dir(space.outside()).unwrap().count(), 1);
}

#[test]
fn broken_json_is_an_envelope_with_its_position() {
    let space = Space::new();
    let called = space.tool_text("read", r#"{"path": "a.txt""#);
    assert_eq!(called.fault(), "malformed_call");
    assert_eq!(called.envelope["data"]["line"], 1);
    assert_eq!(called.code, Some(1));
}

#[test]
fn an_unknown_key_is_a_warning_that_names_the_nearest() {
    let space = Space::new().file("a.txt", "hello\n");
    let called = space.tool("read", json!({"path": "a.txt", "ofset": 1}));
    let warnings = called.data()["warnings"].to_string();
    assert!(warnings.contains("ofset") && warnings.contains("offset"), "{warnings}");
}

#[test]
fn what_cannot_be_printed_is_a_failure_that_is_said() {
    let space = Space::new();
    for args in [&["tools"][..], &["policy", "list"], &["policy", "show", "build"], &["man"], &["tool", "ls"], &["models", "list"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = space.command(args).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.contains("standard output: No space left")), (Some(1), true), "{args:?}: {said}");
    }
}

#[test]
fn a_tool_that_the_policy_does_not_offer_is_no_unknown_one() {
    let space = Space::new();
    let output = space.run(["-p", "observe", "tool", "write", r#"{"path":"x","content":"y"}"#]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.contains("tool_denied: the policy observe does not offer write") && output.status.code() == Some(1), "{line}");
}

#[test]
fn a_workspace_in_the_shared_memory_is_one_like_any_other() {
    let shm = Path::new("/dev/shm");
    let probe = shm.join(format!("bailiwick-probe-{}", std::process::id()));
    if std::fs::create_dir(&probe).is_err() {
        skip!("nothing can be made in /dev/shm");
    }
    std::fs::remove_dir(&probe).unwrap();
    let space = Space::beneath(shm).file("a.txt", "hello\n");
    // What others keep there is not the session's.
    let others = shm.join(format!("bailiwick-others-{}", std::process::id()));
    std::fs::write(&others, "theirs\n").unwrap();
    assert_eq!(space.tool("read", json!({"path": "a.txt"})).data()["text"], "hello\n");
    space.tool("write", json!({"path": "b.txt", "content": "new\n"})).data();
    for rung in [&[][..], &["--without-namespaces"]] {
        let script = format!("cat a.txt b.txt && echo more >> b.txt; cat {0}; echo no > {0}; rm -f {0}", others.display());
        let args = json!({ "command": script }).to_string();
        let output = space.run(rung.iter().copied().chain(["tool", "sandbox_bash", &args]));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(r#"hello\nnew\n"#) && !text.contains("theirs"), "{rung:?}: {text}");
        assert_eq!(std::fs::read_to_string(&others).unwrap(), "theirs\n", "{rung:?}");
        assert_eq!(std::fs::read_to_string(space.ws().join("b.txt")).unwrap(), "new\nmore\n", "{rung:?}");
        std::fs::write(space.ws().join("b.txt"), "new\n").unwrap();
    }
    std::fs::remove_file(&others).unwrap();
}
