//! Frames of several runs, which their keys distinguish: the run being measured, an earlier run
//! that is replayed, another Squall on the same network.

use std::collections::BTreeSet;

use squall_program::signature::Signature;
use squall_units::Nanos;

use crate::{Lanes, StreamLanes, StreamRx};

/// Frames of one run.
#[derive(Clone, Debug, Default)]
pub struct RunRx {
    /// Key of the run; `None` if no run is confirmed.
    pub key: Option<u16>,
    /// Arrival of the run's first frame, if its start was not known.
    pub begin: Nanos,
    /// Indexed by the stream number of signatures; grows as numbers occur.
    streams: Vec<Option<Box<StreamRx>>>,
    /// Lanes of streams of which no frame has arrived, by number. They are there before, because
    /// frames would be lost during the allocation.
    lanes: Vec<(u16, Box<Lanes>)>,
}

/// Frames that are part of no stream, because they are of another run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
}

/// Maximum number of runs measured per queue. Frames of further runs are only counted.
pub(crate) const MOST_RUNS: usize = 256;

impl RunRx {
    pub(crate) fn new(key: Option<u16>, begin: Nanos) -> Self {
        Self { key, begin, streams: Vec::new(), lanes: Vec::new() }
    }

    pub(crate) fn with_lanes(self, wanted: &[StreamLanes]) -> Self {
        let lanes = |of: &StreamLanes| {
            (of.stream, Box::new(Lanes::new(of.routes, of.first, of.begins.clone())))
        };
        Self { lanes: wanted.iter().map(lanes).collect(), ..self }
    }

    #[inline]
    pub(crate) fn stream_mut(&mut self, number: u16) -> &mut StreamRx {
        let index = usize::from(number);
        if index >= self.streams.len() {
            self.streams.resize_with(index + 1, || None);
        }
        self.streams[index].get_or_insert_with(|| {
            let prepared = self.lanes.iter().position(|(stream, _)| *stream == number);
            let lanes = prepared.map(|at| self.lanes.swap_remove(at).1);
            Box::new(StreamRx { lanes, ..StreamRx::default() })
        })
    }

    pub fn stream(&self, number: u16) -> Option<&StreamRx> {
        self.streams.get(usize::from(number))?.as_deref()
    }

    /// The streams seen, in ascending order.
    pub fn streams(&self) -> impl Iterator<Item = (u16, &StreamRx)> {
        self.streams.iter().enumerate().filter_map(|(i, s)| Some((i as u16, s.as_deref()?)))
    }

    /// A copy in which `of` has replaced each stream.
    pub(crate) fn each(&self, of: impl Fn(&StreamRx) -> StreamRx) -> Self {
        let copy = |stream: &Option<Box<StreamRx>>| stream.as_deref().map(|s| Box::new(of(s)));
        let streams = self.streams.iter().map(copy).collect();
        Self { streams, lanes: Vec::new(), ..*self }
    }
}

/// Signatures whose key was seen only once, possibly by chance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    seen: Vec<Confirmed>,
    /// Index of the entry to replace next.
    next: usize,
}

/// The first frame of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Confirmed {
    pub signature: Signature,
    /// Octets with FCS.
    pub len: u64,
    pub arrival: Nanos,
}

/// With 64 candidates, random octets produce a false pair in one of 2^36 frames: a frame passes the
/// check with a probability of 2^-16, has the key of a candidate with 2^-10, and a near time with
/// 2^-10.
const MOST_CANDIDATES: usize = 64;
/// Maximum time between the departures of two frames for the second to confirm the first.
const NEAR_NS: i64 = 137_000_000_000;

impl Candidates {
    /// Records a signature of an unknown run. If it is the second one, returns the first.
    pub fn see(&mut self, signature: Signature, len: u64, arrival: Nanos) -> Option<Confirmed> {
        let found = Confirmed { signature, len, arrival };
        let Some(at) = self.seen.iter().position(|one| one.signature.key == signature.key) else {
            self.put(found);
            return None;
        };
        let first = self.seen[at];
        // A copy of the same octets is no evidence.
        if first.signature == signature {
            return None;
        }
        let distance = signature.delay(first.signature.time);
        if distance.unsigned_abs() > NEAR_NS as u64 {
            self.seen[at] = found;
            return None;
        }
        self.seen.swap_remove(at);
        Some(first)
    }

    fn put(&mut self, found: Confirmed) {
        match self.seen.len() < MOST_CANDIDATES {
            true => self.seen.push(found),
            false => self.seen[self.next % MOST_CANDIDATES] = found,
        }
        self.next += 1;
    }

