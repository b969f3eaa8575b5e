//! The facts of an envelope: as they are written, and as a tree once somebody looks at them.
//!
//! A large answer crosses the host without being taken apart. Never trusts a text that came over a wire: it is one line, and it can be
//! read, or it is refused.

use super::scan;
use memchr::memchr2;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::OnceLock;

/// At least one of the two is there.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    text: Option<String>,
    value: OnceLock<Value>,
}

impl Facts {
    /// A text that this process has written.
    pub(super) fn own(text: String) -> Self {
        Self { text: Some(text), value: OnceLock::new() }
    }

    /// A text from somewhere else.
    pub(super) fn foreign(text: String) -> Result<Self, String> {
        if scan::is_plain_json(&text) {
            return Ok(Self { text: Some(text), value: OnceLock::new() });
        }
        if memchr2(b'\n', b'\r', text.as_bytes()).is_some() {
            return Err("the facts are not one line".into());
        }
        match serde_json::from_str::<Value>(&text) {
            Ok(value) => Ok(Self { text: Some(text), value: OnceLock::from(value) }),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Whether this is known to be an object without reading it.
    pub(super) fn is_object_text(&self) -> bool {
        self.text.as_deref().is_some_and(|text| text.starts_with('{'))
    }

    pub(super) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.read().unwrap_or_default())
    }

    /// One JSON text.
    pub(super) fn text(&self) -> Cow<'_, str> {
        self.text.as_deref().map_or_else(|| Cow::Owned(self.value().to_string()), Cow::Borrowed)
    }

    /// Changes the facts: a text does not hold any more.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = self.value.take().unwrap_or_else(|| self.read().unwrap_or_default());
        change(&mut value);
        *self = value.into();
    }

    fn read(&self) -> serde_json::Result<Value> {
        self.text.as_deref().map_or(Ok(Value::Null), serde_json::from_str)
    }
}

impl From<Value> for Facts {
    fn from(value: Value) -> Self {
        Self { text: None, value: OnceLock::from(value) }
    }
}

impl PartialEq for Facts {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl Serialize for Facts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.text.as_deref().map(serde_json::from_str::<&RawValue>) {
            Some(Ok(text)) => text.serialize(serializer),
            _ => self.value().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_could_be_two_lines_or_cannot_be_read_is_refused() {
        for text in ["{\n}", "{\"a\":1,\r\"b\":2}", "[1,\n2]", "{\"a\":\"\n\"}"] {
            assert!(Facts::foreign(text.into()).unwrap_err().contains("one line"), "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(Facts::foreign(deep).is_err());
        for text in [r#"{"a":"\ud800"}"#, r#"{"a":"\uD800x"}"#, r#"{"a":1e999}"#, "", "{", r#"{"a":1}}"#, r#"{"a":01}"#, "{} {}"] {
            assert!(Facts::foreign(text.into()).is_err(), "{text}");
        }
        let long = format!("{{\"a\":{}}}", "9".repeat(400));
        assert!(Facts::foreign(long).is_err());
        let spaced = r#"{ "a" : [ 1.5e3 , "\ud83d\ude00" ] }"#;
        for text in [r#"{"a":"\\ud800 [[[["}"#, r#"{"a":"\ud83d\ude00"}"#, r#"{"true":false,"n":1.5}"#, r#"{"a":"\n"}"#, spaced] {
            let facts = Facts::foreign(text.into()).unwrap();
            assert_eq!((facts.value(), &*facts.text()), (&serde_json::from_str::<Value>(text).unwrap(), text));
            assert_eq!(serde_json::to_string(&facts).unwrap(), text);
        }
    }
}
