//! Sends one port's frames on one worker: schedule, fill, send, credit.

use std::{
    collections::{HashSet, VecDeque},
    ops::{Deref, Range},
    sync::Arc,
};

use squall_measure::fingerprint;
use squall_plan::{Part, Plan, PlanStream};
use squall_port::{BATCH, CommonClock, SendError, TxBatch};
use squall_profile::Late;
use squall_program::{
    Cursor, Gap, Program, Run, Scratch, Sizes, Timeline,
    audit::bin,
    pace::{Audit, Pacing},
};
use squall_stats::{Fingerprint, Histogram};
use squall_units::{FCS_LEN, Nanos, Picos, TxMeta};

use crate::{
    Clock, PortTx, StreamTx, Unsent,
    groups::{Groups, Membership},
    host_supply::HostSupply,
    hosts::HostTables,
    source::{Budget, Member, Outlet, Outlets, Turn},
    wheel::{Entry, Wheel},
};

/// Limit on counting unsent frames one by one when time is up and their number has no closed form,
/// because a run with billions of unsent frames must still end soon.
pub(crate) const MOST_COUNTED: u64 = 10_000_000;

/// Maximum number of late frames of a stream skipped before the worker checks its mailbox again, so
/// that a command need not wait for the whole backlog.
const MOST_SKIPPED: u64 = 1 << 20;

/// Up to this number, each stream has its own departure histogram. With more, every frame would
/// load another histogram from memory.
const MOST_HISTOGRAMS: usize = 256;

/// Picoseconds. Streams that are later than this send in runs of up to [`IN_A_ROW`] frames: their
/// exact departure times are lost anyway, and switching streams for each frame would cost several
/// times as much. Less late, on virtual time, and if a count ends the run (its frames must be the
/// same on any machine), frames leave in the exact order of their due times.
const FAR_OVERDUE: u64 = 100_000_000;
const IN_A_ROW: usize = 16;

/// Picoseconds after the end of the run in which frames that were due before it may still leave:
/// longer than a short stall of the machine, so that this costs no frames; too short to stretch a
/// run that asks for more than the port takes.
pub(crate) const OVERTIME: u64 = 100_000_000_000;

/// Reason why frames did not leave: they were late.
const LATE: &str = "late";
/// Reason why frames did not leave: the link was down.
pub(crate) const LINK_DOWN: &str = "link_down";
/// Reason why frames did not leave: no host of their group had an address and the MAC address of its
/// gateway.
const NO_HOST: &str = "no_host";
/// The same for streams to routes that a router has learnt: there was no route.
const NO_ROUTE: &str = "no_route";

/// A worker's share of a stream: its number in the plan, the stream, the first frame, the distance
/// to the next.
pub(crate) type Share = (u32, StreamPlan, u64, u64);

/// A stream as it was planned.
#[derive(Clone, Debug)]
pub(crate) enum StreamPlan {
    /// The stream with this number. Not copied, because a hundred thousand streams have 40 MB.
    Shared(Arc<Plan>, u32),
    /// A stream that was added during the run, or whose rate was changed.
    Own(Arc<PlanStream>),
}

impl Deref for StreamPlan {
    type Target = PlanStream;

    #[inline]
    fn deref(&self) -> &PlanStream {
        match self {
            Self::Shared(plan, number) => &plan.streams[*number as usize],
            Self::Own(stream) => stream,
        }
    }
}

impl StreamPlan {
    fn set_gap(&mut self, gap: Gap) {
        match self {
            Self::Own(stream) => Arc::make_mut(stream).gap = gap,
            Self::Shared(plan, number) => {
                let stream = plan.streams[*number as usize].clone();
                *self = Self::Own(Arc::new(PlanStream { gap, ..stream }));
            }
        }
    }
}

/// How many streams are set up before the next check whether the run was stopped: some ms.
const SET_UP_AT_ONCE: usize = 1024;

pub(crate) struct Transmitter {
    out: Member,
    /// The link was down at the last turn.
    down: bool,
    clock: Clock,
    /// Maximum number of frames per send call.
    limit: usize,
    /// Whether the port reads the due time of each frame.
    instants: bool,
    /// See [`squall_port::TxQueue::launches_after`].
    launches_after: Nanos,
    /// By number: a stream that is added has a higher one than all before.
    senders: Vec<Sender>,
    /// Whether any stream has [`Late::Smooth`], and any [`Late::CatchUp`].
    smooths: bool,
    catches_up: bool,
    /// Whether [`Transmitter::keep_to_rates`] has to sum up the rates again. Once a turn, because
    /// one change of the profile may change the rates of a hundred thousand streams.
    rates_changed: bool,
    wheel: Wheel,
    /// Streams without gaps, in round-robin order.
    unpaced: VecDeque<u32>,
    groups: Groups,
    batch: u64,
    hand: Box<CurrentBatch>,
    blocked: Blocked,
    /// Whether frames follow the port's traffic clock. If not, they leave when due in real time.
    paced: bool,
    audit: Audit,
    /// One departure histogram is shared by all streams: with many streams, one per stream would
    /// evict the streams from the cache.
    shared_errors: bool,
    /// Time was up before all due frames had left.
    overdue: bool,
    /// Numbers of the streams that others wait for; and those among them that have ended and were
    /// not reported yet, with the ends of their schedules.
    awaited: Arc<HashSet<u32>>,
    ended: Vec<(u32, Picos)>,
    /// Hosts from which streams send.
    tables: HostTables,
    pub counters: PortTx,
    /// Time is up, everything is sent, or the port is gone.
    pub done: bool,
}

/// The current batch: filled, and sent up to `done`.
struct CurrentBatch {
    runs: Vec<InRow>,
    /// See [`CurrentBatch::due`].
    due: [u64; BATCH],
    len: [u32; BATCH],
    prints: [Fingerprint; BATCH],
    /// Departure errors, collected for a histogram.
    errors: [u64; BATCH],
    filled: usize,
    done: usize,
}

/// When the port began to refuse the frames of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Blocked(Option<Nanos>);

impl Blocked {
    /// Records an attempt to send at `now`; `blocked`: the port was full.
    #[inline]
    pub fn note(&mut self, now: Nanos, blocked: bool, counters: &mut PortTx) {
        if let Some(since) = self.0 {
            counters.blocked = counters.blocked + now.saturating_sub(since);
        }
        self.0 = blocked.then_some(now);
    }
}

/// Consecutive frames of one stream.
#[derive(Clone, Copy)]
struct InRow {
    stream: u32,
    /// The first slot, and the one after the last.
    begin: usize,
    end: usize,
    due: Due,
}

/// How the due times of the frames in a row are stored in [`CurrentBatch::due`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    /// Not stored: the frames have no gaps.
    AtOnce,
    /// Only the first and the last are stored; the others are between them, at equal intervals.
    Evenly,
    Each,
}

impl CurrentBatch {
    /// Due time of the frame in slot `i` of `row`, which stores due times; picoseconds.
    #[inline]
    fn due(&self, row: InRow, i: usize) -> u64 {
        if row.due == Due::Each || i == row.begin || i + 1 == row.end {
            return self.due[i];
        }
        let (first, last) = (self.due[row.begin], self.due[row.end - 1]);
        let (part, all) = ((i - row.begin) as u128, (row.end - 1 - row.begin) as u128);
        first + (u128::from(last - first) * part / all) as u64
    }
}

