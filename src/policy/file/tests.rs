use super::*;
use proptest::prelude::*;

#[test]
fn an_unknown_key_is_an_error_at_every_level_with_its_name_and_line() {
    for (text, line) in [
        ("\nbogus = 1", 2),
        ("[fs]\nread = []\nbogus = 1", 3),
        ("[fs]\nread = [\n  { path = \"/opt\", bogus = 1 },\n]", 3),
        ("[env]\nbogus = 1", 2),
        ("[limits]\nwall = \"1m\"\nbogus = 1", 3),
        ("[tools]\nbogus = 1", 2),
        ("[budgets]\nbogus = 1", 2),
        ("net = \"none\"\n\n[bogus]\nx = 1", 3),
    ] {
        let fault = Policy::parse(text, "p.toml").unwrap_err();
        assert_eq!(fault.code(), FaultCode::InvalidPolicy);
        assert!(fault.message().contains("`bogus`"), "{text}: {fault}");
        assert!(fault.message().contains(&format!("p.toml, line {line}:")), "{text}: {fault}");
    }
}

#[test]
fn a_setting_in_the_wrong_table_is_an_error() {
    for text in ["[fs]\nnet = \"none\"", "[limits]\nturns = 3", "[budgets]\nmemory = \"1GiB\"", "wall = \"1m\"", "exclude = [\"git\"]"] {
        assert!(Policy::parse(text, "p").is_err(), "{text}");
    }
}

#[test]
fn wrong_values_say_what_to_do() {
    for (text, says) in [
        ("[fs]\nread = [\"\"]", "empty path"),
        ("[fs]\nwrite = [\"x\"]", "relative to nothing"),
        ("[fs]\nexec = [\"$FOO/x\"]", "$FOO is not expanded"),
        ("[fs]\nprotect = [\"/etc\"]", "relative to the workspace"),
        ("net = \"off\"", "off"),
        ("require = [\"fs.reed\"]", "fs.reed"),
        ("require = \"some\"", "\"all\" or a list"),
        ("access = [\"own\", \"look\"]", "no class of a policy"),
        ("access = [\"execute\"]", "has `look`"),
        ("[limits]\nwall = 5", "has no unit"),
        ("[limits]\nmemory = \"lots\"", "no size"),
        ("[limits]\nprocesses = -1", "-1"),
        ("[env]\npass = [\"*\"]", "whole environment"),
        ("[env]\npass = [\"A*B\"]", "no name of a variable"),
        ("[env.set]\n\"A=B\" = \"x\"", "no name of a variable"),
        ("[budgets]\nmoney = nan", "dollars"),
    ] {
        let fault = Policy::parse(text, "p").unwrap_err();
        assert!(fault.message().contains(says), "{text}: {fault}");
    }
}

#[test]
fn rows_know_their_origin_through_a_layer() {
    let below = Policy::parse("name = \"a\"\n[fs]\nread = [\"/opt/a\"]\n[limits]\nwall = \"1m\"\nmemory = \"1GiB\"", "a").unwrap();
    let above = Policy::parse("name = \"b\"\n[fs]\nread = [{ path = \"/opt/b\", reason = \"r\" }]\n[limits]\nwall = \"2m\"", "b").unwrap();
    let both = above.over(below);
    let origins: Vec<_> = both.fs.read.iter().map(|row| (row.path.as_str(), row.origin.as_str())).collect();
    assert_eq!(origins, [("/opt/a", "policy a"), ("/opt/b", "policy b")]);
    assert_eq!(both.limits.wall, Some(Millis(120_000)));
    assert_eq!(both.limits.memory, Some(Bytes(1 << 30)));
}

#[test]
fn requirements_add_up() {
    let policy = |text| Policy::parse(text, "p").unwrap();
    let both = policy("require = [\"env\"]").over(policy("require = [\"fs.read\"]"));
    assert_eq!(both.require.unwrap().list(), [Protection::FsRead, Protection::Env]);
    let all = policy("require = [\"env\"]").over(policy("require = \"all\""));
    assert_eq!(all.require, Some(Require::All), "a layer cannot require less");
}

const KNOWN: &[&str] = &[
    "name",
    "description",
    "extends",
    "image",
    "access",
    "fs",
    "net",
    "unix",
    "env",
    "limits",
    "tools",
    "budgets",
    "require",
    "trust",
    "read",
    "write",
    "exec",
    "protect",
    "set",
    "pass",
    "wall",
    "cpu",
    "memory",
    "processes",
    "file_size",
    "open_files",
    "output",
    "disk",
    "allow",
    "deny",
    "turns",
    "tokens",
    "money",
    "errors",
    "path",
    "reason",
];

proptest! {
    #![proptest_config(crate::property_tests::cases(1000))]

    #[test]
    fn unknown_keys_never_pass(key in "[a-z_]{1,12}", level in 0usize..6) {
        prop_assume!(!KNOWN.contains(&key.as_str()));
        let table = ["", "[fs]\n", "[env]\n", "[limits]\n", "[tools]\n", "[budgets]\n"][level];
        let fault = Policy::parse(&format!("{table}{key} = 1"), "p").unwrap_err();
        prop_assert!(fault.message().contains(&format!("`{key}`")), "{}", fault);
    }
}
