//! From a policy and an image to a [`Charter`]: what both mean on this machine, for this workspace.
//!
//! Never makes or changes anything on disk, never reads a variable of its own, and never opens anything in the workspace. What a policy names
//! and the machine does not have is listed, not made up; what would grant too much is an error.

use super::charter::{Charter, Grant, Grants, Limits, Net, Rights, Unix};
use super::file::{LimitRules, Policy, Row, Trust};
use super::git::{self, Linked};
use super::image::{Dropped, Frame, Image, Present, covered, holds_too_much};
use super::place::{Anchor, Place};
use super::protect::{self, Protected};
use super::surroundings::Surroundings;
use super::{Access, cargo, environment, gitconfig, site};
use crate::envelope::{Fault, FaultCode};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A charter with what a person wants to know about it, and what [`super::home::furnish`] needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resolved {
    /// What is permitted: all that the warden is given.
    pub charter: Charter,
    /// The policy as written, layers joined: budgets and trust are there.
    pub policy: Policy,
    /// What of the image is there.
    pub present: Present,
    /// The protected names with their reasons; the paths are those of the charter.
    pub protected: Vec<Protected>,
    /// What was asked for and is not there, or was left out, and why.
    pub dropped: Vec<Dropped>,
    /// Weakenings that somebody asked for: shown, and recorded.
    pub loud: Vec<String>,
}

impl Resolved {
    /// Whose tree it is.
    pub fn trust(&self) -> Trust {
        self.policy.trust.unwrap_or_default()
    }
}

