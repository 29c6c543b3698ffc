//! Errors of ICMP (RFC 792), received and sent.

use std::net::Ipv4Addr;

use squall_units::{be16, get_be16};
use squall_wire::checksum::{fold, sum};

use crate::Echo;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// The longest error that a host sends, in octets (RFC 1812 section 4.3.2.3).
const LONGEST: usize = 576;

/// An error that a router or host has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// "unreachable", "time_exceeded", "parameter_problem" or "redirect".
    pub word: &'static str,
    pub code: u8,
    /// The echo request that caused it.
    pub echo: Option<Echo>,
}

impl IcmpError {
    /// Parses an IPv4 packet. `None` if it is no error, or has a wrong checksum.
    pub fn parse(packet: &[u8]) -> Option<Self> {
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

    /// Appends the error with which a host answers a packet that no program of it expects: port
    /// unreachable for UDP, protocol unreachable for protocols other than ICMP and TCP (RFC 1122
    /// section 3.2.2.1). Returns false if the packet gets none.
    pub fn unreachable(packet: &[u8], out: &mut Vec<u8>) -> bool {
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

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..120), ip: bool) {
            let mut octets = octets;
            let start: &[u8] = &[0x45, 0, 0, 60, 0, 0, 0, 0, 64, 1];
            for (octet, start) in octets.iter_mut().zip(if ip { start } else { &[] }) {
                *octet = *start;
            }
            let _ = IcmpError::parse(&octets);
            let _ = IcmpError::unreachable(&octets, &mut Vec::new());
        }
    }
}
