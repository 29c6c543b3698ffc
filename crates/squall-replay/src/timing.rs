//! Computes when each frame is due: by its capture time, or at a given rate.
//!
//! Every due time counts from the start of the replay, in integers with remainders, rather than
//! from the preceding frame. So rounding errors do not add up over hours.

use squall_program::Gap;
use squall_units::Picos;

use crate::Departure;

/// The rule for the gaps between frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timing {
    /// The captured gaps, `num / den` times as fast.
    Captured { num: u64, den: u64 },
    /// At a rate: `together` frames at once, followed by the sum of their gaps.
    Paced { gap: Gap, together: u32 },
    /// A rate per second that changes linearly from `from` to `to` within `over`, then stays at
    /// `to`. It counts frames, or with `octets` each frame's length plus this number of octets.
    Ramp { from: f64, to: f64, over: Picos, octets: Option<u32> },
    /// As fast as the port accepts.
    Top,
}

impl Timing {
    /// The captured speed.
    pub const ORIGINAL: Self = Self::Captured { num: 1, den: 1 };
}

/// Picoseconds per nanosecond.
const NANO: u64 = 1000;

/// Computes the due time of each frame in turn.
#[derive(Clone, Debug)]
pub struct Schedule {
    timing: Timing,
    /// Upper limit of the gaps in the capture, nanoseconds.
    longest_gap: u64,
    /// When the next frame is due, with the remainder in units of 1 / denominator.
    due: u64,
    left_over: u64,
    /// Number of frames in the current group so far, which share a due time, and the accumulated
    /// gap after the group.
    together: u32,
    group_gap: u64,
    /// Capture time of the preceding frame, and capture time elapsed since `base`.
    last: Option<u64>,
    passed: u64,
    /// The capture time at which the run begins; `None` once the first capture has begun.
    since: Option<u64>,
    /// The capture time from which elapsed time counts.
    base: u64,
    /// Frames or octets sent so far, for a ramp.
    units: f64,
    /// Number of frames with an earlier timestamp than the preceding one, which they follow at
    /// once.
    backward: u64,
}

impl Schedule {
    pub fn new(timing: Timing, longest_gap: Option<u64>) -> Self {
        Self {
            timing,
            longest_gap: longest_gap.unwrap_or(u64::MAX),
            due: 0,
            left_over: 0,
            together: 0,
            group_gap: 0,
            last: None,
            passed: 0,
            since: None,
            base: 0,
            units: 0.0,
            backward: 0,
        }
    }

    /// Begins the run at this capture time, in nanoseconds, instead of that of the first frame.
    pub fn since(self, time_ns: Option<u64>) -> Self {
        Self { last: time_ns, since: time_ns, ..self }
    }

    /// Begins a capture, postponed by `delay`. Its capture times count from its first frame, except
    /// in the first capture, where they count from the start of the run.
    pub fn begin(&mut self, delay: Picos) {
        self.last = self.since.take();
        self.due = self.due.saturating_add(delay.0);
        match self.timing {
            Timing::Captured { .. } => (self.base, self.passed) = (self.due, 0),
            Timing::Ramp { .. } => self.base = self.base.saturating_add(delay.0),
            _ => {}
        }
    }

    /// When the next frame, captured at `time_ns` with `len` octets, is due. A due time out of
    /// range is [`Departure::NEVER`], and so are all later ones.
    #[inline]
    pub fn next(&mut self, time_ns: u64, len: u32) -> Picos {
        match self.instant(time_ns, len) {
            Some(due) => due.min(Departure::NEVER),
            None => Departure::AT_ONCE,
        }
    }

    /// When the next frame would be due if the gap before it were 0.
    pub fn end(&self) -> Picos {
        Picos(self.due).min(Departure::NEVER)
    }

