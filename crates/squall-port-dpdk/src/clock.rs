//! A device's clock relative to `CLOCK_MONOTONIC`, for receive timestamps and launch times.

use squall_units::Nanos;

use crate::shim::ClockPair;

/// The values of both clocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub monotonic: Nanos,
    pub ticks: u64,
}

/// Converts a device's ticks to `CLOCK_MONOTONIC`, linearly through the first and the last reading.
#[derive(Clone, Copy, Debug)]
pub struct DeviceClock {
    first: Reading,
    last: Reading,
    ticks_per_ns: f64,
}

impl DeviceClock {
    /// A clock from two readings; the further apart they are, the more exact it is.
    pub fn new(first: Reading, last: Reading) -> Self {
        let mut clock = Self { first, last: first, ticks_per_ns: 1.0 };
        clock.read(last);
        clock
    }

    /// Adds a reading. The rate is the mean from the first reading on, because over a long time the
    /// errors of single readings matter less; the offset is that of the last reading.
    pub fn read(&mut self, reading: Reading) {
        let ns = reading.monotonic.0.saturating_sub(self.first.monotonic.0);
        // The difference wraps, because a device's counter may overflow during a run.
        let ticks = reading.ticks.wrapping_sub(self.first.ticks);
        if ns > 0 && ticks > 0 {
            self.ticks_per_ns = ticks as f64 / ns as f64;
        }
        self.last = reading;
    }

    pub fn last_read(&self) -> Nanos {
        self.last.monotonic
    }

    /// The time at which the device's clock showed `ticks`.
    pub fn instant(&self, ticks: u64) -> Nanos {
        // The difference to the last reading, which may be negative, is small enough to be exact in
        // an f64.
        let since = ticks.wrapping_sub(self.last.ticks) as i64;
        Nanos(
            self.last
                .monotonic
                .0
                .saturating_add_signed((since as f64 / self.ticks_per_ns).round() as i64),
        )
    }

    /// Parameters with which the shim converts due times to ticks; each result is `later` ns after
    /// the due time.
    pub fn pair(&self, later: u32) -> ClockPair {
        ClockPair {
            monotonic_ns: self.last.monotonic.0 as i64 - i64::from(later),
            ticks: self.last.ticks as i64,
            ticks_per_ns: self.ticks_per_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic: u64, ticks: u64) -> Reading {
        Reading { monotonic: Nanos(monotonic), ticks }
    }

    #[test]
    fn timestamps_of_a_clock_at_another_rate_become_monotonic() {
        // The device's clock has 2.5 ticks per ns.
        let mut clock = DeviceClock::new(reading(1_000_000, 77), reading(2_000_000, 2_500_077));
        assert_eq!(clock.instant(2_500_077), Nanos(2_000_000));
        assert_eq!(clock.instant(2_750_077), Nanos(2_100_000));
        assert_eq!(clock.instant(2_250_077), Nanos(1_900_000), "before the reading, too");
        // An hour later the line goes through the last reading and has the mean rate of that hour.
        clock.read(reading(3_600_001_000_000, 77 + 9_000_000_000_000));
        assert_eq!(clock.instant(77 + 9_000_000_000_000 + 250), Nanos(3_600_001_000_100));
    }

    #[test]
    fn a_clock_that_wraps_goes_on() {
        let clock = DeviceClock::new(reading(1000, u64::MAX - 499), reading(2000, 500));
        assert_eq!(clock.instant(600), Nanos(2100));
        assert_eq!(clock.instant(u64::MAX), Nanos(1499));
    }

    #[test]
    fn launch_times_are_dues_and_the_delay_asked_for() {
        let pair = DeviceClock::new(reading(0, 0), reading(1000, 2000)).pair(100);
        // Computes as the shim does.
        let ticks =
            |due: i64| pair.ticks + ((due - pair.monotonic_ns) as f64 * pair.ticks_per_ns) as i64;
        assert_eq!(ticks(1000), 2200);
        assert_eq!(ticks(5000), 10_200);
    }
}
