//! How a worker waits while there is nothing to do: for how long it sleeps, and when it spins.

use squall_units::Nanos;

/// How close to their due times frames leave. Precision costs CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Workers sleep at least 0.5 ms at a time: frames that become due meanwhile leave together.
    LowCpu,
    /// Workers sleep, and spin for the last microseconds before a departure.
    #[default]
    Balanced,
    /// Workers spin from 2 ms before a departure.
    Spin,
}

/// The needs of a worker's sources and queues for its next wait. Times count from now.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Needs {
    /// The next frame that must leave at its due time.
    pub departure: Option<Nanos>,
    /// The next turn of sources that react to frames, whose timers may be some microseconds late.
    pub timer: Option<Nanos>,
    /// Other events that need no precision: the port itself waits for the due time, or the run
    /// ends.
    pub event: Option<Nanos>,
    /// The wait ends by then in any case.
    pub longest: Nanos,
    /// A receive queue must be read without a pause.
    pub reads: bool,
}

/// Decides how long a worker sleeps.
///
/// A sleep ends late: by 2 us on most machines, by 10 to 100 us on virtual machines, and later
/// after long sleeps. A worker therefore measures by how much its sleeps overrun. It sleeps until
/// its usual overrun before a departure and spins for the rest. It wakes up earlier only if more
/// than a few departures would otherwise be late by more than a twentieth of the gap.
#[derive(Debug)]
pub(crate) struct Sleeper {
    precision: Precision,
    /// Whether frames gather before they leave, or before they are handed over.
    gathers: bool,
    /// Overruns of the last sleeps, in nanoseconds.
    overruns: [u32; OVERRUNS],
    next: usize,
    /// Overruns that a quarter of the sleeps exceed, and that few exceed.
    usual: Nanos,
    rare: Nanos,
    /// When the worker last slept before a departure.
    slept: Nanos,
}

/// Number of sleeps from which the margin is determined. The rare overrun is the second largest, so
/// that a single long one does not count; a quarter are larger than the usual one.
const OVERRUNS: usize = 128;
const USUAL: usize = OVERRUNS - OVERRUNS / 4 - 1;
/// Overrun of the first sleeps: the kernel's default timer slack.
const FIRST_OVERRUN: u32 = 50_000;
/// A sleep that overruns by more was preempted or its CPU was stopped. No margin prevents that.
const OVERRUN: Nanos = Nanos(200_000);
/// Shortest time before a departure for which a worker sleeps. A sleep costs 15 to 19 us of CPU time
/// (measured for 40 to 300 us on a virtual machine), so a shorter one saves little and costs
/// precision.
const SHORT: Nanos = Nanos(30_000);
/// The shortest sleep. Even this one is worth it, because the time by which it overruns is not spun.
const SHORTEST: Nanos = Nanos(10_000);
/// Few departures are late by more than `1 / TOLERANCE` of the time before them. A late departure
/// changes two gaps, and 1 to 2 of 128 sleeps overrun by more than the margin and this. So more
/// than 95 % of the gaps are within a tenth, of which the other half is for sending: with the cold
/// caches after a sleep, the port takes a frame up to some microseconds later. Spinning for the
/// rare overrun before each departure took 110 us of CPU time a frame at 1,000 frames/s, of which
/// the sleep was 25.
const TOLERANCE: u64 = 20;
/// A worker whose margin leaves no time to sleep sleeps nevertheless after this time, to renew its
/// overruns: otherwise it would spin for the rest of the run after a busy moment of the machine. It
/// sleeps for half of the time before the departure, and sooner if its usual overrun is shorter
/// than the other half: few of these sleeps then make a frame late.
const PROBE: Nanos = Nanos(10_000_000);
const EARLY_PROBE: Nanos = Nanos(2_000_000);
/// See [`Precision::Spin`]. A CPU that slept wakes up late and with cold caches. With sleeps before
/// each departure, gaps of 1 ms spread three times as much (standard deviation 154 us, against 47
/// us).
const SPIN: Nanos = Nanos(2_000_000);
/// See [`Precision::LowCpu`]. Below the port's allowance of 0.75 ms (docs/adr/0050): the frames that
/// gather are not excess, and no lag.
const GATHER_DUE: Nanos = Nanos(500_000);
/// Frames that the port holds this long after their due times are gathered too: the other half
/// remains for sleeps that overrun.
const LAUNCHED_AFTER: Nanos = Nanos(2 * GATHER_DUE.0);
/// A source that reacts to frames is polled without sleep when it is due within this time. A
/// wake-up takes about as long.
const NEAR: Nanos = Nanos(15_000);