    /// Removes and returns the candidates with one of these keys.
    pub fn take(&mut self, keys: &BTreeSet<u16>) -> Vec<Confirmed> {
        let (taken, left) = self.seen.drain(..).partition(|one| keys.contains(&one.signature.key));
        self.seen = left;
        taken
    }
}

#[cfg(test)]
mod tests {
    use squall_units::mix;

    use super::*;
    use crate::{FlowSettings, Measure, Receiver, kinds};

    /// A key that differs from 7 in both of its octets.
    const OTHER: u16 = 0x0909;

    fn signed(key: u16, stream: u16, sequence: u32, time: u64) -> Vec<u8> {
        let mut octets = vec![0; 60];
        let (high, low) = Signature { key, stream, sequence, time }.halves();
        octets[44..52].copy_from_slice(&high.to_be_bytes());
        octets[52..60].copy_from_slice(&low.to_be_bytes());
        octets
    }

    /// Receives the frames as a batch and singly, and asserts that the results are equal.
    fn received(measure: &Measure, start: Option<u64>, frames: &[(Vec<u8>, u64)]) -> Receiver {
        let new = || {
            let mut rx = Receiver::new(measure);
            start.map(Nanos).into_iter().for_each(|start| rx.begin(start));
            rx
        };
        let (mut all, mut each) = (new(), new());
        for some in frames.chunks(64) {
            let now = Nanos(some[some.len() - 1].1);
            [&mut all, &mut each].into_iter().for_each(|rx| rx.set_now(now));
            all.observe_all(some.iter().map(|(octets, time)| (&octets[..], 60, Nanos(*time))));
            some.iter().for_each(|(octets, time)| each.observe(octets, 60, Nanos(*time)));
        }
        assert_eq!((all.unsigned, &all.foreign), (each.unsigned, &each.foreign));
        let counts = |rx: &Receiver| -> Vec<_> {
            let of = |run: &RunRx| {
                let seen =
                    run.streams().map(|(n, s)| (n, s.packets, s.octets, s.sequence.counts()));
                (run.key, seen.collect::<Vec<_>>())
            };
            rx.runs().map(of).collect()
        };
        assert_eq!(counts(&all), counts(&each));
        all
    }

    fn run(key: u16, numbers: std::ops::Range<u32>, begin: u64) -> Vec<(Vec<u8>, u64)> {
        let time = |n: u32| begin + 1000 * u64::from(n);
        numbers.map(|n| (signed(key, 0, n, time(n)), time(n) + 50)).collect()
    }

    #[test]
    fn frames_of_other_runs_are_counted_apart_and_are_in_no_stream() {
        let measure = Measure { key: Some(7), ..Measure::default() };
        let own = run(7, 0..300, 1_000_000_000);
        // A capture of an earlier run, replayed during this one.
        let others: Vec<_> = run(OTHER, 0..1000, 500_000_000)
            .into_iter()
            .map(|(octets, time)| (octets, 1_000_150_000 + time % 1_000_000 / 1000))
            .collect();
        let frames = [&own[..150], &others, &own[150..]].concat();
        let rx = received(&measure, Some(1_000_000_000), &frames);
        assert_eq!(
            rx.foreign.iter().map(|(k, f)| (*k, f.packets, f.octets)).collect::<Vec<_>>(),
            [(OTHER, 1000, 64_000)]
        );
        let stream = rx.stream(0).unwrap();
        assert_eq!((rx.unsigned, stream.packets, stream.sequence.counts().duplicates), (0, 300, 0));
        assert_eq!((stream.sequence.lost(300), stream.delay.delay().max()), (0, 50));
    }

    #[test]
    fn an_earlier_run_with_the_same_key_is_known_by_its_times() {
        let measure = Measure { key: Some(7), ..Measure::default() };
        let start = 1_000_000_000;
        let own = run(7, 0..300, start);
        // Numbers within and after those of this run, and a time in the future.
        let mut others: Vec<_> = run(7, 100..1100, start - 2_000_000)
            .into_iter()
            .filter(|(octets, _)| Signature::read(octets).unwrap().time < start)
            .map(|(octets, _)| (octets, start + 150_100))
            .collect();
        let earlier = others.len() as u64;
        assert_eq!(earlier, 1000);
        others.push((signed(7, 0, 151, start + 5_000_000_000), start + 150_200));
        let mut frames = [own, others].concat();
        frames.sort_by_key(|(_, time)| *time);
        let rx = received(&measure, Some(start), &frames);
        assert_eq!(rx.foreign.get(&7).map(|foreign| foreign.packets), Some(earlier + 1));
        let stream = rx.stream(0).unwrap();
        let counts = stream.sequence.counts();
        assert_eq!((stream.packets, counts.unique, counts.duplicates), (300, 300, 0));
        assert_eq!(stream.delay.delay().max(), 50);
        // If the sender has another clock, times are no evidence.
        let rx = received(&measure, None, &frames);
        assert_eq!((rx.foreign.len(), rx.stream(0).unwrap().packets), (0, 1301));
    }

