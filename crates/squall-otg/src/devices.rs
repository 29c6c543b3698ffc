//! Emulated devices: their interfaces, and the addresses that flows between them put into packets.

use std::{
    collections::{HashMap, HashSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use squall_host::{OptionTemplate, Server6Settings, ServerSettings, ValueTemplate, duid_of};
use squall_units::MacAddr;

use crate::{
    bgp, dhcpv6,
    packet::{Ends, mac_number},
    read::{Node, Notes, brief},
    routers,
    translate::{
        BgpPeerInfo, DeviceInfo, Dhcp6ServerInfo, DhcpClientInfo, DhcpServerInfo, IpInfo, LagInfo,
        PortInfo, Resolved, RouterInfo, Unresolved, VlanInfo,
    },
};

/// Interfaces, and the names by which flows refer to them.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    pub list: Vec<DeviceInfo>,
    pub dhcp_servers: Vec<DhcpServerInfo>,
    pub dhcp6_servers: Vec<Dhcp6ServerInfo>,
    pub bgp: Vec<BgpPeerInfo>,
    pub routers: Vec<RouterInfo>,
    /// Interfaces by the names of devices, interfaces, addresses and ranges of routes.
    names: HashMap<String, Vec<Endpoint>>,
    macs: HashMap<IpAddr, MacAddr>,
    /// Names of DHCP clients and servers.
    dhcp_names: HashSet<String>,
}

/// An interface, and its address if the flow names one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub interface: usize,
    pub ipv4: Option<usize>,
    pub ipv6: Option<usize>,
    /// First address of a range of routes, which packets have instead of the interface's.
    pub range: Option<IpAddr>,
}

