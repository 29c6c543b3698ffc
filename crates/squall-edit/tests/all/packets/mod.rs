//! Builds packets for tests from descriptions, and checks packets.

use squall_measure::flow::{Fragment, Headers, Link};
use squall_wire::checksum::{fold, sctp, sum};

pub const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    Udp,
    /// UDP without a checksum.
    PlainUdp,
    /// TCP with this acknowledgment number and these options.
    Tcp {
        seq: u32,
        ack: u32,
        flags: u8,
        sack: Option<(u32, u32)>,
    },
    Icmp,
    Sctp,
}

/// A packet from 10.0.0.1 or 2001:db8::1 to 10.0.0.2 or 2001:db8::2, or in the reverse direction.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub v6: bool,
    pub answer: bool,
    pub l4: L4,
    pub ports: (u16, u16),
    pub payload: usize,
    /// Number of VLAN tags. With `mpls`, an MPLS label follows them.
    pub tags: usize,
    pub mpls: bool,
}

impl Spec {
    pub fn new(l4: L4) -> Self {
        Self {
            v6: false,
            answer: false,
            l4,
            ports: (40_000, 80),
            payload: 20,
            tags: 0,
            mpls: false,
        }
    }

    /// The Ethernet frame, with correct checksums.
    pub fn frame(&self) -> Vec<u8> {
        let (dst, src) = if self.answer { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let mut frame = [dst, src].concat();
        let tags: [&[u8]; 3] =
            [&[], &[0x81, 0, 0x60, 100], &[0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 100]];
        frame.extend_from_slice(tags[self.tags]);
        if self.mpls {
            frame.extend_from_slice(&[0x88, 0x47, 0, 1, 0x01, 64]);
        } else {
            frame.extend_from_slice(if self.v6 { &[0x86, 0xdd] } else { &[0x08, 0x00] });
        }
        frame.extend(self.packet());
        frame
    }

    /// The IP packet.
    pub fn packet(&self) -> Vec<u8> {
        let host = |last: u8| {
            if self.v6 {
                [&[0x20, 1, 0x0d, 0xb8][..], &[0; 11], &[last]].concat()
            } else {
                vec![10, 0, 0, last]
            }
        };
        let (src, dst) = if self.answer { (host(2), host(1)) } else { (host(1), host(2)) };
        let ports = if self.answer { (self.ports.1, self.ports.0) } else { self.ports };
        let ports = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        let payload: Vec<u8> = (0..self.payload).map(|i| i as u8).collect();
        let (protocol, checksum_at, mut segment) = match self.l4 {
            L4::Udp | L4::PlainUdp => (
                17,
                6,
                [&ports[..], &(8 + self.payload as u16).to_be_bytes(), &[0; 2], &payload].concat(),
            ),
            L4::Tcp { seq, ack, flags, sack } => {
                let options = sack.map_or(vec![], |(left, right)| {
                    [&[1, 1, 5, 10][..], &left.to_be_bytes(), &right.to_be_bytes()].concat()
                });
                let words = 5 + options.len() as u8 / 4;
                let fixed = [
                    &ports[..],
                    &seq.to_be_bytes(),
                    &ack.to_be_bytes(),
                    &[words << 4, flags, 3, 232, 0, 0, 0, 0],
                ];
                (6, 16, [&fixed.concat()[..], &options, &payload].concat())
            }
            L4::Icmp => (
                if self.v6 { 58 } else { 1 },
                2,
                [&[if self.v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 1][..], &payload].concat(),
            ),
            // A verification tag, and room for the CRC.
            L4::Sctp => (132, 8, [&ports[..], &[1, 2, 3, 4, 0, 0, 0, 0], &payload].concat()),
        };
        if self.l4 == L4::Sctp {
            let crc = sctp(&segment).to_le_bytes();
            segment[checksum_at..checksum_at + 4].copy_from_slice(&crc);
        } else if self.l4 != L4::PlainUdp {
            let pseudo = if protocol == 1 {
                0
            } else {
                sum(&src) + sum(&dst) + protocol as u64 + segment.len() as u64
            };
            let checksum = match !fold(pseudo + sum(&segment)) {
                0 if protocol == 17 => 0xffff,
                checksum => checksum,
            };
            segment[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        let mut packet = if self.v6 {
            [
                &[0x60, 0, 0, 0][..],
                &(segment.len() as u16).to_be_bytes(),
                &[protocol, 64],
                &src,
                &dst,
            ]
            .concat()
        } else {
            let len = (20 + segment.len() as u16).to_be_bytes();
            let mut header =
                [&[0x45, 0][..], &len, &[0, 7, 0, 0, 64, protocol, 0, 0], &src, &dst].concat();
            let checksum = !fold(sum(&header));
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        };
        packet.extend(segment);
        packet
    }
}

/// Describes a wrong checksum in a complete packet, if there is one.
pub fn wrong(octets: &[u8], link: Link) -> Option<&'static str> {
    let headers = Headers::parse(octets, link);
    let (network, transport, end) =
        (headers.network as usize, headers.transport as usize, headers.end as usize);
    let addresses = match headers.key.version {
        4 => {
            let len = usize::from(octets[network] & 15) * 4;
            if fold(sum(&octets[network..network + len])) != 0xffff {
                return Some("the checksum of IPv4");
            }
            network + 12..network + 20
        }
        6 => network + 8..network + 40,
        _ => return None,
    };
    if headers.fragment != Fragment::Whole {
        return None;
    }
    let segment = &octets[transport..end];
    let pseudo = sum(&octets[addresses]) + u64::from(headers.key.protocol) + segment.len() as u64;
    let right = match headers.key.protocol {
        17 if segment[6..8] == [0, 0] => true,
        6 | 17 | 58 => fold(pseudo + sum(segment)) == 0xffff,
        1 => fold(sum(segment)) == 0xffff,
        132 => segment[8..12] == sctp(segment).to_le_bytes(),
        _ => true,
    };
    (!right).then_some("the checksum of the transport")
}
