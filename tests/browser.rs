//! The report in a real browser: it runs no script of a transcript's, fits a phone, and stays usable with five thousand events.

use crate::runs::{Place, bash, calls};
use crate::space::has;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a script would do to the page, if one ran.
const MARK: &str = "document.documentElement.setAttribute('data-ran','1')";

/// Chromium, by any of its names. In CI it has to be there: `.ci/run` brings it.
fn chromium() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| has(name));
    assert!(found.is_some() || std::env::var_os("CI").is_none(), "CI has no chromium: apt-get install chromium");
    found
}

/// Opens a page in a window of this size. Returns the document as it is then; a picture is written to `shot`.
fn opened(chromium: &str, page: &Path, size: (u32, u32), dark: bool, shot: Option<&Path>) -> String {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(chromium);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]);
    command.args(["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=3000", "--timeout=60000"]);
    command.arg(format!("--window-size={},{}", size.0, size.1)).arg(format!("--user-data-dir={}", home.path().display()));
    if dark {
        command.arg("--blink-settings=preferredColorScheme=0");
    }
    match shot {
        Some(shot) => command.arg(format!("--screenshot={}", shot.display())),
        None => command.arg("--dump-dom"),
    };
    command.arg(format!("file://{}", page.display())).env("HOME", home.path()).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut out, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let end = std::time::Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    reader.join().unwrap()
}

/// Whether a script of the transcript's left its mark. (Its text stands in the page, as text.)
fn ran(dom: &str) -> bool {
    let html = dom.split_once("<html").unwrap().1;
    html.split_once('>').unwrap().0.contains("data-ran")
}

/// A copy of a page that measures itself: a script of the test's, which the page's own policy would forbid.
fn measured(page: &Path) -> PathBuf {
    let text = fs::read_to_string(page).unwrap();
    let (before, after) = text.split_once("<meta http-equiv=\"Content-Security-Policy\"").unwrap();
    let after = after.split_once('>').unwrap().1;
    let script = "<script>addEventListener('load',()=>{const d=document.documentElement;\
        d.dataset.width=d.scrollWidth;d.dataset.window=innerWidth;d.dataset.loaded=Math.round(performance.now());\
        const l=document.querySelector('article:last-of-type');const s=performance.now();l.scrollIntoView();l.getBoundingClientRect();\
        d.dataset.jumped=Math.round(performance.now()-s);\
        const b=s2=>getComputedStyle(document.body)[s2];d.dataset.paper=b('backgroundColor');d.dataset.ink=b('color');});</script>";
    let to = page.with_extension("measured.html");
    fs::write(&to, format!("{before}{script}{after}")).unwrap();
    to
}

fn datum(dom: &str, name: &str) -> String {
    let start = dom
        .split_once(&format!("data-{name}=\""))
        .unwrap_or_else(|| panic!("no data-{name} in {}", dom.chars().take(600).collect::<String>()))
        .1;
    start.split_once('"').unwrap().0.to_owned()
}