    #[test]
    fn where_all_runs_are_measured_each_has_its_own_streams() {
        let frames = [
            run(7, 0..100, 1_000_000_000),
            run(OTHER, 0..50, 2_000_000_000),
            run(7, 100..200, 1_000_000_000),
        ]
        .concat();
        let rx = received(&Measure::default(), None, &frames);
        let mut seen: Vec<_> = rx
            .runs()
            .map(|run| {
                let stream = run.stream(0).unwrap();
                (run.key, run.begin.0, stream.packets, stream.sequence.lost(stream.packets))
            })
            .collect();
        seen.sort_unstable();
        assert_eq!(seen, [(Some(7), 1_000_000_050, 200, 0), (Some(OTHER), 2_000_000_050, 50, 0)]);
        assert_eq!((rx.unsigned, rx.foreign.len()), (0, 0));
        assert!(rx.is_of_a_stream(&frames[0].0) && rx.is_of_a_stream(&frames[120].0));
        for copy in [rx.without_histograms(), rx.with_histograms()] {
            assert_eq!(copy.runs().map(|run| run.streams().count()).sum::<usize>(), 2);
        }
    }

    #[test]
    fn one_frame_or_its_copy_is_no_proof_of_a_run() {
        let measure = Measure { key: Some(7), ..Measure::default() };
        let frame = (signed(OTHER, 0, 1, 1000), 2000);
        let mut rx = received(&measure, None, &vec![frame; 100]);
        assert_eq!((rx.unsigned, rx.foreign.len()), (100, 0));
        // A frame that left hours later is no evidence either. Another queue may have more.
        let far = (signed(OTHER, 0, 2, 10_000_000_000_000), 2000);
        assert_eq!(received(&measure, None, &[(signed(OTHER, 0, 1, 1000), 2000), far]).unsigned, 2);
        rx.confirm_keys(&BTreeSet::from([8]));
        assert_eq!((rx.unsigned, rx.foreign.len()), (100, 0));
        rx.confirm_keys(&BTreeSet::from([OTHER]));
        assert_eq!((rx.unsigned, rx.foreign[&OTHER].packets), (99, 1));
        let mut rx = received(&Measure::default(), None, &run(OTHER, 5..6, 0));
        rx.confirm_keys(&BTreeSet::from([OTHER]));
        assert_eq!((rx.unsigned, rx.stream(0).map(|stream| stream.packets)), (0, Some(1)));
    }

    #[test]
    fn a_damaged_key_is_the_key_of_nobody() {
        let measure = Measure { key: Some(7), ..Measure::default() };
        let frames: Vec<_> = (0..200u32)
            .map(|n| (signed([0x0709, 0x0107][n as usize % 2], 0, n, 1000 + u64::from(n)), 5000))
            .collect();
        let rx = received(&measure, None, &frames[..100]);
        assert_eq!(
            (rx.unsigned, rx.foreign.len()),
            (50, 1),
            "one octet differs in every other one"
        );
        let damaged: Vec<_> = frames.into_iter().skip(1).step_by(2).collect();
        let rx = received(&measure, None, &damaged);
        assert_eq!((rx.unsigned, rx.foreign.len()), (100, 0));
    }

    #[test]
    fn random_octets_are_no_runs() {
        let random = |k: u64| {
            let octets: Vec<u8> = (0..8).flat_map(|i| mix(k, i).to_be_bytes()).collect();
            (octets, 1000 * k)
        };
        let frames: Vec<_> = (0..200_000).map(random).collect();
        for key in [None, Some(7)] {
            let rx = received(&Measure { key, ..Measure::default() }, None, &frames);
            assert_eq!((rx.unsigned, rx.foreign.len()), (200_000, 0));
            assert_eq!(rx.streams().count(), 0);
        }
    }

    #[test]
    fn a_flow_of_signed_frames_is_known_as_such_in_its_first_batch() {
        for key in [None, Some(9), Some(7)] {
            let flows = Some(FlowSettings::default());
            let rx = received(
                &Measure { key, flows, ..Measure::default() },
                None,
                &run(OTHER, 0..64, 0),
            );
            let flows = rx.flows.as_ref().unwrap();
            let known: Vec<_> = flows.table.iter().map(|flow| &flow.value.sequence).collect();
            assert!(matches!(known[..], [kinds::Recognition::Signed(Some(0))]), "{known:?}");
        }
    }
}
