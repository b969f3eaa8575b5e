//! A workspace to try things in, and the program under test.

use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program under test. Another uid runs a copy that it may enter, and says where.
pub(crate) fn bailiwick() -> PathBuf {
    std::env::var_os("BAILIWICK_TEST_EXE").map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_bailiwick")), PathBuf::from)
}

/// A temporary folder with a workspace `ws`, an `outside` beside it and a `home`.
pub(crate) struct Space {
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl Space {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("bw-test-").tempdir().unwrap();
        for name in ["ws", "outside", "home"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(dir.path().join("outside/secret"), "the outside secret\n").unwrap();
        Self { dir, env: Vec::new() }
    }

    pub(crate) fn path(&self, rel: &str) -> PathBuf {
        self.dir.path().join(rel)
    }

    pub(crate) fn ws(&self) -> PathBuf {
        self.path("ws")
    }

    pub(crate) fn outside(&self) -> PathBuf {
        self.path("outside")
    }

    /// Sets a variable of the host's environment.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Writes a file of the workspace, with its folders.
    pub(crate) fn file(self, rel: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.ws().join(rel);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    /// The program, ready to run in the workspace, with a home of its own.
    pub(crate) fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(bailiwick());
        command.args(args).current_dir(self.ws()).env_clear().env("HOME", self.path("home")).env("PATH", path()).stdin(Stdio::null());
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Output {
        self.command(args).output().unwrap()
    }

    /// One tool call: the envelope and the exit code.
    pub(crate) fn tool(&self, name: &str, args: Value) -> Called {
        self.tool_text(name, &args.to_string())
    }

    pub(crate) fn tool_text(&self, name: &str, args: &str) -> Called {
        let output = self.run(["tool", name, args]);
        let line = String::from_utf8(output.stdout).unwrap();
        let envelope = serde_json::from_str(&line).unwrap_or_else(|error| {
            panic!("{name} {args}: no envelope ({error}): {line:?}, stderr {:?}", String::from_utf8_lossy(&output.stderr))
        });
        Called { envelope, line, code: output.status.code() }
    }

    /// A script through `sandbox_bash`.
    pub(crate) fn bash(&self, script: &str) -> Called {
        self.tool("sandbox_bash", serde_json::json!({ "command": script }))
    }
}

/// What a call answered.
#[derive(Debug)]
pub(crate) struct Called {
    pub(crate) envelope: Value,
    pub(crate) line: String,
    pub(crate) code: Option<i32>,
}

impl Called {
    /// The facts of a success.
    #[track_caller]
    pub(crate) fn data(&self) -> &Value {
        assert_eq!(self.envelope["success"], true, "{}", self.line);
        &self.envelope["data"]
    }

    /// The code of a failure.
    #[track_caller]
    pub(crate) fn fault(&self) -> &str {
        assert_eq!(self.envelope["success"], false, "{}", self.line);
        self.envelope["data"]["code"].as_str().unwrap()
    }
}

/// A PATH for the program under test.
pub(crate) fn path() -> String {
    std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Says that a test cannot run here, and why. The runner's summary counts these lines.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        println!("SKIP {}", format!($($why)*));
        return;
    }};
}

/// Whether a program is on PATH.
pub(crate) fn has(program: &str) -> bool {
    path().split(':').any(|folder| Path::new(folder).join(program).is_file())
}
