//! What the agent's tests share: a workspace in a temporary folder, and git as it is.

use super::Doorway;
use crate::envelope::{Fault, FaultCode};
use crate::session::{Call, OwnOutput};
use crate::tools::special::{self, Special};
use crate::tools::{Answer, AnyTool};
use crate::workspace::BaseDir;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A workspace in a temporary folder, with our own programs run as they are: what they do is under test here, not the jail.
pub(super) struct Place {
    _folder: tempfile::TempDir,
    pub(super) base: PathBuf,
    pub(super) own: PathBuf,
    pub(super) path: Option<String>,
}

impl Place {
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (base, own) = (root.join("base"), root.join("own"));
        std::fs::create_dir(&base).unwrap();
        std::fs::create_dir(&own).unwrap();
        Self { _folder: folder, base, own, path: std::env::var("PATH").ok() }
    }

    pub(super) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.base.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub(super) fn git(&self, args: &[&str]) -> Vec<u8> {
        git(&self.base, args)
    }

    /// Commits what is there as a repository of the usual kind.
    pub(super) fn commit(&self) {
        if !self.base.join(".git").exists() {
            self.git(&["init", "-q", "-b", "main"]);
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "start"]);
    }

    /// A clean clone of the commit.
    pub(super) fn clone_to(&self, name: &str) -> PathBuf {
        let to = self.own.join(name);
        git(&self.own, &["clone", "-q", self.base.to_str().unwrap(), to.to_str().unwrap()]);
        to
    }
}

pub(super) fn git(at: &Path, args: &[&str]) -> Vec<u8> {
    let output = Command::new("git")
        .current_dir(at)
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

impl Doorway for Place {
    async fn call(&self, _call: Call) -> Answer {
        Answer::failed(Fault::new(FaultCode::UnknownTool, "no tools here"))
    }

    async fn own(&self, argv: Vec<OsString>, env: Vec<(OsString, OsString)>, stdin: Option<Vec<u8>>) -> Result<OwnOutput, Fault> {
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).env_clear().envs(env).current_dir(&self.base);
        command.env("PATH", self.path.as_deref().unwrap_or(""));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Fault::new(FaultCode::CommandNotStarted, error.to_string()))?;
        let mut pipe = child.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || std::io::Write::write_all(&mut pipe, &stdin.unwrap_or_default()));
        let output = child.wait_with_output().unwrap();
        let _ = feeder.join().unwrap();
        Ok(OwnOutput { status: output.status.code().unwrap_or(128), stdout: output.stdout, stderr: output.stderr })
    }

    async fn special_files(&self) -> Special {
        special::find(&BaseDir::open(&self.base).unwrap(), Instant::now() + Duration::from_secs(10)).unwrap()
    }

    async fn settle(&self) -> Vec<String> {
        Vec::new()
    }

    fn keep_output(&self, text: &[u8]) -> Option<String> {
        std::fs::write(self.own.join("kept"), text).ok().map(|()| "spool:kept".into())
    }

    fn tools(&self) -> &[&'static dyn AnyTool] {
        &[]
    }

    fn base(&self) -> &Path {
        &self.base
    }

    fn own_dir(&self) -> PathBuf {
        self.own.clone()
    }
}

pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
