//! `bailiwick run "TASK"`: a model works on this repository.

use super::attach;
use super::copy::Copy;
use super::engine::{Engine, Signals, Time, bytes_of_regular};
use super::extras::Extras;
use super::folder::{RunFolder, random_word};
use super::model::ModelFlags;
use super::numbers::{dollars, whole};
use super::show::{Console, Detail, clean, harmless, on_ci, on_github, seen};
use super::trust::Trust;
use super::{Common, Registry, salvage, say_fault, setup, told};
use crate::agent::act::Deadlines;
use crate::agent::attach::Attachment;
use crate::agent::budget::{Limits, Price};
use crate::agent::mask::Mask;
use crate::agent::outcome::Outcome;
use crate::agent::patch::Record;
use crate::agent::prompt::{Capabilities, SessionOptions, Switch, toolset};
use crate::agent::run_loop::{self, Finished, RunOptions};
use crate::agent::transcript::Transcript;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::provider::Provider;
use crate::session::{Options, Session, this_exe};
use crate::workspace::RelPath;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most bytes of a task.
const MOST_TASK: u64 = 4 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// What is to be done; "-" reads it from standard input. With --resume: what to say to the model
    #[arg(required_unless_present = "resume")]
    task: Option<String>,
    /// Go on with a run that ended: its folder, or its transcript
    #[arg(long, value_name = "DIR", conflicts_with = "out")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    model: ModelFlags,
    /// A file that is shown to the model along with the task (repeat for several)
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// Requests to the model, at the most [default: what the policy says, else 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    max_turns: Option<u32>,
    /// Wall time of the whole run, at the most
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = whole::<u64>(1, u64::MAX))]
    time_limit: Option<u64>,
    /// Tokens of the whole run, read and written together, at the most
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u64>(1, u64::MAX))]
    max_tokens: Option<u64>,
    /// What the whole run may cost, in US dollars
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    max_cost: Option<f64>,
    /// The model's price in US dollars for a million tokens, read and written
    #[arg(long, value_name = "IN,OUT")]
    price: Option<String>,
    /// Failed tool calls in a row, at the most [default: what the policy says, else 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1, u64::from(u32::MAX)))]
    max_tool_errors: Option<u32>,
    /// Speak to the model by the text protocol instead of native tool calls
    #[arg(long)]
    text_protocol: bool,
    /// Only these tools: names, categories or globs (repeat for several)
    #[arg(long, value_name = "TOOL")]
    allow: Vec<String>,
    /// Not these tools; stronger than --allow
    #[arg(long, value_name = "TOOL")]
    deny: Vec<String>,
    /// A command that has to succeed before the work counts as done; runs in the sandbox
    #[arg(long, value_name = "CMD")]
    verify: Option<String>,
    /// Work in the workspace itself, or in a disposable copy whose only product is the patch (`bailiwick apply` takes it over)
    #[arg(long, value_enum, value_name = "MODE", default_value_t)]
    workspace_mode: Mode,
    /// Whose tree this is: of somebody else's nothing is loaded (no AGENTS.md, no policy of the project's, no skills, no MCP servers)
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t)]
    trust: Trust,
    /// Where transcript.jsonl, result.json and changes.patch are written; outside the workspace
    /// [default: a new folder below the state folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    extras: Extras,
    /// Say nothing but the end
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
    /// Show what came of each call
    #[arg(long, short)]
    verbose: bool,
}

/// Where a run works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Mode {
    /// In the workspace itself
    #[default]
    InPlace,
    /// In a disposable copy
    Copy,
}

