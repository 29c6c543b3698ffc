//! The controller (RFC 9971 §4.9.2), which selects load and duration of the next trial.

use super::goal::{Bound, Demand, Goal, Shot};

/// Searches for the bounds of all goals at once. Each trial counts for every goal.
///
/// A goal has levels, from single trials of the initial duration to the trials that the goal
/// requires. If a goal has many trials of the initial duration, there is a level in between,
/// because a single trial of a noisy device says little. Each level starts from the bounds of the
/// previous one.
///
/// All loads are points of a grid whose spacing is at most the smallest goal width. Goals therefore
/// share trials, and no interval is split to less than a width.
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
    /// The lowest load that the generator did not sustain.
    ceiling: f64,
    /// Number of the grid point of `max`; `min` is point 0. Points are evenly spaced in the
    /// logarithm of the load.
    points: f64,
    /// Trials by load, ascending.
    loads: Vec<(f64, Vec<Shot>)>,
    asked: Option<Asked>,
}

/// The next step of the measurer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    Measure { load: f64, duration_s: f64 },
    Done,
}

/// Result for a goal (RFC 9971 §4.8.4).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Relevant lower bound: the highest load below the upper bound that achieves the goal.
    pub lower: Option<f64>,
    /// Relevant upper bound: the lowest load that fails the goal.
    pub upper: Option<f64>,
    /// Conditional throughput at the lower bound.
    pub conditional_throughput: Option<f64>,
    /// Whether both bounds exist and are within the goal width of each other.
    pub regular: bool,
    /// Whether the result is irregular because the generator could not sustain a higher load.
    pub generator_bound: bool,
}

/// A goal and the state of its search.
#[derive(Clone, Debug)]
struct Focus {
    goal: Goal,
    levels: Vec<Demand>,
    /// The active level; earlier ones are finished.
    from: usize,
    /// Bounds of the previous level at the time it was finished. Its later bounds are not used:
    /// they change with each trial of the active level, and would move the search.
    start: Bounds,
    /// The load that the last trial for this goal is to help classify.
    current: Option<f64>,
    /// Number of consecutive trials that reduced the interval, but by less than half.
    misses: u32,
    /// Number of consecutive loads tried in the search for a missing bound.
    steps: i32,
}

/// The goal and level that requested the current trial.
#[derive(Clone, Copy, Debug)]
struct Asked {
    focus: usize,
    level: usize,
    /// Width of the unknown interval before the trial.
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
    /// Lower loads first: an upper bound at a lower load makes trials of higher loads unnecessary
    /// (§5.3.4).
    fn before(&self, other: &Self) -> bool {
        self.load < other.load || (self.load == other.load && self.duration_s > other.duration_s)
    }
}

impl Focus {
    fn new(goal: Goal) -> Self {
        let last = goal.demand();
        let first = Demand { duration_s: goal.initial_s, sum_s: goal.initial_s, ..last };
        let mut levels = vec![first, last];
        if goal.final_s <= goal.initial_s {
            levels.insert(1, Demand { sum_s: (goal.initial_s * goal.sum_s).sqrt(), ..last });
        }
        levels.dedup();
        let start = Bounds::default();
        Self { goal, levels, from: 0, start, current: None, misses: 0, steps: 0 }
    }

    fn narrow(&self, lower: f64, upper: f64) -> bool {
        (upper / lower).ln() <= self.goal.log_width()
    }

    /// Step away from a bound while the other bound is missing, in goal widths. With many trials
    /// per load, the first three steps are below a width, that is, single points of the grid:
    /// chance loss in one trial can cause a step, and after a long step the other bound has to be
    /// found by bisection.
    fn stride(&self) -> f64 {
        let first = if self.goal.demand().many() { -2 } else { 0 };
        4_f64.powi(first + self.steps.min(8))
    }
}

