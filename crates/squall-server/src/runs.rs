//! Live runs: from a session that may start to its result in the history.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use axum::http::{Extensions, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use squall::{
    Error, Multiplier, Session,
    report::{EndedBy, VerdictStatus, fail_if::FailIf},
};
pub use squall_control::driving::lock;
use squall_control::driving::{DrivenRun, LiveReport, Start};
use squall_report::{
    conversations::Flows,
    host_table::{HostDetail, HostPage, HostQuestion},
};

use crate::{
    Refusal,
    cluster::ClusterProgress,
    connection::Connection,
    error::Detail,
    history,
    identity::{Identity, note},
    job::{Action, DEFECT, Ended, Job, Judged, OnPorts, Ports, RunResult, Work},
    leases::{Held, Keep, Lease},
    metrics::{self, Figures},
    service::Service,
    testing::TestProgress,
};

/// Interval for storing the report of a live run, which bounds the loss if the daemon is killed.
/// The documentation promises twice that, because a busy machine may be late.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// The first checkpoint after the start, so that short runs have one too.
const FIRST_CHECKPOINT: Duration = Duration::from_secs(1);
/// Number of ended leases to remember with their reasons, for the error messages to their former
/// holders.
const MAX_ENDED_LEASES: usize = 1000;
/// The reason for the end of a run whose lease has expired.
const EXPIRED: &str = "its lease has expired: its client sent no requests";
/// Maximum number of runs at once, because each has its own threads, buffers and counters.
const MAX_RUNS: usize = 64;

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRow {
    /// `r-20261122-0001`: the day (UTC) and a number.
    pub id: String,
    pub name: String,
    pub note: String,
    pub kind: Kind,
    /// Kinds of traffic that a mix has; absent for other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Kind>,
    pub state: State,
    /// Verdict on the generator; `null` before the end.
    pub verdict: Option<RunVerdict>,
    /// Whether no criterion of `fail_if` and `abort_if` holds; `null` without criteria.
    pub passed: Option<bool>,
    pub error: Option<String>,
    pub owner: String,
    pub lease: Option<String>,
    /// RFC 3339.
    pub started: String,
    pub ended: Option<String>,
    pub elapsed_s: f64,
    /// Requested duration; `null`: until it is stopped, or all is sent.
    pub duration_s: Option<f64>,
    pub ports: Vec<RunPort>,
    /// Number of streams.
    pub streams: usize,
    /// Factor on all rates of the profile; `null` if a total rate was requested.
    #[serde(default)]
    pub mult: Option<f64>,
    /// Whether all of its own frames are sent; it still receives those of other nodes.
    #[serde(default)]
    pub sent_all: bool,
    /// Number of times that its lease expired and its traffic was paused.
    #[serde(default)]
    pub lapses: u32,
    /// Progress of a standard test; absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test: Option<TestProgress>,
    /// Nodes of a run over several machines; absent for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterProgress>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPort {
    pub name: String,
    pub address: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunVerdict {
    /// As in the report.
    #[serde(default)]
    pub status: VerdictStatus,
    pub valid: bool,
    /// Cause of the run's end.
    #[serde(default)]
    pub ended_by: EndedBy,
    /// Reasons why it is not valid; criteria of `fail_if` and `abort_if` that hold.
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    Streams,
    Replay,
    Flows,
    Attacks,
    /// Several of the above; `parts` of the row names them.
    Mix,
    /// Only hosts or routers, which cannot be paused.
    Hosts,
    Capture,
    Otg,
    Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    /// Everything is open, and the run waits for `go`.
    Ready,
    Running,
    Paused,
    Stopping,
    Done,
    /// It sent none of its traffic, or could not continue.
    Failed,
    /// It ended early, and not because its owner stopped it: its ports were taken away, its lease
    /// expired, the daemon ended or was killed. Its report has the results until then.
    Interrupted,
}

impl RunRow {
    /// Ends the progress of tests and nodes in the row.
    fn over(&mut self) {
        if let Some(progress) = &mut self.test {
            progress.over();
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.over();
        }
    }
}

impl Kind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Replay => "replay",
            Self::Flows => "flows",
            Self::Attacks => "attacks",
            Self::Mix => "mix",
            Self::Hosts => "hosts",
            Self::Capture => "capture",
            Self::Otg => "otg",
            Self::Test => "test",
        }
    }

    pub fn of(session: &Session) -> Self {
        let profile = &session.profile;
        let has_hosts = !profile.hosts.is_empty() || !profile.routers.is_empty();
        match Self::parts(session)[..] {
            [] if has_hosts => Self::Hosts,
            [] => Self::Capture,
            [only] => only,
            _ => Self::Mix,
        }
    }

    /// The kinds of traffic that a session sends.
    fn parts(session: &Session) -> Vec<Self> {
        let profile = &session.profile;
        let parts = [
            (Self::Streams, !profile.streams.is_empty()),
            (Self::Flows, profile.flows.is_some()),
            (Self::Replay, !profile.replays.is_empty()),
            (Self::Attacks, !profile.attacks.is_empty()),
        ];
        parts.into_iter().filter(|(_, has)| *has).map(|(kind, _)| kind).collect()
    }

    /// Whether runs of this kind have a report. A standard test has an outcome instead.
    pub fn has_report(self) -> bool {
        self != Self::Test
    }
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopping => "stopping",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }

    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Interrupted)
    }
}

