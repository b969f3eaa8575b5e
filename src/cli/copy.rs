//! A disposable copy of the workspace (`--workspace-mode copy`): the model works in it, and the patch is all that is left of it.

use super::apply::{Direction, apply_to};
use super::engine::{Engine, bytes_of_regular};
use super::show::Console;
use super::{Registry, say_fault};
use crate::agent::outcome::Outcome;
use crate::envelope::{Fault, FaultCode};
use crate::policy::home::remove_tree;
use crate::workspace::BaseDir;
use crate::workspace::duplicate::{Duplicated, duplicate};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What the name of a copy begins with.
const PREFIX: &str = "workspace-";
/// Between two looks at the terminal and the signals.
const STEP: Duration = Duration::from_millis(50);

/// The copy. It goes when this is dropped.
#[derive(Debug)]
pub(super) struct Copy {
    path: PathBuf,
}

impl Copy {
    /// Copies the workspace into a new folder beneath `out`; for a run that goes on, with what it had changed so far.
    ///
    /// # Errors
    /// How the run ends instead: a signal came, the disk is full, the workspace cannot be read.
    pub(super) fn make(
        base: &BaseDir,
        out: &Path,
        registry: Registry,
        resumed: bool,
        engine: &mut Engine,
        console: &Console,
    ) -> Result<Self, Outcome> {
        // A name that nothing had: what is there already is never taken for ours, and never removed.
        let broken = |error: std::io::Error| Outcome::Failed(Fault::new(FaultCode::IoError, format!("{}: {error}", out.display())));
        let copy = Self { path: tempfile::Builder::new().prefix(PREFIX).tempdir_in(out).map_err(broken)?.keep() };
        let began = Instant::now();
        let (mut looked, mut signal) = (began, None);
        let copied = duplicate(base, &copy.path, &mut |done| {
            if looked.elapsed() >= STEP {
                console.busy(&said(done));
                signal = engine.came();
                looked = Instant::now();
            }
            signal.is_none()
        });
        match (copied, signal) {
            (_, Some(number)) => return Err(Outcome::Signal(number)),
            (Err(fault), None) => return Err(Outcome::Failed(fault)),
            (Ok(done), None) => {
                console.say(&format!("{} in {:.1} s", said(&done), began.elapsed().as_secs_f64()));
                for path in &done.skipped {
                    console.say(&format!("not copied: {path}"));
                }
                if done.left_out > done.skipped.len() as u64 {
                    console.say(&format!("not copied: {} more", done.left_out - done.skipped.len() as u64));
                }
            }
        }
        let patch = out.join("changes.patch");
        if resumed && patch.exists() {
            let applied = bytes_of_regular(&patch)
                .map_err(broken_patch)
                .and_then(|patch| apply_to(engine, registry, &copy.path, patch, Direction::Forward));
            applied?;
        }
        Ok(copy)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if let Err(fault) = remove_tree(&self.path) {
            say_fault(&fault);
        }
    }
}

fn broken_patch(error: std::io::Error) -> Outcome {
    Outcome::Failed(Fault::new(FaultCode::IoError, format!("the patch of the run so far: {error}")))
}

#[allow(clippy::cast_precision_loss)] // a figure for people
fn said(done: &Duplicated) -> String {
    let shared = if done.reflinked > 0 { format!(", {} of them by reference", done.reflinked) } else { String::new() };
    format!("copied {} files ({:.1} MB{shared}), {} folders, {} links", done.files, done.bytes as f64 / 1e6, done.folders, done.links)
}
