//! Decodes a frame into its packets, with their payloads and the header fields that rules test.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{Nanos, be16, be32};
use squall_wire::checksum;

use crate::fragments::{Fragment, Fragments};

// Protocol numbers (IANA).
pub(crate) const ICMP: u8 = 1;
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP6: u8 = 58;
pub(crate) const SCTP: u8 = 132;

/// Maximum number of nested packets: Suricata's limit.
const MAX_LAYERS: u8 = 16;

/// An IP packet and its header fields. For a fragment, only the IP header is decoded.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub at: Nanos,
    /// VLAN identifiers. The outer one is in the upper half.
    pub vlan: u32,
    pub vlan_layers: u8,
    pub version: u8,
    pub source: IpAddr,
    pub destination: IpAddr,
    /// The transport protocol, after any IPv6 extension headers.
    pub protocol: u8,
    pub ttl: u8,
    pub tos: u8,
    /// Identification field of IPv4, or of IPv6's fragment header.
    pub id: Option<u32>,
    /// More fragments: 1, don't fragment: 2, reserved: 4.
    pub fragment_bits: u8,
    /// In units of eight octets.
    pub fragment_offset: u16,
    pub is_fragment: bool,
    /// The packet was reassembled from fragments.
    pub reassembled: bool,
    /// Types of the IPv4 options.
    pub ip_options: Vec<u8>,
    pub ip_header: Vec<u8>,
    /// Ports of TCP, UDP and SCTP; 0 for other protocols.
    pub source_port: u16,
    pub destination_port: u16,
    pub upper_header: Vec<u8>,
    pub tcp: Option<Tcp>,
    pub icmp: Option<Icmp>,
    pub payload: Vec<u8>,
    /// Names of Suricata's `decode-event:` options that apply to the packet.
    pub events: Vec<&'static str>,
    /// Whether the transport header is valid. If it is not, the packet belongs to no flow.
    pub has_upper: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tcp {
    pub sequence: u32,
    pub acknowledgment: u32,
    pub flags: u8,
    pub window: u16,
    pub mss: Option<u16>,
    pub window_scale: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Icmp {
    pub kind: u8,
    pub code: u8,
    /// The identifier, for types that have one.
    pub id: Option<u16>,
    pub sequence: Option<u16>,
    pub mtu: Option<u32>,
    /// The packet that an ICMP error quotes.
    pub properties: Option<Embedded>,
}

/// The packet quoted in an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedded {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: u8,
    pub source_port: u16,
    pub destination_port: u16,
}

/// Decodes `frame` (Ethernet, without FCS) and appends its packets to `packets`. An outer packet
/// precedes the packets inside it; a fragment precedes the packet that it completes. With
/// `checksums`, packets with wrong checksums are dropped.
pub(crate) fn decode(
    at: Nanos,
    frame: &[u8],
    fragments: &mut Fragments,
    checksums: bool,
    packets: &mut Vec<Packet>,
) {
    Decoder { at, fragments, checksums, packets, layers: 0, vlan: 0, vlan_layers: 0 }
        .ethernet(frame);
}

struct Decoder<'a> {
    at: Nanos,
    fragments: &'a mut Fragments,
    checksums: bool,
    packets: &'a mut Vec<Packet>,
    layers: u8,
    vlan: u32,
    vlan_layers: u8,
}

