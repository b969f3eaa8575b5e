//! A run as a person watches it: on standard error, with a live line where there is a terminal, plain where there is none or `CI` or
//! `NO_COLOR` is set, in groups that fold where GitHub shows it; or, with `--json`, events on standard output.
//!
//! What a model, a tool or a file says is shown without control characters: it neither moves the cursor nor commands a runner of CI.

use super::progress::{Live, State};
use crate::agent::budget::Spent;
use crate::agent::observe::Observer;
use crate::agent::transcript::{Event, What};
use crate::envelope::Envelope;
use crate::session::Call;
use anstyle::{AnsiColor, Effects, Style};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

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
    detail: Detail,
    json: bool,
    /// GitHub folds what stands between two of its commands.
    groups: bool,
    state: Arc<Mutex<State>>,
    live: Mutex<Option<Live>>,
}

const DIM: Style = Style::new().effects(Effects::DIMMED);
const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

impl Console {
    /// What is shown is decided by the flags, the terminal and the environment: `CI`, `NO_COLOR`, `TERM`, `GITHUB_ACTIONS`.
    pub(super) fn new(detail: Detail, json: bool) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let state = Arc::new(Mutex::new(State::new()));
        let moves = detail != Detail::Quiet && std::io::stderr().is_terminal() && !set("CI") && !set("NO_COLOR") && !dumb;
        let live = moves.then(|| Live::start(state.clone()));
        let groups = detail != Detail::Quiet && !json && on_github();
        Self { detail, json, groups, state, live: Mutex::new(live) }
    }

    /// Says a sentence of our own.
    pub(super) fn say(&self, text: &str) {
        if self.detail != Detail::Quiet {
            self.write(|out| writeln!(out, "{DIM}{}{DIM:#}", seen(text)));
        }
    }

    /// What is being done, for the live line alone.
    pub(super) fn busy(&self, text: &str) {
        self.state().doing = vec![(String::new(), clean(text), Instant::now())];
    }

    /// Ends the live line and the open group. Called before anything else is printed at the end.
    pub(super) fn close(&self) {
        if let Some(live) = self.live.lock().unwrap_or_else(PoisonError::into_inner).take() {
            live.stop();
        }
        let mut state = self.state();
        if std::mem::take(&mut state.group) {
            let _ = writeln!(std::io::stderr(), "::endgroup::");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes while the live line is away.
    fn write(&self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
        let mut state = self.state();
        state.clear();
        // A reader that went away is no reason to stop the work.
        let _ = write(&mut anstream::stderr().lock());
    }

    fn shown(&self, text: &str) -> String {
        seen(&cut(text))
    }

    fn person(&self, event: &Event) {
        let failed = |text: &str| format!("    {BAD}✗ {}{BAD:#}", self.shown(text));
        match &event.what {
            What::TurnStarted { turn } => {
                let mut state = self.state();
                state.turn = *turn;
                state.doing = vec![(String::new(), "the model thinks".into(), Instant::now())];
                if self.groups {
                    let _ = writeln!(std::io::stderr(), "{}::group::turn {turn}", if state.group { "::endgroup::\n" } else { "" });
                    state.group = true;
                }
            }
            What::Replied { text, .. } => {
                self.state().doing.clear();
                if !text.trim().is_empty() {
                    self.write(|out| writeln!(out, "\n{}", seen(text.trim())));
                }
            }
            What::CallStarted { call } => {
                self.state().doing.push((call.id.clone(), clean(&shown(call)), Instant::now()));
                self.write(|out| writeln!(out, "  {DIM}→{DIM:#} {}", self.shown(&shown(call))));
            }
            What::CallEnded { id, envelope, text, duration_ms, .. } => {
                self.state().doing.retain(|(doing, ..)| doing != id);
                self.write(|out| {
                    if envelope.success() {
                        // A command that ends with another code is no failed call, and no success of its own.
                        let (style, mark) = if exit_code(envelope).is_some() { (BAD, '!') } else { (GOOD, '✓') };
                        writeln!(
                            out,
                            "    {style}{mark}{style:#} {}{DIM} {duration_ms} ms{DIM:#}",
                            self.shown(&first_line(envelope, text))
                        )?;
                    } else {
                        writeln!(out, "{}", failed(envelope.error().unwrap_or_default()))?;
                    }
                    for says in refusals(envelope) {
                        writeln!(out, "{}", failed(&says))?;
                    }
                    if self.detail == Detail::Verbose {
                        for line in text.lines() {
                            writeln!(out, "      {DIM}│{DIM:#} {}", seen(line))?;
                        }
                    }
                    Ok(())
                });
            }
            What::DialectChanged { reason, .. } => self.say(&format!("from here on by text: {reason}")),
            What::Summarized { .. } => self.say("the beginning of the conversation became a summary"),
            What::Noted { text } => self.say(&format!("note: {text}")),
            _ => {}
        }
    }
}

impl Observer for Console {
    fn event(&self, event: &Event) {
        if self.json {
            // A reader that went away is no reason to stop the work. What GitHub would take for a command is written otherwise.
            if let Ok(line) = serde_json::to_string(event) {
                super::told(writeln!(std::io::stdout(), "{}", quiet_json(&line)));
            }
        }
        if self.detail != Detail::Quiet {
            self.person(event);
        }
    }

    fn spent(&self, spent: &Spent, cost: Option<u64>) {
        let mut state = self.state();
        (state.tokens, state.cost) = (spent.input_tokens + spent.output_tokens, cost);
        drop(state);
        if self.detail == Detail::Verbose {
            let cost = cost.map(|micros| format!(", {}", crate::agent::budget::dollars(micros))).unwrap_or_default();
            self.say(&format!("turn {}, {} tokens{cost}", spent.turns, spent.input_tokens + spent.output_tokens));
        }
    }
}

/// Whether GitHub runs us.
pub(super) fn on_github() -> bool {
    std::env::var_os("GITHUB_ACTIONS").is_some_and(|value| value == "true")
}

/// Whether a runner of CI reads what we print: it may take a line for a command.
pub(super) fn on_ci() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "false" && value != "0");
    on_github() || ["CI", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION", "BUILDKITE"].into_iter().any(set)
}

