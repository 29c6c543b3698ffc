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
/// its usual overrun before a departure and spins for the rest. It wakes up earlier if more than a
/// few departures would otherwise be late by more than a twentieth of the gap, but by at most a
/// tenth of the gap.
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

/// Number of sleeps from which the margin is determined. A quarter of them overrun by more than the
/// usual overrun.
const OVERRUNS: usize = 128;
const USUAL: usize = OVERRUNS - OVERRUNS / 4 - 1;
/// The rare overrun is exceeded by this number of sleeps, 1.6 %: single long ones do not count.
const RARER: usize = 2;
/// Overrun of the first sleeps: that of most virtual machines. More than the machine's would
/// postpone the first sleeps of a stream with short gaps to the probes, which take a second; less
/// would make its first frames late.
const FIRST_OVERRUN: u32 = 25_000;
/// A sleep that overruns by more was preempted or its CPU was stopped. No margin prevents that.
const OVERRUN: Nanos = Nanos(200_000);
/// Shortest time before a departure for which a worker sleeps. On a virtual machine, a sleep costs 15
/// to 19 us of CPU time and overruns by 20 to 25. With sleeps in gaps of 40 and 50 us, a worker used
/// 0.5 to 1.0 of its CPU, and 89 to 95 % of the gaps were within a tenth; without them, 95 to 98 %.
const SHORT: Nanos = Nanos(50_000);
/// The shortest sleep. Even this one is worth it, because the time by which it overruns is not spun.
const SHORTEST: Nanos = Nanos(10_000);
/// Few departures are late by more than `1 / TOLERANCE` of the time before them. A late departure
/// changes two gaps, and 1.6 % of sleeps overrun by more than the margin and this. So more than 95 %
/// of the gaps are within a tenth, of which the other half is for sending: with the cold caches
/// after a sleep, the port takes a frame up to some microseconds later. Spinning for the rare
/// overrun before each departure took 110 us of CPU time a frame at 1,000 frames/s, of which the
/// sleep was 25.
const TOLERANCE: u64 = 20;
/// For rare overruns, a worker spins for at most `1 / SPUN` of the time before a departure, a tenth
/// of its CPU, in addition to the usual overrun. If overruns are longer because other threads have
/// the CPU, they have it while the worker spins, too: on a busy virtual machine, spinning for all
/// of them took 45 to 70 us of CPU time a frame at 10,000 frames/s instead of 26 to 29, and the
/// gaps were as uneven.
const SPUN: u64 = 10;
/// A worker whose usual overrun leaves no time to sleep sleeps nevertheless after this time, for
/// half of the time before the departure, to renew its overruns: otherwise it would spin for the
/// rest of the run after a busy moment of the machine.
const PROBE: Nanos = Nanos(10_000_000);
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
                let tolerance = Nanos(left.0 / TOLERANCE);
                let beyond = self.rare.saturating_sub(self.usual + tolerance);
                let margin = self.usual + beyond.min(Nanos(left.0 / SPUN));
                // A short sleep with a smaller margin is better than none: the worker would spin
                // for the whole gap, and lose its CPU to other threads because it used it.
                let mut sleep = left.saturating_sub(margin).max(SHORTEST);
                if left + tolerance < self.usual + SHORTEST {
                    if now.saturating_sub(self.slept) < PROBE {
                        return Nanos::ZERO;
                    }
                    sleep = Nanos(left.0 / 2);
                }
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
        let (_, rare, _) = above.select_nth_unstable(OVERRUNS - USUAL - 2 - RARER);
        (self.usual, self.rare) = (Nanos((*usual).into()), Nanos((*rare).into()));
    }
}

/// Longest sleep of a worker that receives, unless frames arrive so fast that a longer sleep
/// gathers more of them. Each queue also has its own limit, above which its ring could overflow.
pub(crate) const RX_REST: Nanos = Nanos(200_000);
/// A worker that frames wake less often than this does not sleep between wake-ups, because few
/// frames would gather.
const LONG_WAIT: Nanos = Nanos(1_000_000);
/// A worker that sleeps while frames arrive fast waits for them again after this time, to see how
/// often they wake it now: at 300 kpps a receive ring signals a block each 6 ms, and sleeps between
/// the blocks took a fifth of a capture's CPU time.
const WAIT_AGAIN: Nanos = Nanos(100_000_000);

