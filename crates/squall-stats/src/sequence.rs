//! Loss, duplicates and reordering from sequence numbers, for one stream at one receiver.

use crate::Histogram;

/// Number of recent sequence numbers whose arrival is stored individually: 512 octets, or 0.4 ms at
/// 10 Mpps.
const WINDOW: u64 = 4096;
/// Number of gaps whose start is stored, from which the extent of late frames is computed.
const GAPS: usize = 40;
/// Number of late frames that are stored, from which the n-reordering of later ones is computed.
const LATE: usize = 24;
/// Added to the first number, so numbers below it are still positive.
const BASE: u64 = 1 << 32;

/// Classifies the frames of a stream, which the sender numbers 0, 1, 2 ... modulo 2^32.
///
/// A frame in order takes a comparison and a bit. The last 4096 numbers are stored exactly, so a
/// late frame among them can be distinguished from a duplicate. Older frames count as `too_old` and
/// may be either. Memory use is 1.2 KiB from the first frame on, and 6 KiB more once a frame is
/// lost or late.
///
/// ```
/// use squall_stats::{Observation, SequenceTracker};
/// let mut t = SequenceTracker::new();
/// assert_eq!(t.observe(0), Observation::InOrder);
/// assert_eq!(t.observe(2), Observation::Ahead { missing: 1 });
/// assert_eq!(t.observe(3), Observation::InOrder);
/// assert_eq!(t.observe(1), Observation::Reordered { extent: 2 });
/// assert_eq!(t.observe(1), Observation::Duplicate);
/// assert_eq!(t.lost(10), 6); // the sender says it sent 10
/// ```
#[derive(Clone, Debug, Default)]
pub struct SequenceTracker {
    counts: SequenceCounts,
    /// The next expected number (NextExp of RFC 4737), unwrapped, plus [`BASE`]; 0: no frame yet.
    next: u64,
    /// The lowest number that counts, plus [`BASE`].
    first: u64,
    memory: Option<Box<Memory>>,
    lost: LossPeriods,
    /// Counts of frames before the sender's restart.
    before: Option<Box<Before>>,
}

/// Counts of frames before the last restart of the sender, over all of its earlier runs.
#[derive(Clone, Debug, Default)]
struct Before {
    restarts: u64,
    unique: u64,
    missing: u64,
    /// Patterns of frames before the restart, kept until the next frame allocates `memory`.
    patterns: Option<Box<Patterns>>,
}

/// A range of consecutive numbers: see [`SequenceTracker::span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The lowest number that counts; negative if the stream started below 0 (modulo 2^32).
    pub first: i64,
    /// The number after the highest received one.
    pub end: i64,
    /// How many numbers of the range were received.
    pub unique: u64,
}

/// Distribution of losses over a stream (RFC 3357), and lateness of late frames (RFC 4737).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    pub periods: LossPeriods,
    /// RFC 3357 §4, loss period: lengths in frames.
    pub period_lengths: Histogram,
    /// RFC 3357 §3, loss distance: from each lost frame to the previous lost one, in sequence
    /// numbers; 1 within a period.
    pub distances: Histogram,
    /// RFC 4737 §4.2.1: extents of the reordered frames.
    pub extents: Histogram,
    /// RFC 4737 §5.4: for each reordered frame, the largest n for which it is n-reordered; 0 if it
    /// directly follows a frame with a lower number. A lower bound if more than 24 late frames
    /// arrived after its number was passed over.
    pub n_reordering: Histogram,
    /// Numbers of the first and the last lost frame, and of the first one of the longest period,
    /// unwrapped as in [`SequenceTracker::highest`]; 0 without loss.
    pub first_lost: u64,
    pub last_lost: u64,
    pub longest_from: u64,
}

impl Patterns {
    /// Merges the figures of another receiver that shares the frames of the stream. Periods and
    /// distances are those within each receiver.
    pub fn merge(&mut self, other: &Self) {
        if self.periods.lost == 0 {
            (self.first_lost, self.last_lost) = (other.first_lost, other.last_lost);
        } else if other.periods.lost > 0 {
            self.first_lost = self.first_lost.min(other.first_lost);
            self.last_lost = self.last_lost.max(other.last_lost);
        }
        if other.periods.longest > self.periods.longest {
            self.longest_from = other.longest_from;
        }
        self.periods.periods += other.periods.periods;
        self.periods.lost += other.periods.lost;
        self.periods.longest = self.periods.longest.max(other.periods.longest);
        let (a, b) = (self.periods.min_distance, other.periods.min_distance);
        self.periods.min_distance = if a == 0 || b == 0 { a.max(b) } else { a.min(b) };
        self.period_lengths.merge(&other.period_lengths);
        self.distances.merge(&other.distances);
        self.extents.merge(&other.extents);
        self.n_reordering.merge(&other.n_reordering);
    }
}

