//! The messages of neighbor discovery (RFC 4861 section 4) as IPv6 packets.

use std::net::Ipv6Addr;

use squall_units::{MacAddr, be16, be32};
use squall_wire::checksum::{fold, sum};

use crate::packets::{ICMPV6, pseudo};

/// Types of ICMPv6 messages.
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Types of options (section 4.6).
mod code {
    pub const SOURCE: u8 = 1;
    pub const TARGET: u8 = 2;
    pub const PREFIX: u8 = 3;
    pub const MTU: u8 = 5;
}

const IPV6_HEADER: usize = 40;
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// Prefixes of one advertisement that are read. Further ones could only make a host do more work.
const MOST_PREFIXES: usize = 8;

/// A neighbor solicitation or advertisement (sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborMessage {
    /// Whether it is a solicitation; otherwise it is an advertisement.
    pub solicitation: bool,
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub target: Ipv6Addr,
    /// Link-layer address of the source (solicitation) or the target (advertisement).
    pub mac: Option<MacAddr>,
    /// Flags of an advertisement: [`NeighborMessage::ROUTER`] and those after it.
    pub flags: u8,
}

impl NeighborMessage {
    pub const ROUTER: u8 = 0x80;
    pub const SOLICITED: u8 = 0x40;
    pub const OVERRIDE: u8 = 0x20;

    /// Parses an IPv6 packet; `None` for any other message, and for one that is not valid (section
    /// 7.1). The addresses of hosts may be multicast ones: TRex's clients and servers have such
    /// addresses by default (`ff02::`).
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match NdMessage::read(packet) {
            Ok(Some(NdMessage::Neighbor(message))) => Some(message),
            _ => None,
        }
    }

    /// Whether its addresses are those of unicast hosts (sections 7.1.1 and 7.1.2).
    fn check(&self) -> Result<(), &'static str> {
        if self.target.is_multicast() {
            return Err("bad_target");
        }
        if self.destination.is_multicast() && self.flags & Self::SOLICITED != 0 {
            return Err("bad_flags");
        }
        Ok(())
    }

    /// Makes a solicitation for `target`.
    pub fn solicit(source: Ipv6Addr, mac: MacAddr, target: Ipv6Addr) -> Self {
        Self {
            solicitation: true,
            source,
            destination: solicited_node(target).0,
            target,
            mac: Some(mac),
            flags: 0,
        }
    }

    /// Makes a solicitation that asks whether another host has `target` (RFC 4862 section 5.4.2).
    /// It has no source address, and therefore no link-layer address.
    pub fn probe(target: Ipv6Addr) -> Self {
        let message = Self::solicit(Ipv6Addr::UNSPECIFIED, MacAddr::default(), target);
        Self { mac: None, ..message }
    }

    /// The advertisement that answers this solicitation with `mac`, and whether it goes only to the
    /// sender of the solicitation (otherwise to all nodes).
    pub fn advertise(&self, mac: MacAddr) -> (Self, bool) {
        let has_asker = !self.source.is_unspecified();
        let answer = Self {
            solicitation: false,
            source: self.target,
            destination: if has_asker { self.source } else { ALL_NODES },
            target: self.target,
            mac: Some(mac),
            flags: Self::OVERRIDE | if has_asker { Self::SOLICITED } else { 0 },
        };
        (answer, has_asker)
    }

    /// The message as an IPv6 packet.
    pub fn octets(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(IPV6_HEADER + 24 + 8);
        let (kind, option, flags) = match self.solicitation {
            true => (SOLICITATION, code::SOURCE, 0),
            false => (ADVERTISEMENT, code::TARGET, self.flags),
        };
        begin(&mut out, (self.source, self.destination), [kind, flags]);
        out.extend(self.target.octets());
        write_mac(&mut out, option, self.mac);
        finish(&mut out);
        out
    }
}

