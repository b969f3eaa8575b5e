//! Time and tokens as a picture over the run: who worked when, and how the tokens grew.

use super::parts::{esc, grouped, seconds};
use super::{Run, State};
use std::fmt::Write as _;

/// Units of the picture's width; it is stretched to the page.
const WIDTH: u64 = 10_000;
/// The rows, in units of height: the model, calls that went well, calls that did not; then the tokens.
const ROWS: [(&str, u64); 3] = [("model", 2), ("calls", 16), ("failed", 30)];
const BAR: u64 = 11;
const TOKENS_TOP: u64 = 48;
const TOKENS_BOTTOM: u64 = 96;

/// Draws it.
pub(super) fn draw(page: &mut String, run: &Run<'_>) {
    let length = run.length.max(1);
    // u128: a transcript may hold any number.
    let at = |time: u64| u64::try_from(u128::from(time.min(length)) * u128::from(WIDTH) / u128::from(length)).unwrap_or(WIDTH);
    let total = run.turns.iter().fold(0_u64, |sum, turn| sum.saturating_add(turn.tokens.0).saturating_add(turn.tokens.1));
    let _ = write!(
        page,
        "<figure class=\"timeline\">\n<div class=\"rows\" aria-hidden=\"true\"><span>model</span><span>calls</span><span>failed</span><span class=\"tokens\">tokens</span></div>\n\
         <svg viewBox=\"0 0 {WIDTH} 100\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"Time and tokens over the run\">\n"
    );
    for (_, top) in ROWS {
        let _ = writeln!(page, "<rect class=\"lane\" x=\"0\" y=\"{top}\" width=\"{WIDTH}\" height=\"{BAR}\"/>");
    }
    let mut bar = |row: usize, class: &str, target: &str, from: u64, to: u64, says: &str| {
        let (from, to) = (at(from), at(to));
        let _ = writeln!(
            page,
            "<a href=\"#{target}\"><rect class=\"{class}\" x=\"{from}\" y=\"{}\" width=\"{}\" height=\"{BAR}\"><title>{}</title></rect></a>",
            ROWS[row].1,
            to.saturating_sub(from).max(12),
            esc(says)
        );
    };
    for (index, turn) in run.turns.iter().enumerate().filter(|(_, turn)| turn.number > 0) {
        let end = turn.replied.unwrap_or(turn.began);
        let says = format!("turn {}: {}", turn.number, seconds(end.saturating_sub(turn.began)));
        bar(0, "model", &format!("t{index}"), turn.began, end, &says);
    }
    for (index, call) in run.calls.iter().enumerate() {
        let Some(end) = call.ended.or(call.began) else { continue };
        let state = call.state();
        let row = if matches!(state, State::Good | State::Nonzero) { 1 } else { 2 };
        let says = format!("{}: {}", call.tool, state.word());
        bar(row, state.class(), &format!("c{index}"), call.began.unwrap_or(end), end, &says);
    }
    if total > 0 {
        let height = TOKENS_BOTTOM - TOKENS_TOP;
        let y = |tokens: u64| TOKENS_BOTTOM - u64::try_from(u128::from(tokens) * u128::from(height) / u128::from(total)).unwrap_or(height);
        let mut path = format!("M0 {TOKENS_BOTTOM}");
        let mut sum = 0_u64;
        for turn in &run.turns {
            let x = at(turn.replied.unwrap_or(turn.began));
            let _ = write!(path, " L{x} {}", y(sum));
            sum = sum.saturating_add(turn.tokens.0).saturating_add(turn.tokens.1);
            let _ = write!(path, " L{x} {}", y(sum));
        }
        let _ = writeln!(page, "<path class=\"tokens\" d=\"{path} L{WIDTH} {} L{WIDTH} {TOKENS_BOTTOM} Z\"/>", y(sum));
    }
    let _ = writeln!(
        page,
        "</svg>\n<figcaption><span>0</span><span>{} tokens in all</span><span>{}</span></figcaption>\n</figure>",
        grouped(total),
        seconds(run.length)
    );
}
