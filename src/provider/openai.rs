//! OpenAI chat completions, and the many servers that speak like it.
//!
//! Their quirks are accepted: calls without ids or with one index for all, a whole call in one piece, arguments as an object,
//! content as a list of parts, no `[DONE]`, no usage. The message goes back as it came, unknown fields included, since some
//! models sign their thinking or their calls in fields of their own.

use super::http::{Assembly, Bad, MOST_PARTS, Secret, Server, Settings, message, too_many};
use super::sse::Event;
use super::{Answering, Assistant, Extra, Message, Progress, Provider, ProviderError, Reply, Request, Stop, ToolCall, ToolSchema, Usage};
use super::{fresh_id, sendable};
use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value, json};

const WIRE: &str = "openai";

/// Fields of a message that hold thinking as text, by the names that servers use.
const THINKING: &[&str] = &["reasoning_content", "reasoning"];
/// Fields of a reply's message that servers do not take back.
const ONE_WAY: &[&str] = &["annotations", "audio"];

/// A server of the chat completions wire.
#[derive(Debug)]
pub struct OpenAi(Server);

impl OpenAi {
    /// Prepares requests; connects to nothing yet.
    ///
    /// # Errors
    /// [`ProviderError::Setting`].
    pub fn new(settings: Settings) -> Result<Self, ProviderError> {
        let bearer = |key: &Secret| (AUTHORIZATION, format!("Bearer {}", key.expose()));
        Server::new(settings, ("/v1", "/chat/completions"), bearer).map(Self)
    }
}

impl Provider for OpenAi {
    fn name(&self) -> String {
        format!("{WIRE}:{}", self.0.settings.model)
    }

    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        self.0.ask::<Chat>(body(&request, &self.0.settings), show)
    }
}

/// A tool in this wire's form.
pub fn tool(tool: &ToolSchema) -> Value {
    json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
}

fn body(request: &Request<'_>, settings: &Settings) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.as_str().into());
    body.insert("messages".into(), request.messages.iter().map(written).collect());
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
        if !request.may_call {
            body.insert("tool_choice".into(), "none".into());
        }
    }
    if let Some(most) = request.max_tokens {
        // OpenAI's newer models refuse the old name; most other servers know only that.
        let name = if settings.base_url.contains("://api.openai.com") { "max_completion_tokens" } else { "max_tokens" };
        body.insert(name.into(), most.into());
    }
    if settings.stream {
        body.insert("stream".into(), true.into());
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    super::merge_extra(&mut body, request.extra);
    body.into()
}

fn written(message: &Message) -> Value {
    match message {
        Message::System { text, .. } => json!({"role": "system", "content": text}),
        Message::User { text, .. } => json!({"role": "user", "content": text}),
        Message::Tool { id, text, .. } => json!({"role": "tool", "tool_call_id": id, "content": text}),
        Message::Assistant(assistant) => {
            let (mut message, calls) = match assistant.blocks.first() {
                Some(Value::Object(block)) if assistant.wire == WIRE => {
                    let calls = block.get("tool_calls").and_then(Value::as_array).cloned().unwrap_or_default();
                    (block.clone(), calls)
                }
                _ => {
                    let content = if assistant.text.is_empty() { Value::Null } else { assistant.text.as_str().into() };
                    (Map::from_iter([("role".to_owned(), "assistant".into()), ("content".to_owned(), content)]), Vec::new())
                }
            };
            message.remove("tool_calls");
            let calls: Vec<Value> = assistant.calls.iter().enumerate().map(|(index, call)| written_call(call, calls.get(index))).collect();
            if !calls.is_empty() {
                message.insert("tool_calls".into(), calls.into());
            } else if message.get("content").is_none_or(Value::is_null) {
                message.insert("content".into(), "".into());
            }
            message.into()
        }
    }
}

/// A call with the fields that the server gave it, and with arguments that the server can read.
fn written_call(call: &ToolCall, given: Option<&Value>) -> Value {
    let mut written = given.and_then(Value::as_object).cloned().unwrap_or_default();
    written.remove("index");
    written.insert("id".into(), call.id.as_str().into());
    written.insert("type".into(), "function".into());
    let arguments = sendable(&call.arguments).to_string();
    // Text that is JSON already goes back to the byte: a cache of the server's depends on it.
    let arguments = if serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok() { call.arguments.clone() } else { arguments };
    written.insert("function".into(), json!({"name": call.name, "arguments": arguments}));
    written.into()
}

