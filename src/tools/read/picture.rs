//! What a binary file is, by its first bytes, and the size of a picture, by its header.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// The kind and the size of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Picture {
    /// The media type.
    pub(super) media_type: &'static str,
    /// Pixels.
    pub(super) width: u64,
    /// Pixels.
    pub(super) height: u64,
}

/// Segments of a JPEG that are passed before the size has to be found.
const SEGMENTS: usize = 2000;

/// The picture that a file holds, if it holds one.
pub(super) fn picture(head: &[u8], file: &mut File) -> Option<Picture> {
    let found = |media_type, width: u64, height: u64| Some(Picture { media_type, width, height });
    if head.starts_with(b"\x89PNG\r\n\x1a\n") && head.get(12..16)? == b"IHDR" {
        return found("image/png", big32(head, 16)?, big32(head, 20)?);
    }
    if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        return found("image/gif", little16(head, 6)?, little16(head, 8)?);
    }
    if head.starts_with(b"RIFF") && head.get(8..12)? == b"WEBP" {
        let (width, height) = webp(head)?;
        return found("image/webp", width, height);
    }
    if head.starts_with(b"BM") && head.get(6..10)? == [0; 4] {
        let (width, height) = match little32(head, 14)? {
            12 => (little16(head, 18)?, little16(head, 20)?),
            // A height below zero says that the rows go from the top down.
            40.. => (little32(head, 18)?, u64::from(i32::from_le_bytes(head.get(22..26)?.try_into().ok()?).unsigned_abs())),
            _ => return None,
        };
        return found("image/bmp", width, height);
    }
    if head.starts_with(b"\xff\xd8\xff") {
        let (width, height) = jpeg(file)?;
        return found("image/jpeg", width, height);
    }
    None
}

fn webp(head: &[u8]) -> Option<(u64, u64)> {
    match head.get(12..16)? {
        b"VP8 " if head.get(23..26)? == [0x9d, 0x01, 0x2a] => Some((little16(head, 26)? & 0x3fff, little16(head, 28)? & 0x3fff)),
        b"VP8L" if *head.get(20)? == 0x2f => {
            let bits = little32(head, 21)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((little24(head, 24)? + 1, little24(head, 27)? + 1)),
        _ => None,
    }
}

/// Passes from segment to segment until the frame header.
fn jpeg(file: &mut File) -> Option<(u64, u64)> {
    let mut at = 2;
    for _ in 0..SEGMENTS {
        let mut segment = [0; 9];
        file.seek(SeekFrom::Start(at)).ok()?;
        let mut filled = 0;
        while filled < segment.len() {
            match file.read(&mut segment[filled..]).ok()? {
                0 => break,
                more => filled += more,
            }
        }
        if filled < 4 || segment[0] != 0xff {
            return None;
        }
        match segment[1] {
            // Fill bytes and markers that stand alone.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // Frame headers; the others of this range are tables.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return (filled == 9).then(|| {
                    (u64::from(u16::from_be_bytes([segment[7], segment[8]])), u64::from(u16::from_be_bytes([segment[5], segment[6]])))
                });
            }
            _ => at += 2 + u64::from(u16::from_be_bytes([segment[2], segment[3]])),
        }
    }
    None
}

fn big32(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?)))
}

fn little32(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?)))
}

fn little24(bytes: &[u8], at: usize) -> Option<u64> {
    let part = bytes.get(at..at + 3)?;
    Some(u64::from(u32::from_le_bytes([part[0], part[1], part[2], 0])))
}

fn little16(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

/// What a binary file is, by its first bytes.
pub(super) fn kind(head: &[u8]) -> &'static str {
    const KINDS: &[(&[u8], &str)] = &[
        (b"\x7fELF", "ELF program or library"),
        (b"\x89PNG", "PNG picture"),
        (b"\xff\xd8\xff", "JPEG picture"),
        (b"GIF8", "GIF picture"),
        (b"PK\x03\x04", "ZIP archive (or a format made of one)"),
        (b"PK\x05\x06", "empty ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"BZh", "bzip2 data"),
        (b"\xfd7zXZ", "xz data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"7z\xbc\xaf", "7z archive"),
        (b"%PDF-", "PDF document"),
        (b"\0asm", "WebAssembly module"),
        (b"\xca\xfe\xba\xbe", "Java class or universal Mach-O program"),
        (b"\xcf\xfa\xed\xfe", "Mach-O program or library"),
        (b"MZ", "Windows program or library"),
        (b"SQLite format 3", "SQLite database"),
        (b"RIFF", "RIFF media"),
        (b"OggS", "Ogg media"),
        (b"ID3", "MP3 audio"),
        (b"Rar!", "RAR archive"),
        (b"!<arch>", "ar archive"),
        (b"wOF", "web font"),
        (b"BM", "BMP picture"),
    ];
    KINDS.iter().find(|(magic, _)| head.starts_with(magic)).map_or("binary data", |(_, kind)| kind)
}

/// Base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = u32::from(group[0]) << 16 | u32::from(*group.get(1).unwrap_or(&0)) << 8 | u32::from(*group.get(2).unwrap_or(&0));
        for index in 0..4 {
            let digit = if index <= group.len() { ALPHABET[(bits >> (18 - 6 * index) & 63) as usize] } else { b'=' };
            out.push(char::from(digit));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testbed::Bed;

    fn of(bytes: &[u8]) -> Option<(&'static str, u64, u64)> {
        let bed = Bed::new(&[]);
        bed.file("p", bytes);
        let mut file = File::open(bed.root.join("p")).unwrap();
        picture(bytes, &mut file).map(|picture| (picture.media_type, picture.width, picture.height))
    }

    #[test]
    fn sizes_are_in_the_headers() {
        assert_eq!(of(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\0\x10"), Some(("image/png", 256, 16)));
        assert_eq!(of(b"GIF89a\x05\0\x07\0"), Some(("image/gif", 5, 7)));
        let mut bmp = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x03\0\0\0".to_vec();
        bmp.extend((-4_i32).to_le_bytes());
        assert_eq!(of(&bmp), Some(("image/bmp", 3, 4)));
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x02\xff\xc2\0\x0b\x08\0\x20\0\x40\x03";
        assert_eq!(of(jpeg), Some(("image/jpeg", 64, 32)));
        assert_eq!(of(b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x63\0\0\xc7\0\0"), Some(("image/webp", 100, 200)));
        assert_eq!(of(b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x63\xc0\x31\0"), Some(("image/webp", 100, 200)));
        assert_eq!(of(b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x64\0\xc8\0"), Some(("image/webp", 100, 200)));
    }

    #[test]
    fn broken_headers_are_no_pictures() {
        for bytes in
            [&b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff", b"\xff\xd8\xff\xe0\xff\xff", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBP", b"text"]
        {
            assert_eq!(of(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
