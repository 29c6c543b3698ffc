//! Client clusters: the configuration of TRex's `--client_cfg`, which spreads clients over several
//! devices under test.
//!
//! Each group has a range of clients and the number of its devices. The frames of its client `i`
//! go to device `i % count`, as do those that servers send to the client. Consecutive devices have
//! consecutive MAC addresses.

use std::{net::Ipv4Addr, path::Path};

use serde_json::Value;
use squall::Error;
use squall_profile::{Flows, Format, Interface, Located, Network, value_of};
use squall_units::{Cannot, MacAddr};

use crate::Problem;

/// Maximum clients in groups with several devices, because each of them is an interface.
const MOST: u64 = 65_536;
/// Keys of a direction. TRex resolves next hops from `src_ip` and `src_ipv6`; they have no effect
/// without one.
const DIRECTION: &[&str] =
    &["vlan", "src_mac", "dst_mac", "next_hop", "ipv6_next_hop", "src_ip", "src_ipv6"];

/// A client configuration.
#[derive(Debug)]
pub struct Clusters(Vec<Group>);

/// Clients, and the devices that they use.
#[derive(Debug)]
struct Group {
    first: Ipv4Addr,
    last: Ipv4Addr,
    /// Number of devices.
    count: u32,
    initiator: Direction,
    responder: Direction,
}

/// Headers of the packets from clients, or of those from servers.
#[derive(Debug)]
struct Direction {
    vlan: Option<u16>,
    source: Option<MacAddr>,
    destination: Option<MacAddr>,
}

impl Clusters {
    /// # Errors
    /// The file cannot be read, or is no client configuration.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let wrong = |what: String| Error::Usage(format!("{}: {what}", path.display()));
        let text = squall_profile::read_text(path).map_err(|error| Cannot::read(path, &error))?;
        let value = value_of(&text, Format::Yaml).map_err(wrong)?;
        Self::read(&value).map_err(|problem| wrong(problem.to_string()))
    }

    fn read(value: &Value) -> Result<Self, Problem> {
        check_keys(value, &["vlan", "groups"])?;
        let tagged =
            value["vlan"].as_bool().ok_or_else(|| Problem::new("vlan: expected true or false"))?;
        let groups = value["groups"].as_array();
        let groups = groups.ok_or_else(|| Problem::new("groups: expected a list"))?;
        let one = |(number, group): (usize, &Value)| {
            Group::read(group, tagged).map_err(|problem| problem.of(format!("group {number}")))
        };
        let mut all = groups.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|group| group.first);
        let mut neighbors = all.iter().zip(all.iter().skip(1));
        if let Some((_, next)) = neighbors.find(|(one, next)| one.last >= next.first) {
            return Err(Problem::new(format!("client {} is in two groups", next.first)));
        }
        let several = all.iter().filter(|group| group.count > 1);
        match several.map(Group::clients).sum::<u64>() <= MOST {
            true => Ok(Self(all)),
            false => {
                let text = format!("more than {MOST} clients in groups with several devices");
                Err(Problem::new(text))
            }
        }
    }

    /// Gives the clients of all pairs of ports the headers of their groups.
    ///
    /// # Errors
    /// A client is in no group, or not an IPv4 address; clients and servers are on one port.
    pub fn apply(&self, flows: &mut Flows) -> Result<(), Problem> {
        if flows.clients.is_some() && flows.clients == flows.servers {
            let text = "clusters need a port for clients and another for servers";
            return Err(Problem::new(text));
        }
        let numbers = flows.templates.iter().map(|template| template.clients);
        for pool in numbers.filter_map(|number| flows.pools.get(number)) {
            for range in &pool.addresses {
                self.check(&range.text)?;
            }
        }
        let (clients, servers) = (self.interfaces(true), self.interfaces(false));
        let set = |network: &mut Network, interfaces: &[Interface]| {
            network.interface.extend_from_slice(interfaces);
        };
        set(&mut flows.client_network, &clients);
        set(&mut flows.server_network, &servers);
        for pair in &mut flows.pairs {
            set(&mut pair.client_network, &clients);
            set(&mut pair.server_network, &servers);
        }
        Ok(())
    }

    /// Checks that a range of clients is in groups.
    fn check(&self, range: &str) -> Result<(), Problem> {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let parsed = first.trim().parse::<Ipv4Addr>().ok().zip(last.trim().parse().ok());
        let (first, last): (Ipv4Addr, Ipv4Addr) =
            parsed.ok_or_else(|| Problem::new(format!("clients {range}: expected IPv4")))?;
        let mut next = u64::from(u32::from(first));
        for group in &self.0 {
            if u64::from(u32::from(group.first)) <= next {
                next = next.max(u64::from(u32::from(group.last)) + 1);
            }
        }
        match next > u64::from(u32::from(last)) {
            true => Ok(()),
            false => {
                let missing = Ipv4Addr::from(next as u32);
                Err(Problem::new(format!("client {missing} of the profile is in no group")))
            }
        }
    }

    /// Interfaces of the clients' ports, or of the servers'.
    fn interfaces(&self, of_clients: bool) -> Vec<Interface> {
        self.0.iter().flat_map(|group| group.interfaces(of_clients)).collect()
    }
}

