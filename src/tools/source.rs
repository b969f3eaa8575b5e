//! Where the content of a call comes from: a file of the workspace, or `spool:NAME`, the kept output of a command.

use crate::envelope::{Fault, FaultCode};
use crate::workspace::base_dir::{Opened, open_beneath};
use crate::workspace::{BaseDir, RelPath};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// How many of the first bytes decide whether content is text.
pub(crate) const HEAD: usize = 8192;

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) meta: Metadata,
    /// The path beneath the base, links resolved; none for the spool.
    pub(crate) canonical: Option<RelPath>,
    /// As it is named in results.
    pub(crate) shown: String,
}

/// The name of a spool file, when a path names one.
pub(crate) fn spool_name(path: &str) -> Option<&str> {
    path.strip_prefix("spool:")
}

/// Opens what a path names.
///
/// # Errors
/// As [`BaseDir::open_file`]; `not_found` when there is no such spool file.
pub(crate) fn open(base: &BaseDir, spool: Option<&OwnedFd>, path: &str) -> Result<Source, Fault> {
    match spool_name(path) {
        Some(name) => open_spool(spool, name, path),
        None => {
            let rel = base.rel(path)?;
            let Opened { file, meta, canonical } = base.open_file(&rel)?;
            Ok(Source { file, meta, canonical: Some(canonical), shown: super::walk::shown(&rel) })
        }
    }
}

fn open_spool(spool: Option<&OwnedFd>, name: &str, shown: &str) -> Result<Source, Fault> {
    let missing = || {
        Fault::new(FaultCode::NotFound, format!("{shown} is no kept output of this session")).hint("./spool:… is a file of the workspace")
    };
    // The spool is flat: a name that is more than a name is none.
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        return Err(missing());
    }
    let spool = spool.ok_or_else(missing)?;
    let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW;
    let fd = open_beneath(spool.as_fd(), Path::new(name), flags, Mode::empty()).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ELOOP => missing(),
        errno => Fault::new(FaultCode::IoError, format!("{shown}: {}", errno.desc())),
    })?;
    let file = File::from(fd);
    let meta = file.metadata().map_err(|error| Fault::new(FaultCode::IoError, format!("{shown}: {error}")))?;
    if !meta.is_file() {
        return Err(missing());
    }
    Ok(Source { file, meta, canonical: None, shown: shown.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testbed::Bed;
    use std::io::Read;

    #[test]
    fn the_spool_is_flat_and_apart() {
        let bed = Bed::new(&[("s/1.log", "out"), ("s/d/x", ""), ("spool:1.log", "mine")]);
        bed.link("1.log", "s/link");
        let spool = OwnedFd::from(File::open(bed.root.join("s")).unwrap());
        let mut text = String::new();
        open(&bed.base, Some(&spool), "spool:1.log").unwrap().file.read_to_string(&mut text).unwrap();
        open(&bed.base, None, "./spool:1.log").unwrap().file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "outmine");
        for name in ["spool:", "spool:2.log", "spool:../a", "spool:d/x", "spool:d", "spool:link", "spool:."] {
            assert_eq!(open(&bed.base, Some(&spool), name).unwrap_err().code(), FaultCode::NotFound, "{name}");
        }
        assert_eq!(open(&bed.base, None, "spool:1.log").unwrap_err().code(), FaultCode::NotFound);
    }
}
