//! A policy as it is written: what a person permits, with variables and units, before anything is looked up on the machine.
//!
//! Never reads a file, a variable or the clock. A key that is not known, at any level, is an error that names it and its line.

use super::place::{self, Place};
use super::units::{Bytes, Millis};
use super::{Access, Net, Protection, Unix};
use crate::envelope::{Fault, FaultCode};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// A policy as written. What is not written is `None` or empty, so that one policy can be laid over another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Its name.
    pub name: Option<String>,
    /// What it is for, in one line.
    pub description: Option<String>,
    /// The policy of the shelf that it is laid over.
    pub extends: Option<String>,
    /// The image: a name of the shelf, or the path of a file.
    pub image: Option<String>,
    /// The classes of calls that there are; nothing written: `look`.
    pub access: Option<Vec<Access>>,
    /// What commands may open.
    pub fs: Fs,
    /// The network of commands; nothing written: none.
    pub net: Option<Net>,
    /// Unix sockets of commands; nothing written: connected pairs.
    pub unix: Option<Unix>,
    /// The environment of commands.
    pub env: Env,
    /// Limits of one command.
    pub limits: LimitRules,
    /// Which tools are on.
    pub tools: Tools,
    /// Limits of a whole run.
    pub budgets: Budgets,
    /// Protections without which nothing starts.
    pub require: Option<Require>,
    /// Whose tree it is.
    pub trust: Option<Trust>,
}

/// What commands may open beyond the image and the session's own folder.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fs {
    /// Read files and list folders.
    pub read: Vec<Row>,
    /// Read, write, create, remove, rename.
    pub write: Vec<Row>,
    /// Read and execute.
    pub exec: Vec<Row>,
    /// Names in the workspace that nothing may change, whether they exist or not. Added to the default list.
    pub protect: Vec<Row>,
}

/// One path with its reason. Written as `"PATH"` or `{ path = "PATH", reason = "…" }`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The path as written.
    pub path: String,
    /// Why.
    pub reason: Option<String>,
    /// Which policy says so.
    #[serde(skip)]
    pub origin: String,
}

/// The environment of commands.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Env {
    /// Variables that are set, over everything else.
    pub set: BTreeMap<String, String>,
    /// Variables of the host that are passed on if they are set: names, or prefixes with a `*` at the end. A name that looks like
    /// a secret is passed on only when it is written out.
    pub pass: Vec<String>,
}

/// Limits of one command; zero: none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitRules {
    /// Wall time, the most that a call may ask for.
    pub wall: Option<Millis>,
    /// Processor time of one process.
    pub cpu: Option<Millis>,
    /// Memory of the whole tree.
    pub memory: Option<Bytes>,
    /// Processes of the whole tree.
    pub processes: Option<u64>,
    /// Size of one file.
    pub file_size: Option<Bytes>,
    /// Open descriptors of one process.
    pub open_files: Option<u64>,
    /// Output that is kept in the spool.
    pub output: Option<Bytes>,
    /// What the session may add to the disk.
    pub disk: Option<Bytes>,
}

/// Which tools are on: names, categories or globs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tools {
    /// Only these; not written or empty: all that the access classes permit.
    pub allow: Option<Vec<String>>,
    /// Not these.
    pub deny: Vec<String>,
}

/// Limits of a whole run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Budgets {
    /// Turns of the model.
    pub turns: Option<u64>,
    /// Wall time.
    pub wall: Option<Millis>,
    /// Tokens, in and out.
    pub tokens: Option<u64>,
    /// Money, in US dollars.
    pub money: Option<f64>,
    /// Failed tool calls in a row.
    pub errors: Option<u64>,
}

/// Protections without which nothing starts. Written as `"all"` or a list of names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// Every protection there is.
    All,
    /// These.
    #[serde(untagged)]
    These(Vec<Protection>),
}

impl Require {
    /// The protections, in the order in which they are shown.
    pub fn list(&self) -> Vec<Protection> {
        match self {
            Self::All => Protection::ALL.to_vec(),
            Self::These(these) => Protection::ALL.iter().copied().filter(|protection| these.contains(protection)).collect(),
        }
    }
}

/// Whose tree it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// A stranger's: its instructions, skills and MCP settings are not loaded.
    Fork,
    /// The person's own.
    #[default]
    Own,
}

impl Policy {
    /// Reads a policy. `label` says where it is from, for errors.
    ///
    /// # Errors
    /// `invalid_policy` with the line and what to do.
    pub fn parse(text: &str, label: &str) -> Result<Self, Fault> {
        let mut policy: Self = toml::from_str(text).map_err(|error| toml_fault(&error, text, label, "policy"))?;
        policy.check().map_err(|says| Fault::new(FaultCode::InvalidPolicy, format!("{label}: {says}")))?;
        let origin = format!("policy {}", policy.name.as_deref().unwrap_or(label));
        let Fs { read, write, exec, protect } = &mut policy.fs;
        for row in [read, write, exec, protect].into_iter().flatten() {
            row.origin.clone_from(&origin);
        }
        Ok(policy)
    }

