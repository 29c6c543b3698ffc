//! What takes the frames of one receiving queue: they are written into chunks as records, once, and
//! handed on by the chunk.

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

use crate::{GsoFrames, OnFull, Shared, pool::Chunk, record::Record};

/// What one tap has counted. One writer each.
#[derive(Debug, Default)]
pub(crate) struct TapCounters {
    /// Of the options.
    pub interface: usize,
    /// Packets that came: frames, or GSO frames where those are kept whole.
    pub packets: AtomicU64,
    /// Lost because the buffer was full: this one, or the oldest in its place.
    pub newest: AtomicU64,
    pub oldest: AtomicU64,
    /// Packets that were cut because the buffer was filling.
    pub truncated: AtomicU64,
    /// Came before what was wanted, or behind its end.
    pub before: AtomicU64,
    pub after: AtomicU64,
    /// Came when nothing could be written any more.
    pub failed: AtomicU64,
    pub gso_frames: AtomicU64,
    /// Frames in them.
    pub segments: AtomicU64,
    /// Frames of GSO frames of which not all octets came: their checksums are not known.
    pub unsummed: AtomicU64,
    /// Frames of GSO frames of which not even the headers came, beyond the first of each: nothing
    /// of them is written.
    pub headless: AtomicU64,
    /// Frames up to this instant have been handed over, nanoseconds since 1970.
    pub until: AtomicU64,
}

/// What is not full goes on after so long if the writer has nothing else to do.
const AGE_NS: u64 = 100_000_000;
/// With several taps, whose frames the writer puts in order.
const AGE_OF_SEVERAL_NS: u64 = 20_000_000;
/// A frame may be known to the kernel for so long before it comes out of a receiving queue.
const SLACK_NS: u64 = 20_000_000;

