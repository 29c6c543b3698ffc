//! Speakers that announce a host to its neighbors, and the table of the neighbors that others
//! announce, for LLDP and CDP.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use squall_units::Nanos;

/// When a speaker sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeakerTimers {
    pub interval: Nanos,
    /// Announcements that a new speaker sends `fast_interval` apart.
    pub fast: u8,
    pub fast_interval: Nanos,
}

/// The transmit state machine of one host (IEEE 802.1AB-2016 section 9.2.8). CDP has no published
/// one, and uses the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Speaker {
    due: Option<Nanos>,
    /// `txFast`: announcements that are still sent at the fast interval.
    fast: u8,
    /// `txCredit`, and when it was last added to.
    credit: u8,
    credited: Nanos,
}

/// `txCreditMax`: announcements that may leave one after the other (section 10.5.3.3). Each second
/// adds one.
const MOST_CREDIT: u8 = 5;

impl Speaker {
    /// The first announcement is due now.
    pub fn start(&mut self, now: Nanos, timers: &SpeakerTimers) {
        let credit = MOST_CREDIT;
        *self = Self { due: Some(now), fast: timers.fast, credit, credited: now };
    }

    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether the host sends an announcement now, with the normal time to live.
    pub fn timer(&mut self, now: Nanos, timers: &SpeakerTimers) -> bool {
        let Some(due) = self.due.filter(|due| *due <= now) else { return false };
        // Settings may have intervals of less than a second, which this must not prolong.
        let tick = Nanos::SECOND.min(timers.interval).min(timers.fast_interval).max(Nanos(1));
        let ticks = now.saturating_sub(self.credited).0 / tick.0;
        self.credited = self.credited + Nanos(ticks * tick.0);
        let credit = u64::from(self.credit).saturating_add(ticks).min(MOST_CREDIT.into()) as u8;
        let Some(left) = credit.checked_sub(1) else {
            self.due = Some(self.credited + tick);
            return false;
        };
        self.credit = left;
        let interval = if self.fast > 1 { timers.fast_interval } else { timers.interval };
        self.fast = self.fast.saturating_sub(1);
        // A late call does not delay the following ones, unless a whole interval was missed.
        self.due = Some(if due + interval > now { due + interval } else { now + interval });
        true
    }

    /// A new neighbor appeared: an announcement is due now, and further ones follow at the fast
    /// interval, unless they do so already (TX_FAST_START of section 9.2.10).
    pub fn speed_up(&mut self, now: Nanos, timers: &SpeakerTimers) {
        if let Some(due) = self.due {
            if self.fast == 0 {
                self.fast = timers.fast;
            }
            self.due = Some(due.min(now));
        }
    }

    /// Ends the speaker. Returns whether the host has to send an announcement with a time to live
    /// of 0, which removes it from its neighbors' tables (section 9.2.5.23).
    pub fn stop(&mut self) -> bool {
        std::mem::take(self).due.is_some()
    }
}

/// A received announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Announcement {
    /// Chassis and port, as text; in CDP, the chassis is the device.
    pub chassis: String,
    pub port: String,
    /// Seconds; 0: the neighbor ends.
    pub ttl: u16,
    /// System name; in CDP, the platform.
    pub system: String,
}

/// Neighbors by chassis and port, with the ends of their times to live.
#[derive(Clone, Debug, Default)]
pub struct NeighborTable {
    table: BTreeMap<Arc<Key>, Neighbor>,
    /// All neighbors in the order in which their times end, so that no announcement reads all of
    /// them: short times to live would otherwise make each one as slow as the table is long.
    ends: BTreeSet<(Nanos, Arc<Key>)>,
    /// Announcements that found the table full, and neighbors whose time ended without a new one.
    pub too_many: u64,
    pub aged: u64,
    /// Neighbors that announced their end.
    pub ended: u64,
}

/// Chassis and port.
type Key = (String, String);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Neighbor {
    system: String,
    until: Nanos,
}

/// Neighbors of a group of hosts at most.
const MOST: usize = 4096;

impl NeighborTable {
    /// Returns whether the neighbor is new.
    pub fn learn(&mut self, now: Nanos, from: Announcement) -> bool {
        let key = Arc::new((from.chassis, from.port));
        if from.ttl == 0 {
            self.ended += u64::from(self.remove(&key));
            return false;
        }
        self.age(now);
        let is_new = !self.remove(&key);
        if self.table.len() >= MOST {
            self.too_many += 1;
            return false;
        }
        let until = now + Nanos(u64::from(from.ttl) * Nanos::SECOND.0);
        self.ends.insert((until, key.clone()));
        self.table.insert(key, Neighbor { system: from.system, until });
        is_new
    }

    /// Returns whether the neighbor was known.
    fn remove(&mut self, key: &Arc<Key>) -> bool {
        let Some(known) = self.table.remove(key) else { return false };
        self.ends.remove(&(known.until, key.clone()));
        true
    }

    /// Removes the neighbors whose time has ended.
    pub fn age(&mut self, now: Nanos) {
        while self.ends.first().is_some_and(|(until, _)| *until <= now) {
            let Some((_, key)) = self.ends.pop_first() else { break };
            self.table.remove(&key);
            self.aged += 1;
        }
    }

