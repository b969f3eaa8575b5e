//! The model's key lives in the host alone: a canary in environment, file or descriptor is looked for everywhere else, by commands that
//! run in the sandbox and in all that a run leaves, with namespaces and without, as root too.
//!
//! What is shown is masked, which would also hide a leak from this test. So commands look for the canary themselves and say `LEAK`, by
//! a pattern that does not match itself.

use crate::space::{Space, is_root};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;

const CANARY: &str = "sk-canary-7f3a91c2";

/// Another one, which stands on command lines: those are for everybody to see, another test's program too.
const TYPED: &str = "sk-typed-c2917f3a";
/// A password in an address. It stands in the command line, which others can read where there are no namespaces; so it is another word.
const PASSWORD: &str = "pa55-8e21bb07";
/// As a command looks for it.
const PATTERN: &str = "sk-canary[-]7f3a91c2";

/// Looks through all that a command can open. The host's number is put in for HOST.
const SNOOP: &str = r#"
look() { tr '\0' '\n' 2>/dev/null | grep -aq "PATTERN" && echo "LEAK in $1"; }
env | look env
set | look set
seen=0
for p in /proc/self /proc/1 /proc/$PPID /proc/HOST /proc/[0-9]*; do
  grep -aqs "PATTERN" $p/environ $p/cmdline $p/comm $p/maps $p/stat $p/status $p/auxv $p/stack $p/wchan $p/task/*/environ && echo "LEAK in $p"
  seen=$((seen + 1))
done
for fd in /proc/self/fd/* /proc/1/fd/* /proc/$PPID/fd/* /proc/HOST/fd/*; do
  case "$(readlink $fd 2>/dev/null)" in /*) head -c 1000000 $fd 2>/dev/null | look $fd;; esac
done
(exec 2>/dev/null; dd if=/proc/HOST/mem bs=4096 count=1 && echo "LEAK: the host's memory can be read")
for folder in . "$HOME" "${TMPDIR:-/tmp}" /tmp /dev/shm OUT KEYS; do
  grep -rlaq "PATTERN" "$folder" 2>/dev/null && echo "LEAK in $folder"
done
echo "looked at $seen things"
"#;

/// A server of chat completions that gives these messages in turn and sends on what it was asked.
fn server(replies: Vec<Value>) -> (String, mpsc::Receiver<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for reply in replies {
            let Ok((socket, _)) = listener.accept() else { return };
            let mut reader = BufReader::new(socket);
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(number) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = number.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let _ = tell.send((head, serde_json::from_slice(&body).unwrap_or_default()));
            let status = reply["status"].as_str().unwrap_or("200 OK").to_owned();
            let body = reply["body"].to_string();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = reader.into_inner().write_all(answer.as_bytes());
        }
    });
    (url, told)
}

fn says(message: Value) -> Value {
    let finish = if message.get("tool_calls").is_some() { "tool_calls" } else { "stop" };
    json!({"body": {"id": "x", "choices": [{"message": message, "finish_reason": finish}]}})
}

fn calls(tool: &str, args: &Value) -> Value {
    says(
        json!({"content": null, "tool_calls": [{"id": format!("c-{tool}"), "type": "function", "function": {"name": tool, "arguments": args.to_string()}}]}),
    )
}

/// Every file beneath a folder that holds the canary.
fn holding(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            holding(&path, found);
        } else if kind.is_file()
            && [CANARY, TYPED].iter().any(|key| String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(key))
        {
            found.push(path.display().to_string());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Environment,
    File,
    Descriptor,
}

#[test]
fn a_canary_key_appears_nowhere() {
    for way in [Way::Environment, Way::File, Way::Descriptor] {
        for rung in [&[][..], &["--without-namespaces"]] {
            let what = format!("{way:?} {rung:?}");
            let mut space = Space::new().file("a.txt", "one\n");
            std::fs::create_dir(space.path("keys")).unwrap();
            let key = space.path("keys/key");
            if way == Way::Environment {
                space = space.env("OPENAI_API_KEY", CANARY);
            } else {
                std::fs::write(&key, format!("{CANARY}\n")).unwrap();
            }
            let out = space.path("out");
            let snoop = SNOOP
                .replace("PATTERN", PATTERN)
                .replace("OUT", out.to_str().unwrap())
                .replace("KEYS", space.path("keys").to_str().unwrap())
                // The shell's ancestors are walked where they can be seen at all.
                .replace("HOST", "$(awk '/^PPid/ {print $2}' /proc/$PPID/status 2>/dev/null || echo 1)");
            let (url, told) = server(vec![
                calls("sandbox_bash", &json!({ "command": snoop })),
                calls("write", &json!({"path": "leak.txt", "content": "the key is not known here\n"})),
                calls("read", &json!({"path": "/proc/self/environ"})),
                // A server that says the key back, in every place that a message has.
                says(json!({"content": format!("I was given {CANARY}."), "reasoning_content": CANARY, CANARY: CANARY})),
            ]);
            let mut args = vec!["run", "Find the key", "--model", "openai:m", "--base-url", &url, "--verbose", "--json", "--no-stream"];
            args.extend(rung);
            args.extend(["--out", out.to_str().unwrap()]);
            let key_text = key.to_str().unwrap().to_owned();
            match way {
                Way::File => args.extend(["--api-key-file", &key_text]),
                Way::Descriptor => args.extend(["--api-key-fd", "9"]),
                Way::Environment => {}
            }
            let mut command = space.command(&args);
            let output = if way == Way::Descriptor {
                // Bash puts the descriptor where it is wanted, and goes on as the program.
                let mut shell = std::process::Command::new("bash");
                shell
                    .args(["-c", "exec 9<\"$KEYFILE\"; unset KEYFILE; exec \"$0\" \"$@\""])
                    .arg(command.get_program())
                    .args(command.get_args());
                shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?)))).env("KEYFILE", &key);
                shell.current_dir(space.ws()).stdin(Stdio::null()).output().unwrap()
            } else {
                command.output().unwrap()
            };
            let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            assert_eq!(output.status.code(), Some(0), "{what}: {stderr}");
            let asked: Vec<(String, Value)> = told.try_iter().collect();
            assert_eq!(asked.len(), 4, "{what}");
            for (head, body) in &asked {
                assert!(head.contains(&format!("authorization: Bearer {CANARY}")), "{what}: the key is used: {head}");
                let told = body["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
                for message in told {
                    let text = message["content"].as_str().unwrap();
                    assert!(!text.contains("LEAK"), "{what}: {text}");
                    assert!(!text.contains(CANARY), "{what}: {text}");
                }
            }
            let looked = asked[1].1["messages"].to_string();
            assert!(looked.contains("looked at ") && !looked.contains("looked at 0 things"), "{what}: {looked}");
            for (name, text) in [("standard output", &stdout), ("standard error", &stderr)] {
                assert!(!text.contains(CANARY), "{what}: {name}: {text}");
                assert!(text.contains("[secret]") || name != "standard output", "{what}: what was said back is masked: {text}");
            }
            let mut found = Vec::new();
            for folder in ["ws", "out", "home", "outside"] {
                holding(&space.path(folder), &mut found);
            }
            assert!(found.is_empty(), "{what}: {found:?}");
            let patch = std::fs::read_to_string(out.join("changes.patch")).unwrap();
            assert!(patch.contains("leak.txt"), "{what}: {patch}");
        }
    }
}

#[test]
fn errors_that_repeat_the_key_are_masked() {
    let refusal =
        |status: &str| json!({"status": status, "body": {"error": {"message": format!("Incorrect API key provided: {CANARY}.")}}});
    for (status, words) in
        [("401 Unauthorized", "refused the key"), ("400 Bad Request", "does not take the request"), ("200 OK", "failed (HTTP 500")]
    {
        let space = Space::new().env("OPENAI_API_KEY", CANARY);
        let (url, _told) = server(vec![refusal(status)]);
        let out = space.path("out");
        let args = ["run", "x", "--model", "openai:m", "--base-url", &url, "--retries", "0", "--out", out.to_str().unwrap()];
        let output = space.run(args);
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(6), "{said}");
        let result = std::fs::read_to_string(out.join("result.json")).unwrap();
        assert!(result.contains(words), "{result}");
        let mut found = Vec::new();
        holding(&out, &mut found);
        assert!(!said.contains(CANARY) && found.is_empty(), "{status}: {said} {found:?}");
    }
}

#[test]
fn a_start_that_fails_shows_no_secret_either() {
    let space = Space::new().file("a.txt", "one\n");
    let (url, _told) =
        server(vec![json!({"body": {"data": []}}), json!({"body": {"models": []}}), json!({"body": {"models": [{"name": "m"}]}})]);
    let address = url.replace("http://", &format!("http://me:{PASSWORD}@"));
    let key = space.path("key");
    std::fs::write(&key, format!("{TYPED}\n")).unwrap();
    let (key, no_address, secret_name) = (key.to_str().unwrap(), format!("htp://me:{PASSWORD}@x"), format!("openai:{TYPED}"));
    /// A name, flags, variables, the exit code.
    type Row<'a> = (&'a str, &'a [&'a str], &'a [(&'a str, &'a str)], i32);
    let rows: [Row<'_>; 6] = [
        ("no model of the server's will do", &["--base-url", &url], &[], 2),
        ("a password in an address", &["-m", "openai:x", "--base-url", &address], &[], 2),
        ("the server that was found is named", &["--retries", "0"], &[("OLLAMA_HOST", &address)], 6),
        ("an address that is none", &["-m", "openai:x", "--base-url", &no_address, "--api-key-file", key], &[], 2),
        ("the key is the name of a file", &["-m", "openai:x", "--attach", TYPED], &[("OPENAI_API_KEY", TYPED)], 2),
        ("a flag that is wrong", &["-m", &secret_name, "--max-cost", "1", "--api-key-file", key], &[], 2),
    ];
    for (name, flags, env, code) in rows {
        let out = space.path(&format!("out {name}"));
        let mut command = space.command(["run", "x", "--out", out.to_str().unwrap()]);
        let output = command.args(flags).envs(env.iter().copied()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(!said.contains(PASSWORD) && !said.contains(TYPED), "{name}: {said}");
        let mut found = Vec::new();
        holding(&out, &mut found);
        assert!(found.is_empty() && out.join("result.json").exists(), "{name}: {found:?}");
        let left =
            std::fs::read_to_string(out.join("result.json")).unwrap() + &std::fs::read_to_string(out.join("transcript.jsonl")).unwrap();
        assert!(!left.contains(PASSWORD), "{name}: {left}");
    }
}

#[test]
fn a_key_that_the_model_could_read_is_refused() {
    let space = Space::new().file("key", CANARY);
    for place in ["key", "./key", "../ws/key"] {
        let output = space.run(["run", "x", "--model", "openai:m", "--base-url", "http://127.0.0.1:1", "--api-key-file", place]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("the model could read this file") && !said.contains(CANARY), "{said}");
    }
    let empty = space.path("empty");
    std::fs::write(&empty, "\n").unwrap();
    for (args, says) in [
        (vec!["--api-key-file", empty.to_str().unwrap()], "holds no key"),
        (vec!["--api-key-file", "no/such/file"], "No such file"),
        (vec!["--api-key-fd", "77"], "--api-key-fd 77"),
    ] {
        let output = space.run(["run", "x", "--model", "openai:m"].into_iter().chain(args));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(says), "{said}");
    }
}

#[test]
fn commands_of_other_verbs_see_no_key_either() {
    for rung in [&[][..], &["--without-namespaces"]] {
        let space = Space::new().env("OPENAI_API_KEY", CANARY).env("ANTHROPIC_API_KEY", CANARY);
        let snoop = SNOOP.replace("PATTERN", PATTERN).replace("HOST", "$PPID").replace("OUT", ".").replace("KEYS", ".");
        for args in [vec!["exec", "--", "bash", "-c", &snoop], vec!["tool", "sandbox_bash", &json!({ "command": snoop }).to_string()]] {
            let output = space.run(rung.iter().copied().chain(args.iter().copied()));
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(
                said.contains("looked at ") && !said.contains("LEAK"),
                "{rung:?} {}: {said} {}",
                args[0],
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn nobody_reads_the_hosts_memory() {
    // A server that never answers: the host waits, with its key.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let space = Space::new().env("OPENAI_API_KEY", CANARY);
    let url = format!("http://{}", listener.local_addr().unwrap());
    let out = space.path("out");
    let mut command = space.command(["run", "x", "--model", "openai:m", "--base-url", &url, "--out", out.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn().unwrap();
    let _socket = listener.accept().unwrap();
    let proc = format!("/proc/{}", child.id());
    let owner = std::fs::metadata(format!("{proc}/environ")).unwrap().uid();
    let readable = std::fs::read(format!("{proc}/environ")).is_ok();
    // What the kernel says of a process that cannot be dumped: its files belong to root, and to nobody else is anything told.
    assert_eq!(owner, 0);
    assert!(is_root() || !readable, "the environment of the host can be read");
    let memory = std::fs::File::open(format!("{proc}/mem"));
    assert!(is_root() || memory.is_err(), "the memory of the host can be read");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(child.id().cast_signed()), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
