//! The routers and prefixes of a link, as router advertisements describe them (RFC 4861 section
//! 6.3.4, RFC 4862 section 5.5.3). All hosts of a group are on one link and share them.

use std::net::Ipv6Addr;

use squall_units::{MacAddr, Nanos};

use crate::{NdTimers, PrefixInformation, RouterAdvertisement};

/// Routers and prefixes that are stored. Further ones are ignored: on one link, only a sender of
/// forged advertisements has more.
const MOST: usize = 8;
/// Remaining lifetimes up to this one cannot be shortened by an advertisement, because anyone on
/// the link could forge one (RFC 4862 section 5.5.3).
const TWO_HOURS: Nanos = Nanos(7_200_000_000_000);
/// Times of routers above this one, in milliseconds, are ignored: with a forged one, the
/// examination of addresses would not end. It is the longest `AdvReachableTime` (RFC 4861 section
/// 6.2.1).
const LONGEST: u32 = 3_600_000;
const FOREVER: Nanos = Nanos(u64::MAX);
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// A prefix, and when its parts end; a time in the past: it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPrefix {
    pub prefix: Ipv6Addr,
    pub length: u8,
    /// Until then, addresses with the prefix are neighbors.
    pub on_link: Nanos,
    /// Until then, hosts may use, and have, addresses with the prefix.
    pub preferred: Nanos,
    pub valid: Nanos,
    is_preferred: bool,
    is_valid: bool,
}

/// A default router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkRouter {
    pub address: Ipv6Addr,
    pub mac: Option<MacAddr>,
    pub until: Nanos,
}

/// A change of a prefix, whose number follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixChange {
    /// Hosts can make addresses with the prefix.
    Added(u8),
    /// Addresses with the prefix have become deprecated, are preferred again, or have ended.
    Deprecated(u8),
    Preferred(u8),
    Ended(u8),
}

/// The lists of a link.
#[derive(Clone, Debug, Default)]
pub struct PrefixList {
    prefixes: Vec<LinkPrefix>,
    routers: Vec<LinkRouter>,
    /// The last values of routers; `None`: none has set one.
    reachable: Option<Nanos>,
    retransmission: Option<Nanos>,
    /// Prefixes that were ignored: too many, not 64 bits long, or with lifetimes that contradict.
    pub ignored: u64,
}

impl PrefixList {
    /// Takes over an advertisement. Returns the changes of prefixes.
    pub fn advertise(&mut self, now: Nanos, message: &RouterAdvertisement) -> Vec<PrefixChange> {
        let after = |seconds: u32| match seconds {
            u32::MAX => FOREVER,
            _ => now + Nanos(u64::from(seconds) * Nanos::SECOND.0),
        };
        let gone = |router: &LinkRouter| router.address == message.source && message.lifetime == 0;
        self.routers.retain(|router| router.until > now && !gone(router));
        let until = after(message.lifetime.into());
        let has_room = self.routers.len() < MOST;
        // A router keeps its place in the list, so that hosts keep their default router.
        match self.routers.iter_mut().find(|router| router.address == message.source) {
            Some(router) => (router.mac, router.until) = (message.mac.or(router.mac), until),
            None if message.lifetime > 0 && has_room => {
                self.routers.push(LinkRouter { address: message.source, mac: message.mac, until });
            }
            None => {}
        }
        let milliseconds = |count: u32| {
            (1..=LONGEST).contains(&count).then(|| Nanos(u64::from(count) * 1_000_000))
        };
        self.reachable = milliseconds(message.reachable).or(self.reachable);
        self.retransmission = milliseconds(message.retransmission).or(self.retransmission);
        let mut changes = Vec::new();
        for prefix in &message.prefixes {
            if prefix.prefix.is_unicast_link_local() || prefix.prefix.is_multicast() {
                self.ignored += 1;
                continue;
            }
            let Some(number) = self.place(prefix, now) else {
                self.ignored += 1;
                continue;
            };
            let entry = &mut self.prefixes[number];
            if prefix.on_link {
                entry.on_link = if prefix.valid == 0 { now } else { after(prefix.valid) };
            }
            if !prefix.autonomous {
                continue;
            }
            if prefix.preferred > prefix.valid || prefix.length != 64 {
                self.ignored += 1;
                continue;
            }
            let (preferred, valid) = (after(prefix.preferred), after(prefix.valid));
            if !entry.is_valid {
                if prefix.valid > 0 {
                    (entry.preferred, entry.valid) = (preferred, valid);
                    (entry.is_preferred, entry.is_valid) = (preferred > now, true);
                    changes.push(PrefixChange::Added(number as u8));
                }
                continue;
            }
            entry.preferred = preferred;
            if valid > now + TWO_HOURS || valid > entry.valid {
                entry.valid = valid;
            } else if entry.valid > now + TWO_HOURS {
                entry.valid = now + TWO_HOURS;
            }
            if !entry.is_preferred && preferred > now {
                entry.is_preferred = true;
                changes.push(PrefixChange::Preferred(number as u8));
            }
        }
        changes
    }