/// A stream, or a worker's share of it. Fields that each frame needs come first, because with
/// thousands of streams every further cache line is another miss.
#[repr(C, align(64))]
struct Sender {
    timeline: Timeline,
    /// Octets without FCS if all frames have the same length; else 0.
    fixed_len: u32,
    generation: u32,

    member: Membership,
    program: Arc<Program>,
    number: u32,
    /// Frames of other workers lie between the frames of this share, and the timeline must advance
    /// over them.
    walk: bool,
    late: Late,
    /// Whether frames may be left out when they are due: late ones, or those for which no host has
    /// an address.
    may_skip: bool,
    active: bool,
    /// Removed permanently: nothing starts it again.
    removed: bool,
    /// Only frames due before this time are sent; picoseconds.
    until: u64,
    /// Whether it waits for another part to end; and whether another part waits for its end, which
    /// it has not reported yet.
    waits: bool,
    awaited: bool,

    /// Index in the stream of the next frame to schedule, and the distance to the one after.
    next: u64,
    by: u64,
    /// Frames on the wire per filled frame (above 1 if it is cut into segments), and their octets
    /// with FCS. The octets do not apply to streams with several frame lengths.
    weight: u32,
    wire_octets: u32,
    packets: u64,
    octets: u64,
    first_left: Option<Nanos>,
    last_left: Nanos,
    /// The last of these fields, because its supply of hosts is not needed by other streams.
    cursor: Cursor,

    plan: StreamPlan,
    /// First frame of the share, counted from the first that this run sends.
    first: u64,
    paused: Option<Picos>,
    /// By how much the schedule moved because frames were late.
    stretched: Picos,
    arrows_taken: u64,
    not_sent: Unsent,
    /// Why a stream without gaps has waited: no number of frames was due then.
    lacked: Option<&'static str>,
    /// `None`: nothing is recorded here, as always if all streams share one.
    departure_error: Option<Box<Histogram>>,
}

impl Transmitter {
    /// `limit`: maximum number of frames per send call.
    pub fn new(
        port: usize,
        out: Member,
        clock: Clock,
        limit: usize,
        fingerprint: bool,
        tables: HostTables,
    ) -> Self {
        Self {
            out,
            down: false,
            clock,
            limit: limit.clamp(1, BATCH),
            instants: true,
            launches_after: Nanos::ZERO,
            senders: Vec::new(),
            smooths: false,
            catches_up: false,
            rates_changed: false,
            wheel: Wheel::new(0, 0.0),
            unpaced: VecDeque::new(),
            groups: Groups::default(),
            batch: 0,
            hand: Box::new(CurrentBatch {
                runs: Vec::with_capacity(BATCH),
                due: [0; BATCH],
                len: [0; BATCH],
                prints: [Fingerprint::default(); BATCH],
                errors: [0; BATCH],
                filled: 0,
                done: 0,
            }),
            blocked: Blocked::default(),
            paced: false,
            audit: Audit::new(0.0),
            shared_errors: false,
            overdue: false,
            awaited: Arc::default(),
            ended: Vec::new(),
            tables,
            counters: PortTx {
                port,
                fingerprint: fingerprint.then(Fingerprint::default),
                ..PortTx::default()
            },
            done: false,
        }
    }

    /// Sets the streams that other parts, on this or another worker, wait for.
    pub fn await_ends(&mut self, awaited: Arc<HashSet<u32>>) {
        self.awaited = awaited;
    }

    /// Reports streams that others wait for and that ended after the last turn.
    #[inline]
    pub fn report_ends(&mut self, turn: &mut Turn<'_>) {
        if !self.ended.is_empty() || (self.done && !self.awaited.is_empty()) {
            self.report_all_ends(turn);
        }
    }

    #[cold]
    fn report_all_ends(&mut self, turn: &mut Turn<'_>) {
        let now = if self.clock == Clock::Virtual { Picos(0) } else { turn.at() };
        if self.done {
            // No stream on this worker sends anything after this.
            for s in self.senders.iter_mut().filter(|s| s.awaited) {
                s.awaited = false;
                self.ended.push((s.number, s.timeline.end()));
            }
        }
        let ended = self.ended.drain(..);
        // No end is earlier than now, because a stall can move frames past the end of the schedule.
        turn.ended.extend(ended.map(|(number, at)| (Part::Stream(number as usize), at.max(now))));
    }

    /// Starts the stream; its predecessor ended at `at`.
    pub fn begin(&mut self, number: u32, at: Picos) {
        let Some(i) = self.find(number).filter(|&i| self.senders[i].waits) else { return };
        let s = &mut self.senders[i];
        s.waits = false;
        if let Some(since) = &mut s.paused {
            *since = (*since).max(at);
        }
        self.start(i, at);
    }

    /// Adds the plan's streams. Ends early once the run `is_stopped`.
    pub fn load(
        &mut self,
        streams: Vec<Share>,
        outlets: &mut Outlets,
        is_stopped: &dyn Fn() -> bool,
    ) {
        let pps = streams
            .iter()
            .filter_map(|s| Some(s.1.asked_pps? / f64::from(s.1.program.segments()) / s.3 as f64))
            .sum();
        self.wheel = Wheel::new(streams.len(), pps);
        self.instants = self.clock == Clock::Virtual || outlets.of(self.out).reads_due();
        self.launches_after = outlets.of(self.out).launches_after();
        self.shared_errors = streams.len() > MOST_HISTOGRAMS;
        // A sender is large, so a list that doubles would waste memory with many streams.
        self.senders.reserve_exact(streams.len());
        for (n, (number, plan, first, by)) in streams.into_iter().enumerate() {
            if n.is_multiple_of(SET_UP_AT_ONCE) && is_stopped() {
                break;
            }
            let i = self.take(number, plan, first, by);
            if self.senders[i].plan.self_start && !self.senders[i].waits {
                self.start(i, Picos(0));
            }
        }
        self.keep_to_rates(outlets);
    }

    /// Sets the burst allowed after a stall, and the limit of the audit, from the sum of the
    /// streams' rates.
    #[cold]
    fn keep_to_rates(&mut self, outlets: &mut Outlets) {
        self.rates_changed = false;
        let rates = self.senders.iter().filter(|s| !s.removed);
        let rates = rates.map(|s| s.plan.fastest_pps() / s.by as f64);
        let known = rates.clone().all(|pps| pps > 0.0);
        let pps = rates.sum();
        outlets.set_rate(self.out, known.then_some(pps));
        self.audit.set_pps(pps);
    }

    fn take(&mut self, number: u32, plan: StreamPlan, first: u64, by: u64) -> usize {
        assert!(self.senders.last().is_none_or(|last| last.number < number), "in order of numbers");
        let program = plan.program.clone();
        self.smooths |= plan.late == Late::Smooth;
        self.catches_up |= plan.late == Late::CatchUp;
        // Streams of a port share one lag, because their order is part of the schedule: one stream
        // that catches up makes all of them catch up.
        self.paced = self.smooths && !self.catches_up && self.clock != Clock::Virtual;
        // Field values and the signature's sequence continue too.
        let first_of_all = plan.sent + first;
        self.senders.push(Sender {
            // Plus 1, because owner 0 means that a slot holds no template.
            cursor: program.cursor(first_of_all, by, number + 1),
            timeline: plan.timeline(Picos(0)),
            next: first_of_all,
            by,
            walk: false,
            fixed_len: program.sizes().only().unwrap_or(0),
            first,
            generation: 0,
            active: false,
            removed: false,
            until: u64::MAX,
            waits: plan.waits,
            awaited: self.awaited.contains(&number),
            paused: None,
            stretched: Picos(0),
            arrows_taken: 0,
            member: Membership::default(),
            weight: program.segments(),
            wire_octets: program.cut().octets(program.max_len()) as u32,
            packets: 0,
            octets: 0,
            first_left: None,
            last_left: Nanos::ZERO,
            not_sent: Unsent::default(),
            lacked: None,
            departure_error: None,
            late: plan.late,
            may_skip: matches!(plan.late, Late::Drop | Late::Stretch) || plan.hosts.is_some(),
            number,
            plan,
            program,
        });
        let i = self.senders.len() - 1;
        let s = &mut self.senders[i];
        if let Some(hosts) = &s.plan.hosts {
            let supply = HostSupply::new(hosts, &self.tables, first_of_all);
            s.cursor.supply = supply.map(|supply| Box::new(supply) as _);
        }
        i
    }

