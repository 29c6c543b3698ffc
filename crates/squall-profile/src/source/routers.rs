//! Routers as text: the table, and the values of [`crate::Router`] that are made from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value as Json;
use squall_units::{MacAddr, Nanos, parse_count, suggest};

use super::{
    flows::{OneOrMore, two_ports},
    hosts::{is_of_a_host, is_of_a_host6, prefix6, read, read_all},
    node::Node,
    read::{Bounded, Place, Placed, Read, Reader, table, words},
};
use crate::{
    At, BgpNeighbor, IsisLevel, IsisNetwork, Located, MrtAttributes, Port, RouteOrigin,
    RouterAction, RouterDaemon, Routes, emit::Emit, routers::known_neighbors,
};

table! {
    /// A router: a routing daemon (BIRD 2 or FRR) in a network namespace of its own, whose interface
    /// is on a port; or a native one, which needs neither. It has the frames of the port that are for
    /// its MAC address or for groups; test traffic does not reach it.
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
        /// Address of its area.
        isis: Option<String> = None,
        routes: Vec<Routes> = Vec::new(),
        at: At = At::default(),
    } from {
        /// Unique among routers; reports use it. Default "router 1" and so on.
        name: String,
        /// A name from [ports]. May be left out if there is only one.
        port: String,
        /// "bird": a routing daemon (BIRD 2). "frr": FRR, which has IS-IS, too. "native": no daemon,
        /// but a speaker of BGP that is a part of Squall, for many sessions, fast announcements, any
        /// NOTIFICATION and virtual time. Default "bird"; with isis "frr".
        daemon: RouterDaemon => RouterDaemon,
        /// Number of routers, with daemon = "native": they have the same neighbors and routes, and
        /// their addresses, MAC addresses and router IDs follow each other. Default 1.
        count: Bounded<1, 10_000> => u64 = 1,
        /// Difference between the numbers of the autonomous systems of two of them. Default 0.
        asn_step: Bounded<0, 65_535> => u64 = 0,
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
        /// Password of BGP's TCP connections (RFC 2385): 1 to 80 octets. Default: none.
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
        /// The router speaks IS-IS (ISO/IEC 10589, RFC 1195) in this area: "49.0001". It then runs
        /// FRR. Its system ID has the digits of the router ID: 192.168.1.1 is 1921.6800.1001.
        isis: Located,
        /// Level of IS-IS: "1", "2" or "1-2". Default "1-2".
        isis_level: IsisLevel => IsisLevel,
        /// Metric of the interface in IS-IS. Default 10.
        isis_metric: Bounded<1, 16_777_214> => u64 = 10,
        /// Network of IS-IS: "broadcast" or "point-to-point". Default "broadcast".
        isis_network: IsisNetwork => IsisNetwork,
        /// Interval of the hello packets of OSPF and IS-IS, whole seconds. Default 10 s.
        hello: Nanos => Option<Nanos>,
        /// Time after which a silent neighbor of OSPF or IS-IS is gone, whole seconds; with IS-IS,
        /// 2 to 100 intervals. Default four intervals.
        dead: Nanos => Option<Nanos>,
        /// The router speaks RIPv2 (RFC 2453). Default false.
        rip: bool => bool,
        /// The router speaks RIPng (RFC 2080). Default false.
        ripng: bool => bool,
        /// Interval of RIP's updates, whole seconds. Default 30 s.
        rip_update: Nanos => Option<Nanos>,
        /// The router watches the neighbors of BGP, OSPF and IS-IS by BFD (RFC 5880), with packets
        /// at this interval: "100 ms". Default: no BFD.
        bfd: Nanos => Option<Nanos>,
        /// Routes that the router announces by all its protocols: "198.51.100.0/24"; consecutive
        /// ones: "10.0.0.0/24 x 1000"; different ones with the lengths of a real table: "random x
        /// 100000", "random6 x 1000"; the table of a peer in an MRT file (RFC 6396), which may be
        /// compressed, by default of the peer with most routes: "mrt:rib.bz2", "mrt:rib.bz2#3 x
        /// 1000"; a file with a prefix in each line: "file:edge.txt". Or a list of these.
        routes: OneOrMore,
        /// "mrt": routes of MRT files have the origin, AS path (after the own number), MED and all
        /// kinds of communities that the file has, in place of the attributes that are set here;
        /// needs daemon = "native". "own": the attributes that are set here. Default "own".
        attributes: MrtAttributes => MrtAttributes,
        /// Another router, "r2", or one of its groups, "r2/edge": the routes that it announces should
        /// come from the device. The report says how many are missing. Default: none.
        expect: Located => Option<Located>,
        /// Routes with a name, which may have attributes of their own; steps and destinations name
        /// them. `routes` are the group "routes".
        group: Vec<RouterGroup> => Vec<RouterGroup>,
        /// Changes to the router during the run: routes are withdrawn and announced, sessions go
        /// down and up.
        step: Vec<RouterStep> => Vec<RouterStep>,
        /// true: BGP and OSPF offer a graceful restart (RFC 4724, RFC 3623), so that neighbors keep
        /// the routes while the daemon restarts. Default false; true if a step restarts it.
        graceful_restart: bool => bool,
        /// A configuration file of BIRD, in place of all protocols and routes here. Its interface is
        /// eth0.
        config: String => Option<String>,
        /// false: the router is ignored. Default true.
        enabled: bool,
    }
}

