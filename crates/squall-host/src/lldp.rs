//! LLDP (IEEE 802.1AB-2016): the announcements of hosts, and those of their neighbors.

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

/// Parses what follows the Ethernet header.
///
/// # Errors
/// The reason for which the announcement is discarded (section 9.2.7.7.1).
pub fn parse(mut octets: &[u8]) -> Result<Announcement, &'static str> {
    let mut found = Announcement::default();
    for place in 0.. {
        let Some((head, rest)) = octets.split_first_chunk::<2>() else { break };
        let head = u16::from_be_bytes(*head);
        let (kind, len) = (head >> 9, usize::from(head & 0x1ff));
        let (value, rest) = rest.split_at_checked(len).ok_or("truncated")?;
        octets = rest;
        match (place, kind) {
            (0, 1) if (2..=256).contains(&len) => found.chassis = id(value, 4, 5),
            (1, 2) if (2..=256).contains(&len) => found.port = id(value, 3, 4),
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
            (_, 5) => found.system = printable(&value[..len.min(MOST_NAME)]),
            _ => {}
        }
    }
    match found.ttl {
        0 => Err("missing_mandatory_tlv"),
        _ => Ok(found),
    }
}

/// An id as text: MAC and network addresses in their own notation. `mac`, `network`: the subtypes of
/// these.
fn id(value: &[u8], mac: u8, network: u8) -> String {
    match value {
        [kind, octets @ ..] if *kind == mac && octets.len() == 6 => octets
            .first_chunk::<6>()
            .map_or_else(String::new, |octets| MacAddr(*octets).to_string()),
        [kind, 1, a, b, c, d] if *kind == network => format!("{a}.{b}.{c}.{d}"),
        [_, octets @ ..] => printable(octets),
        [] => String::new(),
    }
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
}
