//! DHCP clients and servers of devices. Each is a group of one host, which the thread of its
//! interface runs.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use squall_control::driving::lock;
use squall_host::{
    Addressing, ClientSettings, ConflictTimers, Datagram, Datagram6, DhcpServer, DhcpTimers,
    FrameQueue, GroupSettings, GroupStatistics, HostGroup, InterfaceIdentifier, Ipv4View,
    Ipv6Addressing, Ipv6Settings, Ipv6View, NdTimers,
};
use squall_units::{MacAddr, Nanos};

use crate::{DeviceInfo, Dhcp6ServerInfo, DhcpServerInfo, Translated, VlanInfo};

const IPV4: [u8; 2] = [8, 0];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Time limit for releases to leave when protocols stop, and then for servers of the same
/// configuration to receive them. Usually both take a few milliseconds, but the thread of an
/// interface may wait for a CPU.
pub const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);

/// A client or a server, by its name in the configuration.
pub struct DhcpHost {
    pub name: String,
    /// Value of [`DeviceInfo::port`].
    pub port: String,
    is_server: bool,
    /// Number of VLAN tags of its frames.
    tags: usize,
    state: Mutex<(HostGroup, FrameQueue)>,
}

/// A lease of a server.
pub struct Lease {
    pub client: MacAddr,
    pub address: Ipv4Addr,
    /// Remaining time in seconds.
    pub left_s: u32,
}

/// An address or a prefix of a DHCPv6 server's client. Times are the remaining ones, in seconds.
#[derive(Debug, PartialEq, Eq)]
pub struct Lease6 {
    /// The client's DUID.
    pub client: Vec<u8>,
    pub address: IpAddr,
    /// Length of a prefix; 128 for an address.
    pub length: u8,
    pub left_s: u32,
    pub renews_s: u32,
    pub rebinds_s: u32,
}

/// The clients and servers of a configuration. `now` is their start.
pub fn hosts(translated: &Translated, now: Nanos) -> Vec<Arc<DhcpHost>> {
    let devices = &translated.devices;
    let clients = devices.iter().filter_map(|device| {
        let client = device.dhcpv4.as_ref()?;
        let settings = GroupSettings {
            addressing: Addressing::Dhcp(DhcpTimers::default()),
            dhcp: ClientSettings { broadcast: client.broadcast, ..ClientSettings::default() },
            release: true,
            ..of_device(device)
        };
        Some(DhcpHost::new(&client.name, device, settings, now))
    });
    let clients6 = devices.iter().filter_map(|device| {
        let client = device.dhcpv6.as_ref()?;
        let ipv6 = Ipv6Settings {
            addressing: Ipv6Addressing::Dhcp,
            dhcp: Some(client.settings),
            timers: NdTimers::default(),
            ..silent_ipv6()
        };
        let settings = GroupSettings { ipv6: Some(ipv6), release: true, ..of_device(device) };
        Some(DhcpHost::new(&client.name, device, settings, now))
    });
    let servers6 = translated.dhcp6_servers.iter().map(|server| {
        let Dhcp6ServerInfo { name, interface, address, settings } = server;
        let device = &devices[*interface];
        let prefix = device.ipv6.iter().find(|own| own.address == *address);
        let prefix = prefix.map_or(128, |own| own.prefix);
        let ipv6 = Ipv6Settings {
            addressing: Ipv6Addressing::Static { first: *address, prefix },
            server: Some(settings.clone()),
            ..silent_ipv6()
        };
        let settings = GroupSettings { ipv6: Some(ipv6), ..of_device(device) };
        DhcpHost::new(name, device, settings, now)
    });
    let servers = translated.dhcp_servers.iter().map(|server| {
        let DhcpServerInfo { name, interface, settings, options } = server;
        let device = &devices[*interface];
        // The device itself answers ARP for the address.
        let settings = GroupSettings {
            addressing: Addressing::Static { first: settings.address, prefix: settings.prefix },
            server: Some(settings.clone()),
            dhcp: ClientSettings { options: options.clone(), ..ClientSettings::default() },
            ..of_device(device)
        };
        DhcpHost::new(name, device, settings, now)
    });
    clients.chain(servers).chain(clients6).chain(servers6).map(Arc::new).collect()
}

