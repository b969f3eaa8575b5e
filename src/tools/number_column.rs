//! The number column that `read` shows before each line, and that `edit` recognises where it was pasted.

use std::fmt::Write as _;

/// Stands between the line number and the line. It is no blank and hardly ever begins a line, so that a tab after it is a tab of the line.
pub const SEPARATOR: char = '│';

/// One line as `read` shows it: the number, right-aligned to `width` columns, the separator, the line.
pub fn show(number: u64, width: usize, line: &str) -> String {
    let mut out = String::new();
    push(&mut out, number, width);
    out.push_str(line);
    out
}

/// What stands before a line.
pub fn push(out: &mut String, number: u64, width: usize) {
    let _ = write!(out, "{number:>width$}{SEPARATOR}");
}

/// The number and the rest of a line that was copied with its number column; `None` for any other line.
pub fn strip(line: &str) -> Option<(u64, &str)> {
    let (column, rest) = line.split_once(SEPARATOR)?;
    let digits = column.trim_start_matches(' ');
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_line_comes_back() {
        for line in ["", "\tx", "  12│x", "│", "a\u{301}"] {
            assert_eq!(strip(&show(7, 6, line)), Some((7, line)));
            assert_eq!(strip(&show(1_234_567, 6, line)), Some((1_234_567, line)));
        }
        for other in ["x", "12", "│x", " a│x", "1 2│x", "\t1│x", "-1│x"] {
            assert_eq!(strip(other), None, "{other:?}");
        }
    }
}
