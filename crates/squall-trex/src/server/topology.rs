//! The topology of clients: virtual interfaces with MAC addresses and VLANs, and the gateways of
//! ranges of clients.

use std::{collections::BTreeMap, net::Ipv4Addr};

use serde::Deserialize;
use serde_json::{Value, json};
use squall_profile::{Interface, Located};
use squall_units::MacAddr;

use super::{
    Answer, Refusal, Server,
    fragments::{Fragments, Part},
};
use crate::{Problem, rpc::Params};

/// A topology as TRex's clients send it.
#[derive(Default)]
pub struct Topology {
    fragments: Fragments,
    /// The whole topology, for clients that read it back.
    data: Option<Value>,
    /// Routes of clients, by port.
    routes: BTreeMap<usize, Vec<Route>>,
}

/// The headers of a range of clients.
struct Route {
    first: Ipv4Addr,
    last: Ipv4Addr,
    next_hop: MacAddr,
    /// MAC address and VLAN of a virtual interface; `None`: the port's own.
    vif: Option<(MacAddr, Option<u16>)>,
}

#[derive(Deserialize)]
struct Vif {
    trex_port: usize,
    sub_if: u32,
    src_mac: String,
    #[serde(default)]
    vlan: u16,
}

#[derive(Deserialize)]
struct Gateway {
    trex_port: usize,
    sub_if: u32,
    src_start: Ipv4Addr,
    src_end: Ipv4Addr,
    /// `None`: not resolved.
    dst_mac: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    vifs: Vec<Vif>,
    gws: Vec<Gateway>,
}

impl Topology {
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// Interfaces of clients on a port, which has this VLAN.
    pub fn interfaces(&self, port: usize, vlan: Option<u16>) -> Vec<Interface> {
        let located = |text: String| Located::from(text.as_str());
        let interface = |route: &Route| {
            let (mac, vlan) = match route.vif {
                Some((mac, vlan)) => (Some(mac), vlan),
                None => (None, vlan),
            };
            Interface {
                addresses: vec![located(format!("{}-{}", route.first, route.last))],
                mac: mac.map(|mac| located(mac.to_string())),
                next_hop: Some(located(route.next_hop.to_string())),
                wrap: vlan.map(|id| located(format!("vlan {id}"))).into_iter().collect(),
                ..Interface::default()
            }
        };
        self.routes.get(&port).into_iter().flatten().map(interface).collect()
    }

    /// Reads a topology for a server with these ports of clients.
    ///
    /// # Errors
    /// The text is no topology; an interface has no number of its own; a gateway is at another
    /// port, has no interface, is not resolved, or has clients of another.
    fn read(text: &str, ports: &[usize]) -> Result<Self, Problem> {
        let wrong = |error: serde_json::Error| Problem::new(format!("the topology: {error}"));
        let value: Value = serde_json::from_str(text).map_err(wrong)?;
        let data = Data::deserialize(&value).map_err(wrong)?;
        let vifs = data.numbered_vifs()?;
        let mut routes: BTreeMap<usize, Vec<Route>> = BTreeMap::new();
        for gateway in &data.gws {
            let of = |problem: Problem| {
                problem.of(format!("gateway of {}-{}", gateway.src_start, gateway.src_end))
            };
            let route = gateway.route(&vifs, ports).map_err(of)?;
            routes.entry(gateway.trex_port).or_default().push(route);
        }
        let mut all: Vec<&Route> = routes.values().flatten().collect();
        all.sort_by_key(|route| route.first);
        let mut neighbors = all.iter().zip(all.iter().skip(1));
        if let Some((_, next)) = neighbors.find(|(one, next)| one.last >= next.first) {
            return Err(Problem::new(format!("client {} has two gateways", next.first)));
        }
        Ok(Self { data: Some(value), routes, ..Self::default() })
    }
}

