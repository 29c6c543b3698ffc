//! Hosts on a link: ARP (RFC 826, 5227), neighbor discovery (RFC 4861), echo requests and replies,
//! DHCPv4 clients and servers (RFC 2131), IGMP and MLD (RFC 3376, 3810), LLDP (IEEE 802.1AB), 802.1X
//! supplicants.
//!
//! Works on octets and values. [`Host`] answers for its addresses; [`NeighborCache`] stores MAC
//! addresses, and decides which addresses to resolve and when. A [`HostGroup`] is many hosts of one
//! template, each with the state machines of its protocols ([`DhcpClient`],
//! [`ConflictDetection`]). Has no clock and no port; callers provide times, and send the frames.
#![forbid(unsafe_code)]

mod conflict;
mod dhcp_client;
mod dhcp_message;
mod dhcp_options;
mod dhcp_server;
mod dot1x;
mod faults;
mod frames;
mod group;
mod host;
mod icmp;
pub mod igmp;
pub mod lldp;
mod membership;
pub mod mld;
mod multicast;
mod neighbors;
mod packets;
mod querier;

pub use conflict::{ConflictAction, ConflictDetection, ConflictTimers};
pub use dhcp_client::{
    ClientSettings, DhcpBegin, DhcpClient, DhcpContext, DhcpEvent, DhcpFailure, DhcpState,
    DhcpStep, DhcpTimers, Request,
};
pub use dhcp_message::{Datagram, Kind, Malformed, Message};
pub use dhcp_options::{OptionTemplate, ValueTemplate};
pub use dhcp_server::{DhcpServer, ServerCounters, ServerSettings, destination, mask_of};
pub use dot1x::{
    EAPOL, PAE_GROUP, Supplicant, SupplicantEvent, SupplicantSettings, SupplicantState,
    SupplicantStep,
};
pub use faults::{FLOOD, Fault, Faults};
pub use frames::FrameQueue;
pub use group::{Addressing, GroupSettings, GroupStatistics, HostGroup, PingSettings};
pub use host::{Host, Response, link_local};
pub use icmp::IcmpError;
pub use lldp::{LldpNeighbors, LldpSettings, LldpSpeaker};
pub use membership::{MembershipContext, MembershipTimers, Memberships, SourceFilter};
pub use multicast::{
    GroupMessage, GroupVersion, Query, Record, RecordKind, group_mac, is_reported,
};
pub use neighbors::{Answer, NeighborCache};
pub use packets::{ARP_LEN, Arp, Echo, ND_LEN, NeighborMessage, echo_reply, solicited_node};
pub use querier::{Querier, QuerierSettings};