/// Number of first copies and of missing frames of a stream, at one receiver or at several that
/// share its frames.
///
/// Frames that are missing at one receiver may have reached another one, which can only be known if
/// the sender has not restarted.
pub fn seen_together<'a>(trackers: impl Iterator<Item = &'a SequenceTracker>) -> (u64, u64) {
    let (mut unique, mut before, mut first, mut end, mut came) = (0, 0, i64::MAX, i64::MIN, 0);
    for tracker in trackers {
        unique += tracker.counts().unique;
        before += tracker.missing_before();
        if let Some(span) = tracker.span() {
            (first, end, came) = (first.min(span.first), end.max(span.end), came + span.unique);
        }
    }
    let missing = if came > 0 { end.abs_diff(first).saturating_sub(came) } else { 0 };
    (unique, before + missing)
}

/// A receiver of a stream: the number of first copies there, and the range of their numbers.
pub type ReceivedRange = (u64, Option<(i64, i64)>);

/// Number of frames of a stream that reached any of several receivers, and of those missing in
/// between, if its path changed from one receiver to another; `None`: it did not.
///
/// The receiver with the most frames counts, and others count as far as their ranges do not overlap:
/// copies of some frames must not hide that others are lost. A receiver counts only if less than
/// half of its frames can be copies.
pub fn seen_in_turn(receivers: &[ReceivedRange]) -> Option<(u64, u64)> {
    let mut receivers: Vec<_> =
        receivers.iter().filter_map(|(unique, range)| Some((*unique, (*range)?))).collect();
    receivers.sort_by_key(|(unique, _)| std::cmp::Reverse(*unique));
    let (mut total, mut covered) = (0, Vec::<(i64, i64)>::new());
    for (unique, (first, end)) in receivers {
        let common = |(from, to): &(i64, i64)| (end.min(*to) - first.max(*from)).max(0) as u64;
        let copies: u64 = covered.iter().map(common).sum();
        if 2 * copies < unique {
            total += unique - copies;
            covered.push((first, end));
        }
    }
    let first = covered.iter().map(|range| range.0).min()?;
    let end = covered.iter().map(|range| range.1).max()?;
    (covered.len() > 1).then(|| (total, end.abs_diff(first).saturating_sub(total)))
}

/// Class of a received frame within its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// The next expected frame, or the first frame of all.
    InOrder,
    /// Above the next expected number: `missing` frames are late or lost.
    Ahead { missing: u32 },
    /// Type-P-Reordered (RFC 4737 §3): below the next expected number. `extent` (§4.2.1): the
    /// number of frames since the arrival of the first higher number.
    Reordered { extent: u64 },
    /// A further copy of a frame (RFC 5560).
    Duplicate,
    /// Below the window, so either late or a duplicate.
    TooOld,
}

impl Observation {
    /// Whether the frame is a first copy. Only these are measured.
    pub fn is_new(self) -> bool {
        matches!(self, Self::InOrder | Self::Ahead { .. } | Self::Reordered { .. })
    }
}

/// Counts by kind. `received` = `unique` + `duplicates` + `too_old`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    pub received: u64,
    /// First copies.
    pub unique: u64,
    /// Further copies (RFC 5560: each copy counts).
    pub duplicates: u64,
    /// First copies below the next expected number (RFC 4737 §3).
    pub reordered: u64,
    /// Older than the 4096 stored numbers: late or duplicates. They do not count in `unique`, so
    /// actual loss may be lower than reported, by up to this number.
    pub too_old: u64,
    /// The largest reordering extent (RFC 4737 §4.2.1), in frames. A lower bound if more than 40
    /// gaps opened before the late frame arrived.
    pub max_reordering_extent: u64,
}

impl SequenceCounts {
    /// Merges the counts of another receiver that shares the frames of the stream.
    pub fn merge(&mut self, other: &Self) {
        self.received += other.received;
        self.unique += other.unique;
        self.duplicates += other.duplicates;
        self.reordered += other.reordered;
        self.too_old += other.too_old;
        self.max_reordering_extent = self.max_reordering_extent.max(other.max_reordering_extent);
    }
}

/// Periods of consecutive losses (RFC 3357 §4: Type-P-One-Way-Loss-Period).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LossPeriods {
    /// Number of periods.
    pub periods: u64,
    /// Frames lost in all periods.
    pub lost: u64,
    /// Frames in the longest period.
    pub longest: u64,
    /// Smallest distance between losses of different periods, in sequence numbers; 0 with fewer
    /// than two periods.
    pub min_distance: u64,
    /// Length of the current period, and the number after its last loss; 0 before the first loss.
    run: u64,
    end: u64,
}

#[derive(Clone, Debug)]
struct Memory {
    /// One bit per number, at the index number modulo [`WINDOW`]. Bits of numbers before the first
    /// are set, so these do not count as missing.
    seen: [u64; WINDOW as usize / 64],
    /// The most recent gaps, as a ring.
    gaps: [Gap; GAPS],
    newest: u32,
    /// How many times numbers were passed over.
    passed_over: u32,
    /// The most recent late frames, as a ring, and the total number of late frames.
    late: [Late; LATE],
    late_frames: u32,
    patterns: Option<Box<Patterns>>,
}

/// A late frame; number and count are modulo 2^32.
#[derive(Clone, Copy, Debug, Default)]
struct Late {
    seq: u32,
    /// Number of unique frames before it.
    came: u32,
}

/// A gap: numbers that were passed over, and when.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// The lowest number, and how many follow; modulo 2^32.
    from: u32,
    len: u32,
    /// Number of unique frames before the gap opened, modulo 2^32.
    opened: u32,
}

