//! The one doorway for calls.
//!
//! [`Session::call`] takes a call and gives an answer; it cannot fail in Rust terms: spawn errors, death, flood, deadline and a
//! malformed reply are each a fault in the answer. [`Session::spawn`] is the second doorway, for programs whose streams somebody
//! else handles (`exec`, our own git). Dropping the future of a call ends its process tree; there is no in-band cancel.

mod background;
mod command;
mod denials;
mod guard;
mod limit;
mod pool;
mod primed;
mod spool;

use crate::confine::Report;
use crate::envelope::{Fault, FaultCode};
use crate::jail::spawn::Warden;
use crate::policy::{Access, Charter};
use crate::tools::bench::Ledger;
use crate::tools::{self, Answer, AnyTool, Work, args};
use crate::workspace::BaseDir;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use command::{Lasting, OwnOutput, Process, SHORT, Streams};
pub use guard::Once;

/// How long a tool that looks or changes may take.
pub const TOOL_TIME: Duration = Duration::from_secs(60);

/// A tool call, as a model, a person or an MCP peer makes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// The caller's id of the call.
    pub id: String,
    /// The tool's name, or one of its aliases.
    pub tool: String,
    /// The arguments, not yet read.
    pub args: Value,
}

/// A session: one workspace, one policy, one warden.
pub struct Session {
    charter: Charter,
    /// All that there are, offered or not.
    registry: &'static [&'static dyn AnyTool],
    tools: Vec<&'static dyn AnyTool>,
    report: Report,
    pool: pool::Pool,
    /// What calls learnt about files. Each jail is told what it does not know yet.
    seen: RefCell<Ledger>,
    shell: RefCell<command::ShellState>,
    spool_files: std::cell::Cell<u64>,
    /// Dropped before the warden, which ends them in any case.
    background: RefCell<Vec<background::Background>>,
    started: std::cell::Cell<u64>,
    guard: RefCell<guard::Guard>,
    /// Programs that outlive calls and are no background processes of the model's: servers.
    lasting: std::cell::Cell<usize>,
    /// What was undone of a command that was cancelled, for the next answer.
    guard_notices: RefCell<Vec<String>>,
    /// One: a command follows another. They share a shell's state, and what is undone after one must not be another's.
    command_places: tokio::sync::Semaphore,
    /// Nobody wants the texts of what file tools answer.
    facts_alone: bool,
    warden: Warden,
}

/// How a session is started.
pub struct Options {
    /// An executable that hands its hidden role to [`crate::jail::warden::run`] with the same registry.
    pub exe: PathBuf,
    /// The tools, as the executable's registry holds them.
    pub registry: &'static [&'static dyn AnyTool],
    /// What is permitted.
    pub charter: Charter,
}

impl Session {
    /// Starts the warden, has the walls proved, and offers the tools that the policy permits.
    ///
    /// # Errors
    /// `cannot_confine`, `canary_failed`, `invalid_workspace`, `internal`.
    pub fn start(options: Options) -> Result<Self, Fault> {
        let Options { exe, registry, charter } = options;
        check_names(registry)?;
        // The host holds the model's key: nobody may read its memory or its environment.
        nix::sys::prctl::set_dumpable(false)
            .map_err(|errno| Fault::new(FaultCode::CannotConfine, format!("the host stays readable: {}", errno.desc())))?;
        let base = BaseDir::open(&charter.base)?;
        let tools = offered(registry, &charter);
        let mut classes: Vec<Access> =
            tools.iter().map(|tool| tool.access()).chain([Access::Own]).chain(Self::guard_classes(&charter)).collect();
        classes.sort_unstable();
        classes.dedup();
        let warden = Warden::begin(&exe, &charter, &classes, &base)?;
        let report = warden.ready()?;
        Ok(Self {
            charter,
            registry,
            tools,
            report,
            pool: pool::Pool::default(),
            seen: RefCell::default(),
            shell: RefCell::default(),
            spool_files: std::cell::Cell::new(0),
            background: RefCell::default(),
            started: std::cell::Cell::new(0),
            guard: RefCell::default(),
            lasting: std::cell::Cell::new(0),
            guard_notices: RefCell::default(),
            command_places: tokio::sync::Semaphore::new(1),
            facts_alone: false,
            warden,
        })
    }

