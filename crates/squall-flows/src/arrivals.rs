//! Arrivals: when each template begins a flow.
//!
//! In an open loop each worker iterates over all arrivals and takes those whose flows are its own,
//! according to the caller's [`IsOwn`]. The schedule then does not depend on the number of workers.
//! The users of a closed loop are divided among the workers by number.
//!
//! An open loop's arrival times are computed without the ramp, in whole picoseconds and a fraction
//! ([`Timeline`]), and then mapped to the times at which the load's [`Shape`] has admitted as much:
//! no rounding error accumulates, and a Poisson process stays one. A template's own stages start
//! with the template, the load's shape with the load.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use squall_program::{
    Shape, Timeline,
    pace::{Audit, Pacing},
};
use squall_units::{Nanos, Picos, mix};

use crate::{
    Arrival, Cps, Load, Script, Spacing, Target, Think,
    load::Template,
    side::{Part, WorkerIndex},
};

/// Decides whether a flow belongs to this worker, from its template and its number in the template
/// over all workers.
pub(crate) trait IsOwn: Fn(usize, u64) -> bool {}

impl<F: Fn(usize, u64) -> bool> IsOwn for F {}

/// One worker's share of the arrivals of a load.
#[derive(Debug)]
pub(crate) struct Arrivals {
    lines: Vec<Line>,
    start: Nanos,
    /// Exclusive: nothing is due at or after this time.
    end: Nanos,
    max_delay: Nanos,
    /// Number of flows that may still begin: over all workers if `shared`, otherwise on this one.
    /// Conversations of a script do not count.
    left: u64,
    /// Whether every loop is open. If so, this worker knows the arrivals of the others.
    shared: bool,
    stopped: bool,
    /// This worker's number, and the number of workers.
    seat: (u64, u64),
    steering: Option<Steering>,
    /// Per template: number of flows that may still begin (over all workers if its loop is open),
    /// and of arrivals that were given up.
    template_left: Vec<u64>,
    late: Vec<u64>,
    next: Next,
    /// The lag of the arrival clock against real time (ADR 0050): after a stall the schedule slips,
    /// because a burst would overflow the queues of a device.
    lag: Nanos,
    /// Audits the arrivals of scheduled lines only, because a user has no due time to be late for.
    audit: Audit,
    /// Per template: the closed loop or script that begins its flows.
    closed: Vec<Option<usize>>,
    /// Whether the only line is a closed loop with one template, without an end of its own, whose
    /// users are all present: only their ready times matter.
    steady: bool,
}

/// The next due line and its time, separately for scheduled lines and for closed loops. Closed
/// loops have no schedule: after a stall there is nothing to catch up.
#[derive(Debug, Default)]
struct Next {
    scheduled: Option<(Nanos, usize)>,
    ready: Option<(Nanos, usize)>,
}

/// A flow that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub template: usize,
    /// Its 0-based number within the template, over all workers.
    pub number: u64,
    /// When it was due. In a closed loop: when its user was ready, in real time, because no
    /// schedule required it earlier.
    pub at: Nanos,
}

/// A source of arrivals.
#[derive(Debug)]
struct Line {
    /// Its template; for a target of open flows, all templates with a weight, each with the running
    /// sum of weights.
    templates: Vec<(u64, usize)>,
    kind: Kind,
    /// The next flow's number, and the step to the following one; in an open loop, over all
    /// workers.
    number: u64,
    by: u64,
    /// Per template: the next flow's number and the step. Empty if it has only one template.
    of_template: Vec<(u64, u64)>,
    seed: u64,
    due: Option<Nanos>,
    /// When it was paused.
    paused: Option<Nanos>,
    /// Whether it is idle until [`Arrivals::begin`].
    waits: bool,
    /// Its start, relative to the load's or to the event that it waited for.
    begin: Nanos,
    /// Its ramps and stages, and the time from which they count.
    shape: Shape,
    origin: Nanos,
    own_shape: bool,
    /// Its exclusive end, `lasts` after its start.
    until: Nanos,
    lasts: Option<Nanos>,
    /// Whether no further flow is due.
    ended: bool,
}

#[derive(Debug)]
enum Kind {
    /// `cps` arrivals per second outside of ramps.
    Open {
        timeline: Timeline,
        cps: f64,
    },
    Closed(Users),
    Script(Scripted),
}

/// A worker's conversations of a [`Script`].
#[derive(Debug)]
struct Scripted {
    own: Vec<ScriptEntry>,
    /// Over all workers.
    total: u64,
    next: usize,
    /// The current loop, 0-based; the number of loops; the start of the current one; and its
    /// shortest duration.
    turn: u64,
    loops: u64,
    base: Nanos,
    period: Nanos,
    open: u64,
    at_once: u64,
}

/// The start of a conversation.
#[derive(Debug)]
struct ScriptEntry {
    begin: Nanos,
    conversation: u64,
    template: usize,
}

/// The users of a closed loop.
#[derive(Debug)]
struct Users {
    ready: Ready,
    think: Think,
    /// Number of users present, and the maximum.
    here: u64,
    share: u64,
    /// No user joins before this time (in the time of the line's shape).
    since: Nanos,
    /// Number of users over all workers; this worker has users `first`, `first + by` ...
    total: u64,
    first: u64,
    /// Number of think times drawn so far, which is the index of the next draw.
    thoughts: u64,
}

/// The times at which users are ready again.
#[derive(Debug)]
enum Ready {
    /// With equal think times, users are ready in the order of insertion, so a queue suffices; a
    /// heap would cost more per flow.
    InOrder(VecDeque<Nanos>),
    Any(BinaryHeap<Reverse<Nanos>>),
}

/// Adjusts the rate of new flows to reach a bandwidth.
#[derive(Debug)]
struct Steering {
    bits_per_second: u64,
    /// Octets per flow, smoothed; 0: unknown.
    octets_per_flow: f64,
    cps: f64,
    at: Nanos,
    octets: u64,
    begun: u64,
}