    /// The number of a prefix, which is added if it is new and there is room.
    fn place(&mut self, prefix: &PrefixInformation, now: Nanos) -> Option<usize> {
        let bits = masked(prefix.prefix, prefix.length);
        let same = |one: &LinkPrefix| (one.prefix, one.length) == (bits, prefix.length);
        if let Some(number) = self.prefixes.iter().position(same) {
            return Some(number);
        }
        if prefix.length == 0 || prefix.length > 128 {
            return None;
        }
        let entry = LinkPrefix {
            prefix: bits,
            length: prefix.length,
            on_link: Nanos::ZERO,
            preferred: Nanos::ZERO,
            valid: Nanos::ZERO,
            is_preferred: false,
            is_valid: false,
        };
        // The place of a prefix that has ended is used again: no host has an address with it.
        let ended = |one: &LinkPrefix| !one.is_valid && one.on_link <= now;
        if let Some(number) = self.prefixes.iter().position(ended) {
            self.prefixes[number] = entry;
            return Some(number);
        }
        (self.prefixes.len() < MOST).then(|| {
            self.prefixes.push(entry);
            self.prefixes.len() - 1
        })
    }

    /// When [`PrefixList::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        let next = |one: &LinkPrefix| {
            let ends = [one.is_preferred.then_some(one.preferred), Some(one.valid)];
            ends.into_iter().flatten().filter(|end| one.is_valid && *end < FOREVER).min()
        };
        self.prefixes.iter().filter_map(next).min()
    }

    /// The next prefix whose addresses have ended, or have become deprecated, by `now`.
    pub fn timer(&mut self, now: Nanos) -> Option<PrefixChange> {
        for (number, entry) in self.prefixes.iter_mut().enumerate().filter(|one| one.1.is_valid) {
            if entry.valid <= now {
                (entry.is_valid, entry.is_preferred) = (false, false);
                return Some(PrefixChange::Ended(number as u8));
            }
            if entry.is_preferred && entry.preferred <= now {
                entry.is_preferred = false;
                return Some(PrefixChange::Deprecated(number as u8));
            }
        }
        None
    }

    /// When [`PrefixList::expire_routers`] must be called next.
    pub fn router_due(&self) -> Option<Nanos> {
        self.routers.iter().map(|router| router.until).min()
    }

    /// Removes the default routers whose lifetimes have ended (RFC 4861 section 6.3.5). Returns
    /// whether there were any.
    pub fn expire_routers(&mut self, now: Nanos) -> bool {
        let before = self.routers.len();
        self.routers.retain(|router| router.until > now);
        self.routers.len() < before
    }

    /// Numbers of the prefixes with which hosts make addresses.
    pub fn autonomous(&self) -> impl Iterator<Item = u8> {
        self.prefixes.iter().zip(0..).filter(|(one, _)| one.is_valid).map(|(_, number)| number)
    }

    pub fn prefix(&self, number: u8) -> Option<&LinkPrefix> {
        self.prefixes.get(usize::from(number)).filter(|one| one.is_valid)
    }

    pub fn is_preferred(&self, number: u8) -> bool {
        self.prefix(number).is_some_and(|one| one.is_preferred)
    }

    /// The first default router.
    pub fn router(&self, now: Nanos) -> Option<&LinkRouter> {
        self.routers.iter().find(|router| router.until > now)
    }

    /// Whether an address is that of a neighbor: link-local, or with a prefix that is on the link.
    pub fn is_on_link(&self, now: Nanos, address: Ipv6Addr) -> bool {
        let has = |one: &LinkPrefix| one.on_link > now && masked(address, one.length) == one.prefix;
        masked(address, 10) == LINK_LOCAL || self.prefixes.iter().any(has)
    }

    /// `timers` with what routers have advertised.
    pub fn timers(&self, timers: &NdTimers) -> NdTimers {
        NdTimers {
            reachable: self.reachable.unwrap_or(timers.reachable),
            retransmission: self.retransmission.unwrap_or(timers.retransmission),
            ..*timers
        }
    }
}

