//! A folder that is swapped for a link, in a loop, while the tools work in it: nothing outside is read, written or removed.
//! `BAILIWICK_TEST_ROUNDS` sets how often each tool is called (default 1000; commands a twentieth of that).

use crate::desk::Desk;
use crate::space::{Space, rounds};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Swaps the folder `d` and a link to the outside, each time in one step, until it is told to stop.
fn swap(ws: &Path, outside: &Path, stop: &AtomicBool, swaps: &AtomicU64) {
    let (d, link) = (ws.join("d"), ws.join("link"));
    symlink(outside, &link).unwrap();
    while !stop.load(Ordering::Relaxed) {
        renameat2(AT_FDCWD, &d, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
        swaps.fetch_add(1, Ordering::Relaxed);
        std::thread::yield_now();
    }
    if d.symlink_metadata().unwrap().file_type().is_symlink() {
        renameat2(AT_FDCWD, &d, AT_FDCWD, &link, RenameFlags::RENAME_EXCHANGE).unwrap();
    }
}

/// The calls of one round. What one of them puts into the folder a later one takes out of it, if it meets the folder.
fn calls(round: u64) -> Vec<(&'static str, Value)> {
    let patch = |change| format!("*** Begin Patch\n*** {change}\n*** End Patch");
    let (old, new, patch) = match round % 2 {
        0 => ("decoy", "DECOY", patch("Add File: d/p\n+text")),
        _ => ("DECOY", "decoy", patch("Delete File: d/p")),
    };
    let mut calls = vec![
        ("read", json!({"path": "d/secret"})),
        ("grep", json!({"pattern": "secret|outside", "path": "d"})),
        ("ls", json!({"path": "d/.", "depth": 2})),
        ("find", json!({"pattern": "*", "path": "d"})),
        ("write", json!({"path": "d/f", "content": format!("round {round}\n"), "expected_hash": null})),
        ("write", json!({"path": "d/f", "content": "more\n", "mode": "append"})),
        ("edit", json!({"path": "d/secret", "old_string": old, "new_string": new})),
        ("edit", json!({"patch": patch})),
        ("create", json!({"path": "d/n", "content": "new\n"})),
        ("rename", json!({"source": "d/n", "destination": "n", "overwrite": true})),
        ("mkdir", json!({"path": "d/k"})),
        ("rename", json!({"source": "d/k", "destination": "k", "overwrite": true})),
        ("copy", json!({"source": "d/secret", "destination": "c", "overwrite": true})),
        ("copy", json!({"source": "d", "destination": "e", "overwrite": true})),
        ("copy", json!({"source": "x", "destination": "d/x", "overwrite": true})),
    ];
    if round.is_multiple_of(20) {
        calls.push(("sandbox_bash", json!({"command": "cat secret f; echo x > w", "workdir": "d"})));
    }
    calls
}

#[test]
fn a_swapped_folder_leads_nobody_out() {
    let space = Space::in_memory().file("d/f", "inside\n").file("d/secret", "a decoy\n").file("x", "x\n");
    let outside = space.outside();
    std::fs::write(outside.join("f"), "outside f\n").unwrap();
    let desk = Desk::new(space);
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut reached = std::collections::BTreeMap::new();
    let rounds = rounds(1000);
    std::thread::scope(|scope| {
        let ws = desk.space.ws();
        let (stop, swaps, outside) = (&stop, &swaps, &outside);
        let swapper = scope.spawn(move || swap(&ws, outside, stop, swaps));
        for round in 0..rounds {
            for (tool, args) in calls(round) {
                let reply = desk.call(tool, args);
                let said = format!("{} {}", reply.envelope, reply.text);
                assert!(!said.contains("the outside secret") && !said.contains("outside f"), "{tool}: {said}");
                let (done, refused) = reached.entry(tool).or_insert((0u64, 0u64));
                *(if reply.envelope["success"] == true { done } else { refused }) += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
    });
    assert_eq!(std::fs::read_to_string(outside.join("secret")).unwrap(), "the outside secret\n");
    assert_eq!(std::fs::read_to_string(outside.join("f")).unwrap(), "outside f\n");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 2, "nothing was put outside");
    // Nor was anything of the outside brought in.
    let brought = desk.done("grep", json!({"pattern": "the outside secret|outside f", "no_ignore": true, "output_mode": "files"}));
    assert_eq!(brought["total"], 0, "{brought}");
    println!(
        "{rounds} rounds, {} swaps; each tool, how often it reached the folder and was refused: {reached:?}",
        swaps.load(Ordering::Relaxed)
    );
    for (tool, (done, refused)) in reached {
        assert!(done > 0 && refused > 0, "the race of {tool} did not take place: {done} reached the folder, {refused} were refused");
    }
}
