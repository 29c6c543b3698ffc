//! The traffic clock of a port: real time minus a lag, shared by all sources and workers of the
//! port.
//!
//! A sender that the machine stopped for some milliseconds has overdue frames. Sent at once, they
//! would form a burst that no profile requested; a policer or a short queue drops them, and the
//! loss looks like the device's. A device sees the port, not its sources, so the port has one
//! clock. Overdue frames up to an [`Allowance`] follow at once; the rest becomes lag, which moves
//! all sources together and keeps the intervals between frames. The lag is recovered at 0.8 %: in
//! any window W the schedule moves by at most 1.008 W and the allowance.
//!
//! If the lag cannot be recovered before the planned end, or only over a long time, the run of the
//! port is not valid. The clock then catches up at up to twice the rate, so that the requested
//! frames are still sent.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use squall_units::{Nanos, Picos};

/// Schedule time that may follow at once after a stall. Less than the audit's 1 ms, because a
/// sender may be stopped again between its decision and the departure.
const ALLOWANCE: Nanos = Nanos(750_000);
/// The allowance of a port with few frames, in units of the gap between them: enough for two
/// frames.
const ALLOWANCE_GAPS: f64 = 1.5;
/// Lag is recovered at `1 / REGAIN` of real time, and while catching up at `1 /
/// REGAIN_CATCHING_UP`.
pub const REGAIN: u64 = 125;
const REGAIN_CATCHING_UP: u64 = 1;
/// For a run without a planned end: the lag above which the clock catches up; 0.8 % of the elapsed
/// time is allowed in addition.
const MOST_LAG: Nanos = Nanos(10_000_000);
/// Lag is recovered within this time, or the clock catches up. Without this limit, a machine that is
/// always too slow would send a fraction of the rate for as long as the planned end is far away: at
/// a third of the rate, for 40 s of a run of an hour.
const LONGEST_REGAIN: Nanos = Nanos(30_000_000_000);

/// Schedule time that a port may send at once after a stall, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance(pub u64);

impl Allowance {
    /// The allowance of a port that sends `pps` frames/s in total; `None`: not known.
    pub fn of(pps: Option<f64>) -> Self {
        let slow = pps.filter(|pps| *pps > 0.0).map_or(Nanos::ZERO, |pps| {
            // Capped at an arbitrary hour: 64 bits of picoseconds are 213 days.
            Nanos((ALLOWANCE_GAPS * 1e9 / pps).min(3.6e12) as u64)
        });
        Self(Picos::from(ALLOWANCE.max(slow)).0)
    }
}

/// The planned end of a port's run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Planned {
    /// `None`: the run ends by a count, or never.
    pub end: Option<Picos>,
    /// The allowed lag at the end.
    pub tolerance: Nanos,
}

/// The traffic clock of a port. Lock-free, because the port's workers share it. Times are
/// picoseconds from the start of the run.
#[derive(Debug)]
pub struct PortClock {
    /// The real time at which all lag will be recovered, and [`CATCHING_UP`]. The lag at any time
    /// follows from it. Raising the lag is a maximum, so that workers may raise it in any order
    /// without a lock (ADR 0050).
    even: AtomicU64,
    /// The sum of all lag ever added.
    moved: AtomicU64,
    /// When the clock began to catch up; `u64::MAX` if it has not.
    catching_up: AtomicU64,
    planned: Planned,
}

/// Flag in [`PortClock::even`]: the clock catches up. Times are below it.
const CATCHING_UP: u64 = 1 << 63;

/// A value stored in [`PortClock::even`].
#[derive(Clone, Copy, Debug)]
struct Even(u64);

impl Even {
    fn part(self) -> u64 {
        if self.0 & CATCHING_UP == 0 { REGAIN } else { REGAIN_CATCHING_UP }
    }

    /// The branch turns [`REGAIN`] into a constant for the compiler, which then avoids the
    /// division.
    #[inline]
    fn lag_of(self, left: u64) -> u64 {
        if self.0 & CATCHING_UP == 0 { left / REGAIN } else { left / REGAIN_CATCHING_UP }
    }

    fn at(self) -> u64 {
        self.0 & !CATCHING_UP
    }

    #[inline]
    fn lag(self, at: u64) -> u64 {
        // Usually there is no lag.
        match self.at().checked_sub(at) {
            None => 0,
            Some(left) => self.lag_of(left),
        }
    }

    /// The state with a lag of `lag` at `at`.
    fn with(self, at: u64, lag: u64) -> u64 {
        at.saturating_add(lag.saturating_mul(self.part())).min(CATCHING_UP - 1)
            | (self.0 & CATCHING_UP)
    }
}

impl PortClock {
    pub fn new(planned: Planned) -> Self {
        Self {
            even: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            catching_up: AtomicU64::new(u64::MAX),
            planned,
        }
    }

    #[inline]
    fn even(&self) -> Even {
        Even(self.even.load(Relaxed))
    }

    /// Real time minus traffic time at `at`.
    #[inline]
    pub fn lag(&self, at: u64) -> u64 {
        self.even().lag(at)
    }

