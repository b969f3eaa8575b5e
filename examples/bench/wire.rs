//! The third table: `read` and `edit` of one file beside the npm server-filesystem, both over MCP on stdin and stdout.
//!
//! That server does not flush, so the figures that count are those of a file system in memory, where flushing costs nothing; those of a disk,
//! with our flush, stand below.

use super::{median, ms};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A server, and the wire to it.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl Peer {
    /// Starts it and shakes hands; `None`: it does not speak.
    fn start(command: &mut Command) -> Option<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
        let (to, from) = (child.stdin.take()?, BufReader::with_capacity(64 * 1024, child.stdout.take()?));
        let mut peer = Self { child, to, from, next: 0 };
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}});
        if peer.ask("initialize", &hello).is_none_or(|(answer, _)| answer.get("result").is_none()) {
            let _ = peer.child.kill();
            let _ = peer.child.wait();
            return None;
        }
        let _ = writeln!(peer.to, "{}", json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        Some(peer)
    }

    /// Asks, and reads the line that answers. Returns also how long that took.
    fn ask(&mut self, method: &str, params: &Value) -> Option<(Value, Duration)> {
        self.next += 1;
        let line = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params}).to_string() + "\n";
        let started = Instant::now();
        self.to.write_all(line.as_bytes()).ok()?;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).ok()? == 0 {
                return None;
            }
            // What a client makes of it is the client's: an answer that is longer takes it longer, which is not counted here.
            let time = started.elapsed();
            let answer: Value = serde_json::from_str(&line).ok()?;
            if answer["id"] == self.next {
                return Some((answer, time));
            }
        }
    }

    /// One call that has to succeed: until its answer has been read.
    fn call(&mut self, tool: &str, args: &Value) -> Duration {
        let (answer, time) = self.ask("tools/call", &json!({"name": tool, "arguments": args})).unwrap();
        assert!(answer["result"]["isError"] != true && answer.get("error").is_none(), "{tool}: {answer}");
        time
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the npm package is: in the folder that `BENCH_NODE_MODULES` names, or where the tests' own cache is.
fn server_filesystem() -> Option<PathBuf> {
    let cache =
        std::env::var_os("XDG_CACHE_HOME").map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"), PathBuf::from);
    let folders = [std::env::var_os("BENCH_NODE_MODULES").map(PathBuf::from), Some(cache.join("bailiwick-tests/bench/node_modules"))];
    let index = "@modelcontextprotocol/server-filesystem/dist/index.js";
    folders.into_iter().flatten().map(|folder| folder.join(index)).find(|path| path.is_file())
}

/// Measures, prints.
pub(super) fn run(rounds: usize, exe: &Path) {
    let Some(index) = server_filesystem() else {
        println!(
            "\nserver-filesystem: not there (npm install @modelcontextprotocol/server-filesystem, and name its node_modules in BENCH_NODE_MODULES)"
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (disk, memory) = (dir.path().join("disk"), dir.path().join("memory"));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&memory).unwrap();
    let in_memory = nix::mount::mount(Some("tmpfs"), &memory, Some("tmpfs"), nix::mount::MsFlags::empty(), None::<&str>).is_ok();
    if in_memory {
        println!("\nin memory, so without our flush (this is the ratio that counts):");
        table(rounds, exe, &index, &memory);
        let _ = nix::mount::umount2(&memory, nix::mount::MntFlags::MNT_DETACH);
    }
    println!("\non a disk, with our flush:");
    table(rounds, exe, &index, &disk);
}

fn table(rounds: usize, exe: &Path, index: &Path, folder: &Path) {
    let text: String = (0..4000).map(|number| format!("line {number}: forty-some characters of plain text\n")).collect();
    let names = ["ours", "theirs"].map(|name| folder.join(name).join("medium"));
    for name in &names {
        fs::create_dir(name.parent().unwrap()).unwrap();
        fs::write(name, &text).unwrap();
    }
    let workspace = names[0].parent().unwrap();
    let mut ours = Peer::start(Command::new(exe).arg("mcp").current_dir(workspace)).unwrap();
    let mut theirs = Peer::start(Command::new("node").arg(index).arg(names[1].parent().unwrap())).unwrap();
    println!("{} bytes, {rounds} interleaved rounds, medians", text.len());
    println!("{:<44} {:>9} {:>11} {:>7}", "", "ours, ms", "theirs, ms", "times");
    let mut row = |name: &str, call: &dyn Fn(usize) -> (Value, &'static str, Value, &'static str)| {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for round in 0..rounds + 4 {
            let (mine, tool, peers, peers_tool) = call(round);
            let times = (ours.call(tool, &mine), theirs.call(peers_tool, &peers));
            if round >= 4 {
                one.push(times.0);
                other.push(times.1);
            }
        }
        let (one, other) = (median(&mut one), median(&mut other));
        println!("{name:<44} {:>9.2} {:>11.2} {:>7.1}", ms(one), ms(other), other.as_secs_f64() / one.as_secs_f64());
    };
    let there = names[1].to_str().unwrap().to_owned();
    row("read, as each answers by itself", &|_| (json!({"path": "medium"}), "read", json!({"path": there}), "read_text_file"));
    row("read, the same 1000 lines", &|_| {
        (json!({"path": "medium", "limit": 1000}), "read", json!({"path": there, "head": 1000}), "read_text_file")
    });
    row("edit of one line", &|round| {
        let (old, new) = if round % 2 == 0 { ("line 2000:", "LINE 2000:") } else { ("LINE 2000:", "line 2000:") };
        let mine = json!({"path": "medium", "old_string": old, "new_string": new});
        (mine, "edit", json!({"path": there, "edits": [{"oldText": old, "newText": new}]}), "edit_file")
    });
    assert_eq!(fs::read(&names[0]).unwrap(), fs::read(&names[1]).unwrap());
}
