//! Over HTTP: who may connect, and that nothing else is different.

use super::peer::{PATIENCE, envelope};
use super::space;
use crate::processes::{alive, mark, within};
use crate::space::Space;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// A server that is running, and where.
pub(super) struct Served {
    child: Child,
    pub(super) address: String,
}

impl Served {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = lines.next().unwrap().unwrap();
        let address =
            line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/mcp")).unwrap_or_else(|| panic!("{line}")).to_owned();
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
        Self { child, address }
    }

    fn of(space: &Space, flags: &[&str]) -> Self {
        Self::start(space.command(["mcp", "--http", "127.0.0.1:0"].iter().chain(flags)))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends a request with these headers, and reads the whole response: its status, its head, the JSON of its body.
    fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, Value) {
        let mut stream = self.connect();
        stream.write_all(request(method, headers, body).as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        // An event stream or plain JSON, in chunks or not: the message is the one line with an object that answers.
        let message = body.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
        let message = message.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|value| value["jsonrpc"] == "2.0");
        (status, head.to_lowercase(), message.unwrap_or_default())
    }

    fn host(&self) -> String {
        self.address.clone()
    }

    fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn request(method: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!("{method} /mcp HTTP/1.1\r\nconnection: close\r\n");
    let all = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    for (name, value) in all.iter().filter(|(name, _)| !headers.iter().any(|(other, _)| other == name)).chain(headers) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

/// A request of the newer era, and the headers that go with it.
fn modern(method: &str, mut params: Value) -> (Vec<(String, String)>, String) {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({});
    let mut headers = vec![("mcp-protocol-version".to_owned(), "2026-07-28".to_owned()), ("mcp-method".to_owned(), method.to_owned())];
    if let Some(name) = params["name"].as_str() {
        headers.push(("mcp-name".into(), name.into()));
    }
    (headers, json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string())
}

fn with<'a>(host: &'a str, headers: &'a [(String, String)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let all = std::iter::once(("host", host)).chain(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    all.chain(more.iter().copied()).collect()
}

fn read() -> (Vec<(String, String)>, String) {
    modern("tools/call", json!({"name": "read", "arguments": {"path": "a.txt"}}))
}

/// Begins a session of the older era: its headers.
fn begin(served: &Served, host: &str) -> Vec<(String, String)> {
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "0"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).to_string();
    let mut stream = served.connect();
    stream.write_all(request("POST", &[("host", host)], &body).as_bytes()).unwrap();
    let lines = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let head: Vec<String> = lines.map(|line| line.to_lowercase()).collect();
    let session = head.iter().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap_or_else(|| panic!("{head:?}"));
    let headers = [("mcp-session-id", session), ("mcp-protocol-version", "2025-06-18")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    assert_eq!(served.send("POST", &with(host, &headers, &[]), &ready).0, 202);
    headers
}

fn old(id: u32, tool: &str, args: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": args}}).to_string()
}

#[test]
fn both_eras_are_served() {
    let space = space();
    let served = Served::of(&space, &[]);
    let host = served.host();
    let (headers, body) = read();
    let (status, _, answer) = served.send("POST", &with(&host, &headers, &[]), &body);
    assert_eq!((status, &envelope(&answer)["data"]["text"]), (200, &json!("hello\n")), "{answer}");

    let session = begin(&served, &host);
    let body = old(2, "read", json!({"path": "a.txt"}));
    let (status, _, answer) = served.send("POST", &with(&host, &session, &[]), &body);
    assert_eq!((status, &envelope(&answer)["data"]["text"]), (200, &json!("hello\n")), "{answer}");
    // A session that nobody began.
    let strange =
        [("host", host.as_str()), ("mcp-session-id", "00000000-0000-0000-0000-000000000000"), ("mcp-protocol-version", "2025-06-18")];
    assert_eq!(served.send("POST", &strange, &body).0, 404);
}

