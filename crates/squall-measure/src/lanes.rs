//! The frames of a stream by their routes. Frame k of a stream to n routes goes to route k mod n,
//! whatever happens to its headers on the way, so the number in the signature tells the route.
//! Phases, which begin with frames that are known before the run, have lanes of their own.

use std::sync::Arc;

/// The lanes of a stream at one receive queue: one for each of its routes in each phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lanes {
    /// The lanes of all routes in the first phase, then those in the next one.
    lanes: Box<[Lane]>,
    routes: usize,
    /// The numbers of the frames with which further phases begin, ascending.
    begins: Arc<[u64]>,
    /// The highest number so far, extended to 64 bits.
    highest: u64,
}

/// The frames of one route. Frame k of the stream has the number k / n in its lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// First copies.
    pub received: u64,
    /// The lowest and the highest number received; 0 if none was.
    pub first: u64,
    pub last: u64,
}

impl Lane {
    /// The lane of two receivers that share its frames.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        match (self.received, other.received) {
            (_, 0) => self,
            (0, _) => other,
            (own, others) => Self {
                received: own + others,
                first: self.first.min(other.first),
                last: self.last.max(other.last),
            },
        }
    }
}

impl Lanes {
    /// Lanes for `routes` routes; `first` is the number of the stream's first frame. A further
    /// phase begins with each frame in `begins`, which ascend.
    ///
    /// # Panics
    /// If there are no routes.
    pub fn new(routes: usize, first: u64, begins: Arc<[u64]>) -> Self {
        assert!(routes > 0, "a stream with lanes has routes");
        let lanes = vec![Lane::default(); routes * (begins.len() + 1)].into();
        Self { lanes, routes, begins, highest: first }
    }

    /// The lanes of each phase, in the order of routes.
    pub fn phases(&self) -> impl Iterator<Item = &[Lane]> {
        self.lanes.chunks_exact(self.routes)
    }

    /// Records the first copies of `count` frames with consecutive numbers from `sequence` on, the
    /// low 32 bits of the first one's number. One division for all of them in a phase.
    #[inline]
    pub fn observe_run(&mut self, sequence: u32, count: usize) {
        let ahead = sequence.wrapping_sub(self.highest as u32).cast_signed();
        // Before number 0 there are only frames that this run has not sent.
        let Some(mut first) = self.highest.checked_add_signed(ahead.into()) else { return };
        self.highest = self.highest.max(first + count.saturating_sub(1) as u64);
        let mut left = count as u64;
        while left > 0 {
            let phase = self.begins.partition_point(|begin| *begin <= first);
            let in_phase = self.begins.get(phase).map_or(left, |next| left.min(next - first));
            self.observe_phase(phase, first, in_phase);
            (first, left) = (first + in_phase, left - in_phase);
        }
    }

