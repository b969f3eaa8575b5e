//! From a call to the disk: loads, checks that nothing is stale, asks the engine, writes. With several files everything is prepared before
//! anything is written, and what was written is put back if a later write fails.

use super::call::{self, Args};
use super::patch::{self, Operation};
use super::plan::{Options, Replacement, Verdict, plan};
use super::{Action, Edited, FileDone};
use crate::clip::counted;
use crate::envelope::{Envelope, Fault, FaultCode};
use crate::tools::bench::Bench;
use crate::tools::diff;
use crate::tools::write::{parse_hash, stale};
use crate::workspace::base_dir::{Expect, Loaded, ReplaceOptions};
use crate::workspace::decode::{Encoding, detect_whole, to_plain};
use crate::workspace::outline::Outline;
use crate::workspace::transfer::Existing;
use crate::workspace::{Hash, RelPath};
use serde_json::json;
use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;

/// The largest file that is edited, in bytes.
const LARGEST: u64 = 32 << 20;

/// How often an edit starts again because somebody else wrote between its look and its rename.
const ATTEMPTS: usize = 16;

/// Does what a call asks for.
pub(super) fn run(bench: &Bench<'_>, args: Args) -> Result<Edited, Fault> {
    let wanted = parse_hash(args.expected_hash.as_deref())?;
    let options = Options { strict: args.strict };
    let dry_run = args.dry_run;
    if let Some(text) = args.patch.as_deref() {
        if args.old_string.is_some() || args.new_string.is_some() || args.edits.is_some() {
            return Err(Fault::new(
                FaultCode::InvalidArguments,
                "patch stands beside old_string, new_string or edits; give one or the other",
            ));
        }
        let operations = patch::parse(text, args.path.as_deref())?;
        if wanted.is_some() && operations.len() > 1 {
            return Err(Fault::new(FaultCode::InvalidArguments, "expected_hash is of one file, and the patch changes several"));
        }
        return several(bench, &operations, wanted, options, dry_run);
    }
    let path = args.path.clone().ok_or_else(|| {
        Fault::new(FaultCode::InvalidArguments, "edit needs path")
            .hint(r#"for example edit {"path": "src/a.rs", "old_string": "a", "new_string": "b"}"#)
            .with("missing", vec!["path"])
    })?;
    let path = bench.base().rel(&path)?;
    let edits = call::replacements(args)?;
    let (file, warnings) = single(bench, &path, &edits, wanted, options, dry_run)?;
    Ok(Edited { file: Some(file), files: Vec::new(), dry_run, warnings })
}

/// Edits one file. An edit says what it replaces, so when somebody else's write comes in between it is planned anew on their content: both are
/// there afterwards.
fn single(
    bench: &Bench<'_>,
    path: &RelPath,
    edits: &[Replacement],
    wanted: Option<Hash>,
    options: Options,
    dry_run: bool,
) -> Result<(FileDone, Vec<String>), Fault> {
    for attempt in 0..ATTEMPTS {
        let loaded = load(bench, path)?;
        if attempt == 0 || wanted.is_some() {
            check_fresh(bench, path, &loaded, wanted)?;
        }
        let plan = plan(&loaded.bytes, edits, options)?;
        let write = ReplaceOptions { expect: Expect::Content(loaded.hash), create_dirs: false, executable: None };
        let (canonical, warnings, hash) = if dry_run {
            (bench.base().rehearse(path, &write)?.canonical, Vec::new(), None)
        } else {
            match bench.base().replace_known(path, Some(&loaded.bytes), &plan.bytes, &write) {
                Ok(done) => {
                    bench.memory().note_written(&done, &plan.bytes);
                    (done.canonical, done.notices, Some(done.hash))
                }
                Err(fault) if fault.code() == FaultCode::StaleFile && wanted.is_none() => continue,
                Err(fault) => return Err(fault),
            }
        };
        let hash = hash.unwrap_or_else(|| Hash::of(&plan.bytes));
        return Ok((done(&canonical, Action::Edited, &loaded.bytes, (&plan.bytes, Some(hash)), plan.verdicts), warnings));
    }
    Err(Fault::new(FaultCode::Busy, format!("{path} kept changing while it was edited")).hint("try again"))
}

fn load(bench: &Bench<'_>, path: &RelPath) -> Result<Loaded, Fault> {
    bench.base().load(path, LARGEST).map_err(|fault| match fault.code() {
        FaultCode::NotFound => fault.hint("write makes a new file; find and ls show what is there"),
        _ => fault,
    })
}

/// The stale check, by content: a new time stamp on the same bytes is nothing.
fn check_fresh(bench: &Bench<'_>, path: &RelPath, loaded: &Loaded, wanted: Option<Hash>) -> Result<(), Fault> {
    let Some(expected) = wanted.or_else(|| bench.memory().known(&loaded.canonical)) else { return Ok(()) };
    if expected == loaded.hash {
        return Ok(());
    }
    let known = bench.memory().known(&loaded.canonical) == Some(expected);
    let change = if known { bench.memory().change(&loaded.canonical, &loaded.bytes) } else { None };
    Err(stale(path, wanted.is_some(), change, loaded.bytes.len() as u64)
        .hint("read it again and edit what is there, or give the current hash as expected_hash")
        .with("hash", loaded.hash.to_string())
        .with("expected_hash", expected.to_string())
        .with("size", loaded.bytes.len())
        .with("mtime", loaded.meta.mtime()))
}

/// `hash`: that of the new content; none is left of what was deleted.
fn done(path: &RelPath, action: Action, old: &[u8], (new, hash): (&[u8], Option<Hash>), edits: Vec<Verdict>) -> FileDone {
    let (before, after) = (detect_whole(old), detect_whole(new));
    // A diff of UTF-16 is one of its text.
    fn text(bytes: &[u8], encoding: Encoding) -> Cow<'_, [u8]> {
        if encoding.is_utf16() { to_plain(&bytes[encoding.bom().len()..], encoding) } else { Cow::Borrowed(bytes) }
    }
    let diff = diff::unified(&text(old, before), &text(new, after));
    FileDone {
        path: path.to_string(),
        action,
        moved_from: None,
        edits,
        bytes: new.len() as u64,
        hash,
        encoding: if action == Action::Deleted { before } else { after },
        added_lines: diff.added,
        removed_lines: diff.removed,
        diff: (!diff.text.is_empty() && action != Action::Created && action != Action::Deleted).then_some(diff.text),
        diff_truncation: diff.truncation.filter(|_| action != Action::Created && action != Action::Deleted),
    }
}