/// A router advertisement (section 4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterAdvertisement {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    /// The flags M and O: addresses, or only other configuration, by DHCPv6.
    pub managed: bool,
    pub other: bool,
    /// Seconds for which the sender is a default router; 0: it is none.
    pub lifetime: u16,
    /// Milliseconds; 0: unspecified.
    pub reachable: u32,
    pub retransmission: u32,
    pub mac: Option<MacAddr>,
    pub mtu: Option<u32>,
    /// At most 8.
    pub prefixes: Vec<PrefixInformation>,
}

/// A prefix of an advertisement (section 4.6.2). Lifetimes are in seconds; 0xffff_ffff is infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    pub prefix: Ipv6Addr,
    pub length: u8,
    pub on_link: bool,
    pub autonomous: bool,
    pub valid: u32,
    pub preferred: u32,
}

impl RouterAdvertisement {
    /// The message as an IPv6 packet.
    pub fn octets(&self) -> Vec<u8> {
        let mut out = Vec::new();
        begin(&mut out, (self.source, self.destination), [ROUTER_ADVERTISEMENT, 0]);
        let flags = u8::from(self.managed) << 7 | u8::from(self.other) << 6;
        out.truncate(IPV6_HEADER + 4);
        out.extend([self.hop_limit, flags]);
        out.extend(self.lifetime.to_be_bytes());
        out.extend(self.reachable.to_be_bytes());
        out.extend(self.retransmission.to_be_bytes());
        write_mac(&mut out, code::SOURCE, self.mac);
        if let Some(mtu) = self.mtu {
            out.extend([code::MTU, 1, 0, 0]);
            out.extend(mtu.to_be_bytes());
        }
        for prefix in &self.prefixes {
            let flags = u8::from(prefix.on_link) << 7 | u8::from(prefix.autonomous) << 6;
            out.extend([code::PREFIX, 4, prefix.length, flags]);
            out.extend(prefix.valid.to_be_bytes());
            out.extend(prefix.preferred.to_be_bytes());
            out.extend([0; 4]);
            out.extend(prefix.prefix.octets());
        }
        finish(&mut out);
        out
    }
}

/// A router solicitation (section 4.1) as an IPv6 packet.
pub fn router_solicitation(source: Ipv6Addr, mac: MacAddr) -> Vec<u8> {
    let mut out = Vec::new();
    begin(&mut out, (source, ALL_ROUTERS), [ROUTER_SOLICITATION, 0]);
    // Without a source address, there is no host whose link-layer address could be stored.
    write_mac(&mut out, code::SOURCE, (!source.is_unspecified()).then_some(mac));
    finish(&mut out);
    out
}

/// A valid message of neighbor discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NdMessage {
    Neighbor(NeighborMessage),
    RouterSolicitation { source: Ipv6Addr, mac: Option<MacAddr> },
    RouterAdvertisement(RouterAdvertisement),
    Redirect,
}

impl NdMessage {
    /// Whether an IPv6 packet claims to be such a message.
    pub fn is_nd(packet: &[u8]) -> bool {
        packet.get(6) == Some(&ICMPV6)
            && packet
                .get(IPV6_HEADER)
                .is_some_and(|kind| (ROUTER_SOLICITATION..=REDIRECT).contains(kind))
    }

