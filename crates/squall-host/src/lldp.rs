//! LLDP (IEEE 802.1AB-2016): the announcements of hosts, and those of their neighbors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use squall_units::{MacAddr, Nanos};

use crate::speaker::{Announcement, SpeakerTimers, printable};

/// EtherType of LLDP.
pub const LLDP: u16 = 0x88cc;
/// The group address that bridges do not forward (section 7.1).
pub const NEAREST_BRIDGE: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);

/// Settings of a speaker (section 10.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpSettings {
    /// `msgTxInterval`, `txFastInit` and `msgFastTx`: 30 s, 4 and 1 s by default.
    pub timers: SpeakerTimers,
    /// `msgTxHold`, 4 by default: the time to live is the interval times this, plus 1 s.
    pub hold: u16,
    /// System name, of which `{}` is the number of the host; empty: none.
    pub system: String,
}

impl Default for LldpSettings {
    fn default() -> Self {
        Self {
            timers: SpeakerTimers {
                interval: Nanos(30_000_000_000),
                fast: 4,
                fast_interval: Nanos(1_000_000_000),
            },
            hold: 4,
            system: String::new(),
        }
    }
}

impl LldpSettings {
    /// Seconds for which neighbors keep an announcement (`txTTL`, section 9.2.5.22).
    pub fn time_to_live(&self) -> u16 {
        let seconds = self.timers.interval.0.div_ceil(Nanos::SECOND.0);
        u16::try_from(seconds.saturating_mul(self.hold.into()) + 1).unwrap_or(u16::MAX)
    }
}

/// Appends an announcement after the Ethernet header: the mandatory TLVs, and those of `settings`.
pub fn write(mac: MacAddr, ttl: u16, number: u32, settings: &LldpSettings, out: &mut Vec<u8>) {
    let mut tlv = |kind: u8, parts: [&[u8]; 2]| {
        let len = parts[0].len() + parts[1].len();
        let head = u16::from(kind) << 9 | (len as u16 & 0x1ff);
        out.extend_from_slice(&head.to_be_bytes());
        parts.iter().for_each(|part| out.extend_from_slice(part));
    };
    // Chassis id and port id: MAC address (subtypes 4 and 3, tables 8-2 and 8-3).
    tlv(1, [&[4], &mac.0]);
    tlv(2, [&[3], &mac.0]);
    tlv(3, [&ttl.to_be_bytes(), &[]]);
    if ttl > 0 {
        let name = settings.system.replace("{}", &number.to_string());
        if !name.is_empty() {
            let len = (0..=name.len().min(MOST_NAME)).rev().find(|at| name.is_char_boundary(*at));
            tlv(5, [&name.as_bytes()[..len.unwrap_or(0)], &[]]);
        }
        // Capabilities and enabled ones: station only (section 8.5.8).
        tlv(7, [&[0, 0x80], &[0, 0x80]]);
    }
    tlv(0, [&[], &[]]);
}

/// Octets of a system name at most (section 8.5.6.2).
const MOST_NAME: usize = 255;

/// Subtypes of ids (tables 8-2 and 8-3).
pub const CHASSIS_MAC: u8 = 4;
const CHASSIS_NETWORK: u8 = 5;
pub const PORT_MAC: u8 = 3;
const PORT_NETWORK: u8 = 4;
/// A TLV of an organization (section 8.6).
pub const ORGANIZATION: u8 = 127;

/// The id of a chassis or of a port: its subtype, and its value of 1 to 255 octets.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LldpId {
    pub subtype: u8,
    pub value: Vec<u8>,
}

impl LldpId {
    fn of(value: &[u8]) -> Self {
        let (subtype, value) = value.split_first().unwrap_or((&0, &[]));
        Self { subtype: *subtype, value: value.to_vec() }
    }

    /// MAC and network addresses of a chassis in their own notation, other ids as printable text.
    pub fn chassis(&self) -> String {
        self.text(CHASSIS_MAC, CHASSIS_NETWORK)
    }

    /// As [`LldpId::chassis`], for the id of a port.
    pub fn port(&self) -> String {
        self.text(PORT_MAC, PORT_NETWORK)
    }

