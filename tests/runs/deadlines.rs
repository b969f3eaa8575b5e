//! Every tool has a deadline: what answers no more is ended, the model is told, and the run goes on.

use super::*;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

/// What a process started, and what that started.
fn descendants(of: u32) -> Vec<i32> {
    let mut found = vec![of.cast_signed()];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let of = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)).and_then(|parent| parent.parse::<i32>().ok());
            if of == Some(parent) && !found.contains(&pid) {
                found.push(pid);
            }
        }
        at += 1;
    }
    found.split_off(1)
}

/// Serves chat completions: of each request it is told, and gives the message to reply.
fn serve(listener: &TcpListener, mut reply: impl FnMut(usize, &str) -> Option<Value>) {
    for (number, stream) in listener.incoming().enumerate() {
        let mut stream = stream.unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut length, mut line) = (0, String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let message = reply(number, &String::from_utf8(body).unwrap());
        let last = message.is_none();
        let message = message.unwrap_or_else(|| json!({"role": "assistant", "content": "Done."}));
        let reply = json!({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).to_string();
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{reply}",
            reply.len()
        )
        .unwrap();
        if last {
            return;
        }
    }
}

fn call(id: &str, name: &str, args: &Value) -> Value {
    let function = json!({"name": name, "arguments": args.to_string()});
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function", "function": function}]})
}

#[test]
fn a_tool_that_answers_no_more_is_ended_and_the_run_goes_on() {
    let place = Place::new(&[("a", "one\n")]);
    let policy = place.space.path("short.toml");
    fs::write(&policy, "name = \"short\"\ndescription = \"calls end soon\"\nextends = \"build\"\n[limits]\nwall = \"1500ms\"\n").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, word) = (format!("http://{}", listener.local_addr().unwrap()), format!("{}5", std::process::id()));
    let out = place.out().display().to_string();
    let args = ["run", "x", "-m", "openai:x", "--no-stream", "--base-url", &url, "-p", policy.to_str().unwrap(), "--out", &out];
    let child = place.space.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stopped = Vec::new();
    serve(&listener, |number, body| {
        let wrote = |path: &str| json!({"path": path, "content": "two\n"});
        match number {
            // A command has the time that the policy gives it, whatever it asks for.
            0 => Some(call("c0", "sandbox_bash", &json!({"command": format!("echo two > a; sleep 60.{word}"), "timeout_ms": 60_000}))),
            1 => {
                assert!(body.contains("timed_out"), "{body}");
                // All that a file tool runs in is stopped, as if it hung.
                stopped = descendants(child.id());
                stopped.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGSTOP).unwrap());
                assert!(stopped.len() > 1, "{stopped:?}");
                Some(call("c1", "read", &json!({"path": "a"})))
            }
            2 => {
                assert!(body.contains("read did not answer within 1500 ms"), "{body}");
                Some(call("c2", "write", &wrote("b")))
            }
            3 => {
                assert!(body.contains("write did not answer within 1500 ms"), "{body}");
                for pid in &stopped {
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
                }
                Some(call("c3", "write", &wrote("c")))
            }
            _ => None,
        }
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(output.status), 0, "{}", stderr(&output));
    let result = check(&place, 0);
    let failed: Vec<&str> = result["failed_calls"].as_array().unwrap().iter().filter_map(|call| call["error"].as_str()).collect();
    let codes: Vec<&str> = failed.iter().filter_map(|error| error.split(':').next()).collect();
    assert_eq!(codes, ["timed_out", "deadline_exceeded", "deadline_exceeded"], "{result}");
    // What the call that was given up did all the same is on the disk or is not; the patch says which.
    assert_eq!(fs::read_to_string(place.space.ws().join("c")).unwrap(), "two\n");
    applies(&place, &[]);
    until("every process is gone", || left(&format!("sleep 60.{word}")).is_empty());
}

/// A server of models that goes on and on, or sends us elsewhere: the time limit ends it, a signal is heard, and the key goes nowhere.
#[test]
fn a_server_of_models_that_never_ends_is_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 1 << 16]);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
                while stream.write_all(b": here\n\n").is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    for (limit, exit) in [(Some("2"), 5), (None, 143)] {
        let place = Place::new(&[("a", "one\n")]);
        let out = place.out().display().to_string();
        let mut args = vec!["run", "x", "-m", "openai:x", "--base-url", &url, "--out", &out];
        args.extend(limit.iter().flat_map(|limit| ["--time-limit", limit]));
        let child = place.space.command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        if limit.is_none() {
            until("it asks", || fs::read_to_string(place.transcript()).unwrap_or_default().contains("turn_started"));
            std::thread::sleep(Duration::from_millis(300));
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(output.status), exit, "{}", stderr(&output));
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        check(&place, exit);
    }
}
