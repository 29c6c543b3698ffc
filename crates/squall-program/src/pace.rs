//! How a sender that was kept from sending goes on, and the audit of what it offered.
//!
//! A sender that the machine stopped for some milliseconds owes frames afterwards. Sent at once
//! they are a burst that no profile asked for, and a policer or a short queue drops them: the loss
//! would be ours and look like the device's. So schedules run on a clock of their own, [`Pace`],
//! which is real time less a lag. What is owed up to the [`allowance`] follows at once; what is
//! beyond becomes lag, and is regained at 0.8 % above the rate. In any window of W the schedule
//! then moves by at most 1.008 W and the allowance, whatever its law is.
//!
//! [`Audit`] does not take that for granted: it measures, on what really left, by how much the
//! schedule moved faster than the clock in any window.

use squall_units::{Nanos, Picos};

/// Schedule time that may follow at once after a stall, or so many gaps of a slow source (two
/// frames); and the part of real time by which lag is regained. Less than the verdict allows, as a
/// sender may be stopped again on the way.
const ALLOWANCE: Nanos = Nanos(750_000);
const ALLOWANCE_GAPS: f64 = 1.5;
pub const REGAIN: u64 = 125;
/// The shortest window in which offered load is compared with what was asked for ...
const WINDOW: Nanos = Nanos(10_000_000);
/// ... and the gaps that a window of a slow source has at least.
const WINDOW_GAPS: f64 = 10.0;
/// Schedule that may leave in a window beyond the clock: this, or so many gaps, and this part of
/// the window.
const EXCESS: Nanos = Nanos(1_000_000);
const EXCESS_GAPS: f64 = 2.0;
const EXCESS_PART: u64 = 100;
/// Frames that left within this time, beyond what was due in it, are a burst.
const BURST: Nanos = Nanos(1_000_000);

/// Schedule time that a source of `pps` frames a second (0: not known) may send at once after a
/// stall.
pub fn allowance(pps: f64) -> Nanos {
    ALLOWANCE.max(gaps(ALLOWANCE_GAPS, pps))
}

/// The windows in which it is audited: of this length, up to twice as long.
pub fn window(pps: f64) -> Nanos {
    WINDOW.max(gaps(WINDOW_GAPS, pps))
}

/// Schedule that may leave in any of these windows beyond its length.
pub fn allowed(pps: f64) -> Nanos {
    EXCESS.max(gaps(EXCESS_GAPS, pps)) + Nanos(2 * window(pps).0 / EXCESS_PART)
}

/// An hour is as good as any longer time, and picoseconds of it fit.
fn gaps(n: f64, pps: f64) -> Nanos {
    if pps > 0.0 { Nanos((n * 1e9 / pps).min(3.6e12) as u64) } else { Nanos::ZERO }
}

/// How a port's schedule was kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// Windows of this length, up to twice as long, were audited; 0: none was.
    pub window: Nanos,
    /// The window, and the time of [`BURST`], in which most left beyond what was due there.
    pub worst: Excess,
    pub burst: Excess,
    /// By how much the schedule is behind, and all that it was moved by, regained or not.
    pub lag: Nanos,
    pub moved: Nanos,
}

impl Pacing {
    pub fn new(pace: &Pace, audit: &Audit) -> Self {
        Self {
            window: Picos(audit.windows.length).as_nanos(),
            worst: audit.windows.worst(),
            burst: audit.bursts.worst(),
            lag: pace.lag(),
            moved: pace.moved(),
        }
    }

    /// Of several workers of one port: the worst of each.
    pub fn merge(&mut self, other: Self) {
        *self = Self {
            window: self.window.max(other.window),
            worst: self.worst.or(other.worst),
            burst: self.burst.or(other.burst),
            lag: self.lag.max(other.lag),
            moved: self.moved.max(other.moved),
        };
    }
}

/// The clock of a schedule. Picoseconds since the start of the run.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Whether what is owed is regained slowly; else the schedule is real time.
    bounded: bool,
    lag: u64,
    /// Real time when `lag` was right, and how long before that it was asked for.
    at: u64,
    passed: u64,
    /// What may follow at once, and what may now.
    allowance: u64,
    allowed: u64,
    /// All that ever became lag.
    moved: u64,
}