impl Devices {
    pub fn read(root: &Node<'_>, ports: &[PortInfo], lags: &[LagInfo], notes: &mut Notes) -> Self {
        const KEYS: [&str; 6] =
            ["name", "ethernets", "dhcp_server", "bgp", "ipv4_loopbacks", "ipv6_loopbacks"];
        const PROTOCOLS: [&str; 5] = ["vxlan", "rsvp", "macsec", "rocev2", "bmp"];
        const ROUTING: [&str; 3] = ["isis", "ospfv2", "ospfv3"];
        let mut devices = Self::default();
        for node in root.list("devices", notes) {
            node.known(&[KEYS.as_slice(), &PROTOCOLS, &ROUTING].concat(), notes);
            let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
            for protocol in PROTOCOLS.iter().filter_map(|key| node.get(key)) {
                notes.unsupported(
                    &protocol,
                    "devices support only ARP, neighbor discovery, echo, DHCP, BGP, OSPF and IS-IS",
                );
            }
            let first = devices.list.len();
            for ethernet in node.list("ethernets", notes) {
                devices.ethernet(&name, &ethernet, (ports, lags), notes);
            }
            for loopback in node.list("ipv4_loopbacks", notes) {
                devices.loopback(&loopback, first, &V4, |info| &mut info.ipv4, notes);
            }
            for loopback in node.list("ipv6_loopbacks", notes) {
                devices.loopback(&loopback, first, &V6, |info| &mut info.ipv6, notes);
            }
            let all = (first..devices.list.len())
                .map(|interface| Endpoint { interface, ..Endpoint::default() });
            let all: Vec<Endpoint> = all.collect();
            devices.dhcp_server(&node.at("dhcp_server"), first, notes);
            devices.bgp(&node.at("bgp"), first, notes);
            devices.routers(&node, first, notes);
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

    fn ethernet(
        &mut self,
        device: &str,
        node: &Node<'_>,
        (ports, lags): (&[PortInfo], &[LagInfo]),
        notes: &mut Notes,
    ) {
        let keys =
            ["name", "connection", "ipv4_addresses", "ipv6_addresses", "mac", "mtu", "vlans"];
        node.known(&[keys.as_slice(), &["dhcpv4_interfaces", "dhcpv6_interfaces"]].concat(), notes);
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        let connection = node.at("connection");
        connection
            .known(&["choice", "port_name", "lag_name", "vxlan_name", "simulated_link"], notes);
        let choices = ["port_name", "lag_name", "vxlan_name", "simulated_link"];
        let port = match connection.choice(&choices, Some("port_name"), notes) {
            Some("port_name") => connection.needed_text("port_name", notes),
            Some("lag_name") => lag_port(&connection, lags, notes),
            Some(other) => {
                notes.unsupported(
                    &connection.at(other),
                    "interfaces can only be connected to ports, and to LAGs of one port",
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
            let endpoint = Endpoint { interface, ipv4: Some(i), ..Endpoint::default() };
            self.name(node, address.name.clone(), vec![endpoint], notes);
        }
        for (i, address) in ipv6.iter().enumerate() {
            let endpoint = Endpoint { interface, ipv6: Some(i), ..Endpoint::default() };
            self.name(node, address.name.clone(), vec![endpoint], notes);
        }
        let endpoint = Endpoint { interface, ..Endpoint::default() };
        self.name(node, name.clone(), vec![endpoint], notes);
        let dhcpv4 = self.dhcp_client(node, notes);
        let dhcpv6 = dhcpv6::read_client(node, notes);
        if let Some(client) = &dhcpv6 {
            let first = node.list("dhcpv6_interfaces", notes).swap_remove(0);
            self.dhcp_name(&first, client.name.clone(), notes);
        }
        let (device, port) = (device.to_owned(), port.unwrap_or_default().to_owned());
        self.list.push(DeviceInfo {
            device,
            ethernet: name,
            port,
            mac,
            mtu,
            vlans,
            ipv4,
            ipv6,
            dhcpv4,
            dhcpv6,
        });
    }

    /// The DHCPv4 client of an interface. Clients are known by their MAC address, so that an
    /// interface has one.
    fn dhcp_client(&mut self, ethernet: &Node<'_>, notes: &mut Notes) -> Option<DhcpClientInfo> {
        let mut clients = ethernet.list("dhcpv4_interfaces", notes).into_iter();
        let node = clients.next()?;
        for further in clients {
            notes.unsupported(&further, "a second DHCP client of an interface");
        }
        let keys = ["name", "choice", "server_address", "broadcast", "parameters_request_list"];
        node.known(&keys, notes);
        let name = node.needed_text("name", notes)?.to_owned();
        let choices = ["first_server", "server_address"];
        if node.choice(&choices, Some("first_server"), notes) == Some("server_address") {
            let at = node.at("server_address");
            notes.unsupported(&at, "clients take the first offer; try first_server");
        }
        if let Some(list) = node.get("parameters_request_list") {
            let keys = ["subnet_mask", "router", "renewal_timer", "rebinding_timer"];
            list.known(&keys, notes);
            notes.warn(&list.path, "has no effect: clients always ask for these parameters");
        }
        self.dhcp_name(&node, name.clone(), notes);
        Some(DhcpClientInfo { name, broadcast: node.flag("broadcast", false, notes) })
    }

    /// A name that no other client or server may have.
    fn dhcp_name(&mut self, node: &Node<'_>, name: String, notes: &mut Notes) {
        if let Some(name) = self.dhcp_names.replace(name) {
            notes.problem(
                &node.at("name").path,
                format!("{name:?} is also the name of another client or server"),
            );
        }
    }

    /// A loopback address of a device, whose interfaces begin at `first`: one more address of the
    /// interface that leads to it. `list`: the addresses of an interface of its version.
    fn loopback<A: std::str::FromStr + Copy>(
        &mut self,
        node: &Node<'_>,
        first: usize,
        version: &Version,
        list: fn(&mut DeviceInfo) -> &mut Vec<IpInfo<A>>,
        notes: &mut Notes,
    ) where
        IpAddr: From<A>,
    {
        node.known(&["eth_name", "address", "name"], notes);
        let ethernet = node.needed_text("eth_name", notes).unwrap_or_default();
        let name = node.needed_text("name", notes).unwrap_or_default().to_owned();
        let address: Option<A> = needed(node, "address", version.expected, notes);
        let known = |info: &DeviceInfo| info.ethernet == ethernet;
        let Some(interface) = self.list[first..].iter().position(known).map(|at| first + at) else {
            if !ethernet.is_empty() {
                let path = node.at("eth_name").path;
                notes.problem(path, format!("the device has no interface {ethernet:?}"));
            }
            return;
        };
        let mac = self.list[interface].mac;
        let all = list(&mut self.list[interface]);
        let Some(own) = all.first() else {
            let what = version.expected;
            let path = node.at("eth_name").path;
            notes.problem(path, format!("interface {ethernet:?} needs {what} with a gateway"));
            return;
        };
        let Some(address) = address else { return };
        let (gateway, gateway_mac, prefix) = (own.gateway, own.gateway_mac, version.bits as u8);
        let place = all.len();
        let info =
            IpInfo { name: name.clone(), address, gateway, prefix, gateway_mac, is_loopback: true };
        all.push(info);
        let address = IpAddr::from(address);
        self.macs.insert(address, mac);
        let endpoint = match address {
            IpAddr::V4(_) => Endpoint { interface, ipv4: Some(place), ..Endpoint::default() },
            IpAddr::V6(_) => Endpoint { interface, ipv6: Some(place), ..Endpoint::default() },
        };
        self.name(node, name, vec![endpoint], notes);
    }

    /// The DHCPv6 servers of a device, whose interfaces begin at `first`.
    fn dhcp6_servers(&mut self, node: &Node<'_>, first: usize, notes: &mut Notes) {
        for server in node.list("ipv6_interfaces", notes) {
            let keys = [
                "name",
                "ipv6_name",
                "rapid_commit",
                "reconfigure_via_relay_agent",
                "leases",
                "options",
            ];
            server.known(&keys, notes);
            let name = server.needed_text("name", notes).unwrap_or_default().to_owned();
            let of = server.needed_text("ipv6_name", notes).unwrap_or_default();
            let found = (first..self.list.len()).find_map(|interface| {
                let own = self.list[interface].ipv6.iter().find(|own| own.name == of)?;
                Some((interface, own.address))
            });
            if found.is_none() && !of.is_empty() {
                let path = server.at("ipv6_name").path;
                notes.problem(&path, format!("the device has no IPv6 address {of:?}"));
            }
            let settings = dhcpv6::read_server(&server, found.map(|found| found.1), notes);
            self.dhcp_name(&server, name.clone(), notes);
            if let (Some((interface, address)), Some(settings)) = (found, settings) {
                let identifier = duid_of(self.list[interface].mac);
                let settings = Server6Settings { identifier, ..settings };
                self.dhcp6_servers.push(Dhcp6ServerInfo { name, interface, address, settings });
            }
        }
    }

    /// The DHCP servers of a device, whose interfaces begin at `first`.
    fn dhcp_server(&mut self, node: &Node<'_>, first: usize, notes: &mut Notes) {
        node.known(&["ipv4_interfaces", "ipv6_interfaces"], notes);
        self.dhcp6_servers(node, first, notes);
        for server in node.list("ipv4_interfaces", notes) {
            server.known(&["name", "ipv4_name", "address_pools"], notes);
            let name = server.needed_text("name", notes).unwrap_or_default().to_owned();
            let of = server.needed_text("ipv4_name", notes).unwrap_or_default();
            let found = (first..self.list.len()).find_map(|interface| {
                let own = self.list[interface].ipv4.iter().find(|own| own.name == of)?;
                Some((interface, own.address))
            });
            if found.is_none() && !of.is_empty() {
                let path = server.at("ipv4_name").path;
                notes.problem(&path, format!("the device has no IPv4 address {of:?}"));
            }
            let mut pools = server.list("address_pools", notes).into_iter();
            let pool = pools.next();
            for further in pools {
                notes.unsupported(&further, "a second pool of a server");
            }
            let Some(pool) = pool else {
                notes.problem(&server.at("address_pools").path, "missing: expected a pool");
                continue;
            };
            let Some((settings, options)) = read_pool(&pool, notes) else { continue };
            let is_in_pool = |(_, address): &(usize, Ipv4Addr)| {
                let offset = address.to_bits().checked_sub(settings.first.to_bits());
                offset.is_some_and(|offset| offset < settings.count)
            };
            if let Some((_, own)) = found.filter(is_in_pool) {
                notes.problem(
                    &pool.at("start_address").path,
                    format!(
                        "the pool has {own}, which is the server's own address\n  try a pool that \
                         starts after it"
                    ),
                );
            }
            self.dhcp_name(&server, name.clone(), notes);
            if let Some((interface, address)) = found {
                let settings = ServerSettings { address, ..settings };
                self.dhcp_servers.push(DhcpServerInfo { name, interface, settings, options });
            }
        }
    }

    /// The BGP sessions of a device, whose interfaces begin at `first`.
    fn bgp(&mut self, node: &Node<'_>, first: usize, notes: &mut Notes) {
        let count = |of: &BgpPeerInfo| -> u64 {
            let blocks = of.ranges.iter().flat_map(|range| &range.blocks);
            blocks.map(|block| u64::from(block.count)).sum()
        };
        let mut routes: u64 = self.bgp.iter().map(count).sum();
        for bgp::Found { info, endpoint, node, ranges } in
            bgp::read(node, &self.list[first..], first, notes)
        {
            for (range, node) in info.ranges.iter().zip(&ranges) {
                let range_of = range.blocks.first().map(|block| block.first);
                let endpoint = Endpoint { range: range_of, ..endpoint };
                self.name(node, range.name.clone(), vec![endpoint], notes);
            }
            let name = &info.name;
            if self.bgp.iter().any(|other| other.name == *name) {
                let path = node.at("name").path;
                notes.problem(path, format!("{name:?} is also the name of another session"));
            }
            let ends = |of: &BgpPeerInfo| (of.interface, of.local, of.remote);
            if self.bgp.iter().any(|other| ends(other) == ends(&info)) {
                let path = node.at("peer_address").path;
                notes.problem(path, "another session is between these addresses");
            }
            routes += count(&info);
            self.bgp.push(info);
            if routes > bgp::MOST_ROUTES {
                let what = format!("more than {} routes in all", bgp::MOST_ROUTES);
                notes.unsupported(&node, &what);
            }
        }
    }

    /// The routers of OSPF and IS-IS of a device, whose interfaces begin at `first`.
    fn routers(&mut self, node: &Node<'_>, first: usize, notes: &mut Notes) {
        for routers::Found { info, node, ranges } in
            routers::read(node, &self.list[first..], first, notes)
        {
            for (endpoint, name, node) in ranges {
                self.name(&node, name, vec![endpoint], notes);
            }
            let name = &info.name;
            if self.routers.iter().any(|other| other.name == *name) {
                let path = node.at("name").path;
                notes.problem(path, format!("{name:?} is also the name of another router"));
            }
            let is_same = |other: &RouterInfo| {
                other.interface == info.interface && other.protocol == info.protocol
            };
            if self.routers.iter().any(is_same) {
                let why = "a second router of the protocol on an interface; try another interface";
                notes.unsupported(&node, why);
            }
            self.routers.push(info);
            if self.routers.len() == routers::MOST_ROUTERS + 1 {
                let what = format!("more than {} routers of OSPF and IS-IS", routers::MOST_ROUTERS);
                notes.unsupported(&node, &what);
            }
        }
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
        let bits4 = |own: Option<&IpInfo<Ipv4Addr>>, of: Endpoint| match (of.range, own) {
            (Some(IpAddr::V4(first)), _) => first.to_bits().into(),
            (None, Some(own)) => own.address.to_bits().into(),
            _ => 0,
        };
        let bits6 = |own: Option<&IpInfo<Ipv6Addr>>, of: Endpoint| match (of.range, own) {
            (Some(IpAddr::V6(first)), _) => first.to_bits(),
            (None, Some(own)) => own.address.to_bits(),
            _ => 0,
        };
        Ends {
            src_mac: mac_number(tx.mac),
            dst_mac: dst_mac.map_or(0, mac_number),
            src_ipv4: bits4(v4.0, from),
            dst_ipv4: bits4(v4.1, to),
            src_ipv6: bits6(v6_ends.0, from),
            dst_ipv6: bits6(v6_ends.1, to),
        }
    }
}

/// A pool as settings of a server that has no address yet, and its further options.
fn read_pool(pool: &Node<'_>, notes: &mut Notes) -> Option<(ServerSettings, Vec<OptionTemplate>)> {
    /// Option 6 (RFC 2132 section 3.8).
    const DNS: u8 = 6;
    let keys = ["name", "lease_time", "start_address", "prefix_length", "count", "step", "options"];
    pool.known(&keys, notes);
    let first: Option<Ipv4Addr> = needed(pool, "start_address", V4.expected, notes);
    let prefix = pool.uint("prefix_length", 31, notes).map_or(24, |prefix| prefix as u8);
    let count = pool.uint("count", 1_000_000, notes).unwrap_or(1) as u32;
    if count == 0 {
        notes.problem(&pool.at("count").path, "found 0, expected at least 1 address");
    }
    // Addresses after the last one would be 0.0.0.0 and those after it.
    let room = first.map_or(u32::MAX, |first| u32::MAX - first.to_bits());
    if count.saturating_sub(1) > room {
        let expected = u64::from(room) + 1;
        notes.problem(
            &pool.at("count").path,
            format!("found {count}, expected at most {expected} from this start_address"),
        );
    }
    let lease = pool.uint("lease_time", u32::MAX.into(), notes).unwrap_or(86_400) as u32;
    if lease == 0 {
        notes.problem(&pool.at("lease_time").path, "found 0, expected at least 1 s");
    }
    if count > 1 && pool.uint("step", u64::MAX, notes).is_some_and(|step| step != 1) {
        notes.unsupported(&pool.at("step"), "the addresses of a pool are consecutive");
    }
    let options = pool.at("options");
    let servers = ["primary_dns_server", "secondary_dns_server"];
    options.known(
        &[&["router_address", "echo_relay_with_tlv_82"], servers.as_slice()].concat(),
        notes,
    );
    let mut given = |key| {
        let found: Option<Ipv4Addr> = address(&options, key, V4.expected, notes);
        found.filter(|address| !address.is_unspecified())
    };
    let router = given("router_address");
    let octets: Vec<u8> =
        servers.into_iter().filter_map(&mut given).flat_map(|dns| dns.octets()).collect();
    if !options.flag("echo_relay_with_tlv_82", true, notes) {
        let at = options.at("echo_relay_with_tlv_82");
        notes.unsupported(&at, "servers return option 82 (RFC 3046)");
    }
    let digits: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let value = ValueTemplate::hex(&digits).filter(|_| !octets.is_empty());
    let dns = value.map(|value| OptionTemplate { code: DNS, value });
    let settings = ServerSettings {
        prefix,
        router,
        first: first?,
        count,
        lease: lease.max(1),
        ..ServerSettings::default()
    };
    Some((settings, dns.into_iter().collect()))
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
    let (address, gateway) = (address?, gateway?);
    Some(IpInfo { name, address, gateway, prefix, gateway_mac, is_loopback: false })
}

/// The port of the LAG that an interface is connected to.
fn lag_port<'a>(connection: &Node<'_>, lags: &'a [LagInfo], notes: &mut Notes) -> Option<&'a str> {
    let name = connection.needed_text("lag_name", notes)?;
    let at = connection.at("lag_name");
    match lags.iter().find(|lag| lag.name == name).map(|lag| &lag.members[..]) {
        Some([member]) => return Some(&member.port),
        Some(_) => notes.unsupported(&at, "interfaces need a LAG of one port"),
        None => notes.problem(&at.path, format!("there is no LAG {name:?}")),
    }
    None
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

pub(crate) fn needed<T: std::str::FromStr>(
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

pub(crate) fn address<T: std::str::FromStr>(
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
