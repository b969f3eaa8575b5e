//! The entries of a folder, as the kernel gives them, for walks over many folders: one buffer serves them all, and a folder costs two calls.
//!
//! Says of an entry what the kernel says of it without looking at it: its name and, on most file systems, its type.

use super::dir::Kind;
use crate::sys;
use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use std::os::fd::BorrowedFd;

/// What the kernel fills at a time.
const BUFFER: usize = 32 * 1024;

/// Where the length, the type and the name of an entry stand in it.
const LENGTH: usize = 16;
const TYPE: usize = 18;
const NAME: usize = 19;

/// Reads folders.
#[derive(Debug)]
pub(super) struct Entries {
    buffer: Vec<u8>,
}

impl Entries {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; BUFFER] }
    }

    /// Shows each entry of an open folder but `.` and `..`; `None` where the file system does not say what it is.
    ///
    /// # Errors
    /// The kernel's own. What was shown before is right.
    pub(super) fn each(&mut self, folder: BorrowedFd<'_>, mut see: impl FnMut(&[u8], Option<Kind>)) -> Result<(), Errno> {
        // It may have been read before.
        lseek(folder, 0, Whence::SeekSet)?;
        loop {
            let filled = sys::folder_entries(folder, &mut self.buffer)?;
            if filled == 0 {
                return Ok(());
            }
            let mut rest = &self.buffer[..filled];
            while let Some((entry, more)) = first(rest) {
                if let Some((name, kind)) = parts(entry).filter(|(name, _)| !matches!(*name, b"." | b"..")) {
                    see(name, kind);
                }
                rest = more;
            }
        }
    }
}

/// The first entry of a filled buffer, and the rest.
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16::from_ne_bytes(bytes.get(LENGTH..LENGTH + 2)?.try_into().ok()?);
    if length == 0 { None } else { bytes.split_at_checked(length.into()) }
}

fn parts(entry: &[u8]) -> Option<(&[u8], Option<Kind>)> {
    let name = entry.get(NAME..)?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let kind = match *entry.get(TYPE)? {
        libc::DT_REG => Some(Kind::File),
        libc::DT_DIR => Some(Kind::Folder),
        libc::DT_LNK => Some(Kind::Link),
        libc::DT_FIFO => Some(Kind::Fifo),
        libc::DT_SOCK => Some(Kind::Socket),
        libc::DT_CHR | libc::DT_BLK => Some(Kind::Device),
        _ => None,
    };
    Some((&name[..end], kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::ffi::OsStr;
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn every_entry_is_shown_once_with_its_type() {
        let dir = tempfile::tempdir().unwrap();
        let mut expected = BTreeMap::new();
        let longest = [b'x'; 255];
        for name in [&b"plain"[..], b"sp ace", b"new\nline", b"\xff\xfe", b".hidden", &longest] {
            fs::write(dir.path().join(OsStr::from_bytes(name)), "").unwrap();
            expected.insert(name.to_vec(), Some(Kind::File));
        }
        fs::create_dir(dir.path().join("folder")).unwrap();
        expected.insert(b"folder".to_vec(), Some(Kind::Folder));
        std::os::unix::fs::symlink("plain", dir.path().join("link")).unwrap();
        expected.insert(b"link".to_vec(), Some(Kind::Link));
        nix::unistd::mkfifo(&dir.path().join("fifo"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        expected.insert(b"fifo".to_vec(), Some(Kind::Fifo));
        // More than one buffer.
        for number in 0..3000 {
            let name = format!("{number:020}");
            fs::write(dir.path().join(&name), "").unwrap();
            expected.insert(name.into_bytes(), Some(Kind::File));
        }
        let folder = File::open(dir.path()).unwrap();
        let mut entries = Entries::new();
        for _ in 0..2 {
            let mut found = BTreeMap::new();
            entries.each(folder.as_fd(), |name, kind| assert!(found.insert(name.to_vec(), kind).is_none())).unwrap();
            assert_eq!(found, expected);
        }
        let file = File::open(dir.path().join("plain")).unwrap();
        assert_eq!(entries.each(file.as_fd(), |_, _| ()), Err(Errno::ENOTDIR));
    }

    #[test]
    fn no_bytes_break_the_reader() {
        for length in [0_usize, 1, 17, 18, 19, 24, 600] {
            for byte in [0_u8, 1, 19, 255] {
                let bytes = vec![byte; length];
                let mut rest = bytes.as_slice();
                while let Some((entry, more)) = first(rest) {
                    let _ = parts(entry);
                    assert!(more.len() < rest.len());
                    rest = more;
                }
            }
        }
    }
}
