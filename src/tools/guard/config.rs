//! A repository's settings, judged by key: what is known to be data stays, everything else may name a program.
//!
//! An allow-list, for git gains keys that name programs with every version. Reads only the plain form of the file, as git itself
//! writes it; anything else (a line that goes on, two things on one line) counts as not known. Never runs or asks git.

/// Sections of which all keys without a subsection are data, but those named.
const PLAIN: &[(&str, &[&str])] = &[
    ("advice", &[]),
    ("add", &[]),
    ("am", &[]),
    ("apply", &[]),
    ("author", &[]),
    ("blame", &[]),
    ("branch", &[]),
    ("checkout", &[]),
    ("clone", &[]),
    ("color", &[]),
    ("column", &[]),
    ("commit", &[]),
    ("committer", &[]),
    ("diff", &["external", "tool", "guitool"]),
    ("feature", &[]),
    ("fetch", &[]),
    ("format", &[]),
    ("gc", &[]),
    ("grep", &[]),
    ("index", &[]),
    ("init", &["templatedir"]),
    ("log", &[]),
    ("maintenance", &[]),
    ("merge", &["tool", "guitool"]),
    ("notes", &[]),
    ("pack", &[]),
    ("pull", &[]),
    ("push", &[]),
    // A line of what is to be done can be put into the format.
    ("rebase", &["instructionformat"]),
    ("receive", &[]),
    ("rerere", &[]),
    ("stash", &[]),
    ("status", &[]),
    ("tag", &[]),
    ("transfer", &[]),
    ("user", &[]),
    ("worktree", &[]),
];

/// Keys of `core` that are data.
const CORE: &[&str] = &[
    "abbrev",
    "autocrlf",
    "bare",
    "bigfilethreshold",
    "checkstat",
    "commentchar",
    "compression",
    "eol",
    "filemode",
    "ignorecase",
    "logallrefupdates",
    "loosecompression",
    "longpaths",
    "multipackindex",
    "precomposeunicode",
    "preloadindex",
    "protecthfs",
    "protectntfs",
    "quotepath",
    "repositoryformatversion",
    "safecrlf",
    "sharedrepository",
    "sparsecheckout",
    "sparsecheckoutcone",
    "splitindex",
    "symlinks",
    "trustctime",
    "untrackedcache",
    "warnambiguousrefs",
    "whitespace",
];

/// Keys of a section with a subsection that are data.
const NAMED: &[(&str, &[&str])] = &[
    ("branch", &["remote", "merge", "rebase", "description", "pushremote"]),
    (
        "remote",
        &["url", "pushurl", "fetch", "push", "tagopt", "mirror", "prune", "prunetags", "skipfetchall", "promisor", "partialclonefilter"],
    ),
    ("submodule", &["url", "active", "path", "branch", "ignore", "shallow", "update", "fetchrecursesubmodules"]),
];

/// Keys of `extensions`; `worktreeconfig` only has another file read, which is judged too.
const EXTENSIONS: &[&str] =
    &["objectformat", "compatobjectformat", "partialclone", "worktreeconfig", "refstorage", "noop", "preciousobjects"];

/// A key with one of these in it names a program, whatever section it is in: git gets new ones with each version.
const RUNS: &[&str] = &[
    "hook",
    "command",
    "cmd",
    "program",
    "helper",
    "exec",
    "editor",
    "pager",
    "askpass",
    "textconv",
    "driver",
    "uploadpack",
    "receivepack",
];

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    /// `section.sub.key`, section and key in small letters.
    name: String,
    /// Its value as written.
    value: String,
    /// The line, counted from nought.
    line: usize,
    harmless: bool,
}

/// A file of settings as read.
#[derive(Debug, Default)]
struct Settings {
    list: Vec<Setting>,
    /// It holds something that is not of the plain form.
    odd: bool,
}

fn read(bytes: &[u8], worktree_inside: &dyn Fn(&str) -> bool) -> Settings {
    let mut settings = Settings::default();
    let Ok(text) = std::str::from_utf8(bytes) else { return Settings { odd: true, ..settings } };
    let mut section: Option<(String, Option<String>)> = None;
    for (number, line) in text.split('\n').enumerate() {
        let line = line.trim_matches([' ', '\t', '\r']);
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(inner) = line.strip_prefix('[') {
            section = header(inner);
            settings.odd |= section.is_none();
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, ""), |(key, value)| (key.trim_end(), value.trim_start()));
        let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match &section {
            Some((section, sub)) if plain && !value.ends_with('\\') => {
                let key = key.to_ascii_lowercase();
                let mut harmless = harmless(section, sub.as_deref(), &key, value);
                // A submodule's git folder says where its tree is.
                harmless |= section == "core" && sub.is_none() && key == "worktree" && worktree_inside(value);
                let name = match sub {
                    Some(sub) => format!("{section}.{sub}.{key}"),
                    None => format!("{section}.{key}"),
                };
                settings.list.push(Setting { name, value: value.to_owned(), line: number, harmless });
            }
            _ => settings.odd = true,
        }
    }
    settings
}

