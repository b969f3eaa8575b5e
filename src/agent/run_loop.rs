//! The loop: think, act, wait, done, stopped.
//!
//! [`run`] always comes back with a [`RunResult`]: done, a spent budget, a provider that failed, a signal, a bug. What was changed
//! until then is in the patch. The loop never runs a call that is malformed or cut off, never sends a conversation that is not
//! whole, and never goes on when the transcript cannot be written.

use super::Doorway;
use super::act::{Deadlines, Files, act, touched, within};
use super::attach::{self, Attachment};
use super::budget::{Budget, Circle, Circles, Kind, Limits, Price};
use super::fallback;
use super::messages::{KEEP_REPLIES, messages, size, to_stub, to_summarize, validate};
use super::observe::{Log, Observer};
use super::outcome::{Outcome, RunResult};
use super::patch::{Baseline, Patch, Record};
use super::prompt::Toolset;
use super::reply::{self, Asked};
use super::transcript::{Transcript, What, used_ids, was_shown};
use crate::dialect::{schema, text};
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::provider::{Extra, Message, Progress, Provider, Reply, Request, Stop, ToolSchema};
use crate::session::Call;
use crate::tools::Access;
use serde_json::Value;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

/// Malformed calls in a row after which a model is spoken to by text.
const SWITCH_AFTER: u32 = 3;
/// Malformed calls in a row by text after which the run ends.
const MALFORMED_TEXT: u32 = 5;
/// Failed verifications that go back to the model.
const VERIFY_ROUNDS: u32 = 3;
/// Replies after which a summary that failed is asked for again.
const SUMMARY_PAUSE: u32 = 8;
/// Characters of a summary that are kept.
const MOST_SUMMARY: usize = 40_000;
/// What the model is asked when the conversation grows too large.
const SUMMARIZE: &str = "The conversation has become too long and its beginning is about to be left out. Do not call a tool. Write down what \
    is needed to go on without it: what was found out, with paths and names; what was changed and why; what was tried and failed; what \
    remains to be done. The task itself is kept and need not be repeated.";
/// What a line begins with by which the model gives up.
const GIVING_UP: &str = "GAVE UP:";
/// Facts of an answer that change by themselves.
const VOLATILE: &[&str] = &["duration_ms", "cpu_ms", "max_rss", "max_rss_kib", "elapsed_ms", "spool", "pid"];

/// What a run is given.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The task, verbatim.
    pub task: String,
    /// What the model is given.
    pub toolset: Toolset,
    /// Whether the model calls tools natively; else it is taught the text protocol.
    pub native: bool,
    /// What may be spent.
    pub limits: Limits,
    /// The price of the model, where it is known.
    pub price: Option<Price>,
    /// How long calls may take.
    pub deadlines: Deadlines,
    /// A command that has to succeed before the work counts as done; it runs as a call of `sandbox_bash`.
    pub verify: Option<String>,
    /// A word of the run's own that nobody can guess; it fences results in the text protocol.
    pub nonce: String,
    /// The most tokens of one reply.
    pub max_tokens: Option<u64>,
    /// Further fields of each request, as the vendor names them.
    pub extra: Extra,
    /// Bytes of conversation above which old results become stubs.
    pub context_bytes: usize,
    /// What the sandbox enforces, for the transcript and the result.
    pub enforcement: Value,
    /// Where the patch is written: a file outside the workspace.
    pub patch_file: Option<PathBuf>,
    /// Files that are given along with the task, ready to be shown. Their content is known to the doorway's tools.
    pub attachments: Vec<Attachment>,
    /// A file outside the workspace where the start is written down, so that the patch of a killed process can still be made.
    pub record: Option<(PathBuf, Record)>,
    /// The patch that an earlier process of this run left: the state that is found is what it led to.
    pub earlier: Option<Vec<u8>>,
    /// What to say to the model when the run goes on; empty: that it goes on.
    pub follow_up: String,
    /// When the run began, from which its wall time counts.
    pub began: Instant,
}

impl RunOptions {
    /// Options with the usual limits.
    pub fn new(task: impl Into<String>, toolset: Toolset, nonce: impl Into<String>) -> Self {
        Self {
            task: task.into(),
            toolset,
            native: true,
            limits: Limits::default(),
            price: None,
            deadlines: Deadlines::default(),
            verify: None,
            nonce: nonce.into(),
            max_tokens: None,
            extra: Extra::new(),
            context_bytes: 400_000,
            enforcement: Value::Null,
            patch_file: None,
            attachments: Vec::new(),
            record: None,
            earlier: None,
            follow_up: String::new(),
            began: Instant::now(),
        }
    }
}

