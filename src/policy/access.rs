//! The access classes.

use serde::{Deserialize, Serialize};

/// What a call may do, and so in which kind of jail it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Only reads the workspace (and the session's spool).
    Look,
    /// Reads and writes in the workspace; never executes.
    Change,
    /// Runs programs of the policy's userland.
    Execute,
    /// Our own programs (git, for the patch): the workspace read-only, the userland, a folder of the session. Never a tool's.
    Own,
}
