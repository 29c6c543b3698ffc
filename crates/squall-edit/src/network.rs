//! Edits IP and its payload (addresses, ports, sequence numbers, small header fields) and updates
//! checksums.

use squall_measure::flow::{Fragment, Headers, Link, ethertype, protocol};
use squall_units::{be16, be32, mix};
use squall_wire::tcp_flags::ACK;

use crate::{
    AddressMap, Edits, Operation, Reason, Side,
    anonymize::{CryptoPan, mask, random_address},
    counts::Done,
    frame::Frame,
    ip::{self},
    link::group_mac,
    sums::{self, Delta, TransportSum},
    values::bits_of,
};

/// The replacement of each port.
type PortTable = Box<[u16; 1 << 16]>;

pub struct Network {
    pnat: Vec<AddressMap>,
    srcipmap: Option<AddressMap>,
    dstipmap: Option<AddressMap>,
    /// Version, client, server.
    endpoints: Option<(bool, u128, u128)>,
    seed: Option<u64>,
    pan: Option<CryptoPan>,
    skip_broadcast: bool,
    addresses: bool,
    /// The edits redirect traffic to real hosts: MAC addresses are neither fixed nor random, and IP
    /// addresses are not pseudonyms.
    moves: bool,
    ports: Option<PortTable>,
    tcp_sequence: Option<u64>,
    small: Edits,
}

impl Network {
    pub fn new(edits: &Edits) -> Self {
        let ports = edits.portmap.as_ref().map(|map| {
            let table: Vec<u16> = (0..=u16::MAX).map(|port| map.map(port)).collect();
            PortTable::try_from(table.into_boxed_slice()).expect("a place for each port")
        });
        Self {
            pnat: edits.pnat.clone(),
            srcipmap: edits.srcipmap.clone(),
            dstipmap: edits.dstipmap.clone(),
            endpoints: edits.endpoints.map(|ends| {
                let (v6, client) = bits_of(ends.client);
                (v6, client, bits_of(ends.server).1)
            }),
            seed: edits.seed,
            pan: edits.anonymize.map(|key| CryptoPan::new(&key.0)),
            skip_broadcast: edits.skip_broadcast,
            addresses: edits.edits_addresses(),
            moves: edits.enet_dmac.is_none()
                && edits.enet_subsmac.is_empty()
                && edits.enet_mac_seed.is_none()
                && edits.anonymize.is_none(),
            ports,
            tcp_sequence: edits.tcp_sequence,
            small: Edits {
                tos: edits.tos,
                tclass: edits.tclass,
                flowlabel: edits.flowlabel,
                ttl: edits.ttl,
                ..Edits::default()
            },
        }
    }

    pub fn edit(&mut self, frame: &mut Frame, side: Option<Side>, done: &mut Done) {
        let headers = frame.headers;
        if headers.key.version == 0 {
            if self.addresses && headers.ethertype == ethertype::ARP {
                self.edit_arp(&mut frame.octets, headers.network as usize, side, done);
            }
            if headers.fault.is_some() {
                done.refuse(Reason::Headers);
            }
            return;
        }
        let octets = &mut frame.octets[..];
        // Changes to octets covered by the IPv4 header checksum, and to octets covered by the
        // transport checksum.
        let (mut header, mut transport) = (Delta::default(), Delta::default());
        self.edit_small(octets, &headers, &mut header, done);
        if let Some(seed) = self.tcp_sequence {
            shift_sequence(octets, &headers, seed, &mut transport, done);
        }
        if let Some(ports) = &self.ports {
            edit_ports(octets, &headers, ports, &mut transport, done);
        }
        if self.addresses {
            self.edit_addresses(octets, &headers, side, &mut header, &mut transport, done);
            if frame.link == Link::Ethernet {
                self.follow_group(octets, &headers);
            }
        }
        if headers.key.version == 4 {
            header.apply(octets, headers.network as usize + 10);
        }
        if let Some(sum) = TransportSum::of(&headers) {
            sum.change(octets, transport);
        }
    }

