//! Packets as values and their encoding.

use std::net::IpAddr;

use squall_rules::End;
use squall_units::Nanos;
use squall_wire::checksum;

use super::{Endpoints, Error, MIN_MTU, Settings};
use crate::{
    Evasion, Exchange, Origin, Transport, Turn,
    evade::{self, Pieces},
};

/// Bits of [`Ip::bits`], as in [`crate::Shape`].
pub(crate) const MORE: u8 = 1;
pub(crate) const DONT: u8 = 2;

// Protocol numbers (IANA).
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
const GRE: u8 = 47;
const HOP_BY_HOP: u8 = 0;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
pub(crate) const ICMPV6: u8 = 58;

/// An extension header of eight octets that contains only a padding option (RFC 8200 §4.2). The
/// first octet is the next header.
const NOTHING: [u8; 8] = [0, 0, 1, 4, 0, 0, 0, 0];

const ETHERNET: usize = 14;
const GRE_HEADER: usize = 4;
/// Version, type and code of a PPPoE packet in a session, and its length without PPP (RFC 2516 §4).
const SESSION: [u8; 2] = [0x11, 0];
const SESSION_HEADER: usize = 6;

/// A packet before encoding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Packet {
    pub from: End,
    /// Idle time before the packet, in addition to the gap that precedes every frame.
    pub pause: Nanos,
    pub ip: Ip,
    pub head: Head,
    /// The data after the transport header.
    pub payload: Vec<u8>,
    /// Corrupt the transport checksum.
    pub wrong_checksum: bool,
    /// Do not split the segment, because a rule tests its length.
    pub whole: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ip {
    pub ttl: u8,
    pub tos: u8,
    /// Identification. IPv6 has it only in the fragment header. IPv4 uses the lower 16 bits.
    pub id: u32,
    pub options: Vec<u8>,
    /// More fragments 1, don't fragment 2, reserved 4.
    pub bits: u8,
    /// Fragment offset in units of eight octets.
    pub offset: u16,
    /// For IPv6, add a hop-by-hop and a destination options header that have no effect.
    pub extensions: bool,
}

/// The transport header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Head {
    Tcp(Segment),
    Udp,
    Icmp {
        kind: u8,
        code: u8,
        id: u16,
        sequence: u16,
    },
    /// No header, only a protocol number.
    None(u8),
}

/// A TCP header (RFC 9293 §3.1). The ports are those of the conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Segment {
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    pub urgent: u16,
    /// TCP options; a multiple of four octets.
    pub options: Vec<u8>,
}

/// Encodes packets, with the values that all packets of a conversation share.
pub(crate) struct Writer<'a> {
    client: IpAddr,
    server: IpAddr,
    macs: [[u8; 6]; 2],
    ports: [u16; 2],
    pub settings: &'a Settings,
}

impl<'a> Writer<'a> {
    pub fn new(
        exchange: &Exchange,
        ends: &Endpoints,
        settings: &'a Settings,
    ) -> Result<Self, Error> {
        let client = ends.client;
        let server = if exchange.same_address { client } else { ends.server };
        one_family(client, server)?;
        let version = if client.is_ipv4() { 4 } else { 6 };
        if let Some(needed) = exchange.ip_version.filter(|&v| v != version) {
            return Err(Error::Version { needed, client, server });
        }
        if settings.mss == 0 {
            return Err(Error::Settings("mss is 0, expected 1 or more octets".into()));
        }
        if settings.mtu < MIN_MTU {
            return Err(Error::Settings(format!(
                "mtu is {}, expected {MIN_MTU} or more octets",
                settings.mtu
            )));
        }
        if settings.vlans.len() > 2 {
            return Err(Error::Settings(format!(
                "{} VLAN tags, expected at most 2",
                settings.vlans.len()
            )));
        }
        if let Some(vlan) = settings.vlans.iter().find(|&&v| v > 0xfff) {
            return Err(Error::Settings(format!("VLAN {vlan}, expected 0 to 4095")));
        }
        if let Some(evasion) = settings.evasions.iter().find(|e| !e.is_possible()) {
            return Err(Error::Settings(format!("{evasion} has a number out of range")));
        }
        if let Some((one, other)) = evade::conflict(&settings.evasions) {
            return Err(Error::Settings(format!("{one} and {other} cannot be combined")));
        }
        if settings.evasions.contains(&Evasion::Ipv6Extensions) && version == 4 {
            return Err(Error::OnlyIpv6 { what: "extension headers" });
        }
        if let Some(gre) = settings.gre {
            one_family(gre.source, gre.destination)?;
        }
        let macs = [ends.client_mac, ends.server_mac];
        Ok(Writer {
            client,
            server,
            macs,
            ports: [exchange.client_port, exchange.server_port],
            settings,
        })
    }

