//! The main loop of a worker, one per core: mailbox, receive, wheel, send, publish
//! ([`Worker::turn`]).

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
use squall_plan::{Part, SourceId};
use squall_port::{CommonClock, monotonic};
use squall_profile::Stop;
use squall_program::pace::Pacing;
use squall_stats::{Fingerprint, Histogram};
use squall_units::{Nanos, Picos};

use crate::{
    Clock,
    after::Waiting,
    clock::{Stalls, Watch, preempted, thread_cpu_time},
    command::{Action, Command},
    flows::FlowStats,
    hosts::HostStats,
    idle::{Idle, Needs, RX_REST, Sleeper, Wakeups},
    receiving::{Inflow, PortRx, QueueCounters, Receiving},
    routers::RouterStats,
    sink::{Shown, Wanted},
    source::{Budget, Outlets, Rest, STREAMS_AT_ONCE, Source, Turn, earlier_of_others},
    supervisor::end_of,
};

/// Counters of the frames that one source sends on one port on one worker. Counts frames that the
/// port took and did not give back; octets include the FCS.
#[derive(Clone, Debug, Default)]
pub struct PortTx {
    pub port: usize,
    pub source: SourceId,
    pub packets: u64,
    pub octets: u64,
    /// GSO frames that left as a whole, and the segments they became, which `packets` includes.
    pub gso_frames: u64,
    pub segments: u64,
    /// Frames refused by the port.
    pub errors: u64,
    /// Replayed frames that were offered again because the port was full.
    pub retried: u64,
    /// Frames that were due and not sent, by reason.
    pub not_sent: BTreeMap<&'static str, u64>,
    /// Time during which frames waited because the port was full.
    pub blocked: Nanos,
    /// Time spent in the port's send calls.
    pub sending: Nanos,
    /// Time of the last departure, on the engine's clock.
    pub last: Nanos,
    /// Departure errors (actual minus due time) in nanoseconds, of streams without their own
    /// histogram.
    pub departure_error: Histogram,
    pub pacing: Pacing,
    /// Stalls of the sending thread.
    pub stalls: Stalls,
    pub fingerprint: Option<Fingerprint>,
    /// Whether frames are not hashed because the port generates them itself.
    pub unhashed: bool,
    /// Why the port became unusable.
    pub error: Option<String>,
}

impl PortTx {
    /// Port, frames, octets with FCS.
    pub(crate) fn sent(&self) -> (usize, u64, u64) {
        (self.port, self.packets, self.octets)
    }
}

/// Counters for one stream on one worker.
#[derive(Clone, Debug, Default)]
pub struct StreamTx {
    /// The number in the plan.
    pub number: u32,
    pub packets: u64,
    pub octets: u64,
    pub not_sent: Unsent,
    /// By how much the schedule moved because frames were late ([`squall_profile::Late::Stretch`]).
    pub stretched: Nanos,
    /// Times of the first and the last departure, on the engine's clock.
    pub first: Option<Nanos>,
    pub last: Nanos,
    /// Departure errors (actual minus due time) in nanoseconds; `None`: it has none of its own.
    pub departure_error: Option<Box<Histogram>>,
}

