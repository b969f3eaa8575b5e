//! The repositories of a workspace, wherever they are and whatever they are called, and what leads to some elsewhere.
//!
//! Follows no link. Opens no file, and no folder that its owner has closed unless it is told to.

use super::super::BaseDir;
use super::super::dir::Kind;
use super::super::entries::Entries;
use super::{open_at, open_folder, open_up, set_mode};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::statfs::fstatfs;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most bytes of names that a search finds, so that they can be told.
const FOUND: usize = 4 << 20;

/// What a walk over the folders of a workspace found.
#[derive(Debug, Default)]
pub struct Swept {
    /// Folders that git takes for repositories, relative to the base; empty: the base itself.
    pub git_dirs: Vec<OsString>,
    /// Files and links by the name that git follows to a repository elsewhere, relative to the base.
    pub pointers: Vec<OsString>,
    /// Folders that could not be listed, relative to the base.
    pub closed: Vec<OsString>,
    /// The walk ended before it had seen everything.
    pub cut: bool,
}

/// Folders as they were when they were last listed, so that one that has not changed since need not be listed again.
///
/// A folder's change time moves with each name that is made, removed or renamed in it, and no program can set it. It has the grain of the
/// kernel's clock: what changed shortly before it was listed is not kept, for it may have changed once more without showing it.
#[derive(Debug, Default)]
pub struct Known {
    /// The file system of the base, where it is one whose times can be relied on.
    device: Option<u64>,
    folders: HashMap<OsString, (Identity, Listed)>,
}

/// Inode and change time.
type Identity = (u64, i64, i64);

/// How long ago a folder must have changed when it is listed.
const SETTLED: Duration = Duration::from_secs(2);

/// File systems that take the times from this kernel: ext, XFS, Btrfs, tmpfs, overlay, F2FS. Others may get them from a server.
const TIMED: [i64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0xf2f5_2010];

impl Known {
    /// Lists the folders of a workspace, for a search that comes later.
    pub fn by_listing(base: &BaseDir, until: Instant) -> Self {
        let mut known = Self::default();
        if let (Ok(system), Ok(stat)) = (fstatfs(base.as_fd()), fstat(base.as_fd()))
            && TIMED.contains(&system.filesystem_type().0)
        {
            known.device = Some(stat.st_dev);
            sweep(base, OsString::new(), until, &mut open_folder, &mut Knowledge::Gathers(&mut known));
        }
        known
    }

    fn identity(&self, stat: &FileStat) -> Option<Identity> {
        (Some(stat.st_dev) == self.device && Kind::of_mode(stat.st_mode) == Kind::Folder).then_some((
            stat.st_ino,
            stat.st_ctime,
            stat.st_ctime_nsec,
        ))
    }

