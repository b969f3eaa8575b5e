//! What lasts from one command to the next: the folder, the exported variables and the exported functions.
//!
//! The user's script is a file of its own that nothing of ours is pasted into. Bash runs the [`prelude`] before it, by way of
//! `BASH_ENV`, and the prelude reads what [`compose`] wrote and leaves an `EXIT` trap that writes what [`parse_state`] reads.
//! Everything that comes back was written inside the jail, by a shell that the user's script controls: it is bounded, checked
//! and given to nothing but the next shell of the same kind. Where the script replaces the shell (`exec`) or sets an `EXIT` trap of its own,
//! nothing comes back, which is no error.

/// Descriptor of the prelude: `BASH_ENV=/dev/fd/7`.
pub const PRELUDE_FD: i32 = 7;
/// Descriptor of what [`compose`] wrote.
pub const STATE_IN_FD: i32 = 8;
/// Descriptor that takes the state. A sealed memory file of [`MAX_STATE`] bytes fits best: nobody waits for its end, a full one blocks
/// nobody, and it is read when the shell has ended.
pub const STATE_OUT_FD: i32 = 9;
/// The most that is read of what a shell left, in bytes.
pub const MAX_STATE: usize = 1 << 20;

/// What bash runs before the user's script.
///
/// * `BASH_ENV` goes first, so that a bash that the script starts does not run this; an exported one of the user's comes back with
///   the state.
/// * Descriptor 9 moves to 247, since scripts use 3 to 9 and 200 for locks; 7 is closed here and 8 by what [`compose`] wrote. Bash
///   cannot mark a descriptor close-on-exec, so children inherit 247: what they may write there, the script may write as well.
/// * The second part is left out where there is nothing to read: reading costs a fifth of what starting bash does.
/// * The state is sourced at top level (in a function `declare` would make locals), silently: a variable that has become
///   read-only must not print an error into the user's output.
/// * The trap is text, not a function, so that no name of ours is seen by the script. It is one group with its output turned away (a
///   `DEBUG` trap or `set -x` of the user's would write into the user's output; what a `DEBUG` trap writes between the records is skipped)
///   and it is part of an `||` list, so that `set -e` does not act in it. `PIPESTATUS` is read by its first command. `XFSZ` is ignored from
///   then on: after `ulimit -f` the state may not fit, which must not end the shell. It does not change the exit code. Standard error is
///   closed and not sent to `/dev/null`: that is cheaper, and always possible. Its text shows where the script asks for it: by `trap -p`,
///   and by `set -v`, which bash obeys before any redirection.
/// * With the first `EXIT` trap bash puts a handler of its own on every signal that ends a program, but on those that have a trap. A child
///   that was just forked has it too, until it resets it some stat calls later, and what comes in between is lost: `server & kill $!` would now
///   and then kill nobody. So all of them have a trap while ours is set, and none afterwards: signals are as a plain bash has
///   them. What it costs: a shell that ends by a signal leaves no state and runs no `EXIT` trap of the user's either.
/// * A shell that leaves nothing (a background process) has neither: its `EXIT` trap runs when it is asked to stop.
/// * `exec` is run before the user's functions are there; `builtin` keeps functions of the user's named `printf` or `export` out.
/// * `__bailiwick_undo` holds what takes the variables of one call back; it exists only until the trap is set.
/// * The last command succeeds, so that `$?` is 0 when the script begins.
const PRELUDE: [&str; 4] = [
    r#"builtin unset -v BASH_ENV
exec 7<&-
"#,
    r#"exec 247>&9 9>&-
builtin trap : HUP INT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM SYS EXIT
builtin trap - HUP INT ILL TRAP ABRT BUS FPE USR1 SEGV USR2 PIPE ALRM TERM XCPU XFSZ VTALRM SYS
"#,
    r#"builtin . /dev/fd/8 2>&-
"#,
    r#"builtin trap -- '{ builtin set -- "${PIPESTATUS[@]}"
builtin trap "" XFSZ
builtin printf "%b " "\0pipestatus" "$@"
builtin trap - DEBUG ERR
'"${__bailiwick_undo-}"'
builtin printf "\0cwd "
builtin pwd || builtin printf "%s\n" "$PWD"
builtin printf "\0state\n"
builtin export -p
builtin export -pf
builtin printf "\0end\0"
} 2>&- >&247 || :' EXIT
"#,
];
/// The last of what bash runs.
const LAST: &str = "builtin unset -v __bailiwick_undo\nbuiltin :\n";

/// Where a bash that has been started ahead hears that it may go on.
pub const GO_FD: i32 = 5;
/// Go on as bash found everything.
pub const GO_ON: u8 = b'n';
/// Read the state first.
pub const GO_READ: u8 = b's';

/// What bash runs before the user's script. Where [`compose`] wrote nothing, nothing is read, and there is no descriptor 8; where nothing
/// is to be left, there is no descriptor 9.
pub fn prelude(reads_state: bool, leaves_state: bool) -> String {
    let [head, catch, read, trap] = PRELUDE;
    let [catch, trap] = if leaves_state { [catch, trap] } else { [""; 2] };
    [head, catch, if reads_state { read } else { "" }, trap, LAST].concat()
}