impl Decoder<'_> {
    fn ethernet(&mut self, frame: &[u8]) {
        if let Some((header, rest)) = frame.split_at_checked(14) {
            self.by_ether_type(be16(header, 12), rest);
        }
    }

    fn by_ether_type(&mut self, ether_type: u16, octets: &[u8]) {
        self.layers += 1;
        if self.layers > MAX_LAYERS {
            return;
        }
        match ether_type {
            0x0800 => self.ipv4(octets, false),
            0x86dd => self.ipv6(octets, false),
            0x8100 | 0x88a8 | 0x9100 => {
                if let Some((tag, rest)) = octets.split_at_checked(4) {
                    self.vlan = self.vlan << 16 | u32::from(be16(tag, 0) & 0xfff);
                    self.vlan_layers += 1;
                    self.by_ether_type(be16(tag, 2), rest);
                }
            }
            // PPPoE session: version, code, session, length, protocol.
            0x8864 => {
                if let Some((header, rest)) = octets.split_at_checked(8) {
                    match be16(header, 6) {
                        0x0021 => self.ipv4(rest, false),
                        0x0057 => self.ipv6(rest, false),
                        _ => (),
                    }
                }
            }
            0x8847 | 0x8848 => self.mpls(octets),
            // Transparent Ethernet bridging (in GRE).
            0x6558 => self.ethernet(octets),
            _ => (),
        }
    }

    fn mpls(&mut self, mut octets: &[u8]) {
        while let Some((label, rest)) = octets.split_at_checked(4) {
            octets = rest;
            if label[2] & 1 == 1 {
                break;
            }
        }
        match octets.first().map(|octet| octet >> 4) {
            Some(4) => self.ipv4(octets, false),
            Some(6) => self.ipv6(octets, false),
            _ => (),
        }
    }

    fn ipv4(&mut self, octets: &[u8], reassembled: bool) {
        let Some(&first) = octets.first() else { return };
        let header_len = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || header_len < 20 || octets.len() < header_len {
            return;
        }
        let total = usize::from(be16(octets, 2));
        if total < header_len || total > octets.len() {
            return;
        }
        let (header, rest) = octets[..total].split_at(header_len);
        if self.checksums && !reassembled && checksum::fold(checksum::sum(header)) != 0xffff {
            return;
        }
        let fragment = be16(header, 6);
        let mut packet = Packet {
            version: 4,
            source: IpAddr::V4(Ipv4Addr::from(quad(header, 12))),
            destination: IpAddr::V4(Ipv4Addr::from(quad(header, 16))),
            protocol: header[9],
            ttl: header[8],
            tos: header[1],
            id: Some(be16(header, 4).into()),
            fragment_bits: (fragment >> 13) as u8,
            fragment_offset: fragment & 0x1fff,
            ..self.new_packet(header, reassembled)
        };
        ip_options(&header[20..], &mut packet);
        if fragment & 0x3fff != 0 {
            if let Some((mut header, data)) = self.fragment(packet, header, rest) {
                let total = header.len() + data.len();
                let Ok(total) = u16::try_from(total) else { return };
                header[2..4].copy_from_slice(&total.to_be_bytes());
                header[6..8].copy_from_slice(&[0, 0]);
                header.extend_from_slice(&data);
                self.inside(|decoder| decoder.ipv4(&header, true));
            }
            return;
        }
        let pseudo = checksum::sum(&header[12..20]);
        self.upper(packet, rest, pseudo);
    }

    fn ipv6(&mut self, octets: &[u8], reassembled: bool) {
        if octets.len() < 40 || octets[0] >> 4 != 6 {
            return;
        }
        let length = usize::from(be16(octets, 4));
        if 40 + length > octets.len() {
            return;
        }
        let (header, mut rest) = octets[..40 + length].split_at(40);
        let mut packet = Packet {
            version: 6,
            source: IpAddr::V6(Ipv6Addr::from(
                <[u8; 16]>::try_from(&header[8..24]).unwrap_or_default(),
            )),
            destination: IpAddr::V6(Ipv6Addr::from(
                <[u8; 16]>::try_from(&header[24..40]).unwrap_or_default(),
            )),
            protocol: header[6],
            ttl: header[7],
            tos: (be16(header, 0) >> 4 & 0xff) as u8,
            ..self.new_packet(header, reassembled)
        };
        loop {
            match packet.protocol {
                // Hop-by-hop, routing, destination options, mobility, HIP, Shim6; and AH, whose
                // length is in units of four octets.
                0 | 43 | 60 | 51 | 135 | 139 | 140 => {
                    let Some(&[next, units]) = rest.first_chunk() else { break };
                    let length = if packet.protocol == 51 {
                        (usize::from(units) + 2) * 4
                    } else {
                        (usize::from(units) + 1) * 8
                    };
                    if length > rest.len() {
                        break;
                    }
                    packet.protocol = next;
                    rest = &rest[length..];
                }
                44 => {
                    let Some((extension, data)) = rest.split_at_checked(8) else { break };
                    let field = be16(extension, 2);
                    packet.id = Some(be32(extension, 4));
                    packet.fragment_offset = field >> 3;
                    packet.fragment_bits = (field & 1) as u8;
                    packet.protocol = extension[0];
                    if field & 0xfff9 == 0 {
                        // This is an atomic fragment (RFC 6946): its offset is 0 and no fragment
                        // follows.
                        rest = data;
                        continue;
                    }
                    let protocol = packet.protocol;
                    if let Some((mut header, data)) = self.fragment(packet, header, data) {
                        let Ok(length) = u16::try_from(data.len()) else { return };
                        header[4..6].copy_from_slice(&length.to_be_bytes());
                        header[6] = protocol;
                        header.extend_from_slice(&data);
                        self.inside(|decoder| decoder.ipv6(&header, true));
                    }
                    return;
                }
                _ => break,
            }
        }
        let pseudo = checksum::sum(&header[8..40]);
        self.upper(packet, rest, pseudo);
    }

    /// A packet in which only the fields of its IP header are set.
    fn new_packet(&self, header: &[u8], reassembled: bool) -> Packet {
        Packet {
            at: self.at,
            vlan: self.vlan,
            vlan_layers: self.vlan_layers,
            version: 0,
            source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            protocol: 0,
            ttl: 0,
            tos: 0,
            id: None,
            fragment_bits: 0,
            fragment_offset: 0,
            is_fragment: false,
            reassembled,
            ip_options: vec![],
            ip_header: header.to_vec(),
            source_port: 0,
            destination_port: 0,
            upper_header: vec![],
            tcp: None,
            icmp: None,
            payload: vec![],
            events: vec![],
            has_upper: false,
        }
    }

    /// Adds a fragment that consists of `header` and data. Once the packet is complete, returns the
    /// first fragment's header and all data.
    fn fragment(
        &mut self,
        mut packet: Packet,
        header: &[u8],
        octets: &[u8],
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let whole = self.fragments.add(
            self.at,
            Fragment {
                source: packet.source,
                destination: packet.destination,
                protocol: packet.protocol,
                id: packet.id.unwrap_or(0),
                offset: usize::from(packet.fragment_offset) * 8,
                more: packet.fragment_bits & 1 != 0,
                header,
                octets,
            },
        );
        packet.is_fragment = true;
        self.packets.push(packet);
        whole
    }

    /// Decodes the transport layer. `pseudo` is the sum of both addresses, used in checksums.
    fn upper(&mut self, mut packet: Packet, octets: &[u8], pseudo: u64) {
        let pseudo = pseudo + u64::from(packet.protocol) + octets.len() as u64;
        let wrong =
            |octets: &[u8], pseudo: u64| checksum::fold(checksum::sum(octets) + pseudo) != 0xffff;
        match packet.protocol {
            TCP => {
                let Some(length) = octets.get(12).map(|offset| usize::from(offset >> 4) * 4) else {
                    packet.events.push("tcp.pkt_too_small");
                    return self.packets.push(packet);
                };
                if length < 20 || length > octets.len() {
                    packet.events.push(if length < 20 {
                        "tcp.hlen_too_small"
                    } else {
                        "tcp.invalid_optlen"
                    });
                    return self.packets.push(packet);
                }
                if self.checksums && wrong(octets, pseudo) {
                    return;
                }
                let (header, payload) = octets.split_at(length);
                let (mss, window_scale) = tcp_options(&header[20..]);
                packet.tcp = Some(Tcp {
                    sequence: be32(header, 4),
                    acknowledgment: be32(header, 8),
                    flags: header[13],
                    window: be16(header, 14),
                    mss,
                    window_scale,
                });
                packet.ports(header);
                packet.carries(header, payload);
            }
            UDP => {
                let Some(header) = octets.get(..8) else {
                    packet.events.push("udp.pkt_too_small");
                    return self.packets.push(packet);
                };
                let length = usize::from(be16(header, 4));
                if length < 8 || length > octets.len() {
                    packet.events.push("udp.len_invalid");
                    return self.packets.push(packet);
                }
                if self.checksums
                    && be16(header, 6) != 0
                    && length == octets.len()
                    && wrong(octets, pseudo)
                {
                    return;
                }
                packet.ports(header);
                packet.carries(header, &octets[8..length]);
                let inner = (packet.destination_port == 4789 && length >= 16)
                    .then(|| octets[16..length].to_vec());
                self.packets.push(packet);
                if let Some(inner) = inner {
                    self.inside(|decoder| decoder.ethernet(&inner));
                }
                return;
            }
            ICMP => {
                let Some(header) = octets.get(..8) else {
                    packet.events.push("icmpv4.pkt_too_small");
                    return self.packets.push(packet);
                };
                if self.checksums && wrong(octets, 0) {
                    return;
                }
                // Requests and replies of echo, timestamp, information and address mask have an
                // identifier.
                let numbered = matches!(header[0], 0 | 8 | 13..=18);
                packet.icmp = Some(Icmp {
                    kind: header[0],
                    code: header[1],
                    id: numbered.then(|| be16(header, 4)),
                    sequence: numbered.then(|| be16(header, 6)),
                    mtu: None,
                    properties: matches!(header[0], 3 | 4 | 5 | 11 | 12)
                        .then(|| embedded(&octets[8..]))
                        .flatten(),
                });
                packet.carries(header, &octets[8..]);
            }
            ICMP6 => {
                let Some(header) = octets.get(..8) else {
                    packet.events.push("icmpv6.pkt_too_small");
                    return self.packets.push(packet);
                };
                if self.checksums && wrong(octets, pseudo) {
                    return;
                }
                let numbered = matches!(header[0], 128 | 129);
                packet.icmp = Some(Icmp {
                    kind: header[0],
                    code: header[1],
                    id: numbered.then(|| be16(header, 4)),
                    sequence: numbered.then(|| be16(header, 6)),
                    mtu: (header[0] == 2).then(|| be32(header, 4)),
                    properties: (header[0] < 128).then(|| embedded(&octets[8..])).flatten(),
                });
                packet.carries(header, &octets[8..]);
            }
            SCTP => {
                if let Some((header, payload)) = octets.split_at_checked(12) {
                    packet.ports(header);
                    packet.carries(header, payload);
                }
            }
            // ESP: SPI and sequence number.
            50 => {
                if let Some((header, payload)) = octets.split_at_checked(8) {
                    packet.carries(header, payload);
                }
            }
            4 | 41 => {
                self.packets.push(packet);
                return self.inside(|decoder| match octets.first().map(|octet| octet >> 4) {
                    Some(4) => decoder.ipv4(octets, false),
                    Some(6) => decoder.ipv6(octets, false),
                    _ => (),
                });
            }
            47 => {
                self.packets.push(packet);
                return self.inside(|decoder| decoder.gre(octets));
            }
            _ => (),
        }
        self.packets.push(packet);
    }

    fn gre(&mut self, octets: &[u8]) {
        let Some((header, _)) = octets.split_at_checked(4) else { return };
        let (flags, kind) = (header[0], be16(header, 2));
        let version = header[1] & 7;
        let mut length = 4;
        for (bit, octets) in [(0xc0, 4), (0x20, 4), (0x10, 4)] {
            if flags & bit != 0 {
                length += octets;
            }
        }
        // GRE version 1 (PPTP, RFC 2637) has an acknowledgment number and carries PPP.
        if version == 1 && header[1] & 0x80 != 0 {
            length += 4;
        }
        let Some(rest) = octets.get(length..) else { return };
        match (version, kind) {
            (0, _) => self.by_ether_type(kind, rest),
            (1, 0x880b) => {
                let rest = rest.strip_prefix(&[0xff, 0x03]).unwrap_or(rest);
                match rest {
                    [0x00, 0x21, rest @ ..] | [0x21, rest @ ..] => self.ipv4(rest, false),
                    [0x00, 0x57, rest @ ..] | [0x57, rest @ ..] => self.ipv6(rest, false),
                    _ => (),
                }
            }
            _ => (),
        }
    }

    fn inside(&mut self, read: impl FnOnce(&mut Self)) {
        if self.layers < MAX_LAYERS {
            self.layers += 1;
            read(self);
            self.layers -= 1;
        }
    }
}

