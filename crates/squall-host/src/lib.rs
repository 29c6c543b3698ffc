//! Hosts on a link: ARP (RFC 826, 5227), neighbor discovery and addresses of IPv6 (RFC 4861, 4862),
//! echo requests and replies, DHCPv4 clients and servers (RFC 2131), IGMP and MLD (RFC 3376, 3810),
//! LLDP (IEEE 802.1AB), CDP, 802.1X supplicants with methods of EAP, DNS and multicast DNS (RFC 1035,
//! 6762), PPPoE (RFC 2516), LACP (IEEE 802.1AX).
//!
//! Works on octets and values. [`Host`] answers for its addresses; [`NeighborCache`] stores MAC
//! addresses, and decides which addresses to resolve and when. A [`HostGroup`] is many hosts of one
//! template, each with the state machines of its protocols ([`DhcpClient`],
//! [`ConflictDetection`]). Has no clock and no port; callers provide times, and send the frames.
#![forbid(unsafe_code)]

pub mod cdp;
mod conflict;
mod dhcp6_client;
mod dhcp6_message;
mod dhcp6_server;
mod dhcp_client;
mod dhcp_message;
mod dhcp_options;
mod dhcp_server;
pub mod dns;
mod dns_server;
mod dot1x;
mod duplicate;
mod eap;
mod faults;
mod frames;
mod group;
mod host;
mod host_log;
mod icmp;
pub mod igmp;
pub mod lacp;
pub mod lldp;
pub mod mdns;
mod membership;
pub mod mld;
mod multicast;
mod nd_message;
mod neighbors;
mod packets;
mod ppp_automaton;
mod ppp_link;
mod ppp_message;
mod pppoe_client;
mod pppoe_message;
mod pppoe_server;
mod prefix_list;
mod querier;
mod reachability;
mod resolver;
mod router;
mod router_discovery;
mod speaker;
mod table;
mod udp;

pub use cdp::CdpSettings;
pub use conflict::{ConflictAction, ConflictDetection, ConflictTimers};
pub use dhcp_client::{
    ClientSettings, DhcpBegin, DhcpClient, DhcpContext, DhcpEvent, DhcpFailure, DhcpState,
    DhcpStep, DhcpTimers, Request,
};
pub use dhcp_message::{Datagram, Kind, Malformed, Message};
pub use dhcp_options::{OptionTemplate, ValueTemplate};
pub use dhcp_server::{DhcpServer, ServerCounters, ServerSettings, destination, mask_of};
pub use dhcp6_client::{
    Dhcp6Client, Dhcp6Context, Dhcp6Event, Dhcp6Failure, Dhcp6Settings, Dhcp6State, Dhcp6Step,
    Dhcp6Timers, Request6, Retransmission,
};
pub use dhcp6_message::{ALL_SERVERS, Association, Datagram6, Kind6, Lease6, Message6, duid_of};
pub use dhcp6_server::{Binding6, Dhcp6Server, Server6Counters, Server6Settings};
pub use dns::NameTemplate;
pub use dns_server::{DnsReply, DnsZone};
pub use dot1x::{
    EAPOL, PAE_GROUP, Supplicant, SupplicantEvent, SupplicantSettings, SupplicantState,
    SupplicantStep,
};
pub use duplicate::{DuplicateAction, DuplicateDetection, NdTimers};
pub use eap::{EapMethod, TlsClient};
#[cfg(feature = "tls")]
pub use eap::{Fragment, FragmentReader};
pub use faults::{FLOOD, Fault, Faults};
pub use frames::FrameQueue;
pub use group::{
    Addressing, AuthStatistics, Dhcp6Statistics, DnsServerStatistics, DnsStatistics, GroupSettings,
    GroupStatistics, HostCounters, HostGroup, HostView, InterfaceIdentifier, Ipv4View,
    Ipv6Addressing, Ipv6Settings, Ipv6State, Ipv6Statistics, Ipv6View, LacpStatistics,
    MdnsStatistics, MulticastSettings, MulticastStatistics, NdCounters, PingSettings,
    PppoeSettings, PppoeStatistics, QuerierStatistics, ServiceSettings, SpeakerStatistics,
};
pub use host::{Host, Response, link_local};
pub use host_log::{EventKind, HostEvent, HostLog, LogProtocol};
pub use icmp::IcmpError;
pub use lacp::{LacpInfo, LacpPort, LacpSettings};
pub use lldp::LldpSettings;
pub use mdns::MdnsSettings;
pub use membership::{MembershipContext, MembershipTimers, Memberships, SourceFilter};
pub use multicast::{
    GroupMessage, GroupVersion, Query, Record, RecordKind, group_mac, is_reported,
};
pub use nd_message::{
    NdMessage, NeighborMessage, PrefixInformation, RouterAdvertisement, router_solicitation,
    solicited_node,
};
pub use neighbors::{Answer, NeighborCache};
pub use packets::{ARP_LEN, Arp, Echo, echo_reply, is_of_a_flow};
pub use ppp_automaton::{Automaton, PppActions, PppOutput, PppState, PppTimers};
pub use ppp_link::{
    HIGHEST_MRU, LOWEST_MRU, PppAuth, PppContext, PppEvent, PppLink, PppPhase, PppRole,
    PppSettings, PppStep,
};
pub use ppp_message::{CHAP, IPCP, IPV6CP, LCP, PAP, PPP_IPV4, PPP_IPV6, PppPacket, ppp_word};
pub use pppoe_client::{
    PppoeClient, PppoeClientSettings, PppoeContext, PppoeEvent, PppoeFrame, PppoeState, PppoeStep,
};
pub use pppoe_message::{
    PADI, PADO, PADR, PADS, PADT, PPPOE_DISCOVERY, PPPOE_SESSION, PppoePacket, PppoeTags,
};
pub use pppoe_server::{PppoeServer, PppoeServerContext, PppoeServerSettings};
pub use prefix_list::{LinkPrefix, LinkRouter, PrefixChange, PrefixList};
pub use querier::{Querier, QuerierSettings};
pub use reachability::{Neighbor, NeighborAction, Reachability};
pub use resolver::{Overdue, Question, Resolved, Resolver, ResolverSettings};
pub use router::{AdvertisingRouter, RouterSettings};
pub use router_discovery::{DiscoveryAction, RouterDiscovery};
pub use speaker::{Announcement, NeighborTable, Speaker, SpeakerTimers};
pub use table::{BoundHost, ConversationEnds, HostTable};
