//! The audit of a port: what left it, in any window, against what was due there.
//!
//! A device sees the sum of all that a port sends, so that is what is audited. Each worker counts
//! frames and octets in aligned bins of 0.27 ms, twice: in the bin in which they left, and in that
//! in which they were due, in real time (the lag of the port's clock added: a schedule that lags as
//! a whole is the same load for a device). The bins of all workers are added, and windows of one
//! bin to half a second are compared: more that left than was due in such a window is surplus.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use squall_units::{Nanos, Picos};

/// A bin is 2^28 ps: 0.268 ms.
const BIN_BITS: u32 = 28;
const BIN_S: f64 = (1u64 << BIN_BITS) as f64 * 1e-12;
/// Bins that a worker has, 0.27 s: far more than it retires late.
const SLOTS: usize = 1024;
/// Bins are added up so long after they began: a worker may be stopped between sending and
/// counting.
const HELD: u64 = 128;
/// How often a worker adds them up.
const EVERY: u64 = 32;
/// The longest window, bins: half a second.
const LONGEST: usize = 2048;
const RING: usize = 2 * LONGEST;
/// Frames may have left so many bins later than they were due: what is as much as was due somewhat
/// earlier is no surplus. The allowance of the clock is 0.75 ms.
const LATER: usize = 4;
/// Bins whose load says what 1 ms of it is: over half a second and, as loads may rise, over the
/// last 34 ms.
const RECENT: usize = 128;
/// The load of less than this (1 ms, when a run has just begun) says nothing.
const LEAST: usize = 4;
/// Surplus that is allowed: frames, or so many bins (1.07 ms) of the port's load; and this part of
/// what was due in the window.
const FEW: u64 = 2;
const LOAD: u64 = 4;
const PART: u64 = 100;

/// The bin of an instant; picoseconds since the start.
#[inline]
pub fn bin(at: u64) -> u64 {
    at >> BIN_BITS
}

/// Frames that left, their octets with FCS; frames that were due and left, their octets.
const LEFT: usize = 0;
const LEFT_OCTETS: usize = 1;
const DUE: usize = 2;
const DUE_OCTETS: usize = 3;
type Sums = [u64; 4];

/// What one worker counts. One writer; counts never fall, so that whoever reads them needs no
/// agreement with it.
#[derive(Debug)]
struct Bins {
    slots: Box<[[AtomicU64; 4]]>,
    longest: AtomicU64,
}

impl Bins {
    #[inline]
    fn add(&self, bin: u64, kind: usize, frames: u64, octets: u64) {
        let slot = &self.slots[bin as usize % SLOTS];
        // One writer: no need for a locked instruction.
        slot[kind].store(slot[kind].load(Relaxed).wrapping_add(frames), Relaxed);
        slot[kind + 1].store(slot[kind + 1].load(Relaxed).wrapping_add(octets), Relaxed);
    }
}

/// A port's audit, shared by its workers.
#[derive(Debug, Default)]
pub struct PortAudit {
    judge: Mutex<Judge>,
    /// The first bin that is not added up.
    open: AtomicU64,
    /// Frames that answered received ones whose instant is not known exactly.
    uncertain: AtomicU64,
    given_up: AtomicBool,
}

/// A worker's end of a [`PortAudit`].
#[derive(Debug)]
pub struct Auditor {
    audit: Arc<PortAudit>,
    bins: Arc<Bins>,
    /// When bins are to be added up next.
    next: u64,
    /// What was due and what left, as far as it was in one bin: most hand-overs are in that of the
    /// one before.
    due: Count,
    left: Count,
    longest: u64,
}

#[derive(Debug, Default)]
struct Count {
    bin: u64,
    frames: u64,
    octets: u64,
}

impl Count {
    fn of(bin: u64) -> Self {
        Self { bin, ..Self::default() }
    }

    #[inline]
    fn add(&mut self, frames: u64, octets: u64) {
        self.frames += frames;
        self.octets += octets;
    }
}

impl Auditor {
    pub fn new(audit: &Arc<PortAudit>) -> Self {
        let slot = || std::array::from_fn(|_| AtomicU64::new(0));
        let slots = (0..SLOTS).map(|_| slot()).collect();
        let bins = Arc::new(Bins { slots, longest: AtomicU64::new(0) });
        audit.judge().join(bins.clone());
        Self {
            audit: audit.clone(),
            bins,
            next: EVERY,
            due: Count::default(),
            left: Count::default(),
            longest: 0,
        }
    }

