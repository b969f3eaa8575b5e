//! `bailiwick policy explain`: what the sandbox answers to an act on a path, to a connection, or to a command. Foretold from the charter and,
//! where the act has no effect, tried in a live sandbox; each line says which.

use super::Common;
use super::policy::{print_json, resolved};
use super::setup::Setup;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::policy::predict::{Act, By, Made, Spot, Verdict, Walls, predict};
use crate::policy::{Access, Charter, Net};
use crate::session::{self, Session};
use crate::workspace::{RelPath, escape};
use clap::ValueEnum;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// A path (relative ones are relative to the workspace), a URL or HOST:PORT
    #[arg(value_name = "PATH|HOST", required_unless_present = "argv", conflicts_with = "argv")]
    subject: Option<OsString>,
    /// The act on the path
    #[arg(long, value_enum, default_value_t = Op::Read)]
    op: Op,
    /// The new name, of rename and link
    #[arg(long, value_name = "PATH", required_if_eq_any([("op", "rename"), ("op", "link")]))]
    to: Option<PathBuf>,
    /// For which calls
    #[arg(long, value_enum, default_value_t = Class::Execute)]
    access: Class,
    /// Only foretell: start no sandbox to try it in
    #[arg(long)]
    predict: bool,
    /// A command: whether its program can run, and what can be done to the paths and hosts among its arguments
    #[arg(last = true, value_name = "CMD")]
    argv: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Op {
    Read,
    Write,
    /// Make a file
    Create,
    /// Make a symbolic link
    Symlink,
    Mkdir,
    Remove,
    Rename,
    Link,
    Exec,
    /// Change mode, owner or times
    Metadata,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Class {
    /// read, grep, ls, find
    Look,
    /// write, edit, copy, …
    Change,
    /// sandbox_bash, exec
    Execute,
}

/// One answer.
#[derive(Debug, Serialize)]
struct Line {
    /// What it is about: a path with its links resolved, or a host.
    subject: String,
    act: &'static str,
    verdict: Verdict,
    /// The reason in words.
    why: String,
    predicted: bool,
    /// It was tried in a live sandbox too.
    tried: bool,
    /// What came of that: `open`, `shut`.
    answer: Option<String>,
    /// How it is tried.
    #[serde(skip)]
    probe: Option<(&'static str, OsString)>,
}

/// A host and a port as a person writes them.
#[derive(Debug, PartialEq)]
struct Peer {
    host: String,
    port: u16,
}

impl Peer {
    /// As [`Peer::read`].
    ///
    /// # Errors
    /// `invalid_arguments` for what can be nothing but a host, and names none or no port.
    fn asked(subject: &OsStr, base: &Path) -> Result<Option<Self>, Fault> {
        let peer = Self::read(subject, base);
        let text = subject.to_str().unwrap_or_default();
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        let there = text.contains('/') || base.join(text).symlink_metadata().is_ok();
        let is_host = text.contains("://") || !there && text.rsplit_once(':').is_some_and(|(_, port)| is_port(port));
        if peer.is_none() && is_host {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{text}: this names no host and port"))
                .hint("HOST:PORT, with a port from 0 to 65535, or http(s)://HOST; for a file of this name write ./NAME"));
        }
        Ok(peer)
    }

    /// `scheme://host[:port]/…`, or `host:port` where no such path is there.
    fn read(subject: &OsStr, base: &Path) -> Option<Self> {
        let text = subject.to_str()?;
        let (rest, usual) = match text.split_once("://") {
            Some((scheme, rest)) => (rest.split(['/', '?', '#']).next()?, Some(if scheme == "http" { 80 } else { 443 })),
            None if text.contains('/') || base.join(text).symlink_metadata().is_ok() => return None,
            None => (text, None),
        };
        let rest = rest.rsplit('@').next()?;
        let (host, port) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => rest.split_once(':').map_or((rest, None), |(host, port)| (host, Some(port))),
        };
        let port = port.map_or(usual, |port| port.parse().ok())?;
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback() || address.is_unspecified())
    }
}

impl Explain {
    /// 0 whatever the answer is, 2 a question that is wrong.
    pub(super) fn run(self, common: &Common) -> Result<ExitCode, Fault> {
        let setup = resolved(common, None)?;
        let question = Question { charter: setup.charter(), setup: &setup, access: self.class() };
        // Whether mounts are made here is only known once they were.
        let mut live = if self.predict { None } else { Some(Live::start(common)) };
        let mounts = match &live {
            Some(Ok(live)) => live.session.report().surroundings.namespaces.mount,
            _ => setup.charter().namespaces,
        };
        let walls = Walls::of(setup.charter(), mounts);
        let mut lines = match &self.subject {
            Some(subject) => match Peer::asked(subject, &setup.charter().base)? {
                Some(peer) => vec![question.peer(&peer, walls)],
                None => vec![question.path(Path::new(subject), self.op, self.to.as_deref(), walls)?],
            },
            None => question.command(&self.argv, walls)?,
        };
        let mut not_tried = None;
        match &mut live {
            Some(Ok(live)) => live.try_them(&mut lines)?,
            Some(Err(fault)) => not_tried = Some(fault.to_string()),
            None => {}
        }
        if common.json {
            match (&self.subject, lines.first()) {
                (Some(_), Some(line)) => print_json(line),
                _ => print_json(&lines),
            }
        } else {
            for line in &lines {
                out!("{}", line.text());
            }
        }
        if let Some(why) = not_tried {
            say!("bailiwick: no sandbox to try it in: {why}");
        }
        Ok(ExitCode::Done)
    }

