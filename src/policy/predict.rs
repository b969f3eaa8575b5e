//! What the walls answer to an act, foretold from the charter alone.
//!
//! Never opens, changes or tries anything: it looks where links lead, and what kind of thing is at a name. Ordinary permissions are not
//! judged here: an act that is allowed may still fail as it fails outside of the sandbox.

use super::Access;
use super::charter::{Charter, Grant, Net, Own, Rights};
use serde::Serialize;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows in one path.
const MOST_LINKS: usize = 40;

/// Which walls stand besides Landlock and the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Walls {
    /// Mounts of the session's own: everything but the grants is read-only, and protected names are covered. Without them what is done to a
    /// protected name is undone after the command.
    pub mounts: bool,
    /// Which shared folders are the session's own.
    pub own: Own,
}

impl Walls {
    /// The walls of a session whose mounts are its own, or not.
    pub fn of(charter: &Charter, mounts: bool) -> Self {
        let own = |folder| mounts && charter.shared(folder).is_none();
        Self { mounts, own: Own { tmp: own("/tmp"), shm: own("/dev/shm") } }
    }
}

/// What is made at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Made {
    /// A folder.
    Folder,
    /// A link to elsewhere.
    Link,
    /// A file, a FIFO.
    Other,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Act<'a> {
    /// Read a file or list a folder.
    Read,
    /// Write to, or truncate, a file that exists.
    Write,
    /// Execute a file.
    Exec,
    /// Make a name that is not there.
    Make(Made),
    /// Remove a name.
    Remove,
    /// Rename to that name.
    Rename(&'a Spot),
    /// Make that name a hard link of the file.
    Link(&'a Spot),
    /// Change mode, owner or times.
    Metadata,
}

impl Act<'_> {
    /// Whether the act is one on a name, and not on what a link at that name leads to.
    pub fn is_on_the_name(&self) -> bool {
        matches!(self, Self::Make(_) | Self::Remove | Self::Rename(_) | Self::Link(_))
    }
}

/// What the walls answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether the act gets through and stays. Ordinary permissions may still refuse it.
    pub allowed: bool,
    /// What decides.
    pub by: By,
}

/// What decides over an act.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// This grant.
    Grant(Grant),
    /// This name is protected: it, what is beneath it, or a folder above it is covered.
    Protected(PathBuf),
    /// This name is protected: what a command does to it is undone afterwards, and said.
    Undone(PathBuf),
    /// The policy does not have this class of calls.
    NoAccess,
    /// No grant: everything that is not granted is refused.
    Nothing,
    /// The session's mounts are read-only here.
    ReadOnly,
    /// A granted folder is mounted here: its own name stays.
    Mounted(PathBuf),
    /// One name lies in this granted folder and the other does not: nothing is renamed or linked between two mounts (`EXDEV`, so programs copy).
    Between(PathBuf),
    /// The new name would have more rights than the old one, which Landlock refuses (`EXDEV`, so programs copy).
    MoreRights,
    /// The folder (`/tmp`, `/dev/shm`) is the session's own: the host's is not seen.
    OwnFolder,
    /// Nothing judges this here: `fs.metadata` is not enforced.
    NotJudged,
    /// The network that the policy gives.
    Net(Net),
}

/// A place as the kernel finds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Where the path leads, without links.
    pub real: PathBuf,
    /// Where links and `..` led on the way: places that have to be seen for the path to lead anywhere.
    #[serde(skip)]
    via: Vec<PathBuf>,
    /// A file with several names may be granted by another of them.
    #[serde(skip)]
    linked: Option<(u64, u64)>,
    /// What is there.
    #[serde(skip)]
    kind: Option<Made>,
}