impl Sleeper {
    /// `launches_after`: how late hand-overs may be ([`squall_port::TxQueue::launches_after`]).
    pub fn new(precision: Precision, launches_after: Nanos) -> Self {
        let gathers = match precision {
            Precision::LowCpu => true,
            Precision::Balanced => launches_after >= LAUNCHED_AFTER,
            Precision::Spin => false,
        };
        Self {
            precision,
            gathers,
            overruns: [FIRST_OVERRUN; OVERRUNS],
            next: 0,
            usual: Nanos(FIRST_OVERRUN.into()),
            rare: Nanos(FIRST_OVERRUN.into()),
            slept: Nanos::ZERO,
        }
    }

    /// How long to sleep at `now`; zero: spin. The flag: the sleep is the longest one before a
    /// departure, so its overrun is worth recording with [`Sleeper::record`].
    pub fn sleep(&mut self, now: Nanos, needs: &Needs) -> (Nanos, bool) {
        if needs.reads && self.precision != Precision::LowCpu {
            return (Nanos::ZERO, false);
        }
        let timer = needs.timer.map(|left| match self.precision {
            Precision::Spin => left.saturating_sub(SPIN),
            _ if left <= NEAR => Nanos::ZERO,
            _ => Nanos(left.0 - NEAR.0 / 2),
        });
        let departure = needs.departure.map(|left| self.before_departure(now, left));
        let other = timer.into_iter().chain(needs.event).fold(needs.longest, Nanos::min);
        match departure {
            Some(departure) if departure <= other => (departure, true),
            _ => (other, false),
        }
    }

    fn before_departure(&mut self, now: Nanos, left: Nanos) -> Nanos {
        match self.precision {
            Precision::Spin => left.saturating_sub(SPIN),
            // A frame that is due at once waits for room in the port.
            _ if self.gathers && left == Nanos::ZERO => left,
            _ if self.gathers => left.max(GATHER_DUE),
            _ if left < SHORT => Nanos::ZERO,
            _ => {
                let least = self.rare.saturating_sub(Nanos(left.0 / TOLERANCE));
                let margins = [least.max(self.usual), least];
                let sleeps = margins.map(|margin| left.saturating_sub(margin));
                let sleep = match sleeps.into_iter().find(|sleep| *sleep >= SHORTEST) {
                    Some(sleep) => sleep,
                    None => {
                        let half = Nanos(left.0 / 2);
                        let probe = if self.usual < half { EARLY_PROBE } else { PROBE };
                        if now.saturating_sub(self.slept) < probe {
                            return Nanos::ZERO;
                        }
                        half
                    }
                };
                self.slept = now;
                sleep
            }
        }
    }

    /// Records that a sleep ended `overrun` later than requested.
    pub fn record(&mut self, overrun: Nanos) {
        if overrun > OVERRUN {
            return;
        }
        self.overruns[self.next] = overrun.0 as u32;
        self.next = (self.next + 1) % OVERRUNS;
        let mut overruns = self.overruns;
        let (_, usual, above) = overruns.select_nth_unstable(USUAL);
        let (mut first, mut second) = (0, 0);
        for &overrun in &*above {
            second = second.max(overrun.min(first));
            first = first.max(overrun);
        }
        (self.usual, self.rare) = (Nanos((*usual).into()), Nanos(second.into()));
    }
}

