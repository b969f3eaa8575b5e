//! Arguments: a strict schema and a tolerant reader.
//!
//! What a model means beyond doubt is repaired and each repair is named in a warning: another agent's name for an argument, a
//! list or an object sent as a JSON string, a number or a truth value sent as a string, a single item for a list, `null` for
//! absent. Unknown keys are dropped with a warning that names the nearest known one. Nothing is ever guessed for a key that is missing.

use super::Spec;
use crate::envelope::{Data, Fault, FaultCode};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The pure JSON Schema of an argument struct: one object, nothing behind a `$ref`.
pub fn schema<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Value::Object(schema) = &mut schema {
        schema.remove("title");
        schema.remove("description");
        schema.entry("properties").or_insert_with(|| Value::Object(Data::new()));
        schema.insert("additionalProperties".into(), false.into());
    }
    schema
}

/// The schema of a tool's arguments, made once: making it costs more than the rest of reading a call.
fn kept_schema<T: Spec>() -> Arc<Value> {
    static KEPT: RwLock<BTreeMap<TypeId, Arc<Value>>> = RwLock::new(BTreeMap::new());
    let tool = TypeId::of::<T>();
    if let Some(schema) = KEPT.read().unwrap_or_else(PoisonError::into_inner).get(&tool) {
        return schema.clone();
    }
    let schema = Arc::new(schema::<T::Args>());
    KEPT.write().unwrap_or_else(PoisonError::into_inner).insert(tool, schema.clone());
    schema
}

/// The JSON Schema of the facts that a tool answers with, as they are written: nothing behind a `$ref`, and open, for warnings may be added.
pub fn schema_of_facts<D: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<D>().to_value();
    if let Value::Object(schema) = &mut schema {
        schema.remove("title");
        schema.remove("description");
    }
    schema
}

/// Reads the arguments of a call by the tool's schema; returns them repaired, with a warning for each repair.
///
/// # Errors
/// `invalid_arguments`, with a one-line example of a call that is right.
pub fn read<T: Spec>(args: Value) -> Result<(Value, Vec<String>), Fault> {
    let mut warnings = Vec::new();
    let schema = kept_schema::<T>();
    let none = Data::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let invalid =
        |message: String| Fault::new(FaultCode::InvalidArguments, message).hint(format!("for example {} {}", T::NAME, T::EXAMPLE));

    let args = match args {
        Value::String(text) => {
            let inner: Value =
                serde_json::from_str(&text).map_err(|error| invalid(format!("the arguments are a string that is no JSON: {error}")))?;
            warnings.push("the arguments came as a JSON string and were decoded".into());
            inner
        }
        other => other,
    };
    let mut args = match args {
        Value::Object(args) => args,
        Value::Null => Data::new(),
        _ => return Err(invalid("the arguments are not an object".into())),
    };
    unwrap(&mut args, properties, &mut warnings);

    for (theirs, ours) in T::SYNONYMS {
        if !args.contains_key(*theirs) || properties.contains_key(*theirs) {
            continue;
        }
        let value = args.shift_remove(*theirs).unwrap_or_default();
        if value.is_null() {
            continue;
        }
        match args.get(*ours) {
            None | Some(Value::Null) => {
                warnings.push(format!("{theirs} was read as {ours}"));
                args.insert((*ours).into(), value);
            }
            Some(given) if *given == value => warnings.push(format!("{theirs} repeats {ours}")),
            Some(_) => return Err(invalid(format!("{theirs} and {ours} are the same argument and were given different values"))),
        }
    }
    respell(&mut args, properties, &mut warnings);
    args.retain(|_, value| !value.is_null());
    warnings.extend(T::prepare(&mut args)?);

    let unknown: Vec<String> = args.keys().filter(|key| !properties.contains_key(*key)).cloned().collect();
    let strange: Vec<String> = unknown.iter().take(5).map(|key| format!("{key:?}")).collect();
    for key in unknown {
        args.shift_remove(&key);
        let known: Vec<&str> = properties.keys().map(String::as_str).collect();
        warnings.push(match nearest(&key, &known) {
            Some(near) => format!("unknown argument {key:?} was ignored; did you mean {near}?"),
            None => format!("unknown argument {key:?} was ignored; {} takes {}", T::NAME, known.join(", ")),
        });
    }
    for (key, value) in &mut args {
        if let Some(schema) = properties.get(key) {
            repair(key, value, schema, &mut warnings).map_err(&invalid)?;
            if let (Some(least), Some(number)) = (schema.get("minimum").and_then(Value::as_i64), value.as_i64())
                && number < least.min(0)
            {
                return Err(invalid(format!("{key} is {number}, and should be a whole number from {least} on")));
            }
        }
    }
    args.retain(|_, value| !value.is_null());
    if let Some(required) = schema.get("required").and_then(Value::as_array) {
        let missing: Vec<&str> = required.iter().filter_map(Value::as_str).filter(|key| !args.contains_key(*key)).collect();
        if !missing.is_empty() {
            // What was sent instead, most likely.
            let sent = if strange.is_empty() { String::new() } else { format!(", and does not take {}", strange.join(" or ")) };
            return Err(invalid(format!("{} needs {}{sent}", T::NAME, missing.join(" and "))).with("missing", missing));
        }
    }
    Ok((Value::Object(args), warnings))
}

