//! OSPF and IS-IS in a configuration: routers of devices, which are routing daemons, and the ranges
//! of routes that they announce. OSPF is BIRD's, and IS-IS is FRR's.

use std::net::{IpAddr, Ipv4Addr};

use squall_bgp::Family;
use squall_router::{
    Daemon, GroupAttributes, Igp, IgpRoutes, Isis, MOST_INTERIOR, OspfAuthentication, Prefix,
    Prefixes, RouteGroup, RouteOrigin, RouteRange, RouterSettings, observe::Protocol,
};
use squall_units::{MacAddr, Nanos};

use crate::{
    bgp,
    devices::{Endpoint, needed},
    read::{Node, Notes},
    translate::{DeviceInfo, RouterInfo},
};

/// Routers of a configuration at most. Each is a daemon, and those of FRR are several processes.
pub(crate) const MOST_ROUTERS: usize = 64;
/// Least MTU of an interface for IPv4 (RFC 791) and IPv6 (RFC 8200).
const MIN_MTU: [u32; 2] = [576, 1_280];
/// External routes of a router at most: each is an LSA.
const MOST_ROUTES: u64 = 100_000;
/// `LSInfinity` (RFC 2328 appendix B): the destination is not reachable.
const INFINITY: u64 = 0xff_ffff;

/// A router, where it is in the configuration, and its ranges with their names.
pub(crate) struct Found<'a> {
    pub info: RouterInfo,
    pub node: Node<'a>,
    pub ranges: Vec<(Endpoint, String, Node<'a>)>,
}

/// The routers of a device with the interfaces `device`, the first of which has the index `first`.
pub(crate) fn read<'a>(
    node: &Node<'a>,
    device: &[DeviceInfo],
    first: usize,
    notes: &mut Notes,
) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    found.extend(node.get("ospfv2").and_then(|node| ospf2(&node, device, first, notes)));
    if let Some(node) = node.get("ospfv3") {
        node.known(&["router_id", "instances"], notes);
        let instances = node.list("instances", notes);
        if instances.is_empty() {
            notes.problem(node.at("instances").path, "missing: expected an instance");
        }
        for instance in instances {
            found.extend(ospf3(&instance, &node.at("router_id"), (device, first), notes));
        }
    }
    found.extend(node.get("isis").and_then(|node| isis(&node, device, first, notes)));
    found
}

fn ospf2<'a>(
    node: &Node<'a>,
    device: &[DeviceInfo],
    first: usize,
    notes: &mut Notes,
) -> Option<Found<'a>> {
    let keys = [
        "name",
        "router_id",
        "lsa_retransmit_time",
        "lsa_refresh_time",
        "inter_burst_lsu_interval",
        "max_flood_lsu_per_burst",
        "graceful_restart",
        "store_lsa",
        "capabilities",
        "interfaces",
        "v4_routes",
        "segment_routing",
    ];
    node.known(&keys, notes);
    refuse(node, &[("segment_routing", "segment routing")], notes);
    only(node, "inter_burst_lsu_interval", 33, PACED, notes);
    only(node, "max_flood_lsu_per_burst", 1, PACED, notes);
    let bits = ["t_bit", "mc_bit", "np_bit", "ea_bit", "dc_bit", "o_bit", "unused_bit"];
    capabilities(&node.at("capabilities"), &["e_bit", "lsa_b_bit", "lsa_e_bit"], &bits, notes);
    let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
    let interface = one(node, "interfaces", notes)?;
    let keys = [
        "name",
        "ipv4_name",
        "area",
        "network_type",
        "traffic_engineering",
        "authentication",
        "advanced",
        "link_protection",
        "srlg_values",
        "adjacency_sids",
    ];
    interface.known(&keys, notes);
    refuse(&interface, &TRAFFIC_ENGINEERING, notes);
    refuse(&interface, &[("adjacency_sids", "segment routing")], notes);
    interface.needed_text("name", notes);
    let area = area(&interface.at("area"), notes);
    let network = interface.at("network_type");
    network.known(&["choice", "point_to_multipoint"], notes);
    let kinds = ["broadcast", "point_to_point", "point_to_multipoint"];
    let kind = network.choice(&kinds, Some("broadcast"), notes);
    if kind == Some("point_to_multipoint") {
        let at = network.at("point_to_multipoint");
        notes.unsupported(&at, "the link is broadcast or point_to_point");
    }
    let advanced = interface.at("advanced");
    let keys =
        ["hello_interval", "dead_interval", "routing_metric", "priority", "validate_received_mtu"];
    advanced.known(&keys, notes);
    let (hello, dead) = intervals(&advanced, 65_535, 40, notes);
    let igp = Igp {
        point_to_point: kind == Some("point_to_point"),
        cost: Some(ranged(&advanced, "routing_metric", (1, 65_535), 10, notes) as u16),
        priority: Some(ranged(&advanced, "priority", (0, 255), 0, notes) as u8),
        authentication: authentication(&interface.at("authentication"), notes),
        ..common(node, &advanced, notes)
    };
    let (place, info) = of_ipv4(&interface, device, notes)?;
    let own = info.ipv4.get(place)?;
    let router_id = node.at("router_id");
    router_id.known(&["choice", "custom"], notes);
    let router_id = match router_id.choice(&["interface_ip", "custom"], Some("interface_ip"), notes)
    {
        Some("custom") => identifier(&router_id, notes),
        _ => Some(own.address),
    };
    let endpoint = Endpoint {
        interface: first + position(device, info),
        ipv4: Some(place),
        ..Endpoint::default()
    };
    let mut settings = RouterSettings {
        ipv4: Some((own.address, own.prefix)),
        ospf: Some(area),
        hello,
        dead,
        igp,
        ..settings(Daemon::Bird, info, router_id?)
    };
    let ranges = read_ranges(node, "v4_routes", endpoint, notes, |range, notes| {
        range.known(&["name", "addresses", "metric", "route_origin", "prefix_sids"], notes);
        refuse(range, &[("prefix_sids", "segment routing")], notes);
        let routes = ospf_routes(range, area, Family::Ipv4, notes);
        group(range, Family::Ipv4, routes, &mut settings, notes)
    });
    check_ranges(node, &settings, notes);
    let learns = node.flag("store_lsa", false, notes);
    let info = RouterInfo {
        name,
        protocol: Protocol::Ospf2,
        interface: endpoint.interface,
        settings,
        learns,
    };
    Some(Found { info, node: node.clone(), ranges })
}

