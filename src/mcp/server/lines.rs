//! Messages as lines, on stdio.
//!
//! Reading is rmcp's. Writing is here, for one reason: the envelope of a tool's answer is text already, and goes out as it is, twice (as
//! structure, and escaped as text), without being taken apart. Never writes a part of one message into another: all messages take one way.

use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Map, Value};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

/// How many messages wait to be written; who has more to say waits as well.
const QUEUE: usize = 16;

/// How a large result without its envelope is written, and what is put there instead.
const TEXT: &str = r#""text":"""#;
/// An object, because peers of the older era get no other structure.
const STRUCTURE: &str = r#""structuredContent":{}"#;

/// A result whose structure is the same JSON as its text, and is put there when it is written.
pub(super) fn twice(envelope: String, success: bool) -> CallToolResult {
    let text = vec![ContentBlock::text(envelope)];
    let mut result = if success { CallToolResult::success(text) } else { CallToolResult::error(text) };
    result.structured_content = Some(Value::Object(Map::new()));
    result
}

/// How many bytes of messages have been said and not been written.
#[derive(Clone, Debug, Default)]
pub(super) struct Unwritten(Arc<AtomicUsize>);

impl Unwritten {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn more(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn less(&self, bytes: usize) {
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |all| Some(all.saturating_sub(bytes)));
    }
}

/// The transport, what writes its messages until the transport is gone, and how much of them is still to be written.
pub(super) fn open<R: AsyncRead + Send + Unpin, W: AsyncWrite + Unpin>(
    input: R,
    output: W,
    longest: usize,
) -> (Lines<R>, impl Future<Output = io::Result<()>>, Unwritten) {
    let (sender, mut messages) = mpsc::channel::<Vec<u8>>(QUEUE);
    let unwritten = Unwritten::default();
    let inner = Into { sender: PollSender::new(sender.clone()), unwritten: unwritten.clone() };
    let inner = AsyncRwTransport::new(input, inner).with_max_line_length(longest);
    let left = unwritten.clone();
    let write = async move {
        let mut output = output;
        while let Some(message) = messages.recv().await {
            if let Err(error) = write_counted(&mut output, &message, &left).await {
                // Nobody reads what is left.
                messages.close();
                left.less(usize::MAX);
                return Err(error);
            }
        }
        Ok(())
    };
    (Lines { inner, sender: Some(sender), unwritten: unwritten.clone() }, write, unwritten)
}

async fn write_counted(output: &mut (impl AsyncWrite + Unpin), mut rest: &[u8], left: &Unwritten) -> io::Result<()> {
    while !rest.is_empty() {
        let count = output.write(rest).await?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        left.less(count);
        rest = &rest[count..];
    }
    output.flush().await
}