/// Takes arguments out of a wrapper that holds nothing else: `{"arguments": {…}}`.
fn unwrap(args: &mut Data, properties: &Data, warnings: &mut Vec<String>) {
    const WRAPPERS: &[&str] = &["arguments", "args", "input", "parameters", "params"];
    let mut keys = args.keys();
    let (Some(key), None) = (keys.next().cloned(), keys.next()) else { return };
    if properties.contains_key(&key) || !WRAPPERS.contains(&key.as_str()) {
        return;
    }
    if let Some(Value::Object(inner)) = args.get_mut(&key) {
        let inner = std::mem::take(inner);
        *args = inner;
        warnings.push(format!("the arguments were taken out of {key:?}"));
    }
}

/// Takes `maxDepth` and `MAX-DEPTH` for `max_depth`: the same letters in another spelling are no guess.
fn respell(args: &mut Data, properties: &Data, warnings: &mut Vec<String>) {
    let strange: Vec<String> = args.keys().filter(|key| !properties.contains_key(*key)).cloned().collect();
    for key in strange {
        let Some(ours) = properties.keys().find(|ours| plain(ours) == plain(&key) && !args.contains_key(*ours)) else { continue };
        if let Some(value) = args.shift_remove(&key) {
            warnings.push(format!("{key} was read as {ours}"));
            args.insert(ours.clone(), value);
        }
    }
}

/// The typed arguments from what [`read`] returned.
///
/// # Errors
/// `invalid_arguments`, naming the argument.
pub fn parse<T: Spec>(args: Value) -> Result<T::Args, Fault> {
    serde_json::from_value(args).map_err(|error| {
        Fault::new(FaultCode::InvalidArguments, format!("{}: {}", T::NAME, in_words(&error.to_string()))).hint(format!(
            "for example {} {}",
            T::NAME,
            T::EXAMPLE
        ))
    })
}

/// The reader's words for a type are Rust's.
fn in_words(error: &str) -> String {
    const TYPES: &[(&str, &str)] = &[
        ("u8", "a whole number from 0 to 255"),
        ("u16", "a whole number from 0 to 65535"),
        ("u32", "a whole number from 0 on"),
        ("u64", "a whole number from 0 on"),
        ("usize", "a whole number from 0 on"),
        ("i32", "a whole number"),
        ("i64", "a whole number"),
        ("f64", "a number"),
    ];
    match TYPES.iter().find_map(|(rust, words)| Some((error.strip_suffix(&format!("expected {rust}"))?, words))) {
        Some((before, words)) => format!("{before}expected {words}"),
        None => error.to_owned(),
    }
}

/// The types that a property's schema takes.
fn types(schema: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    match schema.get("type") {
        Some(Value::String(one)) => found.push(one.as_str()),
        Some(Value::Array(many)) => found.extend(many.iter().filter_map(Value::as_str)),
        _ => {}
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        for branch in schema.get(key).and_then(Value::as_array).into_iter().flatten() {
            found.extend(types(branch));
        }
    }
    if found.is_empty() && schema.get("enum").is_some() {
        found.push("string");
    }
    found
}

/// The schema of a list's items, or of one branch of an `anyOf` that has them.
fn items(schema: &Value) -> Option<&Value> {
    schema.get("items").or_else(|| {
        ["anyOf", "oneOf"].iter().filter_map(|key| schema.get(*key)?.as_array()).flatten().find_map(|branch| branch.get("items"))
    })
}

fn fits(value: &Value, types: &[&str]) -> bool {
    types.iter().any(|kind| match *kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => true,
    })
}

/// Repairs the form of one value; says what was wrong where it cannot.
fn repair(key: &str, value: &mut Value, schema: &Value, warnings: &mut Vec<String>) -> Result<(), String> {
    let types = types(schema);
    if types.is_empty() {
        return Ok(());
    }
    let items = items(schema);
    if let Some(list) = list_as_text(value, &types, items) {
        warnings.push(format!("{key} was sent as a string and read as a list"));
        *value = list;
    }
    if !fits(value, &types) {
        let repaired = repaired(key, value, &types, items)?;
        warnings.push(format!("{key} was sent as {} and read as {}", describe(value), describe(&repaired)));
        *value = repaired;
    }
    if let Some(choice) = choice(value, schema) {
        warnings.push(format!("{key} was read as {choice:?}"));
        *value = choice.into();
    }
    if let (Value::Array(list), Some(items)) = (&mut *value, items) {
        for (index, item) in list.iter_mut().enumerate() {
            repair(&format!("{key}[{index}]"), item, items, warnings)?;
        }
    }
    Ok(())
}

/// A list that was sent as a JSON string where a string would do as well (`pattern: "[\"*.rs\"]"`). Text that only begins like a
/// list (`[!x]`) is text.
fn list_as_text(value: &Value, accepted: &[&str], items: Option<&Value>) -> Option<Value> {
    let text = value.as_str()?.trim();
    if !accepted.contains(&"array") || !text.starts_with('[') {
        return None;
    }
    let inner: Value = serde_json::from_str(text).ok()?;
    let wanted = items.map(types).unwrap_or_default();
    inner.as_array()?.iter().all(|item| wanted.is_empty() || fits(item, &wanted)).then_some(inner)
}

