//! Hosts on a link: ARP (RFC 826, 5227), neighbor discovery and addresses of IPv6 (RFC 4861, 4862),
//! echo requests and replies, DHCPv4 clients and servers (RFC 2131).
//!
//! Works on octets and values. [`Host`] answers for its addresses; [`NeighborCache`] stores MAC
//! addresses, and decides which addresses to resolve and when. A [`HostGroup`] is many hosts of one
//! template, each with the state machines of its protocols ([`DhcpClient`],
//! [`ConflictDetection`]). Has no clock and no port; callers provide times, and send the frames.
#![forbid(unsafe_code)]

mod conflict;
mod dhcp_client;
mod dhcp_message;
mod dhcp_server;
mod duplicate;
mod frames;
mod group;
mod host;
mod nd_message;
mod neighbors;
mod packets;
mod prefix_list;
mod reachability;
mod router;
mod router_discovery;

pub use conflict::{ConflictAction, ConflictDetection, ConflictTimers};
pub use dhcp_client::{
    DhcpClient, DhcpContext, DhcpEvent, DhcpFailure, DhcpState, DhcpStep, DhcpTimers, Request,
};
pub use dhcp_message::{Datagram, Kind, Malformed, Message};
pub use dhcp_server::{DhcpServer, ServerCounters, ServerSettings, destination, mask_of};
pub use duplicate::{DuplicateAction, DuplicateDetection, NdTimers};
pub use frames::FrameQueue;
pub use group::{
    Addressing, GroupSettings, GroupStatistics, HostGroup, InterfaceIdentifier, Ipv6Addressing,
    Ipv6Settings, Ipv6State, Ipv6Statistics, NdCounters, PingSettings,
};
pub use host::{Host, Response, link_local};
pub use nd_message::{
    NdMessage, NeighborMessage, PrefixInformation, RouterAdvertisement, multicast_mac,
    router_solicitation, solicited_node,
};
pub use neighbors::{Answer, NeighborCache};
pub use packets::{ARP_LEN, Arp, Echo, echo_reply};
pub use prefix_list::{LinkPrefix, LinkRouter, PrefixChange, PrefixList};
pub use reachability::{Neighbor, NeighborAction, Reachability};
pub use router::{AdvertisingRouter, RouterSettings};
pub use router_discovery::{DiscoveryAction, RouterDiscovery};
