//! Timers: a hierarchical timing wheel whose lists are linked through the flow records, with one
//! entry per flow. Adding, removing and finding the next flow cost the same for one flow as for
//! millions.

use squall_units::Nanos;

/// A tick is 2^16 ns: 65.5 us. 2^31 ticks, the furthest possible deadline, are 39 h.
const TICK_BITS: u32 = 16;
const SLOTS: usize = 256;
const LEVELS: usize = 5;

/// Links to the adjacent flows in a list of the wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub next: u32,
    /// The previous flow, or `FIRST` and the slot; `NONE` if the flow is not in the wheel.
    pub prev: u32,
    /// The due tick, lower half.
    pub at: u32,
}

const NONE: u32 = u32::MAX;
const FIRST: u32 = 1 << 31;

impl Link {
    pub const OUT: Self = Self { next: NONE, prev: NONE, at: 0 };

    #[inline]
    pub fn is_in(&self) -> bool {
        self.prev != NONE
    }
}

/// Records with links.
pub(crate) trait Links {
    fn link(&mut self, flow: u32) -> &mut Link;
}

pub(crate) struct Wheel {
    /// The current tick: it and all earlier ones are over.
    now: u64,
    /// By level, 256 slots each.
    heads: Box<[u32]>,
    /// Slots that have flows.
    taken: [[u64; SLOTS / 64]; LEVELS],
}

/// The first tick at whose end `at` is over: rounded up, so no timer fires early.
#[inline]
pub(crate) fn tick_after(at: Nanos) -> u32 {
    (at.0.div_ceil(1 << TICK_BITS)) as u32
}

/// The tick that contains `now`.
#[inline]
pub(crate) fn tick(now: Nanos) -> u32 {
    (now.0 >> TICK_BITS) as u32
}

/// Ticks of a duration, rounded up.
#[inline]
pub(crate) fn ticks(time: Nanos) -> u32 {
    time.0.div_ceil(1 << TICK_BITS).min(1 << 30) as u32
}

impl Wheel {
    pub fn new() -> Self {
        Self {
            now: 0,
            heads: vec![NONE; SLOTS * LEVELS].into_boxed_slice(),
            taken: Default::default(),
        }
    }

    /// Adds `flow`, which is not in the wheel, at tick `at` (its lower half, relative to `now`). A
    /// tick in the past becomes the next one.
    #[inline]
    pub fn insert(&mut self, flows: &mut impl Links, flow: u32, at: u32, now: Nanos) {
        let now = now.0 >> TICK_BITS;
        let ahead = (at.wrapping_sub(now as u32) as i32).max(1);
        self.put(flows, flow, (now + ahead as u64).max(self.now + 1));
    }

    fn put(&mut self, flows: &mut impl Links, flow: u32, at: u64) {
        // The level is the highest digit in which the tick differs from the current one.
        let level =
            ((63 - ((at ^ self.now) | 1).leading_zeros()) / 8).min(LEVELS as u32 - 1) as usize;
        let slot = (at >> (8 * level)) as usize % SLOTS;
        let head = level * SLOTS + slot;
        let next = std::mem::replace(&mut self.heads[head], flow);
        *flows.link(flow) = Link { next, prev: FIRST | head as u32, at: at as u32 };
        if next == NONE {
            self.taken[level][slot / 64] |= 1 << (slot % 64);
        } else {
            flows.link(next).prev = flow;
        }
    }

    /// Removes `flow`, if it is in the wheel.
    #[inline]
    pub fn remove(&mut self, flows: &mut impl Links, flow: u32) {
        let link = std::mem::replace(flows.link(flow), Link::OUT);
        if link.prev == NONE {
            return;
        }
        if link.next != NONE {
            flows.link(link.next).prev = link.prev;
        }
        if link.prev & FIRST == 0 {
            flows.link(link.prev).next = link.next;
        } else {
            let head = (link.prev & !FIRST) as usize;
            self.heads[head] = link.next;
            if link.next == NONE {
                self.taken[head / SLOTS][head % SLOTS / 64] &= !(1 << (head % 64));
            }
        }
    }

    /// When the wheel must advance: a flow is due, or flows must move to a finer level.
    pub fn next(&self) -> Option<Nanos> {
        self.first().map(|(_, _, at)| Nanos(at << TICK_BITS))
    }

