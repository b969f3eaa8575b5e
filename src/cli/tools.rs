//! `bailiwick tools`: what a model would be given: `{tools, instructions}`.

use super::engine::Engine;
use super::extras::Extras;
use super::folder::random_word;
use super::trust::Trust;
use super::{Common, Registry, say_fault, setup};
use crate::agent::outcome::Outcome;
use crate::agent::prompt::{Capabilities, Offered, SessionOptions, toolset};
use crate::dialect::schema::{Format, tools_as};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::session::{Options, Session, offered, this_exe};
use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    /// The form in which the tools are listed
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
    /// And what a run would have besides: skills, and the tools of MCP servers, which are started for it, in a session
    #[arg(long)]
    with_extras: bool,
    #[command(flatten)]
    extras: Extras,
    /// Whose tree this is: of somebody else's neither skills nor servers are listed
    #[arg(long, value_enum, value_name = "WHOSE", default_value_t)]
    trust: Trust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// The text protocol's teaching text
    Text,
    /// OpenAI chat completions
    Openai,
    /// Anthropic Messages
    Anthropic,
    /// The Model Context Protocol
    Mcp,
}

impl Tools {
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        match self.listing(common, registry) {
            Ok((tools, instructions)) => {
                match (common.json, tools) {
                    (false, Value::String(text)) => out!("{instructions}\n\n{text}"),
                    (_, tools) => out!("{:#}", json!({ "tools": tools, "instructions": instructions })),
                }
                ExitCode::Done
            }
            Err(Outcome::Failed(fault)) => {
                say_fault(&fault);
                match ExitCode::of(&fault) {
                    ExitCode::Failed => ExitCode::Usage,
                    code => code,
                }
            }
            Err(outcome) => outcome.exit_code(),
        }
    }

    fn listing(&self, common: &Common, registry: Registry) -> Result<(Value, String), Outcome> {
        let mut asked = common.asked();
        asked.fork = self.trust.is_fork();
        if self.with_extras || self.extras.are_named() {
            return self.with_extras(&asked, registry);
        }
        let setup = setup::Setup::resolved(&asked)?;
        let tools = offered(registry, setup.charter());
        let offers: Vec<Offered> = tools.iter().map(|tool| Offered::of(*tool)).collect();
        let set = toolset(&Capabilities::default(), &SessionOptions::default(), &offers)?;
        let format = match self.format.of_models() {
            Some(format) => format,
            // As a client of the server would be told.
            None => {
                let listed = serde_json::to_value(crate::mcp::server::listing(&tools, setup.charter().net));
                let listed = listed.map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
                return Ok((listed, crate::mcp::server::instructions(&tools)));
            }
        };
        Ok((tools_as(&set.tools, format), set.instructions))
    }

    /// What a run here would begin with.
    fn with_extras(&self, asked: &setup::Asked, registry: Registry) -> Result<(Value, String), Outcome> {
        let Some(format) = self.format.of_models() else {
            let fault =
                Fault::new(FaultCode::InvalidArguments, "--with-extras: `bailiwick mcp` serves neither skills nor other servers' tools");
            return Err(fault.hint("--format text, openai or anthropic").into());
        };
        let mut engine = Engine::start()?;
        let setup = setup::Setup::of(asked)?;
        let mut charter = setup.charter().clone();
        let extras = self.extras.clone().read(&setup, &mut engine)?;
        let prepared = extras.prepare(&setup, &mut charter);
        let word = random_word()?;
        let listed = engine.drive(async {
            let session = Session::start(Options { exe: this_exe(), registry, charter })?;
            let extras = extras.open(&session, &setup, prepared, &word).await?;
            let mut options = SessionOptions::default();
            extras.switch_on(&mut options);
            let mut set = toolset(&Capabilities::default(), &options, &extras.doorway().offers())?;
            extras.tell(&mut set);
            extras.close().await;
            session.close();
            Ok::<_, Fault>(set)
        });
        let set = listed??;
        Ok((tools_as(&set.tools, format), set.instructions))
    }
}

impl Form {
    /// The form in which a model is given tools; `None`: it is no model that is.
    fn of_models(self) -> Option<Format> {
        match self {
            Self::Text => Some(Format::Text),
            Self::Openai => Some(Format::OpenAi),
            Self::Anthropic => Some(Format::Anthropic),
            Self::Mcp => None,
        }
    }
}
