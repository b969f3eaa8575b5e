//! The process that writes is killed at each of its system calls in turn, in its real jail. Whatever the instant, the file holds the old
//! bytes or the new ones, with its mode, its links and its names, and what was left goes with the next call or the next session.
//! With `BAILIWICK_TEST_ROUNDS` it is killed both before and after each call.

use crate::desk::Desk;
use crate::skip;
use crate::space::{Mounted, Space, is_root, rounds};
use bailiwick::workspace::Hash;
use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// More stops (two for each system call) than any call makes.
const MOST: usize = 2000;

/// How a traced call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Answered,
}

/// The jails of a workspace: processes below this one that work in it and have no child.
pub(crate) fn jails(ws: &Path) -> Vec<u32> {
    let base = fs::metadata(ws).unwrap();
    let stat = |pid: u32| -> Option<u32> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        text.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
    };
    let pids: Vec<u32> = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let parents: Vec<(u32, u32)> = pids.iter().filter_map(|pid| Some((*pid, stat(*pid)?))).collect();
    let ours = |mut pid: u32| {
        while let Some((_, parent)) = parents.iter().find(|(known, _)| *known == pid) {
            if *parent == std::process::id() {
                return true;
            }
            pid = *parent;
        }
        false
    };
    let is_base = |path: std::path::PathBuf| fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (base.dev(), base.ino()));
    let works_here = |pid: u32| {
        let proc = Path::new("/proc").join(pid.to_string());
        let Ok(fds) = fs::read_dir(proc.join("fd")) else { return false };
        // A shell that waits has it as its folder.
        is_base(proc.join("cwd")) || fds.flatten().any(|fd| is_base(fd.path()))
    };
    let is_leaf = |pid: u32| parents.iter().all(|(_, parent)| *parent != pid);
    parents.iter().map(|(pid, _)| *pid).filter(|pid| is_leaf(*pid) && ours(*pid) && works_here(*pid)).collect()
}

/// The jail that changes files, where no other has been asked for.
fn changer(ws: &Path) -> Pid {
    let found = jails(ws);
    assert_eq!(found.len(), 1, "{found:?}");
    Pid::from_raw(i32::try_from(found[0]).unwrap())
}

fn wait(pid: Pid, flags: WaitPidFlag) -> nix::Result<WaitStatus> {
    waitpid(pid, Some(WaitPidFlag::__WALL | flags))
}

fn seize(pid: Pid) -> nix::Result<()> {
    ptrace::seize(pid, Options::PTRACE_O_TRACESYSGOOD)?;
    ptrace::interrupt(pid)?;
    wait(pid, WaitPidFlag::empty())?;
    ptrace::syscall(pid, None)
}

/// Kills a seized process at its `stop`-th stop, unless its call has been answered before.
fn watch(pid: Pid, stop: usize, answered: &AtomicBool) -> nix::Result<End> {
    let mut stops = 0;
    loop {
        match wait(pid, WaitPidFlag::WNOHANG)? {
            WaitStatus::StillAlive if stops < stop && answered.load(Ordering::Acquire) => {
                ptrace::interrupt(pid)?;
                wait(pid, WaitPidFlag::empty())?;
                ptrace::detach(pid, None)?;
                return Ok(End::Answered);
            }
            WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(10)),
            WaitStatus::PtraceSyscall(_) => {
                stops += 1;
                // Its last stop may be that of its exit.
                if stops >= stop {
                    kill(pid, Signal::SIGKILL)?;
                } else {
                    ptrace::syscall(pid, None)?;
                }
            }
            WaitStatus::Signaled(..) | WaitStatus::Exited(..) => return Ok(End::Killed),
            _ => ptrace::syscall(pid, None)?,
        }
    }
}

/// One call, whose jail is killed at its `stop`-th stop.
fn killed_at(desk: &Desk, stop: usize, tool: &str, args: &Value) -> nix::Result<(End, Value)> {
    let pid = changer(&desk.space.ws());
    let answered = AtomicBool::new(false);
    let (ready, begun) = mpsc::channel();
    std::thread::scope(|scope| {
        let answered = &answered;
        let tracer = scope.spawn(move || {
            let seized = seize(pid);
            ready.send(seized).unwrap();
            if seized.is_ok() { watch(pid, stop, answered) } else { Ok(End::Answered) }
        });
        begun.recv().unwrap()?;
        let reply = desk.call(tool, args.clone());
        answered.store(true, Ordering::Release);
        Ok((tracer.join().unwrap()?, reply.envelope))
    })
}

