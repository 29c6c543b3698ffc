//! Finds flows: open addressing with linear probing, allocated once.

/// Numbers of flows by the hash of their addresses and ports, four octets a slot. Who is meant
/// among those of the same hash, the caller knows.
pub(crate) struct Table {
    /// Below `number`: the number of the flow + 1; 0: free. Above: what fits of the upper end of
    /// the hash.
    slots: Box<[u32]>,
    mask: usize,
    number: u32,
}

impl Table {
    /// Room for `flows`, of which at most half of the slots are taken: runs of taken ones stay
    /// short.
    pub fn new(flows: u32) -> Self {
        let slots = (flows as usize * 2).next_power_of_two().max(64);
        let number = (flows.max(1) as usize + 1).next_power_of_two() as u32 - 1;
        Self { slots: vec![0; slots].into_boxed_slice(), mask: slots - 1, number }
    }

    pub fn memory(&self) -> usize {
        self.slots.len() * 4
    }

    /// The first flow of `hash` that `is_it`.
    #[inline(always)]
    pub fn find(&self, hash: u32, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = hash as usize & self.mask;
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None;
            }
            let flow = (slot & self.number).wrapping_sub(1);
            if (slot ^ hash) & !self.number == 0 && is_it(flow) {
                return Some(flow);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The number + 1 of the flow that stands where one of this hash is looked for first; 0: nobody
    /// does.
    #[inline]
    pub fn peek(&self, hash: u32) -> u32 {
        self.slots[hash as usize & self.mask] & self.number
    }

    #[inline]
    pub fn insert(&mut self, hash: u32, flow: u32) {
        let mut at = hash as usize & self.mask;
        while self.slots[at] != 0 {
            at = (at + 1) & self.mask;
        }
        self.slots[at] = self.slot(hash, flow);
    }

    #[inline]
    fn slot(&self, hash: u32, flow: u32) -> u32 {
        hash & !self.number | (flow + 1)
    }

    /// Takes `flow` out and moves up those behind it that may be nearer to their place: no
    /// tombstones. `hash_of` gives the hash of another flow.
    ///
    /// # Panics
    /// If it is not there.
    #[inline]
    pub fn remove(&mut self, hash: u32, flow: u32, hash_of: impl Fn(u32) -> u32) {
        let wanted = self.slot(hash, flow);
        let mut hole = hash as usize & self.mask;
        while self.slots[hole] != wanted {
            assert!(self.slots[hole] != 0, "a flow is in the table until it is removed");
            hole = (hole + 1) & self.mask;
        }
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
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_in_is_found_and_nothing_else(steps in proptest::collection::vec((0u32..24, any::<bool>()), 1..400)) {
            let mut table = Table::new(24);
            // Hashes that meet each other at the end of the table.
            let hash = |flow: u32| 60 + flow % 5;
            let mut model = std::collections::BTreeSet::new();
            for (flow, insert) in steps {
                if insert && model.insert(flow) {
                    table.insert(hash(flow), flow);
                } else if !insert && model.remove(&flow) {
                    table.remove(hash(flow), flow, hash);
                }
                for flow in 0..24 {
                    prop_assert_eq!(table.find(hash(flow), |f| f == flow).is_some(), model.contains(&flow));
                }
            }
        }
    }
}
