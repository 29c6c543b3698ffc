//! The job of a run. The daemon handles every run as a [`Job`]; only the code that creates one, a
//! [`Work`], knows its kind.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::http::StatusCode;
use squall::{
    Amount, Error, HostSearch, Multiplier, Profile, Run, Session,
    report::{NodeClock, ReasonCode, Report, fail_if::FailIf},
};
use squall_control::driving::{DrivenRun, LiveReport, NotStarted};
use squall_method::Outcome;
use squall_report::{
    conversations::Flows,
    host_table::{HostDetail, HostPage, HostQuestion},
};
use squall_units::{Nanos, Rate};

use crate::{
    Refusal,
    history::Packed,
    metrics::Figures,
    runs::{Kind, Live, RunPort, RunRow, RunVerdict, State, StopReason, lock, over},
    service::Service,
    testing::settle,
};

/// The error of a run that a panic has ended.
pub const DEFECT: &str = "a bug in Squall: see the output of the daemon";
/// Interval between samples.
const EVERY: Duration = Duration::from_millis(500);
/// Maximum number of flows per receive queue in a live report: about 12 MB of counters.
const FLOWS: usize = 100_000;
/// Maximum age of the flows that [`Job::received_flows`] returns. They are kept that long, because
/// each query interrupts the workers, and several pages may query the same run.
const FLOWS_FRESH: Duration = Duration::from_millis(500);
/// Pause between two parts of a search for hosts.
const BETWEEN_PARTS: Duration = Duration::from_millis(1);

/// The work of a live run.
pub trait Job: Send + Sync {
    /// The latest sample and report. `None` before the first sample, and for jobs that report only
    /// at the end.
    fn latest(&self) -> Option<Arc<LiveReport>> {
        None
    }

    /// The result so far.
    fn result_so_far(&self) -> Option<RunResult>;

    /// Applies an action to the live run.
    ///
    /// # Errors
    /// If the job cannot perform the action, or refuses it.
    fn apply(&self, action: Action) -> Result<(), Refusal>;

    /// Stops sending. The outcome follows once frames in flight have arrived.
    fn stop(&self);

    /// The outcome; `None` while the job runs.
    fn outcome(&self) -> Option<Ended>;

    /// The outcome to store if the daemon does not wait for the job's end.
    fn abandoned(&self) -> Ended;

    /// Writes the job's state to its row.
    fn describe(&self, row: &mut RunRow);

    /// Flows received so far. `None` if received traffic is not counted by flow.
    ///
    /// # Errors
    /// If the job receives nothing itself, or is over.
    fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal>;

    /// The emulated hosts that `question` selects.
    ///
    /// # Errors
    /// If the job emulates no hosts itself, or is over.
    fn hosts(&self, question: &HostQuestion) -> Result<HostPage, Refusal>;

    /// Host `number`, from 1, of a group (`None`: the only one), with its last events.
    ///
    /// # Errors
    /// As [`Job::hosts`], and if there is no such host.
    fn host(&self, group: Option<&str>, number: u32) -> Result<HostDetail, Refusal>;
}

/// A job before it starts.
pub trait Work {
    type Job: Job + 'static;

    /// The ports of the job, under the names that leases use. Replaces the addresses in the session
    /// by those to open.
    ///
    /// # Errors
    /// Ports that are not allowed.
    fn ports(&self, service: &Service, session: &mut Session) -> Result<Ports, Refusal> {
        service.admit(session)
    }

    /// Starts the job and registers it with [`Live::is`].
    ///
    /// # Errors
    /// The reason why the job cannot start.
    fn begin(
        self,
        service: &Arc<Service>,
        live: &Arc<Live>,
        session: Session,
    ) -> Result<Arc<Self::Job>, Error>;
}

/// The ports of a run.
#[derive(Default)]
pub struct Ports {
    /// Addresses, each with the resource that a lease holds for it.
    pub leased: Vec<(String, Option<String>)>,
    pub shown: Vec<RunPort>,
}

/// An action on a live run.
pub enum Action {
    /// Pause a stream, group, template or replay; `None`: all.
    Pause(Option<String>),
    Resume(Option<String>),
    /// Trigger the capture.
    Trigger,
    /// Send this many frames of a held replay.
    Step(u64),
    /// Start a held run at this time of the cluster's clock.
    Go(Nanos),
    Clock(NodeClock),
    /// Multiply all rates of the profile.
    Multiply(Multiplier),
    /// Multiply the current rate of a stream (`None`: all streams) by numerator / denominator.
    Scale(Option<String>, (u64, u64)),
    /// Set the rate of a stream.
    Rate(String, Rate),
    /// Set the load of a template (`None`: all templates).
    Load(Option<String>, Amount),
    Become(Box<Profile>),
    /// Carry out an order of this router.
    Order(String, serde_json::Value),
}

