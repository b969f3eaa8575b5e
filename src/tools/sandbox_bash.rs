//! Runs a bash script in a confined process.
//!
//! Pure: it says what to start and reads what came of it. It never judges a script by its text; what the script may do is the
//! kernel's business.

mod tolerance;

use super::output::{self, Cut, Shown};
use super::{CommandTool, Launch, Outcome, Render, Spec, Stream, shell_state};
use crate::clip::counted;
use crate::envelope::{Data, Fault, FaultCode};
use crate::policy::Access;
use nix::sys::signal::Signal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The time limit of a call that names none, in milliseconds.
pub const DEFAULT_TIMEOUT_MS: u64 = 120_000;
/// The longest time limit, in milliseconds.
pub const MAX_TIMEOUT_MS: u64 = 600_000;
/// Bytes of output shown by a call that names no number.
pub const DEFAULT_OUTPUT: u64 = 20_000;
/// The bounds of `max_output_bytes`.
const OUTPUT: (u64, u64) = (512, 200_000);

/// The tool.
pub struct SandboxBash;

/// The arguments of [`SandboxBash`].
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct Args {
    /// The bash script to run. Any length; here-documents work.
    pub command: String,
    /// Milliseconds after which it is ended with everything it started: 120000 unless given, at most 600000.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The folder to start in. Unless given: where the last command ended.
    #[serde(default)]
    pub workdir: Option<String>,
    /// Text for its standard input, which is otherwise at its end.
    #[serde(default)]
    pub stdin: Option<String>,
    /// Environment variables for this command alone.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// Start it, return an id at once and keep it running (a server, a watcher). Without this, what a command leaves running is ended.
    #[serde(default)]
    pub background: Option<bool>,
    /// Bytes of output to show: 20000 unless given, at most 200000. Of more, head, tail and failures are shown, and where the rest is.
    #[serde(default)]
    pub max_output_bytes: Option<u64>,
}

/// The facts of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Facts {
    /// The exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it, by name.
    pub signal: Option<String>,
    /// Whether it was ended at its time limit.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Both, in order of arrival.
    pub output: String,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// Processor time of all its processes in milliseconds.
    pub cpu_ms: u64,
    /// The largest resident set of one of its processes, in KiB.
    pub max_rss: u64,
    /// The exit codes of the last pipeline; null where the shell could not say.
    pub pipestatus: Option<Vec<i32>>,
    /// What it left running and was ended with it.
    pub killed_children: Vec<String>,
    /// The folder in which the next command starts, relative to the workspace; null where the shell could not say.
    pub cwd: Option<String>,
    /// The time limit that applied, in milliseconds.
    pub timeout_ms: u64,
    /// Things to know (the folder was gone …).
    pub notices: Vec<String>,
    /// What the sandbox refused.
    #[schemars(with = "Vec<serde_json::Map<String, Value>>")]
    pub denials: Vec<Value>,
    /// Where the whole output can be read.
    pub spool: Option<String>,
    /// The id under which it goes on in the background.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Some bytes were not text: `\xNN` stands for a byte, and a backslash before such a text is doubled.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub escaped: bool,
    /// How much of `output` is shown; absent when all of it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncation: Option<Cut>,
    /// What is likely to be a mistake in the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Spec for SandboxBash {
    type Args = Args;
    type Data = Facts;
    const NAME: &'static str = "sandbox_bash";
    const ALIASES: &'static [&'static str] = &["bash", "shell"];
    const ACCESS: Access = Access::Execute;
    const CATEGORY: &'static str = "shell";
    const SUMMARY: &'static str = "Runs a bash script in the sandbox and returns its output and exit code.\n\
        The folder and exported variables last from call to call. There is no terminal and standard input is empty: give `stdin`, or \
        options that ask nothing. What is still running when the script ends is ended too, unless `background` is true. To search files \
        prefer `grep`. To read them prefer `read`. To change them prefer `edit`.";
    const EXAMPLE: &'static str = r#"{"command": "cargo test 2>&1 | tail -50", "timeout_ms": 300000}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[
        ("cmd", "command"),
        ("script", "command"),
        ("code", "command"),
        ("cwd", "workdir"),
        ("dir_path", "workdir"),
        ("working_dir", "workdir"),
        ("working_directory", "workdir"),
        ("run_in_background", "background"),
        ("is_background", "background"),
        ("timeoutMs", "timeout_ms"),
        ("max_output", "max_output_bytes"),
    ];
    const TAKES_REST: bool = true;

    fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
        tolerance::prepare(args)
    }
}

