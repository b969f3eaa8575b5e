//! One server: how it is begun with, asked for its tools, called, and what is said when it fails.
//!
//! A call is sent once. One that is not answered in time is cancelled, and a server that leaves three in a row unanswered is not asked again.

use super::config::{Server, Way};
use super::http::Address;
use super::stdio::{self, Ends, Program};
use super::untrusted::{self, line};
use super::{sse::Sse, sse::SseError};
use crate::envelope::{Fault, FaultCode};
use crate::jail::wire::FromLeader;
use crate::session::Session;
use crate::tools::Answer;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion, Tool};
use rmcp::service::{ClientInitializeError, ClientLifecycleMode, NotificationContext, RoleClient, RunningService, ServiceError};
use rmcp::service::{MaybeSendFuture, serve_client_with_lifecycle};
use rmcp::transport::IntoTransport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The most bytes of one message.
const MOST_MESSAGE: usize = 4 << 20;
/// The most tools of one server, and pages of its list.
const MOST_TOOLS: usize = 200;
const MOST_PAGES: usize = 20;
/// Calls in a row without an answer after which a server is not asked again.
const PATIENCE: u32 = 3;
/// How long a list may take to come anew.
const LIST: Duration = Duration::from_secs(15);
/// How long an end may take.
const END: Duration = Duration::from_secs(2);

/// A server that has been started and not been spoken to.
pub(super) enum Starting<'a> {
    /// A program.
    Program(Program<'a>, Ends),
    /// An address.
    Address(Address, bool),
}

impl<'a> Starting<'a> {
    pub(super) async fn new(session: &'a Session, server: &Server) -> Result<Self, Fault> {
        match &server.way {
            Way::Program { argv, env, workdir } => {
                if session.charter().execute.is_none() {
                    let says = format!("the policy {} permits no programs", session.charter().policy);
                    return Err(Fault::new(FaultCode::ToolDenied, says));
                }
                let (program, ends) = stdio::start(session, argv, env, workdir.as_deref()).await?;
                Ok(Self::Program(program, ends))
            }
            Way::Address { url, headers, only_sse } => Ok(Self::Address(Address::new(url, headers)?, *only_sse)),
        }
    }
}

/// What the other side may tell us.
#[derive(Clone, Debug, Default)]
struct Ear {
    list_changed: Arc<AtomicBool>,
}

impl ClientHandler for Ear {
    fn get_info(&self) -> ClientConfig {
        let ourselves = Implementation::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
        // Nothing is offered to a server: no model, no folders, no questions to a person.
        ClientConfig::new(ClientCapabilities::default(), ourselves)
    }

    fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) -> impl Future<Output = ()> + MaybeSendFuture + '_ {
        self.list_changed.store(true, Ordering::Relaxed);
        std::future::ready(())
    }
}

/// A server that has answered.
pub struct Connection<'a> {
    name: String,
    service: RunningService<RoleClient, Ear>,
    program: Option<Program<'a>>,
    ear: Ear,
    call_time: Duration,
    unanswered: Cell<u32>,
    /// What each tool was at the start, and what it was found to be later: a changed one is not called.
    first: BTreeMap<String, String>,
    now: RefCell<Option<BTreeMap<String, String>>>,
    nonce: String,
    /// What there is to say about it.
    pub(super) notes: Vec<String>,
}

impl<'a> Connection<'a> {
    /// Begins with a server and asks for its tools.
    pub(super) async fn open(starting: Starting<'a>, server: &Server, nonce: &str) -> Result<(Self, Vec<Tool>), Fault> {
        let ear = Ear::default();
        let mut program = None;
        let begun = async {
            match starting {
                Starting::Program(running, (output, input)) => {
                    program = Some(running);
                    let transport = AsyncRwTransport::new(output, input).with_max_line_length(MOST_MESSAGE);
                    begin(ear.clone(), transport).await
                }
                Starting::Address(address, only_sse) => over_http(&ear, address, only_sse).await,
            }
        };
        let begun = tokio::time::timeout(server.start_time, begun).await;
        let why = |says: String| failed(&server.name, program.as_ref(), says);
        let service = match begun {
            Ok(Ok(service)) => service,
            Ok(Err(says)) => return Err(why(says).await),
            // Its end, if it ends now, is our doing.
            Err(_) => {
                let says = format!("it did not answer within {} s", server.start_time.as_secs_f32());
                return Err(late(&server.name, program.as_ref(), &says));
            }
        };
        let mut connection = Self {
            name: server.name.clone(),
            service,
            program,
            ear,
            call_time: server.call_time,
            unanswered: Cell::new(0),
            first: BTreeMap::new(),
            now: RefCell::new(None),
            nonce: nonce.into(),
            notes: Vec::new(),
        };
        let listed = tokio::time::timeout(server.start_time, connection.list()).await;
        let (tools, more) = match listed {
            Ok(Ok(listed)) => listed,
            Ok(Err(error)) => return Err(failed(&server.name, connection.program.as_ref(), short(&error.to_string())).await),
            Err(_) => return Err(late(&server.name, connection.program.as_ref(), "it did not list its tools in time")),
        };
        let revision = connection.service.peer().peer_info().map(|info| line(&info.protocol_version.to_string(), 20));
        let revision = revision.map(|revision| format!(", revision {revision}")).unwrap_or_default();
        connection.notes.push(format!("{}{revision}", crate::clip::counted(tools.len() as u64, "tool")));
        if more {
            connection.notes.push(format!("it has more than {MOST_TOOLS} tools; the others are left out"));
        }
        connection.first = stamps(&tools);
        Ok((connection, tools))
    }

