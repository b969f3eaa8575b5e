//! `edit` and `write`: durability, what a file keeps, two at the same time, and paths that lead out.

use crate::desk::{Desk, Row, run};
use crate::skip;
use crate::space::{Mounted, Space, is_root, rounds};
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::time::Duration;

#[test]
fn a_file_is_old_or_new_and_stays_what_it_is() {
    run(ROWS);
}

const ROWS: &[Row] = &[
    ("T38", |d| {
        let contents = ["a".repeat(300_000), "b".repeat(200_000)];
        let hash = |content: &str| bailiwick::workspace::Hash::of(content.as_bytes()).to_string();
        d.put("t38/f", &contents[0]);
        // At each part of the time that a call takes with a new jail, and a little after.
        let started = std::time::Instant::now();
        for mode in [0o644, 0o600] {
            fs::set_permissions(d.at("t38/f"), fs::Permissions::from_mode(mode)).unwrap();
            d.done("write", json!({"path": "t38/f", "content": &contents[0], "executable": false}));
            d.dropped_after(Duration::ZERO, "mkdir", json!({"path": "t38"}));
        }
        let usual = started.elapsed();
        let (mut cut_off, mut changed, mut now) = (0, 0, 0);
        for round in 0..rounds(120) {
            // What one call would change next, whole or a part of it.
            let (old, new) = (&contents[now], &contents[1 - now]);
            let (tool, args) = match round % 2 {
                0 => ("write", json!({"path": "t38/f", "content": new, "expected_hash": hash(old)})),
                _ => ("edit", json!({"path": "t38/f", "old_string": old, "new_string": new, "expected_hash": hash(old)})),
            };
            // The jail is killed when the future of its call is dropped.
            let time = usual.mul_f64((round % 40 + 1) as f64 / 40.0);
            cut_off += u64::from(!d.dropped_after(time, tool, args));
            let found = d.bytes("t38/f");
            let found = contents.iter().position(|content| content.as_bytes() == found);
            changed += u64::from(found != Some(now));
            now = found.expect("the file is neither old nor new");
        }
        println!("T38: {cut_off} calls were cut off, {changed} changed the file");
        assert!(cut_off > 0, "no call was cut off");
        // What the killed ones left goes with the next write.
        for round in 0..2 {
            d.done("write", json!({"path": "t38/f", "content": format!("last {round}\n"), "expected_hash": d.done("read", json!({"path": "t38/f"}))["hash"]}));
        }
        let names: Vec<_> = fs::read_dir(d.at("t38")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["f"]);
    }),
    ("T40", |d| {
        for mode in [0o755, 0o600, 0o640] {
            let name = format!("t40.{mode:o}");
            d.put(&name, "x = 1\n");
            fs::set_permissions(d.at(&name), fs::Permissions::from_mode(mode)).unwrap();
            d.done("edit", json!({"path": name, "old_string": "1", "new_string": "2"}));
            assert_eq!(d.bytes(&name), b"x = 2\n");
            assert_eq!(fs::metadata(d.at(&name)).unwrap().mode() & 0o7777, mode, "{name}");
        }
    }),
    ("T41", |d| {
        d.put("t41", "old\n");
        fs::set_permissions(d.at("t41"), fs::Permissions::from_mode(0o644)).unwrap();
        d.done("write", json!({"path": "t41", "content": "new\n"}));
        assert_eq!(fs::metadata(d.at("t41")).unwrap().mode() & 0o7777, 0o644);
    }),
    ("T42", |d| {
        d.put("t42/real", "old\n");
        symlink("real", d.at("t42/lnk")).unwrap();
        d.done("edit", json!({"path": "t42/lnk", "old_string": "old", "new_string": "new"}));
        assert_eq!(fs::read_link(d.at("t42/lnk")).unwrap().to_str(), Some("real"));
        assert_eq!(d.bytes("t42/real"), b"new\n");
    }),
    ("T44", |d| {
        // All names are in the workspace: written in place, and both names see it.
        d.put("t44/h1", "old\n");
        fs::hard_link(d.at("t44/h1"), d.at("t44/h2")).unwrap();
        let before = fs::metadata(d.at("t44/h1")).unwrap().ino();
        d.done("write", json!({"path": "t44/h1", "content": "new content\n"}));
        assert_eq!(d.bytes("t44/h2"), b"new content\n");
        d.done("edit", json!({"path": "t44/h2", "old_string": "new", "new_string": "newer"}));
        assert_eq!(d.bytes("t44/h1"), b"newer content\n");
        // Our own write by one name is no surprise by the other; somebody else's is.
        d.done("write", json!({"path": "t44/h1", "content": "by the first\n"}));
        d.done("edit", json!({"path": "t44/h2", "old_string": "first", "new_string": "second"}));
        d.done("write", json!({"path": "t44/h1", "content": "newer content\n"}));
        d.done("bash", json!({"command": "echo more >> t44/h1"}));
        for name in ["t44/h1", "t44/h2"] {
            let (code, said) = d.refused("write", json!({"path": name, "content": "x\n"}));
            assert!(code == "stale_file" && said["error"].as_str().unwrap().contains("line 2 is new"), "{said}");
        }
        d.done("read", json!({"path": "t44/h2"}));
        d.done("write", json!({"path": "t44/h2", "content": "newer content\n"}));
        assert_eq!(fs::metadata(d.at("t44/h2")).unwrap().ino(), before);
        // A name outside: refused, and untouched.
        fs::hard_link(d.at("t44/h1"), d.space.outside().join("t44")).unwrap();
        for (tool, args) in [
            ("write", json!({"path": "t44/h2", "content": "evil\n"})),
            ("edit", json!({"path": "t44/h2", "old_string": "newer", "new_string": "evil"})),
        ] {
            assert_eq!(d.refused(tool, args).0, "hard_linked", "{tool}");
        }
        assert_eq!(fs::read(d.space.outside().join("t44")).unwrap(), b"newer content\n");
        fs::remove_file(d.space.outside().join("t44")).unwrap();
    }),
    ("T45", |d| {
        if !is_root() {
            skip!("T45: only root gives files away");
        }
        d.put("t45", "old\n");
        chown(d.at("t45"), Some(1234), Some(2345)).unwrap();
        fs::set_permissions(d.at("t45"), fs::Permissions::from_mode(0o664)).unwrap();
        let reply = d.call("write", json!({"path": "t45", "content": "new\n"}));
        let meta = fs::metadata(d.at("t45")).unwrap();
        let kept = (meta.uid(), meta.gid(), meta.mode() & 0o7777) == (1234, 2345, 0o664);
        let said = reply.envelope.to_string();
        assert!(kept || said.contains("could not be kept") || said.contains("permission_denied"), "{said}");
    }),
    ("T47", |d| {
        d.put("t47", (1..=100).map(|number| format!("{number}\n")).collect::<String>());
        for round in 0..20 {
            let (old50, old75) =
                if round == 0 { ("50".into(), "75".into()) } else { (format!("fifty{}", round - 1), format!("sevfive{}", round - 1)) };
            let edit = |old: &str, new: String| {
                ("edit", json!({"path": "t47", "old_string": format!("\n{old}\n"), "new_string": format!("\n{new}\n")}))
            };
            let (one, other) = d.both(edit(&old50, format!("fifty{round}")), edit(&old75, format!("sevfive{round}")));
            one.into_data();
            other.into_data();
        }
        let now = String::from_utf8(d.bytes("t47")).unwrap();
        assert!(now.contains("\nfifty19\n") && now.contains("\nsevfive19\n"), "{now}");
        assert_eq!(now.lines().count(), 100);
    }),
    ("T48", |d| {
        d.put("t48", "one\ntwo\n");
        d.done("read", json!({"path": "t48"}));
        d.done("sandbox_bash", json!({"command": "sed -i s/two/TWO/ t48"}));
        let (code, said) = d.refused("write", json!({"path": "t48", "content": "one\ntwo\nthree\n"}));
        assert_eq!(code, "stale_file");
        assert!(
            said["error"].as_str().unwrap().contains("line 2 differs") && said["data"]["hash"] != said["data"]["expected_hash"],
            "{said}"
        );
        assert_eq!(said["data"]["changed"], json!({"first_line": 2, "last_line": 2, "was_last_line": 2}));
        let (code, said) = d.refused("edit", json!({"path": "t48", "old_string": "one", "new_string": "1"}));
        assert_eq!((code.as_str(), &said["data"]["changed"]["first_line"]), ("stale_file", &json!(2)), "{said}");
        assert_eq!(d.bytes("t48"), b"one\nTWO\n");
        let hash = d.done("read", json!({"path": "t48"}))["hash"].clone();
        d.done("write", json!({"path": "t48", "content": "mine\n", "expected_hash": hash}));
        assert_eq!(d.bytes("t48"), b"mine\n");
        // Also of a longer content that a tool has written.
        let long: String = (1..=4000).map(|number| format!("line {number}\n")).collect();
        d.done("write", json!({"path": "t48", "content": long, "expected_hash": null}));
        d.done("edit", json!({"path": "t48", "old_string": "line 7\n", "new_string": "seven\n"}));
        d.done("sandbox_bash", json!({"command": "sed -i 's/line 3000$/x/' t48"}));
        let (code, said) = d.refused("edit", json!({"path": "t48", "old_string": "line 9\n", "new_string": "nine\n"}));
        assert_eq!(code, "stale_file");
        // Of so many lines it is known to a few.
        let line = |key: &str| said["data"]["changed"][key].as_u64().unwrap();
        assert!((2990..=3000).contains(&line("first_line")) && (3000..=3010).contains(&line("last_line")), "{said}");
    }),
    ("T49", |d| {
        d.put("t49", "one\n");
        d.done("read", json!({"path": "t49"}));
        fs::File::options()
            .append(true)
            .open(d.at("t49"))
            .unwrap()
            .set_modified(std::time::SystemTime::now() + Duration::from_secs(5))
            .unwrap();
        d.done("edit", json!({"path": "t49", "old_string": "one", "new_string": "two"}));
        // Our own last write is not stale either.
        d.done("write", json!({"path": "t49", "content": "three\n"}));
    }),
    ("T51", |d| {
        d.put("t51", "a\nb\n");
        let edits = json!([{"old_string": "a", "new_string": "A"}, {"old_string": "missing", "new_string": "x"}]);
        let (code, said) = d.refused("edit", json!({"path": "t51", "edits": edits}));
        assert_eq!(code, "no_match");
        assert_eq!(said["data"]["edits"].as_array().map(Vec::len), Some(2), "each has its verdict: {said}");
        assert_eq!(d.bytes("t51"), b"a\nb\n");
    }),
    ("T53", |d| {
        fs::write(d.space.outside().join("t53"), "outside\n").unwrap();
        symlink("../outside/t53", d.at("t53")).unwrap();
        for (tool, args) in [
            ("edit", json!({"path": "t53", "old_string": "outside", "new_string": "x"})),
            ("write", json!({"path": "t53", "content": "x"})),
            ("read", json!({"path": "t53"})),
        ] {
            let (code, said) = d.refused(tool, args);
            assert_eq!(code, "outside_workspace", "{tool}");
            assert!(!said.to_string().contains(d.space.outside().to_str().unwrap()), "the target is not disclosed: {said}");
        }
        assert_eq!(fs::read(d.space.outside().join("t53")).unwrap(), b"outside\n");
    }),
    ("T55", |d| {
        symlink("..", d.at("t55")).unwrap();
        for (tool, args) in [
            ("write", json!({"path": "t55/x", "content": "x"})),
            ("mkdir", json!({"path": "t55/x"})),
            ("create", json!({"path": "t55/x", "content": "x"})),
            ("read", json!({"path": "t55/outside/secret"})),
        ] {
            assert_eq!(d.refused(tool, args).0, "outside_workspace", "{tool}");
        }
        assert!(!d.space.path("x").exists());
    }),
    ("T56", |d| {
        fs::create_dir(d.space.path("ws-secret")).unwrap();
        fs::write(d.space.path("ws-secret/creds"), "creds\n").unwrap();
        for path in [d.space.path("ws-secret/creds").to_str().unwrap().to_owned(), "../ws-secret/creds".into()] {
            assert_eq!(d.refused("read", json!({"path": path})).0, "outside_workspace", "{path}");
        }
        d.put("t56", "inside\n");
        let inside = d.at("t56").to_str().unwrap().to_owned();
        assert_eq!(d.done("read", json!({"path": inside}))["text"], "inside\n");
    }),
];

