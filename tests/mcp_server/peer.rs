//! A peer written here, that speaks one line of JSON after another and believes nothing.

use crate::space::Space;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long an answer may take on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The two eras of the protocol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Era {
    /// With a handshake, at this revision.
    Session(&'static str),
    /// Each request by itself.
    Stateless,
}

pub(super) const ERAS: [Era; 3] = [Era::Session("2024-11-05"), Era::Session("2025-11-25"), Era::Stateless];

pub(super) struct Peer {
    child: Child,
    to: Option<ChildStdin>,
    from: Receiver<Value>,
    era: Era,
    next: u64,
    early: HashMap<u64, Value>,
    /// Notifications, in order.
    pub(super) heard: Vec<Value>,
}

impl Peer {
    /// Starts a server and, in the older era, shakes hands.
    pub(super) fn start(space: &Space, era: Era, flags: &[&str]) -> Self {
        let mut child = space
            .command(flags.iter().copied().chain(["mcp"]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let (sender, from) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let message = serde_json::from_str(&line).unwrap_or_else(|error| panic!("no JSON on standard output ({error}): {line}"));
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let to = child.stdin.take();
        let mut peer = Self { child, to, from, era, next: 1, early: HashMap::new(), heard: Vec::new() };
        if let Era::Session(version) = era {
            let hello = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
            let answer = peer.ask("initialize", hello);
            assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
            assert_eq!(answer["result"]["serverInfo"]["name"], "bailiwick", "{answer}");
            assert_eq!(answer["result"]["serverInfo"]["version"], env!("CARGO_PKG_VERSION"), "{answer}");
            peer.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        }
        peer
    }

    /// Writes one line.
    pub(super) fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes());
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.to.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends a request and returns its id.
    pub(super) fn send(&mut self, method: &str, mut params: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        if self.era == Era::Stateless {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "0"});
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The answer to a request; what else comes meanwhile is kept.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = self.early.remove(&id) {
                return answer;
            }
            let message = self
                .from
                .recv_timeout(until.saturating_duration_since(Instant::now()))
                .unwrap_or_else(|error| panic!("no answer to {id}: {error}"));
            self.keep(message);
        }
    }

    /// Takes in what comes for a while. Returns whether the server has closed its end.
    pub(super) fn listen(&mut self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => self.keep(message),
                Err(RecvTimeoutError::Timeout) => return false,
                Err(RecvTimeoutError::Disconnected) => return true,
            }
        }
    }

    /// Whether an answer has come.
    pub(super) fn has(&self, id: u64) -> bool {
        self.early.contains_key(&id)
    }

    fn keep(&mut self, message: Value) {
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        match message["id"].as_u64() {
            Some(id) => assert!(self.early.insert(id, message).is_none(), "two answers to {id}"),
            None => self.heard.push(message),
        }
    }

    pub(super) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    /// Calls a tool: the envelope, checked against what every result has to be.
    #[track_caller]
    pub(super) fn call(&mut self, tool: &str, args: Value) -> Value {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": args}));
        envelope(&answer)
    }

    pub(super) fn tools(&mut self) -> Vec<Value> {
        let answer = self.ask("tools/list", json!({}));
        answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the server's input.
    pub(super) fn hang_up(&mut self) {
        self.to = None;
    }

    /// Waits for the server's end.
    pub(super) fn end(&mut self, time: Duration) -> ExitStatus {
        let until = Instant::now() + time;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the server still runs after {time:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.to = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The envelope of a result: whole, the same as text, and `isError` exactly where it is no success.
#[track_caller]
pub(super) fn envelope(answer: &Value) -> Value {
    let result = &answer["result"];
    let envelope = &result["structuredContent"];
    let keys: Vec<&String> = envelope.as_object().unwrap_or_else(|| panic!("{answer}")).keys().collect();
    assert_eq!(keys, ["success", "data", "error"], "{answer}");
    let blocks = result["content"].as_array().unwrap();
    assert_eq!((blocks.len(), &blocks[0]["type"]), (1, &json!("text")), "{answer}");
    let text: Value = serde_json::from_str(blocks[0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(&text, envelope);
    assert_eq!(result["isError"].as_bool().unwrap_or(false), envelope["success"] == false, "{answer}");
    envelope.clone()
}
