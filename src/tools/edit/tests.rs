//! The engine: rows of the cases, and properties over hostile bytes.

use super::plan::{Options, Plan, Replacement, plan};
use super::{Rung, plan as engine};
use crate::envelope::{Envelope, Fault, FaultCode};
use proptest::prelude::*;

fn edit(old: &str, new: &str) -> Replacement {
    Replacement { old: old.into(), new: new.into(), ..Replacement::default() }
}

fn one(file: &[u8], old: &str, new: &str) -> Result<Plan, Fault> {
    plan(file, &[edit(old, new)], Options::default())
}

#[track_caller]
fn gives(file: &[u8], old: &str, new: &str, rung: Rung, after: &[u8]) {
    let plan = one(file, old, new).unwrap_or_else(|fault| panic!("{fault}"));
    assert_eq!(plan.bytes.escape_ascii().to_string(), after.escape_ascii().to_string());
    assert_eq!(plan.verdicts[0].rung, Some(rung));
}

#[track_caller]
fn fails(file: &[u8], old: &str, new: &str, code: FaultCode) -> serde_json::Value {
    let fault = one(file, old, new).expect_err("the edit applied");
    assert_eq!(fault.code(), code, "{fault}");
    Envelope::from(Err(fault)).data().clone()
}

#[test]
fn line_ends_are_those_of_the_replaced_lines() {
    // T1, T3, T4.
    gives(b"a\r\nb\r\nc\r\n", "a\nb", "A\nB", Rung::LineEnds, b"A\r\nB\r\nc\r\n");
    gives(b"a\r\nb\r\nc\r\n", "b", "B", Rung::Exact, b"a\r\nB\r\nc\r\n");
    gives(b"a\r\nb\r\nc\r\n", "b", "b1\nb2", Rung::Exact, b"a\r\nb1\r\nb2\r\nc\r\n");
    gives(b"a\r\nb\r\nc\r\n", "b\n", "b1\nb2\n", Rung::LineEnds, b"a\r\nb1\r\nb2\r\nc\r\n");
    gives(b"a\rb\rc\r", "b", "b1\nb2", Rung::Exact, b"a\rb1\rb2\rc\r");
    // Mixed: each line takes the end of the line that it replaces; what is unchanged keeps its own.
    gives(b"a\nb\r\nc\rd\n", "a\nb\nc\nd\n", "a\nB\nc\nD\n", Rung::LineEnds, b"a\nB\r\nc\rD\n");
    gives(b"a\nb\r\nc\n", "b", "b\nx", Rung::Exact, b"a\nb\r\nx\r\nc\n");
    // An edit never begins within CRLF.
    gives(b"x\r\nfoo\r\n", "\nfoo", "\nbar", Rung::LineEnds, b"x\r\nbar\r\n");
    // Line ends change only when they are what the edit is about.
    gives(b"a\r\nb\r\n", "a\r\nb\r\n", "a\nb\n", Rung::Exact, b"a\nb\n");
    gives(b"a\nb\n", "b", "c\r\nd", Rung::Exact, b"a\nc\nd\n");
}

#[test]
fn a_makefile_changes_by_one_byte() {
    // T121.
    let file = b"all:\n\techo hi\n\ttrue a\n\nclean:\n\trm x\r\n";
    gives(file, "true a", "true b", Rung::Exact, b"all:\n\techo hi\n\ttrue b\n\nclean:\n\trm x\r\n");
    gives(file, "    true a", "    true b", Rung::Indentation, b"all:\n\techo hi\n\ttrue b\n\nclean:\n\trm x\r\n");
}

#[test]
fn indentation_shifts_as_a_whole_or_not_at_all() {
    // T6.
    let file = b"\tif x {\n\t\ty()\n\t}\n";
    gives(
        file,
        "    if x {\n        y()\n    }\n",
        "    if x {\n        if z {\n            y()\n        }\n    }\n",
        Rung::Indentation,
        b"\tif x {\n\t\tif z {\n\t\t\ty()\n\t\t}\n\t}\n",
    );
    gives(file, "if x {\n    y()\n}", "if x {\n    y()\n    w()\n}", Rung::Indentation, b"\tif x {\n\t\ty()\n\t\tw()\n\t}\n");
    let data = fails(file, "  if x {\n          y()\n   }\n", "z", FaultCode::NoMatch);
    assert!(data["nearest"]["difference"].as_str().unwrap().contains("the file uses tabs, your text uses spaces"), "{data}");
    // Two places that differ in indentation only are two places.
    fails(b"\ta\n\t\ta\n", "    a\n", "    b\n", FaultCode::Ambiguous);
    // Found exactly, but with a part of its indentation: the further lines follow.
    gives(
        b"        x()\n",
        "    x()\n",
        "    if y {\n        x()\n    }\n",
        Rung::Indentation,
        b"        if y {\n            x()\n        }\n",
    );
    gives(b"    a\n\n        b\n", "a\n\n    b\n", "c\n\n    b\n", Rung::Indentation, b"    c\n\n        b\n");
}

