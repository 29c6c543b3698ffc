//! Counters in the form of OTG metrics.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};
use squall::totals::PortTotals;
use squall_bgp::{Counters, Families, Family, LearntAttributes, LearntRoute, State};
use squall_host::lacp::{
    ACTIVITY, AGGREGATION, COLLECTING, DISTRIBUTING, SHORT_TIMEOUT, SYNCHRONIZATION,
};
use squall_measure::StreamCounters;
use squall_port_linux::LinkWatch;
use squall_router::{DaemonState, observe::Protocol};
use squall_units::{L1_OVERHEAD, Nanos};

use super::{
    captures::Captures,
    dhcp::{DhcpHost, Lease, Lease6},
    hosts::Hosts,
    lacp::{LacpMember, LacpView},
    lldp::{self, LldpAgent},
    routers,
    traffic::{self, Flow, Part, Seen, Tally, Traffic, Transmit},
};
use crate::{
    BgpPeerInfo, Counting, FlowInfo, LagInfo, LagMemberInfo, StreamInfo, TagValue, Translated,
    bgp::{COMMUNITIES, ORIGINS, SEGMENTS},
    replies::{
        BgpAsPath, BgpCommunity, BgpMetric, BgpPrefix, BgpPrefixes, BgpSegment, Count, Decimal,
        Dhcp6Address, Dhcp6Interface, Dhcp6Lease, Dhcp6Leases, Dhcp6Prefix, DhcpInterface,
        DhcpLease, DhcpLeases, ExtendedCommunity, FlowCounts, FlowMetric, LacpMetric, LagMetric,
        Latency, LldpCapability, LldpNeighbor, LldpTlv, MessageMetric, MetricsResponse, PortMetric,
        PrefixFilter, RouterMetric, Tag, TagText, TaggedMetric, TaggedRequest, Timestamps,
    },
};

/// Metrics of the `chosen` ports; `columns`: names of the figures, empty for all.
pub fn ports(
    translated: &Translated,
    traffic: &mut Traffic,
    captures: &Captures,
    links: &HashMap<String, LinkWatch>,
    chosen: &[usize],
    columns: &[String],
) -> MetricsResponse {
    let seen = traffic.see();
    let wanted = Columns(columns);
    let interfaces = match wanted.any(&["link", "speed"]) {
        true => squall_port_linux::list_interfaces().unwrap_or_default(),
        false => Vec::new(),
    };
    let sending = sending(translated, traffic);
    let port_metrics = chosen.iter().map(|&port| {
        let info = &translated.ports[port];
        let (all, recent) = traffic.port(port, seen.as_ref());
        let rate = |of: fn(&PortTotals) -> u64| {
            recent.as_ref().map_or(0.0, |(now, then, seconds)| {
                of(now).saturating_sub(of(then)) as f64 / seconds
            })
        };
        let sends = sending.contains(info.name.as_str());
        let tx_rate = |of| if sends { rate(of) } else { 0.0 };
        let name = squall_machine::ports::interface_of(&info.address);
        let interface = interfaces.iter().find(|i| name.as_ref() == Some(&i.name));
        // An interface can be up without a peer, in which case it carries no frames.
        let down = interface.is_some_and(|i| i.state != squall_port_linux::InterfaceState::Up);
        let change = || {
            let Nanos(at) = links.get(name.as_ref()?)?.last_change()?;
            Some(Count(at.saturating_add_signed(squall_machine::wall_offset())))
        };
        let either = |yes, on: &'static str, off: &'static str| Some(if yes { on } else { off });
        PortMetric {
            name: info.name.clone(),
            location: wanted.get("location", || info.location.clone()),
            link: wanted.get("link", || if down { "down" } else { "up" }),
            capture: either(captures.is_on(&info.name), "started", "stopped")
                .filter(|_| wanted.has("capture")),
            frames_tx: wanted.get("frames_tx", || Count(all.tx_packets)),
            frames_rx: wanted.get("frames_rx", || Count(all.rx_packets)),
            bytes_tx: wanted.get("bytes_tx", || Count(all.tx_octets)),
            bytes_rx: wanted.get("bytes_rx", || Count(all.rx_octets)),
            frames_tx_rate: wanted.get("frames_tx_rate", || Decimal(tx_rate(|p| p.tx_packets))),
            frames_rx_rate: wanted.get("frames_rx_rate", || Decimal(rate(|p| p.rx_packets))),
            bytes_tx_rate: wanted.get("bytes_tx_rate", || Decimal(tx_rate(|p| p.tx_octets))),
            bytes_rx_rate: wanted.get("bytes_rx_rate", || Decimal(rate(|p| p.rx_octets))),
            transmit: either(sends, "started", "stopped").filter(|_| wanted.has("transmit")),
            last_change: change().filter(|_| wanted.has("last_change")),
            // Kilobytes per second, as the model requires.
            speed: interface
                .and_then(|i| i.speed_bps)
                .map(|bps| Count(bps / 8000))
                .filter(|_| wanted.has("speed")),
        }
    });
    MetricsResponse::PortMetrics { port_metrics: port_metrics.collect() }
}

/// Names of the ports that send now.
fn sending<'a>(translated: &'a Translated, traffic: &Traffic) -> HashSet<&'a str> {
    let flows = translated.flows.iter().zip(&traffic.flows);
    flows
        .filter(|(_, flow)| flow.state == Transmit::Started)
        .flat_map(|(info, _)| info.streams.iter().map(|stream| stream.tx_port.as_str()))
        .collect()
}

