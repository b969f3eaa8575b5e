//! Refusals explained: which of a command's failures were the sandbox's, by which line, and what would be allowed.
//!
//! The text of a command and of its output only nominates paths and addresses; it decides nothing. The charter says whether the sandbox
//! refuses the act, ordinary permissions whether the act would have been refused anyway, and the act repeated in a jail of the same class
//! whether it really is refused. What a program silences is not seen.

use super::{Session, Streams};
use crate::jail::wire::ToLeader;
use crate::policy::predict::{Act, By, Made, Spot, Walls, predict};
use crate::policy::{Access, Charter, Identity, Net};
use crate::tools::{Captured, Outcome, Stream};
use crate::workspace::escape;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// The most nominations that are looked at.
const MOST: usize = 12;
/// The most bytes of output that are read for nominations.
const LOOKED_AT: usize = 64 * 1024;
/// How long the repeated acts may take together.
const PROBE: Duration = Duration::from_secs(2);

/// Repeats acts: pairs of an operation and a name. Opens what is a file or folder, and closes it again.
const SCRIPT: &str = r#"while [ $# -ge 2 ]; do
  if [ "$1" = network ]; then (exec 3<>/dev/udp/192.0.2.1/9) 2>&1 && echo open || echo shut
  elif [ "$1" = connect ]; then (exec 3<>"/dev/tcp/$2") && echo open || echo shut
  elif [ "$1" = kernel ]; then unshare -U true && echo open || echo shut
  elif [ "$1" = create ]; then echo unknown
  elif [ -d "$2" ]; then ls -- "$2" >&2 && echo open || echo shut
  elif [ ! -e "$2" ]; then echo shut
  elif [ ! -f "$2" ]; then echo unknown
  elif [ "$1" = write ]; then (: >> "$2") && echo open || echo shut
  else (: < "$2") && echo open || echo shut
  fi; shift 2
done | grep -E '^(open|shut|unknown)$'"#;

/// What the text speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Nominee {
    /// A path as it is written, and whether something hints at writing.
    Path(String, bool),
    /// The network, and the host that was meant where it is known.
    Network(Option<String>),
    /// A call that makes namespaces or mounts, or traces.
    Kernel(&'static str),
}

/// Words of the C library and of the programs for a refusal of any kind.
const REFUSED: &[&str] = &[
    "permission denied",
    "read-only file system",
    "no such file or directory",
    "operation not permitted",
    "device or resource busy",
    "eacces",
    "eperm",
    "erofs",
];

const NETWORK: &[&str] = &[
    "network is unreachable",
    "network unreachable",
    "could not resolve",
    "couldn't resolve",
    "temporary failure in name resolution",
    "name or service not known",
    "name resolution",
    "address family not supported",
    "getaddrinfo",
];

const WRITING: &[&str] = &[
    "cannot create",
    "cannot touch",
    "cannot remove",
    "cannot move",
    "cannot overwrite",
    "read-only",
    "for writing",
    "unable to write",
    "could not write",
    "could not lock",
];

/// What a command wrote, stream by stream: of two that write at the same time, a line of one may be torn by the other. Failures stand at
/// the end.
fn said(output: &Captured) -> String {
    let end_of = |stream| {
        let text: Vec<u8> = output.chunks.iter().filter(|chunk| chunk.stream == stream).flat_map(|chunk| &chunk.bytes).copied().collect();
        String::from_utf8_lossy(&text[text.len().saturating_sub(LOOKED_AT)..]).into_owned()
    };
    [end_of(Stream::Stderr), end_of(Stream::Stdout)].join("\n")
}

/// Reads nominations out of a command and what it wrote.
fn nominate(script: &str, output: &str) -> Vec<Nominee> {
    let mut found = Vec::new();
    let mut add = |nominee: Nominee| {
        if found.len() < MOST && !found.contains(&nominee) {
            found.push(nominee);
        }
    };
    for line in output.lines().filter(|line| line.len() < 2000) {
        let small = line.to_ascii_lowercase();
        // In capitals: in small letters one is a part of `FileNotFoundError`.
        let codes = ["ENOTFOUND", "EAI_AGAIN", "ENETUNREACH"];
        if NETWORK.iter().any(|word| small.contains(word)) || codes.iter().any(|code| line.contains(code)) {
            add(Nominee::Network(host_of(line).or_else(|| host_of(script))));
            continue;
        }
        if !REFUSED.iter().any(|word| small.contains(word)) {
            continue;
        }
        for (word, name) in
            [("unshare", "make a namespace"), ("mount", "mount"), ("ptrace", "trace a process"), ("bwrap", "make a namespace")]
        {
            if small.contains(word) && small.contains("not permitted") {
                add(Nominee::Kernel(name));
            }
        }
        let writes = WRITING.iter().any(|word| small.contains(word));
        let paths = paths_of(line);
        if paths.is_empty() && !small.contains("no such") && output.contains("socket") {
            add(Nominee::Network(host_of(script)));
        }
        for path in paths {
            let writes = writes || script_writes(script, &path);
            add(Nominee::Path(path, writes));
        }
    }
    found
}

