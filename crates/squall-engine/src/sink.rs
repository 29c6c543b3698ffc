//! The processing of a receive queue's frames: one list of [`Sink`]s, made by [`list`].
//!
//! Each batch passes through the list in this order:
//!
//! 1. the filter: frames that it excludes reach no other sink and count in no figure;
//! 2. the capture, then other listeners at the port ([`Take::sinks`]): they get all frames that pass
//!    the filter, including those that a host claims;
//! 3. the measurement of streams and flows;
//! 4. the hosts, which are also sources ([`Source::sink`](crate::source::Source::sink)).
//!
//! A frame with a signature belongs to its stream, whatever its destination address; other frames
//! belong to the first host that claims them. The measurement therefore comes before the hosts. At
//! ports with hosts it measures after they have claimed their frames ([`Sink::take_rest`]), because
//! gaps between frames are only right in the order of arrival.

use std::{
    any::{Any, TypeId},
    ops::Range,
    sync::Arc,
};

use squall_measure::{Measure, Receiver, StreamLanes};
use squall_plan::{Plan, PlanStream};
use squall_port::{BATCH, CommonClock, Filter, RxBatch, RxFrame};
use squall_units::Nanos;

use crate::{
    Clock, PortRx, QueueCounters, Settings,
    receiving::QueueFlows,
    supervisor::{Take, expected_key},
};

/// A value from a source or a sink. Workers forward it without knowing its type.
pub type Shown = Box<dyn Any + Send>;

/// A question to sources and sinks for values of one type. Only those that have such values answer:
/// the others would copy theirs for nothing, and their worker does not receive meanwhile.
#[derive(Clone, Debug)]
pub struct Wanted {
    what: TypeId,
    /// The records to show, by their numbers.
    pub records: Range<u32>,
}

impl Wanted {
    pub fn new<T: Any>(records: Range<u32>) -> Self {
        Self { what: TypeId::of::<T>(), records }
    }

    /// Whether values of type `T` are asked for.
    pub fn is<T: Any>(&self) -> bool {
        self.what == TypeId::of::<T>()
    }
}

/// Takes received frames: a filter, a capture, a measurement, hosts. A worker calls each sink once
/// per batch, because a dynamic call per frame would cost too much.
pub trait Sink {
    /// Takes the frames that it wants. Must not block, and must not allocate per frame: the ring
    /// would overflow meanwhile.
    fn take(&mut self, frames: &mut Frames<'_>);

    /// Called after all sinks have had the batch, when all claims are known. Only at ports with
    /// hosts.
    fn take_rest(&mut self, _frames: &mut Frames<'_>) {}

    /// Hosts only, before the batches of a turn: processes frames held back for an emulated delay
    /// that has now passed. Returns whether there were any.
    fn advance(&mut self, _now: Nanos) -> bool {
        false
    }

    /// Hosts only: whether answers should leave before more batches are taken.
    fn is_ack_overdue(&self) -> bool {
        false
    }

    /// Called at `now` on the engine's clock when no frame arrived: a sink that collects frames may
    /// pass them on.
    fn idle(&mut self, _now: Nanos) {}

    /// Sets the clock that stamps frames.
    fn set_common(&mut self, _common: CommonClock) {}

    /// Adds its counters and, if `full`, its histograms.
    fn snapshot(&self, _full: bool, _into: &mut PortRx) {}

    /// Adds its counters only.
    fn counters(&self, _into: &mut QueueCounters) {}

    /// Returns a value for display during the run.
    fn show(&self, _wanted: &Wanted) -> Option<Shown> {
        None
    }

    /// Ends the sink; called once. Adds its counters and returns its final value.
    fn leave(&mut self, _into: &mut PortRx) -> Option<Shown> {
        None
    }
}

/// Makes a sink for the receive queue with the given number. Runs on the worker that has the queue.
pub type MakeSink = Arc<dyn Fn(u32) -> Box<dyn Sink> + Send + Sync>;

/// A batch on its way through the sinks of a queue.
pub struct Frames<'a> {
    /// When the worker's turn began, on the engine's clock.
    pub now: Nanos,
    given: RxBatch<'a>,
    sifted: bool,
    room: &'a mut Room,
}

/// Buffers that a queue keeps for its [`Frames`], so that batches allocate nothing.
pub(crate) struct Room {
    /// Frames that passed the filter.
    left: Vec<RxFrame>,
    /// Whether each frame is claimed; empty until a sink asks for the claims.
    claims: Vec<bool>,
}

impl Default for Room {
    fn default() -> Self {
        Self { left: Vec::with_capacity(BATCH), claims: Vec::with_capacity(BATCH) }
    }
}

impl<'a> Frames<'a> {
    #[inline]
    pub(crate) fn new(now: Nanos, given: RxBatch<'a>, room: &'a mut Room) -> Self {
        room.claims.clear();
        Self { now, given, sifted: false, room }
    }

