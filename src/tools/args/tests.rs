use super::*;
use crate::policy::Access;
use crate::tools::Render;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Args {
    path: String,
    #[serde(default)]
    limit: Option<u32>,
    #[serde(default)]
    ratio: Option<f64>,
    #[serde(default)]
    all: bool,
    #[serde(default)]
    names: Vec<String>,
    #[serde(default)]
    either: OneOrMany,
    #[serde(default)]
    edits: Vec<Edit>,
    #[serde(default)]
    max_depth: Option<i64>,
    #[serde(default)]
    mode: Option<Mode>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[allow(dead_code)]
struct Edit {
    old: String,
    new: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// One.
    Fast,
    /// Another.
    Slow,
}

#[derive(Serialize, JsonSchema)]
struct Nothing {}

impl Render for Nothing {
    fn render(&self) -> String {
        String::new()
    }
}

struct Probe;

impl Spec for Probe {
    type Args = Args;
    type Data = Nothing;
    const NAME: &'static str = "probe";
    const ACCESS: Access = Access::Look;
    const CATEGORY: &'static str = "file";
    const SUMMARY: &'static str = "";
    const EXAMPLE: &'static str = r#"{"path":"a"}"#;
    const SYNONYMS: &'static [(&'static str, &'static str)] = &[("file", "path"), ("file_path", "path")];
}

/// What the reader makes of arguments, and how many warnings it gives.
fn good(args: Value) -> (Value, Vec<String>) {
    let (value, warnings) = read::<Probe>(args).unwrap();
    parse::<Probe>(value.clone()).unwrap();
    (value, warnings)
}

fn bad(args: Value) -> Fault {
    let fault = read::<Probe>(args).and_then(|(value, _)| parse::<Probe>(value)).unwrap_err();
    assert_eq!(fault.code(), FaultCode::InvalidArguments);
    assert_eq!(fault.hint_text(), Some(r#"for example probe {"path":"a"}"#));
    fault
}

#[test]
fn what_is_right_is_left_alone() {
    let args = json!({"path": "a", "limit": 3, "all": true, "names": ["x"], "either": "[!x]", "edits": [{"old": "a", "new": "b"}], "mode": "fast"});
    assert_eq!(good(args.clone()), (args, vec![]));
}

#[test]
fn each_repair_is_made_and_named() {
    for (given, read) in [
        (json!({"file_path": "a"}), json!({"path": "a"})),
        (json!({"path": "a", "limit": "5"}), json!({"path": "a", "limit": 5})),
        (json!({"path": "a", "limit": "5.0"}), json!({"path": "a", "limit": 5})),
        (json!({"path": "a", "limit": 5.0}), json!({"path": "a", "limit": 5})),
        (json!({"path": "a", "limit": ""}), json!({"path": "a"})),
        (json!({"path": "a", "max_depth": "-2"}), json!({"path": "a", "max_depth": -2})),
        (json!({"path": "a", "maxDepth": 2}), json!({"path": "a", "max_depth": 2})),
        (json!({"path": "a", "all": "True"}), json!({"path": "a", "all": true})),
        (json!({"path": "a", "all": 0}), json!({"path": "a", "all": false})),
        (json!({"path": "a", "names": "x"}), json!({"path": "a", "names": ["x"]})),
        (json!({"path": "a", "names": "[!x]"}), json!({"path": "a", "names": ["[!x]"]})),
        (json!({"path": "a", "names": "[\"x\", \"y\"]"}), json!({"path": "a", "names": ["x", "y"]})),
        (json!({"path": "a", "names": "{a,b}"}), json!({"path": "a", "names": ["{a,b}"]})),
        (json!({"path": "a", "either": "[\"x\"]"}), json!({"path": "a", "either": ["x"]})),
        (json!({"path": "a", "edits": "[{\"old\":\"a\",\"new\":\"b\"}]"}), json!({"path": "a", "edits": [{"old": "a", "new": "b"}]})),
        (json!({"path": "a", "edits": ["{\"old\":\"a\",\"new\":\"b\"}"]}), json!({"path": "a", "edits": [{"old": "a", "new": "b"}]})),
        (json!({"path": "a", "edits": {"old": "a", "new": "b"}}), json!({"path": "a", "edits": [{"old": "a", "new": "b"}]})),
        (json!({"path": "a", "mode": "FAST"}), json!({"path": "a", "mode": "fast"})),
        (json!({"path": 7}), json!({"path": "7"})),
        (json!({"path": ["a"]}), json!({"path": "a"})),
        (json!({"arguments": {"path": "a"}}), json!({"path": "a"})),
        (json!("{\"path\": \"a\"}"), json!({"path": "a"})),
    ] {
        let (value, warnings) = good(given.clone());
        assert_eq!(value, read, "{given}");
        assert_eq!(warnings.len(), 1, "{given}: {warnings:?}");
    }
}

#[test]
fn null_is_absent_without_a_word() {
    assert_eq!(good(json!({"path": "a", "limit": null, "file": null, "names": null})), (json!({"path": "a"}), vec![]));
}

#[test]
fn unknown_keys_are_named_with_the_nearest_known_one() {
    let (value, warnings) = good(json!({"path": "a", "limmit": 3, "colour": 1}));
    assert_eq!(value, json!({"path": "a"}));
    assert_eq!(warnings[0], "unknown argument \"limmit\" was ignored; did you mean limit?");
    assert!(warnings[1].contains("probe takes path, limit"), "{}", warnings[1]);
}

#[test]
fn what_is_missing_or_wrong_is_said() {
    assert_eq!(bad(json!({})).message(), "probe needs path");
    assert_eq!(bad(json!(null)).message(), "probe needs path");
    assert_eq!(bad(json!({"paht": "a"})).message(), "probe needs path, and does not take \"paht\"");
    assert_eq!(bad(json!([1])).message(), "the arguments are not an object");
    assert_eq!(bad(json!({"path": {"a": 1}})).message(), "path is an object, and should be string");
    assert_eq!(bad(json!({"path": 1.5})).message(), "path is a number, and should be string");
    assert_eq!(bad(json!({"path": "a", "limit": "many"})).message(), "limit is a string, and should be integer");
    assert!(bad(json!({"path": "a", "limit": -1})).message().contains("-1"));
    assert!(
        bad(json!({"path": "a", "edits": "[{\"old\" 1}]"})).message().ends_with("(byte 8)"),
        "{}",
        bad(json!({"path": "a", "edits": "[{\"old\" 1}]"}))
    );
    assert!(bad(json!({"path": "a", "file": "b"})).message().contains("the same argument"));
    assert!(bad(json!({"path": "a", "mode": "quick"})).message().contains("fast"));
    assert!(bad(json!("{path")).message().contains("no JSON"));
}

#[test]
fn the_schema_is_one_plain_object() {
    let schema = schema::<Args>();
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["required"], json!(["path"]));
    assert_eq!(schema["additionalProperties"], false);
    assert!(!schema.to_string().contains("$ref"));
}
