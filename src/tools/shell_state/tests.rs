use super::*;
use proptest::prelude::*;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

struct Ran {
    output: Output,
    state: State,
}

impl Ran {
    fn out(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }
    fn err(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

thread_local! {
    /// Bash is started as one that waits.
    static WAITED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Nothing of what a script sees, leaves or prints depends on whether its shell was there before it.
#[test]
fn a_shell_that_waited_is_as_any_other() {
    WAITED.set(true);
    variables_functions_and_folder_last();
    an_unset_variable_stays_unset_and_a_given_one_comes_back_as_it_was_left();
    what_is_as_it_was_given_needs_no_words();
    the_variables_of_one_call_do_not_last();
    a_folder_that_is_gone_falls_back_and_says_so();
    a_call_that_names_its_folder_starts_there();
    the_script_sees_an_undisturbed_shell();
    state_is_absent_where_the_shell_is_replaced_or_traps_exit();
    signals_are_as_a_plain_bash_has_them();
    let base = base();
    let ran = bash(base.path(), &Begin::default(), "echo $SECONDS; { : <&5; } 2>/dev/null || echo closed");
    assert_eq!(ran.out(), "0\nclosed\n");
}

/// Runs bash as the warden does: script, prelude and state by descriptor.
fn bash(base: &Path, begin: &Begin<'_>, script: &str) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        File::create(&path).unwrap().write_all(bytes).unwrap();
        path
    };
    let script = file("script", script.as_bytes());
    let composed = compose(begin);
    let waited = WAITED.get();
    let prelude = file("prelude", if waited { waiting_prelude() } else { prelude(!composed.is_empty(), true) }.as_bytes());
    let before = file("before", &composed);
    let take = if composed.is_empty() && !waited { "" } else { r#"8<"$3""# };
    let go = file("go", &[if composed.is_empty() { GO_ON } else { GO_READ }]);
    let wait = if waited { r#"5<"$5""# } else { "" };
    let after = file("after", b"");
    // A plain sh sets up the descriptors, as std cannot.
    let output = Command::new("/bin/sh")
        .args(["-c", &format!(r#"exec /bin/bash /dev/fd/6 6<"$1" 7<"$2" {take} 9>>"$4" {wait}"#), "sh"])
        .args([&script, &prelude, &before, &after, &go])
        .current_dir(base)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("BASH_ENV", "/dev/fd/7")
        .envs(begin.given.iter().map(|(name, value)| (OsStr::new(name), OsStr::from_bytes(value))))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let state = parse_state(&fs::read(after).unwrap());
    Ran { output, state }
}

fn base() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn variables_functions_and_folder_last() {
    let base = base();
    fs::create_dir(base.path().join("sub dir'\n$x")).unwrap();
    let first = bash(
        base.path(),
        &Begin::default(),
        "cd $'sub dir\\'\\n$x'\nexport A=$'q\"uo\\'te\\n$(touch pwned)`x`\\\\ \\377\\001 é' B= C\nNOT=1\nf(){ echo \"from f\n$1\"; }; export -f f\nfalse | true\n",
    );
    assert_eq!((first.out(), first.err()), (String::new(), String::new()));
    assert_eq!(first.state.pipestatus, Some(vec![1, 0]));
    let begin = Begin { state: Some(&first.state), follow_cwd: true, ..Begin::default() };
    let second = bash(
        base.path(),
        &begin,
        "printf '%s' \"$A\" | od -An -tx1 | tr -d ' \\n'; echo; echo \"[${B-unset}][${C-unset}][${NOT-unset}]\"; f x; bash -c 'f y'; [[ $PWD -ef . ]] && echo \"${PWD##*/}\"; cd - >/dev/null; echo $?; env | grep -c bailiwick",
    );
    let expected: String = b"q\"uo'te\n$(touch pwned)`x`\\ \xff\x01 \xc3\xa9".iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(second.out(), format!("{expected}\n[][unset][unset]\nfrom f\nx\nfrom f\ny\nsub dir'\n$x\n0\n0\n"));
    assert_eq!(second.err(), "");
    assert!(second.state.script.is_some());
    assert!(!base.path().join("pwned").exists());
}

#[test]
fn an_unset_variable_stays_unset_and_a_given_one_comes_back_as_it_was_left() {
    let base = base();
    let given: [(&str, &[u8]); 5] = [("KEPT", b"1"), ("GONE", b"1"), ("CHANGED", b"1"), ("BARE", b"1"), ("not a name", b"1")];
    let first = bash(base.path(), &Begin { given: &given, ..Begin::default() }, "unset GONE BARE; CHANGED=2; export BARE");
    let begin = Begin { state: Some(&first.state), given: &given, ..Begin::default() };
    let second = bash(base.path(), &begin, "echo $KEPT.${GONE-unset}.$CHANGED.${BARE-unset}; echo $PATH");
    assert_eq!(second.out(), "1.unset.2.unset\n/usr/bin:/bin\n");
}

#[test]
fn what_is_as_it_was_given_needs_no_words() {
    let base = base();
    let folder = base.path().canonicalize().unwrap();
    let odd = "q\"uo'te $(x) `y` \\ \\\\ {a,b} ~ * #";
    let given: [(&str, &[u8]); 4] = [("PATH", b"/usr/bin:/bin"), ("LANG", b"C.UTF-8"), ("EMPTY", b""), ("ODD", odd.as_bytes())];
    let fresh = Begin { given: &given, follow_cwd: true, start: folder.as_os_str().as_bytes(), ..Begin::default() };
    let first = bash(&folder, &fresh, "true");
    assert!(first.state.script.is_some());
    let again = Begin { state: Some(&first.state), ..fresh };
    assert_eq!(String::from_utf8(compose(&again)).unwrap(), "");
    // What the next shell finds is the same, by what it has and by what it says.
    let second = bash(&folder, &again, "echo \"$ODD|${EMPTY-unset}|$PWD|${OLDPWD-unset}|$SHLVL\"; ls /dev/fd/8 2>&1 | grep -c such");
    assert_eq!(second.out(), format!("{odd}||{}|unset|1\n1\n", folder.display()));
    assert_eq!(second.state.script, first.state.script);
    // A difference is written, and only it.
    let third = bash(&folder, &again, "export NEW=1 LANG=C; readonly PATH; f() { :; }; export -f f; mkdir -p sub; cd sub");
    let begin = Begin { state: Some(&third.state), ..fresh };
    let text = String::from_utf8(compose(&begin)).unwrap();
    for part in ["builtin cd -- ", "declare -x NEW=\"1\"\n", "declare -x LANG=\"C\"\n", "declare -rx PATH=", "declare -x OLDPWD=", "f ()"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("ODD") && !text.contains("EMPTY") && !text.contains("unset"), "{text}");
    let fourth = bash(&folder, &begin, "echo $NEW.$LANG.${PWD##*/}.${OLDPWD##*/}; f; echo $?; readonly -p | grep -c PATH");
    assert_eq!(fourth.out(), format!("1.C.sub.{}\n0\n1\n", folder.file_name().unwrap().to_string_lossy()));
}

#[test]
fn what_is_not_understood_is_taken_whole() {
    let given: [(&str, &[u8]); 2] = [("A", b"1"), ("B", b"2")];
    for (script, unset, rest) in [
        ("declare -x A=\"1\"\ndeclare -x B=\"2\"\n", "", ""),
        ("declare -x A=\"1\"\n", "B", ""),
        ("declare -x A\ndeclare -x B=\"2\"\n", "A", "declare -x A\n"),
        ("declare -x A=$'1'\ndeclare -x B=\"2\"\n", "", "declare -x A=$'1'\n"),
        ("declare -ix A=\"1\"\ndeclare -x B=\"2\"\n", "", "declare -ix A=\"1\"\n"),
        // A value may look like a declaration.
        ("declare -x A=\"\ndeclare -x B=\\\"2\\\"\n\"\n", "B", "declare -x A=\"\ndeclare -x B=\\\"2\\\"\n\"\n"),
        ("declare -x A=$'\\'\ndeclare -x B=2'\n", "B", "declare -x A=$'\\'\ndeclare -x B=2'\n"),
        ("declare -ax A=([0]=\"1\")\ndeclare -x B=\"2\"\n", "A B", "declare -ax A=([0]=\"1\")\ndeclare -x B=\"2\"\n"),
        ("declare -x A=\"1", "A B", "declare -x A=\"1"),
        ("declare -x A=\"1\" touch x\n", "A B", "declare -x A=\"1\" touch x\n"),
        ("declare -x A=\"1\"\nf () \n{ \n :\n}\ndeclare -fx f\n", "B", "f () \n{ \n :\n}\ndeclare -fx f\n"),
    ] {
        let (lacking, left) = differences(script.as_bytes(), &given, false);
        assert_eq!((lacking.join(" ").as_str(), String::from_utf8(left).unwrap().as_str()), (unset, rest), "{script}");
    }
}

#[test]
fn the_variables_of_one_call_do_not_last() {
    let base = base();
    let first = bash(base.path(), &Begin::default(), "export A=old L='l o'\"'\"'ng'");
    let env: Vec<(String, String)> =
        [("A", "it's\n\"$(false)\""), ("L", ""), ("N", "new"), ("bad name", "x")].map(|(k, v)| (k.into(), v.into())).into();
    let second = bash(
        base.path(),
        &Begin { state: Some(&first.state), env: &env, ..Begin::default() },
        "printf '<%s>' \"$A\" \"$L\" \"$N\"; bash -c 'echo \"$N\"'; set | grep -c ^__",
    );
    assert_eq!((second.out(), second.err()), ("<it's\n\"$(false)\"><><new>new\n0\n".into(), String::new()));
    let third = bash(base.path(), &Begin { state: Some(&second.state), ..Begin::default() }, "echo \"$A.$L.${N-unset}\"");
    assert_eq!(third.out(), "old.l o'ng.unset\n");
    // What the script itself exports does last.
    let fourth = bash(base.path(), &Begin { state: Some(&first.state), env: &env, ..Begin::default() }, "export N=mine");
    let fifth = bash(base.path(), &Begin { state: Some(&fourth.state), ..Begin::default() }, "echo $N");
    assert_eq!(fifth.out(), "mine\n");
}

#[test]
fn a_folder_that_is_gone_falls_back_and_says_so() {
    let base = base();
    let first = bash(base.path(), &Begin::default(), "mkdir sub; cd sub; export A=1");
    let begin = Begin { state: Some(&first.state), follow_cwd: true, ..Begin::default() };
    let second = bash(base.path(), &begin, "rmdir ../sub; pwd >/dev/null");
    assert_eq!(second.err(), "");
    let begin = Begin { state: Some(&second.state), follow_cwd: true, ..Begin::default() };
    let third = bash(base.path(), &begin, "pwd; echo $A");
    assert_eq!(third.out(), format!("{}\n1\n", fs::canonicalize(base.path()).unwrap().display()));
    assert_eq!(third.err(), "");
    assert_eq!(third.state.notices.len(), 1);
    assert!(third.state.notices[0].contains("/sub is gone"), "{:?}", third.state.notices);
}

#[test]
fn a_call_that_names_its_folder_starts_there() {
    let base = base();
    let first = bash(base.path(), &Begin::default(), "mkdir a b; cd a");
    let begin = Begin { state: Some(&first.state), follow_cwd: false, ..Begin::default() };
    let second = bash(&base.path().join("b"), &begin, "echo ${PWD##*/}; pwd");
    assert!(second.out().starts_with("b\n") && second.out().ends_with("/b\n"), "{}", second.out());
}

#[test]
fn the_script_sees_an_undisturbed_shell() {
    let base = base();
    let ran = bash(
        base.path(),
        &Begin::default(),
        "echo \"$? $# ${BASH_ENV-unset}\"; (trap) | grep -c bailiwick; bash -c 'trap -p EXIT'; { : <&7; } 2>/dev/null || { : <&8; } 2>/dev/null || { : >&9; } 2>/dev/null || { : <&5; } 2>/dev/null || echo closed; set | grep -ci bailiwick",
    );
    assert_eq!(ran.out(), "0 0 unset\n0\nclosed\n0\n");
    for (script, code, out, err) in [
        ("exit 7", 7, "", ""),
        ("set -e; false; echo no", 1, "", ""),
        ("set -euo pipefail; false | true; echo no", 1, "", ""),
        ("set -u; echo $nope", 1, "", "/dev/fd/6: line 1: nope: unbound variable\n"),
        ("set -x; :", 0, "", "+ :\n"),
        ("trap 'echo d' DEBUG; :", 0, "d\nd\n", ""),
        ("set -C; IFS=1; :", 0, "", ""),
        ("set -o posix; export A=1", 0, "", ""),
        ("cat <<EOF\nhello\nEOF", 0, "hello\n", ""),
        ("echo a # comment", 0, "a\n", ""),
        ("echo a \\", 0, "a\n", ""),
        ("(exit 3)", 3, "", ""),
        ("printf(){ echo mine; }; export(){ echo mine; }; pwd(){ echo mine; }; trap(){ echo mine; }; export -f printf", 0, "mine\n", ""),
        ("readonly A=1; export A; readonly IFS PATH", 0, "", ""),
    ] {
        let ran = bash(base.path(), &Begin::default(), script);
        assert_eq!(ran.output.status.code(), Some(code), "{script}");
        assert_eq!(ran.out(), out.replace("d\nd\n", "d\n"), "{script}");
        assert_eq!(ran.err(), err, "{script}");
        assert!(ran.state.script.is_some(), "{script}");
        let again = bash(base.path(), &Begin { state: Some(&ran.state), follow_cwd: true, ..Begin::default() }, "builtin printf '%s' ok");
        assert_eq!((again.out().as_str(), again.err().as_str()), ("ok", ""), "{script}");
    }
}

#[test]
fn state_is_absent_where_the_shell_is_replaced_or_traps_exit() {
    let base = base();
    for script in ["exec true", "trap 'echo bye' EXIT; true | false", "kill -KILL $$", "exec 247>&-"] {
        let ran = bash(base.path(), &Begin::default(), script);
        assert_eq!((&ran.state.script, &ran.state.pipestatus), (&None, &None), "{script}");
        assert_eq!(ran.err(), "", "{script}");
    }
    let ran = bash(base.path(), &Begin::default(), "export A=1; echo 'unfinished");
    assert!(ran.err().contains("unexpected EOF while looking for matching"), "{}", ran.err());
}

/// Bash has handlers of its own where a script sets an `EXIT` trap, and a child loses what comes before it has reset them.
#[test]
fn signals_are_as_a_plain_bash_has_them() {
    let base = base();
    // No program is asked: while bash waits for one, its signals are others. SIGINT is bash's own affair as soon as it had a trap.
    let script = "trap - INT; while read -r line; do [[ $line == Sig[BIC]* ]] && echo \"$line\"; done </proc/$$/status; :";
    let plain = Command::new("/bin/bash").args(["-c", script]).stdin(Stdio::null()).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert_eq!(plain.lines().count(), 3, "{plain}");
    let trapped = Command::new("/bin/bash").args(["-c", &format!("trap : EXIT; {script}")]).stdin(Stdio::null()).output().unwrap();
    assert_ne!(String::from_utf8(trapped.stdout).unwrap(), plain, "shown with a trap");
    let ran = bash(base.path(), &Begin::default(), script);
    assert_eq!(ran.out(), plain);
    assert!(ran.state.script.is_some());
    let again = bash(base.path(), &Begin { state: Some(&ran.state), follow_cwd: true, ..Begin::default() }, script);
    assert_eq!(again.out(), plain);
}

#[test]
fn what_is_too_large_to_last_is_said() {
    let base = base();
    fs::create_dir(base.path().join("sub")).unwrap();
    let ran = bash(base.path(), &Begin::default(), "cd sub; export A=1");
    assert!(ran.state.notices.is_empty() && ran.state.script.is_some());
    let large = "cd sub; printf -v B '%700000s' ''; export B; printf -v C '%700000s' ''; export C";
    let ran = bash(base.path(), &Begin::default(), large);
    assert!(ran.state.notices[0].contains("larger than 1 MiB"), "{:?}", ran.state.notices);
    assert_eq!(ran.state.script, None);
    assert!(ran.state.cwd.unwrap().ends_with(b"/sub"), "the folder lasts");
}

#[test]
fn a_background_child_holds_nothing_that_matters() {
    let base = base();
    let ran = bash(base.path(), &Begin::default(), "sleep 0.01 >/dev/null 2>&1 & export A=1");
    assert!(ran.state.script.is_some());
}

#[test]
fn rows_of_hostile_state() {
    assert_eq!(parse_state(b""), State::default());
    assert_eq!(parse_state(b"pipestatus 1 0 \0cwd /a\n\n\0state\nx\0end\0junk\0state\nevil").cwd, Some(b"/a\n".to_vec()));
    assert_eq!(parse_state(b"pipestatus 1 0 \0state\nx").script, None);
    assert_eq!(parse_state(b"pipestatus x\0end\0").pipestatus, None);
    assert_eq!(parse_state(b"pipestatus 99999999999\0end\0").pipestatus, None);
    assert_eq!(parse_state(b"cwd relative\n\0end\0").cwd, None);
    assert_eq!(parse_state(&b"notice x\0".repeat(10_000)).notices.len(), 8);
    assert_eq!(parse_state(b"notice \x1b[31m\xff\0end\0").notices, ["\\x1b[31m\\xff"]);
    let mut long = vec![0; MAX_STATE + 10];
    long.extend_from_slice(b"\0end\0");
    assert_eq!(parse_state(&long), State::default());
}

proptest! {
    #![proptest_config(crate::property_tests::cases(16))]
    #[test]
    fn any_value_round_trips(value in prop::collection::vec(1u8..=255, 0..40)) {
        let base = base();
        let octal: String = value.iter().map(|byte| format!("\\{byte:03o}")).collect();
        let first = bash(base.path(), &Begin::default(), &format!("export A=$'{octal}'"));
        let second = bash(base.path(), &Begin { state: Some(&first.state), ..Begin::default() }, "printf '%s' \"$A\"");
        prop_assert_eq!(&second.output.stdout, &value);
        prop_assert_eq!(second.err(), "");
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..300)) {
        let state = parse_state(&bytes);
        prop_assert!(state.script.is_none() || bytes.windows(4).any(|four| four == b"\0end"));
    }
}
