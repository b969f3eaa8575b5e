//! The line that makes our MCP server known to a client that people use.

use super::Common;
use crate::exit_code::ExitCode;
use crate::workspace::escape;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A client for which there is a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Client {
    /// Claude Code: a shell command
    ClaudeCode,
    /// Codex: a shell command
    Codex,
    /// Cursor: the content of `.cursor/mcp.json`
    Cursor,
    /// Visual Studio Code: a shell command
    Vscode,
    /// Gemini CLI: a shell command
    Gemini,
}

/// Prints the line on standard output, and what to do with it on standard error.
pub(super) fn print(client: Client, common: &Common) -> ExitCode {
    let (line, what) = line(client, &program(), &arguments(common));
    out!("{line}");
    say!("bailiwick: {what}");
    ExitCode::Done
}

/// The line, and a sentence on what to do with it.
fn line(client: Client, program: &str, args: &[String]) -> (String, &'static str) {
    let words = |before: &[&str]| {
        let all = before.iter().map(|word| (*word).to_owned()).chain([program.to_owned()]).chain(args.iter().cloned());
        all.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
    };
    let run_there = "run this in the folder of the project";
    match client {
        Client::ClaudeCode => (words(&["claude", "mcp", "add", "bailiwick", "--"]), run_there),
        Client::Codex => {
            (words(&["codex", "mcp", "add", "bailiwick", "--"]), "run this once; Codex starts the server in each project's folder")
        }
        Client::Gemini => (gemini(program, args), run_there),
        Client::Cursor => {
            let server = json!({"command": program, "args": in_folder(args)});
            (
                json!({"mcpServers": {"bailiwick": server}}).to_string(),
                "this is the content of .cursor/mcp.json; beside other servers, only the inner part",
            )
        }
        Client::Vscode => {
            let server: Value = json!({"name": "bailiwick", "command": program, "args": in_folder(args)});
            (format!("code --add-mcp {}", quoted(&server.to_string())), "run this once")
        }
    }
}

/// An argument that begins with a dash is an option of Gemini's own unless a `--` stands before it.
fn gemini(program: &str, args: &[String]) -> String {
    let (plain, dashed) = args.split_at(args.iter().position(|arg| arg.starts_with('-')).unwrap_or(args.len()));
    let mut words: Vec<String> = ["gemini", "mcp", "add", "bailiwick", program].iter().map(|word| quoted(word)).collect();
    words.extend(plain.iter().map(|word| quoted(word)));
    if !dashed.is_empty() {
        words.push("--".into());
        words.extend(dashed.iter().map(|word| quoted(word)));
    }
    words.join(" ")
}

/// An editor says itself which folder is open, where no other was named.
fn in_folder(args: &[String]) -> Vec<String> {
    let mut args = args.to_vec();
    if !args.iter().any(|arg| arg == "--workspace") {
        args.extend(["--workspace".into(), "${workspaceFolder}".into()]);
    }
    args
}

/// The flags with which this was asked, for the server.
fn arguments(common: &Common) -> Vec<String> {
    let mut args = vec!["mcp".to_owned()];
    let mut add = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    if let Some(workspace) = &common.workspace {
        add("--workspace", shown(&workspace.canonicalize().unwrap_or_else(|_| workspace.clone())));
    }
    let policy = Path::new(&common.policy);
    if common.policy != super::DEFAULT_POLICY {
        let is_file = common.policy.contains('/') && policy.exists();
        add("--policy", if is_file { shown(&policy.canonicalize().unwrap_or_else(|_| policy.into())) } else { common.policy.clone() });
    }
    for name in &common.allow_degraded {
        add("--allow-degraded", name.clone());
    }
    if common.without_namespaces {
        args.push("--without-namespaces".into());
    }
    args
}

/// `bailiwick`, where that is this program, else its path.
fn program() -> String {
    let here = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("bailiwick"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("bailiwick")).find(|program| program.is_file());
    let is_this = found.and_then(|program| program.canonicalize().ok()).is_some_and(|program| program == here);
    if is_this { "bailiwick".into() } else { shown(&here) }
}

fn shown(path: &Path) -> String {
    escape::show(path.as_os_str())
}

/// A word for a POSIX shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_line() {
        let plain = ["mcp".to_owned()];
        let told: Vec<String> = ["mcp", "--policy", "observe"].map(str::to_owned).to_vec();
        for (client, program, args, expected) in [
            (Client::ClaudeCode, "bailiwick", &plain[..], "claude mcp add bailiwick -- bailiwick mcp"),
            (Client::Codex, "/a b/it's", &plain, r"codex mcp add bailiwick -- '/a b/it'\''s' mcp"),
            (Client::Codex, "bailiwick", &told, "codex mcp add bailiwick -- bailiwick mcp --policy observe"),
            (Client::Gemini, "bailiwick", &plain, "gemini mcp add bailiwick bailiwick mcp"),
            (Client::Gemini, "bailiwick", &told, "gemini mcp add bailiwick bailiwick mcp -- --policy observe"),
            (
                Client::Cursor,
                "bailiwick",
                &plain,
                r#"{"mcpServers":{"bailiwick":{"command":"bailiwick","args":["mcp","--workspace","${workspaceFolder}"]}}}"#,
            ),
            (
                Client::Vscode,
                "bailiwick",
                &told,
                r#"code --add-mcp '{"name":"bailiwick","command":"bailiwick","args":["mcp","--policy","observe","--workspace","${workspaceFolder}"]}'"#,
            ),
        ] {
            let (line, what) = line(client, program, args);
            assert_eq!(line, expected);
            assert!(!line.contains('\n') && !what.is_empty());
        }
    }
}
