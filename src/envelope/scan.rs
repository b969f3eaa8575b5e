//! JSON text looked through once, many bytes at a time: whether it is one value that can be read, and as a string within another text.
//!
//! Never says that a text can be read when a reader would refuse it; where it is not sure, it says no, and a reader has to say.

/// How deep a text may be nested; the reader has a bound of its own a little above.
const DEEPEST: u32 = 100;

/// How many digits a number may have; a few more are out of range.
const LONGEST: usize = 300;

/// Whether this is one JSON value on one line, without blanks, that a reader takes for sure.
pub(super) fn is_plain_json(text: &str) -> bool {
    plain(text.as_bytes()).is_some()
}

fn plain(text: &[u8]) -> Option<()> {
    // One bit for each open pair: an object, or an array.
    let (mut objects, mut depth) = (0_u128, 0_u32);
    let mut at = 0;
    loop {
        // A value begins here.
        match text.get(at)? {
            open @ (b'{' | b'[') => {
                let object = *open == b'{';
                at += 1;
                if text.get(at)? == if object { &b'}' } else { &b']' } {
                    at += 1;
                } else {
                    depth += 1;
                    if depth > DEEPEST {
                        return None;
                    }
                    objects = objects << 1 | u128::from(object);
                    if object {
                        at = key(text, at)?;
                    }
                    continue;
                }
            }
            b'"' => at = string(text, at)?,
            b'-' | b'0'..=b'9' => at = number(text, at)?,
            b't' => at = word(text, at, b"true")?,
            b'f' => at = word(text, at, b"false")?,
            b'n' => at = word(text, at, b"null")?,
            _ => return None,
        }
        // A value has ended here.
        loop {
            if depth == 0 {
                return (at == text.len()).then_some(());
            }
            let object = objects & 1 == 1;
            match text.get(at)? {
                b',' => {
                    at += 1;
                    if object {
                        at = key(text, at)?;
                    }
                    break;
                }
                b'}' if object => {}
                b']' if !object => {}
                _ => return None,
            }
            at += 1;
            objects >>= 1;
            depth -= 1;
        }
    }
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    text.get(at..)?.starts_with(word).then_some(at + word.len())
}

fn key(text: &[u8], at: usize) -> Option<usize> {
    let at = string(text, at)?;
    (text.get(at)? == &b':').then_some(at + 1)
}

/// A number without an exponent.
fn number(text: &[u8], mut at: usize) -> Option<usize> {
    let digits = |at: usize| text.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    if text.get(at)? == &b'-' {
        at += 1;
    }
    let whole = digits(at);
    if whole == 0 || whole > 1 && text[at] == b'0' {
        return None;
    }
    at += whole;
    let mut all = whole;
    if text.get(at) == Some(&b'.') {
        let part = digits(at + 1);
        if part == 0 {
            return None;
        }
        at += 1 + part;
        all += part;
    }
    // What follows, an exponent too, is no number's end that is known here.
    (all <= LONGEST).then_some(at)
}

fn string(text: &[u8], at: usize) -> Option<usize> {
    if text.get(at)? != &b'"' {
        return None;
    }
    let mut at = at + 1;
    loop {
        at = special(text, at);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match text.get(at + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => at += 2,
                // Half of a character has no meaning as a string; what begins like one is not looked at closer.
                b'u' if !matches!(text.get(at + 2)?, b'd' | b'D') => {
                    if !text.get(at + 2..at + 6)?.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    at += 6;
                }
                _ => return None,
            },
            _ => return None,
        }
    }
}

/// Writes what stands between the quotes of a JSON string.
pub(crate) fn write_inner(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let at = special(bytes, from);
        out.extend_from_slice(&bytes[from..at]);
        let Some(byte) = bytes.get(at) else { break };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            _ => {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        from = at + 1;
    }
}