    /// Traffic time at real time `at`.
    #[inline]
    pub fn traffic(&self, at: u64) -> u64 {
        at.saturating_sub(self.lag(at))
    }

    /// The real time at which traffic time reaches `due`, if no lag is added.
    #[inline]
    pub fn real(&self, due: u64) -> u64 {
        let even = self.even();
        if due >= even.at() {
            return due;
        }
        let part = u128::from(even.part());
        let sum = u128::from(due) * part + u128::from(even.at());
        u64::try_from(sum.div_ceil(part + 1)).unwrap_or(u64::MAX)
    }

    /// Traffic time at `at`, if the earliest unsent frame was due at `due`: at most `due` plus the
    /// allowance. A clock that is ahead of that gets lag. `passed` is the time from the caller's
    /// last call; while catching up, twice that may follow at once.
    #[inline]
    pub fn owing(&self, at: u64, due: u64, passed: u64, allowance: Allowance) -> u64 {
        let even = self.even();
        let now = at.saturating_sub(even.lag(at));
        if now.saturating_sub(due) <= allowance.0 {
            return now;
        }
        self.raise(even, at, due, passed, allowance)
    }

    #[cold]
    fn raise(&self, even: Even, at: u64, due: u64, passed: u64, allowance: Allowance) -> u64 {
        let lag = even.lag(at);
        let now = at.saturating_sub(lag);
        let catching_up = even.0 & CATCHING_UP != 0;
        let allowed =
            if catching_up { allowance.0.max(passed.saturating_mul(2)) } else { allowance.0 };
        let excess = now.saturating_sub(due).saturating_sub(allowed);
        if excess == 0 {
            return now;
        }
        // A sender that never keeps up runs this for each batch, and three atomic operations would
        // cost it the time of one or two frames. While the clock catches up nothing is judged, so
        // small lag can be recorded later.
        if catching_up && excess < allowance.0 / 2 {
            return now - excess;
        }
        let lag = lag + excess;
        self.even.fetch_max(even.with(at, lag), Relaxed);
        self.moved.fetch_add(excess, Relaxed);
        if !catching_up && self.is_too_much(at, lag) {
            self.catching_up.fetch_min(at, Relaxed);
            self.even.fetch_max(Even(CATCHING_UP).with(at, lag), Relaxed);
        }
        now - excess
    }

    /// Whether `lag` cannot be recovered in time.
    fn is_too_much(&self, at: u64, lag: u64) -> bool {
        let (time, tolerance) = match self.planned.end {
            Some(end) => (end.0.saturating_sub(at), self.planned.tolerance),
            None => (at, MOST_LAG),
        };
        let regained = time.min(Picos::from(LONGEST_REGAIN).0) / REGAIN;
        lag.saturating_sub(regained) > Picos::from(tolerance).0
    }

    /// The sum of all lag ever added, recovered or not.
    pub fn moved(&self) -> Nanos {
        Picos(self.moved.load(Relaxed)).as_nanos()
    }

