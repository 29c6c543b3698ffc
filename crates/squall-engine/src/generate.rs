//! A port that generates its frames itself: its program, the thread in which the program runs, and
//! their counters.
//!
//! The worker only supervises: it notices the end, applies commands, and reads the counters from
//! memory that it shares with the program. Leaving the call into the kernel to read them would cost
//! some 25 ms (docs/adr/0012).

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use squall_plan::{Part, Plan, PlanStream};
use squall_port::{Generation, Generator, Link, LinkState, Port, Remote, monotonic};
use squall_profile::{Late, Stop};
use squall_program::{
    Gap,
    clock::Allowance,
    kernel::{self, Layout, Memory, Stream, UnsupportedStream},
    pace::{Excess, Pacing, allowed, window},
};
use squall_stats::Histogram;
use squall_units::{Nanos, Picos};

use crate::{
    Clock, PortTx, StreamTx, ThreadLoad, Unsent,
    after::is_awaited,
    clock::{Stalls, thread_cpu_time},
    command::{Action, Content, Rate},
    supervisor::{END_OF_TIME, end_of},
    transmit::{LINK_DOWN, MOST_COUNTED, OVERTIME},
};

/// Frames per driver call in streams without gaps: the kernel's default batch for live frames.
const UNPACED_BATCH: u32 = 64;
/// Up to this rate frames leave one by one; above it, in the smallest batches that keep up, because
/// each call of the driver has a fixed cost.
const ONE_BY_ONE: f64 = 1e6;
const MOST_PACED_BATCH: f64 = 16.0;
/// If the lag of the schedule has grown at this number of checks in a row, frames leave in full
/// batches: one by one, the driver takes about half as many.
const BACKLOG_CHECKS: u32 = 5;
/// Time between two of these checks, picoseconds.
const BACKLOG_INTERVAL: u64 = 10_000_000_000;

/// Limit on waiting for a program to notice that it is held. Not shorter, because a system call
/// that is just beginning or ending takes some 30 ms.
const HOLD_TIMEOUT: Duration = Duration::from_millis(500);

pub(crate) struct Driver {
    port: usize,
    layout: Layout,
    remote: Arc<dyn Remote>,
    /// By index in the program: number in the plan, stream, and this worker's share.
    streams: Vec<(u32, PlanStream, (u64, u64))>,
    /// Present until the thread takes it.
    generator: Option<Box<dyn Generator>>,
    thread: Option<JoinHandle<Result<(), String>>>,
    begun: Option<Instant>,
    ending: Arc<AtomicBool>,
    /// CPU time and lifetime of the thread in nanoseconds, set when it has ended.
    cpu_time: Arc<AtomicU64>,
    wall_time: Arc<AtomicU64>,
    end: Picos,
    tickets: u64,
    late: Vec<u64>,
    down: Down,
    error: Option<String>,
    /// Whether time was up before all due frames had left.
    overdue: bool,
    /// Present while frames may leave in smaller batches than full ones.
    backlog: Option<Backlog>,
    pub done: bool,
}

/// Finds out whether the lag of the program's schedule grows all the time. A stall of the machine
/// makes the schedule lag once; a rate that the machine cannot keep makes it lag more and more.
#[derive(Debug, Default)]
struct Backlog {
    checked: Picos,
    lag: Nanos,
    /// Number of checks in a row at which the lag had grown.
    grown: u32,
}

impl Backlog {
    /// Whether the lag, which is `lag` at `at`, grows all the time.
    fn grows(&mut self, at: Picos, lag: Nanos) -> bool {
        if self.grown < BACKLOG_CHECKS && at.0.saturating_sub(self.checked.0) >= BACKLOG_INTERVAL {
            self.grown = if lag > self.lag { self.grown + 1 } else { 0 };
            (self.checked, self.lag) = (at, lag);
        }
        self.grown >= BACKLOG_CHECKS
    }
}

