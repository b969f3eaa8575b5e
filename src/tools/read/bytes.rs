//! Files that are no text: bytes in hex, and pictures.

use super::splitter::RawLine;
use super::stream::{self, Scan};
use super::{Args, Content, LIMIT, Picture, Text, mode, picture, shape};
use crate::envelope::{Fault, FaultCode};
use crate::tools::source::Source;
use crate::tools::{clock, page};
use crate::workspace::Hash;
use crate::workspace::decode::{self, Encoding};
use std::io::{Read as _, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

/// Bytes in a line of hex.
const ROW: u64 = 16;

/// Pictures of more bytes than this are not given.
const PICTURE: u64 = 4 << 20;

/// Bytes in hex, 16 a line; lines are counted as those of a text.
pub(super) fn hex(mut source: Source, args: &Args) -> Result<Text, Fault> {
    let size = source.meta.len();
    let total = size.div_ceil(ROW);
    let offset = args.offset.unwrap_or(1);
    let first = if offset < 0 { total.saturating_sub(offset.unsigned_abs()) + 1 } else { offset.unsigned_abs().max(1) };
    // A row of hex is 78 bytes of text.
    let most = (page::BUDGET / 78) as u64;
    let lines = args.limit.unwrap_or(LIMIT).min(most).min(total.saturating_sub(first - 1));
    let mut bytes = vec![0; usize::try_from(lines * ROW).unwrap_or(0)];
    source.file.seek(SeekFrom::Start((first - 1).saturating_mul(ROW))).map_err(|error| stream::io_fault(&error))?;
    let filled = stream::fill(&mut source.file, &mut bytes)?;
    let (mut lines, mut text) = (Vec::new(), Vec::new());
    for (index, row) in bytes[..filled].chunks(16).enumerate() {
        let begins = text.len();
        text.extend_from_slice(hex_row((first - 1 + index as u64) * ROW, row).as_bytes());
        lines.push(RawLine { place: begins..text.len(), eol: b"\n", ..RawLine::default() });
        text.push(b'\n');
    }
    let hash = if size <= stream::SCANNED { hash_of(&mut source)? } else { None };
    let scan = Scan {
        lines,
        text,
        total,
        whole: true,
        eols: decode::EolCount::default(),
        ended: true,
        // The rows are plain text; what they show is not.
        encoding: Encoding::Utf8,
        hash,
        outline: None,
        full: false,
    };
    let mut text = shape(&source, args, scan, first.cast_signed());
    text.encoding = Encoding::Bytes;
    text.final_newline = None;
    Ok(text)
}

fn hex_row(at: u64, row: &[u8]) -> String {
    let mut out = format!("{at:08x} ");
    for index in 0..16 {
        out.push_str(if index == 8 { "  " } else { " " });
        match row.get(index) {
            Some(byte) => out.push_str(&format!("{byte:02x}")),
            None => out.push_str("  "),
        }
    }
    out.push_str("  |");
    out.extend(row.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }));
    out.push('|');
    out
}

fn hash_of(source: &mut Source) -> Result<Option<Hash>, Fault> {
    source.file.seek(SeekFrom::Start(0)).and_then(|_| Hash::of_reader(&source.file)).map(Some).map_err(|error| stream::io_fault(&error))
}

/// A picture; else the fault of a file that is no text.
pub(super) fn binary(mut source: Source, head: &[u8], args: &Args) -> Result<Content, Fault> {
    let size = source.meta.len();
    let Some(found) = picture::picture(head, &mut source.file) else {
        let first: Vec<String> = head.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
        let kind = picture::kind(head);
        return Err(Fault::new(FaultCode::BinaryFile, format!("{} is not text: {kind}, {size} bytes", source.shown))
            .hint("format \"hex\" shows its bytes")
            .with("type", kind)
            .with("size", size)
            .with("head_hex", first.join(" ")));
    };
    let hash = if size <= stream::SCANNED { hash_of(&mut source)? } else { None };
    let base64 = if args.image { Some(picture_content(&mut source)?) } else { None };
    Ok(Content::Picture(Picture {
        media_type: found.media_type,
        width: found.width,
        height: found.height,
        total_bytes: size,
        mode: mode(&source),
        mtime: clock::show(source.meta.mtime()),
        path: source.shown,
        hash,
        base64,
    }))
}

fn picture_content(source: &mut Source) -> Result<String, Fault> {
    source.file.seek(SeekFrom::Start(0)).map_err(|error| stream::io_fault(&error))?;
    let mut bytes = Vec::new();
    (&mut source.file).take(PICTURE + 1).read_to_end(&mut bytes).map_err(|error| stream::io_fault(&error))?;
    if bytes.len() as u64 > PICTURE {
        return Err(Fault::new(FaultCode::TooLarge, format!("{} has more than {PICTURE} bytes", source.shown))
            .hint("without image, read gives its size in pixels")
            .with("size", source.meta.len()));
    }
    Ok(picture::base64(&bytes))
}