/// Arrivals searched per worker for the next one that is this worker's. If none is, the worker
/// wakes up early once and continues the search. With n workers 16 n misses in a row have a
/// probability below e^-16, so a longer search would save hardly any wake-ups.
const SEARCHED_AHEAD: u64 = 16;
/// Up to this number, overdue arrivals are counted exactly in running reports; above it, a worker's
/// share is estimated, because each arrival costs a hash of its tuple.
const MAX_EXACT: u64 = 10_000;
/// Long enough for the octets of several flows at [`FIRST_CPS`], because each interval measures the
/// size of a flow; short compared with the ramps of a load (ADR 0025).
const STEER_EVERY: Nanos = Nanos(100_000_000);
/// The rate until the first octets reveal the size of a flow. Low, because flows of unknown size
/// would otherwise exceed the target bandwidth.
const FIRST_CPS: f64 = 100.0;
/// Limit for flows that carry hardly any data: a target bandwidth would need an unbounded number of
/// them.
const MAX_CPS: f64 = 1e8;

impl Arrivals {
    /// The arrivals of `part` for the worker at `seat`; the load starts at `start`.
    pub fn new(load: &Load, part: Part, seat: WorkerIndex, start: Nanos) -> Self {
        let (worker, workers) = seat.among();
        let is_open = |arrival: &Arrival| is_open(arrival, load.target);
        let of_part = load.templates[..load.own_templates()].iter().enumerate();
        let own: Vec<(usize, &Template)> =
            of_part.filter(|(number, _)| part.has(load, *number)).collect();
        let shared = own.iter().all(|(_, t)| {
            is_open(&t.arrival) || matches!(t.arrival, Arrival::Called | Arrival::None)
        });
        let users = |(_, template): &(usize, &Template)| users(template, load.target, workers);
        let most_users = own.iter().map(users).max().unwrap_or(workers);
        let mut arrivals = Self {
            lines: Vec::new(),
            start,
            end: end_of(load, start),
            max_delay: load.max_delay,
            left: load
                .limits
                .flows
                .map_or(u64::MAX, |total| flows_left(total, shared, most_users, (worker, workers))),
            shared,
            stopped: false,
            seat: (worker, workers),
            steering: None,
            template_left: load
                .templates
                .iter()
                .map(|template| left_of(template, load.target, (worker, workers)))
                .collect(),
            late: vec![0; load.templates.len()],
            next: Next::default(),
            lag: Nanos::ZERO,
            audit: Audit::new(0.0),
            closed: vec![None; load.templates.len()],
            steady: false,
        };
        let mut cps = None;
        match load.target {
            Some(Target::Cps(total)) => cps = Some(total),
            Some(Target::Bandwidth(bits_per_second)) => {
                cps = Some(Cps::from_f64(FIRST_CPS));
                arrivals.steering = Some(Steering {
                    bits_per_second: bits_per_second / workers,
                    octets_per_flow: 0.0,
                    cps: FIRST_CPS / workers as f64,
                    at: start,
                    octets: 0,
                    begun: 0,
                });
            }
            Some(Target::Active(flows)) if !own.is_empty() => {
                arrivals.lines.push(Line::active(load, flows, (worker, workers), start));
            }
            Some(Target::Active(_)) | None => {}
        }
        for (i, template) in own {
            let of = (template, template.waits);
            arrivals.lines.extend(Line::of(of, i, cps, (load, start), (worker, workers)));
        }
        for (number, script) in load.scripts.iter().enumerate() {
            if part.has_script(number) {
                arrivals.lines.push(Line::script(script, seat));
            }
        }
        (0..arrivals.lines.len()).for_each(|i| arrivals.take_in(i));
        arrivals.keep_to_rates();
        arrivals
    }

    /// Schedules line `i`, which is new.
    fn take_in(&mut self, i: usize) {
        let line = &self.lines[i];
        if !line.gives_up() {
            line.templates.iter().for_each(|(_, template)| self.closed[*template] = Some(i));
        }
        self.schedule(i);
    }

    /// Adds the new templates of `load` that are in `part`; they wait for [`Arrivals::begin`], so
    /// that all sides have their servers before the first flow. Ends the lines of removed templates.
    pub fn join(&mut self, load: &Load, part: Part) {
        let known = self.late.len();
        if known < load.templates.len() {
            // A load with a limit of flows admits no new templates ([`Load::can_become`]).
            (self.stopped, self.left) = (false, u64::MAX);
        }
        for (i, template) in load.templates.iter().enumerate().skip(known) {
            self.template_left.push(left_of(template, load.target, self.seat));
            self.late.push(0);
            self.closed.push(None);
            let line = Line::of((template, true), i, None, (load, self.start), self.seat);
            let Some(line) = line.filter(|_| part.has(load, i)) else { continue };
            self.lines.push(line);
            self.take_in(self.lines.len() - 1);
        }
        for i in 0..self.lines.len() {
            let line = &mut self.lines[i];
            let is_gone = |(_, template): &(u64, usize)| load.templates[*template].gone;
            // A script's templates are never removed.
            if !line.ended && !line.is_script() && line.templates.iter().all(is_gone) {
                line.ended = true;
                self.schedule(i);
            }
        }
        self.keep_to_rates();
    }

    /// The next time at which a flow may begin, if any is scheduled. Arrivals of other workers are
    /// skipped, up to a bound.
    #[inline]
    pub fn next_due(&self, is_own: impl IsOwn) -> Option<Nanos> {
        let scheduled = match self.seat.1 {
            1 => self.next.scheduled.map(|(due, _)| due),
            _ => self.next_own(is_own),
        };
        scheduled.into_iter().chain(self.next.ready.map(|(due, _)| due)).min()
    }

    /// When the worker's next scheduled flow is due, or a time shortly before. Skipping an arrival
    /// of another worker costs some 20 ns (ADR 0040), less than a wake-up for it.
    fn next_own(&self, is_own: impl IsOwn) -> Option<Nanos> {
        self.next.scheduled?;
        let scheduled = self.lines.iter().filter(|line| line.is_scheduled());
        let due = scheduled.filter_map(|line| match &line.kind {
            Kind::Open { timeline, .. } => {
                line.due?;
                let (mut timeline, mut number) = (timeline.clone(), line.number);
                for _ in 0..SEARCHED_AHEAD * self.seat.1 {
                    if is_own(line.template(number), number) {
                        break;
                    }
                    timeline.advance(0);
                    number += line.by;
                }
                line.at(timeline.due()?)
            }
            _ => line.due,
        });
        due.min()
    }