#[test]
fn a_number_column_is_taken_off_when_every_line_has_one() {
    // T7.
    let file = b"\tx\n\ty\n";
    gives(file, "     1\u{2502}\tx\n     2\u{2502}\ty", "     1\u{2502}\tx\n     2\u{2502}\tz", Rung::NumberColumn, b"\tx\n\tz\n");
    gives(file, "1\u{2502}\tx\n2\u{2502}\ty\n", "\tz\n", Rung::NumberColumn, b"\tz\n");
    fails(file, "1\u{2502}\tx\n\ty\n", "z", FaultCode::NoMatch);
    fails(file, "1\u{2502}\tx\n5\u{2502}\ty\n", "z", FaultCode::NoMatch);
    gives("1\u{2502}x\n".as_bytes(), "1\u{2502}x", "2\u{2502}x", Rung::Exact, "2\u{2502}x\n".as_bytes());
}

#[test]
fn typographic_characters_are_folded_and_kept() {
    // T8, T11.
    let file = "caf\u{e9} \u{2018}a\u{2019}\nsay \u{201c}hi\u{201d} now\n";
    gives(
        file.as_bytes(),
        "say \"hi\" now",
        "say \"hi\" later",
        Rung::Unicode,
        "caf\u{e9} \u{2018}a\u{2019}\nsay \u{201c}hi\u{201d} later\n".as_bytes(),
    );
    gives(
        file.as_bytes(),
        "say \"hi\" now\n",
        "x\nsay \"hi\" now\n",
        Rung::Unicode,
        "caf\u{e9} \u{2018}a\u{2019}\nx\nsay \u{201c}hi\u{201d} now\n".as_bytes(),
    );
    gives(file.as_bytes(), "cafe\u{301} 'a'", "tea", Rung::Unicode, "tea\nsay \u{201c}hi\u{201d} now\n".as_bytes());
    gives("a\u{a0}b \u{2013} c\n".as_bytes(), "a b - c", "d", Rung::Unicode, b"d\n");
    // Not half of a composed character.
    fails("e\u{301}\u{2019}\n".as_bytes(), "e'", "x", FaultCode::NoMatch);
}

#[test]
fn blanks_within_a_line_count_and_are_named() {
    // T12.
    let data = fails(b"int    x = 1;\n", "int x = 1;", "int x = 2;", FaultCode::NoMatch);
    assert_eq!(data["nearest"]["file"], "int    x = 1;");
    assert!(data["nearest"]["difference"].as_str().unwrap().contains("blanks within the line"));
}

#[test]
fn blanks_never_cross_a_line_end() {
    // T14.
    fails(b"foo\nbar\n", "foo ", "baz ", FaultCode::NoMatch);
    fails(b"a\n\n\nb\n", "a\n\nb", "x", FaultCode::NoMatch);
    fails(b"a\n\nb\n", "a\n\n\nb", "x", FaultCode::NoMatch);
    gives(b"foo  \nbar\n", "foo\nbar", "foo\nbaz", Rung::TrailingBlanks, b"foo  \nbaz\n");
    gives(b"foo\nbar\n", "foo \nbar\t\n", "foo\nbaz\n", Rung::TrailingBlanks, b"foo\nbaz\n");
}