/// The streams while the link is down: they are held, and continue with the same frame when it is
/// up.
struct Down {
    link: Option<Arc<Link>>,
    since: Option<Picos>,
    /// Per stream: whether it is held because of the link.
    held: Vec<bool>,
    /// By how much each stream's schedule was moved, in picoseconds.
    moved: Vec<u64>,
    /// Frames that were due and not sent.
    frames: Vec<u64>,
    /// Frames that the kernel refused before the loss of the link was noticed; and all refused
    /// frames at the last check.
    refused: Vec<u64>,
    seen: Vec<u64>,
    /// Number of link changes when a kernel error was last cleared because of one.
    pardoned: usize,
}

impl Down {
    fn new(link: Option<Arc<Link>>, streams: usize) -> Self {
        Self {
            link,
            since: None,
            held: vec![false; streams],
            moved: vec![0; streams],
            frames: vec![0; streams],
            refused: vec![0; streams],
            seen: vec![0; streams],
            pardoned: 0,
        }
    }

    fn state(&self) -> LinkState {
        self.link.as_ref().map_or(LinkState::Up, |link| link.state())
    }
}

struct Shared<'a>(&'a dyn Remote);

impl Memory for Shared<'_> {
    fn get(&self, word: usize) -> u64 {
        self.0.word(word).load(Ordering::Acquire)
    }

    fn set(&self, word: usize, value: u64) {
        self.0.word(word).store(value, Ordering::Release);
    }
}

impl Driver {
    /// Compiles and loads the program for the frames that worker `index` sends on `port`; `None`:
    /// there are none.
    pub fn open(
        plan: &Plan,
        index: usize,
        port: usize,
        queue: u32,
        opened: &mut dyn Port,
    ) -> io::Result<Option<Self>> {
        let Some((streams, image)) = image(plan, index, port, &opened.facts().address)? else {
            return Ok(None);
        };
        let pps = streams
            .iter()
            .map(|(_, s, (_, by))| Some(s.asked_pps? / *by as f64))
            .sum::<Option<f64>>();
        let batch = pps.map_or(UNPACED_BATCH, |pps| {
            (pps / ONE_BY_ONE).ceil().clamp(1.0, MOST_PACED_BATCH) as u32
        });
        let generation = Generation {
            object: image.object,
            witnesses: image.witnesses,
            memory: image.memory,
            words: image.words,
            exit: image.exit,
            tables: image.tables,
            frame: image.frame,
            batch,
        };
        let generator = opened.open_generator(queue, &generation)?;
        Ok(Some(Self {
            port,
            layout: image.layout,
            remote: generator.remote(),
            late: vec![0; streams.len()],
            down: Down::new(opened.link(), streams.len()),
            streams,
            generator: Some(generator),
            thread: None,
            begun: None,
            ending: Arc::default(),
            cpu_time: Arc::default(),
            wall_time: Arc::default(),
            end: END_OF_TIME,
            tickets: 0,
            error: None,
            overdue: false,
            backlog: (batch < UNPACED_BATCH).then(Backlog::default),
            done: false,
        }))
    }

    /// Starts the thread. It enters the program, which waits until the first frame is due.
    pub fn begin(mut self, clock: Clock, stop: &Stop) -> Self {
        let Clock::Real(start) = clock else {
            self.fail("frames made inside the kernel need real time: try --clock real".into());
            return self;
        };
        self.end = end_of(stop);
        let memory = Shared(&*self.remote);
        let clock = kernel::Clock {
            start,
            end: self.end,
            last: Picos(self.end.0.saturating_add(OVERTIME)),
            packets: stop.packets.unwrap_or(u64::MAX),
            octets: stop.octets.unwrap_or(u64::MAX),
            allowance: self.is_smooth().then(|| self.allowance()),
        };
        self.layout.set_clock(&memory, &clock);
        self.layout.let_go(&memory);
        let Some(mut generator) = self.generator.take() else { return self };
        let (ending, cpu_time, wall_time) =
            (self.ending.clone(), self.cpu_time.clone(), self.wall_time.clone());
        let work = move || {
            let begun = Instant::now();
            let mut result = Ok(());
            while result.is_ok() && !ending.load(Ordering::Acquire) {
                result = generator.run().map_err(|e| e.to_string());
            }
            cpu_time.store(thread_cpu_time().0, Ordering::Release);
            wall_time.store(begun.elapsed().as_nanos() as u64, Ordering::Release);
            result
        };
        match thread::Builder::new().name("squall-live".into()).spawn(work) {
            Ok(thread) => (self.thread, self.begun) = (Some(thread), Some(Instant::now())),
            Err(error) => self.fail(error.to_string()),
        }
        self
    }