#[test]
fn t38_a_full_disk_leaves_the_old_bytes() {
    let space = Space::new();
    let _mounted = match Mounted::over(&space.ws(), 1024) {
        Ok(mounted) => mounted,
        Err(errno) => skip!("no small disk can be mounted here: {}", errno.desc()),
    };
    fs::write(space.ws().join("f"), "old\n").unwrap();
    let desk = Desk::new(space);
    let reply = desk.call("write", json!({"path": "f", "content": "x".repeat(2 << 20)}));
    assert_eq!(reply.envelope["data"]["code"], "disk_full", "{}", reply.envelope);
    let edit = json!({"path": "f", "old_string": "old", "new_string": "y".repeat(2 << 20)});
    assert_eq!(desk.refused("edit", edit).0, "disk_full");
    assert_eq!(desk.bytes("f"), b"old\n");
    assert_eq!(fs::read_dir(desk.at(".")).unwrap().count(), 1, "nothing is left over");
    desk.done("write", json!({"path": "f", "content": "new\n"}));
    assert_eq!(desk.bytes("f"), b"new\n");
}

#[test]
fn t38_a_reader_in_a_loop_sees_old_or_new() {
    const LENGTH: usize = 20_000;
    // With its program built for speed, ten thousand take ten seconds.
    let rounds = rounds(2_500);
    let space = Space::in_memory().file("f", "0".repeat(LENGTH));
    // Where every write waits for a disk, fewer of them.
    let rounds = if space.is_in_memory() { rounds } else { rounds.min(200) };
    let desk = Desk::under("edit", space);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let path = desk.at("f");
        let stop = &stop;
        let reader = scope.spawn(move || {
            let mut reads = 0u64;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let bytes = fs::read(&path).unwrap();
                assert_eq!(bytes.len(), LENGTH);
                assert!(bytes == [bytes[0]].repeat(LENGTH));
                reads += 1;
                std::thread::yield_now();
            }
            reads
        });
        for round in 1..=rounds {
            desk.done("write", json!({"path": "f", "content": (round % 10).to_string().repeat(LENGTH)}));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let reads = reader.join().unwrap();
        println!("T38: {reads} reads during {rounds} writes: each saw a whole file");
        assert!(reads > 10);
    });
}