    /// Adds a stream to a running worker: it begins at `now` plus its start delay, or waits for
    /// another's `next`.
    pub fn add(&mut self, number: u32, plan: Arc<PlanStream>, now: Picos) {
        let i = self.take(number, StreamPlan::Own(plan), 0, 1);
        (self.rates_changed, self.done) = (true, false);
        if self.senders[i].plan.self_start {
            self.start(i, now);
        }
    }

    /// Starts stream `i` (its index on this worker) at `at` plus its start delay.
    fn start(&mut self, i: usize, at: Picos) {
        let s = &mut self.senders[i];
        if s.active {
            return;
        }
        let begin = s.begin(at);
        let mut whole = s.plan.rest(begin);
        let share = if s.by > 1 { whole.clone().share(s.first, s.by) } else { None };
        s.walk = s.by > 1 && share.is_none();
        if s.walk {
            walk(&mut whole, s.program.sizes(), s.plan.sent..s.plan.sent + s.first);
        }
        s.timeline = share.unwrap_or(whole);
        s.active = true;
        self.enqueue(i);
    }

    fn enqueue(&mut self, i: usize) {
        let s = &mut self.senders[i];
        match s.due() {
            // The stream was paused beyond its end.
            None if s.active && s.timeline.due().is_some() => {
                s.active = false;
                if std::mem::take(&mut s.awaited) {
                    self.ended.push((s.number, Picos(s.until)));
                }
            }
            Some(due) if s.paused.is_none() => {
                self.wheel.push(Entry { due: due.0, stream: i as u32, generation: s.generation });
            }
            _ => {}
        }
    }

    /// The index of stream `number`.
    fn find(&self, number: u32) -> Option<usize> {
        find(&self.senders, number)
    }

    /// Removes the stream from every queue; its entries in the wheel become stale.
    fn dequeue(&mut self, i: usize) {
        self.senders[i].generation += 1;
        self.unpaced.retain(|&u| u as usize != i);
    }

    /// Pauses a stream, or all. A stream that another's `next` starts meanwhile is held too.
    pub fn pause(&mut self, number: Option<u32>, now: Picos) {
        if number.is_none() {
            self.unpaced.clear();
        }
        for i in self.chosen(number) {
            let s = &mut self.senders[i];
            if !s.removed && s.paused.is_none() {
                s.paused = Some(now);
                self.dequeue(i);
            }
        }
    }

    /// The index of stream `number`, or those of all streams.
    fn chosen(&self, number: Option<u32>) -> Range<usize> {
        match number {
            None => 0..self.senders.len(),
            Some(number) => self.find(number).map_or(0..0, |i| i..i + 1),
        }
    }

    pub fn resume(&mut self, number: Option<u32>, now: Picos) {
        for i in self.chosen(number) {
            let s = &mut self.senders[i];
            if let Some(since) = s.paused.take()
                && s.active
            {
                s.timeline.shift(Picos(now.0.saturating_sub(since.0)));
                self.enqueue(i);
            }
        }
    }

    pub fn remove(&mut self, number: u32, now: Picos) {
        if let Some(i) = self.find(number) {
            self.dequeue(i);
            let s = &mut self.senders[i];
            (s.active, s.removed, s.paused, s.waits) = (false, true, None, false);
            s.cursor.supply = None;
            if std::mem::take(&mut s.awaited) {
                self.ended.push((number, now));
            }
            self.rates_changed = true;
        }
    }

    /// Changes the gap from the next frame on; a stream without gaps gets its first gap now.
    pub fn set_rate(&mut self, number: u32, gap: Gap, now: Picos) {
        let Some(i) = self.find(number) else { return };
        let was_unpaced = self.senders[i].timeline.is_unpaced();
        let s = &mut self.senders[i];
        // Changes the plan, too, so that a stream that starts again uses the new rate.
        s.plan.set_gap(gap);
        let gap = match gap {
            Gap::PerFrame { .. } if !s.walk => gap.times(s.by),
            // Gaps now depend on the frames in between, which other workers send, and so does the
            // end.
            Gap::PerOctet { .. } if !s.walk && s.by > 1 => {
                s.walk = true;
                s.timeline.set_left(s.plan.pattern.packets.saturating_sub(s.next));
                gap
            }
            gap => gap,
        };
        s.timeline.set_gap(gap);
        if s.active && (was_unpaced || s.timeline.is_unpaced()) {
            // A paused stream begins on resume.
            s.timeline.restart(s.paused.unwrap_or(now));
            self.dequeue(i);
            self.enqueue(i);
        }
        self.rates_changed = true;
    }

    /// When to act next; `None`: never, or when the link is up again.
    pub fn next_due(&mut self, outlets: &Outlets, end: Picos) -> Option<Picos> {
        if !outlets.of(self.out).is_up() {
            return None;
        }
        let due = self.next_departure(end)?;
        Some(if self.paced { Picos(outlets.of(self.out).real(due.0)) } else { due })
    }

    /// Reports the due time of the earliest unsent frame.
    pub fn owe(&mut self, outlets: &mut Outlets) {
        if !self.paced || self.done || self.down {
            return;
        }
        let at = self.hand.done;
        let row = self.hand.runs.iter().find(|row| (row.begin..row.end).contains(&at));
        let row = row.filter(|row| at < self.hand.filled && row.due != Due::AtOnce);
        let first = row.map(|row| self.hand.due(*row, at));
        if let Some(due) = first.into_iter().chain(self.earliest()).min() {
            outlets.owe(self.out, due);
        }
    }

    /// Due time of the earliest frame that is not in the batch.
    #[inline]
    fn earliest(&mut self) -> Option<u64> {
        let senders = &self.senders;
        self.wheel.earliest(|entry| entry.generation != senders[entry.stream as usize].generation)
    }

    fn next_departure(&mut self, end: Picos) -> Option<Picos> {
        if self.hand.done < self.hand.filled || !self.unpaced.is_empty() {
            return Some(Picos(0));
        }
        self.wheel.next_due().filter(|&due| due < end.0).map(Picos)
    }

    fn is_idle(&self) -> bool {
        !self.senders.iter().any(|s| s.waits || (s.active && s.paused.is_some()))
    }

    /// Scheduled and unsent frames, and their octets with FCS.
    pub fn at_hand(&self) -> (u64, u64) {
        let len = &self.hand.len[self.hand.done..self.hand.filled];
        (len.len() as u64, len.iter().map(|len| u64::from(len + FCS_LEN)).sum())
    }

