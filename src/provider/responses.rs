//! OpenAI Responses: a list of items in, a list of items out.
//!
//! Nothing is kept on the server (`store: false`): the items of a reply go back verbatim, reasoning with its encrypted content
//! included, so that a conversation can be resumed from the transcript alone.

use super::http::{Assembly, Bad, MOST_PARTS, Secret, Server, Settings, message, too_many};
use super::sse::Event;
use super::{Answering, Assistant, Extra, Message, Progress, Provider, ProviderError, Reply, Request, Stop, ToolCall, ToolSchema, Usage};
use super::{fresh_id, sendable};
use reqwest::header::AUTHORIZATION;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

const WIRE: &str = "responses";

/// A server of the Responses wire.
#[derive(Debug)]
pub struct Responses(Server);

impl Responses {
    /// Prepares requests; connects to nothing yet.
    ///
    /// # Errors
    /// [`ProviderError::Setting`].
    pub fn new(settings: Settings) -> Result<Self, ProviderError> {
        let bearer = |key: &Secret| (AUTHORIZATION, format!("Bearer {}", key.expose()));
        Server::new(settings, ("/v1", "/responses"), bearer).map(Self)
    }
}

impl Provider for Responses {
    fn name(&self) -> String {
        format!("{WIRE}:{}", self.0.settings.model)
    }

    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        self.0.ask::<Items>(body(&request, &self.0.settings), show)
    }
}

/// A tool in this wire's form. Without `strict: false` the server demands that each argument is required.
pub fn tool(tool: &ToolSchema) -> Value {
    json!({"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters, "strict": false})
}

fn body(request: &Request<'_>, settings: &Settings) -> Value {
    let mut body = Map::new();
    body.insert("model".into(), settings.model.as_str().into());
    body.insert("input".into(), request.messages.iter().flat_map(written).collect());
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
        if !request.may_call {
            body.insert("tool_choice".into(), "none".into());
        }
    }
    if let Some(most) = request.max_tokens {
        body.insert("max_output_tokens".into(), most.into());
    }
    body.insert("store".into(), false.into());
    if reasons(&settings.model) {
        body.insert("include".into(), json!(["reasoning.encrypted_content"]));
    }
    if settings.stream {
        body.insert("stream".into(), true.into());
    }
    super::merge_extra(&mut body, request.extra);
    body.into()
}

/// Whether a model has reasoning to give; the others refuse to be asked for it.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.strip_prefix('o').is_some_and(numbered) || name.starts_with("gpt-5") || name.starts_with("gpt-oss") || name.starts_with("codex")
}

fn written(message: &Message) -> Vec<Value> {
    match message {
        Message::System { text, .. } => vec![json!({"role": "system", "content": text})],
        Message::User { text, .. } => vec![json!({"role": "user", "content": text})],
        Message::Tool { id, text, .. } => vec![json!({"type": "function_call_output", "call_id": id, "output": text})],
        Message::Assistant(assistant) if assistant.wire == WIRE && !assistant.blocks.is_empty() => {
            let mut calls = assistant.calls.iter();
            let back = |item: &Value| match item.get("type").and_then(Value::as_str) {
                // The ids are the conversation's, which may have made them unique.
                Some("function_call") => calls.next().map(|call| written_call(call, Some(item))),
                // The server has not kept it and could not find it by its id.
                Some("reasoning") if item.get("encrypted_content").is_none_or(Value::is_null) => None,
                _ => Some(item.clone()),
            };
            assistant.blocks.iter().filter_map(back).collect()
        }
        Message::Assistant(assistant) => {
            let text = (!assistant.text.is_empty()).then(|| json!({"role": "assistant", "content": assistant.text}));
            text.into_iter().chain(assistant.calls.iter().map(|call| written_call(call, None))).collect()
        }
    }
}

fn written_call(call: &ToolCall, given: Option<&Value>) -> Value {
    let mut item = given.and_then(Value::as_object).cloned().unwrap_or_default();
    item.insert("type".into(), "function_call".into());
    item.insert("call_id".into(), call.id.as_str().into());
    item.insert("name".into(), call.name.as_str().into());
    let whole = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    item.insert("arguments".into(), if whole { call.arguments.clone() } else { sendable(&call.arguments).to_string() }.into());
    item.into()
}

/// A reply that is being put together.
#[derive(Debug, Default)]
struct Items {
    /// By their place in the output.
    items: BTreeMap<u64, Map<String, Value>>,
    status: Option<String>,
    reason: Option<String>,
    ended: bool,
    begun: bool,
    usage: Usage,
    extra: Extra,
}

impl Assembly for Items {
    const WIRE: &'static str = WIRE;

