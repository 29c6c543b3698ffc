//! Parses and writes IP packets. Every check is made only once, on receipt.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{be16, be32};
use squall_wire::{
    Ipv6Octets, checksum,
    tcp_flags::{ACK, FIN, RST, SYN},
};

use crate::{FlowKind, Tuple};

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMP: u8 = 1;
pub(crate) const ICMP6: u8 = 58;

pub(crate) const IPV4: usize = 20;
pub(crate) const IPV6: usize = 40;
pub(crate) const TCP_HEADER: usize = 20;
pub(crate) const UDP_HEADER: usize = 8;

/// Congestion experienced (RFC 3168 §5).
pub(crate) const CE: u8 = 3;

/// Why a packet is rejected. Each reason has a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reject {
    NotIp,
    Malformed,
    IpChecksum,
    Fragment,
    TcpChecksum,
    UdpChecksum,
    IcmpChecksum,
    Protocol,
}

/// Addresses of a packet: `local` is the destination of a received packet, and the source of a sent
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    V4 { local: u32, remote: u32 },
    V6 { local: Ipv6Octets, remote: Ipv6Octets },
}

impl Addresses {
    #[inline]
    pub fn of(local: IpAddr, remote: IpAddr) -> Option<Self> {
        match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                Some(Self::V4 { local: local.into(), remote: remote.into() })
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                Some(Self::V6 { local: local.into(), remote: remote.into() })
            }
            _ => None,
        }
    }

    /// The addresses of a received packet with this header.
    #[inline(always)]
    pub fn from4(header: &[u8; IPV4]) -> Self {
        Self::V4 { local: be32(header, 16), remote: be32(header, 12) }
    }

    /// The addresses of a received packet with this header.
    #[inline(always)]
    pub fn from6(header: &[u8; IPV6]) -> Self {
        let address = |at: usize| Ipv6Octets::read(header[at..].first_chunk().expect("16 octets"));
        Self::V6 { local: address(24), remote: address(8) }
    }

    #[inline]
    pub fn local(self) -> IpAddr {
        match self {
            Self::V4 { local, .. } => IpAddr::V4(Ipv4Addr::from(local)),
            Self::V6 { local, .. } => IpAddr::V6(Ipv6Addr::from(local)),
        }
    }

    #[inline]
    pub fn remote(self) -> IpAddr {
        match self {
            Self::V4 { remote, .. } => IpAddr::V4(Ipv4Addr::from(remote)),
            Self::V6 { remote, .. } => IpAddr::V6(Ipv6Addr::from(remote)),
        }
    }

    /// The contribution of the addresses and the protocol to the pseudo-header sum, and to that of
    /// an IPv4 header.
    #[inline(always)]
    pub fn pseudo(self, protocol: u8) -> u64 {
        self.sum() + u64::from(protocol)
    }

    #[inline(always)]
    fn sum(self) -> u64 {
        match self {
            Self::V4 { local, remote } => u64::from(local) + u64::from(remote),
            Self::V6 { local, remote } => {
                let sum = u64::from_be(checksum::add(local.sum(), remote.sum()));
                // Leaves room for the sum of a packet.
                (sum >> 32) + (sum & 0xffff_ffff)
            }
        }
    }
}

/// Identifies a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub addresses: Addresses,
    pub local_port: u16,
    pub remote_port: u16,
    pub udp: bool,
}

impl Key {
    #[inline]
    pub fn of(tuple: &Tuple) -> Option<Self> {
        Some(Self {
            addresses: Addresses::of(tuple.local, tuple.remote)?,
            local_port: tuple.local_port,
            remote_port: tuple.remote_port,
            udp: tuple.kind == FlowKind::Udp,
        })
    }

    /// The key of a TCP flow, with the ports as in a received segment.
    #[inline(always)]
    fn of_ports(addresses: Addresses, ports: u32) -> Self {
        let (remote_port, local_port) = ((ports >> 16) as u16, ports as u16);
        Self { addresses, local_port, remote_port, udp: false }
    }

    #[inline]
    pub fn tuple(&self) -> Tuple {
        Tuple {
            kind: if self.udp { FlowKind::Udp } else { FlowKind::Tcp },
            local: self.addresses.local(),
            local_port: self.local_port,
            remote: self.addresses.remote(),
            remote_port: self.remote_port,
        }
    }
}

/// An IP packet, parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip<'a> {
    pub addresses: Addresses,
    pub protocol: u8,
    /// Type of service (IPv4), traffic class (IPv6).
    pub tos: u8,
    pub payload: &'a [u8],
}

