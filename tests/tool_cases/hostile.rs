//! Entries of a tree that other tools stumble over: odd names, special files, loops, what cannot be read, what is too large.

use crate::desk::{Desk, Row, run, strings};
use crate::skip;
use crate::space::{Space, is_root};
use serde_json::json;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

#[test]
fn odd_trees_are_answered_right() {
    run(ROWS);
}

/// A picture of one pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

const ROWS: &[Row] = &[
    ("pictures", |d| {
        d.put("pictures/p.png", PNG);
        let data = d.done("read", json!({"path": "pictures/p.png"}));
        assert_eq!(
            (&data["type"], &data["width"], &data["height"], &data["total_bytes"]),
            (&json!("image/png"), &json!(1), &json!(1), &json!(PNG.len())),
            "{data}"
        );
        let data = d.done("read", json!({"path": "pictures/p.png", "image": true}));
        assert!(data["base64"].as_str().unwrap().starts_with("iVBORw0KGgo"), "{data}");
        let found = d.done("grep", json!({"pattern": "IHDR", "path": "pictures"}));
        assert_eq!((&found["total"], &found["counts"]["binary"]), (&json!(0), &json!(1)), "{found}");
        let reply = d.call("edit", json!({"path": "pictures/p.png", "old_string": "IHDR", "new_string": "XXXX"}));
        assert!(reply.envelope["success"] == false || d.bytes("pictures/p.png").len() == PNG.len(), "{}", reply.envelope);
    }),
    ("binaries", |d| {
        fs::create_dir(d.at("binaries")).unwrap();
        fs::copy("/bin/sh", d.at("binaries/sh")).unwrap();
        let (code, said) = d.refused("read", json!({"path": "binaries/sh"}));
        assert_eq!(code, "binary_file");
        assert!(said["data"]["head_hex"].as_str().unwrap().starts_with("7f 45 4c 46"), "{said}");
        let data = d.done("read", json!({"path": "binaries/sh", "format": "hex", "limit": 2}));
        assert_eq!(data["text"].as_str().unwrap().lines().count(), 2, "{data}");
    }),
    ("names that are not UTF-8", |d| {
        fs::create_dir(d.at("bytes")).unwrap();
        fs::write(d.at("bytes").join(OsStr::from_bytes(b"caf\xe9")), "latin\n").unwrap();
        let listed = d.done("ls", json!({"path": "bytes"}));
        let name = listed["entries"][0]["name"].as_str().unwrap().to_owned();
        assert_eq!(name, r"caf\xe9");
        let path = format!("bytes/{name}");
        assert_eq!(d.done("read", json!({"path": path}))["text"], "latin\n");
        assert_eq!(strings(&d.done("find", json!({"pattern": "caf*", "path": "bytes"}))["entries"], "path"), [path.as_str()]);
        assert_eq!(strings(&d.done("grep", json!({"pattern": "latin", "path": "bytes"}))["files"], "path"), [path.as_str()]);
        d.done("edit", json!({"path": path, "old_string": "latin", "new_string": "greek"}));
        d.done("write", json!({"path": r"bytes/\xff\xfe", "content": "new\n"}));
        assert_eq!(fs::read(d.at("bytes").join(OsStr::from_bytes(b"caf\xe9"))).unwrap(), b"greek\n");
        assert_eq!(fs::read(d.at("bytes").join(OsStr::from_bytes(b"\xff\xfe"))).unwrap(), b"new\n");
        d.done("copy", json!({"source": path, "destination": r"bytes/\xe8"}));
        d.done("rename", json!({"source": r"bytes/\xe8", "destination": r"bytes/\xe7"}));
        assert_eq!(fs::read(d.at("bytes").join(OsStr::from_bytes(b"\xe7"))).unwrap(), b"greek\n");
    }),
    ("newlines, dashes and escapes in names", |d| {
        for name in [
            "a\nb",
            "-rf",
            "--",
            " lead",
            "trail ",
            "tab\there",
            "\u{1b}[31mred",
            r"back\slash",
            "*",
            "[x]",
            "~",
            "$HOME",
            "#x",
            "ü",
            "a:b",
        ] {
            let path = format!("odd/{name}");
            let folded: String =
                name.chars().map(|c| if c.is_control() { format!("\\x{:02x}", c as u32) } else { c.to_string() }).collect();
            d.done("write", json!({"path": path, "content": "odd\n"}));
            assert_eq!(d.bytes(&path), b"odd\n", "{name:?}");
            let shown = format!("odd/{folded}");
            let reply = d.call("read", json!({"path": shown}));
            assert_eq!(reply.into_data()["text"], "odd\n", "{name:?}");
            let text = d.call("ls", json!({"path": "odd"})).text;
            assert!(!text.contains('\u{1b}') && text.lines().any(|line| line.contains(&folded)), "{name:?}: {text}");
            let found = d.done("find", json!({"pattern": name, "path": "odd"}));
            assert!(strings(&found["entries"], "path").contains(&shown.as_str()), "{name:?}: {found}");
            fs::remove_file(d.at(&path)).unwrap();
        }
        d.put("odd/a\nb", "needle\n");
        let text = d.call("grep", json!({"pattern": "needle", "path": "odd"})).text;
        assert!(text.contains(r"odd/a\x0ab"), "{text}");
    }),
    ("special files", |d| {
        fs::create_dir(d.at("special")).unwrap();
        nix::unistd::mkfifo(&d.at("special/fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(d.at("special/socket")).unwrap();
        d.put("special/file", "needle\n");
        let mut specials = vec!["fifo", "socket"];
        let device = nix::sys::stat::mknod(
            &d.at("special/null"),
            nix::sys::stat::SFlag::S_IFCHR,
            nix::sys::stat::Mode::S_IRWXU,
            nix::sys::stat::makedev(1, 3),
        );
        if device.is_ok() {
            specials.push("null");
        } else {
            println!("SKIP a device: only root makes one");
        }
        for name in specials {
            let path = format!("special/{name}");
            for (tool, args) in [
                ("read", json!({"path": path})),
                ("read", json!({"path": path, "format": "hex"})),
                ("write", json!({"path": path, "content": "x"})),
                ("write", json!({"path": path, "content": "x", "mode": "append"})),
                ("edit", json!({"path": path, "old_string": "a", "new_string": "b"})),
                ("grep", json!({"pattern": "a", "path": path})),
            ] {
                let started = Instant::now();
                let (code, said) = d.refused(tool, args);
                assert_eq!(code, "not_regular_file", "{tool} {path}: {said}");
                assert!(started.elapsed() < Duration::from_secs(1), "{tool} {path}: {:?}", started.elapsed());
            }
            assert_eq!(d.done("ls", json!({"path": path}))["entries"].as_array().unwrap().len(), 1);
        }
        assert_eq!(d.done("grep", json!({"pattern": "needle", "path": "special"}))["total"], 1);
        let copied = d.done("copy", json!({"source": "special", "destination": "special2"}));
        assert_eq!(copied["files"], 1, "{copied}");
    }),
    ("loops of links", |d| {
        d.put("loops/d/f", "needle\n");
        symlink("..", d.at("loops/d/up")).unwrap();
        symlink("b", d.at("loops/a")).unwrap();
        symlink("a", d.at("loops/b")).unwrap();
        symlink(".", d.at("loops/self")).unwrap();
        assert_eq!(d.done("grep", json!({"pattern": "needle", "path": "loops"}))["total"], 1);
        assert_eq!(d.done("find", json!({"pattern": "f", "path": "loops"}))["total"], 1);
        let listed = d.done("ls", json!({"path": "loops", "depth": 50}));
        assert_eq!(listed["total"], 6, "{listed}");
        for (tool, args) in [
            ("read", json!({"path": "loops/a"})),
            ("write", json!({"path": "loops/a", "content": "x"})),
            ("edit", json!({"path": "loops/a", "old_string": "x", "new_string": "y"})),
        ] {
            assert_eq!(d.refused(tool, args).0, "not_found", "{tool}");
        }
        assert_eq!(d.done("read", json!({"path": "loops/self/self/self/d/up/d/f"}))["text"], "needle\n");
        d.done("copy", json!({"source": "loops", "destination": "loops2"}));
        assert_eq!(fs::read_link(d.at("loops2/d/up")).unwrap().to_str(), Some(".."));
    }),
    ("a line of 50 MB", |d| {
        d.put("wide/f", [vec![b'a'; 25 << 20], b"NEEDLE".to_vec(), vec![b'b'; 25 << 20], b"\nsecond line\n".to_vec()].concat());
        let quick = |what: &str, limit: u64, act: &dyn Fn()| {
            let started = Instant::now();
            act();
            assert!(started.elapsed() < Duration::from_secs(limit), "{what}: {:?}", started.elapsed());
        };
        quick("read", 20, &|| {
            let data = d.done("read", json!({"path": "wide/f"}));
            assert_eq!(
                (&data["total_lines"], &data["long_lines"][0]["bytes_after"]),
                (&json!(2), &json!((50 << 20) + 6 - 2000)),
                "{}",
                data["long_lines"]
            );
            assert!(data["text"].as_str().unwrap().ends_with("second line\n"));
        });
        quick("read at a column", 20, &|| {
            let data = d.done("read", json!({"path": "wide/f", "limit": 1, "column_offset": 25 << 20}));
            assert!(data["text"].as_str().unwrap().starts_with("NEEDLE"), "{}", data["long_lines"]);
        });
        quick("grep", 20, &|| {
            let found = d.done("grep", json!({"pattern": "NEEDLE", "path": "wide"}));
            assert_eq!((&found["total"], &found["files"][0]["lines"][0]["column"]), (&json!(1), &json!((25 << 20) + 1)), "{found}");
            assert_eq!(d.done("grep", json!({"pattern": "second", "path": "wide"}))["total"], 1);
        });
        quick("edit", 40, &|| {
            let reply = d.call("edit", json!({"path": "wide/f", "old_string": "second line", "new_string": "2nd"}));
            let large = reply.envelope["data"]["code"] == "too_large";
            assert!(large || d.bytes("wide/f").ends_with(b"b\n2nd\n"), "{}", reply.envelope["error"]);
        });
        fs::remove_dir_all(d.at("wide")).unwrap();
    }),
    ("a deep tree", |d| {
        let deep = "d/".repeat(120);
        d.put(&format!("deep/{deep}f"), "needle\n");
        assert_eq!(d.done("grep", json!({"pattern": "needle", "path": "deep"}))["total"], 1);
        assert_eq!(d.done("find", json!({"pattern": "f", "path": "deep"}))["total"], 1);
        assert_eq!(d.done("read", json!({"path": format!("deep/{deep}f")}))["text"], "needle\n");
    }),
    ("names that are too long", |d| {
        let long = "n".repeat(300);
        for (tool, args) in
            [("read", json!({"path": long})), ("write", json!({"path": long, "content": "x"})), ("mkdir", json!({"path": long}))]
        {
            assert_eq!(d.refused(tool, args).0, "name_too_long", "{tool}");
        }
        assert_eq!(d.refused("read", json!({"path": "a\0b"})).0, "invalid_arguments");
    }),
];

#[test]
fn an_unreadable_folder_is_named_and_the_rest_is_returned() {
    if is_root() {
        skip!("root reads every folder; the run as an ordinary user tries this");
    }
    let desk = Desk::new(Space::new().file("locked/f", "needle\n").file("open/f", "needle\n").file("shut", "needle\n"));
    let mode = |path: &str, mode| fs::set_permissions(desk.at(path), fs::Permissions::from_mode(mode)).unwrap();
    mode("locked", 0o000);
    mode("shut", 0o000);
    let found = desk.done("find", json!({"pattern": "f"}));
    assert_eq!((strings(&found["entries"], "path"), strings(&found["skipped"], "path")), (vec!["open/f"], vec!["locked"]), "{found}");
    let found = desk.done("grep", json!({"pattern": "needle"}));
    assert_eq!((strings(&found["files"], "path"), &found["counts"]["unreadable"]), (vec!["open/f"], &json!(1)), "{found}");
    assert_eq!(strings(&found["skipped"], "path"), ["locked"], "{found}");
    for (tool, args) in [
        ("read", json!({"path": "shut"})),
        ("read", json!({"path": "locked/f"})),
        ("ls", json!({"path": "locked"})),
        ("write", json!({"path": "locked/new", "content": "x"})),
        ("edit", json!({"path": "shut", "old_string": "needle", "new_string": "x"})),
    ] {
        let (code, said) = desk.refused(tool, args);
        assert_eq!(code, "permission_denied", "{tool}: {said}");
        assert!(!said["error"].as_str().unwrap().contains("sandbox"), "the sandbox is not to blame: {said}");
    }
    mode("locked", 0o755);
}

#[test]
fn the_answer_does_not_depend_on_locale_or_zone() {
    let build =
        |space: Space| space.file("b/Z", "x needle\n").file("b/a", "needle\n").file("É", "needle\n").file("e", "").file("README", "");
    let bare = build(Space::new());
    let other =
        build(Space::new().env("TZ", "Asia/Kolkata").env("LANG", "de_DE.UTF-8").env("LC_ALL", "tr_TR.UTF-8").env("RAYON_NUM_THREADS", "1"));
    for space in [&bare, &other] {
        for path in ["b/Z", "b/a", "É", "e", "README", "b"] {
            let file = fs::File::open(space.ws().join(path)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
            let mode = if path == "b" { 0o755 } else { 0o644 };
            fs::set_permissions(space.ws().join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
    }
    for (tool, args) in [
        ("ls", json!({"depth": 3})),
        ("find", json!({"pattern": "*", "sort": "mtime"})),
        ("grep", json!({"pattern": "needle", "ignore_case": true})),
        ("read", json!({"path": "b/Z"})),
    ] {
        assert_eq!(bare.tool(tool, args.clone()).line, other.tool(tool, args).line, "{tool}");
    }
}
