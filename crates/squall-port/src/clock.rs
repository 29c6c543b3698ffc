//! The engine's clock, and a faster way to read it.

use std::sync::OnceLock;

use crate::Nanos;

/// The engine's clock: `CLOCK_MONOTONIC`.
#[inline]
pub fn monotonic() -> Nanos {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A clock that several machines share to exchange times, relative to the engine's clock on this
/// machine.
///
/// ```
/// use squall_port::CommonClock;
/// use squall_units::Nanos;
/// // At 1 s it is 5 s ahead, and runs 100 ppm faster.
/// let common = CommonClock { shift_ns: 5_000_000_000, drift_ppb: 1e5, at: Nanos(1_000_000_000) };
/// assert_eq!(common.of(Nanos(3_000_000_000)), Nanos(8_000_200_000));
/// assert_eq!(common.local(Nanos(8_000_200_000)), Nanos(3_000_000_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CommonClock {
    /// Common time minus local time at `at`.
    pub shift_ns: i64,
    /// How much faster it runs than the engine's clock, in parts per 10^9.
    pub drift_ppb: f64,
    pub at: Nanos,
}

impl CommonClock {
    /// The difference to add to a local time near `local`: at 100 ppm it changes by 1 us in 10 ms.
    #[inline]
    pub fn offset(&self, local: Nanos) -> i64 {
        let since = local.0.wrapping_sub(self.at.0) as i64;
        self.shift_ns.wrapping_add((since as f64 * self.drift_ppb * 1e-9) as i64)
    }

    /// The common time at `local`.
    #[inline]
    pub fn of(&self, local: Nanos) -> Nanos {
        Nanos(local.0.wrapping_add_signed(self.offset(local)))
    }

    /// The local time at which the common clock shows `common`.
    pub fn local(&self, common: Nanos) -> Nanos {
        let since = common.0.wrapping_sub(self.at.0).wrapping_add_signed(-self.shift_ns) as i64;
        let drift = self.drift_ppb * 1e-9;
        let ahead = (since as f64 * drift / (1.0 + drift)).round() as i64;
        Nanos(self.at.0.wrapping_add_signed(since - ahead))
    }
}

/// `CLOCK_MONOTONIC` for a thread that reads it all the time: the CPU's time stamp counter, tied to
/// the clock every 100 us. Never runs backward.
///
/// clock_gettime costs 32 to 65 ns on two-core virtual machines, this clock 10 ns: with three
/// readings per batch of 64 that is 1 to 2 ns per frame. Between two ties its error is at most the
/// change of the clock's rate within the last 20 ms, times 100 us: a step of NTP's strongest slew,
/// 500 ppm, causes an error of 50 ns until the new rate is learned. If the kernel does not trust
/// the counter, or it turns out to be unsteady, every reading calls clock_gettime
/// (docs/adr/0015-clock.md).
#[derive(Debug)]
pub struct FastClock {
    counter: Option<Counter>,
    last: Nanos,
}

/// A linear function from ticks to nanoseconds.
#[derive(Debug)]
struct Counter {
    /// The last tie.
    at: Tie,
    /// Nanoseconds per tick, times 2^32; 0 while unknown.
    rate: u64,
    /// Number of ticks for which the tie is valid; 0 while the rate is unknown.
    valid: u64,
    /// A tie 10 to 20 ms before the next one, from which the rate is computed.
    older: Tie,
    newer: Tie,
    /// Number of wrong predictions.
    misses: u32,
}

/// One point in time on both clocks.
#[derive(Clone, Copy, Debug)]
struct Tie {
    ticks: u64,
    ns: u64,
}

/// Nanoseconds between ties.
const TIE_INTERVAL: u64 = 100_000;
/// Nanoseconds over which the rate is computed: an error of 30 ns in a tie is then only 3 ppm.
const RATE_BASE: u64 = 10_000_000;
/// Nanoseconds by which a prediction may be wrong, in addition to 1/1000 of its distance, before
/// the rate is learned again.
const TOLERANCE: u64 = 2_000;
/// Number of wrong predictions after which a counter is given up.
const MAX_MISSES: u32 = 16;

impl FastClock {
    pub fn new() -> Self {
        Self { counter: is_trusted().then(|| Counter::new(tie())), last: Nanos::ZERO }
    }

