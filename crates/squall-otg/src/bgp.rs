//! BGP in a configuration: sessions of devices, and the ranges of routes that they announce.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_bgp::{
    AddPath, Envelope, Families, Family, Negotiated, Origin, PathSegment, PeerSettings, Prefix,
    RouteAttributes, SegmentKind, room,
};

use crate::{
    devices::{Endpoint, address, needed},
    extended,
    read::{Node, Notes, brief},
    translate::{BgpPeerInfo, DeviceInfo, RouteBlock, RouteRangeInfo},
};

/// Routes of a configuration at most.
pub(crate) const MOST_ROUTES: u64 = 10_000_000;
/// Numbers of a path and communities of a range at most: they have to fit into a message of 4,096
/// octets.
const MOST_ATTRIBUTES: usize = 255;
/// The same of extended communities.
const MOST_EXTENDED: usize = 64;
/// IPv4 needs no longer packets (RFC 1122 section 3.3.3).
const MIN_MTU: u32 = 576;

/// Communities with names in the schema (RFC 1997, RFC 9494).
pub(crate) const COMMUNITIES: [(&str, (u16, u16)); 5] = [
    ("no_export", (0xffff, 0xff01)),
    ("no_advertised", (0xffff, 0xff02)),
    ("no_export_subconfed", (0xffff, 0xff03)),
    ("llgr_stale", (0xffff, 6)),
    ("no_llgr", (0xffff, 7)),
];

pub(crate) const SEGMENTS: [(&str, SegmentKind); 4] = [
    ("as_seq", SegmentKind::Sequence),
    ("as_set", SegmentKind::Set),
    ("as_confed_seq", SegmentKind::ConfederationSequence),
    ("as_confed_set", SegmentKind::ConfederationSet),
];

pub(crate) const ORIGINS: [(&str, Origin); 3] =
    [("igp", Origin::Igp), ("egp", Origin::Egp), ("incomplete", Origin::Incomplete)];

/// A session, the endpoint that its ranges are for flows, and where these are in the configuration.
pub(crate) struct Found<'a> {
    pub info: BgpPeerInfo,
    pub endpoint: Endpoint,
    pub node: Node<'a>,
    pub ranges: Vec<Node<'a>>,
}

/// The address of an interface that sessions run over.
struct Own {
    endpoint: Endpoint,
    address: IpAddr,
    prefix: u8,
    /// Next hops of routes.
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
}

/// Keys and texts of sessions over one version of IP.
struct Version {
    interfaces: &'static str,
    name: &'static str,
    expected: &'static str,
    is_ipv6: bool,
    own_key: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        interfaces: "ipv4_interfaces",
        name: "ipv4_name",
        expected: "an IPv4 address",
        is_ipv6: false,
        own_key: "traditional_nlri_for_ipv4_routes",
    },
    Version {
        interfaces: "ipv6_interfaces",
        name: "ipv6_name",
        expected: "an IPv6 address",
        is_ipv6: true,
        own_key: "segment_routing",
    },
];

/// The sessions of a device with the interfaces `device`, the first of which has the index `first`.
pub(crate) fn read<'a>(
    node: &Node<'a>,
    device: &[DeviceInfo],
    first: usize,
    notes: &mut Notes,
) -> Vec<Found<'a>> {
    if !node.is_present() {
        return Vec::new();
    }
    node.known(&["router_id", "ipv4_interfaces", "ipv6_interfaces"], notes);
    let identifier: Option<Ipv4Addr> = needed(node, "router_id", "an IPv4 address", notes);
    if identifier.is_some_and(|it| it.is_unspecified()) {
        let path = node.at("router_id").path;
        notes.problem(path, "found 0.0.0.0, which no router may have (RFC 6286 section 2.1)");
    }
    let mut found = Vec::new();
    for version in &VERSIONS {
        for interface in node.list(version.interfaces, notes) {
            interface.known(&[version.name, "peers"], notes);
            let own = source(&interface, device, first, version, notes);
            for peer in interface.list("peers", notes) {
                found.extend(read_peer(&peer, own.as_ref(), identifier, version, notes));
            }
        }
    }
    found
}

/// The address that an interface of BGP names.
fn source(
    node: &Node<'_>,
    device: &[DeviceInfo],
    first: usize,
    version: &Version,
    notes: &mut Notes,
) -> Option<Own> {
    let name = node.needed_text(version.name, notes)?;
    let at = node.at(version.name);
    let found = device.iter().enumerate().find_map(|(number, info)| {
        let (place, address, prefix, is_loopback) = if version.is_ipv6 {
            let place = info.ipv6.iter().position(|own| own.name == name)?;
            let own = &info.ipv6[place];
            (place, IpAddr::from(own.address), own.prefix, own.is_loopback)
        } else {
            let place = info.ipv4.iter().position(|own| own.name == name)?;
            let own = &info.ipv4[place];
            (place, IpAddr::from(own.address), own.prefix, own.is_loopback)
        };
        Some((number, info, place, address, prefix, is_loopback))
    });
    let Some((number, info, place, address, prefix, is_loopback)) = found else {
        let is_client = |info: &DeviceInfo| {
            let names = [
                info.dhcpv4.as_ref().map(|client| &client.name),
                info.dhcpv6.as_ref().map(|client| &client.name),
            ];
            names.into_iter().flatten().any(|client| client == name)
        };
        match device.iter().any(is_client) {
            true => notes.unsupported(&at, "sessions need an address of the configuration"),
            false => {
                let what = version.expected.trim_start_matches("an ");
                notes.problem(&at.path, format!("the device has no {what} {name:?}"));
            }
        }
        return None;
    };
    if is_loopback {
        notes.unsupported(&at, "sessions of loopbacks; try an address of the interface");
        return None;
    }
    if info.mtu < MIN_MTU {
        let path = &at.path;
        notes.problem(path, format!("its MTU is {}, sessions need {MIN_MTU}", info.mtu));
        return None;
    }
    let ipv4 = info.ipv4.iter().find(|own| !own.is_loopback).map(|own| own.address);
    let ipv6 = info.ipv6.iter().find(|own| !own.is_loopback).map(|own| own.address);
    let interface = first + number;
    Some(match address {
        IpAddr::V4(own) => Own {
            endpoint: Endpoint { interface, ipv4: Some(place), ..Endpoint::default() },
            address,
            prefix,
            ipv4: Some(own),
            ipv6,
        },
        IpAddr::V6(own) => Own {
            endpoint: Endpoint { interface, ipv6: Some(place), ..Endpoint::default() },
            address,
            prefix,
            ipv4,
            ipv6: Some(own),
        },
    })
}