/// IPv6 of a host that is silent: it neither examines its addresses nor solicits routers.
fn silent_ipv6() -> Ipv6Settings {
    Ipv6Settings {
        addressing: Ipv6Addressing::Dhcp,
        identifier: InterfaceIdentifier::Eui64,
        gateway: None,
        timers: NdTimers { probes: 0, solicitations: 0, ..NdTimers::default() },
        dhcp: None,
        router: None,
        server: None,
    }
}

fn of_device(device: &DeviceInfo) -> GroupSettings {
    let tag = |vlan: &VlanInfo| (vlan.tpid, (u16::from(vlan.priority) << 13) | vlan.id);
    let [_, _, a, b, c, d] = device.mac.0;
    GroupSettings {
        mac: device.mac,
        tags: device.vlans.iter().map(tag).collect(),
        conflict: ConflictTimers::SILENT,
        seed: u32::from_be_bytes([a, b, c, d]).into(),
        ..GroupSettings::default()
    }
}

impl DhcpHost {
    fn new(name: &str, device: &DeviceInfo, settings: GroupSettings, now: Nanos) -> Self {
        let serves_ipv6 = settings.ipv6.as_ref().is_some_and(|ipv6| ipv6.server.is_some());
        let (is_server, tags) = (settings.server.is_some() || serves_ipv6, settings.tags.len());
        let group = HostGroup::new(settings, now);
        let state = Mutex::new((group, FrameQueue::default()));
        let (name, port) = (name.to_owned(), device.port.clone());
        Self { name, port, is_server, tags, state }
    }

    /// Handles a received frame. `partial`: see [`Datagram::parse`].
    pub fn receive(&self, now: Nanos, (frame, partial): (&[u8], bool), out: &mut Vec<Vec<u8>>) {
        // ARP, neighbor discovery and echo for the address of a server are those of its device.
        if self.is_server && !self.is_dhcp(frame) {
            return;
        }
        let mut state = lock(&self.state);
        let (group, queue) = &mut *state;
        group.receive(now, (frame, partial), queue);
        drain(queue, out);
    }

    pub fn turn(&self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        let mut state = lock(&self.state);
        let (group, queue) = &mut *state;
        while group.advance(now, queue) {}
        drain(queue, out);
    }

    fn is_dhcp(&self, frame: &[u8]) -> bool {
        let rest = frame.get(12 + 4 * self.tags..).unwrap_or_default();
        rest.strip_prefix(&IPV4).is_some_and(Datagram::is_dhcp)
            || rest.strip_prefix(&IPV6).is_some_and(Datagram6::is_dhcp)
    }

    pub fn statistics(&self) -> GroupStatistics {
        lock(&self.state).0.statistics(false)
    }

    /// The client's address and lease, and the length of the lease in seconds.
    pub fn lease(&self, now: Nanos) -> Option<(Ipv4View, Option<u32>)> {
        let state = lock(&self.state);
        let view = state.0.view(0, now)?.ipv4?;
        Some((view, state.0.lease_seconds(0)))
    }

    /// The leases of the server, by address.
    pub fn leases(&self, now: Nanos) -> Vec<Lease> {
        let state = lock(&self.state);
        let Some(server) = state.0.dhcp_server() else { return Vec::new() };
        let lease = |(client, address, until): (MacAddr, Ipv4Addr, Nanos)| Lease {
            client,
            address,
            left_s: (until.saturating_sub(now).0 / Nanos::SECOND.0) as u32,
        };
        let mut leases: Vec<_> =
            server.leases().filter(|(_, _, until)| *until > now).map(lease).collect();
        leases.sort_by_key(|lease| lease.address);
        leases
    }

    /// The DHCPv6 client's addresses and prefix, and the length of their lease in seconds.
    pub fn lease6(&self, now: Nanos) -> Option<(Ipv6View, Option<u32>)> {
        let state = lock(&self.state);
        let view = state.0.view(0, now)?.ipv6?;
        Some((view, state.0.dhcp6_lease_seconds(0)))
    }

