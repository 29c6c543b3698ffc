//! LLDP (IEEE 802.1AB-2016): speakers that announce a host, and the table of the neighbors that
//! others announce.

use std::collections::BTreeMap;

use squall_units::{MacAddr, Nanos};

/// EtherType of LLDP.
pub const LLDP: u16 = 0x88cc;
/// The group address that bridges do not forward (section 7.1).
pub const NEAREST_BRIDGE: MacAddr = MacAddr([1, 0x80, 0xc2, 0, 0, 0x0e]);

/// Settings of a speaker (section 10.5.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LldpSettings {
    /// `msgTxInterval`: 30 s by default.
    pub interval: Nanos,
    /// `msgTxHold`, 4 by default: the time to live is the interval times this, plus 1 s.
    pub hold: u16,
    /// Announcements that a new speaker sends `fast_interval` apart (`txFastInit`): 4, 1 s.
    pub fast: u8,
    pub fast_interval: Nanos,
    /// System name, of which `{}` is the number of the host; empty: none.
    pub system: String,
}

impl Default for LldpSettings {
    fn default() -> Self {
        Self {
            interval: Nanos(30_000_000_000),
            hold: 4,
            fast: 4,
            fast_interval: Nanos(1_000_000_000),
            system: String::new(),
        }
    }
}

impl LldpSettings {
    /// Seconds for which neighbors keep an announcement (`txTTL`, section 9.2.5.22).
    pub fn time_to_live(&self) -> u16 {
        let seconds = self.interval.0.div_ceil(Nanos::SECOND.0);
        u16::try_from(seconds.saturating_mul(self.hold.into()) + 1).unwrap_or(u16::MAX)
    }
}

/// The transmit state machine of one host (section 9.2.8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LldpSpeaker {
    due: Option<Nanos>,
    /// Announcements that are still sent at the fast interval.
    fast: u8,
}