    /// Lower half of the current tick.
    pub fn now(&self) -> u32 {
        self.now as u32
    }

    /// Start of tick `at`, given its lower half.
    pub fn instant(&self, at: u32) -> Nanos {
        let ahead = (at.wrapping_sub(self.now as u32) as i32).max(0);
        Nanos((self.now + ahead as u64) << TICK_BITS)
    }

    /// Start of tick `at`, which is at most 2^30 ticks away.
    pub fn instant_near(&self, at: u32) -> Nanos {
        let ahead = i64::from(at.wrapping_sub(self.now as u32) as i32);
        Nanos(self.now.saturating_add_signed(ahead) << TICK_BITS)
    }

    /// Removes the next flow that is due by `now`; `None` if there is none, and the wheel has
    /// reached `now`.
    pub fn expire(&mut self, flows: &mut impl Links, now: Nanos) -> Option<u32> {
        let until = now.0 >> TICK_BITS;
        while let Some((level, slot, at)) = self.first()
            && at <= until
        {
            self.now = at;
            let head = level * SLOTS + slot;
            if level == 0 {
                let flow = self.heads[head];
                self.remove(flows, flow);
                return Some(flow);
            }
            let mut flow = std::mem::replace(&mut self.heads[head], NONE);
            self.taken[level][slot / 64] &= !(1 << (slot % 64));
            while flow != NONE {
                let link = *flows.link(flow);
                self.put(flows, flow, at + u64::from(link.at.wrapping_sub(at as u32)));
                flow = link.next;
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// The first slot with flows, and the tick at which it begins.
    fn first(&self) -> Option<(usize, usize, u64)> {
        (0..LEVELS).find_map(|level| {
            let from = (self.now >> (8 * level)) as usize % SLOTS;
            let slot = next_bit(&self.taken[level], from)?;
            let above = self.now >> (8 * level) >> 8 << 8;
            // A slot before the current one belongs to the next turn of its level. Only the highest
            // level has such slots: at other levels, these flows would be in a higher level.
            let turn = if slot < from { SLOTS as u64 } else { 0 };
            Some((level, slot, (above + slot as u64 + turn) << (8 * level)))
        })
    }
}

/// The first set bit at or after `from`, wrapping around.
fn next_bit(bits: &[u64; SLOTS / 64], from: usize) -> Option<usize> {
    let word = from / 64;
    let following = bits[word] & (u64::MAX << (from % 64));
    if following != 0 {
        return Some(word * 64 + following.trailing_zeros() as usize);
    }
    (1..=bits.len())
        .map(|i| (word + i) % bits.len())
        .find(|&w| bits[w] != 0)
        .map(|w| w * 64 + bits[w].trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Links for Vec<Link> {
        fn link(&mut self, flow: u32) -> &mut Link {
            &mut self[flow as usize]
        }
    }

    proptest! {
        #[test]
        fn every_timer_fires_once_at_its_tick(
            start in prop_oneof![Just(0u64), Just((1 << 32) - 300), any::<u32>().prop_map(u64::from)],
            waits in proptest::collection::vec(prop_oneof![0u32..600, 0u32..100_000, 0..1u32 << 30], 1..60),
            dropped in proptest::collection::vec(any::<bool>(), 60),
        ) {
            let mut wheel = Wheel::new();
            let mut links = vec![Link::OUT; waits.len()];
            let at = |tick: u64| Nanos(tick << TICK_BITS);
            prop_assert_eq!(wheel.expire(&mut links, at(start)), None);
            for (flow, wait) in waits.iter().enumerate() {
                wheel.insert(&mut links, flow as u32, (start as u32).wrapping_add(*wait), at(start));
            }
            for flow in (0..waits.len()).filter(|&f| dropped[f]) {
                wheel.remove(&mut links, flow as u32);
            }
            let mut fired = vec![None; waits.len()];
            let mut steps = 0;
            while let Some(due) = wheel.next() {
                while let Some(flow) = wheel.expire(&mut links, due) {
                    prop_assert!(fired[flow as usize].replace(due).is_none());
                }
                steps += 1;
                prop_assert!(steps < 6 * waits.len(), "stalls");
            }
            for (flow, wait) in waits.iter().enumerate() {
                let expected = (!dropped[flow]).then(|| at(start + u64::from((*wait).max(1))));
                prop_assert_eq!(fired[flow], expected);
            }
        }
    }
}