/// The paths in a line of output: quoted, between colons, or by themselves.
fn paths_of(line: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    let mut quoted = line.split(['\'', '"', '`', '‘', '’']).map(str::trim).filter(|part| part.contains('/')).peekable();
    let has_quotes = line.contains(['\'', '"', '‘']) && quoted.peek().is_some();
    let parts: Vec<&str> = if has_quotes { quoted.collect() } else { line.split(": ").map(str::trim).collect() };
    for part in parts {
        let part = part.trim_end_matches([':', ',', ')', '.']);
        // A sentence is no path; a path with a blank in it is quoted by those who mean it.
        let words: Vec<&str> = if has_quotes { vec![part] } else { part.split_whitespace().collect() };
        let candidates = words.into_iter().filter(|word| word.starts_with('/') || word.starts_with("../") || word.contains('/'));
        paths.extend(candidates.filter(|word| !word.contains("://") && word.len() < 1000).map(str::to_owned));
    }
    // What bash calls the script that it is given.
    paths.retain(|path| !path.starts_with("/dev/fd/") && !path.starts_with("/dev/tcp/") && !path.starts_with("/dev/udp/"));
    paths.dedup();
    paths
}

/// Programs that write every name that they are given, and those that write the last.
const WRITERS: &[&str] = &["touch", "tee", "rm", "mkdir", "rmdir", "truncate", "chmod", "chown"];
const WRITERS_OF_LAST: &[&str] = &["cp", "mv", "ln", "install"];

/// Whether the script seems to write there: a redirection, a program that writes, an open for writing.
fn script_writes(script: &str, path: &str) -> bool {
    const QUOTES: [char; 2] = ['"', '\''];
    const ENDS: [char; 5] = ['\n', ';', '|', '&', ')'];
    script.match_indices(path).any(|(at, _)| {
        let before = script[..at].trim_end_matches(QUOTES).trim_end();
        let after = script[at + path.len()..].trim_start_matches(QUOTES);
        let statement = &before[before.rfind(ENDS).map_or(0, |cut| cut + 1)..];
        let program = statement.split_whitespace().next().unwrap_or_default();
        let is_last = after.split(ENDS).next().is_none_or(|rest| rest.trim().is_empty());
        let opened = after.trim_start_matches([',', ' ', '\\']).trim_start_matches(QUOTES);
        before.ends_with('>')
            || before.ends_with("of=")
            || WRITERS.contains(&program)
            || WRITERS_OF_LAST.contains(&program) && is_last
            || program == "sed" && statement.contains(" -i")
            || after.starts_with(',') && opened.starts_with(['w', 'a', 'x'])
    })
}

/// The host in a text, where one stands in a URL or behind the words of the usual programs.
fn host_of(text: &str) -> Option<String> {
    let until = |rest: &str| {
        let host: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')).collect();
        (!host.is_empty() && host.contains('.')).then_some(host)
    };
    let behind = |word: &str| text.find(word).and_then(|at| until(text[at + word.len()..].trim_start_matches([' ', '\'', '"'])));
    ["://", "resolve host:", "resolve host", "ENOTFOUND", "EAI_AGAIN", "connect to", "resolve"].into_iter().find_map(behind)
}

/// Whether ordinary permissions let this identity do it; `None`: nothing is there.
fn ordinary(identity: Identity, path: &Path, act: Act<'_>) -> Option<bool> {
    let bits = |meta: &std::fs::Metadata, want: u32| {
        let shift = if meta.uid() == identity.uid {
            6
        } else if meta.gid() == identity.gid {
            3
        } else {
            0
        };
        meta.mode() >> shift & want == want
    };
    let (judged, want) = match act {
        Act::Read => (path, 4),
        Act::Write => (path, 2),
        _ => (path.parent()?, 3),
    };
    let meta = std::fs::metadata(judged).ok()?;
    let above = judged.ancestors().skip(1).all(|folder| std::fs::metadata(folder).is_ok_and(|meta| bits(&meta, 1)));
    Some(above && bits(&meta, want))
}

