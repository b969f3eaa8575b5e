//! A fresh workspace for tests of tools. The tests of their jails are elsewhere: here only pure functions over a [`BaseDir`] run.

use crate::workspace::BaseDir;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) struct Bed {
    _dir: tempfile::TempDir,
    pub(crate) root: PathBuf,
    pub(crate) base: BaseDir,
}

impl Bed {
    /// A workspace `ws` within a folder of its own, with these files (a name that ends in a slash is a folder).
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        Self::at(tempfile::tempdir().unwrap(), files)
    }

    /// An empty one in memory, where there is such a place for all.
    pub(crate) fn in_memory() -> Self {
        Self::at(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap(), &[])
    }

    fn at(dir: tempfile::TempDir, files: &[(&str, &str)]) -> Self {
        let root = dir.path().canonicalize().unwrap().join("ws");
        std::fs::create_dir(&root).unwrap();
        let base = BaseDir::open(&root).unwrap();
        let bed = Self { _dir: dir, root, base };
        for (name, content) in files {
            bed.file(name, content);
        }
        bed
    }

    pub(crate) fn file(&self, name: impl AsRef<[u8]>, content: impl AsRef<[u8]>) -> &Self {
        let name = name.as_ref();
        let path = self.root.join(OsStr::from_bytes(name));
        if name.ends_with(b"/") {
            std::fs::create_dir_all(path).unwrap();
        } else {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        self
    }

    pub(crate) fn link(&self, target: &str, name: &str) -> &Self {
        std::os::unix::fs::symlink(target, self.root.join(name)).unwrap();
        self
    }

    pub(crate) fn fifo(&self, name: &str) -> &Self {
        nix::unistd::mkfifo(&self.root.join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        self
    }
}

/// Time enough.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// Arguments as a call gives them, read by the tool's own reader.
pub(crate) fn args<T: super::Spec>(value: serde_json::Value) -> T::Args {
    let (value, _) = super::args::read::<T>(value).unwrap();
    super::args::parse::<T>(value).unwrap()
}
