//! FRR: the configurations of its processes, the replies of their vty sockets, and the commands of
//! orders.
//!
//! All routes of the router's own are in the kernel's table of its namespace, from which each
//! protocol redistributes them. Source: FRR 8.4 User Guide; `vtysh/vtysh.c` (the sockets).

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value as Json;

use crate::{
    GroupAttributes, IgpRoutes, Isis, LinkNeighbor, Origin, ProtocolState, RouterSettings,
    bird::{INTERFACE, has_routes, metric, milliseconds, seconds},
    igp,
};

/// The kernel's table with the routes of the router: the main one, which zebra reads.
pub const TABLE: u32 = 254;
/// Asks zebra for its numbers of routes.
pub const KERNEL: [&str; 2] = ["show ip route summary json", "show ipv6 route summary json"];
/// Asks for the neighbors of IS-IS at each level.
const ISIS_NEIGHBORS: &str = "show isis neighbor";
/// Asks for the LSPs of each level.
const ISIS_DATABASE: &str = "show isis database";
/// The name of IS-IS in its configuration, and of the profile of BFD.
const NAME: &str = "squall";
/// The last number of a rule in a route-map.
const LAST_RULE: u32 = 65_535;

/// A process of FRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Process {
    Zebra,
    Bgpd,
    Ospfd,
    Ospf6d,
    Isisd,
    Ripd,
    Ripngd,
    Bfdd,
}

impl Process {
    /// The name of its program, and of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zebra => "zebra",
            Self::Bgpd => "bgpd",
            Self::Ospfd => "ospfd",
            Self::Ospf6d => "ospf6d",
            Self::Isisd => "isisd",
            Self::Ripd => "ripd",
            Self::Ripngd => "ripngd",
            Self::Bfdd => "bfdd",
        }
    }

    /// The questions for the states of its protocols.
    fn questions(self) -> &'static [&'static str] {
        match self {
            Self::Zebra => &KERNEL,
            Self::Bgpd => &["show bgp neighbors json"],
            Self::Ospfd => &["show ip ospf neighbor json"],
            Self::Ospf6d => &["show ipv6 ospf6 neighbor json"],
            // In 8.4, the first one shows one level of a neighbor that has two.
            Self::Isisd => &["show isis neighbor json", ISIS_NEIGHBORS, ISIS_DATABASE],
            Self::Ripd => &["show ip rip status"],
            Self::Ripngd => &["show ipv6 ripng status"],
            Self::Bfdd => &["show bfd peers json"],
        }
    }
}

/// The processes that `settings` needs. The first one has to listen before the others start.
pub fn processes(settings: &RouterSettings) -> Vec<Process> {
    let all = [
        (Process::Zebra, true),
        (Process::Bfdd, settings.bfd.is_some()),
        (Process::Bgpd, settings.bgp.is_some()),
        (Process::Ospfd, settings.ospf.is_some()),
        (Process::Ospf6d, settings.ospf3.is_some()),
        (Process::Isisd, settings.isis.is_some()),
        (Process::Ripd, settings.rip),
        (Process::Ripngd, settings.ripng),
    ];
    all.into_iter().filter(|(_, is_needed)| *is_needed).map(|(process, _)| process).collect()
}

/// The text of the configuration file of a process, with an interface whose longest IP packet has
/// `mtu` octets.
pub fn configuration(settings: &RouterSettings, process: Process, mtu: u32) -> String {
    let lines = match process {
        Process::Zebra => Vec::new(),
        Process::Bgpd => bgp(settings),
        Process::Ospfd => ospf(settings),
        Process::Ospf6d => ospf6(settings),
        Process::Isisd => {
            settings.isis.as_ref().map_or_else(Vec::new, |of| isis(settings, of, mtu))
        }
        Process::Ripd | Process::Ripngd => rip(settings, process),
        Process::Bfdd => {
            // FRR takes 10 ms and above.
            let interval = settings.bfd.map_or(0, milliseconds).max(10);
            vec![
                "bfd".into(),
                format!(" profile {NAME}"),
                "  detect-multiplier 3".into(),
                format!("  receive-interval {interval}"),
                format!("  transmit-interval {interval}"),
                " exit".into(),
                "exit".into(),
            ]
        }
    };
    // IS-IS announces it (RFC 5301); the default is the name of the machine.
    let mut text = format!("hostname {}\n", settings.igp.hostname.as_deref().unwrap_or(NAME));
    lines.iter().for_each(|line| _ = writeln!(text, "{line}"));
    text
}

