//! How many cases the property tests try: `BAILIWICK_TEST_CASES`, else what each of them names as enough for every run.

use proptest::test_runner::Config;

/// The settings of a property test that tries this many cases unless the variable says otherwise. No files of failures are kept: what
/// was found becomes a test of its own.
pub(crate) fn cases(usual: u32) -> Config {
    let asked = std::env::var("BAILIWICK_TEST_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { cases: asked.unwrap_or(usual), failure_persistence: None, max_global_rejects: u32::MAX, ..Config::default() }
}