    /// Whether the program bounds bursts after a stall, as [`crate::transmit`] does; it does not if
    /// frames leave as soon as they can.
    fn is_smooth(&self) -> bool {
        let is_unsmoothed = |(_, s, _): &(u32, PlanStream, (u64, u64))| {
            s.late == Late::CatchUp || s.gap == Gap::Zero
        };
        !self.streams.iter().any(is_unsmoothed)
    }

    /// The burst allowed after a stall.
    fn allowance(&self) -> Nanos {
        let pps = Some(self.fastest_pps()).filter(|pps| *pps > 0.0);
        Picos(Allowance::of(pps).0).as_nanos()
    }

    /// The highest total rate of the streams.
    fn fastest_pps(&self) -> f64 {
        self.streams.iter().map(|(_, s, (_, by))| s.fastest_pps() / *by as f64).sum()
    }

    fn fail(&mut self, error: String) {
        self.error.get_or_insert(error);
        self.done = true;
    }

    /// Supervises the program at run time `at`.
    pub fn turn(&mut self, at: Picos) {
        self.remote.keep_alive();
        if let Some(error) = self.trouble() {
            self.fail(error);
            return self.settle(at.min(self.end));
        }
        self.follow_link(at.min(self.end));
        let (lag, _) = self.layout.lag(&Shared(&*self.remote));
        if self.backlog.as_mut().is_some_and(|backlog| backlog.grows(at, lag))
            && self.remote.set_batch(UNPACED_BATCH)
        {
            self.backlog = None;
        }
        if self.ends(at).is_none() {
            return;
        }
        // The program must rest for this check: otherwise, with two streams that start each other,
        // one may be read before its start and the other after its end, and both would seem done.
        self.hold();
        match self.ends(at) {
            Some(until) => self.settle(until),
            None => self.layout.let_go(&Shared(&*self.remote)),
        }
    }

    /// Holds the streams while the link is down, because frames due meanwhile must not leave, not
    /// even in a burst later.
    fn follow_link(&mut self, at: Picos) {
        let refused = |layout: &Layout, m: &dyn Memory, i: usize| {
            let accounts = layout.accounts(m, i);
            accounts.dropped + accounts.refused
        };
        match (self.down.state(), self.down.since) {
            (LinkState::Up, None) => {
                let m = Shared(&*self.remote);
                for (i, seen) in self.down.seen.iter_mut().enumerate() {
                    *seen = refused(&self.layout, &m, i);
                }
            }
            (LinkState::Down, None) => {
                self.hold();
                let m = Shared(&*self.remote);
                for i in 0..self.streams.len() {
                    if self.layout.is_active(&m, i) && !self.layout.is_paused(&m, i) {
                        self.layout.pause(&m, i, at);
                        self.down.held[i] = true;
                    }
                    self.down.refused[i] += refused(&self.layout, &m, i) - self.down.seen[i];
                }
                self.down.since = Some(at);
                self.layout.let_go(&m);
            }
            (LinkState::Up, Some(since)) => {
                self.hold();
                let m = Shared(&*self.remote);
                for i in 0..self.streams.len() {
                    if std::mem::take(&mut self.down.held[i]) {
                        // A stream that ends by a count sends these frames later instead.
                        if self.streams[i].1.pattern.total().is_none() {
                            self.down.frames[i] += self.due_before(i, at, 0);
                        }
                        self.down.moved[i] += at.0.saturating_sub(since.0);
                        self.layout.resume(&m, i, at);
                    }
                }
                self.down.since = None;
                self.layout.forget_errors(&m);
                self.layout.let_go(&m);
            }
            (LinkState::Down | LinkState::Lost, _) => {}
        }
    }

