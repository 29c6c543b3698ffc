//! Further hosts on a port, which TRex's clients call nodes of name spaces.
//!
//! TRex gives each node a Linux name space and a veth interface, so that programs may use it. Here a
//! node is an emulated host, like that of the port: it answers ARP, neighbor discovery and echo
//! requests. A command that only a name space can follow is refused with that reason.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::{Value, json};
use squall_host::{Host, link_local};
use squall_units::MacAddr;

use super::{
    Answer, Server,
    hosts::{Ipv6, SERVICE_TAG, TAG},
};
use crate::rpc::{Params, Refusal};

/// Maximum nodes of a port.
const MOST: usize = 10_000;
/// Maximum results of batches that are kept until a client fetches them, and their octets.
const KEPT: usize = 64;
const KEPT_OCTETS: usize = 64 << 20;
/// Octets of results after which a batch ends: a description of each node fits several times.
const MOST_OCTETS: usize = 16 << 20;

const NO_SPACE: &str = "a node is an emulated host without a name space: it has one interface, no \
                        routes and no programs";

/// A host with addresses of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    /// TPID and id of its VLAN tags, the outermost first.
    tags: Vec<(u16, u16)>,
    /// Its address and gateway. A host that only answers needs no gateway; clients read it back.
    ipv4: Option<(Ipv4Addr, Ipv4Addr)>,
    ipv6: Option<Ipv6>,
}

/// The nodes of a port.
#[derive(Debug, Default)]
pub struct Nodes {
    all: BTreeMap<MacAddr, Node>,
    pub counters: Arc<NodeCounters>,
}

/// Frames at a port, and answers of its hosts, those of the port itself included.
#[derive(Debug, Default)]
pub struct NodeCounters {
    pub received: AtomicU64,
    pub answered: AtomicU64,
}

/// Results of batches, each with the number by which a client asks for it.
#[derive(Debug, Default)]
pub struct Tickets {
    last: u64,
    results: VecDeque<(u64, Results)>,
}

/// Results of the commands of a batch, and their total length as text.
#[derive(Debug, Default)]
struct Results {
    list: Vec<Value>,
    octets: usize,
}

impl Tickets {
    /// Drops the oldest results if there are too many.
    fn add(&mut self, results: Results) -> u64 {
        self.last += 1;
        self.results.push_back((self.last, results));
        let octets = |all: &VecDeque<(u64, Results)>| {
            all.iter().map(|(_, results)| results.octets).sum::<usize>()
        };
        while self.results.len() > KEPT || octets(&self.results) > KEPT_OCTETS {
            self.results.pop_front();
        }
        self.last
    }

    pub fn take(&mut self, number: u64) -> Option<Value> {
        let at = self.results.iter().position(|(other, _)| *other == number)?;
        self.results.remove(at).map(|(_, results)| results.list.into())
    }
}

impl Nodes {
    /// The hosts that answer for the nodes.
    pub fn hosts(&self) -> impl Iterator<Item = Host> {
        self.all.iter().filter(|(_, node)| node.ipv4.is_some() || node.ipv6.is_some()).map(
            |(mac, node)| {
                let own = node.ipv6.and_then(|ipv6| ipv6.source);
                let local = node.ipv6.map(|_| link_local(*mac));
                Host {
                    mac: *mac,
                    tags: node.tags.clone(),
                    ipv4: node.ipv4.iter().map(|(address, _)| *address).collect(),
                    ipv6: local.into_iter().chain(own).collect(),
                }
            },
        )
    }

    /// Executes the commands of a batch in their order on a port with the MAC address `own`, until
    /// their results are longer than `most` octets.
    fn run_batch(&mut self, batch: &[Value], own: MacAddr, most: usize) -> Results {
        let mut results = Results::default();
        for command in batch {
            if results.octets > most {
                let text = format!(
                    "this command and those after it were not executed, because the results \
                     before it have {} octets: expected at most {most}\n  try several batches",
                    results.octets
                );
                results.list.push(json!({ "error": text }));
                break;
            }
            let result = match self.run(command, own) {
                Ok(result) => result.map_or(Value::Null, |result| json!({ "result": result })),
                Err(error) => json!({ "error": error }),
            };
            results.octets += result.to_string().len();
            results.list.push(result);
        }
        results
    }

