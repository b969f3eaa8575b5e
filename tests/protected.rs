//! Protected names in every layout of a git repository: judged from outside, by what the host's git would run and by what is in the
//! folder afterwards. Each attack runs with namespaces and without. Ordinary work with git goes on, and nothing is left behind.

mod settings;

use crate::desk::Desk;
use crate::skip;
use crate::space::{Called, Space, has, python};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the repository is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Clone,
    Linked,
    Submodule,
    Bare,
    Elsewhere,
    /// No repository yet.
    Empty,
}

const LAYOUTS: [Layout; 6] = [Layout::Clone, Layout::Linked, Layout::Submodule, Layout::Bare, Layout::Elsewhere, Layout::Empty];

fn git(folder: &Path, args: &str) {
    let script = format!("set -e; {args}");
    let output = Command::new("bash").args(["-c", &script]).current_dir(folder).envs(WHO).output().unwrap();
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
}

const WHO: [(&str, &str); 8] = [
    ("GIT_AUTHOR_NAME", "T"),
    ("GIT_AUTHOR_EMAIL", "t@example.com"),
    ("GIT_COMMITTER_NAME", "T"),
    ("GIT_COMMITTER_EMAIL", "t@example.com"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_COUNT", "1"),
    ("GIT_CONFIG_KEY_0", "protocol.file.allow"),
    ("GIT_CONFIG_VALUE_0", "always"),
];

/// A workspace in a layout, and the git folder in it (relative), if there is one.
fn space(layout: Layout) -> (Space, Option<&'static str>) {
    let space = Space::new();
    fs::write(space.path("home/.gitconfig"), "[user]\n\tname = T\n\temail = t@example.com\n").unwrap();
    let (ws, top) = (space.ws(), space.path(""));
    let made = "git init -q -b main . && echo a > a && git add a && git commit -qm one";
    let git_dir = match layout {
        Layout::Clone => {
            git(&ws, made);
            Some(".git")
        }
        Layout::Linked => {
            fs::create_dir(space.path("main")).unwrap();
            git(&space.path("main"), made);
            fs::remove_dir(&ws).unwrap();
            git(&space.path("main"), "git worktree add -q ../ws -b w");
            None
        }
        Layout::Submodule => {
            fs::create_dir(space.path("sub")).unwrap();
            git(&space.path("sub"), made);
            git(&ws, made);
            git(&ws, "git submodule --quiet add ../sub s && git commit -qm sub");
            Some(".git/modules/s")
        }
        Layout::Bare => {
            git(&top, "git init -q --bare -b main ws");
            Some("")
        }
        Layout::Elsewhere => {
            git(&ws, "mkdir store && git init -q -b main --separate-git-dir=store/repo . && echo a > a && git add a && git commit -qm one");
            Some("store/repo")
        }
        Layout::Empty => None,
    };
    (space, git_dir)
}

fn bash(space: &Space, alone: bool, script: &str) -> Called {
    let call = json!({ "command": script }).to_string();
    let mut args = if alone { vec!["--without-namespaces"] } else { Vec::new() };
    args.extend(["tool", "sandbox_bash", &call]);
    let output = space.run(args);
    let line = String::from_utf8(output.stdout).unwrap();
    let envelope = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line} {}", String::from_utf8_lossy(&output.stderr)));
    Called { envelope, line, code: output.status.code() }
}

/// The same through `exec`.
fn exec(space: &Space, alone: bool, script: &str) -> String {
    let mut args = if alone { vec!["--without-namespaces"] } else { Vec::new() };
    args.extend(["exec", "--", "bash", "-c", script]);
    String::from_utf8(space.run(args).stderr).unwrap()
}