/// When frames ended the last two waits for them.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    last: Nanos,
    before: Nanos,
}

impl Wakeups {
    /// Records that frames ended a wait at `now`.
    pub fn add(&mut self, now: Nanos) {
        self.before = std::mem::replace(&mut self.last, now);
    }

    /// Whether waiting for frames without a sleep is cheaper at `now`: the last wait ended long
    /// ago, so the next may be long too, or that wait was itself long. A queue that signals whole
    /// blocks wakes the worker so rarely that a sleep before each wait only adds cost. `fast`:
    /// frames arrive so fast that a sleep gathers dozens.
    pub fn are_rare(&self, now: Nanos, fast: bool) -> bool {
        let long_ago = if fast { WAIT_AGAIN } else { RX_REST };
        self.last.saturating_sub(self.before) >= LONG_WAIT
            || now.saturating_sub(self.last) >= long_ago
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
        assert_eq!(sleeper.sleep(now, &departure(400)), (Nanos(386 * US), true));
        // Two longer sleeps of many change nothing; preempted ones never do.
        [90, 60].into_iter().for_each(|us| sleeper.record(Nanos(us * US)));
        (0..OVERRUNS).for_each(|_| sleeper.record(Nanos(5000 * US)));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(400)), 386);
        sleeper.record(Nanos(50 * US));
        assert_eq!(sleep_us(&mut sleeper, now, &departure(400)), 370);
    }

    #[test]
    fn rare_overruns_are_spun_for_at_most_a_tenth_of_the_gap() {
        let overruns = (0..OVERRUNS as u64).map(|i| if i % 32 == 0 { 150 } else { 5 });
        let mut sleeper = sleeper(Precision::Balanced, overruns);
        let mut sleep = |left_us| sleep_us(&mut sleeper, Nanos::ZERO, &departure(left_us));
        assert_eq!([60, 100, 400].map(&mut sleep), [49, 85, 355]);
        assert_eq!(sleep(2000), 1950, "all but the tolerance");
    }

    /// Sends a frame each `gap_us` for 0.4 s on a scripted clock: the sleep before frame n overruns by
    /// `overrun_us(n)`, and the worker takes 3 us to send. Returns the share of gaps within a tenth,
    /// and the time spun before a frame in us.
    fn send(gap_us: u64, overrun_us: impl Fn(u64) -> u64) -> (f64, f64) {
        let mut sleeper = Sleeper::new(Precision::Balanced, Nanos::ZERO);
        let (mut now, mut last, mut within, mut spun) = (0, 0, 0, 0);
        let frames = 400_000 / gap_us;
        for n in 1..=frames {
            let due = n * gap_us * US;
            while now < due {
                let needs = Needs { departure: Some(Nanos(due - now)), ..departure(0) };
                let (sleep, departs) = sleeper.sleep(Nanos(now), &needs);
                if sleep == Nanos::ZERO {
                    spun += due - now;
                    break;
                }
                assert!(departs);
                let overrun = Nanos(overrun_us(n) * US);
                sleeper.record(overrun);
                now += (sleep + overrun).0;
            }
            now = now.max(due);
            within += u64::from((now - last).abs_diff(gap_us * US) <= gap_us * US / 10);
            last = now;
            now += 3 * US;
        }
        (within as f64 / frames as f64, spun as f64 / (frames * US) as f64)
    }

    /// Overruns as a virtual machine had them for sleeps of 40 to 200 us.
    fn quiet(n: u64) -> u64 {
        match n * 37 % 100 {
            ..10 => 16,
            10..50 => 19,
            50..75 => 22,
            75..90 => 24,
            90..95 => 26,
            95..98 => 27,
            98 => 29,
            _ => 40,
        }
    }

    #[test]
    fn up_to_25_kpps_95_percent_of_gaps_are_within_a_tenth() {
        for gap_us in [1000, 200, 100, 60] {
            let (within, spun) = send(gap_us, quiet);
            assert!(within >= 0.95 && spun < 12.0, "{gap_us} us: {within}, spun for {spun} us");
        }
        [50, 40].into_iter().for_each(|gap_us| assert!(send(gap_us, quiet).0 >= 0.95));
    }

    /// Other threads have the CPU at every tenth wake-up: no margin prevents that.
    #[test]
    fn a_busy_machine_does_not_make_a_worker_spin() {
        let busy = |n| if n * 37 % 10 == 0 { 60 + n % 128 } else { quiet(n) };
        for gap_us in [1000, 200, 100, 60] {
            let (within, spun) = send(gap_us, busy);
            let most = 12.0 + gap_us as f64 / SPUN as f64;
            assert!(within >= 0.5 && spun < most, "{gap_us} us: {within}, spun for {spun} us");
        }
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
        assert_eq!(sleep_us(&mut sleeper, now, &departure(49)), 0);
        assert_eq!(sleep_us(&mut sleeper, now, &departure(60)), 57);
        assert_eq!(sleeper.sleep(now, &departure(1_000_000)), (LONGEST, false));
        assert_eq!(sleeper.sleep(now, &Needs { longest: LONGEST, ..Needs::default() }).0, LONGEST);
    }

    #[test]
    fn a_usual_overrun_that_nearly_fills_the_gap_is_cut_by_the_tolerance() {
        let mut sleeper = sleeper(Precision::Balanced, std::iter::repeat_n(60, OVERRUNS));
        let mut sleep = |left_us| sleep_us(&mut sleeper, Nanos::ZERO, &departure(left_us));
        assert_eq!([100, 70].map(&mut sleep), [40, 10], "the overrun fits");
        assert_eq!([69, 67].map(&mut sleep), [10, 10], "up to 3 us late");
        assert_eq!([65, 50].map(&mut sleep), [0, 0], "spun");
    }

    /// After a busy moment, in which sleeps overran by more than the gaps.
    #[test]
    fn a_margin_above_the_gaps_is_probed_until_it_fits_again() {
        let mut sleeper = sleeper(Precision::Balanced, std::iter::repeat_n(150, OVERRUNS));
        let (mut now, mut probes) = (PROBE, 0);
        while sleeper.rare > Nanos(20 * US) {
            if sleep_us(&mut sleeper, now, &departure(50)) > 0 {
                probes += 1;
                sleeper.record(Nanos(5 * US));
            }
            now = now + Nanos(50 * US);
        }
        assert_eq!(probes, OVERRUNS - RARER);
        // The usual overrun is short again after three quarters of the sleeps.
        let usual = (OVERRUNS * 3 / 4) as u64;
        let others = (OVERRUNS - RARER) as u64 - usual;
        let expected = usual * PROBE.0 + (others + 1) * 50 * US;
        assert_eq!(now, Nanos(expected), "one probe per 10 ms, then a sleep in each gap");
        assert_eq!(sleep_us(&mut sleeper, now, &departure(50)), 45);
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
        assert_eq!(of(Precision::Balanced, 999, &departure(39)), 0, "too short to gather");
        assert_eq!(of(Precision::Spin, 1000, &departure(40)), 0);
        let reads = Needs { reads: true, ..departure(900) };
        assert_eq!(of(Precision::Balanced, 1000, &reads), 0);
    }

    /// As at the end of a burst: then blocks come each 6 ms, and sleeps between them gather nothing.
    #[test]
    fn frames_that_stop_to_wake_often_are_waited_for_again() {
        let ms = |ms: u64| Nanos(ms * 1000 * US);
        let mut wakeups = Wakeups::default();
        [1000 * US, 1001 * US].into_iter().for_each(|at| wakeups.add(ms(1000) + Nanos(at)));
        let last = wakeups.last;
        assert!(!wakeups.are_rare(last, true), "each block wakes the worker");
        assert!(!wakeups.are_rare(last + ms(99), true));
        assert!(wakeups.are_rare(last + ms(100), true));
        assert!(wakeups.are_rare(last + RX_REST, false), "no frames that a sleep could gather");
        wakeups.add(last + ms(101));
        assert!(wakeups.are_rare(last + ms(101), true), "the wait was long");
        wakeups.add(last + ms(101) + Nanos(999 * US));
        assert!(!wakeups.are_rare(last + ms(102), true), "the next was not");
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
