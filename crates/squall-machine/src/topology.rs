//! Labs of several nodes: a [`Topology`] to the settings, commands and programs of its namespaces,
//! and a lab that is up to the states of its nodes, links and daemons.
//!
//! Hosts and routers are kernels in namespaces, configured as users would do with `ip`; routing
//! daemons are BIRDs whose kernels forward by the routes that they learn.

use std::{fmt::Write as _, net::Ipv4Addr};

use serde_json::{Value as Json, json};
use squall_port::{Address, fault::Faults};
use squall_port_linux::{
    control::ControlSocket,
    lab::{
        Cable, CableEnd, Lab, LabError, LabInterface, Node, NodeProgram, NodeState, Nodes, Shaper,
        Sysctl,
    },
};
use squall_profile::{
    Diagnostic, Diagnostics, LabDaemon, LabEnd, LabLink, LabNode, LabRole, LabRoute, Topology,
};
use squall_router::bird::{
    self,
    forwarding::{
        ForwardingBgp, ForwardingInterface, ForwardingSettings, LinkKind, StaticRoute,
        configuration,
    },
};
use squall_units::MacAddr;

/// The interface of a bridge itself.
const BRIDGE: &str = "br0";
/// The interfaces of a link with faults.
const FAULTY: [&str; 2] = ["a", "b"];

/// The nodes of a lab with this topology.
///
/// # Errors
/// Faults of a link that no port has.
pub fn nodes(topology: &Topology) -> Result<Nodes, Diagnostics> {
    let mut nodes: Vec<Node> = topology
        .nodes
        .iter()
        .enumerate()
        .map(|(number, one)| node(topology, number, one))
        .collect();
    let mut cables = Vec::new();
    let mut mistakes = Vec::new();
    for (number, link) in topology.links.iter().enumerate() {
        let ends = [0, 1].map(|side| cable_end(topology, number, side));
        let Some(faults) = &link.faults else {
            cables.push(Cable { ends, mtu: link.mtu });
            continue;
        };
        let ports = FAULTY.map(|interface| format!("af_packet:{interface},{}", faults.text));
        if let Err(problem) = check_faults(&ports[0]) {
            let message = format!("link {}: faults = {:?}: {problem}", number + 1, faults.text);
            let hint = "try faults = \"delay=5ms,drop=1/100\"".to_owned();
            let origin = topology.origin.clone();
            mistakes.push(Diagnostic { origin, ..Diagnostic::at(faults.at, message, vec![hint]) });
        }
        let forwarder = nodes.len();
        nodes.push(Node {
            name: forwarder_of(number),
            sysctls: without_ipv6(),
            program: Some(NodeProgram::Forward { ports }),
            ..Node::default()
        });
        for (side, end) in ends.into_iter().enumerate() {
            let interface = FAULTY[side].to_owned();
            let own =
                CableEnd { node: Some(forwarder), interface, mac: mac(0xf000 + number, side) };
            cables.push(Cable { ends: [end, own], mtu: link.mtu });
        }
    }
    match mistakes.is_empty() {
        true => Ok(Nodes { nodes, cables, description: describe(topology).to_string() }),
        false => Err(Diagnostics(mistakes)),
    }
}

/// The node that forwards frames of a link with faults. With a dot, because names in files have
/// none.
fn forwarder_of(link: usize) -> String {
    format!("link.{}", link + 1)
}

/// Checks the options of a port that are its faults.
fn check_faults(port: &str) -> Result<(), String> {
    let mut address: Address =
        port.parse().map_err(|error: squall_port::AddressError| error.problem)?;
    Faults::take(&mut address).map_err(|error| error.problem)?;
    address.finish(Faults::KEYS).map_err(|error| error.problem)
}

/// Fixed addresses, so that an old profile fits a new lab.
fn mac(node: usize, interface: usize) -> MacAddr {
    let ([a, b], [c, d]) = ((node as u16).to_be_bytes(), (interface as u16).to_be_bytes());
    MacAddr([0x02, 0, a, b, c, d])
}

/// Node 0 are the ports; nodes count from 1, and their interfaces from 0.
fn end_mac(topology: &Topology, end: &LabEnd) -> MacAddr {
    let same = topology.ends().filter(|other| other.node == end.node);
    let number = same.take_while(|other| other.interface != end.interface).count();
    mac(end.node.map_or(0, |node| node + 1), number)
}