/// One change of the disk, with what it takes to undo it.
enum Step {
    Write { path: RelPath, old: Vec<u8>, new: Vec<u8> },
    Create { path: RelPath, new: Vec<u8>, executable: bool },
    Rename { from: RelPath, to: RelPath },
    Remove { path: RelPath, old: Vec<u8>, executable: bool },
}

/// What one operation of a patch would do.
struct Prepared {
    steps: Vec<Step>,
    file: FileDone,
}

fn several(bench: &Bench<'_>, operations: &[Operation], wanted: Option<Hash>, options: Options, dry_run: bool) -> Result<Edited, Fault> {
    let results: Vec<Result<Prepared, Fault>> = operations.iter().map(|operation| prepare(bench, operation, wanted, options)).collect();
    if let Some((index, fault)) = results.iter().enumerate().find_map(|(index, result)| Some((index, result.as_ref().err()?))) {
        return Err(refused(operations, &results, index, fault));
    }
    let prepared: Vec<Prepared> = results.into_iter().flatten().collect();
    let mut warnings = Vec::new();
    if dry_run {
        for step in prepared.iter().flat_map(|prepared| &prepared.steps) {
            rehearse(bench, step)?;
        }
    } else {
        // What removes comes last: until then everything can be put back as it was.
        let (last, first): (Vec<&Step>, Vec<&Step>) =
            prepared.iter().flat_map(|prepared| &prepared.steps).partition(|step| matches!(step, Step::Remove { .. }));
        let steps: Vec<&Step> = first.into_iter().chain(last).collect();
        for (index, step) in steps.iter().enumerate() {
            match perform(bench, step) {
                Ok(notices) => warnings.extend(notices),
                Err(fault) => return Err(rolled_back(bench, &steps[..index], fault)),
            }
        }
        for step in &steps {
            remember(bench, step);
        }
    }
    Ok(Edited { file: None, files: prepared.into_iter().map(|prepared| prepared.file).collect(), dry_run, warnings })
}

