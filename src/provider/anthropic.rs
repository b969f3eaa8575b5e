//! Anthropic Messages.
//!
//! The blocks of a reply go back as they came and in their order, thinking with its signatures included; a block of a kind that
//! is not known is kept like the others.

use super::http::{Assembly, Bad, MOST_PARTS, Secret, Server, Settings, message, too_many};
use super::sse::Event;
use super::{Answering, Assistant, Extra, Message, Progress, Provider, ProviderError, Reply, Request, Stop, ToolCall, ToolSchema, Usage};
use super::{fresh_id, sendable};
use reqwest::header::HeaderName;
use serde_json::{Map, Value, json};

const WIRE: &str = "anthropic";
/// The revision of the wire.
const VERSION: &str = "2023-06-01";
/// The wire wants a number; every model of it can say as much.
const MAX_TOKENS: u64 = 8192;

/// A server of the Messages wire.
#[derive(Debug)]
pub struct Anthropic(Server);

impl Anthropic {
    /// Prepares requests; connects to nothing yet.
    ///
    /// # Errors
    /// [`ProviderError::Setting`].
    pub fn new(mut settings: Settings) -> Result<Self, ProviderError> {
        if !settings.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("anthropic-version")) {
            settings.headers.push(("anthropic-version".into(), VERSION.into()));
        }
        let header = |key: &Secret| (HeaderName::from_static("x-api-key"), key.expose().to_owned());
        Server::new(settings, ("/v1", "/messages"), header).map(Self)
    }
}

impl Provider for Anthropic {
    fn name(&self) -> String {
        format!("{WIRE}:{}", self.0.settings.model)
    }

    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        self.0.ask::<Blocks>(body(&request, &self.0.settings), show)
    }
}

/// A tool in this wire's form.
pub fn tool(tool: &ToolSchema) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn body(request: &Request<'_>, settings: &Settings) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.as_str().into());
    body.insert("max_tokens".into(), request.max_tokens.unwrap_or(MAX_TOKENS).into());
    let leading = request.messages.iter().take_while(|message| matches!(message, Message::System { .. })).count();
    let (system, rest) = request.messages.split_at(leading);
    let mut system: Vec<Value> = system.iter().map(Message::text).filter_map(text_block).collect();
    if !system.is_empty() {
        mark_for_cache(&mut system);
        body.insert("system".into(), system.into());
    }
    body.insert("messages".into(), messages(rest).into());
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
        if !request.may_call {
            body.insert("tool_choice".into(), json!({"type": "none"}));
        }
    }
    if settings.stream {
        body.insert("stream".into(), true.into());
    }
    super::merge_extra(&mut body, request.extra);
    body.into()
}

/// The conversation: neighbours of one role are one message, so that all results of a reply's calls stand together.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::System { text, .. } | Message::User { text, .. } => ("user", text_block(text).into_iter().collect()),
            Message::Tool { id, text, failed, .. } => {
                let content: Vec<Value> = text_block(text).into_iter().collect();
                ("user", vec![json!({"type": "tool_result", "tool_use_id": plain_id(id), "content": content, "is_error": failed})])
            }
            Message::Assistant(assistant) => ("assistant", written(assistant)),
        };
        match turns.last_mut() {
            Some((last, content)) if *last == role => content.extend(blocks),
            _ if blocks.is_empty() => {}
            _ => turns.push((role, blocks)),
        }
    }
    if let Some((_, content)) = turns.last_mut().filter(|(role, _)| *role == "user") {
        mark_for_cache(content);
    }
    turns.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

/// The wire refuses a text of blanks.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

/// What stands before this place is the same in the next request.
fn mark_for_cache(blocks: &mut [Value]) {
    if let Some(Value::Object(block)) = blocks.last_mut() {
        block.insert("cache_control".into(), json!({"type": "ephemeral"}));
    }
}