fn ospf3<'a>(
    node: &Node<'a>,
    router_id: &Node<'_>,
    (device, first): (&[DeviceInfo], usize),
    notes: &mut Notes,
) -> Option<Found<'a>> {
    let keys = [
        "name",
        "lsa_retransmit_time",
        "lsa_refresh_time",
        "inter_burst_lsu_interval",
        "graceful_restart",
        "store_lsa",
        "capabilities",
        "interfaces",
        "v6_routes",
    ];
    node.known(&keys, notes);
    only(node, "inter_burst_lsu_interval", 1_000, PACED, notes);
    capabilities(&node.at("capabilities"), &["lsa_b_bit", "lsa_e_bit"], &[], notes);
    let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
    let interface = one(node, "interfaces", notes)?;
    let keys = ["name", "ipv6_name", "area", "network_type", "advanced", "options", "instance_id"];
    interface.known(&keys, notes);
    interface.needed_text("name", notes);
    let options = interface.at("options");
    capabilities(&options, &["r_bit", "e_bit", "v6_bit"], &["dc_bit", "n_bit"], notes);
    for key in ["r_bit", "e_bit", "v6_bit"] {
        if !options.flag(key, true, notes) {
            notes.unsupported(&options.at(key), "BIRD always sets it");
        }
    }
    let area = area(&interface.at("area"), notes);
    let network = interface.at("network_type");
    network.known(&["choice", "broadcast"], notes);
    let kind = network.choice(&["broadcast", "point_to_point"], Some("broadcast"), notes);
    let broadcast = network.at("broadcast");
    broadcast.known(&["priority"], notes);
    let advanced = interface.at("advanced");
    let keys = ["hello_interval", "dead_interval", "link_metric", "validate_received_mtu"];
    advanced.known(&keys, notes);
    let (hello, dead) = intervals(&advanced, 65_535, 40, notes);
    let igp = Igp {
        point_to_point: kind == Some("point_to_point"),
        cost: Some(ranged(&advanced, "link_metric", (1, 65_535), 10, notes) as u16),
        priority: Some(ranged(&broadcast, "priority", (0, 255), 0, notes) as u8),
        instance: ranged(&interface, "instance_id", (0, 255), 0, notes) as u8,
        ..common(node, &advanced, notes)
    };
    let (place, info) = of_ipv6(&interface, device, notes)?;
    let own = info.ipv6.get(place)?;
    router_id.known(&["choice", "custom"], notes);
    let router_id = match router_id.choice(&["auto", "custom"], Some("auto"), notes) {
        Some("custom") => identifier(router_id, notes),
        _ => Some(automatic(info)),
    };
    let endpoint = Endpoint {
        interface: first + position(device, info),
        ipv6: Some(place),
        ..Endpoint::default()
    };
    let mut settings = RouterSettings {
        ipv6: Some((own.address, own.prefix)),
        ospf3: Some(area),
        hello,
        dead,
        igp,
        ..settings(Daemon::Bird, info, router_id?)
    };
    let ranges = read_ranges(node, "v6_routes", endpoint, notes, |range, notes| {
        range.known(&["name", "addresses", "metric", "route_origin"], notes);
        let routes = ospf_routes(range, area, Family::Ipv6, notes);
        group(range, Family::Ipv6, routes, &mut settings, notes)
    });
    check_ranges(node, &settings, notes);
    let learns = node.flag("store_lsa", false, notes);
    let info = RouterInfo {
        name,
        protocol: Protocol::Ospf3,
        interface: endpoint.interface,
        settings,
        learns,
    };
    Some(Found { info, node: node.clone(), ranges })
}

fn isis<'a>(
    node: &Node<'a>,
    device: &[DeviceInfo],
    first: usize,
    notes: &mut Notes,
) -> Option<Found<'a>> {
    let keys = [
        "instance",
        "system_id",
        "interfaces",
        "basic",
        "advanced",
        "router_auth",
        "v4_routes",
        "v6_routes",
        "name",
        "segment_routing",
        "graceful_restart",
    ];
    node.known(&keys, notes);
    let unsupported = [
        ("instance", "a router has one instance"),
        ("segment_routing", "segment routing"),
        ("router_auth", "LSPs are not authenticated"),
    ];
    refuse(node, &unsupported, notes);
    let restart = node.at("graceful_restart");
    restart.known(&["helper_mode"], notes);
    if restart.flag("helper_mode", false, notes) {
        notes.warn(&restart.at("helper_mode").path, "has no effect: FRR does not help restarts");
    }
    let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
    let system_id = hex(node, "system_id", notes).and_then(|octets| {
        let id = <[u8; 6]>::try_from(octets).ok();
        if id.is_none() {
            notes.problem(node.at("system_id").path, "expected 12 hex digits: 640000000001");
        }
        id
    });
    let basic = node.at("basic");
    let keys = ["ipv4_te_router_id", "hostname", "enable_wide_metric", "learned_lsp_filter"];
    basic.known(&keys, notes);
    if let Some(id) = basic.get("ipv4_te_router_id") {
        notes.warn(&id.path, "has no effect: links have no attributes of traffic engineering");
    }
    let hostname = basic.text("hostname", notes).filter(|name| !name.is_empty());
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if hostname.is_some_and(|name| !is_name(name) || name.len() > 63) {
        let path = basic.at("hostname").path;
        notes.problem(path, "expected up to 63 letters, digits, '-', '_' and '.'");
    }
    let narrow = !basic.flag("enable_wide_metric", true, notes);
    let most_metric = if narrow { 63 } else { INFINITY - 1 };
    let learns = basic.flag("learned_lsp_filter", false, notes);

    let advanced = node.at("advanced");
    let (area, lifetimes, unpadded) = isis_advanced(&advanced, notes);
    let interface = one(node, "interfaces", notes)?;
    let level = isis_interface(&interface, notes);
    let metric = ranged(&interface, "metric", (0, most_metric), 10, notes) as u32;
    let network = ["broadcast", "point_to_point"];
    let network = interface.word("network_type", &network, Some("broadcast"), notes);
    let ethernet = interface.needed_text("eth_name", notes)?;
    let Some(info) = device.iter().find(|info| info.ethernet == ethernet) else {
        let path = interface.at("eth_name").path;
        notes.problem(path, format!("the device has no interface {ethernet:?}"));
        return None;
    };
    let ipv4 = info.ipv4.iter().position(|own| !own.is_loopback);
    let ipv6 = info.ipv6.iter().position(|own| !own.is_loopback);
    if ipv4.is_none() && ipv6.is_none() {
        let path = interface.at("eth_name").path;
        notes.problem(path, format!("interface {ethernet:?} has no address"));
    }
    let is_ipv6 = ipv6.is_some();
    check_mtu(&interface.at("eth_name"), info, is_ipv6, notes);
    let point_to_point = network == Some("point_to_point");
    let system_id = system_id?;
    let router_id = ipv4.and_then(|place| info.ipv4.get(place)).map(|own| own.address);
    let mut settings = RouterSettings {
        ipv4: ipv4.and_then(|at| info.ipv4.get(at)).map(|own| (own.address, own.prefix)),
        ipv6: ipv6.and_then(|at| info.ipv6.get(at)).map(|own| (own.address, own.prefix)),
        isis: Some(Isis { area, levels: level.levels, metric, point_to_point }),
        hello: level.hello,
        dead: level.dead,
        igp: Igp {
            system_id: Some(system_id),
            narrow,
            priority: Some(level.priority),
            hostname: hostname.map(str::to_owned),
            lifetimes: Some(lifetimes),
            unpadded,
            ..Igp::default()
        },
        ..settings(Daemon::Frr, info, router_id.unwrap_or_else(|| automatic(info)))
    };
    let interface = first + position(device, info);
    let mut ranges = Vec::new();
    for (key, family, place) in
        [("v4_routes", Family::Ipv4, ipv4), ("v6_routes", Family::Ipv6, ipv6)]
    {
        let endpoint = match family {
            Family::Ipv4 => Endpoint { interface, ipv4: place, ..Endpoint::default() },
            Family::Ipv6 => Endpoint { interface, ipv6: place, ..Endpoint::default() },
        };
        let found = read_ranges(node, key, endpoint, notes, |range, notes| {
            let routes = isis_routes(range, most_metric, notes);
            group(range, family, routes, &mut settings, notes)
        });
        if !found.is_empty() && place.is_none() {
            let version = if family == Family::Ipv4 { "IPv4" } else { "IPv6" };
            let why = format!("the interface has no {version} address");
            notes.problem(node.at(key).path, why);
        }
        ranges.extend(found);
    }
    check_ranges(node, &settings, notes);
    let info = RouterInfo { name, protocol: Protocol::Isis, interface, settings, learns };
    Some(Found { info, node: node.clone(), ranges })
}

