//! Converts packets to frames and back: MAC addresses, tags, tunnels, and a host's ARP, neighbor
//! discovery and echo replies.

mod interfaces;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use interfaces::{Headers, Interfaces};
use squall_bpf::owner;
use squall_host::{
    Answer, Arp, BoundHost, HostTable, NeighborCache, NeighborMessage, PPP_IPV4, PPP_IPV6,
    PPPOE_SESSION, PppoePacket, echo_reply, is_of_a_flow, solicited_node,
};
use squall_tcp::{Tuple, tuple4, tuple6};
use squall_units::{Cut, Division, MacAddr, Nanos, be16, be32};
use squall_wire::{
    Ipv6Octets,
    checksum::{fold, sum},
    tcp_flags::SYN,
};

use crate::{FrameOutput, GTPU_PORT, Interface, LinkStatistics, Network, NextHop, Tuples, Wrap};

/// Frames that belong to no flow and get no reply, because another program communicates with their
/// senders; and clients that begin no flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// MAC and IP addresses of senders.
    pub macs: BTreeSet<MacAddr>,
    pub ips: BTreeSet<IpAddr>,
    pub services: Services,
    pub clients: BTreeSet<IpAddr>,
}

/// Protocols, identified by their well-known ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Services {
    /// TCP 179 at either end.
    pub bgp: bool,
    /// UDP 67 or 547 at either end.
    pub dhcp: bool,
    /// TCP or UDP 0xff00 to 0xffff at either end, the ports of emulated hosts.
    pub high: bool,
    /// UDP 5353 at both ends.
    pub mdns: bool,
}

impl Ignored {
    /// Whether no frame is ignored.
    fn is_empty(&self) -> bool {
        self.macs.is_empty() && self.ips.is_empty() && self.services == Services::default()
    }
}

impl Services {
    /// Whether an IP packet belongs to one of the protocols.
    fn has(self, packet: &[u8]) -> bool {
        let Some(((from, source), (_, destination))) = ends(packet) else { return false };
        let protocol = if from.is_ipv4() { Some(packet[9]) } else { upper(packet).map(|of| of.0) };
        let either = |chosen: fn(u16) -> bool| chosen(source) || chosen(destination);
        let (tcp, udp) = (protocol == Some(TCP), protocol == Some(UDP));
        self.bgp && tcp && either(|port| port == 179)
            || self.dhcp && udp && either(|port| port == 67 || port == 547)
            || self.high && either(|port| port >= 0xff00)
            || self.mdns && udp && (source, destination) == (5353, 5353)
    }
}

/// One side's link layer.
#[derive(Debug)]
pub(crate) struct Link {
    network: Network,
    /// `None`: no sender is ignored.
    ignored: Option<Arc<Ignored>>,
    /// The side's own addresses.
    pools: Vec<OwnPool>,
    /// Present if clients or servers are hosts of groups.
    hosts: Option<Box<Hosts>>,
    part: Division,
    addresses: u64,
    /// Most of these addresses, if they are in one pool.
    own: OwnRanges,
    /// The side's MAC address as a number, if frames have only Ethernet in front of IP and all
    /// addresses share it. This is the usual case, whose short path avoids the search for tags and
    /// tunnels in both directions.
    plain: Option<u64>,
    prefixes: Prefixes,
    /// Addresses with headers of their own.
    interfaces: Interfaces,
    /// Headers with the tags only, without the tunnel.
    outer: Prefixes,
    /// The local and remote ends of a tunnel.
    ends: Option<(IpAddr, IpAddr)>,
    neighbors: NeighborCache,
    /// MAC addresses of a fixed next hop, or of a known gateway or tunnel end: for IPv4 and for
    /// IPv6 packets.
    hops: [Option<MacAddr>; 2],
    /// Direct-mapped caches of next hops for each IP version, indexed by a hash of the address, to
    /// avoid a search of the neighbor table for each packet. MAC addresses are numbers; 0: no entry.
    recent4: Box<[(u32, u64); RECENT_HOPS]>,
    recent6: Box<[(Ipv6Octets, u64); RECENT_HOPS]>,
    answers: VecDeque<Vec<u8>>,
    unused: Vec<Vec<u8>>,
    /// Buffer for packets that cannot be sent yet. The stack writes them here, because no room
    /// would mean a full output, which stops all flows.
    scratch: Vec<u8>,
    pub statistics: LinkStatistics,
}

/// Clients and servers that are hosts of groups. Their sources answer ARP and echo requests; the
/// link takes only what belongs to flows.
#[derive(Debug, Default)]
struct Hosts {
    groups: Vec<OwnGroup>,
    /// Addresses that flows have: the group, and the number of the host in it.
    known: HashMap<IpAddr, (usize, u32)>,
    /// Addresses in `known` that their hosts have lost, until their flows are over.
    lost: HashSet<IpAddr>,
    /// Losses in all tables at the last check.
    losses: u64,
}

/// A group of hosts.
#[derive(Debug)]
struct OwnGroup {
    table: Arc<HostTable>,
    /// If they are servers: the addresses that represent them in their pool, by number.
    stand_ins: Option<Tuples>,
}

/// A host as one end of a flow: its group's number on the link, and itself.
pub(crate) type HostEnd = (usize, BoundHost);

/// Addresses of hosts that are servers, with those that represent them in their pool, on which
/// programs listen.
pub(crate) type ServedHosts = HashMap<IpAddr, IpAddr>;

/// The sender of a packet.
enum Sender {
    Pool,
    Host(HostEnd),
    /// A host that has lost the address.
    Lost,
    /// An access concentrator that has no session with the receiver.
    NoSession,
}

impl Hosts {
    fn sender(&self, local: IpAddr) -> Sender {
        let Some((group, number)) = self.known.get(&local) else { return Sender::Pool };
        match self.groups[*group].table.get(*number) {
            Some(host) if host.address == local => Sender::Host((*group, host)),
            _ => Sender::Lost,
        }
    }

    /// As [`Hosts::sender`], with the next hop of packets to `remote`.
    fn sender_to(&self, local: IpAddr, remote: IpAddr) -> Sender {
        match self.sender(local) {
            Sender::Host((group, host)) => {
                let host = self.groups[group].table.path(host, remote);
                host.map_or(Sender::NoSession, |host| Sender::Host((group, host)))
            }
            other => other,
        }
    }

    /// The host, bound or not, that has a MAC address: its group's number and its own.
    fn of_mac(&self, mac: &[u8]) -> Option<(usize, u32)> {
        let mac = MacAddr(*mac.first_chunk()?);
        let mut groups = self.groups.iter().enumerate();
        groups.find_map(|(group, of)| Some((group, of.table.host_of_mac(mac)?)))
    }
}

#[derive(Debug)]
struct OwnPool {
    /// The index of its first address among all pools.
    first: u64,
    tuples: Tuples,
    /// Whether only addresses of this part are local; another part of the run replies for the
    /// others.
    divided: bool,
}

/// An address range of each IP version, without an address if its size is 0. Most sides have one
/// pool with one range, so most frames need no search of the pools.
#[derive(Debug, Default)]
struct OwnRanges {
    /// The first address and the size.
    v4: (u32, u32),
    /// The upper half of all addresses, the first lower half, and the size.
    v6: (u64, u64, u64),
}

impl OwnRanges {
    /// Adds the addresses of a pool if one comparison finds them, and the version has none.
    fn add(&mut self, tuples: &Tuples) {
        let Some((first, last)) = tuples.only_range() else { return };
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) if self.v4.1 == 0 => {
                let (first, last) = (u32::from(first), u32::from(last));
                self.v4 = (first, (last - first).saturating_add(1));
            }
            (IpAddr::V6(first), IpAddr::V6(last)) if self.v6.2 == 0 => {
                let [first, last] = [first, last].map(|a| (a.to_bits() >> 64, a.to_bits() as u64));
                if first.0 == last.0 {
                    let size = (last.1 - first.1).saturating_add(1);
                    self.v6 = ((first.0 as u64).to_be(), first.1, size);
                }
            }
            _ => {}
        }
    }

    /// Differences wrap for addresses before the first, so that one comparison excludes both sides.
    #[inline(always)]
    fn has4(&self, address: u32) -> bool {
        address.wrapping_sub(self.v4.0) < self.v4.1
    }

    #[inline(always)]
    fn has6(&self, Ipv6Octets { upper, lower }: Ipv6Octets) -> bool {
        upper == self.v6.0 && u64::from_be(lower).wrapping_sub(self.v6.1) < self.v6.2
    }
}

/// Maximum number of queued replies. Further ones are dropped, because a flood of requests would
/// otherwise take all memory.
const MAX_ANSWERS: usize = 4096;
/// Longest echo request that gets a reply: a jumbo frame.
const MAX_ECHO: usize = 9000;

