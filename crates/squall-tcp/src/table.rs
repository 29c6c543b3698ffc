//! Flow table: open addressing with linear probing; grows with the number of flows.
//!
//! A table sized for the maximum would take megabytes, and every lookup would touch another page.
//! It doubles when half full; a few flows move at each insertion, so no insertion has to wait for
//! all of them.

/// Maps the hash of a flow's addresses and ports to the flow's number; four octets per slot. The
/// caller distinguishes flows with equal hashes.
pub(crate) struct Table {
    slots: Slots,
    /// The table before the last doubling, while it still has flows.
    old: Option<Old>,
    taken: usize,
    most: usize,
}

/// The low bits (`number`) hold the flow's number + 1, or 0 if the slot is free; the other bits
/// hold the upper bits of the hash, which reveal most mismatches without loading a record.
struct Slots {
    slots: Box<[u32]>,
    mask: usize,
    number: u32,
}

struct Old {
    slots: Slots,
    /// Where to continue moving (after a free slot, so no run is split), and how many slots are
    /// left to visit.
    at: usize,
    left: usize,
}

/// Slots of a new table: 16 KiB, half of a first-level cache.
const MIN_SLOTS: usize = 1 << 12;
/// Slots of the smaller table visited per insertion. Any number from two on empties it before the
/// larger one is half full; 16 shortens the time in which there are two tables.
const MOVES_PER_INSERT: usize = 16;

/// See [`Table::find`].
pub(crate) struct Candidates<'t> {
    slots: &'t Slots,
    /// The table to search next.
    old: Option<&'t Old>,
    at: usize,
    hash: u32,
}

impl Iterator for Candidates<'_> {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        loop {
            let slot = self.slots.slots[self.at];
            if slot == 0 {
                self.slots = &self.old.take()?.slots;
                self.at = self.hash as usize & self.slots.mask;
                continue;
            }
            self.at = (self.at + 1) & self.slots.mask;
            if (slot ^ self.hash) & !self.slots.number == 0 {
                return Some((slot & self.slots.number).wrapping_sub(1));
            }
        }
    }
}

impl Slots {
    fn new(slots: usize, number: u32) -> Self {
        Self { slots: vec![0; slots].into_boxed_slice(), mask: slots - 1, number }
    }

    #[inline]
    fn slot(&self, hash: u32, flow: u32) -> u32 {
        hash & !self.number | (flow + 1)
    }

    #[inline]
    fn insert(&mut self, hash: u32, flow: u32) {
        let mut at = hash as usize & self.mask;
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = self.slot(hash, flow);
    }

    /// The slot of `flow`.
    #[inline]
    fn at(&self, hash: u32, flow: u32) -> Option<usize> {
        let wanted = self.slot(hash, flow);
        let mut at = hash as usize & self.mask;
        while self.slots[at] != wanted {
            if self.slots[at] == 0 {
                return None;
            }
            at = (at + 1) & self.mask;
        }
        Some(at)
    }

    /// Removes `flow` and closes the hole with later entries of its run: tombstones would lengthen
    /// the runs more and more. Returns whether it was present.
    #[inline]
    fn remove(&mut self, hash: u32, flow: u32, hash_of: impl Fn(u32) -> u32) -> bool {
        let Some(mut hole) = self.at(hash, flow) else { return false };
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            let home = hash_of((slot & self.number) - 1) as usize & self.mask;
            if at.wrapping_sub(home) & self.mask >= at.wrapping_sub(hole) & self.mask {
                self.slots[hole] = slot;
                hole = at;
            }
        }
        self.slots[hole] = 0;
        true
    }
}

impl Table {
    /// A table for `flows` flows, with at most half of the slots in use: linear probing then visits
    /// 1.5 slots on average for a hit. Flow numbers are below `numbers`.
    pub fn new(flows: u32, numbers: usize) -> Self {
        let most = (flows as usize * 2).next_power_of_two().max(64);
        let number = ((numbers.max(1) + 1).next_power_of_two() - 1) as u32;
        Self { slots: Slots::new(most.min(MIN_SLOTS), number), old: None, taken: 0, most }
    }