    /// Frames of a hand-over were due in `bin`, and their octets with FCS. [`Auditor::left`] follows.
    #[inline]
    pub fn due(&mut self, bin: u64, frames: u64, octets: u64) {
        if bin != self.due.bin {
            self.count_due();
            self.due.bin = bin;
        }
        self.due.add(frames, octets);
    }

    #[cold]
    fn count_due(&mut self) {
        let bin = self.due.bin;
        let due = std::mem::replace(&mut self.due, Count::of(bin));
        self.add(DUE, &due);
    }

    fn add(&self, kind: usize, count: &Count) {
        let Count { bin, frames, octets } = *count;
        if frames > 0 {
            self.bins.add(bin.max(self.audit.open.load(Relaxed)), kind, frames, octets);
        }
    }

    /// Counts what left before `bin`, and what was due until then.
    #[cold]
    fn count(&mut self, bin: u64) {
        // What is due later has a place only when older bins have been added up.
        if self.due.bin <= self.left.bin {
            self.count_due();
        }
        let left = std::mem::replace(&mut self.left, Count::of(bin));
        self.add(LEFT, &left);
        if self.longest > self.bins.longest.load(Relaxed) {
            self.bins.longest.store(self.longest, Relaxed);
        }
        if bin >= self.next {
            self.next = bin + EVERY;
            self.audit.add_up(bin.saturating_sub(HELD));
        }
    }

    /// It is `bin` now: whoever leaves nothing for a while has counted what left before.
    #[inline]
    pub fn pass(&mut self, bin: u64) {
        if bin != self.left.bin {
            self.count(bin);
        }
    }

    /// The frames of a hand-over left in `bin`, and their octets with FCS; the longest of them has
    /// `longest`.
    #[inline]
    pub fn left(&mut self, bin: u64, frames: u64, octets: u64, longest: u64) {
        self.pass(bin);
        self.left.add(frames, octets);
        self.longest = self.longest.max(longest);
    }

    /// Frames whose due instant is known only roughly.
    pub fn uncertain(&mut self, frames: u64) {
        self.audit.uncertain.fetch_add(frames, Relaxed);
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.count(self.left.bin);
        self.count_due();
    }
}

/// The window with the most surplus for what is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surplus {
    /// The counts are of octets with FCS, otherwise of frames.
    pub octets: bool,
    /// When the window begins, since the start of the run, and its length.
    pub at: Nanos,
    pub over: Nanos,
    /// What left in the window, and what was due in as long a time.
    pub left: u64,
    pub due: u64,
    /// How much more may leave.
    pub allowed: u64,
}

impl Surplus {
    pub fn surplus(&self) -> u64 {
        self.left.saturating_sub(self.due)
    }

    /// More than is allowed.
    pub fn is_excess(&self) -> bool {
        self.surplus() > self.allowed
    }

    fn is_worse_than(&self, other: &Self) -> bool {
        let part = |of: &Self, by: &Self| u128::from(of.surplus()) * u128::from(by.allowed.max(1));
        part(self, other) > part(other, self)
    }
}

impl PortAudit {
    fn judge(&self) -> std::sync::MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds up bins before `until`, unless another worker is at it.
    #[cold]
    fn add_up(&self, until: u64) {
        if let Ok(mut judge) = self.judge.try_lock() {
            self.open.store(until, Relaxed);
            judge.add_up(until, self.given_up.load(Relaxed));
        }
    }

    /// From now on nothing is judged: that the port does not keep to its schedule is known.
    pub fn give_up(&self) {
        // Mostly it has been said before.
        if !self.given_up.load(Relaxed) {
            self.given_up.store(true, Relaxed);
        }
    }

    /// All that was counted before `now`, picoseconds; then the worst window. Of a run that goes
    /// on, what has not settled is left out.
    pub fn worst(&self, now: u64, over: bool) -> Option<Surplus> {
        let until = if over { bin(now) + 2 } else { bin(now).saturating_sub(HELD) };
        let mut judge = self.judge();
        self.open.fetch_max(until, Relaxed);
        judge.add_up(until, self.given_up.load(Relaxed));
        judge.worst
    }

    /// Frames whose due instants are known only roughly.
    pub fn uncertain(&self) -> u64 {
        self.uncertain.load(Relaxed)
    }
}

