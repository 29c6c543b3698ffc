//! When which template begins a flow.
//!
//! An open loop's instants are computed as if there were no ramp, in whole picoseconds and a
//! fraction ([`Timeline`]), then put where the ramp has let as much load pass: nothing drifts, and
//! a Poisson process stays one.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use squall_program::{
    Timeline, mix,
    pace::{Audit, Pace, Pacing},
};
use squall_units::{Nanos, Picos};

use crate::{
    Arrival, Cps, Load, Ramp, Script, Spacing, Target, Think,
    load::{Limits, Template},
};

/// One worker's share of the arrivals of a load.
#[derive(Debug)]
pub(crate) struct Arrivals {
    lines: Vec<Line>,
    ramp: Ramp,
    start: Nanos,
    /// Nothing is due at this instant or behind it.
    end: Nanos,
    patience: Nanos,
    /// Flows that may still begin.
    left: u64,
    workers: u64,
    steering: Option<Steering>,
    /// By template: flows that may still begin, and arrivals that were given up.
    template_left: Vec<u64>,
    late: Vec<u64>,
    next: Option<(Nanos, usize)>,
    /// The clock of the arrivals, and the audit of those that began.
    pace: Pace,
    audit: Audit,
    /// By template: the line whose users begin its flows.
    closed: Vec<Option<usize>>,
}

/// A flow that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub template: usize,
    /// Which of its template's flows, from 0, over all workers.
    pub number: u64,
    /// When it was to begin; of a closed loop, when its user was ready.
    pub at: Nanos,
}

/// A source of arrivals.
#[derive(Debug)]
struct Line {
    /// One; of a number of flows that are to be open, all that have a weight, with the sums of
    /// weights up to each.
    templates: Vec<(u64, usize)>,
    kind: Kind,
    /// Number of the next flow, and how many workers share them.
    number: u64,
    by: u64,
    seed: u64,
    due: Option<Nanos>,
    /// Since when nothing of it begins.
    paused: Option<Nanos>,
}

#[derive(Debug)]
enum Kind {
    /// Arrivals of this worker, `cps` of them a second when no ramp is.
    Open {
        timeline: Timeline,
        spacing: Spacing,
        cps: f64,
    },
    Closed(Users),
    Script(Scripted),
}

/// A worker's conversations of a [`Script`].
#[derive(Debug)]
struct Scripted {
    ours: Vec<Part>,
    /// Of all workers.
    total: u64,
    next: usize,
    /// The loop from 0, how many there are, when it began and how long it takes at least.
    turn: u64,
    loops: u64,
    base: Nanos,
    period: Nanos,
    open: u64,
    at_once: u64,
}

/// When which conversation begins.
#[derive(Debug)]
struct Part {
    begin: Nanos,
    conversation: u64,
    template: usize,
}

/// The users of a closed loop.
#[derive(Debug)]
struct Users {
    ready: Ready,
    think: Think,
    /// Who has come and not gone home, of all who come here.
    here: u64,
    came: u64,
    share: u64,
    /// Of all workers; ours are user `first`, `first + by` ...
    total: u64,
    first: u64,
    /// Times that somebody has begun to think.
    thoughts: u64,
}

/// Instants at which users are ready again.
#[derive(Debug)]
enum Ready {
    /// All think for the same time, so they come in order.
    InOrder(VecDeque<Nanos>),
    Any(BinaryHeap<Reverse<Nanos>>),
}

/// Brings a number of arrivals to a bandwidth.
#[derive(Debug)]
struct Steering {
    bits_per_second: u64,
    /// Per flow, smoothed; 0: not known yet.
    octets_per_flow: f64,
    cps: f64,
    at: Nanos,
    octets: u64,
    begun: u64,
}

const STEER_EVERY: Nanos = Nanos(100_000_000);
/// Until the first octets tell what a flow carries.
const FIRST_CPS: f64 = 100.0;
/// Never more, whatever a flow seems to carry.
const MOST_CPS: f64 = 1e8;

