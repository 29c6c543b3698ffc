//! Routers as text: the table, and the values of [`crate::Router`] that are made from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos, parse_count};

use super::{
    flows::{OneOrMore, two_ports},
    hosts::{is_of_a_host, is_of_a_host6, prefix6, read, read_all},
    read::{Bounded, Place, Placed, Reader, table},
};
use crate::{At, BgpNeighbor, Located, Port, Routes};

table! {
    /// A router: a routing daemon (BIRD 2) in a network namespace of its own, whose interface is on a
    /// port. It has the frames of the port that are for its MAC address or for groups; test traffic
    /// does not reach it.
    RouterTable makes
    /// A routing daemon on a port.
    Router {
        name: String = String::new(),
        /// Index into [`crate::Profile::ports`].
        port: usize = 0,
        /// `None`: 02:54:NN:00:00:01, where NN is the number of the router.
        mac: Option<MacAddr> = None,
        ipv4: Option<(Ipv4Addr, u8)> = None,
        ipv6: Option<(Ipv6Addr, u8)> = None,
        /// `None`: the IPv4 address.
        router_id: Option<Ipv4Addr> = None,
        neighbors: Vec<BgpNeighbor> = Vec::new(),
        communities: Vec<(u16, u16)> = Vec::new(),
        ospf: Option<Ipv4Addr> = None,
        ospf3: Option<Ipv4Addr> = None,
        routes: Vec<Routes> = Vec::new(),
        at: At = At::default(),
    } from {
        /// Unique among routers; reports use it. Default "router 1" and so on.
        name: String,
        /// A name from [ports]. May be left out if there is only one.
        port: String,
        /// MAC address. Default 02:54:NN:00:00:01, where NN is the number of the router.
        mac: Located,
        /// Address with the length of its prefix: "10.0.0.1/24".
        ipv4: Located,
        /// Address with the length of its prefix: "2001:db8::1/64".
        ipv6: Located,
        /// Router ID of all protocols. Default: the IPv4 address; without one, 192.0.2.N.
        router_id: Located,
        /// Number of the autonomous system, for BGP (RFC 4271).
        asn: Bounded<1, 4_294_967_295> => Option<u64>,
        /// Neighbors of BGP: "10.0.0.2 as 65002"; without a number, they are in the same system.
        neighbors: OneOrMore,
        /// Hold time that BGP offers. Default 90 s.
        hold: Nanos => Option<Nanos>,
        /// Password of BGP's TCP connections (RFC 2385). Default: none.
        password: String => Option<String>,
        /// `MULTI_EXIT_DISC` of the routes that BGP announces. Default: none.
        med: Bounded<0, 4_294_967_295> => Option<u64>,
        /// Further copies of the own number in the AS path. Default 0.
        prepend: Bounded<0, 100> => u64 = 0,
        /// Communities (RFC 1997) of the routes that BGP announces: ["65001:100"]. Default: none.
        communities: OneOrMore,
        /// The router speaks OSPFv2 (RFC 2328) in this area: "0.0.0.0".
        ospf: Located,
        /// The router speaks OSPFv3 (RFC 5340) in this area: "0.0.0.0".
        ospf3: Located,
        /// Interval of OSPF's hello packets, whole seconds. Default 10 s.
        hello: Nanos => Option<Nanos>,
        /// Time after which a silent neighbor of OSPF is gone, whole seconds. Default four intervals.
        dead: Nanos => Option<Nanos>,
        /// The router speaks RIPv2 (RFC 2453). Default false.
        rip: bool => bool,
        /// The router speaks RIPng (RFC 2080). Default false.
        ripng: bool => bool,
        /// Interval of RIP's updates, whole seconds. Default 30 s.
        rip_update: Nanos => Option<Nanos>,
        /// The router watches the neighbors of BGP and OSPF by BFD (RFC 5880), with packets at this
        /// interval: "100 ms". Default: no BFD.
        bfd: Nanos => Option<Nanos>,
        /// Routes that the router announces by all its protocols: "198.51.100.0/24", or consecutive
        /// ones: "10.0.0.0/24 x 1000".
        routes: OneOrMore,
        /// A configuration file of BIRD, in place of all protocols and routes here. Its interface is
        /// eth0.
        config: String => Option<String>,
        /// false: the router is ignored. Default true.
        enabled: bool,
    }
}