/// Sums of bins, and the worst window of them.
#[derive(Debug, Default)]
struct Judge {
    workers: Vec<(Arc<Bins>, Box<[Sums]>)>,
    /// By bin: all before it. Empty until anything is counted.
    before: Vec<Sums>,
    next: u64,
    worst: Option<Surplus>,
}

impl Judge {
    fn join(&mut self, bins: Arc<Bins>) {
        self.workers.push((bins, vec![[0; 4]; SLOTS].into()));
        self.before.resize(RING, [0; 4]);
    }

    fn add_up(&mut self, until: u64, given_up: bool) {
        if self.before.is_empty() {
            return;
        }
        // Nothing is counted in a bin that is not of the last ones.
        let longest = (SLOTS + RING) as u64;
        if until > self.next + longest {
            let all = self.before[self.next as usize % RING];
            self.before.fill(all);
            self.next = until - longest;
        }
        while self.next < until {
            let slot = self.next as usize % SLOTS;
            let mut sums = self.before[self.next as usize % RING];
            for (bins, seen) in &mut self.workers {
                for kind in 0..4 {
                    let count = bins.slots[slot][kind].load(Relaxed);
                    sums[kind] += count.wrapping_sub(seen[slot][kind]);
                    seen[slot][kind] = count;
                }
            }
            let left = sums[LEFT] > self.before[self.next as usize % RING][LEFT];
            self.next += 1;
            self.before[self.next as usize % RING] = sums;
            if left && !given_up {
                self.look();
            }
        }
    }

    /// Counts of `kind` in the `window` bins that end `earlier` bins before the last one.
    fn sum(&self, kind: usize, window: usize, earlier: usize) -> u64 {
        let at = |back: usize| {
            let of = self.next.saturating_sub(back as u64);
            self.before[of as usize % RING][kind]
        };
        at(earlier) - at(earlier + window)
    }

    /// A surplus of at most so much, of which at least so much is allowed, is no worse than the
    /// worst. Mostly so: what else has to be known of a window costs five times as much.
    #[inline]
    fn is_no_worse(&self, surplus: u64, allowed: u64) -> bool {
        self.worst.is_some_and(|worst| {
            u128::from(surplus) * u128::from(worst.allowed.max(1))
                <= u128::from(worst.surplus()) * u128::from(allowed.max(1))
        })
    }

