//! Maps a received frame to its stream, sequence number and delay.
//!
//! Input: octets with their arrival time ([`Receiver::observe`]). Output: counters and trackers per
//! stream, which the signature at the end of the frame identifies, and on request per flow
//! ([`flows`]), by the sequence numbers of other tools ([`kinds`]). Frames without a signature are
//! only counted. This crate uses no ports and no clocks.
#![forbid(unsafe_code)]

pub mod census;
pub mod flow;
mod flows;
pub mod kinds;
mod lanes;
mod runs;
pub mod track;
mod traffic;
mod trex;

pub use flows::{By, FlowCount, FlowRx, FlowSettings, Flows, TopFlow, TopFlows, source};
pub use lanes::{Lane, Lanes};
pub use runs::{Foreign, RunRx};
pub use traffic::{Bursts, Gaps, Pace, Peak, Traffic};
pub use trex::TrexErrors;
use trex::TrexFlows;

use flow::Link;
use runs::{Candidates, Confirmed};
use squall_program::{
    signature::{LEN, Signature},
    trex::HwIds,
};
use squall_stats::{
    DelaySummary, DelayTracker, EqualBins, Fingerprint, Histogram, RUN, SequenceTracker,
};
use squall_units::{Cut, FCS_LEN, Nanos};
use squall_wire::{Frame, Segments};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use track::{Place, Tracked};

/// Selects the measurements of received frames.
#[derive(Clone, Debug, Default)]
pub struct Measure {
    /// Count only frames and octets, because other code evaluates the frames.
    pub count_only: bool,
    /// Whether to hash every frame.
    pub fingerprint: bool,
    /// Empty bins for gaps between frames, nanoseconds, in addition to the histogram.
    pub gap_bins: Option<EqualBins>,
    /// Settings of the measurement of each flow, with bursts and peaks; `None`: not measured.
    pub flows: Option<FlowSettings>,
    /// Groups of bits; frames of each stream are counted by their values. Empty: none.
    pub places: Arc<[Place]>,
    /// Streams of the run `key` whose frames are also counted by their routes.
    pub lanes: Arc<[StreamLanes]>,
    /// Streams whose frames have TRex's header or mark instead of a signature.
    pub trex: Option<Arc<HwIds>>,
    /// Key of the run to measure; frames of other runs are only counted. `None`: measures the
    /// frames of all runs, separately for each run.
    pub key: Option<u16>,
}

/// A stream with routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLanes {
    /// Its number in signatures.
    pub stream: u16,
    /// At least 1.
    pub routes: usize,
    /// The number of its first frame in this run.
    pub first: u64,
    /// The numbers of the frames with which further phases begin, ascending.
    pub begins: Arc<[u64]>,
}

/// Measurements of one receive queue.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// GSO frames that were received uncut, and the number of their segments, which `packets`
    /// includes.
    pub gso_frames: u64,
    pub segments: u64,
    /// Frames of no stream: they have neither a signature nor a mark.
    pub unsigned: u64,
    /// Frames with the signature of another run, or of an earlier run with the same key, by key.
    /// They are part of no stream.
    pub foreign: BTreeMap<u16, Foreign>,
    /// Frames with TRex's header that are part of no stream.
    pub trex: TrexErrors,
    /// Gaps between consecutive frames in nanoseconds.
    pub gaps: Histogram,
    /// The same gaps in equal bins, if requested.
    pub gap_bins: Option<EqualBins>,
    /// Hash of all frames, if requested.
    pub fingerprint: Option<Fingerprint>,
    /// Measurements of each flow, if requested.
    pub flows: Option<Box<Flows>>,
    /// In a copy for a live view: only the largest flows.
    pub top_flows: TopFlows,
    /// Values at [`Measure::places`], if requested.
    pub tracked: Option<Box<Tracked>>,
    clock_offset: u64,
    count_only: bool,
    restarts: bool,
    link: Link,
    trex_flows: Option<Box<TrexFlows>>,
    last: Option<Nanos>,
    /// The run being measured. If all runs are measured, the run of the last frame.
    run: RunRx,
    /// Whether only one run is measured.
    one_run: bool,
    /// The other runs seen so far, if all runs are measured.
    others: Vec<RunRx>,
    candidates: Candidates,
    /// The key of `run`; [`NO_KEY`] if there is none.
    key: u32,
    /// The start of the run, and the longest plausible time from then to a departure. Frames
    /// outside of this range are of another run, whatever their key. Unlimited if the sender has
    /// another clock.
    begin: u64,
    within_ns: u64,
}