    /// Records `count` frames of one phase, from number `first` on.
    #[inline]
    fn observe_phase(&mut self, phase: usize, first: u64, count: u64) {
        let routes = self.routes as u64;
        let (mut number, mut at) = (first / routes, (first % routes) as usize);
        let lanes = &mut self.lanes[phase * self.routes..][..self.routes];
        for _ in 0..count {
            let lane = &mut lanes[at];
            if lane.received == 0 {
                (lane.first, lane.last) = (number, number);
            } else {
                (lane.first, lane.last) = (lane.first.min(number), lane.last.max(number));
            }
            lane.received += 1;
            at += 1;
            if at == lanes.len() {
                (at, number) = (0, number + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use squall_program::signature::Signature;
    use squall_units::Nanos;

    use super::*;
    use crate::{Measure, Receiver, StreamLanes};

    const KEY: u16 = 7;

    fn frame(stream: u16, sequence: u32) -> Vec<u8> {
        let mut octets = vec![0; 60];
        let (high, low) = Signature { key: KEY, stream, sequence, time: 1_000 }.halves();
        octets[44..52].copy_from_slice(&high.to_be_bytes());
        octets[52..60].copy_from_slice(&low.to_be_bytes());
        octets
    }

    /// A receiver of stream 0 to `routes` routes, whose first frame is number `first`.
    fn receiver(routes: usize, first: u64) -> Receiver {
        in_phases(routes, first, &[])
    }

    /// The same, with phases that begin with these frames.
    fn in_phases(routes: usize, first: u64, begins: &[u64]) -> Receiver {
        let lanes = Arc::from([StreamLanes { stream: 0, routes, first, begins: begins.into() }]);
        Receiver::new(&Measure { key: Some(KEY), lanes, ..Measure::default() })
    }

    fn receive(rx: &mut Receiver, numbers: impl IntoIterator<Item = u64>) {
        let frames: Vec<_> = numbers.into_iter().map(|k| frame(0, k as u32)).collect();
        rx.observe_all(frames.iter().map(|octets| (&octets[..], 60, Nanos(2_000))));
    }

    /// The lanes of all phases, one phase after the other.
    fn lanes(rx: &Receiver) -> Vec<Lane> {
        let lanes = rx.stream(0).and_then(|stream| stream.lanes.as_deref()).expect("lanes");
        lanes.phases().flatten().copied().collect()
    }

    #[test]
    fn each_route_has_the_frames_whose_numbers_are_its_own() {
        let mut rx = receiver(3, 0);
        // Route 1 loses its frames 1 to 3: numbers 4, 7 and 10.
        receive(&mut rx, (0..15).filter(|k| ![4, 7, 10].contains(k)));
        let all = |received, first, last| Lane { received, first, last };
        assert_eq!(lanes(&rx), [all(5, 0, 4), all(2, 0, 4), all(5, 0, 4)]);
        // A late frame is one of its lane, and copies are none.
        receive(&mut rx, [7, 7, 14]);
        assert_eq!(lanes(&rx)[1], all(3, 0, 4));
        assert_eq!(lanes(&rx)[2], all(5, 0, 4));
    }

    #[test]
    fn a_phase_has_the_frames_from_its_first_one_on() {
        let mut rx = in_phases(2, 0, &[5, 9]);
        // One run over all phases, without frame 6; then frame 3 comes late.
        receive(&mut rx, [0, 1, 2, 4, 5, 7, 8, 9, 10, 11]);
        receive(&mut rx, [3]);
        let lane = |received, first, last| Lane { received, first, last };
        let first = [lane(3, 0, 2), lane(2, 0, 1)];
        let second = [lane(1, 4, 4), lane(2, 2, 3)];
        let third = [lane(1, 5, 5), lane(2, 4, 5)];
        assert_eq!(lanes(&rx), [first, second, third].concat());
    }

    #[test]
    fn numbers_that_wrap_keep_their_lanes() {
        let begin = (1 << 33) + 1;
        let mut rx = receiver(7, begin);
        receive(&mut rx, begin..begin + 14);
        let wrapping = (1 << 32) - 7;
        let mut wrapped = receiver(7, wrapping);
        receive(&mut wrapped, wrapping..wrapping + 14);
        for (rx, begin) in [(rx, begin), (wrapped, wrapping)] {
            for (route, lane) in lanes(&rx).into_iter().enumerate() {
                let numbers: Vec<u64> =
                    (begin..begin + 14).filter(|k| k % 7 == route as u64).map(|k| k / 7).collect();
                let [first, last] = numbers[..] else { panic!("two frames a route") };
                assert_eq!(lane, Lane { received: 2, first, last });
            }
        }
    }

    #[test]
    fn streams_without_routes_and_views_have_no_lanes() {
        let mut rx = receiver(2, 0);
        let other = frame(1, 0);
        rx.observe(&other, 60, Nanos(2_000));
        assert!(rx.stream(1).is_some_and(|stream| stream.lanes.is_none()));
        assert!(rx.stream(0).is_none(), "a stream is not there before its first frame");
        receive(&mut rx, 0..4);
        for view in [rx.with_histograms(), rx.without_histograms()] {
            assert!(view.stream(0).is_some_and(|stream| stream.lanes.is_none()));
        }
        assert_eq!(lanes(&rx).len(), 2);
    }

    proptest! {
        /// Which frames arrive, and at which of some queues.
        #[test]
        fn lanes_of_several_queues_are_those_of_one_and_lose_what_a_stream_for_each_route_would(
            routes in 1usize..40,
            frames in prop::collection::vec((0usize..4, 0u8..5), 1..300),
        ) {
            let mut one = receiver(routes, 0);
            let mut queues: Vec<_> = (0..4).map(|_| receiver(routes, 0)).collect();
            // A stream for each route, with numbers of its own.
            let mut streams: Vec<_> = (0..routes).map(|_| receiver(1, 0)).collect();
            for (k, (queue, fate)) in (0u64..).zip(&frames) {
                if *fate == 0 {
                    continue;
                }
                receive(&mut one, [k]);
                receive(&mut queues[*queue], [k]);
                receive(&mut streams[k as usize % routes], [k / routes as u64]);
            }
            let mut merged = vec![Lane::default(); routes];
            for queue in queues.iter().filter(|queue| queue.stream(0).is_some()) {
                for (all, lane) in merged.iter_mut().zip(lanes(queue)) {
                    *all = all.with(lane);
                }
            }
            if one.stream(0).is_some() {
                prop_assert_eq!(&merged, &lanes(&one));
            }
            for (route, stream) in streams.iter().enumerate() {
                let sent = (frames.len() + routes - 1 - route) / routes;
                let alone = stream.stream(0);
                let lost = alone.map_or(sent as u64, |seen| seen.sequence.lost(sent as u64));
                prop_assert_eq!(sent as u64 - merged[route].received, lost);
                if alone.is_some() {
                    prop_assert_eq!(merged[route], lanes(stream)[0]);
                }
            }
        }

        #[test]
        fn frames_taken_together_are_in_the_lanes_of_single_ones(
            routes in 1usize..100, steps in prop::collection::vec(0u64..4, 1..600),
            begins in prop::collection::btree_set(1u64..900, 0..5),
        ) {
            let begins: Vec<u64> = begins.into_iter().collect();
            let mut together = in_phases(routes, 0, &begins);
            let mut singly = together.clone();
            let mut k = 0;
            let numbers: Vec<u64> = steps.iter().map(|step| { k += step.saturating_sub(1); k }).collect();
            receive(&mut together, numbers.iter().copied());
            for number in &numbers {
                singly.observe(&frame(0, *number as u32), 60, Nanos(2_000));
            }
            prop_assert_eq!(lanes(&together), lanes(&singly));
            // All phases together are the lanes of a stream without them.
            let mut whole = receiver(routes, 0);
            receive(&mut whole, numbers.iter().copied());
            let mut sum = vec![Lane::default(); routes];
            for (at, lane) in lanes(&together).into_iter().enumerate() {
                sum[at % routes] = sum[at % routes].with(lane);
            }
            prop_assert_eq!(sum, lanes(&whole));
        }
    }
}