impl<'a> Ip<'a> {
    /// `packet` may be longer than its length field says, because Ethernet pads short frames.
    #[inline(always)]
    pub fn read(packet: &'a [u8], verify: bool) -> Result<Self, Reject> {
        match packet.first().map(|b| b >> 4) {
            Some(4) => Self::read4(packet, verify),
            Some(6) => Self::read6(packet),
            _ => Err(Reject::NotIp),
        }
    }

    #[inline(always)]
    fn read4(packet: &'a [u8], verify: bool) -> Result<Self, Reject> {
        let header = packet.first_chunk::<IPV4>().ok_or(Reject::Malformed)?;
        let header_len = usize::from(header[0] & 15) * 4;
        let len = usize::from(be16(header, 2));
        if header_len < IPV4 || len < header_len || len > packet.len() {
            return Err(Reject::Malformed);
        }
        let sum = match header_len {
            IPV4 => header_sum(header),
            _ => checksum::sum(&packet[..header_len]),
        };
        if verify && checksum::fold(sum) != 0xffff {
            return Err(Reject::IpChecksum);
        }
        // The more-fragments flag or an offset. Reassembly is not supported: hosts that run path
        // MTU discovery do not fragment TCP.
        if be16(header, 6) & 0x3fff != 0 {
            return Err(Reject::Fragment);
        }
        Ok(Self {
            addresses: Addresses::from4(header),
            protocol: header[9],
            tos: header[1],
            payload: &packet[header_len..len],
        })
    }

    fn read6(packet: &'a [u8]) -> Result<Self, Reject> {
        let header = packet.first_chunk::<IPV6>().ok_or(Reject::Malformed)?;
        let end = IPV6 + usize::from(be16(header, 4));
        if end > packet.len() {
            return Err(Reject::Malformed);
        }
        let (mut protocol, mut at) = (header[6], IPV6);
        // Hop-by-hop 0, routing 43, destination options 60 (RFC 8200 §4); 44 is a fragment header.
        while matches!(protocol, 0 | 43 | 60 | 44) {
            if protocol == 44 {
                return Err(Reject::Fragment);
            }
            let next = packet[at..end].first_chunk::<8>().ok_or(Reject::Malformed)?;
            protocol = next[0];
            at += 8 * (usize::from(next[1]) + 1);
            if at > end {
                return Err(Reject::Malformed);
            }
        }
        Ok(Self {
            addresses: Addresses::from6(header),
            protocol,
            tos: header[0] << 4 | header[1] >> 4,
            payload: &packet[at..end],
        })
    }

    /// Length of the packet without IP options or extension headers, octets.
    #[inline]
    pub fn octets(&self) -> usize {
        ip_len(self.addresses) + self.payload.len()
    }

    /// Whether the TCP, UDP or ICMPv6 checksum is correct.
    #[inline]
    pub fn checksum_is_good(&self) -> bool {
        let pseudo = self.addresses.pseudo(self.protocol) + self.payload.len() as u64;
        checksum::fold(pseudo + checksum::sum(self.payload)) == 0xffff
    }
}

/// Identifies the flow of a TCP packet without IP options or extension headers. Reads nothing
/// else of the packet.
#[inline(always)]
pub(crate) fn usual_key<const V6: bool>(packet: &[u8]) -> Option<Key> {
    if V6 {
        let head = packet.first_chunk::<{ IPV6 + 4 }>()?;
        if head[0] >> 4 != 6 || head[6] != TCP {
            return None;
        }
        return Some(Key::of_ports(Addresses::from6(head.first_chunk()?), be32(head, IPV6)));
    }
    let head = packet.first_chunk::<{ IPV4 + 4 }>()?;
    if head[0] != 0x45 || head[9] != TCP {
        return None;
    }
    Some(Key::of_ports(Addresses::from4(head.first_chunk()?), be32(head, IPV4)))
}

/// A TCP packet without IP options or extension headers.
struct Usual<'a> {
    addresses: Addresses,
    /// Type of service or traffic class.
    tos: u8,
    /// The sum of the pseudo-header, as [`checksum::native`].
    pseudo: u64,
    segment: &'a [u8],
}