    /// How well the schedule of arrivals was kept.
    pub fn pacing(&self) -> Pacing {
        Pacing { lag: self.lag, ..Pacing::new(&self.audit) }
    }

    /// Sets the lag of the arrival clock against real time.
    pub fn set_lag(&mut self, lag: Nanos) {
        self.lag = lag;
    }

    /// Starts a template that waited; its `start` counts from `at`.
    pub fn begin(&mut self, at: Nanos, template: usize) {
        for i in 0..self.lines.len() {
            let line = &mut self.lines[i];
            if !line.waits || !line.is_of(Some(template)) {
                continue;
            }
            line.waits = false;
            line.begin = at.max(self.start).saturating_sub(self.start) + line.begin;
            line.move_to_begin(self.start);
            if let Some(since) = &mut line.paused {
                *since = (*since).max(self.start + line.begin);
            }
            self.schedule(i);
        }
    }

    /// Whether no flow of a template will begin any more.
    pub fn over_of(&self, now: Nanos, template: usize) -> bool {
        let has = |line: &&Line| line.templates.iter().any(|(_, own)| *own == template);
        now >= self.end
            || self.stopped
            || self.left == 0
            || self.template_left[template] == 0
            || self.lines.iter().filter(has).all(|line| line.is_over(&self.template_left))
    }

    /// Whether no flow will begin any more.
    pub fn over(&self, now: Nanos) -> bool {
        let none_left = self.left == 0;
        let over =
            |line: &Line| (none_left && !line.is_script()) || line.is_over(&self.template_left);
        now >= self.end || self.stopped || self.lines.iter().all(over)
    }

    /// Ends all arrivals. Those due by `now` that did not begin are late. They are counted exactly,
    /// because each arrival must be in one counter at the end.
    pub fn stop(&mut self, now: Nanos, is_own: impl IsOwn) {
        let overdue = self.overdue_of(now, is_own, true);
        self.late.iter_mut().zip(overdue).for_each(|(late, overdue)| *late += overdue);
        (self.left, self.stopped, self.next) = (0, true, Next::default());
        self.steady = false;
    }

    /// The time from which on no flow is due.
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// Per template: number of flows that were due by `now`, but have neither begun nor been given
    /// up.
    pub fn overdue(&self, now: Nanos, is_own: impl IsOwn) -> Vec<u64> {
        self.overdue_of(now, is_own, false)
    }

    /// Large numbers are estimated if `exact` is false.
    fn overdue_of(&self, now: Nanos, is_own: impl IsOwn, exact: bool) -> Vec<u64> {
        let mut overdue = vec![0; self.late.len()];
        let (mut left, mut of_all) = (self.left, vec![0; self.late.len()]);
        // The end itself is exclusive.
        let before = Nanos(now.0.saturating_add(1)).min(self.end);
        for line in self.lines.iter().filter(|line| line.due.is_some_and(|due| due < before)) {
            // This worker's limit does not apply to the arrivals of the others.
            let here = line.is_open() && !self.shared;
            let most = if line.is_script() || here { u64::MAX } else { left };
            let due = line.due_before(before.min(line.until), self.start).min(most);
            match line.templates[..] {
                [(_, only)] => {
                    let due = due.min(self.template_left[only]);
                    let own = match !exact && self.seat.1 > 1 && due > MAX_EXACT {
                        true if line.is_open() => due / self.seat.1,
                        _ => self.own(line, line.number, due, &is_own),
                    };
                    let own = if here { own.min(left) } else { own };
                    overdue[only] += own;
                    left -= if here { own } else { 0 };
                }
                _ => (0..due).for_each(|k| {
                    let template = line.template_ahead(k);
                    of_all[template] += 1;
                    overdue[template] +=
                        u64::from(of_all[template] <= self.template_left[template]);
                }),
            }
            left -= if most == u64::MAX { 0 } else { due };
        }
        overdue
    }

    /// Number of a template's arrivals that were given up so far.
    pub fn late(&self, template: usize) -> u64 {
        self.late[template]
    }

    /// The next flow that is due by `now` on the arrival clock. An arrival that has waited longer
    /// than the load's maximum delay, in real time, is given up.
    #[inline]
    pub fn take(&mut self, now: Nanos, is_own: impl IsOwn) -> Option<Due> {
        if self.steady {
            return self.take_ready(now);
        }
        let real = now + self.lag;
        loop {
            let is_due = |(at, _): &(Nanos, usize)| *at <= now;
            let (ready, scheduled) =
                (self.next.ready.filter(is_due), self.next.scheduled.filter(is_due));
            let (at, i) = ready.into_iter().chain(scheduled).min()?;
            if real.saturating_sub(at) > self.max_delay && self.lines[i].gives_up() {
                // All overdue arrivals at once: a backlog that is worked off one by one would delay
                // every later arrival, and the generator would collapse beyond its limit (ADR
                // 0025).
                self.give_up(i, real, &is_own);
                continue;
            }
            let line = &mut self.lines[i];
            let template = line.template(line.number);
            let number = line.number_of(template);
            let (scripted, others) =
                (line.is_script(), line.is_open() && !is_own(template, number));
            // The worker slept through other workers' arrivals, so their delay is not a pacing
            // error.
            let paced = line.is_scheduled() && !others;
            line.advance();
            let may = self.template_left[template] > 0;
            if may {
                self.template_left[template] -= 1;
                let counts = !scripted && (self.shared || !others);
                self.left -= u64::from(self.left != u64::MAX && counts);
            } else if let line @ Line { kind: Kind::Closed(_), .. } = &mut self.lines[i]
                && line.templates.len() > 1
            {
                // The drawn template has no flows left: the user draws again.
                let seed = line.seed;
                if let Kind::Closed(users) = &mut line.kind {
                    users.think(seed, now);
                }
            }
            self.schedule(i);
            if may && paced {
                let since = |at: Nanos| Picos::from(at.saturating_sub(self.start)).0;
                // Audited in real time, including the lag, because to a device a schedule that is
                // late as a whole looks like a punctual one (ADR 0050).
                self.audit.left(since(real), since(at), 1);
            }
            if may && !others {
                let at = if paced { at } else { at + self.lag };
                return Some(Due { template, number, at });
            }
        }
    }

