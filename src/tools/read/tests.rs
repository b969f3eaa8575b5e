use super::*;
use crate::tools::Render;
use crate::tools::testbed::{self, Bed, soon};
use proptest::prelude::*;
use serde_json::{Value, json};

fn run(bed: &Bed, args: Value) -> Result<Content, Fault> {
    let args = testbed::args::<Read>(args);
    read(source::open(&bed.base, None, &args.path)?, &args, soon())
}

fn lines(bed: &Bed, args: Value) -> Text {
    match run(bed, args).unwrap() {
        Content::Text(text) => *text,
        Content::Picture(picture) => panic!("{picture:?}"),
    }
}

fn file(content: impl AsRef<[u8]>) -> Bed {
    let bed = Bed::new(&[]);
    bed.file("f", content);
    bed
}

#[test]
fn the_golden_forms() {
    let bed = file("\tx\ny\n");
    let path = bed.root.join("f");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(951_827_696);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let text = lines(&bed, json!({"path": "f"}));
    assert_eq!(
        serde_json::to_string(&text).unwrap(),
        r#"{"path":"f","text":"\tx\ny\n","first_line":1,"last_line":2,"total_lines":2,"total_bytes":5,"eol":"lf","bom":false,"final_newline":true,"encoding":"utf-8","format":"numbered","mode":"0640","mtime":"2000-02-29T12:34:56Z","hash":"HASH"}"#
            .replace("HASH", &Hash::of(b"\tx\ny\n").to_string())
    );
    assert_eq!(text.render(), "1│\tx\n2│y");
    assert_eq!(lines(&bed, json!({"path": "f", "format": "raw"})).render(), "\tx\ny\n");
    assert_eq!(lines(&bed, json!({"path": "f", "limit": 1})).render(), "1│\tx\n[lines 1 to 1 of 2 lines; offset 2 shows more]");
}

#[test]
fn windows_are_exact() {
    let content: String = (1..=120).map(|n| format!("line {n}\n")).collect();
    let bed = file(&content);
    for (args, first, last, next) in [
        (json!({"path": "f"}), 1, 120, None),
        (json!({"path": "f", "limit": 120}), 1, 120, None),
        (json!({"path": "f", "offset": 118}), 118, 120, None),
        (json!({"path": "f", "offset": 5, "limit": 2}), 5, 6, Some(7)),
        (json!({"path": "f", "offset": 0, "limit": 2}), 1, 2, Some(3)),
        (json!({"path": "f", "offset": -3}), 118, 120, None),
        (json!({"path": "f", "offset": -500}), 1, 120, None),
        (json!({"path": "f", "offset": -3, "limit": 1}), 118, 118, Some(119)),
        (json!({"path": "f", "tail": 2}), 119, 120, None),
        (json!({"path": "f", "head": 2}), 1, 2, Some(3)),
        (json!({"path": "f", "line": 7}), 7, 7, Some(8)),
        (json!({"path": "f", "view_range": [3, 4]}), 3, 4, Some(5)),
        (json!({"file_path": "f", "start_line": 3, "end_line": 4}), 3, 4, Some(5)),
    ] {
        let text = lines(&bed, args.clone());
        assert_eq!((text.first_line, text.last_line, text.total_lines), (first, last, 120), "{args}");
        let want: String = (first..=last).map(|n| format!("line {n}\n")).collect();
        assert_eq!(text.text, want, "{args}");
        assert_eq!(text.truncation.as_ref().and_then(|cut| cut.next_offset), next, "{args}");
        assert_eq!(text.truncation.is_none(), first == 1 && last == 120, "{args}");
    }
    let past = lines(&bed, json!({"path": "f", "offset": 500}));
    assert_eq!((past.total_lines, past.first_line, past.text.as_str()), (120, 0, ""));
    assert_eq!(past.render(), "[nothing there: f has 120 lines, 972 bytes]");
    assert_eq!(
        lines(&bed, json!({"path": "f", "offset": 10, "limit": 1})).render(),
        "10│line 10\n[lines 10 to 10 of 120 lines; offset 11 shows more]"
    );
    assert_eq!(run(&bed, json!({"path": "f", "limit": 0})).unwrap_err().code(), FaultCode::InvalidArguments);
}

