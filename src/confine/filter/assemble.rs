//! The assembler: a balanced tree over the call's number, with the comparison of arguments at its leaves.
//!
//! A chain of comparisons costs a call as many instructions as there are calls before it; the tree costs the logarithm, and the
//! kernel's cache of calls that are allowed whatever their arguments works with both. No jump goes backwards.

use super::calls::ABSENT;
use super::{Decision, Machine, Verdict};
use crate::envelope::{Fault, FaultCode};
use seccompiler::{BpfProgram, sock_filter};
use std::collections::BTreeMap;

/// The kernel's `BPF_MAXINSNS`.
const PROGRAM_MOST: usize = 4096;

/// `struct seccomp_data`: the number, the machine, then the arguments (after the instruction pointer), low half first.
const AT_NUMBER: u32 = 0;
const AT_MACHINE: u32 = 4;
const AT_ARGUMENTS: u32 = 16;

const LOAD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// The bit that marks a number of the x32 table.
const X32: u32 = 0x4000_0000;

/// Assembles the program. Numbers without a decision answer `ENOSYS`.
pub(super) fn assemble(machine: Machine, decisions: &BTreeMap<u32, Decision>) -> Result<BpfProgram, Fault> {
    let mut program = vec![
        load(AT_MACHINE),
        // AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64 of linux/audit.h. Another machine's numbers (int 0x80) mean other calls.
        jump(JUMP_EQUAL, if machine == Machine::X86_64 { 0xc000_003e } else { 0xc000_00b7 }, 1, 0),
        answer(Verdict::Kill),
        load(AT_NUMBER),
    ];
    if machine == Machine::X86_64 {
        program.push(jump(JUMP_ANY_BIT, X32, 0, 1));
        program.push(answer(super::calls::REFUSED));
    }
    program.extend(tree(&ranges(decisions))?);
    if program.len() > PROGRAM_MOST {
        return Err(too_long());
    }
    Ok(program)
}

/// The program that allows everything.
pub(super) fn allow_all() -> BpfProgram {
    vec![answer(Verdict::Allow)]
}

/// The program that answers one call as a kernel would that has no such call.
pub(super) fn absent(number: u32) -> BpfProgram {
    vec![load(AT_NUMBER), jump(JUMP_EQUAL, number, 0, 1), answer(ABSENT), answer(Verdict::Allow)]
}

/// The most instructions on any way through the program.
pub(super) fn depth(program: &[sock_filter]) -> usize {
    let mut from = vec![0usize; program.len() + 1];
    for (at, step) in program.iter().enumerate().rev() {
        let behind = |offset: u32| from.get(at + 1 + offset as usize).copied().unwrap_or(0);
        from[at] = 1 + match step.code {
            RETURN => 0,
            JUMP => behind(step.k),
            JUMP_EQUAL | JUMP_GREATER_OR_EQUAL | JUMP_ANY_BIT => behind(step.jt.into()).max(behind(step.jf.into())),
            _ => behind(0),
        };
    }
    from.first().copied().unwrap_or(0)
}

/// The decisions as ranges of numbers, each from its first number to before the next range's.
fn ranges(decisions: &BTreeMap<u32, Decision>) -> Vec<(u32, Decision)> {
    let absent = Decision::Always(ABSENT);
    let mut ranges: Vec<(u32, Decision)> = vec![(0, absent.clone())];
    let mut next = 0;
    let mut push = |from: u32, decision: &Decision| match ranges.last_mut() {
        Some((_, last)) if last == decision && matches!(decision, Decision::Always(_)) => {}
        Some((start, last)) if *start == from => *last = decision.clone(),
        _ => ranges.push((from, decision.clone())),
    };
    for (number, decision) in decisions {
        if *number > next {
            push(next, &absent);
        }
        push(*number, decision);
        next = number + 1;
    }
    push(next, &absent);
    ranges
}

fn tree(ranges: &[(u32, Decision)]) -> Result<BpfProgram, Fault> {
    match ranges {
        [] => Ok(vec![answer(ABSENT)]),
        [(_, decision)] => leaf(decision),
        _ => {
            let (low, high) = ranges.split_at(ranges.len() / 2);
            let first_of_high = high.first().map_or(u32::MAX, |(start, _)| *start);
            let low = tree(low)?;
            let high = tree(high)?;
            let mut program = match u8::try_from(low.len()) {
                Ok(over) => vec![jump(JUMP_GREATER_OR_EQUAL, first_of_high, over, 0)],
                // A conditional jump reaches 255 instructions, an unconditional one all of them.
                Err(_) => {
                    let over = u32::try_from(low.len()).map_err(|_| too_long())?;
                    vec![jump(JUMP_GREATER_OR_EQUAL, first_of_high, 0, 1), step(JUMP, over)]
                }
            };
            program.extend(low);
            program.extend(high);
            Ok(program)
        }
    }
}

fn leaf(decision: &Decision) -> Result<BpfProgram, Fault> {
    let (clauses, otherwise) = match decision {
        Decision::Always(verdict) => return Ok(vec![answer(*verdict)]),
        Decision::ByArguments { clauses, otherwise } => (clauses, otherwise),
    };
    let mut program = Vec::new();
    for clause in clauses {
        // Backwards: each test has to know how far it is to the next clause.
        let mut body = vec![answer(clause.verdict)];
        for test in clause.tests.iter().rev() {
            let to_next_clause = u8::try_from(body.len()).map_err(|_| too_long())?;
            let mut part = vec![load(AT_ARGUMENTS + 8 * u32::from(test.arg))];
            if test.mask != u32::MAX {
                part.push(step(AND, test.mask));
            }
            for (place, value) in test.any_of.iter().enumerate() {
                let rest = u8::try_from(test.any_of.len() - 1 - place).map_err(|_| too_long())?;
                let otherwise = if rest == 0 { to_next_clause } else { 0 };
                part.push(jump(JUMP_EQUAL, *value, rest, otherwise));
            }
            part.extend(body);
            body = part;
        }
        program.extend(body);
    }
    program.push(answer(*otherwise));
    Ok(program)
}

fn answer(verdict: Verdict) -> sock_filter {
    step(
        RETURN,
        match verdict {
            Verdict::Allow => libc::SECCOMP_RET_ALLOW,
            Verdict::Errno(errno) => libc::SECCOMP_RET_ERRNO | u32::from(errno),
            Verdict::Kill => libc::SECCOMP_RET_KILL_PROCESS,
        },
    )
}

fn load(at: u32) -> sock_filter {
    step(LOAD, at)
}

fn step(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn too_long() -> Fault {
    Fault::new(FaultCode::Internal, "the seccomp filter is longer than the kernel takes")
}