pub(crate) const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const VLAN: u16 = 0x8100;
const IPV6: u16 = 0x86dd;
const MPLS: u16 = 0x8847;
const SERVICE: u16 = 0x88a8;
const BRIDGED: u16 = 0x6558;
const GRE: u8 = 47;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const VXLAN_PORT: u16 = 4789;
const BROADCAST: MacAddr = MacAddr([255; 6]);

/// Direct-mapped, 10 bits of a hash. In larger pools addresses replace each other, which costs a
/// search of the neighbor table.
const RECENT_HOPS: usize = 1024;

/// The index of an address in the next hop cache: Fibonacci hashing, because it spreads the
/// consecutive addresses of a pool.
#[inline(always)]
fn place4(address: u32) -> usize {
    (address.wrapping_mul(0x9e37_79b9) >> 22) as usize
}

/// [`place4`] for IPv6: the low 32 bits of the addresses of a pool differ.
#[inline(always)]
fn place6(address: Ipv6Octets) -> usize {
    place4(address.low())
}

/// Why a frame was refused.
enum Lost {
    Foreign,
    Malformed,
}

/// The owner of a received frame, if several workers share a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameOwner {
    /// This worker, or any worker that received it.
    Here,
    /// The worker that has the flow.
    Other(u32),
    /// A neighbor's MAC address or a request for one: all workers must learn it, and one replies.
    /// Each worker has its own neighbor table, so that a lookup needs no lock.
    All,
}

/// The contents of a frame.
struct Inside<'f> {
    kind: u16,
    payload: &'f [u8],
    /// Whether it is addressed to the tunnel's end, not to a flow.
    outer: bool,
    /// Its session of PPPoE; 0: none.
    session: u16,
}

impl Link {
    /// Makes a link without addresses (see [`Link::add_pool`]); `part`: the part of the run, if
    /// there are several.
    pub fn new(network: &Network, part: Division) -> Self {
        let fixed = match network.next_hop {
            NextHop::Mac(mac) => Some(mac),
            NextHop::Gateway { .. } | NextHop::OnLink => None,
        };
        Self {
            pools: Vec::new(),
            hosts: None,
            part,
            addresses: 0,
            own: OwnRanges::default(),
            plain: (network.wraps.is_empty() && network.interfaces.is_empty() && !network.cluster)
                .then(|| number(network.mac)),
            prefixes: Prefixes::new(network.mac, &network.wraps),
            interfaces: Interfaces::new(network),
            outer: Prefixes::new(network.mac, &tags_of(&network.wraps)),
            ends: network.wraps.last().and_then(Wrap::ends),
            neighbors: NeighborCache::default(),
            hops: [fixed; 2],
            recent4: Box::new([(0, 0); RECENT_HOPS]),
            recent6: Box::new([(Ipv6Octets::default(), 0); RECENT_HOPS]),
            answers: VecDeque::new(),
            unused: Vec::new(),
            // Room for the longest IP packet, 65,535 octets (RFC 791).
            scratch: vec![0; 1 << 16],
            statistics: LinkStatistics::default(),
            ignored: None,
            network: network.clone(),
        }
    }

    /// Adds addresses of the side; `divided`: whether each part has a share of them.
    pub fn add_pool(&mut self, tuples: Tuples, divided: bool) {
        let first = self.addresses;
        self.addresses += tuples.addresses();
        self.own.add(&tuples);
        self.pools.push(OwnPool { first, tuples, divided });
    }

    /// Adds the hosts of a group as clients or, with the addresses that represent them in their
    /// pool, as servers. Returns the number of the group on this link.
    pub fn add_hosts(&mut self, table: &Arc<HostTable>, stand_ins: Option<&Tuples>) -> usize {
        // The short path is for frames with one MAC address.
        self.plain = None;
        let Hosts { groups, .. } = &mut **self.hosts.get_or_insert_default();
        let known = groups.iter().position(|known| Arc::ptr_eq(&known.table, table));
        let number = known.unwrap_or_else(|| {
            groups.push(OwnGroup { table: table.clone(), stand_ins: None });
            groups.len() - 1
        });
        if let Some(stand_ins) = stand_ins {
            groups[number].stand_ins = Some(stand_ins.clone());
        }
        number
    }

    /// From now on, packets from the host's address are its own.
    pub fn add_host(&mut self, (group, host): HostEnd) {
        let Some(hosts) = &mut self.hosts else { return };
        let address = host.address;
        hosts.lost.remove(&address);
        hosts.known.insert(address, (group, host.number));
    }

    /// Adds the address of a host to which a packet came, if it is a server.
    fn add_server(&mut self, (group, host): HostEnd, served: &mut ServedHosts) {
        let hosts = self.hosts.as_ref();
        let Some(stand_ins) = hosts.and_then(|hosts| hosts.groups[group].stand_ins.as_ref()) else {
            return;
        };
        let stand_in = stand_ins.address(host.number.into());
        if served.insert(host.address, stand_in) != Some(stand_in) {
            self.add_host((group, host));
        }
    }

    /// The host that flows from this address have, if it still has the address.
    pub fn host_of(&self, local: IpAddr) -> Option<HostEnd> {
        match self.hosts.as_ref()?.sender(local) {
            Sender::Host(host) => Some(host),
            Sender::Pool | Sender::Lost | Sender::NoSession => None,
        }
    }

    /// Appends the addresses that hosts have lost after the last call.
    pub fn take_lost(&mut self, into: &mut HashSet<IpAddr>) {
        let Some(hosts) = &mut self.hosts else { return };
        let losses = hosts.groups.iter().map(|group| group.table.losses()).sum();
        if std::mem::replace(&mut hosts.losses, losses) == losses {
            return;
        }
        let lost = hosts.known.keys().filter(|local| {
            !hosts.lost.contains(*local) && matches!(hosts.sender(**local), Sender::Lost)
        });
        let lost: Vec<IpAddr> = lost.copied().collect();
        hosts.lost.extend(&lost);
        into.extend(lost);
    }

    /// No flow has the lost addresses any more. A server may give another address with each lease,
    /// so a table of all former addresses would grow without end.
    pub fn forget_lost(&mut self) {
        let Some(hosts) = &mut self.hosts else { return };
        let Hosts { known, lost, .. } = &mut **hosts;
        // Each turn comes here, and `drain` takes time for as many addresses as the set ever had.
        if lost.is_empty() {
            return;
        }
        for address in std::mem::take(lost) {
            known.remove(&address);
        }
    }

    /// Number of addresses of hosts that flows have.
    #[cfg(test)]
    pub fn known_hosts(&self) -> usize {
        self.hosts.as_ref().map_or(0, |hosts| hosts.known.len())
    }

    /// Replaces the interfaces. The link must have had some, so that their headers have room in its
    /// frames and no frame takes the path of links without tags.
    pub fn set_interfaces(&mut self, interfaces: &[Interface]) {
        debug_assert!(self.plain.is_none(), "the link has interfaces from its start");
        self.network.interfaces = interfaces.to_vec();
        self.interfaces = Interfaces::new(&self.network);
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// The length of the longest IP packet, octets.
    pub fn mtu(&self) -> u16 {
        self.network.mtu
    }

    /// Whether the side replies for the address.
    fn is_home(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| {
            pool.tuples.index_of(address).is_some()
                && (!pool.divided || self.part.has_address(address))
        })
    }

    /// Replaces the ignored senders.
    pub fn ignore(&mut self, senders: &Arc<Ignored>) {
        self.ignored = (!senders.is_empty()).then(|| senders.clone());
    }

    #[inline]
    fn ignores(&self, frame: &[u8]) -> bool {
        self.ignored.as_ref().is_some_and(|senders| self.is_of(frame, senders))
    }

    #[inline(never)]
    fn is_of(&self, frame: &[u8], senders: &Ignored) -> bool {
        let mac = frame.get(6..12).and_then(|mac| mac.first_chunk()).map(|mac| MacAddr(*mac));
        if mac.is_some_and(|mac| senders.macs.contains(&mac)) {
            return true;
        }
        let Ok(inside) = self.unwrap(frame) else { return false };
        let packet = inside.payload;
        let source = match inside.kind {
            IPV4 if packet.len() >= 20 => Some(v4(&packet[12..])),
            IPV6 if packet.len() >= 40 => Some(v6(&packet[8..])),
            ARP => Arp::parse(packet).map(|arp| arp.sender.into()),
            _ => None,
        };
        source.is_some_and(|source| senders.ips.contains(&source)) || senders.services.has(packet)
    }

    /// Whether code that knows only Ethernet, IP and TCP, such as a port's GSO, can segment the
    /// frames.
    pub fn is_plain(&self) -> bool {
        self.network.is_plain()
    }