fn bgp(settings: &RouterSettings) -> Vec<String> {
    let Some(bgp) = &settings.bgp else { return Vec::new() };
    let mut lines = Vec::new();
    // A route that the router has learnt has no tag, and so no neighbor gets it.
    for (number, group) in settings.groups.iter().enumerate() {
        let number = metric(number);
        lines.push(format!("route-map OWN permit {number}"));
        lines.push(format!(" match metric {number}"));
        lines.push(format!(" set tag {number}"));
        lines.extend(attributes(&group.attributes, bgp.asn));
        lines.push("exit".into());
        for (name, is_ipv4, set) in
            [("TO4", true, "set ip next-hop"), ("TO6", false, "set ipv6 next-hop global")]
        {
            lines.push(format!("route-map {name} permit {number}"));
            lines.push(format!(" match tag {number}"));
            let next_hop = group.attributes.next_hop.filter(|hop| hop.is_ipv4() == is_ipv4);
            lines.extend(next_hop.map(|hop| format!(" {set} {hop}")));
            lines.push("exit".into());
        }
    }
    for name in ["OWN", "TO4", "TO6"] {
        lines.extend([format!("route-map {name} deny {LAST_RULE}"), "exit".into()]);
    }
    lines.extend([
        format!("router bgp {}", bgp.asn),
        format!(" bgp router-id {}", settings.router_id),
        // Without a policy for received routes, FRR ignores them (RFC 8212).
        " no bgp ebgp-requires-policy".into(),
        " no bgp default ipv4-unicast".into(),
    ]);
    for one in &bgp.neighbors {
        let (address, hold) = (one.address, seconds(bgp.hold));
        lines.push(format!(" neighbor {address} remote-as {}", one.asn));
        lines.push(format!(" neighbor {address} timers {} {hold}", hold / 3));
        // The default waits 120 s after a connection that failed.
        lines.push(format!(" neighbor {address} timers connect 1"));
        if let Some(password) = &bgp.password {
            lines.push(format!(" neighbor {address} password {password}"));
        }
        if settings.bfd.is_some() {
            lines.push(format!(" neighbor {address} bfd profile {NAME}"));
        }
    }
    for (family, map, is_ipv4) in [("ipv4", "TO4", true), ("ipv6", "TO6", false)] {
        let neighbors = bgp.neighbors.iter().filter(|one| one.address.is_ipv4() == is_ipv4);
        let mut neighbors = neighbors.peekable();
        if neighbors.peek().is_none() {
            continue;
        }
        lines.push(format!(" address-family {family} unicast"));
        if !settings.groups.is_empty() {
            lines.push("  redistribute kernel route-map OWN".into());
        }
        for one in neighbors {
            lines.push(format!("  neighbor {} activate", one.address));
            lines.push(format!("  neighbor {} route-map {map} out", one.address));
        }
        lines.push(" exit-address-family".into());
    }
    lines.push("exit".into());
    lines
}

/// The lines of a route-map that set the attributes of a group.
fn attributes(attributes: &GroupAttributes, asn: u32) -> Vec<String> {
    let GroupAttributes { med, prepend, communities, as_path, origin, next_hop: _ } = attributes;
    // A redistributed route has its metric as `MULTI_EXIT_DISC`, which cannot be taken away.
    let mut lines = vec![format!(" set metric {}", med.unwrap_or(0))];
    let path = (0..*prepend).map(|_| &asn).chain(as_path);
    let path: Vec<_> = path.map(u32::to_string).collect();
    if !path.is_empty() {
        lines.push(format!(" set as-path prepend {}", path.join(" ")));
    }
    if !communities.is_empty() {
        let all: Vec<_> = communities.iter().map(|(high, low)| format!("{high}:{low}")).collect();
        lines.push(format!(" set community {}", all.join(" ")));
    }
    let origin = match origin {
        None | Some(Origin::Igp) => "igp",
        Some(Origin::Egp) => "egp",
        Some(Origin::Incomplete) => "incomplete",
    };
    lines.push(format!(" set origin {origin}"));
    lines
}

/// The line by which a protocol announces the routes of the router, if there are any.
fn redistribute(settings: &RouterSettings, line: &str) -> Option<String> {
    let mut groups = 0..settings.groups.len();
    groups.any(|number| settings.igp.interior(number).is_none()).then(|| line.to_owned())
}