/// Everything in a tree that is not an object, an index or a log of git's: path and content.
fn tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if meta.is_dir() {
                found.insert(path.clone(), Vec::new());
                left.push(path);
            } else if meta.is_symlink() {
                found.insert(path.clone(), fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes());
            } else {
                found.insert(path.clone(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// What runs on the host when a person works there afterwards: everything that git is made to do would leave a file `pwned` somewhere.
fn host_works(space: &Space) {
    // What has been closed is opened: a person can always do that.
    let _ = Command::new("chmod").args(["-R", "u+rwX", "."]).current_dir(space.ws()).output().unwrap();
    let mut folders = vec![space.ws()];
    folders.extend(tree(&space.ws()).keys().filter(|path| path.ends_with(".git")).filter_map(|path| path.parent().map(Path::to_path_buf)));
    folders.extend(["n", "store", "store/repo", "s"].map(|name| space.ws().join(name)).into_iter().filter(|path| path.is_dir()));
    for folder in folders {
        let script = "echo c >> a; git status; git add -A; git -c user.name=h -c user.email=h@h commit -qm host; git diff HEAD~1; git log -1; git stash; git st";
        let _ = Command::new("bash").args(["-c", script]).current_dir(folder).envs(WHO).output().unwrap();
    }
}

fn pwned(space: &Space) -> bool {
    tree(&space.path("")).keys().any(|path| path.ends_with("pwned"))
}

/// Attacks on a git folder. `{G}` is the folder, `{P}` the host's path of the file that must not come to be.
const ON_GIT_DIR: &[(&str, &str)] = &[
    ("a new hook", "printf '#!/bin/sh\\ntouch {P}' > {G}/hooks/pre-commit; chmod +x {G}/hooks/pre-commit"),
    ("a hook moved into place", "printf '#!/bin/sh\\ntouch {P}' > x; chmod +x x; mkdir -p {G}/hooks; mv x {G}/hooks/pre-commit"),
    ("a hook linked into place", "printf '#!/bin/sh\\ntouch {P}' > x; chmod +x x; ln -s $PWD/x {G}/hooks/pre-commit"),
    ("a hook hard linked", "printf '#!/bin/sh\\ntouch {P}' > x; chmod +x x; ln x {G}/hooks/pre-commit"),
    (
        "a sample made a hook",
        "cd {G}/hooks && printf '#!/bin/sh\\ntouch {P}' > pre-commit.sample; chmod +x pre-commit.sample; mv pre-commit.sample pre-commit",
    ),
    (
        "the hooks' folder swapped",
        "mkdir h; printf '#!/bin/sh\\ntouch {P}' > h/pre-commit; chmod +x h/pre-commit; mv {G}/hooks old; mv h {G}/hooks",
    ),
    (
        "the hooks' folder a link",
        "mkdir h; printf '#!/bin/sh\\ntouch {P}' > h/pre-commit; chmod +x h/pre-commit; rm -rf {G}/hooks; ln -s $PWD/h {G}/hooks",
    ),
    ("fsmonitor", "git --git-dir={G} config core.fsmonitor 'touch {P}'"),
    (
        "hooksPath",
        "mkdir hp; printf '#!/bin/sh\\ntouch {P}' > hp/pre-commit; chmod +x hp/pre-commit; git --git-dir={G} config core.hooksPath $PWD/hp",
    ),
    ("an alias", "git --git-dir={G} config alias.st '!touch {P}'"),
    ("a clean filter", "git --git-dir={G} config filter.x.clean 'touch {P}'; echo '* filter=x' > .gitattributes"),
    (
        "a filter by info/attributes",
        "git --git-dir={G} config filter.x.clean 'touch {P}'; mkdir -p {G}/info; echo '* filter=x' > {G}/info/attributes",
    ),
    ("an external diff", "git --git-dir={G} config diff.external 'touch {P}'"),
    ("an include", "printf '[core]\\n\\tfsmonitor = touch {P}\\n' > inc; git --git-dir={G} config include.path $PWD/inc"),
    ("settings appended", "printf '[core] fsmonitor = \"touch {P}\"\\n' >> {G}/config"),
    ("settings replaced", "cp {G}/config c; printf '[core]\\n\\tfsmonitor = touch {P}\\n' >> c; mv c {G}/config"),
    ("settings a link", "cp {G}/config c; printf '[core]\\n\\tfsmonitor = touch {P}\\n' >> c; ln -sf $PWD/c {G}/config"),
    (
        "settings of the worktree",
        "git --git-dir={G} config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = touch {P}\\n' > {G}/config.worktree",
    ),
    ("the parent swapped", "cp -r {G} g2; printf '[core]\\n\\tfsmonitor = touch {P}\\n' >> g2/config; mv {G} gone && mv g2 {G}"),
    (
        "a repository among its objects",
        "mkdir -p n {G}/objects/ev/objects {G}/objects/ev/refs; echo 'ref: refs/heads/main' > {G}/objects/ev/HEAD; printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tfsmonitor = touch {P}\\n' > {G}/objects/ev/config; echo \"gitdir: $(cd {G}/objects/ev && pwd)\" > n/.git",
    ),
    ("settings that are closed", "git --git-dir={G} config core.fsmonitor 'touch {P}'; chmod 311 {G}"),
    ("the parent a link", "cp -r {G} g2; printf '[core]\\n\\tfsmonitor = touch {P}\\n' >> g2/config; mv {G} gone && ln -s $PWD/g2 {G}"),
];

/// Attacks that need no repository.
const ANYWHERE: &[(&str, &str)] = &[
    ("a repository of its own", "git init -q n; git -C n config core.fsmonitor 'touch {P}'"),
    (
        "a repository with hooks from a template",
        "mkdir -p t/hooks; printf '#!/bin/sh\\ntouch {P}' > t/hooks/pre-commit; chmod +x t/hooks/pre-commit; git init -q --template=t n",
    ),
    ("a closed repository", "git init -q n; git -C n config core.fsmonitor 'touch {P}'; chmod 311 n/.git"),
    ("a repository behind a closed folder", "mkdir n; git init -q n/m; git -C n/m config core.fsmonitor 'touch {P}'; chmod 311 n"),
    (
        "a repository that shares a store without a HEAD",
        "git init -q n; git init -q --bare e; printf '[core]\\n\\tbare = false\\n\\tfsmonitor = touch {P}\\n' > e/config; rm -r e/HEAD n/.git/objects n/.git/refs n/.git/config; echo ../../e > n/.git/commondir",
    ),
    (
        "one of many repositories",
        "for i in {100..400}; do mkdir -p d$i/objects d$i/refs; echo x > d$i/HEAD; done; git init -q n; git -C n config core.fsmonitor 'touch {P}'",
    ),
    (
        "an alias that names a program by an option",
        "git init -q n; printf '#!/bin/sh\\ntouch {P}' > n/evil; chmod +x n/evil; git -C n config alias.st 'fetch --upload-pack=./evil .'",
    ),
    (
        "a bare repository with a pointer to it",
        "git init -q --bare e; git -C e config core.fsmonitor 'touch {P}'; git -C e config core.bare false; mkdir -p n; echo \"gitdir: ../e\" > n/.git",
    ),
];

fn attack(layout: Layout, name: &str, script: &str, alone: bool, by_exec: bool, failed: &mut Vec<String>) {
    let (space, git_dir) = space(layout);
    let script = script
        .replace("{G}", git_dir.map(|dir| if dir.is_empty() { "." } else { dir }).unwrap_or(".git"))
        .replace("{P}", space.path("outside/pwned").to_str().unwrap());
    let said = if by_exec { exec(&space, alone, &script) } else { bash(&space, alone, &script).line };
    host_works(&space);
    if pwned(&space) {
        failed.push(format!("{layout:?}, {name}, alone {alone}, exec {by_exec}: the host ran it: {said}"));
    }
}

#[test]
fn nothing_that_the_sandbox_leaves_runs_on_the_host() {
    if !has("git") {
        skip!("no git");
    }
    // Each of them has to work on a person who is not protected, or it shows nothing.
    let mut open = 0;
    for (name, script) in ON_GIT_DIR {
        let (space, _) = space(Layout::Clone);
        let script = script.replace("{G}", ".git").replace("{P}", space.path("outside/pwned").to_str().unwrap());
        let _ = Command::new("bash").args(["-c", &script]).current_dir(space.ws()).envs(WHO).output().unwrap();
        host_works(&space);
        match pwned(&space) {
            true => open += 1,
            false => println!("SKIP {name}: does not work on an open repository here"),
        }
    }
    assert!(open >= 14, "only {open} attacks work without us");

    let mut jobs = Vec::new();
    for layout in LAYOUTS {
        let rows: Vec<_> = match layout {
            Layout::Empty | Layout::Linked => ANYWHERE.iter().collect(),
            Layout::Clone => ON_GIT_DIR.iter().chain(ANYWHERE).collect(),
            // The same attacks, a part of them: each takes a second.
            _ => ON_GIT_DIR.iter().step_by(3).collect(),
        };
        jobs.extend(rows.into_iter().flat_map(|row| [(layout, row, false, false), (layout, row, true, false)]));
    }
    jobs.extend(ANYWHERE.iter().flat_map(|row| [(Layout::Clone, row, false, true), (Layout::Clone, row, true, true)]));
    jobs.extend(ON_GIT_DIR.iter().step_by(4).map(|row| (Layout::Clone, row, true, true)));
    let jobs = std::sync::Mutex::new(jobs.into_iter());
    let work = || {
        let mut failed = Vec::new();
        loop {
            let next = jobs.lock().unwrap().next();
            let Some((layout, (name, script), alone, by_exec)) = next else { return failed };
            attack(layout, name, script, alone, by_exec, &mut failed);
        }
    };
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn what_is_undone_is_said_and_the_rest_stays() {
    if !has("git") {
        skip!("no git");
    }
    for alone in [false, true] {
        let (space, _) = space(Layout::Clone);
        fs::create_dir(space.ws().join(".vscode")).unwrap();
        fs::write(space.ws().join(".vscode/settings.json"), "{}").unwrap();
        let before = tree(&space.ws());
        let called = bash(
            &space,
            alone,
            "echo x > .mcp.json; echo x > .bailiwick.toml; mkdir .idea .claude; echo x > .idea/a; echo x > .claude/settings.json; echo x > .vscode/settings.json; echo x > .vscode/t; echo kept > mine; true",
        );
        let notices = called.data()["notices"].to_string();
        for name in [".mcp.json", ".bailiwick.toml", ".idea", ".claude/settings.json"] {
            assert!(notices.contains(&format!("{name} is protected")), "{notices}");
        }
        assert_eq!(fs::read(space.ws().join("mine")).unwrap(), b"kept\n");
        fs::remove_file(space.ws().join("mine")).unwrap();
        fs::remove_dir(space.ws().join(".claude")).unwrap();
        assert_eq!(tree(&space.ws()), before, "alone {alone}");
    }
}

#[test]
fn git_works_in_every_layout_and_nothing_is_left_behind() {
    if !has("git") {
        skip!("no git");
    }
    let work = "set -e; echo b > b; git add b; git commit -qm two; echo c > b; git stash -q; git stash pop -q; git status; git log --oneline | grep -q two";
    for layout in LAYOUTS {
        let script = match layout {
            Layout::Submodule => format!("cd s; {work}; cd ..; git add s; git commit -qm moved"),
            Layout::Bare => "git log --all; git worktree add -q --orphan -b x w 2>/dev/null; true".to_owned(),
            Layout::Empty => format!("git init -q -b main .; {work}"),
            Layout::Elsewhere => format!("{work}; git worktree add -q w2; git worktree list | grep -q w2"),
            _ => work.to_owned(),
        };
        for alone in [false, true] {
            let (space, _) = space(layout);
            let called = bash(&space, alone, &script);
            assert_eq!(called.data()["exit_code"], 0, "{layout:?}, alone {alone}: {}", called.line);
            assert_eq!(called.data()["notices"], json!([]), "{layout:?}, alone {alone}: {}", called.line);
        }
    }
}

#[test]
fn a_command_that_does_nothing_leaves_nothing() {
    for alone in [false, true] {
        let space = Space::new();
        bash(&space, alone, "true").data();
        assert_eq!(fs::read_dir(space.ws()).unwrap().count(), 0, "a placeholder was made");
    }
}

#[test]
fn file_tools_refuse_protected_names() {
    let space =
        Space::new().file(".git/HEAD", "ref: refs/heads/main\n").file(".git/hooks/x.sample", "").file("a", "a").file("n/.git/HEAD", "x");
    std::os::unix::fs::symlink(".git/hooks", space.ws().join("link")).unwrap();
    let before = tree(&space.ws());
    for (tool, args) in [
        ("write", json!({"path": ".git/hooks/pre-commit", "content": "x"})),
        ("write", json!({"path": ".git/config", "content": "x"})),
        ("write", json!({"path": "link/pre-commit", "content": "x"})),
        ("write", json!({"path": "n/.git/config", "content": "x"})),
        ("create", json!({"path": ".mcp.json", "content": "{}"})),
        ("create", json!({"path": ".bailiwick.toml", "content": ""})),
        ("create", json!({"path": ".vscode/tasks.json", "content": "{}"})),
        ("create", json!({"path": "m/.git", "content": "gitdir: ../x"})),
        ("write", json!({"path": ".claude/settings.json", "content": "{}"})),
        ("write", json!({"path": ".claude/settings.local.json", "content": "{}"})),
        ("create", json!({"path": ".codex/config.toml", "content": ""})),
        ("create", json!({"path": ".cursor/mcp.json", "content": "{}"})),
        ("write", json!({"path": ".gemini/settings.json", "content": "{}"})),
        ("mkdir", json!({"path": ".idea"})),
        ("rename", json!({"source": "a", "destination": ".git/hooks/pre-commit"})),
        ("rename", json!({"source": ".git", "destination": "g"})),
        ("rename", json!({"source": ".git/hooks", "destination": "h"})),
        ("copy", json!({"source": "a", "destination": ".mcp.json"})),
        ("edit", json!({"path": ".git/HEAD", "old_string": "main", "new_string": "evil"})),
    ] {
        let called = space.tool(tool, args);
        assert_eq!(called.fault(), "sandbox_denied", "{}", called.line);
        assert_eq!(tree(&space.ws()), before, "{}", called.line);
    }
    space.tool("write", json!({"path": ".github/x", "content": "x"})).data();
    space.tool("write", json!({"path": ".gitignore", "content": "x"})).data();
}

/// What a call left is undone however the call ended.
#[test]
fn what_an_ended_call_left_is_undone() {
    if !has("git") {
        skip!("no git");
    }
    let plant = "git init -q n; git -C n config core.fsmonitor 'touch {P}'; chmod 311 n; touch ready; sleep 60";
    for alone in [false, true] {
        for end in ["closed", "cancelled", "TERM", "tool INT", "tool TERM", "tool HUP"] {
            let (space, _) = self::space(Layout::Clone);
            let script = plant.replace("{P}", space.path("outside/pwned").to_str().unwrap());
            let flags: &[&str] = if alone { &["--without-namespaces"] } else { &[] };
            let mut command = space.command(flags);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let by_tool = end.strip_prefix("tool ");
            match by_tool {
                Some(_) => command.args(["tool", "sandbox_bash", &json!({ "command": script }).to_string()]),
                None => command.arg("mcp"),
            };
            let mut child = command.spawn().unwrap();
            let mut to = child.stdin.take().unwrap();
            if by_tool.is_none() {
                let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
                for message in [
                    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
                    json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
                    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "sandbox_bash", "arguments": { "command": script } } }),
                ] {
                    writeln!(to, "{message}").unwrap();
                }
            }
            let begun = Instant::now();
            while !space.ws().join("ready").exists() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{end}: the command did not begin");
                std::thread::sleep(Duration::from_millis(20));
            }
            match end {
                "cancelled" => {
                    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 2 } });
                    writeln!(to, "{cancel}").unwrap();
                    // The end of the session comes after it.
                    std::thread::sleep(Duration::from_millis(300));
                    drop(to);
                }
                "closed" => drop(to),
                signal => {
                    let name = signal.strip_prefix("tool ").unwrap_or(signal);
                    let signal: nix::sys::signal::Signal = format!("SIG{name}").parse().unwrap();
                    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), signal).unwrap();
                }
            }
            let output = child.wait_with_output().unwrap();
            let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            host_works(&space);
            assert!(!pwned(&space), "alone {alone}, {end}: the host ran it: {said}");
            if let Some(name) = by_tool {
                let code = match name {
                    "INT" => 130,
                    "TERM" => 143,
                    _ => 129,
                };
                assert_eq!(output.status.code(), Some(code), "{said}");
                assert!(said.contains("interrupted: ended by signal") && said.contains("n/.git/config is protected"), "{said}");
            }
        }
    }
}

