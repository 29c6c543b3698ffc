//! The difference between the two sides, and its confidence interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall_units::{SplitMix64, below, median};

use crate::outcome::Better;

/// Number of bootstrap resamples. With these, the ends of an interval are reproducible to a few
/// percent of its width.
const RESAMPLES: usize = 2000;
/// Power for which [`needed`] counts pairs: the probability of detecting a true difference.
const POWER: f64 = 0.9;

/// Difference of B from A in one metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    pub pairs: usize,
    pub mean_a: f64,
    pub mean_b: f64,
    pub median_a: f64,
    pub median_b: f64,
    /// Mean of B minus mean of A.
    pub difference: f64,
    /// Confidence interval of the true difference, at the level of the settings; `None` if there
    /// are too few pairs to show any difference, or if all pairs have the same difference.
    pub interval: Option<(f64, f64)>,
    pub repeats: Repeats,
    /// p-value: the probability that equal sides differ at least this much, adjusted for the number
    /// of primary metrics; `None` for a metric that is not primary.
    pub probability: Option<f64>,
    pub claim: Claim,
}

/// Which values are the same in all trials, and so have no spread from which to estimate an
/// interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Repeats {
    /// The differences of the pairs vary.
    Nothing,
    /// The values vary, but all pairs have the same difference.
    Difference,
    /// All trials of A have the same value, and so have all trials of B.
    Sides,
    /// All trials have the same value.
    All,
}

/// The conclusion about B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    Better,
    Worse,
    /// Different, in a metric of which neither direction is better.
    Different,
    /// The trials show no difference.
    NoDifference,
    /// Not a primary metric: not tested.
    NotTested,
}

impl Difference {
    /// `x` as a fraction of A's mean; `None` if the mean is 0.
    pub fn relative(&self, x: f64) -> Option<f64> {
        (self.mean_a != 0.0).then(|| x / self.mean_a.abs())
    }
}

/// Compares pairs `(a, b)` of consecutive trials, in which a disturbance of both trials cancels
/// out. Each end of the interval is the wider one of Student's t and of the studentized bootstrap
/// (Efron and Tibshirani, An Introduction to the Bootstrap, §12.5).
///
/// `level` is the confidence level, such as 0.95. B is claimed to differ if `probability` (see
/// [`probabilities`](super::probabilities)) is at most 1 - `level`. Equal values of `seed` give
/// equal intervals.
///
/// ```
/// use squall_method::{Better, ab::{Claim, compare, probabilities}};
///
/// let pairs: Vec<_> = (0..20).map(|i| (100.0 + f64::from(i % 3), 103.0 + f64::from(i % 4))).collect();
/// let probability = probabilities(&[pairs.iter().copied().map(Some).collect()], 1)[0];
/// let difference = compare(&pairs, Better::Higher, 0.95, Some(probability), 1);
/// assert_eq!(difference.claim, Claim::Better);
/// assert!(difference.interval.is_some_and(|(low, high)| low > 2.5 && high < 4.5));
/// ```
pub fn compare(
    pairs: &[(f64, f64)],
    better: Better,
    level: f64,
    probability: Option<f64>,
    seed: u64,
) -> Difference {
    let (a, b): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let repeats = repeats(&a, &b, &differences);
    let varies = pairs.len() >= fewest(level) && repeats == Repeats::Nothing;
    let difference = mean(&differences);
    Difference {
        pairs: pairs.len(),
        mean_a: mean(&a),
        mean_b: mean(&b),
        median_a: median(a).unwrap_or(0.0),
        median_b: median(b).unwrap_or(0.0),
        difference,
        interval: varies.then(|| interval(&differences, level, seed)),
        repeats,
        probability,
        claim: match probability {
            None => Claim::NotTested,
            Some(probability) if probability <= 1.0 - level => claim(difference, better),
            Some(_) => Claim::NoDifference,
        },
    }
}

fn repeats(a: &[f64], b: &[f64], differences: &[f64]) -> Repeats {
    // The tolerance is the rounding error of a difference of two values of this size.
    let size = a.iter().chain(b).fold(0.0_f64, |size, x| size.max(x.abs()));
    let same = |data: &[f64]| data.iter().all(|x| (x - data[0]).abs() <= size * 1e-12);
    match (same(a) && same(b), same(differences)) {
        (true, _) if differences.iter().all(|x| *x == 0.0) => Repeats::All,
        (true, _) => Repeats::Sides,
        (false, true) => Repeats::Difference,
        (false, false) => Repeats::Nothing,
    }
}

fn claim(difference: f64, better: Better) -> Claim {
    match better {
        Better::Neither => Claim::Different,
        Better::Higher if difference > 0.0 => Claim::Better,
        Better::Lower if difference < 0.0 => Claim::Better,
        _ => Claim::Worse,
    }
}

/// The minimum number of pairs that can show a difference at `level`. With fewer, equal devices may
/// give differences of a single sign too often.
pub fn fewest(level: f64) -> usize {
    // Two-sided test: equal devices give n differences of one sign with probability 2^(1 - n).
    2 + (-(1.0 - level).log2()).ceil().max(0.0) as usize - 1
}

