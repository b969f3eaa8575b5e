//! An image: the userland that a call sees. As written ([`Image`]), and as it is on this machine ([`Present`]).
//!
//! Never grants a home folder, the root, or what contains the workspace; never grants writing; never opens anything in the workspace.

use super::file::toml_fault;
use super::readable::{Bound, readable};
use super::surroundings::Surroundings;
use super::toolchain::{self, Toolchain};
use super::{Grant, Identity, Rights};
use crate::envelope::{Fault, FaultCode};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// An image as written.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Image {
    /// Its name.
    pub name: Option<String>,
    /// What it is, in one line.
    pub description: Option<String>,
    /// The image of the shelf that it is laid over.
    pub extends: Option<String>,
    /// Where PATH comes from.
    pub path: Option<PathSource>,
    /// Folders of programs and libraries, whole: read and execute.
    pub system: Vec<ImageRow>,
    /// Folders of which what everybody may read comes in.
    pub public: Vec<ImageRow>,
    /// Folders of which each entry comes in whole if everybody may enter and read it: read and execute.
    pub entries: Vec<ImageRow>,
    /// Files and folders that may be links: where they lead comes in, if everybody may read it.
    pub linked: Vec<ImageRow>,
    /// Folders of the kernel that are read.
    pub kernel: Vec<ImageRow>,
    /// Devices.
    pub devices: Vec<ImageRow>,
    /// Folders of terminals, granted only while no other terminal is there.
    pub terminals: Vec<ImageRow>,
    /// Languages whose toolchains come in where they are found; `*`: all.
    pub toolchains: Vec<String>,
    /// Variables.
    pub env: BTreeMap<String, String>,
}

/// One path of an image and why it is there.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ImageRow {
    /// An absolute path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// Where PATH comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PathSource {
    /// The toolchains found, and the system's folders.
    System,
    /// The host's PATH, without what cannot or should not be used.
    Host,
}

/// What of an image is there on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Present {
    /// Everything that commands may open of it.
    pub grants: Vec<Grant>,
    /// PATH, resolved, in order, each once.
    pub path: Vec<PathBuf>,
    /// The toolchains found: manager and folder.
    pub toolchains: Vec<Found>,
    /// What was asked for and is not there, or was left out, and why.
    pub dropped: Vec<Dropped>,
    /// Variables that commands get.
    pub env: Vec<(OsString, OsString)>,
}

/// A toolchain that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The program that manages it.
    pub name: &'static str,
    /// Its language.
    pub language: &'static str,
    /// Its folder, resolved.
    pub root: PathBuf,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// What.
    pub what: String,
    /// Why, and where it can be known what to do.
    pub why: String,
}

/// What an image is resolved for.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The machine and the person.
    pub here: &'a Surroundings,
    /// The base directory, resolved.
    pub base: &'a Path,
    /// Who the jails are.
    pub identity: Identity,
}

/// The folders of programs of every system.
const SYSTEM_PATH: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

impl Image {
    /// Reads an image. `label` says where it is from, for errors.
    ///
    /// # Errors
    /// `invalid_policy` with the line and what to do.
    pub fn parse(text: &str, label: &str) -> Result<Self, Fault> {
        let image: Self = toml::from_str(text).map_err(|error| toml_fault(&error, text, label, "image"))?;
        let wrong = |says: String| Fault::new(FaultCode::InvalidPolicy, format!("{label}: {says}"));
        for row in image.rows() {
            let path = Path::new(&row.path);
            if !path.is_absolute() || path.components().any(|part| part.as_os_str() == "..") || row.path.contains(['$', '\0']) {
                return Err(wrong(format!("{:?}: a path of an image is absolute, without variables and without `..`", row.path)));
            }
            if path == Path::new("/") {
                return Err(wrong("\"/\" would grant the whole machine: name the folders that programs need".into()));
            }
        }
        if let Some(language) = image.toolchains.iter().find(|language| !toolchain::known(language)) {
            let mut known: Vec<_> = toolchain::TOOLCHAINS.iter().map(|toolchain| toolchain.language).collect();
            known.dedup();
            return Err(wrong(format!("toolchains: {language:?} is not known; there are *, {}", known.join(", "))));
        }
        Ok(image)
    }