/// Metrics of the `chosen` LAGs: the sums of their ports.
pub fn lags(
    translated: &Translated,
    traffic: &mut Traffic,
    hosts: &Hosts,
    chosen: &[&LagInfo],
    columns: &[String],
) -> MetricsResponse {
    let seen = traffic.see();
    let sending = sending(translated, traffic);
    let metric = |lag: &&LagInfo| {
        let names: Vec<&str> = lag.members.iter().map(|member| &member.port[..]).collect();
        let up = |name: &&&str| hosts.lacp(name).is_some_and(|member| member.view().is_up);
        let up = names.iter().filter(up).count();
        let mut all = PortTotals::default();
        // Rates of frames and octets: sent, received.
        let mut rates = [0.0; 4];
        let ports = translated.ports.iter().enumerate();
        for (port, info) in ports.filter(|(_, info)| names.contains(&&info.name[..])) {
            let (totals, recent) = traffic.port(port, seen.as_ref());
            all.tx_packets += totals.tx_packets;
            all.tx_octets += totals.tx_octets;
            all.rx_packets += totals.rx_packets;
            all.rx_octets += totals.rx_octets;
            let Some((now, then, seconds)) = recent else { continue };
            let of = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            if sending.contains(&info.name[..]) {
                rates[0] += of(now.tx_packets, then.tx_packets);
                rates[1] += of(now.tx_octets, then.tx_octets);
            }
            rates[2] += of(now.rx_packets, then.rx_packets);
            rates[3] += of(now.rx_octets, then.rx_octets);
        }
        let is_up = up > 0 && up >= lag.min_links as usize;
        let all = [
            ("oper_status", json!(if is_up { "up" } else { "down" })),
            ("member_ports_up", json!(up)),
            ("frames_tx", json!(Count(all.tx_packets))),
            ("frames_rx", json!(Count(all.rx_packets))),
            ("bytes_tx", json!(Count(all.tx_octets))),
            ("bytes_rx", json!(Count(all.rx_octets))),
            ("frames_tx_rate", json!(Decimal(rates[0]))),
            ("bytes_tx_rate", json!(Decimal(rates[1]))),
            ("frames_rx_rate", json!(Decimal(rates[2]))),
            ("bytes_rx_rate", json!(Decimal(rates[3]))),
        ];
        LagMetric { name: lag.name.clone(), columns: Columns(columns).of(all) }
    };
    MetricsResponse::LagMetrics { lag_metrics: chosen.iter().map(metric).collect() }
}

/// LACP of the `chosen` ports of LAGs.
pub fn lacp(
    hosts: &Hosts,
    chosen: Vec<(&LagInfo, &LagMemberInfo)>,
    columns: &[String],
) -> MetricsResponse {
    let metric = |(lag, info): (&LagInfo, &LagMemberInfo)| {
        // Before the start, a port has no partner.
        let before = || LacpView { actor: info.settings.actor, ..LacpView::default() };
        let view = hosts.lacp(&info.port).map_or_else(before, LacpMember::view);
        let LacpView { counters, actor, partner, .. } = view;
        let has = |bit| actor.state & bit != 0;
        let word = |bit, yes: &str, no: &str| json!(if has(bit) { yes } else { no });
        let all = [
            ("lacp_packets_rx", json!(Count(counters.received))),
            ("lacp_packets_tx", json!(Count(counters.sent))),
            ("lacp_rx_errors", json!(Count(counters.errors))),
            ("activity", word(ACTIVITY, "active", "passive")),
            ("timeout", word(SHORT_TIMEOUT, "short", "long")),
            ("synchronization", word(SYNCHRONIZATION, "in_sync", "out_sync")),
            ("aggregatable", json!(has(AGGREGATION))),
            ("collecting", json!(has(COLLECTING))),
            ("distributing", json!(has(DISTRIBUTING))),
            ("system_id", json!(actor.system.to_string())),
            ("oper_key", json!(actor.key)),
            ("partner_id", json!(partner.system.to_string())),
            ("partner_key", json!(partner.key)),
            ("port_num", json!(actor.port)),
            ("partner_port_num", json!(partner.port)),
        ];
        LacpMetric {
            lag_name: lag.name.clone(),
            lag_member_port_name: info.port.clone(),
            columns: Columns(columns).of(all),
        }
    };
    MetricsResponse::LacpMetrics { lacp_metrics: chosen.into_iter().map(metric).collect() }
}

/// Counters of BGP sessions.
pub fn bgp(hosts: &Hosts, names: Vec<&str>, columns: &[String], v6: bool) -> MetricsResponse {
    let metric = |name: &str| {
        let found = hosts.bgp(name).map(|(speaker, number)| {
            speaker.with_peer(number, |peer| {
                let learnt = &peer.learnt;
                let routes = [peer.announced, peer.withdrawn, learnt.announced, learnt.withdrawn];
                (peer.session.state(), *peer.session.counters(), routes, learnt.ends)
            })
        });
        // Before the start.
        let before = || (State::Idle, Counters::default(), [0; 4], 0);
        let (state, Counters { sent, received, downs, .. }, routes, ends) =
            found.unwrap_or_else(before);
        let [advertised, withdrawn, learnt, withdraws] = routes;
        let count = |count| json!(Count(count));
        let all = [
            ("session_state", json!(if state == State::Established { "up" } else { "down" })),
            ("session_flap_count", count(downs)),
            ("routes_advertised", count(advertised)),
            ("routes_received", count(learnt)),
            ("route_withdraws_sent", count(withdrawn)),
            ("route_withdraws_received", count(withdraws)),
            ("updates_sent", count(sent.updates)),
            ("updates_received", count(received.updates)),
            ("opens_sent", count(sent.opens)),
            ("opens_received", count(received.opens)),
            ("keepalives_sent", count(sent.keepalives)),
            ("keepalives_received", count(received.keepalives)),
            ("notifications_sent", count(sent.notifications)),
            ("notifications_received", count(received.notifications)),
            ("fsm_state", json!(state.name().to_ascii_lowercase())),
            ("end_of_rib_received", count(ends)),
        ];
        BgpMetric { name: name.to_owned(), columns: Columns(columns).of(all) }
    };
    let metrics = names.into_iter().map(metric).collect();
    match v6 {
        true => MetricsResponse::Bgpv6Metrics { bgpv6_metrics: metrics },
        false => MetricsResponse::Bgpv4Metrics { bgpv4_metrics: metrics },
    }
}

