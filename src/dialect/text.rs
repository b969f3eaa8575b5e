//! The text protocol: `[TOOL] name("a", key="b") [/TOOL]`, several a reply, prose between.
//!
//! ```text
//! call  = "[TOOL]" name "(" args ")" "[/TOOL]"          name = letters, digits, _ -
//! args  = nothing | one JSON object | item { "," item }
//! item  = [ key (":" | "=") ] value
//! value = "double" | 'single' | """block""" | '''block''' | JSON list or object | number | true | false | null | bare word
//! ```
//!
//! [`parse`] reads a reply in one pass. Where a call is broken it is not known where it ends, so nothing that follows it is
//! run: text that was meant as an argument can hold markers of its own. A call whose form is whole and whose values do not
//! fit (an unknown name, too many values) ends where it ends, and reading goes on behind it.
//!
//! This module never repairs a call, never runs one that is cut off or stands in a code block, and is never given anything
//! but the text of an assistant: results, files and prompts are not parsed.

mod bind;
mod read;
mod recover;
mod scan;
mod teach;
#[cfg(test)]
mod tests;

use super::{Declared, declare};
use crate::envelope::Fault;
use crate::session::Call;
use crate::tools::AnyTool;
use serde_json::Value;
use std::ops::Range;

pub use teach::{neutral, results, teach, teach_declared};

/// What opens a call.
pub(crate) const OPEN: &str = "[TOOL]";
/// What closes a call.
pub(crate) const CLOSE: &str = "[/TOOL]";
/// The name in the format line of the teaching text; a model that quotes that line makes no call.
const PLACEHOLDER: &str = "name";

/// A piece of a reply. The pieces cover the reply without gap or overlap, in its order.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// Text that is no call, as it was written.
    Prose(String),
    /// A call that is whole. Its id is `text-1`, `text-2` … within the reply; the caller makes it unique in the conversation.
    Call {
        /// The call; `args` is an object.
        call: Call,
        /// Where it stands, in bytes.
        span: Range<usize>,
    },
    /// A call that was not run, and why: malformed, cut off, in a code block, or of an unknown tool.
    Broken {
        /// What the model is told, with `line` and `column` (both from 1, characters) in its data.
        fault: Fault,
        /// What was not run, in bytes.
        span: Range<usize>,
    },
}

/// Reads the text of an assistant's reply.
pub fn parse(text: &str, tools: &[&dyn AnyTool]) -> Vec<Piece> {
    parse_declared(text, &declare(tools))
}

/// [`parse`] for a caller that keeps the declarations, or that has tools of others.
pub fn parse_declared(text: &str, tools: &[Declared]) -> Vec<Piece> {
    read::Reader::new(text, tools).read().0
}

/// Writes a call on one line, such that [`parse`] gives it back: the tool's name and an object of arguments, whatever their bytes.
///
/// Arguments that are not an object have no form of their own in the protocol and are written as one positional value.
pub fn print(call: &Call) -> String {
    let args = match &call.args {
        Value::Object(args) if args.iter().all(|(key, value)| scan::is_key(key) && !value.is_array() && !value.is_object()) => {
            args.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(", ")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    };
    format!("{OPEN} {}({args}) {CLOSE}", call.tool)
}
