//! Topologies of labs as text: the tables, and the checks across nodes and links.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
};

use squall_units::{Nanos, Rate, RateUnit, suggest};

use super::{
    Format, finished,
    flows::OneOrMore,
    hosts::{is_of_a_host, is_of_a_host6, read, read_all},
    node::Node,
    parse_tree,
    read::{Bounded, Files, Place, Placed, Read, Reader, table, words},
    routers::{area, neighbor},
    text_of,
};
use crate::{
    At, Diagnostic, Diagnostics, LabDaemon, LabEnd, LabLink, LabNode, LabRole, LabRoute, Located,
    Topology,
};

table! {
    /// A lab of hosts, routers and bridges, each in a network namespace.
    TopologyTable {
        /// Hosts, routers and bridges.
        node: Vec<NodeTable>,
        /// Links between nodes, or between a node and a port.
        link: Vec<LinkTable>,
    }
}

table! {
    /// A host, a router or a bridge.
    NodeTable {
        /// Unique: at most 15 letters, digits, "-" and "_".
        name: String,
        /// host, router or bridge.
        kind: NodeKind,
        /// Hosts: next hop of the default route, at most one for each IP version.
        gateway: OneOrMore,
        /// Routers: static routes: "10.0.4.0/24 via 10.0.12.2", with more than one "via ..." for
        /// several ways at once, "metric 20" for a second choice, or "blackhole" in place of "via".
        routes: OneOrMore,
        /// Bridges: a multicast group goes only to ports with members (RFC 4541). Default true.
        snooping: bool,
        /// Bridges: the bridge sends IGMP queries. Default false.
        querier: bool,
        /// Settings of the kernel: ["net.ipv4.tcp_ecn=1"].
        sysctl: OneOrMore,
        /// Routers: a configuration file of BIRD, relative to this file, in place of the protocols
        /// here.
        config: String,
        /// Routers: BGP (RFC 4271) in this autonomous system.
        asn: Bounded<1, 4_294_967_295>,
        /// Neighbors of BGP: "10.0.0.2 as 65002"; without a number, they are in the same system.
        neighbors: OneOrMore,
        /// Routers: OSPFv2 (RFC 2328) in this area, on all interfaces.
        ospf: Located,
        /// Routers: OSPFv3 (RFC 5340) in this area, on all interfaces.
        ospf3: Located,
        /// Interval of OSPF's hello packets, whole seconds. Default 1 s.
        hello: Nanos,
        /// Time after which a silent neighbor of OSPF is gone, whole seconds. Default four
        /// intervals.
        dead: Nanos,
        /// Routers: RIPv2 (RFC 2453), on all interfaces.
        rip: bool,
        /// Routers: RIPng (RFC 2080), on all interfaces.
        ripng: bool,
        /// Interval of RIP's updates, whole seconds. Default 30 s.
        rip_update: Nanos,
        /// BFD (RFC 5880) for the neighbors of BGP and OSPF, with packets at this interval.
        bfd: Nanos,
    }
}

table! {
    /// A link between two nodes, or between a node and a port.
    LinkTable {
        /// Both ends: ["r1:eth0 10.0.12.1/24", "r2:eth0 10.0.12.2/24"]: node, interface and
        /// addresses. An end without a node is a port for Squall: "veth-a".
        ends: Vec<Located>,
        /// The longest IP packet, octets. Default 1500.
        mtu: Bounded<68, 65_535>,
        /// Rate of both nodes into the link: "10 Mbps". Default: no limit.
        rate: Rate,
        /// Queue discipline of the packets that wait for `rate`. Default pfifo.
        queue: String,
        /// The most packets that wait for `rate`. Default: that of the discipline.
        limit: Bounded<1, 1_000_000>,
        /// Faults of both directions, as those of a port: "delay=5ms,drop=1/100".
        faults: Located,
        /// OSPF's cost of the link. Default 10.
        cost: Bounded<1, 65_535>,
    }
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Host,
    Router,
    Bridge,
}

words! {
    NodeKind, "a kind of node": "host" => Host, "router" => Router, "bridge" => Bridge,
}

/// Each node is a process, and each link a pair of interfaces.
const MOST_NODES: usize = 200;
const MOST_LINKS: usize = 400;
const MOST_ADDRESSES: usize = 16;
/// `IFNAMSIZ` less the final zero.
const NAME_LEN: usize = 15;

impl Topology {
    /// Reads the topology in a file. The extension determines the format.
    ///
    /// # Errors
    /// All errors, with their positions.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, Diagnostics> {
        let path = path.as_ref();
        let (text, format) = text_of(path)?;
        Self::parse_with(&text, &path.to_string_lossy(), format, &|path| crate::read_text(path))
    }

    /// Reads a topology. `origin` is its name in messages; `files` reads the files that it names.
    ///
    /// # Errors
    /// As [`Topology::load`].
    pub fn parse_with(
        text: &str,
        origin: &str,
        format: Format,
        files: &Files<'_>,
    ) -> Result<Self, Diagnostics> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut cx = Reader::new(origin, text, files);
        let topology = match parse_tree(text, format) {
            Ok(root) => read_topology(&root, &mut cx),
            Err(mistakes) => {
                mistakes.into_iter().for_each(|mistake| cx.syntax(mistake.at, mistake.message));
                None
            }
        };
        finished(topology, cx)
    }
}

