//! `bailiwick mcp`: the tools as an MCP server, on standard input and output or over HTTP.

use super::engine::Signals;
use super::{Common, Registry, client_setup, say_fault, setup};
use crate::envelope::{Fault, FaultCode};
use crate::exit_code::ExitCode;
use crate::mcp::server::{self, http};
use crate::session::{self, Session};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::pipe2;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::runtime::LocalOptions;

/// How many bytes may lie in the pipe to a client.
const PIPE: i32 = 512 * 1024;

/// The most bytes of a token file.
const MOST_TOKEN: usize = 4096;

/// A shorter token could be guessed.
const LEAST_TOKEN: usize = 16;

#[derive(Debug, clap::Args)]
pub(super) struct Mcp {
    /// Serve Streamable HTTP on this address (HOST:PORT, or PORT on loopback) instead of standard input and output
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// A file with the bearer token that HTTP clients have to show; required where ADDR is not loopback
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// A further name under which clients reach the server, NAME or NAME:PORT (repeat for several)
    #[arg(long, value_name = "NAME", requires = "http")]
    allow_host: Vec<String>,
    /// A web origin whose pages may connect, http(s)://NAME:PORT (repeat for several)
    #[arg(long, value_name = "ORIGIN", requires = "http")]
    allow_origin: Vec<String>,
    /// Print the line that makes this server known to a client, and do nothing else
    #[arg(long, value_name = "CLIENT", value_enum, conflicts_with = "http")]
    print_config: Option<client_setup::Client>,
}

impl Mcp {
    /// 0 the peer has gone or we were told to stop, 1 it failed, 2 usage, 3 cannot confine.
    pub(super) fn run(self, common: &Common, registry: Registry) -> ExitCode {
        if let Some(client) = self.print_config {
            // A line that cannot work is no line.
            let checked =
                setup::Setup::resolved(&common.asked()).and_then(|setup| super::policy::tools_are_known(setup.charter(), registry));
            return match checked {
                Ok(()) => client_setup::print(client, common),
                Err(fault) => {
                    say_fault(&fault);
                    ExitCode::of(&fault)
                }
            };
        }
        match self.serve(common, registry) {
            Ok(()) => ExitCode::Done,
            Err(fault) => {
                say_fault(&fault);
                ExitCode::of(&fault)
            }
        }
    }

    fn serve(self, common: &Common, registry: Registry) -> Result<(), Fault> {
        let gate = self.gate()?;
        let listener = self.http.as_deref().map(bind).transpose()?;
        if let Some(listener) = &listener {
            gate.check(listener.local_addr().map_err(broken)?)?;
        }
        let setup = setup::Setup::new(common)?;
        super::policy::tools_are_known(setup.charter(), registry)?;
        // A task of a local runtime is woken by its own thread without a system call; the future that the runtime stands on is not.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).map_err(broken)?;
        let serve = serve(setup, registry, listener, gate);
        runtime
            .block_on(async { tokio::task::spawn_local(serve).await })
            .unwrap_or_else(|error| Err(Fault::new(FaultCode::Internal, error.to_string())))
    }

    fn gate(&self) -> Result<http::Gate, Fault> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        for host in &self.allow_host {
            if !is_host(host) {
                return Err(Fault::new(FaultCode::InvalidArguments, format!("--allow-host {host}: this is no name of a host"))
                    .hint("NAME or NAME:PORT, without http:// and without a path: --allow-host build.example.org:8000"));
            }
        }
        for origin in &self.allow_origin {
            let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
            if !host.is_some_and(is_host) {
                return Err(Fault::new(FaultCode::InvalidArguments, format!("--allow-origin {origin}: this is no origin of a page")).hint(
                    "http(s)://NAME or http(s)://NAME:PORT, without a path or a slash at the end: --allow-origin https://tools.example.org",
                ));
            }
        }
        Ok(http::Gate { token, hosts: self.allow_host.clone(), origins: self.allow_origin.clone() })
    }
}

async fn serve(setup: setup::Setup, registry: Registry, listener: Option<TcpListener>, gate: http::Gate) -> Result<(), Fault> {
    let mut signals = Signals::take()?;
    let stop = async move {
        signals.next().await;
    };
    // Before the session, which makes this process one that may not look into its own /proc.
    if listener.is_none() && io::stdin().is_terminal() {
        say!("bailiwick: an MCP client speaks here, one line of JSON a message; --print-config sets one up");
    }
    let stdio = if listener.is_none() { Some((input()?, output()?)) } else { None };
    let mut session = Session::start(session::Options { exe: session::this_exe(), registry, charter: setup.charter().clone() })?;
    session.leave_out_texts();
    let served = match (listener, stdio) {
        (Some(listener), _) => {
            let address = listener.local_addr().map_err(broken)?;
            say!("bailiwick: MCP on http://{address}{}", http::PATH);
            http::serve(&session, listener, gate, stop).await
        }
        (None, Some((input, output))) => server::serve_stdio(&session, input, output, stop).await,
        (None, None) => Ok(()),
    };
    for undone in session.finish().await {
        say!("bailiwick: {undone}");
    }
    served
}

/// Whether this is a host as a browser or a client names one: a name or an address, and perhaps a port.
fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let named = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
    };
    named && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// The listener of an address as it is typed.
