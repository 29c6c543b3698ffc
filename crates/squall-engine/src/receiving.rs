//! A receiving queue: the frames that it gives, and what is counted of them.

use std::ops::Range;

use squall_measure::{FlowCount, Receiver, StreamCounters, track::Key};
use squall_port::{CommonClock, RxQueue};
use squall_units::Nanos;

use crate::{
    sink::{Frames, Room, Shown, Sink},
    source::Source,
};

/// What one receiving queue has seen.
#[derive(Clone, Debug, Default)]
pub struct PortRx {
    pub port: usize,
    pub seen: Receiver,
    /// Frames that came as far as the queue, a GSO frame as one, where the port counts them
    /// ([`RxQueue::received`]): `given`, `drops` and what still waits there.
    pub received: Option<u64>,
    /// Frames that the queue has given.
    pub given: u64,
    /// Of these, frames that the engine's filter left out.
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

/// A receiving queue, and the sinks that get its frames.
pub(crate) struct Receiving {
    pub queue: Box<dyn RxQueue>,
    pub port: usize,
    sinks: Vec<Box<dyn Sink>>,
    /// Sources have sinks at the port, too.
    hosts: bool,
    room: Room,
    /// Frames that the queue has given.
    given: u64,
    pub error: Option<String>,
}

impl Receiving {
    pub fn new(
        port: usize,
        queue: Box<dyn RxQueue>,
        sinks: Vec<Box<dyn Sink>>,
        hosts: bool,
    ) -> Self {
        Self { queue, port, sinks, hosts, room: Room::default(), given: 0, error: None }
    }

    /// Takes what has come; whether anything has.
    #[inline]
    pub fn turn(&mut self, now: Nanos, sources: &mut [Box<dyn Source>]) -> bool {
        if !self.hosts {
            return self.take(now, &mut []);
        }
        let mut any = false;
        for host in hosts(sources, self.port) {
            any |= host.advance(now);
        }
        for _ in 0..MOST_BATCHES {
            if !self.take(now, sources) {
                break;
            }
            any = true;
            if hosts(sources, self.port).any(|host| host.is_pressed()) {
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
        let mut frames = Frames::new(now, batch, &mut self.room);
        self.sinks.iter_mut().for_each(|sink| sink.take(&mut frames));
        if self.hosts {
            hosts(sources, self.port).for_each(|host| host.take(&mut frames));
            self.sinks.iter_mut().for_each(|sink| sink.take_rest(&mut frames));
        }
        true
    }

    /// No frame came.
    pub fn idle(&mut self, now: Nanos) {
        self.sinks.iter_mut().for_each(|sink| sink.idle(now));
    }

    /// From now on frames are stamped by this clock.
    pub fn set_common(&mut self, common: CommonClock) {
        self.sinks.iter_mut().for_each(|sink| sink.set_common(common));
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

    pub fn snapshot(&mut self, full: bool) -> PortRx {
        let mut all = self.counted();
        self.sinks.iter().for_each(|sink| sink.snapshot(full, &mut all));
        all
    }

    pub fn counters(&self) -> QueueCounters {
        let mut all = QueueCounters { port: self.port, ..QueueCounters::default() };
        self.sinks.iter().for_each(|sink| sink.counters(&mut all));
        all
    }

    pub fn show(&self, records: &Range<u32>) -> impl Iterator<Item = Shown> {
        self.sinks.iter().filter_map(|sink| sink.show(records.clone()))
    }

    /// All that was counted; values that sinks leave are added to `left`.
    pub fn leave(&mut self, left: &mut Vec<Shown>) -> PortRx {
        let mut all = self.counted();
        left.extend(self.sinks.iter_mut().filter_map(|sink| sink.leave(&mut all)));
        all
    }

    /// What the queue itself has counted.
    fn counted(&mut self) -> PortRx {
        PortRx {
            port: self.port,
            received: self.queue.received(),
            given: self.given,
            drops: self.queue.drops(),
            error: self.error.clone(),
            ..PortRx::default()
        }
    }
}

/// The sinks of sources at `port`.
fn hosts(sources: &mut [Box<dyn Source>], port: usize) -> impl Iterator<Item = &mut dyn Sink> {
    sources.iter_mut().filter_map(move |source| source.sink(port))
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
