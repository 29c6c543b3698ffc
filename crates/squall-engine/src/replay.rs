//! Replays: a thread reads frames from captures ahead of time, and the worker sends each on its
//! port when it is due.
//!
//! One worker serves all ports of a replay, in the order of the captures: frame n is passed to its
//! port before frame n + 1, even if the ports differ, so the order holds across ports.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::mpsc::{self, Receiver, SyncSender, TryRecvError},
    thread::{self, JoinHandle},
};

use squall_measure::fingerprint;
use squall_plan::{Part, PlanReplay, SourceId};
use squall_port::{BATCH, SendError, TxOutcome};
use squall_profile::Late;
use squall_program::{
    audit::bin,
    clock::Allowance,
    pace::{Audit, Pacing},
};
use squall_replay::{Chunk, Departure, Progress, Reader, ReplayError};
use squall_stats::Fingerprint;
use squall_units::{Cut, FCS_LEN, Nanos, Picos};

use crate::{
    Clock, Counters, HostedConversation, PortTx, Snapshot,
    clock::Stalls,
    command::{Action, Command, Rate},
    host_frames::HostFrames,
    sink::Shown,
    source::{Budget, Member, Outlet, Outlets, Rest, Source, Turn},
    transmit::{Blocked, LINK_DOWN, OVERTIME},
};

/// Maximum number of chunks read ahead: a few megabytes.
const AHEAD: usize = 24;

/// Channels to and from the reader thread.
pub(crate) struct Feed {
    full: Receiver<Result<Chunk, ReplayError>>,
    empty: mpsc::Sender<Chunk>,
    reader: JoinHandle<Reader>,
    held: bool,
}

impl Feed {
    /// Starts the reader thread.
    pub fn start(mut source: Reader) -> io::Result<Self> {
        let held = source.is_held();
        let (full, filled) = mpsc::sync_channel(AHEAD);
        let (empty, emptied) = mpsc::channel();
        let read = move || {
            read(&mut source, &full, &emptied);
            drop(full);
            // The replay observes frames sent until the end of the run in the chunks that come
            // back.
            emptied.iter().for_each(|chunk| source.observe(&chunk));
            source
        };
        let reader = thread::Builder::new().name("squall-reader".into()).spawn(read)?;
        Ok(Self { full: filled, empty, reader, held })
    }
}

fn read(
    source: &mut Reader,
    full: &SyncSender<Result<Chunk, ReplayError>>,
    emptied: &Receiver<Chunk>,
) {
    let mut made = 0;
    loop {
        let mut chunk = match emptied.try_recv() {
            Ok(chunk) => chunk,
            Err(_) if made < AHEAD => {
                made += 1;
                Chunk::default()
            }
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => match emptied.recv() {
                Ok(chunk) => chunk,
                Err(_) => return,
            },
        };
        source.observe(&chunk);
        let filled = source.fill(&mut chunk);
        let over = !matches!(filled, Ok(true));
        let sent = match filled {
            Ok(true) => full.send(Ok(chunk)),
            Ok(false) => return,
            Err(error) => full.send(Err(error)),
        };
        if sent.is_err() || over {
            return;
        }
    }
}

/// Maps schedule time to run time, linearly: the ratio is the speed of the replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Warp {
    /// A schedule time and the run time that it maps to, in picoseconds.
    from: u64,
    at: u64,
    /// The schedule advances `num / den` times as fast as the run.
    num: u64,
    den: u64,
}

impl Warp {
    /// Run time at which a frame due at schedule time `due` is due.
    #[inline]
    fn real(self, due: u64) -> u64 {
        // A due time that did not fit into 64 bits stays out of range at any speed.
        if due >= Departure::NEVER.0 {
            return u64::MAX;
        }
        if self.num == self.den {
            return self.at.saturating_add(due).saturating_sub(self.from);
        }
        let real = match due.checked_sub(self.from) {
            Some(ahead) => {
                let ahead = u128::from(ahead) * u128::from(self.den) / u128::from(self.num);
                u128::from(self.at) + ahead
            }
            // A change of speed does not increase the lateness of frames that are already late.
            None => self.at.saturating_sub(self.from - due).into(),
        };
        u64::try_from(real).unwrap_or(u64::MAX)
    }

    /// The latest schedule time that is due by run time `real`, if there is one.
    #[inline]
    fn last_due(self, real: u64) -> Option<u64> {
        let last = match real.checked_sub(self.at) {
            None => self.from.checked_sub(self.at - real),
            Some(passed) if self.num == self.den => Some(self.from.saturating_add(passed)),
            Some(passed) => {
                let bound = (u128::from(passed) + 1) * u128::from(self.num);
                let ahead = bound.div_ceil(u128::from(self.den)) - 1;
                Some(self.from.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX)))
            }
        };
        last.map(|last| last.min(Departure::NEVER.0 - 1))
    }

    /// Schedule time at run time `now`.
    fn schedule(self, now: u64) -> u64 {
        let passed = u128::from(now.saturating_sub(self.at));
        let passed = passed * u128::from(self.num) / u128::from(self.den);
        self.from.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Changes the speed from `now` on.
    fn change(&mut self, now: u64, (num, den): (u64, u64)) {
        if now >= self.at {
            (self.from, self.at) = (self.schedule(now), now);
        }
        (self.num, self.den) = (num, den);
    }
}

/// How schedule time mapped to run time, with pauses and speed changes.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// The mappings, each with the schedule time from which it applies.
    moves: Vec<(u64, Warp)>,
    /// Nothing left from this schedule time on: the replay was paused until the end, or never
    /// began.
    held: Option<u64>,
}

impl Course {
    fn turn(&mut self, from: u64, warp: Warp) {
        self.moves.push((from, warp));
    }

    /// Run time at which a frame due at schedule time `due` was due; `None`: never.
    pub fn instant(&self, due: Picos) -> Option<Picos> {
        let passed = self.moves.iter().rev().find(|(from, _)| *from <= due.0);
        let (_, warp) = passed.filter(|_| self.held.is_none_or(|held| due.0 < held))?;
        Some(Picos(warp.real(due.0)))
    }
}

/// A port's send queue.
struct Out {
    member: Member,
    limit: usize,
    ahead: Picos,
    /// Number of frames in flight (the port has not reported their outcomes), and a lower bound of
    /// their positions.
    under_way: usize,
    oldest: Place,
    /// Whether the port was full at the last attempt, even if nothing is due yet.
    full: bool,
    blocked: Blocked,
    audit: Audit,
    counters: PortTx,
}

/// The position of a frame: chunk number, and index in the chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    chunk: u64,
    at: usize,
}

pub(crate) struct Replayer {
    /// The number in the plan.
    number: u32,
    outs: Vec<Out>,
    clock: Clock,
    feed: Option<Feed>,
    /// Unfinished chunks, and the number of the first.
    chunks: VecDeque<Chunk>,
    first: u64,
    /// Frames before `next` went to their ports. Some after it may have gone too, if frames were
    /// taken back. Frames from there to `filled`, in the same chunk, are in slots of port `out`.
    next: Place,
    filled: usize,
    out: usize,
    /// Number of frames that may still leave.
    allowed: u64,
    /// When it begins, and the time from which none of its frames are due.
    begin: Picos,
    until: Picos,
    /// Maps its schedule to the run: start, pauses, speed.
    warp: Warp,
    course: Course,
    late: Late,
    /// The hosts that send and receive its frames.
    hosts: Option<HostFrames>,
    /// By how much the schedule moved because frames were late.
    stretched: Picos,
    paused: Option<Picos>,
    /// Whether it waits for another part to end; and whether another part waits for its end, which
    /// it has not reported yet.
    waits: bool,
    awaited: bool,
    /// End of the schedule, as far as it was read.
    schedule_end: Picos,
    /// No frame leaves before this time: the delay between two loops of a replay without a
    /// schedule.
    rest: Option<Picos>,
    /// Total of the delays between loops, in virtual time.
    lapsed: Picos,
    /// Whether the chunks in memory are the last.
    ended: bool,
    /// Whether sending is over; frames that a port already has may still leave.
    over: bool,
    overdue: bool,
    error: Option<ReplayError>,
    /// Set while a port that takes frames ahead is full, or the next frame is too early even for
    /// it: the time to try again.
    retry_at: Option<Picos>,
    /// Start of the current time in which frames are due that the reader has not delivered, and the
    /// total of such times.
    starving_since: Option<Nanos>,
    starved: Nanos,
    /// The part of `starved` at the end of the run.
    dry: Nanos,
    source: Option<Reader>,
    pub done: bool,
}

