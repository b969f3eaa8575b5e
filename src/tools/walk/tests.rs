use super::*;
use crate::tools::testbed::{Bed, soon};
use crate::workspace::RelPath;

struct Collect(Vec<String>);

impl Visit for Collect {
    fn entry(&mut self, entry: &Entry<'_>) -> Want {
        self.0.push(String::from_utf8_lossy(entry.path).into_owned());
        if entry.kind == Kind::File { Want::Content } else { Want::Nothing }
    }

    fn file(&mut self, dir: &OpenDir, name: &OsStr, path: &[u8]) {
        assert!(dir.file(Path::new(name)).is_ok());
        self.0.push(format!("content {}", String::from_utf8_lossy(path)));
    }
}

fn options() -> Options {
    Options { hidden: true, ignore_rules: true, enter_git: false, show_git: false, max_depth: None, until: soon() }
}

/// The paths that a walk visits, sorted, without the calls for content; those are checked to be there once for each file.
fn paths(bed: &Bed, from: &str, options: &Options) -> Vec<String> {
    let root = Root::open(&bed.base, &bed.base.rel(from).unwrap()).unwrap();
    let walked = walk(&root, options, || Collect(Vec::new())).unwrap();
    assert!(walked.finished);
    let mut all: Vec<String> = walked.visitors.into_iter().flat_map(|visitor| visitor.0).collect();
    all.sort_unstable();
    let (content, paths): (Vec<String>, Vec<String>) = all.into_iter().partition(|path| path.starts_with("content "));
    let files = paths.iter().filter(|path| bed.root.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file()));
    assert!(files.eq(content.iter().map(|path| path.trim_start_matches("content "))));
    paths
}

#[test]
fn hidden_is_visited_git_is_not_and_links_are_not_entered() {
    let bed = Bed::new(&[(".github/ci.yml", ""), (".git/config", ""), ("a/b/c", ""), (".env", "")]);
    bed.link("a", "link").link("..", "up").fifo("pipe");
    assert_eq!(paths(&bed, ".", &options()), [".env", ".github", ".github/ci.yml", "a", "a/b", "a/b/c", "link", "pipe", "up"]);
    assert_eq!(paths(&bed, ".git", &options()), [".git/config"]);
    assert_eq!(paths(&bed, "./a/", &Options { max_depth: Some(1), ..options() }), ["a/b"]);
    assert_eq!(paths(&bed, ".", &Options { hidden: false, ..options() }), ["a", "a/b", "a/b/c", "link", "pipe", "up"]);
    assert!(paths(&bed, ".", &Options { enter_git: true, ..options() }).contains(&".git/config".into()));
    assert_eq!(paths(&bed, "link", &options()), ["link/b", "link/b/c"]);
}

#[test]
fn ignore_rules_hold_from_the_base_down() {
    let bed = Bed::new(&[
        (".gitignore", "*.log\n/dist\nsub/deep/x\n!keep.log\n"),
        ("a.log", ""),
        ("keep.log", ""),
        ("dist/app.js", ""),
        ("sub/dist/y", ""),
        ("sub/deep/x", ""),
        ("sub/deep/z", ""),
        ("sub/.ignore", "z\n"),
        ("sub/.gitignore", "!b.log\r\n"),
        ("sub/b.log", ""),
    ]);
    let all = [".gitignore", "keep.log", "sub", "sub/.gitignore", "sub/.ignore", "sub/b.log", "sub/deep", "sub/dist", "sub/dist/y"];
    assert_eq!(paths(&bed, ".", &options()), all);
    // The rules above a folder that is named hold in it too.
    assert_eq!(paths(&bed, "sub/deep", &options()), [""; 0]);
    assert_eq!(paths(&bed, "sub/deep", &Options { ignore_rules: false, ..options() }), ["sub/deep/x", "sub/deep/z"]);
    // A folder that is ignored was named all the same.
    assert_eq!(paths(&bed, "dist", &options()), ["dist/app.js"]);
    let root = Root::open(&bed.base, &RelPath::base()).unwrap();
    let walked = walk(&root, &options(), || Collect(Vec::new())).unwrap();
    let ignored: Vec<&[u8]> = walked.ignored_entries.iter().map(|(path, _)| path.as_slice()).collect();
    assert_eq!((walked.ignored, ignored), (4, vec![&b"a.log"[..], b"dist", b"sub/deep/x", b"sub/deep/z"]));
}

#[test]
fn a_repository_within_has_its_own_rules() {
    let bed = Bed::new(&[(".gitignore", "x\n"), ("in/.git/info/exclude", "y\n"), ("in/x", ""), ("in/y", ""), ("x", "")]);
    assert_eq!(paths(&bed, ".", &options()), [".gitignore", "in", "in/x"]);
}

#[test]
fn a_large_folder_is_shared_among_the_workers() {
    let bed = Bed::new(&[]);
    for n in 0..1000 {
        bed.file(format!("d/{n:04}"), "");
    }
    assert_eq!(paths(&bed, ".", &options()).len(), 1001);
}

#[test]
fn a_walk_that_is_late_says_so_and_one_that_panics_is_a_fault() {
    let bed = Bed::new(&[("a/b", "")]);
    let root = Root::open(&bed.base, &RelPath::base()).unwrap();
    let walked = walk(&root, &Options { until: Instant::now(), ..options() }, || Collect(Vec::new())).unwrap();
    assert!(!walked.finished);

    struct Panic;
    impl Visit for Panic {
        fn entry(&mut self, _: &Entry<'_>) -> Want {
            panic!("a bug");
        }
    }
    let Err(fault) = walk(&root, &options(), || Panic) else { panic!("no fault") };
    assert_eq!(fault.code(), FaultCode::Internal);
}

#[test]
fn names_that_are_not_utf8_and_folders_that_cannot_be_read() {
    let bed = Bed::new(&[]);
    bed.file(b"a\xff/x", "");
    let root = Root::open(&bed.base, &bed.base.rel("a\\xff").unwrap()).unwrap();
    assert_eq!(root.path_of(b"x"), b"a\xff/x");
    assert_eq!(shown(&bed.base.rel("./a\\xff//").unwrap()), "a\\xff");
    assert_eq!(Root::open(&bed.base, &bed.base.rel("..").unwrap()).err().unwrap().code(), FaultCode::OutsideWorkspace);
    bed.link("../..", "out");
    assert_eq!(Root::open(&bed.base, &bed.base.rel("out").unwrap()).err().unwrap().code(), FaultCode::OutsideWorkspace);
}
