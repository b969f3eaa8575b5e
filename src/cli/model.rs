//! Which model: named, or found where none was named; and its key, which goes nowhere but into its requests.

use super::engine::Engine;
use super::models::models;
use super::numbers::whole;
use crate::agent::models::{Known, Models};
use crate::agent::outcome::Outcome;
use crate::agent::prompt::Scope;
use crate::envelope::{Fault, FaultCode};
use crate::policy::Charter;
use crate::provider::catalog;
use crate::provider::scripted::Scripted;
use crate::provider::{Provider, ProviderError, Secret, Settings, WIRES, Wire};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// Variables besides those of the wires that hold keys of models. The values of all are masked wherever they turn up.
const OTHER_KEYS: [&str; 2] = ["GEMINI_API_KEY", "BAILIWICK_API_KEY"];
/// Servers on this machine that are asked when there is no key: their wire and address. Ollama's can be elsewhere.
const LOCAL: [(&str, &str); 4] = [
    ("ollama", "http://127.0.0.1:11434"),
    ("openai", "http://127.0.0.1:8080"),
    ("openai", "http://127.0.0.1:1234"),
    ("openai", "http://127.0.0.1:8000"),
];
/// How long a local server may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(2);
/// The most bytes of a key.
const MOST_KEY: u64 = 64 * 1024;

/// The flags that say which model, and how it is reached.
#[derive(Debug, Default, clap::Args)]
pub(super) struct ModelFlags {
    /// The model: openai:NAME, anthropic:NAME, responses:NAME, ollama:NAME, or script:FILE (replies from a file)
    /// [default: that of the provider whose key is in the environment, else one of a local server]
    #[arg(long, short = 'm', value_name = "PROVIDER:NAME")]
    model: Option<String>,
    /// The address of the model's server, with or without /v1; no place for a password, for command lines can be read [default: its
    /// maker's]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A file with the key [default: OPENAI_API_KEY, ANTHROPIC_API_KEY, OLLAMA_API_KEY]
    #[arg(long, value_name = "FILE", conflicts_with = "api_key_fd")]
    api_key_file: Option<PathBuf>,
    /// An open descriptor from which the key is read
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<i32>(0, 1 << 20))]
    api_key_fd: Option<i32>,
    #[arg(skip)]
    taken: Mutex<Option<std::fs::File>>,
    /// What is known of models: a file that is asked before the built-in one
    /// [default: bailiwick/models.toml in the configuration folder]
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
    /// Ask for whole replies instead of streamed ones
    #[arg(long)]
    no_stream: bool,
    /// Requests that failed for a passing reason are sent again so many times, within two minutes
    #[arg(long, value_name = "N", default_value_t = 4, allow_negative_numbers = true, value_parser = whole::<u32>(0, 20))]
    retries: u32,
    /// Seconds without a byte after which the model's server counts as silent
    #[arg(long, value_name = "SECONDS", default_value_t = 300, allow_negative_numbers = true, value_parser = whole::<u64>(1, 3600))]
    silence: u64,
}

/// The model that was chosen.
pub(super) struct Chosen {
    pub(super) provider: Box<dyn Provider>,
    /// What is masked from here on.
    pub(super) secrets: Vec<String>,
    /// What is known of the model.
    pub(super) known: Known,
    /// What a person should know of the choice.
    pub(super) says: Vec<String>,
}

/// Where a key comes from.
enum Key {
    Named(PathBuf),
    Open(std::fs::File),
}

/// A model that has a name.
struct Named {
    wire: &'static Wire,
    name: String,
    base_url: Option<String>,
    says: Option<String>,
}

