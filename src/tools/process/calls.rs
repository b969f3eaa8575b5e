//! The five tools.

use super::{Facts, Listed, Op, ProcessTool, Ready, Reply};
use crate::envelope::{Fault, FaultCode};
use crate::policy::Access;
use crate::tools::{Launch, Spec};
use schemars::JsonSchema;
use serde::Deserialize;

/// Milliseconds to wait for readiness unless given, and at the most.
const READY_MS: (u64, u64) = (10_000, 120_000);
/// The most milliseconds that `process_output` waits.
const WAIT_MS: u64 = 60_000;

macro_rules! process_spec {
    ($tool:ident, $args:ty, $data:ty, $name:literal, $summary:literal, $example:literal) => {
        impl Spec for $tool {
            type Args = $args;
            type Data = $data;
            const NAME: &'static str = $name;
            const ACCESS: Access = Access::Execute;
            const CATEGORY: &'static str = "process";
            const SUMMARY: &'static str = $summary;
            const EXAMPLE: &'static str = $example;
            const SYNONYMS: &'static [(&'static str, &'static str)] =
                &[("process_id", "id"), ("pid", "id"), ("cmd", "command"), ("offset", "since"), ("input", "text")];
        }
    };
}

/// Starts a process that lives on.
pub struct ProcessStart;

/// The arguments of [`ProcessStart`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Start {
    /// The bash script to run.
    command: String,
    /// When it counts as ready: `port` (somebody listens there) or `regex` (its output matches), and `timeout_ms` (10000).
    #[serde(default)]
    ready: Option<ReadyArgs>,
    /// The folder to start in. Unless given: where the last command ended.
    #[serde(default)]
    workdir: Option<String>,
}

/// When a process counts as ready.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadyArgs {
    /// A port of localhost.
    #[serde(default)]
    port: Option<u16>,
    /// A regular expression for its output.
    #[serde(default)]
    regex: Option<String>,
    /// Milliseconds to wait: 10000 unless given, at most 120000.
    #[serde(default)]
    timeout_ms: Option<u64>,
}

process_spec!(
    ProcessStart,
    Start,
    Facts,
    "process_start",
    "Starts a process (a server, a watcher) that goes on running between calls, and returns its id.\n\
     With `ready` it waits until a port is open or the output matches. It ends with the session. `process_stop` ends it sooner.",
    r#"{"command": "python3 -m http.server 8123", "ready": {"port": 8123}}"#
);

impl ProcessTool for ProcessStart {
    fn op(args: &Start) -> Result<Op, Fault> {
        let invalid = |message: &str| Fault::new(FaultCode::InvalidArguments, message);
        if args.command.trim().is_empty() || args.command.contains('\0') {
            return Err(invalid("command is empty or holds a NUL character").hint(format!("for example {} {}", Self::NAME, Self::EXAMPLE)));
        }
        let ready = match &args.ready {
            None => None,
            Some(ready) if ready.port.is_some() == ready.regex.is_some() => {
                return Err(invalid("ready takes one of port and regex").hint(r#"for example {"port": 8080} or {"regex": "listening on"}"#));
            }
            Some(ready) => {
                if let Some(Err(error)) = ready.regex.as_deref().map(regex::bytes::Regex::new) {
                    return Err(Fault::new(FaultCode::InvalidPattern, format!("ready.regex: {error}")));
                }
                let timeout_ms = ready.timeout_ms.unwrap_or(READY_MS.0).min(READY_MS.1);
                Some(Ready { port: ready.port, regex: ready.regex.clone(), timeout_ms })
            }
        };
        let launch = Launch { script: args.command.clone(), workdir: args.workdir.clone(), background: true, ..Launch::default() };
        Ok(Op::Start { launch, ready })
    }

    fn report(_args: &Start, reply: &Reply) -> Result<Facts, Fault> {
        Ok(Facts::of(reply))
    }
}

/// Lists the processes of the session.
pub struct ProcessList;

/// No arguments.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Nothing {}

process_spec!(ProcessList, Nothing, Listed, "process_list", "Lists the background processes of this session.", "{}");

impl ProcessTool for ProcessList {
    fn op(_args: &Nothing) -> Result<Op, Fault> {
        Ok(Op::List)
    }

    fn report(_args: &Nothing, reply: &Reply) -> Result<Listed, Fault> {
        Ok(Listed { processes: reply.processes.clone(), total: reply.processes.len() })
    }
}

/// Takes output.
pub struct ProcessOutput;

/// The arguments of [`ProcessOutput`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Output {
    /// The id of the process.
    id: String,
    /// The first byte to show. Unless given: what no call has shown yet.
    #[serde(default)]
    since: Option<u64>,
    /// Milliseconds to wait for new output or the end: 0 unless given, at most 60000.
    #[serde(default)]
    wait_ms: Option<u64>,
}

process_spec!(
    ProcessOutput,
    Output,
    Facts,
    "process_output",
    "Shows what a background process has written since the last look, and whether it still runs.",
    r#"{"id": "p1", "wait_ms": 2000}"#
);

impl ProcessTool for ProcessOutput {
    fn op(args: &Output) -> Result<Op, Fault> {
        Ok(Op::Output { id: args.id.clone(), since: args.since, wait_ms: args.wait_ms.unwrap_or(0).min(WAIT_MS) })
    }

