//! How a model says a call: [`native`] tool calls of a provider, or the [`mod@text`] protocol `[TOOL] name(args) [/TOOL]`.
//!
//! A dialect turns a reply into [`Call`](crate::session::Call)s and answers into messages. It never runs a call, never
//! repairs one that is broken or cut off, and never reads anything but what the model itself has said.

pub mod native;
pub mod schema;
pub mod text;

use crate::tools::{Access, AnyTool};
use serde_json::Value;

/// What a dialect knows of a tool: enough to teach it, to recognise it and to bind its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// The name that is taught.
    pub name: String,
    /// Other names under which a call is accepted.
    pub aliases: Vec<String>,
    /// Other names of arguments, accepted as keys.
    pub synonyms: Vec<String>,
    /// The prompt; its first line stands alone.
    pub summary: String,
    /// Arguments of a typical call: an object, or null where none is known.
    pub example: Value,
    /// The pure JSON Schema of the arguments; the order of its properties is the order of positional values.
    pub schema: Value,
    /// Whether the last string argument of a positional call takes all the rest.
    pub takes_rest: bool,
    /// What a call may do; `None` for tools of others.
    pub access: Option<Access>,
}

impl Declared {
    /// What the registry declares of a tool.
    pub fn of(tool: &dyn AnyTool) -> Self {
        Self {
            name: tool.name().into(),
            aliases: tool.aliases().iter().map(|&alias| alias.into()).collect(),
            synonyms: tool.synonyms().iter().map(|(theirs, _)| (*theirs).into()).collect(),
            summary: tool.summary().into(),
            example: serde_json::from_str(tool.example()).unwrap_or_default(),
            schema: tool.schema(),
            takes_rest: tool.takes_rest(),
            access: Some(tool.access()),
        }
    }

    /// The names of the arguments, in the order of positional values.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(name, schema)| (name.as_str(), schema))
    }

    /// Whether a call may leave the argument out.
    pub fn optional(&self, property: &str) -> bool {
        let required = self.schema.get("required").and_then(Value::as_array);
        !required.is_some_and(|required| required.iter().any(|name| name == property))
    }

    /// Whether this is the tool that a call names.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// The tools of a session as the dialects know them.
pub fn declare(tools: &[&dyn AnyTool]) -> Vec<Declared> {
    tools.iter().map(|tool| Declared::of(*tool)).collect()
}