#[test]
fn invented_or_outdated_lines_are_refused_and_shown() {
    // T15, T17.
    let data = fails(b"fn a() {\n  real1\n  real2\n}\n", "fn a() {\n  invented\n}", "x", FaultCode::NoMatch);
    assert_eq!(data["nearest"]["line"], 2);
    assert_eq!(data["nearest"]["file"], "  real1");
    let file = b"func f() {\n\tx := 1\n\ty := 2\n\tz := 3\n\treturn x\n}\n";
    let data = fails(file, "func f() {\n\tx := 1\n\ty := 99\n\tz := 3\n\treturn x\n}", "x", FaultCode::NoMatch);
    assert_eq!(data["nearest"]["line"], 3);
    assert_eq!(data["nearest"]["file"], "\ty := 2");
    assert!(data["nearest"]["difference"].as_str().unwrap().contains("column 7"), "{data}");
}

#[test]
fn several_places_are_an_error_with_every_line() {
    // T18, T20.
    let data = fails(b"debug = True\nx\ndebug = True\n", "debug = True", "debug = False", FaultCode::Ambiguous);
    assert_eq!(data["lines"], serde_json::json!([1, 3]));
    let data = fails(b"aXaXa", "aXa", "b", FaultCode::Ambiguous);
    assert_eq!(data["count"], 2);
    // Ambiguous on one rung is not a reason to try the next, nor to prefer one that a later rung would.
    fails(b"a \nb\na \nb\na\nb\n", "a \nb", "x", FaultCode::Ambiguous);
    let near = Replacement { near_line: Some(3), ..edit("debug = True", "debug = False") };
    let plan = engine(b"debug = True\nx\ndebug = True\n", &[near], Options::default()).unwrap();
    assert_eq!(plan.bytes, b"debug = True\nx\ndebug = False\n");
    let between = Replacement { near_line: Some(2), ..edit("debug = True", "debug = False") };
    assert_eq!(engine(b"debug = True\nx\ndebug = True\n", &[between], Options::default()).unwrap_err().code(), FaultCode::Ambiguous);
}

#[test]
fn replace_all_takes_two_rungs_and_no_overlap() {
    let all = |old: &str, new: &str| Replacement { replace_all: true, ..edit(old, new) };
    let run = |file: &[u8], edit| engine(file, &[edit], Options::default());
    let plan = run(b"a b a\na\n", all("a", "cc")).unwrap();
    assert_eq!(plan.bytes, b"cc b cc\ncc\n");
    assert_eq!((plan.verdicts[0].replaced, &plan.verdicts[0].lines[..]), (3, &[[1, 1], [1, 1], [2, 2]][..]));
    assert_eq!(run(b"a\r\nb\r\na\r\nb\r\n", all("a\nb", "c\nd")).unwrap().bytes, b"c\r\nd\r\nc\r\nd\r\n");
    assert_eq!(run(b"aXaXa", all("aXa", "b")).unwrap_err().code(), FaultCode::Ambiguous);
    assert_eq!(run(b"a  \nb\n", all("a\nb", "c")).unwrap_err().code(), FaultCode::NoMatch);
}

#[test]
fn the_new_text_is_plain_text() {
    // T22.
    gives(b"x\n", "x", "log(\"$& $1 $$ $'\"); \\1 \\0", Rung::Exact, b"log(\"$& $1 $$ $'\"); \\1 \\0\n");
}

#[test]
fn a_miss_in_a_long_file_is_quick() {
    // T23.
    let file: String = (0..12_000).map(|n| format!("    let value_{n} = compute(value_{}, {n});\n", n / 2)).collect();
    let old: String = (0..200).map(|n| format!("    let value_{n} = compute(value_{}, x{n});\n", n / 3)).collect();
    let mut quickest = std::time::Duration::MAX;
    for _ in 0..3 {
        let begin = std::time::Instant::now();
        let data = fails(file.as_bytes(), &old, "x", FaultCode::NoMatch);
        quickest = quickest.min(begin.elapsed());
        assert!(data["nearest"].is_object());
    }
    // 50 ms is the budget of an optimised build on an idle machine; the work is bounded by counts, and the test is generous.
    assert!(quickest.as_millis() < 1000, "{quickest:?}");
    // A hostile file: every line the same, the text almost so.
    let file = "x\n".repeat(50_000) + "  y\n";
    let old = "x\n".repeat(20_000) + "y\n";
    let begin = std::time::Instant::now();
    fails(file.as_bytes(), &("z\n".to_owned() + &old), "x", FaultCode::NoMatch);
    assert!(begin.elapsed().as_secs() < 5, "{:?}", begin.elapsed());
}

