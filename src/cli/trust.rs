//! Whose tree it is: said, or read from the event of CI.

use serde_json::Value;
use std::path::Path;

/// Whose tree it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Trust {
    /// One's own: its instructions are given to the model
    #[default]
    Own,
    /// Somebody else's: nothing of it is loaded
    Fork,
    /// What the event of CI says; when in doubt, somebody else's
    Auto,
}

impl Trust {
    /// Whether nothing of the tree may be loaded.
    pub(super) fn is_fork(self) -> bool {
        match self {
            Self::Own => false,
            Self::Fork => true,
            Self::Auto => by_event(&|name| std::env::var(name).ok().filter(|value| !value.is_empty())),
        }
    }
}

/// Whether the event that CI tells of may have brought somebody else's tree. What is not known to be one's own may have.
fn by_event(var: &dyn Fn(&str) -> Option<String>) -> bool {
    if let (Some(file), Some(name)) = (var("GITHUB_EVENT_PATH"), var("GITHUB_EVENT_NAME")) {
        return github(&name, Path::new(&file));
    }
    if var("GITLAB_CI").is_some() {
        return match var("CI_PIPELINE_SOURCE").as_deref() {
            Some("merge_request_event") => {
                let (source, own) = (var("CI_MERGE_REQUEST_SOURCE_PROJECT_ID"), var("CI_PROJECT_ID"));
                source.is_none() || source != own
            }
            Some("push" | "schedule" | "web" | "api" | "trigger") => false,
            _ => true,
        };
    }
    true
}

fn github(name: &str, file: &Path) -> bool {
    let event = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(event) = event else { return true };
    match name {
        "push" | "schedule" | "workflow_dispatch" | "repository_dispatch" | "merge_group" => false,
        // Only of these is it known which tree is checked out. A comment, say, may be about any.
        "pull_request" => {
            let id = |side: &str| event["pull_request"][side]["repo"]["id"].as_u64();
            id("head").is_none() || id("head") != id("base") || id("base") != event["repository"]["id"].as_u64()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_says_whose_tree_it_is() {
        let events = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/events");
        let mut seen = 0;
        for (file, name, fork) in [
            ("push", "push", false),
            ("schedule", "schedule", false),
            ("workflow_dispatch", "workflow_dispatch", false),
            ("pull_request_own", "pull_request", false),
            ("pull_request_fork", "pull_request", true),
            ("pull_request_gone", "pull_request", true),
            ("pull_request_own", "pull_request_target", true),
            ("issue_comment", "issue_comment", true),
            ("workflow_run", "workflow_run", true),
            ("is_not_there", "push", true),
        ] {
            let path = events.join(format!("{file}.json")).display().to_string();
            let var = |asked: &str| match asked {
                "GITHUB_EVENT_PATH" => Some(path.clone()),
                "GITHUB_EVENT_NAME" => Some(name.to_owned()),
                _ => None,
            };
            assert_eq!(by_event(&var), fork, "{file} as {name}");
            seen += usize::from(Path::new(&path).exists());
        }
        assert_eq!(seen, 9);
    }

    #[test]
    fn gitlab_says_it_too_and_nobody_saying_anything_is_no_yes() {
        let gitlab = |source: &str, from: Option<&str>| {
            let (source, from) = (source.to_owned(), from.map(str::to_owned));
            by_event(&move |name| match name {
                "GITLAB_CI" => Some("true".into()),
                "CI_PIPELINE_SOURCE" => Some(source.clone()),
                "CI_PROJECT_ID" => Some("1".into()),
                "CI_MERGE_REQUEST_SOURCE_PROJECT_ID" => from.clone(),
                _ => None,
            })
        };
        assert!(!gitlab("push", None) && !gitlab("merge_request_event", Some("1")));
        assert!(
            gitlab("merge_request_event", Some("2")) && gitlab("merge_request_event", None) && gitlab("external_pull_request_event", None)
        );
        assert!(by_event(&|_| None));
    }
}
