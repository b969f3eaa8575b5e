//! Patches, as models write them: apply_patch blocks, SEARCH/REPLACE blocks, unified diffs. This reads them into edits of files; it matches
//! and opens nothing. What says neither what to do nor where is refused.

use super::plan::Replacement;
use crate::envelope::{Fault, FaultCode};

/// What a patch does to one file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operation {
    /// Changes its text, its name, or both.
    Update { path: String, to: Option<String>, edits: Vec<Replacement> },
    /// Makes it.
    Add { path: String, content: String },
    /// Removes it. `lines`: where the patch shows what was in it, edits that have to leave nothing.
    Delete { path: String, lines: Option<Vec<Replacement>> },
}

impl Operation {
    /// The file.
    pub(super) fn path(&self) -> &str {
        match self {
            Self::Update { path, .. } | Self::Add { path, .. } | Self::Delete { path, .. } => path,
        }
    }
}

/// Reads a patch. `path` is the file of blocks that name none.
///
/// # Errors
/// `invalid_patch`, with the line of the patch.
pub(super) fn parse(text: &str, path: Option<&str>) -> Result<Vec<Operation>, Fault> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |wanted: &str| lines.iter().any(|line| line.trim_end().starts_with(wanted));
    let operations = if begins("*** Begin Patch") || begins("*** Update File:") || begins("*** Add File:") || begins("*** Delete File:") {
        apply_patch(&lines)?
    } else if lines.iter().any(|line| is_search(line)) {
        search_replace(&lines, path)?
    } else if begins("@@ ") || begins("--- ") || begins("diff --git ") {
        unified(&lines, path)?
    } else {
        return Err(invalid(0, "this is no apply_patch block, no SEARCH/REPLACE block and no unified diff")
            .hint("an apply_patch block begins with *** Begin Patch, then *** Update File: PATH, then @@ and lines that begin with ' ', '-' or '+'"));
    };
    if operations.is_empty() {
        return Err(invalid(0, "the patch changes nothing"));
    }
    merged(operations)
}

fn invalid(line: usize, message: impl std::fmt::Display) -> Fault {
    match line {
        0 => Fault::new(FaultCode::InvalidPatch, message.to_string()),
        line => Fault::new(FaultCode::InvalidPatch, format!("line {line} of the patch: {message}")).with("patch_line", line),
    }
}

/// Several updates of one file become one; anything else that names a file twice is refused.
fn merged(operations: Vec<Operation>) -> Result<Vec<Operation>, Fault> {
    let mut merged: Vec<Operation> = Vec::new();
    for operation in operations {
        let Some(known) = merged.iter_mut().find(|known| known.path() == operation.path()) else {
            merged.push(operation);
            continue;
        };
        match (known, operation) {
            (Operation::Update { edits, to, .. }, Operation::Update { edits: more, to: None, .. }) if to.is_none() => edits.extend(more),
            (_, operation) => return Err(invalid(0, format!("{} is named twice", operation.path()))),
        }
    }
    Ok(merged)
}

/// The lines of one hunk, as they come.
#[derive(Default)]
struct Hunk {
    old: String,
    new: String,
    changes: bool,
    removes: bool,
    context: bool,
    after: Vec<String>,
    at_end: bool,
    near_line: Option<u64>,
    begin: usize,
}

impl Hunk {
    /// Takes a line with its sign; `false` for one that is no line of a hunk.
    fn take(&mut self, line: &str) -> bool {
        let (sign, text) = match line.chars().next() {
            // An editor or a model has taken off the blank before an empty line.
            None => (' ', ""),
            Some(sign @ (' ' | '+' | '-')) => (sign, &line[1..]),
            Some('\t') => (' ', line),
            _ => return false,
        };
        if sign != '+' {
            self.old.push_str(text);
            self.old.push('\n');
        }
        if sign != '-' {
            self.new.push_str(text);
            self.new.push('\n');
        }
        self.changes |= sign != ' ';
        self.removes |= sign == '-';
        self.context |= sign == ' ';
        true
    }

    /// `\ No newline at end of file` after this line.
    fn unfinished(&mut self, last: &str) {
        if !last.starts_with('+') {
            self.old.pop();
        }
        if !last.starts_with('-') {
            self.new.pop();
        }
    }

    /// Takes off empty lines that stand between this hunk and what follows it.
    fn trim_end(&mut self, empty: usize) {
        for _ in 0..empty {
            self.old.pop();
            self.new.pop();
        }
    }

