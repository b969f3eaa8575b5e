//! A server that means no good: nothing that it sends is waited for without end, grows without bound, takes the key elsewhere, or breaks the
//! host. Each answer is an error with a sentence, or a reply.

use super::tests::{Answer, Ask, Outcome, events, response, stream};
use super::*;
use serde_json::json;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const ALL: [&str; 4] = ["openai", "anthropic", "responses", "ollama"];

fn at(wire: &'static str, answer: Answer) -> Outcome {
    let began = Instant::now();
    let outcome = Ask { retries: 0, silence: Duration::from_secs(5), ..Ask::of(wire) }.at(vec![answer]);
    assert!(began.elapsed() < Duration::from_secs(20), "{wire} took {:?}", began.elapsed());
    outcome
}

/// A server that is written by hand, for what has no end. Its address.
fn server(serve: impl Fn(std::net::TcpStream) + Send + Sync + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream);
        }
    });
    address
}

fn ask(wire: &str, url: &str, set: impl FnOnce(&mut Settings)) -> Result<Reply, ProviderError> {
    let mut settings = Settings::new(url, "m");
    settings.key = Some(Secret::new("sk-hidden-from-others"));
    settings.retries = 0;
    set(&mut settings);
    let wire = WIRES.iter().find(|known| known.name == wire).unwrap();
    let provider = (wire.open)(settings).unwrap();
    let extra = Extra::new();
    let messages = [Message::user("hi")];
    let request = Request { messages: &messages, tools: &[], may_call: false, max_tokens: None, extra: &extra };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(provider.reply(request, &mut |_| {}))
}

#[test]
fn a_key_goes_to_nobody_to_whom_a_server_sends_us() {
    let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = asked.clone();
    let other = server(move |mut stream| {
        let mut head = [0; 4096];
        let length = stream.read(&mut head).unwrap_or(0);
        log.lock().unwrap().push(String::from_utf8_lossy(&head[..length]).into_owned());
    });
    for wire in ALL {
        for status in ["301 Moved Permanently", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"] {
            let answer = response(status, &format!("location: {other}/v1\r\nrefresh: 0; url={other}\r\n"), "");
            let error = at(wire, answer).reply.unwrap_err();
            assert!(matches!(error, ProviderError::BadRequest { .. }), "{wire} {status}: {error}");
            assert!(error.to_string().contains("base URL"), "{error}");
        }
    }
    assert!(asked.lock().unwrap().is_empty(), "somebody else was asked");
}

