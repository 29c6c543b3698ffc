//! A host's answers to its neighbors: ARP (RFC 826), neighbor discovery (RFC 4861), echo requests
//! and replies.
//!
//! Works on octets and values. [`Host`] answers for its addresses; [`NeighborCache`] stores MAC
//! addresses, and decides which addresses to resolve and when. Has no clock and no port; callers
//! provide the addresses.
#![forbid(unsafe_code)]

mod host;
mod neighbors;
mod packets;

pub use host::{Host, Response, link_local};
pub use neighbors::{Answer, NeighborCache};
pub use packets::{ARP_LEN, Arp, Echo, ND_LEN, NeighborMessage, echo_reply, solicited_node};