/// Measurements of one stream at one receive queue.
#[derive(Clone, Debug, Default)]
pub struct StreamRx {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    pub sequence: SequenceTracker,
    pub delay: DelayTracker,
    /// Packets recognized by a mark, which the trackers do not include.
    pub marked: u64,
    /// The first copies by their routes, if the stream has any.
    pub lanes: Option<Box<Lanes>>,
}

/// The counters of a [`StreamRx`], without its trackers.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamCounters {
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// First copies.
    pub unique: u64,
    /// Missing numbers below the highest one: frames that are lost or late.
    pub missing: u64,
    /// First copies below the next expected number.
    pub reordered: u64,
    /// How many times numbers were skipped.
    pub gaps: u64,
    pub delay: DelaySummary,
}

/// Maximum number of flows in a copy for a live view.
const TOP_FLOWS: usize = 10;
/// A restarted sender counts from 0 and takes at least 5 ms to return. Workers that share a stream
/// send slightly out of order, each with its own times, which is not a restart.
const BEGIN: u32 = 4096;
const BREAK_NS: i64 = 5_000_000;
/// A value that no check XOR hash can have, because keys have 16 bits.
const NO_KEY: u32 = u32::MAX;
/// Tolerance between times of one clock: a frame may leave after the time was read, and a port may
/// stamp a frame with its future departure time.
const AHEAD_NS: u64 = 1_000_000_000;

impl StreamRx {
    /// A copy of the counters, without allocation.
    pub fn counters(&self) -> StreamCounters {
        StreamCounters {
            packets: self.packets,
            octets: self.octets,
            unique: self.unique(),
            missing: self.sequence.missing_so_far(),
            reordered: self.sequence.counts().reordered,
            gaps: self.sequence.gaps(),
            delay: self.delay.summary(),
        }
    }

    /// First copies. Frames with a mark all count as first copies, because the mark does not
    /// distinguish copies.
    pub fn unique(&self) -> u64 {
        self.sequence.counts().unique + self.marked
    }

    /// Counts one frame. `restarts`: whether it may be the first frame of a restarted sender.
    #[inline]
    fn one(&mut self, sequence: u32, delay: i64, time: u64, restarts: bool) {
        if restarts
            && sequence < BEGIN
            && self.sequence.is_below_expected(sequence)
            && self.delay.is_newer(delay, time, BREAK_NS)
        {
            self.sequence.restart();
            self.delay.restart();
        }
        if self.sequence.observe(sequence).is_new() {
            self.delay.observe(sequence, delay, time);
            if let Some(lanes) = &mut self.lanes {
                lanes.observe_run(sequence, 1);
            }
        }
    }

    /// A copy for a live view: without lanes, which take long to copy with a million routes.
    fn for_view(&self) -> Self {
        Self { sequence: self.sequence.clone(), delay: self.delay.clone(), lanes: None, ..*self }
    }
}

/// Consecutive frames of one stream, with consecutive numbers.
struct Row {
    stream: u16,
    /// The number of the first.
    first: u32,
    count: usize,
    octets: u64,
    delays: [i64; RUN],
    times: [u64; RUN],
}

impl Default for Row {
    fn default() -> Self {
        Self { stream: 0, first: 0, count: 0, octets: 0, delays: [0; RUN], times: [0; RUN] }
    }
}

impl Row {
    #[inline]
    fn is_continued_by(&self, signature: Signature) -> bool {
        signature.stream == self.stream
            && signature.sequence == self.first.wrapping_add(self.count as u32)
            && (1..RUN).contains(&self.count)
    }

    #[inline]
    fn push(&mut self, delay: i64, time: u64, octets: u64) {
        (self.delays[self.count], self.times[self.count]) = (delay, time);
        self.count += 1;
        self.octets += octets;
    }
}

/// Length of a frame with its FCS, octets. 64 bits, because a capture may state any 32-bit length.
#[inline]
fn with_fcs(wire_len: u32) -> u64 {
    u64::from(wire_len) + u64::from(FCS_LEN)
}

impl Receiver {
    /// A receiver for Ethernet frames.
    pub fn new(measure: &Measure) -> Self {
        Self::on(measure, Link::Ethernet)
    }