#[test]
fn the_default_window_has_2000_lines_and_50_kib() {
    let text = lines(&file("x\n".repeat(2001)), json!({"path": "f"}));
    assert_eq!((text.last_line, text.truncation.unwrap().by), (2000, "lines"));
    assert!(lines(&file("x\n".repeat(2000)), json!({"path": "f"})).truncation.is_none());
    let text = lines(&file(format!("{}\n", "x".repeat(99)).repeat(1000)), json!({"path": "f"}));
    let cut = text.truncation.clone().unwrap();
    assert_eq!((text.last_line, text.text.len(), cut.by, cut.next_offset), (512, 51_200, "bytes", Some(513)));
    assert!(text.render().ends_with("[lines 1 to 512 of 1000 lines (the text was long); offset 513 shows more]"));
}

#[test]
fn a_long_line_shows_its_head_and_the_rest_can_be_reached() {
    let bed = file(format!("{}\nsecond\n", "é".repeat(100_000)));
    let text = lines(&bed, json!({"path": "f"}));
    assert_eq!(text.row(0), "é".repeat(2000));
    assert_eq!(text.row(1), "second");
    assert_eq!(text.long_lines, [LongLine { line: 1, bytes_before: 0, bytes_after: 196_000, next_column_offset: Some(2000) }]);
    assert_eq!(text.truncation.as_ref().unwrap().by, "line_length");
    assert!(text.render().contains("é…[+196000 bytes; column_offset 2000 shows more]\n2│second"));
    let text = lines(&bed, json!({"path": "f", "column_offset": 99_998, "limit": 1}));
    assert_eq!((text.row(0), text.long_lines[0].bytes_before), ("éé", 199_996));
    assert_eq!(lines(&file("x".repeat(200_000)), json!({"path": "f"})).row(0).len(), 2000);
}

#[test]
fn encodings_and_line_ends_are_told() {
    for (content, text, encoding, eol, bom, newline) in [
        (&b"\xef\xbb\xbfa\r\nb"[..], "a\r\nb", Encoding::Utf8Bom, Eol::Crlf, true, Some(false)),
        (b"\xff\xfeh\0i\0\n\0", "hi\n", Encoding::Utf16Le, Eol::Lf, true, Some(true)),
        (b"\xfe\xff\0h\0\n", "h\n", Encoding::Utf16Be, Eol::Lf, true, Some(true)),
        (b"caf\xe9\rx\r", "caf\\xe9\rx\r", Encoding::Bytes, Eol::Cr, false, Some(true)),
        (b"a\r\nb\n", "a\r\nb\n", Encoding::Utf8, Eol::Mixed, false, Some(true)),
        (b"", "", Encoding::Utf8, Eol::None, false, None),
    ] {
        let read = lines(&file(content), json!({"path": "f"}));
        assert_eq!((read.text.as_str(), read.encoding, read.eol, read.bom, read.final_newline), (text, encoding, eol, bom, newline));
        assert_eq!((read.hash, read.truncation), (Some(Hash::of(content)), None));
    }
    assert_eq!(
        lines(&file(b"\xef\xbb\xbfa\r\nb"), json!({"path": "f"})).render(),
        "1│a\n2│b\n[encoding utf-8-bom, line ends CRLF, no line end at the end]"
    );
    let empty = lines(&file(""), json!({"path": "f"}));
    assert_eq!((empty.total_lines, empty.render().as_str()), (0, "f is empty"));
    // Broken only beyond the first bytes: what is shown is what edit finds.
    let mut late = b"\\xe9 a\n".repeat(2000);
    late.push(0xe9);
    let read = lines(&file(&late), json!({"path": "f", "limit": 1}));
    assert_eq!((read.encoding, read.text.as_str()), (Encoding::Bytes, "\\\\xe9 a\n"));
    let mut late = b"\xef\xbb\xbfx\n".to_vec();
    late.extend(b"y\n".repeat(8000));
    late.push(0xe9);
    let read = lines(&file(&late), json!({"path": "f", "limit": 1}));
    assert_eq!((read.bom, read.text.as_str()), (false, "\u{feff}x\n"));
}

