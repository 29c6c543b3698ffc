//! Parses and writes the packets of a host.

use std::net::{IpAddr, Ipv4Addr};

use squall_units::{MacAddr, be16};
use squall_wire::checksum::{fold, sum};

/// Length of an ARP packet for Ethernet and IPv4.
pub const ARP_LEN: usize = 28;

/// An ARP packet for Ethernet and IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Whether it is a request; otherwise it is a reply.
    pub request: bool,
    pub sender_mac: MacAddr,
    pub sender: Ipv4Addr,
    pub target_mac: MacAddr,
    pub target: Ipv4Addr,
}

impl Arp {
    /// Parses an ARP packet; `None` for other kinds, and truncated packets.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let (fixed, rest) = octets.split_first_chunk::<8>()?;
        let request = match fixed {
            [0, 1, 8, 0, 6, 4, 0, 1] => true,
            [0, 1, 8, 0, 6, 4, 0, 2] => false,
            _ => return None,
        };
        let (sender_mac, rest) = rest.split_first_chunk::<6>()?;
        let (sender, rest) = rest.split_first_chunk::<4>()?;
        let (target_mac, rest) = rest.split_first_chunk::<6>()?;
        let target = rest.first_chunk::<4>()?;
        Some(Self {
            request,
            sender_mac: MacAddr(*sender_mac),
            sender: (*sender).into(),
            target_mac: MacAddr(*target_mac),
            target: (*target).into(),
        })
    }

    pub fn octets(&self) -> [u8; ARP_LEN] {
        let mut out = [0; ARP_LEN];
        out[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, if self.request { 1 } else { 2 }]);
        out[8..14].copy_from_slice(&self.sender_mac.0);
        out[14..18].copy_from_slice(&self.sender.octets());
        out[18..24].copy_from_slice(&self.target_mac.0);
        out[24..].copy_from_slice(&self.target.octets());
        out
    }
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// Sum of the pseudo-header for an ICMPv6 message of `len` octets.
pub(crate) fn pseudo(header: &[u8], len: usize) -> u64 {
    pseudo_of(&header[8..40], len, ICMPV6)
}

/// Sum of the pseudo-header for `len` octets of a protocol. `addresses` are the two addresses of the
/// IP header.
pub(crate) fn pseudo_of(addresses: &[u8], len: usize, protocol: u8) -> u64 {
    sum(addresses) + len as u64 + u64::from(protocol)
}

/// Writes the header of `udp`, whose payload is complete, for the two addresses of the IP header.
pub(crate) fn write_udp(addresses: &[u8], ports: (u16, u16), udp: &mut [u8]) {
    let len = udp.len() as u16;
    udp[..2].copy_from_slice(&ports.0.to_be_bytes());
    udp[2..4].copy_from_slice(&ports.1.to_be_bytes());
    udp[4..6].copy_from_slice(&len.to_be_bytes());
    udp[6..8].fill(0);
    // A computed checksum of 0 is sent as all ones (RFC 768).
    let check = match !fold(pseudo_of(addresses, udp.len(), UDP) + sum(udp)) {
        0 => 0xffff,
        check => check,
    };
    udp[6..8].copy_from_slice(&check.to_be_bytes());
}

/// Appends the reply to the ICMP or ICMPv6 echo request in `packet` to `out`. Returns false if
/// `packet` is not an echo request, or has a wrong checksum.
pub fn echo_reply(packet: &[u8], out: &mut Vec<u8>) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => echo_reply_v4(packet, out).is_some(),
        Some(6) => echo_reply_v6(packet, out).is_some(),
        _ => false,
    }
}

fn echo_reply_v4(packet: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let header = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
    let packet = packet.get(..total).filter(|p| p.len() >= header + 8 && header >= 20)?;
    let (ip, icmp) = packet.split_at(header);
    let fragment = be16(ip, 6) & 0x3fff != 0;
    if fragment || ip[9] != 1 || icmp[0] != 8 || fold(sum(icmp)) != 0xffff {
        return None;
    }
    let at = out.len();
    // The reply has no IP options: a host need not return those of the request.
    out.extend_from_slice(&ip[..20]);
    out.extend_from_slice(icmp);
    let reply = &mut out[at..];
    reply[0] = 0x45;
    let len = (20 + icmp.len()) as u16;
    reply[2..4].copy_from_slice(&len.to_be_bytes());
    reply[8] = 64;
    reply[12..16].copy_from_slice(&ip[16..20]);
    reply[16..20].copy_from_slice(&ip[12..16]);
    reply[10..12].fill(0);
    let check = !fold(sum(&reply[..20]));
    reply[10..12].copy_from_slice(&check.to_be_bytes());
    (reply[20], reply[22], reply[23]) = (0, 0, 0);
    let check = !fold(sum(&reply[20..]));
    reply[22..24].copy_from_slice(&check.to_be_bytes());
    Some(())
}