    /// Windows that end with the last bin.
    fn look(&mut self) {
        let passed = (self.next as usize).clamp(LEAST, LONGEST);
        let longest = self.workers.iter().map(|(bins, _)| bins.longest.load(Relaxed)).max();
        for (left, due, few) in
            [(LEFT, DUE, FEW), (LEFT_OCTETS, DUE_OCTETS, FEW * longest.unwrap_or_default())]
        {
            let load = |over: usize| self.sum(due, over, 0) * LOAD / over.min(passed) as u64;
            let allowed = load(LONGEST).max(load(RECENT)).max(few);
            let mut window = 1;
            while window <= LONGEST {
                let was_left = self.sum(left, window, 0);
                if self.is_no_worse(was_left.saturating_sub(self.sum(due, window, 0)), allowed) {
                    window *= 2;
                    continue;
                }
                let earlier = |by: usize| self.sum(due, window, by);
                let allowed = |due: u64| allowed + due / PART;
                let mut was_due = earlier(0);
                if was_left > was_due {
                    // Some lateness is no surplus.
                    was_due = (1..=LATER).map(earlier).fold(was_due, u64::max);
                }
                let found = Surplus {
                    octets: left == LEFT_OCTETS,
                    at: Picos(self.next.saturating_sub(window as u64) << BIN_BITS).as_nanos(),
                    over: Nanos((window as f64 * BIN_S * 1e9) as u64),
                    left: was_left,
                    due: was_due,
                    allowed: allowed(was_due),
                };
                if self.worst.is_none_or(|worst| found.is_worse_than(&worst)) {
                    self.worst = Some(found);
                }
                window *= 2;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;
    const FRAME: u64 = 1000;

    /// Frames by the real instants at which they leave and were due, of one worker.
    fn audit(frames: impl IntoIterator<Item = (u64, u64)>) -> Surplus {
        let audit = Arc::new(PortAudit::default());
        let mut auditor = Auditor::new(&audit);
        let mut last = 0;
        for (at, due) in frames {
            auditor.due(bin(due), 1, FRAME);
            auditor.left(bin(at), 1, FRAME, FRAME);
            last = last.max(at);
        }
        drop(auditor);
        audit.worst(last, true).unwrap_or_default()
    }

    #[test]
    fn what_leaves_when_it_is_due_has_no_surplus() {
        let even = audit((0..20_000).map(|k| (k * MS / 10, k * MS / 10)));
        assert_eq!((even.surplus(), even.is_excess()), (0, false));
        // Late by less than a millisecond, one more and one less.
        let late = audit((0..20_000).map(|k| (k * MS / 10 + k % 7 * MS / 10, k * MS / 10)));
        assert!(!late.is_excess(), "{late:?}");
        // Bursts as they were asked for, somewhat late.
        let bursts =
            (0..20).flat_map(|b| (0..100).map(move |_| (b * 50 * MS + MS / 2, b * 50 * MS)));
        assert_eq!(audit(bursts).surplus(), 0);
    }

    #[test]
    fn the_first_frames_of_a_run_may_be_as_late_as_others() {
        // 116 a millisecond; the sender is there half a millisecond after the start.
        let due = |k: u64| k * MS / 116;
        let found = audit((0..10_000).map(|k| (due(k).max(MS / 2), due(k))));
        assert!(!found.is_excess(), "{found:?}");
    }

    #[test]
    fn what_was_owed_and_leaves_at_once_is_a_surplus() {
        // 5 ms are missed of 10 frames a millisecond.
        let stalled = |k: u64| if (1000..1050).contains(&k) { 1050 } else { k };
        let found = audit((0..3000).map(|k| (stalled(k) * MS / 10, k * MS / 10)));
        assert!(found.is_excess() && found.surplus() >= 40, "{found:?}");
        assert!((104..106).contains(&(found.at.0 / 1_000_000)), "{found:?}");
    }

    #[test]
    fn many_slow_sources_add_up() {
        // 40 sources of 20 frames a second, evenly apart; a stall of 30 ms, after which each sends
        // the one frame that it owes.
        let due = |k: u64| k * MS * 5 / 4;
        let at = |k: u64| if (400..424).contains(&k) { due(424) } else { due(k) };
        let found = audit((0..2000).map(|k| (at(k), due(k))));
        assert!(found.is_excess() && found.surplus() > 20, "{found:?}");
    }

    #[test]
    fn octets_are_audited_beside_frames() {
        let audit = Arc::new(PortAudit::default());
        let mut auditor = Auditor::new(&audit);
        // One frame a millisecond; now and then a long one of the last 10 ms comes with this one.
        for k in 0..1000u64 {
            let octets = if k % 100 == 50 { 20_000 } else { 100 };
            auditor.due(bin(k * MS), 1, 100);
            auditor.left(bin(k * MS), 1, octets, 100);
        }
        drop(auditor);
        let found = audit.worst(1000 * MS, true).unwrap();
        assert!(found.octets && found.is_excess(), "{found:?}");
    }

    #[test]
    fn the_bins_of_workers_are_added() {
        let audit = Arc::new(PortAudit::default());
        let mut workers = [Auditor::new(&audit), Auditor::new(&audit)];
        for k in 0..4000u64 {
            // Each has every other frame; a stall of both.
            let at = if (2000..2040).contains(&k) { 2040 } else { k } * MS / 10;
            let worker = &mut workers[k as usize % 2];
            worker.due(bin(k * MS / 10), 1, FRAME);
            worker.left(bin(at), 1, FRAME, FRAME);
        }
        drop(workers);
        let found = audit.worst(400 * MS, true).unwrap();
        assert!(found.surplus() >= 30 && found.is_excess(), "{found:?}");
    }

    #[test]
    fn long_pauses_do_not_confuse_it() {
        let hour = 3_600_000 * MS;
        let found = audit((0..100).map(|k| (k * hour / 7, k * hour / 7)));
        assert_eq!(found.surplus(), 0);
        let twice = |k: u64| (k / 2) * hour + k % 2;
        let found = audit((0..100).map(|k| (twice(k), twice(k))));
        assert_eq!(found.surplus(), 0, "{found:?}");
        // Bursts that leave somewhat late, each behind more bins than there are.
        let late = |k: u64| (k / 64 * 1000 * MS + 7 * MS / 10, k / 64 * 1000 * MS);
        let found = audit((0..640).map(late));
        assert!(!found.is_excess(), "{found:?}");
    }
}
