//! The model's messages, derived from the transcript, and the check that they are whole.
//!
//! A call and its result are never parted: results are looked up by the id of the call and stand right behind it.

use super::transcript::{Event, What};
use crate::dialect::{native, text};
use crate::envelope::{Fault, FaultCode};
use crate::provider::{Assistant, Message};
use crate::session::Call;
use crate::tools::Answer;
use std::collections::{HashMap, HashSet};

/// Results shorter than this are not worth a stub.
const STUB_ABOVE: usize = 1_000;
/// Results of this many replies, counted from the end, are always shown whole.
pub(super) const KEEP_REPLIES: usize = 4;

/// What a summary begins with.
const SUMMARY: &str = "What was done before is left out. This is your own summary of it:";

/// The messages for the next request. `nonce` fences results in the text protocol; it is the run's own and unguessable.
///
/// # Errors
/// `internal` when the transcript holds a reply that this version cannot read.
pub fn messages(events: &[Event], nonce: &str) -> Result<Vec<Message>, Fault> {
    let mut results: HashMap<&str, Answer> = HashMap::new();
    let mut stubbed: HashSet<&str> = HashSet::new();
    let mut system: Option<&str> = None;
    let mut as_text = false;
    let mut summary: Option<(&str, u64)> = None;
    for event in events {
        match &event.what {
            What::RunStarted { system: first, dialect, .. } => {
                system = Some(first);
                as_text |= dialect == "text";
            }
            What::DialectChanged { system: next, .. } => {
                system = Some(next);
                as_text = true;
            }
            What::CallEnded { id, envelope, text, .. } => {
                results.insert(id, Answer { envelope: envelope.clone(), text: text.clone() });
            }
            What::ResultsStubbed { ids } => stubbed.extend(ids.iter().map(String::as_str)),
            What::Summarized { text, upto, .. } => summary = Some((text, *upto)),
            _ => {}
        }
    }
    for (id, answer) in &mut results {
        if stubbed.contains(id) {
            answer.text = stub(&answer.text);
        }
    }
    let answer_of = |call: &Call| -> Result<(Call, Answer), Fault> {
        let answer = results.get(call.id.as_str()).cloned();
        Ok((call.clone(), answer.ok_or_else(|| broken(&format!("the call {} has no result", call.id)))?))
    };

    let mut messages: Vec<Message> = system.filter(|text| !text.is_empty()).map(Message::system).into_iter().collect();
    let first = summary.map_or(0, |(_, upto)| upto);
    for event in events {
        match &event.what {
            What::RunStarted { task, .. } => {
                messages.push(Message::user(task));
                messages.extend(summary.map(|(text, _)| Message::user(format!("{SUMMARY}\n\n{text}"))));
            }
            // A reply goes with its results, which are looked up by their ids: no cut parts them.
            _ if event.seq < first => {}
            What::User { text } => messages.push(Message::user(text)),
            What::Replied { reply, calls, native: natively, text: said, .. } => {
                let answers = calls.iter().map(answer_of).collect::<Result<Vec<_>, _>>()?;
                if *natively && as_text {
                    // What was said natively is said again in the words of the protocol.
                    let calls = calls.iter().map(text::print);
                    let lines: Vec<String> = std::iter::once(said.clone()).filter(|said| !said.is_empty()).chain(calls).collect();
                    messages.push(Message::Assistant(Assistant { text: lines.join("\n"), ..Assistant::default() }));
                } else {
                    let assistant: Assistant =
                        serde_json::from_value(reply.clone()).map_err(|error| broken(&format!("a reply cannot be read: {error}")))?;
                    messages.push(Message::Assistant(assistant));
                }
                if answers.is_empty() {
                    continue;
                }
                if *natively && !as_text {
                    messages.extend(answers.iter().map(|(call, answer)| native::result(call, answer)));
                } else {
                    messages.push(Message::user(text::results(&answers, nonce)));
                }
            }
            _ => {}
        }
    }
    Ok(messages)
}

