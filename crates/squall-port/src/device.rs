//! Models of a device on the path. If frames arrive too fast, a [`Policer`] drops them; a
//! [`Buffer`] stores as many as fit and sends them at its own rate. If there are too many flows or
//! addresses, a [`Table`] becomes full. While the device restarts ([`Outage`]), nothing passes.
//!
//! All of them decide only by the frames and their timestamps: the same frames at the same times
//! give the same drops, on any machine. All arithmetic is exact, in fractions of a frame or a bit:
//! a stream at exactly a policer's rate never loses a frame.

mod outage;
mod table;

use std::collections::VecDeque;

pub use outage::{Outage, Phase, Reset, time};
use squall_units::{FCS_LEN, L1_OVERHEAD, Nanos, Rate, RateUnit};
pub use table::{Flow, Table, TableSize, source_mac};

/// A rate, and the burst allowed beyond it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    rate: Rate,
    depth: u32,
}

impl Limit {
    /// `depth` is in frames if `rate` is in frames per second; otherwise in octets, counted as in
    /// the rate: with FCS, and for a layer 1 rate also with preamble and gap.
    ///
    /// # Errors
    /// The message names the expected values: a rate above 0 that is not relative to a port's rate,
    /// and a depth of at least 1.
    pub fn new(rate: Rate, depth: u32) -> Result<Self, &'static str> {
        if rate.is_zero() || matches!(rate.unit, RateUnit::Percent | RateUnit::Max) {
            return Err("a rate above 0 in frames or bits per second");
        }
        if depth == 0 {
            return Err("1 or more frames (octets if the rate is in bits per second)");
        }
        Ok(Self { rate, depth })
    }

    /// The share of the depth that a frame of `wire_len` octets without FCS uses.
    fn size(&self, wire_len: u32) -> u64 {
        let octets = u64::from(wire_len) + u64::from(FCS_LEN);
        match self.rate.unit {
            RateUnit::BpsL1 => octets + u64::from(L1_OVERHEAD),
            RateUnit::BpsL2 => octets,
            _ => 1,
        }
    }

    /// Converts `size` to the unit in which a nanosecond counts for `rate.num`.
    fn work(&self, size: u64) -> u128 {
        // 128 bits, because nanoseconds times the numerator of a rate exceed 64.
        let per = if self.rate.unit == RateUnit::Pps { 1 } else { 8 };
        u128::from(size * per) * 1_000_000_000 * u128::from(self.rate.den)
    }
}

/// Number of frames that arrived, and of those dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub frames: u64,
    pub dropped: u64,
}

/// A token bucket: initially full, filled at the rate, never above the depth. A frame without
/// enough tokens is dropped and uses none.
#[derive(Clone, Debug)]
pub struct Policer {
    limit: Limit,
    credit: u128,
    last: Option<Nanos>,
    counts: Counts,
}

impl Policer {
    pub fn new(limit: Limit) -> Self {
        Self {
            limit,
            credit: limit.work(u64::from(limit.depth)),
            last: None,
            counts: Counts::default(),
        }
    }

    /// Whether a frame that arrives at `now` passes. A frame that is earlier than the one before it
    /// (from another queue) counts as simultaneous.
    pub fn takes(&mut self, now: Nanos, wire_len: u32) -> bool {
        let now = now.max(self.last.unwrap_or(now));
        let passed = now - self.last.replace(now).unwrap_or(now);
        // The product is exact: with a rounded one, a stream at exactly the rate would sometimes
        // lose a frame.
        let earned = u128::from(passed.0) * u128::from(self.limit.rate.num);
        self.credit = (self.credit + earned).min(self.limit.work(u64::from(self.limit.depth)));
        let cost = self.limit.work(self.limit.size(wire_len));
        let taken = self.credit >= cost;
        if taken {
            self.credit -= cost;
        }
        self.counts.frames += 1;
        self.counts.dropped += u64::from(!taken);
        taken
    }