/// Time in which the worker slept, or polled and found nothing.
#[derive(Default)]
pub(crate) struct Idle {
    total: Nanos,
    since: Option<Nanos>,
}

impl Idle {
    /// Records that there is nothing to do.
    #[inline]
    pub fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// Records that the turn that began at `begun` moved something.
    #[inline]
    pub fn end(&mut self, begun: Nanos) {
        if let Some(since) = self.since.take() {
            self.total = self.total + begun.saturating_sub(since);
        }
    }

    /// The idle time until `now`.
    pub fn until(&self, now: Nanos) -> Nanos {
        self.total + self.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const LONGEST: Nanos = Nanos(50_000 * US);

    fn departure(left_us: u64) -> Needs {
        let departure = Some(Nanos(left_us * US));
        Needs { departure, longest: LONGEST, ..Needs::default() }
    }

    /// A sleeper whose sleeps overran by these times, the last ones first.
    fn sleeper(precision: Precision, overruns_us: impl Iterator<Item = u64>) -> Sleeper {
        let mut sleeper = Sleeper::new(precision, Nanos::ZERO);
        overruns_us.for_each(|us| sleeper.record(Nanos(us * US)));
        sleeper
    }

    fn sleep_us(sleeper: &mut Sleeper, now: Nanos, needs: &Needs) -> u64 {
        sleeper.sleep(now, needs).0.0 / US
    }

    #[test]
    fn few_departures_are_late_by_more_than_the_tolerance() {
        let overruns = (0..OVERRUNS as u64).map(|i| if i % 32 == 0 { 34 } else { 5 });
        let mut sleeper = sleeper(Precision::Balanced, overruns);
        let now = Nanos::ZERO;
        assert_eq!(sleeper.sleep(now, &departure(100)), (Nanos(71 * US), true));
        // One longer sleep of many changes nothing; a preempted one never does.
        sleeper.record(Nanos(90 * US));
        (0..OVERRUNS).for_each(|_| sleeper.record(Nanos(5000 * US)));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(100)), 71);
        sleeper.record(Nanos(60 * US));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(100)), 45);
    }

    #[test]
    fn a_sleep_ends_before_the_departure_by_its_usual_overrun() {
        // A quarter of the sleeps overrun by more than 20 us, and by so little that it is within
        // the tolerance for 2 ms.
        let overruns = (0..OVERRUNS as u64).map(|i| if i % 4 == 0 { 90 } else { 20 });
        let mut sleeper = sleeper(Precision::Balanced, overruns);
        let now = Nanos::ZERO;
        assert_eq!(sleeper.sleep(now, &departure(2000)), (Nanos(1980 * US), true));
        sleeper.record(Nanos(30 * US));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(2000)), 1980);
        (0..OVERRUNS).for_each(|_| sleeper.record(Nanos(40 * US)));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(2000)), 1960);
    }

    #[test]
    fn short_gaps_are_spun_and_long_waits_are_bounded() {
        let overruns = std::iter::repeat_n(3, OVERRUNS);
        let mut sleeper = sleeper(Precision::Balanced, overruns);
        let now = Nanos::ZERO;
        assert_eq!(sleep_us(&mut sleeper, now, &departure(0)), 0);
        assert_eq!(sleep_us(&mut sleeper, now, &departure(29)), 0);
        assert_eq!(sleep_us(&mut sleeper, now, &departure(40)), 37);
        assert_eq!(sleeper.sleep(now, &departure(1_000_000)), (LONGEST, false));
        assert_eq!(sleeper.sleep(now, &Needs { longest: LONGEST, ..Needs::default() }).0, LONGEST);
    }

    #[test]
    fn a_usual_overrun_that_nearly_fills_the_gap_is_cut_by_the_tolerance() {
        let mut sleeper = sleeper(Precision::Balanced, std::iter::repeat_n(60, OVERRUNS));
        let mut sleep = |left_us| sleep_us(&mut sleeper, Nanos::ZERO, &departure(left_us));
        assert_eq!([100, 70].map(&mut sleep), [40, 10], "the overrun fits");
        assert_eq!([69, 67].map(&mut sleep), [12, 10], "up to 3 us late");
        assert_eq!([65, 50].map(&mut sleep), [0, 0], "spun");
    }

    /// After a busy moment, in which sleeps overran by more than the gaps.
    #[test]
    fn a_margin_above_the_gaps_is_probed_until_it_fits_again() {
        let mut sleeper = sleeper(Precision::Balanced, std::iter::repeat_n(150, OVERRUNS));
        let (mut now, mut probes) = (PROBE, 0);
        while sleeper.rare > Nanos(20 * US) {
            if sleep_us(&mut sleeper, now, &departure(40)) > 0 {
                probes += 1;
                sleeper.record(Nanos(5 * US));
            }
            now = now + Nanos(40 * US);
        }
        assert_eq!(probes, OVERRUNS - 1);
        // The usual overrun is short again after three quarters of them.
        let few = (OVERRUNS / 4 - 1) as u64;
        let expected = 3 * (few + 1) * PROBE.0 + few * EARLY_PROBE.0;
        assert_eq!(now, Nanos(expected + 40 * US), "one probe per 10 ms, then per 2 ms");
        assert_eq!(sleep_us(&mut sleeper, now, &departure(40)), 35);
    }

    #[test]
    fn each_precision_has_its_sleep() {
        let now = Nanos::ZERO;
        let of = |precision, needs: &Needs| {
            sleep_us(&mut Sleeper::new(precision, Nanos::ZERO), now, needs)
        };
        assert_eq!(of(Precision::Spin, &departure(1999)), 0);
        assert_eq!(of(Precision::Spin, &departure(5000)), 3000);
        assert_eq!(of(Precision::LowCpu, &departure(10)), 500);
        assert_eq!(of(Precision::LowCpu, &departure(900)), 900);
        assert_eq!(of(Precision::LowCpu, &departure(0)), 0);
        let reads = Needs { reads: true, ..departure(900) };
        assert_eq!(of(Precision::Balanced, &reads), 0);
        assert_eq!(of(Precision::LowCpu, &reads), 900);
    }

    #[test]
    fn frames_gather_if_the_port_holds_them_until_they_leave() {
        let now = Nanos::ZERO;
        let of = |precision, after_us, needs: &Needs| {
            sleep_us(&mut Sleeper::new(precision, Nanos(after_us * US)), now, needs)
        };
        assert_eq!(of(Precision::Balanced, 1000, &departure(40)), 500);
        assert_eq!(of(Precision::Balanced, 1000, &departure(900)), 900);
        assert_eq!(of(Precision::Balanced, 999, &departure(29)), 0, "too short to gather");
        assert_eq!(of(Precision::Spin, 1000, &departure(40)), 0);
        let reads = Needs { reads: true, ..departure(900) };
        assert_eq!(of(Precision::Balanced, 1000, &reads), 0);
    }

    #[test]
    fn the_earliest_need_decides() {
        let mut sleeper = sleeper(Precision::Balanced, std::iter::repeat_n(10, OVERRUNS));
        let now = Nanos::ZERO;
        let needs = Needs { timer: Some(Nanos(50 * US)), ..departure(100) };
        assert_eq!(sleeper.sleep(now, &needs), (Nanos(42_500), false));
        let needs = Needs { timer: Some(Nanos(15 * US)), ..departure(100) };
        assert_eq!(sleep_us(&mut sleeper, now, &needs), 0);
        let needs = Needs { event: Some(Nanos(20 * US)), ..departure(100) };
        assert_eq!(sleeper.sleep(now, &needs), (Nanos(20 * US), false));
        let needs = Needs { event: Some(Nanos(95 * US)), ..departure(100) };
        assert_eq!(sleeper.sleep(now, &needs), (Nanos(90 * US), true));
    }
}
