//! The tokenizer: names, quotes, blocks, numbers, bare words and nested JSON values.
//!
//! It only moves forward, and counts what it looks at, so that a test can hold it to linear work.

use serde_json::{Map, Number, Value};

/// How deep lists and objects may be nested.
const DEPTH: usize = 64;
/// The most values of one call, those within lists and objects included.
pub(super) const VALUES: usize = 20_000;

/// Where the form of a call is broken, and how.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Slip {
    /// The byte at which the fault shows.
    pub(super) at: usize,
    /// What is wrong, as the rest of a sentence.
    pub(super) what: String,
}

/// A position in a text that moves forward.
#[derive(Clone, Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    /// The byte that comes next.
    pub(super) pos: usize,
    /// How many bytes were looked at.
    pub(super) steps: usize,
    /// Values of the call so far.
    values: usize,
}

/// Whether a character may stand in the name of a tool or a key.
pub(super) fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Whether a word can be written as a key without quotes.
pub(super) fn is_key(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && word.chars().all(is_name)
}

/// What closes a string that this character opens; `None`: it opens none.
fn closers(open: char) -> Option<&'static [char]> {
    Some(match open {
        '"' => &['"'],
        '\'' => &['\''],
        '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{201f}' => &['\u{201d}', '\u{201c}'],
        '\u{2018}' | '\u{2019}' | '\u{201a}' | '\u{201b}' => &['\u{2019}', '\u{2018}'],
        '\u{ab}' => &['\u{bb}'],
        _ => return None,
    })
}

