//! The memory that a program in the kernel shares with its driver: 64-bit words. While the program
//! runs, each word is written by only one side, so that no locks are needed.

use squall_bpf::tracepoints;
use squall_units::{Nanos, Picos};

use super::{MOST_STREAMS, Stream};
use crate::{Gap, GapLaw, Pattern, Standing, Timeline};

/// Access to the words, from either side.
pub trait Memory {
    fn get(&self, word: usize) -> u64;
    fn set(&self, word: usize, value: u64);
}

// Words of the whole program.
/// If not 0: make no frames, return at once, and acknowledge in `SEEN`.
pub(super) const ATTENTION: usize = 0;
/// The start of the run, in nanoseconds on the clock.
pub(super) const START: usize = 1;
/// Picoseconds. Frames due at or after `END` are not made; from `LAST` on, no frame is made.
pub(super) const END: usize = 2;
pub(super) const LAST: usize = 3;
/// Budgets; `u64::MAX`: no limit.
pub(super) const PACKETS: usize = 4;
pub(super) const OCTETS: usize = 5;
/// The CPU on which the program has frames in flight that no witness has seen. They stay there
/// until interrupts are enabled again, so any frame that passes a device map on this CPU meanwhile
/// belongs to the program.
pub(super) const CPU: usize = 6;
pub(super) const PENDING: usize = 7;
/// Number of frames pushed to the ring of frames in flight, and number taken from it.
pub(super) const GENERATED: usize = 8;
pub(super) const TAKEN: usize = 9;
/// Schedule time at the last reading of the clock, in picoseconds from the start.
pub(super) const NOW: usize = 10;
/// The error of the last failed driver call, and of the last failed redirect.
pub(super) const DRIVER_ERROR: usize = 11;
pub(super) const REDIRECT_ERROR: usize = 12;
/// When the last frame left, in nanoseconds on the clock.
pub(super) const LAST_LEFT: usize = 13;
/// Whether a table or frame has an impossible state: a defect.
pub(super) const BROKEN: usize = 14;
/// Whether the device map is empty, because the interface is gone.
pub(super) const GONE: usize = 15;
pub(super) const SEEN: usize = 16;
/// The traffic clock ([`crate::clock`]), in picoseconds: the allowed burst (`u64::MAX`: no limit),
/// the lag, when the lag was computed, and its sum so far.
pub(super) const ALLOWED: usize = 17;
pub(super) const LAG: usize = 18;
pub(super) const READ: usize = 19;
pub(super) const MOVED: usize = 20;
const GLOBALS: usize = 22;
pub(super) const UNDER_WAY: tracepoints::Words = tracepoints::Words {
    cpu: CPU,
    pending: PENDING,
    generated: GENERATED,
    taken: TAKEN,
    driver_error: DRIVER_ERROR,
    redirect_error: REDIRECT_ERROR,
    last_left: LAST_LEFT,
};

/// Frames in flight: stream and length, due time. The size is a power of two above the kernel's
/// batch.
pub(super) const RING: usize = GLOBALS;
pub(super) const RING_FRAMES: usize = 256;
/// Per stream: when its next frame is due; `u64::MAX`: never.
pub(super) const KEYS: usize = RING + 2 * RING_FRAMES;
/// Per stream: the counters of the witnesses.
pub(super) const ACCOUNTS: usize = KEYS + MOST_STREAMS;
pub(super) const ACCOUNT: usize = 16;
pub(super) const A_TAKEN: usize = 0;
pub(super) const A_OCTETS: usize = 1;
pub(super) const A_DROPPED: usize = 2;
pub(super) const A_REFUSED: usize = 3;
pub(super) const A_FIRST: usize = 4;
pub(super) const A_LAST: usize = 5;
pub(super) const A_LATE_SUM: usize = 6;
pub(super) const A_LATE_MAX: usize = 7;
/// Smallest lateness, stored as `u64::MAX` minus the value, so that 0, the initial value, means
/// that there is none yet.
pub(super) const A_LATE_MIN: usize = 8;

// Words of a stream.
pub(super) const S_DUE: usize = 0;
pub(super) const S_FRACTION: usize = 1;
pub(super) const S_LEFT: usize = 2;
pub(super) const S_BURSTS: usize = 3;
/// The gap: whole picoseconds, and a remainder over `S_DEN`. With several frame lengths: a fixed
/// part and the part per octet, both over `S_DEN`.
pub(super) const S_WHOLE: usize = 4;
pub(super) const S_REST: usize = 5;
pub(super) const S_DEN: usize = 6;
pub(super) const S_UNPACED: usize = 7;
/// Index of the next frame.
pub(super) const S_NEXT: usize = 8;
/// Index in a list of lengths.
pub(super) const S_SIZE: usize = 9;
/// Time of the pause, plus 1 because that may be 0; 0: not paused.
pub(super) const S_PAUSED: usize = 10;
/// How often the stream has started its successor.
pub(super) const S_ARROWS: usize = 11;
/// Whether the stream was removed. If so, the `next` of another stream does not start it again.
pub(super) const S_REMOVED: usize = 12;
pub(super) const S_VARS: usize = 13;
/// Per variable: its law's position, and the number of frames after it last advanced.
pub(super) const VAR: usize = 2;