fn ospf(settings: &RouterSettings) -> Vec<String> {
    let mut lines = vec!["router ospf".to_owned()];
    lines.push(format!(" ospf router-id {}", settings.router_id));
    lines.extend(redistribute(settings, " redistribute kernel"));
    lines.extend(["exit".into(), format!("interface {INTERFACE}")]);
    lines.push(format!(" ip ospf hello-interval {}", seconds(settings.hello)));
    lines.push(format!(" ip ospf dead-interval {}", seconds(settings.dead)));
    if settings.bfd.is_some() {
        lines.extend([" ip ospf bfd".into(), format!(" ip ospf bfd profile {NAME}")]);
    }
    lines.extend(settings.ospf.map(|area| format!(" ip ospf area {area}")));
    lines.push("exit".into());
    lines
}

fn ospf6(settings: &RouterSettings) -> Vec<String> {
    let mut lines = vec!["router ospf6".to_owned()];
    lines.push(format!(" ospf6 router-id {}", settings.router_id));
    lines.extend(redistribute(settings, " redistribute kernel"));
    lines.extend(["exit".into(), format!("interface {INTERFACE}")]);
    lines.push(format!(" ipv6 ospf6 hello-interval {}", seconds(settings.hello)));
    lines.push(format!(" ipv6 ospf6 dead-interval {}", seconds(settings.dead)));
    lines.extend(settings.bfd.map(|_| format!(" ipv6 ospf6 bfd profile {NAME}")));
    lines.extend(settings.ospf3.map(|area| format!(" ipv6 ospf6 area {area}")));
    lines.push("exit".into());
    lines
}

fn isis(settings: &RouterSettings, isis: &Isis, mtu: u32) -> Vec<String> {
    let level = match isis.levels {
        [true, false] => "level-1",
        [false, true] => "level-2-only",
        _ => "level-1-2",
    };
    let mut lines = vec![format!("router isis {NAME}"), format!(" net {}", net(settings, isis))];
    // By default, a change is announced up to 30 s after it.
    lines.push(" lsp-gen-interval 1".into());
    if settings.igp.narrow {
        lines.push(" metric-style narrow".into());
    }
    if let Some((refresh, lifetime)) = settings.igp.lifetimes {
        let mut both =
            [format!(" lsp-refresh-interval {refresh}"), format!(" max-lsp-lifetime {lifetime}")];
        // At each line, the first has to be 300 s less than the second. Defaults: 900 and 1,200.
        if refresh > 900 {
            both.reverse();
        }
        lines.extend(both);
    }
    // The header of LLC takes three octets. The default is for an MTU of 1,500.
    if mtu < 1_500 {
        lines.push(format!(" lsp-mtu {}", mtu.saturating_sub(3).max(128)));
    }
    for (family, has_address) in
        [("ipv4", settings.ipv4.is_some()), ("ipv6", settings.ipv6.is_some())]
    {
        for (level, speaks) in ["level-1", "level-2"].into_iter().zip(isis.levels) {
            if has_address && speaks {
                let line = format!(" redistribute {family} kernel {level}");
                lines.extend(redistribute(settings, &line));
            }
        }
    }
    lines.extend(["exit".into(), format!("interface {INTERFACE}")]);
    lines.extend(settings.ipv4.map(|_| format!(" ip router isis {NAME}")));
    lines.extend(settings.ipv6.map(|_| format!(" ipv6 router isis {NAME}")));
    let hello = seconds(settings.hello);
    // With `is-type`, isisd 8.4 has announced no networks of a single level for 30 s and more.
    lines.push(format!(" isis circuit-type {level}"));
    lines.push(format!(" isis hello-interval {hello}"));
    let held = (seconds(settings.dead) / hello).clamp(2, 100);
    lines.push(format!(" isis hello-multiplier {held}"));
    lines.push(format!(" isis metric {}", isis.metric));
    if isis.point_to_point {
        lines.push(" isis network point-to-point".into());
    }
    lines.extend(settings.igp.priority.map(|priority| format!(" isis priority {priority}")));
    if settings.igp.unpadded {
        lines.push(" no isis hello padding".into());
    }
    if settings.bfd.is_some() {
        lines.extend([" isis bfd".into(), format!(" isis bfd profile {NAME}")]);
    }
    lines.push("exit".into());
    for (number, group) in settings.groups.iter().enumerate() {
        let Some(IgpRoutes { metric, .. }) = settings.igp.interior(number) else { continue };
        lines.push(format!("interface {}", igp::interface(number)));
        for (word, is_ipv4) in [("ip", true), ("ipv6", false)] {
            if has_routes(group, is_ipv4) {
                lines.push(format!(" {word} router isis {NAME}"));
            }
        }
        lines.push(format!(" isis circuit-type {level}"));
        lines.push(" isis passive".into());
        lines.push(format!(" isis metric {metric}"));
        lines.push("exit".into());
    }
    lines
}

