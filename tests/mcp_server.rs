//! `bailiwick mcp`: what a peer is told, what it gets, and what is left of it.

#[path = "mcp_server/http.rs"]
mod http;
#[path = "mcp_server/judges.rs"]
mod judges;
#[path = "mcp_server/peer.rs"]
mod peer;

use crate::processes::{alive, mark, within};
use crate::space::Space;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use peer::{ERAS, Era, PATIENCE, Peer, envelope};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

const NEW: Era = Era::Stateless;
const OLD: Era = Era::Session("2025-11-25");

/// One call that succeeds and one that fails, for each tool that is shipped. In this order, in one session.
pub(crate) fn calls() -> Vec<(&'static str, Value, Value)> {
    let outside = json!({"path": "../outside/secret"});
    vec![
        ("ls", json!({}), outside.clone()),
        ("find", json!({"pattern": "*.txt"}), json!({"pattern": "*", "path": "../outside"})),
        ("grep", json!({"pattern": "hello"}), json!({"pattern": "("})),
        ("read", json!({"path": "a.txt"}), outside),
        ("write", json!({"path": "new.txt", "content": "x\n"}), json!({"path": "../outside/new", "content": "x"})),
        (
            "edit",
            json!({"path": "a.txt", "old_string": "hello", "new_string": "good day"}),
            json!({"path": "a.txt", "old_string": "nowhere", "new_string": "x"}),
        ),
        ("copy", json!({"from": "a.txt", "to": "b.txt"}), json!({"from": "missing", "to": "c.txt"})),
        ("mkdir", json!({"path": "folder"}), json!({"path": "a.txt"})),
        ("create", json!({"path": "made.txt"}), json!({"path": "a.txt"})),
        ("rename", json!({"from": "made.txt", "to": "renamed.txt"}), json!({"from": "missing", "to": "d.txt"})),
        ("sandbox_bash", json!({"command": "echo out; echo err >&2; exit 3"}), json!({"command": "sleep 600", "timeout_ms": 300})),
        ("process_start", json!({"command": "cat; exit 4"}), json!({"command": "true", "workdir": "../outside"})),
        ("process_list", json!({}), json!([])),
        ("process_output", json!({"id": "p1", "wait_ms": 10}), json!({"id": "p9"})),
        ("process_input", json!({"id": "p1", "text": "a\n"}), json!({"id": "p9", "text": "a"})),
        ("process_stop", json!({"id": "p1"}), json!({"id": "p9"})),
    ]
}

fn schema_of(tool: &Value) -> &Value {
    &tool["outputSchema"]
}

fn space() -> Space {
    Space::new().file("a.txt", "hello\n")
}

#[test]
fn each_tool_answers_as_its_schema_says_in_each_era() {
    for era in ERAS {
        let space = space();
        let mut peer = Peer::start(&space, era, &[]);
        if era == NEW {
            let found = peer.ask("server/discover", json!({}));
            let versions = found["result"]["supportedVersions"].as_array().unwrap();
            assert!(versions.contains(&json!("2026-07-28")) && versions.contains(&json!("2024-11-05")), "{found}");
            assert!(found.to_string().contains("bailiwick"), "{found}");
        }
        let listed = peer.tools();
        let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        let shipped: Vec<&str> = bailiwick::tools::TOOLS.iter().map(|tool| tool.name()).collect();
        assert_eq!(names, shipped, "the order is fixed");
        let calls = calls();
        assert_eq!(calls.iter().map(|(name, ..)| *name).collect::<Vec<_>>(), shipped, "a tool without its calls");

        for ((name, good, bad), tool) in calls.into_iter().zip(&listed) {
            let schema = schema_of(tool);
            assert_eq!(schema["type"], "object", "{tool}");
            // The facts are told one by one, not as any object.
            assert_ne!(schema["properties"]["data"]["anyOf"][0], json!({"type": "object"}), "{name}");
            let schema = jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
            jsonschema::validator_for(&tool["inputSchema"]).unwrap_or_else(|error| panic!("{name}: {error}"));
            for (args, success) in [(good, true), (bad, false)] {
                let envelope = peer.call(name, args.clone());
                assert_eq!(envelope["success"], success, "{era:?} {name} {args}: {envelope}");
                let broken: Vec<String> = schema.iter_errors(&envelope).map(|error| error.to_string()).collect();
                assert!(broken.is_empty(), "{era:?} {name} {args}: {broken:#?}\n{envelope:#}");
                // Each fact is in the schema: what is told is what is given.
                let branch = &schema_of(tool)["properties"]["data"]["anyOf"][usize::from(!success)];
                let known = branch.to_string();
                for key in envelope["data"].as_object().unwrap().keys().filter(|key| success && *key != "warnings") {
                    assert!(known.contains(&format!("\"{key}\":")), "{name}: {key} is not in {branch}");
                }
            }
        }
    }
}