impl Data {
    /// The virtual interfaces by port and number.
    ///
    /// # Errors
    /// A number is 0, which is that of the port itself, or two interfaces have the same one.
    fn numbered_vifs(&self) -> Result<BTreeMap<(usize, u32), &Vif>, Problem> {
        let mut vifs = BTreeMap::new();
        for vif in &self.vifs {
            let (port, sub_if) = (vif.trex_port, vif.sub_if);
            let wrong = |text: &str| Problem::new(text).of(format!("interface {port}.{sub_if}"));
            if sub_if == 0 {
                return Err(wrong("sub_if: expected 1 or more"));
            }
            if vifs.insert((port, sub_if), vif).is_some() {
                return Err(wrong("there are two of this number"));
            }
        }
        Ok(vifs)
    }
}

impl Gateway {
    fn route(
        &self,
        vifs: &BTreeMap<(usize, u32), &Vif>,
        ports: &[usize],
    ) -> Result<Route, Problem> {
        let Self { trex_port: port, sub_if, src_start: first, src_end: last, dst_mac } = self;
        if !ports.contains(port) {
            let text = format!("port {port}: expected one of the ports with clients, {ports:?}");
            return Err(Problem::new(text));
        }
        if last < first {
            return Err(Problem::new("src_end is before src_start"));
        }
        let vif = vifs.get(&(*port, *sub_if));
        if vif.is_none() && *sub_if > 0 {
            return Err(Problem::new(format!("there is no interface {port}.{sub_if}")));
        }
        let of_vif = |vif: &&Vif| match vif.vlan {
            0 => Ok((mac(&vif.src_mac)?, None)),
            id @ 1..4096 => Ok((mac(&vif.src_mac)?, Some(id))),
            id => Err(Problem::new(format!("interface {port}.{sub_if}: VLAN {id} is above 4095"))),
        };
        let next_hop = dst_mac.as_ref().filter(|mac| !mac.is_empty()).ok_or_else(|| {
            Problem::new("its MAC address is not known\n  try topo_resolve first")
        })?;
        Ok(Route {
            first: *first,
            last: *last,
            next_hop: mac(next_hop)?,
            vif: vif.map(of_vif).transpose()?,
        })
    }
}

fn mac(text: &str) -> Result<MacAddr, Problem> {
    text.parse().map_err(|_| Problem::new(format!("{text:?}: expected a MAC address")))
}

impl Server {
    pub(super) fn topology_fragment(&mut self, params: &Params<'_>) -> Answer {
        self.check_idle("the topology")?;
        let ports = self.ports_of_clients();
        let Some(server) = &mut self.flows else { return Ok(json!({})) };
        let topology = &mut server.topology;
        let text = match topology.fragments.add(params, topology.data.is_some())? {
            Part::Known => return Ok(json!({ "matches_loaded": true })),
            Part::More => return Ok(json!({})),
            Part::Whole(text) => text,
        };
        let read = Topology::read(&text, &ports)?;
        if server.tunnels.is_active() && !read.is_empty() {
            return Err(Refusal::failed(
                "clients in tunnels cannot have a topology\n  try activate_tunnel with \
                 activate=False first",
            ));
        }
        (topology.data, topology.routes) = (read.data, read.routes);
        topology.fragments.accepted();
        Ok(json!({}))
    }

    pub(super) fn topology_clear(&mut self) -> Answer {
        self.check_idle("the topology")?;
        if let Some(server) = &mut self.flows {
            server.topology = Topology::default();
        }
        Ok(json!({}))
    }

    pub(super) fn topology_get(&self) -> Value {
        let data = self.flows.as_ref().and_then(|server| server.topology.data.clone());
        json!({ "topo_data": data.unwrap_or_else(|| json!({})) })
    }

