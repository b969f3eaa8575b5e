//! Our MCP server beside the npm server-filesystem, on stdio, interleaved: a read of 2 KB, the start, the memory.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Starts of each server.
const STARTS: usize = 21;

/// A server that has been started.
struct Server {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    next: u64,
}

/// How a server is started, and how 2 KB are read with it.
struct Contender {
    argv: Vec<PathBuf>,
    call: Value,
}

impl Contender {
    fn start(&self, workspace: &Path) -> Server {
        let mut child = Command::new(&self.argv[0])
            .args(&self.argv[1..])
            .current_dir(workspace)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Server { child, to, from, next: 0 }
    }

    /// The most memory that the whole tree takes of the machine at a time, from its start through so many reads, shared pages counted
    /// once, in KiB: looked at all the time, from beside.
    fn peak(&self, workspace: &Path, reads: usize) -> u64 {
        let mut server = self.start(workspace);
        let (pid, over) = (server.child.id(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut peak = 0;
                while !over.load(Ordering::Relaxed) {
                    peak = peak.max(memory_of(pid)[1]);
                }
                peak
            });
            server.hello();
            for _ in 0..reads {
                server.read(&self.call);
            }
            over.store(true, Ordering::Relaxed);
            watch.join().unwrap()
        })
    }

    /// From the start to the answer to `initialize`, and to the first file.
    fn first_answers(&self, workspace: &Path) -> (Server, [Duration; 2]) {
        let started = Instant::now();
        let mut server = self.start(workspace);
        server.hello();
        let hello = started.elapsed();
        server.read(&self.call);
        (server, [hello, started.elapsed()])
    }
}

impl Server {
    fn ask(&mut self, method: &str, params: &Value) -> String {
        self.next += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.to.write_all(format!("{message}\n").as_bytes()).unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }

    fn hello(&mut self) {
        let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "0"}});
        let answer = self.ask("initialize", &hello);
        assert!(answer.contains("protocolVersion"), "{answer}");
        self.to.write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").unwrap();
    }

    fn read(&mut self, call: &Value) -> Duration {
        let started = Instant::now();
        let answer = self.ask("tools/call", call);
        let time = started.elapsed();
        assert!(answer.len() > 2048 && answer.contains("thirty-one characters"), "{answer}");
        time
    }
}

/// The peak of a whole tree's resident memory in KiB, pages that several share counted several times; and how much it takes of the machine now,
/// shared pages counted once.
fn memory_of(root: u32) -> [u64; 2] {
    let mut found = [0, 0];
    let mut tree = vec![root];
    while let Some(pid) = tree.pop() {
        found[0] += field(pid, "status", "VmHWM:");
        found[1] += field(pid, "smaps_rollup", "Pss:");
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        tree.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    found
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn field(pid: u32, file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Prints the table.
pub(super) fn run(rounds: usize, exe: &Path, peers: &Path) {
    let workspace = tempfile::tempdir().unwrap();
    let file = workspace.path().join("two_kb.txt");
    std::fs::write(&file, "a line of thirty-one characters\n".repeat(64)).unwrap();
    let ours = Contender {
        argv: vec![exe.into(), "mcp".into(), "--workspace".into(), workspace.path().into()],
        call: json!({"name": "read", "arguments": {"path": "two_kb.txt"}}),
    };
    let server = peers.join("npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let theirs = Contender {
        argv: vec![peers.join("node/node"), server, workspace.path().into()],
        call: json!({"name": "read_text_file", "arguments": {"path": file}}),
    };

    let contenders = [ours, theirs];
    let mut starts: [[Vec<Duration>; 2]; 2] = Default::default();
    let mut memory: [[Vec<u64>; 2]; 2] = Default::default();
    for _ in 0..STARTS {
        for (which, contender) in contenders.iter().enumerate() {
            let (server, times) = contender.first_answers(workspace.path());
            for (column, time) in starts[which].iter_mut().zip(times) {
                column.push(time);
            }
            drop(server);
        }
    }
    let mut servers = contenders.each_ref().map(|contender| contender.first_answers(workspace.path()).0);
    // One by one, each after the other server's; and ten at a time, as a client makes them that reads several files.
    let mut reads = [1, 10].map(|at_once| {
        let mut reads: [Vec<Duration>; 2] = Default::default();
        for round in 0..(rounds + 100) / at_once {
            for (which, (server, contender)) in servers.iter_mut().zip(&contenders).enumerate() {
                for _ in 0..at_once {
                    let time = server.read(&contender.call);
                    // The first rounds warm caches, and a compiler where there is one.
                    if round * at_once >= 100 {
                        reads[which].push(time);
                    }
                }
            }
        }
        reads
    });
    for (which, server) in servers.iter().enumerate() {
        for (column, amount) in memory[which].iter_mut().zip(memory_of(server.child.id())) {
            column.push(amount);
        }
    }

    drop(servers);
    let peaks = contenders.each_ref().map(|contender| (0..3).map(|_| contender.peak(workspace.path(), rounds)).max());

    println!("{rounds} reads and {STARTS} starts, interleaved, medians");
    println!("{:<52} {:>12} {:>12} {:>7}", "", "bailiwick", "filesystem", "ratio");
    let row = |name: &str, ours: f64, theirs: f64| println!("{name:<52} {ours:>12.3} {theirs:>12.3} {:>7.3}", ours / theirs);
    let ms = |times: &mut Vec<Duration>| super::ms(super::median(times));
    let [one_by_one, ten_at_a_time] = &mut reads;
    row("a read of 2 KB, one by one, ms", ms(&mut one_by_one[0]), ms(&mut one_by_one[1]));
    row("a read of 2 KB, ten at a time, ms", ms(&mut ten_at_a_time[0]), ms(&mut ten_at_a_time[1]));
    let [ours, theirs] = &mut starts;
    row("start to the answer to initialize, ms", ms(&mut ours[0]), ms(&mut theirs[0]));
    row("start to the first file, ms", ms(&mut ours[1]), ms(&mut theirs[1]));
    let mib = |amounts: &[u64]| f64::from(u32::try_from(amounts[0]).unwrap_or(u32::MAX)) / 1024.0;
    let [ours, theirs] = &memory;
    row("peak memory, all processes summed, MiB", mib(&ours[0]), mib(&theirs[0]));
    row("memory at the end, shared pages counted once, MiB", mib(&ours[1]), mib(&theirs[1]));
    let [ours, theirs] = peaks.map(|peak| mib(&[peak.unwrap_or_default()]));
    row("peak memory, shared pages counted once, MiB", ours, theirs);
}