impl Arrivals {
    /// Of worker `worker` of `workers`; flows begin from `start` on.
    pub fn new(load: &Load, (worker, workers): (u64, u64), start: Nanos) -> Self {
        let share = |total: u64| total.saturating_sub(worker).div_ceil(workers);
        let mut arrivals = Self {
            lines: Vec::new(),
            ramp: load.ramp,
            start,
            end: end_of(load.limits, load.ramp, start),
            patience: load.patience,
            left: load.limits.flows.map_or(u64::MAX, share),
            workers,
            steering: None,
            template_left: load.templates.iter().map(|t| t.limit.map_or(u64::MAX, share)).collect(),
            late: vec![0; load.templates.len()],
            next: None,
            pace: Pace::new(true),
            audit: Audit::new(0.0),
            closed: vec![None; load.templates.len()],
        };
        let mut cps = None;
        match load.target {
            Some(Target::Cps(total)) => cps = Some(total),
            Some(Target::Bandwidth(bits_per_second)) => {
                cps = Some(Cps::from_f64(FIRST_CPS));
                arrivals.steering = Some(Steering {
                    bits_per_second: bits_per_second / workers,
                    octets_per_flow: 0.0,
                    cps: FIRST_CPS,
                    at: start,
                    octets: 0,
                    begun: 0,
                });
            }
            Some(Target::Active(flows)) => {
                arrivals.lines.push(Line::active(load, flows, (worker, workers)));
            }
            None => {}
        }
        for (i, template) in load.templates.iter().enumerate() {
            arrivals.lines.extend(Line::of(template, i, cps, load, (worker, workers)));
        }
        arrivals
            .lines
            .extend(load.script.as_ref().map(|script| Line::script(script, (worker, workers))));
        for i in 0..arrivals.lines.len() {
            let line = &arrivals.lines[i];
            if !line.gives_up() {
                line.templates
                    .iter()
                    .for_each(|(_, template)| arrivals.closed[*template] = Some(i));
            }
            arrivals.schedule(i);
        }
        arrivals.keep_to_rates();
        arrivals
    }

    /// When the next flow may begin; `None`: none does, as it stands.
    #[inline]
    pub fn next_due(&self) -> Option<Nanos> {
        self.next.map(|(due, _)| due + self.pace.lag())
    }

    /// How the schedule of arrivals was kept.
    pub fn pacing(&self) -> Pacing {
        Pacing::new(&self.pace, &self.audit)
    }

    /// No flow will ever begin any more.
    pub fn over(&self, now: Nanos) -> bool {
        now >= self.end
            || self.left == 0
            || self.lines.iter().all(|line| line.is_over(&self.template_left))
    }

    /// How many share the load.
    pub fn workers(&self) -> u64 {
        self.workers
    }

    /// No more flows; those that were due by `now` and did not begin are late.
    pub fn stop(&mut self, now: Nanos) {
        let overdue = self.overdue(now);
        self.late.iter_mut().zip(overdue).for_each(|(late, overdue)| *late += overdue);
        (self.left, self.next) = (0, None);
    }

    /// When no flow is due any more at the latest.
    pub fn end(&self) -> Nanos {
        self.end
    }

    /// By template: flows that were due by `now`, and neither began nor were given up.
    pub fn overdue(&self, now: Nanos) -> Vec<u64> {
        let mut overdue = vec![0; self.late.len()];
        let mut left = self.left;
        // What is due at the end itself is not asked for.
        let before = Nanos(now.0.saturating_add(1)).min(self.end);
        for line in self.lines.iter().filter(|line| line.due.is_some_and(|due| due < before)) {
            let due = line.due_before(before, self.ramp, self.start).min(left);
            match line.templates[..] {
                [(_, only)] => overdue[only] += due.min(self.template_left[only]),
                _ => (0..due).for_each(|k| {
                    let template = line.template_ahead(k);
                    overdue[template] +=
                        u64::from(overdue[template] < self.template_left[template]);
                }),
            }
            left -= if left == u64::MAX { 0 } else { due };
        }
        overdue
    }

    /// Arrivals of a template that were given up so far.
    pub fn late(&self, template: usize) -> u64 {
        self.late[template]
    }

