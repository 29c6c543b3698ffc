//! Emulated devices on the interfaces of ports: they answer ARP, neighbor discovery and echo
//! requests for their addresses, resolve the MAC addresses of gateways, and send pings on request.
//! The same threads run the protocols of devices and of ports.

use std::{
    collections::{HashMap, HashSet},
    mem,
    net::IpAddr,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU16, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use squall::Error;
use squall_control::driving::lock;
use squall_host::{Answer, Arp, Echo, Host, NeighborCache, NeighborMessage, solicited_node};
use squall_machine::speaking::{self, HostThread};
use squall_units::{Cannot, MacAddr, Nanos};

use super::{
    bgp::{self, BgpSpeaker},
    dhcp::{self, DhcpHost},
    lacp::LacpMember,
    lldp::{self, LldpAgent},
    routers::{self, DeviceRouter},
};
use crate::{DeviceInfo, Problem, Resolved, Translated, VlanInfo, replies::PingRequest};

/// Interval between echo requests while no answer arrives.
const ECHO_EVERY: Nanos = Nanos(1_000_000_000);
/// Each round of pings has its own identifier, so late answers to an earlier round do not count.
static ROUNDS: AtomicU16 = AtomicU16::new(0);
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// The emulated devices of the current configuration.
#[derive(Default)]
pub struct Hosts {
    speaking: Vec<HostThread>,
    shared: Arc<Shared>,
    protocols: Protocols,
    /// Whether they are started.
    protocols_are_on: bool,
}

/// Protocols of devices and of ports. They keep their counters when they stop.
#[derive(Clone, Default)]
struct Protocols {
    /// Clients and servers of DHCP.
    dhcp: Vec<Arc<DhcpHost>>,
    bgp: Vec<Arc<BgpSpeaker>>,
    routers: Vec<Arc<DeviceRouter>>,
    lldp: Vec<Arc<LldpAgent>>,
    lacp: Vec<Arc<LacpMember>>,
}

impl Protocols {
    /// The protocols of a configuration, which start at `now`.
    fn of(translated: &Translated, now: Nanos) -> Self {
        let lldp = translated.lldp.iter().map(|info| Arc::new(LldpAgent::new(info, now)));
        let members = translated.lags.iter().flat_map(|lag| {
            lag.members.iter().map(move |member| Arc::new(LacpMember::new(lag, member, now)))
        });
        let (dhcp, bgp) = (dhcp::hosts(translated, now), bgp::speakers(translated, now));
        let routers = routers::routers(translated);
        Self { dhcp, bgp, routers, lldp: lldp.collect(), lacp: members.collect() }
    }

    /// The protocols of one port.
    fn on_port(&self, port: &str) -> Self {
        let Self { mut dhcp, mut bgp, mut routers, mut lldp, mut lacp } = self.clone();
        dhcp.retain(|host| host.port == port);
        bgp.retain(|speaker| speaker.port == port);
        routers.retain(|router| router.port == port);
        lldp.retain(|agent| agent.info.port == port);
        lacp.retain(|member| member.port == port);
        Self { dhcp, bgp, routers, lldp, lacp }
    }

    /// A protocol, and the name of its instance; `None`: there is none.
    fn first(&self) -> Option<(&'static str, &str)> {
        let dhcp = self.dhcp.iter().map(|host| ("DHCP", &host.name[..]));
        let bgp = self.bgp.iter().map(|speaker| ("BGP", speaker.name()));
        let routers = self.routers.iter().map(|router| (router.protocol(), &router.info.name[..]));
        let lldp = self.lldp.iter().map(|agent| ("LLDP", &agent.info.name[..]));
        let lacp = self.lacp.iter().map(|member| ("LACP", &member.lag[..]));
        dhcp.chain(bgp).chain(routers).chain(lldp).chain(lacp).next()
    }
}

#[derive(Default)]
struct Shared {
    known: Mutex<Known>,
    changed: Condvar,
    /// Number of the current round of pings; a device with a lower number has not fetched its pings
    /// yet.
    round: AtomicU32,
    pings: Mutex<Pings>,
    answered: Condvar,
}

/// The current round of pings.
#[derive(Default)]
struct Pings {
    /// Pings not sent yet, by the device's interface.
    waiting: HashMap<String, Vec<Ping>>,
    /// Echo requests that have not been answered yet.
    open: HashSet<Echo>,
}

/// A pending echo request.
#[derive(Clone, Debug)]
pub struct Ping {
    /// Interface of the sending device: [`DeviceInfo::ethernet`].
    ethernet: String,
    echo: Echo,
    /// Next hop: the target itself or a gateway.
    hop: IpAddr,
    hop_mac: Option<MacAddr>,
    /// Time of the next attempt.
    due: Nanos,
}

impl Ping {
    /// The ping that `request` describes.
    ///
    /// # Errors
    /// An unknown device, or one on a port where devices send nothing.
    pub fn of(request: &PingRequest, translated: &Translated) -> Result<Self, Problem> {
        let wrong =
            |message: String| Problem { path: format!("{}.src_name", request.path), message };
        let found = translated.devices.iter().find_map(|device| {
            let (source, hop, hop_mac) = match request.target {
                IpAddr::V4(target) => {
                    let v4 = device.ipv4.iter().find(|v4| v4.name == request.source)?;
                    let mask = u32::MAX.checked_shl(32 - u32::from(v4.prefix)).unwrap_or(0);
                    let near = (v4.address.to_bits() ^ target.to_bits()) & mask == 0;
                    (
                        v4.address.into(),
                        if near { request.target } else { v4.gateway.into() },
                        v4.gateway_mac,
                    )
                }
                IpAddr::V6(target) => {
                    let v6 = device.ipv6.iter().find(|v6| v6.name == request.source)?;
                    let mask = u128::MAX.checked_shl(128 - u32::from(v6.prefix)).unwrap_or(0);
                    let near = (v6.address.to_bits() ^ target.to_bits()) & mask == 0
                        || target.is_unicast_link_local();
                    (
                        v6.address.into(),
                        if near { request.target } else { v6.gateway.into() },
                        v6.gateway_mac,
                    )
                }
            };
            let is_gateway = device
                .ipv4
                .iter()
                .any(|v4| IpAddr::V4(v4.gateway) == hop && v4.name == request.source)
                || device
                    .ipv6
                    .iter()
                    .any(|v6| IpAddr::V6(v6.gateway) == hop && v6.name == request.source);
            Some((device, source, hop, hop_mac.filter(|_| is_gateway)))
        });
        let Some((device, source, hop, hop_mac)) = found else {
            let family = if request.target.is_ipv6() { "IPv6" } else { "IPv4" };
            return Err(wrong(format!("cannot find {family} address {:?}", request.source)));
        };
        let port = translated.ports.iter().find(|port| port.name == device.port);
        if let Some(port) =
            port.filter(|port| squall_machine::ports::interface_of(&port.address).is_none())
        {
            let what =
                format!("{:?} is on port {:?} ({})", request.source, port.name, port.address);
            return Err(wrong(format!(
                "{what}, which is not an interface: devices send nothing there"
            )));
        }
        let echo = Echo { source, destination: request.target, id: 0, seq: 0 };
        Ok(Self { ethernet: device.ethernet.clone(), echo, hop, hop_mac, due: Nanos(0) })
    }
}

#[derive(Default)]
struct Known {
    resolved: Resolved,
    /// Addresses that did not answer the requests for them.
    silent: Vec<(String, IpAddr)>,
}

impl Hosts {
    /// Starts devices on ports with a kernel interface, with the protocols of devices and ports.
    /// Devices on other ports can reach only each other, and all their addresses are in the
    /// configuration.
    ///
    /// # Errors
    /// A port that does not open; a protocol on a port without an interface; a routing daemon that
    /// does not start.
    pub fn start(translated: &Translated) -> Result<Self, Error> {
        let protocols = Protocols::of(translated, squall_port::monotonic());
        let hosts = Self { protocols, protocols_are_on: true, ..Self::default() };
        let hosts = hosts.speak(translated)?;
        hosts.protocols.routers.iter().try_for_each(|router| router.start())?;
        Ok(hosts)
    }

    /// Starts devices as [`Hosts::start`] does, but without protocols: clients that have given
    /// their addresses back must not ask for others. Their counters stay.
    ///
    /// # Errors
    /// A port that does not open.
    pub fn start_devices(&mut self, translated: &Translated) -> Result<(), Error> {
        let speaking = Self::default().speak(translated)?;
        *self = Self { protocols: mem::take(&mut self.protocols), ..speaking };
        Ok(())
    }

    fn speak(self, translated: &Translated) -> Result<Self, Error> {
        let mut hosts = self;
        for port in &translated.ports {
            let here: Vec<Device> = translated
                .devices
                .iter()
                .filter(|device| device.port == port.name)
                .map(Device::of)
                .collect();
            let protocols = hosts.protocols.on_port(&port.name);
            let interface = squall_machine::ports::interface_of(&port.address);
            if let (None, Some((protocol, name))) = (&interface, protocols.first()) {
                let why = format!("port {} ({}) is not an interface", port.name, port.address);
                return Err(Cannot::new(format!("start {protocol} of {name:?}"), why).into());
            }
            let is_needed = !here.is_empty() || protocols.first().is_some();
            let Some(interface) = interface.filter(|_| is_needed) else { continue };
            let devices = Devices { list: here, protocols, shared: hosts.shared.clone() };
            let speaking = HostThread::start(&interface, devices)
                .map_err(|error| Error::Environment(format!("port {}: {error}", port.name)))?;
            hosts.speaking.push(speaking);
        }
        Ok(hosts)
    }

    /// Stops the devices. Sessions of BGP end with a NOTIFICATION, DHCP clients give their
    /// addresses back, and LLDP announces its end; counters stay.
    pub fn stop(&mut self) {
        if self.protocols_are_on {
            let now = squall_port::monotonic();
            // While LACP still carries their frames.
            bgp::stop(&self.protocols.bgp, now);
            routers::stop(&self.protocols.routers);
            self.protocols.lacp.iter().for_each(|member| member.enable(now, false));
            dhcp::release(&self.protocols.dhcp, now);
            lldp::stop(&self.protocols.lldp);
        }
        *self = Self { protocols: mem::take(&mut self.protocols), ..Self::default() };
    }

    /// The DHCP client or server with this name, if protocols were started.
    pub fn dhcp(&self, name: &str) -> Option<&DhcpHost> {
        self.protocols.dhcp.iter().find(|host| host.name == name).map(|host| &**host)
    }

    /// The speaker with the BGP session of this name, and the session's number there, if protocols
    /// were started.
    pub fn bgp(&self, name: &str) -> Option<(&BgpSpeaker, usize)> {
        self.protocols.bgp.iter().find_map(|speaker| Some((&**speaker, speaker.peer(name)?)))
    }

    /// The speaker with the range of routes of this name, and the range's number there, if
    /// protocols were started.
    pub fn range(&self, name: &str) -> Option<(&BgpSpeaker, usize)> {
        self.protocols.bgp.iter().find_map(|speaker| Some((&**speaker, speaker.range(name)?)))
    }

    /// The router of OSPF or IS-IS with this name, if protocols were started.
    pub fn router(&self, name: &str) -> Option<&DeviceRouter> {
        let mut routers = self.protocols.routers.iter();
        routers.find(|router| router.info.name == name).map(|router| &**router)
    }

    /// Why routing daemons have ended before they were stopped.
    pub fn failures(&self) -> Vec<String> {
        let why = |router: &Arc<DeviceRouter>| {
            let why = router.failed()?;
            Some(format!("router {:?}: its daemon has ended: {why}", router.info.name))
        };
        self.protocols.routers.iter().filter_map(why).collect()
    }

    /// Waits until routing daemons have carried out their orders, at most for `timeout`, and
    /// returns why some could not be carried out.
    pub fn failed_steps(&self, timeout: Duration) -> Vec<String> {
        let until = Instant::now() + timeout;
        self.protocols.routers.iter().flat_map(|router| router.failed_steps(until)).collect()
    }

    /// The LLDP instance with this name, if protocols were started.
    pub fn lldp(&self, name: &str) -> Option<&LldpAgent> {
        self.protocols.lldp.iter().find(|agent| agent.info.name == name).map(|agent| &**agent)
    }

    /// The port of an aggregate, if protocols were started.
    pub fn lacp(&self, port: &str) -> Option<&LacpMember> {
        self.protocols.lacp.iter().find(|member| member.port == port).map(|member| &**member)
    }

    pub fn protocols_are_on(&self) -> bool {
        self.protocols_are_on
    }

    pub fn are_on(&self) -> bool {
        !self.speaking.is_empty()
    }

    /// Returns the known addresses as soon as all of `wanted` are resolved or have failed, or after
    /// `timeout`.
    pub fn resolve(&self, wanted: &[(String, IpAddr)], timeout: Duration) -> Resolved {
        let open = |known: &mut Known| {
            wanted
                .iter()
                .any(|one| !known.resolved.contains_key(one) && !known.silent.contains(one))
        };
        let known = lock(&self.shared.known);
        let waited = self.shared.changed.wait_timeout_while(known, timeout, open);
        waited.unwrap_or_else(PoisonError::into_inner).0.resolved.clone()
    }

    pub fn resolved(&self) -> Resolved {
        lock(&self.shared.known).resolved.clone()
    }

    /// Sends `pings`. Returns for each whether an answer arrived within `timeout`.
    pub fn ping(&self, mut pings: Vec<Ping>, timeout: Duration) -> Vec<bool> {
        let mut echoes = Vec::new();
        let mut id = 0;
        for (number, ping) in pings.iter_mut().enumerate() {
            // Use another identifier once all sequence numbers are used.
            let seq = number as u16;
            if seq == 0 {
                id = ROUNDS.fetch_add(1, Ordering::Relaxed);
            }
            (ping.echo.id, ping.echo.seq) = (id, seq);
            echoes.push(ping.echo);
        }
        let mut waiting: HashMap<String, Vec<Ping>> = HashMap::new();
        for ping in pings {
            waiting.entry(ping.ethernet.clone()).or_default().push(ping);
        }
        let mut round = lock(&self.shared.pings);
        *round = Pings { waiting, open: echoes.iter().copied().collect() };
        self.shared.round.fetch_add(1, Ordering::Release);
        let waited =
            self.shared.answered.wait_timeout_while(round, timeout, |round| !round.open.is_empty());
        let mut round = waited.unwrap_or_else(PoisonError::into_inner).0;
        let answered = echoes.iter().map(|echo| !round.open.contains(echo)).collect();
        *round = Pings::default();
        self.shared.round.fetch_add(1, Ordering::Release);
        answered
    }
}

/// The devices of a port.
struct Devices {
    list: Vec<Device>,
    protocols: Protocols,
    shared: Arc<Shared>,
}

impl speaking::Hosts for Devices {
    fn filter(&self) -> &'static str {
        "arp or icmp or icmp6 or udp port 67 or udp port 68 or udp port 546 or udp port 547 or \
         tcp port 179 or ether proto 0x88cc or ether proto 0x8809 or ip proto 89 or ip6 proto 89 \
         or ether[14:4] = 0xfefe0383"
    }

    fn handle(&mut self, now: Nanos, frame: (&[u8], bool), out: &mut Vec<Vec<u8>>) {
        for device in &mut self.list {
            device.receive(frame.0, out);
        }
        for host in &self.protocols.dhcp {
            host.receive(now, frame, out);
        }
        self.protocols.bgp.iter().for_each(|speaker| speaker.receive(now, frame));
        self.protocols.routers.iter().for_each(|router| router.receive(now, frame));
        self.protocols.lldp.iter().for_each(|agent| agent.receive(now, frame.0));
        self.protocols.lacp.iter().for_each(|member| member.receive(now, frame.0));
    }

    fn turn(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        for device in &mut self.list {
            device.take_pings(&self.shared);
            device.ask(now, out);
            device.ping(now, out);
            device.report(&self.shared);
        }
        for host in &self.protocols.dhcp {
            host.turn(now, out);
        }
        self.protocols.bgp.iter().for_each(|speaker| speaker.turn(now, out));
        self.protocols.routers.iter().for_each(|router| router.turn(now, out));
        self.protocols.lldp.iter().for_each(|agent| agent.turn(now, out));
        self.protocols.lacp.iter().for_each(|member| member.turn(now, out));
    }
}

