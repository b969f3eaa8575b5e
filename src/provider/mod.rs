//! Talking to a model: messages and tool schemas go in, one [`Reply`] comes out.
//!
//! One file a wire: [`scripted`] (replies from a file), and over [`http`] and [`sse`] [`openai`] (chat completions),
//! [`anthropic`] (Messages), [`responses`] (OpenAI Responses) and [`ollama`] (its own API). A further wire is one more file and one
//! more line in [`WIRES`]. [`catalog`] asks a server which models it has.
//!
//! A provider never knows what a tool does, opens no path of a workspace, sees no envelope and runs nothing. It never
//! retries once a part of the reply was shown, and never puts a key into an error or a log.

pub mod anthropic;
pub mod catalog;
pub mod error;
#[cfg(test)]
mod hostile_tests;
pub mod http;
pub mod ollama;
pub mod openai;
pub mod responses;
pub mod scripted;
pub mod sse;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wire_tests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

pub use error::ProviderError;
pub use http::{Secret, Settings};

/// A wire that is spoken over HTTP.
pub struct Wire {
    /// The name before the colon of `--model openai:gpt-5`.
    pub name: &'static str,
    /// Where its maker serves it.
    pub base_url: &'static str,
    /// The variable in which people keep its key. It is read by the command line, never here.
    pub key_variable: &'static str,
    /// Whether that server answers only with a key.
    pub needs_key: bool,
    /// Where a server lists its models: what stands in place of an empty path of the base, the path, and the field of the list.
    pub list: (&'static str, &'static str, &'static str),
    /// Makes a provider.
    pub open: fn(Settings) -> Result<Box<dyn Provider>, ProviderError>,
}

/// The wires over HTTP.
pub static WIRES: &[Wire] = &[
    Wire {
        name: "openai",
        base_url: "https://api.openai.com/v1",
        key_variable: "OPENAI_API_KEY",
        needs_key: true,
        list: ("/v1", "/models", "data"),
        open: |settings| Ok(Box::new(openai::OpenAi::new(settings)?)),
    },
    Wire {
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        key_variable: "ANTHROPIC_API_KEY",
        needs_key: true,
        list: ("/v1", "/models", "data"),
        open: |settings| Ok(Box::new(anthropic::Anthropic::new(settings)?)),
    },
    Wire {
        name: "responses",
        base_url: "https://api.openai.com/v1",
        key_variable: "OPENAI_API_KEY",
        needs_key: true,
        list: ("/v1", "/models", "data"),
        open: |settings| Ok(Box::new(responses::Responses::new(settings)?)),
    },
    Wire {
        name: "ollama",
        base_url: "http://127.0.0.1:11434",
        key_variable: "OLLAMA_API_KEY",
        needs_key: false,
        list: ("/api", "/tags", "models"),
        open: |settings| Ok(Box::new(ollama::Ollama::new(settings)?)),
    },
];

/// A JSON object whose fields this program does not know, or does not need to know.
pub type Extra = Map<String, Value>;

/// A reply that is being waited for.
pub type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, ProviderError>> + Send + 'a>>;

/// Something that answers a conversation.
pub trait Provider: Send + Sync {
    /// Its name and the model's, for a person: `openai:gpt-5`, `script:fix.jsonl`.
    fn name(&self) -> String;