impl Run {
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        match self.try_run(common, registry) {
            Ok(code) => code,
            Err(Outcome::Failed(fault)) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
            // There is no folder yet in which anything could be left.
            Err(outcome) => {
                say!("bailiwick: {}", outcome.message().unwrap_or_default());
                outcome.exit_code()
            }
        }
    }

    fn try_run(mut self, common: &Common, registry: Registry) -> Result<ExitCode, Outcome> {
        let detail = match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::Verbose,
            _ => Detail::Normal,
        };
        self.model.take_descriptor()?;
        let mut engine = Engine::start()?;
        engine.time.limit(self.time_limit.map(Duration::from_secs));
        let task = self.task.take().unwrap_or_default();
        if task.trim().is_empty() && self.resume.is_none() {
            return Err(no_task().into());
        }
        if self.verify.as_deref().is_some_and(|command| command.trim().is_empty()) {
            return Err(wrong("--verify names no command").hint("--verify 'cargo test', for example").into());
        }
        let mut asked = common.asked();
        asked.fork = self.trust.is_fork();
        let original = setup::Setup::resolved(&asked)?;
        let base = &original.charter().base;
        let mut folder = match &self.resume {
            Some(named) => RunFolder::resumed(named, base, matches!(self.workspace_mode, Mode::Copy))?,
            None => RunFolder::claimed(self.out.as_deref(), base)?,
        };
        let console = Console::new(detail, common.json);
        let mut secrets = self.model.secrets();
        let given = Given { task, asked, original };
        match self.work(given, registry, &mut engine, &mut folder, &mut secrets, &console) {
            Ok(finished) => {
                engine.done();
                console.close();
                super::summary::step(&finished);
                conclude(&finished, folder.path(), common.json);
                Ok(code_of(&finished))
            }
            Err(outcome) => Ok(folder.ended(&outcome, secrets, &console)),
        }
    }

    /// All that a run is, once there is a folder for what it leaves.
    fn work(
        self,
        given: Given,
        registry: Registry,
        engine: &mut Engine,
        folder: &mut RunFolder,
        secrets: &mut Vec<String>,
        console: &Console,
    ) -> Result<Finished, Outcome> {
        let Given { mut task, mut asked, original } = given;
        if task == "-" {
            task = read_task(engine)?;
            if task.trim().is_empty() && self.resume.is_none() {
                return Err(no_task().into());
            }
        }
        // What killed runs left is made good first: also what this one may go on with.
        salvage::salvage(engine, registry, &original, folder.path())?;
        let chosen = self.model.choose(folder.model_before(), engine)?;
        secrets.extend(chosen.secrets);
        folder.works_with(chosen.provider.name());
        self.model.check_key_file(original.charter())?;
        let attachments = attach::load(&self.attach, engine)?;
        let extras = self.extras.read(&original, engine)?;
        let price = self.price.as_deref().map(read_price).transpose()?.or(chosen.known.price);
        let cost = self.max_cost.map(read_dollars).transpose()?;
        if cost.is_some() && price.is_none() {
            return Err(wrong("--max-cost: the price of this model is not known").hint("--price IN,OUT says it").into());
        }
        let resumed = self.resume.is_some();
        let copy = match self.workspace_mode {
            Mode::InPlace => None,
            Mode::Copy => Some(Copy::make(original.base(), folder.path(), registry, resumed, engine, console)?),
        };
        drop(original);
        if let Some(copy) = &copy {
            asked.workspace = Some(copy.path().to_path_buf());
        }
        let setup = setup::Setup::of(&asked)?;
        super::policy::tools_are_known(setup.charter(), registry)?;
        let offers_commands = crate::session::offered(registry, setup.charter()).iter().any(|tool| tool.name() == "sandbox_bash");
        if self.verify.is_some() && !offers_commands {
            let fault = wrong(&format!("--verify runs a command, and the policy {} permits none", setup.charter().policy));
            return Err(fault.hint("--policy build does; without --verify the run ends when the model says so").into());
        }
        let mut options = SessionOptions { allow: self.allow, deny: self.deny, ..SessionOptions::default() };
        options.on.extend((!attachments.is_empty()).then_some(Switch::Attachment));
        if setup.details().trust() != crate::policy::file::Trust::Fork {
            match instructions(&setup) {
                Ok(text) => options.system = text,
                Err(fault) => console.say(&format!("the repository's instructions are left out: {fault}")),
            }
        }
        let limits = {
            let (policy, default) = (&setup.details().policy.budgets, Limits::default());
            let number = |number: Option<u64>| number.map(|number| u32::try_from(number).unwrap_or(u32::MAX));
            Limits {
                turns: self.max_turns.or(number(policy.turns)).unwrap_or(default.turns),
                wall: self.time_limit.map(Duration::from_secs).or(policy.wall.map(|wall| Duration::from_millis(wall.0))),
                tokens: self.max_tokens.or(policy.tokens),
                cost: cost.or(policy.money.map(read_dollars).transpose()?),
                tool_errors: self.max_tool_errors.or(number(policy.errors)).unwrap_or(default.tool_errors),
            }
        };
        engine.time.limit(limits.wall);
        if limits.cost.is_some() && price.is_none() {
            console.say("the price of this model is not known: the policy's budget of money is not counted");
        }
        let work = Work {
            task,
            options,
            attachments,
            native: !self.text_protocol && chosen.known.capabilities.tools,
            capabilities: chosen.known.capabilities,
            context: chosen.known.context,
            limits,
            price,
            verify: self.verify,
            extras,
            resumed,
            disposable: copy.is_some(),
        };
        let mask = Mask::new(secrets.clone());
        for says in &chosen.says {
            console.say(&mask.text(says));
        }
        let finished = work.go(engine, &setup, registry, chosen.provider.as_ref(), folder, secrets, console)?;
        drop(setup);
        drop(copy);
        Ok(finished)
    }
}

/// What a run begins with.
struct Given {
    task: String,
    asked: setup::Asked,
    /// The workspace that was named.
    original: setup::Setup,
}