impl Group {
    fn read(group: &Value, tagged: bool) -> Result<Self, Problem> {
        check_keys(group, &["ip_start", "ip_end", "initiator", "responder", "count"])?;
        let ip = |key: &str| -> Result<Ipv4Addr, Problem> {
            let text = group[key].as_str();
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| wrong(group, key, "an IPv4 address"))
        };
        let direction = |key: &str| {
            Direction::read(&group[key], tagged).map_err(|problem| problem.of(key.to_owned()))
        };
        let count = match &group["count"] {
            Value::Null => Some(1),
            count => count.as_u64().and_then(|count| u32::try_from(count).ok()),
        };
        let read = Self {
            first: ip("ip_start")?,
            last: ip("ip_end")?,
            count: count
                .filter(|count| *count > 0)
                .ok_or_else(|| wrong(group, "count", "the number of devices, 1 or more"))?,
            initiator: direction("initiator")?,
            responder: direction("responder")?,
        };
        match read.first <= read.last {
            true => Ok(read),
            false => Err(Problem::new("ip_end is before ip_start")),
        }
    }

    fn clients(&self) -> u64 {
        u64::from(u32::from(self.last) - u32::from(self.first)) + 1
    }

    /// An interface for each device.
    fn interfaces(&self, of_clients: bool) -> impl Iterator<Item = Interface> {
        let located = |text: String| Located::from(text.as_str());
        let devices = u64::from(self.count).min(self.clients()) as u32;
        let direction = if of_clients { &self.initiator } else { &self.responder };
        let clients = move |device: u32| match self.count {
            1 => vec![located(format!("{}-{}", self.first, self.last))],
            count => (u32::from(self.first) + device..=u32::from(self.last))
                .step_by(count as usize)
                .map(|client| located(Ipv4Addr::from(client).to_string()))
                .collect(),
        };
        (0..devices).map(move |device| {
            let mac = |mac: Option<MacAddr>| mac.map(|mac| located(plus(mac, device).to_string()));
            let (addresses, peers) = match of_clients {
                true => (clients(device), Vec::new()),
                false => (Vec::new(), clients(device)),
            };
            Interface {
                addresses,
                peers,
                mac: mac(direction.source),
                next_hop: mac(direction.destination),
                wrap: direction.vlan.map(|id| located(format!("vlan {id}"))).into_iter().collect(),
            }
        })
    }
}

impl Direction {
    fn read(of: &Value, tagged: bool) -> Result<Self, Problem> {
        if !of.is_object() {
            return Err(Problem::new("expected a map"));
        }
        check_keys(of, DIRECTION)?;
        for key in ["next_hop", "ipv6_next_hop"] {
            if !of[key].is_null() {
                let text = format!("{key}: addresses of devices are not resolved\n  try dst_mac");
                return Err(Problem::new(text));
            }
        }
        let vlan = match (&of["vlan"], tagged) {
            (Value::Null, false) => None,
            (_, false) => return Err(Problem::new("vlan: the file has vlan: false")),
            (vlan, true) => {
                let id = vlan.as_u64().filter(|id| *id < 4096);
                Some(id.ok_or_else(|| wrong(of, "vlan", "0 to 4095"))? as u16)
            }
        };
        let mac = |key: &str| match &of[key] {
            Value::Null => Ok(None),
            text => {
                let mac = text.as_str().and_then(|text| text.parse().ok());
                mac.map(Some).ok_or_else(|| wrong(of, key, "a MAC address"))
            }
        };
        let destination = mac("dst_mac")?;
        if vlan.is_some() && destination.is_none() {
            return Err(Problem::new("there is no dst_mac, which a VLAN needs"));
        }
        Ok(Self { vlan, source: mac("src_mac")?, destination })
    }
}