/// Neighbors of routers of OSPF or IS-IS, as their daemons show them, and the packets on their
/// links.
///
/// Down neighbors are not counted: a daemon lists none that it does not hear.
pub fn routers(
    hosts: &Hosts,
    protocol: Protocol,
    names: Vec<&str>,
    columns: &[String],
) -> MetricsResponse {
    let wanted = Columns(columns);
    let metric = |name: &str| {
        let (state, seen) = hosts.router(name).map(|router| router.state()).unwrap_or_default();
        let all = match protocol {
            Protocol::Ospf2 => ospf(&state, &seen, &OSPF2),
            Protocol::Ospf3 => ospf(&state, &seen, &OSPF3),
            Protocol::Isis => isis(&state, &seen),
        };
        let columns = all.into_iter().filter(|(column, _)| wanted.has(column)).collect();
        RouterMetric { name: name.to_owned(), columns }
    };
    let metrics = names.into_iter().map(metric).collect();
    match protocol {
        Protocol::Ospf2 => MetricsResponse::Ospfv2Metrics { ospfv2_metrics: metrics },
        Protocol::Ospf3 => MetricsResponse::Ospfv3Metrics { ospfv3_metrics: metrics },
        Protocol::Isis => MetricsResponse::IsisMetrics { isis_metrics: metrics },
    }
}

