//! One task over every wire against a server that no one here wrote, and what a run does when that server misbehaves.
//!
//! The server is `@copilotkit/aimock`, an npm package; `.ci/run` installs it into a cache folder. Where it is missing, a test says so,
//! and fails under CI.

use crate::space::{Space, path};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const TASK: &str = include_str!("models/task.toml");

/// The replies of the task.
fn replies() -> Vec<Value> {
    let task: Value = toml::from_str(TASK).unwrap();
    task["reply"].as_array().unwrap().clone()
}

fn workspace() -> Space {
    Space::new().file("greet.sh", "echo helo\n")
}

/// The cached server's script; under CI it has to be there.
fn aimock() -> Option<PathBuf> {
    let cache =
        std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let script = cache?.join("bailiwick-tests/aimock/node_modules/@copilotkit/aimock/dist/cli.js");
    let there = script.is_file() && crate::space::has("node");
    assert!(there || std::env::var_os("CI").is_none(), "CI lacks the model server: .ci/run installs it");
    there.then_some(script)
}

/// The server, ended when this goes.
struct Server {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(fixtures: &[Value], flags: &[&str]) -> Option<Self> {
        let script = aimock()?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fixtures.json");
        std::fs::write(&file, json!({ "fixtures": fixtures }).to_string()).unwrap();
        // A port that was free a moment ago; the server cannot choose one itself.
        for _ in 0..5 {
            let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = Command::new("node")
                .arg(&script)
                .args(["-p", &port.to_string(), "-f", file.to_str().unwrap(), "--strict", "--log-level", "silent"])
                .args(flags)
                .env_clear()
                .env("PATH", path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Some(Self { child, port, _folder: folder });
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("the model server did not start");
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What it was asked, oldest first.
    fn journal(&self) -> Vec<Value> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(socket, "GET /v1/_requests HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut reader = BufReader::new(socket);
        let (mut line, mut chunked) = (String::new(), false);
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
            chunked |= line.to_ascii_lowercase().starts_with("transfer-encoding: chunked");
        }
        let mut body = Vec::new();
        if chunked {
            loop {
                line.clear();
                reader.read_line(&mut line).unwrap();
                let length = u64::from_str_radix(line.trim(), 16).unwrap();
                if length == 0 {
                    break;
                }
                reader.by_ref().take(length).read_to_end(&mut body).unwrap();
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
        } else {
            reader.read_to_end(&mut body).unwrap();
        }
        serde_json::from_slice(&body).unwrap()
    }
}

/// A reply of the task as a fixture, said natively or by the text protocol.
fn fixture(reply: &Value, turn: usize, model: &str, native: bool) -> Value {
    let text = reply["text"].as_str().unwrap_or_default();
    let calls = reply.get("calls").and_then(Value::as_array).cloned().unwrap_or_default();
    let response = if native && !calls.is_empty() {
        json!({"content": text, "toolCalls": calls})
    } else {
        let written = calls.iter().map(|call| {
            let call = bailiwick::session::Call {
                id: String::new(),
                tool: call["name"].as_str().unwrap().into(),
                args: call["arguments"].clone(),
            };
            format!("\n{}", bailiwick::dialect::text::print(&call))
        });
        json!({"content": format!("{text}{}", written.collect::<String>())})
    };
    json!({"match": {"model": model, "turnIndex": turn}, "response": response})
}

fn fixtures() -> Vec<Value> {
    let replies = replies();
    let both = [("native", true), ("text", false)].into_iter();
    let of = |(model, native): (&str, bool)| -> Vec<Value> {
        replies.iter().enumerate().map(|(turn, reply)| fixture(reply, turn, model, native)).collect()
    };
    let mut all: Vec<Value> = both.flat_map(of).collect();
    // The server takes each item of Responses for a message of its own, so that turns cannot be told by their number.
    for model in ["items-true", "items-false"] {
        all.extend(replies.iter().enumerate().map(|(turn, reply)| {
            let mut fixture = fixture(reply, turn, model, true);
            fixture["match"] = json!({"model": model, "sequenceIndex": turn});
            fixture
        }));
    }
    all
}

/// What a run left.
struct Ran {
    code: Option<i32>,
    said: String,
    patch: String,
    result: Value,
    events: Vec<Value>,
}

fn run(space: &Space, task: &str, args: &[&str]) -> Ran {
    let out = space.path("out");
    let output = space.run(["run", task, "--out", out.to_str().unwrap()].iter().chain(args));
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
    Ran {
        code: output.status.code(),
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
        patch: read("changes.patch"),
        result: serde_json::from_str(&read("result.json")).unwrap_or_default(),
        events: read("transcript.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}

const GOAL: &str = "Mend greet.sh";

/// What was called and what came of it, without ids and times.
fn acts(ran: &Ran) -> Vec<Value> {
    let mut calls = std::collections::HashMap::new();
    let mut acts = Vec::new();
    for event in &ran.events {
        match event["type"].as_str().unwrap() {
            "call_started" => {
                calls.insert(event["call"]["id"].clone(), event["call"].clone());
            }
            "call_ended" => {
                let call = &calls[&event["id"]];
                acts.push(json!([call["tool"], call["args"], event["envelope"]["success"], event["envelope"]["data"].get("code")]));
            }
            _ => {}
        }
    }
    acts
}

#[test]
fn one_task_over_every_wire_streamed_and_not() {
    let space = workspace();
    let script = space.path("task.toml");
    std::fs::write(&script, TASK).unwrap();
    let scripted = run(&space, GOAL, &["--model", &format!("script:{}", script.display())]);
    assert_eq!(scripted.code, Some(0), "{}", scripted.said);
    assert_eq!(acts(&scripted).len(), 5, "{:?}", acts(&scripted));
    assert!(scripted.patch.contains("+echo hello \"wörld\""), "{}", scripted.patch);

    let Some(server) = Server::start(&fixtures(), &["-c", "7"]) else { crate::skip!("no aimock: see .ci/run") };
    for (wire, native, endpoint) in [
        ("openai", true, "/v1/chat/completions"),
        ("anthropic", true, "/v1/messages"),
        ("openai", false, "/v1/chat/completions"),
        ("anthropic", false, "/v1/messages"),
        ("responses", true, "/v1/responses"),
        ("ollama", true, "/api/chat"),
        ("ollama", false, "/api/chat"),
    ] {
        for stream in [true, false] {
            let what = format!("{wire}, native {native}, stream {stream}");
            let space = workspace().env("OPENAI_API_KEY", "sk-of-the-test").env("ANTHROPIC_API_KEY", "sk-of-the-test");
            let model = match (wire, native) {
                ("responses", _) => format!("{wire}:items-{stream}"),
                (_, true) => format!("{wire}:native"),
                (_, false) => format!("{wire}:text"),
            };
            let url = server.url();
            let mut args = vec!["--model", &model, "--base-url", &url];
            args.extend((!native).then_some("--text-protocol"));
            args.extend((!stream).then_some("--no-stream"));
            let before = server.journal().len();
            let ran = run(&space, GOAL, &args);
            assert_eq!(ran.code, Some(0), "{what}: {}", ran.said);
            assert_eq!((acts(&ran), &ran.patch), (acts(&scripted), &scripted.patch), "{what}");
            assert_eq!((&ran.result["turns"], &ran.result["answer"]), (&json!(4), &json!("Mended: greet.sh says hello.")), "{what}");

            let asked = server.journal().split_off(before);
            assert_eq!(asked.len(), 4, "{what}");
            for (turn, request) in asked.iter().enumerate() {
                let body = &request["body"];
                assert_eq!((&request["path"], &request["response"]["status"]), (&json!(endpoint), &json!(200)), "{what}");
                assert_eq!(body["stream"].as_bool().unwrap_or(false), stream, "{what}: {body}");
                assert_eq!(body.get("tools").is_some_and(|tools| tools.as_array().is_some_and(|tools| tools.len() > 7)), native, "{what}");
                let key = if wire == "anthropic" { "x-api-key" } else { "authorization" };
                assert_eq!(request["headers"].get(key).is_some(), wire != "ollama", "{what}: {}", request["headers"]);
                let messages = body["messages"].as_array().unwrap();
                let said = messages.iter().filter(|message| message["role"] == "assistant").count();
                // A reply of several items is several messages in the journal's form of Responses.
                assert!(if wire == "responses" { said >= turn } else { said == turn }, "{what}: {messages:#?}");
                let results: Vec<&Value> = messages.iter().filter(|message| message["role"] == "tool").collect();
                if native {
                    assert_eq!(results.len(), [0, 2, 3, 5][turn], "{what}: {messages:#?}");
                    let calls: Vec<&Value> =
                        messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten().map(|call| &call["id"]).collect();
                    if wire != "ollama" {
                        let answered: Vec<&Value> = results.iter().map(|result| &result["tool_call_id"]).collect();
                        assert_eq!(calls, answered, "{what}");
                    }
                } else {
                    assert!(results.is_empty(), "{what}");
                    let last = messages.last().unwrap()["content"].to_string();
                    assert!(turn == 0 || last.contains("Results of the calls, in their order"), "{what}: {last}");
                    assert!(body["messages"][0]["content"].to_string().contains("[TOOL]"), "{what}: the protocol is taught");
                }
            }
        }
    }
}

#[test]
fn chaos_is_survived_and_named() {
    let error = |model: &str, at: usize, status: u16, message: &str| json!({"match": {"model": model, "sequenceIndex": at}, "response": {"error": {"message": message, "type": "x"}, "status": status}});
    let good = |model: &str| json!({"match": {"model": model}, "response": {"content": "All is well."}});
    let mut fixtures = vec![error("limited", 0, 429, "slow down"), error("limited", 1, 503, "busy"), good("limited")];
    fixtures.extend([error("locked", 0, 401, "sk-of-the-test is no key"), error("locked", 1, 401, "no")]);
    fixtures.push(
        json!({"match": {"model": "cut"}, "response": {"content": "one two three four five six seven eight"}, "truncateAfterChunks": 2}),
    );
    fixtures.extend([
        json!({"match": {"model": "dropped"}, "response": {"content": "x"}, "chaos": {"dropRate": 1}}),
        json!({"match": {"model": "garbled"}, "response": {"content": "x"}, "chaos": {"malformedRate": 1}}),
        json!({"match": {"model": "hung-up"}, "response": {"content": "x"}, "chaos": {"disconnectRate": 1}}),
        json!({"match": {"model": "slow"}, "response": {"content": "x"}, "chaos": {"latencyMs": 30000}}),
    ]);
    let Some(server) = Server::start(&fixtures, &["-c", "5", "-l", "20"]) else { crate::skip!("no aimock: see .ci/run") };
    for wire in ["openai", "anthropic", "responses", "ollama"] {
        for (model, code, sentence) in [
            ("limited", 0, ""),
            ("locked", 6, "refused the key (HTTP 401"),
            ("cut", 6, "was cut off in the middle"),
            ("dropped", 6, "failed (HTTP 500"),
            ("garbled", 6, "cannot be read"),
            ("hung-up", 6, "was cut off in the middle"),
            ("slow", 6, "has been silent for 1 s"),
        ] {
            // The server counts sequences for all wires together.
            if matches!(model, "limited" | "locked") && wire != "openai" {
                continue;
            }
            let space = workspace().env("OPENAI_API_KEY", "sk-of-the-test").env("ANTHROPIC_API_KEY", "sk-of-the-test");
            let (name, url) = (format!("{wire}:{model}"), server.url());
            let ran = run(
                &space,
                GOAL,
                &["--model", &name, "--base-url", &url, "--silence", "1", "--retries", if model == "limited" { "3" } else { "1" }],
            );
            assert_eq!(ran.code, Some(code), "{name}: {}", ran.said);
            let message = ran.result["message"].as_str().unwrap_or_default();
            assert!(message.contains(sentence), "{name}: {message}");
            assert!(!format!("{} {}", ran.said, ran.result).contains("sk-of-the-test"), "{name}: {}", ran.said);
            assert_eq!(ran.events.last().unwrap()["type"], "run_ended", "{name}: the transcript has its end");
            assert_eq!(ran.result["patch_error"], Value::Null, "{name}");
        }
    }
}

#[test]
fn a_model_is_found_where_none_is_named() {
    let fixtures = [
        json!({"match": {"model": "text-embedding-of-the-test"}, "response": {"content": "x"}}),
        json!({"match": {"model": "able"}, "response": {"content": "All is well."}}),
    ];
    let Some(server) = Server::start(&fixtures, &[]) else { crate::skip!("no aimock: see .ci/run") };
    let space = workspace().env("OLLAMA_HOST", &format!("127.0.0.1:{}", server.port));
    let ran = run(&space, GOAL, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert!(ran.said.contains("the model is ollama:able, of the server at"), "one for vectors is passed over: {}", ran.said);
    assert_eq!(ran.result["model"], "ollama:able");
    assert_eq!(ran.result["cost_usd"], 0.0, "what runs here costs nothing");
    let space = workspace();
    let ran = run(&space, GOAL, &["--base-url", &server.url()]);
    assert_eq!((ran.code, &ran.result["model"]), (Some(0), &json!("openai:able")), "{}", ran.said);
    // A key decides before a local server does; the person's own file says which model that is.
    let file = space.path("models.toml");
    std::fs::write(&file, "[[model]]\nmatch = [\"anthropic:mine\"]\ndefault = true\n").unwrap();
    let space = workspace().env("ANTHROPIC_API_KEY", "sk-of-the-test").env("OLLAMA_HOST", &format!("127.0.0.1:{}", server.port));
    let ran = run(&space, GOAL, &["--models", file.to_str().unwrap(), "--time-limit", "1"]);
    assert!(ran.said.contains("the model is anthropic:mine, since ANTHROPIC_API_KEY is set"), "{}", ran.said);
}

#[test]
fn without_any_model_the_message_names_the_demonstration() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let space = workspace().env("OLLAMA_HOST", &closed.to_string());
    for port in [8080_u16, 1234, 8000] {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            crate::skip!("something listens on port {port} of this machine");
        }
    }
    let ran = run(&space, GOAL, &[]);
    assert_eq!(ran.code, Some(2), "{}", ran.said);
    for part in ["no model is named", "no key is in the environment", "OPENAI_API_KEY", "bailiwick demo"] {
        assert!(ran.said.contains(part), "{part}: {}", ran.said);
    }
    for (model, says) in [("gpt-5", "no such provider"), ("openai:", "names a provider and no model"), ("openai:gpt-5", "wants a key")] {
        let ran = run(&space, GOAL, &["--model", model]);
        assert!(ran.code == Some(2) && ran.said.contains(says), "{model}: {}", ran.said);
    }
}

#[test]
fn three_malformed_calls_switch_to_text_once_and_it_is_said() {
    let broken =
        |turn: usize| json!({"match": {"turnIndex": turn}, "response": {"toolCalls": [{"name": "read", "arguments": "{\"path\": "}]}});
    let by_text = |turn: usize, text: &str| json!({"match": {"turnIndex": turn}, "response": {"content": text}});
    let fixtures = [
        broken(0),
        broken(1),
        broken(2),
        by_text(3, "[TOOL] read(\"greet.sh\") [/TOOL]"),
        by_text(4, "[TOOL] read(\"greet.sh\" [/TOOL]"),
        by_text(5, "[TOOL] read(\"greet.sh\", [/TOOL]"),
        by_text(6, "[TOOL] read(\"greet.sh\" \"b\") [/TOOL]"),
        by_text(7, "Done."),
    ];
    let Some(server) = Server::start(&fixtures, &[]) else { crate::skip!("no aimock: see .ci/run") };
    for wire in ["openai", "responses"] {
        let space = workspace();
        let (model, url) = (format!("{wire}:any"), server.url());
        let before = server.journal().len();
        let ran = run(&space, GOAL, &["--model", &model, "--base-url", &url]);
        assert_eq!(ran.code, Some(0), "{}", ran.said);
        let switched: Vec<&Value> = ran.events.iter().filter(|event| event["type"] == "dialect_changed").collect();
        assert_eq!(switched.len(), 1, "once, though three more were malformed by text");
        assert!(ran.said.contains("3 native calls in a row were malformed"), "{}", ran.said);
        assert!(ran.result["notes"].to_string().contains("the text protocol was used from there on"), "{}", ran.result["notes"]);
        let asked = server.journal().split_off(before);
        let tools: Vec<bool> = asked.iter().map(|request| request["body"].get("tools").is_some()).collect();
        assert_eq!(tools, [true, true, true, false, false, false, false, false], "{wire}");
        let codes: Vec<Value> = acts_with_refused(&ran);
        assert_eq!(codes, ["malformed_call", "malformed_call", "malformed_call", "", "malformed_call", "malformed_call", "malformed_call"]);
    }
}

/// The code of each call's answer, `""` for a success.
fn acts_with_refused(ran: &Ran) -> Vec<Value> {
    let ended = ran.events.iter().filter(|event| event["type"] == "call_ended");
    ended.map(|event| event["envelope"]["data"].get("code").cloned().unwrap_or(json!(""))).collect()
}

#[test]
fn a_model_without_tools_is_spoken_to_by_text_and_one_that_is_not_able_gets_none() {
    let space = workspace();
    let script = space.path("s.jsonl");
    std::fs::write(
        &script,
        "{\"text\": \"[TOOL] read(\\\"greet.sh\\\") [/TOOL]\"}\n{\"expect_contains\": \"echo helo\", \"text\": \"Done.\"}\n",
    )
    .unwrap();
    let file = space.path("models.toml");
    std::fs::write(&file, "[[model]]\nmatch = [\"script:*\"]\ntools = false\nprice = { input = 1, output = 2 }\n").unwrap();
    let model = format!("script:{}", script.display());
    let ran = run(&space, GOAL, &["--model", &model, "--models", file.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    assert_eq!(ran.events[0]["dialect"], "text");
    assert!(ran.said.contains("models.toml:3"), "the line is named: {}", ran.said);
    assert_eq!(ran.result["cost_usd"], 0.0, "the price of the file is taken");

    std::fs::write(&file, "[[model]]\nmatch = [\"*\"]\nscopes = { agent = false }\n").unwrap();
    std::fs::write(&script, "{\"text\": \"I can only talk.\"}\n").unwrap();
    std::fs::remove_dir_all(space.path("out")).unwrap();
    let ran = run(&space, GOAL, &["--model", &model, "--models", file.to_str().unwrap()]);
    assert_eq!((ran.code, &ran.events[0]["tools"], &ran.events[0]["system"]), (Some(0), &json!([]), &json!("")), "{}", ran.said);
}

#[test]
fn models_explain_names_the_line() {
    let space = workspace();
    let file = space.path("mine.toml");
    std::fs::write(&file, "[[model]]\nmatch = [\"gpt-4o*\"]\nscopes = { web-browsing = false }\n").unwrap();
    let output = space.run(["models", "explain", "openai:gpt-4o-mini", "--models", file.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    let line = |field: &str| said.lines().find(|line| line.starts_with(field)).unwrap_or_else(|| panic!("{said}")).to_owned();
    assert!(line("scope web-browsing").contains("no ") && line("scope web-browsing").contains("mine.toml:3, match \"gpt-4o*\""), "{said}");
    assert!(line("price").contains("$0.1500 in, $0.6000 out") && line("price").contains("models.toml (built in):"), "{said}");
    assert!(line("tools").contains("assumed") && line("tools").contains("no line speaks of it"), "{said}");
    let output = space.run(["models", "list", "--json"]);
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(listed.len() > 10 && listed.iter().all(|entry| entry["line"].as_u64().unwrap() > 0));
    assert_eq!(space.run(["models", "explain", "x", "--models", "no/such/file"]).status.code(), Some(2));
}
