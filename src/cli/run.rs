//! `bailiwick run "TASK"`: a model works on this repository.

use super::attach;
use super::copy::Copy;
use super::engine::{Engine, Signals};
use super::extras::Extras;
use super::model::{ModelFlags, keys_of_environment};
use super::show::{Console, Detail, clean, on_github, seen};
use super::trust::Trust;
use super::{Common, Registry, salvage, say_fault, setup};
use crate::agent::attach::Attachment;
use crate::agent::budget::{Limits, Price};
use crate::agent::finish::replace;
use crate::agent::mask::Mask;
use crate::agent::outcome::{Outcome, RunResult};
use crate::agent::patch::Record;
use crate::agent::prompt::{Capabilities, SessionOptions, Switch, toolset};
use crate::agent::run_loop::{self, Finished, RunOptions};
use crate::agent::transcript::{Transcript, What, load};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::provider::Provider;
use crate::session::{Options, Session, this_exe};
use crate::workspace::RelPath;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    #[arg(long, value_name = "N")]
    max_turns: Option<u32>,
    /// Wall time of the whole run, at the most
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Tokens of the whole run, read and written together, at the most
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// What the whole run may cost, in US dollars
    #[arg(long, value_name = "USD")]
    max_cost: Option<f64>,
    /// The model's price in US dollars for a million tokens, read and written
    #[arg(long, value_name = "IN,OUT")]
    price: Option<String>,
    /// Failed tool calls in a row, at the most [default: what the policy says, else 8]
    #[arg(long, value_name = "N")]
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
            Err(fault) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
        }
    }

    fn try_run(self, common: &Common, registry: Registry) -> Result<ExitCode, Fault> {
        let wrong = |says: &str| Fault::new(FaultCode::InvalidArguments, says);
        let mut engine = Engine::start()?;
        let task = match self.task.as_deref() {
            Some("-") => read_task()?,
            given => given.unwrap_or_default().to_owned(),
        };
        if task.trim().is_empty() && self.resume.is_none() {
            return Err(wrong("the task is empty").hint("bailiwick run \"what is to be done\" --model script:FILE"));
        }
        let mut asked = common.asked();
        asked.fork = self.trust.is_fork();
        let original = setup::Setup::resolved(&asked)?;
        // What killed runs left is made good first: also what this one may go on with.
        salvage::salvage(&engine, registry, &original);
        let resumed = self.resume.as_deref().map(Resumed::find).transpose()?;
        let chosen = self.model.choose(resumed.as_ref().map(|resumed| resumed.model.as_str()))?;
        self.model.check_key_file(original.charter())?;
        let attachments = attach::load(&self.attach)?;
        let price = self.price.as_deref().map(read_price).transpose()?.or(chosen.known.price);
        let cost = self.max_cost.map(read_dollars).transpose()?;
        if cost.is_some() && price.is_none() {
            return Err(wrong("--max-cost: the price of this model is not known").hint("--price IN,OUT says it"));
        }
        let out = match &resumed {
            Some(resumed) => outside(&resumed.folder, &original.charter().base)?,
            None => self.out_folder(&original.charter().base)?,
        };
        let detail = match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::Verbose,
            _ => Detail::Normal,
        };
        let console = Console::new(detail, common.json);
        let copy = match self.workspace_mode {
            Mode::InPlace => None,
            Mode::Copy => match Copy::make(original.base(), &out, registry, resumed.is_some(), &mut engine, &console) {
                Ok(copy) => Some(copy),
                Err(outcome) => return Ok(ended_before(outcome, &chosen.provider.name(), &out)),
            },
        };
        drop(original);
        if let Some(copy) = &copy {
            asked.workspace = Some(copy.path().to_path_buf());
        }
        let setup = setup::Setup::of(&asked)?;
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
            out: &out,
            secrets: chosen.secrets,
            extras: self.extras,
            resumed: resumed.is_some(),
            disposable: copy.is_some(),
        };
        for says in chosen.says.iter().filter(|_| !self.quiet) {
            console.say(says);
        }
        let finished = work.go(&mut engine, &setup, registry, chosen.provider.as_ref(), &console)?;
        drop(setup);
        drop(copy);
        console.close();
        super::summary::step(&finished);
        conclude(&finished, &out, common.json);
        Ok(code_of(&finished))
    }

    /// The folder for what a run leaves. Nothing of it may lie where the sandbox can write.
    fn out_folder(&self, base: &Path) -> Result<PathBuf, Fault> {
        match &self.out {
            Some(folder) => outside(folder, base),
            None => outside(&state_folder().join(format!("{}-{}", now_ms(), random_word()?)), base),
        }
    }
}

