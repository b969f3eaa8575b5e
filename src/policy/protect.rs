//! The names in a workspace that nothing may change, because something outside the sandbox acts on them later.
//!
//! Never looks whether they exist: a name is protected before it is there.

use super::links::Links;
use std::path::{Path, PathBuf};

/// What is protected of a git repository, relative to its git folder: each names or holds programs that git runs, on the host too.
pub const GIT_DIR: &[(&str, &str)] = &[
    ("hooks", "git runs what is in it"),
    ("config", "names programs that git runs"),
    ("config.worktree", "names programs that git runs"),
    ("info/attributes", "names filters that git runs"),
    ("commondir", "says where the repository is"),
    ("gitdir", "says where the worktree is"),
    ("objects/info/alternates", "says where else objects are"),
];

/// What is protected of every workspace beyond its repository.
pub const WORKSPACE: &[(&str, &str)] = &[
    (".bailiwick.toml", "our own settings"),
    (".bailiwick", "our own settings"),
    (".mcp.json", "names programs that agents start"),
    (".agents/skills", "agents follow what is in it, and run its scripts"),
    (".claude/skills", "agents follow what is in it, and run its scripts"),
    (".claude/settings.json", "names programs that an agent starts"),
    (".claude/settings.local.json", "names programs that an agent starts"),
    (".codex/config.toml", "names programs that an agent starts"),
    (".cursor/mcp.json", "names programs that an agent starts"),
    (".gemini/settings.json", "names programs that an agent starts"),
    (".vscode", "names programs that the editor starts"),
    (".idea", "names programs that the editor starts"),
];

/// One protected name with its reason.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Protected {
    /// Relative to the base.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
    /// Which policy or default says so.
    pub origin: String,
}

/// The default list. `dot_git_is_file`: the workspace is a linked worktree or a submodule, and the pointer itself is protected.
pub fn defaults(dot_git_is_file: bool) -> Vec<Protected> {
    let mut list = match dot_git_is_file {
        true => vec![named(PathBuf::from(".git"), "says where the repository is")],
        false => git_dir(Path::new(".git")),
    };
    list.extend(WORKSPACE.iter().map(|(name, reason)| named(PathBuf::from(name), reason)));
    list
}

/// What is protected of a git folder (`.git`, `.git/modules/x`, the folder of a bare repository), relative to the base.
pub fn git_dir(prefix: &Path) -> Vec<Protected> {
    GIT_DIR.iter().map(|(name, reason)| named(prefix.join(name), reason)).collect()
}

/// What is protected of a repository nested in the workspace, at `prefix`: its git folder, or its pointer where that is a file.
pub fn nested(prefix: &Path, dot_git_is_file: bool) -> Vec<Protected> {
    match dot_git_is_file {
        true => vec![named(prefix.join(".git"), "says where the repository is")],
        false => git_dir(&prefix.join(".git")),
    }
}

/// Adds where names lead that are links, or lie behind one: what is done there is done to them. As far as that is in the base.
pub(super) fn where_links_lead(list: &mut Vec<Protected>, base: &Path, links: &Links) {
    let led: Vec<Protected> = list
        .iter()
        .filter_map(|one| {
            let path = base.join(&one.path);
            // What is not there may come to be: what holds it says where.
            let (known, real) = path.ancestors().find_map(|known| Some((known, links.canonical(known).ok()?)))?;
            let rest = path.strip_prefix(known).ok()?;
            let real = if rest.as_os_str().is_empty() { real } else { real.join(rest) };
            let led = if real == path { None } else { real.strip_prefix(base).ok() }?;
            Some(Protected { path: led.to_path_buf(), reason: format!("{} leads there", one.path.display()), origin: one.origin.clone() })
        })
        .collect();
    for one in led {
        if !one.path.as_os_str().is_empty() && !list.iter().any(|known| known.path == one.path) {
            list.push(one);
        }
    }
}

fn named(path: PathBuf, reason: &str) -> Protected {
    Protected { path, reason: reason.into(), origin: "default".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(list: &[Protected]) -> Vec<&str> {
        list.iter().map(|one| one.path.to_str().unwrap()).collect()
    }

    #[test]
    fn hooks_and_settings_of_every_kind_of_repository() {
        let list = defaults(false);
        for name in [".git/hooks", ".git/config", ".git/info/attributes", ".bailiwick.toml", ".mcp.json", ".vscode", ".idea"] {
            assert!(paths(&list).contains(&name), "{name}");
        }
        // What git needs to commit is not among them.
        assert!(
            list.iter().all(|one| !Path::new(".git/index").starts_with(&one.path) && !Path::new(".git/objects/00").starts_with(&one.path))
        );
        assert_eq!(paths(&defaults(true))[0], ".git");
        assert!(paths(&nested(Path::new("sub/dir"), false)).contains(&"sub/dir/.git/hooks"));
        assert_eq!(paths(&nested(Path::new("sub"), true)), ["sub/.git"]);
    }
}
