//! Timers: a hierarchical timing wheel. Its entries are numbers of flows: the slot of an entry says
//! roughly when it is due, and the flow's record has the exact times. Adding an entry and finding
//! the next one cost the same for one flow as for millions.
//!
//! A flow has at most one entry that counts, in the slot that its number names. Entries are never
//! removed before they are due, because a list that allows that needs 8 octets more in each record,
//! and writes to the records of other flows. Instead, an entry that no longer counts is skipped
//! when its slot is reached.

use squall_units::Nanos;

/// A tick is 2^16 ns: 65.5 us. 2^31 ticks, the furthest possible deadline, are 39 h.
const TICK_BITS: u32 = 16;
const SLOTS: usize = 256;
const LEVELS: usize = 5;

/// In place of a slot: the flow has no entry.
pub(crate) const OUT: u16 = u16::MAX;
/// Marks flows whose entry was found while entries that do not count are removed.
const SEEN: u16 = 1 << 15;

/// Number of entries that do not count which are kept in any case.
const STALE: usize = 1024;
/// Longest slot whose memory is kept when it is empty, entries.
const KEPT: usize = 1024;

/// Records of flows.
pub(crate) trait Records {
    /// The slot of the flow's entry, or [`OUT`].
    fn slot(&mut self, flow: u32) -> &mut u16;

    /// The tick of the flow's next deadline at tick `now` (lower halves). `None`: it has none.
    fn deadline(&self, flow: u32, now: u32) -> Option<u32>;

    /// Whether the number belongs to no flow.
    fn is_free(&self, flow: u32) -> bool;

    fn count(&self) -> usize;
}

pub(crate) struct Wheel {
    /// The current tick: it and all earlier ones are over.
    now: u64,
    /// By level, 256 slots each.
    slots: Box<[Vec<u32>]>,
    /// Slots that have entries.
    taken: [[u64; SLOTS / 64]; LEVELS],
    /// The number of all entries, of entries that do not count, and of entries that do but of free
    /// numbers: the next flow with such a number takes over its entry.
    entries: usize,
    stale: usize,
    parked: usize,
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
    time.0.div_ceil(1 << TICK_BITS).min(3 << 29) as u32
}

impl Wheel {
    pub fn new() -> Self {
        Self {
            now: 0,
            slots: vec![Vec::new(); SLOTS * LEVELS].into_boxed_slice(),
            taken: Default::default(),
            entries: 0,
            stale: 0,
            parked: 0,
        }
    }

    /// Memory of the entries, octets.
    pub fn memory(&self) -> usize {
        self.slots.iter().map(|slot| slot.capacity() * 4).sum()
    }

    /// Makes sure that `flow` has an entry that is due by tick `at` (its lower half, relative to
    /// `now`). A tick in the past becomes the next one.
    #[inline(always)]
    pub fn wake(&mut self, flows: &mut impl Records, flow: u32, at: u32, now: Nanos) {
        if self.is_late(*flows.slot(flow), at) {
            self.add(flows, flow, at, now);
        }
    }

    /// Whether an entry in `slot` ([`OUT`]: there is none) may come too late for tick `at`.
    #[inline(always)]
    pub fn is_late(&self, slot: u16, at: u32) -> bool {
        slot == OUT || (at.wrapping_sub(self.begins(slot)) as i32) < 0
    }

    /// The tick at which a slot with entries begins, lower half.
    #[inline(always)]
    fn begins(&self, slot: u16) -> u32 {
        let shift = u32::from(slot) >> 8 << 3;
        let here = self.now >> shift;
        // Slots before the current one belong to the next turn of their level.
        let ahead = (slot as u8).wrapping_sub(here as u8);
        ((here + u64::from(ahead)) << shift) as u32
    }

    #[inline(never)]
    fn add(&mut self, flows: &mut impl Records, flow: u32, at: u32, now: Nanos) {
        if std::mem::replace(flows.slot(flow), OUT) != OUT {
            self.stale += 1;
            if self.stale > flows.count().max(STALE) {
                self.sweep(flows);
            }
        }
        let now = now.0 >> TICK_BITS;
        let ahead = (at.wrapping_sub(now as u32) as i32).max(1);
        self.entries += 1;
        self.put(flows, flow, (now + ahead as u64).max(self.now + 1));
    }

    fn put(&mut self, flows: &mut impl Records, flow: u32, at: u64) {
        // The level is the highest digit in which the tick differs from the current one.
        let level =
            ((63 - ((at ^ self.now) | 1).leading_zeros()) / 8).min(LEVELS as u32 - 1) as usize;
        let slot = (at >> (8 * level)) as usize % SLOTS;
        let head = level * SLOTS + slot;
        self.slots[head].push(flow);
        self.taken[level][slot / 64] |= 1 << (slot % 64);
        *flows.slot(flow) = head as u16;
    }