fn cable_end(topology: &Topology, link: usize, side: usize) -> CableEnd {
    let end = &topology.links[link].ends[side];
    CableEnd { node: end.node, interface: end.interface.clone(), mac: end_mac(topology, end) }
}

fn node(topology: &Topology, number: usize, node: &LabNode) -> Node {
    let ends: Vec<(&LabLink, &LabEnd)> = topology
        .links
        .iter()
        .flat_map(|link| link.ends.iter().map(move |end| (link, end)))
        .filter(|(_, end)| end.node == Some(number))
        .collect();
    let has_ipv6 = topology.ends().flat_map(|end| &end.addresses).any(|(a, _)| a.is_ipv6());
    let mut commands = String::new();
    let mut addresses = String::new();
    let mut routes = String::new();
    for (_, end) in &ends {
        for (address, length) in &end.addresses {
            // Duplicate addresses are excluded, and detecting them would take a second.
            let more = if address.is_ipv6() { " nodad" } else { "" };
            let interface = &end.interface;
            _ = writeln!(addresses, "addr replace {address}/{length} dev {interface}{more}");
        }
    }
    let mut sysctls = match node.role {
        LabRole::Bridge { .. } => without_ipv6(),
        LabRole::Host { .. } => quiet(has_ipv6),
        LabRole::Router { .. } => forwarding(has_ipv6),
    };
    sysctls.extend(node.sysctls.iter().map(|(name, value)| Sysctl {
        file: file_of(name),
        value: value.clone(),
        must: true,
    }));
    let mut program = None;
    match &node.role {
        LabRole::Host { gateways } => {
            gateways.iter().for_each(|via| _ = writeln!(routes, "route replace default via {via}"));
        }
        LabRole::Router { routes: own, daemon: None } => {
            own.iter().for_each(|route| routes += &route_command(route));
        }
        LabRole::Router { routes: own, daemon: Some(daemon) } => {
            let configuration = daemon_configuration(topology, number, own, daemon, &ends);
            program = Some(NodeProgram::Bird { configuration });
        }
        LabRole::Bridge { snooping, querier } => {
            let (snooping, querier) = (u8::from(*snooping), u8::from(*querier));
            _ = writeln!(
                commands,
                "link add {BRIDGE} type bridge stp_state 0 forward_delay 0 mcast_snooping \
                 {snooping} mcast_querier {querier}\nlink set dev {BRIDGE} up"
            );
            for (_, end) in &ends {
                _ = writeln!(commands, "link set dev {} master {BRIDGE}", end.interface);
            }
        }
    }
    let shapers = ends.iter().filter_map(|(link, end)| {
        let shaper = Shaper {
            bps: link.rate?.value() as u64,
            discipline: link.queue.clone().unwrap_or_else(|| "pfifo".into()),
            limit: link.limit,
            // With a VLAN tag.
            frame: link.mtu + 18,
        };
        Some((end.interface.clone(), shaper))
    });
    let shapers = shapers.collect();
    let name = node.name.clone();
    Node { name, sysctls, commands, addresses, routes, shapers, program }
}

fn sysctl(file: &str, value: &str, must: bool) -> Sysctl {
    Sysctl { file: file.into(), value: value.into(), must }
}

fn without_ipv6() -> Vec<Sysctl> {
    ["all", "default"]
        .map(|which| sysctl(&format!("ipv6/conf/{which}/disable_ipv6"), "1", false))
        .into()
}

/// Settings of hosts and routers: addresses are ready at once, no frames without a reason, and a
/// route is not used while its link has no carrier.
fn quiet(ipv6: bool) -> Vec<Sysctl> {
    let mut all = Vec::new();
    for which in ["all", "default"] {
        let mut set =
            |key: &str, value, must| all.push(sysctl(&key.replace("IF", which), value, must));
        set("ipv4/conf/IF/rp_filter", "0", true);
        set("ipv4/conf/IF/ignore_routes_with_linkdown", "1", true);
        set("ipv6/conf/IF/disable_ipv6", "0", ipv6);
        set("ipv6/conf/IF/accept_dad", "0", ipv6);
        set("ipv6/conf/IF/accept_ra", "0", ipv6);
        set("ipv6/conf/IF/router_solicitations", "0", ipv6);
        set("ipv6/conf/IF/keep_addr_on_down", "1", ipv6);
        set("ipv6/conf/IF/ignore_routes_with_linkdown", "1", ipv6);
    }
    all
}

