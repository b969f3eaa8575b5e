//! A run of the agent on replies that a test gives, and what it left.

use crate::space::Space;
use serde_json::{Value, json};
use std::fs;

/// A run that has ended.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
    /// The transcript, whole.
    pub(crate) transcript: String,
    events: Vec<Value>,
}

impl Ran {
    /// `bailiwick run` in a space, with further arguments, on these replies.
    pub(crate) fn new(space: &Space, args: &[&str], replies: &[Value]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script.jsonl");
        let lines: Vec<String> = replies.iter().map(Value::to_string).collect();
        // A script without a reply is none: a run that must not ask has one that would fail it.
        let lines = if lines.is_empty() { vec![json!({"expect_contains": "never said by anybody"}).to_string()] } else { lines };
        fs::write(&script, lines.join("\n")).unwrap();
        let (model, out) = (format!("script:{}", script.display()), dir.path().join("out"));
        let mut all = vec!["run", "Do it.", "--model", &model, "--out", out.to_str().unwrap()];
        all.extend(args);
        let output = space.run(all);
        let transcript = fs::read_to_string(out.join("transcript.jsonl")).unwrap_or_default();
        let events = transcript.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        Self { code: output.status.code(), stderr: String::from_utf8_lossy(&output.stderr).into_owned(), transcript, events }
    }

    /// The events of a kind.
    pub(crate) fn events<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    /// The system text.
    #[track_caller]
    pub(crate) fn system(&self) -> String {
        let started = self.events("run_started").next().unwrap_or_else(|| panic!("it did not start: {}", self.stderr));
        started["system"].as_str().unwrap().to_owned()
    }
}

/// A native call for a scripted reply.
pub(crate) fn call(id: &str, name: &str, arguments: Value) -> Value {
    json!({"id": id, "name": name, "arguments": arguments})
}

/// The envelope that a call was answered with.
#[track_caller]
pub(crate) fn answer<'a>(ran: &'a Ran, id: &str) -> &'a Value {
    let mut ended = ran.events("call_ended").filter(|event| event["id"] == id);
    &ended.next().unwrap_or_else(|| panic!("no answer to {id}: {}", ran.stderr))["envelope"]
}

/// The text of an answer as the model is given it.
#[track_caller]
pub(crate) fn text_of(ran: &Ran, id: &str) -> String {
    ran.events("call_ended").find(|event| event["id"] == id).unwrap()["text"].as_str().unwrap().to_owned()
}
