//! What must keep working inside: ordinary work, as rows. Each runs through `exec` and `sandbox_bash` with the default policy, with
//! namespaces where they start and with Landlock and seccomp alone, and has a time limit: nothing may hang. A row that fails inside is
//! run once more without us; where it fails there too, the machine cannot do it, which is skipped and said.

#[path = "compatibility/rows.rs"]
mod rows;

use crate::skip;
use crate::space::{Space, has, is_root};
use rows::ROWS;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A job that must work.
struct Row {
    /// What it is.
    name: &'static str,
    /// Programs without which it is skipped.
    needs: &'static [&'static str],
    /// Where it must work.
    on: On,
    /// Most seconds that it may take, start of the session included.
    limit: u64,
    /// Exits with 0 when all is well. The current folder is an empty workspace.
    script: &'static str,
}

/// On which rungs a job works.
#[derive(Clone, Copy, PartialEq)]
enum On {
    /// With namespaces and without.
    Both,
    /// With namespaces only, and why.
    Namespaces(&'static str),
    /// On none yet, and why.
    Nowhere(&'static str),
}

use On::{Namespaces, Nowhere};

/// Rows that must have run, so that the table cannot become a table of skips.
const AT_LEAST: usize = 80;

/// How a row runs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Bare,
    Exec,
    Tool,
    ExecAlone,
    ToolAlone,
}

impl Way {
    const INSIDE: [Self; 4] = [Self::Exec, Self::Tool, Self::ExecAlone, Self::ToolAlone];

    fn alone(self) -> bool {
        matches!(self, Self::ExecAlone | Self::ToolAlone)
    }
}

/// A workspace of a person who has settings.
fn space() -> Space {
    let mut space = Space::new().env("LANG", "C.UTF-8");
    // The toolchains stay where they are, and a home that is not theirs has to say so.
    for (name, folder) in [("PYENV_ROOT", ".pyenv"), ("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")] {
        let at = std::env::var_os(name).map(PathBuf::from).or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(folder)));
        if let Some(at) = at.filter(|at| at.is_dir()) {
            space = space.env(name, at.to_str().unwrap());
        }
    }
    std::fs::write(space.path("home/.gitconfig"), "[user]\n\tname = Tester\n\temail = t@example.com\n[init]\n\tdefaultBranch = main\n")
        .unwrap();
    space
}

/// Runs a program with a limit; `None`: it hung, and was ended with all it had started.
fn within(command: &mut Command, limit: Duration) -> Option<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
    let id = nix::unistd::Pid::from_raw(child.id().cast_signed());
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let _ = tell.send(child.wait_with_output().unwrap());
    });
    let output = told.recv_timeout(limit).ok();
    match &output {
        Some(_) => waiter.join().unwrap(),
        None => nix::sys::signal::killpg(id, nix::sys::signal::Signal::SIGKILL).unwrap(),
    }
    output
}

/// Why a row does not work in a way; `None`: it does.
fn try_row(row: &Row, way: Way) -> Option<String> {
    let space = space();
    let call = json!({ "command": row.script, "timeout_ms": row.limit * 1000 }).to_string();
    let mut command = match way {
        Way::Bare => {
            let mut command = Command::new("bash");
            command.args(["-c", row.script]).current_dir(space.ws()).env("TMPDIR", space.outside());
            // The home alone is taken from there: the toolchains' managers find themselves by the variables.
            command.envs(space.command(["x"]).get_envs().filter_map(|(name, value)| Some((name, value?))));
            command
        }
        Way::Exec => space.command(["exec", "--", "bash", "-c", row.script]),
        Way::ExecAlone => space.command(["--without-namespaces", "exec", "--", "bash", "-c", row.script]),
        Way::Tool => space.command(["tool", "sandbox_bash", &call]),
        Way::ToolAlone => space.command(["--without-namespaces", "tool", "sandbox_bash", &call]),
    };
    let begun = Instant::now();
    let Some(output) = within(&mut command, Duration::from_secs(row.limit)) else {
        return Some(format!("it hung: nothing after {} s", row.limit));
    };
    let said = || format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let code = match way {
        Way::Tool | Way::ToolAlone => {
            let envelope: serde_json::Value = match serde_json::from_slice(&output.stdout) {
                Ok(envelope) => envelope,
                Err(_) => return Some(format!("no envelope: {}", said())),
            };
            envelope["data"]["exit_code"].as_i64().and_then(|code| i32::try_from(code).ok())
        }
        _ => output.status.code(),
    };
    let took = begun.elapsed().as_millis();
    (code != Some(0)).then(|| format!("{code:?} after {took} ms: {}", said().chars().take(1500).collect::<String>()))
}