impl Spot {
    /// Finds where a path leads; a relative one begins at `base`. `follow`: a link as the last part is followed. What is not there is as it
    /// is written. `None`: nowhere, by a loop of links or by `..` behind what is not there.
    pub fn find(base: &Path, path: &Path, follow: bool) -> Option<Self> {
        let whole = base.join(path);
        // A path that ends in a slash means what a link leads to.
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(whole.as_os_str());
        let follow = follow || bytes.ends_with(b"/") || bytes.ends_with(b"/.");
        let (mut real, mut via, mut links) = (PathBuf::from("/"), Vec::new(), 0);
        let mut left: Vec<PathBuf> = parts(&whole);
        while let Some(part) = left.pop() {
            if part.as_os_str() == ".." {
                if !real.is_dir() {
                    return None;
                }
                via.push(real.clone());
                real.pop();
                continue;
            }
            let at = real.join(&part);
            match fs::read_link(&at) {
                Ok(target) if follow || !left.is_empty() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return None;
                    }
                    via.push(at);
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    left.extend(parts(&target));
                }
                _ => real = at,
            }
        }
        let meta = real.symlink_metadata().ok();
        let linked = meta.as_ref().filter(|meta| !meta.is_dir() && meta.nlink() > 1).map(identity);
        let kind = meta.map(|meta| match (meta.is_dir(), meta.is_symlink()) {
            (true, _) => Made::Folder,
            (_, true) => Made::Link,
            _ => Made::Other,
        });
        Some(Self { real, via, linked, kind })
    }
}

/// The parts of a path, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> = path
        .components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect();
    parts.reverse();
    parts
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// A mount of the session's own.
struct Mount<'a> {
    path: PathBuf,
    writable: bool,
    /// Why it is there: this protected name, or a grant.
    protects: Option<&'a Path>,
}

/// One class of calls, behind its walls.
struct Class<'a> {
    charter: &'a Charter,
    grants: &'a [Grant],
    access: Access,
    walls: Walls,
    mounts: Vec<Mount<'a>>,
}

/// Foretells what the walls answer. `at` is found by [`Spot::find`], with `follow` unless the act is one on the name.
pub fn predict(charter: &Charter, walls: Walls, access: Access, at: &Spot, act: Act<'_>) -> Verdict {
    let refused = |by| Verdict { allowed: false, by };
    let Some(grants) = charter.grants(access) else { return refused(By::NoAccess) };
    let mounts = if walls.mounts { mounts(charter) } else { Vec::new() };
    let class = Class { charter, grants: &grants.0, access, walls, mounts };
    if class.is_hidden(at) || matches!(act, Act::Rename(to) | Act::Link(to) if class.is_hidden(to)) {
        return refused(By::OwnFolder);
    }
    match class.judge(at, act) {
        Ok(by) => Verdict { allowed: true, by },
        Err(by) => refused(by),
    }
}

/// The mounts that the session makes in the host's tree.
fn mounts(charter: &Charter) -> Vec<Mount<'_>> {
    let writable = charter.writable();
    let mut mounts: Vec<Mount<'_>> =
        writable.iter().filter(|path| path.exists()).map(|path| Mount { path: path.clone(), writable: true, protects: None }).collect();
    for (cover, pins) in charter.covered() {
        let of = charter.protect.iter().find(|name| charter.base.join(name) == cover).map(PathBuf::as_path);
        let writable = |path: &Path| writable.iter().any(|top| path.starts_with(top));
        mounts.extend(pins.into_iter().map(|path| Mount { writable: writable(&path), path, protects: of }));
        mounts.push(Mount { path: cover, writable: false, protects: of });
    }
    mounts
}