    /// For a caller who has no use for the texts beside the facts: they may be empty from now on, which saves the work of making them.
    pub fn leave_out_texts(&mut self) {
        self.facts_alone = true;
    }

    /// Tells that a piece of work is done that does not come again, so that what it had in memory of the program is given back.
    pub fn forget_start() {
        crate::jail::spawn::forget_start();
    }

    /// The tools that this session offers, in the order in which a model sees them.
    pub fn tools(&self) -> &[&'static dyn AnyTool] {
        &self.tools
    }

    /// Puts a copy of a file into the spool, under a key, and offers the tools that read it. Before the first call.
    ///
    /// # Errors
    /// `invalid_arguments` for a key that is none or is taken, `too_large`, `io_error`.
    pub fn attach(&mut self, key: &str, bytes: &[u8]) -> Result<(), Fault> {
        use tools::attachment::{ATTACHED, MOST_BYTES, spool_name};
        let name = spool_name(key).ok_or_else(|| Fault::new(FaultCode::InvalidArguments, format!("{key:?} is no key")))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(Fault::new(FaultCode::TooLarge, format!("the attachment {key} has more than {} MiB", MOST_BYTES >> 20)));
        }
        let more = offered(ATTACHED, &self.charter);
        let there = |name: &str| self.tools.iter().any(|known| known.name() == name);
        let new: Vec<_> = more.into_iter().filter(|tool| !there(tool.name())).collect();
        let path = self.charter.session_dir.join("spool").join(name);
        let broken = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => Fault::new(FaultCode::InvalidArguments, format!("the key {key} is taken")),
            _ => Fault::new(FaultCode::IoError, format!("the attachment {key}: {error}")),
        };
        let mut file = std::fs::File::create_new(path).map_err(broken)?;
        std::io::Write::write_all(&mut file, bytes).map_err(broken)?;
        self.tools.extend(new);
        Ok(())
    }

    /// What is enforced, as proved at the start.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What is permitted.
    pub fn charter(&self) -> &Charter {
        &self.charter
    }

    /// Runs one call.
    pub async fn call(&self, call: Call) -> Answer {
        match self.find(&call.tool) {
            Ok(tool) => self.perform(tool, call.args).await,
            Err(fault) => Answer::failed(fault),
        }
    }

    /// Runs a tool that the caller holds, whether this session offers it or not; what it may do is its class's matter. It has to be in the
    /// executable's registry or in [`tools::INTERNAL`] when it works in a jail.
    pub async fn perform(&self, tool: &dyn AnyTool, args: Value) -> Answer {
        if self.charter.grants(tool.access()).is_none() {
            return Answer::failed(Fault::new(FaultCode::ToolDenied, format!("the policy {} does not permit it", self.charter.policy)));
        }
        let (args, warnings) = match tool.read(args) {
            Ok(read) => read,
            Err(fault) => return Answer::failed(fault),
        };
        // What is waited for longer is boxed: a call that waits for little is small.
        let result = match tool.work() {
            Work::Jail(_) => self.call_jail(tool, args).await,
            Work::Process { op, report } => match op(&args) {
                Ok(op) => Box::pin(self.process(op)).await.map(|reply| report(&args, &reply)),
                Err(fault) => Err(fault),
            },
            Work::Command { launch, report } => match launch(&args) {
                Ok(launch) if launch.background => Box::pin(self.run_in_background(launch)).await.map(|outcome| report(&args, &outcome)),
                Ok(launch) => Box::pin(self.run_guarded(launch)).await.map(|outcome| report(&args, &outcome)),
                Err(fault) => Err(fault),
            },
        };
        Answer::from_parts(result, warnings)
    }

    /// Runs a command between two looks at the protected names, and explains what the sandbox refused.
    async fn run_guarded(&self, launch: tools::Launch) -> Result<tools::Outcome, Fault> {
        let closed = |_| Fault::new(FaultCode::SessionClosed, "the session has ended");
        let _place = self.command_places.acquire().await.map_err(closed)?;
        let script = launch.script.clone();
        let mut trusting = true;
        let (outcome, compared) = loop {
            self.guard_before(trusting).await?;
            match self.run_command(&launch).await {
                Ok(Some((outcome, compared))) => break (Ok(outcome), compared),
                Err(fault) => break (Err(fault), None),
                // Somebody changed protected names meanwhile: they are kept anew.
                Ok(None) if trusting => {
                    self.guard_stale();
                    trusting = false;
                }
                Ok(None) => {
                    self.guard_stale();
                    return Err(Fault::new(FaultCode::Internal, "protected names change all the time: the command was not started")
                        .hint("a background process of the session, or something outside, changes them: end it, then call again"));
                }
            }
        };
        let undone = self.guard_after(compared).await;
        let running = self.running_processes();
        if !running.is_empty() || self.lasting.get() > 0 {
            // What runs on may change protected names at any time: the next comparison counts it as a command's.
            self.guard.borrow_mut().keep_open();
        }
        let mut outcome = outcome?;
        outcome.notices.extend(undone);
        outcome.denials = self.explain(&script, &outcome).await;
        outcome.notices.extend(self.own_loopback(&outcome));
        if outcome.exit_code != Some(0)
            && !running.is_empty()
            && let Some(why) = self.why_no_loopback()
        {
            outcome.notices.push(format!("no command can connect to {}: {why}", running.join(", ")));
        }
        Ok(outcome)
    }

    /// Starts a command that goes on running, and answers with what is known of it at once.
    async fn run_in_background(&self, launch: tools::Launch) -> Result<tools::Outcome, Fault> {
        let reply = self.start_background(launch, None).await?;
        let status = reply.processes.into_iter().next().unwrap_or_default();
        Ok(tools::Outcome {
            started: Some(status.id),
            exit_code: status.exit_code,
            output: reply.output,
            duration_ms: status.age_ms,
            notices: reply.notices,
            spool: status.spool,
            ..tools::Outcome::default()
        })
    }

    /// Ends everything that the session started.
    pub fn close(self) {
        drop(self);
    }

    fn find(&self, name: &str) -> Result<&'static dyn AnyTool, Fault> {
        tools::find(&self.tools, name).ok_or_else(|| {
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.name()).collect();
            if let Some(tool) = tools::find(self.registry, name) {
                return Fault::new(FaultCode::ToolDenied, format!("the policy {} does not offer {}", self.charter.policy, tool.name()))
                    .hint(format!("the tools are {}; `bailiwick policy list` says what other policies permit", names.join(", ")))
                    .with("tools", names);
            }
            let fault = Fault::new(FaultCode::UnknownTool, format!("no tool is named {name:?}"));
            let hint = match args::nearest(name, &names) {
                Some(near) => format!("did you mean {near}? the tools are {}", names.join(", ")),
                None => format!("the tools are {}", names.join(", ")),
            };
            fault.hint(hint).with("tools", names)
        })
    }
}

