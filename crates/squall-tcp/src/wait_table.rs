//! Table of the tuples in TIME-WAIT, made for the order in which they come and go.
//!
//! A client takes its ports in sequence, so at any time it adds tuples, looks for new ones, and
//! removes old ones at a few places of that sequence. Tuples whose clients' ports differ only in the
//! last two bits are therefore in the same cache line, whatever their servers are. With a slot for
//! each tuple anywhere in the table, each of the three would be a cache miss, and so would be the
//! entries of its neighbors, which move when one is removed.

use crate::hash;

/// Finds the positions of entries of [`crate::waits::Waits`], in slots of four octets, at most
/// half of which are in use. The caller distinguishes tuples with equal hashes.
pub(crate) struct WaitTable {
    buckets: Buckets,
    /// The table before the last growth, until all of its entries are in the new one.
    old: Option<Old>,
    taken: usize,
    /// All positions have been below this one.
    end: u32,
    most: usize,
    /// Upper limit of positions.
    places: usize,
}

/// A tuple is in the bucket of its client's ports, or in one of some others that depend on all of the
/// tuple.
struct Buckets {
    /// Buckets begin at `first`, aligned to cache lines. In each, used slots come first; the last
    /// slot is about its tuples that are in others: how many there are, and in the upper octet, how
    /// many others may have some.
    slots: Vec<u32>,
    first: usize,
    mask: usize,
    /// The bits of a slot that hold the position + 1, or 0 if the slot is free. The other bits hold
    /// bits of the hash, which reveal most mismatches without loading an entry.
    number: u32,
}

struct Old {
    buckets: Buckets,
    /// The next position to move, and the end of those that may be in `buckets` only.
    next: u32,
    end: u32,
}

/// Where a tuple is in tables of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    bucket: u32,
    other: u32,
    tag: u32,
}

/// Slots of a bucket, which is a cache line: one is a count.
const SLOTS: usize = 16;
const COUNT: usize = SLOTS - 1;
/// Buckets that are tried for a tuple whose own bucket is full. Not neighbors, which would be full
/// together.
const OTHERS: usize = 8;
/// Position of the upper octet of a bucket's count, and the bits below.
const DEPTH: u32 = 24;
const COUNTED: u32 = (1 << DEPTH) - 1;
/// Slots of a new table: 16 KiB, half of a first-level cache.
const MIN_SLOTS: usize = 1 << 12;
/// The next table is larger by this factor: by two, each entry would move once on average.
const GROWTH: usize = 4;
/// Positions that are visited per insertion while there is an old table. Three times as many
/// insertions as the old table has entries make the table grow again, and there are few more
/// positions than entries.
const MOVES_PER_INSERT: u32 = 2;
/// Lower bits of a client's port that do not change the bucket.
const LANES: u32 = 2;

impl Home {
    /// The home of a tuple of two addresses (for IPv6, 64 bits of each that tell the addresses of
    /// a pool apart) and ports. The end with the greater port is taken for the client. If it is the
    /// server, its tuples have one bucket, and nearly all are in others.
    #[inline(always)]
    pub fn new(key: [u64; 2], local: (u64, u16), remote: (u64, u16)) -> Self {
        let (client, server) = if local.1 > remote.1 { (local, remote) } else { (remote, local) };
        let port = u64::from(client.1);
        let of_client = hash::wide(key, client.0, port >> LANES);
        let rest = port & ((1 << LANES) - 1) | u64::from(server.1) << LANES;
        let of_all = hash::wide([of_client, key[0]], server.0, rest);
        Self { bucket: of_client as u32, other: of_all as u32, tag: (of_all >> 32) as u32 }
    }
}

impl Buckets {
    /// With the most slots, all positions below `places` have room in a slot.
    fn new(slots: usize, most: usize, places: usize) -> Self {
        // Aligned by hand, because only a vector of numbers gets its zeros from the kernel.
        let all = vec![0u32; slots + SLOTS];
        let first = all.as_ptr().align_offset(64).min(SLOTS);
        let places = if slots == most { places } else { 0 };
        let number = (slots * 2).max((places + 1).next_power_of_two()) - 1;
        Self { slots: all, first, mask: slots / SLOTS - 1, number: number as u32 }
    }

    fn len(&self) -> usize {
        self.slots.len() - SLOTS
    }

    #[inline(always)]
    fn start(&self, bucket: usize) -> usize {
        self.first + (bucket & self.mask) * SLOTS
    }

    #[inline(always)]
    fn bucket(&self, start: usize) -> &[u32; SLOTS] {
        self.slots[start..].first_chunk().expect("buckets are whole")
    }

