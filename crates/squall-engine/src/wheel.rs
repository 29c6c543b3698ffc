//! Finds the stream that is due next: a calendar queue (Brown 1988). The order by (due time,
//! stream) is exact. Operations take constant time with many streams; with few streams, the queue
//! is a short sorted list.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// Numbers of buckets, powers of two. With the bucket width of [`Wheel::new`], all streams fit the
/// time they cover if they have the same rate, so none needs the heap, in which each of a million
/// streams would be moved some twenty times a frame.
const LEAST_BUCKETS: usize = 1 << 12;
const MOST_BUCKETS: usize = 1 << 20;
/// Number of streams from which on buckets have four frames, and their number grows.
const MANY: usize = LEAST_BUCKETS + 1;
/// Up to this number, streams are kept in one sorted list, because an insertion then moves a few
/// entries within one or two cache lines.
const FEW: usize = 16;

/// A stream, and when its next frame is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Picoseconds from the start of the run.
    pub due: u64,
    pub stream: u32,
    /// The stream's generation: entries of a stream that was stopped after the push are stale.
    pub generation: u32,
}

#[derive(Debug)]
pub struct Wheel {
    /// A bucket is `1 << shift` picoseconds wide.
    shift: u32,
    /// The bucket that `current` holds; earlier entries are in `current` too.
    tick: u64,
    /// Earliest first.
    current: VecDeque<Entry>,
    buckets: Vec<Vec<Entry>>,
    /// A bit for each bucket.
    occupied: Vec<u64>,
    /// Due after the last bucket.
    far: BinaryHeap<Reverse<Entry>>,
}