fn forwarding(ipv6: bool) -> Vec<Sysctl> {
    let mut all = quiet(ipv6);
    all.push(sysctl("ipv4/ip_forward", "1", true));
    all.push(sysctl("ipv6/conf/all/forwarding", "1", ipv6));
    // Two ways can share a network only through a bridge, and hosts keep their gateway there.
    all.push(sysctl("ipv4/conf/all/send_redirects", "0", true));
    all.push(sysctl("ipv4/conf/default/send_redirects", "0", true));
    all
}

/// The file of a setting: `net.ipv4.tcp_ecn` is ipv4/tcp_ecn.
fn file_of(name: &str) -> String {
    name.trim_start_matches("net.").replace('.', "/")
}

fn route_command(route: &LabRoute) -> String {
    let (address, length) = route.prefix;
    let metric = route.metric.map_or(String::new(), |metric| format!(" metric {metric}"));
    let hops = match &route.next_hops[..] {
        [] => return format!("route replace blackhole {address}/{length}{metric}\n"),
        [hop] => format!(" via {hop}{metric}"),
        hops => {
            let hops: String = hops.iter().map(|hop| format!(" nexthop via {hop}")).collect();
            format!("{metric}{hops}")
        }
    };
    format!("route replace {address}/{length}{hops}\n")
}

fn daemon_configuration(
    topology: &Topology,
    number: usize,
    routes: &[LabRoute],
    daemon: &LabDaemon,
    ends: &[(&LabLink, &LabEnd)],
) -> String {
    if let Some(text) = &daemon.configuration {
        return text.clone();
    }
    let addresses = ends.iter().flat_map(|(_, end)| &end.addresses);
    let first = addresses.filter_map(|(address, _)| match address {
        std::net::IpAddr::V4(address) => Some(*address),
        std::net::IpAddr::V6(_) => None,
    });
    // Documentation addresses (RFC 5737) for routers with IPv6 alone.
    let router_id = first.min().unwrap_or(Ipv4Addr::new(192, 0, 2, (number + 1) as u8));
    let asn = daemon.asn;
    configuration(&ForwardingSettings {
        router_id,
        interfaces: ends
            .iter()
            .map(|(link, end)| ForwardingInterface {
                name: end.interface.clone(),
                link: link_kind(topology, number, link),
                cost: link.cost,
            })
            .collect(),
        routes: routes
            .iter()
            .map(|route| StaticRoute { prefix: route.prefix, next_hops: route.next_hops.clone() })
            .collect(),
        bgp: asn.map(|asn| ForwardingBgp {
            asn,
            neighbors: daemon
                .neighbors
                .iter()
                .map(|one| (one.address, one.asn.unwrap_or(asn)))
                .collect(),
        }),
        ospf: daemon.ospf,
        ospf3: daemon.ospf3,
        hello: daemon.hello,
        dead: daemon.dead,
        rip: daemon.rip,
        ripng: daemon.ripng,
        rip_update: daemon.rip_update,
        bfd: daemon.bfd,
    })
}

/// The kind of the other end of a link of node `number`. A port or a bridge can lead to any number
/// of routers.
fn link_kind(topology: &Topology, number: usize, link: &LabLink) -> LinkKind {
    let other = link.ends.iter().find(|end| end.node != Some(number)).and_then(|end| end.node);
    match other.map(|node| &topology.nodes[node].role) {
        Some(LabRole::Router { .. }) => LinkKind::Point,
        Some(LabRole::Host { .. }) => LinkKind::Hosts,
        Some(LabRole::Bridge { .. }) | None => LinkKind::Shared,
    }
}