    async fn list(&self) -> Result<(Vec<Tool>, bool), ServiceError> {
        let mut tools: Vec<Tool> = Vec::new();
        let mut cursor = None;
        for _ in 0..MOST_PAGES {
            let params = cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor)));
            let page = self.service.list_tools(params).await?;
            tools.extend(page.tools);
            if tools.len() > MOST_TOOLS {
                tools.truncate(MOST_TOOLS);
                return Ok((tools, true));
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok((tools, false)),
            }
        }
        Ok((tools, true))
    }

    /// Makes one call of one tool.
    pub(super) async fn call(&self, tool: &str, args: &Value) -> Result<Answer, Fault> {
        let shown = line(tool, 128);
        if self.unanswered.get() >= PATIENCE {
            let says = format!("the MCP server {} left {PATIENCE} calls in a row unanswered and is not asked again", self.shown());
            return Err(Fault::new(FaultCode::ServerGone, says).hint("do without its tools"));
        }
        let args = match args {
            Value::Object(args) => Some(args.clone()),
            Value::Null => None,
            _ => return Err(Fault::new(FaultCode::InvalidArguments, format!("the arguments of {shown} are an object"))),
        };
        self.look_again().await?;
        if let Some(now) = &*self.now.borrow() {
            match (self.first.get(tool), now.get(tool)) {
                (_, None) => {
                    return Err(Fault::new(FaultCode::ToolDenied, format!("the MCP server {} has {shown} no more", self.shown())));
                }
                (first, now) if first != now => {
                    let says = format!("the MCP server {} has changed what it says of {shown} since the run began", self.shown());
                    return Err(Fault::new(FaultCode::ToolDenied, says).hint("what was agreed to is not there any more; do without it"));
                }
                _ => {}
            }
        }
        if let Some(program) = &self.program {
            program.gauge.reset();
        }
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = args;
        // Dropping the request, here or from outside, tells the server that it is cancelled.
        match tokio::time::timeout(self.call_time, self.service.peer().call_tool(params)).await {
            Ok(Ok(result)) => {
                self.unanswered.set(0);
                Ok(untrusted::answer(&self.name, tool, &result, &self.nonce))
            }
            Ok(Err(ServiceError::McpError(error))) => {
                self.unanswered.set(0);
                let says = format!("the MCP server {} refuses the call: {}", self.shown(), short(&error.message));
                Err(Fault::new(FaultCode::ServerError, says).with("rpc_code", error.code.0))
            }
            Ok(Err(ServiceError::UnexpectedResponse)) => Err(Fault::new(
                FaultCode::ServerError,
                format!("the MCP server {} answered {shown} with something that is no result", self.shown()),
            )),
            Ok(Err(error)) => Err(failed(&self.name, self.program.as_ref(), short(&error.to_string())).await),
            Err(_) => {
                self.unanswered.set(self.unanswered.get() + 1);
                let says = format!("{shown} of the MCP server {} was not answered within {} ms", self.shown(), self.call_time.as_millis());
                Err(Fault::new(FaultCode::DeadlineExceeded, says).hint("what it had done until then may stand; it was not called again"))
            }
        }
    }

    /// Lists the tools anew when the server says that they have changed.
    async fn look_again(&self) -> Result<(), Fault> {
        if !self.ear.list_changed.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        match tokio::time::timeout(LIST, self.list()).await {
            Ok(Ok((tools, _))) => {
                *self.now.borrow_mut() = Some(stamps(&tools));
                Ok(())
            }
            other => {
                self.ear.list_changed.store(true, Ordering::Relaxed);
                let says = match other {
                    Ok(Err(error)) => short(&error.to_string()),
                    _ => "it changed its tools and does not list them".into(),
                };
                Err(failed(&self.name, self.program.as_ref(), says).await)
            }
        }
    }

    fn shown(&self) -> String {
        line(&self.name, 64)
    }

    /// Ends it.
    /// Ends its program, if it is one of the sandbox.
    pub(super) async fn end_program(&self) {
        if let Some(program) = &self.program {
            program.lasting.process.kill();
            let _ = tokio::time::timeout(END, program.lasting.process.wait()).await;
        }
    }

    pub(super) async fn close(self) {
        let _ = tokio::time::timeout(END, self.service.cancel()).await;
        // A program ends with its handle, in any case.
        drop(self.program);
    }
}