    /// What the types alone do not say.
    fn check(&self) -> Result<(), String> {
        for (key, rows) in [("read", &self.fs.read), ("write", &self.fs.write), ("exec", &self.fs.exec)] {
            for row in rows {
                Place::parse(&row.path).map_err(|says| format!("fs.{key}: {says}"))?;
            }
        }
        for row in &self.fs.protect {
            place::parse_inside(&row.path).map_err(|says| format!("fs.protect: {says}"))?;
        }
        if self.access.as_ref().is_some_and(|access| access.contains(&Access::Own)) {
            return Err("access: `own` is for our own programs and is no class of a policy: write look, change, execute".into());
        }
        if self.access.as_ref().is_some_and(|access| !access.contains(&Access::Look)) {
            return Err("access: every policy has `look`: add it to the list".into());
        }
        for name in self.env.set.keys() {
            variable(name).map_err(|says| format!("env.set: {says}"))?;
        }
        if let Some((name, _)) = self.env.set.iter().find(|(_, value)| value.contains('\0')) {
            return Err(format!("env.set: the value of {name} contains a NUL byte"));
        }
        for name in &self.env.pass {
            let stem = name.strip_suffix('*').unwrap_or(name);
            if stem.is_empty() {
                return Err(format!("env.pass: {name:?} would pass the whole environment on: name the variables"));
            }
            variable(stem).map_err(|says| format!("env.pass: {says}"))?;
        }
        if self.budgets.money.is_some_and(|money| !money.is_finite() || money < 0.0) {
            return Err("budgets.money: write an amount of dollars, 0 or more".into());
        }
        Ok(())
    }

    /// This policy laid over another: what is written here counts, lists of paths and names are added to the other's.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let Self { name, description, extends: _, image, access, fs, net, unix, env, limits, tools, budgets, require, trust } = self;
        let joined = |mut below: Vec<Row>, above: Vec<Row>| {
            below.extend(above);
            below
        };
        Self {
            name: name.or(below.name),
            description: description.or(below.description),
            extends: None,
            image: image.or(below.image),
            access: access.or(below.access),
            fs: Fs {
                read: joined(below.fs.read, fs.read),
                write: joined(below.fs.write, fs.write),
                exec: joined(below.fs.exec, fs.exec),
                protect: joined(below.fs.protect, fs.protect),
            },
            net: net.or(below.net),
            unix: unix.or(below.unix),
            env: Env {
                set: below.env.set.into_iter().chain(env.set).collect(),
                pass: below.env.pass.into_iter().chain(env.pass).collect(),
            },
            limits: LimitRules {
                wall: limits.wall.or(below.limits.wall),
                cpu: limits.cpu.or(below.limits.cpu),
                memory: limits.memory.or(below.limits.memory),
                processes: limits.processes.or(below.limits.processes),
                file_size: limits.file_size.or(below.limits.file_size),
                open_files: limits.open_files.or(below.limits.open_files),
                output: limits.output.or(below.limits.output),
                disk: limits.disk.or(below.limits.disk),
            },
            tools: Tools { allow: tools.allow.or(below.tools.allow), deny: below.tools.deny.into_iter().chain(tools.deny).collect() },
            budgets: Budgets {
                turns: budgets.turns.or(below.budgets.turns),
                wall: budgets.wall.or(below.budgets.wall),
                tokens: budgets.tokens.or(below.budgets.tokens),
                money: budgets.money.or(below.budgets.money),
                errors: budgets.errors.or(below.budgets.errors),
            },
            require: match (require, below.require) {
                (Some(Require::These(above)), Some(Require::These(below))) => {
                    Some(Require::These(below.into_iter().chain(above).collect()))
                }
                (Some(Require::All), _) | (_, Some(Require::All)) => Some(Require::All),
                (above, below) => above.or(below),
            },
            trust: trust.or(below.trust),
        }
    }

    /// The names in the workspace that this policy protects, beyond the default list.
    pub fn protected(&self) -> Vec<PathBuf> {
        self.fs.protect.iter().filter_map(|row| place::parse_inside(&row.path).ok()).collect()
    }
}

/// A name that a variable of the environment can have.
fn variable(name: &str) -> Result<(), String> {
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
    {
        true => Ok(()),
        false => Err(format!("{name:?} is no name of a variable: letters, digits and `_`")),
    }
}

/// A TOML error with the file and the line.
pub(super) fn toml_fault(error: &toml::de::Error, text: &str, label: &str, what: &str) -> Fault {
    let line = error.span().map(|span| 1 + text.bytes().take(span.start).filter(|b| *b == b'\n').count());
    let at = line.map(|line| format!(", line {line}")).unwrap_or_default();
    let fault = Fault::new(FaultCode::InvalidPolicy, format!("{label}{at}: {}", error.message().replace('\n', " "))).hint(match what {
        "policy" => "`bailiwick policy show build --source` prints one as it is written".to_owned(),
        what => format!("the README says what an {what} holds"),
    });
    match line {
        Some(line) => fault.with("line", line),
        None => fault,
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Written {
            path: String,
            reason: Option<String>,
        }
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Row;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a path, or { path, reason }")
            }
            fn visit_str<E: de::Error>(self, path: &str) -> Result<Row, E> {
                Ok(Row { path: path.into(), reason: None, origin: String::new() })
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Row, A::Error> {
                let Written { path, reason } = Written::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(Row { path, reason, origin: String::new() })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Require {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Require;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\", or a list of protections")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Require, E> {
                match text {
                    "all" => Ok(Require::All),
                    other => Err(E::custom(format!("require is \"all\" or a list of protections, not {other:?}"))),
                }
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Require, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Require::These)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests;