    fn class(&self) -> Access {
        match self.access {
            Class::Look => Access::Look,
            Class::Change => Access::Change,
            Class::Execute => Access::Execute,
        }
    }
}

struct Question<'a> {
    charter: &'a Charter,
    setup: &'a Setup,
    access: Access,
}

impl Question<'_> {
    fn line(&self, subject: String, act: &'static str, verdict: Verdict, probe: Option<(&'static str, OsString)>) -> Line {
        let why = self.why(&verdict);
        // Only commands are tried: what other jails may open, they open by the tools.
        let probe = probe.filter(|_| self.access == Access::Execute && self.charter.execute.is_some());
        Line { subject, act, verdict, why, predicted: true, tried: false, answer: None, probe }
    }

    fn spot(&self, path: &Path, follow: bool) -> Result<Spot, Fault> {
        Spot::find(&self.charter.base, path, follow).ok_or_else(|| {
            let shown = escape::show(path.as_os_str());
            Fault::new(FaultCode::InvalidArguments, format!("{shown}: leads nowhere: a loop of links, or .. behind what is no folder"))
        })
    }

    fn path(&self, path: &Path, op: Op, to: Option<&Path>, walls: Walls) -> Result<Line, Fault> {
        let new_name = to.map(|to| self.spot(to, false)).transpose()?;
        let (act, word) = match (op, &new_name) {
            (Op::Write, _) => (Act::Write, "write"),
            (Op::Create, _) => (Act::Make(Made::Other), "create"),
            (Op::Symlink, _) => (Act::Make(Made::Link), "symlink"),
            (Op::Mkdir, _) => (Act::Make(Made::Folder), "mkdir"),
            (Op::Remove, _) => (Act::Remove, "remove"),
            (Op::Rename, Some(to)) => (Act::Rename(to), "rename"),
            (Op::Link, Some(to)) => (Act::Link(to), "link"),
            (Op::Exec, _) => (Act::Exec, "exec"),
            (Op::Metadata, _) => (Act::Metadata, "metadata"),
            _ => (Act::Read, "read"),
        };
        let spot = self.spot(path, !act.is_on_the_name())?;
        let verdict = predict(self.charter, walls, self.access, &spot, act);
        let probe = matches!(op, Op::Read | Op::Write).then(|| (word, spot.real.clone().into_os_string()));
        Ok(self.line(escape::show(spot.real.as_os_str()), word, verdict, probe))
    }

    fn peer(&self, peer: &Peer, walls: Walls) -> Line {
        let own = self.charter.net == Net::Loopback && walls.mounts;
        let allowed = self.access == Access::Execute
            && self.charter.execute.is_some()
            && (self.charter.net == Net::Full || own && peer.is_loopback());
        let subject =
            if peer.host.contains(':') { format!("[{}]:{}", peer.host, peer.port) } else { format!("{}:{}", peer.host, peer.port) };
        let by = match self.charter.grants(self.access) {
            None => By::NoAccess,
            Some(_) => By::Net(if self.access == Access::Execute { self.charter.net } else { Net::None }),
        };
        let verdict = Verdict { allowed, by };
        self.line(subject, "connect", verdict, Some(("connect", format!("{}/{}", peer.host, peer.port).into())))
    }

    /// The program, what interprets it, and what its arguments name.
    fn command(&self, argv: &[OsString], walls: Walls) -> Result<Vec<Line>, Fault> {
        let Some((name, args)) = argv.split_first() else { return Ok(Vec::new()) };
        let program = self.program(name, walls).ok_or_else(|| {
            let shown = escape::show(name);
            Fault::new(FaultCode::InvalidArguments, format!("{shown}: there is no such program on the PATH of commands"))
                .hint("`bailiwick policy show` prints their PATH")
        })?;
        let mut lines = vec![self.path(&program, Op::Exec, None, walls)?];
        if let Some(interpreter) = self.interpreter(&program) {
            lines.push(self.path(&interpreter, Op::Exec, None, walls)?);
        }
        for arg in args {
            // Of `--file=x` and `of=x` the value is meant.
            let value = arg.as_bytes().iter().position(|byte| *byte == b'=').map(|at| OsStr::from_bytes(&arg.as_bytes()[at + 1..]));
            let value = value.unwrap_or(arg);
            if let Some(peer) = Peer::read(value, &self.charter.base) {
                lines.push(self.peer(&peer, walls));
                continue;
            }
            let there = self.charter.base.join(value).symlink_metadata().is_ok() && !value.is_empty();
            if there {
                lines.push(self.path(Path::new(value), Op::Read, None, walls)?);
                lines.push(self.path(Path::new(value), Op::Write, None, walls)?);
            } else if value.as_bytes().contains(&b'/') && !value.as_bytes().starts_with(b"-") {
                lines.push(self.path(Path::new(value), Op::Create, None, walls)?);
            }
        }
        Ok(lines)
    }

    /// As the shell finds it.
    fn program(&self, name: &OsStr, walls: Walls) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            return Some(name.into());
        }
        let path = self.charter.env.iter().rev().find(|(key, _)| key == "PATH").map(|(_, value)| value)?;
        let all: Vec<PathBuf> = std::env::split_paths(path).map(|folder| folder.join(name)).collect();
        let is_program = |file: &&PathBuf| file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
        let runs = |file: &&PathBuf| {
            Spot::find(Path::new("/"), file, true).is_some_and(|spot| predict(self.charter, walls, self.access, &spot, Act::Exec).allowed)
        };
        all.iter().filter(is_program).find(runs).or_else(|| all.iter().find(is_program)).cloned()
    }

    /// What a script's first line names, of a program of the workspace.
    fn interpreter(&self, program: &Path) -> Option<PathBuf> {
        /// As much of the first line as the kernel reads.
        const MOST: u64 = 256;
        let spot = Spot::find(&self.charter.base, program, true)?;
        let inside = spot.real.strip_prefix(&self.charter.base).ok()?;
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let file = File::from(self.setup.base().open_at(&RelPath::from_relative(inside), flags, Mode::empty()).ok()?);
        let mut front = Vec::new();
        if file.metadata().ok()?.is_file() {
            file.take(MOST).read_to_end(&mut front).ok()?;
        }
        let first = front.split(|byte| *byte == b'\n').next()?.strip_prefix(b"#!")?;
        let text = String::from_utf8_lossy(first).into_owned();
        text.split_whitespace().next().map(PathBuf::from)
    }

    fn why(&self, verdict: &Verdict) -> String {
        let show = |path: &Path| escape::show(path.as_os_str());
        match &verdict.by {
            By::Grant(grant) => format!("by the grant {} ({}): {}", show(&grant.path), grant.origin, grant.reason),
            By::Protected(path) => format!("{} is protected", show(path)),
            By::Undone(path) => format!("{} is protected: what a command does to it is undone afterwards, and said", show(path)),
            By::NoAccess => format!("the policy {} has no such calls", self.charter.policy),
            By::Nothing => "no rule grants it".into(),
            By::ReadOnly => "mounted read-only".into(),
            By::Mounted(path) => format!("{} is mounted by itself, so its name stays", show(path)),
            By::Between(path) => format!("{} is mounted by itself: nothing is renamed or linked in or out; a copy is made", show(path)),
            By::MoreRights => "it would have more rights under its new name than under the old one; a copy is made".into(),
            By::OwnFolder => "/tmp and /dev/shm are the session's own, and what the host has there is not seen".into(),
            By::NotJudged => "nothing grants it, and nothing judges it here: fs.metadata is not enforced without mounts".into(),
            By::Net(Net::None) => "no network".into(),
            By::Net(Net::Loopback) if verdict.allowed => "the session's own loopback; servers of the host are not there".into(),
            By::Net(Net::Loopback) => "no network but the session's own loopback, where namespaces start".into(),
            By::Net(Net::Full) => "the host's network".into(),
        }
    }
}