impl Wheel {
    /// A wheel for `streams` streams with `pps` frames/s in total.
    pub fn new(streams: usize, pps: f64) -> Self {
        let (frames, buckets) = match streams {
            0..=FEW => (2.0, 0),
            // Each bucket is an allocation, so if there are many, they have more frames.
            MANY.. => (4.0, (streams / 2).next_power_of_two().clamp(LEAST_BUCKETS, MOST_BUCKETS)),
            _ => (2.0, LEAST_BUCKETS),
        };
        let width = if pps > 0.0 { frames * 1e12 / pps } else { 1e12 };
        let shift =
            if streams <= FEW { 63 } else { (width.max(1.0).log2().round() as u32).clamp(4, 50) };
        Self {
            shift,
            tick: 0,
            current: VecDeque::with_capacity(64),
            buckets: vec![Vec::new(); buckets],
            occupied: vec![0; buckets / 64],
            far: BinaryHeap::new(),
        }
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        let tick = entry.due >> self.shift;
        if tick <= self.tick {
            // Usually the new entry is the latest, because streams take turns.
            match self.current.back() {
                Some(last) if *last > entry => {
                    let at = self.current.partition_point(|e| *e < entry);
                    self.current.insert(at, entry);
                }
                _ => self.current.push_back(entry),
            }
        } else if tick - self.tick < self.buckets.len() as u64 {
            let bucket = self.bucket(tick);
            self.buckets[bucket].push(entry);
            self.occupied[bucket / 64] |= 1 << (bucket % 64);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// The earliest entry, if it is due by `now`.
    #[inline]
    pub fn pop(&mut self, now: u64) -> Option<Entry> {
        loop {
            if let Some(entry) = self.current.front() {
                return if entry.due <= now { self.current.pop_front() } else { None };
            }
            let tick = self.next_tick()?;
            if tick << self.shift > now {
                return None;
            }
            self.advance(tick);
        }
    }

    /// A time before which nothing is due; exact if the earliest entry is in the current bucket.
    #[inline]
    pub fn bound(&self) -> u64 {
        match self.current.front() {
            Some(entry) => entry.due,
            None => self.next_tick().map_or(u64::MAX, |tick| tick << self.shift),
        }
    }

    /// The exact due time of the earliest entry.
    pub fn next_due(&mut self) -> Option<u64> {
        if self.current.is_empty() {
            let tick = self.next_tick()?;
            self.advance(tick);
        }
        self.current.front().map(|e| e.due)
    }

    /// Due time of the earliest entry that is not stale; stale ones before it are dropped.
    pub fn earliest(&mut self, is_stale: impl Fn(&Entry) -> bool) -> Option<u64> {
        loop {
            let due = self.next_due()?;
            match self.current.front() {
                Some(entry) if is_stale(entry) => _ = self.current.pop_front(),
                _ => return Some(due),
            }
        }
    }

    fn next_tick(&self) -> Option<u64> {
        let near = self.next_bucket();
        let far = self.far.peek().map(|Reverse(e)| e.due >> self.shift);
        match (near, far) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn next_bucket(&self) -> Option<u64> {
        if self.buckets.is_empty() {
            return None;
        }
        let first = self.bucket(self.tick + 1);
        let (mut word, mut bits) = (first / 64, self.occupied[first / 64] & (!0 << (first % 64)));
        for _ in 0..=self.occupied.len() {
            if bits != 0 {
                let bucket = word * 64 + bits.trailing_zeros() as usize;
                let ahead = bucket.wrapping_sub(first) & (self.buckets.len() - 1);
                return Some(self.tick + 1 + ahead as u64);
            }
            word = (word + 1) & (self.occupied.len() - 1);
            bits = self.occupied[word];
        }
        None
    }

    /// The bucket of `tick`, if there are any: their number is a power of two.
    #[inline]
    fn bucket(&self, tick: u64) -> usize {
        tick as usize & (self.buckets.len() - 1)
    }

    /// Makes `tick` the current bucket.
    fn advance(&mut self, tick: u64) {
        self.tick = tick;
        if !self.buckets.is_empty() {
            let bucket = self.bucket(tick);
            self.current.extend(self.buckets[bucket].drain(..));
            self.occupied[bucket / 64] &= !(1 << (bucket % 64));
        }
        // An entry that was too far ahead for the buckets when it was pushed may be near now;
        // moving it here keeps the order exact.
        while self.far.peek().is_some_and(|Reverse(e)| e.due >> self.shift <= tick) {
            self.current.extend(self.far.pop().map(|r| r.0));
        }
        if self.current.len() > 1 {
            self.current.make_contiguous().sort_unstable();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_units::mix;

    fn order_is_exact(streams: u32, pps: f64, gap: impl Fn(u32, u64) -> u64) {
        let mut wheel = Wheel::new(streams as usize, pps);
        let mut expected = BinaryHeap::new();
        let entry = |due, stream| Entry { due, stream, generation: 0 };
        for stream in 0..streams {
            wheel.push(entry(gap(stream, 0) % 1000, stream));
            expected.push(Reverse(entry(gap(stream, 0) % 1000, stream)));
        }
        let mut now = 0;
        for k in 1..50_000u64 {
            let Some(Reverse(want)) = expected.pop() else { unreachable!() };
            assert!(wheel.bound() <= want.due);
            if mix(3, k).is_multiple_of(16) {
                assert_eq!(wheel.next_due(), Some(want.due));
            }
            if want.due > now {
                assert_eq!(wheel.pop(want.due - 1), None);
            }
            now = want.due + mix(2, k) % 5;
            assert_eq!(wheel.pop(now), Some(want));
            let next = entry(want.due + gap(want.stream, k), want.stream);
            wheel.push(next);
            expected.push(Reverse(next));
        }
        let left = std::iter::from_fn(|| wheel.pop(u64::MAX)).count();
        assert_eq!(left, streams as usize);
    }

    #[test]
    fn few_streams_leave_in_order() {
        order_is_exact(3, 1e6, |s, _| [7, 11, 13][s as usize]);
    }

    #[test]
    fn many_streams_of_one_rate_leave_in_order() {
        order_is_exact(10_000, 1e9, |_, _| 10_000_000);
    }

    #[test]
    fn streams_of_one_rate_need_no_heap_however_many_they_are() {
        const STREAMS: u32 = 20_000;
        let mut wheel = Wheel::new(STREAMS as usize, 1e9);
        let gap = u64::from(STREAMS) * 1000;
        for round in 0..3 {
            for stream in 0..STREAMS {
                let due = round * gap + u64::from(stream) * 1000;
                let entry = Entry { due, stream, generation: 0 };
                if round > 0 {
                    assert_eq!(wheel.pop(due), Some(Entry { due: due - gap, ..entry }));
                }
                wheel.push(entry);
                assert!(wheel.far.is_empty(), "{stream} in round {round}");
            }
        }
    }

    #[test]
    fn many_streams_of_mixed_rates_leave_in_order() {
        order_is_exact(1000, 1e6, |s, k| 1 + mix(u64::from(s), k) % (1 << (s % 40)));
    }
}