#[test]
fn a_class_of_access_shows_in_the_hints() {
    let space = space();
    let tools = Peer::start(&space, NEW, &[]).tools();
    for tool in bailiwick::tools::TOOLS {
        let listed = tools.iter().find(|listed| listed["name"] == tool.name()).unwrap();
        let look = tool.access() == bailiwick::tools::Access::Look;
        let expected = json!({"readOnlyHint": look, "destructiveHint": !look, "idempotentHint": look, "openWorldHint": false});
        assert_eq!(listed["annotations"], expected, "{}", tool.name());
    }
}

#[test]
fn a_wrong_call_is_told_to_the_model_and_an_unknown_tool_to_the_client() {
    for era in ERAS {
        let space = space();
        let mut peer = Peer::start(&space, era, &[]);
        let unknown = peer.ask("tools/call", json!({"name": "no_such_tool", "arguments": {}}));
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        for args in [json!({}), json!({"path": 5, "limit": "many"}), json!([1]), json!("no JSON"), json!(7)] {
            let wrong = peer.call("read", args.clone());
            assert_eq!(wrong["data"]["code"], "invalid_arguments", "{era:?} {args}: {wrong}");
        }
        // What is meant beyond doubt is repaired, as everywhere.
        let repaired = peer.call("read", json!(r#"{"file_path":"a.txt"}"#));
        assert_eq!(repaired["success"], true, "{repaired}");
        let unknown = peer.ask("no/such/method", json!({}));
        assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
        // What is no message at all ends nothing.
        peer.write(b"{\"jsonrpc\": broken\n\n\xff\xfe\n[]\nnull\n");
        assert_eq!(peer.call("read", json!({"path": "a.txt"}))["data"]["text"], "hello\n");
    }
}

#[test]
fn no_argument_widens_the_policy() {
    let wide = json!({
        "policy": "build", "workspace": "/", "allow_degraded": ["fs.read"], "without_namespaces": true, "net": "full",
        "env": {"BAILIWICK_POLICY": "build"}, "sandbox": false, "dangerously_disable_sandbox": true, "roots": ["/"]
    });
    let with = |args: Value| {
        let mut all = wide.clone();
        all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
        all
    };
    for era in ERAS {
        let space = space();
        let mut peer = Peer::start(&space, era, &["--policy", "observe"]);
        let names: Vec<Value> = peer.tools().into_iter().map(|tool| tool["name"].clone()).collect();
        assert_eq!(names, ["ls", "find", "grep", "read"]);
        for (tool, args) in [("write", json!({"path": "x", "content": "x"})), ("sandbox_bash", json!({"command": "true"}))] {
            let refused = peer.ask("tools/call", json!({"name": tool, "arguments": with(args), "_meta": {"policy": "build"}}));
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
        }
        let outside = with(json!({"path": space.outside().join("secret")}));
        assert_eq!(peer.call("read", outside)["data"]["code"], "outside_workspace");
        // Roots that a client offers, and asks us to look at, are not ours.
        peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
        assert_eq!(peer.call("read", with(json!({"path": "../outside/secret"})))["data"]["code"], "outside_workspace");

        let mut peer = Peer::start(&space, era, &[]);
        let script = format!("cat {}; echo x > {}", space.outside().join("secret").display(), space.outside().join("new").display());
        let ran = peer.call("sandbox_bash", with(json!({"command": script})));
        assert!(!ran.to_string().contains("the outside secret"), "{ran}");
        assert!(!space.outside().join("new").exists());
    }
}

#[test]
fn a_thousand_calls_at_once_answer_right() {
    let mut space = Space::new();
    for number in 0..100 {
        space = space.file(&format!("f{number}.txt"), format!("content of {number}\n"));
    }
    for era in [OLD, NEW] {
        let mut peer = Peer::start(&space, era, &[]);
        let sent: Vec<(u64, u64)> = (0..1000)
            .map(|number| {
                let args = match number % 10 {
                    9 => json!({"name": "write", "arguments": {"path": format!("w{number}.txt"), "content": format!("{number}\n")}}),
                    _ => json!({"name": "read", "arguments": {"path": format!("f{}.txt", number % 100)}}),
                };
                (number, peer.send("tools/call", args))
            })
            .collect();
        for (number, id) in sent {
            let answer = envelope(&peer.answer(id));
            assert_eq!(answer["success"], true, "{answer}");
            if number % 10 == 9 {
                let written = std::fs::read_to_string(space.ws().join(format!("w{number}.txt"))).unwrap();
                assert_eq!(written, format!("{number}\n"));
            } else {
                assert_eq!(answer["data"]["text"], format!("content of {}\n", number % 100));
            }
        }
    }
}

#[test]
fn commands_at_once_follow_one_another() {
    let space = space();
    let mut peer = Peer::start(&space, NEW, &[]);
    let command = |command: &str| json!({"name": "sandbox_bash", "arguments": {"command": command}});
    let script = "test ! -e busy || echo two at once; touch busy; sleep 0.2; rm busy; export COUNT=$((COUNT + 1)); echo $COUNT";
    let ids: Vec<u64> = (0..5).map(|_| peer.send("tools/call", command(script))).collect();
    let mut said: Vec<String> =
        ids.into_iter().map(|id| envelope(&peer.answer(id))["data"]["stdout"].as_str().unwrap().to_owned()).collect();
    said.sort();
    assert_eq!(said, ["1\n", "2\n", "3\n", "4\n", "5\n"]);
    // A protected name that one of two commands changes is put back, whichever ends first.
    std::fs::create_dir_all(space.ws().join(".git/hooks")).unwrap();
    let slow = peer.send("tools/call", command("sleep 0.5; echo slow"));
    let bad = peer.send("tools/call", command("echo evil > .git/hooks/pre-commit; echo done"));
    peer.answer(slow);
    peer.answer(bad);
    assert!(!space.ws().join(".git/hooks/pre-commit").exists());
}

#[test]
fn a_call_that_is_cancelled_leaves_no_process_and_no_answer() {
    for era in ERAS {
        for flags in [&[][..], &["--without-namespaces"]] {
            let space = space();
            let mut peer = Peer::start(&space, era, flags);
            let (mark, child) = (mark(), mark());
            let script = format!("trap '' TERM INT HUP; sleep {child} & setsid sleep {child} & sleep {mark}");
            let id = peer.send("tools/call", json!({"name": "sandbox_bash", "arguments": {"command": script}}));
            // A second one waits for its turn, and is given up before it has begun.
            let second = peer.send("tools/call", json!({"name": "sandbox_bash", "arguments": {"command": "touch begun"}}));
            assert!(within(PATIENCE, || alive(&mark).len() == 1 && alive(&child).len() == 2));
            for id in [second, id] {
                peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}}));
            }
            let gone = within(PATIENCE, || alive(&mark).is_empty() && alive(&child).is_empty());
            assert!(gone, "{era:?} {flags:?}: {:?} {:?}", alive(&mark), alive(&child));
            let after = peer.call("sandbox_bash", json!({"command": "echo after"}));
            assert_eq!(after["data"]["stdout"], "after\n", "{after}");
            peer.listen(Duration::from_millis(100));
            assert!(!peer.has(id) && !peer.has(second), "an answer to what was cancelled");
            assert!(!space.ws().join("begun").exists());
        }
    }
}

