//! The demonstration, as a person runs it.

use crate::space::Space;

#[test]
fn the_demonstration_mends_the_test_and_does_not_get_out() {
    let space = Space::new();
    let output = space.run(["demo"]);
    let (said, patch) = (String::from_utf8_lossy(&output.stderr).into_owned(), String::from_utf8_lossy(&output.stdout).into_owned());
    assert_eq!(output.status.code(), Some(0), "{said}");
    for tool in ["ls(", "find(", "grep(", "read(", "sandbox_bash(", "edit(", "write("] {
        assert!(said.contains(tool), "{tool} is not in {said}");
    }
    assert!(said.contains("3 passed, 1 failed") && said.contains("4 passed, 0 failed"), "{said}");
    assert_eq!(said.matches("✗ outside_workspace").count(), 2, "{said}");
    for why in ["refused: read", "(fs.read; build: nothing grants it for reading)", "(fs.write; build: nothing grants it for writing)"] {
        assert!(said.contains(why), "{why} is not in {said}");
    }
    assert!(said.contains("the loopback is the session's own") || said.contains("(net.tcp; build: net = loopback)"), "{said}");
    assert!(!said.contains("NOT TRUE"), "{said}");
    assert!(patch.contains("+++ b/lib/count.sh") && patch.contains("+++ b/CHANGES.md"), "{patch}");
    assert!(!patch.contains('\x1b') && !said.contains('\x1b'), "no colour where there is no terminal");
}