/// Columns of counts of LSAs, sent and received, with the types that they count.
type LsaColumns = [(&'static str, &'static str, &'static [usize])];

/// Types of `OSPFv2` (RFC 2328 section A.4.1, RFC 3101, RFC 5250).
const OSPF2: [(&str, &str, &[usize]); 8] = [
    ("router_lsa_sent", "router_lsa_received", &[1]),
    ("network_lsa_sent", "network_lsa_received", &[2]),
    ("summary_lsa_sent", "summary_lsa_received", &[3, 4]),
    ("external_lsa_sent", "external_lsa_received", &[5]),
    ("nssa_lsa_sent", "nssa_lsa_received", &[7]),
    ("opaque_local_sent", "opaque_local_received", &[9]),
    ("opaque_area_sent", "opaque_area_received", &[10]),
    ("opaque_domain_sent", "opaque_domain_received", &[11]),
];

/// Function codes of `OSPFv3` (RFC 5340 section A.4.2.1).
const OSPF3: [(&str, &str, &[usize]); 8] = [
    ("router_lsa_sent", "router_lsa_received", &[1]),
    ("network_lsa_sent", "network_lsa_received", &[2]),
    ("inter_area_prefix_lsa_sent", "inter_area_prefix_lsa_received", &[3]),
    ("inter_area_router_lsa_sent", "inter_area_router_lsa_received", &[4]),
    ("external_lsa_sent", "external_lsa_received", &[5]),
    ("nssa_lsa_sent", "nssa_lsa_received", &[7]),
    ("link_lsa_sent", "link_lsa_received", &[8]),
    ("intra_area_prefix_lsa_sent", "intra_area_prefix_lsa_received", &[9]),
];

fn ospf(
    state: &DaemonState,
    seen: &routers::Seen,
    kinds: &'static LsaColumns,
) -> Vec<(&'static str, Value)> {
    const PACKETS: [[&str; 2]; 5] = [
        ["hellos_sent", "hellos_received"],
        ["dbd_sent", "dbd_received"],
        ["ls_request_sent", "ls_request_received"],
        ["ls_update_sent", "ls_update_received"],
        ["ls_ack_sent", "ls_ack_received"],
    ];
    let count = |count: u64| json!(Count(count));
    let neighbors = state.protocols.iter().flat_map(|one| &one.neighbors);
    let full = neighbors.filter(|one| one.is_up).count();
    let mut all =
        vec![("full_state_count", count(full as u64)), ("sessions_flap", count(state.downs))];
    for (way, counts) in seen.ospf.iter().enumerate() {
        let packets = PACKETS.iter().zip(counts.packets);
        all.extend(packets.map(|(names, packets)| (names[way], count(packets))));
        all.push((["lsa_sent", "lsa_received"][way], count(counts.lsas)));
        // OSPFv3 has no column for it.
        if kinds.iter().any(|(column, ..)| *column == "summary_lsa_sent") {
            all.push((["lsa_ack_sent", "lsa_ack_received"][way], count(counts.acknowledged)));
        }
        for (sent, received, types) in kinds {
            let sum = types.iter().filter_map(|kind| counts.kinds.get(*kind)).sum();
            all.push(([*sent, *received][way], count(sum)));
        }
    }
    all
}

fn isis(state: &DaemonState, seen: &routers::Seen) -> Vec<(&'static str, Value)> {
    const SESSIONS: [&str; 2] = ["l1_sessions_up", "l2_sessions_up"];
    const DATABASES: [&str; 2] = ["l1_database_size", "l2_database_size"];
    const COLUMNS: [[[&str; 5]; 2]; 2] = [
        [
            [
                "l1_broadcast_hellos_sent",
                "l1_point_to_point_hellos_sent",
                "l1_lsp_sent",
                "l1_csnp_sent",
                "l1_psnp_sent",
            ],
            [
                "l1_broadcast_hellos_received",
                "l1_point_to_point_hellos_received",
                "l1_lsp_received",
                "l1_csnp_received",
                "l1_psnp_received",
            ],
        ],
        [
            [
                "l2_broadcast_hellos_sent",
                "l2_point_to_point_hellos_sent",
                "l2_lsp_sent",
                "l2_csnp_sent",
                "l2_psnp_sent",
            ],
            [
                "l2_broadcast_hellos_received",
                "l2_point_to_point_hellos_received",
                "l2_lsp_received",
                "l2_csnp_received",
                "l2_psnp_received",
            ],
        ],
    ];
    let neighbors: Vec<_> = state.protocols.iter().flat_map(|one| &one.neighbors).collect();
    let mut all = Vec::new();
    for (level, columns) in COLUMNS.iter().enumerate() {
        let up = neighbors.iter().filter(|one| one.is_up && one.levels[level]).count();
        all.push((SESSIONS[level], json!(up)));
        let lsps: u64 = state.protocols.iter().map(|one| one.lsps[level]).sum();
        all.push((DATABASES[level], json!(Count(lsps))));
        for (counts, names) in seen.isis.iter().zip(columns) {
            let of = [
                counts.broadcast_hellos,
                counts.point_to_point_hellos,
                counts.lsps,
                counts.csnps,
                counts.psnps,
            ];
            all.extend(names.iter().zip(of).map(|(name, of)| (*name, json!(Count(of[level])))));
        }
    }
    all
}

/// The routes of a session, sorted, of those families whose routes its configuration keeps.
pub fn bgp_prefixes(
    hosts: &Hosts,
    info: &BgpPeerInfo,
    families: Families,
    filters: &[Vec<PrefixFilter>; 2],
) -> BgpPrefixes {
    let is_shown = |route: &LearntRoute, of: &LearntAttributes| {
        let family = route.prefix.family().index();
        let selects = |filter: &PrefixFilter| {
            let PrefixFilter { addresses, length, origin, path } = filter;
            (addresses.is_empty() || addresses.contains(&route.prefix.address))
                && length.is_none_or(|length| length == route.prefix.length)
                && origin.is_none_or(|origin| origin == of.origin)
                && path.is_none_or(|path| path == route.path)
        };
        families[family]
            && info.learns[family]
            && (filters[family].is_empty() || filters[family].iter().any(selects))
    };
    let mut prefixes: [Vec<BgpPrefix>; 2] = Default::default();
    if let Some((speaker, number)) = hosts.bgp(&info.name) {
        // The session waits for no more than the list.
        let mut routes: Vec<_> = speaker.with_peer(number, |peer| {
            let of = |route: LearntRoute| Some((route, peer.learnt.attributes(&route)?));
            peer.learnt.iter().filter_map(of).collect()
        });
        routes.retain(|(route, of)| is_shown(route, &of.attributes));
        routes.sort_unstable_by_key(|(route, _)| *route);
        for (route, of) in routes {
            prefixes[route.prefix.family().index()].push(bgp_prefix(&route, &of.attributes));
        }
    }
    let [ipv4_unicast_prefixes, ipv6_unicast_prefixes] = prefixes;
    let bgp_peer_name = info.name.clone();
    BgpPrefixes { bgp_peer_name, ipv4_unicast_prefixes, ipv6_unicast_prefixes }
}

fn bgp_prefix(route: &LearntRoute, of: &LearntAttributes) -> BgpPrefix {
    let is_ipv4 = route.prefix.family() == Family::Ipv4;
    let address = route.prefix.address.to_string();
    let hop = |wanted: bool| of.next_hop.filter(|hop| hop.is_ipv4() == wanted);
    let community = |(as_number, as_custom): &(u16, u16)| BgpCommunity {
        kind: (COMMUNITIES.iter().find(|(_, value)| *value == (*as_number, *as_custom)))
            .map_or("manual_as_number", |(name, _)| *name),
        as_number: *as_number,
        as_custom: *as_custom,
    };
    let segments = of.path.iter().filter_map(|segment| {
        let (kind, _) = SEGMENTS.into_iter().find(|(_, kind)| *kind == segment.kind)?;
        Some(BgpSegment { kind, as_numbers: segment.numbers.clone() })
    });
    let extended = of.extended_communities.iter().map(|it| ExtendedCommunity { raw: digits(it) });
    BgpPrefix {
        ipv4_address: is_ipv4.then(|| address.clone()),
        ipv6_address: (!is_ipv4).then_some(address),
        prefix_length: route.prefix.length,
        origin: ORIGINS.iter().find(|(_, it)| *it == of.origin).map_or("", |(name, _)| *name),
        path_id: route.path,
        ipv4_next_hop: hop(true).map(|hop| hop.to_string()),
        ipv6_next_hop: hop(false).map(|hop| hop.to_string()),
        communities: of.communities.iter().map(community).collect(),
        extended_communities: extended.collect(),
        as_path: BgpAsPath { segments: segments.collect() },
        local_preference: of.local_pref,
        multi_exit_discriminator: of.med,
    }
}

/// Frames of LLDP instances.
pub fn lldp(hosts: &Hosts, names: Vec<&str>, columns: &[String]) -> MetricsResponse {
    let metric = |name: &str| {
        let counted = hosts.lldp(name).map(LldpAgent::counters).unwrap_or_default();
        let messages = [
            ("frames_rx", counted.received),
            ("frames_tx", counted.sent),
            ("frames_error_rx", counted.errors),
            ("frames_discard", counted.discarded),
            ("tlvs_discard", counted.discarded_tlvs),
            ("tlvs_unknown", counted.unknown_tlvs),
        ];
        message_metric(name, messages, columns)
    };
    MetricsResponse::LldpMetrics { lldp_metrics: names.into_iter().map(metric).collect() }
}

fn message_metric<const N: usize>(
    name: &str,
    messages: [(&'static str, u64); N],
    columns: &[String],
) -> MessageMetric {
    let messages = messages.map(|(column, count)| (column, Count(count)));
    MessageMetric { name: name.to_owned(), messages: Columns(columns).of(messages) }
}

/// Metrics of the `chosen` flows that have metrics enabled.
pub fn flows(
    translated: &Translated,
    traffic: &mut Traffic,
    chosen: &[usize],
    columns: &[String],
    tagged: &TaggedRequest,
) -> MetricsResponse {
    let seen = traffic.see();
    let teller =
        Teller { translated, traffic, seen: seen.as_ref(), wanted: Columns(columns), tagged };
    let listed = chosen.iter().filter(|&&flow| translated.flows[flow].metrics.enable);
    MetricsResponse::FlowMetrics { flow_metrics: listed.map(|&flow| teller.flow(flow)).collect() }
}

/// Messages of DHCP clients.
pub fn dhcp_clients(hosts: &Hosts, names: Vec<&str>, columns: &[String]) -> MetricsResponse {
    let metric = |name: &str| {
        let counted = hosts.dhcp(name).map(DhcpHost::statistics).unwrap_or_default();
        let messages = [
            ("discovers_sent", &counted.sent, "discover"),
            ("offers_received", &counted.received, "offer"),
            ("requests_sent", &counted.sent, "request"),
            ("acks_received", &counted.received, "ack"),
            ("nacks_received", &counted.received, "nak"),
            ("releases_sent", &counted.sent, "release"),
            ("declines_sent", &counted.sent, "decline"),
        ];
        let count = messages.map(|(column, of, kind)| (column, of.get(kind).copied().unwrap_or(0)));
        message_metric(name, count, columns)
    };
    MetricsResponse::DhcpClients { dhcpv4client_metrics: names.into_iter().map(metric).collect() }
}

/// Messages of DHCP servers.
pub fn dhcp_servers(hosts: &Hosts, names: Vec<&str>, columns: &[String]) -> MetricsResponse {
    let metric = |name: &str| {
        let counted = hosts.dhcp(name).and_then(|host| host.statistics().server);
        let counted = counted.unwrap_or_default().0;
        let messages = [
            ("discovers_received", counted.discovers),
            ("offers_sent", counted.offers),
            ("requests_received", counted.requests),
            ("acks_sent", counted.acks),
            ("nacks_sent", counted.naks),
            ("releases_received", counted.releases),
            ("declines_received", counted.declines),
        ];
        message_metric(name, messages, columns)
    };
    MetricsResponse::DhcpServers { dhcpv4server_metrics: names.into_iter().map(metric).collect() }
}

/// Messages of DHCPv6 clients.
pub fn dhcp6_clients(
    translated: &Translated,
    hosts: &Hosts,
    names: Vec<&str>,
    columns: &[String],
) -> MetricsResponse {
    let metric = |name: &str| {
        let counted = hosts.dhcp(name).and_then(|host| host.statistics().ipv6?.dhcp);
        let counted = counted.unwrap_or_default();
        let mut clients = translated.devices.iter().filter_map(|device| device.dhcpv6.as_ref());
        let is_rapid = clients.any(|client| client.name == name && client.settings.rapid_commit);
        let of = |all: &BTreeMap<&str, u64>, kind: &str| all.get(kind).copied().unwrap_or(0);
        let (sent, received) = (|kind| of(&counted.sent, kind), |kind| of(&counted.received, kind));
        let messages = [
            ("solicits_sent", sent("solicit")),
            ("advertisements_received", received("advertise")),
            ("advertisements_ignored", counted.ignored_offers),
            ("requests_sent", sent("request")),
            ("nacks_received", counted.refused),
            ("replies_received", received("reply")),
            ("information_requests_sent", sent("information_request")),
            ("renews_sent", sent("renew")),
            ("rebinds_sent", sent("rebind")),
            ("releases_sent", sent("release")),
            ("reconfigures_received", received("reconfigure")),
            ("rapid_commit_solicits_sent", if is_rapid { sent("solicit") } else { 0 }),
            ("rapid_commit_replies_received", counted.rapid_replies),
        ];
        message_metric(name, messages, columns)
    };
    MetricsResponse::Dhcp6Clients { dhcpv6client_metrics: names.into_iter().map(metric).collect() }
}

/// Messages of DHCPv6 servers. They neither know relays nor reconfigure clients.
pub fn dhcp6_servers(hosts: &Hosts, names: Vec<&str>, columns: &[String]) -> MetricsResponse {
    let metric = |name: &str| {
        let counted = hosts.dhcp(name).and_then(|host| host.statistics().ipv6?.server);
        let counted = counted.unwrap_or_default().0;
        let messages = [
            ("solicits_received", counted.solicits + counted.ignored),
            ("solicits_ignored", counted.ignored),
            ("advertisements_sent", counted.advertises),
            ("requests_received", counted.requests),
            ("nacks_sent", counted.refused),
            ("confirms_received", counted.confirms),
            ("renewals_received", counted.renews),
            ("rebinds_received", counted.rebinds),
            ("replies_sent", counted.replies),
            ("releases_received", counted.releases),
            ("declines_received", counted.declines),
            ("information_requests_received", counted.information_requests),
            ("relay_replies_sent", 0),
            ("reconfigures_sent", 0),
        ];
        message_metric(name, messages, columns)
    };
    MetricsResponse::Dhcp6Servers { dhcpv6server_metrics: names.into_iter().map(metric).collect() }
}

/// The leases of a DHCPv6 client.
pub fn dhcp6_interface(hosts: &Hosts, name: &str, now: Nanos) -> Dhcp6Interface {
    let none = Dhcp6Interface { dhcp_client_name: name.to_owned(), ..Dhcp6Interface::default() };
    let lease = hosts.dhcp(name).and_then(|host| host.lease6(now));
    let Some((view, lease_time)) = lease else { return none };
    let prefixes = view.prefix.into_iter().map(|(address, prefix_length)| Dhcp6Prefix {
        address: address.to_string(),
        prefix_length,
        lease_time,
    });
    let gateway = view.gateway.map(|(gateway, _)| gateway.to_string());
    let addresses = view.addresses.iter().map(|address| Dhcp6Address {
        address: address.to_string(),
        gateway: gateway.clone(),
        lease_time,
    });
    Dhcp6Interface { iapd_addresses: prefixes.collect(), ia_addresses: addresses.collect(), ..none }
}

/// The leases of a DHCPv6 server.
pub fn dhcp6_leases(hosts: &Hosts, name: &str, now: Nanos) -> Dhcp6Leases {
    let leases = hosts.dhcp(name).map(|host| host.leases6(now)).unwrap_or_default();
    let lease = |lease: Lease6| Dhcp6Lease {
        address: match lease.length {
            128 => lease.address.to_string(),
            length => format!("{}/{length}", lease.address),
        },
        valid_time: lease.left_s,
        renew_time: lease.renews_s,
        rebind_time: lease.rebinds_s,
        client_id: digits(&lease.client),
    };
    let leases = leases.into_iter().map(lease).collect();
    Dhcp6Leases { dhcp_server_name: name.to_owned(), leases }
}

fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The neighbors of an LLDP instance.
pub fn lldp_neighbors(hosts: &Hosts, name: &str, now: Nanos) -> Vec<LldpNeighbor> {
    // Subtypes from 1 (IEEE 802.1AB-2016 tables 8-2 and 8-3), and capabilities from bit 0 (8-4).
    const CHASSIS: [&str; 7] = [
        "chassis_component",
        "interface_alias",
        "port_component",
        "mac_address",
        "network_address",
        "interface_name",
        "local",
    ];
    const PORT: [&str; 7] = [
        "interface_alias",
        "port_component",
        "mac_address",
        "network_address",
        "interface_name",
        "agent_circuit_id",
        "local",
    ];
    const CAPABILITIES: [&str; 11] = [
        "other",
        "repeater",
        "mac_bridge",
        "wlan_access_point",
        "router",
        "telephone",
        "docsis_cable_device",
        "station_only",
        "c_vlan",
        "s_vlan",
        "two_port_mac_relay",
    ];
    let word = |words: [&'static str; 7], subtype: u8| {
        usize::from(subtype).checked_sub(1).and_then(|at| words.get(at)).copied()
    };
    let neighbor = |found: lldp::LldpNeighbor| {
        let lldp::LldpNeighbor { number, unit, first, last } = found;
        let since = |at: Nanos| (now.saturating_sub(at).0 / Nanos::SECOND.0) as u32;
        let (all, enabled) = unit.capabilities.unwrap_or_default();
        let capabilities = CAPABILITIES.iter().enumerate().filter(|(bit, _)| all >> bit & 1 != 0);
        let capability = |(bit, &name): (usize, &&'static str)| LldpCapability {
            capability_name: name,
            capability_enabled: enabled >> bit & 1 != 0,
        };
        let custom = unit.organizations.iter().map(|tlv| LldpTlv {
            custom_type: squall_host::lldp::ORGANIZATION,
            oui: digits(&tlv.oui),
            oui_subtype: tlv.subtype,
            information: digits(&tlv.information),
        });
        let management = unit.management.as_ref();
        LldpNeighbor {
            lldp_name: name.to_owned(),
            chassis_id: unit.chassis.chassis(),
            chassis_id_type: word(CHASSIS, unit.chassis.subtype),
            neighbor_id: number.to_string(),
            age: since(first),
            last_update: since(last),
            ttl: unit.ttl,
            port_id: unit.port.port(),
            port_id_type: word(PORT, unit.port.subtype),
            management_address: management.map(|of| match of.ip() {
                Some(ip) => ip.to_string(),
                None => digits(&of.octets),
            }),
            management_address_type: management.map(|of| match of.family {
                1 => "ipv4".to_owned(),
                2 => "ipv6".to_owned(),
                other => other.to_string(),
            }),
            custom_tlvs: custom.collect(),
            capabilities: capabilities.map(capability).collect(),
            system_name: unit.system,
            system_description: unit.description,
            port_description: unit.port_description,
        }
    };
    let found = hosts.lldp(name).map(|agent| agent.neighbors(now)).unwrap_or_default();
    found.into_iter().map(neighbor).collect()
}

/// The lease of a DHCP client.
pub fn dhcp_interface(hosts: &Hosts, name: &str, now: Nanos) -> DhcpInterface {
    let none = DhcpInterface { dhcp_client_name: name.to_owned(), ..DhcpInterface::default() };
    let lease = hosts.dhcp(name).and_then(|host| host.lease(now));
    let Some((view, seconds)) = lease else { return none };
    let Some((address, prefix)) = view.address else { return none };
    let left = |at: Nanos| (at.saturating_sub(now).0 / Nanos::SECOND.0) as u32;
    DhcpInterface {
        ipv4_address: Some(address.to_string()),
        prefix_length: Some(prefix),
        gateway_address: view.gateway.map(|(gateway, _)| gateway.to_string()),
        lease_time: seconds,
        renew_time: view.lease.map(|[renews, ..]| left(renews)),
        rebind_time: view.lease.map(|[_, rebinds, _]| left(rebinds)),
        ..none
    }
}

/// The leases of a DHCP server.
pub fn dhcp_leases(hosts: &Hosts, name: &str, now: Nanos) -> DhcpLeases {
    let leases = hosts.dhcp(name).map(|host| host.leases(now)).unwrap_or_default();
    let lease = |lease: Lease| DhcpLease {
        address: lease.address.to_string(),
        valid_time: lease.left_s,
        client_id: lease.client.to_string(),
    };
    let leases = leases.into_iter().map(lease).collect();
    DhcpLeases { dhcp_server_name: name.to_owned(), leases }
}

/// The requested columns; empty selects all.
#[derive(Clone, Copy)]
struct Columns<'a>(&'a [String]);

impl Columns<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|column| column == name)
    }

    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.has(name))
    }

    /// The requested columns of `all`.
    fn of<T, const N: usize>(&self, all: [(&'static str, T); N]) -> BTreeMap<&'static str, T> {
        all.into_iter().filter(|(name, _)| self.has(name)).collect()
    }

    fn get<T>(&self, name: &str, value: impl FnOnce() -> T) -> Option<T> {
        self.has(name).then(value)
    }
}

struct Teller<'a> {
    translated: &'a Translated,
    traffic: &'a Traffic,
    seen: Option<&'a Seen>,
    wanted: Columns<'a>,
    tagged: &'a TaggedRequest,
}

/// Counters of a flow or a part of it. Counters that need a signature are absent if the frames have
/// none.
#[derive(Clone, Debug, Default)]
struct Sum {
    tx_packets: u64,
    tx_octets: u64,
    seen: StreamCounters,
    /// Whether received frames may belong to other flows.
    ambiguous: bool,
}

impl Sum {
    /// `ports`: ports to count on; `None` for all. `value`: count only received frames with this
    /// value at the flow's bit positions, and no sent frames.
    fn of(tally: &Tally, ports: Option<&[usize]>, value: Option<u128>) -> Self {
        let here = |port: usize| ports.is_none_or(|ports| ports.contains(&port));
        let mut sum = Self::default();
        match value {
            None => {
                (sum.tx_packets, sum.tx_octets) = (tally.tx_packets, tally.tx_octets);
                tally
                    .rx
                    .iter()
                    .filter(|(port, _)| here(*port))
                    .for_each(|(_, counters)| sum.see(counters));
            }
            Some(value) => {
                let found =
                    tally.tracked.iter().filter(|(port, found, _)| here(*port) && *found == value);
                found.for_each(|(.., counters)| sum.see(counters));
            }
        }
        sum
    }

    fn see(&mut self, counters: &StreamCounters) {
        self.seen.packets += counters.packets;
        self.seen.octets += counters.octets;
        self.seen.unique += counters.unique;
        self.seen.missing += counters.missing;
        self.seen.delay.merge(&counters.delay);
    }

    fn add(&mut self, other: &Self) {
        self.tx_packets += other.tx_packets;
        self.tx_octets += other.tx_octets;
        self.see(&other.seen);
        self.ambiguous |= other.ambiguous;
    }
}

/// Totals, counters at two times in the run, and the seconds between these times.
#[derive(Clone, Debug, Default)]
struct Figures {
    all: Sum,
    now: Sum,
    then: Sum,
    seconds: f64,
}

impl Figures {
    fn add(&mut self, other: &Self) {
        self.all.add(&other.all);
        self.now.add(&other.now);
        self.then.add(&other.then);
        self.seconds = self.seconds.max(other.seconds);
    }

    fn rate(&self, of: fn(&Sum) -> u64) -> f64 {
        if self.seconds > 0.0 {
            of(&self.now).saturating_sub(of(&self.then)) as f64 / self.seconds
        } else {
            0.0
        }
    }
}

impl Teller<'_> {
    fn flow(&self, flow: usize) -> FlowMetric {
        let (info, state) = (&self.translated.flows[flow], &self.traffic.flows[flow]);
        let rx_ports = self.rx_ports(info);
        let parts: Vec<Figures> = (info.streams.iter().zip(&state.parts))
            .map(|(stream, part)| {
                self.figures(info, state, stream, part, rx_ports.as_deref(), None)
            })
            .collect();
        let mut all = Figures::default();
        parts.iter().for_each(|part| all.add(part));
        let with_tags =
            self.tagged.include && (!info.tag_names.is_empty() || info.egress.is_some());
        FlowMetric {
            name: info.name.clone(),
            port_tx: Some(info.tx_port.clone()),
            port_rx: Some(info.rx_ports.join(", ")),
            transmit: self.wanted.get("transmit", || match state.state {
                Transmit::Started => "started",
                Transmit::Paused => "paused",
                Transmit::Stopped => "stopped",
            }),
            counts: counts(info, state.state, &all, self.wanted),
            tagged_metrics: if with_tags {
                self.tags(info, state.state, &parts, flow)
            } else {
                Vec::new()
            },
        }
    }

    /// Indices of the flow's receiving ports; `None` for any.
    fn rx_ports(&self, info: &FlowInfo) -> Option<Vec<usize>> {
        let place =
            |name: &String| self.translated.ports.iter().position(|port| port.name == *name);
        (!info.rx_ports.is_empty()).then(|| info.rx_ports.iter().filter_map(place).collect())
    }

    fn figures(
        &self,
        info: &FlowInfo,
        flow: &Flow,
        stream: &StreamInfo,
        part: &Part,
        rx_ports: Option<&[usize]>,
        value: Option<u128>,
    ) -> Figures {
        let sum = |tally: &Tally| Sum::of(tally, rx_ports, value);
        let mut figures =
            Figures { all: sum(&self.traffic.tally(part, self.seen)), ..Figures::default() };
        if let Some((now, then, seconds)) = self.traffic.recent(flow, part, self.seen) {
            (figures.now, figures.then) = (sum(&now), sum(&then));
            figures.seconds = seconds;
        }
        if stream.counting == Counting::Unsigned {
            self.count_unsigned(info, stream, rx_ports, &mut figures);
        }
        figures
    }

    /// Counts frames without a signature, if no other flow has such frames on its receiving ports.
    fn count_unsigned(
        &self,
        info: &FlowInfo,
        stream: &StreamInfo,
        rx_ports: Option<&[usize]>,
        figures: &mut Figures,
    ) {
        let all: Vec<usize> = (0..self.translated.ports.len())
            .filter(|&port| {
                self.translated.ports[port].name != stream.tx_port || rx_ports.is_some()
            })
            .collect();
        let here = rx_ports.unwrap_or(&all);
        let others = self
            .translated
            .flows
            .iter()
            .flat_map(|flow| flow.streams.iter().map(move |s| (flow, s)));
        let alike = |(flow, s): &(&FlowInfo, &StreamInfo)| {
            s.counting == Counting::Unsigned
                && s.stream != stream.stream
                && (flow.rx_ports.is_empty()
                    || flow.rx_ports.iter().any(|name| {
                        here.iter().any(|&port| self.translated.ports[port].name == *name)
                    }))
        };
        if others.into_iter().any(|other| alike(&other)) {
            (figures.all.ambiguous, figures.now.ambiguous, figures.then.ambiguous) =
                (true, true, true);
            return;
        }
        let size = u64::from(info.size.unwrap_or(0));
        let unsigned = |sum: &mut Sum, packets: u64| {
            (sum.seen.packets, sum.seen.unique, sum.seen.octets) =
                (packets, packets, packets * size);
        };
        let (mut totals, mut nows, mut thens) = (0, 0, 0);
        for &port in here {
            let (all, recent) = self.traffic.port(port, self.seen);
            totals += all.rx_unsigned;
            if let Some((now, then, _)) = recent {
                nows += now.rx_unsigned;
                thens += then.rx_unsigned;
            }
        }
        unsigned(&mut figures.all, totals);
        unsigned(&mut figures.now, nows);
        unsigned(&mut figures.then, thens);
    }

    fn tags(
        &self,
        info: &FlowInfo,
        state: Transmit,
        parts: &[Figures],
        flow: usize,
    ) -> Vec<TaggedMetric> {
        let by_port =
            info.streams.first().is_some_and(|stream| stream.tags.contains(&TagValue::RxName));
        let mut rows: Vec<(Vec<Tag>, Figures)> = Vec::new();
        for (i, (stream, figures)) in info.streams.iter().zip(parts).enumerate() {
            let state_of = &self.traffic.flows[flow];
            let part = &state_of.parts[i];
            let places = match by_port {
                true => self
                    .rx_ports(info)
                    .unwrap_or_else(|| (0..self.translated.ports.len()).collect()),
                false => vec![usize::MAX],
            };
            let values = self.values(info, part);
            for (port, value) in
                places.iter().flat_map(|port| values.iter().map(move |value| (*port, value)))
            {
                let figures = match (by_port, value) {
                    (false, None) => figures.clone(),
                    (true, value) => self.figures(
                        info,
                        state_of,
                        stream,
                        part,
                        Some(&[port]),
                        value.as_ref().map(|v| v.0),
                    ),
                    (false, Some((value, _))) => self.figures(
                        info,
                        state_of,
                        stream,
                        part,
                        self.rx_ports(info).as_deref(),
                        Some(*value),
                    ),
                };
                let sent = info
                    .tag_names
                    .iter()
                    .zip(&stream.tags)
                    .map(|(name, value)| self.tag(name, value, port));
                let tags: Vec<Tag> =
                    sent.chain(value.iter().flat_map(|(_, tags)| tags.clone())).collect();
                match rows.iter_mut().find(|(known, _)| *known == tags) {
                    Some((_, sum)) => sum.add(&figures),
                    None => rows.push((tags, figures)),
                }
            }
        }
        let asked = |tags: &[Tag]| {
            self.tagged.filters.iter().all(|(name, values)| {
                values.is_empty()
                    || tags
                        .iter()
                        .any(|tag| tag.name == *name && values.iter().any(|v| is(&tag.value, v)))
            })
        };
        let empty =
            |figures: &Figures| figures.all.tx_packets == 0 && figures.all.seen.packets == 0;
        let wanted = Columns(&self.tagged.columns);
        rows.into_iter()
            .filter(|(tags, figures)| asked(tags) && (self.tagged.include_empty || !empty(figures)))
            .map(|(tags, figures)| {
                let counts = counts(info, state, &figures, wanted);
                TaggedMetric {
                    tags,
                    counts: if info.egress.is_some() { counts.of_received() } else { counts },
                }
            })
            .collect()
    }

    /// Values at the flow's bit positions in received frames of a stream, with their tags, in
    /// ascending order; a single `None` if the positions are not tracked.
    fn values(&self, info: &FlowInfo, part: &Part) -> Vec<Option<(u128, Vec<Tag>)>> {
        let (Some(egress), Some(place)) = (&info.egress, traffic::place(info)) else {
            return vec![None];
        };
        let found: BTreeSet<u128> = self
            .traffic
            .tally(part, self.seen)
            .tracked
            .iter()
            .map(|(_, value, _)| *value)
            .collect();
        let tags = |value: u128| {
            let digits = egress.tags.iter().zip(place.parts(value)).map(|(tag, part)| Tag {
                name: tag.name.clone(),
                value: TagText::Hex {
                    hex: format!("{part:0width$x}", width = tag.bits.div_ceil(4)),
                },
            });
            digits.collect()
        };
        found.into_iter().map(|value| Some((value, tags(value)))).collect()
    }

    fn tag(&self, name: &str, value: &TagValue, port: usize) -> Tag {
        let value = match value {
            TagValue::Hex(hex) => TagText::Hex { hex: hex.clone() },
            TagValue::RxName => TagText::Str { str: self.translated.ports[port].name.clone() },
        };
        Tag { name: name.to_owned(), value }
    }
}

