//! What a policy means, for a person: the list, and each rule with its origin.
//!
//! Never opens or changes anything. Who enforces a rule is the report's to say.

use super::charter::{Grant, Limits, Net, Unix};
use super::resolve::Resolved;
use super::units::{Bytes, Millis};
use super::{Access, Protection, shelf};
use crate::envelope::Fault;
use serde::Serialize;
use std::fmt::Write;

/// One line of `policy list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Used when none is named.
    pub default: bool,
}

/// The policies of the shelf.
///
/// # Errors
/// `invalid_policy`; a test keeps the shelf right.
pub fn list() -> Result<Vec<Listed>, Fault> {
    let one = |(name, _): &(&str, &str)| {
        let policy = shelf::policy(name)?;
        Ok(Listed { name: (*name).into(), description: policy.description.unwrap_or_default(), default: *name == shelf::DEFAULT_POLICY })
    };
    shelf::POLICIES.iter().map(one).collect()
}

/// One effective rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// The part of the policy: `fs`, `protect`, `net`, `unix`, `env`, `limits`, `tools`, `require`, `identity`.
    pub section: &'static str,
    /// For which calls; `None`: all.
    pub access: Option<Access>,
    /// What it is about: a path, a variable, a limit.
    pub what: String,
    /// What it says.
    pub says: String,
    /// Why.
    pub reason: String,
    /// Where it is written.
    pub origin: String,
    /// The protections that make it hold; who provides each here is in the report of the sandbox.
    pub protections: Vec<Protection>,
}

/// Every effective rule, in the order in which it is shown.
pub fn rules(resolved: &Resolved) -> Vec<Rule> {
    let charter = &resolved.charter;
    let policy = format!("policy {}", charter.policy);
    let mut rules = Vec::new();
    let mut plain = |section, what: &str, says: String, reason: &str, protections: &[Protection]| {
        rules.push(Rule {
            section,
            access: None,
            what: what.into(),
            says,
            reason: reason.into(),
            origin: policy.clone(),
            protections: protections.to_vec(),
        });
    };
    plain(
        "identity",
        "uid",
        format!("{}:{}", charter.identity.uid, charter.identity.gid),
        "the owner of the workspace, never the host's root where it can be helped",
        &[],
    );
    let net = match charter.net {
        Net::None => "no network",
        Net::Loopback => "a loopback of the session's own",
        Net::Full => "the host's network",
    };
    plain("net", "network", net.into(), "network of commands", &[Protection::NetTcp, Protection::NetUdp, Protection::NetOther]);
    let unix = match charter.unix {
        Unix::Pair => "connected pairs only",
        Unix::Any => "every socket that the user can connect to",
    };
    plain("unix", "unix sockets", unix.into(), "sockets of the host are ways out", &[Protection::UnixPath, Protection::UnixAbstract]);
    for (what, says) in limits(&charter.limits) {
        plain("limits", what, says, "of one command", &[Protection::Limits]);
    }
    for name in &charter.tools_allow {
        plain("tools", name, "on; what is not named is off".into(), "tools.allow", &[]);
    }
    for name in &charter.tools_deny {
        plain("tools", name, "off".into(), "tools.deny", &[]);
    }
    for protection in &charter.require {
        let says = match charter.allow_degraded.contains(protection) {
            true => "required, and given up by name",
            false => "required: without it nothing starts",
        };
        plain("require", protection.as_str(), says.into(), protection.promise(), &[*protection]);
    }
    for (name, value) in &charter.env {
        plain("env", &name.to_string_lossy(), value.to_string_lossy().into_owned(), "environment of commands", &[Protection::Env]);
    }
    for access in [Access::Look, Access::Change, Access::Execute, Access::Own] {
        for grant in charter.grants(access).iter().flat_map(|grants| &grants.0) {
            rules.push(Rule {
                section: "fs",
                access: Some(access),
                what: grant.path.display().to_string(),
                says: rights(grant),
                reason: grant.reason.clone(),
                origin: grant.origin.clone(),
                protections: protections(grant),
            });
        }
    }
    rules.extend(charter.journal.iter().map(|journal| Rule {
        section: "fs",
        access: Some(Access::Change),
        what: journal.display().to_string(),
        says: "read, change".into(),
        reason: "the journal: a file with several names is written in place, and a write that was cut off is undone".into(),
        origin: "session".into(),
        protections: vec![Protection::FsRead, Protection::FsWrite],
    }));
    rules.extend(resolved.protected.iter().map(|one| Rule {
        section: "protect",
        access: None,
        what: one.path.display().to_string(),
        says: "nothing may change it".into(),
        reason: one.reason.clone(),
        origin: one.origin.clone(),
        protections: vec![Protection::FsProtected],
    }));
    rules
}

