//! What is known of models: which can call tools, what each is able for, what its tokens cost.
//!
//! All of it stands in data files: the embedded one, and one of the person's that is asked first. For each field the first entry
//! that matches the name and speaks of the field decides, and [`Models::decide`] says which line that was. A model that no line
//! speaks of is assumed able. This module never asks a server and never reads a file.

use super::budget::Price;
use super::prompt::{Capabilities, Scope};
use crate::envelope::{Fault, FaultCode};
use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::Spanned;

/// The embedded file, and its name in explanations.
const EMBEDDED: &str = include_str!("../../models/models.toml");
const EMBEDDED_NAME: &str = "models.toml (built in)";

/// All scopes, in the order in which they are explained.
pub const SCOPES: [Scope; 4] = [Scope::Agent, Scope::WebBrowsing, Scope::ReadFile, Scope::KnowledgeBase];

/// The data files, the first to be asked first.
#[derive(Clone, Debug)]
pub struct Models {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    file: String,
    /// The line on which it begins.
    line: usize,
    /// The file's text, to turn an offset into a line.
    text: std::sync::Arc<str>,
    patterns: Vec<(String, GlobMatcher)>,
    written: Written,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    model: Vec<Spanned<Written>>,
}

/// An entry as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    r#match: Vec<String>,
    tools: Option<Spanned<bool>>,
    #[serde(default)]
    scopes: BTreeMap<Scope, Spanned<bool>>,
    price: Option<Spanned<WrittenPrice>>,
    context: Option<Spanned<u64>>,
    default: Option<Spanned<bool>>,
}

/// US dollars for a million tokens.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPrice {
    input: f64,
    output: f64,
}

impl WrittenPrice {
    fn resolved(self) -> Option<Price> {
        let micros = |dollars: f64| {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // in range: checked
            (0.0..=1e6).contains(&dollars).then(|| (dollars * 1e6).round() as u64)
        };
        Some(Price { input: micros(self.input)?, output: micros(self.output)? })
    }
}

/// What is known of one model, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Known {
    /// What it is able for.
    pub capabilities: Capabilities,
    /// What its tokens cost; `None`: not known.
    pub price: Option<Price>,
    /// Tokens of a whole conversation; `None`: not known.
    pub context: Option<u64>,
    /// Every field with what decided it.
    pub reasons: Vec<Reason>,
}

/// One field of a model, and what decided it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// `tools`, `scope agent`, `price` …
    pub field: String,
    /// Its value, for a person.
    pub value: String,
    /// The line; `None`: no line speaks of it.
    pub decided_by: Option<Line>,
}

/// A line of a data file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The glob that matched the name.
    pub pattern: String,
}

/// One entry, for a listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listed {
    /// The globs.
    pub r#match: Vec<String>,
    /// Whether it calls tools natively, if the entry says so.
    pub tools: Option<bool>,
    /// The scopes that the entry speaks of.
    pub scopes: BTreeMap<Scope, bool>,
    /// The price, in millionths of a US dollar for a million tokens.
    pub price: Option<Price>,
    /// Tokens of a whole conversation.
    pub context: Option<u64>,
    /// Whether its names are taken where no model was named.
    pub default: bool,
    /// The file.
    pub file: String,
    /// The line on which the entry begins.
    pub line: usize,
}

impl Models {
    /// What is built in.
    ///
    /// # Errors
    /// `internal`; a test holds that it does not happen.
    pub fn embedded() -> Result<Self, Fault> {
        Ok(Self { entries: entries(EMBEDDED_NAME, EMBEDDED)? })
    }

    /// Puts a person's file before all others.
    ///
    /// # Errors
    /// `invalid_arguments` with file, line and what is wrong: an unknown key, a glob that is none, a price below zero.
    pub fn with_file(mut self, name: &str, text: &str) -> Result<Self, Fault> {
        let mut entries = entries(name, text)?;
        entries.append(&mut self.entries);
        Ok(Self { entries })
    }

    /// What is known of a model, named `provider:name`.
    pub fn decide(&self, name: &str) -> Known {
        let matching: Vec<(&Entry, &str)> = self.entries.iter().filter_map(|entry| Some((entry, entry.matching(name)?))).collect();
        let mut reasons = Vec::new();
        let mut capabilities = Capabilities::default();
        let tools = first(&matching, |written| written.tools.as_ref());
        capabilities.tools = tools.as_ref().is_none_or(|(value, _)| **value);
        let said = if capabilities.tools { "native calls" } else { "none: the text protocol" };
        reasons.push(reason("tools", said, tools.map(|(_, line)| line), "native calls (assumed)"));
        for scope in SCOPES {
            let found = first(&matching, |written| written.scopes.get(&scope));
            if let Some((value, _)) = &found {
                capabilities.scopes.insert(scope, **value);
            }
            let said = if capabilities.supports(scope) { "yes" } else { "no" };
            reasons.push(reason(&format!("scope {}", scope.as_str()), said, found.map(|(_, line)| line), "yes (assumed)"));
        }
        let price = first(&matching, |written| written.price.as_ref());
        let known_price = price.as_ref().and_then(|(value, _)| value.resolved());
        let said = known_price.map(|price| {
            let dollars = super::budget::dollars;
            format!("{} in, {} out, for a million tokens", dollars(price.input), dollars(price.output))
        });
        reasons.push(reason("price", &said.unwrap_or_default(), price.map(|(_, line)| line), "not known"));
        let context = first(&matching, |written| written.context.as_ref());
        let known_context = context.as_ref().map(|(value, _)| **value);
        let said = known_context.map(|tokens| format!("{tokens} tokens")).unwrap_or_default();
        reasons.push(reason("context", &said, context.map(|(_, line)| line), "not known"));
        Known { capabilities, price: known_price, context: known_context, reasons }
    }