    /// The next flow that is due by `now`. What has waited for longer than the load's patience is
    /// given up.
    #[inline]
    pub fn take(&mut self, now: Nanos) -> Option<Due> {
        let real = Picos::from(now.saturating_sub(self.start)).0;
        let schedule = Picos(self.pace.schedule(real)).as_nanos();
        loop {
            let (at, i) = self
                .next
                .filter(|(at, _)| *at <= now && at.saturating_sub(self.start) <= schedule)?;
            if now.saturating_sub(at) > self.patience && self.lines[i].gives_up() {
                self.give_up(i, now);
                continue;
            }
            let due = Picos::from(at.saturating_sub(self.start)).0;
            self.pace.owing(real, due);
            let line = &mut self.lines[i];
            let (number, template) = (line.number(), line.template(line.number));
            line.advance(self.ramp, self.start);
            let may = self.template_left[template] > 0;
            if may {
                self.template_left[template] -= 1;
                self.left -= u64::from(self.left != u64::MAX);
            }
            self.schedule(i);
            if may {
                self.audit.left(real, due, 1);
                return Some(Due { template, number, at });
            }
        }
    }

    /// A flow that was taken is over (or could not begin): its user thinks, and comes again.
    #[inline]
    pub fn ended(&mut self, template: usize, now: Nanos) {
        let Some(i) = self.closed[template] else { return };
        let line = &mut self.lines[i];
        match &mut line.kind {
            Kind::Open { .. } => {}
            // While the load goes down users go home.
            Kind::Closed(users)
                if users.here > self.ramp.falling(users.share, now.saturating_sub(self.start)) =>
            {
                users.here -= 1;
            }
            Kind::Closed(users) => users.think(line.seed, now),
            Kind::Script(script) => script.ended(now.saturating_sub(self.start)),
        }
        self.schedule(i);
    }

    /// Of a bandwidth that is aimed at: how many octets of application data have moved so far, and
    /// flows begun.
    pub fn steer(&mut self, now: Nanos, octets: impl FnOnce() -> (u64, u64)) {
        let Some(steering) =
            self.steering.as_mut().filter(|s| now.saturating_sub(s.at) >= STEER_EVERY)
        else {
            return;
        };
        let (octets, begun) = octets();
        steering.measure(now, octets, begun);
        let cps = Cps::from_f64(steering.cps);
        self.set_cps(now, cps);
    }

    /// From the next gap on, templates with a weight come to this together: of all workers.
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