impl Pace {
    /// Of a source whose rate is not known.
    pub fn new(bounded: bool) -> Self {
        let allowance = Picos::from(allowance(0.0)).0;
        Self { bounded, lag: 0, at: 0, passed: 0, allowance, allowed: allowance, moved: 0 }
    }

    /// Its rate from now on, where it sends fastest; 0: not known.
    pub fn set_pps(&mut self, pps: f64) {
        self.allowance = Picos::from(allowance(pps)).0;
    }

    /// From now on what is owed is regained slowly, or not.
    pub fn bound(&mut self, bounded: bool) {
        self.bounded = bounded;
    }

    /// Schedule time at real time `at`.
    #[inline]
    pub fn schedule(&mut self, at: u64) -> u64 {
        if at > self.at {
            let passed = at - self.at;
            self.lag -= self.lag.min(passed / REGAIN);
            // Who comes seldom, time after time, was not stalled: slow sources, and senders with
            // much else to do.
            self.allowed = self.allowance.max(passed.min(self.passed));
            (self.at, self.passed) = (at, passed);
        }
        at.saturating_sub(self.lag)
    }

    /// Schedule time at `at` ([`Pace::schedule`] was asked before), when the earliest frame that
    /// has not left was due at `due`: never later than the allowance after that.
    #[inline]
    pub fn owing(&mut self, at: u64, due: u64) -> u64 {
        let now = at.saturating_sub(self.lag);
        let excess = now.saturating_sub(due).saturating_sub(self.allowed);
        if excess == 0 || !self.bounded {
            return now;
        }
        self.lag += excess;
        self.moved += excess;
        now - excess
    }

    /// The real time at which the schedule is at `due`, if nothing happens until then.
    #[inline]
    pub fn real(&self, due: u64) -> u64 {
        due.saturating_add(self.lag)
    }

    /// By how much the schedule is behind real time.
    pub fn lag(&self) -> Nanos {
        Picos(self.lag).as_nanos()
    }

    /// All that the schedule was moved by, regained or not.
    pub fn moved(&self) -> Nanos {
        Picos(self.moved).as_nanos()
    }
}

/// The window in which more was offered than in any other, beyond what the schedule asked for
/// there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Schedule time that left in the window, less the window.
    pub beyond: Nanos,
    /// Frames that left in the window.
    pub packets: u64,
    /// When the window begins, since the start of the run, and how long it is.
    pub at: Nanos,
    pub over: Nanos,
    /// How much of `beyond` is allowed.
    pub allowed: Nanos,
}

impl Excess {
    /// The one that is more of what is allowed.
    pub fn or(self, other: Self) -> Self {
        let part = |of: Self, by: Self| u128::from(of.beyond.0) * u128::from(by.allowed.0);
        if self.allowed == Nanos::ZERO || part(other, self) > part(self, other) {
            other
        } else {
            self
        }
    }

    /// Frames beyond what was asked for in the window.
    pub fn surplus(&self) -> u64 {
        let schedule = u128::from(self.over.0) + u128::from(self.beyond.0);
        (u128::from(self.packets) * u128::from(self.beyond.0)).checked_div(schedule).unwrap_or(0)
            as u64
    }
}

/// Measures the excess of what left: in windows, and in bursts.
#[derive(Clone, Copy, Debug)]
pub struct Audit {
    windows: Windows,
    bursts: Windows,
}

impl Audit {
    /// Of a source that sends `pps` frames a second where it sends fastest; 0: not known.
    pub fn new(pps: f64) -> Self {
        Self {
            windows: Windows::new(window(pps), allowed(pps)),
            bursts: Windows::new(BURST, allowed(pps)),
        }
    }

    /// Its rate from now on. What was found before stays judged by the rate of then.
    pub fn set_pps(&mut self, pps: f64) {
        let Self { windows, bursts } = Self::new(pps);
        self.windows.become_like(windows);
        self.bursts.become_like(bursts);
    }

    /// `packets` left at `at`, the last of which was due at `due`; picoseconds.
    #[inline]
    pub fn left(&mut self, at: u64, due: u64, packets: u64) {
        self.windows.left(at, due, packets);
        self.bursts.left(at, due, packets);
    }

