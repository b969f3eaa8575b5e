//! A coding agent that cannot leave its bailiwick.
//!
//! A model works on a repository with tools, and every tool call runs in a process that the kernel confines. Every call answers with
//! one envelope, `{success, data, error}`.
//!
//! # Processes
//!
//! ```text
//! host                     warden (one a session)           jail (one an access class, or one a command)
//! models, person,          namespaces where they start,     narrowed: one Landlock ruleset, one seccomp
//! opens the base once      no capability, no secret,        filter, rlimits; answers calls, or becomes
//!    │                     single thread                    the program
//!    │  hello: charter        │                                │
//!    ├───────────────────────►│ walls, canaries, report        │
//!    │  open: a wire's end    │  fork ────────────────────────►│ openat2 beneath the base │ bash
//!    ├───────────────────────►│                                │
//!    │◄──────────────────── call / envelope, by the jail's own wire ────►│
//!    └ deadline: kill          └ beside each program a keeper waits for it and ends what it leaves
//! ```
//!
//! The **host** holds the model's key and never resolves a path of the workspace after its start. The **warden** is the same executable
//! in a hidden role, started with an environment from nothing; it forks, waits and kills. (`exec`, whose host never holds a key, forks its
//! warden instead, which overwrites the environment it got.) A **jail** restricts itself for good before it sees a call. A program's
//! **keeper** stays outside of the program's domain, and when all has ended compares the protected names by their stamps. The shell of a
//! session's next command is there before it, narrowed, at a read of one byte; its keeper writes that when the protected names are as they were. The host takes what a jail says for hostile: bounded
//! before it is read, checked before it is used.
//!
//! # Layers
//!
//! A module imports only from those above it; [`sys`], the only unsafe code, is open to `workspace`, `confine` and `jail`. The house
//! rules in `tests/house_rules.rs` hold this list to it.
//!
//! | module | what it is | what it never does |
//! |---|---|---|
//! | [`envelope`] | `Envelope`, `Fault`, `FaultCode`: the only answer a tool gives | |
//! | [`exit_code`] | every exit code, and the one conversion | |
//! | [`clip`] | honest truncation | cuts without a count |
//! | [`policy`] | a policy as written, a charter as resolved | reads the environment |
//! | [`workspace`] | paths, the base directory, the decoder | simplifies a path |
//! | [`skills`] | what a skill is, and how its folder is read | runs a script |
//! | [`confine`] | Landlock, seccomp, namespaces, canaries, the report | enforces less without saying so |
//! | [`tools`] | one file and one line a tool | knows of jails, sessions, models |
//! | [`jail`] | warden, keeper, jails and their wires | resolves a name for a model |
//! | [`session`] | `Session::call`, the one doorway | fails in Rust terms |
//! | [`provider`] | models | sees a tool, a path or an envelope |
//! | [`dialect`] | how a model says a call | runs one |
//! | [`agent`] | the loop, the transcript, the patch | calls anything but a session |
//! | [`mcp`] | the tools for other programs, and the tools of others | runs anything itself |
//! | [`cli`] | what a person types | is called by anything |
//!
//! # Embedding
//!
//! [`cli::setup::Setup`] resolves a policy, [`session::Session::start`] raises the walls, [`session::Session::call`] takes calls.
//! The executable has to hand its hidden role to [`jail::warden::run`]: see `examples/extra_tool.rs`, which also shows how a tool is
//! added.

pub mod envelope;

pub mod exit_code;

pub mod clip;

pub mod policy;

pub mod workspace;

pub mod skills;

pub mod confine;

pub mod sys;

pub mod tools;

pub mod jail;

pub mod session;

pub mod provider;

pub mod dialect;

pub mod agent;

pub mod mcp;

pub mod cli;

#[cfg(test)]
mod property_tests;
