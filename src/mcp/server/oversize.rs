//! Messages that are too long to be kept: whose they are can be told from their ends.

use serde_json::Value;

/// How much of a message's beginning and of its end is kept. Clients put the id into the first few members or behind the arguments.
const EDGE: usize = 1024;

/// A long message that goes by in pieces.
#[derive(Debug, Default)]
pub(super) struct Passing {
    length: usize,
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Passing {
    /// The next piece.
    pub(super) fn piece(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
        let missing = EDGE.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..missing]);
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(EDGE)..]);
        self.tail.drain(..self.tail.len().saturating_sub(EDGE));
    }

    /// How many bytes have gone by.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The id of the request, where one of its ends tells it; a notification has none, and gets no answer.
    pub(super) fn id(&self) -> Option<Value> {
        id_at_the_beginning(&self.head).or_else(|| id_at_the_end(self.tail.trim_ascii_end()))
    }
}

const KEY: &[u8] = br#""id":"#;

/// Of a member that stands before the arguments, in which there may be anything.
fn id_at_the_beginning(head: &[u8]) -> Option<Value> {
    let before = memchr::memmem::find(head, br#""params""#).unwrap_or(head.len());
    let at = memchr::memmem::find(&head[..before], KEY)? + KEY.len();
    let id = serde_json::Deserializer::from_slice(&head[at..before]).into_iter::<Value>().next()?.ok()?;
    is_id(&id).then_some(id)
}

/// Of the last member: what the message's own bracket closes. In a string the quotes of the key would be escaped.
fn id_at_the_end(tail: &[u8]) -> Option<Value> {
    let members = tail.strip_suffix(b"}")?;
    let at = memchr::memmem::rfind(members, KEY)?;
    let begins = matches!(members[..at].trim_ascii_end().last(), Some(b',' | b'{'));
    let id: Value = serde_json::from_slice(&members[at + KEY.len()..]).ok()?;
    (begins && is_id(&id)).then_some(id)
}

fn is_id(id: &Value) -> bool {
    id.is_string() || id.is_i64() || id.is_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_id_is_known_by_its_place() {
        let long = "x".repeat(3 * EDGE);
        for (message, id) in [
            (format!(r#"{{"jsonrpc":"2.0","id":2,"method":"m","params":{{"a":"{long}"}}}}"#), json!(2)),
            (format!(r#"{{"method":"m","params":{{"a":"{long}"}},"jsonrpc":"2.0","id": "a-1"}}"#), json!("a-1")),
            (format!("{{\"method\":\"m\",\"params\":{{\"a\":\"{long}\"}},\"id\":7}} \r\n"), json!(7)),
            (format!(r#"{{"method":"m","params":{{"id":9,"a":"{long}"}}}}"#), Value::Null),
            (format!(r#"{{"method":"m","params":{{"a":"{long}","id":9}}}}"#), Value::Null),
            (format!(r#"{{"method":"m","params":{{"a":"{long},\"id\":9}}"}}}}"#), Value::Null),
            (format!(r#"{{"method":"m","id":1.5,"params":"{long}"}}"#), Value::Null),
            (long.clone(), Value::Null),
        ] {
            for piece in [1, 100, 5000] {
                let mut passing = Passing::default();
                message.as_bytes().chunks(piece).for_each(|piece| passing.piece(piece));
                assert_eq!(passing.length(), message.len());
                assert_eq!(passing.id().unwrap_or_default(), id, "{}…", &message[..40]);
            }
        }
    }
}
