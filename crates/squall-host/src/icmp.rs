//! Errors of ICMP (RFC 792) and ICMPv6 (RFC 4443), received and sent.

use std::net::{Ipv4Addr, Ipv6Addr};

use squall_units::{be16, get_be16};
use squall_wire::checksum::{fold, sum};

use crate::{
    Echo,
    packets::{ICMPV6, UDP, pseudo},
};

const ICMP: u8 = 1;
const TCP: u8 = 6;
/// Extension headers and "no next header", which a host must know (RFC 8200 section 4).
const EXTENSIONS: [u8; 7] = [0, 43, 44, 50, 51, 59, 60];
/// The longest error that a host sends, in octets (RFC 1812 section 4.3.2.3).
const LONGEST: usize = 576;
/// The longest one over IPv6: the minimum MTU (RFC 4443 section 2.4 (c)).
const LONGEST_6: usize = 1280;

/// An error that a router or host has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// "unreachable", "time_exceeded", "parameter_problem", "redirect", or over IPv6 "too_big".
    pub word: &'static str,
    pub code: u8,
    /// The echo request that caused it.
    pub echo: Option<Echo>,
}

impl IcmpError {
    /// Parses an IP packet. `None` if it is no error, or has a wrong checksum.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            6 => Self::parse_v6(packet),
            _ => Self::parse_v4(packet),
        }
    }

    fn parse_v4(packet: &[u8]) -> Option<Self> {
        let (_, icmp) = payload(packet, ICMP)?;
        let word = match icmp.first()? {
            3 => "unreachable",
            5 => "redirect",
            11 => "time_exceeded",
            12 => "parameter_problem",
            _ => return None,
        };
        if icmp.len() < 8 || fold(sum(icmp)) != 0xffff {
            return None;
        }
        Some(Self { word, code: icmp[1], echo: caused_by(&icmp[8..]) })
    }

    fn parse_v6(packet: &[u8]) -> Option<Self> {
        let (ip, icmp) = payload_v6(packet).filter(|(ip, _)| ip[6] == ICMPV6)?;
        let word = match icmp.first()? {
            1 => "unreachable",
            2 => "too_big",
            3 => "time_exceeded",
            4 => "parameter_problem",
            _ => return None,
        };
        if icmp.len() < 8 || fold(pseudo(ip, icmp.len()) + sum(icmp)) != 0xffff {
            return None;
        }
        Some(Self { word, code: icmp[1], echo: caused_by_v6(&icmp[8..]) })
    }

    /// Appends the error with which a host answers a packet that no program of it expects: port
    /// unreachable for UDP, protocol unreachable for protocols other than ICMP and TCP (RFC 1122
    /// section 3.2.2.1); over IPv6, an unknown next header is a parameter problem (RFC 8200 section
    /// 4). Returns false if the packet gets none.
    pub fn unreachable(packet: &[u8], out: &mut Vec<u8>) -> bool {
        match packet.first().map(|first| first >> 4) {
            Some(6) => Self::unreachable_v6(packet, out).is_some(),
            _ => Self::unreachable_v4(packet, out),
        }
    }

    fn unreachable_v6(packet: &[u8], out: &mut Vec<u8>) -> Option<()> {
        let (ip, payload) = payload_v6(packet)?;
        let (kind, code, pointer): (u8, u8, u32) = match ip[6] {
            // TCP resets connections instead.
            ICMPV6 | TCP => return None,
            UDP => (1, 4, 0),
            extension if EXTENSIONS.contains(&extension) => return None,
            // The pointer is the place of the next header.
            _ => (4, 1, 6),
        };
        let (source, own) = (address_v6(&ip[8..]), address_v6(&ip[24..]));
        if source.is_unspecified() || source.is_multicast() || own.is_multicast() {
            return None;
        }
        let cause = &packet[..(40 + payload.len()).min(LONGEST_6 - 48)];
        let len = (8 + cause.len()) as u16;
        let at = out.len();
        out.extend([0x60, 0, 0, 0]);
        out.extend(len.to_be_bytes());
        out.extend([ICMPV6, 64]);
        out.extend(own.octets());
        out.extend(source.octets());
        out.extend([kind, code, 0, 0]);
        out.extend(pointer.to_be_bytes());
        out.extend(cause);
        let (ip, icmp) = out[at..].split_at_mut(40);
        let check = !fold(pseudo(ip, icmp.len()) + sum(icmp));
        icmp[2..4].copy_from_slice(&check.to_be_bytes());
        Some(())
    }

    fn unreachable_v4(packet: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(protocol) = packet.get(9) else { return false };
        let code = match *protocol {
            // TCP resets connections instead.
            ICMP | TCP => return false,
            UDP => 3,
            _ => 2,
        };
        let Some((ip, _)) = payload(packet, *protocol) else { return false };
        let (source, own) = (address(&ip[12..]), address(&ip[16..]));
        let is_of_one = |one: Ipv4Addr| {
            !(one.is_unspecified() || one.is_broadcast() || one.is_multicast() || one.is_loopback())
        };
        if !is_of_one(source) || !is_of_one(own) {
            return false;
        }
        let total = usize::from(be16(ip, 2));
        let cause = &packet[..total.min(LONGEST - 28)];
        let at = out.len();
        let len = (28 + cause.len()) as u16;
        out.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, ICMP, 0, 0]);
        out[at + 2..at + 4].copy_from_slice(&len.to_be_bytes());
        out.extend(own.octets());
        out.extend(source.octets());
        let check = !fold(sum(&out[at..at + 20]));
        out[at + 10..at + 12].copy_from_slice(&check.to_be_bytes());
        out.extend([3, code, 0, 0, 0, 0, 0, 0]);
        out.extend(cause);
        let check = !fold(sum(&out[at + 20..]));
        out[at + 22..at + 24].copy_from_slice(&check.to_be_bytes());
        true
    }
}