/// The nodes, ports and links of a topology, as in `squall lab status --json`.
pub fn describe(topology: &Topology) -> Json {
    let interface = |end: &LabEnd| {
        let addresses = end.addresses.iter().map(|(address, length)| format!("{address}/{length}"));
        json!({
            "name": end.interface,
            "mac": end_mac(topology, end).to_string(),
            "addresses": addresses.collect::<Vec<_>>(),
        })
    };
    let interfaces = |node: Option<usize>| -> Vec<Json> {
        topology.ends().filter(|end| end.node == node).map(interface).collect()
    };
    let nodes = topology.nodes.iter().enumerate().map(|(number, node)| {
        let mut one = json!({
            "name": node.name,
            "kind": node.role.word(),
            "interfaces": interfaces(Some(number)),
        });
        if let LabRole::Router { daemon: Some(_), .. } = &node.role {
            one["daemon"] = json!({ "name": "bird" });
        }
        one
    });
    let links = topology.links.iter().map(|link| {
        let mut one = json!({
            "ends": link.ends.each_ref().map(|end| topology.end_name(end)),
            "mtu": link.mtu,
        });
        if let Some(rate) = link.rate {
            one["rate"] = json!(rate.to_string());
        }
        if let Some(faults) = &link.faults {
            one["faults"] = json!(faults.text);
        }
        one
    });
    json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "ports": interfaces(None),
        "links": links.collect::<Vec<_>>(),
    })
}

/// The state of a lab: its process, nodes with their interfaces, counters and daemons, ports, and
/// links. A lab without a topology has ports alone. Moves this process, which must have one thread,
/// into the lab.
///
/// # Errors
/// As [`Lab::states`].
pub fn status(lab: &Lab) -> Result<Json, LabError> {
    let text = lab.description()?;
    let mut status: Json = serde_json::from_str(&text)
        .unwrap_or_else(|_| json!({ "nodes": [], "ports": [], "links": [] }));
    // Before this process is in the lab, where its user has another number.
    for node in array(&mut status, "nodes") {
        let name = node["name"].as_str().unwrap_or_default().to_owned();
        if node.get("daemon").is_some() {
            node["daemon"] = daemon_state(lab, &name)?;
        }
    }
    for (number, link) in array(&mut status, "links").enumerate() {
        if link["faults"].is_string() {
            let log = lab.daemon_folder(&forwarder_of(number))?.join("log");
            link["log"] = json!(log.to_string_lossy());
        }
    }
    let states = lab.states()?;
    let state_of = |name: Option<&str>| states.iter().find(|state| state.name.as_deref() == name);
    for node in array(&mut status, "nodes") {
        let name = node["name"].as_str().unwrap_or_default().to_owned();
        let Some(state) = state_of(Some(&name)) else { continue };
        node["process"] = json!(state.pid);
        node["runs"] = json!(state.runs);
        array(node, "interfaces").for_each(|one| add_state(one, state));
    }
    if let Some(own) = state_of(None) {
        if text.is_empty() {
            let ports = own.interfaces.iter().map(|one| json!({ "name": one.name }));
            status["ports"] = ports.collect();
        }
        array(&mut status, "ports").for_each(|one| add_state(one, own));
    }
    for (number, link) in array(&mut status, "links").enumerate() {
        add_link_state(link, number, &states);
    }
    status["lab"] = json!(lab.name);
    status["process"] = json!(lab.pid);
    if !lab.device().is_empty() {
        status["device"] = json!(lab.device());
    }
    Ok(status)
}

fn array<'a>(of: &'a mut Json, key: &str) -> impl Iterator<Item = &'a mut Json> {
    of.get_mut(key).and_then(Json::as_array_mut).into_iter().flatten()
}

/// Adds its state to the description of a link, and the reason if its ends do not show it.
fn add_link_state(link: &mut Json, number: usize, states: &[NodeState]) {
    let state_of = |name: Option<&str>| states.iter().find(|state| state.name.as_deref() == name);
    let carries = |end: &Json| {
        let end = end.as_str().unwrap_or_default();
        let (node, name) = match end.split_once(':') {
            Some((node, name)) => (Some(node), name),
            None => (None, end),
        };
        let interfaces = state_of(node).map_or(&[][..], |state| &state.interfaces);
        interfaces.iter().any(|one| one.name == name && one.can_carry)
    };
    let carry = link["ends"].as_array().is_some_and(|ends| ends.iter().all(carries));
    // The interfaces of a forwarder keep their carrier when its program ends.
    let forwarder = state_of(Some(&forwarder_of(number))).filter(|_| link["faults"].is_string());
    let ended = forwarder.is_some_and(|state| !state.runs || state.program_runs == Some(false));
    link["up"] = json!(carry && !ended);
    if ended {
        link["reason"] = json!("its forwarder has ended");
    }
}