/// Sleep while a port that takes frames ahead is full: a fraction of the 100 ms of frames that it
/// holds, so that it cannot run empty.
const FULL_REST: Picos = Picos(100_000_000);
/// Sleep while the next frame is too early for such a port: longer, because fewer wake-ups cost
/// less.
const EARLY_REST: Picos = Picos(1_000_000_000);

/// The results of a replay.
pub struct Replayed {
    /// The number in the plan.
    pub number: u32,
    /// The reader, with its counters.
    pub source: Reader,
    /// The error that ended the replay early.
    pub error: Option<ReplayError>,
    /// Time in which frames were due that the reader had not delivered.
    pub starved: Nanos,
    /// The part of `starved` at the end, after the last frame: it is unknown which frames were due
    /// then.
    pub dry: Nanos,
    /// Maps the times of its schedule to run time.
    pub course: Course,
    /// By how much the schedule moved because frames were late ([`Late::Stretch`]).
    pub stretched: Nanos,
    /// The hosts of each conversation that was due; `None`: its frames are not those of hosts.
    pub hosts: Option<HashMap<u64, HostedConversation>>,
}

impl std::fmt::Debug for Replayed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replayed")
            .field("error", &self.error)
            .field("starved", &self.starved)
            .finish_non_exhaustive()
    }
}

impl Replayer {
    /// Makes replay `number` of the plan.
    ///
    /// # Panics
    /// If a port has no outlet.
    pub fn new(
        (number, plan): (u32, &PlanReplay),
        outlets: &mut Outlets,
        clock: Clock,
        feed: Feed,
        fingerprint: bool,
    ) -> Self {
        let out = |&port: &usize| {
            let member = outlets.join(port).expect("a port of the replay has an outlet");
            let outlet = outlets.of(member);
            Out {
                member,
                limit: outlet.limit.clamp(1, BATCH),
                ahead: outlet.ahead.into(),
                under_way: 0,
                oldest: Place::default(),
                full: false,
                blocked: Blocked::default(),
                audit: Audit::new(0.0),
                counters: PortTx {
                    port,
                    source: SourceId::replay(number),
                    fingerprint: fingerprint.then(Fingerprint::default),
                    ..PortTx::default()
                },
            }
        };
        let feed_held = feed.held;
        let (num, den) = plan.speed;
        let warp = Warp { from: 0, at: plan.start.0, num, den };
        Self {
            number,
            outs: plan.ports.iter().map(out).collect(),
            clock,
            feed: Some(feed),
            chunks: VecDeque::from([Chunk::default()]),
            first: 0,
            next: Place::default(),
            filled: 0,
            out: 0,
            allowed: if feed_held { 0 } else { u64::MAX },
            begin: plan.start,
            until: plan.end.unwrap_or(Picos(u64::MAX)),
            warp,
            course: Course { moves: vec![(0, warp)], held: None },
            late: plan.late,
            hosts: None,
            stretched: Picos(0),
            paused: None,
            waits: plan.waits,
            awaited: false,
            schedule_end: plan.start,
            rest: None,
            lapsed: plan.start,
            ended: false,
            over: false,
            overdue: false,
            error: None,
            retry_at: None,
            starving_since: None,
            starved: Nanos::ZERO,
            dry: Nanos::ZERO,
            source: None,
            done: false,
        }
    }

    pub fn ports(&self) -> impl Iterator<Item = &PortTx> {
        self.outs.iter().map(|out| &out.counters)
    }