    /// A receiver for frames of link type `link`.
    pub fn on(measure: &Measure, link: Link) -> Self {
        Self {
            count_only: measure.count_only,
            fingerprint: measure.fingerprint.then(Fingerprint::default),
            gap_bins: measure.gap_bins.clone(),
            flows: measure.flows.as_ref().map(|flows| {
                let flows = Flows::new(flows, measure.gap_bins.as_ref()).on(link);
                Box::new(flows.trusting(measure.key))
            }),
            run: RunRx::new(measure.key, Nanos::ZERO).with_lanes(&measure.lanes),
            one_run: measure.key.is_some(),
            key: measure.key.map_or(NO_KEY, u32::from),
            within_ns: u64::MAX,
            tracked: (!measure.places.is_empty()).then(|| Box::new(Tracked::new(&measure.places))),
            restarts: measure.flows.as_ref().is_some_and(|flows| flows.restarts),
            link,
            trex_flows: measure.trex.clone().map(|ids| Box::new(TrexFlows::new(ids))),
            ..Self::default()
        }
    }

    /// Counts one frame: `octets` as received, `wire_len` octets long without FCS, at `time` on the
    /// arrival clock.
    #[inline]
    pub fn observe(&mut self, octets: &[u8], wire_len: u32, time: Nanos) {
        let len = with_fcs(wire_len);
        self.packets += 1;
        self.octets += len;
        if let Some(fingerprint) = &mut self.fingerprint {
            fingerprint.merge(self::fingerprint(octets, Cut::WHOLE));
        }
        if self.count_only {
            return;
        }
        if let Some(flows) = &mut self.flows {
            flows.observe(octets, len, time);
        }
        self.arrival(time);
        let signature = match self.read(octets) {
            Ok(signature) => signature,
            Err(None) => return self.count_unsigned(octets, 1, len),
            Err(Some(other)) => match self.of_another(other, octets, len, time) {
                Some(signature) => signature,
                None => return,
            },
        };
        let delay = self.delay(signature, time);
        let restarts = self.restarts;
        if let Some(tracked) = &mut self.tracked {
            tracked.observe(octets, len, signature.stream, delay, time.0);
        }
        let stream = self.stream_mut(signature.stream);
        stream.packets += 1;
        stream.octets += len;
        stream.one(signature.sequence, delay, time.0, restarts);
    }

    /// Sets the offset from the arrival clock to the clock of departure times.
    #[inline]
    pub fn set_clock_offset(&mut self, offset_ns: i64) {
        self.clock_offset = offset_ns as u64;
    }

    #[inline]
    fn delay(&self, signature: Signature, arrival: Nanos) -> i64 {
        signature.delay(arrival.0.wrapping_add(self.clock_offset))
    }

    /// Sets the start of the run on the clock of departure times.
    pub fn begin(&mut self, start: Nanos) {
        (self.begin, self.within_ns) = (start.0, AHEAD_NS);
    }

    /// Forgets the start of the run: departure times are from another clock from now on.
    pub fn forget_begin(&mut self) {
        (self.begin, self.within_ns) = (0, u64::MAX);
    }

    /// Sets the current time on the clock of [`Receiver::begin`].
    #[inline]
    pub fn set_now(&mut self, now: Nanos) {
        if self.begin > 0 {
            self.within_ns = now.0.saturating_sub(self.begin) + AHEAD_NS;
        }
    }

    /// Whether the frame carries the signature or mark of a stream of the run.
    #[inline]
    pub fn is_of_a_stream(&self, octets: &[u8]) -> bool {
        let known =
            |key| self.run.key == Some(key) || self.others.iter().any(|run| run.key == Some(key));
        Signature::read(octets).is_some_and(|signature| known(signature.key))
            || self.has_trex_header(octets)
            || self.marked(octets).is_some()
    }

    #[inline]
    fn has_trex_header(&self, octets: &[u8]) -> bool {
        self.trex_flows.as_ref().is_some_and(|flows| flows.knows(octets))
    }

    /// The frame's signature if it is of the run being measured. The error is the signature of
    /// another run, if the frame has one.
    #[inline]
    fn read(&mut self, octets: &[u8]) -> Result<Signature, Option<Signature>> {
        match Signature::read_of(octets, self.key) {
            Ok(signature) if signature.since(self.begin) <= self.within_ns => Ok(signature),
            Err(false) if self.trex_flows.is_none() => Err(None),
            _ => self.read_other(octets),
        }
    }