    /// Parses an IPv6 packet; `None` for packets of another kind.
    ///
    /// # Errors
    /// The reason why the message is not valid (sections 6.1, 7.1 and 8.1). Such a message must be
    /// ignored.
    pub fn parse(packet: &[u8]) -> Result<Option<Self>, &'static str> {
        let message = Self::read(packet)?;
        if let Some(Self::Neighbor(neighbor)) = &message {
            neighbor.check()?;
        }
        Ok(message)
    }

    /// As [`NdMessage::parse`], without [`NeighborMessage::check`].
    fn read(packet: &[u8]) -> Result<Option<Self>, &'static str> {
        if !Self::is_nd(packet) {
            return Ok(None);
        }
        let Some((header, rest)) = packet.split_first_chunk::<IPV6_HEADER>() else {
            return Err("truncated");
        };
        let body = rest.get(..usize::from(be16(header, 4))).ok_or("truncated")?;
        let kind = *body.first().ok_or("truncated")?;
        let fixed = match kind {
            ROUTER_SOLICITATION => 8,
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => 24,
        };
        // A hop limit of 255 proves that no router has forwarded the message.
        if header[7] != 255 {
            return Err("bad_hop_limit");
        }
        if fold(pseudo(header, body.len()) + sum(body)) != 0xffff {
            return Err("bad_checksum");
        }
        let (fields, options) = body.split_at_checked(fixed).ok_or("truncated")?;
        if fields[1] != 0 {
            return Err("bad_code");
        }
        let (source, destination) = (address(header, 8), address(header, 24));
        let options = Options::parse(options)?;
        Ok(Some(match kind {
            ROUTER_SOLICITATION => {
                if source.is_unspecified() && options.source.is_some() {
                    return Err("bad_source");
                }
                Self::RouterSolicitation { source, mac: options.source }
            }
            ROUTER_ADVERTISEMENT if !source.is_unicast_link_local() => return Err("bad_source"),
            ROUTER_ADVERTISEMENT => Self::RouterAdvertisement(RouterAdvertisement {
                source,
                destination,
                hop_limit: fields[4],
                managed: fields[5] & 0x80 != 0,
                other: fields[5] & 0x40 != 0,
                lifetime: be16(fields, 6),
                reachable: be32(fields, 8),
                retransmission: be32(fields, 12),
                mac: options.source,
                mtu: options.mtu,
                prefixes: options.prefixes,
            }),
            REDIRECT if !source.is_unicast_link_local() => return Err("bad_source"),
            REDIRECT => Self::Redirect,
            SOLICITATION => {
                let group = solicited_node(destination).0;
                let to_group = group == destination;
                if source.is_unspecified() && (!to_group || options.source.is_some()) {
                    return Err("bad_source");
                }
                Self::Neighbor(NeighborMessage {
                    solicitation: true,
                    source,
                    destination,
                    target: address(fields, 8),
                    mac: options.source,
                    flags: 0,
                })
            }
            _ => Self::Neighbor(NeighborMessage {
                solicitation: false,
                source,
                destination,
                target: address(fields, 8),
                mac: options.target,
                flags: fields[4] & 0xe0,
            }),
        }))
    }
}

#[derive(Default)]
struct Options {
    source: Option<MacAddr>,
    target: Option<MacAddr>,
    mtu: Option<u32>,
    prefixes: Vec<PrefixInformation>,
}

impl Options {
    /// Unknown options are skipped; an option of length 0 makes the message invalid.
    fn parse(mut octets: &[u8]) -> Result<Self, &'static str> {
        let mut all = Self::default();
        while let [kind, eights, ..] = octets {
            let size = 8 * usize::from(*eights);
            let option = octets.get(..size).filter(|_| size > 0).ok_or("bad_options")?;
            octets = &octets[size..];
            let mac = || option[2..].first_chunk::<6>().map(|octets| MacAddr(*octets));
            match (*kind, size) {
                (code::SOURCE, _) => all.source = mac(),
                (code::TARGET, _) => all.target = mac(),
                (code::MTU, 8) => all.mtu = Some(be32(option, 4)),
                (code::PREFIX, 32) if all.prefixes.len() < MOST_PREFIXES => {
                    all.prefixes.push(PrefixInformation {
                        prefix: address(option, 16),
                        length: option[2],
                        on_link: option[3] & 0x80 != 0,
                        autonomous: option[3] & 0x40 != 0,
                        valid: be32(option, 4),
                        preferred: be32(option, 8),
                    });
                }
                _ => {}
            }
        }
        if octets.is_empty() { Ok(all) } else { Err("bad_options") }
    }
}

