//! The sink for the frames of one receive queue: writes them as records into chunks, without a
//! further copy, and passes the chunks to the writer.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64,
        Ordering::{Relaxed, Release},
    },
};

use squall_port::{Filter, RxBatch, RxFrame};
use squall_units::Nanos;
use squall_wire::Segments;

use crate::{
    GsoFrames, OnFull, Shared,
    pool::{Chunk, Run},
    record::Record,
};

/// The counters of one tap. Each of them has a single writer.
#[derive(Debug, Default)]
pub(crate) struct TapCounters {
    /// The interface's index in the options.
    pub interface: usize,
    /// Received packets: frames; or GSO frames, if these are kept whole.
    pub packets: AtomicU64,
    /// Packets dropped because the buffer was full: the new packet, or instead the oldest.
    pub newest: AtomicU64,
    pub oldest: AtomicU64,
    /// Packets truncated because the buffer was filling up.
    pub truncated: AtomicU64,
    /// Packets outside the requested time: before its start, or after its end.
    pub before: AtomicU64,
    pub after: AtomicU64,
    /// Packets received after the writer had failed.
    pub failed: AtomicU64,
    pub gso_frames: AtomicU64,
    /// Segments of the received GSO frames.
    pub segments: AtomicU64,
    /// Segments of truncated GSO frames, whose checksums are unknown.
    pub unsummed: AtomicU64,
    /// GSO frames truncated within the headers: segments beyond the first of each, which are not
    /// written.
    pub headless: AtomicU64,
    /// All frames up to this time were passed to the writer; nanoseconds since 1970.
    pub until: AtomicU64,
}

/// Age of its first packet at which a partly filled chunk is passed to the writer, and at which a
/// sleeping writer is woken for the chunks that wait.
const AGE_NS: u64 = 100_000_000;
/// The same age with several taps: the writer must wait for all of them to sort by time.
const AGE_OF_SEVERAL_NS: u64 = 20_000_000;
/// Maximum delay between a frame's kernel timestamp and its arrival in the receive queue.
const SLACK_NS: u64 = 20_000_000;

/// The part of a capture that runs on the thread of a receive queue.
pub struct Tap {
    shared: Arc<Shared>,
    counters: Arc<TapCounters>,
    number: usize,
    record: Record,
    /// The options' snaplen, and the offset of `shared`: here they are in the cache.
    snaplen: usize,
    offset: u64,
    chunk: Option<Chunk>,
    /// The first packet's time of the first chunk for which the writer was not woken.
    unwritten: Option<u64>,
    /// Buffers for assembling and segmenting a GSO frame.
    whole: Vec<u8>,
    cut: Vec<u8>,
    /// The filter for the trigger, until a frame has matched.
    trigger: Option<Arc<Filter>>,
    finished: bool,
}

impl Tap {
    pub(crate) fn new(
        shared: Arc<Shared>,
        counters: Arc<TapCounters>,
        number: usize,
        record: Record,
    ) -> Self {
        let trigger = shared
            .options
            .pre_trigger
            .as_ref()
            .and_then(|t| t.filters.get(counters.interface).cloned());
        Self {
            snaplen: shared.options.snaplen as usize,
            offset: shared.offset,
            shared,
            counters,
            number,
            record,
            chunk: None,
            unwritten: None,
            whole: Vec::new(),
            cut: Vec::new(),
            trigger,
            finished: false,
        }
    }

    /// Writes a packet, or counts that there was no room.
    #[inline]
    fn write(&mut self, octets: &[u8], wire_len: u32, time: Nanos, outgoing: bool) {
        let octets = &octets[..octets.len().min(self.snaplen)];
        let len = self.record.len_of(octets.len());
        let time = time.0.wrapping_add(self.offset);
        match &mut self.chunk {
            Some(chunk) if chunk.octets.len() - chunk.used >= len => {
                let out = &mut chunk.octets[chunk.used..chunk.used + len];
                self.record.put(out, time, wire_len, octets, outgoing);
                chunk.used += len;
                chunk.run.add(time, octets.len());
            }
            _ => self.write_to_next(octets, wire_len, time, outgoing),
        }
    }

    /// Writes a packet into another chunk than the last.
    #[cold]
    fn write_to_next(&mut self, mut octets: &[u8], wire_len: u32, time: u64, outgoing: bool) {
        if !self.renew() {
            return add(&self.counters.newest, 1);
        }
        let Some(chunk) = self.chunk.as_mut() else { return };
        if chunk.octets.len() < self.record.len_of(octets.len()) {
            // A packet longer than a chunk is truncated and counted as such.
            octets = &octets[..chunk.octets.len() - crate::record::MOST_OVERHEAD];
            add(&self.counters.truncated, 1);
        }
        let len = self.record.len_of(octets.len());
        self.record.put(&mut chunk.octets[..len], time, wire_len, octets, outgoing);
        chunk.used = len;
        chunk.run.add(time, octets.len());
    }

