//! `write`: a file's whole content, or more at its end.

use super::diff::{self, DiffTruncation};
use super::{Access, Bench, Render, Spec, Tool};
use crate::envelope::{Fault, FaultCode};
use crate::workspace::base_dir::{Expect, ReplaceOptions};
use crate::workspace::outline::{Change, Outline};
use crate::workspace::{Hash, RelPath};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;

/// The largest old file that is read whole, to be compared or appended to.
const WHOLE: u64 = 16 << 20;

/// How often a write starts again because somebody else wrote between its look and its rename.
const ATTEMPTS: usize = 16;

/// The tool.
pub struct Write;

/// The arguments.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Args {
    /// The file, relative to the workspace.
    path: String,
    /// The content, written exactly as it is.
    content: String,
    /// overwrite (default): replace or make the file; create: only make it; append: add at the end, on a line of its own.
    #[serde(default)]
    mode: Mode,
    /// Make missing parent folders (default true).
    #[serde(default = "yes")]
    create_dirs: bool,
    /// Write only if the file's hash is this one; also overrides the check whether the file changed since it was read.
    #[serde(default)]
    expected_hash: Option<String>,
    /// Set or clear the executable bits; otherwise they stay.
    #[serde(default)]
    executable: Option<bool>,
    /// Only say what would be done.
    #[serde(default)]
    dry_run: bool,
}

/// What is done with the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It becomes the file's content.
    #[default]
    Overwrite,
    /// It becomes the content of a new file.
    Create,
    /// It is added at the end.
    Append,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The file is new.
    Created,
    /// The file had another content.
    Replaced,
    /// The content stands at the end of the file.
    Appended,
    /// The file had this content already and was not touched.
    Unchanged,
}

/// The facts.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Written {
    /// Where it was written, links resolved.
    path: String,
    /// What was done.
    action: Action,
    /// Bytes of the file now.
    bytes: u64,
    /// Lines of the file now; an unterminated last one counts.
    lines: u64,
    /// The hash of the file now.
    hash: String,
    /// Lines that are new; absent when the old file was too large to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    added_lines: Option<u64>,
    /// Lines that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_lines: Option<u64>,
    /// Unified hunks, unless the file is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
    /// What of the diff is not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff_truncation: Option<DiffTruncation>,
    /// Nothing was written.
    dry_run: bool,
    /// What should be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

impl Render for Written {
    fn render(&self) -> String {
        let verb = match (self.action, self.dry_run) {
            (Action::Created, false) => "created",
            (Action::Created, true) => "would create",
            (Action::Replaced, false) => "replaced",
            (Action::Replaced, true) => "would replace",
            (Action::Appended, false) => "appended to",
            (Action::Appended, true) => "would append to",
            (Action::Unchanged, _) => "unchanged:",
        };
        let mut text = format!("{verb} {} ({} bytes, {} lines", self.path, self.bytes, self.lines);
        if let (Some(added), Some(removed)) = (self.added_lines, self.removed_lines)
            && !matches!(self.action, Action::Created | Action::Unchanged)
        {
            text.push_str(&format!(", +{added} -{removed}"));
        }
        text.push(')');
        if let Some(diff) = &self.diff {
            text.push('\n');
            text.push_str(diff);
        }
        if let Some(cut) = &self.diff_truncation {
            text.push_str(&format!("\n[{} of {} lines of the diff are shown]", cut.shown_lines, cut.total_lines));
        }
        for warning in &self.warnings {
            text.push_str(&format!("\n[note: {warning}]"));
        }
        text
    }
}

/// What other agents call the path and the content of a file that is written.
pub(super) const SYNONYMS: &[(&str, &str)] = &[
    ("file_path", "path"),
    ("filePath", "path"),
    ("file", "path"),
    ("filename", "path"),
    ("contents", "content"),
    ("file_text", "content"),
    ("text", "content"),
];

impl Spec for Write {
    type Args = Args;
    type Data = Written;
    const NAME: &'static str = "write";
    const ALIASES: &'static [&'static str] = &["sandbox_write", "write_file"];
    const ACCESS: Access = Access::Change;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Write a whole file, or append to one.\n\
        The old content or the new one is there at any moment. Parent folders are made. For a change within a file use `edit`. \
        A file that changed since it was read is not overwritten: read it again, or give its current hash as expected_hash.";
    const EXAMPLE: &'static str = r#"{"path": "src/greet.py", "content": "print('hello')\n"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = SYNONYMS;
    const TAKES_REST: bool = true;
}