fn address(octets: &[u8], at: usize) -> Ipv6Addr {
    let octets = octets[at..].first_chunk::<16>().expect("the fixed part has all addresses");
    Ipv6Addr::from(*octets)
}

/// Writes the IPv6 header, and the first 8 octets of the message, whose last 4 begin with `flags`.
fn begin(out: &mut Vec<u8>, (source, destination): (Ipv6Addr, Ipv6Addr), [kind, flags]: [u8; 2]) {
    out.extend([0x60, 0, 0, 0, 0, 0, ICMPV6, 255]);
    out.extend(source.octets());
    out.extend(destination.octets());
    out.extend([kind, 0, 0, 0, flags, 0, 0, 0]);
}

fn write_mac(out: &mut Vec<u8>, code: u8, mac: Option<MacAddr>) {
    if let Some(mac) = mac {
        out.extend([code, 1]);
        out.extend(mac.0);
    }
}

/// Writes the length and the checksum of a complete message.
fn finish(packet: &mut [u8]) {
    let (header, body) = packet.split_at_mut(IPV6_HEADER);
    header[4..6].copy_from_slice(&(body.len() as u16).to_be_bytes());
    let check = !fold(pseudo(header, body.len()) + sum(body));
    body[2..4].copy_from_slice(&check.to_be_bytes());
}