    /// Passes the chunk to the writer and takes an empty one. Returns whether one was free.
    fn renew(&mut self) -> bool {
        self.hand_over();
        let pool = &self.shared.pool;
        let policy = self.shared.options.on_full;
        // Before the trigger the buffer is a ring. Overwritten packets were not requested, so they
        // are not counted as dropped.
        let mut chunk = match pool.is_ring() {
            true => self.take_oldest(|owner| &owner.before).or_else(|| pool.lend()),
            false => pool.lend(),
        };
        if chunk.is_none() && policy == OnFull::DropOldest {
            chunk = self.take_oldest(|owner| &owner.oldest);
        }
        if chunk.is_none() && policy == OnFull::Wait {
            chunk = Some(pool.lend_or_wait());
        }
        self.chunk = chunk.map(|chunk| Chunk { source: self.number, ..chunk });
        self.chunk.is_some()
    }

    /// Takes the chunk that has waited longest, and empties it; its packets are added to the
    /// counter `gone`.
    fn take_oldest(&self, gone: fn(&TapCounters) -> &AtomicU64) -> Option<Chunk> {
        let mut chunk = self.shared.pool.take_oldest()?;
        let owner = self.shared.tap(chunk.source);
        gone(&owner).fetch_add(chunk.run.packets, Relaxed);
        chunk.empty();
        Some(chunk)
    }

    fn hand_over(&mut self) {
        if let Some(chunk) = self.chunk.take_if(|chunk| chunk.run.packets > 0) {
            let Run { first, last, .. } = chunk.run;
            self.unwritten = match self.shared.pool.hand_over(chunk) {
                true => None,
                false => self.unwritten.or(Some(first)),
            };
            self.counters.until.store(last, Release);
        }
    }

    /// Wakes the writer for chunks that are old enough, after passing a partly filled one to it if
    /// no other waits.
    #[inline]
    fn age(&mut self, now: u64) {
        let filling = self.chunk.as_ref().filter(|chunk| chunk.run.packets > 0);
        let waiting = self.shared.pool.waiting() > 0;
        let oldest = match waiting {
            true => self.unwritten,
            false => {
                self.unwritten = None;
                filling.map(|chunk| chunk.run.first)
            }
        };
        let Some(oldest) = oldest else { return };
        let old = match self.shared.options.flush {
            true => 0,
            false if self.shared.taps() > 1 => AGE_OF_SEVERAL_NS,
            false => AGE_NS,
        };
        if now.saturating_sub(oldest) >= old && !self.shared.is_armed() {
            if !waiting {
                self.hand_over();
            }
            self.shared.pool.wake();
            self.unwritten = None;
        }
    }

    /// Writes a GSO frame, whole or as segments.
    #[cold]
    fn write_joined(&mut self, octets: &[u8], frame: &RxFrame) {
        let cut = frame.cut;
        let segments = u64::from(cut.segments(frame.wire_len));
        add(&self.counters.gso_frames, 1);
        add(&self.counters.segments, segments);
        if self.shared.options.gso_frames == GsoFrames::Keep {
            return self.write(octets, frame.wire_len, frame.time, frame.outgoing);
        }
        let (mut whole, mut scratch) =
            (std::mem::take(&mut self.whole), std::mem::take(&mut self.cut));
        let present = octets.len();
        let octets = if present < frame.wire_len as usize {
            add(&self.counters.unsummed, segments);
            whole.clear();
            whole.extend_from_slice(octets);
            whole.resize(frame.wire_len as usize, 0);
            whole.as_slice()
        } else {
            octets
        };
        let headers = usize::from(cut.payload);
        if present < headers {
            // Without complete headers the segments cannot be separated.
            self.write(&octets[..present], frame.wire_len, frame.time, frame.outgoing);
            add(&self.counters.headless, segments - 1);
        } else {
            let parts = Segments::new(octets, cut.size.into(), cut.transport.into(), headers);
            for i in 0..parts.count() {
                let len = parts.len_of(i);
                scratch.resize(len, 0);
                parts.write(i, &mut scratch);
                // The captured part of this segment's payload.
                let came = (present - headers)
                    .saturating_sub(i * usize::from(cut.size))
                    .min(len - headers);
                self.write(&scratch[..headers + came], len as u32, frame.time, frame.outgoing);
            }
        }
        (self.whole, self.cut) = (whole, scratch);
    }

    /// Number of packets written for `frame`.
    fn packets_of(&self, frame: &RxFrame) -> u64 {
        match self.shared.options.gso_frames {
            GsoFrames::Keep => 1,
            GsoFrames::Cut => frame.cut.segments(frame.wire_len).into(),
        }
    }

    /// Checks whether one of `frames` is the trigger.
    fn look_for_trigger(&mut self, frames: &RxBatch<'_>) {
        let Some(filter) = &self.trigger else { return };
        let mut wanted =
            frames.iter().filter(|(octets, frame)| filter.keep(octets, frame.wire_len) > 0);
        if let Some((_, frame)) = wanted.next() {
            self.shared.trigger(frame.time.0.wrapping_add(self.shared.offset));
        }
    }
}

