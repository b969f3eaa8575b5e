//! The tool, in a confined thread: spellings, staleness, patches, all files or none.

use crate::envelope::FaultCode;
use crate::policy::Access;
use crate::tools::testing::{Workspace, own_process};
use crate::workspace::{Hash, RelPath};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn an_edit_says_what_it_did() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), "one\ntwo\nthree\n").unwrap();
        ws.confined(Access::Change, |desk| {
        let answer = desk.answer("edit", json!({"path": "f", "old_string": "two", "new_string": "2"}));
        assert_eq!(answer.text, "edited f (+1 -1)\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three");
        let data = answer.envelope.data();
        assert_eq!(data["path"], "f");
        assert_eq!(data["edits"], json!([{"edit": 1, "rung": "exact", "replaced": 1, "lines": [[2, 2]]}]));
        assert_eq!(data["hash"], Hash::of(b"one\n2\nthree\n").to_string());
        assert_eq!(data["encoding"], "utf-8");

        let edits = json!([{"old_string": "one\n", "new_string": "1\n"}, {"old_string": "three \n", "new_string": "3\n"}]);
        let answer = desk.answer("edit", json!({"path": "f", "edits": edits, "dry_run": true}));
        assert_eq!(
            answer.text,
            "would edit f (+2 -2)\nedit 1: line 1\nedit 2: line 3; matched with other blanks at line ends\n@@ -1,3 +1,3 @@\n-one\n+1\n 2\n-three\n+3"
        );
        assert_eq!(ws.bytes("f"), b"one\n2\nthree\n");
    });
    });
}

#[test]
fn every_spelling_is_taken() {
    own_process(|| {
        // T24.
        let ws = Workspace::new();
        let calls = [
            json!({"file_path": "f", "old_str": "a", "new_str": "b"}),
            json!({"filePath": "f", "oldString": "a", "newString": "b", "replaceAll": "true"}),
            json!({"path": "f", "before": "a", "after": "b", "allow_multiple": false}),
            json!({"path": "f", "search": "a", "replace": "b"}),
            json!({"path": "f", "edits": [{"oldText": "a", "newText": "b"}]}),
            json!({"path": "f", "edits": "[{\"oldText\":\"a\",\"newText\":\"b\"}]"}),
            json!({"path": "f", "edits": ["{\"old_text\":\"a\",\"new_text\":\"b\"}"]}),
            json!({"path": "f", "edits": {"old_string": "a", "new_string": "b", "replace_all": "true", "near_line": "1"}}),
            json!({"edits": [{"path": "f", "old_string": "a", "new_string": "b"}]}),
        ];
        ws.confined(Access::Change, |desk| {
            for call in calls {
                fs::write(ws.at("f"), "a\n").unwrap();
                desk.memory.note(&RelPath::from_relative("f"), Some(Hash::of(b"a\n")));
                let data = desk.done("edit", call.clone());
                assert_eq!(ws.bytes("f"), b"b\n", "{call}");
                let plain = call.get("edits").is_some_and(|edits| edits[0].get("old_string").is_some());
                assert!(plain || data["warnings"].as_array().is_some_and(|warnings| !warnings.is_empty()), "{call}");
            }
            for (edits, byte) in [(json!("[{\"oldText\": \"a\", \"newText\": }]"), 29), (json!(["{\"oldText\": \"a\" \"x\"}"]), 16)] {
                let envelope = desk.call("edit", json!({"path": "f", "edits": edits}));
                assert_eq!(envelope.code(), Some(FaultCode::InvalidArguments));
                assert_eq!(envelope.data()["byte"], byte, "{:?}", envelope.error());
            }
            for broken in [
                json!({"path": "f"}),
                json!({"path": "f", "old_string": "a"}),
                json!({"old_string": "a", "new_string": "b"}),
                json!({"path": "f", "edits": []}),
                json!({"path": "f", "edits": [{"old_string": "a"}]}),
                json!({"path": "f", "edits": [{"old_string": "a", "new_string": "b"}], "old_string": "a"}),
                json!({"path": "f", "edits": [{"old_string": "a", "oldText": "c", "new_string": "b"}]}),
                json!({"path": "f", "old_string": "a", "new_string": "b", "insert_line": 1}),
            ] {
                assert_eq!(desk.refused("edit", broken.clone()), FaultCode::InvalidArguments, "{broken}");
            }
        });
    });
}

