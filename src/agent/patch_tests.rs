use super::*;
use crate::agent::shared_tests::{Place, git, now};
use crate::envelope::FaultCode;
use proptest::prelude::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn apply(at: &Path, patch: &[u8]) {
    let file = at.parent().unwrap().join("the.patch");
    std::fs::write(&file, patch).unwrap();
    if patch.is_empty() {
        return;
    }
    git(at, &["apply", "--check", file.to_str().unwrap()]);
    git(at, &["apply", "--whitespace=nowarn", file.to_str().unwrap()]);
}

/// Every path beneath a folder, `.git` aside, with what matters of it.
fn tree(at: &Path) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![at.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if path.file_name().unwrap() == ".git" {
            } else if meta.is_dir() {
                folders.push(path);
            } else {
                let content = if meta.is_symlink() {
                    ("link".to_owned(), std::fs::read_link(&path).unwrap().into_os_string().into_vec())
                } else {
                    (format!("{}", meta.permissions().mode() & 0o100 != 0), std::fs::read(&path).unwrap())
                };
                found.insert(path.strip_prefix(at).unwrap().to_path_buf(), content);
            }
        }
    }
    found
}

fn names(patch: &Patch) -> Vec<(&str, Status)> {
    patch.files.iter().map(|file| (file.path.as_str(), file.status)).collect()
}

