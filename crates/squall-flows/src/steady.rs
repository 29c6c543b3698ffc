//! How many flows began and ended in each second, and while the load was steady: in the longest time
//! in which it neither rises nor falls.
//!
//! All of it is made of counters that are there anyway, looked at when an instant has come: once a
//! second, and at both ends.

use squall_units::Nanos;

use crate::Load;

/// Flows of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Begun, and ended as they should.
    pub attempted: u64,
    pub completed: u64,
}

/// What was counted until an instant, or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub attempted: u64,
    pub completed: u64,
    /// Of application data.
    pub received_octets: u64,
}

/// What a side counted, by template: clients, servers.
pub(crate) type Tallies = Vec<[Tally; 2]>;

#[derive(Debug)]
pub(crate) struct Steady {
    /// The load is steady from then on ...
    from: Nanos,
    /// ... until then; the end of time if that is not known yet.
    to: Nanos,
    /// Nothing changes that any more.
    told: bool,
    /// When to look next.
    next: Nanos,
    /// When the second ends that is on its way.
    second: Nanos,
    /// What was counted until it began, of all templates.
    before: [Second; 2],
    seconds: [Vec<Second>; 2],
    /// At both ends.
    first: Option<Tallies>,
    last: Option<Tallies>,
}

const SECOND: Nanos = Nanos(1_000_000_000);
const NEVER: Nanos = Nanos(u64::MAX);

impl Steady {
    /// Of a load that begins at `start`.
    pub fn new(load: &Load, start: Nanos) -> Self {
        Self {
            from: steady(load, start).0,
            to: steady(load, start).1,
            told: false,
            next: start,
            second: start + SECOND,
            before: [Second::default(); 2],
            seconds: [Vec::new(), Vec::new()],
            first: None,
            last: None,
        }
    }

    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// No flow is due any more from `at` on; only the first word counts.
    pub fn end(&mut self, at: Nanos) {
        if !self.told {
            (self.told, self.to) = (true, self.to.min(at));
            self.next = self.next.min(self.to);
        }
    }

    pub fn is_told(&self) -> bool {
        self.told
    }

    /// The load has changed while running.
    pub fn change(&mut self, load: &Load, start: Nanos) {
        if !self.told && self.last.is_none() {
            self.to = steady(load, start).1;
            self.next = self.next.min(self.to);
        }
    }

    /// Templates have joined: what is measured from now on is of them, too.
    pub fn go_on(&mut self, now: Nanos, load: &Load, start: Nanos) {
        let (from, to) = steady(load, start);
        (self.from, self.to) = (from.max(now), to);
        (self.told, self.first, self.last) = (false, None, None);
        self.next = now;
    }

    /// An instant has come: what was counted until `now`.
    #[cold]
    pub fn look(&mut self, now: Nanos, counted: Tallies) {
        while now >= self.second {
            self.second = self.second + SECOND;
            for (side, (before, seconds)) in
                self.before.iter_mut().zip(&mut self.seconds).enumerate()
            {
                let sum = |of: fn(&Tally) -> u64| {
                    counted.iter().map(|sides| of(&sides[side])).sum::<u64>()
                };
                let now =
                    Second { attempted: sum(|t| t.attempted), completed: sum(|t| t.completed) };
                seconds.push(Second {
                    attempted: now.attempted - before.attempted,
                    completed: now.completed - before.completed,
                });
                *before = now;
            }
        }
        if self.last.is_none() && now >= self.to {
            self.last = Some(counted.clone());
        }
        if self.first.is_none() && now >= self.from {
            self.first = Some(counted);
        }
        let ends = [(self.first.is_none(), self.from), (self.last.is_none(), self.to)];
        let ends = ends.into_iter().filter(|(open, _)| *open).map(|(_, at)| at);
        self.next = ends.chain([self.second]).min().unwrap_or(NEVER);
    }

    /// How long the load has been whole, and what its clients counted meanwhile, by template; `now`
    /// and `counted` are of now.
    pub fn so_far(&self, now: Nanos, counted: &Tallies) -> (Nanos, Vec<Tally>) {
        let Some(first) = &self.first else {
            return (Nanos::ZERO, vec![Tally::default(); counted.len()]);
        };
        // Flows that were the last may be over before the next would have been due.
        let to = if self.told || self.last.is_some() { self.to } else { self.to.min(now) };
        let between = |([first, _], [last, _]): (&[Tally; 2], &[Tally; 2])| Tally {
            attempted: last.attempted - first.attempted,
            completed: last.completed - first.completed,
            received_octets: last.received_octets - first.received_octets,
        };
        let last = self.last.as_ref().unwrap_or(counted);
        (to.saturating_sub(self.from), first.iter().zip(last).map(between).collect())
    }

    /// Whole seconds since the load began: of clients, of servers.
    pub fn seconds(&self) -> [Vec<Second>; 2] {
        self.seconds.clone()
    }
}

/// The time in which the load is steady, as far as the load says it; an empty one if there is none.
fn steady(load: &Load, start: Nanos) -> (Nanos, Nanos) {
    let Some((from, to)) = load.plateau() else { return (NEVER, NEVER) };
    let at = |elapsed: Nanos| Nanos(start.0.saturating_add(elapsed.0));
    (at(from), at(to))
}
