//! TRex compatibility: translates TRex's profiles and implements its server.
//!
//! [`Stream`] is a stream as TRex's clients send it. [`translate`] converts the streams of a port
//! to streams of a profile that send the same octets as TRex; it is pure and opens no port.
#![forbid(unsafe_code)]

mod astf;
mod clusters;
mod compare;
mod load;
mod pairs;
mod problem;
mod random;
mod reference;
mod rpc;
mod server;
mod stream;
mod tagged;
mod traffic;
mod translate;
mod vm;

pub use astf::{Astf, FlowSetting};
pub use compare::{CompareSetting, Comparison, Golden, Row, Template};
pub use load::{File, MACS, numbered, of_port};
pub use pairs::{FlowPair, FlowPort};
pub use problem::Problem;
pub use rpc::refuse;
pub use server::{Answered, Change, FlowMode, PortInfo, Server};
pub use stream::{FlowStats, Instruction, Kind, Mode, Packet, Rate, Stream, Unit, VarOp, Vm};
pub use translate::{
    Asked, GroupNumbers, Load, Macs, Setting, Statistics, Translated, factor, translate,
};