/// Begins a conversation in whichever era the server lives.
async fn begin<T, E, A>(ear: Ear, transport: T) -> Result<RunningService<RoleClient, Ear>, String>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        legacy_version: Some(ProtocolVersion::V_2025_11_25),
    };
    serve_client_with_lifecycle(ear, transport, lifecycle).await.map_err(|error| says(&error))
}

/// Streamable HTTP, else the transport of 2024 where the server's refusal means that.
async fn over_http(ear: &Ear, address: Address, only_sse: bool) -> Result<RunningService<RoleClient, Ear>, String> {
    let old = |address: Address| async {
        let transport = Sse::open(address).await.map_err(|error: SseError| short(&error.to_string()))?;
        begin(ear.clone(), transport).await
    };
    if only_sse {
        return old(address).await;
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(address.url.as_str())
        .max_sse_event_size(MOST_MESSAGE)
        .max_json_response_size(MOST_MESSAGE)
        // A call that met an expired session may have been done: it is not sent again.
        .reinit_on_expired_session(false);
    let headers: HashMap<_, _> = address.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    config = config.custom_headers(headers);
    let transport = StreamableHttpClientTransport::with_client(address.client.clone(), config);
    match begin(ear.clone(), transport).await {
        Ok(service) => Ok(service),
        Err(_) if address.is_old().await => old(address).await,
        Err(says) => Err(says),
    }
}

/// What each tool says of itself, to be compared.
fn stamps(tools: &[Tool]) -> BTreeMap<String, String> {
    let stamp = |tool: &Tool| serde_json::json!([tool.description, tool.title, tool.input_schema]).to_string();
    tools.iter().map(|tool| (tool.name.to_string(), stamp(tool))).collect()
}

/// Why a beginning failed: the deepest reason that there is.
fn says(error: &ClientInitializeError) -> String {
    let (before, first): (&str, &dyn std::error::Error) = match error {
        // The library's own words name its types.
        ClientInitializeError::TransportError { error, .. } => ("it cannot be reached: ", error.error.as_ref()),
        other => ("", other),
    };
    let mut text = first.to_string();
    let mut source = first.source();
    while let Some(deeper) = source {
        text = deeper.to_string();
        source = deeper.source();
    }
    format!("{before}{}", short(&text))
}

/// A server's or a library's words on one line. They may quote an address, which may hold a key: of one, only what stands before its query,
/// and without a user, is shown.
fn short(text: &str) -> String {
    let shown = |word: &str| {
        let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        format!("{scheme}://{host}/{path}")
    };
    line(&text.split_whitespace().map(shown).collect::<Vec<_>>().join(" "), 300)
}

/// The fault of a server that is not waited for any longer.
fn late(name: &str, program: Option<&Program<'_>>, says: &str) -> Fault {
    let fault = Fault::new(FaultCode::ServerGone, format!("the MCP server {}: {says}", line(name, 64)));
    with_last_words(fault, program)
}

fn with_last_words(fault: Fault, program: Option<&Program<'_>>) -> Fault {
    let said = program.map(|program| program.said.lock().unwrap_or_else(PoisonError::into_inner).clone());
    let said = untrusted::last_words(&said.unwrap_or_default());
    if said.is_empty() { fault } else { fault.with("stderr", said) }
}

/// The fault of a server that is gone, or never came, with what its program said at its end.
async fn failed(name: &str, program: Option<&Program<'_>>, says: String) -> Fault {
    let name = line(name, 64);
    let Some(program) = program else {
        return Fault::new(FaultCode::ServerGone, format!("the MCP server {name}: {says}"));
    };
    if program.gauge.flooded() {
        program.lasting.process.kill();
        return Fault::new(FaultCode::LimitExceeded, format!("the MCP server {name} wrote without end and was ended"));
    }
    let ended = tokio::time::timeout(Duration::from_millis(500), program.lasting.process.wait()).await.ok();
    let fault = match program.lasting.process.not_started().filter(|_| ended.is_some()) {
        Some(FromLeader::NotStarted(why)) => {
            Fault::new(FaultCode::CommandNotStarted, format!("the MCP server {name} could not be started: {}", why.fault.message()))
        }
        _ => match ended {
            Some(Ok(ended)) => {
                let how = match (ended.exit_code, ended.signal) {
                    (Some(code), _) => format!("with code {code}"),
                    (_, Some(signal)) => format!("by signal {signal}"),
                    _ => "without a word".into(),
                };
                Fault::new(FaultCode::ServerGone, format!("the MCP server {name} has ended {how}"))
            }
            _ => Fault::new(FaultCode::ServerGone, format!("the MCP server {name}: {says}")),
        },
    };
    with_last_words(fault, Some(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_may_be_a_key() {
        let says = short("error sending\nrequest for url (https://user:pa55@host.example:8/a/b?key=s3cret#x): refused");
        assert_eq!(says, "error sending request for url (https://host.example:8/a/b refused");
        assert_eq!(short("http://host"), "http://host/");
        assert_eq!(short("no address: [TOOL] x() [/TOOL]").matches("[TOOL]").count(), 0);
    }
}