    /// From now on arrivals are those of `load`, which [`Load::can_become`] has allowed.
    pub fn change(&mut self, now: Nanos, load: &Load) {
        if self.left == 0 {
            return;
        }
        self.end = end_of(load.limits, load.ramp, self.start);
        let active = match load.target {
            Some(Target::Active(flows)) => Some(flows),
            _ => None,
        };
        if let (Some(steering), Some(Target::Bandwidth(bits_per_second))) =
            (&mut self.steering, load.target)
        {
            steering.bits_per_second = bits_per_second / self.workers;
        }
        for i in 0..self.lines.len() {
            let line = &mut self.lines[i];
            // Without one it is a script of which nothing is ours.
            let Some(&(_, template)) = line.templates.first() else { continue };
            match (&mut line.kind, &load.templates[template].arrival) {
                (Kind::Closed(users), Arrival::Closed { users: total, .. }) => {
                    users.become_total(
                        (*total).into(),
                        line.by,
                        now >= self.start + self.ramp.falls_at(),
                    );
                }
                (Kind::Closed(users), _) => {
                    users.become_total(
                        active.unwrap_or(users.total),
                        line.by,
                        now >= self.start + self.ramp.falls_at(),
                    );
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
        if let Some(steering) = &self.steering {
            self.set_cps(now, Cps::from_f64(steering.cps));
        }
    }

    /// Nothing of a template (`None`: of any) is due until it is resumed.
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
            match &mut self.lines[i].kind {
                Kind::Open { timeline, .. } => {
                    let passed = |at: Nanos| self.ramp.passed(at.saturating_sub(self.start)).0;
                    timeline.shift(Picos(passed(now).saturating_sub(passed(since))));
                }
                Kind::Script(script) => script.base = script.base + now.saturating_sub(since),
                Kind::Closed(_) => {}
            }
            self.schedule(i);
        }
    }

    /// When the next flow of an open loop would be due if there were no limits.
    pub fn behind_last(&self) -> Option<Nanos> {
        let open = self.lines.iter().filter(|line| line.gives_up());
        open.filter_map(|line| line.next(self.ramp, self.start)).min()
    }

    fn set_gap(&mut self, i: usize, now: Nanos, cps: Cps) {
        let line = &mut self.lines[i];
        let Kind::Open { timeline, spacing, cps: here } = &mut line.kind else { return };
        *here = cps.value() / line.by as f64;
        // Of a Poisson process each worker draws all instants.
        let by = if *spacing == Spacing::Constant { line.by } else { 1 };
        let gap = cps.gap().times(by);
        timeline.set_gap(gap);
        // What was far away comes within a gap of the new rate.
        let (passed, gap) = (
            self.ramp.passed(now.saturating_sub(self.start)),
            Picos((gap.seconds(0.0) * 1e12) as u64),
        );
        if timeline.due().is_some_and(|due| due.0 > passed.0.saturating_add(gap.0)) {
            timeline.set_due(Picos(passed.0 + gap.0));
        }
        self.schedule(i);
        self.keep_to_rates();
    }

    /// How much may begin at once after a stall, and what is too much of it, is by the rate of all
    /// open loops together.
    fn keep_to_rates(&mut self) {
        let cps = |line: &Line| if let Kind::Open { cps, .. } = line.kind { cps } else { 0.0 };
        let cps = self.lines.iter().map(cps).sum();
        self.pace.set_pps(cps);
        self.audit.set_pps(cps);
    }

    /// Passes over what was due too long before `now`.
    #[cold]
    fn give_up(&mut self, i: usize, now: Nanos) {
        let line = &mut self.lines[i];
        // What would have been due behind the end was not asked for.
        let bound = now.saturating_sub(self.patience).min(self.end);
        let template = line.template(line.number);
        let skipped = line.skip(self.ramp.passed(bound.saturating_sub(self.start)));
        // The bound is rounded up on its way through the ramp: never without progress.
        let skipped = if skipped == 0 { line.advance(self.ramp, self.start) } else { skipped };
        let skipped = skipped.min(self.template_left[template]).min(self.left);
        self.late[template] += skipped;
        for left in [&mut self.left, &mut self.template_left[template]] {
            *left -= if *left == u64::MAX { 0 } else { skipped };
        }
        self.schedule(i);
    }

    /// Computes when line `i` is due, and which line is next.
    #[inline]
    fn schedule(&mut self, i: usize) {
        let line = &mut self.lines[i];
        let over = line.is_over(&self.template_left);
        let waits = over || line.paused.is_some();
        line.due = line.next(self.ramp, self.start).filter(|&due| due < self.end && !waits);
        self.next = match &self.lines[..] {
            _ if self.left == 0 => None,
            [only] => only.due.map(|due| (due, 0)),
            lines => lines.iter().enumerate().filter_map(|(i, line)| Some((line.due?, i))).min(),
        };
    }
}

fn end_of(limits: Limits, ramp: Ramp, start: Nanos) -> Nanos {
    let of_ramp =
        ramp.hold.map(|hold| ramp.up.0.saturating_add(hold.0).saturating_add(ramp.down.0));
    let end = of_ramp.unwrap_or(u64::MAX).min(limits.duration.map_or(u64::MAX, |d| d.0));
    Nanos(start.0.saturating_add(end))
}

fn exponential(mean: Nanos, seed: u64, k: u64) -> Nanos {
    // 53 bits, never 0.
    let unit = ((mix(seed, k) >> 11) + 1) as f64 / (1u64 << 53) as f64;
    Nanos((mean.0 as f64 * -unit.ln()) as u64)
}

impl Line {
    fn of(
        template: &Template,
        i: usize,
        total: Option<Cps>,
        load: &Load,
        (worker, workers): (u64, u64),
    ) -> Option<Self> {
        let seed = mix(load.seed ^ 0x6172_7269_7661_6c73, i as u64);
        let line = |weight: u32, kind| {
            Some(Self {
                templates: vec![(weight.into(), i)],
                kind,
                number: worker,
                by: workers,
                seed,
                due: None,
                paused: None,
            })
        };
        match template.arrival {
            Arrival::Open { cps, spacing } => {
                line(0, Kind::open(cps, spacing, seed, (worker, workers)))
            }
            Arrival::Weight { weight, spacing } => {
                let cps = total?.share(weight.into(), load.weights());
                line(weight, Kind::open(cps, spacing, seed, (worker, workers)))
            }
            Arrival::Closed { users, think } => {
                line(0, Kind::closed(users.into(), think, worker, workers))
            }
            Arrival::None => None,
        }
    }

