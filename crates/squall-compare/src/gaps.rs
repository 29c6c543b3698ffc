//! Statistics of inter-arrival times, as in evaluations of generators and receivers. Pure
//! functions.
//!
//! Times are in nanoseconds on the receiver's clock, in order of arrival. A gap is the time between
//! two consecutive frames.

use crate::stats::mean_and_sd;

/// Statistics of the gaps of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gaps {
    pub count: u64,
    pub mean_ns: f64,
    /// Standard deviation (n - 1).
    pub sd_ns: f64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Fraction of gaps within 10 % of the nominal gap, 0 to 1; absent if there is no nominal gap.
    pub within_tenth: Option<f64>,
}

impl Gaps {
    /// Statistics of the gaps between frames that arrived at `times`; `None` with fewer than three
    /// frames. A time before the previous one (two queues, a clock step) is a gap of 0.
    pub fn of(times: &[u64], nominal_ns: Option<f64>) -> Option<Self> {
        let mut gaps = between(times);
        let count = gaps.len();
        if count < 2 {
            return None;
        }
        gaps.sort_unstable();
        let (mean_ns, sd_ns) =
            mean_and_sd(&gaps.iter().map(|gap| *gap as f64).collect::<Vec<_>>())?;
        // The smallest gap that at least this fraction of all gaps does not exceed.
        let at = |share: f64| gaps[((share * count as f64).ceil() as usize).clamp(1, count) - 1];
        let near = |nominal: f64| {
            let near = gaps.iter().filter(|gap| (**gap as f64 - nominal).abs() <= nominal / 10.0);
            near.count() as f64 / count as f64
        };
        Some(Self {
            count: count as u64,
            mean_ns,
            sd_ns,
            min_ns: gaps[0],
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns: gaps[count - 1],
            within_tenth: nominal_ns.map(near),
        })
    }

    /// Standard deviation divided by mean; 0 if all frames arrived at the same time.
    pub fn relative_sd(&self) -> f64 {
        if self.mean_ns > 0.0 { self.sd_ns / self.mean_ns } else { 0.0 }
    }
}

/// The gaps between `times`.
pub fn between(times: &[u64]) -> Vec<u64> {
    times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect()
}

/// Standard deviation of the gaps that was added after `sent`: the root mean square of the
/// differences between received and sent gaps, whose mean is 0. The clocks of sender and receiver
/// may have a constant offset. `None` with fewer than three frames.
///
/// # Panics
/// If the lists differ in length: each frame has both times.
pub fn added_sd_ns(sent: &[u64], received: &[u64]) -> Option<f64> {
    assert_eq!(sent.len(), received.len(), "two times for each frame");
    if sent.len() < 3 {
        return None;
    }
    let step = |times: &[u64], i: usize| times[i + 1] as i128 - times[i] as i128;
    let squares: f64 = (0..sent.len() - 1)
        .map(|i| (step(received, i) - step(sent, i)) as f64)
        .map(|difference| difference * difference)
        .sum();
    Some((squares / (sent.len() - 1) as f64).sqrt())
}

/// Fraction of gaps in each of `bins` bins of `width_ns`, by lower edge. A further bin has all
/// longer gaps, and a last edge with a fraction of 0 closes it.
pub fn distribution(times: &[u64], width_ns: u64, bins: usize) -> Vec<(f64, f64)> {
    let gaps = between(times);
    let mut counts = vec![0_u64; bins + 1];
    for gap in &gaps {
        counts[((gap / width_ns.max(1)) as usize).min(bins)] += 1;
    }
    let edge = |bin: usize| (bin as u64 * width_ns) as f64;
    let share = |count: &u64| *count as f64 / gaps.len().max(1) as f64;
    let mut shares: Vec<_> =
        counts.iter().enumerate().map(|(bin, count)| (edge(bin), share(count))).collect();
    shares.push((edge(bins + 1), 0.0));
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times that have these gaps.
    fn times(gaps: &[u64]) -> Vec<u64> {
        let mut at = 1_000_000;
        let later = gaps.iter().map(|gap| {
            at += gap;
            at
        });
        [1_000_000].into_iter().chain(later.collect::<Vec<_>>()).collect()
    }

    #[test]
    fn a_sample_has_the_deviation_of_the_textbook() {
        // The squared differences from the mean of 5 are 9 1 1 1 0 0 4 16; their sum is divided by
        // 7.
        let gaps = Gaps::of(&times(&[2, 4, 4, 4, 5, 5, 7, 9]), Some(4.0)).unwrap();
        assert_eq!((gaps.count, gaps.mean_ns), (8, 5.0));
        assert!((gaps.sd_ns - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert!((gaps.relative_sd() - gaps.sd_ns / 5.0).abs() < 1e-12);
        assert_eq!((gaps.min_ns, gaps.p50_ns, gaps.p99_ns, gaps.max_ns), (2, 4, 9, 9));
        assert_eq!(gaps.within_tenth, Some(3.0 / 8.0));
    }

    #[test]
    fn too_few_frames_have_no_deviation() {
        assert_eq!(Gaps::of(&[], None), None);
        assert_eq!(Gaps::of(&[1, 2], None), None);
        assert_eq!(added_sd_ns(&[1, 2], &[3, 4]), None);
        assert_eq!(Gaps::of(&[7, 7, 7], None).unwrap().relative_sd(), 0.0);
    }

    #[test]
    fn times_that_go_back_are_gaps_of_zero() {
        assert_eq!(between(&[10, 30, 20, 25]), [20, 0, 5]);
    }

    /// With independent errors of sender and receiver, the equation separates the two.
    #[test]
    fn the_parts_of_a_simulated_path_are_found_again() {
        let mut random = squall_units::SplitMix64(38);
        let mut error = |sd: f64| {
            // The sum of twelve uniform numbers is nearly normal, with a variance of 1.
            let sum: f64 =
                (0..12).map(|_| (random.draw() >> 11) as f64 / (1u64 << 53) as f64).sum();
            (sum - 6.0) * sd
        };
        let count = 200_000_u32;
        let sent: Vec<u64> =
            (0..count).map(|i| (1e6 + 40_000.0 * f64::from(i) + error(3_000.0)) as u64).collect();
        // A clock with an offset, and a delay of 20 us with a standard deviation of 1 us.
        let received: Vec<u64> =
            sent.iter().map(|at| (*at as f64 + 7e9 + 20_000.0 + error(1_000.0)) as u64).collect();
        let gaps = Gaps::of(&received, Some(40_000.0)).unwrap();
        let receiver = added_sd_ns(&sent, &received).unwrap();
        let root2 = 2.0_f64.sqrt();
        assert!((receiver / (1_000.0 * root2) - 1.0).abs() < 0.02, "{receiver}");
        let sender = squall_units::remaining_sd(gaps.sd_ns, receiver);
        assert!((sender / (3_000.0 * root2) - 1.0).abs() < 0.02, "{sender}");
    }

    #[test]
    fn a_distribution_has_all_gaps_and_the_long_ones_in_the_last_bin() {
        let shares = distribution(&times(&[0, 999, 1_000, 2_500, 40_000]), 1_000, 3);
        assert_eq!(shares, [(0.0, 0.4), (1e3, 0.2), (2e3, 0.2), (3e3, 0.2), (4e3, 0.0)]);
        assert_eq!(distribution(&[], 1_000, 1), [(0.0, 0.0), (1e3, 0.0), (2e3, 0.0)]);
    }
}