/// The fault of the first operation that cannot be done, with a verdict on each.
fn refused(operations: &[Operation], results: &[Result<Prepared, Fault>], index: usize, fault: &Fault) -> Fault {
    let path = operations[index].path();
    // A fault that names the file names it once.
    let says = fault.message();
    let says = if says.contains(path) { says.to_owned() } else { format!("{path}: {says}") };
    let mut whole = Fault::new(fault.code(), says);
    let facts = Envelope::from(Err(fault.clone()));
    for (key, value) in facts.data().as_object().into_iter().flatten() {
        whole = whole.with(key, value.clone());
    }
    if let Some(hint) = fault.hint_text() {
        whole = whole.hint(hint);
    }
    if operations.len() == 1 {
        return whole;
    }
    let verdicts: Vec<_> = operations
        .iter()
        .zip(results)
        .map(|(operation, result)| match result {
            Ok(_) => json!({"path": operation.path(), "verdict": "would_apply"}),
            Err(fault) => json!({"path": operation.path(), "verdict": fault.code(), "why": fault.message()}),
        })
        .collect();
    whole.with("files", verdicts)
}

fn prepare(bench: &Bench<'_>, operation: &Operation, wanted: Option<Hash>, options: Options) -> Result<Prepared, Fault> {
    let path = bench.base().rel(operation.path())?;
    match operation {
        Operation::Add { content, .. } => {
            match bench.base().lstat(&path) {
                // Not what was asked for, but nothing is lost by it: an empty file is filled.
                Ok(meta) if meta.is_file() && meta.len() == 0 => {
                    let file = done(&path, Action::Edited, b"", (content.as_bytes(), Some(Hash::of(content.as_bytes()))), Vec::new());
                    return Ok(Prepared { steps: vec![Step::Write { path, old: Vec::new(), new: content.clone().into_bytes() }], file });
                }
                Ok(_) => {
                    return Err(Fault::new(FaultCode::AlreadyExists, format!("{path} exists already"))
                        .hint("a patch that changes a file has hunks with lines of it; write replaces it whole"));
                }
                Err(fault) if fault.code() == FaultCode::NotFound => {}
                Err(fault) => return Err(fault),
            }
            let new = content.clone().into_bytes();
            let file = done(&path, Action::Created, b"", (&new, Some(Hash::of(&new))), Vec::new());
            Ok(Prepared { steps: vec![Step::Create { path, new, executable: false }], file })
        }
        Operation::Delete { lines, .. } => {
            let loaded = load(bench, &path)?;
            check_fresh(bench, &path, &loaded, wanted)?;
            if let Some(lines) = lines {
                shows_all(&path, &loaded.bytes, lines, options)?;
            }
            let file = done(&path, Action::Deleted, &loaded.bytes, (b"", None), Vec::new());
            let executable = loaded.meta.mode() & 0o111 != 0;
            Ok(Prepared { steps: vec![Step::Remove { path, old: loaded.bytes, executable }], file })
        }
        Operation::Update { to, edits, .. } => {
            let loaded = load(bench, &path)?;
            check_fresh(bench, &path, &loaded, wanted)?;
            let (new, verdicts) = if edits.is_empty() {
                (None, Vec::new())
            } else {
                let plan = plan(&loaded.bytes, edits, options)?;
                (Some(plan.bytes), plan.verdicts)
            };
            let after = new.as_deref().unwrap_or(&loaded.bytes);
            let mut file = done(&loaded.canonical, Action::Edited, &loaded.bytes, (after, Some(Hash::of(after))), verdicts);
            let mut steps = Vec::new();
            let mut at = path.clone();
            if let Some(to) = to {
                let target = bench.base().rel(to)?;
                match bench.base().lstat(&target) {
                    Ok(_) => {
                        return Err(Fault::new(FaultCode::AlreadyExists, format!("{target} exists already, and nothing is moved over it")));
                    }
                    Err(fault) if fault.code() == FaultCode::NotFound => {}
                    Err(fault) => return Err(fault),
                }
                file = FileDone { path: target.to_string(), action: Action::Moved, moved_from: Some(path.to_string()), ..file };
                steps.push(Step::Rename { from: path, to: target.clone() });
                at = target;
            }
            if let Some(new) = new {
                steps.push(Step::Write { path: at, old: loaded.bytes, new });
            }
            Ok(Prepared { steps, file })
        }
    }
}

