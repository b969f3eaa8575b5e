//! The two engines: a linear one for ordinary patterns and a bounded one for look-around and back-references.

use super::odd::trim;
use crate::envelope::{Fault, FaultCode};
use fancy_regex::{BytesMode, RegexBuilder};
use grep_matcher::{Match, Matcher, NoCaptures, NoError};
use grep_regex::{ErrorKind, RegexMatcher, RegexMatcherBuilder};
use regex_syntax::ast::ErrorKind as Syntax;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Steps that the bounded engine may take for one line.
const BACKTRACKS: usize = 200_000;

/// How a pattern is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Style {
    pub(super) ignore_case: bool,
    pub(super) literal: bool,
    pub(super) word: bool,
    pub(super) multiline: bool,
}

/// A compiled pattern.
pub(super) enum Engine {
    /// Linear in the text.
    Linear(RegexMatcher),
    /// With a bounded number of steps a line.
    Bounded(Bounded),
}

/// Compiles a pattern. Says whether it has to be searched across lines, which a pattern that holds a line end needs.
///
/// # Errors
/// `invalid_pattern` with the position.
pub(super) fn compile(pattern: &str, style: Style, until: Instant) -> Result<(Engine, bool), Fault> {
    if let Some(any) = any_line_end(pattern, style.literal) {
        let across = Style { multiline: true, literal: false, ..style };
        if let Ok(matcher) = linear(&any, across) {
            return Ok((Engine::Linear(matcher), true));
        }
        if !style.literal
            && needs_bounded(pattern)
            && let Ok(bounded) = Bounded::new(&any, across, until)
        {
            return Ok((Engine::Bounded(bounded), true));
        }
    }
    match linear(pattern, style) {
        Ok(matcher) => return Ok((Engine::Linear(matcher), style.multiline)),
        Err(error) if matches!(error.kind(), ErrorKind::NotAllowed(_)) && !style.multiline => {
            let style = Style { multiline: true, ..style };
            if let Ok(matcher) = linear(pattern, style) {
                return Ok((Engine::Linear(matcher), true));
            }
        }
        Err(error) => {
            if style.literal || !needs_bounded(pattern) {
                return Err(invalid(pattern, &error.to_string()));
            }
        }
    }
    Ok((Engine::Bounded(Bounded::new(pattern, style, until)?), style.multiline))
}

/// A pattern whose line ends match those of any file, as a regular expression; `None` for one without, and for one that names CR
/// itself: it means what it says.
fn any_line_end(pattern: &str, literal: bool) -> Option<String> {
    const ANY: &str = r"(?:\r?\n)";
    if pattern.contains('\r') {
        return None;
    }
    if literal {
        let lines: Vec<String> = pattern.split('\n').map(regex_syntax::escape).collect();
        return (lines.len() > 1).then(|| lines.join(ANY));
    }
    // With the flag `x` a line end in the pattern is no more than layout.
    let is_flag = |c: char| c.is_ascii_alphabetic() || c == '-';
    let layout = pattern.split("(?").skip(1).any(|rest| rest.split(|c| !is_flag(c)).next().is_some_and(|flags| flags.contains('x')));
    let mut out = String::new();
    let mut rest = pattern.chars().peekable();
    let (mut class, mut found) = (0_usize, false);
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('r') => return None,
                Some('n') if class == 0 => {
                    out.push_str(ANY);
                    found = true;
                }
                next => {
                    out.push('\\');
                    out.extend(next);
                }
            },
            '\n' if class == 0 && !layout => {
                out.push_str(ANY);
                found = true;
            }
            '[' => {
                class += 1;
                out.push('[');
                if rest.peek() == Some(&'^') {
                    out.extend(rest.next());
                }
                if rest.peek() == Some(&']') {
                    out.extend(rest.next());
                }
            }
            ']' => {
                class = class.saturating_sub(1);
                out.push(']');
            }
            c => out.push(c),
        }
    }
    found.then_some(out)
}

fn linear(pattern: &str, style: Style) -> Result<RegexMatcher, grep_regex::Error> {
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(style.ignore_case).word(style.word).fixed_strings(style.literal).multi_line(true).unicode(true);
    builder.size_limit(32 << 20).dfa_size_limit(64 << 20).crlf(true);
    if style.multiline {
        builder.line_terminator(None).dot_matches_new_line(false);
    }
    builder.build(pattern)
}

/// Whether a pattern that the linear engine refuses uses what only the bounded one has.
fn needs_bounded(pattern: &str) -> bool {
    match regex_syntax::ast::parse::Parser::new().parse(pattern) {
        Err(error) => {
            matches!(error.kind(), Syntax::UnsupportedLookAround | Syntax::UnsupportedBackreference)
            // Possessive and atomic groups, `\K`, conditionals: not known to the linear engine by name.
            || ["(?>", "(?(", "\\K", "\\G", "\\k<", "\\g<", "\\Z", "\\h", "*+", "++", "?+"].iter().any(|construct| pattern.contains(construct))
        }
        Ok(_) => false,
    }
}

fn invalid(pattern: &str, otherwise: &str) -> Fault {
    let (at, why) = match regex_syntax::ast::parse::Parser::new().parse(pattern) {
        Err(error) => (Some(error.span().start.offset), error.kind().to_string()),
        Ok(_) => (None, otherwise.to_owned()),
    };
    invalid_at(pattern, at, &why)
}

fn invalid_at(pattern: &str, at: Option<usize>, why: &str) -> Fault {
    let place = at.map(|at| format!(" at position {}", at + 1)).unwrap_or_default();
    let fault = Fault::new(FaultCode::InvalidPattern, format!("the pattern {pattern:?} is no regular expression{place}: {why}"))
        .hint("literal: true searches for the text as it is");
    match at {
        Some(at) => fault.with("position", at as u64 + 1),
        None => fault,
    }
}

