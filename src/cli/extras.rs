//! What a run has besides the session's tools: skills, and the tools of MCP servers. From flags, files and folders to what the agent is given.
//!
//! A stranger's tree says nothing here: neither its skills nor its servers are looked at. A trusted one may name servers, but not take variables
//! of the person's for them that commands do not have.

use super::engine::Engine;
use super::setup::Setup;
use super::show::seen;
use crate::agent::extra::{Extended, Extra};
use crate::agent::outcome::Outcome;
use crate::agent::prompt::{SessionOptions, Switch, Toolset};
use crate::agent::skills::{Search, Skills};
use crate::envelope::{Fault, FaultCode};
use crate::mcp::client::config::{self, Read, Server};
use crate::mcp::client::{self, Servers};
use crate::policy::Charter;
use crate::policy::file::Trust;
use crate::policy::skill_homes::{self, Home};
use crate::session::Session;
use crate::skills::front_matter::one_line;
use crate::workspace::RelPath;
use std::path::{Path, PathBuf};

/// Where a project names its servers, and where the person does, below their folder of settings.
const PROJECT_SERVERS: &str = ".mcp.json";
const OWN_SERVERS: &str = "bailiwick/mcp.json";
/// The most bytes of such a file.
const MOST_SERVERS: u64 = 1 << 20;

/// The most sentences that are said at the start.
const MOST_NOTES: usize = 20;

#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Extras {
    /// Use this skill and no others that are not named; without it the run does not start (repeat for several)
    #[arg(long = "skill", value_name = "NAME", conflicts_with = "no_skills")]
    skills: Vec<String>,
    /// Use no skills
    #[arg(long)]
    no_skills: bool,
    /// A file that names MCP servers, like a .mcp.json; it comes before the person's own and the project's (repeat for several)
    #[arg(long, value_name = "FILE", conflicts_with = "no_mcp")]
    mcp_config: Vec<PathBuf>,
    /// Use no MCP servers
    #[arg(long)]
    no_mcp: bool,
    /// The files of the flags and of the person's settings, with what they hold.
    #[arg(skip)]
    texts: Vec<(String, String)>,
}

/// What was found before the session starts: the charter has to grant it.
pub(super) struct Prepared {
    homes: Vec<Home>,
    notes: Vec<String>,
}

/// What a run has.
pub(super) struct Opened<'a> {
    session: &'a Session,
    skills: Option<Skills<'a>>,
    servers: Option<Servers<'a>>,
}

impl Extras {
    /// Nothing at all, for the demonstration.
    pub(super) fn none() -> Self {
        Self { no_skills: true, no_mcp: true, ..Self::default() }
    }

    /// Whether some are named.
    pub(super) fn are_named(&self) -> bool {
        !self.skills.is_empty() || !self.mcp_config.is_empty()
    }

    /// Reads the files that name servers, the project's aside. One may be a pipe.
    ///
    /// # Errors
    /// `invalid_policy` for one that cannot be read; the signal that came meanwhile.
    pub(super) fn read(mut self, setup: &Setup, engine: &mut Engine) -> Result<Self, Outcome> {
        if self.no_mcp {
            return Ok(self);
        }
        for file in &self.mcp_config {
            self.texts.extend(read_file(file, true, engine)?);
        }
        let here = setup.here();
        let settings = here.folder("XDG_CONFIG_HOME").or_else(|| here.in_home(".config"));
        if let Some(file) = settings.map(|settings| settings.join(OWN_SERVERS))
            && !file.canonicalize().is_ok_and(|file| file.starts_with(&setup.charter().base))
        {
            self.texts.extend(read_file(&file, false, engine)?);
        }
        Ok(self)
    }

