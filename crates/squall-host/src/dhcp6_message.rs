//! DHCPv6 messages (RFC 9915 sections 8 and 21), with the UDP and IPv6 headers around them.

use std::net::Ipv6Addr;

use squall_units::{MacAddr, be16, be32, get_be16};
use squall_wire::checksum::{fold, sum};

use crate::packets::{UDP, pseudo_of, write_udp};

/// UDP ports of clients and servers (section 7.2).
pub const CLIENT_PORT_6: u16 = 546;
pub const SERVER_PORT_6: u16 = 547;
/// `All_DHCP_Relay_Agents_and_Servers` (section 7.1).
pub const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// Lifetimes and times that never end (section 7.7).
pub const INFINITE: u32 = u32::MAX;
const HEADERS: usize = 48;
/// Addresses or prefixes of one identity association that are read; further ones are skipped.
const MOST_LEASES: usize = 4;
/// Longest DUID in octets (section 11.1).
const LONGEST_DUID: usize = 130;

/// Message types (section 7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind6 {
    Solicit = 1,
    Advertise = 2,
    Request = 3,
    Confirm = 4,
    Renew = 5,
    Rebind = 6,
    Reply = 7,
    Release = 8,
    Decline = 9,
    Reconfigure = 10,
    InformationRequest = 11,
}

impl Kind6 {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Solicit, "solicit"),
        (Self::Advertise, "advertise"),
        (Self::Request, "request"),
        (Self::Confirm, "confirm"),
        (Self::Renew, "renew"),
        (Self::Rebind, "rebind"),
        (Self::Reply, "reply"),
        (Self::Release, "release"),
        (Self::Decline, "decline"),
        (Self::Reconfigure, "reconfigure"),
        (Self::InformationRequest, "information_request"),
    ];

    fn of(octet: u8) -> Option<Self> {
        Self::ALL.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u8 == octet)
    }

    pub fn word(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }

    /// Whether servers send it.
    pub fn is_reply(self) -> bool {
        matches!(self, Self::Advertise | Self::Reply | Self::Reconfigure)
    }
}

/// Status codes (section 21.13).
pub mod status {
    pub const SUCCESS: u16 = 0;
    pub const NO_ADDRESSES: u16 = 2;
    pub const NO_BINDING: u16 = 3;
    pub const NOT_ON_LINK: u16 = 4;
    pub const NO_PREFIX: u16 = 6;
}

/// Codes of the options that are read or written.
mod code {
    pub const CLIENT: u16 = 1;
    pub const SERVER: u16 = 2;
    pub const IA_NA: u16 = 3;
    pub const ADDRESS: u16 = 5;
    pub const REQUESTED: u16 = 6;
    pub const PREFERENCE: u16 = 7;
    pub const ELAPSED: u16 = 8;
    pub const STATUS: u16 = 13;
    pub const RAPID_COMMIT: u16 = 14;
    pub const IA_PD: u16 = 25;
    pub const PREFIX: u16 = 26;
    pub const REFRESH: u16 = 32;
    pub const SOL_MAX_RT: u16 = 82;
    pub const INF_MAX_RT: u16 = 83;
}

/// An address or a prefix of an identity association. Lifetimes are in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease6 {
    pub address: Ipv6Addr,
    /// Length of a delegated prefix; 128 for an address.
    pub length: u8,
    pub preferred: u32,
    pub valid: u32,
}

/// An identity association (sections 21.4 and 21.21). T1 and T2 are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Association {
    pub id: u32,
    pub t1: u32,
    pub t2: u32,
    pub status: Option<u16>,
    /// At most 4.
    pub leases: Vec<Lease6>,
}