    /// Executes a command on a port with the MAC address `own`. Returns its result, if it has one.
    fn run(&mut self, command: &Value, own: MacAddr) -> Result<Option<Value>, String> {
        let params = &command["params"];
        let Some(method) = command["method"].as_str() else {
            return Err("a command without a method".into());
        };
        match method {
            "add_node" => {
                let mac = mac(&params["mac"])?;
                let shared = params["shared_ns"].as_str().is_some_and(|name| !name.is_empty());
                if params["is_bird"] == true || shared {
                    return Err(NO_SPACE.into());
                }
                if mac == own || self.all.contains_key(&mac) {
                    return Err(format!("there is a host with the MAC address {mac} already"));
                }
                if self.all.len() >= MOST {
                    return Err(format!("more than {MOST} nodes of a port"));
                }
                self.all.insert(mac, Node::default());
            }
            "remove_node" => {
                let mac = mac(&params["mac"])?;
                self.all.remove(&mac).ok_or_else(|| unknown(mac))?;
            }
            "remove_all" => self.all.clear(),
            "set_vlans" => self.node(params)?.tags = tags(params)?,
            "set_ipv4" => {
                let (address, gateway) = (ip(params, "ipv4"), ip(params, "dg"));
                let node = self.node(params)?;
                if params["shared_ns"] == true {
                    return Err(NO_SPACE.into());
                }
                node.ipv4 = Some((address?, gateway?));
            }
            "clear_ipv4" => self.node(params)?.ipv4 = None,
            "set_ipv6" => {
                let node = self.node(params)?;
                if params["shared_ns"] == true {
                    return Err(NO_SPACE.into());
                }
                let source: Option<Ipv6Addr> = match params["src_ipv6"].as_str() {
                    None | Some("") => None,
                    Some(_) => Some(ip(params, "src_ipv6")?),
                };
                node.ipv6 = (params["enable"] == true).then_some(Ipv6 { source });
            }
            // As in TRex, which has given up this filter.
            "set_filter" | "get_commands" => {}
            "get_nodes" => {
                let bird = params["only_bird"] == true;
                let macs = self.all.keys().filter(|_| !bird).map(MacAddr::to_string);
                return Ok(Some(json!({ "nodes": macs.collect::<Vec<_>>() })));
            }
            "get_nodes_info" => {
                let macs = params["macs"].as_array().ok_or("macs: expected a list")?;
                if macs.len() > MOST {
                    return Err(format!("macs: {}: expected at most {MOST}", macs.len()));
                }
                let described = |text: &Value| {
                    let mac = mac(text)?;
                    Ok(self.all.get(&mac).ok_or_else(|| unknown(mac))?.described(mac))
                };
                let nodes = macs.iter().map(described).collect::<Result<Vec<_>, String>>()?;
                return Ok(Some(json!({ "nodes": nodes })));
            }
            "counters_get_meta" => return Ok(Some(json!({ "data": self.counters.described() }))),
            "counters_get_value" => return Ok(Some(json!({ "": self.counters.values() }))),
            "counters_clear" => self.counters.clear(),
            "add_shared_ns" | "remove_shared_ns" | "set_dg" => return Err(NO_SPACE.into()),
            "set_vlan_filter" => {
                return Err("a node gets the frames with its own VLAN tags only".into());
            }
            "set_mtu" => {
                return Err("a node only answers, and its answers are as long as what it \
                            receives: it has no MTU"
                    .into());
            }
            _ => return Err(format!("Method {method} not registered")),
        }
        Ok(None)
    }

    fn node(&mut self, params: &Value) -> Result<&mut Node, String> {
        let mac = mac(&params["mac"])?;
        self.all.get_mut(&mac).ok_or_else(|| unknown(mac))
    }
}

