//! Contents of received test frames: for each stream, how often each value of selected bits
//! occurred.
//!
//! A device between sender and receiver may change frames: mark them, translate addresses, tunnel
//! them. The signature identifies the stream, and the tracked bits show the change.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use crate::StreamCounters;

/// Bits of a frame, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bits {
    pub first: usize,
    pub count: usize,
}

/// Bits that together form a value, at most [`Place::BITS`], most significant first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place(Vec<Bits>);

/// The stream, the index of the [`Place`], and the value.
pub type Key = (u16, u16, u128);

/// Maximum number of values per queue. Frames with further values are counted together.
const MOST: usize = 65_536;

impl Bits {
    fn read(self, octets: &[u8]) -> Option<u128> {
        let (mut at, end) = (self.first, self.first + self.count);
        let mut value = 0;
        while at < end {
            let octet = *octets.get(at / 8)?;
            let taken = (8 - at % 8).min(end - at);
            let part = octet << (at % 8) >> (8 - taken);
            value = value << taken | u128::from(part);
            at += taken;
        }
        Some(value)
    }
}

impl Place {
    pub const BITS: usize = 128;

    /// `None` if there are more than [`Place::BITS`] bits in all, or if a range is empty.
    pub fn new(bits: Vec<Bits>) -> Option<Self> {
        let fits = bits.iter().map(|bits| bits.count).sum::<usize>() <= Self::BITS;
        (fits && bits.iter().all(|bits| bits.count > 0)).then_some(Self(bits))
    }

    /// The value; `None` if the frame is too short.
    fn read(&self, octets: &[u8]) -> Option<u128> {
        // `checked_shl` by 128 returns `None`. The value is still 0 then, as there are no other
        // bits.
        let add = |value: u128, bits: &Bits| {
            Some(value.checked_shl(bits.count as u32).unwrap_or(0) | bits.read(octets)?)
        };
        self.0.iter().try_fold(0, add)
    }

    /// The values of each range of bits, in order.
    pub fn parts(&self, mut value: u128) -> Vec<u128> {
        let mut parts: Vec<u128> = (self.0.iter().rev())
            .map(|bits| {
                let part = value & (u128::MAX >> (128 - bits.count));
                value = value.checked_shr(bits.count as u32).unwrap_or(0);
                part
            })
            .collect();
        parts.reverse();
        parts
    }
}

/// The values seen by one receive queue.
#[derive(Clone, Debug)]
pub struct Tracked {
    places: Arc<[Place]>,
    found: HashMap<Key, StreamCounters>,
    /// Number of frames whose value did not fit in the table.
    pub beyond: u64,
}

impl Tracked {
    pub(crate) fn new(places: &Arc<[Place]>) -> Self {
        Self { places: places.clone(), found: HashMap::new(), beyond: 0 }
    }

    pub(crate) fn observe(
        &mut self,
        octets: &[u8],
        len: u64,
        stream: u16,
        delay_ns: i64,
        arrival_ns: u64,
    ) {
        for (place, bits) in self.places.iter().enumerate() {
            let Some(value) = bits.read(octets) else { continue };
            let full = self.found.len() >= MOST;
            let row = match self.found.entry((stream, place as u16, value)) {
                Entry::Occupied(row) => row.into_mut(),
                Entry::Vacant(row) if !full => row.insert(StreamCounters::default()),
                Entry::Vacant(_) => {
                    self.beyond += 1;
                    continue;
                }
            };
            row.packets += 1;
            row.unique += 1;
            row.octets += len;
            row.delay.observe(delay_ns, arrival_ns);
        }
    }

    /// All counters, in arbitrary order.
    pub fn rows(&self) -> impl Iterator<Item = (Key, StreamCounters)> {
        self.found.iter().map(|(key, seen)| (*key, *seen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(bits: &[(usize, usize)]) -> Place {
        Place::new(bits.iter().map(|&(first, count)| Bits { first, count }).collect())
            .expect("few bits")
    }

    #[test]
    fn bits_are_read_across_octets_and_not_past_the_end() {
        let octets = [0x12, 0x34, 0x56, 0x78];
        assert_eq!(place(&[(4, 12)]).read(&octets), Some(0x234));
        assert_eq!(place(&[(31, 1)]).read(&octets), Some(0));
        assert_eq!(place(&[(28, 1), (0, 8)]).read(&octets), Some(0x112));
        assert_eq!(place(&[(25, 8)]).read(&octets), None);
        assert_eq!(place(&[(4, 12), (24, 8)]).parts(0x0002_3478), [0x234, 0x78]);
        let whole = [0xab; 16];
        assert_eq!(place(&[(0, 128)]).read(&whole), Some(u128::from_be_bytes(whole)));
        assert_eq!(place(&[(0, 128)]).parts(7), [7]);
        assert_eq!(
            Place::new(vec![Bits { first: 0, count: 128 }, Bits { first: 0, count: 1 }]),
            None
        );
    }

    #[test]
    fn frames_are_counted_by_stream_and_value() {
        let mut tracked = Tracked::new(&Arc::from([place(&[(8, 8)])]));
        for (octets, stream) in [([0, 1], 0), ([0, 2], 0), ([9, 1], 0), ([0, 1], 3)] {
            tracked.observe(&octets, 64, stream, 5, 100);
        }
        tracked.observe(&[0], 64, 0, 5, 100);
        let mut rows: Vec<_> =
            tracked.rows().map(|(key, seen)| (key, seen.packets, seen.octets)).collect();
        rows.sort_unstable();
        assert_eq!(rows, [((0, 0, 1), 2, 128), ((0, 0, 2), 1, 64), ((3, 0, 1), 1, 64)]);
        assert_eq!(tracked.beyond, 0);
    }

    proptest! {
        #[test]
        fn a_place_holds_what_its_bits_hold(octets: [u8; 40], bits in prop::collection::vec((0usize..280, 1usize..33), 1..4)) {
            let read = place(&bits).read(&octets).map(|value| place(&bits).parts(value));
            let each: Option<Vec<u128>> = bits.iter().map(|&one| place(&[one]).read(&octets)).collect();
            prop_assert_eq!(read, each);
        }
    }
}
