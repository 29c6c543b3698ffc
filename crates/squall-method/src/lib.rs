//! The standard tests of network devices: controllers that ask for trials, get results, and decide.
//!
//! A method ([`Method`]) and a [`Rig`] go in; trials go out to a [`Runner`], which sends and
//! measures; an [`Outcome`] comes out: verdict, figures, tables, plots, and every trial. Knows no
//! port, no clock and no file: the same trials with the same results give the same outcome.
#![forbid(unsafe_code)]

mod bench;
mod bracket;
mod model;
mod outcome;
mod rig;
mod trial;

pub use bench::{Bench, Halt, Patience, Recorded, Runner, Unwatched, Watch};
pub use bracket::{Bracket, Judged};
pub use model::Device;
pub use outcome::{
    Better, Comparison, Figure, Limit, Outcome, Plot, Series, Status, Table, Verdict, compare,
};
pub use rig::{MostLoad, Rig, RigLane};
pub use trial::{Delay, Lane, LaneMeasured, Measured, Trial};