impl CommandTool for SandboxBash {
    fn launch(args: &Args) -> Result<Launch, Fault> {
        let invalid = |message: &str| Fault::new(FaultCode::InvalidArguments, message);
        if args.command.trim().is_empty() {
            return Err(invalid("command is empty").hint(format!("for example {} {}", Self::NAME, Self::EXAMPLE)));
        }
        if args.command.contains('\0') {
            return Err(
                invalid("command holds a NUL character, which no bash script can").hint("printf '\\0' writes one, and stdin may hold any")
            );
        }
        let env = args.env.clone().unwrap_or_default();
        for (name, value) in &env {
            if !shell_state::is_name(name) {
                return Err(invalid(&format!("env: {name:?} is no name of a variable (letters, digits and _)")));
            }
            if value.contains('\0') {
                return Err(invalid(&format!("env: the value of {name} holds a NUL character")));
            }
        }
        Ok(Launch {
            script: args.command.clone(),
            workdir: args.workdir.clone(),
            env: env.into_iter().collect(),
            stdin: args.stdin.clone().map(String::into_bytes),
            timeout_ms: timeout_ms(args),
            background: args.background.unwrap_or(false),
        })
    }

    fn report(args: &Args, outcome: &Outcome) -> Result<Facts, Fault> {
        let facts = facts(args, outcome);
        let (code, message) = if let Some(why) = &outcome.not_started {
            (FaultCode::CommandNotStarted, why.clone())
        } else if let Some(limit) = &outcome.limit {
            (FaultCode::LimitExceeded, format!("the command met its limit of {limit} and was ended"))
        } else if outcome.timed_out {
            let limit = seconds(facts.timeout_ms);
            (FaultCode::TimedOut, format!("the command was still running after {limit} and was ended with all it had started"))
        } else if let Some(limit) = outcome.signal.and_then(limit_of) {
            (FaultCode::LimitExceeded, format!("the command met its limit of {limit} and was ended"))
        } else if let Some(signal) = &facts.signal {
            (FaultCode::KilledBySignal, format!("the command was ended by {signal}"))
        } else {
            return Ok(facts);
        };
        let mut fault = Fault::new(code, message);
        if code == FaultCode::TimedOut {
            fault = fault.hint("a longer timeout_ms (at most 600000), or background: true for what is meant to keep running");
        }
        let text = if outcome.not_started.is_some() { String::new() } else { facts.render() };
        Err(fault.with_all(&facts).shown_as(text))
    }
}

fn timeout_ms(args: &Args) -> u64 {
    match args.timeout_ms {
        None => DEFAULT_TIMEOUT_MS,
        Some(0) => MAX_TIMEOUT_MS,
        Some(given) => given.min(MAX_TIMEOUT_MS),
    }
}

fn facts(args: &Args, outcome: &Outcome) -> Facts {
    let max = args.max_output_bytes.unwrap_or(DEFAULT_OUTPUT).clamp(OUTPUT.0, OUTPUT.1);
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let Shown { text: output, cut, escaped } = output::show(&outcome.output, None, max);
    let stdout = output::show(&outcome.output, Some(Stream::Stdout), max);
    let stderr = output::show(&outcome.output, Some(Stream::Stderr), max);
    let (output, stdout, stderr) =
        (as_bash(output), Shown { text: as_bash(stdout.text), ..stdout }, Shown { text: as_bash(stderr.text), ..stderr });
    Facts {
        exit_code: outcome.exit_code,
        signal: outcome.signal.map(signal_name),
        timed_out: outcome.timed_out,
        warnings: warnings(outcome, &stderr.text),
        escaped: escaped || stdout.escaped || stderr.escaped,
        stdout: stdout.text,
        stderr: stderr.text,
        output,
        duration_ms: outcome.duration_ms,
        cpu_ms: outcome.cpu_ms,
        max_rss: outcome.max_rss_kib,
        pipestatus: outcome.pipestatus.clone(),
        killed_children: outcome.killed_children.clone(),
        cwd: outcome.cwd.clone(),
        timeout_ms: timeout_ms(args),
        notices: outcome.notices.clone(),
        denials: outcome.denials.clone(),
        spool: outcome.spool.clone(),
        process: outcome.started.clone(),
        truncation: cut,
    }
}

