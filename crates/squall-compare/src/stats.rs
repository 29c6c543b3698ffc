//! Search for the highest lossless rate, and mean and deviation of a sample. Pure functions.

use super::model::{Trial, reached};

/// Bisection for the highest rate, in packets per second, with a loss ratio below a limit. It
/// starts at the maximum rate of the sender, then bisects the unknown range on a logarithmic scale.
///
/// A trial counts at the rate that the sender reached, not at the requested rate.
#[derive(Clone, Debug)]
pub struct Search {
    below: f64,
    /// Highest lossless rate and lowest lossy rate up to now.
    good: f64,
    bad: f64,
    /// Whether the sender cannot send faster.
    sender_bound: bool,
    trials: Vec<Trial>,
}

/// The search ends when the bounds are within this factor: 3 % is a third of the difference between
/// runs.
const RESOLUTION: f64 = 1.03;
/// A tool that loses packets at this rate does so at every relevant rate.
const SLOWEST_PPS: f64 = 1000.0;
const MOST_TRIALS: usize = 16;

impl Search {
    /// Starts a search for the highest rate with a loss ratio below `below`.
    pub fn new(below: f64) -> Self {
        Self { below, good: 0.0, bad: f64::INFINITY, sender_bound: false, trials: Vec::new() }
    }

    /// Next rate in packets per second, infinite for the maximum rate; `None`: the search is over.
    pub fn next(&self) -> Option<f64> {
        match self.trials.len() {
            0 => return Some(f64::INFINITY),
            MOST_TRIALS.. => return None,
            _ => {}
        }
        let known = self.bad <= self.good.max(SLOWEST_PPS) * RESOLUTION || self.bad.is_infinite();
        if known || self.sender_bound {
            return None;
        }
        // If all trials had loss, try a quarter of the rate, which finds the rate of a slow tool in
        // few steps.
        Some(if self.good > 0.0 {
            (self.good * self.bad).sqrt()
        } else {
            (self.bad / 4.0).max(SLOWEST_PPS)
        })
    }

    /// Records the trial at the rate that [`Self::next`] returned.
    pub fn record(&mut self, trial: Trial) {
        let asked = trial.asked_pps.unwrap_or(f64::INFINITY);
        let lossless = trial.plr.is_some_and(|plr| plr < self.below) && trial.actual_pps > 0.0;
        // The maximum rate is unknown before its trial.
        let tried = if asked.is_finite() { asked } else { trial.actual_pps.max(SLOWEST_PPS) };
        if lossless {
            // A busy machine sends slightly less than requested. The sender is at its limit only if
            // a higher request makes no progress.
            let further = trial.actual_pps > self.good * RESOLUTION;
            self.good = self.good.max(trial.actual_pps);
            match asked.is_finite() {
                // The maximum rate was lossless.
                false => self.sender_bound = true,
                true if !further && !reached(trial.actual_pps, asked) => {
                    self.bad = self.bad.min(tried)
                }
                true => {}
            }
        } else {
            // The reached rate is lossy, unless an earlier trial at that rate was lossless.
            self.bad = self.bad.min(tried.min(trial.actual_pps.max(self.good)).max(SLOWEST_PPS));
        }
        self.trials.push(trial);
    }

    /// The highest lossless rate; 0: none.
    pub fn found(&self) -> f64 {
        self.good
    }

    /// Whether the search ended at the limit of the sender.
    pub fn sender_bound(&self) -> bool {
        self.sender_bound
    }

    pub fn trials(self) -> Vec<Trial> {
        self.trials
    }
}

/// Mean and standard deviation (n - 1) of a sample. The deviation of a single value is 0.
pub fn mean_and_sd(sample: &[f64]) -> Option<(f64, f64)> {
    if sample.is_empty() {
        return None;
    }
    let mean = sample.iter().sum::<f64>() / sample.len() as f64;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    Some((mean, (squares / (sample.len() - 1).max(1) as f64).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tool that loses all packets above `limit`, and a sender that reaches `top`. `noise` varies
    /// the limit from trial to trial.
    fn search(limit: f64, top: f64, noise: impl Fn(usize) -> f64) -> Search {
        let mut search = Search::new(0.001);
        let mut trials = 0;
        while let Some(rate) = search.next() {
            trials += 1;
            assert!(trials <= MOST_TRIALS, "it ends");
            let actual = rate.min(top);
            let limit = limit * noise(trials);
            let plr = Some(if actual > limit { 1.0 - limit / actual } else { 0.0 });
            let asked_pps = rate.is_finite().then_some(rate);
            search.record(Trial { asked_pps, actual_pps: actual, plr, cpu_s_per_mpkt: None });
        }
        search
    }

    #[test]
    fn a_search_finds_the_limit_of_the_tool() {
        for (limit, top) in [(500e3, 1e6), (999e3, 1e6), (12e3, 3e6), (2e3, 1e6), (250e3, 250.5e3)]
        {
            let found = search(limit, top, |_| 1.0).found();
            assert!((limit / RESOLUTION..=limit * 1.001).contains(&found), "{limit}: {found}");
        }
    }

    #[test]
    fn without_loss_at_top_speed_the_sender_is_the_limit() {
        let search = search(2e6, 1e6, |_| 1.0);
        assert_eq!((search.found(), search.sender_bound(), search.trials().len()), (1e6, true, 1));
    }

    #[test]
    fn a_tool_with_loss_at_every_rate_has_none() {
        let search = search(0.0, 1e6, |_| 1.0);
        assert_eq!((search.found(), search.sender_bound()), (0.0, false));
        assert!(search.trials().len() < 10);
    }

    #[test]
    fn noise_does_not_keep_a_search_from_its_end() {
        for seed in 0..50 {
            let noise =
                |trial: usize| 0.5 + ((trial * 7919 + seed * 104_729) % 1000) as f64 / 1000.0;
            let found = search(400e3, 1e6, noise).found();
            assert!(found <= 600e3 * 1.001, "{seed}: {found}");
        }
    }

    #[test]
    fn a_sender_that_is_always_a_little_short_does_not_end_the_search() {
        let mut search = Search::new(0.001);
        while let Some(rate) = search.next() {
            let (asked_pps, actual) = (rate.is_finite().then_some(rate), 0.95 * rate.min(1e6));
            let plr = Some(if actual > 300e3 { 0.5 } else { 0.0 });
            search.record(Trial { asked_pps, actual_pps: actual, plr, cpu_s_per_mpkt: None });
        }
        assert!((280e3..=300e3).contains(&search.found()), "{}", search.found());
    }

    #[test]
    fn a_trial_that_failed_is_no_rate_without_loss() {
        let mut search = Search::new(0.001);
        while search.next().is_some() {
            search.record(Trial::default());
        }
        assert_eq!(search.found(), 0.0);
    }
}