/// The network entity title (ISO/IEC 10589): the digits of the router ID are the system ID, unless
/// it has one.
fn net(settings: &RouterSettings, isis: &Isis) -> String {
    let digits: String = match settings.igp.system_id {
        Some(octets) => octets.iter().map(|octet| format!("{octet:02x}")).collect(),
        None => settings.router_id.octets().iter().map(|octet| format!("{octet:03}")).collect(),
    };
    format!("{}.{}.{}.{}.00", isis.area, &digits[..4], &digits[4..8], &digits[8..])
}

fn rip(settings: &RouterSettings, process: Process) -> Vec<String> {
    let update = seconds(settings.rip_update);
    let (name, version) = match process {
        Process::Ripngd => ("ripng", None),
        _ => ("rip", Some(" version 2".to_owned())),
    };
    let mut lines = vec![format!("router {name}")];
    lines.extend(version);
    // Timeout and garbage collection in the proportion of RFC 2453 section 3.8.
    lines.push(format!(" timers basic {update} {} {}", 6 * update, 4 * update));
    lines.push(format!(" network {INTERFACE}"));
    lines.extend(redistribute(settings, " redistribute kernel"));
    lines.push("exit".into());
    lines
}

/// The questions for the states of all protocols, with the process that answers each.
pub fn questions(settings: &RouterSettings) -> Vec<(Process, &'static str)> {
    let of = |process: Process| process.questions().iter().map(move |text| (process, *text));
    processes(settings).into_iter().flat_map(of).collect()
}

/// The commands that end a session of [`protocols`], or all of a protocol. `message` is for the
/// neighbor of BGP (RFC 9003). `None`: there is no such protocol.
pub fn down(
    settings: &RouterSettings,
    protocol: &str,
    message: &str,
) -> Option<(Process, Vec<String>)> {
    change(settings, protocol, true, message)
}

/// The commands that begin a session again.
pub fn up(settings: &RouterSettings, protocol: &str) -> Option<(Process, Vec<String>)> {
    change(settings, protocol, false, "")
}

fn change(
    settings: &RouterSettings,
    protocol: &str,
    down: bool,
    message: &str,
) -> Option<(Process, Vec<String>)> {
    let no = |is_taken_back: bool| if is_taken_back { "no " } else { "" };
    let (process, place, line) = match protocol {
        "ospf4" => {
            let line = format!("{}ip ospf area {}", no(down), settings.ospf?);
            (Process::Ospfd, format!("interface {INTERFACE}"), line)
        }
        "ospf6" => {
            let line = format!("{}ipv6 ospf6 area {}", no(down), settings.ospf3?);
            (Process::Ospf6d, format!("interface {INTERFACE}"), line)
        }
        "isis1" => {
            let line = format!("{}isis passive", no(!down));
            (Process::Isisd, format!("interface {INTERFACE}"), line)
        }
        "rip4" => {
            let line = format!("{}network {INTERFACE}", no(down));
            (Process::Ripd, "router rip".into(), line)
        }
        "rip6" => {
            let line = format!("{}network {INTERFACE}", no(down));
            (Process::Ripngd, "router ripng".into(), line)
        }
        _ => {
            let bgp = settings.bgp.as_ref()?;
            let address = neighbor(settings, protocol)?;
            let message = shown(message);
            let message = if message.is_empty() { "" } else { &format!(" message {message}") };
            let line = format!("{}neighbor {address} shutdown{message}", no(!down));
            (Process::Bgpd, format!("router bgp {}", bgp.asn), line)
        }
    };
    Some((process, vec!["configure terminal".into(), place, line, "end".into()]))
}

/// A message as a command can have it: a bar with a space begins a filter of the output, and spaces
/// divide words.
fn shown(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ").replace("| ", "|")
}

/// The command that asks the neighbor of a session of BGP for its routes again.
pub fn refresh(settings: &RouterSettings, protocol: &str) -> Option<(Process, Vec<String>)> {
    let address = neighbor(settings, protocol)?;
    Some((Process::Bgpd, vec![format!("clear bgp {address} soft in")]))
}

