//! What `policy explain` foretells is what the kernel answers: random policies over random trees, random acts on random paths, in a real jail
//! of both rungs. Judged from outside: the same act is done on a twin of the tree by the same user without a sandbox; it got through when the
//! tree, or what was read, is afterwards as with the twin.

use crate::skip;
use crate::space::{Space, is_root};
use crate::stage::attack_program;
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::policy::Access;
use bailiwick::policy::predict::{Act, By, Made, Spot, Walls, predict};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// As many acts under one policy, each in a small tree of its own.
const CELLS: usize = 60;

/// The owner of a workspace that is not root's.
const OTHER: u32 = 65_533;

/// Names as they come. The last is no text.
const NAMES: [&[u8]; 10] =
    [b"a", b"b", b"c", b"sub", b"with blank", b"new\nline", b"-rf", b"q'\"$x", "\u{fc}\u{4e16}".as_bytes(), b"\xff\xfe"];

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// One act in the tree.
#[derive(Debug)]
struct Try {
    act: &'static str,
    one: PathBuf,
    two: PathBuf,
}

const ACTS: [&str; 16] = [
    "read", "read", "list", "append", "truncate", "make", "mkdir", "symlink", "fifo", "unlink", "rmdir", "rename", "rename", "link",
    "exec", "chmod",
];

/// Acts on what is the machine's: none of them changes anything.
const OF_THE_MACHINE: [(&str, &str); 16] = [
    ("read", "/etc/passwd"),
    ("read", "/etc/shadow"),
    ("read", "/etc/hostname"),
    ("open-write", "/etc/passwd"),
    ("list", "/usr/share"),
    ("list", "/root"),
    ("list", "/home"),
    ("list", "/var/log"),
    ("list", "/opt"),
    ("exec", "/usr/bin/env"),
    ("exec", "/bin/true"),
    ("read", "/usr/bin/env"),
    ("open-write", "/dev/null"),
    ("read", "/dev/zero"),
    ("open-write", "/dev/full"),
    ("list", "/boot"),
];

/// A tree, a policy over it, and what is tried. Made twice from one seed, it is the same but for where it lies.
struct Scene {
    space: Space,
    policy: PathBuf,
    tries: Vec<Try>,
}

impl Scene {
    fn make(seed: u64, owner: Option<u32>) -> Self {
        let mut random = Random(seed);
        // Below /tmp, which sessions have of their own, and elsewhere.
        let space = Space::beneath(Path::new(if seed.is_multiple_of(3) { "/tmp" } else { "/var/tmp" }));
        let top = space.path("");
        let (mut rows, mut tries) = (Rows::default(), Vec::new());
        for cell in 0..CELLS {
            let folders = [top.join(format!("ws/c{cell}")), top.join(format!("outside/c{cell}"))];
            let mut paths = Vec::new();
            for folder in &folders {
                plant(&mut random, folder, &folders, 0, &mut paths);
            }
            rows.of_cell(&mut random, &top, &paths);
            tries.push(one_try(&mut random, &top, &paths));
        }
        let image = random.of(&["host", "minimal", "rust", "python", "node"]);
        let mut text = format!("name = \"random\"\nextends = \"build\"\nimage = \"{image}\"\n[fs]\n");
        for (key, list) in [("read", &rows.read), ("write", &rows.write), ("exec", &rows.exec), ("protect", &rows.protect)] {
            writeln!(text, "{key} = [{}]", list.join(", ")).unwrap();
        }
        let policy = top.join("random.toml");
        fs::write(&policy, text).unwrap();
        if !rows.project.is_empty() {
            fs::write(top.join("ws/.bailiwick.toml"), format!("[fs]\nprotect = [{}]\n", rows.project.join(", "))).unwrap();
        }
        if let Some(owner) = owner {
            for folder in ["ws", "outside"] {
                give(&top.join(folder), owner);
            }
        }
        let mut acts = Vec::new();
        for Try { act, one, two } in &tries {
            for part in [act.as_bytes(), one.as_os_str().as_bytes(), two.as_os_str().as_bytes()] {
                acts.extend(part);
                acts.push(0);
            }
        }
        fs::write(top.join("ws/acts"), acts).unwrap();
        fs::copy(attack_program().unwrap(), top.join("ws/attack")).unwrap();
        Self { space, policy, tries }
    }

