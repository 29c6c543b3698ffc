//! The controller (RFC 9971 §4.9.2): selects load and duration of the next trial.

use super::goal::{Bound, Demand, Goal, Shot};

/// Searches for the bounds of all goals at once. Each trial counts for every goal.
///
/// A goal has two levels: first single trials of the initial duration, then the trials that the
/// goal requires. The second level starts from the bounds of the first.
///
/// ```
/// use squall_method::mlrsearch::{Next, Preset, Search};
///
/// let carries = 1e6;
/// let mut search = Search::new(&Preset::Csit.goals(), 1e3, 1e7);
/// while let Next::Measure { load, duration_s } = search.next_trial() {
///     search.record(load, duration_s, (1.0 - carries / load).max(0.0));
/// }
/// let [ndr, pdr] = search.found()[..] else { panic!("two goals") };
/// assert!(ndr.regular && ndr.lower < Some(1e6) && ndr.upper > Some(1e6));
/// // Half a percent may be lost: it is offered more, and forwards as much.
/// assert!(pdr.lower > ndr.lower && pdr.conditional_throughput <= Some(1e6));
/// ```
#[derive(Clone, Debug)]
pub struct Search {
    focuses: Vec<Focus>,
    min: f64,
    max: f64,
    /// The lowest load that the generator did not keep to.
    ceiling: f64,
    /// By load, ascending.
    loads: Vec<(f64, Vec<Shot>)>,
    asked: Option<Asked>,
}

/// The next action of the measurer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    Measure { load: f64, duration_s: f64 },
    Done,
}

/// The result for a goal (RFC 9971 §4.8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Relevant lower bound: the highest load below the upper bound that achieves the goal.
    pub lower: Option<f64>,
    /// Relevant upper bound: the lowest load that fails it.
    pub upper: Option<f64>,
    /// Conditional throughput at the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Both bounds exist, within the goal width of each other.
    pub regular: bool,
    /// Irregular because the generator did not keep to a higher load.
    pub generator_bound: bool,
}

/// A goal and the state of its search.
#[derive(Clone, Debug)]
struct Focus {
    goal: Goal,
    levels: Vec<Demand>,
    /// The first active level; levels with shorter trials are finished.
    from: usize,
    /// Consecutive trials that left more than half of the interval that they were meant to split.
    misses: u32,
}

/// Origin of the current trial.
#[derive(Clone, Copy, Debug)]
struct Asked {
    focus: usize,
    level: usize,
    /// The unknown interval before the trial.
    interval: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bounds {
    lower: Option<f64>,
    upper: Option<f64>,
}

struct Candidate {
    load: f64,
    duration_s: f64,
    asked: Asked,
}

impl Candidate {
    /// Lower loads first: an upper bound found there ends the search above it (§5.3.4).
    fn before(&self, other: &Self) -> bool {
        self.load < other.load || (self.load == other.load && self.duration_s > other.duration_s)
    }
}

impl Focus {
    fn new(goal: Goal) -> Self {
        let last = goal.demand();
        let first = Demand { duration_s: goal.initial_s, sum_s: goal.initial_s, ..last };
        let mut levels = vec![first, last];
        levels.dedup();
        Self { goal, levels, from: 0, misses: 0 }
    }

    fn narrow(&self, lower: f64, upper: f64) -> bool {
        (upper / lower).ln() <= self.goal.log_width()
    }

    /// Step away from a bound while the other one is missing; it grows with each miss.
    fn stride(&self) -> f64 {
        self.goal.log_width() * f64::from(4_u32.pow(self.misses.min(8)))
    }
}

impl Search {
    /// Loads are in any unit, from `min` to `max`.
    ///
    /// # Panics
    /// If not `0 < min < max`.
    pub fn new(goals: &[Goal], min: f64, max: f64) -> Self {
        assert!(min > 0.0 && min < max, "loads from {min} to {max}");
        let focuses = goals.iter().cloned().map(Focus::new).collect();
        Self { focuses, min, max, ceiling: f64::INFINITY, loads: Vec::new(), asked: None }
    }

    /// The next trial; pass its result to [`Self::record`] or [`Self::not_kept`].
    pub fn next_trial(&mut self) -> Next {
        let mut best: Option<Candidate> = None;
        for focus in 0..self.focuses.len() {
            let Some(candidate) = self.candidate(focus) else { continue };
            if best.as_ref().is_none_or(|best| candidate.before(best)) {
                best = Some(candidate);
            }
        }
        self.asked = best.as_ref().map(|candidate| candidate.asked);
        best.map_or(Next::Done, |Candidate { load, duration_s, .. }| Next::Measure {
            load,
            duration_s,
        })
    }

