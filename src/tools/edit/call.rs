//! The arguments of `edit`, and other agents' ways to spell them.

use super::plan::Replacement;
use crate::envelope::{Data, Fault, FaultCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// The arguments.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Args {
    /// The file, relative to the workspace. A patch that names its files needs none.
    #[serde(default)]
    pub(super) path: Option<String>,
    /// The text to replace, with enough lines around it to be the only one in the file.
    #[serde(default)]
    pub(super) old_string: Option<String>,
    /// The text to put there, as it is.
    #[serde(default)]
    pub(super) new_string: Option<String>,
    /// Several edits of the file; all are matched against the file as it is, and all are made or none.
    #[serde(default)]
    pub(super) edits: Option<Vec<Item>>,
    /// Replace every occurrence.
    #[serde(default)]
    pub(super) replace_all: Option<bool>,
    /// Of several occurrences, take the one nearest to this line (1-based).
    #[serde(default)]
    pub(super) near_line: Option<u64>,
    /// Insert new_string as lines of its own after this line (0: at the beginning), without old_string.
    #[serde(default)]
    pub(super) insert_line: Option<u64>,
    /// Edit only if the file's hash is this one; also overrides the check whether the file changed since it was read.
    #[serde(default)]
    pub(super) expected_hash: Option<String>,
    /// Only say what would be done.
    #[serde(default)]
    pub(super) dry_run: bool,
    /// Only the exact text matches.
    #[serde(default)]
    pub(super) strict: bool,
    /// Instead of old_string and new_string: an apply_patch block, SEARCH/REPLACE blocks or a unified diff, over one file or several.
    #[serde(default)]
    pub(super) patch: Option<String>,
}

/// One of several edits.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// The text to replace.
    #[serde(default)]
    pub(super) old_string: Option<String>,
    /// The text to put there.
    pub(super) new_string: String,
    /// Replace every occurrence.
    #[serde(default)]
    pub(super) replace_all: Option<bool>,
    /// Of several occurrences, take the one nearest to this line.
    #[serde(default)]
    pub(super) near_line: Option<u64>,
    /// Insert new_string after this line, without old_string.
    #[serde(default)]
    pub(super) insert_line: Option<u64>,
}

/// Other agents' names, at the top and within the items of `edits`.
pub(super) const SYNONYMS: &[(&str, &str)] = &[
    ("file_path", "path"),
    ("filePath", "path"),
    ("filepath", "path"),
    ("filename", "path"),
    ("file", "path"),
    ("target_file", "path"),
    ("oldText", "old_string"),
    ("old_text", "old_string"),
    ("oldString", "old_string"),
    ("old_str", "old_string"),
    ("oldStr", "old_string"),
    ("old", "old_string"),
    ("before", "old_string"),
    ("search", "old_string"),
    ("find", "old_string"),
    ("newText", "new_string"),
    ("new_text", "new_string"),
    ("newString", "new_string"),
    ("new_str", "new_string"),
    ("newStr", "new_string"),
    ("new", "new_string"),
    ("after", "new_string"),
    ("replace", "new_string"),
    ("replacement", "new_string"),
    ("replaceAll", "replace_all"),
    ("allow_multiple", "replace_all"),
    ("allowMultiple", "replace_all"),
    ("multiple", "replace_all"),
    ("nearLine", "near_line"),
    ("insertLine", "insert_line"),
    ("expectedHash", "expected_hash"),
    ("dryRun", "dry_run"),
    ("diff", "patch"),
    ("patchText", "patch"),
    ("changes", "edits"),
    ("replacements", "edits"),
];

