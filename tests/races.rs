//! A folder that is swapped for a link, in a loop, while the file tools work in it: nothing outside is read, written or removed.
//! `BAILIWICK_TEST_ROUNDS` sets how often each tool is called (default 200).

use crate::space::{Space, bailiwick};
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session};
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn rounds() -> u64 {
    std::env::var("BAILIWICK_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(200)
}

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

#[test]
fn a_swapped_folder_leads_nobody_out() {
    let space = Space::new().file("d/f", "inside\n").file("d/secret", "a decoy\n").file("x", "x\n");
    let bait = space.outside().join("secret");
    std::fs::write(space.outside().join("f"), "outside f\n").unwrap();
    let asked = Asked { workspace: Some(space.ws()), policy: "edit".into(), ..Default::default() };
    let setup = Setup::of(&asked).unwrap();
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut reached = 0;
    let mut refused = 0;
    std::thread::scope(|scope| {
        let (ws, outside) = (space.ws(), space.outside());
        let (stop, swaps) = (&stop, &swaps);
        let swapper = scope.spawn(move || swap(&ws, &outside, stop, swaps));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let session =
                Session::start(Options { exe: bailiwick(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() }).unwrap();
            for round in 0..rounds() {
                let calls: [(&str, Value); 9] = [
                    ("read", json!({"path": "d/secret"})),
                    ("grep", json!({"pattern": "secret", "path": "d"})),
                    ("ls", json!({"path": "d/."})),
                    ("find", json!({"pattern": "*", "path": "d"})),
                    ("write", json!({"path": "d/f", "content": format!("round {round}\n")})),
                    ("edit", json!({"path": "d/secret", "old_string": "decoy", "new_string": "decoy"})),
                    ("copy", json!({"from": "d/secret", "to": "c", "overwrite": true})),
                    ("rename", json!({"from": "x", "to": "d/x", "overwrite": true})),
                    ("rename", json!({"from": "d/x", "to": "x", "overwrite": true})),
                ];
                for (tool, args) in calls {
                    let answer = session.call(Call { id: String::new(), tool: tool.into(), args }).await;
                    let said = serde_json::to_string(&answer.envelope).unwrap();
                    assert!(!said.contains("the outside secret") && !said.contains("outside f"), "{tool}: {said}");
                    *(if answer.envelope.success() { &mut reached } else { &mut refused }) += 1;
                }
            }
        });
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
    });
    assert_eq!(std::fs::read_to_string(&bait).unwrap(), "the outside secret\n");
    assert_eq!(std::fs::read_to_string(space.outside().join("f")).unwrap(), "outside f\n");
    assert_eq!(std::fs::read_dir(space.outside()).unwrap().count(), 2, "nothing was put outside");
    println!("{} swaps, {reached} calls reached the folder, {refused} were refused", swaps.load(Ordering::Relaxed));
    assert!(reached > 0 && refused > 0, "the race did not take place: {reached} reached, {refused} refused");
}
