//! Terminal control in the output of programs: escape sequences removed, redraws folded to the last one.
//!
//! It never interprets a sequence: no cursor is moved and no screen is kept.

use std::borrow::Cow;

/// One line as a person would see it: escape sequences gone, of several redraws (`\r`) the last that drew anything, a
/// backspace takes back one character. `line` has no `\n`; a `\r` at its end belongs to the line end.
pub fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    let end = line.iter().rposition(|byte| *byte != b'\r').map_or(0, |at| at + 1);
    let line = &line[..end];
    if memchr::memchr3(0x1b, b'\r', 0x08, line).is_none() {
        return Cow::Borrowed(line);
    }
    let bare = without_escapes(line);
    let last = bare.split(|byte| *byte == b'\r').rfind(|redraw| !redraw.iter().all(u8::is_ascii_whitespace));
    let last = last.unwrap_or_default();
    if memchr::memchr(0x08, last).is_none() {
        return Cow::Owned(last.to_vec());
    }
    let mut out: Vec<u8> = Vec::with_capacity(last.len());
    for byte in last {
        if *byte == 0x08 {
            while out.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
        } else {
            out.push(*byte);
        }
    }
    Cow::Owned(out)
}

/// Removes ECMA-48 sequences: CSI, the string sequences (OSC, DCS, APC, PM, SOS) up to their terminator, and two-byte escapes.
/// A sequence that the end of the line cuts off goes too.
fn without_escapes(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut at = 0;
    while let Some(escape) = memchr::memchr(0x1b, &line[at..]) {
        out.extend_from_slice(&line[at..at + escape]);
        at += escape + 1;
        let rest = &line[at..];
        at += match rest.first() {
            Some(b'[') => csi(rest),
            Some(b']' | b'P' | b'_' | b'^' | b'X') => string(rest),
            // Intermediate bytes (a character set, say) and the final byte.
            Some(0x20..=0x2f) => {
                rest.iter().position(|byte| !(0x20..=0x2f).contains(byte)).map_or(rest.len(), |at| at + usize::from(rest[at] >= 0x30))
            }
            Some(0x30..=0x7e) => 1,
            _ => 0,
        };
    }
    out.extend_from_slice(&line[at..]);
    out
}

fn csi(rest: &[u8]) -> usize {
    match rest[1..].iter().position(|byte| !(0x20..=0x3f).contains(byte)) {
        // A byte that can be no final byte ends the sequence without belonging to it.
        Some(at) => 1 + at + usize::from((0x40..=0x7e).contains(&rest[1 + at])),
        None => rest.len(),
    }
}

fn string(rest: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = rest.get(at) {
        match byte {
            0x07 => return at + 1,
            0x1b if rest.get(at + 1) == Some(&b'\\') => return at + 2,
            0x1b => return at,
            _ => at += 1,
        }
    }
    // Never terminated on this line: more likely a stray introducer than a title; only the introducer goes.
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        for (line, seen) in [
            (&b"\x1b[31mred\x1b[0m"[..], &b"red"[..]),
            (b"\x1b[1;38;5;200mx\x1b[K", b"x"),
            (b"\x1b]0;title\x07text", b"text"),
            (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", b"link"),
            (b"\x1b(Bascii", b"ascii"),
            (b"\x1b7saved\x1b8", b"saved"),
            (b"\r1%\r2%\r3%", b"3%"),
            (b"10%\r100%\r", b"100%"),
            (b"done\r   \r", b"done"),
            (b"dos line\r", b"dos line"),
            (b"ab\x08c", b"ac"),
            ("né\x08e".as_bytes(), b"ne"),
            (b"cut \x1b[3", b"cut "),
            (b"\x1b]stray bracket", b"stray bracket"),
            (b"\x1b[31\xffbad", b"\xffbad"),
            (b"plain", b"plain"),
            (b"", b""),
            (b"\r\r", b""),
        ] {
            assert_eq!(plain(line).as_ref(), seen, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
