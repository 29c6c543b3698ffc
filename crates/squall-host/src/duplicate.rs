//! Detection of duplicate IPv6 addresses (RFC 4862 section 5.4), for one address of one host.

use squall_units::{Nanos, below};

/// Timers and numbers of neighbor discovery (RFC 4861 section 10, RFC 4862 section 5.1, RFC 7217
/// section 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdTimers {
    /// `MAX_RTR_SOLICITATION_DELAY`: longest pause before the first message of a host.
    pub solicitation_delay: Nanos,
    /// `RTR_SOLICITATION_INTERVAL` and `MAX_RTR_SOLICITATIONS`.
    pub solicitation_interval: Nanos,
    pub solicitations: u8,
    /// `DupAddrDetectTransmits`; 0: addresses are used at once.
    pub probes: u8,
    /// `RETRANS_TIMER`, unless a router advertises another.
    pub retransmission: Nanos,
    /// `REACHABLE_TIME` before its random factor of 0.5 to 1.5, unless a router advertises another.
    pub reachable: Nanos,
    /// `DELAY_FIRST_PROBE_TIME`.
    pub delay: Nanos,
    /// `MAX_MULTICAST_SOLICIT` and `MAX_UNICAST_SOLICIT`.
    pub multicast_solicits: u8,
    pub unicast_solicits: u8,
    /// `IDGEN_RETRIES` and `IDGEN_DELAY`: other interface identifiers after a duplicate address.
    pub generations: u8,
    pub generation_delay: Nanos,
}

impl Default for NdTimers {
    fn default() -> Self {
        Self {
            solicitation_delay: Nanos(1_000_000_000),
            solicitation_interval: Nanos(4_000_000_000),
            solicitations: 3,
            probes: 1,
            retransmission: Nanos(1_000_000_000),
            reachable: Nanos(30_000_000_000),
            delay: Nanos(5_000_000_000),
            multicast_solicits: 3,
            unicast_solicits: 3,
            generations: 3,
            generation_delay: Nanos(1_000_000_000),
        }
    }
}

/// An action of a host on its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateAction {
    /// Solicit the address without a source address.
    Probe,
    /// No other host has answered, so the address may be used.
    Usable,
    /// Another host has the address. The host examines one with the next interface identifier.
    Regenerate,
    /// Another host has the address, and this host must not use it.
    Duplicate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No address.
    #[default]
    Idle,
    /// Solicitations so far.
    Tentative(u8),
    Assigned,
    Duplicate,
}

/// The state of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateDetection {
    phase: Phase,
    /// Interface identifiers that were duplicates.
    generation: u8,
    due: Option<Nanos>,
}

impl DuplicateDetection {
    /// Begins with a new address. `chance` is uniform. `delayed`: the host waits a random time
    /// first, because other hosts may begin at the same moment: its interface has just started, or
    /// a router advertised a prefix to all of them (section 5.4.2).
    pub fn start(&mut self, now: Nanos, chance: u64, delayed: bool, timers: &NdTimers) {
        let wait = match delayed && timers.probes > 0 {
            true => Nanos(below(chance, timers.solicitation_delay.0 + 1)),
            false => Nanos::ZERO,
        };
        *self = Self { phase: Phase::Tentative(0), generation: 0, due: Some(now + wait) };
    }

    /// The host has no such address any more.
    pub fn stop(&mut self) {
        *self = Self::default();
    }

    /// When [`DuplicateDetection::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    pub fn is_usable(&self) -> bool {
        self.phase == Phase::Assigned
    }

    pub fn is_tentative(&self) -> bool {
        matches!(self.phase, Phase::Tentative(_))
    }

    pub fn is_duplicate(&self) -> bool {
        self.phase == Phase::Duplicate
    }

    /// Number of the interface identifier: those before it were duplicates (RFC 7217 section 6).
    pub fn generation(&self) -> u8 {
        self.generation
    }

    /// Runs the timer, if it is due. To be called until it returns `None`.
    pub fn timer(&mut self, now: Nanos, timers: &NdTimers) -> Option<DuplicateAction> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        let Phase::Tentative(sent) = self.phase else { return None };
        if sent < timers.probes {
            self.phase = Phase::Tentative(sent + 1);
            self.due = Some(now + timers.retransmission);
            return Some(DuplicateAction::Probe);
        }
        (self.phase, self.due) = (Phase::Assigned, None);
        Some(DuplicateAction::Usable)
    }

    /// Another host has the tentative address, or examines it at the same time (sections 5.4.3 and
    /// 5.4.4). `regenerates`: another interface identifier can be made.
    pub fn conflict(
        &mut self,
        now: Nanos,
        regenerates: bool,
        timers: &NdTimers,
    ) -> Option<DuplicateAction> {
        if !self.is_tentative() {
            return None;
        }
        if regenerates && self.generation < timers.generations {
            self.generation += 1;
            self.phase = Phase::Tentative(0);
            self.due = Some(now + timers.generation_delay);
            return Some(DuplicateAction::Regenerate);
        }
        (self.phase, self.due) = (Phase::Duplicate, None);
        Some(DuplicateAction::Duplicate)
    }
}

