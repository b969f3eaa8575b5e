//! Acting: the calls of one reply, in the order that keeps their meaning.
//!
//! Calls that only look and stand side by side run together; a change or a command runs alone, after all before it and before
//! all behind it. Answers come back in the order of the calls. A call that was refused is answered and never run.

use super::Doorway;
use super::observe::Log;
use super::patch::{Baseline, Record};
use super::prompt::Toolset;
use super::transcript::{Event, What};
use crate::dialect::Declared;
use crate::envelope::{Fault, FaultCode};
use crate::session::Call;
use crate::tools::args::nearest;
use crate::tools::{Access, Answer};
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Calls that look at the same time.
const MOST_AT_ONCE: usize = 8;
/// Characters of a result above which it goes to the spool, and how many of them the model is shown then.
const MOST_CHARS: usize = 30_000;
const PREVIEW_CHARS: usize = 1_500;
/// Keys under which a call or an answer names files that a change concerns.
const PATH_KEYS: &[&str] = &["path", "from", "to", "source", "destination", "src", "dst", "file_path", "new_path", "old_path"];

/// How long a call may take before it is ended, whatever its tool promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Calls that look.
    pub look: Duration,
    /// Calls that change.
    pub change: Duration,
    /// Commands; beyond the longest time that a command itself may ask for.
    pub execute: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { look: Duration::from_secs(120), change: Duration::from_secs(120), execute: Duration::from_secs(660) }
    }
}

impl Deadlines {
    /// None longer than what the policy lets a call have; a command has that long by itself, and is given the time to say so.
    pub fn within(wall: Duration) -> Self {
        let default = Self::default();
        Self { look: default.look.min(wall), change: default.change.min(wall), ..default }
    }

    fn of(&self, access: Option<Access>) -> Duration {
        match access {
            Some(Access::Look) => self.look,
            Some(Access::Change) => self.change,
            _ => self.execute,
        }
    }
}

/// A call as the dialect gave it: to be run, or to be refused.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Planned {
    pub(super) call: Call,
    pub(super) refused: Option<Fault>,
}

/// What file tools have touched, and the start that they must not blur.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// Where the start is written down, so that the patch of a killed process can still be made.
    pub(super) record: Option<(PathBuf, Record)>,
    pub(super) baseline: Option<Baseline>,
    pub(super) touched: BTreeSet<String>,
}

impl Files {
    /// Writes the start down, where it changed. That this fails takes nothing from the run itself.
    pub(super) fn remember(&mut self) {
        let (Some((file, record)), Some(baseline)) = (&mut self.record, &self.baseline) else { return };
        let kept = baseline.kept();
        if record.baseline.as_ref() == Some(&kept) {
            return;
        }
        record.baseline = Some(kept);
        let _ = record.write(file);
    }
}

/// Runs the calls of one reply.
///
/// # Errors
/// Only when the transcript cannot be written; then nothing further is run.
pub(super) async fn act(
    doorway: &impl Doorway,
    log: &mut Log<'_>,
    files: &mut Files,
    toolset: &Toolset,
    deadlines: Deadlines,
    planned: Vec<Planned>,
) -> Result<Vec<(Call, Answer)>, Fault> {
    let mut answers = Vec::with_capacity(planned.len());
    let mut rest = planned.into_iter().map(|planned| admit(planned, toolset)).collect::<Vec<_>>().into_iter().peekable();
    while let Some(first) = rest.next() {
        let looks = |admitted: &Admitted<'_>| matches!(&admitted.tool, Ok(tool) if tool.access == Some(Access::Look));
        let mut together = vec![first];
        if looks(&together[0]) {
            while together.len() < MOST_AT_ONCE
                && let Some(next) = rest.next_if(looks)
            {
                together.push(next);
            }
        }
        answers.extend(run(doorway, log, files, deadlines, together).await?);
    }
    Ok(answers)
}

struct Admitted<'a> {
    call: Call,
    tool: Result<&'a Declared, Fault>,
}

/// Whether a call may run at all: it was whole, and its tool is in the toolset.
fn admit(planned: Planned, toolset: &Toolset) -> Admitted<'_> {
    let Planned { call, refused } = planned;
    if let Some(fault) = refused {
        return Admitted { call, tool: Err(fault) };
    }
    let tool = toolset.find(&call.tool).ok_or_else(|| {
        let known: Vec<&str> = toolset.tools.iter().map(|tool| tool.name.as_str()).collect();
        let name: String = call.tool.chars().take(64).collect();
        let fault = Fault::new(FaultCode::UnknownTool, format!("there is no tool {name:?}"));
        match nearest(&name, &known) {
            Some(near) => fault.hint(format!("did you mean {near}?")),
            None => fault.hint(format!("there are {}", known.join(", "))),
        }
    });
    Admitted { call, tool }
}