/// The result of a job, or the reason for its failure.
pub type Ended = Result<RunResult, Arc<Error>>;

/// The thread of a job: its stop flag and its outcome.
#[derive(Default)]
pub struct Thread {
    stop: AtomicBool,
    ended: OnceLock<Ended>,
}

impl Thread {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// `None` while it runs.
    pub fn outcome(&self) -> Option<Ended> {
        self.ended.get().cloned()
    }
}

/// Starts `job` in `state` on its own thread, which stores its outcome in `thread`.
///
/// # Errors
/// [`Error::Environment`]: no thread can be started.
pub fn spawn<J: Job + 'static>(
    (service, live): (&Arc<Service>, &Arc<Live>),
    job: &Arc<J>,
    (name, state): (&str, State),
    thread: fn(&J) -> &Thread,
    run: impl FnOnce(&J, &Service, &Arc<Live>) -> Ended + Send + 'static,
) -> Result<(), Error> {
    // Set the job before the thread starts, because the thread looks it up when it ends.
    live.is(job.clone(), state);
    _ = service.note(live, &live.row());
    let (service, live, job) = (service.clone(), live.clone(), job.clone());
    let to_end = move || {
        // A panic becomes the outcome, otherwise the run would never end.
        let ended = catch_unwind(AssertUnwindSafe(|| run(&job, &service, &live)));
        let ended = ended.unwrap_or_else(|_| Err(Arc::new(Error::Environment(DEFECT.into()))));
        _ = thread(&job).ended.set(ended);
        service.finish(&live);
    };
    let started = std::thread::Builder::new().name(name.into()).spawn(to_end);
    started.map_err(|error| Error::Environment(format!("cannot start a thread: {error}")))?;
    Ok(())
}

/// The result of a run.
#[derive(Clone)]
pub enum RunResult {
    /// The report of a run that is not a standard test.
    Report(Arc<Report>),
    /// The outcome of a standard test.
    Outcome(Arc<Outcome>),
}

impl RunResult {
    /// The result as the history stores it.
    pub fn packed(&self, service: &Service) -> Option<Packed> {
        match self {
            Self::Report(report) => {
                Packed::of(&service.files.with_user_names(Report::clone(report)))
            }
            Self::Outcome(outcome) => Packed::of(&**outcome),
        }
    }

    /// The result as clients get it.
    pub fn text(&self, service: &Service) -> Result<String, Refusal> {
        let text = match self {
            Self::Report(report) => {
                serde_json::to_string(&service.files.with_user_names(Report::clone(report)))
            }
            Self::Outcome(outcome) => serde_json::to_string(&**outcome),
        };
        let text = text.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(service.files.without_root(&text))
    }

    /// The report; `None` for a standard test.
    pub fn report(&self) -> Option<&Arc<Report>> {
        match self {
            Self::Report(report) => Some(report),
            Self::Outcome(_) => None,
        }
    }

    pub fn figures(&self) -> Figures {
        self.report().map(|report| Figures::of(report)).unwrap_or_default()
    }

    /// Whether nothing has been measured yet.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Outcome(outcome) if outcome.trials.is_empty())
    }

    /// Fills the row with the result.
    pub fn settle(&self, row: &mut RunRow, how: &Judged<'_>) {
        match self {
            Self::Report(report) => how.settle(row, report),
            Self::Outcome(outcome) => settle(row, outcome, how.because),
        }
    }
}

/// The criteria by which a report is judged.
pub struct Judged<'a> {
    pub because: Option<&'a StopReason>,
    pub fail_if: &'a [FailIf],
    /// Whether the options have `abort_if` criteria.
    pub aborts: bool,
    /// Whether the run only receives, or only answers.
    pub listens: bool,
}

impl Judged<'_> {
    fn settle(&self, row: &mut RunRow, report: &Report) {
        let verdict = &report.verdict;
        let mut reasons: Vec<_> =
            verdict.reasons.iter().map(|reason| reason.text.clone()).collect();
        let mut failed = verdict.failed.clone();
        failed.extend(self.fail_if.iter().flat_map(|rule| rule.check(report)));
        let asked = self.aborts || !self.fail_if.is_empty();
        row.passed = asked.then_some(failed.is_empty());
        reasons.extend(failed);
        let (status, valid, ended_by) = (verdict.status, verdict.valid, verdict.ended_by);
        row.verdict = Some(RunVerdict { status, valid, ended_by, reasons });
        row.elapsed_s = report.duration_s;
        let sent = report.ports.iter().any(|port| port.tx.packets > 0);
        let lost = verdict.reasons.iter().filter(|reason| reason.code == ReasonCode::PortLost);
        let lost: Vec<_> = lost.map(|reason| reason.text.as_str()).collect();
        row.state = match self.because {
            Some(StopReason::Interrupted(_)) => State::Interrupted,
            _ if !lost.is_empty() => {
                // Each reason names the port, the frames lost with it, and why it failed.
                row.error.get_or_insert_with(|| lost.join("; "));
                State::Failed
            }
            // Nodes whose ports only receive are excluded: without a source they correctly send
            // nothing.
            _ if !self.listens && !sent && !report.sources.is_empty() => {
                row.error.get_or_insert_with(|| "nothing was sent".into());
                State::Failed
            }
            _ => State::Done,
        };
    }
}

