//! One core's loop: mailbox, receive, wheel, send, publish ([`Worker::turn`]).

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver as Mailbox, Sender as Reply},
    },
    time::Duration,
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use squall_flows::Load;
use squall_measure::{Receiver, StreamGlance, track::Key};
use squall_plan::PlanStream;
use squall_port::{BATCH, Filter, RxBatch, RxFrame, RxQueue, Sink, monotonic};
use squall_profile::Stop;
use squall_program::{Gap, Scratch, pace::Pacing};
use squall_stats::{Fingerprint, Histogram};
use squall_units::{Nanos, Picos};

use crate::{
    Clock,
    clock::{SLEEP_MARGIN, SPIN, Stalls, Watch, preempted, rest, thread_cpu_time},
    flows::{FlowStats, Player},
    generate::Driver,
    replay::{Replayed, Replayer},
    supervisor::end_of,
    transmit::{Budget, Transmitter},
};

/// Counters of one port on one worker. Frames that the port took for good; octets with FCS.
#[derive(Clone, Debug, Default)]
pub struct PortTx {
    pub port: usize,
    pub packets: u64,
    pub octets: u64,
    /// Super-frames that were handed over whole, and the frames that they became, which are among
    /// `packets`.
    pub super_frames: u64,
    pub segments: u64,
    /// Frames that the port refused.
    pub errors: u64,
    /// Frames of captures that were handed over once more, as the port was full.
    pub retried: u64,
    /// Frames that were due and did not leave, by reason.
    pub not_sent: BTreeMap<&'static str, u64>,
    /// Time during which the port took no frames though some were at hand.
    pub blocked: Nanos,
    /// Time in which the port was taking frames.
    pub sending: Nanos,
    /// When the last frame left, on the engine's clock.
    pub last: Nanos,
    /// Actual minus due instant, nanoseconds, of streams that have no histogram of their own.
    pub departure_error: Histogram,
    pub pacing: Pacing,
    /// Of the thread that sends.
    pub stalls: Stalls,
    pub fingerprint: Option<Fingerprint>,
    /// The port makes its frames itself, where nobody hashes them.
    pub unhashed: bool,
    /// Why the port is of no further use.
    pub error: Option<String>,
}

/// Counters of one stream on one worker.
#[derive(Clone, Debug, Default)]
pub struct StreamTx {
    /// In the plan.
    pub number: u32,
    pub packets: u64,
    pub octets: u64,
    pub not_sent: BTreeMap<&'static str, u64>,
    /// By how much the schedule was moved because frames were late
    /// ([`squall_profile::Late::Stretch`]).
    pub stretched: Nanos,
    /// First and last departure, on the engine's clock.
    pub first: Option<Nanos>,
    pub last: Nanos,
    /// Actual minus due instant, nanoseconds.
    pub departure_error: Histogram,
}

/// What one receiving queue has seen.
#[derive(Clone, Debug)]
pub struct PortRx {
    pub port: usize,
    pub seen: Receiver,
    /// Frames that came as far as the queue, a super-frame as one, where the port counts them
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

/// A worker's counters at one instant.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub worker: usize,
    /// The CPU that it is bound to.
    pub cpu: Option<u32>,
    /// CPU time of its thread so far.
    pub cpu_time: Nanos,
    /// Times that the thread was taken off its CPU though it wanted to go on; told at the end.
    pub preempted: u64,
    pub tx: Vec<PortTx>,
    pub streams: Vec<StreamTx>,
    pub rx: Vec<PortRx>,
    pub flows: Vec<FlowStats>,
}

/// What a worker can be told while it runs.
#[derive(Clone, Debug)]
pub enum Control {
    /// One stream by its number in the plan, or all.
    Pause(Option<u32>),
    Resume(Option<u32>),
    /// From the next gap on.
    Rate(u32, Gap),
    Remove(u32),
    /// The stream starts after its start delay, on the worker that serves the port and has the
    /// first queue.
    Add(u32, Arc<PlanStream>),
    /// No flow of a template of the load, by its number, begins, until it is resumed.
    PauseTemplate(u32),
    ResumeTemplate(u32),
    /// The load is this one, which [`Load::can_become`] has allowed.
    Load(Arc<Load>),
    /// So many more frames of a replay that is held.
    Step(u64),
    /// The run ends at what this says, counted from its beginning.
    Limit(Stop),
    /// Nothing more is sent; receiving goes on.
    Stop,
}

