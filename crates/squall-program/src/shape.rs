//! How a load or rate changes over time: linear pieces, in integers.
//!
//! Departures are computed at the full level and then moved to where the same load has passed under
//! the shape. Each time is determined by the shape and the frame's own index, so no rounding
//! accumulates, and workers that share the frames need no communication.

use std::sync::Arc;

use squall_units::{Nanos, Picos, gcd};

/// One piece of a [`Shape`]: the level changes linearly from the one before, within `lasts`; if
/// `lasts` is 0, it changes in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    pub lasts: Nanos,
    /// The new level, in the unit of the shape's full level.
    pub to: u64,
}

/// A level over time. The default is the full level without an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    legs: Arc<[Leg]>,
    full: u64,
    /// The level after the last leg; `None`: the shape ends there.
    goes_on: Option<u64>,
    end: Leg,
}

/// A linear piece; times in nanoseconds from the start of the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leg {
    at: u64,
    lasts: u64,
    from: u64,
    to: u64,
    /// Twice the area under the shape before this leg: level times nanoseconds.
    before: u128,
}

/// Why stages are not a valid shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeError {
    /// The level is never above 0.
    Nothing,
    /// The stage with this number changes its level for longer than [`Shape::LONGEST`].
    TooLong(usize),
    /// The total is longer than 292 years.
    Endless,
}

/// Largest level: with a larger one, computing the area of a day would exceed 128 bits; with this
/// one, the slowest ramp still has area in each nanosecond.
const FINEST: u64 = (1 << 34) - 1;

impl Default for Shape {
    fn default() -> Self {
        Self { legs: Arc::new([]), full: 1, goes_on: Some(1), end: Leg::new(0, 0, 0, 0, 0) }
    }
}

impl Leg {
    const fn new(at: u64, lasts: u64, from: u64, to: u64, before: u128) -> Self {
        Self { at, lasts, from, to, before }
    }

    /// Twice the area under the leg until `x`, rounded down; monotonic, as the floor of a growing
    /// function.
    fn area(&self, x: u64) -> u128 {
        let even = 2 * u128::from(self.from) * u128::from(x);
        if self.from == self.to || x == 0 {
            return even;
        }
        // Below 2^127, because levels are below 2^34 and x below 2^46.4.
        let slope = i128::from(self.to) - i128::from(self.from);
        let squared = u128::from(x) * u128::from(x);
        let bent = (slope * squared as i128).div_euclid(i128::from(self.lasts));
        even.saturating_add_signed(bent)
    }

    /// The smallest `x` at which twice the area is at least `area`, a value that the leg reaches by
    /// its end.
    fn reaches(&self, area: u128) -> u64 {
        let (a, slope) = (self.from as f64, self.to as f64 - self.from as f64);
        let root = (a * a + slope * area as f64 / self.lasts as f64).max(0.0).sqrt();
        // This is only a guess. The search below makes the result exact, so that it does not depend
        // on the machine's floating point.
        let guess = area as f64 / (a + root);
        let mut high = if guess.is_finite() { (guess as u64).min(self.lasts) } else { 0 };
        let mut step = 1;
        while self.area(high) < area {
            high = (high + step).min(self.lasts);
            step *= 2;
        }
        let (mut low, mut step) = (high, 1);
        while low > 0 && self.area(low) >= area {
            (high, low) = (low, low.saturating_sub(step));
            step *= 2;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.area(middle) >= area {
                true => high = middle,
                false => low = middle,
            }
        }
        if self.area(low) >= area { low } else { high }
    }
}

impl Shape {
    /// The longest change of a level whose area fits 128 bits.
    pub const LONGEST: Nanos = Nanos(24 * 3600 * 1_000_000_000);