    /// This image laid over another: lists are added to the other's.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let joined = |mut below: Vec<ImageRow>, above: Vec<ImageRow>| {
            below.extend(above);
            below
        };
        Self {
            name: self.name.or(below.name),
            description: self.description.or(below.description),
            extends: None,
            path: self.path.or(below.path),
            system: joined(below.system, self.system),
            public: joined(below.public, self.public),
            entries: joined(below.entries, self.entries),
            linked: joined(below.linked, self.linked),
            kernel: joined(below.kernel, self.kernel),
            devices: joined(below.devices, self.devices),
            terminals: joined(below.terminals, self.terminals),
            toolchains: below.toolchains.into_iter().chain(self.toolchains).collect(),
            env: below.env.into_iter().chain(self.env).collect(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = &ImageRow> {
        let Self { system, public, entries, linked, kernel, devices, terminals, .. } = self;
        [system, public, entries, linked, kernel, devices, terminals].into_iter().flatten()
    }

    /// What of it is there on this machine.
    pub fn resolve(&self, frame: Frame<'_>) -> Present {
        let mut work = Work { frame, origin: format!("image {}", self.name.as_deref().unwrap_or("?")), present: Present::default() };
        for row in &self.system {
            work.whole(row, Rights::RUN);
        }
        for row in &self.kernel {
            work.whole(row, Rights::READ);
        }
        for row in &self.devices {
            work.whole(row, Rights::DEVICE);
        }
        for row in &self.terminals {
            work.terminals(row);
        }
        for row in &self.public {
            work.public(row);
        }
        for row in &self.entries {
            work.entries(row);
        }
        for row in &self.linked {
            work.linked(row);
        }
        let found: Vec<_> = toolchain::asked(&self.toolchains).filter_map(|toolchain| work.toolchain(toolchain)).collect();
        work.path(self.path.unwrap_or(PathSource::System), &found);
        work.present.env.extend(self.env.iter().map(|(name, value)| (name.into(), value.into())));
        work.present
    }
}

struct Work<'a> {
    frame: Frame<'a>,
    origin: String,
    present: Present,
}