    /// The same as [`Self::read`], for frames without a signature of this run.
    #[inline(never)]
    fn read_other(&mut self, octets: &[u8]) -> Result<Signature, Option<Signature>> {
        let seen = Signature::read(octets);
        let flows = self.trex_flows.as_mut().ok_or(seen)?;
        flows.read(octets, &mut self.trex).ok_or(seen)
    }

    /// Handles a frame with the signature of another run. If all runs are measured, switches to
    /// that run and returns the signature; otherwise counts the frame.
    ///
    /// By chance, one in 65,536 frames contains a valid signature of some run, so a run is accepted
    /// only at the second frame with its key.
    #[cold]
    fn of_another(
        &mut self,
        signature: Signature,
        octets: &[u8],
        len: u64,
        time: Nanos,
    ) -> Option<Signature> {
        let key = signature.key;
        // The key of this run, but an impossible time.
        if u32::from(key) == self.key || self.foreign.contains_key(&key) {
            self.count_foreign(key, len);
            return None;
        }
        if self.turn_to(key) {
            return Some(signature);
        }
        // A damaged octet in the key must not look like another run, so the frame counts as
        // unsigned.
        let damaged = u32::from(key) ^ self.key;
        if self.one_run && (damaged & 0xff == 0 || damaged & 0xff00 == 0) {
            self.count_unsigned(octets, 1, len);
            return None;
        }
        // The frame has the mark of a stream, so its signature is there by chance.
        let candidate = match self.marked(octets) {
            None => self.candidates.see(signature, len, time),
            Some(_) => None,
        };
        let Some(first) = candidate else {
            self.count_unsigned(octets, 1, len);
            return None;
        };
        self.confirm(first);
        if self.turn_to(key) {
            return Some(signature);
        }
        self.count_foreign(key, len);
        None
    }

    /// Counts a run's first frame, once a second one has confirmed the run.
    fn confirm(&mut self, first: Confirmed) {
        let key = first.signature.key;
        self.unsigned = self.unsigned.saturating_sub(1);
        if self.one_run || self.others.len() + 1 >= runs::MOST_RUNS {
            return self.count_foreign(key, first.len);
        }
        let run = RunRx::new(Some(key), first.arrival);
        self.others.push(run);
        self.turn_to(key);
        let delay = self.delay(first.signature, first.arrival);
        let restarts = self.restarts;
        let stream = self.stream_mut(first.signature.stream);
        stream.packets += 1;
        stream.octets += first.len;
        stream.one(first.signature.sequence, delay, first.arrival.0, restarts);
    }

    /// Switches to the run with this key. Returns whether that run is known.
    fn turn_to(&mut self, key: u16) -> bool {
        if self.key == u32::from(key) {
            return true;
        }
        let Some(at) = self.others.iter().position(|run| run.key == Some(key)) else {
            return false;
        };
        let before = std::mem::replace(&mut self.run, self.others.swap_remove(at));
        // The initial run is only a placeholder, unless frames with marks were counted for it.
        if before.key.is_some() || before.streams().next().is_some() {
            self.others.push(before);
        }
        self.key = key.into();
        if let Some(flows) = &mut self.flows {
            flows.trust(Some(key));
        }
        true
    }

    fn count_foreign(&mut self, key: u16, len: u64) {
        let foreign = self.foreign.entry(key).or_default();
        foreign.packets += 1;
        foreign.octets += len;
    }

    /// Accepts keys that another queue has confirmed: here, a single frame then suffices.
    pub fn confirm_keys(&mut self, keys: &BTreeSet<u16>) {
        for first in self.candidates.take(keys) {
            self.confirm(first);
        }
    }

    /// Keys of the confirmed runs.
    pub fn keys(&self) -> impl Iterator<Item = u16> {
        let measured = self.runs().filter_map(|run| run.key);
        measured.chain(self.foreign.keys().copied())
    }

    /// The measured runs: only one if a single run is measured.
    pub fn runs(&self) -> impl Iterator<Item = &RunRx> {
        std::iter::once(&self.run).chain(&self.others)
    }

    #[inline]
    fn marked(&self, octets: &[u8]) -> Option<u16> {
        self.trex_flows.as_ref()?.marked(octets, self.link)
    }

