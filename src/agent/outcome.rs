//! How a run ended, and `result.json`.

use super::budget::Kind;
use super::patch::Changed;
use crate::envelope::Fault;
use crate::exit_code::ExitCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The model says that it is done.
    Done,
    /// The model says that it cannot do it, or ended without a word.
    GaveUp(String),
    /// Something of ours failed (the transcript could not be written, say).
    Failed(Fault),
    /// A budget is spent.
    Budget(Kind),
    /// The provider failed, with its message.
    Provider(String),
    /// The model went in circles.
    Circle(String),
    /// The model could not make a call that parses.
    Protocol(String),
    /// What the person asked to be verified does not hold.
    Verification(String),
    /// A signal ended the run.
    Signal(u8),
}

impl Outcome {
    /// The word for `stop_reason`.
    pub fn stop_reason(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::GaveUp(_) => "gave_up",
            Self::Failed(_) => "failed",
            Self::Budget(Kind::Turns) => "turns_spent",
            Self::Budget(Kind::Wall) => "wall_clock",
            Self::Budget(Kind::Tokens) => "tokens_spent",
            Self::Budget(Kind::Cost) => "cost_spent",
            Self::Budget(Kind::ToolErrors) => "too_many_tool_errors",
            Self::Provider(_) => "provider_error",
            Self::Circle(_) => "doom_loop",
            Self::Protocol(_) => "tool_protocol",
            Self::Verification(_) => "verification_failed",
            Self::Signal(_) => "signal",
        }
    }

    /// The exit code.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Done => ExitCode::Done,
            Self::Failed(fault) => ExitCode::of(fault),
            Self::GaveUp(_) => ExitCode::Failed,
            Self::Budget(Kind::Wall) => ExitCode::WallClock,
            Self::Budget(_) => ExitCode::BudgetSpent,
            Self::Provider(_) => ExitCode::Provider,
            Self::Circle(_) | Self::Protocol(_) => ExitCode::LoopOrProtocol,
            Self::Verification(_) => ExitCode::VerificationFailed,
            Self::Signal(signal) => ExitCode::Signal(*signal),
        }
    }

    /// What to say of it to a person; `None` when it is done.
    pub fn message(&self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::GaveUp(text) | Self::Provider(text) | Self::Circle(text) | Self::Protocol(text) | Self::Verification(text) => {
                Some(text.clone())
            }
            Self::Failed(fault) => Some(fault.to_string()),
            Self::Budget(kind) => Some(format!("the budget for {} is spent", kind.as_str())),
            Self::Signal(signal) => Some(format!("ended by signal {signal}")),
        }
    }
}

impl From<Fault> for Outcome {
    fn from(fault: Fault) -> Self {
        Self::Failed(fault)
    }
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedCall {
    /// The id of the call.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The sentence, beginning with the code.
    pub error: String,
}

/// The content of `result.json`, on every way out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The version of this format: 1.
    pub v: u32,
    /// The run.
    pub run_id: String,
    /// `success` exactly when the exit code is 0, else `failure`.
    pub status: String,
    /// Why it stopped: `done`, `gave_up`, `doom_loop`, `turns_spent`, `wall_clock`, `signal` …
    pub stop_reason: String,
    /// The exit code of `run`.
    pub exit_code: u8,
    /// What to say to a person when it is not done.
    pub message: Option<String>,
    /// The model's last words.
    pub answer: String,
    /// The model.
    pub model: String,
    /// Requests to the model.
    pub turns: u32,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// US dollars; null where the price is not known.
    pub cost_usd: Option<f64>,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// What changed on disk since the start.
    pub changed_files: Vec<Changed>,
    /// Every call that failed, in order.
    pub failed_calls: Vec<FailedCall>,
    /// Where the patch was written; null when it was not.
    pub patch: Option<String>,
    /// Why there is no patch.
    pub patch_error: Option<String>,
    /// What a person should know: what could not be looked at, what was switched.
    pub notes: Vec<String>,
    /// What the sandbox enforced.
    pub enforcement: Value,
}

impl RunResult {
    /// The result of a run that ended before the model was asked anything.
    pub fn before_start(run_id: &str, model: &str, outcome: &Outcome) -> Self {
        let exit_code = outcome.exit_code().code();
        Self {
            v: 1,
            run_id: run_id.into(),
            status: if exit_code == 0 { "success" } else { "failure" }.into(),
            stop_reason: outcome.stop_reason().into(),
            exit_code,
            message: outcome.message(),
            answer: String::new(),
            model: model.into(),
            turns: 0,
            input_tokens: 0,
            output_tokens: 0,
            cost_usd: None,
            duration_ms: 0,
            changed_files: Vec::new(),
            failed_calls: Vec::new(),
            patch: None,
            patch_error: Some("the run ended before the model was asked anything: nothing was changed".into()),
            notes: Vec::new(),
            enforcement: Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::FaultCode;

    #[test]
    fn every_way_out_has_its_exit_code() {
        let text = String::new;
        for (outcome, code) in [
            (Outcome::Done, 0),
            (Outcome::GaveUp(text()), 1),
            (Outcome::Failed(Fault::new(FaultCode::DiskFull, "x")), 1),
            (Outcome::Failed(Fault::new(FaultCode::InvalidWorkspace, "x")), 2),
            (Outcome::Failed(Fault::new(FaultCode::InvalidArguments, "x")), 2),
            (Outcome::Failed(Fault::new(FaultCode::CannotConfine, "x")), 3),
            (Outcome::Failed(Fault::new(FaultCode::MissingRequirement, "x")), 8),
            (Outcome::Budget(Kind::Turns), 4),
            (Outcome::Budget(Kind::ToolErrors), 4),
            (Outcome::Budget(Kind::Wall), 5),
            (Outcome::Provider(text()), 6),
            (Outcome::Circle(text()), 7),
            (Outcome::Protocol(text()), 7),
            (Outcome::Verification(text()), 9),
            (Outcome::Signal(2), 130),
            (Outcome::Signal(15), 143),
        ] {
            assert_eq!(outcome.exit_code().code(), code, "{outcome:?}");
            assert_eq!(outcome.message().is_none(), code == 0);
        }
    }
}