/// Runs calls at the same time (or the one, alone).
async fn run(
    doorway: &impl Doorway,
    log: &mut Log<'_>,
    files: &mut Files,
    deadlines: Deadlines,
    together: Vec<Admitted<'_>>,
) -> Result<Vec<(Call, Answer)>, Fault> {
    for Admitted { call, tool } in &together {
        let Ok(tool) = tool else { continue };
        log.append(What::CallStarted { call: call.clone() })?;
        if tool.access == Some(Access::Change)
            && let Some(baseline) = &mut files.baseline
            && let Err(fault) = baseline.before_change(doorway, &paths(&call.args)).await
        {
            log.append(What::Noted { text: format!("an ignored file could not be kept as it was: {fault}") })?;
        }
        files.remember();
    }
    let answered = join(
        together
            .iter()
            .map(|admitted| async {
                let began = Instant::now();
                let answer = match &admitted.tool {
                    Err(fault) => Answer::failed(fault.clone()),
                    Ok(tool) => within(deadlines.of(tool.access), &admitted.call, doorway.call(admitted.call.clone())).await,
                };
                (answer, began.elapsed())
            })
            .collect(),
    )
    .await;
    let mut answers = Vec::with_capacity(answered.len());
    for (Admitted { call, tool }, (answer, time)) in together.into_iter().zip(answered) {
        if tool.is_ok_and(|tool| tool.access == Some(Access::Change)) {
            // A failed change may have done a part of its work.
            files.touched.extend(paths(&call.args));
            files.touched.extend(paths(answer.envelope.data()));
        }
        let answer = previewed(doorway, answer);
        log.append(What::CallEnded {
            id: call.id.clone(),
            tool: call.tool.clone(),
            envelope: answer.envelope.clone(),
            text: answer.text.clone(),
            duration_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        })?;
        answers.push((call, answer));
    }
    Ok(answers)
}

/// The answer, or the end of patience. Dropping the call ends what it started.
pub(super) async fn within(time: Duration, call: &Call, answer: impl Future<Output = Answer>) -> Answer {
    match tokio::time::timeout(time, answer).await {
        Ok(answer) => answer,
        Err(_) => Answer::failed(
            Fault::new(FaultCode::DeadlineExceeded, format!("{} did not answer within {} ms and was ended", call.tool, time.as_millis()))
                .hint("what it had done until then may stand"),
        ),
    }
}

/// The answer with its text as the model is shown it: whole, or the beginning of it and where the rest is.
fn previewed(doorway: &impl Doorway, answer: Answer) -> Answer {
    // Bytes first: counting characters of every result is not free, and no text has fewer bytes than characters.
    if answer.text.len() <= MOST_CHARS {
        return answer;
    }
    let chars = answer.text.chars().count();
    if chars <= MOST_CHARS {
        return answer;
    }
    let preview: String = answer.text.chars().take(PREVIEW_CHARS).collect();
    let rest = match doorway.keep_output(answer.text.as_bytes()) {
        Some(handle) => format!(
            "the whole is kept as {handle}: `grep` finds places in it, `read` shows it in pieces of less than {MOST_CHARS} characters"
        ),
        None => "the rest could not be kept: make a call that answers with less".into(),
    };
    Answer { text: format!("{preview}\n[the first {PREVIEW_CHARS} of {chars} characters; {rest}]"), ..answer }
}

/// Every path that calls which change named so far; `changes` says of a tool's name whether it is one of those.
pub fn touched(events: &[Event], changes: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut touched = BTreeSet::new();
    for event in events {
        match &event.what {
            What::CallStarted { call } if changes(&call.tool) => touched.extend(paths(&call.args)),
            What::CallEnded { tool, envelope, .. } if changes(tool) => touched.extend(paths(envelope.data())),
            _ => {}
        }
    }
    touched
}

/// The paths that arguments or facts name.
fn paths(value: &Value) -> Vec<String> {
    let named = PATH_KEYS.iter().filter_map(|key| value.get(*key)?.as_str());
    named.map(str::to_owned).collect()
}

/// Drives futures together to their ends; the results are in the order of the futures.
async fn join<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, output) in running.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *output = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
