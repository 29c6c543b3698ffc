//! TCP and UDP without sockets: IP packets and the time go in, IP packets and events come out.
//!
//! A [`Stack`] holds the flows of one worker: it finds the flow of a packet, runs its state machine
//! (RFC 9293), tells the [`Application`] what happened, and writes what is to leave into room that
//! an [`Output`] gives. It knows no clock, no socket, no Ethernet and no application protocol. What
//! an application sends is never copied into a flow: a flow keeps pieces of [`Piece`] (which
//! message, where it begins in the stream), and asks the application for the octets each time a
//! segment is written.
#![forbid(unsafe_code)]

mod api;
mod arrives;
mod congestion;
mod core;
mod counters;
mod datagrams;
mod extra;
mod flow;
mod hash;
mod look;
mod packet;
mod recovery;
mod seq;
mod stack;
mod table;
mod tunables;
mod waits;
mod wheel;
mod write;

pub use api::{
    Application, ClassId, ConnectError, Event, FlowId, FlowKind, Output, Piece, Reason, SendError,
    Tuple,
};
pub use core::Socket;
pub use counters::{Counters, Strays};
pub use flow::State;
pub use look::FlowInfo;
pub use stack::{Near, Stack};
pub use tunables::{Congestion, OptionOrder, Settings, TunableError, Tunables};