    fn edit_small(
        &self,
        octets: &mut [u8],
        headers: &Headers,
        header: &mut Delta,
        done: &mut Done,
    ) {
        let Edits { tos, tclass, flowlabel, ttl, .. } = self.small;
        let at = headers.network as usize;
        if headers.key.version == 4 {
            let word = [octets[at], tos.unwrap_or(octets[at + 1])];
            done.by(Operation::Tos, put(octets, at, &word, header));
            if let Some(ttl) = ttl {
                let word = [ttl.of(octets[at + 8]), octets[at + 9]];
                done.by(Operation::Ttl, put(octets, at + 8, &word, header));
            }
            return;
        }
        // No checksum covers version, traffic class and flow label.
        let old = be32(octets, at);
        let new = tclass.map_or(old, |class| old & 0xf00f_ffff | u32::from(class) << 20);
        done.by(Operation::Tclass, new != old);
        let label = flowlabel.map_or(new, |label| new & 0xfff0_0000 | label & 0xf_ffff);
        done.by(Operation::Flowlabel, label != new);
        octets[at..at + 4].copy_from_slice(&label.to_be_bytes());
        if let Some(ttl) = ttl {
            let new = ttl.of(octets[at + 7]);
            done.by(Operation::Ttl, new != octets[at + 7]);
            octets[at + 7] = new;
        }
    }

    fn edit_addresses(
        &mut self,
        octets: &mut [u8],
        headers: &Headers,
        side: Option<Side>,
        header: &mut Delta,
        transport: &mut Delta,
        done: &mut Done,
    ) {
        let v6 = headers.key.version == 6;
        let at = headers.network as usize;
        let (len, src_at) = if v6 { (16, at + 8) } else { (4, at + 12) };
        // Some checksums (SCTP's, ICMP's over IPv4) do not cover addresses. With a source route
        // they cover a destination other than the one in the header.
        let routed = v6 && octets[at + 6] != headers.key.protocol && ip::is_routed(octets, headers);
        for (address, place, is_src) in
            [(headers.key.src, src_at, true), (headers.key.dst, src_at + len, false)]
        {
            let old = u128::from_be_bytes(address);
            let new = self.mapped(v6, old, is_src, side);
            if new == old {
                continue;
            }
            let (old, new) = (old.to_be_bytes(), new.to_be_bytes());
            header.replace(&old[..len], &new[..len], false);
            if is_src || !routed {
                transport.replace(&old[..len], &new[..len], false);
            }
            octets[place..place + len].copy_from_slice(&new[..len]);
            done.by(Operation::Addresses, true);
        }
    }

    /// Adapts the destination MAC address if the new destination is a multicast group. If the MAC
    /// address belonged to the old group, it becomes that of the new group. If it belonged to a
    /// host, it becomes that of the group only if the frame carries nothing but IP. If the new
    /// destination is not a group, the MAC address stays, because that of the host is unknown.
    fn follow_group(&self, octets: &mut [u8], headers: &Headers) {
        let (v6, at) = (headers.key.version == 6, headers.network as usize);
        let len = if v6 { 16 } else { 4 };
        let place = at + if v6 { 24 } else { 16 };
        let mut new = [0; 16];
        new[..len].copy_from_slice(&octets[place..place + len]);
        if new == headers.key.dst {
            return;
        }
        let Some(mac) = group_mac(v6, u128::from_be_bytes(new)) else { return };
        let of_old = group_mac(v6, u128::from_be_bytes(headers.key.dst));
        let (dst, rest) = octets.split_at_mut(6);
        let kind = if v6 { ethertype::IPV6 } else { ethertype::IPV4 };
        // Otherwise the MAC address may be that of an MPLS router or a PPPoE peer.
        let alone = headers.mpls_labels == 0 && be16(rest, at - 8) == kind;
        let becomes_group = of_old.is_none() && alone && dst[0] & 1 == 0 && self.moves;
        if becomes_group || of_old.is_some_and(|old| dst == old) {
            dst.copy_from_slice(&mac);
        }
    }

    /// Edits sender and target like source and destination (RFC 826, for protocol addresses of 4
    /// octets).
    fn edit_arp(&mut self, octets: &mut [u8], at: usize, side: Option<Side>, done: &mut Done) {
        let Some(fixed) = octets.get(at..at + 8) else { return };
        let (hardware, protocol_len) = (usize::from(fixed[4]), fixed[5]);
        if be16(fixed, 2) != ethertype::IPV4 || protocol_len != 4 {
            return;
        }
        let sender = at + 8 + hardware;
        for (place, is_src) in [(sender, true), (sender + 4 + hardware, false)] {
            let Some(address) = octets.get_mut(place..place + 4) else {
                return done.refuse(Reason::Headers);
            };
            let old = be32(address, 0);
            let new = (self.mapped(false, u128::from(old) << 96, is_src, side) >> 96) as u32;
            address.copy_from_slice(&new.to_be_bytes());
            done.by(Operation::Addresses, new != old);
        }
    }

