use crate::envelope::FaultCode;
use crate::policy::Access;
use crate::tools::testing::{Workspace, own_process};
use crate::workspace::{Hash, RelPath};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn warnings(data: &Value) -> String {
    data.get("warnings").map(Value::to_string).unwrap_or_default()
}

#[test]
fn a_write_says_what_it_did() {
    own_process(|| {
        let ws = Workspace::new();
        ws.confined(Access::Change, |desk| {
            let answer = desk.answer("write", json!({"path": "a/f.txt", "content": "one\ntwo\n"}));
            assert_eq!(answer.text, "created a/f.txt (8 bytes, 2 lines)");
            let data = answer.envelope.data();
            assert_eq!(data["action"], "created");
            assert_eq!(data["hash"], Hash::of(b"one\ntwo\n").to_string());
            assert!(data.get("diff").is_none());

            let answer = desk.answer("write", json!({"file_path": "a/f.txt", "contents": "one\n2\n"}));
            assert_eq!(answer.text, "replaced a/f.txt (6 bytes, 2 lines, +1 -1)\n@@ -1,2 +1,2 @@\n one\n-two\n+2");
            assert_eq!(answer.envelope.data()["added_lines"], 1);
            assert_eq!(answer.envelope.data()["removed_lines"], 1);

            let before = fs::metadata(ws.at("a/f.txt")).unwrap();
            let data = desk.done("write", json!({"path": "a/f.txt", "content": "one\n2\n"}));
            assert_eq!(data["action"], "unchanged");
            assert_eq!(fs::metadata(ws.at("a/f.txt")).unwrap().ino(), before.ino());
        });
        assert_eq!(ws.bytes("a/f.txt"), b"one\n2\n");
    });
}

#[test]
fn a_file_that_changed_since_it_was_read_is_not_overwritten() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), "read").unwrap();
        ws.confined(Access::Change, |desk| {
            desk.memory.note(&RelPath::from_relative("f"), Some(Hash::of(b"read")));
            fs::write(ws.at("f"), "theirs").unwrap();
            let envelope = desk.call("write", json!({"path": "f", "content": "ours"}));
            assert_eq!(envelope.code(), Some(FaultCode::StaleFile));
            let current = envelope.data()["hash"].clone();
            assert_eq!(current, Hash::of(b"theirs").to_string());
            assert_eq!(ws.bytes("f"), b"theirs");
            // An append destroys nothing, and is no licence to overwrite what it did not read either.
            let data = desk.done("write", json!({"path": "f", "content": "ours", "mode": "append"}));
            assert!(warnings(&data).contains("has changed"), "{data}");
            assert_eq!(desk.refused("write", json!({"path": "f", "content": "ours"})), FaultCode::StaleFile);
            fs::write(ws.at("f"), "theirs").unwrap();
            assert_eq!(desk.refused("write", json!({"path": "f", "content": "ours", "dry_run": true})), FaultCode::StaleFile);
            // The current hash overrides; any other does not.
            let wrong = Hash::of(b"x").to_string();
            assert_eq!(desk.refused("write", json!({"path": "f", "content": "ours", "expected_hash": wrong})), FaultCode::StaleFile);
            desk.done("write", json!({"path": "f", "content": "ours", "expected_hash": current}));
            // Our own last write is not stale.
            desk.done("write", json!({"path": "f", "content": "ours again"}));
            assert_eq!(desk.refused("write", json!({"path": "gone", "content": "x", "expected_hash": wrong})), FaultCode::StaleFile);
            assert_eq!(desk.refused("write", json!({"path": "f", "content": "x", "expected_hash": "abc"})), FaultCode::InvalidArguments);
        });
    });
}

#[test]
fn a_new_mtime_alone_is_not_stale() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), "same").unwrap();
        ws.confined(Access::Change, |desk| {
            desk.memory.note(&RelPath::from_relative("f"), Some(Hash::of(b"same")));
            fs::write(ws.at("f"), "same").unwrap();
            desk.done("write", json!({"path": "f", "content": "new"}));
        });
    });
}

#[test]
fn appending_starts_a_line_of_its_own() {
    own_process(|| {
        let ws = Workspace::new();
        ws.confined(Access::Change, |desk| {
            for (old, tail, new) in [
                ("hello\nworld", "tail", "hello\nworld\ntail"),
                ("hello\nworld\n", "tail\n", "hello\nworld\ntail\n"),
                ("a\r\nb", "c\r\n", "a\r\nb\r\nc\r\n"),
                ("", "x", "x"),
                ("x", "", "x"),
            ] {
                fs::write(ws.at("f"), old).unwrap();
                desk.memory.note(&RelPath::from_relative("f"), None);
                desk.done("write", json!({"path": "f", "content": tail, "mode": "append"}));
                assert_eq!(ws.bytes("f"), new.as_bytes());
            }
            assert_eq!(desk.done("write", json!({"path": "new", "content": "x", "mode": "append"}))["action"], "created");
            fs::write(ws.at("wide"), b"\xff\xfeh\0").unwrap();
            assert_eq!(desk.refused("write", json!({"path": "wide", "content": "x", "mode": "append"})), FaultCode::NotEncodable);
        });
    });
}

#[test]
fn content_is_exact_and_a_lost_form_is_said() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), b"\xef\xbb\xbfhello\r\nx\r\n").unwrap();
        ws.confined(Access::Change, |desk| {
            let data = desk.done("write", json!({"path": "f", "content": "hello\ny\n"}));
            assert!(warnings(&data).contains("byte order mark") && warnings(&data).contains("CRLF"), "{data}");
            assert_eq!(ws.bytes("f"), b"hello\ny\n");
            let data = desk.done("write", json!({"path": "x.sh", "content": "#!/bin/sh\n"}));
            assert_eq!(warnings(&data), "");
            assert_eq!(ws.bytes("x.sh"), b"#!/bin/sh\n");
        });
    });
}