fn read_topology(root: &Node, cx: &mut Reader<'_>) -> Option<Topology> {
    let table = TopologyTable::read(root, cx)?;
    let place = table.place.clone();
    let tables = table.node.map_or_else(Vec::new, |tables| tables.value);
    let links = table.link.map_or_else(Vec::new, |tables| tables.value);
    for (count, most, what) in
        [(tables.len(), MOST_NODES, "nodes"), (links.len(), MOST_LINKS, "links")]
    {
        if count > most {
            cx.report(&place, &format!("has {count} {what}; a lab has at most {most}"), &[]);
            return None;
        }
    }
    if tables.is_empty() {
        let hint = "try [[node]] with name = \"r1\" and kind = \"router\"";
        cx.report(&place, "has no node", &[hint.into()]);
        return None;
    }
    let mut found: Vec<PlacedNode> = Vec::new();
    for table in tables {
        let Some(placed) = node(table, cx) else { continue };
        if found.iter().any(|before| before.node.name == placed.node.name) {
            let what = format!("= {:?} is already the name of another node", placed.node.name);
            cx.report(&placed.name, &what, &[]);
        }
        found.push(placed);
    }
    // Without all of its nodes, each link to a missing one would be another error.
    if !cx.mistakes.is_empty() {
        return None;
    }
    let nodes: Vec<LabNode> = found.iter().map(|placed| placed.node.clone()).collect();
    let mut topology = Topology { origin: cx.origin().to_owned(), nodes, links: Vec::new() };
    let mut ends = Vec::new();
    for (number, table) in links.into_iter().enumerate() {
        if let Some((read, places)) = link(number, table, &topology, cx) {
            ends.extend(places);
            topology.links.push(read);
        }
    }
    if cx.mistakes.is_empty() {
        check_interfaces(&topology, &ends, cx);
        check_addresses(&topology, &ends, cx);
        check_next_hops(&topology, &found, cx);
    }
    Some(topology)
}

/// A node, with the places of its name and of the key that has its next hops.
struct PlacedNode {
    node: LabNode,
    name: Place,
    next_hops: Place,
}

fn node(mut table: NodeTable, cx: &mut Reader<'_>) -> Option<PlacedNode> {
    let place = table.place.clone();
    cx.need(&place, &table.given, "name", "name = \"r1\"");
    cx.need(&place, &table.given, "kind", "kind = \"host\", \"router\" or \"bridge\"");
    let name = table.name.take()?;
    let kind = table.kind.take()?.value;
    if !is_name(&name.value) {
        let what = format!("= {:?} is not a name of a node", name.value);
        cx.report(&name.place, &what, &[NAME.to_owned()]);
        return None;
    }
    let mut next_hops = name.place.clone();
    if let Some(routes) = &table.routes {
        next_hops = routes.place.clone();
    }
    if let Some(gateway) = &table.gateway {
        next_hops = gateway.place.clone();
    }
    let sysctls = read_all(table.sysctl.take(), cx, sysctl, "a setting of the kernel", SYSCTL);
    let role = match kind {
        NodeKind::Host => {
            cx.only(&place, &table.given, "kind = \"host\"", HOST_KEYS);
            let parse = |text: &str| text.parse().ok();
            let gateways = read_all(table.gateway.take(), cx, parse, "an address", GATEWAY);
            let of_version =
                |v4: bool| gateways.iter().filter(|one: &&IpAddr| one.is_ipv4() == v4).count();
            if of_version(true) > 1 || of_version(false) > 1 {
                cx.report(&next_hops, "has two addresses of one IP version", &[GATEWAY.into()]);
            }
            LabRole::Host { gateways }
        }
        NodeKind::Bridge => {
            cx.only(&place, &table.given, "kind = \"bridge\"", BRIDGE_KEYS);
            LabRole::Bridge {
                snooping: table.snooping.take().is_none_or(|snooping| snooping.value),
                querier: table.querier.take().is_some_and(|querier| querier.value),
            }
        }
        NodeKind::Router => {
            cx.only(&place, &table.given, "kind = \"router\"", ROUTER_KEYS);
            let routes = read_all(table.routes.take(), cx, route, "a route", ROUTE);
            let twice = routes.iter().enumerate().find(|(at, one)| {
                let same =
                    |before: &LabRoute| before.prefix == one.prefix && before.metric == one.metric;
                routes[..*at].iter().any(same)
            });
            if let Some((_, LabRoute { prefix: (address, length), .. })) = twice {
                let what =
                    format!("has two routes to {address}/{length}; only the last would be used");
                let hint = "try one route with several \"via\", or another metric";
                cx.report(&next_hops, &what, &[hint.into()]);
            }
            let daemon = daemon(&mut table, &place, cx);
            if daemon.is_some() && routes.iter().any(|route| route.metric.is_some()) {
                let hint = "try cost in [[link]], or a router without protocols";
                let what = "has a metric, which BIRD's static routes do not have";
                cx.report(&next_hops, what, &[hint.into()]);
            }
            if daemon.as_ref().is_some_and(|one| one.configuration.is_some()) && !routes.is_empty()
            {
                let hint = "try protocol static in the configuration";
                let what = "has no effect with a configuration of BIRD";
                cx.report(&next_hops, what, &[hint.into()]);
            }
            LabRole::Router { routes, daemon }
        }
    };
    let node = LabNode { name: name.value, role, sysctls };
    Some(PlacedNode { node, name: name.place, next_hops })
}

