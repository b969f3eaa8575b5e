//! Every exit code of the program, and the one conversion: from a fault to a code, and from a code to a number.

use crate::envelope::{Fault, FaultCode};
use serde::{Deserialize, Serialize};

/// How the program ends. `exec` passes its program's own code on; when it fails itself it ends with [`ExitCode::ExecFailed`]
/// and its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCode {
    /// 0: the work is done; of `tool`: the envelope is a success.
    Done,
    /// 1: gave up or failed; of `tool`: the envelope is a failure.
    Failed,
    /// 2: usage or configuration.
    Usage,
    /// 3: the sandbox cannot be enforced.
    CannotConfine,
    /// 4: a budget is spent.
    BudgetSpent,
    /// 5: the wall clock ran out.
    WallClock,
    /// 6: the provider failed.
    Provider,
    /// 7: the model went in circles or broke the tool protocol.
    LoopOrProtocol,
    /// 8: a required MCP server or skill is missing.
    MissingRequirement,
    /// 9: the verification failed.
    VerificationFailed,
    /// 125: `exec` failed itself: it cannot confine, or its usage is wrong.
    ExecFailed,
    /// 126: `exec`: the program is there and cannot be executed.
    NotExecutable,
    /// 127: `exec`: there is no such program.
    ProgramNotFound,
    /// 128 and the signal: 130 for an interrupt, 143 for a termination.
    Signal(u8),
}

impl ExitCode {
    /// All codes but the signals', in order.
    pub const ALL: &'static [Self] = &[
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::CannotConfine,
        Self::BudgetSpent,
        Self::WallClock,
        Self::Provider,
        Self::LoopOrProtocol,
        Self::MissingRequirement,
        Self::VerificationFailed,
        Self::ExecFailed,
        Self::NotExecutable,
        Self::ProgramNotFound,
    ];

    /// How a program ends that a fault kept from its work. `exec` has codes of its own.
    pub fn of(fault: &Fault) -> Self {
        match fault.code() {
            FaultCode::CannotConfine | FaultCode::CanaryFailed => Self::CannotConfine,
            FaultCode::MissingRequirement => Self::MissingRequirement,
            FaultCode::InvalidPolicy | FaultCode::InvalidWorkspace | FaultCode::InvalidArguments => Self::Usage,
            _ => Self::Failed,
        }
    }

    /// The number that the caller sees.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::CannotConfine => 3,
            Self::BudgetSpent => 4,
            Self::WallClock => 5,
            Self::Provider => 6,
            Self::LoopOrProtocol => 7,
            Self::MissingRequirement => 8,
            Self::VerificationFailed => 9,
            Self::ExecFailed => 125,
            Self::NotExecutable => 126,
            Self::ProgramNotFound => 127,
            Self::Signal(signal) => 128_u8.saturating_add(signal),
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_those_of_a_shell_for_signals() {
        let mut seen = std::collections::HashSet::new();
        assert!(ExitCode::ALL.iter().all(|code| seen.insert(code.code())));
        assert_eq!((ExitCode::Signal(2).code(), ExitCode::Signal(15).code()), (130, 143));
        assert_eq!(ExitCode::Signal(255).code(), 255);
    }
}
