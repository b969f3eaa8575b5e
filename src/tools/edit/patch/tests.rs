//! The notations, and what is refused.

use super::*;

fn update(path: &str, edits: &[(&str, &str)]) -> Operation {
    let edits = edits
        .iter()
        .map(|(old, new)| Replacement { old: (*old).into(), new: (*new).into(), whole_lines: true, ..Replacement::default() })
        .collect();
    Operation::Update { path: path.into(), to: None, edits }
}

fn plain(mut operations: Vec<Operation>) -> Vec<Operation> {
    for operation in &mut operations {
        if let Operation::Update { edits, .. } = operation {
            edits.iter_mut().for_each(|edit| edit.near_line = None);
        }
    }
    operations
}

#[test]
fn three_notations_say_the_same() {
    let wanted = vec![update("src/a.rs", &[("one\ntwo\n", "one\n2\n")])];
    for patch in [
        "*** Begin Patch\n*** Update File: src/a.rs\n@@\n one\n-two\n+2\n*** End Patch",
        "*** Update File: src/a.rs\n one\n-two\n+2\n\n",
        "src/a.rs\n```rust\n<<<<<<< SEARCH\none\ntwo\n=======\none\n2\n>>>>>>> REPLACE\n```\n",
        "------- SEARCH\none\ntwo\n=======\none\n2\n+++++++ REPLACE\n",
        "diff --git a/src/a.rs b/src/a.rs\nindex 1..2 100644\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@ fn x\n one\n-two\n+2\n",
        "--- src/a.rs\t2020-01-01\n+++ src/a.rs\t2020-01-02\n@@ -1,9 +1,9 @@\n one\n-two\n+2\n",
        "@@ -1,2 +1,2 @@\n one\n-two\n+2\n\n",
    ] {
        assert_eq!(plain(parse(patch, Some("src/a.rs")).unwrap()), wanted, "{patch}");
    }
}

#[test]
fn files_are_made_removed_and_moved() {
    let patch = "*** Begin Patch\n*** Add File: n\n+x\n+\n*** Delete File: d\n*** Update File: m\n*** Move to: k/m\n@@ def f():\n+    pass\n*** End Patch\n";
    let operations = parse(patch, None).unwrap();
    assert_eq!(operations[0], Operation::Add { path: "n".into(), content: "x\n\n".into() });
    assert_eq!(operations[1], Operation::Delete { path: "d".into(), lines: None });
    let Operation::Update { to, edits, .. } = &operations[2] else { panic!() };
    assert_eq!((to.as_deref(), &edits[0].after[..]), (Some("k/m"), &["def f():".to_owned()][..]));

    let patch = "--- /dev/null\n+++ b/n\n@@ -0,0 +1,1 @@\n+x\n--- a/d\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-gone\ndiff --git a/m b/k\nsimilarity index 100%\nrename from m\nrename to k\n";
    let operations = parse(patch, None).unwrap();
    assert_eq!(operations[0], Operation::Add { path: "n".into(), content: "x\n".into() });
    let Operation::Delete { path, lines: Some(lines) } = &operations[1] else { panic!("{operations:?}") };
    assert_eq!((path.as_str(), lines.len(), lines[0].old.as_str(), lines[0].new.as_str()), ("d", 1, "gone\n", ""));
    assert_eq!(operations[2], Operation::Update { path: "m".into(), to: Some("k".into()), edits: vec![] });
}

#[test]
fn the_fence_of_a_quoted_diff_is_no_part_of_it() {
    let patch = "```diff\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n```\n";
    assert_eq!(plain(parse(patch, None).unwrap()), vec![update("f", &[("a\n", "b\n")])]);
}

#[test]
fn removed_lines_may_look_like_headers() {
    let patch = "--- a/q.sql\n+++ b/q.sql\n@@ -1,2 +1,1 @@\n--- a comment\n x\n";
    assert_eq!(plain(parse(patch, None).unwrap()), vec![update("q.sql", &[("-- a comment\nx\n", "x\n")])]);
}

#[test]
fn a_missing_final_newline_is_kept_in_mind() {
    let patch = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n";
    assert_eq!(plain(parse(patch, None).unwrap()), vec![update("f", &[("a", "b")])]);
}

#[test]
fn what_says_not_where_or_what_is_refused() {
    for patch in [
        "hello",
        "*** Begin Patch\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n@@\n+only added\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n@@\n only context\n*** End Patch",
        "*** Begin Patch\n*** Update File: a\n@@\n-x\nno sign\n*** End Patch",
        "*** Begin Patch\n*** Frobnicate: a\n*** End Patch",
        "*** Begin Patch\n*** Delete File: a\n*** Update File: a\n-x\n*** End Patch",
        "@@ -1,1 +1,2 @@\n a\n+b\n",
        "--- a/f\n+++ b/f\n@@ -3,0 +4,1 @@\n+b\n",
        "<<<<<<< SEARCH\na\n=======\nb\n",
        "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
        "--- a/f\n+++ /dev/null\n@@ -1,2 +1,1 @@\n-a\n b\n",
        "diff --git a/p b/p\nold mode 100644\nnew mode 100755\n",
        "diff --git a/p b/p\nBinary files a/p and b/p differ\n",
    ] {
        assert_eq!(parse(patch, None).unwrap_err().code(), FaultCode::InvalidPatch, "{patch}");
    }
}