const HOST_KEYS: &[&str] = &["name", "kind", "gateway", "sysctl"];
const BRIDGE_KEYS: &[&str] = &["name", "kind", "snooping", "querier", "sysctl"];
const ROUTER_KEYS: &[&str] = &[
    "name",
    "kind",
    "routes",
    "sysctl",
    "config",
    "asn",
    "neighbors",
    "ospf",
    "ospf3",
    "hello",
    "dead",
    "rip",
    "ripng",
    "rip_update",
    "bfd",
];
/// Keys that a configuration of its own replaces.
const PROTOCOL_KEYS: [&str; 10] =
    ["asn", "neighbors", "ospf", "ospf3", "hello", "dead", "rip", "ripng", "rip_update", "bfd"];

const NAME: &str = "expected at most 15 letters, digits, '-' and '_'";
const GATEWAY: &str = r#"try gateway = "10.0.1.1" or ["10.0.1.1", "2001:db8:1::1"]"#;
const ROUTE: &str = r#"try "10.0.4.0/24 via 10.0.12.2" or "198.51.100.0/24 blackhole""#;
const SYSCTL: &str = r#"try sysctl = "net.ipv4.tcp_ecn=1""#;
const AREA: &str = r#"try "0.0.0.0" or "1""#;
const NEIGHBOR: &str = r#"try "10.0.0.2 as 65002", or "10.0.0.2" in the same system"#;
const END: &str = r#"try "r1:eth0 10.0.12.1/24", or "veth-a" for a port of Squall"#;

