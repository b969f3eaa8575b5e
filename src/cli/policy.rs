//! `bailiwick policy list, show, check, explain`: what a policy means here, line by line.

use super::{Common, say_fault, setup};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::policy::explain::{self, By, Op};
use crate::policy::{Access, lint};
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::path::PathBuf;

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
    },
    /// Whether a policy is well-formed, and what about it is probably not what was meant
    Check {
        /// A shipped policy or a policy file [default: --policy]
        policy: Option<String>,
    },
    /// What the sandbox answers to an act on a path, and which rule decides
    Explain {
        /// A path; relative ones are relative to the workspace
        path: PathBuf,
        /// The act
        #[arg(long, value_enum, default_value_t = Act::Read)]
        op: Act,
        /// For which calls
        #[arg(long, value_enum, default_value_t = Class::Execute)]
        access: Class,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Act {
    Read,
    Write,
    Create,
    Exec,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Class {
    /// read, grep, ls, find
    Look,
    /// write, edit, copy, …
    Change,
    /// sandbox_bash, exec
    Execute,
}

impl Policy {
    /// 0 fine, 1 findings that are errors, 2 a policy that is wrong.
    pub(super) fn run(self, common: &Common) -> ExitCode {
        let done = match self.verb {
            Verb::List => list(common),
            Verb::Show { policy } => show(common, policy),
            Verb::Check { policy } => check(common, policy),
            Verb::Explain { path, op, access } => explain_path(common, path, op, access),
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

fn resolved(common: &Common, policy: Option<String>) -> Result<setup::Setup, Fault> {
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

fn check(common: &Common, policy: Option<String>) -> Result<ExitCode, Fault> {
    let setup = resolved(common, policy)?;
    let findings = lint::check(setup.details(), setup.here());
    if common.json {
        print_json(&findings);
    } else {
        for finding in &findings {
            out!("{}: {}: {}\n  {}", weight(finding.weight), finding.kind, finding.what, finding.says);
        }
        if findings.is_empty() {
            out!("policy {}: nothing to say", setup.charter().policy);
        }
    }
    let wrong = findings.iter().any(|finding| finding.weight == lint::Weight::Error);
    Ok(if wrong { ExitCode::Failed } else { ExitCode::Done })
}

fn weight(weight: lint::Weight) -> &'static str {
    match weight {
        lint::Weight::Note => "note",
        lint::Weight::Warning => "warning",
        lint::Weight::Error => "error",
    }
}

fn explain_path(common: &Common, path: PathBuf, op: Act, access: Class) -> Result<ExitCode, Fault> {
    let setup = resolved(common, None)?;
    let charter = setup.charter();
    let real = explain::resolved_path(&charter.base, &path).ok_or_else(|| {
        Fault::new(FaultCode::InvalidArguments, format!("{}: leads nowhere: .. behind a folder that does not exist", path.display()))
    })?;
    let op = match op {
        Act::Read => Op::Read,
        Act::Write => Op::Write,
        Act::Create => Op::Create,
        Act::Exec => Op::Exec,
    };
    let access = match access {
        Class::Look => Access::Look,
        Class::Change => Access::Change,
        Class::Execute => Access::Execute,
    };
    let verdict = explain::predict(charter, access, &real, op);
    if common.json {
        print_json(&json!({ "path": real, "verdict": verdict, "predicted": true, "tried": false }));
        return Ok(ExitCode::Done);
    }
    let word = if verdict.allowed { "allowed" } else { "refused" };
    let why = match &verdict.by {
        By::Grant(grant) => format!("by the grant {} ({}): {}", grant.path.display(), grant.origin, grant.reason),
        By::Protected(path) => format!("{} is protected", path.display()),
        By::NoAccess => format!("the policy {} has no such calls", charter.policy),
        By::Nothing => "no rule grants it".into(),
    };
    out!("{}: {word}: {why} (predicted from the policy, not tried)", real.display());
    Ok(ExitCode::Done)
}

fn print_json(value: &impl serde::Serialize) {
    match serde_json::to_string_pretty(value) {
        Ok(text) => out!("{text}"),
        Err(error) => say!("bailiwick: {error}"),
    }
}