    /// Records the loss ratio of a trial.
    pub fn record(&mut self, load: f64, duration_s: f64, loss_ratio: f64) {
        let shot = Shot { duration_s, loss_ratio };
        match self.position(load) {
            Ok(i) => self.loads[i].1.push(shot),
            Err(i) => self.loads.insert(i, (load, vec![shot])),
        }
        self.weigh();
    }

    /// Records that the generator did not keep to `load`: the trial is not a result of the device,
    /// and no load this high is measured again.
    pub fn not_kept(&mut self, load: f64) {
        self.ceiling = self.ceiling.min(load);
        self.weigh();
    }

    /// The results of all goals, in their order.
    pub fn found(&self) -> Vec<Found> {
        self.focuses.iter().map(|focus| self.found_of(focus)).collect()
    }

    fn found_of(&self, focus: &Focus) -> Found {
        let demand = focus.goal.demand();
        let Bounds { lower, upper } = self.bounds(&demand);
        let regular = lower.zip(upper).is_some_and(|(lower, upper)| focus.narrow(lower, upper));
        Found {
            lower,
            upper,
            conditional_throughput: lower.map(|load| load * demand.forwarded(self.shots(load))),
            regular,
            generator_bound: !regular && self.ceiling < upper.unwrap_or(f64::INFINITY),
        }
    }

    fn position(&self, load: f64) -> Result<usize, usize> {
        self.loads.binary_search_by(|(other, _)| other.total_cmp(&load))
    }

    fn shots(&self, load: f64) -> &[Shot] {
        self.position(load).map_or(&[], |i| &self.loads[i].1)
    }

    /// The relevant bounds (§4.8.1, §4.8.2).
    fn bounds(&self, demand: &Demand) -> Bounds {
        let mut bounds = Bounds::default();
        for (load, shots) in &self.loads {
            match demand.classify(shots) {
                Bound::Lower => bounds.lower = Some(*load),
                Bound::Upper => {
                    bounds.upper = Some(*load);
                    break;
                }
                Bound::Undecided => {}
            }
        }
        bounds
    }

    /// The unknown interval, as a difference of logarithms.
    fn interval(&self, bounds: Bounds) -> f64 {
        // Start beyond the limits, so that the interval shrinks when a limit is measured.
        let upper = bounds.upper.unwrap_or(self.max * 2.0).min(self.ceiling);
        (upper / bounds.lower.unwrap_or(self.min / 2.0)).ln()
    }

    /// Counts a miss unless the trial was useful to the goal that requested it.
    fn weigh(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let left = self.interval(self.bounds(&self.focuses[asked.focus].levels[asked.level]));
        let misses = &mut self.focuses[asked.focus].misses;
        if left <= asked.interval / 2.0 {
            *misses = 0;
        } else if left < asked.interval {
            *misses += 1;
        }
    }

    /// The trial that a goal needs next.
    fn candidate(&mut self, focus: usize) -> Option<Candidate> {
        let Focus { from, ref levels, .. } = self.focuses[focus];
        let mut before =
            from.checked_sub(1).map_or(Bounds::default(), |level| self.bounds(&levels[level]));
        for level in from..levels.len() {
            let demand = self.focuses[focus].levels[level];
            let bounds = self.bounds(&demand);
            if let Some(load) = self.load(&self.focuses[focus], &demand, bounds, before) {
                self.enter(focus, level);
                let asked = Asked { focus, level, interval: self.interval(bounds) };
                return Some(Candidate { load, duration_s: demand.duration_s, asked });
            }
            before = bounds;
        }
        None
    }

    /// Skips the levels with shorter trials. A first level with trials of the same length stays
    /// active, because each trial at the second level counts for it, too.
    fn enter(&mut self, focus: usize, level: usize) {
        let focus = &mut self.focuses[focus];
        if focus.levels[focus.from].duration_s < focus.levels[level].duration_s {
            (focus.from, focus.misses) = (level, 0);
        }
    }

