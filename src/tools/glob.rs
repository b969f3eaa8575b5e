//! Globs as find, grep and ls take them.
//!
//! Without a slash a pattern is matched on the last name at any depth, with one on the relative path. `*` and `?` do not cross a
//! slash; `**` does. `{a,b}`, `[a-z]` and `[!x]` work, a backslash takes the next character literally. A pattern also matches the
//! name that it spells literally, so that `[id].tsx` finds the file of that name.

use crate::envelope::{Fault, FaultCode};
use crate::workspace::decode::stand_in;
use crate::workspace::escape;
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use regex::RegexSet;
use std::borrow::Cow;
use std::path::Path;

use super::walk::os;

/// A list of patterns; a path matches when one of them does.
#[derive(Debug)]
pub(crate) struct Globs {
    globs: Vec<Pattern>,
    names: GlobSet,
    below: GlobSet,
    from_base: GlobSet,
    folders: GlobSet,
    /// The first three again, for names that are not ASCII: the set counts bytes where a pattern speaks of characters.
    by_character: [RegexSet; 3],
    ignore_case: bool,
}

/// One pattern, read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pattern {
    /// As it was given.
    pub(crate) given: String,
    /// What is matched, without `./` and a slash at the end.
    pub(crate) glob: String,
    /// The bytes that it spells literally.
    pub(crate) literal: Vec<u8>,
    /// Matched on the path and not on the name.
    pub(crate) on_path: bool,
    /// Matched on the path from the base: it was given as an absolute path.
    pub(crate) from_base: bool,
    /// Ends in a slash: only folders.
    pub(crate) folders_only: bool,
    /// It does not parse as a glob; only its literal meaning is left.
    pub(crate) broken: Option<String>,
}

impl Pattern {
    /// Reads a pattern. An absolute one beneath `base` is rebased.
    ///
    /// # Errors
    /// `outside_workspace` for an absolute pattern that is not beneath `base`; `invalid_pattern` for `..` and for an empty pattern.
    pub(crate) fn read(given: &str, base: &Path, ignore_case: bool) -> Result<Self, Fault> {
        let mut text = given;
        let mut from_base = false;
        if text.starts_with('/') {
            let base = base.to_string_lossy();
            let rest = text.strip_prefix(base.trim_end_matches('/')).filter(|rest| rest.is_empty() || rest.starts_with('/'));
            let Some(rest) = rest else {
                return Err(Fault::new(FaultCode::OutsideWorkspace, format!("the pattern {given} is not inside the workspace"))
                    .hint("patterns are relative to the workspace, without a slash at the beginning"));
            };
            text = rest.trim_start_matches('/');
            from_base = true;
        }
        let mut on_path = text.contains('/') || from_base;
        while let Some(rest) = text.strip_prefix("./") {
            text = rest.trim_start_matches('/');
        }
        let folders_only = text.ends_with('/');
        if folders_only {
            text = text.trim_end_matches('/');
            // `build/` is a name, `a/build/` a path.
            on_path = text.contains('/') || from_base;
        }
        if text.is_empty() {
            return Err(Fault::new(FaultCode::InvalidPattern, format!("the pattern {given:?} is empty")).hint("\"*\" is every name"));
        }
        if text.split('/').any(|part| part == "..") {
            return Err(Fault::new(FaultCode::InvalidPattern, format!("the pattern {given} holds \"..\""))
                .hint("patterns do not climb; name the folder in path"));
        }
        let broken = build(text, ignore_case).err().map(|error| error.kind().to_string());
        Ok(Self { given: given.into(), glob: text.into(), literal: escape::unescape(text), on_path, from_base, folders_only, broken })
    }

    /// The first name of the pattern when that is literal.
    pub(crate) fn begins_in(&self, name: &str) -> bool {
        self.glob == name || self.glob.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'))
    }
}

fn build(glob: &str, ignore_case: bool) -> Result<globset::Glob, globset::Error> {
    GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).empty_alternates(true).case_insensitive(ignore_case).build()
}

/// The same glob as a regular expression over characters. The set writes what is not ASCII as `\xNN`, byte by byte.
fn character_regex(glob: &globset::Glob) -> String {
    let mut bytes = Vec::new();
    let regex = glob.regex().strip_prefix("(?-u)").unwrap_or(glob.regex()).as_bytes();
    let mut at = 0;
    while let Some(&byte) = regex.get(at) {
        let hex = regex
            .get(at + 2..at + 4)
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, regex.get(at + 1), hex) {
            (b'\\', Some(b'x'), Some(value)) if value >= 0x80 => {
                bytes.push(value);
                at += 4;
            }
            (b'\\', Some(&next), _) => {
                bytes.extend([byte, next]);
                at += 2;
            }
            _ => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    format!("(?s){}", String::from_utf8_lossy(&bytes))
}

/// A name or a path as characters: a byte of no character is one, of a private kind.
fn characters(name: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Cow::Borrowed(text);
    }
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| stand_in(*byte)));
    }
    Cow::Owned(text)
}