fn is(value: &TagText, asked: &str) -> bool {
    match value {
        TagText::Hex { hex } => {
            let digits = |text: &str| {
                text.trim_start_matches("0x").trim_start_matches('0').to_ascii_lowercase()
            };
            digits(hex) == digits(asked)
        }
        TagText::Str { str } => str == asked,
    }
}

fn counts(info: &FlowInfo, state: Transmit, figures: &Figures, wanted: Columns<'_>) -> FlowCounts {
    let all = &figures.all;
    let sends = state == Transmit::Started;
    let tx = |of: fn(&Sum) -> u64| if sends { figures.rate(of) } else { 0.0 };
    let (tx_pps, tx_octets) = (tx(|s| s.tx_packets), tx(|s| s.tx_octets));
    let (rx_pps, rx_octets) = (figures.rate(|s| s.seen.packets), figures.rate(|s| s.seen.octets));
    let l1 = |pps: f64, octets: f64| (octets + pps * f64::from(L1_OVERHEAD)) * 8.0;
    let known = !all.ambiguous;
    let count = |name, value: u64| wanted.get(name, || Count(value));
    let rate = |name, value: f64| wanted.get(name, || Decimal(value));
    FlowCounts {
        frames_tx: count("frames_tx", all.tx_packets),
        frames_rx: count("frames_rx", all.seen.packets).filter(|_| known),
        bytes_tx: count("bytes_tx", all.tx_octets),
        bytes_rx: count("bytes_rx", all.seen.octets).filter(|_| known),
        frames_tx_rate: rate("frames_tx_rate", tx_pps),
        frames_rx_rate: rate("frames_rx_rate", rx_pps).filter(|_| known),
        loss: (info.metrics.loss && known).then(|| Decimal(loss(info, all, sends))),
        timestamps: (all.seen.delay.arrivals_ns.filter(|_| info.metrics.timestamps)).map(
            |(first, last)| Timestamps {
                first_timestamp_ns: Decimal(first as f64),
                last_timestamp_ns: Decimal(last as f64),
            },
        ),
        latency: (info.metrics.latency && all.seen.delay.count > 0).then(|| Latency {
            minimum_ns: Decimal(all.seen.delay.min_ns as f64),
            maximum_ns: Decimal(all.seen.delay.max_ns as f64),
            average_ns: Decimal(all.seen.delay.mean_ns()),
        }),
        tx_l1_rate_bps: rate("tx_l1_rate_bps", l1(tx_pps, tx_octets)),
        rx_l1_rate_bps: rate("rx_l1_rate_bps", l1(rx_pps, rx_octets)).filter(|_| known),
        tx_rate_bytes: rate("tx_rate_bytes", tx_octets),
        rx_rate_bytes: rate("rx_rate_bytes", rx_octets).filter(|_| known),
        tx_rate_bps: rate("tx_rate_bps", tx_octets * 8.0),
        rx_rate_bps: rate("rx_rate_bps", rx_octets * 8.0).filter(|_| known),
        tx_rate_kbps: rate("tx_rate_kbps", tx_octets * 8.0 / 1e3),
        rx_rate_kbps: rate("rx_rate_kbps", rx_octets * 8.0 / 1e3).filter(|_| known),
        tx_rate_mbps: rate("tx_rate_mbps", tx_octets * 8.0 / 1e6),
        rx_rate_mbps: rate("rx_rate_mbps", rx_octets * 8.0 / 1e6).filter(|_| known),
    }
}

/// Loss in percent. While the flow is sending, frames in flight would count as lost, so only gaps
/// in the sequence numbers count.
fn loss(info: &FlowInfo, sum: &Sum, sends: bool) -> f64 {
    let copies = if info.rx_copies > 0.0 { info.rx_copies } else { 1.0 };
    let expected = match sends && sum.seen.unique > 0 && copies == 1.0 {
        true => (sum.seen.unique + sum.seen.missing) as f64,
        false => sum.tx_packets as f64 * copies,
    };
    let came = sum.seen.unique as f64;
    if expected > 0.0 { ((expected - came) / expected * 100.0).clamp(0.0, 100.0) } else { 0.0 }
}