/// A run to start, and its owner.
pub struct Wanted {
    pub session: Session,
    pub kind: Kind,
    pub name: String,
    pub owner: String,
    /// The lease of its ports; `None`: the run makes its own.
    pub lease: Option<String>,
    pub ttl: Duration,
    pub keep: Keep,
    /// The profile as the user wrote it, for the history.
    pub text: String,
    pub format: &'static str,
    pub fail_if: Vec<FailIf>,
}

/// A live run.
pub struct Live {
    row: Mutex<RunRow>,
    /// Empty while the run starts.
    job: OnceLock<Arc<dyn Job>>,
    pub text: String,
    fail_if: Vec<FailIf>,
    /// Whether the options have `abort_if` criteria.
    aborts: bool,
    since: Instant,
    /// Whether the run made its lease itself, and releases it at its end.
    own_lease: bool,
    /// Whether its traffic is paused because its lease has expired. The lock orders pauses and
    /// renewals.
    lapsed: Mutex<bool>,
    /// Why the run is being stopped; part of its result.
    because: Mutex<Option<StopReason>>,
    finished: AtomicBool,
    /// Whether the history has the result. The lock orders writers, otherwise a late checkpoint
    /// could overwrite the result.
    written: Mutex<bool>,
    /// When to store the next report.
    checkpoint: Mutex<Instant>,
    /// Whether the run only receives, or only answers, and may therefore send nothing.
    listens: bool,
}

/// Why a run ends early.
#[derive(Clone)]
pub enum StopReason {
    /// A request from the holder of the ports.
    Asked(&'static str),
    /// An action of another client, or an expired lease.
    Interrupted(String),
}

#[derive(Default)]
pub struct Runs {
    live: Mutex<BTreeMap<String, Arc<Live>>>,
    last: Mutex<Numbers>,
    /// Results of the runs that ended last, the latest at the end.
    lately: Mutex<VecDeque<(Instant, RunRow, Arc<Figures>)>>,
    /// Counts changes of runs and leases. Watchers wait for changes of this value.
    changed: tokio::sync::watch::Sender<u64>,
    pub started: std::sync::atomic::AtomicU64,
}

/// The day, the last number assigned on that day, and the last reserved number.
#[derive(Default)]
struct Numbers {
    day: String,
    last: u64,
    reserved: u64,
}

impl StopReason {
    pub fn interrupted(why: impl Into<String>) -> Self {
        Self::Interrupted(why.into())
    }

    fn text(&self) -> &str {
        match self {
            Self::Asked(why) => why,
            Self::Interrupted(why) => why,
        }
    }
}

impl Live {
    pub fn row(&self) -> RunRow {
        let mut row = lock(&self.row).clone();
        if !row.state.is_over() {
            row.elapsed_s = self.since.elapsed().as_secs_f64();
            if let Some(job) = self.job.get() {
                job.describe(&mut row);
            }
        }
        row
    }

    /// Sets the job and the state. Has no effect if the run was stopped meanwhile.
    pub fn is(&self, job: Arc<dyn Job>, state: State) {
        let job = self.job.get_or_init(|| job);
        self.set_state(&[State::Starting], state);
        if lock(&self.row).state == State::Stopping {
            job.stop();
        }
    }

    /// Whether [`Live::is`] has set the job.
    pub fn has_job(&self) -> bool {
        self.job.get().is_some()
    }

    /// The latest sample and report. `None` before the first sample, and for runs that report only
    /// at the end.
    pub fn latest(&self) -> Option<Arc<LiveReport>> {
        self.job.get()?.latest()
    }

    /// The result so far.
    pub fn result_so_far(&self) -> Option<RunResult> {
        self.job.get()?.result_so_far()
    }

    /// # Errors
    /// If the run has not started or is over.
    fn job(&self) -> Result<&dyn Job, Refusal> {
        match self.job.get() {
            Some(_) if self.is_over() => Err(over(&self.row().id)),
            Some(job) => Ok(&**job),
            None => Err(Refusal::conflict(
                "run_starting",
                "the run has not started\n  try again in a moment",
            )),
        }
    }

    /// Applies an action, and updates the state.
    ///
    /// # Errors
    /// If the run has not started, is over, or refuses the action.
    pub fn apply(&self, action: Action) -> Result<(), Refusal> {
        let job = self.job()?;
        let state = match &action {
            Action::Pause(None) => Some((State::Running, State::Paused)),
            Action::Resume(_) => Some((State::Paused, State::Running)),
            Action::Go(_) => return self.go(job, action),
            _ => None,
        };
        job.apply(action)?;
        if let Some((from, to)) = state {
            self.set_state(&[from], to);
        }
        Ok(())
    }

    fn go(&self, job: &dyn Job, action: Action) -> Result<(), Refusal> {
        // Hold the lock until the run has started, so that a concurrent stop reaches a running run.
        let mut row = lock(&self.row);
        if row.state != State::Ready {
            let message = format!("the run is {}, not ready\n  try hold = true", row.state.word());
            return Err(Refusal::conflict("not-ready", message));
        }
        job.apply(action)?;
        row.state = State::Running;
        Ok(())
    }