    #[inline(always)]
    fn slot(&self, home: Home, place: u32) -> u32 {
        home.tag & !self.number | (place + 1)
    }

    #[inline(always)]
    fn find(&self, home: Home, is: &impl Fn(u32) -> bool) -> Option<u32> {
        let start = self.start(home.bucket as usize);
        match (self.find_in(start, home, is), self.slots[start + COUNT] >> DEPTH) {
            (None, depth @ 1..) => self.find_among_others(depth, home, is),
            (found, _) => found,
        }
    }

    #[inline(never)]
    fn find_among_others(&self, depth: u32, home: Home, is: &impl Fn(u32) -> bool) -> Option<u32> {
        self.others(home).take(depth as usize).find_map(|start| self.find_in(start, home, is))
    }

    fn others(&self, home: Home) -> impl Iterator<Item = usize> + use<> {
        let (first, mask) = (self.first, self.mask);
        let (other, step) = (home.other as usize, home.tag as usize | 1);
        let bucket = move |n| other.wrapping_add(step.wrapping_mul(n)) & mask;
        (0..OTHERS).map(move |n| first + bucket(n) * SLOTS)
    }

    #[inline(always)]
    fn find_in(&self, start: usize, home: Home, is: &impl Fn(u32) -> bool) -> Option<u32> {
        let tag = home.tag & !self.number;
        let may = |slot: u32| (slot & !self.number == tag) & (slot & self.number != 0);
        let slots = &self.bucket(start)[..COUNT];
        // All slots at once, because there is hardly ever one.
        if !slots.iter().fold(false, |any, slot| any | may(*slot)) {
            return None;
        }
        let found = slots.iter().filter(|slot| may(**slot));
        found.map(|slot| (slot & self.number) - 1).find(|place| is(*place))
    }

    /// Whether there was room.
    #[inline(always)]
    fn insert(&mut self, home: Home, place: u32) -> bool {
        let start = self.start(home.bucket as usize);
        self.insert_in(start, home, place) || self.insert_elsewhere(home, place)
    }

    #[inline(never)]
    fn insert_elsewhere(&mut self, home: Home, place: u32) -> bool {
        let own = self.start(home.bucket as usize) + COUNT;
        let count = self.slots[own] & COUNTED;
        if count == COUNTED {
            return false;
        }
        for (depth, start) in (1..).zip(self.others(home)) {
            if self.insert_in(start, home, place) {
                self.slots[own] = self.slots[own].max(depth << DEPTH | count) + 1;
                return true;
            }
        }
        false
    }

    #[inline(always)]
    fn insert_in(&mut self, start: usize, home: Home, place: u32) -> bool {
        let used = self.used(start);
        if used == COUNT {
            return false;
        }
        self.slots[start + used] = self.slot(home, place);
        true
    }

    #[inline(always)]
    fn used(&self, start: usize) -> usize {
        let mut used = 0;
        for slot in &self.bucket(start)[..COUNT] {
            used += u32::from(*slot != 0);
        }
        used as usize
    }

    fn has(&self, home: Home, place: u32) -> bool {
        let own = self.start(home.bucket as usize);
        let slot = self.slot(home, place);
        let is_in = |start| self.bucket(start)[..COUNT].contains(&slot);
        is_in(own) || self.slots[own + COUNT] > 0 && self.others(home).any(is_in)
    }

    #[inline(always)]
    fn remove(&mut self, home: Home, place: u32) -> bool {
        let start = self.start(home.bucket as usize);
        self.remove_in(start, home, place) || self.remove_elsewhere(start, home, place)
    }

    #[inline(never)]
    fn remove_elsewhere(&mut self, own: usize, home: Home, place: u32) -> bool {
        let found = self.slots[own + COUNT] > 0
            && self.others(home).any(|start| self.remove_in(start, home, place));
        if found {
            let of_own = &mut self.slots[own + COUNT];
            *of_own -= 1;
            if *of_own & COUNTED == 0 {
                *of_own = 0;
            }
        }
        found
    }

    /// Removes a position, and moves the last slot of the bucket to its place.
    #[inline(always)]
    fn remove_in(&mut self, start: usize, home: Home, place: u32) -> bool {
        let slot = self.slot(home, place);
        // The slot's number, from 1; all slots at once. No tuple is in two slots.
        let mut at = 0;
        for (number, other) in self.bucket(start)[..COUNT].iter().enumerate() {
            at |= if *other == slot { number as u32 + 1 } else { 0 };
        }
        if at == 0 {
            return false;
        }
        let last = start + self.used(start) - 1;
        self.slots[start + at as usize - 1] = self.slots[last];
        self.slots[last] = 0;
        true
    }
}

