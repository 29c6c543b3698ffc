//! A router that advertises itself and prefixes (RFC 4861 section 6.2).

use std::{cmp::Reverse, collections::BinaryHeap, net::Ipv6Addr};

use squall_units::{MacAddr, Nanos, below};

use crate::{PrefixInformation, RouterAdvertisement, group_mac, nd_message::ALL_NODES};

/// Contents and times of a router's advertisements. The defaults are those of section 6.2.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    pub prefixes: Vec<PrefixInformation>,
    /// `AdvDefaultLifetime` in seconds; 0: it is no default router.
    pub lifetime: u16,
    /// The flags M and O.
    pub managed: bool,
    pub other: bool,
    /// `MinRtrAdvInterval` and `MaxRtrAdvInterval`.
    pub min_interval: Nanos,
    pub max_interval: Nanos,
    /// `MAX_INITIAL_RTR_ADVERT_INTERVAL` and `MAX_INITIAL_RTR_ADVERTISEMENTS`.
    pub initial_interval: Nanos,
    pub initial: u8,
    /// `MAX_RA_DELAY_TIME`: longest delay of an answer.
    pub answer_delay: Nanos,
}

impl Default for RouterSettings {
    fn default() -> Self {
        Self {
            prefixes: Vec::new(),
            lifetime: 1800,
            managed: false,
            other: false,
            min_interval: Nanos(200_000_000_000),
            max_interval: Nanos(600_000_000_000),
            initial_interval: Nanos(16_000_000_000),
            initial: 3,
            answer_delay: Nanos(500_000_000),
        }
    }
}

impl RouterSettings {
    /// The advertisement from `source` to `destination`.
    pub fn advertisement(
        &self,
        source: Ipv6Addr,
        mac: MacAddr,
        destination: Ipv6Addr,
    ) -> RouterAdvertisement {
        RouterAdvertisement {
            source,
            destination,
            hop_limit: 64,
            managed: self.managed,
            other: self.other,
            lifetime: self.lifetime,
            reachable: 0,
            retransmission: 0,
            mac: Some(mac),
            mtu: None,
            prefixes: self.prefixes.clone(),
        }
    }
}

/// A host that has solicited routers: when it is answered, its addresses.
type Waiting = (Nanos, Ipv6Addr, [u8; 6]);

/// The router's timers.
#[derive(Debug, Default)]
pub struct AdvertisingRouter {
    due: Option<Nanos>,
    /// When the last advertisement to all hosts was sent.
    last: Option<Nanos>,
    sent: u8,
    answers: BinaryHeap<Reverse<Waiting>>,
    /// Solicitations without an answer, because the router had not started or too many waited.
    pub dropped: u64,
}

/// Solicitations that wait for an answer at most. This bounds the memory in a flood.
const MOST: usize = 1 << 20;
/// `MIN_DELAY_BETWEEN_RAS`: time between an advertisement to all hosts and one that answers a
/// solicitation (section 6.2.6).
const MIN_DELAY: Nanos = Nanos(3_000_000_000);

impl AdvertisingRouter {
    /// Begins with unsolicited advertisements.
    pub fn start(&mut self, now: Nanos) {
        self.due = Some(now);
    }