    pub fn is_ipv4(&self) -> bool {
        self.client.is_ipv4()
    }

    /// The packet that an ICMP error quotes if no rule requires other octets: a UDP datagram in the
    /// opposite direction, as long as the turn (but at least its headers). The octets after its UDP
    /// header are those of the turn.
    pub fn quoted(&self, turn: &Turn) -> Vec<u8> {
        let octets = turn.octets.bytes();
        let headers = if self.is_ipv4() { 20 } else { 40 } + 8;
        let free = turn.octets.origins().iter().all(|&origin| origin == Origin::Free);
        if !free || turn.shape.whole && octets.len() < headers {
            return octets.to_vec();
        }
        let ip =
            Ip { ttl: 1, tos: 0, id: 0, options: vec![], bits: 0, offset: 0, extensions: false };
        let packet = Packet {
            from: turn.from.other(),
            pause: Nanos::ZERO,
            ip,
            head: Head::Udp,
            payload: octets.get(headers..).unwrap_or_default().to_vec(),
            wrong_checksum: false,
            whole: true,
        };
        let (sender, receiver) = self.ends(packet.from);
        let mut quoted = Vec::with_capacity(octets.len().max(headers));
        match network(&packet.ip, sender, receiver, UDP, 8 + packet.payload.len(), &mut quoted) {
            Ok(()) => self.transport(&packet, &mut quoted),
            // It is too long for any packet; sending it reports the error.
            Err(_) => return octets.to_vec(),
        }
        quoted
    }

    /// The addresses of sender and receiver.
    fn ends(&self, from: End) -> (IpAddr, IpAddr) {
        match from {
            End::Client => (self.client, self.server),
            End::Server => (self.server, self.client),
        }
    }

    /// The protocol number of a transport.
    pub fn protocol(&self, transport: Transport) -> u8 {
        match transport {
            Transport::Tcp | Transport::Segments => TCP,
            Transport::Udp => UDP,
            Transport::Icmp if self.is_ipv4() => ICMP,
            Transport::Icmp => ICMPV6,
            Transport::Ip(protocol) => protocol,
        }
    }

    /// Calls `each` with the packet, or with its fragments if it exceeds the MTU. If a rule
    /// requires the fragment fields of a packet, the packet stays unchanged.
    pub fn fragments(
        &self,
        packet: Packet,
        each: &mut impl FnMut(Packet) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let shaped = packet.ip.is_fragment();
        let mtu = usize::from(self.settings.mtu);
        let header = self.header_len(&packet.ip);
        let pieces = evade::pieces(&self.settings.evasions).filter(|_| !packet.payload.is_empty());
        if shaped || pieces.is_none() && header + packet.head.len() + packet.payload.len() <= mtu {
            return each(packet);
        }
        // IPv6 adds a fragment header of eight octets.
        let room = mtu - if self.is_ipv4() { header } else { header + 8 };
        let usual = Pieces { step: room & !7, overlap: 0, reversed: false, twice: false };
        let pieces = pieces.unwrap_or(usual);
        let pieces = Pieces { step: pieces.step.min((room - pieces.overlap) & !7), ..pieces };
        let pause = packet.pause;
        let mut fragments = self.cut(packet, pieces)?;
        if pieces.reversed {
            fragments.reverse();
        }
        let last = fragments.len() - 1;
        for (i, mut fragment) in fragments.into_iter().enumerate() {
            fragment.pause = if i == 0 { pause } else { Nanos::ZERO };
            if pieces.twice && i < last {
                each(fragment.clone())?;
                fragment.pause = Nanos::ZERO;
            }
            each(fragment)?;
        }
        Ok(())
    }