/// Numbers of frames of a stream that did not leave, by reason. A single reason needs no allocation,
/// because a million streams that are late would need one in every copy of their counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsent {
    One(&'static str, u64),
    /// None, or several.
    Many(Box<[(&'static str, u64)]>),
}

impl Default for Unsent {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

impl Unsent {
    pub fn add(&mut self, reason: &'static str, frames: u64) {
        let known = match self {
            Self::One(first, sum) if *first == reason => Some(sum),
            Self::One(..) => None,
            Self::Many(all) => all.iter_mut().find(|one| one.0 == reason).map(|one| &mut one.1),
        };
        if let Some(sum) = known {
            *sum += frames;
        } else if self.iter().next().is_none() {
            *self = Self::One(reason, frames);
        } else {
            *self = Self::Many(self.iter().chain([(reason, frames)]).collect());
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let (one, many) = match self {
            Self::One(reason, frames) => (Some((*reason, *frames)), &[][..]),
            Self::Many(all) => (None, &**all),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// All frames, whatever the reason.
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, frames)| frames).sum()
    }
}

/// All counters and measurements of a worker at one time.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub worker: usize,
    /// The CPU to which the worker is bound.
    pub cpu: Option<u32>,
    /// CPU time of its thread.
    pub cpu_time: Nanos,
    /// Involuntary context switches of the thread; filled in at the end.
    pub preempted: u64,
    pub tx: Vec<PortTx>,
    pub streams: Vec<StreamTx>,
    pub rx: Vec<PortRx>,
    pub flows: Vec<FlowStats>,
    pub hosts: Vec<HostStats>,
    pub routers: Vec<RouterStats>,
    /// The worker's own thread, then those that generate frames for it.
    pub threads: Vec<ThreadLoad>,
}

/// How much of its time a thread was busy. Waiting for due frames does not count, whether asleep or
/// spinning: a worker spins before a departure, so its CPU time would show a whole CPU for one
/// frame per millisecond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadLoad {
    /// The ports on which it sends, and the ports on which it receives.
    pub tx: Vec<usize>,
    pub rx: Vec<usize>,
    pub busy: Nanos,
    /// Age of the thread.
    pub lived: Nanos,
}

/// A worker's counters without histograms: cheap enough for frequent polling with thousands of
/// streams.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Port, frames, octets with FCS.
    pub tx: Vec<(usize, u64, u64)>,
    /// Number, frames, octets with FCS.
    pub streams: Vec<(u32, u64, u64)>,
    pub rx: Vec<QueueCounters>,
    pub threads: Vec<ThreadLoad>,
    /// Whether servers of flows still send on their own initiative.
    pub acts: bool,
}

impl From<&Snapshot> for Counters {
    fn from(snapshot: &Snapshot) -> Self {
        let seen = |rx: &PortRx| QueueCounters::of(rx.port, &rx.seen);
        Self {
            tx: snapshot.tx.iter().map(|tx| (tx.port, tx.packets, tx.octets)).collect(),
            streams: snapshot.streams.iter().map(|s| (s.number, s.packets, s.octets)).collect(),
            rx: snapshot.rx.iter().map(seen).collect(),
            threads: snapshot.threads.clone(),
            ..Self::default()
        }
    }
}

pub(crate) enum Message {
    Command(Command),
    Counters(Reply<Counters>),
    /// The flag: whether to include histograms.
    Snapshot(bool, Reply<Snapshot>),
    /// A snapshot without histograms, and without the streams that the worker schedules itself.
    Ports(Reply<Snapshot>),
    /// Display values of sources and sinks.
    Show(Wanted, Reply<Vec<Shown>>),
    /// Ends the worker, which returns its counters.
    Finish,
}

/// Signals a message to a worker, which then need not poll a channel each turn; also wakes it while
/// it waits for frames.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Wake>);

struct Wake {
    flag: Flag,
    /// An eventfd, readable after a wake-up.
    event: OwnedFd,
}

/// Alone on its cache lines, because it is read each turn: a write to a neighbor would evict it.
/// Two lines, because CPUs prefetch lines in pairs.
#[repr(align(128))]
struct Flag(AtomicBool);

impl Waker {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Wake { flag: Flag(AtomicBool::new(false)), event })))
    }

    pub fn wake(&self) {
        self.0.flag.0.store(true, Ordering::Release);
        // Fails only when the kernel's eventfd counter overflows, after 2^64 wake-ups without a
        // read.
        let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
    }

    /// Whether there was a wake-up after the last call.
    #[inline]
    fn take(&self) -> bool {
        self.0.flag.0.load(Ordering::Relaxed) && self.0.flag.0.swap(false, Ordering::Acquire)
    }

    /// Discards earlier wake-ups: only a new one ends the next wait.
    fn clear(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

pub(crate) struct Worker {
    pub index: usize,
    pub cpu: Option<u32>,
    pub clock: Clock,
    pub common: CommonClock,
    pub watch: Watch,
    pub sources: Vec<Box<dyn Source>>,
    pub outlets: Outlets,
    pub rx: Vec<Receiving>,
    pub budget: Budget,
    pub mailbox: Mailbox<Message>,
    pub waker: Waker,
    /// Gets the worker's number and the number of streams added so far, when nothing is left to
    /// send.
    pub sent_all: Reply<(usize, u64)>,
    pub added: u64,
    pub reported: bool,
    pub idle: Idle,
    pub sleeper: Sleeper,
    /// Whether the last action was to send.
    pub just_sent: bool,
    pub wakeups: Wakeups,
    pub inflow: Inflow,
    /// A snapshot whose streams are not all copied yet.
    pub copying: Option<Copying>,
    pub finished: bool,
    /// When each source is due next, in virtual time.
    pub due: Vec<Option<Picos>>,
    /// Parts that ended here, that others wait for, and that are not reported yet.
    pub ended: Vec<(Part, Picos)>,
    pub waiting: Option<Waiting>,
}

/// A snapshot that is made over several turns: a worker that copied the counters of a hundred
/// thousand streams at once would send nothing for some 20 ms.
pub(crate) struct Copying {
    full: bool,
    /// Number of streams that were copied.
    done: usize,
    /// When it was requested.
    asked: Nanos,
    snapshot: Snapshot,
    reply: Reply<Snapshot>,
}

/// After this time the rest is copied at once: the supervisor leaves out a worker that does not
/// answer within a second.
const COPIED_WITHIN: Nanos = Nanos(300_000_000);

/// Limit on waiting for the last frames of a stopped queue: the kernel delivers a partly filled
/// block of a receive ring only after its timeout.
const DRAIN_TIMEOUT: Nanos = Nanos(1_500_000_000);
/// Longest wait for frames and commands: bounds the delay of
/// [`Sink::idle`](crate::sink::Sink::idle).
const LONGEST: Nanos = Nanos(50_000_000);
/// Longest wait of a worker that has frames to send and none due: the link may come up again.
const LINK_REST: Nanos = Nanos(2_000_000);
/// Longest sleep of a worker that only supervises generator threads: longer than [`LINK_REST`],
/// because the worker shares their CPU.
const WATCH_REST: Nanos = Nanos(10_000_000);
/// Longest sleep before a turn of a source that reacts to frames, if a port cannot wake the worker.
const NAP: Nanos = Nanos(100_000);
/// Limit on receiving at the end of a run, because another sender may never stop.
const DRAINED_AT_MOST: Nanos = Nanos(100_000_000);
/// Rounds at the end that answer frames received before it.
const FINAL_RX_ROUNDS: usize = 64;
/// Limit on rounds at the end in which sources settle.
const LAST_TURNS: usize = 100_000;

/// A turn of a source. A macro instead of a method, because the turn borrows every field of the
/// worker except `sources`.
macro_rules! turn {
    ($worker:ident, $now:expr, $until:expr) => {
        turn!($worker, $now, $until, false)
    };
    ($worker:ident, $now:expr, $until:expr, $alone:expr) => {
        Turn {
            clock: $worker.clock,
            common: $worker.common,
            now: $now,
            until: $until,
            alone: $alone,
            watch: &mut $worker.watch,
            budget: &mut $worker.budget,
            outlets: &mut $worker.outlets,
            ended: &mut $worker.ended,
        }
    };
}

/// No other source has to be waited for.
const NEVER: Picos = Picos(u64::MAX);

impl Worker {
    /// Runs the worker to its end. Returns the counters and the final values of sources and sinks.
    pub fn run(mut self) -> (Snapshot, Vec<Shown>) {
        while !self.finished {
            self.turn();
        }
        let mut left = Vec::new();
        let rx = self.rx.iter_mut().map(|rx| rx.leave(&mut left)).collect();
        // Read on the worker's own thread, because the kernel counts per thread.
        let preempted = preempted();
        left.extend(self.sources.iter_mut().filter_map(|source| source.leave()));
        let snapshot = Snapshot { preempted, rx, ..self.snapshot(true) };
        left.extend(self.sources.iter_mut().filter_map(|source| source.remains()));
        (snapshot, left)
    }

    /// One round: mailbox, receive, send, rest.
    #[inline]
    fn turn(&mut self) {
        // Right after a batch the previous reading is exact enough, and cheaper than a new one.
        let mut now = if self.just_sent { self.watch.last() } else { self.watch.now() };
        let begun = now;
        let woken = self.waker.take();
        if woken {
            self.read_mail(now);
            // A rest would delay the end of the run by up to `LONGEST`.
            if self.finished {
                return;
            }
        }
        if self.clock != Clock::Virtual {
            // Set the lag before receiving, because flows process the frames that arrived during a
            // stall on the schedule that the stall has delayed.
            if self.outlets.is_shared() {
                self.sources.iter_mut().for_each(|source| source.owe(&mut self.outlets));
            }
            self.outlets.begin_turn(self.clock.since_start(now).0);
            if self.outlets.is_shared() {
                self.sources.iter_mut().for_each(|source| source.begin_turn(now, &self.outlets));
            }
        }
        let copies = self.copying.is_some();
        if copies {
            self.copy_streams();
            let is_late = |of: &Copying| monotonic().saturating_sub(of.asked) > COPIED_WITHIN;
            while self.copying.as_ref().is_some_and(is_late) {
                self.copy_streams();
            }
        }
        // Receives before the sources send, so that answers to received frames leave in this turn.
        let mut moved = self.receive(now) | copies;
        let mut stale = moved || woken;
        let mut open = false;
        let in_turn = self.in_turn();
        let alone = self.rx.is_empty() && self.sources.len() == 1;
        for (i, source) in self.sources.iter_mut().enumerate() {
            // This reading becomes the timestamp in the frames. It is fresh, because the time
            // since the previous reading must not count as network delay.
            if stale {
                now = self.watch.now();
            }
            let until = if in_turn { earlier_of_others(&self.due, i) } else { NEVER };
            moved |= source.turn(&mut turn!(self, now, until, alone));
            open |= !source.is_done();
            stale = moved;
        }
        if !self.ended.is_empty() || self.waiting.as_ref().is_some_and(Waiting::has_ended) {
            self.begin_waiting(now);
            (moved, open) = (true, true);
        }
        if !open && !self.reported {
            self.reported = true;
            // The send fails if the supervisor is gone, which then needs no report.
            let _ = self.sent_all.send((self.index, self.added));
        }
        if moved {
            self.idle.end(begun);
        } else {
            self.rx.iter_mut().for_each(|rx| rx.idle(now));
            self.rest(open);
        }
        self.just_sent = moved && self.rx.is_empty();
    }

    /// Reports parts that ended, and starts the parts that waited for them.
    #[cold]
    fn begin_waiting(&mut self, now: Nanos) {
        let Some(waiting) = &mut self.waiting else { return self.ended.clear() };
        waiting.report(&mut self.ended);
        for (part, at) in waiting.take() {
            let command = Command::to(part, Action::Begin);
            for source in &mut self.sources {
                source.apply(&command, at, &mut turn!(self, now, NEVER));
            }
        }
    }

    /// On virtual time a source could advance endlessly while the others wait. Each therefore
    /// advances only up to the time at which another unfinished source is due.
    fn in_turn(&mut self) -> bool {
        let open =
            |sources: &[Box<dyn Source>]| sources.iter().filter(|one| !one.is_done()).count();
        if self.clock != Clock::Virtual || self.sources.len() < 2 || open(&self.sources) < 2 {
            return false;
        }
        let end = self.budget.end;
        self.due.clear();
        for source in &mut self.sources {
            let open = !source.is_done();
            self.due.push(open.then(|| source.next_due(&self.outlets, end)).flatten());
        }
        true
    }

    fn rest(&mut self, open: bool) {
        if self.clock == Clock::Virtual {
            let in_turn = self.in_turn();
            let mut passed = false;
            for (i, source) in self.sources.iter_mut().enumerate() {
                let until = if in_turn { earlier_of_others(&self.due, i) } else { NEVER };
                passed |= source.pass(until);
            }
            if passed {
                return;
            }
            if open {
                return std::thread::yield_now();
            }
        }
        let now = self.watch.now();
        self.idle.begin(now);
        let needs = self.needs(now, open);
        let (time, departs) = self.sleeper.sleep(now, &needs);
        if time == Nanos::ZERO {
            return std::hint::spin_loop();
        }
        if self.wait(now, time) && departs {
            self.sleeper.record(self.watch.now().saturating_sub(now + time));
        }
    }

    /// Collects the needs of sources and queues, which decide how long the worker may sleep.
    fn needs(&mut self, now: Nanos, open: bool) -> Needs {
        let (clock, end) = (self.clock, self.budget.end);
        let left = |due: Picos| match clock {
            Clock::Real(start) => (start + due.as_nanos()).saturating_sub(now),
            Clock::Virtual => LONGEST,
        };
        let mut needs = Needs { longest: LONGEST, ..Needs::default() };
        let (mut any, mut reacts, mut supervises) = (false, false, true);
        for source in &mut self.sources {
            let due = source.next_due(&self.outlets, end).map(left);
            any |= due.is_some();
            reacts |= source.reacts();
            let need = match source.is_done() {
                _ if source.reacts() => &mut needs.timer,
                true => &mut needs.event,
                false => match source.rest(now) {
                    Rest::Port => &mut needs.event,
                    Rest::Supervise => continue,
                    _ => &mut needs.departure,
                },
            };
            supervises = false;
            *need = need.iter().copied().chain(due).min();
        }
        if open && !any {
            // The worker must wake to notice the end of the run.
            needs.event = Some(left(end));
            needs.longest = if supervises { WATCH_REST } else { LINK_REST };
        }
        needs.reads = open && !reacts && self.rx.iter().any(|rx| rx.queue.rest() == Nanos::ZERO);
        needs
    }

    /// Waits for `time`, or for frames and commands if they can end the wait. Returns whether the
    /// time has passed.
    fn wait(&mut self, now: Nanos, time: Nanos) -> bool {
        let (mut reacts, mut gathers, mut full) = (false, None::<Nanos>, false);
        for source in self.sources.iter_mut().filter(|source| source.reacts()) {
            reacts = true;
            match source.rest(now) {
                Rest::Gather(time) => gathers = Some(gathers.map_or(time, |other| other.min(time))),
                Rest::Full => full = true,
                _ => {}
            }
        }
        let bearable = self.rx.iter().map(|rx| rx.queue.rest()).min();
        if let Some(longest) = gathers.or(full.then_some(NAP)) {
            // `rest` is a quarter of a ring. Longer than a nap only if half a ring is enough.
            let ring = bearable.map_or(longest, |rest| (rest + rest).max(NAP));
            return self.nap(time, longest.min(ring));
        }
        // If frames arrive fast, a sleep gathers many of them, whereas a queue that signals each
        // frame would wake the worker for each. An event that is not a frame (the interface went
        // down) would end the next wait at once.
        let fast = self.inflow.is_fast(now, &self.rx);
        let waits = self.rx.is_empty() || reacts || self.wakeups.are_rare(now, fast);
        if waits
            && self.clock != Clock::Virtual
            && let Some(passed) = self.wait_for_frames(time)
        {
            return passed;
        }
        let longest = match bearable {
            _ if reacts => NAP,
            Some(bearable) if fast => bearable,
            Some(bearable) => bearable.min(RX_REST),
            None => LINK_REST,
        };
        self.nap(time, longest)
    }

    /// Sleeps for `time`, at most `longest`. Returns whether the time has passed.
    fn nap(&mut self, time: Nanos, longest: Nanos) -> bool {
        let sleep = time.min(longest);
        self.watch.plan_rest(sleep);
        std::thread::sleep(Duration::from_nanos(sleep.0));
        sleep == time
    }

    /// Blocks until a queue signals frames, a command comes, or `time` has passed; returns whether
    /// it has. `None`, without a wait, if not all queues can signal.
    fn wait_for_frames(&mut self, time: Nanos) -> Option<bool> {
        let mut descriptors = Vec::with_capacity(self.rx.len() + 1);
        let mut queues = self.rx.iter().filter(|rx| rx.error.is_none());
        if !queues.all(|rx| rx.queue.poll_on(&mut descriptors)) {
            return None;
        }
        descriptors.push(self.waker.0.event.as_fd());
        let mut waits: Vec<_> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let (tv_sec, tv_nsec) = (time.0 / 1_000_000_000, time.0 % 1_000_000_000);
        let timeout = Timespec { tv_sec: tv_sec as i64, tv_nsec: tv_nsec as i64 };
        self.watch.plan_rest(time);
        // A signal (EINTR) that ends the wait early does no harm.
        let signaled = poll(&mut waits, Some(&timeout));
        // The last one is the waker: commands say nothing about how often frames come.
        let (queues, commands) = waits.split_at(waits.len() - 1);
        let frames = queues.iter().any(|queue| !queue.revents().is_empty());
        let command = !commands[0].revents().is_empty();
        drop(waits);
        if frames {
            self.wakeups.add(self.watch.now());
        }
        if command {
            self.waker.clear();
        }
        Some(signaled == Ok(0))
    }

    #[inline]
    fn receive(&mut self, now: Nanos) -> bool {
        let mut any = false;
        for rx in self.rx.iter_mut().filter(|rx| rx.error.is_none()) {
            any |= rx.turn(now, &mut self.sources);
        }
        any
    }

    fn read_mail(&mut self, now: Nanos) {
        while let Ok(message) = self.mailbox.try_recv() {
            match message {
                Message::Snapshot(full, reply) => {
                    // One at a time.
                    while self.copying.is_some() {
                        self.copy_streams();
                    }
                    let snapshot = self.without_streams(full);
                    self.copying =
                        Some(Copying { full, done: 0, asked: monotonic(), snapshot, reply });
                    self.copy_streams();
                }
                Message::Ports(reply) => {
                    let _ = reply.send(self.without_streams(false));
                }
                Message::Counters(reply) => {
                    let _ = reply.send(self.counters());
                }
                Message::Show(wanted, reply) => {
                    let sources = self.sources.iter();
                    let sources = sources.filter_map(|source| source.show(now, &wanted));
                    let sinks = self.rx.iter().flat_map(|rx| rx.show(&wanted));
                    let _ = reply.send(sources.chain(sinks).collect());
                }
                Message::Finish => self.finish(now),
                Message::Command(command) => self.apply(&command, now),
            }
        }
    }

    fn apply(&mut self, command: &Command, now: Nanos) {
        let at = match self.clock {
            Clock::Real(_) => self.clock.since_start(now),
            // Virtual time is that of the last departure.
            Clock::Virtual => {
                self.sources.iter().map(|source| source.time()).max().unwrap_or_default().into()
            }
        };
        let mut turn = turn!(self, now, NEVER);
        let added: u64 =
            self.sources.iter_mut().map(|source| source.apply(command, at, &mut turn)).sum();
        if added > 0 {
            (self.added, self.reported) = (self.added + added, false);
        }
        match &command.action {
            Action::Stop => {
                self.budget.end = self.budget.end.min(at);
                // The budget is set to spent, so that a later limit cannot start the run again.
                self.budget.packets = 0;
            }
            Action::Limit(stop) => self.limit(*stop),
            Action::Clock(common) => {
                self.common = *common;
                self.rx.iter_mut().for_each(|rx| rx.set_common(*common));
            }
            _ => {}
        }
    }

    fn limit(&mut self, stop: Stop) {
        // A stopped run does not start again.
        if self.budget.is_spent() {
            return;
        }
        let used = self.sources.iter().map(|source| source.used());
        let (packets, octets) = used.fold((0, 0), |sum, used| (sum.0 + used.0, sum.1 + used.1));
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
        // Answers the last frames received, because the end of one side's flows depends on the
        // other's.
        for _ in 0..FINAL_RX_ROUNDS {
            if !self.receive(now) {
                break;
            }
            let mut turn = turn!(self, now, NEVER);
            for source in self.sources.iter_mut().filter(|source| source.reacts()) {
                source.turn(&mut turn);
            }
        }
        for _ in 0..LAST_TURNS {
            let mut turn = turn!(self, now, NEVER);
            // `fold` instead of `all`: every source must settle, even after one that is not done.
            let over = self.sources.iter_mut().map(|source| source.settle(&mut turn));
            if over.fold(true, |all, over| all & over) {
                break;
            }
            self.receive(now);
        }
        self.sources.iter_mut().for_each(|source| source.close(&mut self.outlets));
        self.drain();
        self.finished = true;
    }

    /// Takes frames that have arrived; sources do not answer them.
    fn drain(&mut self) {
        // If a port can report that it is empty, takes everything: a frame that the kernel has
        // counted must not be lost at the end.
        for rx in self.rx.iter_mut() {
            if !rx.stop() {
                continue;
            }
            let mut deadline = monotonic() + DRAIN_TIMEOUT;
            while rx.error.is_none() {
                if rx.take(Nanos::ZERO, &mut []) {
                    deadline = monotonic() + DRAIN_TIMEOUT;
                } else if rx.waiting() == 0 || monotonic() > deadline {
                    break;
                } else {
                    // Waiting helps because the kernel closes a partly filled block after a
                    // timeout.
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
        // Frames on a link in memory arrive now or never. A loop may be full of single frames:
        // virtual time has no linger, and other threads may have had the CPU. The limit is for
        // senders that never stop.
        let until = monotonic() + DRAINED_AT_MOST;
        for _ in 0..1 << 16 {
            if self.clock != Clock::Virtual && monotonic() > until {
                break;
            }
            let mut any = false;
            for rx in self.rx.iter_mut().filter(|rx| rx.error.is_none()) {
                any |= rx.take(Nanos::ZERO, &mut []);
            }
            if !any {
                break;
            }
        }
    }

    fn counters(&self) -> Counters {
        let rx = self.rx.iter().map(Receiving::counters).collect();
        let threads = self.busy().into_iter().collect();
        let mut counters = Counters { rx, threads, ..Counters::default() };
        self.sources.iter().for_each(|source| source.counters(&mut counters));
        counters
    }

    /// `None` on virtual time, which does not measure the CPU.
    fn busy(&self) -> Option<ThreadLoad> {
        if self.clock == Clock::Virtual {
            return None;
        }
        let (lived, cpu) = self.watch.lived();
        let wanted = lived.saturating_sub(self.idle.until(self.watch.last()));
        let rx = self.rx.iter().map(|rx| rx.port).collect();
        // Capped by the CPU time, because time in which other threads had the CPU is not work.
        Some(ThreadLoad { tx: self.outlets.ports().collect(), rx, busy: wanted.min(cpu), lived })
    }

    /// Copies the counters of some more streams for a snapshot, and replies after the last of them.
    #[cold]
    fn copy_streams(&mut self) {
        let Some(copying) = &mut self.copying else { return };
        let mut more = false;
        for source in &self.sources {
            more |= source.streams(copying.full, copying.done, &mut copying.snapshot.streams);
        }
        copying.done += STREAMS_AT_ONCE;
        if !more && let Some(Copying { snapshot, reply, .. }) = self.copying.take() {
            // Fails if the answer is no longer awaited.
            let _ = reply.send(snapshot);
        }
    }

    /// `full`: includes histograms.
    fn snapshot(&mut self, full: bool) -> Snapshot {
        let mut snapshot = self.without_streams(full);
        for source in &self.sources {
            let mut done = 0;
            while source.streams(full, done, &mut snapshot.streams) {
                done += STREAMS_AT_ONCE;
            }
        }
        snapshot
    }

    /// A snapshot without the counters of streams, except those of generators.
    fn without_streams(&mut self, full: bool) -> Snapshot {
        let mut snapshot = Snapshot {
            worker: self.index,
            cpu: self.cpu,
            cpu_time: thread_cpu_time(),
            threads: self.busy().into_iter().collect(),
            rx: self.rx.iter_mut().map(|rx| rx.snapshot(full)).collect(),
            ..Snapshot::default()
        };
        let stalls = self.watch.stalls();
        self.sources.iter().for_each(|source| source.snapshot(full, stalls, &mut snapshot));
        if let Clock::Real(_) = self.clock {
            for tx in &mut snapshot.tx {
                let Some(outlet) = self.outlets.of_port(tx.port) else { continue };
                let lag = outlet.lag(self.clock.since_start(tx.last).0);
                (tx.pacing.lag, tx.pacing.moved) = (Picos(lag).as_nanos(), outlet.moved());
            }
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_did_not_leave_add_up_by_reason() {
        let mut unsent = Unsent::default();
        assert_eq!((unsent.iter().count(), unsent.total()), (0, 0));
        unsent.add("late", 0);
        unsent.add("late", 3);
        assert_eq!(unsent, Unsent::One("late", 3));
        for (reason, frames) in [("link_down", 2), ("late", 1), ("no_host", 5), ("link_down", 4)] {
            unsent.add(reason, frames);
        }
        let all: Vec<_> = unsent.iter().collect();
        assert_eq!(all, [("late", 4), ("link_down", 6), ("no_host", 5)]);
        assert_eq!(unsent.total(), 15);
        // As small as a list, without its allocation.
        assert_eq!(size_of::<Unsent>(), size_of::<Vec<u64>>());
    }
}
