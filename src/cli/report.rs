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
        let refused = |why: &str| {
            Fault::new(FaultCode::InvalidArguments, format!("{}: {why}", output.display()))
                .hint("--output FILE names another place; --output - prints it")
        };
        let output = place_of(&output).map_err(|why| refused(&why))?;
        may_be_replaced(&output, &page.as_bytes()[..begins]).map_err(|why| refused(&why))?;
        // It says what the transcript says, and is for its owner's eyes too.
        replace(&output, page.as_bytes()).map_err(|error| {
            let why = if output.is_dir() { "this is a folder".into() } else { error.to_string() };
            Fault::new(FaultCode::IoError, format!("{}: the page cannot be written: {why}", output.display()))
                .hint("--output FILE names another place, in a folder that exists; --output - prints it")
        })?;
        out!("{}", output.display());
        Ok(ExitCode::Done)
    }
}

/// The place itself: what a link names keeps its place, and the link stays one.
fn place_of(output: &Path) -> Result<PathBuf, String> {
    match output.symlink_metadata() {
        Ok(meta) if meta.is_symlink() => output.canonicalize().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => "this is a link to what is no file".into(),
            _ => error.to_string(),
        }),
        _ => Ok(output.to_path_buf()),
    }
}

/// Nothing would be lost: nothing is there, or what begins as a report does.
fn may_be_replaced(output: &Path, begins: &[u8]) -> Result<(), String> {
    let mut there = Vec::new();
    match std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(output) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound || output.is_dir() => Ok(()),
        Err(error) => Err(error.to_string()),
        // A pipe's place is no page's.
        Ok(file) if !file.metadata().is_ok_and(|meta| meta.is_file() || meta.is_dir()) => Err("this is no regular file".into()),
        Ok(file) => match file.take(begins.len() as u64).read_to_end(&mut there) {
            Ok(_) if there.is_empty() || there == begins => Ok(()),
            Err(error) if !output.is_dir() => Err(error.to_string()),
            _ if output.is_dir() => Ok(()),
            _ => Err("this is there, and is no report".into()),
        },
    }
}
