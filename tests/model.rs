//! Random sequences of calls, and of removals in bash, against a plain model of a tree: through the real jails, disk and model are the same
//! after every step. `BAILIWICK_TEST_CASES` sets how many sequences are tried.

use crate::desk::Desk;
use crate::space::Space;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A path's content; `None` is a folder.
type Tree = BTreeMap<String, Option<String>>;

const PATHS: &[&str] = &["a", "b", "d", "d/a", "d/e", "d/e/f", "g/h"];

#[derive(Clone, Debug)]
enum Step {
    Write(&'static str, String),
    Create(&'static str, String),
    Append(&'static str, String),
    Mkdir(&'static str),
    Rename(&'static str, &'static str, bool),
    Copy(&'static str, &'static str, bool),
    /// `x` becomes `yy`, if there is exactly one.
    Edit(&'static str),
    /// In bash.
    Delete(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    let path = || prop::sample::select(PATHS);
    let text = || "[xy\n]{0,6}";
    prop_oneof![
        (path(), text()).prop_map(|(path, text)| Step::Write(path, text)),
        (path(), text()).prop_map(|(path, text)| Step::Create(path, text)),
        (path(), text()).prop_map(|(path, text)| Step::Append(path, text)),
        path().prop_map(Step::Mkdir),
        (path(), path(), any::<bool>()).prop_map(|(from, to, over)| Step::Rename(from, to, over)),
        (path(), path(), any::<bool>()).prop_map(|(from, to, over)| Step::Copy(from, to, over)),
        path().prop_map(Step::Edit),
        path().prop_map(Step::Delete),
    ]
}

fn is_beneath(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

/// Makes the parents of a path; `None` where a file stands in the way.
fn make_parents(tree: &mut Tree, path: &str) -> Option<()> {
    for (at, _) in path.match_indices('/') {
        if tree.entry(path[..at].into()).or_insert(None).is_some() {
            return None;
        }
    }
    Some(())
}

fn put(tree: &mut Tree, path: &str, content: String) -> Option<()> {
    make_parents(tree, path)?;
    match tree.insert(path.into(), Some(content)) {
        Some(None) => None,
        _ => Some(()),
    }
}

fn subtree(tree: &Tree, root: &str) -> Vec<(String, Option<String>)> {
    tree.iter()
        .filter(|(path, _)| *path == root || is_beneath(path, root))
        .map(|(path, node)| (path[root.len()..].into(), node.clone()))
        .collect()
}

/// The tree after a step; `None`: the step has to fail and to change nothing.
fn predicted(tree: &Tree, step: &Step) -> Option<Tree> {
    let mut tree = tree.clone();
    match step {
        Step::Write(path, text) => put(&mut tree, path, text.clone())?,
        Step::Create(path, text) => {
            if tree.contains_key(*path) {
                return None;
            }
            put(&mut tree, path, text.clone())?;
        }
        Step::Append(path, text) => {
            let old = tree.get(*path).cloned().unwrap_or(Some(String::new()))?;
            let join = if old.is_empty() || old.ends_with('\n') || text.is_empty() { "" } else { "\n" };
            put(&mut tree, path, format!("{old}{join}{text}"))?;
        }
        Step::Mkdir(path) => {
            make_parents(&mut tree, path)?;
            if tree.entry((*path).into()).or_insert(None).is_some() {
                return None;
            }
        }
        Step::Edit(path) => {
            let old = tree.get(*path)?.clone()?;
            if old.matches('x').count() != 1 {
                return None;
            }
            tree.insert((*path).into(), Some(old.replace('x', "yy")));
        }
        Step::Delete(path) => {
            tree.get(*path)?;
            tree.retain(|known, _| known != path && !is_beneath(known, path));
        }
        Step::Rename(from, to, over) | Step::Copy(from, to, over) => {
            let source = tree.get(*from)?.clone();
            if from == to || is_beneath(to, from) {
                return None;
            }
            let moves = matches!(step, Step::Rename(..));
            match (&source, tree.get(*to)) {
                (_, None) => {}
                (_, Some(_)) if !over => return None,
                (Some(_), Some(Some(_))) => {}
                (None, Some(None)) if moves && subtree(&tree, to).len() == 1 => {}
                _ => return None,
            }
            let nodes = subtree(&tree, from);
            if moves {
                tree.retain(|path, _| path != from && !is_beneath(path, from));
            }
            make_parents(&mut tree, to)?;
            tree.extend(nodes.into_iter().map(|(rest, node)| (format!("{to}{rest}"), node)));
        }
    }
    Some(tree)
}

/// A copy of a folder onto a folder fills it up, and may stop half way; it is looked at and not predicted.
fn is_merge(tree: &Tree, step: &Step) -> bool {
    matches!(step, Step::Copy(from, to, true) if tree.get(*from) == Some(&None) && tree.get(*to) == Some(&None))
}

fn on_disk(root: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(root.join(prefix)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            tree.insert(path.clone(), None);
            on_disk(root, &path, tree);
        } else {
            tree.insert(path, Some(fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

/// The step as a call, of paths below `top`; whether it succeeded.
fn call(desk: &Desk, top: &str, step: &Step) -> bool {
    let at = |path: &str| format!("{top}/{path}");
    let (tool, args) = match step {
        Step::Write(path, text) => ("write", json!({"path": at(path), "content": text})),
        Step::Create(path, text) => ("create", json!({"path": at(path), "content": text})),
        Step::Append(path, text) => ("write", json!({"path": at(path), "content": text, "mode": "append"})),
        Step::Mkdir(path) => ("mkdir", json!({"path": at(path)})),
        Step::Rename(from, to, over) => ("rename", json!({"source": at(from), "destination": at(to), "overwrite": over})),
        Step::Copy(from, to, over) => ("copy", json!({"source": at(from), "destination": at(to), "overwrite": over})),
        Step::Edit(path) => ("edit", json!({"path": at(path), "old_string": "x", "new_string": "yy", "strict": true})),
        Step::Delete(path) => {
            let data = desk.done("sandbox_bash", json!({"command": format!("test -e {path} && rm -r {path}"), "workdir": top}));
            return data["exit_code"] == 0;
        }
    };
    desk.call(tool, args).envelope["success"] == true
}

/// Runs the steps; says where disk and model part.
fn difference(desk: &Desk, top: &str, steps: &[Step]) -> Option<String> {
    let root = desk.at(top);
    fs::create_dir(&root).unwrap();
    let mut tree = Tree::new();
    for (index, step) in steps.iter().enumerate() {
        let done = call(desk, top, step);
        let mut found = Tree::new();
        on_disk(&root, "", &mut found);
        if !is_merge(&tree, step) {
            let expected = predicted(&tree, step);
            if done != expected.is_some() || found != *expected.as_ref().unwrap_or(&tree) {
                return Some(format!("step {index}, {step:?}: {done}, {found:?} and not {expected:?} from {tree:?}"));
            }
        }
        tree = found;
    }
    fs::remove_dir_all(root).unwrap();
    None
}

#[test]
fn the_tree_is_what_the_model_says() {
    let asked = std::env::var("BAILIWICK_TEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let desk = Desk::new(Space::in_memory());
    // Where each write waits for a disk, fewer in every run.
    let usual = if desk.space.is_in_memory() { 1000 } else { 200 };
    let config = Config { cases: asked.unwrap_or(usual), failure_persistence: None, ..Config::default() };
    let case = Cell::new(0);
    let checked = TestRunner::new(config).run(&prop::collection::vec(step(), 1..12), |steps| {
        // Each in a folder of its own: what the session remembers of the files of another case is not theirs.
        case.set(case.get() + 1);
        prop_assert_eq!(difference(&desk, &format!("case{}", case.get()), &steps), None);
        Ok(())
    });
    checked.unwrap();
}