    /// The name, without its provider, that is asked for when a key is there and no model was named.
    pub fn default_of(&self, provider: &str) -> Option<&str> {
        let of_default = self.entries.iter().filter(|entry| entry.written.default.as_ref().is_some_and(|value| *value.get_ref()));
        of_default.flat_map(|entry| &entry.written.r#match).find_map(|name| name.strip_prefix(provider)?.strip_prefix(':'))
    }

    /// Every entry, in the order in which they are asked.
    pub fn list(&self) -> Vec<Listed> {
        let listed = |entry: &Entry| Listed {
            r#match: entry.written.r#match.clone(),
            tools: entry.written.tools.as_ref().map(|tools| *tools.get_ref()),
            scopes: entry.written.scopes.iter().map(|(scope, value)| (*scope, *value.get_ref())).collect(),
            price: entry.written.price.as_ref().and_then(|price| price.get_ref().resolved()),
            context: entry.written.context.as_ref().map(|tokens| *tokens.get_ref()),
            default: entry.written.default.as_ref().is_some_and(|value| *value.get_ref()),
            file: entry.file.clone(),
            line: entry.line,
        };
        self.entries.iter().map(listed).collect()
    }
}

impl Entry {
    /// The first glob that matches.
    fn matching(&self, name: &str) -> Option<&str> {
        let bare = name.split_once(':').map_or(name, |(_, bare)| bare);
        let last = bare.rsplit('/').next().unwrap_or(bare);
        let fits = |glob: &GlobMatcher| [name, bare, last].iter().any(|form| glob.is_match(form));
        self.patterns.iter().find(|(_, glob)| fits(glob)).map(|(pattern, _)| pattern.as_str())
    }
}

/// The first entry that speaks of a field.
fn first<'a, T>(matching: &[(&'a Entry, &str)], field: impl Fn(&'a Written) -> Option<&'a Spanned<T>>) -> Option<(&'a T, Line)> {
    matching.iter().find_map(|(entry, pattern)| {
        let value = field(&entry.written)?;
        let line = line_of(&entry.text, value.span().start);
        Some((value.get_ref(), Line { file: entry.file.clone(), line, pattern: (*pattern).into() }))
    })
}

fn reason(field: &str, value: &str, decided_by: Option<Line>, otherwise: &str) -> Reason {
    let value = if decided_by.is_some() { value } else { otherwise };
    Reason { field: field.into(), value: value.into(), decided_by }
}