/// What bash runs that has been started before there is a script: it waits for one byte on descriptor [`GO_FD`], [`GO_ON`] or, where
/// [`compose`] wrote something by then, [`GO_READ`]. Without a byte it ends.
pub fn waiting_prelude() -> String {
    let [head, catch, read, trap] = PRELUDE;
    let go = format!(
        r#"builtin read -r -N 1 -u {GO_FD} __bailiwick_go 2>&- || builtin exit 1
exec {GO_FD}<&-
SECONDS=0
if [[ $__bailiwick_go == {} ]]; then
{read}else
exec 8<&-
fi
builtin unset -v __bailiwick_go
"#,
        char::from(GO_READ),
    );
    [head, catch, &go, trap, LAST].concat()
}

/// What a shell left for the next one. All of it is written by the jail: hostile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The exit codes of the last pipeline.
    pub pipestatus: Option<Vec<i32>>,
    /// The folder in which the shell ended: an absolute path inside the jail.
    pub cwd: Option<Vec<u8>>,
    /// What went wrong when the shell took over the last state, in words.
    pub notices: Vec<String>,
    /// Bash source that makes the exported variables and functions again; `None`: the shell did not come to its end.
    pub script: Option<Vec<u8>>,
}

impl State {
    /// What the next command begins with: the newer state where the shell left one, else the older.
    #[must_use]
    pub fn or(self, older: Self) -> Self {
        Self { cwd: self.cwd.or(older.cwd), script: self.script.or(older.script), ..self }
    }
}

/// What a command begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin<'a> {
    /// The state that the last command left.
    pub state: Option<&'a State>,
    /// The environment that the jail gives to bash. What the last command unset stays unset, and what it left as it was given needs no words.
    pub given: &'a [(&'a str, &'a [u8])],
    /// Go to the folder in which the last command ended. `false` where the call names a folder: the jail goes there.
    pub follow_cwd: bool,
    /// The folder in which the jail starts bash where the call names none: an absolute path without links.
    pub start: &'a [u8],
    /// Variables of this call alone, set on top of all others.
    pub env: &'a [(String, String)],
}

/// Writes what the [`prelude`] reads from descriptor 8; empty where everything is as bash finds it.
pub fn compose(begin: &Begin<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let cwd = begin.state.and_then(|state| state.cwd.as_deref()).filter(|cwd| begin.follow_cwd && *cwd != begin.start);
    // Go first: the state also holds PWD and OLDPWD, so that `cd -` works.
    go(&mut out, cwd);
    if let Some(script) = begin.state.and_then(|state| state.script.as_deref()) {
        let (unset, rest) = differences(script, begin.given, cwd.is_some());
        if !unset.is_empty() {
            out.extend_from_slice(format!("builtin unset -v {}\n", unset.join(" ")).as_bytes());
        }
        if !rest.is_empty() {
            out.extend_from_slice(&rest);
            // Where the shell is somewhere else than the state says, PWD has to say so.
            out.extend_from_slice(b"\n[[ $PWD -ef . ]] || builtin cd -P . >/dev/null\n");
        }
    }
    for (name, value) in begin.env.iter().filter(|(name, value)| is_name(name) && !value.contains('\0')) {
        let value = quote(value.as_bytes());
        let mut test = format!("[[ ${{{name}-}} == ").into_bytes();
        test.extend_from_slice(&value);
        test.extend_from_slice(b" ]] && { ");
        // The old value, as bash itself quotes it, goes into the trap: this call's value is not what the next call sees.
        out.extend_from_slice(format!("__bailiwick_was=${{{name}@A}}\n__bailiwick_undo+=").as_bytes());
        out.extend_from_slice(&quote(&test));
        out.extend_from_slice(
            format!("${{__bailiwick_was:-builtin unset -v {name}}}$'; }}\\n'\nbuiltin unset -v __bailiwick_was\nbuiltin export {name}=")
                .as_bytes(),
        );
        out.extend_from_slice(&value);
        out.push(b'\n');
    }
    if !out.is_empty() {
        // Bash has read all of this before it runs the first line.
        out.splice(0..0, *b"exec 8<&-\n");
    }
    out
}

/// What of a state says something that a fresh bash with the given environment would not find: the given names that it lacks, and its
/// other declarations, as they are written. What is not of the form that `export -p` gives stays, with all that follows it.
fn differences<'a>(script: &[u8], given: &[(&'a str, &[u8])], moved: bool) -> (Vec<&'a str>, Vec<u8>) {
    let mut lacking: Vec<(&str, &[u8])> = given.iter().copied().filter(|(name, _)| is_name(name)).collect();
    let mut rest = Vec::new();
    let mut left = script;
    while let Some((declared, length)) = declaration(left) {
        let is_known = match (&declared.value, declared.name) {
            // What bash sets of itself.
            (_, b"PWD") => !moved,
            (Value::None, b"OLDPWD") => true,
            (Value::Plain(value), b"SHLVL") if value == b"1" => true,
            (Value::Plain(value), name) => given.iter().any(|given| given.0.as_bytes() == name && given.1 == *value),
            _ => false,
        };
        if !(declared.is_exported_alone && is_known) {
            rest.extend_from_slice(&left[..length]);
        }
        if declared.value != Value::None {
            lacking.retain(|(name, _)| name.as_bytes() != declared.name);
        }
        left = &left[length..];
    }
    if left.starts_with(b"declare ") {
        // There may be given names in what was not understood: they are all taken away before it.
        return (given.iter().map(|(name, _)| *name).filter(|name| is_name(name)).collect(), script.to_vec());
    }
    // The functions.
    if left.iter().any(|byte| *byte != b'\n') {
        rest.extend_from_slice(left);
    }
    (lacking.into_iter().map(|(name, _)| name).collect(), rest)
}

