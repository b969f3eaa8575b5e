//! The program with the tools that the official MCP conformance suite calls by their names, for `tests/mcp_server.rs`.
//!
//! The server is the shipped one; these are entries of the registry like any other. The shipped program has none of them.
#![allow(clippy::unwrap_used)]

use bailiwick::envelope::{Data, Fault, FaultCode};
use bailiwick::tools::{Access, Answer, AnyTool, Launch, TOOLS, Work};
use serde_json::{Value, json};

/// A tool as the suite wants it.
struct Fixture {
    name: &'static str,
    access: Access,
    schema: fn() -> Value,
    work: fn() -> Work,
}

impl AnyTool for Fixture {
    fn name(&self) -> &'static str {
        self.name
    }
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    fn access(&self) -> Access {
        self.access
    }
    fn category(&self) -> &'static str {
        "fixture"
    }
    fn summary(&self) -> &'static str {
        "A tool of the conformance suite."
    }
    fn example(&self) -> &'static str {
        "{}"
    }
    fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
    fn takes_rest(&self) -> bool {
        false
    }
    fn schema(&self) -> Value {
        (self.schema)()
    }
    fn facts(&self) -> Value {
        serde_json::json!({"type": "object"})
    }
    fn read(&self, args: Value) -> Result<(Value, Vec<String>), Fault> {
        Ok((args, Vec::new()))
    }
    fn work(&self) -> Work {
        (self.work)()
    }
}

static FIXTURES: &[&dyn AnyTool] = &[
    &Fixture {
        name: "test_simple_text",
        access: Access::Look,
        schema: nothing,
        work: || Work::Jail(|_, _| says("This is a simple text.")),
    },
    &Fixture {
        name: "test_error_handling",
        access: Access::Look,
        schema: nothing,
        work: || Work::Jail(|_, _| Answer::failed(Fault::new(FaultCode::IoError, "this tool always fails"))),
    },
    // Long enough for the server to tell three times how it goes on.
    &Fixture {
        name: "test_tool_with_progress",
        access: Access::Execute,
        schema: nothing,
        work: || Work::Command {
            launch: |_| Ok(Launch { script: "sleep 3.5".into(), timeout_ms: 20_000, ..Launch::default() }),
            report: |_, outcome| says(&format!("exit code {:?}", outcome.exit_code)),
        },
    },
    // It logs nothing and asks the peer nothing, and the suite looks whether the server does.
    &Fixture { name: "test_logging_tool", access: Access::Look, schema: nothing, work: || Work::Jail(|_, _| says("done")) },
    &Fixture { name: "test_streaming_elicitation", access: Access::Look, schema: nothing, work: || Work::Jail(|_, _| says("done")) },
    &Fixture { name: "json_schema_2020_12_tool", access: Access::Look, schema: wide_schema, work: || Work::Jail(|_, _| says("read")) },
    &Fixture { name: "test_custom_headers", access: Access::Look, schema: header_schema, work: || Work::Jail(|_, _| says("read")) },
];

fn says(text: &str) -> Answer {
    let data = Data::from_iter([("text".to_owned(), Value::from(text))]);
    Answer { envelope: Ok(data).into(), text: text.into() }
}

fn nothing() -> Value {
    json!({"type": "object", "properties": {}, "additionalProperties": false})
}

/// Every keyword that the suite wants to find again.
fn wide_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false
    })
}

fn header_schema() -> Value {
    json!({
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
        "additionalProperties": false
    })
}

fn main() {
    let mut tools: Vec<&'static dyn AnyTool> = TOOLS.to_vec();
    tools.extend(FIXTURES);
    std::process::exit(bailiwick::cli::main(tools.leak()));
}