    /// When the clock began to catch up because lag could not be recovered in time.
    pub fn catching_up_since(&self) -> Option<Picos> {
        let since = self.catching_up.load(Relaxed);
        (since != u64::MAX).then_some(Picos(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    fn clock() -> PortClock {
        PortClock::new(Planned { end: Some(Picos(10_000 * MS)), tolerance: Nanos(10_000_000) })
    }

    fn fast() -> Allowance {
        Allowance::of(Some(10_000.0))
    }

    #[test]
    fn lag_beyond_the_allowance_is_regained_slowly_by_all() {
        let clock = clock();
        assert_eq!(clock.owing(10 * MS, 9_500_000_000, 0, fast()), 10 * MS, "allowed");
        // A stall of 8 ms.
        assert_eq!(clock.owing(18 * MS, 10 * MS, 8 * MS, fast()), 10 * MS + 750_000_000);
        assert_eq!((clock.lag(18 * MS), clock.moved()), (7_250_000_000, Nanos(7_250_000)));
        assert_eq!(clock.traffic(143 * MS), 143 * MS - 6_250_000_000);
        assert_eq!(clock.traffic(943 * MS), 943 * MS);
        for due in [11 * MS, 40 * MS, 900 * MS, 2000 * MS] {
            let real = clock.real(due);
            assert!(clock.traffic(real) >= due && clock.traffic(real - 1000) < due, "{due}");
        }
    }

    #[test]
    fn a_source_that_comes_seldom_has_no_exemption() {
        let clock = clock();
        // Two stalls in a row: the second one must not allow all overdue frames at once.
        clock.owing(20 * MS, 0, 20 * MS, fast());
        assert_eq!(clock.owing(40 * MS, 750_000_000, 20 * MS, fast()), 1_500_000_000);
    }

    #[test]
    fn the_larger_lag_of_two_workers_holds() {
        let clock = clock();
        clock.owing(20 * MS, 10 * MS, 0, fast());
        clock.owing(20 * MS, 15 * MS, 0, fast());
        assert_eq!(clock.traffic(20 * MS), 10 * MS + 750_000_000);
        clock.owing(20 * MS, 5 * MS, 0, fast());
        assert_eq!(clock.traffic(20 * MS), 5 * MS + 750_000_000);
    }

    #[test]
    fn lag_that_cannot_be_regained_in_time_is_regained_at_twice_the_rate() {
        let clock = clock();
        // 80 of these 200 ms can be recovered in 10 s.
        clock.owing(300 * MS, 100 * MS, 200 * MS, fast());
        assert_eq!(clock.catching_up_since(), Some(Picos(300 * MS)));
        let lag = clock.lag(300 * MS);
        assert_eq!(clock.lag(350 * MS), lag - 50 * MS);
        // While catching up, twice the time since the last turn may follow at once.
        let traffic = clock.traffic(400 * MS);
        assert_eq!(clock.owing(400 * MS, traffic - 20 * MS, 10 * MS, fast()), traffic);
        assert_eq!(clock.owing(400 * MS, traffic - 30 * MS, 10 * MS, fast()), traffic - 10 * MS);
        let real = clock.real(traffic + MS);
        assert!(clock.traffic(real) >= traffic + MS && clock.traffic(real - 1000) < traffic + MS);
    }

    #[test]
    fn without_a_planned_end_lag_is_judged_by_the_time_that_has_passed() {
        let clock = PortClock::new(Planned::default());
        clock.owing(100 * MS, 90 * MS, 0, fast());
        assert_eq!(clock.catching_up_since(), None);
        clock.owing(110 * MS, 90 * MS, 0, fast());
        assert_eq!(clock.catching_up_since(), Some(Picos(110 * MS)));
    }

    #[test]
    fn a_distant_end_does_not_let_lag_grow() {
        let hour = Planned { end: Some(Picos(3_600_000 * MS)), tolerance: Nanos(10_000_000) };
        for planned in [hour, Planned::default()] {
            let (clock, gap, mut next) = (PortClock::new(planned), MS, 0);
            // A sender of 1000 frames/s that runs for 1 ms in every 4 ms, in the second half hour.
            let start = 1_800_000 * MS;
            let mut sent = 0;
            next += start;
            for turn in 0..2500u64 {
                let now = start + turn * 4 * MS;
                let traffic = clock.owing(now, next, 4 * MS, fast());
                while next <= traffic {
                    (next, sent) = (next + gap, sent + 1);
                }
            }
            assert!(sent > 9990, "{sent} of 10,000 in 10 s");
            let since = clock.catching_up_since().expect("no valid run").0 - start;
            assert!(since < 1000 * MS, "{since}");
        }
    }

    #[test]
    fn a_port_of_few_frames_may_send_two_of_them_at_once() {
        assert_eq!(Allowance::of(Some(20.0)).0, 75 * MS);
        assert_eq!(Allowance::of(Some(1e6)).0, 750_000_000);
        assert_eq!(Allowance::of(None).0, 750_000_000);
    }

    #[test]
    fn of_a_slow_port_two_frames_may_follow_at_once_and_its_rate_holds() {
        // 100 frames/s, stopped for 12 ms ten times per second: with 0.75 ms and 0.8 % it would
        // lose a tenth of its rate.
        let (clock, slow) = (clock(), Allowance::of(Some(100.0)));
        let (gap, mut next, mut now, mut most) = (10 * MS, 0u64, 0u64, 0);
        for turn in 0..10_000u64 {
            now += if turn % 100 == 0 { 12 * MS } else { MS };
            let traffic = clock.owing(now, next, 0, slow);
            let mut frames = 0;
            while next <= traffic {
                (next, frames) = (next + gap, frames + 1);
            }
            most = most.max(frames);
        }
        assert!(clock.lag(now) < MS && most <= 2, "{} {most}", clock.lag(now));
    }

    #[test]
    fn no_window_has_more_of_the_schedule_than_itself_and_what_is_allowed() {
        // A frame is due every 100 us; the sender is stopped at random times, for 0 to 60 ms.
        let gap = MS / 10;
        for seed in 1..50u64 {
            let clock = PortClock::new(Planned {
                end: Some(Picos(3000 * MS)),
                tolerance: Nanos(10_000_000_000),
            });
            let (mut random, mut now, mut next, mut left) = (seed, 0u64, 0u64, Vec::new());
            while now < 3000 * MS {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                now += if (random >> 33).is_multiple_of(500) {
                    (random >> 40) % (60 * MS)
                } else {
                    20_000_000
                };
                let traffic = clock.owing(now, next, 0, fast());
                while next <= traffic {
                    left.push(now);
                    next += gap;
                }
            }
            let most = |window: u64| {
                let mut from = 0;
                (0..left.len())
                    .map(|to| {
                        while left[to] - left[from] > window {
                            from += 1;
                        }
                        (to - from + 1) as u64
                    })
                    .max()
                    .unwrap()
            };
            for window in [MS, 5 * MS, 10 * MS, 100 * MS] {
                let allowed = (window + window / 100 + MS) / gap + 2;
                assert!(most(window) <= allowed, "{window} {}", most(window));
            }
        }
    }
}