/// An interface of a device, independent of port and clock.
struct Device {
    info: DeviceInfo,
    host: Host,
    neighbors: NeighborCache,
    /// Gateways that have not answered yet.
    open: Vec<IpAddr>,
    updates: Vec<(IpAddr, Option<MacAddr>)>,
    round: u32,
    pings: Vec<Ping>,
    /// Next hops of pings. Resolved again in each round: cabling may have changed.
    hops: NeighborCache,
    echoed: Vec<Echo>,
}

impl Device {
    fn of(info: &DeviceInfo) -> Self {
        let gateways =
            info.ipv4.iter().filter(|v4| v4.gateway_mac.is_none()).map(|v4| IpAddr::V4(v4.gateway));
        let gateways = gateways
            .chain(
                info.ipv6
                    .iter()
                    .filter(|v6| v6.gateway_mac.is_none())
                    .map(|v6| IpAddr::V6(v6.gateway)),
            )
            .collect();
        Self { open: gateways, ..Self::alone(info.clone()) }
    }

    fn alone(info: DeviceInfo) -> Self {
        let tag = |vlan: &VlanInfo| (vlan.tpid, (u16::from(vlan.priority) << 13) | vlan.id);
        let host = Host {
            mac: info.mac,
            tags: info.vlans.iter().map(tag).collect(),
            ipv4: info.ipv4.iter().map(|v4| v4.address).collect(),
            ipv6: info.ipv6.iter().map(|v6| v6.address).collect(),
        };
        Self {
            info,
            host,
            neighbors: NeighborCache::default(),
            open: Vec::new(),
            updates: Vec::new(),
            round: 0,
            pings: Vec::new(),
            hops: NeighborCache::default(),
            echoed: Vec::new(),
        }
    }

