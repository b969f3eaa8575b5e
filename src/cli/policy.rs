//! `bailiwick policy list, show, check, explain`: what a policy means here, line by line.

use super::{Common, Registry, say_fault, setup};
use crate::agent::prompt::categories;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::policy::{Charter, explain, lint, shelf};
use crate::tools::args::nearest;
use clap::Subcommand;

#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Policy {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The policies that are shipped
    List,
    /// Each effective rule of a policy, with its reason and its origin
    Show {
        /// A shipped policy or a policy file [default: --policy]
        policy: Option<String>,
        /// The policy as it is written, to begin one of your own with
        #[arg(long)]
        source: bool,
    },
    /// Whether a policy is well-formed, and what about it is probably not what was meant
    Check {
        /// A shipped policy or a policy file [default: --policy]
        policy: Option<String>,
    },
    /// What the sandbox answers to an act on a path, to a connection or to a command, and which rule decides
    Explain(super::explain::Explain),
}

impl Policy {
    /// 0 fine, 1 findings that are errors, 2 a policy that is wrong.
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        let done = match self.verb {
            Verb::List => list(common),
            Verb::Show { policy, source: true } => {
                shelf::policy_text(policy.as_deref().unwrap_or(&common.policy)).map(|text| super::print_bytes(text.as_bytes()))
            }
            Verb::Show { policy, source: false } => show(common, policy),
            Verb::Check { policy } => check(common, policy, registry),
            Verb::Explain(asked) => asked.run(common),
        };
        done.unwrap_or_else(|fault| {
            say_fault(&fault);
            ExitCode::Usage
        })
    }
}

fn list(common: &Common) -> Result<ExitCode, Fault> {
    let all = explain::list()?;
    if common.json {
        print_json(&all);
    } else {
        for one in all {
            out!("{:<10} {}", one.name, one.description);
        }
    }
    Ok(ExitCode::Done)
}

pub(super) fn resolved(common: &Common, policy: Option<String>) -> Result<setup::Setup, Fault> {
    let mut asked = common.asked();
    if let Some(policy) = policy {
        asked.policy = policy;
    }
    setup::Setup::resolved(&asked)
}

fn show(common: &Common, policy: Option<String>) -> Result<ExitCode, Fault> {
    let setup = resolved(common, policy)?;
    if common.json {
        print_json(&explain::rules(setup.details()));
    } else {
        super::print_bytes(explain::text(setup.details()).as_bytes());
    }
    Ok(ExitCode::Done)
}

fn check(common: &Common, policy: Option<String>, registry: Registry) -> Result<ExitCode, Fault> {
    let setup = resolved(common, policy)?;
    let mut findings = lint::check(setup.details(), setup.here());
    findings.splice(0..0, unknown_tools(setup.charter(), registry));
    if common.json {
        print_json(&findings);
    } else {
        for finding in &findings {
            out!("{}: {}: {}\n  {}", weight(finding.weight), finding.kind, finding.what, finding.says);
        }
        if findings.is_empty() {
            out!("policy {}: nothing to object to", setup.charter().policy);
        }
    }
    let wrong = findings.iter().any(|finding| finding.weight == lint::Weight::Error);
    Ok(if wrong { ExitCode::Failed } else { ExitCode::Done })
}

/// Tools that a session may have besides those of the registry.
const FURTHER: [&str; 6] = ["load_skill", "execute_skill_script", "read_file", "search_file_content", "web_search", "parse_link"];

/// Names in the policy's lists of tools that no tool and no category has: what was to be off stays on.
fn unknown_tools(charter: &Charter, registry: Registry) -> Vec<lint::Finding> {
    let mut known: Vec<&str> = registry.iter().flat_map(|tool| [tool.name(), tool.category()]).collect();
    known.extend(categories().chain(FURTHER));
    let lists = [("tools.allow", &charter.tools_allow), ("tools.deny", &charter.tools_deny)];
    let named = lists.into_iter().flat_map(|(list, names)| names.iter().map(move |name| (list, name)));
    let mut found = Vec::new();
    for (list, name) in named {
        // Tools of MCP servers have names that are not known here.
        if name.starts_with("mcp__") || name.contains(['*', '?', '[', '{']) || known.contains(&name.as_str()) {
            continue;
        }
        let alias = registry.iter().find(|tool| tool.aliases().contains(&name.as_str()));
        let says = match alias.map(|tool| tool.name()).or_else(|| nearest(name, &known)) {
            Some(near) => format!("no tool and no category has this name; did you mean {near}?"),
            None => "no tool and no category has this name; `bailiwick tools` lists them".into(),
        };
        found.push(lint::Finding { weight: lint::Weight::Error, kind: "tool", what: format!("{list}: {name}"), says });
    }
    found
}

/// A policy that names a tool that there is not does not start a session: what it was to switch off would be on.
///
/// # Errors
/// `invalid_policy`.
pub(super) fn tools_are_known(charter: &Charter, registry: Registry) -> Result<(), Fault> {
    match unknown_tools(charter, registry).into_iter().next() {
        Some(lint::Finding { what, says, .. }) => Err(Fault::new(FaultCode::InvalidPolicy, format!("{what}: {says}"))),
        None => Ok(()),
    }
}

fn weight(weight: lint::Weight) -> &'static str {
    match weight {
        lint::Weight::Note => "note",
        lint::Weight::Warning => "warning",
        lint::Weight::Error => "error",
    }
}

pub(super) fn print_json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => out!("{text}"),
        Err(error) => say!("bailiwick: {error}"),
    }
}