    /// Splits a packet into fragments in the order of their data.
    fn cut(&self, packet: Packet, pieces: Pieces) -> Result<Vec<Packet>, Error> {
        let Pieces { step, overlap, .. } = pieces;
        assert!(
            step > 0 && step.is_multiple_of(8),
            "fragments but the last carry multiples of eight octets"
        );
        let protocol = packet.head.protocol(self);
        let mut body = Vec::with_capacity(packet.head.len() + packet.payload.len());
        self.transport(&packet, &mut body);
        let longest = usize::from(u16::MAX) - if self.is_ipv4() { 20 } else { 0 };
        if body.len() > longest {
            return Err(Error::TooLong { octets: self.header_len(&packet.ip) + body.len() });
        }
        let count = body.len().div_ceil(step).max(1);
        let piece = |i: usize| {
            let last = i + 1 == count;
            let mut ip = packet.ip.clone();
            ip.bits &= !DONT;
            ip.bits |= if last { 0 } else { MORE };
            ip.offset = (i * step / 8) as u16;
            if i > 0 {
                ip.options = copied(&ip.options);
            }
            // If the overlap would end within a unit of eight octets, omit it.
            let end = body.len().min((i + 1) * step);
            let end = if last || end + overlap > body.len() { end } else { end + overlap };
            Packet {
                from: packet.from,
                pause: Nanos::ZERO,
                ip,
                head: Head::None(protocol),
                payload: body[i * step..end].to_vec(),
                wrong_checksum: false,
                whole: true,
            }
        };
        Ok((0..count).map(piece).collect())
    }

    /// Encodes the packet as a frame.
    pub fn frame(&self, packet: &Packet) -> Result<Vec<u8>, Error> {
        let inner = self.header_len(&packet.ip) + packet.head.len() + packet.payload.len();
        let (sender, receiver) = self.ends(packet.from);
        let mut octets = Vec::with_capacity(ETHERNET + 8 + 8 + 44 + inner);
        let from_server = packet.from == End::Server;
        octets.extend_from_slice(&self.macs[usize::from(!from_server)]);
        octets.extend_from_slice(&self.macs[usize::from(from_server)]);
        for (i, vlan) in self.settings.vlans.iter().enumerate() {
            // The outer of two tags is the service tag (802.1ad).
            let tpid: u16 = if i + 1 < self.settings.vlans.len() { 0x88a8 } else { 0x8100 };
            octets.extend_from_slice(&tpid.to_be_bytes());
            octets.extend_from_slice(&vlan.to_be_bytes());
        }
        let in_session = self.settings.sessions[usize::from(from_server)];
        if in_session {
            octets.extend_from_slice(&squall_wire::link::PPPOE_SESSION.to_be_bytes());
            // Number and length follow.
            octets.extend_from_slice(&SESSION);
            octets.extend_from_slice(&[0; SESSION_HEADER - SESSION.len()]);
        }
        let session_end = octets.len();
        let kind = |address| if in_session { ppp_protocol(address) } else { ethertype(address) };
        match self.settings.gre {
            None => octets.extend_from_slice(&kind(sender)),
            Some(gre) => {
                let (source, destination) = if from_server {
                    (gre.destination, gre.source)
                } else {
                    (gre.source, gre.destination)
                };
                octets.extend_from_slice(&kind(source));
                let outer = Ip {
                    ttl: 64,
                    tos: 0,
                    id: packet.ip.id,
                    options: vec![],
                    bits: 0,
                    offset: 0,
                    extensions: false,
                };
                network(&outer, source, destination, GRE, GRE_HEADER + inner, &mut octets)?;
                octets.extend_from_slice(&[0, 0]);
                octets.extend_from_slice(&ethertype(sender));
            }
        }
        let body = packet.head.len() + packet.payload.len();
        network(&packet.ip, sender, receiver, packet.head.protocol(self), body, &mut octets)?;
        self.transport(packet, &mut octets);
        if in_session {
            let len = octets.len() - session_end;
            let of_session = u16::try_from(len).map_err(|_| Error::TooLong { octets: len })?;
            octets[session_end - 2..session_end].copy_from_slice(&of_session.to_be_bytes());
        }
        Ok(octets)
    }

