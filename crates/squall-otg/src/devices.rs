//! Emulated devices: their interfaces, and the addresses that flows between them put into packets.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use squall_units::MacAddr;

use crate::{
    packet::{Ends, mac_number},
    read::{Node, Notes, brief},
    translate::{DeviceInfo, IpInfo, PortInfo, Resolved, Unresolved, VlanInfo},
};

/// Interfaces, and the names by which flows refer to them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub list: Vec<DeviceInfo>,
    /// Interfaces by device, interface and address name.
    names: HashMap<String, Vec<Endpoint>>,
    macs: HashMap<IpAddr, MacAddr>,
}

/// An interface, and its address if the flow names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub interface: usize,
    pub ipv4: Option<usize>,
    pub ipv6: Option<usize>,
}

impl Devices {
    pub fn read(root: &Node<'_>, ports: &[PortInfo], notes: &mut Notes) -> Self {
        const KEYS: [&str; 4] = ["name", "ethernets", "ipv4_loopbacks", "ipv6_loopbacks"];
        const PROTOCOLS: [&str; 10] = [
            "isis",
            "bgp",
            "vxlan",
            "rsvp",
            "dhcp_server",
            "ospfv2",
            "ospfv3",
            "macsec",
            "rocev2",
            "bmp",
        ];
        let mut devices = Self::default();
        for node in root.list("devices", notes) {
            node.known(&[KEYS.as_slice(), &PROTOCOLS].concat(), notes);
            let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
            for key in PROTOCOLS.iter().chain(&KEYS[2..]) {
                if let Some(protocol) = node.get(key) {
                    notes.unsupported(
                        &protocol,
                        "devices support only ARP, neighbor discovery and echo",
                    );
                }
            }
            let first = devices.list.len();
            for ethernet in node.list("ethernets", notes) {
                devices.ethernet(&name, &ethernet, ports, notes);
            }
            let all = (first..devices.list.len()).map(|interface| Endpoint {
                interface,
                ipv4: None,
                ipv6: None,
            });
            let all: Vec<Endpoint> = all.collect();
            devices.name(&node, name, all, notes);
        }
        devices
    }

    fn name(&mut self, node: &Node<'_>, name: String, endpoints: Vec<Endpoint>, notes: &mut Notes) {
        if self.names.insert(name.clone(), endpoints).is_some() {
            notes.problem(
                &node.at("name").path,
                format!("{name:?} is also the name of another item"),
            );
        }
    }

    fn ethernet(&mut self, device: &str, node: &Node<'_>, ports: &[PortInfo], notes: &mut Notes) {
        let keys =
            ["name", "connection", "ipv4_addresses", "ipv6_addresses", "mac", "mtu", "vlans"];
        node.known(&[keys.as_slice(), &["dhcpv4_interfaces", "dhcpv6_interfaces"]].concat(), notes);
        for key in ["dhcpv4_interfaces", "dhcpv6_interfaces"] {
            if let Some(dhcp) = node.get(key) {
                notes.unsupported(&dhcp, "addresses from DHCP; try a fixed address");
            }
        }
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        let connection = node.at("connection");
        connection
            .known(&["choice", "port_name", "lag_name", "vxlan_name", "simulated_link"], notes);
        let choices = ["port_name", "lag_name", "vxlan_name", "simulated_link"];
        let port = match connection.choice(&choices, Some("port_name"), notes) {
            Some("port_name") => connection.needed_text("port_name", notes),
            Some(other) => {
                notes.unsupported(
                    &connection.at(other),
                    "interfaces can only be connected to ports",
                );
                None
            }
            None => None,
        };
        let port = port.filter(|port| {
            let known = ports.iter().any(|p| p.name == *port);
            if !known {
                notes.problem(
                    &connection.at("port_name").path,
                    format!("there is no port {port:?}"),
                );
            }
            known
        });
        // An interface without a configured MAC address gets a locally administered one, derived
        // from its index.
        let number = self.list.len() as u32;
        let [_, a, b, c] = number.to_be_bytes();
        let mac = address(node, "mac", "a MAC address", notes)
            .unwrap_or(MacAddr([0x02, 0x53, 0x51, a, b, c]));
        let mtu = node.uint("mtu", 65_535, notes).unwrap_or(1500) as u32;
        let vlans = node.list("vlans", notes).iter().map(|vlan| read_vlan(vlan, notes)).collect();
        let ipv4: Vec<IpInfo<Ipv4Addr>> = node
            .list("ipv4_addresses", notes)
            .iter()
            .filter_map(|a| read_ip(a, &V4, notes))
            .collect();
        let ipv6: Vec<IpInfo<Ipv6Addr>> = node
            .list("ipv6_addresses", notes)
            .iter()
            .filter_map(|a| read_ip(a, &V6, notes))
            .collect();
        let interface = self.list.len();
        let own = ipv4
            .iter()
            .map(|a| IpAddr::V4(a.address))
            .chain(ipv6.iter().map(|a| IpAddr::V6(a.address)));
        self.macs.extend(own.map(|address| (address, mac)));
        for (i, address) in ipv4.iter().enumerate() {
            let endpoint = Endpoint { interface, ipv4: Some(i), ipv6: None };
            self.name(node, address.name.clone(), vec![endpoint], notes);
        }
        for (i, address) in ipv6.iter().enumerate() {
            let endpoint = Endpoint { interface, ipv4: None, ipv6: Some(i) };
            self.name(node, address.name.clone(), vec![endpoint], notes);
        }
        self.name(node, name.clone(), vec![Endpoint { interface, ipv4: None, ipv6: None }], notes);
        let (device, port) = (device.to_owned(), port.unwrap_or_default().to_owned());
        self.list.push(DeviceInfo { device, ethernet: name, port, mac, mtu, vlans, ipv4, ipv6 });
    }

