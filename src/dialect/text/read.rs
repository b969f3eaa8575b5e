//! One pass over a reply: prose, code, calls.

use super::bind::{self, Shape};
use super::recover::{self, Found};
use super::scan::{Scanner, Slip, is_name, short};
use super::{CLOSE, Declared, OPEN, PLACEHOLDER, Piece, print};
use crate::envelope::{Fault, FaultCode};
use crate::session::Call;
use crate::tools::args::nearest;
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Range;

/// How many characters of the place of a fault are echoed.
const ECHO: usize = 60;
/// The most calls of one reply, those that are not run included. What follows them is not read.
pub(super) const MOST: usize = 1000;

pub(super) struct Reader<'a> {
    text: &'a str,
    tools: &'a [Declared],
    /// The tools by their names and aliases.
    called: HashMap<&'a str, &'a Declared>,
    scan: Scanner<'a>,
    pieces: Vec<Piece>,
    /// Where the prose that was not handed out yet begins.
    prose: usize,
    /// Only blanks, or a call, stand before on this line.
    fresh: bool,
    /// Within `inline code` of this line.
    code: bool,
    /// The last backtick of this line, where it was looked for.
    last_tick: Option<usize>,
    place: Place,
    calls: usize,
    /// Calls, and what was refused.
    delivered: usize,
}

/// A line and a column that only move forward, so that naming them for many faults is linear.
struct Place {
    pos: usize,
    line: usize,
    column: usize,
}