    /// The leases of the DHCPv6 server, by address, before the prefixes.
    pub fn leases6(&self, now: Nanos) -> Vec<Lease6> {
        let state = lock(&self.state);
        let Some(server) = state.0.dhcp6_server() else { return Vec::new() };
        let (valid, preferred) = (server.settings().valid, server.settings().preferred);
        let mut leases = Vec::new();
        for binding in server.leases().filter(|binding| binding.until > now) {
            let left_s = (binding.until.saturating_sub(now).0 / Nanos::SECOND.0) as u32;
            let elapsed = valid.saturating_sub(left_s);
            // The server's T1 and T2 (RFC 9915 section 21.4).
            let until = |part: u64| {
                let after = (u64::from(preferred) * part / 10) as u32;
                after.saturating_sub(elapsed)
            };
            let address = binding.address.map(|address| (address, 128));
            for (address, length) in address.into_iter().chain(binding.prefix) {
                leases.push(Lease6 {
                    client: binding.client.to_vec(),
                    address: address.into(),
                    length,
                    left_s,
                    renews_s: until(5),
                    rebinds_s: until(8),
                });
            }
        }
        leases.sort_by_key(|lease| (std::cmp::Reverse(lease.length), lease.address));
        leases
    }

    fn stop(&self, now: Nanos) {
        lock(&self.state).0.stop(now);
    }

    fn is_settled(&self) -> bool {
        let state = lock(&self.state);
        state.0.is_settled() && state.1.is_empty()
    }

    /// The MAC address of the host, and its address, if it has one.
    fn addresses(&self) -> Option<(MacAddr, Ipv4Addr)> {
        let state = lock(&self.state);
        Some((state.0.mac(0), state.0.address(0)?))
    }

    /// Whether the host is a server with a lease of one of `clients`.
    fn has_lease_of(&self, clients: &[(MacAddr, Ipv4Addr)]) -> bool {
        let state = lock(&self.state);
        let mut leases = state.0.dhcp_server().into_iter().flat_map(DhcpServer::leases);
        leases.any(|(client, address, _)| clients.contains(&(client, address)))
    }
}

/// Gives the addresses of clients back, while the threads of their interfaces still run. Servers of
/// the same configuration count the releases before this returns. If one is lost on its way, this
/// takes half a second longer.
pub fn release(hosts: &[Arc<DhcpHost>], now: Nanos) {
    release_within(RELEASE_TIMEOUT, hosts, now);
}

fn release_within(timeout: Duration, hosts: &[Arc<DhcpHost>], now: Nanos) {
    let clients = hosts.iter().filter(|host| !host.is_server);
    let clients: Vec<_> = clients.filter_map(|client| client.addresses()).collect();
    hosts.iter().for_each(|host| host.stop(now));
    wait_until(timeout, || hosts.iter().all(|host| host.is_settled()));
    wait_until(timeout, || !hosts.iter().any(|host| host.has_lease_of(&clients)));
}

