//! The engine: takes a [`squall_plan::Plan`] and opened ports, runs one [`worker`] a core, and
//! gives what was counted.
//!
//! Only here and in the ports are there threads and clocks. Does not know how profiles are written,
//! what backends there are, nor how results are shown.
#![forbid(unsafe_code)]

mod after;
mod clock;
mod command;
mod cut;
mod flows;
mod generate;
mod groups;
mod pacing;
mod receiving;
mod relay;
mod replay;
mod sink;
mod source;
mod streams;
mod supervisor;
mod transmit;
mod wheel;
mod worker;

pub use clock::{Clock, Stalls};
pub use flows::{FlowStats, open_flows};
pub use generate::can_be_generated;
pub use pacing::PortPacing;
pub use receiving::{PortRx, QueueCounters, ReceivedFlows};
pub use replay::Replayed;
pub use sink::{Frames, MakeSink, Shown, Sink};
pub use squall_measure::Measure;
pub use supervisor::{
    EngineError, LinkChanges, Outcome, Ready, Running, Settings, Take, ready, start,
};
pub use worker::{Busy, Counters, PortTx, Snapshot, StreamTx};