impl ModelFlags {
    /// Chooses the model; `before` is that of a run that is gone on with.
    pub(super) fn choose(&self, before: Option<&str>, engine: &mut Engine) -> Result<Chosen, Outcome> {
        // From here on this process holds a key: nobody may read its memory or its environment.
        nix::sys::prctl::set_dumpable(false)
            .map_err(|errno| Fault::new(FaultCode::CannotConfine, format!("the host stays readable: {}", errno.desc())))?;
        if self.base_url.as_deref().is_some_and(names_somebody) {
            // Not repeated: it may be a password.
            return Err(wrong("--base-url holds a name or a password before an @, and command lines can be read".into())
                .hint("give the key with --api-key-file FILE, or in the environment")
                .into());
        }
        let file = self.models.clone();
        let models = engine.aside(move || models(file.as_deref()))??;
        let key = self.given_key(engine)?;
        let Named { wire, name, base_url, says } = match self.model.as_deref().or(before) {
            Some(model) => match model.split_once(':') {
                Some(("script", file)) => {
                    if file.is_empty() {
                        return Err(wrong("--model script: names no file".into()).hint("--model script:FILE").into());
                    }
                    let file = PathBuf::from(file);
                    let scripted = engine.aside(move || Scripted::open(&file))?.map_err(|error| {
                        let line = r#"{"text": "Done."} or {"calls": [{"name": "read", "arguments": {"path": "a"}}]}"#;
                        wrong(error.to_string()).hint(format!("a script has one reply a line: {line}"))
                    })?;
                    let known = models.decide(model);
                    let says = self.of_tools(&known).into_iter().collect();
                    return Ok(Chosen { provider: Box::new(scripted), secrets: key.into_iter().collect(), known, says });
                }
                _ => self.named(model)?,
            },
            None => self.found(&models, key.as_deref(), engine)?,
        };
        let key = key.or_else(|| env(wire.key_variable));
        if key.is_none() && base_url.is_none() && wire.needs_key {
            return Err(wrong(format!("{} wants a key", wire.name))
                .hint(format!("set {}, or name a file with --api-key-file", wire.key_variable))
                .into());
        }
        let mut settings = Settings::new(base_url.as_deref().unwrap_or(wire.base_url), &name);
        settings.key = key.as_deref().map(Secret::new);
        settings.stream = !self.no_stream;
        settings.retries = self.retries;
        settings.silence = Duration::from_secs(self.silence);
        let mut secrets: Vec<String> = key.into_iter().collect();
        secrets.extend(base_url.as_deref().into_iter().flat_map(within_address));
        let provider =
            (wire.open)(settings).map_err(|error| wrong(error.to_string()).hint("--base-url http://HOST:PORT, --model PROVIDER:NAME"))?;
        let known = models.decide(&format!("{}:{name}", wire.name));
        let says = says.into_iter().chain(self.of_tools(&known)).collect();
        Ok(Chosen { provider, secrets, known, says })
    }

    /// That a model calls no tools natively, and who says so.
    fn of_tools(&self, known: &Known) -> Option<String> {
        let reason = known.reasons.iter().find(|reason| reason.field == "tools" && !known.capabilities.tools)?;
        let line = reason.decided_by.as_ref()?;
        Some(format!("the text protocol is used: {}:{} says that this model calls no tools natively", line.file, line.line))
    }

    /// Refuses a key that a call could read: a file in the workspace, or beneath anything that is granted.
    pub(super) fn check_key_file(&self, charter: &Charter) -> Result<(), Fault> {
        let Some(file) = self.api_key_file.as_ref().and_then(|file| file.canonicalize().ok()) else { return Ok(()) };
        let grants = [Some(&charter.look), charter.change.as_ref(), charter.execute.as_ref()].into_iter().flatten();
        let readable = grants.flat_map(|grants| &grants.0).filter(|grant| grant.rights.read).map(|grant| grant.path.as_path());
        if std::iter::once(charter.base.as_path()).chain(readable).any(|open| file.starts_with(open)) {
            let what = format!("--api-key-file {}: the model could read this file", file.display());
            return Err(wrong(what).hint("keep the key outside of the workspace and of what the policy grants"));
        }
        Ok(())
    }

    fn named(&self, model: &str) -> Result<Named, Fault> {
        let known: Vec<String> = WIRES.iter().map(|wire| format!("{}:NAME", wire.name)).collect();
        let known = format!("the model is {} or script:FILE; `bailiwick demo` shows a whole run without one", known.join(", "));
        let (wire, name) = model.split_once(':').unwrap_or((model, ""));
        let Some(wire) = WIRES.iter().find(|known| known.name == wire) else {
            return Err(wrong(format!("--model {model}: there is no such provider")).hint(known));
        };
        if name.is_empty() {
            return Err(wrong(format!("--model {model} names a provider and no model")).hint(format!("--model {}:NAME", wire.name)));
        }
        Ok(Named { wire, name: name.into(), base_url: self.base_url.clone(), says: None })
    }

