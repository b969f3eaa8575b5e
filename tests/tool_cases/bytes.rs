//! `edit` and `write`: bytes, encodings, the newline at the end.

use super::matching::one_line_each;
use crate::desk::{Desk, Row, run};
use serde_json::json;

#[test]
fn bytes_stay_as_they_are() {
    run(ROWS);
}

const ROWS: &[Row] = &[
    ("T26", |d| edit(d, "t26", b"const x = 1;\n// caf\xe9\n", "x = 1", "x = 2", b"const x = 2;\n// caf\xe9\n")),
    ("T27", |d| {
        d.put("t27", b"const x = 1;\n// caf\xe9 \xff\n// na\xefve\n");
        one_line_each(d, "t27", "x = 1", "x = 2");
    }),
    ("T29", |d| edit(d, "t29", b"\xef\xbb\xbfhello\n", "hello", "bye", b"\xef\xbb\xbfbye\n")),
    ("T30", |d| {
        // Content is written exactly; what the old file had and the content has not is said.
        d.put("t30", b"\xef\xbb\xbfhello\r\nx\r\n");
        let data = d.done("write", json!({"path": "t30", "content": "hello\ny\n"}));
        assert_eq!(d.bytes("t30"), b"hello\ny\n");
        let said = data["warnings"].to_string();
        assert!(said.contains("byte order mark") || said.contains("BOM"), "{data}");
        assert!(said.contains("CRLF"), "{data}");
    }),
    ("T31", |d| {
        d.done("write", json!({"path": "t31.sh", "content": "#!/bin/sh\n"}));
        assert_eq!(d.bytes("t31.sh"), b"#!/bin/sh\n");
    }),
    ("T32", |d| {
        d.put("t32", b"\xef\xbb\xbfuse a;\nuse b;\n");
        let data = d.done("read", json!({"path": "t32"}));
        assert_eq!(data["bom"], true);
        let first = data["text"].as_str().unwrap().lines().next().unwrap();
        assert_eq!(first, "use a;");
        d.done("edit", json!({"path": "t32", "old_string": first, "new_string": "use z;", "strict": true}));
        assert_eq!(d.bytes("t32"), b"\xef\xbb\xbfuse z;\nuse b;\n");
    }),
    ("T33", |d| edit(d, "t33", b"a\nb", "a", "A", b"A\nb")),
    ("T35", |d| {
        d.put("t35", "hello\nworld");
        d.done("write", json!({"path": "t35", "content": "tail", "mode": "append"}));
        assert_eq!(d.bytes("t35"), b"hello\nworld\ntail");
    }),
    ("T36", |d| {
        let before = "import os\n\ndef f():\n    return 1\n\ndef g():\n    return 2\n";
        d.put("t36.py", before);
        let patch = "*** Begin Patch\n*** Update File: t36.py\n@@ def f():\n+    x = 1\n*** End Patch";
        d.done("edit", json!({"patch": patch}));
        assert_eq!(String::from_utf8(d.bytes("t36.py")).unwrap(), before.replace("def f():\n", "def f():\n    x = 1\n"));
        let patch = "*** Begin Patch\n*** Update File: t36.py\n@@ def nowhere():\n+    x = 1\n*** End Patch";
        assert_eq!(d.refused("edit", json!({"patch": patch})).0, "no_match");
    }),
    ("T121", |d| {
        let before = b"all:\n\techo hi\n\ttrue a\n\nclean:\n\trm x\r\n";
        d.put("t121/Makefile", before);
        d.done("edit", json!({"path": "t121/Makefile", "old_string": "true a", "new_string": "true b"}));
        let after = d.bytes("t121/Makefile");
        assert_eq!(after.len(), before.len());
        assert_eq!(after.iter().zip(before).filter(|(a, b)| a != b).count(), 1);
        if crate::space::has("make") {
            let data = d.done("sandbox_bash", json!({"command": "make -n clean", "workdir": "t121"}));
            assert_eq!(data["exit_code"], 0, "{data}");
        }
    }),
];

/// An edit that has to give these bytes.
#[track_caller]
fn edit(d: &Desk, name: &str, before: &[u8], old: &str, new: &str, after: &[u8]) {
    d.put(name, before);
    d.done("edit", json!({"path": name, "old_string": old, "new_string": new}));
    assert_eq!(d.bytes(name), after);
}
