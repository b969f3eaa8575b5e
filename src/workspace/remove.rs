//! A file's name taken away. Never a folder, and never what a link leads to.

use super::base_dir::{BaseDir, fault, io_fault};
use super::locate::{LastLink, Parents};
use super::replace::{change_fault, look};
use super::{Hash, RelPath};
use crate::envelope::{Fault, FaultCode};
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};

impl BaseDir {
    /// Removes a file; of a link, the link. Returns the path beneath the base that is gone.
    ///
    /// # Errors
    /// `stale_file` when its content does not have this hash; `is_directory`; and as [`fault`] says.
    pub fn remove(&self, path: &RelPath, expected: Hash) -> Result<RelPath, Fault> {
        let place = self.locate(path, LastLink::Keep, Parents::Expect)?;
        let Some(meta) = look(&place, path)? else { return Err(fault(Errno::ENOENT, path)) };
        if meta.is_dir() {
            return Err(fault(Errno::EISDIR, path));
        }
        self.refuse_protected(&place.canonical)?;
        let opened = self.open_file(path)?;
        let found = Hash::of_reader(&opened.file).map_err(|error| io_fault(&error, path))?;
        if found != expected {
            return Err(Fault::new(FaultCode::StaleFile, format!("{path} has changed since it was read"))
                .with("hash", found.to_string())
                .with("expected_hash", expected.to_string()));
        }
        unlinkat(&place.parent, place.name.as_os_str(), UnlinkatFlags::NoRemoveDir).map_err(|errno| change_fault(errno, path))?;
        place.flush().map_err(|errno| change_fault(errno, path))?;
        Ok(place.canonical)
    }
}