/// Bins of lateness, as in `squall_stats::Histogram`: 128 per octave, up to 2^32 ns.
pub(super) const BINS: usize = 27 * 128;

/// The addresses of all words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// First word of each stream.
    streams: Vec<usize>,
    shares: Vec<(u64, u64)>,
    /// Per stream: the length of its frames, if all have the same.
    only: Vec<Option<u32>>,
    histograms: usize,
    words: usize,
}

/// Counters of a stream's frames. Octets include the FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    pub generated: u64,
    /// Frames that the driver sent.
    pub taken: u64,
    pub octets: u64,
    /// Frames that the driver dropped after accepting them.
    pub dropped: u64,
    /// Frames not passed to the driver, because the interface takes no frames of this kind, or no
    /// frames at all.
    pub refused: u64,
    /// The first departure on the clock; `None`: none.
    pub first: Option<Nanos>,
    pub last: Nanos,
    /// Statistics of the lateness, in nanoseconds.
    pub late_sum: u64,
    pub late_min: u64,
    pub late_max: u64,
}

/// The run's time, on `CLOCK_MONOTONIC`, which the kernel's program reads too.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub start: Nanos,
    pub end: Picos,
    /// From this time on, even overdue frames do not leave.
    pub last: Picos,
    pub packets: u64,
    pub octets: u64,
    /// The allowed burst after a stall ([`crate::clock::Allowance`]); the rest is recovered slowly.
    /// `None`: no limit.
    pub allowance: Option<Nanos>,
}

impl Layout {
    pub(super) fn new(streams: &[Stream<'_>]) -> Self {
        let mut at = ACCOUNTS + ACCOUNT * streams.len();
        let place = |s: &Stream<'_>| {
            let here = at;
            at += S_VARS + VAR * s.program.vars.len();
            here
        };
        let places = streams.iter().map(place).collect();
        Self {
            streams: places,
            shares: streams.iter().map(Stream::first_and_step).collect(),
            only: streams.iter().map(|s| s.program.sizes().only()).collect(),
            histograms: at,
            words: at + BINS * streams.len(),
        }
    }

    /// Size in 64-bit words.
    pub fn words(&self) -> usize {
        self.words
    }