fn no_task() -> Fault {
    wrong("the task is empty").hint("bailiwick run \"what is to be done\" --model script:FILE")
}

fn wrong(says: &str) -> Fault {
    Fault::new(FaultCode::InvalidArguments, says)
}

/// Instructions that the repository has for those who work on it.
fn instructions(setup: &setup::Setup) -> Result<String, Fault> {
    const FILE: &str = "AGENTS.md";
    const MOST: u64 = 64 * 1024;
    let path = RelPath::from_relative(FILE);
    if setup.base().lstat(&path).is_err() {
        return Ok(String::new());
    }
    let loaded = setup.base().load(&path, MOST)?;
    Ok(format!("Instructions of this repository ({FILE}):\n\n{}", String::from_utf8_lossy(&loaded.bytes).trim()))
}

/// US dollars as millionths.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
fn read_dollars(dollars: f64) -> Result<u64, Fault> {
    if !(0.0..=1e12).contains(&dollars) {
        return Err(Fault::new(FaultCode::InvalidArguments, format!("{dollars} is no sum of money")));
    }
    Ok((dollars * 1e6).round() as u64)
}

fn read_price(text: &str) -> Result<Price, Fault> {
    let wrong = || Fault::new(FaultCode::InvalidArguments, format!("--price {text}: two numbers are wanted")).hint("--price 3,15");
    let (input, output) = text.split_once(',').ok_or_else(wrong)?;
    let read = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong()).and_then(read_dollars);
    Ok(Price { input: read(input)?, output: read(output)? })
}

/// One run, whoever asks for it.
pub(super) struct Work {
    pub(super) task: String,
    pub(super) options: SessionOptions,
    pub(super) attachments: Vec<Attachment>,
    pub(super) native: bool,
    /// What the model is able for.
    pub(super) capabilities: Capabilities,
    /// Tokens of a whole conversation, where it is known.
    pub(super) context: Option<u64>,
    pub(super) limits: Limits,
    /// What its tokens cost, where it is known.
    pub(super) price: Option<Price>,
    pub(super) verify: Option<String>,
    pub(super) extras: Extras,
    /// Go on with the run that the folder holds.
    pub(super) resumed: bool,
    /// The workspace is a copy that goes when the run is over.
    pub(super) disposable: bool,
}

impl Work {
    /// Starts a session, lets the model work, and leaves transcript, result and patch. `secrets` are masked in all that is written.
    ///
    /// # Errors
    /// How the run ends instead when it does not come as far as the model; that is left by [`RunFolder::ended`].
    #[allow(clippy::too_many_arguments)] // each is somebody else's, for the time of the run
    pub(super) fn go(
        self,
        engine: &mut Engine,
        setup: &setup::Setup,
        registry: Registry,
        provider: &dyn Provider,
        folder: &mut RunFolder,
        secrets: &[String],
        console: &Console,
    ) -> Result<Finished, Outcome> {
        let (out, patch_file) = (folder.path().to_path_buf(), folder.patch_file());
        let transcript = folder.transcript(secrets.to_vec())?;
        let Engine { runtime, signals, time } = &mut *engine;
        let works = self.model_works(transcript, setup, registry, provider, console, (signals, *time), (out, patch_file));
        let finished = match runtime.block_on(works) {
            // A terminal's signal goes to the warden too, which may die of it before it has a group of its own.
            Err(outcome) => return Err(engine.came().map_or(outcome, Outcome::Signal)),
            Ok(finished) => finished,
        };
        let mut finished = finished;
        if let Err(fault) = folder.finished(&finished.result) {
            // The patch is still to be had: it is printed.
            let result = &mut finished.result;
            if result.exit_code == 0 {
                (result.status, result.stop_reason, result.exit_code) = ("failure".into(), "failed".into(), ExitCode::Failed.code());
            }
            result.message = Some(match fault.hint_text() {
                Some(hint) => format!("{fault}; {hint}"),
                None => fault.to_string(),
            });
        }
        Ok(finished)
    }