fn read_peer<'a>(
    node: &Node<'a>,
    own: Option<&Own>,
    identifier: Option<Ipv4Addr>,
    version: &Version,
    notes: &mut Notes,
) -> Option<Found<'a>> {
    const UNSUPPORTED: [(&str, &str); 5] = [
        ("evpn_ethernet_segments", "EVPN"),
        ("v4_srte_policies", "policies of segment routing"),
        ("v6_srte_policies", "policies of segment routing"),
        ("segment_routing", "segment routing"),
        ("replay_updates", "sessions announce ranges of routes only"),
    ];
    let keys = [
        "name",
        "peer_address",
        "as_type",
        "as_number",
        "as_number_width",
        "advanced",
        "capability",
        "learned_information_filter",
        "v4_routes",
        "v6_routes",
        "evpn_ethernet_segments",
        "v4_srte_policies",
        "v6_srte_policies",
        "graceful_restart",
        "replay_updates",
        version.own_key,
    ];
    node.known(&keys, notes);
    for (key, why) in UNSUPPORTED {
        let there = node.get(key).filter(|it| it.value.as_array().is_none_or(|it| !it.is_empty()));
        if let Some(there) = there {
            notes.unsupported(&there, why);
        }
    }
    if !node.flag("traditional_nlri_for_ipv4_routes", true, notes) {
        let at = node.at("traditional_nlri_for_ipv4_routes");
        notes.unsupported(&at, "routes of IPv4 are in the fields of the UPDATE");
    }
    let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
    let remote = read_remote(node, own, version, notes);
    let is_internal = node.word("as_type", &["ibgp", "ebgp"], None, notes) == Some("ibgp");
    let four_octet =
        node.word("as_number_width", &["two", "four"], Some("four"), notes) != Some("two");
    let most = if four_octet { u32::MAX } else { u16::MAX.into() };
    let asn = node.uint("as_number", most.into(), notes).map(|asn| asn as u32);
    let at = node.at("as_number");
    if asn == Some(0) || !at.is_present() {
        notes.problem(at.path, "expected a number from 1");
    }
    let asn = asn.unwrap_or(0);
    let mut session = PeerSettings {
        asn,
        identifier: identifier.unwrap_or(Ipv4Addr::UNSPECIFIED),
        // The schema has no number of an external peer: any other is accepted.
        peer_asn: is_internal.then_some(asn),
        is_external: !is_internal,
        four_octet,
        ipv4: own.and_then(|own| own.ipv4),
        ipv6: own.and_then(|own| own.ipv6),
        ..PeerSettings::default()
    };
    read_advanced(&node.at("advanced"), &mut session, notes);
    read_capability(&node.at("capability"), &mut session, notes);
    read_restart(&node.at("graceful_restart"), &mut session, notes);
    let learns = read_filter(&node.at("learned_information_filter"), notes);
    let (mut ranges, mut nodes) = (Vec::new(), Vec::new());
    for (key, family) in [("v4_routes", Family::Ipv4), ("v6_routes", Family::Ipv6)] {
        let list = node.list(key, notes);
        if !list.is_empty() && !session.families[family.index()] {
            let path = node.at(key).path;
            notes.problem(path, "the capability of the family is off");
        }
        for range in list {
            if let Some(info) = read_range(&range, family, &session, notes) {
                ranges.push(info);
                nodes.push(range);
            }
        }
    }
    let own = own?;
    let Endpoint { interface, .. } = own.endpoint;
    let (local, remote) = (own.address, remote?);
    let info = BgpPeerInfo { name, interface, local, remote, session, learns, ranges };
    Some(Found { info, endpoint: own.endpoint, node: node.clone(), ranges: nodes })
}

/// The peer's address, which has to be in the subnet of the interface.
fn read_remote(
    node: &Node<'_>,
    own: Option<&Own>,
    version: &Version,
    notes: &mut Notes,
) -> Option<IpAddr> {
    let remote: IpAddr = needed(node, "peer_address", version.expected, notes)?;
    let at = node.at("peer_address");
    if remote.is_ipv6() != version.is_ipv6 {
        let (found, expected) = (brief(at.value), version.expected);
        notes.problem(&at.path, format!("found {found}, expected {expected}"));
        return None;
    }
    let own = own?;
    if remote == own.address {
        notes.problem(&at.path, format!("{remote} is the address of the device itself"));
        return None;
    }
    let network = |address: IpAddr| match address {
        IpAddr::V4(it) => it.to_bits().checked_shr(32 - u32::from(own.prefix)).map(u128::from),
        IpAddr::V6(it) => it.to_bits().checked_shr(128 - u32::from(own.prefix)),
    };
    if network(remote) != network(own.address) {
        let (address, prefix) = (own.address, own.prefix);
        let why = format!("peers that are not in the subnet of {address}/{prefix}");
        notes.unsupported(&at, &why);
        return None;
    }
    Some(remote)
}

