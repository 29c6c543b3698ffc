//! Hosts of a run: addresses that they got, and how long that took.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Distribution;

/// One `[[host]]` of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostsReport {
    pub name: String,
    /// Name of the port.
    pub port: String,
    /// Hosts of the group, and hosts that have started.
    pub hosts: u64,
    pub started: u64,
    /// Requested starts per second; `null` if all start at once.
    pub asked_rate: Option<f64>,
    /// Hosts by their state at the end: `init` (not started), `selecting`, `requesting`,
    /// `rebooting`, `informing`, `checking`, `bound`, `renewing`, `rebinding`, `declined`,
    /// `released`, `failed` (RFC 2131 figure 5). A host with a static address is `checking`, `bound` or `failed`.
    pub states: BTreeMap<String, u64>,
    /// Times that a host got an address, and how often that was per second, from the first start to
    /// the last address; `null` if there was only one instant.
    pub bound: u64,
    pub bound_rate: Option<f64>,
    /// Hosts that failed, by reason: `no_offer`, `no_ack`, `nak`, `conflict`, `expired`, and with
    /// 802.1X `rejected`, `no_authenticator`, `auth_timeout`; with PPPoE `no_pado`, `no_pads`, `refused`
    /// and the reasons in `pppoe.ended`.
    pub failed: BTreeMap<String, u64>,
    /// DHCP messages that hosts sent and received, by type; `retransmissions` of those sent were
    /// repeated.
    pub sent: BTreeMap<String, u64>,
    pub received: BTreeMap<String, u64>,
    pub retransmissions: u64,
    /// Leases that were extended, and leases that ended.
    pub renewed: u64,
    pub expired: u64,
    /// Messages that were ignored, by reason, such as `wrong_xid` or `zero_lease`.
    pub ignored: BTreeMap<String, u64>,
    /// Effects of faults, by the name: frames that they changed, added or suppressed, and messages
    /// that hosts ignored for them.
    pub faults: BTreeMap<String, u64>,
    /// Time from a host's first message of DHCP to its offer, and to its configuration.
    pub offer_ns: Option<Distribution>,
    pub dora_ns: Option<Distribution>,
    pub arp: HostArpReport,
    pub echo: HostEchoReport,
    /// `null` if the hosts have no IPv6.
    pub ipv6: Option<HostIpv6Report>,
    /// Messages and leases of the group's DHCP server.
    pub server: Option<DhcpServerReport>,
    /// Memberships of multicast groups, if hosts join any.
    pub multicast: Option<HostMulticastReport>,
    /// Queries and members, if the group has a querier.
    pub querier: Option<QuerierReport>,
    /// Announcements and neighbors, if hosts have LLDP.
    pub lldp: Option<HostLldpReport>,
    /// Announcements and neighbors, if hosts have CDP.
    pub cdp: Option<HostCdpReport>,
    /// Questions to DNS servers, if hosts ask for names.
    pub dns: Option<HostDnsReport>,
    /// Answers, if hosts are DNS servers.
    pub dns_server: Option<HostDnsServerReport>,
    /// Names of multicast DNS, if hosts have them.
    pub mdns: Option<HostMdnsReport>,
    /// 802.1X, if hosts authenticate.
    pub auth: Option<HostAuthReport>,
    /// Sessions of PPPoE, of clients or of a server.
    #[serde(default)]
    pub pppoe: Option<HostPppoeReport>,
    /// LACP, if the host is a port of an aggregate.
    #[serde(default)]
    pub lacp: Option<HostLacpReport>,
}

