//! Names that are near to one that is not there.

use crate::tools::args;
use crate::tools::walk::{self, Entry, Options, Root, Visit, Want};
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::{BaseDir, RelPath, escape};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, PathBuf};
use std::time::{Duration, Instant};

/// How many are named.
const MOST: usize = 3;

/// How long the whole workspace is searched for the same name; a search that does not end in this time names nothing.
const TIME: Duration = Duration::from_millis(250);

/// Up to three paths that may have been meant: near names where the path leads nowhere, else the same name elsewhere.
pub(super) fn near(base: &BaseDir, path: &RelPath, until: Instant) -> Vec<String> {
    let parts: Vec<&OsStr> =
        path.as_path().components().filter_map(|part| if let Component::Normal(name) = part { Some(name) } else { None }).collect();
    // The longest part of the path that is there.
    for depth in (0..parts.len()).rev() {
        let parent: PathBuf = parts[..depth].iter().collect();
        let Ok(dir) = OpenDir::open(base, &RelPath::from_relative(parent.clone())) else { continue };
        let rest: PathBuf = parts[depth + 1..].iter().collect();
        let there = |name: &[u8]| {
            let mut found = parent.join(OsStr::from_bytes(name));
            if !rest.as_os_str().is_empty() {
                found.push(&rest);
            }
            base.lstat(&RelPath::from_relative(found.clone())).is_ok().then(|| escape::show(found.as_os_str()))
        };
        let near: Vec<String> = similar(&dir, parts[depth]).iter().filter_map(|name| there(name)).take(MOST).collect();
        if !near.is_empty() {
            return near;
        }
        break;
    }
    parts.last().map(|name| elsewhere(base, name, until)).unwrap_or_default()
}

/// Names of a folder that are like a name, the most similar first.
fn similar(dir: &OpenDir, name: &OsStr) -> Vec<Vec<u8>> {
    let wanted = name.to_string_lossy().to_lowercase();
    let mut found: Vec<(usize, Vec<u8>)> = Vec::new();
    let _ = dir.entries(|entry, _| {
        let have = String::from_utf8_lossy(entry).to_lowercase();
        let distance = args::distance(&wanted, &have);
        let stem = |text: &str| text.rsplit_once('.').map_or(text.to_owned(), |(stem, _)| stem.to_owned());
        let close = distance <= wanted.len().max(have.len()) / 3
            || stem(&wanted) == stem(&have)
            || (wanted.len() >= 4 && have.contains(&wanted))
            || (have.len() >= 4 && wanted.contains(&have));
        if close {
            found.push((distance, entry.to_vec()));
        }
    });
    found.sort_unstable();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Files of the same name elsewhere in the workspace.
fn elsewhere(base: &BaseDir, name: &OsStr, until: Instant) -> Vec<String> {
    struct Same<'a>(&'a [u8], Vec<Vec<u8>>);
    impl Visit for Same<'_> {
        fn entry(&mut self, entry: &Entry<'_>) -> Want {
            if entry.name == self.0 && entry.kind != Kind::Folder {
                self.1.push(entry.path.to_vec());
            }
            Want::Nothing
        }
    }
    let until = until.min(Instant::now() + TIME);
    let options = Options { hidden: true, ignore_rules: true, enter_git: false, show_git: false, max_depth: None, until };
    let walked = Root::open(base, &RelPath::base()).and_then(|root| walk::walk(&root, &options, || Same(name.as_bytes(), Vec::new())));
    match walked {
        Ok(walked) if walked.finished => {
            let mut all: Vec<Vec<u8>> = walked.visitors.into_iter().flat_map(|same| same.1).collect();
            all.sort_unstable_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
            all.iter().take(MOST).map(|path| escape::escape(path)).collect()
        }
        _ => Vec::new(),
    }
}