    /// All frames that passed the filter.
    #[inline]
    pub fn batch(&self) -> RxBatch<'_> {
        match self.sifted {
            true => RxBatch { base: self.given.base, frames: &self.room.left },
            false => self.given,
        }
    }

    /// As [`Frames::batch`], with a flag per frame: whether it is claimed.
    #[inline]
    pub fn claims(&mut self) -> (RxBatch<'_>, &mut [bool]) {
        let Self { given, sifted, room: Room { left, claims }, .. } = self;
        let frames = if *sifted { left } else { given.frames };
        claims.resize(frames.len(), false);
        (RxBatch { base: given.base, frames }, claims)
    }

    /// Truncates each frame to the number of octets that `keep` returns; a frame with 0 octets
    /// reaches no other sink. Returns the number of such frames.
    ///
    /// # Panics
    ///
    /// If a sink has claimed frames before.
    fn sift(&mut self, keep: impl Fn(&[u8], &RxFrame) -> u32) -> usize {
        assert!(!self.sifted && self.room.claims.is_empty(), "the filter is the first sink");
        let left = self.given.iter().filter_map(|(octets, frame)| {
            let len = keep(octets, frame);
            (len > 0).then_some(RxFrame { len, ..*frame })
        });
        self.room.left.clear();
        self.room.left.extend(left);
        self.sifted = true;
        self.given.frames.len() - self.room.left.len()
    }
}

/// The sinks of queue `number` of `port`, except those of its sources; `hosts`: whether the port
/// has hosts.
pub(crate) fn list(
    plan: &Plan,
    settings: &Settings,
    clock: Clock,
    (port, number): (usize, u32),
    hosts: bool,
) -> Vec<Box<dyn Sink>> {
    let Take { filter, link, sinks } = settings.take.get(port).cloned().unwrap_or_default();
    let key = expected_key(plan);
    let measure = Measure { key, lanes: lanes(plan), ..settings.measure.clone() };
    let common = match clock {
        Clock::Real(_) => settings.common,
        Clock::Virtual => CommonClock::default(),
    };
    // Frames that left before this run began belong to another run, if one clock stamped them all.
    // A run without signatures measures the frames of any run, including earlier ones.
    let own_run = measure.key.is_some() && !plan.has_other_nodes();
    let own_clock = common == CommonClock::default();
    // Flows have their own figures, so a profile with nothing but flows needs only counters.
    let fingerprint = measure.fingerprint;
    let counting = Measure { count_only: true, fingerprint, ..Measure::default() };
    let counts = hosts && plan.only_flows();
    let mut seen = Receiver::on(if counts { &counting } else { &measure }, link);
    if let (Clock::Real(start), true) = (clock, own_run && own_clock) {
        seen.begin(start);
    }
    let measurement =
        Measurement { port, seen, common, hosts: (hosts && !counts).then(Hosts::default) };
    let filter = filter.map(|filter| Box::new(SoftwareFilter { filter, out: 0 }) as Box<dyn Sink>);
    let listeners = sinks.iter().map(|make| make(number));
    filter.into_iter().chain(listeners).chain([Box::new(measurement) as _]).collect()
}

