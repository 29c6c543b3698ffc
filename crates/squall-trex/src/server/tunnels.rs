//! GTP-U tunnels of clients: the flows of a client are inside a tunnel of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::Deserialize;
use serde_json::{Value, json};
use squall_flows::{AddrRange, GTPU_PORT, Interface, InterfaceOf, Wrap};
use squall_profile::{Flows, Interface as ProfileInterface, Located};

use super::{
    Answer, Refusal, Server,
    flows::ProbeEnds,
    fragments::{Fragments, Part},
};
use crate::{FlowPair, FlowPort, Problem, rpc::Params};

/// TRex's number of GTP-U.
const GTPU: u64 = 1;
/// Why records are refused.
const OFF: &str = "the tunnel mode is off\n  try activate_tunnel first";
/// Name of the layer of a tunnel.
const LAYER: &str = "gtp-u";
/// Maximum clients with a tunnel.
const MOST: usize = 65_536;
/// The longest layer of a tunnel. Records may come while flows are active, and frames must have
/// room for them.
const LONGEST: &str = "gtp-u :: :: 0 any";

/// The tunnels of all clients.
#[derive(Default)]
pub struct Tunnels {
    mode: Option<Mode>,
    records: BTreeMap<Ipv4Addr, Record>,
    /// Clients that begin no flows before `enable_disable_client` switches them on.
    off: BTreeSet<Ipv4Addr>,
    /// The client and the server of latency streams, by the port of clients.
    probes: BTreeMap<usize, [Ipv4Addr; 2]>,
    fragments: Fragments,
    /// The tunnels' topology, for clients that read it back.
    topology: Option<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mode {
    /// Whether servers answer in the client's tunnel.
    loopback: bool,
}

/// A client's tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    local: IpAddr,
    remote: IpAddr,
    teid: u32,
    /// 0: that of the packet in the tunnel.
    source_port: u16,
}

/// A record as `update_tunnel_client` has it.
#[derive(Deserialize)]
struct ClientRecord {
    client_ip: u32,
    sip: IpAddr,
    dip: IpAddr,
    sport: u16,
    teid: u32,
    version: u64,
}

/// Clients with consecutive records, as in a topology.
#[derive(Deserialize)]
struct Context {
    src_start: Ipv4Addr,
    src_end: Ipv4Addr,
    initial_teid: u32,
    teid_jump: u32,
    sport: u16,
    version: u64,
    tunnel_type: u64,
    src_ip: IpAddr,
    dst_ip: IpAddr,
    /// Whether these clients begin flows.
    activate: bool,
}

/// The ends of latency streams of a pair of ports.
#[derive(Deserialize)]
struct Probe {
    client_port_id: usize,
    client_ip: Ipv4Addr,
    server_ip: Ipv4Addr,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    tunnels: Vec<Context>,
    #[serde(default)]
    latency: Vec<Probe>,
}

impl Tunnels {
    pub fn is_active(&self) -> bool {
        self.mode.is_some()
    }

    pub fn clients_off(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.off.iter().copied()
    }

    /// Whether the flows of a port may be in tunnels.
    fn covers(&self, port: usize) -> bool {
        self.mode.is_some_and(|mode| mode.loopback || port.is_multiple_of(2))
    }

    /// Adds records and replaces those of their clients: all of them, or none.
    ///
    /// # Errors
    /// There are too many tunnels.
    fn update(&mut self, records: &[(Ipv4Addr, Record)]) -> Result<(), Problem> {
        let clients = records.iter().map(|(client, _)| client);
        let new = clients.filter(|client| !self.records.contains_key(*client));
        let new = new.collect::<BTreeSet<_>>().len();
        if self.records.len() + new > MOST {
            return Err(too_many());
        }
        self.records.extend(records.iter().copied());
        Ok(())
    }
}

fn too_many() -> Problem {
    Problem::new(format!("more than {MOST} clients with a tunnel"))
}

impl Data {
    /// The records of all clients.
    ///
    /// # Errors
    /// A context is invalid, two contexts have a client, or there are too many clients.
    fn records(&self) -> Result<BTreeMap<Ipv4Addr, Record>, Problem> {
        self.tunnels.iter().try_for_each(Context::check)?;
        let mut sorted: Vec<&Context> = self.tunnels.iter().collect();
        sorted.sort_by_key(|context| context.src_start);
        let mut neighbors = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((_, next)) = neighbors.find(|(one, next)| one.src_end >= next.src_start) {
            let text = format!("client {} is in two ranges of tunnels", next.src_start);
            return Err(Problem::new(text));
        }
        // Before the records are made, because ranges of IPv4 addresses may be of any size.
        if sorted.iter().map(|context| context.clients()).sum::<u64>() > MOST as u64 {
            return Err(too_many());
        }
        Ok(sorted.into_iter().flat_map(Context::records).collect())
    }

