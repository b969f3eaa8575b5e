//! The one answer that every tool call gives: `{success, data, error}`.
//!
//! An [`Envelope`] is built from a `Result<Data, Fault>`, or from the facts of a success, so a failure that has no code and a
//! success that carries an error cannot be written; one that came over a wire is checked for that. The three keys are always there, in
//! this order.

mod facts;
pub(crate) mod scan;

use facts::Facts;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The facts of a successful call: a JSON object, keys in the order in which they are declared.
pub type Data = Map<String, Value>;

/// What every tool call answers with.
///
/// Success: `data` is an object and `error` is null. Failure: `error` is one sentence that begins with the code
/// (`outside_workspace: …`) and `data` is an object with `code`, optional `hint` and whatever is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    success: bool,
    data: Facts,
    error: Option<String>,
}

/// How many bytes of facts there is room for at first.
const LEAST_LENGTH: usize = 512;
const MOST_LENGTH: usize = 256 * 1024;

thread_local! {
    static LENGTH: Cell<usize> = const { Cell::new(LEAST_LENGTH) };
}

impl Envelope {
    /// The envelope of a success whose facts are written as text once, and read only if somebody looks at them.
    ///
    /// # Errors
    /// A sentence: they are no object, or cannot be written.
    pub fn written(facts: &impl Serialize) -> Result<Self, String> {
        // Answers of one process are often of one size: room for the last one's is taken at once.
        let mut text = Vec::with_capacity(LENGTH.get());
        serde_json::to_writer(&mut text, facts).map_err(|error| error.to_string())?;
        LENGTH.set(text.len().clamp(LEAST_LENGTH, MOST_LENGTH));
        if !text.starts_with(b"{") {
            return Err("the result is not an object".into());
        }
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        Ok(Self { success: true, data: Facts::own(text), error: None })
    }

    /// An envelope that came over a wire, its facts still as text. The text is checked to be one line of JSON that can be read; use
    /// [`Envelope::check`] for the rest.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the text.
    pub fn received(success: bool, data: String, error: Option<String>) -> Result<Self, String> {
        Ok(Self { success, data: Facts::foreign(data)?, error })
    }