    /// `packets` left one after the other: the first and the last of them, as [`Audit::left`].
    #[inline]
    pub fn left_in_row(&mut self, first: (u64, u64), last: (u64, u64), packets: u64) {
        self.left(first.0, first.1, 0);
        self.left(last.0, last.1, packets);
    }
}

/// Lateness that falls is schedule that moves faster than the clock: the largest fall within a
/// window.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Picoseconds.
    length: u64,
    /// When `current` becomes `before`.
    until: u64,
    /// Where lateness was largest in this window, and in the one before: windows up to twice as
    /// long are covered.
    current: Mark,
    before: Mark,
    packets: u64,
    worst: Excess,
    /// The worst at rates before this one.
    past: Excess,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    late: u64,
    at: u64,
    packets: u64,
}

impl Windows {
    fn new(length: Nanos, allowed: Nanos) -> Self {
        let length = Picos::from(length).0.max(1);
        let (none, worst) = (Mark::default(), Excess { allowed, ..Excess::default() });
        Self {
            length,
            until: length,
            current: none,
            before: none,
            packets: 0,
            worst,
            past: Excess::default(),
        }
    }

    fn become_like(&mut self, other: Self) {
        if (self.length, self.worst.allowed) != (other.length, other.worst.allowed) {
            *self = Self { until: 0, packets: self.packets, past: self.worst(), ..other };
        }
    }

    fn worst(&self) -> Excess {
        self.past.or(self.worst)
    }