/// A reply that is being put together.
#[derive(Debug, Default)]
struct Chat {
    message: Map<String, Value>,
    text: String,
    thinking: Map<String, Value>,
    details: Vec<Value>,
    calls: Vec<Slot>,
    finish: Option<String>,
    done: bool,
    whole: bool,
    usage: Usage,
    usage_seen: bool,
    extra: Extra,
    begun: bool,
}

#[derive(Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// Fields of the call that are not known.
    extra: Map<String, Value>,
}

impl Assembly for Chat {
    const WIRE: &'static str = WIRE;

    fn event(&mut self, event: &Event, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).map_err(|error| Bad::Malformed(format!("{error}: {data}")))?;
        self.chunk(chunk, "delta", show)
    }

    fn whole(&mut self, body: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let has_choice = body.get("choices").and_then(Value::as_array).is_some_and(|choices| !choices.is_empty());
        if !has_choice && body.get("error").is_none_or(Value::is_null) {
            return Err(Bad::Malformed(format!("there are no choices in it: {body}")));
        }
        self.chunk(body, "message", show)?;
        self.whole = true;
        Ok(())
    }

    fn begun(&self) -> bool {
        self.begun
    }

    fn ended(&self) -> bool {
        // What follows the reason is at most the usage, which comes before `[DONE]` or the end of the stream.
        self.done || self.whole || (self.finish.is_some() && self.usage_seen)
    }

    fn closed(&self) -> bool {
        self.ended() || self.finish.is_some()
    }

    fn reply(mut self) -> Result<Reply, Bad> {
        let mut calls = Vec::new();
        let mut written = Vec::new();
        for slot in std::mem::take(&mut self.calls) {
            if slot.name.is_empty() {
                return Err(Bad::Malformed("a tool call has no name".into()));
            }
            let taken = slot.id.is_empty() || calls.iter().any(|call: &ToolCall| call.id == slot.id);
            let call = ToolCall { id: if taken { fresh_id() } else { slot.id }, name: slot.name, arguments: slot.arguments };
            written.push(written_call(&call, Some(&slot.extra.into())));
            calls.push(call);
        }
        let refusal = self.message.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
        let stop = match (self.finish.as_deref(), &refusal) {
            (Some("length"), _) => Stop::Length,
            (Some("content_filter"), _) | (_, Some(_)) => Stop::Refusal,
            (Some("stop" | "tool_calls" | "function_call" | "eos") | None, None) if calls.is_empty() => Stop::Done,
            // Some servers say `stop` after calls.
            (Some("stop" | "tool_calls" | "function_call" | "eos") | None, None) => Stop::ToolCalls,
            (Some(_), None) => Stop::Other,
        };
        let mut thinking: Vec<Value> = self.thinking.iter().map(|(field, text)| json!({ field.as_str(): text })).collect();
        let mut message = Map::from_iter([("role".to_owned(), Value::from("assistant"))]);
        message.insert("content".into(), if self.text.is_empty() && !calls.is_empty() { Value::Null } else { self.text.as_str().into() });
        message.extend(self.thinking);
        if !self.details.is_empty() {
            thinking.push(json!({"reasoning_details": self.details}));
            message.insert("reasoning_details".into(), self.details.into());
        }
        let unknown = self.message;
        let kept = unknown.iter().filter(|(key, value)| !value.is_null() && !ONE_WAY.contains(&key.as_str()));
        message.extend(kept.map(|(key, value)| (key.clone(), value.clone())));
        if !written.is_empty() {
            message.insert("tool_calls".into(), written.into());
        }
        let text = if self.text.is_empty() { refusal.unwrap_or_default() } else { self.text };
        let message = Assistant { text, thinking, calls, blocks: vec![message.into()], wire: WIRE.into(), extra: unknown };
        Ok(Reply { message, stop, usage: self.usage, extra: self.extra })
    }
}

