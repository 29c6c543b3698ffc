//! DHCPv4 messages (RFC 2131 section 2, RFC 2132), with the UDP and IPv4 headers around them.

use std::net::Ipv4Addr;

use squall_units::{MacAddr, be16, get_be16};
use squall_wire::checksum::{fold, sum};

use crate::packets::{UDP, pseudo_of, write_udp};

/// UDP ports of clients and servers (RFC 2131 section 4.1).
pub const CLIENT_PORT: u16 = 68;
pub const SERVER_PORT: u16 = 67;
/// Octets before the options: the fields of BOOTP, and the magic cookie.
const FIXED: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Offsets of the fields that options may overload (RFC 2132 section 9.3).
const SNAME: std::ops::Range<usize> = 44..108;
const FILE: std::ops::Range<usize> = 108..236;
/// Shortest message, in octets: servers of BOOTP discard shorter ones (RFC 1542 section 2.1).
const SHORTEST: usize = 300;
const BROADCAST: u16 = 0x8000;
/// Lengths of the IPv4 and UDP headers.
const HEADERS: usize = 28;

/// Message types (RFC 2132 section 9.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Discover = 1,
    Offer = 2,
    Request = 3,
    Decline = 4,
    Ack = 5,
    Nak = 6,
    Release = 7,
    Inform = 8,
}

impl Kind {
    fn of(octet: u8) -> Option<Self> {
        use Kind::{Ack, Decline, Discover, Inform, Nak, Offer, Release, Request};
        let all = [Discover, Offer, Request, Decline, Ack, Nak, Release, Inform];
        all.into_iter().find(|kind| *kind as u8 == octet)
    }

    /// Whether servers send it.
    pub fn is_reply(self) -> bool {
        matches!(self, Self::Offer | Self::Ack | Self::Nak)
    }
}

/// Codes of the options that are read or written.
mod code {
    pub const PAD: u8 = 0;
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS_SERVER: u8 = 6;
    pub const REQUESTED: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const OVERLOAD: u8 = 52;
    pub const TYPE: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const PARAMETERS: u8 = 55;
    pub const RENEWAL: u8 = 58;
    pub const REBINDING: u8 = 59;
    pub const RAPID_COMMIT: u8 = 80;
    pub const AGENT: u8 = 82;
    pub const END: u8 = 255;
}

/// The parameters that clients request: mask, router, DNS servers, domain, lease time, T1, T2.
const WANTED: [u8; 7] = [1, 3, 6, 15, 51, 58, 59];
/// An INFORM requests only the first of these, which belong to no lease (RFC 2131 section 4.4.3).
const WITHOUT_LEASE: usize = 4;

/// A message. Times of leases are in seconds; 0xffff_ffff is infinity (RFC 2131 section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    pub kind: Kind,
    /// Relay agents on the way of a request.
    pub hops: u8,
    pub xid: u32,
    pub secs: u16,
    /// Whether the client asks for answers by broadcast.
    pub broadcast: bool,
    pub ciaddr: Ipv4Addr,
    pub yiaddr: Ipv4Addr,
    pub giaddr: Ipv4Addr,
    pub chaddr: MacAddr,
    pub server: Option<Ipv4Addr>,
    pub requested: Option<Ipv4Addr>,
    pub lease: Option<u32>,
    /// T1 and T2.
    pub renewal: Option<u32>,
    pub rebinding: Option<u32>,
    pub mask: Option<Ipv4Addr>,
    /// The first router, and the first DNS server, of the list.
    pub router: Option<Ipv4Addr>,
    pub dns: Option<Ipv4Addr>,
    /// The client wants, or the server has made, an exchange of two messages (RFC 4039).
    pub rapid: bool,
    /// Information of the relay agent (option 82, RFC 3046); empty: none.
    pub agent: Vec<u8>,
}

/// Why octets are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// It ends before the options begin.
    Truncated,
    /// It is of another kind of hardware than Ethernet, or has no magic cookie: BOOTP, for example.
    Foreign,
    /// An option reaches beyond the end of the options, or has a wrong length.
    Options,
    /// It has no message type, an unknown one, or one that does not suit `op`.
    Kind,
}

impl Message {
    pub fn new(kind: Kind, xid: u32, chaddr: MacAddr) -> Self {
        let none = Ipv4Addr::UNSPECIFIED;
        Self {
            kind,
            hops: 0,
            xid,
            secs: 0,
            broadcast: false,
            ciaddr: none,
            yiaddr: none,
            giaddr: none,
            chaddr,
            server: None,
            requested: None,
            lease: None,
            renewal: None,
            rebinding: None,
            mask: None,
            router: None,
            dns: None,
            rapid: false,
            agent: Vec::new(),
        }
    }

