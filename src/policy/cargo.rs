//! Cargo's settings: which of the person's reach commands, and which files above the workspace cargo has to be able to read.
//!
//! Never takes over a token, a credential provider, an alias, a wrapper or an address with a password in it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Longer than any settings file, in bytes.
const LONGEST: u64 = 1 << 18;

/// The settings that decide where crates come from, of a cargo home; `None`: there are none. Without them the cache of a mirror or of
/// vendored crates is not found.
pub(super) fn private_config(cargo_home: &Path) -> Option<String> {
    let table = ["config.toml", "config"].iter().find_map(|name| read(&cargo_home.join(name)))?;
    let mut kept = Table::new();
    const SOURCE: &[&str] = &["registry", "replace-with", "directory", "local-registry", "git", "branch", "tag", "rev"];
    if let Some(sources) = table.get("source").and_then(Value::as_table) {
        insert(&mut kept, "source", nested(sources, SOURCE, cargo_home));
    }
    if let Some(registries) = table.get("registries").and_then(Value::as_table) {
        insert(&mut kept, "registries", nested(registries, &["index"], cargo_home));
    }
    if let Some(registry) = table.get("registry").and_then(Value::as_table) {
        insert(&mut kept, "registry", only(registry, &["default"], cargo_home));
    }
    (!kept.is_empty()).then(|| toml::to_string(&kept).ok())?
}

/// Settings files of folders above the workspace. Cargo reads each that exists and stops with an error when it cannot; one without secrets
/// is granted, for one with secrets the second list says so.
pub(super) fn above(base: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let (mut open, mut secret) = (Vec::new(), Vec::new());
    for folder in base.ancestors().skip(1) {
        for name in ["config.toml", "config"] {
            let path = folder.join(".cargo").join(name);
            let Ok(path) = path.canonicalize() else { continue };
            match read(&path) {
                Some(table) if !table.iter().any(|(key, value)| has_secret(key, value)) => open.push(path),
                _ => secret.push(path),
            }
        }
    }
    (open, secret)
}

fn read(path: &Path) -> Option<Table> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn insert(kept: &mut Table, key: &str, table: Table) {
    if !table.is_empty() {
        kept.insert(key.into(), Value::Table(table));
    }
}

/// Of each table in a table, only these keys.
fn nested(tables: &Table, keys: &[&str], cargo_home: &Path) -> Table {
    let tables = tables.iter().filter_map(|(name, table)| Some((name.clone(), only(table.as_table()?, keys, cargo_home))));
    tables.filter(|(_, table)| !table.is_empty()).map(|(name, table)| (name, Value::Table(table))).collect()
}

/// Only these keys, where their value is text without a password.
fn only(table: &Table, keys: &[&str], cargo_home: &Path) -> Table {
    table
        .iter()
        .filter(|(key, value)| keys.contains(&key.as_str()) && !has_secret(key, value))
        .filter_map(|(key, value)| {
            let text = value.as_str()?;
            // Paths in cargo's settings are relative to the folder that holds `.cargo`.
            let text = match (key.as_str(), cargo_home.parent()) {
                ("directory" | "local-registry", Some(above)) => above.join(text).to_str()?.to_owned(),
                _ => text.to_owned(),
            };
            Some((key.clone(), Value::String(text)))
        })
        .collect()
}

/// Whether a value is, or holds, a secret.
fn has_secret(key: &str, value: &Value) -> bool {
    let key = key.to_ascii_lowercase();
    if ["token", "secret", "password", "passwd"].iter().any(|word| key.contains(word)) {
        return true;
    }
    match value {
        Value::String(text) => has_password(text),
        Value::Array(list) => list.iter().any(|value| has_secret("", value)),
        // Under [env] anything may stand.
        Value::Table(table) => {
            table.iter().any(|(name, value)| (key == "env" && super::environment::secret(name)) || has_secret(name, value))
        }
        _ => false,
    }
}

/// Whether an address has a user and password, or a token, before its host.
fn has_password(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
        authority.contains('@') && !(scheme.ends_with("ssh") && authority.starts_with("git@"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_crates_come_from_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join(".cargo");
        std::fs::create_dir(&home).unwrap();
        assert_eq!(private_config(&home), None);
        let text = r#"
            [source.crates-io]
            replace-with = "mirror"
            [source.mirror]
            registry = "sparse+https://mirror.example/index/"
            [source.vendored]
            directory = "vendor"
            [source.leaky]
            registry = "https://me:hunter2@mirror.example/index"
            [registries.own]
            index = "sparse+https://own.example/"
            token = "hunter2"
            [registry]
            default = "own"
            token = "hunter2"
            [build]
            rustc-wrapper = "/bin/evil"
            [alias]
            b = "run --bin hunter2"
            [credential-alias]
            x = ["hunter2"]
        "#;
        std::fs::write(home.join("config.toml"), text).unwrap();
        let made = private_config(&home).unwrap();
        let table: Table = made.parse().unwrap();
        assert_eq!(table["source"]["mirror"]["registry"].as_str(), Some("sparse+https://mirror.example/index/"));
        assert_eq!(table["source"]["vendored"]["directory"].as_str(), dir.path().join("vendor").to_str());
        assert_eq!(table["registries"]["own"]["index"].as_str(), Some("sparse+https://own.example/"));
        assert!(!made.contains("hunter2") && !made.contains("evil") && !made.contains("alias"), "{made}");
    }

    #[test]
    fn files_above_the_workspace_by_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let base = top.join("a/b/c");
        for folder in ["a/b/c/.cargo", "a/b/.cargo", "a/.cargo", ".cargo"] {
            std::fs::create_dir_all(top.join(folder)).unwrap();
        }
        std::fs::write(top.join("a/b/c/.cargo/config.toml"), "[build]\njobs = 1").unwrap();
        std::fs::write(top.join("a/b/.cargo/config.toml"), "[build]\njobs = 2").unwrap();
        std::fs::write(top.join("a/.cargo/config"), "[registry]\ntoken = \"x\"").unwrap();
        std::fs::write(top.join(".cargo/config.toml"), "[env]\nMY_API_KEY = \"x\"").unwrap();
        let (open, secret) = above(&base);
        assert_eq!(open, [top.join("a/b/.cargo/config.toml")]);
        assert_eq!(secret, [top.join("a/.cargo/config"), top.join(".cargo/config.toml")]);
    }
}