    /// Counts frames without a signature. `octets` is their total length; `first` is one of them.
    #[inline]
    fn count_unsigned(&mut self, first: &[u8], frames: u64, octets: u64) {
        let Some(number) = self.marked(first) else {
            self.unsigned += frames;
            return;
        };
        let stream = self.stream_mut(number);
        stream.packets += frames;
        stream.marked += frames;
        stream.octets += octets;
    }

    /// Counts a frame that a host stack has taken: `octets` as received. It has `wire_len` octets
    /// without FCS, and was joined as in `cut`.
    #[inline]
    pub fn count_taken(&mut self, octets: &[u8], wire_len: u32, cut: Cut) {
        self.count(wire_len, cut);
        if let Some(all) = &mut self.fingerprint {
            // A truncated frame cannot be cut.
            let cut = if octets.len() == wire_len as usize { cut } else { Cut::WHOLE };
            all.merge(fingerprint(octets, cut));
        }
    }

    #[inline]
    fn count(&mut self, wire_len: u32, cut: Cut) {
        let segments = self.joined(wire_len, cut);
        self.packets += segments;
        self.octets += cut.octets(wire_len);
    }

    /// Counts a GSO frame and returns the number of its segments.
    #[inline]
    fn joined(&mut self, wire_len: u32, cut: Cut) -> u64 {
        let segments = u64::from(cut.segments(wire_len));
        if segments > 1 {
            self.gso_frames += 1;
            self.segments += segments;
        }
        segments
    }

    /// Counts frames in order, with the same result as [`Receiver::observe`]: (octets, wire length
    /// without FCS, time). Consecutive frames of one stream take a third of the time of single
    /// ones.
    #[inline]
    pub fn observe_all<'a>(
        &mut self,
        mut frames: impl Iterator<Item = (&'a [u8], u32, Nanos)> + Clone,
    ) {
        if self.count_only && self.fingerprint.is_none() {
            for (_, wire_len, _) in frames {
                self.packets += 1;
                self.octets += with_fcs(wire_len);
            }
            return;
        }
        if self.count_only
            || self.fingerprint.is_some()
            || self.gap_bins.is_some()
            || self.tracked.is_some()
        {
            return frames
                .for_each(|(octets, wire_len, time)| self.observe(octets, wire_len, time));
        }
        if let Some(flows) = &mut self.flows {
            let each = |(octets, wire_len, time)| flows.observe(octets, with_fcs(wire_len), time);
            frames.clone().for_each(each);
        }
        let mut row = Row::default();
        let mut gaps = [0; RUN];
        loop {
            let mut n = 0;
            // The very first frame has no gap before it.
            let mut skip = usize::from(self.last.is_none());
            let mut last = self.last.unwrap_or_default();
            for (octets, wire_len, time) in frames.by_ref().take(RUN) {
                gaps[n] = time.0.saturating_sub(last.0);
                last = time;
                n += 1;
                let len = with_fcs(wire_len);
                self.octets += len;
                match self.read(octets) {
                    Ok(signature) => {
                        if !row.is_continued_by(signature) {
                            self.count_row(&mut row);
                            (row.stream, row.first) = (signature.stream, signature.sequence);
                        }
                        row.push(self.delay(signature, time), time.0, len);
                    }
                    Err(None) => self.count_unsigned(octets, 1, len),
                    Err(Some(other)) => {
                        // These frames are of the run that was measured before.
                        self.count_row(&mut row);
                        if let Some(signature) = self.of_another(other, octets, len, time) {
                            (row.stream, row.first) = (signature.stream, signature.sequence);
                            row.push(self.delay(signature, time), time.0, len);
                        }
                    }
                }
            }
            if n == 0 {
                break;
            }
            self.packets += n as u64;
            skip = skip.min(n);
            self.last = Some(last);
            self.gaps.record_all(&gaps[skip..n]);
            self.count_row(&mut row);
        }
    }

    fn count_row(&mut self, row: &mut Row) {
        let n = std::mem::take(&mut row.count);
        let octets = std::mem::take(&mut row.octets);
        if n == 0 {
            return;
        }
        let first = row.first;
        let (delays, times) = (&row.delays[..n], &row.times[..n]);
        let restarts = self.restarts;
        let stream = self.stream_mut(row.stream);
        stream.packets += n as u64;
        stream.octets += octets;
        if stream.sequence.observe_run(first, n as u64) {
            if let Some(lanes) = &mut stream.lanes {
                lanes.observe_run(first, n);
            }
            return stream.delay.observe_run(first, delays, times);
        }
        for (i, (&delay, &time)) in delays.iter().zip(times).enumerate() {
            stream.one(first.wrapping_add(i as u32), delay, time, restarts);
        }
    }

