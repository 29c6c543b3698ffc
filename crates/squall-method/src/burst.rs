//! Search for the longest burst without loss, shared by several methods.

use crate::{
    bench::{Bench, MethodError},
    bracket::UNKEPT,
    outcome::Limit,
    trial::{Measured, Trial},
};

/// Parameters of a search.
pub(crate) struct Search<'a> {
    /// The longest burst to try, frames.
    pub most: u64,
    /// The first burst to try: the result of an earlier search.
    pub first: Option<u64>,
    /// Makes the trial of a burst.
    pub trial: &'a dyn Fn(u64) -> Trial,
    /// The burst that would have passed, from a trial with loss.
    pub guess: &'a dyn Fn(u64, &Measured) -> Option<u64>,
}

/// The longest burst without loss.
pub(crate) struct Longest {
    /// 0: none passed.
    pub frames: u64,
    /// The result of that burst.
    pub measured: Option<Measured>,
    pub limit: Limit,
}

/// Results of repeated searches, in frames.
pub(crate) struct Summary {
    pub mean: f64,
    pub least: u64,
    pub most: u64,
    /// The first limit other than the device.
    pub limit: Limit,
}

/// Searches `repetitions` times; each search starts with the result of the previous one.
///
/// # Errors
/// As for [`Search::run`].
pub(crate) fn repeated(
    repetitions: u32,
    mut search: impl FnMut(Option<u64>) -> Result<Longest, MethodError>,
) -> Result<Vec<Longest>, MethodError> {
    let mut found: Vec<Longest> = Vec::new();
    for _ in 0..repetitions {
        found.push(search(found.last().map(|found| found.frames))?);
    }
    Ok(found)
}

impl Summary {
    /// The summary of at least one search, in frames of all `ports` that send the burst.
    pub fn of(found: &[Longest], ports: u64) -> Self {
        let frames = found.iter().map(|one| one.frames * ports);
        let mut limits = found.iter().map(|one| one.limit);
        Self {
            mean: frames.clone().sum::<u64>() as f64 / found.len() as f64,
            least: frames.clone().min().unwrap_or(0),
            most: frames.max().unwrap_or(0),
            limit: limits.find(|limit| *limit != Limit::Device).unwrap_or_default(),
        }
    }
}

impl Search<'_> {
    /// Bisects between a burst that passed and one that failed, down to one frame.
    ///
    /// # Errors
    /// If a trial cannot run, or if the test is stopped.
    pub fn run(&self, bench: &mut Bench<'_>) -> Result<Longest, MethodError> {
        let most = self.most;
        let (mut passed, mut failed) = (0, most + 1);
        let mut found = Longest { frames: 0, measured: None, limit: Limit::Device };
        let mut next = self.first.map_or(most, |frames| frames.clamp(1, most));
        // A guess is rarely off by more than one frame: continue from it in steps of 1, 2, 4 ...
        let (mut step, mut unkept) = (1, 0);
        while failed - passed > 1 {
            let measured = bench.trial((self.trial)(next))?;
            if measured.kept() && measured.lost() == 0 {
                (passed, found.frames, found.measured) = (next, next, Some(measured));
                next = (passed + step).min(passed + (failed - passed).div_ceil(2)).min(most);
                step *= 2;
                unkept = 0;
                continue;
            }
            failed = next;
            unkept = if measured.kept() { 0 } else { unkept + 1 };
            let half = passed + (failed - passed) / 2;
            found.limit = if measured.kept() { Limit::Device } else { Limit::Generator };
            let guess = (self.guess)(next, &measured).filter(|_| measured.kept());
            // Further trials would search for the limit of the generator.
            if unkept >= UNKEPT && passed > 0 {
                break;
            }
            next =
                guess.filter(|guess| (passed + 1..failed).contains(guess)).unwrap_or(half).max(1);
            step = 1;
        }
        if passed == most {
            found.limit = Limit::Offered;
        }
        Ok(found)
    }
}