impl Tool for Write {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Written, Fault> {
        let path = bench.base().rel(&args.path)?;
        let wanted = parse_hash(args.expected_hash.as_deref())?;
        if args.mode == Mode::Create && wanted.is_some() {
            return Err(Fault::new(FaultCode::InvalidArguments, "mode create makes a new file, which has no hash to expect"));
        }
        for _ in 0..ATTEMPTS {
            match attempt(bench, &args, &path, wanted) {
                // Somebody wrote in between. Where the caller relies on no old content, the new one is looked at and replaced.
                Err(Failed::Raced) => {}
                Err(Failed::For(fault)) => return Err(fault),
                Ok(written) => return Ok(written),
            }
        }
        Err(Fault::new(FaultCode::Busy, format!("{path} kept changing while it was written")).hint("try again"))
    }
}

/// Why an attempt failed.
enum Failed {
    /// For good.
    For(Fault),
    /// The file changed between the look and the rename, which nobody had relied on.
    Raced,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::For(fault)
    }
}

/// The file as it is before the write.
struct Old {
    /// `None`: too large, or not readable.
    bytes: Option<Vec<u8>>,
    hash: Option<Hash>,
    size: u64,
    mtime: i64,
    canonical: RelPath,
}

fn attempt(bench: &Bench<'_>, args: &Args, path: &RelPath, wanted: Option<Hash>) -> Result<Written, Failed> {
    let old = if args.mode == Mode::Create { None } else { look(bench, path, wanted.is_some())? };
    let mut warnings = Vec::new();
    let fresh = check_fresh(bench, path, old.as_ref(), wanted, args.mode, &mut warnings)?;
    let new = match (args.mode, &old) {
        (Mode::Append, Some(old)) => Cow::Owned(appended(path, old, args.content.as_bytes(), &mut warnings)?),
        _ => Cow::Borrowed(args.content.as_bytes()),
    };
    if args.mode != Mode::Append
        && let Some(bytes) = old.as_ref().and_then(|old| old.bytes.as_deref())
    {
        warn_of_form(bytes, &new, &mut warnings);
    }
    let expect = match (&old, args.mode) {
        (_, Mode::Create) => Expect::Absent,
        (Some(Old { hash: Some(hash), .. }), _) => Expect::Content(*hash),
        (Some(_), _) => Expect::Anything,
        (None, _) => Expect::Absent,
    };
    let options = ReplaceOptions { expect, create_dirs: args.create_dirs, executable: args.executable };
    let same = args.executable.is_none() && old.as_ref().is_some_and(|old| old.bytes.as_deref() == Some(&*new));
    let hash = Hash::of(&new);
    let (created, canonical) = match &old {
        Some(old) if same => {
            if !args.dry_run {
                bench.memory().note_lines(&old.canonical, hash, Some(Outline::of(&new)));
            }
            (false, old.canonical.clone())
        }
        _ if args.dry_run => {
            let rehearsed = bench.base().rehearse(path, &options)?;
            (rehearsed.creates, rehearsed.canonical)
        }
        _ => match bench.base().replace_known(path, old.as_ref().and_then(|old| old.bytes.as_deref()), &new, &options) {
            Ok(done) => {
                // What was appended to has parts that nobody has read; what is known of it stays, so that an overwrite is still refused.
                if fresh != Fresh::Unread {
                    bench.memory().note_written(&done, &new);
                }
                warnings.extend(done.notices);
                (done.created, done.canonical)
            }
            Err(fault) if (fresh != Fresh::Checked || (args.mode == Mode::Append && wanted.is_none())) && raced(&fault, args.mode) => {
                return Err(Failed::Raced);
            }
            Err(fault) => return Err(Failed::For(fault)),
        },
    };
    let action = match args.mode {
        _ if same => Action::Unchanged,
        _ if created => Action::Created,
        Mode::Append => Action::Appended,
        _ => Action::Replaced,
    };
    let compared = match &old {
        None => Some(diff::Diff { added: count_lines(&new), ..diff::Diff::default() }),
        Some(Old { bytes: Some(bytes), .. }) => Some(diff::unified(bytes, &new)),
        Some(_) => {
            warnings.push("the old file was too large, or not readable, and no diff is shown".into());
            None
        }
    };
    let (added_lines, removed_lines) = compared.as_ref().map(|diff| (diff.added, diff.removed)).unzip();
    let (diff, diff_truncation) = compared.map_or((None, None), |diff| ((!diff.text.is_empty()).then_some(diff.text), diff.truncation));
    Ok(Written {
        path: canonical.to_string(),
        action,
        bytes: new.len() as u64,
        lines: count_lines(&new),
        hash: hash.to_string(),
        added_lines,
        removed_lines,
        diff,
        diff_truncation,
        dry_run: args.dry_run,
        warnings,
    })
}