/// Makes a folder of ours, which must not lie where the sandbox can write.
fn outside(folder: &Path, base: &Path) -> Result<PathBuf, Fault> {
    let broken =
        |error: std::io::Error| Fault::new(FaultCode::IoError, format!("{}: {error}", folder.display())).hint("--out DIR names another");
    std::fs::create_dir_all(folder).map_err(broken)?;
    let folder = folder.canonicalize().map_err(broken)?;
    if folder.starts_with(base) {
        return Err(Fault::new(FaultCode::InvalidArguments, format!("--out {} is inside the workspace", folder.display()))
            .hint("name a folder that the model cannot write to"));
    }
    Ok(folder)
}

/// A run that is gone on with.
struct Resumed {
    folder: PathBuf,
    model: String,
}

impl Resumed {
    fn find(named: &Path) -> Result<Self, Fault> {
        let folder = if named.is_dir() { named.to_path_buf() } else { named.parent().unwrap_or(Path::new(".")).to_path_buf() };
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let events = load(&folder.join("transcript.jsonl"))?;
        let model = events.iter().find_map(|event| match &event.what {
            What::RunStarted { model, .. } => Some(model.clone()),
            _ => None,
        });
        let Some(model) = model else {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{} holds no run that began", folder.display()))
                .hint("start the task anew"));
        };
        Ok(Self { folder, model })
    }
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
pub(super) struct Work<'a> {
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
    /// A folder outside the workspace.
    pub(super) out: &'a Path,
    /// Values that are masked in all that is written, besides the keys of the environment.
    pub(super) secrets: Vec<String>,
    pub(super) extras: Extras,
    /// Go on with the run that `out` holds.
    pub(super) resumed: bool,
    /// The workspace is a copy that goes when the run is over.
    pub(super) disposable: bool,
}

