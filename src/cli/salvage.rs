//! What a killed run left: its patch, its result and the end of its transcript are made at the next start of a run.

use super::Registry;
use super::engine::Engine;
use super::folder::{ended_early, write_result};
use super::setup::{Asked, Setup};
use super::show::seen;
use crate::agent::act::touched;
use crate::agent::finish::replace;
use crate::agent::mask::Mask;
use crate::agent::outcome::Outcome;
use crate::agent::patch::{Baseline, Patch, Record};
use crate::agent::transcript::{Transcript, What};
use crate::envelope::{Fault, FaultCode};
use crate::policy::home::{Dead, RECORD, dead_runs, remove_tree};
use crate::session::{Options, Session, this_exe};
use crate::tools::{self, Access};
use crate::workspace::BaseDir;
use crate::workspace::duplicate::duplicate;
use nix::unistd::geteuid;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The most bytes of a record.
const MOST: u64 = 64 * 1024 * 1024;

/// Where a session's record lies: in its folder, where no command writes.
pub(super) fn record_in(session_dir: &Path) -> PathBuf {
    session_dir.join(RECORD)
}

/// Makes good what killed runs left. `own`: the folder for what this run leaves. What cannot be made good is said, and is no reason not to start.
///
/// # Errors
/// The signal that came meanwhile; what was not made good by then is at the next start.
pub(super) fn salvage(engine: &mut Engine, registry: Registry, here: &Setup, own: &Path) -> Result<(), Outcome> {
    for dead in dead_runs(here.charter(), here.here().uid) {
        match one(engine, registry, &dead, own) {
            Ok(Some(out)) => say!("bailiwick: a run that was killed has its patch now: {}", seen(&out.display().to_string())),
            Ok(None) => {}
            Err(Outcome::Failed(fault)) => {
                say!("bailiwick: the patch of a run that was killed cannot be made now: {}", seen(&fault.to_string()));
                // The next start tries again, for a while.
                continue;
            }
            Err(outcome) => return Err(outcome),
        }
        dead.remove();
    }
    Ok(())
}

fn one(engine: &mut Engine, registry: Registry, dead: &Dead, own: &Path) -> Result<Option<PathBuf>, Outcome> {
    let broken = |what: &Path, error: std::io::Error| Fault::new(FaultCode::IoError, format!("{}: {error}", what.display()));
    let file = record_in(&dead.folder);
    let mut text = Vec::new();
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(&file)
        .map_err(|error| broken(&file, error))?;
    // It says where we write. Whoever may make folders beside ours could have planted it.
    let meta = opened.metadata().map_err(|error| broken(&file, error))?;
    if !meta.is_file() || meta.uid() != geteuid().as_raw() || meta.nlink() != 1 || meta.mode() & 0o022 != 0 {
        return Err(Fault::new(FaultCode::PermissionDenied, format!("{} is not ours", file.display())).into());
    }
    opened.take(MOST).read_to_end(&mut text).map_err(|error| broken(&file, error))?;
    let record: Record = serde_json::from_slice(&text).map_err(|error| broken(&file, error.into()))?;
    let transcript_file = record.out.join("transcript.jsonl");
    // It was killed before it had begun.
    let nothing = transcript_file.metadata().is_ok_and(|meta| meta.len() == 0);
    if !record.out.is_dir() || !record.base.is_dir() || nothing || is_gone(&record.out, &transcript_file, dead, own) {
        // The person has thrown the run, or the workspace, away.
        return Ok(None);
    }
    let result_file = record.out.join("result.json");
    if result_file.exists() {
        // It had ended, or has been made good, and whoever did that was killed while it tidied up.
        tidy(&record);
        return Ok(None);
    }
    let (mut transcript, _) = Transcript::resume(&transcript_file, Mask::default())?;
    let changes = |name: &str| tools::find(registry, name).is_some_and(|tool| tool.access() == Access::Change);
    let touched: Vec<String> = touched(transcript.events(), changes).into_iter().collect();
    let patch = engine.drive(make(registry, dead, &record, &touched))??;
    let mut result = ended_early(&transcript, None, &Outcome::Signal(9));
    result.notes.push("the process was killed; this was written at the next start of a run".into());
    let patch_file = record.out.join("changes.patch");
    match patch {
        None => {
            // It was killed before it had looked at the start: it had changed nothing, and what was there before it stays.
            result.patch = patch_file.exists().then(|| patch_file.display().to_string());
        }
        Some(patch) => {
            replace(&patch_file, &patch.text).map_err(|error| broken(&patch_file, error))?;
            (result.patch, result.patch_error) = (Some(patch_file.display().to_string()), None);
            result.changed_files = patch.files;
            result.notes.extend(patch.notes);
        }
    }
    let _ = serde_json::to_value(&result).map(|result| transcript.append(What::RunEnded { result }).map(drop));
    write_result(&result, transcript.mask(), &result_file)?;
    tidy(&record);
    Ok(result.patch.map(|_| record.out))
}

/// The copy is not needed any more.
fn tidy(record: &Record) {
    if record.disposable && record.base.parent() == Some(&record.out) {
        let _ = remove_tree(&record.base);
    }
}

/// Whether what lies there is not that run's any more: this run, or a later one, has its transcript there.
fn is_gone(out: &Path, transcript: &Path, dead: &Dead, own: &Path) -> bool {
    let made = |path: &Path| path.metadata().and_then(|meta| meta.created()).ok();
    let later = || made(transcript).zip(made(&record_in(&dead.folder))).is_some_and(|(transcript, record)| transcript > record);
    out == own && later() || !transcript.exists()
}

/// The patch, by a session of its own on the workspace of that run.
async fn make(registry: Registry, dead: &Dead, record: &Record, touched: &[String]) -> Result<Option<Patch>, Fault> {
    let Some(kept) = &record.baseline else { return Ok(None) };
    let name = Path::new(&kept.git);
    if name.components().count() != 1 || name.file_name() != Some(name.as_os_str()) {
        return Err(Fault::new(FaultCode::Internal, "the record of a killed run names no folder of its own"));
    }
    let asked = Asked { workspace: Some(record.base.clone()), policy: "observe".into(), fork: true, ..Asked::default() };
    let setup = Setup::of(&asked)?;
    let session = Session::start(Options { exe: this_exe(), registry, charter: setup.charter().clone() })?;
    let git = setup.charter().session_dir.join("own").join("salvaged.git");
    // Copied, not moved: whatever ends this attempt, the next one finds what it needs.
    let from = dead.folder.join("own").join(name);
    let broken = |error: std::io::Error| Fault::new(FaultCode::IoError, format!("the state at the start of a killed run: {error}"));
    if !from.symlink_metadata().map_err(broken)?.is_dir() {
        return Err(Fault::new(FaultCode::Internal, "the state at the start of a killed run is no folder"));
    }
    std::fs::create_dir(&git).map_err(broken)?;
    duplicate(&BaseDir::open(&from)?, &git, &mut |_| true)?;
    let patch = Baseline::restore(&session, git, kept).await?.patch(&session, touched).await;
    session.close();
    patch.map(Some)
}