    /// So many flows at once, of all templates with a weight.
    fn active(load: &Load, flows: u64, (worker, workers): (u64, u64)) -> Self {
        let kind = Kind::closed(flows, Think::Fixed(Nanos::ZERO), worker, workers);
        Self {
            templates: weighted(load),
            kind,
            number: worker,
            by: workers,
            seed: mix(load.seed, 0x0061_6374),
            due: None,
            paused: None,
        }
    }

    /// Whether it is a template's own, or all are meant.
    fn is_of(&self, template: Option<usize>) -> bool {
        template.is_none_or(|template| self.templates.iter().all(|(_, own)| *own == template))
    }

    /// The conversations of a script that are this worker's.
    fn script(script: &Script, (worker, workers): (u64, u64)) -> Self {
        let ours: Vec<Part> = (0..)
            .zip(&script.conversations)
            .filter(|(_, one)| script.worker(one, workers) == worker)
            .map(|(conversation, one)| Part {
                begin: one.begin,
                conversation,
                template: one.template,
            })
            .collect();
        let mut templates: Vec<_> = ours.iter().map(|part| (0, part.template)).collect();
        templates.sort_unstable();
        templates.dedup();
        let kind = Kind::Script(Scripted {
            ours,
            total: script.conversations.len() as u64,
            next: 0,
            turn: 0,
            loops: script.loops.unwrap_or(u64::MAX),
            base: Nanos::ZERO,
            period: script.period,
            open: 0,
            at_once: script
                .at_once
                .map_or(u64::MAX, |most| most.saturating_sub(worker).div_ceil(workers).max(1)),
        });
        Self { templates, kind, number: worker, by: workers, seed: 0, due: None, paused: None }
    }

    /// Of the flow that is due.
    #[inline]
    fn number(&self) -> u64 {
        match &self.kind {
            Kind::Script(script) => script.number(),
            _ => self.number,
        }
    }

    #[inline]
    fn template(&self, number: u64) -> usize {
        if let Kind::Script(script) = &self.kind {
            return script.ours[script.next].template;
        }
        match self.templates[..] {
            [(_, only)] => only,
            _ => {
                let sum = self.templates[self.templates.len() - 1].0;
                let drawn = ((u128::from(mix(self.seed, number)) * u128::from(sum)) >> 64) as u64;
                self.templates[self.templates.partition_point(|(weight, _)| *weight <= drawn)].1
            }
        }
    }

    /// Of the `k`-th flow behind the one that is due.
    fn template_ahead(&self, k: u64) -> usize {
        match &self.kind {
            Kind::Script(script) => script.ours[script.next + k as usize].template,
            _ => self.template(self.number.wrapping_add(k * self.by)),
        }
    }

    fn is_over(&self, left: &[u64]) -> bool {
        let none_left = || self.templates.iter().all(|(_, t)| left[*t] == 0);
        match &self.kind {
            Kind::Closed(users) if users.here == 0 && users.came >= users.share => true,
            Kind::Script(script) => script.is_over() || none_left(),
            _ => none_left(),
        }
    }

    /// Whether arrivals do not wait.
    fn gives_up(&self) -> bool {
        matches!(self.kind, Kind::Open { .. })
    }

    #[inline]
    fn next(&self, ramp: Ramp, start: Nanos) -> Option<Nanos> {
        match &self.kind {
            Kind::Open { timeline, .. } => Some(start + ramp.instant(timeline.due()?)?),
            Kind::Closed(users) => match (users.comes(ramp, start, self.by), users.ready.first()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (one, other) => one.or(other),
            },
            Kind::Script(script) => script.due().map(|due| start + due),
        }
    }

    /// Behind the flow that is due; how many that were: 1.
    #[inline]
    fn advance(&mut self, ramp: Ramp, start: Nanos) -> u64 {
        self.number += self.by;
        match &mut self.kind {
            Kind::Open { timeline, spacing: Spacing::Constant, .. } => timeline.advance(0),
            Kind::Open { timeline, .. } => (0..self.by).for_each(|_| timeline.advance(0)),
            Kind::Closed(users) => match (users.comes(ramp, start, self.by), users.ready.first()) {
                (Some(a), b) if b.is_none_or(|b| a <= b) => {
                    users.came += 1;
                    users.here += 1;
                }
                _ => users.ready.pop(),
            },
            Kind::Script(script) => (script.next, script.open) = (script.next + 1, script.open + 1),
        }
        1
    }

