//! The end of a run, on every way out: nothing runs any more, then the patch, then the result.
//!
//! The patch is made after the last comparison of protected names: what that undoes is not in it.

use super::Doorway;
use super::outcome::{FailedCall, Outcome, RunResult};
use super::patch::Patch;
use super::run_loop::{Finished, Run};
use super::transcript::{Event, What};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the end of background work and the last comparison may take.
const SETTLE_TIME: Duration = Duration::from_secs(60);
/// How long after the end a further signal still counts as the first.
const GRACE: Duration = Duration::from_secs(2);
/// How long the patch may take.
const PATCH_TIME: Duration = Duration::from_secs(120);

impl<D: Doorway> Run<'_, D> {
    /// Ends the run. A further signal cuts the waiting short.
    pub(super) async fn finish(mut self, outcome: Outcome, mut stop: impl AsyncFnMut() -> u8) -> Finished {
        let ending = Instant::now();
        // Systems that end a job often send two signals at once: the second is meant when it comes after a while.
        let mut further = async || {
            loop {
                stop().await;
                if ending.elapsed() >= GRACE {
                    return;
                }
            }
        };
        let mut notes = std::mem::take(&mut self.notes);
        if let Err(fault) = self.log.close_dangling() {
            notes.push(format!("the transcript could not be ended: {fault}"));
        }
        let settled = async {
            match tokio::time::timeout(SETTLE_TIME, self.doorway.settle()).await {
                Ok(undone) => undone,
                Err(_) => vec![format!("protected names were not compared within {} s", SETTLE_TIME.as_secs())],
            }
        };
        let undone = tokio::select! {
            biased;
            undone = settled => undone,
            () = further() => vec!["a further signal came before protected names were compared: look at them before you use the patch".into()],
        };
        for text in &undone {
            let _ = self.log.append(What::Noted { text: text.clone() });
        }
        notes.extend(undone);
        let (patch, patch_path, patch_error) = tokio::select! {
            biased;
            made = self.make_patch() => made,
            () = further() => (None, None, Some("a further signal came before the patch was made".into())),
        };
        notes.extend(patch.iter().flat_map(|patch| patch.notes.clone()));
        let events = self.log.transcript.events();
        let spent = self.budget.spent();
        let exit_code = outcome.exit_code().code();
        #[allow(clippy::cast_precision_loss)] // exact up to nine thousand million dollars
        let cost_usd = self.budget.cost().map(|micros| micros as f64 / 1e6);
        let mask = self.log.transcript.mask();
        let result = RunResult {
            v: 1,
            run_id: self.log.transcript.run_id().into(),
            status: if exit_code == 0 { "success" } else { "failure" }.into(),
            stop_reason: outcome.stop_reason().into(),
            exit_code,
            message: outcome.message().map(|text| mask.text(&text).into_owned()),
            answer: answer_of(events),
            model: self.provider.name(),
            turns: spent.turns,
            input_tokens: spent.input_tokens,
            output_tokens: spent.output_tokens,
            cost_usd,
            duration_ms: u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            changed_files: patch.as_ref().map(|patch| patch.files.clone()).unwrap_or_default(),
            failed_calls: failed_calls(events),
            patch: patch_path,
            patch_error,
            notes,
            enforcement: self.options.enforcement.clone(),
        };
        if let Ok(value) = serde_json::to_value(&result) {
            // That the last event is missing takes nothing from the result, which the caller has.
            let _ = self.log.append(What::RunEnded { result: value });
        }
        Finished { result, patch }
    }

    /// The patch, where it was written, and why not.
    async fn make_patch(&self) -> (Option<Patch>, Option<String>, Option<String>) {
        let patch = match &self.files.baseline {
            Some(baseline) => {
                let touched: Vec<String> = self.files.touched.iter().cloned().collect();
                match tokio::time::timeout(PATCH_TIME, baseline.patch(self.doorway, &touched)).await {
                    Ok(Ok(patch)) => patch,
                    Ok(Err(fault)) => return (None, None, Some(fault.to_string())),
                    Err(_) => return (None, None, Some(format!("the patch was not made within {} s", PATCH_TIME.as_secs()))),
                }
            }
            // It ended before anything of it could run; what an earlier process of it left stays.
            None if self.patch_error.is_none() => Patch { text: self.options.earlier.clone().unwrap_or_default(), ..Patch::default() },
            None => return (None, None, self.patch_error.clone()),
        };
        let Some(file) = &self.options.patch_file else { return (Some(patch), None, None) };
        match replace(file, &patch.text) {
            Ok(()) => (Some(patch), Some(file.display().to_string()), None),
            Err(error) => (Some(patch), None, Some(format!("{}: {error}", file.display()))),
        }
    }
}

/// Writes a file of ours, whole or not at all, for its owner alone.
///
/// # Errors
/// The kernel's own.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(content)?;
    file.persist(path).map_err(|error| error.error).map(drop)
}

/// The last words of the model.
pub(super) fn answer_of(events: &[Event]) -> String {
    let mut said = events.iter().rev().filter_map(|event| match &event.what {
        What::Replied { text, .. } => Some(text),
        _ => None,
    });
    said.find(|text| !text.trim().is_empty()).cloned().unwrap_or_default()
}

/// The calls that failed, in order.
pub(super) fn failed_calls(events: &[Event]) -> Vec<FailedCall> {
    let failed = events.iter().filter_map(|event| match &event.what {
        What::CallEnded { id, tool, envelope, .. } => Some((id, tool, envelope.error()?)),
        _ => None,
    });
    failed.map(|(id, tool, error)| FailedCall { id: id.clone(), tool: tool.clone(), error: error.into() }).collect()
}