    /// Flows received so far. `None` if received traffic is not counted by flow.
    ///
    /// # Errors
    /// If the run has not started, is over, or receives nothing itself.
    pub fn received_flows(&self) -> Result<Option<Arc<Flows>>, Refusal> {
        self.job()?.received_flows()
    }

    /// The emulated hosts that `question` selects.
    ///
    /// # Errors
    /// If the run has not started, is over, or emulates no hosts itself.
    pub fn hosts(&self, question: &HostQuestion) -> Result<HostPage, Refusal> {
        self.job()?.hosts(question)
    }

    /// A host with its last events: see [`Job::host`].
    ///
    /// # Errors
    /// As [`Live::hosts`], and if there is no such host.
    pub fn host(&self, group: Option<&str>, number: u32) -> Result<HostDetail, Refusal> {
        self.job()?.host(group, number)
    }

    pub fn is_over(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    /// Stops sending. `because` becomes part of the result.
    pub fn stop(&self, because: Option<&StopReason>) {
        let mut row = lock(&self.row);
        if row.state.is_over() {
            return;
        }
        row.state = State::Stopping;
        drop(row);
        if let Some(because) = because {
            lock(&self.because).get_or_insert_with(|| because.clone());
        }
        if let Some(job) = self.job.get() {
            job.stop();
        }
    }

    pub fn set_state(&self, from: &[State], to: State) {
        let mut row = lock(&self.row);
        if from.contains(&row.state) {
            row.state = to;
        }
    }

    /// Changes the name, the note, or both.
    pub fn rename(&self, name: Option<String>, note: Option<String>) -> RunRow {
        let mut row = lock(&self.row);
        row.name = name.unwrap_or(std::mem::take(&mut row.name));
        row.note = note.unwrap_or(std::mem::take(&mut row.note));
        drop(row);
        self.row()
    }
}

pub fn over(id: &str) -> Refusal {
    Refusal::conflict("run_over", format!("run {id} is over\n  try a new one"))
}

impl Runs {
    pub fn get(&self, id: &str) -> Option<Arc<Live>> {
        lock(&self.live).get(id).cloned()
    }

    /// Live runs, oldest first.
    pub fn all(&self) -> Vec<Arc<Live>> {
        lock(&self.live).values().cloned().collect()
    }

    pub fn of_lease(&self, lease: &str) -> Vec<Arc<Live>> {
        self.all()
            .into_iter()
            .filter(|live| lock(&live.row).lease.as_deref() == Some(lease))
            .collect()
    }

    /// Runs on the lease that still have its ports open.
    fn on_lease(&self, lease: &str) -> Vec<Arc<Live>> {
        self.of_lease(lease).into_iter().filter(|live| !live.is_over()).collect()
    }

    /// Results of the runs that ended within the last [`metrics::STAY`].
    pub fn lately(&self, now: Instant) -> Vec<(RunRow, Arc<Figures>)> {
        let mut lately = lock(&self.lately);
        lately.retain(|(ended, ..)| now.duration_since(*ended) < metrics::STAY);
        lately.iter().map(|(_, row, figures)| (row.clone(), figures.clone())).collect()
    }

    fn ended(&self, row: &RunRow, came: &RunResult) {
        let mut lately = lock(&self.lately);
        while lately.len() >= metrics::STAYING {
            lately.pop_front();
        }
        lately.push_back((Instant::now(), row.clone(), Arc::new(came.figures())));
    }

    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub fn touch(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn next_id(&self, service: &Service, now: SystemTime) -> Result<String, Refusal> {
        let day: String = humantime::format_rfc3339_seconds(now).to_string()[..10].replace('-', "");
        let mut numbers = lock(&self.last);
        if numbers.day != day {
            let last = service.history.last_number(&day);
            let last = last.map_err(|error| Refusal::internal(format!("the history: {error}")))?;
            *numbers = Numbers { day, last, reserved: last };
        }
        numbers.last += 1;
        if numbers.last > numbers.reserved {
            // A full disk is no error here, because the next run tries again.
            numbers.reserved =
                service.history.reserve(&numbers.day, numbers.last).unwrap_or(numbers.reserved);
        }
        Ok(format!("r-{}-{:04}", numbers.day, numbers.last))
    }

    /// Records the last number, so that a clean shutdown leaves no gap.
    fn end_numbers(&self, service: &Service) {
        let numbers = lock(&self.last);
        if !numbers.day.is_empty() {
            service.history.reserved(&numbers.day, numbers.last);
        }
    }
}

impl Service {
    /// Leases the ports, unless a lease is given, and starts the run. Blocks until the ports are
    /// open and the attack rules are solved.
    ///
    /// # Errors
    /// Ports that other leases hold or that are not allowed, files outside the daemon's directory,
    /// and errors of the session.
    pub fn start<W: Work>(
        self: &Arc<Self>,
        mut wanted: Wanted,
        work: W,
    ) -> Result<(Arc<Live>, Arc<W::Job>), Refusal> {
        self.has_room()?;
        self.files.check(&wanted.session.profile)?;
        let ports = work.ports(self, &mut wanted.session)?;
        let keep = wanted.keep;
        let (live, session) = self.enter(wanted, ports)?;
        // Catch a panic, otherwise it would leave the ports leased.
        let begun = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work.begin(self, &live, session)
        }));
        if let Some(lease) = live.own_lease.then(|| lock(&live.row).lease.clone()).flatten() {
            lock(&self.leases).keep(self.now(), &lease, keep);
        }
        self.runs.touch();
        match begun {
            Ok(Ok(job)) => Ok((live, job)),
            Ok(Err(error)) => {
                self.take_back(&live, &error);
                Err(self.files.without_paths(error.into()))
            }
            Err(_) => {
                self.fail(&live, DEFECT);
                Err(Refusal::defect())
            }
        }
    }