    /// Processes a received frame; appends answers to `out`.
    fn receive(&mut self, frame: &[u8], out: &mut Vec<Vec<u8>>) {
        let received = self.host.handle(frame);
        if let Some((address, mac)) = received.neighbor {
            self.learn(address, mac);
        }
        out.extend(received.reply);
        self.echoed.extend(received.echo.filter(|_| !self.pings.is_empty()));
    }

    /// Appends requests that are due to `out`.
    fn ask(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        for gateway in self.open.clone() {
            if let Answer::Mac(mac) = self.neighbors.find(now, gateway) {
                self.updates.push((gateway, Some(mac)));
                self.open.retain(|open| *open != gateway);
            }
        }
        while let Some(question) = self.neighbors.question(now) {
            let address = match question {
                Ok(IpAddr::V4(target)) => {
                    let sender =
                        self.info.ipv4.iter().find(|v4| v4.gateway == target).map(|v4| v4.address);
                    Ok((target.into(), sender.unwrap_or(std::net::Ipv4Addr::UNSPECIFIED).into()))
                }
                Ok(IpAddr::V6(target)) => {
                    let source =
                        self.info.ipv6.iter().find(|v6| v6.gateway == target).map(|v6| v6.address);
                    let Some(source) = source else { continue };
                    Ok((target.into(), source.into()))
                }
                Err(silent) => Err(silent),
            };
            match address {
                Ok((target, source)) => out.extend(self.question(target, source)),
                Err(silent) => self.updates.push((silent, None)),
            }
        }
    }