/// Checks a conversation before it is sent: every native call is answered right behind its message, nothing else is, and no id
/// is used twice.
///
/// # Errors
/// `internal`, naming the id.
pub fn validate(messages: &[Message]) -> Result<(), Fault> {
    let mut used: HashSet<&str> = HashSet::new();
    let mut open: HashSet<&str> = HashSet::new();
    for message in messages {
        if let Message::Tool { id, .. } = message {
            if !open.remove(id.as_str()) {
                return Err(broken(&format!("the result of {id} follows no call")));
            }
            continue;
        }
        if let Some(id) = open.iter().min() {
            return Err(broken(&format!("the call {id} has no result")));
        }
        if let Message::Assistant(assistant) = message {
            for call in &assistant.calls {
                if call.id.is_empty() || !used.insert(&call.id) {
                    return Err(broken(&format!("the id {:?} is used twice, or empty", call.id)));
                }
                open.insert(&call.id);
            }
        }
    }
    match open.iter().min() {
        Some(id) => Err(broken(&format!("the call {id} has no result"))),
        None => Ok(()),
    }
}

/// Bytes of a conversation: its texts and the arguments of its calls.
pub(super) fn size(messages: &[Message]) -> usize {
    let of = |message: &Message| match message {
        Message::Assistant(assistant) => assistant.text.len() + assistant.calls.iter().map(|call| call.arguments.len()).sum::<usize>(),
        other => other.text().len(),
    };
    messages.iter().map(of).sum()
}

/// The position of the event before which a summary can stand, so that the last `keep` replies stay; `None` when there is nothing
/// to gain.
pub(super) fn to_summarize(events: &[Event], keep: usize) -> Option<u64> {
    let before = events.iter().filter_map(|event| match event.what {
        What::Summarized { upto, .. } => Some(upto),
        _ => None,
    });
    let before = before.max().unwrap_or(0);
    let replies: Vec<u64> =
        events.iter().filter(|event| event.seq >= before && matches!(event.what, What::Replied { .. })).map(|event| event.seq).collect();
    let kept = replies.len().checked_sub(keep)?;
    (kept > 0).then(|| replies[kept])
}

/// Ids of old, bulky results that should become stubs, so that the conversation falls to half of `most` bytes. Empty while it is
/// not larger than `most`. Results of the last `keep` replies stay.
pub(super) fn to_stub(events: &[Event], messages: &[Message], most: usize, keep: usize) -> Vec<String> {
    let mut size = size(messages);
    if size <= most {
        return Vec::new();
    }
    let replies: Vec<&Vec<Call>> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::Replied { calls, .. } => Some(calls),
            _ => None,
        })
        .collect();
    let kept: HashSet<&str> = replies.iter().rev().take(keep).flat_map(|calls| calls.iter()).map(|call| call.id.as_str()).collect();
    let already: HashSet<&String> = events
        .iter()
        .filter_map(|event| match &event.what {
            What::ResultsStubbed { ids } => Some(ids),
            _ => None,
        })
        .flatten()
        .collect();
    let mut ids = Vec::new();
    for event in events {
        if size <= most / 2 {
            break;
        }
        if let What::CallEnded { id, text, .. } = &event.what
            && text.len() > STUB_ABOVE
            && !kept.contains(id.as_str())
            && !already.contains(id)
        {
            size = size.saturating_sub(text.len());
            ids.push(id.clone());
        }
    }
    ids
}

fn stub(text: &str) -> String {
    let first: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    format!("{first}\n[the rest of this old result, {} bytes in all, is no longer shown; make the call again if it is needed]", text.len())
}

