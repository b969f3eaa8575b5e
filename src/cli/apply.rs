//! `bailiwick apply`: takes over the patch of a run. Needs no model, no network and no key.
//!
//! The patch is applied by git as a command of the sandbox: with a repository and a configuration of its own, so that nothing that the
//! workspace's repository configures runs, and where protected names stay protected. All of it applies, or nothing.

use super::engine::Engine;
use super::setup::{Asked, Setup};
use super::show::seen;
use super::{Common, Registry, say_fault};
use crate::agent::Doorway;
use crate::agent::outcome::Outcome;
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
apply --check "$@" || exit 64
apply "$@"
"#;

/// The script's code for a patch that does not apply.
const DOES_NOT_APPLY: i32 = 64;

#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// The folder of a run, or a patch
    #[arg(value_name = "DIR or FILE")]
    patch: PathBuf,
    /// Take a patch back that was applied
    #[arg(long, short = 'R')]
    reverse: bool,
    /// Say nothing when it is applied
    #[arg(long, short)]
    quiet: bool,
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
            Err(Outcome::Failed(fault)) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
            Err(outcome) => {
                say!("bailiwick: {}; a part of the patch may be there: `git status` shows it", outcome.message().unwrap_or_default());
                outcome.exit_code()
            }
        }
    }

    fn try_run(self, common: &Common, registry: Registry) -> Result<(), Outcome> {
        let file = if self.patch.is_dir() { self.patch.join("changes.patch") } else { self.patch };
        let wrong = |says: String| {
            Fault::new(FaultCode::InvalidArguments, format!("{}: {says}", file.display()))
                .hint("name the folder of a run, the one that was printed at its end or given as --out, or a patch")
        };
        let meta = std::fs::metadata(&file).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_file() || meta.len() > MOST {
            return Err(wrong("this is no patch".into()).into());
        }
        let patch = std::fs::read(&file).map_err(|error| wrong(error.to_string()))?;
        if patch.is_empty() {
            say!("the patch is empty: there is nothing to change");
            return Ok(());
        }
        let files = changed_files(&patch);
        if files == 0 {
            return Err(wrong("this is no patch".into()).into());
        }
        let mut engine = Engine::start()?;
        let setup = Setup::new(common)?;
        if setup.charter().execute.is_none() {
            return Err(Fault::new(FaultCode::ToolDenied, format!("the policy {} permits no programs", setup.charter().policy))
                .hint("--policy build does")
                .into());
        }
        let direction = if self.reverse { Direction::Reverse } else { Direction::Forward };
        let changes = if files == 1 { "1 file changed".into() } else { format!("{files} files changed") };
        for undone in patiently(&mut engine, with_setup(registry, &setup, patch, direction))? {
            say!("bailiwick: {}", seen(&undone));
        }
        if !self.quiet {
            let done = if self.reverse { "taken back" } else { "applied" };
            say!("{done}: {changes} in {}", seen(&setup.charter().base.display().to_string()));
        }
        Ok(())
    }
}

/// Drives it to its end. One signal does not cut it short, for half a patch would be worse than a moment's patience; a second one does.
fn patiently<T>(engine: &mut Engine, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Outcome> {
    let Engine { runtime, signals, .. } = engine;
    runtime.block_on(async {
        let mut work = std::pin::pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done.map_err(Outcome::Failed),
            _ = signals.next() => say!("bailiwick: the patch is being written; a second signal ends that"),
        }
        tokio::select! {
            biased;
            done = work => done.map_err(Outcome::Failed),
            signal = signals.next() => Err(Outcome::Signal(signal)),
        }
    })
}

/// How many files a patch changes: by git's own headers, or by those of `diff -u` where it has none.
fn changed_files(patch: &[u8]) -> usize {
    // A line of content begins with a blank, a sign or, in a binary one, with a word without blanks; one that was taken out may look like
    // `--- `, but is not followed by the two that follow that.
    let lines: Vec<&[u8]> = patch.split(|byte| *byte == b'\n').collect();
    match lines.iter().filter(|line| line.starts_with(b"diff --git ")).count() {
        0 => lines
            .windows(3)
            .filter(|next| next[0].starts_with(b"--- ") && next[1].starts_with(b"+++ ") && next[2].starts_with(b"@@ "))
            .count(),
        files => files,
    }
}

/// Applies a patch to a folder that is thrown away when a signal comes. Returns what of it was undone because it is protected.
///
/// # Errors
/// `no_match` when it does not apply; as a session's start; the signal that came first.
pub(super) fn apply_to(
    engine: &mut Engine,
    registry: Registry,
    base: &Path,
    patch: Vec<u8>,
    direction: Direction,
) -> Result<Vec<String>, Outcome> {
    if patch.is_empty() {
        return Ok(Vec::new());
    }
    let asked = Asked { workspace: Some(base.to_path_buf()), policy: "build".into(), fork: true, ..Asked::default() };
    let setup = Setup::of(&asked)?;
    Ok(engine.drive(with_setup(registry, &setup, patch, direction))??)
}

async fn with_setup(registry: Registry, setup: &Setup, patch: Vec<u8>, direction: Direction) -> Result<Vec<String>, Fault> {
    let mut argv = ["bash", "-c", SCRIPT, "apply"].map(OsString::from).to_vec();
    if direction == Direction::Reverse {
        argv.push("--reverse".into());
    }
    let session = Session::start(Options { exe: this_exe(), registry, charter: setup.charter().clone() })?;
    let special = session.special_files().await;
    if let Some(path) = special.paths.iter().find(|path| path.rsplit('/').next() == Some(".gitattributes")) {
        return Err(Fault::new(FaultCode::NotRegularFile, format!("{path} is a FIFO or a device, for which git would wait"))
            .hint("remove it, or put a file in its place"));
    }
    let (output, undone) = session.execute(argv, Vec::new(), Some(patch)).await?;
    session.close();
    if output.status == 0 {
        return Ok(undone);
    }
    let said = String::from_utf8_lossy(&output.stderr).chars().take(2000).collect::<String>();
    let said = said.trim();
    if output.status == DOES_NOT_APPLY {
        return Err(Fault::new(FaultCode::NoMatch, format!("the patch does not apply here, and nothing was changed: {said}"))
            .hint("it is made for the files as they were when the run began; one that was applied already does not apply again"));
    }
    let code = if said.contains("No space left") { FaultCode::DiskFull } else { FaultCode::IoError };
    Err(Fault::new(code, format!("the patch applies here, and could not be written to its end: {said}"))
        .hint("a part of it may be there: `git status` shows it; put that back, mend the cause, then apply again"))
}