impl<'a> Class<'a> {
    fn judge(&self, at: &Spot, act: Act<'_>) -> Result<By, By> {
        let path = &at.real;
        match act {
            Act::Read => self.granted(path, at.linked, |rights| rights.read),
            Act::Exec => self.granted(path, at.linked, |rights| rights.exec).or_else(|by| self.runs_in_tmp(path).ok_or(by)),
            Act::Write => {
                let by = self.granted(path, at.linked, |rights| rights.write || rights.device)?;
                self.is_unprotected(path)?;
                match &by {
                    By::Grant(grant) if grant.rights.write => self.is_writable(path)?,
                    _ => {}
                }
                Ok(by)
            }
            Act::Metadata if self.access != Access::Execute => Err(By::Nothing),
            Act::Metadata => {
                self.is_unprotected(path)?;
                self.is_writable(path)?;
                self.granted(path, at.linked, |rights| rights.write).or(Ok(By::NotJudged))
            }
            Act::Make(made) => {
                let by = self.in_folder(path)?;
                self.may_stand(path, Some(made))?;
                Ok(by)
            }
            Act::Remove => {
                let by = self.in_folder(path)?;
                self.may_go(path)?;
                Ok(by)
            }
            Act::Link(to) => {
                let by = self.in_folder(&to.real)?;
                self.may_stand(&to.real, at.kind)?;
                self.moves(at, to, false)?;
                Ok(by)
            }
            Act::Rename(to) => {
                let by = self.in_folder(path)?;
                self.in_folder(&to.real)?;
                self.may_go(path)?;
                if to.real.symlink_metadata().is_ok() {
                    self.may_go(&to.real)?;
                }
                self.may_stand(&to.real, at.kind)?;
                self.moves(at, to, true)?;
                Ok(by)
            }
        }
    }

    /// Whether a folder of the session's own hides it, or something on the way to it.
    fn is_hidden(&self, at: &Spot) -> bool {
        let own = self.walls.own;
        let itself = |path: &Path| path == Path::new("/tmp") || path == Path::new("/dev/shm");
        let seen = |path: &Path, whole: bool| {
            !own.holds(path)
                || itself(path)
                || self.charter.all_grants().any(|grant| path.starts_with(&grant.path) || !whole && grant.path.starts_with(path))
        };
        !(seen(&at.real, true) && at.via.iter().all(|path| seen(path, false)))
    }

    /// The rights of a path: of all grants at it and above it.
    fn rights(&self, path: &Path) -> Rights {
        let of = self.grants.iter().filter(|grant| path.starts_with(&grant.path)).map(|grant| grant.rights);
        let own = if path.starts_with("/tmp") { Rights::ALL } else { Rights::CHANGE };
        of.chain(self.walls.own.holds(path).then_some(own)).fold(Rights::default(), Rights::union)
    }

    /// The first grant with a right. `linked`: the file by its other names.
    fn granted(&self, path: &Path, linked: Option<(u64, u64)>, has: fn(&Rights) -> bool) -> Result<By, By> {
        let by_name = |grant: &&Grant| {
            linked.is_some() && fs::symlink_metadata(&grant.path).is_ok_and(|meta| !meta.is_dir() && Some(identity(&meta)) == linked)
        };
        let covers = |grant: &&Grant| has(&grant.rights) && (path.starts_with(&grant.path) || by_name(grant));
        self.grants.iter().find(covers).map(|grant| By::Grant(grant.clone())).ok_or(By::Nothing)
    }

    /// A writable tree in the session's own `/tmp` that holds a folder with programs is executable as a whole.
    fn runs_in_tmp(&self, path: &Path) -> Option<By> {
        let tmp = Own { shm: false, ..self.walls.own };
        let trees = if tmp.holds(path) { self.charter.granted_in(tmp) } else { Vec::new() };
        let tree = trees.into_iter().filter(|tree| path.starts_with(&tree.path)).max_by_key(|tree| tree.path.components().count())?;
        let within = |grant: &&Grant| grant.rights.exec && grant.path.starts_with(&tree.path);
        if tree.exec { self.charter.all_grants().find(within).map(|grant| By::Grant(grant.clone())) } else { None }
    }

    /// A name is made and removed in its folder: the right on the folder counts, and a grant of the name itself is not enough.
    fn in_folder(&self, path: &Path) -> Result<By, By> {
        let folder = path.parent().unwrap_or(path);
        let by = self.granted(folder, None, |rights| rights.write)?;
        self.is_unprotected(path)?;
        self.is_writable(folder)?;
        Ok(by)
    }

