//! The tools: one file and one line in [`TOOLS`] each.
//!
//! A tool knows its arguments, its facts and the [`Bench`] it works at, and nothing of jails, sessions, models or an async
//! runtime. Schema, prompt line, text-protocol signature, CLI, MCP listing and confinement class follow from its entry.

pub mod args;
pub mod attachment;
pub mod bench;
mod clock;
pub mod copy;
pub mod create;
pub mod diff;
pub mod edit;
pub mod find;
mod glob;
pub mod grep;
pub mod guard;
pub mod ls;
pub mod mkdir;
pub mod number_column;
pub mod output;
mod page;
pub mod process;
pub mod read;
pub mod rename;
pub mod sandbox_bash;
pub mod shell_state;
pub mod skill_reader;
mod source;
pub mod special;
#[cfg(test)]
mod testbed;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod transfer_tests;
mod walk;
pub mod write;
#[cfg(test)]
mod write_tests;

use crate::envelope::{Data, Envelope, Fault, FaultCode};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::clip::capture::{Captured, Chunk, Stream};
pub use crate::policy::Access;
pub use bench::Bench;

/// Every tool, in the order in which a model sees them. Adding a tool is one file and one line here.
pub static TOOLS: &[&dyn AnyTool] = &[
    &InJail::<ls::Ls>::NEW,
    &InJail::<find::Find>::NEW,
    &InJail::<grep::Grep>::NEW,
    &InJail::<read::Read>::NEW,
    &InJail::<write::Write>::NEW,
    &InJail::<edit::Edit>::NEW,
    &InJail::<copy::Copy>::NEW,
    &InJail::<mkdir::Mkdir>::NEW,
    &InJail::<create::Create>::NEW,
    &InJail::<rename::Rename>::NEW,
    &ByCommand::<sandbox_bash::SandboxBash>::NEW,
    &ByProcess::<process::ProcessStart>::NEW,
    &ByProcess::<process::ProcessList>::NEW,
    &ByProcess::<process::ProcessOutput>::NEW,
    &ByProcess::<process::ProcessInput>::NEW,
    &ByProcess::<process::ProcessStop>::NEW,
];

/// Entries that the session itself calls; they run in jails like the others and are offered to nobody.
pub static INTERNAL: &[&dyn AnyTool] = &[&guard::GUARD, &skill_reader::SKILL_READER, &special::SPECIAL_FILES];

/// What every tool declares of itself.
pub trait Spec: Send + Sync + 'static {
    /// The arguments. Field order is the order of positional arguments; doc comments become the schema's descriptions.
    type Args: DeserializeOwned + JsonSchema;
    /// The facts of a success.
    type Data: Serialize + Render + JsonSchema;
    /// The name: letters, digits and `_`.
    const NAME: &'static str;
    /// Other names under which a call is accepted.
    const ALIASES: &'static [&'static str] = &[];
    /// What a call may do.
    const ACCESS: Access;
    /// The toolset it belongs to: `file`, `shell`, `process`, …
    const CATEGORY: &'static str;
    /// The prompt: what it does and when to use it. The first line stands alone.
    const SUMMARY: &'static str;
    /// Arguments of a typical call, as one line of JSON.
    const EXAMPLE: &'static str;
    /// Names of arguments that other agents use: `(theirs, ours)`. The value is taken as it is.
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[];
    /// Whether the last string argument of a positional text call takes all the rest, commas included.
    const TAKES_REST: bool = false;

    /// Rewrites arguments that no plain synonym can express (`head: 5` is `limit: 5`), before the schema is checked.
    /// Each rewriting is named in the returned warnings.
    ///
    /// # Errors
    /// `invalid_arguments` when what was given contradicts itself.
    fn prepare(_args: &mut Data) -> Result<Vec<String>, Fault> {
        Ok(Vec::new())
    }
}

/// A tool that works on the workspace from inside a `Look` or `Change` jail.
pub trait Tool: Spec {
    /// Does the work.
    ///
    /// # Errors
    /// Any [`Fault`]; it becomes the failure envelope.
    fn run(bench: &Bench<'_>, args: Self::Args) -> Result<Self::Data, Fault>;
}

/// A tool that runs a program. It says what to start and reads what came of it; both are pure, so it needs no confinement
/// itself. The session starts the program in an `Execute` jail and collects its output outside of that jail's domain, where
/// the program cannot reach its own collector.
pub trait CommandTool: Spec {
    /// What to start.
    ///
    /// # Errors
    /// Any [`Fault`] of the arguments.
    fn launch(args: &Self::Args) -> Result<Launch, Fault>;

