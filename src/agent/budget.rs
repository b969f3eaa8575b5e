//! Budgets: what a run may spend, and the watch for a model that goes in circles.
//!
//! Nothing here reads a clock: elapsed time is given.

use crate::session::Call;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::time::Duration;

/// What a run may spend. `None`: no limit of that kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Requests to the model.
    pub turns: u32,
    /// Wall time of the whole run.
    pub wall: Option<Duration>,
    /// Tokens, read and written together.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar.
    pub cost: Option<u64>,
    /// Failed calls in a row.
    pub tool_errors: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { turns: 100, wall: None, tokens: None, cost: None, tool_errors: 8 }
    }
}

/// The price of a model, in millionths of a US dollar for a million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Requests to the model.
    pub turns: u32,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Failed calls since the last success.
    pub tool_errors: u32,
}

/// A kind of budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Requests to the model.
    Turns,
    /// Wall time.
    Wall,
    /// Tokens.
    Tokens,
    /// Money.
    Cost,
    /// Failed calls in a row.
    ToolErrors,
}

impl Kind {
    /// Its name in a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Wall => "wall clock",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
            Self::ToolErrors => "tool errors in a row",
        }
    }
}

/// The account of a run.
#[derive(Clone, Debug)]
pub struct Budget {
    limits: Limits,
    price: Option<Price>,
    spent: Spent,
    told: bool,
}

impl Budget {
    /// A fresh account. Without a price money is not counted.
    pub fn new(limits: Limits, price: Option<Price>) -> Self {
        Self { limits, price, spent: Spent::default(), told: false }
    }

    /// What may be spent.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// What was spent.
    pub fn spent(&self) -> Spent {
        self.spent
    }