    fn has_room(&self) -> Result<(), Refusal> {
        if lock(&self.runs.live).len() >= MAX_RUNS {
            return Err(Refusal::conflict(
                "too_many_runs",
                format!("{MAX_RUNS} runs are running\n  try to stop one"),
            ));
        }
        if *self.ending.borrow() {
            return Err(Refusal::conflict("ending", "the daemon is stopping"));
        }
        Ok(())
    }

    /// Returns the ports of a session, and replaces their addresses in it by those to open.
    ///
    /// # Errors
    /// Ports that are not allowed.
    pub fn admit(&self, session: &mut Session) -> Result<Ports, Refusal> {
        let mut ports = Ports::default();
        for port in &mut session.profile.ports {
            let admitted = self.ports.admit(&port.address, &self.files)?;
            ports.leased.push((port.address.clone(), admitted.resource));
            ports.shown.push(RunPort { name: port.name.clone(), address: port.address.clone() });
            port.address = admitted.address;
        }
        Ok(ports)
    }

    /// Leases the ports of a run, and adds it to the history and to the live runs.
    fn enter(
        self: &Arc<Self>,
        wanted: Wanted,
        ports: Ports,
    ) -> Result<(Arc<Live>, Session), Refusal> {
        let Wanted { session, kind, name, owner, lease, ttl, text, .. } = wanted;
        let (format, fail_if) = (wanted.format, wanted.fail_if);
        let Ports { leased, shown } = ports;
        let own_lease = lease.is_none();
        let lease = match lease {
            Some(id) => self.covers(&id, &leased)?,
            // Its time begins when the ports are open: the client cannot name the run before.
            None => self.lease(&owner, leased, ttl, Keep::Run)?,
        };
        let now = SystemTime::now();
        let id = self.runs.next_id(self, now)?;
        let parts = if kind == Kind::Mix { Kind::parts(&session) } else { Vec::new() };
        let row = RunRow {
            id: id.clone(),
            name: if name.is_empty() {
                format!("{} on {}", title(kind, &parts), addresses(&shown))
            } else {
                name
            },
            note: String::new(),
            kind,
            parts,
            state: State::Starting,
            verdict: None,
            passed: None,
            error: None,
            owner,
            lease: Some(lease.id.clone()),
            started: humantime::format_rfc3339_millis(now).to_string(),
            ended: None,
            elapsed_s: 0.0,
            duration_s: session.profile.stop.duration.map(|d| d.as_secs_f64()),
            ports: shown,
            streams: session.profile.streams.len(),
            mult: session.options.mult.map_or(Some(1.0), Multiplier::factor),
            sent_all: false,
            lapses: 0,
            test: None,
            cluster: None,
        };
        let live = Arc::new(Live {
            job: OnceLock::new(),
            text,
            fail_if,
            aborts: session.options.abort_if.as_ref().is_some_and(|all| !all.is_empty()),
            since: Instant::now(),
            own_lease,
            lapsed: Mutex::new(false),
            because: Mutex::default(),
            finished: AtomicBool::new(false),
            written: Mutex::default(),
            checkpoint: Mutex::new(Instant::now() + FIRST_CHECKPOINT),
            listens: matches!(Kind::of(&session), Kind::Capture | Kind::Hosts),
            row: Mutex::new(row.clone()),
        });
        // Done before the traffic starts, so that the next start of a killed daemon knows the run
        // (ADR 0034).
        if let Err(error) = self.history.insert(&row, &live.text, format) {
            self.give_back(&live, &lease.id);
            return Err(history::unreadable(error));
        }
        lock(&self.runs.live).insert(id.clone(), live.clone());
        self.runs.started.fetch_add(1, Ordering::Relaxed);
        note(format!("run {id} of {} on {}", row.owner, addresses(&row.ports)));
        tracing::info!(
            run = id,
            kind = row.kind.word(),
            owner = row.owner,
            ports = addresses(&row.ports),
            "run starts"
        );
        self.runs.touch();
        Ok((live, session))
    }

    /// Stores the row of a live run in the history. Returns false if the run is over.
    ///
    /// # Errors
    /// A full disk.
    pub fn note(&self, live: &Live, row: &RunRow) -> Result<bool, rusqlite::Error> {
        let written = lock(&live.written);
        if !*written {
            self.history.update(row, None)?;
        }
        Ok(!*written)
    }

