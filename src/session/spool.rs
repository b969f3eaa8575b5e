//! The spool: what commands write, whole, on disk outside of the workspace, for reading on.
//!
//! What the model sees of an output never depends on it: where there is no room for it, that is said.

use super::{Session, limit};
use crate::clip::counted;
use std::fs::File;
use std::io::Write;

/// Output below this many bytes is not worth a spool file.
const SPOOL_FROM: usize = 16 * 1024;

impl Session {
    /// A new file of the spool; `None` where the disk of the session's folder is full.
    pub(super) fn open_spool(&self) -> Option<(String, File)> {
        let number = self.spool_files.get() + 1;
        self.spool_files.set(number);
        let name = format!("{number}.log");
        let file = File::create_new(self.charter.session_dir.join("spool").join(&name)).ok()?;
        Some((format!("spool:{name}"), file))
    }

    /// Keeps a text in the spool, whole. Returns its handle (`spool:NAME`); `None` when there is no room for it.
    pub fn keep_output(&self, text: &[u8]) -> Option<String> {
        let (handle, mut file) = self.open_spool()?;
        file.write_all(text).ok().map(|()| handle)
    }
}

/// The whole output of one command, on disk outside of the workspace, capped.
pub(super) struct Spool<'a> {
    session: &'a Session,
    pending: Vec<u8>,
    file: Option<(File, String)>,
    written: u64,
    /// Bytes that are not kept.
    cut: u64,
    failed: bool,
}

impl<'a> Spool<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self { session, pending: Vec::new(), file: None, written: 0, cut: 0, failed: false }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        let room = match self.session.charter.limits.output {
            0 => u64::MAX,
            most => most.saturating_sub(self.written),
        };
        let kept = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.cut += (bytes.len() - kept) as u64;
        let bytes = &bytes[..kept];
        self.written += bytes.len() as u64;
        if self.file.is_none() {
            self.pending.extend_from_slice(bytes);
            if self.pending.len() > SPOOL_FROM && !self.failed {
                self.open();
            }
        } else {
            self.write(bytes);
        }
    }

    fn open(&mut self) {
        match self.session.open_spool() {
            Some((name, file)) => {
                self.file = Some((file, name));
                let pending = std::mem::take(&mut self.pending);
                self.write(&pending);
            }
            None => {
                self.failed = true;
                self.pending = Vec::new();
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some((file, _)) = &mut self.file
            && !self.failed
            && file.write_all(bytes).is_err()
        {
            // The session's disk is full: what the model sees does not depend on the spool.
            self.failed = true;
        }
    }

    /// What there is to say about what was not kept.
    pub(super) fn says(&self) -> Option<String> {
        if self.failed {
            Some("the whole output could not be kept: the disk of the session's folder is full".into())
        } else if self.cut > 0 {
            let kept = limit::bytes(self.session.charter.limits.output);
            Some(format!("of the whole output only the first {kept} are kept; {} more were written", counted(self.cut, "byte")))
        } else {
            None
        }
    }

    pub(super) fn finish(self) -> Option<String> {
        self.file.map(|(_, name)| name)
    }
}
