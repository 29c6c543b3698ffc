//! A receive queue: its frames and their counters.

use squall_measure::{FlowCount, Receiver, StreamCounters, track::Key};
use squall_port::{CommonClock, RxQueue};
use squall_units::Nanos;

use crate::{
    sink::{Frames, Room, Shown, Sink, Wanted},
    source::Source,
};

/// Counters and measurements of one receive queue.
#[derive(Clone, Debug, Default)]
pub struct PortRx {
    pub port: usize,
    pub seen: Receiver,
    /// Frames that reached the queue (a GSO frame counts once), if the port counts them
    /// ([`RxQueue::received`]): `given`, `drops`, and frames still in the queue.
    pub received: Option<u64>,
    /// Frames taken from the queue.
    pub given: u64,
    /// Frames in `given` that the engine's filter excluded.
    pub filtered: u64,
    /// Frames lost between the interface and the worker, by cause.
    pub drops: Vec<(&'static str, u64)>,
    pub error: Option<String>,
}

/// Counters of one receive queue.
#[derive(Clone, Debug, Default)]
pub struct QueueCounters {
    pub port: usize,
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// Frames without a Squall signature.
    pub unsigned: u64,
    /// Frames with signatures of other runs.
    pub foreign: u64,
    /// By stream number.
    pub streams: Vec<(u16, StreamCounters)>,
    /// Counters by tracked value.
    pub tracked: Vec<(Key, StreamCounters)>,
    /// Frames whose tracked value did not fit the table.
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

/// Some of the flows that one receive queue distinguished.
pub(crate) struct QueueFlows {
    pub port: usize,
    /// Number of flows of this queue so far.
    pub total: usize,
    /// Arrival of the queue's first frame; `None` if there was none.
    pub begin: Option<Nanos>,
    /// Frames and octets of flows that did not fit the table.
    pub rest: (u64, u64),
    pub flows: Vec<FlowCount>,
}

/// Flows of all receive queues so far.
#[derive(Clone, Debug, Default)]
pub struct ReceivedFlows {
    /// Number of flows known to the queues; greater than the length of `flows` if the caller
    /// limited them.
    pub total: usize,
    /// Arrival of the first frame on any queue.
    pub begin: Option<Nanos>,
    /// Frames and octets of flows that did not fit the table.
    pub rest: (u64, u64),
    /// Each flow with its port, once for each queue that received it.
    pub flows: Vec<(usize, FlowCount)>,
}

/// A receive queue and the sinks of its frames.
pub(crate) struct Receiving {
    pub queue: Box<dyn RxQueue>,
    pub port: usize,
    sinks: Vec<Box<dyn Sink>>,
    /// Whether sources have sinks (hosts) at the port.
    hosts: bool,
    room: Room,
    /// Frames taken from the queue.
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

    /// Receives waiting frames. Returns whether there were any.
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
            if hosts(sources, self.port).any(|host| host.is_ack_overdue()) {
                break;
            }
        }
        any
    }

    /// Receives one batch. Returns whether there was any.
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

    /// Reports to the sinks that no frame arrived.
    pub fn idle(&mut self, now: Nanos) {
        self.sinks.iter_mut().for_each(|sink| sink.idle(now));
    }

    /// Sets the clock that stamps frames.
    pub fn set_common(&mut self, common: CommonClock) {
        self.sinks.iter_mut().for_each(|sink| sink.set_common(common));
    }

    /// Stops the queue. Returns false if the port cannot know when its last frame was taken.
    pub fn stop(&mut self) -> bool {
        self.error.is_none() && self.queue.stop().is_ok() && self.queue.received().is_some()
    }

    /// Frames that reached the queue and were neither taken nor dropped.
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

    pub fn show(&self, wanted: &Wanted) -> impl Iterator<Item = Shown> {
        self.sinks.iter().filter_map(|sink| sink.show(wanted))
    }

    /// Returns the final counters and adds the sinks' values to `left`.
    pub fn leave(&mut self, left: &mut Vec<Shown>) -> PortRx {
        let mut all = self.counted();
        left.extend(self.sinks.iter_mut().filter_map(|sink| sink.leave(&mut all)));
        all
    }

    /// The queue's own counters.
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

/// The rate of received frames.
#[derive(Debug, Default)]
pub(crate) struct Inflow {
    fast: bool,
    /// When the rate was last computed, and the frame count then.
    updated: Nanos,
    given: u64,
}

impl Inflow {
    pub fn is_fast(&mut self, now: Nanos, queues: &[Receiving]) -> bool {
        let elapsed = now.saturating_sub(self.updated);
        if elapsed >= INFLOW_EVERY {
            let given = queues.iter().map(|rx| rx.given).sum();
            let came = given - std::mem::replace(&mut self.given, given);
            (self.fast, self.updated) =
                (came.saturating_mul(1_000_000_000) >= elapsed.0.saturating_mul(FAST), now);
        }
        self.fast
    }
}

/// Maximum number of batches per turn if sources answer frames: sources need their turns in
/// between, otherwise answers would be late.
const MOST_BATCHES: usize = 256;
/// Frames/s above which a sleep of some hundred microseconds gathers dozens.
const FAST: u64 = 50_000;
/// Interval of the estimate.
const INFLOW_EVERY: Nanos = Nanos(10_000_000);