    /// The index of an address among the side's addresses.
    #[inline]
    fn index_of(&self, address: IpAddr) -> Option<u64> {
        // A loop, because `find_map` is a function of its own, as long as the rest of the look-up.
        for pool in &self.pools {
            if let Some(index) = pool.tuples.index_of(address) {
                return Some(pool.first + index);
            }
        }
        None
    }

    /// The MAC address of a local address, for packets to `remote`.
    #[inline]
    fn mac_of(&self, local: IpAddr, remote: IpAddr) -> MacAddr {
        self.mac_at(self.interfaces.find(local, remote), local)
    }

    /// The MAC address of a local address at an interface, if it has one.
    #[inline]
    fn mac_at(&self, interface: Option<&Headers>, local: IpAddr) -> MacAddr {
        if let Some(mac) = interface.and_then(|headers| headers.mac) {
            return mac;
        }
        if !self.network.cluster {
            return self.network.mac;
        }
        self.index_of(local).map_or(self.network.mac, |index| plus(self.network.mac, index))
    }

    /// MAC address and headers of packets between two addresses; `outer`: from a tunnel's end.
    fn headers(&self, (local, remote): (IpAddr, IpAddr), outer: bool) -> (MacAddr, &Prefixes) {
        if outer {
            let end = self.interfaces.of_end(local);
            return match end {
                Some(headers) => (headers.mac.unwrap_or(self.network.mac), &headers.outer),
                None => (self.network.mac, &self.outer),
            };
        }
        let interface = self.interfaces.find(local, remote);
        let prefixes = interface.map_or(&self.prefixes, |headers| &headers.prefixes);
        (self.mac_at(interface, local), prefixes)
    }

    #[inline]
    fn has_mac(&self, mac: &[u8]) -> bool {
        // Accepts group addresses, too, because ARP requests and neighbor solicitations are sent to
        // them.
        if mac == self.network.mac.0 || mac[0] & 1 == 1 {
            return true;
        }
        if self.interfaces.has_mac(mac) {
            return true;
        }
        let index = |mac: &[u8; 6]| number(MacAddr(*mac)).wrapping_sub(number(self.network.mac));
        if self.network.cluster && mac.first_chunk().is_some_and(|mac| index(mac) < self.addresses)
        {
            return true;
        }
        self.hosts.as_ref().is_some_and(|hosts| hosts.of_mac(mac).is_some())
    }

    /// The host of the flow to which a frame belongs that has the MAC address of a host. The inner
    /// `None`: it belongs to no flow. The outer one: it has another destination.
    fn end_of(&self, frame: &[u8], inside: &Inside<'_>) -> Option<Option<HostEnd>> {
        let hosts = self.hosts.as_ref()?;
        let (group, number) = hosts.of_mac(&frame[..6])?;
        let packet = inside.payload;
        let (from, to) = match inside.kind {
            IPV4 if packet.len() >= 20 => (v4(&packet[12..]), v4(&packet[16..])),
            IPV6 if packet.len() >= 40 => (v6(&packet[8..]), v6(&packet[24..])),
            _ => return Some(None),
        };
        let table = &hosts.groups[group].table;
        let own = |host: &BoundHost| {
            let path = table.path(*host, from).filter(|path| path.session == inside.session);
            host.address == to && path.is_some() && is_of_a_flow(packet)
        };
        Some(table.get(number).filter(own).map(|host| (group, host)))
    }

    /// Whether the link would accept the frame, for a flow or for itself.
    pub fn claims(&self, frame: &[u8]) -> bool {
        if self.ignores(frame) {
            return false;
        }
        let inside = match self.unwrap(frame) {
            Ok(inside) => inside,
            Err(Lost::Foreign) => return false,
            Err(Lost::Malformed) => return true,
        };
        if let Some(host) = self.end_of(frame, &inside) {
            return host.is_some();
        }
        let packet = inside.payload;
        match inside.kind {
            IPV4 if packet.len() >= 20 => self.is_local(v4(&packet[16..]), inside.outer),
            IPV6 if packet.len() >= 40 => {
                let is_neighbor = packet[6] == ICMPV6 && NeighborMessage::parse(packet).is_some();
                is_neighbor || self.is_local(v6(&packet[24..]), inside.outer)
            }
            IPV4 | IPV6 => true,
            ARP => Arp::parse(packet)
                .is_none_or(|arp| !arp.request || self.is_local(arp.target.into(), inside.outer)),
            _ => false,
        }
    }

    /// The owner of the frame, for `worker` of `workers`. The port's steering affects only speed: a
    /// frame that reached the wrong worker is passed on (ADR 0040).
    #[inline]
    pub fn owner(&self, frame: &[u8], (worker, workers): (u32, u32)) -> FrameOwner {
        if workers == 1 {
            return FrameOwner::Here;
        }
        // Uses the sums of addresses and ports instead of the whole tuple: both directions have the
        // same sums, and a classic BPF program can compute them (see `squall_bpf::owner`).
        let owner = match self.plain.and_then(|_| ends_of_usual(frame)) {
            Some((to, ..)) if self.index_of(to).is_none() => return FrameOwner::Here,
            Some((_, addresses, ports)) => owner::from_sums(addresses, ports, workers),
            None => match self.owner_of_any(frame, workers) {
                Ok(owner) => owner,
                Err(other) => return other,
            },
        };
        if owner == worker { FrameOwner::Here } else { FrameOwner::Other(owner) }
    }