    /// The load that a level needs measured; `None`: the level is achieved.
    fn load(&self, focus: &Focus, demand: &Demand, bounds: Bounds, before: Bounds) -> Option<f64> {
        let (lower, upper) = (bounds.lower, bounds.upper.unwrap_or(self.ceiling).min(self.ceiling));
        let above = lower.unwrap_or(0.0);
        if above >= self.max || above >= upper || upper <= self.min {
            return None;
        }
        if lower.is_some_and(|lower| focus.narrow(lower, upper)) {
            return None;
        }
        let inside = |load: &f64| *load > above && *load < upper;
        let known = before.lower.filter(inside).or(before.upper.filter(inside));
        let load =
            known.or_else(|| self.unfinished(demand, above, upper)).unwrap_or_else(
                || match lower {
                    None if upper.is_infinite() => self.max,
                    None => self.below(focus, demand, upper),
                    Some(lower) if upper.is_infinite() => lower * focus.stride().exp(),
                    Some(lower) => self.between(focus, demand, lower, upper),
                },
            );
        Some(load.clamp(self.min, self.max))
    }

    /// A load with some, but too few, trials of the level's duration.
    fn unfinished(&self, demand: &Demand, above: f64, upper: f64) -> Option<f64> {
        let begun = |(load, shots): &&(f64, Vec<Shot>)| {
            *load > above
                && *load < upper
                && shots.iter().any(|shot| shot.duration_s >= demand.duration_s)
        };
        self.loads.iter().find(begun).map(|(load, _)| *load)
    }

    /// A load below all failing loads.
    fn below(&self, focus: &Focus, demand: &Demand, upper: f64) -> f64 {
        let load = self.crossing(demand, None, upper).unwrap_or(upper);
        let load = load * (-focus.stride() / 2.0).exp();
        load.min(upper * (-focus.goal.log_width()).exp())
    }

    /// A load between two bounds that are too far apart.
    fn between(&self, focus: &Focus, demand: &Demand, lower: f64, upper: f64) -> f64 {
        let middle = (lower * upper).sqrt();
        // Stay at least one width from either bound. If they are less than two widths apart, any
        // load in the middle leaves an interval within the width.
        let width = focus.goal.log_width().exp();
        let (low, high) = (lower * width, upper / width);
        if low >= high || focus.misses > 1 {
            return middle;
        }
        match self.crossing(demand, Some(lower), upper) {
            // A pass or a failure at these loads ends the search.
            Some(load) if load < low => low,
            Some(load) if load > high => high,
            Some(load) => load / width.sqrt(),
            None => middle,
        }
    }