/// IPv6 of hosts: their addresses (RFC 4862), and their exchanges with servers (RFC 9915).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostIpv6Report {
    /// Hosts by the state of their IPv6 at the end: `init` (not started), `tentative` (examines its
    /// link-local address), `soliciting` (looks for a router), `requesting` (asks servers),
    /// `checking` (examines its address), `bound`, `deprecated`, `released`, `failed`.
    pub states: BTreeMap<String, u64>,
    /// Hosts that have failed, by reason: `no_router`, `no_prefix`, `duplicate`, `no_advertise`,
    /// `no_reply`, `no_lease`, `refused`, `expired`.
    pub failed: BTreeMap<String, u64>,
    /// Times that a host got an address, how often that was per second from the first start to the
    /// last address (`null` if there was only one instant), and times that an address ended.
    pub addresses: u64,
    pub address_rate: Option<f64>,
    pub ended: u64,
    pub nd: HostNdReport,
    /// Messages that were ignored, by reason, such as `bad_hop_limit` or `wrong_xid`.
    pub ignored: BTreeMap<String, u64>,
    /// Time from a host's first solicitation to the router's advertisement, and from its start to
    /// its first address.
    pub router_ns: Option<Distribution>,
    pub address_ns: Option<Distribution>,
    /// `null` if no host has asked a server.
    pub dhcp: Option<HostDhcp6Report>,
    /// Messages and bindings of the group's DHCPv6 server.
    pub server: Option<Dhcp6ServerReport>,
}

/// Neighbor discovery of hosts (RFC 4861).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostNdReport {
    /// Solicitations that were answered.
    pub answered: u64,
    /// Solicitations that examined an own address, and addresses that another host had.
    pub probes: u64,
    pub duplicates: u64,
    /// Advertisements of other hosts for an address in use.
    pub conflicts: u64,
    /// Solicitations for routers.
    pub router_solicitations: u64,
    /// Advertisements of routers that hosts received, and that the group's router sent.
    pub router_advertisements: u64,
    pub advertised: u64,
    /// Solicitations to resolve or examine neighbors; neighbors that never answered, and that no
    /// longer answered.
    pub requests: u64,
    pub unresolved: u64,
    pub unreachable: u64,
    /// Redirects, which hosts do not follow.
    pub redirects: u64,
}

/// Exchanges of hosts with DHCPv6 servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDhcp6Report {
    /// Messages that hosts sent and received, by type; `retransmissions` of those sent were
    /// repeated.
    pub sent: BTreeMap<String, u64>,
    pub received: BTreeMap<String, u64>,
    pub retransmissions: u64,
    /// Times that a host got leases, those with a delegated prefix, and times that it got other
    /// configuration only.
    pub bound: u64,
    pub prefixes: u64,
    pub informed: u64,
    /// Leases that were extended, and leases that ended.
    pub renewed: u64,
    pub expired: u64,
    /// Times that no server confirmed leases after the link of a host had failed (`link_flap`), and
    /// times that a server refused.
    pub unconfirmed: u64,
    pub refused: u64,
    /// Time from a host's first message to the offer that it took, and to the leases that it may
    /// use.
    pub advertise_ns: Option<Distribution>,
    pub lease_ns: Option<Distribution>,
    /// Time from a host's first Confirm, or Rebind, after its link had failed, to the reply that
    /// confirms its leases.
    pub confirm_ns: Option<Distribution>,
}

/// ARP packets of hosts (RFC 826, RFC 5227).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostArpReport {
    /// Requests that were answered.
    pub answered: u64,
    pub probes: u64,
    pub announcements: u64,
    /// Announcements because another host used the address.
    pub defended: u64,
    /// Addresses that were given up, because another host has them.
    pub conflicts: u64,
    /// Requests for gateways and targets, and addresses that did not answer.
    pub requests: u64,
    pub unresolved: u64,
}

/// Echo requests and replies of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostEchoReport {
    /// Answered requests of other hosts.
    pub answered: u64,
    /// Requests that hosts sent, the replies, and requests without a reply within 1 s.
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    /// Hosts that sent none, because the next hop did not answer ARP.
    pub unresolved: u64,
    /// Errors of ICMP that hosts received, by type: `unreachable`, `time_exceeded`,
    /// `parameter_problem`, `too_big`, `redirect`; and those that they sent (`icmp_errors`).
    pub errors: BTreeMap<String, u64>,
    pub errors_sent: u64,
    pub rtt_ns: Option<Distribution>,
}