fn echo_reply_v6(packet: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    let len = usize::from(be16(header, 4));
    let icmp = rest.get(..len).filter(|icmp| icmp.len() >= 8)?;
    // Only unicast requests are answered: a request to all nodes would get millions of replies.
    let to_all = header[24] == 0xff;
    if to_all
        || header[6] != ICMPV6
        || icmp[0] != 128
        || fold(pseudo(header, len) + sum(icmp)) != 0xffff
    {
        return None;
    }
    let at = out.len();
    out.extend_from_slice(header);
    out.extend_from_slice(icmp);
    let reply = &mut out[at..];
    reply[7] = 64;
    reply[8..24].copy_from_slice(&header[24..40]);
    reply[24..40].copy_from_slice(&header[8..24]);
    (reply[40], reply[42], reply[43]) = (129, 0, 0);
    let (ip, icmp) = reply.split_at_mut(40);
    let check = !fold(pseudo(ip, len) + sum(icmp));
    icmp[2..4].copy_from_slice(&check.to_be_bytes());
    Some(())
}

/// The identity of an echo: identifier and sequence number (RFC 792, RFC 4443 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Echo {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub id: u16,
    pub seq: u16,
}

/// Octets of data, as in ping's default.
const ECHO_DATA: usize = 56;

impl Echo {
    /// The IP packet of a request.
    ///
    /// # Panics
    /// If the two addresses belong to different families.
    pub fn request(&self) -> Vec<u8> {
        const ICMP_LEN: usize = 8 + ECHO_DATA;
        let mut icmp = [0; ICMP_LEN];
        icmp[4..6].copy_from_slice(&self.id.to_be_bytes());
        icmp[6..8].copy_from_slice(&self.seq.to_be_bytes());
        let mut out;
        let check = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                icmp[0] = 8;
                out = vec![0x45, 0, 0, (20 + ICMP_LEN) as u8, 0, 0, 0x40, 0, 64, 1, 0, 0];
                out.extend(source.octets());
                out.extend(destination.octets());
                let check = !fold(sum(&out));
                out[10..12].copy_from_slice(&check.to_be_bytes());
                !fold(sum(&icmp))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                icmp[0] = 128;
                out = vec![0x60, 0, 0, 0, 0, ICMP_LEN as u8, ICMPV6, 64];
                out.extend(source.octets());
                out.extend(destination.octets());
                !fold(pseudo(&out, ICMP_LEN) + sum(&icmp))
            }
            _ => panic!("an echo has addresses of one family"),
        };
        icmp[2..4].copy_from_slice(&check.to_be_bytes());
        out.extend(icmp);
        out
    }

    /// The request that `packet` replies to; `None` if `packet` is not an echo reply, or has a
    /// wrong checksum.
    pub fn of_reply(packet: &[u8]) -> Option<Self> {
        let (source, destination, icmp) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 15) * 4;
                let total = usize::from(u16::from_be_bytes(*packet.get(2..)?.first_chunk()?));
                let (ip, icmp) = packet.get(..total)?.split_at_checked(header.max(20))?;
                let fragment = be16(ip, 6) & 0x3fff != 0;
                if fragment || ip[9] != 1 || icmp.first() != Some(&0) || fold(sum(icmp)) != 0xffff {
                    return None;
                }
                (v4(&ip[12..])?, v4(&ip[16..])?, icmp)
            }
            6 => {
                let (ip, rest) = packet.split_first_chunk::<40>()?;
                let len = usize::from(be16(ip, 4));
                let icmp = rest.get(..len)?;
                if ip[6] != ICMPV6
                    || icmp.first() != Some(&129)
                    || fold(pseudo(ip, len) + sum(icmp)) != 0xffff
                {
                    return None;
                }
                (v6(&ip[8..])?, v6(&ip[24..])?, icmp)
            }
            _ => return None,
        };
        let word = |at: usize| Some(u16::from_be_bytes(*icmp.get(at..)?.first_chunk()?));
        Some(Self { source: destination, destination: source, id: word(4)?, seq: word(6)? })
    }
}

fn v4(octets: &[u8]) -> Option<IpAddr> {
    octets.first_chunk::<4>().map(|octets| IpAddr::from(*octets))
}

fn v6(octets: &[u8]) -> Option<IpAddr> {
    octets.first_chunk::<16>().map(|octets| IpAddr::from(*octets))
}

