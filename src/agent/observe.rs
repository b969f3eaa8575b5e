//! Who watches a run. The agent prints nothing itself.

use super::budget::Spent;
use super::transcript::{Event, Transcript, What};
use crate::envelope::Fault;

/// Somebody who is shown a run as it goes: a terminal, a stream of events, nobody.
///
/// All text is masked. An observer does not hold the run up and cannot fail it.
pub trait Observer: Sync {
    /// An event that has just been written to the transcript.
    fn event(&self, _event: &Event) {}

    /// A piece of the model's text, as it arrives; the whole follows as an event.
    fn delta(&self, _text: &str) {}

    /// What was spent so far, after each reply; `cost` in millionths of a US dollar.
    fn spent(&self, _spent: &Spent, _cost: Option<u64>) {}
}

/// Nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nobody;

impl Observer for Nobody {}

/// The transcript and who watches it.
pub(super) struct Log<'a> {
    pub(super) transcript: &'a mut Transcript,
    pub(super) observer: &'a dyn Observer,
}

impl Log<'_> {
    /// Writes an event, then shows it.
    pub(super) fn append(&mut self, what: What) -> Result<(), Fault> {
        let observer = self.observer;
        let event = self.transcript.append(what)?;
        observer.event(event);
        Ok(())
    }

    /// Answers calls that were left without an answer.
    pub(super) fn close_dangling(&mut self) -> Result<(), Fault> {
        let known = self.transcript.events().len();
        let closed = self.transcript.close_dangling();
        self.transcript.events()[known..].iter().for_each(|event| self.observer.event(event));
        closed.map(drop)
    }
}
