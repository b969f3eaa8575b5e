//! `bailiwick doctor`: what this kernel can enforce, which policies it can honour, what is missing and what that costs.

use super::{Common, say_fault, setup};
use crate::confine::{self, Report, State};
use crate::envelope::Fault;
use crate::exit_code::ExitCode;
use crate::jail::spawn::Warden;
use crate::policy::{Access, shelf};
use crate::session::this_exe;
use anstyle::{AnsiColor, Style};
use serde::Serialize;

#[derive(Debug, clap::Args)]
pub(super) struct Doctor {}

/// What is printed.
#[derive(Debug, Serialize)]
struct Findings {
    kernel: confine::Kernel,
    policies: Vec<Honoured>,
    report: Option<Report>,
    error: Option<String>,
}

/// Whether a policy can be honoured here.
#[derive(Debug, Serialize)]
struct Honoured {
    policy: &'static str,
    honoured: bool,
    why_not: Option<String>,
}

impl Doctor {
    /// 0: the policy in question can be enforced; 3: it cannot; 2: usage.
    pub(super) fn run(self, common: &Common) -> ExitCode {
        let mut asked = common.asked();
        // The question is about the machine: any folder does where the current one cannot be a workspace.
        let stand_in = tempfile::tempdir();
        if asked.workspace.is_none()
            && setup::Setup::resolved(&asked).is_err()
            && let Ok(folder) = &stand_in
        {
            asked.workspace = Some(folder.path().to_path_buf());
        }
        let kernel = confine::probe();
        let policies = shelf::POLICIES.iter().map(|(name, _)| honoured(name, &asked)).collect();
        let (report, error, code) = match live(&asked) {
            Ok(report) => (Some(report), None, ExitCode::Done),
            Err(fault) => {
                let code = if ExitCode::of(&fault) == ExitCode::CannotConfine { ExitCode::CannotConfine } else { ExitCode::Usage };
                if !common.json {
                    say_fault(&fault);
                }
                (None, Some(fault.to_string()), code)
            }
        };
        let findings = Findings { kernel, policies, report, error };
        if common.json {
            match serde_json::to_string_pretty(&findings) {
                Ok(text) => out!("{text}"),
                Err(error) => say!("bailiwick: {error}"),
            }
        } else {
            print(&findings);
        }
        code
    }
}

/// The report of a session that was really started.
fn live(asked: &setup::Asked) -> Result<Report, Fault> {
    let setup = setup::Setup::of(asked)?;
    let classes: Vec<Access> = [Access::Look, Access::Change, Access::Execute, Access::Own]
        .into_iter()
        .filter(|access| setup.charter().grants(*access).is_some())
        .collect();
    let warden = Warden::begin(&this_exe(), setup.charter(), &classes, setup.base())?;
    warden.ready()
}

fn honoured(name: &'static str, asked: &setup::Asked) -> Honoured {
    let asked = setup::Asked {
        policy: name.into(),
        workspace: asked.workspace.clone().or_else(|| std::env::current_dir().ok()),
        without_namespaces: asked.without_namespaces,
        ..Default::default()
    };
    match live(&asked) {
        Ok(_) => Honoured { policy: name, honoured: true, why_not: None },
        Err(fault) => Honoured { policy: name, honoured: false, why_not: Some(fault.message().to_owned()) },
    }
}

fn print(findings: &Findings) {
    let paint = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    let (good, half, bad) = (paint(AnsiColor::Green), paint(AnsiColor::Yellow), paint(AnsiColor::Red));
    if let Some(report) = &findings.report {
        out!("Linux {} ({}), Landlock ABI {}", report.kernel.release, report.kernel.machine, report.landlock_abi);
        out!("jails are user {}, group {}\n", report.identity.uid, report.identity.gid);
        out!("protections, tried in a live sandbox:");
        for row in &report.protections {
            let (style, word, says) = match &row.state {
                State::Enforced { by } => (good, "enforced", format!("by {by}")),
                State::Partly { by, open } => (half, "partly", format!("by {by}; open: {open}")),
                State::Missing { why } => (bad, "missing", why.clone()),
            };
            out!("  {:<14} {style}{word:<9}{style:#} {says}", row.protection.as_str());
        }
        for lacks in &report.landlock_lacks {
            out!("  this Landlock does not judge {lacks}");
        }
        for note in &report.notes {
            out!("  note: {note}");
        }
    } else {
        out!("Linux {} ({})", findings.kernel.release, findings.kernel.machine);
    }
    out!("\npolicies:");
    for policy in &findings.policies {
        match &policy.why_not {
            None => out!("  {:<10} {good}can be honoured{good:#}", policy.policy),
            Some(why) => out!("  {:<10} {bad}cannot{bad:#}: {why}", policy.policy),
        }
    }
}