    fn mapped(&mut self, v6: bool, address: u128, is_src: bool, side: Option<Side>) -> u128 {
        if self.skip_broadcast && is_broadcast(v6, address) {
            return address;
        }
        // With two maps, the first applies to the client's address, whether it is the source or the
        // destination.
        let clients = is_src == (side != Some(Side::Server));
        let map = match &self.pnat[..] {
            [] if is_src => self.srcipmap.as_ref(),
            [] => self.dstipmap.as_ref(),
            [both] => Some(both),
            [client, server, ..] => Some(if clients { client } else { server }),
        };
        let mut address = map.map_or(address, |map| map.map(v6, address));
        if let Some((of_v6, client, server)) = self.endpoints
            && v6 == of_v6
        {
            address = if clients { client } else { server };
        }
        if let Some(seed) = self.seed {
            address = random_address(address, v6, seed);
        }
        if let Some(pan) = &mut self.pan {
            address = pan.map(address, v6);
        }
        address
    }
}

fn is_broadcast(v6: bool, address: u128) -> bool {
    let first = address >> 120;
    if v6 { first == 0xff } else { first >> 4 == 0xe || address == mask(32) }
}

/// Writes `new`, and adds the change to `delta`. Returns whether the octets changed.
fn put(octets: &mut [u8], at: usize, new: &[u8; 2], delta: &mut Delta) -> bool {
    let old = [octets[at], octets[at + 1]];
    if old == *new {
        return false;
    }
    delta.replace(&old, new, false);
    octets[at..at + 2].copy_from_slice(new);
    true
}

fn edit_ports(
    octets: &mut [u8],
    headers: &Headers,
    ports: &PortTable,
    delta: &mut Delta,
    done: &mut Done,
) {
    const WITH_PORTS: [u8; 5] =
        [protocol::TCP, protocol::UDP, protocol::UDP_LITE, protocol::DCCP, protocol::SCTP];
    let at = headers.transport as usize;
    if headers.fragment == Fragment::Later || !WITH_PORTS.contains(&headers.key.protocol) {
        return;
    }
    if at + 4 > headers.end as usize {
        return done.refuse(Reason::Headers);
    }
    let old = [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
    for at in [at, at + 2] {
        let new = ports[usize::from(be16(octets, at))];
        done.by(Operation::Portmap, put(octets, at, &new.to_be_bytes(), delta));
    }
    if headers.key.protocol == protocol::SCTP
        && let Err(reason) = sums::change_sctp_ports(octets, headers, &old)
    {
        done.refuse(reason);
    }
}

/// Shifts sequence numbers. Each direction of a connection has its own shift, which is determined
/// by addresses and ports, so sequence numbers, acknowledgments and SACK blocks (RFC 2018) stay
/// consistent.
fn shift_sequence(
    octets: &mut [u8],
    headers: &Headers,
    seed: u64,
    delta: &mut Delta,
    done: &mut Done,
) {
    if headers.key.protocol != protocol::TCP || headers.fragment == Fragment::Later {
        return;
    }
    let (at, end) = (headers.transport as usize, headers.end as usize);
    if at + 20 > end {
        return done.refuse(Reason::Headers);
    }
    let [own_shift, peer_shift] =
        [headers.key, headers.key.reversed()].map(|key| mix(seed, key.hash_with(seed)) as u32);
    let mut shift = |octets: &mut [u8], place: usize, by: u32| {
        let old = [octets[place], octets[place + 1], octets[place + 2], octets[place + 3]];
        let new = u32::from_be_bytes(old).wrapping_add(by).to_be_bytes();
        delta.replace(&old, &new, (place - at) % 2 == 1);
        octets[place..place + 4].copy_from_slice(&new);
    };
    shift(octets, at + 4, own_shift);
    done.by(Operation::TcpSequence, own_shift != 0);
    if headers.tcp_flags & ACK == 0 {
        return;
    }
    shift(octets, at + 8, peer_shift);
    let options_end = (headers.payload as usize).min(end);
    let mut option = at + 20;
    while option + 1 < options_end {
        let len = match octets[option] {
            0 => return,
            1 => 1,
            _ => usize::from(octets[option + 1]),
        };
        if octets[option] == 1 {
            option += 1;
            continue;
        }
        if len < 2 || option + len > options_end {
            return;
        }
        const SACK: u8 = 5;
        if octets[option] == SACK {
            for edge in (option + 2..option + len - 3).step_by(4) {
                shift(octets, edge, peer_shift);
            }
        }
        option += len;
    }
}