/// Where from `at` on the next quote, backslash or control character is; the length where there is none.
fn special(bytes: &[u8], mut at: usize) -> usize {
    // Where one is, the next is often near: word by word first, and then by many bytes at once.
    let near = at + 32;
    while at < near {
        let Some((word, _)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) else { break };
        match special_of(*word) {
            Some(place) => return at + place,
            None => at += 8,
        }
    }
    while let Some((chunk, _)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<32>()) {
        // One comparison of many bytes each, which is what compilers make of this.
        if chunk.iter().fold(false, |found, byte| found | (*byte == b'"') | (*byte == b'\\') | (*byte < b' ')) {
            break;
        }
        at += 32;
    }
    while let Some((word, _)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        match special_of(*word) {
            Some(place) => return at + place,
            None => at += 8,
        }
    }
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..=31)).count()
}

/// The place of the first such byte of a few.
fn special_of(word: [u8; 8]) -> Option<usize> {
    const LOW: u64 = u64::MAX / 255;
    const HIGH: u64 = LOW << 7;
    let word = u64::from_le_bytes(word);
    // The high bit of each byte that is zero; a byte above one that is may be marked too, the lowest mark is always right.
    let zero = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let control = word.wrapping_sub(LOW * 0x20) & !word & HIGH;
    let found = zero(word ^ (LOW * u64::from(b'"'))) | zero(word ^ (LOW * u64::from(b'\\'))) | control;
    (found != 0).then(|| (found.trailing_zeros() / 8) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        /// What is taken as it is can be read; what writers write is taken.
        #[test]
        fn what_looks_plain_is_read(text in r#"[\[\]{}":,a1e.u\\d8\- ]{0,24}"#, strings in prop::collection::vec("[ -~éß]{0,80}", 0..4)) {
            let known = serde_json::to_string(&serde_json::json!({ "list": strings, "t": true, "f": false, "n": [-1, 1.25, null], "e": {} })).unwrap();
            prop_assert!(is_plain_json(&known), "{known}");
            prop_assert!(!is_plain_json(&text) || serde_json::from_str::<Value>(&text).is_ok(), "{text}");
        }

        /// One byte put in, taken out or replaced.
        #[test]
        fn a_text_that_was_damaged_is_no_plainer_than_readers_find(
            strings in prop::collection::vec("[ -~\n\u{1}é]{0,40}", 1..4), at in any::<prop::sample::Index>(), byte in r#"[\x00-\x7f]"#, how in 0..3,
        ) {
            let mut text = serde_json::to_string(&serde_json::json!({ "list": strings, "n": [-1, 0, 10.25, true, false, null, {}, []] })).unwrap();
            let at = (0..=at.index(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let end = (at + 1..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap();
            match how {
                0 => text.insert_str(at, &byte),
                1 => text.replace_range(at..end, ""),
                _ => text.replace_range(at..end, &byte),
            }
            prop_assert!(!is_plain_json(&text) || serde_json::from_str::<Value>(&text).is_ok() && !text.contains('\n'), "{text}");
        }

        #[test]
        fn strings_are_written_as_any_writer_writes_them(text in ".{0,80}", plain in "[ -~]{0,100}", odd in "[\\x00-\\x7f]{0,40}") {
            for text in [&text, &plain, &odd, &format!("{plain}{odd}{text}")] {
                let mut out = Vec::new();
                write_inner(text, &mut out);
                prop_assert_eq!(format!("\"{}\"", String::from_utf8(out).unwrap()), serde_json::to_string(text).unwrap());
            }
        }

        #[test]
        fn the_next_special_byte_is_found_wherever_it_is(bytes in prop::collection::vec(any::<u8>(), 0..100), clean in 0_usize..70) {
            let mut all = vec![b'a'; clean];
            all.extend(bytes);
            for from in 0..=all.len() {
                let plainly = (from..all.len()).find(|at| matches!(all[*at], b'"' | b'\\' | 0..=31)).unwrap_or(all.len());
                prop_assert_eq!(special(&all, from), plainly);
            }
        }
    }
}
