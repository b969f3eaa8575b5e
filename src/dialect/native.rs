//! Native tool calls: from what a provider hands over to [`Call`]s, and answers back to messages.
//!
//! Arguments are read strictly. What is no JSON, and what may have been cut off, is answered and never run; nothing is completed.

use crate::envelope::{Fault, FaultCode};
use crate::provider::{Assistant, Extra, Message, Stop, ToolCall};
use crate::session::Call;
use crate::tools::Answer;
use serde_json::{Map, Value};

/// How many characters of malformed arguments are echoed on each side of the fault.
const ECHO: usize = 60;

/// A call of a reply: to be run, or to be answered with a fault at once. A refused call keeps id and name, with no arguments.
#[derive(Clone, Debug, PartialEq)]
pub enum Native {
    /// To be run.
    Call(Call),
    /// Not to be run.
    Refused(Call, Fault),
}

/// Reads the native calls of a reply, in their order.
///
/// Where the reply met its limit of tokens, its last call is refused even if it looks whole: what was to follow is not known.
pub fn read(message: &Assistant, stop: Stop) -> Vec<Native> {
    let last = message.calls.len().saturating_sub(1);
    let each = message.calls.iter().enumerate();
    each.map(|(index, call)| {
        let made = |args| Call { id: call.id.clone(), tool: call.name.clone(), args };
        if stop == Stop::Length && index == last {
            let fault =
                Fault::new(FaultCode::MalformedCall, "the reply met the limit of tokens, so this call may be cut off and was not run")
                    .hint("make the call again with less in it: a large file can be written in parts");
            return Native::Refused(made(Value::Object(Map::new())), fault);
        }
        match arguments(&call.arguments) {
            Ok(args) => Native::Call(made(args)),
            Err(fault) => Native::Refused(made(Value::Object(Map::new())), fault),
        }
    })
    .collect()
}

/// Arguments as JSON. None at all, which some models send for a tool without required arguments, are an empty object.
///
/// # Errors
/// `malformed_call` with line, column and a bounded echo of the place.
pub fn arguments(text: &str) -> Result<Value, Fault> {
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match serde_json::from_str(text) {
        Ok(Value::Null) => Ok(Value::Object(Map::new())),
        // A string may hold the object; the reader of arguments decodes it, and says so.
        Ok(args @ (Value::Object(_) | Value::String(_))) => Ok(args),
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "a list",
                Value::Number(_) => "a number",
                _ => "a truth value",
            };
            Err(Fault::new(FaultCode::MalformedCall, format!("the arguments are {kind} and should be one JSON object; nothing was run")))
        }
        Err(error) => {
            let (line, column) = (error.line().max(1), error.column().max(1));
            let what = error.to_string();
            let what = what.split(" at line ").next().unwrap_or(&what);
            Err(Fault::new(
                FaultCode::MalformedCall,
                format!("the arguments are no JSON: line {line}, column {column}: {what}; nothing was run"),
            )
            .hint("make the call again with arguments that are one JSON object")
            .with("line", line)
            .with("column", column)
            .with("near", near(text, line, column)))
        }
    }
}

/// What stands around a place; `column` counts bytes.
fn near(text: &str, line: usize, column: usize) -> String {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let mut at = (start + column - 1).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let (before, behind) = text.split_at(at);
    let before: Vec<char> = before.chars().rev().take(ECHO).collect();
    before.into_iter().rev().chain(['⟨', '⟩']).chain(behind.chars().take(ECHO)).collect()
}

/// A call as a model would have made it: for calls that are planted into a conversation.
pub fn write(call: &Call) -> ToolCall {
    ToolCall { id: call.id.clone(), name: call.tool.clone(), arguments: call.args.to_string() }
}

/// The message that carries one answer: its whole text, a failure as much as a success.
pub fn result(call: &Call, answer: &Answer) -> Message {
    Message::Tool {
        id: call.id.clone(),
        name: call.tool.clone(),
        text: answer.text.clone(),
        failed: !answer.envelope.success(),
        extra: Extra::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "c1".into(), name: "read".into(), arguments: arguments.into() }
    }

    fn read_one(arguments: &str, stop: Stop) -> Native {
        read(&Assistant { calls: vec![call(arguments)], ..Assistant::default() }, stop).remove(0)
    }

    #[test]
    fn whole_arguments_are_read() {
        for (text, args) in [
            (r#"{"path": "a", "n": 1}"#, json!({"path": "a", "n": 1})),
            ("", json!({})),
            (" \n", json!({})),
            ("null", json!({})),
            ("{}", json!({})),
            (r#""{\"path\": \"a\"}""#, json!("{\"path\": \"a\"}")),
        ] {
            assert_eq!(read_one(text, Stop::ToolCalls), Native::Call(Call { id: "c1".into(), tool: "read".into(), args }), "{text}");
        }
    }

    #[test]
    fn malformed_arguments_are_refused_with_their_place() {
        for (text, line, column) in [
            (r#"{"path": "a"#, 1, 11),
            (r#"{"path": "a",}"#, 1, 14),
            ("{\"path\":\n oops}", 2, 2),
            (r#"{"path": "a"} {"path": "b"}"#, 1, 15),
            ("path=a", 1, 1),
        ] {
            let Native::Refused(call, fault) = read_one(text, Stop::ToolCalls) else { panic!("{text}") };
            assert_eq!((call.id.as_str(), call.args), ("c1", json!({})));
            let envelope = crate::envelope::Envelope::from(Err(fault));
            assert_eq!(envelope.code(), Some(FaultCode::MalformedCall));
            assert_eq!((envelope.data()["line"].as_u64(), envelope.data()["column"].as_u64()), (Some(line), Some(column)), "{text}");
        }
        assert!(matches!(read_one("[1]", Stop::ToolCalls), Native::Refused(..)));
        assert!(matches!(read_one("5", Stop::ToolCalls), Native::Refused(..)));
        let long = format!("{{\"content\": \"{}", "ä".repeat(100_000));
        let Native::Refused(_, fault) = read_one(&long, Stop::ToolCalls) else { panic!() };
        let answer = Answer::failed(fault);
        assert!(answer.text.len() < 600, "{}", answer.text.len());
    }

    #[test]
    fn the_last_call_of_a_cut_off_reply_is_not_run() {
        let message = Assistant { calls: vec![call(r#"{"path":"a"}"#), call(r#"{"path":"b"}"#)], ..Assistant::default() };
        let found = read(&message, Stop::Length);
        assert!(matches!(&found[0], Native::Call(call) if call.args == json!({"path": "a"})));
        assert!(matches!(&found[1], Native::Refused(_, fault) if fault.code() == FaultCode::MalformedCall));
    }

    #[test]
    fn a_call_and_its_result_go_back() {
        let call = Call { id: "c9".into(), tool: "ls".into(), args: json!({"path": "ü\n"}) };
        let written = write(&call);
        assert_eq!(read(&Assistant { calls: vec![written], ..Assistant::default() }, Stop::ToolCalls), [Native::Call(call.clone())]);
        let message = result(&call, &Answer::failed(Fault::new(FaultCode::NotFound, "no file")));
        assert!(matches!(message, Message::Tool { id, text, failed: true, .. } if id == "c9" && text == "FAILED not_found: no file"));
    }
}
