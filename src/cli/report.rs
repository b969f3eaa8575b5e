//! `bailiwick report FILE`: a transcript as one HTML page.

use super::{Common, print_bytes, say_fault};
use crate::agent::finish::replace;
use crate::agent::report::page;
use crate::agent::transcript::load;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use std::path::{Path, PathBuf};

#[derive(Debug, clap::Args)]
pub(super) struct Report {
    /// A transcript, or the folder of a run
    #[arg(value_name = "FILE")]
    transcript: PathBuf,
    /// Where the page is written; "-" is standard output [default: report.html beside the transcript]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Report {
    /// 0: the page is written.
    pub(super) fn run(self, _common: &Common) -> ExitCode {
        match self.try_run() {
            Ok(code) => code,
            Err(fault) => {
                say_fault(&fault);
                match fault.code() {
                    FaultCode::InvalidArguments | FaultCode::NotFound => ExitCode::Usage,
                    _ => ExitCode::Failed,
                }
            }
        }
    }

    fn try_run(self) -> Result<ExitCode, Fault> {
        let file = if self.transcript.is_dir() { self.transcript.join("transcript.jsonl") } else { self.transcript };
        let events = load(&file)?;
        if events.is_empty() {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{} holds no event of a run", file.display())));
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        let patch = std::fs::read(folder.join("changes.patch")).ok();
        let page = page(&events, patch.as_deref());
        let output = self.output.unwrap_or_else(|| folder.join("report.html"));
        if output.as_os_str() == "-" {
            return Ok(print_bytes(page.as_bytes()));
        }
        // It says what the transcript says, and is for its owner's eyes too.
        replace(&output, page.as_bytes()).map_err(|error| Fault::new(FaultCode::IoError, format!("{}: {error}", output.display())))?;
        out!("{}", output.display());
        Ok(ExitCode::Done)
    }
}
