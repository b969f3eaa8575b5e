//! A transcript as one HTML page: turns, calls with their envelopes folded, diffs, refusals, time and tokens as a picture.
//!
//! The page holds no script and names no other resource, and its policy forbids both; all that the transcript holds is escaped. It
//! works from a file, in the dark and on a phone.

mod parts;
mod timeline;

use super::outcome::RunResult;
use super::transcript::{Event, What};
use parts::{Folded, diff, esc, seconds};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;

/// The style, whole.
const STYLE: &str = include_str!("report/style.css");
/// Characters of one text that are shown; the transcript has the rest.
const MOST_TEXT: usize = 20_000;
/// Bytes of a patch that are shown.
const MOST_PATCH: usize = 2_000_000;
/// Codes of faults that mean: the sandbox or the policy refused.
const REFUSED: &[&str] = &["outside_workspace", "sandbox_denied", "tool_denied", "permission_denied"];

/// Writes the page. `patch`: the text of the run's patch, where it is at hand.
pub fn page(events: &[Event], patch: Option<&[u8]>) -> String {
    let run = Run::read(events);
    let mut page = String::with_capacity(64 * 1024);
    let title = run.task.lines().next().unwrap_or_default();
    // Writing to a String cannot fail, here and below.
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{} · bailiwick</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        esc(&cut(title, 120))
    );
    run.head(&mut page);
    timeline::draw(&mut page, &run);
    run.refusals(&mut page);
    page.push_str(
        "<p class=\"filter\"><label><input type=\"checkbox\" id=\"only\"> only what failed, was refused or ended with another code than 0</label></p>\n<section class=\"turns\">\n",
    );
    run.turns(&mut page);
    page.push_str("</section>\n");
    if let Some(patch) = patch.filter(|patch| !patch.is_empty()) {
        run.patch(&mut page, patch);
    }
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// A call, as far as it came.
struct Made<'a> {
    id: &'a str,
    tool: &'a str,
    args: &'a Value,
    began: Option<u64>,
    ended: Option<u64>,
    answer: Option<(&'a crate::envelope::Envelope, &'a str, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Good,
    /// A command that ended with another code than 0: the call did what it is for.
    Nonzero,
    Failed,
    Refused,
    Open,
}

impl State {
    fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Nonzero => "nonzero",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Open => "open",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Nonzero => "exit",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Open => "no answer",
        }
    }
}

impl Made<'_> {
    fn state(&self) -> State {
        let Some((envelope, ..)) = self.answer else { return State::Open };
        let denied = envelope.data().get("denials").and_then(Value::as_array).is_some_and(|denials| !denials.is_empty());
        let code = envelope.data().get("code").and_then(Value::as_str).unwrap_or_default();
        match envelope.success() {
            _ if denied => State::Refused,
            true if self.exit_code().is_some() => State::Nonzero,
            true => State::Good,
            false if REFUSED.contains(&code) => State::Refused,
            false => State::Failed,
        }
    }

    /// The code that a command ended with, where it is not 0.
    fn exit_code(&self) -> Option<i64> {
        self.answer?.0.data().get("exit_code").and_then(Value::as_i64).filter(|code| *code != 0)
    }

    /// What was refused or went wrong, one sentence each.
    fn says(&self) -> Vec<String> {
        let Some((envelope, ..)) = self.answer else { return Vec::new() };
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let denials = envelope.data().get("denials").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let denied = denials.iter().map(|denial| {
            let what = text(denial, "path") + &text(denial, "address");
            format!("{} {what} ({}; {})", text(denial, "act"), text(denial, "protection"), text(denial, "policy"))
        });
        envelope.error().map(str::to_owned).into_iter().chain(denied).collect()
    }
}

/// What happened in one turn, or beside the turns.
enum Item<'a> {
    Said(&'a str),
    Told(&'a str),
    Note(String),
    Call(usize),
}

struct Turn<'a> {
    number: u32,
    began: u64,
    replied: Option<u64>,
    tokens: (u64, u64),
    items: Vec<Item<'a>>,
}