    /// `mac`, `network`: the subtypes of these.
    fn text(&self, mac: u8, network: u8) -> String {
        let address = match &self.value[..] {
            [a, b, c, d, e, f] if self.subtype == mac => {
                Some(MacAddr([*a, *b, *c, *d, *e, *f]).to_string())
            }
            [family, octets @ ..] if self.subtype == network => {
                address(*family, octets).map(|address| address.to_string())
            }
            _ => None,
        };
        address.unwrap_or_else(|| printable(&self.value))
    }
}

/// An address by its family (IANA's address family numbers).
fn address(family: u8, octets: &[u8]) -> Option<IpAddr> {
    match family {
        1 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?).into()),
        2 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?).into()),
        _ => None,
    }
}

/// A TLV of an organization: its number, a subtype, and at most 507 octets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OrganizationTlv {
    pub oui: [u8; 3],
    pub subtype: u8,
    pub information: Vec<u8>,
}

/// The management address: the number of its family, and its octets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManagementAddress {
    pub family: u8,
    pub octets: Vec<u8>,
}

impl ManagementAddress {
    /// The address, if it is one of IP.
    pub fn ip(&self) -> Option<IpAddr> {
        address(self.family, &self.octets)
    }
}

/// A whole announcement (LLDPDU). Texts are printable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lldpdu {
    pub chassis: LldpId,
    pub port: LldpId,
    /// Seconds; 0: the sender ends, and nothing else follows.
    pub ttl: u16,
    pub port_description: Option<String>,
    pub system: Option<String>,
    pub description: Option<String>,
    /// Capabilities of the system, and those that are enabled (table 8-4).
    pub capabilities: Option<(u16, u16)>,
    /// The first one.
    pub management: Option<ManagementAddress>,
    pub organizations: Vec<OrganizationTlv>,
    /// TLVs that were discarded because of errors, and those of a reserved type.
    pub discarded: u32,
    pub reserved: u32,
}

impl Lldpdu {
    /// Appends the announcement after the Ethernet header, without a port description, a system
    /// description and a management address.
    ///
    /// # Panics
    /// If a value is longer than a TLV.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut tlv = |kind: u8, parts: &[&[u8]]| {
            let len: usize = parts.iter().map(|part| part.len()).sum();
            assert!(len <= 511, "a TLV has at most 511 octets");
            out.extend((u16::from(kind) << 9 | len as u16).to_be_bytes());
            parts.iter().for_each(|part| out.extend_from_slice(part));
        };
        for (kind, id) in [(1, &self.chassis), (2, &self.port)] {
            tlv(kind, &[&[id.subtype], &id.value]);
        }
        tlv(3, &[&self.ttl.to_be_bytes()]);
        if self.ttl > 0 {
            if let Some(system) = &self.system {
                tlv(5, &[system.as_bytes()]);
            }
            if let Some((all, enabled)) = self.capabilities {
                tlv(7, &[&all.to_be_bytes(), &enabled.to_be_bytes()]);
            }
            for one in &self.organizations {
                tlv(ORGANIZATION, &[&one.oui, &[one.subtype], &one.information]);
            }
        }
        tlv(0, &[]);
    }

    /// Parses what follows the Ethernet header.
    ///
    /// # Errors
    /// The reason for which the announcement is discarded (section 9.2.7.7.1).
    pub fn parse(mut octets: &[u8]) -> Result<Self, &'static str> {
        let mut found = Self::default();
        for place in 0.. {
            let Some((head, rest)) = octets.split_first_chunk::<2>() else { break };
            let head = u16::from_be_bytes(*head);
            let (kind, len) = ((head >> 9) as u8, usize::from(head & 0x1ff));
            let Some((value, rest)) = rest.split_at_checked(len) else {
                // Only an optional TLV may extend past the end (section 9.2.7.7.2 c).
                if place < 3 {
                    return Err("truncated");
                }
                found.discarded += 1;
                break;
            };
            octets = rest;
            match (place, kind) {
                (0, 1) if (2..=256).contains(&len) => found.chassis = LldpId::of(value),
                (1, 2) if (2..=256).contains(&len) => found.port = LldpId::of(value),
                (2, 3) => {
                    let ttl = value.first_chunk::<2>().ok_or("bad_ttl")?;
                    found.ttl = u16::from_be_bytes(*ttl);
                    // Nothing more counts in an announcement of the end.
                    if found.ttl == 0 {
                        return Ok(found);
                    }
                }
                (0..3, _) => return Err("missing_mandatory_tlv"),
                (_, 0) => return Ok(found),
                (_, 1..=3) => return Err("repeated_mandatory_tlv"),
                (_, kind) => found.add(kind, value),
            }
        }
        match found.ttl {
            0 => Err("missing_mandatory_tlv"),
            _ => Ok(found),
        }
    }

    /// Adds an optional TLV.
    fn add(&mut self, kind: u8, value: &[u8]) {
        let text = || Some(printable(&value[..value.len().min(MOST_NAME)]));
        match (kind, value) {
            (4, _) => self.port_description = text(),
            (5, _) => self.system = text(),
            (6, _) => self.description = text(),
            (7, [a, b, c, d, ..]) => {
                let word = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
                self.capabilities = Some((word(a, b), word(c, d)));
            }
            // The length of what follows, then the family (section 8.5.9).
            (8, [len @ 2..=32, rest @ ..]) if rest.len() >= usize::from(*len) => {
                let found = ManagementAddress {
                    family: rest[0],
                    octets: rest[1..usize::from(*len)].to_vec(),
                };
                self.management.get_or_insert(found);
            }
            (ORGANIZATION, [a, b, c, subtype, information @ ..]) => {
                let (oui, information) = ([*a, *b, *c], information.to_vec());
                self.organizations.push(OrganizationTlv { oui, subtype: *subtype, information });
            }
            (7 | 8 | ORGANIZATION, _) => self.discarded += 1,
            _ => self.reserved += 1,
        }
    }
}