/// What came of one row: per way that was tried, why it failed.
fn try_ways(row: &Row, namespaces: bool) -> Vec<Option<String>> {
    let mut results = Vec::new();
    if let Some(program) = row.needs.iter().find(|program| !has(program)) {
        println!("SKIP {}: no {program} here", row.name);
        return results;
    }
    if row.name.starts_with("cargo") && !is_root() {
        println!("SKIP {}: the toolchain is another user's", row.name);
        return results;
    }
    if let Nowhere(why) = row.on {
        println!("SKIP {}: {why}", row.name);
        return results;
    }
    for way in Way::INSIDE {
        if let Namespaces(why) = row.on
            && (way.alone() || !namespaces)
        {
            if way == Way::ExecAlone {
                println!("not without namespaces: {}: {why}", row.name);
            }
            continue;
        }
        let failure = try_row(row, way);
        if failure.is_some()
            && let Some(bare) = try_row(row, Way::Bare)
        {
            println!("SKIP {}: does not work here without us either: {}", row.name, bare.replace('\n', " "));
            return Vec::new();
        }
        results.push(failure.map(|why| format!("{} ({way:?}): {why}", row.name)));
    }
    results
}

#[test]
fn ordinary_work_goes_on_inside() {
    let namespaces = namespaces_start();
    if !namespaces {
        println!("SKIP the rows that need namespaces: none start here");
    }
    let rows = std::sync::Mutex::new(ROWS.iter());
    let work = || {
        let mut results = Vec::new();
        loop {
            // The lock is held for the taking only.
            let next = rows.lock().unwrap().next();
            let Some(row) = next else { return results };
            results.extend(try_ways(row, namespaces));
        }
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let tried = results.len();
    let failed: Vec<_> = results.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {tried} do not work inside:\n{}", failed.len(), failed.join("\n"));
    assert!(tried >= AT_LEAST, "only {tried} were tried: nothing was shown");
}

fn namespaces_start() -> bool {
    let space = Space::new();
    let output = space.run(["exec", "--", "readlink", "/proc/self/ns/mnt"]);
    let own = std::fs::read_link("/proc/self/ns/mnt").unwrap();
    output.status.success() && String::from_utf8_lossy(&output.stdout).trim() != own.to_string_lossy()
}

/// What cannot work without namespaces is the exception, and says why.
#[test]
fn each_exception_has_a_reason() {
    let exceptions: Vec<_> = ROWS
        .iter()
        .filter_map(|row| match row.on {
            Namespaces(why) | Nowhere(why) => Some((row.name, why)),
            On::Both => None,
        })
        .collect();
    assert!(exceptions.iter().all(|(_, why)| !why.is_empty()));
    assert!(exceptions.len() * 3 < ROWS.len(), "too many exceptions: {exceptions:?}");
}

/// A `~/.gitconfig` that holds more than a name is read by nobody inside, and stops nobody.
#[test]
fn the_persons_git_settings_stay_outside() {
    if !has("git") {
        skip!("no git");
    }
    let space = space();
    let settings = "[user]\n\tname = Tester\n\temail = t@example.com\n[core]\n\tfsmonitor = touch pwned\n[credential]\n\thelper = store\n";
    std::fs::write(space.path("home/.gitconfig"), settings).unwrap();
    for flag in [None, Some("--without-namespaces")] {
        let mut args: Vec<&str> = flag.into_iter().collect();
        args.extend(["exec", "--", "bash", "-c", "git init -q . && git status && git config --list"]);
        let output = space.run(args);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said} {}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("user.name=Tester") && !said.contains("credential.helper") && !said.contains("fsmonitor"), "{said}");
        assert!(!space.ws().join("pwned").exists());
    }
}
