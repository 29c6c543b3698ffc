//! The audit of a port: compares the frames that left it, in any window, with the frames due there.
//!
//! A device sees the sum of all frames that a port sends, so the port is audited, not its sources.
//! Each worker counts frames and octets twice, in aligned bins of 0.27 ms: in the bin in which they
//! left, and in the bin in which they were due in real time (including the lag of the port's clock,
//! because to a device a schedule that lags as a whole is the same load). The bins of all workers
//! are added up. In windows of one bin to half a second, frames that left beyond those that were
//! due are surplus.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use squall_units::{Nanos, Picos};

/// A bin is 2^28 ps: 0.268 ms. A power of two, because the bin is computed in each send call.
const BIN_BITS: u32 = 28;
const BIN_S: f64 = (1u64 << BIN_BITS) as f64 * 1e-12;
/// Number of bins per worker, 0.27 s in total: far longer than a worker can take to count.
const SLOTS: usize = 1024;
/// Age, in bins, before which a bin is not added up, because a worker may be stopped between
/// sending and counting.
const HELD: u64 = 128;
/// Number of bins after which a worker adds up again.
const EVERY: u64 = 32;
/// The longest window in bins: half a second.
const LONGEST: usize = 2048;
const RING: usize = 2 * LONGEST;
/// Number of bins by which frames may leave later than they were due: a window whose load is not
/// above the load due in a window that began up to this much earlier has no surplus. 1.07 ms,
/// because frames may be as late as the clock's allowance of 0.75 ms (ADR 0050).
const LATER: usize = 4;
/// The load of 1 ms is averaged over half a second, and also over the last 34 ms, because the
/// longer average is too low while a load rises.
const RECENT: usize = 128;
/// An average over fewer bins (1 ms; a run that has just begun) is not used.
const LEAST: usize = 4;
/// The allowed surplus: this number of frames, or the port's load in this number of bins (1.07 ms);
/// plus this fraction of the load due in the window.
const FEW: u64 = 2;
const LOAD: u64 = 4;
const PART: u64 = 100;

/// The bin of a time, which is in picoseconds from the start of the run.
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

/// The counts of one worker, the only one that writes them. They never decrease, so that readers
/// need no lock.
#[derive(Debug)]
struct Bins {
    slots: Box<[[AtomicU64; 4]]>,
    longest: AtomicU64,
}

impl Bins {
    #[inline]
    fn add(&self, bin: u64, kind: usize, frames: u64, octets: u64) {
        let slot = &self.slots[bin as usize % SLOTS];
        // A load and a store instead of an atomic addition, because there is a single writer.
        slot[kind].store(slot[kind].load(Relaxed).wrapping_add(frames), Relaxed);
        slot[kind + 1].store(slot[kind + 1].load(Relaxed).wrapping_add(octets), Relaxed);
    }
}

/// A port's audit, shared by its workers.
#[derive(Debug, Default)]
pub struct PortAudit {
    judge: Mutex<Judge>,
    /// The first bin that has not been added up.
    open: AtomicU64,
    /// Frames in answer to received frames without an exact receive time.
    uncertain: AtomicU64,
    given_up: AtomicBool,
}

/// A worker's share of a [`PortAudit`].
#[derive(Debug)]
pub struct Auditor {
    audit: Arc<PortAudit>,
    bins: Arc<Bins>,
    /// The bin at which to add up next.
    next: u64,
    /// Counts of the current bin, kept here because most send calls fall into the same bin as the
    /// previous one.
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

