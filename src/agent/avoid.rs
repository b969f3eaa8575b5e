//! What our own git must not open in a workspace: FIFOs and devices that bear the names of its files. It would wait for ever.
//!
//! Pure: from what was found to what is done without. What is left out is said.

use crate::tools::special::Special;
use crate::workspace::escape;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// Names that a repository's own folder has, wherever it lies and whatever it is called.
const INTERNAL: [&str; 8] = ["HEAD", "config", "commondir", "gitdir", "packed-refs", "alternates", "index", "exclude"];

/// What is done without. Folders are bytes from the base with a slash behind them; the base's own is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Avoid {
    /// A file of ignore rules somewhere.
    pub(super) rules: Option<String>,
    /// A file of attributes somewhere.
    pub(super) attributes: Option<String>,
    /// The workspace's own object store.
    pub(super) objects: Option<String>,
    /// Repositories whose index is not read.
    pub(super) indexes: BTreeSet<Vec<u8>>,
    /// Repositories whose own ignore rules are not read.
    pub(super) excludes: BTreeSet<Vec<u8>>,
    /// Nested repositories that git must not look into.
    pub(super) nested: BTreeSet<Vec<u8>>,
    /// Files that are too large to be taken in.
    pub(super) large: Vec<Vec<u8>>,
    /// What bears such a name elsewhere: whether git comes upon it is not known.
    pub(super) elsewhere: Option<String>,
}

impl Avoid {
    /// Reads what was found.
    pub(super) fn of(special: &Special) -> Self {
        let mut avoid = Self { large: special.large.iter().map(|path| escape::name(path).into_vec()).collect(), ..Self::default() };
        for path in &special.paths {
            avoid.add(path);
        }
        if special.more {
            let many = || Some("one of more FIFOs and devices than are counted".to_owned());
            avoid.rules = avoid.rules.or_else(many);
            avoid.attributes = avoid.attributes.or_else(many);
            avoid.objects = avoid.objects.or_else(many);
            avoid.elsewhere = avoid.elsewhere.or_else(many);
            avoid.indexes.insert(Vec::new());
            avoid.excludes.insert(Vec::new());
        }
        avoid
    }

    fn add(&mut self, path: &str) {
        let bytes = escape::name(path).into_vec();
        let parts: Vec<&[u8]> = bytes.split(|b| *b == b'/').collect();
        let first = |kept: &mut Option<String>| {
            kept.get_or_insert_with(|| path.to_owned());
        };
        let Some(git) = parts.iter().position(|part| part.eq_ignore_ascii_case(b".git")) else {
            match parts.last().copied().unwrap_or_default() {
                b".gitignore" => first(&mut self.rules),
                b".gitattributes" => first(&mut self.attributes),
                name if is_internal(name) => first(&mut self.elsewhere),
                _ => {}
            }
            return;
        };
        let at: Vec<u8> = parts[..git].iter().flat_map(|part| [*part, b"/"].concat()).collect();
        match parts[git + 1..] {
            // It is no repository then.
            [] => {}
            [b"index"] => drop(self.indexes.insert(at)),
            [b"info", b"exclude"] => drop(self.excludes.insert(at)),
            [b"objects", ..] if at.is_empty() => first(&mut self.objects),
            // Of the workspace's own nothing else is read.
            _ if at.is_empty() => {}
            _ => drop(self.nested.insert(at)),
        }
    }

    /// What is done without, for a person.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(path) = &self.rules {
            notes.push(format!("{path} is a FIFO or a device: ignore rules do not count, only what was ignored at the start stays out"));
        }
        let indexes = self.indexes.iter().map(|at| [at.as_slice(), b".git/index"].concat());
        let excludes = self.excludes.iter().map(|at| [at.as_slice(), b".git/info/exclude"].concat());
        for path in indexes.chain(excludes).take(20) {
            notes.push(format!("{} is a FIFO or a device and was not read", show(path)));
        }
        notes
    }

    /// Arguments of `git add` that keep it from large files, with `at` as the top of its work tree.
    pub(super) fn exclusions(&self, at: &[u8]) -> Vec<OsString> {
        let below = self.large.iter().filter_map(|path| path.strip_prefix(at));
        below.map(|path| OsString::from_vec([b":(exclude,literal)", path].concat())).collect()
    }

    /// Whether git may come upon something that it waits for.
    pub(super) fn is_doubtful(&self) -> bool {
        self.elsewhere.is_some() || !self.nested.is_empty()
    }

    /// Lines of ignore rules by which git, with `at` as the top of its work tree, stays out of nested repositories. `None` where none can say it.
    pub(super) fn lines(&self, at: &[u8]) -> Option<Vec<u8>> {
        let mut lines = Vec::new();
        for nested in &self.nested {
            let Some(below) = nested.strip_prefix(at).filter(|below| !below.is_empty()) else { continue };
            if below.contains(&b'\n') {
                return None;
            }
            lines.push(b'/');
            for byte in below {
                if b"\\*?[! #".contains(byte) {
                    lines.push(b'\\');
                }
                lines.push(*byte);
            }
            lines.push(b'\n');
        }
        Some(lines)
    }
}

fn is_internal(name: &[u8]) -> bool {
    let hex = (name.len() == 38 || name.len() == 62) && name.iter().all(u8::is_ascii_hexdigit);
    hex || INTERNAL.iter().any(|known| known.as_bytes() == name) || [&b".idx"[..], b".pack"].iter().any(|end| name.ends_with(end))
}

/// A path as it is shown.
pub(super) fn show(path: Vec<u8>) -> String {
    escape::show(&OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_gits_files_is_known_by_its_place() {
        let paths = [
            "a/.gitignore",
            "b/.gitignore",
            ".gitattributes",
            ".git/index",
            ".git/HEAD",
            ".git/objects/pack/x.idx",
            "n/.git/HEAD",
            "n/.git/index",
            "m [x]/.git/info/exclude",
            "m [x]/.git/refs/heads/a",
            "store/packed-refs",
            "some/pipe",
            "k/.git",
        ];
        let avoid = Avoid::of(&Special { paths: paths.map(str::to_owned).to_vec(), more: false, large: vec!["n/big".into()] });
        let set = |all: &[&str]| all.iter().map(|at| at.as_bytes().to_vec()).collect::<BTreeSet<_>>();
        assert_eq!(
            avoid,
            Avoid {
                rules: Some("a/.gitignore".into()),
                attributes: Some(".gitattributes".into()),
                objects: Some(".git/objects/pack/x.idx".into()),
                indexes: set(&["", "n/"]),
                excludes: set(&["m [x]/"]),
                nested: set(&["n/", "m [x]/"]),
                elsewhere: Some("store/packed-refs".into()),
                large: vec![b"n/big".to_vec()],
            }
        );
        assert_eq!(avoid.lines(b"").unwrap(), b"/m\\ \\[x]/\n/n/\n");
        assert_eq!(avoid.lines(b"n/").unwrap(), b"");
        assert_eq!(
            (avoid.exclusions(b""), avoid.exclusions(b"n/")),
            (vec![":(exclude,literal)n/big".into()], vec![":(exclude,literal)big".into()])
        );
        assert!(avoid.exclusions(b"m [x]/").is_empty());
        assert!(avoid.is_doubtful() && avoid.notes().len() == 4);
        let harmless = Avoid::of(&Special { paths: vec!["some/pipe".into(), ".git/HEAD".into()], ..Special::default() });
        assert_eq!(harmless, Avoid::default());
    }
}