    /// The part of the tree that a try can change.
    fn cell(&self, number: usize) -> BTreeMap<PathBuf, String> {
        let top = self.space.path("");
        let mut found = BTreeMap::new();
        for folder in [format!("ws/c{number}"), format!("outside/c{number}")] {
            look(&top, &top.join(folder), &mut found);
        }
        found
    }
}

/// What is at each name: kind, mode, content.
fn look(top: &Path, path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    let Ok(meta) = path.symlink_metadata() else { return };
    let content = if meta.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            look(top, &entry.unwrap().path(), found);
        }
        String::new()
    } else if meta.is_symlink() {
        // A link names the place of its own tree.
        fs::read_link(path).unwrap().to_string_lossy().replace(&*top.to_string_lossy(), "{TOP}")
    } else if meta.is_file() {
        format!("{:?}", fs::read(path).unwrap())
    } else {
        "special".into()
    };
    found.insert(path.strip_prefix(top).unwrap().into(), format!("{:o} {content}", meta.mode()));
}

fn give(path: &Path, owner: u32) {
    lchown(path, Some(owner), Some(owner)).unwrap();
    let meta = path.symlink_metadata().unwrap();
    if meta.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), owner));
    }
}

/// Plants a random tree; each folder holds a file that tells it from others.
fn plant(random: &mut Random, folder: &Path, cells: &[PathBuf; 2], depth: usize, paths: &mut Vec<PathBuf>) {
    fs::create_dir(folder).unwrap();
    let mark: String = folder.to_string_lossy().rsplit("/bw-test-").next().unwrap().split_once('/').unwrap().1.replace('/', "-");
    fs::write(folder.join(format!("m{:x}", mark.len())), &mark).unwrap();
    paths.push(folder.to_path_buf());
    let most = if depth == 0 { 4 } else { 3 };
    for _ in 0..=random.below(most) {
        let path = folder.join(OsString::from_vec(random.of(&NAMES).to_vec()));
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match random.below(10) {
            0..=2 if depth < 3 => {
                plant(random, &path, cells, depth + 1, paths);
                continue;
            }
            0..=5 => {
                fs::write(&path, format!("no program: {mark} {}", random.next())).unwrap();
                let mode = *random.of(&[0o644, 0o755, 0o700, 0o444]);
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            6 if paths.len() > 2 => {
                // A hard link to a file that is there already.
                let file = random.of(paths).clone();
                if !file.symlink_metadata().is_ok_and(|meta| meta.is_file()) || fs::hard_link(&file, &path).is_err() {
                    continue;
                }
            }
            7 => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o644)).unwrap(),
            _ => {
                let target = random.of(paths).clone();
                let target = match random.below(4) {
                    0 => target,
                    1 => relative(folder, &target),
                    2 => relative(folder, &random.of(cells).join("a")),
                    _ => "absent".into(),
                };
                let target = if target.as_os_str().is_empty() { Path::new(".").to_path_buf() } else { target };
                symlink(target, &path).unwrap();
            }
        }
        paths.push(path);
    }
}

/// A path relative to a folder, both absolute.
fn relative(folder: &Path, path: &Path) -> PathBuf {
    let shared = folder.components().zip(path.components()).take_while(|(one, other)| one == other).count();
    let up = folder.components().skip(shared).map(|_| Path::new(".."));
    up.chain(path.components().skip(shared).map(|part| Path::new(part.as_os_str()))).collect()
}

/// Rows of the policy, as TOML.
#[derive(Default)]
struct Rows {
    read: Vec<String>,
    write: Vec<String>,
    exec: Vec<String>,
    protect: Vec<String>,
    project: Vec<String>,
}

impl Rows {
    fn of_cell(&mut self, random: &mut Random, top: &Path, paths: &[PathBuf]) {
        // A policy's paths hold no variable.
        let text = |path: &Path| path.to_str().filter(|text| !text.contains('$')).map(|text| serde_json::to_string(text).unwrap());
        for _ in 0..random.below(4) {
            let path = random.of(paths);
            if let (true, Some(text)) =
                (!path.starts_with(top.join("ws")) || path.canonicalize().is_ok_and(|real| real.starts_with(top.join("ws"))), text(path))
            {
                let list = [&mut self.read, &mut self.write, &mut self.exec];
                list.into_iter().nth(random.below(3)).unwrap().push(text);
            }
        }
        for _ in 0..random.below(3) {
            let mut path = random.of(paths).clone();
            // What is not there can be protected too.
            if random.chance(30) {
                path.push(["a", "new", "sub"][random.below(3)]);
            }
            if random.chance(15) {
                path.push("deep");
            }
            let inside = path.strip_prefix(top.join("ws")).ok().filter(|rest| !rest.as_os_str().as_bytes().contains(&b'*'));
            if let Some(text) = inside.and_then(text) {
                if random.chance(30) { self.project.push(text) } else { self.protect.push(text) }
            }
        }
    }
}

