//! The wires against a server on loopback that answers with recorded shapes and keeps what it was asked.

use super::*;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// One answer of the server: the bytes of a whole HTTP response, in pieces.
pub(super) type Answer = Vec<Vec<u8>>;

pub(super) fn response(status: &str, headers: &str, body: &str) -> Answer {
    let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    vec![head.into_bytes(), body.as_bytes().to_vec()]
}

pub(super) fn whole(body: &Value) -> Answer {
    response("200 OK", "content-type: application/json\r\n", &body.to_string())
}

/// A stream that ends with the connection, in pieces of seven bytes, so that events and characters are split.
pub(super) fn stream(body: &str) -> Answer {
    let head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n".to_vec();
    std::iter::once(head).chain(body.as_bytes().chunks(7).map(<[u8]>::to_vec)).collect()
}

pub(super) fn events(list: &[Value]) -> String {
    list.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// What came of a conversation with the server.
pub(super) struct Outcome {
    pub(super) reply: Result<Reply, ProviderError>,
    /// What was shown.
    pub(super) shown: Vec<String>,
    /// The requests: head and body.
    pub(super) asked: Vec<(String, Value)>,
}

pub(super) struct Ask {
    pub(super) wire: &'static str,
    pub(super) stream: bool,
    pub(super) messages: Vec<Message>,
    pub(super) may_call: bool,
    pub(super) extra: Extra,
    pub(super) silence: Duration,
    pub(super) longest: Duration,
    pub(super) retries: u32,
    pub(super) patience: Duration,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            wire: "openai",
            stream: true,
            messages: vec![Message::system("be brief"), Message::user("hi")],
            may_call: true,
            extra: Extra::new(),
            silence: Duration::from_secs(20),
            longest: Duration::from_secs(60),
            retries: 2,
            patience: Duration::from_secs(20),
        }
    }
}

impl Ask {
    pub(super) fn of(wire: &'static str) -> Self {
        Self { wire, ..Self::default() }
    }

    /// Asks a server that gives these answers in turn, and then none.
    pub(super) fn at(self, answers: Vec<Answer>) -> Outcome {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let server = tokio::spawn(async move {
                let mut answers = answers.into_iter();
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let request = read_request(&mut socket).await;
                    tell.send(request).unwrap();
                    // With no answer left, the connection stays open and silent.
                    let Some(answer) = answers.next() else { return std::future::pending::<()>().await };
                    for piece in answer {
                        if socket.write_all(&piece).await.is_err() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                }
            });
            let mut settings = Settings::new(url, "a-model");
            settings.key = Some(Secret::new("sk-hidden"));
            settings.stream = self.stream;
            settings.silence = self.silence;
            settings.longest = self.longest;
            settings.retries = self.retries;
            settings.patience = self.patience;
            let wire = WIRES.iter().find(|wire| wire.name == self.wire).unwrap();
            let provider = (wire.open)(settings).unwrap();
            let tools = [ToolSchema { name: "read".into(), description: "Reads.".into(), parameters: json!({"type": "object"}) }];
            let request =
                Request { messages: &self.messages, tools: &tools, may_call: self.may_call, max_tokens: Some(100), extra: &self.extra };
            let mut shown = Vec::new();
            let mut show = |progress: Progress<'_>| {
                shown.push(match progress {
                    Progress::Text(text) => format!("text {text}"),
                    Progress::Thinking(text) => format!("thinking {text}"),
                    Progress::Retry { wait_ms, .. } => format!("retry {wait_ms}"),
                });
            };
            let reply = provider.reply(request, &mut show).await;
            server.abort();
            let mut asked = Vec::new();
            while let Ok(request) = told.try_recv() {
                asked.push(request);
            }
            Outcome { reply, shown, asked }
        })
    }
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> (String, Value) {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = socket.read(&mut piece).await.unwrap();
        assert!(count > 0, "the request ended early");
        bytes.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()).unwrap();
        if body.len() >= length {
            return (head.to_owned(), serde_json::from_str(body).unwrap());
        }
    }
}

