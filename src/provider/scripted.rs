//! Replies from a file, for the demonstration, tests and replay: `script:FILE`.
//!
//! JSON lines (any name), a JSON list (`.json`) or TOML with `[[reply]]` tables (`.toml`). In JSON lines, empty lines and lines
//! that begin with `#` are skipped. One reply each, in the order in which they are given:
//!
//! ```toml
//! [[reply]]
//! expect_contains = ["1 failed"]        # one text or several that must be in what came since the last reply; optional
//! text = "Let me look."                 # what the model says; calls of the text protocol are simply text
//! thinking = ["Where is it?"]           # texts or blocks; optional
//! calls = [                             # native calls; `id` is optional; `arguments` is an object,
//!   { name = "read", arguments = { path = "src/lib.rs" } },
//!   { name = "read", arguments = "{\"path\": " },   # or a text, which may be malformed
//! ]
//! stop = "tool_calls"                   # done, tool_calls, length, refusal, other; default: by whether there are calls
//! usage = { input = 100, output = 20 }  # optional
//!
//! [[reply]]
//! fail = "server"                       # instead of a reply: auth, rate_limited, server, bad_request, unreachable, silent,
//! ```                                   # cut_stream, malformed_chunk
//!
//! A script never guesses: a key that is not known is an error, a text that was expected and is not there is an error, and a
//! conversation that goes on after the last reply is an error. Errors of the form name the file and the line.

use super::error::short;
use super::{Answering, Assistant, Extra, Message, Progress, Provider, ProviderError, Reply, Request, Stop, ToolCall, Usage};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes of a script.
const MOST: u64 = 256 << 20;

/// How the bytes of a script are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One JSON object a line.
    JsonLines,
    /// A JSON list of objects.
    Json,
    /// TOML with `[[reply]]` tables.
    Toml,
}

impl Form {
    /// The form by the ending of a file's name.
    pub fn of(file: &Path) -> Self {
        match file.extension().and_then(|ending| ending.to_str()) {
            Some("json") => Self::Json,
            Some("toml") => Self::Toml,
            _ => Self::JsonLines,
        }
    }
}

/// A model whose replies stand in a file.
#[derive(Debug)]
pub struct Scripted {
    file: String,
    steps: Vec<Step>,
    next: AtomicUsize,
}

#[derive(Debug)]
struct Step {
    line: usize,
    written: Written,
}

/// A reply as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, deserialize_with = "one_or_many")]
    expect_contains: Vec<String>,
    #[serde(default)]
    text: String,
    #[serde(default)]
    thinking: Vec<Value>,
    #[serde(default)]
    calls: Vec<WrittenCall>,
    stop: Option<Stop>,
    #[serde(default)]
    usage: Usage,
    fail: Option<Fail>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenCall {
    id: Option<String>,
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Fail {
    Auth,
    RateLimited,
    Server,
    BadRequest,
    Unreachable,
    Silent,
    CutStream,
    MalformedChunk,
}

fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(text) => vec![text],
        Either::Many(texts) => texts,
    })
}

impl Scripted {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// [`ProviderError::Setting`] for a file that cannot be read, [`ProviderError::Script`] with the line.
    pub fn open(file: &Path) -> Result<Self, ProviderError> {
        let name = file.display().to_string();
        let broken = |what: String| ProviderError::Setting { what: format!("{name}: {what}") };
        let mut bytes = Vec::new();
        std::fs::File::open(file)
            .and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
            .map_err(|error| broken(format!("the script cannot be read: {error}")))?;
        if bytes.len() as u64 > MOST {
            return Err(broken(format!("the script has more than {} MiB", MOST >> 20)));
        }
        Self::new(&name, &bytes, Form::of(file))
    }