    /// What is in a folder, if it is as it was.
    fn of(&self, base: &BaseDir, path: &OsStr) -> Option<Listed> {
        let (identity, listed) = self.folders.get(path)?;
        let now = fstatat(base.as_fd(), if path.is_empty() { OsStr::new(".") } else { path }, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        (self.identity(&now) == Some(*identity)).then(|| listed.clone())
    }

    /// What a folder is before it is listed, where that will be of use.
    fn before(&self, folder: BorrowedFd<'_>) -> Option<Identity> {
        let identity = self.identity(&fstat(folder).ok()?)?;
        let settled = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.checked_sub(SETTLED)?;
        (identity.1 < i64::try_from(settled.as_secs()).ok()?).then_some(identity)
    }
}

/// What a walk has of earlier ones, or leaves for later ones.
enum Knowledge<'a> {
    None,
    Has(&'a Known),
    Gathers(&'a mut Known),
}

/// What of a folder counts.
#[derive(Clone, Debug, Default)]
struct Listed {
    head: bool,
    objects: bool,
    refs: bool,
    common: bool,
    pointer: bool,
    /// The folders in it.
    inner: Vec<OsString>,
}

impl Listed {
    /// By the entries of an open folder. What cannot be read to its end is what was read of it.
    fn read(folder: BorrowedFd<'_>, entries: &mut Entries) -> Self {
        let mut listed = Self::default();
        let _ = entries.each(folder, |name, kind| {
            match name {
                b"HEAD" => listed.head = true,
                b"objects" => listed.objects = true,
                b"refs" => listed.refs = true,
                b"commondir" => listed.common = true,
                b".git" => listed.pointer = matches!(kind, Some(Kind::File | Kind::Link)),
                _ => {}
            }
            if matches!(kind, Some(Kind::Folder) | None) {
                listed.inner.push(OsStr::from_bytes(name).to_owned());
            }
        });
        listed
    }
}

/// Looks for git folders in the whole workspace: by what is in them, for a name is no evidence.
pub fn git_dirs(base: &BaseDir, until: Instant) -> Swept {
    sweep(base, OsString::new(), until, &mut open_folder, &mut Knowledge::None)
}

/// The same, without listing again what has not changed.
pub fn git_dirs_again(base: &BaseDir, until: Instant, known: &Known) -> Swept {
    sweep(base, OsString::new(), until, &mut open_folder, &mut Knowledge::Has(known))
}

/// The same in a folder that could not be listed: it and what is closed in it are opened for that, and closed again if nothing was found
/// and `keep_open` is not set.
pub fn git_dirs_behind(base: &BaseDir, folder: &Path, keep_open: bool, until: Instant) -> Swept {
    let mut opened: Vec<(OwnedFd, u32)> = Vec::new();
    let mut open = |base: BorrowedFd<'_>, path: &Path| {
        let mut dir = open_folder(base, Path::new("."))?;
        for part in path.components() {
            let held = open_at(dir.as_fd(), Path::new(&part), OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
            let before = fstat(&held)?.st_mode & 0o7777;
            dir = open_up(dir.as_fd(), part.as_os_str())?;
            if fstat(&held)?.st_mode & 0o7777 != before {
                opened.push((held, before));
            }
        }
        Ok(dir)
    };
    let swept = sweep(base, folder.into(), until, &mut open, &mut Knowledge::None);
    if !keep_open && swept.git_dirs.is_empty() && !swept.cut {
        for (held, mode) in opened {
            // It stays open at worst.
            let _ = set_mode(held.as_fd(), mode);
        }
    }
    swept
}

type Open<'a> = dyn FnMut(BorrowedFd<'_>, &Path) -> Result<OwnedFd, Errno> + 'a;

fn sweep(base: &BaseDir, top: OsString, until: Instant, open: &mut Open<'_>, knowledge: &mut Knowledge<'_>) -> Swept {
    let mut swept = Swept::default();
    // What lies near the top comes first: whoever makes deep trees to use up the time hides only what is in them.
    let mut left = VecDeque::from([top]);
    let (mut room, mut pointer_room) = (FOUND, FOUND);
    // What holds objects without being a repository is one for whoever says so in `commondir`.
    let (mut stores, mut shared) = (Vec::new(), false);
    let mut entries = Entries::new();
    while let Some(path) = left.pop_front() {
        if Instant::now() >= until || room == 0 {
            swept.cut = true;
            break;
        }
        let known = if let Knowledge::Has(known) = knowledge { known.of(base, &path) } else { None };
        let listed = match known {
            Some(listed) => listed,
            None => {
                let here = if path.is_empty() { Path::new(".") } else { Path::new(&path) };
                match open(base.as_fd(), here) {
                    Ok(folder) => {
                        let before = if let Knowledge::Gathers(known) = knowledge { known.before(folder.as_fd()) } else { None };
                        let listed = Listed::read(folder.as_fd(), &mut entries);
                        if let (Knowledge::Gathers(known), Some(identity)) = (&mut *knowledge, before) {
                            known.folders.insert(path.clone(), (identity, listed.clone()));
                        }
                        listed
                    }
                    // It has gone meanwhile, or is a link by now, which leads to what is found elsewhere.
                    Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
                    Err(_) => {
                        room = room.saturating_sub(path.len() + 1);
                        swept.closed.push(path);
                        continue;
                    }
                }
            }
        };
        let Listed { head, objects, refs, common, pointer, inner } = listed;
        if pointer && pointer_room < path.len() + 5 {
            // Many pointers hide no repository.
            swept.cut = true;
        } else if pointer {
            pointer_room -= path.len() + 5;
            swept.pointers.push(if path.is_empty() { ".git".into() } else { Path::new(&path).join(".git").into_os_string() });
        }
        let is_git = head && (objects && refs || common);
        // In a repository's own folders too: somebody may have put one there.
        for name in inner {
            let is_dot_git = name == ".git";
            let path = if path.is_empty() { name } else { Path::new(&path).join(name).into_os_string() };
            if is_dot_git { left.push_front(path) } else { left.push_back(path) }
        }
        shared |= common;
        if is_git {
            room = room.saturating_sub(path.len() + 1);
            swept.git_dirs.push(path);
        } else if objects && refs {
            stores.push(path);
        }
    }
    if shared {
        swept.git_dirs.append(&mut stores);
    }
    swept.git_dirs.sort();
    swept
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn repositories_are_found_by_what_is_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        for folder in ["a/.git/objects", "a/.git/refs", "b/objects", "b/refs", "c/.git"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("a/.git/HEAD"), "x").unwrap();
        fs::write(dir.path().join("c/.git/HEAD"), "x").unwrap();
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git"]);
        fs::write(dir.path().join("c/.git/commondir"), "../../b").unwrap();
        fs::write(dir.path().join("b/HEAD"), "x").unwrap();
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git", "b", "c/.git"]);
        // One in the folders of another is one.
        fs::create_dir_all(dir.path().join("a/.git/objects/ev/objects")).unwrap();
        fs::create_dir_all(dir.path().join("a/.git/objects/ev/refs")).unwrap();
        fs::write(dir.path().join("a/.git/objects/ev/HEAD"), "x").unwrap();
        assert_eq!(git_dirs(&base, far).git_dirs, ["a/.git", "a/.git/objects/ev", "b", "c/.git"]);
        assert!(git_dirs(&base, Instant::now()).cut);
        // What holds objects is a repository once somebody says so, and pointers are found.
        fs::remove_file(dir.path().join("b/HEAD")).unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/.git"), "gitdir: ../b").unwrap();
        let swept = git_dirs(&base, far);
        assert!(swept.git_dirs.contains(&"b".into()) && swept.pointers == ["d/.git"], "{swept:?}");
    }