    /// The next due time; `None`: at once. Sums saturate, so once a due time is out of range, all
    /// later ones are too.
    #[inline]
    fn instant(&mut self, time_ns: u64, len: u32) -> Option<Picos> {
        match self.timing {
            Timing::Top => None,
            Timing::Captured { num, den } => {
                let last = self.last.replace(time_ns).unwrap_or(time_ns);
                let gap = match time_ns.checked_sub(last) {
                    Some(gap) => gap,
                    None => {
                        self.backward += 1;
                        // Later frames count from the latest time so far; otherwise all of them
                        // would be early.
                        self.last = Some(last);
                        0
                    }
                };
                self.passed = self.passed.saturating_add(gap.min(self.longest_gap));
                let passed = u128::from(self.passed) * u128::from(NANO);
                let passed = passed.saturating_mul(den.into()) / u128::from(num);
                self.due = self.base.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
                Some(Picos(self.due))
            }
            Timing::Paced { gap, together } => {
                let due = self.due;
                let (num, den) = match gap {
                    Gap::Zero => return None,
                    Gap::PerFrame { num, den } => (u128::from(num), den),
                    Gap::PerOctet { num, den, extra } => {
                        (u128::from(num) * (u128::from(len) + u128::from(extra)), den)
                    }
                };
                self.together += 1;
                let last = self.together >= together;
                self.step(num, den, last);
                if last {
                    self.together = 0;
                }
                Some(Picos(due))
            }
            Timing::Ramp { from, to, over, octets } => {
                let due = self.due;
                self.units += octets.map_or(1.0, |extra| f64::from(len) + f64::from(extra));
                self.due =
                    self.base.saturating_add(ramp(from, to, over.0 as f64 / 1e12, self.units));
                Some(Picos(due))
            }
        }
    }

    /// Advances by `num / den` picoseconds; `now`: also applies postponed time.
    #[inline]
    fn step(&mut self, num: u128, den: u64, now: bool) {
        let num = num + u128::from(self.left_over);
        let (whole, part) = match u64::try_from(num) {
            Ok(num) => (num / den, num % den),
            Err(_) => {
                let (whole, part) = (num / u128::from(den), num % u128::from(den));
                (u64::try_from(whole).unwrap_or(u64::MAX), part as u64)
            }
        };
        self.left_over = part;
        self.group_gap = self.group_gap.saturating_add(whole);
        if now {
            self.due = self.due.saturating_add(std::mem::take(&mut self.group_gap));
        }
    }

    /// Number of frames with an earlier timestamp than one before them; they leave right after it.
    pub fn backward(&self) -> u64 {
        self.backward
    }
}