#[test]
fn what_never_ends_is_ended() {
    let drip = |first: &'static str, more: &'static str| {
        server(move |mut stream| {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(first.as_bytes()));
            std::thread::spawn(move || {
                while stream.write_all(more.as_bytes()).is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        })
    };
    // Signs of life that say nothing; one event that never ends, byte by byte.
    for url in [drip("", ": still here\n\n"), drip("", "\n"), drip("data: {\"x\": \"", "y")] {
        for wire in ALL {
            let began = Instant::now();
            let error = ask(wire, &url, |settings| settings.longest = Duration::from_millis(700)).unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(5), "{wire}: {:?}", began.elapsed());
            assert!(matches!(error, ProviderError::CutStream { .. } | ProviderError::MalformedChunk { .. }), "{wire}: {error}");
        }
    }
    // A refusal whose words never end, and a head that never ends.
    for head in ["HTTP/1.1 500 Oh\r\ncontent-type: text/plain\r\n\r\n", "HTTP/1.1 200 OK\r\n"] {
        let url = server(move |mut stream| {
            let _ = stream.write_all(head.as_bytes());
            std::thread::spawn(move || {
                while stream.write_all(b"x-a: b\r\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            });
        });
        let began = Instant::now();
        ask("openai", &url, |settings| settings.longest = Duration::from_millis(700)).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(5), "{head:?}: {:?}", began.elapsed());
    }
}

#[test]
fn what_grows_without_bound_is_bounded() {
    let flood = |kind: &'static str, piece: Vec<u8>| {
        server(move |mut stream| {
            // The question is heard first, as a server does.
            let _ = stream.read(&mut [0; 64 << 10]);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n\r\n");
            while stream.write_all(&piece).is_ok() {}
        })
    };
    for (url, what) in [
        (flood("text/event-stream", vec![b'x'; 1 << 20]), "one line"),
        (flood("text/event-stream", format!("data: {}\n", "x".repeat(1 << 20)).into_bytes()), "one event"),
        (flood("text/event-stream", format!(": {}\n\n", "x".repeat(1 << 20)).into_bytes()), "comments"),
        (flood("application/json", vec![b' '; 1 << 20]), "a body"),
    ] {
        let began = Instant::now();
        let error = ask("openai", &url, |_| {}).unwrap_err();
        assert!(matches!(error, ProviderError::TooLarge { .. }), "{what}: {error}");
        assert!(began.elapsed() < Duration::from_secs(30), "{what}: {:?}", began.elapsed());
    }
    // A head of a megabyte.
    let head = format!("HTTP/1.1 200 OK\r\nx-a: {}\r\n\r\n", "y".repeat(1 << 20));
    at("openai", vec![head.into_bytes()]).reply.unwrap_err();
    let head: String = (0..5_000).map(|n| format!("x-{n}: y\r\n")).collect();
    at("openai", vec![format!("HTTP/1.1 200 OK\r\n{head}\r\n").into_bytes()]).reply.unwrap_err();
}

#[test]
fn more_calls_than_a_model_makes_are_no_reply() {
    let many = |one: &dyn Fn(usize) -> Value| events(&(0..20_000).map(one).collect::<Vec<_>>());
    let rows: [(&str, String); 3] = [
        (
            "openai",
            many(
                &|n| json!({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": n, "id": format!("c{n}"), "function": {"name": "read", "arguments": "{}"}}]}}]}),
            ),
        ),
        (
            "anthropic",
            many(
                &|n| json!({"type": "content_block_start", "index": n, "content_block": {"type": "tool_use", "id": format!("c{n}"), "name": "read", "input": {}}}),
            ),
        ),
        (
            "responses",
            many(
                &|n| json!({"type": "response.output_item.added", "output_index": n, "item": {"type": "function_call", "call_id": format!("c{n}"), "name": "read", "arguments": "{}"}}),
            ),
        ),
    ];
    for (wire, body) in rows {
        let answer = response("200 OK", "content-type: text/event-stream\r\n", &body);
        let error = at(wire, answer).reply.unwrap_err();
        assert!(error.to_string().contains("more than 1000"), "{wire}: {error}");
    }
    // Whole replies, and Ollama's lines.
    let calls: Vec<Value> = (0..1001).map(|n| json!({"id": format!("c{n}"), "function": {"name": "read", "arguments": "{}"}})).collect();
    let whole = json!({"choices": [{"message": {"role": "assistant", "tool_calls": calls}, "finish_reason": "tool_calls"}]});
    let error = at("openai", super::tests::whole(&whole)).reply.unwrap_err();
    assert!(error.to_string().contains("more than 1000"), "{error}");
    let whole = json!({"message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": true});
    let error = at("ollama", super::tests::whole(&whole)).reply.unwrap_err();
    assert!(error.to_string().contains("more than 1000"), "{error}");
}

#[test]
fn strange_bytes_and_numbers_break_nothing() {
    let nested = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let chunk = |usage: &str| {
        format!(
            "data: {{\"choices\": [{{\"index\": 0, \"delta\": {{\"content\": \"hi\"}}, \"finish_reason\": \"stop\"}}], \"usage\": {usage}}}\n\ndata: [DONE]\n\n"
        )
    };
    // Numbers that nobody counted to.
    for usage in [
        "{\"prompt_tokens\": 18446744073709551615, \"completion_tokens\": 18446744073709551615}",
        "{\"prompt_tokens\": -1, \"completion_tokens\": 1e300}",
        "{\"prompt_tokens\": \"many\", \"prompt_tokens_details\": {\"cached_tokens\": 99}}",
        "[]",
        "7",
    ] {
        let reply = at("openai", stream(&chunk(usage))).reply.unwrap_or_else(|error| panic!("{usage}: {error}"));
        assert_eq!(reply.message.text, "hi", "{usage}");
    }
    for wire in ALL {
        for body in [
            nested.as_bytes().to_vec(),
            format!("data: {nested}\n\n").into_bytes(),
            b"data: \xff\xfe\xf0\x9f\n\n".to_vec(),
            b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03".to_vec(),
            b"data: null\n\ndata: []\n\ndata: 1\n\n".to_vec(),
            b"event: \0\ndata: {\"type\": \"\0\"}\n\n".to_vec(),
            b"{\"choices\": [{\"message\": 7}]}".to_vec(),
        ] {
            for head in ["content-type: text/event-stream\r\n", "content-type: application/json\r\n", "content-encoding: gzip\r\n"] {
                let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n{head}\r\n", body.len());
                // Of nothing that was said comes a reply of nothing, or an error.
                match at(wire, vec![head.into_bytes(), body.clone()]).reply {
                    Ok(reply) => assert!(reply.message.text.is_empty() && reply.message.calls.is_empty(), "{wire}: {reply:?}"),
                    Err(error) => {
                        let said = error.to_string();
                        assert!(said.len() < 2_000 && !said.contains(|c: char| c.is_control()), "{wire}: {said:?}");
                    }
                }
            }
        }
    }
    // What it asks us to wait is its own affair.
    for wait in ["99999999999999999999", "1e300", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let answer = response("429 Too Many Requests", &format!("retry-after: {wait}\r\n"), "{}");
        let began = Instant::now();
        let error = Ask { patience: Duration::from_secs(2), ..Ask::default() }.at(vec![answer]).reply.unwrap_err();
        assert!(matches!(error, ProviderError::RateLimited { .. }) && began.elapsed() < Duration::from_secs(5), "{wait}: {error}");
    }
}
