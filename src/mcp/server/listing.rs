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
    Tool::new(tool.name(), tool.summary(), object(tool.schema()))
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
fn output_schema(_tool: &dyn AnyTool) -> Value {
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
            "data": {"anyOf": [{"type": "object"}, failure]},
            "error": {"anyOf": [{"type": "string"}, {"type": "null"}]}
        },
        "required": ["success", "data", "error"],
        "additionalProperties": false
    })
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}