    /// [`Arrivals::take`] of a steady closed loop.
    #[inline]
    fn take_ready(&mut self, now: Nanos) -> Option<Due> {
        let (at, i) = self.next.ready.filter(|(at, _)| *at <= now)?;
        let line = &mut self.lines[i];
        let Kind::Closed(users) = &mut line.kind else { return None };
        let ((_, template), number) = (line.templates[0], line.number);
        line.number += line.by;
        users.ready.pop();
        line.due = users.ready.first().filter(|due| *due < self.end);
        self.next.ready = line.due.map(|due| (due, i));
        let left = &mut self.template_left[template];
        *left -= 1;
        self.left -= u64::from(self.left != u64::MAX);
        if self.left.min(*left) <= 1 {
            self.schedule(i);
        }
        Some(Due { template, number, at: at + self.lag })
    }

    /// Records that a flow has ended, or could not begin: its user thinks before the next one.
    #[inline]
    pub fn ended(&mut self, template: usize, now: Nanos) {
        let Some(i) = self.closed[template] else { return };
        let line = &mut self.lines[i];
        if self.steady
            && let Kind::Closed(users) = &mut line.kind
        {
            let ready = users.think(line.seed, now);
            if line.due.is_none_or(|due| ready < due) {
                line.due = users.ready.first().filter(|due| *due < self.end);
                self.next.ready = line.due.map(|due| (due, i));
            }
            return;
        }
        match &mut line.kind {
            Kind::Open { .. } => {}
            // On a falling ramp, users leave when their flow has ended, rather than abort it.
            Kind::Closed(users)
                if users.here > users.asked(&line.shape, line.origin, now, line.by) =>
            {
                users.here -= 1;
                users.since = now.saturating_sub(line.origin);
            }
            Kind::Closed(users) => _ = users.think(line.seed, now),
            Kind::Script(script) => script.ended(now.saturating_sub(self.start)),
        }
        self.schedule(i);
    }

    /// Adjusts the rate to a target bandwidth. `octets`: octets of application data and number of
    /// begun flows so far.
    pub fn steer(&mut self, now: Nanos, octets: impl FnOnce() -> (u64, u64)) {
        let Some(steering) =
            self.steering.as_mut().filter(|s| now.saturating_sub(s.at) >= STEER_EVERY)
        else {
            return;
        };
        let (octets, begun) = octets();
        steering.measure(now, octets, begun);
        let cps = steering.cps;
        let cps = self.steered(cps);
        self.set_cps(now, cps);
    }

    /// The total rate if each worker has `cps`, because the timeline of each worker has the
    /// arrivals of all workers.
    fn steered(&self, cps: f64) -> Cps {
        Cps::from_f64(cps * self.seat.1 as f64)
    }

    /// Sets the total rate of all workers for the templates with a weight, from the next gap on.
    fn set_cps(&mut self, now: Nanos, total: Cps) {
        let weight = |line: &Line| line.templates.first().map_or(0, |(weight, _)| *weight);
        let open = |line: &Line| matches!(line.kind, Kind::Open { .. });
        let weights: u64 = self.lines.iter().filter(|line| open(line)).map(weight).sum();
        for i in 0..self.lines.len() {
            let part = weight(&self.lines[i]);
            if open(&self.lines[i]) && part > 0 {
                self.set_gap(i, now, total.share(part, weights));
            }
        }
    }

    /// Changes to `load`, already checked by [`Load::can_become`].
    pub fn change(&mut self, now: Nanos, load: &Load) {
        if self.stopped {
            return;
        }
        self.end = end_of(load, self.start);
        let active = match load.target {
            Some(Target::Active(flows)) => Some(flows),
            _ => None,
        };
        if let (Some(steering), Some(Target::Bandwidth(bits_per_second))) =
            (&mut self.steering, load.target)
        {
            steering.bits_per_second = bits_per_second / self.seat.1;
        }
        for i in 0..self.lines.len() {
            let line = &mut self.lines[i];
            // A script of which this worker has no conversations has no templates.
            let Some(&(_, template)) = line.templates.first() else { continue };
            match (&mut line.kind, &load.templates[template].arrival) {
                (Kind::Closed(users), Arrival::Closed { users: total, .. }) => {
                    users.become_total((*total).into(), line.by, now.saturating_sub(line.origin));
                }
                (Kind::Closed(users), _) => {
                    let total = active.unwrap_or(users.total);
                    users.become_total(total, line.by, now.saturating_sub(line.origin));
                    line.templates = weighted(load);
                }
                (Kind::Open { .. }, Arrival::Weight { weight, .. }) => {
                    line.templates[0].0 = u64::from(*weight)
                }
                (Kind::Open { .. } | Kind::Script(_), _) => {}
            }
            if let (Kind::Open { .. }, Some(cps)) = (&self.lines[i].kind, load.asked(template)) {
                self.set_gap(i, now, cps);
            }
            self.schedule(i);
        }
        if let Some(cps) = self.steering.as_ref().map(|steering| steering.cps) {
            self.set_cps(now, self.steered(cps));
        }
    }

    /// Suspends a template (`None`: all) until it is resumed.
    pub fn pause(&mut self, now: Nanos, template: Option<usize>) {
        for i in 0..self.lines.len() {
            if self.lines[i].is_of(template) && self.lines[i].paused.is_none() {
                self.lines[i].paused = Some(now);
                self.schedule(i);
            }
        }
    }