    /// The endpoints that flows refer to by `name`.
    pub fn find(&self, name: &str) -> Option<&[Endpoint]> {
        self.names.get(name).map(Vec::as_slice)
    }

    pub fn port(&self, endpoint: Endpoint) -> &str {
        &self.list[endpoint.interface].port
    }

    /// Addresses for packets between two endpoints. Adds a gateway whose MAC address is unknown to
    /// `unresolved`.
    pub fn ends(
        &self,
        from: Endpoint,
        to: Endpoint,
        v6: Option<bool>,
        resolved: &Resolved,
        unresolved: &mut Vec<Unresolved>,
    ) -> Ends {
        let (tx, rx) = (&self.list[from.interface], &self.list[to.interface]);
        let v4 = (tx.ipv4.get(from.ipv4.unwrap_or(0)), rx.ipv4.get(to.ipv4.unwrap_or(0)));
        let v6_ends = (tx.ipv6.get(from.ipv6.unwrap_or(0)), rx.ipv6.get(to.ipv6.unwrap_or(0)));
        // The gateway for the packets' IP version; for packets without an IP header, the
        // interface's.
        let gateway = match (v6, v4.0, v6_ends.0) {
            (Some(true), _, Some(own)) => Some((IpAddr::V6(own.gateway), own.gateway_mac)),
            (None | Some(false), Some(own), _) => Some((IpAddr::V4(own.gateway), own.gateway_mac)),
            (None, None, Some(own)) => Some((IpAddr::V6(own.gateway), own.gateway_mac)),
            _ => None,
        };
        let dst_mac = match gateway {
            // If the interface has no gateway for these packets, they go directly to the peer.
            None => Some(rx.mac),
            Some((address, given)) => given
                .or_else(|| self.macs.get(&address).copied())
                .or_else(|| resolved.get(&(tx.ethernet.clone(), address)).copied())
                .or_else(|| {
                    let (ethernet, port) = (tx.ethernet.clone(), tx.port.clone());
                    let wanted = Unresolved { ethernet, port, gateway: address };
                    if !unresolved.contains(&wanted) {
                        unresolved.push(wanted);
                    }
                    None
                }),
        };
        let bits4 = |a: Option<&IpInfo<Ipv4Addr>>| a.map_or(0, |a| a.address.to_bits().into());
        let bits6 = |a: Option<&IpInfo<Ipv6Addr>>| a.map_or(0, |a| a.address.to_bits());
        Ends {
            src_mac: mac_number(tx.mac),
            dst_mac: dst_mac.map_or(0, mac_number),
            src_ipv4: bits4(v4.0),
            dst_ipv4: bits4(v4.1),
            src_ipv6: bits6(v6_ends.0),
            dst_ipv6: bits6(v6_ends.1),
        }
    }
}

fn read_vlan(node: &Node<'_>, notes: &mut Notes) -> VlanInfo {
    node.known(&["tpid", "priority", "id", "name"], notes);
    let word =
        node.word("tpid", &["x8100", "x88A8", "x9100", "x9200", "x9300"], Some("x8100"), notes);
    let tpid = word.and_then(|word| u16::from_str_radix(&word[1..], 16).ok()).unwrap_or(0x8100);
    let priority = node.uint("priority", 7, notes).unwrap_or(0) as u8;
    VlanInfo { tpid, priority, id: node.uint("id", 4095, notes).unwrap_or(1) as u16 }
}

fn read_ip<A: std::str::FromStr>(
    node: &Node<'_>,
    version: &Version,
    notes: &mut Notes,
) -> Option<IpInfo<A>> {
    node.known(&["name", "address", "gateway", "gateway_mac", "prefix"], notes);
    let name = node.needed_text("name", notes)?.to_owned();
    let address = needed(node, "address", version.expected, notes);
    let gateway = needed(node, "gateway", version.expected, notes);
    let prefix =
        node.uint("prefix", version.bits, notes).map_or(version.prefix, |prefix| prefix as u8);
    let gateway_mac = gateway_mac(node, notes);
    Some(IpInfo { name, address: address?, gateway: gateway?, prefix, gateway_mac })
}

struct Version {
    expected: &'static str,
    bits: u64,
    /// The default prefix length.
    prefix: u8,
}

const V4: Version = Version { expected: "an IPv4 address", bits: 32, prefix: 24 };
const V6: Version = Version { expected: "an IPv6 address", bits: 128, prefix: 64 };

fn gateway_mac(node: &Node<'_>, notes: &mut Notes) -> Option<MacAddr> {
    let mac = node.at("gateway_mac");
    mac.known(&["choice", "auto", "value"], notes);
    match mac.choice(&["auto", "value"], Some("auto"), notes) {
        Some("value") => address(&mac, "value", "a MAC address", notes),
        _ => None,
    }
}

fn needed<T: std::str::FromStr>(
    node: &Node<'_>,
    key: &str,
    expected: &str,
    notes: &mut Notes,
) -> Option<T> {
    if node.get(key).is_none() {
        notes.problem(&node.at(key).path, format!("missing: expected {expected}"));
    }
    address(node, key, expected, notes)
}

fn address<T: std::str::FromStr>(
    node: &Node<'_>,
    key: &str,
    expected: &str,
    notes: &mut Notes,
) -> Option<T> {
    let text = node.text(key, notes)?;
    let value = text.parse().ok();
    if value.is_none() {
        let at = node.at(key);
        notes.problem(&at.path, format!("found {}, expected {expected}", brief(at.value)));
    }
    value
}
