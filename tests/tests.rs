//! The integration tests: one binary, one workspace builder, attacks as rows.
//!
//! Two variables make runs longer: `BAILIWICK_TEST_CASES` is the number of cases of each property test (here [`model`] and [`predictions`], whose first seed is `BAILIWICK_TEST_SEED`; the others are in
//! the library's own tests), `BAILIWICK_TEST_ROUNDS` how often each tool is called while a folder is swapped under it ([`races`]), how often a
//! file is written while it is read or its writer killed, and how many lines two sessions add to one file (`tool_cases::durable`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::print_stderr, missing_docs)]

mod as_user;
mod background;
mod browser;
mod ci;
mod clipping;
mod compatibility;
mod contract;
mod crashes;
mod demo;
mod desk;
mod escapes;
mod house_rules;
mod injection;
mod mcp_client;
mod mcp_everything;
mod mcp_server;
mod messages;
mod model;
mod models;
mod new_tool;
mod predictions;
mod processes;
mod protected;
mod races;
mod ran;
mod readme;
mod real_input;
mod refusals;
mod runs;
mod sandbox_cases;
mod secrets;
mod skills;
mod space;
mod stage;
mod tool_cases;
mod walls;