    pub fn resume(&mut self, now: Nanos, template: Option<usize>) {
        for i in 0..self.lines.len() {
            let Some(since) = self.lines[i].paused.filter(|_| self.lines[i].is_of(template)) else {
                continue;
            };
            self.lines[i].paused = None;
            let line = &mut self.lines[i];
            match &mut line.kind {
                Kind::Open { timeline, .. } => {
                    // Computed in the time of the load, so that a pause does not change ramps (ADR
                    // 0030).
                    let passed = |at: Nanos| line.shape.passed(at.saturating_sub(line.origin)).0;
                    timeline.shift(Picos(passed(now).saturating_sub(passed(since))));
                }
                Kind::Script(script) => script.base = script.base + now.saturating_sub(since),
                // Users have no schedule that would have to be postponed.
                Kind::Closed(_) => {}
            }
            self.schedule(i);
        }
    }

    /// When the next flow of an open loop would be due if there were no limits. The steady part of
    /// the load lasts until then, so that n flows at n flows/s take one second (ADR 0030).
    pub fn after_last(&self) -> Option<Nanos> {
        let open = || self.lines.iter().filter(|line| line.gives_up());
        let next = |line: &Line| line.next(self.start).map(|next| next.min(line.until));
        // If every line has ended, the latest end.
        let goes_on = open().filter(|line| !line.is_over(&self.template_left));
        goes_on.filter_map(next).min().or_else(|| open().filter_map(next).max())
    }

    /// Changes the rate of an open loop from its next gap on.
    fn set_gap(&mut self, i: usize, now: Nanos, cps: Cps) {
        let line = &mut self.lines[i];
        let Kind::Open { timeline, cps: all } = &mut line.kind else { return };
        *all = cps.value();
        let gap = cps.gap();
        timeline.set_gap(gap);
        // Brings the next arrival within one gap of the new rate: at a low rate it may be hours
        // away, and the new rate would take effect only then (ADR 0030).
        let (passed, gap) = (
            line.shape.passed(now.saturating_sub(line.origin)),
            Picos((gap.seconds(0.0) * 1e12) as u64),
        );
        if timeline.due().is_some_and(|due| due.0 > passed.0.saturating_add(gap.0)) {
            timeline.set_due(Picos(passed.0 + gap.0));
        }
        self.schedule(i);
        self.keep_to_rates();
    }

    /// Updates the audit's limit for bursts to the total rate of all open loops.
    fn keep_to_rates(&mut self) {
        let cps = |line: &Line| if let Kind::Open { cps, .. } = line.kind { cps } else { 0.0 };
        let cps = self.lines.iter().map(cps).sum::<f64>() / self.seat.1 as f64;
        self.audit.set_pps(cps);
    }

    /// Skips arrivals that were due too long before `now`.
    #[cold]
    fn give_up(&mut self, i: usize, now: Nanos, is_own: &impl IsOwn) {
        let line = &mut self.lines[i];
        // Arrivals after the end were never requested: without the limit they would count as late.
        let bound = now.saturating_sub(self.max_delay).min(self.end).min(line.until);
        let (template, first) = (line.template(line.number), line.number);
        let skipped = line.skip(line.shape.passed(bound.saturating_sub(line.origin)));
        // The mapping through the ramp rounds up, so `bound` may admit none: always skips at least
        // one, otherwise `take` would never return.
        let skipped = if skipped == 0 { line.advance() } else { skipped };
        let skipped = skipped.min(self.template_left[template]);
        let skipped = if self.shared { skipped.min(self.left) } else { skipped };
        let own = self.own(&self.lines[i], first, skipped, is_own);
        let own = if self.shared { own } else { own.min(self.left) };
        self.late[template] += own;
        let of_all = if self.shared { skipped } else { own };
        for (left, skipped) in
            [(&mut self.left, of_all), (&mut self.template_left[template], skipped)]
        {
            *left -= if *left == u64::MAX { 0 } else { skipped };
        }
        self.schedule(i);
    }

    /// The number of this worker's flows among `flows` flows of `line` from number `first`.
    fn own(&self, line: &Line, first: u64, flows: u64, is_own: &impl IsOwn) -> u64 {
        match line.templates[..] {
            [(_, template)] if self.seat.1 > 1 && line.is_open() => {
                (first..first + flows).filter(|number| is_own(template, *number)).count() as u64
            }
            _ => flows,
        }
    }

    /// Computes when line `i` is due next, and which line is next.
    #[inline]
    fn schedule(&mut self, i: usize) {
        let line = &mut self.lines[i];
        let over = line.is_over(&self.template_left);
        let waits = over || line.waits || line.paused.is_some();
        let next = line.next(self.start).filter(|_| !waits);
        line.ended |= next.is_some_and(|next| next >= line.until);
        line.due = next.filter(|&due| due < self.end && !line.ended);
        let none_left = self.left == 0;
        let stopped = self.stopped;
        let may = |line: &Line| !stopped && (!none_left || line.is_script());
        let of = |scheduled: bool| {
            let lines = self.lines.iter().enumerate();
            let lines = lines.filter(|(_, line)| line.is_scheduled() == scheduled && may(line));
            lines.filter_map(|(i, line)| Some((line.due?, i))).min()
        };
        // Line `i` can only change which line of its own kind is next, unless everything is over.
        let kind = self.lines[i].is_scheduled();
        if kind || none_left || stopped {
            self.next.scheduled = of(true);
        }
        if !kind || none_left || stopped {
            self.next.ready = of(false);
        }
        self.steady = match &self.lines[..] {
            [line] => !stopped && self.left > 1 && line.is_steady(&self.template_left),
            _ => false,
        };
    }
}

fn is_open(arrival: &Arrival, target: Option<Target>) -> bool {
    matches!(arrival, Arrival::Open { .. })
        || (matches!(arrival, Arrival::Weight { .. }) && !matches!(target, Some(Target::Active(_))))
}

/// The number of users of a template's closed loop; in an open loop each worker counts as one. A
/// worker without users begins no flows.
fn users(template: &Template, target: Option<Target>, workers: u64) -> u64 {
    match (&template.arrival, target) {
        (Arrival::Closed { users, .. }, _) => (*users).into(),
        (Arrival::Weight { .. }, Some(Target::Active(flows))) => flows,
        _ => workers,
    }
}