/// The neighbor of protocol `bgp1`, and so on.
fn neighbor(settings: &RouterSettings, protocol: &str) -> Option<std::net::IpAddr> {
    let number: usize = protocol.strip_prefix("bgp")?.parse().ok()?;
    let neighbor = settings.bgp.as_ref()?.neighbors.get(number.checked_sub(1)?)?;
    Some(neighbor.address)
}

/// Length of the first complete reply in `text`, which came from a vty socket; `None`: it is not
/// complete. It ends with three zero octets and a code.
pub fn reply(text: &str) -> Option<usize> {
    let end = text.find("\0\0\0")? + 3;
    Some(end + text[end..].chars().next()?.len_utf8())
}

/// The text of a reply.
pub fn text(reply: &str) -> &str {
    reply.split('\0').next().unwrap_or_default()
}

/// Why a process did not carry out a command, from its reply; `None`: it did.
pub fn refusal(reply: &str) -> Option<String> {
    if reply.ends_with('\0') {
        return None;
    }
    let lines = text(reply).lines().map(str::trim);
    let lines: Vec<_> = lines.filter(|line| !line.is_empty()).collect();
    Some(if lines.is_empty() { "it does not know the command".into() } else { lines.join(", ") })
}

/// Number of the kernel's routes in the replies of zebra to [`KERNEL`].
pub fn kernel_routes<'a>(replies: impl IntoIterator<Item = &'a str>) -> u64 {
    replies.into_iter().map(|reply| routes(reply, &["kernel"])).sum()
}

/// Number of routes of some types in a reply of zebra.
fn routes(reply: &str, types: &[&str]) -> u64 {
    let of_type = |one: &&Json| {
        one.get("type").and_then(Json::as_str).is_some_and(|kind| types.contains(&kind))
    };
    let found = json(reply);
    let all = found.get("routes").and_then(Json::as_array).into_iter().flatten();
    all.filter(of_type).filter_map(|one| one.get("rib")?.as_u64()).sum()
}

fn json(reply: &str) -> Json {
    serde_json::from_str(text(reply)).unwrap_or_default()
}

/// The states of the protocols. `replies` has the reply to each of the [`questions`].
pub fn protocols(
    settings: &RouterSettings,
    replies: &BTreeMap<&'static str, String>,
) -> Vec<ProtocolState> {
    let reply = |process: Process| {
        let mut replies = process.questions().iter().filter_map(|text| replies.get(text));
        replies.next().map_or("", String::as_str)
    };
    let of_zebra = KERNEL.map(|text| replies.get(text).map_or("", String::as_str));
    let own = of_zebra.map(|reply| routes(reply, &["kernel"]));
    let learnt = |family: usize, kind: &str| routes(of_zebra[family], &[kind]);
    let one = |name: &str, kind: &str, state: String, is_up: bool| ProtocolState {
        name: name.to_owned(),
        kind: kind.to_owned(),
        state,
        is_up,
        ..ProtocolState::default()
    };
    let mut found = Vec::new();
    if settings.bfd.is_some() {
        let peers = json(reply(Process::Bfdd));
        let is_up = |peer: &&Json| peer.get("status").and_then(Json::as_str) == Some("up");
        let peers = peers.as_array().map_or(&[][..], Vec::as_slice);
        let state = format!("{} of {} up", peers.iter().filter(is_up).count(), peers.len());
        found.push(one("bfd1", "BFD", state, true));
    }
    if let Some(bgp) = &settings.bgp {
        let all = json(reply(Process::Bgpd));
        for (number, neighbor) in bgp.neighbors.iter().enumerate() {
            let address = neighbor.address.to_string();
            let of = all.get(&address);
            found.push(session(of, format!("bgp{}", number + 1), address));
        }
    }
    for (name, process, family, wanted) in [
        ("ospf4", Process::Ospfd, 0, settings.ospf.is_some()),
        ("ospf6", Process::Ospf6d, 1, settings.ospf3.is_some()),
    ] {
        if wanted {
            let (state, is_up) = neighbors(&json(reply(process)), "Full");
            let imported = learnt(family, if family == 0 { "ospf" } else { "ospf6" });
            let state = one(name, "OSPF", state, is_up);
            found.push(ProtocolState { imported, exported: own[family], ..state });
        }
    }
    if settings.isis.is_some() {
        let (state, is_up) = neighbors(&json(reply(Process::Isisd)), "Up");
        let state = one("isis1", "IS-IS", state, is_up);
        let neighbors = replies.get(ISIS_NEIGHBORS).map_or("", String::as_str);
        let database = replies.get(ISIS_DATABASE).map_or("", String::as_str);
        let (neighbors, lsps) = (isis_neighbors(neighbors), isis_lsps(database));
        let state = ProtocolState { neighbors, lsps, ..state };
        let imported = learnt(0, "isis") + learnt(1, "isis");
        let speaks = [settings.ipv4.is_some(), settings.ipv6.is_some()];
        let exported = own.into_iter().zip(speaks).filter(|(_, speaks)| *speaks);
        let exported = exported.map(|(routes, _)| routes).sum();
        found.push(ProtocolState { imported, exported, ..state });
    }
    for (name, kind, process, family, wanted) in [
        ("rip4", "RIP", Process::Ripd, 0, settings.rip),
        ("rip6", "RIPng", Process::Ripngd, 1, settings.ripng),
    ] {
        if wanted {
            // RIP has no sessions.
            let runs = reply(process).contains("Routing Protocol is");
            let state = one(name, kind, if runs { "Running" } else { "start" }.into(), runs);
            let imported = learnt(family, if family == 0 { "rip" } else { "ripng" });
            found.push(ProtocolState { imported, exported: own[family], ..state });
        }
    }
    found
}