impl<'a> Usual<'a> {
    /// `None` for any other packet. The checksum of an IPv4 header is not verified.
    #[inline(always)]
    fn read<const V6: bool>(packet: &'a [u8]) -> Option<Self> {
        let (addresses, tos, sum, segment) = if V6 {
            let head = packet.first_chunk::<IPV6>()?;
            let first = be32(head, 0);
            if first >> 28 != 6 || head[6] != TCP {
                return None;
            }
            let segment = packet.get(IPV6..IPV6 + usize::from(be16(head, 4)))?;
            let (addresses, _) = head[8..].as_chunks::<8>();
            let sum = addresses.iter().fold(0, |sum, word| checksum::add(sum, native64(word)));
            (Addresses::from6(head), (first >> 20) as u8, sum, segment)
        } else {
            let head = packet.first_chunk::<IPV4>()?;
            // In words of 8 octets, because fields of 1 to 4 would be loads of their own.
            let first = u64::from_be_bytes(*head.first_chunk()?);
            // Version, header length, fragment.
            if first & 0xff00_0000_0000_3fff != 0x45 << 56 || head[9] != TCP {
                return None;
            }
            let segment = packet.get(IPV4..usize::from((first >> 32) as u16))?;
            let (_, both) = head.split_first_chunk::<12>()?;
            let both = native64(both.first_chunk()?);
            let pair = u64::from_be(both);
            let addresses = Addresses::V4 { local: pair as u32, remote: (pair >> 32) as u32 };
            (addresses, (first >> 48) as u8, both, segment)
        };
        let rest = (segment.len() as u32 + u32::from(TCP)).to_be();
        Some(Self { addresses, tos, pseudo: checksum::add(sum, rest.into()), segment })
    }
}

/// Whether the header of an IPv4 packet without options has a correct checksum.
#[inline(always)]
fn is_good<const V6: bool>(packet: &[u8]) -> bool {
    match packet.first_chunk() {
        Some(head) if !V6 => checksum::fold(native_header_sum(head)) == 0xffff,
        _ => V6,
    }
}

/// Sum of an IPv4 header without options, as [`checksum::native`].
#[inline(always)]
fn native_header_sum(header: &[u8; IPV4]) -> u64 {
    let (words, last) = header.as_chunks::<8>();
    let sum = checksum::add(native64(&words[0]), native64(&words[1]));
    checksum::add(sum, u32::from_ne_bytes([last[0], last[1], last[2], last[3]]).into())
}

/// Sum of the ten 16-bit words of an IPv4 header without options. The ones' complement sum allows
/// wider words (RFC 1071 §2), so five additions are enough.
#[inline]
fn header_sum(header: &[u8; IPV4]) -> u64 {
    words(header)
}

/// Sum of the octets as words of 32 bits; their number is a multiple of four.
#[inline(always)]
fn words<const N: usize>(octets: &[u8; N]) -> u64 {
    (0..N / 4).map(|i| u64::from(be32(octets, 4 * i))).sum()
}

/// The octets as a number in host byte order.
#[inline(always)]
fn native64(octets: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*octets)
}

/// Two NOPs, then kind and length of the timestamps option: the layout that RFC 7323, appendix A,
/// recommends, and that all common stacks use in segments other than SYN.
pub(crate) const ALIGNED_STAMPS: u32 = 0x0101_080a;

