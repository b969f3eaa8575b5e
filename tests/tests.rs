//! The integration tests: one binary, one workspace builder, attacks as rows.
//!
//! Two variables make runs longer: `BAILIWICK_TEST_CASES` is the number of cases of each property test (they are in the library's own
//! tests), `BAILIWICK_TEST_ROUNDS` how often each tool is called while a folder is swapped under it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

mod as_user;
mod background;
mod browser;
mod ci;
mod clipping;
mod compatibility;
mod contract;
mod demo;
mod desk;
mod escapes;
mod house_rules;
mod new_tool;
mod processes;
mod protected;
mod races;
mod real_input;
mod refusals;
mod runs;
mod space;
mod stage;
mod tool_cases;
