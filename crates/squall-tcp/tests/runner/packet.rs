//! IP packets between the two ends of a script: writes the peer's, parses the subject's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use squall_wire::checksum;

use super::script::{Family, IcmpKind, SYN, TcpOption};

/// Addresses of the subject, and of the peer that the script plays.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    pub local: SocketAddr,
    pub peer: SocketAddr,
}

impl Ends {
    /// Documentation addresses of RFC 5737 and RFC 3849.
    pub fn of(family: Family) -> Self {
        let (local, peer): (IpAddr, IpAddr) = match family {
            Family::V4 => (Ipv4Addr::new(192, 0, 2, 1).into(), Ipv4Addr::new(192, 0, 2, 2).into()),
            Family::V6 => (
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
                Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2).into(),
            ),
        };
        Self { local: SocketAddr::new(local, 8080), peer: SocketAddr::new(peer, 40_000) }
    }
}

/// A segment with absolute numbers.
#[derive(Clone, Debug, Default)]
pub struct RawSegment {
    pub flags: u8,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub urgent: u16,
    pub options: Vec<TcpOption>,
    pub payload: Vec<u8>,
    pub ecn: u8,
}

/// Deliberate errors in a packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Harm {
    pub bad_checksum: bool,
    pub data_offset: Option<u8>,
    pub cut: Option<u16>,
}

const TCP: u8 = 6;

/// The octet at `offset` of the stream that the subject's application sends (`salt` 0) or that the
/// peer sends (1).
pub fn octet(salt: u32, offset: u32) -> u8 {
    // Not periodic in any segment length, so shifted or repeated data is noticed.
    (offset.wrapping_add(salt.wrapping_mul(77)).wrapping_mul(2_654_435_761) >> 24) as u8
}

pub fn octets(salt: u32, offset: u32, len: u32) -> Vec<u8> {
    (0..len).map(|i| octet(salt, offset.wrapping_add(i))).collect()
}

/// The peer's packet for `segment`.
pub fn write(ends: &Ends, segment: &RawSegment, harm: Harm) -> Vec<u8> {
    let mut options = vec![];
    segment.options.iter().for_each(|option| write_option(option, &mut options));
    options.resize(options.len().next_multiple_of(4), 0);
    let words = harm.data_offset.unwrap_or((20 + options.len()) as u8 / 4);
    let mut tcp = vec![];
    tcp.extend(ends.peer.port().to_be_bytes());
    tcp.extend(ends.local.port().to_be_bytes());
    tcp.extend(segment.seq.to_be_bytes());
    tcp.extend(segment.ack.to_be_bytes());
    tcp.extend([words << 4, segment.flags]);
    tcp.extend(segment.window.to_be_bytes());
    tcp.extend([0; 2]);
    tcp.extend(segment.urgent.to_be_bytes());
    tcp.extend(options);
    tcp.extend(&segment.payload);
    tcp.truncate(harm.cut.map_or(usize::MAX, usize::from));
    let mut sum = tcp_checksum(ends.peer.ip(), ends.local.ip(), &tcp);
    if harm.bad_checksum {
        sum = sum.wrapping_add(1);
    }
    if let Some(field) = tcp.get_mut(16..18) {
        field.copy_from_slice(&sum.to_be_bytes());
    }
    ip(ends.peer.ip(), ends.local.ip(), TCP, segment.ecn, &tcp)
}

fn write_option(option: &TcpOption, out: &mut Vec<u8>) {
    match option {
        TcpOption::Mss(octets) => {
            out.extend([2, 4]);
            out.extend(octets.unwrap_or(0).to_be_bytes());
        }
        TcpOption::WindowScale(shift) => out.extend([3, 3, shift.unwrap_or(0)]),
        TcpOption::SackPermitted => out.extend([4, 2]),
        TcpOption::Sack(blocks) => {
            out.extend([5, 2 + 8 * blocks.len() as u8]);
            blocks.iter().for_each(|(left, right)| {
                out.extend(left.to_be_bytes());
                out.extend(right.to_be_bytes());
            });
        }
        TcpOption::Timestamps { value, echo } => {
            out.extend([8, 10]);
            out.extend(value.unwrap_or(0).to_be_bytes());
            out.extend(echo.unwrap_or(0).to_be_bytes());
        }
        TcpOption::Nop => out.push(1),
        TcpOption::End => out.push(0),
        TcpOption::Octets(octets) => out.extend(octets),
    }
}