/// The options of a TCP segment that the stack understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub mss: Option<u16>,
    pub wscale: Option<u8>,
    pub sack_permitted: bool,
    /// TSval, TSecr.
    pub timestamps: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// The IP header is marked "congestion experienced".
    pub marked: bool,
    pub window: u16,
    /// TSval, TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// All options; empty if the only one is timestamps.
    pub options: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a TCP packet without IP options or extension headers, with aligned timestamps or no
    /// TCP options, and neither SYN nor RST. `None` for anything else, damaged packets included, so
    /// that the slow path counts the reason.
    #[inline(always)]
    pub fn read_fast<const V6: bool>(packet: &'a [u8], verify: bool) -> Option<(Key, Self)> {
        let Usual { addresses, tos, pseudo, segment: octets } = Usual::read::<V6>(packet)?;
        let head = octets.first_chunk::<TCP_HEADER>()?;
        if head[13] & (SYN | RST | ACK) != ACK {
            return None;
        }
        let (timestamps, payload) = match head[12] >> 4 {
            5 => (None, &octets[TCP_HEADER..]),
            8 => {
                let (head, payload) = octets.split_first_chunk::<STAMPED>()?;
                if be32(head, 20) != ALIGNED_STAMPS {
                    return None;
                }
                (Some((be32(head, 24), be32(head, 28))), payload)
            }
            _ => return None,
        };
        if verify {
            let sum = checksum::add(pseudo, checksum::native(octets));
            if !is_good::<V6>(packet) || checksum::fold(sum) != 0xffff {
                return None;
            }
        }
        let key = Key::of_ports(addresses, be32(head, 0));
        Some((key, Self::of(head, tos, timestamps, &[], payload)))
    }

    /// As [`Segment::read_fast`], for segments with timestamps, which most are: it reads each octet
    /// once, for its field and for the checksums.
    #[inline(always)]
    pub fn read_stamped<const V6: bool>(packet: &'a [u8], verify: bool) -> Option<(Key, Self)> {
        let Usual { addresses, tos, pseudo, segment: octets } = Usual::read::<V6>(packet)?;
        let (head, payload) = octets.split_first_chunk::<STAMPED>()?;
        let [a, b, c, d] = head.as_chunks::<8>().0.first_chunk()?;
        let [a, b, c, d] = [native64(a), native64(b), native64(c), native64(d)];
        let (first, second) = (u64::from_be(a), u64::from_be(b));
        // Data offset and flags.
        let flags = |offset: u32, flags: u8| offset << 28 | u32::from(flags) << 16;
        let usual = second as u32 & flags(15, SYN | RST | ACK) == flags(8, ACK)
            && u64::from_be(c) as u32 == ALIGNED_STAMPS;
        if !usual {
            return None;
        }
        if verify {
            let mut sum = pseudo;
            for word in [a, b, c, d] {
                sum = checksum::add(sum, word);
            }
            if !payload.is_empty() {
                sum = checksum::add(sum, checksum::native(payload));
            }
            if !is_good::<V6>(packet) || checksum::fold(sum) != 0xffff {
                return None;
            }
        }
        let stamps = u64::from_be(d);
        let segment = Self {
            seq: first as u32,
            ack: (second >> 32) as u32,
            flags: (second >> 16) as u8,
            window: second as u16,
            timestamps: Some(((stamps >> 32) as u32, stamps as u32)),
            options: &[],
            payload,
            marked: tos & 3 == CE,
        };
        Some((Key::of_ports(addresses, (first >> 32) as u32), segment))
    }

    /// As [`Segment::read_fast`], for a SYN or SYN-ACK that has 20 octets of options, as those of
    /// Linux and of Squall, and no data.
    #[inline(always)]
    pub fn read_syn<const V6: bool>(
        packet: &'a [u8],
        verify: bool,
    ) -> Option<(Key, Self, Options)> {
        let Usual { addresses, tos, pseudo, segment } = Usual::read::<V6>(packet)?;
        let segment: &[u8; SYN_HEADER] = segment.as_array()?;
        let (head, options) = segment.split_first_chunk::<TCP_HEADER>()?;
        if usize::from(head[12] >> 4) * 4 != SYN_HEADER || head[13] & (SYN | RST | FIN) != SYN {
            return None;
        }
        if verify {
            let mut sum = pseudo;
            for word in segment.as_chunks::<8>().0 {
                sum = checksum::add(sum, native64(word));
            }
            if !is_good::<V6>(packet) || checksum::fold(sum) != 0xffff {
                return None;
            }
        }
        let key = Key::of_ports(addresses, be32(head, 0));
        let read = Options::read(options);
        Some((key, Self::of(head, tos, read.timestamps, options, &[]), read))
    }

    #[inline(always)]
    fn of(
        head: &[u8; TCP_HEADER],
        tos: u8,
        timestamps: Option<(u32, u32)>,
        options: &'a [u8],
        payload: &'a [u8],
    ) -> Self {
        Self {
            seq: be32(head, 4),
            ack: be32(head, 8),
            flags: head[13],
            window: be16(head, 14),
            timestamps,
            options,
            payload,
            marked: tos & 3 == CE,
        }
    }

    /// Ports (source, destination) and the segment.
    #[inline(always)]
    pub fn read(ip: &Ip<'a>) -> Result<(u16, u16, Self), Reject> {
        let octets = ip.payload;
        let header = octets.first_chunk::<TCP_HEADER>().ok_or(Reject::Malformed)?;
        let offset = usize::from(header[12] >> 4) * 4;
        if offset < TCP_HEADER || offset > octets.len() {
            return Err(Reject::Malformed);
        }
        let (head, payload) = octets.split_at(offset);
        let mut options = &head[TCP_HEADER..];
        let mut timestamps = None;
        if let Some(all) = options.as_array::<12>()
            && be32(all, 0) == ALIGNED_STAMPS
        {
            timestamps = Some((be32(all, 4), be32(all, 8)));
            options = &[];
        } else if !options.is_empty() {
            timestamps = Options::read(options).timestamps;
        }
        let segment = Self::of(header, ip.tos, timestamps, options, payload);
        Ok((be16(header, 0), be16(header, 2), segment))
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// SEG.LEN: octets of payload, plus SYN and FIN.
    #[inline]
    pub fn seq_len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }
}