    /// The facts as one JSON text.
    pub fn facts(&self) -> Cow<'_, str> {
        self.data.text()
    }

    /// The envelope as one JSON text.
    pub fn json(&self) -> String {
        self.parts().concat()
    }

    /// Parts that make one JSON text together.
    pub(crate) fn parts(&self) -> [Cow<'_, str>; 4] {
        let head = if self.success { r#"{"success":true,"data":"# } else { r#"{"success":false,"data":"# };
        let error = self.error.as_ref().map_or(Cow::Borrowed("null}"), |error| Cow::Owned(Value::String(error.clone()).to_string() + "}"));
        [head.into(), self.data.text(), r#","error":"#.into(), error]
    }

    /// Whether the tool did what was asked. A command that ended by itself with exit code 1 is a success.
    pub fn success(&self) -> bool {
        self.success
    }

    /// The facts: of the success, or what is known about the failure.
    pub fn data(&self) -> &Value {
        self.data.value()
    }

    /// The sentence for people, beginning with the code; `None` on success.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// The code of a failure; `None` on success.
    pub fn code(&self) -> Option<FaultCode> {
        if self.success {
            return None;
        }
        self.data().get("code").and_then(|code| FaultCode::deserialize(code).ok())
    }

    /// Adds one warning to `data.warnings`: what was repaired or ignored in the call.
    pub fn warn(&mut self, warning: impl Into<String>) {
        let warning = Value::String(warning.into());
        self.data.change(|data| {
            if let Value::Object(data) = data
                && let Value::Array(list) = data.entry("warnings").or_insert_with(|| Value::Array(Vec::new()))
            {
                list.push(warning);
            }
        });
    }

    /// Checks the shape of an envelope that came over a wire: three keys, and the two forms of the contract.
    ///
    /// # Errors
    /// A sentence that says which part of the contract is broken.
    pub fn check(&self) -> Result<(), String> {
        if self.success && self.error.is_none() && self.data.is_object_text() {
            return Ok(());
        }
        let Value::Object(data) = self.data() else { return Err("data is not an object".into()) };
        match (self.success, &self.error) {
            (true, None) => Ok(()),
            (true, Some(_)) => Err("a success carries an error".into()),
            (false, None) => Err("a failure carries no error".into()),
            (false, Some(error)) => match self.code() {
                None => Err("a failure carries no known code".into()),
                Some(code) if !error.starts_with(&format!("{code}: ")) => Err("the error does not begin with its code".into()),
                Some(_) if data.get("hint").is_some_and(|hint| !hint.is_string()) => Err("the hint is not a string".into()),
                Some(_) => Ok(()),
            },
        }
    }
}

impl From<Result<Data, Fault>> for Envelope {
    fn from(result: Result<Data, Fault>) -> Self {
        match result {
            Ok(data) => Self { success: true, data: Value::Object(data).into(), error: None },
            Err(fault) => {
                let error = fault.to_string();
                let mut data = Map::new();
                data.insert("code".into(), Value::String(fault.code.as_str().into()));
                if let Some(hint) = fault.detail.hint {
                    data.insert("hint".into(), Value::String(hint));
                }
                data.extend(fault.detail.data);
                Self { success: false, data: Value::Object(data).into(), error: Some(error) }
            }
        }
    }
}

/// Why a call failed: a closed code for machines, a sentence for people, a hint for what to do next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    code: FaultCode,
    // Boxed: a fault travels in every `Result` of the program, and should cost the good path little.
    detail: Box<Detail>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Detail {
    message: String,
    hint: Option<String>,
    data: Data,
    text: Option<String>,
}

impl Fault {
    /// A fault with its sentence. The sentence does not repeat the code.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        // What the standard library adds to an error of the system's for programmers.
        while let Some(at) = message.find(" (os error ")
            && let Some(length) = message[at..].find(')')
        {
            message.replace_range(at..=at + length, "");
        }
        Self { code, detail: Box::new(Detail { message, hint: None, data: Data::new(), text: None }) }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.detail.hint = Some(hint.into());
        self
    }

    /// Adds a fact under `data`. The keys `code` and `hint` are the fault's own and are not replaced.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        if key != "code" && key != "hint" {
            self.detail.data.insert(key.into(), value.into());
        }
        self
    }

    /// Adds every fact of a struct that serialises to an object (a partial result, say).
    #[must_use]
    pub fn with_all(mut self, facts: &impl Serialize) -> Self {
        if let Ok(Value::Object(facts)) = serde_json::to_value(facts) {
            for (key, value) in facts {
                self = self.with(&key, value);
            }
        }
        self
    }

    /// Gives the text that a model sees of the facts, where listing them by key would not do (a command's output, say).
    #[must_use]
    pub fn shown_as(mut self, text: impl Into<String>) -> Self {
        self.detail.text = Some(text.into());
        self
    }

    /// The text given to [`Fault::shown_as`].
    pub fn text(&self) -> Option<&str> {
        self.detail.text.as_deref()
    }

    /// The code.
    pub fn code(&self) -> FaultCode {
        self.code
    }

    /// The sentence, without the code.
    pub fn message(&self) -> &str {
        &self.detail.message
    }

    /// What to do next, where it is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.detail.hint.as_deref()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail.message)
    }
}

impl std::error::Error for Fault {}

/// Who is at the origin of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The call itself: its name, its arguments, its form.
    Call,
    /// The workspace as it is on disk.
    Workspace,
    /// The program that a command ran, or a limit that it met.
    Process,
    /// The policy or the kernel's confinement.
    Sandbox,
    /// bailiwick: a jail that died, a broken wire, a bug.
    Ourselves,
}