/// Picoseconds after which a rate that changes linearly from `from` to `to` within `over` seconds
/// has produced `units`.
fn ramp(from: f64, to: f64, over: f64, units: f64) -> u64 {
    let whole = (from + to) / 2.0 * over;
    let seconds = if units >= whole {
        over + (units - whole) / to
    } else {
        // units = from t + (to - from) / (2 over) t^2, in a form without cancellation.
        let slope = (to - from) / over;
        2.0 * units / (from + (from * from + 2.0 * slope * units).max(0.0).sqrt())
    };
    (seconds * 1e12).round() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn due(timing: Timing, frames: &[(u64, u32)]) -> Vec<u64> {
        let mut schedule = Schedule::new(timing, None);
        frames.iter().map(|&(time, len)| schedule.next(time, len).0).collect()
    }

    #[test]
    fn captured_gaps_stay_from_the_first_on_and_shrink_by_the_multiplier() {
        let frames = [(5_000, 60), (5_002, 60), (5_000_005_002, 60)];
        assert_eq!(due(Timing::ORIGINAL, &frames), [0, 2_000, 5_000_000_002_000]);
        assert_eq!(due(Timing::Captured { num: 3, den: 1 }, &frames), [0, 666, 1_666_666_667_333]);
    }

    #[test]
    fn a_run_may_begin_before_its_first_frame() {
        let mut schedule = Schedule::new(Timing::ORIGINAL, None).since(Some(1_000));
        schedule.begin(Picos(0));
        assert_eq!([3_000, 3_500].map(|t| schedule.next(t, 60).0), [2_000_000, 2_500_000]);
        schedule.begin(Picos(0));
        assert_eq!([7_000, 7_001].map(|t| schedule.next(t, 60).0), [2_500_000, 2_501_000]);
    }

    #[test]
    fn a_frame_captured_too_early_follows_at_once_and_moves_no_later_frame() {
        assert_eq!(due(Timing::ORIGINAL, &[(100, 60), (50, 60), (110, 60)]), [0, 0, 10_000]);
    }

    #[test]
    fn a_loop_begins_after_the_last_frame_and_the_delay() {
        let mut schedule = Schedule::new(Timing::ORIGINAL, None);
        let mut all = Vec::new();
        for _ in 0..2 {
            all.extend([10, 20].map(|time| schedule.next(time, 60).0));
            schedule.begin(Picos(7));
        }
        assert_eq!(all, [0, 10_000, 10_007, 20_007]);
    }

    #[test]
    fn long_gaps_are_limited_on_request() {
        let mut schedule = Schedule::new(Timing::ORIGINAL, Some(1_000));
        assert_eq!([0, 5_000, 5_500].map(|t| schedule.next(t, 60).0), [0, 1_000_000, 1_500_000]);
    }

    #[test]
    fn times_out_of_range_are_never_and_stay_so() {
        const DAY: u64 = 86_400_000_000_000;
        let never = Departure::NEVER.0;
        // A timestamp of 0, followed by one in the year 2023: a gap of 53 years.
        let at = 1_700_000_000_000_000_000;
        assert_eq!(due(Timing::ORIGINAL, &[(0, 60), (at, 60), (at + 1, 60)]), [0, never, never]);
        // The last time in range, to the picosecond.
        let most = never / 1000;
        assert_eq!(due(Timing::ORIGINAL, &[(0, 60), (most, 60)])[1], most * 1000);
        assert_eq!(due(Timing::ORIGINAL, &[(0, 60), (most + 1, 60)])[1], never);
        // A faster replay fits into the range; for a slower one, the limit is lower.
        let scaled = |num, den| due(Timing::Captured { num, den }, &[(0, 60), (300 * DAY, 60)])[1];
        assert_eq!(scaled(2, 1), 150 * DAY * 1000);
        assert_eq!([scaled(1, 1), scaled(1, u64::MAX)], [never; 2]);
        // Delays between loops that add up.
        let mut schedule = Schedule::new(Timing::ORIGINAL, None);
        let loops = [0; 4].map(|_| {
            schedule.begin(Picos(100 * DAY * 1000));
            schedule.next(7, 60).0
        });
        assert_eq!(loops, [100 * DAY * 1000, 200 * DAY * 1000, never, never]);
        // Gaps of a rate.
        for gap in [
            Gap::PerFrame { num: u64::MAX, den: 1 },
            Gap::PerOctet { num: u64::MAX, den: 1, extra: u32::MAX },
        ] {
            let rate = Timing::Paced { gap, together: 1 };
            assert_eq!(due(rate, &[(0, u32::MAX); 3])[1..], [never; 2]);
        }
        let ramp = Timing::Ramp { from: 1e-9, to: 1e-9, over: Picos(1), octets: None };
        assert_eq!(due(ramp, &[(0, 60); 2])[1], never);
    }

    #[test]
    fn several_frames_at_once_keep_the_rate() {
        let timing =
            Timing::Paced { gap: Gap::PerFrame { num: 1_000_000_000_000, den: 3 }, together: 2 };
        assert_eq!(
            due(timing, &[(0, 60); 7]),
            [
                0,
                0,
                666_666_666_666,
                666_666_666_666,
                1_333_333_333_333,
                1_333_333_333_333,
                2_000_000_000_000
            ]
        );
    }

    #[test]
    fn a_ramp_has_sent_the_area_below_it() {
        // From 0 to 100 per second within 2 s: 100 frames, then one every 10 ms.
        let timing =
            Timing::Ramp { from: 0.0, to: 100.0, over: Picos(2_000_000_000_000), octets: None };
        let due = due(timing, &[(0, 60); 103]);
        assert_eq!((due[0], due[25]), (0, 1_000_000_000_000));
        assert_eq!(due[100..], [2_000_000_000_000, 2_010_000_000_000, 2_020_000_000_000]);
    }

    proptest! {
        #[test]
        fn frame_n_is_due_exactly_n_gaps_after_the_first(num in 1..u64::MAX >> 24, den in 1..1_000_000u64, n in 0..2000u64) {
            let timing = Timing::Paced { gap: Gap::PerFrame { num, den }, together: 1 };
            let mut schedule = Schedule::new(timing, None);
            let last = (0..=n).map(|_| schedule.next(0, 60).0).last().unwrap();
            prop_assert_eq!(u128::from(last), u128::from(n) * u128::from(num) / u128::from(den));
        }

        #[test]
        fn octets_take_the_same_time_in_any_frames(lens in prop::collection::vec(60..1500u32, 1..200), den in 1..1000u64) {
            let timing = Timing::Paced { gap: Gap::PerOctet { num: 8_000_003, den, extra: 0 }, together: 1 };
            let mut schedule = Schedule::new(timing, None);
            let before: u64 = lens[..lens.len() - 1].iter().map(|&len| u64::from(len)).sum();
            let last = lens.iter().map(|&len| schedule.next(0, len).0).last().unwrap();
            prop_assert_eq!(u128::from(last), u128::from(before) * 8_000_003 / u128::from(den));
        }
    }
}
