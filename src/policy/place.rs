//! A path as a policy writes it, and what it means here. Never guesses: a path that is relative to nothing, or that names a
//! variable we do not document, is an error.

use std::path::{Component, Path, PathBuf};

/// What a path of a policy begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// `/…`
    Root,
    /// `$HOME/…`: the home folder of the person, not the private one of commands.
    Home,
    /// `$WORKSPACE/…`
    Workspace,
    /// `$SESSION/…`: the session's own folder.
    Session,
}

/// The variables that a path may begin with.
const VARIABLES: &[(&str, Anchor)] = &[("$HOME", Anchor::Home), ("$WORKSPACE", Anchor::Workspace), ("$SESSION", Anchor::Session)];

/// A path as written: an anchor and the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What it begins with.
    pub anchor: Anchor,
    /// The rest; empty for the anchor itself. For [`Anchor::Root`] without the leading slash.
    pub rest: PathBuf,
}

impl Place {
    /// Reads a path.
    ///
    /// # Errors
    /// A sentence that says what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an empty path: remove the line, or name a folder".into());
        }
        if text.contains('\0') {
            return Err(format!("{text:?} contains a NUL byte, which no path can"));
        }
        if text.starts_with('~') {
            return Err(format!("{text:?}: `~` is not expanded here: write $HOME{}", text.trim_start_matches('~')));
        }
        let (anchor, rest) = match text.strip_prefix('/') {
            Some(rest) => (Anchor::Root, rest),
            None => {
                let (head, rest) = text.split_once('/').unwrap_or((text, ""));
                match VARIABLES.iter().find(|(name, _)| *name == head) {
                    Some((_, anchor)) => (*anchor, rest),
                    None if head.starts_with('$') => {
                        return Err(format!(
                            "{text:?}: {head} is not expanded here: only $HOME, $WORKSPACE and $SESSION are, and only in front"
                        ));
                    }
                    None => return Err(format!("{text:?} is relative to nothing: begin it with /, $HOME/, $WORKSPACE/ or $SESSION/")),
                }
            }
        };
        if rest.contains('$') {
            return Err(format!("{text:?}: a variable may stand only in front"));
        }
        Ok(Self { anchor, rest: plain(rest, text)? })
    }

    /// The path as written, for a person.
    pub fn shown(&self) -> String {
        let head = VARIABLES.iter().find(|(_, anchor)| *anchor == self.anchor).map_or("", |(name, _)| name);
        match self.rest.as_os_str().is_empty() && self.anchor != Anchor::Root {
            true => head.to_owned(),
            false => format!("{head}/{}", self.rest.display()),
        }
    }
}

/// Reads a path that is relative to the workspace, with or without `$WORKSPACE/` in front (for `protect`).
///
/// # Errors
/// A sentence that says what to write instead.
pub fn parse_inside(text: &str) -> Result<PathBuf, String> {
    let rest = text.strip_prefix("$WORKSPACE/").unwrap_or(text);
    if rest.starts_with('/') || rest.starts_with('$') || rest.starts_with('~') {
        return Err(format!("{text:?}: what is protected lies in the workspace: write it relative to the workspace"));
    }
    if rest.contains(['*', '?', '[']) {
        return Err(format!("{text:?}: a protected path is a name, not a pattern: a folder protects all that is beneath it"));
    }
    let path = plain(rest, text)?;
    match path.as_os_str().is_empty() {
        true => Err(format!("{text:?} would protect the whole workspace: take `change` and `execute` out of `access` instead")),
        false => Ok(path),
    }
}

/// The components, none of which is `..`: only the kernel knows where that leads.
fn plain(rest: &str, text: &str) -> Result<PathBuf, String> {
    let mut path = PathBuf::new();
    for component in Path::new(rest).components() {
        match component {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            _ => return Err(format!("{text:?} contains `..`: write where it leads")),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_variables_and_nothing_else() {
        assert_eq!(Place::parse("$HOME/.config/x"), Ok(Place { anchor: Anchor::Home, rest: ".config/x".into() }));
        assert_eq!(Place::parse("$WORKSPACE"), Ok(Place { anchor: Anchor::Workspace, rest: PathBuf::new() }));
        assert_eq!(Place::parse("/opt//x/./y"), Ok(Place { anchor: Anchor::Root, rest: "opt/x/y".into() }));
        for (wrong, says) in [
            ("", "empty"),
            ("x/y", "relative to nothing"),
            (".", "relative to nothing"),
            ("~/x", "write $HOME/x"),
            ("$XDG_CACHE_HOME/x", "$XDG_CACHE_HOME is not expanded"),
            ("$HOMEX", "$HOMEX is not expanded"),
            ("${HOME}/x", "not expanded"),
            ("/a/$USER", "only in front"),
            ("/a/../b", "`..`"),
            ("$WORKSPACE/..", "`..`"),
            ("/a\0b", "NUL"),
        ] {
            let error = Place::parse(wrong).unwrap_err();
            assert!(error.contains(says), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn what_is_shown_reads_back() {
        for text in ["$HOME/.config/x", "$WORKSPACE", "/opt/x", "$SESSION/tmp", "/"] {
            assert_eq!(Place::parse(text).unwrap().shown(), text);
        }
    }

    #[test]
    fn protected_paths_are_names_in_the_workspace() {
        assert_eq!(parse_inside("$WORKSPACE/.git/hooks"), Ok(".git/hooks".into()));
        assert_eq!(parse_inside(".vscode"), Ok(".vscode".into()));
        for wrong in ["/etc", "$HOME/x", "../x", ".git/modules/*/hooks", "", ".", "$WORKSPACE/"] {
            assert!(parse_inside(wrong).is_err(), "{wrong:?}");
        }
    }
}
