//! The second table: the file tools against what a person would use, on a generated tree. Each row is a call through the real jail, end
//! to end; the other program is spawned bare. All columns are interleaved in one run.

use super::{median, ms};
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session, this_exe};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Files of the tree.
const FILES: usize = 40_000;

/// Entries of the large folder.
const ENTRIES: usize = 200_000;

/// Makes the tree, measures, prints.
pub(super) fn run(rounds: usize) {
    let space = tempfile::tempdir().unwrap();
    let (tree, wide, single) = (space.path().join("tree"), space.path().join("wide"), space.path().join("single"));
    for folder in [&tree, &wide, &single] {
        fs::create_dir(folder).unwrap();
    }
    plant(&tree);
    for number in 0..ENTRIES {
        fs::File::create(wide.join(format!("f{number:06}"))).unwrap();
    }
    files(&single);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        walks(rounds, &tree).await;
        large(rounds, &wide, &single).await;
    });
}

/// A tree like a large repository: 40 files a folder, some 3 KB each, a rare word in 12 of them, one folder in ten ignored.
fn plant(tree: &Path) {
    let line = |number: usize, at: usize| {
        format!("    let value_{at} = compute(&input[{number}], Options::default()); // step {at} of {number}\n")
    };
    // A repository by its look, so that the others heed the ignore file, too.
    fs::create_dir(tree.join(".git")).unwrap();
    fs::write(tree.join(".gitignore"), "ignored_*/\n").unwrap();
    for number in 0..FILES {
        let folder = number / 40;
        let name = if folder % 10 == 9 { format!("ignored_{folder}") } else { format!("module_{}/part_{folder}", folder % 25) };
        let folder = tree.join(name);
        if number % 40 == 0 {
            fs::create_dir_all(&folder).unwrap();
        }
        let mut text: String = (0..40).map(|at| line(number, at)).collect();
        if number % 3333 == 7 {
            text.push_str("// the needle_in_question stands here\n");
        }
        let suffix = ["rs", "ts", "md", "toml"][number % 4];
        fs::write(folder.join(format!("file_{number}.{suffix}")), text).unwrap();
    }
}

/// The single files: 200 KB of text, 12,000 lines, 4 GiB with holes.
fn files(single: &Path) {
    let text: String = (0..4000).map(|number| format!("line {number}: forty-some characters of plain text\n")).collect();
    fs::write(single.join("medium"), text).unwrap();
    let text: String = (0..12_000).map(|number| format!("line {number} of the long file, with some text in it\n")).collect();
    fs::write(single.join("long"), text).unwrap();
    let mut sparse = fs::File::create(single.join("sparse")).unwrap();
    sparse.write_all("a line of text\n".repeat(100_000).as_bytes()).unwrap();
    sparse.set_len(4 << 30).unwrap();
}

struct Desk {
    session: Session,
    _setup: Setup,
}

impl Desk {
    fn at(workspace: &Path) -> Self {
        let asked = Asked { workspace: Some(workspace.to_path_buf()), policy: "build".into(), ..Asked::default() };
        let setup = Setup::of(&asked).unwrap();
        let options = Options { exe: this_exe(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() };
        Self { session: Session::start(options).unwrap(), _setup: setup }
    }

    async fn timed(&self, tool: &str, args: &Value) -> (Duration, Value) {
        let started = Instant::now();
        let answer = self.session.call(Call { id: String::new(), tool: tool.into(), args: args.clone() }).await;
        (started.elapsed(), answer.envelope.data().clone())
    }
}

async fn walks(rounds: usize, tree: &Path) {
    let (rg, fd) = (program(&["rg"]), program(&["fd", "fdfind"]));
    let find = program(&["find"]);
    /// A name, a tool, its arguments, the peer if it is installed, the peer's arguments.
    type Row<'a> = (&'a str, &'a str, Value, &'a Option<PathBuf>, &'a [&'a str]);
    let rows: [Row<'_>; 6] = [
        ("grep: a rare word", "grep", json!({"pattern": "needle_in_question"}), &rg, &["--hidden", "-n", "needle_in_question", "."]),
        ("grep: a regex", "grep", json!({"pattern": r"needle_\w+_quest[io]+n"}), &rg, &["--hidden", "-n", r"needle_\w+_quest[io]+n", "."]),
        (
            "grep: without regard to case",
            "grep",
            json!({"pattern": "NEEDLE_in_question", "ignore_case": true}),
            &rg,
            &["--hidden", "-n", "-i", "NEEDLE_in_question", "."],
        ),
        ("grep: a word in every file", "grep", json!({"pattern": "compute"}), &rg, &["--hidden", "-n", "compute", "."]),
        ("find: by name", "find", json!({"pattern": "file_*7.toml"}), &fd, &["--hidden", "--glob", "file_*7.toml"]),
        ("find: by name, no_ignore", "find", json!({"pattern": "file_*7.toml", "no_ignore": true}), &find, &[".", "-name", "file_*7.toml"]),
    ];
    let desk = Desk::at(tree);
    println!("\n{FILES} files, {rounds} interleaved rounds, medians");
    println!("{:<34} {:>9} {:>9} {:>7}", "", "ours, ms", "bare, ms", "ratio");
    for (name, tool, args, other, flags) in rows {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds + 2 {
            let (time, data) = desk.timed(tool, &args).await;
            assert!(data["total"].as_u64().is_some_and(|total| total > 0), "{name}: {data}");
            let bare = other.as_ref().map(|program| {
                let started = Instant::now();
                // Its output is read, as a caller's would be; some programs do less when nobody can read it.
                let done = Command::new(program).args(flags).current_dir(tree).stdin(Stdio::null()).output().unwrap();
                assert!(done.status.success() && !done.stdout.is_empty(), "{}: {}", program.display(), done.status);
                started.elapsed()
            });
            if round >= 2 {
                ours.push(time);
                theirs.extend(bare);
            }
        }
        let ours = median(&mut ours);
        match other {
            Some(program) => {
                let bare = median(&mut theirs);
                let ratio = ours.as_secs_f64() / bare.as_secs_f64();
                let program = program.file_name().unwrap_or_default().to_string_lossy();
                println!("{name:<34} {:>9.1} {:>9.1} {ratio:>7.2}  {program}", ms(ours), ms(bare));
            }
            None => println!("{name:<34} {:>9.1} {:>9} {:>7}", ms(ours), "not there", ""),
        }
    }
}

