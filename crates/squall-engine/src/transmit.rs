//! One port's frames on one worker: schedule, fill, send, credit.

use std::{collections::VecDeque, sync::Arc};

use squall_plan::PlanStream;
use squall_port::{BATCH, SendError, TxBatch, TxQueue};
use squall_profile::Late;
use squall_program::{Cursor, Program, Run, Scratch, Timeline};
use squall_stats::{Fingerprint, Histogram};
use squall_units::{FCS_LEN, Nanos, Picos};

use crate::{
    Clock, PortTx, StreamTx,
    groups::{Groups, Membership},
    wheel::{Entry, Wheel},
};

/// Frames counted one by one when time is up and their law has no closed form.
const MOST_COUNTED: u64 = 10_000_000;

/// What may still be sent in the whole run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub packets: u64,
    /// With FCS; the frame that reaches it is the last.
    pub octets: u64,
    /// Frames due from here on are not sent.
    pub end: Picos,
}

pub(crate) struct Transmitter {
    queue: Box<dyn TxQueue>,
    clock: Clock,
    /// Frames handed over at once.
    limit: usize,
    senders: Vec<Sender>,
    wheel: Wheel,
    /// Streams without gaps, taking turns.
    unpaced: VecDeque<u32>,
    groups: Groups,
    batch: u64,
    hand: Box<Hand>,
    blocked_since: Option<Nanos>,
    pub counters: PortTx,
    /// Time is up, or everything is sent, or the port is gone.
    pub done: bool,
}

/// The batch at hand: filled, and as far as `done` sent.
struct Hand {
    stream: [u32; BATCH],
    due: [u64; BATCH],
    len: [u32; BATCH],
    prints: [Fingerprint; BATCH],
    filled: usize,
    done: usize,
}

/// A stream, or a worker's share of it.
struct Sender {
    plan: Arc<PlanStream>,
    program: Arc<Program>,
    cursor: Cursor,
    timeline: Timeline,
    /// Index in the stream of the next frame to be scheduled, and the distance to the one after.
    next: u64,
    by: u64,
    /// Frames of other workers between ours have to be gone through.
    walk: bool,
    fixed_len: Option<u32>,
    first: u64,
    generation: u32,
    active: bool,
    paused: Option<Picos>,
    arrows_taken: u64,
    member: Membership,
    counters: StreamTx,
}

impl Transmitter {
    pub fn new(port: usize, queue: Box<dyn TxQueue>, clock: Clock, limit: usize, fingerprint: bool) -> Self {
        Self {
            queue,
            clock,
            limit: limit.clamp(1, BATCH),
            senders: Vec::new(),
            wheel: Wheel::new(0, 0.0),
            unpaced: VecDeque::new(),
            groups: Groups::default(),
            batch: 0,
            hand: Box::new(Hand {
                stream: [0; BATCH],
                due: [0; BATCH],
                len: [0; BATCH],
                prints: [Fingerprint::default(); BATCH],
                filled: 0,
                done: 0,
            }),
            blocked_since: None,
            counters: PortTx { port, fingerprint: fingerprint.then(Fingerprint::default), ..PortTx::default() },
            done: false,
        }
    }

    /// Takes the streams of the plan: (number in the plan, stream, first frame, distance).
    pub fn load(&mut self, streams: Vec<(u32, Arc<PlanStream>, u64, u64)>) {
        let pps = streams.iter().filter_map(|s| Some(s.1.asked_pps? / s.3 as f64)).sum();
        self.wheel = Wheel::new(streams.len(), pps);
        for (number, plan, first, by) in streams {
            let i = self.take(number, plan, first, by);
            if self.senders[i].plan.self_start {
                self.start(i, Picos(0));
            }
        }
    }

