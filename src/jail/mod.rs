//! Processes: the warden, its jails, and the wires between them and the host.
//!
//! * [`wire`]: everything that crosses a process boundary.
//! * [`warden`]: the hidden role. It narrows nothing but itself, forks jails, and kills.
//! * [`enter`]: inside a jail: the loop that answers calls (`Look`, `Change`), and the last steps before a program (`Execute`, `Own`).
//! * [`keeper`]: the process beside a program: it waits, and ends everything that the program left.
//! * [`tree`]: ending a process tree that does not want to end.
//! * [`watch`]: what a tree uses while it runs.
//! * [`spawn`]: the host's side: starts the warden, asks it for jails.
//!
//! Nothing else in the program starts a process on the host.

pub mod enter;
pub mod keeper;
pub mod recover;
pub mod spawn;
pub mod tree;
pub mod warden;
pub mod watch;
pub mod wire;