    /// Counters of each port, including how it kept the schedule.
    pub fn counters(&self) -> impl Iterator<Item = PortTx> + '_ {
        let of = |out: &Out| {
            let pacing = Pacing::new(&out.audit);
            PortTx { pacing, ..out.counters.clone() }
        };
        self.outs.iter().map(of)
    }

    /// Sets whether other parts wait for its end.
    pub fn awaited(mut self, awaited: bool) -> Self {
        self.awaited = awaited;
        self
    }

    /// Sets the hosts that send and receive its frames.
    pub fn of_hosts(mut self, hosts: Option<HostFrames>) -> Self {
        self.hosts = hosts;
        self
    }

    /// Starts the replay; its predecessors ended at `at`.
    pub fn begin(&mut self, at: Picos) {
        if !std::mem::take(&mut self.waits) {
            return;
        }
        let shifted = |start: Picos| Picos(start.0.saturating_add(at.0));
        (self.begin, self.until) = (shifted(self.begin), shifted(self.until));
        self.warp.at = self.warp.at.saturating_add(at.0);
        self.course.turn(0, self.warp);
        (self.lapsed, self.schedule_end) = (self.begin, self.begin);
        if let Some(since) = &mut self.paused {
            *since = (*since).max(at);
        }
    }

    /// Stops departures until [`Replayer::resume`].
    pub fn pause(&mut self, now: Picos, turn: &mut Turn<'_>) {
        self.take_back(turn.budget, turn.outlets);
        self.paused.get_or_insert(now);
    }

    pub fn resume(&mut self, now: Picos, outlets: &mut Outlets) {
        // Collect the outcomes before the change: frames that have left were due by the old
        // mapping.
        self.ask(outlets);
        if let Some(since) = self.paused.take() {
            let paused = now.0.saturating_sub(since.0);
            let stood = self.next_of_schedule(self.warp.schedule(since.0));
            self.warp.at = self.warp.at.saturating_add(paused);
            self.course.turn(stood, self.warp);
            if since < self.begin {
                self.begin.0 = self.begin.0.saturating_add(paused);
            }
        }
    }

    /// Schedule time from which nothing has left, at schedule time `now`. Late frames follow the
    /// next mapping.
    fn next_of_schedule(&self, now: u64) -> u64 {
        let next = self.chunk().departures.get(self.next.at);
        let due = next.map(|frame| frame.due).filter(|&due| due != Departure::AT_ONCE);
        due.map_or(now, |due| now.min(due.0))
    }

    /// Shortens the run's end to the replay's, if that is earlier. Returns the run's end, which the
    /// caller must restore.
    fn narrow(&self, turn: &mut Turn<'_>) -> Picos {
        let end = turn.budget.end;
        turn.budget.end = end.min(self.until);
        end
    }

    /// Changes the speed of the schedule from `now` on.
    pub fn set_speed(&mut self, now: Picos, speed: (u64, u64), turn: &mut Turn<'_>) {
        // Collect the outcomes before the change: frames that have left were due by the old
        // mapping.
        self.ask(turn.outlets);
        if self.paused.is_none() {
            // Frames that a port took ahead carry departure times of the old mapping.
            self.take_back(turn.budget, turn.outlets);
        }
        self.warp.change(self.paused.unwrap_or(now).0, speed);
        self.course.turn(self.next_of_schedule(self.warp.from), self.warp);
    }

    /// Lets `frames` more frames leave.
    pub fn step(&mut self, frames: u64) {
        self.allowed = self.allowed.saturating_add(frames);
    }

    /// When to act next; `None`: only on a command.
    fn next_departure(&self, outlets: &Outlets, end: Picos) -> Option<Picos> {
        if self.hand() > 0 {
            return (!self.outs[self.out].is_down(outlets)).then_some(Picos(0));
        }
        if self.over || self.paused.is_some() || self.waits || self.allowed == 0 {
            return None;
        }
        if self.retry_at.is_some() {
            return self.retry_at;
        }
        match self.chunk().departures.get(self.next.at) {
            Some(frame)
                if frame.due == Departure::AT_ONCE
                    && self.outs[usize::from(frame.port)].is_down(outlets) =>
            {
                None
            }
            Some(frame) if frame.due == Departure::AT_ONCE => {
                let begin = if self.clock == Clock::Virtual { self.lapsed } else { self.begin };
                Some(self.rest.unwrap_or(begin)).filter(|&due| due < end)
            }
            Some(frame) => Some(self.due(frame))
                .filter(|&due| due < end)
                .map(|due| Picos(self.real(due.0, outlets))),
            None if self.ended => None,
            None => Some(Picos(0)),
        }
    }

    #[inline]
    fn due(&self, frame: &Departure) -> Picos {
        self.shifted(frame.due)
    }

    /// The chunk with the next frame.
    #[inline]
    fn chunk(&self) -> &Chunk {
        &self.chunks[(self.next.chunk - self.first) as usize]
    }

    #[inline]
    fn chunk_mut(&mut self) -> &mut Chunk {
        &mut self.chunks[(self.next.chunk - self.first) as usize]
    }

    /// Number of filled slots that were not sent.
    fn hand(&self) -> usize {
        self.filled.saturating_sub(self.next.at)
    }

    /// One round: sends frames in slots, or due frames. Returns whether frames moved.
    fn round(&mut self, turn: &mut Turn<'_>) -> bool {
        let now = turn.now;
        let real = self.clock != Clock::Virtual;
        // Virtual time advances only by the delays between loops.
        let at = if real { self.clock.since_start(now) } else { self.lapsed };
        let moved = self.ask(turn.outlets);
        self.retry_at = None;
        if self.done {
            return moved;
        }
        // Frames that are still unsent count as late, because the port does not keep up.
        if real && at.0 >= turn.budget.end.0.saturating_add(OVERTIME) {
            (self.done, self.overdue) = (true, true);
            return false;
        }
        if self.hand() > 0 && self.outs[self.out].is_down(turn.outlets) {
            return self.wait_for_link(at, turn) || moved;
        }
        if self.hand() > 0 {
            let moved = self.send(turn) || moved;
            if self.hand() > 0 || self.done {
                return moved;
            }
        }
        self.over |= turn.budget.is_spent();
        if self.over {
            return self.end() || moved;
        }
        if self.waits && at >= turn.budget.end {
            // The run ended before the replay's predecessors did.
            self.over = true;
            return self.end() || moved;
        }
        let waits = self.paused.is_some()
            || self.waits
            || (self.allowed == 0 && self.next.at < self.chunk().departures.len());
        if waits || !self.have_frames(now) {
            return moved;
        }
        let port = usize::from(self.chunk().departures[self.next.at].port);
        let ahead = self.outs[port].ahead;
        if self.outs[port].is_down(turn.outlets)
            && real
            && !matches!(self.clock, Clock::Real(start) if now < start)
        {
            return self.wait_for_link(at, turn) || moved;
        }
        if matches!(self.clock, Clock::Real(start) if now < start) && ahead.0 == 0 {
            return moved;
        }
        let at_once = self.chunk().departures[self.next.at].due == Departure::AT_ONCE;
        if real && at_once && at < self.begin {
            return moved;
        }
        // All frames before the next must leave before it, whatever their port.
        if self.outs.iter().enumerate().any(|(i, out)| i != port && out.under_way > 0) {
            return moved;
        }
        if self.rests(at) {
            let over = self.rest.is_some_and(|until| until >= turn.budget.end);
            if over && (!real || at >= turn.budget.end) {
                self.over = true;
                return self.end() || moved;
            }
            return moved;
        }
        let at = if real { at } else { self.lapsed };
        let end = turn.budget.end;
        let until = if real { end } else { end.min(turn.until) }.0.saturating_sub(1);
        let horizon = if !real {
            u64::MAX
        } else if ahead.0 > 0 {
            at.0.saturating_add(ahead.0)
        } else {
            if matches!(self.late, Late::Drop | Late::Stretch) && self.treat_late(at, turn.outlets)
            {
                return true;
            }
            self.horizon(at, turn.outlets)
        };
        if self.leave_out_without_host(horizon.min(until)) {
            return true;
        }
        if !self.fill(horizon.min(until), at, turn) {
            let due = self.chunk().departures[self.next.at].due;
            let over = if due == Departure::AT_ONCE {
                at >= turn.budget.end
            } else {
                self.shifted(due) >= turn.budget.end
            };
            if over && (!real || at >= turn.budget.end) {
                (self.over, self.schedule_end) = (true, self.until);
                return self.end() || moved;
            }
            if ahead.0 > 0 && !over {
                let early = Picos(self.shifted(due).0.saturating_sub(ahead.0))
                    .max(Picos(at.0 + EARLY_REST.0));
                self.retry_at =
                    Some(if self.outs[port].full { Picos(at.0 + FULL_REST.0) } else { early });
                return false;
            }
            return moved;
        }
        self.send(turn);
        true
    }

    /// Schedule time at `at`. With several ports it follows the port with the largest lag, because
    /// the order across ports is part of the schedule.
    fn horizon(&self, at: Picos, outlets: &Outlets) -> u64 {
        if self.late == Late::CatchUp {
            return at.0;
        }
        let next = self.chunk().departures[self.next.at];
        let horizon = |(i, out): (usize, &Out)| {
            let outlet = outlets.of(out.member);
            match next.due {
                due if due != Departure::AT_ONCE
                    && usize::from(next.port) == i
                    && self.late == Late::Smooth =>
                {
                    outlet.horizon(at.0, self.shifted(due).0)
                }
                _ => outlet.traffic(at.0),
            }
        };
        self.outs.iter().enumerate().map(horizon).min().unwrap_or(at.0)
    }

    /// Handles a next frame that is later than the allowed burst: skips late frames or moves the
    /// rest of the schedule, depending on the policy. Returns whether any frame was skipped.
    #[cold]
    fn treat_late(&mut self, at: Picos, outlets: &Outlets) -> bool {
        let next = self.chunk().departures[self.next.at];
        let outlet = outlets.of(self.outs[usize::from(next.port)].member);
        let (traffic, allowed) = (outlet.traffic(at.0), Allowance::of(None).0);
        if next.due == Departure::AT_ONCE {
            return false;
        }
        let late = traffic.saturating_sub(self.shifted(next.due).0);
        if late <= allowed {
            return false;
        }
        if self.late == Late::Stretch {
            self.warp.at = self.warp.at.saturating_add(late);
            self.stretched.0 += late;
            self.course.turn(next.due.0, self.warp);
            return false;
        }
        let (warp, bound, from) = (self.warp, traffic - allowed, self.next.at);
        let is_late = |frame: &&mut Departure| {
            frame.progress == Progress::Waiting
                && frame.due != Departure::AT_ONCE
                && warp.real(frame.due.0) < bound
        };
        let mut skipped = Vec::new();
        for frame in self.chunk_mut().departures[from..].iter_mut().take_while(is_late) {
            frame.progress = Progress::Failed;
            skipped.push(frame.port);
        }
        self.next.at += skipped.len();
        for port in &skipped {
            *self.outs[usize::from(*port)].counters.not_sent.entry("late").or_default() += 1;
        }
        !skipped.is_empty()
    }

    /// Leaves out the next frames that are due by `horizon` and whose hosts have no address.
    /// Returns whether there were any.
    fn leave_out_without_host(&mut self, horizon: u64) -> bool {
        let Some(hosts) = &mut self.hosts else { return false };
        let last = self.warp.last_due(horizon);
        let chunk = &mut self.chunks[(self.next.chunk - self.first) as usize];
        let before = self.next.at;
        while let Some(frame) = chunk.departures.get(self.next.at) {
            let is_due =
                frame.due == Departure::AT_ONCE || last.is_some_and(|last| frame.due.0 <= last);
            if frame.progress != Progress::Waiting || !is_due {
                break;
            }
            let Some(reason) = hosts.missing(chunk.frame(self.next.at)) else { break };
            let counters = &mut self.outs[usize::from(frame.port)].counters;
            *counters.not_sent.entry(reason).or_default() += 1;
            chunk.departures[self.next.at].progress = Progress::Failed;
            self.next.at += 1;
        }
        self.next.at > before
    }

    /// The real time at which a frame due at `due` may leave.
    fn real(&self, due: u64, outlets: &Outlets) -> u64 {
        if self.late == Late::CatchUp {
            return due;
        }
        let real = |out: &Out| outlets.of(out.member).real(due);
        self.outs.iter().map(real).max().unwrap_or(due)
    }

    /// Whether the next frame waits for the delay between loops. Without a schedule (as fast as the
    /// port can), the delay counts from the departure of the frames before.
    fn rests(&mut self, at: Picos) -> bool {
        let (chunk, next) = (self.chunk(), self.next.at);
        if !chunk.departures[next].rests {
            return false;
        }
        if self.outs.iter().any(|out| out.under_way > 0) {
            return true;
        }
        let until = Picos(at.0.saturating_add(chunk.rest.0));
        let until = *self.rest.get_or_insert(until);
        match self.clock {
            Clock::Real(_) if at < until => return true,
            Clock::Real(_) => {}
            Clock::Virtual => self.lapsed = until,
        }
        self.rest = None;
        self.chunk_mut().departures[next].rests = false;
        false
    }

    /// Called if the port of the next frame has no link. Skips frames due before `at`, because they
    /// would leave in a burst once the link is back; frames without a due time wait. Returns whether
    /// frames were skipped.
    #[cold]
    fn wait_for_link(&mut self, at: Picos, turn: &mut Turn<'_>) -> bool {
        let at_hand = self.next.at..self.filled.max(self.next.at);
        let port = usize::from(self.chunk().departures[self.next.at].port);
        if let Some(error) = turn.outlets.of(self.outs[port].member).lost() {
            self.lose(port, &error, turn.outlets);
            return false;
        }
        let traffic = turn.outlets.of(self.outs[port].member).traffic(at.0);
        let until = traffic.min(turn.budget.end.0.saturating_sub(1));
        let warp = self.warp;
        let is_due = |frame: &&mut Departure| {
            usize::from(frame.port) == port
                && frame.progress == Progress::Waiting
                && frame.due != Departure::AT_ONCE
                && warp.real(frame.due.0) <= until
        };
        let from = self.next.at;
        let due = self.chunk_mut().departures[from..].iter_mut().take_while(is_due);
        let given_up = due.map(|frame| frame.progress = Progress::Failed).count();
        if given_up > 0 {
            *self.outs[port].counters.not_sent.entry(LINK_DOWN).or_default() += given_up as u64;
            // Frames in slots do not count toward the end of a run that ends by a count. Some of
            // them may be scheduled again.
            let octets: u64 = self.chunk().departures[at_hand.clone()]
                .iter()
                .map(|frame| u64::from(frame.len + FCS_LEN))
                .sum();
            turn.budget.packets = turn.budget.packets.saturating_add(at_hand.len() as u64);
            turn.budget.octets = turn.budget.octets.saturating_add(octets);
            self.allowed = self.allowed.saturating_add(at_hand.len() as u64);
            self.next.at += given_up;
            self.filled = self.next.at;
            turn.outlets.release(self.outs[port].member);
            return true;
        }
        // Nothing is due, but time may be up.
        self.over |= at >= turn.budget.end;
        self.over && self.end()
    }

    fn shifted(&self, due: Picos) -> Picos {
        Picos(self.warp.real(due.0))
    }

    /// Ends sending. Returns whether the ports have just reported all outcomes.
    fn end(&mut self) -> bool {
        self.done = self.outs.iter().all(|out| out.under_way == 0);
        self.done
    }

    /// Advances to the next chunk if this one is done and the next was read: overdue frames must be
    /// known before the turn.
    fn look_ahead(&mut self) {
        let waits = |frame: &Departure| frame.progress == Progress::Waiting;
        while !self.chunk().departures[self.next.at..].iter().any(waits) {
            if self.next.chunk + 1 < self.first + self.chunks.len() as u64 {
                self.go_on();
                continue;
            }
            let Some(feed) = self.feed.as_ref().filter(|_| !self.ended) else { return };
            match feed.full.try_recv() {
                Ok(Ok(chunk)) => self.chunks.push_back(chunk),
                Ok(Err(error)) => (self.error, self.ended) = (Some(error), true),
                Err(_) => return,
            }
        }
    }

    /// Whether the next frame was read.
    fn have_frames(&mut self, now: Nanos) -> bool {
        loop {
            let frames = &self.chunk().departures[self.next.at..];
            // Frames after one that was taken back may already have left, on another port.
            match frames.iter().position(|frame| frame.progress == Progress::Waiting) {
                Some(skipped) => {
                    self.next.at += skipped;
                    if let Some(since) = self.starving_since.take() {
                        self.starved = self.starved + now.saturating_sub(since);
                    }
                    return true;
                }
                None if self.next.chunk + 1 < self.first + self.chunks.len() as u64 => self.go_on(),
                None => break,
            }
        }
        let Some(feed) = self.feed.as_ref().filter(|_| !self.ended) else {
            self.over = true;
            self.end();
            return false;
        };
        match feed.full.try_recv() {
            Ok(Ok(chunk)) => {
                self.chunks.push_back(chunk);
                self.go_on();
                if let Some(since) = self.starving_since.take() {
                    self.starved = self.starved + now.saturating_sub(since);
                }
                true
            }
            Ok(Err(error)) => {
                (self.error, self.ended, self.over) = (Some(error), true, true);
                self.end();
                false
            }
            Err(TryRecvError::Disconnected) => {
                (self.ended, self.over) = (true, true);
                self.end();
                false
            }
            Err(TryRecvError::Empty) => {
                self.starving_since.get_or_insert(now);
                // Lets the reader run if both share a CPU.
                thread::yield_now();
                false
            }
        }
    }

    /// Advances to the next chunk, and returns chunks whose outcomes are all known to the reader.
    fn go_on(&mut self) {
        self.next = Place { chunk: self.next.chunk + 1, at: 0 };
        self.filled = 0;
        self.give_back();
    }

    fn give_back(&mut self) {
        let open =
            self.outs.iter().filter(|out| out.under_way > 0).map(|out| out.oldest.chunk).min();
        let until = open.map_or(self.next.chunk, |oldest| oldest.min(self.next.chunk));
        while self.first < until
            && let Some(chunk) = self.chunks.pop_front()
        {
            self.first += 1;
            self.hosts.iter_mut().for_each(|hosts| hosts.count(&chunk));
            // The send fails if the reader has read everything and ended.
            let _ = self.feed.as_ref().map(|feed| feed.empty.send(chunk));
        }
    }

    /// Puts the next frames of one port into slots. Returns whether there were any.
    fn fill(&mut self, horizon: u64, at: Picos, turn: &mut Turn<'_>) -> bool {
        let now = turn.now;
        let until = turn.until;
        let Turn { outlets, budget, .. } = turn;
        let chunk = &self.chunks[(self.next.chunk - self.first) as usize];
        let frames = &chunk.departures[self.next.at..];
        let port = frames[0].port;
        let warp = self.warp;
        // Computed once for all frames, instead of mapping the due time of each.
        let last = warp.last_due(horizon);
        let at_once_too = at < budget.end.min(until);
        let may_leave = |frame: &Departure| match frame.due {
            Departure::AT_ONCE => at_once_too,
            due => last.is_some_and(|last| due.0 <= last),
        };
        let waits = |frame: &&Departure| frame.progress == Progress::Waiting && !frame.rests;
        let eligible = |frame: &&Departure| frame.port == port && waits(frame) && may_leave(frame);
        let out = &mut self.outs[usize::from(port)];
        let most = usize::try_from(budget.packets.min(self.allowed))
            .unwrap_or(BATCH)
            .min(out.limit)
            .min(frames.len());
        let mut count = frames[..most].iter().take_while(eligible).count();
        out.full = false;
        if count == 0 {
            return false;
        }
        let mut batch = outlets.lend(out.member, count);
        count = count.min(batch.len());
        let blocked = count == 0;
        let mut filled = 0;
        // Ports that take frames ahead get frames before the start, too.
        let at_once = match self.clock {
            Clock::Real(start) => start.max(now),
            Clock::Virtual => self.clock.instant(at),
        };
        let (clock, first, counted) = (self.clock, self.next.at, budget.octets != u64::MAX);
        for frame in &frames[..count] {
            if counted && budget.octets == 0 {
                break;
            }
            let octets = chunk.frame(first + filled);
            let due = match frame.due {
                Departure::AT_ONCE => at_once,
                due => clock.instant(Picos(warp.real(due.0))),
            };
            let slot = batch.frame(filled, octets.len(), due);
            slot.copy_from_slice(octets);
            // The hosts of a frame are those of the moment in which it leaves.
            if let Some(hosts) = &mut self.hosts
                && !hosts.address(slot)
            {
                break;
            }
            // A reused slot has the metadata of its previous frame.
            (batch.meta[filled].owner, batch.meta[filled].mark) = (0, 0);
            if counted {
                budget.octets = budget.octets.saturating_sub(u64::from(frame.len + FCS_LEN));
            }
            filled += 1;
        }
        if budget.packets != u64::MAX {
            budget.packets -= filled as u64;
        }
        if self.allowed != u64::MAX {
            self.allowed -= filled as u64;
        }
        if let Some(last) = frames[..filled].last() {
            let due =
                if last.due == Departure::AT_ONCE { at } else { Picos(warp.real(last.due.0)) };
            self.schedule_end = self.schedule_end.max(due);
        }
        let is_due = frames[0].due == Departure::AT_ONCE || warp.real(frames[0].due.0) <= at.0;
        out.blocked.note(now, blocked && is_due, &mut out.counters);
        out.full = blocked;
        (self.filled, self.out) = (self.next.at + filled, usize::from(port));
        filled > 0
    }

    fn send(&mut self, turn: &mut Turn<'_>) -> bool {
        let before = turn.watch.now();
        let wanted = self.hand();
        let out = &mut self.outs[self.out];
        match turn.outlets.send(out.member, wanted) {
            Ok(sent) => {
                let after = turn.watch.now();
                out.counters.sending = out.counters.sending + after.saturating_sub(before);
                out.blocked.note(before, sent < wanted, &mut out.counters);
                out.counters.retried += (wanted - sent) as u64;
                let frames = self.next.at..self.next.at + sent;
                let chunk = &mut self.chunks[(self.next.chunk - self.first) as usize];
                // A port that takes frames ahead reports later whether each has left
                // (docs/adr/0027).
                let later = out.ahead.0 > 0;
                let progress = if later { Progress::UnderWay } else { Progress::Left };
                chunk.departures[frames.clone()]
                    .iter_mut()
                    .for_each(|frame| frame.progress = progress);
                if !later {
                    let outlet = turn.outlets.of_mut(out.member);
                    let times = (before, after);
                    let clocks = (self.clock, self.warp);
                    let due = out.credit(chunk, frames, times, clocks, outlet, &mut self.hosts);
                    if let Some(due) = due.filter(|_| self.late == Late::Smooth) {
                        let at = self.clock.since_start(after).0;
                        outlet.left(at, outlet.lag(at), due.0);
                    }
                } else {
                    if out.under_way == 0 {
                        out.oldest = self.next;
                    }
                    out.under_way += sent;
                }
                self.next.at += sent;
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                out.counters.errors += 1;
                *out.counters.not_sent.entry(reason).or_default() += 1;
                let at = self.next.at;
                self.chunk_mut().departures[at].progress = Progress::Failed;
                self.next.at += 1;
                true
            }
            Err(SendError::Port(error)) => {
                self.lose(self.out, &error, turn.outlets);
                false
            }
        }
    }

    /// Collects the outcomes of frames in flight. Returns whether any left.
    fn ask(&mut self, outlets: &mut Outlets) -> bool {
        let mut moved = false;
        for i in 0..self.outs.len() {
            while self.outs[i].takes_ahead() {
                let (chunks, hosts) = ((&mut self.chunks, self.first), &mut self.hosts);
                let (out, clock, warp) = (&mut self.outs[i], self.clock, self.warp);
                match out.collect_fates(i, outlets, chunks, clock, warp, hosts) {
                    Ok(0) => break,
                    Ok(_) => moved = true,
                    Err(error) => {
                        self.lose(i, &error, outlets);
                        break;
                    }
                }
            }
        }
        moved
    }

    /// Marks port `i` as unusable.
    fn lose(&mut self, i: usize, error: &io::Error, outlets: &mut Outlets) {
        // Frames that were not due yet are not lost.
        self.stop(outlets);
        self.outs[i].counters.error.get_or_insert(error.to_string());
        self.drop_hand("port_lost", outlets);
        let out = &mut self.outs[i];
        let all = self.chunks.iter_mut().flat_map(|chunk| &mut chunk.departures);
        let had = all
            .filter(|frame| usize::from(frame.port) == i && frame.progress == Progress::UnderWay);
        let lost = had.map(|frame| frame.progress = Progress::Failed).count();
        if lost > 0 {
            *out.counters.not_sent.entry("port_lost").or_default() += lost as u64;
        }
        out.under_way = 0;
        self.done = true;
    }

    /// Takes back frames that the port will not send soon; they wait again.
    fn take_back(&mut self, budget: &mut Budget, outlets: &mut Outlets) {
        for i in 0..self.outs.len() {
            if !self.outs[i].takes_ahead() {
                continue;
            }
            let mut refund = |frame: &Departure| {
                // Saturating: an unlimited budget must stay at the maximum.
                budget.packets = budget.packets.saturating_add(1);
                budget.octets = budget.octets.saturating_add(u64::from(frame.len + FCS_LEN));
                self.allowed = self.allowed.saturating_add(1);
            };
            if self.out == i {
                let chunk = &self.chunks[(self.next.chunk - self.first) as usize];
                chunk.departures[self.next.at..self.filled.max(self.next.at)]
                    .iter()
                    .for_each(&mut refund);
                self.filled = self.next.at;
                outlets.release(self.outs[i].member);
            }
            let mut left = outlets.of_mut(self.outs[i].member).take_back();
            self.over &= left == 0;
            self.outs[i].under_way -= left;
            for (chunk, frames) in self.chunks.iter_mut().enumerate().rev() {
                for (at, frame) in frames.departures.iter_mut().enumerate().rev() {
                    if left == 0 {
                        break;
                    }
                    if usize::from(frame.port) == i && frame.progress == Progress::UnderWay {
                        frame.progress = Progress::Waiting;
                        refund(frame);
                        self.next = self.next.min(Place { chunk: self.first + chunk as u64, at });
                        self.filled = 0;
                        left -= 1;
                    }
                }
            }
        }
    }

    /// Drops the frames in slots.
    fn drop_hand(&mut self, reason: &'static str, outlets: &mut Outlets) {
        outlets.release(self.outs[self.out].member);
        let waiting = self.next.at..self.filled.max(self.next.at);
        if !waiting.is_empty() {
            let counters = &mut self.outs[self.out].counters;
            *counters.not_sent.entry(reason).or_default() += waiting.len() as u64;
            let frames = &mut self.chunk_mut().departures[waiting.clone()];
            frames.iter_mut().for_each(|frame| frame.progress = Progress::Failed);
        }
        self.next.at = waiting.end;
    }

    /// Ends sending and takes back frames that ports will not send soon.
    fn stop(&mut self, outlets: &mut Outlets) {
        let mut unlimited = Budget { packets: u64::MAX, octets: u64::MAX, end: Picos(0) };
        self.take_back(&mut unlimited, outlets);
    }

    /// Ends sending: retries the frames in slots, and counts frames that were due and not sent,
    /// among those that were read.
    fn settle_all(&mut self, turn: &mut Turn<'_>) {
        let (now, end) = (turn.now, turn.budget.end);
        let lost = |outs: &[Out]| outs.iter().any(|out| out.counters.error.is_some());
        if !lost(&self.outs) {
            self.stop(turn.outlets);
        }
        while self.hand() > 0 && !lost(&self.outs) && self.send(turn) {}
        let down = self.outs[self.out].is_down(turn.outlets);
        self.drop_hand(if down { LINK_DOWN } else { "port_full" }, turn.outlets);
        let until = match self.clock {
            Clock::Virtual => Picos(0),
            // Held or paused frames wait for a command, and so are not late.
            Clock::Real(_) if self.allowed == 0 => Picos(0),
            Clock::Real(_) => self.clock.since_start(now).min(end).min(self.paused.unwrap_or(end)),
        };
        if let Some(since) = self.starving_since.take().filter(|_| self.paused.is_none()) {
            self.dry = Picos(until.0.saturating_sub(self.clock.since_start(since).0)).as_nanos();
            self.starved = self.starved + self.dry;
        }
        let chunks = self.chunks.iter().skip((self.next.chunk - self.first) as usize);
        let rest = chunks
            .flat_map(|chunk| &chunk.departures)
            .filter(|frame| frame.progress == Progress::Waiting);
        let late = |frame: &&Departure| frame.due != Departure::AT_ONCE && self.due(frame) < until;
        let late: Vec<u8> = rest.take_while(late).map(|frame| frame.port).collect();
        // A run stopped from outside may leave one frame that was due at that moment.
        if late.len() > usize::from(!self.overdue) {
            for port in late {
                *self.outs[usize::from(port)].counters.not_sent.entry("late").or_default() += 1;
            }
        }
        self.hosts.iter_mut().for_each(HostFrames::release);
        self.done = true;
    }

    /// Ends the run: waits until sent frames are out, and joins the reader.
    fn close_all(&mut self, outlets: &mut Outlets) {
        for i in 0..self.outs.len() {
            if let Err(error) = outlets.of_mut(self.outs[i].member).finish() {
                self.ask(outlets);
                self.lose(i, &error, outlets);
            }
        }
        self.ask(outlets);
        if let Some(Feed { full, empty, reader, .. }) = self.feed.take() {
            // The reader counts sent frames when their chunks come back.
            for chunk in std::mem::take(&mut self.chunks) {
                self.hosts.iter_mut().for_each(|hosts| hosts.count(&chunk));
                let _ = empty.send(chunk);
            }
            // Closes the channels before the join, because the reader blocks on them until they
            // close.
            drop((full, empty));
            self.source = reader.join().ok();
            if self.source.is_none() {
                let why =
                    "the thread that reads captures ended in a panic; this is a defect in Squall";
                self.outs
                    .iter_mut()
                    .for_each(|out| _ = out.counters.error.get_or_insert(why.into()));
            }
        }
    }
}

