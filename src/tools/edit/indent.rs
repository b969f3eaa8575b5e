//! A common shift of indentation: the text of a block is there, all of it further in or out, or in tabs for blanks.

use std::collections::HashMap;

/// Columns of a tab that are tried, likelier ones first.
const WIDTHS: [usize; 8] = [4, 2, 8, 3, 6, 5, 7, 1];

/// How the indentation of a block in the file follows from the one in the call.
#[derive(Debug)]
pub(super) struct Shift {
    known: HashMap<Vec<u8>, Vec<u8>>,
    rule: Rule,
}

#[derive(Debug, PartialEq)]
enum Rule {
    Add(Vec<u8>),
    Remove(Vec<u8>),
    /// By columns, where a tab goes to the next multiple of `tab`; the file indents by tabs or by blanks.
    Columns {
        tab: usize,
        add: isize,
        tabs: bool,
    },
}

impl Shift {
    /// The shift that turns every first indentation into its second. `new` are the indentations to which it is to be applied;
    /// where several shifts would do, they decide.
    pub(super) fn find(pairs: &[(&[u8], &[u8])], new: &[&[u8]]) -> Option<Self> {
        let mut known: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for (ours, file) in pairs {
            if known.insert(ours.to_vec(), file.to_vec()).is_some_and(|before| before != *file) {
                return None;
            }
        }
        let theirs = || pairs.iter().map(|(ours, _)| *ours).chain(new.iter().copied());
        let file_tabs = pairs.iter().any(|(_, file)| file.contains(&b'\t'));
        let file_blanks = pairs.iter().any(|(_, file)| file.contains(&b' '));
        // Bytes are copied only where both sides indent by the same means.
        let other_means =
            (file_tabs && theirs().any(|indent| indent.contains(&b' '))) || (file_blanks && theirs().any(|indent| indent.contains(&b'\t')));
        let columns = || Self::columns(pairs, &theirs().collect::<Vec<_>>(), file_tabs);
        let bytes = || Self::bytes(pairs);
        let rule = if other_means && !(file_tabs && file_blanks) { columns().or_else(bytes) } else { bytes().or_else(columns) };
        Some(Self { known, rule: rule? })
    }

    fn bytes(pairs: &[(&[u8], &[u8])]) -> Option<Rule> {
        let (ours, file) = pairs.first()?;
        if let Some(added) = file.strip_suffix(*ours)
            && pairs.iter().all(|(ours, file)| file.strip_prefix(added) == Some(*ours))
        {
            return Some(Rule::Add(added.to_vec()));
        }
        let removed = ours.strip_suffix(*file)?;
        pairs.iter().all(|(ours, file)| ours.strip_prefix(removed) == Some(*file)).then(|| Rule::Remove(removed.to_vec()))
    }

    fn columns(pairs: &[(&[u8], &[u8])], theirs: &[&[u8]], tabs: bool) -> Option<Rule> {
        let rule = |tab: usize| {
            let mut adds = pairs.iter().map(|(ours, file)| column(file, tab).cast_signed() - column(ours, tab).cast_signed());
            let add = adds.next()?;
            adds.all(|other| other == add).then_some((tab, add))
        };
        // The step by which the blanks of either side go up is the width that was meant.
        let blanks: Vec<&[u8]> = if tabs { theirs.to_vec() } else { pairs.iter().map(|(_, file)| *file).collect() };
        let step = blanks.iter().filter(|indent| !indent.contains(&b'\t')).fold(0, |step, indent| gcd(step, indent.len()));
        let meant = (2..=8).contains(&step).then(|| rule(step)).flatten().filter(|(tab, add)| add.unsigned_abs() % tab == 0);
        let (tab, add) = meant
            .or_else(|| WIDTHS.iter().filter_map(|tab| rule(*tab)).find(|(_, add)| *add == 0))
            .or_else(|| WIDTHS.iter().find_map(|tab| rule(*tab)))?;
        Some(Rule::Columns { tab, add, tabs })
    }

    /// The indentation in the file for one in the call. `None`: it would begin before the first column.
    pub(super) fn apply(&self, indent: &[u8]) -> Option<Vec<u8>> {
        if let Some(file) = self.known.get(indent) {
            return Some(file.clone());
        }
        match &self.rule {
            Rule::Add(added) => Some([added, indent].concat()),
            Rule::Remove(removed) => indent.strip_prefix(&removed[..]).map(<[u8]>::to_vec),
            Rule::Columns { tab, add, tabs } => {
                let column = column(indent, *tab).checked_add_signed(*add)?;
                let (tabs, blanks) = if *tabs { (column / tab, column % tab) } else { (0, column) };
                Some([vec![b'\t'; tabs], vec![b' '; blanks]].concat())
            }
        }
    }
}

fn column(indent: &[u8], tab: usize) -> usize {
    indent.iter().fold(0, |column, byte| if *byte == b'\t' { (column / tab + 1) * tab } else { column + 1 })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shifted(pairs: &[(&str, &str)], new: &[&str]) -> Option<Vec<Option<String>>> {
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes())).collect();
        let indents: Vec<&[u8]> = new.iter().map(|text| text.as_bytes()).collect();
        let shift = Shift::find(&pairs, &indents)?;
        Some(indents.iter().map(|indent| shift.apply(indent).map(|bytes| String::from_utf8(bytes).unwrap())).collect())
    }

    #[test]
    fn one_shift_for_all_lines_or_none() {
        let some = |texts: &[&str]| Some(texts.iter().map(|text| Some((*text).to_owned())).collect::<Vec<_>>());
        // Tabs in the file, blanks in the call.
        assert_eq!(shifted(&[("    ", "\t"), ("        ", "\t\t")], &["    ", "            "]), some(&["\t", "\t\t\t"]));
        assert_eq!(shifted(&[("  ", "\t"), ("    ", "\t\t")], &["      "]), some(&["\t\t\t"]));
        assert_eq!(shifted(&[("    ", "\t\t")], &["    ", "        "]), some(&["\t\t", "\t\t\t"]));
        assert_eq!(shifted(&[("", "\t")], &["", "    "]), some(&["\t", "\t\t"]));
        assert_eq!(shifted(&[("    ", "\t"), ("     ", "\t ")], &["     ", "        "]), some(&["\t ", "\t\t"]));
        // Blanks in the file, tabs in the call.
        assert_eq!(shifted(&[("\t", "    "), ("\t\t", "        ")], &["\t\t\t"]), some(&["            "]));
        assert_eq!(shifted(&[("", "    ")], &["\t"]), some(&["        "]));
        // The same means on both sides.
        assert_eq!(shifted(&[("", "    "), ("  ", "      ")], &["    "]), some(&["        "]));
        assert_eq!(shifted(&[("\t\t", "\t")], &["\t\t\t"]), some(&["\t\t"]));
        assert_eq!(shifted(&[("    ", "")], &["  "]), Some(vec![None]));
        // No common shift.
        assert_eq!(shifted(&[("    ", "  "), ("        ", "  ")], &[]), None);
        assert_eq!(shifted(&[("", "  "), ("", "    ")], &[]), None);
        assert_eq!(shifted(&[("  ", "  "), ("    ", "      ")], &[]), None);
    }
}