    /// One round: sends the rest of the batch, then due frames. Returns whether frames moved.
    pub fn turn(&mut self, turn: &mut Turn<'_>, scratch: &mut Scratch) -> bool {
        let (now, at) = (turn.now, turn.at());
        let end = turn.budget.end;
        if self.rates_changed {
            self.keep_to_rates(turn.outlets);
        }
        if self.clock != Clock::Virtual && at.0 >= end.0.saturating_add(OVERTIME) {
            (self.done, self.overdue) = (true, true);
            return false;
        }
        let waits = self.down || !turn.outlets.of(self.out).is_up();
        if waits && self.wait_for_link(turn) {
            return false;
        }
        if self.hand.done < self.hand.filled {
            let moved = self.send(turn);
            if self.hand.done < self.hand.filled || self.done {
                return moved;
            }
        }
        let horizon = match self.clock {
            Clock::Real(start) if now < start => {
                // A command or a budget may end the run long before the first frame is due.
                self.done |= turn.budget.is_spent();
                return false;
            }
            Clock::Real(_) => self.horizon(at, turn.outlets).min(end.0.saturating_sub(1)),
            Clock::Virtual => end.min(turn.until).0.saturating_sub(1),
        };
        if self.wheel.bound() > horizon && self.unpaced.is_empty() {
            self.finish_if_over(at, turn.budget);
            return false;
        }
        let full = self.schedule_and_fill(turn, horizon, scratch);
        if self.hand.filled == 0 {
            self.blocked.note(now, full, &mut self.counters);
            self.finish_if_over(at, turn.budget);
            return false;
        }
        self.send(turn);
        true
    }

    /// Traffic time at `at`.
    #[inline]
    fn horizon(&self, at: Picos, outlets: &Outlets) -> u64 {
        if self.paced { outlets.of(self.out).traffic(at.0) } else { at.0 }
    }

    /// Skips frames that become due while the link is down, so that they do not leave in a burst
    /// when it is up again; streams without gaps wait. Returns whether the link is down.
    #[cold]
    fn wait_for_link(&mut self, turn: &mut Turn<'_>) -> bool {
        let (now, at) = (turn.now, turn.at());
        self.down = !turn.outlets.of(self.out).is_up();
        self.blocked.note(now, false, &mut self.counters);
        if let Some(error) = turn.outlets.of(self.out).lost() {
            self.counters.error = Some(error.to_string());
            self.drop_hand(turn.outlets, "port_lost");
            self.done = true;
            return true;
        }
        let paced = |row: &InRow| row.end > self.hand.done && row.due != Due::AtOnce;
        if self.hand.runs.iter().any(paced) {
            let (packets, octets) =
                (self.hand.done..self.hand.filled).fold((0, 0), |(packets, octets), i| {
                    let weight = u64::from(self.sender_of(i).weight);
                    (packets + weight, octets + u64::from(self.hand.len[i] + FCS_LEN))
                });
            // The budget is given back, because skipped frames do not count toward the end of a run
            // that ends by a count.
            turn.budget.packets = turn.budget.packets.saturating_add(packets);
            turn.budget.octets = turn.budget.octets.saturating_add(octets);
            self.drop_hand(turn.outlets, LINK_DOWN);
        }
        let begun = !matches!(self.clock, Clock::Real(start) if now < start);
        let horizon = self.horizon(at, turn.outlets).min(turn.budget.end.0.saturating_sub(1));
        let mut given_up = 0;
        while begun
            && given_up < MOST_SKIPPED
            && let Some(entry) = self.wheel.pop(horizon)
        {
            let i = entry.stream as usize;
            let s = &mut self.senders[i];
            if entry.generation != s.generation {
                continue;
            }
            if s.timeline.is_unpaced() {
                self.unpaced.push_back(entry.stream);
                continue;
            }
            let frames = s.give_up_before(Picos(horizon + 1), LINK_DOWN);
            given_up += frames;
            *self.counters.not_sent.entry(LINK_DOWN).or_default() += frames * u64::from(s.weight);
            Self::go_on(&mut self.senders, &mut self.wheel, &mut self.ended, i);
        }
        if self.down {
            self.finish_if_over(at, turn.budget);
        }
        self.down
    }

    fn finish_if_over(&mut self, at: Picos, budget: &Budget) {
        // Frames that were due in time may still leave, up to OVERTIME.
        let time_is_up = self.clock != Clock::Virtual
            && at >= budget.end
            && self.wheel.next_due().is_none_or(|due| due >= budget.end.0);
        let spent = budget.packets == 0 || budget.octets == 0;
        let nothing = self.next_departure(budget.end).is_none() && self.is_idle();
        if time_is_up || spent || nothing {
            self.done = true;
        }
    }