/// Messages that a DHCP server received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DhcpServerReport {
    pub discovers: u64,
    pub offers: u64,
    pub requests: u64,
    pub acks: u64,
    pub naks: u64,
    pub declines: u64,
    pub releases: u64,
    pub informs: u64,
    /// DISCOVER messages without an offer, because no address was free.
    pub exhausted: u64,
    /// Leases at the end.
    pub leases: u64,
}

/// Messages that a DHCPv6 server received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dhcp6ServerReport {
    pub solicits: u64,
    pub advertises: u64,
    pub requests: u64,
    pub renews: u64,
    pub rebinds: u64,
    pub confirms: u64,
    pub releases: u64,
    pub declines: u64,
    pub information_requests: u64,
    pub replies: u64,
    /// Messages of clients for which nothing was free.
    pub exhausted: u64,
    /// Clients with a binding at the end.
    pub bindings: u64,
}

/// Memberships of multicast groups (IGMP, MLD), and the frames of these groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostMulticastReport {
    /// Memberships of a host and a group that began, and that ended.
    pub joined: u64,
    pub left: u64,
    /// Messages that hosts sent and received, by kind: `v1_report`, `v2_report`, `v3_report`,
    /// `leave`, `general_query`, `group_query`, `source_query`. MLDv1 has `v2_report` and `leave`
    /// (Done), and MLDv2 has `v3_report`.
    pub sent: BTreeMap<String, u64>,
    pub received: BTreeMap<String, u64>,
    /// Messages that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Multicast groups that hosts joined, and those of which the port got a frame after that.
    pub groups: u64,
    pub groups_received: u64,
    /// Received frames of groups with members, of groups after their last member had left, and of
    /// groups that no host joined (except those that switches flood).
    pub frames: u64,
    pub frames_after_leave: u64,
    pub unexpected: u64,
    /// Time from the first member's join to the first frame of the group, and from the last
    /// member's leave to the last frame, of groups with any frame after it.
    pub join_ns: Option<Distribution>,
    pub leave_ns: Option<Distribution>,
}

/// A querier of IGMP and MLD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuerierReport {
    /// Queries that it sent, messages that it received, by kind, and messages that it ignored, by
    /// reason; the names are those of `multicast`.
    pub sent: BTreeMap<String, u64>,
    pub received: BTreeMap<String, u64>,
    pub ignored: BTreeMap<String, u64>,
    /// Multicast groups with members at the end.
    pub groups: u64,
    /// Whether another querier, with a lower address, was there at the end.
    pub other: bool,
}

/// LLDP of hosts (IEEE 802.1AB).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLldpReport {
    /// Announcements that hosts sent, and of these, the ones of their end.
    pub sent: u64,
    pub shutdowns: u64,
    pub received: u64,
    /// Received announcements that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Neighbors at the end, at most 1000, and the number of all.
    pub neighbors: Vec<LldpNeighborReport>,
    #[serde(default)]
    pub neighbor_count: u64,
    /// Neighbors whose time to live ended, and neighbors that announced their end.
    pub aged: u64,
    pub ended: u64,
}

/// A neighbor that announces itself by LLDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LldpNeighborReport {
    pub chassis: String,
    pub port: String,
    /// System name; may be empty.
    pub system: String,
}

/// CDP of hosts, Cisco's discovery protocol.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostCdpReport {
    /// Announcements that hosts sent, and of these, the ones of their end.
    pub sent: u64,
    pub shutdowns: u64,
    pub received: u64,
    /// Received announcements that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Neighbors at the end, at most 1000, and the number of all.
    pub neighbors: Vec<CdpNeighborReport>,
    #[serde(default)]
    pub neighbor_count: u64,
    /// Neighbors whose time to live ended, and neighbors that announced their end.
    pub aged: u64,
    pub ended: u64,
}

/// A neighbor that announces itself by CDP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CdpNeighborReport {
    pub device: String,
    pub port: String,
    /// May be empty.
    pub platform: String,
}