#[test]
fn a_file_that_changed_is_not_edited_unseen() {
    own_process(|| {
        // T48, T49.
        let ws = Workspace::new();
        fs::write(ws.at("f"), "a\n").unwrap();
        ws.confined(Access::Change, |desk| {
            desk.memory.note(&RelPath::from_relative("f"), Some(Hash::of(b"a\n")));
            fs::write(ws.at("f"), "a\nx\n").unwrap();
            let envelope = desk.call("edit", json!({"path": "f", "old_string": "a", "new_string": "b"}));
            assert_eq!(envelope.code(), Some(FaultCode::StaleFile));
            let hash = envelope.data()["hash"].clone();
            desk.done("edit", json!({"path": "f", "old_string": "a", "new_string": "b", "expected_hash": hash}));
            // The same bytes with a new time stamp, and our own last write, are not stale.
            fs::write(ws.at("f"), "b\nx\n").unwrap();
            desk.done("edit", json!({"path": "f", "old_string": "b", "new_string": "c"}));
            assert_eq!(
                desk.refused("edit", json!({"path": "f", "old_string": "c", "new_string": "d", "expected_hash": hash})),
                FaultCode::StaleFile
            );
        });
        assert_eq!(ws.bytes("f"), b"c\nx\n");
    });
}

#[test]
fn edits_at_the_same_time_are_all_there() {
    own_process(|| {
        // T47.
        let ws = Workspace::new();
        let file: String = (1..=100).map(|n| format!("line {n};\n")).collect();
        fs::write(ws.at("f"), &file).unwrap();
        let edit = |mine: usize| {
            ws.confined(Access::Change, |desk| {
                for n in (1..=100).filter(|n| n % 4 == mine) {
                    let (old, new) = (format!("line {n};"), format!("LINE {n};"));
                    // What others wrote is not known to this jail; in a session it is told of it.
                    let known = Hash::of(&ws.bytes("f"));
                    desk.memory.note(&RelPath::from_relative("f"), Some(known));
                    let mut code = desk.call("edit", json!({"path": "f", "old_string": old, "new_string": new})).code();
                    while code == Some(FaultCode::StaleFile) {
                        desk.memory.note(&RelPath::from_relative("f"), Some(Hash::of(&ws.bytes("f"))));
                        code = desk.call("edit", json!({"path": "f", "old_string": old, "new_string": new})).code();
                    }
                    assert_eq!(code, None);
                }
            })
        };
        let ran = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|mine| scope.spawn(move || edit(mine).is_some())).collect();
            threads.into_iter().all(|thread| thread.join().unwrap())
        });
        if ran {
            assert_eq!(ws.bytes("f"), file.replace("line", "LINE").as_bytes());
        }
    });
}