impl Options {
    /// Parses options. Tries the layout of a Linux SYN first, because most peers send it, including
    /// Squall.
    #[inline]
    pub fn read(octets: &[u8]) -> Self {
        if let Some(all) = octets.as_array::<20>()
            && be32(all, 0) >> 16 == 0x0204
            && be32(all, 4) == 0x0402_080a
            && be32(all, 16) >> 8 == 0x01_0303
        {
            return Self {
                mss: Some(be16(all, 2)),
                sack_permitted: true,
                timestamps: Some((be32(all, 8), be32(all, 12))),
                wscale: Some(all[19].min(14)),
            };
        }
        Self::read_any(octets)
    }

    #[inline(never)]
    fn read_any(octets: &[u8]) -> Self {
        let mut options = Self::default();
        each_option(octets, |kind, body| options.take(kind, body));
        options
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (2, [a, b]) => self.mss = Some(u16::from_be_bytes([*a, *b])),
            // A shift above 14 counts as 14 (RFC 7323 §2.3).
            (3, [shift]) => self.wscale = Some((*shift).min(14)),
            (4, []) => self.sack_permitted = true,
            (8, body) if body.len() == 8 => self.timestamps = Some((be32(body, 0), be32(body, 4))),
            _ => (),
        }
    }
}

/// Left and right edges of the SACK blocks, and their number.
pub(crate) fn sack_blocks(octets: &[u8]) -> ([(u32, u32); 4], usize) {
    let (mut blocks, mut n) = ([(0, 0); 4], 0);
    each_option(octets, |kind, body| {
        if kind == 5 && body.len() % 8 == 0 {
            for block in body.chunks_exact(8).take(4 - n) {
                blocks[n] = (be32(block, 0), be32(block, 4));
                n += 1;
            }
        }
    });
    (blocks, n)
}

/// Calls `each` with kind and body of each option. An impossible length ends the list, because the
/// position of the next option is unknown; earlier options are valid (RFC 9293 §3.1, MUST-6,
/// MUST-7).
fn each_option(octets: &[u8], mut each: impl FnMut(u8, &[u8])) {
    let mut rest = octets;
    while let [kind, tail @ ..] = rest {
        rest = match (kind, tail) {
            (0, _) => break,
            (1, _) => tail,
            (_, [len, ..]) if (2..=rest.len()).contains(&usize::from(*len)) => {
                let (option, after) = rest.split_at(usize::from(*len));
                each(*kind, &option[2..]);
                after
            }
            _ => break,
        };
    }
}

