//! Processes in the background: `process_start`, `process_list`, `process_output`, `process_input`, `process_stop`.
//!
//! Pure, like every tool: a call says what is to be done with the session's processes ([`Op`]) and reads what came of it ([`Reply`]).
//! It never holds a process, and never waits.

pub mod calls;

pub use calls::{ProcessInput, ProcessList, ProcessOutput, ProcessStart, ProcessStop};

use super::output::{self, Cut};
use super::{Captured, Launch, Render, Spec};
use crate::envelope::Fault;
use serde::Serialize;

/// What is to be done with a background process.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Start one.
    Start {
        /// What to start.
        launch: Launch,
        /// When it counts as ready.
        ready: Option<Ready>,
    },
    /// List all.
    List,
    /// Take output.
    Output {
        /// Which.
        id: String,
        /// From this byte on; `None`: what has not been taken yet.
        since: Option<u64>,
        /// Milliseconds to wait for something new.
        wait_ms: u64,
    },
    /// Give input.
    Input {
        /// Which.
        id: String,
        /// What to write to its standard input.
        text: String,
        /// Close it afterwards.
        eof: bool,
    },
    /// End one, with all that it started.
    Stop {
        /// Which.
        id: String,
    },
}

/// When a process counts as ready.
#[derive(Clone, Debug, PartialEq)]
pub struct Ready {
    /// When somebody listens on this port of the session's loopback.
    pub port: Option<u16>,
    /// When its output matches.
    pub regex: Option<String>,
    /// Milliseconds to wait for that.
    pub timeout_ms: u64,
}

/// What came of an [`Op`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// The process, or all of them.
    pub processes: Vec<Status>,
    /// Its output, where it was asked for, and where that ends.
    pub output: Captured,
    /// The number of the byte after the last of `output`.
    pub next: u64,
    /// Bytes before `output` that were asked for and are not kept any more.
    pub skipped: u64,
    /// Whether it became ready in time, where that was asked.
    pub ready: Option<bool>,
    /// Bytes that were written to its standard input.
    pub written: Option<u64>,
    /// Things to know.
    pub notices: Vec<String>,
}

/// A background process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Status {
    /// The id: `p1`, `p2`, …
    pub id: String,
    /// The beginning of its script.
    pub command: String,
    /// Whether it still runs.
    pub running: bool,
    /// The exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
    /// The limit for which it was ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Milliseconds since it was started, or that it ran.
    pub age_ms: u64,
    /// Bytes that it has written.
    pub output_bytes: u64,
    /// Where its whole output can be read.
    pub spool: Option<String>,
}

impl Status {
    fn says(&self) -> String {
        let state = match (self.running, &self.limit, self.exit_code, self.signal) {
            (true, ..) => "running".to_owned(),
            (_, Some(limit), ..) => format!("ended at its limit of {limit}"),
            (_, _, Some(code), _) => format!("ended with exit code {code}"),
            (_, _, None, Some(signal)) => format!("ended by signal {signal}"),
            _ => "ended".to_owned(),
        };
        let first = self.command.lines().next().unwrap_or_default();
        format!("{}: {state}, {}.{} s: {first}", self.id, self.age_ms / 1000, self.age_ms % 1000 / 100)
    }
}

/// A tool that works on the session's background processes.
pub trait ProcessTool: Spec {
    /// What to do.
    ///
    /// # Errors
    /// Any [`Fault`] of the arguments.
    fn op(args: &Self::Args) -> Result<Op, Fault>;

    /// What to answer.
    ///
    /// # Errors
    /// Any [`Fault`].
    fn report(args: &Self::Args, reply: &Reply) -> Result<Self::Data, Fault>;
}

/// Bytes of output that are shown by one call.
const SHOWN: usize = 20_000;

/// The facts about one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Facts {
    /// The process.
    #[serde(flatten)]
    pub status: Status,
    /// Whether it became ready in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Bytes that were written to its standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<u64>,
    /// New output, both streams in order of arrival.
    pub output: String,
    /// The `since` of the next call.
    pub next: u64,
    /// Bytes that are not kept any more; the spool has them.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: u64,
    /// How much of it is shown; absent when all of it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<Cut>,
    /// Things to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Facts {
    /// Of the one process of a reply.
    pub fn of(reply: &Reply) -> Self {
        let shown = output::show(&reply.output, None, SHOWN);
        Self {
            status: reply.processes.first().cloned().unwrap_or_default(),
            ready: reply.ready,
            written: reply.written,
            output: shown.text,
            next: reply.next,
            skipped: reply.skipped,
            truncation: shown.cut,
            notices: reply.notices.clone(),
        }
    }
}

impl Render for Facts {
    fn render(&self) -> String {
        let mut text = self.output.clone();
        let mut line = |words: String| {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&words);
        };
        if self.truncation.is_some() || self.skipped > 0 {
            let spool = self.status.spool.as_deref().unwrap_or("nowhere");
            line(format!("[not all of it is shown; whole output: read {spool}]"));
        }
        for notice in &self.notices {
            line(format!("[notice: {notice}]"));
        }
        match self.ready {
            Some(true) => line("[ready]".into()),
            Some(false) => line("[not ready in time; it goes on]".into()),
            None => {}
        }
        if let Some(written) = self.written {
            line(format!("[{} written]", crate::clip::counted(written, "byte")));
        }
        line(format!("[{}; next since: {}]", self.status.says(), self.next));
        text
    }
}

/// All processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Listed {
    /// They, in the order in which they were started.
    pub processes: Vec<Status>,
    /// How many.
    pub total: usize,
}

impl Render for Listed {
    fn render(&self) -> String {
        if self.processes.is_empty() {
            return "[no background processes]".into();
        }
        self.processes.iter().map(Status::says).collect::<Vec<_>>().join("\n")
    }
}