    /// The destination and the payload of a UDP datagram to an address of the link.
    pub fn datagram<'f>(&self, frame: &'f [u8]) -> Option<(End, &'f [u8])> {
        let inside = self.unwrap(frame).ok().filter(|inside| !inside.outer)?;
        let packet = inside.payload;
        let (protocol, header) = match inside.kind {
            IPV4 if packet.len() >= 20 => (packet[9], usize::from(packet[0] & 15) * 4),
            IPV6 if packet.len() >= 40 => upper(packet)?,
            _ => return None,
        };
        let (_, (to, port)) = ends(packet).filter(|_| protocol == UDP)?;
        self.index_of(to)?;
        Some(((to, port), packet.get(header + 8..)?))
    }

    #[inline(never)]
    fn owner_of_any(&self, frame: &[u8], workers: u32) -> Result<u32, FrameOwner> {
        let Ok(inside) = self.unwrap(frame) else { return Err(FrameOwner::Here) };
        let packet = inside.payload;
        match inside.kind {
            ARP => return Err(FrameOwner::All),
            IPV6 if packet.get(6) == Some(&ICMPV6) && NeighborMessage::parse(packet).is_some() => {
                return Err(FrameOwner::All);
            }
            IPV4 | IPV6 if !inside.outer => {}
            _ => return Err(FrameOwner::Here),
        }
        let to = match inside.kind {
            IPV4 if packet.len() >= 20 => v4(&packet[16..]),
            IPV6 if packet.len() >= 40 => v6(&packet[24..]),
            _ => return Err(FrameOwner::Here),
        };
        let ends = ends(packet).or_else(|| ends(quoted(packet)?));
        let ends = ends.filter(|_| self.index_of(to).is_some());
        ends.map(|(one, other)| owner::of_ends(one, other, workers)).ok_or(FrameOwner::Here)
    }

    /// Learns from a neighbor's frame, and sends no reply, because the worker that received the
    /// frame sends it.
    pub fn learn_neighbor(&mut self, frame: &[u8]) {
        if self.ignores(frame) {
            return;
        }
        let (answers, before) = (self.answers.len(), self.statistics);
        // Several workers share no port that has hosts.
        self.receive_any(frame, &mut ServedHosts::new());
        while self.answers.len() > answers {
            self.unused.extend(self.answers.pop_back());
        }
        // Restored, because the worker that received the frame has counted it.
        self.statistics = LinkStatistics { resolved: self.statistics.resolved, ..before };
    }

    /// Refused frames so far.
    #[inline]
    pub fn refused(&self) -> u64 {
        self.statistics.not_ours + self.statistics.ignored
    }

    /// Accepts a frame. Returns the IP packet in it if that belongs to a flow. Adds the host to
    /// which it came to `served`, if that is a server.
    #[inline]
    pub fn receive<'f>(&mut self, frame: &'f [u8], served: &mut ServedHosts) -> Option<&'f [u8]> {
        self.statistics.frames_received += 1;
        if self.ignores(frame) {
            self.statistics.ignored += 1;
            return None;
        }
        match self.is_usual(frame) {
            true => Some(&frame[ETHERNET..]),
            false => self.receive_any(frame, served),
        }
    }

    /// Whether it is plain Ethernet with IP without options or extension headers, and TCP, to a
    /// local address. The first SYN of a sender takes the long path, because that learns the
    /// sender's MAC address. The first 48 octets include the TCP flags of IPv4.
    #[inline(always)]
    fn is_usual(&self, frame: &[u8]) -> bool {
        let (Some(mac), Some(head)) = (self.plain, frame.first_chunk::<48>()) else { return false };
        let first = u64::from_be_bytes(*head.first_chunk().expect("48 octets"));
        if first >> 16 != mac {
            return false;
        }
        // EtherType, and the first octet of the packet.
        match be32(head, 12) >> 8 {
            0x0008_0045 => self.is_usual4(head),
            kind if kind & !15 == 0x0086_dd60 => self.is_usual6(head, frame),
            _ => false,
        }
    }

    /// [`Link::is_usual`] for IPv4.
    #[inline(always)]
    fn is_usual4(&self, head: &[u8; 48]) -> bool {
        let destination = be32(head, 30);
        head[23] == TCP
            && (head[47] & SYN == 0 || self.is_known(self.cached_hop4(be32(head, 26)), head))
            && (self.own.has4(destination)
                || self.index_of(IpAddr::V4(destination.into())).is_some())
    }

    /// [`Link::is_usual`] for IPv6. The first 68 octets include the TCP flags.
    #[inline(always)]
    fn is_usual6(&self, start: &[u8; 48], frame: &[u8]) -> bool {
        let Some(head) = frame.first_chunk::<68>() else { return false };
        let address = |at: usize| Ipv6Octets::read(head[at..].first_chunk().expect("an address"));
        head[20] == TCP
            && (head[67] & SYN == 0 || self.is_known(self.cached_hop6(address(22)), start))
            && (self.own.has6(address(38)) || self.index_of(v6(&head[38..])).is_some())
    }

    /// Whether the sender of a plain frame, whose cached next hop is given, has nothing to learn from:
    /// see [`Link::learn`].
    #[inline(always)]
    fn is_known(&self, hop: Option<u64>, head: &[u8; 48]) -> bool {
        self.network.next_hop != NextHop::OnLink || hop == Some(source(head))
    }

    #[inline(never)]
    fn receive_any<'f>(&mut self, frame: &'f [u8], served: &mut ServedHosts) -> Option<&'f [u8]> {
        let inside = match self.unwrap(frame) {
            Ok(inside) => inside,
            Err(Lost::Foreign) => {
                self.statistics.not_ours += 1;
                return None;
            }
            Err(Lost::Malformed) => {
                self.statistics.malformed += 1;
                return None;
            }
        };
        let packet = inside.payload;
        match self.end_of(frame, &inside) {
            Some(Some(host)) => {
                self.add_server(host, served);
                return Some(packet);
            }
            Some(None) => {
                self.statistics.not_ours += 1;
                return None;
            }
            None => {}
        }
        let (source, destination, protocol) = match inside.kind {
            IPV4 if packet.len() >= 20 => (v4(&packet[12..]), v4(&packet[16..]), packet[9]),
            IPV6 if packet.len() >= 40 => (v6(&packet[8..]), v6(&packet[24..]), packet[6]),
            ARP => {
                self.arp(frame, packet, inside.outer);
                return None;
            }
            IPV4 | IPV6 => {
                self.statistics.malformed += 1;
                return None;
            }
            _ => {
                self.statistics.not_ours += 1;
                return None;
            }
        };
        if (protocol == ICMPV6 || protocol == ICMP)
            && self.host(frame, packet, &inside, (source, destination))
        {
            return None;
        }
        if inside.outer || self.index_of(destination).is_none() {
            self.statistics.not_ours += 1;
            return None;
        }
        if self.network.next_hop == NextHop::OnLink
            && self.ends.is_none()
            && begins(packet, protocol)
        {
            self.learn(
                source,
                MacAddr([frame[6], frame[7], frame[8], frame[9], frame[10], frame[11]]),
            );
        }
        Some(packet)
    }

    /// As [`Link::resolve`], for a packet of `flow`. Hosts have next hops of their own.
    #[inline]
    pub fn resolve_for(&mut self, now: Nanos, flow: &Tuple) -> Answer {
        match self.sender(flow.local, flow.remote) {
            Sender::Pool => self.resolve_from(now, flow.local, flow.remote),
            Sender::Host((_, host)) => Answer::Mac(host.next_hop),
            Sender::Lost | Sender::NoSession => Answer::Silent,
        }
    }

    #[inline]
    fn sender(&self, local: IpAddr, remote: IpAddr) -> Sender {
        self.hosts.as_ref().map_or(Sender::Pool, |hosts| hosts.sender_to(local, remote))
    }

    /// As [`Link::resolve`], for packets from `local`, whose interface may have its own next hop.
    #[inline]
    pub fn resolve_from(&mut self, now: Nanos, local: IpAddr, remote: IpAddr) -> Answer {
        let interface = self.interfaces.find(local, remote);
        match interface.and_then(|headers| headers.next_hop) {
            Some(mac) => Answer::Mac(mac),
            None => self.resolve(now, remote),
        }
    }

    /// Returns the MAC address for packets to `remote`, or requests it.
    #[inline]
    fn resolve(&mut self, now: Nanos, remote: IpAddr) -> Answer {
        if let Some(mac) = self.hops[usize::from(remote.is_ipv6())] {
            return Answer::Mac(mac);
        }
        match self.cached_hop(remote) {
            Some(mac) => Answer::Mac(of_number(mac)),
            None => self.look_up(now, remote),
        }
    }

    /// Notes the next hop of packets to an address.
    fn remember(&mut self, address: IpAddr, mac: MacAddr) {
        let mac = number(mac);
        match address {
            IpAddr::V4(address) => {
                let address = address.into();
                self.recent4[place4(address)] = (address, mac);
            }
            IpAddr::V6(address) => {
                let address = address.into();
                self.recent6[place6(address)] = (address, mac);
            }
        }
    }

    fn look_up(&mut self, now: Nanos, remote: IpAddr) -> Answer {
        let Some(hop) = self.hop(remote) else { return Answer::Silent };
        let answer = self.neighbors.find(now, hop);
        if let Answer::Mac(mac) = answer {
            self.remember(remote, mac);
        }
        answer
    }

    /// The next hop of packets to `remote`.
    fn hop(&self, remote: IpAddr) -> Option<IpAddr> {
        let remote = self.ends.map_or(remote, |(_, end)| end);
        match (self.network.next_hop, remote) {
            (NextHop::OnLink, _) => Some(remote),
            (NextHop::Gateway { v4, .. }, IpAddr::V4(_)) => v4.map(IpAddr::V4),
            (NextHop::Gateway { v6, .. }, IpAddr::V6(_)) => v6.map(IpAddr::V6),
            (NextHop::Mac(_), _) => None,
        }
    }

    /// Requests the gateways of the address families that the pools have, before a packet needs one.
    /// A server's first answer would be dropped while its gateway is being resolved, and UDP sends
    /// nothing again.
    pub fn ask_gateways(&mut self, now: Nanos) {
        let NextHop::Gateway { v4, v6 } = self.network.next_hop else { return };
        for hop in [v4.map(IpAddr::V4), v6.map(IpAddr::V6)].into_iter().flatten() {
            if self.asker(hop.is_ipv4()).is_some_and(|from| from.is_ipv4() == hop.is_ipv4()) {
                self.neighbors.find(now, hop);
            }
        }
    }

    /// Stores a neighbor's MAC address. A server learns its clients' addresses from their first
    /// packets: a million clients cost no ARP requests.
    fn learn(&mut self, address: IpAddr, mac: MacAddr) {
        // Avoids an access to the neighbor table for each further flow of a client.
        if self.cached_hop(address) == Some(number(mac)) {
            return;
        }
        if self.ends.is_none() && self.network.next_hop == NextHop::OnLink {
            self.remember(address, mac);
        }
        if self.neighbors.learn(address, mac) {
            self.statistics.resolved += 1;
        }
        // Sets both entries for a tunnel, because packets of both families enter it, whatever the
        // family of its ends.
        match (self.network.next_hop, self.ends, address) {
            (NextHop::OnLink, Some((_, end)), _) if end == address => self.hops = [Some(mac); 2],
            (NextHop::Gateway { v4, .. }, Some((IpAddr::V4(_), _)), IpAddr::V4(a))
                if v4 == Some(a) =>
            {
                self.hops = [Some(mac); 2];
            }
            (NextHop::Gateway { v6, .. }, Some((IpAddr::V6(_), _)), IpAddr::V6(a))
                if v6 == Some(a) =>
            {
                self.hops = [Some(mac); 2];
            }
            (NextHop::Gateway { v4, .. }, None, IpAddr::V4(a)) if v4 == Some(a) => {
                self.hops[0] = Some(mac)
            }
            (NextHop::Gateway { v6, .. }, None, IpAddr::V6(a)) if v6 == Some(a) => {
                self.hops[1] = Some(mac)
            }
            _ => {}
        }
    }

    /// When [`Link::advance`] next has something to do.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        self.neighbors.next_due()
    }

    /// Queues due requests for next hops, and counts those that got no reply.
    pub fn advance(&mut self, now: Nanos) {
        while let Some(question) = self.neighbors.question(now) {
            match question {
                Ok(IpAddr::V4(target)) => {
                    let Some(IpAddr::V4(sender)) = self.asker(true) else { continue };
                    let ends = (sender.into(), target.into());
                    let request = Arp {
                        request: true,
                        sender_mac: self.mac_of(sender.into(), target.into()),
                        sender,
                        target_mac: MacAddr::default(),
                        target,
                    };
                    let outer = self.ends.is_some();
                    if self.answer(outer, ARP, BROADCAST, ends, &request.octets()) {
                        self.statistics.arp_requests_sent += 1;
                    }
                }
                Ok(IpAddr::V6(target)) => {
                    let Some(IpAddr::V6(source)) = self.asker(false) else { continue };
                    let ends = (source.into(), target.into());
                    let mac = self.mac_of(source.into(), target.into());
                    let question = NeighborMessage::solicit(source, mac, target);
                    let outer = self.ends.is_some();
                    let to = solicited_node(target).1;
                    if self.answer(outer, IPV6, to, ends, &question.octets()) {
                        self.statistics.nd_solicitations_sent += 1;
                    }
                }
                Err(_) => self.statistics.resolution_failed += 1,
            }
        }
    }

    /// The local address used to request next hops.
    fn asker(&self, v4: bool) -> Option<IpAddr> {
        match self.ends {
            Some((local, _)) => Some(local),
            None => {
                let pools = self.pools.iter().map(|pool| &pool.tuples);
                let pools = pools.filter(|pool| pool.is_ipv4() == v4);
                // Adjacent addresses belong to the parts in turn, so that the first few suffice
                // instead of the whole pool.
                let first = |pool: &Tuples| 0..pool.addresses().min(self.part.of().into());
                pools
                    .flat_map(|pool| first(pool).map(|index| pool.address(index)))
                    .find(|&address| self.is_home(address))
            }
        }
    }

    fn is_local(&self, address: IpAddr, outer: bool) -> bool {
        match self.ends {
            Some((local, _)) if outer => {
                address == local || self.interfaces.of_end(address).is_some()
            }
            None if outer => self.interfaces.of_end(address).is_some(),
            _ => self.is_home(address),
        }
    }

    fn arp(&mut self, frame: &[u8], packet: &[u8], outer: bool) {
        let Some(arp) = Arp::parse(packet) else {
            self.statistics.malformed += 1;
            return;
        };
        if !arp.sender.is_unspecified()
            && (outer || self.ends.is_none())
            && self.is_asked_or_router(arp.sender)
        {
            self.learn(arp.sender.into(), arp.sender_mac);
        }
        if arp.request && self.is_local(arp.target.into(), outer) {
            let ends = (arp.target.into(), arp.sender.into());
            let reply = Arp {
                request: false,
                sender_mac: self.headers(ends, outer).0,
                sender: arp.target,
                target_mac: arp.sender_mac,
                target: arp.sender,
            };
            let to = MacAddr([frame[6], frame[7], frame[8], frame[9], frame[10], frame[11]]);
            if self.answer(outer, ARP, to, ends, &reply.octets()) {
                self.statistics.arp_requests_answered += 1;
            }
        } else if arp.request {
            self.statistics.not_ours += 1;
        }
    }

    /// Requests from other hosts' addresses are ignored, unless each peer is a neighbor: on a
    /// shared segment they would fill the table.
    fn is_asked_or_router(&self, sender: Ipv4Addr) -> bool {
        match self.network.next_hop {
            NextHop::OnLink => true,
            NextHop::Gateway { v4, .. } => v4 == Some(sender),
            NextHop::Mac(_) => false,
        }
    }

    /// Handles neighbor discovery and echo requests. Returns whether the packet was one.
    fn host(
        &mut self,
        frame: &[u8],
        packet: &[u8],
        inside: &Inside<'_>,
        (source, destination): (IpAddr, IpAddr),
    ) -> bool {
        let to = MacAddr([frame[6], frame[7], frame[8], frame[9], frame[10], frame[11]]);
        if let Some(message) = NeighborMessage::parse(packet).filter(|_| inside.kind == IPV6) {
            let learns = inside.outer || self.ends.is_none();
            let (speaker, mac) = match message.solicitation {
                true => (message.source, message.mac),
                false => (message.target, message.mac),
            };
            if let Some(mac) = mac.filter(|_| learns && !speaker.is_unspecified()) {
                self.learn(speaker.into(), mac);
            }
            if message.solicitation && self.is_local(message.target.into(), inside.outer) {
                let ends = (message.target.into(), message.source.into());
                let (reply, unicast) = message.advertise(self.headers(ends, inside.outer).0);
                // Sent to all nodes (RFC 4861 §7.2.4) if the solicitation has no source address.
                let to = if unicast { to } else { MacAddr([0x33, 0x33, 0, 0, 0, 1]) };
                if self.answer(inside.outer, IPV6, to, ends, &reply.octets()) {
                    self.statistics.nd_solicitations_answered += 1;
                }
            }
            return true;
        }
        if packet.len() > MAX_ECHO || !self.is_local(destination, inside.outer) {
            return false;
        }
        let mut reply = self.unused.pop().unwrap_or_default();
        reply.clear();
        let is_echo = echo_reply(packet, &mut reply);
        if is_echo && self.answer(inside.outer, inside.kind, to, (destination, source), &reply) {
            self.statistics.echoes_answered += 1;
        }
        self.unused.push(reply);
        is_echo
    }

    /// Queues a packet from the host itself, with its local and its remote address; false: the queue
    /// is full.
    fn answer(
        &mut self,
        outer: bool,
        kind: u16,
        to: MacAddr,
        ends: (IpAddr, IpAddr),
        packet: &[u8],
    ) -> bool {
        if self.answers.len() >= MAX_ANSWERS {
            self.statistics.answers_dropped += 1;
            return false;
        }
        let mut frame = self.unused.pop().unwrap_or_default();
        let (from, prefixes) = self.headers(ends, outer);
        let prefix = prefixes.of(kind);
        frame.clear();
        frame.resize(prefix.octets.len() + packet.len(), 0);
        prefix.write(&mut frame, packet.len(), (to, from), 0);
        frame[prefix.octets.len()..].copy_from_slice(packet);
        self.answers.push_back(frame);
        true
    }

    /// Sends queued replies.
    pub fn transmit(&mut self, out: &mut impl FrameOutput) {
        while let Some(frame) = self.answers.front() {
            let Some(slot) = out.frame(frame.len(), Cut::WHOLE) else { return };
            slot.copy_from_slice(frame);
            self.statistics.frames_sent += 1;
            self.unused.extend(self.answers.pop_front());
        }
    }

    pub fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Room for a packet of `len` octets of `flow`, after the link's headers; `None`: the output is
    /// full. A packet with an unresolved next hop goes to a scratch buffer.
    #[inline(always)]
    pub fn room<'o>(
        &'o mut self,
        now: Nanos,
        out: &'o mut impl FrameOutput,
        flow: &Tuple,
        len: usize,
        cut: Cut,
    ) -> Option<&'o mut [u8]> {
        if let Some(mac) = self.plain
            && let Some(to) = self.known(flow.remote)
            && ETHERNET + len <= out.longest()
        {
            let kind = if flow.remote.is_ipv4() { IPV4 } else { IPV6 };
            let sent = &mut self.statistics.frames_sent;
            return plain_room(out, sent, [to, mac], kind, len, cut);
        }
        self.room_any(now, out, flow, len, cut)
    }

    /// As [`Link::room`], for one segment over IPv4. Addresses and ports: local, remote.
    #[inline(always)]
    pub fn room4<'o>(
        &'o mut self,
        now: Nanos,
        out: &'o mut impl FrameOutput,
        addresses: [u32; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&'o mut [u8]> {
        let [_, remote] = addresses;
        if let Some(mac) = self.plain
            && let Some(to) = self.known4(remote)
            && ETHERNET + len <= out.longest()
        {
            let sent = &mut self.statistics.frames_sent;
            return plain_room(out, sent, [to, mac], IPV4, len, Cut::WHOLE);
        }
        self.room_any(now, out, &tuple4(addresses, ports), len, Cut::WHOLE)
    }

    /// As [`Link::room`], for one segment over IPv6. Addresses and ports: local, remote.
    #[inline(always)]
    pub fn room6<'o>(
        &'o mut self,
        now: Nanos,
        out: &'o mut impl FrameOutput,
        addresses: [Ipv6Octets; 2],
        ports: [u16; 2],
        len: usize,
    ) -> Option<&'o mut [u8]> {
        let [_, remote] = addresses;
        if let Some(mac) = self.plain
            && let Some(to) = self.known6(remote)
            && ETHERNET + len <= out.longest()
        {
            let sent = &mut self.statistics.frames_sent;
            return plain_room(out, sent, [to, mac], IPV6, len, Cut::WHOLE);
        }
        self.room_any(now, out, &tuple6(addresses, ports), len, Cut::WHOLE)
    }

    /// The next hop's MAC address as a number, if it is fixed or in the cache.
    #[inline(always)]
    fn known(&self, remote: IpAddr) -> Option<u64> {
        match remote {
            IpAddr::V4(remote) => self.known4(remote.into()),
            IpAddr::V6(remote) => self.known6(remote.into()),
        }
    }

    #[inline(always)]
    fn known4(&self, remote: u32) -> Option<u64> {
        self.hops[0].map(number).or_else(|| self.cached_hop4(remote))
    }

    #[inline(always)]
    fn known6(&self, remote: Ipv6Octets) -> Option<u64> {
        self.hops[1].map(number).or_else(|| self.cached_hop6(remote))
    }

    /// The next hop's MAC address as a number, if it is in the cache.
    #[inline]
    fn cached_hop(&self, remote: IpAddr) -> Option<u64> {
        match remote {
            IpAddr::V4(remote) => self.cached_hop4(remote.into()),
            IpAddr::V6(remote) => self.cached_hop6(remote.into()),
        }
    }

    #[inline(always)]
    fn cached_hop4(&self, remote: u32) -> Option<u64> {
        let (address, mac) = self.recent4[place4(remote)];
        (address == remote && mac != 0).then_some(mac)
    }

    #[inline(always)]
    fn cached_hop6(&self, remote: Ipv6Octets) -> Option<u64> {
        let (address, mac) = self.recent6[place6(remote)];
        // Lower halves differ more often.
        (address.lower == remote.lower && address.upper == remote.upper && mac != 0).then_some(mac)
    }

    #[inline(never)]
    fn room_any<'o>(
        &'o mut self,
        now: Nanos,
        out: &'o mut impl FrameOutput,
        flow: &Tuple,
        len: usize,
        cut: Cut,
    ) -> Option<&'o mut [u8]> {
        let (local, remote) = (flow.local, flow.remote);
        let (to, host, session) = match self.sender(local, remote) {
            Sender::Host((_, host)) => (host.next_hop, Some(host.mac), host.session),
            Sender::Lost => {
                self.statistics.address_lost += 1;
                return Some(&mut self.scratch[..len]);
            }
            Sender::NoSession => {
                self.statistics.unresolved += 1;
                return Some(&mut self.scratch[..len]);
            }
            Sender::Pool => {
                let Answer::Mac(to) = self.resolve_from(now, local, remote) else {
                    self.statistics.unresolved += 1;
                    return Some(&mut self.scratch[..len]);
                };
                (to, None, 0)
            }
        };
        let (own, prefixes) = self.headers((local, remote), false);
        let from = host.unwrap_or(own);
        let prefix = if local.is_ipv4() { &prefixes.v4 } else { &prefixes.v6 };
        let before = prefix.octets.len();
        if before + len > out.longest() {
            self.statistics.too_long += 1;
            return Some(&mut self.scratch[..len]);
        }
        let frame = out.frame(before + len, shifted(cut, before))?;
        prefix.write(frame, len, (to, from), session);
        if let Some(Places::Tunnel(TunnelPlaces { udp: Some(udp), inner_port: true, .. })) =
            prefix.places
        {
            frame[udp..udp + 2].copy_from_slice(&flow.local_port.to_be_bytes());
        }
        self.statistics.frames_sent += 1;
        Some(&mut frame[before..])
    }

    #[inline]
    fn unwrap<'f>(&self, frame: &'f [u8]) -> Result<Inside<'f>, Lost> {
        if frame.len() < 14 {
            return Err(Lost::Malformed);
        }
        if !self.has_mac(&frame[..6]) {
            return Err(Lost::Foreign);
        }
        let kind = be16(frame, 12);
        match self.wraps_of(kind, &frame[14..]) {
            [] => Ok(Inside { kind, payload: &frame[14..], outer: false, session: 0 }),
            wraps => self.unwrap_layers(kind, &frame[14..], wraps),
        }
    }

    /// The layers that a frame of the interface must have.
    #[inline]
    fn wraps_of(&self, kind: u16, rest: &[u8]) -> &[Wrap] {
        if self.interfaces.is_empty() {
            return &self.network.wraps;
        }
        let interface = self.interfaces.of_frame(kind, rest);
        interface.map_or(&self.network.wraps, |headers| &headers.wraps)
    }

    fn unwrap_layers<'f>(
        &self,
        mut kind: u16,
        mut rest: &'f [u8],
        wraps: &[Wrap],
    ) -> Result<Inside<'f>, Lost> {
        for (i, wrap) in wraps.iter().enumerate() {
            match *wrap {
                Wrap::Vlan { id, .. } => {
                    if kind != VLAN && kind != SERVICE {
                        return Err(Lost::Foreign);
                    }
                    let (tag, after) = rest.split_first_chunk::<4>().ok_or(Lost::Malformed)?;
                    if be16(tag, 0) & 0xfff != id {
                        return Err(Lost::Foreign);
                    }
                    (kind, rest) = (be16(tag, 2), after);
                }
                Wrap::Mpls { label, .. } => {
                    if kind != MPLS {
                        return Err(Lost::Foreign);
                    }
                    let (entry, after) = rest.split_first_chunk::<4>().ok_or(Lost::Malformed)?;
                    let entry = u32::from_be_bytes(*entry);
                    let is_last = !matches!(wraps.get(i + 1), Some(Wrap::Mpls { .. }));
                    // RFC 3032 §2.1: label, class, bottom-of-stack flag, TTL.
                    if entry >> 12 != label || (entry >> 8 & 1 == 1) != is_last {
                        return Err(Lost::Foreign);
                    }
                    rest = after;
                    if is_last {
                        kind = of_version(rest)?;
                    }
                }
                Wrap::Pppoe => return unwrap_session(kind, rest),
                _ if kind == ARP => {
                    return Ok(Inside { kind, payload: rest, outer: true, session: 0 });
                }
                tunnel => return unwrap_tunnel(kind, rest, tunnel),
            }
        }
        Ok(Inside { kind, payload: rest, outer: false, session: 0 })
    }
}

