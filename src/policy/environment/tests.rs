use super::super::file::Env;
use super::*;

fn host(pairs: &[(&str, &str)]) -> Surroundings {
    Surroundings::new(pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect(), 1000, 1000)
}

fn made(here: &Surroundings, pass: &[&str]) -> Built {
    let rules = Env { pass: pass.iter().map(|name| (*name).to_owned()).collect(), ..Env::default() };
    build(here, &Present::default(), &rules, Net::None, Identity { uid: 1000, gid: 1000 }, Path::new("/s"))
}

fn get<'a>(built: &'a Built, name: &str) -> Option<&'a str> {
    built.env.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.to_str())
}

#[test]
fn nothing_of_the_host_comes_through_but_what_is_named() {
    let secrets = [
        "github_token",
        "GITHUB_TOKEN",
        "ACTIONS_RUNTIME_TOKEN",
        "ACTIONS_ID_TOKEN_REQUEST_URL",
        "SSH_AUTH_SOCK",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "AWS_SECRET_ACCESS_KEY",
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "NPM_TOKEN",
        "DATABASE_URL",
        "PGPASSWORD",
        "DOCKER_HOST",
        "KUBECONFIG",
        "HTTP_PROXY",
        "https_proxy",
        "CI_JOB_TOKEN",
        "GIT_SSH_COMMAND",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "DBUS_SESSION_BUS_ADDRESS",
        "BASH_FUNC_ls%%",
        "RANDOM_THING",
    ];
    let mut pairs: Vec<_> = secrets.iter().map(|name| (*name, "canary-value")).collect();
    pairs.extend([("LANG", "C.UTF-8"), ("LC_ALL", "C"), ("TZ", "UTC"), ("HOME", "/home/person")]);
    let here = host(&pairs);
    let built = made(&here, &["LANG", "LC_*", "TZ"]);
    for (name, value) in &built.env {
        assert!(!value.to_string_lossy().contains("canary-value"), "{name:?}");
    }
    assert_eq!((get(&built, "LANG"), get(&built, "LC_ALL"), get(&built, "TZ")), (Some("C.UTF-8"), Some("C"), Some("UTC")));
    assert_eq!(get(&built, "HOME"), Some("/s/home"));
    assert_eq!(get(&built, "CARGO_NET_OFFLINE"), Some("true"));
    assert!(built.loud.is_empty());
}

#[test]
fn a_pattern_does_not_pass_a_secret_and_a_name_does_so_loudly() {
    let here = host(&[("MY_TOKEN", "t"), ("MY_MODE", "m"), ("MY_EMPTY", "")]);
    let built = made(&here, &["MY_*"]);
    assert_eq!((get(&built, "MY_MODE"), get(&built, "MY_TOKEN"), get(&built, "MY_EMPTY")), (Some("m"), None, None));
    assert!(built.kept_out.iter().any(|text| text.starts_with("MY_TOKEN")) && built.loud.is_empty());

    let built = made(&here, &["MY_TOKEN"]);
    assert_eq!(get(&built, "MY_TOKEN"), Some("t"));
    assert!(built.loud[0].contains("MY_TOKEN"));
}

#[test]
fn the_policy_has_the_last_word_and_code_loaders_are_loud() {
    let rules = Env { set: [("PAGER", "less"), ("LD_PRELOAD", "/x.so")].map(|(k, v)| (k.into(), v.into())).into(), ..Env::default() };
    let built = build(&host(&[]), &Present::default(), &rules, Net::Full, Identity { uid: 0, gid: 0 }, Path::new("/s"));
    assert_eq!(get(&built, "PAGER"), Some("less"));
    assert_eq!(get(&built, "CARGO_NET_OFFLINE"), None);
    assert_eq!(get(&built, "TAR_OPTIONS"), Some("--no-same-owner"));
    assert_eq!(built.loud.len(), 1);
}

#[test]
fn names_are_unique_and_no_value_is_inherited_twice() {
    let built = made(&host(&[("LANG", "a"), ("LANG", "b")]), &["LANG"]);
    let mut names: Vec<_> = built.env.iter().map(|(name, _)| name).collect();
    names.dedup();
    assert_eq!(names.len(), built.env.len());
    assert_eq!(get(&built, "LANG"), Some("b"));
}
