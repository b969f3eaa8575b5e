//! Which servers there are: the `mcpServers` of a `.mcp.json`, as other agents write it.
//!
//! Never reads a file or a variable: the caller gives the text, and says which variables may be used. A variable that may not is an error
//! of its server, never an empty text.

use super::untrusted::line;
use crate::envelope::{Fault, FaultCode};
use serde_json::{Map, Value};
use std::time::Duration;

/// How long a call may take when the configuration does not say, and at the most.
pub const CALL_TIME: Duration = Duration::from_secs(60);
const MOST_CALL_TIME: Duration = Duration::from_secs(600);
/// How long a server may take to be there: programs are often fetched and compiled at their first start.
pub const START_TIME: Duration = Duration::from_secs(30);
/// The most servers of a file.
const MOST: usize = 50;

/// A server as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// How it is reached.
    pub way: Way,
    /// How long a call may take.
    pub call_time: Duration,
    /// How long it may take to be there.
    pub start_time: Duration,
    /// Without it the run does not start.
    pub required: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    /// A program in the sandbox, spoken to by its standard input and output.
    Program {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Variables on top of the policy's.
        env: Vec<(String, String)>,
        /// The folder to start in, relative to the workspace.
        workdir: Option<String>,
    },
    /// An address that the host contacts.
    Address {
        /// The address.
        url: String,
        /// Headers of each request. They may hold a key, and are shown by nothing.
        headers: Vec<(String, String)>,
        /// It speaks the transport of 2024 only.
        only_sse: bool,
    },
}

/// The servers of a file, and what was left out of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// The servers, in the order of the file.
    pub servers: Vec<Server>,
    /// Servers that cannot be used: name, why, whether one was required.
    pub wrong: Vec<(String, String, bool)>,
    /// What was not understood, one sentence each.
    pub notes: Vec<String>,
}

/// Reads a file. `look_up` gives the value of a variable that this file may use.
///
/// # Errors
/// `invalid_policy` when it is no JSON object with `mcpServers`.
pub fn read(text: &str, label: &str, look_up: &dyn Fn(&str) -> Option<String>) -> Result<Read, Fault> {
    let wrong = |says: String| Fault::new(FaultCode::InvalidPolicy, format!("{label}: {says}"));
    let file: Value =
        serde_json::from_str(text).map_err(|error| wrong(format!("this is no JSON: {error}")).hint("mend it, or go without: --no-mcp"))?;
    let servers = ["mcpServers", "servers"].iter().find_map(|key| file.get(*key));
    let Some(Value::Object(servers)) = servers else {
        return Err(wrong("there is no object mcpServers".into()).hint(r#"{"mcpServers": {"NAME": {"command": "program", "args": []}}}"#));
    };
    let mut read = Read::default();
    for (name, written) in servers {
        let shown = line(name, 64);
        if read.servers.len() >= MOST {
            read.notes.push(format!("{label}: more than {MOST} servers; {shown} and those behind it are left out"));
            break;
        }
        let Value::Object(written) = written else {
            read.wrong.push((shown, format!("{label}: it is no object"), false));
            continue;
        };
        if written.get("disabled") == Some(&Value::Bool(true)) || written.get("enabled") == Some(&Value::Bool(false)) {
            continue;
        }
        let required = written.get("required") == Some(&Value::Bool(true));
        match one(name, written, look_up) {
            Ok((server, unknown)) => {
                if !unknown.is_empty() {
                    read.notes.push(format!("{label}: server {shown}: {} is not known and means nothing here", unknown.join(", ")));
                }
                read.servers.push(server);
            }
            Err(why) => read.wrong.push((shown, format!("{label}: {why}"), required)),
        }
    }
    Ok(read)
}

/// Keys that are known and mean nothing here.
const IDLE: [&str; 8] = ["disabled", "enabled", "required", "description", "alwaysAllow", "autoApprove", "trust", "name"];

fn one(name: &str, written: &Map<String, Value>, look_up: &dyn Fn(&str) -> Option<String>) -> Result<(Server, Vec<String>), String> {
    let expand = |text: &str| expanded(text, look_up);
    let texts = |key: &str| -> Result<Vec<String>, String> {
        match written.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(list)) => {
                list.iter().map(|one| one.as_str().ok_or_else(|| format!("{key} is a list of texts")).and_then(expand)).collect()
            }
            Some(_) => Err(format!("{key} is a list of texts")),
        }
    };
    let pairs = |key: &str| -> Result<Vec<(String, String)>, String> {
        match written.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(map)) => map
                .iter()
                .map(|(name, value)| {
                    let value = match value {
                        Value::String(text) => expand(text)?,
                        Value::Number(number) => number.to_string(),
                        Value::Bool(truth) => truth.to_string(),
                        _ => return Err(format!("{key}: the value of {name} is no text")),
                    };
                    Ok((name.clone(), value))
                })
                .collect(),
            Some(_) => Err(format!("{key} is an object of texts")),
        }
    };
    let text = |key: &str| match written.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => expand(text).map(Some),
        Some(_) => Err(format!("{key} is a text")),
    };
    let time = |key: &str, default: Duration| match written.get(key) {
        None | Some(Value::Null) => Ok(default),
        Some(value) => match value.as_u64() {
            Some(millis @ 1..) => Ok(Duration::from_millis(millis).min(MOST_CALL_TIME)),
            _ => Err(format!("{key} is a number of milliseconds")),
        },
    };
    let kind = text("type")?.or(text("transport")?);
    let mut known: Vec<&str> = vec!["type", "transport", "timeout", "startup_timeout"];
    known.extend(IDLE);
    let way = match (kind.as_deref(), text("command")?, text("url")?.or(text("serverUrl")?).or(text("httpUrl")?)) {
        (None | Some("stdio"), Some(command), None) => {
            known.extend(["command", "args", "env", "cwd"]);
            let argv: Vec<String> = std::iter::once(command).chain(texts("args")?).collect();
            let env = pairs("env")?;
            if argv[0].is_empty() || argv.iter().any(|word| word.contains('\0')) || env.iter().any(|(_, value)| value.contains('\0')) {
                return Err("the command is empty, or holds a NUL character".into());
            }
            if let Some((name, _)) = env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
                return Err(format!("env: {name:?} is no name of a variable"));
            }
            Way::Program { argv, env, workdir: text("cwd")? }
        }
        (None | Some("http" | "streamable-http" | "streamableHttp" | "streamable_http" | "sse"), None, Some(url)) => {
            known.extend(["url", "serverUrl", "httpUrl", "headers"]);
            Way::Address { url, headers: pairs("headers")?, only_sse: kind.as_deref() == Some("sse") }
        }
        (Some(kind), _, _) if !matches!(kind, "stdio" | "http" | "streamable-http" | "streamableHttp" | "streamable_http" | "sse") => {
            return Err(format!("type {:?} is not known: there are stdio, http and sse", line(kind, 40)));
        }
        _ => return Err("it has to have either a command or a url, as its type says".into()),
    };
    let unknown = written.keys().filter(|key| !known.contains(&key.as_str())).map(|key| line(key, 40)).take(8).collect();
    let server = Server {
        name: name.into(),
        way,
        call_time: time("timeout", CALL_TIME)?,
        start_time: time("startup_timeout", START_TIME)?,
        required: written.get("required") == Some(&Value::Bool(true)),
    };
    Ok((server, unknown))
}

