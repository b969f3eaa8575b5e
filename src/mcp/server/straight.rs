//! Calls of tools on stdio take a straight way from the reader to the session and back to the writer, which is most of what a small call
//! costs. Everything else of the protocol, and a call that wants more than its answer, goes on to rmcp byte for byte.
//!
//! Takes no message that it does not understand to the last key, none before the peer has begun a session, and none that rmcp would answer
//! in another way.

use super::desk::{Desk, answer};
use super::lines::{self, Direct};
use super::oversize::Passing;
use crate::session::{Call, Session};
use crate::tools::{self, Answer, AnyTool};
use futures_util::StreamExt;
use futures_util::future::Either;
use futures_util::stream::FuturesUnordered;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use rmcp::model::{ConstString, ErrorCode, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;

/// The longest message that is looked at.
const LONGEST: usize = 64 * 1024;

/// How much of what is not ours waits for rmcp to read it, and how much is read at once.
const PIECE: usize = 16 * 1024;

/// How many bytes of answers may wait for a slow reader before more calls are heard.
const UNREAD: usize = 16 << 20;

/// A peer has begun a session of the era in which a call needs nothing but itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Begun(Arc<AtomicBool>);

impl Begun {
    pub(super) fn now(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long this thread, which has nothing else to do, waits for the next call after one: who reads several files asks soon, and the way
/// through the runtime costs a tenth of a small call.
const SOON: Duration = Duration::from_millis(1);

/// The reader of the input.
pub(super) struct Straight<R> {
    input: R,
    /// The input itself, which does not block.
    fd: Option<OwnedFd>,
    /// `None`: rmcp hears nothing more.
    rest: Option<DuplexStream>,
    begun: Begun,
    tools: Vec<&'static dyn AnyTool>,
    buffer: Vec<u8>,
    /// Where in the buffer the message begins that is read.
    start: usize,
    /// How much of it has been looked through for its end.
    seen: usize,
    /// How many bytes from its beginning on are rmcp's.
    forward: usize,
    /// It is a long one, whose end has not come yet.
    long: Option<Passing>,
    /// Longer ones are too long for rmcp, which passes over them.
    most: usize,
    /// One of these has gone by, and this is its id.
    too_long: Option<Value>,
}

/// What a request gets that is too long to be read.
fn too_long(id: &Value) -> Vec<u8> {
    let says = format!("the request is longer than {} MiB: send what it holds in parts", super::MOST_LINE >> 20);
    let error = json!({ "jsonrpc": "2.0", "id": id, "error": { "code": ErrorCode::INVALID_REQUEST.0, "message": says } });
    format!("{error}\n").into_bytes()
}

/// What the reader found.
enum Found {
    Call(Call, RequestId, Box<RawValue>),
    /// A peer does not want the answer with this id any more.
    Cancelled(RequestId),
    /// A request with this id was too long.
    TooLong(Value),
    /// The input is at its end.
    End,
}

/// A reader of this input, and what rmcp reads instead of it.
pub(super) fn open<R: AsyncRead + Unpin>(
    (input, fd): (R, Option<OwnedFd>),
    begun: Begun,
    tools: &[&'static dyn AnyTool],
    most: usize,
) -> (Straight<R>, DuplexStream) {
    let (rest, theirs) = tokio::io::duplex(PIECE);
    let tools = tools.to_vec();
    let (rest, buffer) = (Some(rest), Vec::new());
    (Straight { input, fd, rest, begun, tools, buffer, start: 0, seen: 0, forward: 0, long: None, most, too_long: None }, theirs)
}

impl<R: AsyncRead + Unpin> Straight<R> {
    /// Dropped before it is ready, nothing is lost.
    async fn next(&mut self, waits: &Waits) -> Found {
        loop {
            while self.forward > 0 {
                let bytes = &self.buffer[self.start..self.start + self.forward];
                let written = match &mut self.rest {
                    // Who reads nothing more has ended; its peer is told so by the end of everything.
                    Some(rest) => rest.write(bytes).await.unwrap_or(bytes.len()),
                    None => bytes.len(),
                };
                self.forward -= written;
                self.pass(written);
            }
            if let Some(id) = self.too_long.take() {
                return Found::TooLong(id);
            }
            let message = &self.buffer[self.start..];
            match memchr::memchr(b'\n', &message[self.seen..]) {
                Some(at) => {
                    let length = self.seen + at + 1;
                    let found = match self.long.take() {
                        Some(mut passing) => {
                            passing.piece(&message[..length]);
                            self.too_long = passing.id().filter(|_| passing.length() > self.most);
                            None
                        }
                        None => self.look(&message[..length]),
                    };
                    match found {
                        Some(Found::Cancelled(id)) if !waits.has(&id) => self.forward = length,
                        Some(found) => {
                            self.pass(length);
                            return found;
                        }
                        None => self.forward = length,
                    }
                }
                None if message.len() > LONGEST => {
                    self.long.get_or_insert_default().piece(message);
                    self.forward = message.len();
                }
                None => {
                    self.seen = message.len();
                    self.buffer.drain(..self.start);
                    self.start = 0;
                    self.buffer.reserve(PIECE);
                    match self.input.read_buf(&mut self.buffer).await {
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Ok(1..) => {}
                        // What has no line end is not ours, and an error is an end.
                        _ if !self.buffer.is_empty() => self.forward = self.buffer.len(),
                        _ => {
                            self.rest = None;
                            return Found::End;
                        }
                    }
                }
            }
        }
    }

    /// Reads what comes in the next moment, where nothing else is to be done meanwhile.
    fn read_soon(&mut self) {
        let Some(fd) = &self.fd else { return };
        let mut ready = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
        if !matches!(ppoll(&mut ready, Some(TimeSpec::from_duration(SOON)), None), Ok(1..)) {
            return;
        }
        // The runtime reads the end, an error, and what is more than this.
        let mut bytes = [0; 4096];
        if let Ok(count @ 1..) = nix::unistd::read(fd, &mut bytes) {
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }

    /// The next message begins so many bytes further on.
    fn pass(&mut self, length: usize) {
        self.start += length;
        self.seen = 0;
    }

    /// What this line is, if it is ours.
    fn look(&self, line: &[u8]) -> Option<Found> {
        if line.len() > LONGEST || !self.begun.0.load(Ordering::Relaxed) {
            return None;
        }
        let Message { jsonrpc, id, method, params } = serde_json::from_slice(line).ok()?;
        if jsonrpc != "2.0" {
            return None;
        }
        match (id, method.as_ref()) {
            (Some(raw), rmcp::model::CallToolRequestMethod::VALUE) => {
                let id = request_id(raw)?;
                let Params { name, arguments, meta } = serde_json::from_str(params?.get()).ok()?;
                // Who wants to hear how a call goes on, or says of itself what it is, is rmcp's.
                if meta.is_some_and(|meta| meta.keys().any(|key| key == "progressToken" || key.starts_with("io.modelcontextprotocol/"))) {
                    return None;
                }
                let tool = tools::find(&self.tools, &name)?;
                let args = arguments.map_or(Value::Null, Value::Object);
                Some(Found::Call(Call { id: id.to_string(), tool: tool.name().into(), args }, id, raw.to_owned()))
            }
            (None, rmcp::model::CancelledNotificationMethod::VALUE) => {
                let Cancelled { request } = serde_json::from_str(params?.get()).ok()?;
                Some(Found::Cancelled(request_id(request)?))
            }
            _ => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message<'a> {
    #[serde(borrow)]
    jsonrpc: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    arguments: Option<Map<String, Value>>,
    #[serde(rename = "_meta")]
    meta: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
struct Cancelled<'a> {
    #[serde(borrow, rename = "requestId")]
    request: &'a RawValue,
}

/// An id as rmcp takes it: a whole number or a string.
fn request_id(raw: &RawValue) -> Option<RequestId> {
    serde_json::from_str(raw.get()).ok()
}

/// What stands around the envelope in the answer to a call, after the id; of a success, or of a failure.
fn around(success: bool) -> Option<[&'static str; 3]> {
    static BOTH: [OnceLock<Option<[String; 3]>>; 2] = [OnceLock::new(), OnceLock::new()];
    let around = BOTH[usize::from(success)].get_or_init(|| lines::around(success));
    around.as_ref().map(|around| around.each_ref().map(String::as_str))
}

/// The line that answers a call.
fn line(id: &RawValue, answer: &Answer, room: impl FnOnce(usize) -> Vec<u8>) -> Option<Vec<u8>> {
    let around = around(answer.envelope.success())?;
    let envelope = answer.envelope.parts();
    let mut out = room(256 + lines::room_of(&envelope));
    out.extend_from_slice(lines::BEFORE_ID.as_bytes());
    out.extend_from_slice(id.get().as_bytes());
    lines::fill(&mut out, around, &envelope);
    Some(out)
}

/// The calls that are being answered. Few: a list is quicker than anything else.
#[derive(Default)]
struct Waits(RefCell<Vec<(RequestId, u64, oneshot::Sender<()>)>>, Cell<u64>);

impl Waits {
    /// Notes a call. Returns its number and what ends when it is cancelled: two may have one id, of a peer that counts wrong.
    fn add(&self, id: RequestId) -> (u64, oneshot::Receiver<()>) {
        let (cancel, cancelled) = oneshot::channel();
        self.1.set(self.1.get() + 1);
        self.0.borrow_mut().push((id, self.1.get(), cancel));
        (self.1.get(), cancelled)
    }

    fn has(&self, id: &RequestId) -> bool {
        self.0.borrow().iter().any(|(one, ..)| one == id)
    }

    fn cancel(&self, id: &RequestId) {
        self.0.borrow_mut().retain(|(one, ..)| one != id);
    }

    fn over(&self, number: u64) {
        self.0.borrow_mut().retain(|(_, one, _)| *one != number);
    }
}

/// Serves the calls of both ways, until all of them are over and no more can come, or `grace` after the end of the input.
pub(super) async fn serve<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    session: &Session,
    Desk { mut jobs }: Desk,
    mut input: Straight<R>,
    output: Direct<W>,
    grace: Duration,
) {
    let waits = Waits::default();
    let perform = async |call: Call, (number, cancelled): (u64, oneshot::Receiver<()>), raw: Box<RawValue>| {
        let answer = tokio::select! {
            biased;
            answer = session.call(call) => Some(answer),
            _ = cancelled => None,
        };
        waits.over(number);
        if let Some(line) = answer.and_then(|answer| line(&raw, &answer, |bytes| output.room(bytes))) {
            output.say(line).await;
        }
    };
    let mut running = FuturesUnordered::new();
    let (mut answered, mut settled) = (false, false);
    let (mut others, mut more) = (true, true);
    let late = tokio::time::sleep(Duration::ZERO);
    tokio::pin!(late);
    loop {
        if running.is_empty() {
            if !others {
                return;
            }
            if std::mem::take(&mut answered) {
                input.read_soon();
            }
        }
        tokio::select! {
            job = jobs.recv(), if others => match job {
                Some(job) => running.push(Either::Left(answer(session, job))),
                None => others = false,
            },
            found = output.unless_behind(UNREAD, input.next(&waits)), if others && more => match found {
                // Noted at once: what cancels it may be the next line.
                Found::Call(call, id, raw) => running.push(Either::Right(perform(call, waits.add(id), raw))),
                Found::Cancelled(id) => waits.cancel(&id),
                Found::TooLong(id) => output.say(too_long(&id)).await,
                Found::End => {
                    more = false;
                    late.as_mut().reset(tokio::time::Instant::now() + grace);
                }
            },
            Some(()) = running.next() => {
                answered = true;
                // The first call makes the jail that all others are answered by.
                if !std::mem::replace(&mut settled, true) {
                    Session::forget_start();
                }
            }
            () = &mut late, if !more => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::TOOLS;

    /// What is called, as `TOOL ID`, what is cancelled, as `-ID`, and what is left to rmcp.
    async fn read(begun: bool, input: &[u8], piece: usize, waits: &Waits) -> (Vec<String>, String) {
        let (mut to, from) = tokio::io::duplex(piece);
        let flag = Begun::default();
        if begun {
            flag.now();
        }
        let (mut straight, mut rest) = open((from, None), flag, TOOLS, 2 * LONGEST);
        let write = async {
            to.write_all(input).await.unwrap();
            drop(to);
        };
        let find = async {
            let mut found = Vec::new();
            loop {
                match straight.next(waits).await {
                    Found::Call(call, _, id) => found.push(format!("{} {}", call.tool, id.get())),
                    Found::Cancelled(id) => found.push(format!("-{id}")),
                    Found::TooLong(id) => found.push(format!("too long {id}")),
                    Found::End => return found,
                }
            }
        };
        let mut left = String::new();
        let ((), found, _) = tokio::join!(write, find, rest.read_to_string(&mut left));
        (found, left)
    }

    #[tokio::test]
    async fn only_what_is_understood_to_the_last_key_is_taken() {
        let call = |inner: &str| format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{{{inner}}}}}"#);
        let taken = [
            (call(r#""name":"read","arguments":{"path":"a"}"#), "read 7"),
            (call(r#""arguments":{"path":"\u0061\n"},"name":"cat""#), "read 7"),
            (call(r#""name":"ls""#), "ls 7"),
            (call(r#""name":"ls","arguments":null,"_meta":{"com.example/id":"x"}"#), "ls 7"),
            (r#" { "method" : "tools/call", "id":"a\"b", "params":{"name":"ls"}, "jsonrpc":"2.0"} "#.into(), r#"ls "a\"b""#),
            (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3,"reason":"x"}}"#.into(), "-3"),
        ];
        let left = [
            call(r#""name":"read","arguments":["a"]"#),
            call(r#""name":"nothing","arguments":{}"#),
            call(r#""name":"read","name":"read""#),
            call(r#""name":"read","task":{}"#),
            call(r#""name":"read","_meta":{"progressToken":1}"#),
            call(r#""name":"read","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#),
            call(r#""name":"ls""#).replace("2.0", "1.0"),
            call(r#""name":"ls""#).replace(":7", ":7.5"),
            call(r#""name":"ls""#).replace(":7", ":null"),
            call(r#""name":"ls""#).replace(":7", ":7,\"more\":1"),
            call(r#""name":"ls""#).replace(r#""id":7,"#, ""),
            call(r#""name":"ls""#).replace("tools/call", "tools/list"),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4}}"#.into(),
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.into(),
            format!("[{}]", call(r#""name":"ls""#)),
            call(&format!(r#""name":"write","arguments":{{"path":"a","content":"{}"}}"#, "x".repeat(LONGEST))),
            "nothing".into(),
            String::new(),
        ];
        let waits = Waits::default();
        let _waiting = waits.add(RequestId::Number(3));
        let (mut all, mut theirs, mut ours) = (String::new(), String::new(), Vec::new());
        for (index, line) in left.iter().enumerate() {
            let (text, is) = &taken[index % taken.len()];
            all.push_str(&format!("{text}\n{line}\n"));
            theirs.push_str(&format!("{line}\n"));
            ours.push((*is).to_owned());
        }
        let last = call(r#""name":"ls""#);
        for piece in [1 << 20, 4096, 61, 1] {
            let (found, rest) = read(true, format!("{all}{last}").as_bytes(), piece, &waits).await;
            assert_eq!((found, rest), (ours.clone(), format!("{theirs}{last}")), "in pieces of {piece}");
        }
        // Nothing is taken before a session has begun.
        assert_eq!(read(false, all.as_bytes(), 4096, &waits).await, (Vec::new(), all));
    }

    #[tokio::test]
    async fn a_request_that_is_too_long_is_answered_and_the_next_one_is_read() {
        for begun in [false, true] {
            for (longer, is) in [(0, &["ls 8"][..]), (1, &["too long 7", "ls 8"])] {
                let mut message = String::from(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":""#);
                message += &"x".repeat(2 * LONGEST + longer - message.len() - 3);
                message += "\"}\n";
                message += "{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"tools/call\",\"params\":{\"name\":\"ls\"}}\n";
                let (found, left) = read(begun, message.as_bytes(), 4096, &Waits::default()).await;
                assert_eq!(found, is.iter().filter(|found| begun || !found.starts_with("ls")).copied().collect::<Vec<_>>());
                assert!(left.len() >= 2 * LONGEST + longer, "rmcp counts as well");
            }
        }
    }

    #[test]
    fn an_answer_is_the_one_that_takes_the_other_way() {
        use rmcp::model::{JsonRpcMessage, ServerResult};
        let fault = crate::envelope::Fault::new(crate::envelope::FaultCode::NotFound, "a \"quoted\"\nname").hint("\u{1}");
        let success = Answer { envelope: Ok([("text".to_owned(), "a\n\"b\"\\".into())].into_iter().collect()).into(), text: String::new() };
        for answer in [success, Answer::failed(fault)] {
            let mut result = super::super::result(&answer);
            result.result_type = None;
            let message: rmcp::service::TxJsonRpcMessage<rmcp::RoleServer> =
                JsonRpcMessage::response(ServerResult::CallToolResult(result), RequestId::String("a\"".into()));
            let id = serde_json::value::to_raw_value("a\"").unwrap();
            let line = String::from_utf8(line(&id, &answer, Vec::with_capacity).unwrap()).unwrap();
            assert_eq!(line, serde_json::to_string(&message).unwrap() + "\n");
        }
    }
}