/// The IP packet in a session of PPPoE.
fn unwrap_session(kind: u16, packet: &[u8]) -> Result<Inside<'_>, Lost> {
    if kind != PPPOE_SESSION {
        return Err(Lost::Foreign);
    }
    let packet = PppoePacket::parse(packet).map_err(|_| Lost::Malformed)?;
    let (protocol, payload) = packet.payload.split_first_chunk::<2>().ok_or(Lost::Malformed)?;
    let kind = match (packet.code, u16::from_be_bytes(*protocol)) {
        (0, PPP_IPV4) => IPV4,
        (0, PPP_IPV6) => IPV6,
        _ => return Err(Lost::Foreign),
    };
    Ok(Inside { kind, payload, outer: false, session: packet.session })
}

fn unwrap_tunnel(kind: u16, packet: &[u8], tunnel: Wrap) -> Result<Inside<'_>, Lost> {
    let (protocol, source, destination, body) = match kind {
        IPV4 => {
            let first = packet.first().ok_or(Lost::Malformed)?;
            let header = usize::from(first & 15) * 4;
            if packet.len() < header || header < 20 || fold(sum(&packet[..header])) != 0xffff {
                return Err(Lost::Malformed);
            }
            let total = usize::from(be16(packet, 2));
            let body = packet.get(header..total).ok_or(Lost::Malformed)?;
            (packet[9], v4(&packet[12..]), v4(&packet[16..]), body)
        }
        IPV6 => {
            let (header, rest) = packet.split_first_chunk::<40>().ok_or(Lost::Malformed)?;
            let len = usize::from(be16(header, 4));
            (
                header[6],
                v6(&header[8..]),
                v6(&header[24..]),
                rest.get(..len).ok_or(Lost::Malformed)?,
            )
        }
        _ => return Err(Lost::Foreign),
    };
    // Addressed to the tunnel's end itself: echo requests, neighbor discovery.
    if protocol == ICMP || protocol == ICMPV6 {
        return Ok(Inside { kind, payload: packet, outer: true, session: 0 });
    }
    let (local, remote) = tunnel.ends().unwrap_or((destination, source));
    if (local, remote) != (destination, source) {
        return Err(Lost::Foreign);
    }
    let inside = |kind, payload| Ok(Inside { kind, payload, outer: false, session: 0 });
    let datagram = |port: u16| -> Result<&[u8], Lost> {
        let (header, data) = body.split_first_chunk::<8>().ok_or(Lost::Malformed)?;
        match be16(header, 2) == port {
            true => Ok(data),
            false => Err(Lost::Foreign),
        }
    };
    match tunnel {
        Wrap::Gre { key, .. } if protocol == GRE => {
            let (header, mut rest) = body.split_first_chunk::<4>().ok_or(Lost::Malformed)?;
            let mut skip = |present: bool| -> Result<Option<[u8; 4]>, Lost> {
                if !present {
                    return Ok(None);
                }
                let (field, after) = rest.split_first_chunk::<4>().ok_or(Lost::Malformed)?;
                rest = after;
                Ok(Some(*field))
            };
            // Optional fields in the order of RFC 2890 §2: checksum, key, sequence number. The
            // checksum is not verified, because the inner packet has its own.
            skip(header[0] & 0x80 != 0)?;
            let received = skip(header[0] & 0x20 != 0)?.map(u32::from_be_bytes);
            skip(header[0] & 0x10 != 0)?;
            if header[1] & 7 != 0 || received != key {
                return Err(Lost::Foreign);
            }
            inside(be16(header, 2), rest)
        }
        Wrap::Vxlan { vni, .. } if protocol == UDP => {
            let (header, inner) =
                datagram(VXLAN_PORT)?.split_first_chunk::<8>().ok_or(Lost::Malformed)?;
            let received = u32::from_be_bytes([0, header[4], header[5], header[6]]);
            // The I flag marks a valid VNI (RFC 7348 §5).
            if header[0] & 8 == 0 || received != vni {
                return Err(Lost::Foreign);
            }
            let (ethernet, payload) = inner.split_first_chunk::<14>().ok_or(Lost::Malformed)?;
            inside(be16(ethernet, 12), payload)
        }
        Wrap::GtpU { local_teid, .. } if protocol == UDP => {
            match unwrap_gtp(datagram(GTPU_PORT)?)? {
                (teid, rest) if local_teid.is_none_or(|local| local == teid) => {
                    inside(of_version(rest)?, rest)
                }
                _ => Err(Lost::Foreign),
            }
        }
        _ => Err(Lost::Foreign),
    }
}