#[inline]
pub(crate) fn put16(octets: &mut [u8], at: usize, value: u16) {
    octets[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[inline]
pub(crate) fn put32(octets: &mut [u8], at: usize, value: u32) {
    octets[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Length of the IP header, octets.
#[inline]
pub(crate) fn ip_len(addresses: Addresses) -> usize {
    match addresses {
        Addresses::V4 { .. } => IPV4,
        Addresses::V6 { .. } => IPV6,
    }
}

/// Two words, one after the other, which are then one store.
#[inline(always)]
fn octets_of(first: u32, second: u32) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

/// Writes the IP header of `packet`, from the local to the remote address. A packet has at most
/// 65,535 octets. `pseudo`: [`Addresses::pseudo`] of `protocol`.
#[inline(always)]
pub(crate) fn write_ip(
    packet: &mut [u8],
    addresses: Addresses,
    (protocol, pseudo): (u8, u64),
    tos: u8,
    ttl: u8,
    id: u16,
) {
    match addresses {
        Addresses::V4 { local, remote } => {
            let len = packet.len() as u64;
            let header = packet.first_chunk_mut::<IPV4>().expect("room for its header");
            // Don't fragment: TCP relies on path MTU discovery (RFC 1191), and the fragments of a
            // datagram would no longer match the profile.
            let first =
                0x4500_0000_0000_4000 | u64::from(tos) << 48 | len << 32 | u64::from(id) << 16;
            let ttl = u32::from(ttl) << 24;
            let sum = u32::from(!checksum::fold(first + u64::from(ttl) + pseudo));
            let (places, last) = header.as_chunks_mut::<8>();
            places[0] = first.to_be_bytes();
            places[1] = octets_of(ttl | u32::from(protocol) << 16 | sum, local);
            *last.first_chunk_mut().expect("20 octets") = remote.to_be_bytes();
        }
        Addresses::V6 { local, remote } => {
            let len = (packet.len() - IPV6) as u16;
            let header = packet.first_chunk_mut::<IPV6>().expect("room for its header");
            let first = 6 << 28 | u32::from(tos) << 20;
            let second = u32::from(len) << 16 | u32::from(protocol) << 8 | u32::from(ttl);
            let (places, _) = header.as_chunks_mut::<8>();
            places[0] = octets_of(first, second);
            // As words: `copy_from_slice` would be a call for each address.
            let words = [local.upper, local.lower, remote.upper, remote.lower];
            for (place, word) in places[1..].iter_mut().zip(words) {
                *place = word.to_ne_bytes();
            }
        }
    }
}

/// Options of a segment to be written, in words of four octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OptionWords {
    words: [u32; 10],
    len: usize,
}

impl OptionWords {
    /// # Panics
    /// If there are ten already: a data offset of 15 leaves 40 octets (RFC 9293 §3.1).
    #[inline]
    pub fn push(&mut self, word: u32) {
        self.words[self.len] = word;
        self.len += 1;
    }

    /// Timestamps, aligned as in RFC 7323, appendix A.
    #[inline]
    pub fn stamps(value: u32, echo: u32) -> Self {
        Self { words: [ALIGNED_STAMPS, value, echo, 0, 0, 0, 0, 0, 0, 0], len: 3 }
    }

    /// Length, octets.
    #[inline]
    pub fn octets(&self) -> usize {
        self.len * 4
    }
}

/// The fields of a TCP header that vary, apart from options.
pub(crate) struct TcpHeader {
    pub local_port: u16,
    pub remote_port: u16,
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub window: u16,
}

impl TcpHeader {
    /// The words of a header of `len` octets up to the checksum.
    #[inline(always)]
    fn words(&self, len: usize) -> [u32; 4] {
        [
            u32::from(self.local_port) << 16 | u32::from(self.remote_port),
            self.seq,
            self.ack,
            (len as u32 / 4) << 28 | u32::from(self.flags) << 16 | u32::from(self.window),
        ]
    }
}

/// Writes the header of `segment`, whose payload is already present, and its checksum. `pseudo`:
/// [`Addresses::pseudo`]. With `partial` it is the sum of the pseudo-header alone, because the code
/// or NIC that segments a GSO packet completes it for each segment.
#[inline]
pub(crate) fn write_tcp(
    segment: &mut [u8],
    pseudo: u64,
    header: &TcpHeader,
    options: &OptionWords,
    partial: bool,
) {
    let len = segment.len();
    let offset = TCP_HEADER + options.octets();
    let (head, payload) = segment.split_at_mut(offset);
    let words = header.words(offset);
    let (fixed, places) = head.split_first_chunk_mut::<TCP_HEADER>().expect("room for its header");
    let mut sum = pseudo + len as u64;
    for (place, word) in fixed.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *place = word.to_be_bytes();
    }
    if !partial {
        sum += words.iter().map(|w| u64::from(*w)).sum::<u64>();
    }
    for (place, word) in places.as_chunks_mut::<4>().0.iter_mut().zip(options.words) {
        *place = word.to_be_bytes();
        sum += if partial { 0 } else { u64::from(word) };
    }
    let sum = match (partial, payload.is_empty()) {
        (true, _) => checksum::fold(sum),
        (false, true) => !checksum::fold(sum),
        (false, false) => !checksum::fold(sum + checksum::sum(payload)),
    };
    put32(fixed, 16, u32::from(sum) << 16);
}

/// Octets of TCP headers: with timestamps, and of a SYN with all options.
pub(crate) const STAMPED: usize = TCP_HEADER + 12;
pub(crate) const SYN_HEADER: usize = TCP_HEADER + 20;

/// [`write_tcp`] for a number of options that is known when it is compiled. `payload`: its
/// [`checksum::sum`].
#[inline(always)]
pub(crate) fn write_tcp_with<const OPTIONS: usize>(
    segment: &mut [u8],
    pseudo: u64,
    header: &TcpHeader,
    options: [u32; OPTIONS],
    payload: u64,
) {
    let len = segment.len() as u64;
    let (places, _) = segment[..TCP_HEADER + 4 * OPTIONS].as_chunks_mut::<8>();
    let words = header.words(TCP_HEADER + 4 * OPTIONS);
    let mut sum = pseudo + len + payload;
    for word in words {
        sum += u64::from(word);
    }
    for word in options {
        sum += u64::from(word);
    }
    let last = u32::from(!checksum::fold(sum)) << 16;
    let [ports, seq, ack, flags] = words;
    places[0] = octets_of(ports, seq);
    places[1] = octets_of(ack, flags);
    if OPTIONS == 0 {
        return put32(segment, 16, last);
    }
    // Timestamps are three words, and all options of a SYN five. Not by iterators, which are not
    // all inlined.
    places[2] = octets_of(last, options[0]);
    let mut n = 1;
    while n + 1 < OPTIONS {
        places[n.div_ceil(2) + 2] = octets_of(options[n], options[n + 1]);
        n += 2;
    }
}

/// Writes the header of the datagram in `octets`, whose payload is already present.
pub(crate) fn write_udp(
    octets: &mut [u8],
    addresses: Addresses,
    local_port: u16,
    remote_port: u16,
) {
    let len = octets.len();
    put16(octets, 0, local_port);
    put16(octets, 2, remote_port);
    put16(octets, 4, len as u16);
    put16(octets, 6, 0);
    let sum = !checksum::fold(addresses.pseudo(UDP) + len as u64 + checksum::sum(octets));
    // A checksum field of 0 means "none", so a computed 0 is sent as 0xffff, which is equal in
    // ones' complement (RFC 768).
    put16(octets, 6, if sum == 0 { 0xffff } else { sum });
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};
    use squall_wire::tcp_flags::PSH;

    use super::*;

    /// Options of a SYN, in the order of Linux.
    const SYN_OPTIONS: [u32; 5] = [0x0204_05b4, 0x0402_080a, 7, 0, 0x0103_0307];

    fn option_words(words: &[u32]) -> OptionWords {
        let mut options = OptionWords::default();
        words.iter().for_each(|word| options.push(*word));
        options
    }

    fn addresses6(local: u128, remote: u128) -> Addresses {
        let [local, remote] = [local, remote].map(|bits| Ipv6Addr::from_bits(bits).into());
        Addresses::V6 { local, remote }
    }

    /// The results of both fast parsers.
    fn read<const V6: bool>(packet: &[u8]) -> [Option<(Key, Segment<'_>)>; 2] {
        let syn = Segment::read_syn::<V6>(packet, true);
        if let Some((_, segment, options)) = syn {
            assert_eq!(options, Options::read(segment.options));
        }
        let syn = syn.map(|(key, segment, _)| (key, segment));
        let parsed = [Segment::read_fast::<V6>(packet, true), syn];
        let stamped = Segment::read_stamped::<V6>(packet, true);
        let with_stamps = parsed[0].filter(|(_, segment)| segment.timestamps.is_some());
        assert_eq!(stamped, with_stamps);
        for (key, _) in parsed.into_iter().flatten() {
            assert_eq!(usual_key::<V6>(packet), Some(key));
        }
        parsed
    }

    proptest! {
        #[test]
        fn fast_parsers_agree_with_the_slow_one_and_leave_damage_to_it(
            v6 in any::<bool>(),
            options in prop_oneof![
                Just(vec![]),
                Just(vec![ALIGNED_STAMPS, 7, 9]),
                Just(SYN_OPTIONS.to_vec()),
                vec(any::<u32>(), 0..=10),
            ],
            flags in prop_oneof![Just(ACK), Just(SYN), Just(SYN | ACK), any::<u8>()],
            payload in prop_oneof![Just(vec![]), vec(any::<u8>(), 0..40)],
            padding in 0usize..7,
            damage in proptest::option::of((any::<Index>(), 1u8..)),
        ) {
            let addresses = match v6 {
                true => addresses6(1 << 120 | 7, 99 << 64 | 5),
                false => Addresses::V4 { local: 0x0a00_0001, remote: 0xc0a8_0102 },
            };
            let headers = ip_len(addresses) + TCP_HEADER + 4 * options.len();
            let mut packet = vec![0; headers + payload.len()];
            packet[headers..].copy_from_slice(&payload);
            let header = TcpHeader {
                local_port: 80,
                remote_port: 4000,
                seq: 0xffff_fff0,
                ack: 5,
                flags,
                window: 1000,
            };
            let segment = &mut packet[ip_len(addresses)..];
            let pseudo = addresses.pseudo(TCP);
            write_tcp(segment, pseudo, &header, &option_words(&options), false);
            write_ip(&mut packet, addresses, (TCP, pseudo), 3, 64, 0x1234);
            if let Some((at, change)) = damage {
                *at.get_mut(&mut packet) ^= change;
            }
            packet.resize(packet.len() + padding, 0);

            let ip = Ip::read(&packet, true).ok();
            let ip = ip.filter(|ip| ip.protocol == TCP && ip.checksum_is_good());
            let slow = ip.and_then(|ip| {
                let (remote_port, local_port, segment) = Segment::read(&ip).ok()?;
                let addresses = ip.addresses;
                Some((Key { addresses, local_port, remote_port, udp: false }, segment))
            });
            let [data, syn] = if v6 { read::<true>(&packet) } else { read::<false>(&packet) };
            for fast in [data, syn].into_iter().flatten() {
                prop_assert_eq!(Some(fast), slow);
            }
            if damage.is_none() {
                let stamped = options.len() == 3 && options[0] == ALIGNED_STAMPS;
                let is_data = flags & (SYN | RST | ACK) == ACK && (options.is_empty() || stamped);
                let is_syn =
                    flags & (SYN | RST | FIN) == SYN && options.len() == 5 && payload.is_empty();
                prop_assert_eq!((data.is_some(), syn.is_some()), (is_data, is_syn));
            }
        }
    }

    #[test]
    fn a_header_with_a_fixed_number_of_options_is_the_same() {
        for addresses in [
            Addresses::V4 { local: 0x0a00_0001, remote: 0xc0a8_0102 },
            addresses6(1 << 120 | 7, 99),
        ] {
            let header = TcpHeader {
                local_port: 80,
                remote_port: 4000,
                seq: 0xffff_fff0,
                ack: 5,
                flags: SYN,
                window: 1000,
            };
            let mut packets = [[0; SYN_HEADER + 5]; 2];
            packets.iter_mut().for_each(|packet| packet[SYN_HEADER..].copy_from_slice(b"hello"));
            let options = option_words(&SYN_OPTIONS);
            let pseudo = addresses.pseudo(TCP);
            write_tcp(&mut packets[0], pseudo, &header, &options, false);
            let (sum, pseudo) = (checksum::sum(b"hello"), checksum::fold(pseudo).into());
            write_tcp_with(&mut packets[1], pseudo, &header, SYN_OPTIONS, sum);
            assert_eq!(packets[0], packets[1]);
        }
    }

    #[test]
    fn written_packets_parse_to_the_same_fields() {
        for addresses in [
            Addresses::V4 { local: 0x0a00_0001, remote: 0xc0a8_0102 },
            addresses6(1 << 120 | 7, 99),
        ] {
            let ip = ip_len(addresses);
            let mut packet = vec![0; ip + 32 + 5];
            packet[ip + 32..].copy_from_slice(b"hello");
            let options = OptionWords::stamps(7, 9);
            let header = TcpHeader {
                local_port: 80,
                remote_port: 4000,
                seq: 0xffff_fff0,
                ack: 5,
                flags: ACK | PSH,
                window: 1000,
            };
            let pseudo = addresses.pseudo(TCP);
            write_tcp(&mut packet[ip..], pseudo, &header, &options, false);
            write_ip(&mut packet, addresses, (TCP, pseudo), 3, 64, 0x1234);
            let read = Ip::read(&packet, true).unwrap();
            assert!(read.checksum_is_good());
            let (source, destination, segment) = Segment::read(&read).unwrap();
            assert_eq!((source, destination, segment.seq, segment.ack), (80, 4000, 0xffff_fff0, 5));
            assert_eq!(
                (segment.flags, segment.window, segment.payload),
                (ACK | PSH, 1000, &b"hello"[..])
            );
            assert_eq!(segment.timestamps, Some((7, 9)));
            assert!(segment.marked);
            packet[ip + 33] ^= 1;
            assert!(!Ip::read(&packet, true).unwrap().checksum_is_good());
        }
    }

    #[test]
    fn an_impossible_length_ends_the_list_of_options() {
        let options = Options::read(&[2, 4, 5, 180, 3, 3, 20, 4, 2, 8, 200, 1]);
        assert_eq!(
            (options.mss, options.wscale, options.sack_permitted),
            (Some(1460), Some(14), true)
        );
        assert_eq!(options.timestamps, None);
        assert_eq!(Options::read(&[3, 0, 2, 4, 5, 180]), Options::default());
    }

    #[test]
    fn four_sack_blocks_parse_and_a_truncated_one_is_ignored() {
        let mut octets = vec![5, 34];
        octets.extend((1..=8u32).flat_map(|n| n.to_be_bytes()));
        assert_eq!(sack_blocks(&octets), ([(1, 2), (3, 4), (5, 6), (7, 8)], 4));
        assert_eq!(sack_blocks(&[5, 9, 0, 0, 0, 1, 0, 0, 0]).1, 0);
    }
}
