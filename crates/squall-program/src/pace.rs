//! How one source kept its schedule: explains the verdict, which is about the port
//! ([`crate::clock`], [`crate::audit`]).
//!
//! [`Audit`] measures from departed frames by how much the schedule advanced faster than the clock
//! in any window.

use squall_units::{Nanos, Picos};

/// The shortest window in which offered and intended load are compared.
const WINDOW: Nanos = Nanos(10_000_000);
/// Minimum number of gaps in a window, for slow sources.
const WINDOW_GAPS: f64 = 10.0;
/// Schedule time that may leave in a window beyond the window's length: this time, or this number
/// of gaps, plus this fraction of the window.
const EXCESS: Nanos = Nanos(1_000_000);
const EXCESS_GAPS: f64 = 2.0;
const EXCESS_PART: u64 = 100;
/// Frames that left within this time in excess of those due in it are a burst.
const BURST: Nanos = Nanos(1_000_000);

/// The length of the windows in which a source with `pps` frames/s (0: unknown) is audited; windows
/// may be up to twice as long.
pub fn window(pps: f64) -> Nanos {
    WINDOW.max(gaps(WINDOW_GAPS, pps))
}

/// Schedule time that may leave in any of these windows beyond its length.
pub fn allowed(pps: f64) -> Nanos {
    EXCESS.max(gaps(EXCESS_GAPS, pps)) + Nanos(2 * window(pps).0 / EXCESS_PART)
}

/// Capped at an hour, to fit 64 bits in picoseconds.
fn gaps(n: f64, pps: f64) -> Nanos {
    if pps > 0.0 { Nanos((n * 1e9 / pps).min(3.6e12) as u64) } else { Nanos::ZERO }
}

/// How a port kept its schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacing {
    /// Length of the audited windows, which are up to twice as long; 0: none.
    pub window: Nanos,
    /// The window, and the time of [`BURST`], with the highest excess.
    pub worst: Excess,
    pub burst: Excess,
    /// The lag of the port's clock when the last frame left, and the sum of all lag ever added.
    pub lag: Nanos,
    pub moved: Nanos,
}

impl Pacing {
    /// The pacing of a source, without the port's clock.
    pub fn new(audit: &Audit) -> Self {
        Self {
            window: Picos(audit.windows.length).as_nanos(),
            worst: audit.windows.worst(),
            burst: audit.bursts.worst(),
            ..Self::default()
        }
    }

    /// Keeps the worse of each figure, to combine several workers of one port.
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

/// The window in which the offered load was most above the intended load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Excess {
    /// Schedule time that left in the window, minus the window's length.
    pub beyond: Nanos,
    /// Frames that left in the window.
    pub packets: u64,
    /// Begin of the window, relative to the start of the run, and its length.
    pub at: Nanos,
    pub over: Nanos,
    /// The allowed part of `beyond`.
    pub allowed: Nanos,
}

impl Excess {
    /// Returns the excess with the higher ratio to its allowance.
    pub fn or(self, other: Self) -> Self {
        let part = |of: Self, by: Self| u128::from(of.beyond.0) * u128::from(by.allowed.0);
        if self.allowed == Nanos::ZERO || part(other, self) > part(self, other) {
            other
        } else {
            self
        }
    }

    /// Number of frames beyond those intended in the window.
    pub fn surplus(&self) -> u64 {
        let schedule = u128::from(self.over.0) + u128::from(self.beyond.0);
        (u128::from(self.packets) * u128::from(self.beyond.0)).checked_div(schedule).unwrap_or(0)
            as u64
    }
}

/// Measures the excess of departed frames, in windows and in bursts.
#[derive(Clone, Copy, Debug)]
pub struct Audit {
    windows: Windows,
    bursts: Windows,
}

impl Audit {
    /// An audit for a source with a peak rate of `pps` frames/s; 0: unknown.
    pub fn new(pps: f64) -> Self {
        Self {
            windows: Windows::new(window(pps), allowed(pps)),
            bursts: Windows::new(BURST, allowed(pps)),
        }
    }

    /// Changes the rate. Earlier findings keep the limits of the earlier rate.
    pub fn set_pps(&mut self, pps: f64) {
        let Self { windows, bursts } = Self::new(pps);
        self.windows.become_like(windows);
        self.bursts.become_like(bursts);
    }

    /// Counts `packets` that left at `at`, the last of which was due at `due`; picoseconds.
    #[inline]
    pub fn left(&mut self, at: u64, due: u64, packets: u64) {
        self.windows.left(at, due, packets);
        self.bursts.left(at, due, packets);
    }

    /// Counts `packets` that left one after the other; the first and the last are given as for
    /// [`Audit::left`].
    #[inline]
    pub fn left_in_row(&mut self, first: (u64, u64), last: (u64, u64), packets: u64) {
        self.left(first.0, first.1, 0);
        self.left(last.0, last.1, packets);
    }
}

/// Falling lateness means that the schedule advances faster than the clock: the largest fall within
/// a window is the excess.
#[derive(Clone, Copy, Debug)]
struct Windows {
    /// Picoseconds.
    length: u64,
    /// When `current` becomes `before`.
    until: u64,
    /// Where lateness was largest in this window, and in the previous one: together they cover
    /// windows up to twice as long.
    current: Mark,
    before: Mark,
    packets: u64,
    worst: Excess,
    /// The worst window at earlier rates.
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
        // Time that is recovered slowly is not a burst.
        let mut slow = Windows::new(WINDOW, allowed(10_000.0));
        for k in 0..100_000u64 {
            let late = (50 * MS).saturating_sub(k * gap / 100);
            slow.left(k * gap + late, k * gap, 1);
        }
        assert!(slow.worst.beyond <= Nanos(210_000), "{:?}", slow.worst);
    }

    #[test]
    fn findings_at_another_rate_are_judged_by_that_rate() {
        let mut audit = Audit::new(100.0);
        audit.left(15 * MS, 0, 1);
        audit.left(15 * MS + 1, 10 * MS + 1, 1);
        audit.set_pps(10_000.0);
        audit.left(40 * MS, 40 * MS - MS / 2, 1);
        audit.left(40 * MS + 1, 40 * MS, 1);
        let pacing = Pacing::new(&audit);
        assert_eq!(
            (pacing.window, pacing.worst.beyond, pacing.worst.allowed),
            (WINDOW, Nanos(10_000_000), allowed(100.0))
        );
    }
}