    /// An ARP or neighbor discovery request for `target`, sent by `source`.
    fn question(&self, target: IpAddr, source: IpAddr) -> Option<Vec<u8>> {
        match (target, source) {
            (IpAddr::V4(target), IpAddr::V4(sender)) => {
                let arp = Arp {
                    request: true,
                    sender_mac: self.host.mac,
                    sender,
                    target_mac: MacAddr([0; 6]),
                    target,
                };
                Some(self.host.frame(MacAddr([0xff; 6]), ARP, &arp.octets()))
            }
            (IpAddr::V6(target), IpAddr::V6(source)) => {
                let message = NeighborMessage::solicit(source, self.host.mac, target);
                Some(self.host.frame(solicited_node(target).1, IPV6, &message.octets()))
            }
            _ => None,
        }
    }

    /// Fetches the pings of a new round; drops those of a finished one.
    fn take_pings(&mut self, shared: &Shared) {
        if shared.round.load(Ordering::Acquire) == self.round {
            return;
        }
        let mut pings = lock(&shared.pings);
        self.round = shared.round.load(Ordering::Acquire);
        self.pings = pings.waiting.remove(&self.info.ethernet).unwrap_or_default();
        self.hops = NeighborCache::default();
        self.echoed.clear();
    }

    /// Appends echo requests that are due, and requests for their next hops, to `out`.
    fn ping(&mut self, now: Nanos, out: &mut Vec<Vec<u8>>) {
        for mut ping in mem::take(&mut self.pings) {
            let mac = ping.hop_mac.or_else(|| match self.hops.find(now, ping.hop) {
                Answer::Mac(mac) => Some(mac),
                Answer::Wait | Answer::Silent => None,
            });
            if let Some(mac) = mac.filter(|_| ping.due <= now) {
                let kind = if ping.hop.is_ipv6() { IPV6 } else { IPV4 };
                out.push(self.host.frame(mac, kind, &ping.echo.request()));
                ping.due = now + ECHO_EVERY;
            }
            self.pings.push(ping);
        }
        while let Some(question) = self.hops.question(now) {
            let sender = |hop: &IpAddr| {
                self.pings.iter().find(|ping| ping.hop == *hop).map(|ping| ping.echo.source)
            };
            let frame = question.ok().and_then(|hop| self.question(hop, sender(&hop)?));
            out.extend(frame);
        }
    }