/// Returns as soon as `done` is true, or after `timeout`.
pub fn wait_until(timeout: Duration, done: impl Fn() -> bool) {
    let end = Instant::now() + timeout;
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn drain(queue: &mut FrameQueue, out: &mut Vec<Vec<u8>>) {
    while let Some((frame, _)) = queue.first() {
        out.push(frame.to_vec());
        queue.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Config, translate};

    /// A client on `p1` and a server on `p2`.
    fn devices() -> Translated {
        let config = json!({
            "ports": [
                { "name": "p1", "location": "veth-a" }, { "name": "p2", "location": "veth-b" },
            ],
            "devices": [
                { "name": "d1", "ethernets": [{
                    "name": "e1", "connection": { "choice": "port_name", "port_name": "p1" },
                    "mac": "02:00:00:00:00:01", "vlans": [{ "name": "v1", "id": 7 }],
                    "dhcpv4_interfaces": [{ "name": "c1" }],
                    "dhcpv6_interfaces": [{ "name": "c6", "ia_type": { "choice": "ianapd" } }],
                }] },
                { "name": "d2",
                  "ethernets": [{
                    "name": "e2", "connection": { "choice": "port_name", "port_name": "p2" },
                    "mac": "02:00:00:00:00:02", "vlans": [{ "name": "v2", "id": 7 }],
                    "ipv4_addresses": [{
                        "name": "i2", "address": "10.0.0.1", "gateway": "10.0.0.254", "prefix": 16,
                    }],
                    "ipv6_addresses": [{
                        "name": "i6", "address": "2001:db8::1", "gateway": "2001:db8::fe",
                    }],
                  }],
                  "dhcp_server": { "ipv4_interfaces": [{
                    "name": "s1", "ipv4_name": "i2",
                    "address_pools": [{
                        "name": "pool", "start_address": "10.0.1.10", "count": 5,
                        "prefix_length": 16, "lease_time": 600,
                        "options": {
                            "router_address": "10.0.0.1", "primary_dns_server": "10.0.0.53",
                        },
                    }],
                  }], "ipv6_interfaces": [{
                    "name": "s6", "ipv6_name": "i6",
                    "leases": [{ "lease_time": 1000, "ia_type": { "choice": "ianapd", "ianapd": {
                        "iana": { "start_address": "2001:db8::100", "size": 3 },
                        "iapd": {
                            "start_prefix_address": "2001:db8:100::", "prefix_size": 2,
                            "configured_prefix_len": 56, "advertised_prefix_len": 56,
                        },
                    } } }],
                  }] },
                },
            ],
        });
        translate(&Config::from_json(&config).unwrap()).unwrap()
    }

    /// Both send and receive until neither has more to send.
    fn exchange(client: &DhcpHost, server: &DhcpHost, now: Nanos) {
        loop {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            client.turn(now, &mut there);
            there.iter().for_each(|frame| server.receive(now, (frame, false), &mut back));
            server.turn(now, &mut back);
            let mut more = Vec::new();
            back.iter().for_each(|frame| client.receive(now, (frame, false), &mut more));
            more.iter().for_each(|frame| server.receive(now, (frame, false), &mut back));
            back.iter().for_each(|frame| client.receive(now, (frame, false), &mut Vec::new()));
            if there.is_empty() && back.is_empty() && more.is_empty() {
                return;
            }
        }
    }

    #[test]
    fn a_client_gets_an_address_of_a_server_and_gives_it_back() {
        let hosts = hosts(&devices(), Nanos(0));
        let [client, server, ..] = &hosts[..] else { panic!("no hosts") };
        assert_eq!((client.port.as_str(), server.port.as_str()), ("p1", "p2"));
        exchange(client, server, Nanos(1));
        let (view, seconds) = client.lease(Nanos(1)).unwrap();
        assert_eq!(view.address, Some(([10, 0, 1, 10].into(), 16)));
        assert_eq!(view.gateway.unwrap().0, Ipv4Addr::from([10, 0, 0, 1]));
        assert_eq!((seconds, view.lease.unwrap()[0]), (Some(600), Nanos(300_000_000_001)));
        let leases = server.leases(Nanos(1));
        assert_eq!(leases.len(), 1);
        let lease = &leases[0];
        let client_mac = MacAddr([2, 0, 0, 0, 0, 1]);
        assert_eq!((lease.client, lease.left_s), (client_mac, 600));
        assert_eq!(lease.address, Ipv4Addr::from([10, 0, 1, 10]));
        let (counted, served) = (client.statistics(), server.statistics().server.unwrap().0);
        assert_eq!((counted.sent["discover"], counted.received["ack"]), (1, 1));
        assert_eq!((served.discovers, served.acks), (1, 1));

        client.stop(Nanos(2));
        exchange(client, server, Nanos(3));
        assert!(client.is_settled());
        assert!(server.leases(Nanos(3)).is_empty(), "the address was given back");
        assert_eq!(server.statistics().server.unwrap().0.releases, 1);
    }

    /// Lets time pass between a client and a server, until the client has a lease over IPv6.
    fn bind_ipv6(client: &DhcpHost, server: &DhcpHost) -> Nanos {
        for millis in 0..20_000 {
            let now = Nanos(millis * 1_000_000);
            exchange(client, server, now);
            if client.lease6(now).is_some_and(|(view, _)| !view.addresses.is_empty()) {
                return now;
            }
        }
        panic!("no lease: {:?}", client.statistics().ipv6);
    }

    #[test]
    fn a_client_gets_an_address_and_a_prefix_over_ipv6_and_gives_them_back() {
        let hosts = hosts(&devices(), Nanos(0));
        let [_, _, client, server] = &hosts[..] else { panic!("four hosts") };
        let now = bind_ipv6(client, server);
        let (view, seconds) = client.lease6(now).unwrap();
        assert_eq!(view.addresses, ["2001:db8::100".parse::<std::net::Ipv6Addr>().unwrap()]);
        assert_eq!(view.prefix, Some(("2001:db8:100::".parse().unwrap(), 56)));
        assert_eq!(seconds, Some(1000));
        let leases = server.leases6(now);
        let found: Vec<_> = leases.iter().map(|of| (of.address.to_string(), of.length)).collect();
        assert_eq!(found, [("2001:db8::100".into(), 128), ("2001:db8:100::".into(), 56)]);
        let lease = &leases[0];
        assert_eq!(lease.client, [0, 3, 0, 1, 2, 0, 0, 0, 0, 1]);
        // The client has examined the address for a second.
        assert!((998..1000).contains(&lease.left_s), "{lease:?}");
        assert!((498..=500).contains(&lease.renews_s), "{lease:?}");
        assert!((798..=800).contains(&lease.rebinds_s), "{lease:?}");
        let counted = client.statistics().ipv6.unwrap();
        let dhcp = counted.dhcp.unwrap();
        assert_eq!((dhcp.sent["request"], dhcp.bound, dhcp.prefixes), (1, 1, 1));
        let nd = server.statistics().ipv6.unwrap().nd;
        assert_eq!((nd.probes, nd.router_solicitations), (0, 0), "those of the device");

        client.stop(now);
        exchange(client, server, now + Nanos(1));
        assert!(client.is_settled());
        assert_eq!(server.leases6(now + Nanos(1)), []);
        assert_eq!(server.statistics().ipv6.unwrap().server.unwrap().0.releases, 1);
    }

    #[test]
    fn a_stop_waits_for_a_server_whose_thread_has_no_cpu() {
        let hosts = hosts(&devices(), Nanos(0));
        let (client, server) = (hosts[0].clone(), hosts[1].clone());
        exchange(&client, &server, Nanos(1));
        let threads = std::thread::spawn(move || {
            let mut frames = Vec::new();
            while frames.is_empty() {
                client.turn(Nanos(3), &mut frames);
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(100));
            frames.iter().for_each(|frame| {
                server.receive(Nanos(4), (frame, false), &mut Vec::new());
            });
        });
        release_within(Duration::from_secs(60), &hosts, Nanos(2));
        assert_eq!(hosts[1].statistics().server.unwrap().0.releases, 1);
        threads.join().unwrap();
    }

    #[test]
    fn a_release_that_is_lost_does_not_block_a_stop() {
        let hosts = hosts(&devices(), Nanos(0));
        exchange(&hosts[0], &hosts[1], Nanos(1));
        release_within(Duration::from_millis(5), &hosts, Nanos(2));
        assert_eq!(hosts[1].leases(Nanos(2)).len(), 1);
    }

    #[test]
    fn a_server_leaves_arp_to_its_device_and_hears_its_vlan_alone() {
        let hosts = hosts(&devices(), Nanos(0));
        let (client, server) = (&hosts[0], &hosts[1]);
        let (mut sent, mut answers) = (Vec::new(), Vec::new());
        client.turn(Nanos(1), &mut sent);
        assert_eq!(&sent[0][12..16], &[0x81, 0, 0, 7]);
        let mut other = sent[0].clone();
        other[15] = 8;
        server.receive(Nanos(1), (&other, false), &mut answers);
        let mut arp = sent[0].clone();
        arp[16..18].copy_from_slice(&[8, 6]);
        server.receive(Nanos(1), (&arp, false), &mut answers);
        assert!(answers.is_empty());
        server.receive(Nanos(1), (&sent[0], false), &mut answers);
        assert_eq!(answers.len(), 1, "an offer");
    }
}