fn read_advanced(node: &Node<'_>, session: &mut PeerSettings, notes: &mut Notes) {
    let keys = [
        "hold_time_interval",
        "keep_alive_interval",
        "update_interval",
        "time_to_live",
        "md5_key",
        "passive_mode",
        "listen_port",
        "neighbor_port",
    ];
    node.known(&keys, notes);
    if let Some(hold) = node.uint("hold_time_interval", u16::MAX.into(), notes) {
        if matches!(hold, 1 | 2) {
            let path = node.at("hold_time_interval").path;
            notes.problem(path, format!("found {hold}, expected 0 or at least 3 s"));
        }
        session.hold = hold as u16;
    }
    if let Some(interval) = node.uint("keep_alive_interval", u16::MAX.into(), notes) {
        if interval == 0 && session.hold > 0 {
            let path = node.at("keep_alive_interval").path;
            notes.problem(path, "found 0, expected at least 1 s, or a hold time of 0");
        }
        session.keepalive = Some(interval as u16);
    }
    session.passive = node.flag("passive_mode", false, notes);
    for (key, usual, why) in [
        ("update_interval", 0, "routes are sent as soon as the peer takes them; try 0"),
        ("time_to_live", 64, "packets have a time to live of 64"),
        ("listen_port", 179, "sessions use port 179"),
        ("neighbor_port", 179, "sessions use port 179"),
    ] {
        if node.uint(key, u32::MAX.into(), notes).is_some_and(|found| found != usual) {
            notes.unsupported(&node.at(key), why);
        }
    }
    if node.text("md5_key", notes).is_some_and(|key| !key.is_empty()) {
        notes.unsupported(&node.at("md5_key"), "sessions have no MD5 signatures (RFC 2385)");
    }
}

fn read_capability(node: &Node<'_>, session: &mut PeerSettings, notes: &mut Notes) {
    const FAMILIES: [&str; 2] = ["ipv4_unicast", "ipv6_unicast"];
    const PATHS: [&str; 2] = ["ipv4_unicast_add_path", "ipv6_unicast_add_path"];
    const OTHERS: [&str; 22] = [
        "ipv4_multicast",
        "ipv6_multicast",
        "vpls",
        "route_constraint",
        "link_state_non_vpn",
        "link_state_vpn",
        "evpn",
        "extended_next_hop_encoding",
        "ipv4_multicast_vpn",
        "ipv4_mpls_vpn",
        "ipv4_mdt",
        "ipv4_multicast_mpls_vpn",
        "ipv4_unicast_flow_spec",
        "ipv4_sr_te_policy",
        "ipv6_multicast_vpn",
        "ipv6_mpls_vpn",
        "ipv6_mdt",
        "ipv6_multicast_mpls_vpn",
        "ipv6_unicast_flow_spec",
        "ipv6_sr_te_policy",
        "ipv4_mpls",
        "ipv6_mpls",
    ];
    const OBJECTS: [&str; 2] = ["multiple_ipv4_mpls", "multiple_ipv6_mpls"];
    let keys = [&FAMILIES[..], &PATHS, &OTHERS, &OBJECTS, &["route_refresh"]].concat();
    node.known(&keys, notes);
    session.families = FAMILIES.map(|key| node.flag(key, true, notes));
    if session.families == [false; 2] {
        notes.problem(&node.path, "expected ipv4_unicast or ipv6_unicast");
    }
    let both = AddPath { send: true, receive: true };
    session.add_path = PATHS.map(|key| node.flag(key, false, notes).then_some(both));
    if !node.flag("route_refresh", true, notes) {
        notes.unsupported(&node.at("route_refresh"), "sessions always offer it");
    }
    let others = OTHERS.into_iter().filter(|key| node.flag(key, false, notes)).collect::<Vec<_>>();
    for key in others.into_iter().chain(OBJECTS.into_iter().filter(|key| node.get(key).is_some())) {
        notes.unsupported(&node.at(key), "sessions carry unicast routes of IPv4 and IPv6");
    }
}

fn read_restart(node: &Node<'_>, session: &mut PeerSettings, notes: &mut Notes) {
    let keys = ["enable_gr", "restart_time", "enable_llgr", "stale_time", "enable_notification"];
    node.known(&keys, notes);
    if node.flag("enable_llgr", false, notes) {
        notes.unsupported(&node.at("enable_llgr"), "long-lived graceful restarts (RFC 9494)");
    }
    let seconds = node.uint("restart_time", 4095, notes).unwrap_or(45) as u16;
    let notifies = node.flag("enable_notification", true, notes);
    if !node.flag("enable_gr", false, notes) {
        return;
    }
    session.restart = Some(seconds);
    if notifies {
        let path = node.at("enable_notification").path;
        notes.warn(&path, "has no effect: after a NOTIFICATION, routes are not kept (RFC 8538)");
    }
}