    /// Counts frames of a send call that were due in `bin`, and their octets with FCS.
    /// [`Auditor::left`] follows.
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
            // Counts in the first open bin or a later one: a slot that was added up is read again
            // only `SLOTS` bins later, where the counts would be wrong.
            self.bins.add(bin.max(self.audit.open.load(Relaxed)), kind, frames, octets);
        }
    }

    /// Writes the counts of frames that left before `bin`, and of frames due before then.
    #[cold]
    fn count(&mut self, bin: u64) {
        // A later bin is free only after older bins have been added up.
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

    /// Sets the current bin, because a worker that sends nothing for a while must still write its
    /// counts.
    #[inline]
    pub fn pass(&mut self, bin: u64) {
        if bin != self.left.bin {
            self.count(bin);
        }
    }

    /// Counts frames of a send call that left in `bin`, and their octets with FCS; the longest
    /// frame has `longest`.
    #[inline]
    pub fn left(&mut self, bin: u64, frames: u64, octets: u64, longest: u64) {
        self.pass(bin);
        self.left.add(frames, octets);
        self.longest = self.longest.max(longest);
    }

    /// Counts frames whose due times are only roughly known.
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

/// The window with the highest ratio of surplus to allowed surplus.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Surplus {
    /// Whether the counts are octets with FCS. If not, they are frames.
    pub octets: bool,
    /// Start of the window, relative to the start of the run; and its length.
    pub at: Nanos,
    pub over: Nanos,
    /// Frames or octets that left in the window, and those due in a window of the same length.
    pub left: u64,
    pub due: u64,
    /// The allowed surplus.
    pub allowed: u64,
}

impl Surplus {
    pub fn surplus(&self) -> u64 {
        self.left.saturating_sub(self.due)
    }

    /// Whether the surplus is above the allowed one.
    pub fn is_excess(&self) -> bool {
        self.surplus() > self.allowed
    }

    fn is_worse_than(&self, other: &Self) -> bool {
        other.is_exceeded_by(self.surplus(), self.allowed)
    }

    /// Whether `surplus`, with an allowance of `allowed`, is worse.
    #[inline]
    fn is_exceeded_by(&self, surplus: u64, allowed: u64) -> bool {
        u128::from(surplus) * u128::from(self.allowed.max(1))
            > u128::from(self.surplus()) * u128::from(allowed.max(1))
    }
}

impl PortAudit {
    fn judge(&self) -> std::sync::MutexGuard<'_, Judge> {
        self.judge.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds up bins before `until`, if no other worker is doing so.
    #[cold]
    fn add_up(&self, until: u64) {
        if let Ok(mut judge) = self.judge.try_lock() {
            self.open.store(until, Relaxed);
            judge.add_up(until, self.given_up.load(Relaxed));
        }
    }

    /// Stops judging: the port is known to miss its schedule.
    pub fn give_up(&self) {
        // A plain load first, because each sender calls this for every batch while catching up.
        if !self.given_up.load(Relaxed) {
            self.given_up.store(true, Relaxed);
        }
    }

    /// The worst window before `now`, picoseconds. While the run continues, bins that workers may
    /// still write are excluded.
    pub fn worst(&self, now: u64, over: bool) -> Option<Surplus> {
        let until = if over { bin(now) + 2 } else { bin(now).saturating_sub(HELD) };
        let mut judge = self.judge();
        self.open.fetch_max(until, Relaxed);
        judge.add_up(until, self.given_up.load(Relaxed));
        judge.worst
    }

    /// Number of frames whose due times are only roughly known.
    pub fn uncertain(&self) -> u64 {
        self.uncertain.load(Relaxed)
    }
}