table! {
    /// Routes of a router that have a name, and attributes of BGP that override the router's.
    RouterGroupTable makes
    /// Routes of a router that have a name.
    RouterGroup {
        routes: Vec<Routes> = Vec::new(),
        /// `None`: the router's.
        communities: Option<Vec<(u16, u16)>> = None,
        as_path: Vec<u32> = Vec::new(),
        next_hop: Option<IpAddr> = None,
        /// Withdrawals per second.
        flap: Option<f64> = None,
        at: At = At::default(),
    } from {
        /// Unique in the router; "routes" is the group of the router's own key.
        name: String => String,
        /// "198.51.100.0/24", or any other text that `routes` of a router may have, or a list.
        routes: OneOrMore,
        /// `MULTI_EXIT_DISC`. Default: that of the router.
        med: Bounded<0, 4_294_967_295> => Option<u64>,
        /// Further copies of the own number in the AS path. Default: as the router.
        prepend: Bounded<0, 100> => Option<u64>,
        /// Communities (RFC 1997). Default: the router's communities; [] is none.
        communities: OneOrMore,
        /// Numbers in the AS path after the own ones: "65010 65020". Default: none.
        as_path: Located,
        /// "igp", "egp" or "incomplete". Default "igp".
        origin: RouteOrigin => Option<RouteOrigin>,
        /// "mrt" or "own", as for a router. Default: as the router.
        attributes: MrtAttributes => Option<MrtAttributes>,
        /// `NEXT_HOP` of the routes. Default: the router.
        next_hop: Located,
        /// Routes that are withdrawn per second, one after the other, round and round: "100
        /// routes/s". Default: none.
        flap: Located,
        /// Time after which a route that flaps is announced again. Default 1 s.
        flap_down: Nanos => Option<Nanos>,
        /// true: orders may withdraw some of the routes only. Groups that flap, or have steps with
        /// a count, can do this without it. Default false.
        single: bool => bool,
    }
}

table! {
    /// A change of a router at a time of the run.
    RouterStepTable makes
    /// A change of a router.
    RouterStep {
        neighbor: Option<IpAddr> = None,
        data: Vec<u8> = Vec::new(),
        place: At = At::default(),
    } from {
        /// Time after the start of the run. Default 0.
        at: Nanos => Nanos,
        /// "withdraw" or "announce" routes; "down" or "up": sessions; "restart": the daemon;
        /// "refresh": ask neighbors for their routes again (RFC 2918); "silent" or "talk": the link
        /// drops all frames of the router in both directions, or no longer; "notify": end sessions
        /// with a NOTIFICATION of this code, with daemon = "native".
        action: RouterAction => Option<RouterAction>,
        /// Group whose routes are withdrawn or announced. Default: all groups.
        group: String => Option<String>,
        /// How many routes: the first that are announced, or withdrawn. Default: all.
        count: Bounded<1, 4_294_967_295> => Option<u64>,
        /// Address of the neighbor of BGP whose session goes down or up, or is refreshed. Default:
        /// all sessions.
        neighbor: Located,
        /// Text for the neighbor of BGP whose session goes down (RFC 9003). Default: none.
        message: String => Option<String>,
        /// Error code of a NOTIFICATION (RFC 4271 section 4.5).
        code: Bounded<1, 255> => Option<u64>,
        /// Subcode of the error. Default 0.
        subcode: Bounded<0, 255> => Option<u64>,
        /// Data of a NOTIFICATION, in hexadecimal digits. Default: none.
        data: Located,
        /// Time after which the reverse follows: announce, up, or talk. Default: never.
        duration: Nanos => Option<Nanos>,
        /// Interval at which the step is repeated. Default: it is not.
        every: Nanos => Option<Nanos>,
        /// How often the step happens, with `every`. Default: until the end of the run.
        times: Bounded<1, 1_000_000> => Option<u64>,
    }
}

