//! The protections: what a person is promised, by stable names. Mechanisms provide them.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! protections {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// What a person is promised. The names appear in policies (`require`), `doctor`, the report and refusals.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Protection {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
        }

        impl Protection {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// What it promises, in one line.
            pub fn promise(self) -> &'static str {
                match self { $(Self::$name => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

protections! {
    /// Files outside the grants cannot be read.
    FsRead = "fs.read",
    /// Files outside the grants cannot be written, created, removed or renamed.
    FsWrite = "fs.write",
    /// Files outside the grants cannot be truncated.
    FsTruncate = "fs.truncate",
    /// Mode, owner, times and extended attributes outside the grants cannot be changed.
    FsMetadata = "fs.metadata",
    /// FIFOs and devices outside the grants cannot be opened or made.
    FsSpecial = "fs.special",
    /// Protected paths within a writable tree cannot be changed.
    FsProtected = "fs.protected",
    /// Only programs of the policy's userland are executed by path.
    Exec = "exec",
    /// The host's environment does not reach a command.
    Env = "env",
    /// Other processes' environment, memory, descriptors and maps cannot be read.
    Proc = "proc",
    /// Processes outside the sandbox cannot be traced.
    Ptrace = "ptrace",
    /// Processes outside the sandbox cannot be signalled, limited or rescheduled.
    Signals = "signals",
    /// System V IPC, message queues and keyrings of the host are out of reach.
    Ipc = "ipc",
    /// Unix sockets in the file system outside the grants cannot be connected to.
    UnixPath = "unix.path",
    /// Abstract unix sockets of the host cannot be connected to.
    UnixAbstract = "unix.abstract",
    /// TCP beyond the policy's network.
    NetTcp = "net.tcp",
    /// UDP beyond the policy's network.
    NetUdp = "net.udp",
    /// MPTCP, fast open, raw, packet, vsock, netlink (but ROUTE) and alg sockets.
    NetOther = "net.other",
    /// Nothing can be typed into the person's terminal.
    Tty = "tty",
    /// No descriptor of the host is inherited.
    Fds = "fds",
    /// System calls that offline development does not need are refused.
    Kernel = "kernel",
    /// Nothing that a command started outlives it, the session or the host.
    Orphans = "orphans",
    /// Time, memory, processes, file size, open files, output and disk are bounded.
    Limits = "limits",
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
