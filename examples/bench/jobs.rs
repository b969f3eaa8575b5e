//! What whole jobs cost in a resident session beside the same jobs run bare: many system calls, many processes, many files.

use super::{median, ms, spawn};
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session, this_exe};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// A job: its name, the program that it needs, what bash runs, and how many times as long it may take.
type Job = (&'static str, &'static str, &'static str, f64);

const JOBS: [Job; 5] = [
    ("ripgrep over 10,000 files", "rg", "rg --no-config -c needle_in_question tree", 1.05),
    ("a compile (cc -O1)", "cc", "cc -O1 -c -o many.o many.c", 1.05),
    ("300 forks", "true", "for _ in {1..300}; do /bin/true; done", 1.05),
    ("git status, 10,000 files", "git", "git status --porcelain", 1.10),
    ("10,000 small files made and removed", "rm", "mkdir d && for i in {1..10000}; do echo $i > d/$i; done && rm -r d", 1.15),
];

/// Makes the workspace, measures on both rungs, prints.
pub(super) fn run(rounds: usize) {
    let workspace = tempfile::tempdir().unwrap();
    plant(workspace.path());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for without_namespaces in [false, true] {
        println!("\n{}", if without_namespaces { "without namespaces (Landlock and seccomp alone):" } else { "with namespaces:" });
        runtime.block_on(measure(rounds, workspace.path(), without_namespaces));
    }
}

fn plant(workspace: &Path) {
    for number in 0..10_000 {
        let folder = workspace.join(format!("tree/part_{}", number / 40));
        if number % 40 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        let mut text: String = (0..40).map(|at| format!("    let value_{at} = compute(&input[{number}], Options::default());\n")).collect();
        if number % 3333 == 7 {
            text.push_str("// the needle_in_question stands here\n");
        }
        fs::write(folder.join(format!("file_{number}.rs")), text).unwrap();
    }
    let mut program = String::from("#include <stdio.h>\n#include <stdlib.h>\n");
    for number in 0..1500 {
        let _ = writeln!(program, "int f{number}(int a) {{ for (int i = 0; i < a; i++) a ^= i * {number}; return a; }}");
    }
    fs::write(workspace.join("many.c"), program).unwrap();
    for args in [&["init", "-q"][..], &["add", "-A"], &["-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-q", "-m", "all"]]
    {
        spawn(Command::new("git").args(args).current_dir(workspace));
    }
}

async fn measure(rounds: usize, workspace: &Path, without_namespaces: bool) {
    let asked = Asked { workspace: Some(workspace.to_path_buf()), policy: "build".into(), without_namespaces, ..Asked::default() };
    let setup = Setup::of(&asked).unwrap();
    let session = Session::start(Options { exe: this_exe(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() }).unwrap();
    println!("{rounds} interleaved rounds, medians");
    println!("{:<40} {:>9} {:>9} {:>6} {:>5}", "", "bare, ms", "inside", "ratio", "aim");
    for (name, program, script, aim) in JOBS {
        if !spawns(program) {
            println!("{name:<40} {program} is not installed");
            continue;
        }
        let (mut bare, mut inside) = (Vec::new(), Vec::new());
        for round in 0..rounds + 2 {
            let started = Instant::now();
            spawn(Command::new("bash").args(["-c", script]).current_dir(workspace));
            let without = started.elapsed();
            let started = Instant::now();
            let answer = session.call(Call { id: String::new(), tool: "sandbox_bash".into(), args: json!({ "command": script }) }).await;
            let within = started.elapsed();
            let data = answer.envelope.data();
            assert!(answer.envelope.success() && data["exit_code"] == 0, "{name}: {}", answer.text);
            // The first rounds warm caches.
            if round >= 2 {
                bare.push(without);
                inside.push(within);
            }
        }
        let (bare, inside) = (median(&mut bare), median(&mut inside));
        println!("{name:<40} {:>9.1} {:>9.1} {:>6.2} {aim:>5.2}", ms(bare), ms(inside), inside.as_secs_f64() / bare.as_secs_f64());
    }
}

fn spawns(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}