/// Adds state and counters to the description of an interface.
fn add_state(interface: &mut Json, state: &NodeState) {
    let is_it = |one: &&LabInterface| interface["name"].as_str() == Some(one.name.as_str());
    let Some(found) = state.interfaces.iter().find(is_it) else {
        interface["state"] = json!("gone");
        return;
    };
    let word = match (found.is_up, found.can_carry) {
        (false, _) => "down",
        (true, false) => "no carrier",
        (true, true) => "up",
    };
    interface["state"] = json!(word);
    interface["mac"] = json!(found.mac.map(|mac| mac.to_string()));
    interface["mtu"] = json!(found.mtu);
    interface["rx_packets"] = json!(found.counters.rx_packets);
    interface["tx_packets"] = json!(found.counters.tx_packets);
}

/// The protocols of a node's daemon. A daemon that does not answer has ended.
fn daemon_state(lab: &Lab, node: &str) -> Result<Json, LabError> {
    let folder = lab.daemon_folder(node)?;
    let socket = folder.join("control");
    let answer = ControlSocket::open(&socket, bird::reply, &|| false)
        .and_then(|mut control| control.ask(bird::SHOW, &|| false));
    let mut state = json!({
        "name": "bird",
        "socket": socket.to_string_lossy(),
        "log": folder.join("log").to_string_lossy(),
        "runs": answer.is_ok(),
    });
    if let Ok(answer) = answer {
        let protocols = bird::protocols(&answer).into_iter().map(|one| {
            json!({
                "name": one.name,
                "kind": one.kind,
                "state": one.state,
                "up": one.is_up,
                "routes_learnt": one.imported,
                "routes_announced": one.exported,
            })
        });
        state["protocols"] = protocols.collect();
    }
    Ok(state)
}

#[cfg(test)]
mod tests {
    use squall_port::InterfaceCounters;
    use squall_profile::Format;

    use super::*;

    fn topology(text: &str) -> Topology {
        Topology::parse_with(text, "lab.toml", Format::Toml, &|path| {
            panic!("{} is not read", path.display())
        })
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
    }

    const TEXT: &str = r#"
node = [
  { name = "h1", kind = "host", gateway = ["10.0.1.1", "2001:db8:1::1"], sysctl = "net.ipv4.tcp_ecn=1" },
  { name = "r1", kind = "router", routes = [
    "10.0.2.0/24 via 10.0.12.2 via 10.0.12.3", "10.0.3.0/24 via 10.0.12.2 metric 20",
    "10.0.4.0/24 blackhole",
  ] },
  { name = "r2", kind = "router", ospf = 0 },
  { name = "b", kind = "bridge", querier = true },
]
link = [
  { ends = ["h1:eth0 10.0.1.2/24 2001:db8:1::2/64", "r1:eth0 10.0.1.1/24 2001:db8:1::1/64"] },
  { ends = ["r1:eth1 10.0.12.1/24", "r2:eth0 10.0.12.2/24"], rate = "10 Mbps", cost = 5 },
  { ends = ["r2:eth1 10.0.13.2/24", "b:p1"], faults = "delay=5ms", mtu = 9000 },
  { ends = ["b:p2", "veth-a"] },
]
"#;

    #[test]
    fn a_link_is_down_if_an_end_has_no_carrier_or_its_forwarder_has_ended() {
        let interface = |name: &str, can_carry| LabInterface {
            name: name.into(),
            mac: None,
            mtu: 1500,
            is_up: true,
            can_carry,
            counters: InterfaceCounters::default(),
        };
        let node = |name: Option<&str>, interfaces, program_runs| NodeState {
            name: name.map(str::to_owned),
            pid: 1,
            runs: true,
            program_runs,
            interfaces,
        };
        let state = |carrier, program_runs| {
            let mut link = json!({ "ends": ["r1:eth0", "veth-a"], "faults": "delay=5ms" });
            let states = [
                node(None, vec![interface("veth-a", true)], None),
                node(Some("r1"), vec![interface("eth0", carrier)], None),
                node(Some("link.3"), Vec::new(), program_runs),
            ];
            add_link_state(&mut link, 2, &states);
            let reason = link["reason"].as_str().map(str::to_owned);
            (link["up"] == true, reason)
        };
        let ended = Some("its forwarder has ended".to_owned());
        assert_eq!(state(true, Some(true)), (true, None));
        assert_eq!(state(false, Some(true)), (false, None));
        assert_eq!(state(true, Some(false)), (false, ended.clone()));
        assert_eq!(state(false, Some(false)), (false, ended));
    }