    /// Frames of stream `i` that are due before `until` if its schedule is moved forward by
    /// `earlier`.
    fn due_before(&self, i: usize, until: Picos, earlier: u64) -> u64 {
        let m = Shared(&*self.remote);
        let (_, s, _) = &self.streams[i];
        if self.layout.is_unpaced(&m, i) {
            return 0;
        }
        let timeline = self.layout.timeline(&m, i, s.gap, s.pattern);
        let (next, sizes) = (self.layout.next_frame(&m, i), s.program.sizes());
        timeline.due_before(
            Picos(until.0.saturating_add(earlier)),
            |k| sizes.at(next + k),
            MOST_COUNTED,
        )
    }

    /// The end of sending if it is over, otherwise `None`. Frames that were due before the returned
    /// time count as late.
    fn ends(&mut self, at: Picos) -> Option<Picos> {
        let m = Shared(&*self.remote);
        let next = self.layout.next_due(&m);
        let held = (0..self.streams.len())
            .any(|i| self.layout.is_paused(&m, i) && self.layout.is_active(&m, i));
        self.overdue = at.0 >= self.end.0.saturating_add(OVERTIME);
        let time_is_up = at >= self.end && next.is_none_or(|due| due >= self.end);
        let spent = self.layout.is_spent(&m);
        // After the last frame of a run that ends by a count no frame is due, so none is late.
        let until = if spent && at < self.end { Picos(0) } else { at.min(self.end) };
        (spent || time_is_up || self.overdue || (next.is_none() && !held)).then_some(until)
    }

