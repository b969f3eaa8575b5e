//! A project's own settings (`.bailiwick.toml`) laid over what is in force: they may only tighten.
//!
//! Never adds a grant, a variable, an image or a class of calls. Every line that would widen is listed, and then nothing is applied.

use super::charter::{Limits, Net, Unix};
use super::file::{Budgets, Policy, Trust};
use super::links::Links;
use super::protect::{self, Protected};
use super::resolve::Resolved;
use super::units::{Bytes, Millis};
use super::{Access, environment};
use crate::envelope::{Fault, FaultCode};
use std::fmt::Display;

/// Where a project writes its own settings, relative to the base.
pub const PROJECT_FILE: &str = ".bailiwick.toml";

/// Applies a project's settings.
///
/// # Errors
/// `invalid_policy`, with each line that would widen in the sentence and in `data.widenings`.
pub fn tighten(mut resolved: Resolved, project: &Policy) -> Result<Resolved, Fault> {
    let mut widenings = Vec::new();
    let mut wide = |says: String| widenings.push(says);
    let Policy { name: _, description: _, extends, image, access, fs, net, unix, env, limits, tools, budgets, require, trust } = project;

    if let Some(extends) = extends {
        wide(format!("extends = {extends:?}: the policy is chosen with --policy"));
    }
    if let Some(image) = image.as_ref().filter(|image| Some(*image) != resolved.policy.image.as_ref()) {
        wide(format!("image = {image:?}: the image is chosen by the policy"));
    }
    if let Some(access) = access {
        classes(&mut resolved, access, &mut wide);
    }
    for (key, rows) in [("read", &fs.read), ("write", &fs.write), ("exec", &fs.exec)] {
        for row in rows {
            wide(format!("fs.{key}: {} would be granted", row.path));
        }
    }
    for (path, row) in project.protected().into_iter().zip(&fs.protect) {
        if !resolved.charter.protect.contains(&path) {
            resolved.charter.protect.push(path.clone());
            let reason = row.reason.clone().unwrap_or_else(|| "the project says so".into());
            resolved.protected.push(Protected { path, reason, origin: "project".into() });
        }
    }
    protect::where_links_lead(&mut resolved.protected, &resolved.charter.base, &Links::default());
    resolved.charter.protect = resolved.protected.iter().map(|one| one.path.clone()).collect();
    if let Some(net) = *net {
        match width_of_net(net) <= width_of_net(resolved.charter.net) {
            true => {
                resolved.charter.net = net;
                environment::go_offline(&mut resolved.charter.env, net);
            }
            false => wide("net: more network than the policy gives".into()),
        }
    }
    match unix {
        Some(Unix::Any) if resolved.charter.unix == Unix::Pair => wide("unix = \"any\": more sockets than the policy gives".into()),
        Some(unix) => resolved.charter.unix = *unix,
        None => {}
    }
    for name in env.set.keys().chain(&env.pass) {
        wide(format!("env: {name} would reach commands"));
    }
    let Limits { wall_ms, cpu_s, memory, processes, file_size, open_files, output, disk } = &mut resolved.charter.limits;
    lower("limits.wall", wall_ms, limits.wall.map(|time| time.0), Millis, &mut wide);
    lower("limits.cpu", cpu_s, limits.cpu.map(|time| time.0.div_ceil(1000)), |seconds| format!("{seconds}s"), &mut wide);
    lower("limits.memory", memory, limits.memory.map(|size| size.0), Bytes, &mut wide);
    lower("limits.processes", processes, limits.processes, |n| n, &mut wide);
    lower("limits.file_size", file_size, limits.file_size.map(|size| size.0), Bytes, &mut wide);
    lower("limits.open_files", open_files, limits.open_files, |n| n, &mut wide);
    lower("limits.output", output, limits.output.map(|size| size.0), Bytes, &mut wide);
    lower("limits.disk", disk, limits.disk.map(|size| size.0), Bytes, &mut wide);

    match (&tools.allow, resolved.charter.tools_allow.is_empty()) {
        (Some(allow), true) => resolved.charter.tools_allow.clone_from(allow),
        (Some(allow), false) => {
            if allow.is_empty() {
                wide("tools.allow = []: that is every tool, and the policy names some".into());
            }
            // Compared as text: whether one pattern lies within another is not decided here.
            for name in allow.iter().filter(|name| !resolved.charter.tools_allow.contains(name)) {
                wide(format!("tools.allow: {name:?} is not among the policy's {}", resolved.charter.tools_allow.join(", ")));
            }
            resolved.charter.tools_allow.clone_from(allow);
        }
        (None, _) => {}
    }
    resolved.charter.tools_deny.extend(tools.deny.iter().cloned());
    lower_budgets(&mut resolved.policy.budgets, budgets, &mut wide);
    for protection in require.iter().flat_map(super::file::Require::list) {
        if !resolved.charter.require.contains(&protection) {
            resolved.charter.require.push(protection);
        }
    }
    match trust {
        Some(Trust::Own) if resolved.trust() == Trust::Fork => wide("trust = \"own\": the tree does not vouch for itself".into()),
        Some(trust) => resolved.policy.trust = Some(*trust),
        None => {}
    }

    if widenings.is_empty() {
        return Ok(resolved);
    }
    Err(Fault::new(FaultCode::InvalidPolicy, format!("{PROJECT_FILE} may only tighten, and would widen: {}", widenings.join("; ")))
        .hint("remove these lines, or put them into a policy of your own and name it with --policy FILE")
        .with("widenings", widenings))
}