impl Search {
    /// `min` and `max` limit the loads, in any unit.
    ///
    /// # Panics
    /// If not `0 < min < max`.
    pub fn new(goals: &[Goal], min: f64, max: f64) -> Self {
        assert!(min > 0.0 && min < max, "loads from {min} to {max}");
        let focuses = goals.iter().cloned().map(Focus::new).collect();
        let width = goals.iter().map(Goal::log_width).fold(f64::INFINITY, f64::min);
        let points = ((max / min).ln() / width).ceil();
        Self { focuses, min, max, ceiling: f64::INFINITY, points, loads: Vec::new(), asked: None }
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
        if let Some(best) = &best {
            self.focuses[best.asked.focus].current = Some(best.load);
        }
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

    /// Records that the generator missed its schedule at `load`. The trial says nothing about the
    /// device, and the search tries no load this high again.
    pub fn not_kept(&mut self, load: f64) {
        self.ceiling = self.ceiling.min(load);
        self.weigh();
    }

    /// Results in the order of the goals.
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
        // Start beyond the limits, so the interval also shrinks when a trial is at a limit.
        let upper = bounds.upper.unwrap_or(self.max * 2.0).min(self.ceiling);
        (upper / bounds.lower.unwrap_or(self.min / 2.0)).ln()
    }

    /// Counts a miss if the trial did not halve the interval of the goal that requested it.
    fn weigh(&mut self) {
        let Some(asked) = self.asked.take() else { return };
        let bounds = self.bounds(&self.focuses[asked.focus].levels[asked.level]);
        let left = self.interval(bounds);
        let Focus { misses, steps, .. } = &mut self.focuses[asked.focus];
        if left <= asked.interval / 2.0 {
            *misses = 0;
        } else if left < asked.interval {
            *misses += 1;
        }
        if bounds.lower.is_some() && bounds.upper.is_some() {
            *steps = 0;
        } else if left < asked.interval {
            *steps += 1;
        }
    }

    /// The next trial that a goal needs.
    fn candidate(&mut self, focus: usize) -> Option<Candidate> {
        let Focus { from, start, ref levels, .. } = self.focuses[focus];
        let mut before = start;
        for level in from..levels.len() {
            let demand = self.focuses[focus].levels[level];
            let bounds = self.bounds(&demand);
            if let Some(load) = self.load(&self.focuses[focus], &demand, bounds, before) {
                self.enter(focus, level, before);
                let asked = Asked { focus, level, interval: self.interval(bounds) };
                return Some(Candidate { load, duration_s: self.duration(&demand, load), asked });
            }
            before = bounds;
        }
        None
    }

    /// Leaves the levels before `level`: returning to one would take trials that the level needs
    /// but the goal does not.
    fn enter(&mut self, focus: usize, level: usize, before: Bounds) {
        let focus = &mut self.focuses[focus];
        if focus.from < level {
            (focus.from, focus.start, focus.misses, focus.steps) = (level, before, 0, 0);
        }
    }

    /// Duration of a trial. If a level still needs at least as much time as the longest trial of
    /// any goal, the trial has that duration, as it counts as full-length for both (RFC 9971
    /// §4.5.1). Otherwise a goal of 120 trials of 1 s next to one of 60 s would take most trials of
    /// the search.
    fn duration(&self, demand: &Demand, load: f64) -> f64 {
        let finals = self.focuses.iter().map(|focus| focus.goal.final_s);
        let longest = finals.filter(|final_s| *final_s <= demand.sum_s).fold(0.0, f64::max);
        let shots = self.shots(load);
        let (lower_s, upper_s) = demand.missing(shots);
        // A single short trial can suffice for an upper bound, unless short trials pass at this
        // load.
        let passes = |shot: &Shot| {
            (demand.duration_s..longest).contains(&shot.duration_s)
                && shot.loss_ratio <= demand.loss_ratio
        };
        let open = upper_s >= longest / 2.0 || shots.iter().any(passes);
        if lower_s >= longest / 2.0 && open {
            longest.max(demand.duration_s)
        } else {
            demand.duration_s
        }
    }