    #[test]
    fn nodes_get_commands_and_links_become_cables() {
        let nodes = nodes(&topology(TEXT)).unwrap();
        let names: Vec<_> = nodes.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["h1", "r1", "r2", "b", "link.3"]);
        let [h1, r1, r2, bridge, faulty] = &nodes.nodes[..] else { panic!() };
        assert_eq!(
            h1.addresses,
            "addr replace 10.0.1.2/24 dev eth0\naddr replace 2001:db8:1::2/64 dev eth0 nodad\n"
        );
        assert_eq!(
            h1.routes,
            "route replace default via 10.0.1.1\nroute replace default via 2001:db8:1::1\n"
        );
        assert!(h1.sysctls.contains(&sysctl("ipv4/tcp_ecn", "1", true)));
        assert!(!h1.sysctls.iter().any(|one| one.file == "ipv4/ip_forward"));
        assert!(r1.sysctls.contains(&sysctl("ipv4/ip_forward", "1", true)));
        assert_eq!(
            r1.routes,
            "route replace 10.0.2.0/24 nexthop via 10.0.12.2 nexthop via 10.0.12.3\nroute replace \
             10.0.3.0/24 via 10.0.12.2 metric 20\nroute replace blackhole 10.0.4.0/24\n"
        );
        assert_eq!(r1.shapers[0].0, "eth1");
        assert_eq!(
            (r1.shapers[0].1.bps, r1.shapers[0].1.discipline.as_str()),
            (10_000_000, "pfifo")
        );
        assert_eq!(r1.shapers[0].1.frame, 1518);
        let Some(NodeProgram::Bird { configuration }) = &r2.program else { panic!() };
        for part in [
            "router id 10.0.12.2;",
            "\"eth0\" { type ptp;",
            "\"eth1\" { type broadcast;",
            "cost 5;",
        ] {
            assert!(configuration.contains(part), "{part}: {configuration}");
        }
        assert!(
            bridge.commands.contains("mcast_snooping 1 mcast_querier 1"),
            "{}",
            bridge.commands
        );
        assert!(bridge.commands.contains("link set dev p2 master br0"), "{}", bridge.commands);
        let Some(NodeProgram::Forward { ports }) = &faulty.program else { panic!() };
        assert_eq!(ports[1], "af_packet:b,delay=5ms");
        let ends: Vec<_> = nodes
            .cables
            .iter()
            .map(|cable| cable.ends.each_ref().map(|end| (end.node, end.interface.as_str())))
            .collect();
        assert_eq!(
            ends[2..],
            [
                [(Some(2), "eth1"), (Some(4), "a")],
                [(Some(3), "p1"), (Some(4), "b")],
                [(Some(3), "p2"), (None, "veth-a")],
            ]
        );
        assert_eq!(nodes.cables[3].mtu, 9000);
    }

    #[test]
    fn each_interface_has_a_mac_address_of_its_own() {
        let nodes = nodes(&topology(TEXT)).unwrap();
        let ends = nodes.cables.iter().flat_map(|cable| &cable.ends);
        let mut macs: Vec<_> = ends.map(|end| end.mac).collect();
        assert_eq!(macs[0], MacAddr([2, 0, 0, 1, 0, 0]));
        let count = macs.len();
        macs.sort_by_key(|mac| mac.0);
        macs.dedup();
        assert_eq!(macs.len(), count);
        let described: Json = serde_json::from_str(&nodes.description).unwrap();
        assert_eq!(described["nodes"][1]["interfaces"][1]["mac"], "02:00:00:02:00:01");
        assert_eq!(described["links"][2]["ends"], json!(["r2:eth1", "b:p1"]));
        assert_eq!(described["nodes"][2]["daemon"]["name"], "bird");
    }

    #[test]
    fn faults_that_no_port_has_are_refused_at_their_place() {
        let mistakes = nodes(&topology(&TEXT.replace("delay=5ms", "drip=0.1"))).unwrap_err();
        let text = mistakes.to_string();
        assert!(text.starts_with("lab.toml:14:") && text.contains("drip"), "{text}");
        assert!(text.contains("try faults = "), "{text}");
    }
}