#[test]
fn t47_two_sessions_that_write_one_file_lose_nothing() {
    let times = rounds(60);
    let space = Space::in_memory().file("log", "").file("table", "left: 0\nmiddle\nright: 0\n");
    let ws = space.ws();
    std::thread::scope(|scope| {
        for side in ["left", "right"] {
            let ws = ws.clone();
            scope.spawn(move || {
                let desk = Desk::at_folder("edit", &ws);
                // Somebody else has the file for too long: nothing is lost by that, and the call is made again.
                let until_done = |tool: &str, args: serde_json::Value| {
                    loop {
                        let reply = desk.call(tool, args.clone());
                        if reply.envelope["data"]["code"] != "busy" {
                            reply.into_data();
                            return;
                        }
                    }
                };
                for time in 0..times {
                    until_done("write", json!({"path": "log", "content": format!("{side} {time}\n"), "mode": "append"}));
                    // The table of the other side changes meanwhile, and is no longer as it was when this one was last written.
                    let hash = json!({"path": "table"});
                    desk.done("read", hash);
                    let edit = json!({"path": "table", "old_string": format!("{side}: {time}\n"), "new_string": format!("{side}: {}\n", time + 1)});
                    loop {
                        let reply = desk.call("edit", edit.clone());
                        match reply.envelope["data"]["code"].as_str() {
                            Some("busy") => {}
                            Some("stale_file") => {
                                desk.done("read", json!({"path": "table"}));
                            }
                            _ => {
                                reply.into_data();
                                break;
                            }
                        }
                    }
                }
            });
        }
    });
    let log = fs::read_to_string(ws.join("log")).unwrap();
    for side in ["left", "right"] {
        let found: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix(side)).collect();
        assert_eq!(found, (0..times).map(|time| format!(" {time}")).collect::<Vec<_>>(), "{side}");
    }
    assert_eq!(log.lines().count() as u64, 2 * times);
    assert_eq!(fs::read_to_string(ws.join("table")).unwrap(), format!("left: {times}\nmiddle\nright: {times}\n"));
}

