//! What a method runs its trials on: a [`Runner`], behind a journal, repetitions and a way to stop.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trial::{Measured, Trial};

/// Sends what a trial says and measures. One machine, a cluster, or a model of a device.
pub trait Runner {
    /// # Errors
    /// What makes any further trial pointless: a port that is gone, a profile that is refused.
    fn run(&mut self, trial: &Trial) -> Result<Measured, Halt>;

    /// Lets a device come to rest (RFC 2544 §23 asks for 5 s between trials).
    ///
    /// # Errors
    /// As [`Runner::run`].
    fn rest(&mut self, seconds: f64) -> Result<(), Halt>;
}

/// Why a method does not go on.
#[derive(Clone, Debug, PartialEq)]
pub enum Halt {
    /// Asked to; the journal has what is done.
    Stopped,
    /// What the user could mend: wrong settings.
    Usage(String),
    /// What the machine does not give: a port, a permission.
    Environment(String),
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped"),
            Self::Usage(text) | Self::Environment(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Halt {}

/// A trial that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    pub trial: Trial,
    pub measured: Measured,
    /// From 1; trials that the generator did not keep to are repeated.
    pub attempt: u32,
}

/// How trials are run, whatever the method.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Patience {
    /// Repeat a trial this often if the generator did not keep to it
    pub repeats: u32,
    /// Seconds between trials (RFC 2544 §23)
    pub rest_s: f64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { repeats: 2, rest_s: 5.0 }
    }
}

/// How far a search is: the load that it looks for is between both, as parts of the highest load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bounds {
    /// The highest load that passed; 0: none so far.
    pub passed: f64,
    /// The lowest load that failed, or that the generator did not keep to; absent: none so far.
    pub failed: Option<f64>,
}

/// Hears of each trial before and after it is run.
pub trait Watch {
    fn begins(&mut self, _trial: &Trial, _number: usize) {}
    /// Bounds of the search that the next trials belong to; `None`: they belong to none.
    fn searches(&mut self, _bounds: Option<Bounds>) {}
    /// A trial of an earlier run of the same test, which is not run again.
    fn known(&mut self, _recorded: &Recorded) {}
    /// `false`: the method stops here.
    fn ended(&mut self, _recorded: &Recorded) -> bool {
        true
    }
}

/// Hears and does nothing.
pub struct Unwatched;
impl Watch for Unwatched {}

/// The runner as a method sees it.
pub struct Bench<'a> {
    runner: &'a mut dyn Runner,
    watch: &'a mut dyn Watch,
    patience: Patience,
    /// Trials of an earlier, stopped run of the same method; controllers are deterministic, so the
    /// same questions come in the same order.
    known: std::vec::IntoIter<Recorded>,
    trials: Vec<Recorded>,
}

impl<'a> Bench<'a> {
    pub fn new(runner: &'a mut dyn Runner, watch: &'a mut dyn Watch, patience: Patience) -> Self {
        Self { runner, watch, patience, known: Vec::new().into_iter(), trials: Vec::new() }
    }

    /// Answers from `known` as long as the method asks for the same trials.
    pub fn resume(mut self, known: Vec<Recorded>) -> Self {
        self.known = known.into_iter();
        self
    }

    /// All trials so far, repetitions too.
    pub fn into_trials(self) -> Vec<Recorded> {
        self.trials
    }

    pub fn trials(&self) -> &[Recorded] {
        &self.trials
    }

    /// How far the search is that the next trials belong to; `None`: it is over.
    pub fn searches(&mut self, bounds: Option<Bounds>) {
        self.watch.searches(bounds);
    }

    /// Lets the device come to rest for longer than between any two trials; not before a trial that
    /// is known already.
    ///
    /// # Errors
    /// Why no trial can be run any more.
    pub fn rest(&mut self, seconds: f64) -> Result<(), Halt> {
        match self.known.as_slice() {
            [] => self.runner.rest(seconds),
            _ => Ok(()),
        }
    }

    /// Runs `trial`, and again as often as allowed while the generator does not keep to it. The
    /// last result may still be one that is not [`Measured::kept`]: it says nothing of the device.
    ///
    /// # Errors
    /// Why no trial can be run any more.
    pub fn trial(&mut self, trial: Trial) -> Result<Measured, Halt> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let measured = self.once(&trial, attempt)?;
            if measured.kept() || attempt > self.patience.repeats {
                return Ok(measured);
            }
        }
    }

    fn once(&mut self, trial: &Trial, attempt: u32) -> Result<Measured, Halt> {
        let same = |old: &&Recorded| old.trial == *trial && old.attempt == attempt;
        if let Some(old) = self.known.as_slice().first().filter(same).cloned() {
            self.known.next();
            self.watch.known(&old);
            self.trials.push(old.clone());
            return Ok(old.measured);
        }
        // From here on it goes another way than the earlier run.
        self.known = Vec::new().into_iter();
        if !self.trials.is_empty() {
            self.runner.rest(self.patience.rest_s)?;
        }
        self.watch.begins(trial, self.trials.len() + 1);
        let measured = self.runner.run(trial)?;
        let recorded = Recorded { trial: trial.clone(), measured, attempt };
        self.trials.push(recorded.clone());
        match self.watch.ended(&recorded) {
            true => Ok(recorded.measured),
            false => Err(Halt::Stopped),
        }
    }
}
