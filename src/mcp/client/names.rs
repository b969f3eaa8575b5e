//! Names for tools of servers: `mcp__SERVER__TOOL`, in letters that every model takes, at most 64, each once.
//!
//! A name follows from the server's and the tool's alone and from nothing that other runs may have otherwise: two that come out alike get
//! a hash of what they are, not a number of when they came.

use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use unicode_normalization::UnicodeNormalization;

/// The longest name that all models take.
pub const MOST: usize = 64;
/// Characters of a hash.
const HASH: usize = 6;

/// A tool as its server names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Named<'a> {
    /// The server, as the configuration names it.
    pub server: &'a str,
    /// The tool, as the server names it.
    pub tool: &'a str,
}

/// A name for each, in the same order. The same pair twice gets a name only once: the second is numbered.
pub fn assign(all: &[Named<'_>]) -> Vec<String> {
    let plain: Vec<String> =
        all.iter().map(|named| format!("mcp__{}__{}", folded(named.server).to_lowercase(), folded(named.tool))).collect();
    let mut uses: HashMap<String, usize> = HashMap::new();
    let mut exact_uses: HashMap<String, usize> = HashMap::new();
    let is_exact = |named: &Named<'_>, plain: &str| plain == format!("mcp__{}__{}", named.server, named.tool);
    for (named, name) in all.iter().zip(&plain) {
        *uses.entry(name.to_ascii_lowercase()).or_default() += 1;
        *exact_uses.entry(name.to_ascii_lowercase()).or_default() += usize::from(is_exact(named, name));
    }
    let mut taken: HashMap<String, ()> = HashMap::new();
    let mut names = Vec::with_capacity(all.len());
    for (named, plain) in all.iter().zip(plain) {
        // Of those that come out alike, the one that needed no folding keeps its name, if it is one.
        let key = plain.to_ascii_lowercase();
        let is_kept = uses.get(&key) == Some(&1) || (is_exact(named, &plain) && exact_uses.get(&key) == Some(&1));
        let mut name = if plain.len() <= MOST && is_kept { plain.clone() } else { with(&plain, &hash(named, 0)) };
        let mut round = 0;
        // Model servers compare names with and without case.
        while taken.contains_key(&name.to_ascii_lowercase()) {
            round += 1;
            name = with(&plain, &hash(named, round));
        }
        taken.insert(name.to_ascii_lowercase(), ());
        names.push(name);
    }
    names
}

/// Letters, digits, `_` and `-`; a letter with a mark is the letter, all else `_`.
fn folded(name: &str) -> String {
    let mut out = String::new();
    for c in name.nfkd() {
        match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => out.push(c),
            c if unicode_normalization::char::is_combining_mark(c) => {}
            _ => out.push('_'),
        }
        if out.len() >= 4 * MOST {
            break;
        }
    }
    if out.is_empty() { "_".into() } else { out }
}

fn with(plain: &str, hash: &str) -> String {
    let head: String = plain.chars().take(MOST - HASH - 1).collect();
    format!("{head}_{hash}")
}

fn hash(named: &Named<'_>, round: u32) -> String {
    let mut hasher = Sha256::new();
    for part in [named.server.as_bytes(), named.tool.as_bytes(), &round.to_le_bytes()] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(HASH / 2).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn assigned(all: &[(&str, &str)]) -> Vec<String> {
        assign(&all.iter().map(|(server, tool)| Named { server, tool }).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_folded_bounded_and_kept_where_they_can_be() {
        assert_eq!(
            assigned(&[("GitHub", "create_Issue"), ("Füße!", "größe.lesen/x"), ("日本", "")]),
            ["mcp__github__create_Issue", "mcp__fu_e___gro_e_lesen_x", "mcp_______",]
        );
        let long = "x".repeat(100);
        let names = assigned(&[("s", &long), ("s", &format!("{long}y")), ("s", &"y".repeat(58)), ("s", &"y".repeat(56))]);
        assert!(names.iter().all(|name| name.len() <= MOST), "{names:?}");
        assert!(names[0] != names[1] && names[0].starts_with("mcp__s__xxx"));
        assert_eq!(names[3], format!("mcp__s__{}", "y".repeat(56)));
    }

    #[test]
    fn those_that_come_out_alike_have_the_same_suffixes_in_any_order() {
        let pairs = [("s", "a.b"), ("s", "a_b"), ("s", "a b"), ("t", "A_b"), ("t", "a_b"), ("a__b", "c"), ("a", "b__c")];
        let forward = assigned(&pairs);
        let mut reversed: Vec<(&str, &str)> = pairs.to_vec();
        reversed.reverse();
        let mut backward = assigned(&reversed);
        backward.reverse();
        assert_eq!(forward, backward);
        assert!(forward.contains(&"mcp__s__a_b".into()), "{forward:?}");
        let mut unique: Vec<String> = forward.iter().map(|name| name.to_lowercase()).collect();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), pairs.len(), "{forward:?}");
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(500))]
        #[test]
        fn every_name_is_one_and_no_two_are_alike(all in proptest::collection::vec((".{0,40}", ".{0,80}"), 0..12)) {
            let all: Vec<Named<'_>> = all.iter().map(|(server, tool)| Named { server, tool }).collect();
            let names = assign(&all);
            let mut seen = std::collections::HashSet::new();
            for name in &names {
                prop_assert!(name.len() <= MOST && name.starts_with("mcp__"));
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')));
                prop_assert!(seen.insert(name.to_ascii_lowercase()));
            }
        }
    }
}