/// What a run leaves: the content of `result.json`, and the patch.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The content of `result.json`; also the last event of the transcript, where that can still be written.
    pub result: RunResult,
    /// The patch, unless it could not be made; `result.patch_error` then says why.
    pub patch: Option<Patch>,
}

/// Runs the task, or goes on with it where the transcript holds events already. `stop` is awaited again and again and comes when a
/// signal does, with its number: whatever runs then is dropped, and so ended. A signal that comes when the work is over already cuts
/// the making of the patch short, and changes no outcome.
pub async fn run(
    doorway: &impl Doorway,
    provider: &dyn Provider,
    transcript: &mut Transcript,
    observer: &dyn Observer,
    options: &RunOptions,
    mut stop: impl AsyncFnMut() -> u8,
) -> Finished {
    let began = options.began;
    let mut run = Run::new(doorway, provider, Log { transcript, observer }, options, began);
    let outcome = {
        let driven = pin!(guarded(run.drive()));
        let limited = async {
            match options.limits.wall.and_then(|wall| began.checked_add(wall)) {
                Some(end) => tokio::time::timeout_at(end.into(), driven).await.unwrap_or(Outcome::Budget(Kind::Wall)),
                None => driven.await,
            }
        };
        tokio::select! {
            biased;
            signal = stop() => Outcome::Signal(signal),
            outcome = limited => outcome,
        }
    };
    run.finish(outcome, stop).await
}

pub(super) struct Run<'a, D> {
    pub(super) doorway: &'a D,
    pub(super) provider: &'a dyn Provider,
    pub(super) log: Log<'a>,
    pub(super) options: &'a RunOptions,
    pub(super) began: Instant,
    schemas: Vec<ToolSchema>,
    native: bool,
    pub(super) budget: Budget,
    circles: Circles,
    pub(super) files: Files,
    pub(super) patch_error: Option<String>,
    pub(super) notes: Vec<String>,
    malformed: u32,
    silent: u32,
    verified: u32,
    /// Replies until a summary that failed is asked for again.
    no_summary: u32,
}

/// What to do after a reply.
enum Next {
    Think,
    End(Outcome),
}

impl<'a, D: Doorway> Run<'a, D> {
    fn new(doorway: &'a D, provider: &'a dyn Provider, log: Log<'a>, options: &'a RunOptions, began: Instant) -> Self {
        Self {
            doorway,
            provider,
            log,
            options,
            began,
            schemas: schema::for_provider(&options.toolset.tools),
            native: options.native,
            budget: Budget::new(options.limits.clone(), options.price),
            circles: Circles::default(),
            files: Files { record: options.record.clone(), ..Files::default() },
            patch_error: None,
            notes: Vec::new(),
            malformed: 0,
            silent: 0,
            verified: 0,
            no_summary: 0,
        }
    }

    /// To the end, whichever comes.
    async fn drive(&mut self) -> Outcome {
        match self.think_and_act().await {
            Ok(outcome) => outcome,
            Err(fault) => Outcome::Failed(fault),
        }
    }

    async fn think_and_act(&mut self) -> Result<Outcome, Fault> {
        let changes = |name: &str| self.options.toolset.find(name).is_some_and(|tool| tool.access == Some(Access::Change));
        self.files.touched = touched(self.log.transcript.events(), changes);
        match self.baseline().await {
            Ok(baseline) => self.files.baseline = Some(baseline),
            Err(fault) => self.patch_error = Some(format!("the state at the start could not be taken: {fault}")),
        }
        self.files.remember();
        let new = self.log.transcript.events().is_empty();
        self.begin()?;
        if new && !self.native && !self.options.toolset.lookups.is_empty() {
            fallback::plant(self.doorway, self.provider, &mut self.log, self.options, &mut self.budget).await?;
        }
        loop {
            if let Some(kind) = self.budget.exhausted(self.began.elapsed()) {
                return Ok(Outcome::Budget(kind));
            }
            if let Some(warning) = self.budget.warning(self.began.elapsed()) {
                self.tell(&warning)?;
            }
            let last = self.budget.last_turn();
            if last {
                self.tell("This is the last turn: tools are off. Say in a few sentences what was done and what remains.")?;
            }
            let reply = match self.ask(!last).await? {
                Ok(reply) => reply,
                Err(outcome) => return Ok(outcome),
            };
            if let Next::End(outcome) = self.take(reply, last).await? {
                return Ok(outcome);
            }
        }
    }