    /// Why sending cannot continue.
    fn trouble(&mut self) -> Option<String> {
        let m = Shared(&*self.remote);
        if self.layout.is_broken(&m) {
            return Some(
                "the program in the kernel found an impossible state; this is a defect in Squall"
                    .into(),
            );
        }
        if self.layout.is_gone(&m) {
            self.down.link.iter().for_each(|link| link.lose(monotonic()));
            return Some("the interface is gone".into());
        }
        if let (LinkState::Lost, Some(link)) = (self.down.state(), &self.down.link) {
            return Some(link.error().to_string());
        }
        let (driver, redirect) = self.layout.errors(&m);
        let fatal =
            [driver, redirect].into_iter().filter(|&e| e != 0).find_map(|e| self.remote.fatal(e));
        if fatal.is_some() {
            let changes = self.down.link.as_ref().map_or(0, |link| link.changes());
            if changes == self.down.pardoned || self.down.state() == LinkState::Lost {
                return fatal;
            }
            // The error may date from when the link was down. If the cause persists, the kernel
            // reports it again.
            self.down.pardoned = changes;
            self.layout.forget_errors(&m);
        }
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            return match self.thread.take()?.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error),
                Err(_) => Some(
                    "the generating thread ended in a panic; this is a defect in Squall".into(),
                ),
            };
        }
        None
    }

    /// Ends sending; unsent frames that were due before `until` are late.
    fn settle(&mut self, until: Picos) {
        self.leave();
        let m = Shared(&*self.remote);
        for i in 0..self.streams.len() {
            let held = self.down.held[i];
            if !self.layout.is_active(&m, i) || (self.layout.is_paused(&m, i) && !held) {
                continue;
            }
            let late = if held { 0 } else { self.due_before(i, until, 0) };
            if self.down.moved[i] > 0 || held {
                // Moving the schedule shortened it by that much, and the frames at its end are
                // missing. A run that ends by a count misses none.
                let missing =
                    if until.0 == 0 { 0 } else { self.due_before(i, until, self.down.moved[i]) };
                self.down.frames[i] = missing.saturating_sub(late);
            }
            // A run stopped from outside may leave one frame per stream that was due at that
            // moment.
            if late > u64::from(!self.overdue) {
                self.late[i] += late;
            }
        }
        self.done = true;
    }

    /// Ends the program and its thread.
    fn leave(&mut self) {
        self.hold();
        self.ending.store(true, Ordering::Release);
        self.done = true;
        // Five attempts usually suffice; if not, `close` waits without limit.
        for _ in 0..5 {
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                break;
            }
            self.remote.interrupt();
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// `number`: the stream, or `None` for all.
    pub fn apply(&mut self, number: Option<u32>, action: &Action, at: Picos) {
        if self.done {
            return;
        }
        let which: Vec<usize> = (0..self.streams.len())
            .filter(|&i| number.is_none_or(|number| number == self.streams[i].0))
            .collect();
        match action {
            Action::Stop => {
                self.end = self.end.min(at);
                self.layout.set_end(&Shared(&*self.remote), at);
            }
            Action::Pause if self.down.since.is_some() => {
                which.into_iter().for_each(|i| self.down.held[i] = false);
            }
            Action::Resume if self.down.since.is_some() => {
                let m = Shared(&*self.remote);
                let paused = |i: &usize| self.layout.is_paused(&m, *i);
                which.into_iter().filter(paused).for_each(|i| self.down.held[i] = true);
            }
            Action::Pause => {
                self.change(|layout, m| which.iter().for_each(|&i| layout.pause(m, i, at)));
            }
            Action::Resume => {
                self.change(|layout, m| which.iter().for_each(|&i| layout.resume(m, i, at)));
            }
            Action::Rate(Rate::Gap(gap)) => {
                which.iter().for_each(|&i| self.streams[i].1.gap = *gap);
                let allowance = self.is_smooth().then(|| self.allowance());
                self.change(|layout, m| {
                    which.iter().for_each(|&i| layout.set_rate(m, i, *gap, at));
                    layout.set_allowance(m, allowance);
                });
            }
            Action::Replace(Content::Nothing) => {
                self.change(|layout, m| which.iter().for_each(|&i| layout.remove(m, i)));
            }
            // The supervisor has refused new streams, limits, and streams that wait. If nodes share
            // a clock, it has also refused to generate time-stamped frames here, because the
            // program cannot change its clock.
            _ => {}
        }
    }

    /// Changes several words while the program rests, which takes the time of a few frames.
    fn change(&mut self, f: impl FnOnce(&Layout, &dyn Memory)) {
        self.hold();
        let m = Shared(&*self.remote);
        f(&self.layout, &m);
        self.layout.let_go(&m);
    }

    /// Waits until the program has noticed that it must rest, or is not running.
    fn hold(&mut self) {
        self.tickets += 1;
        let m = Shared(&*self.remote);
        self.layout.hold(&m, self.tickets);
        let deadline = Instant::now() + HOLD_TIMEOUT;
        while !self.layout.is_held(&m, self.tickets)
            && self.thread.as_ref().is_some_and(|t| !t.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Ends the run.
    pub fn close(&mut self, at: Picos) {
        if !self.done {
            self.settle(at.min(self.end));
        }
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            while !thread.is_finished() {
                self.remote.interrupt();
                thread::sleep(Duration::from_millis(1));
            }
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => self.fail(error),
                Err(_) => self.fail(
                    "the generating thread ended in a panic; this is a defect in Squall".into(),
                ),
            }
        }
    }

    /// How busy the thread is while it runs: always, because it waits for due frames inside the
    /// kernel and never sleeps.
    pub fn busy(&self) -> Option<ThreadLoad> {
        let lived = Nanos(self.begun?.elapsed().as_nanos() as u64);
        let runs = self.thread.as_ref().is_some_and(|thread| !thread.is_finished());
        runs.then(|| ThreadLoad { tx: vec![self.port], rx: Vec::new(), busy: lived, lived })
    }

    /// The thread's CPU time, once it has ended.
    pub fn cpu_time(&self) -> Nanos {
        Nanos(self.cpu_time.load(Ordering::Acquire))
    }

    pub fn port(&self) -> PortTx {
        let m = Shared(&*self.remote);
        let mut sum = PortTx {
            port: self.port,
            unhashed: true,
            error: self.error.clone(),
            ..PortTx::default()
        };
        sum.last = self.layout.last_left(&m);
        sum.pacing = self.pacing(&m);
        // The thread never sleeps, so any time without CPU is a stall.
        let missing = self
            .wall_time
            .load(Ordering::Acquire)
            .saturating_sub(self.cpu_time.load(Ordering::Acquire));
        sum.stalls = Stalls { total: Nanos(missing), longest: Nanos(missing).min(self.latest(&m)) };
        for s in self.streams(false) {
            sum.packets += s.packets;
            sum.octets += s.octets;
            for (reason, n) in s.not_sent.iter() {
                sum.errors += if matches!(reason, LATE | LINK_DOWN) { 0 } else { n };
                *sum.not_sent.entry(reason).or_default() += n;
            }
        }
        sum
    }

    /// The largest delay of any frame.
    fn latest(&self, m: &dyn Memory) -> Nanos {
        Nanos(
            (0..self.streams.len()).map(|i| self.layout.accounts(m, i).late_max).max().unwrap_or(0),
        )
    }

    /// How the schedule was kept. The program does not audit windows: its own allowance and the
    /// largest delay of a frame bound the surplus.
    fn pacing(&self, m: &dyn Memory) -> Pacing {
        let (lag, moved) = self.layout.lag(m);
        let pps = self.fastest_pps();
        let beyond =
            if self.is_smooth() { self.allowance().min(self.latest(m)) } else { self.latest(m) };
        let packets = (pps * beyond.as_secs_f64()) as u64;
        let worst =
            Excess { beyond, packets, at: Nanos::ZERO, over: Nanos::ZERO, allowed: allowed(pps) };
        Pacing { window: window(pps), worst, burst: worst, lag, moved }
    }

    pub fn streams(&self, full: bool) -> Vec<StreamTx> {
        let m = Shared(&*self.remote);
        let one = |(i, (number, ..)): (usize, &(u32, PlanStream, (u64, u64)))| {
            let a = self.layout.accounts(&m, i);
            // A frame that left too late for the link may be in either counter; only their sum
            // matters.
            let unlinked = self.down.refused[i];
            let (dropped, rest) =
                (a.dropped.saturating_sub(unlinked), unlinked.saturating_sub(a.dropped));
            let reasons = [
                (LATE, self.late[i]),
                (LINK_DOWN, self.down.frames[i] + unlinked),
                ("driver_full", dropped),
                ("interface_refused", a.refused.saturating_sub(rest)),
            ];
            let mut not_sent = Unsent::default();
            let some = reasons.into_iter().filter(|(_, frames)| *frames > 0);
            some.for_each(|(reason, frames)| not_sent.add(reason, frames));
            StreamTx {
                number: *number,
                packets: a.taken,
                octets: a.octets,
                not_sent,
                stretched: Nanos::ZERO,
                first: a.first,
                last: a.last,
                departure_error: full.then(|| {
                    let bins = self.layout.lateness(&m, i);
                    Box::new(Histogram::from_bins(bins, a.late_min, a.late_max, a.late_sum))
                }),
            }
        };
        self.streams.iter().enumerate().map(one).collect()
    }
}