#[test]
fn a_session_that_cancels_or_ends_leaves_no_process() {
    let space = space();
    let served = Served::of(&space, &[]);
    let host = served.host();
    for ends in [false, true] {
        let session = begin(&served, &host);
        let mark = mark();
        let body = old(7, "sandbox_bash", json!({"command": format!("sleep {mark} & sleep {mark}")}));
        let mut stream = served.connect();
        stream.write_all(request("POST", &with(&host, &session, &[]), &body).as_bytes()).unwrap();
        assert!(within(PATIENCE, || alive(&mark).len() == 2));
        let (method, body) = if ends {
            ("DELETE", String::new())
        } else {
            ("POST", json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}).to_string())
        };
        let (status, head, _) = served.send(method, &with(&host, &session, &[]), &body);
        assert!((200..300).contains(&status), "{head}");
        assert!(within(PATIENCE, || alive(&mark).is_empty()), "{method}");
    }
}

#[test]
fn a_page_of_another_site_does_not_get_in() {
    let space = space();
    let served = Served::of(&space, &["--allow-host", "tools.example", "--allow-origin", "https://page.example:443"]);
    let (headers, body) = read();
    let port = served.port().to_owned();
    let own = |host: &str| format!("{host}:{port}");
    for (host, origin, status) in [
        (own("127.0.0.1"), None, 200),
        (own("localhost"), None, 200),
        (own("[::1]"), None, 200),
        (own("LOCALHOST"), None, 200),
        ("tools.example".into(), None, 200),
        (own("127.0.0.1"), Some(format!("http://{}", own("127.0.0.1"))), 200),
        (own("localhost"), Some(format!("http://{}", own("localhost"))), 200),
        (own("localhost"), Some("https://page.example".into()), 200),
        // DNS rebinding: the name is the attacker's, the address is ours.
        (own("evil.example"), None, 403),
        ("evil.example".into(), None, 403),
        (own("localhost.evil.example"), None, 403),
        (own("127.0.0.1.evil.example"), None, 403),
        ("localhost:1".into(), None, 403),
        (own("0.0.0.0"), None, 403),
        (String::new(), None, 403),
        // A page that a browser of this machine shows.
        (own("localhost"), Some("https://evil.example".into()), 403),
        (own("localhost"), Some("http://localhost:3000".into()), 403),
        (own("localhost"), Some("http://localhost".into()), 403),
        (own("localhost"), Some(format!("https://{}", own("localhost"))), 403),
        (own("localhost"), Some("null".into()), 403),
        (own("localhost"), Some("http://page.example".into()), 403),
        (own("localhost"), Some("rubbish".into()), 403),
    ] {
        let mut all = with(&host, &headers, &[]);
        if let Some(origin) = &origin {
            all.push(("origin", origin));
        }
        let (got, head, answer) = served.send("POST", &all, &body);
        let refused = (400..500).contains(&got) && answer["result"].is_null();
        assert!(if status == 200 { got == 200 } else { refused }, "{host} {origin:?}: {head}");
        // No page is invited to look at the answer either.
        assert!(!head.contains("access-control-allow-origin"), "{head}");
        for method in ["GET", "DELETE", "OPTIONS", "PUT"] {
            if status != 200 {
                let (got, ..) = served.send(method, &all, "");
                assert!((400..500).contains(&got), "{method} {host} {origin:?}: {got}");
            }
        }
    }
    // No Host, two of them, two Origins, a host in the request line.
    let (here, evil) = (own("localhost"), "evil.example".to_owned());
    let origin = format!("http://{here}");
    for more in [
        vec![],
        vec![("host", &here), ("host", &evil)],
        vec![("host", &evil), ("host", &here)],
        vec![("host", &here), ("origin", &origin), ("origin", &evil)],
    ] {
        let all = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = more.iter().map(|(name, value)| (*name, value.as_str())).chain(all).collect();
        let (got, _, answer) = served.send("POST", &all, &body);
        assert!((400..500).contains(&got) && answer["result"].is_null(), "{more:?} {got} {answer}");
    }
    let text = request("POST", &with(&here, &headers, &[]), &body).replacen("/mcp", "http://evil.example/mcp", 1);
    let mut stream = served.connect();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[test]
fn beyond_loopback_a_token_is_required() {
    let space = space();
    let token = space.path("token");
    std::fs::write(&token, "a-token-of-some-length\n").unwrap();
    let flags = ["--token-file", token.to_str().unwrap()];
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o644)).unwrap();
    for (args, says) in [
        (vec!["mcp", "--http", "0.0.0.0:0"], "no token"),
        (vec!["mcp", "--http", "[::]:0"], "no token"),
        (vec!["mcp", "--http", "0.0.0.0:0", flags[0], flags[1]], "others may read"),
        (vec!["mcp", flags[0], flags[1]], "--http"),
        (vec!["mcp", "--http", "no address"], "--http"),
    ] {
        let output = space.run(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }
    std::fs::set_permissions(&token, PermissionsExt::from_mode(0o600)).unwrap();
    let mut everywhere = Served::start(space.command(["mcp", "--http", "0.0.0.0:0", "--allow-host", "localhost"].iter().chain(&flags)));
    everywhere.address = everywhere.address.replace("0.0.0.0", "127.0.0.1");
    let here = Served::of(&space, &flags);
    let mut unnamed = Served::start(space.command(["mcp", "--http", "0.0.0.0:0"].iter().chain(&flags)));
    unnamed.address = unnamed.address.replace("0.0.0.0", "127.0.0.1");
    let (headers, body) = read();
    for (served, host) in [(&here, here.host()), (&everywhere, "localhost".into())] {
        for (authorization, status) in [
            (None, 401),
            (Some("Bearer"), 401),
            (Some("Bearer a-token-of-some-lengt"), 401),
            (Some("Bearer a-token-of-some-length-and-more"), 401),
            (Some("Basic a-token-of-some-length"), 401),
            (Some("Bearer a-token-of-some-length"), 200),
            (Some("bearer a-token-of-some-length"), 200),
        ] {
            let more: Vec<(&str, &str)> = authorization.iter().map(|value| ("authorization", *value)).collect();
            let (got, head, answer) = served.send("POST", &with(&host, &headers, &more), &body);
            assert_eq!(got, status, "{authorization:?}: {head} {answer}");
        }
    }
    // A token does not make up for a foreign name.
    for served in [&here, &everywhere, &unnamed] {
        let (got, head, _) =
            served.send("POST", &with("evil.example", &headers, &[("authorization", "Bearer a-token-of-some-length")]), &body);
        assert_eq!(got, 403, "{head}");
    }
}