    /// The state at the start; of a resumed run, the state at its first start.
    async fn baseline(&mut self) -> Result<Baseline, Fault> {
        let mut baseline = Baseline::take(self.doorway).await?;
        let touched: Vec<String> = self.files.touched.iter().cloned().collect();
        if let Some(earlier) = &self.options.earlier
            && let Err(fault) = baseline.rewind(self.doorway, earlier, &touched).await
        {
            self.notes.push(format!(
                "the patch holds only what changed since the run was resumed: the workspace was changed meanwhile ({fault})"
            ));
            baseline.before_change(self.doorway, &touched).await?;
        }
        Ok(baseline)
    }

    /// Begins a transcript, or takes up from one what was spent and said.
    fn begin(&mut self) -> Result<(), Fault> {
        if self.log.transcript.events().is_empty() {
            let tools = &self.options.toolset.tools;
            self.log.append(What::RunStarted {
                task: self.options.task.clone(),
                model: self.provider.name(),
                dialect: if self.native { "native" } else { "text" }.into(),
                tools: tools.iter().map(|tool| tool.name.clone()).collect(),
                system: self.system(self.native),
                enforcement: self.options.enforcement.clone(),
                workspace: self.doorway.base().display().to_string(),
            })?;
            let can_read = self.options.toolset.find("read_file").is_some();
            return self.options.attachments.iter().try_for_each(|file| self.tell(&attach::shown(file, &self.options.nonce, can_read)));
        }
        for event in self.log.transcript.events() {
            match &event.what {
                What::RunStarted { dialect, .. } => self.native = dialect == "native",
                What::DialectChanged { .. } => self.native = false,
                What::TurnStarted { .. } => self.budget.turn(),
                What::Replied { input_tokens, output_tokens, .. } | What::Summarized { input_tokens, output_tokens, .. } => {
                    self.budget.tokens(*input_tokens, *output_tokens);
                }
                What::CallEnded { envelope, .. } => self.budget.called(envelope.success()),
                _ => {}
            }
        }
        // The interruption itself is nothing that the model did wrong.
        self.budget.called(true);
        // Also where the model spoke last: it has to be asked something.
        let follow_up = self.options.follow_up.trim();
        self.tell(if follow_up.is_empty() { "The run was interrupted and goes on now, on the files as they are." } else { follow_up })
    }

    fn system(&self, native: bool) -> String {
        let toolset = &self.options.toolset;
        if native || toolset.tools.is_empty() {
            return toolset.instructions.clone();
        }
        format!("{}\n\n{}", toolset.instructions, text::teach_declared(&toolset.tools)).trim().to_owned()
    }