/// The destination of solicitations for an address: the multicast group of the address's last three
/// octets, and the group's MAC address (RFC 4291 section 2.7.1, RFC 2464 section 7).
pub fn solicited_node(target: Ipv6Addr) -> (Ipv6Addr, MacAddr) {
    let [.., a, b, c] = target.octets();
    let group =
        Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), u16::from_be_bytes([b, c]));
    (group, MacAddr([0x33, 0x33, 0xff, a, b, c]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    fn advertisement() -> RouterAdvertisement {
        let prefix = |prefix, autonomous| PrefixInformation {
            prefix: v6(prefix),
            length: 64,
            on_link: true,
            autonomous,
            valid: 2_592_000,
            preferred: 604_800,
        };
        RouterAdvertisement {
            source: v6("fe80::1"),
            destination: ALL_NODES,
            hop_limit: 64,
            managed: true,
            other: false,
            lifetime: 1800,
            reachable: 30_000,
            retransmission: 1000,
            mac: Some(MAC),
            mtu: Some(1500),
            prefixes: vec![prefix("2001:db8:1::", true), prefix("2001:db8:2::", false)],
        }
    }

    /// `packet` with the octet at `at` replaced, and the checksum renewed.
    fn changed(packet: &[u8], at: usize, octet: u8) -> Vec<u8> {
        let mut packet = packet.to_vec();
        packet[at] = octet;
        packet[42..44].fill(0);
        finish(&mut packet);
        packet
    }

    #[test]
    fn a_solicitation_is_answered_by_the_owner_of_the_address() {
        let (a, b) = (v6("fd00::1"), v6("fd00::12:3456"));
        let question = NeighborMessage::solicit(a, MAC, b);
        assert_eq!(question.destination.to_string(), "ff02::1:ff12:3456");
        assert_eq!(NeighborMessage::parse(&question.octets()), Some(question));
        let (answer, unicast) = question.advertise(MacAddr([4; 6]));
        assert!(unicast);
        assert_eq!(NeighborMessage::parse(&answer.octets()), Some(answer));
        assert_eq!((answer.source, answer.destination, answer.mac), (b, a, Some(MacAddr([4; 6]))));
        assert_eq!(answer.flags, NeighborMessage::SOLICITED | NeighborMessage::OVERRIDE);
        let mut from_afar = question.octets();
        from_afar[7] = 254;
        assert_eq!(NdMessage::parse(&from_afar), Err("bad_hop_limit"));
    }

    #[test]
    fn a_probe_has_no_source_and_is_answered_to_all_nodes() {
        let probe = NeighborMessage::probe(v6("fe80::7"));
        let octets = probe.octets();
        assert_eq!((octets.len(), NeighborMessage::parse(&octets)), (64, Some(probe)));
        let (answer, unicast) = probe.advertise(MAC);
        assert_eq!((unicast, answer.destination), (false, ALL_NODES));
        assert_eq!(answer.flags, NeighborMessage::OVERRIDE);
        let with_mac = NeighborMessage { mac: Some(MAC), ..probe };
        assert_eq!(NdMessage::parse(&with_mac.octets()), Err("bad_source"));
        let to_one = NeighborMessage { destination: v6("fe80::7"), ..probe };
        assert_eq!(NdMessage::parse(&to_one.octets()), Err("bad_source"));
    }

    #[test]
    fn messages_of_routers_read_back() {
        let advertisement = advertisement();
        let octets = advertisement.octets();
        let read = NdMessage::parse(&octets).unwrap();
        assert_eq!(read, Some(NdMessage::RouterAdvertisement(advertisement)));
        let (source, mac) = (v6("fe80::9"), Some(MAC));
        let read = NdMessage::parse(&router_solicitation(source, MAC)).unwrap();
        assert_eq!(read, Some(NdMessage::RouterSolicitation { source, mac }));
        let source = Ipv6Addr::UNSPECIFIED;
        let read = NdMessage::parse(&router_solicitation(source, MAC)).unwrap();
        assert_eq!(read, Some(NdMessage::RouterSolicitation { source, mac: None }));
    }

    #[test]
    fn messages_that_are_not_valid_have_a_reason() {
        let octets = advertisement().octets();
        let reason = |packet: &[u8]| NdMessage::parse(packet).unwrap_err();
        assert_eq!(reason(&octets[..octets.len() - 1]), "truncated");
        assert_eq!(reason(&changed(&octets, 41, 1)), "bad_code");
        assert_eq!(reason(&changed(&octets, 8, 0x20)), "bad_source", "not a link-local address");
        assert_eq!(reason(&changed(&octets, 57, 0)), "bad_options", "of length 0");
        assert_eq!(reason(&changed(&octets, 57, 9)), "bad_options", "beyond the end");
        let question = NeighborMessage::solicit(v6("fd00::1"), MAC, v6("fd00::2")).octets();
        assert_eq!(reason(&changed(&question, 48, 0xff)), "bad_target");
        let (answer, _) = NeighborMessage::probe(v6("fd00::2")).advertise(MAC);
        let answer = NeighborMessage { flags: NeighborMessage::SOLICITED, ..answer };
        assert_eq!(reason(&answer.octets()), "bad_flags", "solicited, but to a group");
        assert_eq!(NeighborMessage::parse(&answer.octets()), Some(answer), "a host of a pool");
        let mut broken = octets.clone();
        broken[50] ^= 1;
        assert_eq!(reason(&broken), "bad_checksum");
        assert_eq!(NdMessage::parse(&changed(&octets, 40, 128)), Ok(None), "an echo request");
    }

    proptest! {
        #[test]
        fn no_octets_make_it_panic(
            mut octets in proptest::collection::vec(any::<u8>(), 0..200), kind in 133u8..138,
        ) {
            let _ = NdMessage::parse(&octets);
            if octets.len() > IPV6_HEADER + 4 {
                octets[6..8].copy_from_slice(&[ICMPV6, 255]);
                (octets[40], octets[41]) = (kind, 0);
                octets[42..44].fill(0);
                finish(&mut octets);
                let read = NdMessage::parse(&octets);
                if let Ok(Some(NdMessage::RouterAdvertisement(read))) = read {
                    let again = NdMessage::parse(&read.octets());
                    prop_assert_eq!(again, Ok(Some(NdMessage::RouterAdvertisement(read))));
                }
            }
        }
    }
}
