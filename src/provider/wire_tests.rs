//! Ollama's own API and OpenAI Responses with recorded shapes, and every failure over every wire.

use super::tests::{Answer, Ask, call, events, response, stream, whole};
use super::*;
use serde_json::json;
use std::time::Duration;

/// Lines of JSON, ended with the connection, in pieces of seven bytes.
fn lines(list: &[Value]) -> Answer {
    let body: String = list.iter().map(|line| format!("{line}\n")).collect();
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: application/x-ndjson\r\n\r\n".to_vec();
    std::iter::once(head).chain(body.as_bytes().chunks(7).map(<[u8]>::to_vec)).collect()
}

fn line(message: Value, done: bool) -> Value {
    json!({"model": "m", "created_at": "2026-11-30T00:00:00Z", "message": message, "done": done})
}

#[test]
fn ollama_streams_lines_and_its_message_goes_back() {
    let mut last = line(json!({"role": "assistant", "content": ""}), true);
    last["done_reason"] = "stop".into();
    last["prompt_eval_count"] = 50.into();
    last["eval_count"] = 7.into();
    let outcome = Ask::of("ollama").at(vec![lines(&[
        line(json!({"role": "assistant", "content": "", "thinking": "hm"}), false),
        line(json!({"role": "assistant", "content": "Grüß "}), false),
        line(json!({"role": "assistant", "content": "dich", "novel": {"x": 1}}), false),
        line(json!({"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "read", "arguments": {"path": "ä"}}}]}), false),
        line(json!({"role": "assistant", "content": "", "tool_calls": [{"id": "own", "function": {"index": 1, "name": "ls", "arguments": "{}"}}]}), false),
        last,
    ])]);
    let reply = outcome.reply.unwrap();
    assert_eq!((reply.message.text.as_str(), reply.stop), ("Grüß dich", Stop::ToolCalls));
    assert_eq!(outcome.shown, ["thinking hm", "text Grüß ", "text dich"]);
    assert_eq!(reply.usage, Usage { input: 50, output: 7, ..Usage::default() });
    let [first, second] = &reply.message.calls[..] else { panic!("{:?}", reply.message.calls) };
    assert!(!first.id.is_empty() && first.id != second.id, "an id is made up");
    assert_eq!((first.name.as_str(), first.arguments.as_str(), second), ("read", r#"{"path":"ä"}"#, &call("own", "ls", "{}")));

    let (head, asked) = &outcome.asked[0];
    assert!(head.starts_with("POST /api/chat HTTP/1.1\r\n"), "{head}");
    assert_eq!(
        *asked,
        json!({"model": "a-model", "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}],
            "stream": true, "options": {"num_ctx": 32768, "num_predict": 100}})
    );

    // The message goes back with what is not known, arguments as an object; to another wire goes a plain form of it.
    let id = first.id.clone();
    let result = Message::Tool { id: id.clone(), name: "read".into(), text: "x".into(), failed: false, extra: Extra::new() };
    let kept: Message = serde_json::from_value(serde_json::to_value(Message::Assistant(reply.message)).unwrap()).unwrap();
    let messages = vec![Message::user("hi"), kept, result];
    let end = || lines(&[line(json!({"content": "ok"}), true)]);
    let outcome = Ask { messages: messages.clone(), may_call: false, ..Ask::of("ollama") }.at(vec![end()]);
    let asked = &outcome.asked[0].1;
    assert_eq!(
        asked["messages"][1],
        json!({"role": "assistant", "content": "Grüß dich", "thinking": "hm", "novel": {"x": 1}, "tool_calls": [
            {"function": {"name": "read", "arguments": {"path": "ä"}}, "id": id},
            {"id": "own", "function": {"index": 1, "name": "ls", "arguments": {}}}]})
    );
    assert_eq!(asked["messages"][2], json!({"role": "tool", "content": "x", "tool_name": "read", "tool_call_id": id}));
    assert_eq!(asked.get("tools"), None, "what is not there is not called");
    let outcome = Ask { messages, ..Ask::default() }.at(vec![stream("data: [DONE]\n\n")]);
    assert_eq!(outcome.asked[0].1["messages"][1].get("thinking"), None);
}

#[test]
fn ollama_answers_in_every_form() {
    let message = json!({"role": "assistant", "content": "hi"});
    let mut body = line(message.clone(), true);
    for (reason, stop) in
        [(json!("stop"), Stop::Done), (json!("length"), Stop::Length), (json!("load"), Stop::Other), (Value::Null, Stop::Done)]
    {
        body["done_reason"] = reason.clone();
        let outcome = Ask { stream: false, ..Ask::of("ollama") }.at(vec![whole(&body)]);
        assert_eq!(outcome.reply.unwrap().stop, stop, "{reason}");
        assert_eq!(outcome.asked[0].1["stream"], false);
    }
    // Lines under another content type; a line end that is missing.
    let text = format!("{}\n{}", line(message.clone(), false), line(json!({"content": "!"}), true));
    let reply = Ask::of("ollama").at(vec![response("200 OK", "content-type: application/json\r\n", &text)]).reply;
    assert_eq!(reply.unwrap().message.text, "hi!");
    // No `done` at all is a reply that was cut off, streamed or not.
    for cut in [lines(&[line(message.clone(), false)]), whole(&line(message, false))] {
        let error = Ask { retries: 0, ..Ask::of("ollama") }.at(vec![cut]).reply.unwrap_err();
        assert!(matches!(error, ProviderError::CutStream { .. } | ProviderError::MalformedChunk { .. }), "{error}");
    }
    let error = Ask { retries: 0, ..Ask::of("ollama") }.at(vec![lines(&[json!({"error": "model runner has unexpectedly stopped"})])]);
    assert!(error.reply.unwrap_err().to_string().contains("unexpectedly stopped"));
    let unknown = response("404 Not Found", "", r#"{"error":"model 'a-model' not found"}"#);
    let error = Ask { retries: 0, ..Ask::of("ollama") }.at(vec![unknown]).reply.unwrap_err();
    assert!(error.to_string().contains("'a-model' not found") && error.to_string().contains("check the model's name"), "{error}");
}

#[test]
fn responses_stream_items_and_they_go_back_verbatim() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA", "new": 1});
    let said = json!({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "Grüß dich", "annotations": []}]});
    let called = json!({"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": "{\"path\":\"ä\"}", "status": "completed"});
    let event = |kind: &str, more: Value| {
        let mut event = json!({ "type": kind });
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let body = |output: Value| {
        events(&[
            event("response.created", json!({"response": {"id": "resp_1", "status": "in_progress", "output": []}})),
            event("response.output_item.added", json!({"output_index": 0, "item": {"type": "reasoning", "id": "rs_1", "summary": []}})),
            event("response.reasoning_summary_text.delta", json!({"output_index": 0, "delta": "hm"})),
            event("response.output_item.done", json!({"output_index": 0, "item": reasoning})),
            event(
                "response.output_item.added",
                json!({"output_index": 1, "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}}),
            ),
            event("response.output_text.delta", json!({"output_index": 1, "delta": "Grüß "})),
            event("response.output_text.delta", json!({"output_index": 1, "delta": "dich"})),
            event("response.output_item.done", json!({"output_index": 1, "item": said})),
            event(
                "response.output_item.added",
                json!({"output_index": 2, "item": {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "read", "arguments": ""}}),
            ),
            event("response.function_call_arguments.delta", json!({"output_index": 2, "delta": "{\"path\":\"ä\"}"})),
            event("response.function_call_arguments.done", json!({"output_index": 2, "arguments": "{\"path\":\"ä\"}"})),
            event("response.something_new", json!({})),
            event("response.output_item.done", json!({"output_index": 2, "item": called})),
            event(
                "response.completed",
                json!({"response": {"id": "resp_1", "status": "completed", "output": output, "service_tier": "flex",
                    "usage": {"input_tokens": 50, "input_tokens_details": {"cached_tokens": 30}, "output_tokens": 7}}}),
            ),
        ])
    };
    // Some servers repeat the output at the end, some leave it empty.
    for output in [json!([]), json!([reasoning, said, called])] {
        let outcome = Ask::of("responses").at(vec![stream(&body(output))]);
        let reply = outcome.reply.unwrap();
        assert_eq!((reply.message.text.as_str(), reply.stop), ("Grüß dich", Stop::ToolCalls));
        assert_eq!(reply.message.calls, [call("call_1", "read", "{\"path\":\"ä\"}")]);
        assert_eq!(json!(reply.message.blocks), json!([reasoning, said, called]));
        assert_eq!(outcome.shown, ["thinking hm", "text Grüß ", "text dich"]);
        assert_eq!(reply.usage, Usage { input: 20, output: 7, cache_read: 30, cache_write: 0 });
        assert_eq!(reply.extra["service_tier"], "flex");
        let (head, asked) = &outcome.asked[0];
        assert!(head.starts_with("POST /v1/responses HTTP/1.1\r\n") && head.contains("authorization: Bearer sk-hidden"), "{head}");
        assert_eq!(
            *asked,
            json!({"model": "a-model", "input": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
                "tools": [{"type": "function", "name": "read", "description": "Reads.", "parameters": {"type": "object"}, "strict": false}],
                "max_output_tokens": 100, "store": false, "stream": true})
        );

        let kept: Message = serde_json::from_value(serde_json::to_value(Message::Assistant(reply.message)).unwrap()).unwrap();
        let result = Message::Tool { id: "call_1".into(), name: "read".into(), text: "x".into(), failed: false, extra: Extra::new() };
        let messages = vec![Message::user("hi"), kept, result];
        let end = whole(&json!({"status": "completed", "output": []}));
        let outcome = Ask { messages: messages.clone(), may_call: false, ..Ask::of("responses") }.at(vec![end]);
        let asked = &outcome.asked[0].1;
        assert_eq!(
            asked["input"],
            json!([{"role": "user", "content": "hi"}, reasoning, said, called, {"type": "function_call_output", "call_id": "call_1", "output": "x"}])
        );
        assert_eq!(asked["tool_choice"], "none");
        // To another wire goes what that can read.
        let outcome = Ask { messages, ..Ask::of("anthropic") }.at(vec![whole(&json!({"content": []}))]);
        assert_eq!(
            outcome.asked[0].1["messages"][1]["content"],
            json!([{"type": "text", "text": "Grüß dich"}, {"type": "tool_use", "id": "call_1", "name": "read", "input": {"path": "ä"}}])
        );
    }
}

#[test]
fn responses_end_for_reasons_that_are_told_apart() {
    let message = |part: Value| json!([{"type": "message", "role": "assistant", "content": [part]}]);
    let text = || message(json!({"type": "output_text", "text": "a"}));
    for (body, stop) in [
        (json!({"status": "completed", "output": text()}), Stop::Done),
        (json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": text()}), Stop::Length),
        (json!({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}, "output": text()}), Stop::Refusal),
        (json!({"status": "completed", "output": message(json!({"type": "refusal", "refusal": "No."}))}), Stop::Refusal),
        (json!({"status": "completed", "output": [{"type": "function_call", "name": "ls", "arguments": {"path": "a"}}]}), Stop::ToolCalls),
    ] {
        let reply = Ask { stream: false, ..Ask::of("responses") }.at(vec![whole(&body)]).reply.unwrap();
        assert_eq!(reply.stop, stop, "{body}");
        if let Some(call) = reply.message.calls.first() {
            assert!(!call.id.is_empty() && call.arguments == r#"{"path":"a"}"#, "{call:?}");
        }
    }
    // What the server did not keep and did not encrypt cannot go back.
    let reply = Ask::of("responses")
        .at(vec![whole(&json!({"output": [{"type": "reasoning", "id": "rs", "summary": []}, text()[0]]}))])
        .reply
        .unwrap();
    let outcome = Ask { messages: vec![Message::Assistant(reply.message)], ..Ask::of("responses") }.at(vec![whole(&json!({"output": []}))]);
    assert_eq!(outcome.asked[0].1["input"], text());
    let failed = events(&[
        json!({"type": "response.failed", "response": {"status": "failed", "output": [], "error": {"code": "rate_limit_exceeded", "message": "slow"}}}),
    ]);
    let error = Ask { retries: 0, ..Ask::of("responses") }.at(vec![stream(&failed)]).reply.unwrap_err();
    assert!(matches!(error, ProviderError::RateLimited { .. }), "{error}");
}

#[test]
fn every_failure_has_its_own_sentence_over_every_wire() {
    for wire in WIRES {
        let answer = |list: &[Value]| if wire.name == "ollama" { lines(list) } else { stream(&events(list)) };
        let begun = match wire.name {
            "openai" => json!({"choices": [{"delta": {"content": "a"}}]}),
            "anthropic" => json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}}),
            "responses" => json!({"type": "response.output_text.delta", "output_index": 0, "delta": "a"}),
            _ => line(json!({"content": "a"}), false),
        };
        let garbled = match wire.name {
            "ollama" => response("200 OK", "content-type: application/x-ndjson\r\n", "{\"mess age\n"),
            _ => stream("data: {\"choi ces\n\n"),
        };
        let refused = |status: &str| response(status, "retry-after: 1\r\n", r#"{"error": {"message": "because: sk-hidden"}}"#);
        let silence = Duration::from_millis(80);
        for (what, answers, sentence) in [
            ("401", vec![refused("401 Unauthorized")], "refused the key (HTTP 401, because: ***)"),
            ("429", vec![refused("429 Too Many Requests")], "limits the rate of requests and asks to wait 1 s, because: ***"),
            ("503", vec![refused("503 Unavailable")], "failed (HTTP 503, because: ***): try again later"),
            ("400", vec![refused("400 Bad Request")], "does not take the request (HTTP 400, because: ***)"),
            ("cut", vec![answer(std::slice::from_ref(&begun))], "was cut off in the middle"),
            ("malformed", vec![garbled], "cannot be read"),
            ("silent", vec![], "has been silent for"),
        ] {
            let ask = Ask { retries: 0, silence: if what == "silent" { silence } else { Duration::from_secs(20) }, ..Ask::of(wire.name) };
            let error = ask.at(answers).reply.unwrap_err().to_string();
            assert!(error.contains(sentence) && !error.contains("sk-hidden"), "{} {what}: {error}", wire.name);
        }
        // What passes is tried again, and the request is the same.
        let good = match wire.name {
            "openai" => whole(&json!({"choices": [{"message": {"content": "ok"}, "finish_reason": "stop"}]})),
            "anthropic" => whole(&json!({"content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"})),
            "responses" => whole(&json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]})),
            _ => whole(&line(json!({"content": "ok"}), true)),
        };
        let soon = || response("429 Too Many Requests", "retry-after-ms: 1\r\n", "");
        let outcome = Ask::of(wire.name).at(vec![soon(), response("500 Oops", "retry-after: 0\r\n", ""), good]);
        assert_eq!((outcome.reply.unwrap().message.text.as_str(), outcome.asked.len()), ("ok", 3), "{}", wire.name);
        assert_eq!(outcome.asked[0].1, outcome.asked[2].1);
    }
}