/// The families whose learnt routes are in states.
fn read_filter(node: &Node<'_>, notes: &mut Notes) -> Families {
    const FAMILIES: [&str; 2] = ["unicast_ipv4_prefix", "unicast_ipv6_prefix"];
    const OTHERS: [&str; 2] = ["ipv4_mpls_unicast_prefix", "ipv6_mpls_unicast_prefix"];
    node.known(&[FAMILIES, OTHERS].concat(), notes);
    for key in OTHERS {
        if node.flag(key, false, notes) {
            notes.unsupported(&node.at(key), "sessions carry no MPLS labels");
        }
    }
    FAMILIES.map(|key| node.flag(key, false, notes))
}

fn read_range(
    node: &Node<'_>,
    family: Family,
    session: &PeerSettings,
    notes: &mut Notes,
) -> Option<RouteRangeInfo> {
    let keys = [
        "name",
        "addresses",
        "next_hop_mode",
        "next_hop_address_type",
        "next_hop_ipv4_address",
        "next_hop_ipv6_address",
        "advanced",
        "communities",
        "as_path",
        "add_path",
        "ext_communities",
        "extended_communities",
        "mpls_labels",
    ];
    node.known(&keys, notes);
    for (key, why) in [
        ("ext_communities", "try extended_communities"),
        ("mpls_labels", "routes with MPLS labels"),
    ] {
        let there = node.get(key).filter(|it| it.value.as_array().is_none_or(|it| !it.is_empty()));
        if let Some(there) = there {
            notes.unsupported(&there, why);
        }
    }
    let is_internal = session.peer_asn.is_some();
    let next_hop = read_next_hop(node, family, session, notes);
    let advanced = node.at("advanced");
    let (origin, med, local_pref) = read_metrics(&advanced, is_internal, notes);
    let mut few = |key, most| {
        let list = node.list(key, notes);
        if list.len() > most {
            let path = node.at(key).path;
            notes.problem(path, format!("not supported: more than {most} communities"));
        }
        list
    };
    let communities = few("communities", MOST_ATTRIBUTES);
    let extended = few("extended_communities", MOST_EXTENDED);
    let communities = communities.iter().map(|node| read_community(node, notes)).collect();
    let extended_communities =
        extended.iter().filter_map(|node| extended::read(node, notes)).collect();
    let as_path = node.at("as_path");
    let segments = as_path.is_present().then(|| read_path(&as_path, session.asn, notes));
    let attributes = RouteAttributes {
        origin,
        segments,
        next_hop,
        med,
        local_pref,
        communities,
        extended_communities,
        ..RouteAttributes::default()
    };
    // Longest to a peer without numbers of four octets.
    let agreed = Negotiated { is_internal, ..Negotiated::default() };
    let envelope = Envelope::announce(family, &attributes, &agreed, session);
    if envelope.is_some_and(|it| room(family, squall_bgp::MOST, it.overhead()).is_none()) {
        let most = squall_bgp::MOST;
        notes.problem(&node.path, format!("its attributes leave no room in {most} octets"));
    }
    let add_path = node.at("add_path");
    add_path.known(&["path_id"], notes);
    let path = add_path
        .is_present()
        .then(|| add_path.uint("path_id", u32::MAX.into(), notes).map_or(1, |id| id as u32));
    let list = node.list("addresses", notes);
    if list.is_empty() {
        notes.problem(node.at("addresses").path, "missing: expected addresses of routes");
    }
    let blocks = list.iter().filter_map(|node| read_block(node, family, notes)).collect();
    let name = node.needed_text("name", notes)?.to_owned();
    Some(RouteRangeInfo { name, attributes, path, blocks })
}

/// The next hop, if it is not that of the session.
fn read_next_hop(
    node: &Node<'_>,
    family: Family,
    session: &PeerSettings,
    notes: &mut Notes,
) -> Option<IpAddr> {
    let words = ["ipv4", "ipv6"];
    let kind = node.word("next_hop_address_type", &words, Some(words[family.index()]), notes)?;
    if kind != words[family.index()] {
        let at = node.at("next_hop_address_type");
        notes.unsupported(&at, "next hops are of the IP version of their routes (no RFC 8950)");
        return None;
    }
    let keys = ["next_hop_ipv4_address", "next_hop_ipv6_address"];
    let hops: (Option<Ipv4Addr>, Option<Ipv6Addr>) = (
        address(node, keys[0], "an IPv4 address", notes),
        address(node, keys[1], "an IPv6 address", notes),
    );
    match node.word("next_hop_mode", &["local_ip", "manual"], Some("local_ip"), notes)? {
        "manual" => Some(match family {
            Family::Ipv4 => hops.0.unwrap_or(Ipv4Addr::UNSPECIFIED).into(),
            Family::Ipv6 => hops.1.unwrap_or(Ipv6Addr::UNSPECIFIED).into(),
        }),
        _ => {
            let own = match family {
                Family::Ipv4 => session.ipv4.map(IpAddr::V4),
                Family::Ipv6 => session.ipv6.map(IpAddr::V6),
            };
            // Without any address, the interface itself is a problem.
            if own.is_none() && (session.ipv4.is_some() || session.ipv6.is_some()) {
                let version = if family == Family::Ipv4 { "IPv4" } else { "IPv6" };
                notes.problem(
                    &node.path,
                    format!("the interface has no {version} address\n  try next_hop_mode manual"),
                );
            }
            None
        }
    }
}

