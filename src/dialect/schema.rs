//! Schemas for models, and the list of tools in the form of each wire.
//!
//! Models and their servers stumble over `type: […]`, `$ref` and `format`; those are taken out for them.

use super::{Declared, text};
use crate::provider::{ToolSchema, anthropic, openai};
use serde_json::{Map, Value, json};
use std::cell::Cell;

/// How deep a schema may go, and how many schemas it may come to with its references followed, before the rest is anything at
/// all. Schemas of others can refer to themselves.
const DEPTH: usize = 32;
const NODES: usize = 4096;

/// For whom the tools are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The text protocol: a string.
    Text,
    /// OpenAI chat completions: `tools`.
    OpenAi,
    /// Anthropic Messages: `tools`.
    Anthropic,
}

/// The tools as a provider is told of them.
pub fn for_provider(tools: &[Declared]) -> Vec<ToolSchema> {
    let each = tools.iter();
    each.map(|tool| ToolSchema { name: tool.name.clone(), description: tool.summary.clone(), parameters: for_models(&tool.schema) })
        .collect()
}

/// The tools in the form of a wire: a list, or for [`Format::Text`] the teaching text.
pub fn tools_as(tools: &[Declared], format: Format) -> Value {
    match format {
        Format::Text => text::teach_declared(tools).into(),
        Format::OpenAi => for_provider(tools).iter().map(openai::tool).collect(),
        Format::Anthropic => for_provider(tools).iter().map(anthropic::tool).collect(),
    }
}

/// A schema without what models and their servers do not take. It permits all that the pure one permits, null for absent aside.
pub fn for_models(schema: &Value) -> Value {
    clean(schema, &Cell::new(NODES), schema, 0)
}