/// What cancels a call may be in the same piece of the input as it.
#[test]
fn a_call_that_is_cancelled_at_once_is_not_heard_of_again() {
    let space = space();
    let mut peer = Peer::start(&space, ERAS[0], &[]);
    peer.call("sandbox_bash", json!({"command": "true"}));
    let mark = mark();
    for id in 1000..1020_u64 {
        let call = json!({"name": "sandbox_bash", "arguments": {"command": format!("sleep {mark}")}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": call});
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
        peer.write(format!("{call}\n{cancel}\n").as_bytes());
    }
    // Commands take turns: one that goes on would be waited for.
    let after = peer.call("sandbox_bash", json!({"command": "echo after"}));
    assert_eq!(after["data"]["stdout"], "after\n", "{after}");
    peer.listen(Duration::from_millis(100));
    assert!(alive(&mark).is_empty() && (1000..1020).all(|id| !peer.has(id)), "{:?}", alive(&mark));
}

#[test]
fn the_end_of_the_input_ends_everything() {
    for era in ERAS {
        let space = space();
        let mut peer = Peer::start(&space, era, &[]);
        let (mark, kept) = (mark(), mark());
        let started = peer.call("process_start", json!({"command": format!("trap '' TERM HUP; sleep {kept}")}));
        assert_eq!(started["success"], true, "{started}");
        let _ = peer.send("tools/call", json!({"name": "sandbox_bash", "arguments": {"command": format!("sleep {mark} & sleep {mark}")}}));
        assert!(within(PATIENCE, || alive(&mark).len() == 2 && alive(&kept).len() == 1));
        let children = format!("/proc/{0}/task/{0}/children", peer.pid());
        let warden = std::fs::read_to_string(children).unwrap_or_default();
        peer.hang_up();
        assert_eq!(peer.end(PATIENCE).code(), Some(0), "{era:?}");
        assert!(within(PATIENCE, || alive(&mark).is_empty() && alive(&kept).is_empty()), "{era:?}");
        for pid in warden.split_whitespace() {
            assert!(within(PATIENCE, || !std::path::Path::new(&format!("/proc/{pid}")).exists()), "{pid} is left");
        }
    }
}

#[test]
fn calls_that_were_sent_before_the_end_of_the_input_are_answered() {
    let space = space();
    let mut peer = Peer::start(&space, OLD, &[]);
    let ids: Vec<u64> = (0..50).map(|_| peer.send("tools/call", json!({"name": "read", "arguments": {"path": "a.txt"}}))).collect();
    peer.hang_up();
    for id in ids {
        assert_eq!(envelope(&peer.answer(id))["data"]["text"], "hello\n");
    }
    assert_eq!(peer.end(PATIENCE).code(), Some(0));
    // Nobody has said anything at all.
    let output = space.run(["mcp"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_signal_ends_everything() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        let space = space();
        let mut peer = Peer::start(&space, NEW, &[]);
        let mark = mark();
        let _ = peer.send("tools/call", json!({"name": "sandbox_bash", "arguments": {"command": format!("sleep {mark} & sleep {mark}")}}));
        assert!(within(PATIENCE, || alive(&mark).len() == 2));
        kill(Pid::from_raw(peer.pid().try_into().unwrap()), signal).unwrap();
        let status = peer.end(PATIENCE);
        assert_eq!(status.code(), (signal != Signal::SIGKILL).then_some(0), "{signal}");
        assert!(within(PATIENCE, || alive(&mark).is_empty()), "{signal}");
    }
}

#[test]
fn a_long_command_tells_how_it_goes_on() {
    for era in [OLD, NEW] {
        let space = space();
        let mut peer = Peer::start(&space, era, &[]);
        let params = json!({"name": "sandbox_bash", "arguments": {"command": "sleep 2.6"}, "_meta": {"progressToken": "t-1"}});
        let answer = peer.ask("tools/call", params);
        assert_eq!(envelope(&answer)["success"], true);
        let told: Vec<&Value> = peer.heard.iter().filter(|news| news["method"] == "notifications/progress").collect();
        assert!((2..=4).contains(&told.len()), "{told:?}");
        let steps: Vec<f64> = told.iter().map(|news| news["params"]["progress"].as_f64().unwrap()).collect();
        assert!(steps.is_sorted_by(|a, b| a < b) && told.iter().all(|news| news["params"]["progressToken"] == "t-1"), "{told:?}");
        // Who has not asked is told nothing.
        peer.heard.clear();
        peer.call("sandbox_bash", json!({"command": "sleep 1.3"}));
        assert!(peer.heard.is_empty(), "{:?}", peer.heard);
    }
}

#[test]
fn a_message_of_any_size_is_answered_and_a_slow_one_too() {
    let space = space();
    let mut peer = Peer::start(&space, OLD, &[]);
    let content = "a line of thirty-one characters\n".repeat(1 << 17);
    let answer = peer.call("write", json!({"path": "large.txt", "content": content}));
    assert_eq!(answer["success"], true, "{answer}");
    assert_eq!(std::fs::read_to_string(space.ws().join("large.txt")).unwrap(), content);
    let text = json!({"jsonrpc": "2.0", "id": 900, "method": "tools/call", "params": {"name": "read", "arguments": {"path": "a.txt"}}})
        .to_string();
    for piece in format!("{text}\r\n").as_bytes().chunks(7) {
        peer.write(piece);
    }
    assert_eq!(envelope(&peer.answer(900))["data"]["text"], "hello\n");
}

#[test]
fn a_request_that_is_too_long_is_told_so_and_the_next_one_is_answered() {
    for era in ERAS {
        let space = space();
        let mut peer = Peer::start(&space, era, &[]);
        let content = "x".repeat(65 << 20);
        let id = peer.send("tools/call", json!({"name": "write", "arguments": {"path": "long", "content": content}}));
        let answer = peer.answer(id);
        assert_eq!(answer["error"]["code"], -32600, "{era:?} {answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("longer than 64 MiB: send"), "{answer}");
        assert_eq!(peer.call("ls", json!({}))["success"], true);
        assert!(!space.ws().join("long").exists());
    }
}

#[test]
fn a_client_that_reads_nothing_blocks_nobody_else() {
    // Its answers fill the pipe; the server must end all the same when the client goes.
    let space = Space::new().file("big.txt", "x".repeat(60_000));
    let mut peer = Peer::start(&space, OLD, &[]);
    for _ in 0..100 {
        let _ = peer.send("tools/call", json!({"name": "read", "arguments": {"path": "big.txt"}}));
    }
    let began = Instant::now();
    peer.hang_up();
    peer.end(PATIENCE);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[test]
fn who_reads_slowly_after_it_has_said_all_gets_all() {
    const CALLS: usize = 15;
    let space = Space::new().file("big.txt", "a line of thirty-one characters\n".repeat(6_000));
    let mut lines = vec![
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params":
            {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ];
    lines.extend((1..=CALLS).map(|id| {
        let params = json!({"name": "read", "arguments": {"path": "big.txt", "offset": id, "limit": 5000}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
    }));
    let mut server = space.command(["mcp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let said: String = lines.iter().map(|line| format!("{line}\n")).collect();
    server.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    let mut out = server.stdout.take().unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    let began = Instant::now();
    loop {
        let count = out.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        all.extend_from_slice(&piece[..count]);
        std::thread::sleep(Duration::from_millis(150));
    }
    assert_eq!(server.wait().unwrap().code(), Some(0));
    let text = String::from_utf8(all).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a whole line")).collect();
    let mut ids: Vec<u64> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..=CALLS as u64).collect::<Vec<_>>());
    assert!(began.elapsed() > Duration::from_secs(2), "it was read in {:?}, which shows nothing", began.elapsed());
}

#[test]
fn each_client_gets_one_line() {
    let space = space();
    let exe = crate::space::bailiwick().canonicalize().unwrap();
    for client in ["claude-code", "codex", "cursor", "vscode", "gemini"] {
        let output = space.run(["mcp", "--print-config", client, "--policy", "observe"]);
        let line = String::from_utf8(output.stdout).unwrap();
        assert_eq!((output.status.code(), line.lines().count()), (Some(0), 1), "{line}");
        assert!(line.contains(exe.to_str().unwrap()) && line.contains("mcp") && line.contains("observe"), "{line}");
        if client == "cursor" {
            let config: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(config["mcpServers"]["bailiwick"]["args"][0], "mcp");
        }
    }
    assert_eq!(space.run(["mcp", "--print-config", "no-such-client"]).status.code(), Some(2));
}