impl LldpSpeaker {
    /// The first announcement is due now.
    pub fn start(&mut self, now: Nanos, settings: &LldpSettings) {
        *self = Self { due: Some(now), fast: settings.fast };
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether the host sends an announcement now, with the normal time to live.
    pub fn timer(&mut self, now: Nanos, settings: &LldpSettings) -> bool {
        let Some(due) = self.due.filter(|due| *due <= now) else { return false };
        let interval = if self.fast > 1 { settings.fast_interval } else { settings.interval };
        self.fast = self.fast.saturating_sub(1);
        // A late call does not delay the following ones, unless a whole interval was missed.
        self.due = Some(if due + interval > now { due + interval } else { now + interval });
        true
    }

    /// A new neighbor appeared: it gets announcements at the fast interval (section 9.2.5.11).
    pub fn speed_up(&mut self, now: Nanos, settings: &LldpSettings) {
        if let Some(due) = self.due {
            self.fast = settings.fast;
            self.due = Some(due.min(now + settings.fast_interval));
        }
    }

    /// Ends the speaker. Returns whether the host has to send an announcement with a time to live
    /// of 0, which removes it from its neighbors' tables (section 9.2.5.23).
    pub fn stop(&mut self) -> bool {
        std::mem::take(self).due.is_some()
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

/// A received announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Ids with their subtypes, as text.
    pub chassis: String,
    pub port: String,
    /// Seconds; 0: the neighbor ends.
    pub ttl: u16,
    pub system: String,
}

impl Announcement {
    /// Parses what follows the Ethernet header.
    ///
    /// # Errors
    /// The reason for which the announcement is discarded (section 9.2.7.7.1).
    pub fn parse(mut octets: &[u8]) -> Result<Self, &'static str> {
        let mut found =
            Self { chassis: String::new(), port: String::new(), ttl: 0, system: String::new() };
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

/// Text of a neighbor without what could change a terminal.
fn printable(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Neighbors by chassis and port, with the ends of their times to live.
#[derive(Clone, Debug, Default)]
pub struct LldpNeighbors {
    table: BTreeMap<(String, String), Neighbor>,
    /// Announcements that found the table full, and neighbors whose time ended without a new one.
    pub too_many: u64,
    pub aged: u64,
    /// Neighbors that announced their end.
    pub ended: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Neighbor {
    system: String,
    until: Nanos,
}

/// Neighbors of a group of hosts at most.
const MOST: usize = 4096;

impl LldpNeighbors {
    /// Returns whether the neighbor is new.
    pub fn learn(&mut self, now: Nanos, from: Announcement) -> bool {
        let key = (from.chassis, from.port);
        if from.ttl == 0 {
            self.ended += u64::from(self.table.remove(&key).is_some());
            return false;
        }
        self.age(now);
        let until = now + Nanos(u64::from(from.ttl) * Nanos::SECOND.0);
        let neighbor = Neighbor { system: from.system, until };
        if self.table.len() >= MOST && !self.table.contains_key(&key) {
            self.too_many += 1;
            return false;
        }
        self.table.insert(key, neighbor).is_none()
    }

    fn age(&mut self, now: Nanos) {
        let before = self.table.len();
        self.table.retain(|_, neighbor| now < neighbor.until);
        self.aged += (before - self.table.len()) as u64;
    }

    /// Chassis, port and system name of each neighbor.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.table.iter().map(|((chassis, port), of)| (&chassis[..], &port[..], &of.system[..]))
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
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
    fn a_speaker_announces_four_times_in_3_seconds_and_then_every_30() {
        let settings = LldpSettings::default();
        let mut speaker = LldpSpeaker::default();
        assert!(!speaker.timer(seconds(99), &settings) && !speaker.stop());
        speaker.start(seconds(10), &settings);
        let mut times = Vec::new();
        for at in 0..130 {
            if speaker.timer(seconds(at), &settings) {
                times.push(at);
            }
        }
        assert_eq!(times, [10, 11, 12, 13, 43, 73, 103]);
        assert!(speaker.stop() && speaker.due().is_none());
    }

    #[test]
    fn a_new_neighbor_gets_announcements_at_the_fast_interval() {
        let settings = LldpSettings::default();
        let mut speaker = LldpSpeaker::default();
        speaker.start(seconds(0), &settings);
        (0..=3).for_each(|at| assert!(speaker.timer(seconds(at), &settings)));
        assert_eq!(speaker.due(), Some(seconds(33)));
        speaker.speed_up(seconds(10), &settings);
        let times: Vec<u64> =
            (10..60).filter(|at| speaker.timer(seconds(*at), &settings)).collect();
        assert_eq!(times, [11, 12, 13, 14, 44]);
    }

    #[test]
    fn interval_and_hold_give_the_time_to_live() {
        let of = |interval, hold| {
            LldpSettings { interval, hold, ..LldpSettings::default() }.time_to_live()
        };
        assert_eq!(of(seconds(30), 4), 121);
        assert_eq!(of(Nanos(100_000_000), 4), 5);
        assert_eq!(of(seconds(3600), 100), u16::MAX);
    }

    #[test]
    fn an_announcement_is_read_as_it_was_written() {
        let octets = written(121, "host {}");
        let found = Announcement::parse(&octets).unwrap();
        let mac = MAC.to_string();
        assert_eq!((found.chassis, found.port), (mac.clone(), mac));
        assert_eq!((found.ttl, &found.system[..]), (121, "host 17"));
        // Chassis id, port id, time to live, in this order, and an end (section 8.2).
        assert_eq!(octets[..3], [2, 7, 4]);
        assert_eq!(octets[octets.len() - 2..], [0, 0]);
        // Padding of the frame follows the end.
        assert!(Announcement::parse(&[&octets[..], &[0; 20]].concat()).is_ok());
        let end = written(0, "host");
        assert_eq!(end.len(), 9 + 9 + 4 + 2, "mandatory TLVs alone");
        assert_eq!(Announcement::parse(&end).unwrap().ttl, 0);
    }

    #[test]
    fn hostile_announcements_are_discarded_with_a_reason() {
        let octets = written(121, "host");
        for len in 0..22 {
            assert!(Announcement::parse(&octets[..len]).is_err(), "{len}");
        }
        let reason = |octets: &[u8]| Announcement::parse(octets).unwrap_err();
        assert_eq!(reason(&octets[9..]), "missing_mandatory_tlv");
        assert_eq!(reason(&[&octets[..22], &octets[..9]].concat()), "repeated_mandatory_tlv");
        assert_eq!(reason(&[&octets[..18], &[6, 1, 9]].concat()), "bad_ttl");
        assert_eq!(reason(&[2, 1, 4]), "missing_mandatory_tlv", "an id without octets");
        assert_eq!(reason(&[0xff; 40]), "truncated");
        let name = [&octets[..22], &[10, 5, b'a', 0x1b, b'[', 0xff, 7]].concat();
        assert_eq!(Announcement::parse(&name).unwrap().system, "a\u{fffd}[\u{fffd}\u{fffd}");
        let long = written(9, &"\u{e9}".repeat(200));
        assert_eq!(Announcement::parse(&long).unwrap().system.chars().count(), 127);
    }

    #[test]
    fn neighbors_end_with_their_time_to_live_or_their_announcement_of_it() {
        let mut table = LldpNeighbors::default();
        let from = |port: &str, ttl| Announcement {
            chassis: "c".into(),
            port: port.into(),
            ttl,
            system: String::new(),
        };
        assert!(table.learn(seconds(0), from("1", 10)));
        assert!(!table.learn(seconds(5), from("1", 10)), "a repetition");
        assert!(table.learn(seconds(5), from("2", 100)));
        assert!(table.learn(seconds(15), from("3", 100)));
        assert_eq!((table.len(), table.aged), (2, 1));
        assert!(!table.learn(seconds(16), from("2", 0)));
        assert!(!table.learn(seconds(16), from("2", 0)));
        assert_eq!((table.len(), table.ended), (1, 1));
        for port in 0..2 * MOST {
            table.learn(seconds(16), from(&format!("p{port}"), 100));
        }
        assert_eq!((table.len(), table.too_many), (MOST, MOST as u64 + 1));
    }
}