impl Packet {
    fn ports(&mut self, header: &[u8]) {
        self.source_port = be16(header, 0);
        self.destination_port = be16(header, 2);
    }

    fn carries(&mut self, header: &[u8], payload: &[u8]) {
        self.upper_header = header.to_vec();
        self.payload = payload.to_vec();
        self.has_upper = true;
    }

    /// Whether the packet is an ICMP error, which belongs to the flow of the packet that it quotes.
    pub fn is_icmp_error(&self) -> bool {
        match (self.protocol, self.icmp) {
            (ICMP, Some(icmp)) => matches!(icmp.kind, 3 | 4 | 5 | 11 | 12),
            (ICMP6, Some(icmp)) => icmp.kind < 128,
            _ => false,
        }
    }
}

fn ip_options(mut octets: &[u8], packet: &mut Packet) {
    while let Some(&kind) = octets.first() {
        packet.ip_options.push(kind);
        let length = match kind {
            0 => return,
            1 => 1,
            _ => octets.get(1).map_or(0, |&length| usize::from(length)),
        };
        if length == 0 || length > octets.len() || (kind != 1 && length < 2) {
            packet.events.push("ipv4.opt_invalid_len");
            return;
        }
        octets = &octets[length..];
    }
}

fn tcp_options(mut octets: &[u8]) -> (Option<u16>, Option<u8>) {
    let (mut mss, mut scale) = (None, None);
    while let Some(&kind) = octets.first() {
        let length = match kind {
            0 => break,
            1 => 1,
            _ => octets.get(1).map_or(0, |&length| usize::from(length)),
        };
        if length == 0 || length > octets.len() || (kind != 1 && length < 2) {
            break;
        }
        match (kind, length) {
            (2, 4) => mss = Some(be16(octets, 2)),
            (3, 3) => scale = Some(octets[2].min(14)),
            _ => (),
        }
        octets = &octets[length..];
    }
    (mss, scale)
}

