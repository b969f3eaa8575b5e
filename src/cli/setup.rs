//! From flags and surroundings to a charter and a furnished session folder.

use super::Common;
use super::journal::Journal;
use crate::envelope::{Fault, FaultCode};
use crate::policy::file::{Policy, Trust};
use crate::policy::home::{Held, furnish};
use crate::policy::image::Dropped;
use crate::policy::resolve::{Resolved, resolve};
use crate::policy::surroundings::Surroundings;
use crate::policy::tighten::{PROJECT_FILE, tighten};
use crate::policy::{Charter, Protection, shelf};
use crate::workspace::{BaseDir, RelPath, escape};
use nix::unistd::{AccessFlags, getegid, geteuid};
use std::path::{Path, PathBuf};

/// The most bytes of a `.git` file.
const MOST_POINTER: u64 = 64 * 1024;

/// The most bytes of a repository's settings that are read.
const MOST_SETTINGS: u64 = 16 << 20;

/// The most bytes of a project's own policy file.
const MOST_POLICY: u64 = 256 * 1024;

/// What a person asks for: the common flags, without the forms of output.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The folder to work in; `None`: the git top level, else the current folder.
    pub workspace: Option<PathBuf>,
    /// The name of a policy, or a file.
    pub policy: String,
    /// Required protections that are given up.
    pub allow_degraded: Vec<String>,
    /// Make no namespaces, as on a machine where none starts.
    pub without_namespaces: bool,
    /// The tree is a stranger's, whatever the policy says: nothing of it is loaded.
    pub fork: bool,
}

/// A resolved charter with its session folder, which is given up when this is dropped. Drop the session (or the warden) first.
#[derive(Debug)]
pub struct Setup {
    resolved: Resolved,
    here: Surroundings,
    base: BaseDir,
    /// Held while the session's folder is in use.
    held: Option<Held>,
    journal: Option<Journal>,
}

impl Setup {
    /// Resolves and furnishes.
    ///
    /// # Errors
    /// `invalid_workspace`, `invalid_policy`, `io_error`.
    pub(crate) fn new(common: &Common) -> Result<Self, Fault> {
        Self::of(&common.asked())
    }

    /// The same, for a program that embeds this one.
    ///
    /// # Errors
    /// As [`Setup::resolved`], and `io_error` when the session's folder cannot be made.
    pub fn of(asked: &Asked) -> Result<Self, Fault> {
        let mut setup = Self::furnished(asked)?;
        if setup.resolved.charter.change.is_some() {
            match Journal::open(&setup.resolved.charter, &setup.here) {
                Ok(journal) => {
                    setup.resolved.charter.journal = Some(journal.path().to_path_buf());
                    setup.journal = Some(journal);
                }
                Err(why) => setup.resolved.dropped.push(Dropped { what: "the journal of writes in place".into(), why }),
            }
        }
        Ok(setup)
    }

    /// For one program: without a journal.
    ///
    /// # Errors
    /// As [`Setup::of`].
    pub(crate) fn for_program(common: &Common) -> Result<Self, Fault> {
        Self::furnished(&common.asked())
    }

    fn furnished(asked: &Asked) -> Result<Self, Fault> {
        let mut setup = Self::resolved(asked)?;
        setup.held = Some(furnish(&setup.resolved, &setup.here)?);
        Ok(setup)
    }