async fn large(rounds: usize, wide: &Path, single: &Path) {
    let rows: Vec<(String, &Path, &str, Value)> = vec![
        (format!("ls of {ENTRIES} entries, limit 50"), wide, "ls", json!({"limit": 50})),
        (format!("find in {ENTRIES} entries, limit 50"), wide, "find", json!({"pattern": "f*", "limit": 50})),
        ("read 200 KB file".into(), single, "read", json!({"path": "medium"})),
        ("read 4 GiB with holes, offset 1".into(), single, "read", json!({"path": "sparse", "limit": 5})),
        ("read 4 GiB with holes, offset 50,000".into(), single, "read", json!({"path": "sparse", "offset": 50_000, "limit": 5})),
        ("read 4 GiB with holes, offset 99,990".into(), single, "read", json!({"path": "sparse", "offset": 99_990, "limit": 5})),
        ("read 4 GiB with holes, past the end".into(), single, "read", json!({"path": "sparse", "offset": 200_000, "limit": 5})),
        (
            "read 4 GiB with holes, hex in the middle".into(),
            single,
            "read",
            json!({"path": "sparse", "format": "hex", "offset": 134_217_728}),
        ),
        ("read 4 GiB with holes, offset -5".into(), single, "read", json!({"path": "sparse", "offset": -5, "limit": 5})),
        ("edit that fails in 12,000 lines".into(), single, "edit", json!({"path": "long", "old_string": failing(), "new_string": "x"})),
    ];
    println!("\n{:<44} {:>9} {:>14}", "", "ms", "peak RSS, KiB");
    for (name, workspace, tool, args) in rows {
        // A session for each, so that the peak is that of this row.
        let desk = Desk::at(workspace);
        let mut times = Vec::new();
        for _ in 0..rounds.min(20) {
            times.push(desk.timed(tool, &args).await.0);
        }
        println!("{name:<44} {:>9.1} {:>14}", ms(median(&mut times)), peak());
    }
    let desk = Desk::at(single);
    let mut times = Vec::new();
    for round in 0..rounds {
        let (old, new) = if round % 2 == 0 { ("line 2000:", "LINE 2000:") } else { ("LINE 2000:", "line 2000:") };
        let (time, data) = desk.timed("edit", &json!({"path": "medium", "old_string": old, "new_string": new})).await;
        assert!(data["hash"].is_string(), "{data}");
        times.push(time);
    }
    println!("{:<44} {:>9.1} {:>14}", "edit 200 KB file", ms(median(&mut times)), peak());
    let mut times = Vec::new();
    for round in 0..rounds {
        let content = format!("round {round}\n").repeat(20_000);
        let started = Instant::now();
        let mut file = fs::File::create(single.join("bare.new")).unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.sync_all().unwrap();
        fs::rename(single.join("bare.new"), single.join("bare")).unwrap();
        fs::File::open(single).unwrap().sync_all().unwrap();
        times.push(started.elapsed());
    }
    println!("{:<44} {:>9.1} {:>14}", "  of it the disk: write, flush, rename, flush", ms(median(&mut times)), "");
    let _ = desk.timed("read", &json!({"path": "medium"})).await;
    println!(
        "\nPSS of host, warden and warm jails: {} KiB",
        tree_of(std::process::id()).iter().map(|pid| smaps(*pid, "Pss:")).sum::<u64>()
    );
}

/// 200 lines of the long file, of which one differs.
fn failing() -> String {
    let line = |number: usize| {
        let some = if number == 5100 { "other" } else { "some" };
        format!("line {number} of the long file, with {some} text in it\n")
    };
    (5000..5200).map(line).collect()
}

fn program(names: &[&str]) -> Option<PathBuf> {
    let folders = ["/usr/local/bin", "/usr/bin", "/bin"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| Path::new(folder).join(name))).find(|path| path.is_file())
}

/// The largest peak of any jail or warden below this process, in KiB.
fn peak() -> u64 {
    let us = std::process::id();
    tree_of(us).into_iter().filter(|pid| *pid != us).map(|pid| status(pid, "VmHWM:")).max().unwrap_or(0)
}

/// A process and all that descends from it.
fn tree_of(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .map(|pid| (pid, u32::try_from(status(pid, "PPid:")).unwrap_or(0)))
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(parents.iter().filter(|(_, above)| *above == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn status(pid: u32, key: &str) -> u64 {
    number(&format!("/proc/{pid}/status"), key)
}

fn smaps(pid: u32, key: &str) -> u64 {
    number(&format!("/proc/{pid}/smaps_rollup"), key)
}

fn number(path: &str, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
