//! Live standard tests: trials on their own thread, progress in the run's row, and an outcome
//! instead of a report.

use std::sync::{Arc, Mutex};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{
    Error, Session,
    report::{EndedBy, VerdictStatus},
};
use squall_method::{Bounds, Estimate, Outcome, RecordedTrial, Status, Trial, Watch};
use squall_report::{
    conversations::Flows,
    host_table::{HostDetail, HostPage, HostQuestion},
};
use squall_trials::{StartTime, Test};

use crate::{
    Refusal,
    history::Packed,
    job::{Action, Ended, Job, RunResult, Thread, Work, spawn},
    runs::{Live, RunRow, RunVerdict, State, StopReason, lock},
    service::Service,
};

/// Maximum number of trials in a row of the list of runs. Few, because each change of a row is sent
/// to every watcher. The outcome has all trials.
const MAX_LATEST: usize = 20;

/// Progress of a standard test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestProgress {
    /// `rfc2544`, as `squall test` calls it.
    pub method: String,
    /// Estimate for the whole test, if the device carries half of the maximum rate.
    pub estimate: Estimate,
    /// Number of the current trial, from 1; at the end, that of the last one.
    pub trial: usize,
    /// Measurement of the current trial: `throughput, 64 octets, 50 %`.
    pub label: String,
    /// Bounds of the current search, as shares of the maximum load; `null`: no search.
    pub bounds: Option<Bounds>,
    /// The latest trials that have ended, oldest first; none after the end of the test.
    pub latest: Vec<TrialRow>,
    /// The daemon's file with the trials. A new test with this journal continues this one.
    pub journal: String,
    /// `null` before the end.
    pub status: Option<Status>,
}

/// A trial that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialRow {
    pub trial: usize,
    pub label: String,
    /// From 1; trials in which the generator missed its schedule are repeated.
    pub attempt: u32,
    pub duration_s: f64,
    /// Frames; in a trial with flows: connections that were attempted.
    pub sent: u64,
    /// Frames; in a trial with flows: connections that failed.
    pub lost: u64,
    pub mean_latency_ns: Option<f64>,
    /// Why the trial does not count; `null`: it counts.
    pub not_kept: Option<String>,
}

impl TestProgress {
    /// Removes the latest trials to keep lists of runs short. The outcome has them, too.
    pub fn over(&mut self) {
        self.label.clear();
        self.latest.clear();
        self.bounds = None;
    }
}

impl TrialRow {
    fn of(trial: usize, recorded: &RecordedTrial) -> Self {
        let measured = &recorded.measured;
        let (sent, lost, delay) = match &measured.flows {
            Some(flows) => (flows.attempted, flows.failures(), flows.transaction),
            None => (measured.sent(), measured.lost(), measured.delay()),
        };
        Self {
            trial,
            label: recorded.trial.label.clone(),
            attempt: recorded.attempt,
            duration_s: recorded.trial.duration_s,
            sent,
            lost,
            mean_latency_ns: delay.map(|delay| delay.mean),
            not_kept: measured.not_kept.first().cloned(),
        }
    }
}

/// A live standard test.
pub struct Testing {
    test: Test,
    began: StartTime,
    trials: Mutex<Vec<RecordedTrial>>,
    progress: Mutex<TestProgress>,
    thread: Thread,
}

impl Testing {
    /// The outcome that the test would have if it ended now.
    fn now(&self) -> Outcome {
        self.test.partial_outcome(&self.began, lock(&self.trials).clone())
    }

    fn add(&self, recorded: &RecordedTrial) -> usize {
        let mut trials = lock(&self.trials);
        trials.push(recorded.clone());
        trials.len()
    }

    /// Runs all trials.
    fn run(&self, service: &Service, live: &Live) -> Ended {
        match self.test.run(&mut ProgressWatch(self), &|| self.thread.is_stopped()) {
            Ok(outcome) => Ok(RunResult::Outcome(Arc::new(outcome))),
            Err(error) => {
                // The error ends the run without an outcome, so store the trials before it here.
                _ = service.history.update(&live.row(), Packed::of(&self.now()));
                Err(Arc::new(error))
            }
        }
    }
}

impl Job for Testing {
    fn result_so_far(&self) -> Option<RunResult> {
        Some(RunResult::Outcome(Arc::new(self.now())))
    }

    fn apply(&self, _: Action) -> Result<(), Refusal> {
        Err(unchangeable())
    }

    /// Ends the current trial within a fraction of a second, and starts no further one.
    fn stop(&self) {
        self.thread.stop();
    }

    fn outcome(&self) -> Option<Ended> {
        self.thread.outcome()
    }

    /// The completed trials. The current one is discarded.
    fn abandoned(&self) -> Ended {
        Ok(RunResult::Outcome(Arc::new(self.now())))
    }

