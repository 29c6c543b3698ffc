//! A receiving queue: the frames that it gives, and what is counted of them.

use std::sync::Arc;

use squall_measure::{FlowCount, Receiver, StreamCounters, track::Key};
use squall_port::{BATCH, CommonClock, Filter, RxBatch, RxFrame, RxQueue, Tap};
use squall_units::Nanos;

use crate::source::Source;

/// What one receiving queue has seen.
#[derive(Clone, Debug)]
pub struct PortRx {
    pub port: usize,
    pub seen: Receiver,
    /// Frames that came as far as the queue, a GSO frame as one, where the port counts them
    /// ([`RxQueue::received`]): `given`, `drops` and what still waits there.
    pub received: Option<u64>,
    /// Frames that the queue has given.
    pub given: u64,
    /// Of these, frames that the engine's filter did not take.
    pub filtered: u64,
    /// Lost between the interface and us.
    pub drops: Vec<(&'static str, u64)>,
    pub error: Option<String>,
}

/// Counters of one receiving queue.
#[derive(Clone, Debug, Default)]
pub struct QueueCounters {
    pub port: usize,
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// Frames without a signature of ours.
    pub unsigned: u64,
    /// Frames with signatures of other runs.
    pub foreign: u64,
    /// By number.
    pub streams: Vec<(u16, StreamCounters)>,
    /// What stood at the places that are tracked.
    pub tracked: Vec<(Key, StreamCounters)>,
    /// Frames whose value there found no room.
    pub beyond: u64,
}

impl QueueCounters {
    pub fn of(port: usize, seen: &Receiver) -> Self {
        Self {
            port,
            packets: seen.packets,
            octets: seen.octets,
            unsigned: seen.unsigned,
            foreign: seen.foreign.values().map(|foreign| foreign.packets).sum(),
            streams: seen.streams().map(|(number, stream)| (number, stream.counters())).collect(),
            tracked: seen
                .tracked
                .as_ref()
                .map_or_else(Vec::new, |tracked| tracked.rows().collect()),
            beyond: seen.tracked.as_ref().map_or(0, |tracked| tracked.beyond),
        }
    }
}

/// A part of the flows that one receiving queue told apart.
pub(crate) struct QueueFlows {
    pub port: usize,
    /// Flows of this queue so far.
    pub total: usize,
    /// When its first frame came; `None` before that.
    pub begin: Option<Nanos>,
    /// Frames and octets of flows that found no room.
    pub rest: (u64, u64),
    pub flows: Vec<FlowCount>,
}

/// Flows of all receiving queues, so far.
#[derive(Clone, Debug, Default)]
pub struct ReceivedFlows {
    /// Flows that the queues know; more than `flows` where not all were wanted.
    pub total: usize,
    /// When the first frame of all came.
    pub begin: Option<Nanos>,
    /// Frames and octets of flows that found no room.
    pub rest: (u64, u64),
    /// With the port that each was received on; once for each queue that saw it.
    pub flows: Vec<(usize, FlowCount)>,
}

/// A receiving queue, and what is done with its frames.
pub(crate) struct Receiving {
    pub queue: Box<dyn RxQueue>,
    pub port: usize,
    pub seen: Receiver,
    filter: Option<Arc<Filter>>,
    /// Frames of a batch that the filter took.
    chosen: Vec<RxFrame>,
    /// Where sources take frames of this port, too.
    claimed: Option<Claimed>,
    pub tap: Option<Box<dyn Tap>>,
    /// Frames that the queue has given, and those of them that the filter did not take.
    pub given: u64,
    pub filtered: u64,
    common: CommonClock,
    pub error: Option<String>,
}

/// What sources take of a port's frames.
#[derive(Default)]
struct Claimed {
    /// What is left is measured; otherwise all is only counted.
    measured: bool,
    /// Frame by frame of a batch: it has a signature of ours, which says whose it is whatever
    /// address it goes to; and somebody has claimed it.
    signed: Vec<bool>,
    claims: Vec<bool>,
    rest: Vec<RxFrame>,
}

impl Receiving {
    pub fn new(
        port: usize,
        queue: Box<dyn RxQueue>,
        seen: Receiver,
        filter: Option<Arc<Filter>>,
        tap: Option<Box<dyn Tap>>,
    ) -> Self {
        Self {
            queue,
            port,
            seen,
            filter,
            chosen: Vec::with_capacity(BATCH),
            claimed: None,
            tap,
            given: 0,
            filtered: 0,
            common: CommonClock::default(),
            error: None,
        }
    }

    /// Frames are stamped by this clock.
    pub fn by(mut self, common: CommonClock) -> Self {
        self.common = common;
        self
    }

    /// All frames of the run leave from `start` on, by the engine's clock.
    pub fn from(mut self, start: Option<Nanos>) -> Self {
        start.into_iter().for_each(|start| self.seen.begin(start));
        self
    }

    /// From now on frames are stamped by this clock.
    pub fn set_common(&mut self, common: CommonClock) {
        self.common = common;
        self.seen.forget_begin();
    }

