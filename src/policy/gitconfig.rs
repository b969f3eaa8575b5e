//! The git settings of commands: the person's name and address, and nothing else of the person's settings. And where git looks for hooks.
//!
//! Never takes over a key that names a program, a helper or a key.

use super::command_line::{self, Look};
use super::surroundings::Surroundings;
use std::borrow::Cow;
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Longer than the settings of any person, in bytes.
const LONGEST: u64 = 16 << 20;

/// How many files of settings are followed.
const MOST_INCLUDED: usize = 32;
/// The most files that are looked at because settings may have them run.
const MOST_LOOKS: u32 = 100_000;
/// The most linked trees that are looked at.
const MOST_TREES: usize = 64;

/// The text of the private settings file.
pub(super) fn private(here: &Surroundings, base: &Path) -> String {
    let (mut name, mut email) = (None, None);
    for text in of_the_person(here) {
        let [this_name, this_email] = values(&text, "user", ["name", "email"]);
        name = this_name.or(name);
        email = this_email.or(email);
    }
    let mut text = String::from("# Made for this session.\n");
    if name.is_some() || email.is_some() {
        text.push_str("[user]\n");
    }
    for (key, value) in [("name", name), ("email", email)] {
        if let Some(value) = value {
            text.push_str(&format!("\t{key} = {}\n", quoted(&value)));
        }
    }
    // What the repository's settings name is run in the sandbox; who owns the files says nothing there.
    if let Some(base) = base.to_str() {
        text.push_str(&format!("[safe]\n\tdirectory = {}\n\tdirectory = {}\n", quoted(base), quoted(&format!("{base}/*"))));
    }
    text.push_str("[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n");
    text
}

/// The texts of the person's settings, lowest first, as git reads them.
fn of_the_person(here: &Surroundings) -> Vec<String> {
    files_of_the_person(here).iter().filter_map(|file| text_of(file)).collect()
}

fn files_of_the_person(here: &Surroundings) -> Vec<PathBuf> {
    let xdg = here.folder("XDG_CONFIG_HOME").or_else(|| here.in_home(".config")).map(|config| config.join("git/config"));
    match here.folder("GIT_CONFIG_GLOBAL") {
        Some(file) => vec![file],
        None => [xdg, here.in_home(".gitconfig")].into_iter().flatten().collect(),
    }
}

/// The text of a settings file, if there is one: a regular file, and nothing that one could wait for. What is no text in it is no setting.
pub(super) fn text_of(file: &Path) -> Option<String> {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(file).ok()?;
    if !opened.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    opened.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// What git reads or runs because settings name it, as far as it lies in the workspace: relative to the base, with the reason. `repository`:
/// the text of the repository's own settings; `git_dir`: where they are, from which they name files.
pub(super) fn named(here: &Surroundings, repository: Option<&str>, git_dir: &Path, base: &Path) -> Vec<(PathBuf, &'static str)> {
    let mut texts: Vec<(String, PathBuf)> = repository.map(|text| (text.to_owned(), git_dir.to_path_buf())).into_iter().collect();
    texts.extend(files_of_the_person(here).into_iter().filter_map(|file| Some((text_of(&file)?, file.parent()?.to_path_buf()))));
    follow(texts, &Places { git_dir, tops: &tops(base, git_dir, base), base, home: here.home.as_deref(), looks: Cell::new(MOST_LOOKS) })
}

/// The same of a repository that lies in the workspace, by its own settings alone. `git_dir` is absolute.
pub fn named_in_workspace(text: &str, git_dir: &Path, base: &Path) -> Vec<(PathBuf, &'static str)> {
    let [told] = values(text, "core", ["worktree"]);
    let top = match (told, git_dir.file_name()) {
        (Some(told), _) => plainly(&git_dir.join(told)),
        (None, Some(name)) if name == ".git" => git_dir.parent().unwrap_or(git_dir).to_path_buf(),
        _ => git_dir.to_path_buf(),
    };
    follow(
        vec![(text.to_owned(), git_dir.to_path_buf())],
        &Places { git_dir, tops: &tops(&top, git_dir, base), base, home: None, looks: Cell::new(MOST_LOOKS) },
    )
}

/// Where git may run what the settings name: the tree, and the linked ones (`git worktree add`) that lie in the workspace.
fn tops(top: &Path, git_dir: &Path, base: &Path) -> Vec<PathBuf> {
    let linked = git_dir.join("worktrees").read_dir().into_iter().flatten().flatten().take(MOST_TREES);
    let linked = linked.filter_map(|entry| {
        let pointer = entry.path().join("gitdir");
        let text = text_of(&pointer)?;
        let tree = plainly(&entry.path().join(text.trim_end_matches(['\n', '\r'])));
        Some(tree.parent()?.to_path_buf())
    });
    [top.to_path_buf()].into_iter().chain(linked.filter(|tree| tree.starts_with(base) && tree != top)).collect()
}

/// A path without `..`, by its text: it only nominates.
pub(super) fn plainly(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part)
        }
    }
    plain
}

