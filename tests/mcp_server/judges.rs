//! Judges that no one here wrote: the official conformance suite, the Inspector, the Python client. `scripts/peers` installs them and
//! says where; `BAILIWICK_TEST_PEERS` names the place.

use super::calls;
use super::http::Served;
use super::space;
use crate::skip;
use crate::space::{Space, bailiwick};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the judges are. Nowhere: a skip here, a failure where everything has to run.
fn peers() -> Option<PathBuf> {
    let found = std::env::var_os("BAILIWICK_TEST_PEERS").map(PathBuf::from).filter(|folder| folder.is_dir());
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "BAILIWICK_TEST_PEERS names no folder: scripts/peers makes one");
    found
}

macro_rules! peers_or_skip {
    () => {
        match peers() {
            Some(peers) => peers,
            None => skip!("no judges; BAILIWICK_TEST_PEERS=\"$(scripts/peers)\" has them"),
        }
    };
}

/// A command with the newer Node first on its PATH, and a home of its own.
fn tool(peers: &Path, space: &Space, program: &str) -> Command {
    let node = peers.join("node");
    let mut command = Command::new(peers.join(program));
    command
        .env("PATH", format!("{}:{}", node.display(), crate::space::path()))
        .env("HOME", space.path("home"))
        .current_dir(space.path("home"));
    command
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The example beside the program under test; cargo builds it with the tests.
fn fixture() -> PathBuf {
    let beside = bailiwick();
    beside.parent().unwrap().join("examples/mcp_fixture")
}

#[test]
fn the_official_suite_passes_where_it_applies() {
    let peers = peers_or_skip!();
    let space = space();
    let mut server = Command::new(fixture());
    server.args(["mcp", "--http", "127.0.0.1:0"]).current_dir(space.ws()).env("HOME", space.path("home"));
    let served = Served::start(server);
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_server/conformance");
    for revision in ["2025-11-25", "2026-07-28"] {
        let list = expected.join(format!("{revision}.yaml"));
        let text = std::fs::read_to_string(&list).unwrap();
        for line in text.lines().filter(|line| line.trim_start().starts_with("- ")) {
            assert!(line.split_once('#').is_some_and(|(_, why)| why.trim().len() > 10), "no reason: {line}");
        }
        let output = tool(&peers, &space, "npm/node_modules/.bin/conformance")
            .args(["server", "--url", &format!("http://{}/mcp", served.address), "--requirements", revision, "--timeout", "60000"])
            .arg("--expected-failures")
            .arg(&list)
            .output()
            .unwrap();
        let said = said(&output);
        println!("{said}");
        // A failure that is not in the list fails, and so does a line of the list that does not fail any more.
        assert!(output.status.success(), "{revision}:\n{said}");
    }
}

#[test]
fn the_inspector_has_nothing_to_say() {
    let peers = peers_or_skip!();
    let space = space();
    // `--strict` judges the list of tools; it says nothing on standard error when it has found nothing.
    for (method, more, shows) in [
        ("tools/list", &["--strict"][..], "\"sandbox_bash\""),
        ("tools/call", &["--tool-name", "read", "--tool-arg", "path=a.txt"], "hello"),
    ] {
        let mut command = tool(&peers, &space, "npm/node_modules/.bin/mcp-inspector");
        command.arg("--cli").arg(bailiwick()).args(["mcp", "--workspace"]).arg(space.ws()).args(["--method", method]).args(more);
        let output = command.output().unwrap();
        let text = said(&output);
        assert!(output.status.success() && text.contains(shows), "{method}: {text}");
        assert!(output.stderr.is_empty(), "{method}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_python_client_calls_every_tool_in_both_eras() {
    let peers = peers_or_skip!();
    for era in ["legacy", "modern"] {
        let space = space();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp_server/client.py");
        let calls: Vec<_> = calls().into_iter().map(|(name, good, bad)| json!([name, good, bad])).collect();
        let output = tool(&peers, &space, "python/bin/python")
            .arg(script)
            .args([era, &json!(calls).to_string()])
            .arg(bailiwick())
            .arg(space.ws())
            .output()
            .unwrap();
        let said = said(&output);
        assert!(output.status.success(), "{era}: {said}");
        let count = bailiwick::tools::TOOLS.len();
        assert!(said.contains(&format!("{era}: {count} tools, {} calls", 2 * count - 1)), "{said}");
    }
}
