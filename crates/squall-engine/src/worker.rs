//! One core's loop: mailbox, receive, wheel, send, publish ([`Worker::turn`]).

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
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
    clock::{SLEEP_MARGIN, SPIN, Stalls, Watch, preempted, rest, thread_cpu_time},
    command::{Action, Command},
    flows::FlowStats,
    receiving::{Inflow, PortRx, QueueCounters, Receiving},
    sink::Shown,
    source::{Budget, Outlets, Rest, Source, Turn, earlier_of_others},
    supervisor::end_of,
};

/// Counters of what one source sends by one port on one worker. Frames that the port took for good;
/// octets with FCS.
#[derive(Clone, Debug, Default)]
pub struct PortTx {
    pub port: usize,
    pub source: SourceId,
    pub packets: u64,
    pub octets: u64,
    /// GSO frames that were handed over whole, and the frames that they became, which are among
    /// `packets`.
    pub gso_frames: u64,
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

impl PortTx {
    /// Port, frames, octets with FCS.
    pub(crate) fn sent(&self) -> (usize, u64, u64) {
        (self.port, self.packets, self.octets)
    }
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

/// All that a worker has counted and measured by an instant.
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
    /// Its own, then those that make frames for it.
    pub threads: Vec<Busy>,
}

/// How much of its time a thread has had something to do. Waiting for what is due is none of that,
/// asleep or awake: a worker spins ahead of a departure, and its CPU time alone would say that a
/// frame each millisecond takes a whole CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Busy {
    /// Ports that it sends on, and that it receives from.
    pub tx: Vec<usize>,
    pub rx: Vec<usize>,
    pub busy: Nanos,
    /// Since it began.
    pub lived: Nanos,
}

/// A worker's counters, without histograms: cheap enough to ask for often, with thousands of
/// streams.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Port, frames, octets with FCS.
    pub tx: Vec<(usize, u64, u64)>,
    /// Number, frames, octets with FCS.
    pub streams: Vec<(u32, u64, u64)>,
    pub rx: Vec<QueueCounters>,
    pub threads: Vec<Busy>,
    /// Servers of flows have more to say by themselves.
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
    /// `true`: with histograms.
    Snapshot(bool, Reply<Snapshot>),
    /// What its sources and sinks have to show of their records with these numbers.
    Show(Range<u32>, Reply<Vec<Shown>>),
    /// The end: counters go home.
    Finish,
}

/// Tells a worker that a message waits, without the worker having to ask a channel each turn; and
/// wakes it where it waits for frames.
#[derive(Clone)]
pub(crate) struct Waker(Arc<Wake>);

struct Wake {
    flag: Flag,
    /// Readable when the worker was woken.
    event: OwnedFd,
}

/// Alone on its cache lines (two, because CPUs fetch neighbours along): it is read each turn.
#[repr(align(128))]
struct Flag(AtomicBool);

impl Waker {
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Arc::new(Wake { flag: Flag(AtomicBool::new(false)), event })))
    }

    pub fn wake(&self) {
        self.0.flag.0.store(true, Ordering::Release);
        // Fails only when it was woken 2^64 times and nobody looked.
        let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
    }

    /// Whether it was woken since the last call.
    #[inline]
    fn take(&self) -> bool {
        self.0.flag.0.load(Ordering::Relaxed) && self.0.flag.0.swap(false, Ordering::Acquire)
    }

    /// From now on only who wakes it anew ends a wait.
    fn clear(&self) {
        let _ = rustix::io::read(&self.0.event, &mut [0; 8]);
    }
}

/// Time in which the worker rested, and in which it looked and found nothing.
#[derive(Default)]
pub(crate) struct Idle {
    total: Nanos,
    since: Option<Nanos>,
}

impl Idle {
    /// Nothing is left to be done.
    #[inline]
    fn begin(&mut self, now: Nanos) {
        self.since.get_or_insert(now);
    }

