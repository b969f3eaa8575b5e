//! `bailiwick run "TASK"`: a model works on this repository.

use super::attach;
use super::extras::Extras;
use super::model::{ModelFlags, keys_of_environment};
use super::show::{Console, Detail};
use super::{Common, Registry, cannot_confine, say_fault, setup};
use crate::agent::attach::Attachment;
use crate::agent::budget::{Limits, Price};
use crate::agent::mask::Mask;
use crate::agent::prompt::{Capabilities, SessionOptions, Switch, toolset};
use crate::agent::run_loop::{self, Finished, RunOptions};
use crate::agent::transcript::Transcript;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::provider::Provider;
use crate::session::{Options, Session, this_exe};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(super) struct Run {
    /// What is to be done; "-" reads it from standard input
    task: String,
    #[command(flatten)]
    model: ModelFlags,
    /// A file that is shown to the model along with the task (repeat for several)
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// Requests to the model, at the most
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_turns: u32,
    /// Wall time of the whole run, at the most
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
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
    /// Whose tree this is: of a fork nothing is loaded (no skills, no MCP servers)
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

/// Whose tree it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Trust {
    /// One's own
    #[default]
    Own,
    /// Somebody else's: nothing of it is loaded
    Fork,
}

impl Run {
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        match self.try_run(common, registry) {
            Ok(code) => code,
            Err(fault) => {
                say_fault(&fault);
                match fault.code() {
                    _ if cannot_confine(&fault) => ExitCode::CannotConfine,
                    FaultCode::MissingRequirement => ExitCode::MissingRequirement,
                    FaultCode::InvalidPolicy | FaultCode::InvalidWorkspace | FaultCode::InvalidArguments => ExitCode::Usage,
                    _ => ExitCode::Failed,
                }
            }
        }
    }

    fn try_run(self, common: &Common, registry: Registry) -> Result<ExitCode, Fault> {
        let task = if self.task == "-" { read_task()? } else { self.task.clone() };
        if task.trim().is_empty() {
            return Err(Fault::new(FaultCode::InvalidArguments, "the task is empty")
                .hint("bailiwick run \"what is to be done\" --model script:FILE"));
        }
        let chosen = self.model.choose(None)?;
        let setup = setup::Setup::of(&setup::Asked { fork: self.trust == Trust::Fork, ..common.asked() })?;
        self.model.check_key_file(setup.charter())?;
        let out = self.out_folder(&setup.charter().base)?;
        let attachments = attach::load(&self.attach)?;
        let mut options = SessionOptions { allow: self.allow, deny: self.deny, ..SessionOptions::default() };
        options.on.extend((!attachments.is_empty()).then_some(Switch::Attachment));
        let work = Work {
            task,
            options,
            attachments,
            native: !self.text_protocol && chosen.known.capabilities.tools,
            capabilities: chosen.known.capabilities,
            price: chosen.known.price,
            context: chosen.known.context,
            limits: Limits { turns: self.max_turns, wall: self.time_limit.map(Duration::from_secs), ..Limits::default() },
            verify: self.verify,
            out: &out,
            secrets: chosen.secrets,
            extras: self.extras,
        };
        let detail = match (self.quiet, self.verbose) {
            (true, _) => Detail::Quiet,
            (_, true) => Detail::Verbose,
            _ => Detail::Normal,
        };
        let console = Console { detail, json: common.json };
        for says in chosen.says.iter().filter(|_| !self.quiet) {
            anstream::eprintln!("bailiwick: {says}");
        }
        let finished = work.go(&setup, registry, chosen.provider.as_ref(), &console)?;
        conclude(&finished, &out, common.json);
        Ok(code_of(&finished))
    }

    /// The folder for what a run leaves. Nothing of it may lie where the sandbox can write.
    fn out_folder(&self, base: &Path) -> Result<PathBuf, Fault> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => state_folder().join(format!("{}-{}", now_ms(), random_word()?)),
        };
        let broken = |error: std::io::Error| {
            Fault::new(FaultCode::IoError, format!("{}: {error}", folder.display())).hint("--out DIR names another")
        };
        std::fs::create_dir_all(&folder).map_err(broken)?;
        let folder = folder.canonicalize().map_err(broken)?;
        if folder.starts_with(base) {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("--out {} is inside the workspace", folder.display()))
                .hint("name a folder that the model cannot write to"));
        }
        Ok(folder)
    }
}

