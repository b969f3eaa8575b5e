//! What is permitted ([`file`]: as written), what is present ([`image`]) and what follows from both here ([`charter`]: as resolved).
//!
//! Never reads an environment variable (the caller gives [`Surroundings`]), never opens anything in the workspace, never prints.

pub mod access;
mod cargo;
pub mod charter;
mod command_line;
pub mod environment;
pub mod explain;
pub mod file;
pub mod git;
pub mod gitconfig;
pub mod home;
pub mod image;
mod links;
pub mod lint;
pub mod place;
pub mod predict;
pub mod protect;
pub mod protection;
pub mod readable;
pub mod resolve;
pub mod shelf;
pub mod site;
pub mod skill_homes;
pub mod surroundings;
pub mod tighten;
pub mod toolchain;
pub mod units;

pub use access::Access;
pub use charter::{Charter, Grant, Grants, Identity, Limits, Net, Rights, Unix};
pub use file::Policy;
pub use image::Image;
pub use protection::Protection;
pub use resolve::{Resolved, resolve};
pub use surroundings::Surroundings;
