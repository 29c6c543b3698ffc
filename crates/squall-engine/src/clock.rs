//! The run's time: picoseconds since its start, from the system's clock or from the schedule itself.

use std::time::Duration;

use squall_port::FastClock;
use squall_units::{Nanos, Picos};

/// Time as a worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `CLOCK_MONOTONIC`; the run starts at this instant.
    Real(Nanos),
    /// Whatever is due next is now. Runs as fast as the machine goes, and gives the same result each time.
    Virtual,
}

/// A sleep may overshoot by as much as this on a virtual machine; the rest of a wait is spun.
pub(crate) const SLEEP_MARGIN: Nanos = Nanos(150_000);

impl Clock {
    /// Since the start of the run; 0 before it.
    #[inline]
    pub fn since_start(self, now: Nanos) -> Picos {
        match self {
            Self::Real(start) => now.saturating_sub(start).into(),
            Self::Virtual => now.into(),
        }
    }

    /// The instant on the engine's clock at which a frame is due.
    #[inline]
    pub fn instant(self, due: Picos) -> Nanos {
        match self {
            Self::Real(start) => start + due.as_nanos(),
            Self::Virtual => due.as_nanos(),
        }
    }
}

/// A worker's way to read its clock.
#[derive(Debug)]
pub(crate) struct Watch(Option<FastClock>);

impl Watch {
    pub fn new(clock: Clock) -> Self {
        Self((clock != Clock::Virtual).then(FastClock::new))
    }

    #[inline]
    pub fn now(&mut self) -> Nanos {
        self.0.as_mut().map_or(Nanos::ZERO, FastClock::now)
    }

    /// What [`Watch::now`] gave last.
    #[inline]
    pub fn last(&self) -> Nanos {
        self.0.as_ref().map_or(Nanos::ZERO, FastClock::last)
    }
}

/// Ahead of a departure a worker spins this long: a CPU that slept comes back late and cold, and gaps of 1 ms then spread
/// three times as much (standard deviation 154 us against 47 us of a peer that spins).
pub(crate) const SPIN: Nanos = Nanos(2_000_000);

/// Sleeps towards `until`, at most `longest`, leaving `margin` to spin.
pub(crate) fn rest(now: Nanos, until: Nanos, longest: Nanos, margin: Nanos) {
    let left = until.saturating_sub(now).saturating_sub(margin);
    if left > Nanos::ZERO {
        std::thread::sleep(Duration::from_nanos(left.0.min(longest.0)));
    } else {
        std::hint::spin_loop();
    }
}
