//! `bailiwick models list, explain`: what is known of models, and which line says so.

use super::engine::bytes_of;
use super::say_fault;
use crate::agent::budget::dollars;
use crate::agent::models::Models as Known;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use clap::Subcommand;
use serde_json::json;
use std::path::{Path, PathBuf};

const HINT: &str = "a TOML file of [[model]] entries; `bailiwick models list` shows those that are built in";

/// The most bytes of a file that says what is known of models.
const MOST: u64 = 16 << 20;

#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Models {
    #[command(subcommand)]
    verb: Verb,
    /// A file that is asked before the built-in one [default: bailiwick/models.toml in the configuration folder]
    #[arg(long, value_name = "FILE", global = true)]
    models: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Every entry, in the order in which they are asked
    List,
    /// What is known of one model, and which line decided each part of it
    Explain {
        /// The model as `--model` takes it: openai:gpt-5, ollama:llama3.2:3b
        name: String,
    },
}

impl Models {
    pub(super) fn run(self, json: bool) -> ExitCode {
        match models(self.models.as_deref()).map(|models| self.verb.show(&models, json)) {
            Ok(code) => code,
            Err(fault) => {
                say_fault(&fault);
                ExitCode::Usage
            }
        }
    }
}

impl Verb {
    fn show(&self, models: &Known, json: bool) -> ExitCode {
        match self {
            Self::List if json => out!("{:#}", json!(models.list())),
            Self::List => {
                for entry in models.list() {
                    let mut says: Vec<String> = Vec::new();
                    says.extend(entry.tools.map(|tools| if tools { "native calls".into() } else { "text protocol".into() }));
                    says.extend(
                        entry.scopes.iter().map(|(scope, able)| format!("{} {}", scope.as_str(), if *able { "yes" } else { "no" })),
                    );
                    says.extend(entry.price.map(|price| format!("{} / {}", dollars(price.input), dollars(price.output))));
                    says.extend(entry.context.map(|tokens| format!("{tokens} tokens")));
                    says.extend(entry.default.then(|| "default".into()));
                    out!("{}: {}  ({}:{})", entry.r#match.join(", "), says.join(", "), entry.file, entry.line);
                }
            }
            Self::Explain { name } => {
                if name.trim().is_empty() {
                    say_fault(&Fault::new(FaultCode::InvalidArguments, "no model is named").hint("bailiwick models explain openai:gpt-5"));
                    return ExitCode::Usage;
                }
                let known = models.decide(name);
                if json {
                    out!("{:#}", json!({ "name": name, "reasons": known.reasons }));
                    return ExitCode::Done;
                }
                for reason in known.reasons {
                    let by = match reason.decided_by {
                        Some(line) => format!("{}:{}, match {:?}", line.file, line.line, line.pattern),
                        None => "no line speaks of it".into(),
                    };
                    out!("{:<22} {:<40} {by}", reason.field, reason.value);
                }
            }
        }
        ExitCode::Done
    }
}

/// What is known of models: the person's file, where there is one, before what is built in.
pub(super) fn models(named: Option<&Path>) -> Result<Known, Fault> {
    let built_in = Known::embedded()?;
    let file = match named {
        Some(file) => file.to_path_buf(),
        None => match configuration() {
            Some(file) if file.is_file() => file,
            _ => return Ok(built_in),
        },
    };
    let wrong = |says: String| Fault::new(FaultCode::InvalidArguments, format!("--models {}: {says}", file.display())).hint(HINT);
    let bytes = bytes_of(&file, MOST).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() as u64 > MOST {
        return Err(wrong(format!("it has more than {} MiB", MOST >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8".into()))?;
    built_in.with_file(&file.display().to_string(), &text).map_err(|fault| fault.hint(HINT))
}

fn configuration() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|home| home.join(".config"))).map(|folder| folder.join("bailiwick/models.toml"))
}