/// A run on ports of this machine.
pub struct Here {
    pub driven: Arc<DrivenRun>,
    id: String,
    /// Factor on the rates of the profile; `None` if a total rate was requested.
    mult: Mutex<Option<f64>>,
    /// Whether only hosts or routers send, which cannot be paused.
    only_hosts: bool,
    /// Received flows as of the last query.
    flows: Mutex<Option<(Instant, Arc<Flows>)>>,
}

/// Starts a run on ports of this machine.
pub struct OnPorts {
    /// Wait for `go` before sending.
    pub hold: bool,
}

impl Work for OnPorts {
    type Job = Here;

    fn begin(
        self,
        service: &Arc<Service>,
        live: &Arc<Live>,
        session: Session,
    ) -> Result<Arc<Here>, Error> {
        let mult = session.options.mult.map_or(Some(1.0), Multiplier::factor);
        let only_hosts = Kind::of(&session) == Kind::Hosts;
        let with_user_names = {
            let (service, live) = (Arc::downgrade(service), live.clone());
            move |latest: Option<&Arc<LiveReport>>| {
                #[cfg(test)]
                assert!(
                    latest.is_none() || !live.text.contains("a defect on purpose"),
                    "a defect on purpose"
                );
                if let (None, true, Some(service)) = (latest, live.has_job(), service.upgrade()) {
                    service.finish(&live);
                }
            }
        };
        let driven = match self.hold {
            true => DrivenRun::hold(session, EVERY, with_user_names)?,
            false => DrivenRun::start(session, EVERY, with_user_names)?,
        };
        let here = Arc::new(Here {
            driven,
            id: live.row().id,
            mult: Mutex::new(mult),
            only_hosts,
            flows: Mutex::default(),
        });
        live.is(here.clone(), if self.hold { State::Ready } else { State::Running });
        _ = service.note(live, &RunRow { elapsed_s: 0.0, ..live.row() });
        // Checked again: if the run ended before its job was set, its end was not noticed.
        if here.driven.outcome().is_some() {
            service.finish(live);
        }
        Ok(here)
    }
}

impl Here {
    /// Changes the factor on all rates.
    fn multiply(&self, how: impl FnOnce(&mut Run) -> Result<(), Error>) -> Result<(), Refusal> {
        let now = self.driven.with(|run| how(run).map(|()| run.multiplier()))?;
        *lock(&self.mult) = now.map_or(Some(1.0), Multiplier::factor);
        Ok(())
    }

    /// Replaces the rate of a stream by `new` of its current rate.
    fn change_stream(
        &self,
        name: &str,
        new: impl FnOnce(Rate) -> Result<Rate, Refusal>,
    ) -> Result<(), Refusal> {
        // Read and write under one lock, so that no concurrent change is lost.
        self.driven.with(|run| {
            let mut profile = run.profile().clone();
            let Some(stream) = profile.streams.iter_mut().find(|stream| stream.name == name) else {
                let names: Vec<_> =
                    profile.streams.iter().map(|stream| stream.name.as_str()).collect();
                let message =
                    format!("cannot find stream {name:?}: the run has {}", names.join(", "));
                return Ok(Err(Refusal::new(StatusCode::NOT_FOUND, "unknown_stream", message)));
            };
            match new(stream.rate) {
                Ok(rate) => stream.rate = rate,
                Err(refusal) => return Ok(Err(refusal)),
            }
            run.change(profile).map(Ok)
        })?
    }

    /// The refusal of a query that needs a run that sends.
    fn unavailable(&self) -> Refusal {
        // A held run may begin meanwhile, and then it is not over.
        match self.driven.is_over() {
            true => over(&self.id),
            false => {
                let text = "the run is held\n  try again when it has begun";
                Refusal::conflict("run_starting", text)
            }
        }
    }

    fn go(&self, at: Nanos) -> Result<(), Refusal> {
        self.driven.go_at(at).map_err(|why| match why {
            NotStarted::NotReady => {
                Refusal::conflict("not-ready", "the run is not ready\n  try hold = true")
            }
            NotStarted::TooLate(by) => Refusal::conflict(
                "too-late",
                format!(
                    "at_ns = {} passed {:.6} s ago by the cluster's clock\n  try a later instant",
                    at.0,
                    by.as_secs_f64()
                ),
            ),
        })
    }
}