impl Line {
    fn text(&self) -> String {
        let word = if self.verdict.allowed { "allowed" } else { "refused" };
        let tried = match self.answer.as_deref() {
            Some("open") => "foretold, and tried: it was let through",
            Some("shut") if self.verdict.allowed => "foretold, and tried: it did not come about",
            Some("shut") => "foretold, and tried: it was refused",
            _ => "foretold from the policy, not tried",
        };
        format!("{} {}: {word}: {} ({tried})", self.act, self.subject, self.why)
    }
}

/// A sandbox in which acts are tried.
struct Live {
    session: Session,
    runtime: tokio::runtime::Runtime,
    /// Given up after the session.
    _setup: Setup,
}

impl Live {
    fn start(common: &Common) -> Result<Self, Fault> {
        let setup = Setup::for_program(common)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let options = session::Options { exe: session::this_exe(), registry: &[], charter: setup.charter().clone() };
        let session = {
            let _inside = runtime.enter();
            Session::start(options)?
        };
        Ok(Self { session, runtime, _setup: setup })
    }

    fn try_them(&self, lines: &mut [Line]) -> Result<(), Fault> {
        let acts: Vec<(&str, OsString)> = lines.iter().filter_map(|line| line.probe.clone()).collect();
        let answers = if acts.is_empty() { Vec::new() } else { self.runtime.block_on(self.session.try_acts(&acts)) };
        for (line, answer) in lines.iter_mut().filter(|line| line.probe.is_some()).zip(answers) {
            line.tried = answer != "unknown";
            line.answer = line.tried.then_some(answer);
        }
        Ok(())
    }
}