/// The limit that a program met, in words, if it was ended for one.
pub fn limit_met(ended: &crate::jail::wire::Ended, limits: &crate::policy::Limits) -> Option<String> {
    limit::met(ended, None, limits)
}

/// The tools of the registry that a policy permits.
pub fn offered(registry: &[&'static dyn AnyTool], charter: &Charter) -> Vec<&'static dyn AnyTool> {
    let permitted = registry.iter().copied().filter(|tool| charter.grants(tool.access()).is_some());
    permitted.filter(|tool| is_on(tool.name(), tool.category(), charter)).collect()
}

/// Whether a policy's lists of tools leave one on.
pub fn is_on(name: &str, category: &str, charter: &Charter) -> bool {
    let named = |patterns: &[String]| {
        patterns
            .iter()
            .any(|pattern| pattern == category || globset::Glob::new(pattern).is_ok_and(|glob| glob.compile_matcher().is_match(name)))
    };
    (charter.tools_allow.is_empty() || named(&charter.tools_allow)) && !named(&charter.tools_deny)
}

/// Two tools of one name do not start.
fn check_names(registry: &[&'static dyn AnyTool]) -> Result<(), Fault> {
    let mut seen = std::collections::HashSet::new();
    for tool in registry {
        for name in std::iter::once(tool.name()).chain(tool.aliases().iter().copied()) {
            if !seen.insert(name) {
                return Err(Fault::new(FaultCode::Internal, format!("two tools answer to the name {name}")));
            }
        }
    }
    Ok(())
}

/// The executable that is running, for [`Options::exe`].
pub fn this_exe() -> PathBuf {
    let link = Path::new("/proc/self/exe");
    if link.exists() { link.to_path_buf() } else { std::env::current_exe().unwrap_or_else(|_| link.to_path_buf()) }
}