    fn take(&mut self, number: u32, plan: Arc<PlanStream>, first: u64, by: u64) -> usize {
        let program = plan.program.clone();
        self.senders.push(Sender {
            cursor: program.cursor(first, by, number + 1),
            timeline: plan.timeline(Picos(0)),
            next: first,
            by,
            walk: false,
            fixed_len: program.sizes().only(),
            first,
            generation: 0,
            active: false,
            paused: None,
            arrows_taken: 0,
            member: Membership::default(),
            counters: StreamTx { number, ..StreamTx::default() },
            plan,
            program,
        });
        self.senders.len() - 1
    }

    /// A stream added while running: begins at `now` plus its start delay.
    pub fn add(&mut self, number: u32, plan: Arc<PlanStream>, now: Picos) {
        let i = self.take(number, plan, 0, 1);
        self.done = false;
        self.start(i, now);
    }

    /// Starts stream `i` (by place here), `at` plus its start delay.
    fn start(&mut self, i: usize, at: Picos) {
        let s = &mut self.senders[i];
        if s.active {
            return;
        }
        let whole = s.plan.timeline(Picos(at.0 + s.plan.start.0));
        (s.timeline, s.walk) = match (s.by, whole.clone().share(s.first, s.by)) {
            (1, _) => (whole, false),
            (_, Some(share)) => (share, false),
            (_, None) => {
                let mut walked = whole;
                (0..s.first).for_each(|k| walked.advance(s.program.sizes().at(k)));
                (walked, true)
            }
        };
        s.active = true;
        self.enqueue(i);
    }

    fn enqueue(&mut self, i: usize) {
        let s = &mut self.senders[i];
        match s.timeline.due() {
            Some(due) if s.paused.is_none() => {
                self.wheel.push(Entry { due: due.0, stream: i as u32, generation: s.generation });
            }
            _ => {}
        }
    }

    /// Whether stream `number` is here.
    fn find(&self, number: u32) -> Option<usize> {
        self.senders.iter().position(|s| s.counters.number == number)
    }

    /// Takes the stream out of every queue; entries in the wheel become stale.
    fn dequeue(&mut self, i: usize) {
        self.senders[i].generation += 1;
        self.unpaced.retain(|&u| u as usize != i);
    }

    pub fn pause(&mut self, number: Option<u32>, now: Picos) {
        for i in 0..self.senders.len() {
            let s = &mut self.senders[i];
            if number.is_none_or(|n| n == s.counters.number) && s.active && s.paused.is_none() {
                s.paused = Some(now);
                self.dequeue(i);
            }
        }
    }

    pub fn resume(&mut self, number: Option<u32>, now: Picos) {
        for i in 0..self.senders.len() {
            let s = &mut self.senders[i];
            if number.is_some_and(|n| n != s.counters.number) {
                continue;
            }
            if let Some(since) = s.paused.take() {
                s.timeline.shift(Picos(now.0.saturating_sub(since.0)));
                self.enqueue(i);
            }
        }
    }

    pub fn remove(&mut self, number: u32) {
        if let Some(i) = self.find(number) {
            self.dequeue(i);
            self.senders[i].active = false;
        }
    }

    /// From the next gap on; a stream that had no gaps gets its first now.
    pub fn set_rate(&mut self, number: u32, gap: squall_program::Gap, now: Picos) {
        let Some(i) = self.find(number) else { return };
        let was_unpaced = self.senders[i].timeline.is_unpaced();
        let s = &mut self.senders[i];
        let shared = match gap {
            squall_program::Gap::PerFrame { num, den } if !s.walk => {
                squall_program::Gap::PerFrame { num: num.saturating_mul(s.by), den }
            }
            other => other,
        };
        s.timeline.set_gap(shared);
        if s.active && (was_unpaced || s.timeline.is_unpaced()) {
            s.timeline.set_due(now);
            self.dequeue(i);
            self.enqueue(i);
        }
    }

    /// When something is to be done next; `None`: never, as it stands.
    pub fn next_due(&mut self, end: Picos) -> Option<Picos> {
        if self.hand.done < self.hand.filled || !self.unpaced.is_empty() {
            return Some(Picos(0));
        }
        self.wheel.next_due().filter(|&due| due < end.0).map(Picos)
    }

    fn is_idle(&self) -> bool {
        self.senders.iter().all(|s| s.paused.is_none())
    }

