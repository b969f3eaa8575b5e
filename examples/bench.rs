//! Measures what a call costs, as ratios to the same program spawned bare, all columns interleaved in one run.
//!
//! `scripts/bench` builds and runs this. Times on a shared machine wander; ratios within one interleaved run do so far less.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "bench/jobs.rs"]
mod jobs;
#[path = "bench/mcp.rs"]
mod mcp;
#[path = "bench/tools.rs"]
mod tools;
#[path = "bench/wire.rs"]
mod wire;

use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session, this_exe};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn main() {
    let args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if bailiwick::jail::warden::is_asked(&args) {
        std::process::exit(bailiwick::jail::warden::run(bailiwick::tools::TOOLS));
    }
    let number = |at: usize, usual: usize| args.get(at).map_or(usual, |rounds| rounds.to_str().unwrap().parse().unwrap());
    match args.get(1).and_then(|table| table.to_str()) {
        Some("jobs") => return jobs::run(number(2, 15)),
        Some("tools") => return tools::run(number(2, 20)),
        Some("wire") => return wire::run(number(2, 50), &args.get(3).map_or_else(|| "target/release/bailiwick".into(), PathBuf::from)),
        _ => {}
    }
    if args.get(1).is_some_and(|table| table == "mcp") {
        let rounds = args.get(2).map_or(2000, |rounds| rounds.to_str().unwrap().parse().unwrap());
        return mcp::run(rounds, Path::new(&args[3]), Path::new(&args[4]));
    }
    let rounds: usize = args.get(1).map_or(200, |rounds| rounds.to_str().unwrap().parse().unwrap());
    let exe: PathBuf = args.get(2).map_or_else(|| PathBuf::from("target/release/bailiwick"), PathBuf::from);
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("two_kb.txt"), "a line of thirty-one characters\n".repeat(64)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for without_namespaces in [false, true] {
        println!("\n{}", if without_namespaces { "without namespaces (Landlock and seccomp alone):" } else { "with namespaces:" });
        runtime.block_on(measure(rounds, &exe, workspace.path(), without_namespaces));
    }
}

async fn measure(rounds: usize, exe: &Path, workspace: &Path, without_namespaces: bool) {
    let asked = Asked { workspace: Some(workspace.to_path_buf()), policy: "build".into(), without_namespaces, ..Asked::default() };
    let setup = Setup::of(&asked).unwrap();
    let started = Instant::now();
    let session = Session::start(Options { exe: this_exe(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() }).unwrap();
    let call = |tool: &str, args| session.call(Call { id: String::new(), tool: tool.into(), args });
    let first = call("ls", json!({})).await;
    assert!(first.envelope.success(), "{}", first.text);
    let cold = started.elapsed();

    let bubblewrap = ["/usr/bin/bwrap", "/usr/local/bin/bwrap"].iter().map(PathBuf::from).find(|path| path.exists());
    let rung: &[&str] = if without_namespaces { &["--without-namespaces"] } else { &[] };
    let mut bare = Vec::new();
    let mut exec = Vec::new();
    let mut resident = Vec::new();
    let mut read = Vec::new();
    let mut bwrap = Vec::new();
    for round in 0..rounds + 5 {
        let mut times = [Duration::ZERO; 5];
        times[0] = timed(|| spawn(Command::new("bash").args(["-c", "true"]).current_dir(workspace)));
        times[1] = timed(|| spawn(Command::new(exe).args(rung).args(["exec", "--", "bash", "-c", "true"]).current_dir(workspace)));
        let started = Instant::now();
        let answer = call("sandbox_bash", json!({ "command": "true" })).await;
        times[2] = started.elapsed();
        assert!(answer.envelope.success(), "{}", answer.text);
        let started = Instant::now();
        let answer = call("read", json!({ "path": "two_kb.txt" })).await;
        times[3] = started.elapsed();
        assert!(answer.envelope.success(), "{}", answer.text);
        if let Some(bubblewrap) = &bubblewrap {
            let flags = [
                "--ro-bind",
                "/",
                "/",
                "--dev",
                "/dev",
                "--proc",
                "/proc",
                "--tmpfs",
                "/tmp",
                "--unshare-all",
                "--die-with-parent",
                "--new-session",
            ];
            times[4] = timed(|| spawn(Command::new(bubblewrap).args(flags).args(["bash", "-c", "true"])));
        }
        // The first rounds warm caches.
        if round >= 5 {
            for (column, time) in [&mut bare, &mut exec, &mut resident, &mut read, &mut bwrap].into_iter().zip(times) {
                column.push(time);
            }
        }
    }
    let base = median(&mut bare);
    println!("{rounds} interleaved rounds, medians; the machine's own figure: bare `bash -c true` {:.3} ms", ms(base));
    println!("{:<44} {:>9} {:>7}", "", "ms", "ratio");
    let row = |name: &str, times: &mut Vec<Duration>| {
        let time = median(times);
        println!("{name:<44} {:>9.3} {:>7.2}", ms(time), time.as_secs_f64() / base.as_secs_f64());
    };
    row("bare: bash -c true", &mut bare);
    row("bailiwick exec -- bash -c true", &mut exec);
    row("resident sandbox_bash \"true\"", &mut resident);
    row("resident read of 2 KB", &mut read);
    if bubblewrap.is_some() {
        row("bwrap --unshare-all bash -c true", &mut bwrap);
    } else {
        println!("{:<44} not installed", "bwrap");
    }
    println!("{:<44} {:>9.3}", "session start to first envelope (cold)", ms(cold));
}

fn spawn(command: &mut Command) {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

fn timed(act: impl FnOnce()) -> Duration {
    let started = Instant::now();
    act();
    started.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