/// The area, the times after which LSPs are sent again and until which they are valid, and whether
/// hello packets are short.
fn isis_advanced(node: &Node<'_>, notes: &mut Notes) -> (String, (u16, u16), bool) {
    let keys = [
        "enable_hello_padding",
        "max_area_addresses",
        "area_addresses",
        "lsp_refresh_rate",
        "lsp_lifetime",
        "psnp_interval",
        "csnp_interval",
        "max_lsp_size",
        "lsp_mgroup_min_trans_interval",
        "enable_attached_bit",
    ];
    node.known(&keys, notes);
    for (key, usual) in [
        ("max_area_addresses", 3),
        ("psnp_interval", 2_000),
        ("csnp_interval", 10_000),
        ("max_lsp_size", 1_492),
        ("lsp_mgroup_min_trans_interval", 5_000),
    ] {
        only(node, key, usual, "FRR's own value is used", notes);
    }
    if let Some(bit) = node.get("enable_attached_bit") {
        notes.warn(&bit.path, "has no effect: FRR sets it if it has a way to other areas");
    }
    let lifetime = ranged(node, "lsp_lifetime", (350, 65_535), 1_200, notes);
    let refresh = ranged(node, "lsp_refresh_rate", (1, 65_235), 600, notes);
    if refresh + 300 > lifetime {
        let most = lifetime - 300;
        let why = format!("found {refresh}, expected at most {most}: lsp_lifetime less 300 s");
        notes.problem(node.at("lsp_refresh_rate").path, why);
    }
    let areas = node.list("area_addresses", notes);
    if let Some(second) = areas.get(1) {
        notes.unsupported(second, "a router has one area");
    }
    let usual = || "49.0001".to_owned();
    let area = areas.first().map_or_else(usual, |area| {
        let text = area.value.as_str().unwrap_or_default();
        // Its length is odd because FRR divides the whole title into groups of two octets, from
        // the second one on.
        let digits: String = text.chars().filter(|c| *c != '.').collect();
        let is_hex = digits.chars().all(|c| c.is_ascii_hexdigit());
        if !is_hex || digits.len() % 4 != 2 || digits.len() > 26 {
            let expected = "expected 1, 3, 5, ... 13 octets of hex digits: 490001";
            notes.problem(&area.path, expected);
            return usual();
        }
        let (first, rest) = digits.split_at(2);
        let groups = rest.as_bytes().chunks(4).map(String::from_utf8_lossy);
        groups.fold(first.to_owned(), |all, group| all + "." + &group)
    });
    let unpadded = !node.flag("enable_hello_padding", true, notes);
    (area, (refresh as u16, lifetime as u16), unpadded)
}

struct Levels {
    levels: [bool; 2],
    hello: Nanos,
    dead: Nanos,
    priority: u8,
}

fn isis_interface(node: &Node<'_>, notes: &mut Notes) -> Levels {
    let keys = [
        "eth_name",
        "metric",
        "network_type",
        "level_type",
        "l1_settings",
        "l2_settings",
        "multi_topology_ids",
        "traffic_engineering",
        "authentication",
        "advanced",
        "link_protection",
        "srlg_values",
        "name",
        "adjacency_sids",
        "srv6_adjacency_sids",
    ];
    node.known(&keys, notes);
    refuse(node, &TRAFFIC_ENGINEERING, notes);
    let unsupported = [
        ("multi_topology_ids", "a router has one topology"),
        ("authentication", "packets are not authenticated"),
        ("adjacency_sids", "segment routing"),
        ("srv6_adjacency_sids", "segment routing"),
    ];
    refuse(node, &unsupported, notes);
    node.needed_text("name", notes);
    let advanced = node.at("advanced");
    let flags = [
        ("auto_adjust_mtu", true),
        ("auto_adjust_area", true),
        ("auto_adjust_supported_protocols", false),
        ("enable_3way_handshake", true),
        ("p2p_hellos_to_unicast_mac", false),
    ];
    advanced.known(&flags.map(|(key, _)| key), notes);
    for key in ["auto_adjust_mtu", "auto_adjust_area", "auto_adjust_supported_protocols"] {
        if let Some(flag) = advanced.get(key) {
            notes.warn(&flag.path, "has no effect: a router keeps its settings");
        }
    }
    if !advanced.flag("enable_3way_handshake", true, notes) {
        let at = advanced.at("enable_3way_handshake");
        notes.unsupported(&at, "links have three-way handshakes (RFC 5303)");
    }
    if advanced.flag("p2p_hellos_to_unicast_mac", false, notes) {
        let at = advanced.at("p2p_hellos_to_unicast_mac");
        notes.unsupported(&at, "hello packets go to a group (RFC 5309)");
    }
    let words = ["level_1", "level_2", "level_1_2"];
    let levels = match node.word("level_type", &words, Some("level_2"), notes) {
        Some("level_1") => [true, false],
        Some("level_1_2") => [true, true],
        _ => [false, true],
    };
    let mut found = Vec::new();
    for (key, speaks) in ["l1_settings", "l2_settings"].into_iter().zip(levels) {
        let of = node.at(key);
        of.known(&["priority", "hello_interval", "dead_interval"], notes);
        let (hello, dead) = intervals(&of, 600, 30, notes);
        let priority = ranged(&of, "priority", (0, 127), 0, notes) as u8;
        let count = dead.0 / hello.0;
        if speaks && (!dead.0.is_multiple_of(hello.0) || !(2..=100).contains(&count)) {
            let why = "expected 2 to 100 times hello_interval";
            notes.problem(of.at("dead_interval").path, why);
        }
        if speaks {
            found.push((hello, dead, priority, of));
        }
    }
    if let [one, two] = &found[..]
        && (one.0, one.1, one.2) != (two.0, two.1, two.2)
    {
        notes.unsupported(&two.3, "both levels have the same settings; try those of l1_settings");
    }
    let (hello, dead, priority) =
        found.first().map_or((SECOND, SECOND, 0), |of| (of.0, of.1, of.2));
    Levels { levels, hello, dead, priority }
}

/// How a range of IS-IS is announced.
fn isis_routes(node: &Node<'_>, most: u64, notes: &mut Notes) -> IgpRoutes {
    let keys = [
        "addresses",
        "link_metric",
        "origin_type",
        "redistribution_type",
        "name",
        "prefix_attr_enabled",
        "x_flag",
        "r_flag",
        "n_flag",
        "prefix_sids",
    ];
    node.known(&keys, notes);
    refuse(node, &[("prefix_sids", "segment routing")], notes);
    if node.flag("prefix_attr_enabled", false, notes) {
        let at = node.at("prefix_attr_enabled");
        notes.unsupported(&at, "routes have no attributes of RFC 7794");
    }
    let words = ["internal", "external"];
    if node.word("origin_type", &words, Some("internal"), notes) == Some("external") {
        notes.unsupported(&node.at("origin_type"), "routes are internal; try internal");
    }
    let words = ["up", "down"];
    if node.word("redistribution_type", &words, Some("up"), notes) == Some("down") {
        notes.unsupported(
            &node.at("redistribution_type"),
            "routes come from no other level; try up",
        );
    }
    let metric = ranged(node, "link_metric", (0, most), 0, notes) as u32;
    IgpRoutes { origin: RouteOrigin::Interior, metric }
}