/// See [`open`].
pub(super) struct Lines<R: AsyncRead> {
    inner: AsyncRwTransport<RoleServer, R, Into>,
    sender: Option<mpsc::Sender<Vec<u8>>>,
    unwritten: Unwritten,
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Lines<R> {
    type Error = io::Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (sender, unwritten) = (self.sender.clone(), self.unwritten.clone());
        async move {
            let message = line(item)?;
            let sender = sender.ok_or(io::ErrorKind::NotConnected)?;
            let length = message.len();
            unwritten.more(length);
            sender.send(message).await.map_err(|_| {
                unwritten.less(length);
                io::ErrorKind::BrokenPipe.into()
            })
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        self.inner.receive().await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.sender = None;
        self.inner.close().await
    }
}

/// A message with its line end.
fn line(mut item: TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
    let envelope = take_envelope(&mut item);
    let mut shell = serde_json::to_string(&item)?;
    shell.push('\n');
    let Some(envelope) = envelope else { return Ok(shell.into_bytes()) };
    // A quote in anybody's string is escaped, so neither of the two can be part of one.
    let place = |name: &str| shell.find(name).ok_or_else(|| io::Error::other("the result has another form"));
    let (text, structure) = (place(TEXT)?, place(STRUCTURE)?);
    let text = text + TEXT.len() - 2..text + TEXT.len();
    let structure = structure + STRUCTURE.len() - 2..structure + STRUCTURE.len();
    if text.end > structure.start {
        return Err(io::Error::other("the result has another order"));
    }
    // Most of an envelope is text, of which some is escaped once more.
    let mut out = Vec::with_capacity(shell.len() + envelope.len() * 9 / 4);
    out.extend_from_slice(&shell.as_bytes()[..text.start]);
    escape_json(&envelope, &mut out)?;
    out.extend_from_slice(&shell.as_bytes()[text.end..structure.start]);
    out.extend_from_slice(envelope.as_bytes());
    out.extend_from_slice(&shell.as_bytes()[structure.end..]);
    Ok(out)
}

/// Writes a text that is JSON as a JSON string. It has no control characters but, at most, blanks between its parts, so nothing but
/// quotes and backslashes is escaped.
fn escape_json(text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    if text.bytes().any(|byte| byte < b' ') {
        return Ok(serde_json::to_writer(out, text)?);
    }
    let bytes = text.as_bytes();
    let mut begin = 0;
    out.push(b'"');
    for at in memchr::memchr2_iter(b'"', b'\\', bytes) {
        out.extend_from_slice(&bytes[begin..at]);
        out.push(b'\\');
        begin = at;
    }
    out.extend_from_slice(&bytes[begin..]);
    out.push(b'"');
    Ok(())
}

/// The envelope of a result made by [`twice`]; the message has none then.
fn take_envelope(item: &mut TxJsonRpcMessage<RoleServer>) -> Option<String> {
    let JsonRpcMessage::Response(response) = item else { return None };
    let ServerResult::CallToolResult(result) = &mut response.result else { return None };
    match (result.content.as_mut_slice(), &result.structured_content) {
        ([ContentBlock::Text(text)], Some(Value::Object(none))) if none.is_empty() => Some(std::mem::take(&mut text.text)),
        _ => None,
    }
}

/// The way of the messages that rmcp writes itself into the same queue. Each comes in one piece.
struct Into {
    sender: PollSender<Vec<u8>>,
    unwritten: Unwritten,
}

fn gone<T>(_: T) -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

impl AsyncWrite for Into {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.sender.poll_reserve(context)).map_err(gone)?;
        self.unwritten.more(bytes.len());
        self.sender.send_item(bytes.to_vec()).map_err(gone)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.sender.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rmcp::model::RequestId;
    use serde_json::json;

    #[test]
    fn a_result_written_at_once_is_the_result_taken_apart() {
        for (success, text) in [(true, "a\n\"q\" \\ é \u{1} \"text\":\"\" "), (false, "\"structuredContent\":{}"), (true, "")] {
            let envelope = json!({ "success": success, "data": { "text": text, "n": [1, null] }, "error": null });
            for id in [RequestId::Number(7), RequestId::String("\"text\":\"\",\"structuredContent\":{}".into())] {
                let message = |result| TxJsonRpcMessage::<RoleServer>::response(ServerResult::CallToolResult(result), id.clone());
                let mut apart = twice(envelope.to_string(), success);
                apart.structured_content = Some(envelope.clone());
                let at_once = line(message(twice(envelope.to_string(), success))).unwrap();
                assert_eq!(at_once.iter().filter(|byte| **byte == b'\n').count(), 1);
                let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
                assert_eq!(read(&at_once), read(&line(message(apart)).unwrap()));
            }
        }
    }

    #[test]
    fn json_is_escaped_as_any_text_is() {
        for text in ["", "{}", r#"{"a":"\\\"\n é \u0001"}"#, "{\"a\":\t1}", "\u{1}\"\\", "\u{7f}\u{2028}\\"] {
            let mut out = Vec::new();
            escape_json(text, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(text).unwrap());
        }
    }

    #[tokio::test]
    async fn what_cannot_be_understood_is_answered_between_whole_messages() {
        let (mut to, input) = tokio::io::duplex(1 << 16);
        let (output, mut from) = tokio::io::duplex(64);
        let (mut lines, write, unwritten) = open(input, output, 1 << 16);
        to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}\n").await.unwrap();
        drop(to);
        let large = twice(json!({ "success": true, "data": { "text": "x".repeat(100_000) }, "error": null }).to_string(), true);
        let large = TxJsonRpcMessage::<RoleServer>::response(ServerResult::CallToolResult(large), RequestId::Number(1));
        let talk = async move {
            let sent = lines.send(large);
            let (sent, received) = tokio::join!(sent, lines.receive());
            sent.unwrap();
            assert!(received.is_none());
        };
        let read = async {
            let mut all = Vec::new();
            tokio::io::AsyncReadExt::read_to_end(&mut from, &mut all).await.unwrap();
            all
        };
        let (all, written, ()) = tokio::join!(read, write, talk);
        written.unwrap();
        assert_eq!(unwritten.bytes(), 0);
        let lines: Vec<Value> =
            all.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_slice(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines.iter().any(|line| line["error"]["code"] == -32600) && lines.iter().any(|line| line["id"] == 1));
    }
}
