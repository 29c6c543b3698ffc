//! Routers of a link: a host's solicitations for them (RFC 4861 section 6.3.7).

use squall_units::{Nanos, below};

use crate::NdTimers;

/// An action of a host that looks for routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryAction {
    /// Solicit routers.
    Solicit,
    /// There is no router on the link.
    NoRouter,
}

/// The solicitations of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterDiscovery {
    sent: u8,
    found: bool,
    due: Option<Nanos>,
    /// When the first solicitation was sent.
    began: Nanos,
}

impl RouterDiscovery {
    /// The first solicitation follows after a random time, because many hosts may start at once.
    /// `chance` is uniform.
    pub fn start(&mut self, now: Nanos, chance: u64, timers: &NdTimers) {
        let wait = Nanos(below(chance, timers.solicitation_delay.0 + 1));
        *self = Self { due: Some(now + wait), ..Self::default() };
    }

    /// When [`RouterDiscovery::timer`] must be called next.
    pub fn due(&self) -> Option<Nanos> {
        self.due
    }

    /// Whether the host neither knows a router nor has given up.
    pub fn is_pending(&self) -> bool {
        self.due.is_some() && !self.found
    }

    /// Whether a default router has advertised itself.
    pub fn has_found(&self) -> bool {
        self.found
    }

    /// Runs the timer, if it is due.
    pub fn timer(&mut self, now: Nanos, timers: &NdTimers) -> Option<DiscoveryAction> {
        if self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        if self.sent >= timers.solicitations {
            return Some(DiscoveryAction::NoRouter);
        }
        self.sent += 1;
        if self.sent == 1 {
            self.began = now;
        }
        // A host that knows a router sends one solicitation nevertheless, because the
        // advertisement may have left out options.
        if !self.found {
            let last = self.sent >= timers.solicitations;
            let wait = if last { timers.solicitation_delay } else { timers.solicitation_interval };
            self.due = Some(now + wait);
        }
        Some(DiscoveryAction::Solicit)
    }

    /// A router has advertised itself. One with a lifetime of 0 (`is_default`: false) does not end
    /// the search. Returns the time since the first solicitation, if this is the first answer.
    pub fn advertised(&mut self, now: Nanos, is_default: bool) -> Option<Nanos> {
        if self.found || !is_default {
            return None;
        }
        self.found = true;
        if self.sent == 0 {
            return None;
        }
        self.due = None;
        Some(now.saturating_sub(self.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: Nanos = Nanos(9_000_000_000);

    fn played(host: &mut RouterDiscovery, mut now: Nanos) -> Vec<(DiscoveryAction, f64)> {
        let timers = NdTimers::default();
        let mut actions = Vec::new();
        while let Some(due) = host.due() {
            assert_eq!(host.timer(due.saturating_sub(Nanos(1)), &timers), None, "too early");
            let waited = (due - now).as_secs_f64();
            now = due;
            actions.extend(host.timer(now, &timers).map(|action| (action, waited)));
        }
        actions
    }

    fn started(chance: u64) -> RouterDiscovery {
        let mut host = RouterDiscovery::default();
        host.start(BEGIN, chance, &NdTimers::default());
        host
    }

    #[test]
    fn three_solicitations_4_seconds_apart_end_with_no_router_a_second_later() {
        use DiscoveryAction::{NoRouter, Solicit};
        for chance in [0, u64::MAX / 3, u64::MAX] {
            let mut host = started(chance);
            assert!(host.is_pending());
            let actions = played(&mut host, BEGIN);
            assert!((0.0..=1.0).contains(&actions[0].1), "MAX_RTR_SOLICITATION_DELAY");
            assert_eq!(actions[0].0, Solicit);
            assert_eq!(actions[1..], [(Solicit, 4.0), (Solicit, 4.0), (NoRouter, 1.0)]);
            assert!(!host.is_pending());
        }
    }

    #[test]
    fn an_advertisement_ends_the_solicitations() {
        let mut host = started(0);
        assert_eq!(host.timer(BEGIN, &NdTimers::default()), Some(DiscoveryAction::Solicit));
        assert_eq!(host.advertised(BEGIN + Nanos(5), true), Some(Nanos(5)));
        assert_eq!((host.due(), host.is_pending()), (None, false));
        assert_eq!(host.advertised(BEGIN + Nanos(9), true), None, "only the first one counts");
    }

    #[test]
    fn a_router_that_is_no_default_router_does_not_end_them() {
        let mut host = started(0);
        host.timer(BEGIN, &NdTimers::default());
        assert_eq!(host.advertised(BEGIN, false), None);
        assert!(host.is_pending());
        assert_eq!(played(&mut host, BEGIN).len(), 3);
    }

    #[test]
    fn one_solicitation_is_sent_after_an_early_advertisement() {
        let mut host = started(u64::MAX / 2);
        assert_eq!(host.advertised(BEGIN, true), None);
        assert!(!host.is_pending());
        let actions = played(&mut host, BEGIN);
        assert_eq!(actions.len(), 1, "{actions:?}");
        assert_eq!(actions[0].0, DiscoveryAction::Solicit);
    }

    #[test]
    fn number_interval_and_delay_of_solicitations_are_settable() {
        use DiscoveryAction::{NoRouter, Solicit};
        let timers = NdTimers {
            solicitations: 2,
            solicitation_interval: Nanos(500_000_000),
            solicitation_delay: Nanos(100_000_000),
            ..NdTimers::default()
        };
        let mut host = RouterDiscovery::default();
        host.start(BEGIN, u64::MAX, &timers);
        let mut acts = Vec::new();
        while let Some(due) = host.due() {
            acts.extend(host.timer(due, &timers).map(|act| (act, (due - BEGIN).0 / 1_000_000)));
        }
        assert_eq!(acts, [(Solicit, 100), (Solicit, 600), (NoRouter, 700)]);
    }

    #[test]
    fn an_advertisement_counts_until_the_wait_after_the_last_solicitation_is_over() {
        let mut host = started(0);
        let timers = NdTimers::default();
        for seconds in [0, 4, 8] {
            let now = BEGIN + Nanos(seconds * Nanos::SECOND.0);
            assert_eq!(host.timer(now, &timers), Some(DiscoveryAction::Solicit));
        }
        let last = BEGIN + Nanos(9 * Nanos::SECOND.0 - 1);
        assert!(host.is_pending());
        assert_eq!(host.advertised(last, true), Some(last - BEGIN));
        assert_eq!(host.timer(last + Nanos(1), &timers), None, "no failure");
    }

    #[test]
    fn a_router_that_comes_after_the_host_gave_up_is_found() {
        let mut host = started(0);
        played(&mut host, BEGIN);
        let late = BEGIN + Nanos(100 * Nanos::SECOND.0);
        assert_eq!(host.advertised(late, true), Some(late - BEGIN));
        assert!(host.has_found());
    }
}