/// What settings name files from.
struct Places<'a> {
    git_dir: &'a Path,
    /// Where the trees are.
    tops: &'a [PathBuf],
    base: &'a Path,
    home: Option<&'a Path>,
    /// How many more files are looked at: whoever fills settings with words gets no further, and what a command wrote is judged by its keys.
    looks: Cell<u32>,
}

impl Places<'_> {
    fn join(&self, told: &str) -> Vec<PathBuf> {
        let told = expanded(self.home, told);
        self.tops.iter().map(|top| top.join(&told)).collect()
    }
}

fn follow(mut texts: Vec<(String, PathBuf)>, places: &Places<'_>) -> Vec<(PathBuf, &'static str)> {
    let (mut found, base) = (Vec::new(), places.base);
    let home = places.home.and_then(|home| home.canonicalize().ok());
    let mut read = 0;
    while let Some((text, folder)) = texts.get(read).cloned() {
        read += 1;
        for told in included(&text) {
            let file = folder.join(expanded(places.home, &told));
            found.extend(inside(base, &file).into_iter().map(|path| (path, "git reads settings from it (include.path)")));
            // What lies elsewhere no command can change, and it may be anything: a device, a log that never ends. Settings may include one
            // another.
            if let Ok(file) = file.canonicalize()
                && (file.starts_with(base) || home.as_ref().is_some_and(|home| file.starts_with(home)))
                && texts.len() < MOST_INCLUDED
                && let Some(text) = text_of(&file)
            {
                texts.push((text, file.parent().unwrap_or(base).to_path_buf()));
            }
        }
        let [attributes] = values(&text, "core", ["attributesfile"]);
        let attributes = attributes.map(|told| places.join(&told)).unwrap_or_default();
        found.extend(attributes.iter().flat_map(|file| inside(base, file)).map(|path| (path, "names filters that git runs")));
        let programs = settings(&text).into_iter().filter(runs).flat_map(|setting| programs(&setting.value, places));
        found.extend(programs.flat_map(|file| inside(base, &file)).map(|path| (path, "git's settings have it run")));
    }
    let told = texts.iter().filter_map(|(text, _)| values(text, "core", ["hookspath"]).into_iter().next().flatten());
    let hooks = told.flat_map(|told| places.join(&told)).chain([places.git_dir.join("hooks")]);
    found.extend(hooks.flat_map(|hooks| inside(base, &hooks)).map(|path| (path, "git runs what is in it (core.hooksPath)")));
    found
}

/// Words in keys that name programs, whatever section they are in.
const RUNS: &[&str] =
    &["command", "cmd", "program", "helper", "editor", "pager", "askpass", "textconv", "driver", "uploadpack", "receivepack", "hook"];

/// Whether git runs what the setting says.
fn runs(setting: &Setting) -> bool {
    match (setting.section.as_str(), setting.key.as_str()) {
        ("alias", _) => setting.value.starts_with('!'),
        ("filter" | "pager" | "credential", _)
        | ("core", "fsmonitor" | "gitproxy")
        | ("diff", "external")
        | ("interactive", "difffilter") => true,
        ("core", "hookspath") => false,
        (_, key) => RUNS.iter().any(|word| key.contains(word)),
    }
}