/// Text of somebody else's, as it may be shown here: it moves no cursor and, where CI runs us, commands no runner.
pub(super) fn seen(text: &str) -> String {
    let text = clean(text);
    if on_ci() { harmless(&text) } else { text }
}

/// A text without what moves the cursor or turns the direction of writing.
pub(super) fn clean(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if (c.is_control() && c != '\n' && c != '\t') || turns(c) { '\u{fffd}' } else { c }).collect()
}

/// What begins a command wherever it stands in a line: GitHub's and Azure's, and TeamCity's.
const ANYWHERE: [&str; 3] = ["##[", "##vso[", "##teamcity["];
/// What begins one at the start of a line: GitHub's, and GitLab's sections.
const AT_START: [&str; 3] = ["::", "section_start:", "section_end:"];

/// A text of which no line is a command to a runner of CI.
pub(super) fn harmless(text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        let mut line = line.to_owned();
        for word in ANYWHERE {
            line = line.replace(word, &format!("# {}", &word[1..]));
        }
        let (start, says) = line.split_at(line.len() - line.trim_start().len());
        match AT_START.into_iter().find(|word| says.starts_with(*word)) {
            // The first character, and a blank behind it.
            Some(word) => format!("{start}{} {}", &word[..1], &says[1..]),
            None => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A line of JSON in which nothing is a command to a runner of CI, and which says the same.
pub(super) fn quiet_json(line: &str) -> String {
    ANYWHERE.into_iter().fold(line.to_owned(), |line, word| line.replace(word, &format!("\\u0023{}", &word[1..])))
}

/// A call on one line.
pub(super) fn shown(call: &Call) -> String {
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
    let code = exit_code(envelope).map(|code| format!("exit {code}: ")).unwrap_or_default();
    cut(&format!("{code}{}", line.unwrap_or_default().trim()))
}

/// The code that a command ended with, where it is not 0.
fn exit_code(envelope: &Envelope) -> Option<i64> {
    envelope.data().get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0)
}

fn cut(text: &str) -> String {
    let line = text.replace('\n', "⏎");
    if line.chars().count() <= WIDTH { line } else { line.chars().take(WIDTH - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_commands_the_terminal_or_the_runner() {
        assert_eq!(clean("a\x1b]0;title\x07b\r\u{9b}2J\u{202e}c\td\n"), "a\u{fffd}]0;title\u{fffd}b\u{fffd}\u{fffd}2J\u{fffd}c\td\n");
        let said = harmless("::error::x\n  ::add-mask::y\na ::b\n##[warning]z\nsection_start:1:x\nx ##vso[task]y\n###[z");
        assert_eq!(said, ": :error::x\n  : :add-mask::y\na ::b\n# #[warning]z\ns ection_start:1:x\nx # #vso[task]y\n## #[z");
        assert_eq!(quiet_json(r###"{"a":"##[x ###vso[y"}"###), r###"{"a":"\u0023#[x #\u0023#vso[y"}"###);
    }
}