/// A denial as the charter has it: what is to be repeated, and what is to be said.
struct Denial {
    probe: (&'static str, String),
    says: Value,
}

fn judge(charter: &Charter, walls: Walls, cwd: &Path, nominee: &Nominee) -> Option<Denial> {
    let policy = &charter.policy;
    match nominee {
        Nominee::Network(_) if charter.net == Net::Full => None,
        Nominee::Network(host) => Some(Denial {
            probe: ("network", "-".into()),
            says: json!({
                "act": "connect",
                "address": host,
                "protection": "net.tcp",
                "policy": format!("{policy}: net = {}", if charter.net == Net::None { "none" } else { "loopback" }),
                "allowed": if charter.net == Net::None { "no network" } else { "servers and clients of the session on its own loopback; no other host, and no names but localhost" },
            }),
        }),
        Nominee::Kernel(act) => Some(Denial {
            probe: ("kernel", "-".into()),
            says: json!({
                "act": act,
                "protection": "kernel",
                "policy": "always: the filter of system calls",
                "allowed": "nothing in its place: no namespaces, mounts or tracing of others inside the sandbox",
            }),
        }),
        Nominee::Path(path, writes) => {
            let spot = Spot::find(cwd, Path::new(path), true)?;
            let real = &spot.real;
            let exists = real.symlink_metadata().is_ok();
            let (act, word) = match (writes, exists) {
                (true, true) => (Act::Write, "write"),
                (true, false) => (Act::Make(Made::Other), "create"),
                (false, true) => (Act::Read, "read"),
                // Nothing is there to be read, and nothing says that it was to be made.
                (false, false) => return None,
            };
            let verdict = predict(charter, walls, Access::Execute, &spot, act);
            if verdict.allowed || ordinary(charter.identity, real, act) != Some(true) {
                return None;
            }
            let (protection, line) = match &verdict.by {
                By::Protected(name) | By::Undone(name) => ("fs.protected", format!("{policy}: protect {}", shown(charter, name))),
                _ if !writes => ("fs.read", format!("{policy}: nothing grants it for reading")),
                _ => ("fs.write", format!("{policy}: nothing grants it for writing")),
            };
            Some(Denial {
                probe: (word, real.to_string_lossy().into_owned()),
                says: json!({
                    "act": word,
                    "path": shown(charter, real),
                    "protection": protection,
                    "policy": line,
                    "allowed": allowed(charter, &verdict.by, act),
                }),
            })
        }
    }
}

fn allowed(charter: &Charter, by: &By, act: Act<'_>) -> String {
    match (by, act) {
        (By::Protected(name) | By::Undone(name), _) if name.ends_with("config") => {
            "reading it; git works without changing it: `git -c NAME=VALUE …` for one command, `git push origin BRANCH` instead of `push -u`".into()
        }
        (By::Protected(_) | By::Undone(_), _) => "reading it; the person can change it outside of the sandbox".into(),
        (_, Act::Read) => "the workspace, the system's programs, and the session's own home and temporary files".into(),
        (_, _) => format!("writing in the workspace ({}), in $TMPDIR and in $HOME", escape::show(charter.base.as_os_str())),
    }
}

fn shown(charter: &Charter, path: &Path) -> String {
    escape::show(path.strip_prefix(&charter.base).unwrap_or(path).as_os_str())
}

impl Session {
    /// A refused connection is no refusal of the sandbox, and looks like one of a server that is down: say whose loopback it was.
    pub(super) fn own_loopback(&self, outcome: &Outcome) -> Option<String> {
        let own = self.charter.net == Net::Loopback && self.report.surroundings.namespaces.net;
        let refused = |bytes: &[u8]| String::from_utf8_lossy(bytes).to_ascii_lowercase().contains("connection refused");
        (own && outcome.output.chunks.iter().any(|chunk| refused(&chunk.bytes))).then(|| {
            "the loopback is the session's own: only servers that the session started listen there; the host's are out of reach".to_owned()
        })
    }

    /// Which failures of a command were the sandbox's. Never fails: what cannot be explained is not.
    pub(super) async fn explain(&self, script: &str, outcome: &Outcome) -> Vec<Value> {
        let text = said(&outcome.output);
        let cwd = match outcome.cwd.as_deref() {
            Some(cwd) => self.charter.base.join(escape::name(cwd)),
            None => self.charter.base.clone(),
        };
        let nominees = nominate(script, &text);
        let walls = Walls::of(&self.charter, self.report.surroundings.namespaces.mount);
        let mut denials: Vec<Denial> = nominees.iter().filter_map(|nominee| judge(&self.charter, walls, &cwd, nominee)).collect();
        denials.dedup_by(|one, other| one.says == other.says);
        if denials.is_empty() {
            return Vec::new();
        }
        let acts: Vec<(&str, OsString)> = denials.iter().map(|denial| (denial.probe.0, OsString::from(&denial.probe.1))).collect();
        let repeated = self.try_acts(&acts).await;
        denials
            .into_iter()
            .zip(repeated)
            // What gets through when it is repeated was not refused by the sandbox.
            .filter(|(_, answer)| answer != "open")
            .map(|(denial, answer)| {
                let mut says = denial.says;
                says["repeated"] = Value::Bool(answer == "shut");
                says
            })
            .collect()
    }