/// The endpoint identifier and the packet of a G-PDU (3GPP TS 29.281 §5.1).
fn unwrap_gtp(message: &[u8]) -> Result<(u32, &[u8]), Lost> {
    let (header, mut rest) = message.split_first_chunk::<8>().ok_or(Lost::Malformed)?;
    // Version 1, protocol type GTP, message type G-PDU. The three optional fields are present if
    // any of their flags is set.
    if header[0] & 0xf0 != 0x30 || header[1] != 255 {
        return Err(Lost::Foreign);
    }
    if header[0] & 7 != 0 {
        let (optional, after) = rest.split_first_chunk::<4>().ok_or(Lost::Malformed)?;
        rest = after;
        let mut next = if header[0] & 4 != 0 { optional[3] } else { 0 };
        while next != 0 {
            let words = usize::from(*rest.first().ok_or(Lost::Malformed)?) * 4;
            let extension = rest.get(..words).filter(|e| !e.is_empty()).ok_or(Lost::Malformed)?;
            next = extension[words - 1];
            rest = &rest[words..];
        }
    }
    Ok((be32(header, 4), rest))
}

/// The tags in front of a tunnel.
fn tags_of(wraps: &[Wrap]) -> Vec<Wrap> {
    wraps.iter().copied().take_while(|wrap| matches!(wrap, Wrap::Vlan { .. })).collect()
}