/// `ORIGIN`, `MULTI_EXIT_DISC` and `LOCAL_PREF`.
fn read_metrics(
    node: &Node<'_>,
    is_internal: bool,
    notes: &mut Notes,
) -> (Origin, Option<u32>, Option<u32>) {
    let keys = [
        "include_multi_exit_discriminator",
        "multi_exit_discriminator",
        "include_origin",
        "origin",
        "include_local_preference",
        "local_preference",
    ];
    node.known(&keys, notes);
    let number =
        |key, notes: &mut Notes| node.uint(key, u32::MAX.into(), notes).map(|number| number as u32);
    let has_med = node.flag(keys[0], true, notes);
    let med = number(keys[1], notes).filter(|_| has_med);
    if !node.flag(keys[2], true, notes) {
        notes.unsupported(&node.at(keys[2]), "all routes have it (RFC 4271 section 5.1.1)");
    }
    let origin = node.word(keys[3], &ORIGINS.map(|(word, _)| word), Some("igp"), notes);
    let origin = ORIGINS.into_iter().find(|(word, _)| Some(*word) == origin);
    if !node.flag(keys[4], true, notes) && is_internal {
        let why = "routes to internal peers have it (RFC 4271 section 5.1.5)";
        notes.unsupported(&node.at(keys[4]), why);
    }
    (origin.map_or(Origin::Igp, |(_, origin)| origin), med, number(keys[5], notes))
}

fn read_community(node: &Node<'_>, notes: &mut Notes) -> (u16, u16) {
    const MANUAL: &str = "manual_as_number";
    node.known(&["type", "as_number", "as_custom"], notes);
    let words = [&[MANUAL][..], &COMMUNITIES.map(|(word, _)| word)].concat();
    let word = node.word("type", &words, Some(MANUAL), notes);
    let mut half = |key| node.uint(key, u16::MAX.into(), notes).unwrap_or(0) as u16;
    let manual = (half("as_number"), half("as_custom"));
    let named = COMMUNITIES.into_iter().find(|(name, _)| Some(*name) == word);
    named.map_or(manual, |(_, community)| community)
}

/// The whole path. The schema says how the own number is part of it.
fn read_path(node: &Node<'_>, asn: u32, notes: &mut Notes) -> Vec<PathSegment> {
    const MODES: [(&str, Option<SegmentKind>); 6] = [
        ("do_not_include_local_as", None),
        ("include_as_seq", Some(SegmentKind::Sequence)),
        ("include_as_set", Some(SegmentKind::Set)),
        ("include_as_confed_seq", Some(SegmentKind::ConfederationSequence)),
        ("include_as_confed_set", Some(SegmentKind::ConfederationSet)),
        (PREPEND, Some(SegmentKind::Sequence)),
    ];
    const PREPEND: &str = "prepend_to_first_segment";
    node.known(&["as_set_mode", "segments"], notes);
    let mut path: Vec<PathSegment> = Vec::new();
    for segment in node.list("segments", notes) {
        segment.known(&["type", "as_numbers"], notes);
        let word = segment.word("type", &SEGMENTS.map(|(word, _)| word), Some("as_seq"), notes);
        let kind = SEGMENTS.into_iter().find(|(name, _)| Some(*name) == word);
        let mut numbers = Vec::new();
        for number in segment.list("as_numbers", notes) {
            numbers.extend(number.own_uint(u32::MAX.into(), notes).map(|asn| asn as u32));
        }
        let kind = kind.map_or(SegmentKind::Sequence, |(_, kind)| kind);
        path.push(PathSegment { kind, numbers });
    }
    if path.iter().map(|segment| segment.numbers.len()).sum::<usize>() >= MOST_ATTRIBUTES {
        let path = node.at("segments").path;
        notes.problem(path, format!("not supported: {MOST_ATTRIBUTES} numbers and more"));
    }
    let word = node.word("as_set_mode", &MODES.map(|(word, _)| word), Some(MODES[0].0), notes);
    let mode = MODES.into_iter().find(|(name, _)| Some(*name) == word);
    if let Some((name, Some(kind))) = mode {
        match path.first_mut().filter(|first| name == PREPEND && first.kind == kind) {
            Some(first) => first.numbers.insert(0, asn),
            None => path.insert(0, PathSegment { kind, numbers: vec![asn] }),
        }
    }
    path
}

pub(crate) fn read_block(node: &Node<'_>, family: Family, notes: &mut Notes) -> Option<RouteBlock> {
    node.known(&["address", "prefix", "count", "step"], notes);
    let (expected, bits, usual) = match family {
        Family::Ipv4 => ("an IPv4 address", 32, 24),
        Family::Ipv6 => ("an IPv6 address", 128, 64),
    };
    let first: Option<IpAddr> = needed(node, "address", expected, notes);
    if first.is_some_and(|first| first.is_ipv4() != (family == Family::Ipv4)) {
        let at = node.at("address");
        notes.problem(&at.path, format!("found {}, expected {expected}", brief(at.value)));
        return None;
    }
    let length = node.uint("prefix", bits, notes).map_or(usual, |length| length as u8);
    let mut positive = |key| {
        let found = node.uint(key, u32::MAX.into(), notes).map_or(1, |number| number as u32);
        if found == 0 {
            notes.problem(node.at(key).path, "found 0, expected at least 1");
        }
        found
    };
    let (count, step) = (positive("count"), positive("step"));
    let block = RouteBlock { first: first?, length, count, step };
    if count > 0 && block.network(count - 1).is_none() {
        let found = format!("the last of {count} networks of /{length} has no address");
        notes.problem(node.at("count").path, found);
        return None;
    }
    Some(block)
}

