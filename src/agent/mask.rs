//! Secrets that are known are shown to nobody: their values are replaced wherever text leaves the program.
//!
//! A mask never prints what it holds.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// What stands in place of a secret.
pub const MASKED: &str = "[secret]";
/// Shorter values are not masked: they are no secrets and would riddle every text.
const SHORTEST: usize = 6;

/// The values that are hidden.
#[derive(Clone, Default)]
pub struct Mask {
    values: Vec<String>,
}

impl Mask {
    /// A mask for these values, and for their form inside a JSON string.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut mask = Self::default();
        mask.hide(secrets);
        mask
    }

    /// Hides these values too.
    pub fn hide(&mut self, secrets: impl IntoIterator<Item = String>) {
        for secret in secrets {
            let secret = secret.trim();
            if secret.len() < SHORTEST {
                continue;
            }
            self.values.push(secret.to_owned());
            if let Ok(quoted) = serde_json::to_string(secret) {
                self.values.push(quoted[1..quoted.len() - 1].to_owned());
            }
        }
        // The longest first: a secret that is a part of another must not leave the rest of it standing.
        self.values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        self.values.dedup();
    }

    /// The text without secrets.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for value in &self.values {
            if text.contains(value.as_str()) {
                text = Cow::Owned(text.replace(value.as_str(), MASKED));
            }
        }
        text
    }

    /// A mask for a text that arrives in pieces.
    pub fn stream(&self) -> MaskedStream {
        MaskedStream { mask: self.clone(), held: String::new() }
    }

    /// How many bytes at the end of a text could be the beginning of a secret.
    fn beginning(&self, text: &str) -> usize {
        let begins = |value: &String| {
            (1..value.len().min(text.len() + 1)).rev().find(|length| value.is_char_boundary(*length) && text.ends_with(&value[..*length]))
        };
        self.values.iter().filter_map(begins).max().unwrap_or(0)
    }

    /// The bytes without secrets.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for value in &self.values {
            let value = value.as_bytes();
            let mut from = 0;
            while let Some(at) = out[from..].windows(value.len()).position(|window| window == value) {
                out.splice(from + at..from + at + value.len(), MASKED.bytes());
                from += at + MASKED.len();
            }
        }
        out
    }

    /// The value without secrets, in its strings and in its keys.
    pub fn value(&self, value: Value) -> Value {
        if self.values.is_empty() {
            return value;
        }
        match value {
            Value::String(text) => Value::String(self.text(&text).into_owned()),
            Value::Array(list) => Value::Array(list.into_iter().map(|item| self.value(item)).collect()),
            Value::Object(map) => {
                Value::Object(map.into_iter().map(|(key, value)| (self.text(&key).into_owned(), self.value(value))).collect())
            }
            other => other,
        }
    }
}

/// A text in pieces, masked: what could be the beginning of a secret is held back until it is clear.
#[derive(Debug)]
pub struct MaskedStream {
    mask: Mask,
    held: String,
}

impl MaskedStream {
    /// What may be shown after a further piece.
    pub fn push(&mut self, piece: &str) -> String {
        self.held.push_str(piece);
        let mut text = self.mask.text(&self.held).into_owned();
        self.held = text.split_off(text.len() - self.mask.beginning(&text));
        text
    }

    /// What was held back, at the end.
    pub fn finish(self) -> String {
        self.held
    }
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mask of {} values", self.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_wherever_they_stand() {
        let mask = Mask::new(["sk-secret".to_owned(), "sk-secret-long\"er\n".to_owned(), "abc".to_owned()]);
        assert_eq!(mask.text("a sk-secret-long\"er b sk-secret abc"), "a [secret] b [secret] abc");
        assert_eq!(mask.text(r#"{"x":"sk-secret-long\"er"}"#), r#"{"x":"[secret]"}"#);
        assert_eq!(mask.bytes(b"\xffsk-secretsk-secret"), b"\xff[secret][secret]");
        let value = serde_json::json!({"sk-secret": ["sk-secret", 1, {"a": "xsk-secret"}]});
        assert_eq!(mask.value(value), serde_json::json!({"[secret]": ["[secret]", 1, {"a": "x[secret]"}]}));
        assert!(!format!("{mask:?}").contains("sk-"));
    }

    #[test]
    fn a_secret_in_two_pieces_is_masked_and_nothing_is_lost() {
        let mask = Mask::new(["sk-secret".to_owned(), "éclair-é".to_owned()]);
        let whole = "a sk-secre sk-secret b éclair-é sk-sk-secret sk-";
        let cuts: Vec<usize> = (0..=whole.len()).filter(|at| whole.is_char_boundary(*at)).collect();
        for first in &cuts {
            for second in cuts.iter().filter(|at| *at >= first) {
                let mut stream = mask.stream();
                let mut shown = String::new();
                for piece in [&whole[..*first], &whole[*first..*second], &whole[*second..]] {
                    shown.push_str(&stream.push(piece));
                }
                shown.push_str(&stream.finish());
                assert_eq!(shown, "a sk-secre [secret] b [secret] sk-[secret] sk-");
            }
        }
        assert_eq!(Mask::default().stream().push("abc"), "abc");
    }

    #[test]
    fn an_empty_mask_changes_nothing() {
        assert_eq!(Mask::default().text("abc"), "abc");
        assert_eq!(Mask::new([String::new()]).bytes(b"abc"), b"abc");
    }
}
