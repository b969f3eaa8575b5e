//! The tools of MCP servers, as tools of a run.
//!
//! [`config`] reads which servers there are, [`connection`] speaks with one of them ([`stdio`]: a program in the sandbox; [`http`] and
//! [`sse`]: an address that the host contacts), [`names`] gives their tools names, and [`untrusted`] bounds what they say of themselves and
//! what they answer.
//!
//! Whatever a server does (it does not start, dies, hangs, floods, talks nonsense, changes its tools) is an envelope of the call that met it
//! and never the end of a run. A program is never started outside of the sandbox; a call is never sent twice; what a server writes is never
//! taken for anything but data.

pub mod config;
pub mod connection;
mod http;
pub mod names;
mod sse;
mod stdio;
pub mod untrusted;

use crate::agent::extra::{Answering, Extra};
use crate::agent::prompt::Offered;
use crate::envelope::Fault;
use crate::session::{Call, Session};
use crate::tools::Answer;
use config::Server;
use connection::{Connection, Starting};
use names::Named;

/// The most tools of all servers together, and bytes of what they say of themselves: each request to the model carries it.
const MOST_TOOLS: usize = 300;
const MOST_SAID: usize = 200_000;

/// The servers of a run that answered at its start, and their tools.
pub struct Servers<'a> {
    connections: Vec<Connection<'a>>,
    tools: Vec<Tool>,
}

/// A tool under the name that a model is given.
struct Tool {
    offered: Offered,
    connection: usize,
    /// The name that its server gave it.
    original: String,
}

/// A server that is not there, and why.
#[derive(Debug)]
pub struct Missing {
    /// The server.
    pub name: String,
    /// Whether the person requires it.
    pub required: bool,
    /// Why.
    pub fault: Fault,
}

/// What came of starting servers.
pub struct Opened<'a> {
    /// Those that are there.
    pub servers: Servers<'a>,
    /// Those that are not.
    pub missing: Vec<Missing>,
    /// What was left out of them, one sentence each.
    pub notes: Vec<String>,
}

impl<'a> Servers<'a> {
    /// Starts programs, contacts addresses, and asks each for its tools. `nonce` is a word of the run's own that nobody can guess.
    pub async fn open(session: &'a Session, servers: Vec<Server>, nonce: &str) -> Opened<'a> {
        let mut opened = Opened { servers: Self { connections: Vec::new(), tools: Vec::new() }, missing: Vec::new(), notes: Vec::new() };
        // All programs first, so that they start at the same time.
        let mut starting = Vec::new();
        for server in servers {
            let started = Starting::new(session, &server).await;
            starting.push((server, started));
        }
        let mut all = Vec::new();
        for (server, started) in starting {
            let connected = match started {
                Ok(started) => Connection::open(started, &server, nonce).await,
                Err(fault) => Err(fault),
            };
            match connected {
                Ok((connection, tools)) => {
                    let at = opened.servers.connections.len();
                    opened.notes.extend(connection.notes.iter().map(|note| format!("MCP server {}: {note}", server.name)));
                    all.extend(tools.into_iter().map(|tool| (at, server.name.clone(), tool)));
                    opened.servers.connections.push(connection);
                }
                Err(fault) => opened.missing.push(Missing { name: server.name, required: server.required, fault }),
            }
        }
        if all.len() > MOST_TOOLS {
            opened.notes.push(format!("the MCP servers have {} tools, and {MOST_TOOLS} are used", all.len()));
            all.truncate(MOST_TOOLS);
        }
        let named: Vec<Named> = all.iter().map(|(_, server, tool)| Named { server, tool: &tool.name }).collect();
        let names = names::assign(&named);
        let (mut said, mut left_out) = (0, 0);
        for (name, (connection, server, tool)) in names.into_iter().zip(all) {
            let (offered, note) = untrusted::declare(&name, &server, &tool);
            let size = offered.declared.summary.len() + offered.declared.schema.to_string().len();
            if said + size > MOST_SAID {
                left_out += 1;
                continue;
            }
            said += size;
            opened.notes.extend(note.map(|note| format!("MCP server {server}: {}: {note}", untrusted::line(&tool.name, 64))));
            opened.servers.tools.push(Tool { offered, connection, original: tool.name.into_owned() });
        }
        if left_out > 0 {
            opened
                .notes
                .push(format!("MCP servers: {left_out} tools are left out, for they say more than {MOST_SAID} bytes of themselves"));
        }
        opened
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Ends them.
    pub async fn close(self) {
        for connection in self.connections {
            connection.close().await;
        }
    }
}

impl Extra for Servers<'_> {
    fn offers(&self) -> Vec<Offered> {
        self.tools.iter().map(|tool| tool.offered.clone()).collect()
    }

    fn end<'a>(&'a self) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(async {
            for connection in &self.connections {
                connection.end_program().await;
            }
        })
    }

    fn call<'a>(&'a self, call: &'a Call) -> Option<Answering<'a>> {
        let tool = self.tools.iter().find(|tool| tool.offered.declared.name == call.tool)?;
        let connection = self.connections.get(tool.connection)?;
        Some(Box::pin(async move {
            match connection.call(&tool.original, &call.args).await {
                Ok(answer) => answer,
                Err(fault) => Answer::failed(fault),
            }
        }))
    }
}
