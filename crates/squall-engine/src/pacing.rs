//! A port's traffic clock and its audit: one each, of all its sources and workers.

use std::sync::Arc;

use squall_program::{
    audit::{PortAudit, Surplus},
    clock::{Allowance, Planned, PortClock},
};
use squall_units::{Nanos, Picos};

use crate::Clock;

/// What all workers and sources of a port share.
#[derive(Debug)]
pub(crate) struct PortPace {
    pub clock: PortClock,
    pub audit: Arc<PortAudit>,
}

/// How a port kept to what was due, its sources and workers added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PortPacing {
    /// The window with the most surplus for what is allowed; `None`: nothing left by a schedule.
    pub worst: Option<Surplus>,
    /// All that the traffic clock was moved by, regained or not.
    pub moved: Nanos,
    /// From then on the lag could not be regained in time, and frames left at up to twice the rate.
    pub hurries_since: Option<Picos>,
    /// Frames that answered received ones which have no receive time stamp.
    pub uncertain: u64,
}

impl PortPace {
    pub fn new(planned: Planned) -> Self {
        Self { clock: PortClock::new(planned), audit: Arc::default() }
    }

    /// As [`PortClock::owing`]; once the clock hurries, nothing is judged any more.
    #[inline]
    pub fn owing(&self, at: u64, due: u64, passed: u64, allowance: Allowance) -> u64 {
        let traffic = self.clock.owing(at, due, passed, allowance);
        // Mostly all is in time.
        if traffic != at && self.clock.hurries_since().is_some() {
            self.audit.give_up();
        }
        traffic
    }

    /// Until `now`; `over`: nothing more is sent.
    pub fn so_far(&self, clock: Clock, now: Nanos, over: bool) -> PortPacing {
        if clock == Clock::Virtual {
            return PortPacing::default();
        }
        PortPacing {
            worst: self.audit.worst(clock.since_start(now).0, over),
            moved: self.clock.moved(),
            hurries_since: self.clock.hurries_since(),
            uncertain: self.audit.uncertain(),
        }
    }
}
