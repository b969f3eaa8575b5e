//! The Model Context Protocol, one file a side. Never runs anything itself: what is called goes to a [`crate::session::Session`].

pub mod client;
pub mod server;