/// How a range of OSPF is announced, from a router whose link is in `area`.
fn ospf_routes(node: &Node<'_>, area: Ipv4Addr, family: Family, notes: &mut Notes) -> IgpRoutes {
    let at = node.at("route_origin");
    let kinds = ["intra_area", "inter_area", "external_type_1", "external_type_2", "nssa_external"];
    at.known(&[&["choice"][..], &kinds].concat(), notes);
    let kind = at.choice(&kinds, Some("inter_area"), notes).unwrap_or("inter_area");
    at.at(kind).known(&["flags", "propagation", "capabilities"], notes);
    let flags = at.at(kind).at("flags");
    flags.known(&["a_flag", "n_flag"], notes);
    for key in ["a_flag", "n_flag"] {
        if flags.flag(key, false, notes) {
            notes.unsupported(&flags.at(key), "routes have no extended attributes (RFC 7684)");
        }
    }
    let interior = |notes: &mut Notes| {
        let metric = ranged(node, "metric", (0, 65_535), 0, notes) as u32;
        // Problems of the prefix are reported where the addresses are read.
        let is_host = |of: &Node<'_>| {
            let prefix = of.value.get("prefix").and_then(serde_json::Value::as_u64);
            family == Family::Ipv6 && prefix == Some(128)
        };
        let addresses = node.list("addresses", notes);
        if metric > 0 && addresses.iter().any(is_host) {
            let why = "BIRD announces hosts with metric 0; try 0, or external_type_2";
            notes.unsupported(&node.at("metric"), why);
        }
        if metric == 0 && !addresses.iter().all(is_host) {
            let path = node.at("metric").path;
            notes.warn(&path, "0 is no metric of an interface: routes are announced with 1");
        }
        metric.max(1)
    };
    let (origin, metric) = match kind {
        "intra_area" => (RouteOrigin::Interior, interior(notes)),
        "external_type_1" | "external_type_2" => {
            let metric = ranged(node, "metric", (0, INFINITY - 1), 0, notes) as u32;
            let is_first = kind == "external_type_1";
            (if is_first { RouteOrigin::External1 } else { RouteOrigin::External2 }, metric)
        }
        "nssa_external" => {
            let at = at.at("nssa_external");
            notes.unsupported(&at, "areas are no stubs; try external_type_1 or external_type_2");
            (RouteOrigin::External1, 0)
        }
        _ => {
            // A border has the backbone, and another area.
            let other = if area.is_unspecified() { Ipv4Addr::new(0, 0, 0, 1) } else { BACKBONE };
            (RouteOrigin::InterArea(other), interior(notes))
        }
    };
    IgpRoutes { origin, metric }
}

const BACKBONE: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const SECOND: Nanos = Nanos::SECOND;
const PACED: &str = "BIRD has its own pace";

const TRAFFIC_ENGINEERING: [(&str, &str); 3] = [
    ("traffic_engineering", "traffic engineering"),
    ("link_protection", "traffic engineering"),
    ("srlg_values", "traffic engineering"),
];

/// Reports each of these members that is there and not empty, with the reason.
fn refuse(node: &Node<'_>, unsupported: &[(&str, &str)], notes: &mut Notes) {
    for (key, why) in unsupported {
        let is_there = |it: &Node<'_>| it.value.as_array().is_none_or(|list| !list.is_empty());
        if let Some(there) = node.get(key).filter(is_there) {
            notes.unsupported(&there, why);
        }
    }
}

/// Reports a number that differs from that of the daemon.
fn only(node: &Node<'_>, key: &str, usual: u64, why: &str, notes: &mut Notes) {
    if node.uint(key, u32::MAX.into(), notes).is_some_and(|found| found != usual) {
        notes.unsupported(&node.at(key), &format!("{why}; try {usual}"));
    }
}

/// A number between `least` and `most`, or `usual` if it is missing or not one.
fn ranged(
    node: &Node<'_>,
    key: &str,
    (least, most): (u64, u64),
    usual: u64,
    notes: &mut Notes,
) -> u64 {
    let found = node.uint(key, most, notes).unwrap_or(usual);
    if found < least {
        notes.problem(node.at(key).path, format!("found {found}, expected at least {least}"));
        return usual.max(least);
    }
    found
}

/// Hello and dead interval, of which the second is longer.
fn intervals(
    node: &Node<'_>,
    most_hello: u64,
    usual_dead: u64,
    notes: &mut Notes,
) -> (Nanos, Nanos) {
    let hello = ranged(node, "hello_interval", (1, most_hello), 10, notes);
    let dead = ranged(node, "dead_interval", (1, 65_535), usual_dead, notes);
    if dead <= hello {
        let why = format!("found {dead}, expected more than hello_interval, {hello} s");
        notes.problem(node.at("dead_interval").path, why);
    }
    (Nanos(hello * SECOND.0), Nanos(dead * SECOND.0))
}

/// Bits of packets and LSAs: BIRD sets those of `own` where they belong, and none of `others`.
fn capabilities(node: &Node<'_>, own: &[&str], others: &[&str], notes: &mut Notes) {
    node.known(&[own, others].concat(), notes);
    for key in others {
        if node.flag(key, false, notes) {
            notes.unsupported(&node.at(key), "BIRD does not set it");
        }
    }
    if node.is_present() {
        notes.warn(&node.path, "has no effect: BIRD sets the bits that its areas and routes need");
    }
}

/// The only member of a list.
fn one<'a>(node: &Node<'a>, key: &str, notes: &mut Notes) -> Option<Node<'a>> {
    let mut list = node.list(key, notes).into_iter();
    let first = list.next();
    if first.is_none() {
        notes.problem(node.at(key).path, "missing: expected an interface");
    }
    for further in list {
        notes.unsupported(&further, "a second interface of a router; try a device for each");
    }
    first
}

/// Settings of OSPF that are the same in both versions.
fn common(node: &Node<'_>, advanced: &Node<'_>, notes: &mut Notes) -> Igp {
    only(node, "lsa_refresh_time", 1_800, "BIRD has that of RFC 2328", notes);
    if !advanced.flag("validate_received_mtu", true, notes) {
        let at = advanced.at("validate_received_mtu");
        notes.unsupported(&at, "BIRD always compares the MTU (RFC 2328 section 10.6)");
    }
    let restart = node.at("graceful_restart");
    restart.known(&["helper_mode"], notes);
    Igp {
        retransmit: Some(ranged(node, "lsa_retransmit_time", (2, 65_535), 5, notes) as u16),
        no_helper: !restart.flag("helper_mode", false, notes),
        ..Igp::default()
    }
}

fn area(node: &Node<'_>, notes: &mut Notes) -> Ipv4Addr {
    node.known(&["choice", "id", "ip"], notes);
    match node.choice(&["id", "ip"], Some("id"), notes) {
        Some("ip") => needed(node, "ip", "an IPv4 address", notes).unwrap_or(BACKBONE),
        _ => Ipv4Addr::from_bits(ranged(node, "id", (0, u32::MAX.into()), 0, notes) as u32),
    }
}

