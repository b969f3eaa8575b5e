//! What is for CI: the steps of the action and of the template, run here as a runner would run them.

use crate::runs::{Place, bash, calls, git};
use crate::space::bailiwick;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use yaml_rust2::{Yaml, YamlLoader};

const KEY: &str = "sk-canary-0123456789abcdef";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn yaml(path: &str) -> Yaml {
    YamlLoader::load_from_str(&fs::read_to_string(root(path)).unwrap()).unwrap().remove(0)
}

/// Runs the steps of the composite action in order: expressions are filled in where GitHub does it, and nowhere else.
fn act(place: &Place, at: &Path, with: &[(&str, &str)], event: &str, name: &str) -> (Vec<Output>, BTreeMap<String, String>) {
    let action = yaml("scripts/github-action/action.yml");
    let temp = place.space.path("temp");
    fs::create_dir_all(&temp).unwrap();
    let bin = place.space.path("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(bailiwick(), bin.join("bailiwick")).unwrap();
    }
    let inputs = action["inputs"].as_hash().unwrap();
    let input = |name: &str| {
        let default = &inputs[&Yaml::String(name.into())]["default"];
        with.iter().find(|(key, _)| *key == name).map_or_else(|| default.as_str().unwrap().to_owned(), |(_, value)| (*value).to_owned())
    };
    let fill = |text: &str| match text.strip_prefix("${{ ").and_then(|rest| rest.strip_suffix(" }}")) {
        Some("github.action_path") => root("scripts/github-action").display().to_string(),
        Some(expression) => input(expression.strip_prefix("inputs.").unwrap_or_else(|| panic!("{expression} is not known here"))),
        None => text.to_owned(),
    };
    let (outputs, summary) = (temp.join("outputs"), temp.join("summary"));
    let _ = fs::remove_file(&outputs);
    let mut done = Vec::new();
    for step in action["runs"]["steps"].as_vec().unwrap() {
        let run = step["run"].as_str().unwrap();
        assert!(!run.contains("${{"), "an expression in a script is a way in: {run}");
        assert_eq!(step["shell"].as_str(), Some("bash"));
        let mut command = Command::new("bash");
        command.args(["--noprofile", "--norc", "-eo", "pipefail", "-c", run]).current_dir(at).env_clear().stdin(Stdio::null());
        command.env("PATH", format!("{}:{}", bin.display(), crate::space::path())).env("HOME", place.space.path("home"));
        command.env("CI", "true").env("GITHUB_ACTIONS", "true").env("RUNNER_TEMP", &temp);
        command.env("GITHUB_EVENT_PATH", root(&format!("tests/events/{event}.json"))).env("GITHUB_EVENT_NAME", name);
        command.env("GITHUB_OUTPUT", &outputs).env("GITHUB_STEP_SUMMARY", &summary).env("GITHUB_PATH", temp.join("path"));
        for (key, value) in step["env"].as_hash().into_iter().flatten() {
            command.env(key.as_str().unwrap(), fill(value.as_str().unwrap()));
        }
        let output = command.output().unwrap();
        let ok = output.status.success();
        done.push(output);
        if !ok {
            break;
        }
    }
    let text = fs::read_to_string(&outputs).unwrap_or_default();
    let outputs = text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    (done, outputs)
}

fn said(outputs: &[Output]) -> String {
    outputs.iter().map(|output| format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))).collect()
}

