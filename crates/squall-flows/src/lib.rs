//! Load: pools of addresses, arrivals of flows, what became of them. Frames and the time go in,
//! frames come out.
//!
//! A [`Load`] says what there is to be: [`Pool`]s of clients and servers, [`Template`]s of flows
//! between them, and how often each begins one; or a [`Script`] has conversations with programs and
//! beginnings of their own. What a program says and when is the affair of `squall-apps`, what TCP
//! makes of it that of `squall-tcp`. A [`Network`] says what stands around the packets.
//! [`Statistics`] are what became of it.
//!
//! Everything is a function of the load's seed and of numbers: flow `k` of a template has the same
//! addresses and is due at the same instant on one worker as on many. Which of them has it is a
//! function of its addresses and ports ([`squall_bpf::owner`]), the same for both ends: so what is
//! received finds its worker, by queues of a loop or by a port that computes the same, and what
//! comes to another worker is handed on ([`Side::owner`]).
//!
//! Knows no clock, no thread and no port.
#![forbid(unsafe_code)]

mod arrivals;
mod link;
mod load;
mod network;
mod pool;
mod script;
mod sharing;
mod side;
mod statistics;
mod steady;
mod watched;

pub use link::{Ignored, Services, Whose};
pub use load::{
    Arrival, Cps, DRAIN, Ends, Limits, Load, LoadError, PATIENCE, Spacing, Target, Template, Think,
};
pub use network::{Network, NextHop, Wrap};
pub use pool::{AddrRange, MOST_ADDRESSES, Order, PORTS, Pool, PoolError, Tuples};
pub use script::{Conversation, Script};
pub use side::{Came, FLOWS, FrameOutput, OpenFlow, Part, Role, Side, SideSettings};
pub use squall_tcp::{FlowInfo, Near, State as FlowState};
pub use statistics::{
    Exhausted, FailedConversation, Failure, Failures, FlowStatistics, LinkStatistics, NotBegun,
    Requests, Served, Statistics, TemplateStatistics, TlsStatistics,
};
pub use steady::{Second, Tally};

#[cfg(test)]
mod tests;
