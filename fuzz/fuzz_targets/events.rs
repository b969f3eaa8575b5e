//! Server-sent events and lines of JSON: how the bytes are cut into pieces makes no difference.
#![no_main]

use bailiwick::provider::sse::{Decoder, Event};
use libfuzzer_sys::fuzz_target;

fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Option<Vec<Event>> {
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(decoder.feed(piece).ok()?);
    }
    events.extend(decoder.end().ok()?);
    Some(events)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[first, second, size], bytes)) = bytes.split_first_chunk::<3>() else { return };
    for make in [Decoder::new, Decoder::lines] {
        let whole = decode(make(1 << 20), &[bytes]);
        let (a, rest) = bytes.split_at(usize::from(first).min(bytes.len()));
        let (b, c) = rest.split_at(usize::from(second).min(rest.len()));
        assert_eq!(decode(make(1 << 20), &[a, b, c]), whole);
        let small: Vec<&[u8]> = bytes.chunks(usize::from(size).max(1)).collect();
        assert_eq!(decode(make(1 << 20), &small), whole);
        // With a small limit it ends, one way or the other.
        let _ = decode(make(8), &small);
    }
});