/// A worker's counters in figures alone: for who asks often, of thousands of streams.
#[derive(Clone, Debug, Default)]
pub struct Glance {
    /// Port, frames, octets with FCS.
    pub tx: Vec<(usize, u64, u64)>,
    /// Number, frames, octets with FCS.
    pub streams: Vec<(u32, u64, u64)>,
    pub rx: Vec<PortGlance>,
}

/// What one receiving queue has seen, in figures alone.
#[derive(Clone, Debug, Default)]
pub struct PortGlance {
    pub port: usize,
    pub packets: u64,
    /// Octets with FCS.
    pub octets: u64,
    /// Frames without a signature of ours.
    pub unsigned: u64,
    /// By number.
    pub streams: Vec<(u16, StreamGlance)>,
    /// What stood at the places that are tracked.
    pub tracked: Vec<(Key, StreamGlance)>,
    /// Frames whose value there found no room.
    pub beyond: u64,
}

impl From<&Snapshot> for Glance {
    fn from(snapshot: &Snapshot) -> Self {
        let seen = |rx: &PortRx| PortGlance::of(rx.port, &rx.seen);
        Self {
            tx: snapshot.tx.iter().map(|tx| (tx.port, tx.packets, tx.octets)).collect(),
            streams: snapshot.streams.iter().map(|s| (s.number, s.packets, s.octets)).collect(),
            rx: snapshot.rx.iter().map(seen).collect(),
        }
    }
}

impl PortGlance {
    fn of(port: usize, seen: &Receiver) -> Self {
        Self {
            port,
            packets: seen.packets,
            octets: seen.octets,
            unsigned: seen.unsigned,
            streams: seen.streams().map(|(number, stream)| (number, stream.glance())).collect(),
            tracked: seen
                .tracked
                .as_ref()
                .map_or_else(Vec::new, |tracked| tracked.rows().collect()),
            beyond: seen.tracked.as_ref().map_or(0, |tracked| tracked.beyond),
        }
    }
}

pub(crate) enum Letter {
    Control(Control),
    /// In figures alone.
    Glance(Reply<Glance>),
    /// With histograms or without.
    Snapshot(bool, Reply<Snapshot>),
    /// The end: counters go home.
    Finish,
}

/// How a supervisor knocks without the worker having to ask a channel each turn; and wakes it where
/// it waits for frames.
#[derive(Clone)]
pub(crate) struct Bell(Arc<Knocker>);

struct Knocker {
    rung: Rung,
    /// Readable when the worker was woken.
    wakes: OwnedFd,
}

/// Alone on its cache lines (two, because CPUs fetch neighbours along): it is read each turn.
#[repr(align(128))]
struct Rung(AtomicBool);

impl Bell {
    pub fn new() -> io::Result<Self> {
        let wakes = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Knocker { rung: Rung(AtomicBool::new(false)), wakes })))
    }

    pub fn ring(&self) {
        self.0.rung.0.store(true, Ordering::Release);
        // Fails only when it was rung 2^64 times and nobody looked.
        let _ = rustix::io::write(&self.0.wakes, &1u64.to_ne_bytes());
    }

    #[inline]
    fn answer(&self) -> bool {
        self.0.rung.0.load(Ordering::Relaxed) && self.0.rung.0.swap(false, Ordering::Acquire)
    }

    /// From now on only new rings wake.
    fn hush(&self) {
        let _ = rustix::io::read(&self.0.wakes, &mut [0; 8]);
    }
}

/// A receiving queue, and what is done with its frames.
pub(crate) struct Receiving {
    queue: Box<dyn RxQueue>,
    port: usize,
    seen: Receiver,
    filter: Option<Arc<Filter>>,
    /// Frames of a batch that the filter took.
    chosen: Vec<RxFrame>,
    sink: Option<Box<dyn Sink>>,
    /// Frames that the queue has given, and those of them that the filter did not take.
    given: u64,
    filtered: u64,
    error: Option<String>,
}

impl Receiving {
    pub fn new(
        port: usize,
        queue: Box<dyn RxQueue>,
        seen: Receiver,
        filter: Option<Arc<Filter>>,
        sink: Option<Box<dyn Sink>>,
    ) -> Self {
        Self {
            queue,
            port,
            seen,
            filter,
            chosen: Vec::with_capacity(BATCH),
            sink,
            given: 0,
            filtered: 0,
            error: None,
        }
    }

