//! The arguments of a call: their form, and which value belongs to which name.

use super::scan::{Scanner, Slip, is_key, is_name, opens_string, short};
use super::{CLOSE, Declared, OPEN};
use crate::envelope::FaultCode;
use serde_json::{Map, Value};

/// The most arguments of one call.
const ITEMS: usize = 1000;

/// Arguments as they are written.
#[derive(Debug)]
pub(super) enum Args {
    /// One JSON object.
    Object(Map<String, Value>),
    /// Values, with or without keys.
    Items(Vec<Item>),
}

/// One value of a list of arguments.
#[derive(Debug)]
pub(super) struct Item {
    key: Option<String>,
    value: Value,
    at: usize,
}

/// Why arguments of a whole form do not fit.
#[derive(Debug)]
pub(super) struct Misfit {
    pub(super) at: usize,
    pub(super) code: FaultCode,
    pub(super) what: String,
}

/// What of a tool decides the form of its arguments.
pub(super) struct Shape<'a> {
    tool: &'a Declared,
    /// The position of the argument that takes the rest.
    rest: Option<usize>,
}

impl<'a> Shape<'a> {
    pub(super) fn of(tool: &'a Declared) -> Self {
        let rest = tool
            .takes_rest
            .then(|| {
                let strings = tool.properties().enumerate().filter(|(_, (_, schema))| takes_string(schema));
                strings.map(|(index, _)| index).last()
            })
            .flatten();
        Self { tool, rest }
    }

    fn knows(&self, key: &str) -> bool {
        self.tool.properties().any(|(name, _)| name == key) || self.tool.synonyms.iter().any(|name| name == key)
    }
}

fn takes_string(schema: &Value) -> bool {
    match schema.get("type") {
        Some(Value::String(kind)) => kind == "string",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        _ => schema.get("anyOf").and_then(Value::as_array).is_some_and(|branches| branches.iter().any(takes_string)),
    }
}

/// Reads arguments from behind `(` to the end of the call, both closings included.
pub(super) fn args(scan: &mut Scanner<'_>, shape: Option<&Shape<'_>>) -> Result<Args, Slip> {
    scan.begin_call();
    scan.blanks();
    if scan.peek() == Some('{') {
        let object = scan.object(0)?;
        scan.blanks();
        if scan.peek() == Some(',') {
            return scan.slip("arguments are one JSON object or a list of values, not both");
        }
        close(scan)?;
        return Ok(Args::Object(object));
    }
    let mut items = Vec::new();
    if scan.peek() == Some(')') {
        close(scan)?;
        return Ok(Args::Items(items));
    }
    loop {
        scan.blanks();
        let at = scan.pos;
        let mut key = key(scan, shape);
        let takes_rest = key.is_none()
            && shape.is_some_and(|shape| shape.rest == Some(items.len()))
            && items.iter().all(|item: &Item| item.key.is_none());
        if takes_rest {
            let value = rest(scan)?;
            items.push(Item { key, value: value.into(), at });
            return Ok(Args::Items(items));
        }
        let quoted = scan.peek().is_some_and(opens_string);
        let mut value = scan.value()?;
        scan.blanks();
        // A key may itself stand in quotes.
        if let (None, true, Value::String(word), Some(':' | '=')) = (&key, quoted, &value, scan.peek()) {
            key = Some(word.clone());
            scan.bump();
            scan.blanks();
            value = scan.value()?;
            scan.blanks();
        }
        items.push(Item { key, value, at });
        if items.len() > ITEMS {
            return scan.slip(format!("a call has more than {ITEMS} arguments"));
        }
        match scan.peek() {
            Some(',') => {
                scan.bump();
            }
            Some(')') => {
                close(scan)?;
                return Ok(Args::Items(items));
            }
            Some(c) if !c.is_ascii_punctuation() && !quoted => return scan.slip("text with blanks needs quotes"),
            _ => return scan.expected("`,` or `)`"),
        }
    }
}

/// A key and its sign, if they come next.
fn key(scan: &mut Scanner<'_>, shape: Option<&Shape<'_>>) -> Option<String> {
    let mut ahead = scan.clone();
    let word = ahead.take(is_name);
    ahead.blanks();
    let is_sign = match ahead.peek() {
        Some('=') => true,
        // `https://…` is an address, not a key.
        Some(':') => !ahead.rest().starts_with("://"),
        _ => false,
    };
    // Where a text takes the rest, only a key that the tool knows is one.
    let may_be_text = shape.is_some_and(|shape| shape.rest.is_some() && !shape.knows(word));
    scan.steps = ahead.steps;
    if !is_sign || !is_key(word) || may_be_text {
        return None;
    }
    ahead.bump();
    ahead.blanks();
    *scan = ahead;
    Some(word.into())
}

/// The text up to the end of the call, with the quotes taken off if it is one string.
fn rest(scan: &mut Scanner<'_>) -> Result<String, Slip> {
    let start = scan.pos;
    let mut ahead = scan.clone();
    if ahead.peek().is_some_and(opens_string) {
        let text = ahead.quoted()?;
        if close(&mut ahead).is_ok() {
            *scan = ahead;
            return Ok(text);
        }
        scan.steps = ahead.steps;
    }
    let Some(text) = scan.until(CLOSE) else { return Err(Slip { at: start, what: format!("the call is not closed by {CLOSE}") }) };
    let end = scan.pos - CLOSE.len();
    let Some(text) = text.trim_end().strip_suffix(')') else {
        return Err(Slip { at: end, what: format!("{CLOSE} stands where `)` should be") });
    };
    if let Some(inner) = text.find(OPEN) {
        return Err(Slip { at: start + inner, what: format!("{OPEN} stands within a call that is not closed") });
    }
    Ok(text.trim().into())
}

/// Takes `)` and the closing marker.
fn close(scan: &mut Scanner<'_>) -> Result<(), Slip> {
    scan.blanks();
    if !scan.eat(")") {
        return scan.expected("`)`");
    }
    scan.blanks();
    if !scan.eat(CLOSE) {
        return scan.expected(CLOSE);
    }
    Ok(())
}

/// Gives each value its name.
pub(super) fn bind(args: Args, tool: &Declared) -> Result<Map<String, Value>, Misfit> {
    let items = match args {
        Args::Object(object) => return Ok(object),
        Args::Items(items) => items,
    };
    let mut bound = Map::new();
    let mut order = tool.properties();
    let mut keyed = false;
    for Item { key, value, at } in items {
        let name = match key {
            Some(key) => {
                keyed = true;
                key
            }
            None if keyed => {
                let what = "a value without a key follows one with a key".into();
                return Err(Misfit { at, code: FaultCode::MalformedCall, what });
            }
            None => match order.next() {
                Some((name, _)) => name.into(),
                None => {
                    let names: Vec<&str> = tool.properties().map(|(name, _)| name).collect();
                    let what = match names.as_slice() {
                        [] => format!("{} takes no values", tool.name),
                        names => format!("{} takes at most {} values: {}", tool.name, names.len(), names.join(", ")),
                    };
                    return Err(Misfit { at, code: FaultCode::InvalidArguments, what });
                }
            },
        };
        if bound.contains_key(&name) {
            let what = format!("the argument {} is given twice", short(&name));
            return Err(Misfit { at, code: FaultCode::MalformedCall, what });
        }
        bound.insert(name, value);
    }
    Ok(bound)
}