    /// Millionths of a US dollar so far; `None` where the price is not known.
    pub fn cost(&self) -> Option<u64> {
        let price = self.price?;
        let of = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
        let total = of(self.spent.input_tokens, price.input) + of(self.spent.output_tokens, price.output);
        Some(u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }

    /// Counts a request.
    pub fn turn(&mut self) {
        self.spent.turns += 1;
    }

    /// Counts tokens.
    pub fn tokens(&mut self, input: u64, output: u64) {
        self.spent.input_tokens = self.spent.input_tokens.saturating_add(input);
        self.spent.output_tokens = self.spent.output_tokens.saturating_add(output);
    }

    /// Counts a call.
    pub fn called(&mut self, success: bool) {
        self.spent.tool_errors = if success { 0 } else { self.spent.tool_errors + 1 };
    }

    /// The budget that is spent, if one is.
    pub fn exhausted(&self, elapsed: Duration) -> Option<Kind> {
        self.shares(elapsed).into_iter().find(|(_, used, limit)| used >= limit).map(|(kind, ..)| kind)
    }

    /// Whether the request that comes next is the last that the turns permit.
    pub fn last_turn(&self) -> bool {
        self.spent.turns + 1 >= self.limits.turns
    }

    /// What the model should be told, once, when four fifths of a budget are used.
    pub fn warning(&mut self, elapsed: Duration) -> Option<String> {
        if self.told {
            return None;
        }
        let (kind, used, limit) = self
            .shares(elapsed)
            .into_iter()
            .filter(|(kind, ..)| *kind != Kind::ToolErrors)
            .find(|(_, used, limit)| used.saturating_mul(5) >= limit.saturating_mul(4))?;
        self.told = true;
        let (used, limit) = match kind {
            Kind::Wall => (format!("{} s", used / 1000), format!("{} s", limit / 1000)),
            Kind::Cost => (dollars(used), dollars(limit)),
            _ => (used.to_string(), limit.to_string()),
        };
        Some(format!("Four fifths of the budget for {} are used ({used} of {limit}). Bring the work to an end.", kind.as_str()))
    }

    fn shares(&self, elapsed: Duration) -> Vec<(Kind, u64, u64)> {
        let mut shares = vec![(Kind::Turns, u64::from(self.spent.turns), u64::from(self.limits.turns))];
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if let Some(wall) = self.limits.wall {
            shares.push((Kind::Wall, millis(elapsed), millis(wall)));
        }
        if let Some(tokens) = self.limits.tokens {
            shares.push((Kind::Tokens, self.spent.input_tokens.saturating_add(self.spent.output_tokens), tokens));
        }
        if let (Some(limit), Some(cost)) = (self.limits.cost, self.cost()) {
            shares.push((Kind::Cost, cost, limit));
        }
        shares.push((Kind::ToolErrors, u64::from(self.spent.tool_errors), u64::from(self.limits.tool_errors)));
        shares
    }
}

/// Millionths of a dollar for a person.
pub fn dollars(micros: u64) -> String {
    format!("${}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}

/// A note for the model, or the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circle {
    /// The third time: the model is told.
    Told(String),
    /// The fifth time: the run stops.
    Stop(String),
}

/// How often the same thing is told, and when it ends the run.
const TOLD_AT: usize = 3;
const STOP_AT: usize = 5;
/// The longest cycle of different calls that is noticed.
const LONGEST_CYCLE: usize = 4;

/// Watches for the same calls with the same results, one after the other: A-A-A, and A-B-A-B.
#[derive(Clone, Debug, Default)]
pub struct Circles {
    recent: VecDeque<[u8; 32]>,
}

impl Circles {
    /// Counts one answered call; `result` is its answer without what changes by itself (times).
    pub fn add(&mut self, call: &Call, result: &str) -> Option<Circle> {
        let mut hash = Sha256::new();
        for part in [call.tool.as_bytes(), call.args.to_string().as_bytes(), result.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        self.recent.push_back(hash.finalize().into());
        if self.recent.len() > STOP_AT * LONGEST_CYCLE {
            self.recent.pop_front();
        }
        let calls: Vec<&[u8; 32]> = self.recent.iter().rev().collect();
        (1..=LONGEST_CYCLE).find_map(|cycle| {
            let same = calls.iter().zip(calls.iter().skip(cycle)).take_while(|(a, b)| a == b).count() + cycle;
            // Counted at the end of a cycle only, so that each count is met once.
            let times = (same.is_multiple_of(cycle)).then_some(same / cycle)?;
            let what = if cycle == 1 {
                format!("The same call of {} was made {times} times in a row with the same result.", call.tool)
            } else {
                format!("The same {cycle} calls were made in turn {times} times with the same results.")
            };
            match times {
                TOLD_AT => Some(Circle::Told(format!("{what} It will not change: try something else, or say what is in the way."))),
                STOP_AT.. => Some(Circle::Stop(what)),
                _ => None,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NO_TIME: Duration = Duration::ZERO;

    fn call(tool: &str) -> Call {
        Call { id: String::new(), tool: tool.into(), args: json!({"a": 1}) }
    }

    #[test]
    fn each_budget_ends_the_run_and_is_told_once_before() {
        let mut turns = Budget::new(Limits { turns: 10, ..Limits::default() }, None);
        let mut told = 0;
        for turn in 1..=10 {
            assert_eq!(turns.last_turn(), turn == 10);
            assert_eq!(turns.exhausted(NO_TIME), None);
            turns.turn();
            told += usize::from(turns.warning(NO_TIME).is_some_and(|text| text.contains("8 of 10") && turn == 8));
        }
        assert_eq!((turns.exhausted(NO_TIME), told), (Some(Kind::Turns), 1));

        let mut wall = Budget::new(Limits { wall: Some(Duration::from_secs(100)), ..Limits::default() }, None);
        assert_eq!(wall.warning(Duration::from_secs(79)), None);
        assert!(wall.warning(Duration::from_secs(80)).unwrap().contains("80 s of 100 s"));
        assert_eq!(wall.exhausted(Duration::from_secs(100)), Some(Kind::Wall));

        let price = Price { input: 3_000_000, output: 15_000_000 };
        let mut money = Budget::new(Limits { cost: Some(1_000_000), tokens: Some(1 << 40), ..Limits::default() }, Some(price));
        money.tokens(100_000, 40_000);
        assert_eq!(money.cost(), Some(900_000));
        assert!(money.warning(NO_TIME).unwrap().contains("$0.9000 of $1.0000"));
        money.tokens(0, 10_000);
        assert_eq!(money.exhausted(NO_TIME), Some(Kind::Cost));

        let mut tokens = Budget::new(Limits { tokens: Some(10), ..Limits::default() }, None);
        tokens.tokens(u64::MAX, 1);
        assert_eq!(tokens.exhausted(NO_TIME), Some(Kind::Tokens));
    }

    #[test]
    fn only_errors_in_a_row_count() {
        let mut budget = Budget::new(Limits::default(), None);
        for success in [false, false, false, false, false, false, false, true, false] {
            budget.called(success);
            assert_eq!(budget.exhausted(NO_TIME), None);
        }
        (0..7).for_each(|_| budget.called(false));
        assert_eq!(budget.exhausted(NO_TIME), Some(Kind::ToolErrors));
        assert_eq!(budget.warning(NO_TIME), None);
    }

    fn watch(sequence: &[(&str, &str)]) -> Vec<Option<bool>> {
        let mut circles = Circles::default();
        sequence.iter().map(|(tool, result)| circles.add(&call(tool), result).map(|circle| matches!(circle, Circle::Stop(_)))).collect()
    }

    #[test]
    fn the_same_call_is_told_at_three_and_stopped_at_five() {
        assert_eq!(watch(&[("a", "x"); 5]), [None, None, Some(false), None, Some(true)]);
        let changing: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let polling: Vec<(&str, &str)> = changing.iter().map(|result| ("a", result.as_str())).collect();
        assert!(watch(&polling).iter().all(Option::is_none), "a result that changes is no circle");
    }

    #[test]
    fn alternating_calls_are_a_circle_too() {
        let pairs: Vec<(&str, &str)> = (0..10).map(|n| if n % 2 == 0 { ("a", "x") } else { ("b", "y") }).collect();
        let seen = watch(&pairs);
        assert_eq!(seen[..5], [None; 5]);
        assert_eq!((seen[5], seen[9]), (Some(false), Some(true)));
        assert!(watch(&[("a", "x"), ("b", "y"), ("a", "x"), ("c", "z"), ("a", "x"), ("b", "y")]).iter().all(Option::is_none));
    }
}