#[test]
fn who_goes_away_leaves_no_process() {
    let space = space();
    let served = Served::of(&space, &[]);
    let host = served.host();
    let mark = mark();
    let (headers, body) =
        modern("tools/call", json!({"name": "sandbox_bash", "arguments": {"command": format!("sleep {mark} & sleep {mark}")}}));
    let mut stream = served.connect();
    stream.write_all(request("POST", &with(&host, &headers, &[]), &body).as_bytes()).unwrap();
    assert!(within(PATIENCE, || alive(&mark).len() == 2));
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    assert!(within(PATIENCE, || alive(&mark).is_empty()));
    let (headers, body) = read();
    let (status, _, answer) = served.send("POST", &with(&host, &headers, &[]), &body);
    assert_eq!((status, envelope(&answer)["success"].clone()), (200, json!(true)));
}

#[test]
fn many_peers_at_once_get_their_own_answers() {
    let mut space = Space::new();
    for number in 0..20 {
        space = space.file(&format!("f{number}.txt"), format!("content of {number}\n"));
    }
    let served = Served::of(&space, &[]);
    let host = served.host();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let (served, host) = (&served, &host);
            scope.spawn(move || {
                for _ in 0..10 {
                    let (headers, body) = modern("tools/call", json!({"name": "read", "arguments": {"path": format!("f{number}.txt")}}));
                    let (status, _, answer) = served.send("POST", &with(host, &headers, &[]), &body);
                    assert_eq!((status, &envelope(&answer)["data"]["text"]), (200, &json!(format!("content of {number}\n"))));
                }
            });
        }
    });
}