/// Addresses and ports of the packet quoted in an ICMP error.
fn embedded(octets: &[u8]) -> Option<Embedded> {
    let first = octets.first()?;
    let (source, destination, protocol, rest): (IpAddr, IpAddr, u8, &[u8]) = match first >> 4 {
        4 => {
            let length = usize::from(first & 0xf) * 4;
            if length < 20 || octets.len() < length {
                return None;
            }
            (
                Ipv4Addr::from(quad(octets, 12)).into(),
                Ipv4Addr::from(quad(octets, 16)).into(),
                octets[9],
                &octets[length..],
            )
        }
        6 if octets.len() >= 40 => (
            Ipv6Addr::from(<[u8; 16]>::try_from(&octets[8..24]).ok()?).into(),
            Ipv6Addr::from(<[u8; 16]>::try_from(&octets[24..40]).ok()?).into(),
            octets[6],
            &octets[40..],
        ),
        _ => return None,
    };
    let (source_port, destination_port) = match protocol {
        TCP | UDP | SCTP if rest.len() >= 4 => (be16(rest, 0), be16(rest, 2)),
        _ => (0, 0),
    };
    Some(Embedded { source, destination, protocol, source_port, destination_port })
}

fn quad(octets: &[u8], at: usize) -> [u8; 4] {
    [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]
}