/// Questions of hosts to DNS servers (RFC 1035).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostDnsReport {
    /// Questions, and messages, of which `retransmissions` repeated a question.
    pub asked: u64,
    pub sent: u64,
    pub retransmissions: u64,
    /// Answers with addresses, answers without, and names that do not exist (NXDOMAIN).
    pub answered: u64,
    pub empty: u64,
    pub nxdomain: u64,
    /// Errors of servers: `format_error`, `server_failure`, `not_implemented`, `refused`, `other`.
    pub failed: BTreeMap<String, u64>,
    /// Answers that did not fit into a datagram; hosts do not ask over TCP.
    pub truncated: u64,
    /// Questions without an answer.
    pub timeouts: u64,
    /// Messages that did not leave: no server was known or in reach, or the next hop had no MAC
    /// address.
    pub no_server: u64,
    pub unresolved: u64,
    /// Messages that were ignored, by reason, such as `wrong_server` or `wrong_question`.
    pub ignored: BTreeMap<String, u64>,
    /// Time from a question's first message to its answer, of any kind.
    pub time_ns: Option<Distribution>,
}

/// Answers of hosts that are DNS servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostDnsServerReport {
    pub queries: u64,
    /// Responses with addresses, without, for names that do not exist, and to queries of another
    /// class or operation.
    pub answered: u64,
    pub empty: u64,
    pub nxdomain: u64,
    pub not_implemented: u64,
    /// Queries that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
}

/// Names of hosts in multicast DNS (RFC 6762).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostMdnsReport {
    /// Hosts that had their name at the end, or gave it up then.
    pub owned: u64,
    pub probes: u64,
    pub announcements: u64,
    /// Questions that hosts answered, by multicast and by unicast.
    pub answered: u64,
    pub unicast: u64,
    /// Names that other hosts had, and ties between probes that hosts lost.
    pub conflicts: u64,
    pub ties: u64,
    /// Announcements of the end.
    pub goodbyes: u64,
    /// Messages that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
}

/// 802.1X of hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostAuthReport {
    /// Supplicants by their state at the end: `disconnected`, `connecting`, `authenticating`,
    /// `authenticated`, `held`, `logged_off`, `failed`.
    pub states: BTreeMap<String, u64>,
    /// Times that a host was authenticated, and authenticated again.
    pub authenticated: u64,
    pub reauthenticated: u64,
    /// Failures and timeouts after which a host may try again.
    pub refused: u64,
    pub timed_out: u64,
    /// Reasons of these failures.
    pub reasons: BTreeMap<String, u64>,
    /// Frames that hosts sent, by kind: `start`, `identity`, `nak`, `notification`, `logoff`,
    /// and by method: `md5`, `tls`, `peap`, `ttls`.
    pub sent: BTreeMap<String, u64>,
    /// Received frames that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Time from a host's first frame to its authentication.
    pub time_ns: Option<Distribution>,
}

/// PPPoE of hosts (RFC 2516) and their sessions of PPP (RFC 1661).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostPppoeReport {
    /// Clients by their state at the end: `init` (not started), `discovery` (a PADI was sent),
    /// `request` (a PADR was sent), `session` (PPP is negotiated), `open`, `terminating`, `waiting`
    /// (before a new attempt), `closed`, `failed`. Sessions of a server: `establish`, `authenticate`,
    /// `network`, `open`, `terminate`.
    pub states: BTreeMap<String, u64>,
    /// Times that a session carried IPv4, and IPv6.
    pub opened: u64,
    pub opened6: u64,
    /// Sessions that ended, by reason: `padt` (the peer ended it), `terminated` (the peer ended PPP),
    /// `closed` (the host did, at its end), `lcp_timeout`, `ppp_timeout`, `auth_rejected`,
    /// `auth_timeout`, `no_auth_method`, `no_ipcp`, `no_address`, `echo_timeout`, `replaced` (by a new
    /// one of the same client).
    pub ended: BTreeMap<String, u64>,
    /// Packets that hosts sent and received, by kind: `padi`, `pado`, `padr`, `pads`, `padt`,
    /// `lcp_request`, `lcp_ack`, `chap_challenge`, `echo_request` ...; `retransmissions` of PADI and
    /// PADR were repeated. Packets of IPv4 are counted as received only.
    pub sent: BTreeMap<String, u64>,
    pub retransmissions: u64,
    pub received: BTreeMap<String, u64>,
    /// Packets that were ignored, by reason, such as `wrong_host_uniq` or `wrong_session`.
    pub ignored: BTreeMap<String, u64>,
    /// Addresses of name servers that hosts got, at most 16.
    pub name_servers: Vec<String>,
    /// Time from a client's first PADI to its PADS, and to its address. A server's time to the address
    /// begins with the PADR.
    pub session_ns: Option<Distribution>,
    pub open_ns: Option<Distribution>,
}