/// Number of pairs that detects a difference of `effect` (in the unit of the data) with a power of
/// [`POWER`] if `metrics` are tested together, estimated from the spread of `pairs`; `None` with
/// fewer than two pairs.
pub fn needed(pairs: &[(f64, f64)], effect: f64, level: f64, metrics: usize) -> Option<usize> {
    if pairs.len() < 2 || effect <= 0.0 {
        return None;
    }
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    let deviation = error(&differences) * (pairs.len() as f64).sqrt();
    // Bonferroni's bound, which assumes uncorrelated metrics.
    let z = normal_quantile(1.0 - (1.0 - level) / 2.0 / metrics.max(1) as f64);
    let n = ((z + normal_quantile(POWER)) * deviation / effect).powi(2);
    // The spread is only an estimate, which takes one or two more pairs.
    Some(((n + z * z / 2.0).ceil() as usize).max(fewest(level)))
}

fn mean(data: &[f64]) -> f64 {
    if data.is_empty() { 0.0 } else { data.iter().sum::<f64>() / data.len() as f64 }
}

/// Standard error of the mean.
fn error(data: &[f64]) -> f64 {
    let (n, mean) = (data.len() as f64, mean(data));
    let squares: f64 = data.iter().map(|x| (x - mean).powi(2)).sum();
    (squares / (n - 1.0) / n).sqrt()
}

/// Confidence interval of the mean. Each end is the wider one of Student's t and of a studentized
/// bootstrap, because the former is too narrow for skewed data and the latter for data with
/// outliers on both sides (coverage of 30 exponential values: 92.8 % and 94.5 % instead of 95 %;
/// their differences give 95.6 % and 93.2 %).
fn interval(data: &[f64], level: f64, seed: u64) -> (f64, f64) {
    let (middle, error) = (mean(data), self::error(data));
    let (low, high) = studentized(data, level, seed);
    let t = student_quantile(0.5 + level / 2.0, data.len() - 1);
    // If a resample is too high, so are the data, and the true mean is lower: the ends swap.
    (middle - error * high.max(t), middle - error * low.min(-t))
}

/// Distances of the means of resamples from the mean of the data, in standard errors of the
/// resamples: the two quantiles of `level`.
fn studentized(data: &[f64], level: f64, seed: u64) -> (f64, f64) {
    let middle = mean(data);
    let mut random = SplitMix64(seed);
    let mut distances: Vec<f64> =
        (0..RESAMPLES).map(|_| distance(data, middle, &mut random)).collect();
    distances.sort_by(f64::total_cmp);
    let tail = ((1.0 - level) / 2.0 * RESAMPLES as f64) as usize;
    (distances[tail], distances[RESAMPLES - 1 - tail])
}

fn distance(data: &[f64], middle: f64, random: &mut SplitMix64) -> f64 {
    let n = data.len() as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..data.len() {
        let x = data[below(random.draw(), data.len() as u64) as usize] - middle;
        sum += x;
        squares += x * x;
    }
    let variance = (squares - sum * sum / n).max(0.0) / (n - 1.0);
    // Without spread, the standard error is 0 and the distance infinite, except for 0 / 0.
    if sum == 0.0 { 0.0 } else { sum / (variance * n).sqrt() }
}

/// Quantile of the standard normal distribution for `part` above 0.5; the error is below 0.0005
/// (Abramowitz and Stegun, 26.2.23).
fn normal_quantile(part: f64) -> f64 {
    let t = (-2.0 * (1.0 - part).ln()).sqrt();
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    t - above / below
}