impl SequenceTracker {
    /// A tracker that takes the first received frame as the first of the stream: for a receiver
    /// that may have started later than the sender.
    pub const fn new() -> Self {
        Self {
            counts: ZERO,
            next: 0,
            first: 0,
            memory: None,
            lost: LossPeriods::new(),
            before: None,
        }
    }

    /// A tracker that expects `first` as the first number: frames before the first received one
    /// count as missing.
    pub const fn expecting(first: u32) -> Self {
        let at = BASE + first as u64;
        Self {
            counts: ZERO,
            next: at,
            first: at,
            memory: None,
            lost: LossPeriods::new(),
            before: None,
        }
    }

    /// Records a frame with number `seq`.
    #[inline]
    pub fn observe(&mut self, seq: u32) -> Observation {
        self.counts.received += 1;
        if seq == self.next as u32
            && let Some(memory) = &mut self.memory
        {
            let (word, bit) = memory.slot(self.next);
            // The bit still belongs to the number that leaves the window. A zero means that number
            // was never received.
            if *word & bit == 0 {
                *word |= bit;
                self.lost.add(self.next - WINDOW, 1, memory.patterns());
            }
            self.next += 1;
            self.counts.unique += 1;
            return Observation::InOrder;
        }
        self.observe_other(seq)
    }

