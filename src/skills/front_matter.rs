//! The text of a `SKILL.md`: YAML between two lines of `---`, then instructions in Markdown.
//!
//! A skill to the letter of the specification gives no note. What can only be meant in one way is read in that way and noted: a name in
//! capitals or unlike its folder, fields that the specification does not know, a description that is too long, a value that YAML wants in
//! quotes. What cannot be used at all is refused with a sentence: no front matter, no description, no name that is one.

use super::Skill;
use unicode_normalization::UnicodeNormalization;
use yaml_serde::{Mapping, Value};

/// The most bytes of a `SKILL.md`.
pub const MOST_TEXT: u64 = 256 * 1024;
/// The most bytes of its front matter.
const MOST_FRONT: usize = 64 * 1024;
/// The bounds of the specification, in characters.
const MOST_NAME: usize = 64;
const MOST_DESCRIPTION: usize = 1024;
const MOST_COMPATIBILITY: usize = 500;
/// Fields of plain text, whose values people forget to quote.
const PLAIN: [&str; 5] = ["name", "description", "license", "compatibility", "allowed-tools"];
/// The most entries of `metadata`, and the most characters of a value of it.
const MOST_METADATA: usize = 64;
const MOST_VALUE: usize = 1000;

/// Reads a `SKILL.md` that lies in a folder of this name.
///
/// # Errors
/// A sentence: why it is no skill.
pub fn read(folder: &str, text: &str) -> Result<Skill, String> {
    let (front, _, mut notes) = split(text)?;
    let mut fields = mapping(&front, &mut notes)?;
    let name = name(take(&mut fields, "name", &mut notes), folder, &mut notes)?;
    let description = description(take(&mut fields, "description", &mut notes), &mut notes)?;
    let license = take(&mut fields, "license", &mut notes).map(|text| one_line(&text));
    let compatibility = take(&mut fields, "compatibility", &mut notes).map(|text| one_line(&text));
    if compatibility.as_ref().is_some_and(|text| text.chars().count() > MOST_COMPATIBILITY) {
        notes.push(format!("its compatibility is longer than {MOST_COMPATIBILITY} characters"));
    }
    let allowed_tools = fields.remove("allowed-tools").and_then(|value| match value {
        Value::Sequence(list) => Some(list.iter().filter_map(scalar).collect::<Vec<_>>().join(" ")),
        value => scalar(&value),
    });
    let metadata = match fields.remove("metadata") {
        Some(Value::Mapping(entries)) => metadata(&entries),
        _ => Vec::new(),
    };
    let mut unknown: Vec<String> = fields.keys().map(|key| scalar(key).unwrap_or_else(|| "a key that is no text".into())).collect();
    unknown.sort();
    if !unknown.is_empty() {
        notes.push(format!("fields that skills do not have were left out: {}", shorten(&unknown.join(", "), 200)));
    }
    let cut = |text: String| shorten(&text, MOST_VALUE);
    Ok(Skill {
        name,
        description,
        license: license.map(cut),
        compatibility: compatibility.map(cut),
        metadata,
        allowed_tools: allowed_tools.map(|text| shorten(&one_line(&text), MOST_VALUE)),
        notes,
    })
}

/// The instructions: the text behind the front matter, without blank lines around it.
///
/// # Errors
/// As [`read`].
pub fn body(text: &str) -> Result<String, String> {
    split(text).map(|(_, body, _)| body.trim().to_owned())
}

/// Front matter, body, notes.
fn split(text: &str) -> Result<(String, String, Vec<String>), String> {
    let mut notes = Vec::new();
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let bare = text.trim_start_matches(|c: char| c == '\u{feff}' || c.is_whitespace());
    if bare.len() < text.len() {
        notes.push("it does not begin with its front matter, but with blanks or a byte-order mark".into());
    }
    let Some(rest) = bare.strip_prefix("---") else {
        return Err("it has no front matter: the first line has to be ---".into());
    };
    // As the reference reads it, the mark ends nothing but itself: what stands behind it on its line belongs to the YAML.
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if at > 0 && line.starts_with("---") {
            if at > MOST_FRONT {
                break;
            }
            return Ok((rest[..at].to_owned(), rest[at + 3..].to_owned(), notes));
        }
        at += line.len();
    }
    match at > MOST_FRONT {
        true => Err(format!("its front matter is longer than {MOST_FRONT} bytes")),
        false => Err("its front matter has no end: a line of --- has to close it".into()),
    }
}

