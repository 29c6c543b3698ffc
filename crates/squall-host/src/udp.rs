//! UDP datagrams of hosts over IPv4 and IPv6.

use std::net::IpAddr;

use squall_units::get_be16;
use squall_wire::checksum::{fold, sum};

use crate::{Datagram, Datagram6, dhcp_message, dhcp6_message, packets::UDP};

const MULTICAST_TTL: u8 = 255;

/// A datagram whose checksums are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpDatagram<'a> {
    pub source: IpAddr,
    pub destination: IpAddr,
    /// Source and destination port.
    pub ports: (u16, u16),
    pub payload: &'a [u8],
}

impl<'a> UdpDatagram<'a> {
    /// Source and destination port of an IP packet, if it is a datagram; cheap, for packets that
    /// are mostly others.
    pub fn ports_of(packet: &[u8]) -> Option<(u16, u16)> {
        let (protocol, header) = match packet.first()? >> 4 {
            6 => (packet.get(6)?, 40),
            _ => (packet.get(9)?, usize::from(packet[0] & 15) * 4),
        };
        let ports = (get_be16(packet, header)?, get_be16(packet, header + 2)?);
        (*protocol == UDP).then_some(ports)
    }

    /// Parses an IP packet. `partial`: see [`Datagram::parse`].
    pub fn parse(packet: &'a [u8], partial: bool) -> Option<Self> {
        if packet.first()? >> 4 == 6 {
            let Datagram6 { source, destination, ports, payload } =
                Datagram6::parse(packet, partial)?;
            return Some(Self {
                source: source.into(),
                destination: destination.into(),
                ports,
                payload,
            });
        }
        let Datagram { source, destination, ports, payload } = Datagram::parse(packet, partial)?;
        Some(Self { source: source.into(), destination: destination.into(), ports, payload })
    }
}

/// Appends an IP packet with a datagram, whose payload `write` appends. Packets to multicast
/// addresses have a TTL of 255, as multicast DNS wants (RFC 6762 section 11).
///
/// # Panics
/// If the two addresses belong to different families.
pub(crate) fn write_datagram(
    addresses: (IpAddr, IpAddr),
    ports: (u16, u16),
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let at = out.len();
    let headers = if addresses.0.is_ipv4() { 28 } else { 48 };
    out.resize(at + headers, 0);
    write(out);
    match addresses {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            dhcp_message::write_headers((source, destination), ports, &mut out[at..]);
            if destination.is_multicast() {
                let ip = &mut out[at..at + 20];
                (ip[8], ip[10], ip[11]) = (MULTICAST_TTL, 0, 0);
                let check = !fold(sum(ip));
                ip[10..12].copy_from_slice(&check.to_be_bytes());
            }
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            dhcp6_message::write_headers((source, destination), ports, &mut out[at..]);
            if destination.is_multicast() {
                out[at + 7] = MULTICAST_TTL;
            }
        }
        _ => panic!("a datagram has addresses of one family"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_of_both_families_are_read_as_they_were_written() {
        for (source, destination) in [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")] {
            let addresses: (IpAddr, IpAddr) =
                (source.parse().unwrap(), destination.parse().unwrap());
            let mut out = vec![7];
            write_datagram(addresses, (53, 50_000), &mut out, |out| out.extend(b"abc"));
            let found = UdpDatagram::parse(&out[1..], false).unwrap();
            assert_eq!((found.source, found.destination), addresses);
            assert_eq!((found.ports, found.payload), ((53, 50_000), &b"abc"[..]));
            assert_eq!(UdpDatagram::ports_of(&out[1..]), Some((53, 50_000)));
            *out.last_mut().unwrap() ^= 1;
            assert_eq!(UdpDatagram::parse(&out[1..], false), None, "its checksum is wrong");
            out[1] = 0;
            assert_eq!(UdpDatagram::parse(&out[1..9], false), None);
            assert_eq!(UdpDatagram::ports_of(&out[1..9]), None);
        }
    }
}
