//! Messages as lines, on stdio.
//!
//! Reading is rmcp's. Writing is here, for one reason: the envelope of a tool's answer is text already, and goes out as it is, twice (as
//! structure, and escaped as text), without being taken apart. Never writes a part of one message into another: all messages take one way.

use crate::envelope::scan::write_inner;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::PollSender;

/// How many messages wait to be written; who has more to say waits as well.
const QUEUE: usize = 16;

/// The most bytes of memory that wait for the next message.
const SPARE: usize = 64 * 1024;

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

/// The transport, what writes its messages until the transport and the direct way are gone, that way, and how much is still to be written.
pub(super) fn open<R: AsyncRead + Send + Unpin, W: AsyncWrite + Unpin>(
    input: R,
    output: W,
    longest: usize,
) -> (Lines<R>, impl Future<Output = io::Result<()>>, Direct<W>, Unwritten) {
    let (sender, mut messages) = mpsc::channel::<Vec<u8>>(QUEUE);
    let unwritten = Unwritten::default();
    let inner = Into { sender: PollSender::new(sender.clone()), unwritten: unwritten.clone() };
    let inner = AsyncRwTransport::new(input, inner).with_max_line_length(longest);
    let out = Out { output, queue: VecDeque::new(), done: 0, broken: false, unwritten: unwritten.clone(), writer: None, spare: Vec::new() };
    let direct = Direct { out: Rc::new(RefCell::new(out)), _open: sender.clone() };
    let out = direct.out.clone();
    let write = std::future::poll_fn(move |context| {
        loop {
            let mut out = out.borrow_mut();
            out.writer = Some(context.waker().clone());
            match out.poll_drain(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => {
                    // Nobody reads what is left.
                    messages.close();
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Ok(())) => {}
            }
            match ready!(messages.poll_recv(context)) {
                Some(message) => out.queue.push_back(message),
                None => return Poll::Ready(Ok(())),
            }
        }
    });
    (Lines { inner, sender: Some(sender), unwritten: unwritten.clone() }, write, direct, unwritten)
}

/// The output, and what it has not taken yet.
struct Out<W> {
    output: W,
    queue: VecDeque<Vec<u8>>,
    /// How much of the first message has been written.
    done: usize,
    broken: bool,
    unwritten: Unwritten,
    /// Who writes what is left, when the output takes more.
    writer: Option<Waker>,
    /// Memory for the next message.
    spare: Vec<u8>,
}

impl<W: AsyncWrite + Unpin> Out<W> {
    fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(message) = self.queue.front() {
            let written = match ready!(Pin::new(&mut self.output).poll_write(context, &message[self.done..])) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                other => other,
            };
            match written {
                Ok(count) => {
                    self.unwritten.less(count);
                    self.done += count;
                    if self.done == message.len() {
                        self.spare = self.queue.pop_front().filter(|message| message.capacity() <= SPARE).unwrap_or_default();
                        self.done = 0;
                    }
                }
                Err(error) => {
                    self.broken = true;
                    self.queue.clear();
                    self.unwritten.less(usize::MAX);
                    return Poll::Ready(Err(error));
                }
            }
        }
        Pin::new(&mut self.output).poll_flush(context)
    }
}

/// The way of a message that needs no transport: what the output takes at once goes out at once, in its turn.
pub(super) struct Direct<W> {
    out: Rc<RefCell<Out<W>>>,
    /// While this is there, somebody writes what the output did not take.
    _open: mpsc::Sender<Vec<u8>>,
}

impl<W: AsyncWrite + Unpin> Direct<W> {
    /// Memory for a message.
    pub(super) fn room(&self, bytes: usize) -> Vec<u8> {
        let mut room = std::mem::take(&mut self.out.borrow_mut().spare);
        room.clear();
        room.reserve(bytes);
        room
    }

    /// Says a whole message.
    pub(super) async fn say(&self, message: Vec<u8>) {
        let mut message = Some(message);
        std::future::poll_fn(|context| {
            let mut out = self.out.borrow_mut();
            if let Some(message) = message.take()
                && !out.broken
            {
                out.unwritten.more(message.len());
                out.queue.push_back(message);
                // Of several, the first is somebody's already, and an error is the writer's.
                if (out.queue.len() > 1 || !matches!(out.poll_drain(context), Poll::Ready(Ok(()))))
                    && let Some(writer) = &out.writer
                {
                    writer.wake_by_ref();
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits for `more` only while no more bytes than this are unwritten.
    pub(super) async fn unless_behind<T>(&self, most: usize, more: impl Future<Output = T>) -> T {
        tokio::pin!(more);
        std::future::poll_fn(|context| {
            // Whoever writes wakes the same task.
            if self.out.borrow().unwritten.bytes() > most { Poll::Pending } else { more.as_mut().poll(context) }
        })
        .await
    }
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
    let around = parted(&shell).ok_or_else(|| io::Error::other("the result has another form"))?;
    let mut out = Vec::with_capacity(shell.len() + room_of(&[envelope.as_str()]));
    fill(&mut out, around, &[envelope.as_str()]);
    Ok(out)
}

/// How many bytes the two places of an envelope take: most of it is text, of which some is escaped once more.
pub(super) fn room_of(envelope: &[impl AsRef<str>]) -> usize {
    envelope.iter().map(|part| part.as_ref().len()).sum::<usize>() * 9 / 4
}

/// Writes what stands around the two places of an envelope, and it, in parts, into both: as a string, and as it is.
pub(super) fn fill(out: &mut Vec<u8>, [before, between, after]: [&str; 3], envelope: &[impl AsRef<str>]) {
    out.extend_from_slice(before.as_bytes());
    out.push(b'"');
    envelope.iter().for_each(|part| write_inner(part.as_ref(), out));
    out.push(b'"');
    out.extend_from_slice(between.as_bytes());
    envelope.iter().for_each(|part| out.extend_from_slice(part.as_ref().as_bytes()));
    out.extend_from_slice(after.as_bytes());
}

/// What stands before, between and after the two places of an envelope.
fn parted(shell: &str) -> Option<[&str; 3]> {
    // A quote in anybody's string is escaped, so neither of the two can be part of one.
    let text = shell.find(TEXT)? + TEXT.len() - 2;
    let structure = shell.find(STRUCTURE)? + STRUCTURE.len() - 2;
    Some([&shell[..text], shell.get(text + 2..structure)?, &shell[structure + 2..]])
}

/// What any answer to a call begins with, before its id.
pub(super) const BEFORE_ID: &str = r#"{"jsonrpc":"2.0","id":"#;

/// What stands after the id, between the two places of an envelope, and after them, in an answer to a peer of the older era.
pub(super) fn around(success: bool) -> Option<[String; 3]> {
    let mut result = twice(String::new(), success);
    result.result_type = None;
    let message = TxJsonRpcMessage::<RoleServer>::response(ServerResult::CallToolResult(result), RequestId::Number(0));
    let shell = serde_json::to_string(&message).ok()? + "\n";
    let [before, between, after] = parted(&shell)?;
    Some([before.strip_prefix(BEFORE_ID)?.strip_prefix('0')?.to_owned(), between.to_owned(), after.to_owned()])
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
    use serde_json::json;
    use tokio::io::AsyncWriteExt;

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

    #[tokio::test]
    async fn what_cannot_be_understood_is_answered_between_whole_messages() {
        let (mut to, input) = tokio::io::duplex(1 << 16);
        let (output, mut from) = tokio::io::duplex(64);
        let (mut lines, write, direct, unwritten) = open(input, output, 1 << 16);
        to.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}\n").await.unwrap();
        drop(to);
        drop(direct);
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