    /// Takes what has come; whether anything has.
    #[inline]
    fn turn(&mut self) -> bool {
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
        if batch.frames.iter().all(|frame| frame.cut.is_whole()) {
            self.seen.observe_all(
                batch.iter().map(|(octets, frame)| (octets, frame.wire_len, frame.time)),
            );
        } else {
            for (octets, frame) in batch.iter() {
                match frame.cut.is_whole() {
                    true => self.seen.observe(octets, frame.wire_len, frame.time),
                    false => {
                        self.seen.observe_joined(octets, frame.wire_len, frame.cut, frame.time)
                    }
                }
            }
        }
        if let Some(sink) = &mut self.sink {
            sink.take(&batch);
        }
        true
    }

    /// Nothing new comes any more; false if the port cannot know when all of the rest was given.
    fn stop(&mut self) -> bool {
        self.error.is_none() && self.queue.stop().is_ok() && self.queue.received().is_some()
    }

    /// Frames that have come, and were neither given nor dropped.
    fn waiting(&mut self) -> u64 {
        let lost: u64 = self.queue.drops().iter().map(|(_, n)| n).sum();
        self.queue.received().map_or(0, |received| received.saturating_sub(self.given + lost))
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
    fn is_fast(&mut self, now: Nanos, queues: &[Receiving]) -> bool {
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

/// Frames per second of which a sleep of some hundred microseconds finds dozens.
const FAST: u64 = 50_000;
const INFLOW_EVERY: Nanos = Nanos(10_000_000);

pub(crate) struct Worker {
    pub index: usize,
    pub cpu: Option<u32>,
    pub clock: Clock,
    pub watch: Watch,
    pub tx: Vec<Transmitter>,
    pub generators: Vec<Driver>,
    pub replay: Option<Replayer>,
    pub player: Option<Player>,
    pub rx: Vec<Receiving>,
    pub budget: Budget,
    pub mailbox: Mailbox<Letter>,
    pub bell: Bell,
    /// Told when nothing is left to be sent: by whom, and how many streams were added until then.
    pub sent_all: Reply<(usize, u64)>,
    pub added: u64,
    pub scratch: Scratch,
    pub told: bool,
    /// The last thing done was to send.
    pub just_sent: bool,
    /// When waits for frames ended before their time: the last one, and the one before.
    pub woken: [Nanos; 2],
    pub inflow: Inflow,
    pub finished: bool,
}

/// How long the last frames of a queue that was stopped may take: a block of a receive ring is
/// handed over late.
const DRAIN_PATIENCE: Nanos = Nanos(1_500_000_000);
/// Longest sleep of a worker that receives, if its queues bear it, and not so much comes that more
/// would be better.
const RX_REST: Nanos = Nanos(200_000);
/// Who is woken by frames after so long need not sleep between.
const SELDOM: Nanos = Nanos(1_000_000);
/// Longest wait for a frame: so late a sink hears that nothing came.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Longest sleep of one that only sends: it has a mailbox.
const TX_REST: Nanos = Nanos(2_000_000);
/// And of one that only looks after threads that generate, and shares their CPU.
const WATCH_REST: Nanos = Nanos(10_000_000);

impl Worker {
    /// Runs to the end and gives the counters.
    pub fn run(mut self) -> (Snapshot, Option<Replayed>) {
        while !self.finished {
            self.turn();
        }
        self.receive();
        self.rx.iter_mut().filter_map(|rx| rx.sink.as_mut()).for_each(|sink| sink.finish());
        let preempted = preempted();
        let replayed = self.replay.as_mut().and_then(Replayer::take_result);
        (Snapshot { preempted, ..self.snapshot(true, std::mem::take) }, replayed)
    }

    /// Mailbox, receive, send, rest.
    #[inline]
    fn turn(&mut self) {
        // Behind a batch that left just now the clock is where it was.
        let mut now = if self.just_sent { self.watch.last() } else { self.watch.now() };
        let rang = self.bell.answer();
        if rang {
            self.read_mail(now);
        }
        let mut moved = self.receive();
        let mut stale = moved || rang;
        let mut open = false;
        let first_in_time = self.first_in_time();
        for (i, tx) in self.tx.iter_mut().enumerate().filter(|(_, tx)| !tx.done) {
            // The stamp in the frames: what took time since is not the network's delay.
            if stale {
                now = self.watch.now();
            }
            match first_in_time {
                None => moved |= tx.turn(now, &mut self.watch, &mut self.budget, &mut self.scratch),
                Some((first, end)) if first == i => {
                    let mut budget = Budget { end, ..self.budget };
                    moved |= tx.turn(now, &mut self.watch, &mut budget, &mut self.scratch);
                    self.budget = Budget { end: self.budget.end, ..budget };
                }
                Some(_) => {}
            }
            if tx.done {
                // Behind the last frame of a run that ends by a count nothing is due, and so
                // nothing late.
                let counted = self.budget.packets == 0 || self.budget.octets == 0;
                let early = counted && self.clock.since_start(now) < self.budget.end;
                tx.settle(now, &mut self.watch, if early { Picos(0) } else { self.budget.end });
            }
            open |= !tx.done;
            stale = moved;
        }
        if let Some(replay) = self.replay.as_mut().filter(|replay| !replay.done) {
            if stale {
                now = self.watch.now();
            }
            moved |= replay.turn(now, &mut self.watch, &mut self.budget);
            if replay.done {
                replay.settle(now, &mut self.watch, self.budget.end);
            }
            open |= !replay.done;
        }
        if let Some(player) = &mut self.player {
            moved |= player.turn(&mut self.watch, self.budget.end);
            open |= !player.is_done();
        }
        for generator in self.generators.iter_mut().filter(|g| !g.done) {
            generator.turn(self.clock.since_start(now));
            open |= !generator.done;
        }
        if !open && !self.told {
            self.told = true;
            // The supervisor may be gone already; it then wants to know nothing more.
            let _ = self.sent_all.send((self.index, self.added));
        }
        if !moved {
            self.rx.iter_mut().filter_map(|rx| rx.sink.as_mut()).for_each(|sink| sink.idle(now));
            self.rest(open);
        }
        self.just_sent = moved && self.rx.is_empty();
    }

    /// On virtual time every port could take all that a run's count allows, so only the one whose
    /// frame is due next may send, and until another's is due: both are given.
    fn first_in_time(&mut self) -> Option<(usize, Picos)> {
        if self.clock != Clock::Virtual
            || !self.budget.is_counted()
            || self.tx.len() < 2
            || self.budget.packets == 0
            || self.budget.octets == 0
        {
            return None;
        }
        let end = self.budget.end;
        let open = self.tx.iter_mut().enumerate().filter(|(_, tx)| !tx.done);
        let mut due: Vec<_> = open.filter_map(|(i, tx)| Some((tx.next_due(end)?, i))).collect();
        due.sort_unstable();
        let second = due.get(1).map_or(end, |(due, _)| Picos(due.0 + 1).min(end));
        due.first().map(|(_, i)| (*i, second))
    }

    fn rest(&mut self, open: bool) {
        if let Some(player) = &mut self.player {
            if player.rest(&mut self.watch, &self.bell.0.wakes, self.budget.end) {
                self.bell.hush();
            }
            return;
        }
        let now = self.watch.now();
        let fast = !open && self.inflow.is_fast(now, &self.rx);
        let bearable = self.rx.iter().map(|rx| rx.queue.rest()).min();
        let longest = match bearable {
            Some(bearable) if fast => bearable,
            Some(bearable) => bearable.min(RX_REST),
            None if self.tx.is_empty() && self.replay.is_none() && open => WATCH_REST,
            None => TX_REST,
        };
        // Where frames come fast a sleep finds many of them, and a queue that tells each would wake
        // us for each. What was told and is no frame (the interface went down) would be told at
        // once again.
        let waits = !open && self.clock != Clock::Virtual && self.seldom_woken(now, fast);
        if waits && self.wait_for_frames() {
            return;
        }
        let start = match self.clock {
            Clock::Real(start) => start,
            Clock::Virtual => Nanos::ZERO,
        };
        let end = self.budget.end;
        let streams = self.tx.iter_mut().filter(|tx| !tx.done).filter_map(|tx| tx.next_due(end));
        let captures = self
            .replay
            .iter()
            .filter(|replay| !replay.done)
            .filter_map(|replay| replay.next_due(end));
        let next = streams.chain(captures).min();
        let wake = match next {
            Some(due) => start + due.as_nanos(),
            // Nothing is due any more, but the end of the run is to be noticed.
            None if open && end.0 != u64::MAX => start + end.as_nanos(),
            None => now + longest + SLEEP_MARGIN,
        };
        if self.clock == Clock::Virtual && open {
            return std::thread::yield_now();
        }
        let margin = match next {
            // A port waits itself.
            Some(_) if self.replay.as_ref().is_some_and(Replayer::is_patient) => Nanos::ZERO,
            Some(_) => SPIN,
            None => SLEEP_MARGIN,
        };
        rest(&mut self.watch, now, wake, longest, margin);
    }

    /// Whether the last wait for frames ended long ago and the next may be long, or it was long
    /// itself: a queue that tells of whole blocks wakes so seldom that a sleep before each wait
    /// only adds to the cost.
    fn seldom_woken(&self, now: Nanos, fast: bool) -> bool {
        let [last, before] = self.woken;
        (!fast && now.saturating_sub(last) >= RX_REST) || last.saturating_sub(before) >= SELDOM
    }

    /// Nothing is to be sent, and nothing has come: sleeps until a queue tells that something is
    /// there; false, without sleeping, if not all of them can tell.
    fn wait_for_frames(&mut self) -> bool {
        let mut descriptors = Vec::with_capacity(self.rx.len());
        let mut open = self.rx.iter().filter(|rx| rx.error.is_none()).peekable();
        if open.peek().is_none() || !open.all(|rx| rx.queue.poll_on(&mut descriptors)) {
            return false;
        }
        descriptors.push(self.bell.0.wakes.as_fd());
        let mut waits: Vec<_> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait is no harm.
        let told = poll(&mut waits, Some(&WAIT)).unwrap_or(0) > 0;
        drop(waits);
        self.watch.plan_rest(Nanos(WAIT.tv_nsec as u64));
        if told {
            self.woken = [self.watch.now(), self.woken[0]];
            self.bell.hush();
        }
        true
    }

    #[inline]
    fn receive(&mut self) -> bool {
        let mut any = false;
        for rx in self.rx.iter_mut().filter(|rx| rx.error.is_none()) {
            any |= rx.turn();
        }
        any
    }

    fn read_mail(&mut self, now: Nanos) {
        while let Ok(letter) = self.mailbox.try_recv() {
            match letter {
                Letter::Snapshot(full, reply) => {
                    let seen = if full {
                        |seen: &mut Receiver| seen.watching()
                    } else {
                        |seen: &mut Receiver| seen.light()
                    };
                    let _ = reply.send(self.snapshot(full, seen));
                }
                Letter::Glance(reply) => {
                    let _ = reply.send(self.glance());
                }
                Letter::Finish => self.finish(now),
                Letter::Control(control) => self.obey(control, now),
            }
        }
    }

    fn obey(&mut self, control: Control, now: Nanos) {
        let at = match self.clock {
            Clock::Real(_) => self.clock.since_start(now),
            // Virtual time stands at what left last.
            Clock::Virtual => {
                self.tx.iter().map(|tx| tx.counters.last).max().unwrap_or_default().into()
            }
        };
        self.generators.iter_mut().for_each(|g| g.obey(&control, at));
        match (&mut self.replay, &control) {
            (Some(replay), Control::Pause(None)) => replay.pause(at, &mut self.budget),
            (Some(replay), Control::Resume(None)) => replay.resume(at),
            (Some(replay), Control::Step(frames)) => replay.step(*frames),
            (Some(replay), Control::Stop) => replay.stop(),
            _ => {}
        }
        if let Some(player) = &mut self.player {
            player.obey(&control, &mut self.watch);
        }
        if let Control::Stop = control {
            self.budget.end = self.budget.end.min(at);
            self.budget.packets = 0;
            return;
        }
        if let Control::Limit(stop) = control {
            return self.limit(stop);
        }
        for tx in &mut self.tx {
            match &control {
                Control::Pause(number) => tx.pause(*number, at),
                Control::Resume(number) => tx.resume(*number, at),
                Control::Rate(number, gap) => tx.set_rate(*number, *gap, at),
                Control::Remove(number) => tx.remove(*number),
                Control::Add(number, stream) => {
                    if stream.port == tx.counters.port {
                        tx.add(*number, stream.clone(), at);
                        (self.added, self.told) = (self.added + 1, false);
                    }
                }
                Control::Step(_)
                | Control::PauseTemplate(_)
                | Control::ResumeTemplate(_)
                | Control::Load(_) => {}
                Control::Limit(_) | Control::Stop => unreachable!("handled above"),
            }
        }
    }

    fn limit(&mut self, stop: Stop) {
        // A stopped run stays so.
        if self.budget.packets == 0 || self.budget.octets == 0 {
            return;
        }
        let (mut packets, mut octets) = (0, 0);
        for tx in &self.tx {
            let (waiting, their_octets) = tx.at_hand();
            packets += tx.counters.packets + tx.counters.errors + waiting;
            octets += tx.counters.octets + their_octets;
        }
        let left = |total: Option<u64>, used: u64| {
            total.map_or(u64::MAX, |total| total.saturating_sub(used))
        };
        self.budget = Budget {
            packets: left(stop.packets, packets),
            octets: left(stop.octets, octets),
            end: end_of(&stop),
        };
    }

    fn finish(&mut self, now: Nanos) {
        for tx in &mut self.tx {
            if !tx.done {
                tx.settle(now, &mut self.watch, self.budget.end);
            }
            tx.close();
        }
        if let Some(replay) = &mut self.replay {
            if !replay.done {
                replay.settle(now, &mut self.watch, self.budget.end);
            }
            replay.close();
        }
        if let Some(player) = &mut self.player {
            player.close(&mut self.watch);
        }
        for generator in &mut self.generators {
            generator.close(self.clock.since_start(now));
        }
        self.drain();
        self.finished = true;
    }

    /// Takes what has come until now.
    fn drain(&mut self) {
        // Of a port that says when it is empty, all: none of the frames that the kernel has counted
        // is lost at the end.
        for rx in self.rx.iter_mut() {
            if !rx.stop() {
                continue;
            }
            let mut patience = monotonic() + DRAIN_PATIENCE;
            while rx.error.is_none() {
                if rx.turn() {
                    patience = monotonic() + DRAIN_PATIENCE;
                } else if rx.waiting() == 0 || monotonic() > patience {
                    break;
                } else {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
        // What is on its way inside this process arrives now or never. On virtual time nobody has
        // lingered for it, and a loop may be full of single frames.
        let most = if self.clock == Clock::Virtual { 1 << 16 } else { 1000 };
        for _ in 0..most {
            if !self.receive() {
                break;
            }
        }
    }

    fn glance(&self) -> Glance {
        let port = |tx: &PortTx| (tx.port, tx.packets, tx.octets);
        let stream = |s: StreamTx| (s.number, s.packets, s.octets);
        let played = self.player.iter().flat_map(Player::counters);
        Glance {
            tx: (self.tx.iter().map(|tx| port(&tx.counters)))
                .chain(self.generators.iter().map(|g| port(&g.port())))
                .chain(self.replay.iter().flat_map(Replayer::ports).map(port))
                .chain(played.map(port))
                .collect(),
            streams: (self.tx.iter().flat_map(|tx| tx.streams(false)))
                .chain(self.generators.iter().flat_map(|g| g.streams(false)))
                .map(stream)
                .collect(),
            rx: (self.rx.iter().map(|rx| PortGlance::of(rx.port, &rx.seen)))
                .chain(
                    self.player
                        .iter()
                        .flat_map(Player::seen)
                        .map(|(port, seen)| PortGlance::of(port, seen)),
                )
                .collect(),
        }
    }

    /// `full`: with the histograms of what is sent; `seen` gives what is told of what was received.
    fn snapshot(&mut self, full: bool, seen: fn(&mut Receiver) -> Receiver) -> Snapshot {
        let cpu_time = thread_cpu_time();
        let stalls = self.watch.stalls();
        let ours = (self.tx.iter().map(Transmitter::port))
            .chain(self.replay.iter().flat_map(Replayer::counters))
            .chain(self.player.iter().flat_map(Player::tx))
            .map(|tx| PortTx { stalls, ..tx });
        let tx = ours.chain(self.generators.iter().map(Driver::port)).collect();
        Snapshot {
            worker: self.index,
            cpu: self.cpu,
            preempted: 0,
            cpu_time: cpu_time + Nanos(self.generators.iter().map(|g| g.cpu_time().0).sum()),
            tx,
            streams: self
                .tx
                .iter()
                .flat_map(|tx| tx.streams(full))
                .chain(self.generators.iter().flat_map(|g| g.streams(full)))
                .collect(),
            rx: self
                .rx
                .iter_mut()
                .map(|rx| PortRx {
                    port: rx.port,
                    received: rx.queue.received(),
                    given: rx.given,
                    filtered: rx.filtered,
                    drops: rx.queue.drops(),
                    seen: seen(&mut rx.seen),
                    error: rx.error.clone(),
                })
                .chain(self.player.iter_mut().flat_map(Player::rx))
                .collect(),
            flows: self.player.iter().flat_map(|player| player.statistics(full)).collect(),
        }
    }
}