    /// One round: what is at hand and what is due. `now` is the clock's; returns whether frames moved.
    pub fn turn(&mut self, now: Nanos, budget: &mut Budget, scratch: &mut Scratch) -> bool {
        if self.hand.done < self.hand.filled {
            let moved = self.send();
            if self.hand.done < self.hand.filled || self.done {
                return moved;
            }
        }
        let at = self.clock.since_start(now);
        let horizon = match self.clock {
            Clock::Real(start) if now < start => return false,
            Clock::Real(_) => at.0.min(budget.end.0.saturating_sub(1)),
            Clock::Virtual => budget.end.0.saturating_sub(1),
        };
        if self.wheel.bound() > horizon && self.unpaced.is_empty() {
            self.finish_if_over(at, budget);
            return false;
        }
        self.schedule_and_fill(now, at, horizon, budget, scratch);
        if self.hand.filled == 0 {
            self.finish_if_over(at, budget);
            return false;
        }
        self.send();
        true
    }

    fn finish_if_over(&mut self, at: Picos, budget: &Budget) {
        let time_is_up = self.clock != Clock::Virtual && at >= budget.end;
        let spent = budget.packets == 0 || budget.octets == 0;
        let nothing = self.next_due(budget.end).is_none() && self.is_idle();
        if time_is_up || spent || nothing {
            self.done = true;
        }
    }