    /// Reads a script from bytes; `name` stands in errors.
    ///
    /// # Errors
    /// [`ProviderError::Script`] with the line.
    pub fn new(name: &str, bytes: &[u8], form: Form) -> Result<Self, ProviderError> {
        let error = |line: usize, what: String| ProviderError::Script { file: name.into(), line, what };
        let text = std::str::from_utf8(bytes).map_err(|bad| {
            let line = bytes.iter().take(bad.valid_up_to()).filter(|b| **b == b'\n').count() + 1;
            error(line, "the script is not UTF-8".into())
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let steps = match form {
            Form::JsonLines => json_lines(text),
            Form::Json => json(text),
            Form::Toml => toml_tables(text),
        }
        .and_then(|steps| match steps.iter().find_map(|step| Some((step.line, step.written.contradiction()?))) {
            Some((line, what)) => Err((line, what.into())),
            None => Ok(steps),
        })
        .map_err(|(line, what)| error(line, what))?;
        if steps.is_empty() {
            return Err(error(1, "the script holds no reply".into()));
        }
        Ok(Self { file: name.into(), steps, next: AtomicUsize::new(0) })
    }

    /// How many replies were not given yet.
    pub fn left(&self) -> usize {
        self.steps.len().saturating_sub(self.next.load(Ordering::SeqCst))
    }

    fn step(&self, messages: &[Message], show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Reply, ProviderError> {
        let index = self.next.load(Ordering::SeqCst);
        let Some(Step { line, written }) = self.steps.get(index) else {
            return Err(ProviderError::ScriptEnded { file: self.file.clone(), replies: self.steps.len() });
        };
        let told = told(messages);
        if let Some(wanted) = written.expect_contains.iter().find(|wanted| !told.contains(wanted.as_str())) {
            let (file, line) = (self.file.clone(), *line);
            return Err(ProviderError::ScriptStrayed { file, line, wanted: wanted.clone(), found: short(&told, 600) });
        }
        self.next.store(index + 1, Ordering::SeqCst);
        if let Some(fail) = written.fail {
            return Err(fail.error(&self.file, *line));
        }
        for thought in &written.thinking {
            show(Progress::Thinking(thought.as_str().or_else(|| thought.get("thinking")?.as_str()).unwrap_or_default()));
        }
        if !written.text.is_empty() {
            show(Progress::Text(&written.text));
        }
        let calls: Vec<ToolCall> = written.calls.iter().enumerate().map(|(number, call)| call.made(index, number)).collect();
        let stop = written.stop.unwrap_or(if calls.is_empty() { Stop::Done } else { Stop::ToolCalls });
        let message = Assistant {
            text: written.text.clone(),
            thinking: written.thinking.clone(),
            calls,
            blocks: Vec::new(),
            wire: "script".into(),
            extra: Extra::new(),
        };
        Ok(Reply { message, stop, usage: written.usage, extra: Extra::new() })
    }
}

impl Provider for Scripted {
    fn name(&self) -> String {
        format!("script:{}", self.file)
    }

    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        Box::pin(async move { self.step(request.messages, show) })
    }
}

impl Written {
    fn contradiction(&self) -> Option<&'static str> {
        let says = !self.text.is_empty() || !self.calls.is_empty() || !self.thinking.is_empty();
        (self.fail.is_some() && (says || self.stop.is_some()))
            .then_some("a reply that fails says nothing: leave out text, calls, thinking and stop")
    }
}

impl WrittenCall {
    fn made(&self, reply: usize, number: usize) -> ToolCall {
        ToolCall {
            id: self.id.clone().unwrap_or_else(|| format!("call-{}-{}", reply + 1, number + 1)),
            name: self.name.clone(),
            arguments: match &self.arguments {
                Value::String(text) => text.clone(),
                Value::Null => "{}".into(),
                other => other.to_string(),
            },
        }
    }
}

impl Fail {
    fn error(self, file: &str, line: usize) -> ProviderError {
        let url = format!("script:{file}");
        let detail = format!("as line {line} of the script says");
        match self {
            Self::Auth => ProviderError::Auth { url, status: 401, detail },
            Self::RateLimited => ProviderError::RateLimited { url, retry_after_ms: None, detail },
            Self::Server => ProviderError::Server { url, status: 500, retry_after_ms: None, detail },
            Self::BadRequest => ProviderError::BadRequest { url, status: 400, detail },
            Self::Unreachable => ProviderError::Unreachable { url, detail },
            Self::Silent => ProviderError::Silent { url, seconds: 0 },
            Self::CutStream => ProviderError::CutStream { url, detail },
            Self::MalformedChunk => ProviderError::MalformedChunk { url, wire: "script".into(), detail },
        }
    }
}

/// All that the model was told since it last spoke.
fn told(messages: &[Message]) -> String {
    let since = messages.iter().rposition(|message| matches!(message, Message::Assistant(_))).map_or(0, |at| at + 1);
    messages.iter().skip(since).map(Message::text).collect::<Vec<_>>().join("\n")
}

type Steps = Result<Vec<Step>, (usize, String)>;

fn json_lines(text: &str) -> Steps {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    lines
        .map(|(index, line)| match reply(line) {
            Ok(written) => Ok(Step { line: index + 1, written }),
            Err((_, why)) => Err((index + 1, why)),
        })
        .collect()
}

/// One reply; else how many lines further down it is wrong, and why.
fn reply(text: &str) -> Result<Written, (usize, String)> {
    let at = |error: serde_json::Error, says: String| (error.line().saturating_sub(1), says);
    match serde_json::from_str::<Value>(text) {
        Err(error) => {
            let says = format!("this is no JSON: {error}");
            Err(at(error, says))
        }
        Ok(Value::Object(_)) => serde_json::from_str(text).map_err(|error| {
            let says = error.to_string();
            at(error, says)
        }),
        Ok(_) => Err((0, r#"a reply is an object, {"text": "…"} for example"#.into())),
    }
}

fn json(text: &str) -> Steps {
    let raw: Vec<&serde_json::value::RawValue> = serde_json::from_str(text).map_err(|error| (error.line().max(1), error.to_string()))?;
    raw.into_iter()
        .map(|raw| {
            // The piece is a part of the text, so that its place in it is known.
            let offset = raw.get().as_ptr() as usize - text.as_ptr() as usize;
            let line = line_of(text, offset);
            match reply(raw.get()) {
                Ok(written) => Ok(Step { line, written }),
                Err((below, why)) => Err((line + below, why)),
            }
        })
        .collect()
}

fn toml_tables(text: &str) -> Steps {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Script {
        #[serde(default)]
        reply: Vec<toml::Spanned<Written>>,
    }
    let script: Script = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        (line, error.message().to_owned())
    })?;
    Ok(script.reply.into_iter().map(|step| Step { line: line_of(text, step.span().start), written: step.into_inner() }).collect())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(script: &Scripted, messages: &[Message]) -> Result<(Reply, String), ProviderError> {
        let extra = Extra::new();
        let request = Request { messages, tools: &[], may_call: true, max_tokens: None, extra: &extra };
        let mut shown = String::new();
        let mut show = |progress: Progress<'_>| shown.push_str(&format!("{progress:?};"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let reply = runtime.block_on(script.reply(request, &mut show))?;
        Ok((reply, shown))
    }

    const LINES: &str = r#"# a script

{"text": "Let me look.", "thinking": ["hm"], "calls": [{"name": "read", "arguments": {"path": "a"}}, {"id": "x", "name": "ls", "arguments": "{\"pa"}], "usage": {"input": 7}}
{"expect_contains": "one failed", "text": "[TOOL] read(\"a\") [/TOOL]"}
{"fail": "server"}
{"expect_contains": ["a", "b"], "text": "cut", "stop": "length"}
"#;

    const LIST: &str = r#"[
  {"text": "Let me look.", "thinking": ["hm"],
   "calls": [{"name": "read", "arguments": {"path": "a"}}, {"id": "x", "name": "ls", "arguments": "{\"pa"}], "usage": {"input": 7}},
  {"expect_contains": "one failed", "text": "[TOOL] read(\"a\") [/TOOL]"},
  {"fail": "server"},
  {"expect_contains": ["a", "b"], "text": "cut", "stop": "length"}
]"#;

