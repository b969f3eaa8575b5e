//! Reading a reply: which calls it holds, by whatever dialect, and which of them may run.
//!
//! A call whose arguments do not parse, or that was cut off, is never repaired and never run; it is answered with what is wrong
//! and where.

use super::act::Planned;
use crate::dialect::Declared;
use crate::dialect::native::{self, Native};
use crate::dialect::text::{self, Piece};
use crate::provider::{Assistant, Reply, Stop};
use crate::session::Call;
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::ops::Range;

/// Characters of malformed arguments that go back to the model in its own message.
const ECHO: usize = 200;

/// What a reply asks for.
#[derive(Debug, PartialEq)]
pub(super) struct Asked {
    /// The message as it goes back to the model: ids unique, arguments that parse.
    pub(super) message: Assistant,
    /// The calls, in order.
    pub(super) planned: Vec<Planned>,
    /// Whether they are native ones.
    pub(super) native: bool,
}

/// Reads a reply. `native`: whether the model was given tools natively. `turn` makes the ids of text calls unique; `used` are
/// the ids so far. `shown` says whether a text stands in what the model was shown: a native model that quotes a call which it read
/// somewhere makes none. (By text, what it is shown holds no call.)
pub(super) fn read(reply: Reply, native: bool, tools: &[Declared], turn: u32, used: &HashSet<&str>, shown: impl Fn(&str) -> bool) -> Asked {
    let Reply { mut message, stop, .. } = reply;
    if native && !message.calls.is_empty() {
        let planned = natively(&mut message, stop, turn, used);
        return Asked { message, planned, native: true };
    }
    let mut pieces = text::parse_declared(&message.text, tools);
    if native {
        let quoted = |span: &Range<usize>| message.text.get(span.clone()).is_some_and(&shown);
        pieces.retain(|piece| !matches!(piece, Piece::Call { span, .. } if quoted(span)));
    }
    let whole = pieces.iter().any(|piece| matches!(piece, Piece::Call { .. }));
    let mut planned: Vec<Planned> = Vec::new();
    // A model that has native calls was not taught the protocol: whole calls in its text are taken up, all else is prose.
    if !native || whole {
        for piece in pieces {
            let id = format!("text-{turn}-{}", planned.len() + 1);
            match piece {
                Piece::Prose(_) => {}
                Piece::Call { call, .. } => planned.push(Planned { call: Call { id, ..call }, refused: None }),
                Piece::Broken { fault, .. } if !native => {
                    planned.push(Planned { call: Call { id, tool: "unreadable".into(), args: Value::Null }, refused: Some(fault) });
                }
                Piece::Broken { .. } => {}
            }
        }
    }
    // Calls that no one can answer natively must not go back as such.
    message.calls.clear();
    Asked { message, planned, native: false }
}

fn natively(message: &mut Assistant, stop: Stop, turn: u32, used: &HashSet<&str>) -> Vec<Planned> {
    let mut seen: HashSet<String> = HashSet::new();
    for (index, call) in message.calls.iter_mut().enumerate() {
        if call.id.is_empty() || used.contains(call.id.as_str()) || seen.contains(&call.id) {
            let mut fresh = format!("call-{turn}-{}", index + 1);
            while used.contains(fresh.as_str()) || seen.contains(&fresh) {
                fresh.push_str("-again");
            }
            rename(&mut message.blocks, &call.id, &fresh);
            call.id = fresh;
        }
        seen.insert(call.id.clone());
    }
    let read = native::read(message, stop);
    for (call, read) in message.calls.iter_mut().zip(&read) {
        if matches!(read, Native::Refused(..)) && serde_json::from_str::<Map<String, Value>>(&call.arguments).is_err() {
            // Servers parse what they are sent back, and some fail on it for good.
            let echo: String = call.arguments.chars().take(ECHO).collect();
            call.arguments = serde_json::json!({ "not_json": echo }).to_string();
        }
    }
    read.into_iter()
        .map(|read| match read {
            Native::Call(call) => Planned { call, refused: None },
            Native::Refused(call, fault) => Planned { call, refused: Some(fault) },
        })
        .collect()
}