/// A random act on random names of a cell.
fn one_try(random: &mut Random, top: &Path, paths: &[PathBuf]) -> Try {
    if random.chance(6) {
        let (act, path) = random.of(&OF_THE_MACHINE);
        return Try { act, one: path.into(), two: PathBuf::new() };
    }
    let act = *random.of(&ACTS);
    let fitting: Vec<&PathBuf> = paths
        .iter()
        .filter(|path| match act {
            "list" | "rmdir" => path.is_dir(),
            "read" | "append" | "truncate" | "exec" | "link" => path.is_file(),
            _ => true,
        })
        .collect();
    let some = |random: &mut Random| match fitting.is_empty() {
        true => random.of(paths).clone(),
        false => (*random.of(&fitting)).clone(),
    };
    let one = match act {
        "make" | "mkdir" | "symlink" | "fifo" => fresh(random, paths),
        _ => some(random),
    };
    let two = match act {
        "rename" if random.chance(30) => random.of(paths).clone(),
        "rename" | "link" => fresh(random, paths),
        _ => PathBuf::new(),
    };
    if act == "rmdir" {
        // Only what is empty can be removed: what tells it from others goes, which its own tree shows.
        for entry in fs::read_dir(&one).into_iter().flatten() {
            let entry = entry.unwrap().path();
            let _ =
                if entry.symlink_metadata().is_ok_and(|meta| meta.is_dir()) { fs::remove_dir_all(entry) } else { fs::remove_file(entry) };
        }
    }
    let spelled = |random: &mut Random, path: PathBuf| match path.as_os_str().is_empty() {
        true => path,
        false => spell(random, top, &path),
    };
    Try { act, one: spelled(random, one), two: spelled(random, two) }
}

/// A name that is likely not there yet, in a folder of the cell.
fn fresh(random: &mut Random, paths: &[PathBuf]) -> PathBuf {
    let folders: Vec<&PathBuf> = paths.iter().filter(|path| path.is_dir()).collect();
    random.of(&folders).join(random.of(&["new", "a", "sub", "deep", "new\nline"]))
}

/// Another spelling of an absolute path.
fn spell(random: &mut Random, top: &Path, path: &Path) -> PathBuf {
    let ws = top.join("ws");
    match random.below(6) {
        0 => path.into(),
        1 => {
            let mut text = path.as_os_str().as_bytes().to_vec();
            let at = text.iter().rposition(|byte| *byte == b'/').unwrap();
            text.splice(at..at, *b"/.//");
            OsString::from_vec(text).into()
        }
        2 => path.parent().unwrap().join("..").join(path.parent().unwrap().file_name().unwrap()).join(path.file_name().unwrap()),
        3 => Path::new("/proc/self/cwd").join(relative(&ws, path)),
        _ => relative(&ws, path),
    }
}

/// What a run says of each try: the errno and what was read.
fn run(command: &mut Command) -> Vec<(i32, String)> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<_> = text
        .lines()
        .map(|line| {
            let (errno, told) = line.split_once(' ').unwrap();
            (errno.parse().unwrap(), told.to_owned())
        })
        .collect();
    assert!(rows.len() >= CELLS, "{} rows, {}", rows.len(), String::from_utf8_lossy(&output.stderr));
    rows
}

/// Tries and answers: how many there were, how many of them would work without a sandbox, and where the two differ.
#[derive(Default)]
struct Tally {
    all: usize,
    telling: usize,
    through: usize,
    wrong: Vec<String>,
}