/// An ICMP error from the peer's side about `quoted`, a packet sent by the subject.
pub fn write_icmp(ends: &Ends, kind: IcmpKind, quoted: &[u8]) -> Vec<u8> {
    let v4 = ends.local.is_ipv4();
    // RFC 792 and 1191; RFC 4443 has no source quench.
    let (kind, code, word): (u8, u8, u32) = match (kind, v4) {
        (IcmpKind::Net, true) => (3, 0, 0),
        (IcmpKind::Host, true) => (3, 1, 0),
        (IcmpKind::Protocol, true) => (3, 2, 0),
        (IcmpKind::Port, true) => (3, 3, 0),
        (IcmpKind::Prohibited, true) => (3, 13, 0),
        (IcmpKind::TooBig { mtu }, true) => (3, 4, mtu.into()),
        (IcmpKind::SourceQuench, true) => (4, 0, 0),
        (IcmpKind::TimeExceeded, true) => (11, 0, 0),
        (IcmpKind::Net, false) => (1, 0, 0),
        (IcmpKind::Host, false) => (1, 3, 0),
        (IcmpKind::Protocol, false) => (4, 1, 6),
        (IcmpKind::Port, false) => (1, 4, 0),
        (IcmpKind::Prohibited | IcmpKind::SourceQuench, false) => (1, 1, 0),
        (IcmpKind::TooBig { mtu }, false) => (2, 0, mtu.into()),
        (IcmpKind::TimeExceeded, false) => (3, 0, 0),
    };
    let mut icmp = vec![kind, code, 0, 0];
    icmp.extend(word.to_be_bytes());
    // The IP header and 8 octets (RFC 792): enough for the sequence number.
    let header = if v4 { 20 } else { 40 };
    icmp.extend(&quoted[..quoted.len().min(header + 8)]);
    let protocol = if v4 { 1 } else { 58 };
    let pseudo =
        if v4 { 0 } else { pseudo_header(ends.peer.ip(), ends.local.ip(), protocol, icmp.len()) };
    let sum = !checksum::fold(pseudo + checksum::sum(&icmp));
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(ends.peer.ip(), ends.local.ip(), protocol, 0, &icmp)
}

fn ip(from: IpAddr, to: IpAddr, protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![];
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend([0x45, ecn]);
            packet.extend((20 + payload.len() as u16).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = !checksum::fold(checksum::sum(&packet));
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, ecn << 4, 0, 0]);
            packet.extend((payload.len() as u16).to_be_bytes());
            packet.extend([protocol, 64]);
            packet.extend(from.octets());
            packet.extend(to.octets());
        }
        _ => unreachable!("both ends are of one family"),
    }
    packet.extend(payload);
    packet
}

fn pseudo_header(from: IpAddr, to: IpAddr, protocol: u8, len: usize) -> u64 {
    let addresses = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            checksum::sum(&from.octets()) + checksum::sum(&to.octets())
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            checksum::sum(&from.octets()) + checksum::sum(&to.octets())
        }
        _ => unreachable!("both ends are of one family"),
    };
    addresses + u64::from(protocol) + len as u64
}

/// The checksum of a segment whose checksum field is 0; for a segment with a checksum, 0 if it is
/// correct.
fn tcp_checksum(from: IpAddr, to: IpAddr, tcp: &[u8]) -> u16 {
    !checksum::fold(pseudo_header(from, to, TCP, tcp.len()) + checksum::sum(tcp))
}