/// Takes classes away.
fn classes(resolved: &mut Resolved, access: &[Access], wide: &mut impl FnMut(String)) {
    let charter = &mut resolved.charter;
    for (class, name, there) in
        [(Access::Change, "change", charter.change.is_some()), (Access::Execute, "execute", charter.execute.is_some())]
    {
        match (access.contains(&class), there) {
            (true, false) => wide(format!("access: {name} is not permitted by the policy")),
            (false, true) if class == Access::Change => charter.change = None,
            (false, true) => charter.execute = None,
            _ => {}
        }
    }
}

/// Lowers a limit. Zero is none, and so the highest.
fn lower<T: Display>(key: &str, limit: &mut u64, to: Option<u64>, shown: impl Fn(u64) -> T, wide: &mut impl FnMut(String)) {
    let Some(to) = to else { return };
    let rank = |value: u64| if value == 0 { u64::MAX } else { value };
    match rank(to) <= rank(*limit) {
        true => *limit = to,
        false if to == 0 => wide(format!("{key}: no limit, and the policy has {}", shown(*limit))),
        false => wide(format!("{key}: {} is more than the policy's {}", shown(to), shown(*limit))),
    }
}

/// Lowers budgets. Here zero is zero, and what is not written is no limit.
fn lower_budgets(now: &mut Budgets, to: &Budgets, wide: &mut impl FnMut(String)) {
    fn one<T: PartialOrd + Copy + Display>(key: &str, now: &mut Option<T>, to: Option<T>, wide: &mut impl FnMut(String)) {
        match (to, *now) {
            (Some(to), Some(limit)) if to > limit => wide(format!("budgets.{key}: {to} is more than the policy's {limit}")),
            (Some(to), _) => *now = Some(to),
            (None, _) => {}
        }
    }
    one("turns", &mut now.turns, to.turns, wide);
    one("wall", &mut now.wall, to.wall, wide);
    one("tokens", &mut now.tokens, to.tokens, wide);
    one("money", &mut now.money, to.money, wide);
    one("errors", &mut now.errors, to.errors, wide);
}

