//! Requests to a model server: one POST, streamed or not, retried while nothing of the reply was seen.
//!
//! A key goes into one header, marked as sensitive, and nowhere else: not into errors, not into `Debug`, not to the target of a
//! redirect (none is followed). No proxy is taken from the environment.

use super::error::short;
use super::sse::{Decoder, Event, TooLarge};
use super::{Answering, Progress, ProviderError, Reply};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url};
use serde_json::Value;
use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most bytes of one reply.
const MAX_REPLY: usize = 64 << 20;
/// The most bytes of one event of a stream.
const MAX_EVENT: usize = 16 << 20;
/// The most bytes that are read of a refusal.
const MAX_REFUSAL: usize = 64 << 10;
/// The most calls of one reply, and the most parts that it may consist of.
pub(super) const MOST_PARTS: usize = 1000;
/// The most characters of a server's words in an error.
const DETAIL: usize = 400;
/// How long is waited for what may follow a reply that is whole: its usage.
const GRACE: Duration = Duration::from_secs(5);
/// The fewest bytes of a key that is masked in a server's words: `x` is what people give a server that wants any key.
const MASKED: usize = 6;
/// The most that is waited before one retry when the server does not say.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A key. It is shown by nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A key; blanks and line ends around it (of a file) are not part of it.
    pub fn new(key: &str) -> Self {
        Self(key.trim().into())
    }

    /// The key itself. Who calls this takes care of where it goes.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The model, as the server names it.
    pub model: String,
    /// The address under which the wire's paths stand; with or without `/v1`.
    pub base_url: String,
    /// The key, if the server wants one.
    pub key: Option<Secret>,
    /// Whether the reply is to be streamed.
    pub stream: bool,
    /// A proxy for all requests; `None`: direct.
    pub proxy: Option<String>,
    /// Further headers.
    pub headers: Vec<(String, String)>,
    /// The longest time without a byte, from the server's first as well.
    pub silence: Duration,
    /// The longest time that one reply may take: a server that goes on sending what says nothing is not silent.
    pub longest: Duration,
    /// The most retries of one request.
    pub retries: u32,
    /// The longest time that retries of one request may be waited for, in all.
    pub patience: Duration,
}

impl Settings {
    /// Settings that fit most servers: streamed, silent for at most five minutes, at work for at most an hour, four retries within two minutes.
    pub fn new(base_url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            base_url: base_url.into(),
            key: None,
            stream: true,
            proxy: None,
            headers: Vec::new(),
            silence: Duration::from_secs(300),
            longest: Duration::from_secs(3600),
            retries: 4,
            patience: Duration::from_secs(120),
        }
    }
}

/// What a wire makes of a stream's events or of a whole body.
pub(super) trait Assembly: Send {
    /// The name of the wire, for errors.
    const WIRE: &'static str;
    /// Whether the wire streams lines of JSON instead of server-sent events.
    const LINES: bool = false;

    /// Takes one event of a stream.
    fn event(&mut self, event: &Event, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad>;

    /// Takes a body that is not streamed.
    fn whole(&mut self, body: Value, show: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<(), Bad>;

    /// Whether a part of the reply itself has come.
    fn begun(&self) -> bool;

    /// Whether nothing more is to come, so that the connection need not be read further.
    fn ended(&self) -> bool;

    /// Whether the reply is whole if the stream ends here.
    fn closed(&self) -> bool;

    /// The reply.
    fn reply(self) -> Result<Reply, Bad>;
}

/// What is wrong with a reply that came with status 200.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Bad {
    /// Not what the wire prescribes.
    Malformed(String),
    /// The server says that it failed; with a status, as far as its words have one.
    Failed { status: u16, detail: String },
}

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    pub(super) settings: Settings,
    url: Url,
    /// The address for errors, without user, password and query.
    shown: String,
    headers: HeaderMap,
}