    /// Only resolves: nothing is made on disk.
    ///
    /// # Errors
    /// `invalid_workspace`, `invalid_policy`.
    pub fn resolved(asked: &Asked) -> Result<Self, Fault> {
        let workspace = match &asked.workspace {
            Some(folder) => folder.clone(),
            None => default_workspace()?,
        };
        let workspace = workspace.canonicalize().map_err(|error| {
            Fault::new(FaultCode::InvalidWorkspace, format!("{}: {error}", escape::show(workspace.as_os_str())))
                .hint("--workspace names the folder to work in")
        })?;
        let base = BaseDir::open(&workspace)?;
        nix::unistd::access(&workspace, AccessFlags::R_OK | AccessFlags::X_OK).map_err(|errno| {
            Fault::new(
                FaultCode::InvalidWorkspace,
                format!("{}: it cannot be looked into: {}", escape::show(workspace.as_os_str()), errno.desc()),
            )
            .hint("--workspace names a folder that you may read")
        })?;
        let mut here = Surroundings::new(std::env::vars_os().collect(), geteuid().as_raw(), getegid().as_raw());
        let pointer = RelPath::from_relative(".git");
        if base.lstat(&pointer).is_ok_and(|meta| meta.is_file()) {
            here.dot_git = base.load(&pointer, MOST_POINTER).ok().map(|loaded| loaded.bytes);
        }
        // Those of the worktree count last.
        let settings = [[".git/config", ".git/config.worktree"], ["config", "config.worktree"]];
        here.git_config = settings.into_iter().find_map(|files| {
            let texts = files.map(|path| base.load(&RelPath::from_relative(path), MOST_SETTINGS).ok().map(|loaded| loaded.bytes));
            let texts: Vec<Vec<u8>> = texts.into_iter().flatten().collect();
            (!texts.is_empty()).then(|| texts.join(&b'\n'))
        });
        let policy = shelf::policy(&asked.policy)?;
        let image = shelf::image(policy.image.as_deref().unwrap_or("host"))?;
        let mut resolved = resolve(&policy, &image, &workspace, &here)?;
        for name in &asked.allow_degraded {
            resolved.charter.allow_degraded.push(protection(name)?);
        }
        resolved.charter.namespaces = !asked.without_namespaces;
        if asked.fork {
            resolved.policy.trust = Some(Trust::Fork);
        }
        // The project's own file may only tighten; of a stranger's tree not even that is taken.
        let project = RelPath::from_relative(PROJECT_FILE);
        if resolved.trust() != Trust::Fork && base.lstat(&project).is_ok() {
            let loaded = base.load(&project, MOST_POLICY).map_err(|fault| {
                Fault::new(FaultCode::InvalidPolicy, format!("the project's own policy: {}", fault.message()))
                    .hint("mend or remove it; `run --trust fork` loads nothing of the tree")
            })?;
            let text = String::from_utf8(loaded.bytes).map_err(|_| {
                Fault::new(FaultCode::InvalidPolicy, format!("{PROJECT_FILE} is not UTF-8")).hint("a policy is a TOML file")
            })?;
            resolved = tighten(resolved, &Policy::parse(&text, PROJECT_FILE)?)?;
        }
        Ok(Self { resolved, here, base, held: None, journal: None })
    }

    /// What is permitted.
    pub fn charter(&self) -> &Charter {
        &self.resolved.charter
    }

    /// The charter with its reasons.
    pub fn details(&self) -> &Resolved {
        &self.resolved
    }

    /// What it was resolved against.
    pub(crate) fn here(&self) -> &Surroundings {
        &self.here
    }

    /// Overwrites what was copied of the environment, which nothing needs any more.
    pub(crate) fn forget_environment(&mut self) {
        use std::os::unix::ffi::OsStringExt;
        for (name, value) in self.here.env.drain(..) {
            for text in [name, value] {
                let mut bytes = text.into_vec();
                bytes.fill(0);
                // So that the compiler does not take the writing for useless.
                std::hint::black_box(&bytes);
            }
        }
    }

    /// The open base directory.
    pub fn base(&self) -> &BaseDir {
        &self.base
    }

    /// The current folder relative to the base, where it is beneath it.
    pub(crate) fn current_folder(&self) -> Option<String> {
        let current = std::env::current_dir().ok()?.canonicalize().ok()?;
        let rest = current.strip_prefix(&self.resolved.charter.base).ok()?;
        (!rest.as_os_str().is_empty()).then(|| escape::show(rest.as_os_str()))
    }
}

/// The git top level above the current folder, else the current folder.
fn default_workspace() -> Result<PathBuf, Fault> {
    let current = std::env::current_dir().map_err(|error| {
        Fault::new(FaultCode::InvalidWorkspace, format!("the current folder: {error}")).hint("--workspace DIR names another")
    })?;
    let is_top = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
    Ok(current.ancestors().find(is_top).unwrap_or(&current).to_path_buf())
}

fn protection(name: &str) -> Result<Protection, Fault> {
    Protection::ALL.iter().copied().find(|protection| protection.as_str() == name).ok_or_else(|| {
        let names: Vec<&str> = Protection::ALL.iter().map(|protection| protection.as_str()).collect();
        Fault::new(FaultCode::InvalidPolicy, format!("--allow-degraded {name}: there is no such protection"))
            .hint(format!("they are {}", names.join(", ")))
    })
}