    /// The ends of latency streams, for a server with these ports of clients.
    ///
    /// # Errors
    /// A port is none of these or there twice, or a client has no tunnel.
    fn probes(
        &self,
        ports: &[usize],
        records: &BTreeMap<Ipv4Addr, Record>,
    ) -> Result<BTreeMap<usize, [Ipv4Addr; 2]>, Problem> {
        let mut probes = BTreeMap::new();
        for Probe { client_port_id: port, client_ip: client, server_ip } in &self.latency {
            let wrong = |text: String| Problem::new(text).of(format!("latency of port {port}"));
            if !ports.contains(port) {
                return Err(wrong(format!("expected one of the ports with clients, {ports:?}")));
            }
            if !records.contains_key(client) {
                return Err(wrong(format!("client {client} is in no range of tunnels")));
            }
            if probes.insert(*port, [*client, *server_ip]).is_some() {
                return Err(wrong("there are two of this port".into()));
            }
        }
        Ok(probes)
    }
}

impl Context {
    fn check(&self) -> Result<(), Problem> {
        let Self { src_start: first, src_end: last, .. } = *self;
        let of = |problem: Problem| problem.of(format!("tunnels of {first}-{last}"));
        if self.tunnel_type != GTPU {
            return Err(of(Problem::new("tunnel_type: expected 1, GTP-U")));
        }
        if last < first {
            return Err(of(Problem::new("src_end is before src_start")));
        }
        self.record(0).check(self.version).map_err(of)
    }

    /// Number of clients of a checked context.
    fn clients(&self) -> u64 {
        u64::from(u32::from(self.src_end) - u32::from(self.src_start)) + 1
    }

    fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> {
        (u32::from(self.src_start)..=u32::from(self.src_end)).map(Ipv4Addr::from)
    }

    fn records(&self) -> impl Iterator<Item = (Ipv4Addr, Record)> {
        (0..).zip(self.addresses()).map(move |(index, client)| (client, self.record(index)))
    }

    /// The record of client `index`.
    fn record(&self, index: u32) -> Record {
        let jump = self.teid_jump.wrapping_mul(index);
        Record {
            local: self.src_ip,
            remote: self.dst_ip,
            teid: self.initial_teid.wrapping_add(jump),
            source_port: self.sport,
        }
    }
}

impl Record {
    /// # Errors
    /// The tunnel's ends are of two families, or not of this version of IP.
    fn check(self, version: u64) -> Result<(), Problem> {
        let Self { local, remote, .. } = self;
        if local.is_ipv4() != remote.is_ipv4() {
            let text = format!("{local}, {remote}: expected addresses of one family");
            return Err(Problem::new(text));
        }
        let found = if local.is_ipv4() { 4 } else { 6 };
        match version == found {
            true => Ok(()),
            false => {
                let text = format!("version {version}: expected {found}, that of {local}");
                Err(Problem::new(text))
            }
        }
    }

    /// The headers of the tunnel at the clients, or at the servers, as text of a packet. They are
    /// those of flows.
    pub fn layers(self, of_clients: bool) -> String {
        let (local, remote) = self.ends(of_clients);
        let Self { teid, source_port, .. } = self;
        let ip = if local.is_ipv4() { "ipv4(flags=DF," } else { "ipv6(" };
        // Echo requests have no port that the tunnel could take.
        let port = if source_port == 0 { GTPU_PORT } else { source_port };
        format!("{ip}src={local},dst={remote})/udp(sport={port},checksum=0)/gtpu(teid={teid})")
    }

    /// The local and the remote end at the clients, or at the servers.
    fn ends(self, of_clients: bool) -> (IpAddr, IpAddr) {
        if of_clients { (self.local, self.remote) } else { (self.remote, self.local) }
    }

    /// The tunnel at the clients, or at the servers. Received packets may have any identifier, as
    /// in TRex, because the gateway chooses that of the other direction.
    fn wrap(self, of_clients: bool) -> Wrap {
        let (local, remote) = self.ends(of_clients);
        let Self { teid, source_port, .. } = self;
        Wrap::GtpU { local, remote, teid, local_teid: None, source_port }
    }
}

impl Server {
    fn tunnels(&self) -> Option<&Tunnels> {
        self.flows.as_ref().map(|server| &server.tunnels)
    }

    /// The interfaces that a port has in its profile if its flows may be in tunnels: one that makes
    /// room for any tunnel, and one for each end of the known tunnels, because a port may receive
    /// only addresses that its profile has. Their own addresses, 0.0.0.0 and the following ones,
    /// belong to no client. [`Server::tunnels_in_run`] replaces them.
    pub(super) fn reserved(&self, port: usize, vlan: Option<u16>) -> Vec<ProfileInterface> {
        let Some(tunnels) = self.tunnels().filter(|tunnels| tunnels.covers(port)) else {
            return Vec::new();
        };
        let located = |text: String| Located::from(text.as_str());
        let next_hop = Some(located(self.ports[port].destination.to_string()));
        let tag = vlan.map(|id| located(format!("vlan {id}")));
        let clients = port.is_multiple_of(2);
        let known = tunnels.records.values().map(|record| record.ends(clients));
        let known = known.collect::<BTreeSet<_>>().into_iter();
        let known = known.map(|(local, remote)| format!("{LAYER} {local} {remote} 0 any"));
        let interface = |(number, layer): (u32, String)| ProfileInterface {
            addresses: vec![located(Ipv4Addr::from(number).to_string())],
            next_hop: next_hop.clone(),
            wrap: tag.iter().cloned().chain([located(layer)]).collect(),
            ..ProfileInterface::default()
        };
        (0..).zip([LONGEST.to_owned()].into_iter().chain(known)).map(interface).collect()
    }