macro_rules! fault_codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal : $origin:ident,)+) => {
        /// Every code that a fault can have. The names are stable; each has one origin.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum FaultCode {
            $($(#[doc = $doc])+ #[serde(rename = $text)] $name,)+
        }

        impl FaultCode {
            /// All codes, in the order in which they are documented.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The stable snake_case name.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }

            /// Who is at the origin of a fault with this code.
            pub fn origin(self) -> Origin {
                match self { $(Self::$name => Origin::$origin,)+ }
            }
        }
    };
}

fault_codes! {
    /// The arguments do not fit the tool's schema; the sentence shows a call that does.
    InvalidArguments = "invalid_arguments" : Call,
    /// The call could not be parsed (broken JSON, an unclosed `[TOOL]`); nothing was run.
    MalformedCall = "malformed_call" : Call,
    /// No tool has this name in this session.
    UnknownTool = "unknown_tool" : Call,
    /// A regular expression or glob that does not parse.
    InvalidPattern = "invalid_pattern" : Call,
    /// A patch that does not parse.
    InvalidPatch = "invalid_patch" : Call,
    /// The call was cut off or ended before it ran to its end.
    Interrupted = "interrupted" : Call,
    /// The path leads out of the workspace.
    OutsideWorkspace = "outside_workspace" : Workspace,
    /// Nothing is there.
    NotFound = "not_found" : Workspace,
    /// A folder stands where a file is needed.
    IsDirectory = "is_directory" : Workspace,
    /// A file stands where a folder is needed.
    NotDirectory = "not_directory" : Workspace,
    /// A FIFO, socket or device: never opened for content.
    NotRegularFile = "not_regular_file" : Workspace,
    /// Something is there already and was not to be replaced.
    AlreadyExists = "already_exists" : Workspace,
    /// A folder that should be empty is not.
    DirectoryNotEmpty = "directory_not_empty" : Workspace,
    /// Ordinary permissions (owner and mode) forbid it; not the sandbox.
    PermissionDenied = "permission_denied" : Workspace,
    /// The file has further names that are, or may be, outside the workspace.
    HardLinked = "hard_linked" : Workspace,
    /// The file is not text.
    BinaryFile = "binary_file" : Workspace,
    /// The text cannot be written in the file's encoding.
    NotEncodable = "not_encodable" : Workspace,
    /// Larger than the tool handles.
    TooLarge = "too_large" : Workspace,
    /// The file changed since it was read.
    StaleFile = "stale_file" : Workspace,
    /// The text to be replaced is not in the file.
    NoMatch = "no_match" : Workspace,
    /// The text to be replaced stands in several places.
    Ambiguous = "ambiguous" : Workspace,
    /// The new text is there already and the old text is not.
    AlreadyApplied = "already_applied" : Workspace,
    /// Old and new are the same.
    NoChange = "no_change" : Workspace,
    /// Two edits of one call touch the same text.
    OverlappingEdits = "overlapping_edits" : Workspace,
    /// The name is longer than the file system takes.
    NameTooLong = "name_too_long" : Workspace,
    /// The disk or the quota is full; the old bytes are in place.
    DiskFull = "disk_full" : Workspace,
    /// The file system is mounted read-only.
    ReadOnly = "read_only" : Workspace,
    /// The path changed while it was resolved, several times in a row.
    Busy = "busy" : Workspace,
    /// The kernel reported an error that has no code of its own.
    IoError = "io_error" : Workspace,
    /// The command was still running at its time limit and was ended with all it had started.
    TimedOut = "timed_out" : Process,
    /// The command was ended by a signal.
    KilledBySignal = "killed_by_signal" : Process,
    /// The command met a limit (memory, processes, file size, output …), which is named.
    LimitExceeded = "limit_exceeded" : Process,
    /// An MCP server says that the call failed, or answers with what is no answer.
    ServerError = "server_error" : Process,
    /// An MCP server has ended, cannot be reached, or is not asked any more.
    ServerGone = "server_gone" : Process,
    /// The program could not be started (not found, not executable).
    CommandNotStarted = "command_not_started" : Process,
    /// No background process has this id.
    UnknownProcess = "unknown_process" : Process,
    /// The sandbox refused it; the policy line is named.
    SandboxDenied = "sandbox_denied" : Sandbox,
    /// The policy or the session does not offer this tool.
    ToolDenied = "tool_denied" : Sandbox,
    /// A protection that the policy requires cannot be enforced here.
    CannotConfine = "cannot_confine" : Sandbox,
    /// A canary got through: the sandbox is not what it says it is.
    CanaryFailed = "canary_failed" : Sandbox,
    /// A policy, image or configuration file that is wrong.
    InvalidPolicy = "invalid_policy" : Sandbox,
    /// A skill or an MCP server that the person requires is not there.
    MissingRequirement = "missing_requirement" : Sandbox,
    /// The workspace folder cannot be one (`/`, the home folder, a system folder).
    InvalidWorkspace = "invalid_workspace" : Sandbox,
    /// The call was still running at its deadline.
    DeadlineExceeded = "deadline_exceeded" : Ourselves,
    /// The jail ended before it answered.
    JailDied = "jail_died" : Ourselves,
    /// The jail's answer was not an answer.
    MalformedReply = "malformed_reply" : Ourselves,
    /// The answer was larger than the wire takes.
    ReplyTooLarge = "reply_too_large" : Ourselves,
    /// The session has ended.
    SessionClosed = "session_closed" : Ourselves,
    /// A bug in bailiwick.
    Internal = "internal" : Ourselves,
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_fault_is_for_people() {
        let error = std::io::Error::from_raw_os_error(2);
        assert!(error.to_string().contains("os error"));
        let fault = super::Fault::new(super::FaultCode::IoError, format!("a: {error}; b: {error}"));
        assert_eq!(fault.message(), "a: No such file or directory; b: No such file or directory");
    }

    use super::*;

    #[test]
    fn a_success_has_three_keys_in_order() {
        let mut data = Data::new();
        data.insert("z".into(), 1.into());
        data.insert("a".into(), 2.into());
        let envelope = Envelope::from(Ok(data));
        assert_eq!(serde_json::to_string(&envelope).unwrap(), r#"{"success":true,"data":{"z":1,"a":2},"error":null}"#);
        envelope.check().unwrap();
    }

    #[test]
    fn a_failure_begins_with_its_code_and_keeps_its_facts() {
        let fault = Fault::new(FaultCode::NotFound, "no file a.txt").hint("ls shows what is there").with("near", "b.txt").with("code", "x");
        let envelope = Envelope::from(Err(fault));
        assert_eq!(
            serde_json::to_string(&envelope).unwrap(),
            r#"{"success":false,"data":{"code":"not_found","hint":"ls shows what is there","near":"b.txt"},"error":"not_found: no file a.txt"}"#
        );
        assert_eq!(envelope.code(), Some(FaultCode::NotFound));
        envelope.check().unwrap();
    }

    #[test]
    fn the_check_refuses_what_is_no_envelope() {
        for (text, broken) in [
            (r#"{"success":true,"data":[],"error":null}"#, "object"),
            (r#"{"success":true,"data":{},"error":"x"}"#, "carries an error"),
            (r#"{"success":false,"data":{},"error":null}"#, "no error"),
            (r#"{"success":false,"data":{"code":"nonsense"},"error":"nonsense: x"}"#, "no known code"),
            (r#"{"success":false,"data":{"code":"not_found"},"error":"gone"}"#, "begin with its code"),
        ] {
            let envelope: Envelope = serde_json::from_str(text).unwrap();
            assert!(envelope.check().unwrap_err().contains(broken), "{text}");
        }
        assert!(serde_json::from_str::<Envelope>(r#"{"success":true,"data":{},"error":null,"more":1}"#).is_err());
    }

    #[test]
    fn codes_are_distinct_and_snake_case() {
        let mut seen = std::collections::HashSet::new();
        for code in FaultCode::ALL {
            assert!(seen.insert(code.as_str()));
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        }
    }
}
