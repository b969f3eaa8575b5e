//! Knowledge and web for a model without tools: the program asks it what to look up, looks it up, and plants the answer as a call
//! that is finished, before the first turn.
//!
//! The transcript is then what it would be if the model had called the tool itself, and so is all that is derived from it: the
//! display, the messages, a replay. The knowledge base is asked before the web, each once; what finds nothing plants nothing.

use super::Doorway;
use super::act::within;
use super::budget::Budget;
use super::observe::Log;
use super::run_loop::RunOptions;
use super::transcript::What;
use crate::dialect::native;
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::provider::{Assistant, Extra, Message, Provider, Reply, Request};
use crate::session::Call;
use serde::Deserialize;
use serde_json::json;

/// The most characters of a question.
const QUERY: usize = 500;
/// Lists of an answer that hold what was found.
const FOUND: [&str; 6] = ["results", "hits", "matches", "items", "documents", "chunks"];
/// Numbers of an answer that count what was found.
const COUNTS: [&str; 4] = ["total", "count", "found", "total_results"];

/// What the model wants to be looked up.
#[derive(Debug, Deserialize, PartialEq)]
struct Wish {
    action: String,
    #[serde(default)]
    query: String,
}

/// Asks, looks up and plants. A provider that fails here is no end: the first turn will show it.
///
/// # Errors
/// Only when the transcript cannot be written.
pub(super) async fn plant(
    doorway: &impl Doorway,
    provider: &dyn Provider,
    log: &mut Log<'_>,
    options: &RunOptions,
    budget: &mut Budget,
) -> Result<(), Fault> {
    for (number, tool) in options.toolset.lookups.iter().enumerate() {
        let Some((wish, wire)) = ask(provider, options, tool, budget).await else { continue };
        let call = Call { id: format!("lookup-{}", number + 1), tool: tool.clone(), args: json!({ "query": wish.query }) };
        let began = std::time::Instant::now();
        let answer = within(options.deadlines.look, &call, doorway.call(call.clone())).await;
        if !found(&answer.envelope) {
            continue;
        }
        let message = Assistant { calls: vec![native::write(&call)], wire, ..Assistant::default() };
        log.append(What::TurnStarted { turn: budget.spent().turns + 1 })?;
        budget.turn();
        log.append(What::Replied {
            reply: serde_json::to_value(&message).map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?,
            text: String::new(),
            calls: vec![call.clone()],
            native: true,
            input_tokens: 0,
            output_tokens: 0,
        })?;
        log.append(What::CallStarted { call: call.clone() })?;
        log.append(What::CallEnded {
            id: call.id,
            tool: call.tool,
            envelope: answer.envelope,
            text: answer.text,
            duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })?;
        budget.called(true);
    }
    Ok(())
}

/// What the model wants to know, if anything, and the wire that it was asked by.
async fn ask(provider: &dyn Provider, options: &RunOptions, tool: &str, budget: &mut Budget) -> Option<(Wish, String)> {
    let declared = options.toolset.find(tool)?;
    let summary = declared.summary.lines().next().unwrap_or_default();
    let system = format!(
        "Before you answer, one thing can be looked up: {tool}: {summary}\n\
         Say with one JSON object and nothing else whether the task needs it: {{\"action\": \"{tool}\", \"query\": \"what to look for\"}}, or \
         {{\"action\": \"none\", \"query\": \"\"}}."
    );
    let messages = [Message::system(system), Message::user(&options.task)];
    let request =
        Request { messages: &messages, tools: &[], may_call: false, max_tokens: options.max_tokens, extra: &Extra::clone(&options.extra) };
    let Reply { message, usage, .. } = provider.reply(request, &mut |_| {}).await.ok()?;
    budget.tokens(usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write), usage.output);
    let wish = read(&message.text)?;
    (wish.action == tool && !wish.query.trim().is_empty() && wish.query.chars().count() <= QUERY).then_some((wish, message.wire))
}

/// The first JSON object of a text, if it is a wish.
fn read(text: &str) -> Option<Wish> {
    let object = text.get(text.find('{')?..)?;
    serde_json::Deserializer::from_str(object).into_iter::<Wish>().next()?.ok()
}