/// Resolves a policy and an image for a workspace.
///
/// # Errors
/// `invalid_workspace`, `invalid_policy`; each says what to do.
pub fn resolve(policy: &Policy, image: &Image, workspace: &Path, here: &Surroundings) -> Result<Resolved, Fault> {
    let base = site::base(workspace, here)?;
    let identity = site::identity(&base, here)?;
    let session = site::session_dir(&base, identity, here)?;
    let mut present = image.resolve(Frame { here, base: &base, identity });
    let mut work = Work { base: &base, session: &session, here, dropped: std::mem::take(&mut present.dropped), loud: Vec::new() };

    work.cargo_above(&mut present);
    let access = policy.access.clone().unwrap_or_else(|| vec![Access::Look]);
    let written = work.written(policy)?;
    for path in writable_on_path(&mut present, &written) {
        work.drop(format!("PATH: {}", path.display()), "the policy lets commands write there: a program could take the place of another");
    }
    let linked = git::linked(&base, here.dot_git.as_deref());
    if let Some(says) = linked.as_ref().and_then(|linked| linked.as_ref().err()) {
        work.drop(base.join(".git").display().to_string(), says.clone());
    }
    let linked = linked.and_then(Result::ok);
    let net = policy.net.unwrap_or(Net::None);
    let unix = policy.unix.unwrap_or(Unix::Pair);
    if net == Net::Full {
        work.loud.push("net = \"full\": commands have the host's network".into());
    }
    if unix == Unix::Any {
        work.loud
            .push("unix = \"any\": commands can connect to every socket that the user can, and so to docker, ssh-agent and D-Bus".into());
    }

    let spool = work.session("spool", Rights::READ, "the output of earlier commands");
    let look = vec![work.workspace(Rights::READ, "what the work is about"), spool];
    let change = access.contains(&Access::Change).then(|| vec![work.workspace(Rights::CHANGE, "what the work is about")]);
    let execute = access.contains(&Access::Execute).then(|| {
        let mut grants = written;
        grants.extend(linked.iter().flat_map(Linked::for_commands));
        grants.push(work.session("home", Rights::ALL, "the home folder of commands"));
        grants.push(work.session("tmp", Rights::ALL, "temporary files"));
        grants.push(work.session("cache", Rights::ALL, "caches of tools"));
        grants.extend(present.grants.iter().cloned());
        grants
    });
    let mut own = vec![
        work.workspace(Rights::READ, "the repository of the patch"),
        work.session("own", Rights::CHANGE, "the index and the objects of the patch"),
    ];
    own.extend(linked.iter().flat_map(Linked::for_ourselves));
    own.extend(present.grants.iter().cloned());

    let built = environment::build(here, &present, &policy.env, net, identity, &session);
    work.loud.extend(built.loud);
    work.dropped.extend(built.kept_out.into_iter().map(|text| Dropped { what: "env.pass".into(), why: text }));

    let mut protected = protect::defaults(here.dot_git.is_some());
    if let Some(linked) = &linked {
        protected.extend(linked.protected());
    }
    if is_bare(&base) {
        protected.extend(protect::git_dir(Path::new("")));
    }
    let settings = here.git_config.as_deref().map(String::from_utf8_lossy).map(Cow::into_owned);
    let settings = settings.or_else(|| linked.as_ref().and_then(|linked| gitconfig::text_of(&linked.common.join("config"))));
    let git_dir =
        if is_bare(&base) { base.clone() } else { linked.as_ref().map_or_else(|| base.join(".git"), |linked| linked.common.clone()) };
    for (path, reason) in gitconfig::named(here, settings.as_deref(), &git_dir, &base) {
        if !protected.iter().any(|known| path.starts_with(&known.path)) {
            protected.push(Protected { path, reason: reason.into(), origin: "git".into() });
        }
    }
    // There may be ten thousand.
    let mut known: HashSet<PathBuf> = protected.iter().map(|one| one.path.clone()).collect();
    for row in &policy.fs.protect {
        let path = super::place::parse_inside(&row.path).map_err(|says| invalid(format!("fs.protect: {says}")))?;
        if known.insert(path.clone()) {
            protected.push(Protected { path, reason: reason(row), origin: row.origin.clone() });
        }
    }
    protect::where_links_lead(&mut protected, &base, &here.links);

    let Work { dropped, loud, .. } = work;
    let charter = Charter {
        policy: policy.name.clone().unwrap_or_else(|| "unnamed".into()),
        base: base.clone(),
        identity,
        look: Grants(look),
        change: change.map(Grants),
        execute: execute.map(Grants),
        own: Grants(own),
        env: built.env,
        net,
        unix,
        protect: protected.iter().map(|one| one.path.clone()).collect(),
        limits: limits(&policy.limits),
        require: policy.require.as_ref().map(super::file::Require::list).unwrap_or_default(),
        namespaces: true,
        allow_degraded: Vec::new(),
        session_dir: session.clone(),
        journal: None,
        tools_allow: policy.tools.allow.clone().unwrap_or_default(),
        tools_deny: policy.tools.deny.clone(),
    };
    Ok(Resolved { charter, policy: policy.clone(), present, protected, dropped, loud })
}

struct Work<'a> {
    base: &'a Path,
    session: &'a Path,
    here: &'a Surroundings,
    dropped: Vec<Dropped>,
    loud: Vec<String>,
}