/// Header and payload of an IPv4 packet of a protocol that is not a fragment.
fn payload(packet: &[u8], protocol: u8) -> Option<(&[u8], &[u8])> {
    let header = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(get_be16(packet, 2)?);
    let (ip, rest) = packet.get(..total)?.split_at_checked(header.max(20))?;
    let fits = ip[0] >> 4 == 4 && header >= 20 && be16(ip, 6) & 0x3fff == 0 && ip[9] == protocol;
    fits.then_some((ip, rest))
}

/// The echo request of which an error returns the begin: header and at least 8 octets.
fn caused_by(cause: &[u8]) -> Option<Echo> {
    let header = usize::from(cause.first()? & 15) * 4;
    let (ip, icmp) = cause.split_at_checked(header.max(20))?;
    if ip[0] >> 4 != 4 || ip[9] != ICMP || icmp.first() != Some(&8) {
        return None;
    }
    Some(Echo {
        source: address(&ip[12..]).into(),
        destination: address(&ip[16..]).into(),
        id: get_be16(icmp, 4)?,
        seq: get_be16(icmp, 6)?,
    })
}

/// Header and payload of an IPv6 packet.
fn payload_v6(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let (ip, rest) = packet.split_at_checked(40).filter(|(ip, _)| ip[0] >> 4 == 6)?;
    Some((ip, rest.get(..usize::from(be16(ip, 4)))?))
}

fn caused_by_v6(cause: &[u8]) -> Option<Echo> {
    let (ip, icmp) = cause.split_at_checked(40)?;
    if ip[0] >> 4 != 6 || ip[6] != ICMPV6 || icmp.first() != Some(&128) {
        return None;
    }
    Some(Echo {
        source: address_v6(&ip[8..]).into(),
        destination: address_v6(&ip[24..]).into(),
        id: get_be16(icmp, 4)?,
        seq: get_be16(icmp, 6)?,
    })
}

fn address_v6(octets: &[u8]) -> Ipv6Addr {
    let octets = octets.first_chunk::<16>().expect("the header has its addresses");
    Ipv6Addr::from(*octets)
}

