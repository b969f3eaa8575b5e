//! For tests of tools: a bench in a thread that is really confined, on a workspace of its own.
//!
//! Landlock, the filter and capabilities are a thread's own; limits and signal actions are the process's, so each such test runs in a
//! process of its own.

use super::{Access, Answer, Bench, TOOLS, Work, bench::Memory, find};
use crate::confine::{self, Confined};
use crate::envelope::{Envelope, FaultCode};
use crate::policy::{Charter, Grants, Identity, Limits, Net, Unix};
use crate::workspace::BaseDir;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The filter that tells this test program that it is the process of one test. No test has such a name.
const OWN_PROCESS: &str = "in-a-process-of-its-own";

/// Runs the body of a test in a process of its own: this program again, with that test alone.
pub(crate) fn own_process<F: FnOnce()>(test: F) {
    use std::io::Write as _;
    if std::env::args().any(|arg| arg == OWN_PROCESS) {
        return test();
    }
    // A closure's type is named after the function that it stands in.
    let name = std::any::type_name::<F>().split_once("::").unwrap().1.trim_end_matches("::{{closure}}");
    let done = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, OWN_PROCESS, "--exact", "--test-threads=1", "--nocapture"])
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success() && out.contains("1 passed"), "{name}:\n{out}\n{err}");
    for skip in err.lines().filter(|line| line.starts_with("SKIP")) {
        let _ = writeln!(std::io::stderr(), "{skip}");
    }
}

/// A workspace `ws` with a folder `outside` beside it.
pub(crate) struct Workspace {
    dir: tempfile::TempDir,
}

impl Workspace {
    /// A new one. `outside/secret` holds `secret`.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ws")).unwrap();
        std::fs::create_dir(dir.path().join("outside")).unwrap();
        std::fs::write(dir.path().join("outside/secret"), "secret").unwrap();
        Self { dir }
    }

    /// A path in it.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    /// The bytes of a file in it.
    pub(crate) fn bytes(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.at(path)).unwrap()
    }

    /// Nothing outside was touched.
    pub(crate) fn assert_outside_untouched(&self) {
        assert_eq!(std::fs::read(self.dir.path().join("outside/secret")).unwrap(), b"secret");
        assert_eq!(std::fs::read_dir(self.dir.path().join("outside")).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(self.dir.path()).unwrap().count(), 2);
    }

    /// Runs a test in a thread confined as a jail of this class is. (Landlock and capabilities are a thread's own.)
    pub(crate) fn confined<R: Send>(&self, access: Access, test: impl FnOnce(&Desk<'_>) -> R + Send) -> Option<R> {
        assert!(std::env::args().any(|arg| arg == OWN_PROCESS), "only within own_process");
        let base = BaseDir::open(&self.at("")).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let confined = match confine::prepare(&charter(base.path()), access, std::os::fd::AsFd::as_fd(&base)) {
                    Ok(prepared) => prepared.apply().unwrap(),
                    Err(fault) => {
                        assert_eq!(fault.code(), FaultCode::CannotConfine);
                        use std::io::Write as _;
                        let _ = writeln!(std::io::stderr(), "SKIP {:?}: {fault}", std::thread::current().name());
                        return None;
                    }
                };
                Some(test(&Desk { confined, base: &base, memory: Memory::default() }))
            });
            thread.join().unwrap()
        })
    }
}

/// Where calls are made in a test.
pub(crate) struct Desk<'a> {
    confined: Confined,
    base: &'a BaseDir,
    /// The session's memory.
    pub(crate) memory: Memory,
}

impl Desk<'_> {
    /// One call, with all that a call goes through.
    pub(crate) fn answer(&self, tool: &str, args: Value) -> Answer {
        let tool = find(TOOLS, tool).unwrap();
        let (args, warnings) = match tool.read(args) {
            Ok(read) => read,
            Err(fault) => return Answer::failed(fault),
        };
        let Work::Jail(run) = tool.work() else { panic!("not a jail's tool") };
        let mut answer = run(&Bench::new(&self.confined, self.base, &self.memory, None, Duration::from_secs(10)), args);
        warnings.into_iter().for_each(|warning| answer.envelope.warn(warning));
        answer.envelope.check().unwrap();
        answer
    }

    /// The envelope of one call.
    pub(crate) fn call(&self, tool: &str, args: Value) -> Envelope {
        self.answer(tool, args).envelope
    }

    /// The facts of a call that has to succeed.
    pub(crate) fn done(&self, tool: &str, args: Value) -> Value {
        let envelope = self.call(tool, args);
        assert!(envelope.success(), "{:?}", envelope.error());
        envelope.data().clone()
    }

    /// The code of a call that has to fail.
    pub(crate) fn refused(&self, tool: &str, args: Value) -> FaultCode {
        let envelope = self.call(tool, args);
        envelope.code().unwrap_or_else(|| panic!("{}", envelope.data()))
    }
}

fn charter(base: &Path) -> Charter {
    Charter {
        policy: "test".into(),
        base: base.to_path_buf(),
        identity: Identity { uid: 0, gid: 0 },
        look: Grants::default(),
        change: Some(Grants::default()),
        execute: None,
        own: Grants::default(),
        env: Vec::new(),
        net: Net::None,
        unix: Unix::Pair,
        protect: Vec::new(),
        limits: Limits { wall_ms: 0, cpu_s: 0, memory: 0, processes: 0, file_size: 0, open_files: 0, output: 0, disk: 0 },
        require: Vec::new(),
        namespaces: false,
        allow_degraded: Vec::new(),
        session_dir: PathBuf::new(),
        journal: None,
        tools_allow: Vec::new(),
        tools_deny: Vec::new(),
    }
}