/// A run, read from its events. Times are milliseconds since its first event, interruptions left out.
struct Run<'a> {
    task: &'a str,
    model: &'a str,
    began_at: u64,
    length: u64,
    turns: Vec<Turn<'a>>,
    calls: Vec<Made<'a>>,
    result: Option<RunResult>,
}

impl<'a> Run<'a> {
    fn read(events: &'a [Event]) -> Self {
        let mut run = Self { task: "", model: "", began_at: 0, length: 0, turns: Vec::new(), calls: Vec::new(), result: None };
        let mut known: HashMap<&str, usize> = HashMap::new();
        let (mut now, mut last) = (0_u64, None);
        for event in events {
            let passed = event.ts.saturating_sub(last.unwrap_or(event.ts));
            if !matches!(event.what, What::RunResumed { .. }) {
                now = u64::saturating_add(now, passed);
            }
            if last.is_none() {
                run.began_at = event.ts;
            }
            last = Some(last.unwrap_or(0).max(event.ts));
            run.length = now;
            run.event(event, now, &mut known);
        }
        run
    }

    fn event(&mut self, event: &'a Event, now: u64, known: &mut HashMap<&'a str, usize>) {
        match &event.what {
            What::RunStarted { task, model, .. } => (self.task, self.model) = (task, model),
            What::TurnStarted { turn } => {
                self.turns.push(Turn { number: *turn, began: now, replied: None, tokens: (0, 0), items: Vec::new() });
            }
            What::Replied { text, calls, input_tokens, output_tokens, .. } => {
                let turn = self.turn();
                (turn.replied, turn.tokens) = (Some(now), (*input_tokens, *output_tokens));
                if !text.trim().is_empty() {
                    turn.items.push(Item::Said(text));
                }
                for call in calls {
                    let index = self.calls.len();
                    known.insert(&call.id, index);
                    self.calls.push(Made { id: &call.id, tool: &call.tool, args: &call.args, began: None, ended: None, answer: None });
                    self.turn().items.push(Item::Call(index));
                }
            }
            What::CallStarted { call } => {
                if let Some(index) = known.get(call.id.as_str()) {
                    self.calls[*index].began = Some(now);
                }
            }
            What::CallEnded { id, envelope, text, duration_ms, .. } => {
                if let Some(index) = known.get(id.as_str()) {
                    let call = &mut self.calls[*index];
                    (call.ended, call.answer) = (Some(now), Some((envelope, text.as_str(), *duration_ms)));
                }
            }
            What::User { text } => self.turn().items.push(Item::Told(text)),
            What::Noted { text } => self.note(text.clone()),
            What::Summarized { text, .. } => self.note(format!("the beginning of the conversation became a summary: {text}")),
            What::DialectChanged { to, reason, .. } => self.note(format!("spoken to by {to} from here on: {reason}")),
            What::ResultsStubbed { ids } => self.note(format!("{} old results are no longer shown to the model", ids.len())),
            What::RunResumed { .. } => self.note("the run was interrupted and went on here".into()),
            What::RunEnded { result } => self.result = serde_json::from_value(result.clone()).ok(),
            What::Unknown => self.note("an event of a later version".into()),
        }
    }