impl Source for Replayer {
    fn turn(&mut self, turn: &mut Turn<'_>) -> bool {
        if self.done {
            return false;
        }
        let end = self.narrow(turn);
        let moved = self.round(turn);
        if self.done {
            self.settle_all(turn);
            if std::mem::take(&mut self.awaited) {
                let now = if self.clock == Clock::Virtual { Picos(0) } else { turn.at() };
                let end = self.schedule_end.min(self.until).max(now);
                turn.ended.push((Part::Replay(self.number as usize), end));
            }
        }
        turn.budget.end = end;
        moved
    }

    fn owe(&mut self, outlets: &mut Outlets) {
        let waits = self.done || self.over || self.paused.is_some() || self.waits;
        if waits || self.allowed == 0 || self.late != Late::Smooth {
            return;
        }
        self.look_ahead();
        let Some(frame) = self.chunk().departures.get(self.next.at) else { return };
        let out = &self.outs[usize::from(frame.port)];
        if frame.due != Departure::AT_ONCE && out.ahead.0 == 0 && !out.is_down(outlets) {
            outlets.owe(out.member, self.due(frame).0);
        }
    }

    fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos> {
        if self.done { None } else { self.next_departure(outlets, end.min(self.until)) }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn time(&self) -> Nanos {
        self.outs.iter().map(|out| out.counters.last).max().unwrap_or_default()
    }

    fn rest(&mut self, _now: Nanos) -> Rest {
        // With a port that takes frames ahead, the next action is not urgent.
        if self.retry_at.is_some() { Rest::Port } else { Rest::Awake }
    }

    fn apply(&mut self, command: &Command, at: Picos, turn: &mut Turn<'_>) -> u64 {
        if !command.is_for_replay(self.number) {
            return 0;
        }
        match &command.action {
            Action::Pause => self.pause(at, turn),
            Action::Resume => self.resume(at, turn.outlets),
            Action::Rate(Rate::Speed(speed)) => self.set_speed(at, *speed, turn),
            Action::Begin => self.begin(at),
            Action::Step(frames) => self.step(*frames),
            Action::Stop => self.stop(turn.outlets),
            _ => {}
        }
        0
    }

    fn used(&self) -> (u64, u64) {
        let (mut packets, mut octets) = (0, 0);
        for out in &self.outs {
            packets += out.counters.packets + out.counters.errors + out.under_way as u64;
            octets += out.counters.octets;
        }
        let waiting = self.next.at..self.filled.max(self.next.at);
        let at_hand = &self.chunk().departures[waiting.clone()];
        let octets_at_hand: u64 = at_hand.iter().map(|frame| u64::from(frame.len + FCS_LEN)).sum();
        (packets + waiting.len() as u64, octets + octets_at_hand)
    }

    fn settle(&mut self, turn: &mut Turn<'_>) -> bool {
        if !self.done {
            let end = self.narrow(turn);
            self.settle_all(turn);
            turn.budget.end = end;
        }
        true
    }

    fn close(&mut self, outlets: &mut Outlets) {
        self.close_all(outlets);
    }

    fn snapshot(&self, _full: bool, stalls: Stalls, into: &mut Snapshot) {
        into.tx.extend(self.counters().map(|tx| PortTx { stalls, ..tx }));
    }

    fn counters(&self, into: &mut Counters) {
        into.tx.extend(self.ports().map(PortTx::sent));
    }

    fn leave(&mut self) -> Option<Shown> {
        let reader = self.source.take()?;
        let mut course = std::mem::take(&mut self.course);
        course.held = match self.paused {
            _ if self.waits => Some(0),
            since => since.map(|since| self.next_of_schedule(self.warp.schedule(since.0))),
        };
        Some(Box::new(Replayed {
            number: self.number,
            source: reader,
            error: self.error.take(),
            starved: self.starved,
            dry: self.dry,
            course,
            stretched: self.stretched.as_nanos(),
            hosts: self.hosts.take().map(|hosts| hosts.conversations()),
        }))
    }
}

impl Out {
    /// Whether nothing can leave. A port that takes frames ahead skips frames by itself while its
    /// link is down.
    fn is_down(&self, outlets: &Outlets) -> bool {
        self.ahead.0 == 0 && !outlets.of(self.member).is_up()
    }

