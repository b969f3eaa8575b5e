//! Which namespaces stand between a jail and the host. They are made before anything here runs; this module only says what
//! follows from them.

use serde::{Deserialize, Serialize};

/// The namespaces of the session that are its own. The default: none, the host's are shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// User ids are the session's own.
    pub user: bool,
    /// Mounts are the session's own: everything but the grants is read-only or absent.
    pub mount: bool,
    /// Processes of the host are not visible, `/proc` is fresh.
    pub pid: bool,
    /// The network is empty but for a loopback of the session's own.
    pub net: bool,
    /// System V IPC and message queues are the session's own.
    pub ipc: bool,
    /// Pseudo terminals are the session's own (`devpts` mounted anew).
    pub pts: bool,
}