/// Whether a fault says that the file is no longer what the look had seen.
fn raced(fault: &Fault, mode: Mode) -> bool {
    fault.code() == FaultCode::StaleFile || (fault.code() == FaultCode::AlreadyExists && mode != Mode::Create)
}

/// What is there now. `None`: nothing. A path that cannot be written is left to the write to refuse, by the same rules.
fn look(bench: &Bench<'_>, path: &RelPath, needs_hash: bool) -> Result<Option<Old>, Fault> {
    let opened = match bench.base().open_file(path) {
        Ok(opened) => opened,
        Err(fault) if matches!(fault.code(), FaultCode::NotFound) => return Ok(None),
        Err(fault) if fault.code() == FaultCode::PermissionDenied && !needs_hash => {
            // A file that may be written and not read: there is something to replace, and nothing to compare.
            let Ok(meta) = bench.base().stat(path) else { return Err(fault) };
            return Ok(Some(Old { bytes: None, hash: None, size: meta.len(), mtime: meta.mtime(), canonical: path.clone() }));
        }
        Err(fault) => return Err(fault),
    };
    let (size, mtime, canonical) = (opened.meta.len(), opened.meta.mtime(), opened.canonical);
    if size <= WHOLE {
        match bench.base().load(path, WHOLE) {
            Ok(old) => {
                return Ok(Some(Old { size, mtime, hash: Some(old.hash), bytes: Some(old.bytes), canonical: old.canonical }));
            }
            Err(fault) if fault.code() == FaultCode::NotFound => return Ok(None),
            Err(fault) if fault.code() != FaultCode::TooLarge => return Err(fault),
            Err(_) => {}
        }
    }
    let hash = if needs_hash || bench.memory().known(&canonical).is_some() {
        let hash =
            Hash::of_reader(&opened.file).map_err(|error| Fault::new(FaultCode::IoError, format!("{path} could not be read: {error}")))?;
        Some(hash)
    } else {
        None
    };
    Ok(Some(Old { bytes: None, hash, size, mtime, canonical }))
}

/// What the stale check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fresh {
    /// Nobody relies on the old content.
    Unknown,
    /// It is what the caller knows.
    Checked,
    /// It is not what the caller knows, which an append does not mind.
    Unread,
}

/// The stale check.
fn check_fresh(
    bench: &Bench<'_>,
    path: &RelPath,
    old: Option<&Old>,
    wanted: Option<Hash>,
    mode: Mode,
    warnings: &mut Vec<String>,
) -> Result<Fresh, Fault> {
    let Some(old) = old else {
        return match wanted {
            Some(wanted) => Err(Fault::new(FaultCode::StaleFile, format!("{path} does not exist, and was expected with a hash"))
                .with("expected_hash", wanted.to_string())),
            None => {
                if bench.memory().known(path).is_some() {
                    warnings.push(format!("{path} was there when it was last read, and is made anew"));
                }
                Ok(Fresh::Unknown)
            }
        };
    };
    let Some(expected) = wanted.or_else(|| bench.memory().known(&old.canonical)) else { return Ok(Fresh::Unknown) };
    match old.hash {
        // What is added destroys nothing.
        Some(found) if found != expected && mode == Mode::Append && wanted.is_none() => {
            warnings.push(format!("{path} has changed since it was last read or written"));
            Ok(Fresh::Unread)
        }
        Some(found) if found != expected => {
            let hint = "read it again and write what fits, or give the current hash as expected_hash to overwrite it as it is";
            let known = bench.memory().known(&old.canonical) == Some(expected);
            let change = old.bytes.as_deref().filter(|_| known).and_then(|bytes| bench.memory().change(&old.canonical, bytes));
            Err(stale(path, wanted.is_some(), change, old.size)
                .hint(hint)
                .with("hash", found.to_string())
                .with("expected_hash", expected.to_string())
                .with("size", old.size)
                .with("mtime", old.mtime))
        }
        _ => Ok(Fresh::Checked),
    }
}

