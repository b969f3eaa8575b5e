//! One file and one line: a tool that is added is found in the CLI, the schemas, the prompt and the text protocol, and runs in a jail.

use crate::space::{Space, bailiwick, path};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The example, which `cargo test` builds beside the binary.
fn example() -> PathBuf {
    let exe = bailiwick().parent().unwrap().join("examples/extra_tool");
    assert!(exe.exists(), "cargo builds examples for tests: {}", exe.display());
    exe
}

fn run(space: &Space, args: &[&str]) -> Output {
    Command::new(example())
        .args(args)
        .current_dir(space.ws())
        .env_clear()
        .env("HOME", space.path("home"))
        .env("PATH", path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn an_added_tool_is_everywhere() {
    let space = Space::new().file("a.txt", "one\ntwo\nthree");
    let output = run(&space, &["tool", "count_lines", r#"{"file_path":"a.txt"}"#]);
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["data"]["lines"], 3, "{envelope}");
    assert!(envelope["data"]["warnings"][0].as_str().unwrap().contains("file_path"), "{envelope}");
    let outside = run(&space, &["tool", "count_lines", r#"{"path":"../outside/secret"}"#]);
    let envelope: Value = serde_json::from_slice(&outside.stdout).unwrap();
    assert_eq!(envelope["data"]["code"], "outside_workspace", "{envelope}");
    for format in ["openai", "anthropic", "mcp"] {
        let listed: Value = serde_json::from_slice(&run(&space, &["tools", "--format", format]).stdout).unwrap();
        assert!(listed["tools"].to_string().contains("count_lines"), "{format}");
    }
    let text = String::from_utf8(run(&space, &["tools", "--format", "text"]).stdout).unwrap();
    assert!(text.contains("count_lines(path"), "{text}");
    assert!(!String::from_utf8(space.run(["tools"]).stdout).unwrap().contains("count_lines"));
}

#[test]
fn a_model_calls_it_by_the_text_protocol() {
    let space = Space::new().file("a.txt", "one\ntwo\nthree\n");
    let script = space.path("script.toml");
    std::fs::write(
        &script,
        "[[reply]]\ntext = 'I count. [TOOL] count_lines(\"a.txt\") [/TOOL]'\n\n[[reply]]\nexpect_contains = 'a.txt: 3 lines'\ntext = 'There are three.'\n",
    )
    .unwrap();
    let (script, out) = (format!("script:{}", script.display()), space.path("out"));
    let output = run(&space, &["run", "count", "--model", &script, "--text-protocol", "--out", out.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let transcript = std::fs::read_to_string(out.join("transcript.jsonl")).unwrap();
    assert!(transcript.contains("count_lines(path"), "the tool is in the prompt");
    assert!(transcript.contains("\"lines\":3"), "{transcript}");
}

#[test]
fn two_tools_of_one_name_do_not_start() {
    use bailiwick::session::{Options, Session};
    let mut tools = bailiwick::tools::TOOLS.to_vec();
    tools.push(bailiwick::tools::TOOLS[0]);
    let space = Space::new();
    let asked = bailiwick::cli::setup::Asked { workspace: Some(space.ws()), policy: "observe".into(), ..Default::default() };
    let setup = bailiwick::cli::setup::Setup::of(&asked).unwrap();
    let started = Session::start(Options { exe: bailiwick(), registry: tools.leak(), charter: setup.charter().clone() });
    assert!(started.is_err_and(|fault| fault.to_string().contains("two tools")));
}