fn invalid(message: impl Into<String>) -> Fault {
    Fault::new(FaultCode::InvalidArguments, message)
        .hint(r#"for example edit {"path": "src/a.rs", "edits": [{"old_string": "a", "new_string": "b"}]}"#)
}

/// Brings `edits` into its form: from a JSON string, a single item, items as JSON strings, items with other agents' names.
pub(super) fn prepare(args: &mut Data) -> Result<Vec<String>, Fault> {
    let mut warnings = Vec::new();
    let Some(edits) = args.get_mut("edits") else { return Ok(warnings) };
    if let Value::String(text) = edits {
        *edits = decode("edits", text)?;
        warnings.push("edits came as a JSON string and was decoded".into());
    }
    if edits.is_object() {
        *edits = Value::Array(vec![edits.take()]);
        warnings.push("edits was one item and was read as a list".into());
    }
    let Value::Array(items) = edits else { return Err(invalid("edits is not a list")) };
    let mut decoded = false;
    let mut renamed: Vec<String> = Vec::new();
    let mut paths = Vec::new();
    for (index, item) in items.iter_mut().enumerate() {
        let name = format!("edits[{index}]");
        if let Value::String(text) = item {
            *item = decode(&name, text)?;
            decoded = true;
        }
        let Value::Object(fields) = item else { return Err(invalid(format!("{name} is not an object"))) };
        for (theirs, ours) in SYNONYMS {
            if let Some(value) = fields.shift_remove(*theirs) {
                if fields.get(*ours).is_some_and(|given| !given.is_null() && *given != value) {
                    return Err(invalid(format!("{name}: {theirs} and {ours} are the same and were given different values")));
                }
                fields.insert((*ours).into(), value);
                if !renamed.iter().any(|known| known == theirs) {
                    renamed.push((*theirs).into());
                    warnings.push(format!("{theirs} in edits was read as {ours}"));
                }
            }
        }
        fields.retain(|_, value| !value.is_null());
        if let Some(Value::String(path)) = fields.shift_remove("path") {
            paths.push(path);
        }
        let known = ["old_string", "new_string", "replace_all", "near_line", "insert_line"];
        let unknown: Vec<String> = fields.keys().filter(|key| !known.contains(&key.as_str())).cloned().collect();
        for key in unknown {
            fields.shift_remove(&key);
            warnings.push(format!("unknown {key:?} in {name} was ignored"));
        }
        for (key, value) in fields.iter_mut() {
            let text = value.as_str().map(|text| text.trim().to_ascii_lowercase());
            let sent = value.is_string();
            match (key.as_str(), text.as_deref()) {
                ("replace_all", Some("true" | "yes" | "1")) => *value = true.into(),
                ("replace_all", Some("false" | "no" | "0" | "")) => *value = false.into(),
                ("near_line" | "insert_line", Some(text)) => {
                    *value =
                        text.parse::<u64>().map_err(|_| invalid(format!("{name}: {key} is {text:?}, and should be a line number")))?.into();
                }
                _ => {}
            }
            if sent && !value.is_string() {
                warnings.push(format!("{key} in {name} was sent as a string"));
            }
        }
        if !fields.contains_key("new_string") {
            return Err(invalid(format!("{name} needs new_string (it may be empty)")));
        }
    }
    if decoded {
        warnings.push("items of edits came as JSON strings and were decoded".into());
    }
    // A path within the items is the path, when there is only one.
    paths.sort();
    paths.dedup();
    match (&paths[..], args.get("path").and_then(Value::as_str)) {
        ([], _) => {}
        ([only], None) => {
            args.insert("path".into(), only.clone().into());
            warnings.push("path was taken from the items of edits".into());
        }
        ([only], Some(path)) if only == path => {}
        _ => return Err(invalid("edits are for one file; use patch, or one call for each file")),
    }
    Ok(warnings)
}

/// Decodes JSON that came as a string; says where it is broken.
fn decode(name: &str, text: &str) -> Result<Value, Fault> {
    serde_json::from_str(text).map_err(|error| {
        let before: usize = text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let at = before + error.column().saturating_sub(1);
        invalid(format!("{name} is a string that is no JSON: {error} (byte {at})")).with("byte", at)
    })
}

/// The edits that the arguments ask for; nothing is guessed.
pub(super) fn replacements(args: Args) -> Result<Vec<Replacement>, Fault> {
    let one = args.old_string.is_some() || args.new_string.is_some() || args.insert_line.is_some();
    match args.edits {
        Some(items) if !items.is_empty() => {
            if one || args.near_line.is_some() {
                return Err(invalid("edits stands beside old_string, new_string, near_line or insert_line; give one or the other"));
            }
            let all = args.replace_all;
            Ok(items
                .into_iter()
                .map(|item| Replacement {
                    old: item.old_string.unwrap_or_default(),
                    new: item.new_string,
                    replace_all: item.replace_all.or(all).unwrap_or(false),
                    near_line: item.near_line,
                    insert_line: item.insert_line,
                    ..Replacement::default()
                })
                .collect())
        }
        _ => {
            let missing: Vec<&str> =
                [("old_string", args.old_string.is_some() || args.insert_line.is_some()), ("new_string", args.new_string.is_some())]
                    .iter()
                    .filter_map(|(name, there)| (!there).then_some(*name))
                    .collect();
            if !missing.is_empty() {
                return Err(invalid(format!("edit needs {} (or edits, or patch)", missing.join(" and "))).with("missing", missing));
            }
            Ok(vec![Replacement {
                old: args.old_string.unwrap_or_default(),
                new: args.new_string.unwrap_or_default(),
                replace_all: args.replace_all.unwrap_or(false),
                near_line: args.near_line,
                insert_line: args.insert_line,
                ..Replacement::default()
            }])
        }
    }
}