/// A message between client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message6 {
    pub kind: Kind6,
    /// 24 bits.
    pub xid: u32,
    pub client: Option<Box<[u8]>>,
    pub server: Option<Box<[u8]>>,
    /// Hundredths of a second since the client began the exchange.
    pub elapsed: Option<u16>,
    pub rapid_commit: bool,
    pub preference: Option<u8>,
    pub status: Option<u16>,
    /// The first identity association of each kind: for addresses and for prefixes.
    pub addresses: Option<Association>,
    pub prefixes: Option<Association>,
    /// Seconds.
    pub refresh: Option<u32>,
    pub sol_max_rt: Option<u32>,
    pub inf_max_rt: Option<u32>,
}

impl Message6 {
    pub fn new(kind: Kind6, xid: u32) -> Self {
        Self {
            kind,
            xid: xid & 0x00ff_ffff,
            client: None,
            server: None,
            elapsed: None,
            rapid_commit: false,
            preference: None,
            status: None,
            addresses: None,
            prefixes: None,
            refresh: None,
            sol_max_rt: None,
            inf_max_rt: None,
        }
    }

    /// Parses the payload of a UDP datagram.
    ///
    /// # Errors
    /// The reason why the octets are not a message between client and server.
    pub fn parse(octets: &[u8]) -> Result<Self, &'static str> {
        let (head, options) = octets.split_first_chunk::<4>().ok_or("truncated")?;
        let kind = Kind6::of(head[0]).ok_or("bad_type")?;
        let mut message = Self::new(kind, be32(head, 0));
        for_each(options, |code, value| {
            match code {
                code::CLIENT => set(&mut message.client, duid(value)?),
                code::SERVER => set(&mut message.server, duid(value)?),
                code::IA_NA => set(&mut message.addresses, association(value)?),
                code::IA_PD => set(&mut message.prefixes, association(value)?),
                code::PREFERENCE => set(&mut message.preference, exactly::<1>(value)?[0]),
                code::ELAPSED => set(&mut message.elapsed, be16(&exactly::<2>(value)?, 0)),
                code::STATUS => set(&mut message.status, get_be16(value, 0).ok_or(OPTIONS)?),
                code::RAPID_COMMIT => {
                    exactly::<0>(value)?;
                    message.rapid_commit = true;
                }
                code::REFRESH => set(&mut message.refresh, number(value)?),
                code::SOL_MAX_RT => set(&mut message.sol_max_rt, number(value)?),
                code::INF_MAX_RT => set(&mut message.inf_max_rt, number(value)?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(message)
    }

    /// Appends the IPv6 packet that carries the message to `out`.
    pub fn write(&self, source: Ipv6Addr, destination: Ipv6Addr, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + HEADERS, 0);
        out.extend((u32::from(self.kind as u8) << 24 | self.xid & 0x00ff_ffff).to_be_bytes());
        for (code, duid) in [(code::CLIENT, &self.client), (code::SERVER, &self.server)] {
            if let Some(duid) = duid {
                option(out, code, |out| out.extend(duid.iter()));
            }
        }
        if let Some(elapsed) = self.elapsed {
            option(out, code::ELAPSED, |out| out.extend(elapsed.to_be_bytes()));
        }
        self.write_requested(out);
        let associations = [
            (code::IA_NA, code::ADDRESS, &self.addresses),
            (code::IA_PD, code::PREFIX, &self.prefixes),
        ];
        for (code, lease, association) in associations {
            if let Some(association) = association {
                option(out, code, |out| association.write(lease, out));
            }
        }
        if self.rapid_commit {
            option(out, code::RAPID_COMMIT, |_| {});
        }
        if let Some(preference) = self.preference {
            option(out, code::PREFERENCE, |out| out.push(preference));
        }
        if let Some(status) = self.status {
            option(out, code::STATUS, |out| out.extend(status.to_be_bytes()));
        }
        let numbers = [
            (code::REFRESH, self.refresh),
            (code::SOL_MAX_RT, self.sol_max_rt),
            (code::INF_MAX_RT, self.inf_max_rt),
        ];
        for (code, value) in numbers {
            if let Some(value) = value {
                option(out, code, |out| out.extend(value.to_be_bytes()));
            }
        }
        let ports = match self.kind.is_reply() {
            true => (SERVER_PORT_6, CLIENT_PORT_6),
            false => (CLIENT_PORT_6, SERVER_PORT_6),
        };
        write_headers((source, destination), ports, &mut out[at..]);
    }

    /// Clients request DNS servers and domains, and must request the limits of their timers
    /// (section 21.7).
    fn write_requested(&self, out: &mut Vec<u8>) {
        use Kind6::{InformationRequest, Rebind, Renew, Request, Solicit};
        const DNS: [u16; 2] = [23, 24];
        let wanted: &[u16] = match self.kind {
            Solicit | Request | Renew | Rebind => &[code::SOL_MAX_RT],
            InformationRequest => &[code::REFRESH, code::INF_MAX_RT],
            _ => return,
        };
        option(out, code::REQUESTED, |out| {
            DNS.iter().chain(wanted).for_each(|code| out.extend(code.to_be_bytes()));
        });
    }
}

impl Association {
    fn write(&self, lease_code: u16, out: &mut Vec<u8>) {
        for number in [self.id, self.t1, self.t2] {
            out.extend(number.to_be_bytes());
        }
        for lease in &self.leases {
            option(out, lease_code, |out| {
                if lease_code == code::ADDRESS {
                    out.extend(lease.address.octets());
                }
                out.extend(lease.preferred.to_be_bytes());
                out.extend(lease.valid.to_be_bytes());
                if lease_code == code::PREFIX {
                    out.push(lease.length);
                    out.extend(lease.address.octets());
                }
            });
        }
        if let Some(status) = self.status {
            option(out, code::STATUS, |out| out.extend(status.to_be_bytes()));
        }
    }
}

/// The DUID of a host, from its MAC address (DUID-LL, section 11.4).
pub fn duid_of(mac: MacAddr) -> Box<[u8]> {
    let [a, b, c, d, e, f] = mac.0;
    Box::new([0, 3, 0, 1, a, b, c, d, e, f])
}

const OPTIONS: &str = "bad_options";

/// Calls `each` with the code and the value of each option.
fn for_each(
    mut octets: &[u8],
    mut each: impl FnMut(u16, &[u8]) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    while !octets.is_empty() {
        let (head, rest) = octets.split_first_chunk::<4>().ok_or(OPTIONS)?;
        let (value, rest) = rest.split_at_checked(be16(head, 2).into()).ok_or(OPTIONS)?;
        octets = rest;
        each(be16(head, 0), value)?;
    }
    Ok(())
}

fn association(value: &[u8]) -> Result<Association, &'static str> {
    let (head, options) = value.split_first_chunk::<12>().ok_or(OPTIONS)?;
    let mut all = Association {
        id: be32(head, 0),
        t1: be32(head, 4),
        t2: be32(head, 8),
        ..Association::default()
    };
    for_each(options, |code, value| {
        let address =
            |at: usize| Ipv6Addr::from(*value[at..].first_chunk::<16>().unwrap_or(&[0; 16]));
        let lease = match code {
            code::ADDRESS if value.len() >= 24 => Lease6 {
                address: address(0),
                length: 128,
                preferred: be32(value, 16),
                valid: be32(value, 20),
            },
            code::PREFIX if value.len() >= 25 => Lease6 {
                preferred: be32(value, 0),
                valid: be32(value, 4),
                length: value[8],
                address: address(9),
            },
            code::ADDRESS | code::PREFIX => return Err(OPTIONS),
            code::STATUS => {
                set(&mut all.status, get_be16(value, 0).ok_or(OPTIONS)?);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if all.leases.len() < MOST_LEASES {
            all.leases.push(lease);
        }
        Ok(())
    })?;
    Ok(all)
}

fn duid(value: &[u8]) -> Result<Box<[u8]>, &'static str> {
    match value.len() {
        3..=LONGEST_DUID => Ok(value.into()),
        _ => Err(OPTIONS),
    }
}

fn number(value: &[u8]) -> Result<u32, &'static str> {
    exactly(value).map(u32::from_be_bytes)
}

fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], &'static str> {
    value.try_into().map_err(|_| OPTIONS)
}