#[test]
fn everything_that_can_change_is_in_the_patch_and_applies() {
    let place = Place::new();
    for (path, content) in [
        ("kept", "same\n"),
        ("committed", "1\n"),
        ("staged", "1\n"),
        ("unstaged", "1\n2\n3\n"),
        ("deleted", "x\n"),
        ("mode", "#!/bin/sh\n"),
        ("to_link", "file\n"),
        ("no_newline", "a\nb"),
        ("crlf", "a\r\nb\r\n"),
        ("dir/file", "1\n"),
        ("was_dir/file", "1\n"),
    ] {
        place.write(path, content);
    }
    place.write("binary", [0, 1, 2, 255]);
    place.write(".gitignore", "ignored\n");
    place.commit();
    let clone = place.clone_to("clone");
    let baseline = now(Baseline::take(&place)).unwrap();

    place.write("committed", "2\n");
    place.git(&["commit", "-q", "-a", "-m", "by the model"]);
    place.write("staged", "2\n");
    place.git(&["add", "staged"]);
    place.write("unstaged", "1\ntwo\n3\n");
    std::fs::remove_file(place.base.join("deleted")).unwrap();
    std::fs::set_permissions(place.base.join("mode"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(place.base.join("to_link")).unwrap();
    symlink("kept", place.base.join("to_link")).unwrap();
    symlink("nowhere/..", place.base.join("dangling")).unwrap();
    place.write("no_newline", "a\nc");
    place.write("crlf", "a\r\nc\r\n");
    place.write("binary", [9, 0, 1, 2, 255]);
    place.write("untracked/deep/file \"quoted\"\n\u{e9}", "new\n");
    place.write("empty", "");
    place.write("ignored", "secret\n");
    std::fs::remove_dir_all(place.base.join("was_dir")).unwrap();
    place.write("was_dir", "now a file\n");

    let index = std::fs::read(place.base.join(".git/index")).unwrap();
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert_eq!(std::fs::read(place.base.join(".git/index")).unwrap(), index, "the index is not ours to touch");
    let mut expected = vec![
        ("binary", Status::Modified),
        ("committed", Status::Modified),
        ("crlf", Status::Modified),
        ("dangling", Status::Added),
        ("deleted", Status::Deleted),
        ("empty", Status::Added),
        ("mode", Status::Mode),
        ("no_newline", Status::Modified),
        ("staged", Status::Modified),
        ("to_link", Status::Type),
        ("unstaged", Status::Modified),
        ("untracked/deep/file \"quoted\"\\x0a\u{e9}", Status::Added),
        ("was_dir", Status::Added),
        ("was_dir/file", Status::Deleted),
    ];
    expected.sort_by_key(|(path, _)| *path);
    let mut found = names(&patch);
    found.sort_by_key(|(path, _)| *path);
    assert_eq!(found, expected);
    let unstaged = patch.files.iter().find(|file| file.path == "unstaged").unwrap();
    assert_eq!((unstaged.added, unstaged.removed), (Some(1), Some(1)));
    assert_eq!(patch.files.iter().find(|file| file.path == "binary").unwrap().added, None);
    apply(&clone, &patch.text);
    let mut there = tree(&place.base);
    there.remove(Path::new("ignored"));
    assert_eq!(tree(&clone), there);
}

#[test]
fn attributes_filters_monitors_and_hooks_of_the_tree_do_nothing() {
    let place = Place::new();
    let ran = place.own.join("ran");
    let trap = format!("touch {}; cat", ran.display());
    place.write("crlf.txt", "a\r\nb\r\n");
    place.write("id.txt", "$Id$\n");
    place.write("wide.txt", [0xff, 0xfe, b'a', 0, b'\n', 0]);
    place.write("plain.txt", "one\n");
    place.commit();
    place.write(".gitattributes", "* text=auto eol=crlf\n*.txt ident filter=trap diff=trap\nwide.txt working-tree-encoding=UTF-16\n");
    for (key, value) in [
        ("filter.trap.clean", trap.as_str()),
        ("filter.trap.smudge", &trap),
        ("filter.trap.required", "true"),
        ("diff.trap.command", &trap),
        ("diff.trap.textconv", &trap),
        ("diff.external", &trap),
        ("core.fsmonitor", &trap),
        ("core.sshCommand", &trap),
    ] {
        place.git(&["config", key, value]);
    }
    for hook in ["post-index-change", "pre-commit", "fsmonitor-watchman", "reference-transaction"] {
        let hook = place.base.join(".git/hooks").join(hook);
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, format!("#!/bin/sh\n{trap}\n")).unwrap();
        std::fs::set_permissions(hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // A nested repository with traps of its own.
    place.write("nested/inner.txt", "1\n");
    git(&place.base.join("nested"), &["init", "-q"]);
    git(&place.base.join("nested"), &["add", "-A"]);
    git(&place.base.join("nested"), &["commit", "-q", "-m", "x"]);
    git(&place.base.join("nested"), &["config", "core.fsmonitor", &trap]);
    place.git(&["status"]);
    std::fs::remove_file(&ran).expect("the traps spring for an ordinary git");

    let before = tree(&place.base);
    let baseline = now(Baseline::take(&place)).unwrap();
    assert_eq!(names(&now(baseline.patch(&place, &[])).unwrap()), [], "nothing changed, so nothing is in the patch");
    place.write("crlf.txt", "a\nb\r\n");
    place.write("id.txt", "$Id: mine $\n");
    place.write("nested/inner.txt", "2\n");
    place.write("nested/new.txt", "3\n");
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert!(!ran.exists(), "a program of the repository ran");
    assert_eq!(
        names(&patch),
        [
            ("crlf.txt", Status::Modified),
            ("id.txt", Status::Modified),
            ("nested/inner.txt", Status::Modified),
            ("nested/new.txt", Status::Added)
        ]
    );
    let text = String::from_utf8_lossy(&patch.text);
    assert!(text.contains("-a\r\n+a\n b\r\n"), "{text}");
    assert!(text.contains("-$Id$\n+$Id: mine $\n"), "{text}");

    let copy = place.own.join("copy");
    for (path, (_, content)) in &before {
        let path = copy.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        if !path.ends_with(".gitattributes") {
            std::fs::write(path, content).unwrap();
        }
    }
    apply(&copy, &patch.text);
    let mut there = tree(&place.base);
    there.remove(Path::new(".gitattributes"));
    assert_eq!(tree(&copy), there);
}

#[test]
fn nested_repositories_count_as_files_with_or_without_a_commit() {
    let place = Place::new();
    place.commit();
    let baseline = now(Baseline::take(&place)).unwrap();
    for name in ["bare_of_commits", "with_commit", "-dashed"] {
        place.write(&format!("{name}/a"), "1\n");
        git(&place.base.join(name), &["init", "-q"]);
    }
    git(&place.base.join("with_commit"), &["add", "-A"]);
    git(&place.base.join("with_commit"), &["commit", "-q", "-m", "x"]);
    place.write("with_commit/inner/b", "1\n");
    git(&place.base.join("with_commit/inner"), &["init", "-q"]);
    let patch = now(baseline.patch(&place, &[])).unwrap();
    let added = ["-dashed/a", "bare_of_commits/a", "with_commit/a", "with_commit/inner/b"];
    assert_eq!(names(&patch), added.map(|path| (path, Status::Added)));
    apply(&place.clone_to("clone"), &patch.text);
}

#[test]
fn ignored_files_count_only_when_a_file_tool_touched_them() {
    let place = Place::new();
    place.write(".gitignore", "*.log\nbuild/\n");
    place.write("tracked.log", "1\n");
    place.write("a.log", "1\n");
    place.write("build/out", "1\n");
    place.write("build/other", "1\n");
    place.git(&["init", "-q"]);
    place.git(&["add", "-f", "tracked.log", ".gitignore"]);
    place.git(&["commit", "-q", "-m", "x"]);
    let mut baseline = now(Baseline::take(&place)).unwrap();
    let touched = ["./build/out".to_owned(), format!("{}/b.log", place.base.display()), "../outside".into(), ".git/config".into()];
    now(baseline.before_change(&place, &touched)).unwrap();
    for path in ["tracked.log", "a.log", "b.log", "build/out", "build/other"] {
        place.write(path, "2\n");
    }
    let patch = now(baseline.patch(&place, &touched)).unwrap();
    assert_eq!(names(&patch), [("b.log", Status::Added), ("build/out", Status::Modified), ("tracked.log", Status::Modified)]);

    // Rules that change on the way neither hide what was there nor reveal what was ignored.
    place.write(".gitignore", "tracked.log\n");
    place.write("new.log", "1\n");
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert_eq!(
        names(&patch),
        [(".gitignore", Status::Modified), ("b.log", Status::Added), ("new.log", Status::Added), ("tracked.log", Status::Modified)]
    );
}

#[test]
fn it_works_without_a_repository_and_outlives_one() {
    let place = Place::new();
    place.write("a", "1\n");
    let baseline = now(Baseline::take(&place)).unwrap();
    place.write("a", "2\n");
    place.commit(); // a repository that came later is no concern of the patch
    assert_eq!(names(&now(baseline.patch(&place, &[])).unwrap()), [("a", Status::Modified)]);

    let place = Place::new();
    place.write("a", "1\n");
    place.commit();
    let baseline = now(Baseline::take(&place)).unwrap();
    std::fs::remove_dir_all(place.base.join(".git")).unwrap();
    std::fs::remove_file(place.base.join("a")).unwrap();
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert!(String::from_utf8_lossy(&patch.text).contains("\n-1\n"));
}

#[test]
fn what_the_disk_held_uncommitted_at_the_start_is_not_in_the_patch() {
    let place = Place::new();
    place.write("a", "1\n");
    place.commit();
    place.write("a", "2\n");
    place.write("u", "1\n");
    let baseline = now(Baseline::take(&place)).unwrap();
    assert_eq!(now(baseline.patch(&place, &[])).unwrap().text, b"");
    // Same size, and the times put back: the content is looked at, not the clock.
    let times = std::fs::metadata(place.base.join("a")).unwrap();
    place.write("a", "3\n");
    std::fs::File::options().write(true).open(place.base.join("a")).unwrap().set_modified(times.modified().unwrap()).unwrap();
    assert_eq!(names(&now(baseline.patch(&place, &[])).unwrap()), [("a", Status::Modified)]);
}

#[test]
fn special_files_neither_hang_nor_break_it() {
    let place = Place::new();
    place.write("a", "1\n");
    place.write("b", "1\n");
    place.commit();
    let baseline = now(Baseline::take(&place)).unwrap();
    std::fs::remove_file(place.base.join("a")).unwrap();
    nix::unistd::mkfifo(&place.base.join("a"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    nix::unistd::mkfifo(&place.base.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    place.write("b", "2\n");
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert!(names(&patch).contains(&("b", Status::Modified)));
    assert!(!names(&patch).iter().any(|(path, _)| *path == "fifo"));
}

#[test]
fn a_userland_without_git_is_said() {
    let mut place = Place::new();
    place.path = Some("/nonexistent".into());
    assert_eq!(now(Baseline::take(&place)).unwrap_err().code(), FaultCode::CommandNotStarted);
}

#[derive(Clone, Debug)]
enum Act {
    Write(usize, Vec<u8>),
    Append(usize, Vec<u8>),
    Remove(usize),
    Rename(usize, usize),
    Mode(usize, bool),
    Link(usize, String),
    Commit,
    Stage,
}

const PLACES: &[&str] = &["a", "b", "d/a", "d/b", "d/e/f", "d", "x y", "u\u{308}", "-n", "a.sh"];

fn act() -> impl Strategy<Value = Act> {
    let place = 0..PLACES.len();
    let content = prop_oneof![
        "[ab]{0,3}(\n[ab]{0,2}){0,6}".prop_map(String::into_bytes),
        "([ab]{0,2}\r\n){0,4}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop_oneof![
        4 => (place.clone(), content.clone()).prop_map(|(at, content)| Act::Write(at, content)),
        3 => (place.clone(), content).prop_map(|(at, content)| Act::Append(at, content)),
        2 => place.clone().prop_map(Act::Remove),
        2 => (place.clone(), place.clone()).prop_map(|(from, to)| Act::Rename(from, to)),
        2 => (place.clone(), any::<bool>()).prop_map(|(at, mode)| Act::Mode(at, mode)),
        2 => (place, "[a-d/.]{1,6}").prop_map(|(at, to)| Act::Link(at, to)),
        1 => Just(Act::Commit),
        1 => Just(Act::Stage),
    ]
}

/// Does what a program might do; what is impossible is left undone.
fn perform(place: &Place, act: &Act) {
    use std::fs;
    // Never through a link: the test's own writes stay inside its folder.
    let real = |at: &usize| {
        let path = place.base.join(PLACES[*at]);
        let safe = path.parent().unwrap().ancestors().take_while(|up| *up != place.base).all(|up| !up.is_symlink());
        safe.then_some(path)
    };
    match act {
        Act::Write(at, content) => {
            if let Some(path) = real(at).filter(|path| !path.is_symlink()) {
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = fs::write(path, content);
            }
        }
        Act::Append(at, content) => {
            if let Some(path) = real(at).filter(|path| !path.is_symlink())
                && let Ok(mut file) = fs::OpenOptions::new().append(true).open(path)
            {
                let _ = std::io::Write::write_all(&mut file, content);
            }
        }
        Act::Remove(at) => {
            if let Some(path) = real(at) {
                let _ = if path.is_dir() && !path.is_symlink() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            }
        }
        Act::Rename(from, to) => {
            if let (Some(from), Some(to)) = (real(from), real(to)) {
                let _ = fs::rename(from, to);
            }
        }
        Act::Mode(at, on) => {
            if let Some(path) = real(at).filter(|path| path.is_file() && !path.is_symlink()) {
                let _ = fs::set_permissions(path, fs::Permissions::from_mode(if *on { 0o755 } else { 0o644 }));
            }
        }
        Act::Link(at, to) => {
            if let Some(path) = real(at) {
                let _ = fs::create_dir_all(path.parent().unwrap());
                let _ = symlink(to, path);
            }
        }
        Act::Commit => place.commit(),
        Act::Stage => drop(place.git(&["add", "-A"])),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..crate::property_tests::cases(64) })]

    #[test]
    fn the_patch_on_a_clean_clone_gives_the_same_tree(start in prop::collection::vec(act(), 0..12), then in prop::collection::vec(act(), 0..14)) {
        let place = Place::new();
        start.iter().filter(|act| !matches!(act, Act::Commit | Act::Stage)).for_each(|act| perform(&place, act));
        place.commit();
        let clone = place.clone_to("clone");
        let baseline = now(Baseline::take(&place)).unwrap();
        then.iter().for_each(|act| perform(&place, act));
        let patch = now(baseline.patch(&place, &[])).unwrap();
        apply(&clone, &patch.text);
        prop_assert_eq!(tree(&clone), tree(&place.base));
        prop_assert_eq!(patch.text.is_empty(), patch.files.is_empty());
    }
}

fn fifo(at: &Path) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    let _ = std::fs::remove_file(at);
    nix::unistd::mkfifo(at, nix::sys::stat::Mode::S_IRWXU).unwrap();
}

/// Git would wait on each of these for ever: the patch is made without them, says what does not count, and holds the rest.
#[test]
fn a_fifo_in_the_place_of_a_file_of_gits_is_not_waited_for() {
    /// The FIFO, whether it is there from the start, and whether `kept.log`, ignored and new, is in the patch.
    const ROWS: [(&str, bool, bool); 15] = [
        (".gitignore", true, true),
        (".gitignore", false, true),
        ("deep/er/.gitignore", true, true),
        ("deep/er/.gitignore", false, true),
        (".gitattributes", true, false),
        ("dir/.gitattributes", false, false),
        (".git/index", true, false),
        (".git/index", false, false),
        (".git/info/exclude", true, false),
        (".git/info/exclude", false, false),
        (".git/HEAD", true, false),
        (".git/objects/info/alternates", true, false),
        (".git/objects/pack/pack-1.idx", false, false),
        ("nested/.git/HEAD", false, false),
        ("nested/.git/config", false, false),
    ];
    for (path, first, ignored) in ROWS {
        let place = Place::new();
        for (name, content) in [("a", "1\n"), ("dir/b", "1\n"), ("deep/er/c", "1\n"), (".gitignore", "*.log\n"), ("old.log", "1\n")] {
            place.write(name, content);
        }
        place.commit();
        let clone = place.clone_to("clone");
        place.write("nested/f", "1\n");
        git(&place.base.join("nested"), &["init", "-q"]);
        git(&place.base.join("nested"), &["add", "-A"]);
        git(&place.base.join("nested"), &["commit", "-q", "-m", "n"]);
        if first {
            fifo(&place.base.join(path));
        }
        let begun = std::time::Instant::now();
        let baseline = now(Baseline::take(&place)).unwrap_or_else(|fault| panic!("{path}: {fault}"));
        place.write("a", "2\n");
        place.write("dir/new", "1\n");
        place.write("nested/f", "2\n");
        place.write("kept.log", "1\n");
        if !first {
            fifo(&place.base.join(path));
        }
        let patch = now(baseline.patch(&place, &[])).unwrap_or_else(|fault| panic!("{path}: {fault}"));
        assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{path}");
        let found = names(&patch);
        for (name, there) in [("a", true), ("dir/new", true), ("nested/f", true), ("kept.log", ignored), ("old.log", false)] {
            assert_eq!(found.iter().any(|(path, _)| *path == name), there, "{path}, {first}: {name}: {found:?}");
        }
        let says = ignored || path == ".git/index" || path == ".git/info/exclude";
        assert_eq!(patch.notes.iter().any(|note| note.contains(path) && note.contains("FIFO")), says, "{path}: {:?}", patch.notes);
        if !path.ends_with(".gitignore") {
            let text = String::from_utf8(patch.text).unwrap();
            let own: String = text.split_inclusive("diff --git ").filter(|part| !part.contains("nested/f")).collect();
            let own = own.strip_suffix("diff --git ").unwrap_or(&own);
            apply(&clone, own.as_bytes());
        }
    }
}

/// What git cannot be kept out of is named at once.
#[test]
fn a_fifo_in_a_nested_repository_is_named_at_the_start() {
    let place = Place::new();
    place.write("a", "1\n");
    place.commit();
    place.write("nested/f", "1\n");
    git(&place.base.join("nested"), &["init", "-q"]);
    fifo(&place.base.join("nested/.git/HEAD"));
    let fault = now(Baseline::take(&place)).unwrap_err();
    assert_eq!(fault.code(), FaultCode::NotRegularFile);
    assert!(fault.to_string().contains("nested/.git"), "{fault}");
}

/// A file that no patch could hold is left out and named; it does not cost the patch.
#[test]
fn a_file_that_is_too_large_is_left_out_and_named() {
    let place = Place::new();
    for (path, content) in [("a", "1\n"), ("grows", "1\n"), ("nested/f", "1\n"), (".gitignore", "ignored\n!huge\n")] {
        place.write(path, content);
    }
    place.commit();
    let clone = place.clone_to("clone");
    let sparse = |path: &str| {
        std::fs::File::options().write(true).create(true).truncate(false).open(place.base.join(path)).unwrap().set_len(8 << 30).unwrap()
    };
    sparse("before [x]");
    let begun = std::time::Instant::now();
    let baseline = now(Baseline::take(&place)).unwrap();
    place.write("a", "2\n");
    place.write("new", "1\n");
    git(&place.base.join("nested"), &["init", "-q"]);
    for path in ["huge", "grows", "nested/f", "ignored", "nested/huge"] {
        sparse(path);
    }
    let patch = now(baseline.patch(&place, &[])).unwrap();
    assert!(begun.elapsed() < std::time::Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!(names(&patch), [("a", Status::Modified), ("new", Status::Added)]);
    for path in ["huge", "grows", "nested/f", "nested/huge", "before [x]"] {
        let of = |note: &&String| note.starts_with(&format!("{path} has more than 128 MiB"));
        assert_eq!(patch.notes.iter().filter(of).count(), 1, "{path}: {:?}", patch.notes);
    }
    assert!(!patch.notes.iter().any(|note| note.starts_with("ignored")), "{:?}", patch.notes);
    apply(&clone, &patch.text);
}