/// What a call in a reply turned out to be.
pub(super) enum Verdict {
    /// To be run.
    Call(String, Value),
    /// Not to be run; it ends where it ends.
    Refused { at: usize, code: FaultCode, what: String, hint: Option<String> },
    /// Broken, so that its end is not known.
    Slipped(Slip),
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, tools: &'a [Declared]) -> Self {
        let mut called = HashMap::new();
        for tool in tools {
            for name in std::iter::once(&tool.name).chain(&tool.aliases) {
                called.entry(name.as_str()).or_insert(tool);
            }
        }
        Self {
            text,
            tools,
            called,
            scan: Scanner::new(text, 0),
            pieces: Vec::new(),
            prose: 0,
            fresh: true,
            code: false,
            last_tick: None,
            place: Place { pos: 0, line: 1, column: 1 },
            calls: 0,
            delivered: 0,
        }
    }

    /// The pieces, and how many bytes were looked at.
    pub(super) fn read(mut self) -> (Vec<Piece>, usize) {
        let last_close = self.text.rfind(CLOSE).unwrap_or(0);
        self.start_line();
        while let Some(c) = self.scan.peek() {
            match c {
                '\n' => {
                    self.scan.bump();
                    self.start_line();
                }
                '`' => {
                    self.scan.take(|c| c == '`');
                    self.code = !self.code;
                    self.fresh = false;
                }
                '[' if self.scan.rest().starts_with(OPEN) => self.marked(last_close),
                '<' if recover::may_begin(self.scan.rest().as_bytes()) => self.tagged(),
                c => {
                    self.scan.bump();
                    if self.fresh && c.is_whitespace() {
                        continue;
                    }
                    self.fresh = false;
                    self.skip_prose();
                }
            }
        }
        self.hand_out_prose(self.text.len());
        (self.pieces, self.scan.steps)
    }

    /// Goes to where the next thing can begin: a line, code, a call.
    fn skip_prose(&mut self) {
        let rest = self.scan.rest().as_bytes();
        let begins = |at: &usize| match rest[*at] {
            b'\n' | b'`' => true,
            b'[' => rest.get(at + 1) == Some(&b'T') && rest[*at..].starts_with(OPEN.as_bytes()),
            b'<' => recover::may_begin(&rest[*at..]),
            _ => false,
        };
        let length = (0..rest.len()).find(begins).unwrap_or(rest.len());
        self.scan.pos += length;
        self.scan.steps += length;
    }

    fn start_line(&mut self) {
        self.fresh = true;
        self.code = false;
        self.last_tick = None;
        // Most lines are no fences, and this is asked of each.
        let first = self.scan.rest().bytes().find(|byte| !matches!(byte, b' ' | b'\t'));
        if !matches!(first, Some(b'`' | b'~')) {
            return;
        }
        let mut ahead = self.scan.clone();
        ahead.take(|c| c == ' ' || c == '\t');
        let Some(mark @ ('`' | '~')) = ahead.peek() else { return };
        let fence = ahead.take(|c| c == mark).len();
        let info = ahead.take_until(|byte| byte == b'\n');
        self.scan.steps = ahead.steps;
        // A line of inline code is no fence.
        if fence >= 3 && !(mark == '`' && info.contains('`')) {
            ahead.bump();
            self.fenced(ahead, mark, fence, info.trim());
        }
    }

    /// A fenced code block, of which the first line was taken.
    fn fenced(&mut self, mut ahead: Scanner<'a>, mark: char, fence: usize, info: &str) {
        let start = self.scan.pos;
        let inside = ahead.pos;
        let (end, closed) = loop {
            let line = ahead.pos;
            if ahead.peek().is_none() {
                break (line, false);
            }
            ahead.take(|c| c == ' ' || c == '\t');
            let closes = ahead.take(|c| c == mark).len() >= fence;
            let rest = ahead.take_until(|byte| byte == b'\n');
            if closes && rest.trim().is_empty() {
                break (line, true);
            }
            ahead.bump();
        };
        let content = self.text.get(inside..end).unwrap_or_default();
        let past = ahead.pos;
        self.scan.steps = ahead.steps + content.len();
        self.scan.pos = past;
        if closed && let Some((name, args)) = recover::fenced(content, info, self.tools) {
            self.deliver(start..past, Verdict::Call(name, args));
        } else if let Some((at, name)) = self.call_in_code(inside, content) {
            self.deliver(start..past, in_code(at, &name));
        }
    }

    /// The first call of a known tool in a code block.
    fn call_in_code(&self, inside: usize, content: &str) -> Option<(usize, String)> {
        if !content.contains(['[', '<']) {
            return None;
        }
        let marked = content.match_indices(OPEN).find_map(|(at, _)| {
            let mut ahead = Scanner::new(content, at + OPEN.len());
            ahead.blanks();
            let name = ahead.take(is_name);
            ahead.blanks();
            (ahead.peek() == Some('(') && self.find(name).is_some()).then(|| (at, name.to_owned()))
        });
        let tagged = || {
            let tags = recover::PREFIXES.iter().map(|prefix| format!("<{prefix}invoke"));
            tags.chain(["<tool_call>".into()]).find_map(|tag| {
                let at = content.find(&tag)?;
                match recover::tagged(&mut Scanner::new(content, at), self.tools)? {
                    Found::Call(name, _) => Some((at, name)),
                    _ => None,
                }
            })
        };
        marked.or_else(tagged).map(|(at, name)| (inside + at, name))
    }

    fn find(&self, name: &str) -> Option<&'a Declared> {
        self.called.get(name).copied()
    }

    /// Whether this place is within inline code: a backtick before it and one behind it, on its line.
    fn in_code(&mut self) -> bool {
        if !self.code {
            return false;
        }
        let last = *self.last_tick.get_or_insert_with(|| {
            let line = self.scan.rest().split('\n').next().unwrap_or_default();
            self.scan.steps += line.len();
            self.scan.pos + line.rfind('`').unwrap_or(0)
        });
        last > self.scan.pos
    }

    /// At an opening marker: a call, or prose that mentions it.
    fn marked(&mut self, last_close: usize) {
        let start = self.scan.pos;
        let in_code = self.in_code();
        let mut ahead = self.scan.clone();
        ahead.eat(OPEN);
        let behind = ahead.pos;
        ahead.blanks();
        let name_at = ahead.pos;
        let name = ahead.take(is_name);
        ahead.blanks();
        let tool = self.find(name);
        self.scan.steps = ahead.steps;
        if !name.is_empty() && ahead.eat("(") {
            if tool.is_none() && (in_code || name == PLACEHOLDER) {
                return self.pass(behind);
            }
            let shape = tool.map(Shape::of);
            let args = bind::args(&mut ahead, shape.as_ref());
            self.scan = ahead;
            let verdict = match (args, tool) {
                (Err(slip), _) => Verdict::Slipped(slip),
                (Ok(_), None) => self.unknown(name_at, name),
                (Ok(_), Some(_)) if in_code => self::in_code(start, name),
                (Ok(args), Some(tool)) => match bind::bind(args, tool) {
                    Ok(args) => Verdict::Call(name.into(), Value::Object(args)),
                    Err(misfit) => Verdict::Refused { at: misfit.at, code: misfit.code, what: misfit.what, hint: example(tool) },
                },
            };
            return self.deliver(start..self.scan.pos, verdict);
        }
        let closed = last_close > start;
        let attempt = !in_code
            && match (tool, self.fresh) {
                (Some(_), true) => true,
                (Some(_), false) => closed,
                (None, true) => closed || ahead.peek().is_none(),
                (None, false) => false,
            };
        if !attempt {
            return self.pass(behind);
        }
        let slip = match ahead.peek() {
            Some(c) if !name.is_empty() => ahead.slip(format!("{c:?} stands where `(` should be")),
            Some(c) => ahead.slip(format!("{c:?} stands where the name of a tool should be")),
            None => ahead.slip("the call is cut off"),
        };
        if let Err::<(), _>(slip) = slip {
            self.deliver(start..behind, Verdict::Slipped(slip));
        }
    }

    /// At `<`: a call in another notation, or prose.
    fn tagged(&mut self) {
        let start = self.scan.pos;
        let in_code = self.in_code();
        let fresh = self.fresh;
        match recover::tagged(&mut self.scan, self.tools) {
            None => self.pass(start + 1),
            Some(Found::Prose) => self.fresh = false,
            Some(Found::Unknown(_)) if in_code => self.fresh = false,
            Some(Found::Call(name, _)) if in_code => self.deliver(start..self.scan.pos, self::in_code(start, &name)),
            Some(Found::Call(name, args)) => self.deliver(start..self.scan.pos, Verdict::Call(name, args)),
            Some(Found::Unknown(name)) => self.deliver(start..self.scan.pos, self.unknown(start, &name)),
            Some(Found::CutOff) if !fresh || in_code => {}
            Some(Found::CutOff) => {
                let slip = Slip { at: self.scan.pos, what: "the call is cut off".into() };
                self.deliver(start..self.scan.pos, Verdict::Slipped(slip));
            }
            Some(Found::Slipped(slip)) => self.deliver(start..self.scan.pos, Verdict::Slipped(slip)),
        }
    }

    /// Goes on as prose behind a marker that is none.
    fn pass(&mut self, pos: usize) {
        self.scan.pos = pos;
        self.scan.steps += 1;
        self.fresh = false;
    }

    fn unknown(&self, at: usize, name: &str) -> Verdict {
        let known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
        let hint = match nearest(name, &known) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("the tools are {}", known.join(", ")),
        };
        Verdict::Refused { at, code: FaultCode::UnknownTool, what: format!("no tool is named {}", short(name)), hint: Some(hint) }
    }

    fn hand_out_prose(&mut self, to: usize) {
        if let Some(prose) = self.text.get(self.prose..to).filter(|prose| !prose.is_empty()) {
            self.pieces.push(Piece::Prose(prose.into()));
        }
        self.prose = to;
    }

    fn deliver(&mut self, span: Range<usize>, verdict: Verdict) {
        self.hand_out_prose(span.start);
        self.delivered += 1;
        if self.delivered > MOST {
            let what = format!("there are more than {MOST} calls in one reply");
            let fault =
                self.fault(span.start, FaultCode::MalformedCall, &what).hint("nothing from here on was run: make fewer calls at a time");
            return self.end_with(span.start, fault);
        }
        let piece = match verdict {
            Verdict::Call(tool, args) => {
                self.calls += 1;
                Piece::Call { call: Call { id: format!("text-{}", self.calls), tool, args }, span: span.clone() }
            }
            Verdict::Refused { at, code, what, hint } => {
                let fault = self.fault(at, code, &what);
                Piece::Broken { fault: hint.into_iter().fold(fault, Fault::hint), span: span.clone() }
            }
            Verdict::Slipped(Slip { at, what }) => {
                let fault = self
                    .fault(at, FaultCode::MalformedCall, &what)
                    .hint("nothing from this call on was run: write it again, whole, with \\\" for a quote within quotes");
                return self.end_with(span.start, fault);
            }
        };
        self.pieces.push(piece);
        self.prose = span.end;
        self.fresh = true;
    }

    /// What begins here is not run, and nothing behind it is read.
    fn end_with(&mut self, start: usize, fault: Fault) {
        self.scan.pos = self.text.len();
        self.prose = self.text.len();
        self.pieces.push(Piece::Broken { fault, span: start..self.text.len() });
    }

    fn fault(&mut self, at: usize, code: FaultCode, what: &str) -> Fault {
        self.place.advance(self.text, at);
        let Place { line, column, .. } = self.place;
        let before: Vec<char> = self.text.get(..at).unwrap_or_default().chars().rev().take(ECHO / 2).collect();
        let mut near: String = before.into_iter().rev().collect();
        near.push('⟨');
        near.push('⟩');
        near.extend(self.text.get(at..).unwrap_or_default().chars().take(ECHO / 2));
        Fault::new(code, format!("line {line}, column {column}: {what}")).with("line", line).with("column", column).with("near", near)
    }
}

impl Place {
    fn advance(&mut self, text: &str, to: usize) {
        for c in text.get(self.pos..to).unwrap_or_default().chars() {
            if c == '\n' {
                self.line += 1;
                self.column = 1;
            } else {
                self.column += 1;
            }
        }
        self.pos = self.pos.max(to);
    }
}

fn in_code(at: usize, name: &str) -> Verdict {
    Verdict::Refused {
        at,
        code: FaultCode::MalformedCall,
        what: format!("the call of {name} stands in a code block and was not run"),
        hint: Some("write a call that is meant outside of any code block or backticks".into()),
    }
}

/// A call that is right, as a hint.
fn example(tool: &Declared) -> Option<String> {
    tool.example.is_object().then(|| {
        let call = Call { id: String::new(), tool: tool.name.clone(), args: tool.example.clone() };
        format!("for example {}", print(&call))
    })
}