    /// A model where none was named: of the server at --base-url, of the provider whose key is there, of a local server.
    fn found(&self, models: &Models, key: Option<&str>, engine: &mut Engine) -> Result<Named, Outcome> {
        if let Some(base_url) = &self.base_url {
            let secret = key.map(Secret::new);
            let mut why = Vec::new();
            for name in ["openai", "ollama"] {
                let Some(wire) = WIRES.iter().find(|wire| wire.name == name) else { continue };
                match able(wire, base_url, secret.as_ref(), models, engine)? {
                    Ok(name) => {
                        let says = Some(format!("the model is {}:{name}, the first of the server", wire.name));
                        return Ok(Named { wire, name, base_url: Some(base_url.clone()), says });
                    }
                    Err(error) => why.push(error.to_string()),
                }
            }
            return Err(wrong("no model is named, and the server does not say which it has".into())
                .hint(format!("--model PROVIDER:NAME; {}", why.join("; ")))
                .into());
        }
        let with_key = WIRES.iter().find_map(|wire| {
            let name = models.default_of(wire.name)?;
            (env(wire.key_variable).is_some()).then_some((wire, name))
        });
        if let Some((wire, name)) = with_key {
            let says = format!("the model is {}:{name}, since {} is set; --model names another", wire.name, wire.key_variable);
            return Ok(Named { wire, name: name.into(), base_url: None, says: Some(says) });
        }
        if key.is_some() {
            return Err(wrong("a key is given, and no model is named".into()).hint("--model PROVIDER:NAME says whose key it is").into());
        }
        let elsewhere = env("OLLAMA_HOST").map(|host| ollama_address(&host));
        for (name, address) in LOCAL {
            let address = if name == "ollama" { elsewhere.clone().unwrap_or_else(|| address.into()) } else { address.to_owned() };
            let Some(wire) = WIRES.iter().find(|wire| wire.name == name) else { continue };
            if let Ok(name) = able(wire, &address, None, models, engine)? {
                let says = format!("the model is {}:{name}, of the server at {address}; --model names another", wire.name);
                return Ok(Named { wire, name, base_url: Some(address), says: Some(says) });
            }
        }
        let variables = "OPENAI_API_KEY or ANTHROPIC_API_KEY";
        Err(wrong(format!("no model is named, no key is in the environment ({variables}), and no model server answers on this machine"))
            .hint("--model PROVIDER:NAME names one; `bailiwick demo` shows a whole run without a model, a key or the network")
            .into())
    }

    /// What is nobody's business before a model is chosen: keys of the environment, passwords in addresses.
    pub(super) fn secrets(&self) -> Vec<String> {
        let elsewhere = env("OLLAMA_HOST");
        let addresses = self.base_url.iter().chain(&elsewhere);
        keys_of_environment().into_iter().chain(addresses.flat_map(|address| within_address(address))).collect()
    }

    /// Takes the descriptor of the key over. To be called before this process opens anything: a number that nobody gave it could then be one
    /// of its own.
    ///
    /// # Errors
    /// `invalid_arguments` when no such descriptor is open.
    pub(super) fn take_descriptor(&self) -> Result<(), Fault> {
        let Some(number) = self.api_key_fd else { return Ok(()) };
        let opened = std::fs::File::open(format!("/proc/self/fd/{number}")).map_err(|error| {
            let why = if error.kind() == std::io::ErrorKind::NotFound { "it is not open".into() } else { error.to_string() };
            wrong(format!("--api-key-fd {number}: {why}")).hint("for example --api-key-fd 3 3< FILE, which the shell opens")
        })?;
        if number > 2 {
            // Nothing that is started later may inherit it.
            let _ = nix::unistd::close(number);
        }
        if let Ok(mut taken) = self.taken.lock() {
            *taken = Some(opened);
        }
        Ok(())
    }

