//! Interfaces of a side: addresses whose packets have headers of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use squall_host::Arp;
use squall_units::{MacAddr, be16};

use super::{ARP, IPV4, IPV6, Prefixes, SERVICE, UDP, VLAN, number, tags_of, unwrap_gtp, v4, v6};
use crate::{GTPU_PORT, Interface, InterfaceOf, Network, Wrap};

/// The interfaces of a side, found by the addresses of a packet.
#[derive(Debug)]
pub(super) struct Interfaces {
    own: Ranges,
    peers: Ranges,
    /// Interfaces of the side's own addresses, then those of peers.
    all: Vec<Headers>,
    /// Their MAC addresses as numbers.
    macs: BTreeSet<u64>,
    /// Local ends of tunnels, each with one of the interfaces that have it.
    ends: BTreeMap<IpAddr, usize>,
}

/// The headers of an interface.
#[derive(Debug)]
pub(super) struct Headers {
    /// `None`: the MAC address of the side.
    pub mac: Option<MacAddr>,
    pub next_hop: Option<MacAddr>,
    pub wraps: Vec<Wrap>,
    pub prefixes: Prefixes,
    /// Headers with the tags only, without the tunnel.
    pub outer: Prefixes,
}

/// First and last address of each range, ascending. They are apart from the headers, because a
/// search then reads few cache lines.
#[derive(Debug)]
struct Ranges(Vec<(IpAddr, IpAddr)>);

impl Ranges {
    fn find(&self, address: IpAddr) -> Option<usize> {
        let number = self.0.partition_point(|(_, last)| *last < address);
        (self.0.get(number)?.0 <= address).then_some(number)
    }
}

impl Interfaces {
    pub fn new(network: &Network) -> Self {
        let mut sorted: Vec<&Interface> = network.interfaces.iter().collect();
        sorted.sort_by_key(|one| (one.of, one.addresses.first()));
        let headers = |of: &&Interface| {
            let mac = of.mac.unwrap_or(network.mac);
            Headers {
                mac: of.mac,
                next_hop: of.next_hop,
                wraps: of.wraps.clone(),
                prefixes: Prefixes::new(mac, &of.wraps),
                outer: Prefixes::new(mac, &tags_of(&of.wraps)),
            }
        };
        let ranges = |of: InterfaceOf| {
            let those = sorted.iter().filter(|one| one.of == of);
            Ranges(those.map(|one| (one.addresses.first(), one.addresses.last())).collect())
        };
        let end = |(number, one): (usize, &&Interface)| {
            one.wraps.last().and_then(Wrap::ends).map(|(local, _)| (local, number))
        };
        Self {
            own: ranges(InterfaceOf::Side),
            peers: ranges(InterfaceOf::Peer),
            all: sorted.iter().map(headers).collect(),
            macs: sorted.iter().filter_map(|one| one.mac.map(number)).collect(),
            ends: sorted.iter().enumerate().filter_map(end).collect(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The interface for packets between two addresses, if they have one.
    #[inline]
    pub fn find(&self, local: IpAddr, remote: IpAddr) -> Option<&Headers> {
        if self.is_empty() {
            return None;
        }
        let of_peer = || self.peers.find(remote).map(|number| number + self.own.0.len());
        self.own.find(local).or_else(of_peer).map(|number| &self.all[number])
    }

    /// An interface whose tunnel has this local end.
    #[inline]
    pub fn of_end(&self, local: IpAddr) -> Option<&Headers> {
        self.ends.get(&local).map(|number| &self.all[*number])
    }

    #[inline]
    pub fn has_mac(&self, mac: &[u8]) -> bool {
        let has = |mac: &[u8; 6]| self.macs.contains(&number(MacAddr(*mac)));
        !self.macs.is_empty() && mac.first_chunk().is_some_and(has)
    }

    /// The interface of a received frame: that of its innermost packet, or of the tunnel's end to
    /// which the frame is addressed.
    pub fn of_frame(&self, kind: u16, rest: &[u8]) -> Option<&Headers> {
        let (source, destination) = innermost(kind, rest)?;
        self.find(destination, source).or_else(|| self.of_end(destination))
    }
}

/// Source and destination of the packet, or of an ARP request, inside VLAN tags and GTP-U. `None`:
/// there is none, or it is inside other layers.
fn innermost(mut kind: u16, mut rest: &[u8]) -> Option<(IpAddr, IpAddr)> {
    while kind == VLAN || kind == SERVICE {
        (kind, rest) = (be16(rest.get(..4)?, 2), &rest[4..]);
    }
    if kind == ARP {
        let arp = Arp::parse(rest)?;
        return Some((arp.sender.into(), arp.target.into()));
    }
    if kind != IPV4 && kind != IPV6 {
        return None;
    }
    let header = if kind == IPV4 { usize::from(rest.first()? & 15) * 4 } else { 40 };
    let protocol = *rest.get(if kind == IPV4 { 9 } else { 6 })?;
    let udp = rest.get(header..).filter(|udp| protocol == UDP && udp.len() > 8);
    let gtp = udp.filter(|udp| be16(udp, 2) == GTPU_PORT);
    let inner = gtp.and_then(|udp| unwrap_gtp(&udp[8..]).ok());
    inner.and_then(|(_, inner)| ends(inner)).or_else(|| ends(rest))
}

fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => Some((v4(packet.get(12..16)?), v4(packet.get(16..20)?))),
        6 => Some((v6(packet.get(8..24)?), v6(packet.get(24..40)?))),
        _ => None,
    }
}
