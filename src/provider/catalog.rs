//! Which models a server has. It is asked only to choose one where none was named, never in the course of a run.

use super::http::{Secret, address};
use super::{ProviderError, Wire};
use reqwest::Client;
use reqwest::header::AUTHORIZATION;
use serde_json::Value;
use std::time::Duration;

/// The most bytes of a list.
const MOST: usize = 4 << 20;
/// How long a connection may take. The server is on this machine, or near.
const CONNECT: Duration = Duration::from_millis(500);

/// The names of a server's models, in its own order.
///
/// # Errors
/// [`ProviderError::Unreachable`] or [`ProviderError::Silent`] when nobody answers within `patience`; [`ProviderError::MalformedChunk`]
/// when what answers has no such list; [`ProviderError::Auth`] when it wants a key.
pub async fn models(wire: &Wire, base_url: &str, key: Option<&Secret>, patience: Duration) -> Result<Vec<String>, ProviderError> {
    let (stem, path, field) = wire.list;
    let url = address(base_url, stem, path).map_err(|what| ProviderError::Setting { what })?;
    let mut shown = url.clone();
    shown.set_query(None);
    // Both fail only for addresses that cannot have them.
    let _ = (shown.set_username(""), shown.set_password(None));
    let shown = String::from(shown);
    let malformed = |detail: &str| ProviderError::MalformedChunk { url: shown.clone(), wire: wire.name.into(), detail: detail.into() };
    let unreachable = |detail: String| ProviderError::Unreachable { url: shown.clone(), detail };
    let asked = async {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client =
            Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).connect_timeout(CONNECT.min(patience)).build();
        let client = client.map_err(|_| ProviderError::Setting { what: "no HTTPS client".into() })?;
        let mut request = client.get(url);
        if let Some(key) = key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.expose())).header("x-api-key", key.expose());
        }
        let mut response = request.send().await.map_err(|_| unreachable("nobody answers".into()))?;
        match response.status().as_u16() {
            status @ (401 | 403) => return Err(ProviderError::Auth { url: shown.clone(), status, detail: String::new() }),
            200..=299 => {}
            status => return Err(malformed(&format!("HTTP {status}"))),
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|_| unreachable("the answer broke off".into()))? {
            body.extend_from_slice(&piece);
            if body.len() > MOST {
                return Err(ProviderError::TooLarge { url: shown.clone(), limit: MOST });
            }
        }
        let body: Value = serde_json::from_slice(&body).map_err(|_| malformed("no JSON"))?;
        let list = body.get(field).and_then(Value::as_array).ok_or_else(|| malformed("no list of models"))?;
        let name = |model: &Value| model.get("id").or_else(|| model.get("name"))?.as_str().map(str::to_owned);
        Ok(list.iter().filter_map(name).filter(|name| !name.is_empty() && !name.contains(char::is_control)).collect())
    };
    match tokio::time::timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(ProviderError::Silent { url: shown.clone(), seconds: patience.as_secs() }),
    }
}
