//! What other agents' shells take and no plain synonym can express: a bare `timeout`, a command as a list of words, variables that
//! are numbers.

use super::{Data, Fault, FaultCode, MAX_TIMEOUT_MS};
use serde_json::Value;

/// Rewrites the arguments; each rewriting is named.
pub(super) fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
    let mut warnings = Vec::new();
    timeout(args, &mut warnings)?;
    if let Some(Value::Array(words)) = args.get("command")
        && let Some(words) = words.iter().map(Value::as_str).collect::<Option<Vec<_>>>()
    {
        let script = match words[..] {
            [shell, option, script] if is_shell(shell) && matches!(option, "-c" | "-lc" | "-ec" | "-xc") => script.to_owned(),
            _ => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        };
        warnings.push(format!("command was sent as a list and read as {script:?}"));
        args.insert("command".into(), script.into());
    }
    environment(args, &mut warnings)?;
    Ok(warnings)
}

fn timeout(args: &mut Data, warnings: &mut Vec<String>) -> Result<(), Fault> {
    let invalid = |message: String| Fault::new(FaultCode::InvalidArguments, message).hint("timeout_ms takes milliseconds, at most 600000");
    if let Some(bare) = args.shift_remove("timeout").filter(|bare| !bare.is_null()) {
        let ms = bare_timeout(&bare).ok_or_else(|| invalid(format!("timeout is {bare}, which is no time")))?;
        match args.get("timeout_ms").and_then(Value::as_f64) {
            Some(given) if given != ms => return Err(invalid(format!("timeout ({ms} ms) and timeout_ms ({given}) are not the same"))),
            _ => {}
        }
        warnings.push(format!("timeout {bare} was read as {ms} ms"));
        args.insert("timeout_ms".into(), whole(ms));
    }
    let given = match args.get("timeout_ms") {
        Some(Value::String(text)) => text.trim().parse::<f64>().ok(),
        Some(value) => value.as_f64(),
        None => None,
    };
    #[allow(clippy::cast_precision_loss)] // 600000 is exact
    let most = MAX_TIMEOUT_MS as f64;
    if let Some(ms) = given.filter(|ms| *ms <= 0.0 || *ms > most) {
        warnings.push(format!("timeout_ms {ms} is not between 1 and {MAX_TIMEOUT_MS}; {MAX_TIMEOUT_MS} applies"));
        args.insert("timeout_ms".into(), MAX_TIMEOUT_MS.into());
    }
    Ok(())
}

/// A time whose unit the name does not say: up to 600 it is seconds, above that milliseconds, unless a unit is written.
fn bare_timeout(value: &Value) -> Option<f64> {
    let by_size = |number: f64| if number <= 600.0 { number * 1000.0 } else { number };
    let Value::String(text) = value else { return value.as_f64().map(by_size) };
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == ' ');
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
    match text[digits.len()..].trim() {
        "" => Some(by_size(number)),
        "ms" => Some(number),
        "s" | "sec" | "seconds" => Some(number * 1000.0),
        "m" | "min" | "minutes" => Some(number * 60_000.0),
        _ => None,
    }
}

fn whole(ms: f64) -> Value {
    #[allow(clippy::cast_possible_truncation)] // saturates, and is capped below anyway
    let ms = ms.round() as i64;
    ms.into()
}

fn environment(args: &mut Data, warnings: &mut Vec<String>) -> Result<(), Fault> {
    if let Some(Value::Array(list)) = args.get("env") {
        let mut variables = Data::new();
        for entry in list {
            let (name, value) = entry.as_str().and_then(|entry| entry.split_once('=')).ok_or_else(|| {
                Fault::new(FaultCode::InvalidArguments, format!("env: {entry} is not of the form NAME=value"))
                    .hint(r#"env takes an object: {"NAME": "value"}"#)
            })?;
            variables.insert(name.into(), value.into());
        }
        warnings.push("env was sent as a list and read as an object".into());
        args.insert("env".into(), variables.into());
    }
    if let Some(Value::Object(variables)) = args.get_mut("env") {
        for (name, value) in variables {
            if value.is_number() || value.is_boolean() {
                warnings.push(format!("env: the value of {name} was sent as {value} and read as a string"));
                *value = value.to_string().into();
            }
        }
    }
    Ok(())
}

fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("bash" | "sh"))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