impl Chat {
    fn chunk(&mut self, chunk: Value, field: &str, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let Value::Object(chunk) = chunk else { return Err(Bad::Malformed(format!("it is no object: {chunk}"))) };
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            let code = error.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400);
            let detail = message(&Value::Object(chunk.clone())).unwrap_or_else(|| error.to_string());
            return Err(Bad::Failed { status: code.unwrap_or(500), detail });
        }
        for (key, value) in chunk {
            match key.as_str() {
                "usage" => self.take_usage(&value),
                "choices" => {
                    // Only one choice is ever asked for.
                    if let Some(Value::Object(choice)) = value.as_array().and_then(|choices| choices.first()) {
                        self.choice(choice, field, show)?;
                    }
                }
                _ => {
                    self.extra.insert(key, value);
                }
            }
        }
        Ok(())
    }

    fn choice(&mut self, choice: &Map<String, Value>, field: &str, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let delta = choice.get(field).or_else(|| choice.get("message")).or_else(|| choice.get("delta"));
        for (key, value) in delta.and_then(Value::as_object).into_iter().flatten() {
            match key.as_str() {
                "role" => {}
                "content" => {
                    let text = content(value);
                    if !text.is_empty() {
                        self.begun = true;
                        self.text.push_str(&text);
                        show(Progress::Text(&text));
                    }
                }
                "tool_calls" => {
                    for call in value.as_array().into_iter().flatten() {
                        self.begun = true;
                        self.call(call)?;
                    }
                }
                "reasoning_details" => {
                    for detail in value.as_array().into_iter().flatten() {
                        self.begun = true;
                        add_detail(&mut self.details, detail);
                    }
                }
                field if THINKING.contains(&field) => {
                    if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                        self.begun = true;
                        add_text(&mut self.thinking, field, text);
                        show(Progress::Thinking(text));
                    }
                }
                _ => match value {
                    Value::Null => {}
                    Value::String(text) => add_text(&mut self.message, key, text),
                    other => {
                        self.message.insert(key.clone(), other.clone());
                    }
                },
            }
        }
        if let Some(reason) = choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            self.finish = Some(reason.into());
        }
        Ok(())
    }

    fn call(&mut self, piece: &Value) -> Result<(), Bad> {
        let Value::Object(piece) = piece else { return Err(Bad::Malformed(format!("a tool call is no object: {piece}"))) };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let function = piece.get("function");
        let (index, id) = (piece.get("index").and_then(Value::as_u64), text(piece.get("id")));
        let name = text(function.and_then(|function| function.get("name")));
        let other_id = |slot: &Slot| !id.is_empty() && !slot.id.is_empty() && slot.id != id;
        let begins = match (index, self.calls.last()) {
            (_, None) => true,
            // Without an index, a piece with a name begins a call.
            (None, Some(last)) => other_id(last) || (!name.is_empty() && (id.is_empty() || last.id != id)),
            (Some(_), Some(_)) => self.calls.iter().rev().find(|slot| slot.index == index).is_none_or(other_id),
        };
        if begins {
            if self.calls.len() >= MOST_PARTS {
                return Err(too_many());
            }
            self.calls.push(Slot { index, ..Slot::default() });
        }
        let slot = match index {
            Some(_) => self.calls.iter_mut().rev().find(|slot| slot.index == index),
            None => self.calls.last_mut(),
        };
        let Some(slot) = slot else { return Ok(()) };
        if slot.id.is_empty() {
            slot.id = id;
        }
        if slot.name.is_empty() {
            slot.name = name;
        }
        match function.and_then(|function| function.get("arguments")) {
            Some(Value::String(more)) => slot.arguments.push_str(more),
            None | Some(Value::Null) => {}
            Some(other) => slot.arguments.push_str(&other.to_string()),
        }
        let known = ["index", "id", "type", "function"];
        slot.extra.extend(piece.iter().filter(|(key, _)| !known.contains(&key.as_str())).map(|(key, value)| (key.clone(), value.clone())));
        Ok(())
    }

    fn take_usage(&mut self, usage: &Value) {
        let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
        if !usage.is_object() {
            return;
        }
        let cache_read = number("/prompt_tokens_details/cached_tokens");
        let input = number("/prompt_tokens").saturating_sub(cache_read);
        self.usage = Usage { input, output: number("/completion_tokens"), cache_read, cache_write: 0 };
        self.usage_seen = true;
    }
}

/// Content as text: a string, or the texts of its parts.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str())).collect(),
        _ => String::new(),
    }
}

fn add_text(fields: &mut Map<String, Value>, key: &str, more: &str) {
    match fields.get_mut(key) {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            fields.insert(key.into(), more.into());
        }
    }
}

/// Puts a piece of a detail onto the detail that it continues: same type, same index.
fn add_detail(details: &mut Vec<Value>, piece: &Value) {
    let same = |a: &Value, b: &Value| b.get("index").is_some() && a.get("index") == b.get("index") && a.get("type") == b.get("type");
    match (details.last_mut(), piece) {
        (Some(Value::Object(last)), Value::Object(fields)) if same(&Value::Object(last.clone()), piece) => {
            for (key, value) in fields {
                match (key.as_str(), value) {
                    (_, Value::Null) => {}
                    ("text" | "summary" | "data", Value::String(more)) => add_text(last, key, more),
                    _ => {
                        last.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        _ => details.push(piece.clone()),
    }
}