fn broken(what: &str) -> Fault {
    Fault::new(FaultCode::Internal, format!("the conversation is not whole: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{Extra, ToolCall};
    use serde_json::{Value, json};

    fn event(seq: u64, what: What) -> Event {
        Event { v: 1, seq, ts: 0, run_id: "r".into(), what }
    }

    fn started(dialect: &str) -> What {
        let (task, system) = ("Do it.".into(), "Rules.".into());
        What::RunStarted {
            task,
            model: "m".into(),
            dialect: dialect.into(),
            tools: Vec::new(),
            system,
            enforcement: Value::Null,
            workspace: String::new(),
        }
    }

    fn replied(ids: &[&str], native: bool) -> What {
        let calls: Vec<Call> =
            ids.iter().map(|id| Call { id: (*id).into(), tool: "read".into(), args: json!({"path": format!("{id}.txt")}) }).collect();
        let native_calls =
            calls.iter().map(|call| ToolCall { id: call.id.clone(), name: call.tool.clone(), arguments: call.args.to_string() });
        let assistant =
            Assistant { text: "I look.".into(), calls: if native { native_calls.collect() } else { Vec::new() }, ..Assistant::default() };
        let reply = serde_json::to_value(assistant).unwrap();
        What::Replied { reply, text: "I look.".into(), calls, native, input_tokens: 0, output_tokens: 0 }
    }

    fn ended(id: &str, text: &str) -> What {
        let answer = Answer::failed(Fault::new(FaultCode::NotFound, "x"));
        What::CallEnded { id: id.into(), tool: "read".into(), envelope: answer.envelope, text: text.into(), duration_ms: 0 }
    }

    fn events(list: Vec<What>) -> Vec<Event> {
        list.into_iter().enumerate().map(|(seq, what)| event(seq as u64, what)).collect()
    }

    #[test]
    fn results_stand_behind_their_calls_in_the_order_of_the_calls() {
        let note = What::User { text: "note".into() };
        let list = events(vec![started("native"), replied(&["1", "2"], true), ended("2", "two"), ended("1", "one"), note]);
        let messages = messages(&list, "N").unwrap();
        let texts: Vec<&str> = messages.iter().map(Message::text).collect();
        assert_eq!(texts, ["Rules.", "Do it.", "I look.", "one", "two", "note"]);
        validate(&messages).unwrap();
    }

    #[test]
    fn the_text_dialect_gives_results_in_one_message_and_retells_native_calls() {
        let changed = What::DialectChanged { to: "text".into(), reason: String::new(), system: "Other rules.".into() };
        let list = events(vec![started("native"), replied(&["1"], true), ended("1", "[TOOL] ls() [/TOOL]"), changed]);
        let messages = messages(&list, "N0NCE").unwrap();
        validate(&messages).unwrap();
        assert_eq!(messages[0].text(), "Other rules.");
        assert!(messages[2].text().starts_with("I look.\n[TOOL] read(") && messages[2].text().contains("1.txt"));
        assert!(messages[3].text().contains("N0NCE result 1: read, failure") && !messages[3].text().contains("[TOOL] ls"));
        assert_eq!(messages.len(), 4);
    }

    #[test]
    fn what_is_not_whole_is_not_sent() {
        let open = events(vec![started("native"), replied(&["1", "2"], true), ended("1", "one")]);
        assert!(messages(&open, "N").unwrap_err().message().contains("the call 2 has no result"));
        let assistant = |ids: &[&str]| {
            let calls = ids.iter().map(|id| ToolCall { id: (*id).into(), name: "x".into(), arguments: "{}".into() }).collect();
            Message::Assistant(Assistant { calls, ..Assistant::default() })
        };
        let tool = |id: &str| Message::Tool { id: id.into(), name: "x".into(), text: String::new(), failed: false, extra: Extra::new() };
        validate(&[assistant(&["a", "b"]), tool("b"), tool("a"), assistant(&["c"]), tool("c"), assistant(&[])]).unwrap();
        for (list, what) in [
            (vec![assistant(&["a"])], "a has no result"),
            (vec![assistant(&["a"]), Message::user("x"), tool("a")], "a has no result"),
            (vec![tool("a")], "follows no call"),
            (vec![assistant(&["a"]), tool("a"), tool("a")], "follows no call"),
            (vec![assistant(&["a"]), tool("a"), assistant(&["a"]), tool("a")], "used twice"),
            (vec![assistant(&["a", "a"]), tool("a")], "used twice"),
        ] {
            assert!(validate(&list).unwrap_err().message().contains(what), "{what}");
        }
    }

    #[test]
    fn old_bulky_results_become_stubs_and_pairs_stay_whole() {
        let bulky = "head line\n".to_owned() + &"x".repeat(5_000);
        let mut list = vec![started("native")];
        for round in 0..10 {
            let ids = [format!("{round}a"), format!("{round}b")];
            list.push(replied(&[&ids[0], &ids[1]], true));
            list.extend(ids.iter().map(|id| ended(id, &bulky)));
        }
        let mut list = events(list);
        let before = messages(&list, "N").unwrap();
        assert!(to_stub(&list, &before, 200_000, KEEP_REPLIES).is_empty());
        let ids = to_stub(&list, &before, 90_000, KEEP_REPLIES);
        assert!(ids.starts_with(&["0a".into(), "0b".into()]) && !ids.contains(&"6a".into()), "{ids:?}");
        list.push(event(99, What::ResultsStubbed { ids: ids.clone() }));
        let after = messages(&list, "N").unwrap();
        validate(&after).unwrap();
        assert_eq!(after.len(), before.len());
        assert_eq!(after[1].text(), "Do it.");
        assert!(after[3].text().starts_with("head line\n[the rest of this old result, 5010 bytes"));
        assert!(after.last().unwrap().text().len() > 5_000);
        assert!(to_stub(&list, &after, 90_000, KEEP_REPLIES).is_empty());
        assert!(to_stub(&list, &after, 20_000, 1).contains(&"8b".into()));
    }

    #[test]
    fn a_summary_at_any_cut_keeps_the_task_and_parts_no_pair() {
        for dialect in ["native", "text"] {
            let mut list = vec![started(dialect)];
            for round in 0..6 {
                let ids = [format!("{round}a"), format!("{round}b")];
                list.push(What::TurnStarted { turn: round });
                list.push(replied(&[&ids[0], &ids[1]], dialect == "native"));
                list.extend(ids.iter().rev().map(|id| ended(id, &format!("result of {id}"))));
                list.push(What::User { text: format!("note {round}") });
            }
            let whole = events(list);
            for cut in 0..=whole.len() as u64 {
                for again in [None, Some(cut / 2), Some(cut + 3)] {
                    let mut list = whole.clone();
                    for upto in std::iter::once(cut).chain(again) {
                        let text = "SUMMARY".into();
                        list.push(event(list.len() as u64, What::Summarized { text, upto, input_tokens: 0, output_tokens: 0 }));
                    }
                    // A result that comes after the summary of its call is no loose end.
                    list.push(event(list.len() as u64, ended("0a", "late")));
                    let messages = messages(&list, "N").unwrap();
                    validate(&messages).unwrap();
                    assert_eq!(messages[1].text(), "Do it.", "the task stays, verbatim");
                    assert!(messages[2].text().ends_with("SUMMARY"), "{cut}");
                    let replies = messages.iter().filter(|message| matches!(message, Message::Assistant(_))).count();
                    let upto = again.unwrap_or(cut);
                    let left = whole.iter().filter(|event| event.seq >= upto && matches!(event.what, What::Replied { .. })).count();
                    assert_eq!(replies, left);
                    if dialect == "native" {
                        assert_eq!(messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count(), 2 * left);
                    }
                }
            }
            let cut = to_summarize(&whole, KEEP_REPLIES).unwrap();
            assert!(matches!(&whole[cut as usize].what, What::Replied { calls, .. } if calls[0].id == "2a"));
            assert_eq!(to_summarize(&whole, 6), None);
        }
    }
}