    /// The next load to measure at a level; `None`: the level is done.
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
        let begun = |load: &f64| demand.classify(self.shots(*load)) == Bound::Undecided;
        // First the bounds of the previous level, then a load that has too few trials.
        let known = before.lower.filter(inside).or(before.upper.filter(inside));
        if let Some(load) = known.or(focus.current.filter(inside).filter(begun)) {
            return Some(load);
        }
        let point = match lower {
            None if upper.is_infinite() => self.points,
            None => self.below(focus, demand, upper),
            Some(lower) if upper.is_infinite() => self.above(focus, demand, lower),
            Some(lower) => self.between(focus, demand, lower, upper),
        };
        let first = lower.map_or(0.0, |lower| self.point(lower) + 1.0);
        let last = if upper.is_infinite() { self.points } else { self.point(upper) - 1.0 };
        Some(self.at(point.clamp(first, last.max(first))))
    }

    /// The grid point at a load, or the next one below it.
    fn point(&self, load: f64) -> f64 {
        // The tolerance finds the grid point of a load despite rounding.
        ((load / self.min).ln() / (self.max / self.min).ln() * self.points + 1e-6).floor()
    }

    /// The load of a grid point.
    fn at(&self, point: f64) -> f64 {
        if point >= self.points {
            return self.max;
        }
        self.min * ((self.max / self.min).ln() * point / self.points).exp()
    }

    /// Goal width in grid points.
    fn width(&self, focus: &Focus) -> f64 {
        let step = (self.max / self.min).ln() / self.points;
        (focus.goal.log_width() / step + 1e-6).floor().max(1.0)
    }

    /// A grid point below all failing loads.
    fn below(&self, focus: &Focus, demand: &Demand, upper: f64) -> f64 {
        let width = self.width(focus);
        // With several trials per load, most of the loss is chance, which does not extrapolate.
        let crossing = (!demand.many()).then(|| self.crossing(demand, None, upper)).flatten();
        let point = self.point(crossing.unwrap_or(upper)) - (width * focus.stride()).floor();
        point.min(self.point(upper) - width)
    }

    /// A grid point above all passing loads, at most the lowest load that failed at a level with
    /// trials of the same or a shorter duration.
    fn above(&self, focus: &Focus, demand: &Demand, lower: f64) -> f64 {
        let fails = |level: &Demand, shots: &[Shot]| {
            level.duration_s <= demand.duration_s && level.classify(shots) == Bound::Upper
        };
        let failed = self.loads.iter().find(|(load, shots)| {
            *load > lower && focus.levels.iter().any(|level| fails(level, shots))
        });
        let width = self.width(focus);
        let point = self.point(lower) + (width * focus.stride()).floor().max(width);
        failed.map_or(point, |(load, _)| point.min(self.point(*load)))
    }

    /// A grid point between two bounds that are too far apart.
    fn between(&self, focus: &Focus, demand: &Demand, lower: f64, upper: f64) -> f64 {
        let width = self.width(focus);
        let (low, high) = (self.point(lower), self.point(upper));
        let middle = f64::midpoint(low, high).floor();
        // If the bounds are less than two widths apart, a load in the middle leaves an interval
        // within the width.
        if high - low < 2.0 * width || focus.misses > 2 {
            return middle;
        }
        // One width from either bound at least: a pass or a failure there ends the search.
        let expected = self.crossing(demand, Some(lower), upper);
        expected.map_or(middle, |load| self.point(load).clamp(low + width, high - width))
    }

    /// The load at which loss is expected to reach the goal's loss ratio. The number of frames lost
    /// beyond that ratio is assumed to grow linearly with the load, with the slope measured just
    /// above the interval.
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
        // Without a second point, assume that all additional load is lost.
        let slope = points.next().unwrap_or(1.0 - demand.loss_ratio);
        let load = upper - high / slope;
        (load > lower.unwrap_or(0.0) && load < upper).then_some(load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mlrsearch::Preset;

    /// Runs a search to completion. Returns its results, and load and duration of each trial.
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
            // A single long trial: for an upper bound, a lossy short trial suffices.
            let long = trials.iter().filter(|(_, duration_s)| *duration_s == 60.0).count();
            assert!(long == 1 && trials.len() <= 5, "{trials:?}");

            // Three loads. The middle one is the upper bound of NDR and the lower bound of PDR. At
            // each, 11 of 21 trials agree.
            let (found, trials) = searched(&Preset::Csit.goals(), 1.0, sharp(capacity));
            assert!(found.iter().all(|found| found.regular), "{found:?}");
            assert!(trials.len() <= 37, "{} trials at {capacity}", trials.len());
        }
    }

    #[test]
    fn short_trials_do_not_hide_a_buffer() {
        // A device with a buffer that holds two seconds of its capacity.
        let capacity = 0.3;
        let loss = |load: f64, duration_s: f64| {
            ((load - capacity) * duration_s - capacity * 2.0).max(0.0) / (load * duration_s)
        };
        let threshold = capacity * (1.0 + 2.0 / 60.0);
        let (found, _) = searched(&Preset::Rfc2544.goals(), 1.0, loss);
        assert!(found[0].regular && found[0].lower <= Some(threshold), "{found:?}");
        assert!(found[0].upper > Some(threshold), "{found:?}");
    }

    /// Devices in which the fraction of lossy trials grows from 0 to 1 within 0.1 to 20 % below the
    /// capacity. Returns the mean number and duration of the trials of a search, and all loads.
    fn noisy(goals: &[Goal]) -> (f64, f64, Vec<Vec<f64>>) {
        let mut draws = squall_units::SplitMix64(9971);
        let mut random = move || (draws.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        let (mut count, mut seconds, mut loads) = (0.0, 0.0, Vec::new());
        for _ in 0..200 {
            let capacity = 0.01 + 0.9 * random();
            let edge = capacity * 0.001 * (random() * 200_f64.ln()).exp();
            let loss = |load: f64, _| {
                let chance = (load - capacity + edge) / edge;
                let over = (1.0 - capacity / load).max(0.0);
                if random() < chance { over.max(0.002) } else { over }
            };
            let (found, trials) = searched(goals, 1.0, loss);
            assert!(found.iter().all(|found| found.regular), "{found:?}");
            count += trials.len() as f64 / 200.0;
            seconds += trials.iter().map(|(_, duration_s)| duration_s).sum::<f64>() / 200.0;
            let mut of_search: Vec<f64> = trials.iter().map(|(load, _)| *load).collect();
            of_search.sort_by(f64::total_cmp);
            of_search.dedup();
            loads.push(of_search);
        }
        (count, seconds, loads)
    }

    #[test]
    fn trials_that_differ_by_chance_cost_few_more() {
        // The reference library (FD.io CSIT) takes about as many: tests/interop/mlrsearch.py.
        let (count, seconds, _) = noisy(&Preset::Rfc2544.goals());
        assert!(count < 9.0 && seconds < 200.0, "{count} trials, {seconds} s");
        let (count, _, _) = noisy(&Preset::Csit.goals());
        assert!(count < 70.0, "{count} trials");
    }

    #[test]
    fn goals_share_loads_that_are_a_width_apart() {
        let width = Goal::default().log_width();
        for loads in noisy(&Preset::Csit.goals()).2 {
            let spaced = |pair: &[f64]| (pair[1] / pair[0]).ln() > 0.99 * width;
            assert!(loads.windows(2).all(spaced), "{loads:?}");
        }
    }

    #[test]
    fn a_goal_of_many_short_trials_takes_long_ones_that_another_goal_has() {
        // The goals of RFC 9971 appendix C.1 for 60 s without loss and for 120 trials of 1 s, on a
        // device with a buffer that holds two seconds of its capacity: short trials pass where long
        // ones fail, so neither goal's trials decide for the other.
        let short = Goal {
            name: "1s final".into(),
            final_s: 1.0,
            sum_s: 120.0,
            loss_ratio: 0.005,
            exceed_ratio: 0.5,
            ..Goal::default()
        };
        let capacity = 0.3;
        let loss = |load: f64, duration_s: f64| {
            ((load - capacity) * duration_s - capacity * 2.0).max(0.0) / (load * duration_s)
        };
        let (found, trials) = searched(&[Goal::default(), short], 1.0, loss);
        assert!(found.iter().all(|found| found.regular), "{found:?}");
        assert!(trials.len() < 30, "{} trials", trials.len());
    }

    #[test]
    fn a_bound_that_does_not_exist_is_missing() {
        let (found, trials) = searched(&Preset::Csit.goals(), 1.0, |_, _| 0.0);
        assert!(found.iter().all(|found| found.lower == Some(1.0) && found.upper.is_none()));
        assert!(found.iter().all(|found| !found.regular && !found.generator_bound));
        assert_eq!(trials.len(), 11);
        // A device that loses 0.1 % at any load has no NDR, but a PDR.
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
        // The generator sustains no load.
        let (found, trials) = searched(&Preset::Csit.goals(), 0.0, sharp(0.2));
        assert!(found.iter().all(|found| found.generator_bound && found.lower.is_none()));
        assert!(trials.len() < 30, "{} trials", trials.len());
    }

    #[test]
    fn the_search_ends_with_any_results() {
        for preset in [Preset::Rfc2544, Preset::Tst009, Preset::Csit] {
            for seed in 1..200 {
                let mut random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
                // At any load, half of the trials have loss.
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