/// The files that a setting has run.
fn programs(line: &str, places: &Places<'_>) -> Vec<PathBuf> {
    let look = Look { folders: places.tops, expand: &|told| expanded(places.home, told), left: &places.looks };
    command_line::programs(line.trim_start_matches('!'), &look)
}

/// A path as settings tell it: `~` is the home folder, `~name` that of another user, `%(prefix)` where git is installed.
fn expanded(home: Option<&Path>, told: &str) -> PathBuf {
    if let Some(rest) = told.strip_prefix("%(prefix)/") {
        return Path::new("/usr").join(rest);
    }
    let Some(tail) = told.strip_prefix('~') else { return told.into() };
    let (user, rest) = tail.split_once('/').unwrap_or((tail, ""));
    let folder = if user.is_empty() { home.map(Path::to_path_buf) } else { home_of(user) };
    // Where git finds no such user it reads nothing.
    folder.map_or_else(|| PathBuf::from("/"), |folder| folder.join(rest))
}

/// The home folder of another user, where the machine's list has one.
fn home_of(user: &str) -> Option<PathBuf> {
    let list = text_of(Path::new("/etc/passwd"))?;
    let home = list.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':')?.split(':').nth(4))?;
    Some(home.into())
}

/// A path relative to the base, as it is told and as links lead now; none where that is outside.
fn inside(base: &Path, path: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(told) = path.strip_prefix(base)
        && told.components().all(|part| matches!(part, Component::Normal(_)))
    {
        found.push(told.to_path_buf());
    }
    // What is not there may come to be: what holds it says where.
    let (mut there, mut rest) = (path.to_path_buf(), PathBuf::new());
    loop {
        match (there.canonicalize(), there.file_name()) {
            (Ok(real), _) => {
                // Joined to nothing it would be a folder's own name with a separator.
                let real = if rest.as_os_str().is_empty() { real } else { real.join(&rest) };
                found.extend(real.strip_prefix(base).ok().map(Path::to_path_buf));
                break;
            }
            (Err(_), Some(name)) => {
                rest = if rest.as_os_str().is_empty() { name.into() } else { Path::new(name).join(&rest) };
                there.pop();
            }
            (Err(_), None) => break,
        }
    }
    found.retain(|path| !path.as_os_str().is_empty());
    found.dedup();
    found
}

/// One setting as it stands in a file.
struct Setting {
    /// In small letters.
    section: String,
    /// The section has a name of its own besides (`[remote "origin"]`).
    named: bool,
    /// In small letters.
    key: String,
    value: String,
}

/// The settings of a file, in order. Lines that go on behind a backslash are one; what git would refuse is left out.
fn settings(text: &str) -> Vec<Setting> {
    let mut found = Vec::new();
    let mut section: Option<(String, bool)> = None;
    let text = text.replace("\r\n", "\n");
    let mut lines = text.lines();
    while let Some(first) = lines.next() {
        let mut line = Cow::Borrowed(first);
        // A comment ends with its line, whatever it ends with.
        while !line.trim_start().starts_with(['#', ';']) && ends_in_backslash(&line) {
            line.to_mut().pop();
            line.to_mut().push_str(lines.next().unwrap_or_default());
        }
        let mut line = line.trim();
        if let Some(rest) = line.strip_prefix('[') {
            let Some((name, named, rest)) = header(rest) else { continue };
            section = Some((name, named));
            line = rest.trim();
        }
        if let (Some((section, named)), Some((key, value))) = (&section, line.split_once('='))
            && !line.starts_with(['#', ';'])
        {
            let (key, value) = (key.trim().to_ascii_lowercase(), unquoted(value.trim()));
            found.push(Setting { section: section.clone(), named: *named, key, value });
        }
    }
    found
}