/// The daemon of a router that speaks a protocol or has a configuration.
fn daemon(table: &mut NodeTable, place: &Place, cx: &mut Reader<'_>) -> Option<LabDaemon> {
    let area = |given, cx: &mut Reader<'_>| {
        read(given, cx, area, "an area", AREA).map(|(area, _): (Ipv4Addr, _)| area)
    };
    if let Some(config) = table.config.take() {
        if let Some(key) = PROTOCOL_KEYS.into_iter().find(|key| table.given.has(key)) {
            let what = format!("has {key}, which has no effect with a configuration of BIRD");
            cx.report(place, &what, &["try without config, or without the protocols".into()]);
        }
        let path = cx.resolve(&config.value);
        return match (cx.files)(Path::new(&path)) {
            Ok(text) => Some(LabDaemon { configuration: Some(text), ..LabDaemon::default() }),
            Err(error) => {
                let what = format!("= {:?} cannot be read: {error}", config.value);
                cx.report(&config.place, &what, &[]);
                None
            }
        };
    }
    let mut seconds = |given: Option<Placed<Nanos>>, default: Nanos| {
        let Some(Placed { value, place }) = given else { return default };
        if value.0 == 0 || value.0 % Nanos::SECOND.0 != 0 {
            cx.report(&place, "is not in whole seconds", &[r#"try "1 s""#.into()]);
        }
        value
    };
    let hello = seconds(table.hello.take(), Nanos::SECOND);
    let dead = seconds(table.dead.take(), Nanos(hello.0.saturating_mul(4)));
    let rip_update = seconds(table.rip_update.take(), Nanos(30 * Nanos::SECOND.0));
    let asn = table.asn.take().map(|asn| u32::from(asn.value));
    let neighbors = read_all(table.neighbors.take(), cx, neighbor, "a neighbor of BGP", NEIGHBOR);
    let daemon = LabDaemon {
        configuration: None,
        asn,
        neighbors,
        ospf: area(table.ospf.take(), cx),
        ospf3: area(table.ospf3.take(), cx),
        hello,
        dead,
        rip: table.rip.take().is_some_and(|rip| rip.value),
        ripng: table.ripng.take().is_some_and(|ripng| ripng.value),
        rip_update,
        bfd: table.bfd.take().map(|bfd| bfd.value),
    };
    if daemon.asn.is_some() == daemon.neighbors.is_empty() {
        cx.report(
            place,
            "has an autonomous system without neighbors, or neighbors without one",
            &[r#"try asn = 65001 and neighbors = ["10.0.0.2 as 65002"]"#.into()],
        );
    }
    let speaks = daemon.asn.is_some()
        || daemon.ospf.is_some()
        || daemon.ospf3.is_some()
        || daemon.rip
        || daemon.ripng;
    let times = ["hello", "dead", "rip_update", "bfd"];
    if let Some(key) = times.into_iter().find(|key| !speaks && table.given.has(key)) {
        let hint = r#"try ospf = "0.0.0.0", rip = true, or asn and neighbors"#;
        cx.report(place, &format!("has {key}, but speaks no protocol"), &[hint.into()]);
    }
    speaks.then_some(daemon)
}

fn is_name(text: &str) -> bool {
    (1..=NAME_LEN).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
        && !text.starts_with('-')
}

/// The name of a setting below `net.`, and its value.
fn sysctl(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let mut parts = key.strip_prefix("net.")?.split(['.', '/']);
    let is_part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
    };
    (parts.all(is_part) && !value.is_empty() && !value.contains(|c: char| c.is_control()))
        .then(|| (key.to_owned(), value.to_owned()))
}

/// `10.0.4.0/24 via 10.0.12.2 via 10.0.13.3 metric 20`
fn route(text: &str) -> Option<LabRoute> {
    let mut words = text.split_ascii_whitespace();
    let prefix = words.next()?;
    let (mut next_hops, mut metric, mut drops): (Vec<IpAddr>, _, _) = (Vec::new(), None, false);
    while let Some(word) = words.next() {
        match word {
            "via" => next_hops.push(words.next()?.parse().ok()?),
            "metric" => metric = Some(words.next()?.parse().ok().filter(|metric| *metric > 0)?),
            "blackhole" => drops = true,
            _ => return None,
        }
    }
    if drops != next_hops.is_empty() {
        return None;
    }
    let prefix = match (prefix, next_hops.first()) {
        ("default", Some(IpAddr::V4(_))) => (Ipv4Addr::UNSPECIFIED.into(), 0),
        ("default", Some(IpAddr::V6(_))) => (Ipv6Addr::UNSPECIFIED.into(), 0),
        _ => network(prefix)?,
    };
    let same = next_hops.iter().all(|hop| hop.is_ipv4() == prefix.0.is_ipv4());
    same.then_some(LabRoute { prefix, next_hops, metric })
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    (length <= width(address) && host_bits(address, length) == 0).then_some((address, length))
}

/// The address of an interface.
fn interface_address(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let of_a_host = match address {
        IpAddr::V4(address) => is_of_a_host(address),
        IpAddr::V6(address) => is_of_a_host6(address),
    };
    if !of_a_host || !(1..=width(address)).contains(&length) {
        return None;
    }
    // The first and the last address of an IPv4 network are not those of hosts, except with 31 bits
    // (RFC 3021). An IPv6 network without host bits is that of all its routers (RFC 4291 2.6.1).
    let (host, free) = (host_bits(address, length), width(address) - length);
    let is_last = address.is_ipv4() && free > 1 && host == (1 << free) - 1;
    (free < 2 || (host != 0 && !is_last)).then_some((address, length))
}

/// Length of an address, bits.
fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// The bits of `address` after the first `length` ones.
fn host_bits(address: IpAddr, length: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    match width(address) - length.min(width(address)) {
        128 => bits,
        free => bits & ((1 << free) - 1),
    }
}

/// Whether `other` is in the network of the interface address.
fn contains((address, length): (IpAddr, u8), other: IpAddr) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let network = |address: IpAddr| bits(address) - host_bits(address, length);
    address.is_ipv4() == other.is_ipv4() && network(address) == network(other)
}

/// Where an end of a link is in the file.
struct EndAt {
    link: usize,
    at: At,
    text: String,
}

fn wrong(end: &EndAt, what: &str, hint: &str, cx: &mut Reader<'_>) {
    if cx.is_full() {
        return;
    }
    let message = format!("link {}: end {:?} {what}", end.link + 1, end.text);
    let details = if hint.is_empty() { Vec::new() } else { vec![hint.to_owned()] };
    let path = format!("link[{}].ends", end.link);
    let origin = cx.origin().to_owned();
    cx.mistakes.push(Diagnostic { origin, path, ..Diagnostic::at(end.at, message, details) });
}