/// `core]` or `remote "origin"]`.
fn header(inner: &str) -> Option<(String, Option<String>)> {
    let inner = inner.strip_suffix(']')?;
    let (name, sub) = match inner.split_once(' ') {
        Some((name, sub)) => (name, Some(sub.trim_start().strip_prefix('"')?.strip_suffix('"')?)),
        None => (inner, None),
    };
    let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let sub_plain = sub.is_none_or(|sub| !sub.contains(['"', '\\', ']']));
    (plain && sub_plain).then(|| (name.to_ascii_lowercase(), sub.map(str::to_owned)))
}

fn harmless(section: &str, sub: Option<&str>, key: &str, value: &str) -> bool {
    // `!` begins a program, `::` ends the name of a remote's helper; neither is needed in data, quoted or not. A backslash could hide one.
    if value.contains("::") || value.contains('!') || value.contains('\\') {
        return false;
    }
    let within = |table: &[(&str, &[&str])]| table.iter().find(|(name, _)| *name == section).map(|(_, keys)| keys.contains(&key));
    match (section, sub) {
        ("core", None) => CORE.contains(&key),
        ("extensions", None) => EXTENSIONS.contains(&key),
        ("lfs", None) => key == "repositoryformatversion",
        ("alias", None) => is_plain_alias(value),
        (_, None) => within(PLAIN).is_some_and(|excepted| !excepted) && !RUNS.iter().any(|word| key.contains(word)),
        (_, Some(_)) => within(NAMED).unwrap_or(false),
    }
}

/// Commands of git's that start no program that an argument names, and what of their options names none either. Options go on being
/// made, and some of them name programs by letters that others use for data (`grep -O`, `difftool --extcmd`, `rebase --exec`).
const ALIASED: &[&str] = &[
    "add",
    "blame",
    "branch",
    "checkout",
    "cherry",
    "commit",
    "describe",
    "diff",
    "log",
    "ls-files",
    "merge-base",
    "reflog",
    "remote",
    "reset",
    "restore",
    "rev-parse",
    "shortlog",
    "show",
    "stash",
    "status",
    "switch",
    "tag",
];

/// See [`ALIASED`].
const OPTIONS: &[&str] = &[
    "-1",
    "-a",
    "-am",
    "-b",
    "-d",
    "-m",
    "-n",
    "-p",
    "-s",
    "-u",
    "-v",
    "-vv",
    "--abbrev-commit",
    "--all",
    "--amend",
    "--branch",
    "--branches",
    "--cached",
    "--date",
    "--decorate",
    "--graph",
    "--hard",
    "--name-only",
    "--name-status",
    "--no-edit",
    "--no-pager",
    "--oneline",
    "--patch",
    "--porcelain",
    "--pretty",
    "--set-upstream",
    "--short",
    "--shortstat",
    "--soft",
    "--staged",
    "--stat",
    "--tags",
    "--word-diff",
];

/// Whether an alias is a plain command with plain options, of which none can name a program.
fn is_plain_alias(value: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" -_,=:%@^~+".contains(&byte);
    let mut words = value.split(' ').filter(|word| !word.is_empty());
    value.bytes().all(plain)
        && words.next().is_some_and(|command| ALIASED.contains(&command))
        && words.all(|word| !word.starts_with('-') || OPTIONS.contains(&word.split('=').next().unwrap_or(word)))
}

/// What a changed file of settings has to become.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may stay.
    Fine,
    /// These lines go: the text without them, and the names of the settings.
    Without(Vec<u8>, Vec<String>),
    /// It is not of the plain form, and is put back whole.
    Back,
}