impl Node {
    fn described(&self, mac: MacAddr) -> Value {
        let (tpids, ids): (Vec<u16>, Vec<u16>) = self.tags.iter().copied().unzip();
        let ipv4 = match self.ipv4 {
            Some((address, gateway)) => json!({ "src": address, "dst": gateway }),
            None => json!({ "state": "none" }),
        };
        json!({
            "ether": { "src": mac.to_string() }, "vlan": { "tags": ids, "tpids": tpids },
            "ipv4": ipv4, "ipv6": Ipv6::status(self.ipv6), "is-shared-ns": false, "is_bird": false,
        })
    }
}

impl NodeCounters {
    fn all(&self) -> [(&'static str, &'static str, &AtomicU64); 2] {
        [
            ("rx_frames", "ARP, ICMP and ICMPv6 frames received at the port", &self.received),
            ("tx_frames", "answers of the port's hosts", &self.answered),
        ]
    }

    fn described(&self) -> Value {
        let one = |(id, (name, help, _)): (usize, (&str, &str, _))| {
            json!({ "id": id, "name": name, "help": help, "units": "frames", "zero": true,
                "info": "info", "abs": false, "real": false })
        };
        self.all().into_iter().enumerate().map(one).collect()
    }

    fn values(&self) -> Value {
        let one = |(id, (.., count)): (usize, (_, _, &AtomicU64))| {
            (id.to_string(), json!(count.load(Ordering::Relaxed)))
        };
        Value::Object(self.all().into_iter().enumerate().map(one).collect())
    }

    fn clear(&self) {
        self.all().into_iter().for_each(|(.., count)| count.store(0, Ordering::Relaxed));
    }
}

fn mac(text: &Value) -> Result<MacAddr, String> {
    let mac = text.as_str().and_then(|text| text.parse().ok());
    mac.ok_or_else(|| format!("mac = {text}: expected a MAC address"))
}

fn unknown(mac: MacAddr) -> String {
    format!("there is no node with the MAC address {mac}")
}

fn ip<T: std::str::FromStr>(params: &Value, key: &str) -> Result<T, String> {
    let address = params[key].as_str().and_then(|text| text.parse().ok());
    address.ok_or_else(|| format!("{key} = {}: expected an address", params[key]))
}

/// VLAN tags of a command, at most two. Without TPIDs they are those of IEEE 802.1Q and 802.1ad.
fn tags(params: &Value) -> Result<Vec<(u16, u16)>, String> {
    let numbers = |key: &str| -> Result<Vec<u16>, String> {
        let list = params[key].as_array().ok_or_else(|| format!("{key}: expected a list"))?;
        let number = |value: &Value| {
            let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
            number.ok_or_else(|| format!("{key}: {value}: expected a number of 16 bits"))
        };
        list.iter().map(number).collect()
    };
    let ids = numbers("vlans")?;
    if ids.len() > 2 || ids.iter().any(|id| !(1..=4095).contains(id)) {
        return Err("vlans: expected at most two tags of 1 to 4095".into());
    }
    let tpids = match params["tpids"].is_null() {
        false => numbers("tpids")?,
        true if ids.len() == 2 => vec![SERVICE_TAG, TAG],
        true => vec![TAG; ids.len()],
    };
    match tpids.len() == ids.len() {
        true => Ok(tpids.into_iter().zip(ids).collect()),
        false => Err("tpids: expected one for each of vlans".into()),
    }
}