fn link(
    number: usize,
    mut table: LinkTable,
    topology: &Topology,
    cx: &mut Reader<'_>,
) -> Option<(LabLink, [EndAt; 2])> {
    let place = table.place.clone();
    cx.need(&place, &table.given, "ends", r#"ends = ["r1:eth0", "r2:eth0"]"#);
    if let Some(rate) = &table.rate
        && (!matches!(rate.value.unit, RateUnit::BpsL2) || rate.value.value() < 1000.0)
    {
        let hint = "try rate = \"10 Mbps\"";
        let what = "is not a bit rate on layer 2 of at least 1 kbps";
        cx.report(&rate.place, what, &[hint.into()]);
    }
    if let Some(queue) = &table.queue
        && (queue.value.is_empty()
            || !queue.value.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'))
    {
        let what = format!("= {:?} is not a queue discipline", queue.value);
        cx.report(&queue.place, &what, &["try queue = \"fq_codel\"".into()]);
    }
    if !table.given.has("rate") && (table.given.has("queue") || table.given.has("limit")) {
        let hint = "try rate = \"10 Mbps\"";
        cx.report(&place, "has a queue, but no rate for which packets wait", &[hint.into()]);
    }
    let Placed { value: given, place: ends } = table.ends.take()?;
    let given: Result<[Located; 2], _> = given.try_into();
    let Ok(given) = given else {
        let hint = r#"try ends = ["r1:eth0", "r2:eth0"]"#;
        cx.report(&ends, "does not have two ends", &[hint.into()]);
        return None;
    };
    let places = given.map(|Located { text, at }| EndAt { link: number, at, text });
    let [Some(a), Some(b)] = places.each_ref().map(|place| end(place, topology, cx)) else {
        return None;
    };
    if a.node == b.node {
        let what = match a.node {
            Some(_) => "is at the same node as the other end",
            None => "is a port, as the other end",
        };
        wrong(&places[1], what, "try a link between two nodes", cx);
        return None;
    }
    let mtu = table.mtu.take().map(|mtu| (u32::from(mtu.value), mtu.place));
    let has_ipv6 = [&a, &b].iter().any(|end| end.addresses.iter().any(|one| one.0.is_ipv6()));
    if let Some((_, place)) = mtu.as_ref().filter(|(mtu, _)| has_ipv6 && *mtu < 1280) {
        let hint = "try mtu = 1280";
        cx.report(place, "is less than 1280, the least of IPv6 (RFC 8200)", &[hint.into()]);
    }
    let link = LabLink {
        ends: [a, b],
        mtu: mtu.map_or(1500, |(mtu, _)| mtu),
        rate: table.rate.take().map(|rate| rate.value),
        queue: table.queue.take().map(|queue| queue.value),
        limit: table.limit.take().map(|limit| u32::from(limit.value)),
        faults: table.faults.take().map(|faults| faults.value),
        cost: table.cost.take().map(|cost| u16::from(cost.value)),
    };
    Some((link, places))
}

fn end(place: &EndAt, topology: &Topology, cx: &mut Reader<'_>) -> Option<LabEnd> {
    let mut words = place.text.split_ascii_whitespace();
    let Some(name) = words.next() else {
        wrong(place, "is empty", END, cx);
        return None;
    };
    let find = |name: &str| topology.nodes.iter().position(|node| node.name == name);
    let (node, interface) = match name.split_once(':') {
        None if find(name).is_some() => {
            let hint = format!("try \"{name}:eth0\"");
            wrong(place, "is a node, but has no interface", &hint, cx);
            return None;
        }
        None => (None, name),
        Some((node, interface)) => match find(node) {
            Some(found) => (Some(found), interface),
            None => {
                let hint = suggest(node, topology.nodes.iter().map(|node| node.name.as_str()));
                wrong(place, &format!("has the unknown node {node:?}"), &hint, cx);
                return None;
            }
        },
    };
    let is_bridge = node.is_some_and(|node| is_bridge(topology, node));
    if interface.len() > NAME_LEN {
        let what = format!(
            "has an interface of {} octets; Linux allows {NAME_LEN}: {interface:?}",
            interface.len()
        );
        wrong(place, &what, "try \"eth0\"", cx);
        return None;
    }
    // `all` and `default` have settings of their own in /proc/sys.
    let taken = ["lo", "all", "default"].contains(&interface) || (is_bridge && interface == "br0");
    if !is_name(interface) || taken {
        wrong(place, &format!("has no name of an interface: {interface:?}"), NAME, cx);
        return None;
    }
    let mut addresses = Vec::new();
    for text in words {
        let Some(address) = interface_address(text) else {
            let what = format!("has {text:?}, which is not an address of a host with its prefix");
            wrong(place, &what, r#"try "10.0.12.1/24" or "2001:db8::1/64""#, cx);
            return None;
        };
        addresses.push(address);
    }
    if addresses.len() > MOST_ADDRESSES {
        wrong(place, &format!("has more than {MOST_ADDRESSES} addresses"), "", cx);
        return None;
    }
    if !addresses.is_empty() && (node.is_none() || is_bridge) {
        let (what, hint) = match node {
            None => ("is a port, which has no addresses", "try [[host]] in a profile"),
            Some(_) => ("is on a bridge, which has no addresses", "try the other end"),
        };
        wrong(place, what, hint, cx);
        return None;
    }
    Some(LabEnd { node, interface: interface.to_owned(), addresses })
}

fn is_bridge(topology: &Topology, node: usize) -> bool {
    matches!(topology.nodes[node].role, LabRole::Bridge { .. })
}

/// Each interface is at the end of one link.
fn check_interfaces(topology: &Topology, places: &[EndAt], cx: &mut Reader<'_>) {
    let mut seen = std::collections::HashSet::new();
    for (end, place) in topology.ends().zip(places) {
        if !seen.insert((end.node, end.interface.as_str())) {
            let what = "is already the end of another link";
            wrong(place, what, "try another interface, such as eth1", cx);
        }
    }
}

/// The number that represents a set, in which each number refers to another one or to itself.
fn root(parent: &mut [usize], mut of: usize) -> usize {
    while parent[of] != of {
        parent[of] = parent[parent[of]];
        of = parent[of];
    }
    of
}

/// Networks on layer 2: links that bridges connect are one. Numbers of networks, by link.
fn segments(topology: &Topology, places: &[EndAt], cx: &mut Reader<'_>) -> Vec<usize> {
    // The networks of the nodes, of which only those of bridges are used, then those of links.
    let mut parent: Vec<usize> = (0..topology.nodes.len() + topology.links.len()).collect();
    for (number, link) in topology.links.iter().enumerate() {
        let bridges: Vec<usize> = link
            .ends
            .iter()
            .filter_map(|end| end.node.filter(|node| is_bridge(topology, *node)))
            .map(|node| root(&mut parent, node))
            .collect();
        if let [a, b] = bridges[..]
            && a == b
        {
            let hint = "try without this link: the bridges have no spanning tree";
            wrong(&places[2 * number], "closes a loop of bridges", hint, cx);
        }
        for bridge in bridges {
            let link = root(&mut parent, topology.nodes.len() + number);
            parent[link] = root(&mut parent, bridge);
        }
    }
    (0..topology.links.len()).map(|link| root(&mut parent, topology.nodes.len() + link)).collect()
}

fn check_addresses(topology: &Topology, places: &[EndAt], cx: &mut Reader<'_>) {
    struct Given<'a> {
        segment: usize,
        node: Option<usize>,
        /// Number of the end.
        end: usize,
        name: String,
        address: (IpAddr, u8),
        place: &'a EndAt,
    }
    let segments = segments(topology, places, cx);
    let ends = topology.ends().zip(places).enumerate();
    let all: Vec<Given<'_>> = ends
        .flat_map(|(number, (end, place))| {
            let segment = segments[number / 2];
            end.addresses.iter().map(move |address| Given {
                segment,
                node: end.node,
                end: number,
                name: topology.end_name(end),
                address: *address,
                place,
            })
        })
        .collect();
    for (number, one) in all.iter().enumerate() {
        // Each further pair would make an error that is not shown.
        if cx.is_full() {
            return;
        }
        let (address, length) = one.address;
        for before in &all[..number] {
            let same = before.address.0 == address;
            if same && before.segment == one.segment {
                let what = format!("has {address}, which is already that of {}", before.name);
                wrong(one.place, &what, "try another address", cx);
            }
            let overlap =
                contains(before.address, address) || contains(one.address, before.address.0);
            if before.node == one.node && before.end != one.end && overlap {
                let what = format!(
                    "has {address}/{length}, which overlaps with {}/{} of {}",
                    before.address.0, before.address.1, before.name
                );
                wrong(one.place, &what, "try another network for one of the two links", cx);
            }
        }
        let others: Vec<&Given<'_>> = all[..number]
            .iter()
            .filter(|other| {
                other.segment == one.segment
                    && other.end != one.end
                    && other.address.0.is_ipv4() == address.is_ipv4()
            })
            .collect();
        let shares = |other: &&Given<'_>| {
            contains(one.address, other.address.0) && contains(other.address, address)
        };
        if let Some(first) = others.first()
            && !others.iter().any(shares)
        {
            let what = format!(
                "has {address}/{length}, which is in no network of the others there: {} has {}/{}",
                first.name, first.address.0, first.address.1
            );
            wrong(one.place, &what, "try an address of the same network", cx);
        }
    }
}

/// Each next hop is in a network of its node.
fn check_next_hops(topology: &Topology, nodes: &[PlacedNode], cx: &mut Reader<'_>) {
    for (number, PlacedNode { node, next_hops: place, .. }) in nodes.iter().enumerate() {
        let own: Vec<(IpAddr, u8)> = topology
            .ends()
            .filter(|end| end.node == Some(number))
            .flat_map(|end| end.addresses.iter().copied())
            .collect();
        let hops: Vec<IpAddr> = match &node.role {
            LabRole::Host { gateways } => gateways.clone(),
            LabRole::Router { routes, .. } => {
                routes.iter().flat_map(|route| route.next_hops.iter().copied()).collect()
            }
            LabRole::Bridge { .. } => continue,
        };
        for hop in hops {
            if !own.iter().any(|address| contains(*address, hop)) {
                let what = format!("has {hop}, which is in no network of node {:?}", node.name);
                let networks: Vec<String> =
                    own.iter().map(|(address, length)| format!("{address}/{length}")).collect();
                let hint = match networks[..] {
                    [] => "it has no addresses".to_owned(),
                    _ => format!("it has {}", networks.join(", ")),
                };
                cx.report(place, &what, &[hint]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SQUARE: &str = r#"
[[node]]
name = "h1"
kind = "host"
gateway = ["10.0.1.1", "2001:db8:1::1"]

[[node]]
name = "r1"
kind = "router"
routes = ["10.0.2.0/24 via 10.0.12.2", "10.0.2.0/24 via 10.0.13.2 metric 20", "::/0 blackhole"]

[[node]]
name = "r2"
kind = "router"
ospf = 0

[[node]]
name = "b"
kind = "bridge"
snooping = false

[[link]]
ends = ["h1:eth0 10.0.1.2/24 2001:db8:1::2/64", "r1:eth0 10.0.1.1/24 2001:db8:1::1/64"]

[[link]]
ends = ["r1:eth1 10.0.12.1/24", "r2:eth0 10.0.12.2/24"]
mtu = 9000
rate = "10 Mbps"
limit = 50
cost = 20

[[link]]
ends = ["r1:eth2 10.0.13.1/24", "b:p1"]
faults = "delay=5ms"

[[link]]
ends = ["b:p2", "veth-a"]
"#;

    fn parse(text: &str) -> Result<Topology, String> {
        Topology::parse_with(text, "lab.toml", Format::Toml, &|path| match path.to_str() {
            Some("r2.conf") => Ok("protocol device {}\n".into()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        })
        .map_err(|mistakes| mistakes.to_string())
    }

    #[test]
    fn nodes_and_links_become_values() {
        let topology = parse(SQUARE).unwrap();
        let names: Vec<_> = topology.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["h1", "r1", "r2", "b"]);
        let LabRole::Router { routes, daemon: None } = &topology.nodes[1].role else { panic!() };
        assert_eq!(routes[1].metric, Some(20));
        let nothing = (Ipv6Addr::UNSPECIFIED.into(), 0);
        assert_eq!((routes[2].prefix, routes[2].next_hops.len()), (nothing, 0));
        assert_eq!(route("default via 10.0.1.2"), route("0.0.0.0/0 via 10.0.1.2"));
        let LabRole::Router { daemon: Some(daemon), .. } = &topology.nodes[2].role else {
            panic!()
        };
        let area = Ipv4Addr::UNSPECIFIED;
        let dead = Nanos(4 * Nanos::SECOND.0);
        assert_eq!((daemon.ospf, daemon.hello, daemon.dead), (Some(area), Nanos::SECOND, dead));
        assert_eq!(topology.nodes[3].role, LabRole::Bridge { snooping: false, querier: false });
        let link = &topology.links[1];
        assert_eq!((link.mtu, link.limit, link.cost), (9000, Some(50), Some(20)));
        let faults = topology.links[2].faults.as_ref().map(|faults| faults.text.as_str());
        assert_eq!(faults, Some("delay=5ms"));
        let ends: Vec<_> = topology.ends().map(|end| topology.end_name(end)).collect();
        assert_eq!(ends[4..], ["r1:eth2", "b:p1", "b:p2", "veth-a"]);
    }

    #[test]
    fn a_configuration_of_the_daemon_is_read_with_the_file() {
        let text = "[[node]]\nname = \"r2\"\nkind = \"router\"\nconfig = \"r2.conf\"\n";
        let topology = parse(text).unwrap();
        let LabRole::Router { daemon: Some(daemon), .. } = &topology.nodes[0].role else {
            panic!()
        };
        assert_eq!(daemon.configuration.as_deref(), Some("protocol device {}\n"));
        let missing = parse(&text.replace("r2.conf", "r3.conf")).unwrap_err();
        let place = "lab.toml:4:10  node[0].config = \"r3.conf\" cannot be read";
        assert!(missing.starts_with(place), "{missing}");
        let both = parse(&format!("{text}rip = true\n")).unwrap_err();
        assert!(both.contains("has rip, which has no effect"), "{both}");
    }

    /// Text in [`SQUARE`], its replacement, the place of the error, and parts of the error's text.
    const MISTAKES: &[(&str, &str, &str, &str)] = &[
        ("kind = \"host\"", "kind = \"hots\"", "4:8", "did you mean \"host\"?"),
        ("name = \"r2\"", "name = \"r1\"", "", "is already the name of another node"),
        ("name = \"r2\"", "name = \"a-name-of-17-byte\"", "", "at most 15 letters"),
        ("\"h1:eth0", "\"h2:eth0", "23:9", "unknown node \"h2\""),
        ("\"h1:eth0", "\"h1:a-name-of-16-oct", "23:9", "16 octets; Linux allows 15"),
        ("\"b:p2\"", "\"b:p1\"", "37:9", "is already the end of another link"),
        ("\"b:p2\"", "\"b\"", "37:9", "try \"b:eth0\""),
        ("\"b:p2\"", "\"b:br0\"", "37:9", "no name of an interface"),
        ("\"b:p2\"", "\"veth-b\"", "37:19", "is a port, as the other end"),
        ("\"b:p2\"", "\"b:p2 10.0.9.1/24\"", "37:9", "bridge, which has no addresses"),
        ("\"veth-a\"", "\"veth-a 10.0.13.9/24\"", "37:17", "port, which has no addresses"),
        ("\"b:p2\", \"veth-a\"", "\"b:p2\", \"b:p3\"", "37:17", "is at the same node"),
        ("\"veth-a\"]", "\"veth-a\", \"x\"]", "37:8", "does not have two ends"),
        ("10.0.12.2/24\"]", "10.0.12.1/24\"]", "26:33", "already that of r1:eth1"),
        ("10.0.12.2/24\"]", "10.0.14.2/24\"]", "26:33", "in no network of the others there"),
        ("10.0.13.1/24", "10.0.1.9/25", "33:9", "overlaps with 10.0.1.1/24 of r1:eth0"),
        ("10.0.12.2/24\"]", "10.0.12.0/24\"]", "26:33", "not an address of a host"),
        ("10.0.12.2/24\"]", "10.0.12.255/24\"]", "26:33", "not an address of a host"),
        ("[\"10.0.1.1\"", "[\"10.0.3.1\"", "5:11", "10.0.3.1, which is in no network"),
        ("\"2001:db8:1::1\"]", "\"10.0.1.3\"]", "5:11", "two addresses"),
        ("via 10.0.13.2", "via 10.9.13.2", "10:10", "10.9.13.2, which is in no network"),
        ("via 10.0.13.2 metric", "via 2001:db8::1 metric", "10:10", "is not a route"),
        ("ospf = 0", "gateway = \"10.0.12.1\"", "15:1", "no effect with kind = \"router\""),
        ("ospf = 0", "hello = \"1 s\"", "12:1", "speaks no protocol"),
        ("ospf = 0", "ospf = 0\nhello = \"500 ms\"", "16:9", "whole seconds"),
        ("ospf = 0", "asn = 65001", "12:1", "without neighbors"),
        ("snooping = false", "sysctl = \"kernel.x=1\"", "20:10", "not a setting of the kernel"),
        ("rate = \"10 Mbps\"", "rate = \"10 kpps\"", "28:8", "not a bit rate"),
        ("rate = \"10 Mbps\"", "rate = \"10 Mbps l1\"", "28:8", "on layer 2"),
        ("rate = \"10 Mbps\"\n", "", "25:1", "no rate for which packets wait"),
        ("via 10.0.13.2 metric 20", "via 10.0.13.2", "10:10", "two routes to 10.0.2.0/24"),
        ("2001:db8:1::1/64\"]\n", "2001:db8:1::1/64\"]\nmtu = 1000\n", "24:7", "the least of IPv6"),
    ];

    #[test]
    fn mistakes_name_place_problem_and_remedy() {
        let mut wrong = String::new();
        for (from, to, place, text) in MISTAKES {
            assert!(SQUARE.contains(from), "{from}");
            let error = parse(&SQUARE.replacen(from, to, 1)).unwrap_err();
            let at = format!("lab.toml:{place}");
            if !error.lines().any(|line| line.starts_with(&at)) || !error.contains(text) {
                wrong += &format!("{to}: expected {place} {text:?} in\n{error}\n");
            }
        }
        assert!(wrong.is_empty(), "{wrong}");
        assert!(parse("").unwrap_err().contains("has no node"));
    }

    #[test]
    fn a_loop_of_bridges_is_refused() {
        let bridge = |name: &str| format!("[[node]]\nname = \"{name}\"\nkind = \"bridge\"\n");
        let link = |a: &str, b: &str| format!("[[link]]\nends = [\"{a}\", \"{b}\"]\n");
        let nodes = bridge("a") + &bridge("b") + &bridge("c");
        let chain = nodes + &link("a:1", "b:1") + &link("b:2", "c:1");
        assert!(parse(&chain).is_ok());
        let ring = chain + &link("c:2", "a:2");
        assert!(parse(&ring).unwrap_err().contains("closes a loop of bridges"));
    }

    #[test]
    fn addresses_at_a_bridge_are_in_one_network() {
        let node =
            |name: &str, kind: &str| format!("[[node]]\nname = \"{name}\"\nkind = \"{kind}\"\n");
        let link = |a: &str, b: &str| format!("[[link]]\nends = [\"{a}\", \"{b}\"]\n");
        let nodes = node("b", "bridge") + &node("h1", "host") + &node("h2", "host");
        let links = link("h1:eth0 10.0.1.1/24", "b:1") + &link("h2:eth0 10.0.1.2/24", "b:2");
        let text = nodes + &links;
        assert!(parse(&text).is_ok());
        let same = parse(&text.replace("10.0.1.2", "10.0.1.1")).unwrap_err();
        assert!(same.contains("already that of h1:eth0"), "{same}");
        let other = parse(&text.replace("10.0.1.2", "10.0.2.2")).unwrap_err();
        assert!(other.contains("in no network of the others there"), "{other}");
    }
}
