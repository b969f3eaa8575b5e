//! The reversible escape that shows any bytes as text and takes them back.
//!
//! Used for names and for content that is not UTF-8. A byte that is not part of a UTF-8 character, and a control
//! character, is shown as `\xNN`; a backslash that would be read as the beginning of such an escape is doubled. So
//! ordinary names (a backslash included) look as they are, and [`unescape`] of [`escape`] gives the same bytes for any input.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Shows bytes as text: invalid bytes and control characters as `\xNN`, the rest as it is.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    let mut rest = bytes;
    for chunk in bytes.utf8_chunks() {
        let (valid, bad) = (chunk.valid(), chunk.invalid());
        for (at, character) in valid.char_indices() {
            match character {
                '\\' => out.push_str(if needs_doubling(&rest[at + 1..]) { "\\\\" } else { "\\" }),
                c if c.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in c.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(out, "\\x{byte:02x}");
                    }
                }
                c => out.push(c),
            }
        }
        rest = &rest[valid.len()..];
        for byte in bad {
            let _ = write!(out, "\\x{byte:02x}");
        }
        rest = &rest[bad.len()..];
    }
    out
}

/// Whether a backslash followed by these bytes would be read as an escape.
fn needs_doubling(after: &[u8]) -> bool {
    match after {
        // The next character is a backslash, or will be shown with one.
        [b'\\', ..] => true,
        [b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [byte, ..] if byte.is_ascii_control() => true,
        [] => false,
        _ => match std::str::from_utf8(&after[..after.len().min(4)]) {
            Ok(text) => text.chars().next().is_some_and(char::is_control),
            Err(error) if error.valid_up_to() > 0 => {
                std::str::from_utf8(&after[..error.valid_up_to()]).is_ok_and(|text| text.chars().next().is_some_and(char::is_control))
            }
            Err(_) => true,
        },
    }
}

/// Takes escaped text back to its bytes. Text without escapes is itself.
pub fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        match &bytes[at..] {
            [b'\\', b'\\', ..] => {
                out.push(b'\\');
                at += 2;
            }
            [b'\\', b'x', a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                out.push(hex(*a) << 4 | hex(*b));
                at += 4;
            }
            [byte, ..] => {
                out.push(*byte);
                at += 1;
            }
            [] => break,
        }
    }
    out
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// A file name or path as text.
pub fn show(name: &OsStr) -> String {
    escape(name.as_bytes())
}

/// Text as a file name or path.
pub fn name(text: &str) -> OsString {
    OsString::from_vec(unescape(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_text_is_itself() {
        for text in ["src/main.rs", "naïve 日本", "a\\b", "\\d+", "trailing\\"] {
            assert_eq!(escape(text.as_bytes()), text);
        }
        assert_eq!(escape(b"a\xff\nb"), "a\\xff\\x0ab");
        assert_eq!(escape(b"\\x41"), "\\\\x41");
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn any_bytes_come_back(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\\'), Just(b'x'), Just(b'0'), Just(0xc2), Just(0x85)], 0..40)) {
            let shown = escape(&bytes);
            prop_assert!(!shown.chars().any(char::is_control));
            prop_assert_eq!(unescape(&shown), bytes);
        }
    }
}
