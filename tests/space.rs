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
    /// Unmounted before the folder goes.
    mounted: Option<Mounted>,
    dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl Space {
    pub(crate) fn new() -> Self {
        Self::beneath(&std::env::temp_dir())
    }

    /// One in another place than that for temporary folders.
    pub(crate) fn beneath(folder: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("bw-test-").tempdir_in(folder).unwrap();
        let space = Self { mounted: None, dir, env: Vec::new() };
        space.furnish();
        space
    }

    /// One whose workspace and outside are in memory, where this user may mount that: flushing costs nothing there.
    pub(crate) fn in_memory() -> Self {
        let mut space = Self::new();
        // Both in one file system, so that a rename from the one to the other is not refused for being between two.
        let whole = space.dir.path().to_path_buf();
        if let Ok(mounted) = Mounted::over(&whole, 1 << 20) {
            space.mounted = Some(mounted);
            space.furnish();
        }
        space
    }

    /// Whether it is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.mounted.is_some()
    }

    fn furnish(&self) {
        for name in ["ws", "outside", "home"] {
            fs::create_dir(self.path(name)).unwrap();
        }
        fs::set_permissions(self.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(self.path("outside/secret"), "the outside secret\n").unwrap();
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

/// A Python that is no script of a version manager: those look for their settings in the home folder.
pub(crate) fn python() -> Option<&'static str> {
    ["/usr/bin/python3", "/usr/local/bin/python3"].into_iter().find(|path| Path::new(path).exists())
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

/// How often something is tried: `BAILIWICK_TEST_ROUNDS`, else what is enough for every run.
pub(crate) fn rounds(usual: u64) -> u64 {
    std::env::var("BAILIWICK_TEST_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(usual)
}

/// A small file system in memory, mounted over a folder; it goes when this is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts one of so many KiB.
    pub(crate) fn over(folder: &Path, kib: u64) -> Result<Self, nix::errno::Errno> {
        let options = format!("size={kib}k,mode=755");
        nix::mount::mount(Some("tmpfs"), folder, Some("tmpfs"), nix::mount::MsFlags::empty(), Some(options.as_str()))?;
        Ok(Self(folder.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(&self.0, nix::mount::MntFlags::MNT_DETACH);
    }
}

/// Whether a program is on PATH.
pub(crate) fn has(program: &str) -> bool {
    path().split(':').any(|folder| Path::new(folder).join(program).is_file())
}