    /// The load at which the loss is expected to reach the goal's: from there on, the frames lost
    /// beyond the goal's loss ratio grow linearly with the load, with the slope measured just above
    /// the interval.
    fn crossing(&self, demand: &Demand, lower: Option<f64>, upper: f64) -> Option<f64> {
        let loss = |load: f64| demand.typical_loss(self.shots(load));
        let excess = |load: f64| loss(load).map(|loss| load * (loss - demand.loss_ratio));
        let high = excess(upper).filter(|high| *high > 0.0)?;
        let lossy = lower.filter(|lower| loss(*lower) > Some(0.0));
        let next = self.loads.iter().map(|(load, _)| *load).find(|load| *load > upper);
        let mut points = [lossy, next].into_iter().flatten().filter_map(|load| {
            let slope = (excess(load)? - high) / (load - upper);
            (slope > 0.0).then_some(slope)
        });
        // With no second point: all additional load is lost.
        let slope = points.next().unwrap_or(1.0 - demand.loss_ratio);
        let load = upper - high / slope;
        (load > lower.unwrap_or(0.0) && load < upper).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlrsearch::Preset;

    /// Runs a search to its end; returns the results, and load and seconds of each trial.
    fn searched(
        goals: &[Goal],
        able: f64,
        mut loss: impl FnMut(f64, f64) -> f64,
    ) -> (Vec<Found>, Vec<(f64, f64)>) {
        let mut search = Search::new(goals, 1e-4, 1.0);
        let mut trials = Vec::new();
        while let Next::Measure { load, duration_s } = search.next_trial() {
            assert!((1e-4..=1.0).contains(&load) && trials.len() < 5000, "{load}");
            trials.push((load, duration_s));
            if load > able {
                search.not_kept(load);
            } else {
                search.record(load, duration_s, loss(load, duration_s));
            }
        }
        (search.found(), trials)
    }

    fn sharp(capacity: f64) -> impl Fn(f64, f64) -> f64 {
        move |load, _| (1.0 - capacity / load).max(0.0)
    }

    #[test]
    fn a_sharp_capacity_is_found_by_as_few_trials_as_the_goals_ask_for() {
        for percent in 1..100 {
            let capacity = f64::from(percent) / 100.0;
            let (found, trials) = searched(&Preset::Rfc2544.goals(), 1.0, sharp(capacity));
            let (lower, upper) = (found[0].lower.unwrap(), found[0].upper.unwrap());
            assert!(found[0].regular && lower <= capacity && capacity < upper, "{found:?}");
            assert!(upper - lower <= 0.005 * upper, "{found:?}");
            assert!(found[0].conditional_throughput == Some(lower));
            // One long trial: a lossy short trial suffices for an upper bound.
            let long = trials.iter().filter(|(_, duration_s)| *duration_s == 60.0).count();
            assert!(long == 1 && trials.len() <= 5, "{trials:?}");

            // Three loads; the middle one is the upper bound of NDR and the lower bound of PDR.
            // Each has 11 of 21 trials that agree.
            let (found, trials) = searched(&Preset::Csit.goals(), 1.0, sharp(capacity));
            assert!(found.iter().all(|found| found.regular), "{found:?}");
            assert!(trials.len() <= 37, "{} trials at {capacity}", trials.len());
        }
    }

    #[test]
    fn short_trials_do_not_hide_a_buffer() {
        // A device with a buffer for two seconds of its capacity.
        let capacity = 0.3;
        let loss = |load: f64, duration_s: f64| {
            ((load - capacity) * duration_s - capacity * 2.0).max(0.0) / (load * duration_s)
        };
        let threshold = capacity * (1.0 + 2.0 / 60.0);
        let (found, _) = searched(&Preset::Rfc2544.goals(), 1.0, loss);
        assert!(found[0].regular && found[0].lower <= Some(threshold), "{found:?}");
        assert!(found[0].upper > Some(threshold), "{found:?}");
    }

    #[test]
    fn a_bound_that_does_not_exist_is_missing() {
        let (found, trials) = searched(&Preset::Csit.goals(), 1.0, |_, _| 0.0);
        assert!(found.iter().all(|found| found.lower == Some(1.0) && found.upper.is_none()));
        assert!(found.iter().all(|found| !found.regular && !found.generator_bound));
        assert_eq!(trials.len(), 11);
        // A device that loses 0.1 % at any load: there is no NDR, but a PDR.
        let (found, _) = searched(&Preset::Csit.goals(), 1.0, |_, _| 0.001);
        assert!(found[0].lower.is_none() && found[0].upper == Some(1e-4), "{found:?}");
        assert_eq!(found[1].conditional_throughput, Some(0.999));
    }

    #[test]
    fn a_load_that_the_generator_does_not_keep_to_is_no_upper_bound() {
        for able in [0.5, 0.01, 0.998] {
            let (found, trials) = searched(&Preset::Rfc2544.goals(), able, sharp(0.999));
            let lower = found[0].lower.unwrap();
            assert!(lower <= able && lower > able * 0.99, "{found:?}");
            assert!(found[0].generator_bound && found[0].upper.is_none(), "{found:?}");
            assert!(trials.len() < 30, "{} trials", trials.len());
        }
        let (found, _) = searched(&Preset::Rfc2544.goals(), 0.5, sharp(0.2));
        assert!(found[0].regular && !found[0].generator_bound);
        // The generator keeps to no load.
        let (found, trials) = searched(&Preset::Csit.goals(), 0.0, sharp(0.2));
        assert!(found.iter().all(|found| found.generator_bound && found.lower.is_none()));
        assert!(trials.len() < 30, "{} trials", trials.len());
    }

    #[test]
    fn the_search_ends_with_any_results() {
        for preset in [Preset::Rfc2544, Preset::Tst009, Preset::Csit] {
            for seed in 1..200 {
                let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
                // Half of the trials have loss, at any load.
                let noise = |_, _| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    if random >> 63 == 0 { 0.0 } else { (random % 100) as f64 / 1000.0 }
                };
                let (found, _) = searched(&preset.goals(), 1.0, noise);
                let ended = |found: &Found| {
                    found.regular || found.lower == Some(1.0) || found.upper == Some(1e-4)
                };
                assert!(found.iter().all(ended), "{found:?}");
            }
        }
    }
}