    fn finish(self) -> Result<Replacement, Fault> {
        if !self.changes {
            return Err(invalid(self.begin, "the hunk changes nothing"));
        }
        if self.old.is_empty() && self.after.is_empty() && !self.at_end {
            return Err(invalid(self.begin, "the hunk only adds lines, and says nothing of where")
                .hint("give lines of the file around them, or the line that they follow after @@"));
        }
        Ok(Replacement {
            old: self.old,
            new: self.new,
            near_line: self.near_line,
            whole_lines: true,
            after: self.after,
            at_end: self.at_end,
            ..Replacement::default()
        })
    }
}

fn apply_patch(lines: &[&str]) -> Result<Vec<Operation>, Fault> {
    let header = |line: &str| line.starts_with("*** ");
    let mut operations = Vec::new();
    let mut at = lines.iter().position(|line| line.trim_end() == "*** Begin Patch").map_or(0, |begin| begin + 1);
    while at < lines.len() {
        let line = lines[at].trim_end();
        at += 1;
        if line == "*** End Patch" {
            break;
        }
        if line.is_empty() || line == "*** Begin Patch" {
            continue;
        }
        let name = |prefix: &str| line.strip_prefix(prefix).map(|path| path.trim().to_owned());
        if let Some(path) = name("*** Delete File:") {
            operations.push(Operation::Delete { path, lines: None });
        } else if let Some(path) = name("*** Add File:") {
            let mut content = String::new();
            while at < lines.len() && !header(lines[at]) {
                match lines[at].strip_prefix('+') {
                    Some(text) => {
                        content.push_str(text);
                        content.push('\n');
                    }
                    None if lines[at].trim().is_empty() => {}
                    None => return Err(invalid(at + 1, "a line of a new file begins with +")),
                }
                at += 1;
            }
            operations.push(Operation::Add { path, content });
        } else if let Some(path) = name("*** Update File:") {
            let mut to = None;
            if let Some(target) = lines.get(at).and_then(|line| line.trim_end().strip_prefix("*** Move to:")) {
                to = Some(target.trim().to_owned());
                at += 1;
            }
            let (edits, next) = update(lines, at)?;
            at = next;
            if edits.is_empty() && to.is_none() {
                return Err(invalid(at, format!("there is no hunk for {path}")));
            }
            operations.push(Operation::Update { path, to, edits });
        } else {
            return Err(invalid(at, format!("{line:?} is no header of an apply_patch block")));
        }
    }
    Ok(operations)
}

/// The hunks of an `*** Update File`, up to the next header.
fn update(lines: &[&str], mut at: usize) -> Result<(Vec<Replacement>, usize), Fault> {
    let mut edits = Vec::new();
    let mut hunk: Option<Hunk> = None;
    let mut empty = 0;
    while at < lines.len() {
        let line = lines[at];
        let trimmed = line.trim_end();
        if trimmed == "*** End of File" {
            hunk.get_or_insert_with(Hunk::default).at_end = true;
            at += 1;
            continue;
        }
        if line.starts_with("*** ") {
            break;
        }
        at += 1;
        if let Some(rest) = trimmed.strip_prefix("@@") {
            let open = hunk.as_ref().is_some_and(|hunk| hunk.old.is_empty() && hunk.new.is_empty());
            if !open && let Some(mut done) = hunk.take() {
                done.trim_end(empty);
                edits.push(done.finish()?);
            }
            empty = 0;
            let hunk = hunk.get_or_insert_with(|| Hunk { begin: at, ..Hunk::default() });
            match rest.trim() {
                "" | "@@" => {}
                // The numbers of a unified diff.
                numbers if numbers.starts_with('-') && numbers.contains(" +") => hunk.near_line = old_start(numbers),
                anchor => hunk.after.push(anchor.to_owned()),
            }
            continue;
        }
        let hunk = hunk.get_or_insert_with(|| Hunk { begin: at, ..Hunk::default() });
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if !hunk.take(line) {
            return Err(invalid(at, format!("{line:?} begins with none of ' ', '-', '+' and @@")));
        }
    }
    if let Some(mut done) = hunk {
        done.trim_end(empty);
        edits.push(done.finish()?);
    }
    Ok((edits, at))
}

/// The first number of `-12,3 +12,4`.
fn old_start(numbers: &str) -> Option<u64> {
    numbers.strip_prefix('-')?.split([',', ' ']).next()?.parse().ok()
}

