//! Files that a person attaches to the task. They are read by the host, with the person's own rights, before the model is asked.

use super::engine::Engine;
use crate::agent::attach::Attachment;
use crate::agent::outcome::Outcome;
use crate::envelope::{Fault, FaultCode};
use crate::tools::attachment::MOST_BYTES;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

/// The attachments, with their keys: `a1`, `a2` …
pub(super) fn load(files: &[PathBuf], engine: &mut Engine) -> Result<Vec<Attachment>, Outcome> {
    let load = |(index, file): (usize, &PathBuf)| {
        let wrong = |says: String| {
            Fault::new(FaultCode::InvalidArguments, format!("--attach {}: {says}", file.display())).hint(format!(
                "a text file of at most {} MiB can be attached; files of the workspace the model reads by itself",
                MOST_BYTES >> 20
            ))
        };
        // A device has no end; what a pipe brings is waited for.
        let meta = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_file() && !meta.file_type().is_fifo() {
            return Err(wrong("this is no regular file and no pipe".into()).into());
        }
        let bytes = engine.read(file, MOST_BYTES)?.map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(wrong(format!("it has more than {} MiB", MOST_BYTES >> 20)).into());
        }
        if bytes.iter().take(8192).any(|byte| *byte == 0) && !bytes.starts_with(b"\xff\xfe") && !bytes.starts_with(b"\xfe\xff") {
            return Err(wrong("this is no text".into()).into());
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        Ok(Attachment { key: format!("a{}", index + 1), name, bytes })
    };
    files.iter().enumerate().map(load).collect()
}