    fn schedule_and_fill(&mut self, now: Nanos, at: Picos, horizon: u64, budget: &mut Budget, scratch: &mut Scratch) {
        (self.hand.filled, self.hand.done) = (0, 0);
        self.groups.clear();
        self.batch += 1;
        let most = self.limit.min(usize::try_from(budget.packets).unwrap_or(usize::MAX));
        let batch = self.queue.lend(most);
        let most = batch.len();
        let mut n = 0;
        while n < most && budget.octets > 0 {
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
            if s.plan.late != Late::CatchUp && !s.catch_up(at) {
                Self::go_on(&mut self.senders, &mut self.wheel, i);
                continue;
            }
            let first = n;
            let bound = self.wheel.bound().min(horizon.saturating_add(1));
            let mut due = s.timeline.end().0;
            while let Some(len) = s.schedule(budget) {
                let meta = &mut batch.meta[n];
                meta.len = len;
                meta.due = self.clock.instant(Picos(due));
                self.hand.due[n] = due;
                self.hand.len[n] = len;
                self.hand.stream[n] = entry.stream;
                n += 1;
                match s.timeline.due() {
                    Some(next) if next.0 < bound && n < most => due = next.0,
                    _ => break,
                }
            }
            self.groups.add(self.batch, &mut s.member, entry.stream, first, n - first);
            Self::go_on(&mut self.senders, &mut self.wheel, i);
        }
        let turns = self.unpaced.len();
        for _ in 0..turns {
            let Some(stream) = self.unpaced.pop_front().filter(|_| n < most && at < budget.end) else { break };
            let i = stream as usize;
            let s = &mut self.senders[i];
            let first = n;
            let quota = (most / turns).max(1).min(most - n);
            while n - first < quota && s.timeline.left_in_burst() != 0 {
                s.timeline.set_due(at);
                let Some(len) = s.schedule(budget) else { break };
                batch.meta[n].len = len;
                batch.meta[n].due = now;
                self.hand.due[n] = u64::MAX;
                self.hand.len[n] = len;
                self.hand.stream[n] = stream;
                n += 1;
                // A burst has ended, and the next begins after a gap.
                if s.timeline.end() > at {
                    break;
                }
            }
            if n > first {
                self.groups.add(self.batch, &mut s.member, stream, first, n - first);
            }
            if s.timeline.end() <= at && s.timeline.due().is_some() {
                self.unpaced.push_back(stream);
            } else {
                Self::go_on(&mut self.senders, &mut self.wheel, i);
            }
        }
        self.hand.filled = n;
        let stamp = (self.clock != Clock::Virtual).then_some(now);
        let TxBatch { base, stride, meta } = batch;
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
                self.hand.prints[i] = Fingerprint::default();
                self.hand.prints[i].add(&slot[..self.hand.len[i] as usize]);
            }
        }
    }

    /// Behind a frame: back into the wheel, or the stream has ended and the one it names begins.
    fn go_on(senders: &mut [Sender], wheel: &mut Wheel, i: usize) {
        let s = &mut senders[i];
        if let Some(due) = s.timeline.due() {
            return wheel.push(Entry { due: due.0, stream: i as u32, generation: s.generation });
        }
        s.active = false;
        let end = s.timeline.end();
        let Some(next) = s.plan.next.filter(|n| n.times.is_none_or(|times| s.arrows_taken < times)) else { return };
        s.arrows_taken += 1;
        let Some(j) = senders.iter().position(|t| t.counters.number as usize == next.stream) else { return };
        let t = &mut senders[j];
        if t.active {
            return;
        }
        t.active = true;
        t.timeline = t.plan.timeline(Picos(end.0 + t.plan.start.0));
        wheel.push(Entry { due: t.timeline.end().0, stream: j as u32, generation: t.generation });
    }

    fn send(&mut self) -> bool {
        let before = self.clock.now();
        let wanted = self.hand.filled - self.hand.done;
        match self.queue.send(wanted) {
            Ok(sent) => {
                let after = self.clock.now();
                self.account_blocked(before, sent < wanted);
                self.credit(sent, before, after);
                sent > 0
            }
            Err(SendError::Frame(reason)) => {
                let i = self.hand.done;
                *self.counters.not_sent.entry(reason).or_default() += 1;
                self.counters.errors += 1;
                *self.senders[self.hand.stream[i] as usize].counters.not_sent.entry(reason).or_default() += 1;
                self.hand.done += 1;
                true
            }
            Err(SendError::Port(error)) => {
                self.counters.error = Some(error.to_string());
                self.drop_hand("port_lost");
                self.done = true;
                false
            }
        }
    }

    fn account_blocked(&mut self, now: Nanos, blocked: bool) {
        match (self.blocked_since, blocked) {
            (None, true) => self.blocked_since = Some(now),
            (Some(since), _) => {
                self.counters.blocked = self.counters.blocked + now.saturating_sub(since);
                self.blocked_since = blocked.then_some(now);
            }
            (None, false) => {}
        }
    }

    /// The port has taken the next `sent` frames, between `before` and `after`.
    #[inline]
    fn credit(&mut self, sent: usize, before: Nanos, after: Nanos) {
        let (from, to) = (self.hand.done, self.hand.done + sent);
        self.hand.done = to;
        if sent == 0 {
            return;
        }
        // Frames of one hand-over left one after the other: each is given its share of the time it took.
        let (first, took) = (self.clock.since_start(before).0, self.clock.since_start(after).0);
        let each = (took - first) / sent as u64;
        let mut octets_of_all = 0;
        let mut i = from;
        while i < to {
            let stream = self.hand.stream[i];
            let counters = &mut self.senders[stream as usize].counters;
            let (begin, mut octets) = (i, 0);
            while i < to && self.hand.stream[i] == stream {
                octets += u64::from(self.hand.len[i] + FCS_LEN);
                let due = self.hand.due[i];
                if due != u64::MAX && self.clock != Clock::Virtual {
                    let left = first + each * (i - from + 1) as u64;
                    counters.departure_error.record(left.saturating_sub(due) / 1000);
                }
                i += 1;
            }
            counters.packets += (i - begin) as u64;
            counters.octets += octets;
            octets_of_all += octets;
            let last = if self.clock == Clock::Virtual { self.clock.instant(Picos(self.hand.due[i - 1])) } else { after };
            counters.first.get_or_insert(if self.clock == Clock::Virtual {
                self.clock.instant(Picos(self.hand.due[begin]))
            } else {
                before
            });
            counters.last = last;
            self.counters.last = last;
        }
        self.counters.packets += sent as u64;
        self.counters.octets += octets_of_all;
        if let Some(fingerprint) = &mut self.counters.fingerprint {
            self.hand.prints[from..to].iter().for_each(|p| fingerprint.merge(*p));
        }
    }

    fn drop_hand(&mut self, reason: &'static str) {
        for i in self.hand.done..self.hand.filled {
            *self.counters.not_sent.entry(reason).or_default() += 1;
            *self.senders[self.hand.stream[i] as usize].counters.not_sent.entry(reason).or_default() += 1;
        }
        self.hand.done = self.hand.filled;
    }

    /// The end: what is at hand gets one more chance, what was due and is not sent is counted, the port finishes.
    pub fn finish(&mut self, now: Nanos, end: Picos) {
        if self.hand.done < self.hand.filled && self.counters.error.is_none() {
            self.send();
        }
        self.drop_hand("port_full");
        let at = self.clock.since_start(now);
        let until = if self.clock == Clock::Virtual { Picos(0) } else { at.min(end) };
        for s in &mut self.senders {
            if s.active && s.paused.is_none() && !s.timeline.is_unpaced() {
                // One gap of grace: the frame due at the very end is not late.
                let late = s.timeline.due_before(until, s.program.max_len(), MOST_COUNTED);
                if late > 1 {
                    *self.counters.not_sent.entry("late").or_default() += late;
                    *s.counters.not_sent.entry("late").or_default() += late;
                }
            }
            s.active = false;
        }
        if let Err(error) = self.queue.finish() {
            self.counters.error.get_or_insert(error.to_string());
        }
        self.done = true;
    }

    /// Counters of every stream here; without `full`, no histograms.
    pub fn streams(&self, full: bool) -> Vec<StreamTx> {
        self.senders.iter().map(|s| if full { s.counters.clone() } else { s.counters.light() }).collect()
    }
}

