//! `edit` with patches: three notations, one engine. What holds for an edit holds for each of them.

use crate::desk::{Desk, Row, run};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

#[test]
fn patches_are_edits() {
    run(ROWS);
}

/// A change of one file: its lines as they are, with what stands around, and as they shall be.
type Change<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);

/// Puts a file of which the session has never read or written anything: what is copied is not known.
fn put(d: &Desk, path: &str, content: impl AsRef<[u8]>) {
    d.put("source-of-patched", content);
    d.done("copy", json!({"source": "source-of-patched", "destination": path, "overwrite": true}));
}

/// The same changes in each notation: a line of context, lines that go, lines that come.
fn notations(changes: &[Change<'_>]) -> [(&'static str, String); 3] {
    let signed = |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign}{line}\n")).collect::<String>();
    let hunk = |(_, context, old, new): &Change<'_>| signed(' ', context) + &signed('-', old) + &signed('+', new);
    let plain = |lines: &[&[&str]]| lines.concat().iter().map(|line| format!("{line}\n")).collect::<String>();
    let blocks: String = changes.iter().map(|change| format!("*** Update File: {}\n@@\n{}", change.0, hunk(change))).collect();
    let search: String = changes
        .iter()
        .map(|(path, context, old, new)| {
            let (old, new) = (plain(&[context, old]), plain(&[context, new]));
            format!("{path}\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n")
        })
        .collect();
    let unified: String = changes
        .iter()
        .map(|change| {
            let (path, context, old, new) = change;
            let (before, after) = (context.len() + old.len(), context.len() + new.len());
            format!("--- a/{path}\n+++ b/{path}\n@@ -1,{before} +1,{after} @@\n{}", hunk(change))
        })
        .collect();
    [("apply_patch", format!("*** Begin Patch\n{blocks}*** End Patch\n")), ("search_replace", search), ("unified", unified)]
}