    const TABLES: &str = r#"
[[reply]]
text = "Let me look."
thinking = ["hm"]
calls = [{ name = "read", arguments = { path = "a" } }, { id = "x", name = "ls", arguments = '{"pa' }]
usage = { input = 7 }

[[reply]]
expect_contains = "one failed"
text = '[TOOL] read("a") [/TOOL]'

[[reply]]
fail = "server"

[[reply]]
expect_contains = ["a", "b"]
text = "cut"
stop = "length"
"#;

    #[test]
    fn replies_come_in_their_order_from_each_form() {
        for (text, form, line) in [(LINES, Form::JsonLines, 4), (LIST, Form::Json, 4), (TABLES, Form::Toml, 8)] {
            let script = Scripted::new("s", text.as_bytes(), form).unwrap();
            let mut messages = vec![Message::system("x"), Message::user("fix it")];
            let (reply, shown) = ask(&script, &messages).unwrap();
            assert_eq!(reply.stop, Stop::ToolCalls);
            assert_eq!(reply.usage, Usage { input: 7, ..Usage::default() });
            assert_eq!(reply.message.thinking, [json!("hm")]);
            assert_eq!(
                reply.message.calls,
                [
                    ToolCall { id: "call-1-1".into(), name: "read".into(), arguments: r#"{"path":"a"}"#.into() },
                    ToolCall { id: "x".into(), name: "ls".into(), arguments: "{\"pa".into() }
                ]
            );
            assert_eq!(shown, r#"Thinking("hm");Text("Let me look.");"#);
            messages.push(Message::Assistant(reply.message));

            // Astray: said with the place and with what is there; the reply is not used up.
            messages.push(Message::user("all passed"));
            let error = ask(&script, &messages).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(r#"s:{line}: the script expects "one failed" in what the model is told, and it is told "all passed""#)
            );
            messages.push(Message::Tool {
                id: "x".into(),
                name: "ls".into(),
                text: "one failed".into(),
                failed: false,
                extra: Extra::new(),
            });
            let (reply, _) = ask(&script, &messages).unwrap();
            assert_eq!((reply.stop, reply.message.text.as_str()), (Stop::Done, r#"[TOOL] read("a") [/TOOL]"#));

            assert!(matches!(ask(&script, &messages), Err(ProviderError::Server { status: 500, .. })));
            messages.push(Message::user("a b"));
            assert_eq!(script.left(), 1);
            assert_eq!(ask(&script, &messages).unwrap().0.stop, Stop::Length);
            assert_eq!(ask(&script, &messages).unwrap_err(), ProviderError::ScriptEnded { file: "s".into(), replies: 4 });
        }
    }

    #[test]
    fn a_wrong_script_names_file_and_line() {
        for (text, form, place) in [
            ("{\"text\": \"a\"}\n{\"txt\": \"b\"}", Form::JsonLines, "s:2: unknown field `txt`"),
            ("{\"text\": \"a\"}\n\n{\"text\": ", Form::JsonLines, "s:3: this is no JSON: EOF while parsing a value"),
            ("# nothing\n", Form::JsonLines, "s:1: the script holds no reply"),
            ("[\n{\"text\": \"a\"},\n{\n\"stop\": \"never\"}]", Form::Json, "s:4: unknown variant `never`"),
            ("[[reply]]\ntext = \"a\"\n[[reply]]\nstop = 5\n", Form::Toml, "s:4: "),
            ("[[reply]]\ntext = \"a\"\nbad = 1\n", Form::Toml, "s:3: unknown field `bad`"),
            ("{\"fail\": \"server\", \"text\": \"a\"}", Form::JsonLines, "s:1: a reply that fails says nothing"),
            ("{\"calls\": [{\"name\": \"a\", \"args\": {}}]}", Form::JsonLines, "s:1: unknown field `args`"),
        ] {
            let error = Scripted::new("s", text.as_bytes(), form).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
        assert!(Scripted::new("s", b"{}\n\xff", Form::JsonLines).unwrap_err().to_string().starts_with("s:2: the script is not UTF-8"));
        assert!(
            Scripted::open(Path::new("no/such/script")).unwrap_err().to_string().starts_with("no/such/script: the script cannot be read")
        );
    }
}
