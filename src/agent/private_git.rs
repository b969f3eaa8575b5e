//! Our own git: a repository of bailiwick's own, outside the workspace, that looks at the workspace as its work tree.
//!
//! Every command runs in an `Own` jail (the workspace read-only) with a private `GIT_DIR` and index. It never reads the
//! configuration of the workspace's repository, never runs one of its hooks, filters, drivers or monitors, and never writes
//! its index or objects. From that repository it reads two things: the names in its index and, as alternates, its objects.

use super::Doorway;
use super::avoid::{Avoid, show};
use crate::envelope::{Fault, FaultCode};
use crate::session::OwnOutput;
use crate::tools::special::LARGE;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The configuration, whole. Blobs are the bytes on disk: no line ends, encodings or keywords are converted.
const CONFIG: &str = "\
[core]
	repositoryformatversion = 0
	bare = false
	fileMode = true
	symlinks = true
	ignoreCase = false
	precomposeUnicode = false
	protectHFS = false
	protectNTFS = false
	autocrlf = false
	safecrlf = false
	hooksPath = /dev/null
	attributesFile = /dev/null
	excludesFile = .git/info/exclude
	fsmonitor = false
	untrackedCache = false
	splitIndex = false
	sparseCheckout = false
	quotePath = true
	looseCompression = 1
	fsync = none
[index]
	sparse = false
[gc]
	auto = 0
[maintenance]
	auto = false
[submodule]
	recurse = false
[advice]
	addEmbeddedRepo = false
";

/// Attributes of the highest precedence, which undo what files in the tree say. `working-tree-encoding` has no valid "off",
/// so it is made unspecified; so is `diff`, because its "off" would make every file binary.
const ATTRIBUTES: &str = "* -text -crlf !eol -ident -filter !working-tree-encoding !diff !merge !whitespace\n";

/// A blob that stands for "look at the disk" in an index entry whose content is not known yet.
pub(super) const EMPTY_BLOB: &str = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";
/// The mode of a nested repository in an index.
const GITLINK: u32 = 0o160_000;
/// Nested repositories that are looked into; more are left out, and said.
const MOST_NESTED: usize = 256;

/// What an index says of one path: a mode and the id of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) mode: u32,
    pub(super) oid: String,
}

/// Entries by path, relative to the base, as bytes.
pub(super) type Entries = BTreeMap<Vec<u8>, Entry>;

/// What a scan of the work tree found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Every file and link that counts.
    pub(super) entries: Entries,
    /// Ignored files and folders (these end with `/`).
    pub(super) ignored: Vec<Vec<u8>>,
    /// What could not be looked at.
    pub(super) notes: Vec<String>,
}

/// How long one git command may take. A large tree takes a minute; what waits for somebody would take for ever.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same where there is something that it may wait for.
const DOUBTFUL: Duration = Duration::from_secs(20);
/// The tree without entries, which every git knows.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
/// The first version of git that takes attributes from a tree instead of files.
const ATTRIBUTES_OF_A_TREE: (u32, u32) = (2, 41);

/// The private repository.
#[derive(Debug)]
pub(super) struct PrivateGit {
    dir: PathBuf,
    indexes: AtomicU32,
    /// What it does without.
    avoid: RefCell<Rc<Avoid>>,
}

impl PrivateGit {
    /// Makes the repository in the session's own folder.
    pub(super) async fn create(doorway: &impl Doorway) -> Result<Self, Fault> {
        let nanos = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let git =
            Self { dir: doorway.own_dir().join(format!("patch-{nanos:x}.git")), indexes: AtomicU32::new(0), avoid: RefCell::default() };
        // Made inside the jail, so that it belongs to whoever the jails are; no hostile byte has been read so far.
        let init = [OsStr::new("init"), OsStr::new("-q"), OsStr::new("--bare"), OsStr::new("--template="), git.dir.as_os_str()];
        let mut argv = vec![OsString::from("git")];
        argv.extend(init.iter().map(OsString::from));
        let mut env = Self::plain_env();
        env.push(("GIT_DEFAULT_HASH".into(), "sha1".into()));
        Self::succeeded(&argv, doorway.own(argv.clone(), env, None).await?)?;
        git.write("config", CONFIG.as_bytes())?;
        git.write("info/attributes", ATTRIBUTES.as_bytes())?;
        git.look_out(doorway).await?;
        let avoid = git.avoid();
        if let Some(at) = avoid.nested.first() {
            let at = show([at, b".git".as_slice()].concat());
            return Err(refused(&format!("a file in {at}")));
        }
        if avoid.objects.is_some() {
            return Ok(git);
        }
        let objects = doorway.base().join(".git/objects");
        if !objects.as_os_str().as_bytes().contains(&b'\n') {
            let mut line = objects.into_os_string().into_vec();
            line.push(b'\n');
            git.write("objects/info/alternates", &line)?;
        }
        Ok(git)
    }

