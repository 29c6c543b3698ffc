//! One-way delay and its variation.

use crate::Histogram;

/// Delay, delay variation and arrival gaps of one stream at one receiver.
///
/// Expects only the first copy of each frame, in order of arrival: RFC 7679 measures the first
/// copy, and duplicates would count twice. Variation, jitter and gaps need no synchronized clocks,
/// but the delay does. Negative samples are counted separately instead of being corrected.
///
/// ```
/// let mut t = squall_stats::DelayTracker::new();
/// t.observe(0, 5_000, 105_000);
/// t.observe(1, 5_200, 205_200);
/// assert_eq!((t.delay().max(), t.ipdv().max(), t.gap().max()), (5_200, 200, 100_200));
/// ```
#[derive(Clone, Debug, Default)]
pub struct DelayTracker {
    delay: Histogram,
    ipdv: Histogram,
    gap: Histogram,
    negative: u64,
    most_negative: i64,
    /// Sixteen times the jitter, which makes it an integer (RFC 3550 appendix A.8).
    jitter_16: u64,
    last: Option<Last>,
    /// The most recent send time, nanoseconds on the receiver's clock plus the unknown offset
    /// between the clocks.
    newest: Option<i64>,
}

/// The figures of a [`DelayTracker`] without its histograms, for frequent queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelaySummary {
    /// Number of delays; if 0, the other figures are meaningless.
    pub count: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub sum_ns: u128,
    /// Arrival times of the first and the last frame, on the receiver's clock.
    pub arrivals_ns: Option<(u64, u64)>,
}

impl DelaySummary {
    /// Merges the figures of another receiver.
    pub fn merge(&mut self, other: &Self) {
        if other.count > 0 {
            self.min_ns = if self.count > 0 { self.min_ns.min(other.min_ns) } else { other.min_ns };
            self.max_ns = self.max_ns.max(other.max_ns);
            self.sum_ns += other.sum_ns;
            self.count += other.count;
        }
        self.arrivals_ns = match (self.arrivals_ns, other.arrivals_ns) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }

    /// Records a frame that arrived at `arrival_ns` on the receiver's clock, `delay_ns` after it
    /// was sent. With unsynchronized clocks the delay may be negative, and then does not count as a
    /// delay.
    pub fn observe(&mut self, delay_ns: i64, arrival_ns: u64) {
        let arrivals_ns = Some((arrival_ns, arrival_ns));
        self.merge(&match u64::try_from(delay_ns) {
            Ok(delay) => {
                Self { count: 1, min_ns: delay, max_ns: delay, sum_ns: delay.into(), arrivals_ns }
            }
            Err(_) => Self { arrivals_ns, ..Self::default() },
        });
    }

    pub fn mean_ns(&self) -> f64 {
        if self.count > 0 { self.sum_ns as f64 / self.count as f64 } else { 0.0 }
    }
}

/// Maximum number of frames in one [`DelayTracker::observe_run`].
pub const RUN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Last {
    seq: u32,
    delay_ns: i64,
    arrival_ns: u64,
}

impl DelayTracker {
    pub const fn new() -> Self {
        Self {
            delay: Histogram::new(),
            ipdv: Histogram::new(),
            gap: Histogram::new(),
            negative: 0,
            most_negative: 0,
            jitter_16: 0,
            last: None,
            newest: None,
        }
    }

    /// Records a frame with sequence number `seq` that arrived at `arrival_ns` on the receiver's
    /// clock, `delay_ns` after it was sent.
    #[inline]
    pub fn observe(&mut self, seq: u32, delay_ns: i64, arrival_ns: u64) {
        if let Some(last) = self.last {
            self.gap.record(arrival_ns.saturating_sub(last.arrival_ns));
        }
        self.sample(delay_ns);
        self.vary(seq, delay_ns, arrival_ns);
    }

    /// The same as [`DelayTracker::observe`], for callers that count gaps themselves. Records the
    /// delay itself only if sender and receiver share a clock (`one`).
    #[inline]
    pub fn observe_sent(&mut self, seq: u32, delay_ns: i64, arrival_ns: u64, one: bool) {
        if one {
            self.sample(delay_ns);
        }
        self.vary(seq, delay_ns, arrival_ns);
    }

    #[inline]
    fn sample(&mut self, delay_ns: i64) {
        match u64::try_from(delay_ns) {
            Ok(delay) => self.delay.record(delay),
            Err(_) => {
                self.negative += 1;
                self.most_negative = self.most_negative.min(delay_ns);
            }
        }
    }