fn report(place: &Place) -> PathBuf {
    let output = place.space.run(["report", &place.out().display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    place.out().join("report.html")
}

/// A run in which everything that is said is markup, with refusals and a patch.
fn hostile() -> Place {
    let evil = format!(
        "</pre></title></style></svg></textarea>--><script>{MARK}</script><img src=x onerror=\"{MARK}\"><svg onload=\"{MARK}\"></svg>\
         <iframe srcdoc=\"<script>parent.{MARK}</script>\"></iframe><a href=\"javascript:{MARK}\" autofocus onfocus=\"{MARK}\">x</a>\
         <style>@import 'http://x/'</style><meta http-equiv=refresh content='0;url=javascript:{MARK}'>\" onmouseover=\"{MARK}\" x='"
    );
    let place = Place::new(&[("a", "one\n"), ("b.txt", &evil)]);
    let lines = [
        json!({"text": evil, "usage": {"input": 1200, "output": 90}, "calls": [
            {"name": "read", "arguments": {"path": "b.txt"}}, {"name": "read", "arguments": {"path": "../outside/secret"}},
            {"name": evil, "arguments": {evil.clone(): evil}}]}),
        calls(&[
            ("edit", json!({"path": "a", "old_string": "one", "new_string": evil})),
            ("write", json!({"path": "<img src=x onerror=alert(1)>.txt", "content": format!("{evil}\n")})),
            bash(&format!("cat /etc/shadow; printf %s {}; sleep 0.2", shell_quoted(&evil))),
        ]),
        json!({"text": evil, "usage": {"input": 9200, "output": 400}}),
    ];
    let output = place.run(&lines, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    place
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn a_transcript_full_of_markup_runs_nothing_and_fits_a_phone() {
    let Some(chromium) = chromium() else { crate::skip!("no chromium; apt-get install chromium") };
    let place = hostile();
    let page = report(&place);
    // That the mark would be seen: a page that does not escape.
    let control = place.out().join("control.html");
    fs::write(&control, format!("<!doctype html><img src=x onerror=\"{MARK}\">")).unwrap();
    assert!(ran(&opened(chromium, &control, (1000, 800), false, None)));

    let dom = opened(chromium, &page, (1280, 900), false, None);
    assert!(dom.contains("class=\"call refused\"") && dom.contains("<path class=\"tokens\""), "the page is whole");
    assert!(!ran(&dom), "a script of the transcript's ran");
    for tag in ["<script", "<img", "<iframe", "<textarea", "<object", "<embed", "<link"] {
        assert!(!dom.contains(tag), "{tag} is in the document");
    }
    // Without the policy too: the escaping alone holds.
    let measured = measured(&page);
    let dom = opened(chromium, &measured, (500, 844), false, None);
    assert!(!ran(&dom), "only the policy held it back");
    assert!(datum(&dom, "width").parse::<u32>().unwrap() <= datum(&dom, "window").parse::<u32>().unwrap(), "it is wider than a phone");
    let dark = opened(chromium, &measured, (1280, 900), true, None);
    assert_eq!((datum(&dom, "paper").as_str(), datum(&dom, "ink").as_str()), ("rgb(255, 255, 255)", "rgb(28, 31, 36)"));
    assert_eq!((datum(&dark, "paper").as_str(), datum(&dark, "ink").as_str()), ("rgb(20, 23, 27)", "rgb(228, 231, 235)"));
    // Pictures for a person, where one asks for them.
    if let Some(folder) = std::env::var_os("BAILIWICK_TEST_SHOTS").map(PathBuf::from) {
        fs::create_dir_all(&folder).unwrap();
        for (name, size, dark) in [("light", (1280, 1600), false), ("dark", (1280, 1600), true), ("phone", (500, 1600), false)] {
            opened(chromium, &page, size, dark, Some(&folder.join(format!("{name}.png"))));
        }
    }
}

#[test]
fn five_thousand_events_stay_usable() {
    let Some(chromium) = chromium() else { crate::skip!("no chromium; apt-get install chromium") };
    let place = Place::new(&[("a", "one\n")]);
    let output = place.run(&[calls(&[("read", json!({"path": "a"}))]), json!({"text": "Done."})], &[]);
    assert_eq!(output.status.code(), Some(0));
    // The events of the one turn, again and again.
    let events = place.events();
    let mut text = String::new();
    let mut seq = 0_u64;
    let mut push = |event: &Value, round: u64| {
        let mut event = event.clone();
        (event["seq"], event["ts"]) = (seq.into(), (1_700_000_000_000_u64 + seq * 40).into());
        let event = event.to_string().replace("call-1-1", &format!("call-{round}"));
        text.push_str(&event);
        text.push('\n');
        seq += 1;
    };
    push(&events[0], 0);
    for round in 0..1250 {
        for event in events.iter().filter(|event| event["type"] != "run_started" && event["type"] != "run_ended").take(4) {
            push(event, round);
        }
    }
    assert!(seq >= 5000);
    fs::write(place.transcript(), text).unwrap();
    let page = measured(&report(&place));
    let dom = opened(chromium, &page, (1280, 900), false, None);
    let (loaded, jumped) = (datum(&dom, "loaded").parse::<u64>().unwrap(), datum(&dom, "jumped").parse::<u64>().unwrap());
    println!("5,000 events: {} KB, loaded in {loaded} ms, to the last turn in {jumped} ms", fs::metadata(&page).unwrap().len() / 1000);
    assert!(loaded < 20_000 && jumped < 5_000, "loaded in {loaded} ms, to the end in {jumped} ms");
}
