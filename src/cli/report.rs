//! `bailiwick report FILE`: a transcript as one HTML page.

use super::engine::bytes_of_regular;
use super::folder::events_of;
use super::{Common, print_bytes, say_fault};
use crate::agent::finish::replace;
use crate::agent::report::page;
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt;
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
                ExitCode::of(&fault)
            }
        }
    }

    fn try_run(self) -> Result<ExitCode, Fault> {
        let (file, events) = events_of(&self.transcript)?;
        let folder = file.parent().unwrap_or(Path::new("."));
        let patch = bytes_of_regular(&folder.join("changes.patch")).ok();
        let page = page(&events, patch.as_deref());
        let output = self.output.unwrap_or_else(|| folder.join("report.html"));
        if output.as_os_str() == "-" {
            return Ok(print_bytes(page.as_bytes()));
        }
        let begins = page.find("<title>").unwrap_or(page.len());
        if !may_be_replaced(&output, &page.as_bytes()[..begins]) {
            return Err(Fault::new(FaultCode::InvalidArguments, format!("{}: this is there, and is no report", output.display()))
                .hint("--output FILE names another place; --output - prints it"));
        }
        // It says what the transcript says, and is for its owner's eyes too.
        replace(&output, page.as_bytes()).map_err(|error| {
            let why = if output.is_dir() { "this is a folder".into() } else { error.kind().to_string() };
            Fault::new(FaultCode::IoError, format!("{}: the page cannot be written: {why}", output.display()))
                .hint("--output FILE names another place, in a folder that exists; --output - prints it")
        })?;
        out!("{}", output.display());
        Ok(ExitCode::Done)
    }
}

/// Whether nothing would be lost: nothing is there, or what begins as a report does.
fn may_be_replaced(output: &Path, begins: &[u8]) -> bool {
    let mut there = Vec::new();
    match std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(output) {
        Err(error) => error.kind() == std::io::ErrorKind::NotFound || output.is_dir(),
        // A pipe's place is no page's.
        Ok(file) if !file.metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir()) => false,
        Ok(file) => file.take(begins.len() as u64).read_to_end(&mut there).is_ok() && (there.is_empty() || there == begins),
    }
}