#[cfg(test)]
mod tests {
    use squall_units::SplitMix64;

    use super::*;

    const BEGIN: Nanos = Nanos(50_000_000_000);

    /// All actions of an address until its timers end, with the time before each in seconds.
    fn played(
        address: &mut DuplicateDetection,
        mut now: Nanos,
        timers: &NdTimers,
    ) -> Vec<(DuplicateAction, f64)> {
        let mut actions = Vec::new();
        while let Some(due) = address.due() {
            assert_eq!(address.timer(due.saturating_sub(Nanos(1)), timers), None, "too early");
            let waited = (due - now).as_secs_f64();
            now = due;
            actions.extend(address.timer(now, timers).map(|action| (action, waited)));
        }
        actions
    }

    fn started(delayed: bool, chance: u64, timers: &NdTimers) -> DuplicateDetection {
        let mut address = DuplicateDetection::default();
        address.start(BEGIN, chance, delayed, timers);
        address
    }

    #[test]
    fn one_probe_and_a_second_without_an_answer_make_an_address_usable() {
        use DuplicateAction::{Probe, Usable};
        let timers = NdTimers::default();
        let mut address = started(false, 7, &timers);
        assert!(address.is_tentative() && !address.is_usable());
        assert_eq!(played(&mut address, BEGIN, &timers), [(Probe, 0.0), (Usable, 1.0)]);
        assert!(address.is_usable());
    }

    #[test]
    fn the_first_message_of_an_interface_waits_up_to_a_random_second() {
        let timers = NdTimers::default();
        let mut random = SplitMix64(4);
        let waits: Vec<_> = (0..500)
            .map(|_| played(&mut started(true, random.draw(), &timers), BEGIN, &timers)[0].1)
            .collect();
        assert!(waits.iter().all(|wait| (0.0..=1.0).contains(wait)));
        let mean = waits.iter().sum::<f64>() / 500.0;
        assert!((mean - 0.5).abs() < 0.1, "mean {mean}");
    }

    #[test]
    fn probes_are_as_many_and_as_far_apart_as_the_settings_say() {
        use DuplicateAction::{Probe, Usable};
        let timers =
            NdTimers { probes: 3, retransmission: Nanos(2_000_000_000), ..NdTimers::default() };
        let expected = [(Probe, 0.0), (Probe, 2.0), (Probe, 2.0), (Usable, 2.0)];
        assert_eq!(played(&mut started(false, 1, &timers), BEGIN, &timers), expected);
        let none = NdTimers { probes: 0, ..timers };
        assert_eq!(played(&mut started(true, u64::MAX, &none), BEGIN, &none), [(Usable, 0.0)]);
    }

    #[test]
    fn an_address_of_another_host_is_not_used() {
        let timers = NdTimers::default();
        let mut address = started(false, 1, &timers);
        address.timer(BEGIN, &timers);
        let found = address.conflict(BEGIN + Nanos(1), false, &timers);
        assert_eq!(found, Some(DuplicateAction::Duplicate));
        assert!(address.is_duplicate() && address.due().is_none());
        assert_eq!(address.timer(BEGIN + Nanos(1 << 40), &timers), None);
    }

    #[test]
    fn three_other_identifiers_are_tried_a_second_after_each_duplicate() {
        use DuplicateAction::{Duplicate, Probe, Regenerate};
        let timers = NdTimers::default();
        let mut address = started(false, 1, &timers);
        let mut now = BEGIN;
        for generation in 1..=3 {
            assert_eq!(address.timer(now, &timers), Some(Probe));
            now = now + Nanos(500_000_000);
            assert_eq!(address.conflict(now, true, &timers), Some(Regenerate));
            assert_eq!(
                (address.generation(), address.due()),
                (generation, Some(now + Nanos::SECOND))
            );
            now = now + Nanos::SECOND;
        }
        assert_eq!(address.timer(now, &timers), Some(Probe));
        assert_eq!(address.conflict(now, true, &timers), Some(Duplicate));
    }

    #[test]
    fn an_assigned_address_is_not_given_up() {
        let timers = NdTimers::default();
        let mut address = started(false, 1, &timers);
        played(&mut address, BEGIN, &timers);
        assert_eq!(address.conflict(BEGIN, true, &timers), None);
        assert!(address.is_usable());
    }

