//! What a host on a link owes its neighbours: ARP (RFC 826), neighbour discovery (RFC 4861), echo
//! requests and their answers.
//!
//! Octets go in, values and octets come out. [`Host`] answers for its addresses; [`Neighbours`] remembers who has which MAC address,
//! and says whom to ask and when. Knows no clock, no port, and nothing of who lives at an address:
//! callers say which are theirs.
#![forbid(unsafe_code)]

mod host;
mod neighbours;
mod packets;

pub use host::{Heard, Host, link_local};
pub use neighbours::{Answer, Neighbours};
pub use packets::{ARP_LEN, Arp, Echo, ND_LEN, NeighbourMessage, echo_reply, solicited_node};
