//! The line that names the cause is in what a model sees, for real logs of failing tools.

use bailiwick::clip::capture::{Captured, Chunk, Collector, Stream};
use bailiwick::tools::output::show;
use std::fs;
use std::io::Read;
use std::path::Path;

const LOGS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/logs");

/// Name, log and a part of the line that names the cause.
fn corpus() -> Vec<(String, Vec<u8>, String)> {
    let index = fs::read_to_string(Path::new(LOGS).join("index.tsv")).unwrap();
    let rows = index.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let (name, cause) = row.split_once('\t').unwrap();
        let packed = fs::read(Path::new(LOGS).join(format!("{name}.gz"))).unwrap();
        let mut log = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut log).unwrap();
        (name.to_owned(), log, cause.to_owned())
    })
    .collect()
}

/// As it arrives: in reads of a pipe's size.
fn captured(log: &[u8]) -> Captured {
    let mut collector = Collector::default();
    for read in log.chunks(4096) {
        collector.push(Stream::Stdout, read);
    }
    collector.finish()
}

#[test]
fn the_cause_is_shown() {
    let corpus = corpus();
    assert!(corpus.len() >= 30);
    for budget in [8192, 4096] {
        let (mut ours, mut head, mut tail, mut both) = (0, 0, 0, 0);
        let mut missed = Vec::new();
        for (name, log, cause) in &corpus {
            assert!(log.len() > 8192, "{name} is no test: it fits");
            let shown = show(&captured(log), None, budget);
            assert!(shown.text.len() <= budget, "{name}: {} bytes", shown.text.len());
            let cut = shown.cut.unwrap();
            assert_eq!(cut.total_bytes, log.len() as u64, "{name}");
            let text = String::from_utf8_lossy(log);
            let within = |text: &str| usize::from(text.contains(cause.as_str()));
            let first = |max| bailiwick::clip::head(&text, max).text;
            let last = |max| bailiwick::clip::tail(&text, max).text;
            head += within(first(budget));
            tail += within(last(budget));
            both += usize::from(first(budget / 2).contains(cause.as_str()) || last(budget / 2).contains(cause.as_str()));
            ours += within(&shown.text);
            if within(&shown.text) == 0 {
                missed.push(name.as_str());
            }
        }
        let all = corpus.len();
        println!("{budget} bytes: the cause is shown in {ours} of {all} logs; head alone {head}, tail alone {tail}, head and tail {both}");
        assert!(ours + 1 >= all, "missed: {missed:?}");
        assert!(ours > both);
    }
}

#[test]
fn the_cause_survives_a_flood_round_it() {
    // The same logs in the middle of more output than is kept.
    let quiet: String = (0..60_000).map(|number| format!("step {number} of the long run is done\n")).collect();
    let corpus = corpus();
    let mut missed = Vec::new();
    for (name, log, cause) in &corpus {
        let mut collector = Collector::default();
        for part in [quiet.as_bytes(), log, b"\n", quiet.as_bytes()] {
            for read in part.chunks(4096) {
                collector.push(Stream::Stdout, read);
            }
        }
        let captured = collector.finish();
        let kept: usize = captured.chunks.iter().map(|Chunk { bytes, .. }| bytes.len()).sum();
        assert!(kept < 700 << 10);
        let shown = show(&captured, None, 8192);
        assert!(shown.text.len() <= 8192);
        if !shown.text.contains(cause.as_str()) {
            missed.push(name.as_str());
        }
    }
    println!("in a flood: the cause is shown in {} of {} logs", corpus.len() - missed.len(), corpus.len());
    assert!(missed.len() <= 1, "missed: {missed:?}");
}