    /// Returns whether the port was full and lent no slots.
    fn schedule_and_fill(
        &mut self,
        turn: &mut Turn<'_>,
        mut horizon: u64,
        scratch: &mut Scratch,
    ) -> bool {
        let (now, at, common) = (turn.now, turn.at(), turn.common);
        let Turn { outlets, budget, .. } = turn;
        (self.hand.filled, self.hand.done) = (0, 0);
        self.hand.runs.clear();
        self.groups.clear();
        self.batch += 1;
        let most = self.limit.min(usize::try_from(budget.packets).unwrap_or(usize::MAX));
        let mut traffic = at.0;
        if self.paced
            && let Some(due) = self.earliest()
        {
            // The backlog begins with the earliest due entry.
            traffic = outlets.of(self.out).horizon(at.0, due);
            horizon = horizon.min(traffic);
        }
        let batch = outlets.lend(self.out, most);
        let full = batch.is_empty() && most > 0;
        let most = batch.len();
        let mut n = 0;
        while n < most && budget.octets > 0 && budget.packets > 0 {
            let Some(entry) = self.wheel.pop(horizon) else { break };
            let i = entry.stream as usize;
            let s = &mut self.senders[i];
            if entry.generation != s.generation {
                continue;
            }
            if s.timeline.is_unpaced() {
                self.unpaced.push_back(entry.stream);
                continue;
            }
            if s.may_skip {
                let mut skipped = (s.catch_up(Picos(traffic), horizon), LATE);
                if skipped.0 == 0 && !s.has_host() {
                    if n > 0 {
                        // Frames of the stream may be in the batch, and must be filled first.
                        self.wheel.push(entry);
                        break;
                    }
                    // On virtual time, a host may get its address before the next frame is due.
                    let to = if self.clock == Clock::Virtual { entry.due } else { horizon };
                    let reason = s.lacks(&self.tables);
                    skipped = (s.give_up_before(Picos(to.saturating_add(1)), reason), reason);
                }
                let (skipped, reason) = skipped;
                if skipped > 0 {
                    *self.counters.not_sent.entry(reason).or_default() +=
                        skipped * u64::from(s.weight);
                    Self::go_on(&mut self.senders, &mut self.wheel, &mut self.ended, i);
                    let is_virtual = self.clock == Clock::Virtual;
                    if skipped >= MOST_SKIPPED || is_virtual && reason != LATE {
                        break;
                    }
                    continue;
                }
            }
            let first = n;
            let (bound, most_in_a_row) = match self.clock {
                Clock::Real(_)
                    if !budget.is_counted()
                        && horizon.saturating_sub(entry.due) > FAR_OVERDUE
                        && self.wheel.bound() != u64::MAX =>
                {
                    (horizon - FAR_OVERDUE, IN_A_ROW)
                }
                _ => (self.wheel.bound().min(horizon.saturating_add(1)), BATCH),
            };
            let (count, due) = s.schedule_run(
                bound,
                most_in_a_row.min(most - n),
                budget,
                &mut self.hand,
                &mut batch.meta[n..],
                n,
                self.instants.then_some(self.clock),
            );
            n += count;
            self.hand.runs.push(InRow { stream: entry.stream, begin: first, end: n, due });
            self.groups.add(self.batch, &mut s.member, entry.stream, first, count);
            Self::go_on(&mut self.senders, &mut self.wheel, &mut self.ended, i);
            if let (Clock::Virtual, Some((_, end))) = (self.clock, self.ended.last()) {
                // From there on, another stream may be due before this one.
                horizon = horizon.min(end.0.saturating_sub(1));
            }
        }
        let turns = self.unpaced.len();
        for _ in 0..turns {
            // Checked before the stream is popped: a popped stream that sends nothing would be
            // lost.
            if n == most || at >= budget.end || budget.packets == 0 {
                break;
            }
            let Some(stream) = self.unpaced.pop_front() else { break };
            let i = stream as usize;
            let s = &mut self.senders[i];
            if at.0 >= s.until {
                s.timeline.set_due(Picos(s.until));
                Self::go_on(&mut self.senders, &mut self.wheel, &mut self.ended, i);
                continue;
            }
            if s.may_skip && !s.has_host() {
                s.lacked = Some(s.lacks(&self.tables));
                self.unpaced.push_back(stream);
                continue;
            }
            let first = n;
            let quota = (most / turns).max(1).min(most - n);
            n += s.schedule_unpaced(at, quota, budget, &mut self.hand, &mut batch.meta[n..], n);
            if self.instants {
                batch.meta[first..n].iter_mut().for_each(|m| m.due = now);
            }
            if n > first {
                self.hand.runs.push(InRow { stream, begin: first, end: n, due: Due::AtOnce });
                self.groups.add(self.batch, &mut s.member, stream, first, n - first);
            }
            if s.timeline.end() <= at && s.timeline.due().is_some() {
                self.unpaced.push_back(stream);
            } else {
                Self::go_on(&mut self.senders, &mut self.wheel, &mut self.ended, i);
            }
        }
        self.hand.filled = n;
        let mut stamp = (self.clock != Clock::Virtual).then(|| common.of(now));
        let TxBatch { base, stride, meta } = batch;
        if self.launches_after > Nanos::ZERO && common == CommonClock::default() {
            // Frames carry their due times, because these are at a fixed distance from the
            // launches, which the hand-over is not. A frame that is too late leaves at once.
            let earliest = now.saturating_sub(self.launches_after);
            meta[..n].iter_mut().for_each(|m| m.due = m.due.max(earliest));
            stamp = None;
        }
        let mut list = [0; BATCH];
        for g in 0..self.groups.len() {
            let (stream, start, count, places) = self.groups.get(g, &mut list);
            let s = &mut self.senders[stream as usize];
            let slots = (&mut *base, stride, &mut *meta);
            match places {
                None => s.program.fill(&mut s.cursor, scratch, slots, &Run { start, count }, stamp),
                Some(places) => s.program.fill(&mut s.cursor, scratch, slots, places, stamp),
            }
        }
        if self.counters.fingerprint.is_some() {
            for (i, slot) in base.chunks_exact(stride).take(n).enumerate() {
                self.hand.prints[i] = fingerprint(&slot[..self.hand.len[i] as usize], meta[i].cut);
            }
        }
        full
    }

    /// After a frame: pushes the stream into the wheel again, or ends it and starts its successor.
    fn go_on(senders: &mut [Sender], wheel: &mut Wheel, ended: &mut Vec<(u32, Picos)>, i: usize) {
        let s = &mut senders[i];
        if let Some(due) = s.due() {
            return wheel.push(Entry { due: due.0, stream: i as u32, generation: s.generation });
        }
        s.active = false;
        let end = s.timeline.end().min(Picos(s.until));
        let next = s.plan.next.filter(|n| n.times.is_none_or(|times| s.arrows_taken < times));
        if s.awaited && next.is_none_or(|next| next.stream != s.number as usize) {
            s.awaited = false;
            ended.push((s.number, end));
        }
        let Some(next) = next else { return };
        s.arrows_taken += 1;
        let Some(j) = find(senders, next.stream as u32) else { return };
        let t = &mut senders[j];
        if t.active || t.removed {
            return;
        }
        t.active = true;
        let begin = t.begin(end);
        t.timeline = t.plan.timeline(begin);
        match &mut t.paused {
            Some(since) => *since = end,
            None => wheel.push(Entry {
                due: t.timeline.end().0,
                stream: j as u32,
                generation: t.generation,
            }),
        }
    }

    fn send(&mut self, turn: &mut Turn<'_>) -> bool {
        let before = turn.watch.now();
        let wanted = self.hand.filled - self.hand.done;
        match turn.outlets.send(self.out, wanted) {
            Ok(sent) => {
                let after = turn.watch.now();
                self.counters.sending = self.counters.sending + after.saturating_sub(before);
                self.blocked.note(before, sent < wanted, &mut self.counters);
                self.credit(sent, before, after, turn.outlets);
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                self.counters.errors += self.drop_next(turn.outlets, reason);
                true
            }
            Err(SendError::Port(error)) => {
                self.counters.error = Some(error.to_string());
                self.drop_hand(turn.outlets, "port_lost");
                self.done = true;
                false
            }
        }
    }

