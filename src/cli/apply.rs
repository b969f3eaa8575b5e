//! `bailiwick apply`: takes over the patch of a run. Needs no model, no network and no key.
//!
//! The patch is applied by git as a command of the sandbox: with a repository and a configuration of its own, so that nothing that the
//! workspace's repository configures runs, and where protected names stay protected. All of it applies, or nothing.

use super::engine::Engine;
use super::setup::{Asked, Setup};
use super::{Common, Registry, say_fault};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::session::{Options, Session, this_exe};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The most bytes of a patch.
const MOST: u64 = 1 << 30;

/// Reads a patch from standard input; the arguments go to `git apply`.
const SCRIPT: &str = r#"
set -e
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 LC_ALL=C
git init -q --bare --template= "$place/git"
mkdir -p "$place/git/info"
printf '* -text -crlf !eol -ident -filter !working-tree-encoding !diff !merge !whitespace
' > "$place/git/info/attributes"
cat > "$place/patch"
export GIT_DIR="$place/git" GIT_WORK_TREE=.
apply() {
  git -c core.autocrlf=false -c core.safecrlf=false -c core.symlinks=true -c core.fileMode=true -c core.hooksPath=/dev/null     -c core.attributesFile=/dev/null -c core.fsmonitor=false apply --whitespace=nowarn "$@" "$place/patch"
}
apply --check "$@"
apply "$@"
"#;

#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// The folder of a run, or a patch
    #[arg(value_name = "DIR or FILE")]
    patch: PathBuf,
    /// Take a patch back that was applied
    #[arg(long, short = 'R')]
    reverse: bool,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// The change is made.
    Forward,
    /// The change is taken back.
    Reverse,
}

impl Apply {
    /// 0: it was applied. 1: it does not apply, and nothing was changed.
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        match self.try_run(common, registry) {
            Ok(()) => ExitCode::Done,
            Err(fault) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
        }
    }

    fn try_run(self, common: &Common, registry: Registry) -> Result<(), Fault> {
        let file = if self.patch.is_dir() { self.patch.join("changes.patch") } else { self.patch };
        let wrong = |says: String| Fault::new(FaultCode::InvalidArguments, format!("{}: {says}", file.display()));
        let meta = std::fs::metadata(&file).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_file() || meta.len() > MOST {
            return Err(wrong("this is no patch".into()));
        }
        let patch = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
        if patch.is_empty() {
            say!("the patch is empty: there is nothing to change");
            return Ok(());
        }
        let engine = Engine::start()?;
        let setup = Setup::new(common)?;
        if setup.charter().execute.is_none() {
            return Err(Fault::new(FaultCode::ToolDenied, format!("the policy {} permits no programs", setup.charter().policy))
                .hint("--policy build does"));
        }
        let direction = if self.reverse { Direction::Reverse } else { Direction::Forward };
        for undone in with_setup(&engine, registry, &setup, patch, direction)? {
            say!("bailiwick: {undone}");
        }
        Ok(())
    }
}

/// Applies a patch to a workspace, whole or not at all. Returns what of it was undone because it is protected.
///
/// # Errors
/// `no_match` when it does not apply; as a session's start.
pub(super) fn apply_to(
    engine: &Engine,
    registry: Registry,
    base: &Path,
    patch: Vec<u8>,
    direction: Direction,
) -> Result<Vec<String>, Fault> {
    if patch.is_empty() {
        return Ok(Vec::new());
    }
    let asked = Asked { workspace: Some(base.to_path_buf()), policy: "build".into(), fork: true, ..Asked::default() };
    with_setup(engine, registry, &Setup::of(&asked)?, patch, direction)
}

fn with_setup(engine: &Engine, registry: Registry, setup: &Setup, patch: Vec<u8>, direction: Direction) -> Result<Vec<String>, Fault> {
    let mut argv = ["bash", "-c", SCRIPT, "apply"].map(OsString::from).to_vec();
    if direction == Direction::Reverse {
        argv.push("--reverse".into());
    }
    engine.runtime.block_on(async {
        let session = Session::start(Options { exe: this_exe(), registry, charter: setup.charter().clone() })?;
        let (output, undone) = session.execute(argv, Vec::new(), Some(patch)).await?;
        session.close();
        if output.status == 0 {
            return Ok(undone);
        }
        let said = String::from_utf8_lossy(&output.stderr).chars().take(2000).collect::<String>();
        Err(Fault::new(FaultCode::NoMatch, format!("the patch does not apply here, and nothing was changed: {}", said.trim()))
            .hint("it is made for the files as they were when the run began"))
    })
}
