//! What a command line runs, told from its text: settings of git hold such lines, and what they run must not be the model's to write.

use super::gitconfig::plainly;
use std::cell::Cell;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Programs that run the file that follows them.
const INTERPRETERS: &[&str] =
    &["sh", "bash", "dash", "zsh", "ksh", "fish", "source", ".", "perl", "ruby", "node", "deno", "bun", "php", "lua", "run"];

/// Programs that run the program that follows them.
const LAUNCHERS: &[&str] = &["env", "exec", "command", "sudo", "nice", "nohup", "time", "xargs"];

/// A longer line no shell can be given: the kernel takes no argument of this size (`MAX_ARG_STRLEN`).
const LONGEST: usize = 128 * 1024;

/// How deep command lines in command lines are looked into (`sh -c "sh -c '…'"`).
const DEEPEST: usize = 4;

/// The most folders that the commands of one line are taken to run in, for each in which the line may run.
const MOST_FOLDERS: usize = 16;

/// What command lines are looked at with.
pub(super) struct Look<'a> {
    /// Where they may run.
    pub folders: &'a [PathBuf],
    /// A path as it is told, by which folders and programs are named.
    pub expand: &'a dyn Fn(&str) -> PathBuf,
    /// How many more files are looked at.
    pub left: &'a Cell<u32>,
}

impl Look<'_> {
    /// Whether one more file may be looked at.
    fn one(&self) -> bool {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.unwrap_or_default());
        left.is_some()
    }
}

/// The files that a command line runs, as far as they can be told from data: what stands where a program does and is named by a path, what can
/// be executed, and what an interpreter is given. Each only nominates, so in doubt it is one more.
pub(super) fn programs(line: &str, look: &Look<'_>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if line.len() >= LONGEST {
        return found;
    }
    look_into(line, look.folders, look, 0, &mut found);
    found.sort();
    found.dedup();
    found
}

fn look_into(line: &str, start: &[PathBuf], look: &Look<'_>, depth: usize, found: &mut Vec<PathBuf>) {
    for (commands, exact) in [(quoted_commands(line), true), (plain_commands(line), false)] {
        look_into_commands(&commands, exact, start, look, depth, found);
    }
}

/// `start`: where the commands may run. What is not there yet is taken for a script by its place alone, so only where quotes are known.
fn look_into_commands(commands: &[Vec<String>], exact: bool, start: &[PathBuf], look: &Look<'_>, depth: usize, found: &mut Vec<PathBuf>) {
    // Where they run if each change of folder is made, and wherever they may run if some are not.
    let (mut here, mut folders) = (start.to_vec(), start.to_vec());
    for command in commands {
        // The first word, and what follows an interpreter and its options.
        let (mut is_program, mut is_script, mut python) = (true, false, false);
        let mut words = command.iter();
        let mut before = None;
        while let Some(word) = words.next() {
            let name = word.rsplit('/').next().unwrap_or(word);
            if depth < DEEPEST && word.contains(|c: char| c.is_whitespace() || SEPARATORS.contains(&c)) {
                look_into(word, &folders, look, depth + 1, found);
            }
            let goes = is_program && matches!(name, "cd" | "pushd");
            if goes || word == "-C" {
                let Some(next) = words.next() else { break };
                if folders.len() < MOST_FOLDERS * look.folders.len() {
                    let next = (look.expand)(next);
                    let inner = |folders: &[PathBuf]| folders.iter().map(|folder| plainly(&folder.join(&next))).collect::<Vec<_>>();
                    let (there, mut all) = (inner(&here), inner(&folders));
                    folders.append(&mut all);
                    match goes {
                        true => here = there,
                        // Some programs take it for themselves, others (`env`) for what they start.
                        false => here.extend(there),
                    }
                }
                continue;
            }
            if python && let Some(attached) = module_option(word) {
                let module = if attached.is_empty() { words.next().map_or("", String::as_str) } else { attached };
                found.extend(folders.iter().flat_map(|folder| module_files(folder, module)).take_while(|_| look.one()));
                continue;
            }
            // A command line of its own, which has been looked into.
            let is_code = is_script && before == Some("-c");
            let may_come = is_program && word.contains('/') || exact && is_script && !is_code && !word.starts_with('-');
            for folder in &folders {
                if !look.one() {
                    return;
                }
                // Without `.` in it, by which it would be another name.
                let path: PathBuf = folder.join((look.expand)(word)).components().collect();
                let meta = path.metadata().ok();
                let is_file = meta.as_ref().is_some_and(std::fs::Metadata::is_file);
                let executable = meta.is_some_and(|meta| meta.permissions().mode() & 0o111 != 0);
                if is_file && (is_program || executable) || may_come && here.contains(folder) && !path.exists() {
                    found.push(path);
                }
            }
            before = Some(word.as_str());
            let is_python = name.starts_with("python") || name.starts_with("pypy");
            python |= is_python;
            let passes = word.starts_with('-') || word.contains('=');
            is_script = is_python || INTERPRETERS.contains(&name) || is_script && passes;
            is_program = is_script || LAUNCHERS.contains(&name) || is_program && passes;
        }
    }
}

/// What follows `-m` in an option of Python's, which may stand behind others (`-um`); empty: it is the next word.
fn module_option(word: &str) -> Option<&str> {
    let options = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'))?;
    let (before, module) = options.split_once('m')?;
    before.chars().all(|option| "bBdEhiIOPqsSuvVx".contains(option)).then_some(module)
}

/// What Python looks for first in the folder it is started in.
fn module_files(folder: &Path, module: &str) -> Vec<PathBuf> {
    let (mut files, mut path) = (Vec::new(), folder.to_path_buf());
    for part in module.split('.').filter(|part| !part.is_empty() && !part.contains('/')) {
        path.push(part);
        files.extend([path.with_extension("py"), path.join("__init__.py")]);
    }
    files.push(path.join("__main__.py"));
    files
}

const SEPARATORS: &[char] = &[';', '|', '&', '(', ')', '`', '\n'];

/// What a shell reads from a file, it runs: signs of redirection part words as blanks do.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '<' | '>')
}

/// The simple commands of a line and their words as if no quote were one: not all that looks like one is (`sed s/'//`).
fn plain_commands(line: &str) -> Vec<Vec<String>> {
    let words = |command: &str| {
        command.split(|c: char| is_blank(c) || matches!(c, '"' | '\'')).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    line.split(SEPARATORS).map(words).collect()
}

/// The same as a shell takes quotes.
fn quoted_commands(line: &str) -> Vec<Vec<String>> {
    let mut exact = vec![Vec::new()];
    let (mut word, mut begun, mut quote, mut chars) = (String::new(), false, None, line.chars());
    loop {
        let next = chars.next();
        match (next, quote) {
            (Some(c), Some(open)) if c == open => quote = None,
            (Some('\\'), None | Some('"')) => word.extend(chars.next()),
            (Some(c @ ('"' | '\'')), None) => (quote, begun) = (Some(c), true),
            (Some(c), None) if !is_blank(c) && !SEPARATORS.contains(&c) => word.push(c),
            (Some(c), Some(_)) => word.push(c),
            (ends, _) => {
                if begun || !word.is_empty() {
                    exact.last_mut().into_iter().for_each(|command| command.push(std::mem::take(&mut word)));
                }
                begun = false;
                match ends {
                    Some(c) if SEPARATORS.contains(&c) => exact.push(Vec::new()),
                    Some(_) => {}
                    None => break,
                }
            }
        }
    }
    exact
}