/// Converts the [`Cut`] of a packet to that of its frame, in which the packet starts after `before`
/// octets.
#[inline(always)]
fn shifted(cut: Cut, before: usize) -> Cut {
    match cut.is_whole() {
        true => cut,
        false => Cut {
            transport: cut.transport + before as u8,
            payload: cut.payload + before as u8,
            ..cut
        },
    }
}

#[inline(always)]
fn number(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

#[inline]
fn of_number(mac: u64) -> MacAddr {
    let [_, _, rest @ ..] = mac.to_be_bytes();
    MacAddr(rest)
}

/// The source address of a frame, as a number.
#[inline(always)]
fn source(head: &[u8; 48]) -> u64 {
    u64::from_be_bytes(*head[6..].first_chunk().expect("a header of Ethernet")) >> 16
}

/// The EtherType of an IP packet.
fn of_version(packet: &[u8]) -> Result<u16, Lost> {
    match packet.first().map(|first| first >> 4) {
        Some(4) => Ok(IPV4),
        Some(6) => Ok(IPV6),
        Some(_) => Err(Lost::Foreign),
        None => Err(Lost::Malformed),
    }
}

/// Whether the packet may be the first of a flow: a SYN, or not TCP.
#[inline]
fn begins(packet: &[u8], protocol: u8) -> bool {
    let header = if packet[0] >> 4 == 4 { usize::from(packet[0] & 15) * 4 } else { 40 };
    protocol != TCP || packet.get(header + 13).is_some_and(|flags| flags & SYN != 0)
}

#[inline]
fn v4(octets: &[u8]) -> IpAddr {
    IpAddr::V4([octets[0], octets[1], octets[2], octets[3]].into())
}

#[inline]
fn v6(octets: &[u8]) -> IpAddr {
    let mut address = [0; 16];
    address.copy_from_slice(&octets[..16]);
    IpAddr::V6(address.into())
}

fn plus(base: MacAddr, index: u64) -> MacAddr {
    of_number(number(base).wrapping_add(index))
}

/// Number of octets in front of an IP packet.
pub(crate) fn overhead(network: &Network) -> u32 {
    let of = |wraps: &[Wrap]| Prefix::new(network.mac, wraps, IPV4).octets.len();
    network.all_wraps().map(of).max().unwrap_or(0) as u32
}

/// A frame with room for a packet of `len` octets after its only header, Ethernet, which is written.
#[inline(always)]
fn plain_room<'o>(
    out: &'o mut impl FrameOutput,
    sent: &mut u64,
    [to, from]: [u64; 2],
    kind: u16,
    len: usize,
    cut: Cut,
) -> Option<&'o mut [u8]> {
    let frame = out.frame(ETHERNET + len, shifted(cut, ETHERNET))?;
    let (head, packet) =
        frame.split_first_chunk_mut::<ETHERNET>().expect("as long as was asked for");
    *head = ethernet(to, from, kind);
    *sent += 1;
    Some(packet)
}

/// A header of Ethernet, with its addresses as numbers.
#[inline(always)]
fn ethernet(to: u64, from: u64, kind: u16) -> [u8; ETHERNET] {
    let [a, b, c, d, e, f, g, h] = (to << 16 | from >> 32).to_be_bytes();
    let [i, j, k, l, m, n] = {
        let [i, j, k, l, m, n, ..] = (from << 32 | u64::from(kind) << 16).to_be_bytes();
        [i, j, k, l, m, n]
    };
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n]
}

/// Headers in front of packets, by EtherType.
#[derive(Debug)]
struct Prefixes {
    v4: Prefix,
    v6: Prefix,
    arp: Prefix,
}

impl Prefixes {
    fn new(mac: MacAddr, wraps: &[Wrap]) -> Self {
        let of = |kind| Prefix::new(mac, wraps, kind);
        Self { v4: of(IPV4), v6: of(IPV6), arp: of(ARP) }
    }

    fn of(&self, kind: u16) -> &Prefix {
        match kind {
            IPV4 => &self.v4,
            IPV6 => &self.v6,
            _ => &self.arp,
        }
    }
}

/// The headers in front of a packet, complete except for addresses and lengths.
#[derive(Debug, Default)]
struct Prefix {
    octets: Vec<u8>,
    /// Offsets of fields that differ from packet to packet.
    places: Option<Places>,
    /// Offset of the Ethernet source address in the flow's own (inner) frame.
    source: usize,
}

#[derive(Clone, Copy, Debug)]
enum Places {
    /// The number of a session of PPPoE, which a length follows (RFC 2516 section 4).
    Session(usize),
    Tunnel(TunnelPlaces),
}

#[derive(Clone, Copy, Debug)]
struct TunnelPlaces {
    ip: usize,
    v4: bool,
    udp: Option<usize>,
    /// The offset of GTP's length, which excludes its first eight octets.
    gtp: Option<usize>,
    /// Whether the UDP source port is that of the packet inside.
    inner_port: bool,
}