    /// One request. The inner error is an ordinary end.
    async fn ask(&mut self, may_call: bool) -> Result<Result<Reply, Outcome>, Fault> {
        self.log.close_dangling()?;
        let turn = self.budget.spent().turns + 1;
        self.log.append(What::TurnStarted { turn })?;
        self.budget.turn();
        let messages = self.conversation().await?;
        let observer = self.log.observer;
        let mut stream = self.log.transcript.mask().stream();
        let mut show = |progress: Progress<'_>| {
            if let Progress::Text(text) = progress {
                observer.delta(&stream.push(text));
            }
        };
        let request = Request {
            messages: &messages,
            tools: if self.native { &self.schemas } else { &[] },
            may_call: may_call && self.native,
            max_tokens: self.options.max_tokens,
            extra: &self.options.extra,
        };
        let replied = self.provider.reply(request, &mut show).await;
        observer.delta(&stream.finish());
        Ok(match replied {
            Ok(reply) => {
                let usage = reply.usage;
                self.budget.tokens(usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write), usage.output);
                Ok(reply)
            }
            Err(error) => Err(Outcome::Provider(self.log.transcript.mask().text(&error.to_string()).into_owned())),
        })
    }

    /// The messages, whole and within bounds: old results become stubs first, then the beginning becomes a summary, and when that
    /// fails, all results but the last reply's become stubs.
    async fn conversation(&mut self) -> Result<Vec<Message>, Fault> {
        let most = self.options.context_bytes;
        let mut conversation = self.stubbed(KEEP_REPLIES)?;
        if size(&conversation) > most {
            self.no_summary = self.no_summary.saturating_sub(1);
            if self.no_summary == 0
                && let Some(upto) = to_summarize(self.log.transcript.events(), KEEP_REPLIES)
            {
                match self.summary(&conversation).await {
                    Ok((text, input_tokens, output_tokens)) => {
                        self.log.append(What::Summarized { text, upto, input_tokens, output_tokens })?;
                        conversation = messages(self.log.transcript.events(), &self.options.nonce)?;
                    }
                    Err(why) => {
                        self.no_summary = SUMMARY_PAUSE;
                        self.note(&format!("the conversation could not be summarized, old results are left out instead: {why}"))?;
                    }
                }
            }
            if size(&conversation) > most {
                conversation = self.stubbed(1)?;
            }
        }
        validate(&conversation)?;
        Ok(conversation)
    }

    /// The messages with old results as stubs, those of the last replies aside.
    fn stubbed(&mut self, keep: usize) -> Result<Vec<Message>, Fault> {
        let conversation = messages(self.log.transcript.events(), &self.options.nonce)?;
        let ids = to_stub(self.log.transcript.events(), &conversation, self.options.context_bytes, keep);
        if ids.is_empty() {
            return Ok(conversation);
        }
        self.log.append(What::ResultsStubbed { ids })?;
        messages(self.log.transcript.events(), &self.options.nonce)
    }

    /// Asks the model for a summary of a conversation. Returns it with the tokens read and written, or why there is none.
    async fn summary(&mut self, conversation: &[Message]) -> Result<(String, u64, u64), String> {
        let mut asked = conversation.to_vec();
        asked.push(Message::user(SUMMARIZE));
        validate(&asked).map_err(|fault| fault.to_string())?;
        let request = Request {
            messages: &asked,
            tools: if self.native { &self.schemas } else { &[] },
            may_call: false,
            max_tokens: self.options.max_tokens,
            extra: &self.options.extra,
        };
        let reply = self.provider.reply(request, &mut |_| {}).await.map_err(|error| error.to_string())?;
        let input = reply.usage.input.saturating_add(reply.usage.cache_read).saturating_add(reply.usage.cache_write);
        self.budget.tokens(input, reply.usage.output);
        let text: String = reply.message.text.trim().chars().take(MOST_SUMMARY).collect();
        if text.is_empty() || !reply.message.calls.is_empty() {
            return Err("the model gave none".into());
        }
        Ok((text, input, reply.usage.output))
    }

    /// Takes a reply: runs its calls, or ends.
    async fn take(&mut self, reply: Reply, last: bool) -> Result<Next, Fault> {
        let (stop, usage) = (reply.stop, reply.usage);
        let turn = self.budget.spent().turns;
        let tools = &self.options.toolset.tools;
        let events = self.log.transcript.events();
        let Asked { message, mut planned, native } =
            reply::read(reply, self.native, tools, turn, &used_ids(events), |text| was_shown(events, text));
        if last {
            for planned in &mut planned {
                planned.refused = Some(Fault::new(FaultCode::ToolDenied, "this was the last turn; the call was not run"));
            }
        }
        let said = message.text.clone();
        self.log.append(What::Replied {
            reply: serde_json::to_value(&message).map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?,
            text: said.clone(),
            calls: planned.iter().map(|planned| planned.call.clone()).collect(),
            native,
            input_tokens: usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write),
            output_tokens: usage.output,
        })?;
        self.log.observer.spent(&self.budget.spent(), self.budget.cost());
        if planned.is_empty() {
            return if last { Ok(Next::End(Outcome::Budget(Kind::Turns))) } else { self.conclude(&said, stop).await };
        }
        self.silent = 0;
        let malformed: Vec<bool> =
            planned.iter().map(|planned| planned.refused.as_ref().is_some_and(|fault| fault.code() == FaultCode::MalformedCall)).collect();
        let answers = act(self.doorway, &mut self.log, &mut self.files, &self.options.toolset, self.options.deadlines, planned).await?;
        if last {
            return Ok(Next::End(Outcome::Budget(Kind::Turns)));
        }
        for ((call, answer), malformed) in answers.iter().zip(malformed) {
            self.budget.called(answer.envelope.success());
            self.malformed = if malformed { self.malformed + 1 } else { 0 };
            match self.circles.add(call, &lasting(&answer.envelope)) {
                Some(Circle::Told(text)) => self.tell(&text)?,
                Some(Circle::Stop(text)) => return Ok(Next::End(Outcome::Circle(text))),
                None => {}
            }
        }
        if !self.native && self.malformed >= MALFORMED_TEXT {
            let text = format!("{} calls in a row could not be read", self.malformed);
            return Ok(Next::End(Outcome::Protocol(text)));
        }
        if self.native && self.malformed >= SWITCH_AFTER {
            self.switch()?;
        }
        Ok(Next::Think)
    }

    /// From native calls to the text protocol; it happens once, for there is no way back.
    fn switch(&mut self) -> Result<(), Fault> {
        self.native = false;
        let reason = format!("{} native calls in a row were malformed", self.malformed);
        self.malformed = 0;
        self.notes.push(format!("{reason}: the text protocol was used from there on"));
        let system = self.system(false);
        self.log.append(What::DialectChanged { to: "text".into(), reason, system })?;
        self.tell("Your native calls could not be read. From here on call tools by text, as the instructions say.")
    }

    /// A reply without calls: done, given up, or not yet.
    async fn conclude(&mut self, said: &str, stop: Stop) -> Result<Next, Fault> {
        let words = said.trim();
        if stop == Stop::Refusal {
            return Ok(Next::End(Outcome::GaveUp(if words.is_empty() { "the model refused".into() } else { words.into() })));
        }
        if let Some(reason) = words.lines().find_map(|line| line.trim_start().strip_prefix(GIVING_UP)) {
            return Ok(Next::End(Outcome::GaveUp(reason.trim().into())));
        }
        if stop == Stop::Length {
            self.tell("Your reply was cut off by the limit of tokens. Go on, in shorter pieces.")?;
            return Ok(Next::Think);
        }
        if words.is_empty() {
            self.silent += 1;
            if self.silent > 1 {
                return Ok(Next::End(Outcome::GaveUp("the model said nothing".into())));
            }
            self.tell("Your reply was empty. Go on with the task, or say that it is done.")?;
            return Ok(Next::Think);
        }
        self.silent = 0;
        match &self.options.verify {
            Some(command) => self.verify(command).await,
            None => Ok(Next::End(Outcome::Done)),
        }
    }

    /// Runs the person's command. It is no call of the model's and is not subject to what the model may call.
    async fn verify(&mut self, command: &str) -> Result<Next, Fault> {
        self.verified += 1;
        let id = format!("verify-{}", self.verified);
        let call = Call { id, tool: "sandbox_bash".into(), args: serde_json::json!({ "command": command }) };
        self.note(&format!("verifying: {command}"))?;
        let answer = within(self.options.deadlines.execute, &call, self.doorway.call(call.clone())).await;
        if answer.envelope.success() && answer.envelope.data().get("exit_code").and_then(Value::as_i64) == Some(0) {
            self.note("the verification succeeded")?;
            return Ok(Next::End(Outcome::Done));
        }
        let failed = format!("the verification failed ({} of {VERIFY_ROUNDS}): {command}", self.verified);
        self.note(&failed)?;
        if self.verified >= VERIFY_ROUNDS {
            return Ok(Next::End(Outcome::Verification(failed)));
        }
        let results = text::results(&[(call, answer)], &self.options.nonce);
        self.tell(&format!("The work is not done: {failed}\n\n{results}"))?;
        Ok(Next::Think)
    }

    /// A word to the model.
    fn tell(&mut self, text: &str) -> Result<(), Fault> {
        self.log.append(What::User { text: text.into() })
    }

    /// A word to the person.
    fn note(&mut self, text: &str) -> Result<(), Fault> {
        self.log.append(What::Noted { text: text.into() })
    }
}

/// Drives a run such that a bug in it is an outcome, and what the model did is not lost.
async fn guarded(run: impl Future<Output = Outcome>) -> Outcome {
    let mut run = pin!(run);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| run.as_mut().poll(context))) {
        Ok(poll) => poll,
        Err(_) => Poll::Ready(Outcome::Failed(Fault::new(FaultCode::Internal, "the agent met a bug in itself and stopped"))),
    })
    .await
}

/// An answer without what changes by itself.
fn lasting(envelope: &Envelope) -> String {
    let mut data = envelope.data().clone();
    if let Value::Object(data) = &mut data {
        data.retain(|key, _| !VOLATILE.contains(&key.as_str()));
    }
    format!("{:?} {data}", envelope.error())
}

#[cfg(test)]
#[path = "run_loop_tests.rs"]
mod tests;