    /// A shape from 0 through `stages`, whose unit is 1/`full` of the full level; it ends after the
    /// last stage.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn new(stages: &[Stage], full: u64) -> Result<Self, ShapeError> {
        Self::of(stages, full, false)
    }

    /// Rises linearly from 0, holds for `hold` (`None`: without an end), falls linearly to 0.
    ///
    /// # Errors
    /// [`ShapeError`].
    pub fn ramp(up: Nanos, hold: Option<Nanos>, down: Nanos) -> Result<Self, ShapeError> {
        let rise = Stage { lasts: up, to: 1 };
        match hold {
            None if up == Nanos::ZERO => Ok(Self::default()),
            None => Self::of(&[rise], 1, true),
            Some(hold) => Self::of(
                &[rise, Stage { lasts: hold, to: 1 }, Stage { lasts: down, to: 0 }],
                1,
                false,
            ),
        }
    }

    fn of(stages: &[Stage], full: u64, goes_on: bool) -> Result<Self, ShapeError> {
        let divisor = stages
            .iter()
            .fold(full, |divisor, stage| gcd(divisor.into(), stage.to.into()) as u64)
            .max(1);
        let most = stages.iter().map(|stage| stage.to).max().unwrap_or(0).max(full) / divisor;
        // The finest scale that fits. If levels have no common factor, digits below 2^-34 of the
        // highest level are lost.
        let shift = (64 - most.leading_zeros()).saturating_sub(34);
        let finer = (FINEST / (most >> shift).max(1)).max(1);
        let scaled = |level: u64| ((level / divisor) >> shift) * finer;
        let mut legs: Vec<Leg> = Vec::new();
        let mut end = Leg::new(0, 0, 0, 0, 0);
        for (number, stage) in stages.iter().enumerate() {
            let to = scaled(stage.to);
            if stage.lasts == Nanos::ZERO {
                end.from = to;
                continue;
            }
            if end.from != to && stage.lasts > Self::LONGEST {
                return Err(ShapeError::TooLong(number));
            }
            let leg = Leg::new(end.at, stage.lasts.0, end.from, to, end.before);
            let at = end.at.checked_add(leg.lasts).filter(|at| *at < u64::MAX / 2);
            let at = at.ok_or(ShapeError::Endless)?;
            end = Leg::new(at, 0, to, to, end.before + leg.area(leg.lasts));
            legs.push(leg);
        }
        if end.before == 0 && !(goes_on && end.from > 0) {
            return Err(ShapeError::Nothing);
        }
        let goes_on = goes_on.then_some(end.from);
        Ok(Self { legs: legs.into(), full: scaled(full).max(1), goes_on, end })
    }

    /// Whether the shape changes nothing.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.legs.is_empty() && self.goes_on == Some(self.full)
    }

    /// The end of the shape; `None` if it has none.
    pub fn end(&self) -> Option<Nanos> {
        self.goes_on.is_none().then_some(Nanos(self.end.at))
    }

    /// When the load that the full level passes in `load` has passed under the shape; `None`:
    /// never. In whole nanoseconds within a ramp.
    #[inline]
    pub fn instant(&self, load: Picos) -> Option<Picos> {
        if self.is_full() { Some(load) } else { self.bent(load) }
    }

    fn bent(&self, load: Picos) -> Option<Picos> {
        // Twice the area: level times picoseconds.
        let area = 2 * u128::from(self.full) * u128::from(load.0);
        // At level 0 no load passes: the result is the end of a pause, not its start.
        let past = |leg: &Leg| (leg.before + leg.area(leg.lasts)) * 1000 <= area;
        let leg = match self.legs.get(self.legs.partition_point(past)) {
            Some(leg) => *leg,
            None => Leg { from: self.goes_on.filter(|level| *level > 0)?, ..self.end },
        };
        let rest = area - leg.before * 1000;
        let begin = u128::from(leg.at) * 1000;
        let x = match leg.lasts == 0 || leg.from == leg.to {
            true => rest / (2 * u128::from(leg.from)),
            false => u128::from(leg.reaches(rest.div_ceil(1000))) * 1000,
        };
        u64::try_from(begin + x).ok().map(Picos)
    }

    /// The time in which the full level passes the load that has passed under the shape by
    /// `elapsed`; the inverse of [`Shape::instant`].
    pub fn passed(&self, elapsed: Nanos) -> Picos {
        if self.is_full() {
            return Picos::from(elapsed);
        }
        let area = match self.leg(elapsed) {
            Some(leg) => leg.before + leg.area(elapsed.0 - leg.at),
            None => {
                let level = u128::from(self.goes_on.unwrap_or(0));
                self.end.before + 2 * level * u128::from(elapsed.0 - self.end.at)
            }
        };
        Picos(u64::try_from(area * 500 / u128::from(self.full)).unwrap_or(u64::MAX))
    }

    /// How many of `total` are active at `elapsed`; the last one may be active only in part.
    pub fn count(&self, total: u64, elapsed: Nanos) -> u64 {
        let (level, of) = self.level(elapsed);
        let of = of * u128::from(self.full);
        u64::try_from((level * u128::from(total)).div_ceil(of)).unwrap_or(u64::MAX)
    }

    /// The first time from `since` on at which more than `index` of `total` are active; `None`:
    /// never.
    pub fn rises(&self, index: u64, total: u64, since: Nanos) -> Option<Nanos> {
        if self.count(total, since) > index {
            return Some(since);
        }
        // level / full > index / total
        let (total, bound) = (u128::from(total), u128::from(index) * u128::from(self.full));
        let above = |level: u64| u128::from(level) * total > bound;
        let later = self.legs.iter().filter(|leg| leg.at + leg.lasts > since.0);
        for leg in later {
            if above(leg.from) && leg.at >= since.0 {
                return Some(Nanos(leg.at));
            }
            if above(leg.to) && leg.to > leg.from {
                let missing = bound - u128::from(leg.from) * total;
                let slope = u128::from(leg.to - leg.from) * total;
                let x = (missing * u128::from(leg.lasts) / slope) as u64;
                return Some(Nanos((leg.at + x).max(since.0)));
            }
        }
        let level = self.goes_on.filter(|level| above(*level));
        level.map(|_| since.max(Nanos(self.end.at)))
    }

    /// The pieces: duration, and levels at start and end as fractions of the full level.
    pub fn pieces(&self) -> impl Iterator<Item = (Nanos, f64, f64)> {
        let share = |level: u64| level as f64 / self.full as f64;
        self.legs.iter().map(move |leg| (Nanos(leg.lasts), share(leg.from), share(leg.to)))
    }

    /// Whether both have the same levels at the same times, except for rounding errors.
    pub fn is_like(&self, other: &Self) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() < 1e-5;
        let pairs = || self.pieces().zip(other.pieces());
        self.legs.len() == other.legs.len()
            && self.goes_on.is_some() == other.goes_on.is_some()
            && pairs().all(|(a, b)| a.0 == b.0 && close(a.1, b.1) && close(a.2, b.2))
    }

    /// The longest interval before `end` in which no level of `shapes` changes and at least one is
    /// above 0; each shape counts from its own start. Returns start and end. If several are equally
    /// long, the first; `None` if there is none.
    pub fn plateau<'a>(
        shapes: impl Iterator<Item = (&'a Self, Nanos)> + Clone,
        end: Nanos,
    ) -> Option<(Nanos, Nanos)> {
        let legs = |(shape, begin): (&'a Self, Nanos)| {
            let ends = shape.legs.iter().map(|leg| leg.at).chain([shape.end.at]);
            ends.map(move |at| begin.0.saturating_add(at)).chain([begin.0])
        };
        let mut instants: Vec<u64> = shapes.clone().flat_map(legs).chain([0]).collect();
        instants.retain(|at| *at < end.0);
        instants.sort_unstable();
        instants.dedup();
        let mut open: Option<(u64, Vec<u64>)> = None;
        let mut longest: Option<(u64, u64)> = None;
        for (i, &at) in instants.iter().enumerate() {
            let until = instants.get(i + 1).copied().unwrap_or(end.0);
            let flat = |(shape, begin): (&Self, Nanos)| shape.flat(Nanos(at), begin);
            let levels: Option<Vec<u64>> = shapes.clone().map(flat).collect();
            let levels = levels.filter(|levels| levels.iter().any(|level| *level > 0));
            open = match (levels, open.take()) {
                // The same levels continue: one plateau.
                (Some(now), Some((from, before))) if now == before => Some((from, now)),
                (Some(now), _) => Some((at, now)),
                (None, _) => None,
            };
            if let Some((from, _)) = open
                && longest.is_none_or(|(a, b)| until - from > b - a)
            {
                longest = Some((from, until));
            }
        }
        longest.map(|(from, to)| (Nanos(from), Nanos(to)))
    }

    /// The level from `at` to the next leg, if it is constant.
    fn flat(&self, at: Nanos, begin: Nanos) -> Option<u64> {
        let Some(elapsed) = at.0.checked_sub(begin.0) else { return Some(0) };
        match self.leg(Nanos(elapsed)) {
            Some(leg) => (leg.from == leg.to).then_some(leg.from),
            None => Some(self.goes_on.unwrap_or(0)),
        }
    }

    /// The level at `elapsed` as a fraction of the full level.
    pub fn share(&self, elapsed: Nanos) -> (u64, u64) {
        let (level, of) = self.level(elapsed);
        let of = of * u128::from(self.full);
        let divisor = gcd(level, of).max(1);
        ((level / divisor) as u64, (of / divisor) as u64)
    }

    /// The level at `elapsed`, and the factor by which it is multiplied.
    fn level(&self, elapsed: Nanos) -> (u128, u128) {
        match self.leg(elapsed) {
            Some(leg) => {
                let (x, lasts) = (u128::from(elapsed.0 - leg.at), u128::from(leg.lasts));
                let (from, to) = (u128::from(leg.from), u128::from(leg.to));
                (from * (lasts - x) + to * x, lasts)
            }
            None => (u128::from(self.goes_on.unwrap_or(0)), 1),
        }
    }

    fn leg(&self, elapsed: Nanos) -> Option<&Leg> {
        let number = self.legs.partition_point(|leg| leg.at + leg.lasts <= elapsed.0);
        self.legs.get(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn stages(list: &[(u64, u64)]) -> Vec<Stage> {
        list.iter().map(|&(ms, to)| Stage { lasts: Nanos(ms * 1_000_000), to }).collect()
    }

    fn shape(list: &[(u64, u64)], full: u64) -> Shape {
        Shape::new(&stages(list), full).unwrap_or_else(|e| panic!("{e:?}"))
    }

    #[test]
    fn steps_and_ramps_pass_what_lies_below_them() {
        // 0 to 100 in 2 s, 100 for 1 s, a step to 50 and 2 s there, to 200 in 1 s.
        let shape = shape(&[(2000, 100), (1000, 100), (0, 50), (2000, 50), (1000, 200)], 200);
        // The load that has passed, in seconds at the full level.
        for (ms, passed_ms) in [
            (0, 0),
            (1000, 125),
            (2000, 500),
            (3000, 1000),
            (4000, 1250),
            (5000, 1500),
            (6000, 2125),
        ] {
            assert_eq!(
                shape.passed(Nanos(ms * 1_000_000)),
                Picos(passed_ms * 1_000_000_000),
                "{ms}"
            );
        }
        assert_eq!(shape.instant(Picos(125_000_000_000)), Some(Picos(SECOND * 1000)));
        assert_eq!(shape.instant(Picos(1_250_000_000_000)), Some(Picos(4 * SECOND * 1000)));
        assert_eq!(shape.instant(Picos(2_125_000_000_000)), None);
        assert_eq!(shape.end(), Some(Nanos(6 * SECOND)));
        assert_eq!(shape.share(Nanos(1_500_000_000)), (3, 8));
    }

    #[test]
    fn frame_k_of_a_ramp_leaves_at_the_root_of_k() {
        // With a rate of 100 frames/s that is reached in 100 s, frame k is due at sqrt(2 k)
        // seconds.
        let shape = Shape::ramp(Nanos(100 * SECOND), None, Nanos::ZERO).unwrap();
        for k in [1u64, 2, 50, 1000, 4999] {
            let due = shape.instant(Picos(k * 10_000_000_000)).unwrap();
            let exact = (2 * u128::from(k)) * 1_000_000_000_000_000_000;
            let (ns, before) = (u128::from(due.0 / 1000), u128::from(due.0 / 1000 - 1));
            assert!(ns * ns >= exact && before * before < exact, "{k}: {due:?}");
        }
        // Afterward at even intervals.
        let due = |k: u64| shape.instant(Picos(k * 10_000_000_000)).unwrap().0;
        assert_eq!((due(5000), due(5001)), (100_000_000_000_000, 100_010_000_000_000));
    }

    #[test]
    fn nothing_leaves_in_a_pause() {
        let shape = shape(&[(0, 10), (1000, 10), (0, 0), (5000, 0), (0, 10), (1000, 10)], 10);
        assert_eq!(shape.instant(Picos(SECOND * 1000 - 1)), Some(Picos(SECOND * 1000 - 1)));
        assert_eq!(shape.instant(Picos(SECOND * 1000)), Some(Picos(6 * SECOND * 1000)));
    }

    #[test]
    fn users_come_while_it_rises_and_again_when_it_rises_again() {
        // To 4 in 4 s, to 2 in 2 s, to 4 in 2 s, to 0 in a step.
        let shape = shape(&[(4000, 4), (2000, 2), (2000, 4), (0, 0), (1000, 0)], 4);
        let rises = |index, since: u64| shape.rises(index, 4, Nanos(since * SECOND)).map(|t| t.0);
        assert_eq!((rises(0, 0), rises(3, 0)), (Some(0), Some(3 * SECOND)));
        assert_eq!(rises(4, 0), None);
        assert_eq!(rises(2, 6), Some(6 * SECOND));
        assert_eq!(rises(3, 6), Some(7 * SECOND));
        assert_eq!(rises(3, 8), None);
        let count = |ms: u64| shape.count(4, Nanos(ms * 1_000_000));
        assert_eq!([0, 500, 4000, 5000, 6000, 7500, 8000].map(count), [0, 1, 4, 3, 2, 4, 0]);
    }

    #[test]
    fn the_plateau_is_the_longest_time_without_a_change() {
        let one = shape(&[(1000, 5), (2000, 5), (1000, 9), (3000, 9), (0, 0)], 9);
        let before = |end: u64, list: &[(&Shape, Nanos)]| {
            Shape::plateau(list.iter().copied(), Nanos(end * SECOND))
        };
        let of = |list: &[(&Shape, Nanos)]| before(100, list);
        assert_eq!(of(&[(&one, Nanos(0))]), Some((Nanos(4 * SECOND), Nanos(7 * SECOND))));
        assert_eq!(before(5, &[(&one, Nanos(0))]), Some((Nanos(SECOND), Nanos(3 * SECOND))));
        // A step of another shape cuts the plateau; a stage that keeps the level does not.
        let two = shape(&[(0, 1), (2000, 1), (3500, 1), (0, 2), (1500, 2)], 2);
        assert_eq!(
            of(&[(&one, Nanos(0)), (&two, Nanos(0))]),
            Some((Nanos(SECOND), Nanos(3 * SECOND)))
        );
        let full = Shape::default();
        assert_eq!(of(&[(&full, Nanos(0))]), Some((Nanos(0), Nanos(100 * SECOND))));
        assert_eq!(of(&[(&shape(&[(1000, 5), (1000, 0)], 5), Nanos(0))]), None);
    }

    #[test]
    fn invalid_shapes_are_refused() {
        let of = |list: &[(u64, u64)]| Shape::new(&stages(list), 10).err();
        assert_eq!(of(&[]), Some(ShapeError::Nothing));
        assert_eq!(of(&[(1000, 0)]), Some(ShapeError::Nothing));
        assert_eq!(of(&[(0, 10)]), Some(ShapeError::Nothing));
        assert_eq!(of(&[(10, 5), (86_400_001, 10)]), Some(ShapeError::TooLong(1)));
        assert_eq!(of(&[(10, 5), (86_400_001, 5)]), None);
    }

    proptest! {
        #[test]
        fn instants_are_in_order_and_invert_what_passes(
            list in prop::collection::vec((0u64..100_000, 0u64..1 << 40), 1..6),
            loads in prop::collection::vec(any::<u32>(), 2..50),
        ) {
            let full = list.iter().map(|s| s.1).max().unwrap_or(0).max(1);
            let Ok(shape) = Shape::new(&stages(&list), full) else { return Ok(()) };
            let all = shape.passed(shape.end().unwrap()).0;
            let mut loads: Vec<u64> =
                loads.iter().map(|l| ((u128::from(*l) * u128::from(all)) >> 32) as u64).collect();
            loads.sort_unstable();
            let mut before = Picos(0);
            for load in loads {
                let Some(at) = shape.instant(Picos(load)) else { continue };
                prop_assert!(at >= before, "{at:?} after {before:?}");
                before = at;
                // By the next whole nanosecond at least that load has passed, and a nanosecond
                // earlier it has not.
                let later = Nanos(at.0.div_ceil(1000));
                prop_assert!(shape.passed(later).0 + 1 >= load, "{:?} {load}", shape.passed(later));
                let earlier = Nanos((at.0 / 1000).saturating_sub(1));
                prop_assert!(shape.passed(earlier).0 <= load);
            }
        }
    }
}