fn bind(address: &str) -> Result<TcpListener, Fault> {
    let wrong = |error: io::Error| {
        let (says, hint) = match error.kind() {
            io::ErrorKind::AddrInUse => ("another program listens there".into(), "another port, or 0 for one that is free"),
            io::ErrorKind::PermissionDenied => ("this user may not listen there".into(), "a port from 1024 on"),
            io::ErrorKind::AddrNotAvailable => ("this machine has no such address".into(), "for example --http 127.0.0.1:8000"),
            io::ErrorKind::InvalidInput => ("this is no HOST:PORT".into(), "for example --http 127.0.0.1:8000 or --http 8000"),
            _ => (error.to_string(), "for example --http 127.0.0.1:8000 or --http 8000"),
        };
        Fault::new(FaultCode::InvalidArguments, format!("--http {address}: {says}")).hint(hint)
    };
    let mut addresses: Vec<SocketAddr> = match address.trim_start_matches(':').parse::<u16>() {
        Ok(port) => vec![SocketAddr::from(([127, 0, 0, 1], port))],
        Err(_) => address.to_socket_addrs().map_err(wrong)?.collect(),
    };
    // Of the two addresses of localhost, the one that every client tries.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    TcpListener::bind(&*addresses).map_err(wrong)
}

/// The token, from a file that only its owner can read.
fn token(path: &Path) -> Result<String, Fault> {
    let wrong = |why: String| {
        Fault::new(FaultCode::InvalidArguments, format!("--token-file {}: {why}", path.display()))
            .hint("a file of its owner's alone with a token on one line: (umask 077; openssl rand -hex 32 > FILE)")
    };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let mode = file.metadata().map_err(|error| wrong(error.to_string()))?.mode();
    if mode & 0o077 != 0 {
        return Err(wrong(format!("others may read it (mode {:o})", mode & 0o777)).hint("chmod 600 it"));
    }
    let mut text = String::new();
    file.take(MOST_TOKEN as u64 + 1).read_to_string(&mut text).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    match token.len() {
        length if length < LEAST_TOKEN => Err(wrong(format!("the token has fewer than {LEAST_TOKEN} bytes"))),
        length if length > MOST_TOKEN => Err(wrong(format!("the token has more than {MOST_TOKEN} bytes"))),
        _ if token.bytes().any(|byte| !byte.is_ascii_graphic()) => Err(wrong("the token has bytes that no header can carry".into())),
        _ => Ok(token.to_owned()),
    }
}

/// What kind of thing a descriptor is.
fn kind(fd: impl AsFd) -> Option<SFlag> {
    let mode = fstat(fd).ok()?.st_mode;
    Some(SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits()))
}

/// Standard input as something that can be waited for, and itself where it does not block.
fn input() -> Result<(Box<dyn AsyncRead + Send + Unpin>, Option<OwnedFd>), Fault> {
    let stdin = io::stdin();
    match kind(&stdin) {
        Some(SFlag::S_IFIFO) => {
            let file = reopened(&stdin, OpenOptions::new().read(true))?;
            let fd = owned(&file)?;
            Ok((Box::new(pipe::Receiver::from_file(file).map_err(broken)?), Some(fd)))
        }
        Some(SFlag::S_IFSOCK) => {
            let stream = socket(&stdin)?;
            let fd = owned(&stream)?;
            Ok((Box::new(stream), Some(fd)))
        }
        // A file or a terminal: a thread waits for it.
        _ => {
            let (read, write) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from).map_err(broken)?;
            std::thread::spawn(move || io::copy(&mut stdin.lock(), &mut File::from(write)));
            Ok((Box::new(pipe::Receiver::from_owned_fd(read).map_err(broken)?), None))
        }
    }
}

/// Standard output, likewise.
fn output() -> Result<Box<dyn AsyncWrite + Send + Unpin>, Fault> {
    let stdout = io::stdout();
    match kind(&stdout) {
        Some(SFlag::S_IFIFO) => {
            let file = reopened(&stdout, OpenOptions::new().write(true))?;
            // A large answer goes out at once. Where the system does not allow it, it goes out in turns.
            let _ = fcntl(&file, FcntlArg::F_SETPIPE_SZ(PIPE));
            Ok(Box::new(pipe::Sender::from_file(file).map_err(broken)?))
        }
        Some(SFlag::S_IFSOCK) => Ok(Box::new(socket(&stdout)?)),
        _ => Ok(Box::new(AtOnce(File::from(owned(&stdout)?)))),
    }
}

/// A file or a terminal, which takes what is written without being waited for.
struct AtOnce(File);

impl AsyncWrite for AtOnce {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// The same pipe with a state of its own: others who have this end do not get to wait less because of us.
fn reopened(fd: impl AsFd, options: &mut OpenOptions) -> Result<File, Fault> {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    match options.custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => Ok(file),
        // Another user's pipe that we were given.
        Err(_) => {
            let file = File::from(owned(fd)?);
            fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from).map_err(broken)?;
            Ok(file)
        }
    }
}

fn socket(fd: impl AsFd) -> Result<UnixStream, Fault> {
    let stream = std::os::unix::net::UnixStream::from(owned(fd)?);
    stream.set_nonblocking(true).map_err(broken)?;
    UnixStream::from_std(stream).map_err(broken)
}

fn owned(fd: impl AsFd) -> Result<OwnedFd, Fault> {
    fd.as_fd().try_clone_to_owned().map_err(broken)
}

fn broken(error: io::Error) -> Fault {
    Fault::new(FaultCode::Internal, error.to_string())
}
