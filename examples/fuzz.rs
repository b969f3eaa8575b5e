//! Fuzzing without a nightly compiler: `cargo run --release --example fuzz -- TARGET SECONDS [SEED]`.
//!
//! What is in `fuzz/seeds` is mutated blindly: there is no feedback of coverage, so this finds less than `cargo fuzz` does with the same
//! checks. An input that fails is written to `fuzz/artifacts` and the run ends with the check's panic. The seed of the random numbers is
//! printed, and the same seed tries the same inputs.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "../fuzz/checks.rs"]
mod checks;

use std::path::Path;
use std::time::{Duration, Instant};

/// Pieces that mean something to the readers.
const WORDS: &[&str] = &[
    "[TOOL]",
    "[/TOOL]",
    "[TOOL] read(",
    ") [/TOOL]",
    "\"",
    "'",
    "\"\"\"",
    "'''",
    "\\",
    "\\u",
    "d83d",
    "\\ude00",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "```",
    "~~~",
    "`",
    "```json\n",
    "\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "<tool_call>",
    "</tool_call>",
    "<invoke name=\"read\">",
    "</invoke>",
    "<parameter name=\"path\">",
    "</parameter>",
    "\"name\"",
    "\"arguments\"",
    "read",
    "ls",
    "sandbox_bash",
    "path",
    "true",
    "null",
    "-0",
    "1e3",
    "0x",
    "“",
    "”",
    "‘",
    "«",
    "\u{feff}",
    "\u{2028}",
    "\0",
    "é",
    "😀",
    "data:",
    "data: ",
    "event:",
    ": ",
    "\n\n",
    "id",
    "N0nce",
];
/// The most bytes of an input.
const MOST: usize = 4096;

/// Numbers that are the same for the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % (most.max(1) as u64)).unwrap()
    }
}

fn mutated(corpus: &[Vec<u8>], dice: &mut Dice) -> Vec<u8> {
    let mut input = corpus[dice.below(corpus.len())].clone();
    // Mostly few, so that some inputs stay whole.
    let most = dice.below(8);
    for _ in 0..=dice.below(1 + most) {
        let at = dice.below(input.len() + 1);
        let to = (at + dice.below(12)).min(input.len());
        match dice.below(7) {
            0 => drop(input.splice(at..at, WORDS[dice.below(WORDS.len())].bytes())),
            1 => drop(input.splice(at..to, WORDS[dice.below(WORDS.len())].bytes())),
            2 => drop(input.drain(at..to)),
            3 => {
                let copied = input[at..to].to_vec();
                let into = dice.below(input.len() + 1);
                drop(input.splice(into..into, copied));
            }
            4 => {
                let other = &corpus[dice.below(corpus.len())];
                let from = dice.below(other.len() + 1);
                drop(input.splice(at.., other[from..].iter().copied()));
            }
            5 if at < input.len() => input[at] ^= 1 << dice.below(8),
            _ => input.insert(at, u8::try_from(dice.below(256)).unwrap()),
        }
    }
    input.truncate(MOST);
    input
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (target, seconds) = (args.get(1).map_or("text_protocol", String::as_str), args.get(2).map_or(30, |text| text.parse().unwrap()));
    let check: fn(&[u8]) -> usize = match target {
        "text_protocol" => checks::text_protocol,
        "events" => checks::events,
        other => panic!("there is no target {other}: text_protocol, events"),
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    let seed: u64 = args.get(3).map_or_else(|| u64::from(now) | 1, |text| text.parse().unwrap());
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut corpus: Vec<Vec<u8>> = std::fs::read_dir(seeds).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    corpus.sort();
    let mut dice = Dice(seed);
    let (began, mut tried, mut seen) = (Instant::now(), 0_u64, 0);
    while began.elapsed() < Duration::from_secs(seconds) {
        let input = mutated(&corpus, &mut dice);
        match std::panic::catch_unwind(|| check(&input)) {
            Ok(found) => seen += found,
            Err(panic) => {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/artifacts").join(target);
                std::fs::create_dir_all(&folder).unwrap();
                let file = folder.join(format!("seed-{seed}-{tried}"));
                std::fs::write(&file, &input).unwrap();
                println!("{target}: failed after {tried} inputs, seed {seed}: {}", file.display());
                std::panic::resume_unwind(panic);
            }
        }
        tried += 1;
        // What was tried is mutated further now and then, so that inputs grow away from the seeds.
        if tried % 256 == 0 && corpus.len() < 400 {
            corpus.push(input);
        }
    }
    println!("{target}: {tried} inputs in {seconds} s, {seen} calls or events in them, nothing found; seed {seed}");
}
