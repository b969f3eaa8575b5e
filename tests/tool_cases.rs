//! Real faults of other agents' tools, as rows: the input, and the right answer, through the real jail. The id of a case is the name of its
//! row.

mod bytes;
mod durable;
mod hostile;
mod matching;
mod output;
mod patches;
mod reading;
mod walking;