#[test]
fn what_is_no_text_file_is_said() {
    let bed = file(b"\x7fELF\x00\x01\xff\n");
    bed.file("d/src/main.rs", "").fifo("pipe").link("../out", "out").link("nowhere", "gone");
    let fault = run(&bed, json!({"path": "f"})).unwrap_err();
    assert_eq!(fault.code(), FaultCode::BinaryFile);
    let envelope = crate::envelope::Envelope::from(Err(fault));
    assert_eq!(envelope.data()["type"], "ELF program or library");
    assert_eq!(envelope.data()["size"], 8);
    assert_eq!(envelope.data()["head_hex"], "7f 45 4c 46 00 01 ff 0a");
    for (path, code) in [
        ("d", FaultCode::IsDirectory),
        ("pipe", FaultCode::NotRegularFile),
        ("out", FaultCode::OutsideWorkspace),
        ("../x", FaultCode::OutsideWorkspace),
        ("/etc/passwd", FaultCode::OutsideWorkspace),
        ("gone", FaultCode::NotFound),
        ("f/x", FaultCode::NotDirectory),
    ] {
        assert_eq!(run(&bed, json!({"path": path})).unwrap_err().code(), code, "{path}");
    }
    assert!(run(&bed, json!({"path": "d"})).unwrap_err().hint_text().unwrap().contains("ls"));
}

#[test]
fn near_names_are_suggested() {
    let bed = Bed::new(&[("src/main.rs", ""), ("src/mail.rs", ""), ("src/other.txt", ""), ("lib/deep/util.py", ""), ("README.md", "")]);
    let near = |path: &str| near::near(&bed.base, &bed.base.rel(path).unwrap(), soon());
    assert_eq!(near("src/mian.rs"), ["src/main.rs"]);
    assert_eq!(near("scr/main.rs"), ["src/main.rs"]);
    assert_eq!(near("readme.md"), ["README.md"]);
    assert_eq!(near("main.ts"), [""; 0]);
    assert_eq!(near("src/util.py"), ["lib/deep/util.py"]);
    assert_eq!(near("zzz/qqq"), [""; 0]);
}

#[test]
fn hex_shows_any_bytes() {
    let bed = file((0..=255).collect::<Vec<u8>>());
    let text = lines(&bed, json!({"path": "f", "format": "hex", "offset": 7, "limit": 1}));
    assert_eq!(
        text.render(),
        "00000060  60 61 62 63 64 65 66 67  68 69 6a 6b 6c 6d 6e 6f  |`abcdefghijklmno|\n[lines 7 to 7 of 16 lines; offset 8 shows more]"
    );
    assert_eq!(text.hash, Some(Hash::of(&(0..=255).collect::<Vec<u8>>())));
    let bed = file("0123456789abcdefXY");
    let text = lines(&bed, json!({"path": "f", "format": "hex", "offset": -1}));
    assert_eq!(text.text, "00000010  58 59                                             |XY|\n");
    assert_eq!(lines(&bed, json!({"path": "f", "format": "hex"})).truncation, None);
}

#[test]
fn pictures_give_their_size() {
    let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x01\0\0\0\0\x10";
    let picture = run(&file(png), json!({"path": "f"})).unwrap();
    assert_eq!(picture.render(), "f: image/png, 256 × 16 pixels, 24 bytes");
    assert!(serde_json::to_value(&picture).unwrap().get("base64").is_none());
    let picture = run(&file(png), json!({"path": "f", "image": true})).unwrap();
    assert_eq!(serde_json::to_value(&picture).unwrap()["base64"], picture::base64(png));
}

#[test]
fn a_huge_file_is_read_in_bounded_time() {
    let bed = file("first\nsecond\n");
    let path = bed.root.join("f");
    std::fs::write(&path, [b"first\nsecond\n".as_slice(), &b"x".repeat(HEAD)].concat()).unwrap();
    let handle = std::fs::File::options().write(true).open(&path).unwrap();
    handle.set_len(4 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&handle, b"\nbefore\nlast\n", (4 << 30) - 13).unwrap();
    let start = Instant::now();
    let text = lines(&bed, json!({"path": "f", "limit": 2}));
    assert_eq!((text.text.as_str(), text.at_least, text.hash), ("first\nsecond\n", true, None));
    assert!(text.render().contains("of at least"));
    let text = lines(&bed, json!({"path": "f", "tail": 2}));
    assert_eq!((text.text.as_str(), text.first_line, text.last_line), ("before\nlast\n", -2, -1));
    assert_eq!(text.render(), "-2│before\n-1│last\n[lines -2 to -1 of at least 2 lines]");
    let text = lines(&bed, json!({"path": "f", "offset": -2, "limit": 1}));
    assert_eq!((text.text.as_str(), text.truncation.unwrap().next_offset), ("before\n", Some(-1)));
    handle.set_len(0).unwrap();
    handle.set_len(4 << 30).unwrap();
    assert_eq!(run(&bed, json!({"path": "f", "offset": 1, "limit": 5})).unwrap_err().code(), FaultCode::BinaryFile);
    assert!(start.elapsed().as_millis() < 1000, "{:?}", start.elapsed());
}