/// Keeps the first value.
fn set<T>(field: &mut Option<T>, value: T) {
    field.get_or_insert(value);
}

/// Writes an option whose value `write` writes.
fn option(out: &mut Vec<u8>, code: u16, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend(code.to_be_bytes());
    let at = out.len();
    out.extend([0; 2]);
    write(out);
    let len = (out.len() - at - 2) as u16;
    out[at..at + 2].copy_from_slice(&len.to_be_bytes());
}

/// A UDP datagram over IPv6 whose checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram6<'a> {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    /// Source and destination port.
    pub ports: (u16, u16),
    pub payload: &'a [u8],
}

impl<'a> Datagram6<'a> {
    /// Whether an IPv6 packet is a datagram to a port of DHCPv6; cheap, for packets that are mostly
    /// others.
    pub fn is_dhcp(packet: &[u8]) -> bool {
        packet.get(6) == Some(&UDP)
            && matches!(get_be16(packet, 42), Some(CLIENT_PORT_6 | SERVER_PORT_6))
    }

    /// Parses an IPv6 packet. `partial`: its checksum is not complete, because the sender's kernel
    /// leaves that to a NIC.
    pub fn parse(packet: &'a [u8], partial: bool) -> Option<Self> {
        let (ip, rest) = packet.split_first_chunk::<40>()?;
        let udp = rest.get(..usize::from(be16(ip, 4)))?;
        let udp = udp.get(..usize::from(get_be16(udp, 4)?)).filter(|udp| udp.len() >= 8)?;
        if ip[0] >> 4 != 6 || ip[6] != UDP {
            return None;
        }
        // Over IPv6, a checksum of 0 is wrong (RFC 8200 section 8.1).
        let right =
            be16(udp, 6) != 0 && fold(pseudo_of(&ip[8..40], udp.len(), UDP) + sum(udp)) == 0xffff;
        if !partial && !right {
            return None;
        }
        let address =
            |at: usize| ip[at..].first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
        Some(Self {
            source: address(8)?,
            destination: address(24)?,
            ports: (be16(udp, 0), be16(udp, 2)),
            payload: &udp[8..],
        })
    }
}

