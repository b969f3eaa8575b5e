//! The facts of an envelope: as they are written, and as a tree once somebody looks at them.
//!
//! A large answer crosses the host without being taken apart. Never trusts a text that came over a wire: it is one line, and it can be
//! read, or it is refused.

use memchr::memchr2;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::sync::OnceLock;

/// How deep a text may be nested; the reader has a bound of its own a little above.
const DEEPEST: usize = 100;

/// How many digits a number may have without being looked at; a few more are out of range.
const LONGEST: usize = 300;

/// At least one of the two is there.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    text: Option<Box<RawValue>>,
    value: OnceLock<Value>,
}

impl Facts {
    /// A text that this process has written.
    pub(super) fn own(text: Box<RawValue>) -> Self {
        Self { text: Some(text), value: OnceLock::new() }
    }

    /// A text from somewhere else.
    pub(super) fn foreign(text: Box<RawValue>) -> Result<Self, String> {
        let facts = Self::own(text);
        match facts.text.as_deref().map(|text| look(text.get().as_bytes())) {
            Some(Look::Plain) | None => Ok(facts),
            Some(Look::Lines) => Err("the facts are not one line".into()),
            Some(Look::Unsure) => match facts.read() {
                Ok(value) => Ok(Self { value: OnceLock::from(value), ..facts }),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    /// Whether this is known to be an object without reading it.
    pub(super) fn is_object_text(&self) -> bool {
        self.text.as_deref().is_some_and(|text| text.get().starts_with('{'))
    }

    pub(super) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.read().unwrap_or_default())
    }

    /// Changes the facts: a text does not hold any more.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Value)) {
        let mut value = self.value.take().unwrap_or_else(|| self.read().unwrap_or_default());
        change(&mut value);
        *self = value.into();
    }

    fn read(&self) -> serde_json::Result<Value> {
        self.text.as_deref().map_or(Ok(Value::Null), |text| serde_json::from_str(text.get()))
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
        match &self.text {
            Some(text) => text.serialize(serializer),
            None => self.value().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Facts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from)
    }
}

/// What a syntactically right JSON text looks like from outside.
#[derive(Debug, PartialEq)]
enum Look {
    /// One line that the reader takes.
    Plain,
    /// There is a line end between its parts.
    Lines,
    /// Deep, with halves of characters, or with numbers that may be too large: the reader has to say.
    Unsure,
}

/// Looks at the text between its strings, and into strings only for escapes.
fn look(text: &[u8]) -> Look {
    if memchr2(b'\n', b'\r', text).is_some() {
        return Look::Lines;
    }
    let (mut depth, mut digits, mut unsure) = (0_usize, 0_usize, false);
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if first.is_ascii_digit() {
            digits += 1;
            unsure |= digits > LONGEST;
            continue;
        }
        // `true` and `false` have an e too.
        unsure |= digits > 0 && matches!(first, b'e' | b'E');
        digits = 0;
        match first {
            b'{' | b'[' => {
                depth += 1;
                unsure |= depth > DEEPEST;
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'"' => {
                while let Some(at) = memchr2(b'"', b'\\', rest) {
                    if rest[at] == b'"' {
                        rest = &rest[at + 1..];
                        break;
                    }
                    // Half of a character has no meaning as a string.
                    unsure |= matches!(rest.get(at + 1..at + 3), Some([b'u', b'd' | b'D']));
                    rest = rest.get(at + 2..).unwrap_or_default();
                }
            }
            _ => {}
        }
    }
    if unsure { Look::Unsure } else { Look::Plain }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn a_text_that_could_be_two_lines_or_cannot_be_read_is_refused() {
        for text in ["{\n}", "{\"a\":1,\r\"b\":2}", "[1,\n2]"] {
            assert!(Facts::foreign(raw(text)).unwrap_err().contains("one line"), "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(Facts::foreign(raw(&deep)).is_err());
        for text in [r#"{"a":"\ud800"}"#, r#"{"a":"\uD800x"}"#, r#"{"a":1e999}"#] {
            assert!(Facts::foreign(raw(text)).is_err(), "{text}");
        }
        let long = format!("{{\"a\":{}}}", "9".repeat(400));
        assert!(Facts::foreign(raw(&long)).is_err());
        for text in [r#"{"a":"\\ud800 [[[["}"#, r#"{"a":"\ud83d\ude00"}"#, r#"{"true":false,"n":1.5}"#, r#"{"a":"\n"}"#] {
            assert_eq!(*Facts::foreign(raw(text)).unwrap().value(), serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(crate::property_tests::cases(1000))]

        /// What is taken as it is can be read.
        #[test]
        fn what_looks_plain_is_read(text in r#"[\[\]{}":,a1eu\\d8 ]{0,24}"#, strings in prop::collection::vec(".{0,8}", 0..4)) {
            let known = serde_json::to_string(&serde_json::json!({ "list": strings, "t": true, "f": false, "n": [-1, 1.25, null] })).unwrap();
            prop_assert_eq!(look(known.as_bytes()), Look::Plain);
            if let Ok(raw) = RawValue::from_string(text)
                && look(raw.get().as_bytes()) == Look::Plain
            {
                prop_assert!(serde_json::from_str::<Value>(raw.get()).is_ok(), "{}", raw.get());
            }
        }
    }
}
