//! Real input: a published crate out of cargo's registry cache and a Python module, each with a planted bug; `run` mends them and runs
//! their own tests inside the sandbox, offline.

use crate::skip;
use crate::space::{Space, has};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A dependency of ours without dependencies, with unit tests of its own.
const CRATE: &str = "strsim-";

/// Where cargo keeps the sources of a crate that we depend on.
fn source_of(name: &str) -> Option<PathBuf> {
    let home =
        std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = std::fs::read_dir(home.join("registry/src")).ok()?;
    registries
        .flatten()
        .flat_map(|registry| std::fs::read_dir(registry.path()).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .find(|path| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|found| found.strip_prefix(name).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
        })
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Runs a script against the workspace; returns the result, and the patch.
fn run(space: &Space, script: &str, home: &Path) -> (Value, String) {
    let file = space.path("script.toml");
    std::fs::write(&file, script).unwrap();
    let out = space.path("out");
    let mut command =
        space.command(["run", "mend the bug", "--model", &format!("script:{}", file.display()), "--out", out.to_str().unwrap()]);
    // The toolchains are found by the person's own home and variables.
    command.env("HOME", home);
    for name in ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let output = command.output().unwrap();
    let transcript = std::fs::read_to_string(out.join("transcript.jsonl")).unwrap_or_default();
    assert_eq!(output.status.code(), Some(0), "{}\n{transcript}", String::from_utf8_lossy(&output.stderr));
    let result = serde_json::from_str(&std::fs::read_to_string(out.join("result.json")).unwrap()).unwrap();
    (result, std::fs::read_to_string(out.join("changes.patch")).unwrap())
}

#[test]
fn a_published_crate_is_mended_and_passes_its_own_tests() {
    let (Some(source), true) = (source_of(CRATE), has("cargo")) else { skip!("no cargo, or no source of {CRATE}* in its registry cache") };
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { skip!("no home folder") };
    let space = Space::new();
    copy_tree(&source, &space.ws());
    let lib = space.ws().join("src/lib.rs");
    let good = std::fs::read_to_string(&lib).unwrap();
    // The Hamming distance counts where two sequences differ; the bug counts where they agree.
    let (right, wrong) = ("if x != y {", "if x == y {");
    assert!(good.contains(right), "the crate changed: plant another bug");
    std::fs::write(&lib, good.replacen(right, wrong, 1)).unwrap();
    let script = format!(
        r#"
[[reply]]
text = "The tests first."
calls = [{{ name = "sandbox_bash", arguments = {{ command = "cargo test --offline 2>&1", timeout_ms = 300000 }} }}]

[[reply]]
expect_contains = ["hamming", "FAILED"]
calls = [{{ name = "grep", arguments = {{ pattern = "if x == y", path = "src" }} }}]

[[reply]]
expect_contains = ["src/lib.rs"]
calls = [{{ name = "edit", arguments = {{ path = "src/lib.rs", old_string = "{wrong}", new_string = "{right}" }} }}]

[[reply]]
calls = [{{ name = "sandbox_bash", arguments = {{ command = "cargo test --offline 2>&1", timeout_ms = 300000 }} }}]

[[reply]]
expect_contains = ["test result: ok"]
text = "It counted where the sequences agree."
"#
    );
    let (result, patch) = run(&space, &script, &home);
    assert_eq!(std::fs::read_to_string(&lib).unwrap(), good);
    assert_eq!(result["status"], "success");
    assert!(patch.contains("a/src/lib.rs") && patch.contains(right), "{patch}");
}

#[test]
fn a_python_module_is_mended_and_passes_its_unittest() {
    let has_python = Command::new("python3").args(["-c", "import unittest, textwrap; print(textwrap.__file__)"]).output();
    let Ok(found) = has_python.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()) else { skip!("no python3") };
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { skip!("no home folder") };
    // The module is the standard library's own, so the bug is planted in real code.
    let source = std::fs::read_to_string(&found).unwrap();
    // Of another length than the right text: Python takes a file of the same size and second for the one that it has compiled.
    let (right, wrong) = ("width - len(indent)", "width + 0");
    assert!(source.contains(right), "the module changed: plant another bug");
    let space = Space::new().file("wrapping.py", source.replacen(right, wrong, 1)).file(
        "test_wrapping.py",
        "import unittest\nimport wrapping\n\n\nclass Wrap(unittest.TestCase):\n    def test_no_line_is_longer_than_the_width(self):\n        text = 'the quick brown fox jumps over the lazy dog ' * 4\n        for line in wrapping.wrap(text, 30, initial_indent='    ', subsequent_indent='    '):\n            self.assertLessEqual(len(line), 30)\n\n    def test_words_are_kept(self):\n        self.assertEqual(' '.join(wrapping.wrap('a b c', 3)), 'a b c')\n\n\nif __name__ == '__main__':\n    unittest.main()\n",
    );
    let script = format!(
        r#"
[[reply]]
calls = [{{ name = "sandbox_bash", arguments = {{ command = "python3 -m unittest -v 2>&1" }} }}]

[[reply]]
expect_contains = ["FAILED (failures=1)", "test_no_line_is_longer_than_the_width"]
calls = [{{ name = "grep", arguments = {{ pattern = "{wrong}", literal = true }} }}]

[[reply]]
expect_contains = ["wrapping.py"]
calls = [{{ name = "edit", arguments = {{ path = "wrapping.py", old_string = "{wrong}", new_string = "{right}" }} }}]

[[reply]]
calls = [{{ name = "sandbox_bash", arguments = {{ command = "python3 -m unittest -v 2>&1" }} }}]

[[reply]]
expect_contains = ["OK"]
text = "The indent is taken from the width again."
"#
    );
    let (result, patch) = run(&space, &script, &home);
    assert_eq!(std::fs::read_to_string(space.ws().join("wrapping.py")).unwrap(), source);
    assert_eq!(result["status"], "success");
    assert!(patch.contains("a/wrapping.py"), "{patch}");
}