    /// A turn that began then has moved something.
    #[inline]
    fn end(&mut self, begun: Nanos) {
        if let Some(since) = self.since.take() {
            self.total = self.total + begun.saturating_sub(since);
        }
    }

    fn until(&self, now: Nanos) -> Nanos {
        self.total + self.since.map_or(Nanos::ZERO, |since| now.saturating_sub(since))
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
    /// Told when nothing is left to be sent: by whom, and how many streams were added until then.
    pub sent_all: Reply<(usize, u64)>,
    pub added: u64,
    pub told: bool,
    pub idle: Idle,
    /// The last thing done was to send.
    pub just_sent: bool,
    /// When waits for frames ended before their time: the last one, and the one before.
    pub woken: [Nanos; 2],
    pub inflow: Inflow,
    pub finished: bool,
    /// On virtual time: when the sources have their next instants.
    pub due: Vec<Option<Picos>>,
    /// Where some wait for others: what of those has ended here, and is not told yet.
    pub ended: Vec<(Part, Picos)>,
    pub waiting: Option<Waiting>,
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
/// So near an instant a source that reacts to frames is waited for without sleep: who wakes for it
/// is awake by then, with timers as exact as these sources set them.
const NEAR: Nanos = Nanos(15_000);
/// Longest sleep for such a source where no port can wake us.
const NAP: Nanos = Nanos(100_000);
/// And where one can.
const SLEEP: Nanos = Nanos(50_000_000);
/// So long frames gather.
const GATHER: Nanos = Nanos(50_000);
/// So long frames that come without end are taken at the end of a run.
const DRAINED_AT_MOST: Nanos = Nanos(100_000_000);
/// Rounds in which what was said before the end is still answered.
const LAST_WORDS: usize = 64;
/// Rounds at the end in which sources come to theirs.
const LAST_TURNS: usize = 100_000;

/// A source's turn, of the worker's parts but for its sources.
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

/// Nobody has to be waited for.
const NEVER: Picos = Picos(u64::MAX);

impl Worker {
    /// Runs to the end and gives the counters, and what its sources and sinks leave.
    pub fn run(mut self) -> (Snapshot, Vec<Shown>) {
        while !self.finished {
            self.turn();
        }
        let mut left = Vec::new();
        let rx = self.rx.iter_mut().map(|rx| rx.leave(&mut left)).collect();
        let preempted = preempted();
        left.extend(self.sources.iter_mut().filter_map(|source| source.leave()));
        (Snapshot { preempted, rx, ..self.snapshot(true) }, left)
    }

    /// Mailbox, receive, send, rest.
    #[inline]
    fn turn(&mut self) {
        // Behind a batch that left just now the clock is where it was.
        let mut now = if self.just_sent { self.watch.last() } else { self.watch.now() };
        let begun = now;
        let woken = self.waker.take();
        if woken {
            self.read_mail(now);
        }
        if self.clock != Clock::Virtual {
            // Before anything is received: what has come during a stall lies by the lag of before.
            if self.outlets.is_shared() {
                self.sources.iter_mut().for_each(|source| source.owe(&mut self.outlets));
            }
            self.outlets.begin_turn(self.clock.since_start(now).0);
            if self.outlets.is_shared() {
                self.sources.iter_mut().for_each(|source| source.begin_turn(now, &self.outlets));
            }
        }
        let mut moved = self.receive(now);
        let mut stale = moved || woken;
        let mut open = false;
        let in_turn = self.in_turn();
        let alone = self.rx.is_empty() && self.sources.len() == 1;
        for (i, source) in self.sources.iter_mut().enumerate() {
            // The stamp in the frames: what took time since is not the network's delay.
            if stale {
                now = self.watch.now();
            }
            let until = if in_turn { earlier_of_others(&self.due, i) } else { NEVER };
            moved |= source.turn(&mut turn!(self, now, until, alone));
            open |= !source.is_done();
            stale = moved;
        }
        if !self.ended.is_empty() || self.waiting.as_ref().is_some_and(Waiting::has_news) {
            self.begin_waiting(now);
            (moved, open) = (true, true);
        }
        if !open && !self.told {
            self.told = true;
            // The supervisor may be gone already; it then wants to know nothing more.
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

    /// Tells of what has ended, and begins what has waited for that.
    #[cold]
    fn begin_waiting(&mut self, now: Nanos) {
        let Some(waiting) = &mut self.waiting else { return self.ended.clear() };
        waiting.tell(&mut self.ended);
        for (part, at) in waiting.take() {
            let command = Command::to(part, Action::Begin);
            for source in &mut self.sources {
                source.apply(&command, at, &mut turn!(self, now, NEVER));
            }
        }
    }

    /// On virtual time, where a source could go on for ever while the others stand: each goes on as
    /// far as the next instant of another, if there is one that is not done.
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
        let start = match self.clock {
            Clock::Real(start) => start,
            Clock::Virtual => Nanos::ZERO,
        };
        let end = self.budget.end;
        // The most careful of those that are waited for says how.
        let (mut next, mut precise): (Option<Picos>, Option<Picos>) = (None, None);
        let (mut reacts, mut patient, mut watches) = (false, false, true);
        for source in &mut self.sources {
            let due = source.next_due(&self.outlets, end);
            let earlier = |one: Option<Picos>| one.into_iter().chain(due).min();
            if source.reacts() {
                (reacts, precise) = (true, earlier(precise));
                continue;
            }
            next = earlier(next);
            if source.is_done() {
                continue;
            }
            match source.rest(now) {
                Rest::Port => (patient, watches) = (true, false),
                Rest::Seldom => {}
                _ => watches = false,
            }
        }
        if reacts {
            let margin = Picos::from(Nanos(SPIN.0.saturating_sub(NEAR.0)));
            let awake = next.map(|due| Picos(due.0.saturating_sub(margin.0)));
            let wake = precise.into_iter().chain(awake).min();
            return self.rest_reacting(now, wake.map(|due| start + due.as_nanos()));
        }
        let fast = !open && self.inflow.is_fast(now, &self.rx);
        let bearable = self.rx.iter().map(|rx| rx.queue.rest()).min();
        let longest = match bearable {
            Some(bearable) if fast => bearable,
            Some(bearable) => bearable.min(RX_REST),
            None if watches && open => WATCH_REST,
            None => TX_REST,
        };
        // Where frames come fast a sleep finds many of them, and a queue that tells each would wake
        // us for each. What was told and is no frame (the interface went down) would be told at
        // once again.
        let waits = !open && self.clock != Clock::Virtual && self.seldom_woken(now, fast);
        if waits && self.wait_for_frames() {
            return;
        }
        let wake = match next {
            Some(due) => start + due.as_nanos(),
            // Nothing is due any more, but the end of the run is to be noticed.
            None if open && end.0 != u64::MAX => start + end.as_nanos(),
            None => now + longest + SLEEP_MARGIN,
        };
        let margin = match next {
            // A port waits itself.
            Some(_) if patient => Nanos::ZERO,
            Some(_) => SPIN,
            None => SLEEP_MARGIN,
        };
        rest(&mut self.watch, now, wake, longest, margin);
    }

    /// Waits until `next`, until a frame comes, or until it is told something.
    fn rest_reacting(&mut self, now: Nanos, next: Option<Nanos>) {
        let left = next.map_or(SLEEP, |next| next.saturating_sub(now)).min(SLEEP);
        if left <= NEAR {
            return std::hint::spin_loop();
        }
        let most = Nanos(left.0 - NEAR.0 / 2);
        let (mut gathers, mut full) = (false, false);
        for source in self.sources.iter_mut().filter(|source| source.reacts()) {
            match source.rest(now) {
                Rest::Gather => gathers = true,
                Rest::Full => full = true,
                _ => {}
            }
        }
        if gathers {
            return nap(&mut self.watch, most.min(GATHER));
        }
        let mut descriptors = Vec::with_capacity(self.rx.len() + 1);
        let told = self.rx.iter().all(|rx| rx.queue.poll_on(&mut descriptors));
        if !told || full {
            return nap(&mut self.watch, most.min(NAP));
        }
        descriptors.push(self.waker.0.event.as_fd());
        let mut waits: Vec<_> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let wait = Timespec { tv_sec: 0, tv_nsec: most.0.min(999_999_999) as i64 };
        self.watch.plan_rest(Nanos(wait.tv_nsec as u64));
        // An interrupted wait is no harm.
        let _ = poll(&mut waits, Some(&wait));
        let woken = waits.last().is_some_and(|waker| !waker.revents().is_empty());
        drop(waits);
        if woken {
            self.waker.clear();
        }
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
        descriptors.push(self.waker.0.event.as_fd());
        let mut waits: Vec<_> =
            descriptors.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // An interrupted wait is no harm.
        let told = poll(&mut waits, Some(&WAIT)).unwrap_or(0) > 0;
        drop(waits);
        self.watch.plan_rest(Nanos(WAIT.tv_nsec as u64));
        if told {
            self.woken = [self.watch.now(), self.woken[0]];
            self.waker.clear();
        }
        true
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
                    let _ = reply.send(self.snapshot(full));
                }
                Message::Counters(reply) => {
                    let _ = reply.send(self.counters());
                }
                Message::Show(records, reply) => {
                    let sources = self.sources.iter();
                    let sources = sources.filter_map(|source| source.show(now, records.clone()));
                    let sinks = self.rx.iter().flat_map(|rx| rx.show(&records));
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
            // Virtual time stands at what left last.
            Clock::Virtual => {
                self.sources.iter().map(|source| source.time()).max().unwrap_or_default().into()
            }
        };
        let mut turn = turn!(self, now, NEVER);
        let added: u64 =
            self.sources.iter_mut().map(|source| source.apply(command, at, &mut turn)).sum();
        if added > 0 {
            (self.added, self.told) = (self.added + added, false);
        }
        match &command.action {
            Action::Stop => {
                self.budget.end = self.budget.end.min(at);
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
        // A stopped run stays so.
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
        // What was said last is heard: the end of one side's flows is the end of the other's.
        for _ in 0..LAST_WORDS {
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
            // Each of them, also behind one that is not over.
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

    /// Takes what has come until now; no source answers to it any more.
    fn drain(&mut self) {
        // Of a port that says when it is empty, all: none of the frames that the kernel has counted
        // is lost at the end.
        for rx in self.rx.iter_mut() {
            if !rx.stop() {
                continue;
            }
            let mut patience = monotonic() + DRAIN_PATIENCE;
            while rx.error.is_none() {
                if rx.take(Nanos::ZERO, &mut []) {
                    patience = monotonic() + DRAIN_PATIENCE;
                } else if rx.waiting() == 0 || monotonic() > patience {
                    break;
                } else {
                    std::thread::sleep(Duration::from_micros(200));
                }
            }
        }
        // What is on its way inside this process arrives now or never: a loop may be full of single
        // frames, on virtual time, as nobody has lingered for them, and where others had the CPU
        // meanwhile. What others send without end is not waited for.
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

    /// `None` on virtual time, which is nobody's CPU.
    fn busy(&self) -> Option<Busy> {
        if self.clock == Clock::Virtual {
            return None;
        }
        let (lived, cpu) = self.watch.lived();
        let wanted = lived.saturating_sub(self.idle.until(self.watch.last()));
        let rx = self.rx.iter().map(|rx| rx.port).collect();
        // What was wanted and not had, as others had the CPU, is not counted.
        Some(Busy { tx: self.outlets.ports().collect(), rx, busy: wanted.min(cpu), lived })
    }

    /// `full`: with histograms.
    fn snapshot(&mut self, full: bool) -> Snapshot {
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

fn nap(watch: &mut Watch, time: Nanos) {
    watch.plan_rest(time);
    std::thread::sleep(Duration::from_nanos(time.0));
}
