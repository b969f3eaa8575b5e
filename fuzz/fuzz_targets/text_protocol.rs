//! The text protocol over any text: its pieces are the text, a printed call is read back, and what is shown of a result is no call.
#![no_main]

use bailiwick::dialect::text::{Piece, neutral, parse_declared, print};
use bailiwick::dialect::{Declared, declare};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static TOOLS: LazyLock<Vec<Declared>> = LazyLock::new(|| declare(bailiwick::tools::TOOLS));

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut at = 0;
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
});
