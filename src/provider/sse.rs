//! Server-sent events, or lines of JSON: bytes in any pieces in, events out.
//!
//! Line ends may be LF, CR LF or CR, also with a piece ending between the two; a BOM at the start is dropped; several `data`
//! lines are one text. An event that the server did not end with an empty line before it closed is given by [`Decoder::end`].

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The `event` field; empty when there is none.
    pub name: String,
    /// The `data` lines, joined by line feeds.
    pub data: String,
}

/// An event was larger than the decoder's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The state between two pieces.
#[derive(Debug)]
pub struct Decoder {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    after_cr: bool,
    first_line: bool,
    /// Each line is an event by itself.
    lines: bool,
    limit: usize,
}

impl Decoder {
    /// A decoder that takes events of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { line: Vec::new(), event: Event::default(), has_data: false, after_cr: false, first_line: true, lines: false, limit }
    }

    /// A decoder that takes each line that is not empty for the data of one event.
    pub fn lines(limit: usize) -> Self {
        Self { lines: true, ..Self::new(limit) }
    }

    /// Takes a piece; gives the events that it completes.
    ///
    /// # Errors
    /// [`TooLarge`]; the decoder is then of no further use.
    pub fn feed(&mut self, mut piece: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        if self.after_cr && !piece.is_empty() {
            self.after_cr = false;
            piece = piece.strip_prefix(b"\n").unwrap_or(piece);
        }
        while let Some(end) = piece.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let (line, rest) = piece.split_at(end);
            self.line.extend_from_slice(line);
            events.extend(self.end_line()?);
            piece = match rest {
                [b'\r', b'\n', rest @ ..] => rest,
                [b'\r'] => {
                    self.after_cr = true;
                    &[]
                }
                [_, rest @ ..] => rest,
                [] => &[],
            };
        }
        self.line.extend_from_slice(piece);
        self.check()?;
        Ok(events)
    }

    /// What was begun and not ended when the stream closed.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn end(mut self) -> Result<Option<Event>, TooLarge> {
        if !self.line.is_empty()
            && let Some(event) = self.end_line()?
        {
            return Ok(Some(event));
        }
        Ok(self.has_data.then_some(self.event))
    }

    fn check(&self) -> Result<(), TooLarge> {
        if self.line.len() + self.event.data.len() > self.limit { Err(TooLarge) } else { Ok(()) }
    }

    fn end_line(&mut self) -> Result<Option<Event>, TooLarge> {
        self.check()?;
        let line = std::mem::take(&mut self.line);
        let line = if std::mem::take(&mut self.first_line) { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line) } else { &line };
        if self.lines {
            let data = String::from_utf8_lossy(line);
            return Ok((!data.trim().is_empty()).then(|| Event { name: String::new(), data: data.into_owned() }));
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return Ok(std::mem::take(&mut self.has_data).then_some(event));
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&value);
            }
            b"event" => self.event.name = value.into_owned(),
            // A comment, an id, a time to reconnect: a reply is not continued.
            _ => {}
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]]) -> Vec<(String, String)> {
        let mut decoder = Decoder::new(1000);
        let mut events: Vec<Event> = pieces.iter().flat_map(|piece| decoder.feed(piece).unwrap()).collect();
        events.extend(decoder.end().unwrap());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        type Row = (&'static [&'static [u8]], &'static [(&'static str, &'static str)]);
        let rows: &[Row] = &[
            (&[b"data: a\n\n"], &[("", "a")]),
            (&[b"data:a\r\n\r\ndata:  b\r\r"], &[("", "a"), ("", " b")]),
            (&[b"data: a\r", b"\n\r", b"\ndata: b\n\n"], &[("", "a"), ("", "b")]),
            (&[b"\xef\xbb\xbfdata: a\n\n"], &[("", "a")]),
            (&[b"\xef\xbb", b"\xbfdata: a\n\n"], &[("", "a")]),
            (&[b"data: one\ndata\ndata: two\n\n"], &[("", "one\n\ntwo")]),
            (&[b": ping\n\nevent: e\nid: 5\nretry: 9\ndata: a\n\n"], &[("e", "a")]),
            (&[b"event: lost\n\ndata: a\n\n"], &[("", "a")]),
            (&[b"data: \xc3", b"\xa4\n\n"], &[("", "ä")]),
            (&[b"data: a\n\ndata: unended"], &[("", "a"), ("", "unended")]),
            (&[b"data: a\n"], &[("", "a")]),
            (&[b"data: {\"a\": 1}\n\n\n\n"], &[("", "{\"a\": 1}")]),
            (&[b"nonsense\n\n"], &[]),
            (&[], &[]),
        ];
        for (pieces, wanted) in rows {
            let wanted: Vec<(String, String)> = wanted.iter().map(|(name, data)| ((*name).into(), (*data).into())).collect();
            assert_eq!(decode(pieces), wanted, "{pieces:?}");
        }
    }

    #[test]
    fn lines_are_events_by_themselves() {
        let rows: [(&[&[u8]], &[&str]); 5] = [
            (&[b"{\"a\":1}\n{\"b\":2}\n"], &["{\"a\":1}", "{\"b\":2}"]),
            (&[b"\xef\xbb\xbf{\"a\":", b"1}\r", b"\n\r\n{}"], &["{\"a\":1}", "{}"]),
            (&[b"\"\xc3", b"\xa4\"\n"], &["\"ä\""]),
            (&[b"data: no field here\n"], &["data: no field here"]),
            (&[b"\n \n"], &[]),
        ];
        for (pieces, wanted) in rows {
            let mut decoder = Decoder::lines(1000);
            let mut events: Vec<Event> = pieces.iter().flat_map(|piece| decoder.feed(piece).unwrap()).collect();
            events.extend(decoder.end().unwrap());
            assert_eq!(events.iter().map(|event| event.data.as_str()).collect::<Vec<_>>(), wanted, "{pieces:?}");
        }
        assert_eq!(Decoder::lines(100).feed(&[b'x'; 101]), Err(TooLarge));
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut decoder = Decoder::new(100);
        assert_eq!(decoder.feed(&[b'x'; 101]), Err(TooLarge));
        let mut decoder = Decoder::new(100);
        assert_eq!((0..20).find_map(|_| decoder.feed(b"data: 12345678\n").err()), Some(TooLarge));
        let mut decoder = Decoder::new(100);
        assert!((0..20).all(|_| decoder.feed(b"data: 12345678\n\n").is_ok()));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(parts in proptest::collection::vec(prop_oneof![
            Just("data: ä"), Just("event: x"), Just("\n"), Just("\r"), Just("\r\n"), Just(":"), Just("\u{feff}"), Just("data"), Just(" ")], 0..24),
            cuts in proptest::collection::vec(0usize..100, 0..6)) {
            let text = parts.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect();
            prop_assert_eq!(decode(&pieces), decode(&[&text]));
        }
    }
}