fn authentication(node: &Node<'_>, notes: &mut Notes) -> Option<OspfAuthentication> {
    if !node.is_present() {
        return None;
    }
    node.known(&["choice", "md5s", "clear_text"], notes);
    // BIRD's texts have no escapes.
    let key = |of: &Node<'_>, key: &str, most: usize, usual: &str, notes: &mut Notes| {
        let text = of.text(key, notes).unwrap_or(usual);
        let is_plain = text.chars().all(|c| c.is_ascii_graphic() && c != '"');
        if !is_plain || text.is_empty() || text.len() > most {
            let why = format!("expected 1 to {most} ASCII characters without spaces and quotes");
            notes.problem(of.at(key).path, why);
        }
        text.to_owned()
    };
    match node.choice(&["md5s", "clear_text"], Some("clear_text"), notes)? {
        "md5s" => {
            let mut keys = Vec::new();
            for of in node.list("md5s", notes) {
                of.known(&["key_id", "key"], notes);
                let id = ranged(&of, "key_id", (1, 255), 1, notes) as u8;
                keys.push((id, key(&of, "key", 16, "", notes)));
            }
            if keys.is_empty() {
                notes.problem(node.at("md5s").path, "missing: expected a key");
            }
            Some(OspfAuthentication::Md5(keys))
        }
        _ => Some(OspfAuthentication::Simple(key(node, "clear_text", 8, "otg", notes))),
    }
}

/// The address that an interface of `OSPFv2` names, with its place.
fn of_ipv4<'a>(
    node: &Node<'_>,
    device: &'a [DeviceInfo],
    notes: &mut Notes,
) -> Option<(usize, &'a DeviceInfo)> {
    let name = node.needed_text("ipv4_name", notes)?;
    let found = device.iter().find_map(|info| {
        let place = info.ipv4.iter().position(|own| own.name == name)?;
        Some((place, info, info.ipv4.get(place)?.is_loopback))
    });
    address(&node.at("ipv4_name"), name, found, false, notes)
}

/// As [`of_ipv4`], for `OSPFv3`.
fn of_ipv6<'a>(
    node: &Node<'_>,
    device: &'a [DeviceInfo],
    notes: &mut Notes,
) -> Option<(usize, &'a DeviceInfo)> {
    let name = node.needed_text("ipv6_name", notes)?;
    let found = device.iter().find_map(|info| {
        let place = info.ipv6.iter().position(|own| own.name == name)?;
        Some((place, info, info.ipv6.get(place)?.is_loopback))
    });
    address(&node.at("ipv6_name"), name, found, true, notes)
}

fn address<'a>(
    at: &Node<'_>,
    name: &str,
    found: Option<(usize, &'a DeviceInfo, bool)>,
    is_ipv6: bool,
    notes: &mut Notes,
) -> Option<(usize, &'a DeviceInfo)> {
    let Some((place, info, is_loopback)) = found else {
        let version = if is_ipv6 { "IPv6" } else { "IPv4" };
        notes.problem(&at.path, format!("the device has no {version} address {name:?}"));
        return None;
    };
    if is_loopback {
        notes.unsupported(at, "routers of loopbacks; try an address of the interface");
        return None;
    }
    check_mtu(at, info, is_ipv6, notes);
    Some((place, info))
}

fn check_mtu(at: &Node<'_>, info: &DeviceInfo, is_ipv6: bool, notes: &mut Notes) {
    let least = MIN_MTU[usize::from(is_ipv6)];
    if info.mtu < least {
        notes.problem(&at.path, format!("its MTU is {}, a router needs {least}", info.mtu));
    }
}

/// The index of an interface in its device.
fn position(device: &[DeviceInfo], info: &DeviceInfo) -> usize {
    device.iter().position(|one| one.ethernet == info.ethernet).unwrap_or(0)
}

/// A router ID that is set.
fn identifier(node: &Node<'_>, notes: &mut Notes) -> Option<Ipv4Addr> {
    let id: Ipv4Addr = needed(node, "custom", "an IPv4 address", notes)?;
    if id.is_unspecified() {
        notes.problem(node.at("custom").path, "found 0.0.0.0, which no router may have");
    }
    Some(id)
}

/// A router ID that is not set: the first IPv4 address, or the end of the MAC address.
fn automatic(info: &DeviceInfo) -> Ipv4Addr {
    let MacAddr([_, _, a, b, c, d]) = info.mac;
    let own = info.ipv4.iter().find(|own| !own.is_loopback);
    own.map_or(Ipv4Addr::new(a, b, c, d.max(1)), |own| own.address)
}

/// Octets of hex digits.
fn hex(node: &Node<'_>, key: &str, notes: &mut Notes) -> Option<Vec<u8>> {
    let text = node.needed_text(key, notes)?;
    let octets = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    let octets: Option<Vec<u8>> = octets.collect();
    if octets.is_none() {
        notes.problem(node.at(key).path, format!("found {text:?}, expected pairs of hex digits"));
    }
    octets
}

/// A router with no protocol and no routes yet.
fn settings(daemon: Daemon, info: &DeviceInfo, router_id: Ipv4Addr) -> RouterSettings {
    RouterSettings {
        daemon,
        mac: info.mac,
        ipv4: None,
        ipv6: None,
        router_id,
        bgp: None,
        ospf: None,
        ospf3: None,
        isis: None,
        igp: Igp::default(),
        hello: SECOND,
        dead: SECOND,
        rip: false,
        ripng: false,
        rip_update: SECOND,
        bfd: None,
        groups: Vec::new(),
        graceful_restart: false,
        configuration: None,
    }
}

/// The ranges of a list. `read` adds one to the router, and returns the endpoint's first address.
fn read_ranges<'a>(
    node: &Node<'a>,
    key: &str,
    endpoint: Endpoint,
    notes: &mut Notes,
    mut read: impl FnMut(&Node<'a>, &mut Notes) -> Option<(String, IpAddr)>,
) -> Vec<(Endpoint, String, Node<'a>)> {
    let mut found = Vec::new();
    for range in node.list(key, notes) {
        if let Some((name, first)) = read(&range, notes) {
            found.push((Endpoint { range: Some(first), ..endpoint }, name, range));
        }
    }
    found
}

/// Adds the group of a range to the router. Returns its name and first address.
fn group(
    node: &Node<'_>,
    family: Family,
    routes: IgpRoutes,
    settings: &mut RouterSettings,
    notes: &mut Notes,
) -> Option<(String, IpAddr)> {
    let list = node.list("addresses", notes);
    if list.is_empty() {
        notes.problem(node.at("addresses").path, "missing: expected addresses of routes");
    }
    let is_interface = matches!(routes.origin, RouteOrigin::Interior | RouteOrigin::InterArea(_));
    let mut prefixes = Vec::new();
    for node in &list {
        let Some(block) = bgp::read_block(node, family, notes) else { continue };
        if u64::from(block.count) > MOST_ROUTES {
            notes.unsupported(&node.at("count"), &format!("more than {MOST_ROUTES} routes"));
            continue;
        }
        // The address of an interface.
        if is_interface && block.length == 0 {
            notes.unsupported(&node.at("prefix"), "a default route; try external_type_2");
            continue;
        }
        let of = |one: squall_bgp::Prefix| Prefix { address: one.address, length: one.length };
        let is_near = |one: &Prefix| settings.interior_host(*one).is_none();
        if is_interface && let Some(near) = block.networks().map(of).find(is_near) {
            let hint = if settings.isis.is_some() { "" } else { "; try external_type_2" };
            let why = format!("{near} has neighbors of the interface alone{hint}");
            notes.unsupported(&node.at("address"), &why);
            continue;
        }
        let first = block.network(0)?.address;
        prefixes.push(match block.step {
            1 => Prefixes::Range(RouteRange { first, length: block.length, count: block.count }),
            _ => Prefixes::List(block.networks().map(of).collect()),
        });
    }
    let name = node.needed_text("name", notes)?.to_owned();
    let first = prefixes.iter().flat_map(Prefixes::iter).next()?.address;
    let attributes = GroupAttributes::default();
    settings.igp.routes.push(routes);
    settings.groups.push(RouteGroup {
        name: name.clone(),
        attributes,
        prefixes,
        flap: None,
        single: false,
    });
    Some((name, first))
}