    #[inline]
    fn left(&mut self, at: u64, due: u64, packets: u64) {
        self.packets += packets;
        let late = at.saturating_sub(due);
        if at >= self.until {
            self.before =
                if at - self.until < self.length { self.current } else { Mark::default() };
            self.current = Mark::default();
            self.until = at + self.length;
        }
        let peak = if self.before.late > self.current.late { self.before } else { self.current };
        let beyond = peak.late.saturating_sub(late);
        if beyond > self.worst.beyond.0 * 1000 + 999 {
            self.worst = Excess {
                beyond: Picos(beyond).as_nanos(),
                packets: self.packets - peak.packets,
                at: Picos(peak.at).as_nanos(),
                over: Picos(at.saturating_sub(peak.at)).as_nanos(),
                allowed: self.worst.allowed,
            };
        }
        if late >= self.current.late {
            self.current = Mark { late, at, packets: self.packets };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;

    #[test]
    fn what_is_owed_beyond_the_allowance_is_regained_slowly() {
        let mut pace = Pace::new(true);
        assert_eq!([pace.schedule(10 * MS - 1), pace.schedule(10 * MS)], [10 * MS - 1, 10 * MS]);
        assert_eq!(
            pace.owing(10 * MS, 9_500_000_000),
            10 * MS,
            "within the allowance nothing moves"
        );
        // A stall of 8 ms.
        assert_eq!(pace.schedule(18 * MS), 18 * MS);
        assert_eq!(pace.owing(18 * MS, 10 * MS), 10 * MS + 750_000_000);
        assert_eq!(
            (pace.lag(), pace.moved(), pace.real(20 * MS)),
            (Nanos(7_250_000), Nanos(7_250_000), 27 * MS + 250_000_000)
        );
        assert_eq!(pace.schedule(143 * MS), 143 * MS - 6_250_000_000);
        assert_eq!(pace.schedule(943 * MS), 943 * MS);
        assert_eq!((pace.lag(), pace.moved()), (Nanos::ZERO, Nanos(7_250_000)));
        // Once in 5 ms, time after time.
        let mut pace = Pace::new(true);
        for turn in 1..100 {
            let at = turn * 5 * MS;
            pace.schedule(at);
            pace.owing(at, at - 4 * MS);
        }
        assert_eq!(
            (pace.moved(), pace.lag()),
            (Nanos(3_250_000), Nanos::ZERO),
            "the first time it may have been a stall"
        );
        let mut pace = Pace::new(false);
        assert_eq!((pace.schedule(18 * MS), pace.owing(18 * MS, 10 * MS)), (18 * MS, 18 * MS));
    }

    #[test]
    fn no_window_has_more_of_the_schedule_than_itself_and_what_is_allowed() {
        // A frame is due each 100 us; the sender is stopped now and then, for 0 to 60 ms.
        let gap = MS / 10;
        for seed in 1..50u64 {
            let (mut pace, mut audit, mut random) = (Pace::new(true), Audit::new(10_000.0), seed);
            let (mut now, mut next, mut left) = (0u64, 0u64, Vec::new());
            while now < 3000 * MS {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                now += if (random >> 33).is_multiple_of(500) {
                    (random >> 40) % (60 * MS)
                } else {
                    20_000_000
                };
                let mut schedule = pace.schedule(now);
                if next <= schedule {
                    schedule = pace.owing(now, next);
                }
                while next <= schedule {
                    audit.left(now, next, 1);
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
                assert!(
                    most(window) <= (window + window / 100 + MS) / gap + 2,
                    "{window} {}",
                    most(window)
                );
            }
            let worst = audit.windows.worst();
            assert!(worst.beyond.0 <= 1_200_001 && worst.beyond <= worst.allowed, "{worst:?}");
        }
    }

    #[test]
    fn the_audit_finds_the_window_of_a_burst() {
        let mut audit = Windows::new(WINDOW, allowed(10_000.0));
        let gap = MS / 10;
        (0..100).for_each(|k| audit.left(k * gap, k * gap, 1));
        assert_eq!(audit.worst.beyond, Nanos::ZERO, "on time");
        // 5 ms are missed, and follow at once.
        let at = 150 * gap;
        (100..=150).for_each(|k| audit.left(at, k * gap, 1));
        assert_eq!(audit.worst.beyond, Nanos(5_000_000));
        assert_eq!(
            (audit.worst.packets, audit.worst.surplus(), audit.worst.at),
            (50, 50, Nanos(15_000_000))
        );
        // What is regained slowly is no burst.
        let mut slow = Windows::new(WINDOW, allowed(10_000.0));
        for k in 0..100_000u64 {
            let late = (50 * MS).saturating_sub(k * gap / 100);
            slow.left(k * gap + late, k * gap, 1);
        }
        assert!(slow.worst.beyond <= Nanos(210_000), "{:?}", slow.worst);
    }

    #[test]
    fn of_a_slow_source_two_frames_may_follow_at_once_and_its_rate_holds() {
        // 100 a second, stopped for 12 ms ten times a second: by 0.75 ms and 0.8 % it would lose a
        // tenth of its rate.
        let (mut pace, mut audit) = (Pace::new(true), Audit::new(100.0));
        pace.set_pps(100.0);
        let (gap, mut next, mut now, mut most) = (10 * MS, 0u64, 0u64, 0);
        for turn in 0..10_000u64 {
            now += if turn % 100 == 0 { 12 * MS } else { MS };
            let mut schedule = pace.schedule(now);
            if next <= schedule {
                schedule = pace.owing(now, next);
            }
            let mut frames = 0;
            while next <= schedule {
                audit.left(now, next, 1);
                (next, frames) = (next + gap, frames + 1);
            }
            most = most.max(frames);
        }
        let worst = audit.windows.worst();
        assert!(pace.lag() < Nanos(1_000_000) && most <= 2, "{:?} {most}", pace.lag());
        assert!(worst.beyond <= worst.allowed && worst.allowed == Nanos(22_000_000), "{worst:?}");
        assert_eq!(
            [allowance(100.0), allowance(1e6), allowance(0.0)],
            [Nanos(15_000_000), ALLOWANCE, ALLOWANCE]
        );
    }

    #[test]
    fn what_was_found_at_another_rate_is_judged_by_that() {
        let mut audit = Audit::new(100.0);
        audit.left(15 * MS, 0, 1);
        audit.left(15 * MS + 1, 10 * MS + 1, 1);
        audit.set_pps(10_000.0);
        audit.left(40 * MS, 40 * MS - MS / 2, 1);
        audit.left(40 * MS + 1, 40 * MS, 1);
        let pacing = Pacing::new(&Pace::new(true), &audit);
        assert_eq!(
            (pacing.window, pacing.worst.beyond, pacing.worst.allowed),
            (WINDOW, Nanos(10_000_000), allowed(100.0))
        );
    }
}
