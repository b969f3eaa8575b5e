//! The writer is killed at each of its system calls in turn. Whatever the instant, the file holds the old bytes or the new ones,
//! with its mode, and the next write clears what was left.

use super::*;
use crate::workspace::locate::TEMPORARY_PREFIX;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const OPTIONS: ReplaceOptions = ReplaceOptions { expect: Expect::Anything, create_dirs: true, executable: None };

/// The file that tells the writer below what to do: it stands beside the workspace, where no test run by hand has one.
const ORDER: &str = "order";

/// More system calls than a replacement makes.
const MOST: usize = 400;

/// How the writer ends when it found no time to look for all names of a file: traced, on a machine that is busy, it may not.
const REFUSED: i32 = 2;

/// How a writer came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Killed,
    Done,
    Refused,
}

/// The writer, as a process of its own: this test program, started again by the tests below.
#[test]
#[ignore = "the other half of the tests in this file"]
fn writer() {
    let Ok(order) = fs::read_to_string(Path::new("..").join(ORDER)) else { return };
    let mut base = BaseDir::open(Path::new(".")).unwrap();
    if let Ok(journal) = File::open("../journal") {
        base = base.with_journal(journal.into());
    }
    let new = vec![b'n'; 100_000];
    let mut out = std::io::stdout();
    writeln!(out, "\ntid {}", nix::unistd::gettid()).unwrap();
    out.flush().unwrap();
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let done = base.replace(&RelPath::from_relative(&order), &new, &OPTIONS);
    sys::exit_now(match done {
        Ok(_) => 0,
        Err(fault) if fault.code() == FaultCode::HardLinked => REFUSED,
        Err(_) => 1,
    });
}

fn start(ws: &Path) -> (Child, Pid) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "workspace::replace::crash_tests::writer", "--ignored", "--nocapture", "--test-threads=1"])
        .current_dir(ws)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let tid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("tid ")?.parse().ok()).unwrap();
    (child, Pid::from_raw(tid))
}

/// Lets a writer run to its `calls`-th system call and kills it there. Says how it ended.
fn run(ws: &Path, calls: usize) -> nix::Result<End> {
    let (mut child, tid) = start(ws);
    ptrace::seize(tid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)?;
    ptrace::interrupt(tid)?;
    let wait = || waitpid(tid, Some(WaitPidFlag::__WALL));
    wait()?;
    let mut stdin = child.stdin.take().unwrap();
    ptrace::syscall(tid, None)?;
    stdin.write_all(b"\n").unwrap();
    let mut stops = 0;
    let end = loop {
        match wait()? {
            WaitStatus::PtraceSyscall(_) => {
                stops += 1;
                if stops >= calls {
                    // At the entry: the call itself is not made any more.
                    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL)?;
                }
                // Fails once it has been killed; the next wait tells.
                let _ = ptrace::syscall(tid, None);
            }
            WaitStatus::Exited(_, code) => {
                assert!(code == 0 || code == REFUSED, "the replacement failed");
                break if code == 0 { End::Done } else { End::Refused };
            }
            WaitStatus::Signaled(..) => break End::Killed,
            _ => ptrace::syscall(tid, None)?,
        }
    };
    let _ = child.wait();
    Ok(end)
}

fn killed_everywhere(old: Option<&[u8]>, order: &str, file: &str) {
    let dir = tempfile::tempdir().unwrap();
    let ws = dir.path().join("ws");
    fs::create_dir(&ws).unwrap();
    fs::write(dir.path().join(ORDER), order).unwrap();
    let base = BaseDir::open(&ws).unwrap();
    let file = ws.join(file);
    if order != file.file_name().unwrap().to_str().unwrap() {
        std::os::unix::fs::symlink(file.file_name().unwrap(), ws.join(order)).unwrap();
    }
    let (mut olds, mut news, mut litter) = (0, 0, 0);
    for calls in 1..MOST {
        match old {
            Some(old) => {
                fs::write(&file, old).unwrap();
                fs::set_permissions(&file, fs::Permissions::from_mode(0o751)).unwrap();
            }
            None => {
                let _ = fs::remove_file(&file);
            }
        }
        let ended = match run(&ws, calls) {
            Ok(end) => end == End::Done,
            Err(errno) => {
                let _ = writeln!(std::io::stderr(), "SKIP killed_everywhere: no ptrace here ({})", errno.desc());
                return;
            }
        };
        let found = fs::read(&file).ok();
        if found.as_deref() == old {
            olds += 1;
        } else {
            assert_eq!(found.map(|bytes| (bytes.len(), bytes.iter().all(|byte| *byte == b'n'))), Some((100_000, true)), "call {calls}");
            news += 1;
        }
        if old.is_some() {
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o7777, 0o751, "call {calls}");
        }
        let temporary = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().starts_with(TEMPORARY_PREFIX);
        litter += usize::from(fs::read_dir(&ws).unwrap().any(temporary));
        base.replace(&RelPath::from_relative("other"), b"next", &OPTIONS).unwrap();
        assert!(!fs::read_dir(&ws).unwrap().any(temporary), "call {calls}");
        if ended {
            // The sweep has something to prove only if a kill left something; it does between link and rename.
            assert!(olds > 10 && news > 0 && (litter > 0) == old.is_some(), "{olds} {news} {litter}");
            return;
        }
    }
    panic!("the writer never ended");
}

#[test]
fn a_killed_replacement_leaves_old_or_new() {
    killed_everywhere(Some(b"old"), "f", "f");
}

#[test]
fn a_killed_replacement_through_a_link_leaves_old_or_new() {
    killed_everywhere(Some(b"old"), "lnk", "f");
}

#[test]
fn a_killed_creation_leaves_nothing_or_all() {
    killed_everywhere(None, "f", "f");
}

#[test]
fn a_killed_write_in_place_is_undone() {
    let dir = tempfile::tempdir().unwrap();
    let ws = dir.path().join("ws");
    fs::create_dir(&ws).unwrap();
    fs::create_dir(dir.path().join("journal")).unwrap();
    fs::write(dir.path().join(ORDER), "f").unwrap();
    let base = BaseDir::open(&ws).unwrap().with_journal(File::open(dir.path().join("journal")).unwrap().into());
    fs::write(ws.join("f"), "").unwrap();
    fs::hard_link(ws.join("f"), ws.join("g")).unwrap();
    let (mut restored, mut news, mut refused) = (0, 0, 0);
    let mut calls = 0;
    while calls < MOST {
        calls += 1;
        fs::write(ws.join("f"), "old").unwrap();
        let Ok(end) = run(&ws, calls) else {
            let _ = writeln!(std::io::stderr(), "SKIP a_killed_write_in_place_is_undone: no ptrace here");
            return;
        };
        if end == End::Refused {
            assert_eq!(fs::read(ws.join("g")).unwrap(), b"old");
            (calls, refused) = (calls - 1, refused + 1);
            assert!(refused < 200, "no time to look for the names, ever");
            continue;
        }
        restored += base.recover_journal().unwrap().restored.len();
        let found = fs::read(ws.join("g")).unwrap();
        assert!(found == b"old" || found == vec![b'n'; 100_000], "call {calls}: {} bytes", found.len());
        assert_eq!(fs::metadata(ws.join("f")).unwrap().nlink(), 2);
        news += usize::from(found != b"old");
        assert!(!fs::read_dir(dir.path().join("journal")).unwrap().any(|entry| entry.unwrap().path().extension().is_some()));
        if end == End::Done {
            assert!(restored > 0 && news > 0, "{restored} {news}");
            return;
        }
    }
    panic!("the writer never ended");
}
