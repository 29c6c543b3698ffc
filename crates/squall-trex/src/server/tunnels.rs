//! GTP-U tunnels of clients: the flows of a client are inside a tunnel of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::Deserialize;
use serde_json::{Value, json};
use squall_flows::{AddrRange, Interface, InterfaceOf, Wrap};
use squall_profile::{Flows, Interface as ProfileInterface, Located};

use super::{
    Answer, Refusal, Server,
    fragments::{Fragments, Part},
};
use crate::{Problem, rpc::Params};

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
struct Record {
    local: IpAddr,
    remote: IpAddr,
    teid: u32,
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
}

/// Clients with consecutive records, as in a topology.
#[derive(Deserialize)]
struct Context {
    src_start: Ipv4Addr,
    src_end: Ipv4Addr,
    initial_teid: u32,
    teid_jump: u32,
    sport: u16,
    tunnel_type: u64,
    src_ip: IpAddr,
    dst_ip: IpAddr,
    activate: bool,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    tunnels: Vec<Context>,
    #[serde(default)]
    latency: Vec<Value>,
}

impl Tunnels {
    pub fn is_active(&self) -> bool {
        self.mode.is_some()
    }

    /// Whether the flows of a port may be in tunnels.
    fn covers(&self, port: usize) -> bool {
        self.mode.is_some_and(|mode| mode.loopback || port.is_multiple_of(2))
    }

    /// Adds records and replaces those of their clients: all of them, or none.
    ///
    /// # Errors
    /// The ends of a tunnel are of two families, or there are too many tunnels.
    fn update(&mut self, records: &[(Ipv4Addr, Record)]) -> Result<(), Problem> {
        for (client, record) in records {
            record.check().map_err(|problem| problem.of(format!("client {client}")))?;
        }
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
}

impl Context {
    fn check(&self) -> Result<(), Problem> {
        let Self { src_start: first, src_end: last, .. } = *self;
        let of = |problem: Problem| problem.of(format!("tunnels of {first}-{last}"));
        if self.tunnel_type != GTPU {
            return Err(of(Problem::new("tunnel_type: expected 1, GTP-U")));
        }
        if !self.activate {
            let text = "activate: clients are switched off by enable_disable_client";
            return Err(of(Problem::new(text)));
        }
        if last < first {
            return Err(of(Problem::new("src_end is before src_start")));
        }
        self.record(0).check().map_err(of)
    }

    /// Number of clients of a checked context.
    fn clients(&self) -> u64 {
        u64::from(u32::from(self.src_end) - u32::from(self.src_start)) + 1
    }

    fn records(&self) -> impl Iterator<Item = (Ipv4Addr, Record)> {
        let clients = u32::from(self.src_start)..=u32::from(self.src_end);
        (0..).zip(clients).map(move |(index, client)| (client.into(), self.record(index)))
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
    /// The tunnel's ends are of two families.
    fn check(self) -> Result<(), Problem> {
        let Self { local, remote, .. } = self;
        match local.is_ipv4() == remote.is_ipv4() {
            true => Ok(()),
            false => {
                let text = format!("{local}, {remote}: expected addresses of one family");
                Err(Problem::new(text))
            }
        }
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
            server.tunnels.mode = mode;
        }
        Ok(json!({}))
    }

    pub(super) fn update_tunnels(&mut self, params: &Params<'_>) -> Answer {
        gtpu(params)?;
        let records = params.list("attr")?.iter().map(ClientRecord::deserialize);
        let records = records.collect::<Result<Vec<_>, _>>();
        let records = records.map_err(|error| Refusal::parameters(format!("attr: {error}")))?;
        let of_client = |ClientRecord { client_ip, sip, dip, sport, teid }| {
            let record = Record { local: sip, remote: dip, teid, source_port: sport };
            (Ipv4Addr::from(client_ip), record)
        };
        let records: Vec<(Ipv4Addr, Record)> = records.into_iter().map(of_client).collect();
        if !self.tunnels().is_some_and(Tunnels::is_active) {
            return Err(Refusal::failed(OFF));
        }
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
        if !data.latency.is_empty() {
            return Err(Refusal::failed("latency is measured outside of tunnels only"));
        }
        (tunnels.records, tunnels.topology) = (data.records()?, Some(value));
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
        let topology = self.tunnels().and_then(|tunnels| tunnels.topology.as_ref());
        let text = topology.map_or("{}".into(), Value::to_string);
        json!({ "tunnel_topo_data": text })
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
        let text = json!({ "tunnels": contexts, "latency": [] }).to_string();
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
            (json!({ "activate": false }), "enable_disable_client"),
            (json!({ "dst_ip": "::1" }), "one family"),
            (json!({ "src_end": "16.0.0.0" }), "src_end"),
            (json!({ "tunnel_type": 2 }), "GTP-U"),
        ] {
            let refused = client.ask("tunnel_topo_fragment", context(more)).expect_err("wrong");
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
        assert_eq!(
            client.ask("tunnel_topo_get", json!({})).expect("known")["tunnel_topo_data"],
            "{}"
        );
    }
}