#[test]
fn an_edit_made_before_is_recognised() {
    // T25.
    let after = one(b"a\nold\nb\n", "old", "new text").unwrap().bytes;
    let data = fails(&after, "old", "new text", FaultCode::AlreadyApplied);
    assert_eq!(data["lines"], serde_json::json!([2]));
    fails(b"        x\n", "    x\n", "        x\n", FaultCode::AlreadyApplied);
    fails(b"a\n", "a", "a", FaultCode::NoChange);
    fails(b"a\n", "zzz", "", FaultCode::NoMatch);
}

#[test]
fn bytes_that_are_no_utf8_stay() {
    // T26, T27.
    let file = b"const x = 1;\n// caf\xe9\n";
    gives(file, "const x = 1;", "const x = 2;", Rung::Exact, b"const x = 2;\n// caf\xe9\n");
    gives(file, "// caf\\xe9", "// the caf\\xe9", Rung::Exact, b"const x = 1;\n// the caf\xe9\n");
    fails(file, "const x = 1;", "const x = \"\u{e9}\";", FaultCode::NotEncodable);
    let data = fails(file, "// caf\u{e9}", "// tea", FaultCode::NoMatch);
    assert!(data["nearest"]["difference"].as_str().unwrap().contains("no UTF-8"), "{data}");
    // An escape that is meant as it stands.
    gives(b"caf\xe9 \"\\xe9\"\n", "\"\\\\xe9\"", "\"\\x1b\"", Rung::Exact, b"caf\xe9 \"\\x1b\"\n");
    gives(b"a\0b\n", "b", "c", Rung::Exact, b"a\0c\n");
}

#[test]
fn marks_and_final_newlines_stay() {
    // T29, T32, T33.
    gives(b"\xef\xbb\xbfhello\n", "hello", "bye", Rung::Exact, b"\xef\xbb\xbfbye\n");
    gives(b"\xef\xbb\xbfhello\r\nx", "hello\nx", "hello\ny", Rung::LineEnds, b"\xef\xbb\xbfhello\r\ny");
    gives(b"a\nb", "a", "A", Rung::Exact, b"A\nb");
    gives(b"a\nb", "a\nb\n", "A\nB\n", Rung::LineEnds, b"A\nB");
    gives(b"a\nb", "b\n", "B\nC\n", Rung::LineEnds, b"a\nB\nC");
    gives(b"a\nb", "b", "b\nc", Rung::Exact, b"a\nb\nc");
    gives(b"a\nb", "b", "b\n", Rung::Exact, b"a\nb\n");
}

#[test]
fn utf16_is_edited_as_text() {
    // T58.
    gives(b"\xff\xfeh\0i\0\n\0", "hi", "h\u{e9}", Rung::Exact, b"\xff\xfeh\0\xe9\0\n\0");
    gives(b"\xfe\xff\0a\0\r\0\n\0b", "a\nb", "a\nc", Rung::LineEnds, b"\xfe\xff\0a\0\r\0\n\0c");
    let plan = one(b"\xff\xfea\0\n\0b\0\n\0c\0\n\0", "b", "b\nB").unwrap();
    assert_eq!(plan.verdicts[0].lines, [[2, 3]]);
    // Half a pair and an odd byte at the end stay.
    gives(b"\xff\xfea\0\x00\xd8b\0z", "b", "c", Rung::Exact, b"\xff\xfea\0\x00\xd8c\0z");
}

#[test]
fn lines_are_inserted_where_they_are_asked_for() {
    // T35.
    let insert = |file: &[u8], line, new: &str| {
        let edit = Replacement { insert_line: Some(line), ..edit("", new) };
        engine(file, &[edit], Options::default()).map(|plan| plan.bytes)
    };
    assert_eq!(insert(b"hello\nworld", 2, "tail").unwrap(), b"hello\nworld\ntail");
    assert_eq!(insert(b"hello\nworld", 2, "tail\n").unwrap(), b"hello\nworld\ntail");
    assert_eq!(insert(b"a\r\nb\r\n", 1, "x\ny").unwrap(), b"a\r\nx\r\ny\r\nb\r\n");
    assert_eq!(insert(b"a\n", 0, "x").unwrap(), b"x\na\n");
    assert_eq!(insert(b"\xef\xbb\xbfa\n", 0, "x").unwrap(), b"\xef\xbb\xbfx\na\n");
    assert_eq!(insert(b"", 0, "x").unwrap(), b"x\n");
    assert_eq!(insert(b"a\n", 2, "x").unwrap_err().code(), FaultCode::InvalidArguments);
    assert_eq!(one(b"", "", "x\ny").unwrap().bytes, b"x\ny");
    assert_eq!(one(b"a", "", "x").unwrap_err().code(), FaultCode::InvalidArguments);
}

