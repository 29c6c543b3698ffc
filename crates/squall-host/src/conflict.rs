//! Detection of IPv4 address conflicts (RFC 5227), for one address of one host.

use squall_units::{Nanos, below};

/// Timers and numbers of RFC 5227 section 1.1. Announcements may also be sent without probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConflictTimers {
    pub probe_wait: Nanos,
    /// Number of probes; 0: the address is used and announced at once.
    pub probes: u8,
    pub probe_min: Nanos,
    pub probe_max: Nanos,
    pub announce_wait: Nanos,
    /// Number of announcements (gratuitous ARP); 0: none.
    pub announcements: u8,
    pub announce_interval: Nanos,
    pub defend_interval: Nanos,
}

impl ConflictTimers {
    /// The address is used at once, without announcements.
    pub const SILENT: Self = Self { probes: 0, announcements: 0, ..Self::RFC };
    const RFC: Self = Self {
        probe_wait: Nanos(1_000_000_000),
        probes: 3,
        probe_min: Nanos(1_000_000_000),
        probe_max: Nanos(2_000_000_000),
        announce_wait: Nanos(2_000_000_000),
        announcements: 2,
        announce_interval: Nanos(2_000_000_000),
        defend_interval: Nanos(10_000_000_000),
    };
}

impl Default for ConflictTimers {
    fn default() -> Self {
        Self::RFC
    }
}

/// An action of a host on its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictAction {
    /// Broadcast a request for the address from 0.0.0.0 (section 2.1.1).
    Probe,
    /// No other host has the address, so it may be used.
    Usable,
    /// Broadcast a request for the address from itself (section 2.3).
    Announce,
    /// Announce the address, because another host has used it (section 2.4).
    Defend,
    /// The address belongs to another host.
    Conflict,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No address.
    #[default]
    Idle,
    /// Probes so far.
    Probing(u8),
    /// Announcements so far.
    Using(u8),
}

/// The state of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConflictDetection {
    phase: Phase,
    due: Option<Nanos>,
    /// When the address was defended last.
    defended: Option<Nanos>,
}

impl ConflictDetection {
    /// Begins with a new address. `chance` is uniform, as in all methods.
    pub fn start(&mut self, now: Nanos, chance: u64, timers: &ConflictTimers) {
        let wait = match timers.probes {
            0 => Nanos::ZERO,
            _ => Nanos(below(chance, timers.probe_wait.0 + 1)),
        };
        *self = Self { phase: Phase::Probing(0), due: Some(now + wait), defended: None };
    }

    /// The host has no address any more.
    pub fn stop(&mut self) {
        *self = Self::default();
    }