/// The front matter as a mapping; where it is no YAML, once more with its plain values quoted.
fn mapping(front: &str, notes: &mut Vec<String>) -> Result<Mapping, String> {
    let said = |error: yaml_serde::Error| format!("its front matter is no YAML: {}", shorten(&one_line(&error.to_string()), 200));
    let value: Value = match yaml_serde::from_str(front) {
        Ok(value) => value,
        Err(error) => match yaml_serde::from_str(&quoted(front)) {
            Ok(value) => {
                notes.push(format!("{}; it was read with its plain values in quotes", said(error)));
                value
            }
            Err(_) => return Err(said(error)),
        },
    };
    if beyond_plain(front) {
        notes.push("its front matter uses lists in brackets, anchors or tags, which other readers of skills refuse".into());
    }
    match value {
        Value::Mapping(fields) => Ok(fields),
        Value::Null => Err("its front matter is empty".into()),
        _ => Err("its front matter is no list of keys and values".into()),
    }
}

/// The front matter with the values of plain fields in quotes, where they stand on one line and have none.
fn quoted(front: &str) -> String {
    let quote = |line: &str| -> Option<String> {
        let (key, value) = line.split_once(':')?;
        let value = value.trim();
        let has_quotes = value.starts_with(['"', '\'', '|', '>', '[', '{', '&', '*', '!']);
        (PLAIN.contains(&key) && !value.is_empty() && !has_quotes).then(|| format!("{key}: '{}'", value.replace('\'', "''")))
    };
    front.lines().map(|line| quote(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// Whether some value is written in brackets, or with an anchor, an alias or a tag. Lines of block texts say nothing.
fn beyond_plain(front: &str) -> bool {
    let mut block: Option<usize> = None;
    for line in front.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        if block.is_some_and(|outer| indent > outer) {
            continue;
        }
        block = None;
        let item = line.trim_start();
        let item = item.strip_prefix("- ").unwrap_or(item);
        let value = item.split_once(": ").map_or(item, |(_, value)| value).trim_start();
        if value.starts_with(['|', '>']) {
            block = Some(indent);
        } else if value.starts_with(['{', '[', '&', '*', '!']) {
            return true;
        }
    }
    false
}

/// A field of plain text. A number or a truth value is the text that it was written as, near enough.
fn take(fields: &mut Mapping, key: &str, notes: &mut Vec<String>) -> Option<String> {
    let value = fields.remove(key)?;
    let text = scalar(&value);
    if text.is_none() && !value.is_null() {
        notes.push(format!("its {key} is no text and was left out"));
    }
    text
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    }
}

/// The name: as it is written where that is one and is the folder's; else the folder's, else the written one in small letters.
fn name(written: Option<String>, folder: &str, notes: &mut Vec<String>) -> Result<String, String> {
    let folder: String = folder.nfkc().collect();
    let written: Option<String> = written.map(|name| name.trim().nfkc().collect()).filter(|name: &String| !name.is_empty());
    let small = folder.to_lowercase();
    let shown = |name: &str| shorten(&one_line(name), MOST_NAME);
    match &written {
        Some(name) if is_name(name) && *name == folder => Ok(folder),
        _ if is_name(&small) => {
            notes.push(match &written {
                None => format!("it has no name and is called as its folder, {small}"),
                Some(name) => format!("its name, {:?}, is not that of its folder, {small}, by which it is called", shown(name)),
            });
            Ok(small)
        }
        Some(name) if is_name(&name.to_lowercase()) => {
            let name = name.to_lowercase();
            notes.push(format!("its folder, {:?}, has not its name, {name}", shown(&folder)));
            Ok(name)
        }
        _ => Err(format!(
            "neither its name, {:?}, nor its folder's, {:?}, is one: 1 to {MOST_NAME} small letters, digits and single hyphens between them",
            shown(written.as_deref().unwrap_or_default()),
            shown(&folder)
        )),
    }
}

/// Whether a text is a skill's name.
pub fn is_name(name: &str) -> bool {
    let count = name.chars().count();
    (1..=MOST_NAME).contains(&count)
        && name.chars().all(|c| c.is_alphanumeric() || c == '-')
        && name.to_lowercase() == name
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

fn description(written: Option<String>, notes: &mut Vec<String>) -> Result<String, String> {
    let written = written.unwrap_or_default();
    let count = written.chars().count();
    let line = one_line(&written);
    if line.is_empty() {
        return Err("it has no description, by which a model would know when to use it".into());
    }
    if count > MOST_DESCRIPTION {
        notes.push(format!("its description has {count} characters, and {MOST_DESCRIPTION} are shown"));
    }
    Ok(shorten(&line, MOST_DESCRIPTION))
}

fn metadata(entries: &Mapping) -> Vec<(String, String)> {
    let text = |value: &Value| match value {
        Value::Sequence(_) | Value::Mapping(_) => yaml_serde::to_string(value).unwrap_or_default(),
        value => scalar(value).unwrap_or_default(),
    };
    let each = entries.iter().filter_map(|(key, value)| Some((scalar(key)?, text(value))));
    each.take(MOST_METADATA).map(|(key, value)| (shorten(&one_line(&key), MOST_NAME), shorten(&one_line(&value), MOST_VALUE))).collect()
}

/// A text on one line, without characters that steer a terminal or the direction of writing.
pub fn one_line(text: &str) -> String {
    let hidden = |c: char| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    let kept: String = text.chars().filter(|c| !hidden(*c)).map(|c| if c.is_control() { ' ' } else { c }).collect();
    kept.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// At most so many characters; the last is `…` where some were cut.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_to_the_letter_has_no_notes() {
        let text = "---\nname: pdf-tools\ndescription: >-\n  Reads PDF files.\n  Use for forms.\nlicense: MIT\nmetadata:\n  version: 1.0\n  tags:\n  - a\n  - b\n\
                    allowed-tools: Bash(git:*) Read\ncompatibility: needs python3\n---\n\n# PDF\n\nDo this.\n";
        let skill = read("pdf-tools", text).unwrap();
        assert_eq!(skill.notes, [] as [String; 0]);
        assert_eq!((skill.name.as_str(), skill.description.as_str()), ("pdf-tools", "Reads PDF files. Use for forms."));
        assert_eq!(skill.allowed_tools.as_deref(), Some("Bash(git:*) Read"));
        assert_eq!(skill.metadata, [("version".into(), "1.0".into()), ("tags".into(), "- a - b".into())]);
        assert_eq!(body(text).unwrap(), "# PDF\n\nDo this.");
    }

    #[test]
    fn form_is_mended_and_noted() {
        for (folder, text, name, note) in [
            ("a", "---\nname: A\ndescription: d\n---\n", "a", "not that of its folder"),
            ("My Folder", "---\nname: b\ndescription: d\n---\n", "b", "has not its name"),
            ("a", "---\ndescription: d\n---\n", "a", "has no name"),
            ("a", "\u{feff}---\nname: a\ndescription: d\n---\n", "a", "byte-order mark"),
            ("a", "---\nname: a\ndescription: Use when: always\n---\n", "a", "in quotes"),
            ("a", "---\nname: a\ndescription: d\nversion: 3\n---\n", "a", "left out: version"),
            ("a", "---\nname: [x]\ndescription: d\n---\n", "a", "is no text"),
        ] {
            let skill = read(folder, text).unwrap();
            assert_eq!(skill.name, name, "{text}");
            assert!(skill.notes.iter().any(|said| said.contains(note)), "{text}: {:?}", skill.notes);
        }
        let long = format!("---\nname: a\ndescription: {}\n---\n", "é".repeat(2000));
        assert_eq!(read("a", &long).unwrap().description.chars().count(), 1024);
        assert_eq!(read("a", "---\nname: a\ndescription: 12\n---\n").unwrap().description, "12");
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        for (folder, text, says) in [
            ("a", "# a\n", "no front matter"),
            ("a", "---\nname: a\ndescription: d\n", "no end"),
            ("a", "---\nname: a\n---\n", "no description"),
            ("a", "---\nname: a\ndescription: \"\\u202e \"\n---\n", "no description"),
            ("a", "---\n- a\n---\n", "no list of keys"),
            ("a", "---\n---\n", "empty"),
            ("a", "---\nname: {\n---\n", "no YAML"),
            ("a--b", "---\nname: -\ndescription: d\n---\n", "neither its name"),
            ("..", "---\nname: ../x\ndescription: d\n---\n", "neither its name"),
        ] {
            let refused = read(folder, text).unwrap_err();
            assert!(refused.contains(says), "{text}: {refused}");
        }
        let bomb: String =
            (0..30).map(|i| format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(", ")).replace("*a-1", "x")).collect();
        assert!(read("a", &format!("---\n{bomb}name: a\ndescription: d\n---\n")).is_err());
    }

    #[test]
    fn nothing_hides_in_a_line() {
        assert_eq!(one_line("a\u{1b}[31m\nb\u{202e}c\u{200b}\u{e0041}d\0"), "a [31m bcd");
    }
}