/// Whether a character opens a string.
pub(super) fn opens_string(c: char) -> bool {
    closers(c).is_some()
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str, pos: usize) -> Self {
        Self { text, pos, steps: 0, values: 0 }
    }

    /// What comes next.
    pub(super) fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or_default()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.pos += c.len_utf8();
        self.steps += c.len_utf8();
        Some(c)
    }

    /// Takes what fits; gives it.
    pub(super) fn take(&mut self, fits: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.char_indices().find(|(_, c)| !fits(*c)).map_or(rest.len(), |(at, _)| at);
        self.pos += length;
        self.steps += length;
        rest.get(..length).unwrap_or_default()
    }

    /// Takes everything before the first ASCII byte that stops.
    pub(super) fn take_until(&mut self, stops: impl Fn(u8) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(stops).unwrap_or(rest.len());
        self.pos += length;
        self.steps += length;
        rest.get(..length).unwrap_or_default()
    }

    pub(super) fn blanks(&mut self) {
        self.take(char::is_whitespace);
    }

    /// Takes a fixed word, if it comes next.
    pub(super) fn eat(&mut self, word: &str) -> bool {
        let here = self.rest().starts_with(word);
        if here {
            self.pos += word.len();
        }
        self.steps += if here { word.len() } else { 1 };
        here
    }

    /// Takes everything before the next occurrence of a word, and the word.
    pub(super) fn until(&mut self, word: &str) -> Option<&'a str> {
        let rest = self.rest();
        let Some(length) = rest.find(word) else {
            self.steps += rest.len();
            return None;
        };
        self.steps += length + word.len();
        self.pos += length + word.len();
        rest.get(..length)
    }

    pub(super) fn slip<T>(&self, what: impl Into<String>) -> Result<T, Slip> {
        Err(Slip { at: self.pos, what: what.into() })
    }

    /// A call begins.
    pub(super) fn begin_call(&mut self) {
        self.values = 0;
    }

    /// One value more.
    fn count(&mut self) -> Result<(), Slip> {
        self.values += 1;
        if self.values > VALUES { self.slip(format!("a call has more than {VALUES} values")) } else { Ok(()) }
    }

    /// A value where an item may stand: bare words are strings.
    pub(super) fn value(&mut self) -> Result<Value, Slip> {
        if let Some('{' | '[') = self.peek() {
            return self.json(0);
        }
        self.count()?;
        match self.peek() {
            Some(c) if opens_string(c) => self.quoted().map(Value::String),
            _ => {
                let word = self.word();
                match word {
                    "" => match self.peek() {
                        None => self.slip("the call is cut off where a value should be"),
                        Some(c) => self.slip(format!("{c:?} stands where a value should be")),
                    },
                    word => Ok(literal(word).unwrap_or_else(|| word.into())),
                }
            }
        }
    }

    /// What may be a number, a literal or a bare word.
    fn word(&mut self) -> &'a str {
        self.take(|c| !c.is_whitespace() && !matches!(c, ',' | '(' | ')' | '[' | ']' | '{' | '}') && !opens_string(c) && c != '\u{bb}')
    }

    /// A JSON value; strings may have any quotes.
    pub(super) fn json(&mut self, depth: usize) -> Result<Value, Slip> {
        if depth == DEPTH {
            return self.slip(format!("lists and objects are nested more than {DEPTH} deep"));
        }
        self.count()?;
        match self.peek() {
            Some('{') => self.object(depth).map(Value::Object),
            Some('[') => self.list(depth),
            Some(c) if opens_string(c) => self.quoted().map(Value::String),
            None => self.slip("the call is cut off where a JSON value should be"),
            Some(c) => {
                let at = self.pos;
                let word = self.take(|c| is_name(c) || matches!(c, '+' | '.'));
                literal(word).ok_or_else(|| Slip {
                    at,
                    what: if word.is_empty() {
                        format!("{c:?} stands where a JSON value should be")
                    } else {
                        "text within a JSON value needs quotes".into()
                    },
                })
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, Slip> {
        let mut list = Vec::new();
        self.bump();
        self.blanks();
        if self.eat("]") {
            return Ok(Value::Array(list));
        }
        loop {
            self.blanks();
            list.push(self.json(depth + 1)?);
            self.blanks();
            if self.eat("]") {
                return Ok(Value::Array(list));
            }
            if !self.eat(",") {
                return self.expected("`,` or `]`");
            }
        }
    }

    pub(super) fn object(&mut self, depth: usize) -> Result<Map<String, Value>, Slip> {
        let mut object = Map::new();
        self.bump();
        self.blanks();
        if self.eat("}") {
            return Ok(object);
        }
        loop {
            self.blanks();
            let at = self.pos;
            if !self.peek().is_some_and(opens_string) {
                return self.expected("a key in quotes");
            }
            let key = self.quoted()?;
            self.blanks();
            if !self.eat(":") {
                return self.expected("`:`");
            }
            self.blanks();
            let value = self.json(depth + 1)?;
            if object.contains_key(&key) {
                return Err(Slip { at, what: format!("the key {} stands there twice", short(&key)) });
            }
            object.insert(key, value);
            self.blanks();
            if self.eat("}") {
                return Ok(object);
            }
            if !self.eat(",") {
                return self.expected("`,` or `}`");
            }
        }
    }

    /// The slip of a missing sign.
    pub(super) fn expected<T>(&self, what: &str) -> Result<T, Slip> {
        match self.peek() {
            None => self.slip(format!("the call is cut off where {what} should be")),
            Some(c) => self.slip(format!("{c:?} stands where {what} should be")),
        }
    }

    /// A string in quotes of any kind, or a block.
    pub(super) fn quoted(&mut self) -> Result<String, Slip> {
        let start = self.pos;
        let Some((open, closers)) = self.bump().and_then(|open| Some((open, closers(open)?))) else {
            return Err(Slip { at: start, what: "a string should be here".into() });
        };
        for block in ["\"\"", "''"] {
            if block.starts_with(open) && self.eat(block) {
                return self.block(start, open);
            }
        }
        let mut text = String::new();
        loop {
            text.push_str(self.take_until(|byte| matches!(byte, b'\\' | b'"' | b'\'') || !byte.is_ascii()));
            match self.bump() {
                None => return Err(Slip { at: start, what: format!("the string that begins here with {open} is not closed") }),
                Some(c) if closers.contains(&c) => return Ok(text),
                Some('\\') => self.escape(closers, &mut text),
                Some(c) => text.push(c),
            }
        }
    }

    /// What follows a backslash. An escape that JSON does not know is kept with its backslash.
    fn escape(&mut self, closers: &[char], text: &mut String) {
        let Some(c) = self.bump() else { return text.push('\\') };
        match c {
            '"' | '\\' | '/' => text.push(c),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'u' => {
                let high = self.hex(0);
                let low = if self.rest().get(4..6) == Some("\\u") { self.hex(6) } else { None };
                let pair = match (high, low) {
                    (Some(high @ 0xD800..=0xDBFF), Some(low @ 0xDC00..=0xDFFF)) => {
                        Some((0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00), 10))
                    }
                    (Some(one), _) => Some((one, 4)),
                    _ => None,
                };
                match pair.and_then(|(code, length)| Some((char::from_u32(code)?, length))) {
                    Some((c, length)) => {
                        self.pos += length;
                        self.steps += length;
                        text.push(c);
                    }
                    // Half a pair, or no four digits: no character; kept as it is written.
                    None => text.push_str("\\u"),
                }
            }
            c if closers.contains(&c) => text.push(c),
            c => {
                text.push('\\');
                text.push(c);
            }
        }
    }

    fn hex(&self, skip: usize) -> Option<u32> {
        let digits = self.rest().get(skip..skip + 4)?;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    }

    /// The inside of a block, of which the opening was taken: as it is, without the line end right after the opening.
    fn block(&mut self, start: usize, quote: char) -> Result<String, Slip> {
        if !self.eat("\r\n") {
            self.eat("\n");
        }
        let mut text = String::new();
        loop {
            text.push_str(self.take_until(|byte| char::from(byte) == quote));
            let run = self.take(|c| c == quote);
            match run.len() {
                0 => return Err(Slip { at: start, what: format!("the block that begins here with {quote}{quote}{quote} is not closed") }),
                1 | 2 => text.push_str(run),
                // Up to two quotes more than the closing ones are the block's own last characters.
                3..=5 => {
                    text.push_str(&run[3..]);
                    return Ok(text);
                }
                more => {
                    self.pos -= more - 3;
                    return Ok(text);
                }
            }
        }
    }
}

/// A number, a truth value or null.
fn literal(word: &str) -> Option<Value> {
    match word {
        "true" => return Some(true.into()),
        "false" => return Some(false.into()),
        "null" => return Some(Value::Null),
        _ => {}
    }
    let digits = word.strip_prefix('-').unwrap_or(word);
    let whole = digits.len() - digits.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if whole == 0 || (whole > 1 && digits.starts_with('0')) {
        return None;
    }
    let mut tail = &digits[whole..];
    let integer = tail.is_empty();
    if let Some(fraction) = tail.strip_prefix('.') {
        let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if rest.len() == fraction.len() {
            return None;
        }
        tail = rest;
    }
    if let Some(exponent) = tail.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if exponent.is_empty() || !exponent.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        tail = "";
    }
    if !tail.is_empty() {
        return None;
    }
    if integer && word != "-0" {
        if let Ok(number) = word.parse::<i64>() {
            return Some(number.into());
        }
        if let Ok(number) = word.parse::<u64>() {
            return Some(number.into());
        }
    }
    Number::from_f64(word.parse::<f64>().ok()?).map(Value::Number)
}

/// A word for a message, bounded.
pub(super) fn short(word: &str) -> String {
    let mut shown: String = word.chars().take(40).collect();
    if shown.len() < word.len() {
        shown.push('…');
    }
    format!("{shown:?}")
}
