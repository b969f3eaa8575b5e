//! The live line at the bottom of a terminal: what runs, how long, tokens, cost. Drawn by a thread of its own; gone when it stops.

use super::show::clean;
use crate::agent::budget::dollars;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two drawings.
const TICK: Duration = Duration::from_millis(120);
/// Nothing is drawn before a run has taken this long: a short one does not flicker.
const PATIENCE: Duration = Duration::from_millis(300);
const WHEEL: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

/// What the line says.
#[derive(Debug)]
pub(super) struct State {
    began: Instant,
    pub(super) turn: u32,
    pub(super) tokens: u64,
    /// Millionths of a US dollar.
    pub(super) cost: Option<u64>,
    /// What runs: an id, words, since when.
    pub(super) doing: Vec<(String, String, Instant)>,
    /// A group of GitHub's is open.
    pub(super) group: bool,
    drawn: bool,
    ticks: usize,
}

impl State {
    pub(super) fn new() -> Self {
        let began = Instant::now();
        Self { began, turn: 0, tokens: 0, cost: None, doing: Vec::new(), group: false, drawn: false, ticks: 0 }
    }

    /// Takes the line away, so that something else can be written.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = std::io::stderr().write_all(b"\r\x1b[2K");
        }
    }

    fn draw(&mut self) {
        if self.began.elapsed() < PATIENCE {
            return;
        }
        self.ticks += 1;
        let width = terminal_size::terminal_size_of(std::io::stderr()).map_or(80, |(width, _)| usize::from(width.0));
        let line = fit(&self.line(Instant::now()), width.saturating_sub(1));
        self.drawn = true;
        let _ = write!(std::io::stderr(), "\r\x1b[2K{line}");
    }

    /// The line, as long as it may be.
    fn line(&self, now: Instant) -> String {
        let mut parts = vec![format!("{} {}", WHEEL[self.ticks % WHEEL.len()], time(now.duration_since(self.began)))];
        if self.turn > 0 {
            parts.push(format!("turn {}", self.turn));
        }
        if self.tokens > 0 {
            parts.push(format!("{} tokens", count(self.tokens)));
        }
        parts.extend(self.cost.map(dollars));
        if let Some((_, what, since)) = self.doing.first() {
            let more = if self.doing.len() > 1 { format!(" and {} more", self.doing.len() - 1) } else { String::new() };
            let since = now.duration_since(*since).as_secs();
            let since = if since > 0 { format!(" {since} s") } else { String::new() };
            parts.push(format!("{}{since}{more}", clean(what)));
        }
        parts.join(" · ")
    }
}

fn time(elapsed: Duration) -> String {
    let seconds = elapsed.as_secs();
    if seconds < 60 { format!("{seconds} s") } else { format!("{}:{:02}", seconds / 60, seconds % 60) }
}

fn count(tokens: u64) -> String {
    if tokens < 10_000 { tokens.to_string() } else { format!("{}k", tokens / 1000) }
}

/// As much of a line as fits: a character that is not ASCII may take two columns.
fn fit(line: &str, width: usize) -> String {
    let mut left = width;
    let fits = line.chars().take_while(|c| {
        let columns = if c.is_ascii() || WHEEL.contains(c) || *c == '·' { 1 } else { 2 };
        let fits = columns <= left;
        left = left.saturating_sub(columns);
        fits
    });
    fits.filter(|c| !c.is_control()).collect()
}

/// The thread that draws.
#[derive(Debug)]
pub(super) struct Live {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Live {
    pub(super) fn start(state: Arc<Mutex<State>>) -> Self {
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                state.lock().unwrap_or_else(PoisonError::into_inner).draw();
            }
            state.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        Self { end, thread }
    }

    /// Takes the line away for good.
    pub(super) fn stop(self) {
        drop(self.end);
        let _ = self.thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_runs_and_fits() {
        let mut state = State::new();
        let now = state.began + Duration::from_secs(75);
        (state.turn, state.tokens, state.cost) = (3, 12_345, Some(12_300));
        state.doing = vec![("1".into(), "read(a\x1b[2J)".into(), now - Duration::from_secs(4)), ("2".into(), "x".into(), now)];
        assert_eq!(state.line(now), "⠋ 1:15 · turn 3 · 12k tokens · $0.0123 · read(a\u{fffd}[2J) 4 s and 1 more");
        assert_eq!(fit("⠋ 1 · 漢字漢字", 10), "⠋ 1 · 漢字");
        assert_eq!(fit("abc", 0), "");
    }
}