    fn protected(&self, found: impl Fn(&Path) -> bool) -> Option<PathBuf> {
        self.charter.protect.iter().map(|name| self.charter.base.join(name)).find(|name| found(name))
    }

    /// It is not protected, and not beneath what is.
    fn is_unprotected(&self, path: &Path) -> Result<(), By> {
        let Some(name) = self.protected(|name| path.starts_with(name)) else { return Ok(()) };
        let covered = self.access == Access::Change || self.mounts.iter().any(|mount| mount.path == name && !mount.writable);
        Err(if covered { By::Protected(name) } else { By::Undone(name) })
    }

    /// The mounts there are writable.
    fn is_writable(&self, path: &Path) -> Result<(), By> {
        if !self.walls.mounts || self.walls.own.holds(path) && path == Path::new("/tmp") {
            return Ok(());
        }
        match self.mount_of(path) {
            Some(mount) if mount.writable => Ok(()),
            Some(Mount { protects: Some(name), .. }) => Err(By::Protected(self.charter.base.join(name))),
            _ => Err(By::ReadOnly),
        }
    }

    fn mount_of(&self, path: &Path) -> Option<&Mount<'a>> {
        self.mounts.iter().filter(|mount| path.starts_with(&mount.path)).max_by_key(|mount| mount.path.components().count())
    }

    /// The name can be taken away.
    fn may_go(&self, path: &Path) -> Result<(), By> {
        match self.mounts.iter().find(|mount| mount.path == path) {
            Some(Mount { protects: Some(name), .. }) => Err(By::Protected(self.charter.base.join(name))),
            Some(mount) => Err(By::Mounted(mount.path.clone())),
            // The file tools judge by name.
            None if self.access == Access::Change => {
                self.protected(|name| name.starts_with(path)).map_or(Ok(()), |name| Err(By::Protected(name)))
            }
            None => Ok(()),
        }
    }

    /// Something can come to be at the name. Where a protected name has no folder yet, no link may take that place.
    fn may_stand(&self, path: &Path, made: Option<Made>) -> Result<(), By> {
        match self.protected(|name| name != path && name.starts_with(path)) {
            Some(name) if made == Some(Made::Link) => Err(By::Undone(name)),
            _ => Ok(()),
        }
    }

    /// What Landlock and the mounts say of a name that leaves its folder.
    fn moves(&self, from: &Spot, to: &Spot, renames: bool) -> Result<(), By> {
        let (from_folder, to_folder) = (from.real.parent().unwrap_or(&from.real), to.real.parent().unwrap_or(&to.real));
        if self.walls.mounts {
            // A link is of the file, which may itself be mounted.
            let holder = if renames { from_folder } else { &from.real };
            let (of, into) = (self.mount_of(holder), self.mount_of(to_folder));
            if of.map(|mount| &mount.path) != into.map(|mount| &mount.path) {
                let inner = [of, into].into_iter().flatten().max_by_key(|mount| mount.path.components().count());
                return Err(inner.map_or(By::ReadOnly, |mount| By::Between(mount.path.clone())));
            }
        }
        if from_folder != to_folder {
            self.granted(from_folder, None, |rights| rights.write)?;
            let own = self.grants.iter().filter(|grant| grant.path == from.real || from.linked.is_some() && same_file(&grant.path, from));
            let had = own.map(|grant| grant.rights).fold(self.rights(from_folder), Rights::union);
            let gets = self.rights(to_folder);
            if had.union(gets) != had {
                return Err(By::MoreRights);
            }
        }
        // What is moved may bring what is protected into its place.
        let brought = self.protected(|name| {
            name.strip_prefix(&to.real).is_ok_and(|rest| !rest.as_os_str().is_empty() && from.real.join(rest).symlink_metadata().is_ok())
        });
        brought.map_or(Ok(()), |name| Err(By::Undone(name)))
    }
}

fn same_file(path: &Path, spot: &Spot) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir() && Some(identity(&meta)) == spot.linked)
}

#[cfg(test)]
mod tests;
