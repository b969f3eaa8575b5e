//! What a policy means, for a person: the list, each rule with its origin, and what the charter says of one act.
//!
//! Never opens or changes anything: a prediction comes from the charter alone. Who enforces a rule is the report's to say.

use super::charter::{Charter, Grant, Limits, Net, Unix};
use super::resolve::Resolved;
use super::units::{Bytes, Millis};
use super::{Access, Protection, shelf};
use crate::envelope::Fault;
use serde::Serialize;
use std::fmt::Write;
use std::path::{Component, Path, PathBuf};

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

/// What is done to a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// Read a file or list a folder.
    Read,
    /// Write to, or truncate, a file that exists.
    Write,
    /// Create, remove, rename or link the name.
    Create,
    /// Execute a file.
    Exec,
}

/// What the charter says of an act.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Whether the sandbox lets it through. Ordinary permissions may still refuse it.
    pub allowed: bool,
    /// What decides.
    pub by: By,
}

/// What decides over an act.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// This grant.
    Grant(Grant),
    /// The path, or one beneath it, is protected.
    Protected(PathBuf),
    /// The policy does not have this class of calls.
    NoAccess,
    /// No grant: everything that is not granted is refused.
    Nothing,
}

/// Predicts what the sandbox answers. `path` is absolute with its links resolved (see [`resolved_path`]): the kernel judges where a path
/// leads, not how it is written.
pub fn predict(charter: &Charter, access: Access, path: &Path, op: Op) -> Verdict {
    let refused = |by| Verdict { allowed: false, by };
    let Some(grants) = charter.grants(access) else { return refused(By::NoAccess) };
    if matches!(op, Op::Write | Op::Create) {
        let protected = charter.protect.iter().map(|name| charter.base.join(name)).find(|name| {
            // To move a folder away is to change what is beneath it.
            path.starts_with(name) || (op == Op::Create && name.starts_with(path))
        });
        if let Some(protected) = protected {
            return refused(By::Protected(protected));
        }
    }
    // A name is made and removed in its folder: the right on the folder counts, and a grant of the name itself is not enough.
    let judged = match op {
        Op::Create => path.parent().unwrap_or(path),
        _ => path,
    };
    let grant = grants.0.iter().find(|grant| {
        judged.starts_with(&grant.path)
            && match op {
                Op::Read => grant.rights.read,
                Op::Write => grant.rights.write || grant.rights.device,
                Op::Create => grant.rights.write,
                Op::Exec => grant.rights.exec,
            }
    });
    match grant {
        Some(grant) => Verdict { allowed: true, by: By::Grant(grant.clone()) },
        None => refused(By::Nothing),
    }
}

/// Where a path leads: the part that exists with its links resolved, and the rest as written. Relative paths begin at the base. `None`: the
/// rest contains `..`, which nothing that does not exist can be left by.
pub fn resolved_path(base: &Path, path: &Path) -> Option<PathBuf> {
    let whole = base.join(path);
    for known in whole.ancestors() {
        let Ok(real) = known.canonicalize() else { continue };
        let rest = whole.strip_prefix(known).ok()?;
        if rest.components().any(|part| !matches!(part, Component::Normal(_))) {
            return None;
        }
        return Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::Machine;
    use super::*;
    use proptest::prelude::*;

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

    #[test]
    fn predictions() {
        let machine = Machine::new();
        let charter = machine.resolve("build").unwrap().charter;
        let (base, root) = (&machine.base, &machine.here.root);
        for (access, path, op, allowed) in [
            (Access::Look, base.join("README"), Op::Read, true),
            (Access::Look, base.join("README"), Op::Write, false),
            (Access::Look, root.join("etc/passwd"), Op::Read, false),
            (Access::Change, base.join("new"), Op::Create, true),
            (Access::Change, base.join("bin/evil"), Op::Exec, false),
            (Access::Execute, base.join("bin/evil"), Op::Exec, true),
            (Access::Execute, root.join("etc/passwd"), Op::Read, true),
            (Access::Execute, root.join("etc/passwd"), Op::Write, false),
            (Access::Execute, root.join("etc/shadow"), Op::Read, false),
            (Access::Execute, root.join("dev/null"), Op::Write, true),
            (Access::Execute, root.join("dev/null"), Op::Create, false),
            (Access::Execute, base.join(".git/hooks/pre-commit"), Op::Create, false),
            (Access::Execute, base.join(".git/config"), Op::Write, false),
            (Access::Execute, base.join(".git/config"), Op::Read, true),
            (Access::Execute, base.join(".git"), Op::Create, false),
            (Access::Execute, base.join(".git/index"), Op::Create, true),
            (Access::Execute, base.clone(), Op::Create, false),
        ] {
            let verdict = predict(&charter, access, &path, op);
            assert_eq!(verdict.allowed, allowed, "{access:?} {} {op:?}: {verdict:?}", path.display());
            assert_eq!(matches!(verdict.by, By::Grant(_)), allowed);
        }
        let observe = machine.resolve("observe").unwrap().charter;
        assert_eq!(predict(&observe, Access::Execute, base, Op::Read).by, By::NoAccess);
    }

    #[test]
    fn a_path_is_judged_where_it_leads() {
        let machine = Machine::new();
        std::os::unix::fs::symlink(machine.here.root.join("etc"), machine.base.join("link")).unwrap();
        let resolved = |path: &str| resolved_path(&machine.base, Path::new(path));
        assert_eq!(resolved("link/shadow"), Some(machine.here.root.join("etc/shadow")));
        assert_eq!(resolved("link/../opt"), Some(machine.here.root.join("opt")));
        assert_eq!(resolved("new/file"), Some(machine.base.join("new/file")));
        assert_eq!(resolved("absent/../../other/secret"), None);
    }

    /// What is beneath an allowed folder is allowed, and nothing outside of every grant ever is.
    #[test]
    fn rights_reach_down_and_never_out() {
        let grant = |path: &str, rights| Grant { path: path.into(), rights, reason: "r".into(), origin: "o".into() };
        let mut charter = Machine::new().resolve("observe").unwrap().charter;
        charter.protect.clear();
        charter.execute =
            Some(super::super::Grants(vec![grant("/w", super::super::Rights::ALL), grant("/usr", super::super::Rights::RUN)]));
        proptest!(|(parts in proptest::collection::vec("[a-z]{1,3}", 1..4), op in 0usize..4)| {
            let op = [Op::Read, Op::Write, Op::Create, Op::Exec][op];
            let rest: PathBuf = parts.iter().collect();
            let allowed = |top: &str| predict(&charter, Access::Execute, &Path::new(top).join(&rest), op).allowed;
            prop_assert!(allowed("/w") && !allowed("/wx") && !allowed("/opt"));
            prop_assert_eq!(allowed("/usr"), matches!(op, Op::Read | Op::Exec));
        });
    }
}