    /// Passes over all arrivals before this instant without ramp; how many.
    fn skip(&mut self, before: Picos) -> u64 {
        let Kind::Open { timeline, .. } = &mut self.kind else { return 0 };
        let skipped = skip(timeline, self.by, before);
        self.number += skipped * self.by;
        skipped
    }

    /// How many arrivals there are before `before`, the next of which is.
    #[cold]
    fn due_before(&self, before: Nanos, ramp: Ramp, start: Nanos) -> u64 {
        match &self.kind {
            // Instants are rounded on their way through the ramp: the one that is due counts.
            Kind::Open { timeline, .. } => {
                skip(&mut timeline.clone(), self.by, ramp.passed(before.saturating_sub(start)))
                    .max(1)
            }
            Kind::Closed(users) => {
                let coming = (users.came..users.share).take_while(|i| {
                    start + ramp.comes(users.first + i * self.by, users.total) < before
                });
                users.ready.before(before) + coming.count() as u64
            }
            Kind::Script(script) => script.due_before(before.saturating_sub(start)),
        }
    }
}

impl Kind {
    fn open(cps: Cps, spacing: Spacing, seed: u64, (worker, workers): (u64, u64)) -> Self {
        let all = spacing.timeline(cps, seed);
        let timeline = all.clone().share(worker, workers).unwrap_or_else(|| {
            let mut ours = all;
            (0..worker).for_each(|_| ours.advance(0));
            ours
        });
        Self::Open { timeline, spacing, cps: cps.value() / workers as f64 }
    }

    fn closed(total: u64, think: Think, first: u64, by: u64) -> Self {
        let ready = match think {
            Think::Fixed(_) => Ready::InOrder(VecDeque::new()),
            Think::Exponential(_) => Ready::Any(BinaryHeap::new()),
        };
        let share = total.saturating_sub(first).div_ceil(by);
        Self::Closed(Users { ready, think, here: 0, came: 0, share, total, first, thoughts: 0 })
    }
}

/// Passes over what is due before this instant; how many, of which each `by`-th of a Poisson
/// process is ours.
fn skip(timeline: &mut Timeline, by: u64, before: Picos) -> u64 {
    let mut skipped = 0;
    while timeline.due().is_some_and(|due| due < before) {
        skipped += timeline.skip_before(before).unwrap_or_else(|| {
            (0..by).for_each(|_| timeline.advance(0));
            1
        });
    }
    skipped
}

impl Scripted {
    /// Conversations that could have begun before then, since the start of the load.
    fn due_before(&self, before: Nanos) -> u64 {
        let free = self.at_once.saturating_sub(self.open);
        let rest = self.ours.get(self.next..).unwrap_or_default();
        (rest.partition_point(|part| self.base + part.begin < before) as u64).min(free)
    }

    /// Since the start of the load; `None`: not before something has ended.
    fn due(&self) -> Option<Nanos> {
        if self.open >= self.at_once || self.turn >= self.loops {
            return None;
        }
        self.ours.get(self.next).map(|part| self.base + part.begin)
    }

    fn number(&self) -> u64 {
        self.turn
            .wrapping_mul(self.total)
            .wrapping_add(self.ours.get(self.next).map_or(0, |part| part.conversation))
    }

    fn is_over(&self) -> bool {
        self.ours.is_empty() || self.turn >= self.loops
    }

    /// One that was taken is over: if it was the last of its loop, the next begins.
    fn ended(&mut self, now: Nanos) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 && self.next == self.ours.len() {
            (self.turn, self.next) = (self.turn + 1, 0);
            self.base = (self.base + self.period).max(now);
        }
    }
}