    /// Finds the person's skills and has the charter grant them.
    pub(super) fn prepare(&self, setup: &Setup, charter: &mut Charter) -> Prepared {
        let mut dropped = Vec::new();
        let homes = match self.no_skills {
            true => Vec::new(),
            false => skill_homes::grant(charter, setup.here(), setup.details().trust(), &mut dropped),
        };
        Prepared { homes, notes: dropped.into_iter().map(|dropped| format!("{}: {}", dropped.what, dropped.why)).collect() }
    }

    /// Opens it in a session. What there is to say is said on standard error.
    ///
    /// # Errors
    /// `missing_requirement`, and what keeps the session from looking.
    pub(super) async fn open<'a>(&self, session: &'a Session, setup: &Setup, prepared: Prepared, nonce: &str) -> Result<Opened<'a>, Fault> {
        let Prepared { homes, mut notes } = prepared;
        let mut opened = Opened { session, skills: None, servers: None };
        let trusted = setup.details().trust() == Trust::Own;
        if !self.no_skills {
            match Skills::find(session, trusted, homes).await {
                Ok(Search { mut skills, notes: found }) => {
                    notes.extend(found);
                    let names = skills.names().join(", ");
                    let missing = if self.skills.is_empty() { Vec::new() } else { skills.keep(&self.skills) };
                    if !missing.is_empty() {
                        say(&notes);
                        let fault = Fault::new(FaultCode::MissingRequirement, format!("there is no skill {}", missing.join(", ")));
                        return Err(match trusted {
                            true if names.is_empty() => {
                                fault.hint("a skill is a folder with a SKILL.md below .agents/skills of the project or of your home folder")
                            }
                            true => fault.hint(format!("there is {names}")),
                            false => fault.hint("the tree is not trusted, so its own skills are not loaded"),
                        });
                    }
                    opened.skills = Some(skills);
                }
                Err(fault) if self.skills.is_empty() => notes.push(format!("skills could not be looked for: {fault}")),
                Err(fault) => return Err(Fault::new(FaultCode::MissingRequirement, format!("skills could not be looked for: {fault}"))),
            }
        }
        if !self.no_mcp {
            let Read { servers, mut wrong, notes: read } = self.servers(setup)?;
            notes.extend(read);
            let client::Opened { servers, missing, notes: found } = Servers::open(session, servers, nonce).await;
            notes.extend(found);
            wrong.extend(missing.into_iter().map(|missing| (missing.name, said(&missing.fault), missing.required)));
            let required: Vec<&str> = wrong.iter().filter(|(.., required)| *required).map(|(name, ..)| name.as_str()).collect();
            notes.extend(wrong.iter().map(|(name, why, _)| format!("no MCP server {name}: {why}")));
            if !required.is_empty() {
                say(&notes);
                return Err(Fault::new(
                    FaultCode::MissingRequirement,
                    one_line(&format!("the MCP server {} is required", required.join(", "))),
                ));
            }
            opened.servers = Some(servers).filter(|servers| !servers.is_empty());
        }
        say(&notes);
        Ok(opened)
    }

    /// The servers that are named. Of two of one name the first is taken: of the flags, of the person, of the project.
    fn servers(&self, setup: &Setup) -> Result<Read, Fault> {
        let of_the_person = |name: &str| std::env::var(name).ok();
        let mut all = Read::default();
        for (file, text) in &self.texts {
            add(&mut all, config::read(text, file, &of_the_person)?);
        }
        let path = RelPath::from_relative(PROJECT_SERVERS);
        if setup.details().trust() == Trust::Own && setup.base().lstat(&path).is_ok() {
            let bytes = setup.base().load(&path, MOST_SERVERS).map_err(|fault| {
                Fault::new(FaultCode::InvalidPolicy, fault.message().to_owned()).hint("--no-mcp goes without, and so does --trust fork")
            })?;
            let bytes = bytes.bytes;
            let text = String::from_utf8(bytes).map_err(|_| {
                Fault::new(FaultCode::InvalidPolicy, format!("{PROJECT_SERVERS} is not UTF-8")).hint("--no-mcp goes without")
            })?;
            // What commands see anyway, and nothing else of the person's.
            let env = &setup.charter().env;
            let of_commands =
                |name: &str| env.iter().rev().find(|(key, _)| key == name).and_then(|(_, value)| value.to_str().map(str::to_owned));
            add(&mut all, config::read(&text, PROJECT_SERVERS, &of_commands)?);
        }
        Ok(all)
    }
}