    /// Stores reports of live runs whose checkpoint is due. Blocks while it compresses and writes
    /// them.
    pub fn checkpoint(&self) {
        for live in self.runs.all() {
            if *lock(&live.checkpoint) > Instant::now() {
                continue;
            }
            // Without a measurement, store only the row. Runs over several machines have none until
            // the end, because their nodes report only then.
            let result_so_far = live.result_so_far().filter(|came| !came.is_empty());
            let report = result_so_far.and_then(|came| came.packed(self));
            let written = lock(&live.written);
            if !*written {
                // Errors are ignored, because a full disk is reported when the run ends.
                _ = self.history.update(&live.row(), report);
            }
            drop(written);
            *lock(&live.checkpoint) = Instant::now() + CHECKPOINT;
        }
    }

    /// Removes a run that did not start. Nothing is kept, because the client gets the reason.
    fn take_back(&self, live: &Arc<Live>, why: &Error) {
        if live.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let row = live.row();
        *lock(&live.written) = true;
        if let Err(error) = self.history.delete(&row.id) {
            // The error is only logged, because the next start of the daemon marks the run as
            // interrupted.
            tracing::error!(
                run = row.id,
                %error,
                "cannot remove a run that did not start from the history"
            );
        }
        if let Some(lease) = &row.lease {
            self.give_back(live, lease);
        }
        lock(&self.runs.live).remove(&row.id);
        tracing::info!(run = row.id, error = %why, "run did not start");
        // Noted, because streams may have been allocated already, and their memory is free now.
        self.memory.used(None);
        self.runs.touch();
    }

    /// Stores the outcome of the run's job.
    pub fn finish(&self, live: &Arc<Live>) {
        match live.job.get().and_then(|job| job.outcome()) {
            Some(ended) => self.finish_as(live, ended),
            None => self.fail(live, "the run ended without a report"),
        }
    }

    /// Ends the run as failed.
    pub fn fail(&self, live: &Arc<Live>, why: &str) {
        self.finish_as(live, Err(Arc::new(Error::Environment(why.into()))));
    }

    /// Stores the result, frees the ports and then marks the run as over, once and in this order,
    /// so that clients that wait for the end find the report, and can use the ports for the next
    /// run.
    fn finish_as(&self, live: &Arc<Live>, ended: Ended) {
        if live.finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut written = lock(&live.written);
        let mut row = live.row();
        row.elapsed_s = live.since.elapsed().as_secs_f64();
        row.ended = Some(humantime::format_rfc3339_millis(SystemTime::now()).to_string());
        let because = lock(&live.because).clone();
        row.error = because.as_ref().map(|because| because.text().to_owned());
        match &ended {
            Ok(came) => came.settle(
                &mut row,
                &Judged {
                    because: because.as_ref(),
                    fail_if: &live.fail_if,
                    aborts: live.aborts,
                    listens: live.listens,
                },
            ),
            Err(error) => {
                row.error = Some(self.files.without_root(&error.to_string()));
                row.state = State::Failed;
            }
        }
        row.over();
        let report = ended.as_ref().ok().and_then(|came| came.packed(self));
        if let Err(error) = self.history.update(&row, report) {
            tracing::error!(run = row.id, %error, "cannot store the results of the run yet");
        }
        *written = true;
        drop(written);
        if let Ok(came) = &ended {
            self.runs.ended(&row, came);
        }
        let (state, error) = (row.state.word(), row.error.as_deref());
        tracing::info!(run = row.id, state, error, "run ended");
        if let Some(lease) = &row.lease {
            self.give_back(live, lease);
        }
        lock(&self.runs.live).remove(&row.id);
        // Noted, because streams, counters and frames are free now, and their memory can be
        // returned.
        self.memory.used(None);
        self.runs.touch();
    }

    /// Frees the ports of the run's own lease, or of an ending lease if this was its last run.
    fn give_back(&self, live: &Live, id: &str) {
        let own = if live.own_lease { lock(&self.leases).release(id) } else { None };
        match own {
            // Stops other runs too, because they may have been started on this lease.
            Some(lease) => {
                let because =
                    StopReason::interrupted("the run that had leased its ports has ended");
                self.stop_on(&lease, &because);
            }
            None if self.runs.on_lease(id).is_empty() => lock(&self.leases).ended(id),
            None => {}
        }
    }

    /// The current time on the clock of the leases.
    pub fn now(&self) -> Duration {
        self.since.elapsed()
    }

    /// Leases ports.
    ///
    /// # Errors
    ///
    /// Ports that other leases hold; the error lists all of them.
    pub fn lease(
        self: &Arc<Self>,
        owner: &str,
        ports: Vec<(String, Option<String>)>,
        ttl: Duration,
        keep: Keep,
    ) -> Result<Lease, Refusal> {
        self.expire();
        let leased = lock(&self.leases)
            .acquire(self.now(), owner, ports, ttl, keep)
            .map_err(|held| in_use(&held));
        self.runs.touch();
        leased
    }

    /// Renews a lease and checks that it holds all these ports.
    fn covers(
        self: &Arc<Self>,
        id: &str,
        ports: &[(String, Option<String>)],
    ) -> Result<Lease, Refusal> {
        self.expire();
        let mut leases = lock(&self.leases);
        let Some(lease) = leases.renew(self.now(), id).cloned() else {
            drop(leases);
            return Err(self.no_lease(id));
        };
        let has = |what: &String| lease.ports.iter().any(|(_, held)| held.as_ref() == Some(what));
        match ports.iter().find(|(_, what)| what.as_ref().is_some_and(|what| !has(what))) {
            Some((address, _)) => Err(Refusal::conflict(
                "port_not_leased",
                format!(
                    "lease {id} does not hold {address}\n  try a lease of all ports of the run, \
                     or none"
                ),
            )),
            None => Ok(lease),
        }
    }