    /// Chassis, port and system name of each neighbor.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.table.iter().map(|(key, of)| (&key.0[..], &key.1[..], &of.system[..]))
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

/// Text of a neighbor without what could change a terminal.
pub(crate) fn printable(octets: &[u8]) -> String {
    let text = String::from_utf8_lossy(octets);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LldpSettings;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn a_speaker_announces_four_times_in_3_seconds_and_then_every_30() {
        let timers = LldpSettings::default().timers;
        let mut speaker = Speaker::default();
        assert!(!speaker.timer(seconds(99), &timers) && !speaker.stop());
        speaker.start(seconds(10), &timers);
        let mut times = Vec::new();
        for at in 0..130 {
            if speaker.timer(seconds(at), &timers) {
                times.push(at);
            }
        }
        assert_eq!(times, [10, 11, 12, 13, 43, 73, 103]);
        assert!(speaker.stop() && speaker.due().is_none());
    }

    #[test]
    fn a_new_neighbor_gets_announcements_at_the_fast_interval() {
        let timers = LldpSettings::default().timers;
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        (0..=3).for_each(|at| assert!(speaker.timer(seconds(at), &timers)));
        assert_eq!(speaker.due(), Some(seconds(33)));
        speaker.speed_up(seconds(10), &timers);
        let times: Vec<u64> = (10..60).filter(|at| speaker.timer(seconds(*at), &timers)).collect();
        assert_eq!(times, [10, 11, 12, 13, 43], "the first one at once");
    }

    #[test]
    fn a_neighbor_that_appears_while_announcements_are_fast_adds_none_to_them() {
        let timers = LldpSettings::default().timers;
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        assert!(speaker.timer(seconds(0), &timers) && speaker.timer(seconds(1), &timers));
        speaker.speed_up(seconds(1), &timers);
        let times: Vec<u64> = (1..60).filter(|at| speaker.timer(seconds(*at), &timers)).collect();
        assert_eq!(times, [1, 2, 32], "four in all");
    }

    #[test]
    fn new_neighbors_get_five_announcements_at_once_and_then_one_each_second() {
        let timers = LldpSettings::default().timers;
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        let mut times = Vec::new();
        for millisecond in 0..3500u64 {
            let now = Nanos(millisecond * 1_000_000);
            speaker.speed_up(now, &timers);
            times.extend(speaker.timer(now, &timers).then_some(millisecond));
        }
        assert_eq!(times, [0, 1, 2, 3, 4, 1000, 2000, 3000], "txCreditMax");
        // Unused credit has an end.
        let later: Vec<u64> = (0..20)
            .filter(|millisecond| {
                let now = seconds(500) + Nanos(millisecond * 1_000_000);
                speaker.speed_up(now, &timers);
                speaker.timer(now, &timers)
            })
            .collect();
        assert_eq!(later, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_speaker_with_intervals_below_a_second_is_as_fast_as_they_say() {
        let timers = SpeakerTimers {
            interval: Nanos(100_000_000),
            fast: 2,
            fast_interval: Nanos(10_000_000),
        };
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        let at = |number: &u64| Nanos(number * 10_000_000);
        let sent = (0..200).filter(|number| speaker.timer(at(number), &timers));
        assert_eq!(sent.take(5).collect::<Vec<_>>(), [0, 1, 11, 21, 31]);
    }

    #[test]
    fn a_late_call_delays_no_further_announcement_unless_an_interval_was_missed() {
        let timers = SpeakerTimers { fast: 0, ..LldpSettings::default().timers };
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        assert!(speaker.timer(seconds(7), &timers));
        assert_eq!(speaker.due(), Some(seconds(30)));
        assert!(speaker.timer(seconds(95), &timers));
        assert_eq!(speaker.due(), Some(seconds(125)), "those of 60 and 90 s are left out");
    }

    #[test]
    fn an_ended_speaker_is_not_sped_up() {
        let timers = LldpSettings::default().timers;
        let mut speaker = Speaker::default();
        speaker.start(seconds(0), &timers);
        assert!(speaker.stop());
        speaker.speed_up(seconds(1), &timers);
        assert_eq!((speaker.due(), speaker.timer(seconds(9), &timers)), (None, false));
    }

    #[test]
    fn neighbors_end_with_their_time_to_live_or_their_announcement_of_it() {
        let mut table = NeighborTable::default();
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

    #[test]
    fn each_neighbor_has_one_end_which_moves_with_its_announcements() {
        let mut table = NeighborTable::default();
        let from = |port: u16, ttl| Announcement {
            chassis: "c".into(),
            port: port.to_string(),
            ttl,
            system: String::new(),
        };
        for port in 0..100 {
            table.learn(seconds(0), from(port, 10));
        }
        // Odd ones end later, and every fourth one earlier.
        for port in 0..100 {
            let ttl = if port % 2 == 1 { 50 } else { 5 + port % 4 };
            assert!(!table.learn(seconds(1), from(port, ttl)), "it is known");
        }
        let first = table.ends.first().map(|end| end.0);
        assert_eq!((table.ends.len(), first), (100, Some(seconds(6))));
        for (at, aged) in [(6, 25), (7, 25), (8, 50), (50, 50), (51, 100)] {
            table.age(seconds(at));
            assert_eq!((table.aged, table.ends.len()), (aged, table.len()), "at {at} s");
        }
    }
}