impl Sender {
    /// Takes the next frame from budget and timeline and gives its length; `None` when the budget is spent.
    #[inline]
    fn schedule(&mut self, budget: &mut Budget) -> Option<u32> {
        let len = match self.fixed_len {
            Some(len) => len,
            None => self.program.sizes().at(self.next),
        };
        if budget.packets == 0 || budget.octets == 0 {
            return None;
        }
        budget.packets -= u64::from(budget.packets != u64::MAX);
        if budget.octets != u64::MAX {
            budget.octets = budget.octets.saturating_sub(u64::from(len + FCS_LEN));
        }
        self.timeline.advance(len);
        if self.walk {
            for k in self.next + 1..self.next + self.by {
                self.timeline.advance(self.program.sizes().at(k));
            }
        }
        self.next += self.by;
        Some(len)
    }

    /// Applies the policy for late frames; `false`: frames were skipped, look again.
    fn catch_up(&mut self, at: Picos) -> bool {
        let Some(due) = self.timeline.due() else { return true };
        let late = at.0.saturating_sub(due.0);
        let gap = (self.plan.gap.seconds(f64::from(self.program.max_len())) * 1e12) as u64;
        if late <= gap {
            return true;
        }
        if self.plan.late == Late::Stretch {
            self.timeline.shift(Picos(late));
            return true;
        }
        let mut skipped = 0;
        while self.timeline.due().is_some_and(|d| d.0 + gap < at.0) && skipped < MOST_COUNTED {
            let len = self.program.sizes().at(self.next);
            self.timeline.advance(len);
            if self.walk {
                (self.next + 1..self.next + self.by).for_each(|k| self.timeline.advance(self.program.sizes().at(k)));
            }
            self.next += self.by;
            skipped += 1;
        }
        self.cursor = self.program.cursor(self.next, self.by, self.counters.number + 1);
        *self.counters.not_sent.entry("late").or_default() += skipped;
        false
    }
}

impl StreamTx {
    fn light(&self) -> Self {
        Self {
            number: self.number,
            packets: self.packets,
            octets: self.octets,
            not_sent: self.not_sent.clone(),
            first: self.first,
            last: self.last,
            departure_error: Histogram::default(),
        }
    }
}
