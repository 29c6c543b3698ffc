//! The search for the highest load that passes.

use crate::bench::Bounds;

/// A search over loads from 0 (excluded) to 1, as parts of the highest load.
#[derive(Clone, Debug, PartialEq)]
pub struct Bracket {
    /// The search ends when the bounds are closer than this fraction of the highest load that
    /// passed.
    resolution: f64,
    /// The highest load that passed.
    pub passed: f64,
    /// The lowest load that failed.
    pub failed: Option<f64>,
    /// The lowest load that the generator did not sustain.
    pub not_kept: Option<f64>,
    guess: Option<f64>,
    /// Distance of the next guess above the load that passed, as a fraction of that load.
    step: f64,
    lowest: f64,
    /// Number of consecutive trials in which the generator missed its schedule, and whether the
    /// rate that it sent in the last one is known.
    unkept: u32,
    shown: bool,
}

/// Number of consecutive trials with a missed schedule that ends a search: `UNKEPT` once a load has
/// passed, `UNKEPT_AT_FIRST` before. Further trials would only search for the limit of the
/// generator.
pub(crate) const UNKEPT: u32 = 2;
const UNKEPT_AT_FIRST: u32 = 6;
/// After a trial with a missed schedule, the next load is this fraction of the load sent: a
/// generator at its limit often misses that load, too.
const OF_SENT: f64 = 0.9;

/// The result of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrialResult {
    Passed,
    /// Failed. The value is the rate that the device forwarded, if known, and is the next guess.
    Failed(Option<f64>),
    /// The generator missed its schedule. The value is the load that it sent, if known.
    NotKept(Option<f64>),
}

impl Bracket {
    /// The search gives up if the load `lowest` fails.
    pub fn new(resolution: f64, lowest: f64) -> Self {
        let (failed, not_kept, guess) = (None, None, Some(1.0));
        Self {
            resolution,
            passed: 0.0,
            failed,
            not_kept,
            guess,
            step: resolution,
            lowest,
            unkept: 0,
            shown: false,
        }
    }

    /// The lowest load that failed or that the generator did not sustain.
    fn ceiling(&self) -> Option<f64> {
        match (self.failed, self.not_kept) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { passed: self.passed, failed: self.ceiling() }
    }

    /// Whether the generator set the limit.
    pub fn generator_bound(&self) -> bool {
        self.not_kept.is_some_and(|load| self.failed.is_none_or(|failed| load < failed))
    }

    /// Whether consecutive trials have shown that the generator cannot exceed the load that passed.
    /// Further trials would only search for its limit.
    fn is_at_generator(&self) -> bool {
        match self.passed > 0.0 {
            true => self.unkept >= UNKEPT,
            false => self.shown && self.unkept >= UNKEPT_AT_FIRST,
        }
    }

    /// The load to try next; `None`: the search is over.
    pub fn next(&self) -> Option<f64> {
        if self.is_at_generator() {
            return None;
        }
        let Some(ceiling) = self.ceiling() else { return self.guess.filter(|_| self.passed < 1.0) };
        let width = (self.passed * self.resolution).max(self.lowest * self.resolution);
        if ceiling - self.passed <= width * (1.0 + 1e-9) || ceiling <= self.lowest {
            return None;
        }
        let inside = |load: &f64| *load > self.passed && *load < ceiling;
        let half = if self.passed > 0.0 { (self.passed + ceiling) / 2.0 } else { ceiling / 2.0 };
        Some(self.guess.filter(inside).unwrap_or(half).max(self.lowest))
    }

    pub fn record(&mut self, load: f64, judged: TrialResult) {
        self.unkept = if matches!(judged, TrialResult::NotKept(_)) { self.unkept + 1 } else { 0 };
        // The rate forwarded under overload is often the capacity of the device: try a little less,
        // and if that passes, a little more. Otherwise bisect.
        let margin = self.resolution / 2.0;
        self.guess = match judged {
            TrialResult::Passed => {
                self.passed = self.passed.max(load);
                let guessed = self.guess.is_some_and(|guess| guess == load)
                    && load < 1.0
                    && !self.generator_bound();
                let next = load * (1.0 + self.step);
                // Double the step, so a guess that is far too low costs few trials.
                self.step *= 2.0;
                guessed.then_some(next)
            }
            TrialResult::Failed(output) => {
                let first = self.failed.is_none();
                self.step = self.resolution;
                self.failed = Some(self.failed.map_or(load, |failed| failed.min(load)));
                output.filter(|_| first).map(|output| output * (1.0 - margin))
            }
            TrialResult::NotKept(sent) => {
                self.not_kept = Some(self.not_kept.map_or(load, |lowest| lowest.min(load)));
                self.shown = sent.is_some();
                sent.map(|sent| sent * OF_SENT).filter(|sent| *sent < load / 2.0)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches for `capacity` with a generator that sustains loads up to `able`.
    fn search(capacity: f64, able: f64, hints: bool) -> (Bracket, u32) {
        let mut bracket = Bracket::new(0.001, 0.0001);
        let mut trials = 0;
        while let Some(load) = bracket.next() {
            trials += 1;
            assert!(trials < 60 && load > 0.0 && load <= 1.0, "{load} of {capacity}");
            bracket.record(
                load,
                match load {
                    _ if load > able => TrialResult::NotKept(hints.then_some(able)),
                    _ if load > capacity => TrialResult::Failed(hints.then_some(capacity)),
                    _ => TrialResult::Passed,
                },
            );
        }
        (bracket, trials)
    }

    #[test]
    fn it_ends_within_the_resolution_below_the_capacity() {
        for i in 1..=1000 {
            let capacity = f64::from(i) / 1000.0;
            for hints in [true, false] {
                let (bracket, trials) = search(capacity, 1.0, hints);
                let found = bracket.passed;
                assert!(found <= capacity && found >= capacity * 0.9979, "{found} of {capacity}");
                assert!(trials <= if hints { 4 } else { 22 }, "{trials} for {capacity}");
            }
        }
    }

    #[test]
    fn a_load_that_the_generator_did_not_keep_to_is_no_loss_of_the_device() {
        let (bracket, _) = search(0.2, 0.3, true);
        assert!(!bracket.generator_bound());
    }

    #[test]
    fn two_trials_in_a_row_above_a_good_load_that_the_generator_misses_end_the_search() {
        for able in [0.3, 0.01, 0.0005] {
            let (bracket, trials) = search(1.0, able, true);
            assert!(bracket.generator_bound(), "{bracket:?}");
            assert!(bracket.passed <= able && bracket.passed >= able * 0.89, "{bracket:?}");
            assert!(trials <= 4, "{trials} for {able}");
            let (bracket, trials) = search(1.0, able, false);
            assert!(bracket.passed <= able && bracket.passed > able / 2.0, "{bracket:?}");
            assert!(bracket.generator_bound() && trials <= 14, "{trials} for {able}");
        }
    }

    #[test]
    fn a_generator_that_keeps_to_no_load_is_given_up() {
        let mut bracket = Bracket::new(0.001, 0.0001);
        let mut trials = 0;
        while let Some(load) = bracket.next() {
            trials += 1;
            bracket.record(load, TrialResult::NotKept(Some(load * 0.99)));
        }
        assert!(bracket.passed == 0.0 && trials == 6, "{trials}");
    }

    #[test]
    fn a_device_that_carries_nothing_is_given_up() {
        let (bracket, trials) = search(0.0, 1.0, false);
        assert!(bracket.passed == 0.0 && trials < 16, "{trials}");
    }
}
