//! Pieces of the page: escaping, numbers, dates, diffs.

use std::fmt::Write as _;

/// Text as HTML: nothing in it is markup, in an element or in a quoted attribute, and no character moves or turns the line.
pub(super) fn esc(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\r' => out.push('␍'),
            c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}') => {
                let _ = write!(out, "<i>\\u{:04x}</i>", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

/// Milliseconds for a person.
pub(super) fn seconds(ms: u64) -> String {
    match ms {
        0..=999 => format!("{ms} ms"),
        1000..=59_999 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..=3_599_999 => format!("{} min {:02} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {:02} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    out
}

/// Milliseconds since 1970 as a date and time, UTC. (Days to a date: Howard Hinnant, "chrono-compatible low-level date algorithms".)
pub(super) fn date(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    let z = days + 719_468;
    let (era, day_of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", second / 3600, second / 60 % 60, second % 60)
}

/// Something that is folded until it is asked for.
pub(super) struct Folded(&'static str);

impl Folded {
    pub(super) fn new(title: &'static str) -> Self {
        Self(title)
    }

    /// `content` is escaped already.
    pub(super) fn write(&self, page: &mut String, content: &str) {
        let _ = writeln!(page, "<details class=\"fold\"><summary>{}</summary><pre>{content}</pre></details>", self.0);
    }
}

/// The parts of a patch, one a file.
pub(super) fn files(patch: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = patch.match_indices("\ndiff --git ").map(|(at, _)| at + 1).collect();
    if patch.starts_with("diff --git ") {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    starts.iter().zip(ends).map(|(from, to)| &patch[*from..to]).collect()
}

/// The name of the file that such a part is about.
pub(super) fn name(part: &str) -> &str {
    let head = |prefix: &str| {
        let line = part.lines().take_while(|line| !line.starts_with("@@")).find_map(|line| line.strip_prefix(prefix))?;
        // Git quotes a name with unusual characters, and ends one with a blank by a tab.
        Some(line.trim_end_matches('\t'))
    };
    let first = part.lines().next().unwrap_or_default();
    let whole = first.strip_prefix("diff --git ").unwrap_or(first);
    head("+++ b/")
        .or_else(|| head("--- a/"))
        .or_else(|| {
            // Neither side has lines: a binary, or a mode. Both halves are the same then.
            let (old, new) = whole.split_at_checked(whole.len() / 2)?;
            let (old, new) = (old.strip_prefix("a/")?, new.strip_prefix(" b/")?);
            (old == new).then_some(old)
        })
        .unwrap_or(whole)
}

/// A line that names two blobs, with as much of their names as tells them apart for a person.
fn shortened(line: &str) -> Option<String> {
    const DIGITS: usize = 10;
    let (old, rest) = line.strip_prefix("index ")?.split_once("..")?;
    let (new, mode) = rest.split_once(' ').map_or((rest, String::new()), |(new, mode)| (new, format!(" {mode}")));
    Some(format!("index {}..{}{mode}", old.get(..DIGITS).unwrap_or(old), new.get(..DIGITS).unwrap_or(new)))
}

/// A diff, its lines coloured by what they are.
pub(super) fn diff(text: &str) -> String {
    let mut out = String::from("<pre class=\"diff\">");
    for line in text.lines() {
        let class = match line.as_bytes().first() {
            Some(b'+') if line.starts_with("+++ ") => "head",
            Some(b'-') if line.starts_with("--- ") => "head",
            Some(b'+') => "add",
            Some(b'-') => "del",
            Some(b'@') => "hunk",
            Some(b' ' | b'\\') | None => "",
            _ => "head",
        };
        let _ = match class {
            "" => writeln!(out, "{}", esc(line)),
            // A block of its own, which ends its line.
            class => write!(out, "<span class=\"{class}\">{}</span>", esc(&shortened(line).unwrap_or_else(|| line.to_owned()))),
        };
    }
    out.push_str("</pre>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dates_are_for_people() {
        assert_eq!((seconds(999), seconds(61_500), seconds(3_660_000)), ("999 ms".into(), "1 min 01 s".into(), "1 h 01 min".into()));
        assert_eq!((grouped(999), grouped(1_234_567)), ("999".into(), "1\u{2009}234\u{2009}567".into()));
        assert_eq!(date(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(date(1_798_761_599_000), "2026-12-31 23:59:59 UTC");
    }

    #[test]
    fn each_part_of_a_patch_has_the_name_of_its_file() {
        for (part, expected) in [
            ("diff --git a/x y b/x y\nnew file mode 100644\n--- /dev/null\n+++ b/x y\t\n@@ -0,0 +1 @@\n+++ b/other\n", "x y"),
            ("diff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n", "gone"),
            ("diff --git a/b b/c b/b b/c\nold mode 100644\nnew mode 100755\n", "b b/c"),
            ("diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nGIT binary patch\n", "\"a/\\303\\274\" \"b/\\303\\274\""),
            ("", ""),
        ] {
            assert_eq!(name(part), expected);
        }
        assert_eq!(shortened("index 0123456789abcdef..fedcba9876543210 100644").unwrap(), "index 0123456789..fedcba9876 100644");
        assert_eq!(shortened("+index 1..2"), None);
    }

    #[test]
    fn a_diff_is_coloured_and_escaped() {
        let text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-<b>\n+<script>\n same\ndiff --git a/y b/y\n";
        assert_eq!(files(text).len(), 2);
        let html = diff(text);
        assert!(html.contains("<span class=\"del\">-&lt;b&gt;</span>") && html.contains("<span class=\"add\">+&lt;script&gt;</span>"));
        assert!(html.contains("</span> same\n") && html.contains("<span class=\"hunk\">@@ -1 +1 @@</span>"));
    }
}
