//! Runs the trials of a method on a [`Runner`], with a journal, repetitions and a stop.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    path::Path,
    trial::{Measured, Trial},
};

/// Runs a trial and measures it: one machine, a cluster, or a model of a device.
pub trait Runner {
    /// Runs a trial and returns its measurements.
    ///
    /// # Errors
    /// A failure that makes any further trial pointless: a missing port, or a profile that is
    /// rejected.
    fn run(&mut self, trial: &Trial) -> Result<Measured, MethodError>;

    /// Verifies that frames and connections of `path` pass the device. The default does nothing: a
    /// model of a device has no path that could be broken.
    ///
    /// # Errors
    /// [`MethodError::Environment`] with the counts of each direction if one of them is dead. A
    /// direction works if at least one frame has passed.
    fn prove(&mut self, _path: &Path) -> Result<(), MethodError> {
        Ok(())
    }

    /// Waits for the device to settle (RFC 2544 §23 asks for 5 s between trials).
    ///
    /// # Errors
    /// The same as of [`Runner::run`].
    fn settle(&mut self, seconds: f64) -> Result<(), MethodError>;
}

/// Why a method ended early.
#[derive(Clone, Debug, PartialEq)]
pub enum MethodError {
    /// Stopped by the tester; the journal has the trials up to then.
    Stopped,
    /// A user error: invalid settings.
    Usage(String),
    /// An error of the host: a missing port or permission.
    Environment(String),
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Usage(text) | Self::Environment(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for MethodError {}

/// A trial that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedTrial {
    pub trial: Trial,
    pub measured: Measured,
    /// 1-based; a trial in which the generator missed its schedule is repeated.
    pub attempt: u32,
}

/// Repetition of trials and rest between them, for all methods.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetryPolicy {
    /// Repeat a trial this often if the generator missed its schedule
    pub repeats: u32,
    /// Seconds between trials (RFC 2544 §23)
    pub rest_s: f64,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { repeats: 2, rest_s: 5.0 }
    }
}

/// Bounds of a search, as parts of the highest load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// The highest load that passed; 0: none so far.
    pub passed: f64,
    /// The lowest load that failed, or that the generator did not sustain; absent: none so far.
    pub failed: Option<f64>,
}

/// Is notified of each trial before and after it runs.
pub trait Watch {
    fn trial_started(&mut self, _trial: &Trial, _number: usize) {}
    /// Reports the bounds of the search to which the next trials belong; `None`: they are not part
    /// of a search.
    fn search_bounds(&mut self, _bounds: Option<Bounds>) {}
    /// Reports a trial of an earlier run of the same test, which is not repeated.
    fn trial_known(&mut self, _recorded: &RecordedTrial) {}
    /// Returns whether the method continues.
    fn trial_ended(&mut self, _recorded: &RecordedTrial) -> bool {
        true
    }
}

/// Ignores all notifications.
pub struct NoWatch;
impl Watch for NoWatch {}

/// The interface of a method to its runner.
pub struct Bench<'a> {
    runner: &'a mut dyn Runner,
    watch: &'a mut dyn Watch,
    retry: RetryPolicy,
    /// Trials of an earlier, stopped run of the same method. Methods are deterministic, so they ask
    /// for the same trials in the same order.
    known: std::vec::IntoIter<RecordedTrial>,
    trials: Vec<RecordedTrial>,
    /// Verified before the first trial that runs.
    path: Option<Path>,
}

impl<'a> Bench<'a> {
    pub fn new(runner: &'a mut dyn Runner, watch: &'a mut dyn Watch, retry: RetryPolicy) -> Self {
        let (known, trials) = (Vec::new().into_iter(), Vec::new());
        Self { runner, watch, retry, known, trials, path: None }
    }

    /// Has the runner verify `path` before the first trial that is not known. A resumed test
    /// verifies it again, and a test with invalid settings sends nothing.
    pub(crate) fn expect(&mut self, path: Option<Path>) {
        self.path = path;
    }

    /// Returns the results of `known` as long as the method asks for the same trials.
    pub fn resume(mut self, known: Vec<RecordedTrial>) -> Self {
        self.known = known.into_iter();
        self
    }

    /// All trials so far, including repetitions.
    pub fn into_trials(self) -> Vec<RecordedTrial> {
        self.trials
    }

    pub fn trials(&self) -> &[RecordedTrial] {
        &self.trials
    }

    /// Reports the bounds of the search to which the next trials belong; `None`: the search is
    /// over.
    pub fn search_bounds(&mut self, bounds: Option<Bounds>) {
        self.watch.search_bounds(bounds);
    }

    /// Waits `seconds` for the device to settle, where the rest between trials is too short;
    /// returns at once if the next trial is already known.
    ///
    /// # Errors
    /// If no further trial can run.
    pub fn settle(&mut self, seconds: f64) -> Result<(), MethodError> {
        match self.known.as_slice() {
            [] => self.runner.settle(seconds),
            _ => Ok(()),
        }
    }

    /// Runs `trial`, and repeats it up to `repeats` times while it does not count
    /// ([`Trial::counts`]). If the last result does not count either, it says nothing about the
    /// device.
    ///
    /// # Errors
    /// If no further trial can run.
    pub fn trial(&mut self, trial: Trial) -> Result<Measured, MethodError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let measured = self.once(&trial, attempt)?;
            if trial.counts(&measured) || attempt > self.retry.repeats {
                return Ok(measured);
            }
        }
    }

    fn once(&mut self, trial: &Trial, attempt: u32) -> Result<Measured, MethodError> {
        let same = |old: &&RecordedTrial| old.trial == *trial && old.attempt == attempt;
        if let Some(old) = self.known.as_slice().first().filter(same).cloned() {
            self.known.next();
            self.watch.trial_known(&old);
            self.trials.push(old.clone());
            return Ok(old.measured);
        }
        // From this trial on, the method differs from the earlier run.
        self.known = Vec::new().into_iter();
        if let Some(path) = self.path.take() {
            self.runner.prove(&path)?;
        }
        if !self.trials.is_empty() {
            self.runner.settle(self.retry.rest_s)?;
        }
        self.watch.trial_started(trial, self.trials.len() + 1);
        let measured = self.runner.run(trial)?;
        let recorded = RecordedTrial { trial: trial.clone(), measured, attempt };
        self.trials.push(recorded.clone());
        match self.watch.trial_ended(&recorded) {
            true => Ok(recorded.measured),
            false => Err(MethodError::Stopped),
        }
    }
}