/// Parses a packet from the subject. `Ok(None)`: it belongs to another flow. The error describes
/// how it is malformed.
pub fn read(ends: &Ends, packet: &[u8]) -> Result<Option<RawSegment>, String> {
    let (ecn, protocol, from, to, tcp): (u8, u8, IpAddr, IpAddr, &[u8]) = match packet
        .first()
        .map(|first| first >> 4)
    {
        Some(4) if packet.len() >= 20 => {
            let total = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            if packet[0] != 0x45 || total < 20 || total > packet.len() {
                return Err(format!(
                    "an IPv4 header of {:#x} with a length of {total} in {} octets",
                    packet[0],
                    packet.len()
                ));
            }
            if checksum::fold(checksum::sum(&packet[..20])) != 0xffff {
                return Err("an IPv4 header with a wrong checksum".into());
            }
            let address = |at: usize| {
                Ipv4Addr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).expect("4 octets"))
            };
            (packet[1] & 3, packet[9], address(12).into(), address(16).into(), &packet[20..total])
        }
        Some(6) if packet.len() >= 40 => {
            let total = 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
            if total > packet.len() {
                return Err(format!(
                    "an IPv6 header with a length of {total} in {} octets",
                    packet.len()
                ));
            }
            let address = |at: usize| {
                Ipv6Addr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).expect("16 octets"))
            };
            (
                packet[1] >> 4 & 3,
                packet[6],
                address(8).into(),
                address(24).into(),
                &packet[40..total],
            )
        }
        _ => return Err(format!("a packet of {} octets that is no IP", packet.len())),
    };
    if (from, to, protocol) != (ends.local.ip(), ends.peer.ip(), TCP) {
        return Ok(None);
    }
    let words = tcp.get(12).map_or(0, |octet| octet >> 4);
    let header = usize::from(words) * 4;
    if header < 20 || header > tcp.len() {
        return Err(format!("a TCP header of {words} words in {} octets", tcp.len()));
    }
    if tcp_checksum(from, to, tcp) != 0 {
        return Err("a segment with a wrong checksum".into());
    }
    let short = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    if (short(0), short(2)) != (ends.local.port(), ends.peer.port()) {
        return Ok(None);
    }
    Ok(Some(RawSegment {
        flags: tcp[13],
        seq: long(tcp, 4),
        ack: long(tcp, 8),
        window: short(14),
        urgent: short(18),
        options: read_options(&tcp[20..header], tcp[13] & SYN != 0)?,
        payload: tcp[header..].to_vec(),
        ecn,
    }))
}

fn long(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

fn read_options(mut octets: &[u8], syn: bool) -> Result<Vec<TcpOption>, String> {
    let mut options = vec![];
    while let Some((&kind, rest)) = octets.split_first() {
        if kind <= 1 {
            options.push(if kind == 0 { TcpOption::End } else { TcpOption::Nop });
            octets = rest;
            continue;
        }
        let len = usize::from(rest.first().copied().unwrap_or(0));
        let Some(body) = octets.get(2..len) else {
            return Err(format!("an option of kind {kind} and length {len}"));
        };
        options.push(match (kind, body.len()) {
            (2, 2) if syn => TcpOption::Mss(Some(u16::from_be_bytes([body[0], body[1]]))),
            (3, 1) if syn => TcpOption::WindowScale(Some(body[0])),
            (4, 0) if syn => TcpOption::SackPermitted,
            (5, n) if n > 0 && n % 8 == 0 => TcpOption::Sack(
                body.chunks(8).map(|block| (long(block, 0), long(block, 4))).collect(),
            ),
            (8, 8) => {
                TcpOption::Timestamps { value: Some(long(body, 0)), echo: Some(long(body, 4)) }
            }
            _ => TcpOption::Octets(octets[..len].to_vec()),
        });
        octets = &octets[len..];
    }
    Ok(options)
}
