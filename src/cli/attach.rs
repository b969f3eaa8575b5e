//! Files that a person attaches to the task. They are read by the host, with the person's own rights, before the model is asked.

use crate::agent::attach::Attachment;
use crate::envelope::{Fault, FaultCode};
use crate::tools::attachment::MOST_BYTES;
use std::io::Read;
use std::path::PathBuf;

/// The attachments, with their keys: `a1`, `a2` …
pub(super) fn load(files: &[PathBuf]) -> Result<Vec<Attachment>, Fault> {
    let load = |(index, file): (usize, &PathBuf)| {
        let wrong = |says: String| Fault::new(FaultCode::InvalidArguments, format!("--attach {}: {says}", file.display()));
        // A named pipe or a terminal would be waited for.
        let meta = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
        if !meta.is_file() {
            return Err(wrong("this is no regular file".into()));
        }
        let mut bytes = Vec::new();
        std::fs::File::open(file)
            .and_then(|opened| opened.take(MOST_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| wrong(error.to_string()))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(wrong(format!("it has more than {} MiB", MOST_BYTES >> 20)));
        }
        if bytes.iter().take(8192).any(|byte| *byte == 0) && !bytes.starts_with(b"\xff\xfe") && !bytes.starts_with(b"\xfe\xff") {
            return Err(wrong("this is no text".into()));
        }
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        Ok(Attachment { key: format!("a{}", index + 1), name, bytes })
    };
    files.iter().enumerate().map(load).collect()
}
