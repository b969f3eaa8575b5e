//! Finding skills, and opening what is in one.
//!
//! Each skill's folder is opened once a request and is a base directory from there on: `..` and links that leave it, at any depth, fail in
//! the kernel. A skill of a project is found beneath the workspace; a link there that leaves the workspace fails too.

use super::{FOLDERS, Found, MOST, Place, Skill, front_matter};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::dir::{Kind, OpenDir};
use crate::workspace::{BaseDir, RelPath, decode, escape};
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The names of the file that makes a folder a skill, the right one first.
const NAMES: [&str; 2] = ["SKILL.md", "skill.md"];
/// The most entries of a folder of skills, the most files of a skill that are listed, and how deep.
const MOST_ENTRIES: usize = 1000;
const MOST_FILES: usize = 200;
const DEEPEST: usize = 6;
/// Folders of a skill that are nobody's to read.
const SKIPPED: [&str; 2] = ["node_modules", "__pycache__"];
/// The most bytes of a file of a skill that is shown.
const MOST_FILE: u64 = 1 << 20;

/// A file of a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Entry {
    /// Relative to the skill's folder, escaped.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Whether it may be executed.
    pub executable: bool,
}

/// A skill, opened to be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Opened {
    /// What its front matter says.
    pub skill: Skill,
    /// Its instructions.
    pub body: String,
    /// Its files, without the `SKILL.md`, in order.
    pub files: Vec<Entry>,
    /// There are more.
    pub more_files: bool,
}

/// A file of a skill that is to be run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Script {
    /// Where it really is, relative to the skill's folder, escaped.
    pub path: String,
    /// Whether it may be executed.
    pub executable: bool,
    /// What its first line names as its interpreter, if it does.
    pub interpreter: Option<String>,
}

/// Finds the skills of the workspace, in order of their names in each of [`FOLDERS`]. Looks no longer than `until`.
pub fn find(base: &BaseDir, until: Instant) -> Vec<Found> {
    let mut found = Vec::new();
    for folder in FOLDERS {
        let path = RelPath::from_relative(folder);
        let dir = match OpenDir::open(base, &path) {
            Ok(dir) => dir,
            Err(fault) if matches!(fault.code(), FaultCode::NotFound | FaultCode::NotDirectory) => continue,
            Err(fault) => {
                found.push(Found { place: Place::Project(folder.into()), location: folder.into(), outcome: Err(fault.message().into()) });
                continue;
            }
        };
        let mut names: Vec<OsString> = Vec::new();
        let _ = dir.entries(|name, kind| {
            if matches!(kind, Kind::Folder | Kind::Link) && !name.starts_with(b".") && names.len() < MOST_ENTRIES {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        });
        names.sort();
        for name in names {
            if found.len() >= MOST || Instant::now() >= until {
                return found;
            }
            found.extend(examine(base, &Place::Project(path.join(&name).to_string()), &name));
        }
    }
    found
}

/// Looks at one folder; `None`: it holds no `SKILL.md` and is somebody else's business.
pub fn examine(base: &BaseDir, place: &Place, name: &OsStr) -> Option<Found> {
    let location = |file: &str| match place {
        Place::Project(path) => format!("{path}/{file}"),
        Place::Home(path) => escape::show(path.join(file).as_os_str()),
    };
    let outcome = |file: &str, outcome| Some(Found { place: place.clone(), location: location(file), outcome });
    let folder = match open(base, place) {
        Ok(folder) => folder,
        Err(fault) => return outcome("", Err(fault.message().to_owned())),
    };
    let (file, text) = match text(&folder) {
        Ok(found) => found,
        Err(fault) if fault.code() == FaultCode::NotFound => return None,
        Err(fault) => return outcome(NAMES[0], Err(fault.message().to_owned())),
    };
    outcome(file, front_matter::read(&escape::show(name), &text))
}

/// Opens a skill to be used: its instructions and its files.
///
/// # Errors
/// `not_found`, `outside_workspace`, `too_large`, `binary_file`, `io_error`.
pub fn load(base: &BaseDir, place: &Place) -> Result<Opened, Fault> {
    let folder = open(base, place)?;
    let (file, text) = text(&folder)?;
    let wrong = |says: String| Fault::new(FaultCode::IoError, format!("{file}: {says}"));
    let name = match place {
        Place::Project(path) => Path::new(&escape::name(path)).file_name().map(OsStr::to_owned),
        Place::Home(path) => path.file_name().map(OsStr::to_owned),
    };
    let skill = front_matter::read(&escape::show(&name.unwrap_or_default()), &text).map_err(wrong)?;
    let body = front_matter::body(&text).map_err(wrong)?;
    let mut files = Vec::new();
    let top = OpenDir::open(&folder, &RelPath::base())?;
    let more_files = !list(&top, Path::new(""), 0, &mut files);
    files.retain(|entry: &Entry| entry.path != file);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Opened { skill, body, files, more_files })
}

