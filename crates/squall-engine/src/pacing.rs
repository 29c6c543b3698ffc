//! A port's traffic clock and its audit: one of each per port, shared by all its sources and
//! workers.

use std::sync::Arc;

use squall_program::{
    audit::{PortAudit, Surplus},
    clock::{Allowance, Planned, PortClock},
};
use squall_units::{Nanos, Picos};

use crate::Clock;

/// Shared by all workers and sources of a port.
#[derive(Debug)]
pub(crate) struct PortPace {
    pub clock: PortClock,
    pub audit: Arc<PortAudit>,
}

/// How a port kept its schedule, summed over all sources and workers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortPacing {
    /// The window with the highest ratio of surplus to allowed surplus; `None`: no frame left on a
    /// schedule.
    pub worst: Option<Surplus>,
    /// The sum of all lag ever added to the traffic clock.
    pub moved: Nanos,
    /// From this time on the lag could not be recovered in time, and frames left at up to twice the
    /// rate.
    pub catching_up_since: Option<Picos>,
    /// Frames in answer to received frames without a receive timestamp.
    pub uncertain: u64,
}

impl PortPace {
    pub fn new(planned: Planned) -> Self {
        Self { clock: PortClock::new(planned), audit: Arc::default() }
    }

    /// As [`PortClock::owing`]; also stops the audit once the clock catches up.
    #[inline]
    pub fn owing(&self, at: u64, due: u64, passed: u64, allowance: Allowance) -> u64 {
        let traffic = self.clock.owing(at, due, passed, allowance);
        // The cheaper comparison is first, because usually all frames are on time.
        if traffic != at && self.clock.catching_up_since().is_some() {
            self.audit.give_up();
        }
        traffic
    }

    /// Checks frames that left at `at`; the clock lagged by `lag`, and the first frame was due at
    /// `due`. Lateness above the allowance becomes lag before more frames may follow. A sender that
    /// was stopped between its decision and the departure sends late, and must not add as much
    /// again at once.
    #[inline]
    pub fn left(&self, at: u64, lag: u64, due: u64, allowance: Allowance) {
        let late = at.saturating_sub(lag).saturating_sub(due);
        if late > allowance.0 && self.clock.catching_up_since().is_none() {
            self.owing(at, due, 0, allowance);
        }
    }

    /// The state at `now`; `over`: sending has ended.
    pub fn so_far(&self, clock: Clock, now: Nanos, over: bool) -> PortPacing {
        if clock == Clock::Virtual {
            return PortPacing::default();
        }
        PortPacing {
            worst: self.audit.worst(clock.since_start(now).0, over),
            moved: self.clock.moved(),
            catching_up_since: self.clock.catching_up_since(),
            uncertain: self.audit.uncertain(),
        }
    }
}

#[cfg(test)]
mod tests {
    use squall_program::audit::{Auditor, bin};

    use super::*;

    const MS: u64 = 1_000_000_000;

    /// A sender of 100 frames/ms checks its schedule every 50 us. At times it is stopped for 8 ms,
    /// decides to send the allowance at once, and is stopped again before it sends.
    #[test]
    fn a_stop_between_deciding_and_sending_adds_no_more_at_once() {
        for again in [0, 2 * MS, 8 * MS] {
            let pace =
                PortPace::new(Planned { end: Some(Picos(10_000 * MS)), ..Planned::default() });
            let mut auditor = Auditor::new(&pace.audit);
            let allowance = Allowance::of(Some(100_000.0));
            let (mut now, mut next) = (0, 0);
            for turn in 1..20_000 {
                now += MS / 20;
                let stop = if turn % 4000 == 0 { 8 * MS } else { 0 };
                now += stop;
                let horizon = pace.owing(now, next, MS / 20, allowance);
                now += again.min(stop);
                let first = next;
                while next <= horizon {
                    auditor.due(bin(next + pace.clock.lag(now)), 1, 64);
                    auditor.left(bin(now), 1, 64, 64);
                    next += MS / 100;
                }
                if next > first {
                    pace.left(now, pace.clock.lag(now), first, allowance);
                }
            }
            drop(auditor);
            let worst = pace.audit.worst(now, true).unwrap();
            assert!(!worst.is_excess(), "stopped again for {again} ps: {worst:?}");
        }
    }
}
