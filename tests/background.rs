//! Background processes, over several calls of one session.

use crate::skip;
use crate::space::{Space, bailiwick, has};
use bailiwick::cli::setup::{Asked, Setup};
use bailiwick::session::{Call, Options, Session};
use serde_json::{Value, json};

/// Makes calls in one session.
fn session<F: AsyncFnOnce(&Session)>(space: &Space, without_namespaces: bool, calls: F) {
    let asked = Asked { workspace: Some(space.ws()), policy: "build".into(), without_namespaces, ..Asked::default() };
    let setup = Setup::of(&asked).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = Options { exe: bailiwick(), registry: bailiwick::tools::TOOLS, charter: setup.charter().clone() };
        let session = Session::start(options).unwrap();
        calls(&session).await;
        session.finish().await;
    });
}

async fn call(session: &Session, tool: &str, args: Value) -> Value {
    let answer = session.call(Call { id: "1".into(), tool: tool.into(), args }).await;
    serde_json::to_value(&answer.envelope).unwrap()
}

#[test]
fn a_process_lives_from_call_to_call_and_ends_when_it_is_told() {
    for without in [false, true] {
        session(&Space::new(), without, async |session| {
            let script = "echo up; while read -r line; do echo \"got $line\"; done; echo bye; exit 7";
            let started = call(session, "process_start", json!({"command": script, "ready": {"regex": "up"}})).await;
            assert_eq!((&started["data"]["id"], &started["data"]["ready"]), (&json!("p1"), &json!(true)), "{started}");
            assert_eq!(call(session, "sandbox_bash", json!({"command": "true"})).await["data"]["exit_code"], 0);
            call(session, "process_input", json!({"id": "p1", "text": "a\n"})).await;
            let heard = call(session, "process_output", json!({"id": "p1", "since": 0, "wait_ms": 100})).await;
            assert_eq!(heard["data"]["output"], "up\ngot a\n", "{heard}");
            assert_eq!(heard["data"]["running"], true);
            call(session, "process_input", json!({"id": "p1", "eof": true})).await;
            let ended = call(session, "process_output", json!({"id": "p1", "since": heard["data"]["next"], "wait_ms": 5000})).await;
            let ended = match ended["data"]["running"] == json!(true) {
                // Its last line came before its end.
                true => call(session, "process_output", json!({"id": "p1", "since": ended["data"]["next"], "wait_ms": 5000})).await,
                false => ended,
            };
            assert_eq!((&ended["data"]["running"], &ended["data"]["exit_code"]), (&json!(false), &json!(7)), "{ended}");

            let second = call(session, "sandbox_bash", json!({"command": "trap '' TERM; sleep 600; sleep 600", "background": true})).await;
            assert_eq!(second["data"]["process"], "p2", "{second}");
            let listed = call(session, "process_list", json!({})).await;
            assert_eq!((&listed["data"]["total"], &listed["data"]["processes"][1]["running"]), (&json!(2), &json!(true)), "{listed}");
            let stopped = call(session, "process_stop", json!({"id": "p2"})).await;
            assert_eq!(stopped["data"]["running"], false, "{stopped}");
            let script = "trap 'echo swept' EXIT; echo up; while :; do sleep 0.05; done";
            let third = call(session, "process_start", json!({"command": script, "ready": {"regex": "up", "timeout_ms": 20_000}})).await;
            assert_eq!(third["data"]["ready"], true, "{third}");
            let stopped = call(session, "process_stop", json!({"id": "p3"})).await;
            assert!(stopped["data"]["output"].as_str().unwrap().ends_with("swept\n"), "its own trap runs: {stopped}");
            assert_eq!(call(session, "process_stop", json!({"id": "p9"})).await["data"]["code"], "unknown_process");
        });
    }
}