/// The text of one file of a skill.
///
/// # Errors
/// As [`load`].
pub fn read(base: &BaseDir, place: &Place, path: &str) -> Result<String, Fault> {
    let folder = open(base, place)?;
    let path = inside(&folder, path)?;
    let loaded = folder.load(&path, MOST_FILE).map_err(of_the_skill)?;
    if decode::is_binary(&loaded.bytes) {
        return Err(Fault::new(FaultCode::BinaryFile, format!("{path} is not text")));
    }
    Ok(String::from_utf8_lossy(&loaded.bytes).into_owned())
}

/// Looks at a file that is to be run.
///
/// # Errors
/// As [`load`]; `not_regular_file`.
pub fn script(base: &BaseDir, place: &Place, path: &str) -> Result<Script, Fault> {
    let folder = open(base, place)?;
    let path = inside(&folder, path)?;
    let opened = folder.open_file(&path).map_err(of_the_skill)?;
    let mut head = [0; 256];
    let length =
        std::io::Read::read(&mut &opened.file, &mut head).map_err(|error| Fault::new(FaultCode::IoError, format!("{path}: {error}")))?;
    let first = head[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
    let interpreter = first.strip_prefix(b"#!").and_then(|line| std::str::from_utf8(line).ok()).map(|line| line.trim().to_owned());
    Ok(Script { path: opened.canonical.to_string(), executable: opened.meta.mode() & 0o111 != 0, interpreter })
}

/// The skill's folder as a base directory.
fn open(base: &BaseDir, place: &Place) -> Result<BaseDir, Fault> {
    match place {
        Place::Project(path) => {
            let rel = base.rel(path)?;
            let fd: OwnedFd = base.open_at(&rel, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty())?;
            Ok(BaseDir::from_fd(fd, base.path().join(rel.as_path())))
        }
        Place::Home(path) => BaseDir::open(path).map_err(|fault| Fault::new(FaultCode::NotFound, fault.message())),
    }
}

/// A path as a call names it: relative to the skill's folder. An absolute one is no path of a skill, wherever it leads.
fn inside(folder: &BaseDir, path: &str) -> Result<RelPath, Fault> {
    if path.starts_with('/') {
        return Err(Fault::new(FaultCode::OutsideWorkspace, format!("{path} is absolute: a file of a skill is named from its folder")));
    }
    folder.rel(path)
}

/// A fault of a path, said of the skill's folder.
fn of_the_skill(fault: Fault) -> Fault {
    match fault.code() {
        FaultCode::OutsideWorkspace => Fault::new(fault.code(), fault.message().replace("the workspace", "the skill's folder"))
            .hint("a file of a skill is named from the skill's folder, and a link in it may only lead to something in it"),
        _ => fault,
    }
}

/// The `SKILL.md`, by its right name if there are two.
fn text(folder: &BaseDir) -> Result<(&'static str, String), Fault> {
    let mut missing = Fault::new(FaultCode::NotFound, "there is no SKILL.md");
    for name in NAMES {
        match folder.load(&RelPath::from_relative(name), front_matter::MOST_TEXT) {
            Ok(loaded) => {
                let text = String::from_utf8(loaded.bytes).map_err(|_| Fault::new(FaultCode::BinaryFile, "it is not UTF-8"))?;
                return Ok((name, text));
            }
            Err(fault) if fault.code() == FaultCode::NotFound && folder.lstat(&RelPath::from_relative(name)).is_err() => {}
            Err(fault) => {
                missing = of_the_skill(Fault::new(
                    if fault.code() == FaultCode::NotFound { FaultCode::IoError } else { fault.code() },
                    fault.message(),
                ))
            }
        }
        if missing.code() != FaultCode::NotFound {
            break;
        }
    }
    Err(missing)
}

/// Lists plain files; no link is followed or listed. `false`: there are more.
fn list(dir: &OpenDir, at: &Path, depth: usize, into: &mut Vec<Entry>) -> bool {
    let mut entries: Vec<(OsString, Kind)> = Vec::new();
    let whole = dir
        .entries(|name, kind| {
            if !name.starts_with(b".") && entries.len() < MOST_ENTRIES {
                entries.push((OsStr::from_bytes(name).to_owned(), kind));
            }
        })
        .is_ok();
    entries.sort();
    let mut all = whole;
    for (name, kind) in entries {
        let path: PathBuf = at.join(&name);
        match kind {
            Kind::File if into.len() >= MOST_FILES => return false,
            Kind::File => {
                let Ok(stat) = dir.lstat(&name) else { continue };
                let size = u64::try_from(stat.st_size).unwrap_or(0);
                into.push(Entry { path: escape::show(path.as_os_str()), size, executable: stat.st_mode & 0o111 != 0 });
            }
            Kind::Folder if SKIPPED.iter().any(|skipped| name == *skipped) => {}
            Kind::Folder if depth >= DEEPEST => all = false,
            Kind::Folder => match dir.enter(Path::new(&name)) {
                Ok(inner) => all &= list(&inner, &path, depth + 1, into),
                Err(_) => all = false,
            },
            _ => {}
        }
    }
    all
}