fn one_scene(seed: u64, tally: &Mutex<Tally>) {
    let owner = (is_root() && seed % 2 == 1).then_some(OTHER);
    let twin = Scene::make(seed, owner);
    let before: Vec<_> = (0..CELLS).map(|cell| twin.cell(cell)).collect();
    let mut bare = Command::new(twin.space.ws().join("attack"));
    bare.arg("acts").arg("acts").current_dir(twin.space.ws());
    bare.args(owner.iter().flat_map(|owner| [owner.to_string(), owner.to_string()]));
    let open = run(&mut bare);
    let after: Vec<_> = (0..CELLS).map(|cell| twin.cell(cell)).collect();
    for alone in [false, true] {
        let scene = Scene::make(seed, owner);
        let setup = Setup::resolved(&Asked {
            workspace: Some(scene.space.ws()),
            policy: scene.policy.display().to_string(),
            without_namespaces: alone,
            ..Asked::default()
        })
        .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        let walls = Walls::of(setup.charter(), !alone && namespaces());
        // Foretold before anything is done.
        let foretold: Vec<_> = scene.tries.iter().map(|tried| verdict(&setup, walls, tried)).collect();
        let mut confined = scene.space.command(["-p", scene.policy.to_str().unwrap()]);
        confined.args(alone.then_some("--without-namespaces")).args(["exec", "--", "./attack", "acts", "acts"]);
        let shut = run(&mut confined);
        let mut tally = tally.lock().unwrap();
        for (cell, tried) in scene.tries.iter().enumerate() {
            tally.all += 1;
            let changes = after[cell] != before[cell];
            let works = open[cell].0 == 0;
            let now = scene.cell(cell);
            let reads = matches!(tried.act, "read" | "list" | "exec" | "open-write");
            let through = shut[cell].0 == 0 && if reads { shut[cell].1 == open[cell].1 } else { now == after[cell] };
            let told = format!(
                "seed {seed} cell {cell} alone {alone} owner {owner:?}: {} {} {}: errno {} (bare {}), foretold {:?}",
                tried.act,
                tried.one.display(),
                tried.two.display(),
                shut[cell].0,
                open[cell].0,
                foretold[cell],
            );
            // What fails without a sandbox has to fail in one too, and says no more.
            if !works || !(changes || reads) {
                if !works && shut[cell].0 == 0 && now != before[cell] {
                    tally.wrong.push(format!("works in the sandbox alone: {told}"));
                }
                continue;
            }
            tally.telling += 1;
            tally.through += usize::from(through);
            match &foretold[cell] {
                Some((allowed, _)) if *allowed == through => {}
                _ => tally.wrong.push(told),
            }
        }
    }
}

/// Whether mounts are made here.
fn namespaces() -> bool {
    static STARTS: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *STARTS.get_or_init(|| {
        let output = Space::new().run(["doctor", "--json"]);
        let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        findings["report"]["surroundings"]["namespaces"]["mount"] == true
    })
}

fn verdict(setup: &Setup, walls: Walls, tried: &Try) -> Option<(bool, By)> {
    let base = &setup.charter().base;
    // What the program calls its current folder is the base.
    let plain = |path: &Path| path.strip_prefix("/proc/self/cwd").map_or_else(|_| path.to_path_buf(), |rest| base.join(rest));
    let to = Spot::find(base, &plain(&tried.two), false)?;
    let act = match tried.act {
        "read" | "list" => Act::Read,
        "append" | "open-write" | "truncate" => Act::Write,
        "mkdir" => Act::Make(Made::Folder),
        "make" | "fifo" => Act::Make(Made::Other),
        "symlink" => Act::Make(Made::Link),
        "unlink" | "rmdir" => Act::Remove,
        "rename" => Act::Rename(&to),
        "link" => Act::Link(&to),
        "exec" => Act::Exec,
        "chmod" => Act::Metadata,
        other => panic!("{other}"),
    };
    let at = Spot::find(base, &plain(&tried.one), !act.is_on_the_name())?;
    let verdict = predict(setup.charter(), walls, Access::Execute, &at, act);
    Some((verdict.allowed, verdict.by))
}