    /// Counts the segments of a GSO frame of `wire_len` octets.
    pub fn observe_joined(&mut self, octets: &[u8], wire_len: u32, cut: Cut, time: Nanos) {
        let whole = octets.len() == wire_len as usize;
        if self.count_only {
            return self.count_taken(octets, wire_len, cut);
        }
        // Squall does not sign GSO frames, but GRO may have joined frames that are each signed.
        if whole && (Signature::read(octets).is_some() || self.has_trex_header(octets)) {
            self.joined(wire_len, cut);
            let each = |frame: &[u8]| self.observe(frame, frame.len() as u32, time);
            return segments_of(octets, cut).for_each(&mut Vec::new(), each);
        }
        self.count(wire_len, cut);
        self.count_unsigned(octets, cut.segments(wire_len).into(), cut.octets(wire_len));
        self.arrival(time);
        if let Some(flows) = &mut self.flows {
            let each =
                |frame: &[u8]| flows.observe(frame, (frame.len() as u32 + FCS_LEN).into(), time);
            // A truncated GSO frame cannot be cut, so it counts as a single frame of its flow.
            match whole {
                true => segments_of(octets, cut).for_each(&mut Vec::new(), each),
                false => flows.observe(octets, cut.octets(wire_len), time),
            }
        }
        if let Some(all) = &mut self.fingerprint {
            all.merge(fingerprint(octets, if whole { cut } else { Cut::WHOLE }));
        }
    }

    #[inline]
    fn arrival(&mut self, time: Nanos) {
        if let Some(last) = self.last.replace(time) {
            let gap = time.0.saturating_sub(last.0);
            self.gaps.record(gap);
            if let Some(bins) = &mut self.gap_bins {
                bins.record(gap);
            }
        }
    }

    #[inline]
    fn stream_mut(&mut self, number: u16) -> &mut StreamRx {
        self.run.stream_mut(number)
    }

    /// A copy without histograms, for a live view of thousands of streams.
    pub fn without_histograms(&self) -> Self {
        let light = |s: &StreamRx| StreamRx {
            packets: s.packets,
            octets: s.octets,
            sequence: s.sequence.clone(),
            marked: s.marked,
            ..StreamRx::default()
        };
        self.copy(|run| run.each(light), Histogram::default(), None)
    }

    /// A copy with the streams' histograms but only the largest flows: while all flows are copied,
    /// the queue would overflow.
    pub fn with_histograms(&self) -> Self {
        let view = |run: &RunRx| run.each(StreamRx::for_view);
        self.copy(view, self.gaps.clone(), self.gap_bins.clone())
    }

    fn copy(
        &self,
        run: impl Fn(&RunRx) -> RunRx,
        gaps: Histogram,
        gap_bins: Option<EqualBins>,
    ) -> Self {
        Self {
            run: run(&self.run),
            others: self.others.iter().map(run).collect(),
            foreign: self.foreign.clone(),
            candidates: self.candidates.clone(),
            gaps,
            gap_bins,
            flows: None,
            tracked: None,
            top_flows: self.top_flows(),
            trex_flows: None,
            ..*self
        }
    }

    fn top_flows(&self) -> TopFlows {
        self.flows.as_ref().map_or_else(TopFlows::default, |flows| flows.top(TOP_FLOWS))
    }

    /// The measurements of stream `number` of the current run.
    pub fn stream(&self, number: u16) -> Option<&StreamRx> {
        self.run.stream(number)
    }

    /// The streams of the current run, in ascending order.
    pub fn streams(&self) -> impl Iterator<Item = (u16, &StreamRx)> {
        self.run.streams()
    }
}

/// Fingerprint of the segments of `octets`, without time and key of signatures, which differ from
/// run to run.
pub fn fingerprint(octets: &[u8], cut: Cut) -> Fingerprint {
    let mut all = Fingerprint::default();
    let mut add = |frame: &[u8]| match Signature::read(frame) {
        Some(signature) => all.add(&without_run(frame, signature)),
        None => all.add(frame),
    };
    if cut.is_whole() {
        add(octets);
    } else {
        segments_of(octets, cut).for_each(&mut Vec::new(), add);
    }
    all
}