    /// Whether the port takes frames ahead of their time, and is not lost.
    fn takes_ahead(&self) -> bool {
        self.ahead.0 > 0 && self.counters.error.is_none()
    }

    /// Collects the outcomes of some of the frames in flight on port `i`. Returns their number.
    fn collect_fates(
        &mut self,
        i: usize,
        outlets: &mut Outlets,
        (chunks, first): (&mut VecDeque<Chunk>, u64),
        clock: Clock,
        warp: Warp,
        hosts: &mut Option<HostFrames>,
    ) -> io::Result<usize> {
        let Self { member, counters, under_way, oldest, audit, .. } = self;
        let (outcomes, auditor) = outlets.of_mut(*member).outcomes()?;
        let mut errors = [0; BATCH];
        let mut late = 0;
        for fate in outcomes {
            let chunk = loop {
                let chunk = &mut chunks[(oldest.chunk - first) as usize];
                let frames = &chunk.departures[oldest.at..];
                let is_it =
                    |f: &Departure| usize::from(f.port) == i && f.progress == Progress::UnderWay;
                if let Some(skipped) = frames.iter().position(is_it) {
                    oldest.at += skipped;
                    break chunk;
                }
                *oldest = Place { chunk: oldest.chunk + 1, at: 0 };
            };
            let frame = &mut chunk.departures[oldest.at];
            match *fate {
                TxOutcome::Left(at) => {
                    frame.progress = Progress::Left;
                    counters.packets += 1;
                    counters.octets += u64::from(frame.len + FCS_LEN);
                    counters.last = at;
                    let (octets, left) = (frame.len + FCS_LEN, clock.since_start(at).0);
                    let due = match frame.due {
                        Departure::AT_ONCE => left,
                        due => warp.real(due.0),
                    };
                    auditor.due(bin(due), 1, octets.into());
                    auditor.left(bin(left), 1, octets.into(), octets.into());
                    if frame.due != Departure::AT_ONCE {
                        audit.left(left, due, 1);
                        let due = clock.instant(Picos(due));
                        errors[late] = at.saturating_sub(due).0;
                        late += 1;
                    }
                    if let Some(print) = &mut counters.fingerprint {
                        print.merge(fingerprint(as_sent(chunk, oldest.at, hosts), Cut::WHOLE));
                    }
                }
                TxOutcome::Lost(reason) => {
                    frame.progress = Progress::Failed;
                    counters.errors += 1;
                    *counters.not_sent.entry(reason).or_default() += 1;
                }
            }
            oldest.at += 1;
            *under_way -= 1;
        }
        counters.departure_error.record_all(&errors[..late]);
        Ok(outcomes.len())
    }