    /// Gives the tunnels of all clients to the run, if there is one.
    pub(super) fn tunnels_in_run(&self) -> Result<(), Refusal> {
        let Some(tunnels) = self.tunnels() else { return Ok(()) };
        for port in self.real_ports().into_iter().filter(|port| tunnels.covers(*port)) {
            let of = &self.ports[port];
            let clients = port.is_multiple_of(2);
            let vlan = of.vlan.first().map(|id| Wrap::Vlan {
                id: *id as u16,
                priority: 0,
                service: false,
            });
            let interface = |(client, record): (&Ipv4Addr, &Record)| {
                let client = IpAddr::V4(*client);
                Some(Interface {
                    of: if clients { InterfaceOf::Side } else { InterfaceOf::Peer },
                    addresses: AddrRange::new(client, client)?,
                    mac: None,
                    wraps: vlan.into_iter().chain([record.wrap(clients)]).collect(),
                    next_hop: Some(of.destination),
                })
            };
            let interfaces = tunnels.records.iter().filter_map(interface).collect();
            self.traffic.with(|run| {
                run.set_interfaces(port, interfaces);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Checks that ports receive the packets of records that come while flows are active. A port of
    /// AF_XDP takes only packets to addresses that its profile had at the start, unless its address
    /// has `take`.
    fn check_ends(&self, records: &[(Ipv4Addr, Record)]) -> Result<(), Refusal> {
        let (Some(tunnels), Some(flows)) = (self.tunnels(), self.traffic.flows()) else {
            return Ok(());
        };
        for port in self.real_ports().into_iter().filter(|port| tunnels.covers(*port)) {
            let address = &self.ports[port].info.address;
            if !address.starts_with("af_xdp:") || address.contains(",take=") {
                continue;
            }
            let known = ends_at(flows, port);
            let clients = port.is_multiple_of(2);
            let mut ends = records.iter().map(|(_, record)| record.ends(clients).0);
            if let Some(end) = ends.find(|end| !known.contains(end)) {
                return Err(Refusal::failed(format!(
                    "port {port} ({address}) does not take packets to {end}, which was no end of a \
                     tunnel when the flows started\n  try the records before start, or \
                     {address},take=all"
                )));
            }
        }
        Ok(())
    }

    pub(super) fn activate_tunnels(&mut self, params: &Params<'_>) -> Answer {
        gtpu(params)?;
        self.check_idle("the tunnel mode")?;
        let mode = params.flag("activate").then_some(Mode { loopback: params.flag("loopback") });
        if let Some(server) = &mut self.flows {
            if mode.is_some() && !server.topology.is_empty() {
                return Err(Refusal::failed(
                    "clients of a topology cannot be in tunnels\n  try topo_clear first",
                ));
            }
            match mode {
                // Switching the mode off forgets the records and the topology, as in TRex.
                None => server.tunnels = Tunnels::default(),
                _ => server.tunnels.mode = mode,
            }
        }
        Ok(json!({}))
    }

    /// Whether the flows of a client are in a tunnel.
    pub(super) fn has_tunnel(&self, client: Ipv4Addr) -> bool {
        let tunnels = self.tunnels().filter(|tunnels| tunnels.is_active());
        tunnels.is_some_and(|tunnels| tunnels.records.contains_key(&client))
    }

    /// The client and the server of each pair's latency streams: the ends in the tunnels' topology,
    /// otherwise those given.
    pub(super) fn chosen_ends(&self, given: Vec<[Ipv4Addr; 2]>) -> Vec<[Ipv4Addr; 2]> {
        let chosen = |pair: usize| self.tunnels()?.probes.get(&(2 * pair)).copied();
        given.into_iter().enumerate().map(|(pair, ends)| chosen(pair).unwrap_or(ends)).collect()
    }

    /// The ends of latency streams between these clients and servers of each pair. They are in the
    /// tunnels of their clients if flows are in tunnels.
    ///
    /// # Errors
    /// A client has no tunnel.
    pub(super) fn probe_ends(&self, ends: Vec<[Ipv4Addr; 2]>) -> Result<Vec<ProbeEnds>, Refusal> {
        let tunnels = self.tunnels().filter(|tunnels| tunnels.is_active());
        let of_pair = |(pair, [client, server]): (FlowPair, [Ipv4Addr; 2])| {
            // Pairs with an external end have no latency streams.
            let Some(tunnels) = tunnels.filter(|_| pair.is_whole()) else {
                return Ok(ProbeEnds { client, server, tunnels: [None; 2] });
            };
            let Some(record) = tunnels.records.get(&client) else {
                return Err(Refusal::failed(format!(
                    "client {client}, from which latency is measured, has no tunnel\n  try \
                     add_tunnel_latency in the topology of tunnels, with a client of its ranges"
                )));
            };
            let at = |port: Option<FlowPort>| {
                port.filter(|port| tunnels.covers(port.port)).map(|_| *record)
            };
            Ok(ProbeEnds { client, server, tunnels: [at(pair.clients), at(pair.servers)] })
        };
        self.pairs().into_iter().zip(ends).map(of_pair).collect()
    }

    pub(super) fn update_tunnels(&mut self, params: &Params<'_>) -> Answer {
        gtpu(params)?;
        let records = params.list("attr")?.iter().map(ClientRecord::deserialize);
        let records = records.collect::<Result<Vec<_>, _>>();
        let records = records.map_err(|error| Refusal::parameters(format!("attr: {error}")))?;
        let of_client = |ClientRecord { client_ip, sip, dip, sport, teid, version }| {
            let client = Ipv4Addr::from(client_ip);
            let record = Record { local: sip, remote: dip, teid, source_port: sport };
            let checked = record.check(version).map(|()| (client, record));
            checked.map_err(|problem| problem.of(format!("client {client}")))
        };
        if !self.tunnels().is_some_and(Tunnels::is_active) {
            return Err(Refusal::failed(OFF));
        }
        let records = records.into_iter().map(of_client).collect::<Result<Vec<_>, Problem>>()?;
        if self.flows_are_active() {
            self.check_ends(&records)?;
        }
        if let Some(server) = &mut self.flows {
            server.tunnels.update(&records)?;
        }
        self.tunnels_in_run()?;
        Ok(json!({}))
    }

    pub(super) fn tunnels_fragment(&mut self, params: &Params<'_>) -> Answer {
        self.check_idle("the tunnels' topology")?;
        let ports = self.ports_of_clients();
        let Some(server) = &mut self.flows else { return Ok(json!({})) };
        let tunnels = &mut server.tunnels;
        if !tunnels.is_active() {
            return Err(Refusal::failed(OFF));
        }
        let text = match tunnels.fragments.add(params, tunnels.topology.is_some())? {
            Part::Known => return Ok(json!({ "matches_loaded": true })),
            Part::More => return Ok(json!({})),
            Part::Whole(text) => text,
        };
        let wrong = |error: serde_json::Error| Refusal::failed(format!("the tunnels: {error}"));
        let value: Value = serde_json::from_str(&text).map_err(wrong)?;
        let data = Data::deserialize(&value).map_err(wrong)?;
        let records = data.records()?;
        let probes = data.probes(&ports, &records)?;
        let off = data.tunnels.iter().filter(|context| !context.activate);
        tunnels.off = off.flat_map(Context::addresses).collect();
        (tunnels.records, tunnels.probes, tunnels.topology) = (records, probes, Some(value));
        tunnels.fragments.accepted();
        Ok(json!({}))
    }

    pub(super) fn tunnels_clear(&mut self) -> Answer {
        self.check_idle("the tunnels' topology")?;
        if let Some(server) = &mut self.flows {
            server.tunnels = Tunnels { mode: server.tunnels.mode, ..Tunnels::default() };
        }
        Ok(json!({}))
    }

    /// TRex's clients expect JSON as a text.
    pub(super) fn tunnels_get(&self) -> Value {
        let topology = self.tunnels().and_then(|tunnels| tunnels.topology.clone());
        let topology = topology.unwrap_or_else(|| json!({ "latency": [], "tunnels": [] }));
        json!({ "tunnel_topo_data": topology.to_string() })
    }
}

/// The ends of tunnels that a port of a run has from its start.
fn ends_at(flows: &Flows, port: usize) -> BTreeSet<IpAddr> {
    let pairs = (1..=flows.pairs.len() as u16 + 1).filter_map(|number| flows.pair(number));
    let of_port = pairs.flatten().filter(|(own, _)| *own == Some(port));
    let layers = of_port.flat_map(|(_, network)| &network.interface).flat_map(|one| &one.wrap);
    let end = |layer: &Located| {
        let mut words = layer.text.split(' ');
        words.next().filter(|name| *name == LAYER)?;
        words.next()?.parse::<IpAddr>().ok()
    };
    layers.filter_map(end).collect()
}

fn gtpu(params: &Params<'_>) -> Result<(), Refusal> {
    match params.whole("tunnel_type")? {
        GTPU => Ok(()),
        other => Err(Refusal::parameters(format!("tunnel_type = {other}: expected 1, GTP-U"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            playing::tests::{load_as, start, until_it_is_over},
            tests::{Client, datagrams, load, of_flows, play_datagrams},
        },
        *,
    };
    use squall_profile::PacketSource;
    use squall_wire::Frame;

    /// A record of a client.
    fn record(client: &str, teid: u32) -> Value {
        let client = u32::from(client.parse::<Ipv4Addr>().expect("an address"));
        json!({ "client_ip": client, "sip": "1.1.1.1", "dip": "11.0.0.1", "sport": 5000,
            "teid": teid, "version": 4 })
    }

    fn update(client: &mut Client, records: &Value) -> Answer {
        client.ask("update_tunnel_client", json!({ "tunnel_type": 1, "attr": records }))
    }

    fn activate(client: &mut Client, on: bool, loopback: bool) -> Answer {
        let asked = json!({ "tunnel_type": 1, "activate": on, "loopback": loopback });
        client.ask("activate_tunnel_mode", asked)
    }

    #[test]
    fn flows_of_clients_are_in_their_tunnels() {
        let mut client = of_flows("trex-tunnels");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        let [plain, begun, accepted] = play_datagrams(&mut client);
        assert_eq!(begun, accepted);
        activate(&mut client, true, true).expect("idle");
        let all: Vec<Value> = (1..=9).map(|n| record(&format!("16.0.0.{n}"), n)).collect();
        update(&mut client, &json!(all)).expect("its own");
        let [wrapped, begun, accepted] = play_datagrams(&mut client);
        // IPv4, UDP and GTP: 20 + 8 + 8 octets.
        assert_eq!((wrapped, begun), (plain + 36, accepted));
        // Servers without loopback expect that a gateway has removed the tunnels.
        activate(&mut client, true, false).expect("idle");
        assert_eq!(play_datagrams(&mut client)[2], 0);
        activate(&mut client, false, false).expect("idle");
        let [again, begun, accepted] = play_datagrams(&mut client);
        assert_eq!((again, begun), (plain, accepted));
    }

    #[test]
    fn records_that_come_while_flows_are_active_take_effect() {
        let mut client = of_flows("trex-tunnels-live");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        activate(&mut client, true, true).expect("idle");
        let start = json!({ "profile_id": "_", "mult": 20.0, "duration": 60.0, "nc": true });
        client.ask("start", start).expect("it starts");
        let octets = |client: &mut Client| {
            let at = |client: &mut Client| {
                client.server.look();
                let of = client.ask("get_port_stats", json!({ "port_id": 0 })).expect("known");
                ["opackets", "obytes"].map(|name| of[name].as_u64().expect("a number"))
            };
            let [packets, octets] = at(client);
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            loop {
                let [now, octets_now] = at(client);
                if now >= packets + 20 {
                    return (octets_now - octets) / (now - packets);
                }
                assert!(std::time::Instant::now() < until, "no packets");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        };
        let plain = octets(&mut client);
        let all: Vec<Value> = (1..=9).map(|n| record(&format!("16.0.0.{n}"), n)).collect();
        update(&mut client, &json!(all)).expect("its own");
        octets(&mut client);
        assert_eq!(octets(&mut client), plain + 36);
    }

    #[test]
    fn profiles_join_and_leave_the_run_after_records_that_came_meanwhile() {
        let mut client = of_flows("trex-tunnels-join");
        activate(&mut client, true, true).expect("idle");
        load_as(&mut client, "b", 81);
        load_as(&mut client, "a", 80);
        start(&mut client, "b", &Value::Null).expect("it starts");
        update(&mut client, &json!([record("16.0.0.1", 1)])).expect("its own");
        start(&mut client, "a", &Value::Null).expect("it joins");
        client.ask("stop", json!({ "profile_id": "a" })).expect("its own");
        assert_eq!(until_it_is_over(&mut client, "a"), None);
        let flows = client.server.traffic.flows().expect("profile b continues");
        let listen: Vec<_> = flows.templates.iter().map(|template| template.listen).collect();
        assert_eq!(listen, [Some(81)]);
    }

    #[test]
    fn ipv6_clients_do_not_start_outside_of_tunnels() {
        let mut client = of_flows("trex-tunnels-ipv6");
        load_as(&mut client, "a", 80);
        activate(&mut client, true, true).expect("idle");
        let ipv6 = json!({ "ipv6": true });
        let why = start(&mut client, "a", &ipv6).expect_err("no tunnels for IPv6");
        assert!(why.text.contains("IPv4") && why.text.contains("activate=False"), "{why:?}");
        activate(&mut client, false, false).expect("idle");
        start(&mut client, "a", &ipv6).expect("it starts");
    }

    #[test]
    fn records_with_ends_that_an_af_xdp_port_does_not_take_are_refused() {
        let mut client = of_flows("trex-tunnels-af-xdp");
        load_as(&mut client, "a", 80);
        activate(&mut client, true, false).expect("idle");
        update(&mut client, &json!([record("16.0.0.1", 1)])).expect("its own");
        start(&mut client, "a", &Value::Null).expect("it starts");
        client.server.ports[0].info.address = "af_xdp:eth1,rx_queues=2".into();
        let mut other = record("16.0.0.2", 2);
        other["sip"] = json!("1.1.1.2");
        update(&mut client, &json!([record("16.0.0.2", 2)])).expect("the same end");
        let why = update(&mut client, &json!([other])).expect_err("another end");
        assert!(why.text.contains("packets to 1.1.1.2"), "{why:?}");
        assert!(why.text.contains("af_xdp:eth1,rx_queues=2,take=all"), "{why:?}");
        client.server.ports[0].info.address = "af_xdp:eth1,take=all".into();
        update(&mut client, &json!([other])).expect("all packets");
    }

    /// The frames that measure latency, one from each port.
    fn probes(client: &Client) -> Vec<Frame> {
        let build = |packet: &PacketSource| match packet {
            PacketSource::Layers(packet) => packet.build(None, &|_| unreachable!(), 0),
            other => panic!("{other:?}"),
        };
        let probes = client.server.probes();
        probes.iter().map(|probe| build(&probe.packet).expect("room for headers")).collect()
    }

    fn field(frame: &Frame, name: &str) -> u64 {
        frame.value(&frame.field(name).expect("its layer")) as u64
    }

    /// Packets that each port has sent and received to measure latency.
    fn latency(client: &mut Client) -> [[u64; 2]; 2] {
        let stats = client.ask("get_latency_stats", json!({})).expect("known");
        [0, 1].map(|port| {
            let of = &stats["data"][format!("port-{port}")]["stats"];
            ["m_tx_pkt_ok", "m_pkt_ok"].map(|name| of[name].as_u64().expect("a number"))
        })
    }

    fn number(address: &str) -> u64 {
        u64::from(u32::from(address.parse::<Ipv4Addr>().expect("an address")))
    }

    #[test]
    fn latency_is_measured_in_the_tunnel_of_the_topologys_client() {
        let mut client = of_flows("trex-tunnels-latency");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        activate(&mut client, true, true).expect("idle");
        let context = context("16.0.0.1", "16.0.0.9");
        let chosen =
            json!({ "client_port_id": 0, "client_ip": "16.0.0.3", "server_ip": "48.0.0.7" });
        send_all(&mut client, &[context], &[chosen], "sum").expect("sound");
        let measured = json!({ "duration": 1.0, "latency_pps": 50.0 });
        start(&mut client, "_", &measured).expect("it starts");
        let frames = probes(&client);
        let names: Vec<String> = frames.iter().map(Frame::names).collect();
        assert_eq!(names, ["eth/ipv4/udp/gtpu/ipv4/icmp"; 2]);
        let ends = [["1.1.1.1", "11.0.0.1"], ["16.0.0.3", "48.0.0.7"]];
        for (frame, ends) in
            frames.iter().zip([ends, ends.map(|[client, server]| [server, client])])
        {
            let found = ["ipv4[0].src", "ipv4[0].dst", "ipv4[1].src", "ipv4[1].dst"];
            let expected: Vec<u64> = ends.concat().into_iter().map(number).collect();
            assert_eq!(found.map(|name| field(frame, name)).to_vec(), expected);
            // The third client of a range that begins with 5, 7, 9.
            let found = ["gtpu.teid", "udp.sport", "udp.dport"].map(|name| field(frame, name));
            assert_eq!(found, [9, 5000, 2152]);
        }
        assert_eq!(until_it_is_over(&mut client, "_"), None);
        let [[sent, returned], [answered, arrived]] = latency(&mut client);
        assert!(sent > 0 && answered > 0);
        assert_eq!((sent, answered), (arrived, returned));
    }

    #[test]
    fn latency_of_servers_without_loopback_is_measured_outside_of_tunnels() {
        let mut client = of_flows("trex-tunnels-latency-out");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        activate(&mut client, true, false).expect("idle");
        let measured = json!({ "duration": 1.0, "latency_pps": 50.0 });
        // The first client of the profile has no tunnel.
        let why = start(&mut client, "_", &measured).expect_err("no tunnel");
        assert!(why.text.contains("client 16.0.0.1") && why.text.contains("add_tunnel_latency"));
        update(&mut client, &json!([record("16.0.0.1", 7)])).expect("its own");
        start(&mut client, "_", &measured).expect("it starts");
        let names: Vec<String> = probes(&client).iter().map(Frame::names).collect();
        assert_eq!(names, ["eth/ipv4/udp/gtpu/ipv4/icmp", "eth/ipv4/icmp"]);
        let alone = json!({ "mult": 10.0, "src_addr": "16.0.0.2", "dst_addr": "48.0.0.1" });
        assert_eq!(until_it_is_over(&mut client, "_"), None);
        let why = client.ask("start_latency", alone).expect_err("no tunnel");
        assert!(why.text.contains("client 16.0.0.2"), "{why:?}");
    }

    #[test]
    fn clients_that_the_topology_has_off_begin_no_flows_until_they_are_switched_on() {
        let mut client = of_flows("trex-tunnels-off");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        activate(&mut client, true, true).expect("idle");
        let mut off = context("16.0.0.4", "16.0.0.9");
        off["activate"] = json!(false);
        send(&mut client, &[context("16.0.0.1", "16.0.0.3"), off], "sum").expect("sound");
        start(&mut client, "_", &Value::Null).expect("it starts");
        let states = |client: &mut Client| {
            let range = json!([{ "client_start_ip": number("16.0.0.3"),
                "client_end_ip": number("16.0.0.4") }]);
            let asked = json!({ "is_range": true, "attr": range });
            client.ask("get_clients_info_start", asked).expect("active");
            let found = client.ask("get_clients_info_pull", json!({})).expect("asked");
            let of = |ip: &str| found[number(ip).to_string()].clone();
            assert_eq!(of("16.0.0.3")["tunnel_type"], "GTP");
            ["16.0.0.3", "16.0.0.4"].map(|ip| of(ip)["state"].clone())
        };
        assert_eq!(states(&mut client), ["Active", "Inactive"]);
        let on = json!([{ "client_ip": number("16.0.0.4") }]);
        let asked = json!({ "is_enable": true, "is_range": false, "attr": on });
        client.ask("enable_disable_client", asked).expect("active");
        assert_eq!(states(&mut client), ["Active", "Active"]);
    }

    #[test]
    fn a_mode_that_is_switched_off_forgets_its_tunnels() {
        let mut client = of_flows("trex-tunnels-forget");
        activate(&mut client, true, true).expect("idle");
        send(&mut client, &[context("16.0.0.1", "16.0.0.9")], "sum").expect("sound");
        assert!(client.server.has_tunnel(Ipv4Addr::new(16, 0, 0, 1)));
        activate(&mut client, false, false).expect("idle");
        activate(&mut client, true, true).expect("idle");
        assert!(!client.server.has_tunnel(Ipv4Addr::new(16, 0, 0, 1)));
        // The client checks that there is none before it sends another one.
        let read = client.ask("tunnel_topo_get", json!({})).expect("known");
        let text = read["tunnel_topo_data"].as_str().expect("a text");
        let read: Value = serde_json::from_str(text).expect("JSON");
        assert_eq!(read, json!({ "tunnels": [], "latency": [] }));
        let again = send(&mut client, &[context("16.0.0.1", "16.0.0.9")], "sum").expect("sound");
        assert_eq!(again, json!({}), "not known from before");
    }

    #[test]
    fn a_refused_batch_changes_no_record() {
        let mut client = of_flows("trex-tunnels-batch");
        activate(&mut client, true, true).expect("idle");
        update(&mut client, &json!([record("16.0.0.1", 1)])).expect("its own");
        let mut wrong = record("16.0.0.3", 4);
        wrong["dip"] = json!("::1");
        let batch = json!([record("16.0.0.1", 2), record("16.0.0.2", 3), wrong]);
        let why = update(&mut client, &batch).expect_err("two families");
        assert!(why.text.contains("client 16.0.0.3"), "{why:?}");
        let records = &client.server.tunnels().expect("in ASTF mode").records;
        let all: Vec<_> = records.iter().map(|(client, of)| (*client, of.teid)).collect();
        assert_eq!(all, [(Ipv4Addr::new(16, 0, 0, 1), 1)]);
    }

    /// A range of clients, as in a topology.
    fn context(first: &str, last: &str) -> Value {
        json!({ "src_start": first, "src_end": last, "initial_teid": 5, "teid_jump": 2,
            "sport": 5000, "version": 4, "tunnel_type": 1, "src_ip": "1.1.1.1",
            "dst_ip": "11.0.0.1", "activate": true })
    }

    fn send(client: &mut Client, contexts: &[Value], md5: &str) -> Answer {
        send_all(client, contexts, &[], md5)
    }

    fn send_all(client: &mut Client, contexts: &[Value], latency: &[Value], md5: &str) -> Answer {
        let text = json!({ "tunnels": contexts, "latency": latency }).to_string();
        let whole = json!({ "fragment": text, "frag_first": true, "frag_last": true, "md5": md5 });
        client.ask("tunnel_topo_fragment", whole)
    }

    #[test]
    fn clients_in_two_ranges_or_in_too_large_ones_are_refused() {
        let mut client = of_flows("trex-tunnels-ranges");
        activate(&mut client, true, false).expect("idle");
        let two = [context("16.0.0.5", "16.0.0.9"), context("16.0.0.1", "16.0.0.5")];
        let why = send(&mut client, &two, "two").expect_err("one client twice");
        assert!(why.text.contains("client 16.0.0.5 is in two ranges"), "{why:?}");
        let why = send(&mut client, &[context("0.0.0.0", "255.255.255.255")], "all");
        let why = why.expect_err("too many");
        assert!(why.text.contains("more than 65536 clients"), "{why:?}");
        let most = [context("16.0.0.0", "16.0.127.255"), context("16.0.128.0", "16.0.255.255")];
        send(&mut client, &most, "most").expect("sound");
        let why = update(&mut client, &json!([record("17.0.0.1", 1)])).expect_err("one too many");
        assert!(why.text.contains("more than 65536 clients"), "{why:?}");
        update(&mut client, &json!([record("16.0.0.1", 1)])).expect("a known client");
    }

    #[test]
    fn a_refused_text_is_refused_again_and_the_accepted_one_stays_known() {
        let mut client = of_flows("trex-tunnels-again");
        activate(&mut client, true, false).expect("idle");
        send(&mut client, &[context("16.0.0.1", "16.0.0.9")], "first").expect("sound");
        for _ in 0..2 {
            let refused = send(&mut client, &[context("16.0.0.2", "16.0.0.1")], "second");
            assert!(refused.expect_err("it cannot be").text.contains("src_end"));
        }
        let known = send(&mut client, &[context("16.0.0.1", "16.0.0.9")], "first");
        assert_eq!(known.expect("known"), json!({ "matches_loaded": true }));
    }

    #[test]
    fn tunnels_that_cannot_be_are_refused_with_the_reason() {
        let mut client = of_flows("trex-tunnels-refused");
        let of_one = json!([record("16.0.0.1", 1)]);
        let why = update(&mut client, &of_one).expect_err("no mode");
        assert!(why.text.contains("tunnel mode is off"));
        activate(&mut client, true, false).expect("idle");
        let context = |more: Value| {
            let mut context = context("16.0.0.1", "16.0.0.9");
            more.as_object().into_iter().flatten().for_each(|(k, v)| context[k] = v.clone());
            let text = json!({ "tunnels": [context], "latency": [] }).to_string();
            json!({ "fragment": text, "frag_first": true, "frag_last": true })
        };
        for (more, why) in [
            (json!({ "dst_ip": "::1" }), "one family"),
            (json!({ "version": 6 }), "version 6: expected 4, that of 1.1.1.1"),
            (json!({ "src_end": "16.0.0.0" }), "src_end"),
            (json!({ "tunnel_type": 2 }), "GTP-U"),
        ] {
            let refused = client.ask("tunnel_topo_fragment", context(more)).expect_err("wrong");
            assert!(refused.text.contains(why), "{refused:?}");
        }
        let mut of_version = record("16.0.0.1", 1);
        of_version["version"] = json!(6);
        let why = update(&mut client, &json!([of_version])).expect_err("IPv4");
        assert!(why.text.contains("client 16.0.0.1: version 6: expected 4"), "{why:?}");
        let measured = |port: u64, ip: &str| {
            let server = "48.0.0.1";
            json!({ "client_port_id": port, "client_ip": ip, "server_ip": server })
        };
        for (latency, why) in [
            (vec![measured(1, "16.0.0.1")], "port 1: expected one of the ports with"),
            (vec![measured(0, "17.0.0.1")], "client 17.0.0.1 is in no range"),
            (vec![measured(0, "16.0.0.1"), measured(0, "16.0.0.2")], "two of this port"),
        ] {
            let whole = [self::context("16.0.0.1", "16.0.0.9")];
            let refused = send_all(&mut client, &whole, &latency, "sum").expect_err("wrong");
            assert!(refused.text.contains(why), "{refused:?}");
        }
        client.ask("tunnel_topo_fragment", context(json!({}))).expect("sound");
        let tunnels = &client.server.tunnels().expect("in ASTF mode").records;
        let last = tunnels[&Ipv4Addr::new(16, 0, 0, 9)];
        assert_eq!((tunnels.len(), last.teid, last.source_port), (9, 5 + 8 * 2, 5000));
        let read = client.ask("tunnel_topo_get", json!({})).expect("known");
        assert!(read["tunnel_topo_data"].as_str().expect("a text").contains("16.0.0.9"));
        let topology = json!({ "vifs": [], "gws": [{ "trex_port": 0, "sub_if": 0, "src_start":
            "16.0.0.1", "src_end": "16.0.0.2", "dst": "1.1.1.1", "dst_mac": "02:00:00:00:08:01" }] });
        let whole =
            json!({ "fragment": topology.to_string(), "frag_first": true, "frag_last": true });
        let why = client.ask("topo_fragment", whole.clone()).expect_err("in tunnels");
        assert!(why.text.contains("tunnel"), "{why:?}");
        activate(&mut client, false, false).expect("idle");
        client.ask("topo_fragment", whole).expect("sound");
        let why = activate(&mut client, true, false).expect_err("a topology");
        assert!(why.text.contains("topo_clear"), "{why:?}");
        client.ask("tunnel_topo_clear", json!({})).expect("its own");
        let read = client.ask("tunnel_topo_get", json!({})).expect("known");
        assert!(!read["tunnel_topo_data"].as_str().expect("a text").contains("16.0.0.9"));
    }
}