    /// Sources take frames of the port, too; `measured`: of what they leave, more is wanted than
    /// its count.
    pub fn claimed(mut self, measured: bool) -> Self {
        self.claimed = Some(Claimed { measured, ..Claimed::default() });
        self
    }

    /// Takes what has come; whether anything has.
    #[inline]
    pub fn turn(&mut self, now: Nanos, sources: &mut [Box<dyn Source>]) -> bool {
        if self.claimed.is_none() {
            return self.take(now, &mut []);
        }
        let mut any = false;
        for source in &mut *sources {
            any |= source.sink(self.port).is_some_and(|sink| sink.advance(now));
        }
        for _ in 0..MOST_BATCHES {
            if !self.take(now, sources) {
                break;
            }
            any = true;
            let pressed = |source: &mut Box<dyn Source>| {
                source.sink(self.port).is_some_and(|sink| sink.is_pressed())
            };
            if sources.iter_mut().any(pressed) {
                break;
            }
        }
        any
    }

    /// Takes one batch; whether there was any.
    #[inline]
    pub fn take(&mut self, now: Nanos, sources: &mut [Box<dyn Source>]) -> bool {
        let batch = match self.queue.receive() {
            Ok(batch) => batch,
            Err(error) => {
                self.error = Some(error.to_string());
                return false;
            }
        };
        if batch.frames.is_empty() {
            return false;
        }
        self.given += batch.frames.len() as u64;
        // Within a batch clocks do not come apart by what matters.
        self.seen.set_clock_offset(self.common.offset(batch.frames[0].time));
        self.seen.set_now(now);
        let batch = match &self.filter {
            None => batch,
            Some(filter) => {
                self.chosen.clear();
                for (octets, frame) in batch.iter() {
                    let keep = filter.keep(octets, frame.wire_len);
                    if keep > 0 {
                        self.chosen.push(RxFrame { len: keep, ..*frame });
                    }
                }
                self.filtered += (batch.frames.len() - self.chosen.len()) as u64;
                RxBatch { base: batch.base, frames: &self.chosen }
            }
        };
        match &mut self.claimed {
            None => measure(&mut self.seen, &batch),
            Some(Claimed { measured, signed, claims, rest }) => {
                claims.clear();
                match *measured {
                    true => {
                        signed.clear();
                        signed.extend(
                            batch.iter().map(|(octets, _)| self.seen.is_of_a_stream(octets)),
                        );
                        claims.extend_from_slice(signed);
                    }
                    false => claims.resize(batch.frames.len(), false),
                }
                for source in sources {
                    if let Some(sink) = source.sink(self.port) {
                        sink.take(now, &batch, claims);
                    }
                }
                if *measured {
                    rest.clear();
                    for ((frame, claim), signed) in batch.frames.iter().zip(claims).zip(signed) {
                        if *claim && !*signed {
                            self.seen.count(frame.wire_len, frame.cut);
                        } else {
                            rest.push(*frame);
                        }
                    }
                    measure(&mut self.seen, &RxBatch { base: batch.base, frames: rest });
                } else {
                    measure(&mut self.seen, &batch);
                }
            }
        }
        if let Some(tap) = &mut self.tap {
            tap.take(&batch);
        }
        true
    }

    /// Nothing new comes any more; false if the port cannot know when all of the rest was given.
    pub fn stop(&mut self) -> bool {
        self.error.is_none() && self.queue.stop().is_ok() && self.queue.received().is_some()
    }

    /// Frames that have come, and were neither given nor dropped.
    pub fn waiting(&mut self) -> u64 {
        let lost: u64 = self.queue.drops().iter().map(|(_, n)| n).sum();
        self.queue.received().map_or(0, |received| received.saturating_sub(self.given + lost))
    }
}

/// Takes the measure of what came.
#[inline]
fn measure(seen: &mut Receiver, batch: &RxBatch<'_>) {
    if batch.frames.iter().all(|frame| frame.cut.is_whole()) {
        let frames = batch.iter().map(|(octets, frame)| (octets, frame.wire_len, frame.time));
        return seen.observe_all(frames);
    }
    for (octets, frame) in batch.iter() {
        match frame.cut.is_whole() {
            true => seen.observe(octets, frame.wire_len, frame.time),
            false => seen.observe_joined(octets, frame.wire_len, frame.cut, frame.time),
        }
    }
}

/// How fast frames come.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    fast: bool,
    /// When that was told, and how many had come.
    told: Nanos,
    given: u64,
}

impl Inflow {
    pub fn is_fast(&mut self, now: Nanos, queues: &[Receiving]) -> bool {
        let elapsed = now.saturating_sub(self.told);
        if elapsed >= INFLOW_EVERY {
            let given = queues.iter().map(|rx| rx.given).sum();
            let came = given - std::mem::replace(&mut self.given, given);
            (self.fast, self.told) =
                (came.saturating_mul(1_000_000_000) >= elapsed.0.saturating_mul(FAST), now);
        }
        self.fast
    }
}

/// Batches that are received in a turn at most, where sources answer to what is received.
const MOST_BATCHES: usize = 256;
/// Frames per second of which a sleep of some hundred microseconds finds dozens.
const FAST: u64 = 50_000;
const INFLOW_EVERY: Nanos = Nanos(10_000_000);