/// Whether an IP packet to a host may belong to a flow, and not to the host's own protocols: TCP,
/// UDP except for DHCP, or an error message of ICMP.
pub fn is_of_a_flow(packet: &[u8]) -> bool {
    let [first, ..] = packet else { return false };
    let (protocol, header) = match first >> 4 {
        6 => (packet.get(6), 40),
        _ => (packet.get(9), usize::from(first & 15) * 4),
    };
    match (protocol, packet.get(header..).unwrap_or_default()) {
        (Some(&TCP), _) => true,
        // Clients and servers of DHCPv6 have ports 546 and 547.
        (Some(&UDP), [_, _, port @ ..]) => !matches!(port, [0, 67 | 68, ..] | [2, 34 | 35, ..]),
        // Destination unreachable, time exceeded, parameter problem (RFC 792).
        (Some(&ICMP), [kind, ..]) => matches!(kind, 3 | 11 | 12),
        // Error messages (RFC 4443 section 2.1).
        (Some(&ICMPV6), [kind, ..]) => matches!(kind, 1..=4),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    #[test]
    fn an_arp_packet_reads_back() {
        let arp = Arp {
            request: true,
            sender_mac: MAC,
            sender: Ipv4Addr::new(16, 0, 0, 1),
            target_mac: MacAddr::default(),
            target: Ipv4Addr::new(16, 0, 0, 2),
        };
        assert_eq!(Arp::parse(&arp.octets()), Some(arp));
        assert_eq!(Arp::parse(&arp.octets()[..27]), None);
    }

    #[test]
    fn an_echo_comes_back_with_its_data() {
        // 16.0.0.1 > 16.0.0.2: ICMP echo request, id 1, seq 2, 4 octets.
        let mut request = vec![0x45, 0, 0, 32, 0, 0, 0, 0, 64, 1, 0, 0, 16, 0, 0, 1, 16, 0, 0, 2];
        request.extend([8, 0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 4]);
        let check = !fold(sum(&request[20..]));
        request[22..24].copy_from_slice(&check.to_be_bytes());
        let mut out = vec![];
        // Short frames end with Ethernet padding.
        request.extend([0; 6]);
        assert!(echo_reply(&request, &mut out));
        assert_eq!(
            (&out[12..20], &out[24..], out[20]),
            (&[16, 0, 0, 2, 16, 0, 0, 1][..], &request[24..32], 0)
        );
        assert_eq!((fold(sum(&out[..20])), fold(sum(&out[20..]))), (0xffff, 0xffff));
        request[30] ^= 1;
        assert!(!echo_reply(&request, &mut out));
    }

    #[test]
    fn an_echo_over_ipv6_comes_back_with_its_data() {
        let mut request = vec![0x60, 0, 0, 0, 0, 12, 58, 64];
        request.extend("fd00::1".parse::<Ipv6Addr>().unwrap().octets());
        request.extend("fd00::2".parse::<Ipv6Addr>().unwrap().octets());
        request.extend([128, 0, 0, 0, 0, 1, 0, 2, 9, 8, 7, 6]);
        let check = !fold(pseudo(&request[..40], 12) + sum(&request[40..]));
        request[42..44].copy_from_slice(&check.to_be_bytes());
        let mut out = vec![];
        assert!(echo_reply(&request, &mut out));
        assert_eq!((out[40], &out[44..], &out[8..24]), (129, &request[44..], &request[24..40]));
        assert_eq!(fold(pseudo(&out[..40], 12) + sum(&out[40..])), 0xffff);
    }

    #[test]
    fn a_reply_to_an_echo_request_is_recognized_by_its_numbers() {
        for (source, destination) in [("16.0.0.1", "16.0.0.2"), ("fd00::1", "fd00::2")] {
            let echo = Echo {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                id: 7,
                seq: 0x1234,
            };
            let mut reply = vec![];
            assert!(echo_reply(&echo.request(), &mut reply), "{echo:?}");
            assert_eq!(Echo::of_reply(&reply), Some(echo));
            assert_eq!(Echo::of_reply(&echo.request()), None, "a request is no reply");
            *reply.last_mut().unwrap() ^= 1;
            assert_eq!(Echo::of_reply(&reply), None, "its checksum is wrong");
            (0..reply.len()).for_each(|cut| assert_eq!(Echo::of_reply(&reply[..cut]), None));
        }
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(octets in proptest::collection::vec(any::<u8>(), 0..120), kind in 0usize..4) {
            let mut octets = octets;
            let starts: [&[u8]; 4] = [&[], &[0x45, 0, 0, 40, 0, 0, 0, 0, 64, 1], &[0x60, 0, 0, 0, 0, 30, 58, 255], &[0, 1, 8, 0, 6, 4]];
            for (octet, start) in octets.iter_mut().zip(starts[kind]) {
                *octet = *start;
            }
            let _ = Arp::parse(&octets);
            let _ = echo_reply(&octets, &mut Vec::new());
            let _ = Echo::of_reply(&octets);
        }
    }
}