/// One run, whoever asks for it.
pub(super) struct Work<'a> {
    pub(super) task: String,
    pub(super) options: SessionOptions,
    pub(super) attachments: Vec<Attachment>,
    pub(super) native: bool,
    /// What the model is able for.
    pub(super) capabilities: Capabilities,
    /// What its tokens cost, where it is known.
    pub(super) price: Option<Price>,
    /// Tokens of a whole conversation, where it is known.
    pub(super) context: Option<u64>,
    pub(super) limits: Limits,
    pub(super) verify: Option<String>,
    /// A folder outside the workspace.
    pub(super) out: &'a Path,
    /// Values that are masked in all that is written, besides the keys of the environment.
    pub(super) secrets: Vec<String>,
    pub(super) extras: Extras,
}

impl Work<'_> {
    /// Starts a session, lets the model work, and leaves transcript, result and patch.
    pub(super) fn go(
        self,
        setup: &setup::Setup,
        registry: Registry,
        provider: &dyn Provider,
        console: &Console,
    ) -> Result<Finished, Fault> {
        let secrets = keys_of_environment().into_iter().chain(self.secrets);
        let run_id = format!("run-{}", random_word()?);
        let mut transcript = Transcript::create(&self.out.join("transcript.jsonl"), &run_id, Mask::new(secrets))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
        let finished = runtime.block_on(async {
            let stop = stop_signal()?;
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
            let mut options = RunOptions::new(self.task, toolset, random_word()?);
            options.native = self.native;
            options.attachments = self.attachments;
            options.limits = self.limits;
            options.price = self.price;
            options.context_bytes = context_bytes(self.context, options.context_bytes);
            options.verify = self.verify;
            options.enforcement = serde_json::to_value(session.report()).unwrap_or_default();
            options.patch_file = Some(self.out.join("changes.patch"));
            let finished = run_loop::run(&doorway, provider, &mut transcript, console, &options, stop).await;
            extras.close().await;
            for undone in session.finish().await {
                anstream::eprintln!("bailiwick: {undone}");
            }
            Ok::<_, Fault>(finished)
        })?;
        write_result(&finished, &self.out.join("result.json"))?;
        Ok(finished)
    }
}

/// Writes `result.json`, whole or not at all.
fn write_result(finished: &Finished, path: &Path) -> Result<(), Fault> {
    let broken = |error: std::io::Error| Fault::new(FaultCode::IoError, format!("{}: {error}", path.display()));
    let text = serde_json::to_vec_pretty(&finished.result).map_err(|error| broken(error.into()))?;
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
        use std::io::Write;
        let _ = std::io::stdout().write_all(&patch.text);
    }
    anstream::eprintln!();
    for note in &result.notes {
        anstream::eprintln!("note: {note}");
    }
    if let Some(error) = &result.patch_error {
        anstream::eprintln!("no patch: {error}");
    }
    if let Some(message) = &result.message {
        anstream::eprintln!("bailiwick: {message}");
    }
    anstream::eprintln!(
        "{}: {} turns, {} files changed, {} calls failed; {}",
        result.stop_reason,
        result.turns,
        result.changed_files.len(),
        result.failed_calls.len(),
        out.display()
    );
}

/// Comes when the person or the system wants the run to end, with the signal's number.
fn stop_signal() -> Result<impl Future<Output = u8>, Fault> {
    let broken = |error: std::io::Error| Fault::new(FaultCode::Internal, error.to_string());
    let mut interrupt = signal(SignalKind::interrupt()).map_err(broken)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(broken)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(broken)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            _ = hang_up.recv() => 1,
        }
    })
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

fn state_folder() -> PathBuf {
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
