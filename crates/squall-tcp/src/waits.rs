//! Flows in TIME-WAIT: addresses, ports, and the state needed to handle an old segment or a new
//! SYN, ordered by their end.
//!
//! With 500,000 flows/s, full records for one second of TIME-WAIT would take 46 MiB, and each would
//! miss the cache again when it ends. A [`Wait`] takes a third of that, is read sequentially, and
//! lets flow records be reused while they are in the cache.

use std::collections::VecDeque;

use crate::seq::{le, lt};

/// A flow in TIME-WAIT that owes its peer nothing.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Wait {
    /// IPv4 addresses; for IPv6, `remote` is the row of a whole pair
    /// ([`crate::addresses::Addresses6`]).
    pub local: u32,
    pub remote: u32,
    pub local_port: u16,
    pub remote_port: u16,
    pub class: u16,
    pub bits: WaitBits,
    pub snd_nxt: u32,
    pub rcv_nxt: u32,
    pub ts_recent: u32,
    /// The tick at which it ends.
    pub ends: u32,
}

/// Flags of [`crate::flow::Bits`] at the same positions, and two more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitBits(pub u16);

impl WaitBits {
    /// Window scaling is in effect.
    pub const SCALED: u16 = 1 << 0;
    /// No longer in TIME-WAIT.
    const GONE: u16 = 1 << 1;

    pub fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }
}

/// One queue per duration of TIME-WAIT. In a queue later entries end later, so expiry only checks
/// the head.
pub(crate) struct Waits {
    chunks: Vec<Box<[Wait; CHUNK]>>,
    spare: Vec<u32>,
    max_chunks: usize,
    rings: Vec<Ring>,
}

struct Ring {
    /// Ticks.
    wait: u32,
    chunks: VecDeque<u32>,
    /// Index of the first entry in the first chunk, and of the next entry in the last chunk.
    head: usize,
    tail: usize,
    /// When the last entry ends.
    last: u32,
}

// Entries are in chunks of 32 KiB, because growth must not move them: the table has their
// positions.
const CHUNK: usize = 1024;

const EMPTY: Wait = Wait {
    local: 0,
    remote: 0,
    local_port: 0,
    remote_port: 0,
    class: 0,
    bits: WaitBits(WaitBits::GONE),
    snd_nxt: 0,
    rcv_nxt: 0,
    ts_recent: 0,
    ends: 0,
};

impl Waits {
    /// Has room for about `most` entries.
    pub fn new(most: u32) -> Self {
        let max_chunks = most as usize / CHUNK + 1;
        Self { chunks: Vec::new(), spare: Vec::new(), max_chunks, rings: Vec::new() }
    }

    /// Upper limit of positions.
    pub fn most(&self) -> usize {
        self.max_chunks * CHUNK
    }

    pub fn memory(&self) -> usize {
        self.chunks.len() * size_of::<[Wait; CHUNK]>()
    }

    /// The queue for a duration of `wait` ticks.
    pub fn ring(&mut self, wait: u32) -> usize {
        self.rings.iter().position(|ring| ring.wait == wait).unwrap_or_else(|| {
            self.rings.push(Ring { wait, chunks: VecDeque::new(), head: 0, tail: 0, last: 0 });
            self.rings.len() - 1
        })
    }

    /// Adds an entry and returns its position; `None` if there is no room, or if it would end
    /// before the last entry (its flow had to answer an old segment in between).
    #[inline]
    pub fn push(&mut self, ring: usize, wait: Wait) -> Option<u32> {
        let ring = &mut self.rings[ring];
        if !ring.is_empty() && lt(wait.ends, ring.last) {
            return None;
        }
        if ring.chunks.is_empty() || ring.tail == CHUNK {
            let chunk = match self.spare.pop() {
                Some(chunk) => chunk,
                None if self.chunks.len() < self.max_chunks => {
                    self.chunks.push(Box::new([EMPTY; CHUNK]));
                    self.chunks.len() as u32 - 1
                }
                None => return None,
            };
            ring.chunks.push_back(chunk);
            ring.tail = 0;
        }
        let chunk = *ring.chunks.back()?;
        self.chunks[chunk as usize][ring.tail] = wait;
        let place = chunk * CHUNK as u32 + ring.tail as u32;
        (ring.tail, ring.last) = (ring.tail + 1, wait.ends);
        Some(place)
    }

    #[inline]
    pub fn get(&self, place: u32) -> &Wait {
        &self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// The entry at a position that may not be in use.
    #[inline]
    pub fn find(&self, place: u32) -> Option<&Wait> {
        let chunk = self.chunks.get(place as usize / CHUNK)?;
        Some(&chunk[place as usize % CHUNK]).filter(|wait| !wait.bits.has(WaitBits::GONE))
    }

    /// Removes an entry before its end.
    pub fn take(&mut self, place: u32) -> Wait {
        let wait = &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK];
        let taken = *wait;
        wait.bits.0 |= WaitBits::GONE;
        taken
    }