/// Judges a changed file of settings: what names a program, or may, and was not there before, goes. `worktree_inside` says whether a
/// value of `core.worktree` stays in the workspace.
pub fn judge(now: &[u8], before: Option<&[u8]>, worktree_inside: &dyn Fn(&str) -> bool) -> Verdict {
    if before == Some(now) {
        return Verdict::Fine;
    }
    let known = before.map(|before| read(before, worktree_inside)).unwrap_or_default();
    let settings = read(now, worktree_inside);
    if settings.odd {
        // What was odd before cannot be told from what is odd now.
        return Verdict::Back;
    }
    let is_known = |setting: &Setting| known.list.iter().any(|known| known.name == setting.name && known.value == setting.value);
    let gone: Vec<&Setting> = settings.list.iter().filter(|setting| !setting.harmless && !is_known(setting)).collect();
    if gone.is_empty() {
        return Verdict::Fine;
    }
    let stays = |(number, line): (usize, _)| (!gone.iter().any(|setting| setting.line == number)).then_some(line);
    let kept: Vec<&[u8]> = now.split(|byte| *byte == b'\n').enumerate().filter_map(stays).collect();
    let mut names: Vec<String> = gone.iter().map(|setting| setting.name.clone()).collect();
    names.dedup();
    Verdict::Without(kept.join(&b'\n'), names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(now: &[u8], before: Option<&[u8]>) -> Verdict {
        super::judge(now, before, &|value| value == "../../../sub")
    }

    const MADE: &str = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n";

    #[test]
    fn what_git_itself_writes_stays() {
        let more = "[remote \"origin\"]\n\turl = ../b.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = \
                    origin\n\tmerge = refs/heads/main\n[submodule \"sub\"]\n\turl = /x/sub\n\tactive = true\n[user]\n\tname = A \
                    B\n[extensions]\n\tworktreeConfig = true\n[pull]\n\trebase = true\n[alias]\n\tst = status -s\n";
        assert_eq!(judge(format!("{MADE}{more}").as_bytes(), Some(MADE.as_bytes())), Verdict::Fine);
        assert_eq!(judge(MADE.as_bytes(), None), Verdict::Fine);
        assert_eq!(judge(b"", None), Verdict::Fine);
    }

    #[test]
    fn what_runs_goes_and_the_rest_stays() {
        for (section, line) in [
            ("core", "fsmonitor = touch pwn"),
            ("core", "hooksPath = x"),
            ("core", "sshCommand = x"),
            ("core", "editor = x"),
            ("core", "pager = x"),
            ("core", "askPass = x"),
            ("core", "gitProxy = x"),
            ("core", "alternateRefsCommand = x"),
            ("core", "worktree = /"),
            ("core", "attributesFile = x"),
            ("gc", "recentObjectsHook = ./evil"),
            ("alias", "st = fetch --upload-pack=./evil ."),
            ("alias", "st = grep -Osh MARKER"),
            ("alias", "st = difftool -y --extcmd=sh"),
            ("alias", "st = rebase --exec=make main"),
            ("alias", "st = bisect run make"),
            ("alias", "st = log --ext-diff -p"),
            ("alias", "st = x"),
            ("rebase", "instructionFormat = %s%nexec sh evil"),
            ("alias", "st = !touch pwn"),
            ("alias", "st = \"!touch pwn\""),
            ("alias", "st = -c core.pager=x log"),
            ("filter \"x\"", "clean = touch pwn"),
            ("filter \"x\"", "process = touch pwn"),
            ("diff", "external = touch pwn"),
            ("diff \"x\"", "textconv = touch pwn"),
            ("diff \"x\"", "command = touch pwn"),
            ("merge \"x\"", "driver = touch pwn"),
            ("mergetool \"x\"", "cmd = touch pwn"),
            ("difftool \"x\"", "cmd = touch pwn"),
            ("credential", "helper = !touch pwn"),
            ("credential \"https://h\"", "helper = store"),
            ("include", "path = x"),
            ("includeIf \"gitdir:/\"", "path = x"),
            ("gpg", "program = x"),
            ("gpg \"ssh\"", "defaultKeyCommand = x"),
            ("sequence", "editor = x"),
            ("pager", "log = x"),
            ("remote \"o\"", "url = ext::sh -c x"),
            ("remote \"o\"", "url = ext:\\:sh -c x"),
            ("remote \"o\"", "uploadpack = x"),
            ("url \"ext::sh -c x\"", "insteadOf = y"),
            ("submodule \"s\"", "update = !x"),
            ("protocol \"ext\"", "allow = always"),
            ("uploadpack", "packObjectsHook = x"),
            ("init", "templateDir = x"),
            ("interactive", "diffFilter = x"),
            ("trailer \"x\"", "command = x"),
            ("hook \"x\"", "command = x"),
            ("whatever", "comes = next"),
        ] {
            let text = format!("{MADE}[{section}]\n\t{line}\n[user]\n\tname = B\n");
            match judge(text.as_bytes(), Some(MADE.as_bytes())) {
                Verdict::Without(left, names) => {
                    let left = String::from_utf8(left).unwrap();
                    assert!(!left.contains(line) && left.contains("name = B") && left.starts_with(MADE), "{section} {line}: {left}");
                    assert_eq!(names.len(), 1);
                }
                other => panic!("{section} {line}: {other:?}"),
            }
            // What was there before is the person's.
            assert_eq!(
                judge(format!("{text}[pull]\n\trebase = true\n").as_bytes(), Some(text.as_bytes())),
                Verdict::Fine,
                "{section} {line}"
            );
        }
    }

    #[test]
    fn what_is_not_plain_goes_back() {
        for text in [
            "[core] fsmonitor = touch pwn\n",
            "[core]\n\tabbrev = 7 \\\n\tfsmonitor = x\n",
            "[core\n]\nfsmonitor = x\n",
            "\u{feff}[core]\n\tfsmonitor = x\n",
            "[remote \"a\\\"]\n[core \"]\n\tfsmonitor = x\n",
            "[core.x]\n\ty = z\n",
            "fsmonitor = x\n",
            "[core]\n\tfs\u{200b}monitor = x\n",
            "[lfs]\n\tcustomtransfer.x.path = x\n",
        ] {
            assert_eq!(judge(text.as_bytes(), Some(MADE.as_bytes())), Verdict::Back, "{text:?}");
        }
        assert_eq!(judge(&[0xff, b'\n'], None), Verdict::Back);
        let odd = b"[core] abbrev = 7\n";
        assert_eq!(judge(odd, Some(odd)), Verdict::Fine);
    }
}