/// Sums over bins, and the worst window.
#[derive(Debug, Default)]
struct Judge {
    workers: Vec<(Arc<Bins>, Box<[Sums]>)>,
    /// For each bin, the sums over all bins before it. Empty until a worker joins.
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
        // Workers write only to the latest bins.
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
                self.judge_last();
            }
        }
    }

    /// Counts of `kind` in `window` bins that end `earlier` bins before the last one.
    fn sum(&self, kind: usize, window: usize, earlier: usize) -> u64 {
        let at = |back: usize| {
            let of = self.next.saturating_sub(back as u64);
            self.before[of as usize % RING][kind]
        };
        at(earlier) - at(earlier + window)
    }

    /// Judges the windows that end with the last bin.
    fn judge_last(&mut self) {
        let passed = (self.next as usize).clamp(LEAST, LONGEST);
        let longest = self.workers.iter().map(|(bins, _)| bins.longest.load(Relaxed)).max();
        for (left, due, few) in
            [(LEFT, DUE, FEW), (LEFT_OCTETS, DUE_OCTETS, FEW * longest.unwrap_or_default())]
        {
            let load = |over: usize| self.sum(due, over, 0) * LOAD / over.min(passed) as u64;
            let allowed = load(LONGEST).max(load(RECENT)).max(few);
            for window in (0..=LONGEST.ilog2()).map(|power| 1 << power) {
                let earlier = |by: usize| self.sum(due, window, by);
                let (was_left, mut was_due) = (self.sum(left, window, 0), earlier(0));
                // Hardly any window can be the worst, and the sums below cost five times as much:
                // first compares an upper bound of this window's surplus with `allowed`, a lower
                // bound of its allowance.
                let surplus = was_left.saturating_sub(was_due);
                if self.worst.is_some_and(|worst| !worst.is_exceeded_by(surplus, allowed)) {
                    continue;
                }
                if was_left > was_due {
                    // A window that is up to LATER bins late has no surplus.
                    was_due = (1..=LATER).map(earlier).fold(was_due, u64::max);
                }
                let found = Surplus {
                    octets: left == LEFT_OCTETS,
                    at: Picos(self.next.saturating_sub(window as u64) << BIN_BITS).as_nanos(),
                    over: Nanos((window as f64 * BIN_S * 1e9) as u64),
                    left: was_left,
                    due: was_due,
                    allowed: allowed + was_due / PART,
                };
                if self.worst.is_none_or(|worst| found.is_worse_than(&worst)) {
                    self.worst = Some(found);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000_000;
    const FRAME: u64 = 1000;

    /// Audits the frames of one worker, each given by when it left and when it was due, in real
    /// time.
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
    fn frames_that_leave_when_due_are_no_surplus() {
        let even = audit((0..20_000).map(|k| (k * MS / 10, k * MS / 10)));
        assert_eq!((even.surplus(), even.is_excess()), (0, false));
        // Late by less than a millisecond, in varying amounts.
        let late = audit((0..20_000).map(|k| (k * MS / 10 + k % 7 * MS / 10, k * MS / 10)));
        assert!(!late.is_excess(), "{late:?}");
        // Requested bursts that leave slightly late.
        let bursts =
            (0..20).flat_map(|b| (0..100).map(move |_| (b * 50 * MS + MS / 2, b * 50 * MS)));
        assert_eq!(audit(bursts).surplus(), 0);
    }

    #[test]
    fn the_first_frames_of_a_run_may_be_as_late_as_others() {
        // 116 frames/ms; the sender starts half a millisecond late.
        let due = |k: u64| k * MS / 116;
        let found = audit((0..10_000).map(|k| (due(k).max(MS / 2), due(k))));
        assert!(!found.is_excess(), "{found:?}");
    }

    #[test]
    fn overdue_frames_that_leave_at_once_are_surplus() {
        // A stall of 5 ms at 10 frames/ms.
        let stalled = |k: u64| if (1000..1050).contains(&k) { 1050 } else { k };
        let found = audit((0..3000).map(|k| (stalled(k) * MS / 10, k * MS / 10)));
        assert!(found.is_excess() && found.surplus() >= 40, "{found:?}");
        assert!((104..106).contains(&(found.at.0 / 1_000_000)), "{found:?}");
    }

    #[test]
    fn many_slow_sources_add_up() {
        // 40 sources of 20 frames/s, at even offsets; after a stall of 30 ms each sends its overdue
        // frame.
        let due = |k: u64| k * MS * 5 / 4;
        let at = |k: u64| if (400..424).contains(&k) { due(424) } else { due(k) };
        let found = audit((0..2000).map(|k| (at(k), due(k))));
        assert!(found.is_excess() && found.surplus() > 20, "{found:?}");
    }

    #[test]
    fn octets_are_audited_like_frames() {
        let audit = Arc::new(PortAudit::default());
        let mut auditor = Auditor::new(&audit);
        // One frame per millisecond, some of them ten times as long.
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
            // Each worker has every other frame; both stall.
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
        // Bursts that leave slightly late, separated by more bins than a worker has.
        let late = |k: u64| (k / 64 * 1000 * MS + 7 * MS / 10, k / 64 * 1000 * MS);
        let found = audit((0..640).map(late));
        assert!(!found.is_excess(), "{found:?}");
    }
}