fn width_of_net(net: Net) -> u8 {
    match net {
        Net::None => 0,
        Net::Loopback => 1,
        Net::Full => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::super::resolve::tests::Machine;
    use super::*;
    use proptest::prelude::*;

    fn project(text: &str) -> Policy {
        Policy::parse(text, PROJECT_FILE).unwrap()
    }

    #[test]
    fn what_tightens_is_applied() {
        let machine = Machine::new();
        let text = "access = [\"look\", \"execute\"]\nnet = \"none\"\nrequire = [\"proc\"]\ntrust = \"fork\"\n[fs]\nprotect = [\"Cargo.lock\"]\n\
                    [limits]\nwall = \"1m\"\nmemory = \"1GiB\"\n[tools]\nallow = [\"file\"]\ndeny = [\"write\"]\n[budgets]\nturns = 5\ntokens = 10";
        let tight = tighten(machine.resolve("build").unwrap(), &project(text)).unwrap();
        let charter = &tight.charter;
        assert!(charter.change.is_none() && charter.execute.is_some());
        assert_eq!((charter.net, charter.limits.wall_ms, charter.limits.memory), (Net::None, 60_000, 1 << 30));
        assert!(charter.protect.contains(&"Cargo.lock".into()) && charter.tools_deny == ["write"] && charter.tools_allow == ["file"]);
        assert!(charter.require.contains(&super::super::Protection::Proc));
        assert_eq!((tight.policy.budgets.turns, tight.policy.budgets.tokens, tight.trust()), (Some(5), Some(10), Trust::Fork));
    }

    #[test]
    fn each_widening_is_refused_and_listed() {
        let machine = Machine::new();
        for (policy, text, says) in [
            ("build", "extends = \"ci\"", "extends"),
            ("build", "image = \"rust\"", "image"),
            ("observe", "access = [\"look\", \"change\"]", "change is not permitted"),
            ("edit", "access = [\"look\", \"execute\"]", "execute is not permitted"),
            ("build", "[fs]\nread = [\"/opt\"]", "/opt would be granted"),
            ("build", "[fs]\nwrite = [\"$WORKSPACE\"]", "$WORKSPACE would be granted"),
            ("build", "[fs]\nexec = [\"/opt\"]", "/opt would be granted"),
            ("build", "net = \"full\"", "net"),
            ("observe", "net = \"loopback\"", "net"),
            ("build", "unix = \"any\"", "unix"),
            ("build", "[env.set]\nPATH = \"/x\"", "PATH would reach"),
            ("build", "[env]\npass = [\"GITHUB_TOKEN\"]", "GITHUB_TOKEN would reach"),
            ("build", "[limits]\nwall = \"99h\"", "more than the policy's 1h"),
            ("build", "[limits]\nmemory = 0", "no limit"),
            ("build", "[limits]\nprocesses = 9999", "9999"),
            ("build", "[budgets]\nturns = 1000", "turns"),
            ("fork-pr", "trust = \"own\"", "does not vouch"),
        ] {
            let fault = tighten(machine.resolve(policy).unwrap(), &project(text)).unwrap_err();
            assert_eq!(fault.code(), FaultCode::InvalidPolicy);
            assert!(fault.message().contains(says), "{text}: {fault}");
        }
        let two = tighten(machine.resolve("build").unwrap(), &project("net = \"full\"\nunix = \"any\"")).unwrap_err();
        assert!(two.message().contains("net") && two.message().contains("unix"));
    }

    #[test]
    fn a_list_of_tools_is_not_made_longer() {
        let machine = Machine::new();
        let once = tighten(machine.resolve("build").unwrap(), &project("[tools]\nallow = [\"read\", \"ls\"]")).unwrap();
        assert_eq!(tighten(once.clone(), &project("[tools]\nallow = [\"ls\"]")).unwrap().charter.tools_allow, ["ls"]);
        assert!(tighten(once.clone(), &project("[tools]\nallow = [\"write\"]")).is_err());
        assert!(tighten(once, &project("[tools]\nallow = []")).is_err());
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        #[test]
        fn no_limit_ever_rises(now in prop_oneof![Just(0u64), 1u64..100], to in prop_oneof![Just(0u64), 1u64..100]) {
            let (mut limit, mut refused) = (now, false);
            lower("x", &mut limit, Some(to), |n| n, &mut |_| refused = true);
            let rank = |value: u64| if value == 0 { u64::MAX } else { value };
            prop_assert!(rank(limit) <= rank(now));
            prop_assert_eq!(refused, rank(to) > rank(now));
        }
    }
}
