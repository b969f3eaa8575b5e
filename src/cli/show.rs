//! A run as a person watches it: on standard error, plain where there is no terminal; or, with `--json`, events on standard output.

use crate::agent::budget::Spent;
use crate::agent::observe::Observer;
use crate::agent::transcript::{Event, What};
use crate::envelope::Envelope;
use crate::session::Call;
use anstyle::{AnsiColor, Effects, Style};
use serde_json::Value;
use std::io::Write;

/// The most characters of a call or a sentence that are shown on a line.
const WIDTH: usize = 120;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Nothing but the end.
    Quiet,
    /// What is called and whether it worked.
    Normal,
    /// And what came of it.
    Verbose,
}

/// Shows a run.
#[derive(Debug)]
pub(super) struct Console {
    pub(super) detail: Detail,
    pub(super) json: bool,
}

const DIM: Style = Style::new().effects(Effects::DIMMED);
const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

impl Observer for Console {
    fn event(&self, event: &Event) {
        if self.json {
            // A reader that went away is no reason to stop the work.
            if let Ok(line) = serde_json::to_string(event) {
                let _ = writeln!(std::io::stdout(), "{line}");
            }
        }
        if self.detail == Detail::Quiet {
            return;
        }
        let mut out = anstream::stderr().lock();
        let _ = match &event.what {
            What::Replied { text, .. } if !text.trim().is_empty() => writeln!(out, "\n{}", text.trim()),
            What::CallStarted { call } => writeln!(out, "  {DIM}→{DIM:#} {}", shown(call)),
            What::CallEnded { envelope, text, duration_ms, .. } => {
                let ended = if envelope.success() {
                    writeln!(out, "    {GOOD}✓{GOOD:#} {}{DIM} {duration_ms} ms{DIM:#}", first_line(envelope, text))
                } else {
                    writeln!(out, "    {BAD}✗ {}{BAD:#}", cut(envelope.error().unwrap_or_default()))
                };
                for says in refusals(envelope) {
                    let _ = writeln!(out, "    {BAD}✗ {}{BAD:#}", cut(&says));
                }
                if self.detail == Detail::Verbose {
                    for line in text.lines() {
                        let _ = writeln!(out, "      {DIM}│{DIM:#} {line}");
                    }
                }
                ended
            }
            What::DialectChanged { reason, .. } => writeln!(out, "{DIM}from here on by text: {reason}{DIM:#}"),
            What::Noted { text } => writeln!(out, "{DIM}note: {text}{DIM:#}"),
            _ => Ok(()),
        };
    }

    fn spent(&self, spent: &Spent, cost: Option<u64>) {
        if self.detail == Detail::Verbose {
            let cost = cost.map(|micros| format!(", {}", crate::agent::budget::dollars(micros))).unwrap_or_default();
            let _ =
                writeln!(anstream::stderr(), "{DIM}turn {}, {} tokens{cost}{DIM:#}", spent.turns, spent.input_tokens + spent.output_tokens);
        }
    }
}

/// A call on one line.
fn shown(call: &Call) -> String {
    let args = match &call.args {
        Value::Object(args) => args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    cut(&format!("{}({args})", call.tool))
}

/// What the sandbox refused of a command, and what there is to know about it.
fn refusals(envelope: &Envelope) -> Vec<String> {
    let list = |key: &str| envelope.data().get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let said = |denial: &Value| {
        let part = |key: &str| denial.get(key).and_then(Value::as_str).map(str::to_owned);
        let what = part("path").or_else(|| part("address")).unwrap_or_default();
        format!(
            "refused: {} {what} ({}; {})",
            part("act").unwrap_or_default(),
            part("protection").unwrap_or_default(),
            part("policy").unwrap_or_default()
        )
    };
    let denials = list("denials").iter().map(said).collect::<Vec<_>>();
    denials.into_iter().chain(list("notices").iter().filter_map(|notice| notice.as_str().map(str::to_owned))).collect()
}

/// What came of a call, in a few words: the end of a command's output, else the beginning of the text.
fn first_line(envelope: &Envelope, text: &str) -> String {
    let output = envelope.data().get("output").and_then(Value::as_str).unwrap_or_default();
    let line = output.lines().rev().find(|line| !line.trim().is_empty());
    let line = line.or_else(|| text.lines().find(|line| !line.trim().is_empty()));
    let code = envelope.data().get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0);
    let code = code.map(|code| format!("exit {code}: ")).unwrap_or_default();
    cut(&format!("{code}{}", line.unwrap_or_default().trim()))
}

fn cut(text: &str) -> String {
    let line = text.replace('\n', "⏎");
    if line.chars().count() <= WIDTH { line } else { line.chars().take(WIDTH - 1).chain(['…']).collect() }
}