    /// Parses the payload of a UDP datagram.
    ///
    /// # Errors
    /// The octets are not a DHCPv4 message for Ethernet.
    pub fn parse(octets: &[u8]) -> Result<Self, Malformed> {
        let Some((fixed, options)) = octets.split_first_chunk::<FIXED>() else {
            return Err(Malformed::Truncated);
        };
        let address = |at: usize| Ipv4Addr::from(u32::from_be_bytes(array(&fixed[at..])));
        if fixed[1..3] != [1, 6] || fixed[236..] != COOKIE {
            return Err(Malformed::Foreign);
        }
        let xid = u32::from_be_bytes(array(&fixed[4..]));
        let mut message = Self {
            hops: fixed[3],
            secs: be16(fixed, 8),
            broadcast: be16(fixed, 10) & BROADCAST != 0,
            ciaddr: address(12),
            yiaddr: address(16),
            giaddr: address(24),
            // Replaced when the options are known.
            ..Self::new(Kind::Discover, xid, MacAddr(array(&fixed[28..])))
        };
        let (mut kind, mut overload) = (None, 0);
        message.read(options, &mut kind, &mut overload)?;
        // The fields are read once, `file` first (RFC 2131 section 4.1). An overload option inside
        // of them has no effect, so that no message can make its reader go round in circles.
        if overload & 1 != 0 {
            message.read(&fixed[FILE], &mut kind, &mut 0)?;
        }
        if overload & 2 != 0 {
            message.read(&fixed[SNAME], &mut kind, &mut 0)?;
        }
        message.kind = kind.and_then(Kind::of).ok_or(Malformed::Kind)?;
        let op = if message.kind.is_reply() { 2 } else { 1 };
        if fixed[0] == op { Ok(message) } else { Err(Malformed::Kind) }
    }