impl RouteBlock {
    /// Prefix number `number`; `None`: there are no such addresses.
    pub fn network(&self, number: u32) -> Option<Prefix> {
        let length = u32::from(self.length);
        let (bits, address) = match self.first {
            IpAddr::V4(address) => (32, address.to_bits().into()),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        let network = address.checked_shr(bits - length).unwrap_or(0);
        let network = network.checked_add(u128::from(number) * u128::from(self.step))?;
        let last = u128::MAX.checked_shr(128 - length).unwrap_or(0);
        let bits = (network <= last).then(|| network.checked_shl(bits - length).unwrap_or(0))?;
        let address = match self.first {
            IpAddr::V4(_) => Ipv4Addr::from_bits(bits as u32).into(),
            IpAddr::V6(_) => Ipv6Addr::from_bits(bits).into(),
        };
        Some(Prefix { address, length: self.length })
    }

    /// All prefixes.
    pub fn networks(self) -> impl Iterator<Item = Prefix> {
        (0..self.count).filter_map(move |number| self.network(number))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Config, Translated, translate};

    /// A device with a session over IPv4 and one over IPv6.
    fn config(peer: Value) -> Config {
        let mut peer4 = json!({
            "name": "b4", "peer_address": "10.0.0.2", "as_type": "ebgp", "as_number": 65001,
        });
        peer4.as_object_mut().unwrap().extend(peer.as_object().unwrap().clone());
        let config = json!({
            "ports": [{ "name": "p1", "location": "veth-a" }],
            "devices": [{
                "name": "d1",
                "ethernets": [{
                    "name": "e1", "connection": { "choice": "port_name", "port_name": "p1" },
                    "ipv4_addresses": [
                        { "name": "i4", "address": "10.0.0.1", "gateway": "10.0.0.2" },
                    ],
                    "ipv6_addresses": [
                        { "name": "i6", "address": "fd00::1", "gateway": "fd00::2" },
                    ],
                }],
                "ipv4_loopbacks": [{ "name": "lo", "eth_name": "e1", "address": "1.1.1.1" }],
                "bgp": {
                    "router_id": "192.0.2.1",
                    "ipv4_interfaces": [{ "ipv4_name": "i4", "peers": [peer4] }],
                    "ipv6_interfaces": [{ "ipv6_name": "i6", "peers": [{
                        "name": "b6", "peer_address": "fd00::2", "as_type": "ibgp",
                        "as_number": 65001,
                    }] }],
                },
            }],
        });
        Config::from_json(&config).unwrap()
    }

    fn read(peer: Value) -> Translated {
        translate(&config(peer)).unwrap_or_else(|problems| panic!("{problems}"))
    }

    /// The problems of a session with these settings, without the path of the session.
    fn problems(peer: Value) -> Vec<String> {
        let problems = translate(&config(peer)).expect_err("it is refused").texts();
        let begin = "devices[0].bgp.ipv4_interfaces[0].peers[0].";
        problems.iter().map(|text| text.trim_start_matches(begin).to_owned()).collect()
    }

    #[test]
    fn sessions_have_the_settings_of_the_configuration() {
        let translated = read(json!({
            "as_number_width": "two",
            "advanced": {
                "hold_time_interval": 30, "keep_alive_interval": 7, "passive_mode": true,
                "time_to_live": 64, "listen_port": 179,
            },
            "capability": { "ipv6_unicast": false, "ipv4_unicast_add_path": true },
            "graceful_restart": { "enable_gr": true, "restart_time": 60 },
            "learned_information_filter": { "unicast_ipv4_prefix": true },
        }));
        let [ipv4, ipv6] = &translated.bgp[..] else { panic!("two sessions") };
        let expected = PeerSettings {
            asn: 65_001,
            is_external: true,
            identifier: [192, 0, 2, 1].into(),
            hold: 30,
            keepalive: Some(7),
            passive: true,
            families: [true, false],
            add_path: [Some(AddPath { send: true, receive: true }), None],
            restart: Some(60),
            four_octet: false,
            ipv4: Some([10, 0, 0, 1].into()),
            ipv6: Some("fd00::1".parse().unwrap()),
            ..PeerSettings::default()
        };
        assert_eq!((ipv4.session, ipv4.learns), (expected, [true, false]));
        assert_eq!((ipv4.name.as_str(), ipv4.interface), ("b4", 0));
        assert_eq!((ipv4.local, ipv4.remote), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        // Defaults of the schema.
        let PeerSettings { peer_asn, hold, keepalive, passive, families, restart, .. } =
            ipv6.session;
        assert_eq!((peer_asn, hold, keepalive, passive), (Some(65_001), 90, None, false));
        assert_eq!((families, restart, ipv6.learns), ([true; 2], None, [false; 2]));
        let warned = "devices[0].bgp.ipv4_interfaces[0].peers[0].graceful_restart.\
                      enable_notification: has no effect: after a NOTIFICATION, routes are not \
                      kept (RFC 8538)";
        assert_eq!(translated.warnings, [warned]);
    }

    #[test]
    fn ranges_have_their_attributes_and_networks() {
        let translated = read(json!({
            "v4_routes": [{
                "name": "r4",
                "addresses": [
                    { "address": "198.51.100.0", "prefix": 25, "count": 3, "step": 2 },
                    { "address": "203.0.113.0" },
                ],
                "next_hop_mode": "manual", "next_hop_ipv4_address": "10.0.0.9",
                "advanced": {
                    "multi_exit_discriminator": 50, "origin": "egp", "local_preference": 70,
                },
                "communities": [
                    { "type": "manual_as_number", "as_number": 1, "as_custom": 2 },
                    { "type": "no_export" },
                ],
                "extended_communities": [{ "custom": { "value": "000000000009" } }],
                "as_path": {
                    "as_set_mode": "include_as_set",
                    "segments": [{ "type": "as_seq", "as_numbers": [1112, 1113] }],
                },
                "add_path": { "path_id": 9 },
            }],
            "v6_routes": [{ "name": "r6", "addresses": [{ "address": "2001:db8::", "count": 2 }] }],
        }));
        let [ipv4, ipv6] = &translated.bgp[0].ranges[..] else { panic!("two ranges") };
        let networks = |range: &RouteRangeInfo| -> Vec<String> {
            let networks = range.blocks.iter().flat_map(|block| block.networks());
            networks.map(|prefix| prefix.to_string()).collect()
        };
        let expected = ["198.51.100.0/25", "198.51.101.0/25", "198.51.102.0/25", "203.0.113.0/24"];
        assert_eq!(networks(ipv4), expected);
        assert_eq!(networks(ipv6), ["2001:db8::/64", "2001:db8:0:1::/64"]);
        let attributes = RouteAttributes {
            origin: Origin::Egp,
            segments: Some(vec![
                PathSegment { kind: SegmentKind::Set, numbers: vec![65_001] },
                PathSegment { kind: SegmentKind::Sequence, numbers: vec![1112, 1113] },
            ]),
            next_hop: Some([10, 0, 0, 9].into()),
            med: Some(50),
            local_pref: Some(70),
            communities: vec![(1, 2), (0xffff, 0xff01)],
            extended_communities: vec![[0, 0, 0, 0, 0, 0, 0, 9]],
            ..RouteAttributes::default()
        };
        assert_eq!((&ipv4.attributes, ipv4.path), (&attributes, Some(9)));
        assert_eq!((&ipv6.attributes, ipv6.path), (&RouteAttributes::default(), None));
    }

    #[test]
    fn the_own_number_is_part_of_the_path_as_the_mode_says() {
        let path = |as_path: Value| -> Vec<(SegmentKind, Vec<u32>)> {
            let translated = read(json!({ "v4_routes": [{
                "name": "r", "addresses": [{ "address": "198.51.100.0" }], "as_path": as_path,
            }] }));
            let segments = translated.bgp[0].ranges[0].attributes.segments.clone();
            segments.unwrap().into_iter().map(|it| (it.kind, it.numbers)).collect()
        };
        use SegmentKind::{ConfederationSequence, Sequence, Set};
        let segments = json!([{ "as_numbers": [7, 8] }]);
        assert!(path(json!({})).is_empty());
        assert_eq!(path(json!({ "segments": segments })), [(Sequence, vec![7, 8])]);
        let of = |mode: &str| path(json!({ "as_set_mode": mode, "segments": segments }));
        assert_eq!(of("include_as_seq"), [(Sequence, vec![65_001]), (Sequence, vec![7, 8])]);
        assert_eq!(of("prepend_to_first_segment"), [(Sequence, vec![65_001, 7, 8])]);
        let confed = [(ConfederationSequence, vec![65_001]), (Sequence, vec![7, 8])];
        assert_eq!(of("include_as_confed_seq"), confed);
        let set = json!([{ "type": "as_set", "as_numbers": [7] }]);
        let prepended = path(json!({ "as_set_mode": "prepend_to_first_segment", "segments": set }));
        assert_eq!(prepended, [(Sequence, vec![65_001]), (Set, vec![7])]);
    }

    #[test]
    fn unsupported_parts_are_refused_with_their_places() {
        let found = problems(json!({
            "evpn_ethernet_segments": [{}], "replay_updates": {}, "v4_srte_policies": [],
            "advanced": { "md5_key": "secret", "time_to_live": 255, "update_interval": 1 },
            "capability": { "evpn": true, "route_refresh": false, "multiple_ipv4_mpls": {} },
            "graceful_restart": { "enable_llgr": true },
            "learned_information_filter": { "ipv4_mpls_unicast_prefix": true },
            "v4_routes": [{
                "name": "r", "addresses": [{ "address": "198.51.100.0" }],
                "next_hop_address_type": "ipv6", "advanced": { "include_origin": false },
                "ext_communities": [{}], "mpls_labels": {},
            }],
        }));
        let expected = [
            "evpn_ethernet_segments: not supported: EVPN",
            "replay_updates: not supported: sessions announce ranges of routes only",
            "advanced.update_interval: not supported: routes are sent as soon as the peer takes \
             them; try 0",
            "advanced.time_to_live: not supported: packets have a time to live of 64",
            "advanced.md5_key: not supported: sessions have no MD5 signatures (RFC 2385)",
            "capability.route_refresh: not supported: sessions always offer it",
            "capability.evpn: not supported: sessions carry unicast routes of IPv4 and IPv6",
            "capability.multiple_ipv4_mpls: not supported: sessions carry unicast routes of IPv4 \
             and IPv6",
            "graceful_restart.enable_llgr: not supported: long-lived graceful restarts (RFC 9494)",
            "learned_information_filter.ipv4_mpls_unicast_prefix: not supported: sessions carry no \
             MPLS labels",
            "v4_routes[0].ext_communities: not supported: try extended_communities",
            "v4_routes[0].mpls_labels: not supported: routes with MPLS labels",
            "v4_routes[0].next_hop_address_type: not supported: next hops are of the IP version of \
             their routes (no RFC 8950)",
            "v4_routes[0].advanced.include_origin: not supported: all routes have it (RFC 4271 \
             section 5.1.1)",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_number_that_is_too_high_is_one_problem() {
        let found = problems(json!({ "as_number": 70_000, "as_number_width": "two" }));
        assert_eq!(found, ["as_number: found 70000, expected a whole number up to 65535"]);
    }

    #[test]
    fn attributes_that_leave_no_room_for_a_route_are_a_problem() {
        let range = |segments: usize| {
            let custom = json!({ "custom": { "value": "000000000009" } });
            json!({ "v4_routes": [{
                "name": "r", "addresses": [{ "address": "198.51.100.0" }],
                "communities": vec![json!({ "as_number": 1, "as_custom": 2 }); 255],
                "extended_communities": vec![custom; 64],
                "as_path": { "segments": vec![json!({ "as_numbers": [70_000] }); segments] },
            }] })
        };
        read(range(240));
        let found = problems(range(254));
        assert_eq!(found, ["v4_routes[0]: its attributes leave no room in 4096 octets"]);
    }

    #[test]
    fn values_that_no_session_has_are_problems() {
        let of = |peer: Value| problems(peer).join("; ");
        let named = |name: &str, addresses: Value| {
            let range = json!({ "name": name, "addresses": addresses });
            json!({ "v4_routes": [range] })
        };
        let range = |addresses: Value| named("r", addresses);
        for (peer, expected) in [
            (json!({ "advanced": { "hold_time_interval": 2 } }), "expected 0 or at least 3 s"),
            (json!({ "advanced": { "keep_alive_interval": 0 } }), "expected at least 1 s"),
            (json!({ "as_number": 0 }), "as_number: expected a number from 1"),
            (json!({ "as_number": 70_000, "as_number_width": "two" }), "up to 65535"),
            (json!({ "peer_address": "10.0.0.1" }), "the address of the device itself"),
            (json!({ "peer_address": "10.0.9.2" }), "not in the subnet of 10.0.0.1/24"),
            (json!({ "peer_address": "fd00::2" }), "expected an IPv4 address"),
            (
                json!({ "capability": { "ipv4_unicast": false, "ipv6_unicast": false } }),
                "expected ipv4_unicast or ipv6_unicast",
            ),
            (json!({ "graceful_restart": { "restart_time": 4096 } }), "up to 4095"),
            (range(json!([])), "addresses: missing"),
            (range(json!([{ "address": "198.51.100.0", "count": 0 }])), "at least 1"),
            (
                range(json!([{ "address": "255.255.255.0", "count": 2 }])),
                "the last of 2 networks of /24 has no address",
            ),
            (range(json!([{ "address": "0.0.0.0", "prefix": 0, "count": 2 }])), "no address"),
            (
                range(json!([{ "address": "10.0.0.0", "prefix": 32, "count": 10_000_001 }])),
                "more than 10000000 routes",
            ),
            (json!({ "name": "b6" }), "\"b6\" is also the name of another session"),
            (
                named("i4", json!([{ "address": "10.0.0.0" }])),
                "\"i4\" is also the name of another item",
            ),
        ] {
            let found = of(peer);
            assert!(found.contains(expected), "{found}: no {expected}");
        }
    }

    #[test]
    fn sources_are_addresses_of_interfaces() {
        let mut config = config(json!({}));
        let mut name = |name: &str| {
            config.0["devices"][0]["bgp"]["ipv4_interfaces"][0]["ipv4_name"] = json!(name);
            translate(&config).expect_err("it is refused").to_string()
        };
        let begin = "devices[0].bgp.ipv4_interfaces[0].ipv4_name: ";
        let why = "not supported: sessions of loopbacks; try an address of the interface";
        assert_eq!(name("lo"), format!("{begin}{why}"));
        assert_eq!(name("x"), format!("{begin}the device has no IPv4 address \"x\""));
    }

    #[test]
    fn flows_between_ranges_go_to_the_gateway_and_have_addresses_of_the_ranges() {
        let mut config = config(json!({ "v4_routes": [
            { "name": "r1", "addresses": [{ "address": "198.51.100.0" }] },
            { "name": "r2", "addresses": [{ "address": "203.0.113.0" }] },
        ] }));
        config.0["devices"][0]["ethernets"][0]["ipv4_addresses"][0]["gateway_mac"] =
            json!({ "choice": "value", "value": "02:00:00:00:00:77" });
        config.0["flows"] = json!([{
            "name": "f",
            "tx_rx": { "choice": "device", "device": { "tx_names": ["r1"], "rx_names": ["r2"] } },
            "packet": [{ "choice": "ethernet", "ethernet": {} }, { "choice": "ipv4", "ipv4": {} }],
        }]);
        let translated = translate(&config).unwrap_or_else(|problems| panic!("{problems}"));
        let squall_profile::PacketSource::Octets(octets) = &translated.profile.streams[0].packet
        else {
            panic!("octets")
        };
        assert_eq!(octets[..6], [2, 0, 0, 0, 0, 0x77]);
        assert_eq!(octets[26..34], [198, 51, 100, 0, 203, 0, 113, 0]);

        // Packets of the other IP version have no address of the ranges.
        let is_warned = |config: &Config| {
            let translated = translate(config).unwrap_or_else(|problems| panic!("{problems}"));
            translated.warnings.iter().any(|text| text.contains("the other IP version"))
        };
        assert!(!is_warned(&config));
        config.0["devices"][0]["ethernets"][0]["ipv6_addresses"][0]["gateway_mac"] =
            json!({ "choice": "value", "value": "02:00:00:00:00:77" });
        config.0["flows"][0]["packet"][1] = json!({ "choice": "ipv6", "ipv6": {} });
        assert!(is_warned(&config));
        let address = json!({ "choice": "value", "value": "fd00::9" });
        config.0["flows"][0]["packet"][1]["ipv6"] = json!({ "src": address, "dst": address });
        assert!(!is_warned(&config));
    }
}