#[test]
fn names_that_are_not_utf8() {
    let bed = Bed::new(&[]);
    bed.file(b"a\xff\n", "x");
    assert_eq!(lines(&bed, json!({"path": "a\\xff\\x0a"})).path, "a\\xff\\x0a");
}

/// Text with every kind of line end and of character, and lines that are longer than what is shown of one.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        4 => prop::sample::select(vec!["a", "b ", "\t", "日", "é", "\u{1f600}", "\\", "\\xe9", "\u{feff}"]).prop_map(str::to_owned),
        3 => prop::sample::select(vec!["\n", "\r\n", "\r"]).prop_map(str::to_owned),
        1 => (1900usize..2100, prop::sample::select(vec!["z", "日", "\\xe9"])).prop_map(|(times, word)| word.repeat(times)),
    ];
    (prop::collection::vec(word, 0..24), 0..6usize, prop::collection::vec(any::<prop::sample::Index>(), 0..3)).prop_map(
        |(words, kind, breaks)| {
            let text = words.concat();
            match kind {
                0 => [b"\xef\xbb\xbf", text.as_bytes()].concat(),
                1 => [b"\xff\xfe".to_vec(), text.encode_utf16().flat_map(u16::to_le_bytes).collect()].concat(),
                2 => [b"\xfe\xff".to_vec(), text.encode_utf16().flat_map(u16::to_be_bytes).collect()].concat(),
                3 => {
                    let mut bytes = text.into_bytes();
                    breaks.iter().for_each(|at| bytes.insert(at.index(bytes.len() + 1), 0xe9));
                    bytes
                }
                _ => text.into_bytes(),
            }
        },
    )
}

/// All that windows show of a file, one after the other, and within each long line one after the other.
fn joined(bed: &Bed, limit: u64) -> Vec<u8> {
    use crate::workspace::decode::{Encoding, from_plain, unescape_text};
    let mut bytes = Vec::new();
    let mut put = |text: &str, encoding: Encoding| match encoding {
        Encoding::Bytes => bytes.extend(unescape_text(text)),
        // Whole characters of UTF-16 are shown as they are.
        _ => bytes.extend(from_plain(text.as_bytes(), encoding).unwrap()),
    };
    let mut offset = Some(1);
    while let Some(from) = offset {
        let text = lines(bed, json!({"path": "f", "offset": from, "limit": limit}));
        if from == 1 {
            put("", text.encoding);
        }
        if text.long_lines.is_empty() {
            put(&text.text, text.encoding);
        } else {
            for line in text.first_line..=text.last_line {
                let mut column = Some(0);
                while let Some(from) = column {
                    let part = lines(bed, json!({"path": "f", "offset": line, "limit": 1, "column_offset": from}));
                    column = part.long_lines.first().and_then(|long| long.next_column_offset);
                    put(if column.is_some() { part.row(0) } else { part.text.as_str() }, part.encoding);
                }
            }
        }
        offset = text.truncation.and_then(|cut| cut.next_offset);
    }
    bytes
}

proptest! {
    #![proptest_config(crate::property_tests::cases(1000))]

    /// Windows that follow one another give the file back.
    #[test]
    fn windows_joined_are_the_file(content in content(), limit in 1u64..6) {
        let bed = Bed::in_memory();
        bed.file("f", &content);
        let encoding = lines(&bed, json!({"path": "f"})).encoding;
        let text = content.strip_prefix(encoding.bom()).unwrap_or(&content);
        prop_assert_eq!(joined(&bed, limit), text);
    }
}

impl Text {
    /// A line as it is shown, from 0.
    fn row(&self, index: usize) -> &str {
        &self.text[self.rows[index].clone()]
    }
}
