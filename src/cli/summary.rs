//! The summary of a step of CI, as GitHub shows it: written to the file that the runner names.

use crate::agent::budget::dollars;
use crate::agent::run_loop::Finished;
use std::io::Write;
use std::path::PathBuf;

/// Changed files that are named.
const MOST_FILES: usize = 50;

/// Adds the run to the summary of the step, where the runner wants one.
pub(super) fn step(finished: &Finished) {
    let Some(file) = std::env::var_os("GITHUB_STEP_SUMMARY").map(PathBuf::from) else { return };
    let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
    // A summary that cannot be written is no reason to fail a step.
    let _ = opened.and_then(|mut file| file.write_all(markdown(finished).as_bytes()));
}

/// The run in Markdown. Everything that the model or the tree said is in it as text, never as markup.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a sum that was counted in millionths
fn markdown(finished: &Finished) -> String {
    let result = &finished.result;
    let cost = result.cost_usd.map(|cost| format!(", {}", dollars((cost * 1e6).round() as u64))).unwrap_or_default();
    let mut text = format!(
        "### bailiwick: {}\n\n| | |\n|---|---|\n| model | {} |\n| turns | {} |\n| tokens | {} read, {} written{cost} |\n| time | {} s |\n| failed calls | {} |\n",
        plain(&result.stop_reason),
        plain(&result.model),
        result.turns,
        result.input_tokens,
        result.output_tokens,
        result.duration_ms / 1000,
        result.failed_calls.len(),
    );
    if let Some(message) = &result.message {
        text.push_str(&format!("\n{}\n", plain(message)));
    }
    if !result.answer.trim().is_empty() {
        text.push_str(&format!("\n{}\n", block(result.answer.trim())));
    }
    if !result.changed_files.is_empty() {
        text.push_str("\n| changed | lines |\n|---|---|\n");
        for file in result.changed_files.iter().take(MOST_FILES) {
            let lines = match (file.added, file.removed) {
                (Some(added), Some(removed)) => format!("+{added} -{removed}"),
                _ => "binary".into(),
            };
            text.push_str(&format!("| {} | {lines} |\n", plain(&file.path)));
        }
        if result.changed_files.len() > MOST_FILES {
            text.push_str(&format!("| and {} more | |\n", result.changed_files.len() - MOST_FILES));
        }
    }
    for note in &result.notes {
        text.push_str(&format!("\n{}\n", plain(note)));
    }
    text.push('\n');
    text
}

/// One line of text, in which nothing is markup: each character that could be is written as a reference.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' => " ".into(),
            c if c.is_alphanumeric() || " ,.;:/-+=()%".contains(c) => c.to_string(),
            c if c.is_control() => String::new(),
            c => format!("&#{};", u32::from(c)),
        })
        .collect()
}

/// Several lines as a block of code that they cannot end.
fn block(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_summary_is_markup() {
        assert_eq!(plain("a|b\n<img src=x>[x](y)`*"), "a&#124;b &#60;img src=x&#62;&#91;x&#93;(y)&#96;&#42;");
        let text = "```\n# head\n````\n<script>";
        let fenced = block(text);
        assert!(fenced.starts_with("`````text\n") && fenced.ends_with("\n`````") && fenced.contains(text));
    }
}
