//! The page of hits that a call asked for.

use super::hits::{self, FileHits, Key, Tally};
use super::{Args, Ending, FileFound, Found, LIMIT, MOST_CONTEXT, Mode};
use crate::tools::page::{self, Truncation};
use crate::workspace::escape;

/// The page of a tally that was asked for.
pub(super) fn shape(args: &Args, tally: Tally, ending: Ending, partial: bool, engine: &'static str, notes: Vec<String>) -> Found {
    let limit = args.limit.unwrap_or(LIMIT);
    let budget = if args.limit.is_some() { page::LARGE_BUDGET } else { page::BUDGET };
    let context = |own: Option<u64>| own.or(args.context).unwrap_or(0).min(MOST_CONTEXT);
    let end = args.offset.saturating_add(limit);
    let mut files = Vec::new();
    let (mut at, mut shown, mut spent, mut full) = (0_u64, 0_u64, 0, false);
    for (Key { path, .. }, FileHits { lines, units, count, .. }) in tally.files {
        let from = args.offset.saturating_sub(at).min(units);
        let mut to = end.saturating_sub(at).min(units);
        at += units;
        if from >= to || full {
            continue;
        }
        let path = escape::escape(&path);
        let mut cut = Vec::new();
        if args.output_mode == Mode::Content {
            cut = hits::slice(lines, from, to, context(args.before), context(args.after));
            let room = budget.saturating_sub(spent + path.len());
            if let Some(fits) = hits::fitting(&mut cut, room, shown == 0) {
                to = from + fits;
                full = true;
            }
            spent += cut.iter().map(hits::cost).sum::<usize>();
        }
        spent += path.len() + 2;
        if spent > budget && shown > 0 {
            full = true;
        }
        shown += to - from;
        if to > from {
            files.push(FileFound { path, count: (args.output_mode != Mode::Files).then_some(count), lines: cut });
        }
    }
    let seen = args.offset + shown;
    // What `max_per_file` leaves out is no part of any page, but it was found and is counted.
    let total = if args.output_mode == Mode::Content { tally.matches } else { tally.total };
    let left_out = total > tally.total;
    let truncation = (seen < tally.total || args.offset > 0 || partial || left_out).then(|| Truncation {
        shown,
        total,
        at_least: partial,
        by: if full {
            "bytes"
        } else if seen >= tally.total && partial {
            "time"
        } else if seen >= tally.total && left_out {
            "max_per_file"
        } else {
            "limit"
        },
        next_offset: (seen < tally.total && shown > 0).then_some(seen),
    });
    Found {
        output_mode: args.output_mode,
        engine,
        files,
        total,
        at_least: partial,
        files_total: tally.files_total,
        truncation,
        counts: ending.counts,
        ignored_hits: ending.ignored_hits,
        skipped: ending.skipped,
        notes,
    }
}