/// The first `length` bits of an address; the others are 0.
pub(crate) fn masked(address: Ipv6Addr, length: u8) -> Ipv6Addr {
    let zeros = 128 - u32::from(length.min(128));
    Ipv6Addr::from_bits(address.to_bits() & u128::MAX.checked_shl(zeros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Nanos = Nanos(7_000_000_000);

    fn at(seconds: u64) -> Nanos {
        BEGIN + Nanos(seconds * Nanos::SECOND.0)
    }

    fn prefix(valid: u32, preferred: u32) -> PrefixInformation {
        PrefixInformation {
            prefix: "2001:db8:1::".parse().unwrap(),
            length: 64,
            on_link: true,
            autonomous: true,
            valid,
            preferred,
        }
    }

    fn advertisement(prefixes: Vec<PrefixInformation>) -> RouterAdvertisement {
        RouterAdvertisement {
            source: "fe80::1".parse().unwrap(),
            destination: crate::nd_message::ALL_NODES,
            hop_limit: 64,
            managed: false,
            other: false,
            lifetime: 1800,
            reachable: 0,
            retransmission: 0,
            mac: None,
            mtu: None,
            prefixes,
        }
    }

    fn advertised(
        list: &mut PrefixList,
        seconds: u64,
        prefix: PrefixInformation,
    ) -> Vec<PrefixChange> {
        list.advertise(at(seconds), &advertisement(vec![prefix]))
    }

    fn remaining(list: &PrefixList, seconds: u64) -> f64 {
        list.prefix(0).expect("a valid prefix").valid.saturating_sub(at(seconds)).as_secs_f64()
    }

    #[test]
    fn addresses_of_a_prefix_are_preferred_then_deprecated_then_ended() {
        let mut list = PrefixList::default();
        assert_eq!(advertised(&mut list, 0, prefix(100, 40)), [PrefixChange::Added(0)]);
        assert_eq!((list.due(), list.timer(at(39))), (Some(at(40)), None));
        assert!(list.is_preferred(0));
        assert_eq!(list.timer(at(40)), Some(PrefixChange::Deprecated(0)));
        assert_eq!((list.due(), list.is_preferred(0)), (Some(at(100)), false));
        assert_eq!(list.timer(at(100)), Some(PrefixChange::Ended(0)));
        assert_eq!((list.due(), list.prefix(0)), (None, None));
        assert_eq!(advertised(&mut list, 200, prefix(100, 40)), [PrefixChange::Added(0)], "again");
    }

    #[test]
    fn an_advertisement_renews_lifetimes_and_deprecated_addresses() {
        let mut list = PrefixList::default();
        advertised(&mut list, 0, prefix(100, 40));
        assert_eq!(advertised(&mut list, 30, prefix(100, 40)), []);
        assert_eq!(list.due(), Some(at(70)));
        list.timer(at(70));
        assert_eq!(advertised(&mut list, 80, prefix(100, 40)), [PrefixChange::Preferred(0)]);
        assert_eq!(advertised(&mut list, 80, prefix(100, 0)), []);
        assert_eq!(list.timer(at(80)), Some(PrefixChange::Deprecated(0)), "at once");
    }

    #[test]
    fn a_lifetime_of_at_most_two_hours_cannot_be_shortened() {
        let mut list = PrefixList::default();
        advertised(&mut list, 0, prefix(5000, 5000));
        advertised(&mut list, 0, prefix(1, 1));
        assert!((remaining(&list, 0) - 5000.0).abs() < 1e-3, "rule 2");
        advertised(&mut list, 0, prefix(6000, 1));
        assert!((remaining(&list, 0) - 6000.0).abs() < 1e-3, "longer than what remains: rule 1");
        advertised(&mut list, 0, prefix(90_000, 1));
        advertised(&mut list, 0, prefix(1, 1));
        assert!((remaining(&list, 0) - 7200.0).abs() < 1e-3, "rule 3");
        advertised(&mut list, 0, prefix(90_000, 1));
        advertised(&mut list, 0, prefix(8000, 1));
        assert!((remaining(&list, 0) - 8000.0).abs() < 1e-3, "above two hours: rule 1");
    }

    #[test]
    fn infinite_lifetimes_have_no_timer() {
        let mut list = PrefixList::default();
        advertised(&mut list, 0, prefix(u32::MAX, u32::MAX));
        assert_eq!((list.due(), list.timer(Nanos(u64::MAX - 1))), (None, None));
        assert!(list.is_preferred(0));
    }

    #[test]
    fn prefixes_that_make_no_addresses_are_ignored() {
        let mut list = PrefixList::default();
        let bad = [
            PrefixInformation { prefix: "fe80::".parse().unwrap(), ..prefix(100, 50) },
            PrefixInformation { length: 48, ..prefix(100, 50) },
            prefix(50, 100),
        ];
        assert_eq!(list.advertise(at(0), &advertisement(bad.to_vec())), []);
        assert_eq!(list.ignored, 3);
        let silent = PrefixInformation { autonomous: false, ..prefix(100, 50) };
        assert_eq!(advertised(&mut list, 0, silent), [], "without the flag A");
        assert_eq!(advertised(&mut list, 0, prefix(0, 0)), [], "of lifetime 0");
    }

    #[test]
    fn prefixes_and_routers_are_bounded() {
        let mut list = PrefixList::default();
        for i in 0..100u16 {
            let address = Ipv6Addr::new(0x2001, 0xdb8, i, 0, 0, 0, 0, 0);
            let one = PrefixInformation { prefix: address, ..prefix(100, 100) };
            let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, i + 1);
            list.advertise(at(0), &RouterAdvertisement { source, ..advertisement(vec![one]) });
        }
        assert_eq!((list.prefixes.len(), list.routers.len(), list.ignored), (MOST, MOST, 92));
    }

    #[test]
    fn addresses_are_on_the_link_while_a_router_says_so() {
        let mut list = PrefixList::default();
        let address = "2001:db8:1::7".parse().unwrap();
        assert!(!list.is_on_link(at(0), address));
        advertised(&mut list, 0, prefix(100, 50));
        assert!(list.is_on_link(at(99), address) && !list.is_on_link(at(100), address));
        assert!(list.is_on_link(at(0), "fe80::1234".parse().unwrap()));
        advertised(&mut list, 50, PrefixInformation { autonomous: false, ..prefix(0, 0) });
        assert!(!list.is_on_link(at(50), address), "a lifetime of 0 ends it at once");
    }

    #[test]
    fn a_router_is_a_default_router_for_its_lifetime_alone() {
        let mut list = PrefixList::default();
        list.advertise(at(0), &advertisement(vec![]));
        assert!(list.router(at(1799)).is_some() && list.router(at(1800)).is_none());
        list.advertise(at(10), &RouterAdvertisement { lifetime: 0, ..advertisement(vec![]) });
        assert_eq!(list.router(at(10)), None);
    }

    #[test]
    fn the_default_router_stays_the_same_while_it_advertises_itself() {
        let mut list = PrefixList::default();
        let (first, mac) = (advertisement(vec![]), Some(MacAddr([2; 6])));
        let source = "fe80::2".parse().unwrap();
        let second = RouterAdvertisement { source, ..advertisement(vec![]) };
        list.advertise(at(0), &RouterAdvertisement { mac, ..first.clone() });
        for seconds in [1, 2] {
            list.advertise(at(seconds), &second);
            list.advertise(at(seconds), &first);
            let router = list.router(at(seconds)).unwrap();
            let expected = (first.source, mac, at(seconds + 1800));
            assert_eq!((router.address, router.mac, router.until), expected);
        }
        list.advertise(at(3), &RouterAdvertisement { lifetime: 0, ..first });
        assert_eq!(list.router(at(3)).unwrap().address, source);
    }

    #[test]
    fn times_of_more_than_an_hour_are_ignored() {
        let (mut list, own) = (PrefixList::default(), NdTimers::default());
        let (reachable, retransmission) = (LONGEST + 1, u32::MAX);
        let set = RouterAdvertisement { reachable, retransmission, ..advertisement(vec![]) };
        list.advertise(at(0), &set);
        assert_eq!(list.timers(&own), own);
        list.advertise(at(0), &RouterAdvertisement { reachable: LONGEST, ..set });
        assert_eq!(list.timers(&own).reachable, Nanos(3_600_000_000_000));
    }

    #[test]
    fn timers_are_those_of_the_router_if_it_sets_them() {
        let (mut list, own) = (PrefixList::default(), NdTimers::default());
        list.advertise(at(0), &advertisement(vec![]));
        assert_eq!(list.timers(&own), own, "0 is unspecified");
        let set = RouterAdvertisement { reachable: 5, retransmission: 7, ..advertisement(vec![]) };
        list.advertise(at(0), &set);
        let timers = list.timers(&own);
        assert_eq!((timers.reachable.0, timers.retransmission.0), (5_000_000, 7_000_000));
    }

    #[test]
    fn default_routers_end_with_their_lifetimes_one_by_one() {
        let mut list = PrefixList::default();
        for (number, lifetime) in [(1, 100), (2, 50), (3, 200)] {
            let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, number);
            let of = RouterAdvertisement { source, lifetime, ..advertisement(vec![]) };
            list.advertise(at(0), &of);
        }
        for (end, left) in [(50, 2), (100, 1), (200, 0)] {
            assert_eq!(list.router_due(), Some(at(end)));
            assert!(!list.expire_routers(at(end) - Nanos(1)));
            assert!(list.expire_routers(at(end)));
            assert_eq!(list.routers.len(), left);
        }
        assert_eq!((list.router_due(), list.router(at(200))), (None, None));
    }

    #[test]
    fn each_advertisement_begins_the_lifetime_of_its_router_again() {
        let mut list = PrefixList::default();
        for seconds in [0, 1000, 2000] {
            list.advertise(at(seconds), &advertisement(vec![]));
        }
        assert_eq!(list.router_due(), Some(at(3800)), "1800 s after the last one");
    }

    #[test]
    fn a_prefix_that_is_preferred_as_long_as_valid_ends_without_being_deprecated() {
        let mut list = PrefixList::default();
        advertised(&mut list, 0, prefix(40, 40));
        assert_eq!(list.timer(at(40)), Some(PrefixChange::Ended(0)));
        assert_eq!((list.timer(at(40)), list.due()), (None, None));
    }

    #[test]
    fn an_infinite_lifetime_becomes_two_hours_by_a_short_one_and_stays_infinite_by_none() {
        let mut list = PrefixList::default();
        advertised(&mut list, 0, prefix(u32::MAX, u32::MAX));
        advertised(&mut list, 10, prefix(u32::MAX, u32::MAX));
        assert_eq!(list.due(), None);
        advertised(&mut list, 20, prefix(100, 100));
        assert!((remaining(&list, 20) - 7200.0).abs() < 1e-3, "RFC 4862 section 5.5.3 e 3");
        assert_eq!(list.due(), Some(at(120)), "its addresses are deprecated before");
    }
}