#[test]
fn what_is_foretold_is_what_the_kernel_answers() {
    if attack_program().is_none() {
        skip!("no C compiler");
    }
    let doctor = Space::new().run(["doctor", "--json"]);
    if doctor.status.code() != Some(0) {
        skip!("no walls stand on this kernel");
    }
    let wanted: usize = std::env::var("BAILIWICK_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000);
    let first: u64 = std::env::var("BAILIWICK_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let (tally, next) = (Mutex::new(Tally::default()), Mutex::new(first));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while tally.lock().unwrap().telling < wanted {
                    let seed = {
                        let mut next = next.lock().unwrap();
                        *next += 1;
                        *next - 1
                    };
                    one_scene(seed, &tally);
                }
            });
        }
    });
    let Tally { all, telling, through, wrong } = tally.into_inner().unwrap();
    println!(
        "{telling} of {all} acts work without a sandbox; {through} get through one, {} are refused; {} differ from what is foretold",
        telling - through,
        wrong.len()
    );
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.iter().take(40).cloned().collect::<Vec<_>>().join("\n"));
    assert!(through * 5 > telling && (telling - through) * 5 > telling, "one-sided: {through} of {telling} get through");
}

/// What a person reads: what is foretold, and what came of trying it where that has no effect.
#[test]
fn explain_says_what_it_foretold_and_what_it_tried() {
    let doctor = Space::new().run(["doctor", "--json"]);
    if doctor.status.code() != Some(0) {
        skip!("no walls stand on this kernel");
    }
    let space = Space::new().file("a", "x").file(".vscode/tasks.json", "{}").file("run", "#!/bin/sh\ntrue\n");
    fs::set_permissions(space.ws().join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let secret = space.outside().join("secret").display().to_string();
    let explain = |rung: &[&str], args: &[&str]| {
        let output = space.run(rung.iter().chain(&["policy", "explain"]).chain(args));
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let through = "(foretold, and tried: it was let through)";
    let refused = "(foretold, and tried: it was refused)";
    let untried = "(foretold from the policy, not tried)";
    for rung in [&[][..], &["--without-namespaces"]] {
        for (args, word, how) in [
            (&["a"][..], "read", through),
            (&[&secret], "read", refused),
            (&["../outside/secret", "--op", "write"], "write", refused),
            (&["a", "--op", "write"], "write", through),
            (&["a", "--op", "remove"], "remove", untried),
            (&["run", "--op", "exec"], "exec", untried),
            (&["a", "--op", "rename", "--to", "b"], "rename", untried),
            (&["a", "--access", "look"], "read", untried),
            (&["a", "--predict"], "read", untried),
            (&["192.0.2.1:9"], "connect", refused),
            (&["https://nohost.example.com/x"], "connect", refused),
        ] {
            let text = explain(rung, args);
            assert!(text.starts_with(word) && text.trim_end().ends_with(how), "{rung:?} {args:?}: {text}");
            assert_eq!(text.contains(": allowed: "), how == through || how == untried, "{text}");
        }
        let text = explain(rung, &[".vscode/tasks.json", "--op", "remove"]);
        assert!(text.contains(": refused: ") && text.contains(".vscode is protected"), "{text}");
        // Whoever connects to no address in particular connects to this machine.
        let [none, own] = ["0.0.0.0:9", "127.0.0.1:9"].map(|peer| explain(rung, &[peer]));
        assert_eq!(none.replace("0.0.0.0", "127.0.0.1"), own);
        // Nothing of it has been done.
        assert_eq!(fs::read(space.ws().join("a")).unwrap(), b"x");
        let text = explain(rung, &["--", "./run", "a", "../outside/secret", "https://nohost.example.com/", "new/file"]);
        let lines: Vec<&str> = text.lines().collect();
        for (line, starts, says) in [
            (0, "exec ", "/run: allowed"),
            (1, "exec ", ": allowed"),
            (2, "read ", "/a: allowed"),
            (3, "write ", "/a: allowed"),
            (4, "read ", "/outside/secret: refused"),
            (5, "write ", "/outside/secret: refused"),
            (6, "connect ", "nohost.example.com:443: refused"),
            (7, "create ", "new/file: allowed"),
        ] {
            assert!(lines[line].starts_with(starts) && lines[line].contains(says), "{line}: {text}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&explain(&[], &["a", "--json"])).unwrap();
    assert_eq!(
        (&json["verdict"]["allowed"], &json["predicted"], &json["tried"], &json["answer"]),
        (&true.into(), &true.into(), &true.into(), &"open".into())
    );
    for wrong in [&["a", "--op", "rename"][..], &["--", "nothing-of-that-name"], &["absent/../../x"], &[]] {
        let output = space.run(["policy", "explain"].iter().chain(wrong));
        assert_eq!(output.status.code(), Some(2), "{wrong:?}: {output:?}");
    }
}