/// The shell's messages with the shell's name: the script comes by a descriptor, which says nothing to anybody.
fn as_bash(text: String) -> String {
    const SCRIPT: &str = "/dev/fd/6: line ";
    if !text.contains(SCRIPT) {
        return text;
    }
    let line = |line: &str| line.strip_prefix(SCRIPT).map_or_else(|| line.to_owned(), |rest| format!("bash: line {rest}"));
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// What is likely to be a mistake: a failure that a pipeline hid, a quote or a here-document without its end.
fn warnings(outcome: &Outcome, stderr: &str) -> Vec<String> {
    const SIGPIPE: i32 = 128 + 13;
    let mut warnings = Vec::new();
    if let Some((last, before)) = outcome.pipestatus.as_deref().and_then(<[i32]>::split_last)
        && *last == 0
        && before.iter().any(|code| *code != 0 && *code != SIGPIPE)
    {
        let codes: Vec<String> = before.iter().chain([last]).map(i32::to_string).collect();
        warnings.push(format!("the last pipeline hides a failure: its commands ended with {}", codes.join(" ")));
    }
    for line in stderr.lines() {
        // Bash's own words, in the locale that the sandbox sets.
        let Some((_, message)) = line.split_once(": line ") else { continue };
        if let Some((_, rest)) = message.split_once("here-document at line ")
            && rest.contains("delimited by end-of-file")
        {
            let line: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let wanted = rest.split_once("(wanted `").and_then(|(_, word)| word.strip_suffix("')"));
            warnings.push(match wanted {
                Some(word) => format!(
                    "the here-document that begins in line {line} has no end: there is no line {word:?}, so it took the rest of the script"
                ),
                None => format!("the here-document that begins in line {line} has no end, so it took the rest of the script"),
            });
        } else if let Some((at, rest)) = message.split_once(": unexpected EOF while looking for matching ") {
            warnings.push(format!("a quote or bracket is not closed: {} is missing (line {at})", rest.trim_matches(['`', '\''])));
        } else if message.ends_with(": syntax error: unexpected end of file") {
            warnings.push("the script ends within an unfinished construct".into());
        }
        if warnings.len() >= 4 {
            break;
        }
    }
    warnings.dedup();
    warnings
}

/// The name of a signal: `SIGSEGV`.
fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or_else(|_| format!("signal {number}"), |signal| signal.as_str().to_owned())
}

/// The limit that the kernel reports by this signal.
fn limit_of(signal: i32) -> Option<&'static str> {
    match Signal::try_from(signal) {
        Ok(Signal::SIGXCPU) => Some("processor time"),
        Ok(Signal::SIGXFSZ) => Some("file size"),
        _ => None,
    }
}