impl WaitTable {
    /// A table for `flows` tuples. Positions are below `places`.
    pub fn new(flows: u32, places: usize) -> Self {
        let most = (flows as usize * 2).next_power_of_two().max(SLOTS);
        let buckets = Buckets::new(most.min(MIN_SLOTS), most, places);
        Self { buckets, old: None, taken: 0, end: 0, most, places }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    #[inline]
    pub fn memory(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |old| old.buckets.len());
        (self.buckets.len() + old) * 4
    }

    /// The position of a tuple, by its home. `is`: whether a position is in use by it.
    #[inline]
    pub fn find(&self, home: Home, is: impl Fn(u32) -> bool) -> Option<u32> {
        match (self.buckets.find(home, &is), &self.old) {
            (None, Some(old)) => old.buckets.find(home, &is),
            (found, _) => found,
        }
    }

    /// Prefetches the bucket of a tuple.
    #[inline(always)]
    pub fn touch(&self, home: Home) {
        std::hint::black_box(self.buckets.slots[self.buckets.start(home.bucket as usize)]);
    }

    /// Adds a position, whose entry may be stored already; `false`: there is no room. `home_of`
    /// returns the home of a position, `None` if it is not in use.
    #[inline]
    pub fn insert(
        &mut self,
        home: Home,
        place: u32,
        home_of: impl Fn(u32) -> Option<Home>,
    ) -> bool {
        // It would be added twice if it had a position of the old table and were next to move.
        let home_of = |other| if other == place { None } else { home_of(other) };
        if self.old.is_some() {
            self.migrate(MOVES_PER_INSERT, &home_of);
        }
        let len = self.buckets.len();
        if (self.taken * 2 > len || place >= self.buckets.number) && len < self.most {
            self.grow(&home_of);
        }
        if place >= self.buckets.number {
            return false;
        }
        self.end = self.end.max(place + 1);
        let has_room = self.buckets.insert(home, place);
        self.taken += usize::from(has_room);
        has_room
    }

    /// Removes a position.
    ///
    /// # Panics
    /// If it is not in the table.
    #[inline]
    pub fn remove(&mut self, home: Home, place: u32) {
        self.taken -= 1;
        let found = self.buckets.remove(home, place)
            || self.old.as_mut().is_some_and(|old| old.buckets.remove(home, place));
        assert!(found, "a tuple is in the table until it is removed");
    }

    #[cold]
    fn grow(&mut self, home_of: &impl Fn(u32) -> Option<Home>) {
        // Hardly ever: then the old table still has positions.
        self.migrate(u32::MAX, home_of);
        if self.old.is_some() {
            return;
        }
        let slots = (self.buckets.len() * GROWTH).min(self.most);
        let larger = Buckets::new(slots, self.most, self.places);
        let buckets = std::mem::replace(&mut self.buckets, larger);
        self.old = Some(Old { next: 0, end: self.end, buckets });
    }