    /// Reads options. The first occurrence of an option counts. The end option may be missing,
    /// because some servers leave it out if the options fill their field.
    fn read(
        &mut self,
        mut options: &[u8],
        kind: &mut Option<u8>,
        overload: &mut u8,
    ) -> Result<(), Malformed> {
        while let [code, rest @ ..] = options {
            match *code {
                code::PAD => {
                    options = rest;
                    continue;
                }
                code::END => break,
                _ => {}
            }
            let (len, rest) = rest.split_first().ok_or(Malformed::Options)?;
            let (value, rest) = rest.split_at_checked((*len).into()).ok_or(Malformed::Options)?;
            options = rest;
            match *code {
                code::TYPE => *kind = kind.or(Some(exactly::<1>(value)?[0])),
                code::OVERLOAD => *overload |= exactly::<1>(value)?[0],
                code::SERVER => set(&mut self.server, exactly(value)?.into()),
                code::REQUESTED => set(&mut self.requested, exactly(value)?.into()),
                code::SUBNET_MASK => set(&mut self.mask, exactly(value)?.into()),
                code::ROUTER => set(&mut self.router, first(value)?),
                code::DNS_SERVER => set(&mut self.dns, first(value)?),
                code::LEASE_TIME => set(&mut self.lease, u32::from_be_bytes(exactly(value)?)),
                code::RENEWAL => set(&mut self.renewal, u32::from_be_bytes(exactly(value)?)),
                code::REBINDING => set(&mut self.rebinding, u32::from_be_bytes(exactly(value)?)),
                code::RAPID_COMMIT => {
                    exactly::<0>(value)?;
                    self.rapid = true;
                }
                code::AGENT if self.agent.is_empty() => self.agent = value.to_vec(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Appends the IPv4 packet that carries the message to `out`. `options`: further options, as
    /// in the packet.
    pub fn write(
        &self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        options: &[u8],
        out: &mut Vec<u8>,
    ) {
        let at = out.len();
        out.resize(at + HEADERS + FIXED, 0);
        let fixed = &mut out[at + HEADERS..];
        fixed[..4].copy_from_slice(&[if self.kind.is_reply() { 2 } else { 1 }, 1, 6, self.hops]);
        fixed[4..8].copy_from_slice(&self.xid.to_be_bytes());
        fixed[8..10].copy_from_slice(&self.secs.to_be_bytes());
        let flags = if self.broadcast { BROADCAST } else { 0 };
        fixed[10..12].copy_from_slice(&flags.to_be_bytes());
        for (at, address) in [(12, self.ciaddr), (16, self.yiaddr), (24, self.giaddr)] {
            fixed[at..at + 4].copy_from_slice(&address.octets());
        }
        fixed[28..34].copy_from_slice(&self.chaddr.0);
        fixed[236..].copy_from_slice(&COOKIE);
        out.extend([code::TYPE, 1, self.kind as u8]);
        let addresses = [
            (code::REQUESTED, self.requested),
            (code::SERVER, self.server),
            (code::SUBNET_MASK, self.mask),
            (code::ROUTER, self.router),
            (code::DNS_SERVER, self.dns),
        ];
        let addresses = addresses.map(|(code, value)| (code, value.map(|value| value.octets())));
        let times = [
            (code::LEASE_TIME, self.lease),
            (code::RENEWAL, self.renewal),
            (code::REBINDING, self.rebinding),
        ];
        let times = times.map(|(code, value)| (code, value.map(u32::to_be_bytes)));
        for (code, value) in addresses.into_iter().chain(times) {
            if let Some(value) = value {
                out.extend([code, 4]);
                out.extend(value);
            }
        }
        if matches!(self.kind, Kind::Discover | Kind::Request | Kind::Inform) {
            let wanted = match self.kind {
                Kind::Inform => &WANTED[..WITHOUT_LEASE],
                _ => &WANTED[..],
            };
            out.extend([code::PARAMETERS, wanted.len() as u8]);
            out.extend(wanted);
        }
        if self.rapid {
            out.extend([code::RAPID_COMMIT, 0]);
        }
        out.extend(options);
        if !self.agent.is_empty() {
            // The agent's option is the last one (RFC 3046 section 2.1).
            let agent = &self.agent[..self.agent.len().min(255)];
            out.extend([code::AGENT, agent.len() as u8]);
            out.extend(agent);
        }
        out.push(code::END);
        out.resize(out.len().max(at + HEADERS + SHORTEST), 0);
        let ports = match self.kind.is_reply() {
            // Between relay agent and server (RFC 2131 section 4.1).
            _ if !self.giaddr.is_unspecified() => (SERVER_PORT, SERVER_PORT),
            true => (SERVER_PORT, CLIENT_PORT),
            false => (CLIENT_PORT, SERVER_PORT),
        };
        write_headers((source, destination), ports, &mut out[at..]);
    }
}

/// Keeps the first value.
fn set<T>(field: &mut Option<T>, value: T) {
    field.get_or_insert(value);
}

/// The first address of a list.
fn first(value: &[u8]) -> Result<Ipv4Addr, Malformed> {
    let first = value.first_chunk::<4>().filter(|_| value.len().is_multiple_of(4));
    first.map(|octets| Ipv4Addr::from(*octets)).ok_or(Malformed::Options)
}

fn exactly<const N: usize>(value: &[u8]) -> Result<[u8; N], Malformed> {
    value.try_into().map_err(|_| Malformed::Options)
}

fn array<const N: usize>(octets: &[u8]) -> [u8; N] {
    *octets.first_chunk().expect("the fixed part of a message has all fields")
}

/// A UDP datagram over IPv4 that is not a fragment and whose checksums are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    pub source: Ipv4Addr,
    pub destination: Ipv4Addr,
    /// Source and destination port.
    pub ports: (u16, u16),
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Whether an IPv4 packet is a datagram between the ports of DHCP; cheap, for packets that are
    /// mostly others.
    pub fn is_dhcp(packet: &[u8]) -> bool {
        let Some([first, .., UDP]) = packet.first_chunk::<10>() else { return false };
        let header = usize::from(first & 15) * 4;
        let is_known = |port| matches!(port, Some(CLIENT_PORT | SERVER_PORT));
        is_known(get_be16(packet, header)) && is_known(get_be16(packet, header + 2))
    }

    /// Parses an IPv4 packet. `partial`: its UDP checksum is not complete, because the sender's
    /// kernel leaves that to a NIC.
    pub fn parse(packet: &'a [u8], partial: bool) -> Option<Self> {
        let header = usize::from(packet.first()? & 15) * 4;
        let total = usize::from(get_be16(packet, 2)?);
        let (ip, udp) = packet.get(..total)?.split_at_checked(header.max(20))?;
        let fragment = be16(ip, 6) & 0x3fff != 0;
        if ip[0] >> 4 != 4 || header < 20 || fragment || ip[9] != UDP || fold(sum(ip)) != 0xffff {
            return None;
        }
        let udp = udp.get(..usize::from(get_be16(udp, 4)?)).filter(|udp| udp.len() >= 8)?;
        // A checksum of 0 means that the sender made none (RFC 768).
        let checked = !partial && be16(udp, 6) != 0;
        if checked && fold(pseudo_of(&ip[12..20], udp.len(), UDP) + sum(udp)) != 0xffff {
            return None;
        }
        let address = |at: usize| ip[at..].first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
        Some(Self {
            source: address(12)?,
            destination: address(16)?,
            ports: (be16(udp, 0), be16(udp, 2)),
            payload: &udp[8..],
        })
    }
}

/// Writes the headers of `packet`, whose payload is complete.
pub(crate) fn write_headers(addresses: (Ipv4Addr, Ipv4Addr), ports: (u16, u16), packet: &mut [u8]) {
    let total = packet.len() as u16;
    let (ip, udp) = packet.split_at_mut(20);
    // A TTL of 64 (RFC 1700); no fragmentation.
    ip[..12].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0]);
    ip[2..4].copy_from_slice(&total.to_be_bytes());
    ip[12..16].copy_from_slice(&addresses.0.octets());
    ip[16..20].copy_from_slice(&addresses.1.octets());
    let check = !fold(sum(ip));
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    write_udp(&ip[12..20], ports, udp);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 7]);

    fn offer() -> Message {
        Message {
            yiaddr: [10, 0, 0, 5].into(),
            server: Some([10, 0, 0, 1].into()),
            lease: Some(3600),
            renewal: Some(1800),
            rebinding: Some(3150),
            mask: Some([255, 255, 0, 0].into()),
            router: Some([10, 0, 0, 1].into()),
            ..Message::new(Kind::Offer, 0x0102_0304, MAC)
        }
    }

    /// The payload of the datagram that carries `message`.
    fn payload(message: &Message) -> Vec<u8> {
        let mut packet = Vec::new();
        message.write([10, 0, 0, 1].into(), Ipv4Addr::BROADCAST, b"", &mut packet);
        Datagram::parse(&packet, false).expect("a datagram").payload.to_vec()
    }

    #[test]
    fn a_message_reads_back_from_its_packet() {
        let mut packet = Vec::new();
        offer().write([10, 0, 0, 1].into(), [10, 0, 0, 5].into(), b"", &mut packet);
        assert!(Datagram::is_dhcp(&packet));
        // Ethernet's padding is not part of the packet.
        packet.extend([0; 6]);
        let datagram = Datagram::parse(&packet, false).unwrap();
        assert_eq!((datagram.ports, datagram.payload.len()), ((67, 68), SHORTEST));
        assert_eq!(Message::parse(datagram.payload), Ok(offer()));
        packet[60] ^= 1;
        assert_eq!(Datagram::parse(&packet, false), None, "the checksum is wrong");
        assert!(Datagram::parse(&packet, true).is_some(), "it is not complete");
    }

    #[test]
    fn a_discover_names_the_parameters_that_it_wants_and_has_further_options() {
        let mut packet = Vec::new();
        let message = Message::new(Kind::Discover, 1, MAC);
        let vendor = b"\x3c\x06squall";
        message.write(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, vendor, &mut packet);
        let octets = &packet[HEADERS + FIXED..];
        let wanted = [53, 1, 1, 55, 7, 1, 3, 6, 15, 51, 58, 59, 60, 6];
        assert_eq!(octets[..14], wanted);
        assert_eq!(octets[14..21], *b"squall\xff");
    }

    #[test]
    fn an_inform_wants_no_times_of_a_lease() {
        let mut packet = Vec::new();
        let message = Message::new(Kind::Inform, 1, MAC);
        message.write(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, b"", &mut packet);
        assert_eq!(packet[HEADERS + FIXED..][..10], [53, 1, 8, 55, 4, 1, 3, 6, 15, 255]);
    }

    #[test]
    fn a_relayed_request_goes_between_the_ports_of_servers_and_ends_with_option_82() {
        let mut packet = Vec::new();
        let message = Message {
            hops: 1,
            giaddr: [10, 9, 0, 1].into(),
            rapid: true,
            agent: b"\x01\x03ge1".to_vec(),
            ..Message::new(Kind::Discover, 1, MAC)
        };
        message.write(message.giaddr, Ipv4Addr::BROADCAST, b"\x0c\x02pc", &mut packet);
        let datagram = Datagram::parse(&packet, false).unwrap();
        assert_eq!((datagram.ports, datagram.payload[3]), ((67, 67), 1));
        assert_eq!(
            datagram.payload[FIXED + 12..][..14],
            *b"\x50\x00\x0c\x02pc\x52\x05\x01\x03ge1\xff"
        );
        assert_eq!(Message::parse(datagram.payload), Ok(message));
    }

    #[test]
    fn options_in_the_fields_of_bootp_are_read_once() {
        let mut octets = payload(&offer());
        // Option 54 moves to `file`, which claims to be overloaded again.
        let at = octets.windows(6).position(|at| at == [54, 4, 10, 0, 0, 1]).unwrap();
        octets[at..at + 6].copy_from_slice(&[52, 1, 3, 0, 0, 0]);
        octets[FILE][..10].copy_from_slice(&[52, 1, 3, 54, 4, 10, 0, 0, 9, 255]);
        octets[SNAME][..7].copy_from_slice(&[54, 4, 10, 0, 0, 8, 255]);
        let read = Message::parse(&octets).unwrap();
        assert_eq!(read.server, Some([10, 0, 0, 9].into()), "`file` is read before `sname`");
    }

    #[test]
    fn hostile_messages_are_refused_with_a_reason() {
        let good = payload(&offer());
        let with = |at: usize, octets: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + octets.len()].copy_from_slice(octets);
            Message::parse(&bad)
        };
        assert_eq!(Message::parse(&good[..FIXED - 1]), Err(Malformed::Truncated));
        assert_eq!(with(236, &[0; 4]), Err(Malformed::Foreign), "BOOTP");
        assert_eq!(with(1, &[6]), Err(Malformed::Foreign), "another kind of hardware");
        assert_eq!(with(240, &[0, 0, 0]), Err(Malformed::Kind), "no message type");
        assert_eq!(with(242, &[99]), Err(Malformed::Kind), "an unknown type");
        assert_eq!(with(0, &[1]), Err(Malformed::Kind), "a request cannot be an offer");
        assert_eq!(with(243, &[54, 3]), Err(Malformed::Options), "a wrong length");
        assert_eq!(with(243, &[224, 250]), Err(Malformed::Options), "it passes the end");
        assert_eq!(with(243, &[80, 1]), Err(Malformed::Options), "rapid commit has no value");
        assert_eq!(Message::parse(&good[..FIXED]), Err(Malformed::Kind), "no options");
    }

    #[test]
    fn of_giant_and_repeated_options_only_the_first_values_count() {
        let mut octets = payload(&offer());
        let end = octets.iter().rposition(|octet| *octet == 255).unwrap();
        octets.truncate(end);
        // 63 routers, and then 2,000 times the longest option.
        let routers: Vec<u8> = (0..63).flat_map(|last| [10, 9, 9, last]).collect();
        octets.extend([3, 252]);
        octets.extend(&routers);
        for _ in 0..2000 {
            octets.extend([224, 255]);
            octets.extend([7; 255]);
        }
        assert_eq!(Message::parse(&octets), Ok(offer()));
        let first = Message { router: None, ..offer() };
        let mut octets = payload(&first);
        let end = octets.iter().rposition(|octet| *octet == 255).unwrap();
        octets.truncate(end);
        octets.extend([3, 252]);
        octets.extend(&routers);
        assert_eq!(Message::parse(&octets).unwrap().router, Some([10, 9, 9, 0].into()));
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(
            octets in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0usize..700,
        ) {
            let mut message = payload(&offer());
            for (to, from) in message.iter_mut().skip(at).zip(&octets) {
                *to = *from;
            }
            let _ = Message::parse(&message);
            let _ = Message::parse(&octets);
            let _ = Datagram::parse(&octets, false);
            let _ = Datagram::is_dhcp(&octets);
        }

        #[test]
        fn a_written_message_reads_back(
            kind in 1u8..=8, xid: u32, addresses: [u32; 4], options: [Option<u32>; 8], secs: u16,
            hops: u8, broadcast: bool, rapid: bool,
            agent in proptest::collection::vec(any::<u8>(), 0..255),
        ) {
            let message = Message {
                kind: Kind::of(kind).unwrap(),
                hops,
                xid,
                secs,
                broadcast,
                ciaddr: addresses[0].into(),
                yiaddr: addresses[1].into(),
                giaddr: addresses[2].into(),
                chaddr: MAC,
                server: options[0].map(Ipv4Addr::from),
                requested: options[1].map(Ipv4Addr::from),
                mask: options[2].map(Ipv4Addr::from),
                router: options[3].map(Ipv4Addr::from),
                dns: options[7].map(Ipv4Addr::from),
                lease: options[4],
                renewal: options[5],
                rebinding: options[6],
                rapid,
                agent,
            };
            prop_assert_eq!(Message::parse(&payload(&message)), Ok(message));
        }
    }
}