fn is_match(set: &GlobSet, by_character: &RegexSet, name: &[u8]) -> bool {
    if set.is_empty() {
        return false;
    }
    if name.is_ascii() { set.is_match_candidate(&Candidate::new(Path::new(os(name)))) } else { by_character.is_match(&characters(name)) }
}

impl Globs {
    /// Reads a list of patterns.
    ///
    /// # Errors
    /// As [`Pattern::read`].
    pub(crate) fn read(patterns: &[String], base: &Path, ignore_case: bool) -> Result<Self, Fault> {
        let globs: Vec<Pattern> = patterns.iter().map(|given| Pattern::read(given, base, ignore_case)).collect::<Result<_, _>>()?;
        let too_large = |why: &dyn std::fmt::Display| Fault::new(FaultCode::InvalidPattern, format!("the patterns are too large: {why}"));
        let set = |wanted: &dyn Fn(&Pattern) -> bool| -> Result<(GlobSet, RegexSet), Fault> {
            let mut set = GlobSetBuilder::new();
            let mut by_character = Vec::new();
            for pattern in globs.iter().filter(|pattern| wanted(pattern)) {
                if let Ok(glob) = build(&pattern.glob, ignore_case) {
                    by_character.push(character_regex(&glob));
                    set.add(glob);
                }
            }
            let set = set.build().map_err(|error| too_large(error.kind()))?;
            Ok((set, RegexSet::new(by_character).map_err(|error| too_large(&error))?))
        };
        let (names, names_by) = set(&|p| !p.on_path && !p.folders_only)?;
        let (below, below_by) = set(&|p| p.on_path && !p.from_base && !p.folders_only)?;
        let (from_base, from_base_by) = set(&|p| p.from_base && !p.folders_only)?;
        let (folders, _) = set(&|p| p.folders_only)?;
        Ok(Self { globs, names, below, from_base, folders, by_character: [names_by, below_by, from_base_by], ignore_case })
    }

    /// A list in which each pattern has to parse as a glob.
    ///
    /// # Errors
    /// `invalid_pattern`, and as [`Globs::read`].
    pub(crate) fn strict(patterns: &[String], base: &Path, ignore_case: bool) -> Result<Self, Fault> {
        let globs = Self::read(patterns, base, ignore_case)?;
        match globs.fault() {
            Some(fault) => Err(fault),
            None => Ok(globs),
        }
    }

    /// The fault of the first pattern that does not parse.
    pub(crate) fn fault(&self) -> Option<Fault> {
        self.globs.iter().find_map(|pattern| {
            let broken = pattern.broken.as_ref()?;
            Some(
                Fault::new(FaultCode::InvalidPattern, format!("the pattern {} is no glob: {broken}", pattern.given))
                    .hint("a backslash takes the next character literally"),
            )
        })
    }