impl Prefix {
    fn new(mac: MacAddr, wraps: &[Wrap], kind: u16) -> Self {
        let mut out = vec![0; 6];
        out.extend(mac.0);
        let mut prefix = Self { source: 6, ..Self::default() };
        // Whether an EtherType follows: not after a label, nor in a tunnel.
        let mut typed = true;
        for (i, wrap) in wraps.iter().enumerate() {
            match *wrap {
                Wrap::Vlan { id, priority, service } => {
                    out.extend(if service { SERVICE } else { VLAN }.to_be_bytes());
                    out.extend((u16::from(priority) << 13 | id).to_be_bytes());
                }
                Wrap::Mpls { label, class, ttl } => {
                    if typed {
                        out.extend(MPLS.to_be_bytes());
                    }
                    typed = false;
                    let last = !matches!(wraps.get(i + 1), Some(Wrap::Mpls { .. }));
                    let entry =
                        label << 12 | u32::from(class) << 9 | u32::from(last) << 8 | u32::from(ttl);
                    out.extend(entry.to_be_bytes());
                }
                Wrap::Pppoe => {
                    out.extend(PPPOE_SESSION.to_be_bytes());
                    // Version 1, type 1, code 0.
                    out.extend([0x11, 0]);
                    prefix.places = Some(Places::Session(out.len()));
                    out.extend([0; 4]);
                    out.extend(if kind == IPV6 { PPP_IPV6 } else { PPP_IPV4 }.to_be_bytes());
                    typed = false;
                }
                tunnel => {
                    prefix.add_tunnel(&mut out, tunnel, typed, kind, mac);
                    typed = false;
                }
            }
        }
        if typed {
            out.extend(kind.to_be_bytes());
        }
        prefix.octets = out;
        prefix
    }

    fn add_tunnel(
        &mut self,
        out: &mut Vec<u8>,
        tunnel: Wrap,
        typed: bool,
        kind: u16,
        mac: MacAddr,
    ) {
        let Some((local, remote)) = tunnel.ends() else { return };
        if typed {
            out.extend(if local.is_ipv4() { IPV4 } else { IPV6 }.to_be_bytes());
        }
        let protocol = if matches!(tunnel, Wrap::Gre { .. }) { GRE } else { UDP };
        let ip = out.len();
        match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                // Sets "don't fragment": otherwise the other end would have to reassemble the outer
                // packets.
                out.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
                out.extend(local.octets());
                out.extend(remote.octets());
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                out.extend([0x60, 0, 0, 0, 0, 0, protocol, 64]);
                out.extend(local.octets());
                out.extend(remote.octets());
            }
            // [`Network::check`] has excluded this.
            _ => return,
        }
        let udp = (protocol == UDP).then_some(out.len());
        let (mut gtp, mut inner_port) = (None, false);
        // UDP checksums are zero, which RFC 7348 §5 and RFC 6935 permit for tunnels.
        let ports = |source: u16, port: u16| {
            [source.to_be_bytes(), port.to_be_bytes(), [0; 2], [0; 2]].concat()
        };
        match tunnel {
            Wrap::Gre { key, .. } => {
                out.extend([if key.is_some() { 0x20 } else { 0 }, 0]);
                out.extend(if kind == ARP { BRIDGED } else { kind }.to_be_bytes());
                out.extend(
                    key.map(u32::to_be_bytes)
                        .unwrap_or_default()
                        .into_iter()
                        .take(4 * usize::from(key.is_some())),
                );
            }
            Wrap::Vxlan { vni, mac: to, .. } => {
                out.extend(ports(VXLAN_PORT, VXLAN_PORT));
                out.extend([8, 0, 0, 0]);
                out.extend((vni << 8).to_be_bytes());
                out.extend(to.0);
                self.source = out.len();
                out.extend(mac.0);
                out.extend(kind.to_be_bytes());
            }
            Wrap::GtpU { teid, source_port, .. } => {
                inner_port = source_port == 0;
                // Packets without ports, such as echo replies, come from the port of GTP-U.
                let source = if inner_port { GTPU_PORT } else { source_port };
                out.extend(ports(source, GTPU_PORT));
                gtp = Some(out.len() + 2);
                out.extend([0x30, 255, 0, 0]);
                out.extend(teid.to_be_bytes());
            }
            Wrap::Vlan { .. } | Wrap::Mpls { .. } | Wrap::Pppoe => {}
        }
        let places = TunnelPlaces { ip, v4: local.is_ipv4(), udp, gtp, inner_port };
        self.places = Some(Places::Tunnel(places));
    }

    /// Writes the headers in front of a packet of `len` octets. `session`: that of PPPoE, if the
    /// headers have one.
    #[inline]
    fn write(&self, frame: &mut [u8], len: usize, (to, from): (MacAddr, MacAddr), session: u16) {
        // Only Ethernet.
        if let (&[.., a, b], 14, Some(head)) =
            (&self.octets[..], self.octets.len(), frame.first_chunk_mut::<14>())
        {
            let ([t0, t1, t2, t3, t4, t5], [f0, f1, f2, f3, f4, f5]) = (to.0, from.0);
            *head = [t0, t1, t2, t3, t4, t5, f0, f1, f2, f3, f4, f5, a, b];
            return;
        }
        let before = self.octets.len();
        frame[..before].copy_from_slice(&self.octets);
        frame[..6].copy_from_slice(&to.0);
        frame[self.source..][..6].copy_from_slice(&from.0);
        match self.places {
            None => {}
            Some(Places::Tunnel(places)) => self.write_lengths(frame, before + len, places),
            Some(Places::Session(at)) => {
                frame[at..at + 2].copy_from_slice(&session.to_be_bytes());
                // The length includes the protocol of PPP.
                let payload = (len + 2) as u16;
                frame[at + 2..at + 4].copy_from_slice(&payload.to_be_bytes());
            }
        }
    }

    fn write_lengths(&self, frame: &mut [u8], end: usize, places: TunnelPlaces) {
        let mut put = |at: usize, value: usize| {
            frame[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes())
        };
        if let Some(udp) = places.udp {
            put(udp + 4, end - udp);
        }
        if let Some(gtp) = places.gtp {
            // The field is at octet 2 of eight, and counts the octets after these (3GPP TS 29.281
            // §5.1).
            put(gtp, end - gtp - 6);
        }
        if places.v4 {
            put(places.ip + 2, end - places.ip);
            // Computed after the length is written, because the sum covers it.
            let check = !fold(sum(&frame[places.ip..places.ip + 20]));
            frame[places.ip + 10..places.ip + 12].copy_from_slice(&check.to_be_bytes());
        } else {
            put(places.ip + 4, end - places.ip - 40);
        }
    }
}

/// Destination address, sum of the addresses and sum of the ports, for a plain Ethernet frame with
/// TCP or UDP over IPv4 without options.
#[inline]
fn ends_of_usual(frame: &[u8]) -> Option<(IpAddr, u32, u32)> {
    let head = frame.first_chunk::<38>()?;
    let word = |at: usize| be32(head, at);
    let usual = head[12..15] == [8, 0, 0x45] && matches!(head[23], TCP | UDP);
    usual.then(|| {
        let ports = (word(34) >> 16) + (word(34) & 0xffff);
        (IpAddr::V4(word(30).into()), word(26).wrapping_add(word(30)), ports)
    })
}

pub(crate) type End = (IpAddr, u16);

/// Both ends of a TCP segment or UDP datagram.
fn ends(packet: &[u8]) -> Option<(End, End)> {
    let (from, to, protocol, header) = match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            (v4(&packet[12..]), v4(&packet[16..]), packet[9], usize::from(packet[0] & 15) * 4)
        }
        6 if packet.len() >= 40 => {
            let (protocol, header) = upper(packet)?;
            (v6(&packet[8..]), v6(&packet[24..]), protocol, header)
        }
        _ => return None,
    };
    let ports = packet.get(header..header + 4).filter(|_| matches!(protocol, TCP | UDP))?;
    let port = |at: usize| be16(ports, at);
    Some(((from, port(0)), (to, port(2))))
}

/// The upper protocol of an IPv6 packet and its offset, after hop-by-hop, routing and destination
/// options (RFC 8200 §4).
fn upper(packet: &[u8]) -> Option<(u8, usize)> {
    let (mut protocol, mut at) = (*packet.get(6)?, 40);
    while matches!(protocol, 0 | 43 | 60) {
        let option = packet.get(at..at + 2)?;
        (protocol, at) = (option[0], at + 8 * (usize::from(option[1]) + 1));
    }
    Some((protocol, at))
}

/// The packet quoted by an ICMP error (RFC 792, RFC 4443 §3). It identifies the flow whose worker
/// must get the error.
fn quoted(packet: &[u8]) -> Option<&[u8]> {
    let (protocol, header) = match packet.first()? >> 4 {
        4 => (*packet.get(9)?, usize::from(packet[0] & 15) * 4),
        _ => upper(packet)?,
    };
    let icmp = packet.get(header..)?;
    let is_error = match protocol {
        ICMP => matches!(icmp.first()?, 3 | 11 | 12),
        ICMPV6 => matches!(icmp.first()?, 1..=4),
        _ => false,
    };
    icmp.get(8..).filter(|_| is_error)
}

#[cfg(test)]
mod tests;