/// Whether an answer holds anything.
fn found(envelope: &Envelope) -> bool {
    if !envelope.success() {
        return false;
    }
    let data = envelope.data();
    let lists = FOUND.iter().filter_map(|key| data.get(*key)?.as_array()).map(|list| !list.is_empty());
    let counts = COUNTS.iter().filter_map(|key| data.get(*key)?.as_u64()).map(|count| count > 0);
    let said: Vec<bool> = lists.chain(counts).collect();
    if said.is_empty() {
        return data.as_object().is_some_and(|data| data.values().any(|value| value.as_str().is_some_and(|text| !text.trim().is_empty())));
    }
    said.into_iter().any(|found| found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::mask::Mask;
    use crate::agent::messages::{messages, validate};
    use crate::agent::observe::Nobody;
    use crate::agent::prompt::{Capabilities, Offered, SessionOptions, Switch, toolset};
    use crate::agent::run_loop::{Finished, run};
    use crate::agent::shared_tests::{Place, now};
    use crate::agent::transcript::{Event, Transcript};
    use crate::dialect::Declared;
    use crate::envelope::Data;
    use crate::provider::scripted::{Form, Scripted};
    use crate::session::OwnOutput;
    use crate::tools::{Answer, AnyTool};
    use serde_json::Value;
    use std::cell::RefCell;
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    /// A workspace with a knowledge base and a web of the test's own.
    struct Library {
        place: Place,
        asked: RefCell<Vec<String>>,
    }

    impl Doorway for Library {
        async fn call(&self, call: Call) -> Answer {
            self.asked.borrow_mut().push(format!("{} {}", call.tool, call.args["query"]));
            let results =
                if call.args["query"].as_str().is_some_and(|query| query.contains("moon")) { json!(["cheese"]) } else { json!([]) };
            let data = Data::from_iter([("results".to_owned(), results.clone())]);
            Answer { envelope: Envelope::from(Ok(data)), text: format!("found: {results}") }
        }

        async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault> {
            self.place.own(argv, env, stdin).await
        }

        async fn settle(&self) -> Vec<String> {
            Vec::new()
        }
        fn keep_output(&self, _: &[u8]) -> Option<String> {
            None
        }
        fn tools(&self) -> &[&'static dyn AnyTool] {
            &[]
        }

        fn base(&self) -> &Path {
            &self.place.base
        }

        fn own_dir(&self) -> PathBuf {
            self.place.own.clone()
        }
    }

    fn offers() -> Vec<Offered> {
        let offer = |name: &str, category: &str| Offered {
            declared: Declared {
                name: name.into(),
                aliases: Vec::new(),
                synonyms: Vec::new(),
                summary: format!("Does {name}."),
                example: Value::Null,
                schema: json!({"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}),
                takes_rest: false,
                access: None,
            },
            category: category.into(),
        };
        // The web is offered first; the knowledge base is asked first.
        vec![offer("web_search", "web"), offer("knowledge_search", "knowledge")]
    }

    fn go(script: &[Value], native: bool) -> (Finished, Vec<Event>, Vec<String>) {
        let library = Library { place: Place::new(), asked: RefCell::default() };
        let lines: String = script.iter().map(|line| format!("{line}\n")).collect();
        let model = Scripted::new("s", lines.as_bytes(), Form::JsonLines).unwrap();
        let session = SessionOptions { on: [Switch::Browsing, Switch::KnowledgeBase].into(), ..SessionOptions::default() };
        let set = toolset(&Capabilities::default(), &session, &offers()).unwrap();
        let mut options = RunOptions::new("What is the moon made of?", set, "N0");
        options.native = native;
        let file = library.place.own.join("transcript.jsonl");
        let mut transcript = Transcript::create(&file, "run", Mask::default()).unwrap();
        let finished = now(run(&library, &model, &mut transcript, &Nobody, &options, async || std::future::pending().await));
        let asked = library.asked.borrow().clone();
        assert_eq!(model.left(), 0);
        (finished, transcript.events().to_vec(), asked)
    }

    /// Events without what differs between any two runs: times, ids, who said it.
    fn shape(events: &[Event]) -> Vec<Value> {
        let mut shapes = Vec::new();
        for event in events {
            let mut value = serde_json::to_value(&event.what).unwrap();
            if matches!(event.what, What::RunStarted { .. } | What::RunEnded { .. }) {
                continue;
            }
            value.as_object_mut().unwrap().remove("duration_ms");
            let text = value.to_string().replace("lookup-1", "ID").replace("call-1-1", "ID");
            shapes.push(serde_json::from_str(&text).unwrap());
        }
        shapes
    }

    #[test]
    fn a_planted_call_is_what_a_native_one_would_be() {
        let wish = json!({"text": "```json\n{\"action\": \"knowledge_search\", \"query\": \"moon\"}\n```", "expect_contains": "moon"});
        let none = json!({"text": "{\"action\": \"none\", \"query\": \"\"}"});
        let end = json!({"expect_contains": "cheese", "text": "Cheese."});
        let (finished, planted, asked) = go(&[wish, none, end.clone()], false);
        assert_eq!((finished.result.exit_code, finished.result.answer.as_str()), (0, "Cheese."));
        assert_eq!(asked, ["knowledge_search \"moon\""]);
        let native = json!({"calls": [{"name": "knowledge_search", "arguments": {"query": "moon"}}]});
        let (_, called, _) = go(&[native, end], true);
        let (planted_shape, called_shape) = (shape(&planted), shape(&called));
        // The last reply alone was said by text in the one and natively in the other.
        assert_eq!(planted_shape.len(), called_shape.len());
        assert_eq!(planted_shape[..5], called_shape[..5]);
        let conversation = messages(&planted, "N0").unwrap();
        validate(&conversation).unwrap();
        assert!(conversation[2].text().contains("[TOOL] knowledge_search(query=\"moon\") [/TOOL]"), "{conversation:?}");
        assert!(conversation[3].text().contains("cheese"));
    }

    #[test]
    fn knowledge_comes_before_the_web_and_nothing_found_plants_nothing() {
        let wish = |tool: &str, query: &str| json!({"text": json!({"action": tool, "query": query}).to_string()});
        let end = json!({"text": "Done."});
        let (_, events, asked) = go(&[wish("knowledge_search", "sun"), wish("web_search", "moon"), end.clone()], false);
        assert_eq!(asked, ["knowledge_search \"sun\"", "web_search \"moon\""]);
        let called: Vec<&str> = events
            .iter()
            .filter_map(|event| if let What::CallStarted { call } = &event.what { Some(call.tool.as_str()) } else { None })
            .collect();
        assert_eq!(called, ["web_search"]);
        for nothing in [json!({"text": "I need nothing."}), json!({"fail": "server"}), wish("sandbox_bash", "id"), wish("web_search", " ")]
        {
            let (finished, events, asked) = go(&[nothing.clone(), nothing, end.clone()], false);
            assert_eq!((finished.result.exit_code, asked.len()), (0, 0));
            assert!(!events.iter().any(|event| matches!(event.what, What::CallStarted { .. })));
        }
    }

    #[test]
    fn a_native_model_is_not_asked() {
        let (finished, _, asked) = go(&[json!({"text": "Done."})], true);
        assert_eq!((finished.result.turns, asked.len()), (1, 0));
    }
}
