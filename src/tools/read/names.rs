//! The ways in which other agents say which lines they want.

use crate::envelope::{Data, Fault, FaultCode};
use serde_json::Value;

/// Brings `start_line` and `end_line`, `view_range`, `head`, `tail` and `line` into `offset` and `limit`.
///
/// # Errors
/// `invalid_arguments` when two of them contradict each other.
pub(super) fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
    let mut warnings = Vec::new();
    let mut said: Vec<(&str, Option<i64>, Option<i64>)> = Vec::new();
    if let Some(range) =
        args.shift_remove("view_range").or_else(|| args.shift_remove("viewRange")).or_else(|| args.shift_remove("line_range"))
    {
        let (from, to) = range_of(&range).ok_or_else(|| invalid("view_range is a list of the first and the last line: [10, 20]"))?;
        said.push(("view_range", Some(from), limit(from, to)?));
    }
    let from = take(args, &["start_line", "startLine", "from_line", "line_start"])?;
    let to = take(args, &["end_line", "endLine", "to_line", "line_end"])?;
    match (from, to) {
        (None, None) => {}
        (from, to) => {
            let from = from.unwrap_or(1);
            said.push(("start_line/end_line", Some(from), to.map_or(Ok(None), |to| limit(from, to))?));
        }
    }
    if let Some(lines) = take(args, &["head"])? {
        said.push(("head", None, Some(lines)));
    }
    if let Some(lines) = take(args, &["tail"])? {
        said.push(("tail", Some(-lines), Some(lines)));
    }
    if let Some(line) = take(args, &["line", "line_number", "lineNumber"])? {
        said.push(("line", Some(line), args.get("limit").is_none().then_some(1)));
    }
    let Some((name, offset, limit)) = said.pop() else { return Ok(warnings) };
    if let Some((other, ..)) = said.first() {
        return Err(invalid(&format!("{name} and {other} both say which lines; give one of them")));
    }
    for (ours, value) in [("offset", offset), ("limit", limit)] {
        let Some(value) = value else { continue };
        if args.get(ours).is_some_and(|given| number(given) != Some(value)) {
            return Err(invalid(&format!("{name} and {ours} both say which lines; give one of them")));
        }
        args.insert(ours.into(), value.into());
    }
    let show = |value: Option<i64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    warnings.push(format!("{name} was read as offset {} and limit {}", show(offset), show(limit)));
    Ok(warnings)
}

fn limit(from: i64, to: i64) -> Result<Option<i64>, Fault> {
    // An end of -1 is the end of the file.
    if to == -1 {
        return Ok(None);
    }
    let limit = to.checked_sub(from).and_then(|lines| lines.checked_add(1)).filter(|lines| *lines > 0);
    limit.map(Some).ok_or_else(|| invalid(&format!("the last line ({to}) is before the first ({from})")))
}

fn range_of(value: &Value) -> Option<(i64, i64)> {
    let decoded;
    let list = match value {
        Value::String(text) if text.trim_start().starts_with('[') => {
            decoded = serde_json::from_str::<Value>(text).ok()?;
            decoded.as_array()?
        }
        Value::String(text) => {
            let (from, to) = text.split_once(['-', ',', ':'])?;
            return Some((from.trim().parse().ok()?, to.trim().parse().ok()?));
        }
        value => value.as_array()?,
    };
    match list.as_slice() {
        [from] => Some((number(from)?, -1)),
        [from, to] => Some((number(from)?, number(to)?)),
        _ => None,
    }
}

/// Takes the first of these arguments that is given.
fn take(args: &mut Data, names: &[&str]) -> Result<Option<i64>, Fault> {
    for name in names {
        if let Some(value) = args.shift_remove(*name) {
            return number(&value).map(Some).ok_or_else(|| invalid(&format!("{name} is a number of lines")));
        }
    }
    Ok(None)
}

fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        value => value.as_i64(),
    }
}

fn invalid(message: &str) -> Fault {
    Fault::new(FaultCode::InvalidArguments, message).hint("for example read {\"path\":\"src/main.rs\",\"offset\":10,\"limit\":20}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_ways_lead_to_offset_and_limit() {
        for (given, read) in [
            (json!({"start_line": 3, "end_line": 5}), json!({"offset": 3, "limit": 3})),
            (json!({"start_line": "3"}), json!({"offset": 3})),
            (json!({"end_line": 5}), json!({"offset": 1, "limit": 5})),
            (json!({"view_range": [3, 5]}), json!({"offset": 3, "limit": 3})),
            (json!({"view_range": "[3, -1]"}), json!({"offset": 3})),
            (json!({"line_range": "3-5"}), json!({"offset": 3, "limit": 3})),
            (json!({"head": 5}), json!({"limit": 5})),
            (json!({"tail": 5}), json!({"offset": -5, "limit": 5})),
            (json!({"line": 7}), json!({"offset": 7, "limit": 1})),
            (json!({"line": 7, "limit": 3}), json!({"limit": 3, "offset": 7})),
            (json!({"offset": 7}), json!({"offset": 7})),
        ] {
            let mut args = given.as_object().unwrap().clone();
            prepare(&mut args).unwrap();
            assert_eq!(Value::Object(args), read, "{given}");
        }
        for wrong in [json!({"head": 1, "tail": 1}), json!({"view_range": [5, 3]}), json!({"line": 3, "offset": 4}), json!({"head": "x"})] {
            assert!(prepare(&mut wrong.as_object().unwrap().clone()).is_err(), "{wrong}");
        }
    }
}
