//! What a person types. The only module that prints and reads environment variables; one file a verb.

/// Says a line on standard error. A reader that went away is no reason to stop.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(anstream::stderr(), $($words)*);
    }};
}

/// Says a line on standard output; as [`say`].
macro_rules! out {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        if let Err(error) = writeln!(anstream::stdout(), $($words)*) {
            $crate::cli::unwritten(&error);
        }
    }};
}

mod apply;
mod attach;
mod client_setup;
mod copy;
mod demo;
mod doctor;
mod engine;
mod exec;
mod explain;
mod extras;
mod folder;
mod journal;
mod mcp;
mod model;
mod models;
mod numbers;
mod policy;
mod progress;
mod replay;
mod report;
mod run;
mod salvage;
pub mod setup;
mod show;
mod summary;
mod tool;
mod tools;
mod trust;

use crate::agent::mask::Mask;
use crate::envelope::Fault;
use crate::exit_code::ExitCode;
use crate::jail::warden;
use crate::tools::AnyTool;
use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The tools that this executable has.
pub type Registry = &'static [&'static dyn AnyTool];

/// A coding agent that cannot leave its bailiwick.
#[derive(Debug, Parser)]
#[command(name = "bailiwick", version, about, long_about = None, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

/// The policy of who names none.
const DEFAULT_POLICY: &str = "build";

/// Flags that every verb takes.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// The folder to work in [default: the git top level, else the current folder]
    #[arg(long, short = 'w', global = true, value_name = "DIR", help_heading = "Common options")]
    workspace: Option<PathBuf>,
    /// What is permitted: observe, edit, build, …, or a policy file
    #[arg(long, short = 'p', global = true, value_name = "NAME or FILE", default_value = DEFAULT_POLICY, help_heading = "Common options")]
    policy: String,
    /// Print JSON for machines
    #[arg(long, global = true, help_heading = "Common options")]
    json: bool,
    /// Start although this required protection is missing (repeat for several); recorded, and said loudly
    #[arg(long, global = true, value_name = "NAME", help_heading = "Common options")]
    allow_degraded: Vec<String>,
    /// Make no namespaces: Landlock and seccomp alone, as on a machine where none starts
    #[arg(long, global = true, hide_short_help = true, help_heading = "Common options")]
    without_namespaces: bool,
}

impl Common {
    fn asked(&self) -> setup::Asked {
        setup::Asked {
            workspace: self.workspace.clone(),
            policy: self.policy.clone(),
            allow_degraded: self.allow_degraded.clone(),
            without_namespaces: self.without_namespaces,
            fork: false,
        }
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The main job on an embedded repository with an embedded scripted model; needs no key and no network
    Demo(demo::Demo),
    /// Let a model work on this repository
    Run(Box<run::Run>),
    /// Run a program, confined by the policy; its stdio and exit code pass through
    Exec(exec::Exec),
    /// Make one tool call; prints one envelope, exits 0 exactly when it is a success
    Tool(tool::Tool),
    /// Take over the patch of a run
    Apply(apply::Apply),
    /// Make the calls of a transcript again, without a model, in a copy of the workspace, and compare the answers
    Replay(replay::Replay),
    /// Turn a transcript into one HTML page
    Report(report::Report),
    /// Show the tools as a model would be given them
    Tools(tools::Tools),
    /// Serve the tools to an MCP client
    Mcp(mcp::Mcp),
    /// Show what a policy means here
    Policy(policy::Policy),
    /// Show what is known of models, and which line says so
    Models(models::Models),
    /// Show what this machine can enforce, and what is missing
    Doctor(doctor::Doctor),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`
    Man,
}

/// Decides the role, runs it, and returns the exit code.
pub fn main(registry: Registry) -> i32 {
    let args: Vec<OsString> = std::env::args_os().collect();
    if warden::is_asked(&args) {
        return warden::run(registry);
    }
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            told(error.print());
            return match UNWRITTEN.get() {
                Some(why) if !error.use_stderr() => {
                    say!("bailiwick: standard output: {why}");
                    i32::from(ExitCode::Failed.code())
                }
                _ if error.use_stderr() => usage_code(&args),
                _ => 0,
            };
        }
    };
    let common = &cli.common;
    let code = match cli.verb {
        Verb::Exec(verb) => return verb.run(common),
        Verb::Demo(verb) => verb.run(common, registry),
        Verb::Run(verb) => verb.run(common, registry),
        Verb::Tool(verb) => verb.run(common, registry),
        Verb::Apply(verb) => verb.run(common, registry),
        Verb::Replay(verb) => verb.run(common, registry),
        Verb::Report(verb) => verb.run(common),
        Verb::Tools(verb) => verb.run(common, registry),
        Verb::Mcp(verb) => verb.run(common, registry),
        Verb::Policy(verb) => verb.run(common, registry),
        Verb::Models(verb) => verb.run(common.json),
        Verb::Doctor(verb) => verb.run(common),
        Verb::Completions { shell } => {
            // Into memory first: the generator takes a reader that went away for a bug.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "bailiwick", &mut script);
            print_bytes(&script)
        }
        Verb::Man => {
            let mut page = Vec::new();
            match man(&mut page) {
                Ok(()) => print_bytes(&page),
                Err(_) => ExitCode::Failed,
            }
        }
    };
    match UNWRITTEN.get() {
        Some(why) if code == ExitCode::Done => {
            say!("bailiwick: standard output: {why}");
            i32::from(ExitCode::Failed.code())
        }
        _ => i32::from(code.code()),
    }
}

/// Why something could not be printed.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// Notes that something could not be printed. That the reader went away is no fault.
pub(crate) fn unwritten(error: &std::io::Error) {
    if error.kind() != std::io::ErrorKind::BrokenPipe {
        let _ = UNWRITTEN.set(error.to_string());
    }
}

/// The long flags that all verbs take.
fn flags() -> Vec<String> {
    let command = Cli::command();
    command.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect()
}

/// Notes it where printing failed.
pub(crate) fn told(printed: std::io::Result<()>) {
    if let Err(error) = printed {
        unwritten(&error);
    }
}

/// Prints what was made whole before. That the reader went away is no fault.
pub(crate) fn print_bytes(bytes: &[u8]) -> ExitCode {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        unwritten(&error);
    }
    ExitCode::Done
}

/// The manual page: the program, then each verb.
fn man(page: &mut Vec<u8>) -> std::io::Result<()> {
    let mut command = Cli::command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(page)?;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        use std::io::Write;
        let man = clap_mangen::Man::new(verb.clone());
        writeln!(page, ".SH \"BAILIWICK {}\"", verb.get_name().to_uppercase())?;
        man.render_synopsis_section(page)?;
        man.render_description_section(page)?;
        man.render_options_section(page)?;
    }
    Ok(())
}

/// A usage error is 2, except for `exec`, where 2 may be the program's own.
fn usage_code(args: &[OsString]) -> i32 {
    if args.iter().skip(1).find(|arg| !arg.to_string_lossy().starts_with('-')).is_some_and(|verb| verb == "exec") { 125 } else { 2 }
}

/// Says on standard error why nothing was done.
pub(crate) fn say_fault(fault: &Fault) {
    print_fault(fault, &Mask::default());
}

/// The same, without what is masked.
fn print_fault(fault: &Fault, mask: &Mask) {
    say!("bailiwick: {}", show::seen(&mask.text(&fault.to_string())));
    if let Some(hint) = fault.hint_text() {
        say!("  hint: {}", show::seen(&mask.text(hint)));
    }
}