fn seconds(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

/// What an exit code of the shell says beyond its number.
fn meaning(code: i32) -> String {
    match code {
        126 => " (found, but not executable)".into(),
        127 => " (command not found)".into(),
        129..=192 => format!(" (a command was ended by {})", signal_name(code - 128)),
        _ => String::new(),
    }
}

impl Render for Facts {
    /// The output first, then what is to be known about it, then one line on how it ended.
    fn render(&self) -> String {
        let mut text = self.output.clone();
        if self.output.is_empty() {
            text.push_str("[it printed nothing]");
        } else if self.output.trim().is_empty() {
            let _ = write!(text, "[it printed only blanks: {}]", counted(self.output.len() as u64, "byte"));
        }
        let mut line = |words: String| {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&words);
        };
        if let Some(cut) = &self.truncation {
            let shown = format!(
                "[shown {} of {}, {} of {}",
                cut.shown_lines,
                counted(cut.total_lines, "line"),
                cut.shown_bytes,
                counted(cut.total_bytes, "byte")
            );
            let failures = match cut.hidden_failures {
                0 => String::new(),
                hidden => format!("; {} that may be failures not shown", counted(hidden, "line")),
            };
            line(match &self.spool {
                Some(spool) => format!("{shown}{failures}; whole output: read {spool}]"),
                None => format!("{shown}{failures}; for the rest, ask for more max_output_bytes or write the output to a file]"),
            });
        }
        if self.escaped {
            line("[some bytes are not text and stand as \\xNN]".into());
        }
        for notice in &self.notices {
            line(format!("[notice: {notice}]"));
        }
        for warning in &self.warnings {
            line(format!("[warning: {warning}]"));
        }
        for denial in &self.denials {
            line(match denial {
                Value::String(denial) => format!("[refused by the sandbox: {denial}]"),
                denial => format!("[refused by the sandbox: {denial}]"),
            });
        }
        for child in &self.killed_children {
            line(format!("[left running, ended with the script: {child}]"));
        }
        if let Some(id) = &self.process {
            line(format!("[goes on in the background as {id}: process_output, process_input and process_stop take this id]"));
            return text;
        }
        let end = match (self.exit_code, &self.signal) {
            _ if self.timed_out => "timed out".to_owned(),
            (Some(code), _) => format!("exit code {code}{}", meaning(code)),
            (None, Some(signal)) => format!("ended by {signal}"),
            (None, None) => "ended".to_owned(),
        };
        let place = self.cwd.as_deref().filter(|cwd| *cwd != ".").map(|cwd| format!(", now in {cwd}")).unwrap_or_default();
        line(format!("[{end}, {}{place}]", seconds(self.duration_ms)));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clip::capture::Collector;
    use crate::tools::{AnyTool, ByCommand, Work, find};
    use serde_json::json;

    const TOOL: ByCommand<SandboxBash> = ByCommand::NEW;

    fn launch(args: Value) -> Result<(Launch, Vec<String>), Fault> {
        let (args, warnings) = TOOL.read(args)?;
        let Work::Command { launch, .. } = TOOL.work() else { panic!("not a command") };
        Ok((launch(&args)?, warnings))
    }

    fn answer(args: Value, outcome: &Outcome) -> crate::tools::Answer {
        let Work::Command { report, .. } = TOOL.work() else { panic!("not a command") };
        report(&args, outcome)
    }

    fn wrote(pieces: &[(Stream, &str)]) -> Outcome {
        let mut collector = Collector::default();
        for (stream, text) in pieces {
            collector.push(*stream, text.as_bytes());
        }
        Outcome { exit_code: Some(0), output: collector.finish(), duration_ms: 12, cwd: Some(".".into()), ..Outcome::default() }
    }

    #[test]
    fn it_is_registered_under_its_names() {
        for name in ["sandbox_bash", "bash"] {
            assert_eq!(find(crate::tools::TOOLS, name).unwrap().name(), "sandbox_bash");
        }
    }

    #[test]
    fn time_limits_are_read_by_their_unit_and_capped() {
        for (args, ms, warned) in [
            (json!({}), 120_000, false),
            (json!({"timeout_ms": 5000}), 5000, false),
            (json!({"timeout_ms": "5000"}), 5000, true),
            (json!({"timeout_ms": 3_600_000}), 600_000, true),
            (json!({"timeout_ms": 0}), 600_000, true),
            (json!({"timeout_ms": -1}), 600_000, true),
            (json!({"timeout": 60}), 60_000, true),
            (json!({"timeout": 600}), 600_000, true),
            (json!({"timeout": 601}), 601, true),
            (json!({"timeout": 1.5}), 1500, true),
            (json!({"timeout": "30"}), 30_000, true),
            (json!({"timeout": "2m"}), 120_000, true),
            (json!({"timeout": "45s"}), 45_000, true),
            (json!({"timeout": "800ms"}), 800, true),
            (json!({"timeout": 120_000}), 120_000, true),
            (json!({"timeout": 180_000_000}), 600_000, true),
            (json!({"timeout": 0}), 600_000, true),
            (json!({"timeout": -1}), 600_000, true),
            (json!({"timeout": null}), 120_000, false),
        ] {
            let mut args = args;
            args["command"] = "true".into();
            let (launch, warnings) = launch(args.clone()).unwrap();
            assert_eq!((launch.timeout_ms, !warnings.is_empty()), (ms, warned), "{args}: {warnings:?}");
        }
        assert_eq!(launch(json!({"command": "true", "timeout": 1, "timeout_ms": 5})).unwrap_err().code(), FaultCode::InvalidArguments);
        assert_eq!(launch(json!({"command": "true", "timeout": "soon"})).unwrap_err().code(), FaultCode::InvalidArguments);
    }

    #[test]
    fn what_other_agents_send_is_understood() {
        for (args, script) in [
            (json!({"cmd": "ls"}), "ls"),
            (json!({"script": "ls"}), "ls"),
            (json!({"command": ["bash", "-lc", "ls | wc -l"]}), "ls | wc -l"),
            (json!({"command": ["echo", "a b", "it's"]}), "echo 'a b' 'it'\\''s'"),
            (json!({"command": ["ls"]}), "ls"),
        ] {
            assert_eq!(launch(args).unwrap().0.script, script);
        }
        let (launch, _) =
            launch(json!({"code": "x", "cwd": "sub", "is_background": "true", "env": {"A": "b", "N": 1, "T": true}, "stdin": "in"}))
                .unwrap();
        assert_eq!(launch.workdir.as_deref(), Some("sub"));
        assert!(launch.background);
        assert_eq!(launch.env, [("A", "b"), ("N", "1"), ("T", "true")].map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(launch.stdin.as_deref(), Some(&b"in"[..]));
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        for args in [
            json!({}),
            json!({"command": " \n"}),
            json!({"command": "a\u{0}b"}),
            json!({"command": "x", "env": {"A B": "1"}}),
            json!({"command": "x", "env": {"A": "\u{0}"}}),
        ] {
            assert_eq!(launch(args.clone()).unwrap_err().code(), FaultCode::InvalidArguments, "{args}");
        }
    }

    #[test]
    fn any_exit_code_is_a_success_of_the_tool() {
        let outcome = Outcome { exit_code: Some(1), pipestatus: Some(vec![1]), ..wrote(&[(Stream::Stdout, "a\n"), (Stream::Stderr, "b")]) };
        let answer = answer(json!({"command": "x"}), &outcome);
        assert_eq!(answer.text, "a\nb\n[exit code 1, 12 ms]");
        assert_eq!(
            serde_json::to_string(&answer.envelope).unwrap(),
            r#"{"success":true,"data":{"exit_code":1,"signal":null,"timed_out":false,"stdout":"a\n","stderr":"b","output":"a\nb","duration_ms":12,"cpu_ms":0,"max_rss":0,"pipestatus":[1],"killed_children":[],"cwd":".","timeout_ms":120000,"notices":[],"denials":[],"spool":null},"error":null}"#
        );
    }

    #[test]
    fn an_end_that_was_not_its_own_is_a_failure_with_its_output() {
        let ended = |change: fn(&mut Outcome)| {
            let mut outcome = wrote(&[(Stream::Stdout, "partial\n")]);
            outcome.exit_code = None;
            change(&mut outcome);
            answer(json!({"command": "x", "timeout_ms": 1500}), &outcome)
        };
        for (answer, code, text) in [
            (ended(|o| o.timed_out = true), FaultCode::TimedOut, "after 1.5 s"),
            (ended(|o| o.signal = Some(11)), FaultCode::KilledBySignal, "ended by SIGSEGV"),
            (ended(|o| o.signal = Some(9)), FaultCode::KilledBySignal, "ended by SIGKILL"),
            (ended(|o| o.signal = Some(24)), FaultCode::LimitExceeded, "processor time"),
            (ended(|o| (o.signal, o.limit) = (Some(9), Some("memory".into()))), FaultCode::LimitExceeded, "limit of memory"),
            (ended(|o| o.not_started = Some("no such folder".into())), FaultCode::CommandNotStarted, "no such folder"),
        ] {
            answer.envelope.check().unwrap();
            assert_eq!(answer.envelope.code(), Some(code));
            assert!(answer.envelope.error().unwrap().contains(text), "{:?}", answer.envelope.error());
            assert_eq!(answer.envelope.data()["output"], "partial\n");
            assert_eq!(answer.text.matches("partial").count(), usize::from(code != FaultCode::CommandNotStarted), "{}", answer.text);
        }
    }

    #[test]
    fn likely_mistakes_are_named() {
        let warned = |codes: &[i32], stderr: &str| {
            let outcome = Outcome { pipestatus: Some(codes.to_vec()), ..wrote(&[(Stream::Stderr, stderr)]) };
            let answer = answer(json!({"command": "x"}), &outcome);
            let warnings = answer.envelope.data().get("warnings").cloned().unwrap_or_default();
            let warnings: Vec<String> = serde_json::from_value(warnings).unwrap_or_default();
            assert!(warnings.iter().all(|warning| answer.text.contains(warning)));
            warnings
        };
        assert_eq!(warned(&[1, 0], "").len(), 1);
        for benign in [&[141, 0][..], &[0, 0], &[1], &[0, 1], &[1, 1], &[]] {
            assert!(warned(benign, "").is_empty(), "{benign:?}");
        }
        let heredoc = warned(&[0], "/dev/fd/6: line 2: warning: here-document at line 1 delimited by end-of-file (wanted `EOF')\n");
        assert!(heredoc[0].contains("line 1") && heredoc[0].contains("\"EOF\""), "{heredoc:?}");
        let quote = warned(&[0], "/dev/fd/6: line 1: unexpected EOF while looking for matching `''\n");
        assert_eq!(quote.len(), 1);
        assert!(warned(&[0], "a.c: line 3: something else\n").is_empty());
    }

    #[test]
    fn all_that_is_to_be_known_has_a_line() {
        let outcome = Outcome {
            exit_code: Some(139),
            killed_children: vec!["sleep 300".into()],
            notices: vec!["the folder /a is gone".into()],
            denials: vec!["write /etc/x".into()],
            cwd: Some("sub".into()),
            ..wrote(&[])
        };
        assert_eq!(
            answer(json!({"command": "x"}), &outcome).text,
            "[it printed nothing]\n[notice: the folder /a is gone]\n[refused by the sandbox: write /etc/x]\n\
             [left running, ended with the script: sleep 300]\n[exit code 139 (a command was ended by SIGSEGV), 12 ms, now in sub]"
        );
        let blank = wrote(&[(Stream::Stdout, "\n\n")]);
        assert!(answer(json!({"command": "x"}), &blank).text.contains("only blanks: 2 bytes"));
    }

    #[test]
    fn what_is_cut_is_said_only_when_something_is() {
        let lines: String = (0..5000).map(|n| format!("line {n}\n")).collect();
        let outcome = Outcome { spool: Some("spool:7.log".into()), ..wrote(&[(Stream::Stdout, &lines)]) };
        let cut = answer(json!({"command": "x", "max_output_bytes": 1000}), &outcome);
        let data = &cut.envelope.data()["truncation"];
        assert_eq!((&data["total_lines"], &data["total_bytes"]), (&json!(5000), &json!(lines.len())));
        assert!(cut.text.contains(" of 5,000 lines, ") && cut.text.contains("whole output: read spool:7.log]"), "{}", cut.text);
        let whole = answer(json!({"command": "x", "max_output_bytes": 200_000}), &outcome);
        assert!(whole.envelope.data().get("truncation").is_none());
        assert!(!whole.text.contains("shown"));
    }
}