/// The rules as text: one line each, by section, then what was left out and what was weakened.
pub fn text(resolved: &Resolved) -> String {
    let charter = &resolved.charter;
    let mut out = format!("policy {}, workspace {}\n", charter.policy, charter.base.display());
    let mut head = (String::new(), None);
    for rule in rules(resolved) {
        let now = (rule.section.to_owned(), rule.access);
        if now != head {
            let of = rule.access.map(|access| format!(" ({})", name(access))).unwrap_or_default();
            let _ = writeln!(out, "\n[{}]{of}", rule.section);
            head = now;
        }
        let _ = writeln!(out, "  {:<10} {}  # {} ({})", rule.says, rule.what, rule.reason, rule.origin);
    }
    let mut notes = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            let _ = writeln!(out, "\n[{title}]\n  {}", lines.join("\n  "));
        }
    };
    notes("left out", resolved.dropped.iter().map(|one| format!("{}: {}", one.what, one.why)).collect());
    notes("weakened", resolved.loud.clone());
    out
}

fn limits(limits: &Limits) -> Vec<(&'static str, String)> {
    let or_none = |value: u64, shown: String| if value == 0 { "none".to_owned() } else { shown };
    let Limits { wall_ms, cpu_s, memory, processes, file_size, open_files, output, disk } = *limits;
    vec![
        ("wall", or_none(wall_ms, Millis(wall_ms).to_string())),
        ("cpu", or_none(cpu_s, Millis(cpu_s.saturating_mul(1000)).to_string())),
        ("memory", or_none(memory, Bytes(memory).to_string())),
        ("processes", or_none(processes, processes.to_string())),
        ("file_size", or_none(file_size, Bytes(file_size).to_string())),
        ("open_files", or_none(open_files, open_files.to_string())),
        ("output", or_none(output, Bytes(output).to_string())),
        ("disk", or_none(disk, Bytes(disk).to_string())),
    ]
}

fn rights(grant: &Grant) -> String {
    let rights = grant.rights;
    let words = [("read", rights.read), ("write", rights.write), ("exec", rights.exec), ("device", rights.device)];
    words.iter().filter(|(_, on)| *on).map(|(word, _)| *word).collect::<Vec<_>>().join("+")
}

fn protections(grant: &Grant) -> Vec<Protection> {
    let rights = grant.rights;
    let list = [
        (true, Protection::FsRead),
        (!rights.write, Protection::FsWrite),
        (!rights.write && !rights.device, Protection::FsTruncate),
        (!rights.exec, Protection::Exec),
    ];
    list.iter().filter(|(on, _)| *on).map(|(_, protection)| *protection).collect()
}

fn name(access: Access) -> &'static str {
    match access {
        Access::Look => "look",
        Access::Change => "change",
        Access::Execute => "execute",
        Access::Own => "own",
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::Machine;
    use super::*;

    #[test]
    fn the_list_has_one_default() {
        let list = list().unwrap();
        assert_eq!(list.iter().filter(|one| one.default).map(|one| one.name.as_str()).collect::<Vec<_>>(), ["build"]);
        assert!(list.iter().all(|one| !one.description.is_empty()));
    }

    #[test]
    fn each_rule_has_an_origin_and_a_reason() {
        let resolved = Machine::new().resolve("fork-pr").unwrap();
        let rules = rules(&resolved);
        assert!(rules.iter().all(|rule| !rule.origin.is_empty() && !rule.reason.is_empty() && !rule.what.is_empty()));
        for section in ["identity", "net", "unix", "limits", "require", "env", "fs", "protect"] {
            assert!(rules.iter().any(|rule| rule.section == section), "{section}");
        }
        let text = text(&resolved);
        assert!(text.contains("Cargo.lock  # decides which code of others runs (policy fork-pr)"));
        assert!(text.contains("[fs] (execute)") && text.contains("(image minimal)") || text.contains("(image host)"));
        serde_json::to_string(&rules).unwrap();
    }
}
