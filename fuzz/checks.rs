//! What holds of any bytes. Shared by the fuzz targets and by `examples/fuzz.rs`, which needs no nightly compiler.

use bailiwick::dialect::text::{Piece, neutral, parse_declared, print};
use bailiwick::dialect::{Declared, declare};
use bailiwick::provider::sse::{Decoder, Event};
use std::sync::LazyLock;

static TOOLS: LazyLock<Vec<Declared>> = LazyLock::new(|| declare(bailiwick::tools::TOOLS));

/// The text protocol: its pieces are the text, a printed call is read back, and what is shown of a result is no call. Gives the number
/// of calls.
pub(crate) fn text_protocol(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let (mut at, mut calls) = (0, 0);
    for piece in parse_declared(&text, &TOOLS) {
        match piece {
            Piece::Prose(prose) => {
                assert!(text[at..].starts_with(&prose) && !prose.is_empty());
                at += prose.len();
            }
            Piece::Broken { span, .. } => {
                assert!(span.start == at && span.end > at);
                at = span.end;
            }
            Piece::Call { mut call, span } => {
                assert!(span.start == at && span.end > at);
                at = span.end;
                calls += 1;
                let printed = print(&call);
                let again = parse_declared(&printed, &TOOLS);
                let [Piece::Call { call: read, .. }] = &again[..] else { panic!("{printed:?} is read as {again:?}") };
                call.id.clone_from(&read.id);
                assert_eq!(*read, call, "{printed:?}");
            }
        }
    }
    assert_eq!(at, text.len(), "the pieces are not the text");
    for piece in parse_declared(&neutral(&text, "N0nce"), &TOOLS) {
        assert!(!matches!(piece, Piece::Call { .. }), "{piece:?}");
    }
    calls
}

/// Server-sent events and lines of JSON: how the bytes are cut into pieces makes no difference. Gives the number of events.
pub(crate) fn events(bytes: &[u8]) -> usize {
    let Some((&[first, second, size], bytes)) = bytes.split_first_chunk::<3>() else { return 0 };
    let mut seen = 0;
    for make in [Decoder::new, Decoder::lines] {
        let whole = decode(make(1 << 20), &[bytes]);
        let (a, rest) = bytes.split_at(usize::from(first).min(bytes.len()));
        let (b, c) = rest.split_at(usize::from(second).min(rest.len()));
        assert_eq!(decode(make(1 << 20), &[a, b, c]), whole);
        let small: Vec<&[u8]> = bytes.chunks(usize::from(size).max(1)).collect();
        assert_eq!(decode(make(1 << 20), &small), whole);
        // With a small limit it ends, one way or the other.
        let _ = decode(make(8), &small);
        seen += whole.map_or(0, |events| events.len());
    }
    seen
}

fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Option<Vec<Event>> {
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(decoder.feed(piece).ok()?);
    }
    events.extend(decoder.end().ok()?);
    Some(events)
}