/// The neighbors in the table of `show isis neighbor`: system ID, interface, level (3: both) and
/// state.
fn isis_neighbors(reply: &str) -> Vec<LinkNeighbor> {
    let neighbor = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().filter(|interface| *interface == INTERFACE)?;
        let levels = match words.next()? {
            "1" => [true, false],
            "2" => [false, true],
            "3" => [true, true],
            _ => return None,
        };
        let state = words.next()?.to_owned();
        Some(LinkNeighbor { is_up: state == "Up", state, levels })
    };
    text(reply).lines().filter_map(neighbor).collect()
}

/// Number of LSPs of level 1 and of level 2 in the tables of `show isis database`. Below each is
/// its number of lines.
fn isis_lsps(reply: &str) -> [u64; 2] {
    let mut lsps = [0; 2];
    let mut level = 0;
    for line in text(reply).lines() {
        if line.contains("IS-IS Level-") {
            level = usize::from(line.contains("Level-2"));
        }
        let number =
            line.trim().strip_suffix(" LSPs").and_then(|number| number.parse::<u64>().ok());
        lsps[level] += number.unwrap_or(0);
    }
    lsps
}

/// A session of BGP from `show bgp neighbors json`.
fn session(of: Option<&Json>, name: String, neighbor: String) -> ProtocolState {
    let word = |key: &str| of.and_then(|of| of.get(key)?.as_str()).unwrap_or_default();
    let state = word("bgpState").to_owned();
    let is_up = state == "Established";
    let families = of.and_then(|of| of.get("addressFamilyInfo")?.as_object());
    let sum = |key: &str| -> u64 {
        let all = families.into_iter().flat_map(|all| all.values());
        all.filter_map(|family| family.get(key)?.as_u64()).sum()
    };
    let why = [word("lastNotificationReason"), word("lastResetDueTo")];
    let why = why.into_iter().find(|text| !text.is_empty() && !is_up).unwrap_or_default();
    ProtocolState {
        name,
        kind: "BGP".into(),
        state,
        is_up,
        neighbor,
        error: why.to_owned(),
        imported: sum("acceptedPrefixCounter"),
        exported: sum("sentPrefixCounter"),
        ..ProtocolState::default()
    }
}

/// The state of a protocol with neighbors, and whether one of them is `up`. Versions of FRR differ
/// in the form of the list, and in the names of the key.
fn neighbors(reply: &Json, up: &str) -> (String, bool) {
    let mut states = Vec::new();
    collect(reply, &mut states);
    // A state of OSPF is followed by the neighbor's role: Full/DR.
    let is_up = |state: &&str| state.split('/').next() == Some(up);
    match (states.iter().any(is_up), states.first()) {
        (true, _) => ("Running".into(), true),
        (false, Some(state)) => ((*state).to_owned(), false),
        (false, None) => ("Alone".into(), false),
    }
}

fn collect<'a>(value: &'a Json, states: &mut Vec<&'a str>) {
    match value {
        Json::Array(all) => all.iter().for_each(|one| collect(one, states)),
        Json::Object(all) => {
            let mut keys = ["nbrState", "state"].into_iter();
            match keys.find_map(|key| all.get(key)?.as_str()) {
                Some(state) => states.push(state),
                None => all.values().for_each(|one| collect(one, states)),
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