    /// Counts the next `sent` frames, which the port took between `before` and `after`.
    #[inline]
    fn credit(&mut self, sent: usize, before: Nanos, after: Nanos, outlets: &mut Outlets) {
        let (from, to) = (self.hand.done, self.hand.done + sent);
        self.hand.done = to;
        if sent == 0 {
            return;
        }
        // Each frame gets an equal share of the send call's duration, because the frames left one
        // after the other.
        let (first, took) = (self.clock.since_start(before).0, self.clock.since_start(after).0);
        let each = (took - first) / sent as u64;
        let virtual_time = self.clock == Clock::Virtual;
        // Time at which the frame in slot `i` had left.
        let left = |i: usize| first + each * (i + 1 - from) as u64;
        let (mut packets_of_all, mut octets_of_all) = (0, 0);
        // Frames of streams without gaps.
        let (mut packets_at_once, mut octets_at_once) = (0, 0);
        let outlet = outlets.of_mut(self.out);
        let lag = if self.paced { outlet.lag(took) } else { 0 };
        let mut longest = 0;
        let mut late = 0;
        // The earliest and the latest due time, of frames that have one.
        let (mut oldest, mut newest) = (u64::MAX, 0);
        for row in 0..self.hand.runs.len() {
            let row = self.hand.runs[row];
            let (begin, end) = (row.begin.max(from), row.end.min(to));
            if begin >= end {
                continue;
            }
            let s = &mut self.senders[row.stream as usize];
            let count = (end - begin) as u64;
            let octets = match s.fixed_len {
                0 => {
                    let lens = &self.hand.len[begin..end];
                    longest = lens.iter().fold(longest, |longest, len| longest.max(len + FCS_LEN));
                    lens.iter().map(|len| u64::from(len + FCS_LEN)).sum()
                }
                _ => {
                    longest = longest.max(s.wire_octets);
                    u64::from(s.wire_octets) * count
                }
            };
            let packets = count * u64::from(s.weight);
            let (mut first_due, mut last_due) = (took, took);
            if row.due == Due::AtOnce {
                packets_at_once += packets;
                octets_at_once += octets;
            } else {
                (first_due, last_due) = (self.hand.due(row, begin), self.hand.due(row, end - 1));
            }
            if !virtual_time && row.due != Due::AtOnce {
                (oldest, newest) = (oldest.min(first_due), newest.max(last_due));
                let (a, b) = (left(begin), left(end - 1));
                let even = row.due == Due::Evenly && a >= first_due && b >= last_due;
                if even && !self.shared_errors {
                    let errors = s.departure_error.get_or_insert_default();
                    errors.record_evenly((a - first_due) / 1000, (b - last_due) / 1000, count);
                } else {
                    for i in begin..end {
                        let error = left(i).saturating_sub(self.hand.due(row, i)) / 1000;
                        self.hand.errors[late] = error;
                        late += 1;
                    }
                    if !self.shared_errors {
                        let errors = s.departure_error.get_or_insert_default();
                        errors.record_all(&self.hand.errors[..late]);
                        late = 0;
                    }
                }
            }
            if s.weight > 1 {
                self.counters.gso_frames += count;
                self.counters.segments += packets;
            }
            s.packets += packets;
            s.octets += octets;
            packets_of_all += packets;
            octets_of_all += octets;
            if s.first_left.is_none() {
                s.first_left =
                    Some(if virtual_time { self.clock.instant(Picos(first_due)) } else { before });
            }
            s.last_left = if virtual_time { self.clock.instant(Picos(last_due)) } else { after };
            self.counters.last = s.last_left;
        }
        if late > 0 {
            self.counters.departure_error.record_all(&self.hand.errors[..late]);
        }
        if !virtual_time {
            if packets_at_once > 0 {
                outlet.audit_due(took, packets_at_once, octets_at_once);
            }
            if oldest != u64::MAX {
                self.audit.left_in_row((first, oldest), (took, newest), packets_of_all);
                if self.paced {
                    outlet.left(took, lag, oldest);
                }
                if bin(oldest + lag) == bin(newest + lag) {
                    let (packets, octets) =
                        (packets_of_all - packets_at_once, octets_of_all - octets_at_once);
                    outlet.audit_due(oldest + lag, packets, octets);
                } else {
                    Self::audit_each(&self.hand, &self.senders, from..to, lag, outlet);
                }
            }
            outlet.audit_left(took, packets_of_all, octets_of_all, longest);
        }
        self.counters.packets += packets_of_all;
        self.counters.octets += octets_of_all;
        if let Some(fingerprint) = &mut self.counters.fingerprint {
            self.hand.prints[from..to].iter().for_each(|p| fingerprint.merge(*p));
        }
    }

    /// Audits the frames in `slots` one by one: they have due times, which lie in several bins.
    #[cold]
    fn audit_each(
        hand: &CurrentBatch,
        senders: &[Sender],
        slots: Range<usize>,
        lag: u64,
        outlet: &mut Outlet,
    ) {
        for row in hand.runs.iter().filter(|row| row.due != Due::AtOnce) {
            let s = &senders[row.stream as usize];
            for i in row.begin.max(slots.start)..row.end.min(slots.end) {
                let octets = match s.fixed_len {
                    0 => hand.len[i] + FCS_LEN,
                    _ => s.wire_octets,
                };
                outlet.audit_due(hand.due(*row, i) + lag, s.weight.into(), octets.into());
            }
        }
    }

    /// Drops the next frame of the batch, or only the unsent part if it is a GSO frame. Returns the
    /// number of frames dropped.
    fn drop_next(&mut self, outlets: &Outlets, reason: &'static str) -> u64 {
        let i = self.hand.done;
        let cut = self.sender_of(i).program.cut();
        let (packets, octets) = outlets.of(self.out).partly_sent(cut);
        let s = self.sender_of(i);
        let missing = u64::from(s.weight) - packets;
        s.packets += packets;
        s.octets += octets;
        s.not_sent.add(reason, missing);
        *self.counters.not_sent.entry(reason).or_default() += missing;
        self.counters.packets += packets;
        self.counters.octets += octets;
        self.counters.segments += packets;
        self.hand.done += 1;
        missing
    }

    /// The stream that slot `i` of the batch belongs to.
    fn sender_of(&mut self, i: usize) -> &mut Sender {
        let row = self.hand.runs.iter().find(|r| (r.begin..r.end).contains(&i));
        let stream = row.expect("every slot at hand was put into a row").stream;
        &mut self.senders[stream as usize]
    }

    /// Counts the frame in slot `i` of the batch as not sent.
    fn not_sent(&mut self, i: usize, reason: &'static str) {
        let s = self.sender_of(i);
        let weight = u64::from(s.weight);
        s.not_sent.add(reason, weight);
        *self.counters.not_sent.entry(reason).or_default() += weight;
    }

    fn drop_hand(&mut self, outlets: &mut Outlets, reason: &'static str) {
        outlets.release(self.out);
        if self.hand.done < self.hand.filled {
            self.drop_next(outlets, reason);
        }
        for i in self.hand.done..self.hand.filled {
            self.not_sent(i, reason);
        }
        self.hand.done = self.hand.filled;
    }

    /// Ends sending until streams are added: retries the batch once, and counts frames that were
    /// due before `end` and are not sent.
    pub fn settle(&mut self, turn: &mut Turn<'_>, end: Picos) {
        // Repeated after each frame that the port refuses.
        while self.hand.done < self.hand.filled && self.counters.error.is_none() && self.send(turn)
        {
        }
        let down = !turn.outlets.of(self.out).is_up();
        self.drop_hand(turn.outlets, if down { LINK_DOWN } else { "port_full" });
        let at = turn.at();
        let until = if self.clock == Clock::Virtual { Picos(0) } else { at.min(end) };
        for s in &mut self.senders {
            if s.active && s.paused.is_none() && !s.timeline.is_unpaced() {
                let late = s.due_before(until);
                // A run that is stopped from outside may leave one frame that was due at that
                // moment.
                if late > u64::from(!self.overdue) {
                    let late = late * u64::from(s.weight);
                    *self.counters.not_sent.entry(LATE).or_default() += late;
                    s.not_sent.add(LATE, late);
                }
            }
            if let Some(reason) = s.lacked.filter(|_| s.packets == 0) {
                // The verdict reports a stream that has waited for the whole run.
                s.not_sent.add(reason, 0);
            }
            s.active = false;
            // Hosts may now give their addresses back.
            s.cursor.supply = None;
        }
        self.done = true;
    }

    /// Waits until sent frames are out.
    pub fn close(&mut self, outlets: &mut Outlets) {
        let result = outlets.of_mut(self.out).finish();
        // Without a link an error is expected, because the device never sends its frames.
        if let Err(error) = result.or_else(|error| if self.down { Ok(()) } else { Err(error) }) {
            self.counters.error.get_or_insert(error.to_string());
        }
    }

    /// The port's counters, including how its schedule was kept.
    pub fn port(&self) -> PortTx {
        let pacing = Pacing::new(&self.audit);
        PortTx { pacing, ..self.counters.clone() }
    }

    /// Number of streams on this worker.
    pub fn count(&self) -> usize {
        self.senders.len()
    }

    /// Number, frames and octets with FCS of every stream.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.senders.iter().map(|s| (s.number, s.packets, s.octets))
    }

    /// Counters of the streams with these indices, with histograms if `full`.
    pub fn streams(&self, full: bool, which: Range<usize>) -> impl Iterator<Item = StreamTx> {
        let one = move |s: &Sender| StreamTx {
            number: s.number,
            packets: s.packets,
            octets: s.octets,
            not_sent: s.not_sent.clone(),
            stretched: s.stretched.as_nanos(),
            first: s.first_left,
            last: s.last_left,
            departure_error: if full { s.departure_error.clone() } else { None },
        };
        self.senders[which].iter().map(one)
    }
}