    /// Length of the IP header with options and fragment header.
    fn header_len(&self, ip: &Ip) -> usize {
        match self.is_ipv4() {
            true => 20 + ip.options.len(),
            false => {
                40 + if ip.is_fragment() { 8 } else { 0 }
                    + if ip.extensions { 2 * NOTHING.len() } else { 0 }
            }
        }
    }

    /// Appends the transport header and the payload.
    fn transport(&self, packet: &Packet, octets: &mut Vec<u8>) {
        let at = octets.len();
        let len = packet.head.len() + packet.payload.len();
        let ports = match packet.from {
            End::Client => self.ports,
            End::Server => [self.ports[1], self.ports[0]],
        };
        let put_ports = |octets: &mut Vec<u8>| {
            octets.extend_from_slice(&ports[0].to_be_bytes());
            octets.extend_from_slice(&ports[1].to_be_bytes());
        };
        let checksum_at = match &packet.head {
            Head::Tcp(segment) => {
                put_ports(octets);
                octets.extend_from_slice(&segment.sequence.to_be_bytes());
                octets.extend_from_slice(&segment.acknowledgment.to_be_bytes());
                octets.extend_from_slice(&[
                    ((20 + segment.options.len()) as u8 / 4) << 4,
                    segment.flags,
                ]);
                octets.extend_from_slice(&segment.window.to_be_bytes());
                octets.extend_from_slice(&[0, 0]);
                octets.extend_from_slice(&segment.urgent.to_be_bytes());
                octets.extend_from_slice(&segment.options);
                16
            }
            Head::Udp => {
                put_ports(octets);
                octets.extend_from_slice(&(len as u16).to_be_bytes());
                octets.extend_from_slice(&[0, 0]);
                6
            }
            Head::Icmp { kind, code, id, sequence } => {
                octets.extend_from_slice(&[*kind, *code, 0, 0]);
                octets.extend_from_slice(&id.to_be_bytes());
                octets.extend_from_slice(&sequence.to_be_bytes());
                2
            }
            Head::None(_) => return octets.extend_from_slice(&packet.payload),
        };
        octets.extend_from_slice(&packet.payload);
        let protocol = packet.head.protocol(self);
        // ICMP in IPv4 has no pseudo-header.
        let pseudo =
            if protocol == ICMP { 0 } else { self.addresses() + u64::from(protocol) + len as u64 };
        let mut sum = !checksum::fold(pseudo + checksum::sum(&octets[at..]));
        if packet.wrong_checksum {
            sum = sum.wrapping_add(1);
        }
        // 0 means no checksum (RFC 768).
        if protocol == UDP && sum == 0 {
            sum = 0xffff;
        }
        octets[at + checksum_at..][..2].copy_from_slice(&sum.to_be_bytes());
    }

    /// The sum of both addresses, which is the same for both directions.
    fn addresses(&self) -> u64 {
        let of = |address: IpAddr| match address {
            IpAddr::V4(a) => checksum::sum(&a.octets()),
            IpAddr::V6(a) => checksum::sum(&a.octets()),
        };
        of(self.client) + of(self.server)
    }
}

impl Head {
    fn len(&self) -> usize {
        match self {
            Head::Tcp(segment) => 20 + segment.options.len(),
            Head::Udp | Head::Icmp { .. } => 8,
            Head::None(_) => 0,
        }
    }

    fn protocol(&self, writer: &Writer<'_>) -> u8 {
        match *self {
            Head::Tcp(_) => TCP,
            Head::Udp => UDP,
            Head::Icmp { .. } => writer.protocol(Transport::Icmp),
            Head::None(protocol) => protocol,
        }
    }
}

impl Ip {
    fn is_fragment(&self) -> bool {
        self.bits & MORE != 0 || self.offset != 0
    }
}