/// What a capture takes of a receiving queue, on the thread that has the queue.
pub struct Tap {
    shared: Arc<Shared>,
    counters: Arc<TapCounters>,
    number: usize,
    record: Record,
    chunk: Option<Chunk>,
    /// To make a GSO frame whole, and to cut it.
    whole: Vec<u8>,
    cut: Vec<u8>,
    /// Looked for in each frame until one has come.
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
            shared,
            counters,
            number,
            record,
            chunk: None,
            whole: Vec::new(),
            cut: Vec::new(),
            trigger,
            finished: false,
        }
    }

    /// A packet as it is; whether there was room.
    #[inline]
    fn write(&mut self, octets: &[u8], wire_len: u32, time: Nanos, outgoing: bool) {
        let captured = octets.len().min(self.shared.options.snaplen as usize);
        let mut len = self.record.len_of(captured);
        let mut octets = &octets[..captured];
        let time = time.0.wrapping_add(self.shared.offset);
        if self.chunk.as_ref().is_none_or(|chunk| chunk.octets.len() - chunk.used < len) {
            let Some(kept) = self.renew(captured) else {
                return add(&self.counters.newest, 1);
            };
            octets = &octets[..kept];
            len = self.record.len_of(kept);
        }
        let Some(chunk) = self.chunk.as_mut() else { return };
        if chunk.octets.len() - chunk.used < len {
            // No more than a chunk; so long a frame is counted as cut.
            let most = chunk.octets.len() - chunk.used - crate::record::MOST_BESIDE;
            octets = &octets[..most];
            len = self.record.len_of(most);
            add(&self.counters.truncated, 1);
        }
        self.record.put(
            &mut chunk.octets[chunk.used..chunk.used + len],
            time,
            wire_len,
            octets,
            outgoing,
        );
        chunk.used += len;
        chunk.run.add(time, octets.len());
    }

    /// Hands the chunk on and takes another; octets of the next packet that may be kept, at most
    /// `captured`. `None`: there is no chunk.
    #[cold]
    fn renew(&mut self, captured: usize) -> Option<usize> {
        self.hand_over();
        let pool = &self.shared.pool;
        let policy = self.shared.options.on_full;
        // Until the trigger comes the buffer is a ring: what falls out of it was not asked for.
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
        let chunk = chunk?;
        self.chunk = Some(Chunk { source: self.number, ..chunk });
        Some(captured)
    }

    /// The chunk that has waited longest, emptied; `gone` counts what was in it.
    fn take_oldest(&self, gone: fn(&TapCounters) -> &AtomicU64) -> Option<Chunk> {
        let mut chunk = self.shared.pool.take_oldest()?;
        let owner = self.shared.tap(chunk.source);
        gone(&owner).fetch_add(chunk.run.packets, Relaxed);
        chunk.empty();
        Some(chunk)
    }

    fn hand_over(&mut self) {
        if let Some(chunk) = self.chunk.take_if(|chunk| chunk.run.packets > 0) {
            let until = chunk.run.last;
            self.shared.pool.hand_over(chunk);
            self.counters.until.store(until, Release);
        }
    }

    /// Hands on what is there, if it is old enough and the writer waits.
    #[inline]
    fn age(&mut self, now: u64) {
        let Some(chunk) = self.chunk.as_ref().filter(|chunk| chunk.run.packets > 0) else { return };
        let old = match self.shared.options.flush {
            true => 0,
            false if self.shared.taps() > 1 => AGE_OF_SEVERAL_NS,
            false => AGE_NS,
        };
        if now.saturating_sub(chunk.run.first) >= old
            && self.shared.pool.waiting() == 0
            && !self.shared.is_armed()
        {
            self.hand_over();
        }
    }

    /// A GSO frame, whole or cut into what it is.
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
            // Without all headers nobody can tell the segments apart.
            self.write(&octets[..present], frame.wire_len, frame.time, frame.outgoing);
            add(&self.counters.headless, segments - 1);
        } else {
            let parts = Segments::new(octets, cut.size.into(), cut.transport.into(), headers);
            for i in 0..parts.count() {
                let len = parts.len_of(i);
                scratch.resize(len, 0);
                parts.write(i, &mut scratch);
                // Of this segment's payload so much has come.
                let came = (present - headers)
                    .saturating_sub(i * usize::from(cut.size))
                    .min(len - headers);
                self.write(&scratch[..headers + came], len as u32, frame.time, frame.outgoing);
            }
        }
        (self.whole, self.cut) = (whole, scratch);
    }

    /// Packets that are written of `frame`.
    fn packets_of(&self, frame: &RxFrame) -> u64 {
        match self.shared.options.gso_frames {
            GsoFrames::Keep => 1,
            GsoFrames::Cut => frame.cut.segments(frame.wire_len).into(),
        }
    }

    /// Whether one of `frames` is what the capture waits for.
    fn look_for_trigger(&mut self, frames: &RxBatch<'_>) {
        let Some(filter) = &self.trigger else { return };
        let mut wanted =
            frames.iter().filter(|(octets, frame)| filter.keep(octets, frame.wire_len) > 0);
        if let Some((_, frame)) = wanted.next() {
            self.shared.trigger(frame.time.0.wrapping_add(self.shared.offset));
        }
    }
}

/// One writer: no need of a locked instruction.
#[inline]
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed) + n, Relaxed);
}

impl Tap {
    /// The frames are lent for the call. Waits only with [`OnFull::Wait`]; else frames without room
    /// are counted.
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

    /// No frame came, at `now` on the engine's clock: a chunk that is old enough may go.
    pub fn idle(&mut self, now: Nanos) {
        let now = now.0.wrapping_add(self.shared.offset);
        self.age(now);
        self.shared.pool.wake();
        if self.chunk.as_ref().is_none_or(|chunk| chunk.run.packets == 0) {
            self.counters.until.fetch_max(now.saturating_sub(SLACK_NS), Release);
        }
    }

    /// Nothing comes any more.
    pub fn finish(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.hand_over();
            self.counters.until.store(u64::MAX, Release);
            self.shared.pool.leave();
        }
    }
}

impl Drop for Tap {
    /// A worker that ends in a panic must not leave the writer waiting.
    fn drop(&mut self) {
        self.finish();
    }
}