    #[test]
    fn a_second_search_finds_what_the_first_would() {
        let dir = tempfile::tempdir().unwrap();
        let base = BaseDir::open(dir.path()).unwrap();
        let at = |path: &str| dir.path().join(path);
        let git = |path: &str| {
            fs::create_dir_all(at(path).join("objects")).unwrap();
            fs::create_dir_all(at(path).join("refs")).unwrap();
            fs::write(at(path).join("HEAD"), "x").unwrap();
        };
        let far = || Instant::now() + Duration::from_secs(60);
        let same = |known: &Known| {
            let (again, whole) = (git_dirs_again(&base, far(), known), git_dirs(&base, far()));
            assert_eq!((again.git_dirs, again.pointers, again.closed), (whole.git_dirs.clone(), whole.pointers, whole.closed));
            whole.git_dirs
        };
        git("old/.git");
        fs::create_dir_all(at("a/b/c")).unwrap();
        fs::create_dir_all(at("moved/deep")).unwrap();
        // What has just changed is not relied on.
        let fresh = Known::by_listing(&base, far());
        assert!(fresh.folders.is_empty(), "{fresh:?}");
        std::thread::sleep(SETTLED + Duration::from_millis(1100));
        let known = Known::by_listing(&base, far());
        // Where times cannot be relied on, nothing is known, and everything is listed again.
        assert_eq!(known.folders.len(), if known.device.is_some() { 10 } else { 0 }, "{known:?}");
        assert_eq!(same(&known), ["old/.git"]);
        // Each in a folder that was known: made, moved there whole, in the place of another, behind a link, gone.
        git("a/b/c");
        assert_eq!(same(&known), ["a/b/c", "old/.git"]);
        fs::rename(at("old"), at("moved/deep/here")).unwrap();
        assert_eq!(same(&known), ["a/b/c", "moved/deep/here/.git"]);
        fs::rename(at("moved"), at("old")).unwrap();
        assert_eq!(same(&known), ["a/b/c", "old/deep/here/.git"]);
        symlink("old", at("moved")).unwrap();
        assert_eq!(same(&known), ["a/b/c", "old/deep/here/.git"]);
        fs::rename(at("a/b"), at("x")).unwrap();
        fs::create_dir(at("a/b")).unwrap();
        assert_eq!(same(&known), ["old/deep/here/.git", "x/c"]);
        fs::write(at("a/b/.git"), "gitdir: ../../x/c").unwrap();
        assert_eq!(git_dirs_again(&base, far(), &known).pointers, ["a/b/.git"]);
        fs::remove_dir_all(at("x")).unwrap();
        fs::remove_dir_all(at("old")).unwrap();
        assert!(same(&known).is_empty());
    }
}