impl Work<'_> {
    fn grant(&mut self, path: PathBuf, rights: Rights, reason: impl Into<String>) {
        if !covered(&self.present.grants, &path, rights) {
            self.present.grants.push(Grant { path, rights, reason: reason.into(), origin: self.origin.clone() });
        }
    }

    fn drop(&mut self, what: impl Into<String>, why: impl Into<String>) {
        let dropped = Dropped { what: what.into(), why: why.into() };
        if !self.present.dropped.contains(&dropped) {
            self.present.dropped.push(dropped);
        }
    }

    /// A path of the system, links resolved; `None`: it is not there, which is no news for a list that fits every system.
    fn system(&self, row: &ImageRow) -> Option<PathBuf> {
        self.frame.here.links.canonical(&self.frame.here.system(Path::new(&row.path))).ok()
    }

    fn whole(&mut self, row: &ImageRow, rights: Rights) {
        if let Some(path) = self.system(row) {
            // A workspace in /usr/src is read by commands in any case; so only the root and the home folder count here.
            match holds_too_much(&path, self.frame.here) {
                Some(why) => self.drop(&row.path, why),
                None => self.grant(path, rights, &row.reason),
            }
        }
    }

    fn terminals(&mut self, row: &ImageRow) {
        let Some(path) = self.system(row) else { return };
        let others = fs::read_dir(&path).map(|entries| entries.flatten().filter(|entry| entry.file_name() != "ptmx").count());
        match others {
            // `device` covers what is made later: a terminal that a command opens.
            Ok(0) => self.grant(path, Rights::DEVICE, &row.reason),
            _ => self.drop(&row.path, "the terminals of other programs are there: only where the sandbox has its own do commands get any"),
        }
    }

    fn public(&mut self, row: &ImageRow) {
        let Some(path) = self.system(row) else { return };
        if let Some(why) = self.too_wide(&path) {
            return self.drop(&row.path, why);
        }
        let found = readable(&path, Bound::default());
        for path in found.granted {
            self.grant(path, Rights::READ, &row.reason);
        }
        for path in found.unseen {
            self.drop(path.display().to_string(), "too large to be looked at whole: what was not seen is kept out");
        }
    }

    fn entries(&mut self, row: &ImageRow) {
        let Some(path) = self.system(row) else { return };
        let Ok(entries) = fs::read_dir(&path) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let open = entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.metadata().is_ok_and(|meta| meta.mode() & 0o005 == 0o005);
            match self.too_wide(&path) {
                _ if !open => self.drop(path.display().to_string(), "not for everybody, or no folder"),
                Some(why) => self.drop(path.display().to_string(), why),
                None => self.grant(path, Rights::RUN, &row.reason),
            }
        }
    }

    fn linked(&mut self, row: &ImageRow) {
        let Some(path) = self.system(row) else { return };
        if covered(&self.present.grants, &path, Rights::READ) || self.too_wide(&path).is_some() {
            return;
        }
        // The target can be anywhere; only what everybody may read comes in.
        for path in readable(&path, Bound::default()).granted {
            self.grant(path, Rights::READ, format!("{} ({} leads here)", row.reason, row.path));
        }
    }

    fn toolchain(&mut self, toolchain: &'static Toolchain) -> Option<&'static Toolchain> {
        let here = self.frame.here;
        let told = toolchain.var.and_then(|var| here.folder(var));
        let places = told.into_iter().chain(toolchain.home.iter().filter_map(|home| here.in_home(home)));
        let root = places.filter_map(|place| here.links.canonical(&place).ok()).find(|root| root.is_dir())?;
        // The system's own JDK or Go is there already, and a home folder is not made a toolchain by a variable.
        if self.frame.base.starts_with(&root) || root.starts_with(self.frame.base) {
            self.drop(root.display().to_string(), format!("{} overlaps with the workspace", toolchain.name));
            return None;
        }
        if let Some(why) = self.unreachable(&root) {
            self.drop(root.display().to_string(), format!("{}: {why}", toolchain.name));
            return None;
        }
        let mut any = false;
        for (part, rights) in toolchain.parts {
            let Ok(path) = here.links.canonical(&root.join(part)) else { continue };
            match self.too_wide(&path) {
                Some(why) => self.drop(path.display().to_string(), why),
                None => {
                    any = true;
                    self.grant(path, *rights, format!("{} ({})", toolchain.name, toolchain.language));
                }
            }
        }
        if !any {
            return None;
        }
        if let Some(var) = toolchain.var.filter(|_| toolchain.keep_var) {
            self.present.env.push((var.into(), root.clone().into()));
        }
        self.present.toolchains.push(Found { name: toolchain.name, language: toolchain.language, root });
        Some(toolchain)
    }

    fn path(&mut self, source: PathSource, found: &[&'static Toolchain]) {
        if let Some(bin) = self.pyenv_bin() {
            self.usable(&bin, false);
        }
        if source == PathSource::Host {
            let host = self.frame.here.var("PATH").map(OsString::from).unwrap_or_default();
            for entry in std::env::split_paths(&host) {
                self.usable(&entry, true);
            }
        }
        for toolchain in found {
            let root = self.present.toolchains.iter().find(|known| known.name == toolchain.name).map(|known| known.root.clone());
            for bin in toolchain.bins.iter().filter_map(|bin| root.as_ref().map(|root| root.join(bin))).filter(|bin| bin.is_dir()) {
                self.usable(&bin, false);
            }
        }
        if let Some(bin) = self.rustup_bin() {
            self.usable(&bin, false);
        }
        for entry in SYSTEM_PATH {
            let entry = self.frame.here.system(Path::new(entry));
            if entry.is_dir() {
                self.usable(&entry, false);
            }
        }
    }

    /// Puts a folder on PATH and grants it, or says why not.
    fn usable(&mut self, entry: &Path, grant: bool) {
        let shown = entry.display().to_string();
        if !entry.is_absolute() {
            return self.drop(format!("PATH: {shown:?}"), "relative: it would mean another folder in each place");
        }
        let Ok(path) = self.frame.here.links.canonical(entry) else {
            return self.drop(format!("PATH: {shown}"), "not there, or not for us to see");
        };
        if self.present.path.contains(&path) {
            return;
        }
        let Ok(meta) = fs::metadata(&path) else { return self.drop(format!("PATH: {shown}"), "not for us to see") };
        let why = if !meta.is_dir() {
            Some("not a folder".to_owned())
        } else if path.starts_with(self.frame.base) || entry.starts_with(self.frame.base) {
            Some("in the workspace: a program written there could take the place of another".to_owned())
        } else if meta.mode() & 0o002 != 0 {
            Some("everybody may write there: a program planted there could take the place of another".to_owned())
        } else {
            self.too_wide(&path).or_else(|| self.unreachable(&path))
        };
        if let Some(why) = why {
            return self.drop(format!("PATH: {shown}"), why);
        }
        if !covered(&self.present.grants, &path, Rights::RUN) {
            if !grant {
                return;
            }
            self.grant(path.clone(), Rights::RUN, "on the host's PATH");
        }
        self.present.path.push(path);
    }

    /// pyenv's shims cost a tenth of a second a call; the global version's own folder goes before them unless the project picks one.
    fn pyenv_bin(&self) -> Option<PathBuf> {
        let root = &self.present.toolchains.iter().find(|found| found.name == "pyenv")?.root;
        if self.frame.here.var("PYENV_VERSION").is_some() || self.frame.base.join(".python-version").symlink_metadata().is_ok() {
            return None;
        }
        let version = first_line(&root.join("version"))?;
        Some(root.join("versions").join(version).join("bin")).filter(|bin| bin.is_dir())
    }

    /// The default toolchain's own programs, after rustup's: those serve `cargo +nightly` and `rust-toolchain.toml`.
    fn rustup_bin(&self) -> Option<PathBuf> {
        let root = &self.present.toolchains.iter().find(|found| found.name == "rustup")?.root;
        let settings = fs::read_to_string(root.join("settings.toml")).ok()?;
        let settings: toml::Table = toml::from_str(&settings).ok()?;
        let name = plain_name(settings.get("default_toolchain")?.as_str()?)?;
        Some(root.join("toolchains").join(name).join("bin")).filter(|bin| bin.is_dir())
    }

    /// Why a folder may not be granted whole, whatever is said of it.
    fn too_wide(&self, path: &Path) -> Option<String> {
        too_wide(path, self.frame.base, self.frame.here)
    }

    /// Why those who the jails are cannot get at it, where they are not who the host is. Capabilities are gone by then.
    fn unreachable(&self, path: &Path) -> Option<String> {
        let Identity { uid, gid } = self.frame.identity;
        if uid == self.frame.here.uid && uid != 0 {
            return None;
        }
        reach(path, self.frame.identity).then_some(()).map_or_else(
            || Some(format!("user {uid}, group {gid}, who commands run as, cannot enter it: a folder on the way is closed to others")),
            |()| None,
        )
    }
}

/// Why a path may not be granted whole: it is, or contains, the root, the home folder or the workspace.
pub(super) fn too_wide(path: &Path, base: &Path, here: &Surroundings) -> Option<String> {
    holds_too_much(path, here)
        .or_else(|| base.starts_with(path).then(|| "it contains the workspace, and with it what lies beside it".to_owned()))
}

/// Why a path may not be granted whole: it is, or contains, the root or the home folder.
pub(super) fn holds_too_much(path: &Path, here: &Surroundings) -> Option<String> {
    if path == Path::new("/") || path == here.root {
        return Some("it is the whole machine".into());
    }
    if here.home.as_ref().is_some_and(|home| home.starts_with(path) || here.links.canonical(home).is_ok_and(|home| home.starts_with(path)))
    {
        return Some("it contains the home folder: name the folders in it".into());
    }
    None
}

/// Whether an identity without capabilities and further groups can enter every folder on the way to a path and the path itself.
pub(super) fn reach(path: &Path, identity: Identity) -> bool {
    path.ancestors().all(|folder| {
        fs::metadata(folder).is_ok_and(|meta| {
            let shift = match (meta.uid() == identity.uid, meta.gid() == identity.gid) {
                (true, _) => 6,
                (_, true) => 3,
                _ => 0,
            };
            !meta.is_dir() || (meta.mode() >> shift) & 0o1 != 0
        })
    })
}

/// Whether some grant gives these rights on a path already.
pub(super) fn covered(grants: &[Grant], path: &Path, rights: Rights) -> bool {
    grants.iter().any(|grant| {
        let has = grant.rights;
        beneath(path, &grant.path)
            && (has.read || !rights.read)
            && (has.exec || !rights.exec)
            && (has.write || !rights.write)
            && (has.device || !rights.device)
    })
}

/// `Path::starts_with` for resolved absolute paths, which are equal exactly when their bytes are: some 20 times faster, and asked for
/// every grant of every other.
fn beneath(path: &Path, top: &Path) -> bool {
    let (path, top) = (path.as_os_str().as_bytes(), top.as_os_str().as_bytes());
    path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || top.ends_with(b"/"))
}

/// The first line of a short file, when it is a plain name.
fn first_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    plain_name(text.lines().next()?.trim()).map(str::to_owned)
}

/// A name that is one component of a path.
fn plain_name(name: &str) -> Option<&str> {
    (!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])).then_some(name)
}

#[cfg(test)]
mod tests;