#[test]
fn the_two_jobs_make_a_patch_without_a_token_and_apply_it_without_a_model() {
    let place = Place::new(&[("a", "one\n"), ("AGENTS.md", "MAGIC-WORD\n")]);
    let model = place.script(&[
        calls(&[
            ("write", json!({"path": "a", "content": "two\n"})),
            bash("env; cat /proc/self/environ; ls -la /tmp; cat /tmp/* 2>/dev/null; echo '::error::x'"),
        ]),
        json!({"text": "::warning::Done."}),
    ]);
    let task = "--help $(touch pwned) `touch pwned`; touch pwned\n\"'${{ secrets.X }}";
    let with = [("task", task), ("model", model.as_str()), ("api-key", KEY), ("verify", "grep -q two a")];
    let (done, outputs) = act(&place, &place.space.ws(), &with, "workflow_dispatch", "workflow_dispatch");
    assert_eq!(done.last().unwrap().status.code(), Some(0), "{}", said(&done));
    assert_eq!((outputs["exit-code"].as_str(), outputs["changed"].as_str()), ("0", "true"));
    let folder = PathBuf::from(&outputs["folder"]);
    for name in ["transcript.jsonl", "result.json", "changes.patch", "report.html"] {
        let text = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!text.contains(KEY), "the key is in {name}");
    }
    assert!(!said(&done).contains(KEY) && !place.space.ws().join("pwned").exists());
    let transcript = fs::read_to_string(folder.join("transcript.jsonl")).unwrap();
    assert!(transcript.contains(&serde_json::to_string(task).unwrap()), "the task arrives as it is");
    assert!(transcript.contains("MAGIC-WORD"), "a dispatch works on one's own tree");
    for line in said(&done).lines().filter(|line| line.trim_start().starts_with("::")) {
        assert!(line.starts_with("::group::turn ") || line == "::endgroup::", "{line:?} commands the runner");
    }
    let summary = fs::read_to_string(place.space.path("temp/summary")).unwrap();
    assert!(summary.contains("### bailiwick: done") && summary.contains("| a | +1 -1 |"), "{summary}");
    let left: Vec<_> = fs::read_dir(place.space.path("temp")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");

    // The other job: a fresh checkout, the folder, no model and no key.
    let clone = place.space.path("fresh");
    git(&place.space.path("."), &["clone", "-q", &place.space.ws().display().to_string(), &clone.display().to_string()]);
    let (done, outputs) = act(&place, &clone, &[("folder", &folder.display().to_string())], "workflow_dispatch", "workflow_dispatch");
    assert_eq!(done.last().unwrap().status.code(), Some(0), "{}", said(&done));
    assert_eq!((outputs["exit-code"].as_str(), fs::read_to_string(clone.join("a")).unwrap().as_str()), ("0", "two\n"));
}

#[test]
fn what_a_strangers_event_brings_is_not_loaded_and_a_failure_is_one() {
    for (event, name, loaded) in [
        ("push", "push", true),
        ("pull_request_own", "pull_request", true),
        ("pull_request_fork", "pull_request", false),
        ("pull_request_gone", "pull_request", false),
        ("pull_request_own", "pull_request_target", false),
        ("issue_comment", "issue_comment", false),
    ] {
        let place = Place::new(&[("a", "one\n"), ("AGENTS.md", "MAGIC-WORD\n")]);
        let model = place.script(&[json!({"text": "GAVE UP: no"})]);
        let with = [("task", "Look."), ("model", model.as_str())];
        let (done, outputs) = act(&place, &place.space.ws(), &with, event, name);
        assert_eq!((done.last().unwrap().status.code(), outputs["exit-code"].as_str()), (Some(1), "1"), "{}", said(&done));
        assert_eq!(outputs["changed"], "false");
        let transcript = fs::read_to_string(Path::new(&outputs["folder"]).join("transcript.jsonl")).unwrap();
        assert_eq!(transcript.contains("MAGIC-WORD"), loaded, "{event} as {name}");
    }
}

#[test]
fn every_input_is_used_and_the_example_parts_model_and_token() {
    let action = yaml("scripts/github-action/action.yml");
    let text = fs::read_to_string(root("scripts/github-action/action.yml")).unwrap();
    for (name, input) in action["inputs"].as_hash().unwrap() {
        let name = name.as_str().unwrap();
        assert!(text.contains(&format!("${{{{ inputs.{name} }}}}")) && input["description"].as_str().is_some(), "{name}");
    }
    let example = yaml("scripts/github-action/example.yml");
    assert!(example["permissions"].as_hash().is_some_and(|permissions| permissions.is_empty()));
    let emitted = |job: &str| format!("{:?}", example["jobs"][job]);
    let rights = |job: &str| -> Vec<(String, String)> {
        let rights = example["jobs"][job]["permissions"].as_hash().unwrap();
        rights.iter().map(|(what, right)| (what.as_str().unwrap().to_owned(), right.as_str().unwrap().to_owned())).collect()
    };
    assert_eq!(rights("patch"), [("contents".to_owned(), "read".to_owned())]);
    assert!(emitted("patch").contains("secrets.MODEL_KEY") && !emitted("patch").contains("github.token"));
    let checkout = &example["jobs"]["patch"]["steps"][0];
    assert_eq!(checkout["with"]["persist-credentials"].as_bool(), Some(false));
    assert!(!emitted("apply").contains("secrets.") && emitted("apply").contains("github.token"));
    assert!(rights("apply").contains(&("contents".into(), "write".into())));
    for job in ["patch", "apply"] {
        for step in example["jobs"][job]["steps"].as_vec().unwrap() {
            assert!(!step["run"].as_str().unwrap_or_default().contains("${{"));
        }
    }
}