    /// Records `n` frames with consecutive numbers from `seq` on, if they are the next expected
    /// ones and reveal no loss. Returns whether it did; if not, the caller must record them one at
    /// a time.
    #[inline]
    pub fn observe_run(&mut self, seq: u32, n: u64) -> bool {
        let Some(memory) = &self.memory else { return false };
        // The bits still belong to the numbers that leave the window; they are all ones if all of
        // these were received.
        let came = |seq: u64, bits: u64| {
            let (word, at) = (memory.seen[(seq % WINDOW / 64) as usize], seq % 64);
            let mask = (u64::MAX >> (64 - bits)) << at;
            word & mask == mask
        };
        let first = (64 - self.next % 64).min(n);
        if seq != self.next as u32
            || !(1..=64).contains(&n)
            || !came(self.next, first)
            || first < n && !came(self.next + first, n - first)
        {
            return false;
        }
        self.next += n;
        self.counts.received += n;
        self.counts.unique += n;
        true
    }

    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }

    /// How many times a frame arrived above the next expected number, whether or not the missing
    /// frames arrived later.
    pub fn gaps(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.passed_over.into())
    }

    /// Number of the `sent` frames that were never received (RFC 7680). Duplicates do not
    /// compensate for lost frames.
    pub fn lost(&self, sent: u64) -> u64 {
        sent.saturating_sub(self.counts.unique)
    }

    /// Number of missing numbers below the highest received one: lost up to now, or late.
    pub fn missing_so_far(&self) -> u64 {
        let (missing, unique) =
            self.before.as_ref().map_or((0, 0), |before| (before.missing, before.unique));
        missing + (self.next - self.first).saturating_sub(self.counts.unique - unique)
    }

    /// Records a restart of the sender: numbers count from that of the next frame on. Missing
    /// frames remain missing.
    pub fn restart(&mut self) {
        let (missing, unique) = (self.missing_so_far(), self.counts.unique);
        self.lost_in_window();
        let before = self.before.get_or_insert_default();
        (before.restarts, before.unique, before.missing) = (before.restarts + 1, unique, missing);
        // Without `memory`, the next frame is taken as the first of the stream.
        let patterns = self.memory.take().and_then(|memory| memory.patterns);
        before.patterns = before.patterns.take().or(patterns);
        (self.next, self.first, self.lost.end) = (0, 0, 0);
    }

    /// Heap usage in bytes.
    pub fn memory(&self) -> usize {
        let patterns = |patterns: Option<&Patterns>| {
            patterns.map_or(0, |p| {
                let histograms = [&p.period_lengths, &p.distances, &p.extents, &p.n_reordering];
                size_of::<Patterns>() + histograms.iter().map(|h| h.memory()).sum::<usize>()
            })
        };
        let memory = self
            .memory
            .as_ref()
            .map_or(0, |m| size_of::<Memory>() + patterns(m.patterns.as_deref()));
        memory
            + self
                .before
                .as_ref()
                .map_or(0, |b| size_of::<Before>() + patterns(b.patterns.as_deref()))
    }

    /// Number of restarts of the sender.
    pub fn restarts(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.restarts)
    }

    /// The range received since the start or restart of the sender, if any.
    pub fn span(&self) -> Option<Span> {
        let unique = self.counts.unique - self.before.as_ref().map_or(0, |before| before.unique);
        let number = |at: u64| at as i64 - BASE as i64;
        (unique > 0).then(|| Span { first: number(self.first), end: number(self.next), unique })
    }

    /// Number of frames that were missing before the last restart.
    pub fn missing_before(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.missing)
    }

    /// Whether `seq` is below the next expected number: the frame is late, a duplicate, or from a
    /// restarted sender.
    pub fn is_below_expected(&self, seq: u32) -> bool {
        self.next != 0 && (seq.wrapping_sub(self.next as u32) as i32) < 0
    }

    /// How many numbers would be missing before `seq`; 0 if it is not ahead.
    pub fn ahead(&self, seq: u32) -> u32 {
        match self.next {
            0 => 0,
            next => u32::try_from(seq.wrapping_sub(next as u32) as i32).unwrap_or(0),
        }
    }

    /// The highest received number, unwrapped: 2^32 + 3 is number 3 after one wrap.
    pub fn highest(&self) -> Option<u64> {
        (self.counts.unique > 0 && self.next > 0).then(|| self.next - 1 - BASE)
    }

    /// The loss periods up to the highest received number. A late frame counts as lost until it is
    /// received, and permanently once it is too old.
    pub fn loss_periods(&self) -> LossPeriods {
        self.patterns().periods
    }

    /// Loss periods and distances up to the highest received number, as in
    /// [`SequenceTracker::loss_periods`], and reordering.
    pub fn patterns(&self) -> Patterns {
        self.patterns_with(None)
    }

    /// The same as [`SequenceTracker::patterns`], for a sender that sent the numbers from 0 to
    /// below `sent`: frames before the first received one and after the last one are lost, too.
    /// After a restart of the sender, `sent` cannot be related to its numbers, and has no effect.
    ///
    /// ```
    /// use squall_stats::SequenceTracker;
    /// let mut t = SequenceTracker::new();
    /// [2, 3, 7].into_iter().for_each(|seq| drop(t.observe(seq)));
    /// let patterns = t.patterns_of(12);
    /// assert_eq!((patterns.periods.periods, patterns.periods.lost), (3, 9));
    /// assert_eq!((patterns.first_lost, patterns.last_lost, patterns.longest_from), (0, 11, 8));
    /// ```
    pub fn patterns_of(&self, sent: u64) -> Patterns {
        self.patterns_with(Some(sent))
    }

    fn patterns_with(&self, sent: Option<u64>) -> Patterns {
        let mut all = self.clone();
        all.lost_in_window();
        let sent = sent.filter(|_| all.before.is_none());
        let patterns = all
            .memory
            .and_then(|memory| memory.patterns)
            .or(all.before.and_then(|before| before.patterns));
        let mut patterns = patterns.map_or_else(Patterns::default, |patterns| *patterns);
        let mut lost = all.lost;
        if let Some(sent) = sent {
            let (first, next) = if all.next == 0 { (BASE, BASE) } else { (all.first, all.next) };
            lost.add_first(BASE, first.saturating_sub(BASE), &mut patterns);
            lost.add(next, (BASE + sent).saturating_sub(next), &mut patterns);
        }
        if lost.run > 0 {
            lost.close(&mut patterns);
        }
        for number in
            [&mut patterns.first_lost, &mut patterns.last_lost, &mut patterns.longest_from]
        {
            *number = number.saturating_sub(BASE);
        }
        Patterns { periods: lost, ..patterns }
    }

    /// Counts the missing numbers of the window as lost.
    fn lost_in_window(&mut self) {
        let Some(memory) = &mut self.memory else { return };
        for seq in self.next.saturating_sub(WINDOW).max(self.first)..self.next {
            if !memory.has_seen(seq) {
                self.lost.add(seq, 1, memory.patterns());
            }
        }
    }

    #[cold]
    fn observe_other(&mut self, seq: u32) -> Observation {
        if self.memory.is_none() {
            let patterns = self.before.as_mut().and_then(|before| before.patterns.take());
            self.memory = Some(Box::new(Memory { patterns, ..Memory::new() }));
        }
        if self.next == 0 {
            self.next = BASE + u64::from(seq);
            self.first = self.next;
        }
        // Half of the number space is ahead of the next number, the other half is in the past.
        match seq.wrapping_sub(self.next as u32) as i32 {
            ahead @ 0.. => self.observe_ahead(ahead as u64),
            distance => self.observe_below(u64::from(distance.unsigned_abs())),
        }
    }

    fn observe_ahead(&mut self, missing: u64) -> Observation {
        let memory = self.memory.as_mut().expect("made by observe_other");
        let seq = self.next + missing;
        // Numbers that leave the window when `seq` enters it ...
        for leaving in self.next..(self.next + WINDOW).min(seq + 1) {
            if !memory.has_seen(leaving) {
                self.lost.add(leaving - WINDOW, 1, memory.patterns());
            }
            memory.forget(leaving);
        }
        // ... and numbers that were never in it.
        if missing >= WINDOW {
            self.lost.add(self.next, missing + 1 - WINDOW, memory.patterns());
        }
        memory.see(seq);
        if missing > 0 {
            memory.passed_over += 1;
            memory.open_gap(Gap {
                from: self.next as u32,
                len: missing as u32,
                opened: self.counts.unique as u32,
            });
        }
        self.next = seq + 1;
        self.counts.unique += 1;
        if missing == 0 {
            Observation::InOrder
        } else {
            Observation::Ahead { missing: missing as u32 }
        }
    }

    fn observe_below(&mut self, distance: u64) -> Observation {
        let memory = self.memory.as_mut().expect("made by observe_other");
        let seq = self.next - distance;
        if distance > WINDOW {
            self.counts.too_old += 1;
            return Observation::TooOld;
        }
        if seq < self.first {
            // The stream started earlier than assumed: the numbers in between are missing, as the
            // first received frame passed over them.
            for between in seq..self.first {
                memory.forget(between);
            }
            memory.open_gap_at_start(Gap {
                from: seq as u32,
                len: (self.first - seq) as u32,
                opened: 0,
            });
            self.first = seq;
        }
        if memory.has_seen(seq) {
            self.counts.duplicates += 1;
            return Observation::Duplicate;
        }
        memory.see(seq);
        let came = self.counts.unique as u32;
        let extent = u64::from(came.wrapping_sub(memory.passed_at(seq as u32)));
        let n = memory.n_reordering(seq as u32, came, extent);
        let patterns = memory.patterns();
        patterns.extents.record(extent);
        patterns.n_reordering.record(n);
        self.counts.unique += 1;
        self.counts.reordered += 1;
        self.counts.max_reordering_extent = self.counts.max_reordering_extent.max(extent);
        Observation::Reordered { extent }
    }
}