    #[test]
    fn a_message_of_another_host_before_the_first_probe_makes_a_duplicate() {
        let timers = NdTimers::default();
        let mut address = started(true, u64::MAX, &timers);
        assert_eq!(address.due(), Some(BEGIN + Nanos(1_000_000_000)));
        let found = address.conflict(BEGIN + Nanos(5), false, &timers);
        assert_eq!(found, Some(DuplicateAction::Duplicate), "RFC 4862 section 5.4.3");
        assert_eq!(address.due(), None);
    }

    #[test]
    fn a_duplicate_is_found_until_the_time_after_the_last_probe_is_over() {
        let timers = NdTimers { probes: 2, ..NdTimers::default() };
        let mut address = started(false, 1, &timers);
        address.timer(BEGIN, &timers);
        address.timer(BEGIN + Nanos::SECOND, &timers);
        let last = BEGIN + Nanos(2 * Nanos::SECOND.0 - 1);
        assert_eq!(address.timer(last, &timers), None);
        assert_eq!(address.conflict(last, false, &timers), Some(DuplicateAction::Duplicate));
    }

    #[test]
    fn number_and_pause_of_other_identifiers_are_settable() {
        let timers = NdTimers {
            generations: 1,
            generation_delay: Nanos(250_000_000),
            ..NdTimers::default()
        };
        let mut address = started(false, 1, &timers);
        let found = address.conflict(BEGIN, true, &timers);
        assert_eq!(found, Some(DuplicateAction::Regenerate));
        assert_eq!(address.due(), Some(BEGIN + Nanos(250_000_000)), "IDGEN_DELAY");
        let found = address.conflict(BEGIN, true, &timers);
        assert_eq!(found, Some(DuplicateAction::Duplicate), "IDGEN_RETRIES");
    }

    #[test]
    fn an_address_that_is_given_up_has_no_timer() {
        let timers = NdTimers::default();
        let mut address = started(false, 1, &timers);
        address.timer(BEGIN, &timers);
        address.stop();
        assert_eq!((address.due(), address.timer(BEGIN + Nanos(1 << 40), &timers)), (None, None));
        assert!(!address.is_tentative() && !address.is_usable());
    }

    /// Messages on the way: when they arrive, their senders and addresses, and whether they are
    /// solicitations.
    type Wire = Vec<(Nanos, usize, u8, bool)>;

    #[test]
    fn each_address_is_assigned_or_a_duplicate_and_without_losses_no_two_are_the_same() {
        for seed in 0..300 {
            let mut random = SplitMix64(seed);
            let hosts = 2 + (random.draw() % 6) as usize;
            let loss = if seed % 3 == 0 { 0 } else { random.draw() % 100 };
            let repeats = random.draw() % 50;
            let regenerates = random.draw().is_multiple_of(2);
            let timers = NdTimers { probes: 1 + (random.draw() % 3) as u8, ..NdTimers::default() };
            let mut all = vec![DuplicateDetection::default(); hosts];
            for address in &mut all {
                let begin = Nanos(random.draw() % 3_000_000_000);
                address.start(begin, random.draw(), true, &timers);
            }
            let (mut wire, mut now): (Wire, _) = (Vec::new(), Nanos::ZERO);
            for _ in 0..10_000 {
                let timer = all.iter().filter_map(DuplicateDetection::due).min();
                let message = wire.iter().map(|message| message.0).min();
                let Some(next) = timer.into_iter().chain(message).min() else { break };
                assert!(next >= now, "a timer in the past");
                now = next;
                let mut sent: Vec<(usize, u8, bool)> = Vec::new();
                let (arrived, rest): (Wire, Wire) = wire.into_iter().partition(|one| one.0 <= now);
                wire = rest;
                for (_, from, target, is_probe) in arrived {
                    for (to, address) in all.iter_mut().enumerate() {
                        if to == from || address.generation() != target {
                            continue;
                        }
                        if address.is_usable() && is_probe {
                            sent.push((to, target, false));
                        }
                        address.conflict(now, regenerates, &timers);
                    }
                }
                for (host, address) in all.iter_mut().enumerate() {
                    while let Some(act) = address.timer(now, &timers) {
                        if act == DuplicateAction::Probe {
                            sent.push((host, address.generation(), true));
                        }
                    }
                }
                for (host, target, is_probe) in sent {
                    if random.draw() % 100 < loss {
                        continue;
                    }
                    for _ in 0..1 + u64::from(random.draw() % 100 < repeats) {
                        let at = now + Nanos(1 + random.draw() % 10_000_000);
                        wire.push((at, host, target, is_probe));
                    }
                }
            }
            let mut assigned = Vec::new();
            for address in &all {
                assert!(address.is_usable() != address.is_duplicate(), "seed {seed}: {address:?}");
                assert_eq!(address.due(), None);
                assigned.extend(address.is_usable().then_some(address.generation()));
            }
            let count = assigned.len();
            assigned.sort_unstable();
            assigned.dedup();
            assert!(loss > 0 || assigned.len() == count, "seed {seed}: {all:?}");
        }
    }
}