    #[inline]
    fn vary(&mut self, seq: u32, delay_ns: i64, arrival_ns: u64) {
        if let Some(last) = self.last {
            let variation = delay_ns.abs_diff(last.delay_ns);
            if seq == last.seq.wrapping_add(1) {
                self.ipdv.record(variation);
            }
            self.jitter_16 =
                self.jitter_16.saturating_add(variation) - (self.jitter_16.saturating_add(8) >> 4);
        }
        self.last = Some(Last { seq, delay_ns, arrival_ns });
        self.newest = self.newest.max(sent(delay_ns, arrival_ns));
    }

    /// Records frames with consecutive numbers from `seq` on, at most [`RUN`], with the same result
    /// as single calls of [`DelayTracker::observe`].
    ///
    /// # Panics
    /// If there are more than [`RUN`], or if the numbers of arrivals and delays differ.
    #[inline]
    pub fn observe_run(&mut self, seq: u32, delays_ns: &[i64], arrivals_ns: &[u64]) {
        let n = delays_ns.len();
        assert!(
            n <= RUN && arrivals_ns.len() == n,
            "a run has {RUN} frames at most, each with its arrival"
        );
        let Some(before) =
            self.last.filter(|_| n > 1 && delays_ns.iter().fold(0, |any, d| any | d) >= 0)
        else {
            for (i, (&delay, &arrival)) in delays_ns.iter().zip(arrivals_ns).enumerate() {
                self.observe(seq.wrapping_add(i as u32), delay, arrival);
            }
            return;
        };
        let (mut delays, mut variations, mut gaps) = ([0; RUN], [0; RUN], [0; RUN]);
        let (mut last_delay, mut last_arrival, mut jitter) =
            (before.delay_ns, before.arrival_ns, self.jitter_16);
        for i in 0..n {
            let (delay, arrival) = (delays_ns[i], arrivals_ns[i]);
            let variation = delay.abs_diff(last_delay);
            (delays[i], variations[i]) = (delay as u64, variation);
            gaps[i] = arrival.saturating_sub(last_arrival);
            jitter = jitter.saturating_add(variation) - (jitter.saturating_add(8) >> 4);
            (last_delay, last_arrival) = (delay, arrival);
        }
        self.jitter_16 = jitter;
        self.delay.record_all(&delays[..n]);
        let consecutive = seq == before.seq.wrapping_add(1);
        self.ipdv.record_all(&variations[usize::from(!consecutive)..n]);
        self.gap.record_all(&gaps[..n]);
        self.last = Some(Last {
            seq: seq.wrapping_add(n as u32 - 1),
            delay_ns: last_delay,
            arrival_ns: last_arrival,
        });
        self.newest = self.newest.max(sent(last_delay, last_arrival));
    }

    /// The current figures, without the distributions.
    pub fn summary(&self) -> DelaySummary {
        let some = !self.delay.is_empty();
        DelaySummary {
            count: self.delay.count(),
            min_ns: if some { self.delay.min() } else { 0 },
            max_ns: self.delay.max(),
            sum_ns: self.delay.sum(),
            // The gaps add up to the time between the first and the last arrival.
            arrivals_ns: self.last.map(|last| {
                (
                    last.arrival_ns.saturating_sub(self.gap.sum().min(u128::from(u64::MAX)) as u64),
                    last.arrival_ns,
                )
            }),
        }
    }

    /// Whether a frame was sent more than `margin_ns` later than all previous frames. Such a frame
    /// is neither late nor a duplicate, even if its number is lower.
    pub fn is_newer(&self, delay_ns: i64, arrival_ns: u64, margin_ns: i64) -> bool {
        let sent = sent(delay_ns, arrival_ns);
        self.newest.zip(sent).is_some_and(|(newest, sent)| sent > newest.saturating_add(margin_ns))
    }

    /// Records a restart of the sender: its next frame does not follow the last one.
    pub fn restart(&mut self) {
        (self.last, self.newest) = (None, None);
    }

    /// One-way delay (RFC 7679) in ns, without negative samples.
    pub fn delay(&self) -> &Histogram {
        &self.delay
    }

    /// Magnitude of the IP packet delay variation (RFC 3393) in ns. The selection function is:
    /// frames with consecutive sequence numbers that arrived one after the other.
    pub fn ipdv(&self) -> &Histogram {
        &self.ipdv
    }

    /// Gaps between arrivals in ns; 0 if the receiver's clock stepped back.
    pub fn gap(&self) -> &Histogram {
        &self.gap
    }

    /// Smoothed interarrival jitter (RFC 3550 §6.4.1) in ns, over all frames in order of arrival.
    pub fn jitter_ns(&self) -> f64 {
        self.jitter_16 as f64 / 16.0
    }

