//! `bailiwick replay FILE`: the calls of a transcript once more, without a model, in a copy of the workspace; do they answer the same?
//!
//! The workspace itself is never changed. Where the run left a patch and the workspace is as the run left it, the copy is taken back to
//! the start first.

use super::apply::{Direction, apply_to};
use super::copy::Copy;
use super::engine::{Engine, bytes_of_regular};
use super::folder::events_of;
use super::setup::Setup;
use super::show::{Console, Detail};
use super::{Common, Registry, say_fault};
use crate::agent::outcome::Outcome;
use crate::agent::transcript::{Event, What};
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::session::{Call, Options, Session, this_exe};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Facts that change by themselves from one time to the next.
const VOLATILE: &[&str] = &["duration_ms", "cpu_ms", "max_rss", "max_rss_kib", "elapsed_ms", "age_ms", "pid", "mtime", "modified", "spool"];

#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    /// A transcript, or the folder of a run
    #[arg(value_name = "FILE")]
    transcript: PathBuf,
    /// Replay on the workspace as it is, even where the run's patch could be taken back first
    #[arg(long)]
    as_is: bool,
}

impl Replay {
    /// 0: every call answered as it did. 1: one did not.
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        match self.try_run(common, registry) {
            Ok(code) => code,
            Err(fault) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
        }
    }

    fn try_run(self, common: &Common, registry: Registry) -> Result<ExitCode, Fault> {
        let (file, events) = events_of(&self.transcript)?;
        let there = events.iter().find_map(|event| match &event.what {
            What::RunStarted { workspace, .. } => Some(workspace.clone()),
            _ => None,
        });
        let there = there.ok_or_else(|| Fault::new(FaultCode::InvalidArguments, format!("{} holds no run", file.display())))?;
        let calls = made(&events);
        let mut engine = Engine::start()?;
        let mut asked = common.asked();
        let original = Setup::resolved(&asked)?;
        let console = Console::new(Detail::Normal, common.json);
        let place = tempfile::Builder::new()
            .prefix("bailiwick-replay-")
            .tempdir()
            .map_err(|error| Fault::new(FaultCode::IoError, format!("a folder for the copy: {error}")))?;
        let copy = match Copy::make(original.base(), place.path(), registry, false, &mut engine, &console) {
            Ok(copy) => copy,
            Err(outcome) => {
                say!("bailiwick: {}", outcome.message().unwrap_or_default());
                return Ok(outcome.exit_code());
            }
        };
        let patch = file.parent().unwrap_or(Path::new(".")).join("changes.patch");
        if !self.as_is
            && let Ok(patch) = bytes_of_regular(&patch)
        {
            match apply_to(&mut engine, registry, copy.path(), patch, Direction::Reverse) {
                Ok(_) => console.say("the copy was taken back to the start of the run"),
                Err(Outcome::Signal(signal)) => return Ok(ExitCode::Signal(signal)),
                Err(_) => console.say("the workspace is not as the run left it: replayed on it as it is"),
            }
        }
        asked.workspace = Some(copy.path().to_path_buf());
        let setup = Setup::of(&asked)?;
        let Engine { runtime, signals, .. } = &mut engine;
        let answered = runtime.block_on(async {
            let session = Session::start(Options { exe: this_exe(), registry, charter: setup.charter().clone() })?;
            let played = play(&session, &calls, &there, common.json);
            let different = tokio::select! {
                signal = signals.next() => return Ok::<_, Fault>(Err(signal)),
                different = played => different,
            };
            session.close();
            Ok(Ok(different))
        })?;
        match answered {
            Err(signal) => Ok(ExitCode::Signal(signal)),
            Ok(0) if calls.is_empty() => {
                say!("the run made no calls: there is nothing to replay");
                Ok(ExitCode::Done)
            }
            Ok(0) => {
                say!("{} calls answered as they did", calls.len());
                Ok(ExitCode::Done)
            }
            Ok(different) => {
                say!("{different} of {} calls answered otherwise", calls.len());
                Ok(ExitCode::Failed)
            }
        }
    }
}

/// The calls that really ran and were answered, in the order in which they began.
fn made(events: &[Event]) -> Vec<(Call, Envelope)> {
    let mut answers: HashMap<&str, &Envelope> = HashMap::new();
    for event in events {
        if let What::CallEnded { id, envelope, .. } = &event.what {
            answers.insert(id, envelope);
        }
    }
    let begun = events.iter().filter_map(|event| match &event.what {
        What::CallStarted { call } => Some(call),
        _ => None,
    });
    begun
        .filter_map(|call| Some((call.clone(), (*answers.get(call.id.as_str())?).clone())))
        .filter(|(_, envelope)| !envelope.error().is_some_and(|error| error.starts_with("interrupted: ")))
        .collect()
}

/// Makes the calls; returns how many answered otherwise.
async fn play(session: &Session, calls: &[(Call, Envelope)], there: &str, machine: bool) -> usize {
    let here = session.charter().base.display().to_string();
    let mut different = 0;
    for (call, recorded) in calls {
        let answer = session.call(call.clone()).await;
        let (before, now) = (lasting(recorded, there), lasting(&answer.envelope, &here));
        let same = before == now;
        different += usize::from(!same);
        if machine {
            let line = json!({"id": call.id, "tool": call.tool, "same": same, "recorded": before, "replayed": now});
            super::told(writeln!(std::io::stdout(), "{line}"));
        } else {
            let _ = writeln!(anstream::stderr(), "  {} {}", if same { "✓" } else { "✗" }, super::show::seen(&super::show::shown(call)));
            if !same {
                let _ = writeln!(anstream::stderr(), "    was {}\n    is  {}", part(&before), part(&now));
            }
        }
    }
    different
}

/// As much of an answer as a person reads.
fn part(answer: &Value) -> String {
    const MOST: usize = 2_000;
    let text = super::show::seen(&answer.to_string());
    if text.chars().count() <= MOST { text } else { text.chars().take(MOST).chain(['…']).collect() }
}

/// An envelope without what changes by itself and without the names of folders of this run.
fn lasting(envelope: &Envelope, base: &str) -> Value {
    fn walk(value: Value, base: &str) -> Value {
        match value {
            Value::String(text) => Value::String(plain(&text, base)),
            Value::Array(list) => Value::Array(list.into_iter().map(|value| walk(value, base)).collect()),
            Value::Object(map) => {
                let kept = map.into_iter().filter(|(key, _)| !VOLATILE.contains(&key.as_str()));
                Value::Object(kept.map(|(key, value)| (key, walk(value, base))).collect())
            }
            other => other,
        }
    }
    walk(serde_json::to_value(envelope).unwrap_or_default(), base)
}

/// The workspace's folder and the session's are other ones each time.
fn plain(text: &str, base: &str) -> String {
    const SESSION: &str = "bailiwick-";
    const DIGITS: usize = 32;
    let text = if base.is_empty() { text.to_owned() } else { text.replace(base, "{workspace}") };
    let mut parts = text.split(SESSION);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_session = part.len() >= DIGITS && part.bytes().take(DIGITS).all(|byte| byte.is_ascii_hexdigit());
        plain.push_str(SESSION);
        plain.push_str(if is_session { &part[DIGITS..] } else { part });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_run_do_not_count() {
        let session = "0123456789abcdef".repeat(2);
        assert_eq!(
            plain(&format!("/w/a in /tmp/bailiwick-{session}/tmp, bailiwick-x"), "/w"),
            "{workspace}/a in /tmp/bailiwick-/tmp, bailiwick-x"
        );
        assert_eq!(plain("é bailiwick-é", ""), "é bailiwick-é");
    }
}
