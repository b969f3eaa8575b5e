//! A workspace that is a linked worktree: its index, objects and refs lie in the main repository, outside of the base.
//!
//! The pointer in the tree is not believed: it could name any folder. The main repository must point back, and that file lies
//! where the tree's author could not write. Never grants a repository's hooks or settings for writing.

use super::protect::{self, Protected};
use super::{Grant, Rights};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The folders of a linked worktree, each resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The worktree's own git folder: `…/.git/worktrees/NAME`.
    pub git_dir: PathBuf,
    /// The git folder of the main repository.
    pub common: PathBuf,
}

/// Longer than any pointer file, in bytes.
const LONGEST: u64 = 8192;

/// Reads the pointer that stands in the workspace's `.git` file. `None`: there is no such file. `Err`: why it is not followed.
pub fn linked(base: &Path, dot_git: Option<&[u8]>) -> Option<Result<Linked, String>> {
    let text = dot_git?;
    Some(
        follow(base, text)
            .map_err(|says| format!("the workspace's .git is a file and {says}: commands cannot commit here; open the main repository")),
    )
}

fn follow(base: &Path, text: &[u8]) -> Result<Linked, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is not text".to_owned())?;
    let pointer = text.trim_end().strip_prefix("gitdir: ").ok_or("holds no `gitdir:`")?;
    let git_dir = base.join(pointer).canonicalize().map_err(|_| "leads nowhere".to_owned())?;
    let common = line(&git_dir.join("commondir")).ok_or("does not lead to a linked worktree (a submodule, say)")?;
    let common = git_dir.join(common).canonicalize().map_err(|_| "leads to a worktree without a repository".to_owned())?;
    if git_dir.parent() != Some(common.join("worktrees").as_path()) {
        return Err("leads to a folder that is no worktree of its repository".into());
    }
    let back = line(&git_dir.join("gitdir")).and_then(|back| git_dir.join(back).parent().and_then(|folder| folder.canonicalize().ok()));
    match back.as_deref() == Some(base) {
        true => Ok(Linked { git_dir, common }),
        false => Err("leads to a worktree that lies elsewhere".into()),
    }
}

/// The only line of a short file of git's.
fn line(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned()).filter(|line| !line.is_empty() && !line.contains('\n'))
}

impl Linked {
    /// What commands need so that `git commit` works: never `config`, never `hooks`.
    pub fn for_commands(&self) -> Vec<Grant> {
        let mut grants = self.for_ourselves();
        grants.push(grant(self.git_dir.clone(), Rights::CHANGE, "the worktree's index and HEAD"));
        for (name, reason) in
            [("objects", "commits and files of the repository"), ("refs", "branches and tags"), ("logs", "the history of branches")]
        {
            if let Ok(path) = self.common.join(name).canonicalize() {
                // A link out of the repository is not followed for writing.
                if path.starts_with(&self.common) {
                    grants.push(grant(path, Rights::CHANGE, reason));
                }
            }
        }
        grants
    }

    /// What commands may not change of what they may write: a worktree's folder says where its repository is, and the host's git
    /// believes it. Absolute paths.
    pub fn protected(&self) -> Vec<Protected> {
        let mut list = protect::git_dir(&self.git_dir);
        list.extend(protect::git_dir(&self.common));
        list
    }

    /// What our own git needs.
    pub fn for_ourselves(&self) -> Vec<Grant> {
        vec![grant(self.common.clone(), Rights::READ, "the repository that this worktree belongs to")]
    }
}

fn grant(path: PathBuf, rights: Rights, reason: &str) -> Grant {
    Grant { path, rights, reason: reason.into(), origin: "workspace".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (main, tree) = (root.join("main/.git"), root.join("tree"));
        for folder in [&main.join("worktrees/tree"), &main.join("objects"), &main.join("refs"), &main.join("hooks"), &tree] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(main.join("worktrees/tree/commondir"), "../..\n").unwrap();
        fs::write(main.join("worktrees/tree/gitdir"), format!("{}\n", tree.join(".git").display())).unwrap();
        (dir, main, tree)
    }

    #[test]
    fn a_worktree_gets_what_a_commit_needs_and_no_hooks() {
        let (_dir, main, tree) = repository();
        let pointer = format!("gitdir: {}\n", main.join("worktrees/tree").display());
        let linked = linked(&tree, Some(pointer.as_bytes())).unwrap().unwrap();
        let grants = linked.for_commands();
        let may_write = |path: &str| super::super::image::covered(&grants, &main.join(path), Rights::CHANGE);
        for path in ["worktrees/tree/index.lock", "objects/00/11", "refs/heads/b"] {
            assert!(may_write(path), "{path}");
        }
        for path in ["hooks/pre-commit", "config", "worktrees/other/HEAD", "HEAD"] {
            assert!(!may_write(path), "{path}");
        }
    }

    #[test]
    fn a_pointer_that_nothing_points_back_from_is_not_followed() {
        let (dir, main, tree) = repository();
        let other = dir.path().canonicalize().unwrap().join("other");
        fs::create_dir_all(other.join("keys")).unwrap();
        let right = format!("gitdir: {}\n", main.join("worktrees/tree").display());
        for (base, text) in [
            (&tree, format!("gitdir: {}", other.join("keys").display())),
            (&tree, format!("gitdir: {}", main.display())),
            (&tree, "gitdir: ../absent".into()),
            (&tree, "nonsense".into()),
            (&other, right),
        ] {
            assert!(linked(base, Some(text.as_bytes())).unwrap().is_err(), "{text}");
        }
        assert!(linked(&tree, Some(b"\xff\xfe")).unwrap().is_err());
        assert_eq!(linked(&tree, None), None);
    }

    #[test]
    fn a_forged_worktree_folder_does_not_widen_to_another_repository() {
        let (dir, main, tree) = repository();
        // The folder points back, but its `commondir` names a place that is not its own repository.
        let forged = dir.path().canonicalize().unwrap().join("tree/forged");
        fs::create_dir_all(&forged).unwrap();
        fs::write(forged.join("commondir"), main.display().to_string()).unwrap();
        fs::write(forged.join("gitdir"), tree.join(".git").display().to_string()).unwrap();
        assert!(linked(&tree, Some(b"gitdir: forged")).unwrap().is_err());
    }
}