    /// Counts frames of `chunk`, which the port took between the two times. Returns the due time of
    /// the first of them that has one.
    #[inline]
    fn credit(
        &mut self,
        chunk: &Chunk,
        frames: std::ops::Range<usize>,
        (before, after): (Nanos, Nanos),
        (clock, warp): (Clock, Warp),
        outlet: &mut Outlet,
        hosts: &mut Option<HostFrames>,
    ) -> Option<Picos> {
        let sent = frames.len() as u64;
        if sent == 0 {
            return None;
        }
        let counters = &mut self.counters;
        counters.packets += sent;
        let (first, took) = (clock.since_start(before).0, clock.since_start(after).0);
        let mut due = chunk.departures[frames.clone()]
            .iter()
            .map(|frame| frame.due)
            .filter(|&due| due != Departure::AT_ONCE);
        let mut first_due = None;
        if clock != Clock::Virtual
            && let Some(oldest) = due.next()
        {
            let newest = due.next_back().unwrap_or(oldest);
            let (oldest, newest) = (warp.real(oldest.0), warp.real(newest.0));
            self.audit.left_in_row((first, oldest), (took, newest), sent);
            first_due = Some(Picos(oldest));
        }
        let each = (took - first) / sent;
        let mut errors = [0; BATCH];
        let mut late = 0;
        let octets_before = counters.octets;
        let mut longest = 0;
        if clock != Clock::Virtual {
            let lag = outlet.lag(took);
            let due = |frame: &Departure| match frame.due {
                Departure::AT_ONCE => took,
                due => warp.real(due.0) + lag,
            };
            for frame in &chunk.departures[frames.clone()] {
                outlet.audit_due(due(frame), 1, (frame.len + FCS_LEN).into());
                longest = longest.max(frame.len + FCS_LEN);
            }
        }
        for (i, frame) in (1..).zip(&chunk.departures[frames.clone()]) {
            counters.octets += u64::from(frame.len + FCS_LEN);
            if frame.due != Departure::AT_ONCE && clock != Clock::Virtual {
                // Frames of one send call left one after the other: each gets an equal share of its
                // duration.
                let due = warp.real(frame.due.0);
                errors[late] = (first + each * i).saturating_sub(due) / 1000;
                late += 1;
            }
        }
        counters.departure_error.record_all(&errors[..late]);
        if clock != Clock::Virtual {
            outlet.audit_left(took, sent, counters.octets - octets_before, longest);
        }
        let last = &chunk.departures[frames.end - 1];
        counters.last = match clock {
            Clock::Virtual if last.due != Departure::AT_ONCE => {
                clock.instant(Picos(warp.real(last.due.0)))
            }
            _ => after,
        };
        if let Some(print) = &mut counters.fingerprint {
            frames.for_each(|i| print.merge(fingerprint(as_sent(chunk, i, hosts), Cut::WHOLE)));
        }
        first_due
    }
}

/// The octets with which frame `i` of a chunk left.
fn as_sent<'a>(chunk: &'a Chunk, i: usize, hosts: &'a mut Option<HostFrames>) -> &'a [u8] {
    match hosts {
        Some(hosts) => hosts.as_sent(chunk.frame(i)),
        None => chunk.frame(i),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use squall_port::{Slots, TxBatch, TxQueue};
    use squall_program::clock::Planned;
    use squall_replay::{Input, Replay};

    use super::*;
    use crate::{clock::Watch, pacing::PortPace};

    const START: Nanos = Nanos(1_000_000_000);
    const FRAMES: u8 = 10;

    #[test]
    fn the_last_instant_that_is_due_is_that_of_the_schedule() {
        for (num, den) in [(1, 1), (3, 2), (2, 7), (1000, 999)] {
            for (from, at) in [(0, 0), (50, 0), (0, 40), (30, 70)] {
                let warp = Warp { from, at, num, den };
                for real in 0..200 {
                    let due = (0..2000).filter(|due| warp.real(*due) <= real).max();
                    assert_eq!(warp.last_due(real), due, "{warp:?} at {real}");
                }
            }
        }
    }

    /// A port that takes frames ahead of their time; the test decides when they leave.
    #[derive(Default)]
    struct Ahead {
        slots: Option<Slots>,
        shared: Arc<Mutex<Ring>>,
        reported: Vec<TxOutcome>,
    }

    #[derive(Default)]
    struct Ring {
        waiting: VecDeque<(u8, Nanos)>,
        left: Vec<u8>,
        outcomes: Vec<TxOutcome>,
    }

    impl Ring {
        /// Sets the run time to `now`.
        fn advance(&mut self, now: Nanos) {
            while let Some((number, due)) =
                self.waiting.pop_front_if(|frame| frame.1 <= START + now)
            {
                self.left.push(number);
                self.outcomes.push(TxOutcome::Left(due));
            }
        }
    }

    impl TxQueue for Ahead {
        fn lend(&mut self, want: usize) -> TxBatch<'_> {
            self.slots.get_or_insert_with(|| Slots::new(BATCH, 100)).batch(0, want.min(3))
        }

        fn send(&mut self, n: usize) -> Result<usize, SendError> {
            let frames = (0..n).map(|i| self.slots.as_ref().expect("lent").frame(i));
            self.shared
                .lock()
                .unwrap()
                .waiting
                .extend(frames.map(|(octets, meta)| (octets[0], meta.due)));
            Ok(n)
        }

        fn outcomes(&mut self) -> io::Result<&[TxOutcome]> {
            self.reported = std::mem::take(&mut self.shared.lock().unwrap().outcomes);
            Ok(&self.reported)
        }

        fn take_back(&mut self) -> usize {
            self.shared.lock().unwrap().waiting.drain(..).count()
        }
    }

    /// Ten numbered frames, one per millisecond.
    fn capture() -> Vec<u8> {
        let mut file = vec![
            0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0,
            0,
        ];
        for number in 0..FRAMES {
            for word in [1, u32::from(number) * 1000, 60, 60] {
                file.extend(word.to_le_bytes());
            }
            file.extend([number; 60]);
        }
        file
    }

    #[test]
    fn a_schedule_goes_on_from_where_it_is_at_any_speed() {
        let mut warp = Warp { from: 0, at: 100, num: 1, den: 1 };
        assert_eq!([0, 50].map(|due| warp.real(due)), [100, 150]);
        warp.change(60, (2, 1));
        assert_eq!([0, 50].map(|due| warp.real(due)), [100, 125], "it has not begun");
        warp.change(120, (1, 3));
        // 40 ps of schedule time had passed.
        assert_eq!([40, 41, 50].map(|due| warp.real(due)), [120, 123, 150]);
        assert_eq!(warp.real(35), 115, "what was late is no later");
        warp.change(120, (1, 1));
        assert_eq!([40, 50].map(|due| warp.real(due)), [120, 130]);
    }

    struct Test {
        replayer: Replayer,
        outlets: Outlets,
        ring: Arc<Mutex<Ring>>,
        watch: Watch,
        budget: Budget,
        ended: Vec<(Part, Picos)>,
    }

    impl Test {
        fn new() -> Self {
            let open = || Ok(Box::new(io::Cursor::new(capture())) as Box<dyn io::Read + Send>);
            let input = Input { name: "test".into(), open: Arc::new(open), once: false };
            let replay = Replay { inputs: vec![input], flows: None, ..Replay::default() };
            let feed = Feed::start(Reader::open(replay, vec![1518]).unwrap()).unwrap();
            let queue = Ahead::default();
            let (ring, clock) = (queue.shared.clone(), Clock::Real(START));
            let ahead = Nanos(100_000_000);
            let mut outlets = Outlets::default();
            let pace = Arc::new(PortPace::new(Planned::default()));
            outlets.add(Outlet::new(0, Box::new(queue), None, BATCH, ahead, pace));
            let plan = PlanReplay::new("test", vec![0], Replay::default());
            Self {
                replayer: Replayer::new((0, &plan), &mut outlets, clock, feed, false),
                outlets,
                ring,
                watch: Watch::new(clock),
                budget: Budget { packets: u64::MAX, octets: u64::MAX, end: Picos(1 << 63) },
                ended: Vec::new(),
            }
        }

        fn turn(&mut self, now: Nanos) {
            self.at(now, Replayer::turn);
        }

        /// Runs `f` at run time `now`.
        fn at<T>(&mut self, now: Nanos, f: impl FnOnce(&mut Replayer, &mut Turn<'_>) -> T) -> T {
            let mut turn = Turn {
                common: squall_port::CommonClock::default(),
                clock: Clock::Real(START),
                now: START + now,
                until: Picos(u64::MAX),
                alone: false,
                watch: &mut self.watch,
                budget: &mut self.budget,
                outlets: &mut self.outlets,
                ended: &mut self.ended,
            };
            f(&mut self.replayer, &mut turn)
        }

        /// Takes turns until the port has `count` frames.
        fn fill(&mut self, now: Nanos, count: usize) {
            let deadline = squall_port::monotonic() + Nanos(10_000_000_000);
            while self.ring.lock().unwrap().waiting.len() < count
                && squall_port::monotonic() < deadline
            {
                self.turn(now);
            }
            assert_eq!(self.ring.lock().unwrap().waiting.len(), count);
        }

        /// Due times of the frames that the port has, in milliseconds of run time.
        fn due(&self) -> Vec<u64> {
            self.ring
                .lock()
                .unwrap()
                .waiting
                .iter()
                .map(|frame| (frame.1.0 - START.0) / 1_000_000)
                .collect()
        }

        fn packets(&self) -> u64 {
            self.replayer.ports().map(|port| port.packets).sum()
        }
    }

    fn ms(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    #[test]
    fn frames_taken_back_leave_later_in_order() {
        let mut t = Test::new();
        t.fill(Nanos::ZERO, 10);
        assert_eq!(
            (t.due(), t.packets()),
            ((0..10).collect(), 0),
            "what a port has is not counted before it has left"
        );
        t.ring.lock().unwrap().advance(ms(3));
        t.turn(ms(3));
        assert_eq!(t.packets(), 4);
        t.at(ms(4), |replayer, turn| replayer.pause(Picos(4_000_000_000), turn));
        t.turn(ms(5));
        assert!(t.due().is_empty(), "nothing waits in a port while the replay is paused");
        t.replayer.resume(Picos(10_000_000_000), &mut t.outlets);
        t.fill(ms(10), 6);
        assert_eq!(t.due(), [10, 11, 12, 13, 14, 15], "later by the pause");
        assert!(!t.replayer.done, "what a port has may still leave");
        t.ring.lock().unwrap().advance(ms(20));
        let deadline = squall_port::monotonic() + Nanos(10_000_000_000);
        while !t.replayer.done && squall_port::monotonic() < deadline {
            t.turn(ms(20));
        }
        t.replayer.close(&mut t.outlets);
        assert!(t.ring.lock().unwrap().left.iter().copied().eq(0..FRAMES));
        assert_eq!(t.packets(), 10);
        let errors = t.replayer.ports().next().unwrap().departure_error.clone();
        assert_eq!(
            (errors.count(), errors.max()),
            (10, 0),
            "by the instants that the port told, and the pause"
        );
        let replayed = t.replayer.leave().unwrap().downcast::<Replayed>().unwrap();
        assert_eq!((replayed.source.sent()[0].successful, replayed.source.loops()), (10, 1));
    }

    #[test]
    fn frames_stopped_before_they_were_due_are_neither_sent_nor_late() {
        let mut t = Test::new();
        t.fill(Nanos::ZERO, 10);
        t.ring.lock().unwrap().advance(ms(2));
        t.replayer.stop(&mut t.outlets);
        (t.budget.end, t.budget.packets) = (Picos(2_500_000_000), 0);
        t.turn(Nanos(2_500_000));
        assert!(t.replayer.done);
        t.at(Nanos(2_500_000), Replayer::settle);
        t.replayer.close(&mut t.outlets);
        let port = t.replayer.ports().next().unwrap();
        assert_eq!((port.packets, port.errors, port.not_sent.len()), (3, 0, 0));
        let replayed = t.replayer.leave().unwrap().downcast::<Replayed>().unwrap();
        assert_eq!((replayed.source.sent()[0].attempted, replayed.source.loops()), (3, 0));
    }
}
