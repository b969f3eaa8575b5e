//! Calls in the notations of others: `<tool_call>{…}</tool_call>`, `<invoke name="…">…</invoke>`, and JSON in a fence.
//!
//! They are recovered only when they are whole and name a tool of the session. JSON in a fence has to be a call and nothing
//! else, to the last key: files hold objects with a `name` too.

use super::super::Declared;
use super::scan::{Scanner, Slip};
use serde_json::{Map, Value};

/// What stands at a tag.
pub(super) enum Found {
    /// A whole call of a known tool.
    Call(String, Value),
    /// A whole call of a tool that is not there.
    Unknown(String),
    /// The text ends where a call has just begun.
    CutOff,
    /// A call that is broken.
    Slipped(Slip),
    /// Not a call; the scanner stands behind it.
    Prose,
}

/// What may stand before `invoke` and `parameter` in a tag.
pub(super) const PREFIXES: &[&str] = &["", concat!("ant", "ml:")];

/// The other tags of a call, without a prefix and with one: its end, a parameter, the end of one.
const TAGS: [[&str; 3]; 2] = [
    ["</invoke>", "<parameter", "</parameter>"],
    [concat!("</ant", "ml:invoke>"), concat!("<ant", "ml:parameter"), concat!("</ant", "ml:parameter>")],
];
/// The tag of a call.
const INVOKE: &str = "invoke";

/// The names under which a call's arguments are found.
const ARGUMENTS: &[&str] = &["arguments", "args", "parameters", "input"];

/// Whether a tag of a call may begin here. Prose is full of others, and this is asked of each.
pub(super) fn may_begin(rest: &[u8]) -> bool {
    matches!(rest.get(1..4), Some(b"too" | b"inv"))
        || (rest.get(1) == Some(&PREFIXES[1].as_bytes()[0]) && rest[1..].starts_with(PREFIXES[1].as_bytes()))
}

/// Reads what stands at `<`. `None`: no tag of a call; the scanner has not moved.
pub(super) fn tagged(scan: &mut Scanner<'_>, tools: &[Declared]) -> Option<Found> {
    if !may_begin(scan.rest().as_bytes()) {
        return None;
    }
    if scan.eat("<tool_call>") {
        return Some(tool_call(scan, tools));
    }
    let inside = scan.rest().get(1..).unwrap_or_default();
    let prefix = PREFIXES.iter().find(|prefix| inside.strip_prefix(**prefix).is_some_and(|inside| inside.starts_with(INVOKE)))?;
    let length = 1 + prefix.len() + INVOKE.len();
    scan.pos += length;
    scan.steps += length;
    Some(invoke(scan, tools, prefix))
}

fn tool_call(scan: &mut Scanner<'_>, tools: &[Declared]) -> Found {
    scan.begin_call();
    scan.blanks();
    if scan.peek().is_none() {
        return Found::CutOff;
    }
    if scan.peek() != Some('{') {
        return Found::Prose;
    }
    // `<tool_call>{…}` speaks of calls; a call goes on with a key.
    let mut ahead = scan.clone();
    ahead.bump();
    ahead.blanks();
    match ahead.peek() {
        None => return Found::CutOff,
        Some('"') => {}
        Some(_) => return Found::Prose,
    }
    let object = match scan.object(0) {
        Ok(object) => object,
        Err(slip) => return Found::Slipped(slip),
    };
    scan.blanks();
    if !scan.eat("</tool_call>") {
        return match scan.expected::<()>("</tool_call>") {
            Err(slip) => Found::Slipped(slip),
            Ok(()) => Found::Prose,
        };
    }
    match called(object) {
        Some((name, args)) => known(name, args, tools),
        None => Found::Prose,
    }
}

fn known(name: String, args: Value, tools: &[Declared]) -> Found {
    if tools.iter().any(|tool| tool.is_called(&name)) { Found::Call(name, args) } else { Found::Unknown(name) }
}