/// Checks that a map has only these keys, because a misspelt one would have no effect.
fn check_keys(of: &Value, known: &[&str]) -> Result<(), Problem> {
    let mut keys = of.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    match keys.find(|key| !known.contains(key)) {
        Some(key) => {
            let text = format!("{key}: not known\n  try one of {}", known.join(", "));
            Err(Problem::new(text))
        }
        None => Ok(()),
    }
}

fn wrong(of: &Value, key: &str, expected: &str) -> Problem {
    Problem::new(format!("{key} = {}: expected {expected}", of[key]))
}

fn plus(mac: MacAddr, index: u32) -> MacAddr {
    let number = mac.0.iter().fold(0u64, |all, octet| all << 8 | u64::from(*octet));
    let [_, _, octets @ ..] = number.wrapping_add(index.into()).to_be_bytes();
    MacAddr(octets)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;
    use squall_profile::{Pool, Template};

    use super::*;
    use crate::{File, server::tests::datagrams};

    fn clusters() -> Value {
        json!({ "vlan": true, "groups": [
            { "ip_start": "16.0.0.1", "ip_end": "16.0.0.5", "count": 2,
                "initiator": { "vlan": 100, "dst_mac": "00:00:00:01:00:ff" },
                "responder": { "vlan": 200, "dst_mac": "00:00:00:02:00:00",
                    "src_mac": "02:00:00:00:00:07" } },
            { "ip_start": "16.0.0.6", "ip_end": "16.0.0.9",
                "initiator": { "vlan": 101, "dst_mac": "00:00:00:03:00:00" },
                "responder": { "vlan": 201, "dst_mac": "00:00:00:04:00:00" } },
        ] })
    }

    fn flows(clients: &str) -> Flows {
        let pool = Pool { addresses: vec![Located::from(clients)], ..Pool::default() };
        let templates = vec![Template::default()];
        Flows {
            clients: Some(0),
            servers: Some(1),
            pools: vec![pool],
            templates,
            ..Flows::default()
        }
    }

    fn shown(interfaces: &[Interface]) -> Vec<[String; 4]> {
        let list = |texts: &[Located]| {
            texts.iter().map(|one| one.text.as_str()).collect::<Vec<_>>().join(",")
        };
        let one = |text: &Option<Located>| {
            text.as_ref().map(|text| text.text.clone()).unwrap_or_default()
        };
        let row = |of: &Interface| {
            let clients = [&of.addresses[..], &of.peers].concat();
            [list(&clients), one(&of.mac), one(&of.next_hop), list(&of.wrap)]
        };
        interfaces.iter().map(row).collect()
    }

    #[test]
    fn clients_are_spread_over_the_devices_of_their_group() {
        let clusters = Clusters::read(&clusters()).expect("sound");
        let mut flows = flows("16.0.0.1-16.0.0.9");
        clusters.apply(&mut flows).expect("all are in groups");
        let clients = [
            ["16.0.0.1,16.0.0.3,16.0.0.5", "", "00:00:00:01:00:ff", "vlan 100"],
            ["16.0.0.2,16.0.0.4", "", "00:00:00:01:01:00", "vlan 100"],
            ["16.0.0.6-16.0.0.9", "", "00:00:00:03:00:00", "vlan 101"],
        ];
        assert_eq!(shown(&flows.client_network.interface), clients);
        let servers = [
            ["16.0.0.1,16.0.0.3,16.0.0.5", "02:00:00:00:00:07", "00:00:00:02:00:00", "vlan 200"],
            ["16.0.0.2,16.0.0.4", "02:00:00:00:00:08", "00:00:00:02:00:01", "vlan 200"],
            ["16.0.0.6-16.0.0.9", "", "00:00:00:04:00:00", "vlan 201"],
        ];
        assert_eq!(shown(&flows.server_network.interface), servers);
        assert!(flows.server_network.interface.iter().all(|one| one.addresses.is_empty()));
    }

    /// Two devices that only exchange the MAC addresses of both sides.
    const MIRROR: &str = "
vlan: true
groups:
- ip_start: 16.0.0.1
  ip_end: 16.0.0.9
  initiator: { vlan: 100, src_mac: 02:00:00:00:01:00, dst_mac: 02:00:00:00:02:00 }
  responder: { vlan: 100, src_mac: 02:00:00:00:02:00, dst_mac: 02:00:00:00:01:00 }
  count: 2
";

    #[test]
    fn frames_have_the_vlan_and_the_addresses_of_the_device_of_their_client() {
        let at = |name: &str| {
            std::env::temp_dir().join(format!("squall-clusters-{}-{name}", std::process::id()))
        };
        let [profile, clusters, capture] = [at("flows.json"), at("clusters.yaml"), at("out.pcap")];
        let mut flows = datagrams(&json!({ "name": "tx_msg", "buf_index": 0 }));
        flows["templates"][0]["client_template"]["limit"] = json!(36);
        std::fs::write(&profile, flows.to_string()).expect("a file");
        std::fs::write(&clusters, MIRROR).expect("a file");
        let link = format!("loop:clusters-{},virtual", std::process::id());
        let file = File {
            path: &profile,
            library: None,
            tunables: &BTreeMap::new(),
            ports: &[link.clone(), link],
            headers: false,
            clusters: Some(&clusters),
        };
        let mut session = squall::Session::new(file.load().expect("sound"));
        session.options.capture = Some(squall_options::CaptureOptions {
            file: Some(capture.clone()),
            ..Default::default()
        });
        let run = session.open().expect("ports").start().expect("it starts");
        let report = run.finish().expect("it ends");
        let client = report.flows.expect("flows").total.client.expect("clients");
        assert_eq!((client.completed, client.failed.len()), (36, 0), "{client:?}");
        let mut reader = squall_pcap::CaptureReader::open(&capture).expect("a capture");
        let mut sent = 0;
        while let Some(packet) = reader.next().expect("sound") {
            let frame = packet.data;
            assert_eq!(frame[12..18], [0x81, 0, 0, 100, 8, 0], "{frame:02x?}");
            let from_client = frame[30] == 16;
            let client = if from_client { frame[33] } else { frame[37] };
            let device = (client - 1) % 2;
            let [clients, servers] = [1, 2].map(|side| [2, 0, 0, 0, side, device]);
            let (to, from) = if from_client { (servers, clients) } else { (clients, servers) };
            assert_eq!((&frame[..6], &frame[6..12]), (&to[..], &from[..]), "client {client}");
            sent += u64::from(from_client);
        }
        assert!(sent >= 36, "{sent}");
        [profile, clusters, capture].iter().for_each(|path| drop(std::fs::remove_file(path)));
    }

    #[test]
    fn configurations_that_cannot_be_followed_are_refused_with_the_reason() {
        let clusters_with = |path: &str, value: Value| {
            let mut changed = clusters();
            *changed.pointer_mut(path).expect("there") = value;
            Clusters::read(&changed).expect_err("invalid").to_string()
        };
        let misspelt = json!({ "vlan": 201, "dst_mac": "00:00:00:04:00:00",
            "scr_mac": "02:00:00:00:00:09" });
        let mut without_start = clusters()["groups"][1].clone();
        without_start["ip_strat"] = without_start["ip_start"].take();
        for (path, value, why) in [
            ("/vlan", json!(false), "vlan: the file has"),
            ("/groups/0/initiator", json!({ "vlan": 1, "next_hop": "1.1.1.1" }), "try dst_mac"),
            ("/groups/0/initiator/vlan", json!(5000), "0 to 4095"),
            ("/groups/1/ip_start", json!("16.0.0.5"), "16.0.0.5 is in two groups"),
            ("/groups/1/ip_end", json!("16.0.0.1"), "ip_end is before"),
            ("/groups/0/count", json!(0), "number of devices"),
            ("/groups/0/responder", Value::Null, "a map"),
            ("/groups/1/initiator", json!({ "vlan": 101 }), "no dst_mac"),
            ("/groups/1/responder", misspelt, "group 1: responder: scr_mac: not known"),
            ("/groups/1", without_start, "group 1: ip_strat: not known"),
            ("", json!({ "vlan": true, "groups": [], "group": [] }), "group: not known"),
        ] {
            let found = clusters_with(path, value);
            assert!(found.contains(why), "{path}: {found}");
        }
        let clusters = Clusters::read(&clusters()).expect("sound");
        let why = clusters.apply(&mut flows("16.0.0.4-16.0.0.10")).expect_err("one too many");
        assert!(why.to_string().contains("16.0.0.10"), "{why}");
        let mut one_port = Flows { servers: Some(0), ..flows("16.0.0.4") };
        let why = clusters.apply(&mut one_port).expect_err("two directions on a port");
        assert!(why.to_string().contains("another for servers"), "{why}");
    }
}
