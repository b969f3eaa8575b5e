use super::*;
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch, sock_filter};
use std::collections::BTreeSet;

/// One call as the kernel shows it to a filter.
#[derive(Clone, Copy, Debug)]
struct Seen {
    number: u32,
    machine: u32,
    arguments: [u64; 6],
}

const X86_64: u32 = 0xc000_003e;
const AARCH64: u32 = 0xc000_00b7;

/// Runs a program as the kernel's interpreter would; the return value and the instructions it took.
fn run(program: &[sock_filter], seen: &Seen) -> (u32, usize) {
    let word = |at: u32| match at {
        0 => seen.number,
        4 => seen.machine,
        at => {
            let half = (at - 16) / 4;
            (seen.arguments[half as usize / 2] >> (32 * (half % 2))) as u32
        }
    };
    let (mut a, mut at, mut steps) = (0u32, 0usize, 0usize);
    loop {
        let step = &program[at];
        steps += 1;
        at += 1;
        let mut jump = |taken: bool| at += usize::from(if taken { step.jt } else { step.jf });
        match step.code {
            0x20 => a = word(step.k),
            0x54 => a &= step.k,
            0x05 => at += step.k as usize,
            0x15 => jump(a == step.k),
            0x25 => jump(a > step.k),
            0x35 => jump(a >= step.k),
            0x45 => jump(a & step.k != 0),
            0x06 => return (step.k, steps),
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn value(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Allow => libc::SECCOMP_RET_ALLOW,
        Verdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
        Verdict::Kill => libc::SECCOMP_RET_KILL_PROCESS,
    }
}

fn profiles() -> Vec<Profile> {
    let mut all = Vec::new();
    for access in [Access::Look, Access::Change, Access::Execute, Access::Own] {
        for truncate_is_judged in [true, false] {
            for unix_any in [true, false] {
                for sockets in [Sockets::None, Sockets::Inet] {
                    all.push(Profile { access, truncate_is_judged, unix_any, sockets });
                }
            }
        }
    }
    all
}

/// Every value that an argument is compared with, its neighbours, and values with a high half.
fn probes(decision: &Decision) -> Vec<[u64; 6]> {
    let Decision::ByArguments { clauses, .. } = decision else { return vec![[0; 6], [u64::MAX; 6]] };
    let mut values: Vec<BTreeSet<u64>> = vec![BTreeSet::from([0]); 6];
    for test in clauses.iter().flat_map(|clause| &clause.tests) {
        let set = &mut values[usize::from(test.arg)];
        for value in test.any_of {
            for near in [*value, value.wrapping_add(1), value.wrapping_sub(1), value | !test.mask, value ^ test.mask, !value] {
                set.insert(near.into());
                set.insert(u64::from(near) | 0xdead_beef << 32);
            }
        }
        set.extend([1, u64::from(u32::MAX), u64::MAX]);
    }
    let mut probes = vec![[0u64; 6]];
    for (arg, set) in values.iter().enumerate() {
        if set.len() > 1 {
            probes = probes.iter().flat_map(|probe| set.iter().map(move |value| with(*probe, arg, *value))).collect();
        }
    }
    probes
}

fn with(mut probe: [u64; 6], arg: usize, value: u64) -> [u64; 6] {
    probe[arg] = value;
    probe
}

/// The oracle: seccompiler's own compiler. It knows one match action a filter, so every clause is a filter of its own.
struct Oracle {
    plain: Vec<(Verdict, BpfProgram)>,
    narrowed: BTreeMap<u32, (Vec<(BpfProgram, Verdict)>, Verdict)>,
    known: BTreeSet<u32>,
}

fn compiled(rules: BTreeMap<i64, Vec<SeccompRule>>, target: TargetArch) -> BpfProgram {
    SeccompFilter::new(rules, SeccompAction::Log, SeccompAction::Allow, target).unwrap().try_into().unwrap()
}

impl Oracle {
    fn new(decisions: &BTreeMap<u32, Decision>, target: TargetArch) -> Self {
        let mut by_verdict: Vec<(Verdict, BTreeMap<i64, Vec<SeccompRule>>)> = Vec::new();
        let mut narrowed = BTreeMap::new();
        for (number, decision) in decisions {
            match decision {
                Decision::Always(verdict) => match by_verdict.iter_mut().find(|(known, _)| known == verdict) {
                    Some((_, rules)) => drop(rules.insert((*number).into(), Vec::new())),
                    None => by_verdict.push((*verdict, BTreeMap::from([((*number).into(), Vec::new())]))),
                },
                Decision::ByArguments { clauses, otherwise } => {
                    let filters = clauses.iter().map(|clause| (Self::clause(*number, clause, target), clause.verdict)).collect();
                    narrowed.insert(*number, (filters, *otherwise));
                }
            }
        }
        let plain = by_verdict.into_iter().map(|(verdict, rules)| (verdict, compiled(rules, target))).collect();
        Self { plain, narrowed, known: decisions.keys().copied().collect() }
    }

    fn clause(number: u32, clause: &Clause, target: TargetArch) -> BpfProgram {
        // All combinations of one value a test.
        let mut rules: Vec<Vec<SeccompCondition>> = vec![Vec::new()];
        for test in &clause.tests {
            let condition = |value: u32| {
                let operator = SeccompCmpOp::MaskedEq(test.mask.into());
                SeccompCondition::new(test.arg, SeccompCmpArgLen::Dword, operator, value.into()).unwrap()
            };
            rules = rules
                .into_iter()
                .flat_map(|rule| test.any_of.iter().map(move |value| [rule.clone(), vec![condition(*value)]].concat()))
                .collect();
        }
        let rules = rules.into_iter().map(|rule| SeccompRule::new(rule).unwrap()).collect();
        compiled(BTreeMap::from([(i64::from(number), rules)]), target)
    }

    fn verdict(&self, seen: &Seen) -> Verdict {
        let matches = |program: &BpfProgram| run(program, seen).0 == libc::SECCOMP_RET_ALLOW;
        if let Some((filters, otherwise)) = self.narrowed.get(&seen.number) {
            return filters.iter().find(|(program, _)| matches(program)).map_or(*otherwise, |(_, verdict)| *verdict);
        }
        match self.plain.iter().find(|(_, program)| matches(program)) {
            Some((verdict, _)) => *verdict,
            None => calls::ABSENT,
        }
    }
}

#[test]
fn the_tree_answers_as_the_oracle_for_every_number_and_probe() {
    for (machine, audit, target) in [(Machine::X86_64, X86_64, TargetArch::x86_64), (Machine::Aarch64, AARCH64, TargetArch::aarch64)] {
        for profile in profiles() {
            let decisions = decisions(machine, &profile);
            let program = assemble::assemble(machine, &decisions).unwrap();
            let deepest = assemble::depth(&program);
            let oracle = Oracle::new(&decisions, target);
            assert_eq!(oracle.known.len(), decisions.len());
            for number in (0..700).chain([1000, 4095, 0x3fff_ffff]) {
                let probes = decisions.get(&number).map_or(vec![[0; 6], [u64::MAX; 6]], probes);
                for arguments in probes {
                    let seen = Seen { number, machine: audit, arguments };
                    let (answer, steps) = run(&program, &seen);
                    assert_eq!(answer, value(oracle.verdict(&seen)), "{machine:?} {profile:?} {seen:x?}");
                    assert!(steps <= deepest, "{steps} > {deepest}");
                }
            }
        }
    }
}

#[test]
fn other_machines_and_x32_numbers_are_refused() {
    for profile in profiles() {
        let program = assemble::assemble(Machine::X86_64, &decisions(Machine::X86_64, &profile)).unwrap();
        for number in 0..600 {
            let i386 = Seen { number, machine: 0x4000_0003, arguments: [0; 6] };
            assert_eq!(run(&program, &i386).0, libc::SECCOMP_RET_KILL_PROCESS);
            let x32 = Seen { number: number | 0x4000_0000, machine: X86_64, arguments: [0; 6] };
            assert_eq!(run(&program, &x32).0, value(calls::REFUSED));
        }
    }
}

#[test]
fn every_known_call_stands_in_exactly_one_group() {
    let mut seen = BTreeSet::new();
    for group in calls::GROUPS {
        assert!(!group.reason.is_empty());
        for name in group.names {
            assert!(seen.insert(*name), "{name} stands twice");
        }
    }
    let known: BTreeSet<&str> = numbers::CALLS.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(known.len(), numbers::CALLS.len());
    assert_eq!(seen, known);
}

#[test]
fn numbers_are_distinct_and_those_of_the_c_library() {
    for machine in [0, 1] {
        let mut seen = BTreeSet::new();
        for call in numbers::CALLS {
            let number = if machine == 0 { call.1 } else { call.2 };
            assert!(number == -1 || seen.insert(number), "{number} stands twice");
        }
    }
    for (name, number) in [
        ("read", libc::SYS_read),
        ("openat2", libc::SYS_openat2),
        ("clone3", libc::SYS_clone3),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
        ("ptrace", libc::SYS_ptrace),
        ("keyctl", libc::SYS_keyctl),
        ("socket", libc::SYS_socket),
        ("mseal", libc::SYS_mseal),
    ] {
        let row = numbers::CALLS.iter().find(|row| row.0 == name).unwrap();
        assert_eq!(i64::from(if HERE == Machine::X86_64 { row.1 } else { row.2 }), number, "{name}");
    }
}

#[test]
fn the_tree_is_shallow() {
    for profile in profiles() {
        let filter = build(&profile).unwrap();
        assert!(filter.instructions() < 700, "{} instructions", filter.instructions());
        // Four to check the machine, two for x32, eight levels (some of two steps) and the longest comparison of arguments.
        assert!(filter.depth < 100, "{} deep", filter.depth);
        assert_eq!(filter.hash().len(), 64);
    }
}

#[test]
fn jails_of_the_file_tools_have_no_exec_no_fork_and_no_socket() {
    for access in [Access::Look, Access::Change] {
        let profile = Profile { access, truncate_is_judged: true, unix_any: true, sockets: Sockets::None };
        let decisions = decisions(Machine::X86_64, &profile);
        let program = assemble::assemble(Machine::X86_64, &decisions).unwrap();
        for (name, number, _) in numbers::CALLS {
            let answer = run(&program, &Seen { number: u32::try_from(*number).unwrap_or(u32::MAX), machine: X86_64, arguments: [0; 6] }).0;
            let closed = ["execve", "execveat", "fork", "vfork", "clone", "socket", "socketpair", "connect", "kill", "ptrace", "mknod"];
            let closed_to_look = ["unlinkat", "renameat2", "mkdirat", "fchmod", "ftruncate", "pwrite64", "utimensat", "linkat", "mknodat"];
            if closed.contains(name) || access == Access::Look && closed_to_look.contains(name) {
                assert_ne!(answer, libc::SECCOMP_RET_ALLOW, "{access:?} {name}");
            }
        }
    }
}