#[test]
fn all_edits_or_none() {
    // T51.
    let file = b"one\ntwo\nthree\n";
    let plan = engine(file, &[edit("three", "3"), edit("one", "1\n1")], Options::default()).unwrap();
    assert_eq!(plan.bytes, b"1\n1\ntwo\n3\n");
    assert_eq!((&plan.verdicts[0].lines[..], &plan.verdicts[1].lines[..]), (&[[4, 4]][..], &[[1, 2]][..]));
    let fault = engine(file, &[edit("one", "1"), edit("missing", "x")], Options::default()).unwrap_err();
    assert_eq!(fault.code(), FaultCode::NoMatch);
    let data = Envelope::from(Err(fault)).data().clone();
    assert_eq!(data["edits"][0]["verdict"], "would_apply");
    assert_eq!(data["edits"][1]["verdict"], "no_match");
    let fault = engine(file, &[edit("one\ntwo", "x"), edit("two\nthree", "y")], Options::default()).unwrap_err();
    assert_eq!(fault.code(), FaultCode::OverlappingEdits);
    let fault = engine(file, &[edit("one", "uno"), edit("uno", "eins")], Options::default()).unwrap_err();
    assert!(fault.hint_text().unwrap().contains("edit 1"));
}

#[test]
fn strict_stops_at_the_first_rung() {
    let strict = Options { strict: true };
    let fault = engine(b"a\r\nb\r\n", &[edit("a\nb", "x")], strict).unwrap_err();
    assert_eq!(fault.code(), FaultCode::NoMatch);
    assert!(fault.hint_text().unwrap().contains("strict"));
    assert_eq!(engine(b"a\r\nb\r\n", &[edit("a", "x")], strict).unwrap().bytes, b"x\r\nb\r\n");
}

/// Files of short lines with every kind of line end and of byte.
fn file() -> impl Strategy<Value = Vec<u8>> {
    const WORDS: &[&[u8]] = &[
        b"a",
        b"b",
        b"ab",
        b" ",
        b"\t",
        b"\xe9",
        b"\0",
        b"\xc3\xa9",
        b"\xe2\x80\x9c",
        b"e\xcc\x81",
        b"\"",
        b"\\",
        b"\\xe9",
        b"\n",
        b"\r\n",
        b"\r",
        b"\n",
    ];
    // A line that is longer than any piece in which something is read or shown.
    let long = (3000usize..5000).prop_map(|times| b"z".repeat(times));
    let word = prop_oneof![60 => prop::sample::select(WORDS).prop_map(<[u8]>::to_vec), 1 => long];
    let text = prop::collection::vec(word, 0..30).prop_map(|words| words.concat());
    (text, 0..5usize).prop_map(|(text, kind)| match kind {
        0 => [b"\xef\xbb\xbf", &text[..]].concat(),
        1 => [b"\xff\xfe".to_vec(), String::from_utf8_lossy(&text).encode_utf16().flat_map(u16::to_le_bytes).collect()].concat(),
        2 => [b"\xfe\xff".to_vec(), String::from_utf8_lossy(&text).encode_utf16().flat_map(u16::to_be_bytes).collect()].concat(),
        _ => text,
    })
}

/// A stretch of the file's own text, sometimes with what a model does to it.
fn quoted(file: &[u8], from: usize, length: usize, slip: u8) -> String {
    use crate::workspace::decode::{decode, detect_whole};
    let encoding = detect_whole(file);
    let text = decode(&file[encoding.bom().len()..], encoding).into_owned();
    let old: String = text.chars().skip(from % (text.chars().count() + 1)).take(length).collect();
    match slip % 6 {
        0 => old.replace("\r\n", "\n").replace('\r', "\n"),
        1 => old.replace('\u{201c}', "\""),
        2 => old.lines().map(|line| format!("{}\n", line.trim_end())).collect(),
        3 => old.lines().map(|line| format!("    {line}\n")).collect(),
        4 => old.lines().enumerate().map(|(n, line)| format!("{}\u{2502}{line}\n", n + 1)).collect(),
        _ => old,
    }
}