    /// Asks for the next message. `show` is told what arrives while it arrives; dropping the future gives up.
    ///
    /// # Errors
    /// One of [`ProviderError`]; after it, the conversation is as it was.
    fn reply<'a>(&'a self, request: Request<'a>, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a>;
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The conversation, oldest first.
    pub messages: &'a [Message],
    /// The tools that may be called natively; empty for a model that calls by text.
    pub tools: &'a [ToolSchema],
    /// Whether tools may be called at all; the last turn of a budget forbids it.
    pub may_call: bool,
    /// The most tokens of the reply; `None`: what the provider takes for right.
    pub max_tokens: Option<u64>,
    /// Further fields of the request, as the vendor names them.
    pub extra: &'a Extra,
}

/// What a person may see while a reply arrives.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress<'a> {
    /// A part of the text.
    Text(&'a str),
    /// A part of the thinking.
    Thinking(&'a str),
    /// The request is tried again after so many milliseconds.
    Retry {
        /// Why. Nothing of the reply was shown before it.
        error: &'a ProviderError,
        /// How long is waited, in milliseconds.
        wait_ms: u64,
    },
}

/// A tool as a model is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSchema {
    /// The name.
    pub name: String,
    /// The prompt.
    pub description: String,
    /// The JSON Schema of the arguments, already made fit for models.
    pub parameters: Value,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub enum Message {
    /// What the program tells the model.
    System {
        /// The text.
        text: String,
        /// Fields of the wire.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What the person, or the program in their place, says.
    User {
        /// The text.
        text: String,
        /// Fields of the wire.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What the model said.
    Assistant(Assistant),
    /// What came of one native call.
    Tool {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The result as text.
        text: String,
        /// Whether it is a failure.
        failed: bool,
        /// Fields of the wire.
        #[serde(flatten)]
        extra: Extra,
    },
}

impl Message {
    /// A system message.
    pub fn system(text: impl Into<String>) -> Self {
        Self::System { text: text.into(), extra: Extra::new() }
    }

    /// A user message.
    pub fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), extra: Extra::new() }
    }

    /// The text of the message; of an assistant, without thinking and calls.
    pub fn text(&self) -> &str {
        match self {
            Self::System { text, .. } | Self::User { text, .. } | Self::Tool { text, .. } => text,
            Self::Assistant(assistant) => &assistant.text,
        }
    }
}

/// What a model said, in a form that can go back to it unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Assistant {
    /// The text.
    #[serde(default)]
    pub text: String,
    /// Blocks of thinking as the wire gave them, signatures included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thinking: Vec<Value>,
    /// The native calls, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<ToolCall>,
    /// All blocks of the message in the wire's own order, where the wire has such; they go back verbatim in place of the above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<Value>,
    /// The wire that said it. Thinking, blocks and unknown fields go back to that wire only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub wire: String,
    /// Fields of the message that are not known.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A native call as the model wrote it. Nothing of it has been checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id; made up where the server gave none.
    pub id: String,
    /// The name.
    pub name: String,
    /// The arguments as text: JSON, if the model kept to it.
    pub arguments: String,
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model has said what it had to say.
    Done,
    /// It waits for the results of its calls.
    ToolCalls,
    /// It met the limit of tokens: the text, or the last call, is cut off.
    Length,
    /// It, or a filter of the provider, refused.
    Refusal,
    /// Any other reason.
    Other,
}

/// The tokens of one reply. Zero where the server did not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Usage {
    /// Tokens of the request that were read anew.
    pub input: u64,
    /// Tokens of the reply, thinking included.
    pub output: u64,
    /// Tokens of the request that came from a cache.
    pub cache_read: u64,
    /// Tokens of the request that were put into a cache.
    pub cache_write: u64,
}

/// What a provider answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// What the model said.
    pub message: Assistant,
    /// Why it ended.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
    /// Fields of the reply around the message that are not known (id, model, fingerprint …).
    pub extra: Extra,
}

/// An id for a call that has none, or one that is taken: distinct from all others of this and of earlier runs.
fn fresh_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    format!("call_{nanos:x}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Arguments as a server takes them back: an object. What was malformed is kept as text under one key, so that the model can see
/// what it wrote and the server's template does not break.
fn sendable(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(arguments)) => arguments.into(),
        _ if arguments.trim().is_empty() => Value::Object(Map::new()),
        _ => Value::Object(Map::from_iter([("malformed".to_owned(), Value::from(error::short(arguments, 2000)))])),
    }
}

/// Adds a vendor's fields to a request; `null` takes a field out.
fn merge_extra(body: &mut Map<String, Value>, extra: &Extra) {
    for (key, value) in extra {
        if value.is_null() {
            body.shift_remove(key);
        } else {
            body.insert(key.clone(), value.clone());
        }
    }
}
