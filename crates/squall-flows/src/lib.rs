//! Load: pools of addresses, arrivals of flows, and their outcomes. Input: frames and the time.
//! Output: frames.
//!
//! A [`Load`] has [`Pool`]s of clients and servers, [`Template`]s of flows between them, and the
//! rate of each; or a [`Script`] of conversations with their own programs and start times.
//! `squall-apps` runs the programs, `squall-tcp` the connections. A [`Network`] describes the
//! headers around the packets. [`Statistics`] count the outcomes.
//!
//! Everything is determined by the load's seed and by indexes: flow `k` of a template has the same
//! addresses and is due at the same time, whatever the number of workers. The worker is a function
//! of the flow's addresses and ports ([`squall_bpf::owner`]), equal for both directions, so a
//! received frame can reach the flow's worker: through its receive queue, or because the port
//! computes the same function. A worker passes any other frame on ([`Side::owner`]).
//!
//! The crate uses no clock, thread or port: a run is repeatable, and its tests run in virtual time.
#![forbid(unsafe_code)]

mod app_recorder;
mod arrivals;
mod joined;
mod link;
mod load;
mod network;
mod pool;
mod script;
mod sharing;
mod side;
mod statistics;
mod steady;

pub use link::{FrameOwner, Ignored, Services};
pub use load::{
    Arrival, Cps, DRAIN, Ends, Limits, Load, LoadError, MAX_DELAY, MAX_PAIRS, Spacing, Target,
    Template, Think,
};
pub use network::{GTPU_PORT, Interface, InterfaceOf, Network, NextHop, Wrap};
pub use pool::{AddrRange, MAX_ADDRESSES, Order, PORTS, Pool, PoolError, Tuples};
pub use script::{Conversation, HostedFlow, Script};
pub use side::{
    FLOW_OCTETS, FrameOutput, OpenFlow, Part, ReceiveOffloads, Role, Side, SideSettings,
    default_flows,
};
pub use squall_apps::{Http2Counts, Http3Counts};
pub use squall_tcp::{FlowHint, FlowInfo, FlowKind, State as FlowState};
pub use statistics::{
    Exhausted, FailedConversation, Failure, Failures, FlowStatistics, LinkStatistics, NotBegun,
    Requests, Served, Statistics, TemplateStatistics, TlsStatistics,
};
pub use steady::{Second, Tally};

#[cfg(test)]
mod tests;