    /// The time until the next lease expires if it is not renewed.
    pub fn next_expiry(&self) -> Option<Duration> {
        lock(&self.leases).next_expiry(self.now())
    }

    /// Ends expired leases and stops their runs, or pauses both.
    pub fn expire(self: &Arc<Self>) {
        let over = lock(&self.leases).expire(self.now());
        for lease in &over {
            if lease.paused && !lease.ending {
                self.pause_on(lease);
                continue;
            }
            let because = StopReason::interrupted(EXPIRED);
            let ports: Vec<_> = lease.ports.iter().map(|(address, _)| address.as_str()).collect();
            let detail = format!("{} of {}: {}", lease.id, lease.owner, ports.join(", "));
            self.audit(&Identity::daemon(), "lease expired", None, detail);
            self.end_lease(lease, &because);
        }
        if !over.is_empty() {
            self.runs.touch();
        }
    }

    /// Pauses the run that has made a lease. A run that cannot pause, such as one that waits for
    /// `go`, ends.
    fn pause_on(self: &Arc<Self>, lease: &Lease) {
        for live in self.runs.on_lease(&lease.id).iter().filter(|live| live.own_lease) {
            if !self.follow_lease(live, &lease.id) {
                live.stop(Some(&StopReason::interrupted(EXPIRED)));
            }
        }
    }

    /// Pauses the traffic of a run whose lease is paused, and resumes it when the lease was renewed.
    /// Returns false if the run cannot do so.
    fn follow_lease(&self, live: &Live, lease: &str) -> bool {
        let mut lapsed = lock(&live.lapsed);
        // Read under the lock: a renewal may come while the run is being paused.
        let paused = lock(&self.leases).get(lease).is_some_and(|lease| lease.paused);
        if paused == *lapsed {
            return true;
        }
        let (action, state) = match paused {
            true => (Action::Pause(None), State::Paused),
            false => (Action::Resume(None), State::Running),
        };
        if live.apply(action).is_err() {
            return false;
        }
        *lapsed = paused;
        let mut row = lock(&live.row);
        row.lapses += u32::from(paused);
        tracing::info!(run = row.id, state = state.word(), "lease expired or was renewed");
        drop(row);
        self.runs.touch();
        true
    }

    /// Stops the runs on the ports of a lease that has ended.
    pub fn end_lease(self: &Arc<Self>, lease: &Lease, because: &StopReason) {
        let mut ended = lock(&self.ended);
        if ended.len() == MAX_ENDED_LEASES {
            ended.pop_front();
        }
        ended.push_back((lease.id.clone(), because.text().to_owned()));
        drop(ended);
        // Notify the OTG session, otherwise it would continue as if it still had its ports. Use a
        // separate thread, because the session may be busy and ending a run takes time.
        if let Some(session) = otg_session(&lease.owner) {
            let (service, session, why) =
                (self.clone(), session.to_owned(), because.text().to_owned());
            std::thread::spawn(move || service.otg.expire(&session, &why));
        }
        self.stop_on(lease, because);
    }

    fn stop_on(&self, lease: &Lease, because: &StopReason) {
        let runs = self.runs.on_lease(&lease.id);
        runs.iter().for_each(|live| live.stop(Some(because)));
        if runs.is_empty() {
            lock(&self.leases).ended(&lease.id);
        }
        self.runs.touch();
    }

    /// Renews the run's own lease, because a request has named the run.
    pub fn renew_own_lease(&self, live: &Live) {
        let lease = live.own_lease.then(|| lock(&live.row).lease.clone()).flatten();
        if let Some(lease) = lease {
            _ = lock(&self.leases).renew(self.now(), &lease);
            self.follow_lease(live, &lease);
        }
    }

    /// Ends all runs. A run that does not end in time is stored with its result so far.
    pub async fn end(&self) {
        self.history.catch_up();
        let runs = self.runs.all();
        for live in &runs {
            live.stop(Some(&StopReason::interrupted("the daemon ended")));
        }
        let deadline = Instant::now() + Duration::from_millis(1500);
        while !lock(&self.runs.live).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for live in self.runs.all() {
            match live.job.get() {
                Some(job) => self.finish_as(&live, job.abandoned()),
                None => self.fail(&live, "the daemon ended before the run had started"),
            }
        }
        self.runs.end_numbers(self);
    }
}

impl Service {
    /// The refusal for a lease that does not exist. Includes the reason why the lease ended,
    /// because its former holder would otherwise see only an unknown lease.
    pub fn no_lease(&self, id: &str) -> Refusal {
        let ended = lock(&self.ended);
        let known = ended.iter().rev().find(|(known, _)| known == id).map(|(_, why)| why.as_str());
        let why = known.unwrap_or("it was released, or has expired");
        Refusal::not_found(format!("there is no lease {id:?}: {why}\n  try a new one"))
    }
}