/// A stream's rate times a factor.
fn scaled(name: &str, now: Rate, (num, den): (u64, u64)) -> Result<Rate, Refusal> {
    let bad = |message: String| Refusal::bad_request("bad_request", message);
    if now == Rate::MAX {
        return Err(bad(format!(
            "the rate max of stream {name:?} cannot be scaled\n  try a rate, such as 1 Mpps"
        )));
    }
    now.times(num, den).ok_or_else(|| {
        bad(format!("the rate {now} of stream {name:?} cannot be scaled by that factor"))
    })
}

impl Job for Here {
    fn latest(&self) -> Option<Arc<LiveReport>> {
        self.driven.latest()
    }

    /// Adds the time series, which live reports lack.
    fn result_so_far(&self) -> Option<RunResult> {
        let mut report = self.latest()?.report.clone();
        if let Ok(series) = self.driven.with(|run| Ok(run.series().to_vec())) {
            report.series = series;
        }
        Some(RunResult::Report(Arc::new(report)))
    }

    fn apply(&self, action: Action) -> Result<(), Refusal> {
        match action {
            Action::Go(at) => return self.go(at),
            Action::Multiply(by) => return self.multiply(|run| run.multiply(by)),
            Action::Scale(None, (num, den)) => return self.multiply(|run| run.scale(num, den)),
            Action::Scale(Some(name), by) => {
                return self.change_stream(&name, |now| scaled(&name, now, by));
            }
            Action::Rate(name, rate) => return self.change_stream(&name, |_| Ok(rate)),
            Action::Clock(clock) => self.driven.set_clock(clock),
            Action::Trigger => self.driven.with(|run| {
                run.trigger();
                Ok(())
            }),
            Action::Step(frames) => self.driven.with(|run| {
                run.step(frames);
                Ok(())
            }),
            Action::Pause(None) if self.only_hosts => {
                return Err(Refusal::bad_request(
                    "bad_request",
                    "hosts and routers cannot be paused: they answer the network around them\n  \
                     try to stop the run",
                ));
            }
            Action::Pause(which) => self.driven.with(|run| run.pause(which.as_deref())),
            Action::Resume(which) => self.driven.with(|run| run.resume(which.as_deref())),
            Action::Load(which, amount) => {
                self.driven.with(|run| run.set_load(which.as_deref(), amount))
            }
            Action::Become(profile) => self.driven.with(|run| run.change(*profile)),
            Action::Order(router, order) => self.driven.with(|run| run.order(&router, &order)),
        }?;
        Ok(())
    }

    fn stop(&self) {
        self.driven.stop();
    }

    fn outcome(&self) -> Option<Ended> {
        self.driven.outcome().map(|outcome| outcome.map(RunResult::Report))
    }

    fn abandoned(&self) -> Ended {
        let text = "the daemon ended, and did not wait for received frames";
        Err(Arc::new(Error::Environment(text.into())))
    }

    fn describe(&self, row: &mut RunRow) {
        row.mult = *lock(&self.mult);
        row.sent_all = self.driven.sent_all();
    }

    fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal> {
        // Hold the lock, so that concurrent queries share one answer and interrupt the workers only
        // once.
        let mut last = lock(&self.flows);
        if let Some((taken, flows)) = &*last
            && taken.elapsed() < FLOWS_FRESH
        {
            return Ok(Some(flows.clone()));
        }
        let flows = self.driven.with(|run| Ok(run.received_flows(FLOWS)));
        // The only possible error: the run is held, or has ended meanwhile.
        let flows = flows.map_err(|_| self.unavailable())?.map(Arc::new);
        *last = flows.as_ref().map(|flows| (Instant::now(), flows.clone()));
        Ok(flows)
    }

    fn hosts(&self, question: &HostQuestion) -> Result<HostPage, Refusal> {
        let mut search = HostSearch::new(question.clone());
        loop {
            let read = self.driven.with(|run| Ok(run.search_hosts(&mut search)));
            if read.map_err(|_| self.unavailable())? {
                return Ok(search.into_page());
            }
            // Without a pause, this thread would have the lock again before another one that waits
            // for it has woken up.
            std::thread::sleep(BETWEEN_PARTS);
        }
    }

    fn host(&self, group: Option<&str>, number: u32) -> Result<HostDetail, Refusal> {
        let found = self.driven.with(|run| Ok(run.host(group, number)));
        let found = found.map_err(|_| self.unavailable())?;
        found.map_err(|error| Refusal::not_found(error.to_string()))
    }
}