/// Whether the last character is a backslash that escapes the line end.
fn ends_in_backslash(line: &str) -> bool {
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Of what follows the bracket of a section: its name in small letters, whether it has another name in quotes, which may hold anything,
/// and what follows the closing bracket.
fn header(text: &str) -> Option<(String, bool, &str)> {
    let end = text.find([']', '"'])?;
    let name = text[..end].trim().to_ascii_lowercase();
    if text[end..].starts_with(']') {
        return Some((name, false, &text[end + 1..]));
    }
    let mut escaped = false;
    let close = text[end + 1..].find(|c| {
        let closes = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        closes
    })?;
    let rest = text[end + 1 + close + 1..].trim_start().strip_prefix(']')?;
    Some((name, true, rest))
}

/// What the sections `include` and `includeIf` name.
fn included(text: &str) -> Vec<String> {
    let includes = |setting: &Setting| matches!(setting.section.as_str(), "include" | "includeif") && setting.key == "path";
    settings(text).into_iter().filter(includes).map(|setting| setting.value).collect()
}

/// Values of keys of a section in a settings file; the last of each counts that is not empty.
fn values<const N: usize>(text: &str, wanted: &str, keys: [&str; N]) -> [Option<String>; N] {
    let mut found = [const { None }; N];
    for setting in settings(text) {
        let place = keys.iter().position(|key| *key == setting.key && setting.section == wanted && !setting.named);
        if let Some(slot) = place.and_then(|place| found.get_mut(place)).filter(|_| !setting.value.is_empty()) {
            *slot = Some(setting.value);
        }
    }
    found
}

/// A value as git reads it: quotes, escapes, comments. Control characters are left out.
fn unquoted(value: &str) -> String {
    // Blanks count between quotes, and before something that follows: `kept` is how much of `out` does.
    let (mut out, mut quoted, mut kept) = (String::new(), false, 0);
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => quoted = !quoted,
            '\\' => {
                // Other escapes are line breaks and the like, which no name has.
                if let Some(c @ ('"' | '\\')) = chars.next() {
                    out.push(c);
                }
            }
            '#' | ';' if !quoted => break,
            c if c.is_control() => {}
            c => out.push(c),
        }
        if quoted || !c.is_whitespace() {
            kept = out.len();
        }
    }
    out.truncate(kept);
    out
}