    /// Removes the entries that do not count: otherwise a flow with a deadline in an hour would add
    /// one after each shorter deadline.
    #[cold]
    fn sweep(&mut self, flows: &mut impl Records) {
        for (head, slot) in self.slots.iter_mut().enumerate() {
            slot.retain(|&flow| {
                let of = flows.slot(flow);
                let counts = usize::from(*of) == head;
                // A flow may have several entries in one slot; the first one counts.
                *of |= if counts { SEEN } else { 0 };
                counts
            });
            slot.iter().for_each(|&flow| *flows.slot(flow) &= !SEEN);
            if slot.is_empty() {
                self.taken[head / SLOTS][head % SLOTS / 64] &= !(1 << (head % 64));
            }
        }
        self.entries = self.slots.iter().map(Vec::len).sum();
        self.stale = 0;
    }

    /// Notes that a number became free.
    #[inline]
    pub fn park(&mut self, slot: u16) {
        self.parked += usize::from(slot != OUT);
    }

    /// Notes that a free number was taken.
    #[inline]
    pub fn unpark(&mut self, slot: u16) {
        self.parked -= usize::from(slot != OUT);
    }

    /// When the wheel must advance: a flow is due, or entries must move to a finer level. `None`:
    /// no flow has a deadline.
    pub fn next(&self) -> Option<Nanos> {
        if self.entries == self.stale + self.parked {
            return None;
        }
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

    /// Start of tick `at`, which is less than 2^31 ticks away.
    pub fn instant_near(&self, at: u32) -> Nanos {
        let ahead = i64::from(at.wrapping_sub(self.now as u32) as i32);
        Nanos(self.now.saturating_add_signed(ahead) << TICK_BITS)
    }

    /// Removes the entry of the next flow that is due by `now`; `None` if there is none, and the
    /// wheel has reached `now`.
    pub fn expire(&mut self, flows: &mut impl Records, now: Nanos) -> Option<u32> {
        let until = now.0 >> TICK_BITS;
        while let Some((level, slot, at)) = self.first()
            && at <= until
        {
            self.now = at;
            let head = level * SLOTS + slot;
            if level == 0 {
                while let Some(flow) = self.slots[head].pop() {
                    if self.slots[head].is_empty() {
                        self.vacate(head);
                    }
                    if self.is_due(flows, flow, head) {
                        return Some(flow);
                    }
                }
                continue;
            }
            let mut entries = std::mem::take(&mut self.slots[head]);
            self.vacate(head);
            for &flow in entries.iter().rev() {
                if self.is_due(flows, flow, head) {
                    self.entries += 1;
                    self.put(flows, flow, at);
                }
            }
            if entries.capacity() <= KEPT {
                entries.clear();
                self.slots[head] = entries;
            }
        }
        self.now = self.now.max(until);
        None
    }

    /// Takes the entry of a flow out of slot `head`, whose time has come: puts it in again if the
    /// flow's deadline is later, and returns whether it has come, too.
    #[inline]
    fn is_due(&mut self, flows: &mut impl Records, flow: u32, head: usize) -> bool {
        self.entries -= 1;
        if usize::from(*flows.slot(flow)) != head {
            self.stale -= 1;
            return false;
        }
        *flows.slot(flow) = OUT;
        let now = self.now as u32;
        let Some(at) = flows.deadline(flow, now) else {
            self.parked -= usize::from(flows.is_free(flow));
            return false;
        };
        let ahead = at.wrapping_sub(now) as i32;
        if ahead > 0 {
            self.entries += 1;
            self.put(flows, flow, self.now + u64::from(ahead.unsigned_abs()));
        }
        ahead <= 0
    }

    /// Notes that a slot has no entries.
    #[inline]
    fn vacate(&mut self, head: usize) {
        self.taken[head / SLOTS][head % SLOTS / 64] &= !(1 << (head % 64));
        if self.slots[head].capacity() > KEPT {
            self.slots[head] = Vec::new();
        }
    }

    /// The first slot with entries, and the tick at which it begins.
    fn first(&self) -> Option<(usize, usize, u64)> {
        (0..LEVELS).find_map(|level| {
            let from = (self.now >> (8 * level)) as usize % SLOTS;
            let slot = next_bit(&self.taken[level], from)?;
            let above = self.now >> (8 * level) >> 8 << 8;
            // A slot before the current one belongs to the next turn of its level. Only the highest
            // level has such slots: at other levels, these entries would be in a higher level.
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

    /// By flow: its slot, and its deadline.
    struct Timers(Vec<(u16, Option<u32>)>);

    impl Records for Timers {
        fn slot(&mut self, flow: u32) -> &mut u16 {
            &mut self.0[flow as usize].0
        }

        fn deadline(&self, flow: u32, _: u32) -> Option<u32> {
            self.0[flow as usize].1
        }

        fn is_free(&self, _: u32) -> bool {
            false
        }

        fn count(&self) -> usize {
            self.0.len()
        }
    }

    impl Timers {
        fn new(count: usize) -> Self {
            Self(vec![(OUT, None); count])
        }

        fn start(&mut self, wheel: &mut Wheel, flow: usize, at: u32, now: Nanos) {
            self.0[flow].1 = Some(at);
            wheel.wake(self, flow as u32, at, now);
        }
    }

    fn at(tick: u64) -> Nanos {
        Nanos(tick << TICK_BITS)
    }

    /// Runs the wheel until no flow has a deadline, and returns when each flow was due.
    fn run(wheel: &mut Wheel, timers: &mut Timers) -> Vec<(u32, Nanos)> {
        let mut fired = Vec::new();
        let mut steps = 0;
        while let Some(due) = wheel.next() {
            while let Some(flow) = wheel.expire(timers, due) {
                timers.0[flow as usize].1 = None;
                fired.push((flow, due));
            }
            steps += 1;
            assert!(steps < 12 * (timers.0.len() + 10), "stalls");
        }
        fired
    }

    proptest! {
        #[test]
        fn every_timer_fires_once_at_its_tick(
            start in prop_oneof![Just(0u64), Just((1 << 32) - 300), any::<u32>().prop_map(u64::from)],
            waits in proptest::collection::vec(prop_oneof![0u32..600, 0u32..100_000, 0..1u32 << 30], 1..60),
            // Then a timer goes on, stops, or starts again.
            then in proptest::collection::vec(prop_oneof![
                Just(None), Just(Some(None)),
                prop_oneof![0u32..600, 0u32..100_000, 0..1u32 << 30]
                    .prop_map(|wait| Some(Some(wait))),
            ], 60),
        ) {
            let mut wheel = Wheel::new();
            let mut timers = Timers::new(waits.len());
            let tick = |wait: u32| (start as u32).wrapping_add(wait);
            prop_assert_eq!(wheel.expire(&mut timers, at(start)), None);
            for (flow, wait) in waits.iter().enumerate() {
                timers.start(&mut wheel, flow, tick(*wait), at(start));
            }
            for (flow, then) in then.iter().take(waits.len()).enumerate() {
                match then {
                    None => (),
                    Some(None) => timers.0[flow].1 = None,
                    Some(Some(wait)) => timers.start(&mut wheel, flow, tick(*wait), at(start)),
                }
            }
            let mut fired = run(&mut wheel, &mut timers);
            fired.sort_unstable();
            let expected = waits.iter().zip(&then).enumerate().filter_map(|(flow, (wait, then))| {
                let wait = then.unwrap_or(Some(*wait))?;
                Some((flow as u32, at(start + u64::from(wait.max(1)))))
            });
            prop_assert_eq!(fired, expected.collect::<Vec<_>>());
            prop_assert_eq!(wheel.expire(&mut timers, at(start + (1 << 32))), None);
            prop_assert_eq!((wheel.entries, wheel.stale), (0, 0));
        }
    }

    #[test]
    fn entries_that_do_not_count_are_removed_in_time() {
        const FLOWS: usize = 3;
        let mut wheel = Wheel::new();
        let mut timers = Timers::new(FLOWS);
        let hour = 55_000_000;
        let mut most = 0;
        for step in 1..20_000 {
            // A short deadline before a long one, whose entry it replaces.
            let now = at(step);
            for flow in 0..FLOWS {
                timers.start(&mut wheel, flow, hour, now);
                timers.start(&mut wheel, flow, step as u32 + 1, now);
            }
            while wheel.expire(&mut timers, at(step + 1)).is_some() {}
            most = most.max(wheel.entries);
        }
        assert!((STALE..=STALE + 2 * FLOWS).contains(&most), "{most}");
        (0..FLOWS).for_each(|flow| timers.start(&mut wheel, flow, hour, at(20_000)));
        assert_eq!(run(&mut wheel, &mut timers).len(), FLOWS);
        assert_eq!(wheel.expire(&mut timers, at(1 << 32)), None);
        assert_eq!((wheel.entries, wheel.stale), (0, 0));
    }
}
