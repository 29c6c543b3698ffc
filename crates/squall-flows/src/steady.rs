//! Flows that began and ended in each second and in the steady part of the load: the longest time
//! in which it neither rises nor falls.
//!
//! The figures are differences of counters that exist anyway, read once per second and at both ends
//! of the steady part, so they add no cost per flow.

use squall_units::Nanos;

use crate::Load;

/// The flows of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    pub attempted: u64,
    pub completed: u64,
}

/// Counters up to a time, or between two times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub attempted: u64,
    pub completed: u64,
    /// Octets of application data.
    pub received_octets: u64,
}

/// The counters of a side, per template: clients, servers.
pub(crate) type Tallies = Vec<[Tally; 2]>;

#[derive(Debug)]
pub(crate) struct Steady {
    /// Start of the steady part.
    from: Nanos,
    /// End of the steady part; [`NEVER`] while unknown.
    to: Nanos,
    /// Whether the end is final.
    is_final: bool,
    /// When to read the counters next.
    next: Nanos,
    /// End of the current second.
    second: Nanos,
    /// The counters of all templates at the start of the current second.
    before: [Second; 2],
    seconds: [Vec<Second>; 2],
    /// The counters at both ends of the steady part.
    first: Option<Tallies>,
    last: Option<Tallies>,
}

const SECOND: Nanos = Nanos(1_000_000_000);
const NEVER: Nanos = Nanos(u64::MAX);

impl Steady {
    /// Creates the counters for a load that starts at `start`.
    pub fn new(load: &Load, start: Nanos) -> Self {
        Self {
            from: steady(load, start).0,
            to: steady(load, start).1,
            is_final: false,
            next: start,
            second: start + SECOND,
            before: [Second::default(); 2],
            seconds: [Vec::new(), Vec::new()],
            first: None,
            last: None,
        }
    }

    /// One comparison, because every turn of a worker calls this; reading all counters would cost
    /// more.
    #[inline]
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.next
    }

    /// Records that no flow is due from `at` on. Only the first call has an effect.
    pub fn end(&mut self, at: Nanos) {
        if !self.is_final {
            (self.is_final, self.to) = (true, self.to.min(at));
            self.next = self.next.min(self.to);
        }
    }

    pub fn is_final(&self) -> bool {
        self.is_final
    }

    /// Records that the load has changed during the run.
    pub fn change(&mut self, load: &Load, start: Nanos) {
        if !self.is_final && self.last.is_none() {
            self.to = steady(load, start).1;
            self.next = self.next.min(self.to);
        }
    }

    /// Restarts the measurement after templates have joined: the earlier figures lack their flows.
    pub fn go_on(&mut self, now: Nanos, load: &Load, start: Nanos) {
        let (from, to) = steady(load, start);
        (self.from, self.to) = (from.max(now), to);
        (self.is_final, self.first, self.last) = (false, None, None);
        self.next = now;
    }

    /// Reads the counters at `now`.
    #[cold]
    pub fn look(&mut self, now: Nanos, counted: Tallies) {
        // A stall may span several seconds. Each gets its own entry, because the seconds of all
        // workers must begin at the same times to be added.
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

    /// Length of the steady part so far, and the counters of its clients per template; `counted`:
    /// the counters at `now`.
    pub fn so_far(&self, now: Nanos, counted: &Tallies) -> (Nanos, Vec<Tally>) {
        let Some(first) = &self.first else {
            return (Nanos::ZERO, vec![Tally::default(); counted.len()]);
        };
        // The last flows may end before the next one would have been due.
        let to = if self.is_final || self.last.is_some() { self.to } else { self.to.min(now) };
        let between = |([first, _], [last, _]): (&[Tally; 2], &[Tally; 2])| Tally {
            attempted: last.attempted - first.attempted,
            completed: last.completed - first.completed,
            received_octets: last.received_octets - first.received_octets,
        };
        let last = self.last.as_ref().unwrap_or(counted);
        (to.saturating_sub(self.from), first.iter().zip(last).map(between).collect())
    }

    /// Per whole second from the start of the load: clients, servers.
    pub fn seconds(&self) -> [Vec<Second>; 2] {
        self.seconds.clone()
    }
}

/// The steady part, as far as the load alone determines it; empty if there is none.
fn steady(load: &Load, start: Nanos) -> (Nanos, Nanos) {
    let Some((from, to)) = load.plateau() else { return (NEVER, NEVER) };
    let at = |elapsed: Nanos| Nanos(start.0.saturating_add(elapsed.0));
    (at(from), at(to))
}
