use super::*;
use serde_json::json;

fn call(id: &str) -> Call {
    Call { id: id.into(), tool: "read".into(), args: json!({"path": "a"}) }
}

fn replied(ids: &[&str]) -> What {
    What::Replied {
        reply: json!({"role": "assistant"}),
        text: String::new(),
        calls: ids.iter().map(|id| call(id)).collect(),
        native: true,
        input_tokens: 0,
        output_tokens: 0,
    }
}

fn ended(id: &str) -> What {
    let answer = Answer::failed(Fault::new(FaultCode::NotFound, "no"));
    What::CallEnded { id: id.into(), tool: "read".into(), envelope: answer.envelope, text: answer.text, duration_ms: 1 }
}

fn user(text: &str) -> What {
    What::User { text: text.into() }
}

#[test]
fn a_cut_at_any_byte_of_the_last_record_loses_only_that_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "r", Mask::default()).unwrap();
    transcript.append(user("first")).unwrap();
    let kept = std::fs::metadata(&path).unwrap().len() as usize;
    transcript.append(user("second \u{e9}\u{2028}\0 end")).unwrap();
    let written = transcript.events().to_vec();
    drop(transcript);
    let whole = std::fs::read(&path).unwrap();
    for cut in kept..=whole.len() {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let (mut transcript, repair) = Transcript::resume(&path, Mask::default()).unwrap();
        // Without its line end the record is whole all the same.
        let survives = cut + 1 >= whole.len();
        let expected: &[Event] = if survives { &written } else { &written[..1] };
        assert_eq!(&transcript.events()[..expected.len()], expected, "cut at {cut}");
        assert_eq!(repair.cut_bytes, if survives { 0 } else { (cut - kept) as u64 });
        assert_eq!(transcript.events().len(), expected.len() + 1);
        assert!(matches!(transcript.events()[expected.len()].what, What::RunResumed { cut_bytes, .. } if cut_bytes == repair.cut_bytes));
        transcript.append(user("third")).unwrap();
        let seen = transcript.events().to_vec();
        drop(transcript);
        assert_eq!(load(&path).unwrap(), seen, "the next append is intact");
        assert!(seen.windows(2).all(|pair| pair[1].seq == pair[0].seq + 1));
        let (again, repair) = Transcript::resume(&path, Mask::default()).unwrap();
        assert_eq!((repair, again.events().len()), (Repair::default(), seen.len() + 1));
    }
}

#[test]
fn each_event_is_on_disk_when_append_returns_with_its_head() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "run-1", Mask::default()).unwrap();
    transcript.append(user("line\nbreak")).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 1);
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&line["v"], &line["seq"], &line["run_id"], &line["type"]), (&json!(1), &json!(0), &json!("run-1"), &json!("user")));
    assert!(line["ts"].as_u64().unwrap() > 1_600_000_000_000);
}

#[test]
fn blocks_of_nul_and_foreign_lines_are_passed_over_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "r", Mask::default()).unwrap();
    transcript.append(user("a")).unwrap();
    drop(transcript);
    let mut bytes = std::fs::read(&path).unwrap();
    let line = bytes.clone();
    bytes.extend_from_slice(b"\0\0\0\0");
    bytes.extend_from_slice(&line);
    bytes.extend_from_slice(
        b"not json \xff\n\0\0\n{\"v\":9,\"seq\":7,\"ts\":0,\"run_id\":\"r\",\"type\":\"from_the_future\",\"x\":1}\n\0\0\0",
    );
    std::fs::write(&path, &bytes).unwrap();
    let (mut transcript, repair) = Transcript::resume(&path, Mask::default()).unwrap();
    assert_eq!(repair, Repair { cut_bytes: 3, unreadable: 1 });
    assert_eq!(transcript.events()[2].what, What::Unknown);
    assert_eq!(transcript.append(user("b")).unwrap().seq, 9);
    assert!(std::fs::read(&path).unwrap().starts_with(&bytes[..bytes.len() - 3]));
}

#[test]
fn calls_without_an_answer_are_closed_as_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "r", Mask::default()).unwrap();
    transcript.append(replied(&["1", "2", "3"])).unwrap();
    transcript.append(What::CallStarted { call: call("1") }).unwrap();
    transcript.append(ended("1")).unwrap();
    transcript.append(What::CallStarted { call: call("2") }).unwrap();
    drop(transcript);
    let (transcript, _) = Transcript::resume(&path, Mask::default()).unwrap();
    let closed: Vec<(&str, &str)> = transcript.events()[5..]
        .iter()
        .filter_map(|event| match &event.what {
            What::CallEnded { id, envelope, .. } => Some((id.as_str(), envelope.error().unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(closed.len(), 2);
    assert!(closed[0].0 == "2" && closed[0].1.starts_with("interrupted: ") && closed[0].1.contains("had begun"));
    assert!(closed[1].0 == "3" && closed[1].1.contains("not run"));
    assert!(dangling(transcript.events()).is_empty());
}

#[test]
fn secrets_reach_neither_the_file_nor_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "r", Mask::new(["sk-1234567".into()])).unwrap();
    transcript.append(user("the key is sk-1234567.")).unwrap();
    assert_eq!(transcript.events()[0].what, user("the key is [secret]."));
    assert!(!std::fs::read_to_string(&path).unwrap().contains("sk-1234567"));
}

#[test]
fn one_writer_at_a_time_and_no_file_is_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.jsonl");
    let mut transcript = Transcript::create(&path, "r", Mask::default()).unwrap();
    transcript.append(user("a")).unwrap();
    assert_eq!(Transcript::create(&path, "r", Mask::default()).unwrap_err().code(), FaultCode::AlreadyExists);
    assert_eq!(Transcript::resume(&path, Mask::default()).unwrap_err().code(), FaultCode::Busy);
    drop(transcript);
    assert_eq!(Transcript::resume(&folder.path().join("none"), Mask::default()).unwrap_err().code(), FaultCode::NotFound);
    std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
    assert_eq!(Transcript::resume(&folder.path().join("link"), Mask::default()).unwrap_err().code(), FaultCode::IoError);
    std::fs::write(folder.path().join("empty"), "").unwrap();
    assert_eq!(Transcript::resume(&folder.path().join("empty"), Mask::default()).unwrap_err().code(), FaultCode::InvalidArguments);
}