    fn event(&mut self, event: &Event, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        if event.data.trim().is_empty() || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let data: Value = serde_json::from_str(&event.data).map_err(|error| Bad::Malformed(format!("{error}: {}", event.data)))?;
        let piece = || data.get("delta").and_then(Value::as_str).unwrap_or_default();
        match data.get("type").and_then(Value::as_str).unwrap_or(&event.name) {
            "response.output_item.added" | "response.output_item.done" => {
                let Some(Value::Object(item)) = data.get("item") else {
                    return Err(Bad::Malformed(format!("an item begins without one: {data}")));
                };
                self.begun = true;
                self.items.insert(index(&data), item.clone());
                if self.items.len() > MOST_PARTS {
                    return Err(too_many());
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.begun = true;
                show(Progress::Text(piece()));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.begun = true;
                show(Progress::Thinking(piece()));
            }
            "response.function_call_arguments.done" => {
                if let (Some(item), Some(arguments)) = (self.items.get_mut(&index(&data)), data.get("arguments")) {
                    item.insert("arguments".into(), arguments.clone());
                }
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                let Some(Value::Object(response)) = data.get("response") else {
                    return Err(Bad::Malformed(format!("the response ends without one: {data}")));
                };
                self.around(response.clone())?;
                self.ended = true;
            }
            "error" => return Err(failed(data.get("error").filter(|error| error.is_object()).unwrap_or(&data))),
            // What goes before the end of an item, and what is to come.
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad> {
        let Value::Object(response) = body else { return Err(Bad::Malformed(format!("it is no object: {body}"))) };
        if response.get("output").is_none_or(|output| !output.is_array()) && response.get("error").is_none_or(Value::is_null) {
            return Err(Bad::Malformed(format!("there is no output in it: {}", Value::Object(response))));
        }
        self.around(response)?;
        for item in self.items.values() {
            let (text, thinking) = (texts(item, "content"), texts(item, "summary"));
            if !thinking.is_empty() {
                show(Progress::Thinking(&thinking));
            }
            if !text.is_empty() {
                show(Progress::Text(&text));
            }
        }
        self.ended = true;
        Ok(())
    }

    fn begun(&self) -> bool {
        self.begun
    }

    fn ended(&self) -> bool {
        self.ended
    }

    fn closed(&self) -> bool {
        self.ended
    }

    fn reply(self) -> Result<Reply, Bad> {
        let mut message = Assistant { wire: WIRE.into(), ..Assistant::default() };
        let mut refused = false;
        for mut item in self.items.into_values() {
            match item.get("type").and_then(Value::as_str) {
                Some("message") => {
                    refused |= parts(&item, "content").any(|part| part.get("type").is_some_and(|kind| kind == "refusal"));
                    message.text.push_str(&texts(&item, "content"));
                }
                Some("reasoning") => message.thinking.push(item.clone().into()),
                Some("function_call") => {
                    let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                    let (id, name) = (if text("call_id").is_empty() { text("id") } else { text("call_id") }, text("name"));
                    if name.is_empty() {
                        return Err(Bad::Malformed("a tool call has no name".into()));
                    }
                    let arguments = match item.get("arguments") {
                        Some(Value::String(text)) => text.clone(),
                        None | Some(Value::Null) => String::new(),
                        Some(object) => object.to_string(),
                    };
                    let taken = id.is_empty() || message.calls.iter().any(|call| call.id == id);
                    let call = ToolCall { id: if taken { fresh_id() } else { id }, name, arguments };
                    item.insert("call_id".into(), call.id.as_str().into());
                    message.calls.push(call);
                }
                _ => {}
            }
            message.blocks.push(item.into());
        }
        let stop = match (self.status.as_deref(), self.reason.as_deref()) {
            (Some("incomplete"), Some("content_filter")) => Stop::Refusal,
            (Some("incomplete"), _) => Stop::Length,
            _ if !message.calls.is_empty() => Stop::ToolCalls,
            _ if refused => Stop::Refusal,
            (Some("completed") | None, _) => Stop::Done,
            _ => Stop::Other,
        };
        Ok(Reply { message, stop, usage: self.usage, extra: self.extra })
    }
}

impl Items {
    /// The response itself. Its output stands for what came before, where it has one.
    fn around(&mut self, response: Map<String, Value>) -> Result<(), Bad> {
        if let Some(error) = response.get("error").filter(|error| !error.is_null()) {
            return Err(failed(error));
        }
        for (key, value) in response {
            match (key.as_str(), value) {
                ("output", Value::Array(output)) => {
                    if output.is_empty() {
                        continue;
                    }
                    self.begun = true;
                    self.items.clear();
                    for (at, item) in output.into_iter().enumerate() {
                        let Value::Object(item) = item else { return Err(Bad::Malformed(format!("an item is no object: {item}"))) };
                        self.items.insert(at as u64, item);
                    }
                }
                ("status", Value::String(status)) => self.status = Some(status),
                ("incomplete_details", details) => {
                    self.reason = details.get("reason").and_then(Value::as_str).map(str::to_owned);
                }
                ("usage", usage) => {
                    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
                    let cache_read = number("/input_tokens_details/cached_tokens");
                    let input = number("/input_tokens").saturating_sub(cache_read);
                    self.usage = Usage { input, output: number("/output_tokens"), cache_read, cache_write: 0 };
                }
                (_, Value::Null) => {}
                // The server repeats what it was asked.
                ("tools" | "instructions" | "tool_choice" | "text" | "metadata" | "include", _) => {}
                (_, value) => {
                    self.extra.insert(key, value);
                }
            }
        }
        Ok(())
    }
}

fn index(data: &Value) -> u64 {
    data.get("output_index").and_then(Value::as_u64).unwrap_or_default()
}

fn parts<'a>(item: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a Value> {
    item.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// The texts of the parts of a field, refusals included.
fn texts(item: &Map<String, Value>, field: &str) -> String {
    match item.get(field) {
        Some(Value::String(text)) => text.clone(),
        _ => parts(item, field).filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str()).collect(),
    }
}

/// An error within a reply, with the status that the same error has as an answer.
fn failed(error: &Value) -> Bad {
    let status = match error.get("code").or_else(|| error.get("type")).and_then(Value::as_str).unwrap_or_default() {
        "rate_limit_exceeded" | "insufficient_quota" => 429,
        "invalid_api_key" | "authentication_error" => 401,
        "invalid_prompt" | "invalid_request_error" | "context_length_exceeded" => 400,
        _ => 500,
    };
    Bad::Failed { status, detail: message(error).unwrap_or_else(|| error.to_string()) }
}