    /// When [`AdvertisingRouter::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        let answer = self.answers.peek().map(|Reverse((due, ..))| *due);
        self.due.into_iter().chain(answer).min()
    }

    /// A host solicits routers. Each host gets its own answer, which the RFC allows, so that an
    /// answer to all hosts is not needed for each of many hosts that start one after the other. A
    /// host without an address (`::`) causes an answer to all. `chance` is uniform.
    pub fn solicited(
        &mut self,
        (now, chance): (Nanos, u64),
        (source, mac): (Ipv6Addr, MacAddr),
        settings: &RouterSettings,
    ) {
        if self.due.is_none() || self.answers.len() >= MOST {
            self.dropped += 1;
            return;
        }
        let delay = Nanos(below(chance, settings.answer_delay.0 + 1));
        match source.is_unspecified() {
            true => {
                let from = self.last.map_or(now, |last| now.max(last + MIN_DELAY));
                self.due = self.due.map(|before| before.min(from + delay));
            }
            false => self.answers.push(Reverse((now + delay, source, mac.0))),
        }
    }

    /// The addresses to which an advertisement is due by `now`. To be called until it returns
    /// `None`.
    pub fn timer(
        &mut self,
        now: Nanos,
        chance: u64,
        settings: &RouterSettings,
    ) -> Option<(Ipv6Addr, MacAddr)> {
        if let Some(Reverse((due, ..))) = self.answers.peek()
            && *due <= now
        {
            return self.answers.pop().map(|Reverse((_, source, mac))| (source, MacAddr(mac)));
        }
        self.due.filter(|due| *due <= now)?;
        let span = settings.max_interval.saturating_sub(settings.min_interval);
        let mut wait = settings.min_interval + Nanos(below(chance, span.0 + 1));
        // The first ones follow sooner, so that hosts that are up already find the router.
        if self.sent < settings.initial {
            self.sent += 1;
            wait = wait.min(settings.initial_interval);
        }
        (self.due, self.last) = (Some(now + wait), Some(now));
        Some((ALL_NODES, group_mac(ALL_NODES.into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Nanos = Nanos(3_000_000_000);

    #[test]
    fn three_advertisements_come_soon_and_further_ones_every_200_to_600_seconds() {
        let (mut router, settings) = (AdvertisingRouter::default(), RouterSettings::default());
        router.start(BEGIN);
        let mut now = BEGIN;
        let mut waits = Vec::new();
        for chance in [0, u64::MAX, u64::MAX / 2, 0, u64::MAX] {
            let due = router.due().unwrap();
            assert_eq!(router.timer(due.saturating_sub(Nanos(1)), chance, &settings), None);
            assert_eq!(router.timer(due, chance, &settings).map(|to| to.0), Some(ALL_NODES));
            waits.push((due - now).as_secs_f64());
            now = due;
        }
        assert_eq!(waits, [0.0, 16.0, 16.0, 16.0, 200.0]);
        assert_eq!((router.due().unwrap() - now).as_secs_f64().round(), 600.0);
    }

    #[test]
    fn a_solicitation_is_answered_within_half_a_second_to_its_sender() {
        let (mut router, settings) = (AdvertisingRouter::default(), RouterSettings::default());
        router.start(BEGIN);
        router.timer(BEGIN, 0, &settings);
        let host: Ipv6Addr = "fe80::7".parse().unwrap();
        let mac = MacAddr([2, 0, 0, 0, 0, 7]);
        router.solicited((BEGIN, u64::MAX), (host, mac), &settings);
        assert_eq!(router.due(), Some(BEGIN + Nanos(500_000_000)));
        assert_eq!(router.timer(BEGIN, 0, &settings), None);
        assert_eq!(router.timer(BEGIN + Nanos(500_000_000), 0, &settings), Some((host, mac)));
        assert_eq!(router.due(), Some(BEGIN + Nanos(16_000_000_000)), "to all, as before");
    }

    #[test]
    fn a_host_without_an_address_is_answered_to_all() {
        let (mut router, settings) = (AdvertisingRouter::default(), RouterSettings::default());
        router.start(BEGIN);
        router.timer(BEGIN, 0, &settings);
        let none = (Ipv6Addr::UNSPECIFIED, MacAddr::default());
        router.solicited((BEGIN, 0), none, &settings);
        // The last one to all was sent just now.
        let due = BEGIN + MIN_DELAY;
        assert_eq!((router.due(), router.timer(BEGIN, 0, &settings)), (Some(due), None));
        assert_eq!(router.timer(due, 0, &settings).map(|to| to.0), Some(ALL_NODES));
        assert_eq!(router.timer(due, 0, &settings), None);
        let later = due + Nanos(10_000_000_000);
        router.solicited((later, 0), none, &settings);
        assert_eq!(router.due(), Some(later), "at once");
    }

    #[test]
    fn a_router_that_has_not_started_answers_nobody() {
        let mut router = AdvertisingRouter::default();
        let host = ("fe80::7".parse().unwrap(), MacAddr::default());
        router.solicited((BEGIN, 0), host, &RouterSettings::default());
        assert_eq!((router.due(), router.dropped), (None, 1));
    }

    const HOST: (Ipv6Addr, MacAddr) =
        (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7), MacAddr([2, 0, 0, 0, 0, 7]));

    fn started(settings: &RouterSettings) -> AdvertisingRouter {
        let mut router = AdvertisingRouter::default();
        router.start(BEGIN);
        assert_eq!(router.timer(BEGIN, 0, settings).map(|to| to.0), Some(ALL_NODES));
        router
    }

    #[test]
    fn intervals_of_advertisements_are_settable() {
        let settings = RouterSettings {
            min_interval: Nanos(3_000_000_000),
            max_interval: Nanos(4_000_000_000),
            initial: 0,
            ..RouterSettings::default()
        };
        let mut router = started(&settings);
        let mut now = BEGIN;
        for chance in [0, u64::MAX, 0] {
            let due = router.due().unwrap();
            let waited = (due - now).as_secs_f64();
            assert!((3.0..=4.0).contains(&waited), "{waited} s");
            assert!(router.timer(due, chance, &settings).is_some());
            now = due;
        }
    }

    #[test]
    fn a_first_interval_that_is_shorter_than_16_seconds_stays_so() {
        let second = Nanos::SECOND;
        let (min_interval, max_interval) = (second, second);
        let settings = RouterSettings { min_interval, max_interval, ..RouterSettings::default() };
        assert_eq!(started(&settings).due(), Some(BEGIN + second));
    }

    #[test]
    fn the_delay_of_an_answer_is_random_and_settable() {
        for (chance, most, expected) in
            [(0, 500, 0), (u64::MAX / 2, 500, 250), (u64::MAX, 500, 500), (u64::MAX, 20, 20)]
        {
            let answer_delay = Nanos(most * 1_000_000);
            let settings = RouterSettings { answer_delay, ..RouterSettings::default() };
            let mut router = started(&settings);
            router.solicited((BEGIN, chance), HOST, &settings);
            let delay = (router.due().unwrap() - BEGIN).as_secs_f64() * 1000.0;
            assert!((delay - f64::from(expected)).abs() < 0.01, "MAX_RA_DELAY_TIME: {delay} ms");
        }
    }

    #[test]
    fn advertisements_to_all_hosts_that_answer_are_three_seconds_apart() {
        let settings = RouterSettings::default();
        let mut router = started(&settings);
        let none = (Ipv6Addr::UNSPECIFIED, MacAddr::default());
        let mut times = Vec::new();
        // A solicitation each 100 ms.
        for tenth in 1..=100u64 {
            let now = BEGIN + Nanos(tenth * 100_000_000);
            if router.timer(now, 0, &settings).is_some() {
                times.push(tenth);
            }
            router.solicited((now, 0), none, &settings);
        }
        assert_eq!(times, [30, 60, 90], "MIN_DELAY_BETWEEN_RAS");
    }

    #[test]
    fn an_answer_to_all_hosts_begins_the_interval_again() {
        let settings = RouterSettings { initial: 0, ..RouterSettings::default() };
        let mut router = started(&settings);
        let now = BEGIN + Nanos(50_000_000_000);
        router.solicited((now, 0), (Ipv6Addr::UNSPECIFIED, MacAddr::default()), &settings);
        assert!(router.timer(now, 0, &settings).is_some());
        assert_eq!(router.due(), Some(now + settings.min_interval), "RFC 4861 section 6.2.6");
    }
}