fn in_use(held: &[Held]) -> Refusal {
    let detail = |held: &Held| Detail {
        path: held.address.clone(),
        message: match held.left {
            _ if held.ending => format!("was held by {}, whose run is being stopped", held.owner),
            Some(left) => {
                format!("held by {} for {} s more", held.owner, left.as_secs_f64().ceil())
            }
            None => format!("held by {} until its run or connection ends", held.owner),
        },
        ..Detail::default()
    };
    let mut details: Vec<_> = held.iter().map(detail).collect();
    // Repetitions are removed, because the two ends of a link have the same address.
    details.dedup();
    let lines: Vec<_> =
        details.iter().map(|detail| format!("{}: {}", detail.path, detail.message)).collect();
    let message = format!(
        "{}\n  try to wait, or POST /squall/v1/leases/release to take it away",
        lines.join("\n")
    );
    Refusal::conflict("port_in_use", message).with(details)
}

/// Returns a title such as `mix of streams and attacks`.
fn title(kind: Kind, parts: &[Kind]) -> String {
    let words: Vec<_> = parts.iter().map(|part| part.word()).collect();
    match &words[..] {
        [] => kind.word().into(),
        [first @ .., last] => format!("{} of {} and {last}", kind.word(), first.join(", ")),
    }
}

fn addresses(ports: &[RunPort]) -> String {
    ports.iter().map(|port| port.address.as_str()).collect::<Vec<_>>().join(", ")
}

/// Starts runs for Open Traffic Generator and TRex. Ports and files are checked as for all runs.
/// The lease lasts while the owner has a connection.
pub struct ManagedStart {
    service: Weak<Service>,
    /// Owner of the ports, such as `otg/alice`.
    owner: String,
    kind: Kind,
    lease: Option<String>,
}

impl ManagedStart {
    pub fn new(service: Weak<Service>, owner: String, kind: Kind) -> Self {
        Self { service, owner, kind, lease: None }
    }

    fn service(&self) -> Result<Arc<Service>, Refusal> {
        self.service.upgrade().ok_or_else(|| Refusal::conflict("ending", "the daemon is stopping"))
    }

    fn begin(&mut self, name: &str, session: Session) -> Result<Arc<DrivenRun>, Refusal> {
        let service = self.service()?;
        let addresses: Vec<_> =
            session.profile.ports.iter().map(|port| port.address.clone()).collect();
        if self
            .lease
            .as_ref()
            .is_none_or(|id| lock(&service.leases).get(id).is_none_or(|lease| lease.ending))
        {
            self.hold(&addresses)?;
        }
        let wanted = Wanted {
            kind: self.kind,
            name: name.to_owned(),
            owner: self.owner.clone(),
            lease: self.lease.clone(),
            ttl: service.settings.lease,
            keep: Keep::Renewed,
            text: session.profile.to_toml(),
            format: "toml",
            fail_if: Vec::new(),
            session,
        };
        let (_, here) = service.start(wanted, OnPorts { hold: false })?;
        Ok(here.driven.clone())
    }

    /// Waits for the session's previous run to release its ports. Otherwise a session that restarts
    /// its own traffic would be refused its own ports.
    fn wait_for_own(&self, service: &Service, ports: &[(String, Option<String>)]) {
        let ending = |(_, what): &(String, Option<String>)| {
            let leases = lock(&service.leases);
            what.as_ref()
                .and_then(|what| leases.holder(what))
                .is_some_and(|l| l.ending && l.owner == self.owner)
        };
        let deadline = Instant::now() + Duration::from_secs(3);
        while ports.iter().any(ending) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn hold(&mut self, addresses: &[String]) -> Result<(), Refusal> {
        let service = self.service()?;
        let admit = |address: &String| {
            Ok((address.clone(), service.ports.admit(address, &service.files)?.resource))
        };
        let ports = addresses.iter().map(admit).collect::<Result<Vec<_>, Refusal>>()?;
        if ports.is_empty() {
            let lease = self.lease.take().and_then(|id| lock(&service.leases).release(&id));
            if let Some(lease) = lease {
                service.stop_on(&lease, &StopReason::Asked("its ports were returned"));
            }
            return Ok(());
        }
        let exchanged = self
            .lease
            .as_ref()
            .map(|id| lock(&service.leases).exchange(service.now(), id, ports.clone()));
        match exchanged {
            Some(Some(Ok(()))) => {}
            Some(Some(Err(held))) => return Err(in_use(&held)),
            // The owner has no lease, or it has expired.
            Some(None) | None => {
                self.wait_for_own(&service, &ports);
                self.lease = Some(
                    service.lease(&self.owner, ports, service.settings.lease, Keep::Renewed)?.id,
                );
            }
        }
        service.runs.touch();
        Ok(())
    }
}

impl Start for ManagedStart {
    fn start(&mut self, name: &str, session: Session) -> Result<Arc<DrivenRun>, Error> {
        self.begin(name, session).map_err(|refusal| Error::Usage(refusal.message))
    }

    fn take(&mut self, addresses: &[String]) -> Result<(), Error> {
        self.hold(addresses).map_err(|refusal| Error::Usage(refusal.message))
    }