    fn report(_args: &Output, reply: &Reply) -> Result<Facts, Fault> {
        Ok(Facts::of(reply))
    }
}

/// Gives input.
pub struct ProcessInput;

/// The arguments of [`ProcessInput`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Input {
    /// The id of the process.
    id: String,
    /// What to write to its standard input, as it is: a line needs its line end.
    #[serde(default)]
    text: String,
    /// Close its standard input afterwards.
    #[serde(default)]
    eof: bool,
}

process_spec!(
    ProcessInput,
    Input,
    Facts,
    "process_input",
    "Writes to the standard input of a background process.",
    r#"{"id": "p1", "text": "yes\n"}"#
);

impl ProcessTool for ProcessInput {
    fn op(args: &Input) -> Result<Op, Fault> {
        Ok(Op::Input { id: args.id.clone(), text: args.text.clone(), eof: args.eof })
    }

    fn report(_args: &Input, reply: &Reply) -> Result<Facts, Fault> {
        Ok(Facts::of(reply))
    }
}

/// Ends a process.
pub struct ProcessStop;

/// The arguments of [`ProcessStop`].
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub struct Stop {
    /// The id of the process.
    id: String,
}

process_spec!(
    ProcessStop,
    Stop,
    Facts,
    "process_stop",
    "Ends a background process and all that it started: SIGTERM first, then by force.",
    r#"{"id": "p1"}"#
);

impl ProcessTool for ProcessStop {
    fn op(args: &Stop) -> Result<Op, Fault> {
        Ok(Op::Stop { id: args.id.clone() })
    }

    fn report(_args: &Stop, reply: &Reply) -> Result<Facts, Fault> {
        Ok(Facts::of(reply))
    }
}

#[cfg(test)]
mod tests {
    use crate::tools::{TOOLS, Work, find, process::Op};
    use serde_json::{Value, json};

    fn op(name: &str, args: Value) -> Result<Op, crate::envelope::Fault> {
        let (args, _) = find(TOOLS, name).unwrap().read(args)?;
        let Work::Process { op, .. } = find(TOOLS, name).unwrap().work() else { panic!("{name}") };
        op(&args)
    }

    #[test]
    fn examples_are_calls() {
        for tool in TOOLS.iter().filter(|tool| tool.category() == "process") {
            op(tool.name(), serde_json::from_str(tool.example()).unwrap()).unwrap();
        }
        assert!(matches!(op("process_output", json!({"id": "p1", "wait_ms": 999_999})), Ok(Op::Output { wait_ms: 60_000, .. })));
    }

    #[test]
    fn what_ready_takes() {
        for (ready, code) in [
            (json!({}), "invalid_arguments"),
            (json!({"port": 1, "regex": "x"}), "invalid_arguments"),
            (json!({"regex": "("}), "invalid_pattern"),
            (json!({"prot": 1}), "invalid_arguments"),
        ] {
            assert_eq!(op("process_start", json!({"command": "true", "ready": ready})).unwrap_err().code().as_str(), code, "{ready}");
        }
    }
}