fn written(assistant: &Assistant) -> Vec<Value> {
    if assistant.wire != WIRE || assistant.blocks.is_empty() {
        let calls = assistant.calls.iter().map(written_call);
        return text_block(&assistant.text).into_iter().chain(calls).collect();
    }
    let mut calls = assistant.calls.iter();
    let mut blocks = Vec::new();
    for block in &assistant.blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("tool_use") => {
                // The ids are the conversation's, which may have made them unique.
                let Some(call) = calls.next() else { continue };
                let mut block = block.clone();
                block["id"] = plain_id(&call.id).into();
                blocks.push(block);
            }
            Some("text") if block.get("text").and_then(Value::as_str).is_none_or(|text| text.trim().is_empty()) => {}
            _ => blocks.push(block.clone()),
        }
    }
    blocks
}

fn written_call(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": plain_id(&call.id), "name": call.name, "input": sendable(&call.arguments)})
}

/// An id as the wire takes it; those of other wires may hold any characters.
fn plain_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// A reply that is being put together.
#[derive(Debug, Default)]
struct Blocks {
    blocks: Vec<Block>,
    stop: Option<String>,
    stopped: bool,
    usage: Usage,
    extra: Extra,
}

#[derive(Debug, Default)]
struct Block {
    index: u64,
    value: Map<String, Value>,
    /// The pieces of a call's arguments.
    input: String,
}

impl Assembly for Blocks {
    const WIRE: &'static str = WIRE;

    fn event(&mut self, event: &Event, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        if event.data.trim().is_empty() || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data).map_err(|error| Bad::Malformed(format!("{error}: {}", event.data)))?;
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "message_start" => {
                if let Some(Value::Object(message)) = data.get("message") {
                    self.around(message.clone());
                }
            }
            "content_block_start" => {
                let Some(Value::Object(block)) = data.get("content_block") else { return malformed("a block begins without one", &data) };
                let block = Block { index: index(&data), value: block.clone(), input: String::new() };
                if self.blocks.len() >= MOST_PARTS {
                    return Err(too_many());
                }
                show_start(&block.value, show);
                self.blocks.push(block);
            }
            "content_block_delta" => self.delta(&data, show)?,
            "message_delta" => {
                if let Some(Value::Object(delta)) = data.get("delta") {
                    self.around(delta.clone());
                }
                self.take_usage(data.get("usage"));
            }
            "message_stop" => self.stopped = true,
            "error" => return Err(failed(&data)),
            // `ping`, `content_block_stop`, and what is to come.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        if body.get("type").is_some_and(|kind| kind == "error") {
            return Err(failed(&body));
        }
        let Value::Object(mut message) = body else { return malformed("it is no object", &body) };
        let Some(Value::Array(content)) = message.remove("content") else {
            return malformed("there is no content in it", &message.into());
        };
        for (at, block) in content.into_iter().enumerate() {
            let Value::Object(value) = block else { return malformed("a block is no object", &block) };
            show_start(&value, show);
            self.blocks.push(Block { index: at as u64, value, input: String::new() });
        }
        self.around(message);
        self.stopped = true;
        Ok(())
    }

    fn begun(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn ended(&self) -> bool {
        self.stopped
    }

    fn closed(&self) -> bool {
        self.stopped || self.stop.is_some()
    }

    fn reply(self) -> Result<Reply, Bad> {
        let mut message = Assistant { wire: WIRE.into(), ..Assistant::default() };
        for Block { mut value, input, .. } in self.blocks {
            match value.get("type").and_then(Value::as_str) {
                Some("text") => message.text.push_str(value.get("text").and_then(Value::as_str).unwrap_or_default()),
                Some("thinking" | "redacted_thinking") => message.thinking.push(value.clone().into()),
                Some("tool_use") => {
                    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                    let (id, name) = (text("id"), text("name"));
                    if name.is_empty() {
                        return Err(Bad::Malformed("a tool call has no name".into()));
                    }
                    let arguments = match (input.is_empty(), value.get("input")) {
                        (false, _) => input,
                        (true, Some(Value::String(text))) => text.clone(),
                        (true, Some(whole)) => whole.to_string(),
                        (true, None) => String::new(),
                    };
                    let taken = id.is_empty() || message.calls.iter().any(|call| call.id == id);
                    let call = ToolCall { id: if taken { fresh_id() } else { id }, name, arguments };
                    value.insert("id".into(), call.id.as_str().into());
                    value.insert("input".into(), sendable(&call.arguments));
                    message.calls.push(call);
                }
                _ => {}
            }
            message.blocks.push(value.into());
        }
        let stop = match self.stop.as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => Stop::Length,
            Some("refusal") => Stop::Refusal,
            Some("end_turn" | "stop_sequence" | "tool_use") | None if message.calls.is_empty() => Stop::Done,
            Some("end_turn" | "stop_sequence" | "tool_use") | None => Stop::ToolCalls,
            Some(_) => Stop::Other,
        };
        Ok(Reply { message, stop, usage: self.usage, extra: self.extra })
    }
}

