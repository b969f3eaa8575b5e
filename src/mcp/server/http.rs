//! Streamable HTTP: who may connect, and from where.
//!
//! The protocol itself is rmcp's. Here is what stands before it: the Host and the Origin that are let through, and the bearer token.
//! A page of a foreign site that is opened in a browser of this machine reaches a loopback port too: it is told apart by those headers.

use super::Server;
use crate::envelope::{Fault, FaultCode};
use crate::session::Session;
use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use sha2::{Digest, Sha256};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The path of the endpoint.
pub const PATH: &str = "/mcp";

/// A session of an older peer of which nothing is heard for so long is closed. Longer than any call.
const IDLE: Duration = Duration::from_secs(2 * 3600);

/// The most sessions of older peers at the same time.
const MOST_SESSIONS: usize = 1024;

/// Who may connect. Not shown by anything: the token is a secret.
#[derive(Clone, Default)]
pub struct Gate {
    /// What a client has to show. Required where the address is not loopback.
    pub token: Option<String>,
    /// Further names under which the server is reached, `NAME` or `NAME:PORT`.
    pub hosts: Vec<String>,
    /// Web origins whose pages may connect, `SCHEME://NAME:PORT`.
    pub origins: Vec<String>,
}

impl Gate {
    /// Whether a server on this address may let in whom this lets in.
    ///
    /// # Errors
    /// `invalid_policy`: the address is not loopback and no token is required.
    pub fn check(&self, address: SocketAddr) -> Result<(), Fault> {
        if address.ip().is_loopback() || self.token.is_some() {
            return Ok(());
        }
        Err(Fault::new(FaultCode::InvalidPolicy, format!("{address} can be reached from elsewhere, and no token is required"))
            .hint("--token-file FILE names a file with a token that clients have to show"))
    }
}

/// Serves peers on a bound listener, until `stop`.
///
/// # Errors
/// As [`Gate::check`], and `io_error`.
pub async fn serve(session: &Session, listener: TcpListener, gate: Gate, stop: impl Future<Output = ()>) -> Result<(), Fault> {
    let address = listener.local_addr().map_err(broken)?;
    gate.check(address)?;
    listener.set_nonblocking(true).map_err(broken)?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(broken)?;
    let (server, desk) = Server::new(session);
    let closing = CancellationToken::new();
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts(address, &gate.hosts))
        .with_allowed_origins(origins(address, &gate.origins))
        .enforce_origin_validation()
        .with_max_request_body_bytes(crate::jail::wire::MOST)
        .with_cancellation_token(closing.clone());
    let sessions = Arc::new(sessions);
    let open = sessions.clone();
    let service = StreamableHttpService::new(
        move || match open.sessions.try_read() {
            Ok(open) if open.len() >= MOST_SESSIONS => Err(std::io::Error::other("too many sessions")),
            _ => Ok(server.clone()),
        },
        sessions,
        config,
    );
    let token = gate.token.as_deref().map(digest);
    let guard = from_fn(move |request: Request, next: Next| async move {
        if !is_plain(&request) {
            StatusCode::BAD_REQUEST.into_response()
        } else if token.is_none_or(|token| shows(request.headers(), &token)) {
            next.run(request).await
        } else {
            refused()
        }
    });
    let router = Router::new().route_service(PATH, service).layer(guard);
    let serve = async { axum::serve(listener, router).await.map_err(broken) };
    let result = tokio::select! {
        () = stop => Ok(()),
        () = desk.serve(session, std::future::pending()) => Ok(()),
        result = serve => result,
    };
    closing.cancel();
    result
}

/// The names under which a server on this address is reached.
fn hosts(address: SocketAddr, more: &[String]) -> Vec<String> {
    let port = address.port();
    // Never none: for rmcp an empty list means that any Host will do.
    let mut hosts: Vec<String> = if address.ip().is_loopback() || address.ip().is_unspecified() {
        ["localhost", "127.0.0.1", "[::1]"].iter().map(|host| format!("{host}:{port}")).collect()
    } else {
        vec![address.to_string()]
    };
    hosts.extend(more.iter().cloned());
    hosts
}

/// Pages that this server itself could have sent, and those that are named.
fn origins(address: SocketAddr, more: &[String]) -> Vec<String> {
    hosts(address, &[]).into_iter().map(|host| format!("http://{host}")).chain(more.iter().cloned()).collect()
}

/// One Host, at most one Origin, and no second place where a host could stand: what is checked is then what everybody goes by.
fn is_plain(request: &Request) -> bool {
    let count = |name| request.headers().get_all(name).iter().count();
    count(header::HOST) == 1 && count(header::ORIGIN) <= 1 && request.uri().authority().is_none()
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Digests are compared, so that the time it takes tells nothing about the token.
fn shows(headers: &HeaderMap, token: &[u8; 32]) -> bool {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (shown.next(), shown.next()) else { return false };
    let Some((scheme, value)) = value.to_str().ok().and_then(|value| value.split_once(' ')) else { return false };
    scheme.eq_ignore_ascii_case("bearer") && digest(value.trim()) == *token
}

fn refused() -> Response {
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "a bearer token is required").into_response()
}

fn broken(error: std::io::Error) -> Fault {
    Fault::new(FaultCode::IoError, error.to_string())
}