    /// Adds some positions of the old table to the larger one, in their order, which is that of
    /// memory. They stay in the old one, too, where no look-up takes them for another tuple. One
    /// without room in the larger table stays in the old one, which then stays, too.
    #[cold]
    fn migrate(&mut self, most: u32, home_of: &impl Fn(u32) -> Option<Home>) {
        let Some(old) = &mut self.old else { return };
        for _ in 0..most {
            if old.next == old.end {
                self.old = None;
                return;
            }
            // A position that was used again after the growth is in the larger table already.
            if let Some(home) = home_of(old.next)
                && !self.buckets.has(home, old.next)
                && !self.buckets.insert(home, old.next)
            {
                return;
            }
            old.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    const KEY: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];

    fn home(address: u64, port: u16) -> Home {
        Home::new(KEY, (address, port), (7 + u64::from(port % 9), 80))
    }

    proptest! {
        /// Compares with a map. Few homes, so that buckets are full and others have their tuples;
        /// positions are used again, and the table grows meanwhile.
        #[test]
        fn look_up_finds_all_tuples_and_no_others(
            steps in prop::collection::vec((0u32..400, 0u32..3), 1..1500),
            homes in 1u32..40,
        ) {
            let mut table = WaitTable::new(1 << 12, 1 << 12);
            table.buckets = Buckets::new(SLOTS * 4, table.most, table.places);
            let of = |tuple: u32| home(u64::from(tuple % homes / 4), 1024 + (tuple % homes) as u16);
            let (mut model, mut tuples) = (BTreeMap::new(), HashMap::new());
            let mut free: Vec<u32> = (0..400).rev().collect();
            for (tuple, kind) in steps {
                if let Some(place) = model.get(&tuple).copied() {
                    if kind == 0 {
                        table.remove(of(tuple), place);
                        model.remove(&tuple);
                        tuples.remove(&place);
                        free.push(place);
                    }
                } else if let Some(place) = free.pop() {
                    tuples.insert(place, tuple);
                    let home_of = |place| tuples.get(&place).map(|tuple| of(*tuple));
                    if table.insert(of(tuple), place, home_of) {
                        model.insert(tuple, place);
                    } else {
                        tuples.remove(&place);
                        let same = model.keys().filter(|other| of(**other) == of(tuple)).count();
                        prop_assert!(same >= COUNT, "{same} tuples have this home");
                        free.push(place);
                    }
                }
                let found = |tuple| table.find(of(tuple), |place| tuples.get(&place) == Some(&tuple));
                for other in [tuple, tuple / 2, tuple + 1] {
                    prop_assert_eq!(found(other), model.get(&other).copied());
                }
            }
            prop_assert_eq!(table.taken, model.len());
            for tuple in 0..400 {
                let found = table.find(of(tuple), |place| tuples.get(&place) == Some(&tuple));
                prop_assert_eq!(found, model.get(&tuple).copied());
            }
        }
    }

    /// Clients that take turns, each with its next port; the first tuples end while others come.
    #[test]
    fn it_has_room_for_ports_in_sequence_and_grows_without_losing_any() {
        const CLIENTS: u32 = 250;
        const MOST: u32 = 200_000;
        let mut table = WaitTable::new(MOST, 1 << 18);
        let of = |tuple: u32| home((tuple % CLIENTS).into(), 1024 + (tuple / CLIENTS) as u16);
        let mut live = VecDeque::new();
        let mut places: Vec<Option<u32>> = vec![None; 1 << 18];
        let mut free: Vec<u32> = (0..1 << 18).rev().collect();
        let mut sizes = vec![table.buckets.len()];
        for tuple in 0..400_000 {
            let place = free.pop().unwrap();
            places[place as usize] = Some(tuple);
            let home_of = |place: u32| places[place as usize].map(of);
            assert!(table.insert(of(tuple), place, home_of), "{tuple}");
            live.push_back((tuple, place));
            if live.len() > 150_000 || tuple % 3 == 2 {
                let (first, place) = live.pop_front().unwrap();
                table.remove(of(first), place);
                places[place as usize] = None;
                free.push(place);
                assert_eq!(table.find(of(first), |p| places[p as usize] == Some(first)), None);
            }
            let (some, place) = live[live.len() / 2];
            assert_eq!(table.find(of(some), |p| places[p as usize] == Some(some)), Some(place));
            if *sizes.last().unwrap() != table.buckets.len() {
                sizes.push(table.buckets.len());
            }
        }
        assert_eq!(
            sizes,
            (12..=18).step_by(2).chain([19]).map(|bits| 1 << bits).collect::<Vec<_>>()
        );
        assert!(table.old.is_none());
        for (tuple, place) in live {
            table.remove(of(tuple), place);
        }
        assert!(table.is_empty() && table.buckets.slots.iter().all(|slot| *slot == 0));
    }

    #[test]
    fn ports_next_to_each_other_share_their_bucket_on_either_side() {
        for port in [1024, 1028, 40_000] {
            let first = home(7, port);
            for more in 0..4 {
                let next = home(7, port + more);
                assert_eq!(next.bucket, first.bucket);
                assert!(more == 0 || next.tag != first.tag && next.other != first.other);
                let (client, server) = ((7, port + more), (7 + u64::from((port + more) % 9), 80));
                assert_eq!(Home::new(KEY, server, client), next);
            }
            assert_ne!(home(7, port + 4).bucket, first.bucket);
        }
    }

    #[test]
    fn one_client_port_with_many_servers_has_room() {
        const TUPLES: u32 = 100_000;
        let mut table = WaitTable::new(TUPLES, TUPLES as usize);
        let of = |tuple: u32| Home::new(KEY, (1, 1024), (tuple.into(), 80));
        let home_of = |place| Some(of(place));
        let refused = (0..TUPLES).filter(|n| !table.insert(of(*n), *n, home_of)).count();
        assert_eq!(refused, 0);
        assert!((0..TUPLES).all(|n| table.find(of(n), |place| place == n) == Some(n)));
        (0..TUPLES).for_each(|n| table.remove(of(n), n));
        assert!(table.is_empty() && table.buckets.slots.iter().all(|slot| *slot == 0));
    }
}