/// Quantile of Student's t distribution with 5 or more degrees of freedom `free` (Abramowitz and
/// Stegun, 26.7.5).
fn student_quantile(part: f64, free: usize) -> f64 {
    let (z, free) = (normal_quantile(part), free as f64);
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / free + second / free.powi(2) + third / free.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ab::{probabilities, tests::Random};

    /// Compares a single metric, which is primary.
    fn alone(pairs: &[(f64, f64)], better: Better, seed: u64) -> Difference {
        let probability = probabilities(&[pairs.iter().copied().map(Some).collect()], seed)[0];
        compare(pairs, better, 0.95, Some(probability), seed)
    }

    /// Number of comparisons that match, out of 400 with `n` pairs each.
    fn times(
        n: usize,
        mut pair: impl FnMut(&mut Random) -> (f64, f64),
        holds: impl Fn(&Difference) -> bool,
    ) -> usize {
        let mut random = Random(SplitMix64(20_260_101));
        let mut one = |seed| {
            let pairs: Vec<_> = (0..n).map(|_| pair(&mut random)).collect();
            holds(&alone(&pairs, Better::Higher, seed))
        };
        (0..400).filter(|&seed| one(seed)).count()
    }

    fn covers(truth: f64) -> impl Fn(&Difference) -> bool {
        move |found| found.interval.is_some_and(|(low, high)| low <= truth && truth <= high)
    }

    fn claimed(found: &Difference) -> bool {
        found.claim != Claim::NoDifference
    }

    // 400 comparisons at 5 % give 20 on average; more than 31 have a probability of 1 %.

    #[test]
    fn equal_devices_are_rarely_found_different() {
        for n in [10, 30] {
            let equal = |random: &mut Random| {
                (1e6 * (1.0 + 0.02 * random.normal()), 1e6 * (1.0 + 0.02 * random.normal()))
            };
            let claims = times(n, equal, claimed);
            assert!(claims <= 31, "{claims} of 400 with {n} pairs");
        }
    }

    #[test]
    fn a_difference_of_2_percent_is_found_in_30_pairs_that_spread_by_2_percent() {
        let slower = |random: &mut Random| {
            (1e6 * (1.0 + 0.02 * random.normal()), 0.98e6 * (1.0 + 0.02 * random.normal()))
        };
        let found = times(30, slower, |found| found.claim == Claim::Worse);
        assert!(found >= 360, "{found} of 400");
    }

    #[test]
    fn a_disturbance_of_both_trials_of_a_pair_does_not_hide_the_difference() {
        let drifting = |random: &mut Random| {
            let both = 1e6 * (1.0 + 0.3 * random.normal());
            (both + 2e4 * random.normal(), both + 2e4 + 2e4 * random.normal())
        };
        let found = times(30, drifting, |found| found.claim == Claim::Better);
        assert!(found >= 360, "{found} of 400");
    }

    #[test]
    fn skewed_data_are_covered_as_well() {
        let latency =
            |random: &mut Random| (1.0 + random.exponential(), 1.5 + 1.5 * random.exponential());
        let covered = times(30, latency, covers(1.0));
        assert!(covered >= 400 - 31, "{covered} of 400");
        // The most skewed case: A is constant.
        let covered = times(30, |random| (0.0, random.exponential()), covers(1.0));
        assert!(covered >= 400 - 31, "{covered} of 400");
        let equal = |random: &mut Random| (random.exponential(), random.exponential());
        let claims = times(30, equal, claimed);
        assert!(claims <= 31, "{claims} of 400");
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (part, free, expected) in [(0.975, 5, 2.571), (0.975, 29, 2.045), (0.995, 9, 3.250)] {
            let found = student_quantile(part, free);
            assert!((found - expected).abs() < 0.01, "{found}, expected {expected}");
        }
        assert!((normal_quantile(0.975) - 1.96).abs() < 1e-3);
    }

    #[test]
    fn few_pairs_claim_nothing() {
        assert_eq!(fewest(0.95), 6);
        assert_eq!(fewest(0.99), 8);
        let pairs = vec![(1.0, 2.0); 5];
        let found = alone(&pairs, Better::Lower, 1);
        assert_eq!((found.interval, found.claim), (None, Claim::NoDifference));
        let found = alone(&[(1.0, 2.0); 6], Better::Lower, 1);
        assert_eq!((found.interval, found.claim), (None, Claim::Worse));
        let found = alone(&[], Better::Lower, 1);
        assert_eq!((found.difference, found.claim), (0.0, Claim::NoDifference));
        let equal = |random: &mut Random| (random.normal(), random.normal());
        let claims = times(6, equal, claimed);
        assert!(claims <= 31, "{claims} of 400");
    }

    #[test]
    fn values_that_repeat_have_no_interval() {
        let of = |pair: fn(f64) -> (f64, f64)| {
            let pairs: Vec<_> = (0..10).map(|i| pair(f64::from(i))).collect();
            let found = alone(&pairs, Better::Higher, 1);
            (found.repeats, found.interval.is_some(), found.claim)
        };
        assert_eq!(of(|_| (3.0, 3.0)), (Repeats::All, false, Claim::NoDifference));
        assert_eq!(of(|_| (1e9, 0.966e9)), (Repeats::Sides, false, Claim::Worse));
        // Rounding of 0.1 does not count as spread.
        assert_eq!(of(|i| (i, i + 0.1)), (Repeats::Difference, false, Claim::Better));
        assert_eq!(of(|i| (i, i * 1.1)), (Repeats::Nothing, true, Claim::Better));
    }

    #[test]
    fn as_many_pairs_as_are_needed_find_the_difference() {
        let pair =
            |random: &mut Random| (100.0 + 2.0 * random.normal(), 101.0 + 2.0 * random.normal());
        let mut random = Random(SplitMix64(7));
        let pairs: Vec<_> = (0..1000).map(|_| pair(&mut random)).collect();
        // ((1.96 + 1.28) * 2.83)^2 is 84.
        let n = needed(&pairs, 1.0, 0.95, 1).unwrap();
        assert!((78..=94).contains(&n), "{n}");
        let found = times(n, pair, claimed);
        assert!((340..=380).contains(&found), "{found} of 400 with {n} pairs");
        assert_eq!(needed(&pairs[..1], 1.0, 0.95, 1), None);
        assert_eq!(needed(&[(1.0, 1.0); 9], 1.0, 0.95, 1), Some(6));
    }
}