/// Refuses more routes than a daemon can have.
fn check_ranges(node: &Node<'_>, settings: &RouterSettings, notes: &mut Notes) {
    /// Ranges are interfaces, or protocols of BIRD.
    const MOST_RANGES: usize = 256;
    if settings.groups.len() > MOST_RANGES {
        notes.unsupported(node, &format!("more than {MOST_RANGES} ranges of a router"));
    }
    let routes = |is_interior: bool| -> u64 {
        let all = settings.groups.iter().zip(&settings.igp.routes);
        let is_meant = |of: &IgpRoutes| {
            matches!(of.origin, RouteOrigin::Interior | RouteOrigin::InterArea(_)) == is_interior
        };
        all.filter(|(_, of)| is_meant(of)).map(|(group, _)| group.len()).sum()
    };
    if routes(true) > MOST_INTERIOR {
        let hint = match settings.isis {
            Some(_) => "",
            None => "; try external_type_1 or external_type_2",
        };
        let why = format!("more than {MOST_INTERIOR} networks of a router{hint}");
        notes.unsupported(node, &why);
    }
    if routes(false) > MOST_ROUTES {
        notes.unsupported(node, &format!("more than {MOST_ROUTES} external routes of a router"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{Config, Translated, translate};

    /// A device with this router: `key` names its protocol.
    fn config(key: &str, router: Value) -> Config {
        let device = json!({
            "name": "d", key: router,
            "ethernets": [{
                "name": "e", "mac": "02:00:00:00:00:07", "connection": { "port_name": "p" },
                "ipv4_addresses": [{
                    "name": "i4", "address": "10.0.0.1", "gateway": "10.0.0.2", "prefix": 30,
                }],
                "ipv6_addresses": [{ "name": "i6", "address": "fd00::1", "gateway": "fd00::2" }],
            }],
        });
        let config = json!({ "ports": [{ "name": "p", "location": "va" }], "devices": [device] });
        Config::from_json(&config).expect("an object")
    }

    fn ok(key: &str, router: Value) -> Translated {
        translate(&config(key, router)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn router(key: &str, router: Value) -> RouterInfo {
        ok(key, router).routers.remove(0)
    }

    fn problems(key: &str, router: Value) -> Vec<String> {
        translate(&config(key, router)).expect_err("it has mistakes").texts()
    }

    /// A router of OSPFv2 with further members, on an interface with further members.
    fn ospf2(more: Value, interface: Value) -> Value {
        let mut of = json!({ "name": "r", "interfaces": [{ "name": "x", "ipv4_name": "i4" }] });
        of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let first = of["interfaces"][0].as_object_mut().unwrap();
        first.extend(interface.as_object().unwrap().clone());
        of
    }

    fn isis(more: Value, interface: Value) -> Value {
        let mut of = json!({ "name": "r", "system_id": "640000000001",
            "interfaces": [{ "name": "x", "eth_name": "e" }] });
        of.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let first = of["interfaces"][0].as_object_mut().unwrap();
        first.extend(interface.as_object().unwrap().clone());
        of
    }

    #[test]
    fn ospf2_has_the_defaults_of_the_schema() {
        let info = router("ospfv2", ospf2(json!({}), json!({})));
        let RouterInfo { name, protocol, interface, settings, learns } = info;
        assert_eq!((&*name, protocol, interface, learns), ("r", Protocol::Ospf2, 0, false));
        let expected = RouterSettings {
            ipv4: Some(([10, 0, 0, 1].into(), 30)),
            ospf: Some(BACKBONE),
            hello: Nanos(10 * SECOND.0),
            dead: Nanos(40 * SECOND.0),
            igp: Igp {
                cost: Some(10),
                priority: Some(0),
                retransmit: Some(5),
                no_helper: true,
                ..Igp::default()
            },
            mac: MacAddr([2, 0, 0, 0, 0, 7]),
            router_id: [10, 0, 0, 1].into(),
            ..super::settings(
                Daemon::Bird,
                &ok("ospfv2", ospf2(json!({}), json!({}))).devices[0],
                BACKBONE,
            )
        };
        assert_eq!(settings, expected);
    }

    #[test]
    fn settings_of_ospf2_are_those_of_the_router() {
        let more = json!({
            "router_id": { "choice": "custom", "custom": "192.0.2.9" },
            "lsa_retransmit_time": 3, "graceful_restart": { "helper_mode": true },
            "store_lsa": true,
            "capabilities": { "e_bit": true },
        });
        let interface = json!({
            "area": { "choice": "ip", "ip": "0.0.0.9" },
            "network_type": { "choice": "point_to_point" },
            "authentication": { "choice": "md5s", "md5s": [{ "key_id": 4, "key": "k" }] },
            "advanced": {
                "hello_interval": 1, "dead_interval": 4, "routing_metric": 7, "priority": 200,
            },
        });
        let translated = ok("ospfv2", ospf2(more, interface));
        let why = "devices[0].ospfv2.capabilities: has no effect";
        assert!(translated.warnings[0].starts_with(why), "{:?}", translated.warnings);
        let RouterInfo { settings, learns, .. } = &translated.routers[0];
        assert!(learns);
        assert_eq!(settings.router_id, Ipv4Addr::new(192, 0, 2, 9));
        assert_eq!(
            (settings.ospf, settings.hello, settings.dead),
            (Some(Ipv4Addr::new(0, 0, 0, 9)), SECOND, Nanos(4 * SECOND.0),)
        );
        let igp = &settings.igp;
        assert_eq!((igp.point_to_point, igp.cost, igp.priority), (true, Some(7), Some(200)));
        assert_eq!((igp.retransmit, igp.no_helper), (Some(3), false));
        assert_eq!(igp.authentication, Some(OspfAuthentication::Md5(vec![(4, "k".into())])));
        let simple = json!({ "authentication": {} });
        let info = router("ospfv2", ospf2(json!({}), simple));
        let simple = OspfAuthentication::Simple("otg".into());
        assert_eq!(info.settings.igp.authentication, Some(simple));
    }

    #[test]
    fn ranges_of_ospf_are_groups_with_their_origins() {
        let range = |name: &str, metric: u64, origin: Value| {
            json!({ "name": name, "metric": metric, "route_origin": origin,
                "addresses": [{ "address": "203.0.113.77", "prefix": 26, "count": 2, "step": 2 }] })
        };
        let mut ranges = vec![
            range("inter", 10, json!({})),
            range("intra", 0, json!({ "choice": "intra_area" })),
            range("one", 0, json!({ "choice": "external_type_1" })),
            range("two", 0xff_fffe, json!({ "external_type_2": {} })),
        ];
        let translated = ok("ospfv2", ospf2(json!({ "v4_routes": ranges }), json!({})));
        let settings = &translated.routers[0].settings;
        let other = RouteOrigin::InterArea([0, 0, 0, 1].into());
        let found: Vec<_> = settings.igp.routes.iter().map(|of| (of.origin, of.metric)).collect();
        assert_eq!(
            found,
            [
                (other, 10),
                (RouteOrigin::Interior, 1),
                (RouteOrigin::External1, 0),
                (RouteOrigin::External2, 0xff_fffe),
            ]
        );
        let why = "devices[0].ospfv2.v4_routes[1].metric: 0 is no metric";
        assert!(translated.warnings[0].starts_with(why), "{:?}", translated.warnings);
        let prefixes: Vec<_> =
            settings.groups[0].prefixes().map(|prefix| prefix.to_string()).collect();
        assert_eq!(prefixes, ["203.0.113.64/26", "203.0.113.192/26"]);

        // The other area of a router that is not in the backbone is the backbone.
        let area = json!({ "area": { "id": 5 } });
        let inner = router("ospfv2", ospf2(json!({ "v4_routes": [ranges[0]] }), area));
        assert_eq!(inner.settings.igp.routes[0].origin, RouteOrigin::InterArea(BACKBONE));

        ranges[0]["route_origin"] = json!({ "choice": "nssa_external" });
        ranges[1]["metric"] = json!(65_536);
        ranges[2]["metric"] = json!(0xff_ffff);
        ranges[3]["name"] = json!("one");
        let all = problems("ospfv2", ospf2(json!({ "v4_routes": ranges }), json!({})));
        let at = |number: usize, key: &str, what: &str| {
            let start = format!("devices[0].ospfv2.v4_routes[{number}].{key}: {what}");
            assert!(all.iter().any(|one| one.starts_with(&start)), "{start}\n{all:?}");
        };
        at(0, "route_origin.nssa_external", "not supported");
        at(1, "metric", "found 65536");
        at(2, "metric", "found 16777215");
        at(3, "name", "\"one\" is also the name of another item");
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn more_routes_than_a_daemon_can_have_are_refused() {
        let ranges = |count: u64, origin: &str| {
            json!({ "v4_routes": [{ "name": "a", "route_origin": { "choice": origin },
                "addresses": [{ "address": "10.1.0.0", "prefix": 32, "count": count }] }] })
        };
        for (count, origin, what) in [
            (4_001, "inter_area", "devices[0].ospfv2: not supported: more than 4000 networks"),
            (
                100_001,
                "external_type_2",
                "devices[0].ospfv2.v4_routes[0].addresses[0].count: not supported: more than 1000",
            ),
        ] {
            let all = problems("ospfv2", ospf2(ranges(count, origin), json!({})));
            assert!(all[0].starts_with(what), "{all:?}");
            ok("ospfv2", ospf2(ranges(count - 1, origin), json!({})));
        }
        let default = json!({ "v4_routes": [{ "name": "a",
            "addresses": [{ "address": "0.0.0.0", "prefix": 0 }] }] });
        let all = problems("ospfv2", ospf2(default, json!({})));
        assert!(all[0].contains("try external_type_2"), "{all:?}");
    }

    #[test]
    fn networks_of_neighbors_alone_are_refused_as_interior_routes() {
        let of = |address: &str, prefix: u8, origin: &str| {
            json!({ "v4_routes": [{ "name": "a", "route_origin": { "choice": origin },
                "addresses": [
                    { "address": "10.1.0.0", "prefix": 24 },
                    { "address": address, "prefix": prefix },
                ] }] })
        };
        let path = "devices[0].ospfv2.v4_routes[0].addresses[1].address: not supported: ";
        for (address, prefix) in [("10.0.0.0", 30), ("10.0.0.2", 32)] {
            let all = problems("ospfv2", ospf2(of(address, prefix, "intra_area"), json!({})));
            let why = format!("{path}{address}/{prefix} has neighbors");
            assert!(all.len() == 1 && all[0].starts_with(&why), "{all:?}");
            ok("ospfv2", ospf2(of(address, prefix, "external_type_2"), json!({})));
        }
        ok("ospfv2", ospf2(of("10.0.0.0", 29, "intra_area"), json!({})));
    }

    #[test]
    fn more_routers_than_a_machine_may_have_are_refused() {
        let device = |number: usize| {
            json!({
                "name": format!("d{number}"),
                "ethernets": [{
                    "name": format!("e{number}"), "connection": { "port_name": "p" },
                    "ipv4_addresses": [{
                        "name": format!("i{number}"), "address": "10.0.0.1", "gateway": "10.0.0.2",
                    }],
                }],
                "ospfv2": { "name": format!("r{number}"),
                    "interfaces": [{ "name": "x", "ipv4_name": format!("i{number}") }] },
            })
        };
        let of = |count: usize| {
            let devices: Vec<_> = (0..count).map(device).collect();
            let config =
                json!({ "ports": [{ "name": "p", "location": "va" }], "devices": devices });
            translate(&Config::from_json(&config).unwrap())
        };
        assert_eq!(of(64).map(|it| it.routers.len()).map_err(|it| it.texts()), Ok(64));
        let all = of(66).expect_err("two too many").texts();
        let why = "devices[64].ospfv2: not supported: more than 64 routers of OSPF and IS-IS";
        assert_eq!(all, [why]);
    }

    #[test]
    fn settings_that_bird_lacks_are_refused_with_their_paths() {
        let more = json!({
            "lsa_refresh_time": 60, "inter_burst_lsu_interval": 1, "segment_routing": {},
            "capabilities": { "mc_bit": true }, "router_id": { "custom": "0.0.0.0" },
        });
        let interface = json!({
            "network_type": { "choice": "point_to_multipoint" },
            "authentication": { "clear_text": "with space" },
            "advanced": { "hello_interval": 0, "dead_interval": 5, "validate_received_mtu": false },
            "srlg_values": [1], "adjacency_sids": [],
        });
        let all = problems("ospfv2", ospf2(more, interface));
        for start in [
            "lsa_refresh_time: not supported",
            "inter_burst_lsu_interval: not supported: BIRD has its own pace; try 33",
            "segment_routing: not supported",
            "capabilities.mc_bit: not supported",
            "router_id.custom: found 0.0.0.0",
            "interfaces[0].network_type.point_to_multipoint: not supported",
            "interfaces[0].authentication.clear_text: expected 1 to 8",
            "interfaces[0].advanced.hello_interval: found 0",
            "interfaces[0].advanced.dead_interval: found 5",
            "interfaces[0].advanced.validate_received_mtu: not supported",
            "interfaces[0].srlg_values: not supported",
        ] {
            let start = format!("devices[0].ospfv2.{start}");
            assert!(all.iter().any(|one| one.starts_with(&start)), "{start}\n{all:?}");
        }
        assert_eq!(all.len(), 11, "{all:?}");
        let mut two = ospf2(json!({}), json!({}));
        let first = two["interfaces"][0].clone();
        two["interfaces"].as_array_mut().unwrap().push(first);
        let why = "devices[0].ospfv2.interfaces[1]: not supported: a second interface";
        assert!(problems("ospfv2", two)[0].starts_with(why));
        let other = ospf2(json!({}), json!({ "ipv4_name": "i6" }));
        let why =
            "devices[0].ospfv2.interfaces[0].ipv4_name: the device has no IPv4 address \"i6\"";
        assert_eq!(problems("ospfv2", other), [why]);
    }

    #[test]
    fn ospf3_has_an_instance_on_an_address_of_ipv6() {
        let instance = json!({
            "name": "r", "store_lsa": true,
            "interfaces": [{
                "name": "x", "ipv6_name": "i6", "instance_id": 3, "options": { "r_bit": true },
                "network_type": { "choice": "broadcast", "broadcast": { "priority": 9 } },
                "advanced": { "link_metric": 8 },
            }],
            "v6_routes": [
                { "name": "a", "metric": 5, "addresses": [{ "address": "2001:db8::1" }] },
            ],
        });
        let info = router("ospfv3", json!({ "instances": [instance] }));
        let settings = &info.settings;
        assert_eq!((info.protocol, info.learns), (Protocol::Ospf3, true));
        assert_eq!(settings.ipv6, Some(("fd00::1".parse().unwrap(), 64)));
        assert_eq!((settings.ospf, settings.ospf3), (None, Some(BACKBONE)));
        assert_eq!(settings.router_id, Ipv4Addr::new(10, 0, 0, 1), "it is automatic");
        let igp = &settings.igp;
        assert_eq!((igp.instance, igp.priority, igp.cost), (3, Some(9), Some(8)));
        let prefixes: Vec<_> = settings.groups[0].prefixes().map(|it| it.to_string()).collect();
        assert_eq!(prefixes, ["2001:db8::/64"]);

        let mut host = instance.clone();
        host["v6_routes"][0]["addresses"][0]["prefix"] = json!(128);
        let why =
            "devices[0].ospfv3.instances[0].v6_routes[0].metric: not supported: BIRD announces";
        assert!(problems("ospfv3", json!({ "instances": [host] }))[0].starts_with(why));
        host["v6_routes"][0]["metric"] = json!(0);
        let warnings = ok("ospfv3", json!({ "instances": [host] })).warnings;
        assert!(!warnings.iter().any(|warning| warning.contains("metric")), "{warnings:?}");

        let mut two = json!({ "instances": [instance, instance] });
        two["instances"][1]["name"] = json!("s");
        two["instances"][1]["v6_routes"] = json!([]);
        two["instances"][1]["interfaces"][0]["options"] = json!({ "v6_bit": false });
        let all = problems("ospfv3", two);
        let start = "devices[0].ospfv3.instances[1]";
        assert!(all[0].starts_with(&format!("{start}.interfaces[0].options.v6_bit")), "{all:?}");
        assert!(all[1].starts_with(&format!("{start}: not supported: a second")), "{all:?}");
        let none = problems("ospfv3", json!({ "instances": [] }));
        assert!(none[0].starts_with("devices[0].ospfv3.instances: missing"), "{none:?}");
    }

    #[test]
    fn is_is_has_the_settings_of_its_level() {
        let more = json!({
            "basic": {
                "hostname": "r-1", "enable_wide_metric": false, "learned_lsp_filter": true,
                "ipv4_te_router_id": "10.0.0.1",
            },
            "advanced": {
                "area_addresses": ["490001"], "lsp_refresh_rate": 900, "enable_attached_bit": false,
                "enable_hello_padding": false,
            },
            "v4_routes": [
                { "name": "a", "link_metric": 63, "addresses": [{ "address": "10.1.0.0" }] },
            ],
            "v6_routes": [{ "name": "b", "addresses": [{ "address": "2001:db8::" }] }],
        });
        let interface = json!({
            "level_type": "level_1", "network_type": "point_to_point", "metric": 20,
            "l1_settings": { "priority": 3, "hello_interval": 2, "dead_interval": 6 },
            "advanced": { "auto_adjust_supported_protocols": true },
        });
        let translated = ok("isis", isis(more, interface));
        assert_eq!(translated.warnings.len(), 3, "{:?}", translated.warnings);
        let RouterInfo { settings, learns, protocol, .. } = &translated.routers[0];
        assert_eq!((*learns, *protocol, settings.daemon), (true, Protocol::Isis, Daemon::Frr));
        let expected = Isis {
            area: "49.0001".into(),
            levels: [true, false],
            metric: 20,
            point_to_point: true,
        };
        assert_eq!(settings.isis, Some(expected));
        assert_eq!((settings.hello, settings.dead), (Nanos(2 * SECOND.0), Nanos(6 * SECOND.0)));
        assert!(settings.ipv4.is_some() && settings.ipv6.is_some());
        let interior = |metric| IgpRoutes { origin: RouteOrigin::Interior, metric };
        let igp = Igp {
            system_id: Some([0x64, 0, 0, 0, 0, 1]),
            narrow: true,
            priority: Some(3),
            hostname: Some("r-1".into()),
            lifetimes: Some((900, 1_200)),
            unpadded: true,
            routes: vec![interior(63), interior(0)],
            ..Igp::default()
        };
        assert_eq!(settings.igp, igp);
        let names: Vec<_> = settings.groups.iter().map(|group| &*group.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn settings_that_frr_lacks_are_refused_with_their_paths() {
        let more = json!({
            "system_id": "64", "router_auth": {}, "instance": {},
            "basic": { "hostname": "a b", "enable_wide_metric": false },
            "advanced": {
                "area_addresses": ["4900"], "lsp_refresh_rate": 901, "csnp_interval": 1,
            },
        });
        let interface = json!({
            "level_type": "level_1_2", "authentication": { "auth_type": "md5" },
            "l1_settings": { "dead_interval": 31 }, "multi_topology_ids": [{}],
            "advanced": { "p2p_hellos_to_unicast_mac": true },
        });
        let all = problems("isis", isis(more, interface));
        for start in [
            "system_id: expected 12 hex digits",
            "router_auth: not supported",
            "instance: not supported",
            "basic.hostname: expected",
            "advanced.area_addresses[0]: expected",
            "advanced.lsp_refresh_rate: found 901, expected at most 900",
            "advanced.csnp_interval: not supported: FRR's own value is used; try 10000",
            "interfaces[0].authentication: not supported",
            "interfaces[0].multi_topology_ids: not supported",
            "interfaces[0].l1_settings.dead_interval: expected 2 to 100 times",
            "interfaces[0].l2_settings: not supported: both levels have the same",
            "interfaces[0].advanced.p2p_hellos_to_unicast_mac: not supported",
        ] {
            let start = format!("devices[0].isis.{start}");
            assert!(all.iter().any(|one| one.starts_with(&start)), "{start}\n{all:?}");
        }
        let ranges = json!({ "basic": { "enable_wide_metric": false }, "v4_routes": [
            { "name": "a", "link_metric": 64, "addresses": [{ "address": "10.1.0.0" }] },
            { "name": "b", "origin_type": "external", "redistribution_type": "down",
                "addresses": [{ "address": "10.2.0.0" }] },
        ] });
        let all = problems("isis", isis(ranges, json!({})));
        for (found, start) in all.iter().zip([
            "v4_routes[0].link_metric: found 64",
            "v4_routes[1].origin_type: not supported",
            "v4_routes[1].redistribution_type: not supported",
        ]) {
            assert!(found.starts_with(&format!("devices[0].isis.{start}")), "{found}");
        }
        assert_eq!(all.len(), 3, "{all:?}");
    }

    #[test]
    fn flows_name_ranges_of_routers() {
        let range = |address: &str, name: &str| {
            let addresses = [json!({ "address": address, "prefix": 24 })];
            json!({ "name": name, "addresses": addresses })
        };
        let ranges = [range("203.0.113.0", "a"), range("198.51.100.0", "b")];
        let Config(mut config) = config("ospfv2", ospf2(json!({ "v4_routes": ranges }), json!({})));
        config["devices"][0]["ethernets"][0]["ipv4_addresses"][0]["gateway_mac"] =
            json!({ "choice": "value", "value": "02:00:00:00:00:09" });
        config["flows"] = json!([{
            "name": "f", "packet": [{ "choice": "ethernet" }, { "choice": "ipv4" }],
            "tx_rx": { "choice": "device", "device": { "tx_names": ["a"], "rx_names": ["b"] } },
        }]);
        let translated = translate(&Config(config)).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(translated.flows[0].streams.len(), 1);
        let packet = format!("{:?}", translated.profile.streams[0]);
        // The gateway of the device, and the first addresses of the ranges.
        for part in ["[2, 0, 0, 0, 0, 9, 2, ", " 203, 0, 113, 0, 198, 51, 100, 0, "] {
            assert!(packet.contains(part), "{part}\n{packet}");
        }
    }
}