    fn turn(&mut self) -> &mut Turn<'a> {
        if self.turns.is_empty() {
            self.turns.push(Turn { number: 0, began: 0, replied: None, tokens: (0, 0), items: Vec::new() });
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    fn note(&mut self, text: String) {
        self.turn().items.push(Item::Note(text));
    }

    fn head(&self, page: &mut String) {
        let (word, class) = match &self.result {
            Some(result) if result.exit_code == 0 => (result.stop_reason.as_str(), "good"),
            Some(result) => (result.stop_reason.as_str(), "failed"),
            None => ("not ended", "open"),
        };
        let _ = write!(
            page,
            "<header>\n<p class=\"when\">bailiwick · {} · {}</p>\n<h1><span class=\"badge {class}\">{}</span> {}</h1>\n",
            esc(self.model),
            parts::date(self.began_at),
            esc(word),
            esc(self.task.lines().next().unwrap_or_default())
        );
        if self.task.trim().lines().count() > 1 {
            let _ = writeln!(page, "<details><summary>the whole task</summary><pre>{}</pre></details>", text(self.task));
        }
        let refused = self.calls.iter().filter(|call| call.state() == State::Refused).count();
        let failed = self.calls.iter().filter(|call| call.state() == State::Failed).count();
        let (read, written) = self.turns.iter().fold((0_u64, 0_u64), |sum, turn| (sum.0 + turn.tokens.0, sum.1 + turn.tokens.1));
        let mut facts = vec![
            ("time", seconds(self.length)),
            ("turns", self.turns.iter().filter(|turn| turn.number > 0).count().to_string()),
            ("calls", self.calls.len().to_string()),
            ("failed", failed.to_string()),
            ("refused", refused.to_string()),
            ("tokens read", parts::grouped(read)),
            ("tokens written", parts::grouped(written)),
        ];
        if let Some(result) = &self.result {
            facts.extend(result.cost_usd.map(|cost| ("cost", format!("${cost:.4}"))));
            facts.push(("files changed", result.changed_files.len().to_string()));
        }
        page.push_str("<dl class=\"facts\">\n");
        for (name, value) in facts {
            let _ = writeln!(page, "<div><dt>{name}</dt><dd>{}</dd></div>", esc(&value));
        }
        page.push_str("</dl>\n");
        if let Some(result) = &self.result {
            if let Some(message) = &result.message {
                let _ = writeln!(page, "<p class=\"message\">{}</p>", esc(message));
            }
            if !result.answer.trim().is_empty() {
                let _ = writeln!(page, "<pre class=\"answer\">{}</pre>", text(result.answer.trim()));
            }
            for note in &result.notes {
                let _ = writeln!(page, "<p class=\"note\">{}</p>", esc(note));
            }
        }
        page.push_str("</header>\n");
    }

    fn refusals(&self, page: &mut String) {
        let refused: Vec<(usize, &Made<'_>)> = self.calls.iter().enumerate().filter(|(_, call)| call.state() == State::Refused).collect();
        if refused.is_empty() {
            return;
        }
        let _ = writeln!(page, "<details class=\"refusals\" open><summary>{} refused</summary>\n<ul>", refused.len());
        for (index, call) in refused {
            let says = call.says().join("; ");
            let _ = writeln!(page, "<li><a href=\"#c{index}\">{}</a> {}</li>", esc(call.tool), esc(&cut(&says, 400)));
        }
        page.push_str("</ul>\n</details>\n");
    }

    fn turns(&self, page: &mut String) {
        for (index, turn) in self.turns.iter().enumerate() {
            let calls = || turn.items.iter().filter_map(|item| if let Item::Call(call) = item { Some(&self.calls[*call]) } else { None });
            let clean = calls().all(|call| call.state() == State::Good);
            let _ = write!(page, "<article id=\"t{index}\"{}>\n<h2>", if clean { " class=\"clean\"" } else { "" });
            if turn.number > 0 {
                let _ = write!(page, "Turn {}", turn.number);
            } else {
                page.push_str("Before the first turn");
            }
            let thought = turn.replied.map_or(0, |replied| replied.saturating_sub(turn.began));
            let _ = writeln!(
                page,
                " <small>at {} · thought {} · {} tokens read, {} written</small></h2>",
                seconds(turn.began),
                seconds(thought),
                parts::grouped(turn.tokens.0),
                parts::grouped(turn.tokens.1)
            );
            for item in &turn.items {
                match item {
                    Item::Said(said) => {
                        let _ = writeln!(page, "<pre class=\"said\">{}</pre>", text(said.trim()));
                    }
                    Item::Told(told) => {
                        let _ = writeln!(page, "<p class=\"told\">{}</p>", text(told.trim()));
                    }
                    Item::Note(note) => {
                        let _ = writeln!(page, "<p class=\"note\">{}</p>", text(note));
                    }
                    Item::Call(call) => self.call(page, *call),
                }
            }
            page.push_str("</article>\n");
        }
    }

    fn call(&self, page: &mut String, index: usize) {
        let call = &self.calls[index];
        let state = call.state();
        let code = call.exit_code().filter(|_| state == State::Nonzero).map(|code| format!(" {code}")).unwrap_or_default();
        let took = call.answer.map(|(.., took)| format!(" <span class=\"took\">{}</span>", seconds(took))).unwrap_or_default();
        let _ = writeln!(
            page,
            "<details class=\"call {}\" id=\"c{index}\"><summary><span class=\"state\">{}{code}</span> <b>{}</b> <span class=\"args\">{}</span>{took}</summary>",
            state.class(),
            state.word(),
            esc(call.tool),
            esc(&cut(&args(call.args), 160))
        );
        for says in call.says() {
            let _ = writeln!(page, "<p class=\"message\">{}</p>", esc(&cut(&says, 2000)));
        }
        let shown = call.answer.and_then(|(envelope, ..)| envelope.data().get("diff")).or_else(|| call.args.get("patch"));
        let shown = shown.and_then(Value::as_str);
        if let Some(shown) = shown {
            page.push_str(&diff(&cut(shown, MOST_TEXT)));
        }
        match call.answer {
            // The answer says the same again.
            Some((_, answer, _)) if shown.is_some() => Folded::new("answer").write(page, &text(answer)),
            Some((_, answer, _)) if !answer.trim().is_empty() => {
                let _ = writeln!(page, "<pre>{}</pre>", text(answer));
            }
            _ => {}
        }
        let pretty = |value: &Value| text(&format!("{value:#}"));
        Folded::new("arguments").write(page, &pretty(call.args));
        if let Some((envelope, ..)) = call.answer {
            Folded::new("envelope").write(page, &pretty(&serde_json::to_value(envelope).unwrap_or_default()));
        }
        let _ = writeln!(page, "<p class=\"id\">{}</p></details>", esc(call.id));
    }

    fn patch(&self, page: &mut String, patch: &[u8]) {
        page.push_str("<section class=\"patch\">\n<h2>The patch</h2>\n");
        if let Some(result) = &self.result
            && !result.changed_files.is_empty()
        {
            page.push_str("<ul class=\"files\">\n");
            for file in &result.changed_files {
                let lines = match (file.added, file.removed) {
                    (Some(added), Some(removed)) => format!("<ins>+{added}</ins> <del>-{removed}</del>"),
                    _ => "binary".into(),
                };
                let _ = writeln!(page, "<li><code>{}</code> {lines}</li>", esc(&file.path));
            }
            page.push_str("</ul>\n");
        }
        let shown = &patch[..patch.len().min(MOST_PATCH)];
        for one in parts::files(&String::from_utf8_lossy(shown)) {
            let name = parts::name(one);
            let _ = writeln!(page, "<details open class=\"file\"><summary>{}</summary>{}</details>", esc(&cut(name, 300)), diff(one));
        }
        if patch.len() > MOST_PATCH {
            let _ = writeln!(page, "<p class=\"note\">the patch has {} bytes; the rest is not shown</p>", patch.len());
        }
        page.push_str("</section>\n");
    }
}

/// A text of the transcript, escaped and bounded.
fn text(text: &str) -> String {
    let all = text.chars().count();
    if all <= MOST_TEXT {
        return esc(text);
    }
    format!("{}\n… {} more characters are in the transcript", esc(&cut(text, MOST_TEXT)), all - MOST_TEXT)
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most.saturating_sub(1)).chain(['…']).collect() }
}

/// Arguments on one line.
fn args(args: &Value) -> String {
    match args {
        Value::Object(args) => args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", "),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
