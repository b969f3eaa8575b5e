//! A path inside the workspace, as a call names it.

use super::escape;
use crate::envelope::{Fault, FaultCode};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path relative to the base directory. It is not simplified: `..` and links are judged by the kernel when the
/// path is opened, so what is held here is what was asked for, without its leading slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RelPath(PathBuf);

impl RelPath {
    /// The base directory itself.
    pub fn base() -> Self {
        Self(PathBuf::from("."))
    }

    /// Reads a path as a call names it. Relative paths are relative to the base; an absolute path beneath `base` is
    /// rebased; `~` means nothing. Escapes as [`escape`] writes them are taken back.
    ///
    /// # Errors
    /// `outside_workspace` for an absolute path that is not beneath `base`; `invalid_arguments` for an empty path or a NUL.
    pub fn parse(text: &str, base: &Path) -> Result<Self, Fault> {
        let path = PathBuf::from(escape::name(text));
        if path.as_os_str().is_empty() {
            return Err(Fault::new(FaultCode::InvalidArguments, "the path is empty").hint("\".\" is the workspace itself"));
        }
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(Fault::new(FaultCode::InvalidArguments, "the path holds a NUL byte"));
        }
        if !path.is_absolute() {
            return Ok(Self(path));
        }
        match path.strip_prefix(base) {
            // `strip_prefix` compares whole components, so a sibling with the same prefix stays outside.
            Ok(rest) if rest.as_os_str().is_empty() => Ok(Self::base()),
            Ok(rest) => Ok(Self(rest.to_path_buf())),
            Err(_) => {
                Err(Fault::new(FaultCode::OutsideWorkspace, format!("{} is not inside the workspace", escape::show(path.as_os_str())))
                    .hint("paths are relative to the workspace; ls(\".\") shows it"))
            }
        }
    }

    /// A path that is known to be relative (a walker's, say).
    pub fn from_relative(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        debug_assert!(!path.is_absolute());
        if path.as_os_str().is_empty() { Self::base() } else { Self(path) }
    }

    /// The path, relative to the base.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Whether this is names alone, and so the file's own path where none of them is a link.
    pub fn is_plain(&self) -> bool {
        let mut names = self.0.as_os_str().as_bytes().split(|byte| *byte == b'/');
        names.all(|name| !matches!(name, b"" | b"." | b".."))
    }

    /// Whether this is the base itself, spelled `.`.
    pub fn is_base(&self) -> bool {
        self.0.components().all(|part| matches!(part, std::path::Component::CurDir))
    }

    /// The folder part and the last name. `None` when the path ends in no name (`.`, `..`).
    pub fn split(&self) -> Option<(Self, &OsStr)> {
        let name = self.0.file_name()?;
        if self.0.as_os_str().as_bytes().ends_with(b"/") || self.0.as_os_str().as_bytes().ends_with(b"/.") {
            return None;
        }
        Some((Self::from_relative(self.0.parent().unwrap_or(Path::new(""))), name))
    }

    /// This path with a name behind it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> Self {
        if self.0 == Path::new(".") { Self::from_relative(name.as_ref()) } else { Self(self.0.join(name)) }
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&escape::show(self.0.as_os_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_are_plain() {
        for (path, plain) in [
            ("a", true),
            ("a/b.c", true),
            ("..a/.b", true),
            ("a/", false),
            ("a//b", false),
            ("./a", false),
            ("a/../b", false),
            (".", false),
        ] {
            assert_eq!(RelPath(path.into()).is_plain(), plain, "{path}");
        }
    }

    #[test]
    fn absolute_paths_are_rebased_or_refused() {
        let base = Path::new("/tmp/ws");
        assert_eq!(RelPath::parse("/tmp/ws/a/b", base).unwrap().as_path(), Path::new("a/b"));
        assert!(RelPath::parse("/tmp/ws", base).unwrap().is_base());
        for outside in ["/tmp/ws-secret/x", "/etc/passwd", "/tmp/w", "/"] {
            assert_eq!(RelPath::parse(outside, base).unwrap_err().code(), FaultCode::OutsideWorkspace, "{outside}");
        }
    }

    #[test]
    fn nothing_is_simplified_or_expanded() {
        let base = Path::new("/tmp/ws");
        for same in ["../x", "a/../b", "~/x", "./a", "-x", "$HOME"] {
            assert_eq!(RelPath::parse(same, base).unwrap().as_path().as_os_str(), same);
        }
        for broken in ["", "a\\x00b"] {
            assert_eq!(RelPath::parse(broken, base).unwrap_err().code(), FaultCode::InvalidArguments);
        }
    }
}