impl Server {
    /// Executes the commands of a batch in their order, and keeps their results.
    ///
    /// # Errors
    /// The batch is no list, or the port cannot have these hosts. The nodes are as before.
    pub(super) fn node_batch(&mut self, number: usize, params: &Params<'_>) -> Answer {
        let batch: Vec<Value> = serde_json::from_str(params.text("batch")?)
            .map_err(|error| Refusal::parameters(format!("batch: {error}")))?;
        let port = &mut self.ports[number];
        if squall_machine::ports::interface_of(&port.info.address).is_none() {
            return Err(Refusal::failed(format!(
                "port {number} is no network interface: no other host would reach its nodes"
            )));
        }
        let before = port.nodes.all.clone();
        let results = port.nodes.run_batch(&batch, port.info.mac, MOST_OCTETS);
        if port.nodes.all != before
            && let Err(refusal) = self.update_host(number)
        {
            self.ports[number].nodes.all = before;
            // The hosts from before answer again, unless the interface is gone.
            _ = self.update_host(number);
            return Err(refusal);
        }
        Ok(json!({ "ticket_id": self.tickets.add(results) }))
    }

    pub(super) fn take_results(&mut self, params: &Params<'_>) -> Answer {
        let number = params.get("ticket_id").and_then(Value::as_u64);
        number
            .and_then(|number| self.tickets.take(number))
            .ok_or_else(|| Refusal { code: -32003, text: "there are no results".into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PortInfo, server::tests::Client};

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn run(nodes: &mut Nodes, method: &str, params: Value) -> Result<Option<Value>, String> {
        nodes.run(&json!({ "method": method, "params": params }), OWN)
    }

    #[test]
    fn nodes_are_hosts_with_their_own_addresses_and_tags() {
        let mut nodes = Nodes::default();
        let mac = "00:01:02:03:04:05";
        run(&mut nodes, "add_node", json!({ "mac": mac, "is_bird": false })).expect("new");
        assert_eq!(nodes.hosts().count(), 0, "it has no address yet");
        let ipv4 = json!({ "mac": mac, "ipv4": "1.1.1.3", "dg": "1.1.1.2", "shared_ns": false });
        run(&mut nodes, "set_ipv4", ipv4).expect("its own");
        let ipv6 = json!({ "mac": mac, "enable": true, "src_ipv6": "2001:db8::3" });
        run(&mut nodes, "set_ipv6", ipv6).expect("its own");
        let vlans = json!({ "mac": mac, "vlans": [7, 8], "tpids": null });
        run(&mut nodes, "set_vlans", vlans).expect("its own");
        let host = nodes.hosts().next().expect("a host");
        assert_eq!(host.tags, [(0x88a8, 7), (0x8100, 8)]);
        assert_eq!(host.ipv4, ["1.1.1.3".parse::<Ipv4Addr>().expect("IPv4")]);
        let local = "fe80::201:2ff:fe03:405".parse::<Ipv6Addr>().expect("IPv6");
        assert_eq!(host.ipv6, [local, "2001:db8::3".parse().expect("IPv6")]);
        let listed = run(&mut nodes, "get_nodes", json!({})).expect("known");
        assert_eq!(listed, Some(json!({ "nodes": [mac] })));
        let info = run(&mut nodes, "get_nodes_info", json!({ "macs": [mac] })).expect("known");
        let info = &info.expect("a result")["nodes"][0];
        assert_eq!(info["ipv4"], json!({ "src": "1.1.1.3", "dst": "1.1.1.2" }));
        assert_eq!(info["vlan"], json!({ "tags": [7, 8], "tpids": [0x88a8, 0x8100] }));
        run(&mut nodes, "clear_ipv4", json!({ "mac": mac })).expect("its own");
        assert!(nodes.hosts().next().expect("with IPv6").ipv4.is_empty());
        run(&mut nodes, "remove_node", json!({ "mac": mac })).expect("its own");
        assert_eq!(nodes.hosts().count(), 0);
    }

    #[test]
    fn commands_that_only_a_name_space_can_follow_are_refused_with_the_reason() {
        let mut nodes = Nodes::default();
        let mac = "00:01:02:03:04:05";
        for (method, params, why) in [
            ("add_node", json!({ "mac": mac, "is_bird": true }), "no programs"),
            ("add_node", json!({ "mac": mac, "shared_ns": "a" }), "no routes"),
            ("add_node", json!({ "mac": OWN.to_string() }), "already"),
            ("add_node", json!({ "mac": "1" }), "a MAC address"),
            ("add_shared_ns", json!({}), "name space"),
            ("set_mtu", json!({ "mac": mac, "mtu": 1400 }), "no MTU"),
            ("set_ipv4", json!({ "mac": mac, "ipv4": "1.1.1.3", "dg": "1.1.1.2" }), "no node"),
            ("get_nodes_info", json!({ "macs": vec![mac; MOST + 1] }), "at most 10000"),
            ("dance", json!({}), "not registered"),
        ] {
            let refused = run(&mut nodes, method, params).expect_err("it cannot be");
            assert!(refused.contains(why), "{method}: {refused}");
        }
    }

    #[test]
    fn tags_stay_unless_there_is_another_list() {
        let mut nodes = Nodes::default();
        let mac = "00:01:02:03:04:05";
        run(&mut nodes, "add_node", json!({ "mac": mac })).expect("new");
        run(&mut nodes, "set_vlans", json!({ "mac": mac, "vlans": [7] })).expect("its own");
        for (params, why) in [
            (json!({ "mac": mac }), "vlans: expected a list"),
            (json!({ "mac": mac, "vlans": 8 }), "vlans: expected a list"),
            (json!({ "mac": mac, "vlans": [8], "tpids": 5 }), "tpids: expected a list"),
        ] {
            assert_eq!(run(&mut nodes, "set_vlans", params).expect_err("no list"), why);
        }
        let tags = |nodes: &Nodes| nodes.all.values().map(|node| node.tags.clone()).next();
        assert_eq!(tags(&nodes), Some(vec![(TAG, 7)]));
        run(&mut nodes, "set_vlans", json!({ "mac": mac, "vlans": [] })).expect("none");
        assert_eq!(tags(&nodes), Some(vec![]));
    }

    #[test]
    fn a_batch_ends_when_its_results_are_long() {
        let mut nodes = Nodes::default();
        let list = json!({ "method": "get_nodes", "params": {} });
        let batch = vec![list; 9];
        let results = nodes.run_batch(&batch, OWN, 40);
        // Each result is {"result":{"nodes":[]}}.
        assert_eq!((results.list.len(), results.octets), (3, 46));
        let error = results.list[2]["error"].as_str().expect("an error");
        assert!(error.contains("not executed") && error.contains("at most 40"), "{error}");
        assert_eq!(nodes.run_batch(&batch, OWN, MOST_OCTETS).list.len(), 9);
    }

    #[test]
    fn results_that_no_client_fetches_are_dropped_when_newer_ones_are_long() {
        let mut tickets = Tickets::default();
        let results = || Results { list: vec![json!(1)], octets: KEPT_OCTETS / 2 };
        let numbers = [(); 3].map(|()| tickets.add(results()));
        let found = numbers.map(|number| tickets.take(number).is_some());
        assert_eq!(found, [false, true, true]);
    }

    #[test]
    fn a_batch_whose_hosts_cannot_answer_changes_no_node() {
        let info = PortInfo {
            address: "af_packet:squall-none".into(),
            description: "none".into(),
            mac: OWN,
            speed_bps: None,
            longest: 1518,
            numa: None,
            driver: String::new(),
            bus: String::new(),
            dummy: false,
        };
        let mut client = Client::on(vec![info], None, false);
        let asked = json!({ "port_id": 0, "user": "ann", "session_id": 1, "force": false });
        let handler = client.ask("acquire", asked).expect("free");
        let mac = "00:01:02:03:04:05";
        let batch = json!([
            { "method": "add_node", "params": { "mac": mac } },
            { "method": "set_ipv4", "params": { "mac": mac, "ipv4": "1.1.1.3", "dg": "1.1.1.2" } },
        ]);
        let asked = json!({ "port_id": 0, "handler": handler, "batch": batch.to_string() });
        let why = client.ask("conf_ns_batch", asked).expect_err("there is no such interface");
        assert!(why.text.contains("squall-none"), "{why:?}");
        assert!(client.server.ports[0].nodes.all.is_empty());
    }
}
