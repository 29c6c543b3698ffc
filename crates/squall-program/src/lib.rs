//! Template + field operations + departure times -> frames, without allocation.
//!
//! In goes a [`Spec`] (a frame, what varies in it, its lengths); out comes a [`Program`] that
//! writes batches of frames into slots of memory, and a [`Timeline`] that says when each is due.
//! Both are functions of the frame's index in its stream, so any worker can make any frame. Does
//! not know ports, clocks or threads.
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
pub use fill::{Cursor, Places, Run, Scratch};
pub use law::Law;
pub use rng::unit;
pub use shape::{Shape, ShapeError, Stage};
pub use sizes::Sizes;

/// Frames filled in one call at most.
pub const BATCH: usize = 64;
