//! Skills of the person, outside of the workspace: which folders there are, and what a charter has to grant so that they can be used.
//!
//! Never reads what is in a skill. A link in a folder of skills is the person's own and is followed, once, here; one that leads to the home
//! folder, to what contains the workspace, or into a tree that is not trusted, is not.

use super::charter::{Charter, Grant, Grants, Rights};
use super::file::Trust;
use super::image::{Dropped, covered, reach, too_wide};
use super::surroundings::Surroundings;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// Where skills lie in a project and in a home folder; of two skills of one name, that of the first folder is taken.
pub const FOLDERS: [&str; 3] = [".agents/skills", ".bailiwick/skills", ".claude/skills"];

/// The most folders that are granted.
const MOST: usize = 100;

/// A folder outside of the workspace that may hold a skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// The name under which it was found.
    pub name: String,
    /// Where it is, resolved.
    pub path: PathBuf,
}

/// Finds the person's skills, and has the charter grant reading them to calls that look, and running what is in them to commands. What is
/// left out is told to `dropped`.
pub fn grant(charter: &mut Charter, here: &Surroundings, trust: Trust, dropped: &mut Vec<Dropped>) -> Vec<Home> {
    let mut homes: Vec<Home> = Vec::new();
    for folder in FOLDERS {
        let Some(entries) = here.in_home(folder).and_then(|root| fs::read_dir(root).ok()) else { continue };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        names.sort();
        for entry in names {
            let Some(name) = entry.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.')) else { continue };
            let Ok(path) = entry.canonicalize() else { continue };
            if !holds_a_skill(&path) || homes.len() >= MOST {
                continue;
            }
            if let Some(why) = refused(&path, charter, here, trust) {
                dropped.push(Dropped { what: format!("the skill {}", entry.display()), why });
                continue;
            }
            add(&mut charter.look, &path, Rights::READ);
            if let Some(execute) = &mut charter.execute {
                add(execute, &path, Rights::RUN);
            }
            homes.push(Home { name: name.into(), path });
        }
    }
    homes
}

fn holds_a_skill(path: &Path) -> bool {
    ["SKILL.md", "skill.md"].iter().any(|name| path.join(name).is_file())
}

fn refused(path: &Path, charter: &Charter, here: &Surroundings, trust: Trust) -> Option<String> {
    let identity = charter.identity;
    too_wide(path, &charter.base, here)
        .or_else(|| (trust == Trust::Fork && path.starts_with(&charter.base)).then(|| "it leads into a tree that is not trusted".into()))
        .or_else(|| charter.session_dir.starts_with(path).then(|| "it contains the session's folder".into()))
        .or_else(|| {
            let can = (identity.uid == here.uid && identity.uid != 0) || reach(path, identity);
            (!can).then(|| format!("user {}, who calls run as, cannot enter it: a folder on the way is closed to others", identity.uid))
        })
}

fn add(grants: &mut Grants, path: &Path, rights: Rights) {
    if !covered(&grants.0, path, rights) {
        grants.0.push(Grant { path: path.into(), rights, reason: "a skill of the person's".into(), origin: "skills".into() });
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::Machine;
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_folders_with_a_skill_are_granted_and_never_too_much() {
        let machine = Machine::new();
        let mut charter = machine.resolve("build").unwrap().charter;
        let home = machine.here.home.clone().unwrap();
        let skills = home.join(".agents/skills");
        for name in [".agents/skills/good", ".agents/skills/empty", "elsewhere/linked"] {
            fs::create_dir_all(home.join(name)).unwrap();
        }
        for name in [".agents/skills/good", "elsewhere/linked", ""] {
            fs::write(home.join(name).join("SKILL.md"), "").unwrap();
        }
        fs::write(charter.base.join("SKILL.md"), "").unwrap();
        symlink(home.join("elsewhere/linked"), skills.join("linked")).unwrap();
        symlink(&home, skills.join("home")).unwrap();
        symlink(&charter.base, skills.join("ws")).unwrap();
        let mut dropped = Vec::new();
        let homes = grant(&mut charter, &machine.here, Trust::Fork, &mut dropped);
        assert_eq!(homes.iter().map(|home| home.name.as_str()).collect::<Vec<_>>(), ["good", "linked"]);
        assert_eq!(dropped.len(), 2, "{dropped:?}");
        for home in &homes {
            assert!(covered(&charter.look.0, &home.path, Rights::READ) && !covered(&charter.look.0, &home.path, Rights::RUN));
            assert!(covered(&charter.execute.as_ref().unwrap().0, &home.path, Rights::RUN));
            assert!(!covered(&charter.execute.as_ref().unwrap().0, &home.path, Rights::CHANGE));
        }
        assert!(!covered(&charter.look.0, &skills.join("empty"), Rights::READ));
    }
}