    /// Tries acts in a jail for commands, as far as they have no effect: `read` and `write` (opening), `connect` (HOST/PORT), `network`,
    /// `kernel`. One word each: `open`, `shut`, `unknown`.
    pub async fn try_acts(&self, acts: &[(&str, OsString)]) -> Vec<String> {
        let mut answers = vec!["unknown".to_owned(); acts.len()];
        let mut argv: Vec<OsString> = ["bash", "-c", SCRIPT, "probe"].map(OsString::from).to_vec();
        argv.extend(acts.iter().flat_map(|(act, on)| [OsString::from(act), on.clone()]));
        let run = async {
            let (out, out_end) = super::command::pipe()?;
            let (err, err_end) = super::command::pipe()?;
            let streams = Streams(vec![(super::command::input(None)?, 0), (out_end, 1), (err_end, 2)]);
            let process = self.spawn(Access::Execute, ToLeader { argv, ..ToLeader::default() }, streams)?;
            let (mut said, mut unread) = (Vec::new(), Vec::new());
            let (ended, first, second) =
                tokio::join!(process.wait(), super::command::read_all(&out, &mut said), super::command::read_all(&err, &mut unread));
            ended?;
            first.and(second).map_err(super::command::broken)?;
            Ok::<_, crate::envelope::Fault>(said)
        };
        if let Ok(Ok(said)) = tokio::time::timeout(PROBE, run).await {
            for (answer, word) in answers.iter_mut().zip(String::from_utf8_lossy(&said).lines()) {
                word.clone_into(answer);
            }
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clip::capture::Amount;
    use crate::tools::Chunk;

    #[test]
    fn a_line_that_another_stream_tears_is_whole() {
        let chunk = |stream, text: &str| Chunk { stream, bytes: text.as_bytes().to_vec(), dropped_before: Amount::default() };
        let chunks = vec![
            chunk(Stream::Stderr, "tee: /outside/new"),
            chunk(Stream::Stdout, "x\n"),
            chunk(Stream::Stderr, ": Permission denied\n"),
            chunk(Stream::Stdout, "y"),
        ];
        let text = said(&Captured { chunks, ..Captured::default() });
        assert_eq!(text, "tee: /outside/new: Permission denied\n\nx\ny");
        assert_eq!(nominate("echo x | tee /outside/new", &text), [Nominee::Path("/outside/new".into(), true)]);
    }

    #[test]
    fn the_usual_programs_name_their_paths() {
        for (line, path) in [
            ("cat: /x/secret: Permission denied", "/x/secret"),
            ("ls: cannot open directory '/x y': Permission denied", "/x y"),
            ("touch: cannot touch '/x/new': Read-only file system", "/x/new"),
            ("bash: line 1: /x/new: Read-only file system", "/x/new"),
            ("/dev/fd/6: line 1: /x/new: Permission denied", "/x/new"),
            ("PermissionError: [Errno 13] Permission denied: '/x/secret'", "/x/secret"),
            ("Error: EACCES: permission denied, open '/x/secret'", "/x/secret"),
            ("error: could not lock config file .git/config: Permission denied", ".git/config"),
            ("cp: cannot stat '../outside/secret': Permission denied", "../outside/secret"),
        ] {
            let found = nominate("", line);
            assert!(found.iter().any(|nominee| matches!(nominee, Nominee::Path(found, _) if found == path)), "{line}: {found:?}");
        }
        assert!(nominate("", "all is well in /x/secret").is_empty());
    }

    #[test]
    fn writing_is_seen_by_words_and_by_the_script() {
        let one = |script: &str, line: &str| nominate(script, line).pop();
        assert_eq!(one("echo a > /x/n", "bash: /x/n: Permission denied"), Some(Nominee::Path("/x/n".into(), true)));
        assert_eq!(
            one("cp a '/x/n'", "cp: cannot create regular file '/x/n': Permission denied"),
            Some(Nominee::Path("/x/n".into(), true))
        );
        assert_eq!(one("cat /x/n", "cat: /x/n: Permission denied"), Some(Nominee::Path("/x/n".into(), false)));
        assert_eq!(one("cp /x/n a", "cp: /x/n: Permission denied"), Some(Nominee::Path("/x/n".into(), false)));
    }

    #[test]
    fn hosts_are_found() {
        for (script, line, host) in [
            ("", "curl: (6) Could not resolve host: example.com", Some("example.com")),
            ("git clone https://example.com/x", "fatal: unable to access: Could not resolve", Some("example.com")),
            ("", "getaddrinfo ENOTFOUND registry.example.com", Some("registry.example.com")),
            ("", "connect: Network is unreachable", None),
        ] {
            assert_eq!(nominate(script, line), [Nominee::Network(host.map(str::to_owned))], "{line}");
        }
    }
}
