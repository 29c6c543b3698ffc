//! A device's clock relative to `CLOCK_MONOTONIC`, for receive timestamps and launch times.

use squall_units::Nanos;

/// The values of both clocks at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    pub monotonic: Nanos,
    pub ticks: u64,
}

/// The rate is that of 10 to 20 s: long enough for the errors of single readings, and short enough to
/// follow a clock whose rate is adjusted (by ptp4l, chrony).
const SPAN: Nanos = Nanos(10_000_000_000);

/// Converts a device's ticks to `CLOCK_MONOTONIC`, linearly through two readings.
#[derive(Clone, Copy, Debug)]
pub struct DeviceClock {
    first: Reading,
    /// The next `first`.
    next: Reading,
    last: Reading,
    ticks_per_ns: f64,
}

impl DeviceClock {
    /// A clock from two readings; the further apart they are, the more exact it is.
    pub fn new(first: Reading, last: Reading) -> Self {
        let mut clock = Self { first, next: first, last: first, ticks_per_ns: 1.0 };
        clock.read(last);
        clock
    }

    /// Adds a reading. The rate is the mean of the last 10 to 20 s; the offset is that of the last
    /// reading.
    pub fn read(&mut self, reading: Reading) {
        if reading.monotonic.saturating_sub(self.next.monotonic) >= SPAN {
            (self.first, self.next) = (self.next, reading);
        }
        let ns = reading.monotonic.0.saturating_sub(self.first.monotonic.0);
        // The difference wraps, because a device's counter may overflow during a run.
        let ticks = reading.ticks.wrapping_sub(self.first.ticks);
        if ns > 0 && ticks > 0 {
            self.ticks_per_ns = ticks as f64 / ns as f64;
        }
        self.last = reading;
    }

    /// When it was last read.
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

    /// The line: the last reading, and the ticks of a nanosecond.
    pub fn line(&self) -> (Reading, f64) {
        (self.last, self.ticks_per_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(monotonic: u64, ticks: u64) -> Reading {
        Reading { monotonic: Nanos(monotonic), ticks }
    }

    #[test]
    fn a_clock_whose_rate_changes_is_followed_after_seconds() {
        let second = 1_000_000_000;
        let mut clock = DeviceClock::new(reading(0, 0), reading(second, second));
        let mut ticks = second;
        for n in 2..200 {
            // 100 ppm faster from the 100th second on.
            ticks += second + if n >= 100 { 100_000 } else { 0 };
            clock.read(reading(n * second, ticks));
        }
        // A tenth of a second after the last reading; with the mean from the start it is 5 us off.
        let time = clock.instant(ticks + second / 10 + 10_000);
        assert!(time.0.abs_diff(199 * second + second / 10) < 100, "{time:?}");
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
}
