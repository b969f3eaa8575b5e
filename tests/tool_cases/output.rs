//! What `sandbox_bash` shows of its output, and the other cases of commands that are no matter of processes.

use crate::desk::{Desk, Row, run};
use crate::skip;
use crate::space::Space;
use serde_json::json;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn output_is_shown_honestly() {
    run(ROWS);
}

const ROWS: &[Row] = &[
    ("T72", |d| {
        let reply = d.call("bash", json!({"command": "seq 100000; echo REAL-ERROR >&2; exit 3"}));
        assert!(reply.text.contains("REAL-ERROR"), "{}", reply.text);
        let data = reply.into_data();
        assert_eq!(data["exit_code"], 3);
        assert!(data["output"].as_str().unwrap().starts_with("1\n2\n"));
        // A failure in the middle is shown too.
        let text = d.call("bash", json!({"command": "seq 30000; echo 'error: MIDDLE'; seq 30000"})).text;
        assert!(text.contains("error: MIDDLE"), "{text}");
    }),
    ("T74", |d| {
        let reply = d.call("bash", json!({"command": "seq 5000"}));
        assert!(reply.text.contains("of 5,000 lines") && reply.text.contains("spool:"), "{}", reply.text);
        let data = reply.into_data();
        assert_eq!((&data["truncation"]["total_lines"], &data["truncation"]["total_bytes"]), (&json!(5000), &json!(23893)), "{data}");
        // The whole of it can be read and searched by its handle.
        let spool = data["spool"].as_str().unwrap();
        assert_eq!(d.done("read", json!({"path": spool, "offset": 2500, "limit": 1}))["text"], "2500\n");
        assert_eq!(d.done("grep", json!({"path": spool, "pattern": "^4321$"}))["total"], 1);
        let data = d.done("bash", json!({"command": "seq 10"}));
        assert!(data.get("truncation").is_none(), "{data}");
    }),
    ("T77", |d| {
        let data = d.done("bash", json!({"command": r"printf '\033[31mred\033[0m\n'"}));
        assert_eq!(data["output"], "red\n");
        let data = d.done("bash", json!({"command": r#"for i in 1 2 3; do printf "\r$i%%"; done; echo"#}));
        assert_eq!(data["output"], "3%\n");
        let data = d.done("bash", json!({"command": r"printf '\033[31m'; seq 20000", "max_output_bytes": 2000}));
        let spool = data["spool"].as_str().unwrap();
        let raw = d.done("read", json!({"path": spool, "format": "hex", "limit": 1}));
        assert!(raw["text"].as_str().unwrap().contains("1b 5b 33 31 6d"), "the raw bytes are kept: {raw}");
    }),
    ("T79", |d| {
        // Longer than one argument of a program may be, and longer than all of them may be together.
        for length in [140_000, 2_000_000] {
            let data = d.done("bash", json!({"command": format!("echo {} | wc -c", "a".repeat(length))}));
            assert_eq!((data["output"].as_str(), &data["exit_code"]), (Some(format!("{}\n", length + 1).as_str()), &json!(0)));
        }
    }),
    ("T82", |d| {
        d.done("bash", json!({"command": "mkdir -p t82/sub && cd t82/sub"}));
        assert!(d.done("bash", json!({"command": "pwd"}))["output"].as_str().unwrap().ends_with("/t82/sub\n"));
        d.done("bash", json!({"command": "rmdir ../sub"}));
        let reply = d.call("bash", json!({"command": "pwd"}));
        let text = reply.text.clone();
        let data = reply.into_data();
        assert_eq!(
            (data["exit_code"].as_i64(), data["output"].as_str()),
            (Some(0), Some(format!("{}\n", d.space.ws().display()).as_str())),
            "{data}"
        );
        assert!(text.contains("/t82/sub is gone; the command starts in the base folder"), "{text}");
    }),
    ("T81", |d| {
        d.put("t81", "text\n");
        for command in ["grep -q zzz t81", "test -e nothing", "diff t81 /dev/null >/dev/null"] {
            let data = d.done("bash", json!({"command": command}));
            assert_eq!(data["exit_code"], 1, "{command}: {data}");
        }
    }),
    ("T84", |d| {
        let used = |args: serde_json::Value| d.done("bash", args)["timeout_ms"].as_u64().unwrap();
        assert_eq!(used(json!({"command": "true", "timeout": 120_000})), 120_000);
        assert_eq!(used(json!({"command": "true", "timeout": 60})), 60_000);
        assert_eq!(used(json!({"command": "true", "timeout_ms": 60_000_000u64})), 600_000);
        assert_eq!(used(json!({"command": "true"})), 120_000);
        assert!(used(json!({"command": "true", "timeout": 0})) >= 120_000);
        let reply = d.call("bash", json!({"command": "true", "timeout": -1}));
        let refused = reply.envelope["data"]["code"] == "invalid_arguments";
        assert!(refused || reply.envelope["data"]["warnings"].is_array(), "{}", reply.envelope);
    }),
    ("T85", |d| {
        let data = d.done("bash", json!({"command": "echo $(date +%Y)\ncat <<'EOF'\n`not run` $(nor this)\nEOF\n"}));
        let output = data["output"].as_str().unwrap();
        assert!(output.lines().next().unwrap().parse::<u32>().is_ok_and(|year| year >= 2024), "{output}");
        assert!(output.ends_with("`not run` $(nor this)\n"), "{output}");
    }),
    ("T87", |d| {
        assert_eq!(d.refused("write", json!({"path": "../t87", "content": "x"})).0, "outside_workspace");
        // Beside the workspace is, for a command, a folder of the session's own or nothing; never the host's.
        d.done("bash", json!({"command": "echo x > ../t87; echo x > ../outside/secret; rm -rf ../outside"}));
        assert!(!d.space.path("t87").exists());
        assert_eq!(std::fs::read(d.space.outside().join("secret")).unwrap(), b"the outside secret\n");
        let data = d.done("bash", json!({"command": "echo x > /usr/t87"}));
        assert_ne!(data["exit_code"], 0, "{data}");
    }),
];

/// Where the folder beside the workspace is the host's own and not one of the session, tool and command meet the same refusal.
#[test]
fn t87_what_the_tool_refuses_the_command_cannot_do_either() {
    let beside = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    if beside.starts_with("/tmp") || tempfile::tempdir_in(beside).is_err() {
        skip!("there is no folder to write in but the temporary ones");
    }
    let d = Desk::new(Space::beneath(beside));
    for path in ["../t87", "../outside/t87", "../outside/secret"] {
        assert_eq!(d.refused("write", json!({"path": path, "content": "x"})).0, "outside_workspace", "{path}");
        let data = d.done("bash", json!({"command": format!("echo x > {path}")}));
        assert_ne!(data["exit_code"], 0, "{path}: {data}");
    }
    let absolute = d.space.outside().join("secret");
    let data = d.done("bash", json!({"command": format!("cat {0}; echo x >> {0}; rm -f {0}", absolute.display())}));
    assert!(data["exit_code"] != 0 || !data.to_string().contains("the outside secret"), "{data}");
    assert!(!data.to_string().contains("the outside secret"), "{data}");
    assert!(!d.space.path("t87").exists() && !d.space.outside().join("t87").exists());
    assert_eq!(std::fs::read(absolute).unwrap(), b"the outside secret\n");
}

#[test]
fn t86_no_key_of_the_host_is_seen() {
    let space = Space::new().env("OPENAI_API_KEY", "sk-live-0123456789").env("PLAIN_SECRET", "hush-hush");
    let called = space.bash("env; cat /proc/self/environ | tr '\\0' '\\n'; cat /proc/$PPID/environ | tr '\\0' '\\n'; set");
    for secret in ["sk-live-0123456789", "hush-hush"] {
        assert!(!called.line.contains(secret), "{}", called.line);
    }
    assert!(called.data()["output"].as_str().unwrap().contains("PATH="));
}

#[test]
fn t75_endless_output_takes_no_memory() {
    let space = Space::new();
    let script = json!({"command": "timeout 3 yes"}).to_string();
    let mut child = space.command(["tool", "sandbox_bash", &script]).stdout(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let started = Instant::now();
    let mut most = 0u64;
    while child.try_wait().unwrap().is_none() {
        let said = std::fs::read_to_string(&status).unwrap_or_default();
        let rss = said.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().split(' ').next()?.parse().ok());
        most = most.max(rss.unwrap_or(0));
        assert!(started.elapsed() < Duration::from_secs(60), "it does not end");
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = child.wait_with_output().unwrap();
    let envelope: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(envelope["data"]["truncation"].is_object() || envelope["data"]["code"] == "limit_exceeded", "{envelope}");
    assert!((1..120_000).contains(&most), "{most} KiB");
    println!("the host took at most {most} KiB");
}
