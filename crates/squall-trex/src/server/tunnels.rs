//! GTP-U tunnels of clients: the flows of a client are inside a tunnel of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::Deserialize;
use serde_json::{Value, json};
use squall_flows::{AddrRange, Interface, InterfaceOf, Wrap};
use squall_profile::{Interface as ProfileInterface, Located};

use super::{
    Answer, Refusal, Server,
    fragments::{Fragments, Part},
};
use crate::{Problem, rpc::Params};

/// TRex's number of GTP-U.
const GTPU: u64 = 1;
/// Why records are refused.
const OFF: &str = "the tunnel mode is off\n  try activate_tunnel first";
/// Maximum clients with a tunnel.
const MOST: usize = 65_536;
/// The longest layer of a tunnel. Records may come while flows are active, and frames must have room
/// for them.
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

    /// # Errors
    /// The tunnel's ends are of two families, or there are too many tunnels.
    fn insert(&mut self, client: Ipv4Addr, record: Record) -> Result<(), Problem> {
        let of = |text: String| Problem::new(text).of(format!("client {client}"));
        let Record { local, remote, .. } = record;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(of(format!("{local}, {remote}: expected addresses of one family")));
        }
        if self.records.len() >= MOST && !self.records.contains_key(&client) {
            return Err(of(format!("more than {MOST} clients with a tunnel")));
        }
        self.records.insert(client, record);
        Ok(())
    }

    fn insert_all(&mut self, context: &Context) -> Result<(), Problem> {
        let Context { src_start: first, src_end: last, .. } = *context;
        let of = |text: &str| Problem::new(text).of(format!("tunnels of {first}-{last}"));
        if context.tunnel_type != GTPU {
            return Err(of("tunnel_type: expected 1, GTP-U"));
        }
        if !context.activate {
            return Err(of("activate: clients are switched off by enable_disable_client"));
        }
        if last < first {
            return Err(of("src_end is before src_start"));
        }
        for (index, client) in (0..).zip(u32::from(first)..=u32::from(last)) {
            let jump = context.teid_jump.wrapping_mul(index);
            let record = Record {
                local: context.src_ip,
                remote: context.dst_ip,
                teid: context.initial_teid.wrapping_add(jump),
                source_port: context.sport,
            };
            self.insert(client.into(), record)?;
        }
        Ok(())
    }
}

impl Record {
    /// The local and the remote end at the clients, or at the servers.
    fn ends(self, of_clients: bool) -> (IpAddr, IpAddr) {
        if of_clients { (self.local, self.remote) } else { (self.remote, self.local) }
    }

    /// The tunnel at the clients, or at the servers. Received packets may have any identifier, as in
    /// TRex, because the gateway chooses that of the other direction.
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
        let known = known.map(|(local, remote)| format!("gtp-u {local} {remote} 0 any"));
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
        let Some(server) = &mut self.flows else { return Ok(json!({})) };
        let tunnels = &mut server.tunnels;
        if !tunnels.is_active() {
            return Err(Refusal::failed(OFF));
        }
        for ClientRecord { client_ip, sip, dip, sport, teid } in records {
            let record = Record { local: sip, remote: dip, teid, source_port: sport };
            tunnels.insert(client_ip.into(), record)?;
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
        let mut new = Tunnels::default();
        for context in &data.tunnels {
            new.insert_all(context)?;
        }
        (tunnels.records, tunnels.topology) = (new.records, Some(value));
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

fn gtpu(params: &Params<'_>) -> Result<(), Refusal> {
    match params.whole("tunnel_type")? {
        GTPU => Ok(()),
        other => Err(Refusal::parameters(format!("tunnel_type = {other}: expected 1, GTP-U"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{Client, datagrams, load, of_flows, play_datagrams},
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
    fn tunnels_that_cannot_be_are_refused_with_the_reason() {
        let mut client = of_flows("trex-tunnels-refused");
        let of_one = json!([record("16.0.0.1", 1)]);
        let why = update(&mut client, &of_one).expect_err("no mode");
        assert!(why.text.contains("tunnel mode is off"));
        activate(&mut client, true, false).expect("idle");
        let context = |more: Value| {
            let mut context = json!({ "src_start": "16.0.0.1", "src_end": "16.0.0.9",
                "initial_teid": 5, "teid_jump": 2, "sport": 5000, "version": 4, "tunnel_type": 1,
                "src_ip": "1.1.1.1", "dst_ip": "11.0.0.1", "activate": true });
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