#[test]
fn a_server_is_reached_by_a_later_command_or_it_is_said_why_not() {
    if !has("python3") {
        skip!("no python3");
    }
    for without in [false, true] {
        session(&Space::new().file("index.html", "hello from p1\n"), without, async |session| {
            let own = session.report().surroundings.namespaces.net;
            let server = "python3 -u -m http.server 8123 --bind 127.0.0.1";
            let started = call(session, "process_start", json!({"command": server, "ready": {"port": 8123, "timeout_ms": 20_000}})).await;
            if own {
                assert_eq!(started["data"]["ready"], true, "{started}");
                let script = "exec 3<>/dev/tcp/127.0.0.1/8123; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3";
                let got = call(session, "sandbox_bash", json!({"command": script})).await;
                assert!(got["data"]["stdout"].as_str().unwrap().ends_with("hello from p1\n"), "{got}");
            } else {
                assert_eq!(started["data"]["code"], "sandbox_denied", "{started}");
                assert!(started["error"].as_str().unwrap().contains("no network namespace"), "{started}");
                let started = call(session, "process_start", json!({"command": "sleep 600"})).await;
                assert!(started["data"]["notices"].to_string().contains("nobody can connect"), "{started}");
                let got = call(session, "sandbox_bash", json!({"command": "exec 3<>/dev/tcp/127.0.0.1/8123"})).await;
                assert!(got["data"]["notices"].to_string().contains("no command can connect to p1"), "{got}");
            }
        });
    }
}

#[test]
fn one_call_is_a_session_and_says_so() {
    let called = Space::new().tool("process_start", json!({"command": "sleep 600"}));
    assert!(called.data()["warnings"].to_string().contains("one call long"), "{}", called.line);
}

/// The shell that waits for the next command has been started already. What runs in the background sees it where it sees processes at all, and
/// can neither write into what it will run nor read what it was given.
#[test]
fn a_shell_that_waits_is_out_of_reach() {
    if !has("bash") {
        skip!("no bash");
    }
    // For some time, for each shell but those above: is it seen, can its script be written, can its environment be read?
    let look = r#"
for round in {1..60}; do
  for p in /proc/[0-9]*; do
    { cmdline=$(tr '\0' ' ' < $p/cmdline); } 2>/dev/null
    case "$cmdline" in *fd/6*) ;; *) continue;; esac
    [ $p = /proc/$$ ] || [ $p = /proc/$PPID ] && continue
    echo seen
    for fd in 5 6 8 9; do { echo 'touch written' >> $p/fd/$fd; } 2>/dev/null && echo "WRITTEN $fd"; done
    { cat $p/environ > copy; } 2>/dev/null && echo READ
  done
  sleep 0.05
done"#;
    // Without us, whoever is the same user can do both.
    let open = Space::new().file("decoy", "");
    let mut decoy = std::process::Command::new("bash")
        .args(["-c", "exec 6<>decoy; read -r # fd/6"])
        .current_dir(open.ws())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // It alone: other tests' shells are written into just as well.
    let once = look.replace("{1..60}", "{1..5}").replace("/proc/[0-9]*", &format!("/proc/{}", decoy.id()));
    let said = std::process::Command::new("bash").args(["-c", &once]).current_dir(open.ws()).output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    decoy.kill().unwrap();
    decoy.wait().unwrap();
    assert!(said.contains("WRITTEN 6") && said.contains("READ"), "{said}");

    for without in [false, true] {
        let space = Space::new();
        session(&space, without, async |session| {
            assert_eq!(call(session, "sandbox_bash", json!({"command": "true"})).await["data"]["exit_code"], 0);
            call(session, "process_start", json!({"command": look})).await;
            for _ in 0..10 {
                tokio::time::sleep(std::time::Duration::from_millis(150)).await;
                let ran = call(session, "sandbox_bash", json!({"command": "ls"})).await;
                assert!(!ran["data"]["stdout"].as_str().unwrap().contains("written"), "{ran}");
            }
            let heard = call(session, "process_output", json!({"id": "p1", "since": 0, "wait_ms": 5000})).await;
            let said = heard["data"]["output"].as_str().unwrap();
            assert!(said.contains("seen") && !said.contains("WRITTEN") && !said.contains("READ"), "{without}: {said}");
        });
    }
}