    fn file(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.service().and_then(|service| service.files.path(name));
        path.map_err(|refusal| Error::Usage(refusal.message))
    }
}

/// Services of the daemon for sessions of Open Traffic Generator.
pub struct OtgHost(pub Weak<Service>);

impl crate::otg::Host for OtgHost {
    fn start(&self, session: &str) -> Box<dyn Start> {
        Box::new(ManagedStart::new(self.0.clone(), otg_owner(session), Kind::Otg))
    }

    fn used(&self, session: &str, by: &Extensions) {
        if let (Some(service), Some(connection)) = (self.0.upgrade(), by.get::<Arc<Connection>>()) {
            service.used_by(&otg_owner(session), connection);
        }
    }
}

/// The session that holds ports as this owner. Users cannot choose such a name
/// (`api::ports::owner`).
pub fn otg_session(owner: &str) -> Option<&str> {
    if owner == "otg" { Some("") } else { owner.strip_prefix("otg/") }
}

/// The owner name for the ports of a session of Open Traffic Generator.
pub fn otg_owner(session: &str) -> String {
    if session.is_empty() { "otg".into() } else { format!("otg/{session}") }
}

impl Service {
    /// Notes a request from `owner` on the connection. The owner's leases do not expire while the
    /// connection is open.
    pub fn used_by(self: &Arc<Self>, owner: &str, connection: &Connection) {
        if connection.is_first_of(owner) {
            lock(&self.leases).connect(owner);
            let (service, owner) = (Arc::downgrade(self), owner.to_owned());
            connection.at_end(move || {
                if let Some(service) = service.upgrade() {
                    lock(&service.leases).disconnect(service.now(), &owner);
                }
            });
        }
    }

    /// The path of a file that a capture writes.
    ///
    /// # Errors
    /// A name that leads outside the daemon's directory; a directory that cannot be created.
    pub fn new_file(&self, name: &str) -> Result<PathBuf, Refusal> {
        let path = self.files.path(name)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "environment", error.to_string())
            })?;
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use squall::{Format, Profile};

    #[test]
    fn a_run_of_several_kinds_of_traffic_is_a_mix_that_names_them() {
        let ports = "[ports]\nA = \"loop:mix\"\nB = \"loop:mix\"\n";
        let stream = "[[stream]]\nport = \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n";
        let replay = "[[replay]]\nname = \"r\"\nport = \"A\"\nfiles = \"x.pcap\"\n";
        let session = |parts: &str| {
            let text = format!("{ports}{parts}");
            Session::new(Profile::parse(&text, "test", Format::Toml).expect("a profile"))
        };
        assert_eq!(Kind::of(&session(stream)), Kind::Streams);
        assert_eq!(Kind::of(&session(replay)), Kind::Replay);
        let hosts = "[[host]]\nport = \"A\"\n";
        assert_eq!(Kind::of(&session(hosts)), Kind::Hosts);
        let router = "[[router]]\nport = \"A\"\nipv4 = \"10.0.0.1/24\"\nasn = 65001\nneighbors = \
                      \"10.0.0.2 as 65002\"\n";
        assert_eq!(Kind::of(&session(router)), Kind::Hosts);
        assert_eq!(Kind::of(&session(&format!("{stream}{hosts}"))), Kind::Streams);
        let mix = session(&format!("{stream}{replay}"));
        let (kind, parts) = (Kind::of(&mix), Kind::parts(&mix));
        assert_eq!((kind, &parts[..]), (Kind::Mix, &[Kind::Streams, Kind::Replay][..]));
        assert_eq!(title(kind, &parts), "mix of streams and replay");
    }

    #[test]
    fn a_panic_in_a_run_is_reported_as_its_failure_and_its_ports_are_free() {
        let data = std::env::temp_dir().join(format!("squall-defect-{}", std::process::id()));
        let service = Arc::new(Service::open(Settings::of_test(data.clone())).expect("it opens"));
        let text = "[ports]\nA = \"loop:defect\"\nB = \"loop:defect\"\n[[stream]]\nport = \
                    \"A\"\npacket = \"eth/ipv4/udp\"\nrate = \"1 kpps\"\n";
        let wanted = |text: &str| Wanted {
            session: Session::new(Profile::parse(text, "test", Format::Toml).expect("a profile")),
            kind: Kind::Streams,
            name: String::new(),
            owner: "alice".into(),
            lease: None,
            ttl: Duration::from_secs(30),
            keep: Keep::Renewed,
            text: text.into(),
            format: "toml",
            fail_if: Vec::new(),
        };
        let start = |text: &str| service.start(wanted(text), OnPorts { hold: false });
        let (defect, _) = start(&format!("{text}# a defect on purpose")).expect("it starts");
        let id = defect.row().id;
        let deadline = Instant::now() + Duration::from_secs(20);
        while service.runs.get(&id).is_some() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        let row = service.history.run(&id).expect("it can be read").expect("it is there");
        assert_eq!(row.state, State::Failed);
        assert!(
            row.error.as_ref().is_some_and(|error| error.contains("a defect on purpose")),
            "{row:?}"
        );
        let (again, _) = start(text).expect("the ports are free");
        again.stop(None);
        while service.runs.get(&again.row().id).is_some() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(service);
        std::fs::remove_dir_all(data).expect("removed");
    }
}
