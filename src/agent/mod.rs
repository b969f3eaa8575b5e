//! The agent: think, act, wait, done, stopped.
//!
//! It talks to a model through `provider`, says calls through `dialect`, and touches the workspace through one [`Doorway`]
//! only. It never opens a file of the workspace, never starts a process, never prints and never reads an environment variable.

pub mod act;
pub mod attach;
mod avoid;
pub mod budget;
pub mod extra;
mod fallback;
pub mod finish;
pub mod mask;
pub mod messages;
pub mod models;
pub mod observe;
pub mod outcome;
pub mod patch;
mod private_git;
pub mod prompt;
mod reply;
pub mod report;
pub mod run_loop;
#[cfg(test)]
mod shared_tests;
pub mod skills;
pub mod transcript;

use crate::envelope::Fault;
use crate::session::{Call, OwnOutput, Session};
use crate::tools::special::{SPECIAL_FILES, Special};
use crate::tools::{Answer, AnyTool};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// All that the agent can do to the world. A session is one; the loop's tests bring their own tools through another.
///
/// Dropping a returned future ends what it had started.
#[allow(async_fn_in_trait)] // the agent runs on one thread and asks for no `Send`
pub trait Doorway {
    /// Makes a tool call. What goes wrong is in the answer.
    async fn call(&self, call: Call) -> Answer;

    /// Runs a program of our own (git) with the base directory as its current folder, in an `Own` jail: it reads the
    /// workspace and the userland and writes beneath [`Self::own_dir`]. `argv[0]` is looked up in the userland; `env` goes on
    /// top of an environment that holds nothing of the host's.
    ///
    /// # Errors
    /// `command_not_started` when there is no such program; whatever keeps it from ending by itself.
    async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault>;

    /// FIFOs and devices of the workspace, which a program of our own would wait for. Where they cannot be looked for, there are none.
    async fn special_files(&self) -> Special {
        Special::default()
    }

    /// To be called when nothing further is run: ends what runs in the background and compares protected names once more.
    /// Returns what was undone, one sentence each.
    async fn settle(&self) -> Vec<String>;

    /// Keeps a text too large for a conversation where `read` and `grep` find it. Returns its handle; `None` when there is no room.
    fn keep_output(&self, text: &[u8]) -> Option<String>;

    /// The tools that are offered here.
    fn tools(&self) -> &[&'static dyn AnyTool];

    /// The base directory of the workspace, resolved.
    fn base(&self) -> &Path;

    /// An existing folder outside the workspace for our own programs, out of the reach of commands.
    fn own_dir(&self) -> PathBuf;
}

impl Doorway for Session {
    async fn call(&self, call: Call) -> Answer {
        Session::call(self, call).await
    }

    async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault> {
        Session::own(self, argv, env, stdin).await
    }

    async fn special_files(&self) -> Special {
        let answer = self.perform(&SPECIAL_FILES, serde_json::json!({})).await;
        serde_json::from_value(answer.envelope.data().clone()).unwrap_or_default()
    }

    async fn settle(&self) -> Vec<String> {
        Session::finish(self).await
    }

    fn keep_output(&self, text: &[u8]) -> Option<String> {
        Session::keep_output(self, text)
    }

    fn tools(&self) -> &[&'static dyn AnyTool] {
        Session::tools(self)
    }

    fn base(&self) -> &Path {
        &self.charter().base
    }

    fn own_dir(&self) -> PathBuf {
        self.charter().session_dir.join("own")
    }
}