/// A worker's share of `total` flows; in an open loop all of them, because the worker iterates over
/// all.
fn flows_left(total: u64, open: bool, users: u64, (worker, workers): (u64, u64)) -> u64 {
    match open {
        true => total,
        false if worker >= users => 0,
        false => total.saturating_sub(worker).div_ceil(workers.min(users)),
    }
}

/// Number of a template's flows that may begin.
fn left_of(template: &Template, target: Option<Target>, seat: (u64, u64)) -> u64 {
    let (open, users) = (is_open(&template.arrival, target), users(template, target, seat.1));
    template.limit.map_or(u64::MAX, |total| flows_left(total, open, users, seat))
}

fn end_of(load: &Load, start: Nanos) -> Nanos {
    let ends = load.shape.end().into_iter().chain(load.limits.duration);
    let end = ends.min().map_or(u64::MAX, |end| end.0);
    Nanos(start.0.saturating_add(end))
}

fn exponential(mean: Nanos, seed: u64, k: u64) -> Nanos {
    // 53 bits, the precision of an f64, and never 0, because the logarithm of 0 is infinite.
    let unit = ((mix(seed, k) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    Nanos((mean.0 as f64 * -unit.ln()) as u64)
}

impl Line {
    /// A line that lasts from the start of the load to its end.
    fn new(templates: Vec<(u64, usize)>, kind: Kind, (number, by): (u64, u64), seed: u64) -> Self {
        Self {
            templates,
            kind,
            number,
            by,
            of_template: Vec::new(),
            seed,
            due: None,
            paused: None,
            waits: false,
            begin: Nanos::ZERO,
            shape: Shape::default(),
            origin: Nanos::ZERO,
            own_shape: false,
            until: Nanos(u64::MAX),
            lasts: None,
            ended: false,
        }
    }

    /// Makes its schedule relative to its own start.
    fn move_to_begin(&mut self, start: Nanos) {
        let begin = start.0.saturating_add(self.begin.0);
        if self.own_shape {
            self.origin = Nanos(begin);
        } else if let Kind::Open { timeline, .. } = &mut self.kind {
            timeline.shift(self.shape.passed(self.begin));
        }
        if let Kind::Closed(users) = &mut self.kind {
            users.since = Nanos(begin).saturating_sub(self.origin);
        }
        let shaped = self.shape.end().filter(|_| self.own_shape);
        let lasts = self.lasts.into_iter().chain(shaped).min().map_or(u64::MAX, |lasts| lasts.0);
        self.until = Nanos(begin.saturating_add(lasts));
    }

    /// Maps an arrival time without ramps to the time at which it is due.
    #[inline]
    fn at(&self, load: Picos) -> Option<Nanos> {
        self.shape.instant(load).map(|at| self.origin + at.as_nanos())
    }

    fn of(
        (template, waits): (&Template, bool),
        i: usize,
        total: Option<Cps>,
        (load, start): (&Load, Nanos),
        (worker, workers): (u64, u64),
    ) -> Option<Self> {
        if template.gone {
            return None;
        }
        // The salt ("arrivals") is needed because the templates' pools use the load's seed too.
        let seed = mix(load.seed ^ 0x6172_7269_7661_6c73, i as u64);
        let line = |weight: u32, kind, (number, by)| {
            let mut line = Self {
                waits,
                begin: template.start,
                lasts: template.duration,
                shape: template.shape.as_ref().unwrap_or(&load.shape).clone(),
                origin: start,
                own_shape: template.shape.is_some(),
                ..Self::new(vec![(weight.into(), i)], kind, (number, by), seed)
            };
            if !line.waits {
                line.move_to_begin(start);
            }
            Some(line)
        };
        match template.arrival {
            Arrival::Open { cps, spacing } => line(0, Kind::open(cps, spacing, seed), (0, 1)),
            Arrival::Weight { weight, spacing } => {
                let cps = total?.share(weight.into(), load.weights());
                line(weight, Kind::open(cps, spacing, seed), (0, 1))
            }
            Arrival::Closed { users, think } => {
                let kind = Kind::closed(users.into(), think, worker, workers);
                line(0, kind, (worker, step(template, users.into(), workers)))
            }
            Arrival::Called | Arrival::None => None,
        }
    }

    /// A line that keeps `flows` flows open, over all templates with a weight.
    fn active(load: &Load, flows: u64, (worker, workers): (u64, u64), start: Nanos) -> Self {
        let kind = Kind::closed(flows, Think::Fixed(Nanos::ZERO), worker, workers);
        let seed = mix(load.seed, 0x0061_6374);
        let of_template = load.templates.iter().map(|t| (worker, step(t, flows, workers)));
        Self {
            of_template: of_template.collect(),
            shape: load.shape.clone(),
            origin: start,
            ..Self::new(weighted(load), kind, (worker, workers), seed)
        }
    }

    /// Whether `template` is its only template; `None` matches all lines.
    fn is_of(&self, template: Option<usize>) -> bool {
        template.is_none_or(|template| self.templates.iter().all(|(_, own)| *own == template))
    }

    /// The conversations of a script that belong to this worker.
    fn script(script: &Script, seat: WorkerIndex) -> Self {
        let (worker, workers) = seat.among();
        let own: Vec<ScriptEntry> = (0..)
            .zip(&script.conversations)
            .filter(|(_, one)| seat.has(&one.of_client()))
            .map(|(conversation, one)| ScriptEntry {
                begin: one.begin,
                conversation,
                template: one.template,
            })
            .collect();
        let mut templates: Vec<_> = own.iter().map(|part| (0, part.template)).collect();
        templates.sort_unstable();
        templates.dedup();
        let kind = Kind::Script(Scripted {
            own,
            total: script.conversations.len() as u64,
            next: 0,
            turn: 0,
            loops: script.loops.unwrap_or(u64::MAX),
            base: Nanos::ZERO,
            period: script.period,
            open: 0,
            at_once: script
                .at_once
                // The share is at least one: a worker with conversations and no share would never
                // finish.
                .map_or(u64::MAX, |most| most.saturating_sub(worker).div_ceil(workers).max(1)),
        });
        Self::new(templates, kind, (worker, workers), 0)
    }

    /// The number of the flow of `template` that is due. With several templates each call advances
    /// it.
    #[inline]
    fn number_of(&mut self, template: usize) -> u64 {
        match (&self.kind, self.of_template.get_mut(template)) {
            (Kind::Script(script), _) => script.number(),
            (_, Some((next, by))) => {
                let number = *next;
                *next += *by;
                number
            }
            _ => self.number,
        }
    }

    #[inline]
    fn template(&self, number: u64) -> usize {
        if let Kind::Script(script) = &self.kind {
            return script.own[script.next].template;
        }
        match self.templates[..] {
            [(_, only)] => only,
            _ => {
                let sum = self.templates[self.templates.len() - 1].0;
                // A draw in proportion to the weights, from the flow's number, so that all workers
                // draw the same.
                let drawn = ((u128::from(mix(self.seed, number)) * u128::from(sum)) >> 64) as u64;
                self.templates[self.templates.partition_point(|(weight, _)| *weight <= drawn)].1
            }
        }
    }

    /// The template of the `k`-th flow after the next.
    fn template_ahead(&self, k: u64) -> usize {
        match &self.kind {
            Kind::Script(script) => script.own[script.next + k as usize].template,
            _ => self.template(self.number.wrapping_add(k * self.by)),
        }
    }

    fn is_over(&self, left: &[u64]) -> bool {
        let none_left = || self.templates.iter().all(|(_, t)| left[*t] == 0);
        match &self.kind {
            _ if self.ended => true,
            Kind::Closed(users) if users.here == 0 => users.comes(&self.shape, self.by).is_none(),
            Kind::Script(script) => script.is_over() || none_left(),
            _ => none_left(),
        }
    }

    fn is_script(&self) -> bool {
        matches!(self.kind, Kind::Script(_))
    }

    /// See [`Arrivals::steady`].
    fn is_steady(&self, left: &[u64]) -> bool {
        let all_here = matches!(&self.kind, Kind::Closed(users) if users.here == users.share);
        let unbounded = self.shape.is_full() && self.until == Nanos(u64::MAX);
        let runs = !self.ended && !self.waits && self.paused.is_none();
        let only = match self.templates[..] {
            [(_, only)] => self.of_template.is_empty() && left[only] > 1,
            _ => false,
        };
        all_here && unbounded && runs && only
    }

    fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open { .. })
    }

    /// Whether its flows are due at times known in advance.
    fn is_scheduled(&self) -> bool {
        !matches!(self.kind, Kind::Closed(_))
    }

    /// Whether late arrivals are given up; users and conversations wait instead.
    fn gives_up(&self) -> bool {
        self.is_open()
    }

    #[inline]
    fn next(&self, start: Nanos) -> Option<Nanos> {
        match &self.kind {
            Kind::Open { timeline, .. } => self.at(timeline.due()?),
            Kind::Closed(users) => {
                let comes = users.comes(&self.shape, self.by).map(|at| self.origin + at);
                match (comes, users.ready.first()) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (one, other) => one.or(other),
                }
            }
            Kind::Script(script) => script.due().map(|due| start + due),
        }
    }

    /// Moves to the next flow. Returns 1, the number of flows passed.
    #[inline]
    fn advance(&mut self) -> u64 {
        self.number += self.by;
        match &mut self.kind {
            Kind::Open { timeline, .. } => timeline.advance(0),
            Kind::Closed(users) => {
                let comes = users.comes(&self.shape, self.by);
                match (comes.map(|at| (at, self.origin + at)), users.ready.first()) {
                    (Some((at, a)), b) if b.is_none_or(|b| a <= b) => {
                        users.since = at;
                        users.here += 1;
                    }
                    _ => users.ready.pop(),
                }
            }
            Kind::Script(script) => (script.next, script.open) = (script.next + 1, script.open + 1),
        }
        1
    }

    /// Skips all arrivals before `before`, a time that does not include ramps. Returns their
    /// number.
    fn skip(&mut self, before: Picos) -> u64 {
        let Kind::Open { timeline, .. } = &mut self.kind else { return 0 };
        let skipped = skip(timeline, before);
        self.number += skipped;
        skipped
    }

    /// Number of arrivals before `before`, which include the next one.
    #[cold]
    fn due_before(&self, before: Nanos, start: Nanos) -> u64 {
        match &self.kind {
            // Skips at least one, because the mapping through the ramp rounds times, and the next
            // arrival is known to be due.
            Kind::Open { timeline, .. } => {
                let passed = self.shape.passed(before.saturating_sub(self.origin));
                skip(&mut timeline.clone(), passed).max(1)
            }
            Kind::Closed(users) => {
                let by = before.saturating_sub(self.origin);
                let comes = |i: u64| {
                    let index = users.first + i * self.by;
                    let at = self.shape.rises(index, users.total, users.since);
                    at.is_some_and(|at| at < by)
                };
                // Users join in their order, so halving finds the first that does not come yet.
                // Millions may be due at the start, and each snapshot counts them.
                let (mut coming, mut end) = (users.here, users.share.max(users.here));
                while coming < end {
                    let middle = coming + (end - coming) / 2;
                    if comes(middle) { coming = middle + 1 } else { end = middle }
                }
                users.ready.before(before) + coming - users.here
            }
            Kind::Script(script) => script.due_before(before.saturating_sub(start)),
        }
    }
}