#[test]
fn the_jobs_of_the_gitlab_template_run() {
    let template = yaml("scripts/gitlab/bailiwick.gitlab-ci.yml");
    let place = Place::new(&[("a", "one\n")]);
    place.git(&["remote", "add", "origin", "https://gitlab-ci-token:glcbt-secret@example.org/o/r.git"]);
    let model =
        place.script(&[calls(&[("write", json!({"path": "a", "content": "two\n"})), bash("cat .git/config")]), json!({"text": "Done."})]);
    let (bin, builds, key) = (place.space.path("bin"), place.space.path("builds"), place.space.path("key"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&builds).unwrap();
    fs::write(&key, KEY).unwrap();
    std::os::unix::fs::symlink(bailiwick(), bin.join("bailiwick")).unwrap();
    let job = |name: &str, part: &str, at: &Path, with_key: bool| {
        let lines = template[name][part].as_vec().unwrap();
        let script: String = lines.iter().map(|line| format!("{}\n", line.as_str().unwrap())).collect();
        let mut command = Command::new("bash");
        command.args(["-eo", "pipefail", "-c", &script]).current_dir(at).env_clear().stdin(Stdio::null());
        command.env("PATH", format!("{}:{}", bin.display(), crate::space::path())).env("HOME", place.space.path("home"));
        command.env("CI", "true").env("GITLAB_CI", "true").env("CI_PIPELINE_SOURCE", "push").env("CI_BUILDS_DIR", &builds);
        command.env("BAILIWICK_TASK", "Make it two.").env("BAILIWICK_MODEL", &model);
        if with_key {
            command.env("BAILIWICK_KEY_FILE", &key);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", said(&[output]));
    };
    job("bailiwick-patch", "script", &place.space.ws(), true);
    job("bailiwick-patch", "after_script", &place.space.ws(), true);
    let folder = place.space.ws().join("bailiwick-run");
    let transcript = fs::read_to_string(folder.join("transcript.jsonl")).unwrap();
    assert!(!transcript.contains("glcbt-secret") && transcript.contains("repositoryformatversion"), "the job's token is out of reach");
    assert!(folder.join("report.html").exists());
    let clone = place.space.path("fresh");
    git(&place.space.path("."), &["clone", "-q", &place.space.ws().display().to_string(), &clone.display().to_string()]);
    fs::rename(folder, clone.join("bailiwick-run")).unwrap();
    job("bailiwick-apply", "script", &clone, false);
    assert_eq!(fs::read_to_string(clone.join("a")).unwrap(), "two\n");
    assert!(!format!("{:?}", template["bailiwick-apply"]).contains("KEY"));
}

#[test]
fn the_image_is_made_of_what_is_there() {
    let text = fs::read_to_string(root("images/Containerfile")).unwrap();
    let copied: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("COPY ") && !line.contains("--from"))
        .flat_map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().split_last().unwrap().1.to_vec())
        .collect();
    assert!(copied.iter().all(|path| root(path).exists()), "{copied:?}");
    // All that the build reads besides the sources themselves.
    let manifest = fs::read_to_string(root("Cargo.toml")).unwrap();
    for line in manifest.lines().filter_map(|line| line.strip_prefix("path = ")) {
        let path = line.trim_matches('"');
        assert!(copied.iter().any(|copied| path.starts_with(copied)), "{path} is not copied");
    }
    let mut folders = vec![root("src")];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for included in text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let real = path.parent().unwrap().join(included).canonicalize();
                // A word in a text is no file.
                let Ok(real) = real else { continue };
                let rel = real.strip_prefix(root("").canonicalize().unwrap()).unwrap().to_path_buf();
                assert!(copied.iter().any(|copied| rel.starts_with(copied)), "{} is not copied", rel.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 5);
    assert!(text.contains("\nUSER worker\n") && text.contains("ENTRYPOINT [\"bailiwick\"]"));
}