pub(super) fn routers(
    tables: Option<Placed<Vec<RouterTable>>>,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Vec<Router> {
    let tables = tables.map_or_else(Vec::new, |tables| tables.value);
    let mut routers: Vec<Router> = Vec::new();
    for (number, table) in tables.into_iter().enumerate() {
        if table.enabled.as_ref().is_some_and(|enabled| !enabled.value) {
            continue;
        }
        let place =
            table.name.as_ref().map_or_else(|| table.place.clone(), |name| name.place.clone());
        let Some(router) = router(number, table, ports, cx) else { continue };
        if routers.iter().any(|before| before.name == router.name) {
            let what = format!("= {:?} is already the name of another router", router.name);
            cx.report(&place, &what, &[]);
        }
        routers.push(router);
    }
    routers
}

fn router(
    number: usize,
    mut table: RouterTable,
    ports: &[Port],
    cx: &mut Reader<'_>,
) -> Option<Router> {
    let at = cx.at(table.place.start);
    let place = table.place.clone();
    let (port, _) = two_ports(&table.port, &None, (&table.given, &table.place), ports, cx);
    let unicast = |text: &str| text.parse().ok().filter(|mac: &MacAddr| mac.0[0] & 1 == 0);
    let mac = read(table.mac.take(), cx, unicast, "the MAC address of an interface", MAC);
    let ipv4 = read(table.ipv4.take(), cx, prefix4, "an address with a prefix", IPV4);
    let ipv6 = read(table.ipv6.take(), cx, address6, "an IPv6 address with a prefix", IPV6);
    let id = |text: &str| text.parse().ok().filter(|id: &Ipv4Addr| !id.is_unspecified());
    let router_id = read(table.router_id.take(), cx, id, "a router ID", ROUTER_ID);
    let ospf = read(table.ospf.take(), cx, area, "an area", AREA);
    let ospf3 = read(table.ospf3.take(), cx, area, "an area", AREA);
    let neighbors = read_all(table.neighbors.take(), cx, neighbor, "a neighbor of BGP", NEIGHBOR);
    let communities = read_all(table.communities.take(), cx, community, "a community", COMMUNITY);
    let routes = read_all(table.routes.take(), cx, routes, "a range of routes", ROUTES);
    let name = table.name.take().map(|name| name.value);
    let router = Router {
        name: name.unwrap_or_else(|| format!("router {}", number + 1)),
        port: port?,
        mac: mac.map(|(mac, _)| mac),
        ipv4: ipv4.map(|(address, _)| address),
        ipv6: ipv6.map(|(address, _)| address),
        router_id: router_id.map(|(id, _)| id),
        neighbors,
        communities,
        ospf: ospf.map(|(area, _)| area),
        ospf3: ospf3.map(|(area, _)| area),
        routes,
        at,
        ..table.made()
    };
    check(&router, &place, cx);
    Some(router)
}

fn check(router: &Router, place: &Place, cx: &mut Reader<'_>) {
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(place, what, &[hint.to_owned()]);
        }
    };
    let igp = router.ospf.is_some() || router.ospf3.is_some() || router.rip || router.ripng;
    let speaks = router.asn.is_some() || igp;
    needs(router.ipv4.is_none() && router.ipv6.is_none(), "has no address", IPV4);
    needs(
        !speaks && router.config.is_none(),
        "speaks no protocol",
        r#"try asn = 65001 and neighbors = ["10.0.0.2 as 65002"], ospf = "0.0.0.0", rip = true, or config"#,
    );
    needs(
        (speaks || !router.routes.is_empty()) && router.config.is_some(),
        "has a configuration of its own, so protocols and routes here would be ignored",
        "try without config, or without the others",
    );
    needs(
        router.asn.is_some() == router.neighbors.is_empty(),
        "has an autonomous system without neighbors, or neighbors without one",
        r#"try asn = 65001 and neighbors = ["10.0.0.2 as 65002"]"#,
    );
    let lacks = |one: &BgpNeighbor| match one.address {
        IpAddr::V4(_) => router.ipv4.is_none(),
        IpAddr::V6(_) => router.ipv6.is_none(),
    };
    needs(
        router.neighbors.iter().any(lacks),
        "has a neighbor of an IP version of which it has no address",
        IPV6,
    );
    needs(
        (router.ospf.is_some() || router.rip) && router.ipv4.is_none(),
        "speaks OSPFv2 or RIPv2 without an IPv4 address",
        IPV4,
    );
    let quoted = |text: &String| text.contains('"') || text.contains(|c: char| c.is_control());
    needs(
        router.password.as_ref().is_some_and(quoted),
        "has a password with a quotation mark, which BIRD cannot read",
        "try another password, or config",
    );
    let whole = |time: &Option<Nanos>| {
        time.is_none_or(|time| time.0 > 0 && time.0.is_multiple_of(Nanos::SECOND.0))
    };
    let times = [&router.hold, &router.hello, &router.dead, &router.rip_update];
    needs(
        !times.into_iter().all(whole),
        "has a time of BGP, OSPF or RIP that is not in whole seconds",
        r#"try hello = "1 s""#,
    );
    let total: u64 = router.routes.iter().map(|routes| u64::from(routes.count)).sum();
    needs(
        total > MOST_ROUTES,
        &format!("announces {total} routes; at most {MOST_ROUTES} are possible"),
        ROUTES,
    );
}