/// The lengths of `-12,3 +12,4`.
fn lengths(numbers: &str) -> Option<(usize, usize)> {
    let mut sides = numbers.split_whitespace();
    let mut length = |sign: char| -> Option<usize> {
        let side = sides.next()?.strip_prefix(sign)?;
        side.split_once(',').map_or(Some(1), |(_, length)| length.parse().ok())
    };
    Some((length('-')?, length('+')?))
}

fn is_marker(line: &str, sign: char, word: &str) -> bool {
    let rest = line.trim_start_matches(sign);
    (5..=9).contains(&(line.len() - rest.len())) && rest.trim() == word
}

fn is_search(line: &str) -> bool {
    is_marker(line, '<', "SEARCH") || is_marker(line, '-', "SEARCH")
}

fn search_replace(lines: &[&str], path: Option<&str>) -> Result<Vec<Operation>, Fault> {
    let mut operations = Vec::new();
    let mut current: Option<String> = None;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        at += 1;
        if !is_search(line) {
            let name = line.trim().trim_matches(['`', '*', ':']).trim();
            if !name.is_empty() && !line.trim_start().starts_with("```") {
                current = Some(name.to_owned());
            }
            continue;
        }
        let begin = at;
        let section = |from: usize, ends: &dyn Fn(&str) -> bool, what: &str| {
            let length =
                lines[from..].iter().position(|line| ends(line)).ok_or_else(|| invalid(begin, format!("the block has no {what}")))?;
            let text: String = lines[from..from + length].iter().flat_map(|line| [*line, "\n"]).collect();
            Ok::<_, Fault>((text, from + length + 1))
        };
        let (old, next) = section(at, &|line| is_marker(line, '=', ""), "=======")?;
        let (new, next) = section(next, &|line| is_marker(line, '>', "REPLACE") || is_marker(line, '+', "REPLACE"), ">>>>>>> REPLACE")?;
        at = next;
        let Some(path) = path.map(str::to_owned).or_else(|| current.clone()) else {
            return Err(invalid(begin, "the block names no file").hint("give path, or the file's name on the line before the block"));
        };
        operations.push(if old.is_empty() {
            Operation::Add { path, content: new }
        } else {
            Operation::Update { path, to: None, edits: vec![Replacement { old, new, whole_lines: true, ..Replacement::default() }] }
        });
    }
    Ok(operations)
}

/// What the headers of a unified diff say of one file.
#[derive(Default)]
struct Headers {
    old: Option<String>,
    new: Option<String>,
    from: Option<String>,
    to: Option<String>,
}

impl Headers {
    /// The operation for the hunks that follow. Without headers: the file of the call.
    fn operation(self, hunks: Vec<Hunk>, path: Option<&str>, line: usize) -> Result<Operation, Fault> {
        let null = |name: &Option<String>| name.as_deref() == Some("/dev/null");
        let git = |name: &Option<String>, side: &str| name.as_ref().is_none_or(|name| name == "/dev/null" || name.starts_with(side));
        let prefixed = git(&self.old, "a/") && git(&self.new, "b/");
        let clean = |name: &str| if prefixed { name.get(2..).unwrap_or_default().to_owned() } else { name.to_owned() };
        if null(&self.old)
            && let Some(new) = self.new.as_deref()
        {
            if hunks.iter().any(|hunk| !hunk.old.is_empty()) {
                return Err(invalid(line, "a new file has lines that were there before"));
            }
            return Ok(Operation::Add { path: clean(new), content: hunks.into_iter().map(|hunk| hunk.new).collect() });
        }
        if null(&self.new)
            && let Some(old) = self.old.as_deref()
        {
            if hunks.iter().any(|hunk| !hunk.new.is_empty()) {
                return Err(invalid(line, "a file that is removed has lines that are there afterwards"));
            }
            let lines = hunks.into_iter().map(Hunk::finish).collect::<Result<Vec<_>, _>>()?;
            return Ok(Operation::Delete { path: clean(old), lines: Some(lines) });
        }
        let edits = hunks.into_iter().map(Hunk::finish).collect::<Result<Vec<_>, _>>()?;
        let (old, new) = (self.from.or(self.old.as_deref().map(clean)), self.to.or(self.new.as_deref().map(clean)));
        let (path, to) = match (old, new) {
            (Some(old), Some(new)) if old == new => (old, None),
            (Some(old), Some(new)) => (old, Some(new)),
            (Some(one), None) | (None, Some(one)) => (one, None),
            (None, None) => match path {
                Some(path) => (path.to_owned(), None),
                None => {
                    return Err(invalid(line, "the diff names no file").hint("give path, or --- a/PATH and +++ b/PATH before the hunks"));
                }
            },
        };
        if edits.is_empty() && to.is_none() {
            return Err(invalid(line, format!("there is no hunk for {path}")));
        }
        Ok(Operation::Update { path, to, edits })
    }
}