    /// Returns to the initial state; the counts continue.
    pub fn restart(&mut self) {
        *self = Self { counts: self.counts, ..Self::new(self.limit) };
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// A queue that is served at the rate, in order. The depth includes the frame being sent. A frame
/// for which there is no room is dropped (tail drop).
///
/// It may need time to recover: for that time after the last tail drop it drops all frames, but
/// they load it as if it took them. So it passes no frame while it is overloaded, and loss
/// continues for exactly that time after the overload.
#[derive(Clone, Debug)]
pub struct Buffer {
    limit: Limit,
    /// Per stored frame: departure time multiplied by `rate.num`, and size.
    waiting: VecDeque<(u128, u64)>,
    filled: u64,
    /// Departure time of the last frame taken, multiplied by `rate.num`.
    idle_from: u128,
    last: Nanos,
    recovery: Nanos,
    closed_until: Nanos,
    counts: Counts,
}

impl Buffer {
    pub fn new(limit: Limit) -> Self {
        Self::with_recovery(limit, Nanos::ZERO)
    }

    /// A buffer that drops all frames for `recovery` after an overflow.
    pub fn with_recovery(limit: Limit, recovery: Nanos) -> Self {
        let (waiting, last, closed_until, counts) = Default::default();
        Self { limit, waiting, filled: 0, idle_from: 0, last, recovery, closed_until, counts }
    }

    /// When a frame that arrives at `now` departs; `None` if it is dropped.
    pub fn departure(&mut self, now: Nanos, wire_len: u32) -> Option<Nanos> {
        self.last = self.last.max(now);
        let num = u128::from(self.limit.rate.num);
        let arrival = u128::from(self.last.0) * num;
        while let Some((departure, size)) =
            self.waiting.front().copied().filter(|(left, _)| *left <= arrival)
        {
            debug_assert!(departure <= self.idle_from);
            self.waiting.pop_front();
            self.filled -= size;
        }
        let size = self.limit.size(wire_len);
        self.counts.frames += 1;
        if self.filled + size > u64::from(self.limit.depth) {
            self.counts.dropped += 1;
            self.closed_until = self.last + self.recovery;
            return None;
        }
        self.idle_from = self.idle_from.max(arrival) + self.limit.work(size);
        self.waiting.push_back((self.idle_from, size));
        self.filled += size;
        if self.last < self.closed_until {
            self.counts.dropped += 1;
            return None;
        }
        // Rounded up, so that departures never exceed the rate.
        Some(Nanos(u64::try_from(self.idle_from.div_ceil(num)).unwrap_or(u64::MAX)))
    }

    /// Empties the buffer and ends its recovery; the counts continue.
    pub fn restart(&mut self) {
        *self = Self { counts: self.counts, ..Self::with_recovery(self.limit, self.recovery) };
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn limit(rate: &str, depth: u32) -> Limit {
        Limit::new(rate.parse().unwrap(), depth).unwrap()
    }

    /// Frames of 60 octets, `gap` ns apart.
    fn paced(frames: u64, gap: u64) -> impl Iterator<Item = Nanos> {
        (0..frames).map(move |n| Nanos(1_000_000_000 + n * gap))
    }

    #[test]
    fn a_stream_at_the_rate_passes_forever_and_one_above_it_loses_the_rest() {
        let mut policer = Policer::new(limit("10kpps", 1));
        assert!(paced(100_000, 100_000).all(|now| policer.takes(now, 60)));
        let mut policer = Policer::new(limit("10kpps", 40));
        // 12,500 frames/s for 8 s; the rate lets 80,000 pass, in addition to the burst.
        let passed = paced(100_000, 80_000).filter(|now| policer.takes(*now, 60)).count();
        assert_eq!(
            passed,
            80_000 + 39,
            "the last of 80,000 intervals is that behind the last frame"
        );
        assert_eq!(policer.counts(), Counts { frames: 100_000, dropped: 100_000 - passed as u64 });
    }

    #[test]
    fn a_burst_passes_up_to_the_depth_and_again_when_the_bucket_is_full() {
        let mut policer = Policer::new(limit("1kpps", 8));
        let mut burst = |at: u64| (0..20).filter(|_| policer.takes(Nanos(at), 60)).count();
        assert_eq!(
            [burst(0), burst(3_999_999), burst(4_000_000), burst(1_000_000_000)],
            [8, 3, 1, 8]
        );
    }

    #[test]
    fn bits_are_counted_with_the_fcs_and_on_layer_1_with_preamble_and_gap() {
        // A depth of 1,250 octets holds 19.5 frames of 64 octets, or 14.9 of 84.
        for (rate, passing) in [("1Mbps", 19), ("1Mbps l1", 14)] {
            let mut policer = Policer::new(limit(rate, 1250));
            assert_eq!((0..100).filter(|_| policer.takes(Nanos(7), 60)).count(), passing, "{rate}");
            let mut buffer = Buffer::new(limit(rate, 1250));
            assert_eq!(
                (0..100).filter(|_| buffer.departure(Nanos(7), 60).is_some()).count(),
                passing,
                "{rate}"
            );
        }
        assert_eq!(
            Buffer::new(limit("1Mbps", 1250)).departure(Nanos(5), 996),
            Some(Nanos(8_000_005))
        );
    }

    #[test]
    fn a_buffer_delays_a_burst_by_its_rate_and_drops_frames_when_full() {
        let mut buffer = Buffer::new(limit("1kpps", 3));
        let burst: Vec<_> = (0..5).map(|_| buffer.departure(Nanos(500), 60)).collect();
        assert_eq!(
            burst,
            [Some(Nanos(1_000_500)), Some(Nanos(2_000_500)), Some(Nanos(3_000_500)), None, None]
        );
        assert_eq!(buffer.departure(Nanos(1_000_499), 60), None, "the first is being sent still");
        assert_eq!(buffer.departure(Nanos(1_000_500), 60), Some(Nanos(4_000_500)));
        assert_eq!(buffer.departure(Nanos(9_000_000), 60), Some(Nanos(10_000_000)));
        assert_eq!(buffer.counts(), Counts { frames: 8, dropped: 3 });
    }

    #[test]
    fn a_buffer_recovers_exactly_its_time_after_the_last_overflow() {
        let limit = limit("1kpps", 2);
        let mut buffer = Buffer::with_recovery(limit, Nanos(50_000_000));
        // Twice its rate for 100 ms, then half of it.
        let overload = (0..200).map(|n| n * 500_000);
        let (mut last_overflow, mut plain) = (0, Buffer::new(limit));
        for now in overload {
            if plain.departure(Nanos(now), 60).is_none() {
                last_overflow = now;
            }
            buffer.departure(Nanos(now), 60);
        }
        let lost: Vec<u64> = (0..50)
            .map(|n| 100_000_000 + n * 2_000_000)
            .filter(|now| buffer.departure(Nanos(*now), 60).is_none())
            .collect();
        assert_eq!(last_overflow, 99_500_000);
        // The device loses the frames before 149.5 ms: at 100, 102 ... 148 ms.
        assert_eq!((lost.len(), lost.last()), (25, Some(&148_000_000)));
        assert_eq!(buffer.counts(), Counts { frames: 250, dropped: 200 - 3 + 25 });
    }

    #[test]
    fn a_restarted_device_is_as_it_was_at_first() {
        let mut buffer = Buffer::with_recovery(limit("1kpps", 1), Nanos(1_000_000_000));
        let mut policer = Policer::new(limit("1pps", 1));
        for _ in 0..2 {
            assert_eq!(buffer.departure(Nanos(7), 60), Some(Nanos(1_000_007)));
            assert_eq!(buffer.departure(Nanos(7), 60), None);
            assert!(policer.takes(Nanos(7), 60) && !policer.takes(Nanos(7), 60));
            buffer.restart();
            policer.restart();
        }
        let counts = Counts { frames: 4, dropped: 2 };
        assert_eq!((buffer.counts(), policer.counts()), (counts, counts));
    }

    #[test]
    fn limits_that_limit_nothing_are_refused() {
        for (rate, depth) in [("max", 1), ("50 %", 1), ("0 pps", 1), ("1 kpps", 0)] {
            assert!(Limit::new(rate.parse().unwrap(), depth).is_err(), "{rate} {depth}");
        }
    }

    /// Frames in order of arrival: (nanoseconds after the previous one, octets).
    fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
        prop::collection::vec((prop_oneof![Just(0), 0..50u64, 0..3000u64], 14..200u32), 1..100)
    }

    /// Rates whose interval is a few hundred nanoseconds, a whole number of them or not.
    fn limits() -> impl Strategy<Value = Limit> {
        let rates = prop::sample::select(vec![
            "1Mpps",
            "3333333pps",
            "7000000.5pps",
            "1Gbps",
            "700Mbps",
            "999Mbps_l1",
        ]);
        (rates, 1..20u32, 14..1000u32).prop_map(|(rate, frames, octets)| {
            limit(rate, if rate.ends_with("pps") { frames } else { octets + 200 })
        })
    }

    fn timed(arrivals: &[(u64, u32)]) -> Vec<(u64, u32)> {
        let mut now = 0;
        let at = |&(gap, len): &(u64, u32)| {
            now += gap;
            (now, len)
        };
        arrivals.iter().map(at).collect()
    }

    proptest! {
        /// The other definition of a token bucket (network calculus): a frame conforms if, over
        /// every interval that ends with it, the frames that passed are at most the depth plus the
        /// rate times the interval.
        #[test]
        fn a_policer_passes_frames_that_conform_over_every_interval(limit in limits(), arrivals in arrivals()) {
            let mut policer = Policer::new(limit);
            let mut passed: Vec<(u64, u128)> = Vec::new();
            for (now, len) in timed(&arrivals) {
                let cost = limit.work(limit.size(len));
                let mut sum = cost;
                let mut conforms = sum <= limit.work(limit.depth.into());
                for (then, before) in passed.iter().rev() {
                    sum += before;
                    let earned = u128::from(now - then) * u128::from(limit.rate.num);
                    conforms &= sum <= limit.work(limit.depth.into()) + earned;
                }
                prop_assert_eq!(policer.takes(Nanos(now), len), conforms);
                if conforms {
                    passed.push((now, cost));
                }
            }
            let dropped = (arrivals.len() - passed.len()) as u64;
            prop_assert_eq!(policer.counts(), Counts { frames: arrivals.len() as u64, dropped });
        }

        /// A plain queue that is served nanosecond by nanosecond.
        #[test]
        fn a_buffer_does_as_a_queue_that_is_served_step_by_step(limit in limits(), arrivals in arrivals()) {
            let mut buffer = Buffer::new(limit);
            let (mut queue, mut clock) = (VecDeque::<(usize, u64, u128)>::new(), 0u64);
            let mut left = vec![None; arrivals.len()];
            let mut taken = vec![None; arrivals.len()];
            let mut step = |queue: &mut VecDeque<(usize, u64, u128)>, clock: &mut u64| {
                *clock += 1;
                let mut effort = u128::from(limit.rate.num);
                while let Some((frame, _, work)) = queue.front_mut() {
                    if *work > effort {
                        *work -= effort;
                        break;
                    }
                    effort -= *work;
                    left[*frame] = Some(Nanos(*clock));
                    queue.pop_front();
                }
            };
            for (frame, (now, len)) in timed(&arrivals).into_iter().enumerate() {
                while clock < now && !queue.is_empty() {
                    step(&mut queue, &mut clock);
                }
                clock = now;
                let (size, held) = (limit.size(len), queue.iter().map(|(_, size, _)| size).sum::<u64>());
                if held + size <= limit.depth.into() {
                    queue.push_back((frame, size, limit.work(size)));
                }
                taken[frame] = buffer.departure(Nanos(now), len);
            }
            while !queue.is_empty() {
                step(&mut queue, &mut clock);
            }
            prop_assert_eq!(taken, left);
        }

        /// Departures of a buffer keep its rate: a policer after it with room for one frame (or the
        /// largest) drops nothing.
        #[test]
        fn departures_of_a_buffer_conform_to_its_rate(arrivals in arrivals()) {
            let mut buffer = Buffer::new(limit("1Mpps", 10));
            let mut policer = Policer::new(limit("1Mpps", 1));
            for (now, len) in timed(&arrivals) {
                if let Some(left) = buffer.departure(Nanos(now), len) {
                    prop_assert!(policer.takes(left, len));
                }
            }
        }
    }
}