    /// When [`ConflictDetection::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether the address may be used.
    pub fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Using(_))
    }

    /// Runs the timer, if it is due. To be called until it returns `None`.
    pub fn timer(
        &mut self,
        now: Nanos,
        chance: u64,
        timers: &ConflictTimers,
    ) -> Option<ConflictAction> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        match self.phase {
            Phase::Idle => None,
            Phase::Probing(sent) if sent < timers.probes => {
                self.phase = Phase::Probing(sent + 1);
                let wait = if sent + 1 < timers.probes {
                    let span = timers.probe_max.saturating_sub(timers.probe_min);
                    timers.probe_min + Nanos(below(chance, span.0 + 1))
                } else {
                    timers.announce_wait
                };
                self.due = Some(now + wait);
                Some(ConflictAction::Probe)
            }
            Phase::Probing(_) => {
                self.phase = Phase::Using(0);
                self.due = (timers.announcements > 0).then_some(now);
                Some(ConflictAction::Usable)
            }
            Phase::Using(sent) => {
                self.phase = Phase::Using(sent + 1);
                let more = sent + 1 < timers.announcements;
                self.due = more.then_some(now + timers.announce_interval);
                Some(ConflictAction::Announce)
            }
        }
    }

    /// Another host has used the address (`probes`: has only probed for it, which is a conflict
    /// only between hosts that both probe).
    pub fn conflict(
        &mut self,
        now: Nanos,
        probes: bool,
        timers: &ConflictTimers,
    ) -> Option<ConflictAction> {
        match self.phase {
            Phase::Idle => None,
            Phase::Using(_) if probes => None,
            Phase::Probing(_) => {
                self.stop();
                Some(ConflictAction::Conflict)
            }
            Phase::Using(_) => {
                let again = self.defended.is_some_and(|last| now < last + timers.defend_interval);
                if again {
                    self.stop();
                    return Some(ConflictAction::Conflict);
                }
                self.defended = Some(now);
                Some(ConflictAction::Defend)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_units::SplitMix64;

    use super::*;

    fn seconds(seconds: f64) -> Nanos {
        Nanos((seconds * 1e9) as u64)
    }

    /// All actions of an address until its timers end, with the time before each in seconds.
    fn played(timers: &ConflictTimers, seed: u64) -> Vec<(ConflictAction, f64)> {
        let mut random = SplitMix64(seed);
        let mut address = ConflictDetection::default();
        let mut now = seconds(50.0);
        address.start(now, random.draw(), timers);
        let mut actions = Vec::new();
        while let Some(due) = address.due() {
            assert_eq!(address.timer(due.saturating_sub(Nanos(1)), 0, timers), None, "too early");
            let waited = (due - now).as_secs_f64();
            now = due;
            actions.extend(address.timer(now, random.draw(), timers).map(|act| (act, waited)));
        }
        assert!(address.is_usable());
        actions
    }

    #[test]
    fn three_probes_are_followed_by_two_announcements_at_the_times_of_the_rfc() {
        use ConflictAction::{Announce, Probe, Usable};
        for seed in 0..50 {
            let actions = played(&ConflictTimers::default(), seed);
            let kinds: Vec<_> = actions.iter().map(|action| action.0).collect();
            assert_eq!(kinds, [Probe, Probe, Probe, Usable, Announce, Announce]);
            let times: Vec<_> = actions.iter().map(|action| action.1).collect();
            assert!((0.0..=1.0).contains(&times[0]), "PROBE_WAIT: {times:?}");
            assert!((1.0..=2.0).contains(&times[1]), "PROBE_MIN to PROBE_MAX: {times:?}");
            assert!((1.0..=2.0).contains(&times[2]), "PROBE_MIN to PROBE_MAX: {times:?}");
            assert_eq!(times[3..], [2.0, 0.0, 2.0], "ANNOUNCE_WAIT, ANNOUNCE_INTERVAL");
        }
    }

    #[test]
    fn without_probes_the_address_is_used_at_once() {
        use ConflictAction::{Announce, Usable};
        let timers = ConflictTimers { probes: 0, ..ConflictTimers::default() };
        assert_eq!(played(&timers, 1), [(Usable, 0.0), (Announce, 0.0), (Announce, 2.0)]);
        assert_eq!(played(&ConflictTimers::SILENT, 1), [(Usable, 0.0)]);
    }

    #[test]
    fn any_use_of_the_address_while_it_is_probed_is_a_conflict() {
        let timers = ConflictTimers::default();
        for probes in [false, true] {
            let mut address = ConflictDetection::default();
            address.start(seconds(1.0), 0, &timers);
            address.timer(seconds(2.0), 0, &timers);
            let found = address.conflict(seconds(2.5), probes, &timers);
            assert_eq!(found, Some(ConflictAction::Conflict));
            assert_eq!((address.due(), address.is_usable()), (None, false));
        }
    }

    #[test]
    fn an_address_is_defended_once_in_ten_seconds_and_then_given_up() {
        let timers = ConflictTimers::SILENT;
        let mut address = ConflictDetection::default();
        address.start(seconds(1.0), 0, &timers);
        address.timer(seconds(1.0), 0, &timers);
        let mut found = |at, probes| address.conflict(seconds(at), probes, &timers);
        assert_eq!(found(2.0, true), None, "a probe of another host is only answered");
        assert_eq!(found(2.0, false), Some(ConflictAction::Defend));
        assert_eq!(found(12.0, false), Some(ConflictAction::Defend), "10 s later");
        assert_eq!(found(21.9, false), Some(ConflictAction::Conflict));
        assert_eq!(found(40.0, false), None, "it has no address");
    }

    #[test]
    fn a_conflict_counts_from_the_first_wait_until_the_announcement() {
        let timers = ConflictTimers::default();
        // In PROBE_WAIT, between the probes, and in ANNOUNCE_WAIT.
        for probes in 0..=3 {
            let mut address = ConflictDetection::default();
            address.start(seconds(10.0), 1 << 63, &timers);
            for _ in 0..probes {
                let now = address.due().unwrap();
                assert_eq!(address.timer(now, 0, &timers), Some(ConflictAction::Probe));
            }
            let now = address.due().unwrap() - Nanos(1);
            let found = address.conflict(now, true, &timers);
            assert_eq!(found, Some(ConflictAction::Conflict), "after {probes} probes");
            assert_eq!(address.due(), None);
        }
    }

    #[test]
    fn numbers_and_times_of_probes_and_announcements_are_settable() {
        use ConflictAction::{Announce, Probe, Usable};
        let timers = ConflictTimers {
            probe_wait: Nanos::ZERO,
            probes: 2,
            probe_min: seconds(0.25),
            probe_max: seconds(0.25),
            announce_wait: seconds(0.5),
            announcements: 3,
            announce_interval: seconds(0.125),
            defend_interval: seconds(1.0),
        };
        let expected = [
            (Probe, 0.0),
            (Probe, 0.25),
            (Usable, 0.5),
            (Announce, 0.0),
            (Announce, 0.125),
            (Announce, 0.125),
        ];
        assert_eq!(played(&timers, 3), expected);
    }

    /// An address in use at `at`, whose announcements are over.
    fn used(at: f64, timers: &ConflictTimers) -> ConflictDetection {
        let mut address = ConflictDetection::default();
        address.start(seconds(at), 0, timers);
        address.timer(seconds(at), 0, timers);
        assert!(address.is_usable());
        address
    }

    #[test]
    fn the_interval_of_defenses_is_settable_and_begins_with_each_of_them() {
        let timers = ConflictTimers { defend_interval: seconds(3.0), ..ConflictTimers::SILENT };
        let mut address = used(1.0, &timers);
        for at in [2.0, 5.0, 8.0] {
            let found = address.conflict(seconds(at), false, &timers);
            assert_eq!(found, Some(ConflictAction::Defend), "at {at} s");
        }
        let found = address.conflict(seconds(10.9), false, &timers);
        assert_eq!(found, Some(ConflictAction::Conflict));
    }

    #[test]
    fn a_defense_does_not_move_the_second_announcement() {
        let timers = ConflictTimers { probes: 0, ..ConflictTimers::default() };
        let mut address = used(1.0, &timers);
        assert_eq!(address.timer(seconds(1.0), 0, &timers), Some(ConflictAction::Announce));
        address.conflict(seconds(2.0), false, &timers);
        assert_eq!(address.due(), Some(seconds(3.0)), "ANNOUNCE_INTERVAL");
    }

    #[test]
    fn another_address_is_defended_whatever_was_with_the_one_before() {
        let timers = ConflictTimers::SILENT;
        let mut address = used(1.0, &timers);
        address.conflict(seconds(2.0), false, &timers);
        address.conflict(seconds(3.0), false, &timers);
        address.start(seconds(4.0), 0, &timers);
        address.timer(seconds(4.0), 0, &timers);
        let found = address.conflict(seconds(5.0), false, &timers);
        assert_eq!(found, Some(ConflictAction::Defend));
    }

    /// Messages of hosts that want one address: when they arrive, their senders, and whether these
    /// only probe.
    type Wire = Vec<(Nanos, usize, bool)>;

    #[test]
    fn of_hosts_with_one_address_each_has_it_or_a_conflict_and_without_losses_one_has_it() {
        use ConflictAction::{Announce, Conflict, Defend, Probe};
        for seed in 0..300 {
            let mut random = SplitMix64(seed);
            let hosts = 2 + (random.draw() % 5) as usize;
            let loss = if seed % 3 == 0 { 0 } else { random.draw() % 100 };
            let repeats = random.draw() % 50;
            let timers = ConflictTimers::default();
            let mut all = vec![ConflictDetection::default(); hosts];
            let mut lost = vec![false; hosts];
            for address in &mut all {
                let begin = Nanos(random.draw() % 5_000_000_000);
                address.start(begin, random.draw(), &timers);
            }
            let (mut wire, mut now): (Wire, _) = (Vec::new(), Nanos::ZERO);
            for _ in 0..10_000 {
                let timer = all.iter().filter_map(ConflictDetection::due).min();
                let message = wire.iter().map(|message| message.0).min();
                let Some(next) = timer.into_iter().chain(message).min() else { break };
                assert!(next >= now, "a timer in the past");
                now = next;
                let (arrived, rest): (Wire, Wire) = wire.into_iter().partition(|one| one.0 <= now);
                wire = rest;
                let mut acts: Vec<(usize, ConflictAction)> = Vec::new();
                for (_, from, probes) in arrived {
                    for (to, address) in all.iter_mut().enumerate().filter(|to| to.0 != from) {
                        acts.extend(address.conflict(now, probes, &timers).map(|act| (to, act)));
                        // A host answers a probe for its address.
                        if probes && address.is_usable() {
                            acts.push((to, Defend));
                        }
                    }
                }
                for (host, address) in all.iter_mut().enumerate() {
                    while let Some(act) = address.timer(now, random.draw(), &timers) {
                        acts.push((host, act));
                    }
                }
                for (host, act) in acts {
                    lost[host] |= act == Conflict;
                    if !matches!(act, Probe | Announce | Defend) || random.draw() % 100 < loss {
                        continue;
                    }
                    for _ in 0..1 + u64::from(random.draw() % 100 < repeats) {
                        // Up to 10 ms: messages overtake each other.
                        let at = now + Nanos(1 + random.draw() % 10_000_000);
                        wire.push((at, host, act == Probe));
                    }
                }
            }
            for (address, lost) in all.iter().zip(&lost) {
                assert_eq!(address.is_usable(), !lost, "seed {seed}");
                assert_eq!(address.due(), None);
            }
            let users = lost.iter().filter(|lost| !**lost).count();
            assert!(loss > 0 || users <= 1, "seed {seed}: {users} hosts have one address");
        }
    }
}