/// `${NAME}`, `${env:NAME}` and `${NAME:-otherwise}`. A value is not looked at again.
fn expanded(text: &str, look_up: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        out.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}') else { break };
        let inner = &rest[at + 2..at + end];
        let (name, otherwise) = inner.split_once(":-").map_or((inner, None), |(name, other)| (name, Some(other)));
        let name = name.strip_prefix("env:").unwrap_or(name);
        match (look_up(name), otherwise) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(other)) => out.push_str(other),
            (None, None) => return Err(format!("the variable {} is not set, or not this file's to use", line(name, 64))),
        }
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Read {
        super::read(text, "f", &|name| (name == "KEY").then(|| "va${KEY}lue".into())).unwrap()
    }

    #[test]
    fn servers_of_each_kind() {
        let read = read(
            r#"{"mcpServers": {
                "files": {"command": "npx", "args": ["-y", "${KEY}"], "env": {"A": "${NONE:-b}", "N": 1}, "cwd": "sub", "timeout": 5000},
                "web": {"type": "http", "url": "https://a.example/mcp", "headers": {"Authorization": "Bearer ${env:KEY}"}, "required": true},
                "old": {"type": "sse", "url": "http://a/sse"},
                "off": {"command": "x", "disabled": true}}}"#,
        );
        let argv = ["npx", "-y", "va${KEY}lue"].map(String::from).to_vec();
        let env = vec![("A".into(), "b".into()), ("N".into(), "1".into())];
        assert_eq!(read.servers[0].way, Way::Program { argv, env, workdir: Some("sub".into()) });
        assert_eq!((read.servers[0].call_time, read.servers[0].required), (Duration::from_secs(5), false));
        let headers = vec![("Authorization".into(), "Bearer va${KEY}lue".into())];
        assert_eq!(read.servers[1].way, Way::Address { url: "https://a.example/mcp".into(), headers, only_sse: false });
        assert!(read.servers[1].required && matches!(read.servers[2].way, Way::Address { only_sse: true, .. }));
        assert_eq!((read.servers.len(), read.wrong.len(), read.notes.len()), (3, 0, 0));
    }

    #[test]
    fn what_is_wrong_is_said_of_its_server_alone() {
        let read = read(
            r#"{"mcpServers": {"good": {"command": "x", "colour": "red"}, "a": 1, "b": {}, "c": {"command": "x", "url": "y"},
                "d": {"type": "pigeon", "command": "x"}, "e": {"command": "${SECRET}", "required": true}, "f": {"command": "x", "args": "y"},
                "g": {"command": "x", "timeout": "soon"}, "h": {"type": "http", "command": "x"}, "i": {"command": ""},
                "j": {"command": "x", "env": {"a=b": "c"}}}}"#,
        );
        assert_eq!(read.servers.len(), 1);
        assert!(read.notes[0].contains("colour"));
        let wrong: Vec<(&str, bool)> = read.wrong.iter().map(|(name, _, required)| (name.as_str(), *required)).collect();
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        assert_eq!(wrong, names.map(|name| (name, name == "e")));
        assert!(super::read("{", "f", &|_| None).is_err() && super::read("[]", "f", &|_| None).is_err());
    }
}