fn chunk(delta: &Value, finish: Value) -> Value {
    json!({"id": "c-1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

#[test]
fn openai_streams_text_thinking_and_parallel_calls() {
    let body = events(&[
        chunk(&json!({"role": "assistant", "content": "", "refusal": null}), Value::Null),
        chunk(&json!({"reasoning_content": "hm"}), Value::Null),
        chunk(&json!({"content": "Grüß "}), Value::Null),
        chunk(&json!({"content": "dich"}), Value::Null),
        chunk(
            &json!({"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "read", "arguments": ""}, "extra_content": {"signature": "s"}}]}),
            Value::Null,
        ),
        chunk(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"pa"}}]}), Value::Null),
        chunk(
            &json!({"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]}),
            Value::Null,
        ),
        chunk(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "th\":\"ä\"}"}}]}), Value::Null),
        chunk(&json!({}), json!("tool_calls")),
        json!({"id": "c-1", "choices": [], "usage": {"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 30}}}),
    ]) + "data: [DONE]\n\n";
    let outcome = Ask::default().at(vec![stream(&body)]);
    let reply = outcome.reply.unwrap();
    assert_eq!(reply.message.text, "Grüß dich");
    assert_eq!(reply.message.calls, [call("a", "read", r#"{"path":"ä"}"#), call("b", "ls", "{}")]);
    assert_eq!(reply.message.thinking, [json!({"reasoning_content": "hm"})]);
    assert_eq!(reply.stop, Stop::ToolCalls);
    assert_eq!(reply.usage, Usage { input: 20, output: 7, cache_read: 30, cache_write: 0 });
    assert_eq!(reply.extra["id"], "c-1");
    assert_eq!(outcome.shown, ["thinking hm", "text Grüß ", "text dich"]);

    let (head, asked) = &outcome.asked[0];
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("authorization: Bearer sk-hidden"), "{head}");
    assert_eq!(
        *asked,
        json!({
            "model": "a-model",
            "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {"type": "object"}}}],
            "max_tokens": 100, "stream": true, "stream_options": {"include_usage": true},
        })
    );

    // The message goes back as it came, to this wire; a made-up form of it goes to another.
    let result = Message::Tool { id: "a".into(), name: "read".into(), text: "x".into(), failed: false, extra: Extra::new() };
    let messages = vec![Message::user("hi"), Message::Assistant(reply.message), result];
    let extra = Extra::from_iter([("stream_options".to_owned(), Value::Null), ("top_k".to_owned(), json!(4))]);
    let outcome = Ask { messages: messages.clone(), may_call: false, extra, ..Ask::default() }.at(vec![stream("data: [DONE]\n\n")]);
    let asked = &outcome.asked[0].1;
    assert_eq!(
        asked["messages"][1],
        json!({"role": "assistant", "content": "Grüß dich", "reasoning_content": "hm", "tool_calls": [
            {"extra_content": {"signature": "s"}, "id": "a", "type": "function", "function": {"name": "read", "arguments": "{\"path\":\"ä\"}"}},
            {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]})
    );
    assert_eq!(asked["messages"][2], json!({"role": "tool", "tool_call_id": "a", "content": "x"}));
    assert_eq!((&asked["tool_choice"], &asked["top_k"], asked.get("stream_options")), (&json!("none"), &json!(4), None));
    let outcome = Ask { messages, ..Ask::of("anthropic") }.at(vec![whole(&json!({"content": []}))]);
    assert_eq!(
        outcome.asked[0].1["messages"][1],
        json!({"role": "assistant", "content": [{"type": "text", "text": "Grüß dich"},
            {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "ä"}}, {"type": "tool_use", "id": "b", "name": "ls", "input": {}}]})
    );
}

#[test]
fn quirks_of_local_servers_are_accepted() {
    let calls = |list: Value| chunk(&json!({"tool_calls": list}), Value::Null);
    let stop = |reason: &str| chunk(&json!({}), json!(reason));
    for (what, body, names, arguments) in [
        (
            "no ids, no index, a whole call in one piece, no [DONE], no usage",
            events(&[
                calls(json!([{"function": {"name": "read", "arguments": "{}"}}, {"function": {"name": "ls", "arguments": "{}"}}])),
                stop("stop"),
            ]),
            vec!["read", "ls"],
            vec!["{}", "{}"],
        ),
        (
            "arguments as an object",
            events(&[
                calls(json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": {"path": "a"}}}])),
                stop("tool_calls"),
            ]),
            vec!["read"],
            vec![r#"{"path":"a"}"#],
        ),
        (
            "one index and one id for all calls, one after the other",
            events(&[
                calls(json!([{"index": 0, "id": "x", "function": {"name": "read", "arguments": "{\"a\""}}])),
                calls(json!([{"index": 0, "id": "x", "function": {"arguments": ":1}"}}])),
                calls(json!([{"index": 0, "id": "y", "function": {"name": "ls", "arguments": "{}"}}])),
                stop("tool_calls"),
            ]),
            vec!["read", "ls"],
            vec![r#"{"a":1}"#, "{}"],
        ),
        (
            "no empty line at the end, CR LF, comments, an empty data line",
            format!(
                ": hi\r\n\r\ndata:\r\n\r\ndata: {}\r\n\r\ndata: {}",
                calls(json!([{"id": "x", "function": {"name": "ls"}}])),
                stop("stop")
            ),
            vec!["ls"],
            vec![""],
        ),
    ] {
        let reply = Ask::default().at(vec![stream(&body)]).reply.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(reply.message.calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), names, "{what}");
        assert_eq!(reply.message.calls.iter().map(|call| call.arguments.as_str()).collect::<Vec<_>>(), arguments, "{what}");
        assert_eq!(reply.stop, Stop::ToolCalls, "{what}");
        let ids: std::collections::HashSet<&str> = reply.message.calls.iter().map(|call| call.id.as_str()).collect();
        assert!(ids.len() == names.len() && !ids.contains(""), "{what}: {ids:?}");
    }

    // A stream was asked for, a body came; and the other way round.
    let body =
        json!({"choices": [{"message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}, "finish_reason": "stop"}]});
    assert_eq!(Ask::default().at(vec![whole(&body)]).reply.unwrap().message.text, "hi");
    let text = events(&[chunk(&json!({"content": "hi"}), json!("stop"))]);
    let outcome = Ask { stream: false, ..Ask::default() }.at(vec![response("200 OK", "content-type: text/plain\r\n", &text)]);
    assert_eq!(outcome.reply.unwrap().message.text, "hi");
    assert_eq!(outcome.asked[0].1.get("stream"), None);
}

#[test]
fn why_a_reply_ended_is_told_apart() {
    for (message, finish, stop) in [
        (json!({"content": "a"}), "stop", Stop::Done),
        (json!({"content": "a"}), "length", Stop::Length),
        (json!({"tool_calls": [{"id": "x", "function": {"name": "ls", "arguments": "{\"pa"}}]}), "length", Stop::Length),
        (json!({"content": "a"}), "content_filter", Stop::Refusal),
        (json!({"content": null, "refusal": "No."}), "stop", Stop::Refusal),
        (json!({"content": "a"}), "odd", Stop::Other),
    ] {
        let reply = Ask::default().at(vec![whole(&json!({"choices": [{"message": message, "finish_reason": finish}]}))]).reply.unwrap();
        assert_eq!(reply.stop, stop, "{message} {finish}");
    }
    for (reason, stop) in [("end_turn", Stop::Done), ("max_tokens", Stop::Length), ("refusal", Stop::Refusal), ("pause_turn", Stop::Other)]
    {
        let body = json!({"type": "message", "content": [{"type": "text", "text": "a"}], "stop_reason": reason});
        assert_eq!(Ask::of("anthropic").at(vec![whole(&body)]).reply.unwrap().stop, stop, "{reason}");
    }
}

#[test]
fn anthropic_streams_and_its_blocks_go_back_verbatim() {
    let list = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m",
            "stop_reason": null, "usage": {"input_tokens": 9, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}}),
        json!({"type": "ping"}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "let me "}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "see"}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqoB"}}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "content_block_start", "index": 1, "content_block": {"type": "redacted_thinking", "data": "xyz", "new": [1]}}),
        json!({"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Grüße"}}),
        json!({"type": "content_block_start", "index": 3, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}}}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": ""}}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "{\"path\": "}}),
        json!({"type": "content_block_delta", "index": 3, "delta": {"type": "input_json_delta", "partial_json": "\"a\"}"}}),
        json!({"type": "something_new"}),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 40}}),
        json!({"type": "message_stop"}),
    ];
    let body: String = list.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect();
    let outcome = Ask::of("anthropic").at(vec![stream(&body)]);
    let reply = outcome.reply.unwrap();
    let (head, asked) = &outcome.asked[0];
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n") && head.contains("x-api-key: sk-hidden"), "{head}");
    assert!(head.contains("anthropic-version: 2023-06-01"), "{head}");
    assert_eq!(
        *asked,
        json!({"model": "a-model", "max_tokens": 100,
            "system": [{"type": "text", "text": "be brief", "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}],
            "tools": [{"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}], "stream": true})
    );
    assert_eq!(outcome.shown, ["thinking let me ", "thinking see", "text Grüße"]);
    assert_eq!(reply.message.text, "Grüße");
    assert_eq!(reply.message.calls, [call("toolu_1", "read", "{\"path\": \"a\"}")]);
    assert_eq!(reply.stop, Stop::ToolCalls);
    assert_eq!(reply.usage, Usage { input: 9, output: 40, cache_read: 5, cache_write: 2 });
    let blocks = json!([
        {"type": "thinking", "thinking": "let me see", "signature": "EqoB"},
        {"type": "redacted_thinking", "data": "xyz", "new": [1]},
        {"type": "text", "text": "Grüße"},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
    ]);
    assert_eq!(json!(reply.message.blocks), blocks);

    // Also after a stay in a transcript.
    let kept: Message = serde_json::from_str(&serde_json::to_string(&Message::Assistant(reply.message.clone())).unwrap()).unwrap();
    assert_eq!(kept, Message::Assistant(reply.message));
    let result = |id: &str| Message::Tool { id: id.into(), name: "read".into(), text: "x".into(), failed: id == "b", extra: Extra::new() };
    let messages = vec![Message::user("hi"), kept, result("toolu_1"), result("b"), Message::user("go on")];
    let outcome = Ask { messages, may_call: false, ..Ask::of("anthropic") }.at(vec![stream(&body)]);
    let asked = &outcome.asked[0].1;
    assert_eq!(asked["messages"][1], json!({"role": "assistant", "content": blocks}));
    assert_eq!(
        asked["messages"][2]["content"],
        json!([{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "x"}], "is_error": false},
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "x"}], "is_error": true},
            {"type": "text", "text": "go on", "cache_control": {"type": "ephemeral"}}])
    );
    assert_eq!(asked["tool_choice"], json!({"type": "none"}));
}