    fn learn(&mut self, address: IpAddr, mac: MacAddr) {
        // Ignore unsolicited answers, which any host could send.
        if self.open.contains(&address) {
            self.neighbors.learn(address, mac);
        }
        if self.pings.iter().any(|ping| ping.hop == address) {
            self.hops.learn(address, mac);
        }
    }

    fn report(&mut self, shared: &Shared) {
        if !self.echoed.is_empty() {
            let mut pings = lock(&shared.pings);
            let known = self.echoed.drain(..).filter(|echo| pings.open.remove(echo)).count();
            if known > 0 {
                shared.answered.notify_all();
            }
            self.pings.retain(|ping| pings.open.contains(&ping.echo));
        }
        if self.updates.is_empty() {
            return;
        }
        let mut known = lock(&shared.known);
        for (address, mac) in self.updates.drain(..) {
            let key = (self.info.ethernet.clone(), address);
            match mac {
                Some(mac) => drop(known.resolved.insert(key, mac)),
                None => known.silent.push(key),
            }
        }
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use crate::{IpInfo, VlanInfo};

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn device(vlans: Vec<VlanInfo>) -> Device {
        Device::of(&DeviceInfo {
            device: "d1".into(),
            ethernet: "e1".into(),
            port: "p1".into(),
            mac: MAC,
            mtu: 1500,
            vlans,
            ipv4: vec![IpInfo {
                name: "i1".into(),
                address: [10, 0, 0, 1].into(),
                gateway: [10, 0, 0, 9].into(),
                prefix: 24,
                gateway_mac: None,
                is_loopback: false,
            }],
            ipv6: vec![IpInfo {
                name: "i2".into(),
                address: "fd00::1".parse().unwrap(),
                gateway: "fd00::9".parse().unwrap(),
                prefix: 64,
                gateway_mac: None,
                is_loopback: false,
            }],
            dhcpv4: None,
            dhcpv6: None,
        })
    }

    #[test]
    fn devices_of_gateways_and_pings_start_no_dhcp_and_keep_its_counters() {
        let config = crate::Config::from_json(&serde_json::json!({
            // DHCP cannot start on a port without an interface.
            "ports": [{ "name": "p1", "location": "loop:otg-devices" }],
            "devices": [{ "name": "d1", "ethernets": [{
                "name": "e1", "connection": { "choice": "port_name", "port_name": "p1" },
                "dhcpv4_interfaces": [{ "name": "c1" }],
            }] }],
        }));
        let translated = crate::translate(&config.unwrap()).unwrap();
        let why = Hosts::start(&translated).err().expect("no interface").to_string();
        assert!(why.contains("cannot start DHCP of \"c1\""), "{why}");
        let mut hosts = Hosts::default();
        hosts.start_devices(&translated).expect("devices of other ports start nothing");
        assert!(hosts.dhcp("c1").is_none());
        let (now, mut out) = (squall_port::monotonic(), Vec::new());
        hosts.protocols = Protocols::of(&translated, now);
        hosts.protocols.dhcp[0].turn(now + Nanos(1), &mut out);
        hosts.stop();
        hosts.start_devices(&translated).expect("devices of other ports start nothing");
        assert_eq!(hosts.dhcp("c1").expect("kept").statistics().sent["discover"], 1);
        assert!(!hosts.protocols_are_on);
    }

    fn question() -> Vec<u8> {
        let arp = Arp {
            request: true,
            sender_mac: PEER,
            sender: [10, 0, 0, 9].into(),
            target_mac: MacAddr([0; 6]),
            target: [10, 0, 0, 1].into(),
        };
        let mut peer = device(Vec::new());
        peer.host.mac = PEER;
        peer.host.frame(MacAddr([0xff; 6]), ARP, &arp.octets())
    }

    #[test]
    fn a_device_answers_for_its_address_and_for_no_other() {
        let (mut device, mut out) = (device(Vec::new()), Vec::new());
        device.receive(&question(), &mut out);
        let reply = out.pop().expect("an answer");
        assert_eq!((&reply[..6], &reply[6..12], reply.len()), (&PEER.0[..], &MAC.0[..], 60));
        let arp = Arp::parse(&reply[14..]).expect("ARP");
        assert_eq!((arp.request, arp.sender_mac, arp.sender.octets()), (false, MAC, [10, 0, 0, 1]));
        let mut other = question();
        other[14 + 27] = 2;
        device.receive(&other, &mut out);
        for cut in 0..question().len() {
            device.receive(&question()[..cut.min(41)], &mut out);
        }
        assert!(out.is_empty(), "nobody was asked for: {out:?}");
    }

    #[test]
    fn gateways_are_asked_for_until_they_answer() {
        let (mut device, mut out) = (device(Vec::new()), Vec::new());
        device.ask(Nanos(0), &mut out);
        assert_eq!(out.len(), 2, "an ARP request and a solicitation");
        out.clear();
        // The request itself identifies its sender.
        device.receive(&question(), &mut out);
        let message = NeighborMessage {
            solicitation: false,
            source: "fd00::9".parse().unwrap(),
            destination: "fd00::1".parse().unwrap(),
            target: "fd00::9".parse().unwrap(),
            mac: Some(PEER),
            flags: NeighborMessage::SOLICITED | NeighborMessage::OVERRIDE,
        };
        let mut peer = self::device(Vec::new());
        peer.host.mac = PEER;
        device.receive(&peer.host.frame(MAC, IPV6, &message.octets()), &mut out);
        device.ask(Nanos(1), &mut out);
        let shared = Shared::default();
        device.report(&shared);
        let known = lock(&shared.known);
        assert_eq!(known.resolved.len(), 2);
        assert_eq!(known.resolved[&("e1".to_owned(), IpAddr::from([10, 0, 0, 9]))], PEER);
        assert!(device.open.is_empty());
    }

    /// Exchanges `frames` between the two devices until neither has an answer.
    fn converse(a: &mut Device, b: &mut Device, mut frames: Vec<Vec<u8>>) {
        while !frames.is_empty() {
            let mut answers = Vec::new();
            for frame in &frames {
                let receiver = if frame[6..12] == a.host.mac.0 { &mut *b } else { &mut *a };
                receiver.receive(frame, &mut answers);
            }
            frames = answers;
        }
    }

    #[test]
    fn a_ping_asks_who_has_the_address_and_is_answered_once() {
        let mut translated = crate::translate(&crate::Config::default()).expect("empty");
        translated.devices = vec![device(Vec::new()).info];
        let of = |target: &str, source: &str| {
            let request = PingRequest {
                source: source.into(),
                target: target.parse().unwrap(),
                path: "here".into(),
            };
            Ping::of(&request, &translated)
        };
        assert_eq!(
            of("10.0.0.9", "i2").unwrap_err().path,
            "here.src_name",
            "an IPv6 address pings no IPv4 address"
        );
        assert_eq!(
            of("10.0.9.9", "i1").unwrap().hop,
            IpAddr::from([10, 0, 0, 9]),
            "by the gateway"
        );
        assert_eq!(of("10.0.0.7", "i1").unwrap().hop, IpAddr::from([10, 0, 0, 7]));
        assert_eq!(of("fe80::7", "i2").unwrap().hop, "fe80::7".parse::<IpAddr>().unwrap());

        let (mut local, shared) = (Device::alone(device(Vec::new()).info), Shared::default());
        let mut peer = Device::alone(device(Vec::new()).info);
        peer.host.mac = PEER;
        (peer.host.ipv4[0], peer.host.ipv6[0]) = ([10, 0, 0, 9].into(), "fd00::9".parse().unwrap());
        let mut pings = vec![
            of("10.0.0.9", "i1").unwrap(),
            of("fd00::9", "i2").unwrap(),
            of("10.0.0.7", "i1").unwrap(),
        ];
        for (ping, seq) in pings.iter_mut().zip(0..) {
            ping.echo.seq = seq;
        }
        let silent = pings[2].echo;
        let round = Pings {
            open: pings.iter().map(|ping| ping.echo).collect(),
            waiting: HashMap::from([("e1".to_owned(), pings)]),
        };
        *lock(&shared.pings) = round;
        shared.round.store(1, Ordering::Relaxed);
        local.take_pings(&shared);
        for now in [0, 1, 50_000_000] {
            let mut frames = Vec::new();
            local.ping(Nanos(now), &mut frames);
            // Three requests, two echo requests, then nothing until the next ones are due.
            assert_eq!(frames.len(), [3, 2, 0][now.min(2) as usize]);
            converse(&mut local, &mut peer, frames);
            local.report(&shared);
        }
        assert_eq!(lock(&shared.pings).open, HashSet::from([silent]));
        // The next round starts without the addresses found in this round.
        *lock(&shared.pings) = Pings::default();
        shared.round.store(2, Ordering::Relaxed);
        local.take_pings(&shared);
        assert!(local.pings.is_empty());
    }

    #[test]
    fn a_tagged_device_hears_and_speaks_in_its_vlan_alone() {
        let vlan = VlanInfo { tpid: 0x8100, priority: 3, id: 7 };
        let (mut device, mut out) = (device(vec![vlan]), Vec::new());
        device.receive(&question(), &mut out);
        assert!(out.is_empty());
        let mut tagged = question();
        tagged.splice(12..12, [0x81, 0, 0, 7]);
        device.receive(&tagged, &mut out);
        assert_eq!(&out[0][12..18], &[0x81, 0, 0x60, 7, 8, 6]);
    }
}
