//! Resources of this machine for a run. Input: addresses. Output: opened ports ([`ports::open`])
//! with the facts that a plan needs. Also lists [`kinds`] of ports and interfaces ([`listing`]),
//! chooses CPUs ([`cpus`]), checks disk space ([`room`]), resolves host names ([`Names`]), and
//! finds the [`python`] interpreter.
//!
//! [`router`] runs the daemons of a run's routers. Three modules are used without a run:
//! [`forward`] is a wire between two ports, [`speaking`] runs hosts on an interface, and
//! [`topology`] makes labs of several nodes.
//!
//! Knows of a plan only the resources that it uses, and knows neither sessions nor the engine.
#![forbid(unsafe_code)]

pub mod cpus;
mod error;
pub mod forward;
mod host;
pub mod kinds;
pub mod listing;
mod names;
pub mod ports;
pub mod python;
pub mod room;
pub mod router;
pub mod speaking;
pub mod topology;

pub use error::Error;
pub use host::{contention, cpu, cpus_here, host, memory, of_control_groups, wall_offset};
pub use names::Names;