words!(
    RouteOrigin,
    "an origin of routes":
    "igp" => Igp,
    "egp" => Egp,
    "incomplete" => Incomplete,
);

words!(
    RouterDaemon,
    "a daemon of a router":
    "bird" => Bird,
    "frr" => Frr,
    "native" => Native,
);

words!(
    MrtAttributes,
    "a source of attributes":
    "own" => Own,
    "mrt" => Mrt,
);

words!(
    IsisLevel,
    "a level of IS-IS":
    "1" => One,
    "2" => Two,
    "1-2" => Both,
);

words!(
    IsisNetwork,
    "a network of IS-IS":
    "broadcast" => Broadcast,
    "point-to-point" => PointToPoint,
);

words!(
    RouterAction,
    "an action of a router":
    "withdraw" => Withdraw,
    "announce" => Announce,
    "down" => Down,
    "up" => Up,
    "restart" => Restart,
    "refresh" => Refresh,
    "silent" => Silent,
    "talk" => Talk,
    "notify" => Notify,
);

impl Read for RouterGroup {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut table = RouterGroupTable::read(node, cx)?;
        let place = table.place.clone();
        cx.need(&place, &table.given, "name", r#"name = "edge""#)?;
        cx.need(&place, &table.given, "routes", r#"routes = "198.51.100.0/24""#)?;
        let at = cx.at(place.start);
        let routes = read_all(table.routes.take(), cx, routes, "a range of routes", ROUTES);
        let communities = table.communities.take();
        let communities =
            communities.map(|given| read_all(Some(given), cx, community, "a community", COMMUNITY));
        let as_path = read(table.as_path.take(), cx, as_path, "an AS path", AS_PATH);
        let next_hop = read(table.next_hop.take(), cx, next_hop, "an address", NEXT_HOP);
        let flap = read(table.flap.take(), cx, flap, "a number of routes per second", FLAP);
        if let Some(down) = table.flap_down.as_ref()
            && (down.value == Nanos::ZERO || flap.is_none())
        {
            cx.report(&down.place, "needs flap, and a time", &[FLAP.into()]);
        }
        Some(Self {
            routes,
            communities,
            as_path: as_path.map_or_else(Vec::new, |(path, _)| path),
            next_hop: next_hop.map(|(address, _)| address),
            flap: flap.map(|(flap, _)| flap),
            at,
            ..table.made()
        })
    }
    fn schema() -> Json {
        RouterGroupTable::schema()
    }
}

impl Emit for Vec<RouterGroup> {
    fn emit(&self) -> Option<Json> {
        Some(self.iter().map(RouterGroup::to_value).collect())
    }
}

impl Read for RouterStep {
    fn read(node: &Node, cx: &mut Reader<'_>) -> Option<Self> {
        let mut table = RouterStepTable::read(node, cx)?;
        let place = table.place.clone();
        cx.need(&place, &table.given, "action", r#"action = "withdraw""#)?;
        let action = table.action.as_ref()?.value;
        let allowed: &[&str] = match action {
            RouterAction::Withdraw => &["group", "count", "duration"],
            RouterAction::Announce => &["group", "count"],
            RouterAction::Down => &["neighbor", "message", "duration"],
            RouterAction::Up | RouterAction::Refresh => &["neighbor"],
            RouterAction::Silent => &["duration"],
            RouterAction::Notify => &["neighbor", "code", "subcode", "data", "duration"],
            RouterAction::Restart | RouterAction::Talk => &[],
        };
        let allowed = [&["action", "at", "every", "times"][..], allowed].concat();
        cx.only(&place, &table.given, &format!("action = {:?}", action.word()), &allowed);
        if action == RouterAction::Notify {
            cx.need(&place, &table.given, "code", "code = 6")?;
        }
        if table.times.is_some() && table.every.is_none() {
            cx.report(&place, "has times without an interval", &[EVERY.into()]);
        }
        let time = |time: &Option<Placed<Nanos>>| time.as_ref().map(|time| time.value);
        let (duration, every) = (time(&table.duration), time(&table.every));
        if every.is_some_and(|every| every.0 < FASTEST.0 || duration.is_some_and(|d| d >= every)) {
            let what = "has an interval below 10 ms, or not above its duration";
            cx.report(&place, what, &[EVERY.into()]);
        }
        let is_text = |text: &str| text.len() <= 128 && !is_quoted(text);
        if let Some(message) = table.message.as_ref().filter(|text| !is_text(&text.value)) {
            let what = "is longer than 128 octets, or has quotation marks, which BIRD cannot read";
            cx.report(&message.place, what, &[]);
        }
        let address = |text: &str| text.parse::<IpAddr>().ok();
        let neighbor = read(table.neighbor.take(), cx, address, "an address", NEXT_HOP);
        let data = read(table.data.take(), cx, octets, "octets", r#"try data = "0102ff""#);
        Some(Self {
            neighbor: neighbor.map(|(address, _)| address),
            data: data.map_or_else(Vec::new, |(octets, _)| octets),
            place: cx.at(place.start),
            ..table.made()
        })
    }
    fn schema() -> Json {
        RouterStepTable::schema()
    }
}

impl Emit for Vec<RouterStep> {
    fn emit(&self) -> Option<Json> {
        Some(self.iter().map(RouterStep::to_value).collect())
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
        let whole = table.place.clone();
        let Some(router) = router(number, table, ports, cx) else { continue };
        if routers.iter().any(|before| before.name == router.name) {
            let what = format!("= {:?} is already the name of another router", router.name);
            cx.report(&place, &what, &[]);
        }
        let own = (routers.len(), &router);
        if let Some((_, before)) = routers.iter().enumerate().find(|of| share_a_mac(*of, own)) {
            let what = format!("has a MAC address of router {:?}, on the same port", before.name);
            cx.report(&whole, &what, &[MAC.into()]);
        }
        routers.push(router);
    }
    routers
}

/// Whether two routers of a port have the same MAC address, given or by default. Both with their
/// numbers.
fn share_a_mac(one: (usize, &Router), other: (usize, &Router)) -> bool {
    let addresses = |(number, router): (usize, &Router)| {
        let first = mac_bits(router.mac.unwrap_or_else(|| Router::default_mac(number)));
        (first, first + router.count.saturating_sub(1))
    };
    let ((a, b), (c, d)) = (addresses(one), addresses(other));
    a <= d && c <= b && one.1.port == other.1.port
}

/// A MAC address as a number.
fn mac_bits(mac: MacAddr) -> u64 {
    mac.0.iter().fold(0, |bits, octet| bits << 8 | u64::from(*octet))
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
    let isis = read(table.isis.take(), cx, isis_area, "an area of IS-IS", ISIS);
    let isis_by_frr = isis.is_some() && !table.given.has("daemon");
    let neighbors = read_all(table.neighbors.take(), cx, neighbor, "a neighbor of BGP", NEIGHBOR);
    let communities = read_all(table.communities.take(), cx, community, "a community", COMMUNITY);
    let routes = read_all(table.routes.take(), cx, routes, "a range of routes", ROUTES);
    let name = table.name.take().map(|name| name.value);
    let mut router = Router {
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
        isis: isis.map(|(area, _)| area),
        routes,
        at,
        ..table.made()
    };
    if isis_by_frr {
        router.daemon = RouterDaemon::Frr;
    }
    check(&router, &place, cx);
    Some(router)
}

fn check(router: &Router, place: &Place, cx: &mut Reader<'_>) {
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(place, what, &[hint.to_owned()]);
        }
    };
    let igp = router.ospf.is_some()
        || router.ospf3.is_some()
        || router.isis.is_some()
        || router.rip
        || router.ripng;
    let speaks = router.asn.is_some() || igp;
    needs(router.ipv4.is_none() && router.ipv6.is_none(), "has no address", IPV4);
    needs(
        !speaks && router.config.is_none(),
        "speaks no protocol",
        r#"try asn = 65001 and neighbors = ["10.0.0.2 as 65002"], ospf = "0.0.0.0", isis = "49.0001", rip = true, or config"#,
    );
    needs(
        (speaks || !router.routes.is_empty() || !router.group.is_empty())
            && router.config.is_some(),
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
    needs(
        router
            .password
            .as_deref()
            .is_some_and(|text| is_quoted(text) || !(1..=80).contains(&text.len())),
        "has a password that is not 1 to 80 octets without quotation marks (RFC 2385)",
        "try another password",
    );
    let whole = |time: &Option<Nanos>| {
        time.is_none_or(|time| time.0 > 0 && time.0.is_multiple_of(Nanos::SECOND.0))
    };
    let times = [&router.hold, &router.hello, &router.dead, &router.rip_update];
    needs(
        !times.into_iter().all(whole),
        "has a time of BGP, OSPF, IS-IS or RIP that is not in whole seconds",
        r#"try hello = "1 s""#,
    );
    let groups = router.group.iter().flat_map(|group| &group.routes);
    let total: u64 =
        router.routes.iter().chain(groups).filter_map(Routes::count).map(u64::from).sum();
    needs(
        total > MOST_ROUTES,
        &format!("announces {total} routes; at most {MOST_ROUTES} are possible"),
        ROUTES,
    );
    let of_files = router.group.iter().filter_map(|group| group.attributes);
    needs(
        router.daemon != RouterDaemon::Native
            && of_files.chain([router.attributes]).any(|from| from == MrtAttributes::Mrt),
        "has attributes of MRT files, which only a native router announces",
        r#"try daemon = "native", or attributes = "own""#,
    );
    match router.daemon {
        RouterDaemon::Native => check_native(router, place, cx),
        RouterDaemon::Bird | RouterDaemon::Frr => needs(
            router.count > 1 || router.asn_step > 0,
            "has a count or an asn_step, but is a daemon",
            r#"try daemon = "native""#,
        ),
    }
    match router.daemon {
        RouterDaemon::Frr => check_frr(router, place, cx),
        RouterDaemon::Bird | RouterDaemon::Native => {
            let what = "speaks IS-IS, which only FRR does";
            if router.isis.is_some() {
                cx.report(place, what, &[r#"try daemon = "frr""#.into()]);
            }
        }
    }
    check_steering(router, cx);
}

/// FRR has limits of its own.
fn check_frr(router: &Router, place: &Place, cx: &mut Reader<'_>) {
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(place, what, &[hint.to_owned()]);
        }
    };
    needs(
        router.config.is_some(),
        "has a configuration file, which is for BIRD",
        r#"try daemon = "bird", or protocols and routes in place of config"#,
    );
    needs(
        router.graceful_restart,
        "offers a graceful restart, which needs BIRD",
        r#"try daemon = "bird""#,
    );
    let is_short =
        |time: Option<Nanos>, least: u64| time.is_some_and(|time| time.0 < least * Nanos::SECOND.0);
    needs(
        router.rip && is_short(router.rip_update, 5),
        "has an interval of RIP that is shorter than 5 s, which FRR cannot have",
        r#"try rip_update = "5 s""#,
    );
    needs(
        is_short(router.hold, 3),
        "has a hold time below 3 s, which FRR cannot have",
        r#"try hold = "3 s""#,
    );
    needs(
        router.bfd.is_some_and(|time| time < FASTEST_BFD),
        "has an interval of BFD below 10 ms, which FRR cannot have",
        r#"try bfd = "10 ms""#,
    );
    needs(
        router.password.as_deref().is_some_and(|text| text.contains(char::is_whitespace)),
        "has a password with a space, which FRR cannot read",
        "try another password",
    );
    let hello = router.hello.map_or(10 * Nanos::SECOND.0, |time| time.0).max(1);
    let is_held =
        |dead: Nanos| dead.0.is_multiple_of(hello) && (2..=100).contains(&(dead.0 / hello));
    needs(
        router.isis.is_some() && router.dead.is_some_and(|dead| !is_held(dead)),
        "has a dead time that is not 2 to 100 hello intervals of IS-IS",
        r#"try hello = "1 s" and dead = "3 s""#,
    );
    needs(
        router.isis.is_some() && router.hello.is_some_and(|time| time.0 > 600 * Nanos::SECOND.0),
        "has a hello interval above 600 s, which IS-IS cannot have",
        r#"try hello = "10 s""#,
    );
}

/// A native router speaks BGP only, and all copies of it have addresses.
fn check_native(router: &Router, place: &Place, cx: &mut Reader<'_>) {
    let mut needs = |is_wrong: bool, what: &str, hint: &str| {
        if is_wrong {
            cx.report(place, what, &[hint.to_owned()]);
        }
    };
    let others = [
        ("ospf", router.ospf.is_some()),
        ("ospf3", router.ospf3.is_some()),
        ("rip", router.rip),
        ("ripng", router.ripng),
        ("bfd", router.bfd.is_some()),
        ("config", router.config.is_some()),
    ];
    let others: Vec<_> = others.into_iter().filter(|(_, has)| *has).map(|(key, _)| key).collect();
    needs(
        !others.is_empty(),
        &format!(r#"has {}, but daemon = "native" speaks BGP only"#, others.join(", ")),
        r#"try daemon = "bird", or another router for it"#,
    );
    needs(
        router.password.is_some(),
        r#"has a password, but daemon = "native" cannot sign segments (RFC 2385)"#,
        r#"try daemon = "bird""#,
    );
    needs(
        router.hold.is_some_and(|hold| !(3..=65_535).contains(&(hold.0 / Nanos::SECOND.0))),
        "has a hold time that is not 3 s to 65,535 s",
        r#"try hold = "90 s""#,
    );
    let of_mrt = |routes: &[Routes]| routes.iter().any(|one| matches!(one, Routes::Mrt { .. }));
    let is_mrt = |from: MrtAttributes| from == MrtAttributes::Mrt;
    let mut groups = router.group.iter().filter(|group| group.attributes.is_none());
    needs(
        is_mrt(router.attributes)
            && !of_mrt(&router.routes)
            && !groups.any(|group| of_mrt(&group.routes)),
        "has attributes of MRT files, but no routes of these",
        MRT,
    );
    for group in &router.group {
        needs(
            group.attributes.is_some_and(is_mrt) && !of_mrt(&group.routes),
            &format!("has attributes of MRT files for {:?}, but no such routes", group.name),
            MRT,
        );
    }
    let copies = router.count.saturating_sub(1);
    let last = router.mac.map_or(0, mac_bits) + copies;
    // The lowest bit of the first octet is that of groups.
    needs(last >> 40 & 1 == 1, "has too many MAC addresses", MAC);
    needs(
        router.asn.is_some_and(|asn| asn + copies * router.asn_step > u32::MAX.into()),
        "has too many autonomous systems",
        "try a smaller asn_step",
    );
    needs(
        router.asn_step > 0 && router.neighbors.iter().any(|one| one.asn.is_none()),
        "has an asn_step, but a neighbor that is in the same system",
        r#"try "10.0.0.2 as 65002""#,
    );
    let ipv4 = router.ipv4.map(|(first, length)| (IpAddr::V4(first), length));
    let ipv6 = router.ipv6.map(|(first, length)| (IpAddr::V6(first), length));
    for (first, length) in ipv4.into_iter().chain(ipv6) {
        let (from, width) = bits(first);
        let hosts = width - u32::from(length);
        let network = |bits: u128| bits.checked_shr(hosts).unwrap_or(0);
        let to = from + u128::from(copies);
        // The last address of a network of IPv4 is that of broadcasts, except of /31 and /32.
        let is_broadcast = width == 32 && hosts > 1 && network(to) != network(to + 1);
        needs(
            network(from) != network(to) || copies > 0 && is_broadcast,
            &format!("has {} routers from {first} on, but its network is smaller", router.count),
            "try a smaller count, or a shorter prefix",
        );
        for (number, neighbor) in router.neighbors.iter().enumerate() {
            let (address, _) = bits(neighbor.address);
            if neighbor.address.is_ipv4() != first.is_ipv4() {
                continue;
            }
            let before = &router.neighbors[..number];
            needs(
                before.iter().any(|one| one.address == neighbor.address),
                &format!("has the neighbor {} twice", neighbor.address),
                "try it once",
            );
            needs(
                (from..=to).contains(&address) || network(address) != network(from),
                &format!(
                    "has the neighbor {}, which is not another address of its network",
                    neighbor.address
                ),
                NEIGHBOR,
            );
        }
    }
}

/// An address as a number, and its width, bits.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(address) => (address.to_bits().into(), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    }
}

/// Groups have names of their own, and steps name what the router has.
fn check_steering(router: &Router, cx: &mut Reader<'_>) {
    let mut wrong = |at: At, text: String, hint: String| {
        cx.mistakes.push(crate::Diagnostic::at(at, text, vec![hint]));
    };
    let of = format!("router {:?}", router.name);
    let names = router.group_names();
    for (number, group) in router.group.iter().enumerate() {
        let is_own = group.name == ROUTES_GROUP && !router.routes.is_empty();
        if is_own || router.group[..number].iter().any(|before| before.name == group.name) {
            let text = format!("{of}: {:?} is already the name of another group", group.name);
            wrong(group.at, text, "try another name".into());
        }
        if group.next_hop.is_some_and(|hop| !group.has_routes_of(hop)) {
            let name = &group.name;
            let text = format!("{of}: group {name:?} has no routes of its next hop's IP version");
            wrong(group.at, text, NEXT_HOP.into());
        }
    }
    for step in &router.step {
        let Some(action) = step.action else { continue };
        let word = action.word();
        if let Some(name) = step.group.as_ref().filter(|name| !names.contains(&name.as_str())) {
            let text = format!("{of}: a step names the group {name:?}, which is not there");
            wrong(step.place, text, suggest(name, names.iter().copied()));
        }
        if matches!(action, RouterAction::Withdraw | RouterAction::Announce) && names.is_empty() {
            let text = format!("{of}: a step has action = {word:?}, but there are no routes");
            wrong(step.place, text, r#"try routes = "198.51.100.0/24""#.into());
        }
        if step.count.is_some() && step.group.is_none() && names.len() > 1 {
            let text = format!("{of}: a step has a count, but no group");
            wrong(step.place, text, format!("known: {}", names.join(", ")));
        }
        let is_unknown = |to| router.neighbors.iter().all(|one| one.address != to);
        // The neighbors of a configuration of the user's own are in that file.
        if router.config.is_none() && step.neighbor.is_some_and(is_unknown) {
            let text = format!("{of}: a step names a neighbor that is not in neighbors");
            wrong(step.place, text, known_neighbors(&router.neighbors));
        }
        let speaks_bgp = router.asn.is_some() || router.config.is_some();
        if action == RouterAction::Refresh && !speaks_bgp {
            let text = format!("{of}: a step has action = {word:?}, but the router speaks no BGP");
            wrong(step.place, text, NEIGHBOR.into());
        }
        if action == RouterAction::Notify && router.daemon != RouterDaemon::Native {
            let text = format!("{of}: a step has action = {word:?}, but the router is a daemon");
            wrong(step.place, text, r#"try daemon = "native""#.into());
        }
        if action == RouterAction::Restart && router.daemon == RouterDaemon::Frr {
            let text = format!("{of}: a step restarts its daemon, which needs BIRD");
            wrong(step.place, text, "try down and up, or daemon = \"bird\"".into());
        }
        if action == RouterAction::Restart && router.config.is_some() {
            let text = format!("{of}: a step restarts a daemon with a configuration of its own");
            wrong(step.place, text, "try down and up".into());
        }
    }
}

/// The name of the group that the router's key `routes` makes.
pub(crate) const ROUTES_GROUP: &str = "routes";
/// Shortest interval of steps: a daemon needs some milliseconds for each.
const FASTEST: Nanos = Nanos(10_000_000);
/// The shortest interval of FRR's BFD.
const FASTEST_BFD: Nanos = Nanos(10_000_000);
/// BIRD needs about 260 octets for each.
const MOST_ROUTES: u64 = 10_000_000;
/// A message of 4,096 octets less its header and codes.
const MOST_DATA: usize = 4_075;
const MAC: &str = r#"try mac = "02:00:00:00:00:01""#;
const IPV4: &str = r#"try ipv4 = "10.0.0.1/24""#;
const IPV6: &str = r#"try ipv6 = "2001:db8::1/64""#;
const ROUTER_ID: &str = r#"try router_id = "10.0.0.1""#;
const AREA: &str = r#"try "0.0.0.0" or "1""#;
const ISIS: &str = r#"try isis = "49.0001""#;
const NEIGHBOR: &str = r#"try "10.0.0.2 as 65002", or "10.0.0.2" in the same system"#;
const COMMUNITY: &str = r#"try "65001:100""#;
const ROUTES: &str =
    r#"try "198.51.100.0/24", "10.0.0.0/24 x 1000", "random x 1000", "mrt:rib.gz" or "file:a.txt""#;
const MRT: &str = r#"try routes = "mrt:rib.gz""#;
const AS_PATH: &str = r#"try as_path = "65010 65020""#;
const NEXT_HOP: &str = r#"try "10.0.0.2""#;
const FLAP: &str = r#"try flap = "100 routes/s" and flap_down = "1 s""#;
const EVERY: &str = r#"try every = "20 s" with times = 3"#;

/// Whether a text cannot be in BIRD's quotes, which know no escapes.
fn is_quoted(text: &str) -> bool {
    text.contains('"') || text.contains(|c: char| c.is_control())
}

fn as_path(text: &str) -> Option<Vec<u32>> {
    let number = |word: &str| word.parse().ok().filter(|asn: &u32| *asn > 0);
    let path: Vec<u32> = text.split_ascii_whitespace().map(number).collect::<Option<_>>()?;
    (1..=200).contains(&path.len()).then_some(path)
}

/// Octets in hexadecimal digits; at most those of the longest NOTIFICATION.
fn octets(text: &str) -> Option<Vec<u8>> {
    let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits = text.chars().filter(|c| !c.is_whitespace()).map(digit);
    let digits = digits.collect::<Option<Vec<u8>>>()?;
    let is_whole = digits.len().is_multiple_of(2) && digits.len() / 2 <= MOST_DATA;
    is_whole.then(|| digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn next_hop(text: &str) -> Option<IpAddr> {
    let is_of_a_router = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
    text.parse().ok().filter(is_of_a_router)
}

/// Withdrawals per second, up to 10,000: a route is a message to the kernel and one to the daemon.
fn flap(text: &str) -> Option<f64> {
    let number = text.strip_suffix("/s")?.trim_end();
    let number = number.strip_suffix("routes").unwrap_or(number);
    number.trim().parse().ok().filter(|rate: &f64| (0.001..=10_000.0).contains(rate))
}

fn prefix4(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, length) = text.split_once('/')?;
    let length = length.parse().ok().filter(|length| (1..=32).contains(length))?;
    Some((address.parse().ok().filter(|address| is_of_a_host(*address))?, length))
}

fn address6(text: &str) -> Option<(Ipv6Addr, u8)> {
    prefix6(text).filter(|(address, _)| is_of_a_host6(*address))
}

/// An area of OSPF: in dotted form, or as a number.
pub(super) fn area(text: &str) -> Option<Ipv4Addr> {
    text.parse().ok().or_else(|| text.parse::<u32>().ok().map(Ipv4Addr::from_bits))
}

/// The address of an area of IS-IS (ISO/IEC 10589): an octet and pairs of octets in hexadecimal
/// digits, at most 13 octets.
fn isis_area(text: &str) -> Option<String> {
    let is_part = |(number, part): (usize, &str)| {
        let digits = if number == 0 { 2 } else { 4 };
        part.len() == digits && part.bytes().all(|digit| digit.is_ascii_hexdigit())
    };
    let is_area = text.split('.').enumerate().all(is_part) && text.split('.').count() <= 7;
    is_area.then(|| text.to_owned())
}

pub(super) fn neighbor(text: &str) -> Option<BgpNeighbor> {
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
    if let Some(path) = text.strip_prefix("file:") {
        return (!path.is_empty()).then(|| Routes::File { path: path.into() });
    }
    let (what, count) = match text.rsplit_once(" x ") {
        Some((what, count)) => {
            let count = u32::try_from(parse_count(count.trim()).ok()?).ok()?;
            (what.trim(), Some((count > 0).then_some(count)?))
        }
        None => (text, None),
    };
    if let Some(file) = what.strip_prefix("mrt:") {
        let (path, peer) = match file.rsplit_once('#') {
            Some((path, peer)) => (path, Some(peer.parse().ok()?)),
            None => (file, None),
        };
        let mrt = Routes::Mrt { path: path.into(), peer, most: count };
        return (!path.is_empty()).then_some(mrt);
    }
    if let "random" | "random6" = what {
        return Some(Routes::Random { is_ipv6: what == "random6", count: count? });
    }
    let (first, length) = what.split_once('/')?;
    let (first, length, count) = (first.parse().ok()?, length.parse().ok()?, count.unwrap_or(1));
    is_valid(first, length, count).then_some(Routes::Range { first, length, count })
}

/// Whether all prefixes are in the address space, and host bits are 0. `count` is not 0.
fn is_valid(first: IpAddr, length: u8, count: u32) -> bool {
    let (bits, width) = bits(first);
    let length = u32::from(length);
    if length > width {
        return false;
    }
    let most = u128::MAX >> (128 - width);
    match width - length {
        128 => bits == 0 && count == 1,
        step => {
            let clear = bits & ((1 << step) - 1) == 0;
            clear && u128::from(count - 1) <= (most - bits) >> step
        }
    }
}