/// Parses what follows the Ethernet header.
///
/// # Errors
/// The reason for which the announcement is discarded (section 9.2.7.7.1).
pub fn parse(octets: &[u8]) -> Result<Announcement, &'static str> {
    let found = Lldpdu::parse(octets)?;
    Ok(Announcement {
        chassis: found.chassis.chassis(),
        port: found.port.port(),
        ttl: found.ttl,
        system: found.system.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn written(ttl: u16, system: &str) -> Vec<u8> {
        let settings = LldpSettings { system: system.into(), ..LldpSettings::default() };
        let mut out = Vec::new();
        write(MAC, ttl, 17, &settings, &mut out);
        out
    }

    #[test]
    fn interval_and_hold_give_the_time_to_live() {
        let of = |interval, hold| {
            let timers = SpeakerTimers { interval, fast: 4, fast_interval: seconds(1) };
            LldpSettings { timers, hold, ..LldpSettings::default() }.time_to_live()
        };
        assert_eq!(of(seconds(30), 4), 121);
        assert_eq!(of(Nanos(100_000_000), 4), 5);
        assert_eq!(of(seconds(3600), 100), u16::MAX);
    }

    #[test]
    fn an_announcement_is_kept_for_its_time_to_live() {
        let mut neighbors = crate::NeighborTable::default();
        neighbors.learn(seconds(0), parse(&written(121, "host")).unwrap());
        neighbors.age(seconds(121) - Nanos(1));
        assert_eq!(neighbors.len(), 1);
        neighbors.age(seconds(121));
        assert_eq!((neighbors.len(), neighbors.aged), (0, 1), "rxInfoAge");
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written() {
        let octets = written(121, "host {}");
        let found = parse(&octets).unwrap();
        let mac = MAC.to_string();
        assert_eq!((found.chassis, found.port), (mac.clone(), mac));
        assert_eq!((found.ttl, &found.system[..]), (121, "host 17"));
        // Chassis id, port id, time to live, in this order, and an end (section 8.2).
        assert_eq!(octets[..3], [2, 7, 4]);
        assert_eq!(octets[octets.len() - 2..], [0, 0]);
        // Padding of the frame follows the end.
        assert!(parse(&[&octets[..], &[0; 20]].concat()).is_ok());
        let end = written(0, "host");
        assert_eq!(end.len(), 9 + 9 + 4 + 2, "mandatory TLVs alone");
        assert_eq!(parse(&end).unwrap().ttl, 0);
    }

    #[test]
    fn hostile_announcements_are_discarded_with_a_reason() {
        let octets = written(121, "host");
        for len in 0..22 {
            assert!(parse(&octets[..len]).is_err(), "{len}");
        }
        let reason = |octets: &[u8]| parse(octets).unwrap_err();
        assert_eq!(reason(&octets[9..]), "missing_mandatory_tlv");
        assert_eq!(reason(&[&octets[..22], &octets[..9]].concat()), "repeated_mandatory_tlv");
        assert_eq!(reason(&[&octets[..18], &[6, 1, 9]].concat()), "bad_ttl");
        assert_eq!(reason(&[2, 1, 4]), "missing_mandatory_tlv", "an id without octets");
        assert_eq!(reason(&[0xff; 40]), "truncated");
        let name = [&octets[..22], &[10, 5, b'a', 0x1b, b'[', 0xff, 7]].concat();
        assert_eq!(parse(&name).unwrap().system, "a\u{fffd}[\u{fffd}\u{fffd}");
        let long = written(9, &"\u{e9}".repeat(200));
        assert_eq!(parse(&long).unwrap().system.chars().count(), 127);
    }

    #[test]
    fn a_whole_announcement_is_read_as_it_was_written() {
        let unit = Lldpdu {
            chassis: LldpId { subtype: 7, value: b"rack 4".to_vec() },
            port: LldpId { subtype: 5, value: b"eth1".to_vec() },
            ttl: 120,
            system: Some("squall".into()),
            capabilities: Some((0x80, 0x80)),
            organizations: vec![OrganizationTlv {
                oui: [0, 0x80, 0xc2],
                subtype: 1,
                information: vec![0, 7],
            }],
            ..Lldpdu::default()
        };
        let mut octets = Vec::new();
        unit.write(&mut octets);
        assert_eq!(Lldpdu::parse(&octets), Ok(unit.clone()));
        assert_eq!((unit.chassis.chassis(), unit.port.port()), ("rack 4".into(), "eth1".into()));
        let mut octets = Vec::new();
        Lldpdu { ttl: 0, ..unit.clone() }.write(&mut octets);
        let end = Lldpdu { chassis: unit.chassis, port: unit.port, ..Lldpdu::default() };
        assert_eq!(Lldpdu::parse(&octets), Ok(end));
    }

    #[test]
    fn optional_tlvs_are_read_discarded_or_counted_as_unknown() {
        let begin = &written(121, "")[..22];
        let with = |tlvs: &[u8]| Lldpdu::parse(&[begin, tlvs].concat()).unwrap();
        // A port description, a system description, and two management addresses.
        let found = with(&[
            8, 2, b'g', b'1', 12, 1, b'x', 16, 12, 5, 1, 10, 0, 0, 9, 2, 0, 0, 0, 1, 0, 16, 12, 5,
            1, 10, 0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0,
        ]);
        assert_eq!(found.port_description.as_deref(), Some("g1"));
        assert_eq!(found.description.as_deref(), Some("x"));
        let address = found.management.unwrap();
        assert_eq!((address.family, address.ip()), (1, Some([10, 0, 0, 9].into())));
        assert_eq!((found.discarded, found.reserved), (0, 0));
        // Too short: capabilities, a management address, a TLV of an organization.
        let found = with(&[14, 2, 0, 4, 16, 1, 5, 254, 3, 0, 0x80, 0xc2, 0, 0]);
        assert_eq!((found.discarded, found.reserved), (3, 0));
        assert_eq!((found.capabilities, found.management), (None, None));
        // A reserved type, and one that extends past the end.
        let found = with(&[18, 1, 0, 10, 9, b'a']);
        assert_eq!((found.discarded, found.reserved), (1, 1));
        let id = LldpId { subtype: CHASSIS_NETWORK, value: [&[2][..], &[0; 15], &[1]].concat() };
        assert_eq!((id.chassis(), id.port()), ("::1".into(), printable(&id.value)));
    }
}
