//! The rules of `src/lib.rs` as a test: layers, the unsafe fence, who may print, who may start processes.

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, top to bottom: a module imports only from those above it. `sys` is open to those that name it.
const LAYERS: [&str; 15] = [
    "envelope",
    "exit_code",
    "clip",
    "policy",
    "workspace",
    "skills",
    "confine",
    "tools",
    "jail",
    "session",
    "provider",
    "dialect",
    "agent",
    "mcp",
    "cli",
];
const SYS_USERS: [&str; 3] = ["workspace", "confine", "jail"];

fn sources() -> Vec<(String, PathBuf, String)> {
    fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                into.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    walk(&root, &mut files);
    files.sort();
    files
        .into_iter()
        .map(|path| {
            let rel = path.strip_prefix(&root).unwrap().to_path_buf();
            let first = rel.components().next().unwrap().as_os_str().to_str().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            (first.trim_end_matches(".rs").to_owned(), rel, text)
        })
        .collect()
}

/// The text without comments and without what stands behind `#[cfg(test)]`, which may use anything.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().unwrap().to_str().unwrap();
    matches!(name, "tests" | "testing" | "testbed") || name.ends_with("_tests") || path.components().any(|part| part.as_os_str() == "tests")
}

#[test]
fn a_module_imports_only_from_those_above_it() {
    let place = |module: &str| LAYERS.iter().position(|layer| *layer == module);
    let mut broken = Vec::new();
    let mut seen = 0;
    for (module, path, text) in sources() {
        if is_test_file(&path) {
            continue;
        }
        let Some(here) = place(&module) else {
            assert!(matches!(module.as_str(), "main" | "lib" | "sys"), "{module} has no place among the layers");
            continue;
        };
        for part in code(&text).split("crate::").skip(1) {
            let named: String = part.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let allowed = match named.as_str() {
                "sys" => SYS_USERS.contains(&module.as_str()),
                named => place(named).is_none_or(|there| there <= here),
            };
            seen += 1;
            if !allowed {
                broken.push(format!("{} imports {named}", path.display()));
            }
        }
    }
    assert!(seen > 100, "the walk found only {seen} imports");
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Words that only some files may say.
const FENCES: &[(&str, &[&str])] = &[
    ("unsafe {", &["sys.rs", "sys/"]),
    ("landlock::", &["confine/"]),
    ("seccompiler::", &["confine/"]),
    ("std::process::Command", &[]),
    ("posix_spawn(", &["jail/"]),
    ("tokio::", &["session", "provider/", "agent/", "mcp/", "cli/"]),
    ("std::env::var", &["cli/"]),
    ("println!", &["cli/", "main.rs"]),
    ("openat2(", &["workspace/", "confine/"]),
];

#[test]
fn fences_hold() {
    let mut broken = Vec::new();
    for (_, path, text) in sources() {
        if is_test_file(&path) {
            continue;
        }
        let code = code(&text);
        let shown = path.to_str().unwrap();
        for (word, places) in FENCES {
            if code.contains(word) && !places.iter().any(|place| shown.starts_with(place)) {
                broken.push(format!("{shown} says {word}"));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn no_path_of_a_machine_and_no_registry_host() {
    let output = std::process::Command::new("git").args(["ls-files", "-z"]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let Ok(output) = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()) else { crate::skip!("no git") };
    // Put together here, so that this file does not say them.
    let words = [["/wo", "rk/"].concat(), ["crates", ".io/api"].concat(), ["registry.npmjs", ".org"].concat(), ["pypi", ".org"].concat()];
    let mut seen = 0;
    for name in output.split('\0').filter(|name| !name.is_empty()) {
        let Ok(text) = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)) else { continue };
        let text = String::from_utf8_lossy(&text);
        seen += 1;
        for word in &words {
            assert!(!text.contains(word.as_str()), "{name} says {word}");
        }
    }
    assert!(seen == 0 || seen > 20, "{seen} files");
}