/// Gives the first block with this id another one.
fn rename(blocks: &mut [Value], old: &str, new: &str) {
    let of = |block: &&mut Value| block.get("id").and_then(Value::as_str) == Some(old);
    // The last one: those before it were given theirs already, or are the rightful owners.
    if let Some(id) = blocks.iter_mut().rev().find(of).and_then(|block| block.get_mut("id")) {
        *id = new.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Fault, FaultCode};
    use crate::provider::{Extra, ToolCall, Usage};
    use serde_json::json;

    fn reply(text: &str, calls: &[(&str, &str)], stop: Stop) -> Reply {
        let calls = calls.iter().map(|(id, args)| ToolCall { id: (*id).into(), name: "read".into(), arguments: (*args).into() });
        let message = Assistant { text: text.into(), calls: calls.collect(), ..Assistant::default() };
        Reply { message, stop, usage: Usage::default(), extra: Extra::new() }
    }

    fn tools() -> Vec<Declared> {
        vec![Declared {
            name: "read".into(),
            aliases: Vec::new(),
            synonyms: Vec::new(),
            summary: String::new(),
            example: Value::Null,
            schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
            takes_rest: false,
            access: None,
        }]
    }

    fn codes(asked: &Asked) -> Vec<Option<FaultCode>> {
        asked.planned.iter().map(|planned| planned.refused.as_ref().map(Fault::code)).collect()
    }

    #[test]
    fn malformed_arguments_are_refused_with_their_place() {
        let text = format!("{{\"path\": \"{}\", oops}}", "é".repeat(100));
        let asked =
            read(reply("", &[("1", &text), ("2", "{}"), ("3", "")], Stop::ToolCalls), true, &tools(), 1, &HashSet::new(), |_| false);
        assert_eq!(codes(&asked), [Some(FaultCode::MalformedCall), None, None]);
        assert!(asked.message.calls.iter().take(2).all(|call| serde_json::from_str::<Value>(&call.arguments).is_ok()));
    }

    #[test]
    fn a_call_that_was_cut_off_is_not_run_even_when_it_parses() {
        let asked = read(reply("", &[("1", "{}"), ("2", r#"{"path":"a"}"#)], Stop::Length), true, &tools(), 1, &HashSet::new(), |_| false);
        assert_eq!(codes(&asked), [None, Some(FaultCode::MalformedCall)]);
        let asked =
            read(reply("[TOOL] read(\"a\") [/TOOL] [TOOL] read(\"b", &[], Stop::Length), false, &tools(), 1, &HashSet::new(), |_| false);
        assert_eq!(codes(&asked)[0], None);
        assert!(codes(&asked)[1].is_some());
    }

    #[test]
    fn ids_become_unique_in_the_message_and_in_its_blocks() {
        let used = HashSet::from(["a"]);
        let mut with_blocks = reply("", &[("a", "{}"), ("b", "{}"), ("b", "{}"), ("", "{}")], Stop::ToolCalls);
        with_blocks.message.blocks = vec![json!({"id": "a"}), json!({"id": "b"}), json!({"id": "b"}), json!({"text": "x"})];
        let asked = read(with_blocks, true, &tools(), 7, &used, |_| false);
        let ids: Vec<&str> = asked.planned.iter().map(|planned| planned.call.id.as_str()).collect();
        assert_eq!(ids, ["call-7-1", "b", "call-7-3", "call-7-4"]);
        assert_eq!(ids, asked.message.calls.iter().map(|call| call.id.as_str()).collect::<Vec<_>>());
        assert_eq!(asked.message.blocks[..3], [json!({"id": "call-7-1"}), json!({"id": "b"}), json!({"id": "call-7-3"})]);
    }

    #[test]
    fn calls_written_as_text_are_taken_up_and_prose_is_left_alone() {
        for (text, calls) in [
            ("<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}</tool_call>", 1),
            ("[TOOL] read(\"a\") [/TOOL] and [TOOL] read(\"b\") [/TOOL]", 2),
            ("A call looks like [TOOL] or <tool_call> and ends later.", 0),
            ("<tool_call>{\"name\": \"unheard_of\", \"arguments\": {}}</tool_call>", 0),
            ("All done.", 0),
        ] {
            let asked = read(reply(text, &[], Stop::Done), true, &tools(), 1, &HashSet::new(), |_| false);
            assert_eq!((asked.planned.len(), asked.native), (calls, false), "{text}");
            assert_eq!(asked.message.text, text);
        }
    }

    #[test]
    fn a_native_model_that_quotes_what_it_read_makes_no_call() {
        let call = "[TOOL] read(\"a\") [/TOOL]";
        let said = format!("The file says: {call}");
        for (native, shown, calls) in [(true, true, 0), (true, false, 1), (false, true, 1)] {
            let asked = read(reply(&said, &[], Stop::Done), native, &tools(), 1, &HashSet::new(), |text| shown && text == call);
            assert_eq!(asked.planned.len(), calls, "native {native}, shown {shown}");
        }
    }
}
