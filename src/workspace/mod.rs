//! The workspace: what a path is ([`rel_path`]), the one place that opens by name ([`base_dir`]), the one text
//! decoder ([`decode`]) and the reversible escape of bytes that are not text ([`escape`]).

pub mod base_dir;
pub mod copying;
pub mod decode;
pub mod dir;
pub mod duplicate;
mod entries;
pub mod escape;
pub mod hash;
pub mod in_place;
mod keep;
mod locate;
pub mod outline;
pub mod recent;
pub mod rel_path;
pub mod remove;
pub mod replace;
mod staged;
pub mod transfer;
pub mod watch;

pub use base_dir::BaseDir;
pub use hash::Hash;
pub use rel_path::RelPath;