/// BIRD needs about 260 octets for each.
const MOST_ROUTES: u64 = 10_000_000;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const IPV4: &str = r#"try ipv4 = "10.0.0.1/24""#;
const IPV6: &str = r#"try ipv6 = "2001:db8::1/64""#;
const ROUTER_ID: &str = r#"try router_id = "10.0.0.1""#;
const AREA: &str = r#"try "0.0.0.0" or "1""#;
const NEIGHBOR: &str = r#"try "10.0.0.2 as 65002", or "10.0.0.2" in the same system"#;
const COMMUNITY: &str = r#"try "65001:100""#;
const ROUTES: &str = r#"try "198.51.100.0/24" or "10.0.0.0/24 x 1000""#;

fn prefix4(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, length) = text.split_once('/')?;
    let length = length.parse().ok().filter(|length| (1..=32).contains(length))?;
    Some((address.parse().ok().filter(|address| is_of_a_host(*address))?, length))
}

fn address6(text: &str) -> Option<(Ipv6Addr, u8)> {
    prefix6(text).filter(|(address, _)| is_of_a_host6(*address))
}

/// An area of OSPF: in dotted form, or as a number.
fn area(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok().or_else(|| text.parse::<u32>().ok().map(Ipv4Addr::from_bits))
}

fn neighbor(text: &str) -> Option<BgpNeighbor> {
    let (address, asn) = match text.split_once(" as ") {
        Some((address, asn)) => (address, Some(asn.trim().parse().ok().filter(|asn| *asn > 0)?)),
        None => (text, None),
    };
    Some(BgpNeighbor { address: address.trim().parse().ok()?, asn })
}

fn community(text: &str) -> Option<(u16, u16)> {
    let (high, low) = text.split_once(':')?;
    Some((high.parse().ok()?, low.parse().ok()?))
}

fn routes(text: &str) -> Option<Routes> {
    let (prefix, count) = match text.split_once(" x ") {
        Some((prefix, count)) => (prefix, u32::try_from(parse_count(count.trim()).ok()?).ok()?),
        None => (text, 1),
    };
    let (first, length) = prefix.trim().split_once('/')?;
    let routes = Routes { first: first.parse().ok()?, length: length.parse().ok()?, count };
    is_valid(&routes).then_some(routes)
}

/// Whether all prefixes are in the address space, and host bits are 0.
fn is_valid(routes: &Routes) -> bool {
    let (bits, width) = match routes.first {
        IpAddr::V4(first) => (u128::from(first.to_bits()), 32),
        IpAddr::V6(first) => (first.to_bits(), 128),
    };
    let length = u32::from(routes.length);
    if length > width || routes.count == 0 {
        return false;
    }
    let most = u128::MAX >> (128 - width);
    match width - length {
        128 => bits == 0 && routes.count == 1,
        step => {
            let clear = bits & ((1 << step) - 1) == 0;
            clear && u128::from(routes.count - 1) <= (most - bits) >> step
        }
    }
}