impl Server {
    /// Prepares requests to `path` beneath the base, of which the path is `stem` where it has none; `key` gives the header for a key.
    pub(super) fn new(
        settings: Settings,
        (stem, path): (&str, &str),
        key: fn(&Secret) -> (HeaderName, String),
    ) -> Result<Self, ProviderError> {
        let wrong = |what: String| ProviderError::Setting { what };
        let url = address(&settings.base_url, stem, path).map_err(wrong)?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &settings.headers {
            let name = HeaderName::try_from(name).map_err(|_| wrong(format!("{name:?} is not the name of a header")))?;
            let value = HeaderValue::try_from(value).map_err(|_| wrong(format!("the value of the header {name} cannot be sent")))?;
            headers.insert(name, value);
        }
        if let Some(secret) = settings.key.as_ref().filter(|secret| !secret.expose().is_empty()) {
            let (name, value) = key(secret);
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong("the key holds characters that no key has".into()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        // An error means that another provider of ciphers is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(settings.silence.min(Duration::from_secs(20)))
            .user_agent(concat!(env!("CARGO_PKG_NAME"), "/", env!("CARGO_PKG_VERSION")));
        if let Some(proxy) = &settings.proxy {
            builder = builder.proxy(reqwest::Proxy::all(proxy).map_err(|_| wrong("the address of the proxy is none".into()))?);
        }
        let client = builder.build().map_err(|error| wrong(format!("no HTTPS client: {}", chain(&error))))?;
        let mut shown = url.clone();
        shown.set_query(None);
        // Both fail only for addresses that cannot have them.
        let _ = (shown.set_username(""), shown.set_password(None));
        Ok(Self { client, settings, url, shown: shown.into(), headers })
    }

    /// Sends a request and assembles the reply, with retries while nothing of it was seen.
    pub(super) fn ask<'a, A: Assembly + Default>(&'a self, body: Value, show: &'a mut (dyn FnMut(Progress<'_>) + Send)) -> Answering<'a> {
        Box::pin(async move {
            let body = body.to_string();
            let started = Instant::now();
            let mut attempt = 0;
            loop {
                let mut assembly = A::default();
                let once = tokio::time::timeout(self.settings.longest, self.once(&body, &mut assembly, show)).await;
                let error = match once.unwrap_or_else(|_| Err(self.endless())) {
                    Ok(()) => {
                        let reply = assembly.reply().map_err(|bad| self.bad::<A>(bad))?;
                        let few = reply.message.calls.len() <= MOST_PARTS;
                        return if few { Ok(reply) } else { Err(self.bad::<A>(too_many())) };
                    }
                    Err(error) => error,
                };
                let wait = error.retry_after_ms().map_or_else(|| backoff(attempt), Duration::from_millis);
                let may = error.is_passing() && !assembly.begun() && attempt < self.settings.retries;
                if !may || started.elapsed() + wait > self.settings.patience {
                    return Err(error);
                }
                show(Progress::Retry { error: &error, wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX) });
                tokio::time::sleep(wait).await;
                attempt += 1;
            }
        })
    }

    async fn once<A: Assembly>(
        &self,
        body: &str,
        assembly: &mut A,
        show: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<(), ProviderError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone()).body(body.to_owned()).send();
        let response = match tokio::time::timeout(self.settings.silence, request).await {
            Err(_) => return Err(self.silent()),
            Ok(Err(error)) if error.is_timeout() => return Err(self.silent()),
            // It was reached, and hung up.
            Ok(Err(error)) if !error.is_connect() && !error.is_builder() => {
                return Err(ProviderError::CutStream { url: self.shown.clone(), detail: self.words(&chain(&error)) });
            }
            Ok(Err(error)) => return Err(ProviderError::Unreachable { url: self.shown.clone(), detail: self.words(&chain(&error)) }),
            Ok(Ok(response)) => response,
        };
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.trim_start().to_ascii_lowercase();
        let streamed = kind.starts_with("text/event-stream") || (A::LINES && kind.contains("ndjson"));
        if streamed { self.stream(response, assembly, show).await } else { self.body(response, assembly, show).await }
    }

    async fn stream<A: Assembly>(
        &self,
        mut response: Response,
        assembly: &mut A,
        show: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<(), ProviderError> {
        let mut decoder = if A::LINES { Decoder::lines(MAX_EVENT) } else { Decoder::new(MAX_EVENT) };
        let mut total = 0;
        let cut = |detail: String| ProviderError::CutStream { url: self.shown.clone(), detail };
        loop {
            // Some servers keep the connection open behind a reply that is whole.
            let silence = if assembly.closed() { self.settings.silence.min(GRACE) } else { self.settings.silence };
            match self.piece(&mut response, silence).await {
                Ok(Some(piece)) => {
                    total += piece.len();
                    if total > MAX_REPLY {
                        return Err(self.too_large(MAX_REPLY));
                    }
                    for event in decoder.feed(&piece).map_err(|TooLarge| self.too_large(MAX_EVENT))? {
                        assembly.event(&event, show).map_err(|bad| self.bad::<A>(bad))?;
                    }
                    if assembly.ended() {
                        return Ok(());
                    }
                }
                Ok(None) => break,
                // A server that closes roughly after the end has still said everything.
                Err(ProviderError::CutStream { .. } | ProviderError::Silent { .. }) if assembly.closed() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if let Some(event) = decoder.end().map_err(|TooLarge| self.too_large(MAX_EVENT))? {
            match assembly.event(&event, show) {
                Err(Bad::Malformed(_)) => return Err(cut("the stream ended within an event".into())),
                other => other.map_err(|bad| self.bad::<A>(bad))?,
            }
        }
        if assembly.closed() { Ok(()) } else { Err(cut("the stream ended before the reply".into())) }
    }

    async fn body<A: Assembly>(
        &self,
        mut response: Response,
        assembly: &mut A,
        show: &mut (dyn FnMut(Progress<'_>) + Send),
    ) -> Result<(), ProviderError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece(&mut response, self.settings.silence).await? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_REPLY {
                return Err(self.too_large(MAX_REPLY));
            }
        }
        // Some servers stream under another content type.
        let events = [&b"data:"[..], b"event:", b": "].iter().any(|start| body.trim_ascii_start().starts_with(start));
        let lines = A::LINES && body.trim_ascii().contains(&b'\n') && serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_err();
        if events || lines {
            let mut decoder = if lines { Decoder::lines(MAX_EVENT) } else { Decoder::new(MAX_EVENT) };
            let mut events = decoder.feed(&body).map_err(|TooLarge| self.too_large(MAX_EVENT))?;
            events.extend(decoder.end().map_err(|TooLarge| self.too_large(MAX_EVENT))?);
            for event in events {
                assembly.event(&event, show).map_err(|bad| self.bad::<A>(bad))?;
            }
            if !assembly.closed() {
                return Err(ProviderError::CutStream { url: self.shown.clone(), detail: "the stream ended before the reply".into() });
            }
            return Ok(());
        }
        let value = serde_json::from_slice(&body)
            .map_err(|error| self.bad::<A>(Bad::Malformed(format!("{error}: {}", String::from_utf8_lossy(&body)))))?;
        assembly.whole(value, show).map_err(|bad| self.bad::<A>(bad))
    }

    async fn piece(&self, response: &mut Response, silence: Duration) -> Result<Option<Vec<u8>>, ProviderError> {
        match tokio::time::timeout(silence, response.chunk()).await {
            Err(_) => Err(self.silent()),
            Ok(Err(error)) => Err(ProviderError::CutStream { url: self.shown.clone(), detail: self.words(&chain(&error)) }),
            Ok(Ok(piece)) => Ok(piece.map(Vec::from)),
        }
    }

    async fn refusal(&self, mut response: Response) -> ProviderError {
        let status = response.status().as_u16();
        let retry_after_ms = retry_after(response.headers(), SystemTime::now());
        let mut body = Vec::new();
        while body.len() < MAX_REFUSAL
            && let Ok(Some(piece)) = self.piece(&mut response, self.settings.silence).await
        {
            body.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&body);
        let detail = serde_json::from_slice::<Value>(&body).ok().and_then(|body| message(&body)).unwrap_or_else(|| text.into_owned());
        self.status(status, retry_after_ms, &detail)
    }

    fn status(&self, status: u16, retry_after_ms: Option<u64>, detail: &str) -> ProviderError {
        let (url, detail) = (self.shown.clone(), self.words(detail));
        match status {
            401 | 403 => ProviderError::Auth { url, status, detail },
            429 => ProviderError::RateLimited { url, retry_after_ms, detail },
            408 | 500.. => ProviderError::Server { url, status, retry_after_ms, detail },
            _ => ProviderError::BadRequest { url, status, detail },
        }
    }

    fn bad<A: Assembly>(&self, bad: Bad) -> ProviderError {
        match bad {
            Bad::Malformed(what) => {
                ProviderError::MalformedChunk { url: self.shown.clone(), wire: A::WIRE.into(), detail: self.words(&what) }
            }
            Bad::Failed { status, detail } => self.status(status, None, &detail),
        }
    }

    fn silent(&self) -> ProviderError {
        ProviderError::Silent { url: self.shown.clone(), seconds: self.settings.silence.as_secs() }
    }

    fn endless(&self) -> ProviderError {
        let detail = format!("it had not come to its end after {} s", self.settings.longest.as_secs());
        ProviderError::CutStream { url: self.shown.clone(), detail }
    }

    fn too_large(&self, limit: usize) -> ProviderError {
        ProviderError::TooLarge { url: self.shown.clone(), limit }
    }

    /// Words of a server for an error: bounded, and without the key, which some servers repeat.
    fn words(&self, text: &str) -> String {
        match self.settings.key.as_ref().map(Secret::expose).filter(|key| key.len() >= MASKED) {
            Some(key) => short(&text.replace(key, "***"), DETAIL),
            None => short(text, DETAIL),
        }
    }
}

/// What no model says.
pub(super) fn too_many() -> Bad {
    Bad::Malformed(format!("it consists of more than {MOST_PARTS} calls or parts"))
}

/// The address of a wire's path: the stem (`/v1`) is put in where the base has no path of its own.
pub(super) fn address(base: &str, stem: &str, path: &str) -> Result<Url, String> {
    let begins = "the base URL has to begin with http:// or https://";
    let mut url = Url::parse(base).map_err(|error| match base.contains("://") {
        true => format!("the base URL is no address: {error}"),
        false => begins.into(),
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(begins.into());
    }
    let stem = match url.path().trim_end_matches('/') {
        "" => stem,
        stem => stem,
    };
    let joined = if stem.ends_with(path) { stem.to_owned() } else { format!("{stem}{path}") };
    url.set_path(&joined);
    url.set_fragment(None);
    Ok(url)
}

/// The sentence of an error in a server's JSON.
pub(super) fn message(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let sentence = error.as_str().or_else(|| error.get("message")?.as_str()).or_else(|| body.get("detail")?.as_str())?;
    Some(sentence.into())
}

/// An error with its causes, without the address (which can hold a password).
fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let sentence = cause.to_string();
        if !text.ends_with(&sentence) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&sentence);
        }
        next = cause.source();
    }
    if text.is_empty() { "the request failed".into() } else { text }
}