    /// The patterns.
    pub(crate) fn patterns(&self) -> &[Pattern] {
        &self.globs
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    /// Whether one matches. `path` is from the base, `below` from where the walk began, `name` the last name.
    pub(crate) fn matches(&self, path: &[u8], below: &[u8], name: &[u8], is_folder: bool) -> bool {
        let [names, below_base, from_base] = &self.by_character;
        is_match(&self.names, names, name)
            || is_match(&self.below, below_base, below)
            || is_match(&self.from_base, from_base, path)
            || self.globs.iter().any(|pattern| self.spelled(pattern, path, below, name, is_folder))
            || (is_folder && !self.folders.is_empty() && self.matches_folder(path, below, name))
    }

    /// The same, with paths from the base matched too: for filters, which people write from either place.
    pub(crate) fn matches_either(&self, path: &[u8], below: &[u8], name: &[u8], is_folder: bool) -> bool {
        self.matches(path, below, name, is_folder) || (path != below && self.matches(path, path, name, is_folder))
    }

    fn matches_folder(&self, path: &[u8], below: &[u8], name: &[u8]) -> bool {
        self.globs.iter().filter(|pattern| pattern.folders_only).any(|pattern| {
            let target = target(pattern, path, below, name);
            build(&pattern.glob, self.ignore_case).is_ok_and(|glob| {
                if target.is_ascii() {
                    glob.compile_matcher().is_match(Path::new(os(target)))
                } else {
                    regex::Regex::new(&character_regex(&glob)).is_ok_and(|regex| regex.is_match(&characters(target)))
                }
            })
        })
    }

    fn spelled(&self, pattern: &Pattern, path: &[u8], below: &[u8], name: &[u8], is_folder: bool) -> bool {
        let target = target(pattern, path, below, name);
        (is_folder || !pattern.folders_only)
            && (if self.ignore_case { target.eq_ignore_ascii_case(&pattern.literal) } else { target == pattern.literal })
    }
}

fn target<'a>(pattern: &Pattern, path: &'a [u8], below: &'a [u8], name: &'a [u8]) -> &'a [u8] {
    if pattern.from_base {
        path
    } else if pattern.on_path {
        below
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let globs = Globs::read(&[pattern.into()], Path::new("/ws"), false).unwrap();
        let name = path.rsplit('/').next().unwrap();
        globs.matches(path.as_bytes(), path.as_bytes(), name.as_bytes(), false)
    }

    #[test]
    fn a_pattern_is_matched_on_the_name_or_on_the_path() {
        for (pattern, path, right) in [
            ("*.rs", "a/b/c.rs", true),
            ("c.rs", "a/b/c.rs", true),
            ("src/**/*.ts", "src/x.ts", true),
            ("src/**/*.ts", "src/a/b/x.ts", true),
            ("src/*.ts", "src/a/x.ts", false),
            ("src/*.ts", "lib/src/x.ts", false),
            ("a/b.md", "a/b.md", true),
            ("./a/b.md", "a/b.md", true),
            ("./b.md", "b.md", true),
            ("./b.md", "a/b.md", false),
            ("*/x", "d/x", true),
            ("*/x", "x", false),
            ("**/r.txt", "r.txt", true),
            ("**/r.txt", "a/b/r.txt", true),
            ("d/**", "d/f", true),
            ("d/**", "d/e/f", true),
            ("d/**", "d", false),
            ("*.{a,b}", "x.b", true),
            ("*.{a,b}", "x.c", false),
            ("[!x]", "y", true),
            ("[!x]", "x", false),
            ("[id].tsx", "app/[id].tsx", true),
            ("app/[id]/p.ts", "app/[id]/p.ts", true),
            ("/ws/a/*.c", "a/x.c", true),
            ("-name", "-name", true),
            (r"\*.c", "*.c", true),
            (r"\*.c", "x.c", false),
            ("{a", "{a", true),
            (".github/**", ".github/w/ci.yml", true),
        ] {
            assert_eq!(matches(pattern, path), right, "{pattern} {path}");
        }
    }

    #[test]
    fn a_character_is_one_however_many_bytes_it_has() {
        for (pattern, path, right) in [
            ("?", "é", true),
            ("??", "é", false),
            ("a?.txt", "aé.txt", true),
            ("[é]", "é", true),
            ("a[é-ü].txt", "aó.txt", true),
            ("[!a]", "é", true),
            ("[!é]", "é", false),
            ("a[!b].txt", "d/aé.txt", true),
            ("d/?", "d/é", true),
            ("?/x", "日/x", true),
            ("*é*", "aéb", true),
            ("**/é?", "d/éa", true),
            ("{é,ü}", "ü", true),
            ("日*", "日本", true),
            (r"\[é", "[é", true),
            ("*.txt", "é\n.txt", true),
        ] {
            assert_eq!(matches(pattern, path), right, "{pattern} {path}");
        }
        let globs = Globs::read(&["?".into(), "b?/".into()], Path::new("/ws"), false).unwrap();
        assert!(globs.matches(b"d/\xff", b"d/\xff", b"\xff", false));
        assert!(!globs.matches(b"\xff\xfe", b"\xff\xfe", b"\xff\xfe", false));
        assert!(globs.matches("bé".as_bytes(), "bé".as_bytes(), "bé".as_bytes(), true));
        let globs = Globs::read(&["É*".into()], Path::new("/ws"), true).unwrap();
        assert!(globs.matches("éa".as_bytes(), "éa".as_bytes(), "éa".as_bytes(), false));
    }

    #[test]
    fn folders_and_bytes() {
        let globs = Globs::read(&["build/".into()], Path::new("/ws"), false).unwrap();
        assert!(globs.matches(b"a/build", b"a/build", b"build", true));
        assert!(!globs.matches(b"a/build", b"a/build", b"build", false));
        let globs = Globs::read(&["b*/".into()], Path::new("/ws"), false).unwrap();
        assert!(globs.matches(b"a/build", b"a/build", b"build", true));
        let globs = Globs::read(&[r"a\xff".into()], Path::new("/ws"), false).unwrap();
        assert!(globs.matches(b"a\xff", b"a\xff", b"a\xff", false));
        let globs = Globs::read(&["READ*".into()], Path::new("/ws"), true).unwrap();
        assert!(globs.matches(b"readme", b"readme", b"readme", false));
    }

    #[test]
    fn patterns_do_not_leave() {
        let read = |pattern: &str| Pattern::read(pattern, Path::new("/ws"), false).unwrap_err().code();
        assert_eq!(read("../x"), FaultCode::InvalidPattern);
        assert_eq!(read("a/../x"), FaultCode::InvalidPattern);
        assert_eq!(read(""), FaultCode::InvalidPattern);
        assert_eq!(read("/ws-secret/x"), FaultCode::OutsideWorkspace);
        assert_eq!(read("/etc/*"), FaultCode::OutsideWorkspace);
        assert!(Globs::strict(&["{a".into()], Path::new("/ws"), false).is_err());
    }
}
