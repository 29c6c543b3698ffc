//! TCP and UDP without sockets: IP packets and the time go in, IP packets and events come out.
//!
//! A [`Stack`] holds the flows of one worker. It finds the flow of a packet, runs its state machine
//! (RFC 9293), notifies the [`Application`], and writes outgoing packets into the buffers of an
//! [`Output`]. It has no clock, no socket, no Ethernet and no application protocol. Data that an
//! application sends is never copied into a flow: a flow keeps [`Piece`]s (which message, and its
//! offset in the stream) and asks the application for the octets each time it writes a segment, so
//! a million open flows need no send buffers.
#![forbid(unsafe_code)]

mod addresses;
mod api;
mod arrives;
mod bbr;
mod congestion;
mod core;
mod counters;
mod datagrams;
mod extra;
mod flow;
mod hash;
mod look;
mod packet;
mod pieces;
mod queue;
mod recovery;
mod rest;
mod seq;
mod stack;
mod table;
mod tunables;
mod wait_table;
mod waits;
mod wheel;
mod write;

pub use api::{
    Application, ClassId, ConnectError, Deed, Event, Events, FlowId, FlowKind, Output, Piece,
    Reason, SendError, StateParts, Tuple, tuple4, tuple6,
};
pub use core::Socket;
pub use counters::{Counters, UnmatchedCounters};
pub use flow::State;
pub use look::FlowInfo;
pub use stack::{FlowHint, Stack};
pub use tunables::{Congestion, OptionOrder, Settings, TunableError, Tunables};