/// What is tried: a call on `d/f`, which has these bytes before and, if it succeeds, those after it.
struct Scene<'a> {
    tool: &'a str,
    args: Value,
    old: Option<&'a [u8]>,
    new: &'a [u8],
    /// The code of the call's fault when nobody kills it; none: it succeeds.
    fault: Option<&'a str>,
    /// `d/g` is another name of the same file.
    linked: bool,
}

fn play(desk: &Desk, scene: &Scene<'_>) {
    if !is_root() {
        skip!("only root looks into a jail or traces one; the library's tests trace the writer alone");
    }
    let (file, folder) = (desk.at("d/f"), desk.at("d"));
    fs::create_dir_all(&folder).unwrap();
    let mode = 0o640;
    let mut names = vec!["f", "lnk", "other"];
    let mut inode = 0;
    if let Some(old) = scene.old {
        fs::write(&file, old).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    if scene.linked {
        fs::hard_link(&file, desk.at("d/g")).unwrap();
        inode = fs::metadata(&file).unwrap().ino();
        names = vec!["f", "g", "lnk", "other"];
    }
    symlink("f", desk.at("d/lnk")).unwrap();
    let (mut olds, mut news, mut litter, mut busy) = (0, 0, 0, 0);
    // Each call has two stops: before it is made, and after. In every run, one of each.
    let step = if rounds(0) > 0 { 1 } else { 2 };
    let mut stop = 0;
    while stop < MOST {
        stop += step;
        // This starts a jail, and clears what the last one left.
        // (A jail that was ended after its answer is missed by the first call after it.)
        let other = |content: String| {
            let reply = desk.call("write", json!({"path": "d/other", "content": content}));
            if reply.envelope["data"]["code"] == "jail_died" {
                desk.done("write", json!({"path": "d/other", "content": content}));
            } else {
                reply.into_data();
            }
        };
        other(format!("{stop}\n"));
        let mut found: Vec<String> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        found.sort();
        assert!(found == names || (scene.old.is_none() && found == names[1..]), "stop {stop}: {found:?} are left");
        // As it was, by the same file.
        match scene.old {
            Some(old) if fs::read(&file).unwrap() != old => fs::write(&file, old).unwrap(),
            Some(_) => {}
            None => {
                let _ = fs::remove_file(&file);
            }
        }
        let (end, envelope) = match killed_at(desk, stop, scene.tool, &scene.args) {
            Ok(ended) => ended,
            Err(errno @ (Errno::EPERM | Errno::ENOSYS)) => {
                skip!("a jail cannot be traced here ({}); the library's tests trace the writer alone", errno.desc())
            }
            Err(errno) => panic!("{errno}"),
        };
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            if !names.contains(&entry.file_name().to_str().unwrap()) {
                litter += 1;
                // What is left is never open to more than the file was.
                let left = entry.metadata().unwrap().mode() & 0o777;
                assert!(scene.old.is_none() || left & !mode == 0, "stop {stop}: {left:o}");
            }
        }
        if envelope["data"]["code"] == "hard_linked" {
            // Traced, on a machine that is busy, it may find no time to look for all names of the file: once more.
            assert_eq!(fs::read(&file).unwrap(), scene.old.unwrap());
            busy += 1;
            assert!(busy < 300, "there is never time to look for the names");
            stop -= step;
            continue;
        }
        if scene.linked {
            // The next jail undoes what was cut off.
            other(format!("after {stop}\n"));
            assert_eq!(fs::read(desk.at("d/g")).unwrap(), fs::read(&file).unwrap());
            let meta = fs::metadata(&file).unwrap();
            assert_eq!((meta.ino(), meta.nlink()), (inode, 2), "stop {stop}");
            let journal = desk.journal().unwrap();
            assert_eq!(fs::read_dir(&journal).unwrap().count(), 0, "stop {stop}: a record is left");
        }
        let bytes = fs::read(&file).ok();
        match bytes.as_deref() {
            now if now == scene.old => olds += 1,
            Some(now) if now == scene.new && scene.fault.is_none() => news += 1,
            now => panic!("stop {stop}: {:?} bytes, neither old nor new", now.map(<[u8]>::len)),
        }
        if scene.old.is_some() {
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, mode, "stop {stop}");
        }
        assert_eq!(fs::read_link(desk.at("d/lnk")).unwrap(), Path::new("f"));
        if end == End::Answered {
            assert_eq!(envelope["data"]["code"].as_str(), scene.fault, "{envelope}");
            println!(
                "{}: killed at {} of {} stops; old bytes {olds} times, new ones {news}, a temporary name left {litter} times",
                scene.tool,
                stop / step - 1,
                stop - 1
            );
            assert!(stop > 20 && olds > 10 && (news > 0) == scene.fault.is_none(), "{olds} old, {news} new");
            return;
        }
        // Killed after its answer it had done what it says; killed before, nobody was told so.
        match envelope["data"]["code"].as_str() {
            Some("jail_died") => {}
            code => assert!(code == scene.fault && (code.is_some() || bytes.as_deref() == Some(scene.new)), "stop {stop}: {envelope}"),
        }
    }
    panic!("the call never ended");
}