const LATE: &str = "late";

/// A dropped run must stop sending.
impl Drop for Driver {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        if self.thread.is_some() {
            self.close(Picos(0));
        }
    }
}

/// Checks that a port that generates its frames can send what `plan` requires; `address` is the
/// port's.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`]: names the unsupported feature and the ports that have it.
pub fn can_be_generated(plan: &Plan, port: usize, address: &str) -> io::Result<()> {
    one_kind(plan, port, address)?;
    (0..plan.workers.len()).try_for_each(|index| image(plan, index, port, address).map(drop))
}

/// Refuses further sources on a port that generates its frames, because it has no slots for them.
pub(crate) fn one_kind(plan: &Plan, port: usize, address: &str) -> io::Result<()> {
    if plan.sources_of(port) < 2 {
        return Ok(());
    }
    let text = format!(
        "{address}: the kernel makes the frames of this port, either of streams or of one \
         capture\n  try af_packet or af_xdp, or one source per port"
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// A worker's streams on a port, with their shares.
type Shares = Vec<(u32, PlanStream, (u64, u64))>;

/// The program for a worker's streams on a port; `None` if the worker has no streams there.
fn image(
    plan: &Plan,
    index: usize,
    port: usize,
    address: &str,
) -> io::Result<Option<(Shares, kernel::Image)>> {
    let shares = (0..plan.streams.len())
        .filter(|&s| plan.streams[s].port == port)
        .filter_map(|s| Some((s as u32, plan.streams[s].clone(), plan.share(s, index)?)));
    let streams: Vec<_> = shares.collect();
    if streams.is_empty() {
        return Ok(None);
    }
    let unfit = |e: UnsupportedStream| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("{address}: {e}"))
    };
    streams.iter().try_for_each(|(_, s, _)| fits(s)).map_err(unfit)?;
    let awaited = |(number, ..): &&(u32, PlanStream, (u64, u64))| {
        is_awaited(plan, Part::Stream(*number as usize))
    };
    if let Some((_, stream, _)) = streams.iter().find(awaited) {
        let why = "a stream whose end another source waits for (after)";
        return Err(unfit(UnsupportedStream::new(&stream.name, why)));
    }
    let counted = plan.stop.packets.is_some() || plan.stop.octets.is_some();
    if counted && plan.workers[index].tx.len() > 1 {
        let why =
            "a run over several ports that ends after a number of frames or octets".to_owned();
        return Err(unfit(UnsupportedStream { stream: None, why }));
    }
    let place = |number: usize| streams.iter().position(|s| s.0 as usize == number);
    let compiled: Vec<Stream<'_>> = streams
        .iter()
        .map(|(_, s, share)| Stream {
            self_start: s.self_start,
            next: s.next.and_then(|next| Some((place(next.stream)?, next.times))),
            name: &s.name,
            program: &s.program,
            gap: s.gap,
            law: &s.law,
            pattern: s.pattern,
            sent: s.sent,
            start: s.start,
            share: *share,
        })
        .collect();
    let image = kernel::compile(&compiled).map_err(unfit)?;
    Ok(Some((streams, image)))
}

