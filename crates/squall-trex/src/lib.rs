//! TRex: what its clients and profiles say, as values of ours.
//!
//! [`Stream`] is a stream as TRex's clients send it; [`translate`] makes the streams of a profile of
//! those of a port, octet for octet what TRex sends. That is pure, and opens no port.
#![forbid(unsafe_code)]

mod astf;
mod compare;
mod load;
mod problem;
mod random;
mod reference;
mod rpc;
mod server;
mod stream;
mod traffic;
mod translate;
mod vm;

pub use astf::{Astf, FlowSetting};
pub use compare::{CompareSetting, Comparison, Golden, Row, Template};
pub use load::{File, MACS, numbered, of_port};
pub use problem::Problem;
pub use rpc::refuse;
pub use server::{Answered, Change, PortInfo, Server};
pub use stream::{FlowStats, Instruction, Kind, Mode, Packet, Rate, Stream, Unit, VarOp, Vm};
pub use translate::{
    Asked, GroupNumbers, Load, Macs, Setting, Statistics, Translated, factor, translate,
};