/// The signed streams that go to routes.
fn lanes(plan: &Plan) -> Arc<[StreamLanes]> {
    let of = |stream: &PlanStream| {
        let routes = stream.routes.as_ref()?.len() as usize;
        let begins = stream.phases.iter().map(|phase| phase.frame).collect();
        let stream_number = stream.program.signature()?;
        Some(StreamLanes { stream: stream_number, routes, first: stream.sent, begins })
    };
    plan.streams.iter().filter_map(of).collect()
}

/// Filters in software, for a port that cannot filter.
struct SoftwareFilter {
    filter: Arc<Filter>,
    /// Frames excluded so far.
    out: u64,
}

impl Sink for SoftwareFilter {
    fn take(&mut self, frames: &mut Frames<'_>) {
        self.out += frames.sift(|octets, frame| self.filter.keep(octets, frame.wire_len)) as u64;
    }

    fn snapshot(&self, _full: bool, into: &mut PortRx) {
        into.filtered += self.out;
    }

    fn leave(&mut self, into: &mut PortRx) -> Option<Shown> {
        self.snapshot(true, into);
        None
    }
}

/// Measures streams, flows and the other figures of received frames.
struct Measurement {
    port: usize,
    seen: Receiver,
    common: CommonClock,
    hosts: Option<Hosts>,
}

/// Shares a batch between measurement and hosts.
#[derive(Default)]
struct Hosts {
    /// Whether each frame belongs to a stream.
    signed: Vec<bool>,
    /// The frames to measure.
    rest: Vec<RxFrame>,
}

impl Sink for Measurement {
    fn take(&mut self, frames: &mut Frames<'_>) {
        let Self { seen, hosts, .. } = self;
        let Some(first) = frames.batch().frames.first() else { return };
        // One offset for the whole batch: within a batch, clock drift is negligible.
        seen.set_clock_offset(self.common.offset(first.time));
        seen.set_now(frames.now);
        let Some(Hosts { signed, .. }) = hosts else { return measure(seen, &frames.batch()) };
        let (batch, claims) = frames.claims();
        signed.clear();
        for ((octets, _), claim) in batch.iter().zip(claims) {
            let own = seen.is_of_a_stream(octets);
            signed.push(own);
            *claim |= own;
        }
    }

    fn take_rest(&mut self, frames: &mut Frames<'_>) {
        let Some(Hosts { signed, rest }) = &mut self.hosts else { return };
        let (batch, claims) = frames.claims();
        rest.clear();
        for (((octets, frame), claim), signed) in batch.iter().zip(claims).zip(signed) {
            if *claim && !*signed {
                self.seen.count_taken(octets, frame.wire_len, frame.cut);
            } else {
                rest.push(*frame);
            }
        }
        measure(&mut self.seen, &RxBatch { base: batch.base, frames: rest });
    }

    fn set_common(&mut self, common: CommonClock) {
        self.common = common;
        self.seen.forget_begin();
    }

    fn snapshot(&self, full: bool, into: &mut PortRx) {
        into.seen = match full {
            true => self.seen.with_histograms(),
            false => self.seen.without_histograms(),
        };
    }

    fn counters(&self, into: &mut QueueCounters) {
        *into = QueueCounters::of(self.port, &self.seen);
    }

    /// The flows with these numbers; `None`: flows are not measured.
    fn show(&self, wanted: &Wanted) -> Option<Shown> {
        if !wanted.is::<QueueFlows>() {
            return None;
        }
        let records = &wanted.records;
        let flows = self.seen.flows.as_deref()?;
        Some(Box::new(QueueFlows {
            port: self.port,
            total: flows.table.len(),
            begin: (flows.total.packets > 0).then_some(flows.total.first),
            rest: (flows.rest.packets, flows.rest.octets),
            flows: flows.counts(records.start as usize, records.len()),
        }))
    }

    fn leave(&mut self, into: &mut PortRx) -> Option<Shown> {
        into.seen = std::mem::take(&mut self.seen);
        None
    }
}

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