#[test]
fn modes_create_and_dry_run() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("old"), "old").unwrap();
        fs::set_permissions(ws.at("old"), fs::Permissions::from_mode(0o755)).unwrap();
        ws.confined(Access::Change, |desk| {
            assert_eq!(desk.refused("write", json!({"path": "old", "content": "x", "mode": "create"})), FaultCode::AlreadyExists);
            assert_eq!(desk.refused("create", json!({"path": "old", "content": "x"})), FaultCode::AlreadyExists);
            let data = desk.done("write", json!({"path": "d/new", "content": "x", "dry_run": true}));
            assert_eq!((&data["action"], &data["dry_run"]), (&json!("created"), &json!(true)));
            assert!(!ws.at("d").exists());
            let data = desk.done("write", json!({"path": "old", "content": "new", "dry_run": true}));
            assert_eq!(data["action"], "replaced");
            assert_eq!(ws.bytes("old"), b"old");
            desk.done("write", json!({"path": "old", "content": "new"}));
            assert_eq!(fs::metadata(ws.at("old")).unwrap().mode() & 0o7777, 0o755);
            desk.done("create", json!({"path": "run.sh", "content": "#!/bin/sh\n", "executable": true}));
            assert_ne!(fs::metadata(ws.at("run.sh")).unwrap().mode() & 0o111, 0);
            assert_eq!(desk.done("create", json!({"path": "empty"}))["bytes"], 0);
            let options = json!({"path": "no/f", "content": "x", "create_dirs": false});
            assert_eq!(desk.refused("write", options), FaultCode::NotFound);
            assert_eq!(desk.refused("write", json!({"path": "f"})), FaultCode::InvalidArguments);
            assert_eq!(desk.refused("write", json!({"content": "x"})), FaultCode::InvalidArguments);
        });
    });
}

#[test]
fn nothing_leaves_the_workspace() {
    own_process(|| {
        let ws = Workspace::new();
        symlink("../outside/secret", ws.at("doc")).unwrap();
        symlink("../outside/new", ws.at("dangling")).unwrap();
        symlink("..", ws.at("sub")).unwrap();
        fs::write(ws.at("f"), "f").unwrap();
        ws.confined(Access::Change, |desk| {
            let out = FaultCode::OutsideWorkspace;
            let outside = ws.at("../outside/secret").to_string_lossy().into_owned();
            for path in ["doc", "dangling", "sub/x", "sub/outside/secret", "../x", "../ws-secret/creds", "/etc/passwd", &outside] {
                for mode in ["overwrite", "create", "append"] {
                    assert_eq!(desk.refused("write", json!({"path": path, "content": "x", "mode": mode})), out, "{path} {mode}");
                }
                assert_eq!(desk.refused("write", json!({"path": path, "content": "x", "dry_run": true})), out, "{path}");
                assert_eq!(desk.refused("create", json!({"path": path, "content": "x"})), out, "{path}");
                assert_eq!(desk.refused("copy", json!({"source": "f", "destination": path, "overwrite": true})), out, "{path}");
            }
            for path in ["sub/x", "../x", "/tmp/x", "sub/outside/secret"] {
                assert_eq!(desk.refused("rename", json!({"source": "f", "destination": path, "overwrite": true})), out, "{path}");
                assert_eq!(desk.refused("rename", json!({"source": path, "destination": "g"})), out, "{path}");
                assert_eq!(desk.refused("copy", json!({"source": path, "destination": "g"})), out, "{path}");
                assert_eq!(desk.refused("mkdir", json!({"path": path})), out, "{path}");
            }
            // A link is copied and renamed itself, wherever it leads.
            desk.done("copy", json!({"from": "doc", "to": "doc2"}));
            desk.done("rename", json!({"from": "doc2", "to": "doc3"}));
            assert_eq!(fs::read_link(ws.at("doc3")).unwrap().to_string_lossy(), "../outside/secret");
            // An absolute path inside is rebased.
            let inside = ws.at("made").to_string_lossy().into_owned();
            assert_eq!(desk.done("write", json!({"path": inside, "content": "x"}))["path"], "made");
        });
        ws.assert_outside_untouched();
    });
}

#[test]
fn special_files_are_refused_at_once() {
    own_process(|| {
        let ws = Workspace::new();
        nix::unistd::mkfifo(&ws.at("p"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        ws.confined(Access::Change, |desk| {
            let start = std::time::Instant::now();
            for mode in ["overwrite", "append"] {
                assert_eq!(desk.refused("write", json!({"path": "p", "content": "x", "mode": mode})), FaultCode::NotRegularFile);
            }
            assert_eq!(desk.refused("copy", json!({"source": "p", "destination": "q"})), FaultCode::NotRegularFile);
            assert!(start.elapsed() < std::time::Duration::from_millis(50));
            assert_eq!(desk.refused("write", json!({"path": ".", "content": "x"})), FaultCode::IsDirectory);
        });
    });
}

#[test]
fn names_that_are_not_text_work() {
    own_process(|| {
        use std::os::unix::ffi::OsStrExt;
        let ws = Workspace::new();
        ws.confined(Access::Change, |desk| {
            let data = desk.done("write", json!({"path": "a\\xff b", "content": "x"}));
            assert_eq!(data["path"], "a\\xff b");
            assert!(ws.at("").join(std::ffi::OsStr::from_bytes(b"a\xff b")).exists());
        });
    });
}