    #[inline]
    pub fn now(&mut self) -> Nanos {
        let predicted = self.counter.as_ref().and_then(|counter| counter.at(read_counter()));
        let now = predicted.unwrap_or_else(|| self.tie_again());
        // Keeps the previous time if that is later: a new tie may be earlier than the last
        // prediction.
        self.last = self.last.max(Nanos(now));
        self.last
    }

    /// The last result of [`FastClock::now`].
    #[inline]
    pub fn last(&self) -> Nanos {
        self.last
    }

    #[cold]
    fn tie_again(&mut self) -> u64 {
        let Some(counter) = &mut self.counter else { return monotonic().0 };
        let tie = tie();
        if !counter.learn(tie) {
            self.counter = None;
        }
        tie.ns
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Counter {
    fn new(at: Tie) -> Self {
        Self { at, rate: 0, valid: 0, older: at, newer: at, misses: 0 }
    }

    /// The clock at counter value `ticks`; `None` if a new tie is needed.
    #[inline]
    fn at(&self, ticks: u64) -> Option<u64> {
        let since = ticks.wrapping_sub(self.at.ticks);
        (since < self.valid).then(|| self.at.ns + ((since * self.rate) >> 32))
    }

    /// Learns from a tie. Returns whether the counter is still usable.
    fn learn(&mut self, at: Tie) -> bool {
        let passed = at.ns - self.at.ns;
        if self.rate != 0 {
            let predicted =
                (u128::from(at.ticks.wrapping_sub(self.at.ticks)) * u128::from(self.rate)) >> 32;
            if predicted.abs_diff(u128::from(passed)) > u128::from(TOLERANCE + passed / 1000) {
                // Forgets the rate, because the counter or the clock has jumped.
                self.misses += 1;
                (self.rate, self.valid, self.older, self.newer) = (0, 0, at, at);
            }
        }
        self.at = at;
        if at.ns - self.newer.ns >= RATE_BASE {
            let (ticks, ns) = (at.ticks.wrapping_sub(self.older.ticks), at.ns - self.older.ns);
            let rate = (u128::from(ns) << 32) / u128::from(ticks.max(1));
            // Limits for counters of 60 MHz to 30 GHz: without them, a jump of the counter could
            // overflow the product in `at`.
            self.rate = u64::try_from(rate).unwrap_or(u64::MAX).clamp(1 << 27, 1 << 36);
            self.valid = (TIE_INTERVAL << 32) / self.rate;
            (self.older, self.newer) = (self.newer, at);
        }
        self.misses < MAX_MISSES
    }
}

/// Reads both clocks: the clock between two readings of the counter. Takes the closest of several
/// tries, because the thread may be preempted in between.
fn tie() -> Tie {
    let once = || {
        let before = read_counter();
        let ns = monotonic().0;
        let took = read_counter().wrapping_sub(before);
        (took, Tie { ticks: before.wrapping_add(took / 2), ns })
    };
    let (mut best, second) = (once(), once());
    // Tries cost about the same: one that took twice as long was interrupted, and the other may
    // have been, too.
    if best.0.max(second.0) / 2 > best.0.min(second.0) {
        best = if second.0 < best.0 { second } else { best };
        let third = once();
        return if third.0 < best.0 { third.1 } else { best.1 };
    }
    if second.0 < best.0 { second.1 } else { best.1 }
}

/// Whether the kernel trusts the counter: the kernel watches it, and switches to another source if
/// it is not steady on all CPUs. kvm-clock is the same counter, corrected by the host.
fn is_trusted() -> bool {
    static TRUSTED: OnceLock<bool> = OnceLock::new();
    let look = || {
        let source = std::fs::read_to_string(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
        .ok()?;
        let cpu = std::fs::read_to_string("/proc/cpuinfo").ok()?;
        let flags: Vec<&str> =
            cpu.lines().find(|line| line.starts_with("flags"))?.split_whitespace().collect();
        let steady = flags.contains(&"constant_tsc") && flags.contains(&"nonstop_tsc");
        Some(steady && matches!(source.trim(), "tsc" | "kvm-clock"))
    };
    cfg!(target_arch = "x86_64") && *TRUSTED.get_or_init(|| look().unwrap_or(false))
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn read_counter() -> u64 {
    safe_arch::read_timestamp_counter()
}

#[cfg(not(target_arch = "x86_64"))]
fn read_counter() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tie at `ns` of true time, for a counter of `hz` and a clock that runs `ppm` faster.
    fn tie_at(ns: u64, hz: u64, ppm: u64) -> Tie {
        let ticks = (u128::from(ns) * u128::from(hz) / 1_000_000_000) as u64;
        Tie { ticks: ticks.wrapping_sub(12345), ns: ns + ns * ppm / 1_000_000 }
    }

    #[test]
    fn readings_follow_the_system_clock_and_never_go_back() {
        let mut clock = FastClock::new();
        let (mut last, mut off) = (Nanos::ZERO, Vec::new());
        let until = monotonic() + Nanos(60_000_000);
        while last < until {
            let before = monotonic();
            let now = clock.now();
            let after = monotonic();
            assert!(now >= last);
            last = now;
            off.push(before.saturating_sub(now).0.max(now.saturating_sub(after).0));
        }
        // A thread that loses its CPU within a tie has bad readings until the next tie; the median
        // excludes these.
        off.sort_unstable();
        assert!(
            off[off.len() / 2] < 1000,
            "half of all readings were {} ns off or more",
            off[off.len() / 2]
        );
    }

    #[test]
    fn clocks_of_any_shift_and_drift_come_together() {
        for (shift_ns, drift_ppb) in
            [(0, 0.0), (-7_000_000_000, 250_000.0), (1 << 55, -500_000.0), (-3, 1.0)]
        {
            let at = Nanos(50_000_000_000);
            let common = CommonClock { shift_ns, drift_ppb, at };
            // Computes the other machine's time in integers, for comparison.
            for local in [at.0, at.0 + 12_345_678_901, at.0 - 1_000_000, at.0 + 86_400_000_000_000]
            {
                let since = i128::from(local) - i128::from(at.0);
                let drift = since * (drift_ppb as i128) / 1_000_000_000;
                let exact = (i128::from(local) + i128::from(shift_ns) + drift) as u64;
                let off = common.of(Nanos(local)).0.abs_diff(exact);
                assert!(off <= 1, "{common:?} at {local}: {off} ns off");
                let back = common.local(Nanos(exact)).0.abs_diff(local);
                assert!(back <= 2, "{common:?} at {local}: {back} ns off");
            }
        }
    }

    #[test]
    fn the_rate_is_learned_within_20_ms_and_holds_for_100_us() {
        for hz in [100_000_000, 2_445_000_000, 5_000_000_000] {
            let mut counter = Counter::new(tie_at(1_000_000_000, hz, 40));
            for step in 1..300 {
                let tie = tie_at(1_000_000_000 + step * TIE_INTERVAL, hz, 40);
                assert!(counter.learn(tie));
                let later =
                    tie_at(1_000_000_000 + step * TIE_INTERVAL + TIE_INTERVAL - 1000, hz, 40);
                match counter.at(later.ticks) {
                    Some(ns) => assert!(
                        ns.abs_diff(later.ns) <= 1 + 2_000_000_000 / hz,
                        "{hz}: {ns} {later:?}"
                    ),
                    None => assert!(step < 200, "no law after {step} ties"),
                }
                assert_eq!(
                    counter.at(tie_at(
                        1_000_000_000 + step * TIE_INTERVAL + 2 * TIE_INTERVAL,
                        hz,
                        40
                    )
                    .ticks),
                    None
                );
            }
        }
    }

    #[test]
    fn a_counter_that_jumps_is_learned_again_and_given_up_when_it_goes_on() {
        let mut counter = Counter::new(tie_at(0, 1_000_000_000, 0));
        let (mut ns, mut kept) = (0, true);
        for jump in 0..MAX_MISSES {
            assert!(kept, "given up after {jump} jumps");
            for _ in 0..300 {
                ns += TIE_INTERVAL;
                let tie = tie_at(ns, 1_000_000_000, 0);
                kept = counter
                    .learn(Tie { ticks: tie.ticks.wrapping_sub(u64::from(jump) * 50_000), ..tie });
            }
            assert!(counter.rate != 0 || jump == MAX_MISSES, "learnt again");
        }
        let tie = tie_at(ns + TIE_INTERVAL, 1_000_000_000, 0);
        assert!(!counter.learn(Tie { ticks: 3, ..tie }));
        assert!(kept);
    }
}
