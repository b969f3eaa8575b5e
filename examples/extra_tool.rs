//! How a tool is added: one file that says what it does, one line in the registry. Here the registry is a list of our own behind the
//! shipped one; within this repository the line goes into `TOOLS`.
//!
//! `cargo run --example extra_tool -- tool count_lines '{"path":"Cargo.toml"}'`

use bailiwick::envelope::Fault;
use bailiwick::tools::{Access, AnyTool, Bench, InJail, Render, Spec, TOOLS, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts the lines of a file.
struct CountLines;

#[derive(Deserialize, JsonSchema)]
struct Args {
    /// The file, relative to the workspace.
    path: String,
}

#[derive(Serialize, JsonSchema)]
struct Counted {
    path: String,
    lines: usize,
}

impl Render for Counted {
    fn render(&self) -> String {
        format!("{}: {} lines", self.path, self.lines)
    }
}

impl Spec for CountLines {
    type Args = Args;
    type Data = Counted;
    const NAME: &'static str = "count_lines";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "Counts the lines of a file.";
    const EXAMPLE: &'static str = r#"{"path":"src/main.rs"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[("file_path", "path")];
}

impl Tool for CountLines {
    fn run(bench: &Bench<'_>, args: Args) -> Result<Counted, Fault> {
        let path = bench.base().rel(&args.path)?;
        let loaded = bench.base().load(&path, 64 * 1024 * 1024)?;
        let lines = loaded.bytes.split_inclusive(|byte| *byte == b'\n').count();
        Ok(Counted { path: path.to_string(), lines })
    }
}

fn main() {
    let mut tools: Vec<&'static dyn AnyTool> = TOOLS.to_vec();
    tools.push(&InJail::<CountLines>::NEW);
    std::process::exit(bailiwick::cli::main(tools.leak()));
}
