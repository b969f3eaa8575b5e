//! The limit that ended a program, in words. Only numbers of the policy and of the kernel are told, nothing that the program wrote.

use crate::clip::counted;
use crate::jail::wire::{Bound, Ended};
use crate::policy::Limits;

/// What a shell adds to the number of the signal that ended its child.
const BY_SIGNAL: i32 = 128;

/// The limit that a program met, if it was ended for one, or died of one. `pipestatus` is what the shell said of its last pipeline.
pub(super) fn met(ended: &Ended, pipestatus: Option<&[i32]>, limits: &Limits) -> Option<String> {
    match ended.exceeded {
        Some(Bound::Memory) => return Some(format!("memory ({} for all its processes together)", bytes(limits.memory))),
        Some(Bound::Processes) => return Some(format!("processes ({} with their threads)", plain(limits.processes))),
        Some(Bound::Disk) => return Some(format!("disk ({} that a session may add)", bytes(limits.disk))),
        None => {}
    }
    let codes = ended.exit_code.into_iter().chain(pipestatus.unwrap_or_default().iter().copied());
    let signals: Vec<i32> = ended.signal.into_iter().chain(codes.map(|code| code - BY_SIGNAL)).collect();
    if signals.contains(&libc::SIGXFSZ) {
        return Some(format!("file size ({} for one file)", bytes(limits.file_size)));
    }
    // Who ignores SIGXCPU is killed a second later.
    let used_up = limits.cpu_s > 0 && ended.cpu_ms >= limits.cpu_s.saturating_mul(1000);
    if signals.contains(&libc::SIGXCPU) || used_up && signals.contains(&libc::SIGKILL) {
        return Some(format!("processor time ({} s for one process)", plain(limits.cpu_s)));
    }
    None
}

/// The limit of a flood.
pub(super) fn output(most: u64) -> String {
    format!("output ({})", bytes(most))
}

/// An amount of bytes, as a policy would say it.
pub(super) fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| number >= *unit && number.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", number / unit),
        None => counted(number, "byte"),
    }
}

fn plain(number: u64) -> String {
    counted(number, "").trim_end().trim_end_matches('s').trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { wall_ms: 1, cpu_s: 2, memory: 1 << 28, processes: 1024, file_size: 1 << 20, open_files: 1, output: 1, disk: 1000 };

    #[test]
    fn rows() {
        let ended = |exit_code, signal, exceeded| Ended { exit_code, signal, exceeded, cpu_ms: 2100, ..Ended::default() };
        let says = |ended: Ended, pipe: &[i32]| met(&ended, Some(pipe), &LIMITS);
        for (given, pipe, expected) in [
            (ended(None, Some(9), Some(Bound::Memory)), &[][..], Some("memory (256 MiB for all its processes together)")),
            (ended(None, Some(9), Some(Bound::Processes)), &[], Some("processes (1,024 with their threads)")),
            (ended(None, Some(9), Some(Bound::Disk)), &[], Some("disk (1,000 bytes that a session may add)")),
            (ended(Some(153), None, None), &[], Some("file size (1 MiB for one file)")),
            (ended(Some(0), None, None), &[153, 0], Some("file size (1 MiB for one file)")),
            (ended(None, Some(24), None), &[], Some("processor time (2 s for one process)")),
            (ended(Some(137), None, None), &[], Some("processor time (2 s for one process)")),
            (ended(Some(1), None, None), &[1, 0], None),
        ] {
            assert_eq!(says(given.clone(), pipe).as_deref(), expected, "{given:?}");
        }
        let short = Ended { cpu_ms: 5, ..ended(None, Some(9), None) };
        assert_eq!(says(short, &[]), None);
    }
}
