//! `bailiwick tool NAME [JSON or -]`: one call, one envelope.

use super::engine::Signals;
use super::{Common, Registry, setup, show};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::session::{self, Call, Session};
use crate::tools::Answer;
use serde_json::Value;
use std::io::{Read, Write};

/// The most bytes of arguments that are read from standard input.
const MOST_INPUT: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Tool {
    /// The tool's name, or one of its aliases
    name: String,
    /// Its arguments as a JSON object; "-" reads them from standard input
    #[arg(value_name = "JSON or -", allow_hyphen_values = true, default_value = "{}")]
    args: String,
    /// Print the compact text that a model would be given instead of the envelope
    #[arg(long)]
    text: bool,
}

impl Tool {
    /// 0 success, 1 a failure envelope, 2 usage, 3 cannot confine, 128 and the signal that came.
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        let (answer, code) = match self.answer(common, registry) {
            Ok((answer, Some(signal))) => (answer, ExitCode::Signal(signal)),
            Ok((answer, None)) => {
                let code = if answer.envelope.success() { ExitCode::Done } else { ExitCode::Failed };
                (answer, code)
            }
            Err(fault) => {
                let code = ExitCode::of(&fault);
                (Answer::failed(fault), code)
            }
        };
        let mut out = std::io::stdout().lock();
        let written = if self.text {
            // What a file holds may be a command to the runner that shows this.
            let text = if show::on_ci() { show::harmless(&answer.text) } else { answer.text };
            writeln!(out, "{text}")
        } else {
            serde_json::to_string(&answer.envelope)
                .map_err(std::io::Error::from)
                .and_then(|line| writeln!(out, "{}", show::quiet_json(&line)))
        };
        match written.and_then(|()| out.flush()) {
            Ok(()) => code,
            // That the reader went away is no fault.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => code,
            Err(error) => {
                say!("bailiwick: standard output: {error}");
                ExitCode::Failed
            }
        }
    }

    /// The answer, and the signal that ended the call.
    fn answer(&self, common: &Common, registry: Registry) -> Result<(Answer, Option<u8>), Fault> {
        let args = self.read_args()?;
        let setup = setup::Setup::new(common)?;
        super::policy::tools_are_known(setup.charter(), registry)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        runtime.block_on(async {
            let mut signals = Signals::take()?;
            let session = Session::start(session::Options { exe: session::this_exe(), registry, charter: setup.charter().clone() })?;
            // What the call has done to protected names by then is undone in any case.
            let (mut answer, signal) = tokio::select! {
                answer = session.call(Call { id: "1".into(), tool: self.name.clone(), args }) => (answer, None),
                signal = signals.next() => {
                    let fault = Fault::new(FaultCode::Interrupted, format!("ended by signal {signal}")).hint("what is on disk is whole");
                    (Answer::failed(fault), Some(signal))
                }
            };
            let running = session.running_processes();
            if !running.is_empty() {
                let says = "the session of this verb is one call long, and ended with it";
                answer = answer.warned(format!("{says}: {}; run and mcp have longer ones", running.join(", ")));
            }
            for undone in session.finish().await {
                answer.envelope.warn(undone);
            }
            Ok((answer, signal))
        })
    }

    fn read_args(&self) -> Result<Value, Fault> {
        let text = if self.args == "-" {
            let mut text = String::new();
            std::io::stdin().take(MOST_INPUT).read_to_string(&mut text).map_err(|error| {
                Fault::new(FaultCode::MalformedCall, format!("the arguments on standard input cannot be read: {error}"))
            })?;
            text
        } else {
            self.args.clone()
        };
        serde_json::from_str(&text).map_err(|error| {
            Fault::new(FaultCode::MalformedCall, format!("the arguments are not JSON: {error}"))
                .hint(format!("a call looks like: bailiwick tool {} '{{\"path\":\"README.md\"}}'", self.name))
                .with("line", error.line())
                .with("column", error.column())
        })
    }
}
