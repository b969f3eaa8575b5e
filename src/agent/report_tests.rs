use super::*;
use crate::envelope::{Fault, FaultCode};
use crate::session::Call;
use crate::tools::Answer;
use serde_json::json;

fn events(list: Vec<What>) -> Vec<Event> {
    let at = |(seq, what)| Event { v: 1, seq, ts: 1_700_000_000_000 + seq * 500, run_id: "r".into(), what };
    list.into_iter().enumerate().map(|(seq, what)| at((seq as u64, what))).collect()
}

fn started(task: &str) -> What {
    let (model, dialect) = ("script:x".into(), "native".into());
    let (tools, system, enforcement, workspace) = (Vec::new(), String::new(), Value::Null, String::new());
    What::RunStarted { task: task.into(), model, dialect, tools, system, enforcement, workspace }
}

fn call(id: &str, args: Value) -> Call {
    Call { id: id.into(), tool: "edit".into(), args }
}

fn replied(text: &str, calls: Vec<Call>) -> What {
    What::Replied { reply: Value::Null, text: text.into(), calls, native: true, input_tokens: 1000, output_tokens: 50 }
}

fn ended(id: &str, answer: Answer) -> What {
    What::CallEnded { id: id.into(), tool: "edit".into(), envelope: answer.envelope, text: answer.text, duration_ms: 12 }
}

/// A text that would be markup, a script, a link or an attribute wherever it stood unescaped.
const EVIL: &str = "</pre></style></title><script>alert(1)</script><img src=x onerror=alert(1)>\" onmouseover=\"alert(1) ' javascript:alert(1) <!-- ]]> \u{202e}\u{2028}\0";

#[test]
fn every_field_is_escaped() {
    let refused = Answer::failed(Fault::new(FaultCode::OutsideWorkspace, EVIL).with("diff", EVIL));
    let list = events(vec![
        started(EVIL),
        What::TurnStarted { turn: 1 },
        replied(EVIL, vec![call(EVIL, json!({ EVIL: EVIL, "patch": EVIL }))]),
        What::CallStarted { call: call(EVIL, json!({})) },
        ended(EVIL, refused),
        What::User { text: EVIL.into() },
        What::Noted { text: EVIL.into() },
        What::DialectChanged { to: EVIL.into(), reason: EVIL.into(), system: EVIL.into() },
        What::Summarized { text: EVIL.into(), upto: 0, input_tokens: 0, output_tokens: 0 },
    ]);
    let patch = format!("diff --git a/{EVIL} b/x\n+{EVIL}\n");
    let html = page(&list, Some(patch.as_bytes()));
    // What stands between angle brackets is ours alone.
    let tags: std::collections::BTreeSet<&str> = html
        .split('<')
        .skip(1)
        .map(|part| part.split(|c: char| c.is_whitespace() || c == '>').next().unwrap().trim_start_matches('/'))
        .collect();
    let ours = [
        "!doctype",
        "a",
        "article",
        "b",
        "body",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
        "h1",
        "h2",
        "head",
        "header",
        "html",
        "i",
        "input",
        "label",
        "li",
        "main",
        "meta",
        "p",
        "path",
        "pre",
        "rect",
        "section",
        "small",
        "span",
        "style",
        "summary",
        "svg",
        "title",
        "ul",
    ];
    assert!(tags.iter().all(|tag| ours.contains(tag)), "{tags:?}");
    for attribute in html.split('<').skip(1).filter_map(|part| part.split('>').next()) {
        assert!(!attribute.contains("onerror") && !attribute.contains("onmouseover"), "{attribute}");
    }
    assert!(html.contains("&lt;script&gt;alert(1)") && !html.contains('\0') && !html.contains('\u{202e}'));
    assert!(!html.contains("http://") && !html.contains("https://"), "no other resource is named");
}

#[test]
fn a_run_is_told_whole() {
    let done = Answer::from_parts(
        Ok(Answer {
            envelope: crate::envelope::Envelope::from(Ok(json!({"diff": "-a\n+b\n"}).as_object().unwrap().clone())),
            text: "edited".into(),
        }),
        Vec::new(),
    );
    let list = events(vec![
        started("Mend it.\nAnd test."),
        What::TurnStarted { turn: 1 },
        replied("I look.", vec![call("1", json!({"path": "a"})), call("2", json!({"path": "../b"})), call("3", json!({}))]),
        What::CallStarted { call: call("1", json!({})) },
        ended("1", done),
        ended("2", Answer::failed(Fault::new(FaultCode::OutsideWorkspace, "../b leads out"))),
    ]);
    let html = page(&list, Some(b"diff --git a/a b/a\n-a\n+b\n"));
    for part in [
        "not ended</span> Mend it.",
        "<dt>refused</dt><dd>1</dd>",
        "<dt>tokens read</dt><dd>1\u{2009}000</dd>",
        "<summary>1 refused</summary>",
        "class=\"call good\" id=\"c0\"",
        "class=\"call refused\" id=\"c1\"",
        "class=\"call open\" id=\"c2\"",
        "<a href=\"#c1\">edit</a> outside_workspace: ../b leads out",
        "<span class=\"add\">+b</span>",
        "<a href=\"#t0\"><rect class=\"model\"",
        "<path class=\"tokens\"",
        "2023-11-14 22:13:20 UTC",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn five_thousand_events_and_strange_times_are_no_trouble() {
    let mut list = vec![started("Much.")];
    for n in 0..1250 {
        let id = n.to_string();
        list.extend([What::TurnStarted { turn: n }, replied("Next.", vec![call(&id, json!({"n": n}))])]);
        list.extend([What::CallStarted { call: call(&id, json!({})) }, ended(&id, Answer::failed(Fault::new(FaultCode::NotFound, "no")))]);
    }
    let mut list = events(list);
    assert!(list.len() > 5000);
    list[7].ts = u64::MAX;
    list[8].ts = 0;
    let html = page(&list, None);
    assert!(html.len() < 5_000_000, "{} bytes", html.len());
    assert_eq!(html.matches("<article").count(), 1250);
}