/// The fault of a file that is not as the caller knows it: what has changed, as far as that can be told, and how large it is now.
pub(super) fn stale(path: &RelPath, by_hash: bool, change: Option<Change>, size: u64) -> Fault {
    let since = if by_hash { "does not have the expected hash" } else { "has changed since it was last read or written" };
    let where_ = change.map(|change| format!(": {}", change.in_words())).unwrap_or_default();
    let fault = Fault::new(FaultCode::StaleFile, format!("{path} {since}{where_}; it has {size} bytes now"));
    match change {
        Some(change) => {
            let Change { first_line, last_line, was_last_line } = change;
            fault.with("changed", json!({"first_line": first_line, "last_line": last_line, "was_last_line": was_last_line}))
        }
        None => fault,
    }
}

/// The old content with the new one behind it, on a line of its own.
fn appended(path: &RelPath, old: &Old, content: &[u8], warnings: &mut Vec<String>) -> Result<Vec<u8>, Fault> {
    let Some(bytes) = &old.bytes else {
        return Err(Fault::new(FaultCode::TooLarge, format!("{path} is too large to be appended to ({} bytes)", old.size))
            .with("size", old.size)
            .with("limit", WHOLE));
    };
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(Fault::new(FaultCode::NotEncodable, format!("{path} is UTF-16 text, and what is appended would be UTF-8"))
            .hint("use edit with insert_line, which keeps the encoding"));
    }
    let crlf = is_crlf(bytes);
    let mut new = bytes.clone();
    if content.is_empty() {
        return Ok(new);
    }
    if !new.is_empty() && !new.ends_with(b"\n") && bytes != b"\xef\xbb\xbf" {
        new.extend_from_slice(if crlf { b"\r\n" } else { b"\n" });
        warnings.push("the last line had no line end; one was put before what was appended".into());
    }
    if crlf && has_lone_lf(content) {
        warnings.push("the file has CRLF line ends, and what was appended has LF".into());
    }
    new.extend_from_slice(content);
    Ok(new)
}

/// Says what of the old file's form the new content has not.
fn warn_of_form(old: &[u8], new: &[u8], warnings: &mut Vec<String>) {
    if new.is_empty() {
        return;
    }
    let boms: [(&[u8], &str); 3] =
        [(b"\xef\xbb\xbf", "UTF-8 byte order mark"), (b"\xff\xfe", "UTF-16 encoding"), (b"\xfe\xff", "UTF-16 encoding")];
    if let Some((_, name)) = boms.iter().find(|(bom, _)| old.starts_with(bom) && !new.starts_with(bom)) {
        warnings.push(format!("the old file had a {name}, and the new content has not"));
    }
    if is_crlf(old) && has_lone_lf(new) {
        warnings.push("the old file had CRLF line ends, and the new content has LF".into());
    }
}

/// Whether most lines end in CRLF.
fn is_crlf(bytes: &[u8]) -> bool {
    let lf = bytes.iter().filter(|byte| **byte == b'\n').count();
    let crlf = bytes.windows(2).filter(|pair| pair == b"\r\n").count();
    crlf > 0 && crlf * 2 >= lf
}

fn has_lone_lf(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || bytes[at - 1] != b'\r'))
}

/// Lines of a content; an unterminated last one counts.
pub(super) fn count_lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64 + u64::from(bytes.last().is_some_and(|byte| *byte != b'\n'))
}

/// Reads a hash as the replies show it.
pub(super) fn parse_hash(text: Option<&str>) -> Result<Option<Hash>, Fault> {
    text.map(|text| {
        text.trim().parse().map_err(|()| {
            Fault::new(FaultCode::InvalidArguments, format!("expected_hash {text:?} is not a hash"))
                .hint("it is `hash` of a reply of read, write or edit: sha256: and 64 hexadecimal digits")
        })
    })
    .transpose()
}

fn yes() -> bool {
    true
}