const ZERO: SequenceCounts = SequenceCounts {
    received: 0,
    unique: 0,
    duplicates: 0,
    reordered: 0,
    too_old: 0,
    max_reordering_extent: 0,
};

impl LossPeriods {
    const fn new() -> Self {
        Self { periods: 0, lost: 0, longest: 0, min_distance: 0, run: 0, end: 0 }
    }

    /// Adds `n` losses from `seq` on. They are above all earlier losses.
    #[cold]
    fn add(&mut self, seq: u64, n: u64, patterns: &mut Patterns) {
        if n == 0 {
            return;
        }
        if self.lost == 0 {
            patterns.first_lost = seq;
        }
        if self.end == seq {
            self.run += n;
            patterns.distances.record_n(1, n);
        } else {
            if self.run > 0 {
                self.close(patterns);
            }
            // RFC 3357 §3: distance of a loss from the previous one, which is undefined across a
            // restart.
            if self.end > 0 {
                let distance = seq + 1 - self.end;
                patterns.distances.record(distance);
                if self.min_distance == 0 || distance < self.min_distance {
                    self.min_distance = distance;
                }
            }
            patterns.distances.record_n(1, n - 1);
            self.periods += 1;
            self.run = n;
        }
        self.lost += n;
        self.end = seq + n;
        patterns.last_lost = self.end - 1;
        if self.run > self.longest {
            (self.longest, patterns.longest_from) = (self.run, self.end - self.run);
        }
    }

    /// Adds a period of `n` losses from `seq` on, below all other losses and not adjacent to them.
    fn add_first(&mut self, seq: u64, n: u64, patterns: &mut Patterns) {
        if n == 0 || self.lost == 0 {
            return self.add(seq, n, patterns);
        }
        let distance = patterns.first_lost + 1 - (seq + n);
        patterns.distances.record(distance);
        patterns.distances.record_n(1, n - 1);
        patterns.period_lengths.record_n(n, 1);
        if self.min_distance == 0 || distance < self.min_distance {
            self.min_distance = distance;
        }
        (self.periods, self.lost) = (self.periods + 1, self.lost + n);
        patterns.first_lost = seq;
        if n >= self.longest {
            (self.longest, patterns.longest_from) = (n, seq);
        }
    }

    /// Ends the current period.
    fn close(&mut self, patterns: &mut Patterns) {
        patterns.period_lengths.record_n(std::mem::take(&mut self.run), 1);
    }
}

impl Memory {
    fn new() -> Self {
        Self {
            seen: [u64::MAX; WINDOW as usize / 64],
            gaps: [Gap::default(); GAPS],
            newest: 0,
            passed_over: 0,
            late: [Late::default(); LATE],
            late_frames: 0,
            patterns: None,
        }
    }

    fn patterns(&mut self) -> &mut Patterns {
        self.patterns.get_or_insert_default()
    }

    /// RFC 4737 §5: how many consecutive frames before this one (the `came`-th) have numbers above
    /// `seq`. Frames that arrived in order after `seq` was passed over have higher numbers, so the
    /// first frame with a lower one was late, too.
    fn n_reordering(&mut self, seq: u32, came: u32, extent: u64) -> u64 {
        let known = (self.late_frames as usize).min(LATE);
        let newest_first = (1..=known).map(|i| self.late[(self.late_frames as usize - i) % LATE]);
        let lower = newest_first.into_iter().find(|late| (late.seq.wrapping_sub(seq) as i32) < 0);
        self.late[self.late_frames as usize % LATE] = Late { seq, came };
        // With more than 2^32 late frames, the ring would wrap at a wrong index.
        self.late_frames = self.late_frames.checked_add(1).unwrap_or(LATE as u32);
        lower.map_or(extent, |late| extent.min(u64::from(came.wrapping_sub(late.came)) - 1))
    }

    #[inline]
    fn slot(&mut self, seq: u64) -> (&mut u64, u64) {
        (&mut self.seen[(seq % WINDOW / 64) as usize], 1 << (seq % 64))
    }

    fn has_seen(&self, seq: u64) -> bool {
        self.seen[(seq % WINDOW / 64) as usize] & 1 << (seq % 64) != 0
    }

    fn see(&mut self, seq: u64) {
        let (word, bit) = self.slot(seq);
        *word |= bit;
    }