    fn describe(&self, row: &mut RunRow) {
        row.test = Some(lock(&self.progress).clone());
    }

    fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal> {
        Err(unshown())
    }

    fn hosts(&self, _question: &HostQuestion) -> Result<HostPage, Refusal> {
        Err(unshown())
    }

    fn host(&self, _group: Option<&str>, _number: u32) -> Result<HostDetail, Refusal> {
        Err(unshown())
    }
}

fn unchangeable() -> Refusal {
    Refusal::conflict(
        "run_is_test",
        "the trials of a standard test cannot be changed\n  try to stop it",
    )
}

fn unshown() -> Refusal {
    Refusal::conflict("run_is_test", "a standard test shows no hosts or flows\n  try its report")
}

/// Receives the progress of a test and stores it for rows.
struct ProgressWatch<'a>(&'a Testing);

impl Watch for ProgressWatch<'_> {
    fn trial_known(&mut self, recorded: &RecordedTrial) {
        let trial = self.0.add(recorded);
        lock(&self.0.progress).trial = trial;
    }

    fn trial_started(&mut self, trial: &Trial, number: usize) {
        let mut progress = lock(&self.0.progress);
        (progress.trial, progress.label) = (number, trial.label.clone());
    }

    fn search_bounds(&mut self, bounds: Option<Bounds>) {
        lock(&self.0.progress).bounds = bounds;
    }

    fn trial_ended(&mut self, recorded: &RecordedTrial) -> bool {
        let row = TrialRow::of(self.0.add(recorded), recorded);
        let mut progress = lock(&self.0.progress);
        if progress.latest.len() == MAX_LATEST {
            progress.latest.remove(0);
        }
        progress.latest.push(row);
        true
    }
}

/// Fills the row from the outcome.
pub fn settle(row: &mut RunRow, outcome: &Outcome, because: Option<&StopReason>) {
    let found = outcome.verdict.status;
    let (status, ended_by) = match found {
        Status::Stopped => (VerdictStatus::Interrupted, EndedBy::Stopped),
        Status::GeneratorBound => (VerdictStatus::NotValid, EndedBy::Done),
        _ => (VerdictStatus::Valid, EndedBy::Done),
    };
    let (valid, reasons) = (status == VerdictStatus::Valid, outcome.verdict.text.clone());
    row.verdict = Some(RunVerdict { status, valid, ended_by, reasons });
    row.passed = match found {
        Status::Passed => Some(true),
        Status::Failed => Some(false),
        _ => None,
    };
    row.elapsed_s = outcome.duration_s;
    row.state = match because {
        Some(StopReason::Interrupted(_)) => State::Interrupted,
        _ => State::Done,
    };
    if let Some(progress) = &mut row.test {
        progress.trial = outcome.trials.len();
        progress.status = Some(found);
    }
}

impl Work for Test {
    type Job = Testing;

    /// Starts the trials on their own thread.
    fn begin(
        mut self,
        service: &Arc<Service>,
        live: &Arc<Live>,
        session: Session,
    ) -> Result<Arc<Testing>, Error> {
        self.profile = session.profile;
        let estimate = self.estimate()?;
        let journal = service.journal_of(live, &mut self).map_err(|r| Error::Usage(r.message))?;
        let progress = TestProgress {
            method: self.method.name().into(),
            estimate,
            trial: 0,
            label: String::new(),
            bounds: None,
            latest: Vec::new(),
            journal,
            status: None,
        };
        let testing = Arc::new(Testing {
            test: self,
            began: StartTime::now(),
            trials: Mutex::default(),
            progress: Mutex::new(progress),
            thread: Thread::default(),
        });
        let how = ("squall-test", State::Running);
        let run =
            |testing: &Testing, service: &Service, live: &Arc<Live>| testing.run(service, live);
        spawn((service, live), &testing, how, |testing| &testing.thread, run)?;
        Ok(testing)
    }
}

impl Service {
    /// The name of the journal; sets its path in `test`.
    fn journal_of(&self, live: &Live, test: &mut Test) -> Result<String, Refusal> {
        let id = live.row().id;
        let name = match &test.journal {
            Some(name) => self.files.plain(&name.to_string_lossy())?,
            None => format!("{id}.journal"),
        };
        let writes = |row: &RunRow| row.test.as_ref().is_some_and(|test| test.journal == name);
        let rows = self.runs.all();
        let mut others = rows.iter().map(|live| live.row()).filter(|row| row.id != id);
        if let Some(other) = others.find(writes) {
            let text =
                format!("journal = {name:?}: run {} writes to it\n  try to stop it", other.id);
            return Err(Refusal::conflict("journal_in_use", text));
        }
        test.journal = Some(self.new_file(&name)?);
        Ok(name)
    }
}
