//! `edit`: finding the match.

use crate::desk::{Desk, Row, run};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn the_match_is_found_or_refused() {
    run(ROWS);
}

const ROWS: &[Row] = &[
    ("T1", |d| {
        gives(d, "t1", "a\r\nb\r\nc\r\n", "a\nb", "A\nB", "A\r\nB\r\nc\r\n");
    }),
    ("T3", |d| {
        d.put("t3", "one\r\ntwo\r\nthree\r\n");
        one_line_each(d, "t3", "two", "2");
    }),
    ("T4", |d| {
        gives(d, "t4", "a\r\nb\r\nc\r\n", "b", "b1\nb2", "a\r\nb1\r\nb2\r\nc\r\n");
    }),
    ("T6", |d| {
        let data = gives(
            d,
            "t6",
            "\tif x {\n\t\ty()\n\t}\n",
            "    if x {\n        y()\n    }",
            "    if x {\n        z()\n    }",
            "\tif x {\n\t\tz()\n\t}\n",
        );
        assert_ne!(data["edits"][0]["rung"], "exact", "the rung is named: {data}");
    }),
    ("T7", |d| {
        d.put("t7", "\tx\n\ty\n");
        let text = d.call("read", json!({"path": "t7"})).text;
        let line = text.lines().find(|line| line.ends_with("\tx")).unwrap();
        let separator = line.strip_suffix("\tx").unwrap().chars().last().unwrap();
        assert!(!separator.is_whitespace() && separator != '\t' && !separator.is_ascii(), "{line:?}");
        let copied = line.to_owned();
        d.done("edit", json!({"path": "t7", "old_string": copied, "new_string": copied.replace("\tx", "\tz")}));
        assert_eq!(d.bytes("t7"), b"\tz\n\ty\n");
        // One line without a column: the text is taken as it is, and is not there.
        let text = d.call("read", json!({"path": "t7"})).text;
        let first = text.lines().find(|line| line.ends_with("\tz")).unwrap();
        assert_eq!(d.refused("edit", json!({"path": "t7", "old_string": format!("{first}\n\ty"), "new_string": "q"})).0, "no_match");
    }),
    ("T8", |d| {
        let data = gives(d, "t8", "say \u{201c}hi\u{201d} now\n", "say \"hi\" now", "say \"ho\" now", "say \u{201c}ho\u{201d} now\n");
        assert_ne!(data["edits"][0]["rung"], "exact", "{data}");
    }),
    ("T11", |d| {
        let before = "keep \u{2018}a\u{2019} \u{2014} b\u{a0}c  \nsay \u{201c}hi\u{201d} now\nkeep \u{fb01}\n";
        let after = "keep \u{2018}a\u{2019} \u{2014} b\u{a0}c  \nnew\nkeep \u{fb01}\n";
        gives(d, "t11", before, "say \"hi\" now", "new", after);
    }),
    ("T12", |d| {
        d.put("t12", "int    x = 1;\n");
        let (code, said) = d.refused("edit", json!({"path": "t12", "old_string": "int x = 1;", "new_string": "int x = 2;"}));
        assert_eq!(code, "no_match");
        assert!(said.to_string().contains("int    x = 1;"), "the nearest text is shown: {said}");
    }),
    ("T14", |d| {
        d.put("t14", "foo\nbar\n\n\nend\n");
        assert_eq!(d.refused("edit", json!({"path": "t14", "old_string": "foo bar", "new_string": "baz"})).0, "no_match");
        assert_eq!(d.refused("edit", json!({"path": "t14", "old_string": "bar\n\nend", "new_string": "x"})).0, "no_match");
        let reply = d.call("edit", json!({"path": "t14", "old_string": "foo ", "new_string": "baz "}));
        // A blank at the end of a line may be forgiven; the line end is never part of it.
        if reply.envelope["success"] == true {
            assert!(d.bytes("t14").ends_with(b"\nbar\n\n\nend\n"), "{}", reply.envelope);
        } else {
            assert_eq!(d.bytes("t14"), b"foo\nbar\n\n\nend\n");
        }
    }),
    ("T15", |d| refuses(d, "t15", "fn a() {\n  real1\n  real2\n}\n", "fn a() {\n  invented\n}", "no_match")),
    ("T17", |d| {
        let block = |line: &str| format!("func f() {{\n  x := 1\n  {line}\n  z := 3\n  use(x, y, z)\n}}\n");
        d.put("t17", block("y := 2"));
        let (code, said) = d.refused("edit", json!({"path": "t17", "old_string": block("y := 99"), "new_string": block("y := 4")}));
        assert_eq!(code, "no_match");
        assert!(said.to_string().contains("y := 2"), "the line that differs is shown: {said}");
        assert_eq!(d.bytes("t17"), block("y := 2").into_bytes());
    }),
    ("T18", |d| {
        d.put("t18", "debug = True\nx\ndebug = True\n");
        let (code, said) = d.refused("edit", json!({"path": "t18", "old_string": "debug = True", "new_string": "debug = False"}));
        assert_eq!(code, "ambiguous");
        assert_eq!(said["data"]["lines"], json!([1, 3]), "{said}");
        assert_eq!(d.bytes("t18"), b"debug = True\nx\ndebug = True\n");
    }),
    ("T20", |d| refuses(d, "t20", "ababa\n", "aba", "ambiguous")),
    ("T22", |d| {
        let new = r#"log("$& $1 $$ $' $` \1 \\0 ${x}");"#;
        gives(d, "t22", "log();\n", "log();", new, &format!("{new}\n"));
    }),
    ("T23", |d| {
        let line = |number: usize| format!("line {number} of the file, with some text in it\n");
        d.put("t23", (0..12_000).map(line).collect::<String>());
        let old: String = (5000..5200).map(|number| line(number).replace("some", if number == 5100 { "other" } else { "some" })).collect();
        let started = Instant::now();
        let (code, said) = d.refused("edit", json!({"path": "t23", "old_string": old, "new_string": "x"}));
        let took = started.elapsed();
        assert_eq!(code, "no_match");
        assert!(said.to_string().contains("5101"), "the line that differs is named: {}", said["error"]);
        // Debug builds and busy machines are slower than the 50 ms that are meant; a quadratic sweep takes a minute.
        assert!(took < Duration::from_secs(2), "{took:?}");
    }),
    ("T24", |d| {
        for (name, edits) in [
            ("t24a", json!(r#"[{"oldText":"a","newText":"b"}]"#)),
            ("t24b", json!([r#"{"oldText":"a","newText":"b"}"#])),
            ("t24c", json!({"old_str": "a", "new_str": "b"})),
        ] {
            d.put(name, "a\n");
            let data = d.done("edit", json!({"path": name, "edits": edits}));
            assert_eq!(d.bytes(name), b"b\n", "{name}");
            assert!(data["warnings"].as_array().is_some_and(|said| !said.is_empty()), "the repair is named: {data}");
        }
        let (code, said) = d.refused("edit", json!({"path": "t24a", "edits": r#"[{"oldText":"a","newText":}]"#}));
        assert_eq!(code, "invalid_arguments");
        assert!(said["error"].as_str().unwrap().contains("byte") || said["error"].as_str().unwrap().contains("column"), "{said}");
    }),
    ("T25", |d| {
        gives(d, "t25", "one\ntwo\n", "two", "three", "one\nthree\n");
        let (code, said) = d.refused("edit", json!({"path": "t25", "old_string": "two", "new_string": "three"}));
        assert_eq!(code, "already_applied");
        assert!(said["error"].as_str().unwrap().contains("line 2"), "{said}");
    }),
];

/// An edit that has to give these bytes.
#[track_caller]
fn gives(d: &Desk, name: &str, before: &str, old: &str, new: &str, after: &str) -> serde_json::Value {
    d.put(name, before);
    let data = d.done("edit", json!({"path": name, "old_string": old, "new_string": new}));
    assert_eq!(String::from_utf8(d.bytes(name)).unwrap(), after);
    data
}

/// An edit that has to be refused with this code, and to change nothing.
#[track_caller]
fn refuses(d: &Desk, name: &str, before: &str, old: &str, code: &str) {
    d.put(name, before);
    assert_eq!(d.refused("edit", json!({"path": name, "old_string": old, "new_string": "x"})).0, code);
    assert_eq!(d.bytes(name), before.as_bytes());
}

/// After an edit of one line git counts one line added and one deleted.
#[track_caller]
pub(super) fn one_line_each(d: &Desk, name: &str, old: &str, new: &str) {
    let kept = d.space.outside().join(format!("{name}.before"));
    std::fs::copy(d.at(name), &kept).unwrap();
    d.done("edit", json!({"path": name, "old_string": old, "new_string": new}));
    let diff = Command::new("git").args(["diff", "--no-index", "--numstat", "--text"]).arg(&kept).arg(d.at(name)).output().unwrap();
    std::fs::remove_file(kept).unwrap();
    let said = String::from_utf8_lossy(&diff.stdout).into_owned();
    assert_eq!(said.split_whitespace().take(2).collect::<Vec<_>>(), ["1", "1"], "{said}");
}