/// Appends an IP header for `body` octets.
fn network(
    ip: &Ip,
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    body: usize,
    octets: &mut Vec<u8>,
) -> Result<(), Error> {
    let at = octets.len();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            if !ip.options.len().is_multiple_of(4) || ip.options.len() > 40 {
                return Err(Error::Options { octets: ip.options.len() });
            }
            let header = 20 + ip.options.len();
            let total = u16::try_from(header + body)
                .map_err(|_| Error::TooLong { octets: header + body })?;
            octets.extend_from_slice(&[0x40 | (header / 4) as u8, ip.tos]);
            octets.extend_from_slice(&total.to_be_bytes());
            octets.extend_from_slice(&(ip.id as u16).to_be_bytes());
            octets.extend_from_slice(
                &(u16::from(ip.bits & 7) << 13 | ip.offset & 0x1fff).to_be_bytes(),
            );
            octets.extend_from_slice(&[ip.ttl, protocol, 0, 0]);
            octets.extend_from_slice(&source.octets());
            octets.extend_from_slice(&destination.octets());
            octets.extend_from_slice(&ip.options);
            let sum = !checksum::fold(checksum::sum(&octets[at..]));
            octets[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            if !ip.options.is_empty() {
                return Err(Error::OnlyIpv4 { what: "a header with options" });
            }
            let extensions = if ip.extensions { 2 * NOTHING.len() } else { 0 };
            let after = body + extensions + if ip.is_fragment() { 8 } else { 0 };
            let len = u16::try_from(after).map_err(|_| Error::TooLong { octets: 40 + after })?;
            octets.extend_from_slice(&[0x60 | ip.tos >> 4, ip.tos << 4, 0, 0]);
            octets.extend_from_slice(&len.to_be_bytes());
            // Destination options may precede a fragment header (RFC 8200 §4.1), so each fragment
            // has both.
            let next = if ip.is_fragment() { FRAGMENT } else { protocol };
            octets.extend_from_slice(&[if ip.extensions { HOP_BY_HOP } else { next }, ip.ttl]);
            octets.extend_from_slice(&source.octets());
            octets.extend_from_slice(&destination.octets());
            if ip.extensions {
                octets.extend_from_slice(
                    &[&[DESTINATION], &NOTHING[1..], &[next], &NOTHING[1..]].concat(),
                );
            }
            if ip.is_fragment() {
                let offset = (ip.offset & 0x1fff) << 3 | u16::from(ip.bits & MORE);
                octets.extend_from_slice(&[protocol, 0]);
                octets.extend_from_slice(&offset.to_be_bytes());
                octets.extend_from_slice(&ip.id.to_be_bytes());
            }
        }
        (one, other) => return Err(Error::Families { one, other }),
    }
    Ok(())
}

/// The IPv4 options that have the copied flag, which every fragment repeats (RFC 791 §3.1), padded
/// to a multiple of four octets.
fn copied(options: &[u8]) -> Vec<u8> {
    let mut kept = vec![];
    let mut rest = options;
    while let &[kind, ..] = rest {
        let len = match (kind, rest.get(1)) {
            (0, _) => break,
            (1, _) => 1,
            (_, Some(&len)) if len >= 2 && usize::from(len) <= rest.len() => usize::from(len),
            // The list is malformed on purpose, so its rest cannot be parsed.
            _ => break,
        };
        if kind & 0x80 != 0 {
            kept.extend_from_slice(&rest[..len]);
        }
        rest = &rest[len..];
    }
    kept.resize(kept.len().next_multiple_of(4), 0);
    kept
}

fn ethertype(address: IpAddr) -> [u8; 2] {
    if address.is_ipv4() {
        squall_wire::link::IPV4.to_be_bytes()
    } else {
        squall_wire::link::IPV6.to_be_bytes()
    }
}

/// The protocol of PPP that carries packets with this address (RFC 1332 §2, RFC 5072 §2).
fn ppp_protocol(address: IpAddr) -> [u8; 2] {
    if address.is_ipv4() { [0, 0x21] } else { [0, 0x57] }
}

fn one_family(one: IpAddr, other: IpAddr) -> Result<(), Error> {
    if one.is_ipv4() == other.is_ipv4() { Ok(()) } else { Err(Error::Families { one, other }) }
}