    /// A repository that [`Self::create`] made in another session, moved to `dir`.
    pub(super) fn reopen(dir: PathBuf) -> Self {
        // Index files of the other session may lie there.
        Self { dir, indexes: AtomicU32::new(1 << 20), avoid: RefCell::default() }
    }

    /// The name of its folder.
    pub(super) fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn avoid(&self) -> Rc<Avoid> {
        self.avoid.borrow().clone()
    }

    /// Finds out what git must not open from now on. To be called before it looks at the work tree.
    ///
    /// # Errors
    /// `not_regular_file` for what this git cannot do without.
    pub(super) async fn look_out(&self, doorway: &impl Doorway) -> Result<(), Fault> {
        let avoid = Avoid::of(&doorway.special_files().await);
        if avoid.objects.is_some() {
            // What is not in the private store cannot be found then, and that is said.
            let _ = std::fs::remove_file(self.dir.join("objects/info/alternates"));
        }
        if let Some(path) = &avoid.attributes
            && self.version(doorway).await? < ATTRIBUTES_OF_A_TREE
        {
            return Err(refused(path));
        }
        *self.avoid.borrow_mut() = Rc::new(avoid);
        Ok(())
    }

    async fn version(&self, doorway: &impl Doorway) -> Result<(u32, u32), Fault> {
        let said = doorway.own(["git", "version"].map(OsString::from).to_vec(), Self::plain_env(), None).await?.stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let mut numbers = said.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok());
        Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), Fault> {
        let path = self.dir.join(name);
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, content));
        made.map_err(|error| Fault::new(FaultCode::IoError, format!("the private git repository cannot be written ({name}): {error}")))
    }

    fn plain_env() -> Vec<(OsString, OsString)> {
        [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_COUNT", "0"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("LC_ALL", "C"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec()
    }

    /// Runs one git command with `at` (beneath the base, empty for the base itself) as the top of the work tree.
    async fn git(
        &self,
        doorway: &impl Doorway,
        at: &[u8],
        index: &Path,
        args: &[impl AsRef<OsStr>],
        stdin: Option<Vec<u8>>,
    ) -> Result<OwnOutput, Fault> {
        let avoid = self.avoid();
        let mut argv: Vec<OsString> = vec!["git".into()];
        if avoid.excludes.contains(at) {
            argv.extend(["-c".into(), "core.excludesFile=/dev/null".into()]);
        }
        if !at.is_empty() {
            // `./`: a folder whose name begins with a dash is still a folder.
            let mut place = b"./".to_vec();
            place.extend_from_slice(at);
            argv.extend(["-C".into(), OsString::from_vec(place)]);
        }
        argv.extend(args.iter().map(OsString::from));
        let mut env = Self::plain_env();
        env.push(("GIT_DIR".into(), self.dir.clone().into()));
        env.push(("GIT_WORK_TREE".into(), ".".into()));
        env.push(("GIT_INDEX_FILE".into(), index.into()));
        if avoid.attributes.is_some() {
            // Nothing else names attributes then: those in the private repository come first in any case.
            env.push(("GIT_ATTR_SOURCE".into(), EMPTY_TREE.into()));
        }
        let patience = if avoid.is_doubtful() { DOUBTFUL } else { PATIENCE };
        // Dropped, it is ended.
        tokio::time::timeout(patience, doorway.own(argv, env, stdin)).await.unwrap_or_else(|_| {
            let fault =
                Fault::new(FaultCode::DeadlineExceeded, format!("git was still at work after {} s and was ended", patience.as_secs()));
            Err(match avoid.elsewhere.clone().or_else(|| avoid.nested.first().map(|at| show(at.clone()))) {
                Some(path) => fault.hint(format!("a FIFO or a device makes git wait for ever: remove the one at {path}")),
                None => fault,
            })
        })
    }

    /// As [`Self::git`], and anything but success is a fault.
    pub(super) async fn run(
        &self,
        doorway: &impl Doorway,
        at: &[u8],
        index: &Path,
        args: &[impl AsRef<OsStr>],
        stdin: Option<Vec<u8>>,
    ) -> Result<Vec<u8>, Fault> {
        let output = self.git(doorway, at, index, args, stdin).await?;
        let argv: Vec<OsString> = args.iter().map(OsString::from).collect();
        Self::succeeded(&argv, output)
    }

    fn succeeded(argv: &[OsString], output: OwnOutput) -> Result<Vec<u8>, Fault> {
        if output.status == 0 {
            return Ok(output.stdout);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().chars().take(600).collect::<String>();
        let what = argv.iter().take(2).map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Err(Fault::new(FaultCode::Internal, format!("git {what} ended with {}: {said}", output.status)))
    }

    /// A name for an index file that does not exist yet. None is used twice: what is on disk is always looked at anew, and
    /// no remembered size or time can stand for it.
    pub(super) fn index(&self) -> PathBuf {
        self.dir.join(format!("index-{}", self.indexes.fetch_add(1, Ordering::Relaxed)))
    }

    /// Looks at the whole work tree. `seeds` are paths that count whether they are ignored or not, as far as they exist. `ignored`: list what
    /// is ignored, too.
    pub(super) async fn scan(&self, doorway: &impl Doorway, seeds: &Entries, ignored: bool) -> Result<Scan, Fault> {
        let avoid = self.avoid();
        let mut scan = Scan { notes: avoid.notes(), ..Scan::default() };
        let mut nested: Vec<Vec<u8>> = vec![Vec::new()];
        // What git is kept out of, it does not find.
        nested.extend(avoid.nested.iter().cloned());
        let mut seen: BTreeSet<Vec<u8>> = nested.iter().cloned().collect();
        let mut looked_into = 0;
        while let Some(at) = nested.pop() {
            if looked_into > MOST_NESTED {
                scan.notes.push(format!("more than {MOST_NESTED} nested repositories; the rest does not count"));
                break;
            }
            let index = self.index();
            looked_into += 1;
            if !avoid.nested.is_empty() || self.dir.join("info/exclude").exists() {
                let lines = avoid.lines(&at).ok_or_else(|| refused("a file in the folder of a nested repository"))?;
                self.write("info/exclude", &lines)?;
            }
            let mut known = self.tracked(doorway, &at).await?;
            if at.is_empty() {
                known.extend(seeds.iter().map(|(path, entry)| (path.clone(), entry.clone())));
            }
            self.fill(doorway, &at, &index, &known).await?;
            // Nested repositories come out as links, or as errors where they have no commit; both are looked into by themselves.
            // An unreadable file keeps what its seed says. With `-f` no rules are read, and so none of their files is opened.
            let mut add: Vec<OsString> = ["add", "-A", "--ignore-errors"].map(OsString::from).to_vec();
            add.extend(avoid.rules.is_some().then(|| "-f".into()));
            let exclusions = avoid.exclusions(&at);
            if !exclusions.is_empty() {
                // What is excluded keeps its entry, where it has one.
                add.insert(0, "--no-literal-pathspecs".into());
                add.push("--".into());
                add.extend(exclusions);
            }
            let added = self.git(doorway, &at, &index, &add, None).await?;
            if added.status != 0 && added.status != 1 {
                Self::succeeded(&["add".into()], added)?;
            } else if added.status == 1 {
                let said = String::from_utf8_lossy(&added.stderr);
                scan.notes.extend(said.lines().filter(|line| line.contains("Permission denied")).take(20).map(str::to_owned));
            }
            let prefixed = |path: &[u8]| [at.as_slice(), path].concat();
            let mut found = Vec::new();
            for (path, entry) in self.list(doorway, &at, &index).await? {
                if entry.mode == GITLINK {
                    found.push([at.as_slice(), &path, b"/"].concat());
                } else {
                    scan.entries.insert(prefixed(&path), entry);
                }
            }
            let mut others = vec!["ls-files", "-o", "-z"];
            others.extend(avoid.rules.is_none().then_some("--exclude-standard"));
            let others = self.run(doorway, &at, &index, &others, None).await?;
            found.extend(split(&others).filter(|path| path.ends_with(b"/")).map(prefixed));
            // One that is ignored would not count anyhow.
            let left_out = avoid.large.iter().filter(|large| {
                let below = large.strip_prefix(at.as_slice());
                below.is_some_and(|below| known.contains_key(below) || split(&others).any(|other| other == below))
            });
            scan.notes.extend(
                left_out.take(20).map(|path| {
                    format!("{} has more than {} MiB: what changed in it is not in the patch", show(path.clone()), LARGE >> 20)
                }),
            );
            nested.extend(found.into_iter().filter(|path| seen.insert(path.clone())));
            if ignored && avoid.rules.is_none() {
                let ignored = ["ls-files", "-o", "-i", "-z", "--exclude-standard", "--directory"];
                let ignored = self.run(doorway, &at, &index, &ignored, None).await?;
                scan.ignored.extend(split(&ignored).map(prefixed));
            }
        }
        Ok(scan)
    }

    /// The names that the index of the workspace's own repository holds. That there is none, or that it cannot be read
    /// without its own repository (a split index), means only that no ignored file counts as tracked.
    async fn tracked(&self, doorway: &impl Doorway, at: &[u8]) -> Result<Entries, Fault> {
        if self.avoid().indexes.contains(at) {
            return Ok(Entries::new());
        }
        let output = self.git(doorway, at, Path::new(".git/index"), &["ls-files", "-s", "-z"], None).await?;
        let entries = if output.status == 0 { parse(&output.stdout) } else { Entries::new() };
        Ok(entries.into_iter().filter(|(path, entry)| entry.mode != GITLINK && is_indexable(path)).collect())
    }

    /// Puts entries into an index file.
    pub(super) async fn fill(&self, doorway: &impl Doorway, at: &[u8], index: &Path, entries: &Entries) -> Result<(), Fault> {
        let mut text = Vec::new();
        for (path, entry) in entries {
            text.extend_from_slice(format!("{:o} {} 0\t", entry.mode, entry.oid).as_bytes());
            text.extend_from_slice(path);
            text.push(0);
        }
        self.run(doorway, at, index, &["update-index", "-z", "--index-info"], Some(text)).await.map(drop)
    }

    /// What an index file holds.
    pub(super) async fn list(&self, doorway: &impl Doorway, at: &[u8], index: &Path) -> Result<Entries, Fault> {
        Ok(parse(&self.run(doorway, at, index, &["ls-files", "-s", "-z"], None).await?))
    }

    /// Writes a tree of entries and returns its id.
    pub(super) async fn tree(&self, doorway: &impl Doorway, entries: &Entries) -> Result<String, Fault> {
        let index = self.index();
        self.fill(doorway, b"", &index, entries).await?;
        let oid = self.run(doorway, b"", &index, &["write-tree", "--missing-ok"], None).await?;
        let oid = String::from_utf8_lossy(&oid).trim().to_owned();
        if oid.len() != EMPTY_BLOB.len() || !oid.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(Fault::new(FaultCode::Internal, "git write-tree gave no object id"));
        }
        Ok(oid)
    }

    /// The entries of a tree.
    pub(super) async fn entries_of(&self, doorway: &impl Doorway, tree: &str) -> Result<Entries, Fault> {
        let listing = self.run(doorway, b"", &self.index(), &["ls-tree", "-r", "-z", "--full-tree", tree], None).await?;
        let read = |record: &[u8]| {
            let tab = record.iter().position(|b| *b == b'\t')?;
            let mut head = std::str::from_utf8(&record[..tab]).ok()?.split(' ');
            let (mode, oid) = (u32::from_str_radix(head.next()?, 8).ok()?, head.nth(1)?.to_owned());
            Some((record[tab + 1..].to_vec(), Entry { mode, oid }))
        };
        Ok(split(&listing).filter_map(read).collect())
    }

    /// What entries were before a patch was applied to them.
    pub(super) async fn without(&self, doorway: &impl Doorway, entries: &Entries, patch: &[u8]) -> Result<Entries, Fault> {
        let index = self.index();
        self.fill(doorway, b"", &index, entries).await?;
        let args = ["apply", "--cached", "--reverse", "--whitespace=nowarn", "-"];
        self.run(doorway, b"", &index, &args, Some(patch.to_vec())).await?;
        self.list(doorway, b"", &index).await
    }

    /// Copies everything that a tree needs into the private store, so that it outlives the workspace's repository.
    pub(super) async fn keep(&self, doorway: &impl Doorway, tree: &str) -> Result<(), Fault> {
        let pack = self.dir.join("objects/pack/pack");
        let args =
            [OsStr::new("pack-objects"), OsStr::new("-q"), OsStr::new("--revs"), OsStr::new("--missing=allow-any"), pack.as_os_str()];
        self.run(doorway, b"", &self.index(), &args, Some(format!("{tree}\n").into_bytes())).await.map(drop)
    }
}

/// Whether git takes this path into an index at all.
pub(super) fn is_indexable(path: &[u8]) -> bool {
    // Records are told apart by NUL.
    !path.contains(&0)
        && path.split(|b| *b == b'/').all(|part| !part.is_empty() && part != b"." && part != b".." && !part.eq_ignore_ascii_case(b".git"))
}

/// Git would wait for it.
fn refused(path: &str) -> Fault {
    Fault::new(FaultCode::NotRegularFile, format!("{path} is a FIFO or a device, for which git would wait"))
        .hint("remove it, or put a file in its place")
}

/// NUL-terminated records.
pub(super) fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0).filter(|record| !record.is_empty())
}

/// Reads `ls-files -s -z`. Of an unmerged path any stage will do: the disk decides.
fn parse(listing: &[u8]) -> Entries {
    split(listing)
        .filter_map(|record| {
            let tab = record.iter().position(|b| *b == b'\t')?;
            let mut head = std::str::from_utf8(&record[..tab]).ok()?.split(' ');
            let mode = u32::from_str_radix(head.next()?, 8).ok()?;
            Some((record[tab + 1..].to_vec(), Entry { mode, oid: head.next()?.to_owned() }))
        })
        .collect()
}