#[test]
fn links_modes_and_the_outside_are_left_as_they_are() {
    own_process(|| {
        // T40, T42, T53.
        let ws = Workspace::new();
        fs::write(ws.at("real"), "a\n").unwrap();
        fs::set_permissions(ws.at("real"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("real", ws.at("link")).unwrap();
        symlink("../outside/secret", ws.at("out")).unwrap();
        ws.confined(Access::Change, |desk| {
            let data = desk.done("edit", json!({"path": "link", "old_string": "a", "new_string": "b"}));
            assert_eq!(data["path"], "real");
            assert_eq!(desk.refused("edit", json!({"path": "out", "old_string": "s", "new_string": "x"})), FaultCode::OutsideWorkspace);
            assert_eq!(desk.refused("edit", json!({"path": "none", "old_string": "s", "new_string": "x"})), FaultCode::NotFound);
            assert_eq!(desk.refused("edit", json!({"path": ".", "old_string": "s", "new_string": "x"})), FaultCode::IsDirectory);
            let patch = "*** Begin Patch\n*** Update File: real\n-b\n+c\n*** Add File: ../outside/new\n+x\n*** End Patch";
            let envelope = desk.call("edit", json!({"patch": patch}));
            assert_eq!(envelope.code(), Some(FaultCode::OutsideWorkspace));
        });
        ws.assert_outside_untouched();
        assert_eq!(ws.bytes("real"), b"b\n");
        assert_eq!(fs::metadata(ws.at("real")).unwrap().mode() & 0o777, 0o755);
        assert!(fs::symlink_metadata(ws.at("link")).unwrap().is_symlink());
    });
}

const PY: &str = "import os\n\ndef f():\n    pass\n\ndef g():\n    pass\n";

#[test]
fn a_diff_removes_what_it_shows_and_nothing_else() {
    own_process(|| {
        let ws = Workspace::new();
        let diff = |name: &str, hunks: &str| json!({"patch": format!("--- a/{name}\n+++ /dev/null\n{hunks}")});
        ws.confined(Access::Change, |desk| {
            for (content, hunks, gone) in [
                ("a\nb\n", "@@ -1,2 +0,0 @@\n-a\n-b\n", true),
                ("a\r\nb\r\n", "@@ -1,2 +0,0 @@\n-a\n-b\n", true),
                ("a\nb", "@@ -1,2 +0,0 @@\n-a\n-b\n\\ No newline at end of file\n", true),
                ("a\nb", "@@ -1,2 +0,0 @@\n-a\n-b\n", true),
                ("", "", true),
                ("precious\n", "@@ -1,1 +0,0 @@\n-old line\n", false),
                ("a\nb\nc\nd\n", "@@ -1,3 +0,0 @@\n-a\n-b\n-c\n", false),
                ("a\nb\n", "@@ -2,1 +0,0 @@\n-b\n", false),
                ("a\n", "", false),
            ] {
                fs::write(ws.at("f"), content).unwrap();
                let envelope = desk.call("edit", diff("f", hunks));
                assert_eq!(envelope.success(), gone, "{content:?} {hunks:?}: {envelope:?}");
                assert_eq!(fs::exists(ws.at("f")).unwrap(), !gone, "{content:?} {hunks:?}");
                if !gone {
                    assert_eq!(envelope.data()["code"], "no_match", "{content:?} {hunks:?}: {envelope:?}");
                    assert_eq!(ws.bytes("f"), content.as_bytes());
                }
                desk.memory.note(&RelPath::from_relative("f"), None);
            }
        });
    });
}

#[test]
fn patches_go_by_the_same_engine() {
    own_process(|| {
        // T36.
        let ws = Workspace::new();
        let rows: &[(&str, Result<&str, FaultCode>)] = &[
            (
                "*** Begin Patch\n*** Update File: p.py\n@@ def g():\n-    pass\n+    return 1\n*** End Patch",
                Ok("import os\n\ndef f():\n    pass\n\ndef g():\n    return 1\n"),
            ),
            (
                "*** Begin Patch\n*** Update File: p.py\n@@ def f():\n+    x = 1\n*** End Patch",
                Ok("import os\n\ndef f():\n    x = 1\n    pass\n\ndef g():\n    pass\n"),
            ),
            (
                "*** Begin Patch\n*** Update File: p.py\n@@\n import os\n+import re\n \n@@ def f():\n-    pass\n+    return re\n \n*** End Patch",
                Ok("import os\nimport re\n\ndef f():\n    return re\n\ndef g():\n    pass\n"),
            ),
            ("*** Begin Patch\n*** Update File: p.py\n@@\n-    pass\n+    return 1\n*** End Patch", Err(FaultCode::Ambiguous)),
            ("*** Begin Patch\n*** Update File: p.py\n@@\n-    gone\n+    return 1\n*** End Patch", Err(FaultCode::NoMatch)),
            ("*** Begin Patch\n*** Update File: p.py\n@@\n-def g\n+def h\n*** End Patch", Err(FaultCode::NoMatch)),
            ("*** Begin Patch\n*** Update File: p.py\n@@ def nowhere():\n+    x = 1\n*** End Patch", Err(FaultCode::NoMatch)),
            ("*** Begin Patch\n*** Update File: p.py\n@@\n+x = 1\n*** End Patch", Err(FaultCode::InvalidPatch)),
            (
                "*** Begin Patch\n*** Update File: p.py\n@@\n-    pass\n+    return 2\n*** End of File\n*** End Patch",
                Ok("import os\n\ndef f():\n    pass\n\ndef g():\n    return 2\n"),
            ),
            (
                "--- a/p.py\n+++ b/p.py\n@@ -6,2 +6,2 @@\n-    pass\n+    return 3\n",
                Ok("import os\n\ndef f():\n    pass\n\ndef g():\n    return 3\n"),
            ),
            (
                "--- a/p.py\n+++ b/p.py\n@@ -1,3 +1,3 @@\n-import os\n+import sys\n \n def f():\n@@ -3,3 +3,3 @@\n def f():\n-    pass\n+    return 4\n \n",
                Ok("import sys\n\ndef f():\n    return 4\n\ndef g():\n    pass\n"),
            ),
            (
                "p.py\n<<<<<<< SEARCH\ndef g():\n    pass\n=======\ndef g():\n    return 5\n>>>>>>> REPLACE\n",
                Ok("import os\n\ndef f():\n    pass\n\ndef g():\n    return 5\n"),
            ),
        ];
        ws.confined(Access::Change, |desk| {
            for (patch, wanted) in rows {
                for eol in ["\n", "\r\n"] {
                    let before = PY.replace('\n', eol);
                    fs::write(ws.at("p.py"), &before).unwrap();
                    desk.memory.note(&RelPath::from_relative("p.py"), Some(Hash::of(before.as_bytes())));
                    let envelope = desk.call("edit", json!({"patch": patch}));
                    assert_eq!(envelope.code(), wanted.err(), "{patch}\n{:?}", envelope.error());
                    let after = String::from_utf8(ws.bytes("p.py")).unwrap();
                    assert_eq!(after, wanted.map_or(before, |after| after.replace('\n', eol)), "{patch}");
                }
            }
        });
    });
}

#[test]
fn several_files_are_changed_or_none() {
    own_process(|| {
        let ws = Workspace::new();
        let reset = || {
            fs::write(ws.at("a"), "a\n").unwrap();
            fs::write(ws.at("b"), "b\n").unwrap();
            fs::write(ws.at("d"), "d\n").unwrap();
        };
        let patch = |b: &str| {
            format!(
                "*** Begin Patch\n*** Update File: a\n-a\n+A\n*** Update File: b\n*** Move to: sub/c\n-{b}\n+B\n*** Delete File: d\n*** Add File: new/e\n+e\n*** End Patch"
            )
        };
        ws.confined(Access::Change, |desk| {
        reset();
        let envelope = desk.call("edit", json!({"patch": patch("wrong")}));
        assert_eq!(envelope.code(), Some(FaultCode::NoMatch));
        let verdicts: Vec<&Value> = envelope.data()["files"].as_array().unwrap().iter().map(|file| &file["verdict"]).collect();
        assert_eq!(verdicts, ["would_apply", "no_match", "would_apply", "would_apply"]);
        assert_eq!((ws.bytes("a"), ws.bytes("d")), (b"a\n".to_vec(), b"d\n".to_vec()));

        let data = desk.done("edit", json!({"patch": patch("b"), "dry_run": true}));
        assert_eq!(data["files"].as_array().unwrap().len(), 4);
        assert!(ws.at("b").exists() && ws.at("d").exists() && !ws.at("new").exists());

        // The last write fails: what was done before it is put back.
        let broken = "*** Begin Patch\n*** Update File: a\n-a\n+A\n*** Update File: b\n*** Move to: c\n-b\n+B\n*** Add File: x\n+x\n*** Add File: x/y\n+y\n*** End Patch";
        let envelope = desk.call("edit", json!({"patch": broken}));
        assert_eq!(envelope.code(), Some(FaultCode::NotDirectory), "{:?}", envelope.error());
        assert_eq!(envelope.data()["rolled_back"], 4);
        assert_eq!((ws.bytes("a"), ws.bytes("b")), (b"a\n".to_vec(), b"b\n".to_vec()));
        assert!(!ws.at("c").exists() && !ws.at("x").exists());

        let answer = desk.answer("edit", json!({"patch": patch("b")}));
        assert!(answer.envelope.success(), "{:?}", answer.envelope.error());
        assert!(answer.text.contains("moved b to sub/c") && answer.text.contains("deleted d"), "{}", answer.text);
        assert_eq!((ws.bytes("a"), ws.bytes("sub/c"), ws.bytes("new/e")), (b"A\n".to_vec(), b"B\n".to_vec(), b"e\n".to_vec()));
        assert!(!ws.at("b").exists() && !ws.at("d").exists());
        // What was moved can be edited on.
        desk.done("edit", json!({"path": "sub/c", "old_string": "B", "new_string": "C"}));
    });
    });
}

#[test]
fn utf16_has_a_diff_of_its_text() {
    own_process(|| {
        let ws = Workspace::new();
        fs::write(ws.at("f"), b"\xff\xfeh\0i\0\n\0").unwrap();
        ws.confined(Access::Change, |desk| {
            let answer = desk.answer("edit", json!({"path": "f", "old_string": "hi", "new_string": "ho"}));
            assert_eq!(answer.text, "edited f (+1 -1)\n@@ -1 +1 @@\n-hi\n+ho");
            assert_eq!(answer.envelope.data()["encoding"], "utf-16le");
        });
        assert_eq!(ws.bytes("f"), b"\xff\xfeh\0o\0\n\0");
    });
}