/// Every byte outside of the spans is where it was; checked without the engine's own code.
fn untouched(old: &[u8], plan: &Plan) -> bool {
    let mut kept_old = old.to_vec();
    let mut kept_new = plan.bytes.clone();
    for span in plan.spans.iter().rev() {
        kept_old.drain(span.old.clone());
        kept_new.drain(span.new.clone());
    }
    kept_old == kept_new
}

proptest! {
    #![proptest_config(crate::property_tests::cases(1000))]

    #[test]
    fn bytes_outside_of_the_spans_are_identical(
        file in file(), from in 0usize..30, length in 1usize..8, slip in any::<u8>(), new in "[xy\" \t]{0,4}(\n[xy]{0,3}){0,2}\n?", all in any::<bool>(), strict in any::<bool>(),
    ) {
        let old = quoted(&file, from, length, slip);
        let edit = Replacement { replace_all: all, ..edit(&old, &new) };
        if let Ok(plan) = engine(&file, &[edit], Options { strict }) {
            prop_assert!(untouched(&file, &plan));
            prop_assert_ne!(&plan.bytes, &file);
            prop_assert_eq!(plan.spans.len(), plan.verdicts[0].replaced);
        }
    }

    #[test]
    fn an_applied_edit_is_there_once(file in file(), from in 0usize..30, length in 1usize..8, slip in any::<u8>()) {
        let old = quoted(&file, from, length, slip);
        let marker = "NEW-TEXT";
        if let Ok(plan) = one(&file, &old, marker) {
            let text = crate::workspace::decode::decode(&plan.bytes, plan.encoding).into_owned();
            prop_assert_eq!(text.matches(marker).count(), 1);
            let span = &plan.spans[0];
            let inside = crate::workspace::decode::decode(&plan.bytes[span.new.clone()], plan.encoding).into_owned();
            prop_assert_eq!(inside.trim_matches([' ', '\t', '\r', '\n']), marker);
        }
    }

    #[test]
    fn several_edits_are_all_there_or_none(file in file(), picks in prop::collection::vec((0usize..30, 1usize..4, any::<u8>()), 2..4)) {
        let edits: Vec<Replacement> =
            picks.iter().enumerate().map(|(n, (from, length, slip))| edit(&quoted(&file, *from, *length, *slip), &format!("NEW{n}TEXT"))).collect();
        match engine(&file, &edits, Options::default()) {
            Ok(plan) => {
                prop_assert!(untouched(&file, &plan));
                let text = crate::workspace::decode::decode(&plan.bytes, plan.encoding).into_owned();
                for n in 0..edits.len() {
                    prop_assert_eq!(text.matches(&format!("NEW{n}TEXT")).count(), 1);
                }
            }
            Err(fault) => {
                prop_assert_ne!(fault.code(), FaultCode::Internal);
                if fault.code() != FaultCode::OverlappingEdits {
                    let data = Envelope::from(Err(fault)).data().clone();
                    prop_assert_eq!(data["edits"].as_array().map(Vec::len), Some(edits.len()));
                }
            }
        }
    }

    #[test]
    fn line_ends_do_not_mix(lines in prop::collection::vec("[ab]{0,3}", 1..8), new in "[xy]{1,2}(\n[xy]{0,2}){0,3}", at in 0usize..8, kind in 0..3usize) {
        let eol = ["\n", "\r\n", "\r"][kind];
        let file: String = lines.iter().map(|line| format!("{line}{eol}")).collect();
        let old = lines[at % lines.len()].clone() + "\n";
        if let Ok(plan) = one(file.as_bytes(), &old, &(new + "\n")) {
            let text = String::from_utf8(plan.bytes).unwrap();
            let summary = crate::workspace::decode::eol(&text);
            prop_assert_eq!(summary, crate::workspace::decode::eol(&file), "{:?}", text);
        }
    }

    #[test]
    fn the_exact_text_of_a_unique_place_is_found(file in file(), from in 0usize..30, length in 1usize..8) {
        let old = quoted(&file, from, length, 5);
        let new = format!("{old}NEW");
        match one(&file, &old, &new) {
            Ok(plan) => prop_assert!(untouched(&file, &plan)),
            Err(fault) => prop_assert_ne!(fault.code(), FaultCode::Internal),
        }
    }
}