    /// Number of samples with a negative delay, which is evidence of a clock offset between the two
    /// ends.
    pub fn negative(&self) -> u64 {
        self.negative
    }

    /// The lowest negative sample in ns; 0 if there are none.
    pub fn most_negative_ns(&self) -> i64 {
        self.most_negative
    }

    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        self.delay.memory() + self.ipdv.memory() + self.gap.memory()
    }

    /// Adds another worker's samples. The jitter is a running value, so the larger of the two is
    /// kept.
    pub fn merge(&mut self, other: &Self) {
        self.delay.merge(&other.delay);
        self.ipdv.merge(&other.ipdv);
        self.gap.merge(&other.gap);
        self.negative += other.negative;
        self.most_negative = self.most_negative.min(other.most_negative);
        self.jitter_16 = self.jitter_16.max(other.jitter_16);
    }
}

/// Send time of a frame on the receiver's clock, plus the unknown offset between the clocks.
fn sent(delay_ns: i64, arrival_ns: u64) -> Option<i64> {
    Some((arrival_ns as i64).wrapping_sub(delay_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_as_its_frames_one_by_one() {
        let (mut runs, mut each) = (DelayTracker::new(), DelayTracker::new());
        let (mut seq, mut arrival) = (u32::MAX - 500, 1_000_000u64);
        for k in 0..200u64 {
            seq = seq.wrapping_add(u32::from(k % 5 == 4));
            let n = (k * 13 % 65) as usize;
            let delays: Vec<i64> = (0..n as u64)
                .map(|j| (k * j * 977 % 50_000) as i64 - i64::from(k % 17 == 0))
                .collect();
            let arrivals: Vec<u64> = delays
                .iter()
                .map(|d| {
                    arrival += 100 + d.unsigned_abs() % 70;
                    // The clock sometimes steps back.
                    arrival - if k % 31 == 30 { 1000 } else { 0 }
                })
                .collect();
            runs.observe_run(seq, &delays, &arrivals);
            for (j, (delay, arrival)) in delays.iter().zip(&arrivals).enumerate() {
                each.observe(seq.wrapping_add(j as u32), *delay, *arrival);
            }
            seq = seq.wrapping_add(n as u32);
        }
        assert_eq!((&runs.delay, &runs.ipdv, &runs.gap), (&each.delay, &each.ipdv, &each.gap));
        assert_eq!((runs.jitter_16, runs.negative), (each.jitter_16, each.negative));
        assert!(runs.negative > 0);
    }

    #[test]
    fn negative_delays_are_counted_separately_and_still_give_variation() {
        let mut t = DelayTracker::new();
        for (seq, delay) in [-500, -300, 100, i64::MIN].into_iter().enumerate() {
            t.observe(seq as u32, delay, 1_000 * seq as u64);
        }
        assert_eq!((t.negative(), t.most_negative_ns()), (3, i64::MIN));
        assert_eq!((t.delay().count(), t.delay().max()), (1, 100));
        assert_eq!((t.ipdv().count(), t.ipdv().min(), t.ipdv().max()), (3, 200, (1 << 63) + 100));
    }

    #[test]
    fn variation_is_of_consecutive_numbers_only_also_across_the_wrap() {
        let mut t = DelayTracker::new();
        for (seq, delay) in
            [(u32::MAX - 1, 10), (u32::MAX, 20), (0, 40), (2, 1_000), (1, 1_100), (2, 1_105)]
        {
            t.observe(seq, delay, 0);
        }
        assert_eq!(t.ipdv().bins().map(|b| b.0).collect::<Vec<_>>(), [5, 10, 20]);
    }

    #[test]
    fn jitter_follows_rfc_3550() {
        let mut t = DelayTracker::new();
        let mut jitter = 0.0;
        let mut last = 0i64;
        for seq in 0..1000u32 {
            let delay = 1_000_000 + i64::from(seq.wrapping_mul(2_654_435_761) >> 12);
            t.observe(seq, delay, 0);
            if seq > 0 {
                jitter += ((delay - last).abs() as f64 - jitter) / 16.0;
            }
            last = delay;
        }
        assert!((t.jitter_ns() - jitter).abs() < 2.0, "{} {jitter}", t.jitter_ns());
    }

    #[test]
    fn a_clock_that_steps_back_gives_a_gap_of_zero() {
        let mut t = DelayTracker::new();
        t.observe(0, 1, 1_000);
        t.observe(1, 1, 900);
        t.observe(2, 1, 1_400);
        assert_eq!(
            t.gap().bins().map(|b| (b.0, b.2)).collect::<Vec<_>>(),
            [(0, 1), (500 / 2 * 2, 1)]
        );
    }
}