    fn forget(&mut self, seq: u64) {
        let (word, bit) = self.slot(seq);
        *word &= !bit;
    }

    fn open_gap(&mut self, gap: Gap) {
        self.newest = (self.newest + 1) % GAPS as u32;
        self.gaps[self.newest as usize] = gap;
    }

    /// Adds a gap that is older than all stored ones, if there is room.
    fn open_gap_at_start(&mut self, gap: Gap) {
        let oldest = (self.newest as usize + 1) % GAPS;
        let free =
            (0..GAPS).map(|i| (oldest + i) % GAPS).take_while(|&i| self.gaps[i].len == 0).last();
        if let Some(free) = free {
            self.gaps[free] = gap;
        }
    }

    /// Number of unique frames before `seq` was passed over. If its gap is no longer stored, the
    /// number before the oldest stored gap.
    fn passed_at(&self, seq: u32) -> u32 {
        let newest_first = (0..GAPS).map(|i| &self.gaps[(self.newest as usize + GAPS - i) % GAPS]);
        let known = newest_first.take_while(|gap| gap.len > 0);
        let mut passed_at = 0;
        for gap in known {
            passed_at = gap.opened;
            if seq.wrapping_sub(gap.from) < gap.len {
                break;
            }
        }
        passed_at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use Observation::*;

    fn of(seqs: impl IntoIterator<Item = u32>) -> SequenceTracker {
        let mut t = SequenceTracker::new();
        seqs.into_iter().for_each(|seq| {
            t.observe(seq);
        });
        t
    }

    #[test]
    fn frames_of_a_path_that_changed_are_those_of_all_its_receivers() {
        // 0..100 at one port, then 110..300 at another: 10 are missing.
        assert_eq!(
            seen_in_turn(&[(100, Some((0, 100))), (190, Some((110, 300)))]),
            Some((290, 10))
        );
        // Three around the change may be copies.
        assert_eq!(seen_in_turn(&[(100, Some((0, 103))), (200, Some((100, 300)))]), Some((297, 3)));
        // A switch floods ten frames, then has learnt the port.
        assert_eq!(seen_in_turn(&[(10, Some((0, 10))), (290, Some((0, 300)))]), None);
        // All frames reach both ports, and one of them loses half.
        assert_eq!(seen_in_turn(&[(150, Some((0, 300))), (300, Some((0, 300)))]), None);
        assert_eq!(seen_in_turn(&[(300, Some((0, 300))), (0, None)]), None);
        assert_eq!(seen_in_turn(&[]), None);
        // There and back again.
        let back = [(100, Some((0, 100))), (100, Some((100, 200))), (90, Some((205, 300)))];
        assert_eq!(seen_in_turn(&back), Some((290, 10)));
    }

    #[test]
    fn extents_are_those_of_rfc_4737() {
        // RFC 4737 §7.1: 4 arrives after 8; §4.2.1: e = i - j.
        let mut t = of([1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(t.observe(4), Reordered { extent: 4 });
        assert_eq!(t.observe(9), InOrder);
        // RFC 4737 §7.3: a block of three is late.
        let mut t = of([1, 2, 3, 7, 8, 9, 10]);
        let late = [4, 5, 6, 11].map(|seq| t.observe(seq));
        assert_eq!(
            late,
            [Reordered { extent: 4 }, Reordered { extent: 5 }, Reordered { extent: 6 }, InOrder]
        );
        assert_eq!((t.counts().reordered, t.counts().max_reordering_extent), (3, 6));
    }

    #[test]
    fn runs_count_as_their_frames_one_by_one() {
        let (mut runs, mut each) = (SequenceTracker::new(), SequenceTracker::new());
        let (mut seq, mut whole) = (u32::MAX - 5_000, 0);
        for k in 0..3_000u32 {
            let n = 1 + k * 37 % 64;
            // Some numbers are lost, and some are repeated.
            seq = seq.wrapping_add(match k {
                _ if k % 401 == 400 => 2 + k % 3,
                _ if k % 701 == 700 => u32::MAX,
                _ => 0,
            });
            if runs.observe_run(seq, n.into()) {
                whole += 1;
            } else {
                (0..n).for_each(|j| {
                    runs.observe(seq.wrapping_add(j));
                });
            }
            (0..n).for_each(|j| {
                each.observe(seq.wrapping_add(j));
            });
            seq = seq.wrapping_add(n);
            assert_eq!(
                (runs.counts(), runs.next, runs.lost),
                (each.counts(), each.next, each.lost),
                "{k}"
            );
        }
        assert_eq!(runs.loss_periods(), each.loss_periods());
        assert!(whole > 2_900, "{whole} of 3000 were taken at once");
    }

    #[test]
    fn n_reordering_is_that_of_rfc_4737() {
        // RFC 4737 §7.4: 4 arrives after 5, 6, 7 and is 3-reordered. §7.3: in a late block, only
        // the first frame is n-reordered.
        let n = |seqs: &[u32]| -> Vec<(u64, u64)> {
            of(seqs.iter().copied()).patterns().n_reordering.bins().map(|b| (b.0, b.2)).collect()
        };
        assert_eq!(n(&[1, 2, 3, 5, 6, 7, 4]), [(3, 1)]);
        assert_eq!(n(&[1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11]), [(0, 2), (4, 1)]);
        // Frames in reverse order at the end: 3 after 4 and 5, then 2 after all three.
        assert_eq!(n(&[1, 5, 4, 3, 2]), [(1, 1), (2, 1), (3, 1)]);
    }

    #[test]
    fn a_restarted_sender_loses_only_lost_frames() {
        let mut t = of([0, 1, 3, 4, 5]);
        t.restart();
        for seq in [0, 1, 2, 5] {
            assert!(t.observe(seq).is_new(), "{seq}");
        }
        assert_eq!(
            (t.restarts(), t.missing_so_far(), t.missing_before(), t.counts().unique),
            (1, 3, 1, 9)
        );
        assert_eq!(t.span(), Some(Span { first: 0, end: 6, unique: 4 }));
        let patterns = t.patterns();
        assert_eq!((patterns.periods.periods, patterns.periods.lost), (2, 3));
        assert_eq!(patterns.distances.bins().map(|b| (b.0, b.2)).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(t.observe(3), Reordered { extent: 1 });
        t.restart();
        assert_eq!((t.restarts(), t.missing_so_far(), t.highest(), t.span()), (2, 2, None, None));
    }

    #[test]
    fn distances_and_lengths_of_losses_are_those_of_rfc_3357() {
        let lost = [3, 4, 5, 9, 20, 21];
        let patterns = of((0..30).filter(|seq| !lost.contains(seq))).patterns();
        let bins = |h: &Histogram| h.bins().map(|b| (b.0, b.2)).collect::<Vec<_>>();
        assert_eq!(bins(&patterns.period_lengths), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(bins(&patterns.distances), [(1, 3), (4, 1), (11, 1)]);
    }

    #[test]
    fn losses_at_both_ends_of_what_was_sent_are_periods() {
        let bins = |h: &Histogram| h.bins().map(|b| (b.0, b.2)).collect::<Vec<_>>();
        let lost = [0, 1, 5, 28, 29];
        let t = of((0..30).filter(|seq| !lost.contains(seq)));
        let patterns = t.patterns_of(30);
        assert_eq!(bins(&patterns.period_lengths), [(1, 1), (2, 2)]);
        assert_eq!(bins(&patterns.distances), [(1, 2), (4, 1), (23, 1)]);
        assert_eq!((patterns.periods.lost, patterns.periods.min_distance), (5, 4));
        assert_eq!((patterns.first_lost, patterns.last_lost, patterns.longest_from), (0, 29, 0));
        assert_eq!(t.patterns().periods.lost, 1);
        let none = SequenceTracker::new().patterns_of(9);
        assert_eq!((none.periods.periods, none.periods.longest, none.last_lost), (1, 9, 8));
        // Losses beyond the window count, too.
        let long = of((0..30_000).filter(|seq| (9_000..20_000).contains(seq))).patterns_of(30_000);
        assert_eq!((long.periods.longest, long.longest_from), (10_000, 20_000));
        assert_eq!(long.periods.lost, 19_000);
        let mut restarted = of([3]);
        restarted.restart();
        assert_eq!(restarted.patterns_of(9).periods.lost, 0);
    }

    #[test]
    fn duplicates_are_not_reordered_and_do_not_hide_loss() {
        let t = of([0, 1, 1, 3, 3, 3, 0]);
        assert_eq!((t.counts().received, t.counts().unique, t.counts().duplicates), (7, 3, 4));
        assert_eq!((t.counts().reordered, t.lost(4), t.missing_so_far()), (0, 1, 1));
    }

    #[test]
    fn numbers_wrap() {
        let mut t = of([u32::MAX - 1, u32::MAX]);
        assert_eq!(
            [t.observe(0), t.observe(2), t.observe(1)],
            [InOrder, Ahead { missing: 1 }, Reordered { extent: 1 }]
        );
        assert_eq!((t.highest(), t.missing_so_far()), (Some((1 << 32) + 2), 0));
    }

    #[test]
    fn a_stream_may_begin_out_of_order_even_below_zero() {
        let mut t = of([0]);
        assert_eq!(t.observe(u32::MAX - 1), Reordered { extent: 1 });
        assert_eq!((t.missing_so_far(), t.highest()), (1, Some(0)));
        assert_eq!(t.observe(u32::MAX), Reordered { extent: 2 });
        assert_eq!(t.observe(u32::MAX), Duplicate);
        assert_eq!((t.missing_so_far(), t.counts().unique), (0, 3));
    }

    #[test]
    fn a_receiver_with_a_known_start_counts_missing_first_frames() {
        let mut t = SequenceTracker::expecting(0);
        assert_eq!((t.highest(), t.missing_so_far()), (None, 0));
        assert_eq!(t.observe(3), Ahead { missing: 3 });
        assert_eq!(t.gaps(), 1);
        assert_eq!((t.missing_so_far(), t.loss_periods().periods, t.lost(4)), (3, 1, 3));
        assert_eq!(t.observe(1), Reordered { extent: 1 });
    }

    #[test]
    fn frames_older_than_the_window_are_counted_separately() {
        let mut t = of((0..10_000).filter(|&seq| seq != 5_000));
        assert_eq!(t.observe(10_000 - 4097), TooOld);
        assert_eq!(t.observe(10_000 - 4096), Duplicate);
        assert_eq!(t.observe(5_000), TooOld);
        assert_eq!((t.counts().too_old, t.counts().duplicates, t.missing_so_far()), (2, 1, 1));
    }

    #[test]
    fn loss_periods_are_separate_in_the_window_and_after_it() {
        let lost = |seq: u32| {
            (10..13).contains(&seq) || seq == 20 || (5_000..15_000).contains(&seq) || seq == 29_990
        };
        let t = of((0..30_000).filter(|&seq| !lost(seq)));
        let p = t.loss_periods();
        assert_eq!((p.periods, p.lost, p.longest, p.min_distance), (4, 10_005, 10_000, 8));
        assert_eq!(p.lost, t.missing_so_far());
    }

    #[test]
    fn a_jump_over_the_window_forgets_it() {
        let mut t = of([0, 1, 1_000_000_000]);
        assert_eq!(t.missing_so_far(), 999_999_998);
        assert_eq!(t.loss_periods().longest, 999_999_998);
        assert_eq!(t.observe(1_000_000_000 - 4095), Reordered { extent: 1 });
        assert_eq!(t.observe(1), TooOld);
    }

    #[test]
    fn many_gaps_make_the_extent_a_lower_bound() {
        let mut t = of((0..2_000).filter(|seq| seq % 10 != 5));
        assert_eq!(t.observe(1_995), Reordered { extent: 4 });
        // 40 gaps ago is 400 numbers ago; 360 of them were received.
        let Reordered { extent } = t.observe(5) else { panic!("5 is new") };
        assert!((350..=1_800).contains(&extent), "{extent}");
    }

    #[test]
    fn it_is_small() {
        assert!(size_of::<Memory>() <= 1280, "{}", size_of::<Memory>());
        assert!(size_of::<SequenceTracker>() <= 128, "{}", size_of::<SequenceTracker>());
    }

    /// The definitions of RFC 4737, RFC 5560 and RFC 3357, computed with unlimited memory.
    fn reference(arrivals: &[u64]) -> (SequenceCounts, Vec<u64>) {
        let (mut counts, mut order) = (SequenceCounts::default(), Vec::new());
        for &seq in arrivals {
            counts.received += 1;
            if order.contains(&seq) {
                counts.duplicates += 1;
                continue;
            }
            counts.unique += 1;
            if let Some(j) = order.iter().position(|&earlier| earlier > seq) {
                counts.reordered += 1;
                counts.max_reordering_extent =
                    counts.max_reordering_extent.max((order.len() - j) as u64);
            }
            order.push(seq);
        }
        (counts, order)
    }

    proptest! {
        #[test]
        fn all_counts_are_those_of_the_definitions(start in any::<u32>(), jitter in vec((0..30u64, 0..10u8), 1..150)) {
            // Numbers in order, some delayed by a few positions, some lost, some repeated.
            let mut arrivals = Vec::new();
            for (i, &(delay, fate)) in jitter.iter().enumerate() {
                let due = i as u64 * 4;
                for copy in 0..[0, 2][usize::from(fate == 1)].max(u64::from(fate > 1)) {
                    arrivals.push((due + if fate < 5 { delay + 7 * copy } else { 0 }, i as u64));
                }
            }
            arrivals.sort_by_key(|a| a.0);
            let arrivals: Vec<u64> = arrivals.into_iter().map(|a| a.1).collect();
            let t = of(arrivals.iter().map(|&seq| start.wrapping_add(seq as u32)));
            let (expected, order) = reference(&arrivals);
            prop_assert_eq!(t.counts(), expected);
            let Some((&low, &high)) = order.iter().min().zip(order.iter().max()) else { return Ok(()) };
            let came: HashSet<u64> = order.into_iter().collect();
            let missing: Vec<u64> = (low..high).filter(|seq| !came.contains(seq)).collect();
            prop_assert_eq!(t.missing_so_far(), missing.len() as u64);
            let periods = t.loss_periods();
            prop_assert_eq!(periods.lost, missing.len() as u64);
            let starts = missing.iter().filter(|&&seq| seq == low || came.contains(&(seq - 1))).count();
            prop_assert_eq!(periods.periods, starts as u64);
            prop_assert_eq!(t.highest().map(|h| h as u32), Some(start.wrapping_add(high as u32)));
        }

        #[test]
        fn no_input_breaks_the_sums(seqs in vec(prop_oneof![any::<u32>(), 0..10_000u32], 0..400), start in any::<bool>()) {
            let mut t = if start { SequenceTracker::expecting(0) } else { SequenceTracker::new() };
            let new = seqs.iter().filter(|&&seq| t.observe(seq).is_new()).count() as u64;
            let c = t.counts();
            prop_assert_eq!(c.received, seqs.len() as u64);
            prop_assert_eq!(c.unique + c.duplicates + c.too_old, c.received);
            prop_assert_eq!(new, c.unique);
            let periods = t.loss_periods();
            prop_assert_eq!(periods.lost, t.missing_so_far());
            prop_assert!(periods.longest <= periods.lost && periods.periods <= periods.lost);
        }
    }
}
