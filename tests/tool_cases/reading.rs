//! `read`.

use crate::desk::{Row, run};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn what_is_read_is_what_is_there() {
    run(ROWS);
}

const ROWS: &[Row] = &[
    ("T58", |d| {
        d.put("t58/f", b"\xff\xfeh\0i\0\n\0");
        let data = d.done("read", json!({"path": "t58/f"}));
        assert_eq!((data["text"].as_str(), data["encoding"].as_str()), (Some("hi\n"), Some("utf-16le")), "{data}");
        let found = d.done("grep", json!({"pattern": "hi", "path": "t58"}));
        assert_eq!(found["files"][0]["lines"][0]["text"], "hi", "{found}");
        d.done("edit", json!({"path": "t58/f", "old_string": "hi", "new_string": "hé"}));
        assert_eq!(d.bytes("t58/f"), b"\xff\xfeh\0\xe9\0\n\0");
    }),
    ("T59", |d| {
        let file = std::fs::File::create(d.at("t59")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"first\n", 0).unwrap();
        file.set_len(4 << 30).unwrap();
        let started = Instant::now();
        // Zeros are no text; the head of the file is known at once, whatever its size.
        let (code, said) = d.refused("read", json!({"path": "t59", "offset": 1, "limit": 5}));
        assert_eq!((code.as_str(), &said["data"]["size"]), ("binary_file", &json!(4u64 << 30)), "{said}");
        let data = d.done("read", json!({"path": "t59", "format": "hex", "limit": 1}));
        assert!(data["text"].as_str().unwrap().contains("66 69 72 73 74"), "{data}");
        // Text for the first 4 MiB, then a hole of 4 GiB.
        let file = std::fs::File::create(d.at("t59b")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, "a line of text\n".repeat(280_000).as_bytes(), 0).unwrap();
        file.set_len(4 << 30).unwrap();
        for offset in [1, 1000, 279_990] {
            let data = d.done("read", json!({"path": "t59b", "offset": offset, "limit": 5}));
            assert_eq!((data["first_line"].as_i64(), data["last_line"].as_i64()), (Some(offset), Some(offset + 4)));
        }
        // The hole is one line, which is the last one; what is behind it is counted and not read.
        let data = d.done("read", json!({"path": "t59b", "offset": 300_000}));
        assert_eq!((&data["text"], &data["total_lines"], data.get("at_least")), (&json!(""), &json!(280_001), None), "{data}");
        let data = d.done("read", json!({"path": "t59b", "offset": -2}));
        assert!(data["text"].as_str().unwrap().starts_with("a line of text\n"), "{}", data["long_lines"]);
        // As an ordinary user nobody looks into a jail, not even from outside.
        for pid in crate::crashes::jails(&d.space.ws()) {
            let said = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let peak = said.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next()?.parse::<u64>().ok());
            assert!(peak.is_none_or(|peak| peak < 64 << 10), "{peak:?} KiB");
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }),
    ("T60", |d| {
        let fifo = d.at("t60/p");
        std::fs::create_dir(d.at("t60")).unwrap();
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        d.put("t60/f", "needle\n");
        let started = Instant::now();
        assert_eq!(d.refused("read", json!({"path": "t60/p"})).0, "not_regular_file");
        assert_eq!(d.refused("write", json!({"path": "t60/p", "content": "x"})).0, "not_regular_file");
        assert_eq!(d.refused("edit", json!({"path": "t60/p", "old_string": "a", "new_string": "b"})).0, "not_regular_file");
        assert_eq!(d.done("grep", json!({"pattern": "needle", "path": "t60"}))["total"], 1);
        assert_eq!(d.refused("grep", json!({"pattern": "needle", "path": "t60/p"})).0, "not_regular_file");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }),
    ("T61", |d| {
        d.put("t61", format!("{}\nsecond\n", "x".repeat(200_000)));
        let reply = d.call("read", json!({"path": "t61"}));
        assert!(
            reply.text.contains("198000") || reply.text.contains("+198"),
            "the rest of the line is counted: {}",
            &reply.text[reply.text.len() - 400..]
        );
        let data = reply.into_data();
        assert_eq!(data["long_lines"][0]["bytes_after"], 198_000, "{data}");
        let data = d.done("read", json!({"path": "t61", "offset": 2}));
        assert_eq!(data["text"], "second\n");
        let data = d.done("read", json!({"path": "t61", "limit": 1, "column_offset": 199_990}));
        assert_eq!(data["text"].as_str().unwrap().trim_end(), "x".repeat(10), "{data}");
    }),
    ("T62", |d| {
        d.put("t62", b"\x7fELF\x00\x01\xff\n");
        let (code, said) = d.refused("read", json!({"path": "t62"}));
        assert_eq!(code, "binary_file");
        assert_eq!(said["data"]["size"], 8, "{said}");
        let said = said["data"].to_string();
        assert!(said.contains("7f 45 4c 46 00 01 ff 0a") && said.contains("ELF"), "{said}");
    }),
];