impl Blocks {
    fn delta(&mut self, data: &Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let index = index(data);
        let Some(block) = self.blocks.iter_mut().rev().find(|block| block.index == index) else {
            return malformed("a block goes on that has not begun", data);
        };
        let delta = data.get("delta").unwrap_or(&Value::Null);
        let piece = |key: &str| delta.get(key).and_then(Value::as_str).unwrap_or_default();
        match delta.get("type").and_then(Value::as_str).unwrap_or_default() {
            "text_delta" => {
                append(&mut block.value, "text", piece("text"));
                show(Progress::Text(piece("text")));
            }
            "thinking_delta" => {
                append(&mut block.value, "thinking", piece("thinking"));
                show(Progress::Thinking(piece("thinking")));
            }
            "signature_delta" => append(&mut block.value, "signature", piece("signature")),
            "input_json_delta" => match delta.get("partial_json") {
                Some(Value::String(piece)) => block.input.push_str(piece),
                Some(Value::Object(whole)) => block.input.push_str(&Value::Object(whole.clone()).to_string()),
                _ => {}
            },
            "citations_delta" => {
                if let (Some(citation), Value::Array(list)) =
                    (delta.get("citation"), block.value.entry("citations").or_insert_with(|| json!([])))
                {
                    list.push(citation.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What stands around the blocks.
    fn around(&mut self, message: Map<String, Value>) {
        for (key, value) in message {
            match key.as_str() {
                "content" | "role" | "type" => {}
                "usage" => self.take_usage(Some(&value)),
                "stop_reason" => {
                    if let Some(reason) = value.as_str() {
                        self.stop = Some(reason.into());
                    }
                }
                _ if value.is_null() => {}
                _ => {
                    self.extra.insert(key, value);
                }
            }
        }
    }

    /// The numbers of a later event stand for those of an earlier one.
    fn take_usage(&mut self, usage: Option<&Value>) {
        let number = |key: &str| usage?.get(key)?.as_u64();
        let set = |field: &mut u64, key: &str| {
            if let Some(count) = number(key) {
                *field = count;
            }
        };
        set(&mut self.usage.input, "input_tokens");
        set(&mut self.usage.output, "output_tokens");
        set(&mut self.usage.cache_read, "cache_read_input_tokens");
        set(&mut self.usage.cache_write, "cache_creation_input_tokens");
    }
}

fn index(data: &Value) -> u64 {
    data.get("index").and_then(Value::as_u64).unwrap_or_default()
}

/// What a block brings with its beginning.
fn show_start(block: &Map<String, Value>, show: &mut (dyn FnMut(Progress<'_>) + Send)) {
    let text = |key: &str| block.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    if let Some(text) = text("text") {
        show(Progress::Text(text));
    }
    if let Some(text) = text("thinking") {
        show(Progress::Thinking(text));
    }
}

fn append(block: &mut Map<String, Value>, key: &str, more: &str) {
    match block.get_mut(key) {
        Some(Value::String(text)) => text.push_str(more),
        _ => {
            block.insert(key.into(), more.into());
        }
    }
}

fn malformed<T>(what: &str, data: &Value) -> Result<T, Bad> {
    Err(Bad::Malformed(format!("{what}: {data}")))
}

/// An error within a reply, with the status that the same error has as an answer.
fn failed(data: &Value) -> Bad {
    let status = match data.pointer("/error/type").and_then(Value::as_str) {
        Some("authentication_error") => 401,
        Some("permission_error") => 403,
        Some("rate_limit_error") => 429,
        Some("invalid_request_error" | "not_found_error" | "request_too_large") => 400,
        Some("overloaded_error") => 529,
        _ => 500,
    };
    Bad::Failed { status, detail: message(data).unwrap_or_else(|| data.to_string()) }
}