impl Kind {
    fn open(cps: Cps, spacing: Spacing, seed: u64) -> Self {
        Self::Open { timeline: spacing.timeline(cps, seed), cps: cps.value() }
    }

    fn closed(total: u64, think: Think, first: u64, by: u64) -> Self {
        let ready = match think {
            Think::Fixed(_) => Ready::InOrder(VecDeque::new()),
            Think::Exponential(_) => Ready::Any(BinaryHeap::new()),
        };
        let share = total.saturating_sub(first).div_ceil(by);
        let since = Nanos::ZERO;
        Self::Closed(Users { ready, think, here: 0, share, since, total, first, thoughts: 0 })
    }
}

/// The step between flow numbers of a closed loop on one worker. Workers without users begin no
/// flows. With a limit, only the workers that have users share the numbers below it, so that none
/// is left out.
fn step(template: &Template, users: u64, workers: u64) -> u64 {
    if template.limit.is_some() { workers.min(users.max(1)) } else { workers }
}

/// Skips arrivals before a time. Returns their number.
fn skip(timeline: &mut Timeline, before: Picos) -> u64 {
    let mut skipped = 0;
    while timeline.due().is_some_and(|due| due < before) {
        skipped += timeline.skip_before(before).unwrap_or_else(|| {
            timeline.advance(0);
            1
        });
    }
    skipped
}

