//! The tools as a peer is told of them.

use crate::policy::{Access, Net};
use crate::tools::AnyTool;
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use std::sync::Arc;

/// The entries of `tools/list`, in the order of the registry.
pub fn listing(tools: &[&'static dyn AnyTool], net: Net) -> Vec<Tool> {
    tools.iter().map(|tool| entry(*tool, net)).collect()
}

fn entry(tool: &dyn AnyTool, net: Net) -> Tool {
    let mut input = tool.schema();
    make_portable(&mut input);
    Tool::new(tool.name(), tool.summary(), object(input))
        .with_raw_output_schema(object(output_schema(tool)))
        .with_annotations(annotations(tool.access(), net))
}

/// Hints, by the access class: what a class cannot do, no call of it can.
fn annotations(access: Access, net: Net) -> ToolAnnotations {
    let look = access == Access::Look;
    let open = access == Access::Execute && net == Net::Full;
    ToolAnnotations::new().read_only(look).destructive(!look).idempotent(look).open_world(open)
}

/// The envelope, both its forms in one schema.
fn output_schema(tool: &dyn AnyTool) -> Value {
    let mut facts = tool.facts();
    make_portable(&mut facts);
    let failure = json!({
        "description": "What is known about the failure.",
        "type": "object",
        "properties": {
            "code": {"type": "string", "enum": crate::envelope::FaultCode::ALL.iter().map(|code| code.as_str()).collect::<Vec<_>>()},
            "hint": {"type": "string"},
            "warnings": {"type": "array", "items": {"type": "string"}}
        },
        "required": ["code"]
    });
    json!({
        "type": "object",
        "properties": {
            "success": {"type": "boolean"},
            "data": {"anyOf": [facts, failure]},
            "error": {"anyOf": [{"type": "string"}, {"type": "null"}]}
        },
        "required": ["success", "data", "error"],
        "additionalProperties": false
    })
}

/// The same meaning in words that more clients and models understand, all through: a list of types becomes a choice of schemas, and
/// formats of Rust's integers, of which validators say that they do not know them, are gone; their bounds stay.
fn make_portable(schema: &mut Value) {
    /// What speaks of the value whatever its type is.
    const OUTSIDE: [&str; 6] = ["description", "title", "default", "enum", "const", "examples"];
    /// What holds values, not schemas.
    const VALUES: [&str; 4] = ["default", "enum", "const", "examples"];
    match schema {
        Value::Array(all) => all.iter_mut().for_each(make_portable),
        Value::Object(schema) => {
            if schema.get("format").and_then(Value::as_str).is_some_and(|format| format.trim_start_matches('u').starts_with("int")) {
                schema.shift_remove("format");
            }
            if let Some(Value::Array(kinds)) = schema.get("type")
                && !schema.contains_key("anyOf")
            {
                let kinds = kinds.clone();
                let (outside, inside): (JsonObject, JsonObject) = std::mem::take(schema)
                    .into_iter()
                    .filter(|(key, _)| key != "type")
                    .partition(|(key, _)| OUTSIDE.contains(&key.as_str()));
                let branch = |kind: Value| {
                    let rest = if kind == "null" { JsonObject::new() } else { inside.clone() };
                    Value::Object(std::iter::once(("type".to_owned(), kind)).chain(rest).collect())
                };
                schema.insert("anyOf".into(), kinds.into_iter().map(branch).collect());
                schema.extend(outside);
            }
            schema.iter_mut().filter(|(key, _)| !VALUES.contains(&key.as_str())).for_each(|(_, inner)| make_portable(inner));
        }
        _ => {}
    }
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_become_portable() {
        let mut schema = json!({"properties": {
            "a": {"type": ["integer", "null"], "format": "uint", "minimum": 1, "description": "d", "default": null},
            "type": {"type": "string", "format": "date"},
            "format": {"type": "integer", "format": "uint64"},
            "b": {"type": "array", "items": {"type": ["string", "integer"], "enum": ["x", 1]}}
        }});
        make_portable(&mut schema);
        let expected = json!({"properties": {
            "a": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "description": "d", "default": null},
            "type": {"type": "string", "format": "date"},
            "format": {"type": "integer"},
            "b": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}], "enum": ["x", 1]}}
        }});
        assert_eq!(schema, expected);
    }
}