/// The choice that is meant by a word in another case.
fn choice(value: &Value, schema: &Value) -> Option<String> {
    let word = value.as_str()?;
    let mut choices = Vec::new();
    choices_of(schema, &mut choices);
    if choices.contains(&word) {
        return None;
    }
    choices.into_iter().find(|choice| choice.eq_ignore_ascii_case(word)).map(str::to_owned)
}

fn choices_of<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
    found.extend(schema.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str));
    found.extend(schema.get("const").and_then(Value::as_str));
    for key in ["anyOf", "oneOf"] {
        schema.get(key).and_then(Value::as_array).into_iter().flatten().for_each(|branch| choices_of(branch, found));
    }
}

fn repaired(key: &str, value: &Value, accepted: &[&str], items: Option<&Value>) -> Result<Value, String> {
    let takes = |kind| accepted.contains(&kind);
    if let Value::String(text) = value {
        let trimmed = text.trim();
        let takes_text_items = items.is_some_and(|items| types(items).contains(&"string"));
        let json = (takes("array") && trimmed.starts_with('[')) || ((takes("object") || takes("array")) && trimmed.starts_with('{'));
        if json && !takes_text_items {
            return match serde_json::from_str::<Value>(trimmed) {
                Ok(inner) if fits(&inner, accepted) => Ok(inner),
                Ok(inner) => Ok(Value::Array(vec![inner])),
                Err(error) => {
                    let at = byte_of(trimmed, &error);
                    Err(format!("{key} is a string that is no JSON: {error} (byte {at})"))
                }
            };
        }
        if (takes("integer") || takes("number"))
            && let Ok(number) = serde_json::from_str::<Value>(trimmed)
        {
            if fits(&number, accepted) {
                return Ok(number);
            }
            if let Some(whole) = whole(&number) {
                return Ok(whole);
            }
        }
        if takes("boolean") {
            match trimmed.to_ascii_lowercase().as_str() {
                "true" | "yes" | "1" => return Ok(true.into()),
                "false" | "no" | "0" => return Ok(false.into()),
                _ => {}
            }
        }
        if !takes("array") && !takes("object") && (trimmed.is_empty() || trimmed.eq_ignore_ascii_case("null")) {
            return Ok(Value::Null);
        }
    }
    if takes("integer")
        && let Some(whole) = whole(value)
    {
        return Ok(whole);
    }
    if takes("boolean")
        && let Some(bit @ 0..=1) = value.as_u64()
    {
        return Ok((bit == 1).into());
    }
    // A fraction has more than one spelling, so it is not put into text.
    if takes("string") && (value.is_i64() || value.is_u64() || value.is_boolean()) {
        return Ok(value.to_string().into());
    }
    if takes("array") && !value.is_array() {
        return Ok(Value::Array(vec![value.clone()]));
    }
    if let Value::Array(list) = value
        && let [only] = list.as_slice()
        && !only.is_array()
        && fits(only, accepted)
    {
        return Ok(only.clone());
    }
    let wanted: Vec<&str> = accepted.iter().copied().filter(|kind| *kind != "null").collect();
    Err(format!("{key} is {}, and should be {}", describe(value), wanted.join(" or ")))
}

/// A number without a fraction as an integer.
fn whole(value: &Value) -> Option<Value> {
    let number = value.as_f64()?;
    #[allow(clippy::cast_possible_truncation)] // whole and within 2^53: exact
    (number.fract() == 0.0 && number.abs() < 9e15).then(|| (number as i64).into())
}

/// Where in a text a JSON error is, in bytes.
fn byte_of(text: &str, error: &serde_json::Error) -> usize {
    let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
    before + error.column().saturating_sub(1)
}

fn describe(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn plain(key: &str) -> String {
    key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// The known name that is nearest to a mistyped one, if one is near at all.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = plain(name);
    known
        .iter()
        .map(|candidate| (slips(&name, &plain(candidate)), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(name.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein distance; names are short.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    edits(a, b, false)
}

/// The same, in which two neighbours that changed places count once: what fingers do.
fn slips(a: &str, b: &str) -> usize {
    edits(a, b, true)
}

fn edits(a: &str, b: &str, swaps: bool) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut above: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let mut least = (row[j] + usize::from(a[i] != b[j])).min(next[j] + 1).min(row[j + 1] + 1);
            if swaps && i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(above[j - 1] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

/// One text, or a list of them, in an argument that takes both.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OneOrMany(pub(crate) Vec<String>);

impl<'de> serde::Deserialize<'de> for OneOrMany {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a string or a list of strings")]
        enum Form {
            One(String),
            Many(Vec<String>),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::One(one) => Self(vec![one]),
            Form::Many(many) => Self(many),
        })
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "OneOrMany".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "array"], "items": { "type": "string" } })
    }
}

#[cfg(test)]
mod tests;