impl Work<'_> {
    fn drop(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.dropped.push(Dropped { what: what.into(), why: why.into() });
    }

    fn workspace(&self, rights: Rights, reason: &str) -> Grant {
        Grant { path: self.base.to_path_buf(), rights, reason: reason.into(), origin: "workspace".into() }
    }

    fn session(&self, folder: &str, rights: Rights, reason: &str) -> Grant {
        Grant { path: self.session.join(folder), rights, reason: reason.into(), origin: "session".into() }
    }

    /// Cargo stops at a settings file above the workspace that it sees and cannot read.
    fn cargo_above(&mut self, present: &mut Present) {
        let (open, secret) = cargo::above(self.base);
        for path in open {
            if !covered(&present.grants, &path, Rights::READ) {
                let reason = "cargo reads the settings of every folder above the workspace".into();
                present.grants.push(Grant { path, rights: Rights::READ, reason, origin: "workspace".into() });
            }
        }
        for path in secret {
            self.drop(
                path.display().to_string(),
                "holds a secret, or is no TOML: cargo will stop at it; move the secret to credentials.toml",
            );
        }
    }

    /// What the policy itself grants to commands.
    fn written(&mut self, policy: &Policy) -> Result<Vec<Grant>, Fault> {
        let mut grants = Vec::new();
        let lists =
            [("read", &policy.fs.read, Rights::READ), ("write", &policy.fs.write, Rights::CHANGE), ("exec", &policy.fs.exec, Rights::RUN)];
        for (key, rows, rights) in lists {
            for row in rows {
                let at = |says: String| invalid(format!("{}: fs.{key}: {says}", row.origin));
                let place = Place::parse(&row.path).map_err(at)?;
                if let Some(path) = self.place(&place, &row.path, rights).map_err(at)? {
                    grants.push(Grant { path, rights, reason: reason(row), origin: row.origin.clone() });
                }
            }
        }
        Ok(grants)
    }

    /// Where a place is here; `None`: nowhere, which is noted.
    fn place(&mut self, place: &Place, shown: &str, rights: Rights) -> Result<Option<PathBuf>, String> {
        let top = match place.anchor {
            Anchor::Root => self.here.root.clone(),
            Anchor::Workspace => self.base.to_path_buf(),
            Anchor::Home => match &self.here.home {
                Some(home) => home.clone(),
                None => return Err(format!("{shown}: there is no home folder here: set HOME, or write the path out")),
            },
            Anchor::Session => {
                let first = place.rest.components().next().and_then(|part| part.as_os_str().to_str());
                return match first {
                    Some("home" | "tmp" | "cache") => Ok(Some(self.session.join(&place.rest))),
                    Some("spool") if !rights.write => Ok(Some(self.session.join(&place.rest))),
                    _ => Err(format!("{shown}: of the session's folder home, tmp and cache can be granted, and spool for reading")),
                };
            }
        };
        let Ok(path) = self.here.links.canonical(&top.join(&place.rest)) else {
            self.drop(shown, "not there, or not for us to see: what is made there later is not granted");
            return Ok(None);
        };
        // A link in the tree says where it leads, not the policy.
        if place.anchor == Anchor::Workspace && !path.starts_with(self.base) {
            return Err(format!(
                "{shown} is a link that leads out of the workspace, to {}: write that path if you mean it",
                path.display()
            ));
        }
        if let Some(why) = holds_too_much(&path, self.here).filter(|_| path != self.base) {
            return Err(format!("{shown}: {why}"));
        }
        if rights.write && self.session.starts_with(&path) {
            return Err(format!(
                "{shown} contains the session's folder, which commands may not write as a whole: set TMPDIR to another place"
            ));
        }
        if rights.write && self.base.starts_with(&path) && path != self.base {
            self.loud.push(format!("fs.write: {shown} contains the workspace and what lies beside it"));
        }
        Ok(Some(path))
    }
}

/// Takes out of PATH what commands may write to.
fn writable_on_path(present: &mut Present, written: &[Grant]) -> Vec<PathBuf> {
    let (bad, good) =
        std::mem::take(&mut present.path).into_iter().partition(|path| covered(written, path, Rights { write: true, ..Rights::default() }));
    present.path = good;
    bad
}

/// Whether the base is itself the folder of a repository: its settings and hooks lie at the top.
fn is_bare(base: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| base.join(name).symlink_metadata().is_ok())
}

fn limits(rules: &LimitRules) -> Limits {
    Limits {
        wall_ms: rules.wall.map_or(0, |time| time.0),
        // Rounded up: a limit of half a second is not none.
        cpu_s: rules.cpu.map_or(0, |time| time.0.div_ceil(1000)),
        memory: rules.memory.map_or(0, |size| size.0),
        processes: rules.processes.unwrap_or(0),
        file_size: rules.file_size.map_or(0, |size| size.0),
        open_files: rules.open_files.unwrap_or(0),
        output: rules.output.map_or(0, |size| size.0),
        disk: rules.disk.map_or(0, |size| size.0),
    }
}

fn reason(row: &Row) -> String {
    row.reason.clone().unwrap_or_else(|| "the policy gives no reason".into())
}

fn invalid(says: String) -> Fault {
    Fault::new(FaultCode::InvalidPolicy, says)
}

#[cfg(test)]
pub(crate) mod tests;