/// The name and the arguments of a call as JSON; `None`: this is no call.
fn called(mut object: Map<String, Value>) -> Option<(String, Value)> {
    if object.len() <= 3
        && object.keys().all(|key| matches!(key.as_str(), "function" | "type" | "id"))
        && let Some(Value::Object(function)) = object.get_mut("function")
    {
        return called(std::mem::take(function));
    }
    if !object.keys().all(|key| matches!(key.as_str(), "name" | "tool" | "id" | "type") || ARGUMENTS.contains(&key.as_str())) {
        return None;
    }
    let name = match (object.remove("name"), object.remove("tool")) {
        (Some(Value::String(name)), None) | (None, Some(Value::String(name))) => name,
        _ => return None,
    };
    let mut given = ARGUMENTS.iter().filter_map(|key| object.remove(*key));
    let args = match (given.next()?, given.next()) {
        (args @ Value::Object(_), None) => args,
        (Value::String(text), None) => serde_json::from_str(&text).ok().filter(Value::is_object)?,
        _ => return None,
    };
    Some((name, args))
}

fn invoke(scan: &mut Scanner<'_>, tools: &[Declared], prefix: &str) -> Found {
    let Some(name) = named(scan) else { return if scan.peek().is_none() { Found::CutOff } else { Found::Prose } };
    let [close, open_parameter, close_parameter] = if prefix.is_empty() { TAGS[0] } else { TAGS[1] };
    let mut args = Map::new();
    loop {
        scan.blanks();
        if scan.eat(close) {
            return known(name, Value::Object(args), tools);
        }
        let at = scan.pos;
        let slip = |at, what: &str| Found::Slipped(Slip { at, what: what.into() });
        if scan.eat(open_parameter) {
            let Some(key) = named(scan) else { return slip(scan.pos, "a parameter has no name") };
            let Some(text) = scan.until(close_parameter) else { return slip(at, "the parameter that begins here is not closed") };
            if args.insert(key, text.into()).is_some() {
                return slip(at, "a parameter is given twice");
            }
            continue;
        }
        let known = tools.iter().any(|tool| tool.is_called(&name));
        return match (args.is_empty(), scan.peek()) {
            (true, None) if known => Found::CutOff,
            (true, _) => Found::Prose,
            (false, _) => slip(at, "text stands between the parameters of a call"),
        };
    }
}

/// The rest of a tag that has a name: ` name="…">`.
fn named(scan: &mut Scanner<'_>) -> Option<String> {
    scan.blanks();
    if !scan.eat("name") {
        return None;
    }
    scan.blanks();
    if !scan.eat("=") {
        return None;
    }
    scan.blanks();
    let quote = scan.peek().filter(|c| matches!(c, '"' | '\''))?;
    scan.bump();
    let name = scan.take(|c| c != quote && c != '<' && c != '>' && c != '\n');
    if scan.peek() != Some(quote) {
        return None;
    }
    scan.bump();
    scan.blanks();
    scan.eat(">").then(|| name.into())
}

/// Whether a fence with this info string may hold a call.
pub(super) fn is_call_fence(info: &str) -> bool {
    ["", "json", "tool", "tool_call", "tool_code", "tool_use", "function_call"].iter().any(|known| info.eq_ignore_ascii_case(known))
}

/// The call of a known tool that is the whole content of a fence.
pub(super) fn fenced(content: &str, info: &str, tools: &[Declared]) -> Option<(String, Value)> {
    if !is_call_fence(info) {
        return None;
    }
    let content = content.trim();
    let mut scan = Scanner::new(content, 0);
    if scan.peek() != Some('{') {
        return None;
    }
    let object = scan.object(0).ok()?;
    if scan.pos != content.len() {
        return None;
    }
    let (name, args) = called(object)?;
    tools.iter().any(|tool| tool.is_called(&name)).then_some((name, args))
}