    #[inline]
    pub fn memory(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |old| old.slots.slots.len());
        (self.slots.slots.len() + old) * 4
    }

    /// The flows that may have this hash. An iterator, because a closure that compares keys would not
    /// be inlined.
    #[inline(always)]
    pub fn find(&self, hash: u32) -> Candidates<'_> {
        let at = hash as usize & self.slots.mask;
        Candidates { slots: &self.slots, old: self.old.as_ref(), at, hash }
    }

    /// The number + 1 of the flow in the first slot of `hash`; 0: free.
    #[inline]
    pub fn peek(&self, hash: u32) -> u32 {
        let of = |slots: &Slots| slots.slots[hash as usize & slots.mask] & slots.number;
        match (of(&self.slots), &self.old) {
            (0, Some(old)) => of(&old.slots),
            (flow, _) => flow,
        }
    }

    /// Adds a flow. `hash_of` returns the hash of any other flow.
    #[inline]
    pub fn insert(&mut self, hash: u32, flow: u32, hash_of: impl Fn(u32) -> u32) {
        self.taken += 1;
        if self.old.is_some() {
            self.migrate(hash_of);
        } else if self.taken * 2 > self.slots.slots.len() && self.slots.slots.len() < self.most {
            self.grow();
        }
        self.slots.insert(hash, flow);
    }

    /// Removes `flow`. `hash_of` returns the hash of any other flow.
    ///
    /// # Panics
    /// If the flow is not in the table.
    #[inline]
    pub fn remove(&mut self, hash: u32, flow: u32, hash_of: impl Fn(u32) -> u32) {
        self.taken -= 1;
        let found = self.slots.remove(hash, flow, &hash_of)
            || self.old.as_mut().is_some_and(|old| old.slots.remove(hash, flow, hash_of));
        assert!(found, "a flow is in the table until it is removed");
    }

    #[cold]
    fn grow(&mut self) {
        let larger = Slots::new(self.slots.slots.len() * 2, self.slots.number);
        let slots = std::mem::replace(&mut self.slots, larger);
        // The table is half full, so there is a free slot.
        let free = slots.slots.iter().position(|slot| *slot == 0).unwrap_or(0);
        let left = slots.slots.len();
        self.old = Some(Old { at: (free + 1) & slots.mask, slots, left });
    }

    /// Moves only whole runs of used slots: a lookup stops at the first free slot and would miss
    /// the rest of a split run.
    #[cold]
    fn migrate(&mut self, hash_of: impl Fn(u32) -> u32) {
        let Some(old) = &mut self.old else { return };
        let mut seen = 0;
        loop {
            let slot = std::mem::take(&mut old.slots.slots[old.at]);
            old.at = (old.at + 1) & old.slots.mask;
            seen += 1;
            if slot > 0 {
                let flow = (slot & old.slots.number) - 1;
                self.slots.insert(hash_of(flow), flow);
            } else if seen >= MOVES_PER_INSERT.min(old.left) {
                break;
            }
        }
        old.left = old.left.saturating_sub(seen);
        if old.left == 0 {
            self.old = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn look_up_finds_all_flows_and_no_others(
            steps in proptest::collection::vec((0u32..24, any::<bool>()), 1..400),
            grown in any::<bool>(),
        ) {
            let mut table = Table::new(24, 24);
            // Hashes that collide and wrap around the end of the table.
            let hash = |flow: u32| 60 + flow % 5;
            if grown {
                table.slots = Slots::new(4, table.slots.number);
            }
            let mut model = std::collections::BTreeSet::new();
            for (flow, add) in steps {
                if add && model.insert(flow) {
                    table.insert(hash(flow), flow, hash);
                } else if !add && model.remove(&flow) {
                    table.remove(hash(flow), flow, hash);
                }
                for flow in 0..24 {
                    prop_assert_eq!(table.find(hash(flow)).any(|f| f == flow), model.contains(&flow));
                }
            }
        }
    }

    #[test]
    fn it_grows_with_its_flows_while_they_come_and_go_and_no_further() {
        let most = 100_000;
        let mut table = Table::new(most, most as usize);
        let hash = |flow: u32| (flow + 1).wrapping_mul(0x9e37_79b1);
        let found = |table: &Table, flow: u32| table.find(hash(flow)).any(|f| f == flow);
        assert_eq!(table.memory(), MIN_SLOTS * 4);
        let (mut first, mut doubled) = (0, 0);
        for flow in 0..most {
            let before = table.slots.slots.len();
            table.insert(hash(flow), flow, hash);
            doubled += u32::from(table.slots.slots.len() > before);
            // For every three flows added, an arbitrary one is removed.
            if flow % 3 == 2 {
                table.remove(hash(first), first, hash);
                first += 1;
            }
            let some = [first, first + (flow - first) / 2, flow];
            assert!(some.iter().all(|&flow| found(&table, flow)), "{flow}");
            assert!(first == 0 || !found(&table, first - 1));
            assert!(table.taken * 2 <= table.slots.slots.len());
        }
        assert_eq!((doubled, table.slots.slots.len()), (6, 1 << 18));
        assert!((first..most).all(|flow| found(&table, flow)));
        (first..most).for_each(|flow| table.remove(hash(flow), flow, hash));
        assert_eq!(table.taken, 0);
        assert!(table.slots.slots.iter().all(|slot| *slot == 0));
    }
}
