//! The environment of commands, made from nothing: what is not written here or named by the policy does not reach a command.
//!
//! Never passes on a variable that looks like a secret or that makes programs load code, unless a policy writes out its name.

use super::image::Present;
use super::surroundings::Surroundings;
use super::{Identity, Net};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// What every command finds, whatever the machine: no terminal, nobody to ask.
const FIXED: &[(&str, &str)] = &[
    ("SHELL", "/bin/bash"),
    // Output is read by a program.
    ("TERM", "dumb"),
    ("NO_COLOR", "1"),
    ("PAGER", "cat"),
    ("GIT_PAGER", "cat"),
    ("MANPAGER", "cat"),
    ("SYSTEMD_PAGER", ""),
    // Nobody answers: what asks fails at once.
    ("CI", "1"),
    ("GIT_EDITOR", "false"),
    ("EDITOR", "false"),
    ("VISUAL", "false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("SSH_ASKPASS", "false"),
    ("SSH_ASKPASS_REQUIRE", "force"),
    ("SUDO_ASKPASS", "false"),
    ("DEBIAN_FRONTEND", "noninteractive"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PYTHONUNBUFFERED", "1"),
    ("npm_config_yes", "true"),
    ("npm_config_fund", "false"),
    ("npm_config_audit", "false"),
    ("npm_config_update_notifier", "false"),
    ("GOTOOLCHAIN", "local"),
    ("GOTELEMETRY", "off"),
    ("RUSTUP_AUTO_INSTALL", "0"),
    ("UV_PYTHON_DOWNLOADS", "never"),
    ("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0"),
    ("DOTNET_CLI_TELEMETRY_OPTOUT", "1"),
];

/// Set where commands have no network: tools say "offline" at once and do not wait for a time-out.
const OFFLINE: &[(&str, &str)] = &[
    ("CARGO_NET_OFFLINE", "true"),
    ("npm_config_offline", "true"),
    ("PIP_NO_INDEX", "1"),
    ("UV_OFFLINE", "1"),
    ("GOSUMDB", "off"),
    ("GOFLAGS", "-modcacherw"),
];

/// Folders that tools write to, beneath the session's folder.
const FOLDERS: &[(&str, &str)] = &[
    ("HOME", "home"),
    ("TMPDIR", "tmp"),
    ("TMP", "tmp"),
    ("TEMP", "tmp"),
    ("XDG_CACHE_HOME", "cache"),
    ("XDG_CONFIG_HOME", "home/.config"),
    ("XDG_DATA_HOME", "home/.local/share"),
    ("XDG_STATE_HOME", "home/.local/state"),
    ("GIT_CONFIG_GLOBAL", "home/.gitconfig"),
    ("CARGO_HOME", "cache/cargo"),
    ("npm_config_cache", "cache/npm"),
    ("YARN_CACHE_FOLDER", "cache/yarn"),
    ("PIP_CACHE_DIR", "cache/pip"),
    ("UV_CACHE_DIR", "cache/uv"),
    ("GOPATH", "cache/go"),
    ("GOCACHE", "cache/go-build"),
    ("GRADLE_USER_HOME", "cache/gradle"),
];

/// What is put into the environment and why it was left out.
#[derive(Debug, Default, PartialEq)]
pub struct Built {
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
    /// Weakenings that the policy asks for, for a person.
    pub loud: Vec<String>,
    /// Variables that a pattern named and that were kept out.
    pub kept_out: Vec<String>,
}

/// Makes the environment of commands.
pub fn build(here: &Surroundings, present: &Present, rules: &super::file::Env, net: Net, identity: Identity, session: &Path) -> Built {
    let mut built = Built::default();
    // Sorted, so that two sessions of the same policy have the same environment.
    let mut env: BTreeMap<OsString, OsString> = BTreeMap::new();
    let pairs = |pairs: &'static [(&str, &str)]| pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    env.extend(pairs(FIXED));
    if net != Net::Full {
        env.extend(pairs(OFFLINE));
    }
    env.extend(FOLDERS.iter().map(|(name, folder)| (OsString::from(name), session.join(folder).into_os_string())));
    if identity.uid == 0 {
        // Without capabilities uid 0 gives nothing away: unpacking would try and fail.
        env.insert("TAR_OPTIONS".into(), "--no-same-owner".into());
    }
    let user = user_name(here, identity);
    env.insert("USER".into(), user.clone().into());
    env.insert("LOGNAME".into(), user.into());
    go_proxy(here, present, net, &mut env);
    env.extend(present.env.iter().cloned());
    if let Ok(path) = std::env::join_paths(&present.path) {
        env.insert("PATH".into(), path);
    }
    for rule in &rules.pass {
        pass(here, rule, &mut env, &mut built);
    }
    for (name, value) in &rules.set {
        if loads_code(name) {
            built.loud.push(format!("env.set: {name} makes programs load code or read settings from it"));
        }
        env.insert(name.into(), value.into());
    }
    built.env = env.into_iter().collect();
    built
}

/// Tells tools that there is no network, in an environment that was made for one.
pub(super) fn go_offline(env: &mut Vec<(OsString, OsString)>, net: Net) {
    if net == Net::Full {
        return;
    }
    for (name, value) in OFFLINE {
        if !env.iter().any(|(known, _)| known == name) {
            env.push((name.into(), value.into()));
        }
    }
}

/// Passes on what a rule names: a name, or a prefix with `*`.
fn pass(here: &Surroundings, rule: &str, env: &mut BTreeMap<OsString, OsString>, built: &mut Built) {
    match rule.strip_suffix('*') {
        None => {
            let Some(value) = here.var(rule) else { return };
            if secret(rule) || loads_code(rule) {
                built.loud.push(format!(
                    "env.pass: {rule} looks like a secret or loads code, and reaches every command, because it is written out"
                ));
            }
            env.insert(rule.into(), value.to_owned());
        }
        Some(prefix) => {
            for (name, value) in &here.env {
                let Some(shown) = name.to_str().filter(|name| name.starts_with(prefix)) else { continue };
                if secret(shown) || loads_code(shown) {
                    built
                        .kept_out
                        .push(format!("{shown}: {rule} does not pass on what looks like a secret or loads code; write the name out"));
                } else if value.is_empty() {
                    continue;
                } else {
                    env.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

/// Go reads modules from the host's download cache as if it were a proxy, and unpacks them into a cache of its own.
fn go_proxy(here: &Surroundings, present: &Present, net: Net, env: &mut BTreeMap<OsString, OsString>) {
    if net == Net::Full {
        return;
    }
    let modules = present.toolchains.iter().find(|found| found.name == "go modules");
    let proxy = modules
        .map(|found| found.root.join("pkg/mod/cache/download"))
        .filter(|path| path.is_dir())
        .and_then(|path| path.to_str().map(|path| format!("file://{path}")))
        .unwrap_or_else(|| "off".into());
    env.insert("GOPROXY".into(), proxy.into());
    // Wheels beside the system, where the person already points pip at a folder.
    if let Some(links) = here.folder("PIP_FIND_LINKS") {
        env.insert("PIP_FIND_LINKS".into(), links.into_os_string());
    }
}

/// The name of the user that commands run as.
fn user_name(here: &Surroundings, identity: Identity) -> String {
    let passwd = fs::read_to_string(here.system(Path::new("/etc/passwd"))).unwrap_or_default();
    let uid = identity.uid.to_string();
    let known = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid && !name.is_empty()).then(|| name.to_owned())
    });
    let told = || here.var("USER").filter(|_| identity.uid == here.uid).and_then(OsStr::to_str).map(str::to_owned);
    known.or_else(told).unwrap_or_else(|| uid.clone())
}

/// Whether a name looks as if its value were a secret, or a way to one.
pub fn secret(name: &str) -> bool {
    const PARTS: &[&str] = &[
        "KEY",
        "TOKEN",
        "SECRET",
        "PASS",
        "PWD",
        "CRED",
        "AUTH",
        "PRIVATE",
        "COOKIE",
        "SESSION",
        "SIGN",
        "CERT",
        "BEARER",
        "JWT",
        "DSN",
        "WEBHOOK",
        "DATABASE_URL",
        "_URI",
        "CONNECTION",
        "ACCOUNT",
        "LICENSE",
        "SALT",
        "PIN",
        "OTP",
        "PAT",
        "KUBECONFIG",
        "DOCKER_",
        "SOCK",
        "AGENT",
        "PROXY",
    ];
    let upper = name.to_ascii_uppercase();
    PARTS.iter().any(|part| upper.contains(part))
}

/// Whether programs load code, or settings that name programs, from where a variable points.
pub fn loads_code(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PYTHONSTARTUP",
        "PYTHONPATH",
        "PYTHONHOME",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "RUBYLIB",
        "NODE_OPTIONS",
        "NODE_PATH",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "MAKEFLAGS",
        "GCONV_PATH",
        "LOCPATH",
        "NLSPATH",
        "IFS",
        "PATH",
        "HOME",
        "TMPDIR",
        "OPENSSL_CONF",
    ];
    name.starts_with("LD_") || name.starts_with("GIT_") || name.starts_with("BASH_FUNC_") || NAMES.contains(&name)
}

#[cfg(test)]
mod tests;