    /// What to answer. `outcome` holds bytes that the program wrote: hostile, bounded.
    ///
    /// # Errors
    /// A time-out, a signal, a limit, a refusal, with what is known in `data`.
    fn report(args: &Self::Args, outcome: &Outcome) -> Result<Self::Data, Fault>;
}

/// A program for an `Execute` jail, as a tool asks for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// A bash script, handed over by descriptor. Of any size.
    pub script: String,
    /// The folder to start in, relative to the base; `None`: where the last command ended.
    pub workdir: Option<String>,
    /// Variables on top of the policy's environment and of what earlier commands exported.
    pub env: Vec<(String, String)>,
    /// What the program reads; `None`: end of file at once.
    pub stdin: Option<Vec<u8>>,
    /// Milliseconds until it is ended, with everything that it started.
    pub timeout_ms: u64,
    /// Return at once with a process id, and keep it running until the session ends.
    pub background: bool,
}

/// What came of a [`Launch`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The exit code, when it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It was ended at its time limit.
    pub timed_out: bool,
    /// Why the program could not be started.
    pub not_started: Option<String>,
    /// What it wrote, in order of arrival.
    pub output: Captured,
    /// Wall time.
    pub duration_ms: u64,
    /// Processor time of the whole tree.
    pub cpu_ms: u64,
    /// The largest resident set of any process of the tree, in KiB.
    pub max_rss_kib: u64,
    /// The exit codes of the last pipeline, where the shell could say.
    pub pipestatus: Option<Vec<i32>>,
    /// Command lines of what it left running, which was ended with it.
    pub killed_children: Vec<String>,
    /// The folder in which the shell ended, relative to the base; `None` where it could not say.
    pub cwd: Option<String>,
    /// Things the person or the model should know (the folder was gone, the here-document was unfinished …).
    pub notices: Vec<String>,
    /// The handle under which `read` and `grep` find the whole output.
    pub spool: Option<String>,
    /// The limit that ended it, in words (`memory`, `output` …).
    pub limit: Option<String>,
    /// The id under which it goes on in the background; it has not ended then.
    pub started: Option<String>,
    /// What the sandbox refused to it: which path, address or call, which policy line, what would be allowed.
    pub denials: Vec<Value>,
}

/// The compact text of a result, for a model. It comes from the same struct as the JSON.
pub trait Render {
    /// The text. It says everything that the model needs and nothing twice.
    fn render(&self) -> String;
}

/// An envelope and its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// For machines.
    pub envelope: Envelope,
    /// For the model.
    pub text: String,
}

impl Answer {
    /// The answer of a call that failed.
    pub fn failed(fault: Fault) -> Self {
        Self::from_parts(Err(fault), Vec::new())
    }

    /// The answer of a call that did its work.
    pub fn done(data: &(impl Serialize + Render)) -> Self {
        let text = data.render();
        Self::shown(data, text)
    }

    /// The same, with a text that has been rendered, or is not wanted.
    fn shown(data: &impl Serialize, text: String) -> Self {
        match Envelope::written(data) {
            Ok(envelope) => Self { envelope, text },
            Err(why) => Self::failed(Fault::new(FaultCode::Internal, why)),
        }
    }

    /// An answer with its warnings, which stand both in `data.warnings` and under the text.
    pub fn from_parts(result: Result<Self, Fault>, warnings: Vec<String>) -> Self {
        let mut answer = match result {
            Ok(answer) => answer,
            Err(fault) => {
                let text = fault.text().map(str::to_owned);
                let envelope = Envelope::from(Err(fault));
                let text = render_failure(&envelope, text.as_deref());
                Self { envelope, text }
            }
        };
        for warning in warnings {
            answer = answer.warned(warning);
        }
        answer
    }

    /// Adds one warning.
    #[must_use]
    pub fn warned(mut self, warning: String) -> Self {
        if !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(&format!("[note: {warning}]"));
        self.envelope.warn(warning);
        self
    }
}