/// The index of the sender with `number`; `senders` are in the order of their numbers.
fn find(senders: &[Sender], number: u32) -> Option<usize> {
    senders.binary_search_by_key(&number, |sender| sender.number).ok()
}

/// Advances over frames that other workers send, but not beyond the end of the stream, because a
/// timeline cannot advance past its end.
fn walk(timeline: &mut Timeline, sizes: &Sizes, frames: Range<u64>) {
    for frame in frames {
        if timeline.due().is_none() {
            break;
        }
        timeline.advance(sizes.at(frame));
    }
}

impl Sender {
    /// When the next frame is due, if that is before the end of the stream.
    #[inline]
    fn due(&self) -> Option<Picos> {
        self.timeline.due().filter(|due| due.0 < self.until)
    }

    /// Sets the start of the stream (`at` plus the start delay) and its end. Returns the start.
    fn begin(&mut self, at: Picos) -> Picos {
        let begin = at.0.saturating_add(self.plan.start.0);
        self.until = self.plan.lasts.map_or(u64::MAX, |lasts| begin.saturating_add(lasts.0));
        Picos(begin)
    }

    /// Takes consecutive frames that are due before `bound` (the first in any case), at most
    /// `most`. Writes lengths and due times to the batch, from slot `n` on. Returns their number
    /// and how their due times are stored.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    fn schedule_run(
        &mut self,
        bound: u64,
        most: usize,
        budget: &mut Budget,
        hand: &mut CurrentBatch,
        meta: &mut [TxMeta],
        n: usize,
        instants: Option<Clock>,
    ) -> (usize, Due) {
        let first = self.timeline.end().0;
        let bound = bound.min(self.until);
        let most = self.most(budget, most);
        let run = match instants {
            _ if budget.octets != u64::MAX || self.walk => None,
            None => self.timeline.run_at_once(bound, most),
            Some(clock) => self.timeline.run(bound, &mut meta[..most], |m, due| {
                m.due = clock.instant(Picos(due));
            }),
        };
        if let Some((count, last)) = run {
            self.spend(budget, count);
            (hand.due[n], hand.due[n + count - 1]) = (first, last);
            self.take_lengths(&mut hand.len[n..n + count], meta);
            return (count, Due::Evenly);
        }
        let mut count = 0;
        while let Some(due) =
            self.timeline.due().filter(|due| count == 0 || (count < most && due.0 < bound))
        {
            let Some(len) = self.schedule(budget) else { break };
            meta[count].len = len;
            if let Some(clock) = instants {
                meta[count].due = clock.instant(due);
            }
            hand.due[n + count] = due.0;
            hand.len[n + count] = len;
            count += 1;
        }
        (count, Due::Each)
    }

    /// As [`Sender::schedule_run`], for frames that leave as soon as possible, up to the end of a
    /// burst.
    #[inline]
    fn schedule_unpaced(
        &mut self,
        at: Picos,
        most: usize,
        budget: &mut Budget,
        hand: &mut CurrentBatch,
        meta: &mut [TxMeta],
        n: usize,
    ) -> usize {
        match (budget.octets, self.walk) {
            (u64::MAX, false) if self.timeline.is_steady() => {
                let count = self.timeline.run_unpaced(at, self.most(budget, most));
                self.spend(budget, count);
                self.take_lengths(&mut hand.len[n..n + count], meta);
                count
            }
            _ => {
                let mut count = 0;
                // The timeline advances when a burst has ended and the next one begins after a gap.
                while count < most
                    && self.timeline.left_in_burst() != 0
                    && (count == 0 || self.timeline.end() <= at)
                {
                    self.timeline.set_due(at);
                    let Some(len) = self.schedule(budget) else { break };
                    meta[count].len = len;
                    hand.len[n + count] = len;
                    count += 1;
                }
                count
            }
        }
    }

    /// Number of frames that may be filled before `budget` is spent, at most `most`. The frame that
    /// reaches the budget is the last.
    #[inline]
    fn most(&self, budget: &Budget, most: usize) -> usize {
        if self.weight == 1 || budget.packets == u64::MAX {
            return most;
        }
        most.min(usize::try_from(budget.packets.div_ceil(self.weight.into())).unwrap_or(most))
    }

    #[inline]
    fn spend(&self, budget: &mut Budget, frames: usize) {
        if budget.packets != u64::MAX {
            budget.packets = budget.packets.saturating_sub(frames as u64 * u64::from(self.weight));
        }
    }

    /// Fills `lens` with the lengths of the next frames, and advances past them.
    #[inline]
    fn take_lengths(&mut self, lens: &mut [u32], meta: &mut [TxMeta]) {
        match self.fixed_len {
            0 => {
                self.program.sizes().fill(self.next, self.by, lens);
                meta.iter_mut().zip(&*lens).for_each(|(m, len)| m.len = *len);
            }
            len => meta.iter_mut().zip(&mut *lens).for_each(|(m, to)| (m.len, *to) = (len, len)),
        }
        self.next += self.by * lens.len() as u64;
    }

    /// Takes the next frame from budget and timeline. Returns its length, or `None` if the budget
    /// is spent.
    #[inline]
    fn schedule(&mut self, budget: &mut Budget) -> Option<u32> {
        let len = match self.fixed_len {
            0 => self.program.sizes().at(self.next),
            len => len,
        };
        if budget.packets == 0 || budget.octets == 0 {
            return None;
        }
        self.spend(budget, 1);
        if budget.octets != u64::MAX {
            let octets = if self.weight > 1 { self.wire_octets } else { len + FCS_LEN };
            budget.octets = budget.octets.saturating_sub(octets.into());
        }
        self.timeline.advance(len);
        if self.walk {
            walk(&mut self.timeline, self.program.sizes(), self.next + 1..self.next + self.by);
        }
        self.next += self.by;
        Some(len)
    }

    /// Number of frames of this share that are due before `end` and not scheduled.
    fn due_before(&self, end: Picos) -> u64 {
        // Frame by frame if the timeline is walked, because it then includes the frames of other
        // workers.
        let (step, share) = if self.walk { (1, self.by) } else { (self.by, 1) };
        let len = |k| self.program.sizes().at(self.next + k * step);
        self.timeline.due_before(end, len, MOST_COUNTED.saturating_mul(share)).div_ceil(share)
    }

    /// Whether the next frame has its hosts, if it needs any.
    fn has_host(&mut self) -> bool {
        match &mut self.cursor.supply {
            Some(supply) => supply.is_ready(),
            None => self.plan.hosts.is_none(),
        }
    }

    /// The reason why a frame does not have its hosts.
    fn lacks(&self, tables: &HostTables) -> &'static str {
        let table = |number: usize| tables.get(number).and_then(Option::as_ref);
        let has_host = |number| table(number).is_some_and(|table| table.bound() > 0);
        match &self.plan.hosts {
            Some(hosts) if hosts.learnt.is_some() && hosts.src.is_none_or(has_host) => NO_ROUTE,
            _ => NO_HOST,
        }
    }

    /// Applies the policy for late frames. Returns the number skipped; if it is above 0, the caller
    /// must check again.
    fn catch_up(&mut self, at: Picos, horizon: u64) -> u64 {
        let drops = matches!(self.late, Late::Drop | Late::Stretch);
        let Some(due) = self.timeline.due().filter(|_| drops) else { return 0 };
        let late = at.0.saturating_sub(due.0);
        let gap = (self.plan.gap.seconds(f64::from(self.program.max_len())) * 1e12) as u64;
        if late <= gap {
            return 0;
        }
        if self.late == Late::Stretch {
            self.timeline.shift(Picos(late));
            self.stretched.0 += late;
            return 0;
        }
        // A frame due after the end of the run is not late.
        self.give_up_before(Picos((at.0 - gap).min(horizon.saturating_add(1))), LATE)
    }

    /// Skips the frames that are due before `bound` and counts them under `reason`. Returns their
    /// number, at most [`MOST_SKIPPED`].
    fn give_up_before(&mut self, bound: Picos, reason: &'static str) -> u64 {
        let mut skipped = 0;
        let bound = bound.min(Picos(self.until));
        while self.timeline.due().is_some_and(|due| due < bound) && skipped < MOST_SKIPPED {
            let at_once = if self.walk { None } else { self.timeline.skip_before(bound) };
            let n = at_once.unwrap_or_else(|| {
                self.timeline.advance(self.program.sizes().at(self.next));
                if self.walk {
                    walk(
                        &mut self.timeline,
                        self.program.sizes(),
                        self.next + 1..self.next + self.by,
                    );
                }
                1
            });
            self.next += self.by * n;
            skipped += n;
        }
        // The frame's index determines all fields (ADR 0003), so the cursor can jump.
        self.program.seek(&mut self.cursor, self.next);
        self.not_sent.add(reason, skipped * u64::from(self.weight));
        skipped
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, io};

    use std::sync::Mutex;

    use squall_plan::{Placement, StreamDivision};
    use squall_port::{TxQueue, monotonic};
    use squall_program::{GapLaw, Pattern, Spec, signature::Signature};
    use squall_wire::Packet;

    use super::*;
    use crate::{clock::Watch, pacing::PortPace, source::Outlet};

    fn stream() -> PlanStream {
        let load = |path: &str| Err(io::Error::other(path.to_owned()));
        let frame = Packet::parse("eth/ipv4/udp").unwrap().build(Some(60), &load, 0).unwrap();
        let spec = Spec { frame, sizes: Sizes::fixed(60), vars: Vec::new(), signature: Some(0) };
        PlanStream {
            name: "one".into(),
            port: 0,
            group: None,
            program: Arc::new(Program::build(spec).unwrap()),
            gap: Gap::from_pps(1000, 1),
            law: GapLaw::Constant,
            pattern: Pattern::CONTINUOUS,
            seed: 0,
            sent: 0,
            start: Picos(0),
            lasts: None,
            waits: false,
            self_start: true,
            next: None,
            hosts: None,
            routes: None,
            phases: Vec::new(),
            late: Late::Smooth,
            asked_pps: Some(1000.0),
            mean_len: 64.0,
            division: StreamDivision::Here,
            placement: Placement::Worker(0),
        }
    }

    /// A queue that launches frames 1 ms after they are due, and keeps due times and signatures.
    struct Launching {
        base: Vec<u8>,
        meta: Vec<TxMeta>,
        sent: Arc<Mutex<Vec<(Nanos, Signature)>>>,
    }

    const STRIDE: usize = 64;
    const LAUNCHES_AFTER: Nanos = Nanos(1_000_000);

    impl TxQueue for Launching {
        fn lend(&mut self, want: usize) -> TxBatch<'_> {
            let n = want.min(self.meta.len());
            TxBatch { base: &mut self.base, stride: STRIDE, meta: &mut self.meta[..n] }
        }

        fn launches_after(&self) -> Nanos {
            LAUNCHES_AFTER
        }

        fn send(&mut self, n: usize) -> Result<usize, SendError> {
            let frames = self.base.chunks(STRIDE).zip(&self.meta).take(n);
            let read = |(slot, meta): (&[u8], &TxMeta)| {
                (meta.due, Signature::read(&slot[..meta.len as usize]).unwrap())
            };
            self.sent.lock().unwrap().extend(frames.map(read));
            Ok(n)
        }
    }

    #[test]
    fn launched_frames_carry_their_due_times_unless_they_are_too_late() {
        let now = monotonic();
        let clock = Clock::Real(now.saturating_sub(Nanos(20_000_000)));
        let sent = Arc::new(Mutex::new(Vec::new()));
        let queue = Launching {
            base: vec![0; BATCH * STRIDE],
            meta: vec![TxMeta::default(); BATCH],
            sent: sent.clone(),
        };
        let pace = Arc::new(PortPace::new(squall_program::clock::Planned::default()));
        let mut outlets = Outlets::default();
        outlets.add(Outlet::new(0, Box::new(queue), None, BATCH, Nanos::ZERO, pace));
        let member = outlets.join(0).unwrap();
        let mut tx = Transmitter::new(0, member, clock, BATCH, false, Arc::default());
        // The first frame was due 20 ms ago. No frame waits for the traffic clock.
        let mut plan = stream();
        plan.late = Late::CatchUp;
        tx.load(vec![(0, StreamPlan::Own(Arc::new(plan)), 0, 1)], &mut outlets, &|| false);
        let mut budget = Budget { packets: 64, octets: u64::MAX, end: Picos(u64::MAX) };
        let (mut watch, mut ended) = (Watch::new(clock), Vec::new());
        let mut turn = Turn {
            clock,
            common: CommonClock::default(),
            now,
            until: Picos(u64::MAX),
            alone: true,
            watch: &mut watch,
            budget: &mut budget,
            outlets: &mut outlets,
            ended: &mut ended,
        };
        assert!(tx.turn(&mut turn, &mut Scratch::default()));
        let sent = sent.lock().unwrap();
        let begun = now.saturating_sub(Nanos(20_000_000));
        for (k, (due, signature)) in sent.iter().enumerate() {
            let scheduled = Nanos(begun.0 + k as u64 * 1_000_000);
            assert_eq!(*due, scheduled.max(now.saturating_sub(LAUNCHES_AFTER)), "frame {k}");
            assert_eq!(signature.since(due.0), 0, "frame {k}");
        }
        assert_eq!(sent.len(), 21, "0 to 20 ms");
    }

    #[test]
    fn a_run_that_was_stopped_sets_up_no_more_streams() {
        let mut port = squall_port::open(&"null:".parse().unwrap()).unwrap().unwrap();
        let pace = Arc::new(PortPace::new(squall_program::clock::Planned::default()));
        let mut outlets = Outlets::default();
        let queue = port.open_tx(0, 60).unwrap();
        outlets.add(Outlet::new(0, queue, None, BATCH, Nanos::ZERO, pace));
        let member = outlets.join(0).unwrap();
        let mut tx = Transmitter::new(0, member, Clock::Virtual, BATCH, false, Arc::default());
        let plan = Arc::new(stream());
        let shares = (0..4000).map(|n| (n, StreamPlan::Own(plan.clone()), 0, 1)).collect();
        let asked = Cell::new(0);
        tx.load(shares, &mut outlets, &|| asked.replace(asked.get() + 1) == 2);
        assert_eq!(tx.count(), 2 * SET_UP_AT_ONCE);
        // A change of its rate gives a stream a plan of its own.
        tx.set_rate(7, Gap::from_pps(2000, 1), Picos(0));
        assert_eq!(plan.gap, Gap::from_pps(1000, 1));
        assert_eq!(tx.senders[7].plan.gap, Gap::from_pps(2000, 1));
    }
}
