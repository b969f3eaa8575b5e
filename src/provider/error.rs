//! What can go wrong with a provider, each with a sentence that says what to do.

use thiserror::Error;

/// Why there is no reply. Texts from a server are bounded and hold no key.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ProviderError {
    /// 401 or 403.
    #[error("the model server at {url} refused the key (HTTP {status}{}): check the key and that it may use this model", tail(.detail))]
    Auth {
        /// The address without query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server said.
        detail: String,
    },
    /// 429, after the retries that the budget permits.
    #[error("the model server at {url} limits the rate of requests{}{}: wait, or use another model or key", after(*.retry_after_ms), tail(.detail))]
    RateLimited {
        /// The address without query.
        url: String,
        /// How long the server asks to wait, in milliseconds.
        retry_after_ms: Option<u64>,
        /// What the server said.
        detail: String,
    },
    /// 5xx, after the retries that the budget permits.
    #[error("the model server at {url} failed (HTTP {status}{}): try again later", tail(.detail))]
    Server {
        /// The address without query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// How long the server asks to wait, in milliseconds.
        retry_after_ms: Option<u64>,
        /// What the server said.
        detail: String,
    },
    /// Any other 4xx.
    #[error("the model server at {url} does not take the request (HTTP {status}{}): check the model's name and the base URL", tail(.detail))]
    BadRequest {
        /// The address without query.
        url: String,
        /// The HTTP status.
        status: u16,
        /// What the server said.
        detail: String,
    },
    /// No connection.
    #[error("no model server can be reached at {url} ({detail}): {}", advice(.detail))]
    Unreachable {
        /// The address without query.
        url: String,
        /// What failed.
        detail: String,
    },
    /// Connected, and nothing came for too long.
    #[error("the model server at {url} has been silent for {seconds} s: it may be overloaded or still loading the model; try again")]
    Silent {
        /// The address without query.
        url: String,
        /// How long it was waited, in seconds.
        seconds: u64,
    },
    /// The stream ended before the reply did.
    #[error("the reply of {url} was cut off in the middle ({detail}): nothing of it was run; try again")]
    CutStream {
        /// The address without query.
        url: String,
        /// How.
        detail: String,
    },
    /// A part of the reply is not what the wire prescribes.
    #[error("the reply of {url} cannot be read ({detail}): is this address a server of the {wire} wire?")]
    MalformedChunk {
        /// The address without query.
        url: String,
        /// The name of the wire.
        wire: String,
        /// What is wrong, with a bounded echo.
        detail: String,
    },
    /// The reply is larger than any reply.
    #[error("the reply of {url} is larger than {limit} bytes: lower the limit of tokens")]
    TooLarge {
        /// The address without query.
        url: String,
        /// The most bytes that are read.
        limit: usize,
    },
    /// A setting of the provider that cannot be used (an address that is none, say).
    #[error("{what}")]
    Setting {
        /// The sentence.
        what: String,
    },
    /// The script has no further reply.
    #[error("the script {file} has ended after {replies} replies and the conversation goes on: add a reply to it")]
    ScriptEnded {
        /// The script.
        file: String,
        /// How many replies it holds.
        replies: usize,
    },
    /// The script cannot be read.
    #[error("{file}:{line}: {what}")]
    Script {
        /// The script.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// The conversation is not where the script expects it.
    #[error("{file}:{line}: the script expects {wanted:?} in what the model is told, and it is told {found:?}")]
    ScriptStrayed {
        /// The script.
        file: String,
        /// The line of the reply, from 1.
        line: usize,
        /// What should be there.
        wanted: String,
        /// What is there, bounded.
        found: String,
    },
}

impl ProviderError {
    /// Whether the same request may succeed a little later.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Server { .. } | Self::Unreachable { .. } | Self::Silent { .. } | Self::CutStream { .. } => {
                true
            }
            Self::Auth { .. }
            | Self::BadRequest { .. }
            | Self::MalformedChunk { .. }
            | Self::TooLarge { .. }
            | Self::Setting { .. }
            | Self::ScriptEnded { .. }
            | Self::Script { .. }
            | Self::ScriptStrayed { .. } => false,
        }
    }

    /// How long the server asks to wait, in milliseconds.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_ms, .. } | Self::Server { retry_after_ms, .. } => *retry_after_ms,
            _ => None,
        }
    }
}

/// What to do where no connection came about, by the words of what failed.
fn advice(detail: &str) -> &'static str {
    let said = |words: &[&str]| words.iter().any(|word| detail.contains(word));
    if said(&["Connection refused"]) {
        "nothing listens there; start the server, or check the host and the port of --base-url"
    } else if said(&["dns error", "failed to lookup"]) {
        "the name of the host is not known; check its spelling in --base-url, and this machine's network"
    } else if said(&["ertificate", "UnknownIssuer"]) {
        "its certificate is not trusted; check the host in --base-url, this machine's clock and its list of authorities"
    } else if said(&["InvalidContentType", "corrupt message", "handshake", "received fatal alert", "invalid peer", "UnexpectedEof"]) {
        "it does not speak TLS as expected; is it an address of http:// rather than https://?"
    } else if said(&["unreachable", "No route", "timed out"]) {
        "no way leads there from this machine; check the host in --base-url, and a proxy or firewall"
    } else {
        "check that it runs, the base URL and the network"
    }
}

fn tail(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(", {detail}") }
}

fn after(ms: Option<u64>) -> String {
    ms.map(|ms| format!(" and asks to wait {} s", ms.div_ceil(1000))).unwrap_or_default()
}

/// A text for a message: one line, bounded.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut shown = String::new();
    for (count, c) in text.split_whitespace().flat_map(|word| [" ", word]).skip(1).flat_map(str::chars).enumerate() {
        if count == most {
            shown.push('…');
            break;
        }
        shown.push(if c.is_control() { '\u{fffd}' } else { c });
    }
    shown
}