    #[allow(clippy::too_many_arguments)] // as above
    async fn model_works(
        self,
        transcript: &mut Transcript,
        setup: &setup::Setup,
        registry: Registry,
        provider: &dyn Provider,
        console: &Console,
        (signals, time): (&mut Signals, Time),
        (out, patch_file): (PathBuf, PathBuf),
    ) -> Result<Finished, Outcome> {
        let mut charter = setup.charter().clone();
        let prepared = self.extras.prepare(setup, &mut charter);
        let mut session = Session::start(Options { exe: this_exe(), registry, charter })?;
        for file in &self.attachments {
            session.attach(&file.key, &file.bytes)?;
        }
        let word = random_word()?;
        let extras = tokio::select! {
            biased;
            signal = signals.next() => return Err(Outcome::Signal(signal)),
            outcome = time.over() => return Err(outcome),
            extras = self.extras.open(&session, setup, prepared, &word) => extras?,
        };
        let doorway = extras.doorway();
        let mut session_options = self.options;
        extras.switch_on(&mut session_options);
        let mut toolset = toolset(&self.capabilities, &session_options, &doorway.offers())?;
        extras.tell(&mut toolset);
        if toolset.tools.is_empty() {
            console.say("no tool is left for the model: it can only talk");
        }
        let mut options = RunOptions::new(self.task.clone(), toolset, random_word()?);
        options.native = self.native;
        options.attachments = self.attachments;
        options.began = time.began;
        options.limits = self.limits;
        options.price = self.price;
        // Zero is no limit.
        if setup.charter().limits.wall_ms > 0 {
            options.deadlines = Deadlines::within(Duration::from_millis(setup.charter().limits.wall_ms));
        }
        options.context_bytes = context_bytes(self.context, options.context_bytes);
        options.verify = self.verify;
        options.enforcement = serde_json::to_value(session.report()).unwrap_or_default();
        options.record = Some((
            salvage::record_in(&setup.charter().session_dir),
            Record { v: 1, base: setup.charter().base.clone(), out, disposable: self.disposable, baseline: None },
        ));
        if self.resumed {
            options.follow_up = self.task;
            options.earlier = bytes_of_regular(&patch_file).ok();
        }
        options.patch_file = Some(patch_file);
        if let Some((file, record)) = &options.record {
            record.write(file)?;
        }
        let finished = run_loop::run(&doorway, provider, transcript, console, &options, async || signals.next().await).await;
        extras.close().await;
        session.close();
        Ok(finished)
    }
}

pub(super) fn code_of(finished: &Finished) -> ExitCode {
    let number = finished.result.exit_code;
    ExitCode::ALL.iter().copied().find(|code| code.code() == number).unwrap_or(ExitCode::Signal(number.saturating_sub(128)))
}

/// What a person wants to know at the end.
fn conclude(finished: &Finished, out: &Path, json: bool) {
    let result = &finished.result;
    if !json && let Some(patch) = &finished.patch {
        print_patch(&patch.text);
    }
    say!();
    for note in &result.notes {
        say!("note: {}", seen(note));
    }
    // Where nothing can be written that is said once.
    let full = |text: &Option<String>| text.as_ref().is_some_and(|text| text.starts_with(FaultCode::DiskFull.as_str()));
    if let Some(error) = result.patch_error.as_ref().filter(|_| !full(&result.message)) {
        say!("no patch: {}", seen(error));
    }
    if let Some(message) = &result.message {
        say!("bailiwick: {}", seen(message));
    }
    say!(
        "{}: {} turns, {} files changed, {} calls failed; {}",
        result.stop_reason,
        result.turns,
        result.changed_files.len(),
        result.failed_calls.len(),
        seen(&out.display().to_string())
    );
}

/// The patch on standard output. GitHub's runner takes lines of what it shows for commands, so it is told not to; another's cannot be told, and
/// is not shown such a patch. A file has no such reader.
fn print_patch(text: &[u8]) {
    use std::io::{IsTerminal, Write};
    use std::os::fd::AsFd;
    let mut out = std::io::stdout().lock();
    let regular = nix::sys::stat::fstat(out.as_fd()).is_ok_and(|meta| meta.st_mode & libc::S_IFMT == libc::S_IFREG);
    if out.is_terminal() {
        // What a file holds may be a command to the terminal.
        return told(out.write_all(clean(&String::from_utf8_lossy(text)).as_bytes()));
    }
    if on_ci() && !on_github() && !regular {
        let shown = String::from_utf8_lossy(text);
        if harmless(&shown) != shown {
            say!("the patch holds lines that a runner of CI would take for commands: it is not printed, and lies in changes.patch");
            return;
        }
    }
    let word = if on_github() && !regular && !text.is_empty() { random_word().ok() } else { None };
    told(word.iter().try_for_each(|word| writeln!(out, "::stop-commands::{word}")));
    told(out.write_all(text));
    told(word.iter().try_for_each(|word| writeln!(out, "::{word}::")).and_then(|()| out.flush()));
}

/// Bytes of conversation above which old results are left out: three a token leave room for the reply and the tools.
fn context_bytes(tokens: Option<u64>, otherwise: usize) -> usize {
    tokens.and_then(|tokens| usize::try_from(tokens.saturating_mul(3)).ok()).map_or(otherwise, |bytes| bytes.min(otherwise))
}

fn read_task(engine: &mut Engine) -> Result<String, Outcome> {
    let read = engine.aside(|| {
        let mut task = String::new();
        std::io::stdin().take(MOST_TASK).read_to_string(&mut task).map(|_| task)
    })?;
    Ok(read.map_err(|error| wrong(&format!("the task on standard input cannot be read: {error}")).hint("a text in UTF-8"))?)
}