fn quoted(value: &str) -> String {
    let inner: String = value
        .chars()
        .flat_map(|c| match c {
            '"' | '\\' => vec!['\\', c],
            '\n' => vec!['\\', 'n'],
            c => vec![c],
        })
        .collect();
    format!("\"{inner}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn name_and_address_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let text = "[credential]\n\thelper = store\n[user]\n\tname = \"A \\\"B\\\" C\" # who\n\temail=a@b.example ; x\n\tsigningkey = K\n[alias]\n\tx = !touch pwn\n[include]\n\tpath = y\n[user \"sub\"]\n\tname = wrong\n[core]\n\tsshCommand = z\n";
        std::fs::write(home.path().join(".gitconfig"), text).unwrap();
        let mut here = Surroundings::new(Vec::new(), 1000, 1000);
        here.home = Some(home.path().to_path_buf());
        let made = private(&here, Path::new("/w \"x"));
        assert!(made.contains("name = \"A \\\"B\\\" C\"\n") && made.contains("email = \"a@b.example\"\n"), "{made}");
        assert!(made.contains("directory = \"/w \\\"x\"\n"));
        for word in ["helper", "store", "signingkey", "alias", "include", "sshCommand", "wrong", "pwn"] {
            assert!(!made.contains(word), "{word}");
        }
    }

    #[test]
    fn what_settings_name_in_the_workspace() {
        let home = tempfile::tempdir().unwrap();
        let mut here = Surroundings::new(Vec::new(), 1000, 1000);
        here.home = Some(home.path().canonicalize().unwrap());
        let base = here.home.clone().unwrap().join("w");
        std::fs::create_dir_all(base.join(".git/hooks")).unwrap();
        std::fs::create_dir_all(base.join("src")).unwrap();
        std::fs::create_dir_all(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        std::os::unix::fs::symlink(".", home.path().join("also")).unwrap();
        std::fs::write(base.join("more.cfg"), "[include]\n\tpath = more.cfg\n[core]\n\thooksPath = from-more\n").unwrap();
        let of = |here: &Surroundings, text: &str| {
            let mut found: Vec<String> =
                named(here, Some(text), &base.join(".git"), &base).into_iter().map(|(path, _)| path.to_str().unwrap().to_owned()).collect();
            found.retain(|path| path != ".git/hooks");
            found.sort();
            found.dedup();
            found
        };
        let home_path = home.path().canonicalize().unwrap();
        let home_path = home_path.display();
        for (told, is) in [
            (".githooks", &[".githooks"][..]),
            ("./a/b/", &["a/b"]),
            (&format!("{home_path}/w/h"), &["h"]),
            (&format!("{home_path}/also/w/h"), &["h"]),
            ("\"a b\" # x", &["a b"]),
            ("a\\\nb", &["ab"]),
            ("/elsewhere", &[]),
            ("~/h", &[]),
            ("~/w/h", &["h"]),
            ("../h", &[]),
            ("src/../h", &["h"]),
            ("link", &["link", "real"]),
            ("link/sub", &["link/sub", "real/sub"]),
            (".", &[]),
            ("", &[]),
        ] {
            assert_eq!(of(&here, &format!("[core]\n\thooksPath = {told}\n")), is, "{told}");
        }
        // Settings that are included name files from where they are, and what they name counts.
        assert_eq!(of(&here, "# a\\\n[core]\n; b\\\n\thooksPath = h\n# hooksPath = no\n"), ["h"]);
        assert_eq!(of(&here, "[include] path = ../more.cfg ; ]\n"), ["from-more", "more.cfg"]);
        let included = "[includeIf \"gitdir:/x]y\"]\n\tpath = ../more.cfg\n[Include]\n\tPath = ../absent.cfg\n";
        assert_eq!(of(&here, included), ["absent.cfg", "from-more", "more.cfg"]);
        std::fs::write(home.path().join(".gitconfig"), "[core]\n\thooksPath = mine\n").unwrap();
        assert_eq!(of(&here, "[user]\n\tname = x\n"), ["mine"]);
        std::fs::write(home.path().join(".gitconfig"), "[include]\n\tpath = ~/person.cfg\n").unwrap();
        std::fs::write(home.path().join("person.cfg"), "[core]\n\thooksPath = theirs\n").unwrap();
        assert_eq!(of(&here, ""), ["theirs"]);
        here.home = None;
        assert!(of(&here, "").is_empty());
    }

    #[test]
    fn what_settings_have_run_in_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("n/.git")).unwrap();
        std::fs::create_dir_all(base.join(".git/worktrees/w")).unwrap();
        std::fs::create_dir_all(base.join("w")).unwrap();
        std::fs::create_dir_all(base.join("d/e")).unwrap();
        for (file, mode) in [("tool", 0o755), ("script", 0o644), ("README", 0o644), ("n/tool", 0o755), ("a b", 0o644), ("d/e/run", 0o644)] {
            std::fs::write(base.join(file), "").unwrap();
            std::fs::set_permissions(base.join(file), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let here = Surroundings::new(Vec::new(), 1000, 1000);
        let of = |text: &str| {
            let found = named(&here, Some(text), &base.join(".git"), &base);
            found.into_iter().map(|(path, _)| path.to_str().unwrap().to_owned()).filter(|path| path != ".git/hooks").collect::<Vec<_>>()
        };
        for (section, line, is) in [
            ("alias", "x = !./tool --flag", &["tool"][..]),
            ("alias", "x = \"!f() { sh script \\\"$@\\\"; }; f\"", &["script"]),
            ("alias", "x = !cat README", &[]),
            ("alias", "x = log README", &[]),
            ("filter \"y\"", "clean = ./tool %f", &["tool"]),
            ("filter \"y\"", "process = git-lfs filter-process", &[]),
            ("filter \"y\"", "smudge = python3 -u script", &["script"]),
            ("diff", "external = not/yet", &["not/yet"]),
            ("diff \"y\"", "textconv = env A=b ./tool", &["tool"]),
            ("credential \"https://h\"", "helper = !./tool", &["tool"]),
            ("core", "sshCommand = ssh -o ProxyCommand=x", &[]),
            ("core", "fsmonitor = tool", &["tool"]),
            ("core", "editor = ./tool", &["tool"]),
            ("core", "pager = %(prefix)/x", &[]),
            ("core", "pager = ~nobody-of-that-name/tool", &[]),
            ("core", "attributesFile = README", &["README"]),
            ("gpg", "program = ./tool", &["tool"]),
            ("gpg", "program = \"'./a b' x\"", &["a", "a b"]),
            ("gpg", "program = ./a\\\\ b", &["a", "a b", "a\\"]),
            ("alias", "x = !cd d && ./e/run && cat README", &["d/e/run"]),
            ("alias", "x = \"!sh -c 'cd d; cd e; sh run'\"", &["d/e/run"]),
            ("core", "fsmonitor = python3.12 -m p.q", &["p/__init__.py", "p/q/__init__.py", "p/q/__main__.py", "p/q.py", "p.py"]),
            ("core", "fsmonitor = python3 -um p", &["p/__init__.py", "p/__main__.py", "p.py"]),
            ("core", "fsmonitor = python3 -mp", &["p/__init__.py", "p/__main__.py", "p.py"]),
            ("core", "fsmonitor = python3 -Werror script", &["script"]),
            ("core", "fsmonitor = env -C d ./mon", &["d/mon", "mon"]),
            ("core", "fsmonitor = sh<script", &["script"]),
            ("core", "editor = git -C d -c a=b e/run", &[]),
            ("core", "editor = \"'never closed ./tool\"", &["never closed ./tool", "tool"]),
            ("merge \"y\"", "driver = ./tool %O %A %B", &["tool"]),
        ] {
            assert_eq!(of(&format!("[{section}]\n\t{line}\n")), is, "{section} {line}");
        }
        assert_eq!(expanded(None, "~root/x"), Path::new("/root/x"));
        assert_eq!(expanded(Some(Path::new("/h")), "~/x"), Path::new("/h/x"));
        let text = "[core]\n\thooksPath = .h\n[alias]\n\tx = !./tool\n[include]\n\tpath = ../inc\n";
        let mut nested: Vec<_> = named_in_workspace(text, &base.join("n/.git"), &base).into_iter().map(|(path, _)| path).collect();
        nested.sort();
        assert_eq!(nested, ["n/.git/hooks", "n/.h", "n/inc", "n/tool"].map(PathBuf::from));
        let line = |length: usize| of(&format!("[core]\n\tfsmonitor = ./tool {}\n", "x".repeat(length)));
        assert_eq!((line(100_000), line(140_000)), (vec!["tool".to_owned()], Vec::new()), "what cannot be run is not looked at");
        // A linked tree has what its commit has, so the same names are run there.
        std::fs::write(base.join(".git/worktrees/w/gitdir"), format!("{}\n", base.join("w/.git").display())).unwrap();
        assert_eq!(of("[core]\n\tfsmonitor = ./x\n\thooksPath = .h\n"), ["w/x", "x", ".h", "w/.h"]);
        std::fs::write(base.join(".git/worktrees/w/gitdir"), "../../../../elsewhere/.git\n").unwrap();
        assert_eq!(of("[core]\n\tfsmonitor = ./x\n"), ["x"]);
        let module = "[core]\n\tworktree = ../../../n\n\thooksPath = .h\n";
        assert!(named_in_workspace(module, &base.join(".git/modules/n"), &base).iter().any(|(path, _)| path == Path::new("n/.h")));
    }

    #[test]
    fn nobody_is_nobody() {
        let made = private(&Surroundings::new(Vec::new(), 0, 0), Path::new("/w"));
        assert!(!made.contains("[user]"));
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn what_is_quoted_reads_back(value in "[^\\p{Cc}]{0,40}") {
            prop_assert_eq!(unquoted(&quoted(&value)), value);
        }

        #[test]
        fn a_hostile_file_adds_no_line(text in "\\PC{0,60}") {
            let [name, email] = values(&format!("[user]\nname = {text}\nemail = {text}"), "user", ["name", "email"]);
            for value in [name, email].into_iter().flatten() {
                prop_assert_eq!(quoted(&value).lines().count(), 1);
            }
        }
    }
}