impl Scripted {
    /// Number of conversations that could have begun before `before`, relative to the start of the
    /// load.
    fn due_before(&self, before: Nanos) -> u64 {
        let free = self.at_once.saturating_sub(self.open);
        let rest = self.own.get(self.next..).unwrap_or_default();
        (rest.partition_point(|part| self.base + part.begin < before) as u64).min(free)
    }

    /// When the next conversation is due, relative to the start of the load; `None`: not before
    /// another has ended.
    fn due(&self) -> Option<Nanos> {
        if self.open >= self.at_once || self.turn >= self.loops {
            return None;
        }
        self.own.get(self.next).map(|part| self.base + part.begin)
    }

    fn number(&self) -> u64 {
        self.turn
            .wrapping_mul(self.total)
            .wrapping_add(self.own.get(self.next).map_or(0, |part| part.conversation))
    }

    fn is_over(&self) -> bool {
        self.own.is_empty() || self.turn >= self.loops
    }

    /// Records the end of a conversation. The last one of a loop starts the next loop.
    fn ended(&mut self, now: Nanos) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 && self.next == self.own.len() {
            (self.turn, self.next) = (self.turn + 1, 0);
            // The next loop starts after the end of this one, because overlapping loops would need
            // the same tuples (ADR 0029).
            self.base = (self.base + self.period).max(now);
        }
    }
}

/// Templates with a weight, each with the running sum of weights.
fn weighted(load: &Load) -> Vec<(u64, usize)> {
    let mut sum = 0;
    let mut templates = Vec::new();
    for (i, template) in load.templates.iter().enumerate() {
        if let Arrival::Weight { weight, .. } = template.arrival {
            sum += u64::from(weight);
            templates.push((sum, i));
        }
    }
    templates
}

impl Users {
    /// Sets the number of users over all workers, from `since` in the time of the line's shape.
    /// Surplus users leave when their flow has ended.
    fn become_total(&mut self, total: u64, by: u64, since: Nanos) {
        (self.total, self.share) = (total, total.saturating_sub(self.first).div_ceil(by));
        self.since = self.since.max(since);
    }

    /// When the next user joins, in the time of the line's shape.
    fn comes(&self, shape: &Shape, by: u64) -> Option<Nanos> {
        let index = self.first + self.here * by;
        if self.here < self.share { shape.rises(index, self.total, self.since) } else { None }
    }

    /// This worker's share of the users at `now`.
    fn asked(&self, shape: &Shape, origin: Nanos, now: Nanos, by: u64) -> u64 {
        let of_all = shape.count(self.total, now.saturating_sub(origin));
        of_all.saturating_sub(self.first).div_ceil(by)
    }

    /// Returns when the user is ready.
    #[inline]
    fn think(&mut self, seed: u64, now: Nanos) -> Nanos {
        let time = match self.think {
            Think::Fixed(time) => time,
            Think::Exponential(mean) => exponential(mean, seed, self.thoughts),
        };
        self.thoughts += 1;
        let ready = now + time;
        self.ready.push(ready);
        ready
    }
}

impl Ready {
    fn first(&self) -> Option<Nanos> {
        match self {
            Self::InOrder(all) => all.front().copied(),
            Self::Any(all) => all.peek().map(|r| r.0),
        }
    }

    fn before(&self, then: Nanos) -> u64 {
        match self {
            Self::InOrder(all) => all.iter().filter(|at| **at < then).count() as u64,
            Self::Any(all) => all.iter().filter(|at| at.0 < then).count() as u64,
        }
    }

    fn pop(&mut self) {
        match self {
            Self::InOrder(all) => _ = all.pop_front(),
            Self::Any(all) => _ = all.pop(),
        }
    }

    fn push(&mut self, at: Nanos) {
        match self {
            Self::InOrder(all) => all.push_back(at),
            Self::Any(all) => all.push(Reverse(at)),
        }
    }
}

impl Steering {
    fn measure(&mut self, now: Nanos, octets: u64, begun: u64) {
        let (came, flows) = (octets - self.octets, begun - self.begun);
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        (self.at, self.octets, self.begun) = (now, octets, begun);
        if came == 0 || flows == 0 {
            // The size of a flow is still unknown. Doubles the rate, up to 1000 flows/s: a rate too
            // low would never reveal the size, and a rate too high would overshoot the bandwidth.
            if self.octets_per_flow == 0.0 && flows > 0 {
                self.cps = (self.cps * 2.0).min(1000.0);
            }
            return;
        }
        let each = came as f64 / flows as f64;
        // An exponential average: otherwise single large flows would swing the rate.
        self.octets_per_flow = if self.octets_per_flow == 0.0 {
            each
        } else {
            0.7 * self.octets_per_flow + 0.3 * each
        };
        let aim = self.bits_per_second as f64 / 8.0;
        let wanted = aim / self.octets_per_flow;
        // A proportional correction of at most 10 % for the error of the last interval. No step
        // more than doubles or halves the rate, because octets arrive later than their flows begin.
        let corrected = wanted * (1.0 + 0.1 * (1.0 - came as f64 / seconds / aim).clamp(-1.0, 1.0));
        self.cps = corrected.clamp(self.cps / 2.0, self.cps * 2.0).clamp(0.001, MAX_CPS);
    }
}

#[cfg(test)]
mod tests;
