use super::*;
use crate::tools::Render;
use crate::tools::testbed::{self, Bed, soon};
use serde_json::json;

fn run(bed: &Bed, args: Value) -> Result<Found, Fault> {
    grep(&bed.base, None, &testbed::args::<Grep>(args), soon())
}

fn text(bed: &Bed, args: Value) -> String {
    run(bed, args).unwrap().render()
}

/// `path:line:text` of each matching line.
fn lines(bed: &Bed, args: Value) -> Vec<String> {
    let found = run(bed, args).unwrap();
    let shown = |file: &FileFound| file.lines.iter().map(|line| format!("{}:{}:{}", file.path, line.line, line.text)).collect::<Vec<_>>();
    found.files.iter().flat_map(shown).collect()
}

#[test]
fn hits_come_in_path_order_with_their_numbers() {
    let bed =
        Bed::new(&[("b.rs", "one\ntwo needle\n"), ("a/c.rs", "needle\n"), (".github/w.yml", "x needle\n"), (".git/config", "needle\n")]);
    assert_eq!(
        text(&bed, json!({"pattern": "needle"})),
        ".github/w.yml\n1│x needle\n\na/c.rs\n1│needle\n\nb.rs\n2│two needle\n[3 matching lines in 3 files]"
    );
    assert_eq!(text(&bed, json!({"pattern": "needle", "output_mode": "files"})), ".github/w.yml\na/c.rs\nb.rs\n[3 files]");
    assert_eq!(text(&bed, json!({"pattern": "e", "output_mode": "count"})), ".github/w.yml: 1\na/c.rs: 1\nb.rs: 2\n[3 files]");
    assert_eq!(lines(&bed, json!({"pattern": "needle", "hidden": false})), ["a/c.rs:1:needle", "b.rs:2:two needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "path": ".git"})), [".git/config:1:needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "path": ["b.rs", "a", "a/c.rs"]})), ["a/c.rs:1:needle", "b.rs:2:two needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "path": "a", "glob": "a/*.rs"})), ["a/c.rs:1:needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "glob": "*.rs", "exclude": "a/"})), ["b.rs:2:two needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "type": "yaml"})), [".github/w.yml:1:x needle"]);
    assert_eq!(lines(&bed, json!({"pattern": "NEEDLE$", "ignore_case": true, "type": "rs"})).len(), 2);
    assert_eq!(lines(&bed, json!({"pattern": "e", "invert": true})), [""; 0]);
    assert_eq!(lines(&bed, json!({"pattern": "needle", "invert": true, "path": "b.rs"})), ["b.rs:1:one"]);
}

#[test]
fn the_golden_json() {
    let bed = Bed::new(&[("a", "x\nab\ny\n")]);
    assert_eq!(
        serde_json::to_value(run(&bed, json!({"pattern": "b", "context": 1})).unwrap()).unwrap(),
        json!({
            "output_mode": "content",
            "engine": "linear",
            "files": [{"path": "a", "count": 1, "lines": [
                {"line": 1, "text": "x", "role": "context"},
                {"line": 2, "column": 2, "text": "ab"},
                {"line": 3, "text": "y", "role": "context"},
            ]}],
            "total": 1,
            "files_total": 1,
            "counts": {"searched": 1, "ignored": 0, "binary": 0, "too_large": 0, "unreadable": 0},
        })
    );
    assert_eq!(text(&bed, json!({"pattern": "b", "context": 1})), "a\n1┆x\n2│ab\n3┆y\n[1 matching line in 1 file]");
}

#[test]
fn a_pattern_that_begins_with_a_dash_is_a_pattern() {
    let bed = Bed::new(&[("a", "-77\n--pdf-engine\na->b\n")]);
    for pattern in ["-77", "--pdf-engine", "->"] {
        assert_eq!(run(&bed, json!({"pattern": pattern})).unwrap().total, 1, "{pattern}");
    }
    assert_eq!(run(&bed, json!({"pattern": "a->", "path": "-x"})).unwrap_err().code(), FaultCode::NotFound);
}

#[test]
fn line_ends_do_not_matter() {
    let bed = Bed::new(&[("crlf", "x\r\nneedle\r\n"), ("cr", "x\rneedle\ry\r"), ("bom", "\u{feff}needle\nx")]);
    for pattern in ["needle$", "^needle$"] {
        assert_eq!(lines(&bed, json!({"pattern": pattern})), ["bom:1:needle", "cr:2:needle", "crlf:2:needle"], "{pattern}");
    }
    assert_eq!(lines(&bed, json!({"pattern": "(?<!x)needle$"})).len(), 3);
}

#[test]
fn all_encodings_are_searched_and_binary_files_are_counted() {
    let bed = Bed::new(&[]);
    bed.file("le", b"\xff\xfeh\0i\0\n\0\xe9\0\n\0")
        .file("be", b"\xfe\xff\0h\0i")
        .file("latin", b"hi caf\xe9\n")
        .file("elf", b"\x7fELF\0hi");
    assert_eq!(lines(&bed, json!({"pattern": "hi"})), ["be:1:hi", "latin:1:hi caf\\xe9", "le:1:hi"]);
    assert_eq!(lines(&bed, json!({"pattern": "é"})), ["le:2:é"]);
    let none = text(&bed, json!({"pattern": "zzz"}));
    assert_eq!(none, "nothing found\n[searched 3 files, 1 binary]");
}

#[test]
fn what_is_ignored_is_said_and_what_is_named_is_searched() {
    let bed = Bed::new(&[(".gitignore", "scripts/*\n/dist\n"), ("scripts/a.py", "word\nword\n"), ("dist/b.py", "word\n"), ("c.py", "x\n")]);
    assert_eq!(
        text(&bed, json!({"pattern": "word"})),
        "nothing found\n[searched 2 files, 2 left out by ignore rules]\n[3 matching lines in 2 ignored files: no_ignore: true shows them]"
    );
    assert_eq!(run(&bed, json!({"pattern": "word", "no_ignore": true})).unwrap().total, 3);
    assert_eq!(run(&bed, json!({"pattern": "word", "path": "dist"})).unwrap().total, 1);
    assert_eq!(run(&bed, json!({"pattern": "word", "path": "scripts/a.py"})).unwrap().total, 2);
    assert_eq!(run(&bed, json!({"pattern": "word", "path": [".", "dist", "c.py"]})).unwrap().total, 1);
    assert!(text(&bed, json!({"pattern": "nowhere"})).ends_with("left out by ignore rules]"));
}

#[test]
fn pages_and_totals_are_exact() {
    let bed = Bed::new(&[]);
    for n in 0..7 {
        bed.file(format!("f{n}"), "hit\nmiss\nhit\nhit\n");
    }
    let page = run(&bed, json!({"pattern": "hit", "limit": 4})).unwrap();
    assert_eq!((page.total, page.files_total, page.files.len(), page.files[1].lines.len()), (21, 7, 2, 1));
    assert!(page.render().ends_with("f1\n1│hit\n[shown 4 of 21 matching lines; offset 4 shows more]"));
    let all: Vec<String> =
        (0..21).step_by(4).flat_map(|offset| lines(&bed, json!({"pattern": "hit", "limit": 4, "offset": offset}))).collect();
    assert_eq!(all, lines(&bed, json!({"pattern": "hit"})));
    assert_eq!(run(&bed, json!({"pattern": "hit", "limit": 21})).unwrap().truncation, None);
    let two = run(&bed, json!({"pattern": "hit", "max_per_file": 2})).unwrap();
    let cut = two.truncation.clone().unwrap();
    assert_eq!((two.total, cut.shown, cut.total, cut.by, cut.next_offset), (21, 14, 21, "max_per_file", None));
    assert!(two.render().starts_with("f0\n1│hit\n3│hit\n[1 more in this file]\n"));
    assert!(two.render().ends_with("[shown 14 of 21 matching lines; max_per_file left out the rest, a larger one or none shows it]"));
    let cut = run(&bed, json!({"pattern": "hit", "max_per_file": 2, "limit": 4})).unwrap().truncation.unwrap();
    assert_eq!((cut.shown, cut.total, cut.by, cut.next_offset), (4, 21, "limit", Some(4)));
    assert_eq!(run(&bed, json!({"pattern": "hit", "max_per_file": 3})).unwrap().truncation, None);
    assert_eq!(run(&bed, json!({"pattern": "hit", "max_per_file": 1, "output_mode": "count"})).unwrap().truncation, None);
    assert_eq!(run(&bed, json!({"pattern": "hit", "output_mode": "files", "limit": 3})).unwrap().truncation.unwrap().total, 7);
}

#[test]
fn long_results_are_cut_by_bytes_and_long_lines_to_a_window() {
    let bed = Bed::new(&[("long", &format!("{}NEEDLE{}\n", "a".repeat(3000), "b".repeat(3000)))]);
    bed.file("many", format!("NEEDLE {}\n", "x".repeat(490)).repeat(150));
    let found = run(&bed, json!({"pattern": "NEEDLE", "path": "long"})).unwrap();
    let line = &found.files[0].lines[0];
    assert!(line.text.contains("NEEDLE") && line.text.len() <= 500);
    assert_eq!((line.column, line.cut_before + line.cut_after + line.text.len() as u64), (Some(3001), 6006));
    assert!(found.render().contains("[2850 bytes before]…a"));
    let found = run(&bed, json!({"pattern": "NEEDLE", "path": "many"})).unwrap();
    let cut = found.truncation.clone().unwrap();
    assert_eq!((cut.total, cut.next_offset), (150, Some(cut.shown)));
    assert!(found.render().len() < 56_000 && cut.shown > 90);
}

#[test]
fn the_second_engine_is_named_and_bounded() {
    let bed = Bed::new(&[("a", "foobar\nfoobaz\n"), ("b", &"a".repeat(5000))]);
    let found = run(&bed, json!({"pattern": "foo(?!bar)"})).unwrap();
    assert_eq!((found.engine, found.total, found.files[0].lines[0].line), ("bounded", 1, 2));
    assert!(found.render().contains("second engine"));
    let found = run(&bed, json!({"pattern": r"(?=(a+)+$)(a|aa)+\1b"})).unwrap();
    assert!(found.at_least && found.render().contains("1 line took too many steps"));
    let fault = run(&bed, json!({"pattern": "foo("})).unwrap_err();
    assert_eq!(fault.code(), FaultCode::InvalidPattern);
    assert!(fault.message().contains("position 4"), "{}", fault.message());
    assert_eq!(run(&bed, json!({"pattern": "foo(", "literal": true})).unwrap().total, 0);
}

#[test]
fn matches_across_lines() {
    let bed = Bed::new(&[("a", "fn x() {\n  y\n}\nfn z() {}\n")]);
    assert_eq!(text(&bed, json!({"pattern": r"\{\n.*\n\}", "multiline": true})), "a\n1│fn x() {\n2│  y\n3│}\n[1 matching line in 1 file]");
    let found = run(&bed, json!({"pattern": r"y\n\}"})).unwrap();
    assert_eq!((found.files[0].lines[0].line, found.files[0].lines[0].column, found.notes.len()), (2, Some(3), 1));
}

#[test]
fn nothing_special_is_opened_and_nothing_outside_is_read() {
    let bed = Bed::new(&[("a", "secret\n")]);
    std::fs::write(bed.root.parent().unwrap().join("outside.rs"), "secret\n").unwrap();
    bed.fifo("pipe").link("../outside.rs", "l.rs").link("a", "in");
    assert_eq!(lines(&bed, json!({"pattern": "secret"})), ["a:1:secret"]);
    assert_eq!(run(&bed, json!({"pattern": "x", "path": "pipe"})).unwrap_err().code(), FaultCode::NotRegularFile);
    assert_eq!(run(&bed, json!({"pattern": "x", "path": "l.rs"})).unwrap_err().code(), FaultCode::OutsideWorkspace);
    assert_eq!(run(&bed, json!({"pattern": "x", "path": "../outside.rs"})).unwrap_err().code(), FaultCode::OutsideWorkspace);
    assert_eq!(lines(&bed, json!({"pattern": "secret", "path": "in"})), ["in:1:secret"]);
}

#[test]
fn a_large_file_is_streamed() {
    let bed = Bed::new(&[]);
    let mut content = b"\xef\xbb\xbfneedle first\n".to_vec();
    content.extend(std::iter::repeat_n(*b"0123456789abcde\n", (17 << 20) / 16).flatten());
    content.extend_from_slice(b"needle last\n");
    bed.file("big", &content);
    assert_eq!(lines(&bed, json!({"pattern": "^needle"})), ["big:1:needle first", "big:1114114:needle last"]);
}

#[test]
fn a_late_search_says_at_least() {
    let bed = Bed::new(&[("a", "x\n")]);
    let found = grep(&bed.base, None, &testbed::args::<Grep>(json!({"pattern": "x"})), Instant::now()).unwrap();
    assert!(found.at_least);
    assert_eq!(found.truncation.unwrap().by, "time");
}

#[test]
fn names_of_other_agents() {
    let (args, warnings) =
        super::super::args::read::<Grep>(json!({"query": "x", "-i": true, "-C": 2, "head_limit": 5, "-n": true, "is_regex": false}))
            .unwrap();
    assert_eq!(args, json!({"pattern": "x", "ignore_case": true, "context": 2, "limit": 5, "literal": true}));
    assert_eq!(warnings.len(), 5, "{warnings:?}");
}

#[test]
fn what_is_no_character_is_found_as_it_is_shown() {
    let bed = Bed::new(&[]);
    bed.file("f", b"// caf\xe9 needle\n").file("one", b"ok\n\xe9\n");
    for pattern in
        ["//.*needle", r"caf.\sneedle", r"\W needle", r"//[^\n]*needle", r"caf\\xe9", r"(?<=caf)\\xe9", "^.*(?<!x)needle", r"(?<=f). n"]
    {
        for multiline in [false, true] {
            let args = json!({"pattern": pattern, "path": "f", "multiline": multiline});
            assert_eq!(lines(&bed, args), [r"f:1:// caf\xe9 needle"], "{pattern} {multiline}");
        }
    }
    assert_eq!(lines(&bed, json!({"pattern": r"caf\xe9", "literal": true})).len(), 1);
    for pattern in ["^.$", "^.+$", r"^\\xe9$"] {
        assert!(lines(&bed, json!({"pattern": pattern, "path": "one"})).contains(&r"one:2:\xe9".to_owned()), "{pattern}");
    }
    assert_eq!(lines(&bed, json!({"pattern": ".", "path": "one", "invert": true})), [""; 0]);
    assert_eq!(lines(&bed, json!({"pattern": "o", "path": "one", "invert": true})), [r"one:2:\xe9"]);
    let found = run(&bed, json!({"pattern": "needle", "path": "f"})).unwrap();
    assert_eq!(found.files[0].lines[0].column, Some(12));
    // Half a pair in UTF-16, and a byte far behind the head.
    bed.file("le", b"\xff\xfea\0\x00\xd8b\0");
    assert_eq!(run(&bed, json!({"pattern": "a.+b", "path": "le"})).unwrap().total, 1);
    bed.file("late", [b"fine\n".repeat(4000).as_slice(), b"caf\xe9 x\n"].concat());
    assert_eq!(run(&bed, json!({"pattern": "caf. x", "path": "late"})).unwrap().total, 1);
    bed.file("huge", [b"0123456789abcde\n".repeat((17 << 20) / 16).as_slice(), b"caf\xe9 x\n"].concat());
    assert_eq!(lines(&bed, json!({"pattern": "caf. x", "path": "huge"})), [r"huge:1114113:caf\xe9 x"]);
}

#[test]
fn the_second_engine_takes_any_bytes() {
    let bed = Bed::new(&[("good", "fine fine\nabba\r\n"), ("nl", "c\n")]);
    bed.file("lat", b"\xff\n").file("twice", b"\xff\xff\n").file("cafe", b"ab\xe9\n// caf\xe9 needle\n");
    assert_eq!(lines(&bed, json!({"pattern": r"(.)\1"})), [r"cafe:2:// caf\xe9 needle", "good:2:abba", r"twice:1:\xff\xff"]);
    assert_eq!(run(&bed, json!({"pattern": ".*(?<!x)"})).unwrap().total, 7);
    assert_eq!(lines(&bed, json!({"pattern": "^.*(?<!x)needle"})), [r"cafe:2:// caf\xe9 needle"]);
    // A line end is no part of a line.
    assert_eq!(run(&bed, json!({"pattern": r"(?=c)c\s", "path": "nl"})).unwrap().total, 0);
}

#[test]
fn a_fault_in_one_file_loses_only_that_file() {
    #[derive(Clone)]
    struct Faulty;
    impl Matcher for Faulty {
        type Captures = grep_matcher::NoCaptures;
        type Error = grep_matcher::NoError;
        fn find_at(&self, haystack: &[u8], _: usize) -> Result<Option<grep_matcher::Match>, Self::Error> {
            assert!(!haystack.starts_with(b"bad"), "as a bug would");
            Ok(Some(grep_matcher::Match::new(0, 0)))
        }
        fn new_captures(&self) -> Result<Self::Captures, Self::Error> {
            Ok(grep_matcher::NoCaptures::new())
        }
    }
    let bed = Bed::new(&[("a", "x\n"), ("b", "bad\n"), ("c", "x\n"), ("d/b", "bad\n"), ("e", "x\ny\n")]);
    let args = testbed::args::<Grep>(json!({"pattern": "x"}));
    let call = Call { base: &bed.base, spool: None, args: &args, multiline: false, until: soon() };
    let (tally, ending) = call.search(&Faulty, &mut Vec::new()).unwrap();
    assert_eq!((tally.matches, tally.files_total, tally.partial, ending.counts.unreadable), (4, 3, true, 2));
    let skipped: Vec<&str> = ending.skipped.iter().map(|skipped| skipped.path.as_str()).collect();
    assert_eq!(skipped, ["b", "d/b"]);
    assert!(ending.skipped[0].reason.contains("a bug in grep"));
}

#[test]
fn a_line_end_in_a_pattern_is_any_line_end() {
    let bed = Bed::new(&[("crlf", "a\r\nb\r\n"), ("cr", "x\ra\rb\r"), ("lf", "a\nb\n")]);
    for args in [
        json!({"pattern": "a\nb", "literal": true}),
        json!({"pattern": "a\nb"}),
        json!({"pattern": r"a\nb"}),
        json!({"pattern": r"^a$\nb", "multiline": true}),
        json!({"pattern": r"(?<!y)a\nb"}),
    ] {
        assert_eq!(lines(&bed, args.clone()), ["cr:2:a", "cr:3:b", "crlf:1:a", "crlf:2:b", "lf:1:a", "lf:2:b"], "{args}");
    }
    assert_eq!(lines(&bed, json!({"pattern": r"a\r?\nb", "path": "crlf"})).len(), 2);
    assert_eq!(run(&bed, json!({"pattern": "b\n", "literal": true, "path": "crlf"})).unwrap().files[0].lines[0].line, 2);
}

#[test]
fn git_is_never_counted() {
    let bed = Bed::new(&[(".git/HEAD", "ref: x\n"), (".gitignore", "*\n"), ("sub/.git/HEAD", "ref: x\n"), ("sub/a", "y\n")]);
    let found = run(&bed, json!({"pattern": "ref:"})).unwrap();
    assert_eq!(found.ignored_hits, Some(IgnoredHits { matches: 0, files: 0, at_least: false }));
    assert_eq!(found.counts.ignored, 2);
    assert_eq!(run(&bed, json!({"pattern": "ref:", "no_ignore": true})).unwrap().total, 0);
    assert_eq!(run(&bed, json!({"pattern": "ref:", "path": ".git"})).unwrap().total, 1);
}
