//! `bailiwick tools`: what a model would be given: `{tools, instructions}`.

use super::{Common, Registry, say_fault, setup};
use crate::agent::prompt::{Capabilities, Offered, SessionOptions, toolset};
use crate::dialect::schema::{Format, tools_as};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::session::offered;
use clap::ValueEnum;
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(super) struct Tools {
    /// The form in which the tools are listed
    #[arg(long, value_enum, default_value_t = Form::Text)]
    format: Form,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
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
            Err(fault) => {
                say_fault(&fault);
                ExitCode::Usage
            }
        }
    }

    fn listing(&self, common: &Common, registry: Registry) -> Result<(Value, String), Fault> {
        let setup = setup::Setup::resolved(&common.asked())?;
        let tools = offered(registry, setup.charter());
        let offers: Vec<Offered> = tools.iter().map(|tool| Offered::of(*tool)).collect();
        let set = toolset(&Capabilities::default(), &SessionOptions::default(), &offers)?;
        let format = match self.format {
            Form::Text => Format::Text,
            Form::Openai => Format::OpenAi,
            Form::Anthropic => Format::Anthropic,
            // As a client of the server would be told.
            Form::Mcp => {
                let listed = serde_json::to_value(crate::mcp::server::listing(&tools, setup.charter().net));
                let listed = listed.map_err(|error| Fault::new(FaultCode::Internal, error.to_string()))?;
                return Ok((listed, crate::mcp::server::instructions(&tools)));
            }
        };
        Ok((tools_as(&set.tools, format), set.instructions))
    }
}
