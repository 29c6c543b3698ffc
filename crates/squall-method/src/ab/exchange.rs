//! Exact permutation test of all primary metrics together, which exchanges A and B within pairs.
//!
//! If A and B are equal, each trial of a pair could as well have been the other side's. All
//! assignments of the trials of all pairs to the sides are then as probable as the measured one,
//! for any distribution and correlation of the metrics. The step-down procedure of Westfall and
//! Young (Resampling-Based Multiple Testing, 1993, algorithm 2.8) compares each metric's
//! standardized difference with the largest one of all metrics that are not yet found to differ.
//! Unlike Holm's procedure, it accounts for the correlation of metrics: a metric that duplicates
//! another one costs no power.

use squall_units::SplitMix64;

/// Up to this number of pairs, all 2^(pairs - 1) assignments are evaluated.
const MOST_EXACT: usize = 13;
/// Number of random assignments for more pairs.
const DRAWN: usize = 4999;

/// Sums of a metric that give its standardized difference for any assignment.
struct Sums {
    /// Index of a pair, and B minus A.
    differences: Vec<(usize, f64)>,
    /// The sum of the squares of the differences.
    squares: f64,
    /// Variance of A plus B between pairs, which an exchange within pairs does not change.
    between: f64,
}

impl Sums {
    fn new(pairs: &[Option<(f64, f64)>]) -> Self {
        let both = || pairs.iter().enumerate().filter_map(|(i, pair)| Some((i, (*pair)?)));
        let differences: Vec<_> = both().map(|(i, (a, b))| (i, b - a)).collect();
        let n = differences.len() as f64;
        let mean = both().map(|(_, (a, b))| a + b).sum::<f64>() / n;
        let between = both().map(|(_, (a, b))| (a + b - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let squares = differences.iter().map(|(_, x)| x * x).sum();
        Self { differences, squares, between }
    }

    /// Standardized difference if A and B are exchanged in some pairs. It is the larger of two:
    /// Student's t of the differences, which is immune to disturbances of whole pairs, and t of two
    /// independent samples, which has twice the degrees of freedom. The choice does not invalidate
    /// the test, because each assignment makes it in the same way.
    fn standardized(&self, exchanged: &[bool]) -> f64 {
        let n = self.differences.len() as f64;
        let signed = |(i, x): &(usize, f64)| if exchanged[*i] { -x } else { *x };
        let sum: f64 = self.differences.iter().map(signed).sum();
        if sum == 0.0 || n < 2.0 {
            return 0.0;
        }
        // If all differences are the same, rounding would leave a tiny variance.
        let rest = self.squares - sum * sum / n;
        let rest = if rest < self.squares * 1e-12 { 0.0 } else { rest };
        let within = rest / (n - 1.0);
        let t_squared = |variance: f64| sum * sum / n / variance;
        let paired = normal_score(t_squared(within), n - 1.0);
        let independent =
            normal_score(t_squared(f64::midpoint(within, self.between)), 2.0 * (n - 1.0));
        paired.max(independent)
    }
}

/// Standard normal value with the same probability as Student's t with `free` degrees of freedom;
/// the error is below 1 % (Wallace 1959, Bounds on normal approximations to Student's
/// distribution).
fn normal_score(t_squared: f64, free: f64) -> f64 {
    (8.0 * free + 1.0) / (8.0 * free + 3.0) * (free * (t_squared / free).ln_1p()).sqrt()
}

/// Adjusted p-value of each metric: the probability that equal sides differ at least as much in any
/// of the metrics that are not yet found to differ. If claims require at most 0.05, at most 5 % of
/// comparisons of equal sides make any false claim, over all metrics together.
///
/// `metrics[m][i]` is metric `m` of pair `i`; `None` if a trial of the pair does not have it. With
/// more than [`MOST_EXACT`] pairs, assignments are drawn with `seed`.
pub fn probabilities(metrics: &[Vec<Option<(f64, f64)>>], seed: u64) -> Vec<f64> {
    let sums: Vec<_> = metrics.iter().map(|pairs| Sums::new(pairs)).collect();
    let n = metrics.iter().map(Vec::len).max().unwrap_or(0);
    let observed = standardized(&sums, &vec![false; n]);
    let mut order: Vec<usize> = (0..sums.len()).collect();
    // Ascending, to take the maximum over each metric and all those with smaller differences.
    order.sort_by(|a, b| observed[*a].total_cmp(&observed[*b]));
    let mut reached = vec![0_usize; sums.len()];
    let all = assignments(n, seed);
    for exchanged in &all {
        let found = standardized(&sums, exchanged);
        let mut largest = 0.0_f64;
        for &metric in &order {
            largest = largest.max(found[metric]);
            // The tolerance covers the rounding of sums in another order.
            reached[metric] += usize::from(largest >= observed[metric] * (1.0 - 1e-9));
        }
    }
    let mut found = vec![1.0; sums.len()];
    let mut least = 0.0_f64;
    for &metric in order.iter().rev() {
        least = least.max(reached[metric] as f64 / all.len() as f64);
        found[metric] = least;
    }
    found
}

fn standardized(sums: &[Sums], exchanged: &[bool]) -> Vec<f64> {
    sums.iter().map(|sums| sums.standardized(exchanged)).collect()
}

/// Whether A and B are exchanged in each pair. The first assignment is the measured one.
fn assignments(n: usize, seed: u64) -> Vec<Vec<bool>> {
    if n <= MOST_EXACT {
        // Exchanging all pairs leaves absolute differences the same, so the last pair is never
        // exchanged.
        let all = 0..1_u32 << n.saturating_sub(1);
        return all.map(|bits| (0..n).map(|i| bits >> i & 1 == 1).collect()).collect();
    }
    let mut random = SplitMix64(seed);
    let mut drawn = || -> Vec<bool> {
        let words: Vec<u64> = (0..n.div_ceil(64)).map(|_| random.draw()).collect();
        (0..n).map(|i| words[i / 64] >> (i % 64) & 1 == 1).collect()
    };
    let mut all = vec![vec![false; n]];
    all.extend((0..DRAWN).map(|_| drawn()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(differences: &[f64]) -> Vec<Option<(f64, f64)>> {
        differences.iter().map(|x| Some((0.0, *x))).collect()
    }

    #[test]
    fn one_metric_has_the_probability_of_the_sign_test_of_its_differences() {
        // Darwin's maize (Fisher, The Design of Experiments, §21): in 1,726 of 32,768 assignments
        // the difference is at least as large.
        let darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48];
        let darwin: Vec<f64> = darwin.iter().map(|x| f64::from(*x)).collect();
        let found = probabilities(&[pairs(&darwin)], 1)[0];
        // 4,999 draws give 5.27 % ± 0.32 %.
        assert!((found - 0.0527).abs() < 0.01, "{found}");
        assert_eq!(probabilities(&[pairs(&[1.0; 6])], 1), [2.0 / 64.0]);
        assert_eq!(probabilities(&[pairs(&[1.0, 2.0, 3.0, -1.0])], 1), [6.0 / 16.0]);
    }

    #[test]
    fn a_metric_that_repeats_another_or_never_differs_costs_nothing() {
        let one = pairs(&[1.0, 3.0, 2.0, 4.0, 2.5, -0.5, 1.5, 2.0]);
        let alone = probabilities(std::slice::from_ref(&one), 1)[0];
        let ten_fold = pairs(&[10.0, 30.0, 20.0, 40.0, 25.0, -5.0, 15.0, 20.0]);
        let equal = pairs(&[0.0; 8]);
        assert_eq!(probabilities(&[one, ten_fold, equal], 1), [alone, alone, 1.0]);
    }

    #[test]
    fn pairs_without_a_metric_are_left_out_of_it() {
        let mut some = pairs(&[1.0; 8]);
        some[3] = None;
        let found = probabilities(&[some, vec![None; 8]], 1);
        assert_eq!(found, [2.0 / 128.0, 1.0]);
    }
}