fn address(octets: &[u8]) -> Ipv4Addr {
    let octets = octets.first_chunk::<4>().expect("the header has its addresses");
    Ipv4Addr::from(*octets)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn echo() -> Echo {
        let (source, destination) = ([10, 0, 0, 2].into(), [10, 9, 0, 1].into());
        Echo { source, destination, id: 7, seq: 8 }
    }

    /// The error of this type of a router, about a packet.
    fn error(kind: u8, cause: &[u8]) -> Vec<u8> {
        let mut icmp = vec![kind, 1, 0, 0, 0, 0, 0, 0];
        icmp.extend(cause);
        let check = !fold(sum(&icmp));
        icmp[2..4].copy_from_slice(&check.to_be_bytes());
        let len = (20 + icmp.len()) as u8;
        let mut packet =
            vec![0x45, 0, 0, len, 0, 0, 0, 0, 64, ICMP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend(icmp);
        packet
    }

    #[test]
    fn errors_name_the_echo_request_that_caused_them() {
        for (kind, word) in
            [(3, "unreachable"), (5, "redirect"), (11, "time_exceeded"), (12, "parameter_problem")]
        {
            let packet = error(kind, &echo().request()[..28]);
            let expected = IcmpError { word, code: 1, echo: Some(echo()) };
            assert_eq!(IcmpError::parse(&packet), Some(expected));
            let mut wrong = packet.clone();
            wrong[40] ^= 1;
            assert_eq!(IcmpError::parse(&wrong), None, "its checksum is wrong");
        }
        assert_eq!(IcmpError::parse(&error(0, &[])), None, "a reply");
        let other = IcmpError::parse(&error(3, &[0x45, 0, 0])).unwrap();
        assert_eq!(other.echo, None, "too short for a cause");
    }

    fn datagram(protocol: u8, destination: [u8; 4]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 9, 0, 1];
        packet.extend(destination);
        packet.extend([0x12, 0x34, 0, 9, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn datagrams_that_nobody_expects_get_an_error_with_their_begin() {
        for (protocol, code) in [(UDP, 3), (132, 2)] {
            let mut out = Vec::new();
            let cause = datagram(protocol, [10, 0, 0, 2]);
            assert!(IcmpError::unreachable(&[&cause[..], &[0; 18]].concat(), &mut out));
            let read = IcmpError::parse(&out).unwrap();
            assert_eq!((read.word, read.code), ("unreachable", code));
            assert_eq!((&out[12..20], &out[28..]), (&[10, 0, 0, 2, 10, 9, 0, 1][..], &cause[..]));
            assert_eq!(fold(sum(&out[..20])), 0xffff);
        }
        for (protocol, destination) in
            [(TCP, [10, 0, 0, 2]), (ICMP, [10, 0, 0, 2]), (UDP, [255; 4]), (UDP, [224, 0, 0, 1])]
        {
            let cause = datagram(protocol, destination);
            assert!(!IcmpError::unreachable(&cause, &mut Vec::new()), "{protocol} {destination:?}");
        }
    }

    /// A datagram, or a packet of another protocol, between two hosts.
    fn datagram_v6(protocol: u8, destination: &str) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, protocol, 64];
        packet.extend("2001:db8::9".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(destination.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend([0x12, 0x34, 0, 9, 0, 8, 0, 0]);
        packet
    }

    #[test]
    fn errors_over_ipv6_have_the_packet_that_caused_them() {
        for (protocol, word, code, pointer) in
            [(UDP, "unreachable", 4, 0), (132, "parameter_problem", 1, 6)]
        {
            let cause = datagram_v6(protocol, "2001:db8::1");
            let mut out = Vec::new();
            assert!(IcmpError::unreachable(&[&cause[..], &[0; 6]].concat(), &mut out));
            let read = IcmpError::parse(&out).unwrap();
            assert_eq!((read.word, read.code, read.echo), (word, code, None));
            assert_eq!((out[47], &out[48..]), (pointer, &cause[..]));
            assert_eq!((&out[8..24], &out[24..40]), (&cause[24..40], &cause[8..24]));
            out[60] ^= 1;
            assert_eq!(IcmpError::parse(&out), None, "its checksum is wrong");
        }
        for (protocol, destination) in
            [(TCP, "2001:db8::1"), (ICMPV6, "2001:db8::1"), (UDP, "ff02::1"), (44, "2001:db8::1")]
        {
            let cause = datagram_v6(protocol, destination);
            assert!(!IcmpError::unreachable(&cause, &mut Vec::new()), "{protocol} {destination}");
        }
        let mut long = datagram_v6(UDP, "2001:db8::1");
        long[4..6].copy_from_slice(&1400u16.to_be_bytes());
        long.resize(1440, 7);
        let mut out = Vec::new();
        assert!(IcmpError::unreachable(&long, &mut out));
        assert_eq!(out.len(), LONGEST_6);
        let (source, destination) = (
            "2001:db8::9".parse::<Ipv6Addr>().unwrap(),
            "2001:db8::1".parse::<Ipv6Addr>().unwrap(),
        );
        let asked = Echo { source: source.into(), destination: destination.into(), id: 3, seq: 4 };
        let mut request = asked.request();
        request[6] = 132;
        let mut error = Vec::new();
        assert!(IcmpError::unreachable(&request, &mut error));
        // As if the request itself had caused it.
        error[48 + 6] = ICMPV6;
        error[42..44].fill(0);
        let (ip, icmp) = error.split_at_mut(40);
        let check = !fold(pseudo(ip, icmp.len()) + sum(icmp));
        icmp[2..4].copy_from_slice(&check.to_be_bytes());
        assert_eq!(IcmpError::parse(&error).unwrap().echo, Some(asked));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..120), ip in 0..3) {
            let mut octets = octets;
            let start: &[u8] = match ip {
                0 => &[],
                1 => &[0x45, 0, 0, 60, 0, 0, 0, 0, 64, 1],
                _ => &[0x60, 0, 0, 0, 0, 40, ICMPV6, 64],
            };
            for (octet, start) in octets.iter_mut().zip(start) {
                *octet = *start;
            }
            let _ = IcmpError::parse(&octets);
            let _ = IcmpError::unreachable(&octets, &mut Vec::new());
        }
    }
}
