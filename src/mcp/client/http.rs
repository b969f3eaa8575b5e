//! Addresses that the host contacts: one client without redirects and proxies, and the question which transport a server speaks.
//!
//! A key in a header goes to the address of the configuration and nowhere else: no redirect is followed, and no error shows one.

use super::untrusted::line;
use crate::envelope::{Fault, FaultCode};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde_json::{Value, json};
use std::time::Duration;

/// The most bytes of a refusal that are read.
const MOST: usize = 64 * 1024;

/// An address, ready to be contacted.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
}

impl Address {
    /// # Errors
    /// `invalid_policy`: no address, no header.
    pub(super) fn new(url: &str, headers: &[(String, String)]) -> Result<Self, Fault> {
        let wrong = |says: String| Fault::new(FaultCode::InvalidPolicy, says);
        let url = Url::parse(url).map_err(|error| wrong(format!("the url is none: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("the url has to begin with http:// or https://".into()));
        }
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::try_from(name).map_err(|_| wrong(format!("{:?} is no name of a header", line(name, 64))))?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong(format!("the value of the header {name} cannot be sent")))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        // An error means that another provider of ciphers is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Fault::new(FaultCode::Internal, format!("no HTTPS client: {error}")))?;
        Ok(Self { client, url, headers: map })
    }

    /// Whether a server that did not answer as a modern one is to be asked by a GET: it refuses a POST with 400, 404 or 405 and no word of
    /// JSON-RPC. Nothing is done by what is posted here: it begins a conversation that is not gone on with.
    pub(super) async fn is_old(&self) -> bool {
        let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION")}}});
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/json").header(ACCEPT, "application/json, text/event-stream");
        let Ok(mut response) = request.body(hello.to_string()).send().await else { return false };
        if ![StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&response.status()) {
            return false;
        }
        let mut body = Vec::new();
        while let Ok(Some(piece)) = response.chunk().await {
            body.extend_from_slice(&piece);
            if body.len() > MOST {
                break;
            }
        }
        let says: Value = serde_json::from_slice(&body).unwrap_or_default();
        !(says.get("jsonrpc").is_some() && says.get("error").is_some())
    }
}
