//! Ollama's own API: lines of JSON, arguments as objects, no ids.
//!
//! Its servers cut a conversation silently to the context that the request names, so each request names one.

use super::http::{Assembly, Bad, Secret, Server, Settings, message};
use super::sse::Event;
use super::{Answering, Assistant, Extra, Message, Progress, Provider, ProviderError, Reply, Request, Stop, ToolCall, Usage};
use super::{fresh_id, openai, sendable};
use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value, json};

const WIRE: &str = "ollama";
/// Tokens of the conversation, unless the request's further fields name `options`: the server's own default is a few thousand,
/// which the prompt alone fills.
const CONTEXT: u64 = 32_768;

/// A server of Ollama's own API.
#[derive(Debug)]
pub struct Ollama(Server);

impl Ollama {
    /// Prepares requests; connects to nothing yet.
    ///
    /// # Errors
    /// [`ProviderError::Setting`].
    pub fn new(mut settings: Settings) -> Result<Self, ProviderError> {
        // The address that people have at hand is that of the other wire.
        let base = settings.base_url.trim_end_matches('/');
        settings.base_url = base.strip_suffix("/v1").unwrap_or(base).into();
        let bearer = |key: &Secret| (AUTHORIZATION, format!("Bearer {}", key.expose()));
        Server::new(settings, ("/api", "/chat"), bearer).map(Self)
    }
}

impl Provider for Ollama {
    fn name(&self) -> String {
        format!("{WIRE}:{}", self.0.settings.model)
    }

    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        self.0.ask::<Lines>(body(&request, &self.0.settings), show)
    }
}

fn body(request: &Request<'_>, settings: &Settings) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.as_str().into());
    body.insert("messages".into(), request.messages.iter().map(written).collect());
    // The wire has no word to forbid calls; tools that are not there are not called.
    if request.may_call && !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(openai::tool).collect());
    }
    // Unless it is told otherwise, the server streams.
    body.insert("stream".into(), settings.stream.into());
    let mut options = json!({"num_ctx": CONTEXT});
    if let Some(most) = request.max_tokens {
        options["num_predict"] = most.into();
    }
    body.insert("options".into(), options);
    super::merge_extra(&mut body, request.extra);
    body.into()
}

fn written(message: &Message) -> Value {
    match message {
        Message::System { text, .. } => json!({"role": "system", "content": text}),
        Message::User { text, .. } => json!({"role": "user", "content": text}),
        Message::Tool { id, name, text, .. } => json!({"role": "tool", "content": text, "tool_name": name, "tool_call_id": id}),
        Message::Assistant(assistant) => {
            let mut message = match assistant.blocks.first() {
                Some(Value::Object(block)) if assistant.wire == WIRE => block.clone(),
                _ => Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), assistant.text.as_str().into())]),
            };
            let given = message.remove("tool_calls");
            let given = given.as_ref().and_then(Value::as_array);
            let calls: Vec<Value> = assistant
                .calls
                .iter()
                .enumerate()
                .map(|(index, call)| written_call(call, given.and_then(|given| given.get(index))))
                .collect();
            if !calls.is_empty() {
                message.insert("tool_calls".into(), calls.into());
            }
            message.into()
        }
    }
}

fn written_call(call: &ToolCall, given: Option<&Value>) -> Value {
    let mut written = given.and_then(Value::as_object).cloned().unwrap_or_default();
    let mut function = written.get("function").and_then(Value::as_object).cloned().unwrap_or_default();
    function.insert("name".into(), call.name.as_str().into());
    function.insert("arguments".into(), sendable(&call.arguments));
    written.insert("id".into(), call.id.as_str().into());
    written.insert("function".into(), function.into());
    written.into()
}

/// A reply that is being put together.
#[derive(Debug, Default)]
struct Lines {
    message: Map<String, Value>,
    text: String,
    thinking: String,
    calls: Vec<Value>,
    reason: Option<String>,
    done: bool,
    usage: Usage,
    extra: Extra,
    begun: bool,
}

impl Assembly for Lines {
    const WIRE: &'static str = WIRE;
    const LINES: bool = true;

    fn event(&mut self, event: &Event, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let line = serde_json::from_str(&event.data).map_err(|error| Bad::Malformed(format!("{error}: {}", event.data)))?;
        self.line(line, show)
    }

