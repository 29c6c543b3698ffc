//! Template + field operations + departure times -> frames, without allocation.
//!
//! Input: a [`Spec`] (a frame, its variables, its lengths). Output: a [`Program`] that writes
//! batches of frames into slots of memory, and a [`Timeline`] that computes when each is due. A
//! frame's octets and due time are determined by its index in the stream, so any worker can make
//! any frame. This crate knows nothing of ports, clocks or threads.
#![forbid(unsafe_code)]

pub mod audit;
mod build;
pub mod clock;
mod departures;
mod fill;
pub mod kernel;
mod law;
pub mod pace;
mod ring;
mod rng;
mod shape;
pub mod signature;
mod sizes;
pub mod trex;

pub use build::{Program, ProgramError, Spec, Turn, VarSpec};
pub use departures::{Gap, GapLaw, Pattern, Standing, Timeline};
pub use fill::{COLUMNS, Cursor, Places, Run, Scratch, Supplied, Supply};
pub use law::Law;
pub use rng::unit;
pub use shape::{Shape, ShapeError, Stage};
pub use sizes::Sizes;

/// Maximum number of frames filled per call.
pub const BATCH: usize = 64;