/// Writes the headers of `packet`, whose payload is complete.
pub(crate) fn write_headers(addresses: (Ipv6Addr, Ipv6Addr), ports: (u16, u16), packet: &mut [u8]) {
    let (ip, udp) = packet.split_at_mut(40);
    let len = udp.len() as u16;
    ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 0, UDP, 64]);
    ip[4..6].copy_from_slice(&len.to_be_bytes());
    ip[8..24].copy_from_slice(&addresses.0.octets());
    ip[24..40].copy_from_slice(&addresses.1.octets());
    write_udp(&ip[8..40], ports, udp);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn reply() -> Message6 {
        let lease = |address, length| Lease6 { address, length, preferred: 300, valid: 600 };
        let association = |lease| Association {
            id: 1,
            t1: 150,
            t2: 240,
            status: Some(status::SUCCESS),
            leases: vec![lease],
        };
        Message6 {
            client: Some(duid_of(MAC)),
            server: Some(duid_of(MacAddr([4; 6]))),
            elapsed: Some(7),
            rapid_commit: true,
            preference: Some(255),
            status: Some(status::NO_ADDRESSES),
            addresses: Some(association(lease(v6("2001:db8::5"), 128))),
            prefixes: Some(association(lease(v6("2001:db8:100::"), 56))),
            refresh: Some(3600),
            sol_max_rt: Some(60),
            inf_max_rt: Some(86_400),
            ..Message6::new(Kind6::Reply, 0x0012_3456)
        }
    }

    fn packet(message: &Message6) -> Vec<u8> {
        let mut packet = Vec::new();
        message.write(v6("fe80::1"), v6("fe80::2"), &mut packet);
        packet
    }

    #[test]
    fn a_message_reads_back_from_its_packet() {
        let mut packet = packet(&reply());
        assert!(Datagram6::is_dhcp(&packet));
        // Ethernet's padding is not part of the packet.
        packet.extend([0; 6]);
        let datagram = Datagram6::parse(&packet, false).unwrap();
        assert_eq!(datagram.ports, (SERVER_PORT_6, CLIENT_PORT_6));
        assert_eq!(Message6::parse(datagram.payload), Ok(reply()));
        packet[60] ^= 1;
        assert_eq!(Datagram6::parse(&packet, false), None, "the checksum is wrong");
        assert!(Datagram6::parse(&packet, true).is_some(), "a NIC completes it");
    }

    #[test]
    fn a_client_requests_the_limits_of_its_timers() {
        for (kind, limit) in [(Kind6::Solicit, 82u8), (Kind6::InformationRequest, 83)] {
            let packet = packet(&Message6::new(kind, 5));
            let payload = Datagram6::parse(&packet, false).unwrap().payload;
            assert_eq!((payload[0], &payload[4..6]), (kind as u8, &[0, 6][..]));
            assert!(payload.chunks(2).any(|pair| *pair == [0, limit]), "{payload:?}");
        }
    }

    #[test]
    fn broken_messages_have_a_reason() {
        let parse = |octets: &[u8]| Message6::parse(octets).unwrap_err();
        assert_eq!(parse(&[7, 0, 0]), "truncated");
        assert_eq!(parse(&[99, 0, 0, 1]), "bad_type");
        assert_eq!(parse(&[12, 0, 0, 1]), "bad_type", "a relay's");
        assert_eq!(parse(&[7, 0, 0, 1, 0, 14, 0, 1, 9]), "bad_options", "of a wrong length");
        assert_eq!(parse(&[7, 0, 0, 1, 0, 7, 0, 2, 9]), "bad_options", "beyond the end");
        assert_eq!(parse(&[7, 0, 0, 1, 0, 3, 0, 4, 0, 0, 0, 1]), "bad_options", "a short IA");
        let nested = [7, 0, 0, 1, 0, 3, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 9];
        assert_eq!(parse(&nested), "bad_options", "an address beyond the end of its IA");
        let giant = [&[7, 0, 0, 1, 0, 1, 0, 200][..], &[1; 200]].concat();
        assert_eq!(parse(&giant), "bad_options", "a DUID of 200 octets");
    }

    #[test]
    fn only_the_first_leases_of_a_flood_are_read() {
        let mut message = reply();
        let lease = message.addresses.as_ref().unwrap().leases[0];
        message.addresses.as_mut().unwrap().leases = vec![lease; 100];
        let packet = packet(&message);
        let payload = Datagram6::parse(&packet, false).unwrap().payload;
        let read = Message6::parse(payload).unwrap();
        assert_eq!(read.addresses.unwrap().leases.len(), MOST_LEASES);
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic_and_what_is_read_is_written_again(
            mut octets in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..12,
            flips in proptest::collection::vec((0usize..200, any::<u8>()), 0..4), real: bool,
        ) {
            if real {
                octets = Datagram6::parse(&packet(&reply()), false).unwrap().payload.to_vec();
                for (at, value) in flips {
                    if let Some(octet) = octets.get_mut(at) {
                        *octet = value;
                    }
                }
            } else if let Some(first) = octets.first_mut() {
                *first = kind;
            }
            let _ = Datagram6::parse(&octets, true);
            if let Ok(message) = Message6::parse(&octets) {
                let packet = packet(&message);
                let payload = Datagram6::parse(&packet, false).unwrap().payload;
                prop_assert_eq!(Message6::parse(payload), Ok(message));
            }
        }
    }
}