    fn whole(&mut self, body: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        if body.get("message").is_none() && body.get("error").is_none() {
            return Err(Bad::Malformed(format!("there is no message in it: {body}")));
        }
        let streamed = body.get("done") == Some(&Value::Bool(false));
        self.line(body, show)?;
        // One line of a stream that was cut off behind it.
        self.done |= !streamed;
        Ok(())
    }

    fn begun(&self) -> bool {
        self.begun
    }

    fn ended(&self) -> bool {
        self.done
    }

    fn closed(&self) -> bool {
        self.done
    }

    fn reply(self) -> Result<Reply, Bad> {
        if !self.done {
            return Err(Bad::Malformed("the reply has no end".into()));
        }
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut written = Vec::new();
        for given in self.calls {
            let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
            let function = given.get("function");
            let name = text(function.and_then(|function| function.get("name")));
            if name.is_empty() {
                return Err(Bad::Malformed("a tool call has no name".into()));
            }
            let arguments = match function.and_then(|function| function.get("arguments")) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text.clone(),
                Some(object) => object.to_string(),
            };
            let id = text(given.get("id"));
            let taken = id.is_empty() || calls.iter().any(|call| call.id == id);
            let call = ToolCall { id: if taken { fresh_id() } else { id }, name, arguments };
            written.push(written_call(&call, Some(&given)));
            calls.push(call);
        }
        let stop = match self.reason.as_deref() {
            Some("length") => Stop::Length,
            _ if !calls.is_empty() => Stop::ToolCalls,
            Some("stop" | "tool_calls") | None => Stop::Done,
            Some(_) => Stop::Other,
        };
        let unknown = self.message;
        let mut message =
            Map::from_iter([("role".to_owned(), Value::from("assistant")), ("content".to_owned(), self.text.as_str().into())]);
        let mut thinking = Vec::new();
        if !self.thinking.is_empty() {
            thinking.push(json!({"thinking": self.thinking}));
            message.insert("thinking".into(), self.thinking.into());
        }
        message.extend(unknown.iter().map(|(key, value)| (key.clone(), value.clone())));
        if !written.is_empty() {
            message.insert("tool_calls".into(), written.into());
        }
        let message = Assistant { text: self.text, thinking, calls, blocks: vec![message.into()], wire: WIRE.into(), extra: unknown };
        Ok(Reply { message, stop, usage: self.usage, extra: self.extra })
    }
}

impl Lines {
    fn line(&mut self, line: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let Value::Object(line) = line else { return Err(Bad::Malformed(format!("it is no object: {line}"))) };
        if line.get("error").is_some_and(|error| !error.is_null()) {
            let line = Value::Object(line);
            return Err(Bad::Failed { status: 500, detail: message(&line).unwrap_or_else(|| line.to_string()) });
        }
        for (key, value) in line {
            let count = value.as_u64().unwrap_or_default();
            match key.as_str() {
                "message" => self.message(value, show)?,
                "done" => self.done |= value == Value::Bool(true),
                "done_reason" => self.reason = value.as_str().filter(|reason| !reason.is_empty()).map(str::to_owned),
                "prompt_eval_count" => self.usage.input = count,
                "eval_count" => self.usage.output = count,
                _ => {
                    self.extra.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn message(&mut self, message: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let Value::Object(message) = message else { return Err(Bad::Malformed(format!("the message is no object: {message}"))) };
        for (key, value) in message {
            match (key.as_str(), value) {
                ("role", _) | (_, Value::Null) => {}
                ("content", Value::String(text)) => {
                    if !text.is_empty() {
                        self.begun = true;
                        self.text.push_str(&text);
                        show(Progress::Text(&text));
                    }
                }
                ("thinking", Value::String(text)) => {
                    if !text.is_empty() {
                        self.begun = true;
                        self.thinking.push_str(&text);
                        show(Progress::Thinking(&text));
                    }
                }
                ("tool_calls", Value::Array(calls)) => {
                    self.begun |= !calls.is_empty();
                    self.calls.extend(calls);
                }
                (_, value) => {
                    self.message.insert(key, value);
                }
            }
        }
        Ok(())
    }
}