/// A failure as text: the sentence, the hint, and the known facts: as the tool wrote them, or those that are worth a line.
fn render_failure(envelope: &Envelope, facts: Option<&str>) -> String {
    let mut text = format!("FAILED {}", envelope.error().unwrap_or_default());
    if let Some(hint) = envelope.data().get("hint").and_then(Value::as_str) {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    if let Some(facts) = facts {
        text.push('\n');
        text.push_str(facts);
    } else if let Value::Object(data) = envelope.data() {
        for (key, value) in data.iter().filter(|(key, _)| !matches!(key.as_str(), "code" | "hint" | "warnings")) {
            match value {
                Value::Null => {}
                Value::String(value) if value.contains('\n') => text.push_str(&format!("\n{key}:\n{value}")),
                Value::String(value) => text.push_str(&format!("\n{key}: {value}")),
                value => text.push_str(&format!("\n{key}: {value}")),
            }
        }
    }
    text
}

/// How a tool does its work.
pub enum Work {
    /// In a jail of its access class.
    Jail(fn(&Bench<'_>, Value) -> Answer),
    /// By a program in an `Execute` jail.
    Command {
        /// What to start.
        launch: fn(&Value) -> Result<Launch, Fault>,
        /// What to answer.
        report: fn(&Value, &Outcome) -> Answer,
    },
    /// On the session's background processes.
    Process {
        /// What to do.
        op: fn(&Value) -> Result<process::Op, Fault>,
        /// What to answer.
        report: fn(&Value, &process::Reply) -> Answer,
    },
}

/// A [`Tool`] or [`CommandTool`] behind one face; the registry holds these.
pub trait AnyTool: Send + Sync {
    /// The name.
    fn name(&self) -> &'static str;
    /// Other accepted names.
    fn aliases(&self) -> &'static [&'static str];
    /// What a call may do.
    fn access(&self) -> Access;
    /// The toolset.
    fn category(&self) -> &'static str;
    /// The prompt.
    fn summary(&self) -> &'static str;
    /// A typical call's arguments.
    fn example(&self) -> &'static str;
    /// Other accepted argument names.
    fn synonyms(&self) -> &'static [(&'static str, &'static str)];
    /// Whether the last string argument takes the rest.
    fn takes_rest(&self) -> bool;
    /// The pure JSON Schema of the arguments.
    fn schema(&self) -> Value;
    /// The JSON Schema of the facts of a success.
    fn facts(&self) -> Value;
    /// Reads arguments strictly by the schema and tolerantly in form; see [`args::read`].
    ///
    /// # Errors
    /// `invalid_arguments`.
    fn read(&self, args: Value) -> Result<(Value, Vec<String>), Fault>;
    /// How it works.
    fn work(&self) -> Work;
}

/// A [`Tool`] for the registry: `&InJail::<read::Read>::NEW`.
pub struct InJail<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Tool> InJail<T> {
    /// The entry.
    pub const NEW: Self = Self(std::marker::PhantomData);
}

/// A [`CommandTool`] for the registry.
pub struct ByCommand<T>(std::marker::PhantomData<fn() -> T>);

impl<T: CommandTool> ByCommand<T> {
    /// The entry.
    pub const NEW: Self = Self(std::marker::PhantomData);
}

macro_rules! any_tool_by_spec {
    () => {
        fn name(&self) -> &'static str {
            T::NAME
        }
        fn aliases(&self) -> &'static [&'static str] {
            T::ALIASES
        }
        fn access(&self) -> Access {
            T::ACCESS
        }
        fn category(&self) -> &'static str {
            T::CATEGORY
        }
        fn summary(&self) -> &'static str {
            T::SUMMARY
        }
        fn example(&self) -> &'static str {
            T::EXAMPLE
        }
        fn synonyms(&self) -> &'static [(&'static str, &'static str)] {
            T::SYNONYMS
        }
        fn takes_rest(&self) -> bool {
            T::TAKES_REST
        }
        fn schema(&self) -> Value {
            args::schema::<T::Args>()
        }
        fn facts(&self) -> Value {
            args::schema_of_facts::<T::Data>()
        }
        fn read(&self, args: Value) -> Result<(Value, Vec<String>), Fault> {
            args::read::<T>(args)
        }
    };
}

impl<T: Tool> AnyTool for InJail<T> {
    any_tool_by_spec!();

    fn work(&self) -> Work {
        Work::Jail(|bench, args| {
            let show = |data: T::Data| Answer::shown(&data, if bench.shows() { data.render() } else { String::new() });
            let result = args::parse::<T>(args).and_then(|args| T::run(bench, args)).map(show);
            Answer::from_parts(result, Vec::new())
        })
    }
}

impl<T: CommandTool> AnyTool for ByCommand<T> {
    any_tool_by_spec!();

    fn work(&self) -> Work {
        Work::Command {
            launch: |args| T::launch(&args::parse::<T>(args.clone())?),
            report: |args, outcome| {
                let result = args::parse::<T>(args.clone()).and_then(|args| T::report(&args, outcome)).map(|data| Answer::done(&data));
                Answer::from_parts(result, Vec::new())
            },
        }
    }
}

/// A [`process::ProcessTool`] for the registry.
pub struct ByProcess<T>(std::marker::PhantomData<fn() -> T>);

impl<T: process::ProcessTool> ByProcess<T> {
    /// The entry.
    pub const NEW: Self = Self(std::marker::PhantomData);
}

impl<T: process::ProcessTool> AnyTool for ByProcess<T> {
    any_tool_by_spec!();

    fn work(&self) -> Work {
        Work::Process {
            op: |args| T::op(&args::parse::<T>(args.clone())?),
            report: |args, reply| {
                let result = args::parse::<T>(args.clone()).and_then(|args| T::report(&args, reply)).map(|data| Answer::done(&data));
                Answer::from_parts(result, Vec::new())
            },
        }
    }
}

/// Finds a tool by its name, or else by one of its aliases.
pub fn find<'a>(tools: &[&'a dyn AnyTool], name: &str) -> Option<&'a dyn AnyTool> {
    let named = tools.iter().copied().find(|tool| tool.name() == name);
    named.or_else(|| tools.iter().copied().find(|tool| tool.aliases().contains(&name)))
}