/// A kill in the middle of a write in place leaves the record and half a file (the library's own tests kill at every system call).
#[test]
fn t44_a_write_in_place_that_was_cut_off_is_undone_by_the_next_session() {
    let (old, new) = (b"old content\n".to_vec(), b"NEW CONTENT, longer\n".to_vec());
    let half = [&new[..5], &old[5..]].concat();
    let space = Space::new().file("h1", &half).file("other", "untouched\n");
    fs::hard_link(space.ws().join("h1"), space.ws().join("h2")).unwrap();
    let meta = fs::metadata(space.ws().join("h1")).unwrap();
    // The first session only says where the journal is; its lock keeps the folder.
    let desk = Desk::new(space);
    let journal = desk.journal().unwrap();
    let content = [old.clone(), new.clone()].concat();
    let header = json!({
        "names": ["h1", "h2"], "dev": meta.dev(), "ino": meta.ino(), "old_size": old.len(), "new_size": new.len(),
        "hash": bailiwick::workspace::Hash::of(&content),
    });
    let record = journal.join(format!("{:x}-{:x}.undo", meta.dev(), meta.ino()));
    fs::write(&record, [header.to_string().as_bytes(), b"\n", &content].concat()).unwrap();
    let owner = fs::metadata(&journal).unwrap();
    if is_root() {
        chown(&record, Some(owner.uid()), Some(owner.gid())).unwrap();
    }
    let space = desk.close();
    assert!(record.exists(), "a journal with a record in it outlives its session");
    let desk = Desk::new(space);
    assert_eq!(desk.done("read", json!({"path": "h2"}))["text"], "old content\n");
    assert_eq!(desk.bytes("h1"), old);
    assert_eq!(desk.bytes("other"), b"untouched\n");
    assert!(!record.exists());
    assert!(desk.report().contains("had been cut off"), "{}", desk.report());
    let _space = desk.close();
    assert!(!journal.exists());
}

#[test]
fn t44_the_journal_goes_with_the_last_session() {
    let desk = Desk::new(Space::new());
    let journal = desk.journal().unwrap();
    assert!(journal.is_dir() && !journal.starts_with(desk.space.ws()));
    // Commands do not even see it.
    let data = desk.done("bash", json!({"command": format!("ls {0}; echo x > {0}/x.undo", journal.display())}));
    assert_ne!(data["exit_code"], 0, "{data}");
    assert_eq!(fs::read_dir(&journal).unwrap().count(), 0);
    let _space = desk.close();
    assert!(!journal.exists());
}