const ROWS: &[Row] = &[
    ("bytes that are not named stay", |d| {
        for (name, before, after) in [
            ("crlf", &b"one\r\ntwo\r\nthree\r\n"[..], &b"one\r\n2\r\nzwei\r\nthree\r\n"[..]),
            ("latin1", b"one\ntwo\ncaf\xe9 \xff\0\n", b"one\n2\nzwei\ncaf\xe9 \xff\0\n"),
            ("mark", b"\xef\xbb\xbfone\ntwo\r\nthree", b"\xef\xbb\xbfone\n2\r\nzwei\r\nthree"),
            ("utf16", b"\xff\xfeo\0n\0e\0\n\0t\0w\0o\0\n\0z\0", b"\xff\xfeo\0n\0e\0\n\x002\0\n\0z\0w\0e\0i\0\n\0z\0"),
            ("cr", b"one\rtwo\rthree\r", b"one\r2\rzwei\rthree\r"),
        ] {
            let path = format!("stay/{name}");
            for (notation, patch) in notations(&[(&path, &["one"], &["two"], &["2", "zwei"])]) {
                put(d, &path, before);
                d.done("edit", json!({"patch": patch}));
                assert_eq!(d.bytes(&path), after, "{notation} {name}");
            }
        }
    }),
    ("context that is absent", |d| {
        for (notation, patch) in notations(&[("absent", &["one"], &["zwei"], &["2"])]) {
            put(d, "absent", "one\ntwo\nthree\n");
            let (code, said) = d.refused("edit", json!({"patch": patch}));
            assert_eq!(code, "no_match", "{notation}");
            assert!(said.to_string().contains("two"), "{notation}: what is there is shown: {said}");
            assert_eq!(d.bytes("absent"), b"one\ntwo\nthree\n", "{notation}");
        }
        // The numbers of a hunk's head are a hint, never a place: what is on line 1 is not overwritten.
        let patch = "--- a/absent\n+++ b/absent\n@@ -1,1 +1,1 @@\n-not there\n+x\n";
        assert_eq!(d.refused("edit", json!({"patch": patch})).0, "no_match");
        assert_eq!(d.bytes("absent"), b"one\ntwo\nthree\n");
    }),
    ("context that is there twice", |d| {
        for (notation, patch) in notations(&[("twice", &["one"], &["two"], &["2"])]) {
            put(d, "twice", "one\ntwo\n\nend\none\ntwo\n");
            let reply = d.call("edit", json!({"patch": patch}));
            // The head of a unified hunk says which of the two is meant; without one it is a guess.
            if notation == "unified" {
                assert_eq!(d.bytes("twice"), b"one\n2\n\nend\none\ntwo\n", "{}", reply.envelope);
            } else {
                assert_eq!(reply.envelope["data"]["code"], "ambiguous", "{notation}: {}", reply.envelope);
                assert_eq!(d.bytes("twice"), b"one\ntwo\n\nend\none\ntwo\n");
            }
        }
    }),
    ("the ladder is the same", |d| {
        for (notation, patch) in notations(&[("ladder", &["    if x:"], &["        y()"], &["        z()"])]) {
            put(d, "ladder", "\tif x:\n\t\ty()\n");
            let data = d.done("edit", json!({"patch": patch}));
            assert_eq!(d.bytes("ladder"), b"\tif x:\n\t\tz()\n", "{notation}: {data}");
            put(d, "ladder", "\tif x:\n\t\ty()\n");
            assert_eq!(d.refused("edit", json!({"patch": patch, "strict": true})).0, "no_match", "{notation}");
            put(d, "ladder", "    if x:\n        z()\n");
            assert_eq!(d.refused("edit", json!({"patch": patch})).0, "already_applied", "{notation}");
        }
    }),
    ("several files are all or nothing", |d| {
        let changes: [Change<'_>; 3] = [
            ("several/a", &["head"], &["old"], &["new"]),
            ("several/b", &["head"], &["old"], &["new"]),
            ("several/c", &["head"], &["old"], &["new"]),
        ];
        for (notation, patch) in notations(&changes) {
            for (a, b, c, code) in [
                ("head\nold\n", "head\nold\n", "head\nold\n", None),
                ("head\nold\n", "head\nOLD\n", "head\nold\n", Some("no_match")),
                ("head\nold\n", "head\nold\n", "head\nnew\n", Some("already_applied")),
            ] {
                for (name, content) in [("a", a), ("b", b), ("c", c)] {
                    put(d, &format!("several/{name}"), content);
                }
                let reply = d.call("edit", json!({"patch": patch}));
                assert_eq!(reply.envelope["data"]["code"].as_str(), code, "{notation}: {}", reply.envelope);
                for (name, content) in [("a", a), ("b", b), ("c", c)] {
                    let wanted = if code.is_none() { "head\nnew\n" } else { content };
                    assert_eq!(d.bytes(&format!("several/{name}")), wanted.as_bytes(), "{notation}, {name}");
                }
                if code.is_some() {
                    assert_eq!(reply.envelope["data"]["files"].as_array().map(Vec::len), Some(3), "{notation}: {}", reply.envelope);
                }
            }
        }
    }),
    ("several files, and the last cannot be written", |d| {
        // That a file has a name outside is only found when it is to be written.
        d.put("rolled/a", "head\nold\n");
        d.put("rolled/b", "head\nold\n");
        fs::set_permissions(d.at("rolled/a"), fs::Permissions::from_mode(0o751)).unwrap();
        fs::hard_link(d.at("rolled/b"), d.space.outside().join("rolled")).unwrap();
        let changes: [Change<'_>; 2] = [("rolled/a", &["head"], &["old"], &["new"]), ("rolled/b", &["head"], &["old"], &["new"])];
        for (notation, patch) in notations(&changes) {
            let (code, said) = d.refused("edit", json!({"patch": patch}));
            assert_eq!((code.as_str(), &said["data"]["rolled_back"]), ("hard_linked", &json!(1)), "{notation}: {said}");
            for path in [d.at("rolled/a"), d.at("rolled/b"), d.space.outside().join("rolled")] {
                assert_eq!(fs::read(&path).unwrap(), b"head\nold\n", "{notation}: {}", path.display());
            }
            assert_eq!(fs::metadata(d.at("rolled/a")).unwrap().mode() & 0o7777, 0o751, "{notation}");
        }
        // A file that was made is gone again, a move is undone, and what was to be removed is there.
        d.put("rolled/m", "moved\n");
        d.put("rolled/d", "stays\n");
        let patch = "*** Begin Patch\n*** Add File: rolled/new\n+x\n*** Update File: rolled/m\n*** Move to: rolled/k\n@@\n-moved\n+changed\n\
             *** Delete File: rolled/d\n*** Update File: rolled/b\n@@\n-old\n+new\n*** End Patch";
        assert_eq!(d.refused("edit", json!({"patch": patch})).0, "hard_linked");
        let mut names: Vec<_> = fs::read_dir(d.at("rolled")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a", "b", "d", "m"]);
        assert_eq!((d.bytes("rolled/m"), d.bytes("rolled/d")), (b"moved\n".to_vec(), b"stays\n".to_vec()));
        fs::remove_file(d.space.outside().join("rolled")).unwrap();
    }),
    ("a file that changed since it was read", |d| {
        for (notation, patch) in notations(&[("stale", &["one"], &["two"], &["2"])]) {
            d.put("stale", "one\ntwo\nthree\n");
            d.done("read", json!({"path": "stale"}));
            d.put("stale", "one\ntwo\nTHREE\n");
            let (code, said) = d.refused("edit", json!({"patch": patch}));
            assert_eq!(code, "stale_file", "{notation}");
            assert!(said["error"].as_str().unwrap().contains("line 3 differs"), "{notation}: {said}");
            d.done("read", json!({"path": "stale"}));
            d.done("edit", json!({"patch": patch}));
            assert_eq!(d.bytes("stale"), b"one\n2\nTHREE\n", "{notation}");
        }
    }),
    ("paths that lead out", |d| {
        let bait = d.space.outside().join("patched");
        fs::write(&bait, "one\ntwo\n").unwrap();
        d.put("out/inside", "one\ntwo\n");
        symlink("../../outside", d.at("out/link")).unwrap();
        symlink("../../outside/patched", d.at("out/file")).unwrap();
        for path in ["../outside/patched", "out/link/patched", "out/file", bait.to_str().unwrap()] {
            let changes: [Change<'_>; 2] = [("out/inside", &["one"], &["two"], &["2"]), (path, &["one"], &["two"], &["2"])];
            for (notation, patch) in notations(&changes) {
                assert_eq!(d.refused("edit", json!({"patch": patch})).0, "outside_workspace", "{notation} {path}");
            }
            for step in [
                format!("Add File: {path}.new\n+x"),
                format!("Delete File: {path}"),
                format!("Update File: out/inside\n*** Move to: {path}2"),
            ] {
                let reply = d.call("edit", json!({"patch": format!("*** Begin Patch\n*** {step}\n*** End Patch")}));
                // Beside a link in the workspace there is room for a new name.
                let beside = path == "out/file" && !step.starts_with("Delete");
                assert!(beside || reply.envelope["data"]["code"] == "outside_workspace", "{step}: {}", reply.envelope);
                d.put("out/inside", "one\ntwo\n");
            }
        }
        assert_eq!(fs::read(&bait).unwrap(), b"one\ntwo\n");
        assert_eq!(d.bytes("out/inside"), b"one\ntwo\n");
        assert_eq!(fs::read_dir(d.space.outside()).unwrap().count(), 2);
        fs::remove_file(bait).unwrap();
    }),
];

/// Rows use names of their own; this one says so for the tree as a whole.
#[test]
fn a_dry_run_of_a_patch_changes_nothing() {
    let d = Desk::new(crate::space::Space::new().file("a", "head\nold\n").file("b", "head\nold\n"));
    for (notation, patch) in notations(&[("a", &["head"], &["old"], &["new"]), ("b", &["head"], &["old"], &["new"])]) {
        let data = d.done("edit", json!({"patch": patch, "dry_run": true}));
        assert_eq!(data["files"].as_array().map(Vec::len), Some(2), "{notation}: {data}");
        assert_eq!((d.bytes("a"), d.bytes("b")), (b"head\nold\n".to_vec(), b"head\nold\n".to_vec()), "{notation}");
    }
}
