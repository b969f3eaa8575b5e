//! How long the text protocol's reader takes for one MiB of the worst replies that are known: `cargo run --release --example text_speed`.
//!
//! Prints the median of several rounds for each input, interleaved, and exits with 1 when one takes 50 ms or longer. What is counted is
//! the processor time of the thread, since a machine is seldom alone. The argument is the number of rounds.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use bailiwick::dialect::declare;
use bailiwick::dialect::text::{Piece, parse_declared};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

const SIZE: usize = 1 << 20;
const LIMIT: Duration = Duration::from_millis(50);

/// What is repeated; what stands before it, and behind it.
const INPUTS: &[(&str, &str, &str, &str)] = &[
    ("prose", "", "The quick brown fox jumps over the lazy dog.\n", ""),
    ("tiny calls", "", "[TOOL] ls() [/TOOL]", ""),
    ("tiny calls with an argument", "", "[TOOL] read(\"a\") [/TOOL]\n", ""),
    ("unknown tools", "", "[TOOL] raed() [/TOOL]", ""),
    ("too many values", "", "[TOOL] read(1,2,3,4,5,6,7,8) [/TOOL]", ""),
    ("calls in inline code", "`", "[TOOL] ls() [/TOOL] ", "`"),
    ("calls in fences", "", "```\n[TOOL] ls() [/TOOL]\n```\n", ""),
    ("one fence that is not closed", "```\n", "[TOOL] x( ", ""),
    ("one large value", "[TOOL] write(\"a\", \"", "x", "\") [/TOOL]"),
    ("one large value of escapes", "[TOOL] write(\"a\", \"", "\\n", "\") [/TOOL]"),
    ("one large value of pairs", "[TOOL] write(\"a\", \"", "\\ud83d\\ude00", "\") [/TOOL]"),
    ("one large value of wide characters", "[TOOL] write(\"a\", \"", "“é😀", "\") [/TOOL]"),
    ("one large block of quotes", "[TOOL] write(\"a\", '''", "''x", "''') [/TOOL]"),
    ("one large list", "[TOOL] edit(\"a\", [", "1,", "1]) [/TOOL]"),
    ("one large list of objects", "[TOOL] edit(\"a\", edits=[", "{\"a\":\"b\"},", "{}]) [/TOOL]"),
    ("many keys", "[TOOL] read(", "a=1,", "a=1) [/TOOL]"),
    ("a string that is not closed", "[TOOL] write(\"a\", \"", "x ", ""),
    ("markers in prose", "", "a [TOOL] b ", ""),
    ("closing markers", "", "[/TOOL]", ""),
    ("brackets", "", "[", ""),
    ("line ends", "", "\n", ""),
    ("indented line ends", "", " \n", ""),
    ("backticks and brackets", "", "`[", ""),
    ("fences", "", "```\n", ""),
    ("fence lines of the other kind", "```\n", "~~~\n", ""),
    ("JSON in fences", "", "```json\n{\"name\":\"ls\",\"arguments\":{}}\n```\n", ""),
    ("JSON in fences that is none", "", "```json\n{\"name\":\"l\",\"arguments\":{}}\n```\n", ""),
    ("tags", "", "<tool_call>", ""),
    ("tags with calls", "", "<tool_call>{\"name\":\"ls\",\"arguments\":{}}</tool_call>", ""),
    ("tags with other objects", "", "<tool_call>{\"price\":1}</tool_call>", ""),
    ("other tags", "", "<invoke name=\"ls\">", ""),
    ("other tags with calls", "", "<invoke name=\"ls\"></invoke>", ""),
    ("parameters", "<invoke name=\"write\">", "<parameter name=\"a\">", ""),
    ("beginnings of tags", "", "<i", ""),
    ("beginnings of tags in code", "`", "<t", "`"),
];

fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

fn main() {
    let rounds: u32 = std::env::args().nth(1).map_or(15, |text| text.parse().unwrap());
    let tools = declare(bailiwick::tools::TOOLS);
    let texts: Vec<String> = INPUTS
        .iter()
        .map(|(_, before, repeated, behind)| {
            let count = (SIZE - before.len() - behind.len()) / repeated.len();
            format!("{before}{}{behind}", repeated.repeat(count))
        })
        .collect();
    let mut times: Vec<Vec<Duration>> = vec![Vec::new(); INPUTS.len()];
    let mut pieces = vec![0; INPUTS.len()];
    for _ in 0..rounds {
        for (at, text) in texts.iter().enumerate() {
            let began = processor_time();
            let found: Vec<Piece> = parse_declared(text, &tools);
            times[at].push(processor_time() - began);
            pieces[at] = found.len();
        }
    }
    let mut worst = Duration::ZERO;
    for (((name, ..), times), pieces) in INPUTS.iter().zip(&mut times).zip(pieces) {
        times.sort();
        let median = times[times.len() / 2];
        worst = worst.max(median);
        println!("{:>8.2} ms  best {:>6.2} ms  {pieces:>6} pieces  {name}", median.as_secs_f64() * 1e3, times[0].as_secs_f64() * 1e3);
    }
    println!("{:>8.2} ms  the worst of {}", worst.as_secs_f64() * 1e3, INPUTS.len());
    if worst >= LIMIT {
        std::process::exit(1);
    }
}
