//! The transport of 2024: a GET that stays open brings what the server says, and names the address to which messages are posted.
//!
//! That address has to be of the same origin; a redirect is not followed; a message is posted once, whatever becomes of it.

use super::http::Address;
use crate::provider::sse::Decoder;
use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use rmcp::service::{RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use std::time::Duration;
use tokio::sync::mpsc;

/// The most bytes of one event.
const MOST_EVENT: usize = 4 << 20;
/// Messages that wait to be taken.
const WAITING: usize = 64;
/// How long a post may take to be acknowledged.
const POST: Duration = Duration::from_secs(30);

/// Why the transport cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum SseError {
    /// The request came to nothing.
    #[error("{0}")]
    Http(String),
    /// The server did not keep to the protocol.
    #[error("{0}")]
    Broken(&'static str),
}

impl From<reqwest::Error> for SseError {
    fn from(error: reqwest::Error) -> Self {
        // Without its address, which may hold a key.
        Self::Http(error.without_url().to_string())
    }
}

/// The open transport.
#[derive(Debug)]
pub(super) struct Sse {
    address: Address,
    endpoint: Url,
    messages: mpsc::Receiver<RxJsonRpcMessage<RoleClient>>,
    reader: tokio::task::JoinHandle<()>,
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Sse {
    /// Opens the stream and waits for the address to post to.
    pub(super) async fn open(address: Address) -> Result<Self, SseError> {
        let request = address.client.get(address.url.clone()).headers(address.headers.clone()).header(ACCEPT, "text/event-stream");
        let mut response = request.send().await?;
        if !response.status().is_success() {
            return Err(SseError::Http(format!("the server answers {} to a GET", response.status().as_u16())));
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream") {
            return Err(SseError::Broken("the server answers a GET with something else than a stream of events"));
        }
        let mut decoder = Decoder::new(MOST_EVENT);
        let mut events = std::collections::VecDeque::new();
        let endpoint = loop {
            let piece = response.chunk().await?.ok_or(SseError::Broken("the stream ended before it named an address"))?;
            events.extend(decoder.feed(&piece).map_err(|_| SseError::Broken("an event is too large"))?);
            if let Some(at) = events.iter().position(|event| event.name == "endpoint") {
                let named = events.drain(..=at).next_back().map(|event| event.data).unwrap_or_default();
                break address.url.join(named.trim()).map_err(|_| SseError::Broken("the address to post to is none"))?;
            }
        };
        if endpoint.origin() != address.url.origin() {
            return Err(SseError::Broken("the address to post to is of another origin"));
        }
        let (sender, messages) = mpsc::channel(WAITING);
        let reader = tokio::spawn(async move {
            loop {
                for event in events.drain(..) {
                    // What is no message is skipped, as on every other transport.
                    if let Ok(message) = serde_json::from_str(&event.data)
                        && matches!(event.name.as_str(), "message" | "")
                        && sender.send(message).await.is_err()
                    {
                        return;
                    }
                }
                let Ok(Some(piece)) = response.chunk().await else { return };
                let Ok(more) = decoder.feed(&piece) else { return };
                events.extend(more);
            }
        });
        Ok(Self { address, endpoint, messages, reader })
    }
}

impl Transport<RoleClient> for Sse {
    type Error = SseError;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), SseError>> + Send + 'static {
        let request = self.address.client.post(self.endpoint.clone()).headers(self.address.headers.clone());
        let body = serde_json::to_string(&item);
        async move {
            let body = body.map_err(|error| SseError::Http(error.to_string()))?;
            let response = request.header(CONTENT_TYPE, "application/json").timeout(POST).body(body).send().await?;
            match response.status().is_success() {
                true => Ok(()),
                false => Err(SseError::Http(format!("the server answers {} to a message", response.status().as_u16()))),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), SseError> {
        self.reader.abort();
        Ok(())
    }
}
