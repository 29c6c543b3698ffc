//! Ports on Linux ([`af_packet`], [`af_xdp`] and [`xdp_live`]), the machine's interfaces, and the
//! private [`lab`].
//!
//! Input: an [`Address`] such as `af_packet:eth1`. Output: a [`Port`]. Nothing here knows the
//! contents of a frame.

pub mod af_packet;
pub mod af_xdp;
#[allow(dead_code)]
mod bpf;
pub mod bypass;
pub mod child;
pub mod control;
pub mod filter;
mod interface;
pub mod lab;
mod link;
mod netlink;
mod ntuple;
mod permissions;
mod port_counters;
mod refused;
pub mod shared;
pub mod sink;
mod sys;
pub mod tap;
pub mod user;
mod watch;
pub mod xdp_live;

use std::io;

use squall_port::{Address, Port};

pub use interface::{
    Channels, InterfaceInfo, InterfaceState, Offload, Pause, Rings, Rss, Timestamping,
    interface_counters, list_interfaces, set_gro,
};
pub use link::LinkWatch;
pub use netlink::{Xdp, XdpFeatures, XdpMode, tcp_user};
pub use ntuple::FlowRules;
pub use permissions::Permissions;
pub use sys::{limit_arenas, trim_heap};

/// Opens the port at `address`; `None` if its kind belongs to another crate.
pub fn open(address: &Address) -> io::Result<Option<Box<dyn Port>>> {
    match address.kind() {
        "af_packet" => af_packet::open(address).map(Some),
        "af_xdp" => af_xdp::open(address).map(Some),
        "xdp_live" => xdp_live::open(address).map(Some),
        _ => Ok(None),
    }
}