/// `frame` as if sent at time 0 in a run without a key, with correct checksums.
fn without_run(frame: &[u8], signature: Signature) -> Vec<u8> {
    let mut frame = Frame::dissect(frame.to_vec());
    let (high, low) = Signature { key: 0, time: 0, ..signature }.halves();
    let at = frame.bytes.len() - LEN;
    frame.bytes[at..at + 8].copy_from_slice(&high.to_be_bytes());
    frame.bytes[at + 8..].copy_from_slice(&low.to_be_bytes());
    frame.fill_checksums();
    frame.bytes
}

fn segments_of(octets: &[u8], cut: Cut) -> Segments<'_> {
    Segments::new(octets, cut.size.into(), cut.transport.into(), cut.payload.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u16, sequence: u32, time: u64) -> Vec<u8> {
        let mut octets = vec![0; 60];
        let (high, low) = Signature { key: 0, stream, sequence, time }.halves();
        octets[44..52].copy_from_slice(&high.to_be_bytes());
        octets[52..60].copy_from_slice(&low.to_be_bytes());
        octets
    }

    #[test]
    fn a_frame_that_claims_all_the_length_there_is_is_counted_with_it() {
        for measure in [Measure::default(), Measure { count_only: true, ..Measure::default() }] {
            let mut rx = Receiver::new(&measure);
            rx.observe(&[0; 60], u32::MAX, Nanos(1));
            rx.observe_all([(&[0; 60][..], u32::MAX, Nanos(2))].into_iter());
            assert_eq!((rx.packets, rx.octets), (2, 2 * (u64::from(u32::MAX) + 4)));
        }
    }

    #[test]
    fn signed_frames_are_judged_and_foreign_ones_counted() {
        let mut rx = Receiver::new(&Measure::default());
        for (sequence, sent, came) in [(0, 100, 150), (1, 200, 260), (3, 400, 450)] {
            rx.observe(&frame(7, sequence, sent), 60, Nanos(came));
        }
        rx.observe(&[0; 60], 60, Nanos(500));
        assert_eq!((rx.packets, rx.octets, rx.unsigned), (4, 256, 1));
        let stream = rx.stream(7).unwrap();
        assert_eq!(
            (stream.packets, stream.sequence.lost(4), stream.sequence.missing_so_far()),
            (3, 1, 1)
        );
        assert_eq!((stream.delay.delay().min(), stream.delay.delay().max()), (50, 60));
        assert_eq!(rx.streams().map(|s| s.0).collect::<Vec<_>>(), [7]);
        assert!(rx.stream(6).is_none() && rx.stream(8).is_none());
    }

    #[test]
    fn a_restarted_sender_has_lost_nothing() {
        let flows = Some(FlowSettings::default());
        let mut rx = Receiver::new(&Measure { flows, ..Measure::default() });
        let mut send = |numbers: std::ops::Range<u32>, begin: u64| {
            let frames: Vec<_> = numbers
                .map(|n| (frame(7, n, begin + u64::from(n)), Nanos(begin + u64::from(n) + 50)))
                .collect();
            rx.observe_all(frames.iter().map(|(octets, time)| (&octets[..], 60, *time)));
        };
        send(0..500, 1000);
        // Neither copies of old frames nor later times of a slower worker are a restart.
        send(300..310, 1000);
        send(490..495, 100_000);
        send(0..100, 1_000_000_000);
        let stream = rx.stream(7).unwrap();
        let counts = stream.sequence.counts();
        assert_eq!((stream.sequence.restarts(), counts.unique, counts.duplicates), (1, 600, 15));
        assert_eq!(stream.sequence.missing_so_far(), 0);
        let flows = rx.flows.as_ref().unwrap();
        let known: Vec<_> = flows.table.iter().map(|flow| &flow.value.sequence).collect();
        assert!(matches!(known[..], [kinds::Recognition::Signed(Some(7))]), "{known:?}");
    }

    #[test]
    fn frames_taken_together_count_as_one_by_one() {
        let (mut all, mut each) =
            (Receiver::new(&Measure::default()), Receiver::new(&Measure::default()));
        let mut sequences = [0u32; 3];
        let mut time = 1000;
        for k in 0..300u64 {
            let frames: Vec<(Vec<u8>, Nanos)> = (0..k * 7 % 150)
                .map(|j| {
                    time += (k * j) % 97;
                    let stream = if k % 3 == 0 { j % 3 } else { k % 3 };
                    let sequence = &mut sequences[stream as usize];
                    *sequence += match (k * 150 + j) % 211 {
                        0 => 3,
                        1 => 0,
                        _ => 1,
                    };
                    let mut octets = frame(stream as u16, *sequence, time - 500 - j % 13);
                    octets[50] ^= u8::from((k + j) % 101 == 0);
                    (octets, Nanos(time))
                })
                .collect();
            all.observe_all(frames.iter().map(|(octets, time)| (&octets[..], 60, *time)));
            frames.iter().for_each(|(octets, time)| each.observe(octets, 60, *time));
        }
        assert_eq!(
            (all.packets, all.octets, all.unsigned),
            (each.packets, each.octets, each.unsigned)
        );
        assert!(all.packets > 20_000 && all.unsigned > 0);
        assert_eq!(all.gaps, each.gaps);
        for (number, stream) in each.streams() {
            let other = all.stream(number).unwrap();
            assert_eq!((stream.packets, stream.octets), (other.packets, other.octets));
            assert_eq!(stream.sequence.counts(), other.sequence.counts());
            assert_eq!(stream.sequence.loss_periods(), other.sequence.loss_periods());
            assert_eq!(stream.delay.delay(), other.delay.delay());
            assert_eq!(
                (stream.delay.ipdv(), stream.delay.gap()),
                (other.delay.ipdv(), other.delay.gap())
            );
            assert_eq!(stream.delay.jitter_ns(), other.delay.jitter_ns());
        }
    }

    #[test]
    fn a_fingerprint_leaves_time_and_key_of_a_signature_out_and_nothing_else() {
        let keyed = |text: &str, sequence, time, key| {
            let packet = squall_wire::Packet::parse(text).unwrap();
            let mut frame = packet.build(Some(150), &|_| unreachable!(), 0).unwrap();
            let (high, low) = Signature { key, stream: 3, sequence, time }.halves();
            let at = frame.bytes.len() - LEN;
            frame.bytes[at..at + 8].copy_from_slice(&high.to_be_bytes());
            frame.bytes[at + 8..].copy_from_slice(&low.to_be_bytes());
            frame.fill_checksums();
            fingerprint(&frame.bytes, Cut::WHOLE)
        };
        let frame = |text: &str, sequence, time| keyed(text, sequence, time, 0);
        for text in [
            "eth/ipv4/udp",
            "eth/ipv6/tcp",
            "eth/ipv4/icmp",
            "eth/ipv4/udp/vxlan/eth/ipv4/udp",
            "eth/ipv4/udp(checksum=0)/vxlan/eth/ipv6/udp",
            "eth",
        ] {
            let one = frame(text, 1, 7);
            for time in [0, 8, 0xffff, 123_456_789_012, 1 << 47] {
                assert_eq!(frame(text, 1, time), one, "{text}");
            }
            assert_ne!(frame(text, 2, 7), one, "{text}");
            assert_eq!(keyed(text, 1, 7, 0x1234), one, "{text}");
        }
    }

    #[test]
    fn frames_that_were_joined_count_as_what_they_were() {
        // Ethernet, IPv4, UDP, and four signed payloads of 16 octets.
        let mut octets = vec![0; 42];
        (octets[12], octets[14]) = (8, 0x45);
        for sequence in 0..4 {
            octets.extend(&frame(7, sequence, 100)[44..]);
        }
        let cut = Cut { size: 16, transport: 34, payload: 42 };
        let mut rx = Receiver::new(&Measure { fingerprint: true, ..Measure::default() });
        rx.observe_joined(&octets, 106, cut, Nanos(150));
        assert_eq!((rx.packets, rx.octets, rx.unsigned), (4, 4 * 62, 0));
        assert_eq!((rx.gso_frames, rx.segments), (1, 4));
        assert_eq!(rx.stream(7).map(|s| (s.packets, s.sequence.lost(4))), Some((4, 0)));
        assert_eq!(rx.fingerprint, Some(fingerprint(&octets, cut)));
        octets.truncate(90);
        rx.observe_joined(&octets, 106, cut, Nanos(150));
        assert_eq!(
            (rx.packets, rx.octets, rx.unsigned),
            (8, 8 * 62, 4),
            "what was cut off is counted, too"
        );
    }
}