impl Work<'_> {
    /// Starts a session, lets the model work, and leaves transcript, result and patch, on every way out.
    pub(super) fn go(
        self,
        engine: &mut Engine,
        setup: &setup::Setup,
        registry: Registry,
        provider: &dyn Provider,
        console: &Console,
    ) -> Result<Finished, Fault> {
        let secrets: Vec<String> = keys_of_environment().into_iter().chain(self.secrets.clone()).collect();
        let file = self.out.join("transcript.jsonl");
        let mut transcript = if self.resumed {
            let (transcript, repair) = Transcript::resume(&file, Mask::new(secrets))?;
            if repair.cut_bytes > 0 || repair.unreadable > 0 {
                say!(
                    "bailiwick: the transcript was repaired: {} bytes of a torn last line were cut off, {} lines cannot be read",
                    repair.cut_bytes,
                    repair.unreadable
                );
            }
            transcript
        } else {
            Transcript::create(&file, &format!("run-{}", random_word()?), Mask::new(secrets))?
        };
        let out = self.out.to_path_buf();
        let result_file = self.out.join("result.json");
        // What an earlier process left would pass for this one's.
        let _ = std::fs::remove_file(&result_file);
        let Engine { runtime, signals } = engine;
        let finished = match runtime.block_on(self.model_works(&mut transcript, setup, registry, provider, console, signals)) {
            Ok(finished) => finished,
            Err(fault) => {
                // A terminal's signal goes to the warden too, which may die of it before it has a group of its own.
                let signal = runtime.block_on(async {
                    tokio::task::yield_now().await;
                    signals.came()
                });
                let outcome = signal.map_or_else(|| Outcome::Failed(fault.clone()), Outcome::Signal);
                let mut result = RunResult::before_start(transcript.run_id(), &provider.name(), &outcome);
                if signal.is_some() {
                    let patch_file = out.join("changes.patch");
                    if !patch_file.exists() {
                        let _ = replace(&patch_file, b"");
                    }
                    (result.patch, result.patch_error) = (Some(patch_file.display().to_string()), None);
                }
                let _ = serde_json::to_value(&result).map(|result| transcript.append(What::RunEnded { result }).map(drop));
                write_result(&result, &result_file)?;
                if signal.is_some() {
                    return Ok(Finished { result, patch: None });
                }
                return Err(fault);
            }
        };
        write_result(&finished.result, &result_file)?;
        Ok(finished)
    }

    async fn model_works(
        self,
        transcript: &mut Transcript,
        setup: &setup::Setup,
        registry: Registry,
        provider: &dyn Provider,
        console: &Console,
        signals: &mut Signals,
    ) -> Result<Finished, Fault> {
        let mut charter = setup.charter().clone();
        let prepared = self.extras.prepare(setup, &mut charter);
        let mut session = Session::start(Options { exe: this_exe(), registry, charter })?;
        for file in &self.attachments {
            session.attach(&file.key, &file.bytes)?;
        }
        let extras = self.extras.open(&session, setup, prepared, &random_word()?).await?;
        let doorway = extras.doorway();
        let mut session_options = self.options;
        extras.switch_on(&mut session_options);
        let mut toolset = toolset(&self.capabilities, &session_options, &doorway.offers())?;
        extras.tell(&mut toolset);
        let patch_file = self.out.join("changes.patch");
        let mut options = RunOptions::new(self.task.clone(), toolset, random_word()?);
        options.native = self.native;
        options.attachments = self.attachments;
        options.limits = self.limits;
        options.price = self.price;
        options.context_bytes = context_bytes(self.context, options.context_bytes);
        options.verify = self.verify;
        options.enforcement = serde_json::to_value(session.report()).unwrap_or_default();
        options.record = Some((
            salvage::record_in(&setup.charter().session_dir),
            Record { v: 1, base: setup.charter().base.clone(), out: self.out.to_path_buf(), disposable: self.disposable, baseline: None },
        ));
        if self.resumed {
            options.follow_up = self.task;
            options.earlier = std::fs::read(&patch_file).ok();
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

/// The end of a run that did not come as far as a transcript.
fn ended_before(outcome: Outcome, model: &str, out: &Path) -> ExitCode {
    let result = RunResult::before_start("", model, &outcome);
    if let Some(message) = &result.message {
        say!("bailiwick: {}", seen(message));
    }
    if let Err(fault) = write_result(&result, &out.join("result.json")) {
        say_fault(&fault);
    }
    outcome.exit_code()
}

/// Writes `result.json`, whole or not at all.
pub(super) fn write_result(result: &RunResult, path: &Path) -> Result<(), Fault> {
    let broken = |error: std::io::Error| Fault::new(FaultCode::IoError, format!("{}: {error}", path.display()));
    let text = serde_json::to_vec_pretty(result).map_err(|error| broken(error.into()))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(broken)?;
    std::io::Write::write_all(&mut file, &text).map_err(broken)?;
    file.persist(path).map_err(|error| broken(error.error)).map(drop)
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
    if let Some(error) = &result.patch_error {
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
        out.display()
    );
}

/// The patch on standard output. GitHub's runner takes lines of what it shows for commands, so it is told not to; a file has no such reader.
fn print_patch(text: &[u8]) {
    use std::io::{IsTerminal, Write};
    use std::os::fd::AsFd;
    let mut out = std::io::stdout().lock();
    let regular = nix::sys::stat::fstat(out.as_fd()).is_ok_and(|meta| meta.st_mode & libc::S_IFMT == libc::S_IFREG);
    if out.is_terminal() {
        // What a file holds may be a command to the terminal.
        let _ = out.write_all(clean(&String::from_utf8_lossy(text)).as_bytes());
        return;
    }
    let word = if on_github() && !regular && !text.is_empty() { random_word().ok() } else { None };
    let _ = word.iter().try_for_each(|word| writeln!(out, "::stop-commands::{word}"));
    let _ = out.write_all(text);
    let _ = word.iter().try_for_each(|word| writeln!(out, "::{word}::"));
    let _ = out.flush();
}

/// Bytes of conversation above which old results are left out: three a token leave room for the reply and the tools.
fn context_bytes(tokens: Option<u64>, otherwise: usize) -> usize {
    tokens.and_then(|tokens| usize::try_from(tokens.saturating_mul(3)).ok()).map_or(otherwise, |bytes| bytes.min(otherwise))
}

fn read_task() -> Result<String, Fault> {
    let mut task = String::new();
    std::io::stdin()
        .take(4 * 1024 * 1024)
        .read_to_string(&mut task)
        .map_err(|error| Fault::new(FaultCode::InvalidArguments, format!("the task on standard input cannot be read: {error}")))?;
    Ok(task)
}

pub(super) fn state_folder() -> PathBuf {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    var("XDG_STATE_HOME")
        .or_else(|| var("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_else(std::env::temp_dir)
        .join("bailiwick/runs")
}

fn now_ms() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

/// Sixteen hexadecimal digits that nobody can guess.
pub(super) fn random_word() -> Result<String, Fault> {
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Fault::new(FaultCode::Internal, format!("no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