    /// The key from the file or the descriptor that was named.
    fn given_key(&self, engine: &mut Engine) -> Result<Option<String>, Outcome> {
        let (what, from) = match (&self.api_key_file, self.api_key_fd) {
            (Some(file), _) => (format!("--api-key-file {}", file.display()), Key::Named(file.clone())),
            (None, Some(_)) => match self.taken.lock().ok().and_then(|mut taken| taken.take()) {
                Some(taken) => ("--api-key-fd".to_owned(), Key::Open(taken)),
                None => return Err(Fault::new(FaultCode::Internal, "the descriptor of the key was not taken").into()),
            },
            (None, None) => return Ok(None),
        };
        // What a password manager writes is waited for.
        let read = engine.aside(move || {
            let mut key = String::new();
            let file = match from {
                Key::Named(path) => std::fs::File::open(path)?,
                Key::Open(file) => file,
            };
            file.take(MOST_KEY).read_to_string(&mut key).map(|_| key)
        })?;
        let key = read.map_err(|error| wrong(format!("{what}: {error}")).hint("a file with the key alone, on one line"))?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_control) {
            return Err(wrong(format!("{what}: this holds no key")).hint("the key alone, on one line").into());
        }
        Ok(Some(key.into()))
    }
}

/// Values of keys in the environment, whatever model is used.
pub(super) fn keys_of_environment() -> Vec<String> {
    WIRES.iter().map(|wire| wire.key_variable).chain(OTHER_KEYS).filter_map(env).collect()
}

fn env(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn wrong(says: String) -> Fault {
    Fault::new(FaultCode::InvalidArguments, says)
}

/// The first model of a server that is able to be an agent's. The outer error is a signal.
fn able(
    wire: &Wire,
    base_url: &str,
    key: Option<&Secret>,
    models: &Models,
    engine: &mut Engine,
) -> Result<Result<String, ProviderError>, Outcome> {
    let names = match engine.drive(catalog::models(wire, base_url, key, PATIENCE))? {
        Ok(names) => names,
        Err(error) => return Ok(Err(error)),
    };
    let fits = |name: &String| models.decide(&format!("{}:{name}", wire.name)).capabilities.supports(Scope::Agent);
    let none = || ProviderError::Setting { what: format!("the server at {base_url} has no model that can do this work") };
    Ok(names.into_iter().find(fits).ok_or_else(none))
}

/// What Ollama's own variable holds: an address, or a host with or without a port. All interfaces are reached by loopback.
fn ollama_address(host: &str) -> String {
    let host = host.trim().trim_end_matches('/');
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    let rest = if rest.starts_with(':') { format!("127.0.0.1{rest}") } else { rest.replacen("0.0.0.0", "127.0.0.1", 1) };
    let with_port = rest.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok()) && rest.contains(':');
    let port = if with_port || scheme == "https" { "" } else { ":11434" };
    format!("{scheme}://{rest}{port}")
}

/// Whether an address says who asks.
fn names_somebody(address: &str) -> bool {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
}

/// What an address holds that is nobody's business: a password, and values of its query.
fn within_address(address: &str) -> Vec<String> {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let (authority, _) = rest.split_once(['/', '?']).unwrap_or((rest, ""));
    let password = authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')).map(|(_, password)| password.to_owned());
    let query = rest.split_once('?').map(|(_, query)| query).unwrap_or_default();
    let values = query.split('&').filter_map(|pair| pair.split_once('=')).map(|(_, value)| value.to_owned());
    password.into_iter().chain(values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ollama_are_read_as_it_reads_them() {
        for (host, address) in [
            ("127.0.0.1:11434", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            (":4000", "http://127.0.0.1:4000"),
            ("http://box:9/", "http://box:9"),
            ("https://ollama.example", "https://ollama.example"),
            ("box", "http://box:11434"),
        ] {
            assert_eq!(ollama_address(host), address, "{host}");
        }
    }

    #[test]
    fn secrets_of_an_address_are_found() {
        assert_eq!(within_address("https://me:pa55word@host/v1?key=hidden&x=1"), ["pa55word", "hidden", "1"]);
        assert!(within_address("http://localhost:8080/v1").is_empty());
        for (address, somebody) in
            [("http://me:x@host/v1", true), ("me@host", true), ("http://host/v1?a=b@c", false), ("http://host", false)]
        {
            assert_eq!(names_somebody(address), somebody, "{address}");
        }
    }
}