/// One line of `export -p`.
struct Declared<'a> {
    name: &'a [u8],
    /// It has no attribute but that it is exported.
    is_exported_alone: bool,
    value: Value,
}

#[derive(PartialEq, Eq)]
enum Value {
    /// Exported without one.
    None,
    Plain(Vec<u8>),
    /// Written with escapes that are left to bash.
    Escaped,
}

/// The declaration that a text begins with, and its length in bytes with the end of its line. A value has its own form, in which a line end
/// ends nothing: it is read to its quote.
fn declaration(text: &[u8]) -> Option<(Declared<'_>, usize)> {
    let rest = text.strip_prefix(b"declare -")?;
    let (attributes, rest) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
    let rest = &rest[1..];
    let (name, rest) = rest.split_at(rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')?);
    let (value, rest) = match rest {
        [b'=', b'"', rest @ ..] => {
            let (value, rest) = quoted(rest, b'"')?;
            (Value::Plain(value), rest)
        }
        [b'=', b'$', b'\'', rest @ ..] => (Value::Escaped, quoted(rest, b'\'')?.1),
        rest => (Value::None, rest),
    };
    let rest = rest.strip_prefix(b"\n")?;
    Some((Declared { name, is_exported_alone: attributes == b"x", value }, text.len() - rest.len()))
}

/// A text up to its quote, without its backslashes, and what follows the quote.
fn quoted(text: &[u8], quote: u8) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => value.push(*bytes.next()?.1),
            byte if *byte == quote => return Some((value, &text[at + 1..])),
            byte => value.push(*byte),
        }
    }
    None
}

fn go(out: &mut Vec<u8>, cwd: Option<&[u8]>) {
    let Some(cwd) = cwd else { return };
    let quoted = quote(cwd);
    out.extend_from_slice(b"builtin cd -- ");
    out.extend_from_slice(&quoted);
    out.extend_from_slice(b" >/dev/null || builtin printf 'notice the folder %s is gone; the command starts in the base folder\\0' ");
    out.extend_from_slice(&quoted);
    out.extend_from_slice(b" >&247\n");
}

/// Whether bash can export a variable of this name.
pub fn is_name(name: &str) -> bool {
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// One bash word that stands for these bytes (which hold no NUL).
fn quote(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => out.extend_from_slice(b"'\\''"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
    out
}

/// Reads what the trap wrote. Never fails: what is not of the expected form is absent.
pub fn parse_state(bytes: &[u8]) -> State {
    const NOTICES: usize = 8;
    const NOTICE: usize = 1000;
    const PATH: usize = 4096;
    let mut state = State::default();
    let bytes = &bytes[..bytes.len().min(MAX_STATE)];
    let records = bytes.split(|byte| *byte == 0);
    let mut script = None;
    let mut ended = false;
    for record in records {
        if record == b"end" {
            ended = true;
            break;
        } else if let Some(codes) = record.strip_prefix(b"pipestatus ") {
            // What follows the codes was written by a trap of the user's.
            let codes = codes.split(|byte| *byte == b' ').map_while(|code| std::str::from_utf8(code).ok()?.parse::<u8>().ok());
            let codes: Vec<i32> = codes.take(256).map(i32::from).collect();
            state.pipestatus = Some(codes).filter(|codes| !codes.is_empty());
        } else if let Some(cwd) = record.strip_prefix(b"cwd ") {
            let cwd = cwd.strip_suffix(b"\n").unwrap_or(cwd);
            state.cwd = Some(cwd.to_vec()).filter(|cwd| cwd.starts_with(b"/") && cwd.len() < PATH);
        } else if let Some(notice) = record.strip_prefix(b"notice ") {
            if state.notices.len() < NOTICES {
                state.notices.push(crate::workspace::escape::escape(&notice[..notice.len().min(NOTICE)]));
            }
        } else if let Some(text) = record.strip_prefix(b"state\n") {
            script = Some(text.to_vec());
        }
    }
    // Without its end it was cut off somewhere, and half a declaration is worse than none. What came before it is whole.
    if !ended && script.is_some() {
        state.notices.push(format!(
            "the exported variables and functions of this command do not last: they are larger than {} MiB or than its own limit of file size, or the shell was ended while it \
             told them",
            MAX_STATE >> 20
        ));
    } else if !ended {
        state.cwd = None;
    }
    state.script = script.filter(|_| ended);
    state
}

#[cfg(test)]
mod tests;