/// The bounded engine behind the face of the linear one.
#[derive(Clone)]
pub(super) struct Bounded {
    regex: Arc<fancy_regex::Regex>,
    /// How often the steps did not suffice.
    gave_up: Arc<AtomicU64>,
    until: Instant,
    /// What is searched is lines, with or without their line ends, which are no part of them.
    lines: bool,
}

impl Bounded {
    fn new(pattern: &str, style: Style, until: Instant) -> Result<Self, Fault> {
        let wrapped = if style.word { format!(r"(?<!\w)(?:{pattern})(?!\w)") } else { pattern.to_owned() };
        let regex = RegexBuilder::new(&wrapped)
            .case_insensitive(style.ignore_case)
            .multi_line(true)
            .crlf(true)
            .bytes_mode(BytesMode::UnicodeBytes)
            .backtrack_limit(BACKTRACKS)
            .delegate_size_limit(32 << 20)
            .build()
            .map_err(|error| match &error {
                fancy_regex::Error::ParseError(at, why) => {
                    invalid_at(pattern, Some(at.saturating_sub(wrapped.len() - pattern.len()).min(pattern.len())), &why.to_string())
                }
                error => invalid_at(pattern, None, &error.to_string()),
            })?;
        Ok(Self { regex: Arc::new(regex), gave_up: Arc::default(), until, lines: !style.multiline })
    }

    /// How many searches of a line were given up.
    pub(super) fn gave_up(&self) -> u64 {
        self.gave_up.load(Ordering::Relaxed)
    }
}

impl Matcher for Bounded {
    type Captures = NoCaptures;
    type Error = NoError;

    fn find_at(&self, haystack: &[u8], at: usize) -> Result<Option<Match>, NoError> {
        if Instant::now() >= self.until {
            self.gave_up.fetch_add(1, Ordering::Relaxed);
            return Ok(None);
        }
        let haystack = if self.lines { trim(haystack) } else { haystack };
        match self.regex.find_from_pos(haystack, at.min(haystack.len())) {
            Ok(found) => Ok(found.map(|found| Match::new(found.start(), found.end()))),
            Err(_) => {
                self.gave_up.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
        }
    }

    fn new_captures(&self) -> Result<NoCaptures, NoError> {
        Ok(NoCaptures::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testbed::soon;

    fn finds(pattern: &str, style: Style, text: &str) -> (bool, bool) {
        match compile(pattern, style, soon()).unwrap().0 {
            Engine::Linear(matcher) => (matcher.is_match(text.as_bytes()).unwrap(), false),
            Engine::Bounded(matcher) => (matcher.is_match(text.as_bytes()).unwrap(), true),
        }
    }

    #[test]
    fn look_around_goes_to_the_bounded_engine() {
        let plain = Style::default();
        assert_eq!(finds("foo(?!bar)", plain, "foobaz"), (true, true));
        assert_eq!(finds("foo(?!bar)", plain, "foobar"), (false, true));
        assert_eq!(finds(r"(a)\1", plain, "xaa"), (true, true));
        assert_eq!(finds("(?<=x)FOO", Style { ignore_case: true, word: false, ..plain }, "xfoo"), (true, true));
        assert_eq!(finds("(?=f)foo", Style { word: true, ..plain }, "xfoo foo"), (true, true));
        assert_eq!(finds("foo", plain, "foo"), (true, false));
        assert_eq!(finds("(?!", Style { literal: true, ..plain }, "a(?!b"), (true, false));
        assert_eq!(finds("->", plain, "a->b"), (true, false));
    }

    #[test]
    fn a_broken_pattern_has_a_position() {
        for (pattern, at) in [("a(b", 2), ("a)b", 2), ("[z-a]", 2), ("x{2,1}", 2)] {
            let fault = compile(pattern, Style::default(), soon()).err().unwrap();
            assert_eq!(fault.code(), FaultCode::InvalidPattern);
            assert!(fault.message().contains(&format!("at position {at}:")), "{}", fault.message());
        }
        assert!(compile("(?=a", Style::default(), soon()).is_err());
    }

    #[test]
    fn catastrophic_patterns_are_given_up() {
        let (Engine::Bounded(matcher), _) = compile(r"(?=(a+)+$)(a|aa)+\1b", Style::default(), soon()).unwrap() else { panic!("linear") };
        assert!(!matcher.is_match("a".repeat(2000).as_bytes()).unwrap());
        assert_eq!(matcher.gave_up(), 1);
    }

    #[test]
    fn a_line_end_is_any_line_end() {
        for (pattern, literal, text) in [
            (r"a\nb", false, "a\r\nb"),
            ("a\nb", false, "a\r\nb"),
            ("a\nb", true, "a\r\nb"),
            (r"a$\n^b", false, "a\r\nb"),
            (r"(?<=a)\n{2}b", false, "a\r\n\r\nb"),
            (r"a[\n\]x]*\n]", false, "a\nx\r\n]"),
            (r"a\r?\nb", false, "a\r\nb"),
            (r"a\nb", false, "a\nb"),
        ] {
            let style = Style { literal, ..Style::default() };
            assert!(finds(pattern, style, text).0, "{pattern:?} {text:?}");
            assert!(finds(pattern, Style { multiline: true, ..style }, text).0, "{pattern:?} {text:?}");
        }
        assert_eq!(any_line_end("(?x) a\n b", false), None);
        assert_eq!(any_line_end(r"a\\n", false), None);
    }

    #[test]
    fn a_line_end_in_the_pattern_makes_it_search_across_lines() {
        assert!(compile(r"a\nb", Style::default(), soon()).unwrap().1);
        assert!(!compile("a.b", Style::default(), soon()).unwrap().1);
    }
}