fn clean(schema: &Value, left: &Cell<usize>, root: &Value, depth: usize) -> Value {
    let Value::Object(schema) = schema else { return json!({}) };
    if depth == DEPTH || left.get() == 0 {
        return json!({});
    }
    left.set(left.get() - 1);
    let mut out = Map::new();
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let target = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer)).unwrap_or(&Value::Null);
        if let Value::Object(target) = clean(target, left, root, depth + 1) {
            out = target;
        }
    }
    for (key, value) in schema {
        match key.as_str() {
            "$ref" | "$defs" | "definitions" | "$schema" | "$id" | "$comment" | "format" | "title" => {}
            "default" if value.is_null() => {}
            "properties" | "patternProperties" => {
                let properties = value.as_object().into_iter().flatten();
                let cleaned: Map<String, Value> =
                    properties.map(|(name, inner)| (name.clone(), clean(inner, left, root, depth + 1))).collect();
                out.insert(key.clone(), cleaned.into());
            }
            "items" | "not" => {
                out.insert(key.clone(), clean(value, left, root, depth + 1));
            }
            "additionalProperties" if value.is_object() => {
                out.insert(key.clone(), clean(value, left, root, depth + 1));
            }
            "type" => kinds(value, &mut out),
            "const" => {
                out.insert("enum".into(), json!([value]));
            }
            "enum" => {
                let values: Vec<Value> = value.as_array().into_iter().flatten().filter(|value| !value.is_null()).cloned().collect();
                out.insert(key.clone(), values.into());
            }
            "anyOf" | "oneOf" => branches(value, left, root, depth, &mut out),
            "allOf" => {
                for branch in value.as_array().into_iter().flatten() {
                    if let Value::Object(branch) = clean(branch, left, root, depth + 1) {
                        merge(branch, &mut out);
                    }
                }
            }
            _ => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    out.into()
}

/// `["string", "null"]` is a string that may be absent; of several kinds each is a branch.
fn kinds(value: &Value, out: &mut Map<String, Value>) {
    let Value::Array(kinds) = value else {
        out.insert("type".into(), value.clone());
        return;
    };
    let mut kinds: Vec<&Value> = kinds.iter().filter(|kind| *kind != "null").collect();
    match kinds.pop() {
        None => {}
        Some(one) if kinds.is_empty() => {
            out.insert("type".into(), one.clone());
        }
        Some(last) => {
            kinds.push(last);
            out.insert("anyOf".into(), kinds.into_iter().map(|kind| json!({"type": kind})).collect());
        }
    }
}

/// Branches without null; a single one takes the place of the choice, and choices of constants become one enumeration.
fn branches(value: &Value, left: &Cell<usize>, root: &Value, depth: usize, out: &mut Map<String, Value>) {
    let is_null = |branch: &Value| branch.get("type").is_some_and(|kind| kind == "null");
    let branches = value.as_array().into_iter().flatten().filter(|branch| !is_null(branch));
    let mut cleaned: Vec<Value> = branches.map(|branch| clean(branch, left, root, depth + 1)).collect();
    if cleaned.len() == 1 {
        if let Some(Value::Object(branch)) = cleaned.pop() {
            merge(branch, out);
        }
        return;
    }
    let constants: Option<Vec<&Vec<Value>>> = cleaned
        .iter()
        .map(|branch| branch.get("enum").and_then(Value::as_array).filter(|_| branch.get("type").is_none_or(|kind| kind == "string")))
        .collect();
    match constants {
        Some(constants) if !constants.is_empty() => {
            let all: Vec<Value> = constants.into_iter().flatten().cloned().collect();
            out.insert("type".into(), "string".into());
            out.insert("enum".into(), all.into());
        }
        _ => {
            out.insert("anyOf".into(), cleaned.into());
        }
    }
}

/// What the outer schema says itself (its description above all) stays.
fn merge(inner: Map<String, Value>, out: &mut Map<String, Value>) {
    for (key, value) in inner {
        out.entry(key).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::Access;

    #[test]
    fn what_models_do_not_take_is_gone() {
        for (pure, wanted) in [
            (json!({"type": ["string", "null"], "description": "d", "default": null}), json!({"type": "string", "description": "d"})),
            (json!({"type": ["integer", "null"], "format": "uint64", "minimum": 0}), json!({"type": "integer", "minimum": 0})),
            (json!({"type": ["string", "integer"]}), json!({"anyOf": [{"type": "string"}, {"type": "integer"}]})),
            (
                json!({"anyOf": [{"type": "object", "properties": {"a": {"type": "number", "format": "double"}}}, {"type": "null"}], "description": "d"}),
                json!({"type": "object", "properties": {"a": {"type": "number"}}, "description": "d"}),
            ),
            (
                json!({"oneOf": [{"const": "a", "type": "string", "description": "one"}, {"const": "b", "type": "string"}]}),
                json!({"type": "string", "enum": ["a", "b"]}),
            ),
            (json!({"enum": ["a", null]}), json!({"enum": ["a"]})),
            (
                json!({"$defs": {"P": {"type": "object", "title": "P"}}, "properties": {"x": {"$ref": "#/$defs/P", "description": "d"}}}),
                json!({"properties": {"x": {"type": "object", "description": "d"}}}),
            ),
            // names of arguments are not keywords
            (
                json!({"type": "object", "properties": {"format": {"type": "string"}, "title": {"type": "string"}, "$ref": {"type": "string"}}}),
                json!({"type": "object", "properties": {"format": {"type": "string"}, "title": {"type": "string"}, "$ref": {"type": "string"}}}),
            ),
            (json!(true), json!({})),
        ] {
            assert_eq!(for_models(&pure), wanted, "{pure}");
        }
    }

    #[test]
    fn a_schema_that_holds_itself_ends() {
        let pure = json!({"$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}}, "$ref": "#/$defs/T"});
        let text = for_models(&pure).to_string();
        assert!(!text.contains("$ref") && text.len() < 10_000, "{text}");

        // Two references a level: without a bound on their number, 2^32 schemas.
        let pure = json!({"$defs": {"T": {"properties": {"a": {"$ref": "#/$defs/T"}, "b": {"$ref": "#/$defs/T"}}}}, "$ref": "#/$defs/T"});
        assert!(for_models(&pure).to_string().len() < 1_000_000);
    }

    #[test]
    fn each_wire_gets_its_form() {
        let schema = json!({"type": "object", "properties": {"path": {"type": ["string", "null"]}}});
        let tool = Declared {
            name: "ls".into(),
            aliases: vec![],
            synonyms: vec![],
            summary: "Lists.".into(),
            example: json!({"path": "src"}),
            schema: schema.clone(),
            takes_rest: false,
            access: Some(Access::Look),
        };
        let tools = [tool];
        let clean = json!({"type": "object", "properties": {"path": {"type": "string"}}});
        assert_eq!(
            tools_as(&tools, Format::OpenAi),
            json!([{"type": "function", "function": {"name": "ls", "description": "Lists.", "parameters": clean}}])
        );
        assert_eq!(tools_as(&tools, Format::Anthropic), json!([{"name": "ls", "description": "Lists.", "input_schema": clean}]));
        assert!(tools_as(&tools, Format::Text).as_str().unwrap().contains("\nls(path?): Lists.\n"));
    }
}
