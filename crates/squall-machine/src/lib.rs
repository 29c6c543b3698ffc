//! What this machine has for a run. Addresses go in and opened ports come out ([`ports::open`]),
//! with what a plan has to know of each; and what there is of [`kinds`] of ports, of interfaces
//! ([`listing`]), CPUs ([`cpus`]), room on disks ([`room`]), and addresses of names ([`Names`]).
//!
//! Where frames only pass through it, no run is needed: [`forward`] is a wire between two ports,
//! [`speaking`] has hosts on an interface.
//!
//! Knows plans only for what they take of the machine, and neither sessions nor the engine.
#![forbid(unsafe_code)]

pub mod cpus;
mod error;
pub mod forward;
mod host;
pub mod kinds;
pub mod listing;
mod names;
pub mod ports;
pub mod room;
pub mod speaking;

pub use error::Error;
pub use host::{contention, cpu, cpus_here, host, memory, wall_offset};
pub use names::Names;