fn unified(lines: &[&str], path: Option<&str>) -> Result<Vec<Operation>, Fault> {
    let mut operations = Vec::new();
    let mut headers: Option<Headers> = None;
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut at = 0;
    let is_names = |at: usize| lines[at].starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ "));
    let mut flush = |headers: &mut Option<Headers>, hunks: &mut Vec<Hunk>, line: usize| -> Result<(), Fault> {
        if headers.is_some() || !hunks.is_empty() {
            operations.push(headers.take().unwrap_or_default().operation(std::mem::take(hunks), path, line)?);
        }
        Ok(())
    };
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with("diff --git ") {
            flush(&mut headers, &mut hunks, at)?;
            headers = Some(Headers::default());
        } else if is_names(at) {
            if headers.as_ref().is_none_or(|headers| headers.old.is_some()) {
                flush(&mut headers, &mut hunks, at)?;
            }
            let headers = headers.get_or_insert_with(Headers::default);
            headers.old = Some(file_name(lines[at], at + 1)?);
            headers.new = Some(file_name(lines[at + 1], at + 2)?);
            at += 1;
        } else if let Some(name) = line.strip_prefix("rename from ") {
            headers.get_or_insert_with(Headers::default).from = Some(name.to_owned());
        } else if let Some(name) = line.strip_prefix("rename to ") {
            headers.get_or_insert_with(Headers::default).to = Some(name.to_owned());
        } else if line.starts_with("old mode ") || line.starts_with("new mode ") {
            return Err(invalid(at + 1, "a change of mode cannot be applied")
                .hint("chmod, by sandbox_bash, changes the mode; leave these lines out"));
        } else if line.trim_start().starts_with("```") {
            // The fence of what the patch was quoted in.
        } else if line.starts_with("Binary files ") || line.starts_with("GIT binary patch") {
            return Err(invalid(at + 1, "a binary patch cannot be applied"));
        } else if let Some(numbers) = line.strip_prefix("@@") {
            let (hunk, next) = unified_hunk(lines, at, numbers.trim_start(), &is_names)?;
            hunks.push(hunk);
            at = next;
            continue;
        } else if !hunks.is_empty() && !line.trim().is_empty() {
            return Err(invalid(at + 1, format!("{line:?} begins with none of ' ', '-', '+' and @@")));
        }
        at += 1;
    }
    flush(&mut headers, &mut hunks, lines.len())?;
    Ok(operations)
}

/// One hunk. Its header's lengths are believed while the lines agree; models often miscount.
fn unified_hunk(lines: &[&str], begin: usize, numbers: &str, is_names: &dyn Fn(usize) -> bool) -> Result<(Hunk, usize), Fault> {
    let (mut old_left, mut new_left) = lengths(numbers).unwrap_or((0, 0));
    let mut hunk = Hunk { begin: begin + 1, near_line: old_start(numbers), ..Hunk::default() };
    let mut empty = 0;
    let mut at = begin + 1;
    while at < lines.len() {
        let line = lines[at];
        let counted = old_left > 0 || new_left > 0;
        if line.starts_with("@@")
            || line.starts_with("diff --git ")
            || (is_names(at) && lines.get(at + 2).is_none_or(|next| next.starts_with("@@")))
        {
            break;
        }
        if line.starts_with("\\ ") {
            hunk.unfinished(lines[at - 1]);
        } else if !hunk.take(line) {
            break;
        }
        empty = if line.is_empty() && !counted { empty + 1 } else { 0 };
        if !line.starts_with('+') {
            old_left = old_left.saturating_sub(1);
        }
        if !line.starts_with('-') {
            new_left = new_left.saturating_sub(1);
        }
        at += 1;
    }
    hunk.trim_end(empty);
    Ok((hunk, at))
}

/// The file of a `---` or `+++` line.
fn file_name(line: &str, number: usize) -> Result<String, Fault> {
    let name = line.get(4..).unwrap_or_default().split('\t').next().unwrap_or_default().trim_end();
    if name.starts_with('"') {
        return Err(invalid(number, "a quoted file name; write it as it is, odd bytes as \\xNN"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests;
