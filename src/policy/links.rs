//! Resolves links, and remembers which folders are none, for as long as one policy is resolved: most paths share their first folders.
//!
//! Never answers other than the kernel would: what is not plain (a link, `..`) is the kernel's to resolve.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// What is known of links. Two are equal: a memory is no part of what a machine is.
#[derive(Clone, Debug, Default)]
pub struct Links(RefCell<HashMap<PathBuf, Known>>);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// It is there, and is no link.
    Plain,
    Absent,
    Other,
}

impl PartialEq for Links {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Links {
    /// The path with all links resolved, as [`Path::canonicalize`] gives it.
    ///
    /// # Errors
    /// The kernel's own.
    pub fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        // As it is written: `a//b` and `a/.` have components that are plain.
        let plain = path.as_os_str().as_bytes();
        let doubtful = !plain.starts_with(b"/") || plain.windows(2).any(|two| two == b"//") || plain.len() > 1 && plain.ends_with(b"/");
        if doubtful || path.components().any(|part| !matches!(part, Component::RootDir | Component::Normal(_))) || plain.ends_with(b"/.") {
            return path.canonicalize();
        }
        let mut above = PathBuf::from("/");
        for part in path.components().skip(1) {
            above.push(part);
            match self.known(&above) {
                Known::Plain => {}
                Known::Absent => return Err(io::ErrorKind::NotFound.into()),
                Known::Other => return path.canonicalize(),
            }
        }
        Ok(above)
    }

    fn known(&self, path: &Path) -> Known {
        if let Some(known) = self.0.borrow().get(path) {
            return *known;
        }
        let known = match std::fs::read_link(path).map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EINVAL)) => Known::Plain,
            Err(Some(libc::ENOENT)) => Known::Absent,
            _ => Known::Other,
        };
        self.0.borrow_mut().insert(path.to_path_buf(), known);
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn it_answers_as_the_kernel_does() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        fs::create_dir_all(top.join("a/b/c")).unwrap();
        fs::write(top.join("a/file"), "").unwrap();
        symlink("a/b", top.join("link")).unwrap();
        symlink("nowhere", top.join("a/dangling")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let links = Links::default();
        for _ in 0..2 {
            for path in [
                "",
                "a",
                "a/b",
                "a/b/c",
                "a/file",
                "a/file/x",
                "link",
                "link/c",
                "link/../file",
                "a/./b",
                "a//b",
                "a/b/",
                "a/b/.",
                "loop",
                "loop/x",
                "a/dangling",
                "absent",
                "absent/x",
                "a/absent",
                "..",
            ] {
                let path = top.join(path);
                let (ours, theirs) = (links.canonical(&path), path.canonicalize());
                assert_eq!(ours.as_ref().ok(), theirs.as_ref().ok(), "{}", path.display());
                assert_eq!(ours.err().map(|error| error.kind()), theirs.err().map(|error| error.kind()), "{}", path.display());
            }
        }
        assert_eq!(links.canonical(Path::new("/")).unwrap(), Path::new("/"));
    }
}