/// A diff that removes a file shows the whole of it: what it does not show is not what it was made for.
fn shows_all(path: &RelPath, bytes: &[u8], lines: &[Replacement], options: Options) -> Result<(), Fault> {
    let left = match lines {
        [] => bytes.to_vec(),
        lines => plan(bytes, lines, options)?.bytes,
    };
    let text = to_plain(&left[detect_whole(&left).bom().len()..], detect_whole(bytes));
    if matches!(&*text, b"" | b"\n" | b"\r\n") {
        return Ok(());
    }
    let count = text.split_inclusive(|byte| *byte == b'\n').count();
    Err(Fault::new(FaultCode::NoMatch, format!("the diff removes {path}, which has {} that it does not show", counted(count as u64, "line")))
        .hint("a diff that removes a file has all of its lines with - before them; an apply_patch block with *** Delete File: removes it as it is"))
}

fn writing(expect: Expect) -> ReplaceOptions {
    ReplaceOptions { expect, create_dirs: true, executable: None }
}

fn rehearse(bench: &Bench<'_>, step: &Step) -> Result<(), Fault> {
    match step {
        // Behind a move, the file is not there yet.
        Step::Write { path, old, .. } if bench.base().lstat(path).is_ok() => {
            bench.base().rehearse(path, &writing(Expect::Content(Hash::of(old)))).map(drop)
        }
        Step::Create { path, .. } => bench.base().rehearse(path, &writing(Expect::Absent)).map(drop),
        _ => Ok(()),
    }
}

fn perform(bench: &Bench<'_>, step: &Step) -> Result<Vec<String>, Fault> {
    let base = bench.base();
    match step {
        Step::Write { path, old, new } => Ok(base.replace_known(path, Some(old), new, &writing(Expect::Content(Hash::of(old))))?.notices),
        Step::Create { path, new, executable } => {
            let options = ReplaceOptions { executable: executable.then_some(true), ..writing(Expect::Absent) };
            Ok(base.replace(path, new, &options)?.notices)
        }
        Step::Rename { from, to } => base.rename(from, to, Existing::Refuse).map(|_| Vec::new()),
        Step::Remove { path, old, .. } => base.remove(path, Hash::of(old)).map(|_| Vec::new()),
    }
}

/// Puts back what was done before a step failed; says so where that fails, too.
fn rolled_back(bench: &Bench<'_>, steps: &[&Step], fault: Fault) -> Fault {
    let mut left = Vec::new();
    for step in steps.iter().rev() {
        let undo = match step {
            Step::Write { path, old, new } => Step::Write { path: path.clone(), old: new.clone(), new: old.clone() },
            Step::Create { path, new, executable } => Step::Remove { path: path.clone(), old: new.clone(), executable: *executable },
            Step::Rename { from, to } => Step::Rename { from: to.clone(), to: from.clone() },
            Step::Remove { path, old, executable } => Step::Create { path: path.clone(), new: old.clone(), executable: *executable },
        };
        if let Err(fault) = perform(bench, &undo) {
            left.push(format!("{}: {fault}", name(&undo)));
        }
    }
    if left.is_empty() {
        return fault.with("rolled_back", steps.len());
    }
    fault.hint("some files could not be put back as they were; see not_rolled_back").with("not_rolled_back", left)
}

fn name(step: &Step) -> &RelPath {
    match step {
        Step::Write { path, .. } | Step::Create { path, .. } | Step::Remove { path, .. } => path,
        Step::Rename { from, .. } => from,
    }
}

/// Tells the session what the files hold now.
fn remember(bench: &Bench<'_>, step: &Step) {
    let canonical = |path: &RelPath| bench.base().open_file(path).map_or_else(|_| path.clone(), |opened| opened.canonical);
    match step {
        Step::Write { path, new, .. } | Step::Create { path, new, .. } => {
            bench.memory().note_lines(&canonical(path), Hash::of(new), Some(Outline::of(new)));
        }
        Step::Remove { path, .. } => bench.memory().note(path, None),
        Step::Rename { from, to } => {
            let known = bench.memory().known(from);
            bench.memory().note(from, None);
            if let Some(hash) = known {
                bench.memory().note(&canonical(to), Some(hash));
            }
        }
    }
}
