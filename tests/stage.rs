//! What an escape would reach: a secret and a bait outside, listeners, a victim process. Judged from here, not by what a program says.

use crate::space::Space;
use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A key that must not turn up anywhere.
pub(crate) const KEY: &str = "sk-canary-3f9a1c77";

/// What stands in the outside secret.
pub(crate) const SECRET: &str = "the outside secret";

/// The compiled attack program; `None` where there is no C compiler.
pub(crate) fn attack_program() -> Option<&'static PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            if let Some(given) = std::env::var_os("BAILIWICK_TEST_ATTACK") {
                return Some(given.into());
            }
            let into = std::env::temp_dir().join(format!("bw-attack-{}", std::process::id()));
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/attack.c");
            let built = Command::new("cc").args(["-O1", "-w", "-o"]).arg(&into).arg(source).status();
            built.is_ok_and(|status| status.success()).then_some(into)
        })
        .as_ref()
}

pub(crate) struct Stage {
    pub(crate) space: Space,
    tcp4: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    abstract_stream: UnixListener,
    abstract_datagram: UnixDatagram,
    path_stream: UnixListener,
    names: String,
    pub(crate) victim: Child,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let space = Space::new().env("OPENAI_API_KEY", KEY).env("github_token", KEY);
        std::fs::copy(attack_program().expect("built before"), space.ws().join("attack")).unwrap();
        let names = format!("bw-{}", space.path("").to_string_lossy().replace('/', "-"));
        let tcp4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp6 = TcpListener::bind("[::1]:0").ok();
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stream = SocketAddr::from_abstract_name(&names).unwrap();
        let datagram = SocketAddr::from_abstract_name(format!("{names}-d")).unwrap();
        let abstract_stream = UnixListener::bind_addr(&stream).unwrap();
        let abstract_datagram = UnixDatagram::bind_addr(&datagram).unwrap();
        let path_stream = UnixListener::bind(space.outside().join("docker.sock")).unwrap();
        tcp4.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        abstract_stream.set_nonblocking(true).unwrap();
        abstract_datagram.set_nonblocking(true).unwrap();
        path_stream.set_nonblocking(true).unwrap();
        if let Some(tcp6) = &tcp6 {
            tcp6.set_nonblocking(true).unwrap();
        }
        let victim = Command::new("sleep").arg("600").env("VICTIM_KEY", KEY).stdin(Stdio::null()).spawn().unwrap();
        // Until its exec it is still a copy of this process.
        let until = Instant::now() + Duration::from_secs(5);
        while std::fs::read_to_string(format!("/proc/{}/comm", victim.id())).is_ok_and(|name| name.trim() != "sleep")
            && Instant::now() < until
        {
            std::thread::yield_now();
        }
        Self { space, tcp4, tcp6, udp, abstract_stream, abstract_datagram, path_stream, names, victim }
    }

    /// Fills in what a script needs to know of the outside.
    pub(crate) fn fill(&self, script: &str) -> String {
        let stack = std::fs::read_to_string(format!("/proc/{}/maps", self.victim.id())).unwrap_or_default();
        let stack =
            stack.lines().find(|line| line.ends_with("[stack]")).and_then(|line| line.split('-').next()).unwrap_or("1000").to_owned();
        let port = |listener: &TcpListener| listener.local_addr().unwrap().port().to_string();
        script
            .replace("{OUT}", self.space.outside().to_str().unwrap())
            .replace("{WS}", self.space.ws().to_str().unwrap())
            .replace("{HOME}", self.space.path("home").to_str().unwrap())
            .replace("{VICTIM}", &self.victim.id().to_string())
            .replace("{STACK}", &stack)
            .replace("{TCP}", &port(&self.tcp4))
            .replace("{TCP6}", &self.tcp6.as_ref().map_or_else(|| "0".into(), port))
            .replace("{UDP}", &self.udp.local_addr().unwrap().port().to_string())
            .replace("{ABSTRACT}", &self.names)
            .replace("{KEY_FILE}", self.space.path("home/.ssh/id_test").to_str().unwrap())
    }

    /// Whether anybody knocked at a listener.
    pub(crate) fn knocked(&self) -> bool {
        let mut byte = [0; 1];
        // A connection is in the queue as soon as connect returns; a datagram as soon as it is sent.
        self.tcp4.accept().is_ok()
            || self.tcp6.as_ref().is_some_and(|tcp6| tcp6.accept().is_ok())
            || self.udp.recv(&mut byte).is_ok()
            || self.abstract_stream.accept().is_ok()
            || self.abstract_datagram.recv(&mut byte).is_ok()
            || self.path_stream.accept().is_ok_and(|(mut peer, _)| {
                let _ = peer.read(&mut byte);
                true
            })
    }

    /// Whether the outside is as it was made.
    pub(crate) fn outside_touched(&self) -> bool {
        let names = |path: PathBuf| {
            let mut names: Vec<String> =
                std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        names(self.space.outside()) != ["docker.sock", "secret"]
            || std::fs::read(self.space.outside().join("secret")).unwrap() != format!("{SECRET}\n").as_bytes()
    }

    /// Whether the victim is ended or stopped.
    pub(crate) fn victim_hurt(&mut self) -> bool {
        if self.victim.try_wait().unwrap().is_some() {
            return true;
        }
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.victim.id())).unwrap_or_default();
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        matches!(state, None | Some('T' | 't' | 'Z'))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}