#[test]
fn each_failure_has_its_own_error() {
    let refused = |status: &str| response(status, "", r#"{"error": {"message": "because: sk-hidden", "type": "x"}}"#);
    let once = || Ask { retries: 0, ..Ask::default() };
    let error = |outcome: Outcome| outcome.reply.unwrap_err();

    let auth = error(once().at(vec![refused("401 Unauthorized")]));
    assert!(matches!(&auth, ProviderError::Auth { status: 401, .. }));
    assert!(auth.to_string().contains("because: ***") && auth.to_string().contains("check the key"), "{auth}");
    assert!(matches!(error(once().at(vec![refused("403 Forbidden")])), ProviderError::Auth { status: 403, .. }));
    assert!(matches!(error(once().at(vec![refused("404 Not Found")])), ProviderError::BadRequest { status: 404, .. }));
    assert!(matches!(error(once().at(vec![refused("302 Found")])), ProviderError::BadRequest { status: 302, .. }));
    assert!(matches!(error(once().at(vec![refused("529 Overloaded")])), ProviderError::Server { status: 529, .. }));
    let limited = error(once().at(vec![response("429 Too Many", "retry-after: 7\r\n", "slow down")]));
    assert!(limited.to_string().contains("asks to wait 7 s, slow down"), "{limited}");

    let cut = error(once().at(vec![stream(&events(&[chunk(&json!({"content": "a"}), Value::Null)]))]));
    assert!(matches!(cut, ProviderError::CutStream { .. }), "{cut}");
    let cut = error(once().at(vec![stream("data: {\"choices\": [{\"del")]));
    assert!(matches!(cut, ProviderError::CutStream { .. }), "{cut}");
    let malformed = error(once().at(vec![stream("data: {\"choices\": [nonsense\n\n")]));
    assert!(malformed.to_string().contains("nonsense") && matches!(malformed, ProviderError::MalformedChunk { .. }), "{malformed}");
    let malformed = error(once().at(vec![response("200 OK", "", "<html>")]));
    assert!(malformed.to_string().contains("<html>") && malformed.to_string().contains("openai wire"), "{malformed}");
    assert!(matches!(error(once().at(vec![whole(&json!({"ok": true}))])), ProviderError::MalformedChunk { .. }));
    assert!(matches!(
        error(once().at(vec![stream(&events(&[json!({"error": {"message": "out of memory"}})]))])),
        ProviderError::Server { .. }
    ));

    let silent = Ask { silence: Duration::from_millis(50), ..once() }.at(vec![]);
    assert!(matches!(error(silent), ProviderError::Silent { .. }));

    let overloaded =
        "event: error\ndata: {\"type\": \"error\", \"error\": {\"type\": \"overloaded_error\", \"message\": \"Overloaded\"}}\n\n";
    assert!(matches!(
        error(Ask { retries: 0, ..Ask::of("anthropic") }.at(vec![stream(overloaded)])),
        ProviderError::Server { status: 529, .. }
    ));

    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut settings = Settings::new(format!("http://{closed}"), "m");
    settings.retries = 0;
    let provider = openai::OpenAi::new(settings).unwrap();
    let extra = Extra::new();
    let request = Request { messages: &[], tools: &[], may_call: true, max_tokens: None, extra: &extra };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let unreachable = runtime.block_on(provider.reply(request, &mut |_| {})).unwrap_err();
    assert!(unreachable.to_string().contains("refused") && matches!(unreachable, ProviderError::Unreachable { .. }), "{unreachable}");
}

#[test]
fn passing_failures_are_retried_until_something_was_seen() {
    let good = || stream(&events(&[chunk(&json!({"content": "ok"}), json!("stop"))]));
    let limited = || response("429 Too Many", "retry-after-ms: 1\r\n", "");
    let failed = || response("503 Busy", "retry-after: 0\r\n", "");

    let outcome = Ask::default().at(vec![limited(), failed(), good()]);
    assert_eq!(outcome.reply.unwrap().message.text, "ok");
    assert_eq!((outcome.asked.len(), outcome.shown), (3, vec!["retry 1".into(), "retry 0".into(), "text ok".into()]));
    assert_eq!(outcome.asked[0].1, outcome.asked[2].1);

    // No more than the retries; not longer than the patience; not what will not pass.
    let outcome = Ask { retries: 1, ..Ask::default() }.at(vec![failed(), failed(), good()]);
    assert_eq!((outcome.asked.len(), outcome.reply.unwrap_err().is_passing()), (2, true));
    let outcome = Ask::default().at(vec![response("429 Too Many", "retry-after: 3600\r\n", ""), good()]);
    assert_eq!((outcome.asked.len(), outcome.shown.len()), (1, 0));
    assert_eq!(outcome.reply.unwrap_err().retry_after_ms(), Some(3_600_000));
    let outcome = Ask::default().at(vec![response("400 Bad", "retry-after: 0\r\n", ""), good()]);
    assert_eq!(outcome.asked.len(), 1);

    // A cut before the first token is tried again, after it never.
    let outcome = Ask::default().at(vec![stream(": nothing\n\n"), good()]);
    assert_eq!((outcome.asked.len(), outcome.reply.is_ok()), (2, true));
    for begun in [json!({"content": "a"}), json!({"reasoning": "a"}), json!({"tool_calls": [{"id": "x", "function": {"name": "ls"}}]})] {
        let outcome = Ask::default().at(vec![stream(&events(&[chunk(&begun, Value::Null)])), good()]);
        assert!(matches!(outcome.reply, Err(ProviderError::CutStream { .. })));
        assert_eq!(outcome.asked.len(), 1, "{begun}");
    }
}

#[test]
fn malformed_arguments_go_back_as_something_a_server_can_read() {
    let reply = json!({"choices": [{"message": {"tool_calls": [{"id": "x y", "function": {"name": "ls", "arguments": "{\"pa"}}]}, "finish_reason": "stop"}]});
    let message = Ask::default().at(vec![whole(&reply)]).reply.unwrap().message;
    assert_eq!(message.calls, [call("x y", "ls", "{\"pa")]);
    let messages = vec![Message::user("hi"), Message::Assistant(message)];
    let outcome = Ask { messages: messages.clone(), ..Ask::default() }.at(vec![stream("data: [DONE]\n\n")]);
    assert_eq!(outcome.asked[0].1["messages"][1]["tool_calls"][0]["function"]["arguments"], r#"{"malformed":"{\"pa"}"#);
    let outcome = Ask { messages, ..Ask::of("anthropic") }.at(vec![whole(&json!({"content": []}))]);
    let block = &outcome.asked[0].1["messages"][1]["content"][0];
    assert_eq!((&block["id"], &block["input"]), (&json!("x_y"), &json!({"malformed": "{\"pa"})));
}