/// Adds a file's servers behind those that are there.
fn add(all: &mut Read, read: Read) {
    let Read { servers, wrong, notes } = read;
    all.notes.extend(notes);
    all.wrong.extend(wrong);
    for server in servers {
        match all.servers.iter().find(|known: &&Server| known.name == server.name) {
            Some(_) => all.notes.push(format!("MCP server {}: named twice, and the first is taken", server.name)),
            None => all.servers.push(server),
        }
    }
}

/// A file's name and text. One that is not `named` need not be there.
fn read_file(file: &Path, named: bool, engine: &mut Engine) -> Result<Option<(String, String)>, Outcome> {
    let says = if named { "--mcp-config " } else { "" };
    let wrong = |why: String| {
        let fault = Fault::new(FaultCode::InvalidPolicy, format!("{says}{}: {why}", file.display()));
        fault.hint("a file like a .mcp.json: {\"mcpServers\": {\"NAME\": {\"command\": \"PROGRAM\", \"args\": []}}}")
    };
    let bytes = match engine.read(file, MOST_SERVERS)? {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && !named => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(wrong("there is no such file".into()).into()),
        other => other.map_err(|error| wrong(error.to_string()))?,
    };
    if bytes.len() as u64 > MOST_SERVERS {
        return Err(wrong(format!("it has more than {} MiB", MOST_SERVERS >> 20)).into());
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".into()))?;
    Ok(Some((file.display().to_string(), text)))
}

/// A fault on one line, with the last words of a program.
fn said(fault: &Fault) -> String {
    let mut text = fault.message().to_owned();
    let envelope = crate::envelope::Envelope::from(Err(fault.clone()));
    if let Some(last) = envelope.data().get("stderr").and_then(serde_json::Value::as_str).and_then(|words| words.lines().last()) {
        text.push_str(": ");
        text.push_str(last);
    }
    text
}

impl<'a> Opened<'a> {
    /// The session with all that there is besides.
    pub(super) fn doorway(&'a self) -> Extended<'a> {
        let skills = self.skills.iter().map(|skills| skills as &dyn Extra);
        let servers = self.servers.iter().map(|servers| servers as &dyn Extra);
        Extended { session: self.session, extras: skills.chain(servers).collect() }
    }

    /// Switches on what is there.
    pub(super) fn switch_on(&self, options: &mut SessionOptions) {
        if self.skills.is_some() {
            options.on.insert(Switch::Skill);
        }
        if self.servers.is_some() {
            options.on.insert(Switch::Mcp);
        }
    }

    /// Ends what was started.
    pub(super) async fn close(self) {
        if let Some(servers) = self.servers {
            servers.close().await;
        }
    }

    /// Adds what the system text says of it.
    pub(super) fn tell(&self, toolset: &mut Toolset) {
        let can_load = toolset.find("load_skill").is_some();
        let text = self.skills.as_ref().map(|skills| skills.prompt(can_load)).unwrap_or_default();
        if !text.is_empty() {
            if !toolset.instructions.is_empty() {
                toolset.instructions.push_str("\n\n");
            }
            toolset.instructions.push_str(&text);
        }
    }
}

fn say(notes: &[String]) {
    for note in notes.iter().take(MOST_NOTES) {
        // Names of folders and servers are others' words, and could steer a terminal.
        say!("bailiwick: {}", seen(&one_line(note)));
    }
    if notes.len() > MOST_NOTES {
        say!("bailiwick: and {} more", notes.len() - MOST_NOTES);
    }
}
