//! The engine: runs a [`squall_plan::Plan`] on opened ports, with one [`worker`] per core, and
//! returns the counters.
//!
//! Only this crate and the ports have threads and clocks. It does not know the syntax of profiles,
//! the backends, or how results are presented.
#![forbid(unsafe_code)]

mod after;
mod clock;
mod command;
mod cut;
mod flows;
mod generate;
mod groups;
mod host_frames;
mod host_supply;
mod hosts;
mod idle;
mod learnt;
mod native;
mod output;
mod pacing;
mod receiving;
mod relay;
mod replay;
mod routers;
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
pub use host_frames::HostedConversation;
pub use hosts::{HostStats, RouterLinks, SeenHosts, SeenLog, host_log, hosts};
pub use idle::Precision;
pub use pacing::PortPacing;
pub use receiving::{PortRx, QueueCounters, ReceivedFlows};
pub use replay::Replayed;
pub use routers::RouterStats;
pub use sink::{Frames, MakeSink, Shown, Sink, Wanted};
pub use squall_measure::Measure;
pub use supervisor::{
    EngineError, LinkChanges, Outcome, Ready, Running, Settings, Take, ready, start,
};
pub use worker::{Counters, PortTx, Snapshot, StreamTx, ThreadLoad, Unsent};