    /// Number of streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    pub(super) fn stream(&self, i: usize) -> usize {
        self.streams[i]
    }

    pub(super) fn histogram(&self) -> usize {
        self.histograms
    }

    pub(super) fn first_words(&self, streams: &[Stream<'_>], timelines: &[Timeline]) -> Vec<u64> {
        let words = Words(std::cell::RefCell::new(vec![0; self.words]));
        for i in 0..MOST_STREAMS {
            words.set(KEYS + i, u64::MAX);
        }
        words.set(ATTENTION, 1);
        for (i, (s, timeline)) in streams.iter().zip(timelines).enumerate() {
            let at = self.streams[i];
            let (first, _) = s.first_and_step();
            words.set(at + S_NEXT, first);
            words.set(at + S_SIZE, s.program.sizes().seek(first));
            for (v, var) in s.program.vars.iter().enumerate() {
                let index = first.wrapping_add(var.phase);
                words.set(at + S_VARS + VAR * v, var.law.seek(index / var.every));
                words.set(at + S_VARS + VAR * v + 1, index % var.every);
            }
            self.set_gap(&words, i, s.gap);
            let standing = timeline.standing();
            self.stand(
                &words,
                i,
                Standing { left: if s.self_start { standing.left } else { 0 }, ..standing },
            );
        }
        words.0.into_inner()
    }

    /// Sets the run's clock. Call before the program runs.
    pub fn set_clock(&self, m: &dyn Memory, clock: &Clock) {
        m.set(START, clock.start.0);
        m.set(END, clock.end.0);
        m.set(LAST, clock.last.0);
        m.set(PACKETS, clock.packets);
        m.set(OCTETS, clock.octets);
        self.set_allowance(m, clock.allowance);
    }

    /// Sets the allowed burst, as [`Clock::allowance`].
    pub fn set_allowance(&self, m: &dyn Memory, allowance: Option<Nanos>) {
        m.set(ALLOWED, allowance.map_or(u64::MAX, |allowance| Picos::from(allowance).0));
    }

    /// The lag of the schedule, and the sum of all lag.
    pub fn lag(&self, m: &dyn Memory) -> (Nanos, Nanos) {
        (Picos(m.get(LAG)).as_nanos(), Picos(m.get(MOVED)).as_nanos())
    }

    /// Asks the program to stop making frames; `ticket` is a new value each time, and not 0.
    pub fn hold(&self, m: &dyn Memory, ticket: u64) {
        m.set(ATTENTION, ticket);
    }

    /// Whether the program has acknowledged the hold and no longer writes to memory.
    pub fn is_held(&self, m: &dyn Memory, ticket: u64) -> bool {
        m.get(SEEN) == ticket
    }

    pub fn let_go(&self, m: &dyn Memory) {
        m.set(ATTENTION, 0);
    }

    /// Whether a budget is used up.
    pub fn is_spent(&self, m: &dyn Memory) -> bool {
        m.get(PACKETS) == 0 || m.get(OCTETS) == 0
    }

    /// Moves the end of the run; it can only become earlier.
    pub fn set_end(&self, m: &dyn Memory, end: Picos) {
        m.set(END, m.get(END).min(end.0));
        m.set(PACKETS, 0);
    }

    /// When the next frame of any stream is due; `None`: never, unless a stream is resumed.
    pub fn next_due(&self, m: &dyn Memory) -> Option<Picos> {
        (0..self.streams.len()).map(|i| m.get(KEYS + i)).min().filter(|&k| k != u64::MAX).map(Picos)
    }

    /// Whether stream `i` has frames left.
    pub fn is_active(&self, m: &dyn Memory, i: usize) -> bool {
        m.get(self.streams[i] + S_LEFT) != 0
    }

    pub fn is_paused(&self, m: &dyn Memory, i: usize) -> bool {
        m.get(self.streams[i] + S_PAUSED) != 0
    }

    /// Whether frames of stream `i` leave as soon as they can.
    pub fn is_unpaced(&self, m: &dyn Memory, i: usize) -> bool {
        m.get(self.streams[i] + S_UNPACED) != 0
    }

    /// Pauses stream `i`. Call this method and those below only while the program is held, because
    /// they change several words.
    pub fn pause(&self, m: &dyn Memory, i: usize, now: Picos) {
        if !self.is_paused(m, i) {
            m.set(self.streams[i] + S_PAUSED, now.0 + 1);
            m.set(KEYS + i, u64::MAX);
        }
    }

    pub fn resume(&self, m: &dyn Memory, i: usize, now: Picos) {
        let at = self.streams[i];
        if let Some(since) = m.get(at + S_PAUSED).checked_sub(1) {
            m.set(at + S_PAUSED, 0);
            m.set(at + S_DUE, m.get(at + S_DUE).saturating_add(now.0.saturating_sub(since)));
            self.set_key(m, i);
        }
    }

    /// Ends stream `i`.
    pub fn remove(&self, m: &dyn Memory, i: usize) {
        m.set(self.streams[i] + S_LEFT, 0);
        m.set(self.streams[i] + S_PAUSED, 0);
        m.set(self.streams[i] + S_REMOVED, 1);
        self.set_key(m, i);
    }

    /// Changes the rate from the next gap on; a stream without gaps gets its first gap at `now`.
    pub fn set_rate(&self, m: &dyn Memory, i: usize, gap: Gap, now: Picos) {
        let at = self.streams[i];
        let was_unpaced = self.is_unpaced(m, i);
        self.set_gap(m, i, gap);
        // The fraction has the denominator of the previous gap, with which it would be a wrong
        // time.
        m.set(at + S_FRACTION, 0);
        if was_unpaced || self.is_unpaced(m, i) {
            m.set(at + S_DUE, m.get(at + S_PAUSED).checked_sub(1).unwrap_or(now.0));
        }
        if !self.is_paused(m, i) {
            self.set_key(m, i);
        }
    }

    fn set_gap(&self, m: &dyn Memory, i: usize, gap: Gap) {
        let (at, (_, by)) = (self.streams[i], self.shares[i]);
        let [whole, rest, den] = match (self.only[i], gap) {
            (_, Gap::Zero) => [0, 0, 1],
            (Some(len), gap) => {
                let gap = gap.fixed(len).times(by);
                let Gap::PerFrame { num, den } = gap else {
                    unreachable!("a gap of one length is fixed")
                };
                [num / den, num % den, den]
            }
            (None, gap @ Gap::PerFrame { .. }) => {
                let Gap::PerFrame { num, den } = gap.times(by) else {
                    unreachable!("it stays one of its kind")
                };
                [num, 0, den]
            }
            (None, Gap::PerOctet { num, den, extra }) => [num * u64::from(extra), num, den],
        };
        m.set(at + S_WHOLE, whole);
        m.set(at + S_REST, rest);
        m.set(at + S_DEN, den);
        m.set(at + S_UNPACED, u64::from(gap == Gap::Zero));
    }

    /// The remaining departures of stream `i` at its current gap.
    pub fn timeline(&self, m: &dyn Memory, i: usize, gap: Gap, pattern: Pattern) -> Timeline {
        let by = self.shares[i].1;
        let gap = self.only[i].map_or(gap, |len| gap.fixed(len)).times(by);
        let mut timeline = Timeline::new(gap, GapLaw::Constant, pattern, 0, Picos(0));
        timeline.stand(self.standing(m, i));
        timeline
    }

    /// The departure state of stream `i`.
    pub fn standing(&self, m: &dyn Memory, i: usize) -> Standing {
        let at = self.streams[i];
        Standing {
            due: m.get(at + S_DUE),
            fraction: m.get(at + S_FRACTION),
            left: m.get(at + S_LEFT),
            bursts: m.get(at + S_BURSTS),
        }
    }

    fn stand(&self, m: &dyn Memory, i: usize, s: Standing) {
        let at = self.streams[i];
        m.set(at + S_DUE, s.due);
        m.set(at + S_FRACTION, s.fraction);
        m.set(at + S_LEFT, s.left);
        m.set(at + S_BURSTS, s.bursts);
        self.set_key(m, i);
    }

    fn set_key(&self, m: &dyn Memory, i: usize) {
        let at = self.streams[i];
        let key = if m.get(at + S_LEFT) == 0 { u64::MAX } else { m.get(at + S_DUE) };
        m.set(KEYS + i, key);
    }

    /// Index in stream `i` of the next frame.
    pub fn next_frame(&self, m: &dyn Memory, i: usize) -> u64 {
        m.get(self.streams[i] + S_NEXT)
    }

    /// The counters of stream `i`. While the program runs, they may differ by one frame.
    pub fn accounts(&self, m: &dyn Memory, i: usize) -> Accounts {
        let at = ACCOUNTS + ACCOUNT * i;
        let ((first, by), next) = (self.shares[i], self.next_frame(m, i));
        let taken = m.get(at + A_TAKEN);
        Accounts {
            generated: next.wrapping_sub(first) / by,
            taken,
            octets: m.get(at + A_OCTETS),
            dropped: m.get(at + A_DROPPED),
            refused: m.get(at + A_REFUSED),
            first: (taken > 0).then(|| Nanos(m.get(at + A_FIRST))),
            last: Nanos(m.get(at + A_LAST)),
            late_sum: m.get(at + A_LATE_SUM),
            late_min: u64::MAX - m.get(at + A_LATE_MIN),
            late_max: m.get(at + A_LATE_MAX),
        }
    }

    /// The lateness histogram of stream `i`: (bin, count) for each nonempty bin. Bin 128·k + j is
    /// bin j of octave k in `squall_stats::Histogram`.
    pub fn lateness<'m>(
        &self,
        m: &'m dyn Memory,
        i: usize,
    ) -> impl Iterator<Item = (usize, u64)> + use<'m> {
        let at = self.histograms + BINS * i;
        (0..BINS).map(move |bin| (bin, m.get(at + bin))).filter(|b| b.1 > 0)
    }

    /// When the last frame left, on the clock.
    pub fn last_left(&self, m: &dyn Memory) -> Nanos {
        Nanos(m.get(LAST_LEFT))
    }

    /// The kernel's error numbers for the last failed driver call and redirect; 0: none.
    pub fn errors(&self, m: &dyn Memory) -> (i32, i32) {
        ((m.get(DRIVER_ERROR) as i32).abs(), (m.get(REDIRECT_ERROR) as i32).abs())
    }

    /// Clears the errors once their cause has ended. An error that occurs meanwhile may be lost if
    /// it does not repeat.
    pub fn forget_errors(&self, m: &dyn Memory) {
        m.set(DRIVER_ERROR, 0);
        m.set(REDIRECT_ERROR, 0);
    }

    /// Whether the interface is gone.
    pub fn is_gone(&self, m: &dyn Memory) -> bool {
        m.get(GONE) != 0
    }

    /// Whether the program found an impossible state: a defect.
    pub fn is_broken(&self, m: &dyn Memory) -> bool {
        m.get(BROKEN) != 0
    }
}

struct Words(std::cell::RefCell<Vec<u64>>);

impl Memory for Words {
    fn get(&self, word: usize) -> u64 {
        self.0.borrow()[word]
    }

    fn set(&self, word: usize, value: u64) {
        self.0.borrow_mut()[word] = value;
    }
}
