//! A session in this process, for tests that make many calls: the same jails, one start.

use crate::space::{Space, bailiwick};
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// A workspace and the session that works in it. The session ends before its folders go.
pub(crate) struct Desk {
    session: Session,
    runtime: tokio::runtime::Runtime,
    _setup: Setup,
    pub(crate) space: Space,
}

/// What a call answered, for machines and for the model.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) envelope: Value,
    pub(crate) text: String,
}

impl Desk {
    /// A session under the policy `build` in a workspace as it is now.
    pub(crate) fn new(space: Space) -> Self {
        Self::under("build", space)
    }

    /// A session under a policy: its name, or its file.
    pub(crate) fn under(policy: &str, space: Space) -> Self {
        let ws = space.ws();
        Self::start(policy, &ws, space)
    }

    /// A session in a folder that somebody else works in, too. Paths are of the folder and not of the space.
    pub(crate) fn at_folder(policy: &str, ws: &Path) -> Self {
        Self::start(policy, ws, Space::new())
    }

    fn start(policy: &str, ws: &Path, space: Space) -> Self {
        let asked = Asked { workspace: Some(ws.to_path_buf()), policy: policy.into(), ..Asked::default() };
        let setup = Setup::of(&asked).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let options = Options { exe: bailiwick(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() };
        let session = runtime.block_on(async { Session::start(options) }).unwrap();
        Self { session, runtime, _setup: setup, space }
    }

    /// Where this session's journal is.
    pub(crate) fn journal(&self) -> Option<PathBuf> {
        self.session.charter().journal.clone()
    }

    /// What the session says it enforces.
    pub(crate) fn report(&self) -> String {
        serde_json::to_string(self.session.report()).unwrap()
    }

    /// Ends the session; the workspace stays.
    pub(crate) fn close(self) -> Space {
        self.space
    }

    /// One call.
    pub(crate) fn call(&self, tool: &str, args: Value) -> Reply {
        self.runtime.block_on(self.ask(tool, args))
    }

    /// Two calls at the same time.
    pub(crate) fn both(&self, one: (&str, Value), other: (&str, Value)) -> (Reply, Reply) {
        self.runtime.block_on(async { tokio::join!(self.ask(one.0, one.1), self.ask(other.0, other.1)) })
    }

    /// A call whose future is dropped after a time; `true`: it had answered before.
    pub(crate) fn dropped_after(&self, time: std::time::Duration, tool: &str, args: Value) -> bool {
        self.runtime.block_on(async { tokio::time::timeout(time, self.ask(tool, args)).await.is_ok() })
    }

    async fn ask(&self, tool: &str, args: Value) -> Reply {
        let answer = self.session.call(Call { id: String::new(), tool: tool.into(), args }).await;
        Reply { envelope: serde_json::to_value(&answer.envelope).unwrap(), text: answer.text }
    }

    /// The facts of a call that has to succeed.
    #[track_caller]
    pub(crate) fn done(&self, tool: &str, args: Value) -> Value {
        self.call(tool, args).into_data()
    }

    /// The code and the facts of a call that has to fail.
    #[track_caller]
    pub(crate) fn refused(&self, tool: &str, args: Value) -> (String, Value) {
        let reply = self.call(tool, args);
        assert_eq!(reply.envelope["success"], false, "{}", reply.envelope);
        (reply.envelope["data"]["code"].as_str().unwrap().into(), reply.envelope)
    }

    /// A path of the workspace.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.space.ws().join(path)
    }

    /// Writes a file of the workspace, past the tools.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// The bytes of a file of the workspace.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }
}

impl Reply {
    #[track_caller]
    pub(crate) fn into_data(mut self) -> Value {
        assert_eq!(self.envelope["success"], true, "{}", self.envelope);
        self.envelope["data"].take()
    }
}

/// A case: its id, and what has to hold.
pub(crate) type Row = (&'static str, fn(&Desk));

/// Runs rows at one desk. Each row uses names of its own. All rows run; those that fail are named.
pub(crate) fn run(rows: &[Row]) {
    let desk = Desk::new(Space::new());
    let mut failed = Vec::new();
    for (id, row) in rows {
        if catch_unwind(AssertUnwindSafe(|| row(&desk))).is_err() {
            failed.push(*id);
        }
    }
    assert!(failed.is_empty(), "failed: {failed:?}");
    println!("{} rows hold", rows.len());
}

/// The numbers at `key` of a list.
pub(crate) fn numbers(list: &Value, key: &str) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|one| one[key].as_u64().unwrap()).collect()
}

/// The strings at `key` of a list.
pub(crate) fn strings<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap()).collect()
}