fn big(byte: u8) -> Vec<u8> {
    vec![byte; 100_000]
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn a_killed_write_through_a_link_leaves_old_or_new() {
    let (old, new) = (big(b'o'), big(b'n'));
    let args = json!({"path": "d/lnk", "content": text(&new), "expected_hash": Hash::of(&old)});
    let desk = Desk::under("edit", Space::new());
    play(&desk, &Scene { tool: "write", args, old: Some(&old), new: &new, fault: None, linked: false });
}

#[test]
fn a_killed_edit_leaves_old_or_new() {
    let (old, new) = (b"one\ntwo\n", b"one\n2\n");
    let args = json!({"path": "d/f", "old_string": "two", "new_string": "2", "expected_hash": Hash::of(old)});
    let desk = Desk::under("edit", Space::new());
    play(&desk, &Scene { tool: "edit", args, old: Some(old), new, fault: None, linked: false });
}

#[test]
fn a_killed_creation_leaves_nothing_or_all() {
    let new = big(b'n');
    let args = json!({"path": "d/f", "content": text(&new)});
    let desk = Desk::under("edit", Space::new());
    play(&desk, &Scene { tool: "create", args, old: None, new: &new, fault: None, linked: false });
}

#[test]
fn a_killed_write_in_place_is_undone_by_the_next_jail() {
    let (old, new) = (big(b'o'), b"n".repeat(120_000));
    let args = json!({"path": "d/f", "content": text(&new), "expected_hash": Hash::of(&old)});
    let desk = Desk::under("edit", Space::new());
    play(&desk, &Scene { tool: "write", args, old: Some(&old), new: &new, fault: None, linked: true });
}

#[test]
fn a_write_that_is_killed_while_the_disk_is_full_leaves_the_old_bytes() {
    for linked in [false, true] {
        let space = Space::new();
        let _mounted = match Mounted::over(&space.ws(), 512) {
            Ok(mounted) => mounted,
            Err(errno) => skip!("no small disk can be mounted here: {}", errno.desc()),
        };
        let (old, new) = (big(b'o'), b"n".repeat(1 << 20));
        let args = json!({"path": "d/f", "content": text(&new), "expected_hash": Hash::of(&old)});
        let desk = Desk::under("edit", space);
        play(&desk, &Scene { tool: "write", args, old: Some(&old), new: &new, fault: Some("disk_full"), linked });
    }
}

#[test]
fn a_write_that_is_killed_at_a_quota_on_file_size_leaves_the_old_bytes() {
    for linked in [false, true] {
        let space = Space::new();
        let policy = space.path("small.toml");
        let rules = "name = \"small\"\ndescription = \"small files only\"\nextends = \"edit\"\n[limits]\nfile_size = \"150KiB\"\n";
        fs::write(&policy, rules).unwrap();
        let (old, new) = (big(b'o'), b"n".repeat(200_000));
        let args = json!({"path": "d/f", "content": text(&new), "expected_hash": Hash::of(&old)});
        let desk = Desk::under(policy.to_str().unwrap(), space);
        play(&desk, &Scene { tool: "write", args, old: Some(&old), new: &new, fault: Some("too_large"), linked });
    }
}

#[test]
fn who_was_ended_between_calls_costs_none() {
    if !is_root() {
        skip!("what a jail has open is seen by root alone");
    }
    let desk = Desk::new(Space::new().file("f", "one\n"));
    let calls = || {
        assert_eq!(desk.done("read", json!({"path": "f"}))["text"], "one\n");
        desk.done("write", json!({"path": "g", "content": "two\n"}));
        assert_eq!(desk.done("sandbox_bash", json!({"command": "cat g"}))["stdout"], "two\n");
    };
    calls();
    for round in 0..3 {
        // The jails that look and change, and the shell that waits for the next command.
        let mut found = Vec::new();
        let all = crate::processes::within(Duration::from_secs(5), || {
            found = jails(&desk.space.ws());
            found.len() >= 3
        });
        assert!(all, "round {round}: {found:?}");
        for pid in &found {
            kill(Pid::from_raw(i32::try_from(*pid).unwrap()), Signal::SIGKILL).unwrap();
        }
        assert!(crate::processes::within(Duration::from_secs(5), || jails(&desk.space.ws()).iter().all(|pid| !found.contains(pid))));
        calls();
    }
}