/// Half a second, doubled with each attempt, with up to a quarter more so that many clients do not come back at once.
fn backoff(attempt: u32) -> Duration {
    let wait = Duration::from_millis(500).saturating_mul(1 << attempt.min(16)).min(LONGEST_WAIT);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    wait + wait.mul_f64(f64::from(nanos % 1000) / 4000.0)
}

/// How long a server asks to wait, in milliseconds: `retry-after-ms`, or `retry-after` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let positive = |number: f64| (number.is_finite() && number >= 0.0).then_some(number);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // positive; an `as` of a float saturates
    let whole = |number: f64| number.ceil() as u64;
    if let Some(ms) = text(&HeaderName::from_static("retry-after-ms")).and_then(|ms| positive(ms.parse().ok()?)) {
        return Some(whole(ms));
    }
    let text = text(&RETRY_AFTER)?;
    if let Ok(seconds) = text.parse::<f64>() {
        return positive(seconds).map(|seconds| whole(seconds * 1000.0));
    }
    let then = UNIX_EPOCH + Duration::from_secs(http_date(text)?);
    Some(then.duration_since(now).map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)))
}

/// `Wed, 21 Oct 2026 07:28:00 GMT` as seconds since 1970 (RFC 9110, the one form that servers may send).
fn http_date(text: &str) -> Option<u64> {
    let rest = text.split_once(", ")?.1.strip_suffix(" GMT")?;
    let mut words = rest.split(' ');
    let day: u64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = months.iter().position(|month| *month == name)? as u64 + 1;
    let year: u64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if !(1970..=9999).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the civil calendar, with the year beginning in March.
    let (shifted, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_by_nothing() {
        let mut settings = Settings::new("http://user:pa55@127.0.0.1:1/v1?q=pa55", "m");
        settings.key = Some(Secret::new(" sk-hidden\n"));
        let server =
            Server::new(settings, ("/v1", "/x"), |key| (reqwest::header::AUTHORIZATION, format!("Bearer {}", key.expose()))).unwrap();
        assert!(!format!("{:?}", server.headers).contains("hidden"));
        assert!(!format!("{:?}", server.settings.key).contains("hidden"));
        assert_eq!(server.shown, "http://127.0.0.1:1/v1/x");
        assert_eq!(server.words("Incorrect API key: sk-hidden"), "Incorrect API key: ***");
    }

    #[test]
    fn addresses_are_made_from_what_people_type() {
        for (base, wanted) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat"),
            ("https://api.openai.com/v1/", "https://api.openai.com/v1/chat"),
            ("http://localhost:8080", "http://localhost:8080/v1/chat"),
            ("http://localhost:8080/", "http://localhost:8080/v1/chat"),
            ("http://host/openai/v1/chat", "http://host/openai/v1/chat"),
            ("http://host/api?version=1", "http://host/api/chat?version=1"),
        ] {
            assert_eq!(address(base, "/v1", "/chat").unwrap().as_str(), wanted);
        }
        assert!(address("localhost:8080", "/v1", "/chat").is_err());
        assert!(address("file:///etc/passwd", "/v1", "/chat").is_err());
    }

    #[test]
    fn the_time_to_wait_is_read_in_each_form() {
        let now = UNIX_EPOCH + Duration::from_secs(1_792_567_670);
        for (name, value, wanted) in [
            ("retry-after", "3", Some(3000)),
            ("retry-after", "0.25", Some(250)),
            ("retry-after-ms", "1500", Some(1500)),
            ("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT", Some(10_000)),
            ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(0)),
            ("retry-after", "-1", None),
            ("retry-after", "soon", None),
            ("retry-after", "NaN", None),
            ("other", "3", None),
        ] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))]);
            assert_eq!(retry_after(&headers, now), wanted, "{name}: {value}");
        }
        assert_eq!(http_date("Thu, 29 Feb 2024 00:00:00 GMT"), Some(1_709_164_800));
    }

    #[test]
    fn waits_grow_to_a_bound() {
        assert!((500..=625).contains(&backoff(0).as_millis()));
        assert!((2000..=2500).contains(&backoff(2).as_millis()));
        assert!((30_000..=37_500).contains(&backoff(30).as_millis()));
    }
}
