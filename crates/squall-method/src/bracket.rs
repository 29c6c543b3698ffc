//! The search for the highest load that passes.

use crate::bench::Bounds;

/// Loads are parts of the most that is offered: above 0, up to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Bracket {
    /// The search ends when less than this is unknown, as a part of the load found.
    resolution: f64,
    /// The highest load that passed, ...
    pub passed: f64,
    /// ... and the lowest that did not.
    pub failed: Option<f64>,
    /// The lowest load that the generator did not keep to.
    pub not_kept: Option<f64>,
    guess: Option<f64>,
    /// How much above the load that passed the next guess is, as a part of it.
    step: f64,
    lowest: f64,
}

/// How a trial went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    Passed,
    /// With the load that came out, where known: the next guess.
    Failed(Option<f64>),
    NotKept,
}

impl Bracket {
    /// `lowest`: what fails there passes nowhere.
    pub fn new(resolution: f64, lowest: f64) -> Self {
        let (failed, not_kept, guess) = (None, None, Some(1.0));
        Self { resolution, passed: 0.0, failed, not_kept, guess, step: resolution, lowest }
    }

    /// What is not to be tried: failed, or more than the generator keeps to.
    fn ceiling(&self) -> Option<f64> {
        match (self.failed, self.not_kept) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub fn bounds(&self) -> Bounds {
        Bounds { passed: self.passed, failed: self.ceiling() }
    }

    /// Whether it is the generator that set the limit.
    pub fn generator_bound(&self) -> bool {
        self.not_kept.is_some_and(|load| self.failed.is_none_or(|failed| load < failed))
    }

    /// The load to try next; `None`: the search is over.
    pub fn next(&self) -> Option<f64> {
        let Some(ceiling) = self.ceiling() else { return self.guess.filter(|_| self.passed < 1.0) };
        let width = (self.passed * self.resolution).max(self.lowest * self.resolution);
        if ceiling - self.passed <= width * (1.0 + 1e-9) || ceiling <= self.lowest {
            return None;
        }
        let inside = |load: &f64| *load > self.passed && *load < ceiling;
        let half = if self.passed > 0.0 { (self.passed + ceiling) / 2.0 } else { ceiling / 2.0 };
        Some(self.guess.filter(inside).unwrap_or(half).max(self.lowest))
    }

    pub fn record(&mut self, load: f64, judged: Judged) {
        // What came out at a load that fails is often just what the device carries: a little less
        // is tried next, and if that passes a little more. Else halves.
        let margin = self.resolution / 2.0;
        self.guess = match judged {
            Judged::Passed => {
                self.passed = self.passed.max(load);
                let guessed = self.guess.is_some_and(|guess| guess == load) && load < 1.0;
                let next = load * (1.0 + self.step);
                // A guess that was far too low is left behind in few steps.
                self.step *= 2.0;
                guessed.then_some(next)
            }
            Judged::Failed(output) => {
                let first = self.failed.is_none();
                self.step = self.resolution;
                self.failed = Some(self.failed.map_or(load, |failed| failed.min(load)));
                output.filter(|_| first).map(|output| output * (1.0 - margin))
            }
            Judged::NotKept => {
                self.not_kept = Some(self.not_kept.map_or(load, |lowest| lowest.min(load)));
                None
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a device that carries `capacity`, by a generator that keeps to `able`.
    fn search(capacity: f64, able: f64, hints: bool) -> (Bracket, u32) {
        let mut bracket = Bracket::new(0.001, 0.0001);
        let mut trials = 0;
        while let Some(load) = bracket.next() {
            trials += 1;
            assert!(trials < 60 && load > 0.0 && load <= 1.0, "{load} of {capacity}");
            bracket.record(
                load,
                match load {
                    _ if load > able => Judged::NotKept,
                    _ if load > capacity => Judged::Failed(hints.then_some(capacity)),
                    _ => Judged::Passed,
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
    fn what_the_generator_did_not_keep_to_is_no_loss_of_the_device() {
        let (bracket, _) = search(1.0, 0.3, true);
        assert!(bracket.generator_bound() && bracket.passed <= 0.3 && bracket.passed > 0.299);
        let (bracket, _) = search(0.2, 0.3, true);
        assert!(!bracket.generator_bound());
    }

    #[test]
    fn a_device_that_carries_nothing_is_given_up() {
        let (bracket, trials) = search(0.0, 1.0, false);
        assert!(bracket.passed == 0.0 && trials < 16, "{trials}");
    }
}