fn entries(name: &str, text: &str) -> Result<Vec<Entry>, Fault> {
    let wrong = |line: usize, what: String| Fault::new(FaultCode::InvalidArguments, format!("{name}:{line}: {what}"));
    let file: File = toml::from_str(text)
        .map_err(|error| wrong(error.span().map_or(1, |span| line_of(text, span.start)), error.message().to_owned()))?;
    let shared: std::sync::Arc<str> = text.into();
    let mut entries = Vec::new();
    for spanned in file.model {
        let line = line_of(text, spanned.span().start);
        let written = spanned.into_inner();
        if let Some(price) = &written.price
            && price.get_ref().resolved().is_none()
        {
            return Err(wrong(line_of(text, price.span().start), "a price is a number of dollars from 0 to 1,000,000".into()));
        }
        let mut patterns = Vec::new();
        for pattern in &written.r#match {
            let glob = GlobBuilder::new(pattern).case_insensitive(true).build();
            let glob = glob.map_err(|error| wrong(line, format!("match {pattern:?}: {}", error.kind())))?;
            patterns.push((pattern.clone(), glob.compile_matcher()));
        }
        if patterns.is_empty() {
            return Err(wrong(line, "match names no model".into()));
        }
        entries.push(Entry { file: name.into(), line, text: shared.clone(), patterns, written });
    }
    Ok(entries)
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(known: &Known, field: &str) -> (String, Option<(String, usize, String)>) {
        let reason = known.reasons.iter().find(|reason| reason.field == field).unwrap();
        (reason.value.clone(), reason.decided_by.clone().map(|line| (line.file, line.line, line.pattern)))
    }

    #[test]
    fn what_is_built_in_is_whole_and_each_line_can_decide() {
        let models = Models::embedded().unwrap();
        let mut dead = Vec::new();
        for entry in &models.entries {
            for pattern in &entry.written.r#match {
                // A name that the glob stands for.
                let name = pattern.replace('*', "x");
                let name = if name.contains(':') { name } else { format!("openai:{name}") };
                let first = models.entries.iter().find(|other| other.matching(&name).is_some()).unwrap();
                if !std::ptr::eq(first, entry)
                    && first.written.tools.is_some() == entry.written.tools.is_some()
                    && first.written.price.is_some() == entry.written.price.is_some()
                {
                    dead.push((pattern, first.written.r#match.clone()));
                }
            }
        }
        assert!(dead.is_empty(), "an earlier entry takes all: {dead:?}");
        for provider in ["openai", "responses", "anthropic"] {
            let name = models.default_of(provider).unwrap();
            let known = models.decide(&format!("{provider}:{name}"));
            assert!(known.capabilities.tools && known.price.is_some(), "{provider}:{name}");
        }
        assert_eq!(models.default_of("ollama"), None, "a local server says itself what it has");
    }

    #[test]
    fn the_line_that_decided_is_named() {
        let models = Models::embedded().unwrap();
        let line = |text: &str| EMBEDDED.lines().position(|line| line == text).unwrap() + 1;
        let known = models.decide("openai:o1-mini-2024-09-12");
        assert!(!known.capabilities.tools && known.capabilities.supports(Scope::Agent));
        let (value, Some((file, at, pattern))) = by(&known, "tools") else { panic!() };
        assert_eq!((value.as_str(), file.as_str(), pattern.as_str()), ("none: the text protocol", EMBEDDED_NAME, "o1-mini*"));
        assert_eq!(at, line(r#"match = ["o1-mini*", "o1-preview*", "gpt-3.5-turbo-instruct*", "davinci-002", "babbage-002"]"#) + 1);
        // A router's name, and a tag of a local one.
        assert_eq!(models.decide("openai:anthropic/claude-sonnet-4-5").price, Some(Price { input: 3_000_000, output: 15_000_000 }));
        assert!(!models.decide("ollama:deepseek-r1:8b").capabilities.tools);
        assert_eq!(models.decide("ollama:deepseek-r1:8b").price, Some(Price { input: 0, output: 0 }));
        let vectors = models.decide("openai:text-embedding-3-large");
        assert!(SCOPES.iter().all(|scope| !vectors.capabilities.supports(*scope)));
    }

    #[test]
    fn an_unknown_model_is_assumed_able() {
        let known = Models::embedded().unwrap().decide("openai:never-heard-of");
        assert!(known.capabilities.tools && SCOPES.iter().all(|scope| known.capabilities.supports(*scope)));
        assert_eq!((known.price, known.context), (None, None));
        assert!(known.reasons.iter().all(|reason| reason.decided_by.is_none()));
        assert_eq!(by(&known, "scope web-browsing").0, "yes (assumed)");
    }

    #[test]
    fn a_persons_file_is_asked_first_field_by_field() {
        let mine = "[[model]]\nmatch = [\"GPT-4o\"]\ntools = false\nscopes = { web-browsing = false }\n\n[[model]]\nmatch = [\"openai:*\"]\nscopes = { agent = false }\ndefault = false\n";
        let models = Models::embedded().unwrap().with_file("mine.toml", mine).unwrap();
        let known = models.decide("openai:gpt-4o");
        assert_eq!(by(&known, "tools").1, Some(("mine.toml".into(), 3, "GPT-4o".into())));
        assert_eq!(by(&known, "scope web-browsing").1, Some(("mine.toml".into(), 4, "GPT-4o".into())));
        assert_eq!(by(&known, "scope agent").1, Some(("mine.toml".into(), 8, "openai:*".into())));
        assert_eq!(by(&known, "price").1.unwrap().0, EMBEDDED_NAME);
        let mine = "[[model]]\nmatch = [\"openai:local-thing\"]\ndefault = true\n";
        assert_eq!(Models::embedded().unwrap().with_file("m", mine).unwrap().default_of("openai"), Some("local-thing"));
    }

    #[test]
    fn a_wrong_file_names_its_line() {
        for (text, place) in [
            ("[[model]]\nmatch = [\"a\"]\ntool = true\n", "m:3: unknown field `tool`"),
            ("[[model]]\ntools = true\n", "m:1: missing field `match`"),
            ("[[model]]\nmatch = []\n", "m:1: match names no model"),
            ("[[model]]\nmatch = [\"[\"]\n", "m:1: match \"[\""),
            ("[[model]]\nmatch = [\"a\"]\nscopes = { flying = true }\n", "m:3: unknown variant `flying`"),
            ("[[model]]\nmatch = [\"a\"]\n\nprice = { input = -1, output = 2 }\n", "m:4: a price is"),
            ("[[models]]\n", "m:1: unknown field `models`"),
        ] {
            let fault = Models::embedded().unwrap().with_file("m", text).unwrap_err();
            assert!(fault.message().starts_with(place), "{fault}");
        }
    }
}