/// Templates with a weight, with the sums of weights up to each.
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
    /// From now on there are so many, over all workers. Who is too many goes home when his flow has
    /// ended.
    fn become_total(&mut self, total: u64, by: u64, falling: bool) {
        (self.total, self.share) = (total, total.saturating_sub(self.first).div_ceil(by));
        // Who went home may come again, unless the load is coming down.
        if !falling {
            self.came = self.here;
        }
    }

    /// When the next comes for the first time.
    fn comes(&self, ramp: Ramp, start: Nanos, by: u64) -> Option<Nanos> {
        (self.came < self.share)
            .then(|| start + ramp.comes(self.first + self.came * by, self.total))
    }

    fn think(&mut self, seed: u64, now: Nanos) {
        let time = match self.think {
            Think::Fixed(time) => time,
            Think::Exponential(mean) => exponential(mean, seed, self.thoughts),
        };
        self.thoughts += 1;
        self.ready.push(now + time);
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

impl Ramp {
    /// When the load that has passed by then is what a full load passes in `load`; `None`: never.
    #[inline]
    fn instant(self, load: Picos) -> Option<Nanos> {
        if self.up == Nanos::ZERO && self.hold.is_none() {
            return Some(load.as_nanos());
        }
        let up = u128::from(Picos::from(self.up).0);
        let load = u128::from(load.0);
        // Rising, t²/2T of it has passed at t.
        if load * 2 < up {
            return Some(Picos((2 * up * load).isqrt() as u64).as_nanos());
        }
        let steady = load + up / 2;
        let Some(hold) = self.hold else {
            return Some(Picos(steady.min(u64::MAX.into()) as u64).as_nanos());
        };
        let top = up + u128::from(Picos::from(hold).0);
        if steady <= top {
            return Some(Picos(steady as u64).as_nanos());
        }
        // Falling, x - x²/2T at x behind the top.
        let down = u128::from(Picos::from(self.down).0);
        let rest = (down * down).checked_sub(2 * down * (steady - top))?;
        Some(Picos((top + down - rest.isqrt()) as u64).as_nanos())
    }

    /// How long a full load takes to pass what has passed at `elapsed`; the inverse of
    /// [`Ramp::instant`].
    fn passed(self, elapsed: Nanos) -> Picos {
        let t = u128::from(Picos::from(elapsed).0);
        let up = u128::from(Picos::from(self.up).0);
        if t < up {
            return Picos((t * t / (2 * up)) as u64);
        }
        let steady = t - up / 2;
        let Some(hold) = self.hold else { return Picos(steady as u64) };
        let top = up + u128::from(Picos::from(hold).0);
        if t <= top {
            return Picos(steady as u64);
        }
        let down = u128::from(Picos::from(self.down).0);
        let x = (t - top).min(down);
        Picos((top - up / 2 + x - if down == 0 { 0 } else { x * x / (2 * down) }) as u64)
    }

    /// When user `i` of `total` comes for the first time.
    fn comes(self, i: u64, total: u64) -> Nanos {
        Nanos((u128::from(self.up.0) * u128::from(i) / u128::from(total.max(1))) as u64)
    }

    /// Since the beginning: when it begins to fall.
    fn falls_at(self) -> Nanos {
        self.hold.map_or(Nanos(u64::MAX / 2), |hold| self.up + hold)
    }

    /// How many of `total` users stay at `elapsed`.
    fn falling(self, total: u64, elapsed: Nanos) -> u64 {
        let Some(hold) = self.hold else { return total };
        let behind = elapsed.saturating_sub(self.up).saturating_sub(hold);
        match self.down.0 {
            _ if behind == Nanos::ZERO => total,
            0 => 0,
            down => {
                (u128::from(total) * u128::from(down.saturating_sub(behind.0)) / u128::from(down))
                    as u64
            }
        }
    }
}

impl Steering {
    fn measure(&mut self, now: Nanos, octets: u64, begun: u64) {
        let (came, flows) = (octets - self.octets, begun - self.begun);
        let seconds = now.saturating_sub(self.at).as_secs_f64();
        (self.at, self.octets, self.begun) = (now, octets, begun);
        if came == 0 || flows == 0 {
            // Nothing tells what a flow carries yet: a little more, for as long as that is
            // harmless.
            if self.octets_per_flow == 0.0 && flows > 0 {
                self.cps = (self.cps * 2.0).min(1000.0);
            }
            return;
        }
        let each = came as f64 / flows as f64;
        self.octets_per_flow = if self.octets_per_flow == 0.0 {
            each
        } else {
            0.7 * self.octets_per_flow + 0.3 * each
        };
        let aim = self.bits_per_second as f64 / 8.0;
        let wanted = aim / self.octets_per_flow;
        // What came too much or too little lately is made up for by a tenth; no step doubles or
        // halves more than once.
        let corrected = wanted * (1.0 + 0.1 * (1.0 - came as f64 / seconds / aim).clamp(-1.0, 1.0));
        self.cps = corrected.clamp(self.cps / 2.0, self.cps * 2.0).clamp(0.001, MOST_CPS);
    }
}

#[cfg(test)]
mod tests;