    /// The next entry that ends by tick `now`, and its position.
    #[inline]
    pub fn expire(&mut self, now: u32) -> Option<(u32, Wait)> {
        for ring in &mut self.rings {
            while let Some(&chunk) = ring.chunks.front() {
                if ring.is_empty() {
                    (ring.head, ring.tail) = (0, 0);
                    break;
                }
                if ring.head == CHUNK {
                    ring.chunks.pop_front();
                    self.spare.push(chunk);
                    ring.head = 0;
                    continue;
                }
                let wait = &mut self.chunks[chunk as usize][ring.head];
                let gone = wait.bits.has(WaitBits::GONE);
                if !gone && !le(wait.ends, now) {
                    break;
                }
                let place = chunk * CHUNK as u32 + ring.head as u32;
                ring.head += 1;
                if !gone {
                    wait.bits.0 |= WaitBits::GONE;
                    return Some((place, *wait));
                }
            }
        }
        None
    }

    /// The tick at which the next entry may end, in the cyclic order that starts at `now`.
    #[inline]
    pub fn next(&self, now: u32) -> Option<u32> {
        let first = |ring: &Ring| {
            let (Some(&chunk), false) = (ring.chunks.front(), ring.is_empty()) else { return None };
            // The head has passed the end of its chunk; `expire` moves to the next one.
            let first = self.chunks[chunk as usize].get(ring.head);
            Some(first.map_or(now, |wait| wait.ends))
        };
        let ahead = |ends: &u32| ends.wrapping_sub(now) as i32;
        self.rings.iter().filter_map(first).min_by_key(ahead)
    }
}

impl Ring {
    #[inline]
    fn is_empty(&self) -> bool {
        self.chunks.is_empty() || self.chunks.len() == 1 && self.head == self.tail
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wait(number: u32, ends: u32) -> Wait {
        Wait { local: number, ends, bits: WaitBits(0), ..EMPTY }
    }

    #[test]
    fn a_wait_is_half_a_cache_line() {
        assert_eq!(size_of::<Wait>(), 32);
    }

    #[test]
    fn capacity_is_limited_and_freed_by_expiry() {
        let mut waits = Waits::new(2 * CHUNK as u32 - 1);
        let ring = waits.ring(100);
        let places = (0..3 * CHUNK as u32).map_while(|i| waits.push(ring, wait(i, i))).count();
        assert_eq!((places, waits.most()), (2 * CHUNK, 2 * CHUNK));
        for i in 0..=CHUNK as u32 {
            let (_, ended) = waits.expire(u32::MAX / 2).unwrap();
            assert_eq!(ended.local, i);
        }
        assert!(waits.push(ring, wait(0, 3 * CHUNK as u32)).is_some());
    }

    #[test]
    fn push_refuses_entries_that_would_end_out_of_order() {
        let mut waits = Waits::new(10);
        let ring = waits.ring(100);
        assert!(waits.push(ring, wait(1, u32::MAX)).is_some());
        assert!(waits.push(ring, wait(2, 5)).is_some());
        assert!(waits.push(ring, wait(3, 4)).is_none());
        assert_eq!(waits.next(u32::MAX - 3), Some(u32::MAX));
        assert_eq!(waits.expire(u32::MAX).unwrap().1.local, 1);
        assert!(waits.expire(4).is_none());
        assert_eq!(waits.expire(5).unwrap().1.local, 2);
        assert!(waits.push(ring, wait(4, 3)).is_some());
    }

    proptest! {
        /// Compares with a list, for two durations: no entry may be lost, early or late.
        #[test]
        fn all_end_when_they_should(
            steps in prop::collection::vec((0u32..3, 0u32..200, 0u32..4000), 1..40),
        ) {
            let mut waits = Waits::new(1 << 16);
            let rings = [waits.ring(50), waits.ring(300)];
            let (mut model, mut now, mut number) = (Vec::new(), u32::MAX - 1000, 0);
            for (kind, time, count) in steps {
                now = now.wrapping_add(time);
                for i in 0..count {
                    let (ring, after) = [(0, 50), (1, 300)][(i & 1) as usize];
                    let ends = now.wrapping_add(after);
                    if let Some(place) = waits.push(rings[ring], wait(number, ends)) {
                        model.push((number, ends, place));
                    }
                    number += 1;
                }
                if kind == 0 && !model.is_empty() {
                    let (number, ends, place) = model.swap_remove(model.len() / 2);
                    prop_assert_eq!(waits.get(place).ends, ends);
                    prop_assert_eq!(waits.take(place).local, number);
                }
                if let Some(first) = model.iter().map(|(_, ends, _)| ends.wrapping_sub(now)).min() {
                    let next = waits.next(now).map(|ends| ends.wrapping_sub(now) as i32);
                    prop_assert!(next.is_some_and(|next| next <= first as i32));
                }
                let mut ended = Vec::new();
                while let Some((place, wait)) = waits.expire(now) {
                    ended.push((wait.local, wait.ends, place));
                }
                let mut due: Vec<_> =
                    model.iter().filter(|(_, ends, _)| le(*ends, now)).copied().collect();
                model.retain(|(_, ends, _)| !le(*ends, now));
                due.sort_unstable();
                ended.sort_unstable();
                prop_assert_eq!(ended, due);
            }
        }
    }
}