/// Adds without an atomic read-modify-write, because there is a single writer.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl Tap {
    /// Captures the frames, which are borrowed during the call. Blocks only with [`OnFull::Wait`];
    /// otherwise frames for which there is no room are counted.
    pub fn take(&mut self, frames: &RxBatch<'_>) {
        let Some(last) = frames.frames.last() else { return };
        if self.shared.is_over() {
            let n: u64 = frames.frames.iter().map(|f| self.packets_of(f)).sum();
            add(&self.counters.packets, n);
            let failed = self.shared.failed.load(Relaxed);
            return add(if failed { &self.counters.failed } else { &self.counters.after }, n);
        }
        if self.shared.is_armed() {
            self.look_for_trigger(frames);
        }
        let truncate = self.shared.truncate_to();
        let mut count = 0;
        for (octets, frame) in frames.iter() {
            let octets = match truncate {
                Some(most) if octets.len() > most => {
                    add(&self.counters.truncated, 1);
                    &octets[..most]
                }
                _ => octets,
            };
            if frame.cut.is_whole() {
                count += 1;
                self.write(octets, frame.wire_len, frame.time, frame.outgoing);
            } else {
                count += self.packets_of(frame);
                self.write_joined(octets, frame);
            }
        }
        add(&self.counters.packets, count);
        self.age(last.time.0.wrapping_add(self.shared.offset));
    }

    /// Called when no frame arrived, at `now` on the engine's clock: passes an old chunk to the
    /// writer.
    pub fn idle(&mut self, now: Nanos) {
        let now = now.0.wrapping_add(self.shared.offset);
        self.age(now);
        // The writer sorts by time, so it has to know soon what each tap has.
        if self.shared.taps() > 1 {
            self.shared.pool.wake();
        }
        if self.chunk.as_ref().is_none_or(|chunk| chunk.run.packets == 0) {
            self.counters.until.fetch_max(now.saturating_sub(SLACK_NS), Release);
        }
    }

    /// Ends the tap.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.hand_over();
            self.counters.until.store(u64::MAX, Release);
            self.shared.pool.leave();
        }
    }
}

impl Drop for Tap {
    /// Also runs after a panic of the worker: the writer waits for all taps.
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        thread,
        time::{Duration, Instant},
    };

    use squall_pcap::InterfaceFormat;

    use super::*;
    use crate::{Capture, LEAST_CHUNK, Options};

    const MS: u64 = 1_000_000;

    fn start() -> Capture {
        let options = Options {
            interfaces: vec![InterfaceFormat::default()],
            buffer: 16 * LEAST_CHUNK,
            virtual_time: true,
            ..Options::default()
        };
        Capture::start(options).unwrap()
    }

    /// Gives `tap` frames of 1,000 octets, which arrived at 1 ms, until one chunk is full.
    fn fill_a_chunk(tap: &mut Tap) {
        let base = [0; 1000];
        let frame = RxFrame { len: 1000, wire_len: 1000, time: Nanos(MS), ..RxFrame::default() };
        while tap.shared.pool.waiting() == 0 {
            tap.take(&RxBatch { base: &base, frames: &[frame] });
        }
    }

    /// Several taps: a writer that sorts waits for none of them.
    #[test]
    fn a_writer_of_several_taps_is_woken_by_each_idle_one() {
        for _ in 0..100 {
            let capture = start();
            let taps = capture.taps(0);
            let (mut fast, mut slow) = (taps(), taps());
            let shared = fast.shared.clone();
            while !shared.pool.writer_sleeps() {
                thread::yield_now();
            }
            let begun = Instant::now();
            fill_a_chunk(&mut fast);
            let sleeps = shared.pool.writer_sleeps();
            slow.idle(Nanos(MS));
            let woken = !shared.pool.writer_sleeps() || shared.pool.waiting() == 0;
            // It also wakes by itself each 20 ms.
            let in_time = begun.elapsed() < Duration::from_millis(10);
            drop((fast, slow));
            capture.finish();
            if in_time && sleeps {
                return assert!(woken);
            }
        }
        panic!("the machine is too busy");
    }

    /// Each wake-up costs two context switches: a tap between two blocks of its ring causes none.
    #[test]
    fn a_sleeping_writer_is_woken_once_the_oldest_packet_is_old_enough() {
        // The writer also wakes by itself, a second after it fell asleep: then the test repeats.
        for _ in 0..100 {
            let capture = start();
            let mut tap = capture.taps(0)();
            let shared = tap.shared.clone();
            while !shared.pool.writer_sleeps() {
                thread::yield_now();
            }
            let begun = Instant::now();
            fill_a_chunk(&mut tap);
            tap.idle(Nanos(MS + AGE_NS - 1));
            let (sleeps, waiting) = (shared.pool.writer_sleeps(), shared.pool.waiting());
            let in_time = begun.elapsed() < Duration::from_millis(500);
            tap.idle(Nanos(MS + AGE_NS));
            // Awake, or already done.
            let woken = !shared.pool.writer_sleeps() || shared.pool.waiting() == 0;
            drop(tap);
            let counters = capture.finish().counters;
            assert_eq!(counters.received, counters.written);
            if in_time {
                assert!(sleeps, "nobody woke the writer yet");
                assert_eq!(waiting, 1);
                return assert!(woken);
            }
        }
        panic!("the machine is too busy to fill a chunk within half a second");
    }
}