/// Refuses stream options that the program does not know.
fn fits(s: &PlanStream) -> Result<(), UnsupportedStream> {
    if s.waits {
        return Err(UnsupportedStream::new(
            &s.name,
            "a stream that waits for the end of another source (after)",
        ));
    }
    if s.lasts.is_some() {
        return Err(UnsupportedStream::new(
            &s.name,
            "a stream with a duration: try mode = { burst = ... }",
        ));
    }
    match s.late {
        Late::Smooth | Late::CatchUp => Ok(()),
        _ => Err(UnsupportedStream::new(
            &s.name,
            "a stream whose late frames are dropped or stretch the schedule",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_no_backlog_but_a_lag_that_grows_is() {
        let lags = |of: &dyn Fn(u64) -> u64| {
            let mut backlog = Backlog::default();
            // A check per millisecond of a run of a second.
            let check = |ms: u64| backlog.grows(Picos(ms * 1_000_000_000), Nanos(of(ms)));
            (1..1000).map(check).position(|grows| grows)
        };
        assert_eq!(lags(&|_| 0), None);
        // 8 ms at once, regained at 0.8 %, every 100 ms.
        assert_eq!(lags(&|ms| 8_000_000 - ms % 100 * 8000), None);
        assert_eq!(lags(&|ms| ms * 1000), Some(49));
        // A program that keeps up with full batches does not return to smaller ones.
        let mut backlog = Backlog::default();
        let mut grows = |ms: u64| backlog.grows(Picos(ms * 1_000_000_000), Nanos(ms.min(200)));
        assert!(!grows(40) && (5..=10).any(|n| grows(n * 10)));
        assert!(grows(500) && grows(600));
    }
}