/// LACP of a port (IEEE 802.1AX).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostLacpReport {
    /// States at the end of the receive machine (`initialize`, `expired`, `defaulted`, `current`) and
    /// of the mux machine (`detached`, `waiting`, `attached`, `collecting`, `distributing`), and
    /// whether the port was selected for an aggregate. After the end of a run, the port is disabled.
    pub receive: String,
    pub mux: String,
    pub selected: bool,
    /// The port, and that of its partner, as they announced themselves last.
    pub actor: LacpPortReport,
    pub partner: LacpPortReport,
    /// Times that frames could be sent over the link (`distributing`), and that they no longer could.
    pub up: u64,
    pub down: u64,
    /// Times that the partner's announcements expired, and that no partner was there.
    pub expired: u64,
    pub defaulted: u64,
    /// Times that this end, and that the partner did not agree within `lacp_churn`.
    pub actor_churn: u64,
    pub partner_churn: u64,
    /// PDUs that the port sent, by kind (`lacpdu`, `marker_response`), and those that it received.
    pub sent: BTreeMap<String, u64>,
    pub received: u64,
    /// Received PDUs that were ignored, by reason.
    pub ignored: BTreeMap<String, u64>,
    /// Time from the start, or from the end of a link, to the next one.
    pub up_ns: Option<Distribution>,
}

/// The announcement of a port by LACP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LacpPortReport {
    pub system_priority: u16,
    pub system: String,
    pub key: u16,
    pub port_priority: u16,
    pub port: u16,
    /// Bits that are set: `activity`, `short_timeout`, `aggregation`, `synchronization`, `collecting`,
    /// `distributing`, `defaulted`, `expired`.
    pub state: Vec<String>,
}

impl HostLldpReport {
    /// Neighbors at the end, also those that are not listed.
    pub fn neighbors_found(&self) -> u64 {
        // Reports of older versions have no count.
        self.neighbor_count.max(self.neighbors.len() as u64)
    }
}

impl HostCdpReport {
    /// Neighbors at the end, also those that are not listed.
    pub fn neighbors_found(&self) -> u64 {
        self.neighbor_count.max(self.neighbors.len() as u64)
    }
}

impl HostsReport {
    pub(super) fn distributions_mut(&mut self) -> impl Iterator<Item = &mut Option<Distribution>> {
        let ipv6 = self.ipv6.iter_mut().flat_map(|ipv6| {
            let dhcp = ipv6
                .dhcp
                .iter_mut()
                .flat_map(|of| [&mut of.advertise_ns, &mut of.lease_ns, &mut of.confirm_ns]);
            [&mut ipv6.router_ns, &mut ipv6.address_ns].into_iter().chain(dhcp)
        });
        let groups = self.multicast.iter_mut().flat_map(|of| [&mut of.join_ns, &mut of.leave_ns]);
        let auth = self.auth.iter_mut().map(|of| &mut of.time_ns);
        let dns = self.dns.iter_mut().map(|of| &mut of.time_ns);
        let pppoe = self.pppoe.iter_mut().flat_map(|of| [&mut of.session_ns, &mut of.open_ns]);
        let lacp = self.lacp.iter_mut().map(|of| &mut of.up_ns);
        [&mut self.offer_ns, &mut self.dora_ns, &mut self.echo.rtt_ns]
            .into_iter()
            .chain(ipv6)
            .chain(groups)
            .chain(auth)
            .chain(dns)
            .chain(pppoe)
            .chain(lacp)
    }
}