/// What is written through a mapping that was there before moves no time of the file, on tmpfs never: contents are compared.
#[test]
fn what_a_mapping_writes_is_seen() {
    let Some(python) = python() else { skip!("no python3") };
    let space = Space::in_memory();
    if !space.is_in_memory() {
        skip!("no memory to work in");
    }
    let sub = space.ws().join("sub");
    for folder in [&space.ws(), &sub] {
        std::fs::create_dir_all(folder).unwrap();
        let init = std::process::Command::new("git").args(["init", "-q"]).current_dir(folder).status().unwrap();
        assert!(init.success());
    }
    let config = sub.join(".git/config");
    let first = std::fs::read_to_string(&config).unwrap();
    let plain = |length: usize| first.clone() + "# " + &"x".repeat(length) + "\n";
    let write = r##"
import mmap, os
file = os.open("sub/.git/config", os.O_RDWR)
there = mmap.mmap(file, 0)
before = there[:]
new = before[:before.index(b"# x")] + b"[core]\n\tfsmonitor = touch PWN\n"
there[:] = new + b"#" * (len(before) - len(new))
"##;
    std::fs::write(space.ws().join("mm.py"), write).unwrap();
    // Without us the file is another, and its times and size are what they were.
    std::fs::write(&config, plain(100)).unwrap();
    let seen = |path: &std::path::Path| std::fs::metadata(path).map(|meta| (meta.mtime_nsec(), meta.ctime_nsec(), meta.len())).unwrap();
    let before = seen(&config);
    let ran = std::process::Command::new(python).arg("mm.py").current_dir(space.ws()).status().unwrap();
    assert!(ran.success() && std::fs::read_to_string(&config).unwrap().contains("fsmonitor"));
    assert_eq!(seen(&config), before);
    for (rung, length) in [(&[][..], 100), (&["--without-namespaces"], 100), (&[], 3 << 20), (&["--without-namespaces"], 3 << 20)] {
        std::fs::write(&config, plain(length)).unwrap();
        let output = space.run(rung.iter().copied().chain(["exec", "--", python, "mm.py"]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("sub/.git/config is protected"), "{rung:?}: {said}");
        assert!(!std::fs::read_to_string(&config).unwrap().contains("fsmonitor"), "{rung:?}");
    }
}

/// A pointer that a command makes leads to what is in the workspace, through no link: elsewhere nobody looks at the settings.
#[test]
fn a_pointer_that_leads_out_of_the_workspace_goes() {
    let make = r#"
set -e
git init -q "$HOME/evil"; git -C "$HOME/evil" config core.fsmonitor "touch PWN;false"
mkdir file link by-link inside up
echo "gitdir: $HOME/evil/.git" > file/.git
ln -s "$HOME/evil/.git" link/.git
ln -s "$HOME/evil" evil; echo "gitdir: ../evil/.git" > by-link/.git
echo "gitdir: ../../elsewhere/.git" > up/.git
git init -q store; echo "gitdir: ../store/.git" > inside/.git
git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m one; git worktree add -q tree
"#;
    for rung in [&[][..], &["--without-namespaces"]] {
        let space = Space::new();
        assert!(Command::new("git").args(["init", "-q"]).current_dir(space.ws()).status().unwrap().success());
        let output = space.run(rung.iter().copied().chain(["exec", "--", "bash", "-c", make]));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{rung:?}: {said}");
        for name in ["file", "link", "by-link", "up"] {
            let gone = space.ws().join(name).join(".git").symlink_metadata().is_err();
            assert!(
                gone && said.contains(&format!("{name}/.git is protected: it was made, and has been removed again")),
                "{rung:?}: {name}: {said}"
            );
        }
        for name in ["inside", "tree"] {
            assert!(space.ws().join(name).join(".git").is_file(), "{rung:?}: {name}: {said}");
        }
    }
}

/// What was right when it was made is looked at again: a folder on its way may be a link by then.
#[test]
fn a_pointer_whose_way_becomes_a_link_goes() {
    let desk = Desk::new(Space::new());
    assert!(Command::new("git").args(["init", "-q"]).current_dir(desk.space.ws()).status().unwrap().success());
    let run = |script: &str| {
        let data = desk.done("sandbox_bash", json!({ "command": script }));
        assert_eq!(data["exit_code"], 0, "{data}");
        data["notices"].to_string()
    };
    assert_eq!(run("mkdir way late; git init -q way/in; echo 'gitdir: ../way/in/.git' > late/.git"), "[]");
    let said = run("test -f late/.git; mv way other; mkdir way; ln -s \"$HOME\" way/in");
    assert!(said.contains("late/.git is protected: it was made, and has been removed again"), "{said}");
    assert!(desk.space.ws().join("late/.git").symlink_metadata().is_err());
}