    /// Checks that no flows are active: they keep the headers of their start, and all profiles of a
    /// run have the same ones.
    pub(super) fn check_idle(&self, what: &str) -> Result<(), Refusal> {
        match self.flows_are_active() {
            true => Err(Refusal::failed(format!(
                "{what} cannot change while flows are active\n  try again after stop"
            ))),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{Client, datagrams, load, of_flows, play_datagrams},
        *,
    };

    fn vif(port: usize, sub_if: u32) -> Value {
        json!({ "trex_port": port, "sub_if": sub_if, "src_mac": "02:00:00:00:07:01", "vlan": 7,
            "src_ipv4": "5.5.5.5", "src_ipv6": "" })
    }

    /// Sends a topology in two parts, as TRex's client does: not the second if the server has it.
    fn send_text(client: &mut Client, topology: &Value, md5: &str) -> Answer {
        let text = topology.to_string();
        let (one, other) = text.split_at(text.len() / 2);
        let first = json!({ "fragment": one, "frag_first": true, "md5": md5 });
        let known = client.ask("topo_fragment", first)?;
        match known.get("matches_loaded") {
            Some(_) => Ok(known),
            None => client.ask("topo_fragment", json!({ "fragment": other, "frag_last": true })),
        }
    }

    /// Sends a topology of one virtual interface, 0.1.
    fn send(client: &mut Client, gateways: &Value) -> Answer {
        send_text(client, &json!({ "vifs": [vif(0, 1)], "gws": gateways }), "sum")
    }

    fn gateway(sub_if: u32, first: &str, last: &str, mac: &Value) -> Value {
        json!({ "trex_port": 0, "sub_if": sub_if, "src_start": first, "src_end": last,
            "dst": "1.1.1.1", "dst_mac": mac })
    }

    fn set_vlan(client: &mut Client, port: usize, vlan: &Value) {
        let owner = client.server.ports[port].owner.as_ref().expect("owned");
        let handler = owner.handler.clone();
        let asked = json!({ "port_id": port, "vlan": vlan, "handler": handler });
        client.ask("set_vlan", asked).expect("its own");
    }

    #[test]
    fn topologies_that_cannot_be_are_refused_with_the_reason() {
        let mut client = of_flows("trex-topology-refused");
        let known = json!("02:00:00:00:08:01");
        for (gateways, why) in [
            (json!([gateway(2, "16.0.0.1", "16.0.0.2", &known)]), "no interface 0.2"),
            (json!([gateway(1, "16.0.0.1", "16.0.0.2", &Value::Null)]), "resolve"),
            (json!([gateway(1, "16.0.0.2", "16.0.0.1", &known)]), "src_end"),
            (json!([gateway(1, "16.0.0.1", "16.0.0.2", &json!("here"))]), "a MAC address"),
            (
                json!([
                    gateway(1, "16.0.0.1", "16.0.0.3", &known),
                    gateway(0, "16.0.0.3", "16.0.0.4", &known)
                ]),
                "16.0.0.3 has two gateways",
            ),
        ] {
            let refused = send(&mut client, &gateways).expect_err("it cannot be");
            assert!(refused.text.contains(why), "{refused:?}");
        }
        let at = |port: u64| {
            let mut gateway = gateway(0, "16.0.0.1", "16.0.0.2", &known);
            gateway["trex_port"] = json!(port);
            json!([gateway])
        };
        for (vifs, gateways, why) in [
            (json!([vif(0, 0)]), json!([]), "interface 0.0: sub_if"),
            (json!([vif(0, 1), vif(1, 1), vif(0, 1)]), json!([]), "interface 0.1: there are two"),
            (json!([]), at(1), "port 1: expected one of the ports with clients, [0]"),
            (json!([]), at(2), "port 2: expected one of the ports with clients, [0]"),
        ] {
            let topology = json!({ "vifs": vifs, "gws": gateways });
            let refused = send_text(&mut client, &topology, "sum").expect_err("it cannot be");
            assert!(refused.text.contains(why), "{refused:?}");
        }
    }

    #[test]
    fn a_refused_topology_is_refused_again_and_the_accepted_one_stays_known() {
        let mut client = of_flows("trex-topology-again");
        let of_last = |last: &str| {
            let gateway = gateway(0, "16.0.0.2", last, &json!("02:00:00:00:08:01"));
            json!({ "vifs": [], "gws": [gateway] })
        };
        send_text(&mut client, &of_last("16.0.0.9"), "first").expect("sound");
        for _ in 0..2 {
            let refused = send_text(&mut client, &of_last("16.0.0.1"), "second");
            assert!(refused.expect_err("it cannot be").text.contains("src_end"));
        }
        let known = send_text(&mut client, &of_last("16.0.0.9"), "first").expect("known");
        assert_eq!(known, json!({ "matches_loaded": true }));
        send_text(&mut client, &of_last("16.0.0.3"), "third").expect("sound");
        let read = client.ask("topo_get", json!({})).expect("known");
        assert_eq!(read["topo_data"], of_last("16.0.0.3"));
    }

    #[test]
    fn ipv6_clients_do_not_start_without_the_headers_of_a_topology() {
        let mut client = of_flows("trex-topology-ipv6");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        let known = json!("02:00:00:00:08:01");
        send(&mut client, &json!([gateway(1, "16.0.0.1", "16.0.0.9", &known)])).expect("sound");
        let start = json!({ "profile_id": "_", "mult": 1.0, "duration": 1.0, "ipv6": true });
        let why = client.ask("start", start.clone()).expect_err("no headers for IPv6");
        assert!(why.text.contains("IPv4") && why.text.contains("topo_clear"), "{why:?}");
        client.ask("topo_clear", json!({})).expect("its own");
        client.ask("start", start).expect("it starts");
    }

    #[test]
    fn clients_have_the_headers_of_their_interface_and_gateway() {
        let mut client = of_flows("trex-topology");
        let known = json!("02:00:00:00:08:01");
        let gateways = json!([
            gateway(0, "16.0.0.3", "16.0.0.4", &known),
            gateway(1, "16.0.0.1", "16.0.0.2", &known),
        ]);
        send(&mut client, &gateways).expect("sound");
        set_vlan(&mut client, 0, &json!([9]));
        let read = client.ask("topo_get", json!({})).expect("known");
        assert_eq!(read["topo_data"]["gws"], gateways);
        let pairs = client.server.pairs();
        let port = pairs[0].clients.as_ref().expect("a port");
        let text = |of: &Option<Located>| of.as_ref().map_or(String::new(), |of| of.text.clone());
        let row = |of: &Interface| {
            let wrap = of.wrap.iter().map(|of| of.text.clone()).collect();
            [of.addresses[0].text.clone(), text(&of.mac), text(&of.next_hop), wrap]
        };
        let found: Vec<[String; 4]> = port.interfaces.iter().map(row).collect();
        let expected = [
            ["16.0.0.3-16.0.0.4", "", "02:00:00:00:08:01", "vlan 9"],
            ["16.0.0.1-16.0.0.2", "02:00:00:00:07:01", "02:00:00:00:08:01", "vlan 7"],
        ];
        assert_eq!(found, expected);
        assert!(pairs[0].servers.as_ref().expect("a port").interfaces.is_empty());
        client.ask("topo_clear", json!({})).expect("its own");
        assert_eq!(client.ask("topo_get", json!({})).expect("known")["topo_data"], json!({}));
    }

    #[test]
    fn flows_of_a_topology_are_in_the_vlan_of_its_interface() {
        let mut client = of_flows("trex-topology-vlan");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        let [plain, ..] = play_datagrams(&mut client);
        let to_servers = json!(client.server.ports[1].info.mac.to_string());
        let gateways = json!([gateway(1, "16.0.0.1", "16.0.0.9", &to_servers)]);
        send(&mut client, &gateways).expect("sound");
        set_vlan(&mut client, 1, &json!([7]));
        let [tagged, begun, accepted] = play_datagrams(&mut client);
        assert_eq!((tagged, begun), (plain + 4, accepted));
        // The servers are in another VLAN than the clients.
        set_vlan(&mut client, 1, &json!([8]));
        assert_eq!(play_datagrams(&mut client)[2], 0);
        client.ask("topo_clear", json!({})).expect("its own");
        set_vlan(&mut client, 1, &json!([]));
        let [untagged, begun, accepted] = play_datagrams(&mut client);
        assert_eq!((untagged, begun), (plain, accepted));
    }

    #[test]
    fn a_topology_stays_as_it_is_while_flows_are_active() {
        let mut client = of_flows("trex-topology-active");
        load(&mut client, &datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }))).expect("sound");
        let start = json!({ "profile_id": "_", "mult": 1.0, "duration": 30.0, "nc": true });
        client.ask("start", start).expect("it starts");
        let known = json!("02:00:00:00:08:01");
        let gateways = json!([gateway(1, "16.0.0.1", "16.0.0.9", &known)]);
        for refused in [send(&mut client, &gateways), client.ask("topo_clear", json!({}))] {
            assert!(refused.expect_err("active").text.contains("after stop"));
        }
    }
}
